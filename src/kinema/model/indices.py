"""Indices of joints, robots and actuators in the last axis of q, v and u, by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinema.errors import InputError
from kinema.model.arrays import SceneArrays
from kinema.scene.names import closest, is_pattern, listed, matcher

Index = int | slice | list[int]
"""Index into the last axis of a tensor: one entry, a contiguous range, or a list of entries."""


@dataclass(frozen=True)
class ModelJoint:
    """A joint of a model.

    Attributes:
        name: "robot/joint".
        kind: revolute, prismatic, ball or free.
        q: Index of its coordinates in q: an integer, or a slice for ball and free joints.
        v: Index of its velocities in v, likewise.
        lower: Lower limit [rad or m], -inf for none.
        upper: Upper limit [rad or m], inf for none; for a ball joint the largest rotation angle.
    """

    name: str
    kind: str
    q: int | slice
    v: int | slice
    lower: float
    upper: float


def joint_named(model: SceneArrays, name: str) -> ModelJoint:
    """A joint by name.

    Raises:
        InputError: The model has no such joint.
    """
    if name not in model.joints:
        raise _unknown("joint", name, model.joints)
    i = model.joints.index(name)
    rows = model.constraints
    row = rows.limit_names.index(name) if name in rows.limit_names else None
    lower, upper = (-math.inf, math.inf) if row is None else (float(rows.limits[n][row]) for n in ("lower", "upper"))
    if row is not None and rows.limits["ball"][row]:
        lower = -math.inf
    tree = model.tree
    q, v = _one(tree.q_start[i], tree.coordinates[i]), _one(tree.v_start[i], tree.dofs[i])
    return ModelJoint(str(name), tree.types[i].word, q, v, lower, upper)


def coordinate_index(model: SceneArrays, name: str) -> Index:
    """Index into q of a joint, of a robot, or of all joints that match a pattern."""
    tree = model.tree
    return _index(model, "joint", name, tree.joints, tree.q_start, tree.coordinates)


def velocity_index(model: SceneArrays, name: str) -> Index:
    """Index into v of a joint, of a robot, or of all joints that match a pattern."""
    return _index(model, "joint", name, model.tree.joints, model.tree.v_start, model.tree.dofs)


def control_index(model: SceneArrays, name: str) -> Index:
    """Index into u of an actuator, of a robot, of all actuators that match a pattern, or of a joint's actuators."""
    names, one = model.actuators.names, np.ones(len(model.actuators), int)
    if name not in names and name in model.joints:
        dof = model.tree.v_start[model.joints.index(name)]
        on_joints = model.actuators.on_joints
        found = on_joints[model.actuators.dof[on_joints] == dof].tolist()
        if not found:
            raise InputError(f"joint {str(name)!r} has no actuator", expected=listed(names, "a robot with actuators"))
        return found[0] if len(found) == 1 else found
    return _index(model, "actuator", name, names, np.arange(len(names)), one)


def _index(model: SceneArrays, kind: str, name: str, names: list[str], start: np.ndarray, size: np.ndarray) -> Index:
    if name in names:
        i = names.index(name)
        return _one(start[i], size[i])
    if is_pattern(name):
        match = matcher(name)
        rows = [i for i, one in enumerate(names) if match(one)]
        if not rows:
            raise _unknown(kind, name, names)
        return [int(k) for i in rows for k in range(start[i], start[i] + size[i])]
    if name not in {body.partition("/")[0] for body in model.bodies}:
        robots = list(dict.fromkeys(body.partition("/")[0] for body in model.bodies))
        raise _unknown(f"robot or {kind}", name, [*names, *robots])
    rows = [i for i, one in enumerate(names) if one.startswith(f"{name}/")]
    if not rows:
        return slice(0, 0)
    return slice(int(start[rows[0]]), int(start[rows[-1]] + size[rows[-1]]))  # robots are contiguous


def _one(start: int, size: int) -> int | slice:
    return int(start) if size == 1 else slice(int(start), int(start + size))


def _unknown(kind: str, name: str, known: Sequence[str]) -> InputError:
    return InputError(f"the model has no {kind} {str(name)!r}", expected=listed(known), fix=closest(str(name), known))
