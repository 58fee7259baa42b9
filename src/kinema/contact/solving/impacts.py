"""Impacts: what is hit within a step, when, and what that does to velocities.

Contacts and limits that will be hit fast do not take part in the problem of a step (see `rows`). With the velocities v'
that the other impulses leave at its end, a row's speed is u = J v', along the straight line that the step follows; from
a gap g it is hit after the time g / -u. The first of all rows that are hit ends a *phase*: coordinates are moved along
the line until then, velocities by that share of their change. There, impulses act in no time, and the rest of the step
is a phase of its own: forces, masses, Jacobians and gaps are those of the pose and the velocities after the impact. So
an impact at the end of one step and an impact at the start of the next have the same consequences, whatever else acts,
and nothing jumps as it moves from the one into the other. A row that bends away from its line is not yet touched when
the phase ends: it goes on, and finds it again, nearer by the square. One that bends towards it was passed.

In no time, rows that touch and close faster than the threshold are hit: their speed u, that of the path u + f dt / 2,
becomes

    u' + f dt / 2 = -e (u + f dt / 2)

f is the row's acceleration by gravity, of bodies that fall: velocities of steps are ahead of the path that positions
follow, whose velocity at a step is v + f dt / 2. So a ball with e = 1 keeps its energy, to rounding. (With all forces
in place of f, those of stiff dampers, which change from step to step, would bring jumps back.) All rows that are hit
make one problem, the same as that of a step. Friction meets the speed of sliding. What holds without restitution
(loops, followers, contacts and limits that touch) holds through impacts; dry friction of joints, bounded by its force,
does nothing in no time. An impact may cause others at the same pose: of balls in a row that touch, each hits the next,
in rounds.

Restitution begins at the threshold: a share of it counts, which grows from 0 there to 1 at twice the threshold.
"""

from __future__ import annotations

from kinema.contact.collision.narrow_phase import Touch
from kinema.contact.solving.newton import Report
from kinema.contact.solving.pgs import Rows, Supports, row_velocity
from kinema.lang import Array, Float, Int, everywhere, func, kernel, max, record, shared, static

FOREVER = 1e30  # a bound that no impulse meets


@record
class Bounce:
    """What is hit, and from what on.

    contacts: Coefficients of restitution by candidate [-].
    limits: That of limits [-].
    threshold: Speed from which on they bounce [m/s, rad/s].
    slow: Acceleration [m/s^2, rad/s^2]: what is slower than it makes within a step is not hit.
    near: Gap from which on something touches [m, rad].
    least: Restitution above which rows are hit [-]: below 0 those without any are, too.
    step: Time step [s].
    phases: Of a step, at most.
    short: The share of a step that the problem of a phase is made for at least.
    """

    contacts: Array[Float]
    limits: Float
    threshold: Float
    slow: Float
    near: Float
    least: Float
    step: Float
    phases: Float
    short: Float


@record
class Limited:
    """Rows of limits among the single rows: the first; those before are `followers` equations, then dry friction."""

    followers: Int
    first: Int


@record
class Held:
    """What holds rows that can be hit.

    active: Of triples, 1 or 0 for contacts that are left alone.
    upper: Bounds of single rows.
    """

    active: Array[Float]
    upper: Array[Float]


@record
class Hittable:
    """All rows at a pose; limits and contacts among them can be hit.

    rows, supports, limited: Which there are.
    bounce: When they are hit.
    surface: The candidate of each contact.
    J: Jacobians.
    gap, near: Gaps of single rows, and of contacts [m, rad].
    held: What holds them.
    """

    rows: Rows
    supports: Supports
    limited: Limited
    bounce: Bounce
    surface: Array[Int]
    J: Array[Float]
    gap: Array[Float]
    near: Array[Float]
    held: Held


@record
class Phase:
    """A part of a step.

    begins: 1 where it begins here, 0 in worlds that are done with the step, or are still in the phase before.
    length: How long it may last: what is left of the step [s]; where nothing begins, any time.
    last: 1 if nothing ends it early.
    again: 1 where the phase before goes on, as what it ended for is not touched yet,
    further: and for how long [s].
    """

    begins: Array[Float]
    length: Array[Float]
    last: Array[Float]
    again: Array[Float]
    further: Array[Float]


@record
class Outcome:
    """How a phase ends.

    time: How long it lasts [s]; 0 in worlds that do not move.
    share: Of the impulses of its problem that act [-].
    whole: 1 if it lasts until the end of the step.
    rate: By how much velocities change per second.
    left: What is left of the step then [s].
    hit, done: 1 and 0 if something is hit, otherwise 0 and 1.
    """

    time: Array[Float]
    share: Array[Float]
    whole: Array[Float]
    rate: Array[Float]
    left: Array[Float]
    hit: Array[Float]
    done: Array[Float]


@record
class Struck:
    """The problem of what is hit in no time.

    b: Velocities of rows, less those after the impact.
    active, lower, upper: Bounds.
    triples, sweeps: How many there are; none if nothing is hit in any world that runs along.
    """

    b: Array[Float]
    active: Array[Float]
    lower: Array[Float]
    upper: Array[Float]
    triples: Array[Int]
    sweeps: Array[Int]


@record
class Round:
    """A round of impacts at a pose.

    v: Velocities.
    sum: Impulses of all rounds [N s].
    hit: 1 where something is hit.
    """

    v: Array[Float]
    sum: Array[Float]
    hit: Array[Float]


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
def speed_after(restitution: Float, threshold: Float, speed: Float, ahead: Float):
    """The speed of what is hit, after it [m/s].

    speed: Before.
    ahead: How far speeds are ahead of the path.
    """
    share = share_of(restitution, speed, threshold)
    return max(-share * (ahead + restitution * (speed + ahead)), 0.0)


@func
def time_until(bounce, gap: Float, speed: Float):
    """When a row with this gap and this speed, below 0, is hit [s]; what was passed, as rows bend, is hit now."""
    return gap / -speed if gap > -bounce.near else 0.0


@func
def is_hit(bounce, restitution: Float, gap: Float, speed: Float):
    """Whether a row is hit in no time."""
    fast = restitution > bounce.least and speed < -bounce.slow * bounce.step
    return fast and gap <= bounce.near


@func
def will_be_hit(bounce, phase, restitution: Float, gap: Float, before: Float, after: Float):
    """1 if a row is hit within a phase, and not slowly, where nothing holds it; 0 otherwise.

    before, after: Its speed at the start and at the end of the phase. What only forces would bring near is not hit:
        the impulses that hold other rows may keep it away.
    """
    found = 0.0
    if restitution > bounce.least and (phase.last[0] <= 0.0 or restitution > 0.0):
        if before < -bounce.slow * bounce.step and after < 0.0 and time_until(bounce, gap, after) < phase.length[0]:
            found = 1.0
    return found


@kernel
def follow_contacts(all: Touch, surface: Array[Int], triples: Array[Int], equations: Int, near: Touch):
    """Contacts where they are now: those of the candidates that were picked."""
    for c in range(triples[0] - equations):
        near.gap[c] = all.gap[surface[c]]
        near.point[c] = all.point[surface[c]]
        near.normal[c] = all.normal[surface[c]]


@func
def last_of(at):
    """One more than the number of the last row that can be hit, see `row_at`; the first is that of the first limit."""
    return at.rows.singles + shared(at.rows.triples[0]) - at.rows.equations


@func
def row_at(at, k):
    """Number k of the rows that can be hit, limits and then contacts: its row, support, gap and restitution."""
    rows = at.rows
    r, block, gap, restitution = k, k, 0.0, at.bounce.limits
    if k < rows.singles:
        gap = at.gap[k]
    else:
        c = k - rows.singles
        block = k + rows.equations
        r = rows.singles + 3 * (rows.equations + c)
        gap, restitution = at.near[c], at.bounce.contacts[shared(at.surface[c])]
    return r, shared(rows.support[block]), gap, restitution


@func
def bound_at(at, held, k):
    """What holds number k of the rows that can be hit: nothing, where it is 0."""
    found = 0.0
    if k < at.rows.singles:
        found = held.upper[k]
    else:
        found = held.active[k - at.rows.singles + at.rows.equations]
    return found


@kernel
def leave_out(at: Hittable, phase: Phase, v: Array[Float], v_free: Array[Float], held: Held):
    """Contacts and limits that will be hit have no impulse in the problem of a phase.

    In the last phase of a step, what has no restitution has: it is stopped where it touches.

    v, v_free: Velocities at its start, and at its end without impulses.
    """
    rows, limited = at.rows, at.limited
    for i in range(limited.first):
        held.upper[i] = at.held.upper[i]
    for c in range(rows.equations):
        held.active[c] = 1.0
    for k in range(limited.first, last_of(at)):
        r, here, gap, restitution = row_at(at, k)
        bound, after = bound_at(at, at.held, k), row_velocity(here, at.supports, at.J, r, v_free)
        if not everywhere(gap + phase.length[0] * after >= 0.0):
            before = row_velocity(here, at.supports, at.J, r, v)
            if will_be_hit(at.bounce, phase, restitution, gap, before, after) > 0.0:
                bound = 0.0
        if k < rows.singles:
            held.upper[k] = bound
        else:
            held.active[k - rows.singles + rows.equations] = bound


@kernel
def leave_out_adjoint(limited: Limited, held_adj: Held.adj, upper_adj: Array[Float]):
    """Bounds of dry friction are passed on; whether something is left out has no derivative, nor have its bounds."""
    for i in range(limited.followers, limited.first):
        upper_adj[i] += held_adj.upper[i]


@func
def earlier(bounce, gap, speed, length, first):
    """The time after which a row is hit if that is before `first`, which otherwise [s]."""
    found = first
    if speed < 0.0 and gap + length * speed < 0.0:
        time = time_until(bounce, gap, speed)
        if time < first:
            found = time
    return found


@func
def is_first(bounce, gap, speed, length, first):
    """Whether a row is hit together with the first."""
    return speed < 0.0 and gap + length * speed < 0.0 and gap + first * speed <= bounce.near


@kernel
def end_phase(
    at: Hittable,
    phase: Phase,
    held: Held,
    v: Array[Float],
    v_end: Array[Float],
    left_before: Array[Float],
    outcome: Outcome,
):
    """When a phase ends: as soon as something is hit that was left out of its problem, or at the end of the step.

    Of rows that are hit together it is the mean of their times, so that it has a derivative where all are the same.

    held: What holds rows in its problem.
    v, v_end: Velocities at its start, and at the end of the step if nothing is hit.
    left_before: What was left of the step before [s].
    """
    bounce, length = at.bounce, phase.length[0]
    first, sum, count = length, 0.0, 0.0
    for together in static(2):
        for k in range(at.limited.first, last_of(at)):
            bound, now = bound_at(at, at.held, k), bound_at(at, held, k)
            if not everywhere(now == bound):
                r, here, gap, _ = row_at(at, k)
                speed = row_velocity(here, at.supports, at.J, r, v_end)
                if now < bound:
                    if together == 0:
                        first = earlier(bounce, gap, speed, length, first)
                    elif is_first(bounce, gap, speed, length, first):
                        sum, count = sum + time_until(bounce, gap, speed), count + 1.0
    if count > 0.0:
        first = sum / count
    lasts, part, ends, rest, some = 0.0, 0.0, 0.0, 0.0, 0.0
    if phase.begins[0] > 0.0:
        lasts, part, ends = left_before[0], 1.0, 1.0
        if phase.last[0] <= 0.0 and first < left_before[0]:
            lasts, part, ends, rest, some = first, first / length, 0.0, left_before[0] - first, 1.0
    elif phase.again[0] > 0.0:
        lasts = phase.further[0]
        if phase.last[0] <= 0.0 and lasts < left_before[0]:
            rest, some = left_before[0] - lasts, 1.0
    outcome.time[0] = lasts
    outcome.share[0] = part
    outcome.whole[0] = ends
    outcome.left[0] = rest
    outcome.hit[0] = some
    outcome.done[0] = 1.0 - some
    for d in range(len(outcome.rate)):
        outcome.rate[d] = (v_end[d] - v[d]) / length


@kernel
def begin_phase(
    at: Hittable,
    v: Array[Float],
    line: Array[Float],
    hit: Array[Float],
    left: Array[Float],
    number: Array[Float],
    phase: Phase,
    struck: Array[Float],
    quiet: Array[Float],
    number_next: Array[Float],
):
    """What follows on a phase that ended where something seemed hit: an impact, and the next phase, or more of it.

    v, line: Velocities, and what coordinates follow.
    hit, left: From the phase before.
    number: Of this one, from 0 on.
    struck, quiet: 1 and 0 if something is hit, otherwise 0 and 1.
    """
    bounce = at.bounce
    some, first, rest = 0.0, left[0], left[0]
    for k in range(at.limited.first, last_of(at)):
        r, here, gap, restitution = row_at(at, k)
        speed = row_velocity(here, at.supports, at.J, r, line)
        if not everywhere(gap + rest * speed >= 0.0 and gap > bounce.near):
            now = row_velocity(here, at.supports, at.J, r, v)
            if bound_at(at, at.held, k) > 0.0:
                some = max(some, 1.0 if is_hit(bounce, restitution, gap, now) else 0.0)
                first = next_time(bounce, restitution, gap, now, speed, first)
    some = some * hit[0]
    going, time = 0.0, bounce.step
    if some > 0.0:
        going, time = 1.0, max(rest, bounce.short * bounce.step)
    phase.begins[0] = going
    phase.length[0] = time
    phase.last[0] = 1.0 if number[0] + 1.5 > bounce.phases else 0.0
    phase.again[0] = hit[0] - some
    phase.further[0] = first if number[0] + 1.5 < bounce.phases else rest
    struck[0] = some
    quiet[0] = 1.0 - some
    number_next[0] = number[0] + 1.0


@func
def next_time(bounce, restitution: Float, gap: Float, now: Float, speed: Float, first: Float):
    """The time after which a row is hit along a line if that is before `first`, which otherwise [s].

    now, speed: Its speed, and that of the line.
    """
    found = first
    if restitution > bounce.least and now < -bounce.slow * bounce.step and speed < 0.0:
        time = time_until(bounce, gap, speed)
        if time < first:
            found = time
    return found


@func
def sliding(here, supports, J, r, v):
    """Speeds of a contact in both directions of sliding, from its first row r."""
    return row_velocity(here, supports, J, r + 1, v), row_velocity(here, supports, J, r + 2, v)


@kernel
def struck_rows(
    at: Hittable,
    sweeps: Int,
    dt: Float,
    v: Array[Float],
    falling: Array[Float],
    pressed: Array[Float],
    hit: Array[Float],
    struck: Struck,
):
    """The problem of what is hit now; without rows and sweeps if there is nothing, in no world that runs along.

    v: Velocities now.
    falling: Accelerations by gravity.
    pressed: Impulses before the impact: what had one touches, even if it strayed from its line.
    hit: 1 if something is hit now, otherwise 0.
    """
    rows, supports, limited, bounce, J = at.rows, at.supports, at.limited, at.bounce, at.J
    found = hit[0]
    first, end, visits = 0, 0, 0
    if not everywhere(found <= 0.0):
        first, end, visits = rows.singles, shared(rows.triples[0]), sweeps
    struck.triples[0] = end
    struck.sweeps[0] = visits
    # Equations hold, dry friction does nothing in no time.
    for i in range(limited.first):
        struck.b[i] = 0.0
        holds = FOREVER if i < limited.followers and found > 0.0 else 0.0
        struck.lower[i] = -holds
        struck.upper[i] = holds
    # Limits that are hit, or touch without restitution: u' + f dt / 2 = -e (u + f dt / 2).
    for i in range(limited.first, rows.singles):
        wanted, bound = 0.0, 0.0
        if i < first:
            if at.held.upper[i] > 0.0 and found > 0.0:
                u, e = row_velocity(rows.support[i], supports, J, i, v), bounce.limits
                if (e <= 0.0 and (at.gap[i] <= bounce.near or pressed[i] > 0.0)) or is_hit(bounce, e, at.gap[i], u):
                    ahead = 0.5 * dt * row_velocity(rows.support[i], supports, J, i, falling)
                    wanted, bound = u - speed_after(e, bounce.threshold, u, ahead), FOREVER
        struck.lower[i] = 0.0
        struck.b[i] = wanted
        struck.upper[i] = bound
    for c in range(rows.equations):
        struck.active[c] = 1.0
        for k in range(3):
            struck.b[rows.singles + 3 * c + k] = 0.0
    # Contacts likewise; friction meets the speed of sliding.
    for c in range(rows.equations, end):
        r, here, e = rows.singles + 3 * c, shared(rows.support[rows.singles + c]), 0.0
        e = bounce.contacts[shared(at.surface[c - rows.equations])]
        wanted, slides, across, presses = 0.0, 0.0, 0.0, 0.0
        if at.held.active[c] > 0.0 and found > 0.0:
            u, g = row_velocity(here, supports, J, r, v), at.near[c - rows.equations]
            if (e <= 0.0 and (g <= bounce.near or pressed[r] > 0.0)) or is_hit(bounce, e, g, u):
                ahead = 0.5 * dt * row_velocity(here, supports, J, r, falling)
                wanted, presses = u - speed_after(e, bounce.threshold, u, ahead), 1.0
                slides, across = sliding(here, supports, J, r, v)
                if e > 0.0:
                    falls, aside = sliding(here, supports, J, r, falling)
                    slides, across = slides + 0.5 * dt * falls, across + 0.5 * dt * aside
        struck.b[r] = wanted
        struck.b[r + 1] = slides
        struck.b[r + 2] = across
        struck.active[c] = presses


@func
def hit_now(at, v):
    """1 if some row is hit in no time, otherwise 0."""
    found = 0.0
    for k in range(at.limited.first, last_of(at)):
        r, here, gap, restitution = row_at(at, k)
        u = row_velocity(here, at.supports, at.J, r, v)
        if bound_at(at, at.held, k) > 0.0 and is_hit(at.bounce, restitution, gap, u):
            found = 1.0
    return found


@kernel
def end_round(at: Hittable, now: Round, v_after: Array[Float], impulse: Array[Float], next: Round, quiet: Array[Float]):
    """What an impact did, where there was one, and whether that caused another.

    v_after, impulse: Velocities after it, and its impulses [N s].
    quiet: 1 if nothing is hit any more: there is no further round.
    """
    hit = now.hit[0]
    more = hit * hit_now(at, v_after)
    for d in range(len(now.v)):
        next.v[d] = v_after[d] if hit > 0.0 else now.v[d]
    for r in range(at.rows.singles + 3 * shared(at.rows.triples[0])):
        next.sum[r] = now.sum[r] + impulse[r] if hit > 0.0 else now.sum[r]
    next.hit[0] = more
    quiet[0] = 1.0 - more


@kernel
def begin_sum(rows: Rows, impulse: Array[Float], share: Array[Float], sum: Array[Float]):
    """The part of the impulses of a problem that acted until something was hit [N s]."""
    for r in range(rows.singles + 3 * shared(rows.triples[0])):
        sum[r] = share[0] * impulse[r]


@kernel
def add_to_sum(
    rows: Rows,
    impulse: Array[Float],
    share: Array[Float],
    before: Array[Float],
    in_no_time: Array[Float],
    sum: Array[Float],
):
    """Impulses so far, of impacts, and of the phase after them [N s]."""
    for r in range(rows.singles + 3 * shared(rows.triples[0])):
        sum[r] = before[r] + in_no_time[r] + (share[0] * impulse[r] if share[0] != 0.0 else 0.0)


@kernel
def choose_impulses(rows: Rows, again: Array[Float], before: Array[Float], impulse: Array[Float], chosen: Array[Float]):
    """Impulses of the phase that things are in: of the one before where it goes on (again > 0)."""
    for r in range(rows.singles + 3 * shared(rows.triples[0])):
        chosen[r] = before[r] if again[0] > 0.0 else impulse[r]


@kernel
def add_report(one: Report, other: Report, both: Report):
    """The worse of two problems, and the sum of their iterations."""
    worse = other.residual[0] > one.residual[0]
    both.residual[0] = other.residual[0] if worse else one.residual[0]
    both.unsolved_at[0] = other.unsolved_at[0] if worse else one.unsolved_at[0]
    both.iterations[0] = one.iterations[0] + other.iterations[0]
