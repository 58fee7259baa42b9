"""Projected Gauss-Seidel with the matrix A = Y Y^T at hand: for few rows quicker than `mlcp`, which never forms it.

The problem, the order of visits and the pyramid of friction are those of `mlcp`; the cone is not here. The velocities
of all rows are kept, and changed after each visit.
"""

from __future__ import annotations

from kinema.contact.mlcp import Bounds, Rows
from kinema.lang import Array, Float, Int, kernel, local, max, min, record


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

    history has (sweeps + 1) times as many numbers as there are rows: the impulses before, between and after the sweeps.
    """
    n, count = len(b), rows.triples[0]
    w = local(Float, n)
    for r in range(n):
        history[r] = 0.0
        w[r] = b[r]
    for s in range(sweeps):
        old, new = s * n, (s + 1) * n
        for i in range(rows.singles):
            found = 0.0
            if bounds.upper[i] > bounds.lower[i]:
                before = history[old + i]
                found = before - (w[i] + bounds.cfm * before) * inverse[i]
                found = max(min(found, bounds.upper[i]), bounds.lower[i])
                change = found - before
                for j in range(n):
                    w[j] += A[i * n + j] * change
            history[new + i] = found
        for c in range(count):
            r = rows.singles + 3 * c
            first, second, third = r * n, (r + 1) * n, (r + 2) * n
            l0, l1, l2 = history[old + r], history[old + r + 1], history[old + r + 2]
            i1, i2 = inverse[r + 1], inverse[r + 2]
            k01, k02, k12 = A[second + r] * i1, A[third + r] * i2, A[third + r + 1] * i2
            # what the impulses of friction would be if those before them were 0
            x1 = l1 - (w[r + 1] + bounds.cfm * l1) * i1 + k01 * l0
            x2 = l2 - (w[r + 2] + bounds.cfm * l2) * i2 + k02 * l0 + k12 * l1
            n0 = l0 - (w[r] + bounds.cfm * l0) * inverse[r]
            if c >= rows.equations:
                n0 = max(n0, 0.0)
            bound = bounds.mu[c] * n0
            n1 = x1 - k01 * n0
            if c >= rows.equations:
                n1 = max(min(n1, bound), -bound)
            n2 = x2 - k02 * n0 - k12 * n1
            if c >= rows.equations:
                n2 = max(min(n2, bound), -bound)
            history[new + r] = n0
            history[new + r + 1] = n1
            history[new + r + 2] = n2
            d0, d1, d2 = n0 - l0, n1 - l1, n2 - l2
            for j in range(n):
                w[j] = w[j] + A[first + j] * d0 + A[second + j] * d1 + A[third + j] * d2
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
    """The sweeps in reverse.

    Of each row: n its impulse after the visit, u the cotangent of the sum that gave it. `left` holds the cotangents of
    impulses; `felt` keeps every u, so that the cotangent of A is summed over the sweeps in registers, at the end.
    """
    n, count = len(inverse), rows.triples[0]
    left, felt = local(Float, n), local(Float, sweeps * n)
    for r in range(n):
        left[r] = impulse_adj[r]
    for back in range(sweeps):
        s = sweeps - 1 - back
        at, new = s * n, (s + 1) * n
        for k in range(count):
            c = count - 1 - k
            r = rows.singles + 3 * c
            first, second, third = r * n, (r + 1) * n, (r + 2) * n
            i0, i1, i2 = inverse[r], inverse[r + 1], inverse[r + 2]
            n0, n1, n2 = history[new + r], history[new + r + 1], history[new + r + 2]
            x01, x02, x12 = A[second + r], A[third + r], A[third + r + 1]
            bound, bound_adj = bounds.mu[c] * n0, 0.0
            contact = c >= rows.equations
            f2 = left[r + 2]
            if contact:
                if n2 >= bound:
                    bound_adj = f2
                    f2 = 0.0
                elif n2 <= -bound:
                    bound_adj = -f2
                    f2 = 0.0
            u2 = -f2 * i2
            f1 = left[r + 1] + x12 * u2
            if contact:
                if n1 >= bound:
                    bound_adj = bound_adj + f1
                    f1 = 0.0
                elif n1 <= -bound:
                    bound_adj = bound_adj - f1
                    f1 = 0.0
            u1 = -f1 * i1
            f0 = left[r] + x01 * u1 + x02 * u2 + bounds.mu[c] * bound_adj
            if contact and n0 <= 0.0:
                f0 = 0.0
            u0 = -f0 * i0
            if i0 > 0.0:
                inverse_adj[r] += f0 * n0 / i0
            inverse_adj[r + 1] += f1 * n1 / i1
            inverse_adj[r + 2] += f2 * n2 / i2
            mu_adj[c] += bound_adj * n0
            b_adj[r] += u0
            b_adj[r + 1] += u1
            b_adj[r + 2] += u2
            felt[at + r] = u0
            felt[at + r + 1] = u1
            felt[at + r + 2] = u2
            for j in range(n):
                left[j] = left[j] + A[first + j] * u0 + A[second + j] * u1 + A[third + j] * u2
            left[r] = 0.0  # within the triple, a row feels only those after it
            left[r + 1] = x01 * u0
            left[r + 2] = x02 * u0 + x12 * u1
        for k in range(rows.singles):
            i = rows.singles - 1 - k
            f, u = left[i], 0.0
            if bounds.upper[i] > bounds.lower[i]:
                after = history[new + i]
                if after <= bounds.lower[i]:
                    lower_adj[i] += f
                elif after >= bounds.upper[i]:
                    upper_adj[i] += f
                else:
                    u = -f * inverse[i]
                    inverse_adj[i] += f * after / inverse[i]
                    b_adj[i] += u
                    for j in range(n):
                        left[j] += A[i * n + j] * u
            left[i] = 0.0
            felt[at + i] = u
    # a row saw what this sweep had found of those before it, and what the last one had left of those after it
    for i in range(rows.singles):
        for j in range(n):
            shift = n if j < i else 0
            entry = 0.0
            for s in range(sweeps):
                entry = entry + felt[s * n + i] * history[s * n + shift + j]
            if j != i:
                A_adj[i * n + j] += entry
    for c in range(count):
        r = rows.singles + 3 * c
        for j in range(rows.singles):
            a0, a1, a2 = 0.0, 0.0, 0.0
            for s in range(sweeps):
                x = history[s * n + n + j]
                a0 = a0 + felt[s * n + r] * x
                a1 = a1 + felt[s * n + r + 1] * x
                a2 = a2 + felt[s * n + r + 2] * x
            A_adj[r * n + j] += a0
            A_adj[(r + 1) * n + j] += a1
            A_adj[(r + 2) * n + j] += a2
        for e in range(count):
            q = rows.singles + 3 * e
            a00, a01, a02, a10, a11, a12, a20, a21, a22 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            if e == c:
                for s in range(sweeps):
                    old, new, u0, u1, u2 = (
                        s * n + r,
                        s * n + n + r,
                        felt[s * n + r],
                        felt[s * n + r + 1],
                        felt[s * n + r + 2],
                    )
                    a01 = a01 + u0 * history[old + 1]
                    a02 = a02 + u0 * history[old + 2]
                    a10 = a10 + u1 * history[new]
                    a12 = a12 + u1 * history[old + 2]
                    a20 = a20 + u2 * history[new]
                    a21 = a21 + u2 * history[new + 1]
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
            A_adj[r * n + q] += a00
            A_adj[r * n + q + 1] += a01
            A_adj[r * n + q + 2] += a02
            A_adj[(r + 1) * n + q] += a10
            A_adj[(r + 1) * n + q + 1] += a11
            A_adj[(r + 1) * n + q + 2] += a12
            A_adj[(r + 2) * n + q] += a20
            A_adj[(r + 2) * n + q + 1] += a21
            A_adj[(r + 2) * n + q + 2] += a22
