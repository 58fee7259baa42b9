"""Losses of images: values in closed form, gradients against central differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.errors import InputError

F64 = torch.float64


def films(*shape: int) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(2)
    return tuple(torch.rand(*shape, generator=made, dtype=F64) for _ in range(2))  # type: ignore[return-value]


def test_pixel_loss_and_which_frames_count():
    images, target = films(2, 7, 4, 5, 3)
    squares = (images - target).square().mean((2, 3, 4))
    assert torch.allclose(kn.pixel_loss(images, target), squares.mean(1))
    assert torch.allclose(kn.pixel_loss(images, target, frames="ends"), squares[:, [0, 6]].mean(1))
    assert torch.allclose(kn.pixel_loss(images, target, frames=3), squares[:, [0, 3, 6]].mean(1))
    assert torch.allclose(kn.pixel_loss(images, target[0]), kn.pixel_loss(images, target[:1].expand_as(images)))
    assert kn.pixel_loss(images[0, :1], target[0, :1], frames="ends") == squares[0, 0]


def test_silhouette_loss_of_hard_masks_is_that_of_sets():
    one, two = torch.zeros(2, 1, 6, 8, dtype=F64)
    one[0, 1:4, 1:5] = 1  # 12 pixels
    two[0, 2:5, 3:7] = 1  # 12 pixels, of which 2 x 2 are common
    assert kn.silhouette_loss(one, two).item() == pytest.approx(1 - 4 / 20)
    assert kn.silhouette_loss(one, one).item() == pytest.approx(0.0)
    assert kn.silhouette_loss(0 * one, 0 * two).item() == 0.0
    apart = torch.zeros(1, 6, 8, dtype=F64)
    apart[0, 5, 0] = 1
    assert kn.silhouette_loss(one, apart).item() == 1.0


def test_pyramid_loss_is_the_pixel_loss_on_one_level_and_keeps_constants():
    images, target = films(2, 3, 8, 12, 3)
    assert torch.allclose(kn.pyramid_loss(images, target, levels=1), kn.pixel_loss(images, target))
    assert torch.allclose(kn.pyramid_loss(target + 0.5, target, levels=3), torch.tensor(0.25, dtype=F64))


def test_the_pyramid_knows_the_way_where_pixels_do_not():
    """Two discs that hardly overlap: the pixel loss does not know where to go, the pyramid does."""
    y, x = torch.meshgrid(torch.arange(64.0, dtype=F64), torch.arange(64.0, dtype=F64), indexing="ij")

    def disc(at: Tensor) -> Tensor:
        return torch.sigmoid(2.0 * (5.0 - ((x - at).square() + (y - 32.0).square()).sqrt()))[None, ..., None]

    at = torch.tensor(22.3, dtype=F64, requires_grad=True)
    target = disc(torch.tensor(38.2, dtype=F64))
    (pixels,) = torch.autograd.grad(kn.pixel_loss(disc(at), target), at)
    (blurred,) = torch.autograd.grad(kn.pyramid_loss(disc(at), target, levels=5), at)
    assert blurred < 0 and blurred.abs() > 10 * pixels.abs()


@pytest.mark.parametrize("frames", ["all", "ends", 2])
def test_gradients(frames):
    images, target = (x.requires_grad_() for x in films(2, 3, 4, 6, 2))
    assert torch.autograd.gradcheck(lambda a, b: kn.pixel_loss(a, b, frames=frames), (images, target))
    assert torch.autograd.gradcheck(lambda a, b: kn.pyramid_loss(a, b, levels=3, frames=frames), (images, target))
    masks = images[..., 0], target[..., 0]
    assert torch.autograd.gradcheck(lambda a, b: kn.silhouette_loss(a, b, frames=frames), masks)


def test_the_gradient_of_an_empty_frame_is_finite():
    empty = torch.zeros(2, 3, 3, dtype=F64, requires_grad=True)
    target = torch.zeros(2, 3, 3, dtype=F64)
    target[1, 1, 1] = 1.0
    kn.silhouette_loss(empty, target).backward()
    assert empty.grad.isfinite().all() and empty.grad[1, 1, 1] < 0


def test_what_is_refused():
    images, target = films(2, 3, 4, 6, 2)
    for loss in (kn.pixel_loss, kn.pyramid_loss):
        with pytest.raises(InputError, match="different shapes"):
            loss(images, target[..., :1])
    with pytest.raises(InputError, match="batch dimensions"):
        kn.pixel_loss(images, target[:1].expand(3, -1, -1, -1, -1))
    with pytest.raises(InputError, match="frames is not usable"):
        kn.pixel_loss(images, target, frames="some")
    with pytest.raises(InputError, match="levels is not usable"):
        kn.pyramid_loss(images, target, levels=4)


def test_images_are_no_masks() -> None:
    images = torch.rand(2, 8, 8, 3)
    with pytest.raises(InputError, match=r"images with channels(.|\n)*alpha"):
        kn.silhouette_loss(images, images)
