"""Kinematics of trees of links: poses, joint axes, velocities.

Link 0 is the world. All spatial vectors of a tree are in world axes about one point, the origin of the tree's root
link at this instant: no frames change from link to link, and nothing depends on where the tree stands.
"""

from __future__ import annotations

from kinema.lang import (
    Array,
    Float,
    Int,
    columns_of,
    cos,
    cross,
    func,
    identity33,
    kernel,
    mat33,
    normalize,
    outer,
    record,
    sin,
    skew,
    vec3,
)
from kinema.math import Motion, Quat
from kinema.model.tree import BALL, FREE, PRISMATIC, REVOLUTE


@record
class Tree:
    """Topology, links in depth-first order; link i + 1 belongs to joint i.

    parent: Link that joint i hangs on; 0 is the world.
    root: First link of the tree that link i + 1 belongs to.
    kind: REVOLUTE, PRISMATIC, BALL or FREE.
    q_start, v_start: Where the joint's coordinates and velocities begin.
    dofs: Its number of velocities.
    """

    parent: Array[Int]
    root: Array[Int]
    kind: Array[Int]
    q_start: Array[Int]
    v_start: Array[Int]
    dofs: Array[Int]


@record
class Branches:
    """Degrees of freedom along the branches.

    row: Where the row of a degree of freedom begins.
    depth: Number of those above it.
    last: Last one below it (or itself): depth-first order makes subtrees ranges.
    above: All rows, one after the other: the degrees of freedom from the root to the row's own.
    """

    row: Array[Int]
    depth: Array[Int]
    last: Array[Int]
    above: Array[Int]


@record
class Joints:
    """Geometry of the joints.

    offset: Of the joint from its parent link [m], in the parent's frame.
    rotation: Of the joint's frame in the parent's [-].
    turned: 1 where that is not the identity; products with the identity are left out.
    axis: Direction in the joint's frame, of any length but 0.
    """

    offset: Array[vec3]
    rotation: Array[mat33]
    turned: Array[Int]
    axis: Array[vec3]


@func
def rotation_about(axis: vec3, angle: Float):
    """The rotation by `angle` [rad] about a unit vector: c 1 + (1 - c) a a^T + s skew(a) [Rodrigues]."""
    c, s = cos(angle), sin(angle)
    return identity33(c) + (1.0 - c) * outer(axis, axis) + s * skew(axis)


@kernel
def place_links(tree: Tree, joints: Joints, q: Array[Float], R: Array[mat33], p: Array[vec3], S: Array[Motion]):
    """Pose R_WL, p_WL [m] of every link and the motion S of every degree of freedom [-, m].

    The velocity of a free or ball joint is that of its link in the link's own axes, angular part first.
    """
    R[0] = identity33(1.0)
    p[0] = vec3(0.0, 0.0, 0.0)
    for i in range(len(tree.parent)):
        up, at, d = tree.parent[i], tree.q_start[i], tree.v_start[i]
        axis = vec3(0.0, 0.0, 0.0)
        turn = identity33(1.0)
        shift = vec3(0.0, 0.0, 0.0)
        if tree.kind[i] == REVOLUTE:
            axis = normalize(joints.axis[i])
            turn = rotation_about(axis, q[at])
        elif tree.kind[i] == PRISMATIC:
            axis = normalize(joints.axis[i])
            shift = q[at] * axis
        elif tree.kind[i] == BALL:
            turn = Quat(q[at], vec3(q[at + 1], q[at + 2], q[at + 3])).normalized().matrix()
        else:
            shift = vec3(q[at], q[at + 1], q[at + 2])
            turn = Quat(q[at + 3], vec3(q[at + 4], q[at + 5], q[at + 6])).normalized().matrix()
        R_WJ = R[up]
        if joints.turned[i] > 0:
            R_WJ = R[up] @ joints.rotation[i]
        R_WL = R_WJ @ turn
        p_WL = p[up] + R[up] @ joints.offset[i] + R_WJ @ shift
        R[i + 1] = R_WL
        p[i + 1] = p_WL
        arm = p_WL - p[tree.root[i]]
        if tree.kind[i] == REVOLUTE:
            w = R_WJ @ axis
            S[d] = Motion(w, cross(arm, w))
        elif tree.kind[i] == PRISMATIC:
            S[d] = Motion(vec3(0.0, 0.0, 0.0), R_WJ @ axis)
        else:
            a, b, c = columns_of(R_WL)
            S[d] = Motion(a, cross(arm, a))
            S[d + 1] = Motion(b, cross(arm, b))
            S[d + 2] = Motion(c, cross(arm, c))
            if tree.kind[i] == FREE:
                S[d + 3] = Motion(vec3(0.0, 0.0, 0.0), a)
                S[d + 4] = Motion(vec3(0.0, 0.0, 0.0), b)
                S[d + 5] = Motion(vec3(0.0, 0.0, 0.0), c)


@func
def axes_rate(kind: Int, number: Int, d: Int, v: Array[Float]):
    """w x v of a free body, for its number-th velocity: what the turning of its own axes adds to its acceleration."""
    extra = 0.0
    if kind == FREE and number >= 3:
        turning = cross(vec3(v[d], v[d + 1], v[d + 2]), vec3(v[d + 3], v[d + 4], v[d + 5]))
        extra = turning.x
        if number == 4:
            extra = turning.y
        elif number == 5:
            extra = turning.z
    return extra


@kernel
def link_velocities(tree: Tree, S: Array[Motion], v: Array[Float], V: Array[Motion]):
    """Velocity of every link: that of its parent and that of its joint."""
    V[0] = Motion(vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0))
    for i in range(len(tree.parent)):
        d = tree.v_start[i]
        twist = V[tree.parent[i]]
        for k in range(d, d + tree.dofs[i]):
            twist = twist + S[k] * v[k]
        V[i + 1] = twist


@kernel
def report_links(
    R: Array[mat33], p: Array[vec3], S: Array[Motion], R_out: Array[mat33], p_out: Array[vec3], S_out: Array[Motion]
):
    """Poses and joint motions as outputs."""
    for i in range(len(R)):
        R_out[i] = R[i]
        p_out[i] = p[i]
    for d in range(len(S)):
        S_out[d] = S[d]
