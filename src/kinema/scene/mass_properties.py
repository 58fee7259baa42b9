"""Helpers to build robots in Python: mass properties of solid shapes, shapes between two points, rotations."""

from __future__ import annotations

import math

import numpy as np

from kinema.errors import InputError
from kinema.scene.description import CAPSULE, CYLINDER, MassProperties, Pose, Quaternion, Shape, Vector
from kinema.scene.io.poses import matrix, turned_inertia
from kinema.scene.shape_kinds import weigh


def mass_properties(*shapes: Shape, density: float = 1000.0, mass: float | None = None) -> MassProperties:
    """Mass, centre of mass and inertia of shapes of uniform density, for `Body(mass=...)`.

    Overlaps count twice; a mesh counts as its convex hull.

    Args:
        shapes: Shapes in the body's frame.
        density: [kg/m^3]
        mass: Total mass [kg], in place of the density.

    Returns:
        Mass, centre of mass and inertia in the body's frame.

    Raises:
        InputError: No shape is given, a shape has no volume, or the mass is not positive.
    """
    parts = [weigh(shape) for shape in shapes]
    volume = sum(part for part, _, _ in parts)
    scale = density if mass is None else mass / volume if volume else 0.0
    if not (0 < scale < math.inf and volume > 0):
        got = f"density {density:g} kg/m^3, mass {mass} kg, volume {volume:g} m^3"
        raise InputError("the body has no mass", got=got, expected="a positive mass and shapes with a volume")
    poses = [shape.pose for shape in shapes]
    places = np.array([p.position + matrix(p.rotation) @ c for p, (_, c, _) in zip(poses, parts, strict=True)])
    com = np.array([part for part, _, _ in parts]) @ places / volume
    total = np.zeros((3, 3))
    for pose, place, (part, _, moments) in zip(poses, places, parts, strict=True):
        xx, xy, xz, yy, yz, zz = turned_inertia(moments, pose.rotation)
        arm = place - com
        total += np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        total += part * (arm @ arm * np.eye(3) - np.outer(arm, arm))  # parallel axis theorem
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = (scale * total).tolist()
    x, y, z = com.tolist()
    return MassProperties(scale * volume, (x, y, z), (xx, xy, xz, yy, yz, zz))


def capsule_between(start: Vector, end: Vector, radius: float, **options: object) -> Shape:
    """A capsule whose caps are centred at two points of the body's frame.

    Args:
        start: [m]
        end: [m], different from `start`.
        radius: [m]
        options: Further attributes of `Shape`.
    """
    return _between(CAPSULE, start, end, radius, options)


def cylinder_between(start: Vector, end: Vector, radius: float, **options: object) -> Shape:
    """A cylinder whose end faces are centred at two points of the body's frame; arguments as in `capsule_between`."""
    return _between(CYLINDER, start, end, radius, options)


def quaternion(angle: float, axis: str) -> Quaternion:
    """The unit quaternion (w, x, y, z) of a rotation about a coordinate axis, for `rot=` and `Pose`.

    Args:
        angle: [rad], counter-clockwise seen from the tip of the axis.
        axis: "x", "y" or "z".

    Raises:
        InputError: The axis is unknown.
    """
    if axis not in ("x", "y", "z"):
        raise InputError("unknown rotation axis", got=repr(axis), expected="'x', 'y' or 'z'")
    x, y, z = (math.sin(angle / 2) * (axis == name) for name in "xyz")
    return math.cos(angle / 2), x, y, z


def _between(kind: str, start: Vector, end: Vector, radius: float, options: dict[str, object]) -> Shape:
    along = np.subtract(end, start)
    length = float(np.linalg.norm(along))
    if not 0 < length < math.inf:
        raise InputError(f"a {kind} needs two distinct ends", got=f"{start} and {end}", expected="two different points")
    x, y, z = (along if along[2] >= 0 else -along).tolist()  # the shape is symmetric
    w = 1 + z / length
    norm = math.hypot(w, x / length, y / length)
    rotation = (w / norm, -y / length / norm, x / length / norm, 0.0)  # rotates z onto the line
    a, b, c = (np.add(start, end) / 2).tolist()
    return Shape(kind, (radius, length / 2), Pose((a, b, c), rotation), **options)  # type: ignore[arg-type]
