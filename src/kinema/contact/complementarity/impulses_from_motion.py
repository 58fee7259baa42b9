"""Impulses of a step whose motion is known, for the adjoint: recomputed row by row, without Newton's method.

With cfm > 0 velocities determine impulses. For a row with the velocity y = b + J dv, without the term cfm lambda, the
problem of `pgs` requires w = y + cfm lambda = 0 unless lambda is at a bound; so lambda = -y / cfm, clamped to the
bounds. The division by cfm magnifies the rounding error of velocities: with cfm = 1e-6 / kg impulses have errors of
1e-10 to 1e-7. This precision suffices to determine the active set; `newton_impulses_adjoint` then refines the impulses.

The impulses are accepted if they explain the motion: M dv = J^T lambda. In worlds where they do not (cfm is 0, links
are very light, the step was not solved), Newton's method runs again.
"""

from __future__ import annotations

from kinema.contact.complementarity.delassus import first_row
from kinema.contact.complementarity.friction_cone import friction_within
from kinema.contact.complementarity.mass_scaling import Scaled
from kinema.contact.complementarity.newton import Effort, Impulses, Problem, find_impulses
from kinema.contact.complementarity.pgs import add_row, row_velocity
from kinema.kinematics.factors import Factors
from kinema.lang import Array, Float, abs, everywhere, func, kernel, local, max, min, record, select, shared


@record
class Trust:
    """Tolerances within which impulses explain a motion.

    share: Largest unexplained momentum, relative to the change of momentum [-].
    noise: Largest unexplained momentum, relative to the total momentum: less is rounding error [-].
    """

    share: Float
    noise: Float


@func
def soft_impulses(problem, dv, x):
    """Compute the impulses x of the rows from their velocities after the step: -y / cfm, clamped."""
    rows, supports, bounds, cone, J, b = (
        problem.rows,
        problem.supports,
        problem.bounds,
        problem.cone,
        problem.J,
        problem.b,
    )
    blocks, contacts, hard = rows.singles + shared(rows.triples[0]), rows.singles + rows.equations, 1.0 / bounds.cfm
    # Single rows.
    for i in range(rows.singles):
        lower, upper, to = bounds.lower[i], bounds.upper[i], 0.0
        if not everywhere(lower == 0.0 and upper == 0.0):
            y = b[i] + row_velocity(shared(rows.support[i]), supports, J, i, dv)
            to = max(min(-hard * y, upper), lower)
        x[i] = to
    # Triples: the normal impulse first, then friction within its bounds.
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
    """Sum of the magnitudes of M dv - J^T x, scaled by the mass matrix; overwrites `momentum`, which is M dv."""
    for k in range(rows.singles + shared(rows.triples[0])):
        here, r = shared(rows.support[k]), first_row(rows, k)
        if not everywhere(x[r] == 0.0):
            add_row(here, supports, J, r, -x[r], momentum)
            if k >= rows.singles:
                add_row(here, supports, J, r + 1, -x[r + 1], momentum)
                add_row(here, supports, J, r + 2, -x[r + 2], momentum)
    sum = 0.0  # a sum and not a maximum, which would skip NaN
    for d in range(len(root)):
        sum = sum + abs(momentum[d]) * root[d]
    return sum


@func
def find_impulses_again(problem, factors, effort, trust, v_free, v_end, scaled, found):
    """The body of `newton_impulses_again`."""
    rows, supports, bounds, root, J = problem.rows, problem.supports, problem.bounds, factors.root, problem.J
    dofs, count = len(found.z), len(found.impulse)
    blocks, contacts = rows.singles + shared(rows.triples[0]), rows.singles + rows.equations
    dv, swing, momentum, x = local(Float, dofs), local(Float, dofs), local(Float, dofs), local(Float, count)
    fast, change = 0.0, 0.0
    # The motion as z = D^1/2 L dv and as the momentum M dv.
    for d in range(dofs):
        dv[d] = v_end[d] - v_free[d]
        fast = max(fast, abs(v_end[d]) / root[d])
    factors.scaled_motion(dv, swing)
    factors.momentum_of(swing, momentum)
    for d in range(dofs):
        change = max(change, abs(swing[d]))
    # Impulses from the velocities of their rows; do they explain the change of momentum?
    soft_impulses(problem, dv, x)
    left = unexplained(rows, supports, root, J, x, momentum)
    lost = 0.0 if left <= trust.share * change + trust.noise * fast else 1.0
    # In lanes where they do not, Newton's method runs again.
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
    # The results, and the scaled rows that the adjoint reads.
    for d in range(dofs):
        found.z[d] = swing[d]
    for r in range(rows.singles + 3 * shared(rows.triples[0])):
        found.impulse[r] = x[r]
    for k in range(blocks):
        here, r = shared(rows.support[k]), first_row(rows, k)
        at = r * supports.widest
        if k < rows.singles:
            if not everywhere(bounds.lower[k] == 0.0 and x[k] == 0.0):
                factors.scale_row(supports, here, at, J, scaled)
        elif k < contacts or not everywhere(x[r] == 0.0):
            factors.scale_three(supports, here, at, J, scaled)


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
    """Recompute the results of `newton_impulses` for its adjoint, from the velocities at the end of the step.

    v_free, v_end: Velocities without and with impulses.
    scaled: Scaled rows, of the rows with an impulse and the rows that always take part.
    """
    find_impulses_again(problem, factors, effort, trust, v_free, v_end, scaled, found)
