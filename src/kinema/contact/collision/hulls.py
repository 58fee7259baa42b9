"""Convex polyhedra: tables of their corners, faces and edges, and polyhedra against planes and spheres.

The size of a shape scales the corners of its hull: a box is a scaled cube, and a cylinder (except against planes) a
scaled prism. Every search loops over the features of one hull, in its own frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kinema.contact.collision.narrow_phase import (
    TINY,
    Pairs,
    Shapes,
    Touch,
    direction,
    pair_at,
    place,
    put_none,
    times,
    within_reach,
)
from kinema.contact.collision.planes import over_plane, put_over
from kinema.contact.collision.sphere_capsule_box import put_ball
from kinema.lang import (
    Array,
    Float,
    Int,
    clamp,
    columns_of,
    cross,
    dot,
    func,
    kernel,
    mat33,
    norm,
    normalize,
    record,
    select,
    shared,
    sqrt,
    transpose,
    vec3,
)
from kinema.scene.convex_hull import Hull

PLANE_CANDIDATES = 4
TILT = 0.05  # slope up to which a tipping hull still finds all its candidates on a plane
STEEP = 1.0 / TILT


@record
class Hulls:
    """Corners, faces and edges of all hulls, and their ranges per shape; the ranges of shapes without a hull are empty.

    vertex_start, vertex_count, face_start, face_count, edge_start, edge_count: Range of each shape.
    cylinder: Per shape, 1 if its size is (radius, half length), 0 if its size is the scale along x, y, z.
    vertex: Corners before scaling [m].
    corner_start, corner_count: Range of each face in `corner`.
    corner: Vertex indices around the faces, counterclockwise from outside; the first three are not collinear.
    edge_from, edge_to: Vertex indices of each edge.
    edge_left, edge_right: Indices of the adjacent faces; the left one runs along the edge forwards.
    """

    vertex_start: Array[Int]
    vertex_count: Array[Int]
    face_start: Array[Int]
    face_count: Array[Int]
    edge_start: Array[Int]
    edge_count: Array[Int]
    cylinder: Array[Int]
    vertex: Array[vec3]
    corner_start: Array[Int]
    corner_count: Array[Int]
    corner: Array[Int]
    edge_from: Array[Int]
    edge_to: Array[Int]
    edge_left: Array[Int]
    edge_right: Array[Int]


def hull_tables(hulls: Sequence[Hull | None], cylinders: Sequence[bool]) -> dict[str, np.ndarray]:
    """Arrays of `Hulls` by name, for the hull (or None) of every shape, and whether it is a cylinder's prism."""
    made: dict[str, list[Any]] = {name: [] for name, _ in Hulls.members}
    for hull, cylinder in zip(hulls, cylinders, strict=True):
        starts = {"vertex": len(made["vertex"]), "face": len(made["corner_start"]), "edge": len(made["edge_from"])}
        counts = dict.fromkeys(starts, 0)
        if hull is not None:
            counts = {"vertex": len(hull.vertices), "face": len(hull.faces), "edge": len(hull.edges)}
            made["vertex"].extend(hull.vertices)
            for loop in hull.faces:
                made["corner_start"].append(len(made["corner"]))
                made["corner_count"].append(len(loop))
                made["corner"].extend(starts["vertex"] + v for v in loop)
            for a, b, left, right in hull.edges:
                made["edge_from"].append(starts["vertex"] + a)
                made["edge_to"].append(starts["vertex"] + b)
                made["edge_left"].append(starts["face"] + left)
                made["edge_right"].append(starts["face"] + right)
        for name in starts:
            made[f"{name}_start"].append(starts[name])
            made[f"{name}_count"].append(counts[name])
        made["cylinder"].append(int(cylinder))
    return {name: np.array(values, np.float64 if name == "vertex" else np.int32) for name, values in made.items()}


@func
def hull_scale(shapes, hulls, i):
    """Scale of a shape's hull along x, y and z [-]; of a prism [m]."""
    size = shapes.size[i]
    return select(hulls.cylinder[i] == 1, vec3(size.x, size.x, size.y), size)


@func
def face_plane(hulls, f, scale: vec3):
    """Unit normal of a face, out of the hull, and the face's offset along it [m].

    A face whose scaled area is zero has the normal of the unscaled face.
    """
    c = hulls.corner_start[f]
    a, b, d = hulls.vertex[hulls.corner[c]], hulls.vertex[hulls.corner[c + 1]], hulls.vertex[hulls.corner[c + 2]]
    x = times(scale, a)
    w = cross(times(scale, b) - x, times(scale, d) - x)
    n = normalize(w if dot(w, w) > 0.0 else cross(b - a, d - a))
    return n, dot(n, x)


@func
def next_corner(hulls, f, k):
    """Index of the vertex after corner k of a face."""
    return hulls.corner[hulls.corner_start[f] + select(k + 1 == hulls.corner_count[f], 0, k + 1)]


@func
def highest_face(hulls, i, scale: vec3, q: vec3):
    """The face of shape i's hull over which q [m] is highest, the first one on a tie, and the height [m]."""
    best, face = -1e30, hulls.face_start[i]
    for k in range(hulls.face_count[i]):
        f = hulls.face_start[i] + k
        n, offset = face_plane(hulls, f, scale)
        height = dot(n, q) - offset
        if height > best:
            best, face = height, f
    return face, best


@func
def beside_face(hulls, f, scale: vec3, n: vec3, q: vec3):
    """Whether q [m] is outside of face f with normal n, seen along n."""
    beside = False
    for k in range(hulls.corner_count[f]):
        x = times(scale, hulls.vertex[hulls.corner[hulls.corner_start[f] + k]])
        y = times(scale, hulls.vertex[next_corner(hulls, f, k)])
        beside = beside or dot(cross(y - x, n), q - x) > 0.0
    return beside


@func
def from_edge(hulls, e, scale: vec3, q: vec3):
    """The vector [m] from the nearest point of an edge to q."""
    x = times(scale, hulls.vertex[hulls.edge_from[e]])
    along = times(scale, hulls.vertex[hulls.edge_to[e]]) - x
    square = dot(along, along)
    t = clamp(dot(q - x, along) / square, 0.0, 1.0) if square > 0.0 else 0.0
    return q - x - t * along


@func
def nearest_edge(hulls, i, scale: vec3, q: vec3):
    """The edge of shape i's hull nearest to q [m], the first one on a tie."""
    best, edge = 1e30, hulls.edge_start[i]
    for k in range(hulls.edge_count[i]):
        e = hulls.edge_start[i] + k
        d = from_edge(hulls, e, scale, q)
        if dot(d, d) < best:
            best, edge = dot(d, d), e
    return edge


@func
def hull_feature(hulls, i, scale: vec3, q: vec3):
    """The feature of shape i's hull nearest to q [m]: the index of a face, and of an edge or -1 for the face itself.

    For q inside the hull it is the nearest face. Corners count as ends of edges.
    """
    face, height = highest_face(hulls, i, scale, q)
    n, _ = face_plane(hulls, face, scale)
    edge = -1
    if height > TINY:
        if beside_face(hulls, face, scale, n, q):
            edge = nearest_edge(hulls, i, scale, q)
    return face, edge


@func
def from_hull(hulls, face, edge, scale: vec3, q: vec3):
    """Signed distance [m] of q from the nearest feature of a hull, and the unit normal there."""
    n, offset = face_plane(hulls, face, scale)
    distance = dot(n, q) - offset
    if edge >= 0:
        d = from_edge(hulls, edge, scale, q)
        distance, n = norm(d), direction(d)
    return distance, n


@kernel
def touch_sphere_hull(
    shapes: Shapes, pairs: Pairs, hulls: Hulls, R: Array[mat33], p: Array[vec3], margin: Float, touch: Touch
):
    """A sphere against a hull, one candidate: the point of the hull nearest to the centre.

    If the centre is inside, the normal is that of the nearest face.

    Gradients:
        Exact for the face, edge or corner found; also with respect to the scale of the hull.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, b, at = pair_at(pairs, i)
        _, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        if within_reach(shapes, a, b, p1, p2, margin):
            q = transpose(R2) @ (p1 - p2)
            scale = hull_scale(shapes, hulls, b)
            face, edge = hull_feature(hulls, b, scale, q)
            distance, n = from_hull(hulls, face, edge, scale, q)
            put_ball(touch, at, R2, p2, q, distance, n, shapes.size[a].x)
        else:
            put_none(touch, at)


@func
def lowest_corner(hulls, a, scale: vec3, up: vec3):
    """Index of the corner of shape a's hull that is lowest along `up`, the first one on a tie."""
    tall, lowest, found = times(scale, up), 1e30, hulls.vertex_start[a]
    for k in range(hulls.vertex_count[a]):
        height = dot(tall, hulls.vertex[hulls.vertex_start[a] + k])
        if height < lowest:
            lowest, found = height, hulls.vertex_start[a] + k
    return found


@func
def far_corner(hulls, a, scale: vec3, up: vec3, first):
    """Index of a low corner far from the corner `first`, or `first` if none is farther than TINY.

    It maximises the horizontal distance [m] minus STEEP times the height over `first`.
    """
    x1, best, found = times(scale, hulls.vertex[first]), TINY, first
    for k in range(hulls.vertex_count[a]):
        d = times(scale, hulls.vertex[hulls.vertex_start[a] + k]) - x1
        height = dot(up, d)
        wanted, level = best + STEEP * height, dot(d, d) - height * height
        if level > wanted * wanted:
            best, found = sqrt(level) - STEEP * height, hulls.vertex_start[a] + k
    return found


@func
def side_corners(hulls, a, scale: vec3, up: vec3, first, side: vec3):
    """Indices of a low corner far along `side`, a horizontal direction, and of one far against it; see `far_corner`."""
    x1, left, right, at_left, at_right = times(scale, hulls.vertex[first]), TINY, TINY, first, first
    for k in range(hulls.vertex_count[a]):
        d = times(scale, hulls.vertex[hulls.vertex_start[a] + k]) - x1
        along, rise = dot(side, d), STEEP * dot(up, d)
        if along - rise > left:
            left, at_left = along - rise, hulls.vertex_start[a] + k
        if -along - rise > right:
            right, at_right = -along - rise, hulls.vertex_start[a] + k
    return at_left, at_right


@kernel
def low_corners(
    shapes: Shapes, pairs: Pairs, hulls: Hulls, R: Array[mat33], p: Array[vec3], margin: Float, corner: Array[Int]
):
    """Indices of four corners of each hull over a plane: the lowest one and three far apart; -1 if one does not exist.

    The second is far from the first; the third and fourth are far from the line through both, one on each side. A
    corner's distance is reduced by STEEP times its height over the lowest corner.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, at = shared(pairs.first[i]), PLANE_CANDIDATES * (i - shared(pairs.ranges[pairs.family]))
        R1, _, _, n, _, near, _ = over_plane(shapes, pairs, i, R, p, margin)
        first, second, third, fourth = -1, -1, -1, -1
        if near:
            scale = hull_scale(shapes, hulls, a)
            up = transpose(R1) @ n
            first = lowest_corner(hulls, a, scale, up)
            second = far_corner(hulls, a, scale, up, first)
            line = times(scale, hulls.vertex[second]) - times(scale, hulls.vertex[first])
            third, fourth = side_corners(hulls, a, scale, up, first, normalize(cross(up, line)))
        corner[at] = first
        corner[at + 1] = select(second == first, -1, second)
        corner[at + 2] = select(third == first, -1, third)
        corner[at + 3] = select(fourth == first, -1, fourth)


@kernel
def touch_hull_plane(
    shapes: Shapes, pairs: Pairs, hulls: Hulls, corner: Array[Int], R: Array[mat33], p: Array[vec3], touch: Touch
):
    """A hull over a plane, four candidates: the corners that `low_corners` found.

    Gradients:
        Exact for the corners found.
    """
    for i in range(shared(pairs.ranges[pairs.family]), shared(pairs.ranges[pairs.family + 1])):
        a, b, at = pair_at(pairs, i)
        features = PLANE_CANDIDATES * (i - shared(pairs.ranges[pairs.family]))
        scale = hull_scale(shapes, hulls, a)
        R1, p1 = place(shapes, a, R, p)
        R2, p2 = place(shapes, b, R, p)
        _, _, n = columns_of(R2)
        for c in range(PLANE_CANDIDATES):
            found = corner[features + c]
            if found >= 0:
                put_over(touch, at + c, p1 + R1 @ times(scale, hulls.vertex[found]), 0.0, n, p2)
            else:
                put_none(touch, at + c)
