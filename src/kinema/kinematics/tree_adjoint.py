"""The adjoint of `tree.place_links`, by wrenches.

A cotangent of the pose of a link, seen as what small displacements of the link change, is a wrench: a moment about its
origin and a force, in world axes. What hangs on a link moves with it, so wrenches are summed from the leaves to the
roots, and each coordinate of a joint takes its share of what hangs on it. With a cotangent G of a rotation R the
moment is the sum of c x g over their columns, as a small turn w changes c by w x c.

What the compiler makes of `place_links` multiplies cotangents of rotations from link to link, in twice the time.
"""

from __future__ import annotations

from kinema.kinematics.joint_types import (
    has_axis,
    has_quaternion,
    motions_adjoint,
    put_coordinates_adjoint,
    unit_axis_adjoint,
)
from kinema.kinematics.tree import Joints, Tree, joint_frame
from kinema.lang import (
    Array,
    Float,
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
    transpose,
    vec3,
)
from kinema.math import Force, Motion


@func
def moment_of(R: mat33, R_adj: mat33):
    """Moment of the cotangent of a rotation."""
    a, b, c = columns_of(R)
    x, y, z = columns_of(R_adj)
    return cross(a, x) + cross(b, y) + cross(c, z)


@kernel
def place_links_adjoint(
    tree: Tree,
    joints: Joints,
    q: Array[Float],
    R: Array[mat33],
    p: Array[vec3],
    S: Array[Motion],
    R_adj: Array[mat33],
    p_adj: Array[vec3],
    S_adj: Array[Motion],
    load: Array[Force],
    q_adj: Array[Float],
):
    """Cotangents of the coordinates; load[i] is what turns and pushes joint i."""
    hung = local(Force, len(tree.parent) + 1)
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        up, root, at, d = tree.parent[i], tree.root[i], tree.q_start[i], tree.v_start[i]
        arm = p[i + 1] - p[root]
        n = hung[i + 1].n + moment_of(R[i + 1], R_adj[i + 1])
        f = hung[i + 1].f + p_adj[i + 1]
        n, of_axis, of_arm = motions_adjoint(tree.kind[i], d, S, S_adj, arm, n)
        if root <= i:  # the root has no arm
            f = f + of_arm
            hung[root] += Force(vec3(0.0, 0.0, 0.0), -of_arm)
        R_WJ = identity33(1.0)  # where it is not needed
        if has_quaternion(tree.kind[i]):
            R_WJ = joint_frame(joints, R, up, i)
        put_coordinates_adjoint(tree.kind[i], at, d, q, S, R_WJ, n, f, q_adj)
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
    R: Array[mat33],
    p: Array[vec3],
    S: Array[Motion],
    S_adj: Array[Motion],
    load: Array[Force],
    axis_adj: Array[vec3],
):
    """Cotangents of axes of any length."""
    for i in range(len(tree.parent)):
        if has_axis(tree.kind[i]):
            at, d, arm = tree.q_start[i], tree.v_start[i], p[i + 1] - p[tree.root[i]]
            of_axis = unit_axis_adjoint(tree.kind[i], at, d, q, S, S_adj, arm, load[i])
            unit, found = normalize(joints.axis[i]), transpose(joint_frame(joints, R, tree.parent[i], i)) @ of_axis
            axis_adj[i] += (found - dot(unit, found) * unit) / norm(joints.axis[i])
