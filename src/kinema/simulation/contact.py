"""Contact, limits and loops in step programs: the velocities at the end of a step, after all impulses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kinema.lang import Int
from kinema.lang.programs.program import Ref
from kinema.simulation.constraints import RowSet, hold
from kinema.simulation.detection import detect
from kinema.simulation.forces import FreeMotion, free_motion, free_velocities, inertial_forces
from kinema.simulation.impacts import Impacts
from kinema.simulation.links import Links
from kinema.simulation.options import StepOptions
from kinema.simulation.solvers import WholeStep, solve
from kinema.simulation.user_forces import before_end


@dataclass(frozen=True)
class Ended:
    """The end of a step.

    Attributes:
        v: Velocities in the axes at the start of the step; with impacts, in the axes at its end.
        impulse: Impulses of all rows.
        rows: Rows at the start of the step.
        q: Coordinates, if impacts within the step were resolved; None if they follow from v.
    """

    v: Ref
    impulse: Any
    rows: RowSet
    q: Ref | None = None


def constrain(
    rows: RowSet, free: FreeMotion, v_free: Ref, whole: Ref | None, time: Ref | None, options: StepOptions
) -> Ended:
    """Find the impulses of all rows: from one problem at the end of the step, or through impacts within it.

    Args:
        rows: Rows at the start of the step.
        free: The motion without impulses.
        v_free: Velocities at the end of the step without impulses.
        whole: As in `accelerate`.
        time: Time at the start of the step; None if no user force law reads it.
        options: Optional features of the step.
    """
    c, links, model = rows.constraints, rows.links, rows.constraints.model
    assert free.factors is not None
    step = WholeStep(links.v, v_free, free.a, whole, options.linearised)
    sweeps = rows.program.constant("sweeps", Int, model.contact.iterations)
    if not c.bounces:
        found = solve(hold(rows, free.prescribed), free.factors, v_free, sweeps, step=step)
        return Ended(found.v_end, found.impulse, rows)

    def again(there: Links, length: Ref) -> tuple[FreeMotion, Ref]:
        touch = None if model.contact.hard else detect(there, model, c.margin)
        now = None if time is None else before_end(there.program, time, c.dt, length)
        inertial, felt = inertial_forces(there, length, hard=True), free.applied.felt
        moved = free_motion(there, model, inertial, options.loaded, length, touch=touch, felt=felt, time=now)
        return moved, free_velocities(there, moved, length)

    summed = bool({"impulse", "limit_impulse", "joint_load"} & {*options.record})
    q, v, impulse = Impacts(rows, free, again, sweeps, summed).motion(v_free, step)
    return Ended(v, impulse, rows, q)
