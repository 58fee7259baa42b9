"""A block of cubes, each cut into five tetrahedra, and the surface of any tetrahedral mesh."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Corner 4k + 2j + i of a cube sits at (i, j, k). Two mirrored cuts into five, all with positive volume; in
# alternation the diagonals of neighbouring cubes meet.
_CUT_EVEN = ((0, 1, 2, 4), (3, 2, 1, 7), (5, 4, 7, 1), (6, 4, 2, 7), (1, 2, 4, 7))
_CUT_ODD = ((1, 3, 0, 5), (2, 0, 3, 6), (4, 0, 6, 5), (7, 3, 5, 6), (0, 5, 3, 6))
# Faces of the tetrahedron (a, b, c, d), seen from outside anticlockwise.
_FACES = ((0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3))


def block(
    cubes: tuple[int, int, int], edge: float, centre: Sequence[float] = (0.0, 0.0, 0.0)
) -> tuple[np.ndarray, np.ndarray]:
    """Cut a block of cubes into five tetrahedra each.

    Args:
        cubes: Number of cubes along x, y and z.
        edge: Edge of a cube [m].
        centre: Middle of the block [m].

    Returns:
        Vertices [m], shape (vertices, 3), and the corners of tetrahedra with positive volume, shape (5 * cubes, 4).
    """
    if min(cubes) < 1:
        raise ValueError(f"a block has at least one cube along each axis, got {cubes}")
    counts = [n + 1 for n in cubes]
    grid = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), axis=-1).reshape(-1, 3)
    vertices = edge * (grid - np.array(cubes) / 2) + np.asarray(centre, dtype=np.float64)
    number = np.arange(len(grid)).reshape(counts)
    cuts = np.array((_CUT_EVEN, _CUT_ODD))
    tets = []
    for i, j, k in np.ndindex(*cubes):
        corners = number[i : i + 2, j : j + 2, k : k + 2].transpose(2, 1, 0).ravel()
        tets.append(corners[cuts[(i + j + k) % 2]])
    return vertices, np.concatenate(tets).astype(np.int32)


def surface(tets: np.ndarray) -> np.ndarray:
    """The triangles that belong to one tetrahedron only, anticlockwise seen from outside.

    Args:
        tets: Corners, shape (tets, 4), with positive volume.

    Returns:
        Corners of the triangles, shape (triangles, 3), in the order of the tetrahedra.
    """
    faces = np.asarray(tets)[:, _FACES].reshape(-1, 3)
    _, first, count = np.unique(np.sort(faces, axis=1), axis=0, return_index=True, return_counts=True)
    return faces[np.sort(first[count == 1])]
