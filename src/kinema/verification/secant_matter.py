"""Scenes of soft matter in contact, like `secant_scenes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kinema.model.model import Model, compile
from kinema.scene.description import BOX, PRISMATIC, SPHERE, Actuator, Body, Joint, Pose, Robot, Shape
from kinema.scene.mass_properties import mass_properties, quaternion
from kinema.scene.matter import Cloth, Skin, Solid
from kinema.scene.scene import Scene
from kinema.scene.shapes.ball import ball
from kinema.scene.shapes.block import block
from kinema.scene.shapes.sheet import sheet
from kinema.simulation.simulate import simulate
from kinema.simulation.smoke import SmokeBox, simulate_smoke
from kinema.simulation.trajectory import Trajectory
from kinema.verification.secant_scenes import Curve

RUBBER = Solid(density=300.0, mu=4e3, lam=6e3, viscosity=2.0)
WOOL = Cloth(density=0.3, mu=60.0, lam=40.0, viscosity=0.02, bending=1e-4)


def moved(
    model: Model,
    time: float,
    end: Callable[[Trajectory], Tensor],
    *,
    of: str,
    along: int = 2,
    speed: tuple[float, float, float] = (0.0, 0.0, 0.0),
    **given: Any,
) -> Curve:
    """The result of a run by the initial offset of a soft body along an axis; it starts with a speed [m/s]."""
    placed = model.initial_state()
    x0, v0 = placed.x, placed.xd
    own = model.matter.particles(of)
    dx = torch.zeros_like(x0)
    dx[own, along] = 1.0
    v0 = v0.clone()
    v0[own] += torch.tensor(speed, dtype=x0.dtype)

    def run(s: Tensor, dt: float) -> Tensor:
        state = placed.expand(len(s)).replace(x=x0 + s[:, None, None] * dx, xd=v0.expand(len(s), -1, -1))
        return end(simulate(model, state, steps=round(time / dt), dt=dt, **given))

    return run


def middle(model: Model, of: str, axis: int) -> Callable[[Trajectory], Tensor]:
    """The mean of a coordinate over an object's vertices."""
    own = model.matter.particles(of)

    def end(path: Trajectory) -> Tensor:
        return path.end.x[:, own, axis].mean(-1)

    return end


def soft_ball(axis: int, skin: Skin, integrator: str = "euler") -> Curve:
    """A soft ball is thrown at the ground: its final position, by its initial height."""
    scene = Scene()
    scene.add_ground()
    scene.add_solid(ball(radius=0.1, layers=1), "ball", material=RUBBER, skin=skin, pos=(0.0, 0.0, 0.25))
    model = compile(scene, torch.float64)
    end = middle(model, "ball", axis)
    return moved(model, 0.2, end, of="ball", speed=(0.5, 0.0, -1.0), integrator=integrator)


def cube_on_edge() -> Curve:
    """A soft cube falls on one of its edges: its final position, by its initial height."""
    scene = Scene()
    scene.add_ground()
    skin = Skin(k_e=300.0, k_d=1.0, k_f=2.0, friction=0.3)
    tilt = quaternion(0.6, "y")
    cube = block((2, 2, 2), 0.06)
    scene.add_solid(cube, "cube", material=RUBBER, skin=skin, pos=(0.0, 0.0, 0.25), rot=tilt)
    model = compile(scene, torch.float64)
    return moved(model, 0.2, middle(model, "cube", 0), of="cube", speed=(0.0, 0.0, -1.0))


def cloth_on_sphere() -> Curve:
    """Cloth falls on a fixed sphere: its final height, by its initial height."""
    scene = Scene()
    dome = Shape(SPHERE, (0.15,))
    scene.add_robot(Robot("dome", (Body("dome", None, Pose(), (), None, (dome,)),)))
    skin = Skin(radius=0.005, k_e=50.0, k_d=0.05, k_f=0.2, friction=0.3)
    scene.add_cloth(sheet(0.3, 0.3, (6, 6)), "cloth", material=WOOL, skin=skin, pos=(0.01, 0.02, 0.2))
    model = compile(scene, torch.float64)
    return moved(model, 0.2, middle(model, "cloth", 2), of="cloth", speed=(0.0, 0.0, -0.5))


def particles() -> Curve:
    """Three particles at different heights are thrown at the ground: their mean final position, by their height."""
    scene = Scene()
    scene.add_ground()
    skin = Skin(radius=0.02, k_e=400.0, k_d=1.0, k_f=2.0, friction=0.3)
    places = [(0.0, 0.0, 0.2), (0.2, 0.0, 0.23), (0.4, 0.0, 0.26)]
    scene.add_particles(places, "beads", mass=0.05, skin=skin)
    model = compile(scene, torch.float64)
    return moved(model, 0.3, middle(model, "beads", 0), of="beads", speed=(1.0, 0.0, -1.0))


def self_contact() -> Curve:
    """A small cloth falls on a soft ball: its final height, by its initial height."""
    skin = Skin(thickness=0.03, k_e=20.0, k_d=0.02, k_f=0.1, friction=0.3)
    scene = Scene((0.0, 0.0, -9.81))
    scene.add_solid(ball(radius=0.1, layers=1), "ball", material=RUBBER, skin=skin)
    scene.attach("ball", [0])
    scene.add_cloth(sheet(0.2, 0.2, (4, 4)), "cloth", material=WOOL, skin=skin, pos=(0.01, 0.02, 0.16))
    model = compile(scene, torch.float64)
    return moved(model, 0.12, middle(model, "cloth", 2), of="cloth", speed=(0.0, 0.0, -0.5))


def gripper() -> Curve:
    """Two fingers close on a soft cube and push it along: its final position, by its initial one."""
    bodies, drives = [], []
    for name, side in (("left", -1.0), ("right", 1.0)):
        pad = Shape(BOX, (0.01, 0.05, 0.05), name="pad")
        slide = Joint(name, PRISMATIC, (-side, 0.0, 0.0), damping=5.0)  # positive: closes
        bodies.append(
            Body(name, None, Pose((side * 0.075, 0.0, 0.0)), (slide,), mass_properties(pad, mass=0.2), (pad,))
        )
        drives.append(Actuator(name, name))
    scene = Scene((0.0, 0.0, 0.0))
    scene.add_robot(Robot("gripper", tuple(bodies), tuple(drives)))
    skin = Skin(k_e=300.0, k_d=1.0, k_f=5.0, friction=0.5)
    scene.add_solid(block((2, 2, 2), 0.04), "cube", material=RUBBER, skin=skin, pos=(0.005, 0.0, 0.0))
    model = compile(scene, torch.float64)
    end = middle(model, "cube", 0)

    def push(s: Tensor, dt: float) -> Tensor:
        steps = round(0.25 / dt)
        u = torch.tensor([4.0, 2.5], dtype=s.dtype).expand(len(s), steps, 2)
        return moved(model, 0.25, end, of="cube", along=0, u=u)(s, dt)

    return push


def smoke() -> Curve:
    """A puff of smoke blows against a wall of its box: its final mean position, by the initial wind speed."""
    cells = (24, 24)
    box = SmokeBox(cells, 1.0)
    x = (torch.arange(24, dtype=torch.float64) + 0.5) / 24
    puff = torch.exp(-((x[:, None] - 0.6) ** 2 + (x[None, :] - 0.5) ** 2) / 0.01)
    wind = torch.zeros(2, 24, 24, dtype=torch.float64)
    wind[0] = torch.exp(-((x[None, :] - 0.5) ** 2) / 0.02)

    def run(s: Tensor, dt: float) -> Tensor:
        velocity = (1.0 + s)[:, None, None, None] * wind
        density = puff.expand(len(s), 1, 24, 24)
        path = simulate_smoke(box, density, velocity, steps=round(0.4 / dt), dt=dt)
        end = path.end.density[:, 0]
        return (end * x[:, None]).sum((-2, -1)) / end.sum((-2, -1))

    return run
