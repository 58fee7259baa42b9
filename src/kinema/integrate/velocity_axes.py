"""Velocities at the end of a time step, in the axes at its start."""

from __future__ import annotations

from kinema.kinematics.joint_types import has_position
from kinema.kinematics.tree import Tree
from kinema.lang import Array, Float, kernel, vec3
from kinema.math import quat_exp


@kernel
def velocities_in_first_axes(tree: Tree, v_next: Array[Float], dt: Float, v: Array[Float]):
    """Invert the axes of `joints.advance_coordinates`: from v_next to the velocities v in the axes at the start."""
    for i in range(len(tree.parent)):
        d = tree.v_start[i]
        for k in range(tree.dofs[i]):
            if not has_position(tree.kind[i]) or k < 3:
                v[d + k] = v_next[d + k]
        if has_position(tree.kind[i]):
            turn = quat_exp(dt * vec3(v_next[d], v_next[d + 1], v_next[d + 2]))
            linear = turn.rotate(vec3(v_next[d + 3], v_next[d + 4], v_next[d + 5]))
            v[d + 3] = linear.x
            v[d + 4] = linear.y
            v[d + 5] = linear.z
