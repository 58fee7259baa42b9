"""The adjoint of `tree.place_links`, by wrenches.

A cotangent of the pose of a link, seen as what small displacements of the link change, is a wrench: a moment about its
origin and a force, in world axes. What hangs on a link moves with it, so wrenches are summed from the leaves to the
roots, and each coordinate of a joint takes its share of what hangs on it. With a cotangent G of a rotation R the
moment is the sum of c x g over their columns, as a small turn w changes c by w x c.

What the compiler makes of `place_links` multiplies cotangents of rotations from link to link, in twice the time.
"""

from __future__ import annotations

from kinema.kinematics.tree import Joints, Tree
from kinema.lang import (
    Array,
    Float,
    columns_of,
    cos,
    cross,
    dot,
    func,
    kernel,
    local,
    mat33,
    norm,
    normalize,
    sin,
    transpose,
    vec3,
)
from kinema.math import Force, Motion, Quat
from kinema.model.tree import FREE, PRISMATIC, REVOLUTE


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
    """Cotangents of the coordinates; load[i] is what turns and pushes joint i.

    The axis of a revolute or prismatic joint does not move with the joint itself, but with the link it hangs on.
    """
    hung = local(Force, len(tree.parent) + 1)
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        up, root, at, d = tree.parent[i], tree.root[i], tree.q_start[i], tree.v_start[i]
        arm = p[i + 1] - p[root]
        n = hung[i + 1].n + moment_of(R[i + 1], R_adj[i + 1])
        f = hung[i + 1].f + p_adj[i + 1]
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
    """Cotangents of axes; a change da of a unit axis a turns what it moves by sin(q) da + (1 - cos(q)) a x da."""
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
