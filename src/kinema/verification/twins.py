"""Random trees of links compared with their twins in Pinocchio and MuJoCo: largest relative differences.

Shared by the tests, which compare a hundred trees, and `kinema verify --full`, which compares thousands. The trees are
floating or hanging, of all joint kinds, with several joints on a body and bodies fixed to others. Differences are
rounding errors: relative to the largest entry of a vector or matrix, at most VALUES or DERIVATIVES.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.kinematics.joint_types import BALL, FREE
from kinema.model.model import Model, compile
from kinema.scene.description import Body, Joint, Robot, rotation_matrix
from kinema.scene.joint_types import TYPES
from kinema.scene.scene import Scene
from kinema.scene.shapes.random_tree import random_tree
from kinema.simulation.robot_dynamics import (
    body_jacobian,
    centre_of_mass,
    forward_dynamics,
    forward_kinematics,
    inverse_dynamics,
    kinetic_energy,
    mass_matrix,
    momentum,
    potential_energy,
)

VALUES, DERIVATIVES = 1e-10, 1e-9


def _engine(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


pinocchio, mujoco = _engine("pinocchio"), _engine("mujoco")
MISSING = [name for name, engine in (("pin", pinocchio), ("mujoco-core", mujoco)) if engine is None]
"""Missing packages; without them this module cannot be used."""

Found = dict[str, float]


class Case:
    """A random tree in a random state, with its twin in Pinocchio."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(1000 + seed)
        robot = random_tree(seed, int(random.integers(1, 12)), floating=seed % 2 == 0)
        scene = Scene()
        scene.add_robot(robot, "r")
        self.robot, self.model = robot, compile(scene)
        tree = self.model.tree
        q = tree.q.copy()
        for i, (at, count) in enumerate(zip(tree.q_start, tree.coordinates, strict=True)):
            turn = tree.quaternions.get(i)
            if turn is not None:
                q[turn : turn + 4] = random.normal(size=4)
                q[turn : turn + 4] /= np.linalg.norm(q[turn : turn + 4])
                q[at:turn] = random.normal(size=turn - at)
            else:
                q[at : at + count] = random.normal(size=count)
        self.q = torch.tensor(q)
        self.v, self.a, self.tau = (torch.tensor(random.normal(size=tree.nv)) for _ in range(3))
        self.twin, self.frames = pinocchio_twin(robot, self.model)
        self.data = self.twin.createData()
        self.qp, self.order = to_pinocchio(self.twin, self.model, q)
        self.twin.armature[self.order] = tree.armature

    def there(self, numbers: Tensor) -> np.ndarray:
        """Velocities or forces in Pinocchio's order."""
        out = np.zeros(len(self.order))
        out[self.order] = numbers.detach().numpy()
        return out


def difference(got: Tensor | np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference relative to the largest entry; infinite where an entry is not finite."""
    numbers = got.detach().numpy() if isinstance(got, Tensor) else got
    # Some derivatives are exactly zero; others are of order 1.
    worst = float(np.abs(numbers - wanted).max(initial=0) / max(np.abs(wanted).max(initial=0), 1e-3))
    return worst if np.isfinite(worst) else np.inf


# -- Pinocchio -------------------------------------------------------------------------------------------------------


def pinocchio_twin(robot: Robot, model: Model) -> tuple[Any, dict[str, tuple[int, Any]]]:
    """The robot in Pinocchio, and for each body its joint and its pose on it; joints are added depth first."""
    twin = pinocchio.Model()
    frames: dict[str, tuple[int, Any]] = {}
    by_name = {body.name: body for body in robot.bodies}
    for full_name in model.bodies:
        body = by_name[full_name.removeprefix("r/")]
        joint, place = frames[body.parent] if body.parent else (0, pinocchio.SE3.Identity())
        place = place * pinocchio.SE3(rotation_matrix(body.pose.rotation), np.array(body.pose.position))
        for one in body.joints:
            joint, place = _add_joint(twin, joint, place, one)
        assert body.mass is not None
        xx, xy, xz, yy, yz, zz = body.mass.inertia
        inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        twin.appendBodyToJoint(joint, pinocchio.Inertia(body.mass.mass, np.array(body.mass.com), inertia), place)
        frames[body.name] = (joint, place)
    twin.gravity.linear = np.array([0, 0, -9.81])
    return twin, frames


def _add_joint(twin: Any, parent: int, place: Any, joint: Joint) -> tuple[int, Any]:
    axis, anchor = np.array(joint.axis), np.array(joint.anchor)
    kind = {
        "revolute": lambda: pinocchio.JointModelRevoluteUnaligned(axis),
        "prismatic": lambda: pinocchio.JointModelPrismaticUnaligned(axis),
        "ball": pinocchio.JointModelSpherical,
        "free": pinocchio.JointModelFreeFlyer,
    }[joint.kind]()
    if joint.kind == "free":
        return twin.addJoint(parent, kind, pinocchio.SE3.Identity(), joint.name), pinocchio.SE3.Identity()
    if joint.kind == "prismatic":
        anchor = np.zeros(3)
    number = twin.addJoint(parent, kind, place * pinocchio.SE3(np.eye(3), anchor), joint.name)
    return number, pinocchio.SE3(np.eye(3), -anchor)


def to_pinocchio(twin: Any, model: Model, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates in Pinocchio's conventions (x, y, z, w; linear first), and the positions of our velocities there."""
    tree, out, order = model.tree, pinocchio.neutral(twin), np.zeros(model.nv, int)
    for i, name in enumerate(tree.joints):
        number = twin.getJointId(name.removeprefix("r/"))
        to_q, to_v, at, d = twin.idx_qs[number], twin.idx_vs[number], tree.q_start[i], tree.v_start[i]
        if tree.kind[i] == FREE:
            out[to_q : to_q + 7] = q[at + np.array([0, 1, 2, 4, 5, 6, 3])]
            order[d : d + 6] = to_v + np.array([3, 4, 5, 0, 1, 2])
        elif tree.kind[i] == BALL:
            out[to_q : to_q + 4] = q[at + np.array([1, 2, 3, 0])]
            order[d : d + 3] = to_v + np.arange(3)
        else:
            count = tree.dofs[i]
            out[to_q : to_q + count], order[d : d + count] = q[at : at + count], to_v + np.arange(count)
    return out, order


def kinematics(case: Case) -> Found:
    """Poses and Jacobians of all bodies."""
    found: Found = {}
    poses = forward_kinematics(case.model, case.q)
    pinocchio.computeJointJacobians(case.twin, case.data, case.qp)
    aligned = pinocchio.ReferenceFrame.LOCAL_WORLD_ALIGNED
    for at, name in enumerate(case.model.bodies):
        joint, place = case.frames[name[2:]]
        pose = case.data.oMi[joint] * place
        found[f"position of {name}"] = difference(poses.position[at], pose.translation)
        found[f"rotation of {name}"] = difference(poses.rotation[at], pose.rotation)
        # Pinocchio returns a vector for a matrix with one row or column.
        J = np.reshape(pinocchio.getJointJacobian(case.twin, case.data, joint, aligned), (6, -1))[:, case.order]
        arm = pose.translation - case.data.oMi[joint].translation
        J = np.concatenate([J[3:], J[:3] + np.cross(J[3:], arm, axis=0)])
        found[f"Jacobian of {name}"] = difference(body_jacobian(case.model, case.q, name), J)
    return found


def dynamics(case: Case) -> Found:
    """Mass matrix, forces and accelerations."""
    model, q, v = case.model, case.q, case.v
    M = pinocchio.crba(case.twin, case.data, case.qp)
    M = (np.triu(M) + np.triu(M, 1).T)[np.ix_(case.order, case.order)]
    tau = pinocchio.rnea(case.twin, case.data, case.qp, case.there(v), case.there(case.a))[case.order]
    a = pinocchio.aba(case.twin, case.data, case.qp, case.there(v), case.there(case.tau))[case.order]
    return {
        "M": difference(mass_matrix(model, q), M),
        "tau": difference(inverse_dynamics(model, q, v, case.a), tau),
        "acceleration": difference(forward_dynamics(model, q, v, case.tau), a),
    }


def energies(case: Case) -> Found:
    """Energies, the centre of mass, and the momentum about it and about another point."""
    model, q, twin, data = case.model, case.q, case.twin, case.data
    without_drives = {"armature": torch.zeros(model.nv, dtype=torch.float64)}
    twin.armature[:] = 0
    kinetic = np.array(pinocchio.computeKineticEnergy(twin, data, case.qp, case.there(case.v)))
    twin.armature[case.order] = model.tree.armature
    potential = np.array(pinocchio.computePotentialEnergy(twin, data, case.qp))
    centre = pinocchio.centerOfMass(twin, data, case.qp).copy()
    pinocchio.computeCentroidalMomentum(twin, data, case.qp, case.there(case.v))
    turning, moving = data.hg.angular.copy(), data.hg.linear.copy()
    point = np.array([1.0, -2.0, 0.5])
    elsewhere = np.concatenate([turning + np.cross(centre - point, moving), moving])
    return {
        "kinetic energy": difference(kinetic_energy(model, q, case.v, without_drives), kinetic),
        "potential energy": difference(potential_energy(model, q), potential),
        "centre of mass": difference(centre_of_mass(model, q), centre),
        "momentum": difference(momentum(model, q, case.v), np.concatenate([turning, moving])),
        "momentum about a point": difference(momentum(model, q, case.v, torch.tensor(point)), elsewhere),
    }


def derivatives_of_forces(case: Case) -> Found:
    """Derivatives with respect to state and acceleration."""
    leaves = {n: t.clone().requires_grad_() for n, t in (("q", case.q), ("v", case.v), ("a", case.a))}
    weights = torch.linspace(-1, 1, case.model.nv + 1, dtype=torch.float64)[1:]
    loss = (inverse_dynamics(case.model, leaves["q"], leaves["v"], leaves["a"]) * weights).sum()
    by_q, by_v, by_a = torch.autograd.grad(loss, list(leaves.values()))
    pinocchio.computeRNEADerivatives(case.twin, case.data, case.qp, case.there(case.v), case.there(case.a))
    w, M = case.there(weights), np.triu(case.data.M) + np.triu(case.data.M, 1).T
    return {
        "q": difference(_tangent_of(case, by_q), (w @ case.data.dtau_dq)[case.order]),
        "v": difference(by_v, (w @ case.data.dtau_dv)[case.order]),
        "a": difference(by_a, (w @ M)[case.order]),
    }


def derivatives_of_accelerations(case: Case) -> Found:
    """Derivatives with respect to state and force, and, by Pinocchio's regressor, mass, centre of mass and inertia."""
    model, tree, order = case.model, case.model.tree, case.order
    q, v, tau = (t.clone().requires_grad_() for t in (case.q, case.v, case.tau))
    params = model.parameters("mass", "com", "inertia", requires_grad=True)
    a = forward_dynamics(model, q, v, tau, params)
    weights = torch.linspace(-1, 1, model.nv + 1, dtype=torch.float64)[1:]
    leaves = {"q": q, "v": v, "tau": tau, **params}
    grads = dict(zip(leaves, torch.autograd.grad((a * weights).sum(), list(leaves.values())), strict=True))
    pinocchio.computeABADerivatives(case.twin, case.data, case.qp, case.there(case.v), case.there(case.tau))
    w = case.there(weights)
    Minv = np.triu(case.data.Minv) + np.triu(case.data.Minv, 1).T
    found = {
        "q": difference(_tangent_of(case, grads["q"]), (w @ case.data.ddq_dq)[order]),
        "v": difference(grads["v"], (w @ case.data.ddq_dv)[order]),
        "tau": difference(grads["tau"], (w @ Minv)[order]),
    }
    Y = pinocchio.computeJointTorqueRegressor(case.twin, case.data, case.qp, case.there(case.v), case.there(a))
    by_joint = -(w @ Minv @ np.reshape(Y, (model.nv, -1))).reshape(-1, 10)
    wanted = {name: np.zeros(getattr(tree, name).shape) for name in params}
    for b, name in enumerate(model.bodies):
        joint, place = case.frames[name[2:]]
        if joint == 0:
            continue
        numbers = by_joint[joint - 1] @ _slopes_of_ten_numbers(tree.mass[b], tree.com[b], tree.inertia[b], place)
        wanted["mass"][b], wanted["com"][b], wanted["inertia"][b] = numbers[0], numbers[1:4], numbers[4:]
    return found | {name: difference(grads[name], numbers) for name, numbers in wanted.items()}


def _tangent_of(case: Case, q_adj: Tensor) -> np.ndarray:
    """Derivatives with respect to tangents from those for coordinates: q (+) v at first order."""
    tree, out = case.model.tree, np.zeros(case.model.nv)
    q, g = case.q.numpy(), q_adj.detach().numpy()
    out[tree.plain_rates[1]] = g[tree.plain_rates[0]]
    for i, turn in tree.quaternions.items():
        at, d = tree.q_start[i], tree.v_start[i]
        w, x, y, z = q[turn : turn + 4]
        half = 0.5 * np.array([[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]])  # of q (0, w)
        out[d : d + 3] = g[turn : turn + 4] @ half
        if tree.types[i].position:
            out[d + 3 : d + 6] = g[at : at + 3] @ rotation_matrix(q[turn : turn + 4].tolist())
    return out


def _slopes_of_ten_numbers(mass: float, com: np.ndarray, inertia: np.ndarray, place: Any) -> np.ndarray:
    """d (dynamic parameters of the joint) / d (mass, com, inertia), by complex-step differentiation."""

    def ten(x: np.ndarray) -> np.ndarray:
        m, c = x[0], place.rotation @ x[1:4] + place.translation
        xx, xy, xz, yy, yz, zz = x[4:]
        I = place.rotation @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ place.rotation.T
        I = I + m * ((c @ c) * np.eye(3) - np.outer(c, c))
        return np.array([m, *(m * c), I[0, 0], I[0, 1], I[1, 1], I[0, 2], I[1, 2], I[2, 2]])

    x = np.array([mass, *com, *inertia], complex)
    return np.stack([ten(x + 1e-30j * e).imag / 1e-30 for e in np.eye(10)], 1)


# -- MuJoCo ----------------------------------------------------------------------------------------------------------


def _mjcf_of(robot: Robot) -> str:
    """The robot as MJCF; joints belong to bodies there, too."""

    def numbers(values: object) -> str:
        return " ".join(f"{x:.17g}" for x in np.ravel(values))  # type: ignore[call-overload]

    def body_text(body: Body) -> str:
        m = body.mass
        assert m is not None
        xx, xy, xz, yy, yz, zz = m.inertia
        text = f'<body name="{body.name}" pos="{numbers(body.pose.position)}" quat="{numbers(body.pose.rotation)}">'
        text += (
            f'<inertial mass="{m.mass:.17g}" pos="{numbers(m.com)}" fullinertia="{numbers([xx, yy, zz, xy, xz, yz])}"/>'
        )
        for joint in body.joints:
            kind = TYPES[joint.kind].mjcf
            if kind == "free":
                text += f'<freejoint name="{joint.name}"/>'
                continue
            axis = "" if kind == "ball" else f' axis="{numbers(joint.axis)}"'
            place = f' pos="{numbers(joint.anchor)}" armature="{joint.armature:.17g}"'
            text += f'<joint name="{joint.name}" type="{kind}"{axis}{place}/>'
        return text + "".join(body_text(b) for b in robot.bodies if b.parent == body.name) + "</body>"

    bodies = "".join(body_text(b) for b in robot.bodies if b.parent is None)
    options = '<compiler balanceinertia="false" boundmass="0" boundinertia="0" inertiagrouprange="0 0"/>'
    return f'<mujoco>{options}<option gravity="0 0 -9.81"/><worldbody>{bodies}</worldbody></mujoco>'


def mujoco_twin(case: Case) -> tuple[Any, Any, np.ndarray]:
    """The robot in MuJoCo, its data at the same coordinates, and the matrix from our velocities to MuJoCo's.

    MuJoCo's free joints have their linear part first, in world axes; ours is in the body's axes.
    """
    spec = mujoco.MjModel.from_xml_string(_mjcf_of(case.robot))
    data = mujoco.MjData(spec)
    tree, q = case.model.tree, case.q.numpy()
    turn = np.zeros((case.model.nv, case.model.nv))
    for i, name in enumerate(tree.joints):
        number = mujoco.mj_name2id(spec, mujoco.mjtObj.mjOBJ_JOINT, name[2:])
        to_q, to_v = spec.jnt_qposadr[number], spec.jnt_dofadr[number]
        at, d, n = tree.q_start[i], tree.v_start[i], tree.dofs[i]
        size = tree.coordinates[i]
        data.qpos[to_q : to_q + size] = q[at : at + size]
        if n < 6:
            turn[to_v : to_v + n, d : d + n] = np.eye(n)
            continue
        R = rotation_matrix(q[at + 3 : at + 7].tolist())
        turn[to_v : to_v + 3, d + 3 : d + 6], turn[to_v + 3 : to_v + 6, d : d + 3] = R, np.eye(3)
    return spec, data, turn


def mujoco_kinematics(case: Case) -> Found:
    """Poses and Jacobians of all bodies."""
    spec, data, turn = mujoco_twin(case)
    mujoco.mj_kinematics(spec, data)
    mujoco.mj_comPos(spec, data)
    poses = forward_kinematics(case.model, case.q)
    found: Found = {}
    for at, name in enumerate(case.model.bodies):
        body = mujoco.mj_name2id(spec, mujoco.mjtObj.mjOBJ_BODY, name[2:])
        moving, turning = np.zeros((3, spec.nv)), np.zeros((3, spec.nv))
        mujoco.mj_jacBody(spec, data, moving, turning, body)
        found[f"position of {name}"] = difference(poses.position[at], data.xpos[body])
        found[f"rotation of {name}"] = difference(poses.rotation[at], data.xmat[body].reshape(3, 3))
        J = np.concatenate([turning, moving]) @ turn
        found[f"Jacobian of {name}"] = difference(body_jacobian(case.model, case.q, name), J)
    return found


def mujoco_dynamics(case: Case) -> Found:
    """Mass matrix, accelerations and bias, in MuJoCo's conventions.

    MuJoCo's velocity of a free body is the velocity of its frame's origin in world axes, and its acceleration is the
    rate of these components; ours is in the body's axes, so that rates differ by w x v.
    """
    spec, data, turn = mujoco_twin(case)
    model, tree, v = case.model, case.model.tree, case.v.numpy()
    drift = np.zeros(model.nv)
    for i in np.flatnonzero(tree.kind == FREE):
        spin, slide = slice(tree.v_start[i], tree.v_start[i] + 3), slice(tree.v_start[i] + 3, tree.v_start[i] + 6)
        drift += turn[:, slide] @ np.cross(v[spin], v[slide])
    data.qvel[:] = turn @ v
    data.qfrc_applied[:] = turn @ case.tau.numpy()  # turn is orthogonal
    mujoco.mj_forward(spec, data)
    M = np.zeros((spec.nv, spec.nv))
    mujoco.mj_fullM(spec, data, M)
    # M (a + drift) + their bias = M a + ours
    bias = turn.T @ (data.qfrc_bias + M @ drift)
    zero = torch.zeros(model.nv, dtype=torch.float64)
    return {
        "M": difference(mass_matrix(model, case.q), turn.T @ M @ turn),
        "bias": difference(inverse_dynamics(model, case.q, case.v, zero), bias),
        "acceleration": difference(forward_dynamics(model, case.q, case.v, case.tau), turn.T @ (data.qacc - drift)),
    }


COMPARISONS: dict[str, tuple[Callable[[Case], Found], float]] = {
    "poses and Jacobians, Pinocchio": (kinematics, VALUES),
    "mass matrix, forces, accelerations, Pinocchio": (dynamics, VALUES),
    "energies and centre of mass, Pinocchio": (energies, VALUES),
    "derivatives of forces, Pinocchio": (derivatives_of_forces, DERIVATIVES),
    "derivatives of accelerations, Pinocchio": (derivatives_of_accelerations, DERIVATIVES),
    "poses and Jacobians, MuJoCo": (mujoco_kinematics, VALUES),
    "mass matrix, bias, accelerations, MuJoCo": (mujoco_dynamics, VALUES),
}
"""What is compared, with which engine, and the largest difference that counts as rounding error."""


def compare(seed: int) -> Found:
    """The largest difference of each comparison, for one tree."""
    case = Case(seed)
    return {name: max(found(case).values()) for name, (found, _) in COMPARISONS.items()}
