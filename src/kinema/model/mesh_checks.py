"""Checks of meshes: shapes, indices, finite vertices, and bad elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from kinema.errors import InputError


def checked_mesh(
    vertices: Any, elements: Any, corners: int, one: str, many: str, whole: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and elements as arrays, checked.

    Args:
        vertices: Positions [m], shape (vertices, 3).
        elements: Vertex indices of each element, shape (elements, corners).
        corners: Number of corners per element.
        one: Name of an element, for messages.
        many: Name of the array of elements, for messages.
        whole: Whether every vertex must belong to an element.

    Raises:
        InputError: A shape is wrong, an index is out of range, or a vertex is not finite or unused; names the first.
    """
    x = np.asarray(vertices, dtype=np.float64)
    t = np.asarray(elements)
    if x.ndim != 2 or x.shape[1] != 3 or len(x) == 0:
        raise InputError("vertices have the wrong shape", got=x.shape, expected="(vertices, 3)")
    if t.ndim != 2 or t.shape[1] != corners or len(t) == 0 or not np.issubdtype(t.dtype, np.integer):
        raise InputError(f"{many} must be integers", got=f"{t.dtype} {t.shape}", expected=f"({many}, {corners})")
    refuse(~np.isfinite(x).all(axis=1), "vertex {} is not finite", lambda i: x[i])
    refuse(((t < 0) | (t >= len(x))).any(axis=1), f"{one} {{}} has a vertex that does not exist", lambda e: t[e])
    unused = np.bincount(t.ravel(), minlength=len(x)) == 0
    refuse(unused & whole, f"vertex {{}} belongs to no {one}, so it has no mass", lambda i: x[i])
    return x, t


def refuse(bad: Any, message: str, got: Any, fix: str | None = None) -> None:
    """Raise InputError for the first bad element.

    Args:
        bad: Mask of bad elements, shape (elements,).
        message: The problem, with {} for the index of the element.
        got: Function from the index of an element to its offending value.
        fix: The fix.
    """
    if bad.any():
        first = int(np.argmax(bad))
        more = f" ({int(bad.sum())} of {len(bad)} are)" if bad.sum() > 1 else ""
        raise InputError(message.format(first) + more, got=got(first), fix=fix)
