"""The complementarity problem of `mlcp`, solved to round-off by Newton's method, and the derivative of its solution.

Few rows take part: equations, dry friction, and what would come too near without impulses. Their matrix A = Y Y^T is
formed, island by island: rows that share no degree of freedom, directly or through others, do not meet. A few sweeps of
Gauss-Seidel make a guess. It says which rows are at a bound, and with that known the problem is linear: rows at a bound
have its value, friction that slides is tied to its normal impulse, all others have w = 0; elimination solves that, and
the solution is the next guess. Rows that then come too near take part as well, and it is done again.

Guesses may go round in circles. With the pyramid of friction, a path of solutions is then followed from a problem that
nothing resists to this one (`principal_pivots`): but for rounding it always ends at a solution, in tens of
eliminations. With the cone, all contacts that stick are the second guess. What these leave (rounding of single
precision, the cone) is made softer, until it is solved, and harder again from solution to solution. Where that ends,
impulses are held where they are: of a problem with more softness h, and b - h lambda in place of b, lambda is a
solution if it is one of the problem itself [a proximal step]; h shrinks with success, which moves lambda on. At last
guesses are drawn, always the same ones; with the cone, the first of them is the path's.

A pivot that is round-off leaves its impulse as it is: impulses that others can take over, as those of redundant
contacts, stay where the sweeps left them.

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

from kinema.contact.solving.active_set import (
    FREE,
    LOWER,
    UPPER,
    Known,
    Marks,
    System,
    change_at,
    classify,
    eliminate,
    guess,
    largest,
    largest_change,
    move,
    reduce_island,
    row_inverses,
    snap,
    solve_transposed,
    sweep,
    tied,
    turned,
)
from kinema.contact.solving.delassus import (
    NORMAL,
    SINGLE,
    Listed,
    find_islands,
    first_row,
    form_matrices,
    home_of,
    list_rows,
    row_velocities,
)
from kinema.contact.solving.mass_scaling import (
    Scaled,
    scale_row,
    scale_row_adjoint,
    scale_three,
    scale_three_adjoint,
    velocities_from,
)
from kinema.contact.solving.pgs import Bounds, Rows, Supports, end_of
from kinema.contact.solving.principal_pivots import Path, follow_path
from kinema.kinematics.tree import Factors
from kinema.lang import (
    Array,
    Float,
    Int,
    everywhere,
    func,
    kernel,
    local,
    max,
    min,
    record,
    select,
    shared,
    sqrt,
    vec3,
)


@record
class Problem:
    """The complementarity problem, see `pgs`.

    rows, supports, bounds: Its rows, where they have entries, and the bounds of their impulses.
    active: Of triples, 1, or 0 for contacts that are left alone.
    cone: 1 for the cone of friction, 0 for the pyramid.
    J: Jacobians of the rows.
    b: Velocities of the rows without impulses, less those wanted.
    """

    rows: Rows
    supports: Supports
    bounds: Bounds
    active: Array[Float]
    cone: Int
    J: Array[Float]
    b: Array[Float]


@record
class Impulses:
    """The solution.

    impulse: Of all rows [N s].
    z: Y^T impulse.
    """

    impulse: Array[Float]
    z: Array[Float]


@record
class Multipliers:
    """The solution of the adjoint problem.

    exact: The impulses: those known from the motion alone are refined, as the elimination is at hand.
    u: Cotangents of w in the free rows.
    pull: Y^T u + the cotangent of z.
    """

    exact: Array[Float]
    u: Array[Float]
    pull: Array[Float]


@record
class Report:
    """What a solver tells of a problem.

    residual: The largest change of an impulse if it were visited once more, as a share of the largest impulse [-].
    unsolved_at: If that is too much, a degree of freedom of the body or joint where it is.
    iterations: How many it took: eliminations of Newton's method, sweeps of PGS.
    """

    residual: Array[Float]
    unsolved_at: Array[Float]
    iterations: Array[Float]


@record
class Effort:
    """How hard `newton_impulses` tries.

    precision: Largest error of an impulse as a share of the largest impulse [-].
    accepted: The same after three failures in a row: what round-off allows of rows of very unlike masses [-].
    singular: Pivots below this share of their diagonal are round-off [-].
    softer: Softness after a failure, ten times as much after a further one [-]: of single rows as a share of their own
        diagonal, as those of light joints may be a million times as large as others; of contacts and equations as a
        share of their mean diagonal.
    held: The least softness that holds impulses [-].
    yielding: Softness of the path of solutions, likewise: without it, pivots of redundant contacts are round-off [-].
    sweeps: Before the first elimination.
    steps: Eliminations before that is a failure.
    most: Eliminations in all, at most.
    """

    precision: Float
    accepted: Float
    singular: Float
    softer: Float
    held: Float
    yielding: Float
    sweeps: Int
    steps: Int
    most: Int


@func
def gather(problem, listed, mine, known):
    """What is known of the listed rows, but for their inverses."""
    rows, bounds = problem.rows, problem.bounds
    for f in range(listed.count):
        r, what = shared(listed.row[f]), shared(listed.kind[f])
        block, low, high, slip = r, -1e30, 1e30, 0.0
        if r >= rows.singles:
            block = rows.singles + (r - rows.singles) // 3
        if what == SINGLE:
            low, high = bounds.lower[r], bounds.upper[r]
        elif what == NORMAL:
            slip = bounds.mu[block - rows.singles]
        known.goal[f] = problem.b[r]
        known.part[f] = mine[block]
        known.lower[f] = low
        known.upper[f] = high
        known.mu[f] = slip


@func
def add_rows(rows, supports, listed, Y, x, z):
    """z += Y^T x over the listed rows."""
    for f in range(listed.count):
        r = shared(listed.row[f])
        here, at = home_of(rows, r), r * supports.widest
        begin, factor = supports.begin[here], x[f]
        for t in range(supports.count[here]):
            z[supports.dofs[begin + t]] += factor * Y[at + t]


@func
def find_impulses(problem, factors, effort, wanted, scaled, found):
    """The impulses that solve the problem; they are zero where `wanted` is 0, not 1.

    Returns what is left, where, and how many eliminations it took, as `Report` says.
    """
    rows, supports, bounds, active, cone = problem.rows, problem.supports, problem.bounds, problem.active, problem.cone
    J, b, Y = problem.J, problem.b, scaled.Y
    dofs, wide, every = len(factors.root), supports.widest, rows.singles + 3 * shared(rows.triples[0])
    blocks, contacts = rows.singles + shared(rows.triples[0]), rows.singles + rows.equations
    mine, takes, ready = local(Float, blocks), local(Int, blocks), local(Int, blocks)
    # Local arrays begin as zeros. Impulses change from round to round; what is stored for others is written once.
    spread, dv, z, impulse = local(vec3, dofs), local(Float, dofs), local(Float, dofs), local(Float, every)
    # First guess of who takes part: equations, dry friction, and what closes without impulses.
    for i in range(rows.singles):
        comes = b[i] < 0.0 and bounds.upper[i] > 0.0
        mine[i] = 1.0 if comes or bounds.lower[i] != 0.0 else 0.0
    for k in range(rows.singles, blocks):
        r = rows.singles + 3 * (k - rows.singles)
        inside = 1.0
        if k >= contacts:
            inside = 1.0 if active[k - rows.singles] > 0.0 and b[r] < 0.0 else 0.0
        mine[k] = inside
    open, worst, work, where = wanted, 0.0, 0.0, 0.0
    # As long as further rows come too near with the impulses found, these take part as well.
    for _ in range(blocks + 1):
        for k in range(blocks):
            takes[k] = 0 if everywhere(mine[k] == 0.0) else 1
            if shared(takes[k]) > shared(ready[k]):
                ready[k] = 1
                here, at = shared(rows.support[k]), first_row(rows, k) * wide
                if k < rows.singles:
                    scale_row(supports, here, at, factors, J, scaled)
                else:
                    scale_three(supports, here, at, factors, J, scaled)
        # Islands of these rows, and their matrices.
        label, island, block, start = local(Int, dofs), local(Int, blocks), local(Int, blocks), local(Int, blocks + 1)
        islands = find_islands(rows, supports, takes, label, island, block, start)
        most = 3 * shared(start[islands])
        row, kind, begin, matrix = local(Int, most), local(Int, most), local(Int, islands + 1), local(Int, islands + 1)
        count, size = list_rows(rows, islands, block, start, row, kind, begin, matrix)
        listed = Listed(islands, count, row, kind, begin, matrix)
        part, lower, upper, mu = local(Float, count), local(Float, count), local(Float, count), local(Float, count)
        x, w, inverse = local(Float, count), local(Float, count), local(Float, count)
        anchor, plain, answer = local(Float, count), local(Float, count), local(Float, count)
        own = local(Float, count)
        state, free, soft, turn = local(Int, count), local(Int, count), local(Float, count), local(Float, count)
        change, column, right = local(Float, count), local(Float, count), local(Float, count)
        pivot, A, G = local(Float, count), local(Float, size), local(Float, size)
        known = Known(part, plain, lower, upper, mu, inverse)
        marks, system = Marks(state, soft, turn), System(free, G, pivot, column)
        along, speeds, dx, dw = local(Float, count), local(Float, count), local(Float, count), local(Float, count)
        path = Path(along, speeds, dx, dw, right)
        gather(problem, listed, mine, known)
        form_matrices(rows, supports, listed, Y, spread, A)
        row_inverses(listed, cone, bounds.cfm, A, known)
        # Diagonals, by which softness is measured: of contacts and equations their mean, of single rows their own.
        total, parts, threes, least = 0.0, 0.0, 0.0, 1e30
        for f in range(count):
            x[f] = impulse[shared(row[f])]
            if inverse[f] > 0.0:
                own[f] = 1.0 / inverse[f]
                least = min(least, own[f])
                parts = parts + 1.0
                if shared(kind[f]) != SINGLE:
                    total = total + own[f]
                    threes = threes + 1.0
        unit = total / threes if threes > 0.0 else least
        for f in range(count):
            if shared(kind[f]) != SINGLE:
                own[f] = unit
        for _ in range(effort.sweeps):
            sweep(listed, cone, A, bounds.cfm, known, x)
        more, good, ratio, used, done, failed, held = 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0
        tries, fresh, follows, followed = 0.0, 0.0, 0.0, 0.0
        if open == 0.0 or parts == 0.0 or not largest(count, x) < 1e30:
            done = 1.0  # a world that is not finite is lost, and should cost no time
        for f in range(count):
            anchor[f] = x[f]
            answer[f] = x[f]
        row_velocities(listed, A, bounds.cfm, plain, x, w)
        for _ in range(effort.most):
            if everywhere(done == 1.0):
                break
            # Which rows are at a bound, and with their impulses there, an elimination per island for all others.
            classify(listed, cone, known, x, w, marks)
            if not everywhere(fresh == 0.0):
                guess(listed, cone, part, fresh, marks)
                fresh = 0.0
            snap(listed, cone, known, marks, x, change)
            for e in range(islands):
                first, base = shared(begin[e]), shared(matrix[e])
                m = shared(begin[e + 1]) - first
                for j in range(m):
                    if not everywhere(change[first + j] == 0.0):
                        d = change[first + j]
                        w[first + j] = w[first + j] + (bounds.cfm + more * own[first + j]) * d
                        for i in range(m):
                            w[first + i] = w[first + i] + A[base + i * m + j] * d
                unknown = reduce_island(e, listed, cone, A, bounds.cfm, more, own, mu, marks, system)
                for q in range(unknown):
                    f = first + shared(free[q])
                    # Friction across the cone's direction of sliding is softened about the impulses where that acts.
                    bent = turned(listed, cone, f, turn, w) + soft[f] * turned(listed, cone, f, turn, x)
                    right[q] = select(state[f] == FREE, -bent, 0.0)
                eliminate(unknown, effort.singular, system, right, False)
                move(first, unknown, listed, cone, mu, marks, free, right, x)
            # How much is left: of the problem itself, and of the softer one that is being solved.
            row_velocities(listed, A, bounds.cfm, plain, x, w)
            tall = largest(count, x)
            missing = largest_change(listed, cone, known, x, w)
            error = missing
            if not everywhere(more == 0.0):
                for f in range(count):
                    w[f] = w[f] + more * own[f] * (x[f] - held * anchor[f])
                error = largest_change(listed, cone, known, x, w)
            share = effort.precision
            if failed > 2.0:  # in a row
                share = effort.accepted
            used = used + 1.0
            # Solved; or solved with that softness, and then with less; or after too many guesses, with more.
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
                    if (tries == 1.0 and cone == 0) or (work > 0.5 * effort.most and followed == 0.0):
                        follows, followed = 1.0, 1.0
                        more, good, ratio, held = effort.yielding, 0.0, 0.1, 0.0
                    elif tries == 1.0 or work > 0.5 * effort.most:
                        fresh = tries
                        more, good, ratio, held = 0.0, 0.0, 0.1, 0.0
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
            if not everywhere(follows == 0.0):
                for e in range(islands):
                    arrived, pivots = follow_path(
                        e,
                        listed,
                        A,
                        bounds.cfm,
                        effort.yielding,
                        own,
                        effort.singular,
                        effort.most,
                        follows,
                        known,
                        marks,
                        system,
                        path,
                    )
                    work = work + pivots
                    if arrived == 1.0:
                        for f in range(shared(begin[e]), shared(begin[e + 1])):
                            x[f] = path.x[f]
                follows = 0.0
            if not everywhere(used > 0.0):
                row_velocities(listed, A, bounds.cfm, plain, x, w)
                for f in range(count):
                    w[f] = w[f] + more * own[f] * (x[f] - held * anchor[f])
        # What was not solved: by how much, and where.
        if not everywhere(done == 1.0):
            row_velocities(listed, A, bounds.cfm, plain, answer, w)
            missing, tall, spot = 0.0, largest(count, answer), 0.0
            for f in range(count):
                change[f] = change_at(f, listed, cone, known, answer, w)
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
            add_rows(rows, supports, listed, Y, answer, z)
        # Rows that come too near with these impulses.
        further = 0.0
        if not everywhere(open == 0.0 or parts == 0.0):
            velocities_from(factors, z, dv)
            slow = effort.precision * largest(count, answer) * least  # of the heaviest: one visit would do it
            for k in range(blocks):
                near = 0.0
                if k < rows.singles:
                    near = bounds.upper[k]
                else:
                    near = active[k - rows.singles]
                if not everywhere(mine[k] == 1.0 or near <= 0.0):
                    r, here = first_row(rows, k), shared(rows.support[k])
                    at, to, speed = supports.begin[here], r * wide, b[r]
                    for t in range(supports.count[here]):
                        speed = speed + J[to + t] * dv[supports.dofs[at + t]]
                    if mine[k] == 0.0 and open == 1.0 and near > 0.0 and speed < -slow:
                        mine[k] = 1.0
                        further = 1.0
        open = further
        if everywhere(open == 0.0):
            break
    for r in range(every):
        found.impulse[r] = impulse[r]
    for d in range(dofs):
        found.z[d] = z[d]
    return worst, where, work


@kernel
def newton_impulses(
    problem: Problem, factors: Factors, effort: Effort, scaled: Scaled, found: Impulses, report: Report
):
    """The impulses that solve the problem; `scaled` has the rows that take part."""
    left = find_impulses(problem, factors, effort, 1.0, scaled, found)
    report.residual[0], report.unsolved_at[0], report.iterations[0] = left


@kernel
def newton_impulses_adjoint(
    problem: Problem,
    factors: Factors,
    singular: Float,
    bounded: Int,
    scaled: Scaled,
    found: Impulses,
    found_adj: Impulses.adj,
    multipliers: Multipliers,
    problem_adj: Problem.adj,
):
    """The derivative of the implicit function.

    What that means for the rows is left to `newton_rows_adjoint` or `newton_jacobian_adjoint`.

    bounded: Bounds of so many single rows, the first ones, have a derivative.
    """
    rows, supports, bounds, cone, J, b = (
        problem.rows,
        problem.supports,
        problem.bounds,
        problem.cone,
        problem.J,
        problem.b,
    )
    Y, z, impulse, z_adj, impulse_adj = scaled.Y, found.z, found.impulse, found_adj.z, found_adj.impulse
    exact, u, pull = multipliers.exact, multipliers.u, multipliers.pull
    bounds_adj, b_adj = problem_adj.bounds, problem_adj.b
    dofs, wide = len(z), supports.widest
    blocks, contacts = rows.singles + shared(rows.triples[0]), rows.singles + rows.equations
    mine, takes = local(Float, blocks), local(Int, blocks)
    spread, felt_z = local(vec3, dofs), local(Float, dofs)
    dv, felt_dv = local(Float, dofs), local(Float, dofs)
    # Rows that have an impulse, or always take part; their islands and matrices.
    for d in range(dofs):
        felt_z[d] = z_adj[d]
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
    x, w, given, y = local(Float, count), local(Float, count), local(Float, count), local(Float, count)
    state, free, soft, turn = local(Int, count), local(Int, count), local(Float, count), local(Float, count)
    column, right, pivot, inverse = local(Float, count), local(Float, count), local(Float, count), local(Float, count)
    goal, off, other = local(Float, count), local(Float, count), local(Float, count)
    A, G = local(Float, size), local(Float, size)
    listed, known = Listed(islands, count, row, kind, begin, matrix), Known(part, goal, lower, upper, mu, inverse)
    marks, system = Marks(state, soft, turn), System(free, G, pivot, column)
    gather(problem, listed, mine, known)
    form_matrices(rows, supports, listed, Y, spread, A)
    row_inverses(listed, cone, bounds.cfm, A, known)
    # Their velocities, which say what is at a bound; their impulses' cotangents, those through z included.
    for f in range(count):
        r = shared(row[f])
        here, at = home_of(rows, r), r * wide
        to, speed, wanted = supports.begin[here], 0.0, impulse_adj[r]
        for t in range(supports.count[here]):
            d, entry = supports.dofs[to + t], Y[at + t]
            speed = speed + entry * z[d]
            wanted = wanted + entry * z_adj[d]
        x[f] = impulse[r]
        w[f] = goal[f] + bounds.cfm * x[f] + speed
        given[f] = wanted
    classify(listed, cone, known, x, w, marks)
    row_velocities(listed, A, bounds.cfm, goal, x, off)
    # (W E)_free dx = -off refines the impulses x; its transpose with -(E^T given)_free gives u in the free rows.
    for e in range(islands):
        first = shared(begin[e])
        wanted = reduce_island(e, listed, cone, A, bounds.cfm, 0.0, inverse, mu, marks, system)
        for q in range(wanted):
            f = first + shared(free[q])
            felt = turned(listed, cone, f, turn, given)
            if shared(kind[f]) == NORMAL:
                felt = felt + mu[f] * tied(state[f + 1]) * turned(listed, cone, f + 1, turn, given)
                felt = felt + mu[f] * tied(state[f + 2]) * turned(listed, cone, f + 2, turn, given)
            bent = turned(listed, cone, f, turn, off) + soft[f] * turned(listed, cone, f, turn, x)
            other[q] = select(state[f] == FREE, -felt, 0.0)
            right[q] = select(state[f] == FREE, -bent, 0.0)
        eliminate(wanted, singular, system, right, True)
        solve_transposed(wanted, system, other)
        move(first, wanted, listed, cone, mu, marks, free, right, x)
        for q in range(wanted):
            y[first + shared(free[q])] = other[q]
    if cone > 0:
        for f in range(count):
            if shared(kind[f]) == NORMAL:
                y1, y2 = y[f + 1], y[f + 2]
                y[f + 1] = turn[f] * y1 - turn[f + 1] * y2
                y[f + 2] = turn[f] * y2 + turn[f + 1] * y1
    add_rows(rows, supports, listed, Y, y, felt_z)
    for d in range(dofs):
        pull[d] = felt_z[d]
    for r in range(rows.singles + 3 * shared(rows.triples[0])):
        u[r] = 0.0
        exact[r] = 0.0
    # b gets u, cfm u . lambda; what is left of the impulses' cotangents is felt by what they are tied to.
    softness = 0.0
    for f in range(count):
        r = shared(row[f])
        here, at = home_of(rows, r), r * wide
        to = supports.begin[here]
        b_adj[r] += y[f]
        u[r] = y[f]
        exact[r] = x[f]
        softness = softness + y[f] * x[f]
        felt = impulse_adj[r] + bounds.cfm * y[f]
        for t in range(supports.count[here]):
            felt = felt + Y[at + t] * felt_z[supports.dofs[to + t]]
        given[f] = felt
    bounds_adj.cfm[0] += softness
    for f in range(count):
        r, what = shared(row[f]), shared(kind[f])
        if what == SINGLE:
            if state[f] == LOWER:
                bounds_adj.lower[r] += given[f]
            elif state[f] == UPPER:
                bounds_adj.upper[r] += given[f]
        elif what == NORMAL:
            first, second = turned(listed, cone, f + 1, turn, given), turned(listed, cone, f + 2, turn, given)
            slides = tied(state[f + 1]) * first + tied(state[f + 2]) * second
            bounds_adj.mu[(r - rows.singles) // 3] += x[f] * slides
    # Single rows without an impulse are at their lower bound, or at the upper one where both are zero.
    if bounded > 0:
        velocities_from(factors, z, dv)
        velocities_from(factors, felt_z, felt_dv)
    for i in range(bounded):
        if not everywhere(mine[i] == 1.0):
            here, at = shared(rows.support[i]), i * wide
            to, speed, felt = supports.begin[here], b[i], impulse_adj[i]
            for t in range(supports.count[here]):
                d = supports.dofs[to + t]
                speed = speed + J[at + t] * dv[d]
                felt = felt + J[at + t] * felt_dv[d]
            if mine[i] == 0.0:
                if speed >= 0.0:
                    bounds_adj.lower[i] += felt
                else:
                    bounds_adj.upper[i] += felt


@kernel
def newton_rows_adjoint(
    rows: Rows,
    supports: Supports,
    factors: Factors,
    scaled: Scaled,
    found: Impulses,
    multipliers: Multipliers,
    factors_adj: Factors.adj,
    J_adj: Array[Float],
):
    """Cotangents of the rows' Jacobians and of the factors of the mass matrix, after `newton_impulses_adjoint`."""
    wide, H, exact, u = supports.widest, scaled.H, multipliers.exact, multipliers.u
    x, xs, Y_adj = local(Float, wide), local(vec3, wide), local(Float, 3 * wide)
    for k in range(rows.singles + shared(rows.triples[0])):
        here, r, count = shared(rows.support[k]), first_row(rows, k), 1
        if k >= rows.singles:
            count = 3
        if not everywhere(exact[r] == 0.0 and u[r] == 0.0):
            begin, at = supports.begin[here], r * wide
            for i in range(count):
                for t in range(supports.count[here]):
                    d = supports.dofs[begin + t]
                    Y_adj[i * wide + t] = u[r + i] * found.z[d] + exact[r + i] * multipliers.pull[d]
            if count == 1:
                scale_row_adjoint(supports, here, at, factors, H, Y_adj, 0, x, factors_adj, J_adj)
            else:
                scale_three_adjoint(supports, here, at, factors, H, Y_adj, 0, xs, factors_adj, J_adj)


@kernel
def newton_jacobian_adjoint(
    rows: Rows,
    supports: Supports,
    factors: Factors,
    found: Impulses,
    multipliers: Multipliers,
    J_adj: Array[Float],
):
    """Cotangents of the rows' Jacobians alone, where those of the mass matrix come from the whole motion.

    Of M dv = J^T lambda and w = b + J dv + cfm lambda, with the multipliers s = M^-1 (cotangent of dv + J^T u) and u.
    """
    dofs, exact, u = len(found.z), multipliers.exact, multipliers.u
    dv, s = local(Float, dofs), local(Float, dofs)
    velocities_from(factors, found.z, dv)
    velocities_from(factors, multipliers.pull, s)
    for k in range(rows.singles + shared(rows.triples[0])):
        here, r, count = shared(rows.support[k]), first_row(rows, k), 1
        if k >= rows.singles:
            count = 3
        if not everywhere(exact[r] == 0.0 and u[r] == 0.0):
            begin = supports.begin[here]
            for i in range(r, r + count):
                for t in range(supports.count[here]):
                    d = supports.dofs[begin + t]
                    J_adj[i * supports.widest + t] += u[i] * dv[d] + exact[i] * s[d]
