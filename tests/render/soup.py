"""Triangle soup for tests of soft images: overlapping triangles of both windings, several surfaces and materials."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from kinema.rendering.camera import Camera
from kinema.rendering.surface import Lights, Material, Surface

SIZE = (27, 20)  # neither is a multiple of 8
COUNT = 10  # triangles of each surface


def numbers(seed: int = 5) -> dict[str, Tensor]:
    """Everything that can be differentiated, float64; triangles are soup, but for an edge that two of them share."""
    g = torch.Generator().manual_seed(seed)

    def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        return low + (high - low) * torch.rand(shape, generator=g, dtype=torch.float64)

    camera = Camera.look_at((0.3, -4.0, 1.1), (0.05, 0.0, 0.02), fov=0.9, size=SIZE, dtype=torch.float64)
    made = {name: getattr(camera, name).clone() for name in ("R", "t", "focal", "centre")}
    for k in range(3):
        middle = uniform(COUNT, 1, 3, low=-1.0, high=1.0)
        made[f"vertices{k}"] = (middle + uniform(COUNT, 3, 3, low=-1.2, high=1.2)).reshape(-1, 3)
    # A triangle seen from the side, a sliver, and one behind the camera.
    eye = torch.tensor([0.3, -4.0, 1.1], dtype=torch.float64)
    made["vertices0"][5] = 0.5 * (made["vertices0"][3] + eye) + 1e-3
    made["vertices1"][8] = 0.55 * made["vertices1"][6] + 0.45 * made["vertices1"][7] + 0.01
    made["vertices2"][3:6] = eye + torch.tensor([[0.0, -1.0, 0.0], [0.5, -2.0, 0.0], [0.0, -1.0, 0.5]])
    return made | {
        "colour0": uniform(3 * COUNT, 3),
        "colour1": uniform(3),
        "colour2": uniform(3 * COUNT, 3),
        "texture": uniform(4, 5, 3),
        "uv": uniform(3 * COUNT, 2, low=-0.1, high=1.1),
        "diffuse": uniform(3, low=0.5),
        "specular": uniform(3, low=0.1, high=0.4),
        "shininess": uniform(3, low=2.0, high=6.0),
        "ambient": uniform(3),
        "directions": uniform(2, 3, low=-1.0),
        "direction_colours": uniform(2, 3),
        "points": torch.tensor([[1.0, -3.0, 2.0]], dtype=torch.float64),
        "point_colours": uniform(1, 3),
        "background": uniform(3),
    }


def surfaces(t: Mapping[str, Tensor]) -> list[Surface]:
    """A textured one, a flat one drawn on both sides, and one that is not lit."""
    faces = torch.arange(3 * COUNT).reshape(-1, 3)
    faces[1, 0], faces[1, 2] = faces[0, 1], faces[0, 0]

    def material(k: int, **options: object) -> Material:
        shine = {name: t[name][..., k] for name in ("diffuse", "specular", "shininess")}
        return Material(colour=t[f"colour{k}"], **shine, **options)

    return [
        Surface(t["vertices0"], faces, material(0, texture=t["texture"]), uv=t["uv"]),
        Surface(t["vertices1"], faces, material(1), smooth=False, two_sided=True),
        Surface(t["vertices2"], faces, material(2, lit=False)),
    ]


def camera(t: Mapping[str, Tensor], size: tuple[int, int] = SIZE) -> Camera:
    return Camera(t["R"], t["t"], t["focal"], t["centre"], *size)


def lights(t: Mapping[str, Tensor]) -> Lights:
    return Lights(**{n: t[n] for n in ("ambient", "directions", "direction_colours", "points", "point_colours")})


def weights(image: Tensor) -> Tensor:
    return torch.randn(image.shape, dtype=image.dtype, generator=torch.Generator().manual_seed(0))
