"""Checks of the numbers that meshes are made from."""

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
        InputError: One is not.
    """
    values = tuple(float(x) for x in given)
    if not all(0 < x < math.inf for x in values):
        raise InputError(f"{what} has a length that it cannot have", got=values, expected="positive and finite [m]")
    return values


def cells(what: str, given: Sequence[int], least: Sequence[int]) -> tuple[int, ...]:
    """Numbers of cells along the axes of a grid.

    Args:
        what: The shape, for messages.
        given: Whole numbers.
        least: The smallest that are allowed, as many.

    Raises:
        InputError: There are more or fewer, one is too small or not whole, or together they are too many.
    """
    expected = f"{len(least)} whole numbers, at least {tuple(least)}"
    try:
        values = tuple(operator.index(n) for n in given)
    except TypeError:
        raise InputError(f"{what} cannot be cut like this", got=given, expected=expected) from None
    if len(values) != len(least) or any(n < m for n, m in zip(values, least, strict=True)):
        raise InputError(f"{what} cannot be cut like this", got=given, expected=expected)
    if math.prod(n + 1 for n in values) > MOST_VERTICES:
        raise InputError(f"{what} has too many vertices", got=given, expected=f"at most {MOST_VERTICES}")
    return values


def point(what: str, given: Sequence[float]) -> np.ndarray:
    """A finite point [m], shape (3,).

    Raises:
        InputError: It is not.
    """
    place = np.asarray(given, np.float64)
    if place.shape != (3,) or not np.isfinite(place).all():
        raise InputError(f"{what} cannot be there", got=given, expected="3 finite numbers [m]")
    return place
