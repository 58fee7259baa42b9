"""An ant on four legs."""

from __future__ import annotations

import math

from kinema.scene.description import FREE, REVOLUTE, SPHERE, Actuator, Body, Joint, Pose, Robot, Shape, Vector
from kinema.scene.mass_properties import capsule_between, mass_properties, quaternion

TORSO, THICK = 0.15, 0.04  # m: radii of the torso and of the legs
THIGH, SHIN = 0.25, 0.40  # m: centre of the torso to knee, knee to centre of the foot
SLOPE = math.radians(55)  # of the shins below the horizontal, at zero
HEIGHT = SHIN * math.sin(SLOPE) + THICK  # m: centre of the torso


def ant(name: str = "ant", density: float = 300.0, gear: float = 15.0, damping: float = 0.2) -> Robot:
    """A ball with four legs of two hinges each: 14 degrees of freedom, 9 bodies, 7.9 kg.

    The robot's origin is on the ground below the torso. At zero the feet touch the ground, 0.479 m from the origin
    along the diagonals, and the torso's centre is at height 0.368 m. Hinges "hip_*" rotate a leg about z within
    0.6 rad, "knee_*" bend its shin within 0.7 rad; positive lifts the foot. All shapes collide: a sphere and eight
    capsules.

    Each hinge has a torque actuator of the same name with controls from -1 to 1.

    Args:
        name: Name of the robot.
        density: Density of all parts [kg/m^3].
        gear: Torque for a control of 1 [N m]; at the default density, standing takes 4 N m at each knee.
        damping: Joint damping [N m s/rad].
    """
    ball = Shape(SPHERE, (TORSO,), name="torso")
    bodies = [
        Body(
            "torso",
            None,
            Pose((0.0, 0.0, HEIGHT)),
            (Joint("free", FREE),),
            mass_properties(ball, density=density),
            (ball,),
        )
    ]
    # Legs start at the surface of the torso.
    thigh = capsule_between((TORSO, 0.0, 0.0), (THIGH, 0.0, 0.0), THICK)
    shin = capsule_between((0.0, 0.0, 0.0), (SHIN, 0.0, 0.0), THICK, name="foot")

    def hinge(joint: str, axis: Vector, limit: float) -> Joint:
        return Joint(joint, REVOLUTE, axis, lower=-limit, upper=limit, effort=gear, armature=0.01, damping=damping)

    for quarter, leg in enumerate(("fl", "rl", "rr", "fr")):
        ahead = Pose(
            (0.0, 0.0, 0.0), quaternion(math.pi / 4 + quarter * math.pi / 2, "z")
        )  # x of a leg points outwards
        hip = hinge(f"hip_{leg}", (0.0, 0.0, 1.0), 0.6)
        knee = hinge(f"knee_{leg}", (0.0, -1.0, 0.0), 0.7)
        bodies.append(Body(f"thigh_{leg}", "torso", ahead, (hip,), mass_properties(thigh, density=density), (thigh,)))
        down = Pose((THIGH, 0.0, 0.0), quaternion(SLOPE, "y"))
        bodies.append(
            Body(f"shin_{leg}", f"thigh_{leg}", down, (knee,), mass_properties(shin, density=density), (shin,))
        )
    hinges = [joint.name for body in bodies[1:] for joint in body.joints]
    drives = tuple(Actuator(joint, joint, gear=gear, lower=-1.0, upper=1.0, force=gear) for joint in hinges)
    return Robot(name, tuple(bodies), drives)
