"""A block of bricks, each cut into five tetrahedra, and the surface of any tetrahedral mesh."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kinema.scene.description import Tets
from kinema.scene.mesh_sizes import cells, lengths, point

# Corner 4k + 2j + i of a cube is at (i, j, k). Two mirrored cuts into five tetrahedra of positive volume; they
# alternate, so that the face diagonals of neighbouring cubes match.
_CUT_EVEN = ((0, 1, 2, 4), (3, 2, 1, 7), (5, 4, 7, 1), (6, 4, 2, 7), (1, 2, 4, 7))
_CUT_ODD = ((1, 3, 0, 5), (2, 0, 3, 6), (4, 0, 6, 5), (7, 3, 5, 6), (0, 5, 3, 6))
# Faces of the tetrahedron (a, b, c, d), anticlockwise from outside.
_FACES = ((0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3))


def block(
    cubes: tuple[int, int, int], edge: float | Sequence[float], centre: Sequence[float] = (0.0, 0.0, 0.0)
) -> Tets:
    """A block of cubes or bricks, each cut into five tetrahedra.

    Args:
        cubes: Number of cubes along x, y and z.
        edge: Edge length of a cube [m], or the three edge lengths of a brick.
        centre: Centre of the block [m].

    Returns:
        5 * nx * ny * nz tetrahedra; vertex indices run along z first, then y, then x.

    Raises:
        InputError: A number of cubes is below 1, an edge is not positive, or the centre is not finite.
    """
    counts = cells("a block", cubes, (1, 1, 1))
    edges = lengths("a block", *np.broadcast_to(edge, 3))
    middle = point("a block", centre)
    grid = np.stack(np.meshgrid(*(np.arange(n + 1) for n in counts), indexing="ij"), axis=-1).reshape(-1, 3)
    vertices = np.asarray(edges) * (grid - np.array(counts) / 2) + middle
    number = np.arange(len(grid), dtype=np.int32).reshape([n + 1 for n in counts])
    nx, ny, nz = counts
    corners = [number[i : nx + i, j : ny + j, k : nz + k].ravel() for k in (0, 1) for j in (0, 1) for i in (0, 1)]
    odd = np.indices(counts).sum(axis=0).ravel() % 2
    cuts = np.array((_CUT_EVEN, _CUT_ODD))[odd]  # (cubes, 5, 4)
    tets = np.take_along_axis(np.stack(corners, axis=1)[:, None], cuts, axis=2)
    return Tets(vertices, np.ascontiguousarray(tets.reshape(-1, 4)))


def surface(tets: np.ndarray) -> np.ndarray:
    """Boundary triangles of a tetrahedral mesh, anticlockwise from outside.

    Args:
        tets: Vertex indices, shape (tets, 4), with positive volume.

    Returns:
        Vertex indices of the triangles, shape (triangles, 3), in the order of the tetrahedra.
    """
    faces = np.asarray(tets)[:, _FACES].reshape(-1, 3)
    _, first, count = np.unique(np.sort(faces, axis=1), axis=0, return_index=True, return_counts=True)
    return faces[np.sort(first[count == 1])]
