"""Kinematics of trees of links: poses, joint axes, velocities.

Link 0 is the world. All spatial vectors of a tree are in world axes about one point, the origin of the tree's root
link at this instant: no frames change from link to link, and nothing depends on where the tree stands.

The adjoint of `place_links` works by wrenches. A cotangent of the pose of a link, seen as what small displacements of
the link change, is a wrench: a moment about its origin and a force, in world axes. What hangs on a link moves with it,
so wrenches are summed from the leaves to the roots, and each coordinate of a joint takes its share of what hangs on it.
With a cotangent G of a rotation R the moment is the sum of c x g over their columns, as a small turn w changes c by
w x c. What the compiler makes of `place_links` multiplies cotangents of rotations from link to link, in twice the time.
"""

from __future__ import annotations

from kinema.lang import (
    Array,
    Float,
    Int,
    columns_of,
    cos,
    cross,
    dot,
    func,
    identity33,
    kernel,
    local,
    mat33,
    norm,
    normalize,
    outer,
    record,
    sin,
    skew,
    transpose,
    vec3,
)
from kinema.math import Force, Motion, Quat
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
class Factors:
    """The mass matrix M = L^T D L along the branches: entry (d, e) of L and U is number row[d] + depth[e].

    U: D L.
    L: With ones on the diagonal.
    root: D^-1/2.
    """

    branches: Branches
    U: Array[Float]
    L: Array[Float]
    root: Array[Float]


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


@record
class Poses:
    """Where the links are.

    R, p: Pose R_WL, p_WL of every link [-, m].
    S: Motion of every degree of freedom [-, m].
    """

    R: Array[mat33]
    p: Array[vec3]
    S: Array[Motion]


@func
def rotation_about(axis: vec3, angle: Float):
    """The rotation by `angle` [rad] about a unit vector: c 1 + (1 - c) a a^T + s skew(a) [Rodrigues]."""
    c, s = cos(angle), sin(angle)
    return identity33(c) + (1.0 - c) * outer(axis, axis) + s * skew(axis)


@func
def moment_of(R: mat33, R_adj: mat33):
    """Moment of the cotangent of a rotation."""
    a, b, c = columns_of(R)
    x, y, z = columns_of(R_adj)
    return cross(a, x) + cross(b, y) + cross(c, z)


@kernel
def place_links(tree: Tree, joints: Joints, q: Array[Float], poses: Poses):
    """Poses of the links and motions of the degrees of freedom.

    The velocity of a free or ball joint is that of its link in the link's own axes, angular part first.
    """
    R, p, S = poses.R, poses.p, poses.S
    R[0] = identity33(1.0)
    p[0] = vec3(0.0, 0.0, 0.0)
    for i in range(len(tree.parent)):
        up, at, d = tree.parent[i], tree.q_start[i], tree.v_start[i]
        # The joint: what it turns and shifts its link by, in its own frame J.
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
        # R_WL = R_WP R_PJ R_JL, p_WL = p_WP + R_WP p_PJ + R_WJ p_JL
        R_WJ = R[up]
        if joints.turned[i] > 0:
            R_WJ = R[up] @ joints.rotation[i]
        R_WL = R_WJ @ turn
        p_WL = p[up] + R[up] @ joints.offset[i] + R_WJ @ shift
        R[i + 1] = R_WL
        p[i + 1] = p_WL
        # Motions of its degrees of freedom, about the origin of the tree's root link.
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
    """Cotangents of the coordinates; load[i] is what turns and pushes joint i.

    The axis of a revolute or prismatic joint does not move with the joint itself, but with the link it hangs on.
    """
    R, p, S, S_adj = poses.R, poses.p, poses.S, poses_adj.S
    hung = local(Force, len(tree.parent) + 1)
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        up, root, at, d = tree.parent[i], tree.root[i], tree.q_start[i], tree.v_start[i]
        # All that hangs on this link, and the cotangents of its own pose.
        arm = p[i + 1] - p[root]
        n = hung[i + 1].n + moment_of(R[i + 1], poses_adj.R[i + 1])
        f = hung[i + 1].f + poses_adj.p[i + 1]
        # Motions S = [w; arm x w] or [0; v] turn with the link that carries their axis, and have the arm of their own.
        of_axis, of_arm = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
        if tree.kind[i] == REVOLUTE:
            w, to_v = S[d].w, S_adj[d].v
            of_arm = cross(w, to_v)
            of_axis = cross(w, S_adj[d].w + cross(to_v, arm))
            q_adj[at] += dot(w, n)
        elif tree.kind[i] == PRISMATIC:
            of_axis = cross(S[d].v, S_adj[d].v)
            q_adj[at] += dot(S[d].v, f)
        else:
            for k in range(d, d + 3):
                w, to_v = S[k].w, S_adj[k].v
                of_arm = of_arm + cross(w, to_v)
                n = n + cross(w, S_adj[k].w + cross(to_v, arm))
                if tree.kind[i] == FREE:
                    n = n + cross(w, S_adj[k + 3].v)
        if root <= i:  # the root has no arm
            f = f + of_arm
            hung[root] += Force(vec3(0.0, 0.0, 0.0), -of_arm)
        # The share of a free or ball joint's coordinates: the force, and the moment through the quaternion.
        if tree.kind[i] > PRISMATIC:
            R_WJ = R[up]
            if joints.turned[i] > 0:
                R_WJ = R[up] @ joints.rotation[i]
            turning, turn = at, transpose(R_WJ) @ n
            if tree.kind[i] == FREE:
                turning = at + 3
                push = transpose(R_WJ) @ f
                q_adj[at] += push.x
                q_adj[at + 1] += push.y
                q_adj[at + 2] += push.z
            given = Quat(q[turning], vec3(q[turning + 1], q[turning + 2], q[turning + 3]))
            size = given.dot(given)
            scale = 2.0 / size if size > 0.0 else 0.0  # (0, turn) @ q is at a right angle to q
            q_adj[turning] -= scale * dot(turn, given.v)
            along = scale * (given.w * turn + cross(turn, given.v))
            q_adj[turning + 1] += along.x
            q_adj[turning + 2] += along.y
            q_adj[turning + 3] += along.z
        # The rest is passed to the link that this one hangs on.
        load[i] = Force(n, f)
        hung[up] += Force(n + of_axis + cross(p[i + 1] - p[up], f), f)


@kernel
def joint_offsets_adjoint(tree: Tree, R: Array[mat33], load: Array[Force], offset_adj: Array[vec3]):
    """Cotangents of where joints are on their parent link."""
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
    """Cotangents of axes; a change da of a unit axis a turns what it moves by sin(q) da + (1 - cos(q)) a x da."""
    R, p, S, S_adj = poses.R, poses.p, poses.S, poses_adj.S
    for i in range(len(tree.parent)):
        angle, d = q[tree.q_start[i]], tree.v_start[i]
        of_axis = vec3(0.0, 0.0, 0.0)
        if tree.kind[i] == REVOLUTE:
            arm = p[i + 1] - p[tree.root[i]]
            turn = sin(angle) * load[i].n + (1.0 - cos(angle)) * cross(load[i].n, S[d].w)
            of_axis = turn + S_adj[d].w + cross(S_adj[d].v, arm)
        elif tree.kind[i] == PRISMATIC:
            of_axis = S_adj[d].v + angle * load[i].f
        if tree.kind[i] <= PRISMATIC:
            R_WJ = R[tree.parent[i]]
            if joints.turned[i] > 0:
                R_WJ = R[tree.parent[i]] @ joints.rotation[i]
            unit, found = normalize(joints.axis[i]), transpose(R_WJ) @ of_axis
            axis_adj[i] += (found - dot(unit, found) * unit) / norm(joints.axis[i])


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
