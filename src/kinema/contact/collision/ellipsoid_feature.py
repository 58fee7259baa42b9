"""Ellipsoids against points, lines and faces: unit normals and signed gaps, in the frame of the ellipsoid.

An ellipsoid with half axes s is |x / s| <= 1; in the direction m it reaches |s m|, at s^2 m / |s m|. Against a convex
body with corners y the gap along m, out of the ellipsoid, is min(m . y) - |s m|, and the normal maximises it. Where the
body shows a corner, the normal is that of the ellipsoid at the point nearest to it; where it shows an edge, the same
holds of the shadows of both along the edge; a face has its own. The former two need the root t of a secular equation

    sum_i (s_i y_i / (s_i^2 + t))^2 = 1,    m ~ y / (s^2 + t)                                    [Eberly 2013]    (1)

The search for the root has no derivative; one step of Newton's method after it has that of the implicit function.
"""

from __future__ import annotations

from kinema.contact.collision.narrow_phase import TINY, times
from kinema.lang import (
    Float,
    abs,
    atan2,
    cos,
    cross,
    detach,
    dot,
    func,
    max,
    min,
    norm,
    normalize,
    select,
    sin,
    sqrt,
    vec2,
    vec3,
)

STEPS = 40  # of Newton's method; it converges from below, in about six
NEARLY = 1e-14  # relative precision of the root
CENTRAL = (
    1e-7  # distance from a plane of symmetry, relative to the half axis, below which inner points count as beside it
)


@func
def detached(v: vec3):
    """The same vector, with derivative 0."""
    return vec3(detach(v.x), detach(v.y), detach(v.z))


@func
def over(a: vec3, b: vec3):
    """Component-wise quotient."""
    return vec3(a.x / b.x, a.y / b.y, a.z / b.z)


@func
def beside_centre(x: Float, s: Float):
    """An inner point's coordinate, not 0: points of the symmetry planes have two nearest points."""
    return select(abs(x) >= CENTRAL * s, x, select(x >= 0.0, CENTRAL * s, -CENTRAL * s))


@func
def pushed_off(s: vec3, y: vec3):
    """The point itself, or if it is inside, a point at least CENTRAL beside the planes of symmetry."""
    u = over(y, s)
    inside = dot(u, u) < 1.0
    moved = vec3(beside_centre(y.x, s.x), beside_centre(y.y, s.y), beside_centre(y.z, s.z))
    return select(inside, moved, y)


@func
def secular_root(s: vec3, y: vec3):
    """The root t > -min(s)^2 of (1), for a point off the planes of symmetry or outside of the ellipsoid."""
    square = times(s, s)
    sy = vec3(s.x * abs(y.x), s.y * abs(y.y), s.z * abs(y.z))
    t = max(max(sy.x - square.x, sy.y - square.y), sy.z - square.z)  # no term exceeds 1 at the root
    for _ in range(STEPS):
        w = vec3(sy.x / (square.x + t), sy.y / (square.y + t), sy.z / (square.z + t))
        excess = dot(w, w) - 1.0
        if excess <= NEARLY:
            break
        slope = w.x * w.x / (square.x + t) + w.y * w.y / (square.y + t) + w.z * w.z / (square.z + t)
        t = t + 0.5 * excess / slope
    return t


@func
def towards_point(s: vec3, given: vec3):
    """Unit normal of the ellipsoid at its surface point nearest to a point [m]."""
    y = pushed_off(s, given)
    t = secular_root(detached(s), detached(y))
    square = times(s, s)
    w = vec3(s.x * y.x / (square.x + t), s.y * y.y / (square.y + t), s.z * y.z / (square.z + t))
    slope = w.x * w.x / (square.x + t) + w.y * w.y / (square.y + t) + w.z * w.z / (square.z + t)
    t = t + 0.5 * (dot(w, w) - 1.0) / detach(slope)
    return normalize(vec3(y.x / (square.x + t), y.y / (square.y + t), y.z / (square.z + t)))


@func
def shadow_root(a: Float, b: Float, c: Float, z: vec2):
    """The root of (1) for the point z and the ellipse of the matrix ((a, b), (b, c)) of its squared half axes.

    Also returns the displacement of an inner point off the axes, see `pushed_off`.
    """
    turn = 0.5 * atan2(2.0 * b, a - c)
    mean, far = 0.5 * (a + c), sqrt(0.25 * (a - c) * (a - c) + b * b)
    s1 = sqrt(mean + far)
    s2 = sqrt(max((a * c - b * b) / (mean + far), 0.0))  # their product is the determinant
    plain = vec3(cos(turn) * z.x + sin(turn) * z.y, cos(turn) * z.y - sin(turn) * z.x, 0.0)
    y = pushed_off(vec3(s1, s2, s1), plain)
    moved = y - plain
    t = secular_root(vec3(s1, s2, s1), vec3(y.x, y.y, 0.0))
    return t, vec2(cos(turn) * moved.x - sin(turn) * moved.y, sin(turn) * moved.x + cos(turn) * moved.y)


@func
def towards_line(s: vec3, y: vec3, u: vec3):
    """Unit normal of the ellipsoid where its shadow along the unit vector u is nearest to that of the point y [m]."""
    side = cross(u, select(abs(u.x) < 0.6, vec3(1.0, 0.0, 0.0), vec3(0.0, 1.0, 0.0)))
    e1 = normalize(side)
    e2 = cross(u, e1)
    square = times(s, s)
    a, b, c = dot(e1, times(square, e1)), dot(e1, times(square, e2)), dot(e2, times(square, e2))
    z = vec2(dot(e1, y), dot(e2, y))
    t, moved = shadow_root(detach(a), detach(b), detach(c), vec2(detach(z.x), detach(z.y)))
    z = z + moved
    # w = (P + t)^-1 z; g = w . P w - 1 has the derivative -2 w . (P + t)^-1 P w by t.
    det = (a + t) * (c + t) - b * b
    w = vec2(((c + t) * z.x - b * z.y) / det, ((a + t) * z.y - b * z.x) / det)
    v = vec2(a * w.x + b * w.y, b * w.x + c * w.y)
    back = vec2(((c + t) * v.x - b * v.y) / det, ((a + t) * v.y - b * v.x) / det)
    t = t + 0.5 * (dot(w, v) - 1.0) / detach(dot(w, back))
    det = (a + t) * (c + t) - b * b
    w = vec2(((c + t) * z.x - b * z.y) / det, ((a + t) * z.y - b * z.x) / det)
    return normalize(w.x * e1 + w.y * e2)


@func
def extent(s: vec3, m: vec3):
    """How far the ellipsoid reaches along m [m]."""
    return norm(times(s, m))


@func
def farthest(s: vec3, m: vec3):
    """Its farthest point along m [m]."""
    return times(times(s, s), m) / norm(times(s, m))


@func
def along_edge(a: vec3, b: vec3, x: vec3):
    """Where x is seen from an edge from a to b: 0 at a, 1 at b."""
    d = b - a
    return dot(x - a, d) / max(dot(d, d), TINY * TINY)


@func
def least_of(v: vec3):
    """Index of the smallest component, the first one on a tie."""
    k = select(v.y < v.x, 1, 0)
    return select(v.z < min(v.x, v.y), 2, k)
