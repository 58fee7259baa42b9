"""Convex polyhedra against each other: separating axes over faces and pairs of edges, then a contact polygon.

The normal is the axis along which the hulls are farthest apart or overlap least: a face normal, or the cross product of
two edges whose arcs on the Gauss map cross, so that they span a face of the Minkowski difference [Gregorius 2013]. The
order is faces of the first hull, faces of the second, edges; an axis of a later kind must be better by BIAS. As for
boxes, the candidates are corners of the intersection of two faces, seen along the normal; for two edges, of faces
adjacent to them.
"""

from __future__ import annotations

from kinema.contact.collision.hulls import Hulls, face_plane, hull_scale, next_corner
from kinema.contact.collision.narrow_phase import (
    TINY,
    Pairs,
    Shapes,
    Touch,
    pair_at,
    place,
    positive,
    put,
    put_none,
    times,
    within_reach,
)
from kinema.lang import (
    Array,
    Float,
    Int,
    cos,
    cross,
    dot,
    func,
    kernel,
    local,
    mat33,
    max,
    min,
    norm,
    normalize,
    select,
    shared,
    sin,
    transpose,
    vec3,
)

HULL_CANDIDATES = 8
BIAS = 1e-3  # margin by which an axis of a later kind must be better, relative to the smaller reach
PARALLEL = 1e-6  # square of the sine of the angle below which edges are parallel
GROWN = 1e-6  # growth of the reference face relative to the smaller reach, so that equal faces share their corners
STEEP = 1e-2  # smallest cosine between a face and the normal, a lower bound for the faces beside a sharp edge
MOST = 64  # corners of a polygon before eight of them are selected


@func
def best_face(hulls, a, scale_a: vec3, b, scale_b: vec3, C: mat33, t: vec3):
    """The face of hull a over which hull b is highest, and the height of b's lowest corner there [m].

    C = R_a^T R_b, t = R_a^T (p_b - p_a).
    """
    best, face = -1e30, hulls.face_start[a]
    for k in range(hulls.face_count[a]):
        f = hulls.face_start[a] + k
        n, offset = face_plane(hulls, f, scale_a)
        way = times(scale_b, transpose(C) @ n)
        low = 1e30
        for v in range(hulls.vertex_count[b]):
            low = min(low, dot(way, hulls.vertex[hulls.vertex_start[b] + v]))
        height = low + dot(n, t) - offset
        if height > best:
            best, face = height, f
    return face, best


@func
def best_edges(hulls, a, scale_a: vec3, b, scale_b: vec3, C: mat33, t: vec3):
    """The edges of hulls a and b along whose common normal b is farthest from a, and that distance [m]."""
    best, edge_a, edge_b = -1e30, hulls.edge_start[a], hulls.edge_start[b]
    normals = local(vec3, hulls.face_count[b])
    for k in range(hulls.face_count[b]):
        m, _ = face_plane(hulls, hulls.face_start[b] + k, scale_b)
        normals[k] = C @ m
    for k in range(hulls.edge_count[a]):
        e = hulls.edge_start[a] + k
        x = times(scale_a, hulls.vertex[hulls.edge_from[e]])
        along = times(scale_a, hulls.vertex[hulls.edge_to[e]]) - x
        n1, _ = face_plane(hulls, hulls.edge_left[e], scale_a)
        n2, _ = face_plane(hulls, hulls.edge_right[e], scale_a)
        for j in range(hulls.edge_count[b]):
            g = hulls.edge_start[b] + j
            left = dot(normals[hulls.edge_left[g] - hulls.face_start[b]], along)
            right = dot(normals[hulls.edge_right[g] - hulls.face_start[b]], along)
            if left * right < 0.0:
                y = C @ times(scale_b, hulls.vertex[hulls.edge_from[g]]) + t
                beside = C @ times(scale_b, hulls.vertex[hulls.edge_to[g]]) + t - y
                if dot(n1, beside) * dot(n2, beside) < 0.0 and left * dot(n2, beside) < 0.0:
                    w = cross(along, beside)
                    if dot(w, w) > PARALLEL * dot(along, along) * dot(beside, beside):
                        height = positive(dot(w, n1 + n2)) * dot(w, y - x) / norm(w)
                        if height > best:
                            best, edge_a, edge_b = height, e, g
    return edge_a, edge_b, best


@func
def against(hulls, b, scale_b: vec3, way: vec3):
    """The face of hull b most opposed to a direction."""
    best, face = 1e30, hulls.face_start[b]
    for k in range(hulls.face_count[b]):
        m, _ = face_plane(hulls, hulls.face_start[b] + k, scale_b)
        if dot(m, way) < best:
            best, face = dot(m, way), hulls.face_start[b] + k
    return face


@func
def put_polygon(
    touch,
    at,
    hulls,
    f,
    Ra: mat33,
    pa: vec3,
    scale_a: vec3,
    b,
    Rb: mat33,
    pb: vec3,
    scale_b: vec3,
    n: vec3,
    on: vec3,
    grown: Float,
    mirror: Float,
    overlap,
):
    """Store corners of the intersection of face f of hull a and the opposing face of hull b, seen along n.

    Both hulls have a pose R, p [m] and a scale; the reference face grows by `grown` [m]; `mirror` is 1 if hull a is the
    second one, else -1; `overlap` is whether the hulls overlap. The unit normal n points out of hull a, whose farthest
    point along it is `on` [m]; both are in the frame of a. From more than eight corners the function selects the one
    with the smallest gap and the farthest ones along seven directions.
    """
    C, t = transpose(Ra) @ Rb, transpose(Ra) @ (pb - pa)
    up, offset = face_plane(hulls, f, scale_a)
    n_up = max(dot(n, up), STEEP)
    g = against(hulls, b, scale_b, transpose(C) @ n)
    m, level = face_plane(hulls, g, scale_b)
    m = C @ m
    level = level + dot(m, t)
    first = hulls.corner_start[f]
    side = hulls.vertex[hulls.corner[first + 1]] - hulls.vertex[hulls.corner[first]]
    scaled = times(scale_a, side)
    ex = normalize(scaled if dot(scaled, scaled) > 0.0 else side)
    ey = cross(up, ex)
    found = local(vec3, MOST)  # (x, y, gap) along the axes ex, ey of the face, and n
    count = 0
    # Edges of the incident face g, clipped to the reference face f.
    for k in range(hulls.corner_count[g]):
        x = C @ times(scale_b, hulls.vertex[hulls.corner[hulls.corner_start[g] + k]]) + t
        step = C @ times(scale_b, hulls.vertex[next_corner(hulls, g, k)]) + t - x
        low, high = 0.0, 1.0
        for j in range(hulls.corner_count[f]):
            y = times(scale_a, hulls.vertex[hulls.corner[first + j]])
            out = normalize(cross(times(scale_a, hulls.vertex[next_corner(hulls, f, j)]) - y, up))
            out = out - (dot(out, n) / n_up) * up  # seen along n
            start, rate = dot(out, x - y) - grown, dot(out, step)
            if rate > TINY * grown:
                high = min(high, -start / rate)
            elif rate < -TINY * grown:
                low = max(low, -start / rate)
            elif start > 0.0:
                low, high = 1.0, 0.0
        for end in range(2):
            # The end of an edge is the start of the next one.
            if low <= high and (end == 0 or high < 1.0) and count < MOST:
                z = x + select(end == 0, low, high) * step
                gap = (dot(up, z) - offset) / n_up
                found[count] = vec3(dot(ex, z - gap * n), dot(ey, z - gap * n), gap)
                count = count + 1
    # Corners of the reference face inside the incident face.
    for k in range(hulls.corner_count[f]):
        x = times(scale_a, hulls.vertex[hulls.corner[first + k]])
        # Height of the incident face over the corner, along n.
        gap = (level - dot(m, x)) / dot(m, n)
        inside = True
        for j in range(hulls.corner_count[g]):
            y = C @ times(scale_b, hulls.vertex[hulls.corner[hulls.corner_start[g] + j]]) + t
            side = C @ times(scale_b, hulls.vertex[next_corner(hulls, g, j)]) + t - y
            inside = inside and dot(cross(side, m), x + gap * n - y) < 0.0
        if inside and count < MOST:
            found[count] = vec3(dot(ex, x), dot(ey, x), gap)
            count = count + 1
    lift = offset
    if count == 0 and overlap:
        # Deeply overlapping hulls may meet beside the reference face: use the deepest corner.
        deepest, lowest = -1, 1e30
        way = times(scale_b, transpose(C) @ n)
        for k in range(hulls.vertex_count[b]):
            height = dot(way, hulls.vertex[hulls.vertex_start[b] + k])
            if height < lowest:
                lowest, deepest = height, hulls.vertex_start[b] + k
        x = C @ times(scale_b, hulls.vertex[deepest]) + t
        gap = dot(n, x - on)
        x = x - gap * n
        found[0] = vec3(dot(ex, x), dot(ey, x), gap)
        lift = dot(up, x)
        count = 1
    # Select at most eight corners.
    taken = local(Int, HULL_CANDIDATES)
    for c in range(HULL_CANDIDATES):
        chosen = c
        fresh = c < count
        if count > HULL_CANDIDATES:
            best = -1e30
            angle = 0.897597901 * Float(c)  # sevenths of a turn
            for k in range(count):
                score = select(c == 0, -found[k].z, cos(angle) * found[k].x + sin(angle) * found[k].y)
                if score > best:
                    best, chosen = score, k
            fresh = True
            for k in range(c):
                fresh = fresh and taken[k] != chosen
        taken[c] = chosen
        if fresh:
            corner = found[chosen]
            point = corner.x * ex + corner.y * ey + lift * up + (0.5 * corner.z) * n
            put(touch, at + c, corner.z, pa + Ra @ point, mirror * (Ra @ n))
        else:
            put_none(touch, at + c)


@func
def edge_normal(hulls, e, g, scale_a: vec3, scale_b: vec3, C: mat33):
    """Common normal of edges e of hull a and g of hull b, out of a; the face of a beside e most aligned with it.

    Also returns a point of the edge [m]; all in the frame of a, C = R_a^T R_b.
    """
    x = times(scale_a, hulls.vertex[hulls.edge_from[e]])
    along = times(scale_a, hulls.vertex[hulls.edge_to[e]]) - x
    beside = C @ times(scale_b, hulls.vertex[hulls.edge_to[g]] - hulls.vertex[hulls.edge_from[g]])
    left, _ = face_plane(hulls, hulls.edge_left[e], scale_a)
    right, _ = face_plane(hulls, hulls.edge_right[e], scale_a)
    w = cross(along, beside)
    n = w * (positive(dot(w, left + right)) / norm(w))
    return n, select(dot(n, left) >= dot(n, right), hulls.edge_left[e], hulls.edge_right[e]), x


@kernel
def touch_hull_hull(
    shapes: Shapes, pairs: Pairs, hulls: Hulls, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch
):
    """Two hulls (boxes and cylinders among them), at most eight candidates, as for two boxes.

    Gradients:
        Exact for the axis and the features found, also with respect to the scales.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, b, at = pair_at(pairs, i)
        R1, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        scale1, scale2 = hull_scale(shapes, hulls, a), hull_scale(shapes, hulls, b)
        if within_reach(shapes, a, b, p1, p2, margin):
            C, t = transpose(R1) @ R2, transpose(R1) @ (p2 - p1)
            bias = TINY + BIAS * min(shapes.reach[a], shapes.reach[b])
            f1, best = best_face(hulls, a, scale1, b, scale2, C, t)
            kind = 1  # 1: face of the first, 2: face of the second, 3: edges
            f2, height = best_face(hulls, b, scale2, a, scale1, transpose(C), -(transpose(C) @ t))
            face = f1
            if height > best + bias:
                best, kind, face = height, 2, f2
            e1, e2 = 0, 0
            if best < margin:
                e1, e2, height = best_edges(hulls, a, scale1, b, scale2, C, t)
                if height > best + bias:
                    best, kind = height, 3
            grown = TINY + GROWN * min(shapes.reach[a], shapes.reach[b])
            swap = kind == 2
            Ra, pa, sa = select(swap, R2, R1), select(swap, p2, p1), select(swap, scale2, scale1)
            Rb, pb, sb = select(swap, R1, R2), select(swap, p1, p2), select(swap, scale1, scale2)
            n, _ = face_plane(hulls, face, sa)
            on = times(sa, hulls.vertex[hulls.corner[hulls.corner_start[face]]])
            if kind == 3:
                n, face, on = edge_normal(hulls, e1, e2, scale1, scale2, C)
            put_polygon(
                touch,
                at,
                hulls,
                face,
                Ra,
                pa,
                sa,
                select(swap, a, b),
                Rb,
                pb,
                sb,
                n,
                on,
                grown,
                select(swap, 1.0, -1.0),
                best < -bias,
            )
        else:
            for c in range(HULL_CANDIDATES):
                put_none(touch, at + c)
