"""Kernel benchmark: one step of neo-Hookean tetrahedra, its vjp and a rollout, in several technologies.

Every technology is a module `peer_*.py` with a class `Peer` that follows the protocol below. All
peers compute the same law (see `scene.py`) in float32 on one world; `reference.py` says in float64
what is right, and each row of the report carries the distance to it.

    python -m benchmarks.kernels.run --json --quick
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
    """Whether a peer can run here; `reason` says what is missing if not."""

    ok: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.ok


@dataclass
class Results:
    """What the last operation of a peer wrote; None where it wrote nothing.

    Attributes:
        x: Positions after the step or rollout [m], shape (nodes, 3).
        v: Velocities after the step or rollout [m/s], shape (nodes, 3).
        gradients: Cotangents of the inputs by name, see `GRADIENTS`.
    """

    x: np.ndarray | None = None
    v: np.ndarray | None = None
    gradients: dict[str, np.ndarray] = field(default_factory=dict)

    def copy(self) -> Results:
        """The same values in arrays of their own."""
        x, v = (None if a is None else a.copy() for a in (self.x, self.v))
        return Results(x, v, {name: g.copy() for name, g in self.gradients.items()})


class KernelPeer(Protocol):
    """One technology in one mode, with a fixed number of threads.

    `forward` and `vjp` start from the state of the scene at every call and do not advance it, so they can be
    repeated as often as the clock wants. Whatever a user of the technology does once (compiling,
    capturing, allocating) happens in `prepare` or in the first call, never in a timed one.
    """

    name: str
    mode: str
    threads: int
    modes: tuple[str, ...]

    @staticmethod
    def available() -> Availability:
        """Tell whether the packages or programs needed are here."""

    def prepare(self, scene: Scene) -> None:
        """Take the arrays of `scene` and make everything ready to run."""

    def forward(self) -> None:
        """One step from the scene's state."""

    def vjp(self, cot_x: np.ndarray | None = None, cot_v: np.ndarray | None = None) -> None:
        """Gradients of one step from its inputs alone, all recomputation included.

        Cotangents that are given replace those in use (at first the scene's); a call without any, as the
        clock makes it, uses them again and pays nothing for bringing them in.
        """

    def rollout(self, steps: int) -> None:
        """`steps` steps forward, the state of each stored, then the adjoint of all of them.

        The cotangents are those of the final state.
        """

    def results(self) -> Results:
        """Copy out what the last operation wrote."""
