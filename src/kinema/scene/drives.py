"""Drives: actuators for all joints of a robot, or for those that match name patterns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kinema.errors import ModelError
from kinema.scene.description import Actuator, Joint, Robot
from kinema.scene.joint_types import SINGLE
from kinema.scene.names import closest, listed, matcher


@dataclass(frozen=True)
class Servo:
    """A position servo (PD control): kp (u - q) - kd v; controls u are target joint coordinates [rad or m].

    Attributes:
        kp: [N m/rad or N/m]
        kd: [N m s/rad or N s/m]
        force: Torque or force limit [N m or N]; the joint's effort limit also applies.
    """

    kp: float
    kd: float
    force: float = math.inf

    def actuator(self, joint: str) -> Actuator:
        """The actuator of a joint, by the joint's name."""
        return Actuator(joint, joint, "position", kp=self.kp, kd=self.kd, force=self.force)


@dataclass(frozen=True)
class VelocityServo:
    """A velocity servo: kd (u - v); controls u are target joint velocities [rad/s or m/s].

    Attributes:
        kd: [N m s/rad or N s/m]
        force: Torque or force limit [N m or N]; the joint's effort limit also applies.
    """

    kd: float
    force: float = math.inf

    def actuator(self, joint: str) -> Actuator:
        """The actuator of a joint, by the joint's name."""
        return Actuator(joint, joint, "velocity", kd=self.kd, force=self.force)


@dataclass(frozen=True)
class Motor:
    """A torque or force motor: gear * u.

    Attributes:
        gear: Torque or force per unit of control [N m or N, for dimensionless controls].
        force: Torque or force limit [N m or N]; the joint's effort limit also applies.
    """

    gear: float = 1.0
    force: float = math.inf

    def actuator(self, joint: str) -> Actuator:
        """The actuator of a joint, by the joint's name."""
        return Actuator(joint, joint, "torque", gear=self.gear, force=self.force)


Drive = Servo | VelocityServo | Motor


def driven(robot: Robot, drive: Drive | Mapping[str, Drive | None]) -> Robot:
    """The robot with these drives on its revolute and prismatic joints, except mimic and prescribed joints.

    New actuators replace those of the same joints; they have the names and the order of the joints, and come after
    the actuators of other joints. A drive without a force limit keeps the limit of the actuator it replaces.

    Args:
        robot: The robot.
        drive: One for all joints, or a dictionary by joint name or pattern ("*_knee"): the first match wins, None
            removes actuators, and joints without a match keep theirs.

    Raises:
        ModelError: A drive is of the wrong type, or a name or pattern matches no such joint.
    """
    joints = [j for body in robot.bodies for j in body.joints if _can_be_driven(j)]
    chosen = _chosen(robot.name, [j.name for j in joints], drive)
    kept = [a for a in robot.actuators if a.joint not in chosen]
    made = [_kept_force(one.actuator(name), robot.actuators) for name, one in chosen.items() if one is not None]
    return replace(robot, actuators=(*kept, *made))


def _can_be_driven(joint: Joint) -> bool:
    return joint.kind in SINGLE and joint.mimic is None and not joint.prescribed


def _chosen(robot: str, joints: list[str], drive: Drive | Mapping[str, Drive | None]) -> dict[str, Drive | None]:
    """The new drive of each joint that gets one, in joint order."""
    table: Mapping[str, Drive | None] = drive if isinstance(drive, Mapping) else {"*": drive}
    if not isinstance(drive, Mapping):
        _check(drive)
    found: dict[str, Drive | None] = {}
    for pattern, one in table.items():
        if one is not None:
            _check(one)
        names = [name for name in joints if matcher(pattern)(name)]
        if not names:
            what = f"drive: no joint of robot {robot!r} matches {pattern!r}"
            raise ModelError(what, expected=listed(joints, "a robot with joints"), fix=closest(pattern, joints))
        for name in names:
            found.setdefault(name, one)
    return {name: found[name] for name in joints if name in found}


def _check(drive: object) -> None:
    if not isinstance(drive, Drive):
        expected = "a Servo, VelocityServo or Motor, or a dictionary of them by names of joints"
        fix = "drive=kinema.Servo(kp=40, kd=1)"
        raise ModelError("drive is of the wrong type", got=repr(drive), expected=expected, fix=fix)


def _kept_force(made: Actuator, before: tuple[Actuator, ...]) -> Actuator:
    if made.force < math.inf:
        return made
    return replace(made, force=min((a.force for a in before if a.joint == made.joint), default=math.inf))
