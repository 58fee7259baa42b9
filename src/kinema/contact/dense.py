"""Projected Gauss-Seidel with the matrix A = Y Y^T at hand: for few rows quicker than `mlcp`, which never forms it.

The problem, the order of visits and the pyramid of friction are those of `mlcp`; the cone is not here. A visit of three
rows takes what the last sweep left first, then what this one has found, in that order: all but the last product is
done while the triple before is still being clamped.
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
    blocks, n = rows.singles + rows.triples[0], len(inverse)
    for i in range(blocks):
        i_row, i_size = i, 1
        if i >= rows.singles:
            i_row = rows.singles + 3 * (i - rows.singles)
            i_size = 3
        for j in range(i + 1):
            j_row, j_size = j, 1
            if j >= rows.singles:
                j_row = rows.singles + 3 * (j - rows.singles)
                j_size = 3
            for a in range(i_size):
                for b in range(j_size):
                    entry = 0.0
                    for m in range(matches.start[i * blocks + j], matches.start[i * blocks + j + 1]):
                        entry = (
                            entry
                            + Y[(i_row + a) * widest + matches.first[m]] * Y[(j_row + b) * widest + matches.second[m]]
                        )
                    A[(i_row + a) * n + j_row + b] = entry
                    if j < i:
                        A[(j_row + b) * n + i_row + a] = entry
                    elif a == b:
                        pressing = 1.0
                        if i >= rows.singles + rows.equations and a == 0:
                            pressing = active[i - rows.singles]
                        inverse[i_row + a] = pressing / (entry + cfm)


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
    for r in range(n):
        history[r] = 0.0
    for s in range(sweeps):
        old, new = s * n, (s + 1) * n
        for i in range(rows.singles):
            found = 0.0
            if bounds.upper[i] > bounds.lower[i]:
                w = b[i]
                for j in range(i + 1, n):
                    w = w + A[i * n + j] * history[old + j]
                for j in range(i):
                    w = w + A[i * n + j] * history[new + j]
                found = max(min(-w * inverse[i], bounds.upper[i]), bounds.lower[i])
            history[new + i] = found
        for c in range(count):
            r = rows.singles + 3 * c
            first, second, third = r * n, (r + 1) * n, (r + 2) * n
            w0, w1, w2 = b[r], b[r + 1], b[r + 2]
            for k in range(c + 1, count):
                j = rows.singles + 3 * k
                x, y, z = history[old + j], history[old + j + 1], history[old + j + 2]
                w0 = w0 + A[first + j] * x + A[first + j + 1] * y + A[first + j + 2] * z
                w1 = w1 + A[second + j] * x + A[second + j + 1] * y + A[second + j + 2] * z
                w2 = w2 + A[third + j] * x + A[third + j + 1] * y + A[third + j + 2] * z
            for j in range(rows.singles):
                x = history[new + j]
                w0 = w0 + A[first + j] * x
                w1 = w1 + A[second + j] * x
                w2 = w2 + A[third + j] * x
            l1, l2 = history[old + r + 1], history[old + r + 2]
            w0 = w0 + A[first + r + 1] * l1 + A[first + r + 2] * l2
            w1 = w1 + A[second + r + 2] * l2
            for k in range(c):
                j = rows.singles + 3 * k
                x, y, z = history[new + j], history[new + j + 1], history[new + j + 2]
                w0 = w0 + A[first + j] * x + A[first + j + 1] * y + A[first + j + 2] * z
                w1 = w1 + A[second + j] * x + A[second + j + 1] * y + A[second + j + 2] * z
                w2 = w2 + A[third + j] * x + A[third + j + 1] * y + A[third + j + 2] * z
            i1, i2 = inverse[r + 1], inverse[r + 2]
            n0 = -w0 * inverse[r]
            if c >= rows.equations:
                n0 = max(n0, 0.0)
            bound = bounds.mu[c] * n0
            n1 = -w1 * i1 - A[second + r] * i1 * n0
            if c >= rows.equations:
                n1 = max(min(n1, bound), -bound)
            n2 = -w2 * i2 - A[third + r] * i2 * n0 - A[third + r + 1] * i2 * n1
            if c >= rows.equations:
                n2 = max(min(n2, bound), -bound)
            history[new + r] = n0
            history[new + r + 1] = n1
            history[new + r + 2] = n2
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
            left[r] = 0.0
            left[r + 1] = x01 * u0
            left[r + 2] = x02 * u0 + x12 * u1
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
            for j in range(r):
                left[j] = left[j] + A[first + j] * u0 + A[second + j] * u1 + A[third + j] * u2
            for j in range(r + 3, n):
                left[j] = left[j] + A[first + j] * u0 + A[second + j] * u1 + A[third + j] * u2
        for k in range(rows.singles):
            i = rows.singles - 1 - k
            f, u = left[i], 0.0
            left[i] = 0.0
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
                    for j in range(i):
                        left[j] = left[j] + A[i * n + j] * u
                    for j in range(i + 1, n):
                        left[j] = left[j] + A[i * n + j] * u
            felt[at + i] = u
    for i in range(n):
        for j in range(n):
            # a row saw what this sweep had found of those before it, and what the last one had left of those after it
            shift = 0
            if j < i:
                shift = n
            entry = 0.0
            for s in range(sweeps):
                entry = entry + felt[s * n + i] * history[s * n + shift + j]
            if j != i:
                A_adj[i * n + j] += entry
