"""Numbers of a step as outputs."""

from __future__ import annotations

from kinema.dynamics.articulated import Bodies
from kinema.kinematics.tree import Tree
from kinema.lang import Array, Float, Int, cross, kernel, mat33, vec3
from kinema.math import Motion


@kernel
def report_numbers(numbers: Array[Float], start: Int, out: Array[Float]):
    """A copy of some numbers, from `start` on."""
    for i in range(len(out)):
        out[i] = numbers[start + i]


@kernel
def report_impulses(
    impulse: Array[Float], start: Int, triples: Array[Int], equations: Int, surface: Array[Int], out: Array[Float]
):
    """Impulses of contacts, from row `start` on, as numbers of their candidates; zero for the others."""
    for i in range(len(out)):
        out[i] = 0.0
    for c in range(triples[0] - equations):
        for k in range(3):
            out[3 * surface[c] + k] = impulse[start + 3 * c + k]


@kernel
def report_vectors(vectors: Array[vec3], out: Array[vec3]):
    """A copy."""
    for i in range(len(out)):
        out[i] = vectors[i]


@kernel
def report_bodies(
    tree: Tree,
    bodies: Bodies,
    R: Array[mat33],
    p: Array[vec3],
    V: Array[Motion],
    position: Array[vec3],
    rotation: Array[mat33],
    velocity: Array[Motion],
):
    """Pose of every body [m, -] and the velocity of its origin, in world axes [rad/s, m/s]."""
    for b in range(len(bodies.link)):
        link = bodies.link[b]
        place = p[link] + R[link] @ bodies.offset[b]
        position[b] = place
        rotation[b] = R[link] @ bodies.rotation[b]
        moving = V[link]
        if link > 0:
            moving = Motion(moving.w, moving.v + cross(moving.w, place - p[tree.root[link - 1]]))
        velocity[b] = moving
