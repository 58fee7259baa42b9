"""Solid shapes against planes: candidates are spheres at the lowest points of a shape over the plane.

The second shape of a pair is a plane: the half space z < 0 of its frame is solid. Spheres at corners have radius 0.
"""

from __future__ import annotations

from kinema.contact.collision.narrow_phase import (
    Pairs,
    Shapes,
    Touch,
    pair_at,
    pick,
    place,
    positive,
    put,
    put_none,
    turn,
    turn_columns,
    widest,
)
from kinema.lang import (
    Array,
    Float,
    abs,
    columns_of,
    cross,
    dot,
    func,
    kernel,
    mat33,
    norm,
    shared,
    static,
    transpose,
    vec3,
)

STANDING = 1e-3  # sine of the tilt below which a cylinder stands upright
SINE = 0.8660254037844386  # of 120 degrees; the cosine is -1/2


@func
def put_over(touch, at, x: vec3, r: Float, n: vec3, p_WP: vec3):
    """Store the candidate of a sphere at x of radius r [m] over the plane through p_WP [m] with unit normal n."""
    gap = dot(n, x - p_WP) - r
    put(touch, at, gap, x - (r + 0.5 * gap) * n, n)


@func
def over_plane(shapes, pairs, i, R, p, margin: Float):
    """Shape and plane of pair i.

    Pose R1, p1 [m] and size of the shape, normal and a point [m] of the plane, whether the shape is near, and the first
    candidate.
    """
    a, b, at = pair_at(pairs, i)
    R1, p1 = place(shapes, a, R, p)
    R2, p2 = place(shapes, b, R, p)
    _, _, n = columns_of(R2)
    return R1, p1, shapes.size[a], n, p2, dot(n, p1 - p2) < shapes.reach[a] + margin, at


@kernel
def touch_sphere_plane(shapes: Shapes, pairs: Pairs, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch):
    """A sphere over a plane, one candidate.

    Gradients:
        Exact.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        _, p1, size, n, p2, near, at = over_plane(shapes, pairs, i, R, p, margin)
        if near:
            put_over(touch, at, p1, size.x, n, p2)
        else:
            put_none(touch, at)


@kernel
def touch_capsule_plane(shapes: Shapes, pairs: Pairs, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch):
    """A capsule over a plane, two candidates: its ends.

    Gradients:
        Exact.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        R1, p1, size, n, p2, near, at = over_plane(shapes, pairs, i, R, p, margin)
        _, _, u = columns_of(R1)
        for k in static(2):
            if near:
                put_over(touch, at + k, p1 + (2.0 * k - 1.0) * size.y * u, size.x, n, p2)
            else:
                put_none(touch, at + k)


@kernel
def touch_box_plane(shapes: Shapes, pairs: Pairs, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch):
    """A box over a plane, four candidates: the corners of the face that faces the plane most directly.

    They include the lowest corner, and both ends of an edge on which the box stands.

    Gradients:
        Exact.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        R1, p1, size, n, p2, near, at = over_plane(shapes, pairs, i, R, p, margin)
        against = transpose(R1) @ n
        k = widest(vec3(abs(against.x), abs(against.y), abs(against.z)))
        x, y, z = turn_columns(R1, k)
        half = turn(size, k)
        middle = p1 - positive(pick(against, k)) * half.z * z
        for c in static(4):
            if near:
                corner = middle + (2.0 * (c % 2) - 1.0) * half.x * x + (2.0 * (c // 2) - 1.0) * half.y * y
                put_over(touch, at + c, corner, 0.0, n, p2)
            else:
                put_none(touch, at + c)


@kernel
def touch_cylinder_plane(shapes: Shapes, pairs: Pairs, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch):
    """A cylinder over a plane, four candidates: the lowest points of both rims, and two more of the lower rim.

    The cylinder rolls on the first two, and stands on the lowest point and the two points of the same rim at 120
    degrees from it. Within 1 mrad of upright the point where the x axis of the cylinder's frame meets the rim replaces
    the lowest point, so that a standing cylinder rests on three fixed points; they are at most 2e-3 radii higher than
    the lowest point of the rim.

    Gradients:
        Exact for the points found; the derivatives of the lowest points grow as the cylinder becomes upright, up to
        1000 radii.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        R1, p1, size, n, p2, near, at = over_plane(shapes, pairs, i, R, p, margin)
        r, h = size.x, size.y
        x, _, u = columns_of(R1)
        if near:
            slope = dot(u, n) * u - n
            tilt = norm(slope)
            down = slope / tilt if tilt > STANDING else x
            across = cross(u, down)
            low = -positive(dot(u, n)) * h * u
            put_over(touch, at, p1 + low + r * down, 0.0, n, p2)
            put_over(touch, at + 1, p1 - low + r * down, 0.0, n, p2)
            for k in static(2):
                away = -0.5 * down + (2.0 * k - 1.0) * SINE * across
                put_over(touch, at + 2 + k, p1 + low + r * away, 0.0, n, p2)
        else:
            for k in static(4):
                put_none(touch, at + k)
