"""Impacts: times of impact within a step, and the velocities after each impact.

Contacts and limits that close fast and reach their surface within the step do not take part in the step's problem (see
`constraint_rows`). With the velocities v' that the other impulses give the end of the step, a row has the speed
u = J v', and the step follows a straight line; from a gap g the time of impact is g / -u. The earliest impact ends a
*phase*: coordinates move along the line until then, and velocities change by the same fraction of their change in the
step. The impact itself is instantaneous, and the rest of the step is a phase of its own, with the forces, masses,
Jacobians and gaps at the pose and the velocities after the impact. So an impact at the end of one step and an impact at
the start of the next have the same consequences, whatever else acts: results are continuous as an impact passes from
one step into the other. If a row's gap curves away from the line, the row does not touch yet when the phase ends: the
phase goes on to the next estimate, whose gap is quadratically smaller. If it curves towards the surface, the row has
passed it slightly and is hit at once.

At an impact, rows that touch and close faster than a threshold are hit: their speed u changes to u' with

    u' + f dt / 2 = -e (u + f dt / 2)

f is the row's acceleration by gravity, for falling bodies: the path of the positions has the velocity v + f dt / 2 at a
step with the velocity v. So a ball with e = 1 conserves its energy up to rounding error. (With all forces in place of
f, stiff dampers, whose forces change from step to step, would make results discontinuous again.) All rows that are hit
form one complementarity problem of the same kind as the step's. Friction acts against the sliding velocity. Constraints
without restitution (loops, mimic joints, touching contacts and limits) hold through impacts; dry friction of joints is
a bounded force and has no impulse at an instant. An impact may cause further impacts at the same pose: in a row of
touching balls each hits the next, in rounds.

Restitution sets in gradually: its effective fraction grows from 0 at the threshold speed to 1 at twice the threshold.
"""

from __future__ import annotations

from kinema.contact.collision.narrow_phase import Touch
from kinema.contact.complementarity.newton import Report
from kinema.contact.complementarity.pgs import Rows, Supports, row_velocity
from kinema.lang import Array, Float, Int, everywhere, func, kernel, max, record, shared, static

FOREVER = 1e30  # a bound that no impulse reaches


@record
class Bounce:
    """Restitution, and the thresholds of impacts.

    contacts: Coefficient of restitution of each candidate [-].
    limits: Coefficient of restitution of limits [-].
    threshold: Closing speed above which rows bounce [m/s, rad/s].
    slow: Acceleration [m/s^2, rad/s^2]: rows that close slower than `slow * step` are not hit.
    near: Rows with at most this gap touch [m, rad].
    least: Rows with restitution above this are hit [-]; a negative value includes rows without restitution.
    step: Time step [s].
    phases: Largest number of phases per step.
    short: Smallest length of the problem of a phase after an impact, as a fraction of the step [-].
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
    """Order of the single rows: `followers` equations of mimic joints, dry friction, limits from row `first` on."""

    followers: Int
    first: Int


@record
class Held:
    """Whether rows that can be hit take part in a problem.

    active: Per triple, 0 for inactive contacts, else 1.
    upper: Upper bounds of single rows; 0 for inactive limits.
    """

    active: Array[Float]
    upper: Array[Float]


@record
class Hittable:
    """All rows at a pose; limits and contacts among them can be hit.

    rows, supports, limited: The rows and their degrees of freedom.
    bounce: Restitution and thresholds.
    surface: The candidate of each contact.
    J: Jacobians.
    gap, near: Gaps of single rows and of contacts [m, rad].
    held: Which rows are active.
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

    begins: 1 if the phase begins here; 0 in worlds that have finished the step or are still in the previous phase.
    length: Largest duration, the rest of the step [s]; arbitrary where no phase begins.
    last: 1 if no impact can end the phase early.
    again: 1 if the previous phase goes on, because the row that ended it does not touch yet.
    further: Duration of that continuation [s].
    """

    begins: Array[Float]
    length: Array[Float]
    last: Array[Float]
    again: Array[Float]
    further: Array[Float]


@record
class Outcome:
    """How a phase ends.

    time: Duration of the phase [s]; 0 in worlds that do not move.
    share: Fraction of the impulses of its problem that act [-].
    whole: 1 if it lasts until the end of the step.
    rate: Change of the velocities per second.
    left: Rest of the step after the phase [s].
    hit, done: 1 and 0 if an impact ends the phase, otherwise 0 and 1.
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
    """The complementarity problem of an impact.

    b: Velocities of rows before minus after the impact.
    active, lower, upper: Bounds.
    triples, sweeps: Number of triples and of PGS iterations; 0 if no row is hit in any lane.
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
    sum: Impulses of all rounds so far [N s].
    hit: 1 if a row is hit.
    """

    v: Array[Float]
    sum: Array[Float]
    hit: Array[Float]


@func
def share_of(restitution: Float, speed: Float, threshold: Float):
    """Effective fraction of a row's restitution [-]: 0 at the threshold speed, 1 at twice the threshold."""
    over, found = -speed - threshold, 0.0
    if restitution > 0.0 and over > 0.0:
        found = 1.0
        if over < threshold:
            found = over / threshold
    return found


@func
def speed_after(restitution: Float, threshold: Float, speed: Float, ahead: Float):
    """The speed of a row after its impact [m/s].

    speed: Speed before the impact.
    ahead: f dt / 2, by which the path's speed differs from the row's.
    """
    share = share_of(restitution, speed, threshold)
    return max(-share * (ahead + restitution * (speed + ahead)), 0.0)


@func
def time_until(bounce, gap: Float, speed: Float):
    """Time of impact of a row with this gap and this speed < 0 [s]; 0 if the row has passed its surface."""
    return gap / -speed if gap > -bounce.near else 0.0


@func
def is_hit(bounce, restitution: Float, gap: Float, speed: Float):
    """Whether a row is hit at this instant."""
    fast = restitution > bounce.least and speed < -bounce.slow * bounce.step
    return fast and gap <= bounce.near


@func
def will_be_hit(bounce, phase, restitution: Float, gap: Float, before: Float, after: Float):
    """1 if a row without an impulse is hit within a phase, and not slowly; 0 otherwise.

    before, after: Its speed at the start and, without impulses, at the end of the phase. A row that only forces would
        close is not hit: the impulses of other rows may keep it open.
    """
    found = 0.0
    if restitution > bounce.least and (phase.last[0] <= 0.0 or restitution > 0.0):
        if before < -bounce.slow * bounce.step and after < 0.0 and time_until(bounce, gap, after) < phase.length[0]:
            found = 1.0
    return found


@kernel
def follow_contacts(all: Touch, slot: Array[Int], triples: Array[Int], equations: Int, near: Touch):
    """Update gaps, points and normals of the contacts from the candidates they came from."""
    for c in range(triples[0] - equations):
        near.gap[c] = all.gap[shared(slot[c])]
        near.point[c] = all.point[shared(slot[c])]
        near.normal[c] = all.normal[shared(slot[c])]


@func
def last_of(at):
    """End of the indices of rows that can be hit, see `row_at`; they begin with the first limit."""
    return at.rows.singles + shared(at.rows.triples[0]) - at.rows.equations


@func
def row_at(at, k):
    """Row, support, gap and restitution of the k-th row that can be hit; limits come first, then contacts."""
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
    """Upper bound or activity of the k-th row that can be hit; 0 if it is inactive."""
    found = 0.0
    if k < at.rows.singles:
        found = held.upper[k]
    else:
        found = held.active[k - at.rows.singles + at.rows.equations]
    return found


@kernel
def leave_out(at: Hittable, phase: Phase, v: Array[Float], v_free: Array[Float], held: Held):
    """Remove contacts and limits that will be hit from the problem of a phase.

    In the last phase of a step, rows without restitution stay in the problem, which stops them at their surface.

    v, v_free: Velocities at the start of the phase, and at its end without impulses.
    """
    rows, limited = at.rows, at.limited
    for i in range(limited.first):
        held.upper[i] = at.held.upper[i]
    for c in range(rows.equations):
        held.active[c] = 1.0
    # Limits and contacts: bound 0 if they will be hit.
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
    """Pass on the cotangents of the bounds of dry friction; the removal of rows and their bounds has no derivative."""
    for i in range(limited.followers, limited.first):
        upper_adj[i] += held_adj.upper[i]


@func
def earlier(bounce, gap, speed, length, first):
    """The smaller of `first` and the row's time of impact, if the row is hit within `length` [s]."""
    found = first
    if speed < 0.0 and gap + length * speed < 0.0:
        time = time_until(bounce, gap, speed)
        if time < first:
            found = time
    return found


@func
def is_first(bounce, gap, speed, length, first):
    """Whether a row is hit together with the first one."""
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
    """Find the end of a phase: the first impact of a row removed from its problem, or the end of the step.

    If several rows are hit together, the phase ends at the mean of their times, which is differentiable where all are
    equal.

    held: Which rows are active in the phase's problem.
    v, v_end: Velocities at the start of the phase, and at the end of the step without an impact.
    left_before: Rest of the step before the phase [s].
    """
    bounce, length = at.bounce, phase.length[0]
    first, sum, count = length, 0.0, 0.0
    # The earliest time of impact, then the mean over all rows that are hit together.
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
    # A phase that begins here; the continuation of the previous one; or a world that has finished the step.
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
    """Decide what follows a phase that ended at an estimated impact: the impact and a new phase, or a continuation.

    v, line: Velocities, and the velocities that the coordinates follow.
    hit, left: `Outcome` of the previous phase.
    number: Index of this phase, from 0 on.
    struck, quiet: 1 and 0 if a row is hit, otherwise 0 and 1.
    """
    bounce = at.bounce
    some, first, rest = 0.0, left[0], left[0]
    # Is a row hit now? If not, when is the next one?
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
    """The smaller of `first` and the row's time of impact along the line [s].

    now, speed: The row's speed, and its speed along the line.
    """
    found = first
    if restitution > bounce.least and now < -bounce.slow * bounce.step and speed < 0.0:
        time = time_until(bounce, gap, speed)
        if time < first:
            found = time
    return found


@func
def sliding(here, supports, J, r, v):
    """Sliding speeds of a contact along both tangents, from its first row r."""
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
    """Set up the problem of an impact; without rows and PGS iterations if no row is hit in any lane.

    v: Velocities now.
    falling: Accelerations by gravity.
    pressed: Impulses before the impact: a row with an impulse touches, even if its gap has drifted open.
    hit: 1 if a row is hit now, otherwise 0.
    """
    rows, supports, limited, bounce, J = at.rows, at.supports, at.limited, at.bounce, at.J
    found = hit[0]
    first, end, visits = 0, 0, 0
    if not everywhere(found <= 0.0):
        first, end, visits = rows.singles, shared(rows.triples[0]), sweeps
    struck.triples[0] = end
    struck.sweeps[0] = visits
    # Equations hold; dry friction has no impulse at an instant.
    for i in range(limited.first):
        struck.b[i] = 0.0
        holds = FOREVER if i < limited.followers and found > 0.0 else 0.0
        struck.lower[i] = -holds
        struck.upper[i] = holds
    # Limits that are hit or touch without restitution: u' + f dt / 2 = -e (u + f dt / 2).
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
    # Contacts likewise; friction acts against the sliding velocity.
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
    """1 if any row is hit at this instant, otherwise 0."""
    found = 0.0
    for k in range(at.limited.first, last_of(at)):
        r, here, gap, restitution = row_at(at, k)
        u = row_velocity(here, at.supports, at.J, r, v)
        if bound_at(at, at.held, k) > 0.0 and is_hit(at.bounce, restitution, gap, u):
            found = 1.0
    return found


@kernel
def end_round(at: Hittable, now: Round, v_after: Array[Float], impulse: Array[Float], next: Round, quiet: Array[Float]):
    """Apply an impact where there is one, and find out whether it causes another.

    v_after, impulse: Velocities after the impact, and its impulses [N s].
    quiet: 1 if no row is hit any more: no further round follows.
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
    """The fraction of a problem's impulses that acted before the first impact [N s]."""
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
    """Sum the impulses so far, of the impacts, and of the phase after them [N s]."""
    for r in range(rows.singles + 3 * shared(rows.triples[0])):
        sum[r] = before[r] + in_no_time[r] + (share[0] * impulse[r] if share[0] != 0.0 else 0.0)


@kernel
def choose_impulses(rows: Rows, again: Array[Float], before: Array[Float], impulse: Array[Float], chosen: Array[Float]):
    """Impulses of the current phase: those of the previous phase where it goes on (again > 0)."""
    for r in range(rows.singles + 3 * shared(rows.triples[0])):
        chosen[r] = before[r] if again[0] > 0.0 else impulse[r]


@kernel
def add_report(one: Report, other: Report, both: Report):
    """The report of the problem with the larger residual, with the iterations of both."""
    worse = other.residual[0] > one.residual[0]
    both.residual[0] = other.residual[0] if worse else one.residual[0]
    both.unsolved_at[0] = other.unsolved_at[0] if worse else one.unsolved_at[0]
    both.iterations[0] = one.iterations[0] + other.iterations[0]
