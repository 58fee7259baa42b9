"""The complementarity problem of `mlcp`, solved to round-off, and the derivative of its solution.

A few sweeps of Gauss-Seidel, then Newton's method: a guess says which rows are at a bound, and with that known the
problem is linear. Rows at a bound have its value, friction that slides is tied to its normal impulse, all others have
w = 0; elimination solves that, and the solution is the next guess. As guesses may go round in circles, impulses are
held where they are: of a problem with more softness h, and b - h lambda in place of b, lambda is a solution if it is
one of the problem itself [a proximal step]. h is tiny at first, larger after a failure, and smaller again after a
success, which moves lambda on. So neither redundant contacts, nor stacks, nor unlike masses keep it from the last
digits.

A contact that slides with the cone of friction is seen along the direction d in which friction pushes and across it:
along, friction is tied, d lambda_d = mu d lambda_n; across, w = -|w| lambda_t / (mu lambda_n) gives

    d w_e + soft d lambda_e = 0,    soft = |w| / (mu lambda_n)

The derivative is that of the implicit function: with E the columns of the free rows (with what is tied to them) and
W = A + cfm, impulses move by E x, where (W E)_free x = -(dW lambda + db + ...)_free. Its transpose is one more
elimination, and no sweep is differentiated. Where contacts are redundant and nothing is soft (cfm = 0), impulses that
others can take over are left alone: velocities and their derivatives do not depend on how contacts share.
"""

from __future__ import annotations

from kinema.contact.mlcp import Bounds, Gram, Rows, Supports, largest_error, largest_impulse, sweep
from kinema.lang import Array, Float, Int, abs, func, kernel, local, max, min, record, sqrt

FIXED, FREE, LOWER, UPPER = 0, 1, 2, 3  # a row: at zero, with w = 0, at its lower or its upper bound


@record
class Effort:
    """How hard `exact_impulses` tries.

    precision: Largest error of an impulse as a share of the largest impulse [-].
    singular: Pivots below this count as zero, in rows scaled to a diagonal of 1 [-].
    held: The least softness that holds impulses, as a share of the mean diagonal [-].
    sweeps: Before the first elimination.
    tries: Of different softness, at most.
    steps: Eliminations in each, at most.
    """

    precision: Float
    singular: Float
    held: Float
    sweeps: Int
    tries: Int
    steps: Int


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
def classify(rows, supports, bounds, cfm, inverse, cone, Y, b, z, impulse, state, soft, turn):
    """What each row does: free or at which bound, how soft it is, and per triple the direction of its first friction.

    A row is at a bound if a visit would take it there or beyond.
    """
    for i in range(rows.singles):
        x = impulse[i] - (b[i] + cfm * impulse[i] + row_velocity(rows.support[i], supports, Y, i, z)) * inverse[i]
        soft[i] = 0.0
        state[i] = FREE
        if x <= bounds.lower[i]:
            state[i] = LOWER
        elif x >= bounds.upper[i]:
            state[i] = UPPER
    for c in range(rows.triples[0]):
        here, r = rows.support[rows.singles + c], rows.singles + 3 * c
        turn[2 * c] = 1.0
        turn[2 * c + 1] = 0.0
        for k in range(3):
            soft[r + k] = 0.0
            state[r + k] = FREE
        if c >= rows.equations:
            w0 = b[r] + cfm * impulse[r] + row_velocity(here, supports, Y, r, z)
            w1 = b[r + 1] + cfm * impulse[r + 1] + row_velocity(here, supports, Y, r + 1, z)
            w2 = b[r + 2] + cfm * impulse[r + 2] + row_velocity(here, supports, Y, r + 2, z)
            x0 = impulse[r] - w0 * inverse[r]
            x1, x2 = impulse[r + 1] - w1 * inverse[r + 1], impulse[r + 2] - w2 * inverse[r + 2]
            bound = bounds.mu[c] * x0
            if x0 <= 0.0:
                for k in range(3):
                    state[r + k] = FIXED
            elif cone == 0:
                if x1 >= bound:
                    state[r + 1] = UPPER
                elif x1 <= -bound:
                    state[r + 1] = LOWER
                if x2 >= bound:
                    state[r + 2] = UPPER
                elif x2 <= -bound:
                    state[r + 2] = LOWER
            else:
                length = sqrt(x1 * x1 + x2 * x2)
                if length >= bound:
                    state[r + 1] = UPPER
                    if length > 0.0:
                        turn[2 * c] = x1 / length
                        turn[2 * c + 1] = x2 / length
                    if bound > 0.0:
                        soft[r + 2] = (length - bound) / (bound * inverse[r + 2])
                    else:
                        state[r + 2] = FIXED


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
def reduce_rows(rows, supports, bounds, cfm, Y, state, soft, turn, free, own, pushed, scale):
    """The rows that are free, and how many; of each, its row of Y, what its impulse pushes, and 1 / sqrt(diagonal).

    own and pushed have a row of Y for each free one: pushed differs where friction is tied to a normal impulse.
    """
    wide, count = supports.widest, 0
    for i in range(rows.singles):
        if state[i] == FREE:
            free[count] = i
            square = cfm
            for t in range(supports.count[rows.support[i]]):
                y = Y[i * wide + t]
                own[count * wide + t] = y
                pushed[count * wide + t] = y
                square = square + y * y
            scale[count] = 1.0 / sqrt(square) if square > 0.0 else 0.0
            count = count + 1
    for c in range(rows.triples[0]):
        r, here = rows.singles + 3 * c, rows.support[rows.singles + c]
        first, second, third = r * wide, (r + 1) * wide, (r + 2) * wide
        along, across = turn[2 * c], turn[2 * c + 1]
        tie1, tie2 = 0.0, 0.0
        if c >= rows.equations:
            tie1 = bounds.mu[c] * tied(state[r + 1])
            tie2 = bounds.mu[c] * tied(state[r + 2])
        for k in range(3):
            if state[r + k] == FREE:
                free[count] = r + k
                square = cfm + soft[r + k]
                for t in range(supports.count[here]):
                    y1 = along * Y[second + t] + across * Y[third + t]
                    y2 = along * Y[third + t] - across * Y[second + t]
                    y = Y[first + t]
                    also = tie1 * y1 + tie2 * y2
                    if k == 1:
                        y = y1
                        also = 0.0
                    elif k == 2:
                        y = y2
                        also = 0.0
                    own[count * wide + t] = y
                    pushed[count * wide + t] = y + also
                    square = square + y * y
                scale[count] = 1.0 / sqrt(square) if square > 0.0 else 0.0
                count = count + 1
    return count


@func
def block_of(rows, r):
    """The number of the single row or triple that row r belongs to."""
    block = r
    if r >= rows.singles:
        block = rows.singles + (r - rows.singles) // 3
    return block


@func
def find_roots(rows, supports, count, free, root, other):
    """Of each free row, the first degree of freedom of its one or two trees: rows that share none do not meet."""
    for k in range(count):
        here = rows.support[block_of(rows, free[k])]
        begin = supports.begin[here]
        root[k] = supports.dofs[begin]
        other[k] = supports.dofs[begin]
        if supports.common[here] == 0 and supports.first[here] < supports.count[here]:
            other[k] = supports.dofs[begin + supports.first[here]]


@func
def fill_matrix(
    rows, supports, cfm, dofs, n, count, free, own, pushed, soft, scale, root, other, spread, transposed, matrix
):
    """Scaled entries own_i . pushed_j, and softness on the diagonal; row i and column j, or the other way round."""
    for d in range(dofs):
        spread[d] = 0.0
    for j in range(count):
        there = rows.support[block_of(rows, free[j])]
        add_row(there, supports, pushed, j, 1.0, spread)
        a, b = root[j], other[j]
        for i in range(count):
            entry = 0.0
            if a == root[i] or b == other[i] or a == other[i] or b == root[i]:
                entry = row_velocity(rows.support[block_of(rows, free[i])], supports, own, i, spread)
                if i == j:
                    entry = entry + cfm + soft[free[i]]
                entry = entry * scale[i] * scale[j]
            if transposed > 0:
                matrix[j * n + i] = entry
            else:
                matrix[i * n + j] = entry
        begin = supports.begin[there]
        for t in range(supports.count[there]):
            spread[supports.dofs[begin + t]] = 0.0


@func
def eliminate(n, count, singular, root, other, column, reach, tall, matrix, right, found):
    """Solve a linear system by elimination with pivots from the column; unknowns without a pivot are 0.

    root, other: Where the trees of each row begin: what shares none costs nothing.
    reach, tall: Where the entries of each row and of each column end.
    """
    rank, bottom = 0, 0
    for i in range(count):
        end, a, b = i + 1, root[i], other[i]
        for j in range(i + 1, count):
            if a == root[j] or b == other[j] or a == other[j] or b == root[j]:
                end = j + 1
        reach[i] = end
        tall[i] = end
    for k in range(count):
        best, at = singular, -1
        bottom = max(bottom, tall[k])  # from there on, rows have nothing in this column
        for i in range(rank, bottom):
            if abs(matrix[i * n + k]) > best:
                best = abs(matrix[i * n + k])
                at = i
        if at >= 0:
            if at > rank:
                end = reach[at]
                reach[at] = reach[rank]
                reach[rank] = end
                for j in range(k, max(end, reach[at])):
                    kept = matrix[rank * n + j]
                    matrix[rank * n + j] = matrix[at * n + j]
                    matrix[at * n + j] = kept
                kept = right[rank]
                right[rank] = right[at]
                right[at] = kept
            column[rank] = k
            for i in range(rank + 1, bottom):
                if matrix[i * n + k] != 0.0:
                    factor = matrix[i * n + k] / matrix[rank * n + k]
                    reach[i] = max(reach[i], reach[rank])
                    for j in range(k + 1, reach[rank]):
                        matrix[i * n + j] -= factor * matrix[rank * n + j]
                    right[i] -= factor * right[rank]
            rank = rank + 1
    for j in range(count):
        found[j] = 0.0
    for back in range(rank):
        i = rank - 1 - back
        k = column[i]
        sum = right[i]
        for j in range(k + 1, reach[i]):
            sum = sum - matrix[i * n + j] * found[j]
        found[k] = sum / matrix[i * n + k]


@func
def snap(rows, bounds, state, turn, impulse):
    """Impulses at bounds get their value; those of friction that slides across the cone are turned along with it."""
    for i in range(rows.singles):
        if state[i] == LOWER:
            impulse[i] = bounds.lower[i]
        elif state[i] == UPPER:
            impulse[i] = bounds.upper[i]
    for c in range(rows.equations, rows.triples[0]):
        r = rows.singles + 3 * c
        if state[r] == FIXED:
            impulse[r] = 0.0
        along, across = turn[2 * c], turn[2 * c + 1]
        l1 = along * impulse[r + 1] + across * impulse[r + 2]
        l2 = along * impulse[r + 2] - across * impulse[r + 1]
        if state[r + 1] != FREE:
            l1 = tied(state[r + 1]) * bounds.mu[c] * impulse[r]
        if state[r + 2] != FREE:
            l2 = tied(state[r + 2]) * bounds.mu[c] * impulse[r]
        impulse[r + 1] = along * l1 - across * l2
        impulse[r + 2] = along * l2 + across * l1


@func
def total(rows, supports, dofs, Y, impulse, z):
    """z = Y^T impulse."""
    for d in range(dofs):
        z[d] = 0.0
    for r in range(rows.singles + 3 * rows.triples[0]):
        add_row(rows.support[block_of(rows, r)], supports, Y, r, impulse[r], z)


@func
def known_velocities(rows, supports, cfm, own, b, soft, turn, count, free, scale, impulse, z, right):
    """Of the free rows, -w in their scale: what elimination has to undo."""
    for k in range(count):
        r = free[k]
        block = block_of(rows, r)
        known, here = b[r], impulse[r]
        if r >= rows.singles:
            c = block - rows.singles
            first = rows.singles + 3 * c
            along, across = turn[2 * c], turn[2 * c + 1]
            if r == first + 1:
                known = along * b[r] + across * b[r + 1]
                here = along * impulse[r] + across * impulse[r + 1]
            elif r == first + 2:
                known = along * b[r] - across * b[r - 1]
                here = along * impulse[r] - across * impulse[r - 1]
        w = known + (cfm + soft[r]) * here + row_velocity(rows.support[block], supports, own, k, z)
        right[k] = -w * scale[k]


@func
def move(rows, bounds, state, turn, count, free, scale, step, impulse):
    """Change the impulses of free rows, and friction that is tied to them."""
    for k in range(count):
        r, change = free[k], step[k] * scale[k]
        if r < rows.singles:
            impulse[r] += change
        else:
            c = (r - rows.singles) // 3
            first = rows.singles + 3 * c
            along, across = turn[2 * c], turn[2 * c + 1]
            if r == first:
                impulse[r] += change
                if c >= rows.equations:
                    d1 = tied(state[r + 1]) * bounds.mu[c] * change
                    d2 = tied(state[r + 2]) * bounds.mu[c] * change
                    impulse[r + 1] += along * d1 - across * d2
                    impulse[r + 2] += along * d2 + across * d1
            elif r == first + 1:
                impulse[r] += along * change
                impulse[r + 1] += across * change
            else:
                impulse[r] += along * change
                impulse[r - 1] -= across * change


@func
def mean_diagonal(count, inverse):
    """Of the rows that are not left alone [1/kg]."""
    sum, rows = 0.0, 0.0
    for r in range(count):
        if inverse[r] > 0.0:
            sum = sum + 1.0 / inverse[r]
            rows = rows + 1.0
    return sum / max(rows, 1.0)


@kernel
def exact_impulses(
    rows: Rows,
    supports: Supports,
    bounds: Bounds,
    gram: Gram,
    cone: Int,
    effort: Effort,
    Y: Array[Float],
    b: Array[Float],
    z: Array[Float],
    impulse: Array[Float],
    unsolved: Array[Float],
    eliminations: Array[Float],
):
    """The impulses that solve the problem, and z = Y^T impulse.

    unsolved is 0, or 1 if they were not found; eliminations is how many it took.
    """
    n, dofs, wide = len(b), len(z), supports.widest
    every = rows.singles + 3 * rows.triples[0]
    found, sums = local(Float, n), local(Float, dofs)
    trial, trial_sums, goal = local(Float, n), local(Float, dofs), local(Float, n)
    state, free, column, reach = local(Int, n), local(Int, n), local(Int, n), local(Int, n)
    root, other, tall = local(Int, n), local(Int, n), local(Int, n)
    soft, turn, scale = local(Float, n), local(Float, n), local(Float, n)
    own, pushed = local(Float, n * wide), local(Float, n * wide)
    matrix, right, step, spread = local(Float, n * n), local(Float, n), local(Float, n), local(Float, dofs)
    for r in range(n):
        found[r] = 0.0
    for d in range(dofs):
        sums[d] = 0.0
    for _ in range(effort.sweeps):
        sweep(rows, supports, bounds, gram, cone, Y, b, 0, 0, found, sums)
    unit, held, missing, work = mean_diagonal(every, gram.inverse), effort.held, 1.0, 0.0
    size, tries = 0.0, 0
    for r in range(every):
        size = size + abs(found[r])
    if size < 1e30:  # a world that is not finite is lost, and should cost no time
        tries = effort.tries
    for _ in range(tries):
        more = held * unit
        cfm, solved = bounds.cfm + more, 0
        for r in range(every):
            trial[r] = found[r]
            goal[r] = b[r] - more * found[r]
        total(rows, supports, dofs, Y, trial, trial_sums)
        for _ in range(effort.steps):
            classify(rows, supports, bounds, cfm, gram.inverse, cone, Y, goal, trial_sums, trial, state, soft, turn)
            snap(rows, bounds, state, turn, trial)
            total(rows, supports, dofs, Y, trial, trial_sums)
            count = reduce_rows(rows, supports, bounds, cfm, Y, state, soft, turn, free, own, pushed, scale)
            find_roots(rows, supports, count, free, root, other)
            fill_matrix(
                rows, supports, cfm, dofs, n, count, free, own, pushed, soft, scale, root, other, spread, 0, matrix
            )
            known_velocities(rows, supports, cfm, own, goal, soft, turn, count, free, scale, trial, trial_sums, right)
            eliminate(n, count, effort.singular, root, other, column, reach, tall, matrix, right, step)
            move(rows, bounds, state, turn, count, free, scale, step, trial)
            total(rows, supports, dofs, Y, trial, trial_sums)
            work = work + 1.0
            error = largest_error(rows, supports, bounds, cfm, gram.inverse, cone, Y, goal, trial_sums, trial)
            if error <= effort.precision * largest_impulse(0, every, trial):
                solved = 1
                break
        if solved == 1:
            for r in range(every):
                found[r] = trial[r]
            error = largest_error(rows, supports, bounds, bounds.cfm, gram.inverse, cone, Y, b, trial_sums, trial)
            if error <= effort.precision * largest_impulse(0, every, trial):
                missing = 0.0
                break
            held = max(0.1 * held, effort.held)
        else:
            held = min(100.0 * held, 10.0)
    total(rows, supports, dofs, Y, found, sums)
    for r in range(every):
        impulse[r] = found[r]
    for d in range(dofs):
        z[d] = sums[d]
    unsolved[0] = missing
    eliminations[0] = work


@kernel
def exact_impulses_adjoint(
    rows: Rows,
    supports: Supports,
    bounds: Bounds,
    inverse: Array[Float],
    cone: Int,
    singular: Float,
    Y: Array[Float],
    b: Array[Float],
    z: Array[Float],
    impulse: Array[Float],
    z_adj: Array[Float],
    impulse_adj: Array[Float],
    Y_adj: Array[Float],
    b_adj: Array[Float],
    lower_adj: Array[Float],
    upper_adj: Array[Float],
    mu_adj: Array[Float],
    cfm_adj: Array[Float],
):
    """The derivative of the implicit function: u are the cotangents of w in the free rows, pull is Y^T u + z_adj."""
    n, dofs, wide = len(b), len(z), supports.widest
    every = rows.singles + 3 * rows.triples[0]
    state, free, column, reach = local(Int, n), local(Int, n), local(Int, n), local(Int, n)
    root, other, tall = local(Int, n), local(Int, n), local(Int, n)
    soft, turn, scale = local(Float, n), local(Float, n), local(Float, n)
    own, pushed = local(Float, n * wide), local(Float, n * wide)
    matrix, right, found, spread = local(Float, n * n), local(Float, n), local(Float, n), local(Float, dofs)
    u, pull = local(Float, n), local(Float, dofs)
    classify(rows, supports, bounds, bounds.cfm, inverse, cone, Y, b, z, impulse, state, soft, turn)
    count = reduce_rows(rows, supports, bounds, bounds.cfm, Y, state, soft, turn, free, own, pushed, scale)
    find_roots(rows, supports, count, free, root, other)
    fill_matrix(
        rows, supports, bounds.cfm, dofs, n, count, free, own, pushed, soft, scale, root, other, spread, 1, matrix
    )
    for k in range(count):
        r = free[k]
        block = block_of(rows, r)
        given = impulse_adj[r]
        if r >= rows.singles:
            c = block - rows.singles
            first = rows.singles + 3 * c
            along, across = turn[2 * c], turn[2 * c + 1]
            g1 = along * impulse_adj[first + 1] + across * impulse_adj[first + 2]
            g2 = along * impulse_adj[first + 2] - across * impulse_adj[first + 1]
            if r == first + 1:
                given = g1
            elif r == first + 2:
                given = g2
            elif c >= rows.equations:
                given = given + bounds.mu[c] * (tied(state[r + 1]) * g1 + tied(state[r + 2]) * g2)
        right[k] = -scale[k] * (given + row_velocity(rows.support[block], supports, pushed, k, z_adj))
    eliminate(n, count, singular, root, other, column, reach, tall, matrix, right, found)
    for r in range(every):
        u[r] = 0.0
    for k in range(count):
        u[free[k]] = found[k] * scale[k]
    for c in range(rows.equations, rows.triples[0]):
        r = rows.singles + 3 * c
        u1, u2 = u[r + 1], u[r + 2]
        u[r + 1] = turn[2 * c] * u1 - turn[2 * c + 1] * u2
        u[r + 2] = turn[2 * c] * u2 + turn[2 * c + 1] * u1
    total(rows, supports, dofs, Y, u, pull)
    for d in range(dofs):
        pull[d] += z_adj[d]
    softness = 0.0
    for r in range(every):
        here = rows.support[block_of(rows, r)]
        begin, at = supports.begin[here], r * wide
        b_adj[r] += u[r]
        softness = softness + u[r] * impulse[r]
        for t in range(supports.count[here]):
            d = supports.dofs[begin + t]
            Y_adj[at + t] += u[r] * z[d] + impulse[r] * pull[d]
    cfm_adj[0] += softness
    for i in range(rows.singles):
        g = impulse_adj[i] + row_velocity(rows.support[i], supports, Y, i, pull)
        if state[i] == LOWER:
            lower_adj[i] += g
        elif state[i] == UPPER:
            upper_adj[i] += g
    for c in range(rows.equations, rows.triples[0]):
        r, here = rows.singles + 3 * c, rows.support[rows.singles + c]
        g1 = impulse_adj[r + 1] + row_velocity(here, supports, Y, r + 1, pull) + bounds.cfm * u[r + 1]
        g2 = impulse_adj[r + 2] + row_velocity(here, supports, Y, r + 2, pull) + bounds.cfm * u[r + 2]
        along = turn[2 * c] * g1 + turn[2 * c + 1] * g2
        across = turn[2 * c] * g2 - turn[2 * c + 1] * g1
        mu_adj[c] += impulse[r] * (tied(state[r + 1]) * along + tied(state[r + 2]) * across)
