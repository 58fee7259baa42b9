"""Options of runs: what a user may set, and what the program of a step is made for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class RunOptions:
    """How a run is executed; no number of its result depends on it.

    Attributes:
        checkpoint: Keep the state every so many steps for gradients; "auto" picks the smallest interval that fits into
            memory. Only with 1 (the default) is the trajectory returned; otherwise only its end.
        memory_budget: Bytes that the run may take; 80 % of the available memory by default.
        threads: Worker threads; all CPUs by default. No bit of the result depends on it.
        on_failure: "raise" if a world becomes non-finite, or "status".
        progress: Show progress of runs that last longer than a second, or a function of (steps done, steps).
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
        loaded: Names of bodies that wrenches act on.
        record: Outputs, of RECORDS.
        activated: Whether the activation of tetrahedra and triangles is a control.
        pushed: Whether forces on particles are a control.
        implicit: Whether particles take implicit steps.
        bouncing: Whether restitution is given, and counts although the model has none.
        substeps: How many short steps it is made of.
    """

    loaded: tuple[str, ...] = ()
    record: tuple[str, ...] = ()
    activated: bool = False
    pushed: bool = False
    implicit: bool = False
    bouncing: bool = False
    substeps: int = 1


PLAIN = StepOptions()
