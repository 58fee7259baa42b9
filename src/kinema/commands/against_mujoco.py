"""`kinema check FILE --against mujoco`: masses, poses, mass matrix, bias forces and motion beside MuJoCo's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kinema.errors import KinemaError, ModelError
from kinema.model.model import Model, compile
from kinema.scene.contact import CONVEX, Contact
from kinema.scene.description import Robot
from kinema.scene.io.poses import matrix
from kinema.scene.scene import Scene
from kinema.simulation.robot_dynamics import forward_kinematics, inverse_dynamics, mass_matrix
from kinema.simulation.simulate import simulate

STATES = 5
TOLERANCE = 1e-9  # relative, of everything except motion
SECONDS = 1.0


def compare(file: Path, robot: Robot) -> tuple[list[list[str]], bool]:
    """Rows of a table, and whether all but the motion agree to rounding.

    Args:
        file: The file, which MuJoCo reads, too.
        robot: What the reader made of it.

    Raises:
        ModelError: MuJoCo is not installed, cannot read the file, or has other joints.
    """
    twin = _Twin(file, robot)
    worst = dict.fromkeys(("masses", "positions [m]", "rotations", "mass matrix", "bias forces"), 0.0)
    random = np.random.default_rng(0)
    for _ in range(STATES):
        for name, difference in twin.differences(random).items():
            worst[name] = max(worst[name], difference)
    rows = [[name, f"{value:.1e}", "" if value <= TOLERANCE else "differs"] for name, value in worst.items()]
    return [*rows, twin.motion()], max(worst.values()) <= TOLERANCE


class _Twin:
    """MuJoCo's model of a file beside ours."""

    def __init__(self, file: Path, robot: Robot) -> None:
        try:
            import mujoco
        except ImportError as error:
            raise ModelError("MuJoCo is not installed", fix="pip install 'kinema[mjcf]'") from error
        self.mj, self.robot = mujoco, robot
        try:
            self.m = mujoco.MjModel.from_xml_path(os.path.abspath(file))
        except ValueError as error:
            raise ModelError("MuJoCo cannot compile the file", where=str(file), got=str(error)) from None
        self.d = mujoco.MjData(self.m)
        self.model = self._compiled(Contact())
        self.names = [joint.partition("/")[2] for joint in self.model.joints]
        self.at = [mujoco.mj_name2id(self.m, mujoco.mjtObj.mjOBJ_JOINT, name) for name in self.names]
        if -1 in self.at:  # joints without a name are in the same order
            self.at = [*range(self.m.njnt)]
        if len(self.names) != self.m.njnt or self.m.nv != self.model.nv:
            got = f"{self.m.njnt} joints in MuJoCo, {len(self.names)} here"
            raise ModelError("MuJoCo's model of the file has other joints", where=str(file), got=got)

    def _compiled(self, contact: Contact) -> Model:
        x, y, z = (float(g) for g in self.m.opt.gravity)
        scene = Scene(gravity=(x, y, z), contact=contact)
        scene.add_robot(self.robot, "robot", self_collision=True)
        return compile(scene, torch.float64)

    def coordinates(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Our q and v of MuJoCo's state, and the matrix T with v = T qvel."""
        m, d, tree = self.m, self.d, self.model.tree
        q, T = np.zeros(self.model.nq), np.zeros((m.nv, m.nv))
        for i, j in enumerate(self.at):
            kind, first, dof = tree.types[i], int(m.jnt_qposadr[j]), int(m.jnt_dofadr[j])
            place = d.qpos[first : first + kind.coordinates]
            place = place - m.qpos0[first] if kind.is_single else place
            q[tree.q_start[i] : tree.q_start[i] + len(place)] = place
            to = slice(int(tree.v_start[i]), int(tree.v_start[i]) + kind.velocities)
            block = np.eye(kind.velocities)
            if kind.position:  # MuJoCo: linear in the axes of the world, then angular in those of the body
                w, x, y, z = (float(c) for c in place[3:])
                block = np.zeros((6, 6))
                block[:3, 3:], block[3:, :3] = np.eye(3), matrix((w, x, y, z)).T
            T[to, dof : dof + kind.velocities] = block
        return q, T @ d.qvel, T

    def differences(self, random: np.random.Generator) -> dict[str, float]:
        """At a random state."""
        m, d, mujoco = self.m, self.d, self.mj
        d.qpos[:] = m.qpos0
        mujoco.mj_integratePos(m, d.qpos, random.normal(size=m.nv), 1.0)
        d.qvel[:] = random.normal(size=m.nv)
        mujoco.mj_forward(m, d)
        q, v, T = self.coordinates()
        tree, tensors = self.model.tree, (torch.tensor(q), torch.tensor(v))
        poses, M = forward_kinematics(self.model, tensors[0]), mass_matrix(self.model, tensors[0]).numpy()
        a = np.zeros(len(v))  # ours where MuJoCo's is zero: the axes of a free joint turn
        for i, kind in enumerate(tree.types):
            if kind.position:
                s = int(tree.v_start[i])
                a[s + 3 : s + 6] = -np.cross(v[s : s + 3], v[s + 3 : s + 6])
        bias = inverse_dynamics(self.model, *tensors, torch.tensor(a)).numpy()
        theirs = np.zeros((m.nv, m.nv))
        mujoco.mj_fullM(m, d, theirs)
        found = {"masses": 0.0, "positions [m]": 0.0, "rotations": 0.0}
        for b, name in enumerate(self.model.bodies):
            k = mujoco.mj_name2id(m, mujoco.mjtObj.mjOBJ_BODY, name.partition("/")[2])
            if k > 0:  # MuJoCo merges bodies of a URDF file that do not move
                where, turn = poses.position[b].numpy() - d.xpos[k], poses.rotation[b].numpy() - d.xmat[k].reshape(3, 3)
                found["positions [m]"] = max(found["positions [m]"], float(np.abs(where).max()))
                found["rotations"] = max(found["rotations"], float(np.abs(turn).max()))
        total = float(m.body_mass.sum())
        moving = float(tree.mass.sum())
        found["masses"] = abs(total - moving) / max(total, 1e-300)
        found["mass matrix"] = _relative(T.T @ M @ T, theirs)
        found["bias forces"] = _relative(T.T @ bias, np.asarray(d.qfrc_bias))
        return found

    def motion(self) -> list[str]:
        """One second from the initial state without controls, with the law "convex" and the file's time step."""
        m, d = self.m, self.d
        dt = float(m.opt.timestep)
        steps, title = max(1, round(SECONDS / dt)), f"motion over {SECONDS:g} s [m, rad]"
        cone = int(m.opt.cone) == int(self.mj.mjtCone.mjCONE_ELLIPTIC)
        try:
            model = self._compiled(Contact(law=CONVEX, cone=cone, impratio=float(m.opt.impratio)))
            self.mj.mj_resetData(m, d)
            ours = simulate(model, steps=steps, dt=dt).end.q.numpy()
        except KinemaError as error:
            return [title, "-", f"not compared: {error.what}"]
        for _ in range(steps):
            self.mj.mj_step(m, d)
        return [title, f"{float(np.abs(ours - self.coordinates()[0]).max()):.1e}", "law 'convex', without controls"]


def _relative(ours: Any, theirs: np.ndarray) -> float:
    return float(np.abs(ours - theirs).max(initial=0.0) / max(np.abs(theirs).max(initial=0.0), 1e-300))
