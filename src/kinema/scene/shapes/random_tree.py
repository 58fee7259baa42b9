"""Random robots, for tests and for learning across designs."""

from __future__ import annotations

import numpy as np

from kinema.scene.description import (
    BALL,
    FREE,
    PRISMATIC,
    REVOLUTE,
    Body,
    Joint,
    MassProperties,
    Pose,
    Robot,
    Vector,
)
from kinema.scene.joint_types import SINGLE


def random_tree(
    seed: int,
    bodies: int,
    *,
    kinds: tuple[str, ...] = (REVOLUTE, PRISMATIC, BALL),
    floating: bool = False,
    fixed: float = 0.1,
    double: float = 0.1,
) -> Robot:
    """A kinematic tree with random masses, poses and joints.

    Args:
        seed: Seed of the random numbers.
        bodies: Number of bodies.
        kinds: Joint kinds to draw from.
        floating: Whether the root has a free joint; otherwise it is attached to the world.
        fixed: Probability that a body is fixed to its parent.
        double: Probability of a second joint on a body whose first joint is not a ball joint.

    Returns:
        Bodies of 0.5 to 2 kg with physical inertias, a few decimetres apart.
    """
    random = np.random.default_rng(seed)
    made: list[Body] = []
    for i in range(bodies):
        joints: list[Joint] = []
        if i == 0 and floating:
            joints = [Joint("joint0", FREE)]
        elif i == 0 or random.random() >= fixed:
            drawn = [str(random.choice(kinds))]
            if random.random() < double and BALL not in drawn and len(set(kinds) - {BALL}) > 0:
                drawn.append(str(random.choice([kind for kind in kinds if kind != BALL])))
            joints = [_joint(random, f"joint{i}" + "_b" * k, kind) for k, kind in enumerate(drawn)]
        parent = f"body{random.integers(max(0, i - 4), i)}" if i else None
        pose = Pose(_vector(0.3 * random.normal(size=3)), _quaternion(random))
        made.append(Body(f"body{i}", parent, pose, tuple(joints), _mass(random)))
    return Robot(f"tree{seed}", tuple(made))


def _joint(random: np.random.Generator, name: str, kind: str) -> Joint:
    axis = random.normal(size=3)
    return Joint(
        name,
        kind,
        axis=_vector(axis / np.linalg.norm(axis)),
        anchor=_vector(0.1 * random.normal(size=3)),
        armature=float(random.uniform(0, 0.05)),
        damping=float(random.uniform(0, 0.5)),
        stiffness=float(random.uniform(0, 5)) if kind in SINGLE else 0.0,
        rest=float(random.normal()) if kind in SINGLE else 0.0,
    )


def _mass(random: np.random.Generator) -> MassProperties:
    mass = float(random.uniform(0.5, 2))
    spread = mass * random.uniform(0.02, 0.2, 3) ** 2  # along the principal axes
    axes = np.linalg.qr(random.normal(size=(3, 3)))[0]
    I = axes @ np.diag(spread.sum() - spread) @ axes.T
    inertia = (I[0, 0], I[0, 1], I[0, 2], I[1, 1], I[1, 2], I[2, 2])
    return MassProperties(mass, _vector(0.1 * random.normal(size=3)), tuple(map(float, inertia)))  # type: ignore[arg-type]


def _vector(numbers: np.ndarray) -> Vector:
    x, y, z = map(float, numbers)
    return x, y, z


def _quaternion(random: np.random.Generator) -> tuple[float, float, float, float]:
    q = random.normal(size=4)
    w, x, y, z = map(float, q / np.linalg.norm(q))
    return w, x, y, z
