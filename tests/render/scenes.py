"""Random scenes for tests of the renderer: tensors by name, and surfaces, cameras and lights made of them."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from kinema.rendering.camera import Camera
from kinema.rendering.options import RenderOptions
from kinema.rendering.surface import Lights, Material, Surface

SIZE = (37, 29)


def on_black(**options: object) -> RenderOptions:
    """Options with a black background."""
    return RenderOptions(background=(0.0, 0.0, 0.0), **options)


def sphere(rings: int, segments: int) -> tuple[Tensor, Tensor]:
    """Vertices and faces of a unit sphere of 2 segments (rings - 1) triangles."""
    points = [(0.0, 0.0, 1.0)]
    for i in range(1, rings):
        for j in range(segments):
            a, b = math.pi * i / rings, 2 * math.pi * j / segments
            points.append((math.sin(a) * math.cos(b), math.sin(a) * math.sin(b), math.cos(a)))
    points.append((0.0, 0.0, -1.0))

    def at(i: int, j: int) -> int:
        return 1 + (i - 1) * segments + j % segments

    faces = [(0, at(1, j), at(1, j + 1)) for j in range(segments)]
    for i in range(1, rings - 1):
        for j in range(segments):
            faces += [(at(i, j), at(i + 1, j), at(i + 1, j + 1)), (at(i, j), at(i + 1, j + 1), at(i, j + 1))]
    faces += [(len(points) - 1, at(rings - 1, j + 1), at(rings - 1, j)) for j in range(segments)]
    return torch.tensor(points, dtype=torch.float64), torch.tensor(faces)


ROUND, ROUND_FACES = sphere(5, 7)
# Textured, two-sided, flat triangles, which cross each other and the spheres. Loose: at a common corner of two of them
# rounding would decide which is the nearest to a pixel, and whose normal counts.
SHEET_FACES = torch.arange(18).reshape(6, 3)
LIGHTS = ("ambient", "directions", "direction_colours", "points", "point_colours")
CAMERA = ("R", "t", "focal", "centre")


def numbers(seed: int, eye: tuple[float, float, float] = (3.0, 0.5, 0.4)) -> dict[str, Tensor]:
    """All tensors of a scene: three surfaces that hide each other, one partly behind a camera that is near."""
    g = torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> Tensor:
        return torch.rand(shape, generator=g, dtype=torch.float64)

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64)

    camera = Camera.look_at(eye, (0.0, 0.0, 0.0), size=SIZE, fov=0.7, dtype=torch.float64)
    n = len(ROUND)
    return {
        **{name: getattr(camera, name).clone() for name in CAMERA},
        **dict(zip(LIGHTS, (rand(3), randn(2, 3), rand(2, 3), 3 * randn(1, 3), rand(1, 3)), strict=True)),
        "vertices": 0.6 * ROUND + 0.1 * randn(n, 3),
        "colour": rand(n, 3),
        "diffuse": rand(),
        "specular": rand(),
        "shininess": 4 + 8 * rand(),
        "sheet": 0.8 * randn(18, 3),
        "uv": 1.4 * rand(18, 2) - 0.2,
        "texture": rand(5, 4, 3),
        "tint": rand(3),
        "plain": 0.3 * ROUND + torch.tensor([0.5, 0.3, -0.2]),
        "plain_colour": rand(3),
        "background": rand(3),
        "sigma": torch.tensor(1 / 700, dtype=torch.float64),  # wide outlines: many pixels feel them
    }


def surfaces(x: dict[str, Tensor]) -> list[Surface]:
    """A smooth shiny sphere, flat textured two-sided triangles, a sphere that is not lit."""
    shiny = Material(x["colour"], None, x["diffuse"], x["specular"], x["shininess"])
    printed = Material(x["tint"], x["texture"], specular=0.2)
    return [
        Surface(x["vertices"], ROUND_FACES, shiny),
        Surface(x["sheet"], SHEET_FACES, printed, x["uv"], smooth=False, two_sided=True),
        Surface(x["plain"], ROUND_FACES, Material(x["plain_colour"], lit=False)),
    ]


def camera(x: dict[str, Tensor]) -> Camera:
    return Camera(*(x[name] for name in CAMERA), *SIZE)


def lights(x: dict[str, Tensor]) -> Lights:
    return replace(Lights(), **{name: x[name] for name in LIGHTS})
