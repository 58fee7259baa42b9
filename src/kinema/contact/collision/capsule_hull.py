"""Capsules against convex hulls, in the frame of the hull: the centre line q + s u, |s| <= h, against faces and edges.

If the line stays outside, the nearest features are an end of the line and the face below it, or the line and an edge.
If it intersects the hull, the normal is the axis of least overlap: a face normal, or the cross product of the line and
a silhouette edge, one of whose faces points along the line and the other one against it.
"""

from __future__ import annotations

from kinema.contact.collision.hulls import Hulls, beside_face, face_plane, hull_scale, next_corner
from kinema.contact.collision.narrow_phase import (
    TINY,
    Pairs,
    Shapes,
    Touch,
    direction,
    pair_at,
    place,
    positive,
    put_none,
    times,
    within_reach,
)
from kinema.contact.collision.sphere_capsule import closest_points
from kinema.contact.collision.sphere_capsule_box import put_ball
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
    max,
    min,
    norm,
    normalize,
    shared,
    transpose,
    vec3,
)

BIAS = 1e-3  # margin by which an edge must be better than a face, relative to the smaller reach
PARALLEL = 1e-6  # square of the sine of the angle below which a line and an edge are parallel


@func
def line_over_faces(hulls, i, scale: vec3, q: vec3, u: vec3, h: Float):
    """The face over which the line's lower end is highest, its height [m], and whether the line intersects the hull."""
    best, face = -1e30, hulls.face_start[i]
    low, high = -h, h
    for k in range(hulls.face_count[i]):
        f = hulls.face_start[i] + k
        n, offset = face_plane(hulls, f, scale)
        middle, rate = dot(n, q) - offset, dot(n, u)
        if middle - abs(rate) * h > best:
            best, face = middle - abs(rate) * h, f
        if rate > TINY:
            high = min(high, -middle / rate)
        elif rate < -TINY:
            low = max(low, -middle / rate)
        elif middle > 0.0:
            low, high = 1.0, -1.0
    return face, best, low <= high


@func
def edge_segment(hulls, e, scale: vec3):
    """Midpoint [m], unit direction and half length [m] of an edge."""
    x, y = times(scale, hulls.vertex[hulls.edge_from[e]]), times(scale, hulls.vertex[hulls.edge_to[e]])
    return 0.5 * (x + y), normalize(y - x), 0.5 * norm(y - x)


@func
def nearest_edge(hulls, i, scale: vec3, q: vec3, u: vec3, h: Float):
    """The edge of shape i's hull nearest to the line, the first one on a tie."""
    best, edge = 1e30, hulls.edge_start[i]
    for k in range(hulls.edge_count[i]):
        e = hulls.edge_start[i] + k
        c, along, half = edge_segment(hulls, e, scale)
        s, t = closest_points(q - c, u, h, along, half)
        d = q + s * u - c - t * along
        if dot(d, d) < best:
            best, edge = dot(d, d), e
    return edge


@func
def across_edge(hulls, e, scale: vec3, q: vec3, u: vec3):
    """A line against an edge: s on the line [m], distance along the common normal out of the hull [m], the normal."""
    c, along, _ = edge_segment(hulls, e, scale)
    n1, _ = face_plane(hulls, hulls.edge_left[e], scale)
    n2, _ = face_plane(hulls, hulls.edge_right[e], scale)
    w = cross(u, along)
    n = w * (positive(dot(w, n1 + n2)) / norm(w))
    d = q - c
    s = (dot(u, along) * dot(along, d) - dot(u, d)) / dot(w, w)
    return s, dot(n, d), n


@func
def leaving_edge(hulls, i, scale: vec3, q: vec3, u: vec3):
    """The silhouette edge of least overlap with a line through the hull, and the distance [m], negative."""
    best, edge = -1e30, hulls.edge_start[i]
    for k in range(hulls.edge_count[i]):
        e = hulls.edge_start[i] + k
        n1, _ = face_plane(hulls, hulls.edge_left[e], scale)
        n2, _ = face_plane(hulls, hulls.edge_right[e], scale)
        c, along, _ = edge_segment(hulls, e, scale)
        w = cross(u, along)
        if dot(n1, u) * dot(n2, u) < 0.0 and dot(w, w) > PARALLEL:
            distance = positive(dot(w, n1 + n2)) * dot(w, q - c) / norm(w)
            if distance > best:
                best, edge = distance, e
    return edge, best


@func
def face_along(hulls, i, scale: vec3, n: vec3):
    """The face of shape i's hull whose normal is closest to a direction."""
    best, face = -2.0, hulls.face_start[i]
    for k in range(hulls.face_count[i]):
        m, _ = face_plane(hulls, hulls.face_start[i] + k, scale)
        if dot(m, n) > best:
            best, face = dot(m, n), hulls.face_start[i] + k
    return face


@func
def line_over_face(hulls, f, scale: vec3, n: vec3, q: vec3, u: vec3, h: Float):
    """The part of the line over face f with normal n: lower and upper s [m], lower > upper if empty."""
    low, high = -h, h
    for k in range(hulls.corner_count[f]):
        x = times(scale, hulls.vertex[hulls.corner[hulls.corner_start[f] + k]])
        out = normalize(cross(times(scale, hulls.vertex[next_corner(hulls, f, k)]) - x, n))
        start, rate = dot(out, q - x), dot(out, u)
        if rate > TINY:
            high = min(high, -start / rate)
        elif rate < -TINY:
            low = max(low, -start / rate)
        elif start > 0.0:
            low, high = h + 1.0, -h - 1.0
    return low, high


@kernel
def touch_capsule_hull(
    shapes: Shapes, pairs: Pairs, hulls: Hulls, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch
):
    """A capsule against a hull, two candidates, as for a box.

    If the centre line stays outside: the point nearest to the hull, and the other end of the line's part over the face
    there. If it intersects the hull: both ends of the line's part over the face of least overlap, or one point at an
    edge.

    Gradients:
        Exact for the features found, also with respect to the scale of the hull.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, b, at = pair_at(pairs, i)
        R1, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        if within_reach(shapes, a, b, p1, p2, margin):
            _, _, axis = columns_of(R1)
            q, u = transpose(R2) @ (p1 - p2), transpose(R2) @ axis
            r, h, scale = shapes.size[a].x, shapes.size[a].y, hull_scale(shapes, hulls, b)
            f, height, through = line_over_faces(hulls, b, scale, q, u, h)
            n, offset = face_plane(hulls, f, scale)
            s = -positive(dot(n, u)) * h
            distance = dot(n, q + s * u) - offset
            two = True
            # Through the hull: the face or the edge of least overlap.
            if through:
                e, edge_height = leaving_edge(hulls, b, scale, q, u)
                if edge_height > height + TINY + BIAS * min(shapes.reach[a], shapes.reach[b]):
                    s, distance, n = across_edge(hulls, e, scale, q, u)
                    two = False
                else:
                    low, high = line_over_face(hulls, f, scale, n, q, u, h)
                    s = low
                    distance = dot(n, q + s * u) - offset
            # Outside: the lower end over the face, or the nearest edge and the face along its normal.
            else:
                if height <= 0.0 or beside_face(hulls, f, scale, n, q + s * u):
                    e = nearest_edge(hulls, b, scale, q, u, h)
                    c, along, half = edge_segment(hulls, e, scale)
                    s, t = closest_points(q - c, u, h, along, half)
                    d = q + s * u - c - t * along
                    if norm(d) > TINY:
                        distance, n = norm(d), direction(d)
                        f = face_along(hulls, b, scale, n)
            put_ball(touch, at, R2, p2, q + s * u, distance, n, r)
            # The other end of the part over the face.
            other = s
            n, offset = face_plane(hulls, f, scale)
            if two:
                low, high = line_over_face(hulls, f, scale, n, q, u, h)
                other = high if through or high - s > s - low else low
                two = through or (low < high and dot(n, q + other * u) > offset)
            if two:
                x = q + other * u
                put_ball(touch, at + 1, R2, p2, x, dot(n, x) - offset, n, r)
            else:
                put_none(touch, at + 1)
        else:
            put_none(touch, at)
            put_none(touch, at + 1)
