"""Kinema as users run it: `kn.simulate` of a scene, and `torch.autograd` of its final state."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import kinema as kn
from benchmarks.kernels import Availability

from . import GRADIENTS
from .scene import DT, Case


class Peer:
    """One or two threads, float32; float64 as the reference.

    Args:
        threads: Worker threads.
        dtype: Precision.
        options: Options of runs stored for gradients: checkpoint and memory_budget as in `kn.RunOptions`.
    """

    name = "Kinema"
    mode = "simulate"
    length = 1.0

    def __init__(self, threads: int = 1, dtype: torch.dtype = torch.float32, **options: Any) -> None:
        self.threads, self.dtype, self.options = threads, dtype, options

    @staticmethod
    def available() -> Availability:
        """Always."""
        return Availability(True)

    def prepare(self, case: Case, steps: int) -> None:
        """Compile the model."""
        self.model = case.model(self.dtype)
        start = {name: torch.tensor(getattr(case, name), dtype=self.dtype) for name in GRADIENTS}
        self.leaves = {name: tensor.requires_grad_() for name, tensor in start.items()}
        self.cotangents = tuple(torch.tensor(c, dtype=self.dtype) for c in (case.cot_x, case.cot_v))
        self.lengthen(steps)

    def lengthen(self, steps: int) -> None:
        """Set the number of steps of rollouts."""
        self.steps = steps
        self.stored: kn.Trajectory | None = None

    def forward(self) -> None:
        """Compute the final state only, without a trajectory."""
        with torch.no_grad():
            self._simulate(checkpoint=self.steps)

    def backward(self) -> None:
        """Differentiate the stored rollout; the first call runs and stores it."""
        if self.stored is None:
            self.stored = self._simulate(**self.options)
        ends = (self.stored.end.x, self.stored.end.xd)
        self.gradients = torch.autograd.grad(ends, list(self.leaves.values()), self.cotangents, retain_graph=True)

    def results(self) -> dict[str, np.ndarray]:
        """The final state and the gradients."""
        assert self.stored is not None  # `backward` was called
        found = {"x": self.stored.end.x, "v": self.stored.end.xd}
        found |= {f"grad_{name}": g for name, g in zip(GRADIENTS, self.gradients, strict=True)}
        return {name: tensor.detach().numpy() for name, tensor in found.items()}

    def _simulate(self, **options: Any) -> kn.Trajectory:
        at = self.leaves
        return kn.simulate(
            self.model,
            kn.State(x=at["x"], xd=at["v"]),
            params={"mu": at["mu"], "lam": at["lam"]},
            steps=self.steps,
            dt=DT,
            options=kn.RunOptions(threads=self.threads, progress=False, **options),
        )
