"""Particles that move with links."""

from __future__ import annotations

from kinema.lang import Array, Index, Int, cross, kernel, mat33, record, vec3
from kinema.math import Force, Motion


@record
class Pins:
    """Particles on links.

    number: Of every particle, which pin holds it; -1 for those that are free.
    particle: Of every pin, its particle.
    link: Its link.
    place: Where it is on the link [m], in the link's axes.
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
    """Positions [m] and velocities [m/s] of particles: those of the links for pins, their own for the others."""
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
    """Adds the forces [N] on pinned particles to what pushes their links."""
    for k in range(len(pins.particle)):
        link, i = pins.link[k], pins.particle[k]
        push[link] += Force(cross(x[i] - p[root[link - 1]], force[i]), force[i])
