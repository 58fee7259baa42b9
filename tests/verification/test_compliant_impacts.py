"""Gradients through compliant impacts: against secants over a window of initial values, and against closed forms.

Differences of tiny h compare a derivative with the step's own map. As an initial value moves, an impact moves from one
step into the next; where the map jumps there, tiny h does not see it, and the derivative is not the slope that an
optimiser needs. Secants see it: the mean of the gradients over a window is (f(end) - f(start)) / width for any f that
is continuous, however steep.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import BOX, FREE, SPHERE, Body, Joint, MassProperties, Pose, Robot, Shape
from kinema.scene.shapes.ball import ball
from kinema.scene.shapes.block import block
from kinema.scene.shapes.quadruped import quadruped
from kinema.scene.shapes.sheet import sheet

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

WINDOW = 0.02  # [m], of heights
G = 9.81


def one_body(
    shape: Shape, inertia: float, name: str = "body", at: tuple[float, float, float] = (0.0, 0.0, 0.0)
) -> Robot:
    """A free body of 1 kg."""
    mass = MassProperties(1.0, inertia=(inertia, 0.0, 0.0, inertia, 0.0, inertia))
    return Robot(name, (Body("b", pose=Pose(at), joints=(Joint("j", FREE),), mass=mass, shapes=(shape,)),))


def robots(*bodies: Robot, gravity: float = -G, ground: bool = True, **contact: float | bool) -> kn.Model:
    """Robots in compliant contact."""
    scene = kn.Scene((0.0, 0.0, gravity), kn.Contact(law="compliant", **contact))
    if ground:
        scene.add_ground()
    for body in bodies:
        scene.add_robot(body)
    return kn.compile(scene, torch.float64)


def sphere(radius: float = 0.1, name: str = "body", at: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Robot:
    return one_body(Shape(SPHERE, (radius,)), 0.4 * radius**2, name, at)


@dataclass(frozen=True)
class Fall:
    """Something that falls from a height.

    Attributes:
        model: Makes the model.
        height: Mean of the window [m], added to where things are placed.
        time: How long [s].
        steps: Time steps [s].
        speed: Velocity at the start: of the robot's free joint (w, v), or of what is soft.
        falls: Number of the thing that is soft and falls.
        tilt: Of a robot's body about x and y [rad].
        integrator: Of the run.
        worlds: Heights in the window.
    """

    model: Callable[[], kn.Model]
    height: float
    time: float
    steps: tuple[float, float]
    speed: tuple[float, ...] = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0)
    falls: int = 0
    tilt: float = 0.0
    integrator: str = "euler"
    worlds: int = 401


def two_balls() -> kn.Model:
    """One falls on another that floats."""
    return robots(sphere(), sphere(0.1, "under", (0.03, 0.0, -0.4)), ground=False, gravity=0.0)


def brick() -> Robot:
    return one_body(Shape(BOX, (0.1, 0.15, 0.05)), 6e-3)


def soft(solids: dict[str, kn.Tets], skin: kn.Skin) -> kn.Model:
    """Soft things on the ground."""
    scene = kn.Scene()
    scene.add_ground()
    for name, mesh in solids.items():
        scene.add_solid(mesh, name, material=FLESH, skin=skin)
    return kn.compile(scene, torch.float64)


def soft_on_soft() -> kn.Model:
    """A cube that falls on a plate whose lower side is held."""
    scene, plate = kn.Scene(), block((3, 3, 1), 0.08)
    scene.add_solid(plate, "low", material=FLESH, skin=THICK)
    scene.attach("low", plate.vertices[:, 2] < 0)
    turned = (math.cos(0.2), 0.0, math.sin(0.2), 0.0)
    scene.add_solid(block((1, 1, 1), 0.1), "high", material=FLESH, skin=THICK, rot=turned)
    return kn.compile(scene, torch.float64)


def cloth_on_sphere() -> kn.Model:
    scene = kn.Scene()
    scene.add_robot(Robot("still", (Body("still", shapes=(Shape(SPHERE, (0.15,)),)),)))
    scene.add_cloth(sheet(0.4, 0.4, (6, 6)), "s", material=FABRIC, skin=LIGHT)
    return kn.compile(scene, torch.float64)


def particle() -> kn.Model:
    scene = kn.Scene()
    scene.add_ground()
    skin = kn.Skin(radius=0.02, k_e=2e3, k_d=10.0, k_f=5.0)
    scene.add_particles([[0.0, 0.0, 0.0]], "p", mass=0.1, skin=skin)
    return kn.compile(scene, torch.float64)


FLESH = kn.Solid(density=300.0, mu=2e4, lam=3e4, viscosity=20.0)
FABRIC = kn.Cloth(density=0.3, mu=200.0, lam=200.0, viscosity=0.3, bending=1e-3)
FIRM = kn.Skin(radius=0.0, k_e=2e3, k_d=5.0, k_f=5.0)
LIGHT = kn.Skin(radius=0.01, k_e=50.0, k_d=0.1, k_f=0.1)
THICK = kn.Skin(k_e=200.0, k_d=0.5, k_f=0.3, thickness=0.03, neighbours=32)
SOFT = (1.0, 0.0, 0.0)  # [m/s], at the start
EDGY = block((2, 2, 2), 0.05)
EDGY.vertices[:] = EDGY.vertices @ [
    [1, 0, 0],
    [0, math.cos(0.78), -math.sin(0.78)],
    [0, math.sin(0.78), math.cos(0.78)],
]

FALLS = {
    "ball, damped": Fall(lambda: robots(sphere()), 0.6, 0.5, (2e-3, 5e-4)),
    "ball, undamped": Fall(lambda: robots(sphere(), k_d=0.0), 0.6, 0.55, (1e-3, 2.5e-4)),
    "ball, Runge-Kutta": Fall(lambda: robots(sphere()), 0.6, 0.5, (5e-4, 2.5e-4), integrator="rk4", worlds=1001),
    "box on its corners": Fall(lambda: robots(brick()), 0.5, 0.4, (1e-3, 2.5e-4), tilt=0.4),
    "quadruped": Fall(lambda: robots(quadruped()), 0.2, 0.5, (1e-3, 2.5e-4), worlds=201),
    "two balls": Fall(two_balls, 0.1, 0.4, (1e-3, 2.5e-4), speed=(0.0, 0.0, 0.0, 0.1, 0.0, -2.0)),
    "particle": Fall(particle, 0.4, 0.4, (1e-3, 2.5e-4), SOFT),
    "soft ball": Fall(lambda: soft({"s": ball(0.1, 2)}, FIRM), 0.4, 0.4, (8e-4, 4e-4), SOFT, worlds=101),
    "soft cube on an edge": Fall(lambda: soft({"s": EDGY}, FIRM), 0.4, 0.35, (2.5e-4, 1.25e-4), SOFT, worlds=201),
    "soft cube, implicit": Fall(
        lambda: soft({"s": block((2, 2, 2), 0.05)}, FIRM),
        height=0.3,
        time=0.3,
        steps=(2.5e-3, 1.25e-3),
        speed=SOFT,
        integrator="implicit",
        worlds=41,
    ),
    "cloth on a sphere": Fall(cloth_on_sphere, 0.3, 0.25, (2.5e-4, 1.25e-4), SOFT, worlds=101),
    "soft on soft": Fall(soft_on_soft, 0.25, 0.26, (1e-3, 5e-4), SOFT, falls=1, worlds=51),
}


def fly(case: Fall, model: kn.Model, z: Tensor, dt: float) -> Tensor:
    """Where the middle of what falls is at the end, shape (worlds, 3), for heights z [m]."""
    worlds, run = len(z), {"steps": round(case.time / dt), "dt": dt, "integrator": case.integrator}
    up = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    if model.nv:
        q = model.initial_state().q.repeat(worlds, 1)
        turn = torch.tensor([math.cos(case.tilt), math.sin(case.tilt), 0.5 * math.sin(case.tilt), 0.0], dtype=q.dtype)
        q = torch.cat([q[:, :3] + z[:, None] * up, (turn / turn.norm()).repeat(worlds, 1), q[:, 7:]], 1)
        v = torch.zeros(worlds, model.nv, dtype=torch.float64)
        v[:, :6] = torch.tensor(case.speed, dtype=torch.float64)
        return kn.simulate(model, kn.State(q, v), **run).end.q[:, :3]
    x, xd = (a.repeat(worlds, 1, 1) for a in (model.initial_state().x, model.initial_state().xd))
    falls = torch.as_tensor(model.matter.owner == case.falls)
    x = x + (falls[:, None] * up) * z[:, None, None]
    xd = xd + falls[:, None] * torch.tensor(case.speed, dtype=torch.float64)
    return kn.simulate(model, kn.State(x=x, xd=xd), **run).end.x[:, falls].mean(1)


def slopes(case: Fall, model: kn.Model, dt: float, worlds: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of the end along z and x by the height: secant, mean gradient, and how well that is known from so many worlds."""
    z = (case.height + WINDOW * torch.linspace(-0.5, 0.5, worlds, dtype=torch.float64)).requires_grad_()
    end = fly(case, model, z, dt)
    found = []
    for axis in (2, 0):
        (g,) = torch.autograd.grad(end[:, axis].sum(), z, retain_graph=True)
        fine, coarse = (torch.trapezoid(g[::k], z.detach()[::k]) / WINDOW for k in (1, 2))
        found.append(torch.stack([(end[-1, axis] - end[0, axis]).detach() / WINDOW, fine, (fine - coarse).abs()]))
    secant, mean, known = torch.stack(found, 1)
    return secant, mean, known


@dataclass(frozen=True)
class Bounce:
    """Task 1 of Zhong, Han, Brikis [2022]: a ball falls without gravity, bounces once, and rises; closed forms.

    A spring with a damper holds it until it stands, after the time `stops`; the spring alone throws it back.
    """

    k_e: float
    k_d: float
    radius: float = 0.1
    height: float = 1.0
    speed: float = 2.0
    time: float = 1.0

    @property
    def restitution(self) -> float:
        return math.exp(-0.5 * self.k_d * self.stops)

    @property
    def stops(self) -> float:
        rate, decay = math.sqrt(self.k_e), 0.5 * self.k_d
        turning = math.sqrt(rate**2 - decay**2)
        return math.atan2(turning, decay) / turning

    @property
    def slopes(self) -> tuple[float, float, float]:
        """Of the height at the end by that at the start, by the velocity, and by a force [N] that acts at the start."""
        back = self.time - self.stops - 0.5 * math.pi / math.sqrt(self.k_e)
        return -self.restitution, -self.restitution * back, -self.restitution * back


def bounce_errors(case: Bounce, steps: int, averaged: bool = True) -> tuple[Tensor, Tensor]:
    """Errors of the three slopes: of their means over the places in a step where the impact may be, and the worst."""
    dt, worlds = case.time / steps, 64
    model = robots(sphere(case.radius), gravity=0.0, k_e=case.k_e, k_d=case.k_d, averaged=averaged)
    places = case.speed * dt * (torch.arange(worlds, dtype=torch.float64) + 0.5) / worlds
    z = (case.height + places).requires_grad_()
    v = torch.full((worlds,), -case.speed, dtype=torch.float64, requires_grad=True)
    push = torch.zeros(worlds, dtype=torch.float64, requires_grad=True)
    q = torch.cat([torch.zeros(worlds, 2), z[:, None], torch.tensor([[1.0, 0, 0, 0]]).repeat(worlds, 1)], 1)
    still = torch.zeros(worlds, 5, dtype=torch.float64)
    tau = torch.zeros(worlds, steps, 6, dtype=torch.float64)
    tau[:, 0, 5] = 1.0
    path = kn.simulate(
        model,
        kn.State(q, torch.cat([still, v[:, None]], 1)),
        u=kn.Control(tau=tau * push[:, None, None]),
        steps=steps,
        dt=dt,
    )
    found = torch.stack(torch.autograd.grad(path.end.q[:, 2].sum(), [z, v, push]))
    found[2] /= dt
    error = found - torch.tensor(case.slopes, dtype=torch.float64)[:, None]
    return error.mean(1).abs(), error.abs().amax(1)


@pytest.mark.parametrize(("name", "part"), [(name, part) for name in FALLS for part in (0, 1)])
def test_gradients_are_secants(name: str, part: int):
    """Of where things end by the height they fall from, over 2 cm: within 2 % of the secant, at two time steps.

    Beside the 2 % stands what the mean of the gradients changes if every other world is left out: its sampling error.
    """
    case = FALLS[name]
    secant, mean, known = slopes(case, case.model(), case.steps[part], case.worlds)
    assert secant.abs().max() > 0.02
    assert (known <= 0.07 * secant.abs().max()).all()  # most with Runge-Kutta, steep in a twentieth of the places
    assert ((mean - secant).abs() <= 0.02 * secant.abs() + known).all(), (secant, mean, known)


@pytest.mark.parametrize("name", ["ball, damped", "particle", "cloth on a sphere"])
def test_without_averaging_they_are_not(name: str):
    """gradSim's law, which the scenes above must tell apart: off by more than a half of the secant."""
    case = FALLS[name]
    model = case.model()
    if model.nv:
        model = robots(sphere(), averaged=False)
    model.matter.averaged[:] = 0
    secant, mean, _ = slopes(case, model, case.steps[1], 101)
    assert ((mean - secant).abs() > 0.5 * secant.abs()).any()


def test_single_gradients_are_near_the_slope_of_finer_steps():
    """Within a factor of 2 of the local slope of the curve at a quarter of dt, for 95 % of the places."""
    for name in ("ball, damped", "quadruped", "particle"):
        case = FALLS[name]
        model = case.model()
        z = (case.height + WINDOW * torch.linspace(-0.5, 0.5, 201, dtype=torch.float64)).requires_grad_()
        (g,) = torch.autograd.grad(fly(case, model, z, 2.5e-4)[:, 0].sum(), z)
        with torch.no_grad():
            curve = fly(case, model, z, 0.625e-4)[:, 0]
            local = (curve[20:] - curve[:-20]) / (z[20:] - z[:-20])
        share = g[10:-10] / local
        assert float(((share > 0.5) & (share < 2.0)).double().mean()) >= 0.95, name


@pytest.mark.parametrize(("k_e", "k_d"), [(2e3, 0.0), (2e3, 20.0), (5e3, 50.0)])
def test_one_bounce_has_the_slopes_of_its_closed_form(k_e: float, k_d: float):
    """dz/dz0 = -e, dz/dv0 = -e (T - contact), and those by a force at the start: to 1.1e-2 at 480 steps.

    Without damping errors of the mean are of order dt^2 and below 1e-3; with it, of order dt: k_d dt / 2 m = 0.05 of
    what the damper takes. Single ones are within 0.1.
    """
    case = Bounce(k_e, k_d)
    mean, worst = zip(*(bounce_errors(case, steps) for steps in (480, 960, 1920)), strict=True)
    assert float(mean[0].max()) <= (1e-3 if k_d == 0 else 1.1e-2)
    assert all(float(one.max()) <= 0.1 for one in worst)
    assert float(mean[2].max()) <= 0.3 * float(mean[0].max()) + 1e-6
    if k_d:
        instant, _ = bounce_errors(case, 480, averaged=False)
        assert float(instant.min()) > 3.0  # what gradSim's law gives, for any dt


def test_undamped_bounces_keep_their_energy():
    """A ball on a spring under gravity for 10 s, some 14 bounces.

    In free flight semi-implicit Euler keeps v^2 / 2 + g (z - dt v / 2); a bounce takes about 0.01 (dt^2 k_e / m) of the
    logarithm of the speed, see `model.stability`: here 0.02 % each.
    """
    model, dt = robots(sphere(), k_d=0.0, k_e=2e4), 1e-3
    q, v = model.initial_state().q, torch.zeros(6, dtype=torch.float64)
    q[2] = 0.6
    path = kn.simulate(model, kn.State(q, v), steps=10_000, dt=dt)
    z, speed = path.q[:, 2], path.v[:, 5]
    flying = z > 0.12
    energy = 0.5 * speed**2 + G * (z - 0.1 - 0.5 * dt * speed)
    lost = 1.0 - energy[flying] / (G * 0.5)
    bounces = int(((speed[1:] > 0) & (speed[:-1] <= 0)).sum())
    assert bounces >= 10
    assert float(lost.min()) > -1e-3 and float(lost.max()) < 1e-3 * bounces


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_at_the_edges_of_contact(dtype: torch.dtype):
    """Gaps of exactly 0, exactly half a step and a step away, no speed at all, next to none, and a graze."""
    scene = kn.Scene(gravity=(0.0, 0.0, 0.0))
    scene.add_ground()
    scene.add_particles([[0.0, 0.0, 0.0]], "p", mass=0.1, skin=kn.Skin(k_e=1e3, k_d=5.0, k_f=2.0))
    model, dt = kn.compile(scene, dtype), 2.0**-10
    tiny = torch.finfo(dtype).tiny
    speeds = torch.tensor([0.0, 1.0, -1.0, tiny, -tiny, 1e-20, -1e-20, -1e-12], dtype=dtype)
    depths = torch.tensor([0.0, 0.5, -0.5, 1.0, -1.0, 1e-30, -1e-30], dtype=dtype) * dt
    x = torch.zeros(len(speeds), len(depths), 1, 3, dtype=dtype)
    x[..., 0, 2] = -depths
    xd = torch.zeros_like(x)
    xd[..., 0, 2], xd[..., 0, 0] = speeds[:, None], 1.0
    leaves = [t.requires_grad_() for t in (x, xd)]
    path = kn.simulate(model, kn.State(x=x, xd=xd), steps=3, dt=dt)
    gradients = torch.autograd.grad(path.end.x.sum() + path.end.xd.sum(), leaves)
    assert path.end.x.isfinite().all() and all(g.isfinite().all() for g in gradients)
    # k_d / m is 50 /s and k_f / m 20 /s; a step of 1 ms cannot make more of a position than their sum.
    assert max(float(g.abs().max()) for g in gradients) < 1e3
