"""Prescribed joints in constraint rows: their velocities enter b, but impulses do not change them."""

from __future__ import annotations

from kinema.contact.complementarity.pgs import Rows, Supports, support_of
from kinema.lang import Array, Float, Int, kernel, shared


@kernel
def hold_rows(rows: Rows, supports: Supports, number: Array[Int], J: Array[Float], J_held: Array[Float]):
    """The rows' Jacobians with zeros for prescribed degrees of freedom; b already includes their velocities.

    number: Index of each degree of freedom among the prescribed ones, or -1.
    """
    wide = supports.widest
    for r in range(rows.singles + 3 * shared(rows.triples[0])):
        here = shared(support_of(rows, r))
        for t in range(supports.count[here]):
            entry = J[r * wide + t]
            if number[supports.dofs[supports.begin[here] + t]] >= 0:
                entry = 0.0
            J_held[r * wide + t] = entry
