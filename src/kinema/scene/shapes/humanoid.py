"""A humanoid of capsules and spheres."""

from __future__ import annotations

from kinema.scene.description import FREE, REVOLUTE, SPHERE, Actuator, Body, Joint, Pose, Robot, Shape, Vector
from kinema.scene.mass_properties import capsule_between, mass_properties

ANKLE, SHIN, THIGH = 0.07, 0.43, 0.43  # m: ground to ankle, ankle to knee, knee to hip
HIP = ANKLE + SHIN + THIGH  # m: height of the hips
UPPER_ARM, FOREARM = 0.28, 0.25  # m: shoulder to elbow, elbow to hand


def humanoid(name: str = "humanoid", density: float = 1000.0, damping: float = 1.0) -> Robot:
    """Pelvis, torso with head, two legs and two arms: 27 degrees of freedom, 12 bodies, 50 kg at the density of water.

    The robot's origin is on the ground between the feet, x forward, y to the left, z up. At zero it stands upright,
    1.62 m tall, soles on the ground, arms hanging. The pelvis is free; 21 hinges have limits:

    waist_turn, _bend, _lean    about z, y, x; positive to the left, forward, to the right
    hip_*_spread, _turn, _swing positive outwards, toes outwards, leg forward
    knee_*                      positive bends
    ankle_*_lift, _roll         positive toes up, outer edge down
    shoulder_*_spread, _swing   positive outwards, arm forward
    elbow_*                     positive bends

    All shapes collide. Each sole has two capsules, so that a foot stands on four points.

    Each hinge has a torque actuator of the same name; a control of 1 is the joint's effort, -1 its negative.

    Args:
        name: Name of the robot.
        density: Density of all parts [kg/m^3].
        damping: Joint damping [N m s/rad].
    """

    def body(part: str, parent: str | None, place: Vector, joints: tuple[Joint, ...], *shapes: Shape) -> Body:
        return Body(part, parent, Pose(place), joints, mass_properties(*shapes, density=density), shapes)

    def hinge(joint: str, axis: Vector, lower: float, upper: float, effort: float) -> Joint:
        return Joint(joint, REVOLUTE, axis, lower=lower, upper=upper, effort=effort, armature=0.02, damping=damping)

    def limb(length: float, radius: float) -> Shape:
        return capsule_between((0.0, 0.0, 0.0), (0.0, 0.0, -length), radius)

    forward = (0.0, -1.0, 0.0)  # a hanging limb swings to +x
    waist = (
        hinge("waist_turn", (0.0, 0.0, 1.0), -0.8, 0.8, 60.0),
        hinge("waist_bend", (0.0, 1.0, 0.0), -0.5, 1.3, 100.0),
        hinge("waist_lean", (1.0, 0.0, 0.0), -0.6, 0.6, 100.0),
    )
    belly = Shape(SPHERE, (0.10,), Pose((0.0, 0.0, 0.06)), name="belly")
    chest = capsule_between((0.0, -0.07, 0.22), (0.0, 0.07, 0.22), 0.11, name="chest")
    head = Shape(SPHERE, (0.10,), Pose((0.0, 0.0, 0.44)), name="head")
    bodies = [
        body(
            "pelvis",
            None,
            (0.0, 0.0, HIP + 0.05),
            (Joint("free", FREE),),
            capsule_between((0.0, -0.07, 0.0), (0.0, 0.07, 0.0), 0.09),
        ),
        body("torso", "pelvis", (0.0, 0.0, 0.10), waist, belly, chest, head),
    ]
    for side, y in (("left", 1.0), ("right", -1.0)):
        out = (y, 0.0, 0.0)  # a hanging limb spreads outwards
        hip = (
            hinge(f"hip_{side}_spread", out, -0.4, 0.8, 80.0),
            hinge(f"hip_{side}_turn", (0.0, 0.0, y), -0.6, 0.8, 60.0),
            hinge(f"hip_{side}_swing", forward, -0.5, 2.0, 120.0),
        )
        knee = (hinge(f"knee_{side}", (0.0, 1.0, 0.0), 0.0, 2.4, 120.0),)
        ankle = (
            hinge(f"ankle_{side}_lift", forward, -0.8, 0.5, 60.0),
            hinge(f"ankle_{side}_roll", (-y, 0.0, 0.0), -0.4, 0.4, 30.0),
        )
        shoulder = (
            hinge(f"shoulder_{side}_spread", out, -0.1, 2.5, 40.0),
            hinge(f"shoulder_{side}_swing", forward, -1.0, 2.8, 40.0),
        )
        elbow = (hinge(f"elbow_{side}", forward, 0.0, 2.5, 30.0),)
        soles = [
            capsule_between((-0.05, edge, 0.025 - ANKLE), (0.13, edge, 0.025 - ANKLE), 0.025) for edge in (-0.03, 0.03)
        ]
        hand = Shape(SPHERE, (0.04,), Pose((0.0, 0.0, -FOREARM)), name="hand")
        bodies += [
            body(f"thigh_{side}", "pelvis", (0.0, 0.09 * y, -0.05), hip, limb(THIGH - 0.06, 0.065)),
            body(f"shin_{side}", f"thigh_{side}", (0.0, 0.0, -THIGH), knee, limb(SHIN - 0.07, 0.045)),
            body(f"foot_{side}", f"shin_{side}", (0.0, 0.0, -SHIN), ankle, *soles),
            body(f"upper_arm_{side}", "torso", (0.0, 0.22 * y, 0.28), shoulder, limb(UPPER_ARM - 0.04, 0.04)),
            body(f"forearm_{side}", f"upper_arm_{side}", (0.0, 0.0, -UPPER_ARM), elbow, limb(0.20, 0.033), hand),
        ]
    hinges = [joint for one in bodies[1:] for joint in one.joints]
    drives = tuple(Actuator(j.name, j.name, gear=j.effort, lower=-1.0, upper=1.0, force=j.effort) for j in hinges)
    return Robot(name, tuple(bodies), drives)
