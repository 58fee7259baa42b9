"""Images that are kept, so that nobody changes what is drawn without noticing.

    python -m tests.render.golden      writes golden.npz anew; look at the difference before you keep it

Drawn by the kernels in float64 and stored in float32. The plain rasteriser says what is right; these say what was.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tests.render import scenes, soup

from kinema.rendering.camera import Camera
from kinema.rendering.options import RenderOptions
from kinema.rendering.render import render
from kinema.rendering.softras import Soft
from kinema.rendering.surface import Material, Surface
from kinema.verification import random_images

FILE = Path(__file__).with_suffix(".npz")


def images() -> dict[str, np.ndarray]:
    """Images by name, shape (height, width, 4): colours and coverage."""
    made = {}

    def keep(name: str, surfaces: list[Surface], camera: Camera, **options: object) -> None:
        made[name] = render(surfaces, camera, outputs="rgba", options=RenderOptions(**options)).numpy()

    for seed in (0, 1):
        x = scenes.numbers(seed)
        shown, camera = scenes.surfaces(x), scenes.camera(x)
        look = {"lights": scenes.lights(x), "background": x["background"]}
        keep(f"dibr_{seed}", shown, camera, sigma=x["sigma"], **look)
        keep(f"dibr_sharp_{seed}", shown, camera, edges=False, perspective=False, **look)
        keep(f"soft_{seed}", shown, camera, sigma=1e-4, soft=Soft(1e-3, 1.0, 10.0), **look)
    x = soup.numbers()
    shown, camera = random_images.surfaces(x), soup.camera(x)
    look = {"lights": random_images.lights(x), "background": x["background"]}
    keep("soup_dibr", shown, camera, supersample=2, **look)
    keep("soup_soft", shown, camera, sigma=2e-3, soft=Soft(0.05, 1.0, 10.0), **look)
    camera = Camera.look_at((3.0, 1.0, 2.0), (0.0,) * 3, size=(48, 36), dtype=torch.float64)
    keep("sphere", [sphere()], camera, background=(0.0, 0.0, 0.0))
    return made


def sphere() -> Surface:
    """As in the first example of anybody: default light, one colour."""
    vertices, faces = scenes.sphere(12, 16)
    return Surface(vertices, faces, Material(torch.tensor([0.8, 0.3, 0.2], dtype=torch.float64), specular=0.4))


if __name__ == "__main__":
    before = dict(np.load(FILE)) if FILE.exists() else {}
    found = {name: image.astype(np.float32) for name, image in images().items()}
    for name, image in found.items():
        known = name in before and before[name].shape == image.shape
        print(name, f"largest change {np.abs(image - before[name]).max():.3g}" if known else "new")
    np.savez_compressed(FILE, **found)
