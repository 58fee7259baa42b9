"""Contact of trees of links with the ground, a plane: rows of the complementarity problem and what they do.

Round points, a sphere each (of radius 0 for the corners of boxes and meshes), may touch the plane. Every point has
three rows: along the normal and along two directions of sliding. With the gap g [m], the time step dt and the velocity
v' of the point after the step, the normal row asks for

    v' + g / dt >= 0         while the gap is open: the point may close it in this step, no more
    v' + erp g / dt >= 0     below the surface: a share erp of the depth is undone
    v' + e v_before >= 0     if the point hits the plane in this step faster than the threshold: it bounces

and is held at zero if the gap is wider than the margin.
"""

from __future__ import annotations

from kinema.kinematics.tree import Tree
from kinema.lang import Array, Float, Int, cross, dot, kernel, mat33, record, vec3
from kinema.math import Force, Motion


@record
class Points:
    """Round points on links.

    link: The link (not 0).
    last: Last degree of freedom that moves the link.
    centre: In the link's frame [m].
    radius: [m]
    """

    link: Array[Int]
    last: Array[Int]
    centre: Array[vec3]
    radius: Array[Float]


@record
class Ground:
    """A plane and how it is touched.

    normal, slide, across: Unit vectors, right-handed: out of the ground, and along it.
    offset: Of the plane along the normal [m].
    erp: Share of the depth that is undone in a step [-].
    margin: Gap from which on points are left alone [m].
    restitution: Of speeds above the threshold [-].
    threshold: [m/s]
    """

    normal: vec3
    slide: vec3
    across: vec3
    offset: Float
    erp: Float
    margin: Float
    restitution: Float
    threshold: Float


@record
class Paths:
    """Degrees of freedom along branches: see `dynamics.articulated.Branches`; `widest` is the longest row."""

    row: Array[Int]
    depth: Array[Int]
    above: Array[Int]
    widest: Int


@kernel
def ground_rows(
    tree: Tree,
    paths: Paths,
    points: Points,
    ground: Ground,
    R: Array[mat33],
    p: Array[vec3],
    S: Array[Motion],
    v: Array[Float],
    v_free: Array[Float],
    dt: Float,
    J: Array[Float],
    b: Array[Float],
    upper: Array[Float],
):
    """Jacobian along the branch of every row, its velocity without contact, and the bound of its impulse."""
    for c in range(len(points.link)):
        link = points.link[c]
        centre = p[link] + R[link] @ points.centre[c]
        arm = centre - points.radius[c] * ground.normal - p[tree.root[link - 1]]
        gap = dot(ground.normal, centre) - ground.offset - points.radius[c]
        begin, count = paths.row[points.last[c]], paths.depth[points.last[c]] + 1
        before = 0.0
        for k in range(3):
            way = ground.normal
            if k == 1:
                way = ground.slide
            elif k == 2:
                way = ground.across
            push = Force(cross(arm, way), way)
            speed = 0.0
            for t in range(count):
                d = paths.above[begin + t]
                entry = push.dot(S[d])
                J[(3 * c + k) * paths.widest + t] = entry
                speed = speed + entry * v_free[d]
                if k == 0:
                    before = before + entry * v[d]
            if k == 0:
                target = gap / dt
                if gap < 0.0:
                    target = ground.erp * gap / dt
                if before < -ground.threshold and gap + dt * before < 0.0:
                    target = ground.restitution * before
                b[3 * c] = speed + target
                upper[3 * c] = 1e30 if gap < ground.margin else 0.0
            else:
                b[3 * c + k] = speed
                upper[3 * c + k] = 1e30


@kernel
def half_solve(
    paths: Paths, points: Points, U: Array[Float], L: Array[Float], J: Array[Float], Y: Array[Float], Z: Array[Float]
):
    """Y = L^-T J^T and Z = D^-1 Y, row by row, along the branches; J is zero elsewhere."""
    for r in range(3 * len(points.link)):
        last = points.last[r // 3]
        begin, count, to = paths.row[last], paths.depth[last] + 1, r * paths.widest
        for s in range(count):
            t = count - 1 - s
            entry = J[to + t]
            for u in range(t + 1, count):
                entry = entry - L[paths.row[paths.above[begin + u]] + t] * Y[to + u]
            Y[to + t] = entry
            Z[to + t] = entry / U[paths.row[paths.above[begin + t]] + t]


@kernel
def contact_matrix(points: Points, common: Array[Int], widest: Int, Y: Array[Float], Z: Array[Float], A: Array[Float]):
    """A = J M^-1 J^T = Y^T D^-1 Y; `common` counts the degrees of freedom that move two points."""
    n = 3 * len(points.link)
    for i in range(n):
        for j in range(i + 1):
            entry = 0.0
            for t in range(common[(i // 3) * len(points.link) + j // 3]):
                entry = entry + Y[i * widest + t] * Z[j * widest + t]
            A[i * n + j] = entry
            if j < i:
                A[j * n + i] = entry


@kernel
def joint_impulses(paths: Paths, points: Points, J: Array[Float], impulse: Array[Float], out: Array[Float]):
    """J^T impulse [N m s, N s]."""
    for r in range(3 * len(points.link)):
        last = points.last[r // 3]
        begin = paths.row[last]
        for t in range(paths.depth[last] + 1):
            out[paths.above[begin + t]] += J[r * paths.widest + t] * impulse[r]


@kernel
def spread_friction(friction: Array[Float], softness: Float, mu: Array[Float], cfm: Array[Float]):
    """Numbers of points as numbers of their rows."""
    for c in range(len(friction)):
        for k in range(3):
            mu[3 * c + k] = friction[c]
            cfm[3 * c + k] = softness


@kernel
def report_impulses(impulse: Array[Float], out: Array[Float]):
    """Impulses as output."""
    for i in range(len(impulse)):
        out[i] = impulse[i]
