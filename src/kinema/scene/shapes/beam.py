"""A beam with a rectangular cross-section."""

from __future__ import annotations

from collections.abc import Sequence

from kinema.scene.description import Tets
from kinema.scene.mesh_sizes import cells, lengths
from kinema.scene.shapes.block import block


def beam(length: float, width: float, height: float, bricks: Sequence[int]) -> Tets:
    """A beam along x, from x = 0, with y = z = 0 in the middle of its cross-section; five tetrahedra per brick.

    Args:
        length: Size along x [m].
        width: Size along y [m].
        height: Size along z [m].
        bricks: Number of bricks along x, y and z.

    Returns:
        5 * nx * ny * nz tetrahedra. The (ny + 1) * (nz + 1) vertices at x = 0 come first.

    Raises:
        InputError: A length is not positive, or a number of bricks is below 1.
    """
    nx, ny, nz = cells("a beam", bricks, (1, 1, 1))
    long, wide, high = lengths("a beam", length, width, height)
    made = block((nx, ny, nz), (long / nx, wide / ny, high / nz))
    made.vertices[:, 0] += long / 2
    made.vertices[: (ny + 1) * (nz + 1), 0] = 0.0  # exactly, so that `vertices[:, 0] == 0` selects the end
    return made
