"""`RunOptions`: how to execute a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from kinema.errors import InputError


@dataclass(frozen=True)
class RunOptions:
    """How to execute a run; options never change the computed values.

    Attributes:
        checkpoint: Interval of steps at which states are kept for the backward pass; "auto" picks the smallest interval
            that fits into memory. Only 1 (the default) returns the whole trajectory; other intervals return its end.
        memory_budget: Bytes that the run may use; 80 % of the available memory by default.
        threads: Number of worker threads; all CPUs by default. Results are bitwise independent of it.
        on_failure: "raise" raises an error if a world becomes non-finite; "status" reports it in the status instead.
        progress: Whether to show the progress of runs that last longer than a second, or a function of (steps done,
            steps).
    """

    checkpoint: int | str = 1
    memory_budget: int | None = None
    threads: int | None = None
    on_failure: str = "raise"
    progress: bool | Callable[[int, int], None] = True

    @cached_property
    def reporting(self) -> RunOptions:
        """The same options, for callers that raise errors of their own: failures are reported in the status."""
        return replace(self, on_failure="status") if self.on_failure == "raise" else self


DEFAULT = RunOptions()
QUIET = RunOptions(progress=False)


def expect_options(given: object) -> None:
    """Raise InputError unless these are RunOptions."""
    if not isinstance(given, RunOptions):
        fix = "kinema.RunOptions(threads=1), and so on"
        raise InputError("options are of the wrong type", got=type(given).__name__, expected="RunOptions", fix=fix)
