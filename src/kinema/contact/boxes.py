"""Boxes against boxes: fifteen separating axes, then a polygon of at most eight places, or one place between edges.

Of the normals of the faces of both boxes and the products of their edges, the one along which the boxes are farthest
apart, or overlap least, is the axis [Gottschalk et al. 1996]. Later kinds of axes (faces of the first box, faces of the
second, edges) must be better than earlier ones by BIAS: for boxes that lie flat on each other, which is where kinds
tie, the first box's face stays chosen whatever the rounding. The gaps are true for any choice: every place lies on
both surfaces.

If the axis is of a face, that is the reference face, and the face of the other box that looks against it the incident
one. Seen along the axis, the two are a rectangle and a parallelogram; the corners of what they share are the places,
and gaps are measured along the axis. If it is of two edges, there is one place.
"""

from __future__ import annotations

from kinema.contact.shapes import (
    TINY,
    Pairs,
    Shapes,
    Touch,
    place,
    positive,
    put,
    put_none,
    turn,
    turn_columns,
    widest,
    within_reach,
)
from kinema.lang import (
    Array,
    Float,
    abs,
    cross,
    dot,
    func,
    kernel,
    mat33,
    max,
    min,
    select,
    sqrt,
    static,
    transpose,
    vec3,
)

CANDIDATES = 8
BIAS = 1e-3  # of the least half size: by so much an axis of a later kind must be better
PARALLEL = 1e-6  # square of the sine of an angle: edges below it are parallel
GROWN = 1e-6  # share by which the reference face is grown, so that equal faces share their corners in spite of rounding


@func
def best_axis(C: mat33, t: vec3, h1: vec3, h2: vec3, bias: Float):
    """Number of the separating axis: faces of the first 0-2, of the second 3-5, edges i and j 6 + 3 i + j.

    C = R1^T R2, t = R1^T (p2 - p1), half sizes [m], bias [m] between kinds.
    """
    faces1, faces2, edges = -1e30, -1e30, -1e30
    axis1, axis2, axis3 = 0, 3, 6
    for i in static(3):
        gap = abs(t[i]) - h1[i] - (abs(C[i, 0]) * h2.x + abs(C[i, 1]) * h2.y + abs(C[i, 2]) * h2.z)
        if gap > faces1:
            faces1, axis1 = gap, i
        along = C[0, i] * t.x + C[1, i] * t.y + C[2, i] * t.z
        gap = abs(along) - h2[i] - (abs(C[0, i]) * h1.x + abs(C[1, i]) * h1.y + abs(C[2, i]) * h1.z)
        if gap > faces2:
            faces2, axis2 = gap, 3 + i
    for i in static(3):
        for j in static(3):
            # Of w = e_i x c_j only two components are not zero; its products with the axes of the second are in C.
            k, m = (i + 1) % 3, (i + 2) % 3
            sine2 = C[k, j] * C[k, j] + C[m, j] * C[m, j]
            if sine2 > PARALLEL:
                along = abs(t[m] * C[k, j] - t[k] * C[m, j])
                size1 = h1[m] * abs(C[k, j]) + h1[k] * abs(C[m, j])
                size2 = h2[(j + 1) % 3] * abs(C[i, (j + 2) % 3]) + h2[(j + 2) % 3] * abs(C[i, (j + 1) % 3])
                gap = (along - size1 - size2) / sqrt(sine2)
                if gap > edges:
                    edges, axis3 = gap, 6 + 3 * i + j
    best, axis = faces1, axis1
    if faces2 > best + bias:
        best, axis = faces2, axis2
    return select(edges > best + bias, axis3, axis)


@func
def clip(low: Float, high: Float, start: Float, step: Float, limit: Float):
    """The part low ... high of a line start + t step that is within +-limit; crossed if there is none."""
    if abs(step) > TINY * limit:
        a, b = (-limit - start) / step, (limit - start) / step
        low, high = max(low, min(a, b)), min(high, max(a, b))
    elif abs(start) > limit:
        low, high = 1.0, 0.0
    return low, high


@func
def put_polygon(touch, at, Ra: mat33, pa: vec3, ha: vec3, Rb: mat33, pb: vec3, hb: vec3, k, mirror: Float, bias: Float):
    """Write the corners of what face k of box a and the face of box b against it share.

    Pose R, p [m] and half sizes h [m] are given for both; `mirror` is 1 if box a is the second one, else -1.
    """
    x, y, n = turn_columns(Ra, k)
    reference = turn(ha, k)
    n = positive(dot(n, pb - pa)) * n
    against = transpose(Rb) @ n
    m = widest(vec3(abs(against.x), abs(against.y), abs(against.z)))
    v, w, o = turn_columns(Rb, m)
    incident = turn(hb, m)
    origin = pa + reference.z * n
    # The incident face is middle + alpha v + beta w, -1 <= alpha, beta <= 1, from the middle of the reference face.
    middle = pb - positive(dot(o, n)) * incident.z * o - origin
    v, w = incident.x * v, incident.y * w
    m_x, m_y, m_n = dot(middle, x), dot(middle, y), dot(middle, n)
    v_x, v_y, v_n = dot(v, x), dot(v, y), dot(v, n)
    w_x, w_y, w_n = dot(w, x), dot(w, y), dot(w, n)
    limit_x, limit_y = reference.x * (1.0 + GROWN) + TINY, reference.y * (1.0 + GROWN) + TINY
    count = 0
    for edge in range(4):
        # Edges 0 and 2 run along v, edges 1 and 3 along w; 0 and 1 forwards.
        forward = select(edge < 2, 1.0, -1.0)
        step_v, step_w = select(edge % 2 == 0, 2.0 * forward, 0.0), select(edge % 2 == 1, 2.0 * forward, 0.0)
        alpha, beta = select(edge == 0 or edge == 3, -1.0, 1.0), select(edge < 2, -1.0, 1.0)
        s_x, s_y = m_x + alpha * v_x + beta * w_x, m_y + alpha * v_y + beta * w_y
        d_x, d_y = step_v * v_x + step_w * w_x, step_v * v_y + step_w * w_y
        low, high = clip(0.0, 1.0, s_x, d_x, limit_x)
        low, high = clip(low, high, s_y, d_y, limit_y)
        for end in range(2):
            t = select(end == 0, low, high)
            # The end of an edge is the start of the next one.
            if low <= high and (end == 0 or high < 1.0) and count < CANDIDATES:
                gap = m_n + (alpha + t * step_v) * v_n + (beta + t * step_w) * w_n
                point = origin + (s_x + t * d_x) * x + (s_y + t * d_y) * y + 0.5 * gap * n
                put(touch, at + count, gap, point, mirror * n)
                count = count + 1
    area = v_x * w_y - v_y * w_x
    for corner in range(4):
        c_x, c_y = select(corner % 2 == 0, reference.x, -reference.x), select(corner < 2, reference.y, -reference.y)
        if abs(area) > TINY * TINY:
            alpha = ((c_x - m_x) * w_y - (c_y - m_y) * w_x) / area
            beta = ((c_y - m_y) * v_x - (c_x - m_x) * v_y) / area
            if abs(alpha) < 1.0 and abs(beta) < 1.0 and count < CANDIDATES:
                gap = m_n + alpha * v_n + beta * w_n
                put(touch, at + count, gap, origin + c_x * x + c_y * y + 0.5 * gap * n, mirror * n)
                count = count + 1
    gap = m_n - abs(v_n) - abs(w_n)
    if count == 0 and gap < -2.0 * bias:
        # Deep overlaps may meet beside the reference face: then the deepest corner is the place.
        alpha, beta = -positive(v_n), -positive(w_n)
        point = origin + middle + alpha * v + beta * w - 0.5 * gap * n
        put(touch, at, gap, point, mirror * n)
        count = 1
    for k in range(CANDIDATES):
        if k >= count:
            put_none(touch, at + k)


@func
def put_edges(touch, at, R1: mat33, p1: vec3, half1: vec3, R2: mat33, p2: vec3, half2: vec3, i, j):
    """Write the place between edge i of one box and edge j of another; while they are apart, only if it is on both."""
    x1, y1, a = turn_columns(R1, i)
    x2, y2, b = turn_columns(R2, j)
    h1, h2 = turn(half1, i), turn(half2, j)
    w = cross(a, b)
    sine2 = dot(w, w)
    n = w * (positive(dot(w, p1 - p2)) / sqrt(sine2))
    c1 = p1 - positive(dot(n, x1)) * h1.x * x1 - positive(dot(n, y1)) * h1.y * y1
    c2 = p2 + positive(dot(n, x2)) * h2.x * x2 + positive(dot(n, y2)) * h2.y * y2
    d = c1 - c2
    s = (dot(a, b) * dot(b, d) - dot(a, d)) / sine2
    t = dot(b, d) + dot(a, b) * s
    gap = dot(n, d)
    if gap < 0.0 or (abs(s) <= h1.z and abs(t) <= h2.z):
        put(touch, at, gap, 0.5 * (c1 + s * a + c2 + t * b), n)
    else:
        put_none(touch, at)
    for k in range(1, CANDIDATES):
        put_none(touch, at + k)


@kernel
def touch_box_box(shapes: Shapes, pairs: Pairs, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch):
    """Two boxes, at most eight candidates.

    While the boxes are apart, a gap is measured along the axis: it is the distance of two places, but not always of
    the nearest two. Boxes that pass each other corner by corner, over no face and no edge, have no candidate.

    Gradients:
        Exact for the axis and the features found. They jump where another axis becomes the best by BIAS, and where a
        corner of the polygon appears or goes.
    """
    for i in range(len(pairs.first)):
        a, b, at = pairs.first[i], pairs.second[i], pairs.start[i]
        R1, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        if within_reach(shapes, a, b, p1, p2, margin):
            h1, h2 = shapes.size[a], shapes.size[b]
            bias = TINY + BIAS * min(h1.x, h1.y, h1.z, h2.x, h2.y, h2.z)
            axis = best_axis(transpose(R1) @ R2, transpose(R1) @ (p2 - p1), h1, h2, bias)
            if axis < 6:
                of_second = axis >= 3
                Ra, pa, ha = select(of_second, R2, R1), select(of_second, p2, p1), select(of_second, h2, h1)
                Rb, pb, hb = select(of_second, R1, R2), select(of_second, p1, p2), select(of_second, h1, h2)
                put_polygon(touch, at, Ra, pa, ha, Rb, pb, hb, axis % 3, select(of_second, 1.0, -1.0), bias)
            else:
                put_edges(touch, at, R1, p1, h1, R2, p2, h2, (axis - 6) // 3, axis % 3)
        else:
            for k in range(CANDIDATES):
                put_none(touch, at + k)
