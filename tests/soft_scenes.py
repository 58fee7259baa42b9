"""Scenes with soft matter, in contact from the start, for tests of gradients and conservation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

import kinema as kn
from kinema.scene.description import (
    BOX,
    FREE,
    PRISMATIC,
    REVOLUTE,
    SPHERE,
    Body,
    Joint,
    MassProperties,
    Pose,
    Robot,
    Shape,
)
from kinema.scene.shapes.ball import ball
from kinema.scene.shapes.block import block
from kinema.scene.shapes.sheet import sheet

SKIN = kn.Skin(radius=0.01, k_e=800.0, k_d=0.5, k_f=2.0, friction=0.6)


def loose_ball(mass: float, radius: float) -> Robot:
    """A rigid ball that nothing holds."""
    inertia = 0.4 * mass * radius**2
    told = MassProperties(mass, (0.0, 0.0, 0.0), (inertia, 0.0, 0.0, inertia, 0.0, inertia))
    return Robot("ball", (Body("ball", joints=(Joint("free", FREE),), mass=told, shapes=(Shape(SPHERE, (radius,)),)),))


def obstacles() -> Robot:
    """A ball and a box that stand still."""
    shapes = (
        Shape(SPHERE, (0.12,), Pose((0.02, 0.03, 0.05))),
        Shape(BOX, (0.1, 0.15, 0.06), Pose((0.24, 0.02, 0.05))),
    )
    return Robot("obstacles", (Body("all", shapes=shapes),))


def gripper(gap: float, mass: float = 0.4, floating: bool = False) -> Robot:
    """A palm with two fingers that slide along x; `gap` is between them [m]."""
    palm_mass = MassProperties(1.0, (0.0, 0.0, 0.0), (0.02, 0.0, 0.0, 0.02, 0.0, 0.02))
    palm = Body(
        "palm",
        joints=(Joint("free", FREE),) if floating else (Joint("lift", PRISMATIC, (0.0, 0.0, 1.0)),),
        mass=palm_mass,
        shapes=(Shape(BOX, (0.25, 0.05, 0.02)),),
    )
    told = MassProperties(mass, (0.0, 0.0, -0.1), (2e-3, 0.0, 0.0, 2e-3, 0.0, 1e-3))
    half = 0.02

    def finger(name: str, side: float) -> Body:
        at = Pose((side * (0.5 * gap + half), 0.0, -0.05))
        slide = Joint(f"{name}_slide", PRISMATIC, (-side, 0.0, 0.0), damping=0.5)
        shape = Shape(BOX, (half, 0.08, 0.12), Pose((0.0, 0.0, -0.1)))
        return Body(name, "palm", at, (slide,), told, (shape,))

    return Robot("gripper", (palm, finger("left", -1.0), finger("right", 1.0)))


def arm() -> Robot:
    """Two links that swing about y; a box at the end can rest on the ground."""
    told = MassProperties(0.6, (0.1, 0.0, 0.0), (1e-3, 0.0, 0.0, 4e-3, 0.0, 4e-3))
    hinge = (0.0, 1.0, 0.0)
    bodies = (
        Body("upper", joints=(Joint("shoulder", REVOLUTE, hinge, damping=0.05),), mass=told),
        Body(
            "hand",
            "upper",
            Pose((0.2, 0.0, 0.0)),
            (Joint("elbow", REVOLUTE, hinge, damping=0.05),),
            told,
            (Shape(BOX, (0.03, 0.1, 0.02), Pose((0.2, 0.0, 0.0))),),
        ),
    )
    return Robot("arm", bodies)


def moved(model: kn.Model, seed: int, stretch: float = 0.002, speed: float = 0.2) -> tuple[Tensor, Tensor]:
    """Particles near where they are placed, and moving, at random."""
    rng = np.random.default_rng(seed)
    placed = model.initial_state()
    drawn = [torch.tensor(rng.normal(size=placed.x.shape)) for _ in range(2)]
    return placed.x + stretch * drawn[0], placed.xd + speed * drawn[1]


def varied(model: kn.Model, names: tuple[str, ...], seed: int) -> dict[str, Tensor]:
    """Parameters that differ from element to element, by a twentieth."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, value in model.parameters(*names).items():
        noise = torch.randn(value.shape, dtype=value.dtype, generator=generator)
        found[name] = value * (1.0 + 0.05 * noise)
    return found


def solid_scene(cone: bool = True) -> kn.Model:
    """A block of soft solid on ground, ball and box."""
    skin = replace(SKIN, cone=cone)
    scene = kn.Scene()
    scene.add_ground()
    scene.add_robot(obstacles())
    material = kn.Solid(density=400.0, mu=1e4, lam=3e4, viscosity=8.0, activation=0.05)
    scene.add_solid(block((4, 2, 2), 0.08), "cube", material=material, skin=skin, pos=(0.1, 0.02, 0.17))
    low = kn.Solid(density=300.0, mu=8e3, lam=2e4)
    scene.add_solid(ball(0.1, 1), "ball", material=low, skin=SKIN, pos=(-0.3, 0.0, 0.08))
    return kn.compile(scene, torch.float64)


def cloth_scene() -> kn.Model:
    """A cloth over a ball and the ground, held at two corners, in the wind."""
    scene = kn.Scene(wind=(3.0, 1.0, 0.5))
    scene.add_ground(0.157)
    scene.add_robot(obstacles())
    material = kn.Cloth(
        density=0.5,
        mu=300.0,
        lam=400.0,
        viscosity=0.05,
        activation=0.03,
        bending=0.02,
        bending_damping=1e-4,
        fold=0.1,
        drag=0.6,
        lift=0.4,
    )
    cloth = sheet(0.6, 0.5, (6, 5))
    scene.add_cloth(cloth, "cloth", material=material, skin=SKIN, pos=(0.1, 0.0, 0.165))
    scene.attach("cloth", [0, 5])
    return kn.compile(scene, torch.float64)


def beads_scene() -> kn.Model:
    """Particles with springs, on ground, ball and box."""
    scene = kn.Scene()
    scene.add_ground()
    scene.add_robot(obstacles())
    rng = np.random.default_rng(5)
    i, j = np.divmod(np.arange(20), 4)
    at = np.stack([0.1 * i - 0.12, 0.08 * j - 0.1, 0.17 * (i % 4 != 3) * (i > 0) + 0.0 * i], 1)
    at += 0.004 * rng.normal(size=at.shape)
    ends = [(k, k + 1) for k in range(19) if k % 4 < 3] + [(k, k + 4) for k in range(16)]
    springs = kn.Springs(np.array(ends), stiffness=150.0, damping=0.2)
    scene.add_particles(at, "beads", mass=rng.uniform(0.01, 0.03, 20), springs=springs, skin=SKIN)
    return kn.compile(scene, torch.float64)


def gripper_scene(floating: bool = False) -> kn.Model:
    """A gripper that squeezes a soft cube, without ground."""
    scene = kn.Scene()
    scene.add_robot(gripper(0.15, floating=floating))
    material = kn.Solid(density=400.0, mu=1e4, lam=3e4, viscosity=5.0)
    scene.add_solid(block((2, 2, 2), 0.07), "cube", material=material, skin=SKIN, pos=(0.0, 0.01, -0.14))
    return kn.compile(scene, torch.float64)


def pinned_scene() -> kn.Model:
    """An arm that carries a cube and a cloth by some of their vertices."""
    scene = kn.Scene(wind=(3.0, 0.5, 2.0))
    scene.add_ground(-0.362)
    scene.add_robot(arm())
    solid = kn.Solid(density=300.0, mu=1e4, lam=3e4, viscosity=5.0)
    scene.add_solid(block((2, 2, 2), 0.05), "cube", material=solid, skin=SKIN, pos=(0.48, 0.0, 0.0))
    scene.attach("cube", scene.matter[0].rest[:, 0] < -0.04, "arm/hand")
    material = kn.Cloth(density=0.5, mu=200.0, lam=300.0, bending=0.01, drag=2.0, lift=2.0)
    scene.add_cloth(sheet(0.2, 0.2, (3, 3)), "flag", material=material, skin=SKIN, pos=(0.2, 0.0, -0.35))
    scene.attach("flag", [0, 1], "arm/upper")
    return kn.compile(scene, torch.float64)


def coupled_scene(solver: str = "pgs") -> kn.Model:
    """Robots in hard contact with the ground and each other, amid cloth, a solid and beads that touch them."""
    scene = kn.Scene(wind=(2.0, 1.0, 2.0), contact=kn.Contact(solver=solver))
    scene.add_ground()
    scene.add_robot(loose_ball(2.0, 0.15), pos=(0.02, 0.03, 0.15 - 2e-5))
    scene.add_robot(loose_ball(1.0, 0.08), "second", pos=(0.24, 0.03, 0.08 - 2e-5))
    scene.add_robot(arm(), pos=(-0.55, 0.0, 0.02 - 2e-5))
    cloth = kn.Cloth(
        density=1.0,
        mu=300.0,
        lam=400.0,
        viscosity=0.05,
        bending=0.05,
        bending_damping=1e-3,
        fold=0.05,
        drag=2.0,
        lift=2.0,
    )
    scene.add_cloth(sheet(0.6, 0.6, (6, 6)), "cloth", material=cloth, skin=SKIN, pos=(0.0, 0.0, 0.305))
    scene.attach("cloth", [0, 6])
    scene.attach("cloth", [3], "arm/upper")
    solid = kn.Solid(density=300.0, mu=1e4, lam=3e4, viscosity=5.0)
    scene.add_solid(block((2, 2, 2), 0.08), "cube", material=solid, skin=SKIN, pos=(0.05, 0.255, 0.085))
    springs = kn.Springs(np.array([[0, 1], [1, 2], [0, 2]]), stiffness=100.0, damping=0.2)
    beads = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.1, 0.1, 0.0]])
    scene.add_particles(beads, "beads", mass=0.05, springs=springs, pos=(0.22, 0.1, 0.006), skin=SKIN)
    return kn.compile(scene, torch.float64)


def set_in_motion(model: kn.Model, seed: int) -> tuple[Tensor | None, Tensor | None]:
    """Coordinates as placed, and small velocities at random; None without joints."""
    if not model.nv:
        return None, None
    rng = np.random.default_rng(100 + seed)
    return model.initial_state().q, 0.1 * torch.tensor(rng.normal(size=model.nv))
