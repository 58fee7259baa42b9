"""Predicts the memory of a rollout and finds the checkpoint interval that fits a budget."""

from __future__ import annotations

import math
import time
from pathlib import Path

from kinema.errors import MemoryBudgetError

SHARE = 0.8  # fraction of the available memory that a rollout may take
TRIFLE = 8 << 20  # bytes below which no check asks the system for the available memory
FEW = 1 / 64  # fraction of the memory available at the last query; below it, no new query within RECHECK
RECHECK = 1.0  # seconds

_last = -math.inf, 0  # time of the last query, and the available bytes


def available() -> int:
    """Bytes that this process can still get: the system's available memory, or less if a control group limits it."""
    free = _meminfo("MemAvailable")
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            free = min(free, int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):
            continue
    return max(min(free, _address_space()), 0)


def _is_little(needed: int) -> bool:
    """Whether memory certainly suffices, without a query, which takes longer than a small rollout."""
    global _last
    if needed <= TRIFLE:
        return True
    if time.monotonic() - _last[0] > RECHECK:
        _last = time.monotonic(), available()
    return needed <= FEW * _last[1]


def _meminfo(key: str) -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 1 << 62


def _address_space() -> int:
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit == resource.RLIM_INFINITY:
            return 1 << 62
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        return limit - used
    except (ImportError, OSError):
        return 1 << 62


def checkpoint_bytes(state: int, steps: int, interval: int) -> int:
    """Bytes of stored states: the checkpoints, and the states of one segment during its reverse sweep."""
    if interval == 1:
        return (steps + 1) * state
    return (math.ceil(steps / interval) + interval + 1 + 2) * state


def best_interval(state: int, steps: int, budget: int) -> int | None:
    """The smallest checkpoint interval whose states fit into the budget, or None."""
    for interval in range(1, math.isqrt(max(steps, 1)) + 2):
        if checkpoint_bytes(state, steps, interval) <= budget:
            return interval
    return None


def choose_interval(asked: int | str, state: int, steps: int, other: int, budget: int | None) -> int:
    """The checkpoint interval to use.

    Args:
        asked: An interval, or "auto" for the smallest one within the budget.
        state: Bytes of the state of all worlds.
        steps: Number of steps.
        other: Bytes of everything else (inputs, outputs, cotangents, one step's scratch).
        budget: Bytes that the rollout may use; by default 80 % of the available memory.

    Raises:
        MemoryBudgetError: The interval does not fit; the message names the smallest one that does.
    """
    if budget is None and _is_little(other + checkpoint_bytes(state, steps, 1)):
        return 1 if asked == "auto" else int(asked)
    limit = int(available() * SHARE) if budget is None else budget
    fitting = best_interval(state, steps, limit - other)
    if asked == "auto":
        if fitting is None:
            raise MemoryBudgetError(
                "the rollout does not fit at any checkpoint interval",
                needed=other + checkpoint_bytes(state, steps, math.isqrt(max(steps, 1))),
                available=limit,
                fix="fewer steps or worlds",
            )
        return fitting
    interval = int(asked)
    needed = other + checkpoint_bytes(state, steps, interval)
    if needed > limit:
        none_fits = "fewer steps or worlds: no checkpoint interval fits"
        raise MemoryBudgetError(
            f"a rollout of {steps} steps with checkpoint={interval} needs too much memory",
            needed=needed,
            available=limit,
            fix=f'checkpoint={fitting}, or checkpoint="auto"' if fitting else none_fits,
        )
    return interval


def require(needed: int, budget: int | None) -> None:
    """Raise MemoryBudgetError if a rollout without checkpoints needs more bytes than it may use."""
    if budget is None and _is_little(needed):
        return
    limit = int(available() * SHARE) if budget is None else budget
    if needed > limit:
        raise MemoryBudgetError(
            "the rollout needs too much memory",
            needed=needed,
            available=limit,
            fix="fewer worlds, or fewer recorded outputs",
        )
