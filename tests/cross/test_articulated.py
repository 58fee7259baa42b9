"""Trees of links against Pinocchio and MuJoCo: poses, Jacobians, mass matrix, bias, accelerations, derivatives.

A hundred random trees: floating or hanging, all joint kinds, several joints on a body, bodies fixed to others.
Differences are rounding: relative to the largest number of a vector or matrix, at most 1e-10 (values) and 1e-9
(derivatives).
"""

from __future__ import annotations

import mujoco
import numpy as np
import pinocchio
import pytest
import torch

import kinema as kn
from kinema.model.tree import BALL, FREE, rotation_matrix
from kinema.scene.description import Body, Joint, Robot
from kinema.scene.shapes.random_tree import random_tree

VALUES, DERIVATIVES = 1e-10, 1e-9
TREES = 100


class Case:
    """A random tree in a random state, with its twin in Pinocchio."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(1000 + seed)
        robot = random_tree(seed, int(random.integers(1, 12)), floating=seed % 2 == 0)
        scene = kn.Scene()
        scene.add_robot(robot, "r")
        self.robot, self.model = robot, kn.compile(scene)
        tree = self.model.tree
        q = tree.q.copy()
        for i, kind in enumerate(tree.kind):
            at = tree.q_start[i]
            if kind in (BALL, FREE):
                turn = at + (3 if kind == FREE else 0)
                q[turn : turn + 4] = random.normal(size=4)
                q[turn : turn + 4] /= np.linalg.norm(q[turn : turn + 4])
                q[at:turn] = random.normal(size=turn - at)
            else:
                q[at] = random.normal()
        self.q = torch.tensor(q)
        self.v, self.a, self.tau = (torch.tensor(random.normal(size=tree.nv)) for _ in range(3))
        self.twin, self.frames = pinocchio_twin(robot, self.model)
        self.data = self.twin.createData()
        self.qp, self.order = to_pinocchio(self.twin, self.model, q)
        self.twin.armature[self.order] = tree.armature

    def there(self, numbers: torch.Tensor) -> np.ndarray:
        """Velocities or forces in Pinocchio's order."""
        out = np.zeros(len(self.order))
        out[self.order] = numbers.detach().numpy()
        return out

    def check(self, got: torch.Tensor, wanted: np.ndarray, tolerance: float, what: str) -> None:
        got = got.detach().numpy()
        # Some derivatives are exactly zero; others are of order 1.
        worst = np.abs(got - wanted).max(initial=0) / max(np.abs(wanted).max(initial=0), 1e-3)
        assert worst < tolerance, f"{what}: {worst:.1e}"


def pinocchio_twin(robot: Robot, model: kn.Model) -> tuple[pinocchio.Model, dict[str, tuple[int, pinocchio.SE3]]]:
    """The robot in Pinocchio, and for each body its joint and its place on it; joints go in depth first."""
    twin = pinocchio.Model()
    frames: dict[str, tuple[int, pinocchio.SE3]] = {}
    by_name = {body.name: body for body in robot.bodies}
    for full_name in model.bodies:
        body: Body = by_name[full_name.removeprefix("r/")]
        joint, place = frames[body.parent] if body.parent else (0, pinocchio.SE3.Identity())
        place = place * pinocchio.SE3(rotation_matrix(body.pose.rotation), np.array(body.pose.position))
        for one in body.joints:
            joint, place = add_joint(twin, joint, place, one)
        xx, xy, xz, yy, yz, zz = body.mass.inertia
        inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        twin.appendBodyToJoint(joint, pinocchio.Inertia(body.mass.mass, np.array(body.mass.com), inertia), place)
        frames[body.name] = (joint, place)
    twin.gravity.linear = np.array([0, 0, -9.81])
    return twin, frames


def add_joint(twin: pinocchio.Model, parent: int, place: pinocchio.SE3, joint: Joint) -> tuple[int, pinocchio.SE3]:
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


def to_pinocchio(twin: pinocchio.Model, model: kn.Model, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates in Pinocchio's conventions (x, y, z, w; linear first), and the places of our velocities there."""
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
            out[to_q], order[d] = q[at], to_v
    return out, order


@pytest.fixture(scope="module", params=range(TREES))
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def test_poses_and_jacobians(case: Case) -> None:
    poses = kn.forward_kinematics(case.model, case.q)
    pinocchio.computeJointJacobians(case.twin, case.data, case.qp)
    for at, (name, (joint, place)) in enumerate((n, case.frames[n[2:]]) for n in case.model.bodies):
        pose = case.data.oMi[joint] * place
        case.check(poses.position[at], pose.translation, VALUES, name)
        case.check(poses.rotation[at], pose.rotation, VALUES, name)
    at = len(case.model.bodies) - 1
    name = case.model.bodies[at]
    joint, _ = case.frames[name[2:]]
    aligned = pinocchio.ReferenceFrame.LOCAL_WORLD_ALIGNED
    # Pinocchio gives a vector where a matrix has one row or column.
    J = np.reshape(pinocchio.getJointJacobian(case.twin, case.data, joint, aligned), (6, -1))[:, case.order]
    arm = poses.position[at].numpy() - case.data.oMi[joint].translation
    J = np.concatenate([J[3:], J[:3] + np.cross(J[3:], arm, axis=0)])
    case.check(kn.body_jacobian(case.model, case.q, name), J, VALUES, "Jacobian")


def test_mass_matrix_bias_and_accelerations(case: Case) -> None:
    M = pinocchio.crba(case.twin, case.data, case.qp)
    M = (np.triu(M) + np.triu(M, 1).T)[np.ix_(case.order, case.order)]
    case.check(kn.mass_matrix(case.model, case.q), M, VALUES, "M")
    tau = pinocchio.rnea(case.twin, case.data, case.qp, case.there(case.v), case.there(case.a))[case.order]
    case.check(kn.inverse_dynamics(case.model, case.q, case.v, case.a), tau, VALUES, "tau")
    a = pinocchio.aba(case.twin, case.data, case.qp, case.there(case.v), case.there(case.tau))[case.order]
    case.check(kn.forward_dynamics(case.model, case.q, case.v, case.tau), a, VALUES, "acceleration")


def test_energies_and_centre_of_mass(case: Case) -> None:
    v = case.there(case.v)
    without_drives = {"armature": torch.zeros(case.model.nv, dtype=torch.float64)}
    found = kn.kinetic_energy(case.model, case.q, case.v, without_drives)
    case.twin.armature[:] = 0
    case.check(found, np.array(pinocchio.computeKineticEnergy(case.twin, case.data, case.qp, v)), VALUES, "kinetic")
    case.twin.armature[case.order] = case.model.tree.armature
    wanted = np.array(pinocchio.computePotentialEnergy(case.twin, case.data, case.qp))
    case.check(kn.potential_energy(case.model, case.q), wanted, VALUES, "potential")
    com = pinocchio.centerOfMass(case.twin, case.data, case.qp)
    case.check(kn.centre_of_mass(case.model, case.q), com, VALUES, "centre of mass")


def tangent_of(case: Case, adj_q: torch.Tensor) -> np.ndarray:
    """Derivatives along velocities from those by coordinates: q (+) v at first order."""
    tree, out = case.model.tree, np.zeros(case.model.nv)
    q, g = case.q.numpy(), adj_q.detach().numpy()
    for i, kind in enumerate(tree.kind):
        at, d = tree.q_start[i], tree.v_start[i]
        if kind not in (BALL, FREE):
            out[d] = g[at]
            continue
        turn = at + (3 if kind == FREE else 0)
        w, x, y, z = q[turn : turn + 4]
        half = 0.5 * np.array([[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]])  # of q (0, w)
        out[d : d + 3] = g[turn : turn + 4] @ half
        if kind == FREE:
            out[d + 3 : d + 6] = g[at : at + 3] @ rotation_matrix(q[turn : turn + 4])
    return out


def test_derivatives_of_accelerations(case: Case) -> None:
    """By state and force, and by mass, centre of mass and inertia through Pinocchio's regressor."""
    leaves = {n: t.clone().requires_grad_() for n, t in (("q", case.q), ("v", case.v), ("tau", case.tau))}
    params = case.model.parameters("mass", "com", "inertia", requires_grad=True)
    a = kn.forward_dynamics(case.model, leaves["q"], leaves["v"], leaves["tau"], params)
    weights = torch.linspace(-1, 1, case.model.nv + 1, dtype=torch.float64)[1:]
    (a * weights).sum().backward()
    pinocchio.computeABADerivatives(case.twin, case.data, case.qp, case.there(case.v), case.there(case.tau))
    w = case.there(weights)
    order = case.order
    case.check(torch.tensor(tangent_of(case, leaves["q"].grad)), (w @ case.data.ddq_dq)[order], DERIVATIVES, "q")
    case.check(leaves["v"].grad, (w @ case.data.ddq_dv)[order], DERIVATIVES, "v")
    Minv = np.triu(case.data.Minv) + np.triu(case.data.Minv, 1).T
    case.check(leaves["tau"].grad, (w @ Minv)[order], DERIVATIVES, "tau")
    Y = pinocchio.computeJointTorqueRegressor(case.twin, case.data, case.qp, case.there(case.v), case.there(a))
    by_joint = -(w @ Minv @ np.reshape(Y, (case.model.nv, -1))).reshape(-1, 10)
    tree = case.model.tree
    wanted = {
        "mass": np.zeros(len(tree.mass)),
        "com": np.zeros((len(tree.mass), 3)),
        "inertia": np.zeros((len(tree.mass), 6)),
    }
    for b, name in enumerate(case.model.bodies):
        joint, place = case.frames[name[2:]]
        if joint == 0:
            continue
        slopes = slopes_of_ten_numbers(tree.mass[b], tree.com[b], tree.inertia[b], place)
        numbers = by_joint[joint - 1] @ slopes
        wanted["mass"][b], wanted["com"][b], wanted["inertia"][b] = numbers[0], numbers[1:4], numbers[4:]
    for name, numbers in wanted.items():
        case.check(params[name].grad, numbers, DERIVATIVES, name)


def slopes_of_ten_numbers(mass: float, com: np.ndarray, inertia: np.ndarray, place: pinocchio.SE3) -> np.ndarray:
    """d (dynamic parameters of the joint) / d (mass, com, inertia), by complex steps through their definition."""

    def ten(x: np.ndarray) -> np.ndarray:
        m, c = x[0], place.rotation @ x[1:4] + place.translation
        xx, xy, xz, yy, yz, zz = x[4:]
        I = place.rotation @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ place.rotation.T
        I = I + m * ((c @ c) * np.eye(3) - np.outer(c, c))
        return np.array([m, *(m * c), I[0, 0], I[0, 1], I[1, 1], I[0, 2], I[1, 2], I[2, 2]])

    x = np.array([mass, *com, *inertia], complex)
    return np.stack([ten(x + 1e-30j * e).imag / 1e-30 for e in np.eye(10)], 1)


# -- MuJoCo ----------------------------------------------------------------------------------------------------------


def mjcf_of(robot: Robot) -> str:
    """The robot as MJCF; joints hang on bodies there too."""

    def numbers(values: object) -> str:
        return " ".join(f"{x:.17g}" for x in np.ravel(values))

    def body_text(body: Body) -> str:
        m = body.mass
        xx, xy, xz, yy, yz, zz = m.inertia
        text = f'<body name="{body.name}" pos="{numbers(body.pose.position)}" quat="{numbers(body.pose.rotation)}">'
        text += (
            f'<inertial mass="{m.mass:.17g}" pos="{numbers(m.com)}" fullinertia="{numbers([xx, yy, zz, xy, xz, yz])}"/>'
        )
        for joint in body.joints:
            kind = {"revolute": "hinge", "prismatic": "slide"}.get(joint.kind, joint.kind)
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


def test_mujoco_agrees(case: Case) -> None:
    """The same numbers from an engine with other conventions: free joints have their linear part first, in the world.

    MuJoCo's velocity of a free body is that of its frame's origin in world axes, and its acceleration is the rate of
    these numbers; ours is in the body's axes, so that rates differ by w x v.
    """
    spec = mujoco.MjModel.from_xml_string(mjcf_of(case.robot))
    data = mujoco.MjData(spec)
    tree, q, v = case.model.tree, case.q.numpy(), case.v.numpy()
    turn = np.zeros((case.model.nv, case.model.nv))  # our velocities -> MuJoCo's
    drift = np.zeros(case.model.nv)
    for i, name in enumerate(tree.joints):
        number = mujoco.mj_name2id(spec, mujoco.mjtObj.mjOBJ_JOINT, name[2:])
        to_q, to_v = spec.jnt_qposadr[number], spec.jnt_dofadr[number]
        at, d, n = tree.q_start[i], tree.v_start[i], tree.dofs[i]
        size = {1: 1, 3: 4, 6: 7}[int(n)]
        data.qpos[to_q : to_q + size] = q[at : at + size]
        if n < 6:
            turn[to_v : to_v + n, d : d + n] = np.eye(n)
            continue
        R = rotation_matrix(q[at + 3 : at + 7])
        turn[to_v : to_v + 3, d + 3 : d + 6], turn[to_v + 3 : to_v + 6, d : d + 3] = R, np.eye(3)
        drift[to_v : to_v + 3] = R @ np.cross(v[d : d + 3], v[d + 3 : d + 6])
    data.qvel[:] = turn @ v
    data.qfrc_applied[:] = turn @ case.tau.numpy()  # turn is orthogonal
    mujoco.mj_forward(spec, data)
    M = np.zeros((spec.nv, spec.nv))
    mujoco.mj_fullM(spec, data, M)
    case.check(kn.mass_matrix(case.model, case.q), turn.T @ M @ turn, VALUES, "M")
    wanted = turn.T @ (data.qacc - drift)
    case.check(kn.forward_dynamics(case.model, case.q, case.v, case.tau), wanted, VALUES, "acceleration")
