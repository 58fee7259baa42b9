"""Constraint impulses: a mixed linear complementarity problem (MLCP), solved by projected Gauss-Seidel (PGS).

With the impulses lambda of the constraint rows, the Delassus matrix A = J M^-1 J^T, and b the velocity of the rows
without impulses minus their target velocity:

    w = A lambda + b + cfm lambda                                                                            (1)
    a single row:        lower <= lambda <= upper, w >= 0 where lambda = lower, w <= 0 where lambda = upper, else w = 0
    three equations:     w = 0
    a contact:           its normal row with the bounds 0 and infinity; then two rows of friction, each with the bounds
                         -+ mu lambda_n (a pyramid), or both together within a circle of radius mu lambda_n (the cone)

PGS never forms A. With M = L^T D L the rows Y = D^-1/2 L^-T J^T give A = Y Y^T, and PGS maintains

    z = Y^T lambda                                                                                           (2)

with one entry per degree of freedom. The update of row r reads z where the row has entries, clamps lambda_r to its
bounds and changes z at the same entries; `inverse` is the over-relaxation factor of the row over (A_rr + cfm):

    w_r = Y_r z + b_r + cfm lambda_r                                                                         (3)
    lambda_r' = clamp(lambda_r - inverse_r w_r)                                                              (4)
    z' = z + Y_r (lambda_r' - lambda_r)                                                                      (5)

So an iteration costs as much as Y has entries, and constraints without common degrees of freedom do not interact. The
three rows of an equation or a contact are updated together: their velocities (3) are computed at once, and the
off-diagonal entries A_01, A_02, A_12, `Gram.cross`, add the effect of an earlier row on a later one.

The adjoint reverses the PGS iterations that ran. So it is the derivative of the computed impulses, also with respect
to the initial impulses, not of the exact solution. It passes through every clamp with its recorded state: the cotangent
of a friction row at its bound goes to the normal impulse and to mu [Qiao et al. 2021, sec. 4.3; their algorithm 1 omits
the clamps]. It reads the impulses of all iterations from `history` and reconstructs z in reverse.
"""

from __future__ import annotations

from functools import cache

from kinema.lang import Array, Float, Int, Kernel, abs, func, kernel, local, max, min, record, select, sqrt

IMMOVABLE = 1e-20  # [1/kg] a row is immovable if A_rr + cfm is at most this


@record
class Rows:
    """The constraint rows: single rows first, then triples; the first triples are equations, the others contacts.

    singles, equations: Number of single rows and of equation triples.
    triples: Number of triples, equations and contacts together, shape (1).
    support: Index in `Supports` of every single row and every triple.
    """

    singles: Int
    equations: Int
    triples: Array[Int]
    support: Array[Int]


@record
class Supports:
    """Degrees of freedom that a constraint couples: from the root to a first link, then the others to a second link.

    begin: Offset of each list in `dofs`.
    first: Number of degrees of freedom from the root to the first link.
    count: Number of degrees of freedom in the list.
    common: Number of degrees of freedom that both links share.
    dofs: The lists.
    widest: Length of the longest list.
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

    lower, upper: Bounds of single rows [N s].
    mu: Coefficient of friction of triples [-].
    cfm: Constraint force mixing (CFM), the compliance of all rows [1/kg].
    """

    lower: Array[Float]
    upper: Array[Float]
    mu: Array[Float]
    cfm: Float


@record
class Gram:
    """The entries of the Delassus matrix A = Y Y^T that row updates need.

    An inactive contact has a zero inverse for its normal row, and so zero impulse. With the cone, the two friction rows
    take one gradient step together and converge to the direction opposite to sliding: both use the inverse of the
    largest eigenvalue of their 2 x 2 block, and A_12 is set to 0.

    inverse: Over-relaxation factor / (A_rr + cfm) of every row.
    cross: A_01, A_02, A_12 of every triple.
    """

    inverse: Array[Float]
    cross: Array[Float]


@func
def support_of(rows, r):
    """Index of the support of row r."""
    block = r
    if r >= rows.singles:
        block = rows.singles + (r - rows.singles) // 3
    return rows.support[block]


@func
def end_of(supports, here):
    """The last degree of freedom on the way to a support's first link."""
    return supports.dofs[supports.begin[here] + supports.first[here] - 1]


@func
def row_velocity(support, supports, Y, r, z):
    """Y_r z: the velocity change of a row due to impulses with z = Y^T lambda."""
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
    """1 / diagonal; 0, with derivative 0, for an immovable row, which then has no impulse."""
    movable = diagonal > IMMOVABLE
    return select(movable, 1.0 / select(movable, diagonal, 1.0), 0.0)


# -- entries of the Delassus matrix ------------------------------------------------------------------------------------


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
    """Fill `Gram`, without over-relaxation; `active` is 0 for inactive contacts, 1 for the others."""
    # Single rows: A_ii.
    for i in range(rows.singles):
        own = 0.0
        for t in range(supports.count[rows.support[i]]):
            y = Y[i * supports.widest + t]
            own = own + y * y
        inverse[i] = diagonal_inverse(own + cfm)
    # Equations and contacts: the symmetric 3 x 3 block of their rows.
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
        # Cone: both friction rows use the largest eigenvalue of their 2 x 2 block.
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
    """Multiply the inverses of contact rows by their over-relaxation factors: one for normal, one for friction rows."""
    fixed = rows.singles + 3 * rows.equations
    for r in range(fixed):
        relaxed[r] = inverse[r]
    for c in range(rows.triples[0] - rows.equations):
        r = fixed + 3 * c
        relaxed[r] = relaxation[0] * inverse[r]
        relaxed[r + 1] = relaxation[1] * inverse[r + 1]
        relaxed[r + 2] = relaxation[1] * inverse[r + 2]


# -- PGS iterations ----------------------------------------------------------------------------------------------------


@func
def sweep(rows, supports, bounds, gram, cone, Y, b, old, new, history, sums):
    """One PGS iteration: update every row once; returns the largest change of an impulse [N s].

    `history` holds the impulses before the iteration from `old` on and the new ones from `new` on; `sums` is z.
    """
    wide, largest = supports.widest, 0.0
    # Single rows.
    for i in range(rows.singles):
        begin, count = supports.begin[rows.support[i]], supports.count[rows.support[i]]
        before = history[old + i]
        # (3), (4), (5)
        w = b[i] + bounds.cfm * before
        for t in range(count):
            w = w + Y[i * wide + t] * sums[supports.dofs[begin + t]]
        found = max(min(before - w * gram.inverse[i], bounds.upper[i]), bounds.lower[i])
        history[new + i] = found
        change = found - before
        largest = max(largest, abs(change))
        for t in range(count):
            sums[supports.dofs[begin + t]] += Y[i * wide + t] * change
    # Triples: equations and contacts.
    for c in range(rows.triples[0]):
        block, r = rows.support[rows.singles + c], rows.singles + 3 * c
        begin, count = supports.begin[block], supports.count[block]
        first, second, third = r * wide, (r + 1) * wide, (r + 2) * wide
        l0, l1, l2 = history[old + r], history[old + r + 1], history[old + r + 2]
        # (3) of the three rows, without the impulses of the earlier rows of the triple
        w0 = b[r] + bounds.cfm * l0
        w1 = b[r + 1] + bounds.cfm * l1 - gram.cross[3 * c] * l0
        w2 = b[r + 2] + bounds.cfm * l2 - gram.cross[3 * c + 1] * l0 - gram.cross[3 * c + 2] * l1
        w0_odd, w1_odd, w2_odd = 0.0, 0.0, 0.0  # two partial sums per row halve the chain of dependent additions
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
        # (4): the normal row, then friction within mu times its impulse; pyramid: row by row, cone: both rows together
        i1, i2 = gram.inverse[r + 1], gram.inverse[r + 2]
        x1 = l1 - (w1 + w1_odd) * i1
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
        # the new impulses, and (5)
        history[new + r] = n0
        history[new + r + 1] = n1
        history[new + r + 2] = n2
        d0, d1, d2 = n0 - l0, n1 - l1, n2 - l2
        largest = max(largest, max(abs(d0), max(abs(d1), abs(d2))))
        for t in range(count):
            d = supports.dofs[begin + t]
            sums[d] = sums[d] + Y[first + t] * d0 + Y[second + t] * d1 + Y[third + t] * d2
    return largest


@func
def sweep_adjoint(
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
    sums_adj,
    impulse_adj,
    Y_adj,
    b_adj,
    inverse_adj,
    cross_adj,
    lower_adj,
    upper_adj,
    mu_adj,
):
    """Adjoint of `sweep`, the last row update first; `sums` returns to z before the iteration.

    Each row has its impulse l before and n after the update, x = l - w inverse before the clamp, and d = n - l.
    Cotangents: g of n, f of x, u of w, p of d; `impulse_adj` of the impulses, `sums_adj` of z.

    Returns:
        The cotangent of cfm.
    """
    wide, cfm_adj = supports.widest, 0.0
    # Triples, the last one first.
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
        # Adjoint of (5): p = Y z_adj; z before the update.
        p0, p1, p2 = 0.0, 0.0, 0.0
        for t in range(count):
            d = supports.dofs[begin + t]
            p0 = p0 + Y[first + t] * sums_adj[d]
            p1 = p1 + Y[second + t] * sums_adj[d]
            p2 = p2 + Y[third + t] * sums_adj[d]
            sums[d] -= Y[first + t] * d0 + Y[second + t] * d1 + Y[third + t] * d2
        # Adjoint of the clamps of (4), the last row first: at its bound, friction passes its cotangent to the bound.
        contact = c >= rows.equations
        bound, bound_adj = bounds.mu[c] * n0, 0.0
        g1, f2 = impulse_adj[r + 1] + p1, impulse_adj[r + 2] + p2
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
                elif bound <= 0.0:  # zero normal impulse and zero sliding, as under a body that falls from rest
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
        f0 = impulse_adj[r] + p0 + bounds.mu[c] * bound_adj
        if contact and n0 <= 0.0:
            f0 = 0.0
        u0 = -f0 * i0
        # Adjoint of x = l - w inverse, and of (3).
        impulse_adj[r] = f0 - p0 + bounds.cfm * u0
        impulse_adj[r + 1] = f1 - p1 - x12 * u2 + bounds.cfm * u1
        impulse_adj[r + 2] = f2 - p2 + bounds.cfm * u2
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
        cfm_adj = cfm_adj + u0 * l0 + u1 * l1 + u2 * l2
        b_adj[r] += u0
        b_adj[r + 1] += u1
        b_adj[r + 2] += u2
        for t in range(count):
            d = supports.dofs[begin + t]
            Y_adj[first + t] += d0 * sums_adj[d] + u0 * sums[d]
            Y_adj[second + t] += d1 * sums_adj[d] + u1 * sums[d]
            Y_adj[third + t] += d2 * sums_adj[d] + u2 * sums[d]
        for t in range(count):
            sums_adj[supports.dofs[begin + t]] += Y[first + t] * u0 + Y[second + t] * u1 + Y[third + t] * u2
    # Single rows, the last one first.
    for k in range(rows.singles):
        i = rows.singles - 1 - k
        begin, count, at = supports.begin[rows.support[i]], supports.count[rows.support[i]], i * wide
        before, after = history[old + i], history[new + i]
        # Adjoint of (5), of the clamp of (4), and of (3).
        p = 0.0
        for t in range(count):
            d = supports.dofs[begin + t]
            p = p + Y[at + t] * sums_adj[d]
            sums[d] -= Y[at + t] * (after - before)
        f = impulse_adj[i] + p
        if after <= bounds.lower[i]:
            lower_adj[i] += f
            f = 0.0
        elif after >= bounds.upper[i]:
            upper_adj[i] += f
            f = 0.0
        u = -f * gram.inverse[i]
        impulse_adj[i] = f - p + bounds.cfm * u
        if gram.inverse[i] > 0.0:
            inverse_adj[i] += f * (after - before) / gram.inverse[i]
        cfm_adj = cfm_adj + u * before
        b_adj[i] += u
        for t in range(count):
            d = supports.dofs[begin + t]
            Y_adj[at + t] += (after - before) * sums_adj[d] + u * sums[d]
        for t in range(count):
            sums_adj[supports.dofs[begin + t]] += Y[at + t] * u
    return cfm_adj


@func
def largest_impulse(start, count, impulse):
    """The largest magnitude of `count` impulses from `start` on [N s]."""
    found = 0.0
    for r in range(count):
        found = max(found, abs(impulse[start + r]))
    return found


@cache
def gauss_seidel(stops: bool) -> tuple[Kernel, Kernel]:
    """The kernels of projected Gauss-Seidel (PGS) and of its adjoint.

    Args:
        stops: Whether PGS stops at the tolerance. Otherwise every iteration runs, and the kernels need no masks for
            lanes that stop before the others: this saves a tenth of the instructions of a batch forward, and a sixth in
            the adjoint.
    """

    @kernel
    def gauss_seidel(
        rows: Rows,
        supports: Supports,
        bounds: Bounds,
        gram: Gram,
        cone: Int,
        sweeps: Int,
        tolerance: Float,
        Y: Array[Float],
        b: Array[Float],
        start: Array[Float],
        history: Array[Float],
        z: Array[Float],
        impulse: Array[Float],
        done: Array[Int],
        iterations: Array[Float],
    ):
        """Run PGS for `sweeps` iterations, or until none changes by more than `tolerance` times the largest impulse.

        start: Impulses before the first iteration [N s].
        history: Impulses before the first and after each iteration, shape (rows * (sweeps + 1)).
        z: Y^T impulse.
        done, iterations: Number of iterations that ran.
        """
        n, every = len(b), rows.singles + 3 * rows.triples[0]
        sums = local(Float, len(z))
        for d in range(len(z)):
            sums[d] = 0.0
        # (2) of the initial impulses
        for r in range(every):
            history[r] = start[r]
            add_row(support_of(rows, r), supports, Y, r, start[r], sums)
        count = 0
        for s in range(sweeps):
            change = sweep(rows, supports, bounds, gram, cone, Y, b, s * n, (s + 1) * n, history, sums)
            count = s + 1
            if stops and change <= tolerance * largest_impulse((s + 1) * n, every, history):
                break
        for d in range(len(z)):
            z[d] = sums[d]
        for r in range(every):
            impulse[r] = history[count * n + r]
        done[0] = count
        iterations[0] = count

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
        start: Array[Float],
        history: Array[Float],
        z: Array[Float],
        done: Array[Int],
        z_adj: Array[Float],
        found_adj: Array[Float],
        Y_adj: Array[Float],
        b_adj: Array[Float],
        start_adj: Array[Float],
        inverse_adj: Array[Float],
        cross_adj: Array[Float],
        lower_adj: Array[Float],
        upper_adj: Array[Float],
        mu_adj: Array[Float],
        cfm_adj: Array[Float],
    ):
        """Adjoint of the PGS iterations that ran, and of z = Y^T start."""
        n, every = len(b), rows.singles + 3 * rows.triples[0]
        sums, sums_adj, impulse_adj = local(Float, len(z)), local(Float, len(z)), local(Float, n)
        count, total = sweeps, 0.0
        if stops:
            count = done[0]
        for d in range(len(z)):
            sums[d] = z[d]
            sums_adj[d] = z_adj[d]
        for r in range(every):
            impulse_adj[r] = found_adj[r]
        for back in range(count):
            old, new = (count - 1 - back) * n, (count - back) * n
            total = total + sweep_adjoint(
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
                sums_adj,
                impulse_adj,
                Y_adj,
                b_adj,
                inverse_adj,
                cross_adj,
                lower_adj,
                upper_adj,
                mu_adj,
            )
        cfm_adj[0] += total
        # Adjoint of (2) of the initial impulses.
        for r in range(every):
            here, given = support_of(rows, r), impulse_adj[r]
            for t in range(supports.count[here]):
                along = sums_adj[supports.dofs[supports.begin[here] + t]]
                given = given + Y[r * supports.widest + t] * along
                Y_adj[r * supports.widest + t] += start[r] * along
            start_adj[r] += given

    return gauss_seidel, gauss_seidel_adjoint


@kernel
def impulse_sums(rows: Rows, supports: Supports, Y: Array[Float], impulse: Array[Float], z: Array[Float]):
    """z = Y^T impulse (2)."""
    for d in range(len(z)):
        z[d] = 0.0
    for r in range(rows.singles + 3 * rows.triples[0]):
        here = support_of(rows, r)
        for t in range(supports.count[here]):
            z[supports.dofs[supports.begin[here] + t]] += Y[r * supports.widest + t] * impulse[r]
