"""Arrays of tetrahedral meshes: rest shapes, volumes, and a memory order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kinema.lang.programs.schedule import packet_order
from kinema.model.mesh_checks import checked_mesh, refuse
from kinema.scene.io.tets import FLATTEST


@dataclass(frozen=True)
class TetArrays:
    """A tetrahedral mesh at rest.

    Attributes:
        vertices: Rest positions [m], shape (vertices, 3).
        tets: Vertex indices a, b, c, d of each element, with positive volume, shape (tets, 4), int32.
        rest_inverse: Inverse of the matrix with columns x_b - x_a, x_c - x_a, x_d - x_a [1/m], shape (tets, 3, 3).
        volume: Volume of each element [m^3], shape (tets,).
        order: Index of the i-th element in memory, so that lanes of a packet share few vertices, shape (tets,).
    """

    vertices: np.ndarray
    tets: np.ndarray
    rest_inverse: np.ndarray
    volume: np.ndarray
    order: np.ndarray

    @cached_property
    def steepness(self) -> np.ndarray:
        """Largest eigenvalue of the sum of g g^T over the gradients g of the shape functions [1/m^2], shape (tets,)."""
        g = np.concatenate([-self.rest_inverse.sum(axis=1, keepdims=True), self.rest_inverse], axis=1)
        return np.linalg.eigvalsh(np.swapaxes(g, 1, 2) @ g)[:, -1]


def tet_mesh(vertices: Any, tets: Any, *, whole: bool = True) -> TetArrays:
    """Prepare a tetrahedral mesh.

    Args:
        vertices: Rest positions [m], shape (vertices, 3).
        tets: Vertex indices of each element, shape (tets, 4); seen from d, abc is anticlockwise.
        whole: Whether every vertex must belong to an element.

    Returns:
        The mesh with rest shapes, volumes and a packet order.

    Raises:
        InputError: A shape is wrong, an index is out of range, a vertex is not finite or unused, or an element is
            degenerate or inverted; names the first.
    """
    x, t = checked_mesh(vertices, tets, 4, "element", "tets", whole)
    edges = np.swapaxes(x[t[:, 1:]] - x[t[:, :1]], 1, 2)
    volume = np.linalg.det(edges) / 6
    size = np.linalg.norm(x[t][:, [0, 0, 0, 1, 1, 2]] - x[t][:, [1, 2, 3, 2, 3, 3]], axis=2).mean(axis=1) ** 3
    flat = np.abs(volume) <= FLATTEST * size
    refuse(flat, "element {} is degenerate: its corners lie in a plane", lambda e: f"volume {volume[e]:.3g} m^3")
    swap = "swap two of its corners"
    refuse(volume < 0, "element {} is inverted", lambda e: f"volume {volume[e]:.3g} m^3", swap)
    t = np.ascontiguousarray(t, dtype=np.int32)
    return TetArrays(x, t, np.linalg.inv(edges), volume, packet_order(t))
