"""Forces that compensate a share of the weight of bodies."""

from __future__ import annotations

from kinema.dynamics.rnea_crba import Bodies, body_pose
from kinema.kinematics.tree import Tree
from kinema.lang import Array, Float, cross, kernel, mat33, vec3
from kinema.math import Force


@kernel
def compensate_gravity(
    tree: Tree,
    bodies: Bodies,
    gravcomp: Array[Float],
    gravity: vec3,
    R: Array[mat33],
    p: Array[vec3],
    push: Array[Force],
):
    """Add a force of -gravcomp m g at the centre of mass of every body, about the origin of its tree."""
    for b in range(len(bodies.link)):
        link = bodies.link[b]
        if link > 0:
            _, centre = body_pose(tree, bodies, R, p, b, link)
            force = (-gravcomp[b] * bodies.mass[b]) * gravity
            push[link] += Force(cross(centre, force), force)
