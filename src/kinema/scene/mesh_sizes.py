"""Checks of the dimensions and resolutions of generated meshes."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np

from kinema.errors import InputError

MOST_VERTICES = 2**31 - 1  # indices are int32


def lengths(what: str, *given: float) -> tuple[float, ...]:
    """Positive, finite numbers [m].

    Raises:
        InputError: A number is not positive or not finite.
    """
    values = tuple(float(x) for x in given)
    if not all(0 < x < math.inf for x in values):
        raise InputError(f"{what} has an invalid length", got=values, expected="positive and finite [m]")
    return values


def cells(what: str, given: Sequence[int], least: Sequence[int]) -> tuple[int, ...]:
    """Numbers of grid cells along each axis.

    Args:
        what: The shape, for messages.
        given: Integers, one per axis.
        least: The minimum per axis.

    Raises:
        InputError: The count is wrong, a number is too small or not an integer, or the grid has too many vertices.
    """
    expected = f"{len(least)} integers, at least {tuple(least)}"
    try:
        values = tuple(operator.index(n) for n in given)
    except TypeError:
        raise InputError(f"{what} has an invalid resolution", got=given, expected=expected) from None
    if len(values) != len(least) or any(n < m for n, m in zip(values, least, strict=True)):
        raise InputError(f"{what} has an invalid resolution", got=given, expected=expected)
    if math.prod(n + 1 for n in values) > MOST_VERTICES:
        raise InputError(f"{what} has too many vertices", got=given, expected=f"at most {MOST_VERTICES}")
    return values


def point(what: str, given: Sequence[float]) -> np.ndarray:
    """A finite point [m], shape (3,).

    Raises:
        InputError: The point is not finite, or has the wrong shape.
    """
    place = np.asarray(given, np.float64)
    if place.shape != (3,) or not np.isfinite(place).all():
        raise InputError(f"{what} has an invalid position", got=given, expected="3 finite numbers [m]")
    return place
