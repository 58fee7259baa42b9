"""The benchmark `kinema bench render`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from benchmarks.kernels import timing
from benchmarks.reporting import available, stdout_to_stderr

from . import RenderPeer, memory, peer_deodr, peer_kinema, peer_mitsuba, peer_torch, report, scene

PEERS: tuple[Callable[[], RenderPeer], ...] = (
    lambda: peer_kinema.Peer("dibr", 1),
    lambda: peer_kinema.Peer("dibr", 2),
    lambda: peer_kinema.Peer("soft", 1),
    lambda: peer_kinema.Peer("soft", 2),
    lambda: peer_deodr.Peer(1),
    lambda: peer_deodr.Peer(2),
    peer_torch.Peer,
    peer_mitsuba.Peer,
)


@dataclass(frozen=True)
class Plan:
    """How much to measure.

    Attributes:
        triangles: Sizes of spheres.
        pixels: Sizes of images.
        batches: Numbers of images.
        budget: Seconds of timing for each case and direction.
        film: Whether to measure the memory of a video.
    """

    triangles: tuple[int, ...]
    pixels: tuple[int, ...]
    batches: tuple[int, ...]
    budget: float
    film: bool


FULL = Plan(tuple(scene.SPHERES), scene.PIXELS, (1, scene.BATCH), 6.0, True)
QUICK = Plan((324,), (64,), (1, 2), 0.2, False)
BLOCK = 5e-3  # seconds that a renderer runs before the next: as in an optimisation loop, it has the caches to itself


def measure(quick: bool = False) -> dict[str, object]:
    """Measure all available renderers, and return the report; progress goes to standard error.

    Args:
        quick: One small sphere, short: a smoke test, no comparison.
    """
    plan = QUICK if quick else FULL
    threads = torch.get_num_threads()
    # After parallel work torch's threads spin for a while, on the core of the second thread.
    torch.set_num_threads(1)
    try:
        with stdout_to_stderr():
            machine = report.machine()
            makers, skipped = available(PEERS)
            cases = [scene.Case(n, p, b) for b in plan.batches for n in plan.triangles for p in plan.pixels]
            rows = [row for case in cases for row in _measure(case, makers, plan)]
            films = [report.Film(mode, memory.FRAMES, *memory.FILM, memory.measure(mode)) for mode in _modes(plan)]
            result = report.build(rows, films, skipped, machine)
    finally:
        torch.set_num_threads(threads)
    return result


def _modes(plan: Plan) -> tuple[str, ...]:
    return ("dibr", "soft") if plan.film else ()


def _measure(case: scene.Case, makers: list[Callable[[], RenderPeer]], plan: Plan) -> Iterator[report.Row]:
    """Check the gradients of every peer, then time images and gradients, interleaving the peers."""
    title = f"{case.triangles:,} triangles, {case.pixels} pixels, {case.batch} images"
    print(f"{title}: preparing", file=sys.stderr, flush=True)
    peers = [peer for peer in (make() for make in makers) if peer.takes(case)]
    try:
        errors = []
        for peer in peers:
            peer.prepare(case)
            peer.forward()
            peer.both()
            errors.append(peer.gradient_error())
        seconds = {}
        for what in ("forward", "both"):
            entries = [(str(i), getattr(peer, what)) for i, peer in enumerate(peers) if not peer.slow]
            seconds[what] = timing.interleaved_minima(entries, plan.budget, title=f"{title}, {what}", min_batch=BLOCK)
            slow = [(str(i), getattr(peer, what)) for i, peer in enumerate(peers) if peer.slow]
            seconds[what] |= timing.interleaved_minima(slow, 0.0, min_rounds=1, min_batch=0.0)
        shares = _native_seconds(peers, plan.budget / 3.0)
        for i, peer in enumerate(peers):
            native, rest = shares[i]
            yield report.Row(
                peer.name,
                peer.mode,
                peer.threads,
                case.triangles,
                case.pixels,
                case.batch,
                1e3 * seconds["forward"][str(i)],
                1e3 * seconds["both"][str(i)],
                None if native is None else 1e3 * native,
                None if rest is None else 1e6 * rest,
                errors[i],
            )
    finally:
        for peer in peers:
            peer.close()


def _native_seconds(peers: list[RenderPeer], budget: float) -> list[tuple[float | None, float | None]]:
    """Least times inside and outside of native calls, taking peers in turn."""
    best = [peer.native_seconds() for peer in peers]
    start = time.perf_counter()
    while time.perf_counter() - start < budget:
        for i, peer in enumerate(peers):
            if best[i][0] is not None:
                inside, outside = zip(best[i], peer.native_seconds(), strict=True)
                best[i] = min(inside), min(outside)
    return best
