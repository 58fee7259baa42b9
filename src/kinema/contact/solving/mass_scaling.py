"""Rows in the scale of the mass matrix: with M = L^T D L, Y = D^-1/2 L^-T J^T gives J M^-1 J^T = Y Y^T.

A row has entries along the branches of its two links, and so does its row of Y.
"""

from __future__ import annotations

from kinema.contact.solving.pgs import Rows, Supports
from kinema.kinematics.tree import Branches
from kinema.lang import Array, Float, func, kernel, local, shared


@func
def scale_row(branches, supports, here, at, L, root, J, H, Y):
    """The row that begins at `at`, with the support `here`; H = L^-T J^T on the way, root = D^-1/2."""
    begin, first, common = supports.begin[here], supports.first[here], supports.common[here]
    count = supports.count[here]
    for s in range(count):
        t = count - 1 - s
        depth, last = t, first  # along the first branch
        if t >= first:
            depth = t - first + common  # on the way to the second link alone
            last = count
        entry = J[at + t]
        for u in range(t + 1, last):
            entry = entry - L[branches.row[supports.dofs[begin + u]] + depth] * H[at + u]
        if t < common:
            for u in range(first, count):
                entry = entry - L[branches.row[supports.dofs[begin + u]] + depth] * H[at + u]
        H[at + t] = entry
        Y[at + t] = entry * root[supports.dofs[begin + t]]


@func
def scale_three(branches, supports, here, at, L, root, J, H, Y):
    """The same of three rows at once."""
    begin, first, common = supports.begin[here], supports.first[here], supports.common[here]
    count, wide = supports.count[here], supports.widest
    for s in range(count):
        t = count - 1 - s
        depth, last = t, first
        if t >= first:
            depth = t - first + common
            last = count
        x, y, z = J[at + t], J[at + wide + t], J[at + 2 * wide + t]
        for u in range(t + 1, last):
            factor = L[branches.row[supports.dofs[begin + u]] + depth]
            x = x - factor * H[at + u]
            y = y - factor * H[at + wide + u]
            z = z - factor * H[at + 2 * wide + u]
        if t < common:
            for u in range(first, count):
                factor = L[branches.row[supports.dofs[begin + u]] + depth]
                x = x - factor * H[at + u]
                y = y - factor * H[at + wide + u]
                z = z - factor * H[at + 2 * wide + u]
        H[at + t] = x
        H[at + wide + t] = y
        H[at + 2 * wide + t] = z
        scale = root[supports.dofs[begin + t]]
        Y[at + t] = x * scale
        Y[at + wide + t] = y * scale
        Y[at + 2 * wide + t] = z * scale


@func
def scale_row_back(branches, supports, here, at, L, root, H, Y_adj, from_, x, L_adj, root_adj, J_adj):
    """The cotangent of a row of J is L^-1 D^-1/2 times that of Y, found from the root on; x is room for that of H.

    from_: Where the cotangent of the row of Y begins.
    """
    begin, first, common = supports.begin[here], supports.first[here], supports.common[here]
    for t in range(supports.count[here]):
        d, depth = supports.dofs[begin + t], t if t < first else t - first + common
        row = branches.row[d]
        bend = depth if t < first else common  # up to there the entries above are the first of the support
        h, a = H[at + t], Y_adj[from_ + t] * root[d]
        root_adj[d] += Y_adj[from_ + t] * h
        for s in range(bend):
            a = a - L[row + s] * x[s]
            L_adj[row + s] -= h * x[s]
        for s in range(bend, depth):
            a = a - L[row + s] * x[first - common + s]
            L_adj[row + s] -= h * x[first - common + s]
        x[t] = a
        J_adj[at + t] += a


@func
def scale_three_back(branches, supports, here, at, L, root, H, Y_adj, from_, x, y, z, L_adj, root_adj, J_adj):
    """The same of three rows at once."""
    begin, first, common = supports.begin[here], supports.first[here], supports.common[here]
    wide = supports.widest
    for t in range(supports.count[here]):
        d, depth = supports.dofs[begin + t], t if t < first else t - first + common
        row, bend = branches.row[d], depth if t < first else common
        h0, h1, h2 = H[at + t], H[at + wide + t], H[at + 2 * wide + t]
        y0, y1, y2 = Y_adj[from_ + t], Y_adj[from_ + wide + t], Y_adj[from_ + 2 * wide + t]
        a0, a1, a2 = y0 * root[d], y1 * root[d], y2 * root[d]
        root_adj[d] += y0 * h0 + y1 * h1 + y2 * h2
        for s in range(bend):
            factor, x0, x1, x2 = L[row + s], x[s], y[s], z[s]
            a0, a1, a2 = a0 - factor * x0, a1 - factor * x1, a2 - factor * x2
            L_adj[row + s] -= h0 * x0 + h1 * x1 + h2 * x2
        for s in range(bend, depth):
            m = first - common + s
            factor, x0, x1, x2 = L[row + s], x[m], y[m], z[m]
            a0, a1, a2 = a0 - factor * x0, a1 - factor * x1, a2 - factor * x2
            L_adj[row + s] -= h0 * x0 + h1 * x1 + h2 * x2
        x[t], y[t], z[t] = a0, a1, a2
        J_adj[at + t] += a0
        J_adj[at + wide + t] += a1
        J_adj[at + 2 * wide + t] += a2


@kernel
def scale_rows(
    branches: Branches,
    supports: Supports,
    rows: Rows,
    L: Array[Float],
    root: Array[Float],
    J: Array[Float],
    H: Array[Float],
    Y: Array[Float],
):
    """All rows of Y; H = L^-T J^T on the way, root = D^-1/2."""
    for r in range(rows.singles):
        scale_row(branches, supports, shared(rows.support[r]), r * supports.widest, L, root, J, H, Y)
    for c in range(shared(rows.triples[0])):
        at = (rows.singles + 3 * c) * supports.widest
        scale_three(branches, supports, shared(rows.support[rows.singles + c]), at, L, root, J, H, Y)


@kernel
def scale_rows_adjoint(
    branches: Branches,
    supports: Supports,
    rows: Rows,
    L: Array[Float],
    root: Array[Float],
    H: Array[Float],
    Y_adj: Array[Float],
    L_adj: Array[Float],
    root_adj: Array[Float],
    J_adj: Array[Float],
):
    """The same in reverse.

    What the compiler makes of `scale_rows` adds to each of these numbers many times in memory: three times slower.
    """
    wide = supports.widest
    x, y, z = local(Float, wide), local(Float, wide), local(Float, wide)
    for r in range(rows.singles):
        at = r * wide
        scale_row_back(
            branches, supports, shared(rows.support[r]), at, L, root, H, Y_adj, at, x, L_adj, root_adj, J_adj
        )
    for c in range(shared(rows.triples[0])):
        here, at = shared(rows.support[rows.singles + c]), (rows.singles + 3 * c) * wide
        scale_three_back(branches, supports, here, at, L, root, H, Y_adj, at, x, y, z, L_adj, root_adj, J_adj)


@func
def velocities_from(branches, L, root, z, dv):
    """dv = L^-1 D^-1/2 z: what impulses with z = Y^T impulse do to velocities."""
    for i in range(len(branches.row)):
        begin = branches.row[i]
        found = z[i] * root[i]
        for t in range(branches.depth[i]):
            found = found - L[begin + t] * dv[branches.above[begin + t]]
        dv[i] = found


@kernel
def velocity_change(
    branches: Branches,
    L: Array[Float],
    root: Array[Float],
    z: Array[Float],
    v_free: Array[Float],
    dv: Array[Float],
    v_end: Array[Float],
):
    """v_end = v_free + L^-1 D^-1/2 z: the velocities after impulses with z = Y^T impulse."""
    for i in range(len(branches.row)):
        begin = branches.row[i]
        found = z[i] * root[i]
        for t in range(branches.depth[i]):
            found = found - L[begin + t] * dv[branches.above[begin + t]]
        dv[i] = found
        v_end[i] = v_free[i] + found


@kernel
def velocity_change_adjoint(
    branches: Branches,
    L: Array[Float],
    root: Array[Float],
    v_end_adj: Array[Float],
    z_adj: Array[Float],
    v_free_adj: Array[Float],
):
    """Cotangents of z and v_free, where those of the mass matrix come from the whole motion."""
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
            rest[above] = rest[above] - L[begin + t] * rest[i]
        z_adj[i] += rest[i] * root[i]
