"""A scene in both engines, at a common initial state, and the list of all scenes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import kinema as kn
from kinema.scene.description import Robot
from kinema.verification.mujoco_scene import mujoco_model, mujoco_state

LAWS = ("mlcp", "convex")
SHARE = 0.03  # standard deviation of a control, as a fraction of its range
TORQUE = 0.5  # N m, for controls without a range
DT = 2e-3  # s, for scenes without a time step of their own
OVERLAP = 1e-3  # m: bodies of a URDF file that overlap by more at the start never collide
LIFT = 1e-4  # m between the lowest point and the floor at the start


@dataclass(frozen=True)
class Pair:
    """A scene in both engines.

    Attributes:
        models: Kinema's models by contact law.
        rival: MuJoCo's model.
        dt: Time step [s].
        q, v: Kinema's initial state.
        controls: Standard deviation of the random controls, shape (controls,).
        apart: Number of pairs of bodies that overlap at the start and never collide.
    """

    models: dict[str, kn.Model]
    rival: Any
    dt: float
    q: Tensor
    v: Tensor
    controls: np.ndarray
    apart: int = 0

    @property
    def state(self) -> tuple[np.ndarray, np.ndarray]:
        """MuJoCo's qpos and qvel of the initial state."""
        return mujoco_state(self.models[LAWS[0]], self.rival, self.q, self.v)

    def random_controls(self, steps: int) -> np.ndarray:
        """Small random controls, shape (steps, controls)."""
        return self.controls * np.random.default_rng(0).normal(size=(steps, len(self.controls)))


@dataclass(frozen=True)
class Spec:
    """A scene to measure.

    Attributes:
        name: Its name.
        group: "mjcf", "legged", "arm", "hand", "pile" or "apart".
        make: Reads and compiles it.
        steps: Steps of a rollout.
        solvers: MuJoCo's solvers to choose the best from.
        differentiate: Whether gradients and Jacobians are measured as well.
    """

    name: str
    group: str
    make: Callable[[], Pair]
    steps: int = 200
    solvers: tuple[str, ...] = ("Newton",)
    differentiate: bool = True


def from_mjcf(file: str) -> Pair:
    """The scene of an MJCF file, with Euler's method and MuJoCo's Newton method in both engines."""
    import mujoco

    rival = mujoco.MjModel.from_xml_path(file)
    rival.opt.integrator, rival.opt.solver = mujoco.mjtIntegrator.mjINT_EULER, mujoco.mjtSolver.mjSOL_NEWTON
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kn.LeftOutWarning)
        robot = kn.read_mjcf(file, ignore=["fluid"])
    assert robot.options is not None
    models = {}
    for law in LAWS:
        contact = kn.Contact(law=law, cone=robot.options.elliptic, impratio=robot.options.impratio)
        scene = kn.Scene(gravity=robot.options.gravity, contact=contact)
        scene.add_robot(robot, "r", self_collision=True)
        models[law] = kn.compile(scene, torch.float64)
    start = models[LAWS[0]].initial_state()
    return Pair(models, rival, float(rival.opt.timestep), start.q, start.v, _ranges(rival))


def of_scene(
    fill: Callable[[kn.Scene], None], lowered: str = "", start: Callable[[kn.Model, Tensor], None] | None = None
) -> Pair:
    """A scene that Kinema describes, in both engines.

    Args:
        fill: Adds everything but the law to an empty scene.
        lowered: Name of a free joint that is lowered to where its robot just touches the floor.
        start: Changes the initial coordinates.
    """
    models, scenes = {}, {}
    for law in LAWS:
        scene = scenes[law] = kn.Scene(contact=kn.Contact(law=law))
        fill(scene)
        models[law] = kn.compile(scene, torch.float64)
    model = models[LAWS[0]]
    rival = mujoco_model(scenes["convex"], models["convex"], DT)
    state = model.initial_state()
    if start is not None:
        start(model, state.q)
    if lowered:
        state.q[model.q_index(lowered)][2] -= lowest_point(rival, *mujoco_state(model, rival, state.q, state.v)) - LIFT
    return Pair(models, rival, DT, state.q, state.v, _ranges(rival))


def of_robot(robot: Robot, rest: dict[str, float], floating: bool, objects: Callable[[kn.Scene], None] | None) -> Pair:
    """A robot on the floor in a pose; bodies that overlap there never collide."""
    name = "r"
    roots = [j.name for body in robot.bodies for j in body.joints if j.kind == "free"] if floating else []

    def fill(scene: kn.Scene, robot: Robot) -> None:
        scene.add_ground()
        scene.add_robot(robot, name, self_collision=True)
        if objects is not None:
            objects(scene)

    def pose(model: kn.Model, q: Tensor) -> None:
        for joint, value in rest.items():
            q[model.q_index(f"{name}/{joint}")] = value

    lowered = f"{name}/{roots[0]}" if roots else ""
    first = of_scene(lambda scene: fill(scene, robot), lowered, pose)
    touching = overlapping(first.rival, *first.state, name)
    if not touching:
        return first
    free = replace(robot, excluded=robot.excluded | touching)
    return replace(of_scene(lambda scene: fill(scene, free), lowered, pose), apart=len(touching))


def overlapping(rival: Any, qpos: np.ndarray, qvel: np.ndarray, robot: str) -> frozenset[frozenset[str]]:
    """Pairs of bodies of a robot that overlap by more than `OVERLAP`, by their names in it."""
    import mujoco

    data = mujoco.MjData(rival)
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(rival, data)
    found = set()
    for i in range(data.ncon):
        names = [rival.body(int(rival.geom_bodyid[g])).name for g in data.contact[i].geom]
        if data.contact[i].dist < -OVERLAP and all(name.startswith(f"{robot}/") for name in names):
            found.add(frozenset(name.removeprefix(f"{robot}/") for name in names))
    return frozenset(found)


def lowest_point(rival: Any, qpos: np.ndarray, qvel: np.ndarray) -> float:
    """Height of the lowest point of what moves above the floor [m]."""
    import mujoco

    data = mujoco.MjData(rival)
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(rival, data)
    planes = [g for g in range(rival.ngeom) if rival.geom_type[g] == mujoco.mjtGeom.mjGEOM_PLANE]
    moving = [g for g in range(rival.ngeom) if g not in planes and rival.body_weldid[rival.geom_bodyid[g]]]
    return min((mujoco.mj_geomDistance(rival, data, g, planes[0], 10.0, None) for g in moving), default=0.0)


def _ranges(rival: Any) -> np.ndarray:
    low, high = rival.actuator_ctrlrange.T
    return np.where(rival.actuator_ctrllimited.astype(bool), SHARE * (high - low) / 2, TORQUE)


def chosen(specs: Iterable[Spec], names: Sequence[str]) -> list[Spec]:
    """The scenes whose name or group is one of the words; all if there are none."""
    return [s for s in specs if not names or any(word in (s.name, s.group) for word in names)]
