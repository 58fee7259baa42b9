"""Options of runs: `RunOptions` for users, and the features a step program is built with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


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


@dataclass(frozen=True)
class StepOptions:
    """Optional features of a step program.

    Attributes:
        loaded: Names of bodies with wrenches.
        record: Names of recorded outputs, from RECORDS.
        activated: Whether the activation of tetrahedra and triangles is a control.
        pushed: Whether forces on particles are a control.
        implicit: Whether particles take implicit steps.
        bouncing: Whether restitution is given at run time, and counts although the model has none.
        substeps: Number of substeps.
    """

    loaded: tuple[str, ...] = ()
    record: tuple[str, ...] = ()
    activated: bool = False
    pushed: bool = False
    implicit: bool = False
    bouncing: bool = False
    substeps: int = 1


PLAIN = StepOptions()
