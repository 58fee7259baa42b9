"""Noise of data: 8 bits per channel, or a standard deviation; and the loss that remains at the truth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.fitting.objective import Objective
from kinema.fitting.observations import LEVELS, Images, Observation
from kinema.rendering.files import to_srgb

BYTES = "8bit"
DRAWS = 4  # of random noise
SURE = 3.0  # standard deviations
SAME = 1e-3  # levels of 8 bits: rounding of single precision near white is 4e-5

Noise = str | float | None


def check_noise(noise: Any) -> None:
    """Raise InputError unless noise is None, "8bit" or a standard deviation."""
    if noise is None or noise == BYTES:
        return
    if isinstance(noise, bool) or not isinstance(noise, int | float) or not 0 < noise < math.inf:
        expected = f"None, {BYTES!r}, or a standard deviation in the units of the data"
        raise InputError("noise is not usable", got=repr(noise), expected=expected)


def is_8bit(data: Tensor) -> bool:
    """Whether data are images in linear RGB with 8 bits per channel, as files hold them."""
    if data.ndim < 4 or data.shape[-1] != 3 or bool(((data < 0) | (data > 1)).any()):
        return False
    levels = LEVELS * to_srgb(data)
    return bool(((levels - levels.round()).abs() < SAME).all())


def noise_floor(objective: Objective, z: Tensor, noise: Noise, observations: Any) -> float | None:
    """The loss that noise alone would leave at these values; None if the noise is unknown.

    Data of 8 bits are rounded predictions: at the truth, the loss is that of predictions against their rounded selves.
    """
    if noise is None:
        return None
    if noise == BYTES:
        by_name = observations if isinstance(observations, Mapping) else {"": observations}

        def rounded(name: str, frames: Tensor) -> Tensor:
            one = by_name.get(name)
            if isinstance(one, Observation):
                return one.quantise(frames)
            return Images.quantise(one, frames)  # type: ignore[arg-type]

        return objective.floor(z, rounded)
    generator = torch.Generator().manual_seed(0)

    def drawn(name: str, frames: Tensor) -> Tensor:
        return frames + float(noise) * torch.randn(frames.shape, generator=generator, dtype=frames.dtype)

    return sum(objective.floor(z, drawn) for _ in range(DRAWS)) / DRAWS


def reaches(loss: float, floor: float, count: int) -> bool:
    """Whether a loss is that of noise: within three standard deviations of its floor, for `count` residuals."""
    return loss <= floor * (1.0 + SURE * math.sqrt(2.0 / max(1, count)))
