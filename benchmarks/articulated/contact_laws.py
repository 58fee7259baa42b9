"""The contact laws beside MuJoCo's `mj_step`: `python -m benchmarks.articulated.contact_laws [--quick]`.

Gymnasium's robots fall, stand and stumble under small random controls with MuJoCo's time step and Euler's method,
float64, one thread. Per law: microseconds of CPU time per step, alone and as one of 64 worlds, and with the gradient of
all steps by all controls; and how far the first coordinates end from MuJoCo's after a tenth of the steps.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import mujoco
import numpy as np
import torch

import kinema as kn
from kinema.errors import SimulationError

ROBOTS = ("ant", "hopper", "half_cheetah", "walker2d_v5", "humanoid")
LAWS = {
    "convex": kn.Contact(law="convex"),
    "mlcp": kn.Contact(),
    "compliant": kn.Contact(law="compliant", k_e=1e3, k_d=10.0, k_f=10.0),  # stiffer ones need shorter steps
}
STEPS, WORLDS = 300, 64


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one robot, little time")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    print("| robot | law | step [us] | of 64 worlds [us] | with gradient [us] | MuJoCo / law | end apart |")
    print("|---|---|---|---|---|---|---|")
    for robot in ROBOTS[: 1 if quick else None]:
        for line in measure(robot, 1 if quick else 8):
            print(line, flush=True)


def least_times(work: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Least CPU time of each [s], one after the other in every round: other processes take none of it."""
    least = dict.fromkeys(work, float("inf"))
    for _ in range(rounds):
        for name, call in work.items():
            start = time.process_time()
            call()
            least[name] = min(least[name], time.process_time() - start)
    return least


def measure(robot: str, rounds: int) -> list[str]:
    """The rows of one robot.

    Args:
        robot: Name of a file of gymnasium.
        rounds: Rounds of timing.
    """
    file = os.path.join(os.path.dirname(gymnasium.__file__), "envs", "mujoco", "assets", f"{robot}.xml")
    twin = mujoco.MjModel.from_xml_path(file)
    twin.opt.integrator, twin.opt.solver = mujoco.mjtIntegrator.mjINT_EULER, mujoco.mjtSolver.mjSOL_NEWTON
    data, dt = mujoco.MjData(twin), float(twin.opt.timestep)
    u = np.random.default_rng(0).uniform(-0.3, 0.3, (STEPS, twin.nu))

    def peer(count: int = STEPS) -> None:
        mujoco.mj_resetData(twin, data)
        for k in range(count):
            data.ctrl[:] = u[k]
            mujoco.mj_step(twin, data)

    peer(STEPS // 10)
    place = data.qpos[:3].copy()
    work: dict[str, Callable[[], Any]] = {"mujoco": peer}
    apart = {}
    for law, contact in LAWS.items():
        scene = kn.Scene(contact=contact)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scene.add_robot(kn.read_mjcf(file), "r", self_collision=True)
        model = kn.compile(scene)
        shift = twin.qpos0[:3] - model.initial_state().q[:3].numpy()  # coordinates count from the pose of the file
        control = torch.tensor(u)
        many, worlds = control.expand(WORLDS, -1, -1).contiguous(), WORLDS
        state = model.initial_state()
        batch = kn.State(state.q.expand(worlds, -1).contiguous(), state.v.expand(worlds, -1).contiguous())
        leaf = control.clone().requires_grad_()

        def run(
            model: kn.Model = model, state: Any = state, u: Any = control, dt: float = dt, steps: int = STEPS
        ) -> Any:
            return kn.simulate(model, state, u[..., :steps, :], steps=steps, dt=dt, options=kn.RunOptions(threads=1))

        def differentiate(run: Callable[..., Any] = run, leaf: torch.Tensor = leaf) -> None:
            run(u=leaf).end.q[2].backward()

        try:
            differentiate()
            run(state=batch, u=many)
        except SimulationError:
            continue
        apart[law] = float(np.abs(run(steps=STEPS // 10).end.q[:3].numpy() + shift - place).max())
        work[law] = run
        work[f"{law} batch"] = lambda run=run, batch=batch, many=many: run(state=batch, u=many)
        work[f"{law} gradient"] = differentiate
    times = {name: 1e6 * t / STEPS for name, t in least_times(work, rounds).items()}
    rows = [f"| {robot} | MuJoCo | {times['mujoco']:.1f} | | | | |"]
    for law in apart:
        alone, side, slope = times[law], times[f"{law} batch"] / WORLDS, times[f"{law} gradient"]
        ratio = times["mujoco"] / alone
        rows.append(f"| | {law} | {alone:.1f} | {side:.2f} | {slope:.1f} | {ratio:.2f}x | {apart[law]:.1e} |")
    return rows + [f"| | {law} | diverges | | | | |" for law in LAWS if law not in apart]


if __name__ == "__main__":
    main()
