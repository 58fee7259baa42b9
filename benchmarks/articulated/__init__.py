"""Benchmark of articulated bodies in contact: one quadruped, ten in one world, and thousands in a batch.

Every engine is a module `peer_*.py` with a class `Peer` that follows the protocol below. They simulate the robot of
`scene.py` under the same torques; the loss is the final height of the (first) trunk, and `backward` computes its
gradient with respect to every joint torque of every step. Kinema solves contacts by Newton's method, its default, and a
second time by PGS. Peers that run the same PGS iterations on its equations (PyTorch, JAX, the emitted C++ over CppAD
and Ceres) must agree with the states and gradients of the latter, or the run fails. MuJoCo solves its own soft contact
problem; it must have the same mass matrix, and its gradient is compared with differences of its own rollout.
`robots.py` compares third-party robots, from their files, with MuJoCo alone.

    kinema bench articulated --json --quick
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from .scene import Case


@dataclass(frozen=True)
class Availability:
    """Whether a peer can run here; otherwise `reason` names what is missing."""

    ok: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True)
class Contact:
    """Accuracy of the contact solver in a rollout.

    Attributes:
        sweeps: Solver iterations per step; the mean for solvers with a stopping criterion.
        residual: Largest change of an impulse by one more update of its row, over the largest contact impulse of its
            step [-]; the largest over the steps. Of each engine's own contact problem, in its own rows (see
            `peer_mujoco.py`).
        residual_median: The median over the steps.
        depth: Largest depth of a foot below the ground after a step [mm].
    """

    sweeps: float
    residual: float
    residual_median: float
    depth: float


class ArticulatedPeer(Protocol):
    """One engine in one mode, on one thread.

    `forward` and `backward` begin at the initial state of the case at every call. One-time work of a user (compiling,
    allocating) happens in `prepare` or in the first call, never in a timed one.
    """

    name: str
    mode: str
    module: str
    """The file is `peer_<module>.py`."""
    slow: bool
    """Whether many steps would take minutes."""
    compiles_steps: bool
    """Whether another number of steps needs a new compilation."""

    def most_steps(self, robots: int) -> tuple[int, int]:
        """Largest sensible numbers of steps, forward and with gradient; 0 if unsupported or if it takes minutes."""

    @staticmethod
    def available() -> Availability:
        """Whether the required packages and programs are installed."""

    def prepare(self, case: Case) -> None:
        """Take the case and prepare everything to run."""

    def shake(self, torques: np.ndarray) -> None:
        """Take other torques, possibly with another number of steps."""

    def forward(self) -> None:
        """Run all steps and keep the state of each."""

    def backward(self) -> None:
        """Gradient of the loss with respect to all torques, from the kept states; runs forward first if necessary."""

    def states(self) -> tuple[np.ndarray, np.ndarray]:
        """Final coordinates and velocities, in the engine's own convention."""

    def gradient(self) -> np.ndarray:
        """The gradient of the last backward run, shape (steps, 12 * robots)."""

    def loss(self, torques: np.ndarray) -> float:
        """The loss under other torques, for finite differences."""

    def contact(self) -> Contact:
        """Accuracy of the contact solver in the rollout of the case."""
