"""Estimate a texture and vertex colours from images.

A globe stands on a plate. The texture of the globe, 32 x 64 texels, and the colours of the plate's 289 vertices are
unknown; shapes, light and cameras are known. Twelve images with noise (seed 0) show them from all sides, and all are
fitted at once. Shading is modelled: in less light, a pixel holds less information on its texel.
"""

import math

import torch
from torch import Tensor

import kinema as kn

VIEWS, SIZE, NOISE = 12, (96, 96), 0.02  # images, [pixels], standard deviation where white is 1


def globe() -> tuple[Tensor, ...]:
    """Vertices, faces and texture coordinates of a ball of 1 m; vertices of the seam occur twice."""
    v, u = torch.meshgrid(torch.linspace(0, 1, 25), torch.linspace(0, 1, 49), indexing="ij")
    north, east = math.pi * (v - 0.5), 2 * math.pi * u
    place = torch.stack([north.cos() * east.cos(), north.cos() * east.sin(), north.sin()], -1)
    a = torch.arange(v.numel()).reshape(v.shape)
    a, b, c, d = a[:-1, :-1], a[:-1, 1:], a[1:, 1:], a[1:, :-1]
    faces = torch.cat([torch.stack([a, b, c], -1)[1:].reshape(-1, 3), torch.stack([a, c, d], -1)[:-1].reshape(-1, 3)])
    return place.reshape(-1, 3), faces, torch.stack([u, v], -1).reshape(-1, 2)


(ball, faces, uv), plate = globe(), kn.shapes.sheet(3.2, 3.2, squares=(16, 16))
ground, squares = torch.tensor(plate.vertices).float() - torch.tensor([0.0, 0.0, 1.0]), torch.tensor(plate.faces)
turn = 2 * math.pi * torch.arange(VIEWS) / VIEWS
eyes = torch.stack([5.0 * turn.cos(), 5.0 * turn.sin(), torch.tensor([0.6, 2.2, 4.0]).repeat(VIEWS // 3)], -1)
cameras = kn.Camera.look_at(eyes, (0.0, 0.0, -0.3), fov=0.6, size=SIZE)
unseen = kn.Camera.look_at((3.5, -3.0, 1.8), (0.0, 0.0, -0.3), fov=0.6, size=SIZE)


def painted() -> tuple[Tensor, Tensor]:
    """The truth: land and sea as texture, rings as colours of vertices."""
    north, east = math.pi * (0.5 - (torch.arange(32)[:, None] + 0.5) / 32), math.pi * (torch.arange(64) + 0.5) / 32
    x, y, z = north.cos() * east.cos(), north.cos() * east.sin(), north.sin()
    height = (3 * x + 1.0).sin() + (4 * y - 2 * z).sin() + (5 * z + 2 * x).cos() + 0.6 * (7 * y + 5 * x).sin()
    land = torch.sigmoid(6.0 * (height - 0.5))[..., None]
    texture = land * torch.tensor([0.35, 0.5, 0.1]) + (1.0 - land) * torch.tensor([0.05, 0.2, 0.6])
    rings = torch.sigmoid(4.0 * torch.sin(6.0 * ground[:, :2].norm(dim=-1)))[:, None]
    return texture, rings * torch.tensor([0.8, 0.3, 0.1]) + (1.0 - rings) * torch.tensor([0.85, 0.8, 0.7])


def seen(texture: Tensor, colours: Tensor, camera: kn.Camera = cameras) -> Tensor:
    """Images, shape (VIEWS, height, width, 3)."""
    round_one = kn.Surface(ball, faces, kn.Material(torch.ones(3), texture), uv)
    return kn.render([round_one, kn.Surface(ground, squares, kn.Material(colours))], camera)


def photographs() -> Tensor:
    """The observed images."""
    return seen(*painted()) + NOISE * torch.randn(VIEWS, *SIZE, 3, generator=torch.Generator().manual_seed(0))


def fit(iterations: int = 30) -> tuple[Tensor, Tensor, list[float]]:
    """Run L-BFGS (images are linear in colours); return texture, colours and the loss of each evaluation."""
    observed, losses = photographs(), []
    unknown = [torch.full_like(x, 0.5).requires_grad_() for x in painted()]
    optimiser = torch.optim.LBFGS(unknown, max_iter=iterations, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = kn.pixel_loss(seen(*unknown), observed)
        loss.backward()
        losses.append(loss.item())
        return loss

    optimiser.step(closure)
    return unknown[0].detach(), unknown[1].detach(), losses


def errors(texture: Tensor, colours: Tensor) -> tuple[float, float, float]:
    """RMS errors of texels that cover 2 pixels or more in all, of vertices likewise, and of a new view."""
    truth = [x.requires_grad_() for x in painted()]
    seen(*truth).sum().backward()  # its gradient: the number of pixels each one covers, times their light
    off = [(a - b)[b.grad > 2.0].square().mean().sqrt().item() for a, b in zip((texture, colours), truth, strict=True)]
    return off[0], off[1], (seen(texture, colours, unseen) - seen(*truth, unseen)).square().mean().sqrt().item()


def main() -> None:
    """Print the losses and the errors."""
    *found, losses = fit()
    for number in range(0, len(losses), 5):
        print(f"evaluation {number:3d}   loss {losses[number]:.5f}")
    print("RMS errors: texels {:.3f}, vertices {:.3f}, new view {:.3f}".format(*errors(*found)))


def check() -> None:
    """A texel averages few pixels and keeps about their noise; a new view blends texels, and has far less."""
    texels, vertices, view = errors(*fit()[:2])
    assert max(texels, vertices) < 1.5 * NOISE and view < NOISE / 2, (texels, vertices, view)


if __name__ == "__main__":
    main()
