"""Rows of dry friction in joints."""

from __future__ import annotations

from kinema.contact.complementarity.constraint_rows import one_entry
from kinema.contact.complementarity.pgs import Supports
from kinema.lang import Array, Float, Int, kernel


@kernel
def dry_friction_rows(
    supports: Supports,
    support: Array[Int],
    dof: Array[Int],
    friction: Array[Float],
    start: Int,
    v_free: Array[Float],
    dt: Float,
    J: Array[Float],
    b: Array[Float],
    lower: Array[Float],
    upper: Array[Float],
):
    """One row per degree of freedom with dry friction [N m, N], from row `start` on, with target velocity zero (5)."""
    for i in range(len(dof)):
        r = start + i
        one_entry(supports, support[r], r, 1.0, J)
        b[r] = v_free[dof[i]]
        lower[r] = -friction[i] * dt
        upper[r] = friction[i] * dt
