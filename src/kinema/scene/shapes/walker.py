"""A flat walker of triangles: a slab on legs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kinema.errors import InputError
from kinema.scene.description import Mesh
from kinema.scene.mesh_sizes import cells, lengths
from kinema.scene.shapes.sheet import grid_triangles


def walker(edge: float, body: Sequence[int] = (10, 3), leg: Sequence[int] = (2, 3), legs: int = 2) -> Mesh:
    """A slab with legs in the xz plane: a grid of squares, two triangles each.

    The legs are evenly spaced, the outer ones at the ends of the slab. Feet are at z = 0, x = 0 is in the middle.
    Faces face -y; seen from there, x points right and z up.

    Args:
        edge: Edge length of a square [m].
        body: Number of squares of the slab along x and z.
        leg: Number of squares of a leg along x and z.
        legs: Number of legs, at least 2.

    Returns:
        2 triangles for every square of the slab and of the legs.

    Raises:
        InputError: The edge is not positive, a number is too small, or there is no gap between the legs.
    """
    (size,) = lengths("a walker", edge)
    (long, thick), (wide, high) = cells("the slab", body, (1, 1)), cells("a leg", leg, (1, 1))
    (count,) = cells("a walker", (legs,), (2,))
    starts = np.linspace(0, long - wide, count).round().astype(int)
    if np.diff(starts).min() <= wide:
        fix = "a longer slab, or fewer or thinner legs"
        raise InputError(
            "there is no gap between the legs", got=f"slab {long}, {count} legs of {wide} squares", fix=fix
        )
    filled = np.zeros((long, high + thick), bool)
    filled[:, high:] = True
    for start in starts:
        filled[start : start + wide] = True
    x, z = np.meshgrid(np.arange(long + 1) - long / 2, np.arange(high + thick + 1), indexing="ij")
    faces = grid_triangles(np.arange(x.size).reshape(x.shape), filled)
    used, renumbered = np.unique(faces, return_inverse=True)
    vertices = size * np.stack([x.ravel(), np.zeros(x.size), z.ravel()], axis=1)[used]
    return Mesh(vertices, renumbered.reshape(-1, 3).astype(np.int32))
