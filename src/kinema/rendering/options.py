"""`RenderOptions`: how an image is made; what is drawn, and from where, are arguments of `render`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.rendering.softras import Soft
from kinema.rendering.surface import Lights, Material

SIGMA = 1.0 / 7000.0  # [Chen et al. 2019], squared width of soft outlines on the screen
DEFAULT_LIGHTS = Lights()


@dataclass(frozen=True, eq=False)
class RenderOptions:
    """How an image is made. To change some of them: `dataclasses.replace(options, shadows=True)`.

    Attributes:
        materials: Of models and trajectories, by "robot/body", "robot", or the name of something soft, in place of its
            colour.
        ground: Of models and trajectories, False leaves planes out; a number is the side of their tiles [m].
        dtype: Of what is drawn from models and trajectories, whatever their own is; float64 to check gradients.
            Surfaces are drawn in the precision of their vertices.
        shadows: Draw shadows on the ground, of the first directional light, see `shadows_of`.
        lights: The light on everything.
        background: Linear RGB behind everything, shape (*batch, 3).
        sigma: Squared width of soft outlines on the screen, whose short side is 2 long; 1e-7 is sharp.
        edges: Whether outlines also fade over other faces behind them, and not only over the background.
        perspective: Attributes of faces are interpolated in space; otherwise linearly on the screen.
        soft: Draw faces that are soft all over, so that what is behind shines through, with this softness of
            occlusion, and `sigma` for that of edges, see `softras`; outputs are "rgb", "rgba" and "alpha", and `edges`
            and `perspective` have no effect. By default faces are sharp inside, with soft outlines, see `dibr`.
        supersample: Each pixel is the mean of so many pixels across and down; for "rgb", "rgba" and "alpha" only.
        threads: Worker threads, which share the images of a batch; all CPUs by default. No effect on any bit.

    Raises:
        InputError: Something has the wrong type, or is not positive.
    """

    materials: Mapping[str, Material] = field(default_factory=dict)
    ground: bool | float = True
    dtype: torch.dtype = torch.float32
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
        if not isinstance(self.supersample, int) or self.supersample < 1:
            raise InputError("supersample is a number of pixels", got=self.supersample, expected="1, 2, 3, ...")
        if not isinstance(self.sigma, Tensor) and not self.sigma > 0.0:
            fix = "1e-7 for sharp ones"
            raise InputError("sigma of outlines is not positive", got=self.sigma, expected="> 0", fix=fix)
        if not isinstance(self.ground, bool) and not self.ground > 0.0:
            raise InputError("the side of a tile is not positive", got=self.ground, expected="True, False, or metres")


def _wrong_type(name: str, given: object, expected: str, fix: str) -> None:
    raise InputError(f"{name} has the wrong type", got=type(given).__name__, expected=expected, fix=fix)


DEFAULT = RenderOptions()
