"""Newton's method for the complementarity problem of `pgs`, converged to rounding error, and its implicit derivative.

Few rows take part: equations, dry friction, and contacts and limits that would penetrate without impulses. Newton's
method forms the Delassus matrix A = Y Y^T of each island; rows that share no degree of freedom, directly or through
other rows, are on different islands. A few PGS iterations give an initial guess, which determines the active set: the
rows at a bound. For a given active set the problem is linear: rows at a bound have the value of the bound, sliding
friction is tied to its normal impulse, all other rows have w = 0. Elimination solves it; the solution is the next
guess. Rows that penetrate with these impulses then join the problem, which is solved again.

The guesses may cycle. With the friction pyramid, the solver then follows a path of solutions from a problem without
active rows to this one (`principal_pivots`): except for rounding error the path always ends at a solution, after tens
of eliminations. With the cone, the second guess is that all contacts stick. If the problem is still unsolved (rounding
error of single precision, the cone), the solver adds compliance until it finds a solution, and reduces the compliance
from solution to solution. If this fails, the solver takes proximal steps: a problem with the extra compliance h and
b - h lambda in place of b has the solution lambda if lambda also solves the original problem; h shrinks with every
success, which moves lambda towards the solution. The last resort is a fixed sequence of quasi-random guesses, for the
cone after the solution for the pyramid.

A pivot within rounding error leaves its impulse unchanged: impulses that other rows can take over, such as those of
redundant contacts, keep their values from PGS.

For a contact that slides with the friction cone, the equations are written along the direction d in which friction
pushes and along e across it. Along d friction is tied, d lambda_d = mu d lambda_n; across,
w = -|w| lambda_t / (mu lambda_n) gives

    d w_e + soft d lambda_e = 0,    soft = |w| / (mu lambda_n)

The derivative follows from the implicit function theorem: with E the columns of the free rows (including the friction
tied to them) and W = A + cfm, impulses change by E x, where (W E)_free x = -(dW lambda + db + ...)_free. The adjoint,
in `newton_adjoint`, is one more elimination, with the transpose; it differentiates neither PGS iterations nor guesses.

Worlds of a batch run in lanes. All lanes of a register share the list of rows that take part, so that they access the
same memory; each lane has its own active set, and lanes that have converged wait. So a world gives the same bits in a
batch as alone.
"""

from __future__ import annotations

from kinema.contact.complementarity.active_set import (
    FREE,
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
    sweep,
    turned,
)
from kinema.contact.complementarity.delassus import (
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
from kinema.contact.complementarity.mass_scaling import Scaled
from kinema.contact.complementarity.pgs import Bounds, Rows, Supports, end_of
from kinema.contact.complementarity.principal_pivots import NONE, Path, follow_path
from kinema.kinematics.factors import Factors
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

    rows, supports, bounds: The rows, the degrees of freedom they couple, and the bounds of their impulses.
    active: Per triple, 0 for inactive contacts, else 1.
    cone: 1 for the friction cone, 0 for the pyramid.
    J: Jacobians of the rows.
    b: Velocities of the rows without impulses minus target velocities.
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

    impulse: Impulses of all rows [N s].
    z: Y^T impulse.
    """

    impulse: Array[Float]
    z: Array[Float]


@record
class Report:
    """A solver's report on a problem.

    residual: The largest change of an impulse by one more row update, relative to the largest impulse [-].
    unsolved_at: If the residual is too large, a degree of freedom of the body or joint with the largest change.
    iterations: Eliminations of Newton's method, or PGS iterations.
    """

    residual: Array[Float]
    unsolved_at: Array[Float]
    iterations: Array[Float]


@record
class Effort:
    """Tolerances and limits of `newton_impulses`.

    precision: Largest error of an impulse, relative to the largest impulse [-].
    accepted: The same after three failures in a row, which rounding error allows for very different masses [-].
    singular: A pivot below this fraction of its diagonal is rounding error [-].
    softer: Extra compliance after a failure, ten times as much after each further failure [-]. It is relative to the
        row's own diagonal for single rows, whose diagonals for light joints may be a million times larger than others,
        and relative to their mean diagonal for contacts and equations.
    held: Smallest extra compliance of proximal steps [-].
    yielding: Extra compliance of the path of solutions, measured alike: without it, the pivots of redundant contacts
        are rounding error [-].
    largest: Rows of a world above which no path is followed.
    sweeps: PGS iterations before the first elimination.
    steps: Eliminations after which an attempt fails.
    most: Largest number of eliminations in total.
    """

    precision: Float
    accepted: Float
    singular: Float
    softer: Float
    held: Float
    yielding: Float
    largest: Int
    sweeps: Int
    steps: Int
    most: Int


@func
def gather(problem, listed, mine, known):
    """Gather the data of the listed rows, except their inverses."""
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
    """Find the impulses that solve the problem, in lanes where `wanted` is 1; in lanes where it is 0 they are zero.

    Returns the residual, where it is, and the number of eliminations, see `Report`.
    """
    rows, supports, bounds, active, cone = problem.rows, problem.supports, problem.bounds, problem.active, problem.cone
    J, b, Y = problem.J, problem.b, scaled.Y
    dofs, wide, every = len(factors.root), supports.widest, rows.singles + 3 * shared(rows.triples[0])
    blocks, contacts = rows.singles + shared(rows.triples[0]), rows.singles + rows.equations
    mine, takes, ready = local(Float, blocks), local(Int, blocks), local(Int, blocks)
    # Local arrays start as zeros. Impulses stay local from round to round and are written to `found` once.
    spread, dv, z, impulse = local(vec3, dofs), local(Float, dofs), local(Float, dofs), local(Float, every)
    # Rows that take part at first: equations, dry friction, and contacts and limits that close without impulses.
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
    # Repeat as long as the impulses make further rows penetrate, which then take part.
    for _ in range(blocks + 1):
        # Scale the rows that are new.
        for k in range(blocks):
            takes[k] = 0 if everywhere(mine[k] == 0.0) else 1
            if shared(takes[k]) > shared(ready[k]):
                ready[k] = 1
                here, at = shared(rows.support[k]), first_row(rows, k) * wide
                if k < rows.singles:
                    factors.scale_row(supports, here, at, J, scaled)
                else:
                    factors.scale_three(supports, here, at, J, scaled)
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
        marks, system = Marks(state, soft, turn), System(free, G, pivot, column, 0, 0)
        along, speeds, dx, dw = local(Float, count), local(Float, count), local(Float, count), local(Float, count)
        ending = local(Int, count)
        path = Path(along, speeds, dx, dw, right, ending)
        gather(problem, listed, mine, known)
        form_matrices(rows, supports, listed, Y, spread, A)
        row_inverses(listed, cone, bounds.cfm, A, known)
        # The diagonals that scale extra compliance: the mean one for contacts and equations, their own for single rows.
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
        # PGS iterations for the initial guess.
        for _ in range(effort.sweeps):
            sweep(listed, cone, A, bounds.cfm, known, x)
        more, good, ratio, used, done, failed, held = 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0
        tries, fresh, follows, followed, reached = 0.0, 0.0, 0.0, 0.0, 0.0
        if parts > 1.0 * effort.largest:
            followed = 1.0  # too many pivots, each of which eliminates anew
        if open == 0.0 or parts == 0.0 or not largest(count, x) < 1e30:
            done = 1.0  # a world with non-finite impulses has no solution: stop at once
        for f in range(count):
            anchor[f] = x[f]
            answer[f] = x[f]
        row_velocities(listed, A, bounds.cfm, plain, x, w)
        for _ in range(effort.most):
            if everywhere(done == 1.0):
                break
            # The active set; impulses at bounds get their values, and one elimination per island gives all others.
            classify(listed, cone, known, x, w, marks)
            if not everywhere(reached == 0.0):
                for f in range(count):
                    if path.state[f] != NONE:
                        marks.state[f] = path.state[f]
                        marks.soft[f] = 0.0
                        path.state[f] = NONE
                reached = 0.0
            if not everywhere(fresh == 0.0):
                guess(listed, cone, part, fresh, marks)
                fresh = 0.0
            snap(listed, cone, known, marks, x, change)
            for e in range(islands):
                first, base = shared(begin[e]), shared(matrix[e])
                m = shared(begin[e + 1]) - first
                # The change of w due to impulses that moved to their bounds.
                for j in range(m):
                    if not everywhere(change[first + j] == 0.0):
                        d = change[first + j]
                        w[first + j] = w[first + j] + (bounds.cfm + more * own[first + j]) * d
                        for i in range(m):
                            w[first + i] = w[first + i] + A[base + i * m + j] * d
                unknown = reduce_island(e, listed, cone, A, bounds.cfm, more, own, mu, marks, system)
                for q in range(unknown):
                    f = first + shared(free[q])
                    # The compliance across the cone's direction of sliding acts on the whole impulse.
                    bent = turned(listed, cone, f, turn, w) + soft[f] * turned(listed, cone, f, turn, x)
                    right[q] = select(state[f] == FREE, -bent, 0.0)
                eliminate(unknown, effort.singular, system, right, False)
                move(first, unknown, listed, cone, mu, marks, system, right, x)
            # The error of the problem itself, and of the problem with extra compliance that is being solved.
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
            if done == 0.0:
                work = work + 1.0
                # Solved.
                if missing <= share * tall:
                    done = 1.0
                    worst = missing / tall if tall > 0.0 else 0.0
                    for f in range(count):
                        answer[f] = x[f]
                # Solved with this extra compliance: go on with less.
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
                # Failed: the path of solutions, then new guesses, more compliance, or proximal steps.
                elif used >= effort.steps:
                    used = 0.0
                    failed = failed + 1.0
                    tries = tries + 1.0
                    if followed == 0.0 and ((tries == 1.0 and cone == 0) or work > 0.5 * effort.most):
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
            # The path of solutions, in the lanes whose first attempt failed.
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
                    # Keep the active set alone: impulses solved for anew have the same bits beside any other island.
                    for f in range(shared(begin[e]), shared(begin[e + 1])):
                        if arrived == 1.0:
                            x[f] = 0.0
                        else:
                            path.state[f] = NONE
                follows, reached = 0.0, 1.0
            # Velocities of the next problem, if it changed in any lane.
            if not everywhere(used > 0.0):
                row_velocities(listed, A, bounds.cfm, plain, x, w)
                for f in range(count):
                    w[f] = w[f] + more * own[f] * (x[f] - held * anchor[f])
        # Unsolved lanes: the residual, and where it is.
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
        # The impulses of this round, and z.
        if open == 1.0:
            for f in range(count):
                impulse[shared(row[f])] = answer[f]
            for d in range(dofs):
                z[d] = 0.0
            add_rows(rows, supports, listed, Y, answer, z)
        # Rows that close with these impulses.
        further = 0.0
        if not everywhere(open == 0.0 or parts == 0.0):
            factors.velocities_from(z, dv)
            slow = effort.precision * largest(count, answer) * least  # of the heaviest row, by the tolerated error
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
    """Find the impulses that solve the problem; `scaled` receives the rows that take part."""
    left = find_impulses(problem, factors, effort, 1.0, scaled, found)
    report.residual[0], report.unsolved_at[0], report.iterations[0] = left
