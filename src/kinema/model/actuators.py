"""Arrays of actuators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinema.errors import ModelError
from kinema.model.transmissions import UNBOUNDED, within_effort
from kinema.model.tree import TreeArrays
from kinema.scene.description import PlacedRobot
from kinema.scene.joint_types import SINGLE
from kinema.scene.validate import GENERAL

TORQUE, POSITION, VELOCITY, ALONG_TRANSMISSION = 0, 1, 2, 3
KINDS = {"torque": TORQUE, "position": POSITION, "velocity": VELOCITY, GENERAL: ALONG_TRANSMISSION}


@dataclass(eq=False)
class ActuatorArrays:
    """Arrays of `dynamics.actuators.Actuators`, shapes (n,).

    Actuators along transmissions have a row here, too, for their names, bounds and gears; `dof`, `q` and the gains of
    the row are 0.

    Attributes:
        names: "robot/actuator".
    """

    names: list[str]
    dof: np.ndarray
    q: np.ndarray
    kind: np.ndarray
    gear: np.ndarray
    kp: np.ndarray
    kd: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    force: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    @property
    def on_joints(self) -> np.ndarray:
        """Indices of the actuators that are no general ones."""
        return np.flatnonzero(self.kind != ALONG_TRANSMISSION).astype(np.int32)


def find_actuators(tree: TreeArrays, placed: Sequence[PlacedRobot]) -> ActuatorArrays:
    """The actuators of all robots, in order.

    Raises:
        ModelError: A name is taken, a joint is unknown or has several coordinates, or the kind is unknown.
    """
    names: list[str] = []
    dofs: list[int] = []
    found = [(one, actuator) for one in placed for actuator in one.robot.actuators]
    for one, actuator in found:
        name, joint = f"{one.name}/{actuator.name}", f"{one.name}/{actuator.joint}"
        if name in names:
            raise ModelError(f"two actuators are called {name!r}")
        if actuator.kind == GENERAL:  # `find_transmissions` checks what it drives
            names.append(name)
            dofs.append(-1)
            continue
        if joint not in tree.joints:
            raise ModelError(
                f"actuator {name!r} drives {joint!r}, which does not move", expected=", ".join(tree.joints)
            )
        i = tree.joints.index(joint)
        if not tree.types[i].is_single:
            raise ModelError(f"actuator {name!r} drives {joint!r}", expected=f"a {' or '.join(SINGLE)} joint")
        if actuator.kind not in KINDS:
            raise ModelError(f"actuator {name!r} is of unknown kind", got=actuator.kind, expected=", ".join(KINDS))
        names.append(name)
        dofs.append(int(tree.v_start[i]))
    all_actuators = [actuator for _, actuator in found]
    forces = [
        within_effort(one, a).force if a.kind == GENERAL else min(a.force, _effort(one, a.joint)) for one, a in found
    ]

    coordinates = tree.spring_coordinates()

    def numbers(values: Sequence[float]) -> np.ndarray:
        return np.clip(np.array(values, float), -UNBOUNDED, UNBOUNDED)

    return ActuatorArrays(
        names,
        np.maximum(np.array(dofs, np.int32), 0),
        np.array([coordinates[d] if d >= 0 else 0 for d in dofs], np.int32),
        np.array([KINDS[a.kind] for a in all_actuators], np.int32),
        numbers([a.gear for a in all_actuators]),
        numbers([a.kp for a in all_actuators]),
        numbers([a.kd for a in all_actuators]),
        numbers([a.lower for a in all_actuators]),
        numbers([a.upper for a in all_actuators]),
        numbers(forces),
    )


def _effort(one: PlacedRobot, joint: str) -> float:
    return next(j.effort for body in one.robot.bodies for j in body.joints if j.name == joint)
