"""The check of masses and inertias that files give: physical, repaired, or an error."""

from __future__ import annotations

import numpy as np

from kinema.errors import ModelError

FLATTEST = 1e-9  # smallest over largest principal moment, below which an inertia is singular
TRIANGLE = 1e-2  # relative tolerance of the triangle inequality: files may have only two digits
REPAIRED = 1e-3  # smallest over largest second moment after a repair
ROUND_OFF = 1e-6  # relative error of an inertia up to which it is round-off; also a repaired one's change


def physical_inertia(
    inertia: np.ndarray, where: str, *, repair: bool = False, round_off: bool = False, thin: bool = False
) -> np.ndarray:
    """Check or repair an inertia: positive definite, with no principal moment above the sum of the others.

    An inertia is physical if its second moments, the integrals of x^2 dm along its principal axes, are positive. A
    repair raises those that are too small to a fraction of the largest one, 1e-3, or 1e-6 for round-off.

    Args:
        inertia: Inertia about the centre of mass [kg m^2], shape (3, 3), symmetric and finite.
        where: Location for messages.
        repair: Whether to replace a non-physical inertia by the nearest physical one.
        round_off: Whether to repair an inertia that is singular or negative by at most 1e-6 of its largest moment.
        thin: Whether a principal moment may be zero, as for a rod without thickness.

    Returns:
        The inertia itself, or the repaired one.

    Raises:
        ModelError: The inertia is not physical.
    """
    moments, axes = np.linalg.eigh(inertia)
    a, b, c = (float(moment) for moment in moments)
    singular = a < -FLATTEST * abs(c) if thin else a <= FLATTEST * c
    if not singular and a + b >= c * (1 - TRIANGLE):
        return inertia
    second = (a + b + c) / 2 - moments
    rounded = round_off and a >= -ROUND_OFF * c and a + b >= c * (1 - TRIANGLE)
    if (repair or rounded) and second.max() > 0:
        second = np.maximum(second, (ROUND_OFF if rounded else REPAIRED) * second.max())
        return np.asarray(axes @ np.diag(second.sum() - second) @ axes.T)
    if singular:
        what = "the inertia is not positive definite"
        expected = "none below zero" if thin else f"all above {FLATTEST:g} of the largest"
    else:
        what = "the inertia violates the triangle inequality"
        expected = f"the largest at most the sum of the others, within {TRIANGLE:.0%} of it"
    got = f"principal moments {a:.6g}, {b:.6g}, {c:.6g} kg m^2"
    fix = "correct the inertia" + (", or pass repair=True to use the nearest physical one" if second.max() > 0 else "")
    raise ModelError(what, where=where, got=got, expected=expected, fix=fix)
