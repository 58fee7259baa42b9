"""Table of shape kinds: sizes, mass, extent, convex hull, and names in robot files.

Checks, mass properties, readers, the model's arrays, storage and `kinema check` look a kind up here. Its triangles are
in `rendering/triangles.py`; the table of colliding pairs is in `model/broad_phase.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kinema.errors import InputError
from kinema.scene.convex_hull import Hull, convex_hull, cube, prism
from kinema.scene.description import (
    BOX,
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    MESH,
    PLANE,
    SPHERE,
    TERRAIN,
    Mesh,
    Shape,
    Vector,
)

SIDES = 24  # of the prism that approximates a cylinder against everything except planes

Solid = tuple[float, np.ndarray, np.ndarray]
"""A solid of density 1: volume [m^3], centre of mass [m] and inertia about it [m^5], in the shape's frame."""


@dataclass(frozen=True)
class ShapeKind:
    """A shape kind.

    Attributes:
        word: Value of `Shape.kind`.
        sizes: Meaning of the entries of `Shape.size`, all in [m].
        reach: Bounding radius about the origin of the shape's frame [m]; infinite for unbounded shapes.
        solid: Volume, centre of mass and inertia at density 1; None for shapes without volume.
        corners: Convex hull at unit sizes; None for round shapes and shapes without a hull.
        ends: Centres of the round ends as multiples of its size, with its first size as radius; empty for polyhedra.
        axial: Whether its sizes are a radius and a half length along z: they scale x, y and z by radius, radius and
            half length.
        meshed: Whether its geometry is `Shape.mesh`; its size is then (1, 1, 1).
        concave: Whether all its triangles collide, not their convex hull: only on static bodies.
        urdf: Name in URDF, if it is a primitive there.
        mjcf: Name in MJCF.
        smooth: Whether it is round and has no ends with a radius.
    """

    word: str
    sizes: tuple[str, ...]
    reach: Callable[[Shape], float]
    solid: Callable[[Shape], Solid] | None = None
    corners: Callable[[Shape], Hull] | None = None
    ends: tuple[Vector, ...] = ()
    axial: bool = False
    meshed: bool = False
    concave: bool = False
    urdf: str = ""
    mjcf: str = ""
    smooth: bool = False


def three_sizes(shape: Shape) -> tuple[float, ...]:
    """The sizes of a shape, padded to three numbers; (1, 1, 1) for meshes."""
    return (1.0, 1.0, 1.0) if SHAPE_KINDS[shape.kind].meshed else (*shape.size, 0.0, 0.0, 0.0)[:3]


def _mesh(shape: Shape) -> Mesh:
    if shape.mesh is None:
        raise InputError(f"a {shape.kind} has no triangles", fix="Shape(..., mesh=kinema.read_obj(...))")
    return shape.mesh


def _farthest(shape: Shape) -> float:
    return float(np.linalg.norm(_mesh(shape).vertices, axis=1).max())


def _sum(shape: Shape) -> float:
    return float(sum(shape.size))


def _diagonal(shape: Shape) -> float:
    return float(np.linalg.norm(shape.size))


def _along_axes(volume: float, moments: tuple[float, float, float]) -> Solid:
    return volume, np.zeros(3), np.diag(moments)


def _ball(shape: Shape) -> Solid:
    (r,) = shape.size
    volume = 4 / 3 * math.pi * r**3
    return _along_axes(volume, (0.4 * volume * r * r,) * 3)


def _block(shape: Shape) -> Solid:
    x, y, z = shape.size
    volume = 8 * x * y * z
    moments = volume / 3 * (y * y + z * z), volume / 3 * (x * x + z * z), volume / 3 * (x * x + y * y)
    return _along_axes(volume, moments)


def _egg(shape: Shape) -> Solid:
    x, y, z = shape.size
    volume = 4 / 3 * math.pi * x * y * z
    moments = volume / 5 * (y * y + z * z), volume / 5 * (x * x + z * z), volume / 5 * (x * x + y * y)
    return _along_axes(volume, moments)


def _rod(shape: Shape) -> Solid:
    r, h = shape.size
    tube, caps = 2 * math.pi * r * r * h, 4 / 3 * math.pi * r**3 * (shape.kind == CAPSULE)
    across = tube * (h * h / 3 + r * r / 4)
    across += caps * (0.4 * r * r + 0.75 * r * h + h * h)  # each half's centre is 3/8 r beyond the tube's end
    return _along_axes(tube + caps, (across, across, (tube / 2 + 0.4 * caps) * r * r))


def _polyhedron(shape: Shape) -> Solid:
    """Mass properties of the convex hull, summed over the tetrahedra of its faces."""
    hull = _hull(shape)
    first, volume, moment, second = hull.vertices[0], 0.0, np.zeros(3), np.zeros((3, 3))
    for face in hull.faces:
        for k in range(1, len(face) - 1):
            corners = hull.vertices[[face[0], face[k], face[k + 1]]] - first
            part, total = float(np.linalg.det(corners)) / 6, corners.sum(0)
            volume += part
            moment += part / 4 * total
            second += part / 20 * (corners.T @ corners + np.outer(total, total))  # the integral of x x^T
    centre = moment / volume
    second -= volume * np.outer(centre, centre)
    return volume, first + centre, np.trace(second) * np.eye(3) - second


def _hull(shape: Shape) -> Hull:
    return convex_hull(_mesh(shape).vertices)


RADIUS, HALF_LENGTH = "radius", "half length"

_ROWS = (
    ShapeKind(PLANE, (), lambda _: math.inf, mjcf="plane"),
    ShapeKind(SPHERE, (RADIUS,), _sum, _ball, ends=((0.0, 0.0, 0.0),), urdf="sphere", mjcf="sphere"),
    ShapeKind(
        CAPSULE,
        (RADIUS, HALF_LENGTH),
        _sum,
        _rod,
        ends=((0.0, 0.0, -1.0), (0.0, 0.0, 1.0)),
        axial=True,
        urdf="capsule",
        mjcf="capsule",
    ),
    ShapeKind(
        CYLINDER,
        (RADIUS, HALF_LENGTH),
        _sum,
        _rod,
        lambda _: prism(SIDES),
        axial=True,
        urdf="cylinder",
        mjcf="cylinder",
    ),
    ShapeKind(
        BOX, ("half of x", "half of y", "half of z"), _diagonal, _block, lambda _: cube(), urdf="box", mjcf="box"
    ),
    ShapeKind(
        ELLIPSOID,
        ("half axis x", "half axis y", "half axis z"),
        lambda shape: float(max(shape.size)),
        _egg,
        mjcf="ellipsoid",
        smooth=True,
    ),
    ShapeKind(MESH, (), _farthest, _polyhedron, _hull, meshed=True, mjcf="mesh"),
    ShapeKind(TERRAIN, (), _farthest, meshed=True, concave=True, mjcf="hfield"),
)

SHAPE_KINDS = {row.word: row for row in _ROWS}
"""Shape kinds by `Shape.kind`."""


def weigh(shape: Shape) -> Solid:
    """Mass properties at density 1: volume [m^3], centre of mass [m] and inertia about it [m^5], in the shape's frame.

    Raises:
        InputError: The shape has no volume.
    """
    solid = SHAPE_KINDS[shape.kind].solid if shape.kind in SHAPE_KINDS else None
    if solid is None:
        *others, last = (row.word for row in _ROWS if row.solid is not None)
        raise InputError(f"a {shape.kind} has no mass of its own", expected=f"a {', '.join(others)} or {last}")
    return solid(shape)
