"""Sheets of triangles, flat or rolled: cloth and shells."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kinema.errors import InputError
from kinema.scene.description import Mesh
from kinema.scene.mesh_sizes import cells, lengths, point

WHOLE = 1e-12  # relative tolerance within which an angle is a full turn


def sheet(width: float, depth: float, squares: Sequence[int], centre: Sequence[float] = (0.0, 0.0, 0.0)) -> Mesh:
    """A rectangle in the xy plane, facing +z; the diagonals of neighbouring cells alternate.

    Args:
        width: Size along x [m].
        depth: Size along y [m].
        squares: Number of cells along x and y.
        centre: Centre of the rectangle [m].

    Returns:
        2 * nx * ny triangles; vertex indices run along y first, then x.

    Raises:
        InputError: A length is not positive, a number of cells is below 1, or the centre is not finite.
    """
    nx, ny = cells("a sheet", squares, (1, 1))
    wide, deep = lengths("a sheet", width, depth)
    middle = point("a sheet", centre)
    x, y = np.meshgrid(
        np.linspace(-wide / 2, wide / 2, nx + 1), np.linspace(-deep / 2, deep / 2, ny + 1), indexing="ij"
    )
    vertices = np.stack([x.ravel(), y.ravel(), np.zeros(x.size)], axis=1) + middle
    return Mesh(vertices, grid_triangles(np.arange(x.size).reshape(x.shape)))


def rolled_sheet(radius: float, length: float, squares: Sequence[int], angle: float = 2 * math.pi) -> Mesh:
    """A cylindrical shell about y, facing outwards, closed or an arc.

    All vertices lie on the cylinder. Unrolled, it is a rectangle, up to the difference between arcs and chords.

    Args:
        radius: [m]
        length: Size along y [m]; y = 0 is in the middle.
        squares: Number of cells around (at least 3 for a full turn) and along y.
        angle: Angle of the arc [rad], centred at +z; 2 pi joins the ends.

    Returns:
        2 * around * along triangles; vertex indices run along y first, then around.

    Raises:
        InputError: A length is not positive, a number of cells is too small, or the angle is not in (0, 2 pi].
    """
    if not 0 < angle <= 2 * math.pi * (1 + WHOLE):
        raise InputError("invalid angle of a rolled sheet", got=angle, expected="above 0, at most 2 pi [rad]")
    closed = angle >= 2 * math.pi * (1 - WHOLE)
    around, along = cells("a rolled sheet", squares, (3 if closed else 1, 1))
    r, long = lengths("a rolled sheet", radius, length)
    turn, y = np.meshgrid(
        np.linspace(-angle / 2, angle / 2, around + 1)[: around if closed else None],
        np.linspace(-long / 2, long / 2, along + 1),
        indexing="ij",
    )
    vertices = np.stack([r * np.sin(turn).ravel(), y.ravel(), r * np.cos(turn).ravel()], axis=1)
    number = np.arange(turn.size).reshape(turn.shape)
    return Mesh(vertices, grid_triangles(np.vstack([number, number[:1]]) if closed else number))


def grid_triangles(number: np.ndarray, filled: np.ndarray | None = None) -> np.ndarray:
    """Triangles of a grid, two per cell, with alternating diagonals.

    Args:
        number: Vertex indices, shape (nx + 1, ny + 1).
        filled: Mask of the cells to triangulate, shape (nx, ny); all if None.

    Returns:
        Shape (2 * cells, 3), int32, anticlockwise if the first axis is x and the second y.
    """
    a, b, c, d = (part.ravel() for part in (number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]))
    even = np.stack([a, b, c, a, c, d], axis=1)
    odd = np.stack([a, b, d, b, c, d], axis=1)
    alternate = np.indices((number.shape[0] - 1, number.shape[1] - 1)).sum(axis=0).ravel() % 2 == 1
    faces = np.where(alternate[:, None], odd, even)
    return np.ascontiguousarray((faces if filled is None else faces[filled.ravel()]).reshape(-1, 3), dtype=np.int32)
