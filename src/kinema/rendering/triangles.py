"""Triangles of shapes; vertices are linear in a shape's size parameters, so that sizes have gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kinema.scene.description import BOX, CAPSULE, CYLINDER, ELLIPSOID, SPHERE, Mesh

SIDES = 32  # of a circle, by default
CREASE = np.cos(np.radians(40.0))  # faces that meet at a larger angle have a sharp edge between them


@dataclass(frozen=True, eq=False)
class Triangles:
    """Triangles of a shape: vertex = basis @ size.

    Attributes:
        basis: Shape (vertices, 3, 3).
        faces: Corners, counter-clockwise seen from outside, shape (faces, 3).
        points: Index of the point of each vertex, see `Surface.points`, shape (vertices,).
    """

    basis: np.ndarray
    faces: np.ndarray
    points: np.ndarray


def triangles_of(kind: str, mesh: Mesh | None = None, sides: int = SIDES) -> Triangles:
    """Triangles of a shape, except planes; see `Shape.size`. Circles have so many sides, a multiple of four."""
    if mesh is not None:
        source, faces = split_creases(mesh.vertices, mesh.faces)
        return Triangles(mesh.vertices[source][:, :, None] * np.eye(3), faces, source)
    return TRIANGLES[kind](sides)


def split_creases(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Double vertices where faces meet at a sharp edge, so that each copy has the normal of its side.

    Args:
        vertices: At rest [m], shape (vertices, 3).
        faces: Shape (faces, 3).

    Returns:
        For each new vertex the old one, shape (new vertices,), and the faces in new vertices.
    """
    faces = np.asarray(faces, np.int64)
    corner = np.asarray(vertices, float)[faces]
    normal = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-300)
    # Edges as (lower vertex, higher vertex, face, corner of the lower one, corner of the higher one).
    face = np.repeat(np.arange(len(faces)), 3)
    start, end = np.tile([0, 1, 2], len(faces)), np.tile([1, 2, 0], len(faces))
    ends = np.stack([faces[face, start], faces[face, end]], 1)
    turned = ends[:, 0] > ends[:, 1]
    ends[turned] = ends[turned][:, ::-1]
    low = 3 * face + np.where(turned, end, start)
    high = 3 * face + np.where(turned, start, end)
    order = np.lexsort((ends[:, 1], ends[:, 0]))
    beside = (ends[order][1:] == ends[order][:-1]).all(1)
    one, two = order[:-1][beside], order[1:][beside]
    flat = (normal[face[one]] * normal[face[two]]).sum(1) > CREASE
    one, two = one[flat], two[flat]
    first, second = np.concatenate([low[one], high[one]]), np.concatenate([low[two], high[two]])
    # Corners of one vertex that are connected by smooth edges get the lowest index among them.
    label = np.arange(3 * len(faces))
    while True:
        lowest = np.minimum(label[first], label[second])
        if (label[first] == lowest).all() and (label[second] == lowest).all():
            break
        np.minimum.at(label, first, lowest)
        np.minimum.at(label, second, lowest)
    kept, made = np.unique(label, return_inverse=True)
    return faces.ravel()[kept], made.reshape(-1, 3)


def grid(count: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """A rectangle of cells, two triangles each, seen from +z.

    Returns:
        Vertices in [0, 1], shape (n, 2), and faces.
    """
    nx, ny = count
    y, x = np.meshgrid(np.linspace(0, 1, ny + 1), np.linspace(0, 1, nx + 1), indexing="ij")
    number = np.arange((nx + 1) * (ny + 1)).reshape(ny + 1, nx + 1)
    a, b, c, d = number[:-1, :-1], number[:-1, 1:], number[1:, 1:], number[1:, :-1]
    faces = np.concatenate([np.stack(corners, -1).reshape(-1, 3) for corners in ((a, b, c), (a, c, d))])
    return np.stack([x.ravel(), y.ravel()], 1), faces


def small_ball() -> tuple[np.ndarray, np.ndarray]:
    """A coarse unit ball for particles: 42 vertices, shape (42, 3), and 80 faces."""
    g = 0.5 * (1 + 5**0.5)
    vertices = [(s * a, t * b, 0.0) for a, b in ((1.0, g),) for s in (-1, 1) for t in (-1, 1)]
    points = np.array([np.roll(v, k) for k in range(3) for v in vertices])
    gaps = np.linalg.norm(points[:, None] - points[None], axis=-1)
    near = np.abs(gaps - 2.0) < 1e-9
    faces = [
        (i, j, k) for i in range(12) for j in range(i) for k in range(j) if near[i, j] and near[j, k] and near[i, k]
    ]
    faces = [f if np.linalg.det(points[list(f)]) > 0 else f[::-1] for f in faces]
    found: dict[tuple[int, int], int] = {}
    made = list(points)

    def middle(i: int, j: int) -> int:
        key = (min(i, j), max(i, j))
        if key not in found:
            found[key] = len(made)
            made.append(points[i] + points[j])
        return found[key]

    split = []
    for i, j, k in faces:
        a, b, c = middle(i, j), middle(j, k), middle(k, i)
        split += [(i, a, c), (a, j, b), (c, b, k), (a, b, c)]
    unit = np.array(made)
    return unit / np.linalg.norm(unit, axis=1, keepdims=True), np.array(split)


def _ball(sides: int) -> tuple[np.ndarray, np.ndarray]:
    """A unit ball from circles of latitude; vertices from the lower pole to the upper one."""
    rows = sides // 2
    angle = np.pi * (np.arange(1, rows) / rows - 0.5)
    turn = 2 * np.pi * np.arange(sides) / sides
    rings = [
        np.stack([np.cos(a) * np.cos(turn), np.cos(a) * np.sin(turn), np.full(sides, np.sin(a))], 1) for a in angle
    ]
    vertices = np.concatenate([[(0.0, 0.0, -1.0)], *rings, [(0.0, 0.0, 1.0)]])
    return vertices, _tube_faces(sides, len(rings), len(vertices))


def _tube_faces(sides: int, rings: int, count: int) -> np.ndarray:
    """Faces between rings of `sides` vertices, closed by a pole at each end; vertices count from the lower pole."""
    i = np.arange(sides)
    j = (i + 1) % sides
    faces = [np.stack([np.zeros(sides, int), 1 + j, 1 + i], 1)]
    for r in range(rings - 1):
        low, high = 1 + r * sides, 1 + (r + 1) * sides
        faces += [np.stack([low + i, low + j, high + j], 1), np.stack([low + i, high + j, high + i], 1)]
    last = 1 + (rings - 1) * sides
    faces.append(np.stack([last + i, last + j, np.full(sides, count - 1)], 1))
    return np.concatenate(faces)


def _sphere(sides: int) -> Triangles:
    unit, faces = _ball(sides)
    return Triangles(_of_radius(unit), faces, np.arange(len(unit)))


def _ellipsoid(sides: int) -> Triangles:
    unit, faces = _ball(sides)
    return Triangles(unit[:, :, None] * np.eye(3), faces, np.arange(len(unit)))


def _of_radius(unit: np.ndarray) -> np.ndarray:
    basis = np.zeros((len(unit), 3, 3))
    basis[:, :, 0] = unit
    return basis


def _capsule(sides: int) -> Triangles:
    """Two halves of a ball, each with its own equator."""
    unit, _ = _ball(sides)
    equator = 1 + (sides // 4 - 1) * sides
    half = unit[: equator + sides], unit[equator:]
    basis = np.concatenate([_of_radius(part) for part in half])
    basis[:, 2, 1] = np.repeat([-1.0, 1.0], [len(half[0]), len(half[1])])
    return Triangles(basis, _tube_faces(sides, sides // 2, len(basis)), np.arange(len(basis)))


def _cylinder(sides: int) -> Triangles:
    turn = 2 * np.pi * np.arange(sides) / sides
    ring = np.stack([np.cos(turn), np.sin(turn), np.zeros(sides)], 1)
    flat = np.concatenate([[(0.0, 0.0, 0.0)], ring, ring, [(0.0, 0.0, 0.0)]])
    basis = _of_radius(flat)
    basis[:, 2, 1] = np.repeat([-1.0, 1.0], sides + 1)
    faces = _tube_faces(sides, 2, len(basis))
    source, faces = split_creases(basis[:, :, 0] + basis[:, :, 1], faces)
    return Triangles(basis[source], faces, source)


def _box(_: int) -> Triangles:
    signs = np.array([(x, y, z) for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
    # Corner 4 x + 2 y + z; each side by its corners, counter-clockwise from outside.
    sides = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3))
    faces = np.array([f for a, b, c, d in sides for f in ((a, b, c), (a, c, d))])
    source, faces = split_creases(signs, faces)
    return Triangles(signs[source][:, :, None] * np.eye(3), faces, source)


TRIANGLES: dict[str, Callable[[int], Triangles]] = {
    SPHERE: _sphere,
    CAPSULE: _capsule,
    CYLINDER: _cylinder,
    BOX: _box,
    ELLIPSOID: _ellipsoid,
}
"""Builders by kind of shape, for finite shapes that are not meshes, of the number of sides of circles."""
