"""The complementarity problem of `mlcp`, solved to round-off by Newton's method, and the derivative of its solution.

Few rows take part: equations, dry friction, and what would come too near without impulses. Their matrix A = Y Y^T is
formed, island by island: rows that share no degree of freedom, directly or through others, do not meet. A few sweeps of
Gauss-Seidel make a guess. It says which rows are at a bound, and with that known the problem is linear: rows at a bound
have its value, friction that slides is tied to its normal impulse, all others have w = 0; elimination solves that, and
the solution is the next guess. Rows that then come too near take part as well, and it is done again.

Guesses may go round in circles. Then the problem is made softer, until it is solved, and harder again from solution to
solution. Where that path ends, impulses are held where they are: of a problem with more softness h, and b - h lambda in
place of b, lambda is a solution if it is one of the problem itself [a proximal step]; h shrinks with success, which
moves lambda on. Light links that are jammed by friction may have a solution far from all of these: all contacts that
stick are the second guess, and where nothing else helps guesses are drawn, always the same ones. A pivot that is round-
off leaves its impulse as it is: impulses that others can take over, as those of redundant contacts, stay where the
sweeps left them.

A contact that slides with the cone of friction is seen along the direction d in which friction pushes and across it:
along, friction is tied, d lambda_d = mu d lambda_n; across, w = -|w| lambda_t / (mu lambda_n) gives

    d w_e + soft d lambda_e = 0,    soft = |w| / (mu lambda_n)

The derivative is that of the implicit function: with E the columns of the free rows (with what is tied to them) and
W = A + cfm, impulses move by E x, where (W E)_free x = -(dW lambda + db + ...)_free. Its transpose is one more
elimination, and neither sweeps nor guesses are differentiated.

Worlds of a batch run in lanes. Which rows take part is known to all lanes of a register, so that all of them take the
same way through memory; each has its own marks, and those that are done wait. So a world has the bits of a run alone.
"""

from __future__ import annotations

from kinema.contact.islands import (
    FRICTION,
    NORMAL,
    REST,
    SINGLE,
    find_islands,
    first_row,
    form_matrices,
    home_of,
    list_rows,
    product,
    row_velocities,
    three_products,
)
from kinema.contact.mlcp import Bounds, Rows, Supports, diagonal_inverse, end_of
from kinema.contact.scaling import scale_row, scale_row_back, scale_three, scale_three_back, velocities_from
from kinema.kinematics.tree import Branches
from kinema.lang import (
    Array,
    Float,
    Int,
    abs,
    everywhere,
    floor,
    func,
    kernel,
    local,
    max,
    min,
    record,
    select,
    shared,
    sqrt,
)

FIXED, FREE, LOWER, UPPER = 0, 1, 2, 3  # a row: at zero, with w = 0, at its lower or its upper bound


@record
class Effort:
    """How hard `newton_impulses` tries.

    precision: Largest error of an impulse as a share of the largest impulse [-].
    accepted: The same after three failures in a row: what round-off allows of rows of very unlike masses [-].
    singular: Pivots below this share of their diagonal are round-off [-].
    softer: Softness after a failure, as a share of the mean diagonal; ten times as much after a further one [-].
    held: The least softness that holds impulses [-].
    sweeps: Before the first elimination.
    steps: Eliminations before that is a failure.
    most: Eliminations in all, at most.
    """

    precision: Float
    accepted: Float
    singular: Float
    softer: Float
    held: Float
    sweeps: Int
    steps: Int
    most: Int


@func
def row_inverses(islands, begin, matrix, kind, cone, cfm, A, part, inverse):
    """1 / (diagonal + cfm) of every row, 0 of rows that take no part.

    With the cone, the two rows of friction have one over the largest eigenvalue of their block.
    """
    for e in range(islands):
        first, base = shared(begin[e]), shared(matrix[e])
        n = shared(begin[e + 1]) - first
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
def sweep(islands, begin, matrix, kind, cone, A, cfm, goal, inverse, lower, upper, mu, x):
    """Visit every row once; contacts are visited whole."""
    for e in range(islands):
        first, base = shared(begin[e]), shared(matrix[e])
        n = shared(begin[e + 1]) - first
        for i in range(n):
            f, at, what = first + i, base + i * n, shared(kind[first + i])
            if what <= REST:
                w = goal[f] + cfm * x[f] + product(n, at, A, first, x)
                x[f] = max(min(x[f] - w * inverse[f], upper[f]), lower[f])
            elif what == NORMAL:
                l0, l1, l2 = x[f], x[f + 1], x[f + 2]
                w0, w1, w2 = three_products(n, at, A, first, x)
                n0 = max(l0 - (w0 + goal[f] + cfm * l0) * inverse[f], 0.0)
                w1 = w1 + goal[f + 1] + cfm * l1 + A[at + n + i] * (n0 - l0)
                n1, bound = l1 - w1 * inverse[f + 1], mu[f] * n0
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
def classify(count, kind, cone, inverse, lower, upper, mu, x, w, state, soft, turn):
    """What each row does: free or at which bound, how soft it is, and per contact the direction of its first friction.

    A row is at a bound if a visit would take it there or beyond.
    """
    for f in range(count):
        what = shared(kind[f])
        if what > SINGLE and what < NORMAL:
            state[f] = FREE
            soft[f] = 0.0
        elif what == SINGLE:
            to, at = x[f] - w[f] * inverse[f], FREE
            if to <= lower[f]:
                at = LOWER
            elif to >= upper[f]:
                at = UPPER
            state[f] = at
            soft[f] = 0.0
        elif what == NORMAL:
            x0 = x[f] - w[f] * inverse[f]
            x1, x2 = x[f + 1] - w[f + 1] * inverse[f + 1], x[f + 2] - w[f + 2] * inverse[f + 2]
            bound, s0, s1, s2 = mu[f] * x0, FREE, FREE, FREE
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
def guess(count, kind, cone, part, number, state, soft, turn):
    """Guess number 1: all contacts stick. Further ones: each sticks, slides one way or another, or is open.

    Only where `number` is not 0, and with the cone the first of them is all there is.
    """
    for f in range(count):
        if shared(kind[f]) == NORMAL:
            draw = 0.618034 * number + 0.754878 * f
            s0, s1, s2 = FREE, FREE, FREE
            if number > 1.0 and cone == 0:
                s0 = one_of(draw, 0.2, 0.0, FREE)
                s1 = one_of(1.324718 * draw, 0.33, 0.33, FREE)
                s2 = one_of(1.220744 * draw, 0.33, 0.33, FREE)
                if s0 != FREE:
                    s0, s1, s2 = FIXED, FIXED, FIXED
            if number > 0.0 and part[f] > 0.0:
                state[f] = s0
                state[f + 1] = s1
                state[f + 2] = s2
                soft[f + 2] = 0.0
                turn[f] = 1.0
                turn[f + 1] = 0.0


@func
def one_of(draw, low, high, rest):
    """LOWER or UPPER with these shares, else `rest`, by the fraction of a number."""
    share = draw - floor(draw)
    found = rest
    if share < low:
        found = LOWER
    elif share > 1.0 - high:
        found = UPPER
    return found


@func
def tied(state):
    """The sign of friction as a share of its bound, 0 if it is free."""
    sign = 0.0
    if state == UPPER:
        sign = 1.0
    elif state == LOWER:
        sign = -1.0
    return sign


@func
def snap(count, kind, cone, lower, upper, mu, state, turn, x, change):
    """Impulses at bounds get their value; `change` is what that changes."""
    for f in range(count):
        what = shared(kind[f])
        if what > SINGLE and what < NORMAL:
            change[f] = 0.0
        elif what == SINGLE:
            to = x[f]
            if state[f] == LOWER:
                to = lower[f]
            elif state[f] == UPPER:
                to = upper[f]
            change[f] = to - x[f]
            x[f] = to
        elif what == NORMAL:
            n0 = 0.0 if state[f] == FIXED else x[f]
            n1, n2, bound = x[f + 1], x[f + 2], mu[f] * n0
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
def turned(kind, cone, f, turn, x):
    """A number of row f as seen along and across the direction of sliding, for rows of friction of the cone."""
    found = x[f]
    if cone > 0 and shared(kind[f]) == FRICTION:
        if shared(kind[f - 1]) == NORMAL:
            found = turn[f - 1] * x[f] + turn[f] * x[f + 1]
        else:
            found = turn[f - 2] * x[f] - turn[f - 1] * x[f - 1]
    return found


@func
def reduce_island(first, n, base, kind, cone, A, cfm, mu, state, soft, turn, transposed, free, column, G, pivot):
    """The linear system of the free rows of an island; returns their number.

    A row that is free in some lanes only is an equation x = 0 in the others.

    free: Numbers of the rows.
    column: Room for a column.
    G: The matrix, transposed or not.
    pivot: Of each free row, its diagonal without what is tied to it.
    """
    count = 0
    for i in range(n):
        if not everywhere(state[first + i] != FREE):
            free[count] = i
            count = count + 1
    for q in range(count):
        j = shared(free[q])
        f, what = first + j, shared(kind[first + j])
        if what == NORMAL:
            tie1, tie2 = mu[f] * tied(state[f + 1]), mu[f] * tied(state[f + 2])
            c1, c2 = tie1, tie2
            if cone > 0:
                c1, c2 = turn[f] * tie1 - turn[f + 1] * tie2, turn[f] * tie2 + turn[f + 1] * tie1
            for i in range(n):
                at = base + i * n + j
                column[first + i] = A[at] + c1 * A[at + 1] + c2 * A[at + 2]
        elif what == FRICTION and cone > 0:
            second = shared(kind[f - 1]) == FRICTION
            for i in range(n):
                at = base + i * n + j
                column[first + i] = A[at]
                if second:
                    column[first + i] = turn[f - 2] * A[at] - turn[f - 1] * A[at - 1]
                else:
                    column[first + i] = turn[f - 1] * A[at] + turn[f] * A[at + 1]
        else:
            for i in range(n):
                column[first + i] = A[base + i * n + j]
        for p in range(count):
            i = shared(free[p])
            entry = turned(kind, cone, first + i, turn, column)
            both = state[first + i] == FREE and state[f] == FREE
            if p == q:
                entry = entry + cfm + soft[f]
                own = A[base + j * n + j] + cfm + soft[f]
                pivot[q] = select(both, own, 1.0)
                entry = select(both, entry, 1.0)
            else:
                entry = select(both, entry, 0.0)
            to = p * count + q
            if transposed > 0:
                to = q * count + p
            G[to] = entry
    return count


@func
def eliminate(count, singular, diagonal, G, right):
    """Solve G x = right in place, without exchanges of rows; unknowns whose pivot is round-off are 0."""
    for p in range(count):
        pivot, row = G[p * count + p], p * count
        kept = abs(pivot) > singular * diagonal[p]
        inverse = select(kept, 1.0 / select(kept, pivot, 1.0), 0.0)
        diagonal[p] = inverse
        for i in range(p + 1, count):
            factor = G[i * count + p] * inverse
            if not everywhere(factor == 0.0):
                to = i * count
                for j in range(p + 1, count):
                    G[to + j] = G[to + j] - factor * G[row + j]
                right[i] = right[i] - factor * right[p]
    for back in range(count):
        p = count - 1 - back
        sum = right[p]
        for j in range(p + 1, count):
            sum = sum - G[p * count + j] * right[j]
        right[p] = sum * diagonal[p]


@func
def move(first, count, kind, cone, mu, state, turn, free, step, x):
    """Change the impulses of free rows, and friction that is tied to them."""
    for q in range(count):
        j = shared(free[q])
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
def change_at(f, what, cone, inverse, lower, upper, mu, x, w):
    """The largest change of an impulse [N s] if a row, or the three of a contact, were visited once more."""
    change = 0.0
    if what == SINGLE:
        change = abs(max(min(x[f] - w[f] * inverse[f], upper[f]), lower[f]) - x[f])
    elif what < NORMAL:
        change = abs(w[f] * inverse[f])
    elif what == NORMAL:
        n0 = max(x[f] - w[f] * inverse[f], 0.0)
        n1, n2 = x[f + 1] - w[f + 1] * inverse[f + 1], x[f + 2] - w[f + 2] * inverse[f + 2]
        bound = mu[f] * x[f]
        if cone == 0:
            n1, n2 = max(min(n1, bound), -bound), max(min(n2, bound), -bound)
        else:
            length = sqrt(n1 * n1 + n2 * n2)
            scale = bound / length if length > bound else 1.0
            n1, n2 = n1 * scale, n2 * scale
        change = max(abs(n0 - x[f]), max(abs(n1 - x[f + 1]), abs(n2 - x[f + 2])))
    return change


@func
def largest_change(count, kind, cone, inverse, lower, upper, mu, x, w):
    """The largest change of an impulse [N s] if each were visited once more."""
    worst = 0.0
    for f in range(count):
        worst = max(worst, change_at(f, shared(kind[f]), cone, inverse, lower, upper, mu, x, w))
    return worst


@func
def largest(count, x):
    """The size of the largest of some numbers."""
    found = 0.0
    for f in range(count):
        found = max(found, abs(x[f]))
    return found


@func
def gather(rows, bounds, count, row, kind, b, mine, part, lower, upper, mu, goal):
    """Numbers of the listed rows; those of a contact have the bounds of friction in `mu` of the first."""
    for f in range(count):
        r, what = shared(row[f]), shared(kind[f])
        block, low, high, slip = r, -1e30, 1e30, 0.0
        if r >= rows.singles:
            block = rows.singles + (r - rows.singles) // 3
        if what == SINGLE:
            low, high = bounds.lower[r], bounds.upper[r]
        elif what == NORMAL:
            slip = bounds.mu[block - rows.singles]
        goal[f] = b[r]
        part[f] = mine[block]
        lower[f] = low
        upper[f] = high
        mu[f] = slip


@func
def add_rows(rows, supports, count, row, Y, x, z):
    """z += Y^T x over the listed rows."""
    for f in range(count):
        r = shared(row[f])
        here, at = home_of(rows, r), r * supports.widest
        begin, factor = supports.begin[here], x[f]
        for t in range(supports.count[here]):
            z[supports.dofs[begin + t]] += factor * Y[at + t]


@kernel
def newton_impulses(
    rows: Rows,
    supports: Supports,
    bounds: Bounds,
    active: Array[Float],
    cone: Int,
    effort: Effort,
    branches: Branches,
    L: Array[Float],
    root: Array[Float],
    J: Array[Float],
    b: Array[Float],
    H: Array[Float],
    Y: Array[Float],
    z: Array[Float],
    impulse: Array[Float],
    left: Array[Float],
    place: Array[Float],
    eliminations: Array[Float],
):
    """The impulses that solve the problem, and z = Y^T impulse.

    active: Of contacts, 1, or 0 for those that are left alone.
    H, Y: As in `scaling`, of rows that take part.
    left: The largest change of an impulse if it were visited once more, as a share of the largest impulse.
    place: If that is too much, a degree of freedom of the body or joint where it is.
    eliminations: How many it took.
    """
    dofs, wide = len(z), supports.widest
    blocks, contacts = rows.singles + shared(rows.triples[0]), rows.singles + rows.equations
    mine, takes, scaled = local(Float, blocks), local(Int, blocks), local(Int, blocks)
    spread, dv = local(Float, dofs), local(Float, dofs)
    for d in range(dofs):
        spread[d] = 0.0
        z[d] = 0.0
    for i in range(rows.singles):
        comes = b[i] < 0.0 and bounds.upper[i] > 0.0
        mine[i] = 1.0 if comes or bounds.lower[i] != 0.0 else 0.0
        impulse[i] = 0.0
    for k in range(rows.singles, blocks):
        r = rows.singles + 3 * (k - rows.singles)
        inside = 1.0
        if k >= contacts:
            inside = 1.0 if active[k - rows.singles] > 0.0 and b[r] < 0.0 else 0.0
        mine[k] = inside
        impulse[r] = 0.0
        impulse[r + 1] = 0.0
        impulse[r + 2] = 0.0
    open, worst, work, where = 1.0, 0.0, 0.0, 0.0
    for _ in range(blocks + 1):
        for k in range(blocks):
            takes[k] = 0 if everywhere(mine[k] == 0.0) else 1
            if shared(takes[k]) > shared(scaled[k]):
                scaled[k] = 1
                here, at = shared(rows.support[k]), first_row(rows, k) * wide
                if k < rows.singles:
                    scale_row(branches, supports, here, at, L, root, J, H, Y)
                else:
                    scale_three(branches, supports, here, at, L, root, J, H, Y)
        label, island, block, start = local(Int, dofs), local(Int, blocks), local(Int, blocks), local(Int, blocks + 1)
        islands = find_islands(rows, supports, takes, label, island, block, start)
        most = 3 * shared(start[islands])
        row, kind, begin, matrix = local(Int, most), local(Int, most), local(Int, islands + 1), local(Int, islands + 1)
        count, size = list_rows(rows, islands, block, start, row, kind, begin, matrix)
        part, lower, upper, mu = local(Float, count), local(Float, count), local(Float, count), local(Float, count)
        x, w, inverse = local(Float, count), local(Float, count), local(Float, count)
        anchor, plain, answer = local(Float, count), local(Float, count), local(Float, count)
        state, free, soft, turn = local(Int, count), local(Int, count), local(Float, count), local(Float, count)
        change, column, right = local(Float, count), local(Float, count), local(Float, count)
        pivot, A, G = local(Float, count), local(Float, size), local(Float, size)
        gather(rows, bounds, count, row, kind, b, mine, part, lower, upper, mu, plain)
        form_matrices(rows, supports, islands, begin, matrix, row, Y, spread, A)
        row_inverses(islands, begin, matrix, kind, cone, bounds.cfm, A, part, inverse)
        total, parts = 0.0, 0.0
        for f in range(count):
            x[f] = impulse[shared(row[f])]
            answer[f] = x[f]
            if inverse[f] > 0.0:
                total = total + 1.0 / inverse[f]
                parts = parts + 1.0
        unit = total / max(parts, 1.0)
        for _ in range(effort.sweeps):
            sweep(islands, begin, matrix, kind, cone, A, bounds.cfm, plain, inverse, lower, upper, mu, x)
        more, good, ratio, used, done, failed, held = 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0
        tries, fresh = 0.0, 0.0
        if open == 0.0 or parts == 0.0 or not largest(count, x) < 1e30:
            done = 1.0  # a world that is not finite is lost, and should cost no time
        for f in range(count):
            anchor[f] = x[f]
        row_velocities(islands, begin, matrix, kind, A, bounds.cfm, plain, x, w)
        for _ in range(effort.most):
            if everywhere(done == 1.0):
                break
            cfm = bounds.cfm + more * unit
            classify(count, kind, cone, inverse, lower, upper, mu, x, w, state, soft, turn)
            if not everywhere(fresh == 0.0):
                guess(count, kind, cone, part, fresh, state, soft, turn)
                fresh = 0.0
            snap(count, kind, cone, lower, upper, mu, state, turn, x, change)
            for e in range(islands):
                first, base = shared(begin[e]), shared(matrix[e])
                m = shared(begin[e + 1]) - first
                for j in range(m):
                    if not everywhere(change[first + j] == 0.0):
                        d = change[first + j]
                        w[first + j] = w[first + j] + cfm * d
                        for i in range(m):
                            w[first + i] = w[first + i] + A[base + i * m + j] * d
                wanted = reduce_island(
                    first, m, base, kind, cone, A, cfm, mu, state, soft, turn, 0, free, column, G, pivot
                )
                for q in range(wanted):
                    f = first + shared(free[q])
                    # Friction across the cone's direction of sliding is softened about the impulses where that acts.
                    bent = turned(kind, cone, f, turn, w) + soft[f] * turned(kind, cone, f, turn, x)
                    right[q] = select(state[f] == FREE, -bent, 0.0)
                eliminate(wanted, effort.singular, pivot, G, right)
                move(first, wanted, kind, cone, mu, state, turn, free, right, x)
            row_velocities(islands, begin, matrix, kind, A, bounds.cfm, plain, x, w)
            tall = largest(count, x)
            missing = largest_change(count, kind, cone, inverse, lower, upper, mu, x, w)
            error = missing
            if not everywhere(more == 0.0):
                for f in range(count):
                    w[f] = w[f] + more * unit * (x[f] - held * anchor[f])
                error = largest_change(count, kind, cone, inverse, lower, upper, mu, x, w)
            share = effort.precision
            if failed > 2.0:  # in a row
                share = effort.accepted
            used = used + 1.0
            if done == 0.0:
                work = work + 1.0
                if missing <= share * tall:
                    done = 1.0
                    worst = missing / tall if tall > 0.0 else 0.0
                    for f in range(count):
                        answer[f] = x[f]
                elif error <= share * tall:
                    used, failed = 0.0, 0.0
                    worst = missing / tall
                    if held == 0.0:
                        good = more
                        more = ratio * more if ratio * more * unit > 0.1 * bounds.cfm else 0.0
                        ratio = max(ratio * ratio, 0.1)
                    else:
                        more = max(0.1 * more, effort.held)
                    for f in range(count):
                        anchor[f] = x[f]
                        answer[f] = x[f]
                elif used >= effort.steps:
                    used = 0.0
                    failed = failed + 1.0
                    tries = tries + 1.0
                    if tries == 1.0 or work > 0.5 * effort.most:
                        fresh = tries
                        more, good, held = 0.0, 0.0, 0.0
                    elif held == 1.0:
                        more = min(10.0 * more, 10.0)
                    elif good == 0.0:
                        more = max(10.0 * more, effort.softer)
                    else:
                        ratio = sqrt(ratio)
                        more = good * ratio
                    if held == 0.0 and (ratio > 0.7 or more > 10.0):
                        held = 1.0
                        more = effort.softer
                    for f in range(count):
                        x[f] = anchor[f]
            if not everywhere(used > 0.0):
                row_velocities(islands, begin, matrix, kind, A, bounds.cfm, plain, x, w)
                for f in range(count):
                    w[f] = w[f] + more * unit * (x[f] - held * anchor[f])
        if not everywhere(done == 1.0):
            row_velocities(islands, begin, matrix, kind, A, bounds.cfm, plain, answer, w)
            missing, tall, spot = 0.0, largest(count, answer), 0.0
            for f in range(count):
                change[f] = change_at(f, shared(kind[f]), cone, inverse, lower, upper, mu, answer, w)
                if change[f] > missing:
                    missing = change[f]
                    spot = 1.0 * end_of(supports, home_of(rows, shared(row[f])))
            if done == 0.0:
                worst, where = missing / max(missing, tall), spot
        if open == 1.0:
            for f in range(count):
                impulse[shared(row[f])] = answer[f]
            for d in range(dofs):
                z[d] = 0.0
            add_rows(rows, supports, count, row, Y, answer, z)
        further = 0.0
        if not everywhere(open == 0.0 or parts == 0.0):
            velocities_from(branches, L, root, z, dv)
            slow = effort.precision * largest(count, answer) * unit
            for k in range(blocks):
                if not everywhere(mine[k] == 1.0):
                    r, here = first_row(rows, k), shared(rows.support[k])
                    at, to, speed = supports.begin[here], r * wide, b[r]
                    for t in range(supports.count[here]):
                        speed = speed + J[to + t] * dv[supports.dofs[at + t]]
                    near = 0.0
                    if k < rows.singles:
                        near = bounds.upper[k]
                    else:
                        near = active[k - rows.singles]
                    if mine[k] == 0.0 and open == 1.0 and near > 0.0 and speed < -slow:
                        mine[k] = 1.0
                        further = 1.0
        open = further
        if everywhere(open == 0.0):
            break
    left[0] = worst
    place[0] = where
    eliminations[0] = work


@kernel
def newton_impulses_adjoint(
    rows: Rows,
    supports: Supports,
    bounds: Bounds,
    cone: Int,
    singular: Float,
    branches: Branches,
    L: Array[Float],
    root: Array[Float],
    J: Array[Float],
    b: Array[Float],
    H: Array[Float],
    Y: Array[Float],
    z: Array[Float],
    impulse: Array[Float],
    z_adj: Array[Float],
    impulse_adj: Array[Float],
    L_adj: Array[Float],
    root_adj: Array[Float],
    J_adj: Array[Float],
    b_adj: Array[Float],
    lower_adj: Array[Float],
    upper_adj: Array[Float],
    mu_adj: Array[Float],
    cfm_adj: Array[Float],
):
    """The derivative of the implicit function: u are the cotangents of w in the free rows, pull is Y^T u + z_adj."""
    dofs, wide = len(z), supports.widest
    blocks, contacts = rows.singles + shared(rows.triples[0]), rows.singles + rows.equations
    mine, takes = local(Float, blocks), local(Int, blocks)
    spread, pull, dv = local(Float, dofs), local(Float, dofs), local(Float, dofs)
    for d in range(dofs):
        spread[d] = 0.0
        pull[d] = z_adj[d]
    for i in range(rows.singles):
        mine[i] = 1.0 if bounds.lower[i] != 0.0 or impulse[i] > 0.0 else 0.0
    for k in range(rows.singles, blocks):
        r = rows.singles + 3 * (k - rows.singles)
        mine[k] = 1.0 if k < contacts or impulse[r] > 0.0 else 0.0
    for k in range(blocks):
        takes[k] = 0 if everywhere(mine[k] == 0.0) else 1
    label, island, block, start = local(Int, dofs), local(Int, blocks), local(Int, blocks), local(Int, blocks + 1)
    islands = find_islands(rows, supports, takes, label, island, block, start)
    most = 3 * shared(start[islands])
    row, kind, begin, matrix = local(Int, most), local(Int, most), local(Int, islands + 1), local(Int, islands + 1)
    count, size = list_rows(rows, islands, block, start, row, kind, begin, matrix)
    part, lower, upper, mu = local(Float, count), local(Float, count), local(Float, count), local(Float, count)
    x, w, given, u = local(Float, count), local(Float, count), local(Float, count), local(Float, count)
    state, free, soft, turn = local(Int, count), local(Int, count), local(Float, count), local(Float, count)
    column, right, pivot, inverse = local(Float, count), local(Float, count), local(Float, count), local(Float, count)
    A, G, Y_adj = local(Float, size), local(Float, size), local(Float, count * wide)
    h0, h1, h2 = local(Float, wide), local(Float, wide), local(Float, wide)
    gather(rows, bounds, count, row, kind, b, mine, part, lower, upper, mu, w)
    form_matrices(rows, supports, islands, begin, matrix, row, Y, spread, A)
    row_inverses(islands, begin, matrix, kind, cone, bounds.cfm, A, part, inverse)
    for f in range(count):
        r = shared(row[f])
        here, at = home_of(rows, r), r * wide
        to, speed, wanted = supports.begin[here], 0.0, impulse_adj[r]
        for t in range(supports.count[here]):
            d, y = supports.dofs[to + t], Y[at + t]
            speed = speed + y * z[d]
            wanted = wanted + y * z_adj[d]
        x[f] = impulse[r]
        w[f] = w[f] + bounds.cfm * x[f] + speed
        given[f] = wanted
        u[f] = 0.0
    classify(count, kind, cone, inverse, lower, upper, mu, x, w, state, soft, turn)
    for e in range(islands):
        first, base = shared(begin[e]), shared(matrix[e])
        m = shared(begin[e + 1]) - first
        wanted = reduce_island(
            first, m, base, kind, cone, A, bounds.cfm, mu, state, soft, turn, 1, free, column, G, pivot
        )
        for q in range(wanted):
            f = first + shared(free[q])
            felt = turned(kind, cone, f, turn, given)
            if shared(kind[f]) == NORMAL:
                felt = felt + mu[f] * tied(state[f + 1]) * turned(kind, cone, f + 1, turn, given)
                felt = felt + mu[f] * tied(state[f + 2]) * turned(kind, cone, f + 2, turn, given)
            right[q] = select(state[f] == FREE, -felt, 0.0)
        eliminate(wanted, singular, pivot, G, right)
        for q in range(wanted):
            u[first + shared(free[q])] = right[q]
    if cone > 0:
        for f in range(count):
            if shared(kind[f]) == NORMAL:
                u1, u2 = u[f + 1], u[f + 2]
                u[f + 1] = turn[f] * u1 - turn[f + 1] * u2
                u[f + 2] = turn[f] * u2 + turn[f + 1] * u1
    add_rows(rows, supports, count, row, Y, u, pull)
    softness = 0.0
    for f in range(count):
        r = shared(row[f])
        here, at = home_of(rows, r), r * wide
        to = supports.begin[here]
        b_adj[r] += u[f]
        softness = softness + u[f] * x[f]
        felt = impulse_adj[r] + bounds.cfm * u[f]
        for t in range(supports.count[here]):
            d = supports.dofs[to + t]
            felt = felt + Y[at + t] * pull[d]
            Y_adj[f * wide + t] = u[f] * z[d] + x[f] * pull[d]
        given[f] = felt
    cfm_adj[0] += softness
    for f in range(count):
        r, what = shared(row[f]), shared(kind[f])
        here, at = home_of(rows, r), r * wide
        if what == SINGLE:
            scale_row_back(branches, supports, here, at, L, root, H, Y_adj, f * wide, h0, L_adj, root_adj, J_adj)
        elif what % 2 == 1:
            scale_three_back(
                branches, supports, here, at, L, root, H, Y_adj, f * wide, h0, h1, h2, L_adj, root_adj, J_adj
            )
    for f in range(count):
        r, what = shared(row[f]), shared(kind[f])
        if what == SINGLE:
            if state[f] == LOWER:
                lower_adj[r] += given[f]
            elif state[f] == UPPER:
                upper_adj[r] += given[f]
        elif what == NORMAL:
            first, second = turned(kind, cone, f + 1, turn, given), turned(kind, cone, f + 2, turn, given)
            slides = tied(state[f + 1]) * first + tied(state[f + 2]) * second
            mu_adj[(r - rows.singles) // 3] += x[f] * slides
    # Single rows without an impulse are at their lower bound, or at the upper one where both are zero.
    velocities_from(branches, L, root, z, dv)
    velocities_from(branches, L, root, pull, spread)
    for i in range(rows.singles):
        if not everywhere(mine[i] == 1.0):
            here, at = shared(rows.support[i]), i * wide
            to, speed, felt = supports.begin[here], b[i], impulse_adj[i]
            for t in range(supports.count[here]):
                d = supports.dofs[to + t]
                speed = speed + J[at + t] * dv[d]
                felt = felt + J[at + t] * spread[d]
            if mine[i] == 0.0:
                if speed >= 0.0:
                    lower_adj[i] += felt
                else:
                    upper_adj[i] += felt
