"""Measures: `kinema bench robots`, or some scenes by `python -m benchmarks.robots.run humanoid arm`, which prints JSON.

Its arguments are names of scenes, or groups: mjcf, legged, arm, hand, pile, apart, chain, batch.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import kinema as kn
from benchmarks.kernels.timing import interleaved_minima
from benchmarks.reporting import stdout_to_stderr
from kinema.errors import KinemaError

from . import catalogue, report
from .engines import SINGLE, Ours, Theirs
from .scenes import LAWS, Pair, Spec, chosen

START = time.perf_counter()
DIFFERENCES = 8  # states of a rollout at which MuJoCo's differences are timed
JACOBIAN_STATES = 64
MOST_CANDIDATES = 32_000  # times states; at least eight states

BATCH_STEPS = 50
ROUNDS = 4  # at least


@dataclass(frozen=True)
class Plan:
    """How much to measure: names of scenes (all if empty), and seconds of timing for each scene and direction."""

    names: tuple[str, ...] = ()
    budget: float = 1.0


FULL = Plan()
QUICK = Plan(catalogue.QUICK, 0.05)


def measure(quick: bool = False, only: Sequence[str] = ()) -> dict[str, Any]:
    """Measure all scenes; progress goes to standard error.

    Args:
        quick: Few scenes, little time.
        only: Names of scenes, or groups.
    """
    plan = QUICK if quick else FULL
    with stdout_to_stderr():
        torch.set_num_threads(1)
        machine, rows, skipped = report.machine(), [], missing()
        if "mujoco-core" in skipped:
            return report.build([], [], skipped, machine)
        specs = chosen(catalogue.specs(), tuple(only) or plan.names)
        for spec in specs:
            _say(spec.name)
            found = measure_scene(spec, plan)
            rows += found
            for row in found:
                _say("  " + row.line())
        batches = []
        if (not only or "batch" in only) and "gymnasium" not in skipped:
            _say(f"{catalogue.BATCH} worlds of {catalogue.BATCH_OF}")
            batches = measure_batch(plan)
        return report.build(rows, batches, skipped, machine)


def missing() -> dict[str, str]:
    """Packages that are not installed, and what they hold."""
    wanted = {"mujoco": "mujoco-core", "gymnasium": "gymnasium", "pybullet_data": "pybullet"}
    absent = {
        package: "not installed" for module, package in wanted.items() if importlib.util.find_spec(module) is None
    }
    if importlib.util.find_spec("pinocchio") is None or catalogue.files.examples_folder() is None:
        absent["example-robot-data"] = "not installed"
    return absent


def measure_scene(spec: Spec, plan: Plan) -> list[report.Row]:
    """Time both laws and MuJoCo on a scene, interleaved."""
    pair = spec.make()
    theirs = Theirs(pair, spec.steps, spec.solvers)
    theirs.forward()
    ours: dict[str, Ours] = {}
    failed: dict[str, str] = {}
    for law in LAWS:
        try:
            one = Ours(pair, law, spec.steps)
            states = min(JACOBIAN_STATES, spec.steps, max(8, MOST_CANDIDATES // (1 + len(one.model.candidates))))
            one.forward()
            if spec.differentiate:
                one.backward()
                one.prepare_jacobians(states)
                one.jacobians()
            ours[law] = one
        except KinemaError as error:
            failed[law] = str(error).splitlines()[0]
            _say(f"  {law}: {failed[law]}")
    forward = _minima({law: one.forward for law, one in ours.items()} | {"mujoco": theirs.forward}, plan, spec)
    backward, jacobian = dict[str, float](), dict[str, float]()
    every = max(1, spec.steps // DIFFERENCES)
    counted = len(range(0, spec.steps, every))
    if spec.differentiate:
        calls: dict[str, Callable[[], object]] = {law: one.backward for law, one in ours.items()}
        calls |= {f"{law} jacobians": one.jacobians for law, one in ours.items()}
        calls |= {"mujoco": lambda: theirs.differences(every), "loop": lambda: theirs.differences(every, False)}
        backward = _minima(calls, plan, spec)
        jacobian = {law: backward[f"{law} jacobians"] / len(one.states.q) for law, one in ours.items()}
        rival = (backward["mujoco"] - backward["loop"]) / counted
    there = theirs.contacts()
    rows = []
    for law in LAWS:
        found = ours[law].contacts() if law in ours else (None, None)
        rows.append(
            report.Row(
                scene=spec.name,
                group=spec.group,
                law=law,
                nv=pair.models[law].nv,
                candidates=len(pair.models[law].candidates),
                contacts=found[0],
                mujoco_contacts=there[0],
                forward_us=_us(forward.get(law), spec.steps),
                mujoco_us=1e6 * forward["mujoco"] / spec.steps,
                backward_us=_us(backward.get(law), spec.steps),
                jacobian_us=_us(jacobian.get(law), 1),
                mujoco_fd_us=1e6 * rival if spec.differentiate else None,
                residual=found[1],
                mujoco_residual=there[1],
                mujoco_solver=theirs.solver,
                failed=failed.get(law, ""),
            )
        )
    return rows


def measure_batch(plan: Plan) -> list[report.BatchRow]:
    """Worlds of gymnasium's humanoid, each with its own controls, in one call on one thread."""
    import mujoco
    from mujoco import rollout

    spec = next(s for s in catalogue.specs() if s.name == catalogue.BATCH_OF)
    pair, worlds = spec.make(), catalogue.BATCH
    controls = pair.controls * np.random.default_rng(1).normal(size=(worlds, BATCH_STEPS, len(pair.controls)))
    calls: dict[str, Callable[[], object]] = {}
    for law in LAWS:
        calls[law] = _batch_call(pair, law, controls)
    rival, data = pair.rival, mujoco.MjData(pair.rival)
    start = np.zeros((worlds, mujoco.mj_stateSize(rival, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
    data.qpos[:], data.qvel[:] = pair.state
    for row in start:
        mujoco.mj_getState(rival, data, row, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    calls["mujoco"] = lambda: rollout.rollout(rival, data, start, controls)
    for call in calls.values():
        call()
    found = interleaved_minima(
        list(calls.items()), 2 * plan.budget, "batch", min_rounds=ROUNDS, clock=time.process_time
    )
    each = worlds * BATCH_STEPS
    return [
        report.BatchRow(spec.name, law, worlds, 1e6 * found[law] / each, 1e6 * found["mujoco"] / each) for law in LAWS
    ]


def _batch_call(pair: Pair, law: str, controls: np.ndarray) -> Callable[[], object]:
    u, worlds = torch.tensor(controls), len(controls)
    state = kn.State(pair.q, pair.v).expand(worlds)
    model, dt = pair.models[law], pair.dt

    def run() -> object:
        with torch.no_grad():
            return kn.simulate(model, state, u, steps=u.shape[1], dt=dt, options=SINGLE)

    return run


def _minima(calls: dict[str, Callable[[], object]], plan: Plan, spec: Spec) -> dict[str, float]:
    return interleaved_minima(list(calls.items()), plan.budget, spec.name, min_rounds=ROUNDS, clock=time.process_time)


def _us(seconds: float | None, count: int) -> float | None:
    return None if seconds is None else 1e6 * seconds / count


def _say(text: str) -> None:
    """Print progress: seconds since the start, and the next task."""
    print(f"[{time.perf_counter() - START:5.0f} s] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(json.dumps(measure(only=sys.argv[1:])))
