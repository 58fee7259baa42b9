"""Scenes in which something is hit, and secants over a window of starts that many impacts cross."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import kinema as kn
from kinema.scene.description import Body, Joint, MassProperties, Pose, Robot, Shape
from kinema.scene.mass_properties import mass_properties
from kinema.scene.shapes.height_field import height_field
from kinema.scene.shapes.quadruped import quadruped

G, RADIUS = 9.81, 0.1
BALL, BRICK, ROD = Shape("sphere", (RADIUS,)), Shape("box", (0.15, 0.1, 0.05)), Shape("capsule", (0.05, 0.15))


def loose(shape: Shape = BALL, mass: float = 1.0, name: str = "r") -> Robot:
    """A loose body of one shape, its mass spread evenly."""
    return Robot(
        name, (Body("b", None, Pose(), (Joint("free", "free"),), mass_properties(shape, mass=mass), (shape,)),)
    )


def world(*bodies: tuple[Robot, tuple[float, float, float]], gravity: float = G, ground: bool = True, **contact):
    """A model of bodies at places."""
    scene = kn.Scene((0.0, 0.0, -gravity), kn.Contact(**contact))
    if ground:
        scene.add_ground()
    for robot, place in bodies:
        scene.add_robot(robot, pos=place)
    return kn.compile(scene)


@dataclass
class Window:
    """Starts q + s dq, v + s dv for s in -half .. half, and what is looked at after some time.

    Attributes:
        motion: Velocities of prescribed joints at a time [s].
    """

    model: kn.Model
    dq: dict[int, float]
    half: float
    seconds: float
    seen: int
    v: dict[int, float] | None = None
    dv: dict[int, float] | None = None
    q: Tensor | None = None
    motion: Callable[[Tensor], Tensor] | None = None

    def ends(self, s: Tensor, dt: float) -> Tensor:
        """The coordinate that is looked at, for each s."""
        model = self.model
        q = (model.initial_state().q if self.q is None else self.q).expand(len(s), -1).clone()
        v = torch.zeros(len(s), model.nv, dtype=torch.float64)
        for at, x in (self.v or {}).items():
            v[:, at] = x
        for start, ways in ((q, self.dq), (v, self.dv or {})):
            for at, way in ways.items():
                start[:, at] = start[:, at] + way * s
        steps = round(self.seconds / dt)
        motion = None if self.motion is None else self.motion(dt * torch.arange(1, steps + 1, dtype=torch.float64))
        if motion is not None:
            motion = motion.expand(len(s), *motion.shape)
        return kn.simulate(model, kn.State(q, v), kn.Control(motion=motion), steps=steps, dt=dt).end.q[:, self.seen]


@dataclass
class Compared:
    """A secant, the mean of the gradients over its window, and its sampling error: half as many give so much else."""

    secant: float
    mean: float
    sampling: float
    gradients: Tensor


def compare(window: Window, dt: float, samples: int = 201) -> Compared:
    """Run all starts as one batch; means by the trapezoidal rule."""
    s = torch.linspace(-window.half, window.half, samples, dtype=torch.float64, requires_grad=True)
    ends = window.ends(s, dt)
    (g,) = torch.autograd.grad(ends.sum(), s)

    def mean(x: Tensor) -> float:
        return float(((x[1:] + x[:-1]) / 2).mean())

    secant = float((ends[-1] - ends[0]).detach()) / (2 * window.half)
    return Compared(secant, mean(g), abs(mean(g) - mean(g[::2])), g)


def turned(model: kn.Model, axis: tuple[float, float, float], angle: float) -> Tensor:
    """The first body of a model turned about an axis."""
    q = model.initial_state().q
    n = torch.tensor(axis, dtype=torch.float64)
    q[3] = math.cos(angle / 2)
    q[4:7] = math.sin(angle / 2) * n / n.norm()
    return q


def ball_window(e: float, **contact) -> Window:
    """A ball falls half a metre, and is seen after it bounced."""
    model = world((loose(), (0.0, 0.0, 0.6)), restitution=e, **contact)
    return Window(model, {2: 1.0}, 0.01, 0.5, 2)


def sideways_window(friction: float = 0.3, **contact) -> Window:
    """A ball with 1 m/s sideways bounces and is turned by friction."""
    model = world((loose(), (0.0, 0.0, 0.6)), restitution=0.8, friction=friction, **contact)
    return Window(model, {2: 1.0}, 0.01, 0.8, 0, v={3: 1.0, 4: 0.3})


def brick_window(seen: int = 2, **contact) -> Window:
    """A brick falls on a corner, and turns over others."""
    model = world((loose(BRICK), (0.0, 0.0, 0.4)), restitution=0.5, friction=0.3, **contact)
    return Window(model, {2: 1.0}, 0.01, 0.38, seen, q=turned(model, (1.0, 2.0, 0.3), 0.5), v={3: 0.5})


def rod_window(**contact) -> Window:
    """A capsule falls on one of its ends."""
    model = world((loose(ROD), (0.0, 0.0, 0.5)), restitution=0.6, friction=0.3, **contact)
    return Window(model, {2: 1.0}, 0.01, 0.5, 2, q=turned(model, (0.2, 1.0, 0.0), 1.1))


def flight_window(seen: int = 7, **contact) -> Window:
    """Two balls meet in flight, off centre."""
    bodies = (loose(mass=1.0), (0.0, 0.0, 2.0)), (loose(mass=2.0), (0.6, 0.08, 2.03))
    model = world(*bodies, restitution=0.8, friction=0.3, ground=False, **contact)
    return Window(model, {0: 1.0}, 0.01, 0.4, seen, v={3: 2.0, 2: 3.0, 9: -1.0})


def cradle_window(gap: float, seen: int = 14, e: float = 1.0, **contact) -> Window:
    """A ball hits the first of two others, which are a gap apart."""
    width = 2 * RADIUS
    places = (-0.3, 0.0, 0.0), (width, 0.0, 0.0), (2 * width + gap, 0.0, 0.0)
    model = world(*((loose(), at) for at in places), gravity=0.0, ground=False, friction=0.0, restitution=e, **contact)
    return Window(model, {0: 1.0}, 0.01, 0.5, seen, v={3: 1.0})


def slope_window(**contact) -> Window:
    """A ball bounces on a slope of triangles."""
    scene = kn.Scene((0.0, 0.0, -G), kn.Contact(restitution=0.7, friction=0.4, **contact))
    slope = np.linspace(0.4, -0.4, 5)[None, :].repeat(3, 0)
    terrain = Shape("terrain", mesh=height_field(slope, 4.0, 4.0))
    scene.add_robot(Robot("hill", (Body("hill", None, Pose(), (), None, (terrain,)),)))
    scene.add_robot(loose(), pos=(0.1, 0.1, 0.6))
    return Window(kn.compile(scene), {2: 1.0}, 0.01, 0.6, 0)


def limit_window(kind: str = "revolute", e: float = 0.6, **contact) -> Window:
    """A pendulum, or a sledge, hits its limit."""
    scene = kn.Scene((0.0, 0.0, -G), kn.Contact(limit_restitution=e, **contact))
    if kind == "ball":
        hinge, start, way = Joint("hinge", "ball", upper=0.9), {1: math.sin(0.25)}, {1: 1.0}
    elif kind == "revolute":
        hinge, start, way = Joint("hinge", "revolute", (0.0, 1.0, 0.0), lower=-0.1, upper=2.0), {0: 0.8}, {0: 1.0}
    else:
        hinge, start, way = Joint("hinge", "prismatic", (0.0, 0.0, 1.0), lower=-0.3), {0: 0.1}, {0: 1.0}
    mass = MassProperties(1.0, (0.0, 0.0, -0.5), (0.02, 0.0, 0.0, 0.03, 0.0, 0.01))
    scene.add_robot(Robot("r", (Body("rod", None, Pose(), (hinge,), mass),)))
    model = kn.compile(scene)
    q, v = model.initial_state().q, None
    for at, x in start.items():
        q[at] = x
    if kind == "ball":
        q[0] = math.cos(0.25)
        v = {0: 5.0, 1: 0.5}
    return Window(model, way, 0.01, 0.5 if kind == "ball" else 0.6, next(iter(way)), q=q, v=v)


def quadruped_window(e: float, seen: int = 2, **contact) -> Window:
    """A quadruped lands."""
    model = world((quadruped(), (0.0, 0.0, 0.15)), restitution=e, **contact)
    return Window(model, {2: 1.0}, 0.005, 0.3, seen, v={3: 0.5})


def paddle_window(**contact) -> Window:
    """A plate that moves up as it is told hits a ball that falls."""
    scene = kn.Scene((0.0, 0.0, -G), kn.Contact(restitution=0.7, friction=0.2, **contact))
    slide, plate = Joint("slide", "prismatic", (0.0, 0.0, 1.0)), Shape("box", (0.5, 0.5, 0.05))
    paddle = Robot("paddle", (Body("plate", None, Pose(), (slide,), MassProperties(1.0), (plate,)),))
    scene.add_robot(paddle, prescribed=["slide"])
    scene.add_robot(loose(), pos=(0.02, 0.0, 0.6))
    told = lambda t: 0.8 * torch.sin(8.0 * t)[:, None]  # noqa: E731
    return Window(kn.compile(scene), {3: 1.0}, 0.01, 0.6, 3, motion=told)
