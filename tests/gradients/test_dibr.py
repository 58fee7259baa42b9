"""Gradients of images against central differences in float64, with respect to everything that makes an image.

An image jumps where a face comes into a pixel's reach, and where the nearest face of a pixel changes: such pixels are
found by their second differences, counted, printed and left out. At h = 3e-7 there are hardly any.
"""

from __future__ import annotations

import pytest
import torch
from tests.render import scenes
from torch import Tensor

from kinema.rendering.camera import Camera
from kinema.rendering.draw import render_surfaces
from kinema.rendering.surface import Lights, Material, Surface

H = 3e-7
# Second differences of smooth pixels are at most h^2 / sigma times a few: 1e-9; those of jumps 1e-4 times a colour.
JUMP = 1e-7
NAMES = sorted(scenes.numbers(0))


def image(x: dict[str, Tensor], **options: object) -> Tensor:
    """Colours and coverage, (height, width, 4)."""
    found = render_surfaces(
        scenes.surfaces(x),
        scenes.camera(x),
        lights=scenes.lights(x),
        background=x["background"],
        sigma=x["sigma"],
        **options,
    )
    return torch.cat([found["rgb"], found["alpha"][..., None]], dim=-1)


def directions(x: dict[str, Tensor], name: str, g: torch.Generator) -> Tensor:
    """A direction that keeps a rotation one, and sigma positive."""
    d = torch.randn(x[name].shape, generator=g, dtype=torch.float64)
    if name == "R":
        return torch.linalg.cross(d[:1].expand(3, 3), x["R"], dim=-1)  # rows turned: R + h R skew
    return 1e-3 * d if name == "sigma" else d


@pytest.mark.parametrize("eye", [(3.0, 0.5, 0.4), (0.7, 0.4, 0.2)], ids=["outside", "amidst"])
@pytest.mark.parametrize("perspective", [True, False])
def test_central_differences(eye: tuple[float, float, float], perspective: bool) -> None:
    flips = 0
    for seed in range(3):
        x = scenes.numbers(seed, eye)
        g = torch.Generator().manual_seed(seed)
        weights = torch.randn(*scenes.SIZE[::-1], 4, generator=g, dtype=torch.float64)
        middle = image(x, perspective=perspective)
        along = {name: directions(x, name, g) for name in NAMES}
        ends = {
            name: [image({**x, name: x[name] + s * H * d}, perspective=perspective) for s in (1, -1)]
            for name, d in along.items()
        }
        jumps = torch.stack([(up - 2 * middle + down).abs().amax(-1) > JUMP for up, down in ends.values()]).any(0)
        flips += int(jumps.sum())
        weights = weights * ~jumps[..., None]
        leaves = {name: number.clone().requires_grad_() for name, number in x.items()}
        loss = (image(leaves, perspective=perspective) * weights).sum()
        gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        for name, (up, down) in ends.items():
            exact = float((gradients[name] * along[name]).sum())
            difference = float(((up - down) * weights).sum()) / (2 * H)
            # Differences of numbers around 1: 1e-16 / h each, thousands of pixels, and h^2 times third derivatives.
            assert abs(exact - difference) <= 1e-6 * max(abs(difference), 1.0), (name, seed, exact, difference)
    print(f"{flips} flipped pixels left out")
    assert flips < 30  # of 3219


def test_the_silhouette_has_a_gradient() -> None:
    """A sphere that moves sideways uncovers what is behind it: most of that gradient is that of outlines."""
    x = scenes.numbers(1)
    moved = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    area = image({**x, "vertices": x["vertices"] * (1 + moved[0])})[..., 3].sum()
    (gradient,) = torch.autograd.grad(area, moved)
    assert gradient[0] > 50  # pixels; 2 pi r^2 for a disc of radius 3 pixels, at least


def degenerate(cases: int) -> Tensor:
    """Vertices that make trouble: flat, doubled, edge-on, tiny, huge, at and behind the camera, in every mixture."""
    g = torch.Generator().manual_seed(0)
    v = 0.6 * scenes.ROUND.float() + 0.2 * torch.randn(cases, len(scenes.ROUND), 3, generator=g)
    kind = torch.randint(0, 8, (cases, len(scenes.ROUND), 1), generator=g)
    eye = torch.tensor([3.0, 0.5, 0.4])
    v = torch.where(kind == 1, v[:, :1], v)  # many corners in one place
    v = torch.where(kind == 2, eye, v)  # in the camera
    v = torch.where(kind == 3, eye + 0.1 * v, v)  # around it
    v = torch.where(kind == 4, 1e6 * v, v)
    v = torch.where(kind == 5, 1e-6 * v, v)
    v[: cases // 5] = v[: cases // 5, :, :1] * eye  # all on rays through the camera
    v[cases // 5 : 2 * cases // 5, :, 2] = 0.0  # all in a plane
    return v


def test_degenerate_faces_give_finite_numbers() -> None:
    vertices = degenerate(500).requires_grad_()
    material = Material(colour=torch.rand(len(scenes.ROUND), 3), specular=0.3)
    camera = Camera.look_at((3.0, 0.5, 0.4), (0.0, 0.0, 0.0), size=(24, 16))
    leaves = [vertices, camera.R.requires_grad_(), camera.t.requires_grad_(), camera.focal.clone().requires_grad_()]
    camera = Camera(leaves[1], leaves[2], leaves[3], camera.centre, 24, 16)
    found = render_surfaces(Surface(vertices, scenes.ROUND_FACES, material), camera, lights=Lights())
    assert found["alpha"].max() == 1.0  # some are seen
    gradients = torch.autograd.grad(found["rgb"].sum() + found["alpha"].sum(), leaves)
    for numbers in (*found.values(), *gradients):
        assert torch.isfinite(numbers).all()
