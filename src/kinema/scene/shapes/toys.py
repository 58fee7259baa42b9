"""Fourteen closed triangle meshes of everyday forms, made from a few numbers: `kn.shapes.toy("pear")`.

Three constructions make them all: a profile turned about z, a ring of vertices moved along a curve, and a polygon with
thickness. All have at most 250 vertices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from kinema.errors import InputError
from kinema.scene.description import Mesh
from kinema.scene.mesh_sizes import lengths
from kinema.scene.names import closest

AROUND = 16  # vertices around an axis
Profile = Sequence[tuple[float, float]]


def toy(kind: str, size: float = 0.2) -> Mesh:
    """A closed mesh of an everyday form, with its centre of volume at the origin.

    Args:
        kind: One of TOYS: box, sphere, cone, cylinder, capsule, torus, banana, apple, pear, mug, bottle, ellipsoid,
            l_block, star.
        size: Its largest extent along x, y or z [m].

    Returns:
        At most 250 vertices; faces are anticlockwise from outside. The mug's handle is a closed surface of its own that
        ends inside the wall. The convex hull, with which a `Hull` of the mesh collides, fills holes and hollows.

    Raises:
        InputError: The kind is unknown, or the size is not positive.
    """
    if kind not in _MAKERS:
        raise InputError("unknown toy", got=repr(kind), expected=", ".join(TOYS), fix=closest(kind, TOYS))
    (extent,) = lengths("a toy", size)
    parts = _MAKERS[kind]()
    vertices = np.concatenate([v for v, _ in parts])
    starts = np.cumsum([0, *(len(v) for v, _ in parts)])
    faces = np.concatenate([f + start for (_, f), start in zip(parts, starts, strict=False)]).astype(np.int32)
    vertices = vertices - _centre(vertices, faces)
    return Mesh(vertices * (extent / np.ptp(vertices, axis=0).max()), faces)


Part = tuple[np.ndarray, np.ndarray]
"""Vertices and faces of a closed surface."""


def _revolved(profile: Profile, around: int = AROUND) -> Part:
    """A profile (radius, height), from one point of the axis to another or closed, turned about z.

    Its inside is on the left of the profile, as one walks along it upwards on the outside.
    """
    angles = 2 * math.pi * np.arange(around) / around
    vertices: list[np.ndarray] = []
    rings: list[np.ndarray] = []
    for radius, height in profile:
        count = 1 if radius == 0 else around
        rings.append(len(vertices) + np.arange(count))
        turned = [(radius * math.cos(a), radius * math.sin(a), height) for a in angles[:count]]
        vertices += [np.array(v) for v in turned]
    if profile[0][0] > 0:
        rings.append(rings[0])
    faces = [face for low, high in zip(rings, rings[1:], strict=False) for face in _strip(low, high, around)]
    return np.array(vertices), np.array(faces)


def _swept(curve: np.ndarray, radii: np.ndarray, upright: np.ndarray, around: int, closed: bool) -> Part:
    """Circles around the points of a curve in a plane with the normal `upright`; open tubes end in points."""
    step = np.roll(curve, -1, 0) - np.roll(curve, 1, 0) if closed else np.gradient(curve, axis=0)
    ahead = step / np.linalg.norm(step, axis=1, keepdims=True)
    aside = np.cross(upright, ahead)
    angles = 2 * math.pi * np.arange(around) / around
    circle = np.cos(angles)[None, :, None] * aside[:, None] + np.sin(angles)[None, :, None] * upright
    vertices = (curve[:, None] + radii[:, None, None] * circle).reshape(-1, 3)
    rings = [around * i + np.arange(around) for i in range(len(curve))]
    if closed:
        rings.append(rings[0])
    else:
        # Both ends are points a little beyond the last circles.
        tips = [curve[0] - 0.5 * radii[0] * ahead[0], curve[-1] + 0.5 * radii[-1] * ahead[-1]]
        rings = [np.array([len(vertices)]), *rings, np.array([len(vertices) + 1])]
        vertices = np.concatenate([vertices, tips])
    faces = [face for low, high in zip(rings, rings[1:], strict=False) for face in _strip(low, high, around)]
    return vertices, np.array(faces)


def _extruded(polygon: np.ndarray, height: float, triangles: Sequence[tuple[int, int, int]]) -> Part:
    """An anticlockwise polygon in the xy plane, with its triangles, and thickness along z."""
    count = len(polygon)
    flat = np.pad(polygon, ((0, 0), (0, 1)))
    vertices = np.concatenate([flat, flat + (0.0, 0.0, height)])
    low = np.arange(count)
    sides = _strip(low, low + count, count)
    caps = [(c, b, a) for a, b, c in triangles] + [(a + count, b + count, c + count) for a, b, c in triangles]
    return vertices, np.array([*sides, *caps])


def _strip(low: np.ndarray, high: np.ndarray, around: int) -> list[tuple[int, int, int]]:
    """Triangles between two rings, either of which may be a point."""
    faces = []
    for i in range(around):
        j = (i + 1) % around
        a, b = low[i % len(low)], low[j % len(low)]
        c, d = high[j % len(high)], high[i % len(high)]
        if len(low) > 1:
            faces.append((int(a), int(b), int(c)))
        if len(high) > 1:
            faces.append((int(a), int(c), int(d)))
    return faces


def _centre(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Centre of the volume within closed surfaces."""
    a, b, c = vertices[faces].transpose(1, 0, 2)
    volumes = np.einsum("ij,ij->i", a, np.cross(b, c)) / 6.0
    return volumes @ (a + b + c) / 4.0 / volumes.sum()


def _arc(radius: float, centre: float, start: float, end: float, count: int) -> list[tuple[float, float]]:
    """Points (radius, height) of a circle about a point of the axis; angles from the lower pole [rad]."""
    angles = np.linspace(start, end, count)
    found = [(radius * math.sin(a), centre - radius * math.cos(a)) for a in angles]
    return [(0.0 if r < 1e-9 else r, z) for r, z in found]


def _stretched(part: Part, scale: tuple[float, float, float]) -> Part:
    return part[0] * scale, part[1]


def _box() -> list[Part]:
    return [_extruded(np.array([(-1.0, -0.7), (1.0, -0.7), (1.0, 0.7), (-1.0, 0.7)]), 1.0, [(0, 1, 2), (0, 2, 3)])]


def _sphere() -> list[Part]:
    return [_revolved(_arc(1.0, 0.0, 0.0, math.pi, 13))]


def _cone() -> list[Part]:
    return [_revolved([(0.0, 0.0), (0.7, 0.0), (0.0, 1.6)], 24)]


def _cylinder() -> list[Part]:
    return [_revolved([(0.0, -0.8), (0.6, -0.8), (0.6, 0.8), (0.0, 0.8)], 24)]


def _capsule() -> list[Part]:
    low, high = _arc(0.5, -0.6, 0.0, math.pi / 2, 6), _arc(0.5, 0.6, math.pi / 2, math.pi, 6)
    return [_revolved(low + high)]


def _torus() -> list[Part]:
    angles = 2 * math.pi * np.arange(20) / 20
    curve = np.stack([np.cos(angles), np.sin(angles), 0 * angles], -1)
    return [_swept(curve, np.full(20, 0.35), np.array((0.0, 0.0, 1.0)), 10, closed=True)]


def _banana() -> list[Part]:
    angles = np.linspace(-1.0, 1.0, 15)
    curve = np.stack([np.cos(angles), np.sin(angles), 0 * angles], -1)
    return [_swept(curve, 0.2 * np.sqrt(1.05 - angles**2), np.array((0.0, 0.0, 1.0)), 12, closed=False)]


def _apple() -> list[Part]:
    # A cardioid-like profile with dimples at both poles.
    angles = np.linspace(0.0, math.pi, 15)
    radii = (1.0 - 0.35 * np.exp(-8.0 * angles**2) - 0.5 * np.exp(-8.0 * (math.pi - angles) ** 2)).tolist()
    profile = [(r * math.sin(a), -r * math.cos(a)) for r, a in zip(radii, angles, strict=True)]
    return [_revolved([(0.0 if x < 1e-9 else x, z) for x, z in profile])]


def _pear() -> list[Part]:
    heights = np.linspace(-1.0, 1.4, 15)
    radii = np.sqrt(np.clip(1.0 - ((heights - 0.2) / 1.2) ** 2, 0.0, None)) * (0.62 - 0.3 * np.tanh(1.5 * heights))
    return [_revolved([(0.0 if r < 1e-9 else float(r), float(z)) for r, z in zip(radii, heights, strict=True)])]


def _mug() -> list[Part]:
    wall = [(0.0, 0.0), (0.6, 0.0), (0.6, 0.7), (0.6, 1.4), (0.5, 1.4), (0.5, 0.7), (0.5, 0.12), (0.0, 0.12)]
    angles = np.linspace(-1.35, 1.35, 9)
    handle = np.stack([0.52 + 0.4 * np.cos(angles), 0 * angles, 0.7 + 0.42 * np.sin(angles)], -1)
    return [_revolved(wall), _swept(handle, np.full(9, 0.07), np.array((0.0, -1.0, 0.0)), 8, closed=False)]


def _bottle() -> list[Part]:
    profile = [(0.0, 0.0), (0.4, 0.0), (0.42, 0.1), (0.42, 0.6), (0.42, 1.1), (0.34, 1.32), (0.2, 1.48), (0.14, 1.62)]
    return [_revolved([*profile, (0.14, 1.9), (0.17, 1.92), (0.17, 2.0), (0.0, 2.0)])]


def _ellipsoid() -> list[Part]:
    return [_stretched(part, (1.0, 0.7, 0.5)) for part in _sphere()]


def _l_block() -> list[Part]:
    polygon = np.array([(0.0, 0.0), (1.5, 0.0), (1.5, 0.5), (0.5, 0.5), (0.5, 1.2), (0.0, 1.2)])
    return [_extruded(polygon, 0.5, [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)])]


def _star() -> list[Part]:
    angles = math.pi * np.arange(10) / 5
    radii = np.where(np.arange(10) % 2, 0.45, 1.0)
    polygon = np.stack([radii * np.cos(angles), radii * np.sin(angles)], -1)
    inner = [(1, 3, 5), (1, 5, 7), (1, 7, 9)]
    points = [((i - 1) % 10, i, (i + 1) % 10) for i in range(0, 10, 2)]
    return [_extruded(polygon, 0.5, points + inner)]


_MAKERS: dict[str, Callable[[], list[Part]]] = {
    "box": _box,
    "sphere": _sphere,
    "cone": _cone,
    "cylinder": _cylinder,
    "capsule": _capsule,
    "torus": _torus,
    "banana": _banana,
    "apple": _apple,
    "pear": _pear,
    "mug": _mug,
    "bottle": _bottle,
    "ellipsoid": _ellipsoid,
    "l_block": _l_block,
    "star": _star,
}

TOYS: tuple[str, ...] = tuple(_MAKERS)
"""Names of the forms that `toy` makes."""
