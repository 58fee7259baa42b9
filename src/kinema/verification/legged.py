"""Robots for the convergence check: our own, some with light shanks or fingers, and robots from files of others.

The files are Gymnasium's MJCF files and the legged robots of PyBullet and of example-robot-data, each if its package is
installed. Joints from URDF files have nothing that holds a pose, so they get springs and dampers about the initial
pose. For example-robot-data, that is all joints at zero, with straight legs, and also the pose of the robot's SRDF file
if there is one. Visual elements and elements that only the authors' tools know are removed from these files. A robot
without readable shapes stands on balls at the ends of its limbs.

Excluded: cassie, whose files are SDF; romeo, with massless fingers; romeo_laas_small, with negative moments of inertia;
spirit40newer, microtaur, humanoid.urdf and biped2d of PyBullet, which are not well-formed, and its hopper, half_cheetah
and walker2d, which MuJoCo no longer reads; variants of its laikago that lie on their side.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import torch
from torch import Tensor

from kinema.errors import LeftOutWarning, UnsolvedWarning
from kinema.kinematics.joint_types import FREE as FREE_LINK
from kinema.lang.autograd.options import RunOptions
from kinema.model.model import Model, compile
from kinema.model.state import State
from kinema.scene.contact import PGS, Contact
from kinema.scene.description import (
    BOX,
    FREE,
    PRISMATIC,
    REVOLUTE,
    SPHERE,
    Body,
    Joint,
    MassProperties,
    Mimic,
    Pose,
    Robot,
    Shape,
)
from kinema.scene.io.mjcf import read_mjcf
from kinema.scene.io.urdf import read_urdf
from kinema.scene.scene import Scene
from kinema.scene.shapes.ant import ant
from kinema.scene.shapes.humanoid import humanoid
from kinema.scene.shapes.quadruped import quadruped
from kinema.simulation.simulate import simulate

SPEEDS, HEADINGS = (0.3, 1.0, 3.0), 8  # m/s; of sliding starts
FAR = 10.0  # m, a margin larger than all gaps
DRY = 1.0  # N m, friction of joints
STIFFNESS, DAMPING = 5.0, 0.1  # of springs, per kilogram of the robot [N m/rad, N m s/rad]
PYBULLET = {
    "laikago": ("laikago/laikago_toes_zup.urdf", (0.0, 0.0, 0.0)),
    "laikago_lores": ("laikago/laikago_toes_zup_lores.urdf", (0.0, 0.0, 0.0)),
    "a1": ("a1/a1.urdf", (0.0, 0.9, -1.8)),
    "aliengo": ("aliengo/aliengo.urdf", (0.0, 0.9, -1.8)),
    "mini_cheetah": ("mini_cheetah/mini_cheetah.urdf", (0.0, -0.8, 1.6)),
    "vision60": ("quadruped/vision60.urdf", (0.0, 0.0, 0.0)),
    "spirit40": ("quadruped/spirit40.urdf", (0.0, 0.0, 0.0)),
    "minitaur": ("quadruped/minitaur.urdf", ()),
    "minitaur_v1": ("quadruped/minitaur_v1.urdf", ()),
    "minitaur_derpy": ("quadruped/minitaur_derpy.urdf", ()),
    "minitaur_fixed_all": ("quadruped/minitaur_fixed_all.urdf", ()),
    "minitaur_fixed_knees": ("quadruped/minitaur_fixed_knees.urdf", ()),
    "minitaur_rainbow_dash": ("quadruped/minitaur_rainbow_dash.urdf", ()),
    "minitaur_rainbow_dash_v1": ("quadruped/minitaur_rainbow_dash_v1.urdf", ()),
    "quadruped": ("quadruped/quadruped.urdf", ()),
    "ant": ("mjcf/ant.xml", ()),
    "humanoid": ("mjcf/humanoid.xml", ()),
    "humanoid_symmetric": ("mjcf/humanoid_symmetric_no_ground.xml", ()),
}
"""Readable files, and the pose of the legs [rad]: hip, thigh, shank; straight if empty."""
EXAMPLES = {
    "a1": ("a1_description/urdf/a1", "srdf/a1"),
    "alexander": ("alexander_description/urdf/alexander_v1.lowerBodyOnly", "srdf/alexander"),
    "anymal_b": ("anymal_b_simple_description/robots/anymal", "srdf/anymal"),
    "anymal_c": ("anymal_c_simple_description/urdf/anymal", "srdf/anymal"),
    "anymal_kinova": ("anymal_b_simple_description/robots/anymal-kinova", "srdf/anymal-kinova"),
    "b1": ("b1_description/urdf/b1", "srdf/b1"),
    "b1_z1": ("b1_description/urdf/b1-z1", "srdf/b1-z1"),
    "bolt": ("bolt_description/robots/bolt", "srdf/bolt"),
    "centauro": ("centauro_description/urdf/centauro", "srdf/centauro"),
    "g1": ("g1_description/urdf/g1_29dof_rev_1_0", ""),
    "g1_hands": ("g1_description/urdf/g1_29dof_with_hand_rev_1_0", ""),
    "go1": ("go1_description/urdf/go1", "srdf/go1"),
    "go2": ("go2_description/urdf/go2", "srdf/go2"),
    "human": ("human_description/robots/human", ""),
    "hyq": ("hyq_description/robots/hyq_no_sensors", "srdf/hyq"),
    "icub": ("icub_description/robots/icub", "srdf/icub"),
    "icub_reduced": ("icub_description/robots/icub_reduced", "srdf/icub"),
    "laikago": ("laikago_description/urdf/laikago", ""),
    "quadruped": ("quadruped_description/urdf/quadruped", ""),
    "romeo_small": ("romeo_description/urdf/romeo_small", "srdf/romeo_small"),
    "simple_humanoid": ("simple_humanoid_description/urdf/simple_humanoid", "srdf/simple_humanoid"),
    "simple_humanoid_classical": (
        "simple_humanoid_description/urdf/simple_humanoid_classical",
        "srdf/simple_humanoid_classical",
    ),
    "solo": ("solo_description/robots/solo", "srdf/solo"),
    "solo12": ("solo_description/robots/solo12", "srdf/solo"),
    "talos": ("talos_data/robots/talos_reduced_box", "srdf/talos"),
    "talos_feet": ("talos_data/robots/talos_reduced", "srdf/talos"),
    "talos_full": ("talos_data/robots/talos_full_v2_box", "srdf/talos"),
}
"""URDF files, and SRDF files beside their folders, of example-robot-data, without their suffixes."""
WORDS = {  # URDF elements: attributes and children that are kept
    "link": ("name", "inertial collision contact"),
    "joint": ("name type", "origin parent child axis limit dynamics mimic"),
    "limit": ("lower upper effort velocity", ""),
    "geometry": ("", "box cylinder sphere capsule mesh"),
    "collision": ("name", "origin geometry"),
}
INSIDE = 0.1  # least initial distance of joints from their limits, relative to their range
BALL = 0.03  # m, radius of the balls at the ends of limbs


@dataclass(frozen=True)
class Standing:
    """A robot on the floor, and its initial states.

    Attributes:
        name: Origin and name.
        model: The model.
        q: Coordinates, with its lowest point on the floor, shape (nq,).
        v: Velocities: at rest, then sliding with each of `SPEEDS` in each of `HEADINGS`, shape (starts, nv).
        mass: Total mass [kg].
    """

    name: str
    model: Model
    q: Tensor
    v: Tensor
    mass: float


@dataclass(frozen=True)
class Source:
    """A robot yet to be read: its name, how to read it, and whether it needs a floor."""

    name: str
    read: Callable[[], Robot]
    ground: bool = True

    def stand(self, contact: Contact, dtype: torch.dtype = torch.float64) -> Standing:
        """The robot on the floor, with given contact options."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LeftOutWarning)
            robot = self.read()
        far = _compiled(
            robot, self.ground, Contact(margin=FAR, max_contacts=10_000, solver=PGS, iterations=1), torch.float64
        )
        q = _within_limits(far, far.initial_state().q)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnsolvedWarning)  # only the initial gaps are used
            rises = _lift(far, q) if len(far.candidates) else None
        model = _compiled(robot, self.ground, contact, dtype)
        return Standing(self.name, model, q.to(dtype), _starts(far, rises).to(dtype), float(np.sum(far.tree.mass)))


def sources(full: bool = False) -> Iterator[Source]:
    """Robots to check.

    Args:
        full: Also include robots from files, and more random ones.
    """
    yield Source("quadruped", quadruped)
    yield Source("ant", ant)
    yield Source("humanoid", humanoid)
    for seed in range(10 if full else 2):
        yield Source(f"light shanks {seed}", partial(light_shanks, seed))
    for seed in (1, 4, 5, 7, 10) if full else (1, 10):
        yield Source(f"flat feet {seed}", partial(flat_feet, seed))
    yield Source("geared hands", geared_hands)
    if full:
        yield from _of_gymnasium()
        yield from _of_pybullet()
        yield from _of_examples()


def light_shanks(seed: int) -> Robot:
    """The quadruped without armature, with shanks and thighs up to a hundred times lighter, and softer springs."""
    random = np.random.default_rng(seed)
    lighter = {"shank": 10.0 ** -random.uniform(0, 2), "thigh": 10.0 ** -random.uniform(0, 1)}
    made = quadruped(f"light_{seed}", stiffness=random.uniform(40, 150), damping=10 ** random.uniform(-2, 0))
    bodies = []
    for body in made.bodies:
        mass, share = body.mass, lighter.get(body.name.rpartition("_")[2], 1.0)
        if mass is not None:
            mass = MassProperties(share * mass.mass, mass.com, tuple(share * x for x in mass.inertia))
        joints = tuple(replace(j, armature=0.0) for j in body.joints)
        bodies.append(replace(body, mass=mass, joints=joints))
    return replace(made, bodies=tuple(bodies))


def flat_feet(seed: int) -> Robot:
    """The quadruped with light shanks on boxes, with dry friction in its joints.

    Sixteen corners that may slide, jammed by light shanks, and twelve rows that stick: for the seeds used here, guesses
    alone leave some step of 1,250 unsolved, with residuals of up to 0.26.
    """
    random, bodies = np.random.default_rng(1000 + seed), []
    for body in light_shanks(seed).bodies:
        joints = tuple(replace(j, friction=random.uniform(0.1, 2)) if j.kind == REVOLUTE else j for j in body.joints)
        shapes = tuple(
            replace(s, kind=BOX, size=(1.5 * s.size[0], s.size[0], s.size[0])) if s.kind == SPHERE else s
            for s in body.shapes
        )
        bodies.append(replace(body, joints=joints, shapes=shapes))
    return Robot(f"flat_{seed}", tuple(bodies))


def geared_hands() -> Robot:
    """The humanoid with dry friction in its joints, and two hands of six light fingers that are geared to each other.

    The effective masses of fingers' rows are up to a million times smaller than those of feet.
    """
    made = humanoid("geared_hands")
    bodies = []
    for body in made.bodies:
        joints = (replace(j, friction=DRY) if j.kind == REVOLUTE else j for j in body.joints)
        bodies.append(replace(body, joints=tuple(joints)))
    light = MassProperties(0.03, (0.0, 0.0, -0.02), (8e-6, 0.0, 0.0, 8e-6, 0.0, 8e-6))
    for hand, x in enumerate((-0.1, 0.1)):
        for finger in range(6):
            name = f"finger_{hand}_{finger}"
            mimic = Mimic(f"finger_{hand}_0", (-1.0) ** finger) if finger else None
            joint = Joint(name, REVOLUTE, axis=(0.0, 1.0, 0.0), mimic=mimic, lower=-1.0, upper=1.0)
            bodies.append(Body(name, made.bodies[0].name, Pose((x, 0.03 * finger, 0.1)), (joint,), light))
    return replace(made, bodies=tuple(bodies))


def _of_gymnasium() -> Iterator[Source]:
    folder = _package("gymnasium")
    for file in sorted(folder.glob("envs/mujoco/assets/*.xml")) if folder else ():
        yield Source(f"gymnasium {file.stem}", partial(read_mjcf, file, ignore=["fluid"]), ground=False)


def _of_pybullet() -> Iterator[Source]:
    folder = _package("pybullet_data")
    if folder is None:
        return
    for name, (file, legs) in PYBULLET.items():
        yield Source(f"pybullet {name}", partial(_pybullet_robot, folder, folder / file, legs))


def _pybullet_robot(folder: Path, file: Path, legs: tuple[float, ...]) -> Robot:
    if file.suffix == ".urdf":
        return sprung(_cleaned(file, folder), legs, {})
    return _floating(read_mjcf(file))


def _of_examples() -> Iterator[Source]:
    try:
        found = importlib.metadata.distribution("example-robot-data")
    except importlib.metadata.PackageNotFoundError:
        return
    folder = Path(str(found.locate_file("cmeel.prefix/share/example-robot-data/robots")))
    for name, (urdf, srdf) in EXAMPLES.items():
        file = folder / f"{urdf}.urdf"
        yield Source(f"example-robot-data {name}", partial(_example_robot, file, folder.parent, None))
        if srdf:
            poses = file.parent.parent / f"{srdf}.srdf"
            yield Source(f"example-robot-data {name}, bent", partial(_example_robot, file, folder.parent, poses))


def _example_robot(file: Path, package: Path, poses: Path | None) -> Robot:
    return sprung(_on_balls(_cleaned(file, package)), (), first_pose(poses) if poses else {})


def first_pose(file: Path) -> dict[str, float]:
    """Positions of the joints with one degree of freedom in the first pose of an SRDF file, by name [rad, m]."""
    state = ElementTree.parse(file).getroot().find("group_state")
    joints = [] if state is None else state.findall("joint")
    return {j.attrib["name"]: float(j.attrib["value"]) for j in joints if len(j.attrib["value"].split()) == 1}


def _floating(robot: Robot) -> Robot:
    """The robot with a free root instead of a fixed one, and without the world."""
    root, *others = (body for body in robot.bodies if body.mass is not None)
    return replace(robot, bodies=(replace(root, joints=(Joint("root", FREE),)), *others))


def _on_balls(robot: Robot) -> Robot:
    """The robot; if it has no colliding shape, with balls at its leaf bodies."""
    if any(shape.collides for body in robot.bodies for shape in body.shapes):
        return robot
    carry = {body.parent for body in robot.bodies}
    ball = Shape(SPHERE, (BALL,))
    ends = [body if body.name in carry else replace(body, shapes=(ball,)) for body in robot.bodies]
    return replace(robot, bodies=tuple(ends))


def _package(name: str) -> Path | None:
    found = importlib.util.find_spec(name)
    return None if found is None or found.origin is None else Path(found.origin).parent


def _cleaned(file: Path, package: Path) -> Robot:
    """A URDF file without visual elements, and without elements that are not part of URDF.

    Joints without position limits turn freely, as in their authors' tools.
    """
    root = ElementTree.parse(file).getroot()
    for element in root.iter():
        attributes, children = WORDS.get(element.tag, (None, None))
        if attributes is not None and children is not None:
            for name in set(element.attrib) - set(attributes.split()):
                del element.attrib[name]
            for child in [c for c in element if c.tag not in children.split()]:
                element.remove(child)
        if element.tag == "mesh" and ":" not in element.attrib["filename"]:
            element.attrib["filename"] = str((file.parent / element.attrib["filename"]).resolve())
    for child in [c for c in root if c.tag not in ("link", "joint")]:
        root.remove(child)
    for joint in root.findall("joint[@type='revolute']"):
        limit = joint.find("limit")
        if limit is not None and not {"lower", "upper"} & limit.attrib.keys():
            joint.attrib["type"] = "continuous"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / file.name
        ElementTree.ElementTree(root).write(path)
        roots = {"package_roots": {"example-robot-data": package}, "roots": [package]}
        return read_urdf(path, floating=True, repair=True, meshes="skip", **roots)  # type: ignore[arg-type]


def sprung(robot: Robot, legs: tuple[float, ...], pose: dict[str, float]) -> Robot:
    """The robot with springs and dampers whose rest pose is the initial one.

    Args:
        robot: The robot.
        legs: Angles of the joints of a leg, the same for all [rad].
        pose: Positions of joints by name, which take precedence; joints in neither are at zero [rad, m].
    """
    mass = sum(body.mass.mass for body in robot.bodies if body.mass is not None)
    bodies, at = [], 0
    for body in robot.bodies:
        joints = []
        for joint in body.joints:
            if joint.kind in (REVOLUTE, PRISMATIC) and joint.mimic is None:
                wanted = pose.get(joint.name, legs[at % len(legs)] if legs else 0.0)
                rest = _inside(wanted, joint.lower, joint.upper)
                joint = replace(joint, stiffness=STIFFNESS * mass, damping=DAMPING * mass, rest=rest)
                at += 1
            joints.append(joint)
        bodies.append(replace(body, joints=tuple(joints)))
    return replace(robot, bodies=tuple(bodies))


def _inside(value: float, lower: float, upper: float) -> float:
    """The nearest value within limits, and away from them if there are two."""
    away = INSIDE * (upper - lower) if np.isfinite(upper - lower) else 0.0
    return float(np.clip(value, lower + away, upper - away))


def _compiled(robot: Robot, ground: bool, contact: Contact, dtype: torch.dtype) -> Model:
    scene = Scene(contact=contact)
    if ground:
        scene.add_ground()
    scene.add_robot(robot, "r")
    return compile(scene, dtype)


def _within_limits(model: Model, q: Tensor) -> Tensor:
    """Coordinates with joints at the rest positions of their springs, or else as placed, away from limits."""
    tree, q = model.tree, q.clone()
    for at, d, dofs in zip(tree.q_start, tree.v_start, tree.dofs, strict=True):
        if dofs == 1 and tree.stiffness[d] > 0:
            q[int(at)] = float(tree.rest[d])
    limits = model.constraints.limits
    for at, low, high, ball in zip(limits["q"], limits["lower"], limits["upper"], limits["ball"], strict=True):
        if not ball and np.isfinite(low) and np.isfinite(high):
            q[int(at)] = _inside(float(q[int(at)]), float(low), float(high))
    return q


def _gaps(model: Model, q: Tensor) -> Tensor:
    """The smallest gap of each world [m]."""
    path = simulate(model, State(q), steps=1, dt=1e-3, record=["gap"], options=RunOptions(on_failure="status"))
    return path.recorded["gap"].flatten(1).amin(1)


def _lift(model: Model, q: Tensor) -> int | None:
    """Move q so that its lowest point is on the floor; returns the coordinate that moved, or None if it cannot move."""
    step = 0.01
    moved = q + step * torch.eye(model.nq, dtype=q.dtype)[: min(3, model.nq)]
    gaps = _gaps(model, torch.cat([q.unsqueeze(0), moved]))
    rises = (gaps[1:] - gaps[0] - step).abs() < 1e-9
    if not rises.any():
        return None
    q[int(rises.nonzero()[0])] -= gaps[0]
    return int(rises.nonzero()[0])


def _starts(model: Model, rises: int | None) -> Tensor:
    """Velocities: zero; then the root moving along the floor, or, if it has none, joints in random directions."""
    angle = 2 * np.pi * np.arange(HEADINGS) / HEADINGS
    directions = np.zeros((HEADINGS, model.nv))
    if model.tree.kind[0] == FREE_LINK:  # in the axes of the body, angular first
        directions[:, 3], directions[:, 4] = np.cos(angle), np.sin(angle)
    elif rises is not None and rises > 0:
        directions[:, 0] = np.cos(angle)  # a planar robot moves along x
    else:
        directions = np.random.default_rng(0).normal(size=directions.shape) / np.sqrt(model.nv)
    slides = [speed * directions for speed in SPEEDS]
    return torch.tensor(np.concatenate([np.zeros((1, model.nv)), *slides]))
