"""Robots from files of gymnasium, PyBullet and example-robot-data, on the floor in a pose that springs hold.

MJCF files are as they are. Joints of URDF files, which have no controllers, get springs and dampers about the pose
(`kinema.verification.legged`), in proportion to the robot's mass; every revolute and prismatic joint has a motor.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import kinema as kn
from kinema.scene.description import Actuator, Robot
from kinema.verification import legged

from .scenes import DT, Pair, Spec, from_mjcf, of_robot

GYMNASIUM = ("ant", "half_cheetah", "hopper", "humanoid", "walker2d")
SHARE = 0.05  # of the squared frequency 1 / dt^2 that springs may have at most
BENT, KNEES = (0.0, 0.9, -1.8), (0.0, -0.8, 1.6)
PYBULLET: dict[str, tuple[str, str, tuple[float, ...], bool]] = {
    "laikago": ("legged", "laikago/laikago_toes_zup.urdf", (), True),
    "a1": ("legged", "a1/a1.urdf", BENT, True),
    "aliengo": ("legged", "aliengo/aliengo.urdf", BENT, True),
    "mini_cheetah": ("legged", "mini_cheetah/mini_cheetah.urdf", KNEES, True),
    "vision60": ("legged", "quadruped/vision60.urdf", (), True),
    "spirit40": ("legged", "quadruped/spirit40.urdf", (), True),
    "minitaur": ("legged", "quadruped/minitaur.urdf", (), True),
    "kuka_iiwa": ("arm", "kuka_iiwa/model.urdf", (0.3, 0.5, 0.0, -1.0, 0.0, 0.6, 0.0), False),
    "franka_panda": ("arm", "franka_panda/panda.urdf", (0.0, -0.4, 0.0, -2.0, 0.0, 1.8, 0.8, 0.02, 0.02), False),
    "xarm6": ("arm", "xarm/xarm6_with_gripper.urdf", (), False),
}
"""Group, file, angles of the joints (repeated for each leg) [rad], and whether the base is free."""
EXAMPLES: dict[str, tuple[str, str, str, bool]] = {
    "anymal_b": ("legged", "anymal_b_simple_description/robots/anymal", "anymal", True),
    "anymal_c": ("legged", "anymal_c_simple_description/urdf/anymal", "anymal", True),
    "go1": ("legged", "go1_description/urdf/go1", "go1", True),
    "go2": ("legged", "go2_description/urdf/go2", "go2", True),
    "b1": ("legged", "b1_description/urdf/b1", "b1", True),
    "bolt": ("legged", "bolt_description/robots/bolt", "bolt", True),
    "solo12": ("legged", "solo_description/robots/solo12", "solo", True),
    "hyq": ("legged", "hyq_description/robots/hyq_no_sensors", "hyq", True),
    "g1": ("legged", "g1_description/urdf/g1_29dof_rev_1_0", "", True),
    "g1_hands": ("legged", "g1_description/urdf/g1_29dof_with_hand_rev_1_0", "", True),
    "icub": ("legged", "icub_description/robots/icub", "icub", True),
    "talos": ("legged", "talos_data/robots/talos_reduced", "talos", True),
    "simple_humanoid": ("legged", "simple_humanoid_description/urdf/simple_humanoid", "simple_humanoid", True),
    "panda": ("arm", "panda_description/urdf/panda", "panda", False),
    "ur5": ("arm", "ur_description/urdf/ur5_robot", "ur5", False),
    "ur10": ("arm", "ur_description/urdf/ur10_robot", "ur10", False),
    "kinova": ("arm", "kinova_description/robots/kinova", "kinova", False),
    "z1": ("arm", "z1_description/urdf/z1", "z1", False),
    "baxter": ("arm", "baxter_description/urdf/baxter", "baxter", False),
    "tiago": ("arm", "tiago_description/robots/tiago", "tiago", False),
    "allegro": ("hand", "allegro_hand_description/urdf/allegro_right_hand", "", False),
}
"""Group, URDF file and SRDF file (whose first pose is used) without suffixes, and whether the base is free."""


def specs() -> Iterator[Spec]:
    """Scenes of all installed packages."""
    if (folder := package("gymnasium")) is not None:
        for name in GYMNASIUM:
            yield Spec(name, "mjcf", partial(from_mjcf, str(folder / f"envs/mujoco/assets/{name}.xml")))
    if (folder := package("pybullet_data")) is not None:
        for name, (group, file, angles, floating) in PYBULLET.items():
            yield Spec(f"pybullet {name}", group, partial(_pybullet, folder / file, angles, floating))
    if (folder := examples_folder()) is not None:
        for name, (group, file, srdf, floating) in EXAMPLES.items():
            yield Spec(name, group, partial(_example, folder, file, srdf, floating))


def package(name: str) -> Path | None:
    """The folder of an installed package."""
    found = importlib.util.find_spec(name)
    return None if found is None or found.origin is None else Path(found.origin).parent


def examples_folder() -> Path | None:
    """The folder `example-robot-data`, which holds `robots`."""
    try:
        found = importlib.metadata.distribution("example-robot-data")
    except importlib.metadata.PackageNotFoundError:
        return None
    return Path(str(found.locate_file("cmeel.prefix/share/example-robot-data")))


def _read(file: Path, folder: Path, srdf: Path | None, floating: bool) -> Robot:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kn.LeftOutWarning)
        found: dict[str, object] = {"package_roots": {"example-robot-data": folder}, "roots": [folder]}
        if srdf is not None:
            found["srdf"] = srdf
        return kn.read_urdf(file, floating=floating, repair=True, meshes="skip", **found)  # type: ignore[arg-type]


def _standing(robot: Robot, angles: tuple[float, ...], pose: dict[str, float], floating: bool) -> Pair:
    """The robot with springs that hold the pose, and a motor at each of these joints."""
    sprung = _soft_enough(legged.sprung(robot, angles, pose))
    held = {j.name: j.rest for body in sprung.bodies for j in body.joints if j.stiffness > 0}
    motors = tuple(Actuator(joint, joint) for joint in held)
    return of_robot(replace(sprung, actuators=motors), held, floating, None)


def _soft_enough(robot: Robot) -> Robot:
    """The robot with springs that explicit steps can take: light fingers get softer ones."""
    scene = kn.Scene()
    scene.add_robot(robot, "r")
    model = kn.compile(scene)
    inertia = kn.mass_matrix(model, model.initial_state().q).diagonal()
    bodies = []
    for body in robot.bodies:
        joints = []
        for joint in body.joints:
            if joint.stiffness > 0:
                most = SHARE / DT**2 * float(inertia[model.v_index(f"r/{joint.name}")])
                joint = replace(joint, stiffness=min(joint.stiffness, most))
            joints.append(joint)
        bodies.append(replace(body, joints=tuple(joints)))
    return replace(robot, bodies=tuple(bodies))


def _pybullet(file: Path, angles: tuple[float, ...], floating: bool) -> Pair:
    return _standing(_read(file, file.parents[1], None, floating), angles, {}, floating)


def _example(folder: Path, file: str, srdf: str, floating: bool) -> Pair:
    urdf = folder / "robots" / f"{file}.urdf"
    poses = urdf.parents[1] / "srdf" / f"{srdf}.srdf" if srdf else None
    if poses is not None and not poses.exists():
        poses = None
    robot = _read(urdf, folder, poses, floating)
    return _standing(robot, (), legged.first_pose(poses) if poses else {}, floating)
