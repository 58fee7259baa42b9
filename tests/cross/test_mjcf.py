"""The MJCF reader against MuJoCo: what it says of a robot gives MuJoCo's poses, masses, forces and contacts.

Tolerances: a pose is a chain of at most 20 products of numbers of order 1 to 10, each rounded at 1e-16.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest

import kinema as kn
from kinema.commands import check
from kinema.errors import InputError, LeftOutWarning, ModelError
from kinema.scene import description
from kinema.scene.description import Body, Joint, Mimic, Pose, Robot, Shape
from kinema.scene.io.mjcf import read_mjcf

pytestmark = pytest.mark.filterwarnings("ignore::kinema.LeftOutWarning")  # most files here have something to note

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
ROBOTS = ["ant", "humanoid", "hopper", "walker2d", "half_cheetah", "swimmer", "reacher", "inverted_pendulum", "pusher"]
SCALAR = (description.REVOLUTE, description.PRISMATIC)


@pytest.fixture(scope="module", autouse=True)
def no_log():
    """MuJoCo would write its warnings to a file in the working directory."""
    mujoco.set_mju_user_warning(silent)
    yield
    mujoco.set_mju_user_warning(None)


def silent(message: str) -> None:
    pass


# -- the description, computed -------------------------------------------------------------------------------------


def matrix(quaternion) -> np.ndarray:
    out = np.zeros(9)
    mujoco.mju_quat2Mat(out, np.asarray(quaternion, dtype=float))
    return out.reshape(3, 3)


def turn(axis, angle: float) -> np.ndarray:
    """Rodrigues' formula."""
    x, y, z = axis
    K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + math.sin(angle) * K + (1 - math.cos(angle)) * K @ K


class Forward:
    """Forward kinematics of a description for coordinates by joint name: poses, and anchors and axes of joints."""

    def __init__(self, robot: Robot, q: Mapping[str, np.ndarray]) -> None:
        self.R: dict[str | None, np.ndarray] = {None: np.eye(3)}
        self.p: dict[str | None, np.ndarray] = {None: np.zeros(3)}
        self.anchor: dict[str, np.ndarray] = {}
        self.axis: dict[str, np.ndarray] = {}
        for body in robot.bodies:
            R = self.R[body.parent] @ matrix(body.pose.rotation)
            p = self.p[body.parent] + self.R[body.parent] @ np.array(body.pose.position)
            for joint in body.joints:
                R, p = self._move(joint, q[joint.name], R, p)
            self.R[body.name], self.p[body.name] = R, p

    def _move(self, joint: Joint, q, R, p):
        self.anchor[joint.name] = p + R @ np.array(joint.anchor)
        self.axis[joint.name] = R @ np.array(joint.axis)
        if joint.kind == description.PRISMATIC:
            return R, p + self.axis[joint.name] * q[0]
        if joint.kind == description.FREE:
            return matrix(q[3:]), q[:3]
        R = R @ (turn(joint.axis, q[0]) if joint.kind == description.REVOLUTE else matrix(q))
        return R, self.anchor[joint.name] - R @ np.array(joint.anchor)

    def frame(self, body: str | None, pose: Pose) -> tuple[np.ndarray, np.ndarray]:
        """Position and rotation in the world of a frame on a body."""
        return self.p[body] + self.R[body] @ np.array(pose.position), self.R[body] @ matrix(pose.rotation)


def joints(robot: Robot) -> dict[str, Joint]:
    return {joint.name: joint for body in robot.bodies for joint in body.joints}


def coordinates(model, robot: Robot, qpos) -> dict[str, np.ndarray]:
    """Coordinates of the description for MuJoCo's; its joints are in the same order."""
    q = {}
    for j, joint in enumerate(joints(robot).values()):
        size = {description.BALL: 4, description.FREE: 7}.get(joint.kind, 1)
        part = slice(model.jnt_qposadr[j], model.jnt_qposadr[j] + size)
        q[joint.name] = qpos[part] - model.qpos0[part] if joint.kind in SCALAR else np.array(qpos[part])
    return q


def random_qpos(model, seed: int) -> np.ndarray:
    qpos = np.array(model.qpos0)
    mujoco.mj_integratePos(model, qpos, np.random.default_rng(seed).normal(size=model.nv), 1.0)
    return qpos


def moving(robot: Robot) -> list[Body]:
    """All bodies but the one with the world's shapes."""
    return [body for body in robot.bodies if body.name != "world"]


def check_kinematics(model, robot: Robot, qpos, tolerance: float) -> None:
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    found = Forward(robot, coordinates(model, robot, qpos))
    for b, body in enumerate(moving(robot), 1):
        np.testing.assert_allclose(found.p[body.name], data.xpos[b], atol=tolerance, rtol=0)
        np.testing.assert_allclose(found.R[body.name], matrix(data.xquat[b]), atol=tolerance, rtol=0)
        mass = body.mass or description.MassProperties(0.0)
        R, com = found.R[body.name], np.array(mass.com)
        np.testing.assert_allclose(found.p[body.name] + R @ com, data.xipos[b], atol=tolerance, rtol=0)
        xx, xy, xz, yy, yz, zz = mass.inertia
        inertia = R @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ R.T
        ximat = data.ximat[b].reshape(3, 3)
        expected = ximat @ np.diag(model.body_inertia[b]) @ ximat.T
        np.testing.assert_allclose(inertia, expected, atol=tolerance * (1 + expected.max()), rtol=0)
    for j, joint in enumerate(joints(robot).values()):
        if joint.kind != description.FREE:
            np.testing.assert_allclose(found.anchor[joint.name], data.xanchor[j], atol=tolerance, rtol=0)
        if joint.kind in SCALAR:
            np.testing.assert_allclose(found.axis[joint.name], data.xaxis[j], atol=tolerance, rtol=0)


def both(text: str, **options) -> tuple[mujoco.MjModel, Robot]:
    return mujoco.MjModel.from_xml_string(text), read_mjcf(text, **options)


# -- robots of gymnasium -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=ROBOTS)
def pair(request) -> tuple[mujoco.MjModel, Robot]:
    path = ASSETS / f"{request.param}.xml"
    ignore = ["fluid"] if request.param == "swimmer" else []
    return mujoco.MjModel.from_xml_path(str(path)), read_mjcf(path, ignore=ignore)


def test_counts_and_masses(pair):
    model, robot = pair
    assert len(moving(robot)) == model.nbody - 1
    assert len(joints(robot)) == model.njnt
    assert len(robot.actuators) == model.nu
    assert sum(len(body.shapes) for body in robot.bodies) == model.ngeom
    total = sum(body.mass.mass for body in robot.bodies if body.mass)
    assert math.isclose(total, model.body_mass.sum(), rel_tol=1e-12)
    assert len({body.name for body in robot.bodies}) == len(robot.bodies)


def test_kinematics_in_the_pose_of_the_file(pair):
    model, robot = pair
    check_kinematics(model, robot, model.qpos0, 1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_kinematics_in_random_poses(pair, seed):
    model, robot = pair
    check_kinematics(model, robot, random_qpos(model, seed), 1e-10)


def test_limits_are_where_mujoco_has_them(pair):
    model, robot = pair
    for j, joint in enumerate(joints(robot).values()):
        zero = model.qpos0[model.jnt_qposadr[j]]
        limits = model.jnt_range[j] - zero if model.jnt_limited[j] else (-math.inf, math.inf)
        np.testing.assert_allclose((joint.lower, joint.upper), limits, atol=1e-15)
        assert joint.armature == model.dof_armature[model.jnt_dofadr[j]]
        assert joint.damping == model.dof_damping[model.jnt_dofadr[j]]


def test_the_same_shapes_meet_as_in_mujoco(pair):
    model, robot = pair
    shapes = [(body, shape) for body in robot.bodies for shape in body.shapes]
    order = sorted(range(model.ngeom), key=lambda g: (model.geom_bodyid[g], g))
    for (a, first), (b, second) in itertools.combinations(zip(order, shapes, strict=True), 2):
        expected = model.geom_contype[a] & model.geom_conaffinity[b] | model.geom_contype[b] & model.geom_conaffinity[a]
        assert meet(first[1], second[1]) == bool(expected), (first[1].name, second[1].name)


@pytest.mark.parametrize(
    ("contype", "conaffinity", "meets"), [(1, 0, True), (0, 1, True), (2, 2, False), (0, 0, False)]
)
def test_a_floor_from_elsewhere_is_met_like_one_of_the_file(contype, conaffinity, meets):
    geom = f'<geom name="g" size="1" contype="{contype}" conaffinity="{conaffinity}"/>'
    text = f'<mujoco><worldbody>{{}}<body pos="0 0 .5"><freejoint/>{geom}</body></worldbody></mujoco>'
    model = mujoco.MjModel.from_xml_string(text.format('<geom name="floor" type="plane" size="1 1 1"/>'))
    assert bool(touching(model)) == meets
    (shape,) = read_mjcf(text.format("")).bodies[0].shapes
    assert meet(shape, Shape(description.PLANE)) == meets


def test_the_notes_say_what_was_left_out():
    with pytest.warns(LeftOutWarning) as told:
        notes = "\n".join(read_mjcf(ASSETS / "humanoid.xml").notes)
    assert len(told) == 1 and all(note in str(told[0].message) for note in notes.split("\n"))
    for part in ("tendon 'left_hipknee'", "2 cameras", "margins"):
        assert part in notes
    assert "gravity (0.0, 0.0, 0.0)" in "\n".join(read_mjcf(ASSETS / "pusher.xml").notes)
    swimmer = read_mjcf(ASSETS / "swimmer.xml", ignore=["fluid"])
    assert "viscosity 0.1" in "\n".join(swimmer.notes)


def test_warnings_of_mujoco_become_notes_and_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    robot = read_mjcf(ASSETS / "half_cheetah.xml")
    assert any("settotalmass" in note for note in robot.notes)
    assert not list(tmp_path.iterdir())
    assert mujoco.get_mju_user_warning() is silent  # as before


# -- joints --------------------------------------------------------------------------------------------------------

SEVERAL = """
<mujoco model="several"><compiler angle="radian"/>
  <worldbody>
    <body name="base" pos="1 2 3" quat="1 2 3 4"><freejoint name="root"/>
      <geom type="box" size=".1 .2 .3" pos=".1 0 .2" euler=".1 .2 .3"/>
      <body name="arm" pos=".1 .2 .3" euler=".4 .5 .6">
        <joint name="a" type="hinge" axis="1 2 3" pos=".3 .1 -.2" ref=".7" range="-1 2"/>
        <joint name="b" type="slide" axis="0 1 1" pos=".1 0 0" ref="-.4" springref=".3" stiffness="5" range="-1 1"/>
        <joint name="c" type="hinge" axis="-1 0 1" pos="0 .2 .1"/>
        <geom type="capsule" size=".1" fromto="0 0 0 .3 .4 .5"/>
        <body pos="0 .5 0" quat="0 1 1 0">
          <joint name="ball" type="ball" pos=".05 .1 .15" damping=".2" range="0 1.5"/>
          <joint name="d" type="slide" axis="1 1 1"/>
          <geom type="cylinder" size=".1 .2" pos=".3 0 .1"/>
          <body name="fixed" pos=".1 .1 .1" euler="1 0 0"><geom size=".1"/></body>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>"""


@pytest.mark.parametrize("seed", range(5))
def test_several_joints_on_a_body(seed):
    model, robot = both(SEVERAL)
    assert [len(body.joints) for body in robot.bodies] == [1, 3, 2, 0]
    check_kinematics(model, robot, model.qpos0, 1e-12)
    check_kinematics(model, robot, random_qpos(model, seed), 1e-10)


def test_reference_offsets_shift_limits_and_rests():
    joint = joints(read_mjcf(SEVERAL))
    assert (joint["a"].lower, joint["a"].upper) == pytest.approx((-1.7, 1.3), abs=1e-15)
    assert (joint["b"].lower, joint["b"].upper, joint["b"].rest) == pytest.approx((-0.6, 1.4, 0.7), abs=1e-15)
    assert (joint["c"].lower, joint["c"].upper) == (-math.inf, math.inf)
    assert (joint["ball"].lower, joint["ball"].upper, joint["ball"].damping) == (0.0, 1.5, 0.2)


DRIVEN = """
<mujoco><compiler angle="radian"/>
  <worldbody><body>
    <joint name="j" type="{kind}" ref=".3" springref=".8" stiffness="7" damping=".6" armature=".2" frictionloss=".1"
      actuatorfrcrange="-9 9"/>
    <geom type="box" size=".1 .2 .3" mass="2"/>
  </body></worldbody>
  <actuator>{actuator}</actuator>
</mujoco>"""


@pytest.mark.parametrize("kind", ["hinge", "slide"])
@pytest.mark.parametrize(
    "actuator",
    [
        '<motor joint="j" gear="-3" ctrlrange="-1 2" forcerange="-.5 .5"/>',
        '<position joint="j" kp="4" kv=".5"/>',
        '<position joint="j" kp="4" kv=".5" gear="-2" ctrlrange="-.5 .25" forcerange="-1 1"/>',
        '<position jointinparent="j" kp="4" dampratio="1" gear="2"/>',
        '<velocity joint="j" kv="3" gear="-.5" ctrlrange="-1 3" armature=".3" damping=".4"/>',
        '<general joint="j" gainprm="5" gear="2"/>',
        '<general joint="j" biastype="affine" gainprm="5" biasprm="0 -5 -1" gear="2"/>',
    ],
)
def test_forces_of_actuators_springs_and_dampers(kind, actuator):
    model, robot = both(DRIVEN.format(kind=kind, actuator=actuator))
    (joint,), (drive,) = robot.bodies[0].joints, robot.actuators
    data = mujoco.MjData(model)
    gear = model.actuator_gear[0, 0]
    for seed in range(20):
        data.qpos[:], data.qvel[:], data.ctrl[:] = np.random.default_rng(seed).normal(size=3)
        mujoco.mj_forward(model, data)
        q, v, u = data.qpos[0] - 0.3, data.qvel[0], data.ctrl[0]
        # the control here, as the reader's docstring says
        u = {"torque": u, "position": u / gear - 0.3, "velocity": u / gear}[drive.kind]
        u = min(max(u, drive.lower), drive.upper)
        torque = {
            "torque": drive.gear * u,
            "position": drive.kp * (u - q) - drive.kd * v,
            "velocity": drive.kd * (u - v),
        }[drive.kind]
        limit = min(drive.force, joint.effort)
        assert min(max(torque, -limit), limit) == pytest.approx(data.qfrc_actuator[0], abs=1e-12)
        passive = -joint.stiffness * (q - joint.rest) - joint.damping * v
        assert passive == pytest.approx(data.qfrc_passive[0], abs=1e-12)
        inertia = np.zeros(1)
        mujoco.mj_mulM(model, data, inertia, np.ones(1))
        mass = robot.bodies[0].mass
        assert mass is not None
        assert joint.armature + (mass.mass if kind == "slide" else mass.inertia[5]) == pytest.approx(inertia[0])
    assert joint.friction == 0.1


def test_what_the_file_disables_is_left_out():
    flags = '<option><flag spring="disable" damper="disable" limit="disable" contact="disable"/></option>'
    text = SEVERAL.replace("<worldbody>", flags + "<worldbody>")
    robot = read_mjcf(text)
    assert all(math.isinf(j.lower) and j.stiffness == j.damping == 0 for j in joints(robot).values())
    assert not any(shape.collides for body in robot.bodies for shape in body.shapes)


def test_elements_without_a_name_get_one_of_their_own():
    bodies = "".join(f"<body{name}><joint/><geom size='1'/></body>" for name in ("", " name='body1'", ""))
    robot = read_mjcf(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    assert len({b.name for b in robot.bodies}) == 3 and robot.bodies[1].name == "body1"
    assert len(joints(robot)) == 3


# -- contact -------------------------------------------------------------------------------------------------------


def meet(first: Shape, second: Shape) -> bool:
    both_ways = first.mask & second.group and second.mask & first.group
    return bool(first.collides and second.collides and both_ways)


def colliding(robot: Robot) -> set[frozenset[str]]:
    """Names of shapes that may touch, by the rules of the description; of two that stand still, none does."""
    found = set()
    still: set[str | None] = {None}
    still.update(body.name for body in robot.bodies if not body.joints and body.parent in still)
    for first, second in itertools.combinations(robot.bodies, 2):
        if first.name in still and second.name in still:
            continue
        neighbours = first.parent == second.name or second.parent == first.name
        if not neighbours and frozenset((first.name, second.name)) not in robot.excluded:
            for a, b in itertools.product(first.shapes, second.shapes):
                if meet(a, b):
                    found.add(frozenset((a.name, b.name)))
    return found


def touching(model) -> set[frozenset[str]]:
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return {frozenset(model.geom(g).name for g in pair) for pair in data.contact.geom}


@pytest.mark.parametrize("seed", range(10))
def test_collision_groups(seed):
    """Spheres at one place: those that touch in MuJoCo are those that may touch here."""
    random = np.random.default_rng(seed)
    kinds = random.integers(0, 8, size=(4, 2))
    bodies = "".join(
        f'<body><freejoint/><geom name="g{i}" size=".1" contype="{kind[0]}" conaffinity="{kind[1]}"/></body>'
        for i, kind in enumerate(kinds[random.integers(0, 4, size=8)])
    )
    contact = '<contact><pair geom1="g0" geom2="g1"/></contact>' if seed % 2 else ""
    model, robot = both(f"<mujoco><worldbody>{bodies}</worldbody>{contact}</mujoco>")
    assert colliding(robot) == touching(model)


def test_any_number_of_collision_groups():
    """Seventy kinds of shapes: the first with a bit of their own, the others in pairs of their own."""
    balls = "".join(
        f'<body><freejoint/><geom name="{i}" size="1" contype="{1 << i}" conaffinity="{1 << i}"/>'
        f'<geom name="{i}b" size="1" contype="{1 << i}" conaffinity="{1 << i}"/></body>'
        for i in range(30)
    )
    balls += "".join(
        f'<body><freejoint/><geom name="p{i}" size="1" contype="0" conaffinity="0"/></body>' for i in range(40)
    )
    pairs = "".join(f'<pair geom1="p{i}" geom2="p{i + 1}"/>' for i in range(0, 40, 2))
    robot = read_mjcf(f"<mujoco><worldbody>{balls}</worldbody><contact>{pairs}</contact></mujoco>")
    shapes = {shape.name: shape for body in robot.bodies for shape in body.shapes}
    outside = Shape("sphere", (1.0,))
    for one, two in itertools.combinations(shapes, 2):
        together = one.rstrip("b") == two.rstrip("b")
        if one[0] == two[0] == "p":
            together = int(one[1:]) // 2 == int(two[1:]) // 2
        assert meet(shapes[one], shapes[two]) == together, (one, two)
    assert [name for name, shape in shapes.items() if meet(shape, outside)] == ["0", "0b"]


def test_bodies_that_are_joined_or_excluded():
    """A tree with welded parts, all shapes at one place."""
    joint, geom = "<joint type='slide'/>", '<geom name="g{0}" size=".1"/>'
    tree = f"""
    <mujoco><worldbody><geom name="floor" type="box" size=".1 .1 .1"/>
      <body name="a">{joint}{geom.format("a")}
        <body name="b">{geom.format("b")}
          <body name="c">{geom.format("c")}<body name="d">{joint}{geom.format("d")}
            <body name="e">{joint}{geom.format("e")}</body></body></body></body>
        <body name="f">{joint}{geom.format("f")}</body>
      </body>
      <body name="g">{joint}{geom.format("g")}</body>
      <body name="h">{geom.format("h")}</body>
    </worldbody><contact><exclude body1="g" body2="f"/><exclude body1="world" body2="e"/></contact></mujoco>"""
    model, robot = both(tree)
    assert colliding(robot) == touching(model)
    assert {"g", "f"} in robot.excluded and {"a", "d"} in robot.excluded
    assert not any("neighbours" in note for note in robot.notes)


def test_what_stands_in_the_world_meets_what_moves():
    """As in MuJoCo, with and without self-collision; links of a base meet it as they meet each other."""
    joint, geom = "<joint type='slide'/>", '<geom name="g{0}" size=".1"/>'
    tree = f"""
    <mujoco><worldbody><geom name="floor" type="box" size=".1 .1 .1"/>
      <body name="torso"><freejoint/>{geom.format("torso")}
        <body name="leg">{joint}{geom.format("leg")}</body></body>
      <body name="base">{geom.format("base")}
        <body name="post">{geom.format("post")}</body>
        <body name="arm">{joint}{geom.format("arm")}<body name="hand">{joint}{geom.format("hand")}</body></body></body>
      <body name="table">{geom.format("table")}</body>
      <body name="shelf">{geom.format("shelf").replace("/>", " contype='2' conaffinity='2'/>")}</body>
    </worldbody><contact><exclude body1="table" body2="hand"/></contact></mujoco>"""
    there, robot = both(tree)
    expected = touching(there)
    moving = ("gtorso", "gleg", "garm", "ghand")
    of_base = {frozenset((one, two)) for one in ("gbase", "gpost") for two in ("garm", "ghand")}

    def found(self_collision: bool) -> set[frozenset[str]]:
        scene = kn.Scene()
        scene.add_robot(robot, "r", self_collision=self_collision)
        pairs = (name.split(" on ") for name in kn.compile(scene).candidates.names)
        return {frozenset(shape.rpartition("/")[2] for shape in pair) for pair in pairs}

    # A base and its first link are neighbours here, which the reader notes.
    assert found(True) == expected - {frozenset((one, "garm")) for one in ("gbase", "gpost")}
    assert found(False) == {pair for pair in expected if not pair <= set(moving)} - of_base
    assert frozenset(("floor", "gtorso")) in found(False) and frozenset(("gtable", "gleg")) in found(False)
    assert frozenset(("gtable", "ghand")) not in found(True)


def test_a_floating_robot_leaves_the_floor_where_it_is(tmp_path):
    """`floating` frees the robot of a file, and not what stands in its world: the robot falls on it and rests."""
    text = """<mujoco><worldbody><geom name="floor" type="plane" size="5 5 .1"/><body name="a" pos="0 0 .3">
      <geom type="sphere" size=".1"/></body></worldbody></mujoco>"""
    (tmp_path / "ball.xml").write_text(text)
    scene = kn.Scene()
    scene.add_robot(tmp_path / "ball.xml", "r", floating=True)
    model = kn.compile(scene)
    assert model.joints == ["r/a_free"] and model.candidates.names == ["r/a/0 on r/world/floor"]
    # A fifth of the depth is undone in each step: nothing is left of the impact after 0.7 s.
    assert abs(kn.simulate(model, steps=500, dt=2e-3).end.q[2].item() - 0.1) < 1e-5
    checked = check.read(tmp_path / "ball.xml", floating=True)
    assert [j.name for body in checked.bodies for j in body.joints] == ["a_free"]


def test_a_fixed_base_and_its_first_link_are_noted():
    link = "<body name='link'><joint/><geom size='1'/></body>"
    robot = read_mjcf(f"<mujoco><worldbody><body name='base'><geom size='1'/>{link}</body></worldbody></mujoco>")
    assert any("'base' and 'link' are neighbours" in note for note in robot.notes)


def test_frictionless_contacts():
    geoms = '<geom name="a" size="1" condim="1"/><geom name="b" size="1" friction=".3" condim="6"/>'
    robot = read_mjcf(f"<mujoco><worldbody>{geoms}</worldbody></mujoco>")
    assert [shape.friction for shape in robot.bodies[0].shapes] == [1.0, 0.3]
    assert [shape.surface.condim for shape in robot.bodies[0].shapes] == [1, 6]
    assert any("torsional and rolling friction" in note for note in robot.notes)
    scene = kn.Scene()
    scene.add_ground()
    ball = '<body name="{0}"><freejoint/><geom size="1" friction=".3" condim="{1}"/></body>'
    text = "<mujoco><worldbody>" + "".join(ball.format(f"b{n}", n) for n in (1, 6)) + "</worldbody></mujoco>"
    scene.add_robot(read_mjcf(text), "r")
    found = dict(zip((model := kn.compile(scene)).candidates.names, model.candidates.friction, strict=True))
    assert [value for name, value in found.items() if "ground" in name] == [0.8, 0.8]  # the larger one, and condim


def test_friction_mixes_as_in_mujoco():
    """Every pair of twelve balls: the higher priority decides, else the larger friction and the larger condim."""
    kinds = itertools.product((1, 3, 6), (0.2, 0.9), (0, 2))
    balls = "".join(
        f'<body><freejoint/><geom name="g{i}" size="1" condim="{dim}" friction="{mu}" priority="{level}"/></body>'
        for i, (dim, mu, level) in enumerate(kinds)
    )
    text = f'<mujoco><option cone="elliptic"/><worldbody>{balls}</worldbody></mujoco>'
    twin = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(twin)
    mujoco.mj_forward(twin, data)  # all balls are at the same place
    expected = {}
    for contact in data.contact:
        names = [twin.geom(int(g)).name for g in contact.geom]
        expected[frozenset(names)] = float(contact.friction[0]) if contact.dim > 1 else 0.0
    scene = kn.Scene()
    scene.add_robot(read_mjcf(text), "r", self_collision=True)
    model = kn.compile(scene)
    found = {}
    for name, friction in zip(model.candidates.names, model.candidates.friction, strict=True):
        found[frozenset(side.rpartition("/")[2] for side in name.split(" on "))] = float(friction)
    assert found == expected and len(found) == 66 and len(set(found.values())) == 3


def test_friction_of_a_pair():
    """A contact pair has its own friction in all laws, and its own softness in the law "convex"."""
    pair = '<pair geom1="g" geom2="h" friction=".1 .2 .3 .4 .5" condim="6" solref=".05 .5"/>'
    balls = '<body><freejoint/><geom name="g" size="1"/></body><body><freejoint/><geom name="h" size="1"/></body>'
    robot = read_mjcf(f"<mujoco><worldbody>{balls}</worldbody><contact>{pair}</contact></mujoco>")
    for law, softness in (("mlcp", None), ("convex", [[0.05, 0.5]])):
        scene = kn.Scene(contact=kn.Contact(law=law))
        scene.add_robot(robot, "r", self_collision=True)
        model = kn.compile(scene)
        assert model.candidates.friction.tolist() == [0.1]
        assert (None if model.soft is None else model.soft.numbers["solref"].tolist()) == softness


# -- shapes --------------------------------------------------------------------------------------------------------

TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


def test_shapes_and_colours():
    text = """
    <mujoco><asset><material name="red" rgba="1 0 0 .5"/></asset><worldbody>
      <geom type="plane" size="1 1 1" pos="0 0 -1"/>
      <geom type="capsule" size=".1 .4" material="red"/>
      <geom type="box" size="1 2 3" group="3" rgba="0 1 0 1" material="red"/>
      <geom type="ellipsoid" size="1 2 3" contype="0" conaffinity="0" name="egg"/>
    </worldbody></mujoco>"""
    robot = read_mjcf(text)
    (world,) = robot.bodies
    assert (world.name, world.parent, world.joints, world.mass) == ("world", None, (), None)
    plane, capsule, box = world.shapes
    assert (plane.kind, plane.size, plane.pose.position) == ("plane", (), (0.0, 0.0, -1.0))
    assert (capsule.kind, capsule.size, capsule.colour) == ("capsule", (0.1, 0.4), (1.0, 0.0, 0.0, 0.5))
    assert (box.size, box.visible, box.colour) == ((1.0, 2.0, 3.0), False, (0.0, 1.0, 0.0, 1.0))
    assert any("'egg' is of type ellipsoid" in note for note in robot.notes)


def test_meshes_and_folders(tmp_path):
    model = """<mujoco><compiler meshdir="../meshes"/><asset><mesh file="t.obj" scale="2 1 1"/></asset>
      <worldbody><include file="part.xml"/></worldbody></mujoco>"""
    part = '<x><body pos="0 0 1"><joint/><geom type="mesh" mesh="t" pos="1 2 3" euler="10 20 30"/></body></x>'
    for name, text in {"robot/m.xml": model, "robot/part.xml": part, "meshes/t.obj": TETRAHEDRON}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(ModelError, match="outside the folders"):
        read_mjcf(tmp_path / "robot/m.xml")
    robot = read_mjcf(tmp_path / "robot/m.xml", roots=[tmp_path / "meshes"])
    (shape,) = robot.bodies[0].shapes
    assert shape.mesh is not None and shape.mesh.faces.dtype == np.int32
    R, p = matrix(shape.pose.rotation), np.array(shape.pose.position)
    geom = mujoco.MjSpec.from_string('<mujoco><worldbody><site euler="10 20 30"/></worldbody></mujoco>').compile()
    corners = np.array([[0, 0, 0], [2, 0, 0], [0, 1, 0], [0, 0, 1]]) @ matrix(geom.site_quat[0]).T + [1, 2, 3]
    np.testing.assert_allclose(shape.mesh.vertices @ R.T + p, corners, atol=1e-6)  # MuJoCo has float32
    a, b, c = np.moveaxis(shape.mesh.vertices[shape.mesh.faces], 1, 0)
    assert np.einsum("fi,fi->f", np.cross(b - a, c - a), (a + b + c) / 3).min() > 0  # outwards


def test_height_fields_have_mujocos_triangles():
    heights = np.random.default_rng(0).uniform(size=12)
    text = f"""<mujoco><asset><hfield name="h" nrow="3" ncol="4" size="3 2 .7 .1"
      elevation="{" ".join(map(str, heights))}"/></asset>
      <worldbody><geom type="hfield" hfield="h" pos=".1 .2 .3"/></worldbody></mujoco>"""
    model, robot = both(text)
    (shape,) = robot.bodies[0].shapes
    assert shape.kind == "terrain" and shape.mesh is not None and shape.mesh.faces.shape == (12, 3)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    corners = shape.mesh.vertices[shape.mesh.faces] + shape.pose.position
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert normals[:, 2].min() > 0
    for x, y in np.random.default_rng(1).uniform((-2.8, -1.7), (3.0, 2.1), size=(50, 2)):
        hit = np.array(
            [x, y, 9 - mujoco.mj_ray(model, data, [x, y, 9.0], [0, 0, -1.0], None, 1, -1, np.zeros(1, np.int32))]
        )
        # the triangle below has the point on its plane and inside its edges
        distance = np.einsum("fi,fi->f", normals, hit - corners[:, 0]) / np.linalg.norm(normals, axis=1)
        edges = np.roll(corners, -1, axis=1) - corners
        inside = (np.cross(edges, hit - corners) @ [0, 0, 1] >= -1e-6).all(axis=1)
        assert np.abs(distance[inside]).min() < 1e-6  # float32 heights


# -- loops and couplings -------------------------------------------------------------------------------------------

LOOPS = """
<mujoco><compiler angle="radian"/>
  <worldbody>
    <body name="a" pos="1 0 0" euler=".1 .2 .3"><joint axis="1 2 3" ref=".5"/><geom size=".1"/>
      <site name="s" pos=".1 .2 .3" euler=".3 .2 .1"/></body>
    <body name="b" pos="0 1 0" quat="4 3 2 1"><freejoint/><geom size=".1"/><site name="t" pos="-.1 .2 0" euler="1 0 0"/>
    </body>
  </worldbody>
  <equality>{}</equality>
</mujoco>"""


@pytest.mark.parametrize(
    "equality",
    [
        '<connect body1="a" body2="b" anchor=".1 .2 .3"/>',
        '<connect body1="b" anchor=".1 .2 .3"/>',
        '<connect site1="s" site2="t"/>',
        '<weld body1="a" body2="b" torquescale="0"/>',
        '<weld body1="a" body2="b"/>',
        '<weld body1="a" body2="b" anchor=".3 .2 .1" relpose=".1 .2 .3 .5 .1 -.5 .4"/>',
        '<weld body1="b" anchor=".3 .2 .1"/>',
        '<weld site1="s" site2="t"/>',
    ],
)
def test_closures(equality):
    """MuJoCo's position error is the distance of the frames, and it has none where they coincide."""
    model, robot = both(LOOPS.format(equality))
    (closure,) = robot.closures
    data = mujoco.MjData(model)
    for seed in range(5):
        data.qpos[:] = random_qpos(model, seed)
        mujoco.mj_forward(model, data)
        found = Forward(robot, coordinates(model, robot, data.qpos))
        (p1, R1), (p2, R2) = (
            found.frame(closure.first, closure.first_pose),
            found.frame(closure.second, closure.second_pose),
        )
        np.testing.assert_allclose(p1 - p2, data.efc_pos[:3], atol=1e-12)
        # Put the frames together by moving b, which is free.
        on_first = closure.first == "b"
        R = found.R["b"]
        R_new = (R2 @ R1.T if on_first else R1 @ R2.T) @ R if closure.kind == "weld" else R
        own, other = (p1, p2) if on_first else (p2, p1)
        data.qpos[1:4] = other - R_new @ R.T @ (own - found.p["b"])
        mujoco.mju_mat2Quat(data.qpos[4:8], R_new.ravel())
        mujoco.mj_forward(model, data)
        rows = 6 if closure.kind == "weld" else 3
        assert np.abs(data.efc_pos[:rows]).max() < 1e-12


def test_couplings_of_joints():
    text = """<mujoco>
      <worldbody><body>
        <joint name="x" type="slide" ref="2"/><joint name="y" ref="30"/><geom size="1"/>
      </body></worldbody>
      <equality><joint joint1="x" joint2="y" polycoef=".1 -3 0 0 0"/></equality></mujoco>"""
    model, robot = both(text)
    mimic = joints(robot)["x"].mimic
    assert replace(mimic, softness=None) == Mimic("y", -3.0, 0.1)
    data = mujoco.MjData(model)
    data.qpos[1] = 0.7
    q_y = data.qpos[1] - math.radians(30)
    data.qpos[0] = 2 + mimic.multiplier * q_y + mimic.offset
    mujoco.mj_forward(model, data)
    assert abs(data.efc_pos[0]) < 1e-12


def test_inactive_equalities_are_noted():
    robot = read_mjcf(LOOPS.format('<weld name="w" body1="a" active="false"/>'))
    assert not robot.closures and "left out: equality 'w', which is not active" in robot.notes


# -- refusals ------------------------------------------------------------------------------------------------------


def model(inside: str = "", *, joint: str = '<joint name="j"/>', geom: str = '<geom size="1"/>') -> str:
    return f'<mujoco>\n<worldbody><body name="b">{joint}{geom}</body></worldbody>\n{inside}</mujoco>'


ACTUATORS = "<actuator>{}</actuator>"
REFUSED = {
    "dtd": ("<!DOCTYPE m [<!ENTITY a '1'>]>" + model(geom='<geom size="&a;"/>'), "document types and entities"),
    "outer entity": ('<!DOCTYPE m SYSTEM "file:///etc/passwd">' + model(), "document types and entities"),
    "deep": ("<mujoco><worldbody>" + "<body>" * 300 + "</body>" * 300 + "</worldbody></mujoco>", "nested too deep"),
    "cut off": ("<mujoco><worldbody>", "not well-formed"),
    "urdf": ('<robot name="r"/>', "URDF"),
    "other root": ("<svg/>", "not an MJCF model"),
    "a file from a text": (model('<asset><mesh file="m.obj"/></asset>'), "a text has no folder"),
    "an include from a text": (model('<include file="m.xml"/>'), "a text has no folder"),
    "nan": (model(joint='<joint damping="nan"/>'), "<joint>.*damping is not finite"),
    "overflow": (model(joint='<joint armature="1e999"/>'), "armature is not finite"),
    "large": (model(joint='<joint damping="1e31"/>'), "damping is too large"),
    "negative damping": (model(joint='<joint name="j" damping="-1"/>'), "damping of joint 'j' is negative"),
    "negative armature": (model(joint='<joint name="j" armature="-.1"/>'), "armature of joint 'j' is negative"),
    "negative friction": (model(geom='<geom name="g" size="1" friction="-1"/>'), "friction of geom 'g' is negative"),
    "huge texture": (model('<asset><texture type="2d" width="99999" height="1"/></asset>'), "width is too large"),
    "huge terrain": (model('<asset><hfield name="h" nrow="9999" ncol="9999" size="1 1 1 1"/></asset>'), "nrow is too"),
    "huge user data": (model('<size nuser_body="99999999"/>'), "nuser_body is too large"),
    "many copies": (
        model('<worldbody><replicate count="999"><replicate count="999"><geom/></replicate></replicate></worldbody>'),
        "too many copies",
    ),
    "typing error": (model(joint='<joint axs="1 0 0"/>'), r"<text>:2: MuJoCo cannot compile.*(\n.*)*'axs'"),
    "negative mass": (model(geom='<geom size="1" mass="-1"/>'), r"<text>:2: MuJoCo cannot(.*\n)*.*negative in geom"),
    "no mass": (model(geom=""), r"MuJoCo cannot compile(.*\n)*.*mass and inertia"),
    "plugin": (model('<extension><plugin plugin="mujoco.elasticity.cable"/></extension>'), "plugins are not"),
    "flex": (model('<worldbody><flexcomp type="grid" count="3 3 1" name="f"/></worldbody>'), "deformable bodies"),
    "fluid": (
        model('<option density="1"/>', geom='<geom name="g" size="1" fluidshape="ellipsoid"/>'),
        r"geom 'g' has a fluid shape(.*\n)*.*ignore=\['fluid'\]",
    ),
    "sticky": (model(geom='<geom name="g" size="1" adhesion="1"/>'), "geom 'g' is adhesive"),
    "cubic spring": (
        model(joint='<joint name="j" stiffness="1 2 3"/>'),
        "joint 'j' has a nonlinear spring or damper",
    ),
    "plastic spring": (
        model(joint='<joint name="j" stiffness="1" springyield=".1"/>'),
        "'j' has a nonlinear spring or damper",
    ),
    "free spring": (model(joint='<joint name="j" type="free" stiffness="1"/>'), "joint 'j' has a spring and is free"),
    "ball spring": (
        model(joint='<joint name="j" type="ball" stiffness="7"/>'),
        r"<text>:2 .*'j' has a spring and is ball",
    ),
    "one-sided effort": (model(joint='<joint name="j" actuatorfrcrange="-1 2"/>'), "asymmetric actuator force range"),
    "tendon with friction": (
        model('<tendon><fixed name="t" frictionloss="1"><joint joint="j" coef="1"/></fixed></tendon>'),
        r"tendon 't' is not supported: it has frictionloss",
    ),
    "actuator of a tendon that is left out": (
        model(
            '<tendon><fixed name="t" armature="1"><joint joint="j" coef="1"/></fixed></tendon>'
            + ACTUATORS.format('<motor name="m" tendon="t"/>')
        ),
        "tendon 't' is not supported: it has armature",
    ),
    "side site of a sphere": (
        model(
            '<worldbody><site name="a"/><site name="b" pos="1 0 0"/></worldbody>'
            '<tendon><spatial name="t" stiffness="1"><site site="a"/>'
            '<geom geom="g" sidesite="a"/><site site="b"/></spatial></tendon>',
            geom='<geom name="g" size="1"/>',
        ),
        r"tendon 't' is not supported: it goes around a sphere with a side site",
    ),
    "nan in a spring": (
        model('<tendon><fixed name="t" stiffness="-1"><joint joint="j" coef="1"/></fixed></tendon>'),
        "stiffness of tendon 't' is negative",
    ),
    "two muscles in one": (
        model(
            ACTUATORS.format(
                '<general name="m" joint="j" lengthrange="0 1" gaintype="muscle" biastype="muscle" '
                'gainprm="0.5 1 9 1 .5 1.6 1.5 1.3 1.2" biasprm="0.6 1 9 1 .5 1.6 1.5 1.3 1.2"/>'
            )
        ),
        r"'m' is not supported: gain and bias are different muscles",
    ),
    "muscle without passive half": (
        model(ACTUATORS.format('<muscle name="m" joint="j" lengthrange="0 1" lmax=".9"/>')),
        "lmin<1<lmax required",
    ),
    "muscle as bias": (
        model(
            ACTUATORS.format(
                '<general name="m" joint="j" lengthrange="0 1" biastype="muscle" biasprm=".6 1 9 1 .5 2 1.5 1.3 1.2"/>'
            )
        ),
        r"'m' is not supported: its gain is of type fixed, its bias of type muscle",
    ),
    "user dynamics": (
        model(ACTUATORS.format('<general name="m" joint="j" dyntype="user" actdim="2"/>')),
        r"'m' is not supported: it has dynamics \(user",
    ),
    "delay": (
        model(ACTUATORS.format('<motor name="m" joint="j" delay="0.01" nsample="5"/>')),
        "'m' is not supported: it has a delay",
    ),
    "ball actuator": (
        model(ACTUATORS.format('<motor name="m" joint="j" gear="1 0 0"/>'), joint='<joint name="j" type="ball"/>'),
        "'m' is not supported: it drives a ball joint",
    ),
    "constant joint": (
        model('<equality><joint name="e" joint1="j"/></equality>'),
        "equality 'e'.*a joint at a constant",
    ),
    "circular coupling": (
        model(
            '<equality><joint joint1="j" joint2="k"/><joint name="e" joint1="k" joint2="j"/></equality>',
            joint='<joint name="j"/><joint name="k" axis="1 0 0"/>',
        ),
        "equality 'e' is not supported: joints mimic each other in a cycle",
    ),
    "pair of neighbours": (
        model(
            '<contact><pair geom1="g" geom2="h"/></contact>',
            geom='<geom name="g" size="1"/><body><joint/><geom name="h" size="1"/></body>',
        ),
        "the contact pair of geom 'g' and geom 'h' joins bodies that never collide here",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, message = REFUSED[case]
    with pytest.raises(ModelError, match=message) as error:
        read_mjcf(text)
    assert error.value.where and error.value.where.startswith("<text>")
    assert not list(tmp_path.iterdir())


IGNORED = [
    "fluid",
    "cubic spring",
    "ball spring",
    "tendon with friction",
    "actuator of a tendon that is left out",
    "two muscles in one",
    "delay",
]


@pytest.mark.parametrize("case", [*IGNORED, "circular coupling"])
def test_left_out_if_asked_for(case):
    features = ["actuators", "closures", "contact", "fluid", "shapes", "springs", "tendons"]
    robot = read_mjcf(REFUSED[case][0], ignore=features)
    assert any(note.startswith("left out: ") for note in robot.notes)


FILES = {
    "mesh outside": ('<asset><mesh file="../secret.obj"/></asset>', "<mesh>.*: the file lies outside the folders"),
    "mesh at an absolute path": ('<asset><mesh file="{outside}/secret.obj"/></asset>', "lies outside the folders"),
    "mesh behind backslashes": (r'<asset><mesh file="..\secret.obj"/></asset>', "lies outside the folders"),
    "mesh through a folder": (
        '<compiler meshdir="{outside}"/><asset><mesh file="secret.obj"/></asset>',
        "lies outside the folders",
    ),
    "mesh whose path is cut": (
        '<compiler strippath="true"/><asset><mesh file="sub/link.obj"/></asset>',
        "lies outside the folders",
    ),
    "mesh of an included model": (
        '<asset><model name="m" file="sub/m.xml"/></asset>',
        "deep.xml:1 <mesh>.*: the file lies outside",
    ),
    "mesh through a link": ('<asset><mesh file="link.obj"/></asset>', "lies outside the folders"),
    "texture outside": (
        '<asset><texture type="cube" fileup="../secret.png"/></asset>',
        "<texture>.*: the file lies out",
    ),
    "terrain outside": (
        '<asset><hfield name="h" size="1 1 1 1" file="../h.png"/></asset>',
        "<hfield>.*: the file lies",
    ),
    "include outside": ('<include file="../secret.xml"/>', "m.xml:2 <include>.*: the file lies outside the folders"),
    "include in an include": ('<include file="inner.xml"/>', "inner.xml:1 <include>.*: the file lies outside"),
    "model outside": ('<asset><model name="m" file="../secret.xml"/></asset>', "<model>.*: the file lies outside"),
    "dtd in an include": ('<include file="dtd.xml"/>', "dtd.xml:1: document types and entities"),
    "address": ('<asset><mesh name="m" file="http://localhost/m.obj"/></asset>', "URLs are not supported"),
    "missing": ('<asset><mesh file="none.obj"/></asset>', "the file does not exist"),
    "damaged mesh": ('<asset><mesh file="bad.obj"/></asset>', "MuJoCo cannot compile the model"),
    "mesh of 65 MB": ('<asset><mesh file="big.obj"/></asset>', "the file is too large"),
}


@pytest.mark.parametrize("case", FILES)
def test_files_elsewhere_are_refused(case, tmp_path):
    inside, message = FILES[case]
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("secret.obj", "secret.xml", "secret.png", "h.png"):
        (tmp_path / name).write_text(TETRAHEDRON if name.endswith("obj") else "<mujoco/>")
    (folder / "link.obj").symlink_to(tmp_path / "secret.obj")
    (folder / "inner.xml").write_text('<x><include file="../secret.xml"/></x>')
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "sub" / "m.xml").write_text('<mujoco><asset><include file="deep/deep.xml"/></asset></mujoco>')
    # below "deep" this stays inside, below "model" it does not
    (folder / "sub" / "deep" / "deep.xml").write_text('<x><mesh file="../secret.obj"/></x>')
    (folder / "sub" / "secret.obj").write_text(TETRAHEDRON)
    (folder / "dtd.xml").write_text("<!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>")
    (folder / "bad.obj").write_text("v 0 0 0\nv 1 0 0\nf 1 2 9\n")
    with open(folder / "big.obj", "wb") as big:
        big.truncate(65 * 2**20)
    path = folder / "m.xml"
    path.write_text(f"<mujoco>\n{inside.replace('{outside}', str(tmp_path))}<worldbody/></mujoco>")
    with pytest.raises(ModelError, match=message):
        read_mjcf(path)


def test_a_model_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ModelError, match="no such file"):
        read_mjcf(tmp_path / "none.xml")
    with open(tmp_path / "big.xml", "wb") as big:
        big.truncate(65 * 2**20)
    with pytest.raises(ModelError, match="too large"):
        read_mjcf(tmp_path / "big.xml")


def test_unknown_names_to_ignore():
    with pytest.raises(InputError, match="unknown name"):
        read_mjcf(SEVERAL, ignore=["everything"])


def test_without_mujoco_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ModelError, match=r"(?s)<text>: MuJoCo.* is not installed.*pip install 'kinema\[mjcf\]'"):
        read_mjcf(SEVERAL)


def test_an_old_mujoco_is_refused(monkeypatch):
    monkeypatch.setattr(mujoco, "__version__", "3.2.1")
    with pytest.raises(ModelError, match=r"(?s)MuJoCo is too old.*3\.2\.1.*pip install -U"):
        read_mjcf(SEVERAL)


def test_a_model_is_read_from_anywhere(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "m.xml").write_text(SEVERAL)
    monkeypatch.chdir(tmp_path)
    robot = read_mjcf(os.path.join("sub", "m.xml"))
    assert (robot.name, robot.source) == ("several", os.path.join("sub", "m.xml"))
    assert robot.bodies == read_mjcf(SEVERAL).bodies
