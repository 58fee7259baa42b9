"""The impulses of a step whose motion is known, for reverse sweeps: found row by row, without Newton's method.

With softness cfm > 0 velocities tell impulses. Of a row with the velocity y = b + J dv, cfm lambda left out, the
problem of `mlcp` says that w = y + cfm lambda is 0 unless lambda is at a bound; so lambda = -y / cfm, moved to the
nearest bound if it is beyond. That magnifies the round-off of velocities by 1 / cfm: with 1e-6 / kg impulses are right
to 1e-10 to 1e-7. This is enough to see which rows are at a bound, and `newton_impulses_adjoint` takes the rest of the
way.

Impulses count as found if they explain the motion: M dv = J^T lambda. In worlds where they do not (nothing is soft,
links are very light, the step was not solved) Newton's method runs again.
"""

from __future__ import annotations

from kinema.contact.solving.delassus import first_row
from kinema.contact.solving.friction_cone import friction_within
from kinema.contact.solving.mass_scaling import Scaled, scale_row, scale_three
from kinema.contact.solving.newton import Effort, Impulses, Problem, find_impulses
from kinema.contact.solving.pgs import add_row, row_velocity
from kinema.kinematics.tree import Factors
from kinema.lang import Array, Float, abs, everywhere, func, kernel, local, max, min, record, select, shared


@record
class Trust:
    """When impulses explain a motion.

    share: Largest part of the change of momentum that they may leave unexplained [-].
    noise: The same as a part of all momentum: less than that is round-off [-].
    """

    share: Float
    noise: Float


@func
def scaled_motion(factors, dv, z):
    """z = D^1/2 L dv: the inverse of `mass_scaling.velocities_from`."""
    branches = factors.branches
    for i in range(len(branches.row)):
        begin, found = branches.row[i], dv[i]
        for t in range(branches.depth[i]):
            found = found + factors.L[begin + t] * dv[branches.above[begin + t]]
        z[i] = found / factors.root[i]


@func
def momentum_of(factors, z, momentum):
    """L^T D^1/2 z = M dv, added to `momentum`."""
    branches = factors.branches
    for i in range(len(branches.row)):
        begin, own = branches.row[i], z[i] / factors.root[i]
        momentum[i] += own
        for t in range(branches.depth[i]):
            momentum[branches.above[begin + t]] += factors.L[begin + t] * own


@func
def soft_impulses(problem, dv, x):
    """The impulses x that rows have by their velocities after the step."""
    rows, supports, bounds, cone, J, b = (
        problem.rows,
        problem.supports,
        problem.bounds,
        problem.cone,
        problem.J,
        problem.b,
    )
    blocks, contacts, hard = rows.singles + shared(rows.triples[0]), rows.singles + rows.equations, 1.0 / bounds.cfm
    for i in range(rows.singles):
        lower, upper, to = bounds.lower[i], bounds.upper[i], 0.0
        if not everywhere(lower == 0.0 and upper == 0.0):
            y = b[i] + row_velocity(shared(rows.support[i]), supports, J, i, dv)
            to = max(min(-hard * y, upper), lower)
        x[i] = to
    for k in range(rows.singles, blocks):
        here, r = shared(rows.support[k]), first_row(rows, k)
        x0, x1, x2 = 0.0, 0.0, 0.0
        near = 1.0
        if k >= contacts:
            near = problem.active[k - rows.singles]
        if not everywhere(near <= 0.0):
            x0 = -hard * (b[r] + row_velocity(here, supports, J, r, dv))
            if k >= contacts:
                x0 = max(select(near > 0.0, x0, 0.0), 0.0)
            if not everywhere(x0 == 0.0):
                x1 = -hard * (b[r + 1] + row_velocity(here, supports, J, r + 1, dv))
                x2 = -hard * (b[r + 2] + row_velocity(here, supports, J, r + 2, dv))
                if k >= contacts:
                    x1, x2 = friction_within(cone, x1, x2, bounds.mu[k - rows.singles] * x0)
        x[r], x[r + 1], x[r + 2] = x0, x1, x2


@func
def unexplained(rows, supports, root, J, x, momentum):
    """The entries of M dv - J^T x, summed in the scale of the mass matrix; `momentum` is M dv, and lost."""
    for k in range(rows.singles + shared(rows.triples[0])):
        here, r = shared(rows.support[k]), first_row(rows, k)
        if not everywhere(x[r] == 0.0):
            add_row(here, supports, J, r, -x[r], momentum)
            if k >= rows.singles:
                add_row(here, supports, J, r + 1, -x[r + 1], momentum)
                add_row(here, supports, J, r + 2, -x[r + 2], momentum)
    sum = 0.0  # not the largest: it would pass over what is no number
    for d in range(len(root)):
        sum = sum + abs(momentum[d]) * root[d]
    return sum


@kernel
def newton_impulses_again(
    problem: Problem,
    factors: Factors,
    effort: Effort,
    trust: Trust,
    v_free: Array[Float],
    v_end: Array[Float],
    scaled: Scaled,
    found: Impulses,
):
    """What `newton_impulses` gives for derivatives, from the velocities at the end of the step.

    v_free, v_end: Without and with impulses.
    scaled: Of rows with an impulse, and of those that always take part.
    """
    rows, supports, bounds, root, J = problem.rows, problem.supports, problem.bounds, factors.root, problem.J
    dofs, count = len(found.z), len(found.impulse)
    blocks, contacts = rows.singles + shared(rows.triples[0]), rows.singles + rows.equations
    dv, swing, momentum, x = local(Float, dofs), local(Float, dofs), local(Float, dofs), local(Float, count)
    fast, change = 0.0, 0.0
    for d in range(dofs):
        dv[d] = v_end[d] - v_free[d]
        fast = max(fast, abs(v_end[d]) / root[d])
    scaled_motion(factors, dv, swing)
    momentum_of(factors, swing, momentum)
    for d in range(dofs):
        change = max(change, abs(swing[d]))
    # Impulses by the velocities of their rows: do they explain the change of momentum?
    soft_impulses(problem, dv, x)
    left = unexplained(rows, supports, root, J, x, momentum)
    lost = 0.0 if left <= trust.share * change + trust.noise * fast else 1.0
    if not everywhere(lost == 0.0):
        size = count * supports.widest
        own_scaled = Scaled(local(Float, size), local(Float, size))
        own = Impulses(local(Float, count), local(Float, dofs))
        find_impulses(problem, factors, effort, lost, own_scaled, own)
        if lost == 1.0:
            for r in range(rows.singles + 3 * shared(rows.triples[0])):
                x[r] = own.impulse[r]
            for d in range(dofs):
                swing[d] = own.z[d]
    for d in range(dofs):
        found.z[d] = swing[d]
    for r in range(rows.singles + 3 * shared(rows.triples[0])):
        found.impulse[r] = x[r]
    for k in range(blocks):
        here, r = shared(rows.support[k]), first_row(rows, k)
        at = r * supports.widest
        if k < rows.singles:
            if not everywhere(bounds.lower[k] == 0.0 and x[k] == 0.0):
                scale_row(supports, here, at, factors, J, scaled)
        elif k < contacts or not everywhere(x[r] == 0.0):
            scale_three(supports, here, at, factors, J, scaled)
