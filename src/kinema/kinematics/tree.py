"""Kinematics of trees of links: poses, joint axes, velocities.

Link 0 is the world. All spatial vectors of a tree are in world axes about one point, the origin of the tree's root
link at this instant: no frames change from link to link, and nothing depends on where the tree stands.
"""

from __future__ import annotations

from kinema.kinematics.joint_types import pose_in_joint, put_motions
from kinema.lang import Array, Float, Int, func, identity33, kernel, mat33, normalize, record, vec3
from kinema.math import Motion


@record
class Tree:
    """Topology, links in depth-first order; link i + 1 belongs to joint i.

    parent: Link that joint i hangs on; 0 is the world.
    root: First link of the tree that link i + 1 belongs to.
    kind: Numbers of `scene.joint_types.MOVING`.
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
def joint_frame(joints, R, up: Int, i: Int):
    """Rotation R_WJ of the frame of joint i on link `up`."""
    R_WJ = R[up]
    if joints.turned[i] > 0:
        R_WJ = R[up] @ joints.rotation[i]
    return R_WJ


@kernel
def place_links(tree: Tree, joints: Joints, q: Array[Float], R: Array[mat33], p: Array[vec3], S: Array[Motion]):
    """Pose R_WL, p_WL [m] of every link and the motion S of every degree of freedom [-, m].

    The velocity of a free or ball joint is that of its link in the link's own axes, angular part first.
    """
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
        put_motions(tree.kind[i], axis, R_WJ, R_WL, p_WL - p[tree.root[i]], d, S)


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
