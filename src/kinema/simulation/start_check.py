"""Warn of robots that start deep inside the ground: a common mistake, after which they are pushed out for seconds."""

from __future__ import annotations

import warnings
import weakref

import numpy as np
import torch

from kinema.errors import ContactWarning
from kinema.model.model import Model
from kinema.model.state import State
from kinema.scene.convex_hull import cube, prism
from kinema.scene.description import BOX, CYLINDER, PLANE
from kinema.scene.shape_kinds import SHAPE_KINDS, SIDES
from kinema.simulation.robot_dynamics import forward_kinematics

DEEP = 0.02  # m
_seen: weakref.WeakSet[Model] = weakref.WeakSet()


def warn_of_deep_start(model: Model, state: State | None) -> None:
    """Warn if a shape starts more than `DEEP` inside a plane; only in the first run of a model, in its first world."""
    if model in _seen:
        return
    _seen.add(model)
    pairs = _pairs_with_planes(model)
    q = model.initial_state().q if state is None or state.q is None else state.q
    if not pairs or q is None or q.shape[-1:] != (model.nq,) or not q.detach().isfinite().all():
        return
    with torch.no_grad():
        poses = forward_kinematics(model, q.detach().reshape(-1, model.nq)[0])
    found = max((_depth(model, poses, one, plane), one, plane) for one, plane in pairs)
    depth, one, plane = found
    if depth > DEEP:
        names = model.shapes.names
        warnings.warn(
            f"{names[one]!r} starts {depth:.2g} m inside {names[plane]!r}, and is pushed out: the motion begins with"
            f" that. Fix: place the robot higher, by `add_robot(..., pos=(0, 0, {depth:.2g}))` or in the state",
            ContactWarning,
            stacklevel=3,
        )


def _pairs_with_planes(model: Model) -> list[tuple[int, int]]:
    """Pairs of a moving shape and a static plane that may collide: indices of the shape and of the plane."""
    kinds, link = model.shapes.kind, model.shapes.link
    found = set()
    for table in model.candidates.pairs.values():
        for a, b in zip(table["first"].tolist(), table["second"].tolist(), strict=True):
            one, plane = (b, a) if kinds[a] == PLANE else (a, b)
            if kinds[plane] == PLANE and link[plane] == 0 and link[one] > 0:
                found.add((one, plane))
    return sorted(found)


def _depth(model: Model, poses: object, one: int, plane: int) -> float:
    """How far the lowest point of a shape is inside a plane [m]."""
    shapes = model.shapes
    places, radius = _points(model, one)
    body = int(np.flatnonzero(model.tree.body_link == shapes.link[one])[0])
    # The pose of a body on the link gives that of the link, in whose frame shapes are placed.
    R = poses.rotation[body].numpy() @ model.tree.body_rotation[body].T  # type: ignore[attr-defined]
    p = poses.position[body].numpy() - R @ model.tree.body_offset[body]  # type: ignore[attr-defined]
    at = (places @ shapes.rotation[one].T + shapes.offset[one]) @ R.T + p
    height = (at - shapes.offset[plane]) @ shapes.rotation[plane][:, 2]
    return radius - float(height.min(initial=np.inf))


def _points(model: Model, one: int) -> tuple[np.ndarray, float]:
    """Points in the frame of a shape, and a radius around them, whose hull is the shape; none if it is unknown."""
    kind, size, hull = SHAPE_KINDS[model.shapes.kind[one]], model.shapes.size[one], model.shapes.hulls[one]
    scale = np.array([size[0], size[0], size[1]]) if kind.axial else size
    if kind.ends:
        return np.array(kind.ends) * scale, float(size[0])
    if hull is None and kind.word in (BOX, CYLINDER):  # planes need no hull of them
        hull = cube() if kind.word == BOX else prism(SIDES)
    return (np.zeros((0, 3)), 0.0) if hull is None else (hull.vertices * scale, 0.0)
