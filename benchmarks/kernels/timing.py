"""Minima of interleaved timings, which a busy machine disturbs least."""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

MIN_BATCH = 0.02
"""A timing repeats its callable until it takes at least this long [s]."""

_PRINT_EVERY = 5.0  # seconds between progress lines when standard error is not a terminal


def interleaved_minima(
    entries: Sequence[tuple[str, Callable[[], object]]],
    budget: float,
    title: str = "",
    min_rounds: int = 3,
    min_batch: float = MIN_BATCH,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Time callables in turn and keep the best time of each.

    Each round runs every callable once, as a batch of calls long enough for the clock (`MIN_BATCH`), in
    alternating order, so that a disturbance hits all of them and none always follows the same neighbour. Warm up
    (compile, capture, allocate) before.

    Args:
        entries: Distinct labels and callables.
        budget: Seconds to spend; runs at least `min_rounds` rounds.
        title: Text of the progress line.
        min_rounds: Least number of rounds, however long they take.
        min_batch: Least duration of one timing [s]; 0 times single calls, if these are long enough for the clock.
        clock: `time.process_time` on a machine with other load: it counts the time of this process alone.

    Returns:
        Seconds per call, by label.
    """
    entries = list(entries)
    best = dict.fromkeys((label for label, _ in entries), math.inf)
    if not entries:
        return best
    inner = {label: max(1, math.ceil(min_batch / _batch(call, 1, clock))) for label, call in entries}
    rounds = 0
    start = time.perf_counter()
    collecting = gc.isenabled()
    with _Line(title) as line:
        gc.collect()
        gc.disable()
        try:
            while rounds < min_rounds or time.perf_counter() - start < budget:
                for label, call in entries if rounds % 2 == 0 else reversed(entries):
                    best[label] = min(best[label], _batch(call, inner[label], clock))
                rounds += 1
                elapsed = time.perf_counter() - start
                expected = max(min_rounds, rounds, math.ceil(budget / (elapsed / rounds)))
                line.update(rounds, expected, elapsed)
        finally:
            if collecting:
                gc.enable()
    return best


def _batch(call: Callable[[], object], times: int, clock: Callable[[], float]) -> float:
    """Mean seconds of `times` calls."""
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times


class _Line:
    """Progress on standard error: a bar in a terminal, an occasional line elsewhere."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._printed = time.perf_counter()
        self._bar: Progress | None = None

    def __enter__(self) -> _Line:
        if sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"))
            self._bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._title, total=None, rate="")
            self._bar.start()
        return self

    def update(self, rounds: int, expected: int, elapsed: float) -> None:
        rate = rounds / elapsed
        if self._bar is not None:
            self._bar.update(self._task, completed=rounds, total=expected, rate=f"{rate:.3g} rounds/s")
            return
        now = time.perf_counter()
        if rounds == expected or now - self._printed > _PRINT_EVERY:
            self._printed = now
            left = (expected - rounds) / rate
            text = f"{self._title}: round {rounds} of about {expected}, {rate:.3g} rounds/s, {left:.0f} s left"
            print(text, file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
