"""Surfaces without light have no normals: images and gradients read none."""

from __future__ import annotations

import pytest
import torch

import kinema as kn

F64 = torch.float64
CORNERS = torch.tensor([[-1.0, 0.0, -1.0], [1.0, 0.2, -1.0], [0.0, 0.5, 1.0], [0.9, 1.0, 0.8]], dtype=F64)
FACES = torch.tensor([[0, 1, 2], [2, 1, 3]])
CAMERA = kn.Camera.look_at((0.2, -4.0, 0.3), (0.0, 0.0, 0.0), fov=0.7, size=(16, 16))


def _image(vertices: torch.Tensor, textured: bool) -> torch.Tensor:
    ramp = torch.linspace(0.1, 0.9, 12, dtype=F64).reshape(4, 3)
    texture = ramp.reshape(2, 2, 3) if textured else None
    colour = torch.ones(3, dtype=F64) if textured else ramp
    surface = kn.Surface(vertices, FACES, kn.Material(colour, texture, lit=False), uv=0.5 + 0.5 * CORNERS[:, [0, 2]])
    return kn.render(surface, CAMERA, options=kn.RenderOptions(sigma=1e-2, background=(0.0, 0.0, 0.0)))


def test_checked(monkeypatch: pytest.MonkeyPatch):
    """The checked build refuses reads beyond the end of an array, forwards and backwards."""
    monkeypatch.setenv("KINEMA_CHECK", "1")
    vertices = CORNERS.clone().requires_grad_()
    _image(vertices, textured=False).square().sum().backward()
    assert bool((vertices.grad != 0).any(-1).all())


@pytest.mark.parametrize("textured", [False, True])
def test_against_differences(textured: bool):
    vertices, way = (
        CORNERS.clone().requires_grad_(),
        torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).double(),
    )
    _image(vertices, textured).square().sum().backward()
    h = 1e-6
    ends = [float(_image(CORNERS + s * h * way, textured).square().sum()) for s in (1.0, -1.0)]
    slope = float((vertices.grad * way).sum())
    # Truncation is of order h^2, rounding of 1e-16 / h: 1e-6 of the slope leaves a factor of 100.
    assert abs((ends[0] - ends[1]) / (2 * h) - slope) < 1e-6 * abs(slope)
