"""Images in tiles of 8 x 8 pixels, and which triangles can reach a tile."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

TILE = 8
PIXELS = TILE * TILE
CUT = math.log(1e4 - 1)  # d^2 / sigma at which coverage is 1e-4 [Liu et al. 2019: dist_eps]


def tile_count(size: tuple[int, int]) -> int:
    """Number of tiles of an image of (width, height) pixels."""
    return -(-size[0] // TILE) * -(-size[1] // TILE)


def tile_lists(screen: Any, faces: Any, size: tuple[int, int], sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """The triangles whose bounding box, grown by the reach of a soft edge, meets a tile.

    Args:
        screen: Vertices on the screen (x, y, depth), shape (vertices, 3).
        faces: Corners of the triangles, shape (faces, 3).
        size: Width and height of the image [pixels].
        sigma: Squared width of soft edges.

    Returns:
        start, shape (tiles + 1,), and the triangles of all tiles one after the other, int32: those of tile k are
        listed[start[k]:start[k + 1]], in ascending order. listed has one entry at least, needed or not.
    """
    width, height = size
    columns, rows = -(-width // TILE), -(-height // TILE)
    corners = np.asarray(screen, dtype=np.float64)[np.asarray(faces), :2]
    reach = math.sqrt(CUT * sigma)
    # Screen coordinates to pixels: pixel i covers [i, i + 1], its centre is at i + 1/2.
    half = 0.5 * np.array([width, height])
    low = (corners.min(axis=1) - reach) * half.min() + half
    high = (corners.max(axis=1) + reach) * half.min() + half
    last = np.array([columns, rows]) - 1
    first = np.clip(np.floor((low - 0.5) / TILE), 0, last + 1).astype(np.int64)
    final = np.clip(np.floor((high + 0.5) / TILE), -1, last).astype(np.int64)
    spans = np.maximum(final - first + 1, 0)
    counts = spans[:, 0] * spans[:, 1]
    face = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    wide = np.maximum(spans[face, 0], 1)
    tile = (first[face, 1] + within // wide) * columns + first[face, 0] + within % wide
    order = np.argsort(tile, kind="stable")
    start = np.searchsorted(tile[order], np.arange(columns * rows + 1))
    listed = face[order] if len(face) else np.zeros(1)
    return start.astype(np.int32), listed.astype(np.int32)


def from_tiles(image: Any, size: tuple[int, int]) -> Any:
    """Put pixels that are ordered tile by tile into rows.

    Args:
        image: Pixels, shape (*batch, 64 * tiles, channels); a numpy array or a torch tensor.
        size: Width and height [pixels].

    Returns:
        The image, shape (*batch, height, width, channels).

    Gradients:
        Exact: pixels are moved, those beyond the border are left out.
    """
    columns, rows = -(-size[0] // TILE), -(-size[1] // TILE)
    batch, channels = tuple(image.shape[:-2]), image.shape[-1]
    tiles = image.reshape(*batch, rows, columns, TILE, TILE, channels)
    whole = tiles.swapaxes(-4, -3).reshape(*batch, rows * TILE, columns * TILE, channels)
    return whole[..., : size[1], : size[0], :]
