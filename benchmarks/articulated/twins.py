"""Third-party robots, which Kinema is not tuned for, in Kinema and in MuJoCo.

Gymnasium's MJCF files, PyBullet's URDF files, and Kinema's quadruped without armature. MuJoCo reads the same file. Both
engines use these changes: friction is `FRICTION` for all, because the engines combine the two coefficients of a pair
differently; shapes collide with the floor, and with each other only if `self_collision` is set; joints of URDF files
get springs and dampers about a standing pose, because nothing else would hold them. MuJoCo always uses Newton's method
with its default number of iterations and tolerance, pyramidal cones, Euler, condim 3 and no margin; contacts stay soft
as in its solref and solimp. The time step is the file's, or 2 ms if it has none.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import kinema as kn
from kinema.scene.description import FREE, Actuator, Robot
from kinema.scene.shapes.quadruped import quadruped

from . import mjcf

FRICTION = 0.8
SHARE = 0.03  # standard deviation of a control, as a fraction of its range
TORQUE = 0.5  # N m, for controls without a range
DT = 2e-3  # s, for files without a time step
STIFFNESS, DAMPING = 100.0, 2.0  # N m/rad, N m s/rad
MASS_ERROR = 1e-9  # largest difference of the mass matrices, relative
A1_POSE, LAIKAGO_POSE = (0.0, 0.9, -1.8), (0.0, 0.0, 0.0)  # hip, thigh, shank [rad]


@dataclass(frozen=True)
class Twins:
    """One robot on the floor in both engines.

    Attributes:
        name: Name of the robot.
        model: Kinema's model.
        rival: MuJoCo's model.
        dt: Time step [s].
        q: Kinema's initial coordinates, shape (nq,); at rest.
        qpos: MuJoCo's coordinates of the same pose.
        range: Standard deviations of the random controls, shape (controls,).
        height: Index of the coordinate that is the height of the root.
    """

    name: str
    model: kn.Model
    rival: Any
    dt: float
    q: torch.Tensor
    qpos: np.ndarray
    range: np.ndarray
    height: int

    def controls(self, steps: int, seed: int = 0) -> np.ndarray:
        """Small random controls, shape (steps, controls)."""
        return self.range * np.random.default_rng(seed).normal(size=(steps, len(self.range)))


def gymnasium_robot(name: str) -> Callable[..., Twins]:
    """The twins of one of Gymnasium's files."""

    def make(contact: kn.Contact, self_collision: bool) -> Twins:
        import mujoco

        file = _package("gymnasium") / "envs" / "mujoco" / "assets" / f"{name}.xml"
        spec = mujoco.MjSpec.from_file(str(file))
        return _twins(name, kn.read_mjcf(file), spec, contact, self_collision, spec.option.timestep)

    return make


def pybullet_robot(name: str, file: str, pose: tuple[float, float, float]) -> Callable[..., Twins]:
    """The twins of one of PyBullet's quadrupeds, with its legs in this pose."""

    def make(contact: kn.Contact, self_collision: bool) -> Twins:
        import mujoco

        path = _package("pybullet_data") / file
        robot, spec = kn.read_urdf(path, floating=True), mujoco.MjSpec.from_file(str(path))
        turned = [j for body in robot.bodies for j in body.joints if j.kind != FREE]
        rest = {joint.name: pose[i % 3] for i, joint in enumerate(turned)}
        spec.worldbody.first_body().add_freejoint(name="root")
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1])
        for joint in turned:
            spec.add_actuator(trntype=mujoco.mjtTrn.mjTRN_JOINT, target=joint.name)
        return _twins(name, _sprung(robot, rest), spec, contact, self_collision, DT, ground=True)

    return make


def light_quadruped(contact: kn.Contact, self_collision: bool) -> Twins:
    """Kinema's quadruped without armature."""
    import mujoco

    made = quadruped()
    bodies = (replace(b, joints=tuple(replace(j, armature=0.0) for j in b.joints)) for b in made.bodies)
    motors = (Actuator(j.name, j.name) for b in made.bodies for j in b.joints if j.kind != FREE)
    robot = replace(made, bodies=tuple(bodies), actuators=tuple(motors))
    spec = mujoco.MjSpec.from_string(mjcf.write([("r", robot, (0.0, 0.0, 0.0))], DT))
    return _twins("quadruped, no armature", robot, spec, contact, self_collision, DT, ground=True)


ROBOTS: dict[str, Callable[..., Twins]] = {
    "ant": gymnasium_robot("ant"),
    "humanoid": gymnasium_robot("humanoid"),
    "half_cheetah": gymnasium_robot("half_cheetah"),
    "hopper": gymnasium_robot("hopper"),
    "walker2d": gymnasium_robot("walker2d"),
    "laikago": pybullet_robot("laikago", "laikago/laikago_toes_zup.urdf", LAIKAGO_POSE),
    "a1": pybullet_robot("a1", "a1/a1.urdf", A1_POSE),
    "quadruped, no armature": light_quadruped,
}


def missing() -> str:
    """A message that names missing packages; empty if none is missing."""
    wanted = {"mujoco": "mujoco-core", "gymnasium": "gymnasium", "pybullet_data": "pybullet"}
    absent = [package for module, package in wanted.items() if importlib.util.find_spec(module) is None]
    return f"not installed: pip install {' '.join(absent)}" if absent else ""


def make(name: str, contact: kn.Contact | None = None, self_collision: bool = False) -> Twins:
    """A robot in both engines.

    Args:
        name: A key of `ROBOTS`.
        contact: Kinema's contact options; `FRICTION` overrides its friction.
        self_collision: Whether links collide with each other, in both engines.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kn.LeftOutWarning)
        return ROBOTS[name](contact or kn.Contact(), self_collision)


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None, f"{name} is not installed"
    return Path(found.origin).parent


def _sprung(robot: Robot, rest: dict[str, float]) -> Robot:
    """The robot with springs and dampers about a pose."""
    spring = {"stiffness": STIFFNESS, "damping": DAMPING}
    bodies = []
    for body in robot.bodies:
        joints = (replace(j, rest=rest[j.name], **spring) if j.name in rest else j for j in body.joints)
        bodies.append(replace(body, joints=tuple(joints)))
    return replace(robot, bodies=tuple(bodies))


def _twins(
    name: str, robot: Robot, spec: Any, contact: kn.Contact, self_collision: bool, dt: float, ground: bool = False
) -> Twins:
    """Both engines' models, with the robot placed so that it just touches the floor."""
    made = kn.Scene(contact=replace(contact, friction=FRICTION))
    if ground:
        made.add_ground()
    bodies = (replace(b, shapes=tuple(replace(s, friction=None) for s in b.shapes)) for b in robot.bodies)
    made.add_robot(replace(robot, bodies=tuple(bodies)), "r", self_collision=self_collision)
    model, rival = kn.compile(made, torch.float64), _rival(spec, dt, self_collision)
    q, qpos, height = model.initial_state().q, rival.qpos0.copy(), 2 if model.nq > model.nv else 1
    if ground:
        _spring(model, rival)
    for d, at in enumerate(_coordinates(model)):
        if at >= 0:  # a revolute or prismatic joint; q is qpos minus the file's `ref`
            start = float(model.tree.rest[d]) if ground else 0.0
            q[at] = start
            qpos[at] += start
    _within_limits(model, q, qpos)
    lowest = _lowest(rival, qpos)
    q[height] -= lowest
    qpos[height] -= lowest
    _check_mass(name, model, rival, q, qpos)
    low, high = rival.actuator_ctrlrange.T
    drawn = np.where(rival.actuator_ctrllimited.astype(bool), SHARE * (high - low) / 2, TORQUE)
    assert len(drawn) == len(model.actuators), f"{name}: controls differ"
    return Twins(name, model, rival, dt, q, qpos, drawn, height)


def _rival(spec: Any, dt: float, self_collision: bool) -> Any:
    """MuJoCo's model, with the common options."""
    import mujoco

    standard, option = mujoco.MjOption(), spec.option
    option.timestep = dt
    option.solver, option.cone = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtCone.mjCONE_PYRAMIDAL
    option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    option.iterations, option.tolerance = standard.iterations, standard.tolerance
    for geom in spec.geoms:
        geom.condim, geom.margin, geom.gap = 3, 0.0, 0.0
        geom.friction = [FRICTION, 0.0, 0.0]
        if not self_collision and (geom.contype or geom.conaffinity):
            geom.contype, geom.conaffinity = 2, 1
    if not self_collision:
        for floor in spec.worldbody.geoms:
            floor.contype, floor.conaffinity = 1, 0
    return spec.compile()


def _spring(model: kn.Model, rival: Any) -> None:
    """Give MuJoCo's joints the springs and dampers of Kinema's; both have the same joints in the same order."""
    names = [rival.joint(i).name for i in range(rival.njnt)]
    assert [n.rpartition("/")[2] for n in names] == [n.rpartition("/")[2] for n in model.joints], names
    rival.jnt_stiffness[1:], rival.qpos_spring[7:] = model.tree.stiffness[6:], model.tree.rest[6:]
    rival.dof_damping[6:] = model.tree.damping[6:]


def _coordinates(model: kn.Model) -> list[int]:
    """For every degree of freedom, the coordinate that it moves; -1 for those of free joints."""
    tree, found = model.tree, [-1] * model.nv
    for at, d, dofs in zip(tree.q_start, tree.v_start, tree.dofs, strict=True):
        if dofs == 1:
            found[int(d)] = int(at)
    return found


def _within_limits(model: kn.Model, q: torch.Tensor, qpos: np.ndarray) -> None:
    """Move joints that would start beyond a limit to a tenth of their range inside it."""
    limits = model.constraints.limits
    for at, low, high in zip(limits["q"], limits["lower"], limits["upper"], strict=True):
        inside = 0.1 * (high - low)
        if not low <= q[int(at)] <= high:
            moved = float(q[int(at)].clamp(low + inside, high - inside) - q[int(at)])
            q[int(at)] += moved
            qpos[int(at)] += moved


def _lowest(rival: Any, qpos: np.ndarray) -> float:
    """Distance from the floor to the lowest point of the robot [m]."""
    import mujoco

    data = mujoco.MjData(rival)
    data.qpos[:] = qpos
    mujoco.mj_forward(rival, data)
    floor = next(g for g in range(rival.ngeom) if rival.geom_type[g] == mujoco.mjtGeom.mjGEOM_PLANE)
    touching = [g for g in range(rival.ngeom) if g != floor and (rival.geom_contype[g] or rival.geom_conaffinity[g])]
    return min(mujoco.mj_geomDistance(rival, data, g, floor, 10.0, None) for g in touching)


def _check_mass(name: str, model: kn.Model, rival: Any, q: torch.Tensor, qpos: np.ndarray) -> None:
    """Check that both have the same initial mass matrix; the axes of the roots are then those of the world."""
    import mujoco

    data, M = mujoco.MjData(rival), np.zeros((rival.nv, rival.nv))
    data.qpos[:] = qpos
    mujoco.mj_forward(rival, data)
    mujoco.mj_fullM(rival, data, M)
    order = list(range(rival.nv))
    if model.nq > model.nv:  # a free joint: linear first there, angular first here
        order[:6] = [3, 4, 5, 0, 1, 2]
    ours = kn.mass_matrix(model, q).numpy()
    error = float(np.abs(ours - M[np.ix_(order, order)]).max() / np.abs(M).max())
    assert error < MASS_ERROR, f"{name}: mass matrices differ by {error:.1e}"
