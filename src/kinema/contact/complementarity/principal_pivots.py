"""Principal pivoting for the complementarity problem of an island: a path of solutions that always ends at a solution.

The path adds t times a covering vector d > 0 to the velocities of contacts and bounded rows:

    w = W lambda + b + t d,    W = A + cfm

For large t all contacts are open and all bounded impulses are at their lower bounds. As t shrinks, the solution moves
along a piecewise linear path with a kink where a row reaches or leaves a bound; after a kink t may grow for a while.
The path is finite: impulses could only diverge along a ray lambda with lambda.(W lambda + t d) = lambda.w <= 0, because
friction dissipates power, but d.lambda >= 0 and W is positive definite. So t reaches 0, where the point of the path
solves the problem [Cottle, Pang, Stone 1992, sec. 4.5]. Each row has a different entry of d, so that no two rows change
at the same t.

A row at its lower bound is LOWER, an open contact FIXED; friction at a bound is tied to its normal impulse, see
`active_set`. Friction is within the pyramid. Each lane follows its own path; lanes that have arrived wait.
"""

from __future__ import annotations

from kinema.contact.complementarity.active_set import (
    FIXED,
    FREE,
    LOWER,
    UPPER,
    eliminate,
    move,
    reduce_island,
    solve_again,
)
from kinema.contact.complementarity.delassus import FRICTION, NORMAL, SINGLE, product
from kinema.lang import Array, Float, Int, everywhere, floor, func, max, record, select, shared, sqrt

NEVER = 1e30
NONE = -1
FAR = 1e29  # a row whose bounds are larger is unbounded, such as a mimic joint


@record
class Path:
    """The current point of the path, for the listed rows.

    x, w: Impulses and velocities.
    dx, dw: Their derivatives by t.
    right: Workspace, one entry per row.
    state: The active set at the end; NONE in lanes that do not follow a path.
    """

    x: Array[Float]
    w: Array[Float]
    dx: Array[Float]
    dw: Array[Float]
    right: Array[Float]
    state: Array[Int]


@func
def covering(f, listed, known):
    """Entry of the covering vector for row f: different for each row, and independent of the other listed rows.

    Equations, friction, and rows that take no part have 0.
    """
    what, d = shared(listed.kind[f]), 0.0
    if what <= SINGLE or what == NORMAL:
        share = 0.618034 * (1 + shared(listed.row[f]))
        if known.inverse[f] > 0.0 and (what == NORMAL or known.lower[f] > -FAR):
            d = sqrt(1.0 / known.inverse[f]) * (1.0 + share - floor(share))
    return d


@func
def normal_of(listed, f):
    """The normal row of a friction row."""
    return f - 1 if shared(listed.kind[f - 1]) == NORMAL else f - 2


@func
def room_to(state, f, listed, known, marks, path):
    """Distance of row f from the transition to a state, and its derivative by t."""
    what, value, rate = shared(listed.kind[f]), path.w[f], path.dw[f]
    if state == FREE:
        if marks.state[f] == UPPER:
            value = -value
            rate = -rate
    elif what == SINGLE:
        value = select(state == UPPER, known.upper[f] - path.x[f], path.x[f] - known.lower[f])
        rate = select(state == UPPER, -path.dx[f], path.dx[f])
    elif what == NORMAL:
        value = path.x[f]
        rate = path.dx[f]
    else:
        n = normal_of(listed, f)
        sign = select(state == UPPER, -1.0, 1.0)
        value = known.mu[n] * path.x[n] + sign * path.x[f]
        rate = known.mu[n] * path.dx[n] + sign * path.dx[f]
    return value, rate


@func
def find_line(e, listed, A, cfm, more, own, singular, t, known, marks, system, path):
    """Solve for the impulses and velocities of the current active set at t, and their derivatives by t."""
    first, base = shared(listed.begin[e]), shared(listed.matrix[e])
    n = shared(listed.begin[e + 1]) - first
    # Velocities with the impulses so far.
    for i in range(n):
        f, at = first + i, base + i * n
        pushed = product(n, at, A, first, path.x) + (cfm + more * own[f]) * path.x[f]
        path.w[f] = known.goal[f] + pushed + t * covering(f, listed, known)
        path.dx[f] = 0.0
    # Impulses of the free rows with w = 0, and with the same factors their derivatives by t.
    unknown = reduce_island(e, listed, 0, A, cfm, more, own, known.mu, marks, system)
    for q in range(unknown):
        f = first + shared(system.free[q])
        path.right[q] = select(marks.state[f] == FREE, -path.w[f], 0.0)
    eliminate(unknown, singular, system, path.right, True)
    move(first, unknown, listed, 0, known.mu, marks, system, path.right, path.x)
    for q in range(unknown):
        f = first + shared(system.free[q])
        path.right[q] = select(marks.state[f] == FREE, -covering(f, listed, known), 0.0)
    solve_again(unknown, system, path.right)
    move(first, unknown, listed, 0, known.mu, marks, system, path.right, path.dx)
    # Velocities with the new impulses, and their derivatives by t.
    for i in range(n):
        f, at, d = first + i, base + i * n, covering(first + i, listed, known)
        soft = cfm + more * own[f]
        path.w[f] = known.goal[f] + product(n, at, A, first, path.x) + soft * path.x[f] + t * d
        path.dw[f] = product(n, at, A, first, path.dx) + soft * path.dx[f] + d


@func
def follow_path(e, listed, A, cfm, more, own, singular, most, follows, known, marks, system, path):
    """Follow the path of an island to its end, in lanes where `follows` is 1.

    more, own: Extra compliance beyond cfm: `more` times the diagonal `own`.

    Returns whether the path arrived at t = 0, with the solution in `path.x` and its active set in `path.state`, and the
    number of pivots.
    """
    first = shared(listed.begin[e])
    end = shared(listed.begin[e + 1])
    # The active set for large t.
    for f in range(first, end):
        what, at = shared(listed.kind[f]), FIXED
        takes = follows == 1.0 and known.inverse[f] > 0.0
        path.x[f] = 0.0
        if takes and what == SINGLE and known.lower[f] > -FAR:
            at = LOWER
            path.x[f] = known.lower[f]
        elif takes and what < NORMAL:
            at = FREE
        marks.state[f] = at
        marks.soft[f] = 0.0
        path.state[f] = NONE
    t, way, going, pivots, arrived, begun = 0.0, -1.0, follows, 0.0, 0.0, 0
    last, before = -1, FIXED
    for _ in range(most):
        if everywhere(going == 0.0):
            break
        find_line(e, listed, A, cfm, more, own, singular, t, known, marks, system, path)
        if begun == 0:  # start at the smallest t with all w >= 0
            for f in range(first, end):
                d = covering(f, listed, known)
                if marks.state[f] != FREE and d > 0.0:
                    t = max(t, -path.w[f] / d)
            for f in range(first, end):
                path.w[f] = path.w[f] + t * covering(f, listed, known)
            begun = 1
        # The direction along the path in which the row that changed last keeps its new state.
        for f in range(first, end):
            value, rate = room_to(before, f, listed, known, marks, path)
            if last == f:
                way = select(rate > 0.0, 1.0, -1.0)
        # The next row that changes its state, and its new state.
        least, chosen, to = NEVER, -1, FIXED
        for f in range(first, end):
            what, state = shared(listed.kind[f]), marks.state[f]
            if what == SINGLE or what >= NORMAL:
                able = known.inverse[f] > 0.0
                if what == FRICTION:
                    able = able and marks.state[normal_of(listed, f)] == FREE
                leave = FIXED if what == NORMAL else LOWER
                next = select(state == FREE, leave, FREE)
                for other in range(1 if what == NORMAL else 2):
                    if other == 1:
                        able = able and state == FREE
                        next = UPPER
                    value, rate = room_to(next, f, listed, known, marks, path)
                    if able and rate * way < 0.0:  # never back: of the row that changed last, that grows
                        length = max(value, 0.0) / (-rate * way)
                        if length < least:
                            least = length
                            chosen = f
                            to = next
        # Move to the next kink, or to the end at t = 0; give up where no row changes and t would grow for ever.
        over = way < 0.0 and t <= least
        length = select(over, t, least)
        if going == 1.0:
            pivots = pivots + 1.0
            if over or chosen >= 0:
                t = t + way * length
                for f in range(first, end):
                    path.x[f] = path.x[f] + way * length * path.dx[f]
                    path.w[f] = path.w[f] + way * length * path.dw[f]
            if over:
                arrived = 1.0
            if over or chosen < 0:
                going = 0.0
                chosen = -1
                last = -1
                for f in range(first, end):
                    path.state[f] = marks.state[f]
                    marks.state[f] = FIXED
        else:
            chosen = -1
        # Change the state of that row. A contact that closes slides against its motion; one that opens has no impulse.
        for f in range(first, end):
            what = shared(listed.kind[f])
            if chosen == f:
                last = f
                before = marks.state[f]
                marks.state[f] = to
                if what == SINGLE and to != FREE:
                    path.x[f] = select(to == UPPER, known.upper[f], known.lower[f])
                if what == NORMAL:
                    for k in range(1, 3):
                        slides = select(path.w[f + k] < 0.0, UPPER, LOWER)
                        marks.state[f + k] = select(to == FREE, slides, FIXED)
                        path.x[f + k] = 0.0
                    path.x[f] = 0.0
    return arrived, pivots
