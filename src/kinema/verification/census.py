"""Census of robot files: every URDF and MJCF file of gymnasium, PyBullet and example-robot-data that is installed.

Per file: the reader options that it needs, mass matrix and bias forces beside Pinocchio (URDF) or MuJoCo (MJCF), motion
beside MuJoCo in the law "convex", and the gradient beside central differences. Of PyBullet's thousand random objects,
which differ in their mesh only, every fiftieth.

Robots of URDF files are free if their root has a mass, and move twice: without floor from a random state within their
limits, and onto a floor.
MJCF files move as they are. MuJoCo takes Euler steps, and its solver converges to rounding.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch
from torch import Tensor

from kinema.errors import KinemaError, LeftOutWarning, ModelError, UnsolvedWarning
from kinema.kinematics.joint_types import FREE
from kinema.model.model import Model, compile
from kinema.model.state import State
from kinema.scene.contact import CONVEX, Contact
from kinema.scene.description import Robot
from kinema.scene.io.mjcf import IGNORABLE, read_mjcf
from kinema.scene.io.urdf import read_urdf
from kinema.scene.scene import Scene, set_free
from kinema.simulation.robot_dynamics import inverse_dynamics, mass_matrix
from kinema.simulation.simulate import simulate
from kinema.verification.mujoco_scene import mujoco_model, mujoco_state, state_from_mujoco

EXPLAINED = {
    "point.xml": (("motion",), "its ball touches the floor to rounding and cannot move away: forces act by chance"),
    "striker.xml": (("bias", "motion"), "armature of a free joint acts along the axes of the body, there of the world"),
}
"""Differences that have a reason, by the name of the file: columns and the reason."""
EVERY = 50  # of PyBullet's random objects
STEPS, DT, SPEED = 50, 2e-3, 0.3  # s, and rad/s or m/s
CHECKED = 10  # steps of gradients
HEIGHT, FAR = 1e-3, 100.0  # m above the floor, and where distances are no longer measured
SIZES = (1e-4, 1e-5, 1e-6, 1e-7)  # of differences; the best counts, because contacts switch
VALUES, MOTION, GRADIENT = 1e-10, 1e-8, 1e-5
"""Limits: of mass matrix and bias, relative; of positions without contact [m, rad]; of slopes, relative."""

Options = dict[str, Any]
URDF_OPTIONS: tuple[Options, ...] = (
    {},
    {"repair": True},
    {"meshes": "skip"},
    {"repair": True, "meshes": "skip"},
)
MJCF_OPTIONS: tuple[Options, ...] = ({}, *({"ignore": [name]} for name in IGNORABLE), {"ignore": list(IGNORABLE)})


@dataclass(frozen=True)
class File:
    """A robot file: the package that it is from, its path, and the folder of its package."""

    package: str
    path: Path
    folder: Path

    @property
    def name(self) -> str:
        """Package and path in it."""
        return f"{self.package}: {self.path.relative_to(self.folder)}"

    @property
    def is_urdf(self) -> bool:
        """Whether it is a URDF file."""
        return self.path.suffix == ".urdf"


@dataclass
class Row:
    """What was found of a file; None: not compared, for the reason in `note`.

    Attributes:
        file: Name of the file.
        options: Reader options that it needs, the fewest.
        refused: First line of the error, if no options help.
        nv: Degrees of freedom.
        mass, bias: Largest relative difference of the mass matrix and of bias forces.
        motion: Largest difference of coordinates after `STEPS` [m, rad]: URDF without floor, MJCF as in the file.
        landing: The same on a floor.
        gradient: Relative error of the slope along a direction, with the hard law.
        note: Why something was not compared.
    """

    file: str
    options: str = ""
    refused: str = ""
    nv: int = 0
    mass: float | None = None
    bias: float | None = None
    motion: float | None = None
    landing: float | None = None
    gradient: float | None = None
    note: str = ""

    def wrong(self) -> list[str]:
        """The comparisons that exceed their limits."""
        limits = {"mass": VALUES, "bias": VALUES, "motion": MOTION, "gradient": GRADIENT}
        found = [name for name, limit in limits.items() if (x := getattr(self, name)) is not None and not x <= limit]
        return [name for name in found if name not in _explained(self)]


def files() -> Iterator[File]:
    """All robot files of the installed packages."""
    for package, pattern in (("gymnasium", "envs/mujoco/assets/*.xml"), ("pybullet_data", "**/*")):
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:
            continue
        folder = Path(found.origin).parent
        for path in sorted(folder.glob(pattern)):
            is_object = "random_urdfs" in path.parts
            if path.suffix == ".urdf" and not (is_object and int(path.stem) % EVERY):
                yield File(package, path, folder)
            if path.suffix == ".xml" and _is_mjcf(path):
                yield File(package, path, folder)
    try:
        of_examples = importlib.metadata.distribution("example-robot-data")
    except importlib.metadata.PackageNotFoundError:
        return
    folder = Path(str(of_examples.locate_file("cmeel.prefix/share/example-robot-data")))
    for path in sorted(folder.glob("robots/**/*.urdf")):
        yield File("example-robot-data", path, folder)


def missing() -> list[str]:
    """The packages that are not installed, by their names on PyPI."""
    wanted = {"mujoco": "mujoco-core", "pinocchio": "pin", "gymnasium": "gymnasium", "pybullet_data": "pybullet"}
    absent = [package for module, package in wanted.items() if importlib.util.find_spec(module) is None]
    try:
        importlib.metadata.distribution("example-robot-data")
    except importlib.metadata.PackageNotFoundError:
        absent.append("example-robot-data")
    return absent


def examine(file: File) -> Row:
    """Read a file, compile it and compare it."""
    row = Row(file.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftOutWarning)
        warnings.simplefilter("ignore", UnsolvedWarning)  # residuals are not the subject here
        robot = _read(file, row)
        if robot is None:
            return row
        try:
            model = compile(_scene(robot, Contact(law=CONVEX), False), torch.float64)
        except KinemaError as error:
            row.note = str(error).splitlines()[0]
            return row
        row.nv = model.nv
        try:
            if row.nv:
                (_compare_urdf if file.is_urdf else _compare_mjcf)(file, robot, model, row)
        except ModelError as error:
            row.note = str(error).splitlines()[0]
    return row


def summary(rows: Sequence[Row]) -> str:
    """What was found of some files, in a sentence."""
    read = [row for row in rows if not row.refused]
    plain = [row for row in read if not row.options]
    told = [f"{len(plain)} of {len(rows)} files load as they are, {len(read) - len(plain)} with options"]
    for name, what in (("mass", "mass matrix"), ("bias", "bias"), ("motion", "motion"), ("gradient", "gradient")):
        found = [x for row in read if (x := getattr(row, name)) is not None and name not in _explained(row)]
        told.append(f"{what} of {len(found)} within {max(found, default=0.0):.0e}")
    landed = [row.landing for row in read if row.landing is not None]
    near = sum(x <= MOTION for x in landed)
    told.append(f"{near} of {len(landed)} land as in MuJoCo (others on corners of hulls)")
    return "; ".join(told)


def _explained(row: Row) -> tuple[str, ...]:
    """Columns whose difference has a reason."""
    return EXPLAINED.get(row.file.rpartition("/")[2], ((), ""))[0]


def _is_mjcf(path: Path) -> bool:
    try:
        return ElementTree.parse(path).getroot().tag == "mujoco"
    except ElementTree.ParseError:
        return "<mujoco" in path.read_text(errors="replace")


def _read(file: File, row: Row) -> Robot | None:
    """The robot, with the fewest options; None, with the reason in the row, if none helps."""
    first = ""
    for options in URDF_OPTIONS if file.is_urdf else MJCF_OPTIONS:
        try:
            if file.is_urdf:
                packages = {file.package: file.folder}
                robot = read_urdf(file.path, package_roots=packages, roots=[file.folder], **options)
                robot = set_free(robot) if _has_heavy_root(robot) else robot
            else:
                robot = read_mjcf(file.path, roots=[file.folder], **options)
        except KinemaError as error:
            first = first or str(error).splitlines()[0]
            continue
        row.options = ", ".join(f"{name}={value!r}" for name, value in options.items())
        return robot
    row.refused = first
    return None


def _has_heavy_root(robot: Robot) -> bool:
    return any(body.parent is None and body.mass is not None and body.mass.mass > 0 for body in robot.bodies)


def _scene(robot: Robot, contact: Contact, floor: bool) -> Scene:
    options = robot.options
    scene = Scene(contact=contact) if options is None else Scene(options.gravity, contact)
    if floor:
        scene.add_ground()
    scene.add_robot(robot, "r", self_collision=options is not None)
    return scene


def random_state(model: Model, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Coordinates within limits, free bodies as placed but turned, and small velocities."""
    random, tree = np.random.default_rng(seed), model.tree
    q = model.initial_state().q
    for i, kind in enumerate(tree.types):
        a = int(tree.q_start[i])
        if kind.quaternion is not None:
            turn = random.normal(size=4)
            q[a + kind.quaternion : a + kind.quaternion + 4] = torch.tensor(turn / np.linalg.norm(turn))
        elif kind.is_single:
            q[a] = random.uniform(-0.5, 0.5)
    limits = model.constraints.limits
    for at, low, high, ball in zip(limits["q"], limits["lower"], limits["upper"], limits["ball"], strict=True):
        if ball:
            q[int(at) : int(at) + 4] = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
        else:
            low, high = max(float(low), -1.0), min(float(high), 1.0)
            q[int(at)] = low + (high - low) * random.uniform(0.2, 0.8) if low < high else low
    followers = model.constraints.followers
    for at, leader, scale, offset in zip(
        *(followers[name] for name in ("q", "leader_q", "multiplier", "offset")), strict=True
    ):
        q[int(at)] = scale * q[int(leader)] + offset
    return q, torch.tensor(SPEED * random.normal(size=model.nv))


# -- URDF ------------------------------------------------------------------------------------------------------------


def _compare_urdf(file: File, robot: Robot, model: Model, row: Row) -> None:
    if any("repaired" in note for note in robot.notes):
        row.note = "repaired inertias: not those of Pinocchio"
    else:
        row.mass, row.bias = _beside_pinocchio(file.path, model)
    q, v = random_state(model)
    row.motion = _motion(_scene(robot, Contact(law=CONVEX), False), q, v)
    solid = any(shape.collides for body in robot.bodies for shape in body.shapes)
    if solid:
        floor = _scene(robot, Contact(law=CONVEX), True)
        q = _above_floor(floor, q)
        row.landing = _motion(floor, q, v)
    row.gradient = _gradient_error(_scene(robot, Contact(), solid), q)


def _beside_pinocchio(path: Path, model: Model) -> tuple[float, float]:
    """Relative differences of mass matrix and bias at a random state.

    Links of no mass have no inertia: only Pinocchio keeps one that they are said to have.
    """
    import pinocchio

    root = ElementTree.fromstring(path.read_text(errors="replace").strip())
    for link in root.iter("link"):
        inertial = link.find("inertial")
        mass = inertial.find("mass") if inertial is not None else None
        if inertial is not None and mass is not None and float(mass.get("value", "0")) == 0:
            link.remove(inertial)
    text = ElementTree.tostring(root, encoding="unicode")
    is_free = FREE in model.tree.kind
    twin = pinocchio.buildModelFromXML(text, *([pinocchio.JointModelFreeFlyer()] if is_free else []))
    tree, (q, v) = model.tree, random_state(model)
    there, order = pinocchio.neutral(twin), np.zeros(model.nv, int)
    for i, name in enumerate(tree.joints):
        at, d = int(tree.q_start[i]), int(tree.v_start[i])
        number = twin.getJointId("root_joint" if tree.kind[i] == FREE else name.removeprefix("r/"))
        to_q, to_v = twin.idx_qs[number], twin.idx_vs[number]
        if tree.kind[i] == FREE:
            there[to_q : to_q + 7] = q.numpy()[at + np.array([0, 1, 2, 4, 5, 6, 3])]
            order[d : d + 6] = to_v + np.array([3, 4, 5, 0, 1, 2])
            continue
        order[d] = to_v
        if twin.nqs[number] == 2:  # continuous joints have a point on the circle there
            there[to_q : to_q + 2] = math.cos(q[at]), math.sin(q[at])
        else:
            there[to_q] = q[at]
    if sorted(order) != list(range(twin.nv)):
        raise AssertionError("Pinocchio's model has other joints")
    velocity, data = np.zeros(twin.nv), twin.createData()
    velocity[order] = v
    M = pinocchio.crba(twin, data, there)
    M = (np.triu(M) + np.triu(M, 1).T)[np.ix_(order, order)]
    bias = pinocchio.nonLinearEffects(twin, data, there, velocity)[order]
    return _relative(mass_matrix(model, q), M), _relative(inverse_dynamics(model, q, v, torch.zeros_like(v)), bias)


# -- MJCF ------------------------------------------------------------------------------------------------------------


def _compare_mjcf(file: File, robot: Robot, model: Model, row: Row) -> None:
    import mujoco

    rival = mujoco.MjModel.from_xml_path(str(file.path))
    q, v = random_state(model)
    row.mass, row.bias = _beside_mujoco(model, rival, q, v)
    initial = model.initial_state().q
    row.gradient = _gradient_error(_scene(robot, Contact(), False), initial)
    if "ignore" in row.options:
        row.note = "something is left out: another motion"
        return
    assert robot.options is not None
    contact = Contact(law=CONVEX, cone=robot.options.elliptic, impratio=robot.options.impratio)
    row.motion = _motion(_scene(robot, contact, False), initial, v, rival=rival)


def _beside_mujoco(model: Model, rival: Any, q: Tensor, v: Tensor) -> tuple[float, float]:
    """Relative differences of mass matrix and bias at a state."""
    import mujoco

    data, tree = mujoco.MjData(rival), model.tree
    data.qpos[:], data.qvel[:] = mujoco_state(model, rival, q, v)
    mujoco.mj_forward(rival, data)
    M = np.zeros((rival.nv, rival.nv))
    mujoco.mj_fullM(rival, data, M)
    columns = [state_from_mujoco(model, rival, data.qpos, unit)[1].numpy() for unit in np.eye(rival.nv)]
    T, rate = np.array(columns).T, v.numpy()
    a = np.zeros(model.nv)  # ours where MuJoCo's is zero: the axes of a free joint turn
    for i, kind in enumerate(tree.types):
        if kind.position:
            s = int(tree.v_start[i])
            a[s + 3 : s + 6] = -np.cross(rate[s : s + 3], rate[s + 3 : s + 6])
    bias = inverse_dynamics(model, q, v, torch.tensor(a)).numpy()
    return _relative(T.T @ mass_matrix(model, q).numpy() @ T, M), _relative(T.T @ bias, np.asarray(data.qfrc_bias))


# -- both ------------------------------------------------------------------------------------------------------------


def _motion(scene: Scene, q: Tensor, v: Tensor, rival: Any = None) -> float:
    """The largest difference of coordinates from MuJoCo's after `STEPS` [m, rad].

    Args:
        scene: The scene, in the law "convex".
        q: Initial coordinates.
        v: Initial velocities.
        rival: MuJoCo's model; of the scene, if None.
    """
    import mujoco

    model = compile(scene, torch.float64)
    dt = DT if rival is None else float(rival.opt.timestep)
    rival = mujoco_model(scene, model, dt) if rival is None else rival
    rival.opt.integrator, rival.opt.solver = mujoco.mjtIntegrator.mjINT_EULER, mujoco.mjtSolver.mjSOL_NEWTON
    rival.opt.tolerance, rival.opt.iterations, rival.opt.ls_tolerance, rival.opt.ls_iterations = 0.0, 200, 1e-12, 200
    data = mujoco.MjData(rival)
    data.qpos[:], data.qvel[:] = mujoco_state(model, rival, q, v)
    path = simulate(model, State(q, v), steps=STEPS, dt=dt)
    for _ in range(STEPS):
        mujoco.mj_step(rival, data)
    there, _ = state_from_mujoco(model, rival, data.qpos, data.qvel)
    return float((path.end.q - there).abs().max())


def _above_floor(scene: Scene, q: Tensor) -> Tensor:
    """Coordinates with the free root upright, `HEIGHT` above the floor: the first geom of MuJoCo's model."""
    import mujoco

    model = compile(scene, torch.float64)
    if FREE not in model.tree.kind:
        return q
    rival = mujoco_model(scene, model, DT)
    data, placed = mujoco.MjData(rival), q.clone()
    placed[:7] = model.initial_state().q[:7]
    data.qpos[:], data.qvel[:] = mujoco_state(model, rival, placed, torch.zeros(model.nv, dtype=q.dtype))
    mujoco.mj_forward(rival, data)
    gaps = [mujoco.mj_geomDistance(rival, data, g, 0, FAR, None) for g in range(1, rival.ngeom)]
    placed[2] += HEIGHT - min(gaps)
    return placed


def _gradient_error(scene: Scene, q: Tensor) -> float:
    """Relative error of the slope of a loss of the end along a direction of the initial velocities and controls."""
    model = compile(scene, torch.float64)
    random = np.random.default_rng(1)
    v = torch.tensor(SPEED * random.normal(size=model.nv))
    u = torch.zeros(CHECKED, len(model.actuators), dtype=torch.float64)
    along = [torch.tensor(random.normal(size=part.shape)) for part in (v, u)]
    weights = torch.tensor(random.normal(size=model.nv))

    def loss(v: Tensor, u: Tensor) -> Tensor:
        given = u if u.shape[-1] else None
        return weights @ simulate(model, State(q, v), given, steps=CHECKED, dt=DT).end.v

    leaves = [v.clone().requires_grad_(), u.clone().requires_grad_()]
    found = torch.autograd.grad(loss(*leaves), leaves, allow_unused=True)
    slope = sum(float((g * d).sum()) for g, d in zip(found, along, strict=True) if g is not None)
    errors = []
    for h in SIZES:
        with torch.no_grad():
            up, down = (float(loss(v + s * h * along[0], u + s * h * along[1])) for s in (1.0, -1.0))
        errors.append(abs((up - down) / (2 * h) - slope) / max(abs(slope), 1e-9))
    return min(errors)


def _relative(ours: Any, theirs: np.ndarray) -> float:
    found = ours.numpy() if isinstance(ours, Tensor) else ours
    return float(np.abs(found - theirs).max(initial=0.0) / max(np.abs(theirs).max(initial=0.0), 1e-300))
