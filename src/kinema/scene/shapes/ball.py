"""A ball of tetrahedra in concentric layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np

from kinema.scene.description import Tets
from kinema.scene.mesh_sizes import cells, lengths, point


def ball(radius: float, layers: int, centre: Sequence[float] = (0.0, 0.0, 0.0)) -> Tets:
    """A ball cut into 20 pyramids over the faces of an icosahedron, and each pyramid into layers^3 tetrahedra.

    The pyramids are nearly regular tetrahedra, so all elements are well shaped for any number of layers. Vertices lie
    on concentric spheres: one at the centre, 12 around it, ... and 10 layers^2 + 2 on the surface.

    Args:
        radius: [m]
        layers: Number of layers from the centre to the surface.
        centre: [m]

    Returns:
        20 layers^3 tetrahedra with 20 layers^2 surface triangles. The relative error of their volume is
        0.55 / layers^2.

    Raises:
        InputError: The radius is not positive, the number of layers is below 1, or the centre is not finite.
    """
    (n,) = cells("a ball", (layers,), (1,))
    (size,) = lengths("a ball", radius)
    middle = point("a ball", centre)
    directions, pyramids = _icosahedron()
    steps, cut = _cut_tetrahedron(n)
    # A vertex is a sum of n pyramid corners, the centre included: their multiplicities identify it in all pyramids
    # that share it.
    names = np.zeros((len(pyramids), len(steps), len(directions)), np.int32)
    names[np.arange(len(pyramids))[:, None, None], np.arange(len(steps))[:, None], pyramids[:, None]] = steps[:, 1:]
    # Sorted so that the innermost layer comes first.
    layer = np.broadcast_to(n - steps[:, 0], names.shape[:2])[..., None]
    kept, index = np.unique(np.concatenate([layer, names], axis=2).reshape(-1, 13), axis=0, return_inverse=True)
    towards = kept[:, 1:] @ directions
    towards[1:] /= np.linalg.norm(towards[1:], axis=1, keepdims=True)
    vertices = middle + size / n * kept[:, :1] * towards
    corners = index.reshape(len(pyramids), -1)[:, cut].reshape(-1, 4)
    return Tets(vertices, corners.astype(np.int32))


def _icosahedron() -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors to its vertices, shape (12, 3), and its faces, shape (20, 3), anticlockwise from outside."""
    golden = (1 + math.sqrt(5)) / 2
    flat = np.array([(0.0, a, b * golden) for a in (-1, 1) for b in (-1, 1)])
    corners = np.concatenate([np.roll(flat, shift, axis=1) for shift in range(3)]) / math.hypot(1, golden)
    near = corners @ corners.T > 0.4  # neighbours have 1 / sqrt(5), others a negative product
    faces = [
        (a, b, c)
        for a in range(12)
        for b in range(12)
        for c in range(12)
        if a < b and a < c and near[a, b] and near[b, c] and near[c, a] and b != c
        if np.linalg.det(corners[[a, b, c]]) > 0
    ]
    return corners, np.array(faces)


def _cut_tetrahedron(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Subdivide a tetrahedron into n^3 of equal volume, with a regular subdivision of its four faces.

    The Kuhn (Freudenthal) subdivision [Freudenthal 1942]: integer points n >= x >= y >= z >= 0 span a tetrahedron; each
    unit cube is cut along (1, 1, 1) into six, and the parts inside are kept.

    Returns:
        Barycentric coordinates of the points times n, shape (points, 4), and point indices of the parts, shape
        (n^3, 4), with the orientation of the whole.
    """
    grid = np.stack(np.meshgrid(*[np.arange(n + 1)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    inside = (grid[:, 0] >= grid[:, 1]) & (grid[:, 1] >= grid[:, 2])
    x, y, z = points = grid[inside].T
    number = np.full((n + 1,) * 3, -1)
    number[x, y, z] = np.arange(len(x))
    cubes = points.T[x < n]
    parts = []
    for order in permutations(range(3)):
        path = np.cumsum(np.vstack([np.zeros(3, int), np.eye(3, dtype=int)[list(order)]]), axis=0)
        even = np.linalg.det(np.eye(3)[list(order)]) > 0
        walked = cubes[:, None] + (path if even else path[[0, 1, 3, 2]])
        parts.append(number[walked[..., 0], walked[..., 1], walked[..., 2]])
    found = np.concatenate(parts)
    return np.stack([n - x, x - y, y - z, z], axis=1), found[(found >= 0).all(axis=1)]
