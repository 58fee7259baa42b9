"""What a mesh must be: corners that exist, elements that are no worse than they say."""

from __future__ import annotations

from typing import Any

import numpy as np

from kinema.errors import InputError


def checked_mesh(
    vertices: Any, elements: Any, corners: int, one: str, many: str, whole: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and elements as arrays, if they belong together.

    Args:
        vertices: Positions [m], shape (vertices, 3).
        elements: Corners of each element, shape (elements, corners).
        corners: Number of corners of an element.
        one: Name of an element.
        many: Name of the array of elements.
        whole: Whether every vertex must belong to an element.

    Raises:
        InputError: A shape is wrong, an index out of range, a vertex not finite or in no element; names the first one.
    """
    x = np.asarray(vertices, dtype=np.float64)
    t = np.asarray(elements)
    if x.ndim != 2 or x.shape[1] != 3 or len(x) == 0:
        raise InputError("vertices have the wrong shape", got=x.shape, expected="(vertices, 3)")
    if t.ndim != 2 or t.shape[1] != corners or len(t) == 0 or not np.issubdtype(t.dtype, np.integer):
        raise InputError(f"{many} must be integers", got=f"{t.dtype} {t.shape}", expected=f"({many}, {corners})")
    refuse(~np.isfinite(x).all(axis=1), "vertex {} is not finite", lambda i: x[i])
    refuse(((t < 0) | (t >= len(x))).any(axis=1), f"{one} {{}} names a vertex that does not exist", lambda e: t[e])
    unused = np.bincount(t.ravel(), minlength=len(x)) == 0
    refuse(unused & whole, f"vertex {{}} belongs to no {one}, so it has no mass", lambda i: x[i])
    return x, t


def refuse(bad: Any, message: str, got: Any, fix: str | None = None) -> None:
    """Raise InputError for the first element that is marked.

    Args:
        bad: Marks, shape (elements,).
        message: What is wrong, with {} for the number of the element.
        got: Of the number of an element, what is there.
        fix: What to change.
    """
    if bad.any():
        first = int(np.argmax(bad))
        more = f" ({int(bad.sum())} of {len(bad)} are)" if bad.sum() > 1 else ""
        raise InputError(message.format(first) + more, got=got(first), fix=fix)
