"""Formulas of each joint type, as functions of kernels: pose, motions, velocities, and their adjoints.

`scene/joint_types.py` has one row per type. A new type adds its row there and its formulas here: `pose_in_joint`,
`put_motions` and `own_motion`, and the adjoint below each of them. Steps, Jacobians and storage call the predicates at
the top and loop over coordinates and velocities; they do not depend on types.

Two properties hold for all types. The rate of each coordinate is the corresponding velocity, except for the position
and the quaternion of a joint that has them: these move with the velocities of the link in its own axes, angular part
first. And the motions S of a joint have constant components in the axes of its link, so that the rate of S v is
V x (S v).
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
    mat33,
    outer,
    sin,
    skew,
    transpose,
    vec3,
)
from kinema.math import Force, Motion, Quat
from kinema.scene import description
from kinema.scene.joint_types import NUMBERS

REVOLUTE, PRISMATIC = NUMBERS[description.REVOLUTE], NUMBERS[description.PRISMATIC]
BALL, FREE = NUMBERS[description.BALL], NUMBERS[description.FREE]


@func
def has_axis(kind: Int):
    """Whether a joint has an axis."""
    return kind == REVOLUTE or kind == PRISMATIC  # noqa: SIM109 - kernels have no `in`


@func
def has_position(kind: Int):
    """Whether the coordinates of a joint begin with the position of its link."""
    return kind == FREE


@func
def has_quaternion(kind: Int):
    """Whether a joint has a quaternion, which moves with its first three velocities."""
    return kind == BALL or kind == FREE  # noqa: SIM109


@func
def quaternion_at(kind: Int, at: Int):
    """Index of the first component of a joint's quaternion; the joint's coordinates begin at `at`."""
    return at + 3 if has_position(kind) else at


@func
def rotation_about(axis: vec3, angle: Float):
    """The rotation by `angle` [rad] about a unit vector: c 1 + (1 - c) a a^T + s skew(a) [Rodrigues]."""
    c, s = cos(angle), sin(angle)
    return identity33(c) + (1.0 - c) * outer(axis, axis) + s * skew(axis)


# -- poses -----------------------------------------------------------------------------------------------------------


@func
def pose_in_joint(kind: Int, axis: vec3, q, at: Int):
    """Rotation and position [m] of the link in the joint's frame; coordinates begin at `at`."""
    turn = identity33(1.0)
    shift = vec3(0.0, 0.0, 0.0)
    if kind == REVOLUTE:
        turn = rotation_about(axis, q[at])
    elif kind == PRISMATIC:
        shift = q[at] * axis
    elif kind == BALL:
        turn = Quat(q[at], vec3(q[at + 1], q[at + 2], q[at + 3])).normalized().matrix()
    else:
        shift = vec3(q[at], q[at + 1], q[at + 2])
        turn = Quat(q[at + 3], vec3(q[at + 4], q[at + 5], q[at + 6])).normalized().matrix()
    return turn, shift


@func
def put_coordinates_adjoint(kind: Int, at: Int, d: Int, q, S, R_WJ: mat33, n: vec3, f: vec3, q_adj):
    """Cotangents of the coordinates, from the moment n about the link's origin and the force f, in world axes."""
    if kind == REVOLUTE:
        q_adj[at] += dot(S[d].w, n)
    elif kind == PRISMATIC:
        q_adj[at] += dot(S[d].v, f)
    else:
        turning, turn = quaternion_at(kind, at), transpose(R_WJ) @ n
        if has_position(kind):
            push = transpose(R_WJ) @ f
            q_adj[at] += push.x
            q_adj[at + 1] += push.y
            q_adj[at + 2] += push.z
        given = Quat(q[turning], vec3(q[turning + 1], q[turning + 2], q[turning + 3]))
        size = given.dot(given)
        scale = 2.0 / size if size > 0.0 else 0.0  # (0, turn) @ q is orthogonal to q
        q_adj[turning] -= scale * dot(turn, given.v)
        along = scale * (given.w * turn + cross(turn, given.v))
        q_adj[turning + 1] += along.x
        q_adj[turning + 2] += along.y
        q_adj[turning + 3] += along.z


# -- motions ---------------------------------------------------------------------------------------------------------


@func
def put_motions(kind: Int, axis: vec3, R_WJ: mat33, R_WL: mat33, arm: vec3, d: Int, S):
    """Store the motions S of the joint's velocities, from d on; the link's origin is at `arm` from their origin."""
    if kind == REVOLUTE:
        w = R_WJ @ axis
        S[d] = Motion(w, cross(arm, w))
    elif kind == PRISMATIC:
        S[d] = Motion(vec3(0.0, 0.0, 0.0), R_WJ @ axis)
    else:
        a, b, c = columns_of(R_WL)
        S[d] = Motion(a, cross(arm, a))
        S[d + 1] = Motion(b, cross(arm, b))
        S[d + 2] = Motion(c, cross(arm, c))
        if has_position(kind):
            S[d + 3] = Motion(vec3(0.0, 0.0, 0.0), a)
            S[d + 4] = Motion(vec3(0.0, 0.0, 0.0), b)
            S[d + 5] = Motion(vec3(0.0, 0.0, 0.0), c)


@func
def motions_adjoint(kind: Int, d: Int, S, S_adj, arm: vec3, n: vec3):
    """Convert cotangents of motions: the moment n on the link plus theirs, a moment on the axis, a force on the arm.

    The axis of a joint does not move with the joint's own link, but with the parent link; motions that are columns of
    the link's rotation rotate with the link.
    """
    of_axis, of_arm = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
    if kind == REVOLUTE:
        w, to_v = S[d].w, S_adj[d].v
        of_arm = cross(w, to_v)
        of_axis = cross(w, S_adj[d].w + cross(to_v, arm))
    elif kind == PRISMATIC:
        of_axis = cross(S[d].v, S_adj[d].v)
    else:
        for k in range(d, d + 3):
            w, to_v = S[k].w, S_adj[k].v
            of_arm = of_arm + cross(w, to_v)
            n = n + cross(w, S_adj[k].w + cross(to_v, arm))
            if has_position(kind):
                n = n + cross(w, S_adj[k + 3].v)
    return n, of_axis, of_arm


@func
def unit_axis_adjoint(kind: Int, at: Int, d: Int, q, S, S_adj, arm: vec3, load: Force):
    """Cotangent of a unit axis in world axes, from the cotangents of its motions and from the load on its joint.

    A change da of a unit axis a rotates the link by sin(q) da + (1 - cos(q)) a x da.
    """
    of_axis = vec3(0.0, 0.0, 0.0)
    if kind == REVOLUTE:
        turn = sin(q[at]) * load.n + (1.0 - cos(q[at])) * cross(load.n, S[d].w)
        of_axis = turn + S_adj[d].w + cross(S_adj[d].v, arm)
    elif kind == PRISMATIC:
        of_axis = S_adj[d].v + q[at] * load.f
    return of_axis


@func
def own_motion(kind: Int, number: Int, S: Motion):
    """The motion of velocity `number` of a joint about the link's origin, which rotations of the joint do not move."""
    return Motion(S.w, S.v if slides(kind, number) else vec3(0.0, 0.0, 0.0))


@func
def own_motion_adjoint(kind: Int, number: Int, back: Motion):
    """Cotangent of S in `own_motion`."""
    return Motion(back.w, back.v if slides(kind, number) else vec3(0.0, 0.0, 0.0))


@func
def slides(kind: Int, number: Int):
    """Whether velocity `number` of a joint is linear."""
    return kind == PRISMATIC or (kind == FREE and number >= 3)


@func
def axes_rate(kind: Int, number: Int, d: Int, v: Array[Float]):
    """Component of w x v of a free body for velocity `number`: the acceleration due to the rotation of its own axes."""
    extra = 0.0
    if has_position(kind) and number >= 3:
        turning = cross(vec3(v[d], v[d + 1], v[d + 2]), vec3(v[d + 3], v[d + 4], v[d + 5]))
        extra = turning.x
        if number == 4:
            extra = turning.y
        elif number == 5:
            extra = turning.z
    return extra
