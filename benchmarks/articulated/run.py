"""The benchmark `kinema bench articulated`."""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import kinema as kn
from benchmarks.kernels import timing
from benchmarks.reporting import stdout_to_stderr

from . import (
    ArticulatedPeer,
    batch,
    chains,
    checkpoints,
    differences,
    jacobians,
    memory,
    peer_kinema,
    report,
    scene,
    twins,
)
from . import robots as others

START = time.perf_counter()

PEERS: tuple[tuple[str, dict[str, object]], ...] = (
    ("kinema", {"solver": "newton"}),
    ("kinema", {"solver": "pgs"}),
    ("mujoco", {"solver": "Newton"}),
    ("mujoco", {"solver": "PGS"}),
    ("cppad", {}),
    ("ceres", {}),
    ("jax", {}),
    ("torch", {}),
)
"""Modules `peer_<name>` and the arguments of their `Peer`."""

SAME_STEP = {"CppAD", "Ceres", "JAX", "PyTorch"}
"""Peers that run the same PGS iterations on Kinema's equations."""

SAME_STATE, SAME_GRADIENT = 1e-9, 1e-9
"""Tolerances for rounding errors: relative differences of their states and gradients after `CHECKED` steps (fewer for
slow peers)."""
CHECKED = 50

CANDIDATES = (5, 10, 12, 14, 15, 16, 17, 18, 19, 20, 22, 25, 30, 36, 40, 50, 70, 100)
"""PGS iterations to choose from: the least whose residual is no larger than MuJoCo PGS's, both largest and median, each
relative to the largest contact impulse of its step. Newton's method, Kinema's default, converges."""


@dataclass(frozen=True)
class Plan:
    """How much to measure.

    Attributes:
        steps: Numbers of steps of one robot.
        steps_of_ten: Numbers of steps of ten robots in one world.
        chosen_over: Steps over which the number of PGS iterations is chosen.
        slow_steps: Most steps of slow peers.
        budget: Seconds of timing for each case and direction.
        worlds: Batch sizes.
        batch_steps: Steps of each world of a batch.
        every: Compare every `every`-th world of a batch with its single run.
        memory_steps: Steps of the memory measurements.
        memory_of: Modules of the engines whose memory is measured.
        checkpoints: Variations in the ablation of the checkpoint interval.
        links: Lengths of chains.
        robots: Plan for third-party robots.
        jacobians: Plan for Jacobians of a step.
    """

    steps: tuple[int, ...]
    steps_of_ten: tuple[int, ...]
    chosen_over: int
    slow_steps: int
    budget: float
    worlds: tuple[int, ...]
    batch_steps: int
    every: int
    memory_steps: int
    memory_of: tuple[str, ...]
    checkpoints: checkpoints.Plan
    links: tuple[int, ...]
    robots: others.Plan
    jacobians: jacobians.Plan


FULL = Plan(
    steps=(50, 500, 5_000),
    steps_of_ten=(50, 500, 5_000),
    chosen_over=2_000,
    slow_steps=50,
    budget=15.0,
    worlds=(1_024, 4_096),
    batch_steps=20,
    every=1,
    memory_steps=5_000,
    memory_of=("kinema", "mujoco", "cppad", "ceres", "jax", "torch"),
    checkpoints=checkpoints.Plan(robots=(1, 2, 3, 5, 7, 10), intervals=(1, 2, 3, 4, 5), steps=500, repetitions=12),
    links=(10, 30, 100, 300, 1_000),
    robots=others.FULL,
    jacobians=jacobians.FULL,
)
QUICK = Plan(
    steps=(50,),
    steps_of_ten=(),
    chosen_over=2_000,
    slow_steps=4,
    budget=1.0,
    worlds=(64,),
    batch_steps=5,
    every=16,
    memory_steps=500,
    memory_of=("kinema",),
    checkpoints=checkpoints.Plan(robots=(1,), intervals=(1, 5), steps=100, repetitions=2),
    links=(10, 30),
    robots=others.QUICK,
    jacobians=jacobians.QUICK,
)


def measure(quick: bool = False, out: Path = Path("out/articulated")) -> dict[str, Any]:
    """Measure all available engines; progress goes to standard error.

    Args:
        quick: Fewer steps, less time.
        out: Folder for the plot of the checkpoint intervals.
    """
    plan = QUICK if quick else FULL
    with stdout_to_stderr():
        machine = report.machine()
        torch.set_num_threads(1)  # operations of this size only slow down with more
        peers, skipped = _load()
        sweeps, chosen = choose_sweeps(peers, plan.chosen_over)
        agreement = check(peers, sweeps, plan.slow_steps, skipped)
        peers = [peer for peer in peers if peer.module not in skipped]
        rows: list[report.Row] = []
        for robots, numbers in ((1, plan.steps), (10, plan.steps_of_ten)):
            for steps in numbers:
                rows += _measure(peers, robots, steps, sweeps, plan, rows)
        batches = []
        for worlds in plan.worlds:
            _say(f"{worlds} worlds")
            # A round takes 1.5 s with 4,096 worlds: thirty rounds need three times the usual budget.
            batches += batch.measure(worlds, plan.batch_steps, 3 * plan.budget, plan.every)
        peaks = _memory(peers, plan, sweeps)
        _say("checkpoints")
        varied = checkpoints.measure(plan.checkpoints, out / "checkpoints.png")
        _say("chains")
        grown = chains.measure(plan.links, plan.budget / 5)
        if reason := twins.missing():
            skipped["robots"] = reason
        found = [] if reason else others.measure(plan.robots, say=_say)
        linear = [] if reason else jacobians.measure(plan.jacobians, say=_say)
        return report.build(rows, peaks, batches, varied, grown, found, chosen, agreement, skipped, machine, linear)


def choose_sweeps(peers: list[ArticulatedPeer], steps: int) -> tuple[int, dict[str, object]]:
    """The least number of PGS iterations with a residual no larger than MuJoCo PGS's, and the residuals."""
    rival = next((peer for peer in peers if (peer.name, peer.mode) == ("MuJoCo", "PGS")), None)
    if rival is None:
        return scene.SWEEPS, {"chosen": scene.SWEEPS, "why": "as chosen elsewhere: MuJoCo is not installed"}
    _say("choosing the number of PGS iterations")
    rival.prepare(scene.case(1, steps))
    wanted = rival.contact()
    tried = {}
    for sweeps in CANDIDATES:
        own = peer_kinema.Peer("pgs")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kn.UnsolvedWarning)  # few iterations do not converge
            own.prepare(scene.case(1, steps, sweeps))
            tried[sweeps] = contact = own.contact()
        if contact.residual <= wanted.residual and contact.residual_median <= wanted.residual_median:
            break
    numbers = {str(n): [c.residual, c.residual_median] for n, c in tried.items()}
    why = (
        f"least of {CANDIDATES} whose relative residual over {steps} steps is no larger than MuJoCo PGS's, largest and"
        " median; for the PGS peers and 'Kinema, pgs', because Kinema's default is Newton's method"
    )
    mujoco = [wanted.residual, wanted.residual_median]
    return sweeps, {
        "chosen": sweeps,
        "relaxation": scene.RELAXATION,
        "why": why,
        "mujoco_pgs_residual": mujoco,
        "kinema_residual": numbers,
    }


def _load() -> tuple[list[ArticulatedPeer], dict[str, str]]:
    """The available peers, and the reasons why the others cannot run."""
    peers, skipped = [], {}
    for name, arguments in PEERS:
        module = importlib.import_module(f"{__package__}.peer_{name}")
        if available := module.Peer.available():
            peers.append(module.Peer(**arguments))
        else:
            skipped[name] = available.reason
    return peers, skipped


def check(
    peers: list[ArticulatedPeer], sweeps: int, slow_steps: int, skipped: dict[str, str]
) -> dict[str, dict[str, float]]:
    """Check that PGS peers have the states and gradients of Kinema's PGS.

    Adds peers that cannot be built from Kinema's current step to `skipped`.

    Returns:
        The relative differences, by engine.

    Raises:
        RuntimeError: A peer differs; a comparison would be meaningless.
    """
    found = {}
    for peer in (p for p in peers if p.name in SAME_STEP):
        steps = slow_steps if peer.slow else CHECKED
        _say(f"checking {peer.name} over {steps} steps (the first time compiles)")
        case, own = scene.case(1, steps, sweeps), peer_kinema.Peer("pgs")
        own.prepare(case)
        own.backward()
        try:
            peer.prepare(case)
        except NotImplementedError as error:
            skipped[peer.module] = str(error)
            continue
        peer.forward()
        peer.backward()
        state = max(differences.distance(a, b) for a, b in zip(peer.states(), own.states(), strict=True))
        gradient = differences.distance(peer.gradient(), own.gradient())
        found[peer.name] = {"steps": steps, "state": state, "gradient": gradient}
        if not (state < SAME_STATE and gradient < SAME_GRADIENT):
            what = f"{peer.name} disagrees with Kinema after {steps} steps"
            raise RuntimeError(f"{what}: states differ by {state:.1e}, gradients by {gradient:.1e}")
    return found


def _measure(
    peers: list[ArticulatedPeer], robots: int, steps: int, sweeps: int, plan: Plan, done: list[report.Row]
) -> list[report.Row]:
    """Prepare every engine, check its gradient, then time forward and backward, interleaving the engines.

    Slow engines run fewer steps, once.
    """
    title = f"{robots} robot(s), {steps} steps"
    entries: list[tuple[ArticulatedPeer, scene.Case, bool]] = []
    for peer in peers:
        forward, gradient = peer.most_steps(robots)
        most = min(steps, max(forward, gradient), plan.slow_steps if peer.slow else steps)
        if most == 0 or any(
            (r.engine, r.mode, r.robots, r.steps) == (peer.name, peer.mode, robots, most) for r in done
        ):
            continue
        _say(f"{title}: preparing {peer.name} {peer.mode}")
        case = scene.case(robots, most, sweeps)
        peer.prepare(case)
        entries.append((peer, case, most <= gradient))
    errors = {peer: _gradient_error(peer, case) for peer, case, differentiable in entries if differentiable}
    calls = [(str(i), peer.forward) for i, (peer, _, _) in enumerate(entries)]
    forward = _minima(calls, plan.budget, f"{title}, forward")
    calls = [(str(i), peer.backward) for i, (peer, _, _) in enumerate(entries) if peer in errors]
    backward = _minima(calls, plan.budget, f"{title}, backward")
    rows = []
    for i, (peer, case, _) in enumerate(entries):
        contact = peer.contact()
        rows.append(
            report.Row(
                engine=peer.name,
                mode=peer.mode,
                robots=robots,
                steps=case.steps,
                forward_us=1e6 * forward[str(i)] / case.steps,
                backward_us=1e6 * backward[str(i)] / case.steps if peer in errors else None,
                sweeps=contact.sweeps,
                residual=contact.residual,
                residual_median=contact.residual_median,
                depth_mm=contact.depth,
                gradient_error=errors[peer][0] if peer in errors else None,
                gradient_against=errors[peer][1] if peer in errors else None,
            )
        )
    return rows


def _minima(entries: list[tuple[str, Callable[[], None]]], budget: float, title: str) -> dict[str, float]:
    """Least seconds per call, interleaved; calls so slow that others would get few rounds run afterwards."""
    quick, slow = [], []
    for label, call in entries:
        begin = time.perf_counter()
        call()
        (slow if time.perf_counter() - begin > budget / 20 else quick).append((label, call))
    found = timing.interleaved_minima(quick, budget, title, min_rounds=3)
    return found | timing.interleaved_minima(slow, 0.0, f"{title}, slow ones", min_rounds=2)


def _gradient_error(peer: ArticulatedPeer, case: scene.Case) -> tuple[float, str]:
    """Distance to the gradient of Kinema's PGS for PGS peers, to own finite differences for others."""
    peer.backward()
    if peer.name not in SAME_STEP:
        return differences.error(peer.loss, case.torques, peer.gradient()), "own differences"
    own = peer_kinema.Peer("pgs")
    own.prepare(case)
    own.backward()
    return differences.distance(peer.gradient(), own.gradient()), own.name


def _memory(peers: list[ArticulatedPeer], plan: Plan, sweeps: int) -> list[report.MemoryRow]:
    """Peak memory for one robot, and for ten with Kinema."""
    rows = []
    for name, arguments in PEERS:
        peer = next((p for p in peers if p.module == name), None)
        if peer is None or name not in plan.memory_of or str(arguments.get("solver")).lower() == "pgs":
            continue
        for robots in (1, 10) if name == "kinema" and plan.steps_of_ten else (1,):
            steps = min(plan.memory_steps, peer.most_steps(robots)[1], plan.slow_steps if peer.slow else 10**9)
            _say(f"memory of {peer.name}, {robots} robot(s), {steps} steps")
            warm = {"warm": steps} if peer.compiles_steps else {}
            peak = memory.measure(peer=name, arguments=arguments, robots=robots, steps=steps, sweeps=sweeps, **warm)
            rows.append(report.MemoryRow(peer.name, robots, steps, peak))
    return rows


def _say(text: str) -> None:
    """Print progress: seconds since the start, and the next task."""
    print(f"[{time.perf_counter() - START:5.0f} s] {text}", file=sys.stderr, flush=True)
