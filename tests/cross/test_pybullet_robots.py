"""The URDF files that PyBullet ships: they load or are refused with a reason, weigh what Pinocchio says, and stand.

Only the files are used, not PyBullet itself: its wheel holds them beside the engine, in the package `pybullet_data`.
"""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pinocchio
import pytest
import torch

import kinema as kn
from kinema.kinematics.joint_types import FREE
from kinema.lang.build import compiler
from kinema.scene.description import Robot

DATA = importlib.util.find_spec("pybullet_data")
HAS_WHEEL = (sys.version_info[:2], sys.platform, platform.machine()) == ((3, 11), "linux", "x86_64")
assert DATA or not HAS_WHEEL, "these tests must run: install the extra `test`"
pytestmark = [
    pytest.mark.skipif(DATA is None, reason="there is no wheel of PyBullet for this machine"),
    pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler"),
    pytest.mark.filterwarnings("ignore::kinema.LeftOutWarning"),  # transmissions, links without mass
]
FOLDER = Path(DATA.origin).parent if DATA and DATA.origin else Path()
OBJECTS = "random_urdfs"  # a thousand files that differ in their mesh
G, DT, SECONDS = 9.81, 2e-3, 2.0

# None of these needs repair=True. Mobile ones are free, arms are fixed to the ground.
LAIKAGO, A1, PANDA = "laikago/laikago_toes_zup.urdf", "a1/a1.urdf", "franka_panda/panda.urdf"
RACECAR, KUKA, R2D2 = "racecar/racecar.urdf", "kuka_iiwa/model.urdf", "r2d2.urdf"
FREE_ROBOTS, ARMS = ("laikago/laikago.urdf", LAIKAGO, A1, RACECAR, R2D2), (PANDA, KUKA)


def model_of(robot: Robot, height: float = 0.0, ground: bool = False) -> kn.Model:
    scene = kn.Scene()
    if ground:
        scene.add_ground()
    scene.add_robot(robot, "r", pos=(0.0, 0.0, height))
    return kn.compile(scene)


def twin_of(file: Path, floating: bool) -> pinocchio.Model:
    """The file in Pinocchio, without what links of no mass are said to have: an inertia that only Pinocchio keeps."""
    root = ElementTree.fromstring(file.read_text().strip())
    for link in root.iter("link"):
        inertial = link.find("inertial")
        if inertial is not None and float(inertial.find("mass").get("value")) == 0:
            link.remove(inertial)
    text = ElementTree.tostring(root, encoding="unicode")
    return pinocchio.buildModelFromXML(text, *([pinocchio.JointModelFreeFlyer()] if floating else []))


def worst_difference(model: kn.Model, twin: pinocchio.Model, seed: int = 0) -> float:
    """Of the mass matrices in a random configuration, relative to the largest entry."""
    tree, random = model.tree, np.random.default_rng(seed)
    q, there, order = tree.q.copy(), pinocchio.neutral(twin), np.zeros(model.nv, int)
    for i, name in enumerate(tree.joints):
        at, d = int(tree.q_start[i]), int(tree.v_start[i])
        number = twin.getJointId("root_joint" if tree.kind[i] == FREE else name.removeprefix("r/"))
        to_q, to_v = twin.idx_qs[number], twin.idx_vs[number]
        if tree.kind[i] == FREE:
            q[at : at + 7] = random.normal(size=7)
            q[at + 3 : at + 7] /= np.linalg.norm(q[at + 3 : at + 7])
            there[to_q : to_q + 7] = q[at + np.array([0, 1, 2, 4, 5, 6, 3])]
            order[d : d + 6] = to_v + np.array([3, 4, 5, 0, 1, 2])
            continue
        q[at], order[d] = random.normal(), to_v
        if twin.nqs[number] == 2:  # continuous joints have a point on the circle there
            there[to_q : to_q + 2] = np.cos(q[at]), np.sin(q[at])
        else:
            there[to_q] = q[at]
    assert sorted(order) == list(range(twin.nv)), "the same joints"
    M = pinocchio.crba(twin, twin.createData(), there)
    M = (np.triu(M) + np.triu(M, 1).T)[np.ix_(order, order)]
    found = kn.mass_matrix(model, torch.tensor(q)).numpy()
    return float(np.abs(found - M).max() / np.abs(M).max())


@pytest.mark.parametrize("name", [*FREE_ROBOTS, *ARMS])
def test_mass_matrix_is_pinocchios(name: str) -> None:
    floating = name in FREE_ROBOTS
    model, twin = model_of(kn.read_urdf(FOLDER / name, floating=floating)), twin_of(FOLDER / name, floating)
    for seed in range(5):
        assert worst_difference(model, twin, seed) < 1e-10


# -- motion ----------------------------------------------------------------------------------------------------------


def stand(model: kn.Model, angles: dict[str, float], stiffness: float = 150.0, damping: float = 3.0) -> kn.Trajectory:
    """Two seconds with springs that hold joints, by part of their names, at angles; the others stay limp."""
    q = model.initial_state().q
    springs = model.parameters("stiffness", "damping", "rest")
    number, places = model.tree.spring_numbers(), model.tree.v_start
    for numbers in springs.values():
        numbers.zero_()
    for i, name in enumerate(model.joints):
        for part, angle in angles.items():
            if part in name:
                at, dof = int(model.tree.q_start[i]), int(places[i])
                q[at] = angle
                springs["damping"][dof] = damping
                springs["stiffness"][int(number[dof])], springs["rest"][int(number[dof])] = stiffness, angle
    return kn.simulate(model, kn.State(q), steps=int(SECONDS / DT), dt=DT, params=springs, record=["impulse"])


def check_standing(model: kn.Model, path: kn.Trajectory, height: float, sag: float, feet: str) -> None:
    """Upright at its height, carried by the ground under its feet alone: its weight to 0.1 %."""
    pressed = path.recorded["impulse"][-1, :, 0] / (DT * G)
    of_feet = torch.tensor([feet in pair for pair in model.candidates.names])
    assert float(pressed[of_feet].sum()) == pytest.approx(float(model.tree.mass.sum()), rel=1e-3)
    assert float(pressed[~of_feet].abs().sum()) == 0
    assert float(path.end.q[2]) == pytest.approx(height, abs=sag)
    assert abs(float(path.end.q[3])) > 1 - 1e-4, "not turned"
    assert float(path.end.v.abs().max()) < 0.05


def test_laikago_stands() -> None:
    """On its toes, which are spheres; the rest of it are meshes of hundreds of vertices.

    Upper legs are turned by 0.344 rad so that the toes are below the hips: 0.03 m down, 0.4865 m of leg, 0.03 m of toe.
    """
    model = model_of(kn.read_urdf(FOLDER / LAIKAGO, floating=True), 0.56, ground=True)
    assert {"mesh", "sphere"} <= {*model.shapes.kind}
    angles = {"hip_motor_2": 0.0, "upper_leg_2": -0.344, "lower_leg_2": 0.0}
    check_standing(model, stand(model, angles), 0.03 + 0.4865 + 0.03, sag=0.005, feet="toe")


def test_a1_stands() -> None:
    """On its toes, which are spheres; the rest of it are boxes and cylinders."""
    model = model_of(kn.read_urdf(FOLDER / A1, floating=True), 0.31, ground=True)
    assert {"box", "cylinder", "sphere"} <= {*model.shapes.kind}
    angles = {"hip_joint": 0.0, "upper_joint": 0.8, "lower_joint": -1.6}
    check_standing(model, stand(model, angles), 2 * 0.2 * np.cos(0.8) + 0.02, sag=0.01, feet="toe")


def test_racecar_stands() -> None:
    """On its wheels, which are cylinders."""
    model = model_of(kn.read_urdf(FOLDER / RACECAR, floating=True), 0.1, ground=True)
    assert "cylinder" in model.shapes.kind
    check_standing(model, stand(model, {"steering": 0.0}), 0.0, sag=1e-4, feet="wheel")


def test_r2d2_stands() -> None:
    """On its wheels, cylinders that reach 0.07 m below the boxes of its feet; its grippers are meshes."""
    model = model_of(kn.read_urdf(FOLDER / R2D2, floating=True), 0.6, ground=True)
    assert {"box", "cylinder", "mesh", "sphere"} <= {*model.shapes.kind}
    check_standing(model, stand(model, {}), 0.4 + 0.07, sag=1e-4, feet="wheel")


@pytest.mark.parametrize(("name", "friction"), [(PANDA, 0.5), (KUKA, 0.0)])
def test_arms_swing(name: str, friction: float) -> None:
    """Limp, from within their limits, and down to the ground: energy only falls, by what dampers, limits and hits take.

    Kuka's file has dampers, Panda gets 0.5 N m s/rad. Their shapes are meshes of hundreds of vertices.
    """
    model = model_of(kn.read_urdf(FOLDER / name), ground=True)
    assert {*model.shapes.kind} == {"mesh", "plane"}
    q = model.initial_state().q
    limits = model.constraints.limits
    q[limits["q"]] = torch.tensor(limits["lower"] + 0.7 * (limits["upper"] - limits["lower"]))
    if model.constraints.follower_names:
        q[model.constraints.followers["q"]] = q[model.constraints.followers["leader_q"]]
    dampers = {"damping": torch.tensor(model.tree.damping) + friction}
    steps = int(SECONDS / DT)
    path = kn.simulate(model, kn.State(q), steps=steps, dt=DT, params=dampers, record=["impulse"])
    assert float(path.recorded["impulse"][..., 0].sum()) > 1, "N s: it hits the ground"
    kinetic = kn.kinetic_energy(model, path.q, path.v)
    energy = kinetic + kn.potential_energy(model, path.q)
    # The step errs by O(dt): 1 % of the most that ever moved.
    assert float((energy[1:] - energy[:-1]).max()) < 0.01 * float(kinetic.max())
    assert float(energy[-1]) < float(energy[0]) and float(path.v.abs().max()) < 30


# -- all files -------------------------------------------------------------------------------------------------------


def test_every_file_loads_or_is_refused_with_a_reason() -> None:
    """No other exception; what loads and has a mass has Pinocchio's mass matrix.

    Files with an inertia that no body has are read again with repair=True. The thousand objects all have one of 1, 1
    and 0 kg m^2, round-off that the reader repairs; every fiftieth of them is compiled.
    """
    count: Counter[str] = Counter()
    for file in sorted(FOLDER.rglob("*.urdf")):
        is_object, repair = OBJECTS in file.parts, False
        try:
            robot = kn.read_urdf(file, floating=True)
        except kn.KinemaError as error:
            assert str(file.parent) in str(error), "the message says where, in this file or a mesh"
            repair = "repair=True" in str(error)
            assert not (is_object and repair)
            if not repair:
                count["refused"] += 1
                continue
            try:
                robot = kn.read_urdf(file, floating=True, repair=True)
            except kn.KinemaError as other:
                assert str(file) in str(other) and "inertia" not in str(other)
                count["refused"] += 1
                continue
        repaired = any("inertia repaired" in note for note in robot.notes)
        assert repaired or not repair
        count["objects" if is_object else "repaired" if repair else "loaded"] += 1
        if is_object and int(file.stem) % 50:
            continue
        try:
            model = model_of(robot)
        except kn.KinemaError as error:
            assert "moves no mass" in str(error) or "the mass matrix is singular" in str(error)
            count["scenery without mass"] += 1
            continue
        if repaired:
            continue
        assert worst_difference(model, twin_of(file, floating=True)) < 1e-10, file
        count["as in Pinocchio"] += 1
    print(dict(count))
    assert count["loaded"] >= 75 and count["as in Pinocchio"] >= 63 and count["objects"] >= 999
