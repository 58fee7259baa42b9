"""Procedural hands that catch a ball: of the proportions of an Allegro hand and of a Shadow hand, made here."""

from __future__ import annotations

import math
from dataclasses import dataclass

import kinema as kn
from kinema.scene.description import BOX, REVOLUTE, Actuator, Body, Joint, Pose, Robot, Shape
from kinema.scene.mass_properties import capsule_between, mass_properties

FLEX, SPREAD, TWIST = (0.0, -1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.0, 0.0)  # fingers along x, palm up
CURL, STIFFNESS, DAMPING, ARMATURE = 0.5, 0.5, 0.02, 1e-4  # rad, N m/rad, N m s/rad, kg m^2
DENSITY = 1200.0  # kg/m^3


@dataclass(frozen=True)
class Finger:
    """A finger: its place on the palm, its direction, and the axes of its joints with the lengths of what they move.

    Attributes:
        place: [m], in the frame of the palm.
        turn: About z, against x [rad].
        links: Axis and length of the link behind it [m]; links without length carry the next joint only.
    """

    place: tuple[float, float, float]
    turn: float
    links: tuple[tuple[tuple[float, float, float], float], ...]


def _row(count: int, width: float, lengths: tuple[float, float, float], edge: float) -> tuple[Finger, ...]:
    places = [width * (k / (count - 1) - 0.5) for k in range(count)]
    links = ((SPREAD, 0.0), *((FLEX, length) for length in lengths))
    return tuple(Finger((edge, y, 0.0), 0.0, links) for y in places)


ALLEGRO = (
    *_row(3, 0.09, (0.054, 0.038, 0.044), 0.05),
    Finger((-0.01, -0.06, 0.0), -1.2, ((TWIST, 0.0), (SPREAD, 0.03), (FLEX, 0.05), (FLEX, 0.05))),
)
"""Four fingers of four joints each."""
SHADOW = (
    *_row(3, 0.05, (0.045, 0.025, 0.026), 0.05),
    Finger((0.0, 0.05, 0.0), 0.1, ((SPREAD, 0.05), (SPREAD, 0.0), (FLEX, 0.045), (FLEX, 0.025), (FLEX, 0.026))),
    Finger((-0.02, -0.05, 0.0), -1.0, ((TWIST, 0.0), (FLEX, 0.038), (SPREAD, 0.0), (FLEX, 0.032), (FLEX, 0.0275))),
)
"""Five fingers, of four joints, and of five for the thumb and the little finger; `hand` adds a wrist of two."""


def hand(name: str, fingers: tuple[Finger, ...], radius: float, wrist: bool = False) -> Robot:
    """A hand with its palm up, whose fingers are curled by springs; each joint has a motor.

    Args:
        name: Name of the robot.
        fingers: Fingers.
        radius: Of the capsules of fingers [m].
        wrist: Whether the palm turns on two joints.
    """
    palm = Shape(BOX, (0.05, 0.05, 0.012))
    turning = (_joint("wrist_y", FLEX, 0.0, 20.0), _joint("wrist_z", SPREAD, 0.0, 20.0)) if wrist else ()
    bodies = [Body("palm", None, Pose((0.0, 0.0, 0.15)), turning, mass_properties(palm, density=DENSITY), (palm,))]
    for f, finger in enumerate(fingers):
        parent, place = "palm", Pose(finger.place, (math.cos(finger.turn / 2), 0.0, 0.0, math.sin(finger.turn / 2)))
        waiting: list[Joint] = []
        for k, (axis, length) in enumerate(finger.links):
            waiting.append(_joint(f"joint_{f}_{k}", axis, CURL if axis == FLEX else 0.0))
            if length == 0.0:
                continue
            link = capsule_between((0.0, 0.0, 0.0), (length, 0.0, 0.0), radius)
            heavy = mass_properties(link, density=DENSITY)
            bodies.append(Body(f"link_{f}_{k}", parent, place, tuple(waiting), heavy, (link,)))
            parent, place, waiting = bodies[-1].name, Pose((length, 0.0, 0.0)), []
    motors = tuple(Actuator(j.name, j.name) for body in bodies for j in body.joints)
    return Robot(name, tuple(bodies), motors)


def ball(scene: kn.Scene) -> None:
    """A ball above the palm."""
    scene.add_body(kn.Sphere(0.035), "ball", mass=0.1, pos=(0.03, 0.0, 0.21))


def rest(robot: Robot) -> dict[str, float]:
    """The initial coordinates: springs at rest."""
    return {j.name: j.rest for body in robot.bodies for j in body.joints}


def _joint(name: str, axis: tuple[float, float, float], curl: float, stiffness: float = STIFFNESS) -> Joint:
    lower, upper = (-0.2, 1.7) if axis == FLEX else (-0.5, 0.5)
    numbers = {"armature": ARMATURE, "damping": DAMPING * stiffness / STIFFNESS, "stiffness": stiffness, "rest": curl}
    return Joint(name, REVOLUTE, axis, lower=lower, upper=upper, **numbers)
