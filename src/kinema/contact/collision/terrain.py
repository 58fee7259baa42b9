"""Round points against terrain: fixed triangles, found by a grid in the horizontal plane.

Round points are spheres on shapes: the centre of a sphere, the ends of a capsule, corners of boxes and hulls (with
radius 0). Each forms a pair of its own. A grid in x and y of the terrain's frame lists in every cell all triangles
within a given distance of the cell, so that a point searches a single cell.

The outside is where triangles are counterclockwise. For a point nearest to an edge or corner, the sum of the normals
around that feature decides whether it is outside [Baerentzen and Aanaes 2005]. At the border of the terrain every point
is outside.
"""

from __future__ import annotations

import numpy as np

from kinema.contact.collision.narrow_phase import TINY, Pairs, Shapes, Touch, pair_at, place, put_none, times
from kinema.contact.collision.sphere_capsule_box import put_ball
from kinema.lang import (
    Array,
    Float,
    Int,
    clamp,
    cross,
    dot,
    floor,
    func,
    kernel,
    mat33,
    max,
    norm,
    normalize,
    record,
    select,
    shared,
    static,
    transpose,
    vec3,
)
from kinema.scene.description import Mesh

VALLEY = 0.9  # cosine of the smallest angle between two faces for which a sphere touches both
PLANE = 1.0 - 1e-6  # cosine of the angle below which two faces are coplanar


@record
class Knobs:
    """The round point of every pair, on its first shape.

    at: Position in the shape's frame, as multiples of its size along x, y, z [-].
    swell: Radius as a multiple of the first component of the size [-]: 1 for spheres and capsules, 0 for corners.
    capsule: 1 if the size is (radius, half length): `at` then multiplies radius, radius and half length.
    """

    at: Array[vec3]
    swell: Array[Float]
    capsule: Array[Int]


@record
class Terrain:
    """Triangles, and the grid that finds them.

    vertex: Vertices in the terrain's frame [m].
    corner: Vertex indices, three per triangle, counterclockwise from outside.
    edge_normal: Sum of the normals beside the edges 0-1, 1-2, 2-0 of every triangle [-]; 0 at the border.
    vertex_normal: Sum of the normals around vertices, weighted by angles [-]; 0 at the border.
    cell_start: Offset in `listed` of cell x + columns * y; the last entry is the length of `listed`.
    listed: Triangle indices.
    columns, rows: Number of cells along x and y.
    left, below: Corner of the grid [m].
    cell: Width of a cell [m].
    depth: Largest depth under a triangle at which a point is still in contact [m].
    """

    vertex: Array[vec3]
    corner: Array[Int]
    edge_normal: Array[vec3]
    vertex_normal: Array[vec3]
    cell_start: Array[Int]
    listed: Array[Int]
    columns: Int
    rows: Int
    left: Float
    below: Float
    cell: Float
    depth: Float


def terrain_tables(mesh: Mesh, around: float, cell: float | None = None) -> dict[str, np.ndarray]:
    """Arrays of `Terrain` by name.

    Args:
        mesh: Triangles, counterclockwise from outside; x and y are horizontal.
        around: Distance within which triangles are found, at least radius plus margin [m]; also the depth.
        cell: Width of a cell [m]; by default about the width of a triangle, and at least `around`.
    """
    x, faces = np.asarray(mesh.vertices, np.float64), np.asarray(mesh.faces, np.int64)
    corners = x[faces]
    span = np.maximum(x[:, :2].max(0) - x[:, :2].min(0), 1e-9)
    width = cell or max(around, float(np.sqrt(2 * span.prod() / len(faces))))
    origin = x[:, :2].min(0) - around
    count = np.maximum(np.ceil((span + 2 * around) / width).astype(int), 1)
    low = np.clip(((corners[..., :2].min(1) - around - origin) // width).astype(int), 0, count - 1)
    high = np.clip(((corners[..., :2].max(1) + around - origin) // width).astype(int), 0, count - 1)
    lists: list[list[int]] = [[] for _ in range(count.prod())]
    for k, ((a, b), (c, d)) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        for row in range(b, d + 1):
            for column in range(a, c + 1):
                lists[column + count[0] * row].append(k)
    edge_normal, vertex_normal = _normals(x, faces)
    return {
        "vertex": x,
        "corner": faces.ravel(),
        "edge_normal": edge_normal.reshape(-1, 3),
        "vertex_normal": vertex_normal,
        "cell_start": np.cumsum([0, *map(len, lists)]),
        "listed": np.array([k for cell_list in lists for k in cell_list]),
        "columns": count[0],
        "rows": count[1],
        "left": origin[0],
        "below": origin[1],
        "cell": np.array(width),
        "depth": np.array(around),
    }


def _normals(x: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the normals beside edges, shape (triangles, 3, 3), and around vertices, shape (vertices, 3)."""
    corners = x[faces]
    ahead = np.roll(corners, -1, 1) - corners
    behind = np.roll(corners, 1, 1) - corners
    normal = np.cross(ahead[:, 0], -ahead[:, 2])
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-300)
    angle = np.arctan2(np.linalg.norm(np.cross(ahead, behind), axis=2), (ahead * behind).sum(2))
    around = np.zeros_like(x)
    np.add.at(around, faces.ravel(), (angle[..., None] * normal[:, None]).reshape(-1, 3))
    pairs = np.sort(np.stack([faces, np.roll(faces, -1, 1)], 2).reshape(-1, 2), 1)
    edges, which, used = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    beside = np.zeros((len(edges), 3))
    np.add.at(beside, which.ravel(), np.repeat(normal, 3, 0))
    beside[used == 1] = 0.0
    around[edges[used == 1].ravel()] = 0.0
    return beside[which.ravel()].reshape(-1, 3, 3), around


@func
def triangle_vertex(terrain, f, k):
    """Corner k (modulo 3) of triangle f [m]."""
    return terrain.vertex[terrain.corner[3 * f + k % 3]]


@func
def nearest_feature(terrain, f, q: vec3):
    """Feature of triangle f nearest to q [m]: 0 the face, 1-3 an edge, 4-6 a corner; and the squared distance [m^2]."""
    x, y, z = triangle_vertex(terrain, f, 0), triangle_vertex(terrain, f, 1), triangle_vertex(terrain, f, 2)
    n = normalize(cross(y - x, z - x))
    inside = dot(cross(n, y - x), q - x) > 0.0 and dot(cross(n, z - y), q - y) > 0.0
    inside = inside and dot(cross(n, x - z), q - z) > 0.0
    best, feature = dot(n, q - x) * dot(n, q - x), 0
    if not inside:
        best = 1e30
        for k in static(3):
            a, b = triangle_vertex(terrain, f, k), triangle_vertex(terrain, f, k + 1)
            t = dot(q - a, b - a) / max(dot(b - a, b - a), TINY * TINY)
            d = q - a - clamp(t, 0.0, 1.0) * (b - a)
            if dot(d, d) < best:
                best, feature = dot(d, d), select(t <= 0.0, 4 + k, select(t >= 1.0, 4 + (k + 1) % 3, 1 + k))
    return feature, best


@func
def from_feature(terrain, f, feature, q: vec3):
    """Signed distance [m] of q from the nearest feature of triangle f, and the unit normal there."""
    x, y, z = triangle_vertex(terrain, f, 0), triangle_vertex(terrain, f, 1), triangle_vertex(terrain, f, 2)
    n = normalize(cross(y - x, z - x))
    distance = dot(n, q - x)
    if feature > 0:
        a = triangle_vertex(terrain, f, feature - 1)
        out = terrain.vertex_normal[terrain.corner[3 * f + (feature - 1) % 3]]
        d = q - a
        if feature < 4:
            along = triangle_vertex(terrain, f, feature) - a
            d = d - (dot(d, along) / dot(along, along)) * along
            out = terrain.edge_normal[3 * f + feature - 1]
        if norm(d) > TINY:
            side = 1.0 if dot(out, d) >= 0.0 else -1.0
            distance = side * norm(d)
            n = d / distance
    return distance, n


@func
def within(terrain, distance: Float, far: Float):
    """Whether a signed distance [m] is in contact range: less than `far`, and not deeper than the terrain's depth."""
    return distance > -terrain.depth and distance < far


@func
def nearest_triangle(terrain, q: vec3, far: Float):
    """The triangle nearest to q [m] and its nearest feature; -1 if q is not within `far` [m] of it."""
    nearest, triangle, found = 1e30, -1, 0
    column, row = Int(floor((q.x - terrain.left) / terrain.cell)), Int(floor((q.y - terrain.below) / terrain.cell))
    if column >= 0 and column < terrain.columns and row >= 0 and row < terrain.rows:
        here = column + terrain.columns * row
        for k in range(terrain.cell_start[here], terrain.cell_start[here + 1]):
            f = terrain.listed[k]
            feature, square = nearest_feature(terrain, f, q)
            if square < nearest:
                nearest, triangle, found = square, f, feature
        if triangle >= 0:
            distance, _ = from_feature(terrain, triangle, found, q)
            if not within(terrain, distance, far):
                triangle = -1
    return triangle, found


@func
def valley_faces(terrain, q: vec3, far: Float, distance: Float, n: vec3):
    """The triangles nearest to q [m] across a steep and across a shallow valley from the contact point; -1 if none.

    The contact point is at q minus the distance [m] times n. q projects onto such a triangle, and the contact point is
    in front of it; on a ridge it would be behind it. Triangles coplanar with the contact point are excluded.
    """
    nearest_steep, steep, nearest_shallow, shallow = 1e30, -1, 1e30, -1
    column, row = Int(floor((q.x - terrain.left) / terrain.cell)), Int(floor((q.y - terrain.below) / terrain.cell))
    here = column + terrain.columns * row
    for k in range(terrain.cell_start[here], terrain.cell_start[here + 1]):
        f = terrain.listed[k]
        feature, square = nearest_feature(terrain, f, q)
        if feature == 0 and square < max(nearest_steep, nearest_shallow):
            height, up = from_feature(terrain, f, 0, q)
            slope = dot(up, n)
            if within(terrain, height, far) and slope < PLANE and height > distance * slope:
                if slope < VALLEY:
                    if square < nearest_steep:
                        nearest_steep, steep = square, f
                elif square < nearest_shallow:
                    nearest_shallow, shallow = square, f
    return steep, shallow


@func
def from_valley(terrain, f, feature, beside, q: vec3):
    """`from_feature`, rounded at the edge of triangle f where triangle `beside` rises next to it (-1: no rounding).

    Where q is over both faces, the distance is a smooth minimum of both. At the border of the other face, q is farther
    from it than from f by the factor 1 / cos of the angle between the faces, and its weight is still 0.
    """
    distance, n = from_feature(terrain, f, feature, q)
    if beside >= 0 and feature == 0 and distance > 0.0:
        height, up = from_feature(terrain, beside, 0, q)
        reach = distance * (1.0 / dot(up, n) - 1.0)
        share = max(0.5 * (1.0 - (height - distance) / max(reach, TINY)), 0.0)
        distance = distance - share * share * reach
        n = normalize((1.0 - share) * n + share * up)
    return distance, n


@func
def knob(shapes, knobs, i, a):
    """Position of round point i in the frame of shape a, and its radius [m]."""
    size = shapes.size[a]
    scale = select(knobs.capsule[i] == 1, vec3(size.x, size.x, size.y), size)
    return times(scale, knobs.at[i]), knobs.swell[i] * size.x


@kernel
def touch_ball_terrain(
    shapes: Shapes,
    pairs: Pairs,
    knobs: Knobs,
    terrain: Terrain,
    R: Array[mat33],
    p: Array[vec3],
    margin: Float,
    touch: Touch,
):
    """A round point of a shape against terrain, two candidates: the nearest point, and another face in a steep valley.

    The second candidate is the nearest triangle below the centre whose normal differs by more than 26 degrees from the
    first normal and that has the first contact point in front of it: a ball in a valley rests on both sides. Coplanar
    neighbours do not count twice, nor do both sides of a ridge. Valleys of less than 26 degrees are rounded, see
    `from_valley`: a ball at the bottom is higher by 1/8 of its radius times the square of the angle.

    Gradients:
        Exact for the faces, edge or corner found, also with respect to the vertices of the terrain. The normal rotates
        without a jump over edges of up to 26 degrees, except at corners of the terrain where three faces rise.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, b, at = pair_at(pairs, i)
        R1, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        x, r = knob(shapes, knobs, shared(pairs.number[i]), a)
        q = transpose(R2) @ (p1 + R1 @ x - p2)
        f, feature = nearest_triangle(terrain, q, r + margin)
        other = -1
        if f >= 0:
            distance, n = from_feature(terrain, f, feature, q)
            other, beside = valley_faces(terrain, q, r + margin, distance, n)
            distance, n = from_valley(terrain, f, feature, beside, q)
            put_ball(touch, at, R2, p2, q, distance, n, r)
        else:
            put_none(touch, at)
        if other >= 0:
            distance, n = from_feature(terrain, other, 0, q)
            put_ball(touch, at + 1, R2, p2, q, distance, n, r)
        else:
            put_none(touch, at + 1)


@kernel
def touch_corner_terrain(
    shapes: Shapes,
    pairs: Pairs,
    knobs: Knobs,
    terrain: Terrain,
    R: Array[mat33],
    p: Array[vec3],
    margin: Float,
    touch: Touch,
):
    """A corner of a shape against terrain, one candidate: the nearest point.

    Gradients:
        Exact, as for `touch_ball_terrain`.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, b, at = pair_at(pairs, i)
        R1, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        x, r = knob(shapes, knobs, shared(pairs.number[i]), a)
        q = transpose(R2) @ (p1 + R1 @ x - p2)
        f, feature = nearest_triangle(terrain, q, r + margin)
        if f >= 0:
            distance, n = from_feature(terrain, f, feature, q)
            put_ball(touch, at, R2, p2, q, distance, n, r)
        else:
            put_none(touch, at)
