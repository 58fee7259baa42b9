"""Residuals of least squares: linear maps of the difference between predictions and data.

The loss of a candidate is the sum of squares of its residuals. Maps are linear, so the Jacobian of residuals is the map
of the Jacobian of predictions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.fitting.losses import cumulative_marginals, pyramid

Residuals = Callable[[Tensor, int], Tensor]
COLOURS = (1, 3, 4)  # channels of images
LEVELS = 4


def squares(difference: Tensor, batch: int) -> Tensor:
    """The difference itself: its mean square is the loss."""
    flat = difference.flatten(batch)
    return flat / math.sqrt(flat.shape[-1])


def of_pyramid(difference: Tensor, batch: int) -> Tensor:
    """Levels of an image pyramid, see `pyramid_loss`; as many as the images allow, at most four."""
    images = as_images(difference, batch)
    levels = min(LEVELS, 1 + int(math.log2(min(images.shape[-3:-1]))))
    return pyramid(images, levels) / math.sqrt(images.shape[-4])


def of_marginals(difference: Tensor, batch: int) -> Tensor:
    """Cumulative marginals, see `marginal_loss`."""
    images = as_images(difference, batch)
    return cumulative_marginals(images) / math.sqrt(images.shape[-4])


RESIDUALS: dict[str, Residuals] = {"squares": squares, "pyramid": of_pyramid, "marginal": of_marginals}


def as_images(frames: Tensor, batch: int) -> Tensor:
    """Frames of images or masks, of one or several cameras, as (*batch, time, height, width, channels)."""
    axes = frames.ndim - batch
    if axes == 3 or (axes == 4 and frames.shape[-1] not in COLOURS):
        frames = frames.unsqueeze(-1)  # masks
        axes += 1
    if axes not in (4, 5):
        expected = "(frames, height, width, 3), or (frames, height, width) for masks"
        fix = 'loss="squares" for other data'
        raise InputError("these data are no images", got=tuple(frames.shape[batch:]), expected=expected, fix=fix)
    return frames.flatten(batch, batch + 1) if axes == 5 else frames


def joined(parts: list[Tensor]) -> Tensor:
    """Residuals of several data, side by side."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)
