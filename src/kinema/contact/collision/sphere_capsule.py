"""Spheres and capsules against each other: segments with a radius.

A sphere is a capsule of half length 0. The closest points of two segments, x1 = c1 + s u1 and x2 = c2 + t u2 with unit
directions, have a closed form [Ericson 2005, sec. 5.1.9]: clamp s of the closest points of both lines, clamp t closest
to it, and clamp s closest to that. Clamps propagate derivatives, so the derivatives of the closest points are exact.
"""

from __future__ import annotations

from kinema.contact.collision.narrow_phase import (
    Pairs,
    Shapes,
    Touch,
    direction,
    pair_at,
    place,
    put,
    put_none,
    within_reach,
)
from kinema.lang import (
    Array,
    Float,
    abs,
    clamp,
    columns_of,
    cross,
    dot,
    func,
    kernel,
    mat33,
    max,
    min,
    norm,
    shared,
    vec3,
)

PARALLEL = 1e-6  # square of the sine of an angle: segments below it are parallel


@func
def closest_points(d: vec3, u1: vec3, h1: Float, u2: vec3, h2: Float):
    """Closest points of two segments: s along u1 and t along u2 [m] from their centres, with d = c1 - c2.

    For parallel segments side by side it is the lower end (along u1) of their overlap.
    """
    b, e, f = dot(u1, u2), dot(u1, d), dot(u2, d)
    w = cross(u1, u2)
    sine2 = dot(w, w)
    if sine2 > PARALLEL:
        first = (b * f - e) / sine2
    else:
        first = -abs(b) * h2 - e
    t = clamp(f + b * clamp(first, -h1, h1), -h2, h2)
    return clamp(b * t - e, -h1, h1), t


@func
def other_end(d: vec3, u1: vec3, h1: Float, u2: vec3, h2: Float, s: Float):
    """The end of the overlap of two segments, along u1, that is farther from s: s and t there, and its length [m].

    The overlap is the part where points of one segment are beside points of the other; without an overlap its length is
    negative. Its end is an end of one of the segments, paired with the closest point of the other.
    """
    b, e, f = dot(u1, u2), dot(u1, d), dot(u2, d)
    side = 1.0 if b >= 0.0 else -1.0
    low, high = max(-h1, -side * b * h2 - e), min(h1, side * b * h2 - e)
    up = 1.0 if high - s > s - low else -1.0
    if (-side * b * h2 - e > -h1) if up < 0.0 else (side * b * h2 - e < h1):
        t = up * side * h2
        return clamp(b * t - e, -h1, h1), t, high - low
    return up * h1, clamp(f + b * up * h1, -h2, h2), high - low


@func
def put_balls(touch, at, x1: vec3, r1: Float, x2: vec3, r2: Float):
    """Store the candidate of two spheres: centres x1, x2 [m], radii [m]."""
    d = x1 - x2
    n = direction(d)
    put(touch, at, norm(d) - r1 - r2, 0.5 * (x1 + x2 + (r2 - r1) * n), n)


@kernel
def touch_sphere_round(shapes: Shapes, pairs: Pairs, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch):
    """A sphere or capsule against a sphere or capsule: their closest points, one candidate.

    Gradients:
        Exact. Where the centre lines meet (closer than 1e-9 m), the normal is +z with derivative 0 and the gap has
        no derivative with respect to poses. Capsules within 1 mrad of parallel touch at one end of their overlap.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, b, at = pair_at(pairs, i)
        R1, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        if within_reach(shapes, a, b, p1, p2, margin):
            _, _, u1 = columns_of(R1)
            _, _, u2 = columns_of(R2)
            s, t = closest_points(p1 - p2, u1, shapes.size[a].y, u2, shapes.size[b].y)
            put_balls(touch, at, p1 + s * u1, shapes.size[a].x, p2 + t * u2, shapes.size[b].x)
        else:
            put_none(touch, at)


@kernel
def touch_capsule_capsule(shapes: Shapes, pairs: Pairs, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch):
    """Two capsules, two candidates: their closest points, and the end of their overlap that is farther from these.

    The second candidate lets a capsule rest along another. It is the sphere at an end of one capsule against the other
    capsule, and so a true distance at any angle. It does not exist if no part of one capsule is beside the other.

    Gradients:
        Exact, as for `touch_sphere_round`.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, b, at = pair_at(pairs, i)
        R1, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        if within_reach(shapes, a, b, p1, p2, margin):
            _, _, u1 = columns_of(R1)
            _, _, u2 = columns_of(R2)
            r1, h1, r2, h2 = shapes.size[a].x, shapes.size[a].y, shapes.size[b].x, shapes.size[b].y
            s, t = closest_points(p1 - p2, u1, h1, u2, h2)
            put_balls(touch, at, p1 + s * u1, r1, p2 + t * u2, r2)
            s, t, overlap = other_end(p1 - p2, u1, h1, u2, h2, s)
            if overlap > 0.0:
                put_balls(touch, at + 1, p1 + s * u1, r1, p2 + t * u2, r2)
            else:
                put_none(touch, at + 1)
        else:
            put_none(touch, at)
            put_none(touch, at + 1)
