"""Particles, as spheres with a radius, in compliant contact with all shapes of a scene, fixed or moving with links.

The force on a particle is `penalty_force` of its depth and of its velocity relative to the shape. The force acts at the
particle's centre, and the opposite force acts on the shape along the same line, so that forces and moments of particles
and links cancel.

A step places the shapes, calls one kernel per kind of shape, and adds the forces on the shapes to their links:

    p.call(place_shapes, shapes, frames, seen, placed)
    p.call(particle_kernels()[BOX], shapes, which, seen, placed, skin, dt, x, v, f, press, count=particles)
    p.call(push_links, shapes, frames, placed, press, push)

`seen` and `placed` hold the same values. The search for contacts reads `seen`, which is never differentiated; forces
read `placed`. So the adjoint adds to the cotangents of shapes only where particles touch, which makes it several times
faster.
"""

from __future__ import annotations

from functools import cache

from kinema.contact.collision.hulls import Hulls, from_hull, hull_feature, hull_scale
from kinema.contact.collision.narrow_phase import Shapes, direction, place
from kinema.contact.collision.sphere_capsule_box import box_surface
from kinema.contact.collision.terrain import Terrain, from_feature, from_valley, nearest_triangle, valley_faces
from kinema.contact.compliant import penalty_force, reach_of
from kinema.lang import (
    Array,
    Float,
    Index,
    Int,
    abs,
    clamp,
    columns_of,
    cross,
    dot,
    func,
    kernel,
    mat33,
    max,
    norm,
    record,
    select,
    transpose,
    vec3,
)
from kinema.lang.kernels.kernel import Kernel
from kinema.lang.language.markers import Func
from kinema.math import Force, Motion
from kinema.scene.description import BOX, CAPSULE, CYLINDER, MESH, PLANE, SPHERE, TERRAIN


@record
class Skin:
    """Contact parameters, one entry per particle.

    radius: Radius [m].
    k_e: Stiffness [N/m].
    k_d: Damping [N s/m].
    k_f: Viscous friction at low sliding speed [N s/m].
    friction: Coefficient of friction mu [-].
    touching: 0 for particles without contact, else 1.
    """

    radius: Array[Float]
    k_e: Array[Float]
    k_d: Array[Float]
    k_f: Array[Float]
    friction: Array[Float]
    touching: Array[Int]


@record
class Frames:
    """Poses and velocities of links; link 0 is the world.

    root: First link of the tree that link i + 1 belongs to.
    R, p: Poses R_WL [-], p_WL [m].
    V: Velocities, world axes, about the origin of the tree's first link.
    """

    root: Array[Int]
    R: Array[mat33]
    p: Array[vec3]
    V: Array[Motion]


@record
class Placed:
    """Shapes in world axes.

    R, p: Poses R_WS [-], p_WS [m].
    V: Velocities, world axes, about p.
    size: As in `Shapes`.
    """

    R: Array[mat33]
    p: Array[vec3]
    V: Array[Motion]
    size: Array[vec3]


@func
def put_placed(placed, j, R: mat33, p: vec3, V: Motion, size: vec3):
    """Store one shape."""
    placed.R[j] = R
    placed.p[j] = p
    placed.V[j] = V
    placed.size[j] = size


@kernel
def place_shapes(shapes: Shapes, frames: Frames, seen: Placed, placed: Placed):
    """Place all shapes twice: `seen` for the search, `placed` for the forces.

    Gradients:
        Exact, of `placed`.
    """
    for j in range(len(shapes.link)):
        link = shapes.link[j]
        R, p = place(shapes, j, frames.R, frames.p)
        V = Motion(vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0))
        if link > 0:
            twist = frames.V[link]
            V = Motion(twist.w, twist.v + cross(twist.w, p - frames.p[frames.root[link - 1]]))
        put_placed(seen, j, R, p, V, shapes.size[j])
        put_placed(placed, j, R, p, V, shapes.size[j])


@kernel
def push_links(shapes: Shapes, frames: Frames, placed: Placed, press: Array[Force], push: Array[Force]):
    """Add the wrenches on shapes, `press` about their own origins, to those on their links about the trees' origins.

    Shapes of the world are skipped.

    Gradients:
        Exact.
    """
    for j in range(len(shapes.link)):
        link = shapes.link[j]
        if link > 0:
            arm = placed.p[j] - frames.p[frames.root[link - 1]]
            push[link] += Force(press[j].n + cross(arm, press[j].f), press[j].f)


@func
def plane_distance(R: mat33, d: vec3, size: vec3):
    """Signed distance [m] from a plane and its unit normal, world axes; d [m] starts at a point of the plane."""
    _, _, n = columns_of(R)
    return dot(n, d), n


@func
def round_distance(R: mat33, d: vec3, size: vec3):
    """Signed distance [m] from a sphere or capsule, unit normal (+z on the centre line); d [m] starts at its centre."""
    _, _, u = columns_of(R)
    out = d - clamp(dot(u, d), -size.y, size.y) * u
    return norm(out) - size.x, direction(out)


@func
def box_distance(R: mat33, d: vec3, size: vec3):
    """Signed distance [m] from a box and unit normal, inside of the nearest face; d [m] starts at its centre."""
    distance, n = box_surface(transpose(R) @ d, size)
    return distance, R @ n


@func
def round_reach(size: vec3):
    """Radius [m] of the bounding sphere of a sphere or capsule."""
    return size.x + size.y


@cache
def particle_kernels(law: Func = penalty_force) -> dict[str, Kernel]:
    """Kernels of particles against shapes, by the kind of shape.

    Args:
        law: Force [N] of (depth [m], n, v [m/s], dt [s], k_e, k_d, k_f, mu): `penalty_force` (smooth cone) or
            `box_force`.

    Returns:
        Kernels over particles with the arguments

            shapes, which, seen, placed, skin, dt, x, v, f, press

        and after `which` the tables `hulls: Hulls` for cylinders (prisms, as for rigid spheres) and meshes, or
        `terrain: Terrain`, whose tables must reach as far as the largest radius plus the largest displacement in a
        step. `which` holds the indices of the shapes; forces are means over `dt` [s], or instantaneous for dt = 0;
        `x` [m], `v` [m/s] and `f` [N] belong to the particles, `press` to all shapes. The kernel adds forces to `f` and
        the opposite wrenches about `placed.p` to `press`, except for shapes of the world.

    Gradients:
        Exact, with respect to everything except the tables, for the features found; the families of rigid spheres
        document the discontinuities. The force of a feature is continuous where contact begins and ends, except for
        dt = 0. If the particle's centre is on the centre line of a sphere or capsule, the normal is +z, and normal and
        depth have derivative 0.
    """

    @func
    def reach(i, j, away: vec3, shapes, seen, skin, dt: Float, v):
        """Distance [m] from shape j below which particle i may touch it in a step."""
        velocity = v[i]
        if shapes.link[j] > 0:
            V = seen.V[j]
            velocity = velocity - V.v - cross(V.w, away)
        return skin.radius[i] + reach_of(velocity, dt)

    @func
    def touch(i, j, depth: Float, n: vec3, d: vec3, shapes, placed, skin, dt: Float, v, f, press):
        """Add the contact force on particle i, at the position d [m] from the origin of shape j."""
        velocity = v[i]
        if shapes.link[j] > 0:
            V = placed.V[j]
            velocity = velocity - V.v - cross(V.w, d)
        force = law(depth, n, velocity, dt, skin.k_e[i], skin.k_d[i], skin.k_f[i], skin.friction[i])
        f[i] += force
        if shapes.link[j] > 0:
            press[j] -= Force(cross(d, force), force)

    def against(surface: Func, size: Func | None = None) -> Kernel:
        """The kernel of a kind of shape with a signed distance; `size` is its bounding radius, None for planes."""
        endless = size is None
        around = size or round_reach

        @kernel
        def touch_shapes(
            i: Index,
            shapes: Shapes,
            which: Array[Int],
            seen: Placed,
            placed: Placed,
            skin: Skin,
            dt: Float,
            x: Array[vec3],
            v: Array[vec3],
            f: Array[vec3],
            press: Array[Force],
        ):
            """Contact of particles with planes, spheres and capsules, or boxes."""
            if skin.touching[i] > 0:
                at, radius = x[i], skin.radius[i]
                for k in range(len(which)):
                    j = which[k]
                    away = at - seen.p[j]
                    far = reach(i, j, away, shapes, seen, skin, dt, v)
                    span = around(seen.size[j]) + far  # the current size: sizes can be learned
                    if endless or dot(away, away) < span * span:
                        distance, _ = surface(seen.R[j], away, seen.size[j])
                        if distance < far:
                            d = at - placed.p[j]
                            distance, n = surface(placed.R[j], d, placed.size[j])
                            touch(i, j, radius - distance, n, d, shapes, placed, skin, dt, v, f, press)

        return touch_shapes

    @kernel
    def touch_hulls(
        i: Index,
        shapes: Shapes,
        which: Array[Int],
        hulls: Hulls,
        seen: Placed,
        placed: Placed,
        skin: Skin,
        dt: Float,
        x: Array[vec3],
        v: Array[vec3],
        f: Array[vec3],
        press: Array[Force],
    ):
        """Contact of particles with convex meshes and the prisms of cylinders."""
        if skin.touching[i] > 0:
            at, radius = x[i], skin.radius[i]
            for k in range(len(which)):
                j = which[k]
                away, scale = at - seen.p[j], hull_scale(seen, hulls, j)
                largest = max(abs(scale.x), abs(scale.y), abs(scale.z))
                far = reach(i, j, away, shapes, seen, skin, dt, v)
                span = select(hulls.cylinder[j] == 1, round_reach(seen.size[j]), shapes.reach[j] * largest) + far
                if dot(away, away) < span * span:
                    q = transpose(seen.R[j]) @ away
                    face, edge = hull_feature(hulls, j, scale, q)
                    distance, _ = from_hull(hulls, face, edge, scale, q)
                    if distance < far:
                        d, R = at - placed.p[j], placed.R[j]
                        distance, n = from_hull(hulls, face, edge, hull_scale(placed, hulls, j), transpose(R) @ d)
                        touch(i, j, radius - distance, R @ n, d, shapes, placed, skin, dt, v, f, press)

    @kernel
    def touch_terrain(
        i: Index,
        shapes: Shapes,
        which: Array[Int],
        terrain: Terrain,
        seen: Placed,
        placed: Placed,
        skin: Skin,
        dt: Float,
        x: Array[vec3],
        v: Array[vec3],
        f: Array[vec3],
        press: Array[Force],
    ):
        """Contact of particles with terrain, as in `touch_ball_terrain`: in a valley, with two of its faces."""
        if skin.touching[i] > 0:
            at, radius = x[i], skin.radius[i]
            for k in range(len(which)):
                j = which[k]
                away = at - seen.p[j]
                q, far = transpose(seen.R[j]) @ away, reach(i, j, away, shapes, seen, skin, dt, v)
                face, feature = nearest_triangle(terrain, q, far)
                if face >= 0:
                    distance, n = from_feature(terrain, face, feature, q)
                    other, beside = valley_faces(terrain, q, far, distance, n)
                    d, R = at - placed.p[j], placed.R[j]
                    distance, n = from_valley(terrain, face, feature, beside, transpose(R) @ d)
                    touch(i, j, radius - distance, R @ n, d, shapes, placed, skin, dt, v, f, press)
                    if other >= 0:
                        distance, n = from_feature(terrain, other, 0, transpose(R) @ d)
                        touch(i, j, radius - distance, R @ n, d, shapes, placed, skin, dt, v, f, press)

    rounded = against(round_distance, round_reach)
    return {
        PLANE: against(plane_distance),
        SPHERE: rounded,
        CAPSULE: rounded,
        BOX: against(box_distance, norm),
        CYLINDER: touch_hulls,
        MESH: touch_hulls,
        TERRAIN: touch_terrain,
    }
