"""Projected Gauss-Seidel (PGS) in step programs: on the Delassus matrix for few rows, else matrix-free."""

from __future__ import annotations

from typing import Any

import numpy as np

from kinema.contact.complementarity.pgs import Gram, gauss_seidel, gram, impulse_sums, relax
from kinema.contact.complementarity.pgs_dense import (
    Groups,
    Matches,
    dense_gauss_seidel,
    dense_gauss_seidel_adjoint,
    dense_gauss_seidel_history,
    row_matrix,
)
from kinema.contact.complementarity.pgs_warm_start import recall_impulses
from kinema.contact.complementarity.residual import residual
from kinema.dynamics.report import report_contact_impulses, report_impulses
from kinema.lang import Float, Int
from kinema.lang.programs.program import Ref
from kinema.model.arrays import CONTACT_IMPULSES, FIXED_IMPULSES
from kinema.model.constraints import group_tables, shared_dofs
from kinema.simulation.constraints import RowSet


def sweep(rows: RowSet, Y: Ref, cone: Ref, sweeps: Ref, z: Ref, impulse: Ref) -> None:
    """Impulses of all rows after a number of PGS iterations, z = Y^T impulse, and the residual.

    Args:
        rows: The rows.
        Y: The rows scaled by the mass matrix, see `solvers.scale`.
        cone: 1 for the friction cone, 0 for the pyramid.
        sweeps: Number of iterations.
        z: Output.
        impulse: Output.
    """
    p, c = rows.program, rows.constraints
    inverse = p.scratch("inverse", Float, c.rows)
    if c.dense:
        _over_matrix(rows, Y, inverse, sweeps, impulse)
        p.call(impulse_sums, rows.count, c.supports, Y, impulse, z)
    else:
        _over_entries(rows, Y, inverse, cone, sweeps, z, impulse)
    found = (Y, rows.b, z, impulse, *(p.output(n, Float, 1) for n in ("residual", "unsolved_at")))
    with p.custom() as node:  # the residual has no derivative
        p.call(residual, rows.count, c.supports, rows.bounds, inverse, cone, *found)
    with p.adjoint_of(node):
        pass


def _history(rows: RowSet) -> Ref:
    """Impulses of all iterations."""
    iterations = rows.constraints.model.contact.iterations + 1
    return rows.program.scratch("history", Float, iterations * rows.constraints.rows)


def _relaxed(rows: RowSet, inverse: Ref) -> Ref:
    """Inverses of the diagonal times the over-relaxation factor per row."""
    p, relaxation = rows.program, rows.constraints.model.contact.relaxation
    if relaxation == (1.0, 1.0):
        return inverse
    relaxed = p.scratch("relaxed", Float, rows.constraints.rows)
    p.call(relax, rows.count, p.constant("relaxation", Float, np.array(relaxation)), inverse, relaxed)
    return relaxed


# -- matrix-free -------------------------------------------------------------------------------------------------------


def _over_entries(rows: RowSet, Y: Ref, inverse: Ref, cone: Ref, sweeps: Ref, z: Ref, impulse: Ref) -> None:
    p, c, contact, history = rows.program, rows.constraints, rows.constraints.model.contact, _history(rows)
    kept = {n: p.state(n, Float, k) for n, k in c.model.kept_impulses.items()} if c.starts else {}
    start = _start(rows, kept)
    cross = p.scratch("cross", Float, max(3 * c.triples, 1))
    p.call(gram, rows.count, c.supports, c.cfm, rows.active, cone, Y, inverse, cross)
    blocks: Any = Gram(inverse=_relaxed(rows, inverse), cross=cross)
    problem = (rows.count, c.supports, rows.bounds, blocks, cone, sweeps)
    forward, reverse = gauss_seidel(stops=c.starts and contact.tolerance > 0)
    tolerance, done = p.constant("tolerance", Float, contact.tolerance), p.scratch("done", Int, 1)
    iterations = p.output("record_iterations", Float, 1) if c.starts else p.scratch("iterations", Float, 1)
    with p.custom() as node:
        outs = (history, z, impulse, done, iterations)
        p.call(forward, *problem, tolerance, Y, rows.b, start, *outs)
    with p.adjoint_of(node):
        inputs = (Y, rows.b, start, blocks.inverse, blocks.cross, rows.lower, rows.upper, rows.mu, c.cfm)
        given = (*problem, Y, rows.b, start, history, z, done, z.adj, impulse.adj)
        p.call(reverse, *given, *(x.adj for x in inputs))
    if FIXED_IMPULSES in kept:
        p.call(report_impulses, impulse, p.constant("fixed_start", Int, 0), kept[FIXED_IMPULSES].next)
    if CONTACT_IMPULSES in kept:
        first = p.constant("contact_start", Int, c.singles + 3 * c.equations)
        where = (first, rows.count.triples, rows.count.equations, rows.surface)
        p.call(report_contact_impulses, impulse, *where, kept[CONTACT_IMPULSES].next)


def _start(rows: RowSet, kept: dict[str, Ref]) -> Ref:
    """Impulses before the first iteration: a state, from the last step (warm start), or zero."""
    p, c = rows.program, rows.constraints
    start, first = p.scratch("start", Float, c.rows), c.singles + 3 * c.equations
    zero = p.constant("no_impulse", Float, np.zeros(max(first, 3 * c.candidates)))
    before = (kept.get(FIXED_IMPULSES, zero), kept.get(CONTACT_IMPULSES, zero))
    p.call(recall_impulses, rows.count, rows.surface, rows.active, *before, start)
    return start


# -- on the Delassus matrix --------------------------------------------------------------------------------------------


def _over_matrix(rows: RowSet, Y: Ref, inverse: Ref, sweeps: Ref, impulse: Ref) -> None:
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
        more = (*room, ("sum", (contact.iterations + 1) * most), ("product", most * most))
        own = (p.scratch(f"reverse_{n}", Float, size) for n, size in more)
        p.call(dense_gauss_seidel_adjoint, *problem, history, impulse.adj, *own, *(x.adj for x in inputs))
