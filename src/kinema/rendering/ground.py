"""Finite chequered ground for planes, and shadows on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from kinema.model.broad_phase import GROUND
from kinema.rendering.surface import Lights, Material, Surface
from kinema.rendering.triangles import grid

TILES = 16  # along each side
TEXELS = 16  # along the side of a tile
LIGHT, DARK = 0.62, 0.46  # linear grey of tiles
SHADE = 0.45  # fraction of the light that remains in a shadow
ABOVE = 2e-3  # height of shadows above the ground, relative to the side of a tile


@dataclass(eq=False)
class GroundPlan:
    """Triangles of the ground of a model.

    Attributes:
        middle: Centre of the drawn square, in the plane [m], shape (3,).
        tile: Side of a tile that suits the scene [m].
        vertices: In tiles relative to the centre, shape (n, 3).
        faces: Shape (m, 3).
        uv: Shape (n, 2).
    """

    middle: Tensor
    tile: float
    vertices: Tensor
    faces: Tensor
    uv: Tensor
    textures: dict[torch.dtype, Tensor] = field(default_factory=dict)

    def surface(self, R: Tensor, p: Tensor, tile: float | None, dtype: torch.dtype) -> Surface:
        """The ground with its frame at (R, p) and tiles of a given side [m]."""
        side = self.tile if tile is None else tile
        flat = (side * self.vertices + torch.round(self.middle / side) * side).to(dtype)
        vertices = flat @ R.to(dtype).transpose(-1, -2) + p.to(dtype).unsqueeze(-2)
        if dtype not in self.textures:
            self.textures[dtype] = checker(dtype)
        material = Material(torch.ones(3, dtype=dtype), self.textures[dtype])
        return Surface(vertices, self.faces, material, self.uv.to(dtype), True, False, GROUND)


def plan_ground(seen: np.ndarray) -> GroundPlan:
    """Ground for a scene with these points [m], shape (n, 3)."""
    low, high = (seen.min(0), seen.max(0)) if len(seen) else (np.full(3, -0.5), np.full(3, 0.5))
    extent = max(float(np.max(high - low)), 1e-6)
    place, faces = grid((TILES, TILES))
    flat = np.concatenate([TILES * (place - 0.5), np.zeros((len(place), 1))], 1)
    middle = 0.5 * (low + high) * (1.0, 1.0, 0.0)
    return GroundPlan(
        torch.tensor(middle),
        _round_length(0.4 * extent),
        torch.tensor(flat),
        torch.tensor(faces, dtype=torch.int32),
        torch.tensor(place),
    )


def checker(dtype: torch.dtype, light: float = LIGHT, dark: float = DARK) -> Tensor:
    """The texture of the ground, shape (pixels, pixels, 3)."""
    at = torch.arange(TILES * TEXELS) // TEXELS
    odd = (at[:, None] + at) % 2 == 1
    shade = torch.where(odd, torch.tensor(light, dtype=dtype), torch.tensor(dark, dtype=dtype))
    return shade.unsqueeze(-1).repeat(1, 1, 3)


def shadows_of(surfaces: Sequence[Surface], lights: Lights) -> list[Surface]:
    """Shadows of all surfaces on the ground, if it is among them, from the first directional light.

    Each vertex is projected along the light onto the ground; the shadow surface shows the ground, darker. Shadows
    extend beyond the edge of the ground, and include the straight projection of parts below it.

    Gradients:
        Exact to vertices, the direction of the light and the ground.
    """
    ground = next((s for s in surfaces if s.name == GROUND), None)
    if ground is None or not lights.directions.shape[-2]:
        return []
    corners = ground.vertices[..., [0, TILES, (TILES + 1) * TILES], :]  # origin, and along both sides
    origin, across, along = corners.unbind(-2)
    across, along = across - origin, along - origin
    normal = torch.nn.functional.normalize(torch.linalg.cross(across, along), dim=-1)
    toward = lights.directions[..., 0, :].to(normal.dtype)
    sinks = (normal * toward).sum(-1, keepdim=True)
    made = []
    for one in surfaces:
        if one is ground:
            continue
        height = ((one.vertices - origin.unsqueeze(-2)) * normal.unsqueeze(-2)).sum(-1, keepdim=True)
        # Vertices below the ground are projected straight onto it, independent of the light.
        way = height.clamp_min(0.0) / sinks.unsqueeze(-2)
        flat = one.vertices - way * toward.unsqueeze(-2) - height.clamp_max(0.0) * normal.unsqueeze(-2)
        inside = flat - origin.unsqueeze(-2)
        uv = torch.stack(
            [(inside * side.unsqueeze(-2)).sum(-1) / side.square().sum(-1, keepdim=True) for side in (across, along)],
            -1,
        )
        lifted = flat + ABOVE / TILES * across.norm(dim=-1)[..., None, None] * normal.unsqueeze(-2)
        material = replace(ground.material, colour=SHADE * ground.material.colour)
        made.append(Surface(lifted, one.faces, material, uv, False, True, f"{one.name} (shadow)", one.points))
    return made


def _round_length(length: float) -> float:
    """1, 2 or 5 times a power of ten, at most `length`."""
    power = 10.0 ** math.floor(math.log10(length))
    return max(k for k in (1.0, 2.0, 5.0) if k * power <= length * (1 + 1e-9)) * power
