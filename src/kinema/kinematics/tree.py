"""Kinematics of trees of links: poses, joint axes, velocities.

Link 0 is the world. All spatial vectors of a tree are in world axes about one point, the origin of the tree's root
link at this instant: no frames change from link to link, and results do not depend on the position of the tree.

The adjoint of `place_links` propagates wrenches. A cotangent of the pose of a link, expressed for small displacements
of the link, is a wrench: a moment about its origin and a force, in world axes. The subtree of a link moves with it, so
the adjoint sums wrenches from the leaves to the roots, and each coordinate of a joint takes its component of the
subtree's wrench. For a cotangent G of a rotation R the moment is the sum of c x g over their columns, because a small
rotation w changes c by w x c. The generated adjoint multiplies cotangents of rotations from link to link, and takes
twice the time.
"""

from __future__ import annotations

from kinema.kinematics.joint_types import (
    has_axis,
    has_quaternion,
    motions_adjoint,
    pose_in_joint,
    put_coordinates_adjoint,
    put_motions,
    unit_axis_adjoint,
)
from kinema.lang import (
    Array,
    Float,
    Int,
    columns_of,
    cross,
    dot,
    func,
    identity33,
    kernel,
    local,
    mat33,
    norm,
    normalize,
    record,
    transpose,
    vec3,
)
from kinema.math import Force, Motion


@record
class Tree:
    """Topology, links in depth-first order; link i + 1 belongs to joint i.

    parent: Parent link of joint i; 0 is the world.
    root: First link of the tree that link i + 1 belongs to.
    kind: Joint types, as numbered by `scene.joint_types.MOVING`.
    q_start, v_start: Index of the joint's first coordinate and first velocity.
    dofs: Number of velocities of the joint.
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

    row: Offset of the row of each degree of freedom.
    depth: Number of degrees of freedom above it.
    last: Last degree of freedom below it (or itself): depth-first order makes subtrees ranges.
    above: All rows, concatenated: the degrees of freedom from the root to the row's own.
    """

    row: Array[Int]
    depth: Array[Int]
    last: Array[Int]
    above: Array[Int]


@record
class Joints:
    """Geometry of the joints.

    offset: Position of the joint in its parent link's frame [m].
    rotation: Rotation matrix of the joint's frame in the parent's frame [-].
    turned: 1 if `rotation` is not the identity; products with the identity are skipped.
    axis: Direction in the joint's frame, of any non-zero length.
    """

    offset: Array[vec3]
    rotation: Array[mat33]
    turned: Array[Int]
    axis: Array[vec3]


@record
class Poses:
    """Poses of the links and motions of the degrees of freedom.

    R, p: Pose R_WL, p_WL of every link [-, m].
    S: Motion of every degree of freedom [-, m].
    """

    R: Array[mat33]
    p: Array[vec3]
    S: Array[Motion]


@func
def joint_frame(joints, R, up: Int, i: Int):
    """Rotation R_WJ of the frame of joint i on link `up`."""
    R_WJ = R[up]
    if joints.turned[i] > 0:
        R_WJ = R[up] @ joints.rotation[i]
    return R_WJ


@func
def moment_of(R: mat33, R_adj: mat33):
    """Moment that corresponds to the cotangent of a rotation."""
    a, b, c = columns_of(R)
    x, y, z = columns_of(R_adj)
    return cross(a, x) + cross(b, y) + cross(c, z)


@kernel
def place_links(tree: Tree, joints: Joints, q: Array[Float], poses: Poses):
    """Compute the poses of the links and the motions of the degrees of freedom.

    The velocity of a free or ball joint is the link's velocity in the link's own axes, angular part first.
    """
    R, p, S = poses.R, poses.p, poses.S
    R[0] = identity33(1.0)
    p[0] = vec3(0.0, 0.0, 0.0)
    for i in range(len(tree.parent)):
        up, at, d = tree.parent[i], tree.q_start[i], tree.v_start[i]
        axis = normalize(joints.axis[i])
        turn, shift = pose_in_joint(tree.kind[i], axis, q, at)
        R_WJ = joint_frame(joints, R, up, i)
        R_WL = R_WJ @ turn
        p_WL = p[up] + R[up] @ joints.offset[i] + R_WJ @ shift
        R[i + 1] = R_WL
        p[i + 1] = p_WL
        # Motions of the joint's degrees of freedom, about the origin of the tree's root link.
        put_motions(tree.kind[i], axis, R_WJ, R_WL, p_WL - p[tree.root[i]], d, S)


@kernel
def place_links_adjoint(
    tree: Tree,
    joints: Joints,
    q: Array[Float],
    poses: Poses,
    poses_adj: Poses.adj,
    load: Array[Force],
    q_adj: Array[Float],
):
    """Cotangents of the coordinates; load[i] is the wrench on joint i."""
    R, p, S, S_adj = poses.R, poses.p, poses.S, poses_adj.S
    hung = local(Force, len(tree.parent) + 1)
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        up, root, at, d = tree.parent[i], tree.root[i], tree.q_start[i], tree.v_start[i]
        # The wrench of the link's subtree, and the cotangents of its own pose and motions.
        arm = p[i + 1] - p[root]
        n = hung[i + 1].n + moment_of(R[i + 1], poses_adj.R[i + 1])
        f = hung[i + 1].f + poses_adj.p[i + 1]
        n, of_axis, of_arm = motions_adjoint(tree.kind[i], d, S, S_adj, arm, n)
        if root <= i:  # the root has no arm
            f = f + of_arm
            hung[root] += Force(vec3(0.0, 0.0, 0.0), -of_arm)
        # The components of the joint's coordinates.
        R_WJ = identity33(1.0)  # unused without a quaternion
        if has_quaternion(tree.kind[i]):
            R_WJ = joint_frame(joints, R, up, i)
        put_coordinates_adjoint(tree.kind[i], at, d, q, S, R_WJ, n, f, q_adj)
        # The wrench on the parent link.
        load[i] = Force(n, f)
        hung[up] += Force(n + of_axis + cross(p[i + 1] - p[up], f), f)


@kernel
def joint_offsets_adjoint(tree: Tree, R: Array[mat33], load: Array[Force], offset_adj: Array[vec3]):
    """Cotangents of the joints' positions on their parent links."""
    for i in range(len(tree.parent)):
        offset_adj[i] += transpose(R[tree.parent[i]]) @ load[i].f


@kernel
def joint_axes_adjoint(
    tree: Tree,
    joints: Joints,
    q: Array[Float],
    poses: Poses,
    poses_adj: Poses.adj,
    load: Array[Force],
    axis_adj: Array[vec3],
):
    """Cotangents of the joints' axes, which need not be unit vectors."""
    R, p, S, S_adj = poses.R, poses.p, poses.S, poses_adj.S
    for i in range(len(tree.parent)):
        if has_axis(tree.kind[i]):
            at, d, arm = tree.q_start[i], tree.v_start[i], p[i + 1] - p[tree.root[i]]
            of_axis = unit_axis_adjoint(tree.kind[i], at, d, q, S, S_adj, arm, load[i])
            unit, found = normalize(joints.axis[i]), transpose(joint_frame(joints, R, tree.parent[i], i)) @ of_axis
            axis_adj[i] += (found - dot(unit, found) * unit) / norm(joints.axis[i])


@kernel
def link_velocities(tree: Tree, S: Array[Motion], v: Array[Float], V: Array[Motion]):
    """Velocity of every link: the sum of its parent's and its joint's velocity."""
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
    """Copy poses and joint motions to outputs."""
    for i in range(len(R)):
        R_out[i] = R[i]
        p_out[i] = p[i]
    for d in range(len(S)):
        S_out[d] = S[d]
