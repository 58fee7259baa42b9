"""Ellipsoids against planes, spheres, capsules, other ellipsoids and convex polyhedra, one candidate each."""

from __future__ import annotations

from kinema.contact.collision.ellipsoid_feature import (
    along_edge,
    detached,
    extent,
    farthest,
    least_of,
    towards_line,
    towards_point,
)
from kinema.contact.collision.hulls import Hulls, beside_face, face_plane, hull_scale
from kinema.contact.collision.narrow_phase import (
    TINY,
    Pairs,
    Shapes,
    Touch,
    direction,
    pair_at,
    pick,
    place,
    put,
    put_none,
    times,
    within_reach,
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
    max,
    min,
    norm,
    normalize,
    select,
    shared,
    sqrt,
    transpose,
    vec3,
)

CHANGES = 24  # of corners in the search for the nearest feature of a hull
SLACK = 1e-12  # height relative to the reach by which another corner must be nearer
ASCENTS = 40  # steps of the search for the normal of two ellipsoids
LEVEL = 1e-13  # slope at which it ends, relative to the larger reach


@func
def put_beyond(touch, at, R: mat33, p: vec3, s: vec3, m: vec3, level: Float, r: Float):
    """Store the contact of an ellipsoid, along its normal m, with a body of radius r whose core begins at `level`."""
    gap = level - extent(s, m) - r
    put(touch, at, gap, p + R @ (farthest(s, m) + (0.5 * gap) * m), -(R @ m))


@kernel
def touch_ellipsoid_plane(shapes: Shapes, pairs: Pairs, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch):
    """An ellipsoid over a plane: its lowest point.

    Gradients:
        Exact.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, b, at = pair_at(pairs, i)
        R1, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        _, _, n = columns_of(R2)
        height = dot(n, p1 - p2)
        if height < shapes.reach[a] + margin:
            put_beyond(touch, at, R1, p1, shapes.size[a], -(transpose(R1) @ n), height, 0.0)
        else:
            put_none(touch, at)


@func
def end_of_segment(s: vec3, y: vec3, u: vec3, half: Float):
    """The end of a segment that an ellipsoid faces, as its place along u [m], and whether it faces none."""
    m = towards_line(s, y, u)
    gap = dot(m, y) - extent(s, m)
    end = dot(u, farthest(s, m) + gap * m - y)
    along = abs(end) < half
    end = select(end >= 0.0, half, -half)
    if not along:
        n = towards_point(s, y + end * u)  # of segments deep inside, it may have the other end farther in
        along = end * dot(n, u) > 0.0 or dot(n, y + end * u) - extent(s, n) < gap
    return end, along


@kernel
def touch_ellipsoid_round(shapes: Shapes, pairs: Pairs, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch):
    """An ellipsoid against a sphere or a capsule: the point of the core (centre or segment) nearest to it.

    Gradients:
        Exact. If the core is inside and on a plane of symmetry, one of its two nearest points is taken.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, b, at = pair_at(pairs, i)
        R1, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        if within_reach(shapes, a, b, p1, p2, margin):
            s, half, y = shapes.size[a], shapes.size[b].y, transpose(R1) @ (p2 - p1)
            _, _, axis = columns_of(R2)
            u = transpose(R1) @ axis
            end, along = 0.0, False
            if half > 0.0:
                end, along = end_of_segment(detached(s), detached(y), detached(u), half)
            if along:
                m = towards_line(s, y, u)
                put_beyond(touch, at, R1, p1, s, m, dot(m, y), shapes.size[b].x)
            else:
                tip = y + end * u
                m = towards_point(s, tip)
                put_beyond(touch, at, R1, p1, s, m, dot(m, tip), shapes.size[b].x)
        else:
            put_none(touch, at)


@func
def slope_of(s1: vec3, R1: mat33, s2: vec3, R2: mat33, d: vec3, n: vec3):
    """The gap n . d - |s1 n| - |s2 n| along n, and its gradient."""
    n1, n2 = transpose(R1) @ n, transpose(R2) @ n
    h1, h2 = extent(s1, n1), extent(s2, n2)
    reach = R1 @ farthest(s1, n1) + R2 @ farthest(s2, n2)
    return dot(n, d) - h1 - h2, d - reach


@func
def bent(s: vec3, R: mat33, n: vec3, e: vec3, f: vec3):
    """e . H f of the Hessian H of |s n|."""
    local, x, y = transpose(R) @ n, transpose(R) @ e, transpose(R) @ f
    h, square = extent(s, local), times(s, s)
    return (dot(x, times(square, y)) - dot(x, times(square, local)) * dot(y, times(square, local)) / (h * h)) / h


@func
def ascend(s1: vec3, R1: mat33, s2: vec3, R2: mat33, d: vec3, n: vec3, careful: Float):
    """A step of Newton's method on the sphere of normals; `careful` is a least curvature."""
    gap, g = slope_of(s1, R1, s2, R2, d, n)
    e = normalize(cross(n, select(abs(n.x) < 0.6, vec3(1.0, 0.0, 0.0), vec3(0.0, 1.0, 0.0))))
    f = cross(n, e)
    a = bent(s1, R1, n, e, e) + bent(s2, R2, n, e, e) + gap
    b = bent(s1, R1, n, e, f) + bent(s2, R2, n, e, f)
    c = bent(s1, R1, n, f, f) + bent(s2, R2, n, f, f) + gap
    least = 0.5 * (a + c) - sqrt(0.25 * (a - c) * (a - c) + b * b)
    more = max(careful - least, 0.0)
    a, c = a + more, c + more
    x, y = dot(e, g), dot(f, g)
    det = a * c - b * b
    return ((c * x - b * y) / det) * e + ((a * y - b * x) / det) * f


@func
def normal_between(s1: vec3, R1: mat33, s2: vec3, R2: mat33, d: vec3):
    """The unit normal along which two ellipsoids are farthest apart, from the first to the second; d joins centres."""
    n, size = direction(d), max(norm(d), max(extent(s1, direction(d)), extent(s2, direction(d))))
    gap, g = slope_of(s1, R1, s2, R2, d, n)
    for _ in range(ASCENTS):
        across = g - dot(g, n) * n
        if norm(across) <= LEVEL * size:
            break
        way = ascend(s1, R1, s2, R2, d, n, 1e-3 * size)
        length = min(1.0, 0.5 / max(norm(way), TINY))
        tried = normalize(n + length * way)
        found, slope = slope_of(s1, R1, s2, R2, d, tried)
        for _ in range(12):
            if found >= gap - LEVEL * size:
                break
            length = 0.5 * length
            tried = normalize(n + length * way)
            found, slope = slope_of(s1, R1, s2, R2, d, tried)
        n, gap, g = tried, found, slope
    return n


@kernel
def touch_ellipsoid_ellipsoid(
    shapes: Shapes, pairs: Pairs, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch
):
    """Two ellipsoids: the normal along which they are farthest apart, or, near the line of centres, overlap least.

    Gradients:
        Exact: the last step of the search is differentiated.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, b, at = pair_at(pairs, i)
        R1, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        if within_reach(shapes, a, b, p1, p2, margin):
            s1, s2, d = shapes.size[a], shapes.size[b], p2 - p1
            n = detached(normal_between(s1, R1, s2, R2, d))
            n = normalize(n + ascend(s1, R1, s2, R2, d, n, -1e30))
            gap, _ = slope_of(s1, R1, s2, R2, d, n)
            point = p1 + R1 @ farthest(s1, transpose(R1) @ n)
            put(touch, at, gap, point + (0.5 * gap) * n, -n)
        else:
            put_none(touch, at)


@func
def corner_at(hulls, v, scale: vec3, C: mat33, t: vec3):
    """A corner of a hull in the frame of the ellipsoid [m]."""
    return C @ times(scale, hulls.vertex[v]) + t


@func
def nearest_corner(hulls, b, scale: vec3, C: mat33, t: vec3, m: vec3):
    """The corner of hull b lowest along m, and its height [m]."""
    way, low, found = times(scale, transpose(C) @ m), 1e30, hulls.vertex_start[b]
    for k in range(hulls.vertex_count[b]):
        height = dot(way, hulls.vertex[hulls.vertex_start[b] + k])
        if height < low:
            low, found = height, hulls.vertex_start[b] + k
    return found, low + dot(m, t)


@func
def first_face(hulls, b, scale: vec3, C: mat33, t: vec3, s: vec3):
    """The face of hull b over which the ellipsoid is highest, and that gap [m]."""
    best, face = -1e30, hulls.face_start[b]
    for k in range(hulls.face_count[b]):
        f = hulls.face_start[b] + k
        n, offset = face_plane(hulls, f, scale)
        m = C @ n
        gap = -dot(m, t) - offset - extent(s, m)
        if gap > best:
            best, face = gap, f
    return face, best


@func
def weights(a: vec3, b: vec3, c: vec3, x: vec3):
    """Barycentric coordinates of a point over a triangle, times its squared double area."""
    n = cross(b - a, c - a)
    return vec3(dot(n, cross(c - b, x - b)), dot(n, cross(a - c, x - c)), dot(n, cross(b - a, x - a)))


@func
def normal_of(s: vec3, count, y0: vec3, y1: vec3, y2: vec3):
    """Normal of the ellipsoid towards a corner, an edge, a triangle, or (4) a face by its first three corners."""
    m = vec3(0.0, 0.0, 1.0)
    if count == 1:
        m = towards_point(s, y0)
    elif count == 2:
        m = towards_line(s, y0, normalize(y1 - y0))
    else:
        n = normalize(cross(y1 - y0, y2 - y0))
        m = select(count == 3 and dot(n, y0) >= 0.0, n, -n)
    return m


@func
def hull_feature(hulls, b, scale: vec3, C: mat33, t: vec3, s: vec3, size: Float):
    """Corners of hull b that the ellipsoid faces, as in `normal_of`: how many, and which.

    A working set of corners grows by the nearest one along the normal and shrinks where the nearest point leaves it, as
    in the algorithm of Wolfe for polytopes; of the sets that are nearest along their normals, that with the largest gap
    counts, since the gap along any normal is a bound of it.
    """
    face, most = first_face(hulls, b, scale, C, t, s)
    n, _ = face_plane(hulls, face, scale)
    m = -(C @ n)
    q = transpose(C) @ (farthest(s, m) - t)
    start = hulls.corner_start[face]
    w0, w1, w2 = hulls.corner[start], hulls.corner[start + 1], hulls.corner[start + 2]
    best0, best1, best2, best_count = w0, w1, w2, 4
    if beside_face(hulls, face, scale, n, q):
        near = 1e30
        for k in range(hulls.corner_count[face]):
            v = hulls.corner[start + k]
            away = times(scale, hulls.vertex[v]) - q
            if dot(away, away) < near:
                near, w0 = dot(away, away), v
        count = 1
        for _ in range(CHANGES):
            y0, y1 = corner_at(hulls, w0, scale, C, t), corner_at(hulls, w1, scale, C, t)
            y2 = corner_at(hulls, w2, scale, C, t)
            m = normal_of(s, count, y0, y1, y2)
            x = farthest(s, m)
            found, low = nearest_corner(hulls, b, scale, C, t, m)
            gap = low - extent(s, m)
            if gap > most and low >= dot(m, y0) - SLACK * size:
                most, best0, best1, best2, best_count = gap, w0, w1, w2, count
            # The nearest point on the set: corners that it does not need leave.
            left = False
            if count == 2:
                r = along_edge(y0, y1, x)
                left = r < 0.0 or r > 1.0
                w0 = select(r > 1.0, w1, w0)
                count = select(left, 1, 2)
            elif count == 3:
                share = weights(y0, y1, y2, x)
                k = least_of(share)
                left = pick(share, k) < 0.0
                if left:
                    w0, w1 = select(k == 0, w1, w0), select(k == 2, w1, w2)
                    count = 2
            if not left:
                if low >= dot(m, y0) - SLACK * size:
                    break
                if count == 3:
                    share = weights(y0, y1, y2, x)
                    k = least_of(share)
                    w0, w1 = select(k == 0, w1, w0), select(k == 2, w1, w2)
                    w2 = found
                elif count == 2:
                    w2, count = found, 3
                else:
                    w1, count = found, 2
    return best_count, best0, best1, best2


@kernel
def touch_ellipsoid_hull(
    shapes: Shapes, pairs: Pairs, hulls: Hulls, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch
):
    """An ellipsoid against a hull (boxes and cylinders among them): the nearest corner, edge or face.

    Gradients:
        Exact for the corner, edge or face found; also with respect to the sizes of both.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, b, at = pair_at(pairs, i)
        R1, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        if within_reach(shapes, a, b, p1, p2, margin):
            s, scale, C, t = shapes.size[a], hull_scale(shapes, hulls, b), transpose(R1) @ R2, transpose(R1) @ (p2 - p1)
            size = min(shapes.reach[a], shapes.reach[b])
            count, w0, w1, w2 = hull_feature(hulls, b, scale, C, t, s, size)
            y0, y1 = corner_at(hulls, w0, scale, C, t), corner_at(hulls, w1, scale, C, t)
            y2 = corner_at(hulls, w2, scale, C, t)
            m = normal_of(s, count, y0, y1, y2)
            put_beyond(touch, at, R1, p1, s, m, dot(m, y0), 0.0)
        else:
            put_none(touch, at)
