"""Arrays of triangle meshes: rest shapes, areas, hinges, and a memory order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kinema.errors import InputError
from kinema.lang.programs.schedule import packet_order
from kinema.model.mesh_checks import checked_mesh, refuse

FLATTEST = 1e-6  # area over (mean edge)^2, below which a triangle is degenerate; 0.433 for a regular one
SHARPEST = 1e-6  # [rad] a rest angle this close to pi has no sign


@dataclass(frozen=True)
class TriArrays:
    """A triangle mesh at rest, and its hinges: the edges between two triangles.

    A hinge (a, b, c, d) has the edge from a to b, the vertex c opposite in the triangle that contains the edge from a
    to b, and d opposite in the other one. Its angle is the dihedral angle between the two normals: 0 if coplanar,
    positive if the surface is convex seen from the side of the normals.

    Attributes:
        vertices: Rest positions [m], shape (vertices, 3).
        triangles: Vertex indices a, b, c, anticlockwise from the side of the normal, shape (triangles, 3), int32.
        rest_inverse: Inverse of the matrix with columns x_b - x_a, x_c - x_a, in axes of the triangle's plane, the
            first from a to b [1/m], shape (triangles, 2, 2).
        area: Area of each triangle [m^2], shape (triangles,).
        order: Index of the i-th triangle in memory, so that lanes of a packet share few vertices, shape (triangles,).
        hinges: Vertex indices a, b, c, d, shape (hinges, 4), int32.
        hinge_angle: Rest angle [rad], in (-pi, pi), shape (hinges,).
        hinge_weight: (edge length)^2 / (2 (area abc + area bad)) at rest [-], shape (hinges,).
        hinge_inverse_areas: 1 / (2 area) of abc and of bad at rest [1/m^2], shape (hinges, 2).
        hinge_order: Index of the i-th hinge in memory, shape (hinges,).
    """

    vertices: np.ndarray
    triangles: np.ndarray
    rest_inverse: np.ndarray
    area: np.ndarray
    order: np.ndarray
    hinges: np.ndarray
    hinge_angle: np.ndarray
    hinge_weight: np.ndarray
    hinge_inverse_areas: np.ndarray
    hinge_order: np.ndarray

    @cached_property
    def steepness(self) -> np.ndarray:
        """Largest eigenvalue of the sum of g g^T over the gradients of shape functions [1/m^2], shape (triangles,)."""
        g = np.concatenate([-self.rest_inverse.sum(axis=1, keepdims=True), self.rest_inverse], axis=1)
        return np.linalg.eigvalsh(np.swapaxes(g, 1, 2) @ g)[:, -1]

    @cached_property
    def hinge_slopes(self) -> np.ndarray:
        """Squared gradients of the rest angle by the positions of a, b, c, d [1/m^2], shape (hinges, 4)."""
        a = self.vertices[self.hinges[:, 0]]
        b, c, d = (self.vertices[self.hinges[:, k]] - a for k in (1, 2, 3))
        length = np.linalg.norm(b, axis=1, keepdims=True)
        of_c = np.cross(b, c) * self.hinge_inverse_areas[:, :1] ** 2
        of_d = np.cross(d, b) * self.hinge_inverse_areas[:, 1:] ** 2
        of_b = ((b * c).sum(1, keepdims=True) * of_c + (b * d).sum(1, keepdims=True) * of_d) / length
        of_c, of_d = -length * of_c, -length * of_d
        return np.stack([(g * g).sum(1) for g in (of_b + of_c + of_d, of_b, of_c, of_d)], axis=1)


def tri_mesh(vertices: Any, triangles: Any, *, whole: bool = True) -> TriArrays:
    """Prepare a triangle mesh. It may have boundaries and holes; at most two triangles may share an edge.

    Args:
        vertices: Rest positions [m], shape (vertices, 3).
        triangles: Vertex indices of each triangle, shape (triangles, 3), with consistent orientation: neighbours
            contain their common edge in opposite directions.
        whole: Whether every vertex must belong to a triangle.

    Returns:
        The mesh with rest shapes, areas, hinges and packet orders.

    Raises:
        InputError: A shape is wrong, an index is out of range, a vertex is not finite or unused, a triangle is
            degenerate, more than two triangles share an edge, or neighbours have inconsistent orientation or are folded
            onto each other at rest; names the first.
    """
    x, t = checked_mesh(vertices, triangles, 3, "triangle", "triangles", whole)
    corners = x[t]
    b, c = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    area = 0.5 * np.linalg.norm(np.cross(b, c), axis=1)
    size = np.linalg.norm(corners - np.roll(corners, -1, axis=1), axis=2).mean(axis=1) ** 2
    flat = area <= FLATTEST * size
    refuse(flat, "triangle {} is degenerate: its corners lie on a line", lambda e: f"area {area[e]:.3g} m^2")
    t = np.ascontiguousarray(t, dtype=np.int32)
    hinges, sides = _hinges(t, len(x))
    angle = hinge_angles(x, hinges)
    onto = np.abs(angle) > np.pi - SHARPEST
    unfold = "open the fold slightly, or use the flat shape as rest shape"
    message = "hinge {} is completely folded at rest: its triangles lie on top of each other"
    refuse(onto, message, lambda h: f"triangles {sides[h].tolist()}", unfold)
    edge = np.linalg.norm(x[hinges[:, 1]] - x[hinges[:, 0]], axis=1)
    twice = 2 * area[sides]
    return TriArrays(
        vertices=x,
        triangles=t,
        rest_inverse=_rest_inverse(b, c, area),
        area=area,
        order=packet_order(t),
        hinges=hinges,
        hinge_angle=angle,
        hinge_weight=edge**2 / twice.sum(axis=1),
        hinge_inverse_areas=1 / twice,
        hinge_order=packet_order(hinges),
    )


def hinge_angles(x: np.ndarray, hinges: np.ndarray) -> np.ndarray:
    """Signed angles [rad] of hinges (a, b, c, d), see `TriArrays`, shape (hinges,), of positions x [m]."""
    a, b, c, d = (x[hinges[:, k]] for k in range(4))
    first, second = np.cross(b - a, c - a), np.cross(a - b, d - b)
    along = (b - a) / np.linalg.norm(b - a, axis=1, keepdims=True)
    return np.arctan2((along * np.cross(first, second)).sum(axis=1), (first * second).sum(axis=1))


def _rest_inverse(b: np.ndarray, c: np.ndarray, area: np.ndarray) -> np.ndarray:
    """Inverse of ((|b|, c.b/|b|), (0, 2 area/|b|)) [1/m]."""
    length, height = np.linalg.norm(b, axis=1), 2 * area / np.linalg.norm(b, axis=1)
    inverse = np.zeros((len(b), 2, 2))
    inverse[:, 0, 0] = 1 / length
    inverse[:, 0, 1] = -(b * c).sum(axis=1) / (length**2 * height)
    inverse[:, 1, 1] = 1 / height
    return inverse


def _hinges(t: np.ndarray, vertices: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges between two triangles as (a, b, c, d), shape (hinges, 4), and the triangles, shape (hinges, 2)."""
    start, end, opposite = t.ravel(), np.roll(t, -1, axis=1).ravel(), np.roll(t, -2, axis=1).ravel()
    owner = np.repeat(np.arange(len(t)), 3)
    edge = np.minimum(start, end).astype(np.int64) * vertices + np.maximum(start, end)
    order = np.argsort(edge, kind="stable")  # equal edges in triangle order
    begin = np.flatnonzero(np.diff(edge[order], prepend=-1))
    count = np.diff(begin, append=len(order))

    def blame(bad: np.ndarray, first: np.ndarray, last: np.ndarray, message: str, fix: str) -> None:
        if bad.any():
            at = order[first[np.argmax(bad)] : last[np.argmax(bad)]]
            more = f" ({int(bad.sum())} such edges)" if bad.sum() > 1 else ""
            got = f"edge ({start[at[0]]}, {end[at[0]]}) of triangles {owner[at].tolist()}"
            raise InputError(message + more, got=got, fix=fix)

    blame(count > 2, begin, begin + count, "more than two triangles share an edge", "split the vertices of the edge")
    begin = begin[count == 2]
    one, two = order[begin], order[begin + 1]
    turned, same = start[one] == start[two], opposite[one] == opposite[two]
    turn = "swap two corners of one of them"
    blame(turned, begin, begin + 2, "neighbouring triangles have inconsistent orientation", turn)
    blame(same, begin, begin + 2, "two triangles have the same corners", "remove one of them")
    near = np.argsort(one, kind="stable")  # neighbours in the mesh stay neighbours in memory
    one, two = one[near], two[near]
    hinges = np.stack([start[one], end[one], opposite[one], opposite[two]], axis=1).astype(np.int32)
    return hinges, np.stack([owner[one], owner[two]], axis=1)
