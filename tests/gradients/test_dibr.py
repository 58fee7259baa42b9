"""Gradients of images of closed bodies against central differences in float64, by everything that makes an image.

An image jumps where a face comes into a pixel's reach, and where the nearest face of a pixel changes: such pixels are
found by their second differences, counted, printed and left out. At h = 3e-7 there are hardly any.
"""

from __future__ import annotations

import pytest
import torch
from tests.render import scenes
from torch import Tensor

from kinema.rendering.options import RenderOptions
from kinema.rendering.render import render

H = 3e-7
# Second differences of smooth pixels are at most h^2 / sigma times a few: 1e-9; those of jumps 1e-4 times a colour.
JUMP = 1e-7
NAMES = sorted(scenes.numbers(0))


def image(x: dict[str, Tensor], **options: object) -> Tensor:
    """Colours and coverage, (height, width, 4)."""
    look = RenderOptions(lights=scenes.lights(x), background=x["background"], sigma=x["sigma"], **options)
    return render(scenes.surfaces(x), scenes.camera(x), outputs="rgba", options=look)


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
