"""Rows of contacts: Jacobians in a frame of the normal and two tangents, velocities, and which contacts are active."""

from __future__ import annotations

from kinema.contact.collision.narrow_phase import Touch
from kinema.contact.complementarity.constraint_rows import Law, arm_of, closing_speed, motion_per_dof
from kinema.contact.complementarity.pgs import Supports
from kinema.kinematics.tree import Tree
from kinema.lang import (
    Array,
    Float,
    Int,
    abs,
    cross,
    dot,
    everywhere,
    func,
    kernel,
    norm,
    normalize,
    record,
    shared,
    vec3,
)
from kinema.math import Motion


@record
class Sides:
    """The two links of each contact.

    first, second: Links; one of them may be 0, the world.
    surface: Number in the model of the candidate that became the contact; it selects the coefficient of friction.
    slot: Its place among the candidates of the narrow phase.
    """

    first: Array[Int]
    second: Array[Int]
    surface: Array[Int]
    slot: Array[Int]


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
    """Contact candidates; those with a gap below the margin become contacts.

    number, row: Of each candidate, its number in the model, and its row in the tables.
    first, second: Tables of links.
    count: Number of candidates.
    lost: Number of pairs of shapes that the narrow phase had no room for.
    """

    number: Array[Int]
    row: Array[Int]
    first: Array[Int]
    second: Array[Int]
    count: Array[Int]
    lost: Array[Int]


@kernel
def pick_contacts(
    candidates: Candidates,
    all: Touch,
    margin: Float,
    equations: Int,
    near: Touch,
    sides: Sides,
    triples: Array[Int],
    missed: Array[Float],
):
    """Turn candidates with a gap below the margin into contacts, in their order; `missed` counts those without space.

    A candidate becomes a contact in all lanes if it is near in any lane, so that all lanes access the same memory;
    `active` distinguishes the lanes.
    """
    count, left = 0, Float(candidates.lost[0])
    for k in range(shared(candidates.count[0])):
        if not everywhere(all.gap[k] >= margin):
            if count < len(near.gap):
                row = shared(candidates.row[k])
                near.gap[count] = all.gap[k]
                near.point[count] = all.point[k]
                near.normal[count] = all.normal[k]
                sides.first[count] = candidates.first[row]
                sides.second[count] = candidates.second[row]
                sides.surface[count] = candidates.number[k]
                sides.slot[count] = k
                count = count + 1
            else:
                left = left + 1.0
    triples[0] = equations + count
    missed[0] = left


@kernel
def look_up_supports(
    fixed: Array[Int],
    candidates: Candidates,
    table: Array[Int],
    sides: Sides,
    triples: Array[Int],
    equations: Int,
    singles: Int,
    support: Array[Int],
):
    """Supports of all blocks: of the rows before the contacts, and of contacts, from a table by rows of candidates."""
    blocks = singles + equations
    for i in range(blocks):
        support[i] = fixed[i]
    for c in range(shared(triples[0]) - equations):
        support[blocks + c] = table[shared(candidates.row[shared(sides.slot[c])])]


@record
class Paths:
    """Degrees of freedom from the roots to the links.

    last: Last degree of freedom of each link; -1 for the world.
    row, depth, above: As in `kinematics.tree.Branches`.
    """

    last: Array[Int]
    row: Array[Int]
    depth: Array[Int]
    above: Array[Int]


@kernel
def build_supports(
    fixed: Array[Int],
    of_fixed: Supports,
    paths: Paths,
    sides: Sides,
    triples: Array[Int],
    equations: Int,
    singles: Int,
    supports: Supports,
    support: Array[Int],
):
    """Supports of all blocks, those of contacts from the paths to their two links, one for each contact.

    fixed, of_fixed: The supports of the rows before the contacts.
    """
    blocks, known, used = singles + equations, len(of_fixed.begin), len(of_fixed.dofs)
    for i in range(blocks):
        support[i] = fixed[i]
    for s in range(known):
        supports.begin[s] = of_fixed.begin[s]
        supports.first[s] = of_fixed.first[s]
        supports.count[s] = of_fixed.count[s]
        supports.common[s] = of_fixed.common[s]
    for k in range(used):
        supports.dofs[k] = of_fixed.dofs[k]
    for c in range(shared(triples[0]) - equations):
        one, two = shared(paths.last[shared(sides.first[c])]), shared(paths.last[shared(sides.second[c])])
        begin, length, other, from_one, from_two = used + c * supports.widest, 0, 0, 0, 0
        if one >= 0:
            length, from_one = shared(paths.depth[one]) + 1, shared(paths.row[one])
        if two >= 0:
            other, from_two = shared(paths.depth[two]) + 1, shared(paths.row[two])
        common = 0
        for t in range(length):
            supports.dofs[begin + t] = paths.above[from_one + t]
            if t < other and common == t:
                if paths.above[from_one + t] == paths.above[from_two + t]:
                    common = t + 1
        for t in range(common, other):
            supports.dofs[begin + length + t - common] = paths.above[from_two + t]
        supports.begin[known + c] = begin
        supports.first[known + c] = length
        supports.count[known + c] = length + other - common
        supports.common[known + c] = common
        support[blocks + c] = known + c
