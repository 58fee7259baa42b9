"""Rows of closed loops: the frames of two links coincide."""

from __future__ import annotations

from kinema.contact.complementarity.constraint_rows import Law, arm_of, correction_rate, motion_per_dof
from kinema.contact.complementarity.pgs import Supports
from kinema.kinematics.tree import Tree
from kinema.lang import Array, Float, Int, columns_of, cross, kernel, mat33, record, vec3
from kinema.math import Motion


@record
class Loops:
    """Loop closures: the origins of a frame on a first link and a frame on a second link coincide.

    first, second: Links; the second may be 0, the world.
    first_place, second_place: Positions of the frames in their links [m].
    first_turn, second_turn: Rotation matrices of the frames in their links [-].
    welded: 1 if the axes of the frames also coincide, which adds three equations.
    start: Index of the first triple of each loop.
    """

    first: Array[Int]
    second: Array[Int]
    first_place: Array[vec3]
    second_place: Array[vec3]
    first_turn: Array[mat33]
    second_turn: Array[mat33]
    welded: Array[Int]
    start: Array[Int]


@kernel
def loop_rows(
    tree: Tree,
    supports: Supports,
    support: Array[Int],
    loops: Loops,
    law: Law,
    singles: Int,
    R: Array[mat33],
    p: Array[vec3],
    S: Array[Motion],
    v_free: Array[Float],
    J: Array[Float],
    b: Array[Float],
):
    """Three rows per loop along the world axes, and three more for the rotation of a weld, from triple `start` on."""
    for i in range(len(loops.first)):
        one, two, wide = loops.first[i], loops.second[i], supports.widest
        block, r = support[singles + loops.start[i]], singles + 3 * loops.start[i]
        begin = supports.begin[block]
        here, there = p[one] + R[one] @ loops.first_place[i], p[two] + R[two] @ loops.second_place[i]
        arm, other = arm_of(tree, p, one, here), arm_of(tree, p, two, there)
        # J: relative linear and angular velocity of the frames; J v_free in the same pass
        moving, turning = vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0)
        for t in range(supports.count[block]):
            d = supports.dofs[begin + t]
            speed, spin = motion_per_dof(supports, block, t, d, S, arm, other)
            J[r * wide + t] = speed.x
            J[(r + 1) * wide + t] = speed.y
            J[(r + 2) * wide + t] = speed.z
            moving = moving + speed * v_free[d]
            turning = turning + spin * v_free[d]
            if loops.welded[i] > 0:
                J[(r + 3) * wide + t] = spin.x
                J[(r + 4) * wide + t] = spin.y
                J[(r + 5) * wide + t] = spin.z
        # b (1), (2) with the distance of the origins as the error
        apart = moving + (here - there) * correction_rate(law, here - there)
        b[r] = apart.x
        b[r + 1] = apart.y
        b[r + 2] = apart.z
        # and with the rotation vector between the frames, for small angles half the sum of the axes' cross products
        if loops.welded[i] > 0:
            x, y, z = columns_of(R[one] @ loops.first_turn[i])
            x_to, y_to, z_to = columns_of(R[two] @ loops.second_turn[i])
            off = 0.5 * (cross(x_to, x) + cross(y_to, y) + cross(z_to, z))
            turned = turning + off * correction_rate(law, off)
            b[r + 3] = turned.x
            b[r + 4] = turned.y
            b[r + 5] = turned.z
