"""Gradients of random images with difficult geometry, against differences; finite gradients of degenerate faces.

Shared by the tests and `kinema verify`. A seed is a scene: three surfaces of separate triangles that hide and intersect
each other, with and without light, texture and vertex colours, among them triangles seen edge-on, tiny ones, slivers,
and triangles that lie wholly or with one corner behind the camera.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kinema.rendering.camera import Camera
from kinema.rendering.options import RenderOptions
from kinema.rendering.render import render
from kinema.rendering.softras import Soft
from kinema.rendering.surface import Lights, Material, Surface

MODES = ("dibr", "soft")
SIZE = (24, 24)  # pixels
COUNT = 10  # triangles of a surface
EYE = (0.3, -4.0, 1.1)  # [m]
H = 1e-7  # of differences, times a random direction: rounding gives an error of 1e-16 / H = 1e-9 per value
ROUGH = 1e-7  # deviation between differences with H and H / 2 that marks a kink; a hundred rounding errors
LIMIT = 1e-6  # of relative errors: some pixels that are almost rough
LEFT_OUT = 0.02  # of the pixels at most, all tensors together

_FACES = torch.arange(3 * COUNT).reshape(-1, 3)
_FACES[1, 0], _FACES[1, 2] = _FACES[0, 1], _FACES[0, 0]  # two that share an edge
_LIGHTS = ("ambient", "directions", "direction_colours", "points", "point_colours")


@dataclass
class Outcome:
    """Results for some images.

    Attributes:
        images: Number of compared scenes, each mode counted.
        pixels: Their number of pixels.
        flips: Pixels left out because they see another face within the step of a difference.
        rough: Pixels left out because they have another jump, or a kink.
        worst: Largest relative error of a derivative, and its place.
        degenerate: Number of degenerate images.
        wrong: Degenerate images with non-finite values: seed, mode, names of non-finite tensors.
    """

    images: int = 0
    pixels: int = 0
    flips: int = 0
    rough: int = 0
    worst: tuple[float, str] = (0.0, "nowhere")
    degenerate: int = 0
    wrong: list[str] = field(default_factory=list)


def numbers(seed: int, mode: str) -> dict[str, Tensor]:
    """All differentiable inputs of an image of this mode, float64."""
    random = torch.Generator().manual_seed(seed)

    def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        return low + (high - low) * torch.rand(shape, generator=random, dtype=torch.float64)

    eye = torch.tensor(EYE, dtype=torch.float64)
    camera = Camera.look_at(EYE, (0.05, 0.0, 0.02), fov=0.7, size=SIZE, dtype=torch.float64)
    made = {name: getattr(camera, name).clone() for name in ("R", "t", "focal", "centre")}
    for k in range(3):
        corners = uniform(COUNT, 1, 3, low=-1.0) + uniform(COUNT, 3, 3, low=-1.2, high=1.2)
        corners[2, 2] = 0.5 * (corners[2, 0] + eye) + 1e-3  # seen edge-on
        corners[3] = corners[3, 0] + 1e-2 * uniform(3, 3)  # tiny: less than a tenth of a pixel
        corners[4] = eye + uniform(3, 3, low=-1.0) * torch.tensor([1.0, 0.0, 1.0]) - torch.tensor([0.0, 1.0, 0.0])
        corners[5, 1] = eye - torch.tensor([0.0, 1.0, 0.0])
        corners[6, 2] = 0.55 * corners[6, 0] + 0.45 * corners[6, 1] + 0.01  # a sliver
        made[f"vertices{k}"] = corners.reshape(-1, 3)
    made |= looks(uniform)
    made["sigma"] = uniform(low=1e-3, high=3e-3)  # wide outlines: they affect many pixels
    soft = {"gamma": uniform(low=0.05, high=0.2), "near": uniform(low=0.8), "far": uniform(low=8.0, high=10.0)}
    return made | soft if mode == "soft" else made


def looks(uniform: Callable[..., Tensor]) -> dict[str, Tensor]:
    """Random materials of three surfaces, and lights; `uniform` returns values from `low` to `high` of a shape."""
    return {
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


def surfaces(x: Mapping[str, Tensor]) -> list[Surface]:
    """A textured surface, a flat two-sided one, and an unlit one."""
    shine = [(x["diffuse"][..., k], x["specular"][..., k], x["shininess"][..., k]) for k in range(3)]
    return [
        Surface(x["vertices0"], _FACES, Material(x["colour0"], x["texture"], *shine[0]), x["uv"]),
        Surface(x["vertices1"], _FACES, Material(x["colour1"], None, *shine[1]), smooth=False, two_sided=True),
        Surface(x["vertices2"], _FACES, Material(x["colour2"], None, *shine[2], lit=False)),
    ]


def lights(x: Mapping[str, Tensor]) -> Lights:
    """Lights of all kinds."""
    return Lights(**{name: x[name] for name in _LIGHTS})


def draw(x: Mapping[str, Tensor], mode: str) -> tuple[Tensor, Tensor]:
    """Colours and coverage (*batch, height, width, 4), and the face of each pixel, -1 for soft images."""
    soft = mode == "soft"
    options = RenderOptions(
        lights=lights(x),
        background=x["background"],
        sigma=x["sigma"],
        soft=Soft(x["gamma"], x["near"], x["far"]) if soft else None,
    )
    camera = Camera(x["R"], x["t"], x["focal"], x["centre"], *SIZE)
    found = render(surfaces(x), camera, outputs=("rgba",) if soft else ("rgba", "face"), options=options)
    image = found["rgba"]
    return image, torch.full(image.shape[:-1], -1, dtype=torch.int32) if soft else found["face"]


def compare(seed: int, mode: str, outcome: Outcome) -> None:
    """Compare derivatives of a random sum over an image, along a random direction of every tensor, with differences.

    Args:
        seed: Seed of the scene.
        mode: One of MODES.
        outcome: Results, which are updated.
    """
    x = numbers(seed, mode)
    random = torch.Generator().manual_seed(seed)
    ways = {name: _direction(name, number, random) for name, number in x.items()}
    with torch.no_grad():
        face, seen = draw(x, mode)[1], {}
        flips, rough = torch.zeros(2, *face.shape, dtype=torch.bool)
        for name, way in ways.items():
            wide, narrow = (_difference(x, name, h * way, mode) for h in (H, 0.5 * H))
            seen[name] = narrow[0] / H
            flips |= (wide[1] != face).any(0) | (narrow[1] != face).any(0)
            rough |= (seen[name] - wide[0] / (2 * H)).abs().amax(-1) > ROUGH
    weights = torch.randn((*face.shape, 4), generator=random, dtype=torch.float64) * ~(flips | rough).unsqueeze(-1)
    leaves = {name: number.requires_grad_() for name, number in x.items()}
    gradients = torch.autograd.grad((draw(leaves, mode)[0] * weights).sum(), list(leaves.values()))
    for name, gradient in zip(leaves, gradients, strict=True):
        exact, expected = float((gradient * ways[name]).sum()), float((seen[name] * weights).sum())
        error = abs(exact - expected) / max(abs(expected), 1.0)  # of sums of hundreds of numbers around 1
        outcome.worst = max(outcome.worst, (error, f"{name} of seed {seed}, {mode}"))
    outcome.images, outcome.pixels = outcome.images + 1, outcome.pixels + flips.numel()
    outcome.flips, outcome.rough = outcome.flips + int(flips.sum()), outcome.rough + int((rough & ~flips).sum())


def _difference(x: Mapping[str, Tensor], name: str, step: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """Difference of the images one step ahead and one step back, and the faces of both."""
    (ahead, face), (back, other) = (draw({**x, name: x[name] + move}, mode) for move in (step, -step))
    return ahead - back, torch.stack([face, other])


def _direction(name: str, number: Tensor, random: torch.Generator) -> Tensor:
    """A random direction that preserves rotations, and changes widths and pixels in proportion."""
    way = torch.randn(number.shape, generator=random, dtype=torch.float64)
    if name == "R":
        return torch.linalg.cross(way[:1].expand(3, 3), number, dim=-1)
    return way * number if name in ("sigma", "gamma", "focal", "centre") else way


def try_degenerate(seed: int, cases: int, mode: str, outcome: Outcome, dtype: torch.dtype = torch.float32) -> None:
    """Draw degenerate faces, and check that the images and all their gradients are finite.

    Args:
        seed: Seed of the scene and of its degeneracies.
        cases: Number of images.
        mode: One of MODES.
        outcome: Results, which are updated.
        dtype: Precision.
    """
    x = numbers(seed, mode)
    random = torch.Generator().manual_seed(seed)
    leaves = {}
    for name, number in x.items():
        many = number.expand(cases, *number.shape)
        moved = _degenerate(many, random) if name.startswith("vertices") else many
        leaves[name] = moved.to(dtype, copy=True).requires_grad_()
    image, _ = draw(leaves, mode)
    weights = torch.randn(image.shape, generator=random, dtype=torch.float64).to(dtype)
    gradients = torch.autograd.grad((image * weights).sum(), list(leaves.values()))
    found = {"image": image, **{f"gradient of {n}": g for n, g in zip(leaves, gradients, strict=True)}}
    for case in range(cases):
        names = [name for name, t in found.items() if not bool(t[case].isfinite().all())]
        if names:
            outcome.wrong.append(f"seed {seed}, {mode}, case {case}: {', '.join(names)}")
    outcome.degenerate += cases


def _degenerate(vertices: Tensor, random: torch.Generator) -> Tensor:
    """Move many vertices: to one point, onto a line, into and around the camera, far away, and close together."""
    eye, fifth = torch.tensor(EYE, dtype=torch.float64), len(vertices) // 5
    v = vertices + 0.2 * torch.randn(vertices.shape, generator=random, dtype=torch.float64)
    kind = torch.randint(0, 10, (*vertices.shape[:2], 1), generator=random)
    v = torch.where(kind == 1, v[:, :1], v)
    v = torch.where(kind == 2, v[:, :1] + torch.randint(-2, 3, kind.shape, generator=random) * v[:, 1:2], v)
    v = torch.where(kind == 3, eye, v)
    v = torch.where(kind == 4, eye + 0.1 * v, v)
    v = torch.where(kind == 5, 1e6 * v, v)
    v = torch.where(kind == 6, 1e-6 * v, v)
    v[:fifth] = eye + v[:fifth, :, :1] * (v[:fifth, :1] - eye)  # all on one ray
    v[fifth : 2 * fifth, :, 2] = EYE[2]  # all in one plane through the camera
    v[2 * fifth : 3 * fifth, 1::3] = v[2 * fifth : 3 * fifth, ::3]  # no face has an area
    return v
