"""Residual of impulses: their distance from a solution of the complementarity problem of `pgs`."""

from __future__ import annotations

from kinema.contact.complementarity.pgs import Bounds, Rows, Supports, end_of, largest_impulse
from kinema.lang import Array, Float, Int, abs, kernel, max, min, sqrt


@kernel
def residual(
    rows: Rows,
    supports: Supports,
    bounds: Bounds,
    inverse: Array[Float],
    cone: Int,
    Y: Array[Float],
    b: Array[Float],
    z: Array[Float],
    impulse: Array[Float],
    left: Array[Float],
    place: Array[Float],
):
    """The largest change of an impulse, (4) of `pgs`, that one more row update would make.

    left: The residual: that change relative to the largest impulse [-].
    place: A degree of freedom of the body or joint with the largest change.
    """
    worst, at, wide = 0.0, 0.0, supports.widest
    # Single rows.
    for i in range(rows.singles):
        here = rows.support[i]
        begin = supports.begin[here]
        w = b[i] + bounds.cfm * impulse[i]
        for t in range(supports.count[here]):
            w = w + Y[i * wide + t] * z[supports.dofs[begin + t]]
        found = max(min(impulse[i] - w * inverse[i], bounds.upper[i]), bounds.lower[i])
        change = abs(found - impulse[i])
        if change > worst:
            worst = change
            at = 1.0 * end_of(supports, here)
    # Triples: equations and contacts.
    for c in range(rows.triples[0]):
        here, r = rows.support[rows.singles + c], rows.singles + 3 * c
        begin = supports.begin[here]
        w0 = b[r] + bounds.cfm * impulse[r]
        w1 = b[r + 1] + bounds.cfm * impulse[r + 1]
        w2 = b[r + 2] + bounds.cfm * impulse[r + 2]
        for t in range(supports.count[here]):
            sum = z[supports.dofs[begin + t]]
            w0 = w0 + Y[r * wide + t] * sum
            w1 = w1 + Y[(r + 1) * wide + t] * sum
            w2 = w2 + Y[(r + 2) * wide + t] * sum
        n0 = impulse[r] - w0 * inverse[r]
        n1 = impulse[r + 1] - w1 * inverse[r + 1]
        n2 = impulse[r + 2] - w2 * inverse[r + 2]
        # Friction within mu times the current normal impulse: all rows of a contact are updated from the same state.
        if c >= rows.equations:
            n0 = max(n0, 0.0)
            bound = bounds.mu[c] * impulse[r]
            if cone == 0:
                n1 = max(min(n1, bound), -bound)
                n2 = max(min(n2, bound), -bound)
            else:
                length = sqrt(n1 * n1 + n2 * n2)
                scale = bound / length if length > bound else 1.0
                n1 = n1 * scale
                n2 = n2 * scale
        change = max(abs(n0 - impulse[r]), max(abs(n1 - impulse[r + 1]), abs(n2 - impulse[r + 2])))
        if change > worst:
            worst = change
            at = 1.0 * end_of(supports, here)
    most = largest_impulse(0, rows.singles + 3 * rows.triples[0], impulse)
    left[0] = worst / max(most, worst) if worst > 0.0 else 0.0
    place[0] = at
