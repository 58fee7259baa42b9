"""What the program of a step is made for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepOptions:
    """What a step does beside moving the model.

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
