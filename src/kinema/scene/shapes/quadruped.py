"""A quadruped, the size of a Laikago."""

from __future__ import annotations

from kinema.scene.description import (
    BOX,
    CAPSULE,
    FREE,
    REVOLUTE,
    SPHERE,
    Body,
    Joint,
    MassProperties,
    Pose,
    Robot,
    Shape,
)
from kinema.scene.mass_properties import mass_properties

TRUNK = (0.56, 0.17, 0.14)  # m
HIP_X, HIP_Y, THIGH_Y, LEG = 0.2, 0.1, 0.03, 0.25  # m
FOOT = 0.02  # m


def quadruped(name: str = "quadruped", stiffness: float = 100.0, damping: float = 2.0, collides: bool = False) -> Robot:
    """Trunk, four legs of hip, thigh and shank, and a ball for each foot: 18 degrees of freedom, 13 bodies, 20 kg.

    Joint springs keep the legs bent, so that it stands without control. Only its feet collide by default.

    Args:
        name: Name of the robot.
        stiffness: Stiffness of the joint springs [N m/rad].
        damping: Joint damping [N m s/rad].
        collides: Whether trunk and legs collide as well.
    """
    trunk = Shape(BOX, (TRUNK[0] / 2, TRUNK[1] / 2, TRUNK[2] / 2), collides=collides)
    bodies = [Body("trunk", None, Pose((0.0, 0.0, 0.45)), (Joint("root", FREE),), _brick(12.0, *TRUNK), (trunk,))]
    for leg, x, y in (("fl", 1, 1), ("fr", 1, -1), ("rl", -1, 1), ("rr", -1, -1)):

        def joint(part: str, axis: tuple[float, float, float], rest: float, leg: str = leg) -> tuple[Joint]:
            spring = {"armature": 0.01, "damping": damping, "stiffness": stiffness, "rest": rest}
            return (Joint(f"{leg}_{part}", REVOLUTE, axis, effort=50.0, **spring),)  # type: ignore[arg-type]

        hip, thigh, shank = f"{leg}_hip", f"{leg}_thigh", f"{leg}_shank"
        rod = Shape(CAPSULE, (0.02, LEG / 2), Pose((0.0, 0.0, -LEG / 2)), collides=collides)
        foot = Shape(SPHERE, (FOOT,), Pose((0.0, 0.0, -LEG)), name="foot")
        along_x, along_y = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
        place = Pose((x * HIP_X, y * HIP_Y, 0.0))
        bodies.append(Body(hip, "trunk", place, joint("abduction", along_x, 0.0), _brick(0.7, 0.08, 0.08, 0.08)))
        place = Pose((0.0, y * THIGH_Y, 0.0))
        bodies.append(Body(thigh, hip, place, joint("swing", along_y, 0.6), _rod(1.0), (rod,)))
        place = Pose((0.0, 0.0, -LEG))
        bodies.append(Body(shank, thigh, place, joint("knee", along_y, -1.2), _rod(0.3), (rod, foot)))
    return Robot(name, tuple(bodies))


def _brick(mass: float, x: float, y: float, z: float) -> MassProperties:
    return mass_properties(Shape(BOX, (x / 2, y / 2, z / 2)), mass=mass)


def _rod(mass: float, radius: float = 0.02) -> MassProperties:
    across, along = mass / 12 * LEG**2, mass * radius**2 / 2
    return MassProperties(mass, (0.0, 0.0, -LEG / 2), (across, 0.0, 0.0, across, 0.0, along))
