"""Impacts: what bounces, and when within a step.

Contacts and limits with restitution that are hit fast do not take part in the problem of a step (see `rows`). They are
looked at afterwards, in rounds, in the order in which they are hit. With the velocities v_1 that the other impulses
leave, a row's speed at the end of the step is u = J v_1, its gap there g, its mean acceleration a = (u - J v) / dt. It
is hit if g < 0 and u < 0, along the straight line that the step follows, when the time

    r = g / u                                  is left of the step; its speed is then
    u_hit = u - r a + f dt / 2                 and at the end of the step it shall be
    T = max(-e u_hit + r a - f dt / 2, 0)

f is the row's acceleration by gravity, of bodies that fall: velocities of steps are ahead of the path that positions
follow, whose velocity at a step is v + f dt / 2. So a ball with e = 1 keeps its energy, to rounding. (With all of a in
place of f, forces of stiff dampers, which change from step to step, would bring jumps back.)

Rows that are hit at the same time make one problem, the same as that of the step, of impulses lambda that act for the
rest of it: they change velocities by M^-1 J^T lambda, and displacements by r M^-1 J^T lambda. Friction meets the speed
of sliding at the impact. J and M are those at the pose of the impact, to which each tree is moved for its first one in
a step: with those at the start of the step, what an impact does would jump as it moves from one step into the next.
Then gaps and speeds at the end of the step are others, and the next round finds what is hit next, which may be at the
same time: of balls in a row that touch, each hits the next. What holds without restitution (loops, followers, contacts
and limits that touch) holds through impacts; dry friction of joints, bounded by its force, does nothing in no time.

Restitution begins at the threshold: a share of it counts, which grows from 0 there to 1 at twice the threshold.
"""

from __future__ import annotations

from kinema.contact.mlcp import Rows, Supports, add_row, row_velocity
from kinema.contact.shapes import Touch
from kinema.kinematics.tree import Branches, Tree
from kinema.lang import Array, Float, Int, everywhere, func, kernel, max, record, shared

FOREVER = 1e30  # a bound that no impulse meets


@record
class Bounce:
    """What bounces, and from what on.

    contacts: Coefficients of restitution by candidate [-].
    limits: That of limits [-].
    threshold: Speed from which on they bounce [m/s, rad/s].
    slow: Speed below which nothing is hit [m/s, rad/s].
    short: Depth below which nothing is hit [m, rad].
    close: Distance at which things are hit together [m, rad].
    """

    contacts: Array[Float]
    limits: Float
    threshold: Float
    slow: Float
    short: Float
    close: Float


@record
class Limited:
    """Rows of limits among the single rows: the first; those before are `followers` equations, then dry friction."""

    followers: Int
    first: Int


@func
def time_left(gap: Float, speed: Float, most: Float, short: Float):
    """What is left of a step when a row is hit [s], at most `most`: gap and speed, both below 0, are at its end.

    What was hit before, but less than a short way ago, is hit then: at the end of the last step it was not seen.
    """
    left = most
    if gap > most * speed - short:
        left = gap / speed
    return left


@func
def share_of(restitution: Float, speed: Float, threshold: Float):
    """The share of its restitution with which a row bounces [-]: none at the threshold, all at twice that speed."""
    over, found = -speed - threshold, 0.0
    if restitution > 0.0 and over > 0.0:
        found = 1.0
        if over < threshold:
            found = over / threshold
    return found


@func
def speed_after(restitution: Float, threshold: Float, speed: Float, change: Float, ahead: Float):
    """The speed at the end of a step [m/s] of what is hit; it does not fall back.

    speed: At the end of the step, without the impact.
    change: What is added to its speed after the impact, until then.
    ahead: How far speeds are ahead of the path.
    """
    hit = speed - change + ahead
    share = share_of(restitution, hit, threshold)
    return max(change - share * (ahead + restitution * hit), 0.0)


@func
def bounces(bounce, restitution: Float, gap: Float, free: Float, before: Float, fall: Float, dt: Float):
    """1 if a row is hit within the step, faster than the threshold, where nothing holds it; 0 otherwise.

    gap: At the start.
    free, before: Its speed at the end and at the start.
    fall: Its acceleration by gravity.
    """
    found, end = 0.0, gap + dt * free
    if restitution > 0.0 and end < 0.0 and free < 0.0:
        left = time_left(end, free, dt, bounce.short)
        if free - left * ((free - before) / dt) + 0.5 * dt * fall < -bounce.threshold:
            found = 1.0
    return found


@kernel
def contact_gaps(rows: Rows, near: Array[Float], gap: Array[Float]):
    """Gaps of contacts, in their first rows."""
    for c in range(rows.equations, rows.triples[0]):
        gap[rows.singles + 3 * c] = near[c - rows.equations]


@kernel
def row_speeds(
    rows: Rows,
    supports: Supports,
    J: Array[Float],
    v: Array[Float],
    v_free: Array[Float],
    falling: Array[Float],
    before: Array[Float],
    free: Array[Float],
    fall: Array[Float],
):
    """Speeds of all rows at the start of the step, and at its end without impulses; their accelerations by gravity."""
    for i in range(rows.singles):
        here = rows.support[i]
        before[i] = row_velocity(here, supports, J, i, v)
        free[i] = row_velocity(here, supports, J, i, v_free)
        fall[i] = row_velocity(here, supports, J, i, falling)
    for c in range(rows.triples[0]):
        here, r = rows.support[rows.singles + c], rows.singles + 3 * c
        for k in range(3):
            before[r + k] = row_velocity(here, supports, J, r + k, v)
            free[r + k] = row_velocity(here, supports, J, r + k, v_free)
            fall[r + k] = row_velocity(here, supports, J, r + k, falling)


@kernel
def leave_out(
    rows: Rows,
    limited: Limited,
    bounce: Bounce,
    surface: Array[Int],
    before: Array[Float],
    free: Array[Float],
    fall: Array[Float],
    gap: Array[Float],
    dt: Float,
    active: Array[Float],
    upper: Array[Float],
    active_held: Array[Float],
    upper_held: Array[Float],
):
    """Contacts and limits that will bounce have no impulse in the problem of the step."""
    for i in range(limited.first):
        upper_held[i] = upper[i]
    for i in range(limited.first, rows.singles):
        gone = bounces(bounce, bounce.limits, gap[i], free[i], before[i], fall[i], dt)
        upper_held[i] = 0.0 if gone > 0.0 else upper[i]
    for c in range(rows.equations):
        active_held[c] = 1.0
    for c in range(rows.equations, rows.triples[0]):
        r = rows.singles + 3 * c
        e = bounce.contacts[surface[c - rows.equations]]
        gone = bounces(bounce, e, gap[r], free[r], before[r], fall[r], dt)
        active_held[c] = 0.0 if gone > 0.0 else active[c]


@kernel
def first_hits(
    rows: Rows,
    supports: Supports,
    limited: Limited,
    bounce: Bounce,
    Y: Array[Float],
    start_gap: Array[Float],
    free: Array[Float],
    dt: Float,
    active: Array[Float],
    upper: Array[Float],
    cfm: Float,
    impulse: Array[Float],
    z: Array[Float],
    gap: Array[Float],
    speed: Array[Float],
    left: Array[Float],
    some: Array[Float],
):
    """Gaps and speeds of limits and contacts at the end of the step, and when each is hit.

    gap, speed: [m, m/s]
    left: What is left of the step then [s], 0 for those that are not hit; of contacts, in their first rows.
    some: 1 if something is hit.
    """
    found = 0.0
    for i in range(limited.first, rows.singles):
        change = row_velocity(rows.support[i], supports, Y, i, z)
        u, rest = free[i] + change, 0.0
        g = start_gap[i] + dt * (u + cfm * impulse[i])  # what is soft gives way, and is not hit
        if upper[i] > 0.0 and g < -bounce.short and u < -bounce.slow:
            rest = time_left(g, u, dt, bounce.short)
            found = 1.0
        speed[i] = u
        gap[i] = g
        left[i] = rest
    for c in range(rows.equations, rows.triples[0]):
        r = rows.singles + 3 * c
        change = row_velocity(rows.support[rows.singles + c], supports, Y, r, z)
        u, rest = free[r] + change, 0.0
        g = start_gap[r] + dt * (u + cfm * impulse[r])
        if active[c] > 0.0 and g < -bounce.short and u < -bounce.slow:
            rest = time_left(g, u, dt, bounce.short)
            found = 1.0
        speed[r] = u
        gap[r] = g
        left[r] = rest
    some[0] = found


@func
def second_root(supports, support):
    """The first degree of freedom of a constraint's second tree; of its first, if there is no other."""
    at = supports.begin[support]
    if supports.common[support] == 0 and supports.first[support] < supports.count[support]:
        at = at + supports.first[support]
    return supports.dofs[at]


@kernel
def tree_times(
    tree: Tree,
    branches: Branches,
    rows: Rows,
    supports: Supports,
    limited: Limited,
    left: Array[Float],
    some: Array[Float],
    dt: Float,
    past: Array[Float],
):
    """When the tree of each degree of freedom is first hit [s]; 0 if it is not."""
    first, end = rows.singles, rows.equations
    if some[0] > 0.0:
        first = limited.first
        end = rows.triples[0]
    for i in range(len(tree.parent)):
        d = tree.v_start[i]
        root, latest = branches.above[branches.row[d]], 0.0
        for k in range(first, rows.singles):
            here = rows.support[k]
            if supports.dofs[supports.begin[here]] == root or second_root(supports, here) == root:
                latest = max(latest, left[k])
        for c in range(rows.equations, end):
            here = rows.support[rows.singles + c]
            if supports.dofs[supports.begin[here]] == root or second_root(supports, here) == root:
                latest = max(latest, left[rows.singles + 3 * c])
        time = dt - latest if latest > 0.0 else 0.0
        for k in range(tree.dofs[i]):
            past[d + k] = time


@kernel
def follow_contacts(all: Touch, surface: Array[Int], triples: Array[Int], equations: Int, near: Touch):
    """Contacts where they are now: those of the candidates that were picked."""
    for c in range(triples[0] - equations):
        near.gap[c] = all.gap[surface[c]]
        near.point[c] = all.point[surface[c]]
        near.normal[c] = all.normal[surface[c]]


@kernel
def begin_rounds(
    rows: Rows,
    supports: Supports,
    limited: Limited,
    before: Array[Float],
    after: Array[Float],
    dt: Float,
    left: Array[Float],
    past: Array[Float],
    gap: Array[Float],
    speed: Array[Float],
    impulse: Array[Float],
    rate: Array[Float],
    end_gap: Array[Float],
    total: Array[Float],
    time: Array[Float],
    more: Array[Float],
):
    """Mean accelerations of rows, and gaps at the end of the step, seen from the time of the impact.

    before, after: Speeds of the rows at the start and at the end of the step, with Jacobians at the time of impact.
    gap, speed: At the end of the step, with Jacobians at its start.
    rate: [m/s^2]
    end_gap: Gaps with which rows are hit at the same times as before [m].
    total: The impulses.
    time: What is left of the step [s].
    more: 1 while there may be impacts.
    """
    for i in range(limited.first, rows.singles):
        rate[i] = (after[i] - before[i]) / dt
        rest = left[i]
        if rest <= 0.0:
            rest = dt - past[supports.dofs[supports.begin[rows.support[i]]]]
        end_gap[i] = gap[i] + rest * (after[i] - speed[i])
    for c in range(rows.equations, rows.triples[0]):
        r = rows.singles + 3 * c
        for k in range(3):
            rate[r + k] = (after[r + k] - before[r + k]) / dt
        rest = left[r]
        if rest <= 0.0:
            rest = dt - past[supports.dofs[supports.begin[rows.support[rows.singles + c]]]]
        end_gap[r] = gap[r] + rest * (after[r] - speed[r])
    for r in range(rows.singles + 3 * rows.triples[0]):
        total[r] = impulse[r]
    time[0] = dt
    more[0] = 1.0


@kernel
def find_event(
    rows: Rows,
    supports: Supports,
    limited: Limited,
    bounce: Bounce,
    Y: Array[Float],
    end_gap: Array[Float],
    after: Array[Float],
    dt: Float,
    active: Array[Float],
    upper: Array[Float],
    cfm: Float,
    supported: Array[Float],
    pushed: Array[Float],
    moved: Array[Float],
    total: Array[Float],
    time: Array[Float],
    more: Array[Float],
    gap: Array[Float],
    speed: Array[Float],
    event: Array[Float],
    some: Array[Float],
):
    """Gaps and speeds at the end of the step after the impacts so far, and when something is hit next.

    supported, total: Impulses of the problem of the step, and all so far [N s].
    pushed: Y^T impulse, of impacts.
    moved: The same times the time that impulses act [s].
    gap, speed: Of limits and contacts [m, m/s].
    event: What is left of the step then [s].
    some: 1 if something is hit.
    """
    latest, found, first, end = 0.0, 0.0, rows.singles, rows.equations
    if more[0] > 0.0:
        first = limited.first
        end = rows.triples[0]
    for i in range(first, rows.singles):
        u = after[i] + row_velocity(rows.support[i], supports, Y, i, pushed)
        g = end_gap[i] + row_velocity(rows.support[i], supports, Y, i, moved)
        g = g + dt * cfm * (total[i] - supported[i])
        speed[i] = u
        gap[i] = g
        if upper[i] > 0.0 and g < -bounce.short and u < -bounce.slow:
            latest = max(latest, time_left(g, u, time[0], bounce.short))
            found = 1.0
    for c in range(rows.equations, end):
        here, r = rows.support[rows.singles + c], rows.singles + 3 * c
        u = after[r] + row_velocity(here, supports, Y, r, pushed)
        g = end_gap[r] + row_velocity(here, supports, Y, r, moved) + dt * cfm * (total[r] - supported[r])
        speed[r] = u
        speed[r + 1] = after[r + 1] + row_velocity(here, supports, Y, r + 1, pushed)
        speed[r + 2] = after[r + 2] + row_velocity(here, supports, Y, r + 2, pushed)
        gap[r] = g
        if active[c] > 0.0 and g < -bounce.short and u < -bounce.slow:
            latest = max(latest, time_left(g, u, time[0], bounce.short))
            found = 1.0
    event[0] = latest
    some[0] = found


@func
def is_hit(bounce, gap, speed, time, event, last):
    """1 if a row is hit now, together with the first one; in the last round, if it is hit at all."""
    found = 0.0
    if gap < -bounce.short and speed < -bounce.slow:
        left = time_left(gap, speed, time, bounce.short)
        if last > 0.0 or left - bounce.close / speed >= event:
            found = 1.0
    return found


@kernel
def at_least(least: Float, given: Array[Float], found: Array[Float]):
    """Numbers, those that are too small replaced: restitution that is none, but has a time of impact."""
    for i in range(len(given)):
        found[i] = max(given[i], least)


@kernel
def event_rows(
    rows: Rows,
    limited: Limited,
    bounce: Bounce,
    surface: Array[Int],
    sweeps: Int,
    dt: Float,
    rate: Array[Float],
    fall: Array[Float],
    active: Array[Float],
    upper: Array[Float],
    time: Array[Float],
    number: Array[Float],
    rounds: Float,
    gap: Array[Float],
    speed: Array[Float],
    event: Array[Float],
    some: Array[Float],
    b: Array[Float],
    active_now: Array[Float],
    lower_now: Array[Float],
    upper_now: Array[Float],
    left: Array[Float],
    triples_now: Array[Int],
    sweeps_now: Array[Int],
):
    """The problem of what is hit now; without rows and sweeps if there is nothing, in no world that runs along.

    number, rounds: Of this round, from 0 on, and of all.
    left: What is left of the step when each row's impulse acts [s].
    """
    last, first, end, visits = number[0] + 1.5 - rounds, 0, 0, 0
    if not everywhere(some[0] <= 0.0):
        first = rows.singles
        end = shared(rows.triples[0])
        visits = sweeps
    triples_now[0] = end
    sweeps_now[0] = visits
    for i in range(limited.first):
        b[i] = 0.0
        left[i] = event[0]
        holds = FOREVER if i < limited.followers and some[0] > 0.0 else 0.0
        lower_now[i] = -holds
        upper_now[i] = holds
    for i in range(limited.first, rows.singles):
        lower_now[i] = 0.0
        wanted, acts, bound = 0.0, event[0], 0.0
        if i < first:
            if upper[i] > 0.0 and some[0] > 0.0:
                if is_hit(bounce, gap[i], speed[i], time[0], event[0], last) > 0.0:
                    acts = time_left(gap[i], speed[i], time[0], bounce.short)
                    change, ahead = acts * rate[i], 0.5 * dt * fall[i]
                    wanted = speed[i] - speed_after(bounce.limits, bounce.threshold, speed[i], change, ahead)
                    bound = FOREVER
                elif bounce.limits <= 0.0 and gap[i] - event[0] * speed[i] < bounce.short:
                    wanted = speed[i]
                    bound = FOREVER
        b[i] = wanted
        left[i] = acts
        upper_now[i] = bound
    for c in range(rows.equations):
        active_now[c] = 1.0
        for k in range(3):
            b[rows.singles + 3 * c + k] = 0.0
            left[rows.singles + 3 * c + k] = event[0]
    for c in range(rows.equations, end):
        r, e = rows.singles + 3 * c, bounce.contacts[surface[c - rows.equations]]
        wanted, acts, presses = 0.0, event[0], 0.0
        if active[c] > 0.0 and some[0] > 0.0:
            if is_hit(bounce, gap[r], speed[r], time[0], event[0], last) > 0.0:
                acts = time_left(gap[r], speed[r], time[0], bounce.short)
                change, ahead = acts * rate[r], 0.5 * dt * fall[r]
                wanted = speed[r] - speed_after(e, bounce.threshold, speed[r], change, ahead)
                presses = 1.0
            elif e <= 0.0 and gap[r] - event[0] * speed[r] < bounce.short:
                wanted = speed[r]
                presses = 1.0
        b[r] = wanted
        for k in range(1, 3):
            slides = speed[r + k] - acts * rate[r + k] + 0.5 * dt * fall[r + k]
            b[r + k] = slides if presses > 0.0 else 0.0
        active_now[c] = presses
        for k in range(3):
            left[r + k] = acts


@kernel
def end_round(
    rows: Rows,
    supports: Supports,
    Y: Array[Float],
    impulse: Array[Float],
    z: Array[Float],
    left: Array[Float],
    event: Array[Float],
    some: Array[Float],
    pushed: Array[Float],
    moved: Array[Float],
    total: Array[Float],
    time: Array[Float],
    number: Array[Float],
    pushed_next: Array[Float],
    moved_next: Array[Float],
    total_next: Array[Float],
    time_next: Array[Float],
    number_next: Array[Float],
    more: Array[Float],
):
    """What the impulses of an event did."""
    for d in range(len(z)):
        pushed_next[d] = pushed[d] + z[d]
        moved_next[d] = moved[d]
    hit, first, end = some[0], 0, 0
    if hit > 0.0:
        first = rows.singles
        end = rows.triples[0]
    for i in range(first):
        add_row(rows.support[i], supports, Y, i, left[i] * impulse[i], moved_next)
    for c in range(end):
        for k in range(3):
            r = rows.singles + 3 * c + k
            add_row(rows.support[rows.singles + c], supports, Y, r, left[r] * impulse[r], moved_next)
    for r in range(rows.singles + 3 * rows.triples[0]):
        added = 0.0
        if hit > 0.0:
            added = impulse[r]
        total_next[r] = total[r] + added
    time_next[0] = event[0] if hit > 0.0 else time[0]
    number_next[0] = number[0] + 1.0
    more[0] = hit


@kernel
def mean_push(moved: Array[Float], dt: Float, mean: Array[Float]):
    """What impulses did to displacements, as if they had acted for the whole step."""
    for d in range(len(mean)):
        mean[d] = moved[d] / dt


@kernel
def keep_larger(one: Array[Float], other: Array[Float], larger: Array[Float]):
    """The larger of two numbers."""
    larger[0] = max(one[0], other[0])


@kernel
def add_up(one: Array[Float], other: Array[Float], sum: Array[Float]):
    """The sum of two numbers."""
    sum[0] = one[0] + other[0]
