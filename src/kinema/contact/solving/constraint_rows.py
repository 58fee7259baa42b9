"""Constraint rows: Jacobians J, velocities b and bounds of contacts, limits, dry friction, mimic joints and loops.

The Jacobian of a row has one entry per degree of freedom of its support, from the root to a first link and on to a
second (see `pgs.Supports`). b is the row's velocity at the end of the step without impulses minus its target velocity:

    b = J v_free - v_target                                                                                  (1)

For an equation with the error e [m, rad] and a contact or limit with the gap g [m, rad], with the time step dt and the
error reduction parameter (ERP) erp:

    v_target = -erp e / dt                             an equation: mimic joints, loops                      (2)
    v_target = -g / dt                                 an open gap: the step may close it, but not pass it   (3)
    v_target = min(-erp g / dt, max_correction_speed)  penetration, g < 0: the step corrects a fraction erp  (4)
    v_target = 0                                       dry friction, both directions of sliding              (5)

Without restitution (3) has the effect of an impulse at the time of impact: the step ends on the surface, and the next
step removes the remaining speed. Rows that bounce do not take part in this problem; `impacts` handles them.
"""

from __future__ import annotations

from kinema.contact.collision.narrow_phase import Touch
from kinema.contact.solving.pgs import Supports
from kinema.kinematics.tree import Tree
from kinema.lang import (
    Array,
    Float,
    Int,
    abs,
    columns_of,
    cross,
    dot,
    everywhere,
    func,
    kernel,
    mat33,
    max,
    min,
    norm,
    normalize,
    record,
    shared,
    vec3,
)
from kinema.math import Motion

FAST = 100.0  # [rad/s, m/s] limits whose b is at least this are inactive
UNBOUNDED = 1e30  # [N s, N m s]


@record
class Sides:
    """The two links of each contact.

    first, second: Links; one of them may be 0, the world.
    surface: Index of the candidate that became the contact; it selects the coefficient of friction.
    """

    first: Array[Int]
    second: Array[Int]
    surface: Array[Int]


@record
class Law:
    """How constraint errors are corrected.

    step: Time step [s]; `dt` of the rows may be a part of it.
    erp: Error reduction parameter (ERP): fraction of an error corrected per step [-].
    max_correction_speed: Largest speed that corrects penetration and violated limits [m/s, rad/s].
    margin: Contacts with at least this gap are inactive [m].
    """

    step: Float
    erp: Float
    max_correction_speed: Float
    margin: Float


@func
def tangents(normal: vec3):
    """Two unit tangents that form a right-handed frame with the normal; x and y for a normal along z."""
    along = vec3(1.0, 0.0, 0.0) if abs(normal.x) < 0.9 else vec3(0.0, 1.0, 0.0)
    slide = normalize(along - dot(along, normal) * normal)
    return slide, cross(normal, slide)


@func
def tangents_adjoint(normal: vec3, slide: vec3, slide_adj: vec3, across_adj: vec3):
    """Cotangent of the normal, from the cotangents of its two tangents."""
    along = vec3(1.0, 0.0, 0.0) if abs(normal.x) < 0.9 else vec3(0.0, 1.0, 0.0)
    share = dot(along, normal)
    to_slide = slide_adj + cross(across_adj, normal)
    flat = (to_slide - dot(slide, to_slide) * slide) / norm(along - share * normal)
    return cross(slide, across_adj) - dot(normal, flat) * along - share * flat


@func
def closing_speed(law: Law, gap: Float, dt: Float):
    """-v_target of a gap [m/s, rad/s]: the speed that closes it within the step (3) or corrects penetration (4)."""
    speed = gap / dt
    if gap < 0.0:
        speed = max(law.erp * gap / law.step, -law.max_correction_speed)
    return speed


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


# -- contacts ----------------------------------------------------------------------------------------------------------


@kernel
def contact_jacobian(
    tree: Tree,
    supports: Supports,
    support: Array[Int],
    sides: Sides,
    touch: Touch,
    triples: Array[Int],
    equations: Int,
    singles: Int,
    p: Array[vec3],
    S: Array[Motion],
    J: Array[Float],
):
    """Three rows per contact: along the normal and along two tangents."""
    for c in range(shared(triples[0]) - equations):
        block, r = shared(support[singles + equations + c]), singles + 3 * (equations + c)
        begin, to, wide = supports.begin[block], r * supports.widest, supports.widest
        normal = touch.normal[c]
        slide, across = tangents(normal)
        arm = arm_of(tree, p, shared(sides.first[c]), touch.point[c])
        other = arm_of(tree, p, shared(sides.second[c]), touch.point[c])
        for t in range(supports.count[block]):
            speed, _ = motion_per_dof(supports, block, t, supports.dofs[begin + t], S, arm, other)
            J[to + t] = dot(normal, speed)
            J[to + wide + t] = dot(slide, speed)
            J[to + 2 * wide + t] = dot(across, speed)


@kernel
def contact_jacobian_adjoint(
    tree: Tree,
    supports: Supports,
    support: Array[Int],
    sides: Sides,
    touch: Touch,
    triples: Array[Int],
    equations: Int,
    singles: Int,
    p: Array[vec3],
    S: Array[Motion],
    J_adj: Array[Float],
    point_adj: Array[vec3],
    normal_adj: Array[vec3],
    p_adj: Array[vec3],
    S_adj: Array[Motion],
):
    """Adjoint of `contact_jacobian`; the sums for a contact's frame and arms stay in registers.

    Contacts whose cotangents are all zero, such as contacts without impulses, are skipped.
    """
    for c in range(shared(triples[0]) - equations):
        block, r = shared(support[singles + equations + c]), singles + 3 * (equations + c)
        begin, to, wide = supports.begin[block], r * supports.widest, supports.widest
        total = 0.0
        for t in range(supports.count[block]):
            total = total + abs(J_adj[to + t]) + abs(J_adj[to + wide + t]) + abs(J_adj[to + 2 * wide + t])
        if not everywhere(total == 0.0):
            one, two, normal = shared(sides.first[c]), shared(sides.second[c]), touch.normal[c]
            slide, across = tangents(normal)
            arm, other = arm_of(tree, p, one, touch.point[c]), arm_of(tree, p, two, touch.point[c])
            # Adjoint of J = (normal, slide, across) . speed, entry by entry.
            n_adj, slide_adj, across_adj = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
            arm_adj, other_adj = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
            for t in range(supports.count[block]):
                d, at = supports.dofs[begin + t], to + t
                g0, g1, g2 = J_adj[at], J_adj[at + wide], J_adj[at + 2 * wide]
                speed_adj = g0 * normal + g1 * slide + g2 * across
                speed, _ = motion_per_dof(supports, block, t, d, S, arm, other)
                if t < supports.first[block]:
                    arm_adj = arm_adj + cross(speed_adj, S[d].w)
                    S_adj[d] += Motion(cross(arm, speed_adj), speed_adj)
                if t < supports.common[block] or t >= supports.first[block]:
                    other_adj = other_adj - cross(speed_adj, S[d].w)
                    S_adj[d] -= Motion(cross(other, speed_adj), speed_adj)
                n_adj, slide_adj, across_adj = n_adj + g0 * speed, slide_adj + g1 * speed, across_adj + g2 * speed
            # Adjoint of the arms and of the frame.
            if one > 0:
                p_adj[tree.root[one - 1]] -= arm_adj
            if two > 0:
                p_adj[tree.root[two - 1]] -= other_adj
            point_adj[c] += arm_adj + other_adj
            normal_adj[c] += n_adj + tangents_adjoint(normal, slide, slide_adj, across_adj)


@kernel
def contact_velocities(
    supports: Supports,
    support: Array[Int],
    sides: Sides,
    law: Law,
    friction: Array[Float],
    touch: Touch,
    triples: Array[Int],
    equations: Int,
    singles: Int,
    v_free: Array[Float],
    dt: Float,
    J: Array[Float],
    b: Array[Float],
    active: Array[Float],
    mu: Array[Float],
):
    """b of contacts (1), their activity flags and their coefficients of friction."""
    for c in range(shared(triples[0]) - equations):
        block, r = shared(support[singles + equations + c]), singles + 3 * (equations + c)
        begin, to, wide = supports.begin[block], r * supports.widest, supports.widest
        # J v_free of the three rows minus the target velocities (3), (4) and (5)
        b0, b1, b2 = 0.0, 0.0, 0.0
        for t in range(supports.count[block]):
            d = supports.dofs[begin + t]
            b0 = b0 + J[to + t] * v_free[d]
            b1 = b1 + J[to + wide + t] * v_free[d]
            b2 = b2 + J[to + 2 * wide + t] * v_free[d]
        gap = touch.gap[c]
        b[r] = b0 + closing_speed(law, gap, dt)
        b[r + 1] = b1
        b[r + 2] = b2
        active[equations + c] = 1.0 if gap < law.margin else 0.0
        mu[equations + c] = friction[shared(sides.surface[c])]


@record
class Candidates:
    """Links and supports of all candidates; candidates with a gap below the margin become contacts."""

    first: Array[Int]
    second: Array[Int]
    support: Array[Int]


@kernel
def pick_contacts(
    candidates: Candidates,
    all: Touch,
    margin: Float,
    fixed: Array[Int],
    singles: Int,
    equations: Int,
    near: Touch,
    sides: Sides,
    support: Array[Int],
    triples: Array[Int],
    missed: Array[Float],
):
    """Turn candidates with a gap below the margin into contacts, in their order; `missed` counts those without space.

    A candidate becomes a contact in all lanes if it is near in any lane, so that all lanes access the same memory;
    `active` distinguishes the lanes.

    fixed: Supports of the rows before the contacts.
    """
    blocks = singles + equations
    for i in range(blocks):
        support[i] = fixed[i]
    count, lost = 0, 0.0
    for k in range(len(all.gap)):
        if not everywhere(all.gap[k] >= margin):
            if count < len(near.gap):
                near.gap[count] = all.gap[k]
                near.point[count] = all.point[k]
                near.normal[count] = all.normal[k]
                sides.first[count] = candidates.first[k]
                sides.second[count] = candidates.second[k]
                sides.surface[count] = k
                support[blocks + count] = candidates.support[k]
                count = count + 1
            else:
                lost = lost + 1.0
    triples[0] = equations + count
    missed[0] = lost


# -- single rows -------------------------------------------------------------------------------------------------------


@kernel
def clear(one: Array[Float], other: Array[Float]):
    """Set two arrays to zero: the bounds of rows that do not exist."""
    for i in range(len(one)):
        one[i] = 0.0
        other[i] = 0.0


@record
class Followers:
    """Mimic joints: q = offset + multiplier * x + higher . (x^2, x^3, x^4), with x = q_leader.

    dof, leader: Degrees of freedom of the mimic joint and of its leader.
    q, leader_q: Coordinates of the mimic joint and of its leader.
    multiplier, offset: Multiplier [-] and offset [rad, m].
    higher: Further coefficients of the polynomial.
    """

    dof: Array[Int]
    leader: Array[Int]
    q: Array[Int]
    leader_q: Array[Int]
    multiplier: Array[Float]
    offset: Array[Float]
    higher: Array[vec3]


@func
def followed(followers, i, q):
    """The coordinate that mimic joint i should have, and its derivative by that of its leader."""
    x, more, k = q[followers.leader_q[i]], followers.higher[i], followers.multiplier[i]
    slope = k + x * (2.0 * more.x + x * (3.0 * more.y + x * (4.0 * more.z)))
    return followers.offset[i] + x * (k + x * (more.x + x * (more.y + x * more.z))), slope


@kernel
def follower_rows(
    supports: Supports,
    support: Array[Int],
    followers: Followers,
    start: Int,
    erp: Float,
    q: Array[Float],
    v_free: Array[Float],
    dt: Float,
    J: Array[Float],
    b: Array[Float],
    lower: Array[Float],
    upper: Array[Float],
):
    """A row per mimic joint, from row `start` on: the equation that it has the coordinate of `followed`."""
    for i in range(len(followers.dof)):
        r = start + i
        begin = supports.begin[support[r]]
        wanted, k = followed(followers, i, q)
        # J: 1 for the mimic joint, minus the slope for its leader
        for t in range(supports.count[support[r]]):
            d = supports.dofs[begin + t]
            entry = 0.0
            if d == followers.dof[i]:
                entry = 1.0
            elif d == followers.leader[i]:
                entry = -k
            J[r * supports.widest + t] = entry
        # b (1) with the target velocity of an equation (2)
        error = q[followers.q[i]] - wanted
        b[r] = v_free[followers.dof[i]] - k * v_free[followers.leader[i]] + erp * error / dt
        lower[r] = -UNBOUNDED
        upper[r] = UNBOUNDED


@func
def one_entry(supports, block, r, entry: Float, J):
    """Write the Jacobian of a row whose only non-zero entry belongs to the last degree of freedom of its support."""
    last = supports.count[block] - 1
    for t in range(last):
        J[r * supports.widest + t] = 0.0
    J[r * supports.widest + last] = entry


@kernel
def dry_friction_rows(
    supports: Supports,
    support: Array[Int],
    dof: Array[Int],
    friction: Array[Float],
    start: Int,
    v_free: Array[Float],
    dt: Float,
    J: Array[Float],
    b: Array[Float],
    lower: Array[Float],
    upper: Array[Float],
):
    """One row per degree of freedom with dry friction [N m, N], from row `start` on, with target velocity zero (5)."""
    for i in range(len(dof)):
        r = start + i
        one_entry(supports, support[r], r, 1.0, J)
        b[r] = v_free[dof[i]]
        lower[r] = -friction[i] * dt
        upper[r] = friction[i] * dt


@record
class Limits:
    """Degrees of freedom with limits.

    dof, q: The degree of freedom and its coordinate.
    lower, upper: Limits [rad, m].
    """

    dof: Array[Int]
    q: Array[Int]
    lower: Array[Float]
    upper: Array[Float]


@kernel
def limit_rows(
    supports: Supports,
    support: Array[Int],
    limits: Limits,
    start: Int,
    law: Law,
    q: Array[Float],
    v_free: Array[Float],
    dt: Float,
    J: Array[Float],
    b: Array[Float],
    lower: Array[Float],
    upper: Array[Float],
):
    """One row per limited degree of freedom, for the nearer limit, from row `start` on.

    The row keeps the gap open (3), (4); its impulse pushes away from the limit.
    """
    for i in range(len(limits.dof)):
        r = start + i
        below, above = q[limits.q[i]] - limits.lower[i], limits.upper[i] - q[limits.q[i]]
        way, gap = 1.0, below
        if above < below:
            way = -1.0
            gap = above
        one_entry(supports, support[r], r, way, J)
        target = closing_speed(law, gap, dt)
        b[r] = way * v_free[limits.dof[i]] + target
        lower[r] = 0.0
        upper[r] = UNBOUNDED if b[r] < FAST else 0.0


@kernel
def limit_gaps(limits: Limits, start: Int, q: Array[Float], gap: Array[Float]):
    """Gaps of limited degrees of freedom to the nearer limit [rad, m], from row `start` on."""
    for i in range(len(limits.dof)):
        at = q[limits.q[i]]
        gap[start + i] = min(at - limits.lower[i], limits.upper[i] - at)


# -- loops -------------------------------------------------------------------------------------------------------------


@record
class Loops:
    """Loop closures: the origins of a frame on a first link and a frame on a second link coincide.

    first, second: Links; the second may be 0, the world.
    first_place, second_place: Positions of the frames in their links [m].
    first_turn, second_turn: Rotation matrices of the frames in their links [-].
    welded: 1 if the axes of the frames also coincide, which adds three equations.
    start: Index of the first triple of each loop.
    """

    first: Array[Int]
    second: Array[Int]
    first_place: Array[vec3]
    second_place: Array[vec3]
    first_turn: Array[mat33]
    second_turn: Array[mat33]
    welded: Array[Int]
    start: Array[Int]


@kernel
def loop_rows(
    tree: Tree,
    supports: Supports,
    support: Array[Int],
    loops: Loops,
    erp: Float,
    singles: Int,
    R: Array[mat33],
    p: Array[vec3],
    S: Array[Motion],
    v_free: Array[Float],
    dt: Float,
    J: Array[Float],
    b: Array[Float],
):
    """Three rows per loop along the world axes, and three more for the rotation of a weld, from triple `start` on."""
    for i in range(len(loops.first)):
        one, two, wide = loops.first[i], loops.second[i], supports.widest
        block, r = support[singles + loops.start[i]], singles + 3 * loops.start[i]
        begin = supports.begin[block]
        here, there = p[one] + R[one] @ loops.first_place[i], p[two] + R[two] @ loops.second_place[i]
        arm, other = arm_of(tree, p, one, here), arm_of(tree, p, two, there)
        # J: relative linear and angular velocity of the frames; J v_free in the same pass
        moving, turning = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
        for t in range(supports.count[block]):
            d = supports.dofs[begin + t]
            speed, spin = motion_per_dof(supports, block, t, d, S, arm, other)
            J[r * wide + t] = speed.x
            J[(r + 1) * wide + t] = speed.y
            J[(r + 2) * wide + t] = speed.z
            moving = moving + speed * v_free[d]
            turning = turning + spin * v_free[d]
            if loops.welded[i] > 0:
                J[(r + 3) * wide + t] = spin.x
                J[(r + 4) * wide + t] = spin.y
                J[(r + 5) * wide + t] = spin.z
        # b (1), (2) with the distance of the origins as the error
        apart = moving + (here - there) * (erp / dt)
        b[r] = apart.x
        b[r + 1] = apart.y
        b[r + 2] = apart.z
        # and with the rotation vector between the frames, for small angles half the sum of the axes' cross products
        if loops.welded[i] > 0:
            x, y, z = columns_of(R[one] @ loops.first_turn[i])
            x_to, y_to, z_to = columns_of(R[two] @ loops.second_turn[i])
            turned = turning + (cross(x_to, x) + cross(y_to, y) + cross(z_to, z)) * (0.5 * erp / dt)
            b[r + 3] = turned.x
            b[r + 4] = turned.y
            b[r + 5] = turned.z
