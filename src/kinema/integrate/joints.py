"""Joint coordinates and velocities over a time step.

The velocity of a free body is in the body's own axes, which turn. Within a step all velocities are in the axes at its
start, where the linear part changes by the acceleration of the body's origin, w x v included; at the end it is put
into the new axes. A body that nothing pushes keeps its speed to rounding.
"""

from __future__ import annotations

from kinema.kinematics.joint_types import axes_rate, has_position, has_quaternion, quaternion_at
from kinema.kinematics.tree import Tree
from kinema.lang import Array, Float, Int, kernel, static, vec3
from kinema.math import Quat, quat_exp


@kernel
def advance_velocities(tree: Tree, v: Array[Float], acceleration: Array[Float], dt: Float, v_end: Array[Float]):
    """v + dt a, in the axes at the start of the step."""
    for i in range(len(tree.parent)):
        d = tree.v_start[i]
        for k in range(d, d + tree.dofs[i]):
            v_end[k] = v[k] + dt * (acceleration[k] + axes_rate(tree.kind[i], k - d, d, v))


@kernel
def mean_accelerations(
    acceleration: Array[Float], v_free: Array[Float], v_end: Array[Float], dt: Float, mean: Array[Float]
):
    """dv/dt over a step in which impulses changed the velocities from v_free to v_end."""
    for k in range(len(mean)):
        mean[k] = acceleration[k] + (v_end[k] - v_free[k]) / dt


@kernel
def advance_coordinates(
    tree: Tree, q: Array[Float], v: Array[Float], dt: Float, q_next: Array[Float], v_next: Array[Float]
):
    """q' = q (+) dt v: turns by the exponential of the angular velocity, so that quaternions stay unit.

    v is in the axes at the start of the step, v_next in those at its end.
    """
    for i in range(len(tree.parent)):
        at, d = tree.q_start[i], tree.v_start[i]
        if not has_quaternion(tree.kind[i]):
            for k in range(tree.dofs[i]):
                q_next[at + k] = q[at + k] + dt * v[d + k]
                v_next[d + k] = v[d + k]
        else:
            turning = quaternion_at(tree.kind[i], at)
            unit = Quat(q[turning], vec3(q[turning + 1], q[turning + 2], q[turning + 3])).normalized()
            turn = quat_exp(dt * vec3(v[d], v[d + 1], v[d + 2]))
            if has_position(tree.kind[i]):
                linear = vec3(v[d + 3], v[d + 4], v[d + 5])
                p = vec3(q[at], q[at + 1], q[at + 2]) + dt * unit.rotate(linear)
                q_next[at] = p.x
                q_next[at + 1] = p.y
                q_next[at + 2] = p.z
                turned_back = turn.rotate_inverse(linear)
                v_next[d + 3] = turned_back.x
                v_next[d + 4] = turned_back.y
                v_next[d + 5] = turned_back.z
            turned = unit @ turn
            q_next[turning] = turned.w
            q_next[turning + 1] = turned.v.x
            q_next[turning + 2] = turned.v.y
            q_next[turning + 3] = turned.v.z
            v_next[d] = v[d]  # an angular velocity is the same in axes that turned about it
            v_next[d + 1] = v[d + 1]
            v_next[d + 2] = v[d + 2]


@kernel
def falling_rates(tree: Tree, number: Array[Int], gravity: vec3, q: Array[Float], rate: Array[Float]):
    """Accelerations of free bodies by gravity, in their axes; zero for all that hangs on something or is prescribed.

    number: Of each degree of freedom among those that are prescribed, or -1.
    """
    for i in range(len(tree.parent)):
        at, d = tree.q_start[i], tree.v_start[i]
        for k in range(tree.dofs[i]):
            rate[d + k] = 0.0
        if has_position(tree.kind[i]):
            if number[d] < 0:
                unit = Quat(q[at + 3], vec3(q[at + 4], q[at + 5], q[at + 6])).normalized()
                down = unit.rotate_inverse(gravity)
                rate[d + 3] = down.x
                rate[d + 4] = down.y
                rate[d + 5] = down.z


@kernel
def advance_along_line(
    tree: Tree,
    q: Array[Float],
    v: Array[Float],
    line: Array[Float],
    rate: Array[Float],
    time: Array[Float],
    whole: Array[Float],
    q_next: Array[Float],
    v_next: Array[Float],
    line_next: Array[Float],
    rate_next: Array[Float],
):
    """q' = q (+) time line, v' = v + time rate: a part of a step; without time nothing changes.

    line: Velocities that coordinates follow, those at the end of the step.
    rate: By how much v changes per second.
    whole: 1 if the step ends here: v' = line.
    Numbers that follow are in the axes there.
    """
    lasts = time[0]
    for i in range(len(tree.parent)):
        at, d = tree.q_start[i], tree.v_start[i]
        if not has_quaternion(tree.kind[i]):
            for k in range(tree.dofs[i]):
                q_next[at + k] = q[at + k] + lasts * line[d + k]
                v_next[d + k] = line[d + k] if whole[0] > 0.0 else v[d + k] + lasts * rate[d + k]
                line_next[d + k] = line[d + k]
                rate_next[d + k] = rate[d + k]
        else:
            turning = quaternion_at(tree.kind[i], at)
            unit = Quat(q[turning], vec3(q[turning + 1], q[turning + 2], q[turning + 3])).normalized()
            turn = quat_exp(lasts * vec3(line[d], line[d + 1], line[d + 2]))
            if has_position(tree.kind[i]):
                moved = lasts * unit.rotate(vec3(line[d + 3], line[d + 4], line[d + 5]))
                for k in static(3):
                    q_next[at + k] = q[at + k] + moved[k]
            turned = unit @ turn
            q_next[turning] = turned.w if lasts != 0.0 else q[turning]
            for k in static(3):
                q_next[turning + 1 + k] = turned.v[k] if lasts != 0.0 else q[turning + 1 + k]
            for part in range(tree.dofs[i] // 3):
                m = d + 3 * part
                along, change = vec3(line[m], line[m + 1], line[m + 2]), vec3(rate[m], rate[m + 1], rate[m + 2])
                now = vec3(v[m], v[m + 1], v[m + 2]) + lasts * change
                if whole[0] > 0.0:
                    now = along
                if part > 0 or whole[0] <= 0.0:  # an angular velocity is the same in axes that turned about it
                    now = turn.rotate_inverse(now)
                along = turn.rotate_inverse(along)
                change = turn.rotate_inverse(change)
                for k in static(3):
                    v_next[m + k] = now[k] if lasts != 0.0 else v[m + k]
                    line_next[m + k] = along[k]
                    rate_next[m + k] = change[k]


@kernel
def choose_line(
    again: Array[Float],
    v: Array[Float],
    line: Array[Float],
    rate: Array[Float],
    v_hit: Array[Float],
    line_hit: Array[Float],
    rate_hit: Array[Float],
    v_from: Array[Float],
    line_from: Array[Float],
    rate_from: Array[Float],
):
    """The line that is followed further where nothing was hit yet (again > 0), that after an impact otherwise."""
    for k in range(len(v)):
        v_from[k] = v[k] if again[0] > 0.0 else v_hit[k]
        line_from[k] = line[k] if again[0] > 0.0 else line_hit[k]
        rate_from[k] = rate[k] if again[0] > 0.0 else rate_hit[k]


@kernel
def copy_ends(q: Array[Float], v: Array[Float], q_next: Array[Float], v_next: Array[Float]):
    """Coordinates and velocities at the end of the step."""
    for k in range(len(q)):
        q_next[k] = q[k]
    for d in range(len(v)):
        v_next[d] = v[d]


@kernel
def accelerations_through_impacts(
    tree: Tree,
    q: Array[Float],
    v: Array[Float],
    q_end: Array[Float],
    v_end: Array[Float],
    dt: Float,
    mean: Array[Float],
):
    """Mean dv/dt over a step from its two ends, in the axes at its start, as forces and impulses give it."""
    for i in range(len(tree.parent)):
        at, d = tree.q_start[i], tree.v_start[i]
        if not has_quaternion(tree.kind[i]):
            for k in range(d, d + tree.dofs[i]):
                mean[k] = (v_end[k] - v[k]) / dt
        else:
            turning = quaternion_at(tree.kind[i], at)
            start = Quat(q[turning], vec3(q[turning + 1], q[turning + 2], q[turning + 3])).normalized()
            end = Quat(q_end[turning], vec3(q_end[turning + 1], q_end[turning + 2], q_end[turning + 3])).normalized()
            for part in range(tree.dofs[i] // 3):
                m = d + 3 * part
                there = start.rotate_inverse(end.rotate(vec3(v_end[m], v_end[m + 1], v_end[m + 2])))
                for k in static(3):
                    mean[m + k] = (there[k] - v[m + k]) / dt - axes_rate(tree.kind[i], m + k - d, d, v)
