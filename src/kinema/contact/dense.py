"""Projected Gauss-Seidel with the matrix A = Y Y^T at hand: for few rows quicker than `mlcp`, which never forms it.

The problem, the order of visits and the pyramid of friction are those of `mlcp`; the cone is not here. The velocities
of all rows are kept, and changed after each visit.
"""

from __future__ import annotations

from kinema.contact.mlcp import Bounds, Rows
from kinema.lang import Array, Float, Int, func, kernel, local, max, min, record


@record
class Matches:
    """Degrees of freedom that two supports share.

    start: Where the list of blocks i and j begins, number i * blocks + j, and one more; empty for j > i.
    first, second: Where they are in the supports of i and of j.
    """

    start: Array[Int]
    first: Array[Int]
    second: Array[Int]


@kernel
def row_matrix(
    rows: Rows,
    matches: Matches,
    widest: Int,
    cfm: Float,
    active: Array[Float],
    Y: Array[Float],
    A: Array[Float],
    inverse: Array[Float],
):
    """A = Y Y^T, row by row, and 1 / (diagonal + cfm); 0 for the normal rows of contacts that are left alone."""
    singles, blocks, n = rows.singles, rows.singles + rows.triples[0], len(inverse)
    for i in range(singles):
        for j in range(i + 1):
            entry = 0.0
            for m in range(matches.start[i * blocks + j], matches.start[i * blocks + j + 1]):
                entry = entry + Y[i * widest + matches.first[m]] * Y[j * widest + matches.second[m]]
            A[i * n + j] = entry
            if j < i:
                A[j * n + i] = entry
            else:
                inverse[i] = 1.0 / (entry + cfm)
    for c in range(rows.triples[0]):
        i, r = singles + c, singles + 3 * c
        at = r * widest
        for j in range(singles):
            a0, a1, a2 = 0.0, 0.0, 0.0
            for m in range(matches.start[i * blocks + j], matches.start[i * blocks + j + 1]):
                y, t = Y[j * widest + matches.second[m]], at + matches.first[m]
                a0 = a0 + Y[t] * y
                a1 = a1 + Y[t + widest] * y
                a2 = a2 + Y[t + 2 * widest] * y
            A[r * n + j] = a0
            A[(r + 1) * n + j] = a1
            A[(r + 2) * n + j] = a2
            A[j * n + r] = a0
            A[j * n + r + 1] = a1
            A[j * n + r + 2] = a2
        for e in range(c + 1):
            q = singles + 3 * e
            a00, a01, a02, a10, a11, a12, a20, a21, a22 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for m in range(matches.start[i * blocks + singles + e], matches.start[i * blocks + singles + e + 1]):
                t, u = at + matches.first[m], q * widest + matches.second[m]
                x0, x1, x2 = Y[t], Y[t + widest], Y[t + 2 * widest]
                y0, y1, y2 = Y[u], Y[u + widest], Y[u + 2 * widest]
                a00 = a00 + x0 * y0
                a01 = a01 + x0 * y1
                a02 = a02 + x0 * y2
                a10 = a10 + x1 * y0
                a11 = a11 + x1 * y1
                a12 = a12 + x1 * y2
                a20 = a20 + x2 * y0
                a21 = a21 + x2 * y1
                a22 = a22 + x2 * y2
            A[r * n + q] = a00
            A[r * n + q + 1] = a01
            A[r * n + q + 2] = a02
            A[(r + 1) * n + q] = a10
            A[(r + 1) * n + q + 1] = a11
            A[(r + 1) * n + q + 2] = a12
            A[(r + 2) * n + q] = a20
            A[(r + 2) * n + q + 1] = a21
            A[(r + 2) * n + q + 2] = a22
            if e < c:
                A[q * n + r] = a00
                A[(q + 1) * n + r] = a01
                A[(q + 2) * n + r] = a02
                A[q * n + r + 1] = a10
                A[(q + 1) * n + r + 1] = a11
                A[(q + 2) * n + r + 1] = a12
                A[q * n + r + 2] = a20
                A[(q + 1) * n + r + 2] = a21
                A[(q + 2) * n + r + 2] = a22
            else:
                pressing = 1.0
                if c >= rows.equations:
                    pressing = active[c]
                inverse[r] = pressing / (a00 + cfm)
                inverse[r + 1] = 1.0 / (a11 + cfm)
                inverse[r + 2] = 1.0 / (a22 + cfm)


@func
def turned(n, r, width, by_row, A, inverse, at, out):
    """Rows r to r + width - 1 of -A, each entry divided by a diagonal entry, of its row or of its column.

    The columns follow each other as the rows are visited: from the one after these rows on, round and round, and at
    last their own; `width` numbers, one per row, for each.
    """
    for k in range(n):
        j = r + width + k if r + width + k < n else r + width + k - n
        for m in range(width):
            scale = inverse[r + m] if by_row else inverse[j]
            out[at + width * k + m] = -A[(r + m) * n + j] * scale


@func
def times_three(at, matrix, x, y, z, a0, a1, a2):
    """Three columns of a triple times three numbers, added to the sums of its rows."""
    a0 = a0 + matrix[at] * x + matrix[at + 3] * y + matrix[at + 6] * z
    a1 = a1 + matrix[at + 1] * x + matrix[at + 4] * y + matrix[at + 7] * z
    a2 = a2 + matrix[at + 2] * x + matrix[at + 5] * y + matrix[at + 8] * z
    return a0, a1, a2


@func
def times_all(count, at, matrix, start, x, a0, a1, a2):
    """As many columns as `count` says times x, from `start` on."""
    whole = count // 3
    for k in range(whole):
        a0, a1, a2 = times_three(
            at + 9 * k, matrix, x[start + 3 * k], x[start + 3 * k + 1], x[start + 3 * k + 2], a0, a1, a2
        )
    for k in range(3 * whole, count):
        a0 = a0 + matrix[at + 3 * k] * x[start + k]
        a1 = a1 + matrix[at + 3 * k + 1] * x[start + k]
        a2 = a2 + matrix[at + 3 * k + 2] * x[start + k]
    return a0, a1, a2


@kernel
def dense_gauss_seidel(
    rows: Rows,
    bounds: Bounds,
    sweeps: Int,
    A: Array[Float],
    inverse: Array[Float],
    b: Array[Float],
    history: Array[Float],
    impulse: Array[Float],
):
    """Impulses after a number of sweeps from zero.

    A visit makes impulse i = -(b_i + sum of A_ij impulse_j over all others) / (A_ii + cfm), then clamps it.
    history has (sweeps + 1) times as many numbers as there are rows: the impulses before, between and after the sweeps.
    """
    n, singles, count = len(b), rows.singles, rows.triples[0]
    single, triple, alone = local(Float, singles * n), local(Float, 3 * count * n), local(Float, n)
    for i in range(singles):
        turned(n, i, 1, True, A, inverse, i * n, single)
    for c in range(count):
        turned(n, singles + 3 * c, 3, True, A, inverse, 3 * c * n, triple)
    for i in range(n):
        history[i] = 0.0
        alone[i] = -b[i] * inverse[i]
    # The latest impulses of all other rows follow each other in `history`, from the last sweep's to this one's. Those
    # of the triple visited just before are at hand.
    near = 3 if n >= 6 else 0
    far = n - 3 - near
    p0, p1, p2 = 0.0, 0.0, 0.0
    for s in range(sweeps):
        old, new = s * n, (s + 1) * n
        for i in range(singles):
            found = 0.0
            if bounds.upper[i] > bounds.lower[i]:
                found = alone[i]
                for k in range(n - 1):
                    found = found + single[i * n + k] * history[old + i + 1 + k]
                found = max(min(found, bounds.upper[i]), bounds.lower[i])
            history[new + i] = found
        for c in range(count):
            r, at, own = singles + 3 * c, 3 * c * n, 3 * c * n + 3 * (n - 3)
            l1, l2 = history[old + r + 1], history[old + r + 2]
            a0 = alone[r] + triple[own + 3] * l1 + triple[own + 6] * l2
            a1, a2 = alone[r + 1] + triple[own + 7] * l2, alone[r + 2]
            a0, a1, a2 = times_all(far, at, triple, old + r + 3, history, a0, a1, a2)
            if near > 0:
                if c == 0:
                    p0, p1, p2 = history[new + r - 3], history[new + r - 2], history[new + r - 1]
                a0, a1, a2 = times_three(at + 3 * far, triple, p0, p1, p2, a0, a1, a2)
            if c < rows.equations:
                p0 = a0
                p1 = a1 + triple[own + 1] * p0
                p2 = a2 + triple[own + 2] * p0 + triple[own + 5] * p1
            else:
                p0 = max(a0, 0.0)
                bound = bounds.mu[c] * p0
                p1 = max(min(a1 + triple[own + 1] * p0, bound), -bound)
                p2 = max(min(a2 + triple[own + 2] * p0 + triple[own + 5] * p1, bound), -bound)
            history[new + r] = p0
            history[new + r + 1] = p1
            history[new + r + 2] = p2
    for r in range(n):
        impulse[r] = history[sweeps * n + r]


@kernel
def dense_gauss_seidel_adjoint(
    rows: Rows,
    bounds: Bounds,
    sweeps: Int,
    A: Array[Float],
    inverse: Array[Float],
    history: Array[Float],
    impulse_adj: Array[Float],
    A_adj: Array[Float],
    inverse_adj: Array[Float],
    b_adj: Array[Float],
    lower_adj: Array[Float],
    upper_adj: Array[Float],
    mu_adj: Array[Float],
):
    """The sweeps in reverse: each row takes what all others, as they were visited last, felt of it.

    `felt` keeps the cotangent of every visit's sum, before the clamp, so that the cotangent of A is summed over the
    sweeps in registers, at the end.
    """
    n, singles, count = len(inverse), rows.singles, rows.triples[0]
    single, triple, felt = local(Float, singles * n), local(Float, 3 * count * n), local(Float, (sweeps + 1) * n)
    for i in range(singles):
        turned(n, i, 1, False, A, inverse, i * n, single)
    for c in range(count):
        turned(n, singles + 3 * c, 3, False, A, inverse, 3 * c * n, triple)
    near = 3 if n >= 6 else 0
    far = n - 3 - near
    p0, p1, p2 = 0.0, 0.0, 0.0
    for back in range(sweeps):
        at = (sweeps - 1 - back) * n
        new = at + n
        for k in range(count):
            c = count - 1 - k
            r, row, own = singles + 3 * c, 3 * c * n, 3 * c * n + 3 * (n - 3)
            n0, n1, n2 = history[new + r], history[new + r + 1], history[new + r + 2]
            u0, u1 = felt[new + r], felt[new + r + 1]
            a0, a1, a2 = 0.0, triple[own + 1] * u0, triple[own + 2] * u0 + triple[own + 5] * u1
            if back == 0:
                a0, a1, a2 = impulse_adj[r], impulse_adj[r + 1], impulse_adj[r + 2]
            a0, a1, a2 = times_all(far, row + 3 * near, triple, at + r + 3 + near, felt, a0, a1, a2)
            if near > 0:
                if k == 0:
                    p0, p1, p2 = felt[at + r + 3], felt[at + r + 4], felt[at + r + 5]
                a0, a1, a2 = times_three(row, triple, p0, p1, p2, a0, a1, a2)
            if c < rows.equations:
                p2 = a2
                p1 = a1 + triple[own + 7] * p2
                p0 = a0 + triple[own + 6] * p2 + triple[own + 3] * p1
            else:
                bound, bound_adj = bounds.mu[c] * n0, 0.0
                p2 = a2
                if n2 >= bound:
                    bound_adj = a2
                    p2 = 0.0
                elif n2 <= -bound:
                    bound_adj = -a2
                    p2 = 0.0
                a1 = a1 + triple[own + 7] * p2
                p1 = a1
                if n1 >= bound:
                    bound_adj = bound_adj + a1
                    p1 = 0.0
                elif n1 <= -bound:
                    bound_adj = bound_adj - a1
                    p1 = 0.0
                p0 = 0.0
                if n0 > 0.0:
                    p0 = a0 + triple[own + 6] * p2 + triple[own + 3] * p1 + bounds.mu[c] * bound_adj
                mu_adj[c] += bound_adj * n0
            felt[at + r] = p0
            felt[at + r + 1] = p1
            felt[at + r + 2] = p2
        for k in range(singles):
            i = singles - 1 - k
            f, p = 0.0, 0.0
            if back == 0:
                f = impulse_adj[i]
            for j in range(n - 1):
                f = f + single[i * n + j] * felt[at + i + 1 + j]
            if bounds.upper[i] > bounds.lower[i]:
                after = history[new + i]
                if after <= bounds.lower[i]:
                    lower_adj[i] += f
                elif after >= bounds.upper[i]:
                    upper_adj[i] += f
                else:
                    p = f
            felt[at + i] = p
    # a row saw what this sweep had found of those before it, and what the last one had left of those after it
    for i in range(singles):
        for j in range(n):
            shift = n if j <= i else 0
            entry = 0.0
            for s in range(sweeps):
                entry = entry + felt[s * n + i] * history[s * n + shift + j]
            if j != i:
                A_adj[i * n + j] -= entry * inverse[i]
            else:
                inverse_adj[i] += entry / inverse[i]
        whole = 0.0
        for s in range(sweeps):
            whole = whole + felt[s * n + i]
        b_adj[i] -= whole * inverse[i]
    for c in range(count):
        r = singles + 3 * c
        i0, i1, i2 = inverse[r], inverse[r + 1], inverse[r + 2]
        for j in range(singles):
            a0, a1, a2 = 0.0, 0.0, 0.0
            for s in range(sweeps):
                x = history[s * n + n + j]
                a0 = a0 + felt[s * n + r] * x
                a1 = a1 + felt[s * n + r + 1] * x
                a2 = a2 + felt[s * n + r + 2] * x
            A_adj[r * n + j] -= a0 * i0
            A_adj[(r + 1) * n + j] -= a1 * i1
            A_adj[(r + 2) * n + j] -= a2 * i2
        for e in range(count):
            q = singles + 3 * e
            a00, a01, a02, a10, a11, a12, a20, a21, a22 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            if e == c:
                w0, w1, w2 = 0.0, 0.0, 0.0
                for s in range(sweeps):
                    old, new = s * n + r, s * n + n + r
                    u0, u1, u2 = felt[old], felt[old + 1], felt[old + 2]
                    a00 = a00 + u0 * history[new]
                    a01 = a01 + u0 * history[old + 1]
                    a02 = a02 + u0 * history[old + 2]
                    a10 = a10 + u1 * history[new]
                    a11 = a11 + u1 * history[new + 1]
                    a12 = a12 + u1 * history[old + 2]
                    a20 = a20 + u2 * history[new]
                    a21 = a21 + u2 * history[new + 1]
                    a22 = a22 + u2 * history[new + 2]
                    w0 = w0 + u0
                    w1 = w1 + u1
                    w2 = w2 + u2
                if i0 > 0.0:
                    inverse_adj[r] += a00 / i0
                inverse_adj[r + 1] += a11 / i1
                inverse_adj[r + 2] += a22 / i2
                b_adj[r] -= w0 * i0
                b_adj[r + 1] -= w1 * i1
                b_adj[r + 2] -= w2 * i2
                a00, a11, a22 = 0.0, 0.0, 0.0
            else:
                shift = n if e < c else 0
                for s in range(sweeps):
                    at, u0, u1, u2 = s * n + shift + q, felt[s * n + r], felt[s * n + r + 1], felt[s * n + r + 2]
                    x, y, z = history[at], history[at + 1], history[at + 2]
                    a00 = a00 + u0 * x
                    a01 = a01 + u0 * y
                    a02 = a02 + u0 * z
                    a10 = a10 + u1 * x
                    a11 = a11 + u1 * y
                    a12 = a12 + u1 * z
                    a20 = a20 + u2 * x
                    a21 = a21 + u2 * y
                    a22 = a22 + u2 * z
            A_adj[r * n + q] -= a00 * i0
            A_adj[r * n + q + 1] -= a01 * i0
            A_adj[r * n + q + 2] -= a02 * i0
            A_adj[(r + 1) * n + q] -= a10 * i1
            A_adj[(r + 1) * n + q + 1] -= a11 * i1
            A_adj[(r + 1) * n + q + 2] -= a12 * i1
            A_adj[(r + 2) * n + q] -= a20 * i2
            A_adj[(r + 2) * n + q + 1] -= a21 * i2
            A_adj[(r + 2) * n + q + 2] -= a22 * i2
