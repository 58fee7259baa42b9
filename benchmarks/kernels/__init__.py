"""Kernel benchmark: one step of neo-Hookean tetrahedra, its vjp and a rollout, in several technologies.

Every technology is a module `peer_*.py` with a class `Peer` that follows the protocol below. All
peers compute the same law (see `scene.py`) in float32 on one world; `reference.py` is the float64
reference, and each row of the report holds the error against it.

    kinema bench kernels --json --quick
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from .scene import Scene

GRADIENTS = ("x", "v", "mu", "lam")
"""The inputs that a vjp differentiates, in the order of every tuple of gradients."""


@dataclass(frozen=True)
class Availability:
    """Whether a peer can run here; otherwise `reason` names what is missing."""

    ok: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.ok


@dataclass
class Results:
    """Results of the last operation of a peer; None for results that it did not compute.

    Attributes:
        x: Positions after the step or rollout [m], shape (nodes, 3).
        v: Velocities after the step or rollout [m/s], shape (nodes, 3).
        gradients: Cotangents of the inputs by name, see `GRADIENTS`.
    """

    x: np.ndarray | None = None
    v: np.ndarray | None = None
    gradients: dict[str, np.ndarray] = field(default_factory=dict)

    def copy(self) -> Results:
        """A copy with new arrays."""
        x, v = (None if a is None else a.copy() for a in (self.x, self.v))
        return Results(x, v, {name: g.copy() for name, g in self.gradients.items()})


class KernelPeer(Protocol):
    """One technology in one mode, with a fixed number of threads.

    `forward` and `vjp` start from the state of the scene at every call and do not advance it, so timing can
    repeat them at will. One-time work of a user (compiling, capturing, allocating) happens in `prepare` or
    in the first call, never in a timed one.
    """

    name: str
    mode: str
    threads: int
    modes: tuple[str, ...]

    @staticmethod
    def available() -> Availability:
        """Whether the required packages and programs are installed."""

    def prepare(self, scene: Scene) -> None:
        """Take the arrays of `scene` and prepare everything to run."""

    def forward(self) -> None:
        """Run one step from the scene's state."""

    def vjp(self, cot_x: np.ndarray | None = None, cot_v: np.ndarray | None = None) -> None:
        """Compute the gradients of one step from its inputs alone, including all recomputation.

        Given cotangents replace the current ones (initially the scene's); a call without cotangents, as in
        timed calls, reuses them and pays nothing for their transfer.
        """

    def rollout(self, steps: int) -> None:
        """Run `steps` steps, store the state of each, then run the adjoint of all steps.

        The scene's cotangents apply to the final state.
        """

    def results(self) -> Results:
        """Copy the results of the last operation."""
