"""The classical Runge-Kutta method of fourth order for joint coordinates and velocities.

A quaternion obeys dq/dt = q (0, w) / 2, an equation in four components that conserves its length. So the method
integrates the components and normalises the result: its length is off by O(dt^5), which preserves order four. All rates
depend only on the direction of a quaternion, so that scaling it between stages changes nothing.
"""

from __future__ import annotations

from kinema.kinematics.joint_types import has_position, has_quaternion, quaternion_at
from kinema.kinematics.tree import Tree
from kinema.lang import Array, Float, func, kernel, vec3
from kinema.math import Quat


@func
def quat_at(q, at):
    """Load a quaternion from four consecutive entries."""
    return Quat(q[at], vec3(q[at + 1], q[at + 2], q[at + 3]))


@func
def put_quat(out, at, value: Quat):
    """Store a quaternion in four consecutive entries."""
    out[at] = value.w
    out[at + 1] = value.v.x
    out[at + 2] = value.v.y
    out[at + 3] = value.v.z


@kernel
def coordinate_rates(tree: Tree, q: Array[Float], v: Array[Float], rate: Array[Float]):
    """dq/dt for velocities v, with quaternions scaled to unit length."""
    for i in range(len(tree.parent)):
        at, d = tree.q_start[i], tree.v_start[i]
        if not has_quaternion(tree.kind[i]):
            for k in range(tree.dofs[i]):
                rate[at + k] = v[d + k]
        else:
            turning = quaternion_at(tree.kind[i], at)
            unit = quat_at(q, turning).normalized()
            if has_position(tree.kind[i]):
                moving = unit.rotate(vec3(v[d + 3], v[d + 4], v[d + 5]))
                rate[at] = moving.x
                rate[at + 1] = moving.y
                rate[at + 2] = moving.z
            put_quat(rate, turning, unit.mul_vec(0.5 * vec3(v[d], v[d + 1], v[d + 2])))


@kernel
def advance_along(
    tree: Tree,
    q: Array[Float],
    v: Array[Float],
    rate: Array[Float],
    acceleration: Array[Float],
    share: Float,
    dt: Float,
    q_next: Array[Float],
    v_next: Array[Float],
):
    """Coordinates and velocities after a fraction of the step dt [s] along dq/dt and dv/dt, with unit quaternions."""
    h = share * dt
    for i in range(len(tree.parent)):
        at, d = tree.q_start[i], tree.v_start[i]
        if not has_quaternion(tree.kind[i]):
            for k in range(at, at + tree.dofs[i]):
                q_next[k] = q[k] + h * rate[k]
        else:
            turning = quaternion_at(tree.kind[i], at)
            if has_position(tree.kind[i]):
                for k in range(at, at + 3):
                    q_next[k] = q[k] + h * rate[k]
            moved = quat_at(q, turning).normalized() + quat_at(rate, turning) * h
            put_quat(q_next, turning, moved.normalized())
        for k in range(d, d + tree.dofs[i]):
            v_next[k] = v[k] + h * acceleration[k]


@kernel
def mean_of_stages(
    first: Array[Float], second: Array[Float], third: Array[Float], fourth: Array[Float], mean: Array[Float]
):
    """(k1 + 2 k2 + 2 k3 + k4) / 6, element by element."""
    for i in range(len(mean)):
        mean[i] = (first[i] + 2.0 * (second[i] + third[i]) + fourth[i]) / 6.0
