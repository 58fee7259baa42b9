"""Impulses of constraints as a mixed linear complementarity problem, by projected Gauss-Seidel.

For rows of constraints with impulses lambda, A = J M^-1 J^T and b the velocity of the rows without impulses:

    w = A lambda + b + cfm lambda
    a single row:        lower <= lambda <= upper, w >= 0 where lambda = lower, w <= 0 where lambda = upper, else w = 0
    three equations:     w = 0
    a contact:           its normal row with the bounds 0 and infinity; then two rows of friction, each with the bounds
                         -+ mu lambda_n (a pyramid), or both together within a circle of radius mu lambda_n (the cone)

A is never formed. With M = L^T D L the rows Y = D^-1/2 L^-T J^T give A = Y Y^T, and a sweep keeps z = Y^T lambda, a
number per degree of freedom: visiting a row reads z where the row has entries and changes it there. So the cost is
that of the entries, and constraints that share nothing do not see each other. Three rows of one constraint are visited
together.

The reverse sweep passes through every clamp as it was: what a clamped row of friction would get goes to its normal
impulse and to mu [Qiao et al. 2021, sec. 4.3; their algorithm 1 leaves the clamps out]. It takes the impulses of all
sweeps from `history` and finds z again by going back.
"""

from __future__ import annotations

from kinema.lang import Array, Float, Int, abs, func, kernel, local, max, min, record, select, sqrt

IMMOVABLE = 1e-20  # what an impulse of 1 changes along a row that nothing can move, at most


@record
class Rows:
    """Which rows there are: single ones first, then triples, of which the first are equations, the others contacts.

    singles, equations: How many.
    triples: How many, equations and contacts together (one number).
    support: Of every single row and every triple, a number in `Supports`.
    """

    singles: Int
    equations: Int
    triples: Array[Int]
    support: Array[Int]


@record
class Supports:
    """Degrees of freedom that a constraint moves: from the root to a first link, then others to a second link.

    begin: Where the list begins in `dofs`.
    first: How many lead to the first link.
    count: How many there are.
    common: How many of the first lead to the second link too.
    dofs: The lists.
    widest: Length of the longest.
    """

    begin: Array[Int]
    first: Array[Int]
    count: Array[Int]
    common: Array[Int]
    dofs: Array[Int]
    widest: Int


@record
class Bounds:
    """Bounds of impulses.

    lower, upper: Of single rows [N s].
    mu: Coefficient of friction of triples [-].
    cfm: Softness [1/kg].
    """

    lower: Array[Float]
    upper: Array[Float]
    mu: Array[Float]
    cfm: Float


@record
class Gram:
    """Of Y Y^T what a visit needs: 1 / (diagonal + cfm) of every row, and three products (01, 02, 12) of every triple.

    A contact that is left alone has 0 in place of its first number, so that nothing ever presses.

    With the cone, the two rows of friction take a step along the gradient together, so that they end up against the
    direction of sliding: both have one over the largest eigenvalue of their block, and 12 is 0.
    """

    inverse: Array[Float]
    cross: Array[Float]


@func
def row_velocity(support, supports, Y, r, z):
    """Y_r z: what impulses do to a row's velocity."""
    begin, at, found = supports.begin[support], r * supports.widest, 0.0
    for t in range(supports.count[support]):
        found = found + Y[at + t] * z[supports.dofs[begin + t]]
    return found


@func
def add_row(support, supports, Y, r, factor, z):
    """z += factor Y_r."""
    begin, at = supports.begin[support], r * supports.widest
    for t in range(supports.count[support]):
        z[supports.dofs[begin + t]] += factor * Y[at + t]


@func
def diagonal_inverse(diagonal):
    """1 / diagonal, and 0 (with derivative 0) for a row that nothing can move: it then has no impulse."""
    movable = diagonal > IMMOVABLE
    return select(movable, 1.0 / select(movable, diagonal, 1.0), 0.0)


@kernel
def gram(
    rows: Rows,
    supports: Supports,
    cfm: Float,
    active: Array[Float],
    cone: Int,
    Y: Array[Float],
    inverse: Array[Float],
    cross: Array[Float],
):
    """Fills `Gram`; of contacts, `active` is 1, or 0 for those that are left alone."""
    for i in range(rows.singles):
        own = 0.0
        for t in range(supports.count[rows.support[i]]):
            y = Y[i * supports.widest + t]
            own = own + y * y
        inverse[i] = diagonal_inverse(own + cfm)
    for c in range(rows.triples[0]):
        r = rows.singles + 3 * c
        at = r * supports.widest
        a00, a01, a02, a11, a12, a22 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for t in range(supports.count[rows.support[rows.singles + c]]):
            y0, y1, y2 = Y[at + t], Y[at + supports.widest + t], Y[at + 2 * supports.widest + t]
            a00 = a00 + y0 * y0
            a01 = a01 + y0 * y1
            a02 = a02 + y0 * y2
            a11 = a11 + y1 * y1
            a12 = a12 + y1 * y2
            a22 = a22 + y2 * y2
        if cone > 0 and c >= rows.equations:
            half = 0.5 * (a11 - a22)
            a11 = 0.5 * (a11 + a22) + sqrt(half * half + a12 * a12)
            a22 = a11
            a12 = 0.0
        pressing = 1.0
        if c >= rows.equations:
            pressing = active[c]
        inverse[r] = pressing * diagonal_inverse(a00 + cfm)
        inverse[r + 1] = diagonal_inverse(a11 + cfm)
        inverse[r + 2] = diagonal_inverse(a22 + cfm)
        cross[3 * c] = a01
        cross[3 * c + 1] = a02
        cross[3 * c + 2] = a12


@kernel
def relax(rows: Rows, relaxation: Array[Float], inverse: Array[Float], relaxed: Array[Float]):
    """How far visits go: contacts so many times as far as would solve a row, the first row and those of friction."""
    fixed = rows.singles + 3 * rows.equations
    for r in range(fixed):
        relaxed[r] = inverse[r]
    for c in range(rows.triples[0] - rows.equations):
        r = fixed + 3 * c
        relaxed[r] = relaxation[0] * inverse[r]
        relaxed[r + 1] = relaxation[1] * inverse[r + 1]
        relaxed[r + 2] = relaxation[1] * inverse[r + 2]


@func
def sweep(rows, supports, bounds, gram, cone, Y, b, old, new, impulses, sums):
    """Visit every row once; returns the largest change of an impulse [N s].

    Impulses are read from `old` on and written from `new` on, which may be the same; sums is z = Y^T impulses.
    """
    wide, largest = supports.widest, 0.0
    for i in range(rows.singles):
        begin, count = supports.begin[rows.support[i]], supports.count[rows.support[i]]
        before = impulses[old + i]
        w = b[i] + bounds.cfm * before
        for t in range(count):
            w = w + Y[i * wide + t] * sums[supports.dofs[begin + t]]
        found = max(min(before - w * gram.inverse[i], bounds.upper[i]), bounds.lower[i])
        impulses[new + i] = found
        change = found - before
        largest = max(largest, abs(change))
        for t in range(count):
            sums[supports.dofs[begin + t]] += Y[i * wide + t] * change
    for c in range(rows.triples[0]):
        block, r = rows.support[rows.singles + c], rows.singles + 3 * c
        begin, count = supports.begin[block], supports.count[block]
        first, second, third = r * wide, (r + 1) * wide, (r + 2) * wide
        l0, l1, l2 = impulses[old + r], impulses[old + r + 1], impulses[old + r + 2]
        w0 = b[r] + bounds.cfm * l0
        w1 = b[r + 1] + bounds.cfm * l1 - gram.cross[3 * c] * l0
        w2 = b[r + 2] + bounds.cfm * l2 - gram.cross[3 * c + 1] * l0 - gram.cross[3 * c + 2] * l1
        w0_odd, w1_odd, w2_odd = 0.0, 0.0, 0.0  # two sums each: half the time to wait
        for k in range(count // 2):
            t = 2 * k
            even, odd = sums[supports.dofs[begin + t]], sums[supports.dofs[begin + t + 1]]
            w0 = w0 + Y[first + t] * even
            w1 = w1 + Y[second + t] * even
            w2 = w2 + Y[third + t] * even
            w0_odd = w0_odd + Y[first + t + 1] * odd
            w1_odd = w1_odd + Y[second + t + 1] * odd
            w2_odd = w2_odd + Y[third + t + 1] * odd
        if count % 2 == 1:
            t = count - 1
            even = sums[supports.dofs[begin + t]]
            w0 = w0 + Y[first + t] * even
            w1 = w1 + Y[second + t] * even
            w2 = w2 + Y[third + t] * even
        i1, i2 = gram.inverse[r + 1], gram.inverse[r + 2]
        x1 = l1 - (w1 + w1_odd) * i1  # what the rows would be for impulses 0 of those before them
        x2 = l2 - (w2 + w2_odd) * i2
        n0 = l0 - (w0 + w0_odd) * gram.inverse[r]
        if c >= rows.equations:
            n0 = max(n0, 0.0)
        bound = bounds.mu[c] * n0
        n1 = x1 - gram.cross[3 * c] * i1 * n0
        if c >= rows.equations and cone == 0:
            n1 = max(min(n1, bound), -bound)
        n2 = x2 - gram.cross[3 * c + 1] * i2 * n0 - gram.cross[3 * c + 2] * i2 * n1
        if c >= rows.equations:
            if cone == 0:
                n2 = max(min(n2, bound), -bound)
            else:
                length = sqrt(n1 * n1 + n2 * n2)
                scale = bound / length if length > bound else 1.0
                n1 = n1 * scale
                n2 = n2 * scale
        impulses[new + r] = n0
        impulses[new + r + 1] = n1
        impulses[new + r + 2] = n2
        d0, d1, d2 = n0 - l0, n1 - l1, n2 - l2
        largest = max(largest, max(abs(d0), max(abs(d1), abs(d2))))
        for t in range(count):
            d = supports.dofs[begin + t]
            sums[d] = sums[d] + Y[first + t] * d0 + Y[second + t] * d1 + Y[third + t] * d2
    return largest


@func
def largest_impulse(start, count, impulse):
    """The size of the largest of some [N s]."""
    found = 0.0
    for r in range(count):
        found = max(found, abs(impulse[start + r]))
    return found


@kernel
def gauss_seidel(
    rows: Rows,
    supports: Supports,
    bounds: Bounds,
    gram: Gram,
    cone: Int,
    sweeps: Int,
    Y: Array[Float],
    b: Array[Float],
    history: Array[Float],
    z: Array[Float],
    impulse: Array[Float],
):
    """Impulses after a number of sweeps from zero, and z = Y^T impulse.

    history has (sweeps + 1) times as many numbers as there are rows: the impulses before, between and after the sweeps.
    """
    n = len(b)
    sums = local(Float, len(z))
    for d in range(len(z)):
        sums[d] = 0.0
    for r in range(rows.singles + 3 * rows.triples[0]):
        history[r] = 0.0
    for s in range(sweeps):
        sweep(rows, supports, bounds, gram, cone, Y, b, s * n, (s + 1) * n, history, sums)
    for d in range(len(z)):
        z[d] = sums[d]
    for r in range(rows.singles + 3 * rows.triples[0]):
        impulse[r] = history[sweeps * n + r]


@func
def sweep_back(
    rows,
    supports,
    bounds,
    gram,
    cone,
    Y,
    b,
    old,
    new,
    history,
    sums,
    pull,
    left,
    Y_adj,
    b_adj,
    inverse_adj,
    cross_adj,
    lower_adj,
    upper_adj,
    mu_adj,
):
    """A sweep in reverse: its impulses before are in `history` from `old` on, those after it from `new` on.

    Of each row: l, n its impulse before and after the visit, x the one before the clamp, x = l - w * inverse.
    Cotangents: g of n, f of x, u of w, p of n - l; `left` holds those of the impulses, `pull` those of z.

    Returns:
        The cotangent of cfm.
    """
    wide, softness = supports.widest, 0.0
    for k in range(rows.triples[0]):
        c = rows.triples[0] - 1 - k
        block, r = rows.support[rows.singles + c], rows.singles + 3 * c
        begin, count = supports.begin[block], supports.count[block]
        first, second, third = r * wide, (r + 1) * wide, (r + 2) * wide
        i0, i1, i2 = gram.inverse[r], gram.inverse[r + 1], gram.inverse[r + 2]
        x01, x02, x12 = gram.cross[3 * c], gram.cross[3 * c + 1], gram.cross[3 * c + 2]
        l0, l1, l2 = history[old + r], history[old + r + 1], history[old + r + 2]
        n0, n1, n2 = history[new + r], history[new + r + 1], history[new + r + 2]
        d0, d1, d2 = n0 - l0, n1 - l1, n2 - l2
        p0, p1, p2 = 0.0, 0.0, 0.0
        for t in range(count):
            d = supports.dofs[begin + t]
            p0 = p0 + Y[first + t] * pull[d]
            p1 = p1 + Y[second + t] * pull[d]
            p2 = p2 + Y[third + t] * pull[d]
            sums[d] -= Y[first + t] * d0 + Y[second + t] * d1 + Y[third + t] * d2
        contact = c >= rows.equations
        bound, bound_adj = bounds.mu[c] * n0, 0.0
        g1, f2 = left[r + 1] + p1, left[r + 2] + p2
        x1, x2 = n1, n2
        if contact:
            if cone == 0:
                if n2 >= bound:
                    bound_adj = f2
                    f2 = 0.0
                elif n2 <= -bound:
                    bound_adj = -f2
                    f2 = 0.0
            else:
                w1 = b[r + 1] + bounds.cfm * l1 + x01 * d0
                w2 = b[r + 2] + bounds.cfm * l2 + x02 * d0
                for t in range(count):
                    sum = sums[supports.dofs[begin + t]]
                    w1 = w1 + Y[second + t] * sum
                    w2 = w2 + Y[third + t] * sum
                x1 = l1 - w1 * i1
                x2 = l2 - (w2 + x12 * (x1 - l1)) * i2
                length = sqrt(x1 * x1 + x2 * x2)
                if length > bound:
                    along = (g1 * x1 + f2 * x2) / length
                    bound_adj = along
                    g1 = (g1 - along * x1 / length) * (bound / length)
                    f2 = (f2 - along * x2 / length) * (bound / length)
                elif bound <= 0.0:  # nothing presses and nothing slides, as over a body that falls from rest
                    g1 = 0.0
                    f2 = 0.0
        u2 = -f2 * i2
        f1 = g1 + x12 * u2
        if contact and cone == 0:
            if n1 >= bound:
                bound_adj = bound_adj + f1
                f1 = 0.0
            elif n1 <= -bound:
                bound_adj = bound_adj - f1
                f1 = 0.0
        u1 = -f1 * i1
        p0 = p0 + x01 * u1 + x02 * u2
        f0 = left[r] + p0 + bounds.mu[c] * bound_adj
        if contact and n0 <= 0.0:
            f0 = 0.0
        u0 = -f0 * i0
        left[r] = f0 - p0 + bounds.cfm * u0
        left[r + 1] = f1 - p1 - x12 * u2 + bounds.cfm * u1
        left[r + 2] = f2 - p2 + bounds.cfm * u2
        if i0 > 0.0:
            inverse_adj[r] += f0 * d0 / i0
        if i1 > 0.0:
            inverse_adj[r + 1] += f1 * (x1 - l1) / i1
        if i2 > 0.0:
            inverse_adj[r + 2] += f2 * (x2 - l2) / i2
        cross_adj[3 * c] += u1 * d0
        cross_adj[3 * c + 1] += u2 * d0
        cross_adj[3 * c + 2] += u2 * (x1 - l1)
        mu_adj[c] += bound_adj * n0
        softness = softness + u0 * l0 + u1 * l1 + u2 * l2
        b_adj[r] += u0
        b_adj[r + 1] += u1
        b_adj[r + 2] += u2
        for t in range(count):
            d = supports.dofs[begin + t]
            Y_adj[first + t] += d0 * pull[d] + u0 * sums[d]
            Y_adj[second + t] += d1 * pull[d] + u1 * sums[d]
            Y_adj[third + t] += d2 * pull[d] + u2 * sums[d]
        for t in range(count):
            pull[supports.dofs[begin + t]] += Y[first + t] * u0 + Y[second + t] * u1 + Y[third + t] * u2
    for k in range(rows.singles):
        i = rows.singles - 1 - k
        begin, count, at = supports.begin[rows.support[i]], supports.count[rows.support[i]], i * wide
        before, after = history[old + i], history[new + i]
        p = 0.0
        for t in range(count):
            d = supports.dofs[begin + t]
            p = p + Y[at + t] * pull[d]
            sums[d] -= Y[at + t] * (after - before)
        f = left[i] + p
        if after <= bounds.lower[i]:
            lower_adj[i] += f
            f = 0.0
        elif after >= bounds.upper[i]:
            upper_adj[i] += f
            f = 0.0
        u = -f * gram.inverse[i]
        left[i] = f - p + bounds.cfm * u
        if gram.inverse[i] > 0.0:
            inverse_adj[i] += f * (after - before) / gram.inverse[i]
        softness = softness + u * before
        b_adj[i] += u
        for t in range(count):
            d = supports.dofs[begin + t]
            Y_adj[at + t] += (after - before) * pull[d] + u * sums[d]
        for t in range(count):
            pull[supports.dofs[begin + t]] += Y[at + t] * u
    return softness


@kernel
def gauss_seidel_adjoint(
    rows: Rows,
    supports: Supports,
    bounds: Bounds,
    gram: Gram,
    cone: Int,
    sweeps: Int,
    Y: Array[Float],
    b: Array[Float],
    history: Array[Float],
    z: Array[Float],
    z_adj: Array[Float],
    impulse_adj: Array[Float],
    Y_adj: Array[Float],
    b_adj: Array[Float],
    inverse_adj: Array[Float],
    cross_adj: Array[Float],
    lower_adj: Array[Float],
    upper_adj: Array[Float],
    mu_adj: Array[Float],
    cfm_adj: Array[Float],
):
    """The sweeps in reverse."""
    n = len(b)
    sums, pull, left = local(Float, len(z)), local(Float, len(z)), local(Float, n)
    softness = 0.0
    for d in range(len(z)):
        sums[d] = z[d]
        pull[d] = z_adj[d]
    for r in range(rows.singles + 3 * rows.triples[0]):
        left[r] = impulse_adj[r]
    for back in range(sweeps):
        old, new = (sweeps - 1 - back) * n, (sweeps - back) * n
        softness = softness + sweep_back(
            rows,
            supports,
            bounds,
            gram,
            cone,
            Y,
            b,
            old,
            new,
            history,
            sums,
            pull,
            left,
            Y_adj,
            b_adj,
            inverse_adj,
            cross_adj,
            lower_adj,
            upper_adj,
            mu_adj,
        )
    cfm_adj[0] += softness


@func
def end_of(supports, here):
    """The last degree of freedom on the way to a support's first link."""
    return supports.dofs[supports.begin[here] + supports.first[here] - 1]


@kernel
def residual(
    rows: Rows,
    supports: Supports,
    bounds: Bounds,
    inverse: Array[Float],
    cone: Int,
    Y: Array[Float],
    b: Array[Float],
    z: Array[Float],
    impulse: Array[Float],
    left: Array[Float],
    place: Array[Float],
):
    """How far the impulses are from a solution: by how much one would change at most if it were visited once more.

    left: That as a share of the largest impulse.
    place: A degree of freedom of the body or joint where that is.
    """
    worst, at, wide = 0.0, 0.0, supports.widest
    for i in range(rows.singles):
        here = rows.support[i]
        begin = supports.begin[here]
        w = b[i] + bounds.cfm * impulse[i]
        for t in range(supports.count[here]):
            w = w + Y[i * wide + t] * z[supports.dofs[begin + t]]
        found = max(min(impulse[i] - w * inverse[i], bounds.upper[i]), bounds.lower[i])
        change = abs(found - impulse[i])
        if change > worst:
            worst = change
            at = 1.0 * end_of(supports, here)
    for c in range(rows.triples[0]):
        here, r = rows.support[rows.singles + c], rows.singles + 3 * c
        begin = supports.begin[here]
        w0 = b[r] + bounds.cfm * impulse[r]
        w1 = b[r + 1] + bounds.cfm * impulse[r + 1]
        w2 = b[r + 2] + bounds.cfm * impulse[r + 2]
        for t in range(supports.count[here]):
            sum = z[supports.dofs[begin + t]]
            w0 = w0 + Y[r * wide + t] * sum
            w1 = w1 + Y[(r + 1) * wide + t] * sum
            w2 = w2 + Y[(r + 2) * wide + t] * sum
        n0 = impulse[r] - w0 * inverse[r]
        n1 = impulse[r + 1] - w1 * inverse[r + 1]
        n2 = impulse[r + 2] - w2 * inverse[r + 2]
        if c >= rows.equations:
            n0 = max(n0, 0.0)
            bound = bounds.mu[c] * impulse[r]
            if cone == 0:
                n1 = max(min(n1, bound), -bound)
                n2 = max(min(n2, bound), -bound)
            else:
                length = sqrt(n1 * n1 + n2 * n2)
                scale = bound / length if length > bound else 1.0
                n1 = n1 * scale
                n2 = n2 * scale
        change = max(abs(n0 - impulse[r]), max(abs(n1 - impulse[r + 1]), abs(n2 - impulse[r + 2])))
        if change > worst:
            worst = change
            at = 1.0 * end_of(supports, here)
    most = largest_impulse(0, rows.singles + 3 * rows.triples[0], impulse)
    left[0] = worst / max(most, worst) if worst > 0.0 else 0.0
    place[0] = at


@kernel
def impulse_sums(rows: Rows, supports: Supports, Y: Array[Float], impulse: Array[Float], z: Array[Float]):
    """z = Y^T impulse."""
    for d in range(len(z)):
        z[d] = 0.0
    for r in range(rows.singles + 3 * rows.triples[0]):
        block = r
        if r >= rows.singles:
            block = rows.singles + (r - rows.singles) // 3
        here = rows.support[block]
        for t in range(supports.count[here]):
            z[supports.dofs[supports.begin[here] + t]] += Y[r * supports.widest + t] * impulse[r]
