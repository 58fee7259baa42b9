"""The plain rasteriser of the tests: every pixel with every face, float64 torch. Renders the same image as Kinema."""

from __future__ import annotations

import numpy as np
import torch
from tests.render import reference

from benchmarks.kernels import Availability
from kinema.rendering.surface import Surface

from . import peer_kinema
from .scene import Case


class Peer(peer_kinema.Peer):
    """PyTorch, one thread; the smallest case only."""

    name = "PyTorch"
    slow = True

    def __init__(self) -> None:
        super().__init__("dibr", 1, torch.float64)

    @staticmethod
    def available() -> Availability:
        """Always: it is part of the tests."""
        return Availability(True)

    def takes(self, case: Case) -> bool:
        """Only the smallest case: others take minutes."""
        return (case.triangles, case.pixels, case.batch) == (324, 64, 1)

    def gradient_error(self) -> float:
        """Error against Kinema in float64."""
        other = peer_kinema.Peer("dibr", 1, torch.float64)
        other.prepare(self._case)
        other.both()
        self.both()
        right = other.gradients()
        return float(np.linalg.norm(self.gradients() - right) / np.linalg.norm(right))

    def native_seconds(self) -> tuple[None, None]:
        """Unknown."""
        return None, None

    def _draw(self) -> torch.Tensor:
        surface = Surface(self.leaf, self._faces, self._material)
        background = torch.zeros(3, dtype=torch.float64)
        return reference.dibr([surface], self._camera, self._lights, background)["rgb"]
