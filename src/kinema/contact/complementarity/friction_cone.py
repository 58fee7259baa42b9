"""Coulomb's law: impulses of friction within the pyramid, or the cone, of their normal impulse."""

from __future__ import annotations

from kinema.lang import func, max, min, sqrt


@func
def friction_within(cone, x1, x2, bound):
    """The nearest impulses of friction within the pyramid, |x1|, |x2| <= bound, or the cone, |(x1, x2)| <= bound.

    cone: 1 for the cone, 0 for the pyramid.
    bound: mu times the normal impulse [N s].
    """
    found1, found2 = x1, x2
    if cone == 0:
        found1, found2 = max(min(x1, bound), -bound), max(min(x2, bound), -bound)
    else:
        length = sqrt(x1 * x1 + x2 * x2)
        scale = bound / length if length > bound else 1.0
        found1, found2 = x1 * scale, x2 * scale
    return found1, found2
