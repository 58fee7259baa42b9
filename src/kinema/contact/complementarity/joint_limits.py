"""Rows of joint limits: one per limited degree of freedom, for the nearer limit."""

from __future__ import annotations

from kinema.contact.complementarity.constraint_rows import FAST, UNBOUNDED, Law, closing_speed, one_entry
from kinema.contact.complementarity.pgs import Supports
from kinema.lang import Array, Float, Int, kernel, min, record


@record
class Limits:
    """Degrees of freedom with limits.

    dof, q: The degree of freedom and its coordinate.
    lower, upper: Limits [rad, m].
    """

    dof: Array[Int]
    q: Array[Int]
    lower: Array[Float]
    upper: Array[Float]


@kernel
def limit_rows(
    supports: Supports,
    support: Array[Int],
    limits: Limits,
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
    """One row per limited degree of freedom, for the nearer limit, from row `start` on.

    The row keeps the gap open (3), (4); its impulse pushes away from the limit.
    """
    for i in range(len(limits.dof)):
        r = start + i
        below, above = q[limits.q[i]] - limits.lower[i], limits.upper[i] - q[limits.q[i]]
        way, gap = 1.0, below
        if above < below:
            way = -1.0
            gap = above
        one_entry(supports, support[r], r, way, J)
        target = closing_speed(law, gap, dt)
        b[r] = way * v_free[limits.dof[i]] + target
        lower[r] = 0.0
        upper[r] = UNBOUNDED if b[r] < FAST else 0.0


@kernel
def limit_gaps(limits: Limits, start: Int, q: Array[Float], gap: Array[Float]):
    """Gaps of limited degrees of freedom to the nearer limit [rad, m], from row `start` on."""
    for i in range(len(limits.dof)):
        at = q[limits.q[i]]
        gap[start + i] = min(at - limits.lower[i], limits.upper[i] - at)
