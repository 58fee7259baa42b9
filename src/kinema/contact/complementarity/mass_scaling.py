"""Constraint rows scaled by the mass matrix: with M = L^T D L, Y = D^-1/2 L^-T J^T gives J M^-1 J^T = Y Y^T.

A row has entries along the branches of its two links; the corresponding row of Y has the same sparsity.
"""

from __future__ import annotations

from kinema.contact.complementarity.pgs import Rows, Supports
from kinema.kinematics.tree import Factors
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
def three_of(x, at, wide):
    """Load one column of three consecutive rows."""
    return vec3(x[at], x[at + wide], x[at + 2 * wide])


@func
def put_three(x, at, wide, value: vec3):
    """Store one column of three consecutive rows."""
    x[at] = value.x
    x[at + wide] = value.y
    x[at + 2 * wide] = value.z


@func
def scale_row(supports, here, at, factors, J, scaled):
    """Scale the row at offset `at` with support `here`: H = L^-T J^T by back substitution, last entry first."""
    begin, first, common = supports.begin[here], supports.first[here], supports.common[here]
    row, L, H, count = factors.branches.row, factors.L, scaled.H, supports.count[here]
    for s in range(count):
        t = count - 1 - s
        depth, last = t, first  # along the first branch
        if t >= first:
            depth = t - first + common  # on the branch of the second link alone
            last = count
        entry = J[at + t]
        for u in range(t + 1, last):
            entry = entry - L[row[supports.dofs[begin + u]] + depth] * H[at + u]
        if t < common:
            for u in range(first, count):
                entry = entry - L[row[supports.dofs[begin + u]] + depth] * H[at + u]
        H[at + t] = entry
        scaled.Y[at + t] = entry * factors.root[supports.dofs[begin + t]]


@func
def scale_row_adjoint(supports, here, at, factors, H, Y_adj, from_, x, factors_adj, J_adj):
    """Adjoint of `scale_row`: J_adj += L^-1 D^-1/2 Y_adj by forward substitution, from the root on.

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
def scale_three(supports, here, at, factors, J, scaled):
    """`scale_row` of three rows at once."""
    begin, first, common = supports.begin[here], supports.first[here], supports.common[here]
    row, L, H, count, wide = factors.branches.row, factors.L, scaled.H, supports.count[here], supports.widest
    for s in range(count):
        t = count - 1 - s
        depth, last = t, first
        if t >= first:
            depth = t - first + common
            last = count
        entry = three_of(J, at + t, wide)
        for u in range(t + 1, last):
            entry = entry - L[row[supports.dofs[begin + u]] + depth] * three_of(H, at + u, wide)
        if t < common:
            for u in range(first, count):
                entry = entry - L[row[supports.dofs[begin + u]] + depth] * three_of(H, at + u, wide)
        put_three(H, at + t, wide, entry)
        put_three(scaled.Y, at + t, wide, entry * factors.root[supports.dofs[begin + t]])


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
        scale_row(supports, shared(rows.support[r]), r * supports.widest, factors, J, scaled)
    for c in range(shared(rows.triples[0])):
        at = (rows.singles + 3 * c) * supports.widest
        scale_three(supports, shared(rows.support[rows.singles + c]), at, factors, J, scaled)


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


@func
def velocity_from(factors, i, z, dv):
    """Entry i of dv = L^-1 D^-1/2 z, from the entries of its ancestors."""
    branches = factors.branches
    begin = branches.row[i]
    found = z[i] * factors.root[i]
    for t in range(branches.depth[i]):
        found = found - factors.L[begin + t] * dv[branches.above[begin + t]]
    return found


@func
def velocities_from(factors, z, dv):
    """dv = L^-1 D^-1/2 z: the velocity change due to impulses with z = Y^T impulse."""
    for i in range(len(factors.branches.row)):
        dv[i] = velocity_from(factors, i, z, dv)


@kernel
def velocity_change(factors: Factors, z: Array[Float], v_free: Array[Float], dv: Array[Float], v_end: Array[Float]):
    """v_end = v_free + L^-1 D^-1/2 z: the velocities after impulses with z = Y^T impulse."""
    for i in range(len(factors.branches.row)):
        found = velocity_from(factors, i, z, dv)
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
