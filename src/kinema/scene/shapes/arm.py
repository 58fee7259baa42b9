"""A seven-joint arm with a gripper, the size of a Panda."""

from __future__ import annotations

from kinema.scene.description import BOX, PRISMATIC, REVOLUTE, Actuator, Body, Joint, Pose, Robot, Shape, Vector
from kinema.scene.mass_properties import capsule_between, cylinder_between, mass_properties

BASE, SHOULDER = 0.16, 0.17  # m: floor to first joint, first joint to shoulder
UPPER, FORE = 0.40, 0.40  # m: shoulder to elbow, elbow to wrist; a roll joint is in the middle of each
FLANGE, PALM, PAD = 0.10, 0.10, 0.05  # m: wrist to hand, height of the hand, height of a finger
HEIGHT = BASE + SHOULDER + UPPER + FORE + FLANGE + PALM + PAD  # m
OPENING = 0.04  # m: stroke of each finger
THICK = 0.006  # m: half the thickness of a finger

# Per link: distance to the next joint [m], radius [m], mass [kg]; axis, limit [rad], effort [N m], speed [rad/s].
# Rolls (z) and bends (y) alternate: shoulder 1 and 2, elbow 3 and 4, wrist 5 to 7.
_LINKS = (
    (SHOULDER, 0.065, 3.0, "z", 2.9, 90.0, 2.2),
    (UPPER / 2, 0.060, 3.0, "y", 1.8, 90.0, 2.2),
    (UPPER / 2, 0.060, 2.6, "z", 2.9, 60.0, 2.2),
    (FORE / 2, 0.055, 2.2, "y", 2.4, 60.0, 2.2),
    (FORE / 2, 0.050, 1.8, "z", 2.9, 15.0, 2.6),
    (FLANGE, 0.045, 1.2, "y", 2.0, 15.0, 2.6),
    (PALM, 0.0, 0.7, "z", 2.9, 15.0, 2.6),
)


def arm(name: str = "arm", damping: float = 0.5) -> Robot:
    """A base on the floor, seven links on hinges and two fingers: 9 degrees of freedom, 10 bodies, 17.5 kg.

    The robot's origin is on the floor, z up. At zero it stands straight, 1.38 m tall, with the fingers closed on top;
    hinges "joint1" to "joint7" rotate about z, y, z, y, z, y, z, and a positive bend leans it towards +x. "finger_left"
    slides along +y, "finger_right" along -y, each by up to 4 cm to open; the pads meet in the middle of the hand.
    The effort limits suffice to hold it stretched out horizontally with 1 kg in the hand. Links 1 to 6 collide as
    capsules, the hand and the pads as boxes, the base as a cylinder.

    Each joint has a torque actuator of the same name, limited to the joint's effort.

    Args:
        name: Name of the robot.
        damping: Damping of the hinges [N m s/rad].
    """
    foot = cylinder_between((0.0, 0.0, 0.0), (0.0, 0.0, BASE), 0.08)
    bodies = [Body("base", None, Pose(), (), mass_properties(foot, mass=3.0), (foot,))]
    below = BASE
    for number, (length, radius, mass, axis, limit, effort, speed) in enumerate(_LINKS, 1):
        hinge = Joint(
            f"joint{number}",
            REVOLUTE,
            (0.0, 1.0, 0.0) if axis == "y" else (0.0, 0.0, 1.0),
            lower=-limit,
            upper=limit,
            effort=effort,
            velocity=speed,
            armature=0.1,
            damping=damping,
        )
        if number < len(_LINKS):
            shape = capsule_between((0.0, 0.0, 0.0), (0.0, 0.0, length), radius)
        else:
            shape = Shape(BOX, (0.03, 0.06, PALM / 2), Pose((0.0, 0.0, PALM / 2)))
        link = f"link{number}" if number < len(_LINKS) else "hand"
        pose = Pose((0.0, 0.0, below))
        bodies.append(Body(link, bodies[-1].name, pose, (hinge,), mass_properties(shape, mass=mass), (shape,)))
        below = length
    for side, sign in (("left", 1.0), ("right", -1.0)):
        pad = Shape(BOX, (0.01, THICK, PAD / 2), Pose((0.0, sign * THICK, PAD / 2)), name="pad", friction=1.0)
        slide = _slide(f"finger_{side}", (0.0, sign, 0.0))
        top = Pose((0.0, 0.0, PALM))
        bodies.append(Body(f"finger_{side}", "hand", top, (slide,), mass_properties(pad, density=2700.0), (pad,)))
    joints = [joint for body in bodies for joint in body.joints]
    drives = tuple(Actuator(j.name, j.name, lower=-j.effort, upper=j.effort, force=j.effort) for j in joints)
    # Capsule ends overlap the next link but one; the fingers touch.
    names = [body.name for body in bodies[:-2]]
    passing = [frozenset(pair) for pair in zip(names, names[2:], strict=False)]
    passing.append(frozenset(("finger_left", "finger_right")))
    return Robot(name, tuple(bodies), drives, excluded=frozenset(passing))


def _slide(name: str, axis: Vector) -> Joint:
    return Joint(name, PRISMATIC, axis, lower=0.0, upper=OPENING, effort=40.0, velocity=0.1, armature=0.1, damping=10.0)
