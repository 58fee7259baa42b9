"""A planar golf swing: a linkage with a club, and a ball."""

from __future__ import annotations

import math

from kinema.scene.description import FREE, REVOLUTE, SPHERE, Actuator, Body, Joint, Pose, Robot, Shape
from kinema.scene.mass_properties import capsule_between, mass_properties

TORSO, ARM, CLUB = 0.20, 0.60, 1.00  # m: neck to shoulder, shoulder to wrist, wrist to club head
HEAD, GAP = 0.03, 0.005  # m: radius of the club head, its gap above the ground
BALL, BALL_MASS = 0.021335, 0.04593  # m, kg: smallest radius and largest mass within the rules of golf
HUB = TORSO + ARM + CLUB + HEAD + GAP  # m: height of the fixed hinge
TOUCH = math.sqrt((HEAD + BALL) ** 2 - (HEAD + GAP - BALL) ** 2)  # m: from head to ball along x when they touch


def golfer(name: str = "golfer", damping: float = 0.1) -> Robot:
    """Torso, arm and club on three hinges that swing in the xz plane: 3 degrees of freedom, 17.9 kg.

    The robot's origin is on the ground, 1.835 m below the fixed hinge "spine"; then come "shoulder" and "wrist". At
    zero all links hang straight down and the club head, a ball of radius 3 cm and 0.2 kg, is 5 mm above the ground at
    x = 0. Hinges rotate about -y: a positive angle swings towards +x, a negative one is the backswing. Place the
    `golf_ball` at pos=(TOUCH, 0, 0), where the hanging club touches it. Only the head collides.

    Each hinge has a torque actuator of the same name.

    Args:
        name: Name of the robot.
        damping: Joint damping [N m s/rad].
    """
    parts = (
        ("torso", "spine", HUB, TORSO, 0.06, 12.0, 200.0),
        ("arm", "shoulder", -TORSO, ARM, 0.04, 5.5, 120.0),
        ("club", "wrist", -ARM, CLUB, 0.006, 0.2, 30.0),
    )
    bodies: list[Body] = []
    for body, hinge, above, length, radius, mass, effort in parts:
        rod = capsule_between((0.0, 0.0, 0.0), (0.0, 0.0, -length), radius, collides=False)
        joint = Joint(hinge, REVOLUTE, (0.0, -1.0, 0.0), effort=effort, damping=damping)
        parent = bodies[-1].name if bodies else None
        bodies.append(Body(body, parent, Pose((0.0, 0.0, above)), (joint,), mass_properties(rod, mass=mass), (rod,)))
    ball = Shape(SPHERE, (HEAD,), name="head", friction=0.3, restitution=0.8)  # denser than the shaft: its own body
    bodies.append(Body("head", "club", Pose((0.0, 0.0, -CLUB)), (), mass_properties(ball, mass=0.2), (ball,)))
    drives = tuple(Actuator(hinge, hinge, lower=-limit, upper=limit, force=limit) for _, hinge, *_, limit in parts)
    return Robot(name, tuple(bodies), drives)


def golf_ball(name: str = "golf_ball") -> Robot:
    """A ball of 46 g and diameter 4.27 cm with a free joint, touching the ground at the robot's origin.

    It has 6 degrees of freedom.

    Args:
        name: Name of the robot.
    """
    ball = Shape(SPHERE, (BALL,), name="ball", friction=0.3, restitution=0.8, colour=(1.0, 1.0, 1.0, 1.0))
    place = Pose((0.0, 0.0, BALL))
    return Robot(
        name, (Body("ball", None, place, (Joint("free", FREE),), mass_properties(ball, mass=BALL_MASS), (ball,)),)
    )
