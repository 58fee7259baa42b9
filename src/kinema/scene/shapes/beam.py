"""A beam with a rectangular section."""

from __future__ import annotations

from collections.abc import Sequence

from kinema.scene.description import Tets
from kinema.scene.mesh_sizes import cells, lengths
from kinema.scene.shapes.block import block


def beam(length: float, width: float, height: float, bricks: Sequence[int]) -> Tets:
    """A beam along x, from x = 0, with y = z = 0 in the middle of its section; bricks are cut into five.

    Args:
        length: Along x [m].
        width: Along y [m].
        height: Along z [m].
        bricks: Number of bricks along x, y and z.

    Returns:
        5 * nx * ny * nz tetrahedra. The (ny + 1) * (nz + 1) vertices of the end at x = 0 come first.

    Raises:
        InputError: A length is not positive, or a number of bricks below 1.
    """
    nx, ny, nz = cells("a beam", bricks, (1, 1, 1))
    long, wide, high = lengths("a beam", length, width, height)
    made = block((nx, ny, nz), (long / nx, wide / ny, high / nz))
    made.vertices[:, 0] += long / 2
    made.vertices[: (ny + 1) * (nz + 1), 0] = 0.0  # without the rounding of the sum, so that it can be asked for
    return made
