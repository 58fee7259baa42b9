"""Narrow phase: records and functions that all families of shape pairs share.

A family is one kernel for pairs of two kinds of shapes. For every pair it writes a fixed number of contact candidates:
places where the two shapes may touch. A search without derivatives finds the nearest features of the shapes (faces,
edges, corners); gap, point and normal are then computed from these features, with exact derivatives. Where the selected
features change, the derivative jumps; if two choices are equally near, the search takes the first one.
"""

from __future__ import annotations

from kinema.lang import Array, Float, Int, columns_of, dot, func, mat33, max, norm, record, select, shared, vec3

FAR = 1e3  # [m], the gap of a candidate that does not exist
TINY = 1e-9  # [m], lengths below it have no direction; its square is a float32


@record
class Shapes:
    """All colliding shapes of a scene.

    link: Link of each shape; 0 is the world.
    offset: Origin of the shape's frame in the link's frame [m].
    rotation: Rotation matrix of the shape's frame in the link's frame [-].
    size: Sphere (radius, 0, 0), capsule and cylinder (radius, half length along z, 0), box (half extents), ellipsoid
        (half axes) [m]; hull (scale of its vertices) [-]; plane (unused; its outside is +z).
    reach: Radius of a bounding sphere about the origin of the shape's frame [m].
    """

    link: Array[Int]
    offset: Array[vec3]
    rotation: Array[mat33]
    size: Array[vec3]
    reach: Array[Float]


@record
class Pairs:
    """Pairs of all families; those of one are consecutive.

    first, second: Indices of shapes, in the order of the kinds in the name of the kernel.
    start: Index of the pair's first candidate in `Touch`.
    number: Index of the pair among all pairs of its family in the model.
    ranges: Begin of every family in these lists, and the end of the last one.
    family: The family.
    """

    first: Array[Int]
    second: Array[Int]
    start: Array[Int]
    number: Array[Int]
    ranges: Array[Int]
    family: Int


@record
class Touch:
    """Contact candidates: places where two shapes may touch.

    gap: Signed distance [m], negative where they overlap, FAR for a candidate that does not exist.
    point: Midway between the two surfaces, in world axes [m].
    normal: Unit vector from the second shape to the first [-].
    """

    gap: Array[Float]
    point: Array[vec3]
    normal: Array[vec3]


@func
def pair_at(pairs, i):
    """First shape, second shape and first candidate of pair i, which all worlds share."""
    return shared(pairs.first[i]), shared(pairs.second[i]), shared(pairs.start[i])


@func
def place(shapes, i, R, p):
    """Pose R_WS [-], p_WS [m] of a shape."""
    link = shapes.link[i]
    return R[link] @ shapes.rotation[i], p[link] + R[link] @ shapes.offset[i]


@func
def within_reach(shapes, i, j, p_i: vec3, p_j: vec3, margin: Float):
    """Whether the bounding spheres of two shapes are nearer than the margin [m]."""
    d = p_i - p_j
    span = shapes.reach[i] + shapes.reach[j] + margin
    return dot(d, d) < span * span


@func
def put(touch, at, gap: Float, point: vec3, normal: vec3):
    """Store a candidate."""
    touch.gap[at] = gap
    touch.point[at] = point
    touch.normal[at] = normal


@func
def put_none(touch, at):
    """Store a candidate that does not exist."""
    put(touch, at, FAR, vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 1.0))


@func
def direction(d: vec3):
    """Unit vector along d [m]; +z, with derivative 0, if it is shorter than TINY."""
    length = norm(d)
    return d / length if length > TINY else vec3(0.0, 0.0, 1.0)


@func
def positive(x: Float):
    """1 for x >= 0, else -1: a sign that is never 0."""
    return select(x >= 0.0, 1.0, -1.0)


@func
def pick(v: vec3, k):
    """Component k of a vector, for a k known only at run time."""
    return select(k == 0, v.x, select(k == 1, v.y, v.z))


@func
def turn(v: vec3, k):
    """Components k + 1, k + 2, k of a vector (modulo 3), so that axis k becomes z."""
    return select(k == 0, vec3(v.y, v.z, v.x), select(k == 1, vec3(v.z, v.x, v.y), v))


@func
def turn_columns(m: mat33, k):
    """Columns k + 1, k + 2, k of a matrix (modulo 3) as three vectors, so that axis k becomes z."""
    x, y, z = columns_of(m)
    a = select(k == 0, y, select(k == 1, z, x))
    b = select(k == 0, z, select(k == 1, x, y))
    return a, b, select(k == 0, x, select(k == 1, y, z))


@func
def unit(k, length: Float):
    """length times the unit vector k."""
    return vec3(select(k == 0, length, 0.0), select(k == 1, length, 0.0), select(k == 2, length, 0.0))


@func
def widest(v: vec3):
    """Index of the largest component, the first one on a tie."""
    k = select(v.y > v.x, 1, 0)
    return select(v.z > max(v.x, v.y), 2, k)


@func
def signs(v: vec3):
    """1 or -1 for each component."""
    return vec3(positive(v.x), positive(v.y), positive(v.z))


@func
def times(a: vec3, b: vec3):
    """Component-wise product."""
    return vec3(a.x * b.x, a.y * b.y, a.z * b.z)
