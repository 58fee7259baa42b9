"""Third-party robots beside MuJoCo's Newton method: `python -m benchmarks.articulated.robots [--quick] [--solver pgs]`.

Each robot stands or lands on the floor under small random controls (see `twins.py`), float64, one thread; the loss is
the final height of its root. Kinema: `kinema.simulate` and the gradient with respect to all controls, including the
cost of autograd. MuJoCo: `rollout`, a loop in C++; the gradient by chaining `mjd_transitionFD` (forward differences of
1e-6). The time of its Python loop without that call is measured as well and subtracted.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import kinema as kn
from benchmarks.kernels.timing import interleaved_minima
from kinema.verification import convergence

from . import differences, twins

FEWEST, MOST = 0.6, 1.6  # bounds of Kinema's over MuJoCo's mean number of active contacts, for comparable work
STEPS = 400
CHECKED = 50  # steps of finite differences: falling robots soon become unpredictable


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much to measure.

    Attributes:
        robots: Names in `twins.ROBOTS`.
        steps: Steps of each robot.
        budget: Seconds of timing for each robot and direction.
        self_colliding: Robots also measured with self-collision. PyBullet's are not among them: a run of laikago
            failed in step 14.
    """

    robots: tuple[str, ...] = tuple(twins.ROBOTS)
    steps: int = STEPS
    budget: float = 4.0
    self_colliding: tuple[str, ...] = ("humanoid", "hopper")


FULL = Plan()
QUICK = Plan(robots=("ant", "hopper", "a1"), steps=50, budget=0.2, self_colliding=())


@dataclasses.dataclass(frozen=True)
class Row:
    """One robot in both engines; microseconds per step.

    Attributes:
        robot: Name of the robot.
        self_collision: Whether links collide with each other.
        nv: Degrees of freedom.
        candidates: Contact candidates in Kinema.
        contacts, mujoco_contacts: Mean number of active contacts.
        forward_us, mujoco_us: Time of a step.
        forward_ratio: MuJoCo's time over Kinema's.
        backward_us, mujoco_fd_us: Time of the gradient of a step.
        backward_ratio: MuJoCo's time over Kinema's.
        residual: Residual of the worst step, relative to its largest impulse [-], see
            `kinema.verification.convergence`.
        gradient_error: Relative error of the slope along one direction, against central differences of the first 50
            steps.
    """

    robot: str
    self_collision: bool
    nv: int
    candidates: int
    contacts: float
    mujoco_contacts: float
    forward_us: float
    mujoco_us: float
    forward_ratio: float
    backward_us: float
    mujoco_fd_us: float
    backward_ratio: float
    residual: float
    gradient_error: float


class Ours:
    """A robot in Kinema."""

    def __init__(self, made: twins.Twins, controls: np.ndarray) -> None:
        self.made, self.u = made, torch.tensor(controls).requires_grad_()
        self.path = self.simulate(self.u)

    def simulate(self, u: torch.Tensor, **more: Any) -> kn.Trajectory:
        """A rollout under these controls."""
        made, options = self.made, kn.RunOptions(threads=1, progress=False)
        return kn.simulate(made.model, kn.State(made.q), u, steps=len(u), dt=made.dt, options=options, **more)

    def forward(self) -> None:
        with torch.no_grad():
            self.simulate(self.u)

    def backward(self) -> np.ndarray:
        (found,) = torch.autograd.grad(self.path.end.q[self.made.height], self.u, retain_graph=True)
        return found.numpy()

    def loss(self, controls: np.ndarray) -> float:
        """The loss under other controls, for finite differences."""
        with torch.no_grad():
            return float(self.simulate(torch.tensor(controls)).end.q[self.made.height])

    def contacts(self) -> tuple[float, float]:
        """The mean number of active contacts, and the worst step's residual relative to its largest impulse."""
        with torch.no_grad():
            path = self.simulate(self.u, record=["impulse"])
        pressing = path.recorded["impulse"][..., 0] > 1e-9 * path.recorded["impulse"].max()
        nothing = torch.zeros(len(self.u), 1, self.made.model.nv, dtype=torch.float64)
        states = (path.q[:-1], path.v[:-1], nothing)
        problem = convergence.pose(self.made.model, *states, self.made.dt, self.u.detach().unsqueeze(1))
        largest = np.abs(problem.impulse).max(-1)
        touching = largest > 1e-9 * largest.max()
        worst = float((problem.errors()[touching] / largest[touching]).max())
        return float(pressing.sum(-1).double().mean()), worst


class Theirs:
    """The robot in MuJoCo."""

    def __init__(self, made: twins.Twins, controls: np.ndarray) -> None:
        import mujoco

        self.model, self.data, self.u = made.rival, mujoco.MjData(made.rival), controls
        self.full = mujoco.mjtState.mjSTATE_FULLPHYSICS
        self.start = np.zeros((1, mujoco.mj_stateSize(self.model, self.full)))
        self.data.qpos[:] = made.qpos
        mujoco.mj_getState(self.model, self.data, self.start[0], self.full)
        self.height = made.height
        self.forward()

    def forward(self) -> None:
        from mujoco import rollout

        self.path, _ = rollout.rollout(self.model, self.data, self.start, self.u[None])

    def backward(self, differentiate: bool = True) -> np.ndarray:
        """lambda_t = A_t^T lambda_t+1, dL/du_t = B_t^T lambda_t+1; or only the loop, to time its overhead."""
        import mujoco

        model, data, n = self.model, self.data, 2 * self.model.nv
        A, B, adjoint, found = np.zeros((n, n)), np.zeros((n, model.nu)), np.zeros(n), np.zeros_like(self.u)
        adjoint[self.height] = 1.0
        for t in reversed(range(len(self.u))):
            mujoco.mj_setState(model, data, self.path[0, t - 1] if t else self.start[0], self.full)
            data.ctrl[:] = self.u[t]
            if differentiate:
                mujoco.mjd_transitionFD(model, data, 1e-6, False, A, B, None, None)
            found[t] = adjoint @ B
            adjoint = adjoint @ A
        return found

    def contacts(self) -> float:
        """The mean number of active contacts."""
        import mujoco

        data, force, pressing = mujoco.MjData(self.model), np.zeros(6), 0
        mujoco.mj_setState(self.model, data, self.start[0], self.full)
        for controls in self.u:
            data.ctrl[:] = controls
            mujoco.mj_step(self.model, data)
            for i in range(data.ncon):
                mujoco.mj_contactForce(self.model, data, i, force)
                pressing += int(force[0] > 0)
        return pressing / len(self.u)


def measure(plan: Plan, contact: kn.Contact | None = None, say: Callable[[str], None] = lambda text: None) -> list[Row]:
    """Time all robots of the plan; those with self-collision last.

    Args:
        plan: What to measure.
        contact: Kinema's contact options; its defaults unless given.
        say: Receives progress messages.
    """
    rows = []
    for name, self_collision in [(n, False) for n in plan.robots] + [(n, True) for n in plan.self_colliding]:
        say(f"{name}{' with self-collision' if self_collision else ''}")
        rows.append(_measure(twins.make(name, contact, self_collision), self_collision, plan))
    return rows


def ratios(rows: Sequence[Row]) -> dict[str, float | None]:
    """MuJoCo's time over Kinema's, least and median over the robots without self-collision."""
    alone = [row for row in rows if not row.self_collision]
    forward, backward = [r.forward_ratio for r in alone], [r.backward_ratio for r in alone]
    return {
        "robots_forward_vs_mujoco_min": min(forward, default=None),
        "robots_forward_vs_mujoco_median": statistics.median(forward) if forward else None,
        "robots_backward_vs_mujoco_fd_median": statistics.median(backward) if backward else None,
    }


def _measure(made: twins.Twins, self_collision: bool, plan: Plan) -> Row:
    controls = made.controls(plan.steps)
    ours, theirs = Ours(made, controls), Theirs(made, controls)
    pressing, residual = ours.contacts()
    rival = theirs.contacts()
    same = FEWEST * rival <= pressing <= MOST * rival
    assert same, f"{made.name}: {pressing:.2f} active contacts here, {rival:.2f} in MuJoCo"
    checked = Ours(made, controls[:CHECKED])
    error = differences.error(checked.loss, controls[:CHECKED], checked.backward())
    calls: list[tuple[str, Callable[[], object]]] = [("ours", ours.forward), ("theirs", theirs.forward)]
    forward = interleaved_minima(calls, plan.budget, f"{made.name}, forward")
    calls = [("ours", ours.backward), ("theirs", theirs.backward), ("loop", lambda: theirs.backward(False))]
    backward = interleaved_minima(calls, plan.budget, f"{made.name}, backward")
    us = 1e6 / plan.steps
    gradient = backward["theirs"] - backward["loop"]
    return Row(
        robot=made.name,
        self_collision=self_collision,
        nv=made.model.nv,
        candidates=len(made.model.candidates),
        contacts=pressing,
        mujoco_contacts=rival,
        forward_us=us * forward["ours"],
        mujoco_us=us * forward["theirs"],
        forward_ratio=forward["theirs"] / forward["ours"],
        backward_us=us * backward["ours"],
        mujoco_fd_us=us * gradient,
        backward_ratio=gradient / backward["ours"],
        residual=residual,
        gradient_error=error,
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Third-party robots: Kinema beside MuJoCo's Newton method.")
    parser.add_argument("--quick", action="store_true", help="three robots, few steps")
    parser.add_argument("--solver", choices=("pgs", "newton"), help="solver of Kinema (default: Kinema's default)")
    parser.add_argument("--robots", nargs="+", choices=tuple(twins.ROBOTS), help="only these")
    given = parser.parse_args()
    torch.set_num_threads(1)
    plan = QUICK if given.quick else FULL
    if given.robots:
        plan = dataclasses.replace(plan, robots=tuple(given.robots), self_colliding=())
    contact = kn.Contact(solver=given.solver) if given.solver else None
    rows = measure(plan, contact)
    for row in rows:
        numbers = dataclasses.asdict(row)
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in numbers.items()), flush=True)
    print(ratios(rows))


if __name__ == "__main__":
    main()
