"""Rows of the complementarity problem: Jacobians, velocities and bounds of contacts, joints and loops.

A row's Jacobian has an entry for every degree of freedom of its support, which leads from the root to one link and
on to another (see `mlcp.Supports`). With the error of a constraint e [m, rad] and the time step dt, equations ask for
v' + erp e / dt = 0. A gap g that may not close asks for

    v' + g / dt >= 0         while it is open: it may be closed in this step, no more
    v' + erp g / dt >= 0     below zero: a share erp is undone, no faster than `recovery`

Without restitution this is what an impulse at the time of impact does: it ends on the surface, and the next step takes
the rest of its speed. What bounces is left out of the problem and is the matter of `impacts`.
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

FAST = 100.0  # [rad/s, m/s], limits that no impulse of a step is thought to reach at this speed are left alone


@record
class Sides:
    """What touches what, contact by contact.

    first, second: Links; one of them may be 0, the world.
    surface: Number of the candidate it comes from, which has the coefficient of friction.
    """

    first: Array[Int]
    second: Array[Int]
    surface: Array[Int]


@record
class Law:
    """How constraints give way.

    step: Time step [s]; `dt` of the rows may be a part of it.
    erp: Share of an error that is undone in a step [-].
    recovery: Speed at which depths and limits are undone at most [m/s, rad/s].
    margin: Gap from which on contacts are left alone [m].
    """

    step: Float
    erp: Float
    recovery: Float
    margin: Float


@func
def tangents(normal: vec3):
    """Two unit vectors that make a right-handed frame with a normal; x and y for a normal along z."""
    along = vec3(1.0, 0.0, 0.0) if abs(normal.x) < 0.9 else vec3(0.0, 1.0, 0.0)
    slide = normalize(along - dot(along, normal) * normal)
    return slide, cross(normal, slide)


@func
def tangents_adjoint(normal: vec3, slide: vec3, of_slide: vec3, of_across: vec3):
    """Cotangent of the normal, from those of its two tangents."""
    along = vec3(1.0, 0.0, 0.0) if abs(normal.x) < 0.9 else vec3(0.0, 1.0, 0.0)
    share = dot(along, normal)
    to_slide = of_slide + cross(of_across, normal)
    flat = (to_slide - dot(slide, to_slide) * slide) / norm(along - share * normal)
    return cross(slide, of_across) - dot(normal, flat) * along - share * flat


@func
def closing_speed(law: Law, gap: Float, dt: Float):
    """Speed that closes a gap within the step [m/s, rad/s]; of a depth, negative, that which undoes a share of it."""
    speed = gap / dt
    if gap < 0.0:
        speed = max(law.erp * gap / law.step, -law.recovery)
    return speed


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
    """Three rows per contact: along the normal and two directions of sliding."""
    for c in range(shared(triples[0]) - equations):
        block, r = shared(support[singles + equations + c]), singles + 3 * (equations + c)
        begin, to, wide = supports.begin[block], r * supports.widest, supports.widest
        normal = touch.normal[c]
        slide, across = tangents(normal)
        arm, other = touch.point[c], touch.point[c]
        one, two = shared(sides.first[c]), shared(sides.second[c])
        if one > 0:
            arm = arm - p[tree.root[one - 1]]
        if two > 0:
            other = other - p[tree.root[two - 1]]
        for t in range(supports.count[block]):
            d = supports.dofs[begin + t]
            speed = vec3(0.0, 0.0, 0.0)
            if t < supports.first[block]:
                speed = S[d].v + cross(S[d].w, arm)
            if t < supports.common[block] or t >= supports.first[block]:
                speed = speed - S[d].v - cross(S[d].w, other)
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
    """The same in reverse; sums for a contact's frame and arms stay in registers. Most contacts press nothing."""
    for c in range(shared(triples[0]) - equations):
        block, r = shared(support[singles + equations + c]), singles + 3 * (equations + c)
        begin, to, wide = supports.begin[block], r * supports.widest, supports.widest
        felt = 0.0
        for t in range(supports.count[block]):
            felt = felt + abs(J_adj[to + t]) + abs(J_adj[to + wide + t]) + abs(J_adj[to + 2 * wide + t])
        if not everywhere(felt == 0.0):
            one, two, normal = shared(sides.first[c]), shared(sides.second[c]), touch.normal[c]
            slide, across = tangents(normal)
            arm, other = touch.point[c], touch.point[c]
            if one > 0:
                arm = arm - p[tree.root[one - 1]]
            if two > 0:
                other = other - p[tree.root[two - 1]]
            of_normal, of_slide, of_across = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
            of_arm, of_other = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
            for t in range(supports.count[block]):
                d, at = supports.dofs[begin + t], to + t
                g0, g1, g2 = J_adj[at], J_adj[at + wide], J_adj[at + 2 * wide]
                push = g0 * normal + g1 * slide + g2 * across  # cotangent of the speed
                speed = vec3(0.0, 0.0, 0.0)
                if t < supports.first[block]:
                    speed = S[d].v + cross(S[d].w, arm)
                    of_arm = of_arm + cross(push, S[d].w)
                    S_adj[d] += Motion(cross(arm, push), push)
                if t < supports.common[block] or t >= supports.first[block]:
                    speed = speed - S[d].v - cross(S[d].w, other)
                    of_other = of_other - cross(push, S[d].w)
                    S_adj[d] -= Motion(cross(other, push), push)
                of_normal, of_slide, of_across = of_normal + g0 * speed, of_slide + g1 * speed, of_across + g2 * speed
            if one > 0:
                p_adj[tree.root[one - 1]] -= of_arm
            if two > 0:
                p_adj[tree.root[two - 1]] -= of_other
            point_adj[c] += of_arm + of_other
            normal_adj[c] += of_normal + tangents_adjoint(normal, slide, of_slide, of_across)


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
    """What contacts ask of the velocities, whether they are near, and their coefficients of friction."""
    for c in range(shared(triples[0]) - equations):
        block, r = shared(support[singles + equations + c]), singles + 3 * (equations + c)
        begin, to, wide = supports.begin[block], r * supports.widest, supports.widest
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
    """Links and supports of all candidates: those that are near become contacts."""

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
    """Contacts are the candidates with a gap below the margin, in their order; `missed` counts those without room.

    Of worlds that run together, those of any of them: all take the same way through memory. `active` tells them apart.

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


@kernel
def clear(one: Array[Float], other: Array[Float]):
    """Zeros in two arrays: bounds of rows that do not exist."""
    for i in range(len(one)):
        one[i] = 0.0
        other[i] = 0.0


@record
class Followers:
    """Joints that follow others: q = multiplier * q_leader + offset.

    dof, leader: Their degrees of freedom.
    q, leader_q: Their coordinates.
    multiplier, offset: [-], [rad, m]
    """

    dof: Array[Int]
    leader: Array[Int]
    q: Array[Int]
    leader_q: Array[Int]
    multiplier: Array[Float]
    offset: Array[Float]


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
    """A row per follower, from row `start` on."""
    for i in range(len(followers.dof)):
        r = start + i
        begin, k = supports.begin[support[r]], followers.multiplier[i]
        for t in range(supports.count[support[r]]):
            d = supports.dofs[begin + t]
            entry = 0.0
            if d == followers.dof[i]:
                entry = 1.0
            elif d == followers.leader[i]:
                entry = -k
            J[r * supports.widest + t] = entry
        error = q[followers.q[i]] - k * q[followers.leader_q[i]] - followers.offset[i]
        b[r] = v_free[followers.dof[i]] - k * v_free[followers.leader[i]] + erp * error / dt
        lower[r] = -1e30
        upper[r] = 1e30


@func
def one_entry(supports, block, r, entry: Float, J):
    """The Jacobian of a row that concerns only the last degree of freedom of its support."""
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
    """A row per degree of freedom with dry friction [N m, N], from row `start` on: it wants to stand still."""
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
    lower, upper: [rad, m]
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
    """A row per limited degree of freedom, for the nearer limit, from row `start` on."""
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
        upper[r] = 1e30 if b[r] < FAST else 0.0


@kernel
def limit_gaps(limits: Limits, start: Int, q: Array[Float], gap: Array[Float]):
    """What is left up to the nearer limit [rad, m], from row `start` on."""
    for i in range(len(limits.dof)):
        at = q[limits.q[i]]
        gap[start + i] = min(at - limits.lower[i], limits.upper[i] - at)


@record
class Loops:
    """Closed loops: a frame on a first link and one on a second coincide.

    first, second: Links; the second may be 0, the world.
    first_place, second_place: Of the frames' origins on the links [m].
    first_turn, second_turn: Of the frames on the links [-].
    welded: 1 if their axes coincide too: three equations more.
    start: The first triple of each.
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
    """Three rows per loop along the world's axes, and three more for the angles of a weld; triple `start` on."""
    for i in range(len(loops.first)):
        one, two, wide = loops.first[i], loops.second[i], supports.widest
        block, r = support[singles + loops.start[i]], singles + 3 * loops.start[i]
        begin = supports.begin[block]
        here, there = p[one] + R[one] @ loops.first_place[i], p[two] + R[two] @ loops.second_place[i]
        arm = here - p[tree.root[one - 1]]
        other = there
        if two > 0:
            other = there - p[tree.root[two - 1]]
        moving, turning = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
        for t in range(supports.count[block]):
            d = supports.dofs[begin + t]
            speed, spin = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
            if t < supports.first[block]:
                speed = S[d].v + cross(S[d].w, arm)
                spin = S[d].w
            if t < supports.common[block] or t >= supports.first[block]:
                speed = speed - S[d].v - cross(S[d].w, other)
                spin = spin - S[d].w
            J[r * wide + t] = speed.x
            J[(r + 1) * wide + t] = speed.y
            J[(r + 2) * wide + t] = speed.z
            moving = moving + speed * v_free[d]
            turning = turning + spin * v_free[d]
            if loops.welded[i] > 0:
                J[(r + 3) * wide + t] = spin.x
                J[(r + 4) * wide + t] = spin.y
                J[(r + 5) * wide + t] = spin.z
        wanted = moving + (here - there) * (erp / dt)
        b[r] = wanted.x
        b[r + 1] = wanted.y
        b[r + 2] = wanted.z
        if loops.welded[i] > 0:
            x, y, z = columns_of(R[one] @ loops.first_turn[i])
            x_to, y_to, z_to = columns_of(R[two] @ loops.second_turn[i])
            turned = turning + (cross(x_to, x) + cross(y_to, y) + cross(z_to, z)) * (0.5 * erp / dt)
            b[r + 3] = turned.x
            b[r + 4] = turned.y
            b[r + 5] = turned.z
