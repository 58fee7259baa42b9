"""Drag of bodies in a fluid at rest or in wind: that of the box that has their inertia [MuJoCo, Inertia model]."""

from __future__ import annotations

from kinema.dynamics.rnea_crba import Bodies, body_pose
from kinema.kinematics.tree import Tree
from kinema.lang import Array, Float, Int, abs, cross, kernel, mat33, record, transpose, vec3
from kinema.math import Force, Motion

PI = 3.141592653589793


@record
class Drags:
    """Bodies with drag.

    body: The body.
    box: Sides of its box [m].
    rotation: Axes of the box in those of the body.
    wind: Velocity of the fluid [m/s].
    density: Of the fluid [kg/m^3].
    viscosity: Of the fluid [Pa s].
    """

    body: Array[Int]
    box: Array[vec3]
    rotation: Array[mat33]
    wind: Array[vec3]
    density: Array[Float]
    viscosity: Array[Float]


@kernel
def drag_bodies(
    tree: Tree,
    bodies: Bodies,
    drags: Drags,
    R: Array[mat33],
    p: Array[vec3],
    V: Array[Motion],
    push: Array[Force],
):
    """Add the drag of every body, a wrench about the origin of its tree, in world axes.

    In the axes of the box, with its sides a, b, c, the mean side d, the relative velocity u of the centre of mass and
    the angular velocity w: the viscous force -3 pi d viscosity u and moment -pi d^3 viscosity w, and for the first axis
    the force -b c density |u| u / 2 and the moment -a (b^4 + c^4) density |w| w / 64; the other axes likewise.

    Gradients:
        Exact, to the state, the poses, density and viscosity; the box is constant.
    """
    for i in range(len(drags.body)):
        k = drags.body[i]
        link = bodies.link[k]
        R_WB, centre = body_pose(tree, bodies, R, p, k, link)
        axes = R_WB @ drags.rotation[i]
        w = transpose(axes) @ V[link].w
        u = transpose(axes) @ (V[link].v + cross(V[link].w, centre) - drags.wind[i])
        a, b, c = drags.box[i].x, drags.box[i].y, drags.box[i].z
        density, thick, mean = drags.density[i], drags.viscosity[i], (a + b + c) / 3.0
        a4, b4, c4 = a * a * a * a, b * b * b * b, c * c * c * c
        quadratic = vec3(b * c * abs(u.x) * u.x, a * c * abs(u.y) * u.y, a * b * abs(u.z) * u.z)
        force = (-3.0 * PI * mean * thick) * u - (0.5 * density) * quadratic
        turning = vec3(a * (b4 + c4) * abs(w.x) * w.x, b * (a4 + c4) * abs(w.y) * w.y, c * (a4 + b4) * abs(w.z) * w.z)
        moment = (-PI * mean * mean * mean * thick) * w - (density / 64.0) * turning
        force = axes @ force
        push[link] += Force(axes @ moment + cross(centre, force), force)
