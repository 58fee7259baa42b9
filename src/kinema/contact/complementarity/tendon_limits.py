"""Rows of the limits of tendons."""

from __future__ import annotations

from kinema.contact.complementarity.constraint_rows import FAST, UNBOUNDED, Law, closing_speed
from kinema.contact.complementarity.pgs import Supports
from kinema.lang import Array, Float, Int, kernel, record


@record
class Stops:
    """Tendons with limits.

    transmission: The transmission of each.
    lower, upper: Limits of its length [m].
    begin: First entry of each transmission, and the number of all entries.
    dof: Degree of freedom of each entry.
    """

    transmission: Array[Int]
    lower: Array[Float]
    upper: Array[Float]
    begin: Array[Int]
    dof: Array[Int]


@kernel
def stop_rows(
    supports: Supports,
    support: Array[Int],
    stops: Stops,
    start: Int,
    law: Law,
    length: Array[Float],
    moment: Array[Float],
    v_free: Array[Float],
    dt: Float,
    J: Array[Float],
    b: Array[Float],
    lower: Array[Float],
    upper: Array[Float],
):
    """One row per tendon with limits, for the nearer limit, from row `start` on; as `limit_rows` for joints.

    length, moment: Lengths of all transmissions, and the derivatives of their entries.
    """
    for i in range(len(stops.transmission)):
        r, k = start + i, stops.transmission[i]
        begin = supports.begin[support[r]]
        below, above = length[k] - stops.lower[i], stops.upper[i] - length[k]
        way, gap = 1.0, below
        if above < below:
            way = -1.0
            gap = above
        speed = 0.0
        for t in range(supports.count[support[r]]):
            d = supports.dofs[begin + t]
            entry = 0.0
            for e in range(stops.begin[k], stops.begin[k + 1]):
                entry = entry + (moment[e] if stops.dof[e] == d else 0.0)
            J[r * supports.widest + t] = way * entry
            speed = speed + way * entry * v_free[d]
        b[r] = speed + closing_speed(law, gap, dt)
        lower[r] = 0.0
        upper[r] = UNBOUNDED if b[r] < FAST else 0.0
