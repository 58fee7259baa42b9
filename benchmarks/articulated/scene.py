"""The robot of this benchmark, its worlds, and the torques that shake it.

Masses are those of PEERS' quadruped (a Laikago): trunk 13.715 kg, hip 1.095, thigh 1.527, calf 0.241 and toe 0.06 kg.
Springs of 100 N m/rad about the stand pose and dampers of 2 N m s/rad hold it up; torques of 0.5 N m (normal, drawn
for every joint and step) shake it; friction 0.8, time step 2 ms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

import kinema as kn
from kinema.scene.description import MassProperties, Robot
from kinema.scene.shapes.quadruped import FOOT, LEG, TRUNK, quadruped

DT = 2e-3  # s
FRICTION = 0.8
SWEEPS = 15  # PGS iterations, as found by `run.choose_sweeps`
RELAXATION = (0.8, 1.4)  # over-relaxation of normal and friction rows: 16 iterations do what 36 do with (1, 1)
TORQUE = 0.5  # N m
STIFFNESS, DAMPING = 100.0, 2.0  # N m/rad, N m s/rad
JOINTS = 12
SPACING = 1.5  # m between robots of one world
HEIGHT = 2 * LEG * math.cos(0.6) + FOOT  # height of the trunk when the feet just touch


@dataclass(frozen=True)
class Case:
    """Inputs of every engine.

    Attributes:
        robots: Number of robots in the world.
        steps: Number of steps.
        sweeps: PGS iterations of the peers that solve Kinema's equations, and of Kinema beside them; Newton's method,
            Kinema's default, does not use them.
        torques: Joint torques [N m], shape (steps, 12 * robots).
    """

    robots: int
    steps: int
    sweeps: int
    torques: np.ndarray


def case(robots: int, steps: int, sweeps: int = SWEEPS) -> Case:
    """A case; torques of shorter cases are the first torques of longer ones."""
    return Case(robots, steps, sweeps, torques(steps, robots))


def torques(steps: int, robots: int = 1, seed: int = 0) -> np.ndarray:
    """Normally distributed torques of every joint in every step [N m], shape (steps, 12 * robots)."""
    return TORQUE * np.random.default_rng(seed).normal(size=(steps, JOINTS * robots))


def robot() -> Robot:
    """The quadruped of `kinema.shapes` with this benchmark's masses."""
    masses = {"trunk": _box(13.715, *TRUNK), "hip": _box(1.095, 0.08, 0.08, 0.08)}
    masses |= {"thigh": _rod(1.527), "shank": _rod_with_toe(0.241, 0.06)}
    made = quadruped("dog", STIFFNESS, DAMPING)
    bodies = []
    for body in made.bodies:
        shapes = tuple(
            replace(shape, group=2, mask=1) for shape in body.shapes
        )  # robots collide with the ground, not with each other
        bodies.append(replace(body, mass=masses[body.name.rpartition("_")[2]], shapes=shapes))
    return replace(made, bodies=tuple(bodies))


def model(robots: int, sweeps: int | None = None, dtype: torch.dtype = torch.float64) -> kn.Model:
    """The robots in a row on the ground.

    Args:
        robots: Number of robots.
        sweeps: Solve contacts by this many relaxed PGS iterations, in whole steps like the PGS peers; by default
            Kinema's default solver.
        dtype: Precision.
    """
    words = {"solver": "pgs", "iterations": sweeps, "relaxation": RELAXATION, "time_of_impact": False}
    words = {} if sweeps is None else words
    scene = kn.Scene(contact=kn.Contact(friction=FRICTION, **words))
    scene.add_ground()
    for k in range(robots):
        scene.add_robot(robot(), f"dog{k}", pos=(0.0, SPACING * k, 0.0))
    return kn.compile(scene, dtype)


def start(compiled: kn.Model) -> tuple[torch.Tensor, torch.Tensor]:
    """Coordinates and velocities: every robot at rest in the standing pose, with its feet on the ground."""
    q = compiled.initial_state().q
    for k in range(compiled.nv // (6 + JOINTS)):
        q[19 * k + 2] = HEIGHT
        q[19 * k + 7 : 19 * (k + 1)] = torch.tensor(compiled.tree.rest[18 * k + 6 : 18 * (k + 1)], dtype=q.dtype)
    return q, torch.zeros(compiled.nv, dtype=q.dtype)


def joint_forces(given: np.ndarray, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Torques (..., 12 * robots) as generalised forces (..., 18 * robots), zero on the trunks."""
    robots = given.shape[-1] // JOINTS
    padded = np.zeros((*given.shape[:-1], robots, 6 + JOINTS))
    padded[..., 6:] = given.reshape(*given.shape[:-1], robots, JOINTS)
    return torch.tensor(padded.reshape(*given.shape[:-1], -1), dtype=dtype)


def of_joints(forces: np.ndarray) -> np.ndarray:
    """The entries of the joints alone, shape (..., 12 * robots)."""
    robots = forces.shape[-1] // (6 + JOINTS)
    return forces.reshape(*forces.shape[:-1], robots, -1)[..., 6:].reshape(*forces.shape[:-1], -1)


def _box(mass: float, x: float, y: float, z: float) -> MassProperties:
    xx, yy, zz = (mass / 12 * s for s in (y * y + z * z, x * x + z * z, x * x + y * y))
    return MassProperties(mass, (0.0, 0.0, 0.0), (xx, 0.0, 0.0, yy, 0.0, zz))


def _rod(mass: float, radius: float = 0.02) -> MassProperties:
    across, along = mass / 12 * LEG**2, mass * radius**2 / 2
    return MassProperties(mass, (0.0, 0.0, -LEG / 2), (across, 0.0, 0.0, across, 0.0, along))


def _rod_with_toe(rod: float, toe: float) -> MassProperties:
    """A rod and, at its end, a ball."""
    mass, ball = rod + toe, 0.4 * toe * FOOT**2
    com = -(rod * LEG / 2 + toe * LEG) / mass
    across = rod / 12 * LEG**2 + rod * (com + LEG / 2) ** 2 + ball + toe * (com + LEG) ** 2
    return MassProperties(mass, (0.0, 0.0, com), (across, 0.0, 0.0, across, 0.0, rod * 0.02**2 / 2 + ball))
