"""Arrays of keyframes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kinema.errors import ModelError
from kinema.model.activations import ActivationArrays
from kinema.model.actuators import ActuatorArrays
from kinema.model.tree import TreeArrays
from kinema.scene.description import PlacedRobot, rotation_matrix
from kinema.scene.io.poses import product


@dataclass(eq=False)
class KeyframeArrays:
    """Keyframes of all robots; each leaves the others as they are initially.

    Attributes:
        names: "robot/keyframe".
        q, v, u, act: Shapes (n, nq), (n, nv), (n, actuators), (n, activations).
    """

    names: list[str] = field(default_factory=list)
    q: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    v: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    u: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    act: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def __len__(self) -> int:
        return len(self.names)


def find_keyframes(
    tree: TreeArrays, actuators: ActuatorArrays, activations: ActivationArrays, placed: Sequence[PlacedRobot]
) -> KeyframeArrays:
    """The keyframes of all robots.

    Raises:
        ModelError: A name is taken, a joint or an actuator does not exist, or the numbers do not fit it.
    """
    found = [(one, keyframe) for one in placed for keyframe in one.robot.keyframes]
    names = [f"{one.name}/{keyframe.name}" for one, keyframe in found]
    for name in names:
        if names.count(name) > 1:
            raise ModelError(f"two keyframes are called {name!r}", fix="names must be unique within a robot")
    q, v = np.tile(tree.q, (len(found), 1)), np.zeros((len(found), tree.nv))
    u, act = np.zeros((len(found), len(actuators))), np.zeros((len(found), len(activations)))
    for row, (one, keyframe) in enumerate(found):
        owner = f"keyframe {names[row]!r}"
        for out, given, starts, sizes in (
            (q, keyframe.q, tree.q_start, tree.coordinates),
            (v, keyframe.v, tree.v_start, tree.dofs),
        ):
            for joint, numbers in given:
                i = _joint(tree, f"{one.name}/{joint}", owner)
                values = np.asarray(numbers, float)
                if values.shape != (int(sizes[i]),) or not np.isfinite(values).all():
                    expected = f"{int(sizes[i])} finite numbers"
                    raise ModelError(f"{owner}: joint {joint!r} is not usable", got=numbers, expected=expected)
                if out is q and tree.types[i].position:
                    values = _placed(one, values)
                out[row, int(starts[i]) : int(starts[i]) + len(values)] = values
        for name, control in keyframe.u:
            u[row, _actuator(actuators, f"{one.name}/{name}", owner)] = control
        for name, activation in keyframe.act:
            place = int(activations.row[_actuator(actuators, f"{one.name}/{name}", owner)])
            if place < 0:
                raise ModelError(f"{owner} has an activation of actuator {name!r}, which has none")
            act[row, place] = activation
    return KeyframeArrays(names, q, v, u, act)


def _joint(tree: TreeArrays, name: str, owner: str) -> int:
    if name not in tree.joints:
        raise ModelError(f"{owner} names joint {name!r}, which does not move")
    return tree.joints.index(name)


def _actuator(actuators: ActuatorArrays, name: str, owner: str) -> int:
    if name not in actuators.names:
        raise ModelError(f"{owner} names actuator {name!r}, which does not exist")
    return actuators.names.index(name)


def _placed(one: PlacedRobot, values: np.ndarray) -> np.ndarray:
    """Coordinates of a free joint in the world."""
    pose = one.pose
    position = rotation_matrix(pose.rotation) @ values[:3] + np.asarray(pose.position)
    w, x, y, z = (float(c) for c in values[3:])
    return np.array([*position, *product(pose.rotation, (w, x, y, z))])
