"""Tetrahedral meshes as arrays: what a simulation of a soft body needs to know of its shape at rest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kinema.errors import InputError
from kinema.lang.programs.schedule import packet_order
from kinema.scene.io.tets import FLATTEST


@dataclass(frozen=True)
class TetArrays:
    """A tetrahedral mesh at rest.

    Attributes:
        vertices: Positions at rest [m], shape (vertices, 3).
        tets: Corners a, b, c, d of each element, with positive volume, shape (tets, 4), int32.
        rest_inverse: Inverse of the matrix with columns x_b - x_a, x_c - x_a, x_d - x_a [1/m], shape (tets, 3, 3).
        volume: Volume of each element [m^3], shape (tets,).
        order: Which element comes i-th in memory, so that lanes of a packet share few vertices, shape (tets,).
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

    def masses(self, density: Any) -> np.ndarray:
        """Lumped masses [kg], shape (vertices,): a quarter of each element for each of its corners.

        Args:
            density: Mass per volume at rest [kg/m^3], one number or shape (tets,).
        """
        quarter = np.broadcast_to(0.25 * np.asarray(density) * self.volume, self.volume.shape)
        mass = np.zeros(len(self.vertices))
        np.add.at(mass, self.tets, quarter[:, None])
        return mass


def tet_mesh(vertices: Any, tets: Any, *, whole: bool = True) -> TetArrays:
    """Prepare a tetrahedral mesh.

    Args:
        vertices: Positions at rest [m], shape (vertices, 3).
        tets: Corners of each element, shape (tets, 4); d lies on the side of abc from which it is anticlockwise.
        whole: Whether every vertex must belong to an element.

    Returns:
        The mesh with rest shapes, volumes and a packet order.

    Raises:
        InputError: A shape is wrong, an index out of range, a vertex not finite or in no element, or an element
            degenerate or inverted; names the first one.
    """
    x = np.asarray(vertices, dtype=np.float64)
    t = np.asarray(tets)
    if x.ndim != 2 or x.shape[1] != 3 or len(x) == 0:
        raise InputError("vertices have the wrong shape", got=x.shape, expected="(vertices, 3)")
    if t.ndim != 2 or t.shape[1] != 4 or len(t) == 0 or not np.issubdtype(t.dtype, np.integer):
        raise InputError("tets must be integers", got=f"{t.dtype} {t.shape}", expected="(tets, 4)")
    _refuse(~np.isfinite(x).all(axis=1), "vertex {} is not finite", lambda i: x[i])
    _refuse(((t < 0) | (t >= len(x))).any(axis=1), "element {} names a vertex that does not exist", lambda e: t[e])
    unused = np.bincount(t.ravel(), minlength=len(x)) == 0
    _refuse(unused & whole, "vertex {} belongs to no element, so it has no mass", lambda i: x[i])
    edges = np.swapaxes(x[t[:, 1:]] - x[t[:, :1]], 1, 2)
    volume = np.linalg.det(edges) / 6
    size = np.linalg.norm(x[t][:, [0, 0, 0, 1, 1, 2]] - x[t][:, [1, 2, 3, 2, 3, 3]], axis=2).mean(axis=1) ** 3
    flat = np.abs(volume) <= FLATTEST * size
    _refuse(flat, "element {} is degenerate: its corners lie in a plane", lambda e: f"volume {volume[e]:.3g} m^3")
    swap = "exchange two of its corners"
    _refuse(volume < 0, "element {} is inverted", lambda e: f"volume {volume[e]:.3g} m^3", swap)
    t = np.ascontiguousarray(t, dtype=np.int32)
    return TetArrays(x, t, np.linalg.inv(edges), volume, packet_order(t))


def _refuse(bad: Any, message: str, got: Any, fix: str | None = None) -> None:
    """Raise for the first element that is marked."""
    if bad.any():
        first = int(np.argmax(bad))
        more = f" ({int(bad.sum())} of {len(bad)} are)" if bad.sum() > 1 else ""
        raise InputError(message.format(first) + more, got=got(first), fix=fix)
