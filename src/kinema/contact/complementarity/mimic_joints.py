"""Rows of mimic joints: equations between two coordinates."""

from __future__ import annotations

from kinema.contact.complementarity.constraint_rows import UNBOUNDED, Law
from kinema.contact.complementarity.pgs import Supports
from kinema.lang import Array, Float, Int, func, kernel, max, min, record, vec3


@record
class Followers:
    """Mimic joints: q = offset + multiplier * x + higher . (x^2, x^3, x^4), with x = q_leader.

    dof, leader: Degrees of freedom of the mimic joint and of its leader.
    q, leader_q: Coordinates of the mimic joint and of its leader.
    multiplier, offset: Multiplier [-] and offset [rad, m].
    higher: Further coefficients of the polynomial.
    """

    dof: Array[Int]
    leader: Array[Int]
    q: Array[Int]
    leader_q: Array[Int]
    multiplier: Array[Float]
    offset: Array[Float]
    higher: Array[vec3]


@func
def followed(followers, i, q):
    """The coordinate that mimic joint i should have, and its derivative by that of its leader."""
    x, more, k = q[followers.leader_q[i]], followers.higher[i], followers.multiplier[i]
    slope = k + x * (2.0 * more.x + x * (3.0 * more.y + x * (4.0 * more.z)))
    return followers.offset[i] + x * (k + x * (more.x + x * (more.y + x * more.z))), slope


@kernel
def follower_rows(
    supports: Supports,
    support: Array[Int],
    followers: Followers,
    start: Int,
    law: Law,
    q: Array[Float],
    v_free: Array[Float],
    J: Array[Float],
    b: Array[Float],
    lower: Array[Float],
    upper: Array[Float],
):
    """A row per mimic joint, from row `start` on: the equation that it has the coordinate of `followed`."""
    for i in range(len(followers.dof)):
        r = start + i
        begin = supports.begin[support[r]]
        wanted, k = followed(followers, i, q)
        # J: 1 for the mimic joint, minus the slope for its leader
        for t in range(supports.count[support[r]]):
            d = supports.dofs[begin + t]
            entry = 0.0
            if d == followers.dof[i]:
                entry = 1.0
            elif d == followers.leader[i]:
                entry = -k
            J[r * supports.widest + t] = entry
        # b (1) with the target velocity of an equation (2)
        error = q[followers.q[i]] - wanted
        speed = max(min(law.erp * error / law.step, law.max_correction_speed), -law.max_correction_speed)
        b[r] = v_free[followers.dof[i]] - k * v_free[followers.leader[i]] + speed
        lower[r] = -UNBOUNDED
        upper[r] = UNBOUNDED
