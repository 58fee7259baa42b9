"""Terrain from heights on a grid."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kinema.errors import InputError
from kinema.scene.description import Mesh


def height_field(heights: ArrayLike, width: float, depth: float) -> Mesh:
    """A height field over a rectangle centred at the origin, two triangles per cell.

    Args:
        heights: [m], shape (rows, columns), at least 2 by 2; rows advance along y, columns along x.
        width: Size of the rectangle along x [m].
        depth: Size of the rectangle along y [m].

    Raises:
        InputError: The heights are not a finite array of this shape, or a length is not positive.
    """
    z = np.asarray(heights, np.float64)
    if z.ndim != 2 or min(z.shape) < 2 or not np.isfinite(z).all():
        raise InputError("heights", got=f"shape {z.shape}", expected="(rows, columns), at least (2, 2), all finite")
    if not (0 < width < np.inf and 0 < depth < np.inf):
        raise InputError("width and depth of a height field", got=f"{width}, {depth}", expected="positive [m]")
    rows, columns = z.shape
    x, y = np.meshgrid(np.linspace(-width / 2, width / 2, columns), np.linspace(-depth / 2, depth / 2, rows))
    number = np.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = number[:-1, :-1], number[:-1, 1:], number[1:, 1:], number[1:, :-1]
    faces = np.concatenate([np.stack(corners, -1).reshape(-1, 3) for corners in ((a, b, c), (a, c, d))])
    return Mesh(np.stack([x.ravel(), y.ravel(), z.ravel()], 1), faces.astype(np.int32))
