"""Warm start of projected Gauss-Seidel (PGS): the impulses of the last step are the initial guess of this step."""

from __future__ import annotations

from kinema.contact.complementarity.pgs import Rows
from kinema.lang import Array, Float, Int, kernel


@kernel
def recall_impulses(
    rows: Rows,
    surface: Array[Int],
    active: Array[Float],
    fixed: Array[Float],
    contacts: Array[Float],
    start: Array[Float],
):
    """Assign the impulses of the last step to the rows of this step; inactive contacts start from zero.

    surface: The candidate of each contact.
    active: Per equation and contact, 0 if it is inactive.
    fixed: Impulses of the rows before the contacts [N s].
    contacts: Impulses of all candidates, three each [N s].
    """
    first = rows.singles + 3 * rows.equations
    for r in range(first):
        start[r] = fixed[r]
    for c in range(rows.triples[0] - rows.equations):
        for k in range(3):
            kept = 0.0
            if active[rows.equations + c] > 0.0:
                kept = contacts[3 * surface[c] + k]
            start[first + 3 * c + k] = kept
