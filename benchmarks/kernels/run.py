"""The benchmark `kinema bench kernels`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.reporting import stdout_to_stderr

from . import KernelPeer, factor, reference, report, scene, startup, timing
from .peer_cpp import Peer as CppPeer

PEERS: tuple[tuple[str, dict[str, object]], ...] = (
    ("kinema", {"threads": 1}),
    ("kinema", {"threads": 2}),
    ("cpp", {}),
    ("numba", {}),
    ("warp", {"mode": "graph"}),
    ("warp", {"mode": "tape"}),
    ("torch", {}),
)
"""Modules `peer_<name>` and the arguments of their `Peer`."""


@dataclass(frozen=True)
class Plan:
    """How much to measure: sizes, seconds for each size and operation, steps of the rollout.

    The size of the ratios gets more time: two threads are rarely undisturbed at once.
    """

    sizes: tuple[int, ...]
    budget: float
    steps: int

    def seconds(self, size: int) -> float:
        """Budget of an operation at this size [s]."""
        return self.budget * (3.0 if size == report.RATIOS_AT else 1.0)


FULL = Plan(sizes=(100, 1_000, 10_000, 30_000), budget=10.0, steps=1000)
QUICK = Plan(sizes=(100, 10_000), budget=1.5, steps=100)


def measure(quick: bool = False) -> dict[str, object]:
    """Measure all available peers and return the report; progress goes to standard error.

    Args:
        quick: Fewer sizes, less time, a shorter rollout: a smoke test, no comparison.
    """
    plan = QUICK if quick else FULL
    with stdout_to_stderr():
        machine = report.machine()
        peers, skipped = _load()
        rows = [row for n in plan.sizes for row in _measure(peers, n, plan)]
        result = report.build(rows, skipped, machine)
        result["simd_factor"] = factor.measure(plan.budget)
        result["startup"] = startup.measure(1 if quick else 3)
    return result


def _load() -> tuple[list[KernelPeer], dict[str, str]]:
    """The available peers, and the reasons why the others cannot run."""
    peers, skipped = [], {}
    for name, arguments in PEERS:
        module_name = f"{__package__}.peer_{name}"
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            skipped[name] = str(error)
            continue
        if available := module.Peer.available():
            peers.append(module.Peer(**arguments))
        else:
            skipped[name] = available.reason
    return peers, skipped


def _measure(peers: list[KernelPeer], n_tets: int, plan: Plan) -> Iterator[report.Row]:
    """Check every peer against float64, then time the operations one after the other, interleaving the peers."""
    block = scene.make(n_tets)
    exact_vjp = reference.vjp(block, block.cot_x, block.cot_v)
    exact_rollout = _exact_rollout(block, plan.steps)
    rollout = f"rollout{plan.steps}"
    errors: dict[tuple[str, int], float] = {}
    for i, peer in enumerate(peers):
        print(f"{n_tets} tets: preparing {peer.name} {peer.mode}, {peer.threads} thread(s)", file=sys.stderr)
        peer.prepare(block)
        peer.forward()
        peer.vjp(block.cot_x, block.cot_v)
        errors["vjp", i] = reference.gradient_error(peer.results().gradients, exact_vjp)
        peer.rollout(plan.steps)
        errors[rollout, i] = reference.gradient_error(peer.results().gradients, exact_rollout)
        errors["forward", i] = errors["vjp", i]

    calls = {
        "forward": [peer.forward for peer in peers],
        "vjp": [peer.vjp for peer in peers],
        rollout: [lambda peer=peer: peer.rollout(plan.steps) for peer in peers],
    }
    for what, functions in calls.items():
        entries = [(str(i), function) for i, function in enumerate(functions)]
        seconds = timing.interleaved_minima(entries, plan.seconds(n_tets), title=f"{n_tets} tets, {what}")
        for i, peer in enumerate(peers):
            steps = 1 if what == rollout else getattr(peer, "steps_per_call", 1)
            microseconds = 1e6 * seconds[str(i)] / steps
            yield report.Row(peer.name, peer.mode, peer.threads, n_tets, what, microseconds, errors[what, i])


def _exact_rollout(block: scene.Scene, steps: int) -> dict[str, np.ndarray]:
    """Gradients of a rollout in float64: in C++ if a compiler is installed, else in numpy (minutes)."""
    if not CppPeer.available():
        return reference.rollout(block, steps, block.cot_x, block.cot_v)[2]
    exact = CppPeer(dtype=np.float64)
    exact.prepare(block)
    exact.rollout(steps)
    return exact.results().gradients
