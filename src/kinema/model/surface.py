"""Contact surface of soft matter: vertices, triangles, and weights of shared edges and corners."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kinema.scene.shapes.block import surface as outside

PAIRS = 0.5  # capacity for pairs, as a fraction of all slots


@dataclass(eq=False)
class SurfaceArrays:
    """Vertices and triangles of the contact surface.

    Attributes:
        vertex: Particle indices of vertices, int32.
        corner: Particle indices of triangles, shape (triangles, 3), int32.
        edge_share: Weights of the edges 0-1, 1-2, 2-0 of each triangle, see `contact.soft`, shape (triangles, 3).
        corner_share: Weights of its corners, shape (triangles, 3).
        rest: Rest positions of all particles [m], shape (particles, 3).
        slots: Capacity for triangles near a vertex.
    """

    vertex: np.ndarray
    corner: np.ndarray
    edge_share: np.ndarray
    corner_share: np.ndarray
    rest: np.ndarray
    slots: int

    @property
    def room(self) -> int:
        """Capacity for vertex-triangle pairs."""
        return max(int(len(self.vertex) * self.slots * PAIRS), self.slots)


def find_surface(
    rest: np.ndarray, thick: np.ndarray, tets: list[np.ndarray], triangles: np.ndarray, slots: int
) -> SurfaceArrays | None:
    """The contact surface of all soft objects with a thickness; None if they have no triangles.

    Args:
        rest: Rest positions of all particles [m], shape (particles, 3).
        thick: Mask of particles of soft objects with a thickness.
        tets: Vertex indices of all tetrahedra.
        triangles: Vertex indices of cloth triangles, shape (n, 3).
        slots: Capacity for triangles near a vertex.
    """
    faces = np.concatenate([*(outside(t).astype(np.int32) for t in tets), triangles.astype(np.int32)])
    faces = faces[thick[faces[:, 0]]] if len(faces) else faces
    if not len(faces):
        return None
    inner = np.zeros(len(rest), bool)  # inner vertices of solids do not collide
    for t in tets:
        inner[t.ravel()] = True
    inner[faces.ravel()] = False
    vertex = np.flatnonzero(thick & ~inner).astype(np.int32)
    return SurfaceArrays(vertex, faces, *_shares(faces, len(rest)), rest, slots)


def _shares(faces: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Each triangle's share of the weights of its edges and corners, see `contact.soft`."""
    ends = np.sort(np.stack([faces, np.roll(faces, -1, 1)], 2).reshape(-1, 2), 1)
    edges, which, used = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    around = np.bincount(faces.ravel(), minlength=count)
    weight = 1.0 - around
    for end in edges.T:
        np.add.at(weight, end, used - 1.0)
    edge_share = (-(used - 1.0) / used)[which.ravel()].reshape(-1, 3)
    return edge_share, (weight / np.maximum(around, 1))[faces]
