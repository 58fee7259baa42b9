"""Contact between deformable objects and self-contact: vertices against triangles, compliant.

A vertex p and a triangle T are in contact while their distance is below D, the mean of both thicknesses. The force is
`penalty_force` of the depth D - d(p, T), along the line from the nearest point of T to p: both sides of a triangle
repel. Neighbouring triangles with a common nearest point must not count twice, so inclusion-exclusion subtracts edges
and adds corners [Li et al. 2023]:

    f = sum_T f(p, T) - sum_e (m_e - 1) f(p, e) + sum_v c_v f(p, v),    c_v = 1 - n_v + sum_(e at v) (m_e - 1)

with m_e triangles at an edge and n_v triangles at a vertex. On a flat or convex surface this is the force of the
nearest point alone; in a valley both sides push; the force is continuous everywhere. Every triangle evaluates its share
of the terms of its edges and corners.

Forces and moments cancel. The normal force acts on the corners with the weights of the nearest point. Friction depends
on the velocity of p relative to a point at p that moves rigidly with the triangle: with the barycentric coordinates w_k
of p in the plane, their gradients g_k, the height h of p over the plane and its normal N,

    v_T = sum_k w_k v_k - h g_k (N.v_k)

which equals the velocity of p in every common rigid motion; its transpose gives the forces on the corners.

A vertex does not touch triangles of its own object that are nearer than D at rest. Contact does not distinguish sides:
a vertex that has tunnelled through a triangle is pushed away on the wrong side.

A step finds the pairs from positions and velocities at its start, and then computes forces. A pair is near if its
distance is below D plus the largest approach in half a step. The search is not differentiated:

    p.call(bound_triangles, ...); p.call(measure_cells, ...); p.call(choose_buckets, ...); p.call(sort_triangles, ...)
    p.call(sort_boxes, ...); p.call(find_triangles, ...); p.call(gather_pairs, ...)
    p.call(pair_forces, surface, pairs, skin, dt, x, v, f, count=room)

Triangles are sorted by the grid cell that contains the lower corner of their bounding box, and cells are hashed into a
table of buckets: the world may have any size, and cells that share a bucket only cost time. A cell is as wide as the
largest bounding box plus the contact distance on both sides, so that a vertex searches eight cells. One triangle much
larger than the others makes the search slow.
"""

from __future__ import annotations

from functools import cache

from kinema.contact.collision.narrow_phase import TINY
from kinema.contact.compliant import penalty_force, reach_of
from kinema.lang import (
    Array,
    Float,
    Index,
    Int,
    abs,
    clamp,
    cross,
    dot,
    floor,
    func,
    ivec2,
    ivec3,
    kernel,
    local,
    max,
    min,
    norm,
    record,
    select,
    static,
    vec3,
)
from kinema.lang.kernels.kernel import Kernel

BOXES = 64  # capacity for triangles whose boxes are near a vertex: at least this, and at least four times the slots
MOST_BUCKETS = 1 << 16  # so that a product of two bucket numbers fits an Int
ROUNDING = 1.001  # cells are wider than necessary by this factor
FARTHEST = 1e9  # largest cell index: all cells farther from the origin are one


@record
class Surface:
    """Vertices and triangles that can touch.

    vertex: Particle index of each vertex.
    corner: Particle indices of the corners of each triangle.
    edge_share: The triangle's share of -(m_e - 1) for its edges 0-1, 1-2, 2-0 [-].
    corner_share: The triangle's share of c_v for its corners [-].
    owner: Object that each particle belongs to.
    rest: Rest position of each particle [m].
    """

    vertex: Array[Int]
    corner: Array[ivec3]
    edge_share: Array[vec3]
    corner_share: Array[vec3]
    owner: Array[Int]
    rest: Array[vec3]


@record
class SoftSkin:
    """Contact parameters, one entry per particle.

    thickness: Thickness [m].
    k_e: Stiffness [N/m].
    k_d: Damping [N s/m].
    k_f: Viscous friction at low sliding speed [N s/m].
    friction: Coefficient of friction mu [-].
    averaged: 1 for forces averaged over the step, 0 for instantaneous forces.
    """

    thickness: Array[Float]
    k_e: Array[Float]
    k_d: Array[Float]
    k_f: Array[Float]
    friction: Array[Float]
    averaged: Array[Int]


@record
class Cells:
    """The hash grid of triangles.

    low, high: Lower and upper corner of the bounding box of every triangle [m].
    width: Width of a cell, and the search distance [m].
    bucket: Bucket of every triangle.
    start: Offset of each bucket in `listed`; the last entry is the number of triangles.
    listed: Triangle indices, sorted by bucket.
    row, layer: Difference of buckets between neighbouring cells along y and z.
    """

    low: Array[vec3]
    high: Array[vec3]
    width: Array[Float]
    bucket: Array[Int]
    start: Array[Int]
    listed: Array[Int]
    row: Int
    layer: Int


@record
class Boxes:
    """Bounding boxes of triangles [m], in the order of `Cells.listed`."""

    low: Array[vec3]
    high: Array[vec3]


def bucket_tables(triangles: int) -> dict[str, int]:
    """Number of buckets, and the differences of buckets along y and z, which give eight neighbours eight buckets."""
    buckets = min(max(triangles // 2, 8), MOST_BUCKETS)
    row = max(int(buckets**0.45), 2)
    return {"buckets": buckets, "row": row, "layer": min(max(int(buckets**0.85), row + 2), buckets - row - 2)}


# -- search, without derivative ------------------------------------------------------------------------------------


@kernel
def bound_triangles(t: Index, corner: Array[ivec3], x: Array[vec3], low: Array[vec3], high: Array[vec3]):
    """Compute the bounding box of every triangle."""
    i, j, k = corner[t]
    a, b, c = x[i], x[j], x[k]
    low[t] = vec3(min(a.x, b.x, c.x), min(a.y, b.y, c.y), min(a.z, b.z, c.z))
    high[t] = vec3(max(a.x, b.x, c.x), max(a.y, b.y, c.y), max(a.z, b.z, c.z))


@kernel
def measure_cells(
    vertex: Array[Int],
    thickness: Array[Float],
    wide: Float,
    dt: Float,
    v: Array[vec3],
    low: Array[vec3],
    high: Array[vec3],
    width: Array[Float],
):
    """Compute the cell width: the largest bounding box plus the search distance on both sides.

    The search distance is `wide` thicknesses plus the largest approach of two vertices with velocities v [m/s] in half
    of dt [s].
    """
    largest, thickest, slowest, fastest = 0.0, 0.0, v[vertex[0]], v[vertex[0]]
    for t in range(len(low)):
        size = high[t] - low[t]
        largest = max(largest, size.x, size.y, size.z)
    for i in range(len(vertex)):
        u = v[vertex[i]]
        thickest = max(thickest, thickness[vertex[i]])
        slowest = vec3(min(slowest.x, u.x), min(slowest.y, u.y), min(slowest.z, u.z))
        fastest = vec3(max(fastest.x, u.x), max(fastest.y, u.y), max(fastest.z, u.z))
    far = wide * thickest + reach_of(fastest - slowest, dt)
    width[0] = (largest + 2.0 * far) * ROUNDING
    width[1] = far


@func
def cell_of(x: Float, width: Float):
    """Index of the cell of a coordinate [m] along its axis."""
    return Int(clamp(floor(x / width), -FARTHEST, FARTHEST))


@func
def under(a: vec3, b: vec3):
    """Whether every component of a is below that of b."""
    return a.x < b.x and a.y < b.y and a.z < b.z


@func
def bucket_of(cells, q: vec3):
    """Bucket of the cell that contains q [m]."""
    width, buckets = cells.width[0], len(cells.start) - 1
    column, row, layer = cell_of(q.x, width), cell_of(q.y, width), cell_of(q.z, width)
    return (column % buckets + (row % buckets) * cells.row + (layer % buckets) * cells.layer) % buckets


@kernel
def choose_buckets(t: Index, cells: Cells):
    """Find the bucket of every triangle, by the lower corner of its bounding box."""
    cells.bucket[t] = bucket_of(cells, cells.low[t])


@kernel
def sort_triangles(bucket: Array[Int], start: Array[Int], listed: Array[Int]):
    """Sort triangles by bucket: a counting sort, stable within each bucket."""
    buckets = len(start) - 1
    place = local(Int, buckets)
    for t in range(len(bucket)):
        place[bucket[t]] = place[bucket[t]] + 1
    before = 0
    for b in range(buckets):
        count = place[b]
        start[b] = before
        place[b] = before
        before = before + count
    start[buckets] = before
    for t in range(len(bucket)):
        at = place[bucket[t]]
        listed[at] = t
        place[bucket[t]] = at + 1


@kernel
def sort_boxes(k: Index, cells: Cells, boxes: Boxes):
    """Copy the bounding boxes in the order of the lists."""
    t = cells.listed[k]
    boxes.low[k] = cells.low[t]
    boxes.high[k] = cells.high[t]


@func
def nearest_on_edge(q: vec3, a: vec3, along: vec3):
    """Parameter, from 0 at a to 1, of the point of an edge nearest to q."""
    return clamp(dot(q - a, along) / max(dot(along, along), TINY * TINY), 0.0, 1.0)


@func
def square_distance(q: vec3, b: vec3, c: vec3):
    """Squared distance [m^2] of q from a triangle with a corner at the origin and two at b and c."""
    m = cross(b, c)
    area = max(dot(m, m), TINY**4)
    v, w = dot(cross(q, c), m) / area, dot(cross(b, q), m) / area
    best = dot(m, q) * dot(m, q) / area
    if v < 0.0 or w < 0.0 or v + w > 1.0:
        along_b, along_c = q - nearest_on_edge(q, b * 0.0, b) * b, q - nearest_on_edge(q, c * 0.0, c) * c
        across = q - b - nearest_on_edge(q, b, c - b) * (c - b)
        best = dot(along_b, along_b)
        if dot(along_c, along_c) < best:
            best = dot(along_c, along_c)
        if dot(across, across) < best:
            best = dot(across, across)
    return best


@cache
def search_kernel(slots: int) -> Kernel:
    """The kernel that finds triangles near vertices.

    Args:
        slots: Largest number of triangles near a vertex.
    """
    most = max(BOXES, 4 * slots)

    @kernel
    def find_triangles(
        i: Index,
        surface: Surface,
        cells: Cells,
        boxes: Boxes,
        thickness: Array[Float],
        wide: Float,
        dt: Float,
        x: Array[vec3],
        v: Array[vec3],
        near: Array[Int],
        found: Array[Int],
    ):
        """Find the triangles near vertex i: their number, and the first `slots` of them.

        A triangle is near within `wide` times the contact distance plus the largest approach in half of dt [s]. If more
        bounding boxes are near than fit the buffer, the number also exceeds the slots.
        """
        p = surface.vertex[i]
        q, own, thick, buckets, farthest = x[p], surface.owner[p], thickness[p], len(cells.start) - 1, cells.width[1]
        reach = vec3(farthest, farthest, farthest)
        below, above = q - reach, q + reach
        first = bucket_of(cells, below - vec3(1.0, 1.0, 1.0) * (cells.width[0] - 2.0 * farthest))
        # Broad phase: bounding boxes in the eight neighbouring cells.
        boxed = local(Int, most)
        candidates = 0
        for n in range(8):
            b = (first + n % 2 + cells.row * (n // 2 % 2) + cells.layer * (n // 4)) % buckets
            for k in range(cells.start[b], cells.start[b + 1]):
                if under(boxes.low[k], above) and under(below, boxes.high[k]):
                    if candidates < most:
                        boxed[candidates] = cells.listed[k]
                    candidates = candidates + 1
        # Distances; triangles of the vertex's own object must not be near at rest.
        mine = local(Int, slots)
        count = select(candidates > most, slots + candidates - most, 0)
        for k in range(min(candidates, most)):
            t = boxed[k]
            one, two, three = surface.corner[t]
            if one != p and two != p and three != p:
                a, distance = x[one], 0.5 * (thick + thickness[one])
                u = v[p]
                moving = max(reach_of(u - v[one], dt), reach_of(u - v[two], dt), reach_of(u - v[three], dt))
                far = wide * distance + moving
                if square_distance(q - a, x[two] - a, x[three] - a) < far * far:
                    new = True
                    if own == surface.owner[one]:
                        a = surface.rest[one]
                        b1, b2 = surface.rest[two] - a, surface.rest[three] - a
                        new = square_distance(surface.rest[p] - a, b1, b2) >= distance * distance
                    if new:
                        if count < slots:
                            mine[count] = t
                        count = count + 1
        near[i] = count
        for s in static(slots):
            found[i * slots + s] = mine[s]

    return find_triangles


@kernel
def gather_pairs(
    vertex: Array[Int],
    near: Array[Int],
    found: Array[Int],
    slots: Int,
    pair: Array[ivec2],
    pairs: Array[Int],
    missed: Array[Float],
):
    """Gather all pairs of a vertex and a triangle, in the order of vertices; `missed` counts the overflow.

    missed: The largest number of triangles beyond a vertex's slots, and the number of pairs beyond the capacity.
    """
    count, most, lost = 0, 0, 0
    for i in range(len(vertex)):
        most = max(most, near[i])
        for s in range(slots):
            if s < near[i]:
                if count < len(pair):
                    pair[count] = ivec2(vertex[i], found[i * slots + s])
                    count = count + 1
                else:
                    lost = lost + 1
    pairs[0] = count
    missed[0] = Float(max(most - slots, 0))
    missed[1] = Float(lost)


# -- forces --------------------------------------------------------------------------------------------------------


@func
def sum_of(w: vec3, a: vec3, b: vec3, c: vec3):
    """w.x a + w.y b + w.z c."""
    return w.x * a + w.y * b + w.z * c


@kernel
def pair_forces(
    e: Index,
    surface: Surface,
    pair: Array[ivec2],
    pairs: Array[Int],
    skin: SoftSkin,
    dt: Float,
    x: Array[vec3],
    v: Array[vec3],
    f: Array[vec3],
):
    """Add the contact forces [N] of pairs of a vertex and a triangle to those of the particles.

    The vertex provides the parameters of the law; the contact distance is the mean of its and the triangle's thickness.

    Gradients:
        Exact, with respect to x, v and all parameters of the skin, for the pairs found, of a continuous force. A force
        that is not averaged jumps by k_d |v_n| where contact begins; the derivative does not include this jump. A
        vertex exactly on a triangle is pushed to the side of its normal.
    """
    if e < pairs[0]:
        p, t = pair[e]
        i, j, k = surface.corner[t]
        origin = x[i]
        q, b, c = x[p] - origin, x[j] - origin, x[k] - origin
        vp, va, vb, vc = v[p], v[i], v[j], v[k]
        edge_share, corner_share = surface.edge_share[t], surface.corner_share[t]
        distance = 0.5 * (skin.thickness[p] + skin.thickness[i])
        k_e, k_d, k_f, friction = skin.k_e[p], skin.k_d[p], skin.k_f[p], skin.friction[p]
        step = select(skin.averaged[p] > 0, dt, 0.0)
        far = distance + max(reach_of(vp - va, step), reach_of(vp - vb, step), reach_of(vp - vc, step))
        m = cross(b, c)
        size = max(norm(m), TINY * TINY)
        N = m / size
        # Gradients of the barycentric coordinates, the coordinates and height of p, and v_T.
        gb, gc = cross(c, N) / size, cross(N, b) / size
        ga = -(gb + gc)
        wb, wc = dot(gb, q), dot(gc, q)
        wa = 1.0 - wb - wc
        h = dot(N, q)
        na, nb, nc = dot(N, va), dot(N, vb), dot(N, vc)
        carried = sum_of(vec3(wa, wb, wc), va, vb, vc) - h * sum_of(vec3(na, nb, nc), ga, gb, gc)
        slide = vp - carried

        # The nearest point on each edge, and the nearest edge.
        side = N if h >= 0.0 else -N
        inside = wa > 0.0 and wb > 0.0 and wc > 0.0
        along = nearest_on_edge(q, b * 0.0, b)
        across = nearest_on_edge(q, b, c - b)
        back = nearest_on_edge(q, c, -c)
        zero = vec3(0.0, 0.0, 0.0)
        w0, w1, w2 = vec3(1.0 - along, along, 0.0), vec3(0.0, 1.0 - across, across), vec3(back, 0.0, 1.0 - back)
        d0 = norm(q - sum_of(w0, zero, b, c))
        d1 = norm(q - sum_of(w1, zero, b, c))
        d2 = norm(q - sum_of(w2, zero, b, c))
        nearest = 0
        if d1 < d0:
            nearest = 1
        if d2 < d0 and d2 < d1:
            nearest = 2
        # The terms of the face, the edges and the corners, each with its share.
        total, on_a, on_b, on_c, dragged = zero, zero, zero, zero, zero
        for n in static(7):
            if n == 0:
                w, share = vec3(wa, wb, wc), select(inside, 1.0, 0.0)
            elif n < 4:
                w = (w0, w1, w2)[n - 1]
                share = (edge_share.x, edge_share.y, edge_share.z)[n - 1]
                share = select(not inside and nearest == n - 1, share + 1.0, share)
            else:
                w = (vec3(1.0, 0.0, 0.0), vec3(0.0, 1.0, 0.0), vec3(0.0, 0.0, 1.0))[n - 4]
                share = (corner_share.x, corner_share.y, corner_share.z)[n - 4]
            out = q - sum_of(w, zero, b, c)
            away = abs(h) if n == 0 else norm(out)
            if share != 0.0 and away < far:
                normal = side if n == 0 or away <= TINY else out / away
                speed = dot(normal, vp - sum_of(w, va, vb, vc))
                u = slide + normal * (speed - dot(normal, slide))
                depth = distance - away
                force = share * penalty_force(depth, normal, u, step, k_e, k_d, k_f, friction)
                pushed = normal * dot(normal, force)
                total = total + force
                dragged = dragged + (force - pushed)
                on_a, on_b, on_c = on_a + w.x * pushed, on_b + w.y * pushed, on_c + w.z * pushed
        # The force on the vertex, and the opposite force on the corners.
        f[p] += total
        f[i] -= on_a + wa * dragged - N * (h * dot(ga, dragged))
        f[j] -= on_b + wb * dragged - N * (h * dot(gb, dragged))
        f[k] -= on_c + wc * dragged - N * (h * dot(gc, dragged))
