"""Photorealistic images of an object above the ground, by Mitsuba: shadows, light from the ground, noise.

Paths of light are traced from the sky, which shines evenly, and from the sun. Needs the extra `photo`.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

import kinema as kn

SKY, SUN = 0.45, 1.4  # radiance of the sky; irradiance of the sun
SUNWARDS = (-0.4, -0.6, 1.0)  # from the ground to the sun
BOUNCES = 4


def photograph(
    object_: kn.Surface, ground: kn.Surface, grey: float, camera: kn.Camera, samples: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Photographs of an object in motion, and masks of what is seen of it.

    Args:
        object_: A surface with vertices of shape (frames, vertices, 3) and a uniform colour.
        ground: The ground.
        grey: Reflectance of the ground [-].
        camera: The camera.
        samples: Paths per pixel.
        seed: Seed of the paths; the same seed gives the same images.

    Returns:
        Linear RGB, shape (frames, height, width, 3), and coverage, shape (frames, height, width).
    """
    mi: Any = importlib.import_module("mitsuba")
    mi.set_variant("scalar_rgb")
    light = {
        "sky": {"type": "constant", "radiance": SKY},
        "sun": {"type": "directional", "direction": [-x for x in SUNWARDS], "irradiance": SUN},
    }
    floor = _mesh(mi, "ground", ground.vertices, ground.faces, _paint([grey] * 3))
    sensor = _sensor(mi, camera, samples)
    images: list[Tensor] = []
    masks: list[Tensor] = []
    for frame, vertices in enumerate(object_.vertices):
        for found, depth, shapes in (
            (images, BOUNCES, light | {"object": _paint(object_.material.colour.tolist())}),
            (masks, 1, {}),
        ):
            paint = shapes.pop("object", {"emitter": {"type": "area", "radiance": 1.0}})
            thing = _mesh(mi, "object", vertices, object_.faces, paint)
            scene = mi.load_dict(
                {"type": "scene", "integrator": {"type": "path", "max_depth": depth}, "sensor": sensor}
                | shapes
                | {"ground": floor, "object": thing}
            )
            image = np.array(mi.render(scene, seed=2 * (1000 * seed + frame) + depth % 2))
            found.append(torch.from_numpy(image).double())
    return torch.stack(images), torch.stack(masks)[..., 0]


def _paint(colour: list[float]) -> dict[str, Any]:
    """A matt surface."""
    return {"bsdf": {"type": "diffuse", "reflectance": {"type": "rgb", "value": colour}}}


def _mesh(mi: Any, name: str, vertices: Tensor, faces: Tensor, looks: dict[str, Any]) -> Any:
    """A mesh with flat faces."""
    props = mi.Properties()
    for key, given in looks.items():
        props[key] = mi.load_dict(given)
    made = mi.Mesh(name, len(vertices), len(faces), props=props)
    numbers = mi.traverse(made)
    numbers["vertex_positions"] = vertices.float().numpy().ravel()
    numbers["faces"] = faces.numpy().astype(np.uint32).ravel()
    numbers.update()
    return made


def _sensor(mi: Any, camera: kn.Camera, samples: int) -> dict[str, Any]:
    """The same camera: Mitsuba looks along +z too, with x to the left and y up."""
    eye, down = camera.eye.double(), camera.R[1].double()
    ahead = eye + camera.R[2].double()
    view = 2.0 * math.atan(0.5 * camera.width / float(camera.focal[0]))
    look = mi.ScalarTransform4f().look_at(eye.tolist(), ahead.tolist(), (-down).tolist())
    film = {"type": "hdrfilm", "width": camera.width, "height": camera.height, "rfilter": {"type": "box"}}
    sampler = {"type": "independent", "sample_count": samples}
    return {
        "type": "perspective",
        "fov": math.degrees(view),
        "fov_axis": "x",
        "to_world": look,
        "film": film | {"pixel_format": "rgb"},
        "sampler": sampler,
    }
