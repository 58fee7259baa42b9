"""`RenderOptions`: how to render. What to draw, and from where, are arguments of `render`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.rendering.softras import Soft
from kinema.rendering.surface import Lights, Material
from kinema.rendering.triangles import SIDES

SIGMA = 1.0 / 7000.0  # [Chen et al. 2019], squared width of soft outlines on the screen
DEFAULT_LIGHTS = Lights()


@dataclass(frozen=True, eq=False)
class RenderOptions:
    """How to render. To change some options: `dataclasses.replace(options, shadows=True)`.

    Attributes:
        materials: For models and trajectories: materials by "robot/body", "robot", or the name of soft matter, in place
            of its colour.
        ground: For models and trajectories: False omits planes; a number is the side of their tiles [m].
        dtype: Precision for models and trajectories, whatever their own is; float64 to check gradients. Surfaces are
            drawn in the precision of their vertices.
        sides: For models and trajectories: number of sides of circles, in spheres, capsules and cylinders; a multiple
            of four. The time of small images is that of their triangles, a number that grows with its square: 8 or 12
            are enough for things a few pixels wide.
        shadows: Whether to draw shadows on the ground, from the first directional light, see `shadows_of`.
        lights: Lights of the scene.
        background: Linear RGB of the background, shape (*batch, 3).
        sigma: Squared width of soft outlines on the screen, whose short side has the length 2; 1e-7 is sharp.
        edges: Whether outlines also fade over other faces behind them, and not only over the background.
        perspective: Whether to interpolate attributes of faces perspective-correctly; otherwise linearly on the screen.
        soft: Draw soft, translucent faces, see `softras`: the softness of occlusion; `sigma` is the softness of edges.
            Outputs are "rgb", "rgba" and "alpha", and `edges` and `perspective` have no effect. By default faces are
            sharp, with soft outlines, see `dibr`.
        supersample: Number of samples per pixel in each direction, which are averaged; for "rgb", "rgba" and "alpha"
            only.
        threads: Number of worker threads, which share the images of a batch; all CPUs by default. Results are bitwise
            independent of it.

    Raises:
        InputError: An option has the wrong type, or is not positive.
    """

    materials: Mapping[str, Material] = field(default_factory=dict)
    ground: bool | float = True
    dtype: torch.dtype = torch.float32
    sides: int = SIDES
    shadows: bool = False
    lights: Lights = DEFAULT_LIGHTS
    background: Tensor | Sequence[float] = (1.0, 1.0, 1.0)
    sigma: Tensor | float = SIGMA
    edges: bool = True
    perspective: bool = True
    soft: Soft | None = None
    supersample: int = 1
    threads: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.lights, Lights):
            _wrong_type("lights", self.lights, "Lights", "lights=kinema.Lights(...), or leave it out")
        if self.soft is not None and not isinstance(self.soft, Soft):
            _wrong_type("soft", self.soft, "Soft, or None", "soft=kinema.Soft()")
        if not isinstance(self.materials, Mapping):
            _wrong_type("materials", self.materials, "a dictionary", '{"robot/body": kinema.Material(...)}')
        check_sides(self.sides)
        if not isinstance(self.supersample, int) or self.supersample < 1:
            raise InputError("supersample is not usable", got=self.supersample, expected="1, 2, 3, ...")
        if not isinstance(self.sigma, Tensor) and not self.sigma > 0.0:
            fix = "1e-7 for sharp ones"
            raise InputError("sigma of outlines is not positive", got=self.sigma, expected="> 0", fix=fix)
        if not isinstance(self.ground, bool) and not self.ground > 0.0:
            raise InputError("the side of a tile is not positive", got=self.ground, expected="True, False, or metres")


def check_sides(sides: Any) -> None:
    """Raise InputError unless circles can have so many sides."""
    if type(sides) is not int or sides < 4 or sides % 4:
        expected = "a multiple of four: 8, 12, 32, ..."
        raise InputError("the number of sides of circles is not usable", got=sides, expected=expected)


def _wrong_type(name: str, given: object, expected: str, fix: str) -> None:
    raise InputError(f"{name} has the wrong type", got=type(given).__name__, expected=expected, fix=fix)


DEFAULT = RenderOptions()
