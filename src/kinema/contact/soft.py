"""Soft things against each other and against themselves: vertices near triangles, in compliant contact.

A vertex p and a triangle T are in contact while their distance is below D, the mean of the thicknesses of both. The
force is that of `penalty_force` of the depth D - d(p, T), along the line from the nearest place of T to p: both sides
of a triangle push away from it. So that neighbouring triangles do not count twice where their nearest places are the
same, edges and corners are taken off and put back by inclusion and exclusion [Li et al. 2023]:

    f = sum_T f(p, T) - sum_e (m_e - 1) f(p, e) + sum_v c_v f(p, v),    c_v = 1 - n_v + sum_(e at v) (m_e - 1)

with the number m_e of triangles at an edge and n_v at a vertex. On a flat or convex surface this is the force of its
nearest place alone; in a valley both sides push; everywhere it is continuous. Every triangle carries its share of the
terms of its edges and corners.

Forces and moments cancel. What is along the normal acts on the corners with the weights of the nearest place. Friction
is that of the velocity relative to the triangle as it carries a point at p along: with the barycentric coordinates w_k
of p in its plane, their gradients g_k, the height h of p over the plane and its normal N,

    v_T = sum_k w_k v_k - h g_k (N.v_k)

which vanishes relative to p in every rigid motion of both; its transpose gives the forces on the corners.

A vertex touches no triangle of its own thing that is nearer than D at rest. Contact does not know sides: what has
passed through a triangle is pushed on to the other side.

A step finds the pairs from the positions at its start, and then forms forces. The search is not differentiated:

    p.call(bound_triangles, ...); p.call(measure_cells, ...); p.call(choose_buckets, ...); p.call(sort_triangles, ...)
    p.call(find_triangles, ...); p.call(gather_pairs, ...)
    p.call(pair_forces, surface, pairs, skin, x, v, f, count=room)

Triangles are sorted by the cell of a grid that their centre is in, cells by number into a table of buckets: any size of
the world has room, cells that share a bucket only cost time. A cell is twice as wide as the farthest that a touching
vertex can be from the centre of a triangle, so that a vertex looks into eight.
"""

from __future__ import annotations

from functools import cache

from kinema.contact.compliant import penalty_force
from kinema.contact.shapes import TINY
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
    norm,
    record,
    select,
    sqrt,
    static,
    vec3,
)
from kinema.lang.kernel import Kernel

ROW, LAYER = 113, 6829  # buckets from a cell to the next along y and z
MOST_BUCKETS = 1 << 18  # times LAYER this is an Int
FARTHEST = 1e9  # cells from the origin, beyond which all are one


@record
class Surface:
    """What can touch.

    vertex: Numbers of particles.
    corner: Of triangles, numbers of particles.
    edge_share: Of the edges 0-1, 1-2, 2-0 of every triangle, its share of -(m_e - 1) [-].
    corner_share: Of its corners, its share of c_v [-].
    owner: Of every particle, the thing it belongs to.
    rest: Of every particle, the place at rest [m].
    """

    vertex: Array[Int]
    corner: Array[ivec3]
    edge_share: Array[vec3]
    corner_share: Array[vec3]
    owner: Array[Int]
    rest: Array[vec3]


@record
class SoftSkin:
    """How particles touch, one number per particle.

    thickness: [m]
    k_e: Stiffness [N/m].
    k_d: Damping [N s/m].
    k_f: Slow friction [N s/m].
    friction: Coefficient mu [-].
    """

    thickness: Array[Float]
    k_e: Array[Float]
    k_d: Array[Float]
    k_f: Array[Float]
    friction: Array[Float]


@record
class Cells:
    """Triangles by cells.

    centre: Of triangles [m].
    reach: From there to the farthest corner [m].
    width: Of a cell [m].
    bucket: Of every triangle.
    start: Where the list of a bucket begins in `listed`, and one more.
    listed: Numbers of triangles.
    """

    centre: Array[vec3]
    reach: Array[Float]
    width: Array[Float]
    bucket: Array[Int]
    start: Array[Int]
    listed: Array[Int]


# -- search, without derivative ------------------------------------------------------------------------------------


@kernel
def bound_triangles(t: Index, corner: Array[ivec3], x: Array[vec3], centre: Array[vec3], reach: Array[Float]):
    """A ball around every triangle."""
    i, j, k = corner[t]
    middle = (x[i] + x[j] + x[k]) / 3.0
    a, b, c = x[i] - middle, x[j] - middle, x[k] - middle
    centre[t] = middle
    reach[t] = sqrt(max(dot(a, a), dot(b, b), dot(c, c)))


@kernel
def measure_cells(vertex: Array[Int], thickness: Array[Float], wide: Float, reach: Array[Float], width: Array[Float]):
    """Cells are twice as wide as the largest ball and distance; `wide` distances of contact are searched."""
    largest, thickest = 0.0, 0.0
    for t in range(len(reach)):
        largest = max(largest, reach[t])
    for i in range(len(vertex)):
        thickest = max(thickest, thickness[vertex[i]])
    width[0] = 2.0 * (largest + wide * thickest)


@func
def cell_of(x: Float, width: Float, shift: Float):
    """Number of the cell of a coordinate [m] along its axis, in cells shifted by a share of their width."""
    return Int(clamp(floor(x / width + shift), -FARTHEST, FARTHEST))


@func
def bucket_of(column, row, layer, buckets):
    """Where a cell is listed."""
    return (column % buckets + ROW * (row % buckets) + LAYER * (layer % buckets)) % buckets


@kernel
def choose_buckets(t: Index, centre: Array[vec3], width: Array[Float], start: Array[Int], bucket: Array[Int]):
    """The bucket of every triangle."""
    q, w = centre[t], width[0]
    bucket[t] = bucket_of(cell_of(q.x, w, 0.0), cell_of(q.y, w, 0.0), cell_of(q.z, w, 0.0), len(start) - 1)


@kernel
def sort_triangles(bucket: Array[Int], start: Array[Int], listed: Array[Int]):
    """Lists of triangles by bucket, each in their order."""
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


@func
def nearest_on_edge(q: vec3, a: vec3, along: vec3):
    """How far along an edge from a, from 0 to 1, its nearest place to q is."""
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
        slots: Most triangles near a vertex.
    """

    @kernel
    def find_triangles(
        i: Index,
        surface: Surface,
        cells: Cells,
        thickness: Array[Float],
        wide: Float,
        x: Array[vec3],
        near: Array[Int],
        found: Array[Int],
    ):
        """Triangles nearer to vertex i than `wide` times the distance of contact: their number, and `slots` of them."""
        p = surface.vertex[i]
        q, own, thick, buckets, width = x[p], surface.owner[p], thickness[p], len(cells.start) - 1, cells.width[0]
        column, row = cell_of(q.x, width, -0.5), cell_of(q.y, width, -0.5)
        layer = cell_of(q.z, width, -0.5)
        first = bucket_of(column, row, layer, buckets)
        mine = local(Int, slots)
        count = 0
        for n in range(8):
            b = (first + n % 2 + ROW * (n // 2 % 2) + LAYER * (n // 4)) % buckets
            for k in range(cells.start[b], cells.start[b + 1]):
                t = cells.listed[k]
                away = q - cells.centre[t]
                one, two, three = surface.corner[t]
                distance = 0.5 * (thick + thickness[one])
                span = cells.reach[t] + wide * distance
                if dot(away, away) < span * span and one != p and two != p and three != p:
                    a, limit = x[one], wide * distance
                    if square_distance(q - a, x[two] - a, x[three] - a) < limit * limit:
                        new = True
                        if own == surface.owner[one]:
                            a = surface.rest[one]
                            b1, b2 = surface.rest[two] - a, surface.rest[three] - a
                            new = square_distance(surface.rest[p] - a, b1, b2) >= distance * distance
                        for s in range(slots):  # two cells may share a bucket
                            if s < count and mine[s] == t:
                                new = False
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
    """All pairs of a vertex and a triangle, in the order of vertices; `missed` counts what had no room.

    missed: Triangles beyond the slots of the vertex that has most, and pairs beyond all.
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
    x: Array[vec3],
    v: Array[vec3],
    f: Array[vec3],
):
    """Contact forces [N] of pairs of a vertex and a triangle, added to those of the particles.

    The numbers of the law are those of the vertex; the distance is the mean of its thickness and the triangle's.

    Gradients:
        Exact, with respect to x, v and all numbers of the skin, for the pairs found. Continuous but for the jump
        k_d |v_n| of the damping where contact begins, which derivatives do not see. Where a vertex is on a triangle, it
        is pushed to the side of its normal.
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
        m = cross(b, c)
        size = max(norm(m), TINY * TINY)
        N = m / size
        # Gradients of the barycentric coordinates, and the point p seen by the triangle.
        gb, gc = cross(c, N) / size, cross(N, b) / size
        ga = -(gb + gc)
        wb, wc = dot(gb, q), dot(gc, q)
        wa = 1.0 - wb - wc
        h = dot(N, q)
        na, nb, nc = dot(N, va), dot(N, vb), dot(N, vc)
        carried = sum_of(vec3(wa, wb, wc), va, vb, vc) - h * sum_of(vec3(na, nb, nc), ga, gb, gc)
        slide = vp - carried

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
        total, on_a, on_b, on_c, dragged = zero, zero, zero, zero, zero
        for n in static(7):
            # The face; edges; corners.
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
            if share != 0.0 and away < distance:
                normal = side if n == 0 or away <= TINY else out / away
                speed = dot(normal, vp - sum_of(w, va, vb, vc))
                u = slide + normal * (speed - dot(normal, slide))
                depth = distance - away
                force = share * penalty_force(depth, normal, u, k_e, k_d, k_f, friction)
                pushed = normal * dot(normal, force)
                total = total + force
                dragged = dragged + (force - pushed)
                on_a, on_b, on_c = on_a + w.x * pushed, on_b + w.y * pushed, on_c + w.z * pushed
        f[p] += total
        f[i] -= on_a + wa * dragged - N * (h * dot(ga, dragged))
        f[j] -= on_b + wb * dragged - N * (h * dot(gb, dragged))
        f[k] -= on_c + wc * dragged - N * (h * dot(gc, dragged))
