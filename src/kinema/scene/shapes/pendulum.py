"""Pendulums with any number of links."""

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
    """A chain of rods or of point masses that swings in the xz plane.

    The robot's origin is the first pivot. At zero the chain hangs straight down: its lowest point is the sum of the
    lengths below the pivot (plus `radius` with point masses, rendered as bobs). Hinges rotate about +y: a positive
    angle swings a link towards -x. The pendulum does not collide.

    The moment of inertia about the pivot of a single link is m (l^2 / 3 + radius^2 / 4) for a rod, m l^2 for a point
    mass.

    Args:
        links: Number of links, bodies "link0", "link1", ... with joints "hinge0", "hinge1", ...
        length: Length of every link, or one per link, from pivot to pivot [m].
        mass: Mass of every link, or one per link [kg].
        point: Whether the mass of a link is a point at its lower end, not a uniform cylinder.
        radius: Radius of the rods, or of the rendered bobs of point masses [m].
        damping: Joint damping [N m s/rad].
        name: Name of the robot.

    Raises:
        InputError: A length or mass is not positive, or their number is not the number of links.
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
            f"{what} does not fit a pendulum of {links} links", got=given, expected="a positive number, or one per link"
        )
    return values
