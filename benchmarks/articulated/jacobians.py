"""Jacobians of a step beside MuJoCo's: `python -m benchmarks.articulated.jacobians [--quick]`.

`kinema.linearise` computes A and B of a step in tangent space; MuJoCo's `mjd_transitionFD` by forward differences of
1e-6, its cheapest setting. Robots stand or land on the floor under small random controls (see `twins.py`), float64, one
thread each, because both engines scale perfectly over the states of a batch. The states come from each engine's own
rollout. One by one: every eighth state, including all costs of a call from Python; as a batch: all states in one call
of Kinema, one after the other in MuJoCo. The time of the Python loop without MuJoCo's function is subtracted.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import torch

import kinema as kn
from benchmarks.kernels.timing import interleaved_minima

from . import twins

ROBOTS = ("quadruped, no armature", "ant", "humanoid")
WORLDS = 256
EVERY = 8  # stride of the states taken one by one


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much to measure: robots of `twins.ROBOTS`, states per batch, and seconds of timing per robot."""

    robots: tuple[str, ...] = ROBOTS
    worlds: int = WORLDS
    budget: float = 6.0


FULL = Plan()
QUICK = Plan(robots=("ant",), budget=0.3)


@dataclasses.dataclass(frozen=True)
class Row:
    """One robot in both engines; microseconds per state.

    Attributes:
        robot: Name of the robot.
        nv: Degrees of freedom.
        alone_us, batch_us: Time of `kinema.linearise`, for one state and per state of a batch.
        mujoco_us: Time of `mjd_transitionFD`.
        alone_ratio, batch_ratio: MuJoCo's time over Kinema's.
    """

    robot: str
    nv: int
    worlds: int
    alone_us: float
    batch_us: float
    mujoco_us: float
    alone_ratio: float
    batch_ratio: float


class Ours:
    """A robot in Kinema, at the states of its rollout."""

    def __init__(self, made: twins.Twins, controls: np.ndarray) -> None:
        self.made, self.u, self.options = made, torch.tensor(controls), kn.RunOptions(threads=1)
        with torch.no_grad():
            options = {"steps": len(controls), "dt": made.dt, "options": self.options}
            path = kn.simulate(made.model, kn.State(made.q), self.u, **options)
        self.states = kn.State(path.q[:-1].contiguous(), path.v[:-1].contiguous())
        self.single = [(self.states[t], self.u[t]) for t in range(0, len(controls), EVERY)]

    def alone(self) -> None:
        for state, u in self.single:
            kn.linearise(self.made.model, state, u, dt=self.made.dt, options=self.options)

    def batch(self) -> kn.Linearised:
        return kn.linearise(self.made.model, self.states, self.u, dt=self.made.dt, options=self.options)


class Theirs:
    """The robot in MuJoCo, at the states of its rollout."""

    def __init__(self, made: twins.Twins, controls: np.ndarray) -> None:
        import mujoco
        from mujoco import rollout

        self.model, self.data, self.u = made.rival, mujoco.MjData(made.rival), controls
        self.full = mujoco.mjtState.mjSTATE_FULLPHYSICS
        start = np.zeros((1, mujoco.mj_stateSize(self.model, self.full)))
        self.data.qpos[:] = made.qpos
        mujoco.mj_getState(self.model, self.data, start[0], self.full)
        path, _ = rollout.rollout(self.model, self.data, start, controls[None])
        self.states = np.concatenate([start, path[0, :-1]])
        n = 2 * self.model.nv
        self.A, self.B = np.zeros((n, n)), np.zeros((n, self.model.nu))

    def run(self, differentiate: bool = True) -> None:
        import mujoco

        for t in range(0, len(self.u), EVERY):
            mujoco.mj_setState(self.model, self.data, self.states[t], self.full)
            self.data.ctrl[:] = self.u[t]
            if differentiate:
                mujoco.mjd_transitionFD(self.model, self.data, 1e-6, False, self.A, self.B, None, None)


def measure(plan: Plan, say: Callable[[str], None] = lambda text: None) -> list[Row]:
    """Time all robots of the plan."""
    rows = []
    for name in plan.robots:
        say(f"Jacobians, {name}")
        made = twins.make(name)
        controls = made.controls(plan.worlds)
        ours, theirs = Ours(made, controls), Theirs(made, controls)
        ours.batch()
        calls: list[tuple[str, Callable[[], object]]] = [
            ("alone", ours.alone),
            ("batch", ours.batch),
            ("theirs", theirs.run),
            ("loop", lambda theirs=theirs: theirs.run(False)),
        ]
        best, states = interleaved_minima(calls, plan.budget, f"{name}, Jacobians"), len(ours.single)
        rival = 1e6 * (best["theirs"] - best["loop"]) / states
        alone, batch = 1e6 * best["alone"] / states, 1e6 * best["batch"] / plan.worlds
        rows.append(Row(name, made.model.nv, plan.worlds, alone, batch, rival, rival / alone, rival / batch))
    return rows


def ratios(rows: Sequence[Row]) -> dict[str, float | None]:
    """MuJoCo's time over Kinema's, least over the robots."""
    return {
        "jacobian_vs_mujoco_fd_1": min((row.alone_ratio for row in rows), default=None),
        "jacobian_vs_mujoco_fd_256": min((row.batch_ratio for row in rows if row.worlds == WORLDS), default=None),
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Jacobians of a step: Kinema beside MuJoCo's differences.")
    parser.add_argument("--quick", action="store_true", help="one robot, less time")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(QUICK if given.quick else FULL)
    for row in rows:
        numbers = dataclasses.asdict(row)
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in numbers.items()), flush=True)
    print(ratios(rows))


if __name__ == "__main__":
    main()
