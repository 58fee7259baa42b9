"""The complementarity problem of an island by principal pivots: a path of solutions that ends at one, always.

With a share t of a covering vector d > 0 added to the velocities of contacts and bounded rows,

    w = W lambda + b + t d,    W = A + cfm,

all contacts are open and all bounded impulses at their lower bounds if t is large. As t shrinks, the solution moves
along a line that bends where a row reaches a bound or leaves it; there t may have to grow for a while. The path has an
end: impulses could only grow without one along lambda with lambda.(W lambda + t d) = lambda.w <= 0, as friction takes
power, while d.lambda >= 0 and W is positive definite. So t reaches 0, and what is found is a solution [Cottle, Pang,
Stone 1992, sec. 4.5]. Different d for each row keep two rows from changing at once.

A row at its lower bound is LOWER, and a contact that is open FIXED; friction at a bound is tied to its normal impulse,
see `active_set`. Friction is within the pyramid. Worlds in lanes have paths of their own; those that are done wait.
"""

from __future__ import annotations

from kinema.contact.solving.active_set import (
    FIXED,
    FREE,
    LOWER,
    UPPER,
    eliminate,
    move,
    reduce_island,
    solve_again,
)
from kinema.contact.solving.delassus import FRICTION, NORMAL, SINGLE, product
from kinema.lang import Array, Float, everywhere, floor, func, max, record, select, shared, sqrt

NEVER = 1e30
FAR = 1e29  # bounds beyond are those of rows without bounds, such as mimic joints


@record
class Path:
    """Of the listed rows.

    x, w: Impulses and velocities where the path is.
    dx, dw: By how much they change with t.
    right: Room for a number per row.
    """

    x: Array[Float]
    w: Array[Float]
    dx: Array[Float]
    dw: Array[Float]
    right: Array[Float]


@func
def covering(f, listed, known):
    """The covering vector of row f: another number for each row, and the same one whatever rows are listed with it.

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
    """The normal row of a row of friction."""
    return f - 1 if shared(listed.kind[f - 1]) == NORMAL else f - 2


@func
def room_to(state, f, listed, known, marks, path):
    """How far row f is from going to a state, and by how much that changes with t."""
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
    """Impulses and velocities of these states at t, and their derivatives by t."""
    first, base = shared(listed.begin[e]), shared(listed.matrix[e])
    n = shared(listed.begin[e + 1]) - first
    for i in range(n):
        f, at = first + i, base + i * n
        pushed = product(n, at, A, first, path.x) + (cfm + more * own[f]) * path.x[f]
        path.w[f] = known.goal[f] + pushed + t * covering(f, listed, known)
        path.dx[f] = 0.0
    unknown = reduce_island(e, listed, 0, A, cfm, more, own, known.mu, marks, system)
    for q in range(unknown):
        f = first + shared(system.free[q])
        path.right[q] = select(marks.state[f] == FREE, -path.w[f], 0.0)
    eliminate(unknown, singular, system, path.right, True)
    move(first, unknown, listed, 0, known.mu, marks, system.free, path.right, path.x)
    for q in range(unknown):
        f = first + shared(system.free[q])
        path.right[q] = select(marks.state[f] == FREE, -covering(f, listed, known), 0.0)
    solve_again(unknown, system, path.right)
    move(first, unknown, listed, 0, known.mu, marks, system.free, path.right, path.dx)
    for i in range(n):
        f, at, d = first + i, base + i * n, covering(first + i, listed, known)
        soft = cfm + more * own[f]
        path.w[f] = known.goal[f] + product(n, at, A, first, path.x) + soft * path.x[f] + t * d
        path.dw[f] = product(n, at, A, first, path.dx) + soft * path.dx[f] + d


@func
def follow_path(e, listed, A, cfm, more, own, singular, most, follows, known, marks, system, path):
    """Follow the path of an island to its end, where `follows` is 1, not 0.

    more, own: Softness beyond cfm, as a share of `own`.

    Returns whether it got there, with the solution in `path.x`, and in how many pivots.
    """
    first = shared(listed.begin[e])
    end = shared(listed.begin[e + 1])
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
    t, way, going, pivots, arrived, begun = 0.0, -1.0, follows, 0.0, 0.0, 0
    last, before = -1, FIXED
    for _ in range(most):
        if everywhere(going == 0.0):
            break
        find_line(e, listed, A, cfm, more, own, singular, t, known, marks, system, path)
        if begun == 0:  # so large a t that nothing wants to move
            for f in range(first, end):
                d = covering(f, listed, known)
                if marks.state[f] != FREE and d > 0.0:
                    t = max(t, -path.w[f] / d)
            for f in range(first, end):
                path.w[f] = path.w[f] + t * covering(f, listed, known)
            begun = 1
        # The way along the path on which the row that changed last goes on.
        for f in range(first, end):
            value, rate = room_to(before, f, listed, known, marks, path)
            if last == f:
                way = select(rate > 0.0, 1.0, -1.0)
        # The next row that changes, and to what.
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
                    if able and rate * way < 0.0 and not (last == f and next == before):
                        length = max(value, 0.0) / (-rate * way)
                        if length < least:
                            least = length
                            chosen = f
                            to = next
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
                    marks.state[f] = FIXED
        else:
            chosen = -1
        # A contact that closes slides against its motion; one that opens has no impulse.
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
