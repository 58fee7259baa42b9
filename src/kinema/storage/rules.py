"""What arrays of a model must be: of a type and a shape, within bounds."""

from __future__ import annotations

import numpy as np

from kinema.errors import ModelError


def require(fine: object, what: str) -> None:
    """Raise ModelError unless something holds."""
    if not fine:
        raise ModelError(f"the arrays of the model do not fit together: {what}")


def require_indices(what: str, array: np.ndarray, shape: tuple[int, ...], below: int) -> None:
    """Whole numbers from 0 on, below a bound."""
    require(array.dtype == np.int32 and array.shape == shape, what)
    require(((array >= 0) & (array < below)).all(), what)


def require_reals(what: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Finite numbers; whole ones where the user gave no others."""
    require(array.dtype in (np.float64, np.int64) and array.shape == shape and np.isfinite(array).all(), what)
