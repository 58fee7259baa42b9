"""Projected Gauss-Seidel with the matrix A = Y Y^T at hand: for few rows quicker than `mlcp`, which never forms it.

The problem, the order of visits and the pyramid of friction are those of `mlcp`; the cone is not here. Rows that share
no degree of freedom, directly or through others, are in different groups, each with a matrix of its own.
"""

from __future__ import annotations

from kinema.contact.solving.pgs import Bounds, Rows, diagonal_inverse
from kinema.lang import Array, Float, Int, abs, everywhere, func, kernel, local, max, min, record

TOGETHER = 5  # after so many sweeps it is seen whether they still change anything


@record
class Groups:
    """Rows that are solved apart from others. Those of a group follow each other: single rows, equations, contacts.

    start: The first row of each group in this order, and one more.
    singles, equations: How many single rows and equations there are in each.
    matrix: Where its matrix begins.
    row: The number of each row.
    largest: Most rows of a group.
    """

    start: Array[Int]
    singles: Array[Int]
    equations: Array[Int]
    matrix: Array[Int]
    row: Array[Int]
    largest: Int


@record
class Matches:
    """Degrees of freedom that two supports share.

    pairs: Where the pairs of blocks of each group begin in `start`: i and j <= i, number i (i + 1) / 2 + j.
    start: Where the list of a pair begins, and one more.
    first, second: Where they are in the supports of i and of j.
    """

    pairs: Array[Int]
    start: Array[Int]
    first: Array[Int]
    second: Array[Int]


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
    """A = Y Y^T of each group, row by row, and 1 / (diagonal + cfm); 0 for the normal rows of contacts left alone."""
    for g in range(len(groups.singles)):
        base, singles, whole, pairs = groups.start[g], groups.singles[g], groups.matrix[g], matches.pairs[g]
        n = groups.start[g + 1] - base
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
        for c in range((n - singles) // 3):
            r = singles + 3 * c
            number = groups.row[base + r]
            at, row, first = number * widest, whole + r * n, pairs + (singles + c) * (singles + c + 1) // 2
            for j in range(singles):
                other, column, pair = groups.row[base + j] * widest, whole + j * n + r, first + j
                a0, a1, a2 = 0.0, 0.0, 0.0
                for m in range(matches.start[pair], matches.start[pair + 1]):
                    y, t = Y[other + matches.second[m]], at + matches.first[m]
                    a0 = a0 + Y[t] * y
                    a1 = a1 + Y[t + widest] * y
                    a2 = a2 + Y[t + 2 * widest] * y
                A[row + j] = a0
                A[row + n + j] = a1
                A[row + 2 * n + j] = a2
                A[column] = a0
                A[column + 1] = a1
                A[column + 2] = a2
            for e in range(c + 1):
                q = singles + 3 * e
                other, pair = groups.row[base + q] * widest, first + singles + e
                a00, a01, a02, a10, a11, a12, a20, a21, a22 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                for m in range(matches.start[pair], matches.start[pair + 1]):
                    t, u = at + matches.first[m], other + matches.second[m]
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
                to = row + q
                A[to] = a00
                A[to + 1] = a01
                A[to + 2] = a02
                A[to + n] = a10
                A[to + n + 1] = a11
                A[to + n + 2] = a12
                A[to + 2 * n] = a20
                A[to + 2 * n + 1] = a21
                A[to + 2 * n + 2] = a22
                if e < c:
                    across = whole + q * n + r
                    A[across] = a00
                    A[across + n] = a01
                    A[across + 2 * n] = a02
                    A[across + 1] = a10
                    A[across + n + 1] = a11
                    A[across + 2 * n + 1] = a12
                    A[across + 2] = a20
                    A[across + n + 2] = a21
                    A[across + 2 * n + 2] = a22
                else:
                    pressing = 1.0
                    if c >= groups.equations[g]:
                        pressing = active[(number - rows.singles) // 3]
                    inverse[number] = pressing * diagonal_inverse(a00 + cfm)
                    inverse[number + 1] = diagonal_inverse(a11 + cfm)
                    inverse[number + 2] = diagonal_inverse(a22 + cfm)


@func
def turned(n, r, width, by_row, A, start, inverse, at, out):
    """Rows r to r + width - 1 of -A, each entry divided by a diagonal entry, of its row or of its column.

    A begins at `start`. The columns follow each other as the rows are visited: from the one after these rows on, round
    and round, and at last their own; `width` numbers, one per row, for each.
    """
    for k in range(n):
        j = r + width + k if r + width + k < n else r + width + k - n
        for m in range(width):
            scale = inverse[r + m] if by_row else inverse[j]
            out[at + width * k + m] = -A[start + (r + m) * n + j] * scale


@func
def times_three(i, j, k, matrix, x, y, z, a0, a1, a2):
    """Three columns of a triple, which begin at i, j and k, times three numbers, added to the sums of its rows."""
    a0 = a0 + matrix[i] * x + matrix[j] * y + matrix[k] * z
    a1 = a1 + matrix[i + 1] * x + matrix[j + 1] * y + matrix[k + 1] * z
    a2 = a2 + matrix[i + 2] * x + matrix[j + 2] * y + matrix[k + 2] * z
    return a0, a1, a2


@func
def times_all(count, at, matrix, start, x, a0, a1, a2):
    """As many columns as `count` says times x, from `start` on."""
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
    """The shares that the rows of a triple keep of what they were, the first one and the other two."""
    press, slide = rest[0], rest[1]
    if is_equation:
        press, slide = 0.0, 0.0
    return press, slide


@func
def prepare(rows, groups, bounds, g, A, inverse, b, single, triple, alone, diagonal, slip):
    """Turned rows, -b over the diagonal, and friction, of group g."""
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
    """Visits all rows of group g. Their impulses before it are in x from `old` on, those after it follow.

    So the latest impulses of all other rows follow each other, from the last sweep's to this one's.
    """
    base, singles = groups.start[g], groups.singles[g]
    n = groups.start[g + 1] - base
    new = old + n
    for i in range(singles):
        found, number = 0.0, groups.row[base + i]
        if bounds.upper[number] > bounds.lower[number]:
            found = alone[i]
            for k in range(n - 1):
                found = found + single[i * n + k] * x[old + i + 1 + k]
            found = max(min(found, bounds.upper[number]), bounds.lower[number])
        x[new + i] = found
    # Those of the triple visited just before are at hand: from memory they would come late.
    near = 3 if n >= 6 else 0
    far = n - 3 - near
    p0, p1, p2 = 0.0, 0.0, 0.0
    for c in range((n - singles) // 3):
        r, at, own = singles + 3 * c, 3 * c * n, 3 * c * n + 3 * (n - 3)
        l0, l1, l2 = x[old + r], x[old + r + 1], x[old + r + 2]
        press, slide = rests(c < groups.equations[g], rest)
        a0 = alone[r] + press * l0 + triple[own + 3] * l1 + triple[own + 6] * l2
        a1, a2 = alone[r + 1] + slide * l1 + triple[own + 7] * l2, alone[r + 2] + slide * l2
        a0, a1, a2 = times_all(far, at, triple, old + r + 3, x, a0, a1, a2)
        if near > 0:
            if c == 0:
                p0, p1, p2 = x[new + r - 3], x[new + r - 2], x[new + r - 1]
            i = at + 3 * far
            a0, a1, a2 = times_three(i, i + 3, i + 6, triple, p0, p1, p2, a0, a1, a2)
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
    """Impulses after a number of sweeps from zero.

    A visit makes impulse i = -(b_i + sum of A_ij impulse_j over all others) / (A_ii + cfm), then clamps it. `inverse`
    is 1 / (A_ii + cfm), of contacts times the relaxation. 1 less the relaxation is in `rest`, of the row that presses
    and of those of friction: this share of the impulse before it is added by a visit.
    single and triple are room for the turned rows of one group. Sweeps that would change nothing are left out.
    """
    largest = groups.largest
    alone, diagonal, slip = local(Float, largest), local(Float, largest), local(Float, largest)
    latest = local(Float, (TOGETHER + 1) * largest)
    for g in range(len(groups.singles)):
        n = groups.start[g + 1] - groups.start[g]
        prepare(rows, groups, bounds, g, A, inverse, b, single, triple, alone, diagonal, slip)
        for i in range(n):
            latest[i] = 0.0
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
    """`dense_gauss_seidel` to the same bits, and the impulses before, between and after its sweeps.

    history has (sweeps + 1) times as many numbers as there are rows. All sweeps are done: where impulses have settled,
    their derivatives may not.
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
    felt: Array[Float],
    product: Array[Float],
    A_adj: Array[Float],
    inverse_adj: Array[Float],
    b_adj: Array[Float],
    lower_adj: Array[Float],
    upper_adj: Array[Float],
    mu_adj: Array[Float],
):
    """The sweeps in reverse: each row takes what all others, as they were visited last, felt of it.

    `felt` keeps the cotangent of every visit's sum, before the clamp, so that the cotangent of A is summed over the
    sweeps in registers, at the end, in `product`.
    """
    largest = groups.largest
    diagonal, slip, slip_adj = local(Float, largest), local(Float, largest), local(Float, largest)
    totals, kept = local(Float, largest), local(Float, largest)
    for g in range(len(groups.singles)):
        base, singles, whole = groups.start[g], groups.singles[g], groups.matrix[g]
        n, begin = groups.start[g + 1] - base, base * (sweeps + 1)
        count = (n - singles) // 3
        for i in range(n):
            diagonal[i] = inverse[groups.row[base + i]]
            felt[sweeps * n + i] = 0.0  # nothing was felt of the impulses after the last sweep
        for c in range(count):
            slip[c] = bounds.mu[(groups.row[base + singles + 3 * c] - rows.singles) // 3]
            slip_adj[c] = 0.0
        for i in range(singles):
            turned(n, i, 1, False, A, groups.matrix[g], diagonal, i * n, single)
        for c in range(count):
            turned(n, singles + 3 * c, 3, False, A, groups.matrix[g], diagonal, 3 * c * n, triple)
        near = 3 if n >= 6 else 0
        far = n - 3 - near
        p0, p1, p2 = 0.0, 0.0, 0.0
        for back in range(sweeps):
            at = (sweeps - 1 - back) * n
            new, found = at + n, begin + at + n
            for k in range(count):
                c = count - 1 - k
                r, row, own = singles + 3 * c, 3 * c * n, 3 * c * n + 3 * (n - 3)
                n0, n1, n2 = history[found + r], history[found + r + 1], history[found + r + 2]
                u0, u1, u2 = felt[new + r], felt[new + r + 1], felt[new + r + 2]
                press, slide = rests(c < groups.equations[g], rest)
                a0, a1 = press * u0, triple[own + 1] * u0 + slide * u1
                a2 = triple[own + 2] * u0 + triple[own + 5] * u1 + slide * u2
                if back == 0:
                    number = groups.row[base + r]
                    a0, a1, a2 = impulse_adj[number], impulse_adj[number + 1], impulse_adj[number + 2]
                a0, a1, a2 = times_all(far, row + 3 * near, triple, at + r + 3 + near, felt, a0, a1, a2)
                if near > 0:
                    if k == 0:
                        p0, p1, p2 = felt[at + r + 3], felt[at + r + 4], felt[at + r + 5]
                    a0, a1, a2 = times_three(row + 6, row + 3, row, triple, p2, p1, p0, a0, a1, a2)
                if c < groups.equations[g]:
                    p2 = a2
                    p1 = a1 + triple[own + 7] * p2
                    p0 = a0 + triple[own + 6] * p2 + triple[own + 3] * p1
                else:
                    # choices instead of branches: which rows slide changes from sweep to sweep
                    bound = slip[c] * n0
                    p2 = a2 if abs(n2) < bound else 0.0
                    by_second = a2 - p2 if n2 >= bound else p2 - a2
                    a1 = a1 + triple[own + 7] * p2
                    p1 = a1 if abs(n1) < bound else 0.0
                    by_first = a1 - p1 if n1 >= bound else p1 - a1
                    a0 = a0 + triple[own + 6] * p2 + slip[c] * by_second + triple[own + 3] * p1 + slip[c] * by_first
                    p0 = a0 if n0 > 0.0 else 0.0
                    slip_adj[c] += (by_first + by_second) * n0
                felt[at + r] = p0
                felt[at + r + 1] = p1
                felt[at + r + 2] = p2
            for k in range(singles):
                i = singles - 1 - k
                number, f, p = groups.row[base + i], 0.0, 0.0
                if back == 0:
                    f = impulse_adj[number]
                for j in range(n - 1):
                    f = f + single[i * n + j] * felt[at + i + 1 + j]
                if bounds.upper[number] > bounds.lower[number]:
                    after = history[found + i]
                    if after <= bounds.lower[number]:
                        lower_adj[number] += f
                    elif after >= bounds.upper[number]:
                        upper_adj[number] += f
                    else:
                        p = f
                felt[at + i] = p
        # A row saw what this sweep had found of those before it, and what the last one had left of those after it. Few
        # numbers at a time, so that sums stay in registers; on the diagonal what the row became itself.
        for i in range(singles):
            total = 0.0
            for s in range(sweeps):
                total = total + felt[s * n + i]
            totals[i] = total
            kept[i] = 0.0
            for j in range(n):
                seen, entry = begin + n + j if j <= i else begin + j, 0.0
                for s in range(sweeps):
                    entry = entry + felt[s * n + i] * history[s * n + seen]
                product[i * n + j] = entry
        for c in range(count):
            r = singles + 3 * c
            to = r * n
            for j in range(singles):
                a0, a1, a2 = 0.0, 0.0, 0.0
                for s in range(sweeps):
                    x, t = history[begin + s * n + n + j], s * n + r
                    a0 = a0 + felt[t] * x
                    a1 = a1 + felt[t + 1] * x
                    a2 = a2 + felt[t + 2] * x
                product[to + j] = a0
                product[to + n + j] = a1
                product[to + 2 * n + j] = a2
            for e in range(count):
                q = singles + 3 * e
                seen, to = begin + n + q if e <= c else begin + q, r * n + q
                a00, a01, a02, a10, a11, a12, a20, a21, a22 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                for s in range(sweeps):
                    t, at = s * n + r, s * n + seen
                    u0, u1, u2 = felt[t], felt[t + 1], felt[t + 2]
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
                product[to] = a00
                product[to + 1] = a01
                product[to + 2] = a02
                product[to + n] = a10
                product[to + n + 1] = a11
                product[to + n + 2] = a12
                product[to + 2 * n] = a20
                product[to + 2 * n + 1] = a21
                product[to + 2 * n + 2] = a22
            press, slide = rests(c < groups.equations[g], rest)
            w0, w1, w2, a01, a02, a12 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            k0, k1, k2 = 0.0, 0.0, 0.0
            for s in range(sweeps):
                t = s * n + r
                u0, u1, u2 = felt[t], felt[t + 1], felt[t + 2]
                l0, l1, l2 = history[begin + t], history[begin + t + 1], history[begin + t + 2]
                w0, w1, w2 = w0 + u0, w1 + u1, w2 + u2
                a01, a02, a12 = a01 + u0 * l1, a02 + u0 * l2, a12 + u1 * l2
                k0, k1, k2 = k0 + u0 * l0, k1 + u1 * l1, k2 + u2 * l2
            kept[r], kept[r + 1], kept[r + 2] = press * k0, slide * k1, slide * k2
            totals[r], totals[r + 1], totals[r + 2] = w0, w1, w2
            product[r * n + r + 1], product[r * n + r + 2], product[(r + 1) * n + r + 2] = a01, a02, a12
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
