"""Benchmark of deformables: blocks on the ground and cloth on a ball, beside Warp and gradSim's GPU.

Every engine is a module `peer_*.py` with a class `Peer` that follows the protocol below. Both compute the law of
`scene.py` in float32 on one world; Kinema in float64 is the reference, and each row holds its error against it.

    kinema bench deformable --json
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from benchmarks.kernels import Availability

    from .scene import Case

GRADIENTS = ("x", "v", "mu", "lam")
"""The differentiated inputs: the initial state of the particles, and two parameters of every element."""


class DeformablePeer(Protocol):
    """One engine with a fixed number of threads; `length` scales the plan's number of steps in timed rollouts.

    One-time work of a user (compiling, capturing, allocating) happens in `prepare`, never in a timed call.
    """

    name: str
    mode: str
    threads: int
    length: float
    steps: int

    @staticmethod
    def available() -> Availability:
        """Whether the required packages are installed."""

    def prepare(self, case: Case, steps: int) -> None:
        """Take the arrays of `case` and prepare rollouts of `steps` steps; sets `steps`."""

    def forward(self) -> None:
        """Run all steps from the state of the case, without storing states."""

    def backward(self) -> None:
        """Run the adjoint of all steps from their stored start states, including all recomputation."""

    def results(self) -> dict[str, np.ndarray]:
        """The state x, v at the end of the stored rollout, and the gradients of the last `backward` as "grad_x", ..."""
