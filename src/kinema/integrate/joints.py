"""Joint coordinates and velocities over a time step."""

from __future__ import annotations

from kinema.kinematics.tree import Tree
from kinema.lang import Array, Float, kernel, vec3
from kinema.math import Quat
from kinema.model.tree import FREE, PRISMATIC


@kernel
def advance_velocities(v: Array[Float], acceleration: Array[Float], dt: Float, v_next: Array[Float]):
    """v' = v + dt a."""
    for d in range(len(v)):
        v_next[d] = v[d] + dt * acceleration[d]


@kernel
def advance_coordinates(tree: Tree, q: Array[Float], v: Array[Float], dt: Float, q_next: Array[Float]):
    """q' = q (+) dt v: turns by the exponential of the link's own angular velocity, so that quaternions stay unit."""
    for i in range(len(tree.parent)):
        at, d = tree.q_start[i], tree.v_start[i]
        if tree.kind[i] <= PRISMATIC:
            q_next[at] = q[at] + dt * v[d]
        else:
            turning = at
            if tree.kind[i] == FREE:
                turning = at + 3
            unit = Quat(q[turning], vec3(q[turning + 1], q[turning + 2], q[turning + 3])).normalized()
            if tree.kind[i] == FREE:
                p = vec3(q[at], q[at + 1], q[at + 2]) + dt * unit.rotate(vec3(v[d + 3], v[d + 4], v[d + 5]))
                q_next[at] = p.x
                q_next[at + 1] = p.y
                q_next[at + 2] = p.z
            turned = unit.integrate(vec3(v[d], v[d + 1], v[d + 2]), dt)
            q_next[turning] = turned.w
            q_next[turning + 1] = turned.v.x
            q_next[turning + 2] = turned.v.y
            q_next[turning + 3] = turned.v.z
