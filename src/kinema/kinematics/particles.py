"""Particles pinned to links."""

from __future__ import annotations

from kinema.lang import Array, Index, Int, cross, kernel, mat33, record, vec3
from kinema.math import Force, Motion


@record
class Pins:
    """Pins of particles to links.

    number: Index of the pin of every particle; -1 for free particles.
    particle: Particle of every pin.
    link: Link of every pin.
    place: Position of every pin in the link's frame [m].
    """

    number: Array[Int]
    particle: Array[Int]
    link: Array[Int]
    place: Array[vec3]


@kernel
def carry_particles(
    i: Index,
    pins: Pins,
    root: Array[Int],
    R: Array[mat33],
    p: Array[vec3],
    V: Array[Motion],
    x: Array[vec3],
    v: Array[vec3],
    x_now: Array[vec3],
    v_now: Array[vec3],
):
    """Positions [m] and velocities [m/s] of particles: pinned particles move with their links, free ones as given."""
    k = pins.number[i]
    at, moving = x[i], v[i]
    if k >= 0:
        link = pins.link[k]
        at = p[link] + R[link] @ pins.place[k]
        moving = V[link].v + cross(V[link].w, at - p[root[link - 1]])
    x_now[i] = at
    v_now[i] = moving


@kernel
def pull_links(pins: Pins, root: Array[Int], p: Array[vec3], x: Array[vec3], force: Array[vec3], push: Array[Force]):
    """Add the forces [N] on pinned particles to the wrenches on their links."""
    for k in range(len(pins.particle)):
        link, i = pins.link[k], pins.particle[k]
        push[link] += Force(cross(x[i] - p[root[link - 1]], force[i]), force[i])
