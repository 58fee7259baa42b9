"""Tendons that bend around spheres and cylinders, and over pulleys [MuJoCo, Spatial tendon].

Between two sites a tendon is straight, or it touches a sphere or cylinder along a shortest arc between the two points
where straight lines are tangents. A side site chooses among the two ways around; one that is inside of the geom, seen
in the plane of the bend, holds the tendon inside, where it touches the surface in one point like light a mirror. The
arc does not change the rate of the length: its ends move like points of the geom.
"""

from __future__ import annotations

from kinema.dynamics.transmissions import Transmissions
from kinema.kinematics.tree import Branches, Tree
from kinema.lang import (
    Array,
    Float,
    Int,
    abs,
    acos,
    asin,
    atan2,
    clamp,
    cos,
    cross,
    detach,
    dot,
    func,
    kernel,
    mat33,
    max,
    norm,
    normalize,
    record,
    select,
    sin,
    sqrt,
    transpose,
    vec2,
    vec3,
)
from kinema.math import Force, Motion

TINY = 1e-15  # MuJoCo's smallest divisor
TURN = 6.283185307179586
STEPS = 20  # of Newton's method for a tendon inside
WORST = -1e4  # of ways around that cross themselves
CLOSE = 1e-12  # [rad]


@record
class Ends:
    """Sites that tendons pass, and geoms that they bend around.

    link, last: Link of each, and the last degree of freedom that moves it.
    place: Position on the link [m].
    start, entry: For each, from `start` on, the entries of the degrees of freedom from the root on.
    """

    link: Array[Int]
    last: Array[Int]
    place: Array[vec3]
    start: Array[Int]
    entry: Array[Int]


@record
class Legs:
    """Parts of tendons between two sites.

    transmission: Tendons.
    begin: First leg of each, and the number of all legs.
    first, second: Sites at the ends of each leg, among `Ends`.
    around: Its geom among `Ends`, or -1.
    side: Its side site among `Ends`, or -1.
    axes: Axes of its geom on the link.
    radius: Of its geom [m].
    cylinder: Whether its geom is a cylinder.
    share: One over the divisor of pulleys.
    """

    transmission: Array[Int]
    begin: Array[Int]
    first: Array[Int]
    second: Array[Int]
    around: Array[Int]
    side: Array[Int]
    axes: Array[mat33]
    radius: Array[Float]
    cylinder: Array[Int]
    share: Array[Float]


@kernel
def gather_places(site: Array[Int], places: Array[vec3], fixed: Array[vec3], out: Array[vec3]):
    """Places of sites, and fixed ones where there is none."""
    for i in range(len(out)):
        where = fixed[i]
        if site[i] >= 0:
            where = places[site[i]]
        out[i] = where


@func
def cross2(a: vec2, b: vec2):
    """The third component of the cross product of vectors in a plane."""
    return a.x * b.y - a.y * b.x


@func
def cut(a: vec2, b: vec2, c: vec2, d: vec2):
    """Whether the segments from a to b and from c to d cut each other."""
    det = cross2(b - a, d - c)
    found = False
    if abs(det) >= TINY:
        s, t = cross2(c - a, d - c) / det, cross2(c - a, b - a) / det
        found = s >= 0.0 and s <= 1.0 and t >= 0.0 and t <= 1.0
    return found


@func
def tangent_point(a: vec2, r: Float, sign: Float):
    """Where a tangent from a touches a circle; sign chooses among the two."""
    square = dot(a, a)
    beside = sign * r * sqrt(square - r * r)
    return vec2((a.x * r * r + beside * a.y) / square, (a.y * r * r - beside * a.x) / square)


@func
def around_circle(a: vec2, b: vec2, side: vec2, sided, r: Float):
    """The two points where a string from a to b meets a circle, and its arc [m], negative if it is straight."""
    arc, u, v = -1.0, a, b
    d = b - a
    dd = dot(d, d)
    if dot(a, a) >= r * r and dot(b, b) >= r * r and r >= TINY and dd >= TINY:
        near = a + clamp(-dot(d, a) / dd, 0.0, 1.0) * d
        if dot(near, near) <= r * r or (sided and dot(side, near) < 0.0):
            u1, v1 = tangent_point(a, r, 1.0), tangent_point(b, r, -1.0)
            u2, v2 = tangent_point(a, r, -1.0), tangent_point(b, r, 1.0)
            good1, good2 = -dot(u1 - v1, u1 - v1), -dot(u2 - v2, u2 - v2)
            if sided:
                good1, good2 = dot(normalize(u1 + v1), side), dot(normalize(u2 + v2), side)
            good1 = select(cut(a, u1, b, v1), WORST, good1)
            good2 = select(cut(a, u2, b, v2), WORST, good2)
            first = good1 > good2
            u, v = select(first, u1, u2), select(first, v1, v2)
            if not cut(a, u, b, v):
                angle = atan2(select(first, -cross2(u, v), cross2(u, v)), dot(u, v))
                arc = r * (angle if angle >= 0.0 else angle + TURN)
    return arc, u, v


@func
def mirrored(A: Float, B: Float, G: Float, z: Float):
    """asin(A z) + asin(B z) - 2 asin(z) + G, and its derivative by z."""
    slope = A / max(sqrt(1.0 - A * A * z * z), TINY) + B / max(sqrt(1.0 - B * B * z * z), TINY)
    return asin(A * z) + asin(B * z) - 2.0 * asin(z) + G, slope - 2.0 / max(sqrt(1.0 - z * z), TINY)


@func
def within_circle(a: vec2, b: vec2, r: Float):
    """The point where a string from a to b touches a circle from inside; a negative arc if it is straight."""
    arc, u = -1.0, a
    d, la, lb = b - a, norm(a), norm(b)
    dd, crosses = dot(d, d), False
    if dd > TINY:
        t = -dot(d, a) / dd
        near = a + t * d
        crosses = t > 0.0 and t < 1.0 and dot(near, near) <= r * r
    if la > r and lb > r and r >= TINY and not crosses:
        cosine = (la * la + lb * lb - dd) / (2.0 * la * lb)
        if cosine >= -1.0 + TINY:
            arc = 0.0
            u = r * normalize(0.5 * (a + b))
            if cosine <= 1.0 - TINY:
                A, B, G = r / la, r / lb, acos(cosine)
                z, fine = 1.0 - 1e-7, True
                f, slope = mirrored(detach(A), detach(B), detach(G), z)
                fine = f <= 0.0
                for _ in range(STEPS):
                    if not fine or abs(f) <= CLOSE:
                        break
                    fine = slope <= -TINY
                    if fine:
                        z = z - f / slope
                        f, slope = mirrored(detach(A), detach(B), detach(G), z)
                if fine:
                    z = detach(z)
                    f, slope = mirrored(A, B, G, z)
                    z = z - f / detach(slope)
                    left = cross2(a, b) > 0.0
                    way = select(left, a / la, b / lb)
                    turn = asin(z) - asin(select(left, A, B) * z)
                    u = r * vec2(cos(turn) * way.x - sin(turn) * way.y, sin(turn) * way.x + cos(turn) * way.y)
    return arc, u


@func
def plane_of(a: vec3, b: vec3, cylinder):
    """Two axes of the plane of a bend: across the axis of a cylinder; through both ends and the centre of a sphere."""
    e1, e2 = vec3(1.0, 0.0, 0.0), vec3(0.0, 1.0, 0.0)
    if cylinder == 0:
        e1 = normalize(a)
        n = cross(a, b)
        if norm(n) < TINY:
            x, y, z = abs(e1.x), abs(e1.y), abs(e1.z)
            most = select(x > y and x > z, 0, select(y > z, 1, 2))
            n = cross(e1, vec3(select(most == 0, 0.0, 1.0), select(most == 1, 0.0, 1.0), select(most == 2, 0.0, 1.0)))
        e2 = normalize(cross(normalize(n), e1))
    return e1, e2


@func
def bend(a: vec3, b: vec3, side: vec3, sided, r: Float, cylinder):
    """The two points of a bend in the frame of its geom [m], and its arc [m], negative if the tendon is straight."""
    arc, u, v = -1.0, a, b
    if norm(a) >= TINY and norm(b) >= TINY:
        e1, e2 = plane_of(a, b, cylinder)
        p, q = vec2(dot(a, e1), dot(a, e2)), vec2(dot(b, e1), dot(b, e2))
        s, t, beside = p, q, vec2(dot(side, e1), dot(side, e2))
        if sided and norm(beside) < r:
            arc, s = within_circle(p, q, r)
            t = s
        else:
            arc, s, t = around_circle(p, q, normalize(beside), sided, r)
        if arc >= 0.0:
            u, v = s.x * e1 + s.y * e2, t.x * e1 + t.y * e2
            if cylinder == 1:
                before, after = norm(p - s), norm(q - t)
                rise = (b.z - a.z) / (before + arc + after)
                u = vec3(u.x, u.y, a.z + rise * before)
                v = vec3(v.x, v.y, a.z + rise * (before + arc))
                arc = arc * sqrt(1.0 + rise * rise)
    return arc, u, v


@func
def pull(tree, branches, ends, i, where: vec3, p, S, way: vec3, moment):
    """Add the derivatives of the motion along `way` of a point [m] on the link of an end."""
    link = ends.link[i]
    if link > 0:
        arm = where - p[tree.root[link - 1]]
        push, row = Force(cross(arm, way), way), branches.row[ends.last[i]]
        for t in range(branches.depth[ends.last[i]] + 1):
            moment[ends.entry[ends.start[i] + t]] += push.dot(S[branches.above[row + t]])


@kernel
def bent_lengths(
    tree: Tree,
    branches: Branches,
    ends: Ends,
    legs: Legs,
    R: Array[mat33],
    p: Array[vec3],
    S: Array[Motion],
    length: Array[Float],
    moment: Array[Float],
):
    """Lengths of tendons with bends or pulleys, and their derivatives, summed in an array of their own.

    Gradients:
        Exact; the derivatives of the length have a kink where the tendon begins to touch a geom.
    """
    for i in range(len(legs.transmission)):
        total = 0.0
        for k in range(legs.begin[i], legs.begin[i + 1]):
            a, b, g, c = legs.first[k], legs.second[k], legs.around[k], legs.side[k]
            x = p[ends.link[a]] + R[ends.link[a]] @ ends.place[a]
            y = p[ends.link[b]] + R[ends.link[b]] @ ends.place[b]
            share, arc, u, v = legs.share[k], -1.0, y, y
            if g >= 0:
                centre = p[ends.link[g]] + R[ends.link[g]] @ ends.place[g]
                axes, side = R[ends.link[g]] @ legs.axes[k], vec3(0.0, 0.0, 0.0)
                if c >= 0:
                    side = transpose(axes) @ (p[ends.link[c]] + R[ends.link[c]] @ ends.place[c] - centre)
                q = transpose(axes) @ (y - centre)
                arc, u, v = bend(transpose(axes) @ (x - centre), q, side, c >= 0, legs.radius[k], legs.cylinder[k])
                u, v = centre + axes @ u, centre + axes @ v
            u = u if arc >= 0.0 else y
            way = share * normalize(u - x)
            total = total + share * norm(u - x)
            pull(tree, branches, ends, a, x, p, S, -way, moment)
            if arc >= 0.0:
                pull(tree, branches, ends, g, u, p, S, way, moment)
                on = share * normalize(y - v)
                total = total + share * (arc + norm(y - v))
                pull(tree, branches, ends, g, v, p, S, -on, moment)
                pull(tree, branches, ends, b, y, p, S, on, moment)
            else:
                pull(tree, branches, ends, b, y, p, S, way, moment)
        length[legs.transmission[i]] = total


@kernel
def copy_bent_moments(transmissions: Transmissions, legs: Legs, summed: Array[Float], moment: Array[Float]):
    """Copy the summed derivatives of these tendons to those of all transmissions."""
    for i in range(len(legs.transmission)):
        k = legs.transmission[i]
        for e in range(transmissions.begin[k], transmissions.begin[k + 1]):
            moment[e] = summed[e]
