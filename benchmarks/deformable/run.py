"""The benchmark `kinema bench deformable`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.kernels import timing
from benchmarks.reporting import available, stdout_to_stderr

from . import GRADIENTS, DeformablePeer, memory, peer_kinema, peer_warp, report, scene

PEERS: tuple[Callable[[], DeformablePeer], ...] = (
    lambda: peer_kinema.Peer(threads=1),
    lambda: peer_kinema.Peer(threads=2),
    peer_warp.Peer,
)


@dataclass(frozen=True)
class Plan:
    """How much to measure.

    Attributes:
        tets: Sizes of blocks.
        triangles: Sizes of cloth.
        work: Elements times steps of a rollout, within `steps`.
        steps: Least and most steps of a rollout.
        error_steps: Steps of the rollouts whose gradients are compared.
        budget: Seconds of timing for each size and direction.
        memory_steps: Steps of the gear's memory measurement; 0 skips it.
    """

    tets: tuple[int, ...]
    triangles: tuple[int, ...]
    work: int
    steps: tuple[int, int]
    error_steps: int
    budget: float
    memory_steps: int

    def seconds(self, elements: int) -> float:
        """Budget of a size [s], doubled where few calls fit into it."""
        return self.budget * (2.0 if elements >= 50_000 else 1.0)


FULL = Plan(tuple(scene.BLOCKS), tuple(scene.SHEETS), 4_000_000, (200, 5_000), 64, 12.0, memory.STEPS)
QUICK = Plan((100,), (64,), 20_000, (40, 100), 8, 0.2, 0)


def measure(quick: bool = False) -> dict[str, object]:
    """Measure all available engines, and return the report; progress goes to standard error.

    Args:
        quick: One block and one cloth, short: a smoke test, no comparison.
    """
    plan = QUICK if quick else FULL
    threads = torch.get_num_threads()
    # After parallel work torch's threads spin for a while, on the core of the second thread.
    torch.set_num_threads(1)
    try:
        with stdout_to_stderr():
            machine = report.machine()
            makers, skipped = available(PEERS)
            rows = [row for n in plan.tets for row in _measure(scene.solid(n), makers, plan)]
            rows += [row for n in plan.triangles for row in _measure(scene.cloth(n), makers, plan)]
            result = report.build(rows, list(_memory(plan.memory_steps)), skipped, machine)
    finally:
        torch.set_num_threads(threads)
    return result


def _measure(case: scene.Case, makers: list[Callable[[], DeformablePeer]], plan: Plan) -> Iterator[report.Row]:
    """Check every peer against float64, then time rollouts and single steps, interleaving the peers."""
    fewest, most = plan.steps
    steps = max(fewest, min(most, plan.work // case.elements))
    title = f"{case.elements:,} {case.kind}"
    print(f"{title}: preparing", file=sys.stderr, flush=True)
    errors = _errors(case, makers, plan.error_steps)
    peers, single = _prepared(case, makers, steps, scaled=True), _prepared(case, makers, 1)
    seconds = {}
    for what in ("forward", "backward"):
        entries = [(f"rollout {i}", getattr(peer, what)) for i, peer in enumerate(peers)]
        entries += [(f"step {i}", getattr(peer, what)) for i, peer in enumerate(single)]
        seconds[what] = timing.interleaved_minima(entries, plan.seconds(case.elements), title=f"{title}, {what}")
    end = case.touching(peers[0].results()["x"])
    for i, peer in enumerate(peers):
        one = {what: seconds[what][f"step {i}"] for what in seconds}
        # A single step is short: on a busy machine it may be the only undisturbed call.
        least = {what: min(seconds[what][f"rollout {i}"] / peer.steps, one[what]) for what in seconds}
        yield report.Row(
            peer.name,
            peer.mode,
            peer.threads,
            case.kind,
            case.elements,
            len(case.x),
            peer.steps,
            1e6 * least["forward"],
            1e6 * least["backward"],
            1e3 * one["forward"],
            1e3 * one["backward"],
            errors[i],
            plan.error_steps,
            case.touching(case.x),
            end,
        )


def _prepared(
    case: scene.Case, makers: list[Callable[[], DeformablePeer]], steps: int, scaled: bool = False
) -> list[DeformablePeer]:
    """Peers that have run once, with `steps` steps, or with the fraction of them that their timing needs."""
    peers = [make() for make in makers]
    for peer in peers:
        peer.prepare(case, max(1, round(peer.length * steps)) if scaled else steps)
        peer.forward()
        peer.backward()
    return peers


def _errors(case: scene.Case, makers: list[Callable[[], DeformablePeer]], steps: int) -> list[float]:
    """Largest relative error of each peer's gradients against Kinema in float64."""
    exact = _prepared(case, [lambda: peer_kinema.Peer(threads=2, dtype=torch.float64)], steps)[0].results()
    found = []
    for peer in _prepared(case, makers, steps):
        got = peer.results()
        distance = {n: np.linalg.norm(got[n] - exact[n]) / np.linalg.norm(exact[n]) for n in exact}
        found.append(float(max(distance[f"grad_{name}"] for name in GRADIENTS)))
    return found


def _memory(steps: int) -> Iterator[report.MemoryRow]:
    for checkpoint, budget in ((1, None), ("auto", memory.BUDGET)) if steps else ():
        print(f"memory of {steps} steps of the gear, checkpoint={checkpoint!r}", file=sys.stderr, flush=True)
        peak = memory.measure(steps=steps, checkpoint=checkpoint, memory_budget=budget)
        yield report.MemoryRow(1_152, steps, checkpoint, None if budget is None else budget / 2**20, peak)
