"""MuJoCo's model of a scene: the same bodies, joints, shapes and actuators, to compare motion and speed.

Bodies of a robot that never collide here are excluded from collision there: both engines have the same pairs of bodies.
MuJoCo is imported when a function is called.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.errors import ModelError
from kinema.kinematics.joint_types import BALL as BALL_LINK
from kinema.kinematics.joint_types import FREE as FREE_LINK
from kinema.model.model import Model
from kinema.scene.contact import Contact
from kinema.scene.description import (
    BALL,
    BOX,
    CAPSULE,
    CYLINDER,
    FREE,
    MESH,
    PLANE,
    PRISMATIC,
    REVOLUTE,
    SPHERE,
    Actuator,
    Body,
    Joint,
    MassProperties,
    Pose,
    Robot,
    Shape,
    rotation_matrix,
)
from kinema.scene.io.poses import composed
from kinema.scene.scene import Scene
from kinema.scene.softness import Softness

PLANE_SIZE = (0.0, 0.0, 1.0)  # an infinite plane
_GEOMS = {PLANE: "PLANE", SPHERE: "SPHERE", CAPSULE: "CAPSULE", CYLINDER: "CYLINDER", BOX: "BOX", MESH: "MESH"}
_JOINTS = {REVOLUTE: "HINGE", PRISMATIC: "SLIDE", BALL: "BALL"}


def mujoco_model(scene: Scene, model: Model, dt: float) -> Any:
    """MuJoCo's compiled model of a scene of robots and bodies; names are those of the model.

    Euler's method and Newton's method with MuJoCo's defaults; softness, cone and impratio are those of the scene's
    contact, whatever its law.

    Args:
        scene: The scene. Tendons, closures, keyframes, contact pairs, soft matter and forces of its own are refused.
        model: The compiled scene.
        dt: Time step [s].

    Raises:
        ModelError: The scene has something that is not translated.
    """
    import mujoco

    _refuse(scene)
    spec = mujoco.MjSpec()
    spec.option.timestep, spec.option.gravity = dt, scene.gravity
    spec.option.impratio = scene.contact.impratio
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC if scene.contact.cone else mujoco.mjtCone.mjCONE_PYRAMIDAL
    spec.compiler.degree = False
    writer = _Writer(mujoco, spec, scene.contact)
    if scene.ground is not None:
        ground = Shape(PLANE, pose=Pose((0.0, 0.0, scene.ground.height)), group=scene.ground.group)
        writer.geom(spec.worldbody, "ground", ground)
    for placed in scene.robots:
        writer.robot(placed.name, placed.robot, placed.pose)
        for one, two in _apart(model, placed.name, placed.robot):
            spec.add_exclude(bodyname1=one, bodyname2=two)
    rival = spec.compile()
    for name, (mass, moments) in writer.weights.items():
        b = mujoco.mj_name2id(rival, mujoco.mjtObj.mjOBJ_BODY, name)
        rival.body_mass[b], rival.body_inertia[b] = mass, moments
    for (what, name), ends in writer.ranges.items():
        getattr(rival, what)[mujoco.mj_name2id(rival, mujoco.mjtObj.mjOBJ_JOINT, name)] = ends
    mujoco.mj_setConst(rival, mujoco.MjData(rival))
    return rival


def mujoco_state(model: Model, rival: Any, q: Tensor, v: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """MuJoCo's qpos and qvel of a state of one world; the models have joints of the same names."""
    qpos, qvel = rival.qpos0.copy(), np.zeros(rival.nv)
    for i, at, dof in _places(model, rival):
        a, d = int(model.tree.q_start[i]), int(model.tree.v_start[i])
        if model.tree.kind[i] == FREE_LINK:  # MuJoCo: linear in the axes of the world, then angular
            qpos[at : at + 7] = q[a : a + 7]
            qvel[dof : dof + 3] = rotation_matrix(q[a + 3 : a + 7].tolist()) @ v[d + 3 : d + 6].numpy()
            qvel[dof + 3 : dof + 6] = v[d : d + 3]
        elif model.tree.kind[i] == BALL_LINK:
            qpos[at : at + 4], qvel[dof : dof + 3] = q[a : a + 4], v[d : d + 3]
        else:
            qpos[at], qvel[dof] = q[a] + rival.qpos0[at], v[d]
    return qpos, qvel


def state_from_mujoco(model: Model, rival: Any, qpos: np.ndarray, qvel: np.ndarray) -> tuple[Tensor, Tensor]:
    """q and v of a state of MuJoCo: the inverse of `mujoco_state`."""
    q, v = np.zeros(model.nq), np.zeros(model.nv)
    for i, at, dof in _places(model, rival):
        a, d = int(model.tree.q_start[i]), int(model.tree.v_start[i])
        if model.tree.kind[i] == FREE_LINK:
            q[a : a + 7], v[d : d + 3] = qpos[at : at + 7], qvel[dof + 3 : dof + 6]
            v[d + 3 : d + 6] = rotation_matrix(qpos[at + 3 : at + 7]).T @ qvel[dof : dof + 3]
        elif model.tree.kind[i] == BALL_LINK:
            q[a : a + 4], v[d : d + 3] = qpos[at : at + 4], qvel[dof : dof + 3]
        else:
            q[a], v[d] = qpos[at] - rival.qpos0[at], qvel[dof]
    return torch.tensor(q), torch.tensor(v)


def _places(model: Model, rival: Any) -> list[tuple[int, int, int]]:
    """Per joint: its number here, and the addresses of its coordinates and velocities in MuJoCo.

    Models of the same file may name joints with and without the name of the robot, or not at all: then they are in the
    same order.
    """
    import mujoco

    if rival.njnt != len(model.joints):
        got = f"{rival.njnt} joints in MuJoCo, {len(model.joints)} here"
        raise ModelError("MuJoCo's model has other joints", got=got)
    found = []
    for i, name in enumerate(model.joints):
        numbers = (mujoco.mj_name2id(rival, mujoco.mjtObj.mjOBJ_JOINT, word) for word in (name, name.partition("/")[2]))
        j = next((number for number in numbers if number >= 0), i)
        found.append((i, int(rival.jnt_qposadr[j]), int(rival.jnt_dofadr[j])))
    return found


def _refuse(scene: Scene) -> None:
    """Raise ModelError for what is not translated."""
    parts: list[tuple[str, Any]] = [("soft matter", scene.matter), ("forces of its own", scene.forces)]
    for placed in scene.robots:
        robot = placed.robot
        parts += [("tendons", robot.tendons), ("closures", robot.closures), ("contact pairs", robot.pairs)]
        parts += [("drag", [b for b in robot.bodies if b.drag]), ("gravcomp", [b for b in robot.bodies if b.gravcomp])]
    for what, given in parts:
        if given:
            raise ModelError(f"{what} are not translated to MuJoCo", fix="a scene without them")


class _Writer:
    """Adds robots to MuJoCo's specification."""

    def __init__(self, mujoco: Any, spec: Any, contact: Contact) -> None:
        self.mj, self.spec, self.contact = mujoco, spec, contact
        self.weights: dict[str, tuple[float, np.ndarray]] = {}
        self.ranges: dict[tuple[str, str], tuple[float, float]] = {}

    def robot(self, name: str, robot: Robot, pose: Pose) -> None:
        made: dict[str | None, Any] = {None: self.spec.worldbody}
        for body in robot.bodies:
            place = composed(pose, body.pose) if body.parent is None else body.pose
            made[body.name] = self._body(made[body.parent], name, body, place)
        for actuator in robot.actuators:
            self._actuator(name, actuator)
        for body in robot.bodies:
            for joint in body.joints:
                if joint.mimic is not None:
                    other = f"{name}/{joint.mimic.joint}"
                    tie = self.spec.add_equality(type=self.mj.mjtEq.mjEQ_JOINT, name1=f"{name}/{joint.name}")
                    tie.name2, tie.objtype = other, self.mj.mjtObj.mjOBJ_JOINT
                    tie.data[:5] = (joint.mimic.offset, joint.mimic.multiplier, *joint.mimic.higher)
                    tie.solref, tie.solimp = self._soft(joint.mimic.softness)

    def _soft(self, softness: Softness | None) -> tuple[Any, Any]:
        chosen = softness or self.contact.softness
        return chosen.solref, chosen.solimp

    def _body(self, parent: Any, robot: str, body: Body, place: Pose) -> Any:
        made = parent.add_body(name=f"{robot}/{body.name}", pos=place.position, quat=place.rotation)
        # The compiler refuses masses and inertias that only carry others, or are round-off away from a body's: these
        # are written afterwards.
        made.explicitinertial, made.mass, made.inertia = True, 1.0, (1.0, 1.0, 1.0)
        self.weights[made.name] = 0.0, np.zeros(3)
        if body.mass is not None:
            moments, axes = _principal(body.mass)
            turn = np.zeros(4)
            self.mj.mju_mat2Quat(turn, axes.ravel())
            made.ipos, made.iquat = body.mass.com, turn
            self.weights[made.name] = body.mass.mass, moments
        for joint in body.joints:
            self._joint(made, robot, joint)
        for number, shape in enumerate(body.shapes):
            if shape.collides:
                self.geom(made, f"{robot}/{body.name}/{shape.name or number}", shape)
        return made

    def _joint(self, body: Any, robot: str, joint: Joint) -> None:
        name = f"{robot}/{joint.name}"
        if joint.kind == FREE:
            body.add_freejoint(name=name)
        if joint.kind not in _JOINTS:
            return
        made = body.add_joint(name=name, type=getattr(self.mj.mjtJoint, f"mjJNT_{_JOINTS[joint.kind]}"))
        made.axis, made.pos = joint.axis, joint.anchor
        made.armature, made.frictionloss, made.springref = joint.armature, joint.friction, joint.rest
        made.damping, made.stiffness = (joint.damping, 0.0, 0.0), (joint.stiffness, 0.0, 0.0)  # linear
        made.solref_limit, made.solimp_limit = self._soft(joint.limit_softness)
        made.solref_friction, made.solimp_friction = self._soft(joint.friction_softness)
        made.margin = joint.limit_margin
        # The compiler also refuses ranges of one number, such as no effort at all.
        if np.isfinite(joint.upper) or np.isfinite(joint.lower):
            lower = 0.0 if joint.kind == BALL else max(joint.lower, -1e10)
            made.limited, made.range = True, (0.0, 1.0)
            self.ranges["jnt_range", name] = lower, min(joint.upper, 1e10)
        if np.isfinite(joint.effort):
            made.actfrclimited, made.actfrcrange = True, (-1.0, 1.0)
            self.ranges["jnt_actfrcrange", name] = -joint.effort, joint.effort

    def geom(self, body: Any, name: str, shape: Shape) -> None:
        """Add a colliding shape."""
        if shape.kind not in _GEOMS or shape.group != 1:
            raise ModelError(f"{shape.kind} {name!r} is not translated to MuJoCo", fix="another shape, in group 1")
        made = body.add_geom(name=name, type=getattr(self.mj.mjtGeom, f"mjGEOM_{_GEOMS[shape.kind]}"))
        made.pos, made.quat, made.mass = shape.pose.position, shape.pose.rotation, 0.0
        surface = shape.surface or self.contact.surface
        friction = self.contact.friction if shape.friction is None else shape.friction
        made.friction = (friction, surface.torsional, surface.rolling)
        made.condim, made.priority, made.margin = surface.condim, surface.priority, surface.margin
        made.solmix, made.solref, made.solimp = surface.solmix, surface.softness.solref, surface.softness.solimp
        if shape.surface is None:
            made.solref, made.solimp = self._soft(None)
        if shape.kind == MESH:
            assert shape.mesh is not None
            points = self.spec.add_mesh(name=name, uservert=np.asarray(shape.mesh.vertices, float).ravel())
            points.inertia = self.mj.mjtMeshInertia.mjMESH_INERTIA_CONVEX
            made.meshname = name
        else:
            made.size = PLANE_SIZE if shape.kind == PLANE else (*shape.size, 0.0, 0.0)[:3]

    def _actuator(self, robot: str, actuator: Actuator) -> None:
        if actuator.kind == "general":
            raise ModelError("general actuators are not translated to MuJoCo", fix="a scene without them")
        made = self.spec.add_actuator(name=f"{robot}/{actuator.name}", target=f"{robot}/{actuator.joint}")
        made.trntype, gear = self.mj.mjtTrn.mjTRN_JOINT, 1.0
        if actuator.kind == "position":
            made.set_to_position(kp=actuator.kp, kv=actuator.kd)
        elif actuator.kind == "velocity":
            made.set_to_velocity(kv=actuator.kd)
        else:
            gear = actuator.gear
            made.set_to_motor()
            made.gear[0] = gear
        if np.isfinite(actuator.force):
            made.forcelimited, made.forcerange = True, (-actuator.force / abs(gear), actuator.force / abs(gear))
        if np.isfinite(actuator.lower) and np.isfinite(actuator.upper):
            made.ctrllimited, made.ctrlrange = True, (actuator.lower, actuator.upper)


def _principal(mass: MassProperties) -> tuple[np.ndarray, np.ndarray]:
    """Principal moments [kg m^2], and their axes as columns; the axes of the body where these are principal."""
    xx, xy, xz, yy, yz, zz = mass.inertia
    if xy == xz == yz == 0.0:
        return np.array([xx, yy, zz]), np.eye(3)
    moments, axes = np.linalg.eigh(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))
    axes[:, 2] *= np.sign(np.linalg.det(axes))
    return moments, axes


def _apart(model: Model, name: str, robot: Robot) -> list[tuple[str, str]]:
    """Pairs of bodies of a robot, by name, with shapes that never collide."""
    solid = [f"{name}/{body.name}" for body in robot.bodies if any(shape.collides for shape in body.shapes)]
    owner = {
        f"{name}/{body.name}/{shape.name or number}": f"{name}/{body.name}"
        for body in robot.bodies
        for number, shape in enumerate(body.shapes)
    }
    of_shape = [owner.get(one) for one in model.shapes.names]
    meeting = {
        frozenset((of_shape[int(a)], of_shape[int(b)]))
        for table in model.candidates.pairs.values()
        for a, b in zip(table["first"], table["second"], strict=True)
        if of_shape[int(a)] and of_shape[int(b)]
    }
    return [pair for pair in combinations(solid, 2) if frozenset(pair) not in meeting]
