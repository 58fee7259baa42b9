"""Solvers of the complementarity problem in step programs: Newton's method and projected Gauss-Seidel (PGS)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kinema.contact.solving.mass_scaling import (
    Scaled,
    scale_rows,
    scale_rows_adjoint,
    velocity_change,
    velocity_change_adjoint,
)
from kinema.contact.solving.newton import (
    Effort,
    Impulses,
    Multipliers,
    Problem,
    Report,
    newton_impulses,
    newton_impulses_adjoint,
    newton_jacobian_adjoint,
    newton_rows_adjoint,
)
from kinema.contact.solving.newton_replay import Trust, newton_impulses_again
from kinema.contact.solving.pgs import Gram, gauss_seidel, gauss_seidel_adjoint, gram, impulse_sums, relax, residual
from kinema.contact.solving.pgs_dense import (
    Groups,
    Matches,
    dense_gauss_seidel,
    dense_gauss_seidel_adjoint,
    dense_gauss_seidel_history,
    row_matrix,
)
from kinema.contact.solving.pgs_warm_start import recall_impulses, started_gauss_seidel, started_gauss_seidel_adjoint
from kinema.dynamics.report import report_impulses, report_numbers
from kinema.integrate.joints import mean_accelerations
from kinema.integrate.rewind import velocities_in_first_axes
from kinema.lang import Float, Int
from kinema.lang.programs.program import STATE, Ref
from kinema.model.arrays import CONTACT_IMPULSES, FIXED_IMPULSES
from kinema.model.constraints import group_tables, shared_dofs
from kinema.scene.scene import NEWTON
from kinema.simulation.constraints import RowSet
from kinema.simulation.tree_dynamics import Factors

# By the bytes of a Float:
PRECISION = {8: 1e-13, 4: 1e-5}  # of the solver "newton", as a share of the largest impulse
ACCEPTED = {8: 1e-12, 4: 5e-5}  # the same where round-off allows no more
SINGULAR = {8: 1e-12, 4: 1e-5}  # pivots below these are round-off
SOFTER = {8: 1e-2, 4: 1e-2}  # after a failure, as a share of diagonals
HELD = {8: 1e-13, 4: 1e-6}  # the least softness that holds impulses
YIELDING = {8: 0.0, 4: 1e-4}  # of paths of solutions
TRUSTED = {8: {"share": 1e-6, "noise": 1e-13}}  # impulses that a known motion tells; in float32 it tells too little
EFFORT = {"sweeps": 2, "steps": 8, "most": 600}  # of that solver


@dataclass(frozen=True)
class WholeStep:
    """What Newton's method may know of a step that its impulses end.

    Attributes:
        v: Velocities at its start.
        v_free: At its end, without impulses.
        a: Accelerations without impulses.
        acceleration: Is filled by the adjoint with the acceleration of the whole step, impulses included; None if
            somebody asks for accelerations without impulses.
    """

    v: Ref
    v_free: Ref
    a: Ref
    acceleration: Ref | None


@dataclass(frozen=True)
class Solution:
    """Impulses of all rows, z = Y^T impulse, and the velocities after them."""

    impulse: Ref
    z: Ref
    v_end: Ref


def solve(
    rows: RowSet, factors: Factors, v: Ref, sweeps: Ref, *, Y: Ref | None = None, step: WholeStep | None = None
) -> Solution:
    """Impulses of all rows, and velocities after them.

    Args:
        rows: The rows.
        factors: Of the mass matrix.
        v: Velocities without impulses.
        sweeps: Number of PGS iterations.
        Y: The rows in the scale of the mass matrix, if they are known; Newton's method scales rows itself.
        step: If the step may end with these impulses.
    """
    p, contact = rows.program, rows.constraints.model.contact
    cone, z = p.constant("cone", Int, int(contact.cone)), p.scratch("z", Float, rows.links.arrays.nv)
    impulse = p.scratch("impulse", Float, rows.constraints.rows)
    if contact.solver == NEWTON:
        _newton(rows, factors, cone, z, impulse, step)
    else:
        _pgs(rows, scale(rows, factors) if Y is None else Y, cone, sweeps, z, impulse)
    return Solution(impulse, z, _velocities_after(rows, factors, z, v, step))


def scale(rows: RowSet, factors: Factors) -> Ref:
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


def _velocities_after(rows: RowSet, factors: Factors, z: Ref, v: Ref, step: WholeStep | None) -> Ref:
    """v + M^-1 J^T impulse."""
    p = rows.program
    dv, v_end = (p.scratch(n, Float, rows.links.arrays.nv) for n in ("dv", "v_after_impulses"))
    if step is None or step.acceleration is None:
        p.call(velocity_change, factors, z, v, dv, v_end)
        return v_end
    with p.custom() as node:
        p.call(velocity_change, factors, z, v, dv, v_end)
    with p.adjoint_of(node):
        p.call(mean_accelerations, step.a, v, v_end, rows.dt, step.acceleration)
        p.call(velocity_change_adjoint, factors, v_end.adj, z.adj, v.adj)
    return v_end


# -- Newton's method ---------------------------------------------------------------------------------------------------


def _newton(rows: RowSet, factors: Factors, cone: Ref, z: Ref, impulse: Ref, step: WholeStep | None) -> None:
    p, c, links = rows.program, rows.constraints, rows.links
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
        p.call(newton_impulses, problem, known, effort, scaled, found, report)
    if step is not None and step.v.buffer.kind == STATE and size in TRUSTED:
        v_end = p.scratch("v_known", Float, links.arrays.nv)
        trust = Trust(**{n: p.constant(f"trust_{n}", Float, x) for n, x in TRUSTED[size].items()})
        with p.again_of(node):
            p.call(velocities_in_first_axes, links.tree, step.v.next, rows.dt, v_end)
            p.call(newton_impulses_again, problem, known, effort, trust, step.v_free, v_end, scaled, found)
    with p.adjoint_of(node):
        bounded = p.constant("bounded_rows", Int, c.singles - len(c.model.constraints.limit_names))
        sizes = {"exact": c.rows, "u": c.rows, "pull": links.arrays.nv}
        multipliers = Multipliers(**{n: p.scratch(f"solution_{n}", Float, count) for n, count in sizes.items()})
        given = (problem, known, effort.singular, bounded, scaled, found)
        p.call(newton_impulses_adjoint, *given, found.adj, multipliers, problem.adj)
        at = (rows.count, c.supports, known)
        if step is None or step.acceleration is None:
            p.call(newton_rows_adjoint, *at, scaled, found, multipliers, known.adj, rows.J.adj)
        else:
            p.call(newton_jacobian_adjoint, *at, found, multipliers, rows.J.adj)


# -- projected Gauss-Seidel --------------------------------------------------------------------------------------------


def _pgs(rows: RowSet, Y: Ref, cone: Ref, sweeps: Ref, z: Ref, impulse: Ref) -> None:
    p, c = rows.program, rows.constraints
    inverse = p.scratch("inverse", Float, c.rows)
    if c.starts:
        _pgs_warm_start(rows, Y, inverse, cone, sweeps, z, impulse)
    elif c.dense:
        _pgs_dense(rows, Y, inverse, sweeps, impulse)
        p.call(impulse_sums, rows.count, c.supports, Y, impulse, z)
    else:
        _pgs_sparse(rows, Y, inverse, cone, sweeps, z, impulse)
    found = (Y, rows.b, z, impulse, *(p.output(n, Float, 1) for n in ("residual", "unsolved_at")))
    with p.custom() as node:  # it says how good the impulses are, and has no derivative
        p.call(residual, rows.count, c.supports, rows.bounds, inverse, cone, *found)
    with p.adjoint_of(node):
        pass


def _history(rows: RowSet) -> Ref:
    """Impulses of all iterations."""
    iterations = rows.constraints.model.contact.iterations + 1
    return rows.program.scratch("history", Float, iterations * rows.constraints.rows)


def _relaxed(rows: RowSet, inverse: Ref) -> Ref:
    """Over-relaxation factor per row."""
    p, relaxation = rows.program, rows.constraints.model.contact.relaxation
    if relaxation == (1.0, 1.0):
        return inverse
    relaxed = p.scratch("relaxed", Float, rows.constraints.rows)
    p.call(relax, rows.count, p.constant("relaxation", Float, np.array(relaxation)), inverse, relaxed)
    return relaxed


def _gram(rows: RowSet, Y: Ref, inverse: Ref, cone: Ref) -> Gram:
    """Blocks of the Delassus matrix on its diagonal."""
    p, c = rows.program, rows.constraints
    cross = p.scratch("cross", Float, max(3 * c.triples, 1))
    p.call(gram, rows.count, c.supports, c.cfm, rows.active, cone, Y, inverse, cross)
    return Gram(inverse=_relaxed(rows, inverse), cross=cross)


def _pgs_sparse(rows: RowSet, Y: Ref, inverse: Ref, cone: Ref, sweeps: Ref, z: Ref, impulse: Ref) -> None:
    p, c, history = rows.program, rows.constraints, _history(rows)
    blocks: Any = _gram(rows, Y, inverse, cone)
    problem = (rows.count, c.supports, rows.bounds, blocks, cone, sweeps)
    with p.custom() as node:
        p.call(gauss_seidel, *problem, Y, rows.b, history, z, impulse)
    with p.adjoint_of(node):
        inputs = (Y, rows.b, blocks.inverse, blocks.cross, rows.lower, rows.upper, rows.mu, c.cfm)
        given = (*problem, Y, rows.b, history, z, z.adj, impulse.adj)
        p.call(gauss_seidel_adjoint, *given, *(x.adj for x in inputs))


def _pgs_warm_start(rows: RowSet, Y: Ref, inverse: Ref, cone: Ref, sweeps: Ref, z: Ref, impulse: Ref) -> None:
    p, c, contact, history = rows.program, rows.constraints, rows.constraints.model.contact, _history(rows)
    kept = {n: p.state(n, Float, k) for n, k in c.model.kept_impulses.items()} if contact.warm_start else {}
    start = _start(rows, kept)
    blocks: Any = _gram(rows, Y, inverse, cone)
    problem = (rows.count, c.supports, rows.bounds, blocks, cone)
    tolerance, done = p.constant("tolerance", Float, contact.tolerance), p.scratch("done", Int, 1)
    with p.custom() as node:
        outs = (history, z, impulse, done, p.output("record_iterations", Float, 1))
        p.call(started_gauss_seidel, *problem, sweeps, tolerance, Y, rows.b, start, *outs)
    with p.adjoint_of(node):
        inputs = (Y, rows.b, start, blocks.inverse, blocks.cross, rows.lower, rows.upper, rows.mu, c.cfm)
        given = (*problem, Y, rows.b, start, history, z, done, z.adj, impulse.adj)
        p.call(started_gauss_seidel_adjoint, *given, *(x.adj for x in inputs))
    if FIXED_IMPULSES in kept:
        p.call(report_numbers, impulse, p.constant("fixed_start", Int, 0), kept[FIXED_IMPULSES].next)
    if CONTACT_IMPULSES in kept:
        first = p.constant("contact_start", Int, c.singles + 3 * c.equations)
        where = (first, rows.count.triples, rows.count.equations, rows.surface)
        p.call(report_impulses, impulse, *where, kept[CONTACT_IMPULSES].next)


def _start(rows: RowSet, kept: dict[str, Ref]) -> Ref:
    """The impulses to start from: those of the last step, which are state, or zero."""
    p, c = rows.program, rows.constraints
    start, first = p.scratch("start", Float, c.rows), c.singles + 3 * c.equations
    zero = p.constant("no_impulse", Float, np.zeros(max(first, 3 * c.candidates)))
    before = (kept.get(FIXED_IMPULSES, zero), kept.get(CONTACT_IMPULSES, zero))
    p.call(recall_impulses, rows.count, rows.surface, rows.active, *before, start)
    return start


def _pgs_dense(rows: RowSet, Y: Ref, inverse: Ref, sweeps: Ref, impulse: Ref) -> None:
    p, c, contact, history = rows.program, rows.constraints, rows.constraints.model.contact, _history(rows)
    table = group_tables(c.groups, c.singles, c.equations)
    groups = Groups(**{n: c.ints(f"group_{n}", x) for n, x in table.items()})
    A = p.scratch("row_matrix", Float, int((np.diff(table["start"]) ** 2).sum()))
    shared = shared_dofs([c.lists[s] for s in (*c.of_fixed, *c.of_candidate)], c.groups)
    matches = Matches(**{n: c.ints(f"match_{n}", x) for n, x in shared.items()})
    p.call(row_matrix, rows.count, groups, matches, c.supports.widest, c.cfm, rows.active, Y, A, inverse)
    relaxed = _relaxed(rows, inverse)
    rest = p.constant("kept_share", Float, 1.0 - np.array(contact.relaxation))
    problem = (rows.count, groups, rows.bounds, sweeps, rest, A, relaxed)
    most = int(table["largest"])
    room = (("single", max(int(table["singles"].max()) * most, 1)), ("triple", most * most))
    with p.custom() as node:
        turned = [p.scratch(n, Float, size) for n, size in room]
        p.call(dense_gauss_seidel, *problem, rows.b, *turned, impulse)
    with p.replay_of(node):
        p.call(dense_gauss_seidel_history, *problem, rows.b, *turned, history, impulse)
    with p.adjoint_of(node):
        inputs = (A, relaxed, rows.b, rows.lower, rows.upper, rows.mu)
        more = (*room, ("felt", (contact.iterations + 1) * most), ("product", most * most))
        own = (p.scratch(f"reverse_{n}", Float, size) for n, size in more)
        p.call(dense_gauss_seidel_adjoint, *problem, history, impulse.adj, *own, *(x.adj for x in inputs))
