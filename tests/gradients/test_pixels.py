"""The soft rasteriser against a dense version in torch, values and gradients, and against central differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from kinema.lang.bridge import rollout
from kinema.rendering.soft_pixels import pixel_program
from kinema.rendering.tiles import PIXELS, from_tiles, tile_count, tile_lists

SIZE = (27, 20)  # neither is a multiple of 8
CUT = math.log(1e4 - 1)


def reference(size: tuple[int, int], faces: Tensor, t: dict[str, Tensor]) -> Tensor:
    """The image (height, width, 4), every pixel with every triangle at once."""
    width, height = size
    x, y = ((2 * torch.arange(n, dtype=torch.float64) + 1 - n) / min(size) for n in size)
    pixels = torch.stack(torch.meshgrid(y, x, indexing="ij")[::-1], dim=-1).reshape(-1, 1, 1, 2)
    corners, colours = t["screen"][faces], t["colour"][faces]  # (faces, 3, 3)
    p = corners[None, :, :, :2] - pixels  # (pixels, faces, 3, 2): corners seen from the pixel
    following = p.roll(-1, dims=2)
    cross = p[..., 0] * following[..., 1] - p[..., 1] * following[..., 0]  # twice the areas opposite of c, a, b
    w = (cross / cross.sum(-1, keepdim=True)).roll(-1, dims=2)
    edge = following - p
    along = (-(p * edge).sum(-1) / (edge * edge).sum(-1)).clamp(0.0, 1.0)
    distance = (p + edge * along[..., None]).square().sum(-1).amin(-1)
    inside = (w >= 0).all(-1)
    seen = inside | (distance < CUT * t["sigma"])
    coverage = torch.where(seen, torch.sigmoid(torch.where(inside, distance, -distance) / t["sigma"]), 0.0)
    alpha = 1 - (1 - coverage).prod(-1)

    clipped = w.clamp(min=0.0)
    u = clipped / corners[..., 2]
    z = clipped.sum(-1) / u.sum(-1)
    colour = (u[..., None] * colours).sum(-2) / u.sum(-1, keepdim=True)
    nearness = (t["far"] - z) / (t["far"] - t["near"])
    background = torch.full_like(nearness[:, :1], 1e-3)
    scores = torch.cat([nearness, background], dim=1)
    top = (
        torch.where(torch.cat([seen, torch.ones_like(seen[:, :1])], dim=1), scores, -math.inf)
        .amax(-1, keepdim=True)
        .detach()
    )
    covered = torch.cat([coverage, torch.ones_like(background)], dim=1)
    weights = covered * torch.exp(torch.where(covered > 0, scores - top, 0.0) / t["gamma"])
    every = torch.cat([colour, t["background"].expand(len(colour), 1, 3)], dim=1)
    rgb = (weights[..., None] * every).sum(1) / weights.sum(1, keepdim=True)
    return torch.cat([rgb, alpha[:, None]], dim=1).reshape(height, width, 4)


def scene(gamma: float, sigma: float = 2e-3) -> tuple[Tensor, dict[str, Tensor]]:
    """Overlapping triangles of both windings, some of them thin, some partly or wholly outside of the image."""
    rng = np.random.default_rng(5)
    count = 30
    middle = rng.uniform(-0.9, 0.9, (count, 1, 2))
    xy = middle + rng.uniform(-1.0, 1.0, (count, 3, 2))
    xy[3, 2] = 0.55 * xy[3, 0] + 0.45 * xy[3, 1] + 0.01  # a sliver
    xy[4] += 5.0  # nowhere to be seen
    screen = np.concatenate([xy.reshape(-1, 2), rng.uniform(2.0, 6.0, (3 * count, 1))], axis=1)
    faces = np.arange(3 * count).reshape(-1, 3)
    faces[1, 0] = faces[0, 1]  # a shared corner
    numbers = {
        "screen": screen,
        "colour": rng.uniform(size=(3 * count, 3)),
        "sigma": sigma,
        "gamma": gamma,
        "near": 1.0,
        "far": 10.0,
        "background": [0.9, 0.8, 0.7],
    }
    return torch.tensor(faces, dtype=torch.int32), {k: torch.tensor(a, dtype=torch.float64) for k, a in numbers.items()}


def draw(faces: Tensor, t: dict[str, Tensor], size: tuple[int, int] = SIZE, **options: object) -> Tensor:
    sigma = 1.01 * t["sigma"].item()  # room for differences of sigma
    start, listed = tile_lists(t["screen"].detach().numpy(), faces.numpy(), size, sigma)
    program = pixel_program(size, len(t["screen"]), len(faces), len(listed))
    lists = {"start": torch.tensor(start), "listed": torch.tensor(listed), "faces": faces}
    image = torch.zeros(PIXELS * tile_count(size), 4, dtype=t["screen"].dtype)
    final = rollout(program, 1, {"image": image}, {**lists, **t}, progress=False, **options).final["image"]
    return from_tiles(final, size)


def weights(image: Tensor) -> Tensor:
    return torch.randn(image.shape, dtype=image.dtype, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("gamma", [0.3, 1e-2, 1e-4])
def test_values_and_gradients_agree_with_torch(gamma: float):
    faces, t = scene(gamma)
    leaves = {k: a.requires_grad_() for k, a in t.items()}
    ours, theirs = draw(faces, leaves), reference(SIZE, faces.long(), leaves)
    # Triangles overlap, otherwise the test would show little.
    alone = [reference(SIZE, faces[f : f + 1].long(), t)[..., 3].detach() for f in range(len(faces))]
    assert (torch.stack(alone) > 0.01).sum(0).double().mean() > 2.0
    # exp(zn / gamma) amplifies rounding by 1 / gamma.
    np.testing.assert_allclose(ours.detach(), theirs.detach(), atol=1e-13 / min(gamma, 0.1))
    found = torch.autograd.grad((ours * weights(ours)).sum(), list(leaves.values()))
    expected = torch.autograd.grad((theirs * weights(ours)).sum(), list(leaves.values()))
    for name, a, b in zip(leaves, found, expected, strict=True):
        assert float((a - b).abs().max() / b.abs().max()) <= 1e-12 / min(gamma, 0.1), name


def test_gradients_against_central_differences(gradient_errors):
    faces, t = scene(gamma=0.1)

    def loss(leaves):
        image = draw(faces, leaves)
        return (image * weights(image)).sum()

    # Small steps: a pixel that crosses the cut-off changes by 1e-4, which no derivative sees.
    errors = gradient_errors(loss, t, h=1e-7)
    assert max(errors.values()) <= 1e-6, str(errors)


def test_the_order_of_triangles_does_not_matter():
    faces, t = scene(gamma=1e-2)
    one, other = draw(faces, t), draw(faces.flip(0), t)
    np.testing.assert_allclose(one, other, atol=1e-12)


def test_float32_and_a_sharp_picture_are_finite():
    """sigma and gamma of SoftRas; a triangle without area and one seen exactly from the side do not show."""
    faces, t = scene(gamma=1e-4, sigma=1e-5)
    t["screen"][0:3] = torch.tensor([[0.0, 0.0, 2.0], [0.0, 0.0, 2.0], [0.0, 0.0, 2.0]])
    t["screen"][6:9, 0] = 0.1
    leaves = {k: a.float().requires_grad_() for k, a in t.items()}
    image = draw(faces, leaves)
    gradients = torch.autograd.grad(image.sum(), list(leaves.values()))
    assert image.isfinite().all() and all(g.isfinite().all() for g in gradients)
    assert (gradients[0][6:9] == 0).all()


def test_an_empty_tile_shows_the_background():
    faces, t = scene(gamma=1e-2)
    t["screen"][:, 0] = 0.2 * t["screen"][:, 0] - 0.8
    image = draw(faces, t, size=(40, 16))
    np.testing.assert_array_equal(image[:, 32:], np.broadcast_to([0.9, 0.8, 0.7, 0.0], (16, 8, 4)))


def test_nothing_in_view_shows_the_background():
    faces, t = scene(gamma=1e-2)
    t["screen"][:, :2] += 100.0
    image = draw(faces, t)
    np.testing.assert_array_equal(image, np.broadcast_to([0.9, 0.8, 0.7, 0.0], (20, 27, 4)))


def test_threads_do_not_change_a_bit():
    faces, t = scene(gamma=1e-2)
    size = (136, 130)
    results = []
    for threads in (1, 2, 4):
        leaves = {k: a.clone().requires_grad_() for k, a in t.items()}
        image = draw(faces, leaves, size, threads=threads)
        results.append([image, *torch.autograd.grad((image * weights(image)).sum(), list(leaves.values()))])
    for others in results[1:]:
        for a, b in zip(results[0], others, strict=True):
            assert torch.equal(a, b)


def test_tile_lists_hold_every_triangle_that_reaches():
    faces, t = scene(gamma=1e-2)
    screen, sigma = t["screen"].numpy(), 2e-3
    start, listed = tile_lists(screen, faces.numpy(), SIZE, sigma)
    columns = -(-SIZE[0] // 8)
    image = reference(SIZE, faces.long(), t)
    assert image.shape == (20, 27, 4)
    for face in range(len(faces)):
        alone = reference(SIZE, faces[face : face + 1].long(), t)[..., 3].numpy() > 0
        tiles = {int(r // 8) * columns + int(c // 8) for r, c in np.argwhere(alone)}
        assert tiles <= {k for k in range(len(start) - 1) if face in listed[start[k] : start[k + 1]]}
