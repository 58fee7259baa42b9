"""A gear of tetrahedra: a ring with external teeth."""

from __future__ import annotations

import numpy as np

from kinema.errors import InputError
from kinema.scene.description import Tets
from kinema.scene.mesh_sizes import cells, lengths

# Corner 4k + 2j + i of a brick is i steps along its first axis, j along its second, k along its third. All six
# tetrahedra share the diagonal from 0 to 7, so bricks of the same orientation match.
_CUT = ((0, 1, 3, 7), (0, 1, 7, 5), (0, 2, 7, 3), (0, 2, 6, 7), (0, 4, 5, 7), (0, 4, 7, 6))
RING, TOOTH = 2, 2  # radial bricks of the ring and of a tooth
TIP = 0.6  # angular width of a tooth's tip relative to its foot


def gear(
    radius: float, hole: float, width: float, *, teeth: int = 16, axial: int = 2, depth: float | None = None
) -> Tets:
    """A gear about z, with z = 0 in its middle; six tetrahedra per brick.

    The ring has two sectors per tooth, one below it and one below the gap; the first tooth is centred on the x axis. A
    tooth narrows from one sector to 0.6 of one. Sides of ring and teeth are flat, and the corners of the tips lie on
    the circle of `radius`.

    Args:
        radius: Radius of the tips [m].
        hole: Radius of the hole [m].
        width: Size along z [m].
        teeth: Number of teeth, at least 3.
        axial: Number of bricks along z.
        depth: Height of the teeth [m]; by default two fifths of `radius - hole`.

    Returns:
        36 * teeth * axial tetrahedra: 1,152 by default.

    Raises:
        InputError: A length is not positive, or the hole and the teeth do not fit into the radius.
    """
    count, stack = cells("a gear", (teeth, axial), (3, 1))
    tip, inner, wide = lengths("a gear", radius, hole, width)
    high = 0.4 * (tip - inner) if depth is None else lengths("a gear", depth)[0]
    foot = tip - high
    if not inner < foot < tip:
        got = f"hole {inner:g}, depth of teeth {high:g}, radius {tip:g}"
        raise InputError("hole and teeth do not fit into the gear", got=got, expected="hole + depth < radius [m]")
    sectors = 2 * count
    # Vertices in the plane: the rings, then the rows of teeth, two vertices per tooth and row.
    half = np.pi / sectors
    angle = half * (2 * np.arange(sectors) - 1)
    ring = [_polar(r, angle) for r in np.linspace(inner, foot, RING + 1)]
    tooth = []
    for t in np.linspace(0, 1, TOOTH + 1)[1:]:
        lean = half * (1 - (1 - TIP) * t)
        middle = 4 * half * np.arange(count)
        tooth.append(_polar(foot + t * high, np.stack([middle - lean, middle + lean], axis=1).ravel()))
    flat = np.concatenate(ring + tooth)
    ring_number = np.arange((RING + 1) * sectors).reshape(RING + 1, sectors)
    feet = np.stack([ring_number[-1, 0::2], ring_number[-1, 1::2]], axis=1).ravel()
    rows = np.vstack([feet, (RING + 1) * sectors + np.arange(TOOTH * sectors).reshape(TOOTH, sectors)])
    here, there = ring_number, np.roll(ring_number, -1, axis=1)
    # Quadrilaterals: (inner, outer) at one angle, then at the next.
    quads = [np.stack([here[:-1], here[1:], there[:-1], there[1:]], axis=-1).reshape(-1, 4)]
    low, next_ = rows[:, 0::2], rows[:, 1::2]
    quads.append(np.stack([low[:-1], low[1:], next_[:-1], next_[1:]], axis=-1).reshape(-1, 4))
    plane = np.concatenate(quads)
    levels = len(flat) * np.arange(stack + 1)
    bricks = np.concatenate([plane + levels[:-1, None, None], plane + levels[1:, None, None]], axis=2).reshape(-1, 8)
    z = np.repeat(np.linspace(-wide / 2, wide / 2, stack + 1), len(flat))
    vertices = np.column_stack([np.tile(flat, (stack + 1, 1)), z])
    return Tets(vertices, np.ascontiguousarray(bricks[:, _CUT].reshape(-1, 4), dtype=np.int32))


def _polar(radius: float, angle: np.ndarray) -> np.ndarray:
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
