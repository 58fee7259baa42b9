"""Constraints on what moves as it is told: it is felt by its velocity alone and answers no impulse."""

from __future__ import annotations

from kinema.contact.solving.pgs import Supports
from kinema.lang import Array, Float, Int, kernel, shared


@kernel
def hold_rows(
    supports: Supports,
    support: Array[Int],
    singles: Int,
    triples: Array[Int],
    number: Array[Int],
    J: Array[Float],
    J_held: Array[Float],
):
    """The rows' Jacobians with zeros for prescribed degrees of freedom, whose velocities are in b already.

    number: Of each degree of freedom among those that are prescribed, or -1.
    """
    wide = supports.widest
    for r in range(singles + 3 * shared(triples[0])):
        block = r
        if r >= singles:
            block = singles + (r - singles) // 3
        here = shared(support[block])
        for t in range(supports.count[here]):
            entry = J[r * wide + t]
            if number[supports.dofs[supports.begin[here] + t]] >= 0:
                entry = 0.0
            J_held[r * wide + t] = entry
