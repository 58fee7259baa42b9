"""Benchmark of trees of links in contact: a quadruped, alone, ten in one world, and thousands side by side.

Every engine is a module `peer_*.py` with a class `Peer` that follows the protocol below. They simulate the robot of
`scene.py` under the same torques; the loss is the height of the (first) trunk at the end, and its gradient to every
joint torque of every step is what `backward` computes. Kinema solves contacts by Newton's method, its default, and once
more by sweeps. Peers that make the same sweeps of its equations (PyTorch, JAX, the emitted C++ over CppAD and Ceres)
must agree with the states and gradients of the latter, or the run fails; MuJoCo solves a soft contact problem of its
own, is held to the same mass matrix, and its gradient is compared with differences of its own rollout. `robots.py` has
robots of others, from their files, beside MuJoCo alone.

    python -m benchmarks.articulated.run --json --quick
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from .scene import Case


@dataclass(frozen=True)
class Availability:
    """Whether a peer can run here; `reason` says what is missing if not."""

    ok: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True)
class Contact:
    """How well the contacts of a rollout were solved.

    Attributes:
        sweeps: Iterations of the solver in a step; for solvers that stop by themselves, the mean.
        residual: Largest change of an impulse if each were set once more to what solves its own row, over the largest
            impulse of a contact in its step [-]; the largest over the steps. Of each engine's own contact problem, in
            its own rows (see `peer_mujoco.py`).
        residual_median: The median over the steps.
        depth: Largest depth of a foot below the ground after a step [mm].
    """

    sweeps: float
    residual: float
    residual_median: float
    depth: float


class ArticulatedPeer(Protocol):
    """One engine in one mode, on one thread.

    `forward` and `backward` begin at the case's start at every call. What a user does once (compiling, allocating)
    happens in `prepare` or in the first call, never in a timed one.
    """

    name: str
    mode: str
    module: str
    """The file is `peer_<module>.py`."""
    slow: bool
    """Whether many steps would take minutes."""
    compiles_steps: bool
    """Whether another number of steps is compiled anew."""

    def most_steps(self, robots: int) -> tuple[int, int]:
        """Largest sensible numbers of steps, forward and with gradient; 0 if it cannot or takes minutes."""

    @staticmethod
    def available() -> Availability:
        """Tell whether the packages or programs needed are here."""

    def prepare(self, case: Case) -> None:
        """Take the case and make everything ready to run."""

    def shake(self, torques: np.ndarray) -> None:
        """Take other torques, perhaps of another number of steps."""

    def forward(self) -> None:
        """All steps; the state of each is kept."""

    def backward(self) -> None:
        """Gradient of the loss to all torques, from the states that a run has kept (one is made if there is none)."""

    def states(self) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates and velocities at the end, in the engine's own convention."""

    def gradient(self) -> np.ndarray:
        """What the last backward run found, shape (steps, 12 * robots)."""

    def loss(self, torques: np.ndarray) -> float:
        """The loss under other torques, for differences."""

    def contact(self) -> Contact:
        """How well the contacts of the case's rollout are solved."""
