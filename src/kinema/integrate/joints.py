"""Joint coordinates and velocities over a time step.

The velocity of a free rigid body is in the body's own axes, which rotate. Within a step all velocities are in the axes
at its start, where the linear part changes by the acceleration of the body's origin, including w x v; the end of the
step transforms it to the new axes. A body without forces keeps its speed up to rounding error.
"""

from __future__ import annotations

from kinema.kinematics.joint_types import axes_rate, has_position, has_quaternion, quaternion_at
from kinema.kinematics.tree import Tree
from kinema.lang import Array, Float, Int, func, kernel, record, static, vec3
from kinema.math import Quat, quat_exp


@record
class Course:
    """Motion of the joints within a step.

    v: Velocities.
    line: Velocities that the coordinates follow: those at the end of the step.
    rate: Change of v per second.
    """

    v: Array[Float]
    line: Array[Float]
    rate: Array[Float]


@func
def three_at(x, at):
    """Three consecutive entries."""
    return vec3(x[at], x[at + 1], x[at + 2])


@func
def unit_quaternion(q, at):
    """The unit quaternion of four consecutive coordinates."""
    return Quat(q[at], three_at(q, at + 1)).normalized()


@kernel
def advance_velocities(tree: Tree, v: Array[Float], acceleration: Array[Float], dt: Float, v_end: Array[Float]):
    """v + dt a, in the axes at the start of the step."""
    for i in range(len(tree.parent)):
        d = tree.v_start[i]
        for k in range(d, d + tree.dofs[i]):
            v_end[k] = v[k] + dt * (acceleration[k] + axes_rate(tree.kind[i], k - d, d, v))


@kernel
def rates_of_axes(tree: Tree, v: Array[Float], rate: Array[Float]):
    """The part of accelerations in the axes at the start of a step that is due to the rotation of these axes."""
    for i in range(len(tree.parent)):
        d = tree.v_start[i]
        for k in range(d, d + tree.dofs[i]):
            rate[k] = axes_rate(tree.kind[i], k - d, d, v)


@kernel
def advance_in_first_axes(
    v: Array[Float], acceleration: Array[Float], rate: Array[Float], dt: Float, v_end: Array[Float], mean: Array[Float]
):
    """v + dt a, and dv/dt, from accelerations in the axes at the start of the step."""
    for k in range(len(v)):
        v_end[k] = v[k] + dt * acceleration[k]
        mean[k] = acceleration[k] - rate[k]


@kernel
def mean_accelerations(
    acceleration: Array[Float], v_free: Array[Float], v_end: Array[Float], dt: Float, mean: Array[Float]
):
    """Mean dv/dt over a step in which impulses changed the velocities from v_free to v_end."""
    for k in range(len(mean)):
        mean[k] = acceleration[k] + (v_end[k] - v_free[k]) / dt


@kernel
def advance_coordinates(
    tree: Tree, q: Array[Float], v: Array[Float], dt: Float, q_next: Array[Float], v_next: Array[Float]
):
    """q' = q (+) dt v: rotates by the exponential of the angular velocity, so that quaternions stay unit.

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
            unit = unit_quaternion(q, turning)
            turn = quat_exp(dt * three_at(v, d))
            if has_position(tree.kind[i]):
                linear = three_at(v, d + 3)
                p, along = three_at(q, at) + dt * unit.rotate(linear), turn.rotate_inverse(linear)
                for k in static(3):
                    q_next[at + k] = p[k]
                    v_next[d + 3 + k] = along[k]
            turned = unit @ turn
            q_next[turning] = turned.w
            for k in static(3):
                q_next[turning + 1 + k] = turned.v[k]
                v_next[d + k] = v[d + k]  # an angular velocity is the same in axes rotated about it


@kernel
def falling_rates(tree: Tree, number: Array[Int], gravity: vec3, q: Array[Float], rate: Array[Float]):
    """Accelerations of free rigid bodies by gravity, in their axes; zero for all other and for prescribed joints.

    number: Index of each degree of freedom among the prescribed ones, or -1.
    """
    for i in range(len(tree.parent)):
        at, d = tree.q_start[i], tree.v_start[i]
        for k in range(tree.dofs[i]):
            rate[d + k] = 0.0
        if has_position(tree.kind[i]):
            if number[d] < 0:
                down = unit_quaternion(q, at + 3).rotate_inverse(gravity)
                for k in static(3):
                    rate[d + 3 + k] = down[k]


@kernel
def advance_along_line(
    tree: Tree,
    q: Array[Float],
    course: Course,
    time: Array[Float],
    whole: Array[Float],
    q_next: Array[Float],
    next: Course,
):
    """q' = q (+) time line, v' = v + time rate over a part of a step; for time 0 nothing changes.

    whole: 1 if the step ends here: v' = line.
    q_next, next: Coordinates there, and the course in the axes there.
    """
    lasts, v, line, rate = time[0], course.v, course.line, course.rate
    for i in range(len(tree.parent)):
        at, d = tree.q_start[i], tree.v_start[i]
        if not has_quaternion(tree.kind[i]):
            for k in range(tree.dofs[i]):
                q_next[at + k] = q[at + k] + lasts * line[d + k]
                next.v[d + k] = line[d + k] if whole[0] > 0.0 else v[d + k] + lasts * rate[d + k]
                next.line[d + k] = line[d + k]
                next.rate[d + k] = rate[d + k]
        else:
            # Coordinates.
            turning = quaternion_at(tree.kind[i], at)
            unit = unit_quaternion(q, turning)
            turn = quat_exp(lasts * three_at(line, d))
            if has_position(tree.kind[i]):
                moved = lasts * unit.rotate(three_at(line, d + 3))
                for k in static(3):
                    q_next[at + k] = q[at + k] + moved[k]
            turned = unit @ turn
            q_next[turning] = turned.w if lasts != 0.0 else q[turning]
            for k in static(3):
                q_next[turning + 1 + k] = turned.v[k] if lasts != 0.0 else q[turning + 1 + k]
            # Velocities, angular part first, in the rotated axes.
            for part in range(tree.dofs[i] // 3):
                m = d + 3 * part
                along, change = three_at(line, m), three_at(rate, m)
                now = three_at(v, m) + lasts * change
                if whole[0] > 0.0:
                    now = along
                if part > 0 or whole[0] <= 0.0:  # an angular velocity is the same in axes rotated about it
                    now = turn.rotate_inverse(now)
                along = turn.rotate_inverse(along)
                change = turn.rotate_inverse(change)
                for k in static(3):
                    next.v[m + k] = now[k] if lasts != 0.0 else v[m + k]
                    next.line[m + k] = along[k]
                    next.rate[m + k] = change[k]


@kernel
def choose_line(again: Array[Float], before: Course, after: Course, chosen: Course):
    """Continue the previous line where no row was hit yet (again > 0), else follow the line after the impact."""
    for k in range(len(before.v)):
        chosen.v[k] = before.v[k] if again[0] > 0.0 else after.v[k]
        chosen.line[k] = before.line[k] if again[0] > 0.0 else after.line[k]
        chosen.rate[k] = before.rate[k] if again[0] > 0.0 else after.rate[k]


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
    """Mean dv/dt over a step from its two ends, in the axes at its start, due to forces and impulses."""
    for i in range(len(tree.parent)):
        at, d = tree.q_start[i], tree.v_start[i]
        if not has_quaternion(tree.kind[i]):
            for k in range(d, d + tree.dofs[i]):
                mean[k] = (v_end[k] - v[k]) / dt
        else:
            turning = quaternion_at(tree.kind[i], at)
            start, end = unit_quaternion(q, turning), unit_quaternion(q_end, turning)
            for part in range(tree.dofs[i] // 3):
                m = d + 3 * part
                there = start.rotate_inverse(end.rotate(three_at(v_end, m)))
                for k in static(3):
                    mean[m + k] = (there[k] - v[m + k]) / dt - axes_rate(tree.kind[i], m + k - d, d, v)
