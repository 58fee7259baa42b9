"""Shape constructors: `kn.Sphere(0.1)`, `kn.Box((0.2, 0.1, 0.05), friction=0.5, colour="orange")`.

Sizes are HALF sizes, as in `Shape` and in MuJoCo: a box of half sizes (0.5, 0.5, 0.5) is a cube with sides of 1 m.
All take the other attributes of `Shape` as options: pose, name, collides, visible, friction, restitution, group, mask,
and colour, which may also be a name ("orange") or "#rrggbb".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kinema.errors import ModelError
from kinema.scene.colours import rgba
from kinema.scene.convex_hull import convex_hull
from kinema.scene.description import BOX, CAPSULE, CYLINDER, ELLIPSOID, MESH, PLANE, SPHERE, Mesh, Shape
from kinema.scene.names import closest
from kinema.scene.validate import check_shape

OPTIONS = tuple(f.name for f in fields(Shape) if f.name not in ("kind", "size", "mesh"))


def Sphere(radius: float, **options: Any) -> Shape:
    """A sphere about the origin of its frame.

    Args:
        radius: [m]
        options: Further attributes of `Shape`: pose, name, friction, restitution, colour, ...
    """
    return _shape(SPHERE, (radius,), options)


def Capsule(radius: float, half_length: float, **options: Any) -> Shape:
    """A capsule along z.

    Args:
        radius: [m]
        half_length: From the middle to the centre of a cap, without the cap [m].
        options: Further attributes of `Shape`.
    """
    return _shape(CAPSULE, (radius, half_length), options)


def Cylinder(radius: float, half_length: float, **options: Any) -> Shape:
    """A cylinder along z.

    Args:
        radius: [m]
        half_length: From the middle to a face [m].
        options: Further attributes of `Shape`.
    """
    return _shape(CYLINDER, (radius, half_length), options)


def Box(half_sizes: Sequence[float], **options: Any) -> Shape:
    """A box along the axes of its frame.

    Args:
        half_sizes: From the middle to the faces along x, y and z [m].
        options: Further attributes of `Shape`.
    """
    return _shape(BOX, half_sizes, options)


def Ellipsoid(half_axes: Sequence[float], **options: Any) -> Shape:
    """An ellipsoid along the axes of its frame.

    Args:
        half_axes: From the middle to the surface along x, y and z [m].
        options: Further attributes of `Shape`.
    """
    return _shape(ELLIPSOID, half_axes, options)


def Hull(geometry: Mesh | ArrayLike, **options: Any) -> Shape:
    """The convex hull of a mesh or of points, with at most 64 corners.

    Args:
        geometry: A mesh, rendered as it is; or points [m], shape (n, 3), rendered as their hull.
        options: Further attributes of `Shape`.

    Raises:
        InputError: The points lie in one plane, or are not finite.
    """
    return _shape(MESH, (), options, geometry if isinstance(geometry, Mesh) else _hull_mesh(geometry))


def Plane(**options: Any) -> Shape:
    """A plane through the origin of its frame; +z is outside. For static bodies only: `add_body(fixed=True)`.

    Args:
        options: Further attributes of `Shape`.
    """
    return _shape(PLANE, (), options)


def _shape(kind: str, size: Sequence[float], options: dict[str, Any], mesh: Mesh | None = None) -> Shape:
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        what = f"a {kind} has no option {unknown[0]!r}"
        raise ModelError(what, expected=", ".join(OPTIONS), fix=closest(unknown[0], OPTIONS))
    if options.get("colour") is not None:
        options = options | {"colour": rgba(options["colour"])}
    try:
        lengths = tuple(float(x) for x in size)
    except (TypeError, ValueError):
        raise ModelError(f"the size of a {kind} is not a list of numbers", got=size, expected="lengths [m]") from None
    shape = Shape(kind, lengths, mesh=mesh, **options)
    check_shape(shape.name or kind, shape)
    return shape


def _hull_mesh(points: ArrayLike) -> Mesh:
    hull = convex_hull(points)
    triangles = [(face[0], face[k], face[k + 1]) for face in hull.faces for k in range(1, len(face) - 1)]
    return Mesh(np.array(hull.vertices, np.float64), np.array(triangles, np.int32))
