"""Smoke as a textured square in the x-z plane."""

from __future__ import annotations

import torch
from torch import Tensor

from kinema.rendering.surface import Material, Surface
from kinema.simulation.smoke import SmokeBox

SMOKE = "smoke"
PAPER = 0.01  # linear grey without smoke
INKS = ((0.9, 0.9, 0.9), (0.9, 0.32, 0.06), (0.08, 0.42, 0.85), (0.35, 0.75, 0.15))  # of channels, in order

_FACES: Tensor = torch.tensor([[0, 1, 2], [0, 2, 3]], dtype=torch.int32)


def smoke_surface(
    box: SmokeBox,
    density: Tensor,
    dtype: torch.dtype = torch.float32,
    *,
    paper: Tensor | None = None,
    ink: Tensor | None = None,
) -> Surface:
    """The box as an upright picture: x to the right, y up along the world's z.

    colour = paper + sum over channels of density (ink - paper), not clamped.

    Args:
        box: The box.
        density: Shape (*batch, channels, nx, ny), see `SmokeBox`.
        dtype: Precision of the surface.
        paper: Linear RGB without smoke, shape (3,); nearly black by default.
        ink: Linear RGB where the density is 1, shape (channels, 3); white, orange, blue and green by default.

    Gradients:
        Exact to the density and both colours.
    """
    kinds = density.shape[-3]
    paper = torch.full((3,), PAPER, dtype=dtype) if paper is None else paper.to(dtype)
    if ink is None:
        ink = torch.tensor([INKS[k % len(INKS)] for k in range(kinds)])
    # Rows of a picture from the top: (kinds, nx, ny) to (ny, nx, kinds), upside down.
    rows = density.to(dtype).transpose(-1, -3).flip(-3)
    texture = paper + rows @ (ink.to(dtype) - paper)
    width, height = (n * box.cell for n in box.cells)
    corners = [(0.0, 0.0, 0.0), (width, 0.0, 0.0), (width, 0.0, height), (0.0, 0.0, height)]
    uv = torch.tensor([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)], dtype=dtype)
    material = Material(torch.ones(3, dtype=dtype), texture, lit=False)
    return Surface(torch.tensor(corners, dtype=dtype), _FACES, material, uv, False, True, SMOKE)
