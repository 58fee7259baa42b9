"""Benchmark of soft matter: blocks that sit on the ground and cloth on a ball, beside Warp and gradSim's GPU.

Every engine is a module `peer_*.py` with a class `Peer` that follows the protocol below. Both compute the law of
`scene.py` in float32 on one world; Kinema in float64 says what is right, and each row carries the distance to it.

    kinema bench deformable --json
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from benchmarks.kernels import Availability

    from .scene import Case

GRADIENTS = ("x", "v", "mu", "lam")
"""What the end of a rollout is differentiated by: the start of the particles, and two numbers of every element."""


class DeformablePeer(Protocol):
    """One engine with a fixed number of threads; `length` is that of its timed rollouts, as a share of the plan's.

    Whatever a user does once (compiling, capturing, allocating) happens in `prepare`, never in a timed call.
    """

    name: str
    mode: str
    threads: int
    length: float
    steps: int

    @staticmethod
    def available() -> Availability:
        """Tell whether the packages needed are here."""

    def prepare(self, case: Case, steps: int) -> None:
        """Take the arrays of `case` and make rollouts of `steps` steps ready to run; sets `steps`."""

    def forward(self) -> None:
        """All steps from the state of the case; nothing is kept."""

    def backward(self) -> None:
        """The adjoint of all steps from the stored states at their starts, all recomputation included."""

    def results(self) -> dict[str, np.ndarray]:
        """The state x, v at the end of the stored rollout, and the gradients of the last `backward` as "grad_x", ..."""
