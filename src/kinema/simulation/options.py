"""`StepOptions`: the features a step program is built with."""

from __future__ import annotations

from dataclasses import dataclass

from kinema.lang.autograd.options import RunOptions as RunOptions


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
        linearised: Whether lanes of the adjoint are rows of a Jacobian, see `jacobian_program`.
        servos: Whether velocity gains of servos are implicit in the law "convex".
    """

    loaded: tuple[str, ...] = ()
    record: tuple[str, ...] = ()
    activated: bool = False
    pushed: bool = False
    implicit: bool = False
    bouncing: bool = False
    substeps: int = 1
    linearised: bool = False
    servos: bool = False


PLAIN = StepOptions()
