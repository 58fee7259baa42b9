"""Boxes against boxes: a normal from fifteen separating axes, then a contact polygon of at most eight corners.

The axes are the face normals of both boxes and the cross products of their edges; the best axis is the one along which
the boxes are farthest apart or overlap least [Gottschalk et al. 1996]. As the boxes move, the best axis changes. Where
two axes tie, either they agree, as for boxes that lie flat on each other, or a corner or edge of one box is at an edge
of the other, and any direction between the two axes is a normal. So the normal is the weighted mean of all axes, and
the weight of an axis fades as its gap falls below the best one: within FADE the normal rotates continuously and never
jumps.

Seen along the normal, the faces of both boxes that are most aligned with it are two parallelograms. The candidates are
the corners of their intersection, and gaps are measured along the normal. If the normal is the cross product of two
edges, the faces are adjacent to these edges, and the edges cross in one of the corners; the other corners have larger
gaps and are candidates before they touch.
"""

from __future__ import annotations

from kinema.contact.collision.narrow_phase import (
    FAR,
    TINY,
    Pairs,
    Shapes,
    Touch,
    direction,
    pair_at,
    place,
    positive,
    put,
    put_none,
    signs,
    times,
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
    shared,
    sqrt,
    static,
    transpose,
    vec3,
)

BOX_CANDIDATES = 8
FADE = 0.03  # difference from the best gap at which an axis has weight 0, relative to the thickness of thin boxes
PARALLEL = 1e-6  # square of the sine of the angle below which edges are parallel
GROWN = 1e-6  # relative growth of the reference face, so that equal faces share their corners despite rounding error


@func
def face_gaps(C: mat33, t: vec3, h1: vec3, h2: vec3, i):
    """Gaps [m] along face normal i of the first and of the second box, and the second box's offset along the latter."""
    of_first = abs(t[i]) - h1[i] - (abs(C[i, 0]) * h2.x + abs(C[i, 1]) * h2.y + abs(C[i, 2]) * h2.z)
    along = C[0, i] * t.x + C[1, i] * t.y + C[2, i] * t.z
    of_second = abs(along) - h2[i] - (abs(C[0, i]) * h1.x + abs(C[1, i]) * h1.y + abs(C[2, i]) * h1.z)
    return of_first, of_second, along


@func
def edge_gap(C: mat33, t: vec3, h1: vec3, h2: vec3, i, j):
    """Gap [m] along w = e_i x c_j, the second box's offset along w, and |w|^2; the gap is -FAR for parallel edges."""
    # w has two non-zero components; its products with the axes of the second box are entries of C.
    k, m = (i + 1) % 3, (i + 2) % 3
    sine2 = C[k, j] * C[k, j] + C[m, j] * C[m, j]
    along = t[m] * C[k, j] - t[k] * C[m, j]
    gap = -FAR
    if sine2 > PARALLEL:
        size1 = h1[m] * abs(C[k, j]) + h1[k] * abs(C[m, j])
        size2 = h2[(j + 1) % 3] * abs(C[i, (j + 2) % 3]) + h2[(j + 2) % 3] * abs(C[i, (j + 1) % 3])
        gap = (abs(along) - size1 - size2) / sqrt(sine2)
    return gap, along, sine2


@func
def thinness(h: vec3):
    """Sum of the inverse half extents of a box [1/m]: about 1 / the smallest one, and smooth where two are equal."""
    return 1.0 / (h.x + TINY) + 1.0 / (h.y + TINY) + 1.0 / (h.z + TINY)


@func
def share(gap: Float, best: Float, fade: Float):
    """Weight of an axis in the normal: 1 for the best gap [m], 0 for a gap that is smaller by `fade` [m]."""
    return max(1.0 - (best - gap) / fade, 0.0)


@func
def normal_between(C: mat33, t: vec3, h1: vec3, h2: vec3, fade: Float):
    """Unit normal from the first box to the second, in axes of the first: weighted mean of the best axes.

    C = R1^T R2, t = R1^T (p2 - p1), half extents [m].
    """
    best = -FAR
    # The best gap over all fifteen axes.
    for i in static(3):
        of_first, of_second, _ = face_gaps(C, t, h1, h2, i)
        best = max(best, of_first, of_second)
        for j in static(3):
            gap, _, _ = edge_gap(C, t, h1, h2, i, j)
            best = max(best, gap)
    # The weighted sum of the axes.
    n = vec3(0.0, 0.0, 0.0)
    for i in static(3):
        e = vec3(float(i == 0), float(i == 1), float(i == 2))
        of_first, of_second, along = face_gaps(C, t, h1, h2, i)
        n = n + (share(of_first, best, fade) * positive(t[i])) * e
        n = n + (share(of_second, best, fade) * positive(along)) * vec3(C[0, i], C[1, i], C[2, i])
        for j in static(3):
            gap, along, sine2 = edge_gap(C, t, h1, h2, i, j)
            if gap > best - fade:
                w = cross(e, vec3(C[0, j], C[1, j], C[2, j]))
                n = n + (share(gap, best, fade) * positive(along) / sqrt(sine2)) * w
    return direction(n)


@func
def clip(low: Float, high: Float, start: Float, step: Float, limit: Float):
    """The part low ... high of a line start + t step within +-limit; low > high if it is empty."""
    if abs(step) > TINY * limit:
        a, b = (-limit - start) / step, (limit - start) / step
        low, high = max(low, min(a, b)), min(high, max(a, b))
    elif abs(start) > limit:
        low, high = 1.0, 0.0
    return low, high


@func
def face_along(R: mat33, h: vec3, n: vec3):
    """The face of a box most aligned with n: the axes of its sides, its normal, the half extents [m] along these."""
    along = transpose(R) @ n
    k = widest(vec3(abs(along.x), abs(along.y), abs(along.z)))
    x, y, o = turn_columns(R, k)
    return x, y, positive(dot(o, n)) * o, turn(h, k)


@func
def seen_along(x: vec3, y: vec3, o: vec3, n: vec3, d: vec3):
    """Coefficients of d = alpha x + beta y + height n, for orthonormal x, y and o."""
    height = dot(d, o) / dot(n, o)
    return dot(d, x) - height * dot(n, x), dot(d, y) - height * dot(n, y), height


@func
def put_polygon(touch, at, R1: mat33, p1: vec3, h1: vec3, R2: mat33, p2: vec3, h2: vec3, n: vec3):
    """Store the corners of the intersection of the two boxes' facing faces, seen along n.

    Both boxes have a pose R, p [m] and half extents h [m]; n points from the first to the second.
    """
    x, y, o, half = face_along(R1, h1, n)
    v, w, below, incident = face_along(R2, h2, -n)
    origin = p1 + half.z * o
    # The incident face is m + alpha v + beta w, -1 <= alpha, beta <= 1, from the centre of the reference face.
    m_x, m_y, m_n = seen_along(x, y, o, n, p2 + incident.z * below - origin)
    v_x, v_y, v_n = seen_along(x, y, o, n, incident.x * v)
    w_x, w_y, w_n = seen_along(x, y, o, n, incident.y * w)
    limit_x, limit_y = half.x * (1.0 + GROWN) + TINY, half.y * (1.0 + GROWN) + TINY
    count = 0
    # Edges of the incident face, clipped to the reference face.
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
            if low <= high and (end == 0 or high < 1.0) and count < BOX_CANDIDATES:
                gap = m_n + (alpha + t * step_v) * v_n + (beta + t * step_w) * w_n
                point = origin + (s_x + t * d_x) * x + (s_y + t * d_y) * y + 0.5 * gap * n
                put(touch, at + count, gap, point, -n)
                count = count + 1
    # Corners of the reference face inside the incident face.
    area = v_x * w_y - v_y * w_x
    for corner in range(4):
        c_x, c_y = select(corner % 2 == 0, half.x, -half.x), select(corner < 2, half.y, -half.y)
        if abs(area) > TINY * TINY:
            alpha = ((c_x - m_x) * w_y - (c_y - m_y) * w_x) / area
            beta = ((c_y - m_y) * v_x - (c_x - m_x) * v_y) / area
            if abs(alpha) < 1.0 and abs(beta) < 1.0 and count < BOX_CANDIDATES:
                gap = m_n + alpha * v_n + beta * w_n
                put(touch, at + count, gap, origin + c_x * x + c_y * y + 0.5 * gap * n, -n)
                count = count + 1
    if count == 0:
        # Along a mean of axes, overlapping boxes may meet beside these faces: use their farthest corners.
        one = p1 + farthest(R1, h1, n)
        two = p2 + farthest(R2, h2, -n)
        gap = dot(n, two - one)
        if gap < 0.0:
            put(touch, at, gap, two - 0.5 * gap * n, -n)
            count = 1
    for k in range(BOX_CANDIDATES):
        if k >= count:
            put_none(touch, at + k)


@func
def farthest(R: mat33, h: vec3, n: vec3):
    """The corner of a box that is farthest along n, from its centre [m]."""
    return R @ times(signs(transpose(R) @ n), h)


@kernel
def touch_box_box(shapes: Shapes, pairs: Pairs, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch):
    """Two boxes, at most eight candidates.

    While the boxes are apart, gaps are measured along the normal: a gap is the distance of two points, but not always
    of the nearest two. Boxes that pass each other corner to corner, over no face and no edge, have no candidate.

    Gradients:
        Exact. Gap, point and normal of touching candidates are continuous in the poses, except for overlaps near an
        edge that are deeper than FADE; their derivatives jump where a face, edge or corner joins or leaves the contact.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, b, at = pair_at(pairs, i)
        R1, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        if within_reach(shapes, a, b, p1, p2, margin):
            h1, h2 = shapes.size[a], shapes.size[b]
            fade = FADE / (thinness(h1) + thinness(h2))
            n = R1 @ normal_between(transpose(R1) @ R2, transpose(R1) @ (p2 - p1), h1, h2, fade)
            put_polygon(touch, at, R1, p1, h1, R2, p2, h2, n)
        else:
            for k in range(BOX_CANDIDATES):
                put_none(touch, at + k)
