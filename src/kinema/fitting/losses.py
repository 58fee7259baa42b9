"""Losses that compare images with a target."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kinema.errors import InputError

ALL, ENDS = "all", "ends"
BINOMIAL = (1.0, 4.0, 6.0, 4.0, 1.0)  # about a Gaussian of one pixel


def pixel_loss(images: Tensor, target: Tensor, *, frames: str | int = ALL) -> Tensor:
    """Mean squared difference of pixels.

    Args:
        images: Shape (*batch, time, height, width, channels).
        target: Likewise; the batch broadcasts.
        frames: "all"; "ends", the first and the last; or a number n, every n-th frame beginning with the first.

    Returns:
        One loss per world, shape (*batch,).

    Gradients:
        Exact to images and target.

    Raises:
        InputError: The shapes do not match, or the frames are invalid.
    """
    images, target = _chosen(images, target, frames, 4)
    return (images - target).square().mean((-4, -3, -2, -1))


def silhouette_loss(masks: Tensor, target: Tensor, *, frames: str | int = ALL) -> Tensor:
    """1 - intersection over union of soft masks: 1 - sum(a b) / sum(a + b - a b), the mean over frames.

    A frame in which both masks are empty counts as 0.

    Args:
        masks: Coverage in [0, 1], shape (*batch, time, height, width), as the output "alpha" of `render`.
        target: Likewise; the batch broadcasts.
        frames: As in `pixel_loss`.

    Returns:
        Shape (*batch,), 0 for equal binary masks and 1 for disjoint ones.

    Gradients:
        Exact to both. Zero for disjoint masks with sharp edges: begin with wide soft edges, or with `pyramid_loss`.

    Raises:
        InputError: The shapes do not match or are those of images, or the frames are invalid.
    """
    if masks.ndim > 3 and masks.shape[-1] in (3, 4) and masks.shape[-2] > 4:
        got, expected = tuple(masks.shape), "(*batch, time, height, width)"
        fix = "masks=kinema.render(..., outputs=('rgb', 'alpha'))['alpha']"
        raise InputError("these seem to be images with channels, not masks", got=got, expected=expected, fix=fix)
    masks, target = _chosen(masks, target, frames, 3)
    both = (masks * target).sum((-2, -1))
    either = (masks + target - masks * target).sum((-2, -1))
    empty = either <= 0
    share = torch.where(empty, torch.ones_like(both), both / torch.where(empty, torch.ones_like(either), either))
    return (1.0 - share).mean(-1)


def pyramid_loss(images: Tensor, target: Tensor, *, levels: int = 4, frames: str | int = ALL) -> Tensor:
    """Mean squared difference of pixels over an image pyramid: the mean over blurred and halved levels.

    On coarse levels, objects that are some pixels apart still overlap, so that the gradient points to the target.

    Args:
        images: Shape (*batch, time, height, width, channels).
        target: Likewise; the batch broadcasts.
        levels: Number of levels, each half the size of the previous one: width and height are at least 2^(levels - 1).
        frames: As in `pixel_loss`.

    Returns:
        Shape (*batch,).

    Gradients:
        Exact to images and target.
    """
    images, target = _chosen(images, target, frames, 4)
    return pyramid(images - target, levels).square().sum(-1) / images.shape[-4]


def pyramid(images: Tensor, levels: int = 4) -> Tensor:
    """All levels of an image pyramid, scaled so that the sum of squares is the sum over frames of a mean.

    Args:
        images: Shape (*batch, time, height, width, channels).
        levels: Number of levels.

    Returns:
        Shape (*batch, n). Linear in the images, because blurring is.

    Raises:
        InputError: The images are too small for so many levels.
    """
    smallest = min(images.shape[-3:-1])
    if not isinstance(levels, int) or levels < 1 or smallest < 2 ** (levels - 1):
        got, expected = f"{levels} levels of images of {smallest} pixels", "at least one pixel on the last level"
        raise InputError("levels is not usable", got=got, expected=expected)
    batch, (height, width) = images.shape[:-4], images.shape[-3:-1]
    time, channels = images.shape[-4], images.shape[-1]
    level = images.movedim(-1, -3).reshape(-1, 1, height, width)
    found = []
    for _ in range(levels):
        pixels = level.shape[-2] * level.shape[-1]
        found.append(level.reshape(*batch, time * channels * pixels) / math.sqrt(pixels * channels * levels))
        level = _halved(level)
    return torch.cat(found, -1)


def marginal_loss(images: Tensor, target: Tensor, *, frames: str | int = ALL) -> Tensor:
    """Cramer distance of the marginals of images: how far light has to move along rows and columns.

    Each image is averaged over its columns and over its rows; the loss is the mean squared difference of the cumulative
    sums of both profiles. Unlike the difference of pixels, it grows with the distance of objects that do not overlap,
    so that its gradient points to the target from afar [Bellemare et al. 2017].

    Args:
        images: Shape (*batch, time, height, width, channels), or masks with a last axis of length 1.
        target: Likewise; the batch broadcasts.
        frames: As in `pixel_loss`.

    Returns:
        Shape (*batch,).

    Gradients:
        Exact to images and target.
    """
    images, target = _chosen(images, target, frames, 4)
    return cumulative_marginals(images - target).square().sum(-1) / images.shape[-4]


def cumulative_marginals(images: Tensor) -> Tensor:
    """Cumulative sums of row and column profiles, scaled so that the sum of squares is the sum over frames of a mean.

    Args:
        images: Shape (*batch, time, height, width, channels).

    Returns:
        Shape (*batch, n). Linear in the images.
    """
    height, width, channels = images.shape[-3:]
    rows = images.mean(-2).cumsum(-2) / height
    columns = images.mean(-3).cumsum(-2) / width
    scaled = [rows / math.sqrt(height * channels), columns / math.sqrt(width * channels)]
    return torch.cat([one.flatten(-3) for one in scaled], -1)


def _halved(images: Tensor) -> Tensor:
    """Blur images and keep every other pixel; border pixels extend beyond the border."""
    weights = torch.tensor(BINOMIAL, dtype=images.dtype)
    kernel = torch.outer(weights, weights)[None, None] / weights.sum() ** 2
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2), mode="replicate")
    return torch.nn.functional.conv2d(padded, kernel, stride=2)


def _chosen(images: Tensor, target: Tensor, frames: str | int, inner: int) -> tuple[Tensor, Tensor]:
    """The selected frames of both, with a common batch."""
    axes = ("time", "height", "width", "channels")[:inner]
    if images.ndim < inner or images.shape[-inner:] != target.shape[-inner:]:
        got, expected = f"{tuple(images.shape)} and {tuple(target.shape)}", f"(*batch, {', '.join(axes)}) of both"
        raise InputError("images and target have different shapes", got=got, expected=expected)
    try:
        images, target = torch.broadcast_tensors(images, target)
    except RuntimeError:
        got = f"{tuple(images.shape)} and {tuple(target.shape)}"
        raise InputError("batch dimensions of images and target do not match", got=got) from None
    axis, count = images.ndim - inner, images.shape[-inner]
    if frames == ALL:
        return images, target
    if frames == ENDS:
        at = torch.tensor(sorted({0, count - 1}))
    elif isinstance(frames, int) and frames >= 1:
        at = torch.arange(0, count, frames)
    else:
        raise InputError("frames is not usable", got=repr(frames), expected=f"{ALL!r}, {ENDS!r}, or every n-th")
    return images.index_select(axis, at), target.index_select(axis, at)
