"""Solvers of the complementarity problem in step programs, by name, and Newton's method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from kinema.contact.complementarity import articulated_newton
from kinema.contact.complementarity.impulses_from_motion import Trust, newton_impulses_again
from kinema.contact.complementarity.mass_scaling import (
    Scaled,
    scale_rows,
    scale_rows_adjoint,
    velocity_change,
    velocity_change_adjoint,
)
from kinema.contact.complementarity.newton import (
    Effort,
    Impulses,
    Problem,
    Report,
    newton_impulses,
)
from kinema.contact.complementarity.newton_adjoint import (
    Lists,
    Multipliers,
    Solved,
    newton_impulses_adjoint,
    newton_jacobian_adjoint,
    newton_rows_adjoint,
    newton_rows_of_jacobian,
    newton_systems,
)
from kinema.integrate.joints import mean_accelerations
from kinema.integrate.velocity_axes import velocities_in_first_axes
from kinema.lang import Float, Int, Kernel
from kinema.lang.programs.program import STATE, Ref
from kinema.scene.contact import NEWTON, PGS
from kinema.simulation.constraints import RowSet
from kinema.simulation.pgs import sweep
from kinema.simulation.tree_dynamics import ArticulatedFactors, Factors, MassFactors

# By itemsize of Float:
PRECISION = {8: 1e-13, 4: 1e-5}  # of the solver "newton", relative to the largest impulse
ACCEPTED = {8: 1e-12, 4: 5e-5}  # the same where rounding error prevents more
SINGULAR = {8: 1e-12, 4: 1e-5}  # smaller pivots are rounding error
SOFTER = {8: 1e-2, 4: 1e-2}  # regularisation after a failure, relative to the diagonal
HELD = {8: 1e-13, 4: 1e-6}  # the least regularisation that keeps impulses unique
YIELDING = {8: 0.0, 4: 1e-3}  # of solution paths
TRUSTED = {8: {"share": 1e-6, "noise": 1e-13}}  # impulses recovered from a known motion; float32 is too imprecise
MOST_AT_ONCE = 160  # rows whose factors all rows of a Jacobian share: they take n^2 numbers in each thread
EFFORT = {"largest": 400, "sweeps": 2, "steps": 8, "most": 600}  # of that solver


@dataclass(frozen=True)
class WholeStep:
    """What Newton's method may use of a step that ends with its impulses.

    Attributes:
        v: Velocities at the start of the step.
        v_free: Velocities at its end, without impulses.
        a: Accelerations without impulses.
        acceleration: Written by the adjoint: the acceleration of the whole step, including impulses; None if
            accelerations without impulses are needed.
        linearised: Whether lanes of the adjoint are rows of a Jacobian.
    """

    v: Ref
    v_free: Ref
    a: Ref
    acceleration: Ref | None
    linearised: bool


@dataclass(frozen=True)
class SolverInput:
    """Arguments of a solver.

    Attributes:
        rows, factors, Y, sweeps, step: As for `solve`.
        cone: 1 for the friction cone, 0 for the pyramid.
        z: Output, Y^T impulse.
        impulse: Output, the impulses of all rows.
    """

    rows: RowSet
    factors: MassFactors
    Y: Ref | None
    cone: Ref
    sweeps: Ref
    step: WholeStep | None
    z: Ref
    impulse: Ref


@dataclass(frozen=True)
class Solution:
    """Impulses of all rows, z = Y^T impulse, and the velocities after the impulses."""

    impulse: Ref
    z: Ref
    v_end: Ref


@dataclass(frozen=True)
class Kernels:
    """Kernels that read the factors of the mass matrix."""

    newton_impulses: Kernel
    newton_impulses_again: Kernel
    newton_impulses_adjoint: Kernel
    newton_rows_of_jacobian: Kernel
    newton_jacobian_adjoint: Kernel
    velocity_change: Kernel
    velocity_change_adjoint: Kernel


BY_FACTORS: dict[type, Kernels] = {
    Factors: Kernels(
        newton_impulses,
        newton_impulses_again,
        newton_impulses_adjoint,
        newton_rows_of_jacobian,
        newton_jacobian_adjoint,
        velocity_change,
        velocity_change_adjoint,
    ),
    ArticulatedFactors: Kernels(**{f.name: getattr(articulated_newton, f.name) for f in fields(Kernels)}),
}


def solve(
    rows: RowSet, factors: MassFactors, v: Ref, sweeps: Ref, *, Y: Ref | None = None, step: WholeStep | None = None
) -> Solution:
    """Impulses of all rows, and the velocities after them.

    Args:
        rows: The rows.
        factors: Factors of the mass matrix.
        v: Velocities without impulses.
        sweeps: Number of PGS iterations.
        Y: The scaled rows, see `scale`, if known; Newton's method computes its own.
        step: The step, if it may end with these impulses.
    """
    p, contact = rows.program, rows.constraints.model.contact
    cone, z = p.constant("cone", Int, int(contact.cone)), p.scratch("z", Float, rows.links.arrays.nv)
    impulse = p.scratch("impulse", Float, rows.constraints.rows)
    SOLVERS[contact.solver](SolverInput(rows, factors, Y, cone, sweeps, step, z, impulse))
    return Solution(impulse, z, _velocities_after(rows, factors, z, v, step))


def scale(rows: RowSet, factors: MassFactors) -> Ref:
    """Y = D^-1/2 L^-T J^T, row by row: J M^-1 J^T = Y Y^T."""
    p, size = rows.program, rows.constraints.rows * rows.constraints.wide
    scaled: Any = Scaled(H=p.scratch("H", Float, size), Y=p.scratch("Y", Float, size))
    known: Any = factors
    where = (rows.count, rows.constraints.supports, known)
    with p.custom() as node:
        p.call(scale_rows, *where, rows.J, scaled)
    with p.adjoint_of(node):
        p.call(scale_rows_adjoint, *where, scaled, scaled.adj, known.adj, rows.J.adj)
    return scaled.Y


def _velocities_after(rows: RowSet, factors: MassFactors, z: Ref, v: Ref, step: WholeStep | None) -> Ref:
    """v + M^-1 J^T impulse."""
    p, by = rows.program, BY_FACTORS[type(factors)]
    dv, v_end = (p.scratch(n, Float, rows.links.arrays.nv) for n in ("dv", "v_after_impulses"))
    if step is None or step.acceleration is None:
        p.call(by.velocity_change, factors, z, v, dv, v_end)
        return v_end
    with p.custom() as node:
        p.call(by.velocity_change, factors, z, v, dv, v_end)
    with p.adjoint_of(node):
        p.call(mean_accelerations, step.a, v, v_end, rows.dt, step.acceleration)
        p.call(by.velocity_change_adjoint, factors, v_end.adj, z.adj, v.adj)
    return v_end


# -- Newton's method ---------------------------------------------------------------------------------------------------


def _newton(rows: RowSet, factors: MassFactors, cone: Ref, z: Ref, impulse: Ref, step: WholeStep | None) -> None:
    p, c, links, by = rows.program, rows.constraints, rows.links, BY_FACTORS[type(factors)]
    size = c.model.dtype.itemsize
    scaled = Scaled(**{n: p.scratch(f"newton_{n}", Float, c.rows * c.wide) for n in ("H", "Y")})
    limits = {
        "precision": PRECISION,
        "accepted": ACCEPTED,
        "singular": SINGULAR,
        "softer": SOFTER,
        "held": HELD,
        "yielding": YIELDING,
    }
    effort = Effort(
        **{name: p.constant(f"effort_{name}", Float, limit[size]) for name, limit in limits.items()},
        **{name: p.constant(f"effort_{name}", Int, number) for name, number in EFFORT.items()},
    )
    where = {"rows": rows.count, "supports": c.supports, "bounds": rows.bounds}
    problem: Any = Problem(**where, active=rows.active, cone=cone, J=rows.J, b=rows.b)
    found: Any = Impulses(impulse=impulse, z=z)
    known: Any = factors
    with p.custom() as node:
        names = {"residual": "residual", "unsolved_at": "unsolved_at", "iterations": "record_iterations"}
        report = Report(**{n: p.output(name, Float, 1) for n, name in names.items()})
        p.call(by.newton_impulses, problem, known, effort, scaled, found, report)
    if step is not None and step.v.buffer.kind == STATE and size in TRUSTED:
        v_end = p.scratch("v_known", Float, links.arrays.nv)
        trust = Trust(**{n: p.constant(f"trust_{n}", Float, x) for n, x in TRUSTED[size].items()})
        with p.again_of(node):
            p.call(velocities_in_first_axes, links.tree, step.v.next, rows.dt, v_end)
            p.call(by.newton_impulses_again, problem, known, effort, trust, step.v_free, v_end, scaled, found)
    with p.adjoint_of(node):
        fixed = c.model.constraints
        bounded = p.constant("bounded_rows", Int, c.singles - len(fixed.stop_names) - len(fixed.limit_names))
        sizes = {"exact": c.rows, "u": c.rows, "pull": links.arrays.nv}
        multipliers = Multipliers(**{n: p.scratch(f"solution_{n}", Float, count) for n, count in sizes.items()})
        pulled: Any = (found.adj, multipliers, problem.adj)
        if step is not None and step.linearised and c.rows <= MOST_AT_ONCE:
            kept = _kept_systems(rows)
            p.call(newton_systems, problem, effort.singular, scaled, found, *kept)
            p.call(by.newton_rows_of_jacobian, problem, known, bounded, scaled, found, *kept, *pulled)
        else:
            p.call(by.newton_impulses_adjoint, problem, known, effort.singular, bounded, scaled, found, *pulled)
        at = (rows.count, c.supports, known)
        if step is None or step.acceleration is None:
            p.call(newton_rows_adjoint, *at, scaled, found, multipliers, known.adj, rows.J.adj)
        else:
            p.call(by.newton_jacobian_adjoint, *at, found, multipliers, rows.J.adj)


def _kept_systems(rows: RowSet) -> tuple[Any, ...]:
    """What rows of a Jacobian share: which blocks take part, lists of their rows, and their factors."""
    p, c = rows.program, rows.constraints

    def room(element: Any, /, **sizes: int) -> dict[str, Ref]:
        return {name: p.scratch(f"systems_{name}", element, size) for name, size in sizes.items()}

    n = c.rows
    lists = Lists(**room(Int, sizes=2, row=n, kind=n, begin=n + 1, matrix=n + 1))
    whole = room(Int, state=n, wanted=n, free=n) | room(Float, x=n, mu=n, turn=n, pivot=n, G=n * n)
    return room(Float, mine=n)["mine"], lists, Solved(**whole)


# -- the table ---------------------------------------------------------------------------------------------------------


def _pgs(x: SolverInput) -> None:
    sweep(x.rows, scale(x.rows, x.factors) if x.Y is None else x.Y, x.cone, x.sweeps, x.z, x.impulse)


SOLVERS: dict[str, Callable[[SolverInput], None]] = {
    NEWTON: lambda x: _newton(x.rows, x.factors, x.cone, x.z, x.impulse, x.step),
    PGS: _pgs,
}
"""Adds each solver to a program; `scene.contact.SOLVERS` lists its options."""
