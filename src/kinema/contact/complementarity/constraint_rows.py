"""Constraint rows: Jacobians J, velocities b and bounds of contacts, limits, dry friction, mimic joints and loops.

The Jacobian of a row has one entry per degree of freedom of its support, from the root to a first link and on to a
second (see `pgs.Supports`). b is the row's velocity at the end of the step without impulses minus its target velocity:

    b = J v_free - v_target                                                                                  (1)

For an equation with the error e [m, rad] and a contact or limit with the gap g [m, rad], with the time step dt and the
error reduction parameter (ERP) erp:

    v_target = -erp e / dt, |v_target| <= max_correction_speed          an equation: mimic joints, loops     (2)
    v_target = -g / dt                                 an open gap: the step may close it, but not pass it   (3)
    v_target = min(-erp g / dt, max_correction_speed)  penetration, g < 0: the step corrects a fraction erp  (4)
    v_target = 0                                       dry friction, both directions of sliding              (5)

Without restitution (3) has the effect of an impulse at the time of impact: the step ends on the surface, and the next
step removes the remaining speed. Rows that bounce do not take part in this problem; `impacts` handles them.
"""

from __future__ import annotations

from kinema.lang import Array, Float, cross, dot, func, kernel, max, norm, record, vec3

FAST = 100.0  # [rad/s, m/s] limits whose b is at least this are inactive
UNBOUNDED = 1e30  # [N s, N m s]


@record
class Law:
    """How constraint errors are corrected.

    step: Time step [s]; `dt` of the rows may be a part of it.
    erp: Error reduction parameter (ERP): fraction of an error corrected per step [-].
    max_correction_speed: Largest speed that corrects penetration, violated limits and errors of equations [m/s, rad/s].
    margin: Contacts with at least this gap are inactive [m].
    """

    step: Float
    erp: Float
    max_correction_speed: Float
    margin: Float


@func
def closing_speed(law: Law, gap: Float, dt: Float):
    """-v_target of a gap [m/s, rad/s]: the speed that closes it within the step (3) or corrects penetration (4)."""
    speed = gap / dt
    if gap < 0.0:
        speed = max(law.erp * gap / law.step, -law.max_correction_speed)
    return speed


@func
def correction_rate(law: Law, error: vec3):
    """The fraction of an equation's error that is corrected per second [1/s]: (2), along the error."""
    rate, most = law.erp / law.step, law.max_correction_speed
    if dot(error, error) * rate * rate > most * most:
        rate = most / norm(error)
    return rate


@func
def arm_of(tree, p, link, place: vec3):
    """Vector from the origin of the link's tree to a point [m]; the point itself for the world."""
    arm = place
    if link > 0:
        arm = place - p[tree.root[link - 1]]
    return arm


@func
def motion_per_dof(supports, block, t, d, S, arm: vec3, other: vec3):
    """Relative linear and angular velocity of a point of the first link against one of the second, per unit of a dof.

    Degree of freedom d, entry t of a support, moves the links whose path from the root contains it.

    arm, other: The two points, from the origins of the links' trees [m].
    """
    speed, spin = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
    if t < supports.first[block]:
        speed = S[d].v + cross(S[d].w, arm)
        spin = S[d].w
    if t < supports.common[block] or t >= supports.first[block]:
        speed = speed - S[d].v - cross(S[d].w, other)
        spin = spin - S[d].w
    return speed, spin


@func
def one_entry(supports, block, r, entry: Float, J):
    """Write the Jacobian of a row whose only non-zero entry belongs to the last degree of freedom of its support."""
    last = supports.count[block] - 1
    for t in range(last):
        J[r * supports.widest + t] = 0.0
    J[r * supports.widest + last] = entry


@kernel
def clear(one: Array[Float], other: Array[Float]):
    """Set two arrays to zero: the bounds of rows that do not exist."""
    for i in range(len(one)):
        one[i] = 0.0
        other[i] = 0.0
