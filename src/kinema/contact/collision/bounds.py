"""Bounds of shapes at one state: boxes along the world's axes, and how far contact may reach within a step."""

from __future__ import annotations

from kinema.contact.collision.narrow_phase import Shapes, place, times
from kinema.lang import (
    Array,
    Float,
    Index,
    Int,
    abs,
    columns_of,
    cross,
    dot,
    kernel,
    mat33,
    max,
    min,
    norm,
    record,
    select,
    static,
    vec3,
)
from kinema.math import Motion

GROWN = 1e-6  # of the distance from the origin: more than rounding errors of a box, also in single precision
CLOSING = 2.0  # two shapes approach each other with at most twice the largest speed
RESERVE = 100.0  # [m/s^2], accelerations that the reach of contact allows for


@record
class Extents:
    """Boxes around shapes in their frames: rounded boxes, as multiples of the size of a shape.

    middle, half: Centre and half extents.
    swell: Radius of the rounding as a multiple of the first component of the size: 1 for spheres and capsules.
    axial: 1 if the size is (radius, half length), which scales x, y and z by radius, radius and half length.
    flat: 1 for planes.
    """

    middle: Array[vec3]
    half: Array[vec3]
    swell: Array[Float]
    axial: Array[Int]
    flat: Array[Int]


@record
class Bounds:
    """Boxes around shapes, along the world's axes, and the largest speed of a point of each shape.

    low, high: Corners [m]; of a plane, its normal, and (its offset along the normal, 0, 0).
    speed: [m/s].
    """

    low: Array[vec3]
    high: Array[vec3]
    speed: Array[Float]


@kernel
def bound_shapes(
    s: Index,
    root: Array[Int],
    R: Array[mat33],
    p: Array[vec3],
    V: Array[Motion],
    shapes: Shapes,
    extents: Extents,
    bounds: Bounds,
):
    """Boxes around all shapes, and their speeds.

    root: Link at the root of each link's tree.
    """
    turn, at = place(shapes, s, R, p)
    size = shapes.size[s]
    scale = select(extents.axial[s] == 1, vec3(size.x, size.x, size.y), size)
    half, swell = times(scale, extents.half[s]), abs(extents.swell[s] * size.x)
    centre = at + turn @ times(scale, extents.middle[s])
    x, y, z = columns_of(turn)
    swell = swell + GROWN * (norm(centre) + norm(half) + swell)
    reach = vec3(swell, swell, swell)
    for k in static(3):
        column = x if k == 0 else (y if k == 1 else z)
        reach = reach + abs(half[k]) * vec3(abs(column.x), abs(column.y), abs(column.z))
    low, high = centre - reach, centre + reach
    if extents.flat[s] == 1:
        low, high = z, vec3(dot(z, at), 0.0, 0.0)
    bounds.low[s] = low
    bounds.high[s] = high
    link, speed = shapes.link[s], 0.0
    if link > 0:
        arm = centre - p[root[link - 1]]
        speed = norm(V[link].v + cross(V[link].w, arm)) + norm(V[link].w) * (norm(half) + swell)
    bounds.speed[s] = speed


@kernel
def reach_of_step(bounds: Bounds, dt: Float, margin: Float, reach: Array[Float]):
    """Gap up to which two shapes may meet within a step [m], at most the margin.

    Impacts without restitution make nothing faster: shapes close a gap with at most twice the largest speed, and with
    what forces add, for which there is a reserve.
    """
    fastest = 0.0
    for s in range(len(bounds.speed)):
        fastest = max(fastest, bounds.speed[s])
    reach[0] = min(margin, dt * (CLOSING * fastest + RESERVE * dt))
