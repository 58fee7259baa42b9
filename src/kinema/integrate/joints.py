"""Joint coordinates and velocities over a time step.

The velocity of a free body is in the body's own axes, which turn. Within a step all velocities are in the axes at its
start, where the linear part changes by the acceleration of the body's origin, w x v included; at the end it is put
into the new axes. A body that nothing pushes keeps its speed to rounding.
"""

from __future__ import annotations

from kinema.kinematics.tree import Tree, axes_rate
from kinema.lang import Array, Float, Int, kernel, vec3
from kinema.math import Quat, quat_exp
from kinema.model.tree import FREE, PRISMATIC


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
        if tree.kind[i] <= PRISMATIC:
            q_next[at] = q[at] + dt * v[d]
            v_next[d] = v[d]
        else:
            turning = at
            if tree.kind[i] == FREE:
                turning = at + 3
            unit = Quat(q[turning], vec3(q[turning + 1], q[turning + 2], q[turning + 3])).normalized()
            turn = quat_exp(dt * vec3(v[d], v[d + 1], v[d + 2]))
            if tree.kind[i] == FREE:
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
        if tree.kind[i] == FREE:
            if number[d] < 0:
                unit = Quat(q[at + 3], vec3(q[at + 4], q[at + 5], q[at + 6])).normalized()
                down = unit.rotate_inverse(gravity)
                rate[d + 3] = down.x
                rate[d + 4] = down.y
                rate[d + 5] = down.z


@kernel
def place_at_impacts(
    tree: Tree,
    q: Array[Float],
    v: Array[Float],
    v_end: Array[Float],
    past: Array[Float],
    q_there: Array[Float],
    v_there: Array[Float],
    v_end_there: Array[Float],
):
    """Coordinates q (+) past v_end, within a step, and velocities at its start and at its end in the axes there.

    past: Time since the start of the step [s], of every degree of freedom.
    """
    for i in range(len(tree.parent)):
        at, d = tree.q_start[i], tree.v_start[i]
        time = past[d]
        if tree.kind[i] <= PRISMATIC:
            q_there[at] = q[at] + time * v_end[d]
            v_there[d] = v[d]
            v_end_there[d] = v_end[d]
        else:
            turning = at
            if tree.kind[i] == FREE:
                turning = at + 3
            unit = Quat(q[turning], vec3(q[turning + 1], q[turning + 2], q[turning + 3])).normalized()
            spin = vec3(v_end[d], v_end[d + 1], v_end[d + 2])
            turn = quat_exp(time * spin)
            if tree.kind[i] == FREE:
                linear = vec3(v_end[d + 3], v_end[d + 4], v_end[d + 5])
                p = vec3(q[at], q[at + 1], q[at + 2]) + time * unit.rotate(linear)
                q_there[at] = p.x
                q_there[at + 1] = p.y
                q_there[at + 2] = p.z
                end, start = turn.rotate_inverse(linear), turn.rotate_inverse(vec3(v[d + 3], v[d + 4], v[d + 5]))
                v_end_there[d + 3] = end.x
                v_end_there[d + 4] = end.y
                v_end_there[d + 5] = end.z
                v_there[d + 3] = start.x
                v_there[d + 4] = start.y
                v_there[d + 5] = start.z
            turned = unit @ turn
            q_there[turning] = turned.w
            q_there[turning + 1] = turned.v.x
            q_there[turning + 2] = turned.v.y
            q_there[turning + 3] = turned.v.z
            start_spin = turn.rotate_inverse(vec3(v[d], v[d + 1], v[d + 2]))
            v_there[d] = start_spin.x
            v_there[d + 1] = start_spin.y
            v_there[d + 2] = start_spin.z
            v_end_there[d] = spin.x
            v_end_there[d + 1] = spin.y
            v_end_there[d + 2] = spin.z


@kernel
def turn_back(
    tree: Tree,
    v: Array[Float],
    past: Array[Float],
    change: Array[Float],
    mean_change: Array[Float],
    start: Array[Float],
    turned: Array[Float],
    turned_mean: Array[Float],
    after: Array[Float],
):
    """What impacts change of velocities, in the axes at the start of the step, and velocities with that.

    v: Without impacts, at the end.
    change, mean_change: Of the velocities, and of their means, in the axes at the time `past`, as in
        `place_at_impacts`.
    start: At the start.
    turned, turned_mean: The changes.
    after: Velocities right after the impacts, to the order of the step.
    """
    for i in range(len(tree.parent)):
        d = tree.v_start[i]
        if tree.kind[i] <= PRISMATIC:
            turned[d] = change[d]
            after[d] = start[d] + change[d]
            turned_mean[d] = mean_change[d]
        else:
            turn = quat_exp(past[d] * vec3(v[d], v[d + 1], v[d + 2]))
            for k in range(tree.dofs[i] // 3):
                m = d + 3 * k
                at_end = turn.rotate(vec3(change[m], change[m + 1], change[m + 2]))
                meanwhile = turn.rotate(vec3(mean_change[m], mean_change[m + 1], mean_change[m + 2]))
                turned[m] = at_end.x
                turned[m + 1] = at_end.y
                turned[m + 2] = at_end.z
                after[m] = start[m] + at_end.x
                after[m + 1] = start[m + 1] + at_end.y
                after[m + 2] = start[m + 2] + at_end.z
                turned_mean[m] = meanwhile.x
                turned_mean[m + 1] = meanwhile.y
                turned_mean[m + 2] = meanwhile.z


@kernel
def later_forces(
    past: Array[Float],
    dt: Float,
    change: Array[Float],
    diagonal: Array[Float],
    armature: Array[Float],
    bias: Array[Float],
    later_bias: Array[Float],
    number: Array[Int],
    push: Array[Float],
):
    """Impulses of forces that depend on velocities, for what is left of the step after impacts changed these.

    diagonal: Armature, and dt times what dampers resist with.
    number: Of each degree of freedom among those that are prescribed, or -1.
    """
    for k in range(len(push)):
        left, found = dt - past[k], 0.0
        if number[k] < 0:
            found = left * ((armature[k] - diagonal[k]) / dt * change[k] + bias[k] - later_bias[k])
        push[k] = found


@kernel
def add_impacts(
    tree: Tree,
    v: Array[Float],
    past: Array[Float],
    dt: Float,
    start: Array[Float],
    after: Array[Float],
    change: Array[Float],
    mean_change: Array[Float],
    later: Array[Float],
    v_end: Array[Float],
    mean: Array[Float],
):
    """Velocities at the end of the step, and their means: v, what impacts changed, what forces did to that later on.

    start, after: Before and after the impacts.
    """
    for i in range(len(tree.parent)):
        d = tree.v_start[i]
        for k in range(d, d + tree.dofs[i]):
            turning = axes_rate(tree.kind[i], k - d, d, after) - axes_rate(tree.kind[i], k - d, d, start)
            left = dt - past[k]
            more = later[k] + left * turning
            v_end[k] = v[k] + change[k] + more
            mean[k] = v[k] + mean_change[k] + left / dt * more


@kernel
def advance_through_impacts(
    tree: Tree,
    q: Array[Float],
    v: Array[Float],
    mean: Array[Float],
    dt: Float,
    q_next: Array[Float],
    v_next: Array[Float],
):
    """q' = q (+) dt mean, with the mean velocities of a step in which impacts changed them to v.

    Both are in the axes at the start of the step, v_next in those at its end: angular velocities are turned back, too.
    """
    for i in range(len(tree.parent)):
        at, d = tree.q_start[i], tree.v_start[i]
        if tree.kind[i] <= PRISMATIC:
            q_next[at] = q[at] + dt * mean[d]
            v_next[d] = v[d]
        else:
            turning = at
            if tree.kind[i] == FREE:
                turning = at + 3
            unit = Quat(q[turning], vec3(q[turning + 1], q[turning + 2], q[turning + 3])).normalized()
            turn = quat_exp(dt * vec3(mean[d], mean[d + 1], mean[d + 2]))
            if tree.kind[i] == FREE:
                moved = dt * unit.rotate(vec3(mean[d + 3], mean[d + 4], mean[d + 5]))
                q_next[at] = q[at] + moved.x
                q_next[at + 1] = q[at + 1] + moved.y
                q_next[at + 2] = q[at + 2] + moved.z
                linear = turn.rotate_inverse(vec3(v[d + 3], v[d + 4], v[d + 5]))
                v_next[d + 3] = linear.x
                v_next[d + 4] = linear.y
                v_next[d + 5] = linear.z
            turned = unit @ turn
            q_next[turning] = turned.w
            q_next[turning + 1] = turned.v.x
            q_next[turning + 2] = turned.v.y
            q_next[turning + 3] = turned.v.z
            angular = turn.rotate_inverse(vec3(v[d], v[d + 1], v[d + 2]))
            v_next[d] = angular.x
            v_next[d + 1] = angular.y
            v_next[d + 2] = angular.z
