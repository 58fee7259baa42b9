"""Robots for the check of convergence: our own, random ones with light shanks, and those of files that others ship.

Gymnasium's MJCF files, the legged ones of PyBullet's and of example-robot-data's URDF files, each where its package is
installed. Robots of URDF files have nothing that holds their joints: they get springs and dampers about the pose they
start in. Of example-robot-data's files, what is to be seen and words that only their authors' tools know are left out.
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

from kinema.errors import LeftOutWarning
from kinema.model.model import Model, compile
from kinema.model.state import State
from kinema.model.tree import FREE as FREE_LINK
from kinema.scene.description import PRISMATIC, REVOLUTE, MassProperties, Robot
from kinema.scene.io.mjcf import read_mjcf
from kinema.scene.io.urdf import read_urdf
from kinema.scene.scene import PGS, Contact, Scene
from kinema.scene.shapes.ant import ant
from kinema.scene.shapes.humanoid import humanoid
from kinema.scene.shapes.quadruped import quadruped
from kinema.simulation.options import RunOptions
from kinema.simulation.simulate import simulate

SPEEDS, HEADINGS = (0.3, 1.0, 3.0), 8  # m/s; of starts that slide
FAR = 10.0  # m, a margin beyond all gaps
STIFFNESS, DAMPING = 5.0, 0.1  # of springs, per kilogram of the robot [N m/rad, N m s/rad]
PYBULLET = {
    "laikago": ("laikago/laikago_toes_zup.urdf", (0.0, 0.0, 0.0)),
    "a1": ("a1/a1.urdf", (0.0, 0.9, -1.8)),
    "aliengo": ("aliengo/aliengo.urdf", (0.0, 0.9, -1.8)),
    "mini_cheetah": ("mini_cheetah/mini_cheetah.urdf", (0.0, -0.8, 1.6)),
    "vision60": ("quadruped/vision60.urdf", (0.0, 0.0, 0.0)),
    "spirit40": ("quadruped/spirit40.urdf", (0.0, 0.0, 0.0)),
}
"""Files that can be read, and how the legs bend [rad]: hip, thigh, shank."""
EXAMPLES = {
    "a1": "a1_description/urdf/a1.urdf",
    "anymal_b": "anymal_b_simple_description/robots/anymal.urdf",
    "anymal_c": "anymal_c_simple_description/urdf/anymal.urdf",
    "b1": "b1_description/urdf/b1.urdf",
    "bolt": "bolt_description/robots/bolt.urdf",
    "go1": "go1_description/urdf/go1.urdf",
    "go2": "go2_description/urdf/go2.urdf",
    "hyq": "hyq_description/robots/hyq_no_sensors.urdf",
    "laikago": "laikago_description/urdf/laikago.urdf",
    "solo": "solo_description/robots/solo.urdf",
    "solo12": "solo_description/robots/solo12.urdf",
    "simple_humanoid": "simple_humanoid_description/urdf/simple_humanoid.urdf",
    "talos": "talos_data/robots/talos_reduced_box.urdf",
    "g1": "g1_description/urdf/g1_29dof_rev_1_0.urdf",
}
WORDS = {  # of URDF: attributes and children that are kept
    "link": ("name", "inertial collision"),
    "joint": ("name type", "origin parent child axis limit mimic"),
    "limit": ("lower upper effort velocity", ""),
    "geometry": ("", "box cylinder sphere mesh"),
    "collision": ("name", "origin geometry"),
}


@dataclass(frozen=True)
class Standing:
    """A robot on the floor, and the ways it starts.

    Attributes:
        name: Where it is from, and its name.
        model: The model.
        q: Coordinates, its lowest point at the floor, shape (nq,).
        v: Velocities: at rest, then sliding with each of `SPEEDS` in each of `HEADINGS`, shape (starts, nv).
        mass: Of all of it [kg].
    """

    name: str
    model: Model
    q: Tensor
    v: Tensor
    mass: float


@dataclass(frozen=True)
class Source:
    """A robot that is not read yet: its name, how to read it, and whether it needs a floor."""

    name: str
    read: Callable[[], Robot]
    ground: bool = True

    def stand(self, contact: Contact, dtype: torch.dtype = torch.float64) -> Standing:
        """The robot on the floor, with this contact."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LeftOutWarning)
            robot = self.read()
        far = _compiled(
            robot, self.ground, Contact(margin=FAR, max_contacts=10_000, solver=PGS, iterations=1), torch.float64
        )
        q = _within_limits(far, far.initial_state().q)
        rises = _lift(far, q) if len(far.candidates) else None
        model = _compiled(robot, self.ground, contact, dtype)
        return Standing(self.name, model, q.to(dtype), _starts(far, rises).to(dtype), float(np.sum(far.tree.mass)))


def sources(full: bool = False) -> Iterator[Source]:
    """Robots to check.

    Args:
        full: Also those of files, and more random ones.
    """
    yield Source("quadruped", quadruped)
    yield Source("ant", ant)
    yield Source("humanoid", humanoid)
    for seed in range(10 if full else 2):
        yield Source(f"light shanks {seed}", partial(light_shanks, seed))
    if full:
        yield from _of_gymnasium()
        yield from _of_pybullet()
        yield from _of_examples()


def light_shanks(seed: int) -> Robot:
    """The quadruped without armature, its shanks and thighs up to a hundred times lighter, its springs softer."""
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


def _of_gymnasium() -> Iterator[Source]:
    folder = _package("gymnasium")
    for file in sorted(folder.glob("envs/mujoco/assets/*.xml")) if folder else ():
        yield Source(f"gymnasium {file.stem}", partial(read_mjcf, file, ignore=["fluid"]), ground=False)


def _of_pybullet() -> Iterator[Source]:
    folder = _package("pybullet_data")
    if folder is None:
        return
    for name, (file, pose) in PYBULLET.items():
        yield Source(f"pybullet {name}", partial(_pybullet_robot, folder / file, pose))


def _pybullet_robot(file: Path, pose: tuple[float, ...]) -> Robot:
    return _sprung(read_urdf(file, floating=True, repair=True), pose)


def _of_examples() -> Iterator[Source]:
    try:
        found = importlib.metadata.distribution("example-robot-data")
    except importlib.metadata.PackageNotFoundError:
        return
    folder = Path(str(found.locate_file("cmeel.prefix/share/example-robot-data/robots")))
    for name, file in EXAMPLES.items():
        yield Source(f"example-robot-data {name}", partial(_example_robot, folder / file, folder.parent))


def _example_robot(file: Path, package: Path) -> Robot:
    return _sprung(_cleaned(file, package), ())


def _package(name: str) -> Path | None:
    found = importlib.util.find_spec(name)
    return None if found is None or found.origin is None else Path(found.origin).parent


def _cleaned(file: Path, package: Path) -> Robot:
    """A URDF file without what is only to be seen, and without words that are not URDF's."""
    root = ElementTree.parse(file).getroot()
    for element in root.iter():
        attributes, children = WORDS.get(element.tag, (None, None))
        if attributes is not None and children is not None:
            for name in set(element.attrib) - set(attributes.split()):
                del element.attrib[name]
            for child in [c for c in element if c.tag not in children.split()]:
                element.remove(child)
    for child in [c for c in root if c.tag not in ("link", "joint")]:
        root.remove(child)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / file.name
        ElementTree.ElementTree(root).write(path)
        roots = {"package_roots": {"example-robot-data": package}, "roots": [package]}
        return read_urdf(path, floating=True, repair=True, meshes="skip", **roots)  # type: ignore[arg-type]


def _sprung(robot: Robot, pose: tuple[float, ...]) -> Robot:
    """With springs and dampers about the pose of its legs, or about zero within the limits."""
    mass = sum(body.mass.mass for body in robot.bodies if body.mass is not None)
    bodies, at = [], 0
    for body in robot.bodies:
        joints = []
        for joint in body.joints:
            if joint.kind in (REVOLUTE, PRISMATIC) and joint.mimic is None:
                rest = pose[at % len(pose)] if pose else float(np.clip(0.0, joint.lower, joint.upper))
                joint = replace(joint, stiffness=STIFFNESS * mass, damping=DAMPING * mass, rest=rest)
                at += 1
            joints.append(joint)
        bodies.append(replace(body, joints=tuple(joints)))
    return replace(robot, bodies=tuple(bodies))


def _compiled(robot: Robot, ground: bool, contact: Contact, dtype: torch.dtype) -> Model:
    scene = Scene(contact=contact)
    if ground:
        scene.add_ground()
    scene.add_robot(robot, "r")
    return compile(scene, dtype)


def _within_limits(model: Model, q: Tensor) -> Tensor:
    """Joints start where their springs rest, or else where they are placed, a tenth of their range from limits."""
    tree, q = model.tree, q.clone()
    for at, d, dofs in zip(tree.q_start, tree.v_start, tree.dofs, strict=True):
        if dofs == 1 and tree.stiffness[d] > 0:
            q[int(at)] = float(tree.rest[d])
    limits = model.constraints.limits
    for at, low, high, ball in zip(limits["q"], limits["lower"], limits["upper"], limits["ball"], strict=True):
        if not ball and np.isfinite(low) and np.isfinite(high):
            inside = 0.1 * (high - low)
            q[int(at)] = q[int(at)].clamp(low + inside, high - inside)
    return q


def _gaps(model: Model, q: Tensor) -> Tensor:
    """The least gap of each world [m]."""
    path = simulate(model, State(q), steps=1, dt=1e-3, record=["gap"], options=RunOptions(on_failure="status"))
    return path.recorded["gap"].flatten(1).amin(1)


def _lift(model: Model, q: Tensor) -> int | None:
    """Move q so that its lowest point is at the floor; which coordinate that took, or None if it cannot move."""
    step = 0.01
    moved = q + step * torch.eye(model.nq, dtype=q.dtype)[: min(3, model.nq)]
    gaps = _gaps(model, torch.cat([q.unsqueeze(0), moved]))
    rises = (gaps[1:] - gaps[0] - step).abs() < 1e-9
    if not rises.any():
        return None
    q[int(rises.nonzero()[0])] -= gaps[0]
    return int(rises.nonzero()[0])


def _starts(model: Model, rises: int | None) -> Tensor:
    """At rest; then the root moving in a direction along the floor, or, if it has none, joints in random ones."""
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
