"""Scenes of rigid bodies whose impacts move through time steps as one initial value moves: see `secants`.

Each scene is a function that returns a curve: from offsets s, shape (n,), and a time step to the result of n worlds, a
scalar each, shape (n,), differentiable with respect to s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.model.model import Model, compile
from kinema.model.state import State
from kinema.scene.contact import Contact
from kinema.scene.description import (
    BALL,
    BOX,
    CAPSULE,
    FREE,
    PRISMATIC,
    REVOLUTE,
    SPHERE,
    Actuator,
    Body,
    Joint,
    MassProperties,
    Pose,
    Robot,
    Shape,
)
from kinema.scene.mass_properties import capsule_between, mass_properties
from kinema.scene.scene import Scene
from kinema.scene.shapes.golf import TOUCH, golf_ball, golfer
from kinema.scene.shapes.height_field import height_field
from kinema.scene.shapes.quadruped import quadruped
from kinema.simulation.control import Control
from kinema.simulation.simulate import simulate
from kinema.simulation.trajectory import Trajectory

Curve = Callable[[Tensor, float], Tensor]
Numbers = Sequence[float]
X, Z, TURN = 0, 2, 5  # coordinates of a free body; TURN: about y
VX, VZ, SPIN = 3, 5, 1  # its velocities


def curve(
    model: Model,
    time: float,
    end: Callable[[Trajectory], Tensor],
    *,
    q: dict[int, float] | None = None,
    v: dict[int, float] | None = None,
    by_q: dict[int, float] | None = None,
    by_v: dict[int, float] | None = None,
    **given: Any,
) -> Curve:
    """The result of a run as a function of an offset of the initial state.

    Args:
        model: The model.
        time: Duration [s].
        end: The result of each world.
        q: Coordinates that differ from the initial state, by index.
        v: Velocities that are not zero.
        by_q: Derivatives of coordinates by the offset.
        by_v: Derivatives of velocities by the offset.
        given: Further arguments of `simulate`; arguments that depend on the number of steps are functions of it.
    """
    q0, v0 = model.initial_state().q, torch.zeros(model.nv, dtype=model.dtype)
    dq, dv = torch.zeros_like(q0), torch.zeros_like(v0)
    for target, values in ((q0, q), (v0, v), (dq, by_q), (dv, by_v)):
        for index, value in (values or {}).items():
            target[index] = value

    def run(s: Tensor, dt: float) -> Tensor:
        steps = round(time / dt)
        words = {name: word(steps, dt) if callable(word) else word for name, word in given.items()}
        return end(simulate(model, State(q0 + s[:, None] * dq, v0 + s[:, None] * dv), steps=steps, dt=dt, **words))

    return run


def coordinate(index: int) -> Callable[[Trajectory], Tensor]:
    """A final coordinate."""
    return lambda path: path.end.q[:, index]


def loose(shape: Shape, name: str = "body", mass: float = 1.0) -> Robot:
    """A free rigid body."""
    return Robot(
        name, (Body("body", None, Pose(), (Joint("free", FREE),), mass_properties(shape, mass=mass), (shape,)),)
    )


@cache
def on_ground(kind: str, size: tuple[float, ...], **contact: Any) -> Model:
    """One free rigid body above the ground."""
    scene = Scene(contact=Contact(**contact))
    scene.add_ground()
    scene.add_robot(loose(Shape(kind, size)))
    return compile(scene)


def ball(**contact: Any) -> Model:
    """A ball of 10 cm."""
    return on_ground(SPHERE, (0.1,), **contact)


def fallen(model: Model, height: float, time: float, of: int, **words: Any) -> Curve:
    """A coordinate some time after a fall, by the drop height."""
    return curve(model, time, coordinate(of), q={Z: height, **words.pop("q", {})}, by_q={Z: 1.0}, **words)


def turned(vector: Numbers) -> dict[int, float]:
    """The quaternion of a free body rotated by a rotation vector [rad]."""
    angle = float(np.linalg.norm(vector))
    part = np.sin(angle / 2) / angle * np.array(vector)
    return {3: float(np.cos(angle / 2)), 4: float(part[0]), 5: float(part[1]), 6: float(part[2])}


TILTED = turned((0.5, 0.35, 0.2))


def box(**contact: Any) -> Model:
    """A box of 20 x 16 x 12 cm."""
    return on_ground(BOX, (0.1, 0.08, 0.06), **contact)


def capsule(**contact: Any) -> Model:
    """A capsule of 30 cm."""
    return on_ground(CAPSULE, (0.05, 0.1), **contact)


def two_balls() -> Curve:
    """One ball hits another, slightly off-centre: final position of the second, by the first's initial position."""
    scene = Scene((0.0, 0.0, 0.0), Contact(restitution=0.8, friction=0.0))
    for name in ("a", "b"):
        scene.add_robot(loose(Shape(SPHERE, (0.1,)), name))
    at = {0: -0.5, 7: 0.0, 9: 0.05}
    return curve(compile(scene), 0.4, coordinate(7), q=at, v={VX: 2.0}, by_q={0: 1.0})


def two_robots(restitution: float) -> Curve:
    """Two robots of two hinged rods collide in flight: position of the second's trunk, by the first's position."""
    scene = Scene((0.0, 0.0, 0.0), Contact(restitution=restitution, friction=0.3, time_of_impact=True))
    for name, side in (("a", 1.0), ("b", -1.0)):
        rod = capsule_between((0.0, 0.0, -0.15), (0.0, 0.0, 0.15), 0.04)
        arm = capsule_between((0.0, 0.0, 0.0), (side * 0.2, 0.0, 0.05), 0.03)
        hinge = Joint("hinge", REVOLUTE, (0.0, 1.0, 0.0), damping=0.05, stiffness=2.0)
        trunk = Body("trunk", None, Pose(), (Joint("free", FREE),), mass_properties(rod, mass=1.0), (rod,))
        hand = Body("hand", "trunk", Pose((side * 0.04, 0.0, 0.1)), (hinge,), mass_properties(arm, mass=0.3), (arm,))
        scene.add_robot(Robot(name, (trunk, hand)))
    model = compile(scene)
    return curve(model, 0.4, coordinate(8), q={0: -0.7, 8: 0.0, 9: 0.01, 10: -0.06}, v={VX: 2.0}, by_q={0: 1.0})


def cradle() -> Curve:
    """Newton's cradle of three: position of the last ball, by the angle of the first. Gaps of 1 mm."""
    bodies = []
    for i in range(3):
        shape = Shape(SPHERE, (0.05,), Pose((0.0, 0.0, -0.5)))
        hinge = Joint(f"hinge{i}", REVOLUTE, (0.0, -1.0, 0.0))
        bodies.append(
            Body(f"ball{i}", None, Pose((0.101 * i, 0.0, 0.0)), (hinge,), mass_properties(shape, mass=1.0), (shape,))
        )
    scene = Scene(contact=Contact(restitution=1.0, friction=0.0, iterations=100))
    scene.add_robot(Robot("cradle", tuple(bodies)), self_collision=True)
    return curve(compile(scene), 0.55, coordinate(2), q={0: -0.4}, by_q={0: 1.0})


def terrain() -> Curve:
    """A ball bounces on a slope of triangles: its final position, by its initial height."""
    heights = np.tile(np.linspace(0.0, 1.2, 9), (9, 1))
    scene = Scene(contact=Contact(restitution=0.5, friction=0.3))
    scene.add_terrain(height_field(heights, 4.0, 4.0))
    scene.add_robot(loose(Shape(SPHERE, (0.1,))))
    return curve(compile(scene), 0.5, coordinate(X), q={X: 0.1, 1: 0.13, Z: 1.0}, by_q={Z: 1.0})


def rolling(heights: np.ndarray, slope: float, start: Numbers, time: float) -> Curve:
    """A ball rolls down a face of terrain and on over edges: its final position, by its start on the face.

    Args:
        heights: Heights of 4 m of the terrain along x [m].
        slope: Slope of the face along x [-].
        start: Point where the ball touches the face, along x and z [m].
        time: Duration [s].
    """
    scene = Scene(contact=Contact(friction=0.5))
    scene.add_terrain(height_field(np.tile(heights, (len(heights), 1)), 4.0, 4.0))
    scene.add_robot(loose(Shape(SPHERE, (0.1,))))
    up = np.array([-slope, 1.0]) / np.hypot(slope, 1.0)
    x, z = np.array(start) + 0.1 * up
    return curve(compile(scene), time, coordinate(X), q={X: x, 1: 0.13, Z: z}, by_q={X: 1.0, Z: slope})


def bowl() -> Curve:
    """A ball rolls down a bowl with angles of 8 degrees between its faces."""
    return rolling(0.15 * np.linspace(-2, 2, 9) ** 2, -0.225, (-0.87, 0.12075), 0.9)


def valley(angle: float, time: float) -> Curve:
    """A ball rolls through a valley with a given angle between its faces [degrees]."""
    slope = float(np.tan(np.radians(angle / 2)))
    return rolling(slope * np.abs(np.linspace(-2, 2, 9)), -slope, (-0.4, 0.4 * slope), time)


def landing(of: int, **contact: Any) -> Curve:
    """A quadruped lands at 1 m/s: final position of its trunk, by its initial height."""
    scene = Scene(contact=Contact(**contact))
    scene.add_ground()
    scene.add_robot(quadruped())
    start = {VX: 1.0, VZ: -0.5}
    return curve(compile(scene), 0.3, coordinate(of), q={Z: 0.55}, v=start, by_q={Z: 1.0})


def golf() -> Curve:
    """A golfer swings the club without torques: final position of the ball, by the angle of the backswing."""
    scene = Scene(contact=Contact(restitution=0.6))
    scene.add_ground()
    scene.add_robot(golfer())
    scene.add_robot(golf_ball(), pos=(TOUCH, 0.0, 0.0))
    back = {0: -0.2, 1: -0.3, 2: -0.3}
    return curve(compile(scene), 1.0, coordinate(3), q=back, v={0: 0.3, 1: 0.5}, by_q=dict.fromkeys(back, 1.0))


def throw() -> Curve:
    """A ball is thrown at the ground and from there at a wall: its final height, by its initial downward speed."""
    scene = Scene(contact=Contact(restitution=0.92, friction=0.0))
    scene.add_ground()
    wall = Shape(BOX, (0.1, 2.0, 2.0))
    scene.add_robot(Robot("wall", (Body("wall", None, Pose((2.1, 0.0, 1.0)), (), None, (wall,)),)))
    scene.add_robot(loose(Shape(SPHERE, (0.1,))))
    return curve(compile(scene), 0.6, coordinate(X), q={Z: 0.7}, v={VX: 5.0, VZ: -4.0}, by_v={VX: 1.0, VZ: 0.5})


def limit() -> Curve:
    """A pendulum swings up against its limit and back: its final angle, by its initial speed."""
    bob = MassProperties(1.0, (0.0, 0.0, -0.5), (1e-3, 0.0, 0.0, 1e-3, 0.0, 1e-3))
    scene = Scene(contact=Contact(time_of_impact=True))
    hinge = Joint("hinge", REVOLUTE, (0.0, 1.0, 0.0), upper=0.3)
    scene.add_robot(Robot("r", (Body("rod", None, Pose(), (hinge,), bob),)))
    return curve(compile(scene), 0.5, coordinate(0), q={0: -0.2}, v={0: 3.0}, by_v={0: 1.0})


def ball_limit() -> Curve:
    """A pendulum on a ball joint hits the limit of its rotation angle: its final swing, by its initial speed."""
    bob = MassProperties(1.0, (0.0, 0.0, -0.5), (1e-2, 0.0, 0.0, 1e-2, 0.0, 1e-2))
    scene = Scene(contact=Contact(time_of_impact=True))
    scene.add_robot(Robot("r", (Body("rod", None, Pose(), (Joint("ball", BALL, upper=0.4),), bob),)))
    return curve(compile(scene), 0.6, coordinate(1), v={0: 2.5, 1: 0.7}, by_v={0: 1.0})


def slider(time: float, joint: Joint, mass: float = 1.0, actuators: tuple[Actuator, ...] = (), **words: Any) -> Curve:
    """A mass on a rail without gravity: its final position."""
    body = Body("block", None, Pose(), (joint,), MassProperties(mass, (0.0, 0.0, 0.0), (0.1, 0.0, 0.0, 0.1, 0.0, 0.1)))
    scene = Scene((0.0, 0.0, 0.0))
    scene.add_robot(Robot("rail", (body,), actuators))
    return curve(compile(scene), time, coordinate(0), **words)


def dry_friction() -> Curve:
    """Dry friction brings a mass on a rail to rest: its position, by its initial speed; v^2 / 2a."""
    joint = Joint("slide", PRISMATIC, (1.0, 0.0, 0.0), friction=4.0)
    return slider(0.5, joint, v={0: 1.0}, by_v={0: 1.0})


def force_limit() -> Curve:
    """A servo pulls a mass with its force limit, and later with less: its final position, by its initial one."""
    servo = Actuator("servo", "slide", "position", kp=40.0, kd=8.0, force=6.0)
    return slider(0.6, Joint("slide", PRISMATIC, (1.0, 0.0, 0.0)), actuators=(servo,), q={0: -0.5}, by_q={0: 1.0})


def arm_at_force_limit() -> Curve:
    """Servos lift a hanging arm of two links, reaching their limits and leaving them: an angle, by another."""
    rod = MassProperties(1.0, (0.0, 0.0, -0.2), (2e-2, 0.0, 0.0, 2e-2, 0.0, 1e-3))
    shoulder, elbow = (Joint(name, REVOLUTE, (0.0, 1.0, 0.0), damping=0.05) for name in ("shoulder", "elbow"))
    upper = Body("upper", None, Pose(), (shoulder,), rod)
    lower = Body("lower", "upper", Pose((0.0, 0.0, -0.4)), (elbow,), rod)
    strong = Actuator("strong", "shoulder", "position", kp=120.0, kd=10.0, force=10.0)
    weak = Actuator("weak", "elbow", "position", kp=30.0, kd=2.0, force=2.5)
    scene = Scene()
    scene.add_robot(Robot("arm", (upper, lower), (strong, weak)))

    def targets(steps: int, dt: float) -> Tensor:
        time = dt * torch.arange(steps, dtype=torch.float64)[:, None]
        return torch.tensor([0.9, 0.6], dtype=torch.float64) * (12.0 * time).sin()

    given: dict[str, Any] = {"u": targets}
    return curve(compile(scene), 0.6, coordinate(1), by_q={0: 1.0}, **given)


def sliding_block() -> Curve:
    """A block slides on the ground until it sticks: its position, by its initial speed; v^2 / 2 mu g."""
    return curve(box(friction=0.4), 0.5, coordinate(X), q={Z: 0.06}, v={VX: 1.2}, by_v={VX: 1.0})


def platform(restitution: float, of: int) -> Curve:
    """A box falls on a prescribed plate that moves at 1 m/s and rises at 0.3 m/s: its position, by its height."""
    plate = Shape(BOX, (3.0, 1.0, 0.05))
    run = Joint("run", PRISMATIC, (1.0, 0.0, 0.0), prescribed=True)
    lift = Joint("lift", PRISMATIC, (0.0, 0.0, 1.0), prescribed=True)
    belt = (Body("mover", None, Pose(), (run,)), Body("plate", "mover", Pose(), (lift,), None, (plate,)))
    scene = Scene(contact=Contact(restitution=restitution, friction=0.3, iterations=200))
    scene.add_robot(Robot("belt", belt))
    scene.add_robot(loose(Shape(BOX, (0.1, 0.1, 0.1))))
    start, motion = {0: 1.0, 1: 0.3}, Control(motion=[1.0, 0.3])
    return curve(compile(scene), 0.4, coordinate(2 + of), q={4: 0.45}, v=start, by_q={4: 1.0}, u=motion)


def box_on_box(**contact: Any) -> Curve:
    """A tilted box falls on an edge of another, resting box: its final position, by its initial height."""
    scene = Scene(contact=Contact(friction=0.2, **contact))
    low = Shape(BOX, (0.1, 0.1, 0.05))
    scene.add_robot(Robot("low", (Body("low", None, Pose(), (), None, (low,)),)))
    scene.add_robot(loose(Shape(BOX, (0.1, 0.1, 0.05)), "high"))
    place = {0: 0.12, 1: 0.01, 2: 0.4, **turned((0.1, 0.3, 0.0))}
    return curve(compile(scene), 0.32, coordinate(X), q=place, by_q={2: 1.0})


def toppling() -> Curve:
    """A box stands on an edge, almost balanced: its final position, by its tilt."""
    model = box(friction=0.5)
    half = float(np.hypot(0.1, 0.06))
    balance = float(np.arctan2(0.1, 0.06))

    def run(s: Tensor, dt: float) -> Tensor:
        angle = 0.5 * (s + balance)
        q = torch.zeros(len(s), model.nq, dtype=s.dtype)
        turned_q = torch.stack([angle.cos(), 0 * s, angle.sin(), 0 * s], -1)
        q = torch.cat([q[:, :2], half * s.cos()[:, None], turned_q], -1)
        v = torch.zeros(len(s), model.nv, dtype=s.dtype)
        return simulate(model, State(q, v), steps=round(0.6 / dt), dt=dt).end.q[:, X]

    return run
