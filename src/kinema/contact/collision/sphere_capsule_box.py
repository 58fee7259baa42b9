"""Spheres and capsules against boxes, in the frame of the box.

The point of a capsule's centre line x = q + s u, |s| <= h, that is nearest to a box minimises the convex function

    phi(s)^2 = sum_k max(|x_k| - half_k, 0)^2

Its slope is piecewise linear and increasing, with kinks where the line crosses the plane of a face. Bisection over
these kinks, at most six, leaves one piece, on which the set of faces that the line is outside of is known; there the
minimum has a closed form, and so does its derivative.
"""

from __future__ import annotations

from kinema.contact.collision.narrow_phase import (
    TINY,
    Pairs,
    Shapes,
    Touch,
    direction,
    pair_at,
    pick,
    place,
    positive,
    put,
    put_none,
    signs,
    times,
    turn,
    unit,
    widest,
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
    select,
    shared,
    sqrt,
    static,
    transpose,
    vec3,
)

PARALLEL = 1e-6  # square of the sine of the angle below which a centre line and an edge are parallel
BIAS = 1e-3  # relative to the smallest half extent of a box
STEEP = 1e-9  # sine of the angle below which a line does not cross a plane


@func
def box_surface(q: vec3, half: vec3):
    """Signed distance [m] of a point q from the surface of a box, and the unit normal at the nearest point.

    Inside, and within TINY of an edge or corner, both belong to the nearest face.
    """
    side = signs(q)
    e = times(side, q) - half
    out = vec3(max(e.x, 0.0), max(e.y, 0.0), max(e.z, 0.0))
    second = max(min(e.x, e.y), min(max(e.x, e.y), e.z))
    if second > 0.0 and norm(out) > TINY:
        return norm(out), times(side, out) / norm(out)
    k = widest(e)
    return pick(e, k), unit(k, pick(side, k))


@func
def put_ball(touch, at, R_WB: mat33, p_WB: vec3, x: vec3, distance: Float, n: vec3, r: Float):
    """Store the candidate of a sphere at x of radius r [m] whose centre has a distance [m] along n from a box."""
    put(touch, at, distance - r, p_WB + R_WB @ (x - 0.5 * (distance + r) * n), R_WB @ n)


@kernel
def touch_sphere_box(shapes: Shapes, pairs: Pairs, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch):
    """A sphere against a box, one candidate: the point of the box nearest to the centre.

    If the centre is inside, the normal points out of the nearest face, the first of x, y, z on a tie.

    Gradients:
        Exact. The derivative of the normal jumps where the nearest feature changes, from face to edge to corner, and on
        the planes inside the box where two faces are equally near.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, b, at = pair_at(pairs, i)
        _, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        if within_reach(shapes, a, b, p1, p2, margin):
            q = transpose(R2) @ (p1 - p2)
            distance, n = box_surface(q, shapes.size[b])
            put_ball(touch, at, R2, p2, q, distance, n, shapes.size[a].x)
        else:
            put_none(touch, at)


@func
def outside(x: vec3, half: vec3):
    """The vector [m] from the nearest point of a solid box to x."""
    return vec3(x.x - clamp(x.x, -half.x, half.x), x.y - clamp(x.y, -half.y, half.y), x.z - clamp(x.z, -half.z, half.z))


@func
def nearest_to_box(q: vec3, u: vec3, h: Float, half: vec3):
    """The point of the segment q + s u, |s| <= h, nearest to a box: s [m], and the vector from the box to it [m].

    The vector is 0 if they intersect. Along a face or edge (a piece of constant distance) s is the lower end of the
    piece.
    """
    low, high = -h, h
    # Bisection over the kinks of phi^2.
    for k in static(3):
        for side in static(-1, 2, 2):
            if abs(u[k]) > STEEP:
                s = (side * half[k] - q[k]) / u[k]
                if s > low and s < high:
                    if dot(u, outside(q + s * u, half)) < 0.0:
                        low = s
                    else:
                        high = s
    # The faces that the line is outside of on this piece, and the minimum there.
    x = q + 0.5 * (low + high) * u
    side = signs(x)
    e = times(side, x) - half
    beyond = vec3(select(e.x > 0.0, 1.0, 0.0), select(e.y > 0.0, 1.0, 0.0), select(e.z > 0.0, 1.0, 0.0))
    v = times(beyond, u)
    rest = times(beyond, q - times(side, half))
    if dot(v, v) > PARALLEL:
        s = clamp(-dot(v, rest) / dot(v, v), -h, h)
    else:
        s = low
    return s, rest + s * v


@func
def over_face(q: vec3, u: vec3, h: Float, half: vec3):
    """The part of the segment q + s u over the face z of a box: lower and upper s [m], lower > upper if empty."""
    low, high = -h, h
    for k in static(2):
        if abs(u[k]) > STEEP:
            s, t = (-half[k] - q[k]) / u[k], (half[k] - q[k]) / u[k]
            low, high = max(low, min(s, t)), min(high, max(s, t))
        elif abs(q[k]) > half[k]:
            low, high = h + 1.0, -h - 1.0
    return low, high


@func
def crossing_axis(q: vec3, u: vec3, h: Float, half: vec3):
    """The axis of least overlap of a segment that intersects a box: faces are 0, 1, 2, edges 3, 4, 5.

    An edge must be better than the faces by BIAS, so that lines along a face do not switch between it and its edges.
    """
    best, axis = -1e30, 0
    bias = TINY + BIAS * min(half.x, half.y, half.z)
    for k in static(3):
        separation = abs(q[k]) - abs(u[k]) * h - half[k]
        if separation > best:
            best, axis = separation, k
    for k in static(3):
        w = cross(u, vec3(float(k == 0), float(k == 1), float(k == 2)))
        if dot(w, w) > PARALLEL:
            size = half.x * abs(w.x) + half.y * abs(w.y) + half.z * abs(w.z)
            separation = (abs(dot(q, w)) - size) / sqrt(dot(w, w))
            if separation > best + bias:
                best, axis = separation, 3 + k
    return axis


@func
def cross_edge(q: vec3, u: vec3, half: vec3, k):
    """A line against the edge k of a box: s on the line [m], the distance along the normal [m] (< 0), the normal."""
    along = unit(k, 1.0)
    w = cross(u, along)
    n = w * (positive(dot(q, w)) / norm(w))
    corner = times(signs(n), half)
    d = q - (corner - unit(k, pick(corner, k)))
    s = (dot(u, along) * dot(along, d) - dot(u, d)) / dot(w, w)
    return s, dot(n, d), n


@kernel
def touch_capsule_box(shapes: Shapes, pairs: Pairs, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch):
    """A capsule against a box, two candidates.

    If the centre line stays outside: the point nearest to the box, and the other end of the line's part over the same
    face, so that the capsule rests on it. If the centre line intersects the box: both ends of the line's part over the
    face of least overlap, or one point at an edge.

    Gradients:
        Exact for the features found. A capsule that lies along an edge, over no face, has one candidate.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, b, at = pair_at(pairs, i)
        R1, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        if within_reach(shapes, a, b, p1, p2, margin):
            _, _, axis = columns_of(R1)
            q, u = transpose(R2) @ (p1 - p2), transpose(R2) @ axis
            r, h, half = shapes.size[a].x, shapes.size[a].y, shapes.size[b]
            s, out = nearest_to_box(q, u, h, half)
            distance, n = norm(out), direction(out)
            other = s
            through = distance <= TINY
            way = widest(vec3(abs(out.x), abs(out.y), abs(out.z)))
            side = positive(pick(out, way))
            # The axis of the face: of least overlap if the line intersects the box, else along the normal.
            if through:
                way = crossing_axis(q, u, h, half)
                side = positive(pick(q, way))
            two = way < 3
            # Both ends of the part over the face, or one point at an edge.
            if two:
                low, high = over_face(turn(q, way), turn(u, way), h, turn(half, way))
                if through:
                    s = low
                    distance = side * pick(q + s * u, way) - pick(half, way)
                    n = unit(way, side)
                    other = high
                else:
                    other = high if high - s > s - low else low
                    two = low < high and side * pick(q + other * u, way) > pick(half, way)
            else:
                s, distance, n = cross_edge(q, u, half, way - 3)
            put_ball(touch, at, R2, p2, q + s * u, distance, n, r)
            if two:
                x = q + other * u
                put_ball(touch, at + 1, R2, p2, x, side * pick(x, way) - pick(half, way), unit(way, side), r)
            else:
                put_none(touch, at + 1)
        else:
            put_none(touch, at)
            put_none(touch, at + 1)
