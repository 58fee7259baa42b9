"""Projected Gauss-Seidel (PGS) on a dense Delassus matrix A = Y Y^T, for few rows, cold start, pyramid of friction.

The problem, the order of row updates and the clamps are the same as in `pgs`, whose equations this module cites; the
impulses of both differ by rounding error. This variant exists for speed. In `pgs` a row update passes over the entries
of its row twice, to read z and to change it, and waits for the previous update if both share a degree of freedom. Here
a row update is one dot product with the latest impulses,

    lambda_r' = clamp(sum of B_rj lambda_j - inverse_r b_r + (1 - relaxation) lambda_r),   B_rj = -inverse_r A_rj    (6)

over all j != r. B stores its columns in the order of the updates, so that B and the impulses are read sequentially. A
row of B is as long as its group has rows, which pays off for a few dozen rows, see `DENSE` in `simulation.constraints`.
In the adjoint, a row update is one dot product with a column of B; the cotangent of A is summed over all PGS iterations
at the end.

Rows that share no degree of freedom, directly or through other rows, are in different groups. Each group has its own
matrix.
"""

from __future__ import annotations

from kinema.contact.complementarity.pgs import Bounds, Rows, diagonal_inverse
from kinema.lang import (
    Array,
    Float,
    Int,
    abs,
    everywhere,
    func,
    kernel,
    local,
    mat33,
    max,
    min,
    outer,
    record,
    rows_of,
    transpose,
    vec3,
)

TOGETHER = 5  # PGS iterations between two checks of convergence


@record
class Groups:
    """Groups of rows, solved independently. A group lists its single rows, then its equations, then its contacts.

    start: Index of the first row of each group in this order; the last entry is the number of rows.
    singles, equations: Number of single rows and of equation triples of each group.
    matrix: Offset of the matrix of each group.
    row: Index of each listed row in `Rows`.
    largest: Number of rows of the largest group.
    """

    start: Array[Int]
    singles: Array[Int]
    equations: Array[Int]
    matrix: Array[Int]
    row: Array[Int]
    largest: Int


@record
class Matches:
    """Degrees of freedom that the supports of two blocks share.

    pairs: Offset of each group in `start`; blocks i and j <= i have the index i (i + 1) / 2 + j.
    start: Offset of the list of each pair; the last entry is the length of all lists.
    first, second: Positions of the shared degrees of freedom in the supports of i and of j.
    """

    pairs: Array[Int]
    start: Array[Int]
    first: Array[Int]
    second: Array[Int]


@func
def put_block(A, at, n, block: mat33):
    """Store a 3 x 3 block at offset `at` of a matrix whose rows have n entries."""
    x, y, z = rows_of(block)
    put_three(A, at, x)
    put_three(A, at + n, y)
    put_three(A, at + 2 * n, z)


@func
def put_three(A, at, x: vec3):
    """Store three consecutive entries at offset `at`."""
    A[at] = x.x
    A[at + 1] = x.y
    A[at + 2] = x.z


@kernel
def row_matrix(
    rows: Rows,
    groups: Groups,
    matches: Matches,
    widest: Int,
    cfm: Float,
    active: Array[Float],
    Y: Array[Float],
    A: Array[Float],
    inverse: Array[Float],
):
    """Form A = Y Y^T of each group and 1 / (A_rr + cfm) of each row; 0 for the normal rows of inactive contacts."""
    for g in range(len(groups.singles)):
        base, singles, whole, pairs = groups.start[g], groups.singles[g], groups.matrix[g], matches.pairs[g]
        n = groups.start[g + 1] - base
        # Single rows against the single rows before them.
        for i in range(singles):
            at = groups.row[base + i] * widest
            for j in range(i + 1):
                other, pair, entry = groups.row[base + j] * widest, pairs + i * (i + 1) // 2 + j, 0.0
                for m in range(matches.start[pair], matches.start[pair + 1]):
                    entry = entry + Y[at + matches.first[m]] * Y[other + matches.second[m]]
                A[whole + i * n + j] = entry
                if j < i:
                    A[whole + j * n + i] = entry
                else:
                    inverse[groups.row[base + i]] = diagonal_inverse(entry + cfm)
        # Triples: equations and contacts.
        for c in range((n - singles) // 3):
            r = singles + 3 * c
            number = groups.row[base + r]
            at, row, first = number * widest, whole + r * n, pairs + (singles + c) * (singles + c + 1) // 2
            # A triple against single rows: 3 x 1 blocks, and their transposes across the diagonal.
            for j in range(singles):
                other, pair, column = groups.row[base + j] * widest, first + j, vec3(0.0, 0.0, 0.0)
                for m in range(matches.start[pair], matches.start[pair + 1]):
                    y, t = Y[other + matches.second[m]], at + matches.first[m]
                    column = column + vec3(Y[t], Y[t + widest], Y[t + 2 * widest]) * y
                A[row + j] = column.x
                A[row + n + j] = column.y
                A[row + 2 * n + j] = column.z
                put_three(A, whole + j * n + r, column)
            # A triple against the triples before it and itself: 3 x 3 blocks.
            for e in range(c + 1):
                q = singles + 3 * e
                other, pair = groups.row[base + q] * widest, first + singles + e
                block = mat33(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
                for m in range(matches.start[pair], matches.start[pair + 1]):
                    t, u = at + matches.first[m], other + matches.second[m]
                    x = vec3(Y[t], Y[t + widest], Y[t + 2 * widest])
                    y = vec3(Y[u], Y[u + widest], Y[u + 2 * widest])
                    block = block + outer(x, y)
                put_block(A, row + q, n, block)
                # Off the diagonal the transpose; on the diagonal the inverses.
                if e < c:
                    put_block(A, whole + q * n + r, n, transpose(block))
                else:
                    pressing = 1.0
                    if c >= groups.equations[g]:
                        pressing = active[(number - rows.singles) // 3]
                    inverse[number] = pressing * diagonal_inverse(block[0, 0] + cfm)
                    inverse[number + 1] = diagonal_inverse(block[1, 1] + cfm)
                    inverse[number + 2] = diagonal_inverse(block[2, 2] + cfm)


@func
def turned(n, r, width, by_row, A, start, inverse, at, out):
    """Write rows r to r + width - 1 of B (6), or of its transpose if not `by_row`, in the order of the updates.

    A begins at `start`. The columns are rotated: first the column after these rows, then cyclically all others, last
    their own. Each column stores `width` entries, one per row.
    """
    for k in range(n):
        j = r + width + k if r + width + k < n else r + width + k - n
        for m in range(width):
            scale = inverse[r + m] if by_row else inverse[j]
            out[at + width * k + m] = -A[start + (r + m) * n + j] * scale


@func
def times_three(i, j, k, matrix, x, y, z, a0, a1, a2):
    """Add three columns of a triple, at offsets i, j and k, times x, y and z to the sums of its three rows."""
    a0 = a0 + matrix[i] * x + matrix[j] * y + matrix[k] * z
    a1 = a1 + matrix[i + 1] * x + matrix[j + 1] * y + matrix[k + 1] * z
    a2 = a2 + matrix[i + 2] * x + matrix[j + 2] * y + matrix[k + 2] * z
    return a0, a1, a2


@func
def times_all(count, at, matrix, start, x, a0, a1, a2):
    """Add `count` columns of a triple, at offset `at`, times x from `start` on to the sums of its three rows."""
    whole = count // 3
    for k in range(whole):
        t, i = start + 3 * k, at + 9 * k
        a0, a1, a2 = times_three(i, i + 3, i + 6, matrix, x[t], x[t + 1], x[t + 2], a0, a1, a2)
    for k in range(3 * whole, count):
        a0 = a0 + matrix[at + 3 * k] * x[start + k]
        a1 = a1 + matrix[at + 3 * k + 1] * x[start + k]
        a2 = a2 + matrix[at + 3 * k + 2] * x[start + k]
    return a0, a1, a2


@func
def rests(is_equation, rest):
    """1 - relaxation of the first row and of the other two rows of a triple; 0 for equations."""
    press, slide = rest[0], rest[1]
    if is_equation:
        press, slide = 0.0, 0.0
    return press, slide


@func
def prepare(rows, groups, bounds, g, A, inverse, b, single, triple, alone, diagonal, slip):
    """Prepare group g for (6): the rows of B, -inverse b and the coefficients of friction."""
    base, singles = groups.start[g], groups.singles[g]
    n = groups.start[g + 1] - base
    for i in range(n):
        diagonal[i] = inverse[groups.row[base + i]]
        alone[i] = -b[groups.row[base + i]] * diagonal[i]
    for i in range(singles):
        turned(n, i, 1, True, A, groups.matrix[g], diagonal, i * n, single)
    for c in range((n - singles) // 3):
        slip[c] = bounds.mu[(groups.row[base + singles + 3 * c] - rows.singles) // 3]
        turned(n, singles + 3 * c, 3, True, A, groups.matrix[g], diagonal, 3 * c * n, triple)


@func
def sweep(groups, bounds, g, rest, single, triple, alone, slip, x, old):
    """One PGS iteration: update all rows of group g.

    x holds the impulses before the iteration from `old` on and the new ones right after them. So the latest impulses of
    all other rows are consecutive: first the old ones of the later rows, then the new ones of the earlier rows.
    """
    base, singles = groups.start[g], groups.singles[g]
    n = groups.start[g + 1] - base
    new = old + n
    # Single rows: (6), clamped to their bounds.
    for i in range(singles):
        found, number = 0.0, groups.row[base + i]
        if bounds.upper[number] > bounds.lower[number]:
            found = alone[i]
            for k in range(n - 1):
                found = found + single[i * n + k] * x[old + i + 1 + k]
            found = max(min(found, bounds.upper[number]), bounds.lower[number])
        x[new + i] = found
    # Triples. The impulses p of the three rows before stay in registers: a load would have to wait for their store.
    near = 3 if n >= 6 else 0
    far = n - 3 - near
    p0, p1, p2 = 0.0, 0.0, 0.0
    for c in range((n - singles) // 3):
        r, at, own = singles + 3 * c, 3 * c * n, 3 * c * n + 3 * (n - 3)
        l0, l1, l2 = x[old + r], x[old + r + 1], x[old + r + 2]
        press, slide = rests(c < groups.equations[g], rest)
        # (6) of the three rows, with the old impulses of the later rows of the triple
        a0 = alone[r] + press * l0 + triple[own + 3] * l1 + triple[own + 6] * l2
        a1, a2 = alone[r + 1] + slide * l1 + triple[own + 7] * l2, alone[r + 2] + slide * l2
        # all other rows, the three rows before as the last ones
        a0, a1, a2 = times_all(far, at, triple, old + r + 3, x, a0, a1, a2)
        if near > 0:
            if c == 0:
                p0, p1, p2 = x[new + r - 3], x[new + r - 2], x[new + r - 1]
            i = at + 3 * far
            a0, a1, a2 = times_three(i, i + 3, i + 6, triple, p0, p1, p2, a0, a1, a2)
        # the new impulses of the earlier rows of the triple, then the clamps: friction within mu times the normal one
        if c < groups.equations[g]:
            p0 = a0
            p1 = a1 + triple[own + 1] * p0
            p2 = a2 + triple[own + 2] * p0 + triple[own + 5] * p1
        else:
            p0 = max(a0, 0.0)
            bound = slip[c] * p0
            p1 = max(min(a1 + triple[own + 1] * p0, bound), -bound)
            p2 = max(min(a2 + triple[own + 2] * p0 + triple[own + 5] * p1, bound), -bound)
        x[new + r] = p0
        x[new + r + 1] = p1
        x[new + r + 2] = p2


@kernel
def dense_gauss_seidel(
    rows: Rows,
    groups: Groups,
    bounds: Bounds,
    sweeps: Int,
    rest: Array[Float],
    A: Array[Float],
    inverse: Array[Float],
    b: Array[Float],
    single: Array[Float],
    triple: Array[Float],
    impulse: Array[Float],
):
    """Impulses after `sweeps` PGS iterations from zero; a group stops early once an iteration changes no impulse.

    rest: 1 - relaxation of normal rows and of friction rows.
    inverse: Relaxation / (A_rr + cfm) of every row.
    single, triple: Workspace: the rows of B of one group.
    """
    largest = groups.largest
    alone, diagonal, slip = local(Float, largest), local(Float, largest), local(Float, largest)
    latest = local(Float, (TOGETHER + 1) * largest)
    for g in range(len(groups.singles)):
        n = groups.start[g + 1] - groups.start[g]
        prepare(rows, groups, bounds, g, A, inverse, b, single, triple, alone, diagonal, slip)
        for i in range(n):
            latest[i] = 0.0
        # PGS iterations in blocks of TOGETHER; stop if the last iteration of a block changed no impulse.
        for part in range((sweeps + TOGETHER - 1) // TOGETHER):
            count = min(sweeps - TOGETHER * part, TOGETHER)
            for s in range(count):
                sweep(groups, bounds, g, rest, single, triple, alone, slip, latest, s * n)
            change = 0.0
            for i in range(n):
                last = latest[count * n + i]
                change = change + abs(last - latest[(count - 1) * n + i])
                latest[i] = last
            if everywhere(change == 0.0):
                break
        for i in range(n):
            impulse[groups.row[groups.start[g] + i]] = latest[i]


@kernel
def dense_gauss_seidel_history(
    rows: Rows,
    groups: Groups,
    bounds: Bounds,
    sweeps: Int,
    rest: Array[Float],
    A: Array[Float],
    inverse: Array[Float],
    b: Array[Float],
    single: Array[Float],
    triple: Array[Float],
    history: Array[Float],
    impulse: Array[Float],
):
    """`dense_gauss_seidel`, bit for bit, which also stores the impulses of every PGS iteration for the adjoint.

    No group stops early: derivatives may still change after the impulses have converged.

    history: Impulses before the first and after each iteration, shape (rows * (sweeps + 1)).
    """
    largest = groups.largest
    alone, diagonal, slip = local(Float, largest), local(Float, largest), local(Float, largest)
    for g in range(len(groups.singles)):
        base = groups.start[g]
        n, begin = groups.start[g + 1] - base, base * (sweeps + 1)
        prepare(rows, groups, bounds, g, A, inverse, b, single, triple, alone, diagonal, slip)
        for i in range(n):
            history[begin + i] = 0.0
        for s in range(sweeps):
            sweep(groups, bounds, g, rest, single, triple, alone, slip, history, begin + s * n)
        for i in range(n):
            impulse[groups.row[base + i]] = history[begin + sweeps * n + i]


@func
def sweeps_adjoint(
    groups,
    bounds,
    g,
    sweeps,
    rest,
    single,
    triple,
    slip,
    history,
    impulse_adj,
    sum_adj,
    slip_adj,
    lower_adj,
    upper_adj,
):
    """Adjoint of the PGS iterations of group g: each row multiplies its column of B by the cotangents of later updates.

    single, triple: Rows of the transpose of B.
    sum_adj: Cotangents of the sums of all updates, before the clamp (6); 0 after the last iteration.
    """
    base, singles = groups.start[g], groups.singles[g]
    n, begin = groups.start[g + 1] - base, base * (sweeps + 1)
    count = (n - singles) // 3
    near = 3 if n >= 6 else 0
    far = n - 3 - near
    p0, p1, p2 = 0.0, 0.0, 0.0
    for back in range(sweeps):
        at = (sweeps - 1 - back) * n
        new, found = at + n, begin + at + n
        # Triples, the last one first.
        for k in range(count):
            c = count - 1 - k
            r, row, own = singles + 3 * c, 3 * c * n, 3 * c * n + 3 * (n - 3)
            n0, n1, n2 = history[found + r], history[found + r + 1], history[found + r + 2]
            u0, u1, u2 = sum_adj[new + r], sum_adj[new + r + 1], sum_adj[new + r + 2]
            # from the same rows in the next iteration, or from the result
            press, slide = rests(c < groups.equations[g], rest)
            a0, a1 = press * u0, triple[own + 1] * u0 + slide * u1
            a2 = triple[own + 2] * u0 + triple[own + 5] * u1 + slide * u2
            if back == 0:
                number = groups.row[base + r]
                a0, a1, a2 = impulse_adj[number], impulse_adj[number + 1], impulse_adj[number + 2]
            # from all other rows, the three rows after this triple as the last ones
            a0, a1, a2 = times_all(far, row + 3 * near, triple, at + r + 3 + near, sum_adj, a0, a1, a2)
            if near > 0:
                if k == 0:
                    p0, p1, p2 = sum_adj[at + r + 3], sum_adj[at + r + 4], sum_adj[at + r + 5]
                a0, a1, a2 = times_three(row + 6, row + 3, row, triple, p2, p1, p0, a0, a1, a2)
            # from the later rows of the triple, through their clamps
            if c < groups.equations[g]:
                p2 = a2
                p1 = a1 + triple[own + 7] * p2
                p0 = a0 + triple[own + 6] * p2 + triple[own + 3] * p1
            else:
                # selects instead of branches: which rows slide changes from iteration to iteration
                bound = slip[c] * n0
                p2 = a2 if abs(n2) < bound else 0.0
                by_second = a2 - p2 if n2 >= bound else p2 - a2
                a1 = a1 + triple[own + 7] * p2
                p1 = a1 if abs(n1) < bound else 0.0
                by_first = a1 - p1 if n1 >= bound else p1 - a1
                a0 = a0 + triple[own + 6] * p2 + slip[c] * by_second + triple[own + 3] * p1 + slip[c] * by_first
                p0 = a0 if n0 > 0.0 else 0.0
                slip_adj[c] += (by_first + by_second) * n0
            sum_adj[at + r] = p0
            sum_adj[at + r + 1] = p1
            sum_adj[at + r + 2] = p2
        # Single rows, the last one first.
        for k in range(singles):
            i = singles - 1 - k
            number, f, p = groups.row[base + i], 0.0, 0.0
            if back == 0:
                f = impulse_adj[number]
            for j in range(n - 1):
                f = f + single[i * n + j] * sum_adj[at + i + 1 + j]
            if bounds.upper[number] > bounds.lower[number]:
                after = history[found + i]
                if after <= bounds.lower[number]:
                    lower_adj[number] += f
                elif after >= bounds.upper[number]:
                    upper_adj[number] += f
                else:
                    p = f
            sum_adj[at + i] = p


@func
def sum_products(groups, g, sweeps, rest, history, sum_adj, totals, kept, product):
    """Sum over all PGS iterations of group g: the cotangents of sums (6), and their products with the impulses read.

    A row reads the new impulses of earlier rows and the old impulses of later rows. Every loop over iterations sums few
    entries, which stay in registers.

    totals: Sum of the cotangents of each row.
    product: Sum of cotangent times impulse, row by column; the diagonal uses the new impulse of the row itself.
    kept: Sum of cotangent times (1 - relaxation) times the old impulse of the row.
    """
    base, singles = groups.start[g], groups.singles[g]
    n, begin = groups.start[g + 1] - base, base * (sweeps + 1)
    count = (n - singles) // 3
    # Single rows against all rows.
    for i in range(singles):
        total = 0.0
        for s in range(sweeps):
            total = total + sum_adj[s * n + i]
        totals[i] = total
        kept[i] = 0.0
        for j in range(n):
            seen, entry = begin + n + j if j <= i else begin + j, 0.0
            for s in range(sweeps):
                entry = entry + sum_adj[s * n + i] * history[s * n + seen]
            product[i * n + j] = entry
    for c in range(count):
        r = singles + 3 * c
        to = r * n
        # A triple against single rows: 3 x 1 blocks.
        for j in range(singles):
            column = vec3(0.0, 0.0, 0.0)
            for s in range(sweeps):
                t = s * n + r
                column = column + vec3(sum_adj[t], sum_adj[t + 1], sum_adj[t + 2]) * history[begin + s * n + n + j]
            product[to + j] = column.x
            product[to + n + j] = column.y
            product[to + 2 * n + j] = column.z
        # A triple against triples: 3 x 3 blocks.
        for e in range(count):
            q = singles + 3 * e
            seen, block = begin + n + q if e <= c else begin + q, mat33(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
            for s in range(sweeps):
                t, at = s * n + r, s * n + seen
                u = vec3(sum_adj[t], sum_adj[t + 1], sum_adj[t + 2])
                block = block + outer(u, vec3(history[at], history[at + 1], history[at + 2]))
            put_block(product, to + q, n, block)
        # Within a triple, a row reads the old impulses of the later rows.
        press, slide = rests(c < groups.equations[g], rest)
        w0, w1, w2, a01, a02, a12 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        k0, k1, k2 = 0.0, 0.0, 0.0
        for s in range(sweeps):
            t = s * n + r
            u0, u1, u2 = sum_adj[t], sum_adj[t + 1], sum_adj[t + 2]
            l0, l1, l2 = history[begin + t], history[begin + t + 1], history[begin + t + 2]
            w0, w1, w2 = w0 + u0, w1 + u1, w2 + u2
            a01, a02, a12 = a01 + u0 * l1, a02 + u0 * l2, a12 + u1 * l2
            k0, k1, k2 = k0 + u0 * l0, k1 + u1 * l1, k2 + u2 * l2
        kept[r], kept[r + 1], kept[r + 2] = press * k0, slide * k1, slide * k2
        totals[r], totals[r + 1], totals[r + 2] = w0, w1, w2
        product[r * n + r + 1], product[r * n + r + 2], product[(r + 1) * n + r + 2] = a01, a02, a12


@kernel
def dense_gauss_seidel_adjoint(
    rows: Rows,
    groups: Groups,
    bounds: Bounds,
    sweeps: Int,
    rest: Array[Float],
    A: Array[Float],
    inverse: Array[Float],
    history: Array[Float],
    impulse_adj: Array[Float],
    single: Array[Float],
    triple: Array[Float],
    sum_adj: Array[Float],
    product: Array[Float],
    A_adj: Array[Float],
    inverse_adj: Array[Float],
    b_adj: Array[Float],
    lower_adj: Array[Float],
    upper_adj: Array[Float],
    mu_adj: Array[Float],
):
    """Adjoint of `dense_gauss_seidel_history`; the cotangent of A is summed over all PGS iterations at the end.

    single, triple: Workspace: the rows of the transpose of B of one group.
    sum_adj: Workspace: the cotangents of the sums of all updates of one group, (sweeps + 1) times its rows.
    product: Workspace: as many entries as A has in one group.
    """
    largest = groups.largest
    diagonal, slip, slip_adj = local(Float, largest), local(Float, largest), local(Float, largest)
    totals, kept = local(Float, largest), local(Float, largest)
    for g in range(len(groups.singles)):
        base, singles, whole = groups.start[g], groups.singles[g], groups.matrix[g]
        n = groups.start[g + 1] - base
        count = (n - singles) // 3
        for i in range(n):
            diagonal[i] = inverse[groups.row[base + i]]
            sum_adj[sweeps * n + i] = 0.0  # no update reads the impulses after the last iteration
        for c in range(count):
            slip[c] = bounds.mu[(groups.row[base + singles + 3 * c] - rows.singles) // 3]
            slip_adj[c] = 0.0
        # The rows of the transpose of B.
        for i in range(singles):
            turned(n, i, 1, False, A, groups.matrix[g], diagonal, i * n, single)
        for c in range(count):
            turned(n, singles + 3 * c, 3, False, A, groups.matrix[g], diagonal, 3 * c * n, triple)
        # The iterations in reverse, and the sums over them.
        sweeps_adjoint(
            groups,
            bounds,
            g,
            sweeps,
            rest,
            single,
            triple,
            slip,
            history,
            impulse_adj,
            sum_adj,
            slip_adj,
            lower_adj,
            upper_adj,
        )
        sum_products(groups, g, sweeps, rest, history, sum_adj, totals, kept, product)
        # Adjoint of B = -inverse A and of -inverse b (6).
        for i in range(n):
            scale, number = diagonal[i], groups.row[base + i]
            b_adj[number] -= totals[i] * scale
            if scale > 0.0:
                inverse_adj[number] += (product[i * n + i] - kept[i]) / scale
            product[i * n + i] = 0.0
            for j in range(n):
                A_adj[whole + i * n + j] -= product[i * n + j] * scale
        for c in range(count):
            mu_adj[(groups.row[base + singles + 3 * c] - rows.singles) // 3] += slip_adj[c]
