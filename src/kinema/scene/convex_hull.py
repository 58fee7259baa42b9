"""Convex hulls of points, as polyhedra with few vertices and merged coplanar faces.

Quickhull adds points one at a time, the one farthest outside first, until all are inside or the hull has the requested
number of vertices: early termination misses little [Barber et al. 1996]. Then it merges coplanar triangles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinema.errors import InputError

FLAT = 1e-6  # coplanarity tolerance, as a fraction of the extent

Points = NDArray[np.float64]


@dataclass(frozen=True)
class Hull:
    """A convex polyhedron.

    Attributes:
        vertices: [m], shape (corners, 3).
        faces: Vertex indices of every face, counter-clockwise from outside. The first three span the largest triangle
            of any three consecutive vertices.
        edges: Two vertices and the two adjacent faces, the first of which runs from the first vertex to the second;
            shape (edges, 4).
        missed: Distance of the farthest given point outside the hull [m].
    """

    vertices: Points
    faces: tuple[tuple[int, ...], ...]
    edges: NDArray[np.int64]
    missed: float


def convex_hull(points: ArrayLike, most: int = 64) -> Hull:
    """The convex hull of points [m], shape (points, 3), with at most `most` vertices.

    Raises:
        InputError: The points lie in one plane, or are not finite.
    """
    given = np.asarray(points, np.float64)
    if given.ndim != 2 or given.shape[1:] != (3,) or not np.isfinite(given).all():
        raise InputError("points of a hull", got=f"shape {given.shape}", expected="(points, 3), finite")
    middle = 0.5 * (given.min(0) + given.max(0)) if len(given) else np.zeros(3)
    extent = float(np.abs(given - middle).max()) if len(given) else 0.0
    # A random perturbation far below the tolerance breaks ties between coplanar or collinear points.
    x = (given - middle) / (extent or 1.0)
    x = x + 1e-3 * FLAT * np.random.default_rng(0).uniform(-1, 1, x.shape)
    triangles, missed = _triangles(x, most)
    return _polyhedron(given, x, triangles, missed * extent)


def prism(sides: int) -> Hull:
    """A cylinder of radius 1 and half length 1 along z, as a prism.

    Its corners lie as far outside the circle as the midpoints of its sides lie inside.
    """
    angle = (np.arange(sides) + 0.5) * 2 * np.pi / sides
    radius = 2 / (1 + np.cos(np.pi / sides))
    rim = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return convex_hull(np.concatenate([np.c_[rim, np.full(sides, z)] for z in (-1.0, 1.0)]), 2 * sides)


def cube() -> Hull:
    """The cube of half size 1."""
    return convex_hull([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])


def _triangles(x: Points, most: int) -> tuple[list[tuple[int, int, int]], float]:
    """Triangles of the hull, and the distance of the farthest point outside."""
    triangles = _tetrahedron(x)
    planes = [_plane(x, t) for t in triangles]
    heights = [x @ n - d for n, d in planes]
    corners = 4
    while True:
        over = np.max(heights, 0)
        far = int(np.argmax(over))
        if over[far] <= FLAT * 1e-3 or corners >= most:
            return triangles, max(float(over[far]), 0.0)
        seen = [k for k, h in enumerate(heights) if h[far] > 0]
        sides = {side for k in seen for side in _sides(triangles[k])}
        horizon = [(a, b) for a, b in sides if (b, a) not in sides]
        kept = [k for k in range(len(triangles)) if k not in set(seen)]
        fresh = [(a, b, far) for a, b in horizon]
        triangles = [triangles[k] for k in kept] + fresh
        heights = [heights[k] for k in kept] + [x @ n - d for n, d in (_plane(x, t) for t in fresh)]
        corners = len({v for t in triangles for v in t})


def _tetrahedron(x: Points) -> list[tuple[int, int, int]]:
    """The initial simplex: four points far from each other, as outward-facing triangles."""
    if len(x) >= 4:
        a = int(np.argmin(x[:, 0]))
        b = int(np.argmax(np.linalg.norm(x - x[a], axis=1)))
        c = int(np.argmax(np.linalg.norm(np.cross(x - x[a], x[b] - x[a]), axis=1)))
        normal = np.cross(x[b] - x[a], x[c] - x[a])
        height = (x - x[a]) @ normal / (np.linalg.norm(normal) or 1.0)
        d = int(np.argmax(np.abs(height)))
        if abs(height[d]) > FLAT:
            if height[d] > 0:
                b, c = c, b
            return [(a, b, c), (a, c, d), (c, b, d), (b, a, d)]
    raise InputError("points of a hull lie in one plane", got=f"{len(x)} points", expected="a solid")


def _plane(x: Points, t: tuple[int, int, int]) -> tuple[Points, float]:
    """Unit normal and offset of a triangle."""
    normal = np.cross(x[t[1]] - x[t[0]], x[t[2]] - x[t[0]])
    normal = normal / (np.linalg.norm(normal) or 1.0)
    return normal, float(normal @ x[t[0]])


def _sides(t: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    return zip(t, t[1:] + t[:1], strict=True)


def _polyhedron(given: Points, x: Points, triangles: list[tuple[int, int, int]], missed: float) -> Hull:
    """Merge coplanar triangles, drop vertices inside faces and edges, and renumber from 0."""
    area = [np.linalg.norm(np.cross(x[b] - x[a], x[c] - x[a])) for a, b, c in triangles]
    owner = {side: k for k, t in enumerate(triangles) for side in _sides(t)}
    face = np.full(len(triangles), -1)
    # Grow faces from the largest triangle: adjacent coplanar triangles join the face.
    for seed in np.argsort(area)[::-1]:
        if face[seed] >= 0:
            continue
        normal, offset = _plane(x, triangles[seed])
        face[seed], open_ = seed, [int(seed)]
        while open_:
            for a, b in _sides(triangles[open_.pop()]):
                k = owner[b, a]
                if face[k] < 0 and np.abs(x[list(triangles[k])] @ normal - offset).max() < FLAT:
                    face[k] = seed
                    open_.append(k)
    beside: dict[int, set[int]] = {}
    after: dict[int, dict[int, int]] = {}
    for (a, b), k in owner.items():
        if face[k] != face[owner[b, a]]:
            after.setdefault(face[k], {})[a] = b
            beside.setdefault(a, set()).add(face[k])
    corners = sorted(v for v, faces in beside.items() if len(faces) >= 3)
    number = {v: i for i, v in enumerate(corners)}
    faces = []
    for around in after.values():
        at = first = next(v for v in around if v in number)
        loop = [first]
        while (at := around[at]) != first:
            if at in number:
                loop.append(at)
        faces.append(_largest_first(given, tuple(loop)))
    made = [tuple(number[v] for v in loop) for loop in faces]
    owns = {side: k for k, loop in enumerate(made) for side in _sides(loop)}
    edges = [(a, b, k, owns[b, a]) for (a, b), k in owns.items() if a < b]
    return Hull(given[corners], tuple(made), np.array(edges), missed)


def _largest_first(x: Points, loop: tuple[int, ...]) -> tuple[int, ...]:
    """A loop rotated so that its first three vertices span the largest triangle of three consecutive ones."""
    turned = [loop[k:] + loop[:k] for k in range(len(loop))]
    return max(turned, key=lambda t: float(np.linalg.norm(np.cross(x[t[1]] - x[t[0]], x[t[2]] - x[t[0]]))))
