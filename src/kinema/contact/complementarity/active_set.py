"""The active set: which rows are at a bound, and the linear system of the free rows, for Newton's method in `newton`.

All functions work on the rows that `delassus` lists; x is the impulse of each row, w its velocity.
"""

from __future__ import annotations

from kinema.contact.complementarity.delassus import FRICTION, NORMAL, REST, SINGLE, product, three_products
from kinema.contact.complementarity.friction_cone import friction_within
from kinema.contact.complementarity.pgs import diagonal_inverse
from kinema.lang import (
    Array,
    Float,
    Int,
    abs,
    cos,
    everywhere,
    floor,
    func,
    max,
    min,
    record,
    select,
    shared,
    sin,
    sqrt,
)

FIXED, FREE, LOWER, UPPER = 0, 1, 2, 3  # state of a row: zero impulse, w = 0, at its lower bound, at its upper bound


@record
class Known:
    """Data of the listed rows.

    part: 1 for rows that take part in this lane, 0 for rows that take part in other lanes only.
    goal: Velocities without impulses minus target velocities.
    lower, upper: Bounds.
    mu: Coefficient of friction, at the normal row of a contact.
    inverse: 1 / (diagonal + cfm).
    """

    part: Array[Float]
    goal: Array[Float]
    lower: Array[Float]
    upper: Array[Float]
    mu: Array[Float]
    inverse: Array[Float]


@record
class Marks:
    """The active set of the listed rows.

    state: FREE, or the bound where the row is.
    soft: Compliance added to the diagonal.
    turn: Direction in which the friction of a contact pushes: its two components at the first and second row.
    """

    state: Array[Int]
    soft: Array[Float]
    turn: Array[Float]


@record
class System:
    """The linear system of the free rows of an island.

    free: Index of each free row within the island.
    G: The matrix.
    pivot: Diagonal of each free row without the friction tied to it; after the elimination the inverse pivot.
    column: Workspace for a column.
    start: Where the island begins in `free` and `pivot`.
    base: Where it begins in G.
    """

    free: Array[Int]
    G: Array[Float]
    pivot: Array[Float]
    column: Array[Float]
    start: Int
    base: Int


@func
def row_inverses(listed, cone, cfm, A, known):
    """Compute 1 / (diagonal + cfm) of every row; 0 for rows that take no part.

    With the cone, the two friction rows use the largest eigenvalue of their 2 x 2 block.
    """
    kind, part, inverse = listed.kind, known.part, known.inverse
    for e in range(listed.islands):
        first, base = shared(listed.begin[e]), shared(listed.matrix[e])
        n = shared(listed.begin[e + 1]) - first
        for i in range(n):
            inverse[first + i] = part[first + i] * diagonal_inverse(A[base + i * n + i] + cfm)
        if cone > 0:
            for i in range(n):
                if shared(kind[first + i]) == NORMAL:
                    a11, a12 = A[base + (i + 1) * n + i + 1], A[base + (i + 1) * n + i + 2]
                    a22 = A[base + (i + 2) * n + i + 2]
                    half = 0.5 * (a11 - a22)
                    largest = 0.5 * (a11 + a22) + sqrt(half * half + a12 * a12)
                    inverse[first + i + 1] = part[first + i] * diagonal_inverse(largest + cfm)
                    inverse[first + i + 2] = inverse[first + i + 1]


@func
def sweep(listed, cone, A, cfm, known, x):
    """One PGS iteration: update every row once, the three rows of a contact together."""
    goal, inverse = known.goal, known.inverse
    for e in range(listed.islands):
        first, base = shared(listed.begin[e]), shared(listed.matrix[e])
        n = shared(listed.begin[e + 1]) - first
        for i in range(n):
            f, at, what = first + i, base + i * n, shared(listed.kind[first + i])
            # Single rows and equations.
            if what <= REST:
                w = goal[f] + cfm * x[f] + product(n, at, A, first, x)
                x[f] = max(min(x[f] - w * inverse[f], known.upper[f]), known.lower[f])
            # Contacts: the normal row, then friction within the pyramid row by row, within the cone both rows together.
            elif what == NORMAL:
                l0, l1, l2 = x[f], x[f + 1], x[f + 2]
                w0, w1, w2 = three_products(n, at, A, first, x)
                n0 = max(l0 - (w0 + goal[f] + cfm * l0) * inverse[f], 0.0)
                w1 = w1 + goal[f + 1] + cfm * l1 + A[at + n + i] * (n0 - l0)
                n1, bound = l1 - w1 * inverse[f + 1], known.mu[f] * n0
                if cone == 0:
                    n1 = max(min(n1, bound), -bound)
                w2 = w2 + goal[f + 2] + cfm * l2 + A[at + 2 * n + i] * (n0 - l0)
                if cone == 0:
                    w2 = w2 + A[at + 2 * n + i + 1] * (n1 - l1)
                n2 = l2 - w2 * inverse[f + 2]
                if cone == 0:
                    n2 = max(min(n2, bound), -bound)
                else:
                    length = sqrt(n1 * n1 + n2 * n2)
                    scale = bound / length if length > bound else 1.0
                    n1, n2 = n1 * scale, n2 * scale
                x[f] = n0
                x[f + 1] = n1
                x[f + 2] = n2


@func
def classify(listed, cone, known, x, w, marks):
    """Determine the active set: the state of each row, its compliance, and the direction of friction of each contact.

    A row is at a bound if a row update without the clamp would reach or pass it.
    """
    inverse, state, soft, turn = known.inverse, marks.state, marks.soft, marks.turn
    for f in range(listed.count):
        what = shared(listed.kind[f])
        # Equations are always free.
        if what > SINGLE and what < NORMAL:
            state[f] = FREE
            soft[f] = 0.0
        # Single rows: free, or at a bound.
        elif what == SINGLE:
            to, at = x[f] - w[f] * inverse[f], FREE
            if to <= known.lower[f]:
                at = LOWER
            elif to >= known.upper[f]:
                at = UPPER
            state[f] = at
            soft[f] = 0.0
        # Contacts: open; or closed, and each direction of friction is free or at a bound.
        elif what == NORMAL:
            x0 = x[f] - w[f] * inverse[f]
            x1, x2 = x[f + 1] - w[f + 1] * inverse[f + 1], x[f + 2] - w[f + 2] * inverse[f + 2]
            bound, s0, s1, s2 = known.mu[f] * x0, FREE, FREE, FREE
            along, across, yields = 1.0, 0.0, 0.0
            if x0 <= 0.0:
                s0, s1, s2 = FIXED, FIXED, FIXED
            elif cone == 0:
                if x1 >= bound:
                    s1 = UPPER
                elif x1 <= -bound:
                    s1 = LOWER
                if x2 >= bound:
                    s2 = UPPER
                elif x2 <= -bound:
                    s2 = LOWER
            else:
                length = sqrt(x1 * x1 + x2 * x2)
                if length >= bound:
                    s1 = UPPER
                    if length > 0.0:
                        along, across = x1 / length, x2 / length
                    if bound > 0.0:
                        yields = (length - bound) / (bound * inverse[f + 2])
                    else:
                        s2 = FIXED
            state[f] = s0
            state[f + 1] = s1
            state[f + 2] = s2
            soft[f] = 0.0
            soft[f + 1] = 0.0
            soft[f + 2] = yields
            turn[f] = along
            turn[f + 1] = across


@func
def guess(listed, cone, part, number, marks):
    """Guess an active set: in guess 1 all contacts stick; in later ones each sticks, slides some way, or is open.

    Lanes with `number` 0 keep theirs. Guesses are quasi-random, drawn by the index of the row and not by its place in
    the list, which depends on the other lanes.
    """
    for f in range(listed.count):
        if shared(listed.kind[f]) == NORMAL:
            draw = 0.618034 * number + 0.754878 * shared(listed.row[f])
            s0, s1, s2, along, across = FREE, FREE, FREE, 1.0, 0.0
            if number > 1.0:
                s0 = one_of(draw, 0.2, 0.0, FREE)
                s1 = one_of(1.324718 * draw, 0.33, 0.33, FREE)
                if cone == 0:
                    s2 = one_of(1.220744 * draw, 0.33, 0.33, FREE)
                elif s1 != FREE:
                    s1 = UPPER
                    along, across = cos(7.669 * draw), sin(7.669 * draw)
                if s0 != FREE:
                    s0, s1, s2 = FIXED, FIXED, FIXED
            if number > 0.0 and part[f] > 0.0:
                marks.state[f] = s0
                marks.state[f + 1] = s1
                marks.state[f + 2] = s2
                marks.soft[f + 2] = 0.0
                marks.turn[f] = along
                marks.turn[f + 1] = across


@func
def one_of(draw, low, high, rest):
    """LOWER with probability `low`, UPPER with probability `high`, else `rest`, by the fractional part of `draw`."""
    share = draw - floor(draw)
    found = rest
    if share < low:
        found = LOWER
    elif share > 1.0 - high:
        found = UPPER
    return found


@func
def tied(state):
    """Sign of a friction row at its bound: 1 at the upper, -1 at the lower bound, 0 if it is free."""
    sign = 0.0
    if state == UPPER:
        sign = 1.0
    elif state == LOWER:
        sign = -1.0
    return sign


@func
def snap(listed, cone, known, marks, x, change):
    """Set impulses at bounds to the value of the bound; `change` stores the differences."""
    state, turn = marks.state, marks.turn
    for f in range(listed.count):
        what = shared(listed.kind[f])
        if what > SINGLE and what < NORMAL:
            change[f] = 0.0
        elif what == SINGLE:
            to = x[f]
            if state[f] == LOWER:
                to = known.lower[f]
            elif state[f] == UPPER:
                to = known.upper[f]
            change[f] = to - x[f]
            x[f] = to
        elif what == NORMAL:
            n0 = 0.0 if state[f] == FIXED else x[f]
            n1, n2, bound = x[f + 1], x[f + 2], known.mu[f] * n0
            # Cone: rotate friction to the direction of sliding, and back afterwards.
            if cone > 0:
                along, across = turn[f], turn[f + 1]
                turned = along * x[f + 1] + across * x[f + 2]
                n2 = along * x[f + 2] - across * x[f + 1]
                n1 = turned
            if state[f + 1] != FREE:
                n1 = tied(state[f + 1]) * bound
            if state[f + 2] != FREE:
                n2 = tied(state[f + 2]) * bound
            if cone > 0:
                along, across = turn[f], turn[f + 1]
                turned = along * n1 - across * n2
                n2 = along * n2 + across * n1
                n1 = turned
            change[f], change[f + 1], change[f + 2] = n0 - x[f], n1 - x[f + 1], n2 - x[f + 2]
            x[f], x[f + 1], x[f + 2] = n0, n1, n2


@func
def turned(listed, cone, f, turn, x):
    """Entry f of x; for friction rows of the cone its component along or across the direction of sliding."""
    kind = listed.kind
    found = x[f]
    if cone > 0 and shared(kind[f]) == FRICTION:
        if shared(kind[f - 1]) == NORMAL:
            found = turn[f - 1] * x[f] + turn[f] * x[f + 1]
        else:
            found = turn[f - 2] * x[f] - turn[f - 1] * x[f - 1]
    return found


@func
def turned_column(first, n, base, j, kind, A, mu, marks, column):
    """Column j of an island's matrix, for the cone.

    A normal column includes the friction tied to it; friction columns are along or across the direction of sliding.
    """
    f, what, state, turn = first + j, shared(kind[first + j]), marks.state, marks.turn
    if what == NORMAL:
        tie1, tie2 = mu[f] * tied(state[f + 1]), mu[f] * tied(state[f + 2])
        c1, c2 = turn[f] * tie1 - turn[f + 1] * tie2, turn[f] * tie2 + turn[f + 1] * tie1
        for i in range(n):
            at = base + i * n + j
            column[first + i] = A[at] + c1 * A[at + 1] + c2 * A[at + 2]
    elif what == FRICTION:
        second = shared(kind[f - 1]) == FRICTION
        for i in range(n):
            at = base + i * n + j
            if second:
                column[first + i] = turn[f - 2] * A[at] - turn[f - 1] * A[at - 1]
            else:
                column[first + i] = turn[f - 1] * A[at] + turn[f] * A[at + 1]
    else:
        for i in range(n):
            column[first + i] = A[base + i * n + j]


@func
def reduce_island(e, listed, cone, A, cfm, more, own, mu, marks, system):
    """Form the linear system of the free rows of an island; returns the number of free rows.

    A row that is free in some lanes only becomes the equation x = 0 in the others.

    more, own: Extra compliance beyond cfm: `more` times the diagonal `own`.
    """
    first, base = shared(listed.begin[e]), shared(listed.matrix[e])
    n = shared(listed.begin[e + 1]) - first
    state, free, G, start, to = marks.state, system.free, system.G, system.start, system.base
    count = 0
    # Rows that are free in any lane.
    for i in range(n):
        if not everywhere(state[first + i] != FREE):
            free[start + count] = i
            count = count + 1
    for q in range(count):
        j = shared(free[start + q])
        f, what = first + j, shared(listed.kind[first + j])
        # Column j, plus the columns of the friction tied to its row.
        if cone == 0:
            c1, c2, also = 0.0, 0.0, 0
            if what == NORMAL:
                c1, c2 = mu[f] * tied(state[f + 1]), mu[f] * tied(state[f + 2])
                also = 0 if everywhere(c1 == 0.0 and c2 == 0.0) else 1
            for p in range(count):
                i = shared(free[start + p])
                at = base + i * n + j
                entry = A[at]
                if also > 0:
                    entry = entry + c1 * A[at + 1] + c2 * A[at + 2]
                G[to + p * count + q] = select(state[first + i] == FREE and state[f] == FREE, entry, 0.0)
        else:
            turned_column(first, n, base, j, listed.kind, A, mu, marks, system.column)
            for p in range(count):
                i = shared(free[start + p])
                entry = turned(listed, cone, first + i, marks.turn, system.column)
                G[to + p * count + q] = select(state[first + i] == FREE and state[f] == FREE, entry, 0.0)
        # Compliance on the diagonal; 1 where the row is free in other lanes only.
        yields, here = cfm + more * own[f] + marks.soft[f], to + q * count + q
        system.pivot[start + q] = select(state[f] == FREE, A[base + j * n + j] + yields, 1.0)
        G[here] = select(state[f] == FREE, G[here] + yields, 1.0)
    return count


@func
def eliminate(count, singular, system, right, keep):
    """Solve G x = right in place, by elimination without pivoting; unknowns with a pivot of rounding error are 0.

    keep: Whether G becomes its factors, for `solve_again` and `solve_transposed`; a compile-time constant.
    """
    G, own, start, base = system.G, system.pivot, system.start, system.base
    # Forward elimination.
    for p in range(count):
        row = base + p * count
        pivot = G[row + p]
        kept = abs(pivot) > singular * own[start + p]
        inverse = select(kept, 1.0 / select(kept, pivot, 1.0), 0.0)
        own[start + p] = inverse
        for i in range(p + 1, count):
            to = base + i * count
            factor = G[to + p] * inverse
            if keep:
                G[to + p] = factor
            if not everywhere(factor == 0.0):
                for j in range(p + 1, count):
                    G[to + j] = G[to + j] - factor * G[row + j]
                right[i] = right[i] - factor * right[p]
    # Back substitution.
    for back in range(count):
        p = count - 1 - back
        sum = right[p]
        for j in range(p + 1, count):
            sum = sum - G[base + p * count + j] * right[j]
        right[p] = sum * own[start + p]


@func
def solve_again(count, system, right):
    """Solve G x = right in place, with the factors that `eliminate` kept."""
    G, inverse, start, base = system.G, system.pivot, system.start, system.base
    for p in range(count):
        for i in range(p + 1, count):
            right[i] = right[i] - G[base + i * count + p] * right[p]
    for back in range(count):
        p = count - 1 - back
        sum = right[p]
        for j in range(p + 1, count):
            sum = sum - G[base + p * count + j] * right[j]
        right[p] = sum * inverse[start + p]


@func
def solve_transposed(count, system, right):
    """Solve G^T y = right in place, with the factors that `eliminate` kept."""
    G, inverse, start, base = system.G, system.pivot, system.start, system.base
    for p in range(count):
        share = right[p] * inverse[start + p]
        right[p] = share
        for j in range(p + 1, count):
            right[j] = right[j] - share * G[base + p * count + j]
    for back in range(count):
        p = count - 1 - back
        share = right[p]
        for j in range(p):
            right[j] = right[j] - share * G[base + p * count + j]


@func
def move(first, count, listed, cone, mu, marks, system, step, x):
    """Add `step` to the impulses of the free rows and update the friction tied to them."""
    kind, state, turn = listed.kind, marks.state, marks.turn
    for q in range(count):
        j = shared(system.free[system.start + q])
        f, change, what = first + j, step[q], shared(kind[first + j])
        if what == NORMAL:
            s1, s2 = tied(state[f + 1]), tied(state[f + 2])
            x[f] = x[f] + change
            if cone > 0:
                d1, d2 = mu[f] * s1 * change, mu[f] * s2 * change
                x[f + 1] = x[f + 1] + turn[f] * d1 - turn[f + 1] * d2
                x[f + 2] = x[f + 2] + turn[f] * d2 + turn[f + 1] * d1
            else:
                bound = mu[f] * x[f]
                x[f + 1] = select(s1 == 0.0, x[f + 1], s1 * bound)
                x[f + 2] = select(s2 == 0.0, x[f + 2], s2 * bound)
        elif what == FRICTION and cone > 0:
            if shared(kind[f - 1]) == NORMAL:
                x[f] = x[f] + turn[f - 1] * change
                x[f + 1] = x[f + 1] + turn[f] * change
            else:
                x[f] = x[f] + turn[f - 2] * change
                x[f - 1] = x[f - 1] - turn[f - 1] * change
        else:
            x[f] = x[f] + change


@func
def change_at(f, listed, cone, known, x, w):
    """The largest change of an impulse [N s] that one more update of a row, or a contact's three, would make."""
    inverse, change, what = known.inverse, 0.0, shared(listed.kind[f])
    if what == SINGLE:
        change = abs(max(min(x[f] - w[f] * inverse[f], known.upper[f]), known.lower[f]) - x[f])
    elif what < NORMAL:
        change = abs(w[f] * inverse[f])
    elif what == NORMAL:
        n0 = max(x[f] - w[f] * inverse[f], 0.0)
        n1, n2 = x[f + 1] - w[f + 1] * inverse[f + 1], x[f + 2] - w[f + 2] * inverse[f + 2]
        n1, n2 = friction_within(cone, n1, n2, known.mu[f] * x[f])
        change = max(abs(n0 - x[f]), max(abs(n1 - x[f + 1]), abs(n2 - x[f + 2])))
    return change


@func
def largest_change(listed, cone, known, x, w):
    """The largest change of an impulse [N s] that one more update of any row would make."""
    worst = 0.0
    for f in range(listed.count):
        worst = max(worst, change_at(f, listed, cone, known, x, w))
    return worst


@func
def largest(count, x):
    """The largest magnitude of the first `count` entries."""
    found = 0.0
    for f in range(count):
        found = max(found, abs(x[f]))
    return found
