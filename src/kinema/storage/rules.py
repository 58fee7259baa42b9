"""Rules for arrays of a model: dtype, shape, bounds."""

from __future__ import annotations

import numpy as np

from kinema.errors import ModelError


def require(fine: object, what: str) -> None:
    """Raise ModelError unless a condition holds."""
    if not fine:
        raise ModelError(f"the arrays of the model are inconsistent: {what}")


def require_indices(what: str, array: np.ndarray, shape: tuple[int, ...], below: int) -> None:
    """Require integers from 0 to below a bound."""
    require(array.dtype == np.int32 and array.shape == shape, what)
    require(((array >= 0) & (array < below)).all(), what)


def require_reals(what: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Require finite numbers; int64 is allowed, for values given as integers."""
    require(array.dtype in (np.float64, np.int64) and array.shape == shape and np.isfinite(array).all(), what)
