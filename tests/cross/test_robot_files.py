"""Robots from files and from `kinema.scene.shapes`: mass matrices of MuJoCo and Pinocchio, two seconds of motion."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pinocchio
import pytest
import torch

import kinema as kn
from kinema.kinematics.joint_types import FREE
from kinema.scene.description import Pose, Robot, Shape, rotation_matrix
from kinema.scene.io.mjcf import IGNORABLE
from kinema.scene.mass_properties import mass_properties, quaternion
from kinema.scene.shapes.ant import ant
from kinema.scene.shapes.arm import arm
from kinema.scene.shapes.golf import golf_ball, golfer
from kinema.scene.shapes.humanoid import humanoid
from kinema.scene.shapes.pendulum import pendulum
from kinema.scene.shapes.quadruped import quadruped
from kinema.scene.shapes.racecar import racecar
from kinema.verification.twins import pinocchio_twin, to_pinocchio

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
FILES = sorted(ASSETS.glob("*.xml"))
assert len(FILES) >= 14, "gymnasium has its robots elsewhere"
pytestmark = pytest.mark.filterwarnings("ignore::kinema.LeftOutWarning")  # cameras, lights, margins


def read(file: Path) -> Robot:
    """A file as it is, or without what it is refused for: the fluid of swimmer.xml."""
    try:
        return kn.read_mjcf(file)
    except kn.ModelError as error:
        assert error.where and error.where.startswith(str(file)) and error.fix and "ignore=[" in error.fix
        return kn.read_mjcf(file, ignore=IGNORABLE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_mass_matrix_and_fall(path: Path) -> None:
    file = str(path)
    scene = kn.Scene()
    scene.add_robot(read(path), "r")
    model = kn.compile(scene)
    tree, random = model.tree, np.random.default_rng(0)
    spec = mujoco.MjModel.from_xml_path(file)
    data = mujoco.MjData(spec)
    q, turn = tree.q.copy(), np.zeros((model.nv, model.nv))  # our velocities -> MuJoCo's
    for i in range(len(tree.parent)):
        at, d, n = int(tree.q_start[i]), int(tree.v_start[i]), int(tree.dofs[i])
        to_q, to_v = spec.jnt_qposadr[i], spec.jnt_dofadr[i]
        if tree.kind[i] == FREE:
            q[at + 3 : at + 7] = random.normal(size=4)
            q[at + 3 : at + 7] /= np.linalg.norm(q[at + 3 : at + 7])
            data.qpos[to_q : to_q + 7] = q[at : at + 7]
            turn[to_v : to_v + 3, d + 3 : d + 6] = rotation_matrix(q[at + 3 : at + 7])
            turn[to_v + 3 : to_v + 6, d : d + 3] = np.eye(3)
        else:
            assert n == 1
            q[at] = 0.5 * random.normal()
            data.qpos[to_q], turn[to_v, d] = q[at] + spec.qpos0[to_q], 1
    mujoco.mj_forward(spec, data)
    M = np.zeros((spec.nv, spec.nv))
    mujoco.mj_fullM(spec, data, M)
    found = kn.mass_matrix(model, torch.tensor(q)).numpy()
    assert np.abs(found - turn.T @ M @ turn).max() < 1e-10 * np.abs(M).max()
    moved = kn.simulate(model, kn.State(torch.tensor(q)), steps=1000, dt=2e-3)
    # Links of one robot do not collide unless it is asked for, its floor among them: the fastest fall at g for two
    # seconds, with some swing of limbs.
    assert moved.end.v.abs().max() < 30


WALKERS = ["ant", "half_cheetah", "hopper", "humanoid", "humanoidstandup", "walker2d", "walker2d_v5"]


@pytest.mark.parametrize("self_collision", [False, True], ids=["floor", "floor and limbs"])
@pytest.mark.parametrize("name", WALKERS)
def test_they_come_down_on_their_floors(name: str, self_collision: bool) -> None:
    """Two seconds of limp limbs on the shapes of the file: what its floor gives is their weight over time and the
    momentum they have left, whatever limits, springs and limbs that hit each other do.

    To 0.5 %, as steps in joint coordinates keep momentum to O(dt).
    """
    steps, dt = 1000, 2e-3
    scene = kn.Scene()
    scene.add_robot(kn.read_mjcf(ASSETS / f"{name}.xml"), "r", self_collision=self_collision)
    model = kn.compile(scene)
    on_floor = torch.tensor([pair.endswith(" on r/world/floor") for pair in model.candidates.names])
    there = mujoco.MjModel.from_xml_path(str(ASSETS / f"{name}.xml"))
    solid = {
        n for n in range(there.ngeom) if there.geom_bodyid[n] and (there.geom_contype[n] or there.geom_conaffinity[n])
    }
    assert len({n for n, on in zip(model.candidates.names, on_floor, strict=True) if on}) == len(solid)
    assert self_collision or bool(on_floor.all())
    path = kn.simulate(model, steps=steps, dt=dt, record=["impulse"])
    height = kn.centre_of_mass(model, path.q)[:, 2]
    mass, speed = float(model.tree.mass.sum()), float(height[-1] - height[-2]) / dt
    given = float(path.recorded["impulse"][:, on_floor, 0].sum())
    assert given == pytest.approx(mass * (9.81 * steps * dt + speed), rel=5e-3)
    # The arms of humanoidstandup begin 35 mm inside the floor, which pushes them out, and friction holds their hands:
    # the trunk rises with them, by less than they do.
    risen = 0.035 if name == "humanoidstandup" else 0.0
    assert float(height.min()) > 0.04 and float(height.max()) <= float(height[0]) + risen
    assert float(path.v.abs().max()) < 30


OURS = [ant(), arm(), golf_ball(), golfer(), humanoid(), pendulum(4), pendulum(3, 0.4, 2.0, point=True)]
OURS += [quadruped(), racecar()]


@pytest.mark.parametrize("robot", OURS, ids=lambda robot: f"{robot.name}{len(robot.bodies)}")
def test_our_own_robots_have_pinocchios_mass_matrix(robot: Robot) -> None:
    scene = kn.Scene()
    scene.add_robot(robot, "r")
    model = kn.compile(scene)
    twin, _ = pinocchio_twin(robot, model)
    for seed in range(3):
        random, q = np.random.default_rng(seed), model.tree.q.copy()
        for i, kind in enumerate(model.tree.kind):
            at = int(model.tree.q_start[i])
            if kind == FREE:
                q[at : at + 7] = random.normal(size=7)
                q[at + 3 : at + 7] /= np.linalg.norm(q[at + 3 : at + 7])
            else:
                q[at] = random.normal()
        there, order = to_pinocchio(twin, model, q)
        twin.armature[order] = model.tree.armature
        M = pinocchio.crba(twin, twin.createData(), there)
        M = (np.triu(M) + np.triu(M, 1).T)[np.ix_(order, order)]
        assert np.abs(kn.mass_matrix(model, torch.tensor(q)).numpy() - M).max() < 1e-10 * np.abs(M).max()


def test_solids_weigh_what_mujoco_says() -> None:
    """A body of four shapes, turned and apart: mass, centre of mass and inertia that MuJoCo takes from geometry."""
    shapes = (
        Shape("sphere", (0.1,), Pose((0.3, 0.0, 0.0))),
        Shape("capsule", (0.05, 0.2), Pose((0.0, -0.4, 0.1), quaternion(0.4, "x"))),
        Shape("cylinder", (0.07, 0.15), Pose((0.0, 0.3, -0.2), quaternion(1.1, "y"))),
        Shape("box", (0.1, 0.2, 0.05), Pose((-0.2, 0.1, 0.5), quaternion(-0.7, "z"))),
    )

    def numbers(values: object) -> str:
        return " ".join(f"{x:.17g}" for x in np.ravel(values))

    geoms = "".join(
        f'<geom type="{s.kind}" size="{numbers(s.size)}" pos="{numbers(s.pose.position)}"'
        f' quat="{numbers(s.pose.rotation)}" density="700"/>'
        for s in shapes
    )
    text = f"<mujoco><worldbody><body><freejoint/>{geoms}</body></worldbody></mujoco>"
    spec = mujoco.MjModel.from_xml_string(text)
    made = mass_properties(*shapes, density=700.0)
    xx, xy, xz, yy, yz, zz = made.inertia
    R = rotation_matrix(spec.body_iquat[1])
    assert made.mass == pytest.approx(spec.body_mass[1], rel=1e-12)
    assert np.allclose(made.com, spec.body_ipos[1], atol=1e-12)
    wanted = R @ np.diag(spec.body_inertia[1]) @ R.T
    assert np.allclose([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], wanted, atol=1e-10)
