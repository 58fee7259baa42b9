"""Constraint rows scaled by the mass matrix: with M = L^T D L, Y = D^-1/2 L^-T J^T gives J M^-1 J^T = Y Y^T.

A row has entries along the branches of its two links; the corresponding row of Y has the same sparsity.
"""

from __future__ import annotations

from kinema.contact.complementarity.pgs import Rows, Supports
from kinema.kinematics.factors import Factors, three_of
from kinema.lang import Array, Float, dot, func, kernel, local, record, shared, vec3


@record
class Scaled:
    """Constraint rows scaled by the mass matrix.

    H: L^-T J^T, an intermediate result.
    Y: D^-1/2 L^-T J^T.
    """

    H: Array[Float]
    Y: Array[Float]


@func
def scale_row_adjoint(supports, here, at, factors, H, Y_adj, from_, x, factors_adj, J_adj):
    """Adjoint of `Factors.scale_row`: J_adj += L^-1 D^-1/2 Y_adj by forward substitution, from the root on.

    from_: Offset of the row's cotangent in Y_adj.
    x: Workspace: the cotangent of the row of H.
    """
    begin, first, common = supports.begin[here], supports.first[here], supports.common[here]
    L = factors.L
    for t in range(supports.count[here]):
        d, depth = supports.dofs[begin + t], t if t < first else t - first + common
        row = factors.branches.row[d]
        bend = depth if t < first else common  # up to here the ancestors are the first entries of the support
        h, a = H[at + t], Y_adj[from_ + t] * factors.root[d]
        factors_adj.root[d] += Y_adj[from_ + t] * h
        for s in range(bend):
            a = a - L[row + s] * x[s]
            factors_adj.L[row + s] -= h * x[s]
        for s in range(bend, depth):
            a = a - L[row + s] * x[first - common + s]
            factors_adj.L[row + s] -= h * x[first - common + s]
        x[t] = a
        J_adj[at + t] += a


@func
def scale_three_adjoint(supports, here, at, factors, H, Y_adj, from_, x, factors_adj, J_adj):
    """`scale_row_adjoint` of three rows at once."""
    begin, first, common = supports.begin[here], supports.first[here], supports.common[here]
    L, wide = factors.L, supports.widest
    for t in range(supports.count[here]):
        d, depth = supports.dofs[begin + t], t if t < first else t - first + common
        row, bend = factors.branches.row[d], depth if t < first else common
        h, y = three_of(H, at + t, wide), three_of(Y_adj, from_ + t, wide)
        a = y * factors.root[d]
        factors_adj.root[d] += dot(y, h)
        for s in range(bend):
            before = x[s]
            a = a - L[row + s] * before
            factors_adj.L[row + s] -= dot(h, before)
        for s in range(bend, depth):
            before = x[first - common + s]
            a = a - L[row + s] * before
            factors_adj.L[row + s] -= dot(h, before)
        x[t] = a
        J_adj[at + t] += a.x
        J_adj[at + t + wide] += a.y
        J_adj[at + t + 2 * wide] += a.z


@kernel
def scale_rows(rows: Rows, supports: Supports, factors: Factors, J: Array[Float], scaled: Scaled):
    """Compute all rows of H and Y."""
    for r in range(rows.singles):
        factors.scale_row(supports, shared(rows.support[r]), r * supports.widest, J, scaled)
    for c in range(shared(rows.triples[0])):
        at = (rows.singles + 3 * c) * supports.widest
        factors.scale_three(supports, shared(rows.support[rows.singles + c]), at, J, scaled)


@kernel
def scale_rows_adjoint(
    rows: Rows,
    supports: Supports,
    factors: Factors,
    scaled: Scaled,
    scaled_adj: Scaled.adj,
    factors_adj: Factors.adj,
    J_adj: Array[Float],
):
    """Adjoint of `scale_rows`.

    Written by hand: the generated adjoint accumulates every entry in memory many times and is three times slower.
    """
    wide, H, Y_adj = supports.widest, scaled.H, scaled_adj.Y
    x, xs = local(Float, wide), local(vec3, wide)
    for r in range(rows.singles):
        here, at = shared(rows.support[r]), r * wide
        scale_row_adjoint(supports, here, at, factors, H, Y_adj, at, x, factors_adj, J_adj)
    for c in range(shared(rows.triples[0])):
        here, at = shared(rows.support[rows.singles + c]), (rows.singles + 3 * c) * wide
        scale_three_adjoint(supports, here, at, factors, H, Y_adj, at, xs, factors_adj, J_adj)


@kernel
def velocity_change(factors: Factors, z: Array[Float], v_free: Array[Float], dv: Array[Float], v_end: Array[Float]):
    """v_end = v_free + L^-1 D^-1/2 z: the velocities after impulses with z = Y^T impulse."""
    for i in range(len(factors.branches.row)):
        found = factors.velocity_from(i, z, dv)
        dv[i] = found
        v_end[i] = v_free[i] + found


@kernel
def velocity_change_adjoint(factors: Factors, v_end_adj: Array[Float], z_adj: Array[Float], v_free_adj: Array[Float]):
    """Cotangents of z and v_free alone; the adjoint of the whole motion computes the cotangents of the mass matrix."""
    branches = factors.branches
    dofs = len(branches.row)
    rest = local(Float, dofs)
    for i in range(dofs):
        rest[i] = v_end_adj[i]
        v_free_adj[i] += v_end_adj[i]
    for j in range(dofs):
        i = dofs - 1 - j
        begin = branches.row[i]
        for t in range(branches.depth[i]):
            above = branches.above[begin + t]
            rest[above] = rest[above] - factors.L[begin + t] * rest[i]
        z_adj[i] += rest[i] * factors.root[i]
