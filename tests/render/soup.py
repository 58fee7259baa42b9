"""Triangle soup for tests of soft images: overlapping triangles of both windings, several surfaces and materials."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from kinema.rendering.camera import Camera
from kinema.verification.random_images import COUNT, looks

SIZE = (27, 20)  # neither is a multiple of 8


def numbers(seed: int = 5) -> dict[str, Tensor]:
    """Everything that can be differentiated, float64; triangles are soup, but for an edge that two of them share."""
    g = torch.Generator().manual_seed(seed)

    def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        return low + (high - low) * torch.rand(shape, generator=g, dtype=torch.float64)

    camera = Camera.look_at((0.3, -4.0, 1.1), (0.05, 0.0, 0.02), fov=0.9, size=SIZE, dtype=torch.float64)
    made = {name: getattr(camera, name).clone() for name in ("R", "t", "focal", "centre")}
    for k in range(3):
        middle = uniform(COUNT, 1, 3, low=-1.0, high=1.0)
        made[f"vertices{k}"] = (middle + uniform(COUNT, 3, 3, low=-1.2, high=1.2)).reshape(-1, 3)
    # A triangle seen from the side, a sliver, and one behind the camera.
    eye = torch.tensor([0.3, -4.0, 1.1], dtype=torch.float64)
    made["vertices0"][5] = 0.5 * (made["vertices0"][3] + eye) + 1e-3
    made["vertices1"][8] = 0.55 * made["vertices1"][6] + 0.45 * made["vertices1"][7] + 0.01
    made["vertices2"][3:6] = eye + torch.tensor([[0.0, -1.0, 0.0], [0.5, -2.0, 0.0], [0.0, -1.0, 0.5]])
    return made | looks(uniform)


def camera(t: Mapping[str, Tensor], size: tuple[int, int] = SIZE) -> Camera:
    return Camera(t["R"], t["t"], t["focal"], t["centre"], *size)


def weights(image: Tensor) -> Tensor:
    return torch.randn(image.shape, dtype=image.dtype, generator=torch.Generator().manual_seed(0))
