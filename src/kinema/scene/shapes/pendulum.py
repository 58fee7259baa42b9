"""Pendulums of any number of links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kinema.errors import InputError
from kinema.scene.description import CYLINDER, REVOLUTE, SPHERE, Body, Joint, MassProperties, Pose, Robot, Shape
from kinema.scene.mass_properties import mass_properties


def pendulum(
    links: int = 1,
    length: float | Sequence[float] = 1.0,
    mass: float | Sequence[float] = 1.0,
    *,
    point: bool = False,
    radius: float = 0.02,
    damping: float = 0.0,
    name: str = "pendulum",
) -> Robot:
    """A chain of rods or of point masses that swings in the plane of x and z.

    The robot's origin is the first pivot. At zero the chain hangs straight down, so its lowest point is the sum of the
    lengths below (and `radius` more with point masses, whose bobs are drawn). Hinges turn about +y: a positive angle
    swings a link towards -x. Nothing of it collides.

    A single rod swings as one of moment m (l^2 / 3 + radius^2 / 4) about its pivot, a point mass as one of m l^2.

    Args:
        links: Number of links, bodies "link0", "link1", ... with joints "hinge0", "hinge1", ...
        length: Of a link, or of each of them, from pivot to pivot [m].
        mass: Of a link, or of each of them [kg].
        point: Whether the mass of a link is a point at its lower end rather than a uniform cylinder.
        radius: Of the rods, or of the bobs that are drawn for point masses [m].
        damping: Of the hinges [N m s/rad].
        name: Of the robot.

    Raises:
        InputError: The numbers do not fit together.
    """
    lengths, masses = _each("length", length, links), _each("mass", mass, links)
    bodies = []
    for i, (l, m) in enumerate(zip(lengths, masses, strict=True)):
        end, middle = Pose((0.0, 0.0, -l)), Pose((0.0, 0.0, -l / 2))
        if point:
            shape, weight = Shape(SPHERE, (radius,), end, collides=False), MassProperties(m, end.position)
        else:
            shape = Shape(CYLINDER, (radius, l / 2), middle, collides=False)
            weight = mass_properties(shape, mass=m)
        joint = Joint(f"hinge{i}", REVOLUTE, (0.0, 1.0, 0.0), damping=damping)
        pose = Pose((0.0, 0.0, -lengths[i - 1])) if i else Pose()
        bodies.append(Body(f"link{i}", f"link{i - 1}" if i else None, pose, (joint,), weight, (shape,)))
    return Robot(name, tuple(bodies))


def _each(what: str, given: float | Sequence[float], links: int) -> list[float]:
    values = [float(x) for x in np.ravel(given)] * (links if np.ndim(given) == 0 else 1)
    if links < 1 or len(values) != links or not all(0 < x < float("inf") for x in values):
        raise InputError(
            f"{what} does not fit a pendulum of {links} links", got=given, expected="a positive number, or one for each"
        )
    return values
