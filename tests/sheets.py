"""Flat sheets of triangles, for tests of thin shells."""

from __future__ import annotations

import numpy as np


def sheet(nx: int, ny: int, size: float = 0.1, height=lambda x, y: 0.0 * x) -> tuple[np.ndarray, np.ndarray]:
    """Squares with parallel diagonals, normals up."""
    x, y = np.meshgrid(size * np.arange(nx + 1), size * np.arange(ny + 1), indexing="ij")
    vertices = np.stack([x, y, height(x, y)], axis=2).reshape(-1, 3)
    corner = (np.arange(nx)[:, None] * (ny + 1) + np.arange(ny)).ravel()
    a, b, c, d = corner, corner + ny + 1, corner + ny + 2, corner + 1
    return vertices, np.concatenate([np.stack([a, b, d], axis=1), np.stack([b, c, d], axis=1)])


def equilateral(nx: int, ny: int, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Equal equilateral triangles with edges of `size`, a side of each along x; rows lean to the right."""
    vertices, triangles = sheet(nx, ny, size)
    return np.stack(
        [vertices[:, 0] + 0.5 * vertices[:, 1], np.sqrt(0.75) * vertices[:, 1], 0 * vertices[:, 0]], axis=1
    ), triangles
