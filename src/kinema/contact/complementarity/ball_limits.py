"""Limits of ball joints: an upper bound on the rotation angle, about any axis.

The angle changes at the angular velocity about the rotation axis; the axis has the same components in the frames of the
link and of its parent. So the row's Jacobian is -axis, and its gap is the largest angle minus the angle. The gap enters
b as for every limit (see `constraint_rows`).
"""

from __future__ import annotations

from kinema.contact.complementarity.constraint_rows import FAST, Law, closing_speed
from kinema.contact.complementarity.pgs import Supports
from kinema.lang import Array, Float, Int, atan2, dot, func, kernel, record, sqrt, vec3
from kinema.math import Quat


@record
class BallLimits:
    """Ball joints with limits.

    dof, q: Indices of the first degree of freedom and the first coordinate of each joint.
    number: Index of the limit among all limits.
    """

    dof: Array[Int]
    q: Array[Int]
    number: Array[Int]


@func
def axis_and_angle(turn: Quat):
    """Axis and angle [rad], at most pi, of a unit quaternion; the axis of the identity is x."""
    way = 1.0 if turn.w >= 0.0 else -1.0
    length = sqrt(dot(turn.v, turn.v))
    axis, angle = vec3(1.0, 0.0, 0.0), 0.0
    if length > 0.0:
        axis = turn.v * (way / length)
        angle = 2.0 * atan2(length, way * turn.w)
    return axis, angle


@kernel
def ball_limit_rows(
    supports: Supports,
    support: Array[Int],
    limits: BallLimits,
    largest: Array[Float],
    start: Int,
    law: Law,
    q: Array[Float],
    v_free: Array[Float],
    dt: Float,
    J: Array[Float],
    b: Array[Float],
    lower: Array[Float],
    upper: Array[Float],
):
    """One row per ball joint whose angle is at most `largest` [rad]; the rows of all limits begin at row `start`."""
    for i in range(len(limits.dof)):
        r, at, d = start + limits.number[i], limits.q[i], limits.dof[i]
        axis, angle = axis_and_angle(Quat(q[at], vec3(q[at + 1], q[at + 2], q[at + 3])).normalized())
        end = supports.count[support[r]] - 3  # the joint's three are the last of the support
        to = r * supports.widest
        for t in range(end):
            J[to + t] = 0.0
        J[to + end] = -axis.x
        J[to + end + 1] = -axis.y
        J[to + end + 2] = -axis.z
        gap = largest[limits.number[i]] - angle
        b[r] = closing_speed(law, gap, dt) - dot(axis, vec3(v_free[d], v_free[d + 1], v_free[d + 2]))
        lower[r] = 0.0
        upper[r] = 1e30 if b[r] < FAST else 0.0


@kernel
def ball_limit_gaps(limits: BallLimits, largest: Array[Float], start: Int, q: Array[Float], gap: Array[Float]):
    """Gaps [rad]: largest angles minus angles; the gaps of all limits begin at row `start`."""
    for i in range(len(limits.dof)):
        at = limits.q[i]
        _, angle = axis_and_angle(Quat(q[at], vec3(q[at + 1], q[at + 2], q[at + 3])).normalized())
        gap[start + limits.number[i]] = largest[limits.number[i]] - angle
