"""Own laws of force against closed forms, conservation laws, orders of convergence, and built-in forces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.dynamics.springs import spring_force
from kinema.lang import cross, dot, func, mat33, sin, vec3
from kinema.lang.build import compiler
from kinema.math import Force
from kinema.scene.description import Body, Joint, MassProperties, Pose, Robot

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

NOTHING = (0.0, 0.0, 0.0)
HEAVY = MassProperties(1.0, (0.1, 0.05, 0.2), (0.02, 0.0, 0.0, 0.02, 0.0, 0.02))


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def orders(errors: list[float]) -> list[float]:
    """From errors at steps that are halved."""
    return [math.log2(a / b) for a, b in zip(errors, errors[1:], strict=False)]


@func
def spring(q, v, k, c):
    return -k * q - c * v


@func
def spring_energy(q, k):
    return 0.5 * k * q * q


@func
def anchor(x: vec3, v: vec3, k, c):
    return -k * x - c * v


@func
def anchor_energy(x: vec3, k):
    return 0.5 * k * dot(x, x)


@func
def driven(q, time, k, f, rate):
    return -k * q + f * sin(rate * time)


@func
def driven_point(x: vec3, time, k, f, rate):
    return vec3(f * sin(rate * time), 0.0, 0.0) - k * x


@func
def push(time, f: vec3, rate):
    return f * sin(rate * time)


def slider(mass: float = 2.0, **options: float) -> Robot:
    joint = Joint("slide", "prismatic", (1.0, 0.0, 0.0), **options)  # type: ignore[arg-type]
    return Robot("cart", (Body("cart", None, Pose(), (joint,), MassProperties(mass)),))


K, C, M, F, W = 30.0, 1.5, 2.0, 3.0, 4.0  # N/m, N s/m, kg, N, rad/s


def oscillator(kind: str) -> tuple[kn.Model, kn.State]:
    """Mass M on spring K, driven by F sin(W t): a joint, a body or a particle, from rest."""
    scene = kn.Scene(NOTHING)
    params = {"k": K, "f": F, "rate": W}
    if kind == "joint":
        scene.add_force(driven, joints=scene.add_robot(slider(M)), params=params)
    elif kind == "body":
        scene.add_force(driven_point, bodies=scene.add_body(kn.Sphere(0.1), "ball", mass=M), params=params)
    else:
        scene.add_force(driven_point, particles=scene.add_particles([NOTHING], "dot", mass=M), params=params)
    model = kn.compile(scene, torch.float64)
    return model, model.initial_state()


def of_motion(state: kn.State) -> tuple[float, float]:
    """x and its velocity."""
    if state.x is not None:
        return float(state.x[0, 0]), float(state.xd[0, 0])
    return float(state.q[0]), float(state.v[-3 if state.v.numel() > 1 else 0])


def driven_motion(time: float) -> tuple[float, float]:
    """x = F / (K - M W^2) (sin W t - W/w0 sin w0 t), from rest."""
    w0, scale = math.sqrt(K / M), F / (K - M * W * W)
    x = scale * (math.sin(W * time) - W / w0 * math.sin(w0 * time))
    return x, scale * W * (math.cos(W * time) - math.cos(w0 * time))


CASES = [("joint", "euler", 1), ("joint", "rk4", 4), ("body", "euler", 1), ("body", "rk4", 4)]
CASES += [("particle", "euler", 1), ("particle", "implicit", 1)]


@pytest.mark.parametrize(("kind", "integrator", "order"), CASES)
def test_order_of_a_driven_oscillator(kind: str, integrator: str, order: int):
    """Where time stands in a stage counts: a force that is evaluated dt / 2 too late makes rk4 of first order."""
    model, state = oscillator(kind)
    wanted, errors = driven_motion(1.5), []
    for steps in (60, 120, 240) if order == 4 else (600, 1200, 2400):
        words = {"steps": steps, "dt": 1.5 / steps, "integrator": integrator}
        found = of_motion(kn.simulate(model, state, **words).end)
        errors.append(math.dist(found, wanted))
    print(errors, orders(errors))
    assert all(abs(found - order) < 0.12 for found in orders(errors)), (errors, orders(errors))


@pytest.mark.parametrize("integrator", ["euler", "rk4"])
def test_a_start_time_and_substeps(integrator: str):
    """Runs that begin later, one step after the other, and substeps see the same times."""
    model, state = oscillator("joint")
    words: dict[str, Any] = {"dt": 0.02, "integrator": integrator}
    whole = kn.simulate(model, state, steps=40, **words)
    later = kn.simulate(model, whole.state(25), steps=15, **words)
    restarted = kn.simulate(model, whole.state(25).replace(time=0.0), steps=15, **words)
    assert abs(float(restarted.end.q - whole.end.q)) > 1e-3
    one = whole.state(25)
    for k in range(25, 40):
        assert float(one.time) == pytest.approx(k * 0.02, rel=1e-14)
        one = kn.step(model, one.replace(time=k * 0.02), **words)
    assert torch.allclose(later.end.q, whole.end.q, rtol=1e-14, atol=0.0)
    assert torch.equal(one.q, whole.end.q) and torch.equal(one.v, whole.end.v)
    coarse = kn.simulate(model, state, steps=10, substeps=4, dt=0.08, integrator=integrator)
    assert torch.allclose(coarse.end.q, whole.end.q, rtol=1e-12, atol=0.0)


def test_implicit_substeps_see_their_times():
    model, state = oscillator("particle")
    state = state.replace(time=0.3)
    fine = kn.simulate(model, state, steps=12, dt=0.01, integrator="implicit")
    coarse = kn.simulate(model, state, steps=4, substeps=3, dt=0.03, integrator="implicit")
    assert fine.end.x.abs().max() > 1e-3 and torch.allclose(coarse.end.x, fine.end.x, rtol=1e-11, atol=0.0)


def test_a_force_in_time_has_its_impulse():
    """Explicit steps sum F(t_k) dt, implicit ones F(t_k + dt) dt, to rounding; both tend to the integral."""
    scene = kn.Scene(NOTHING)
    ball = scene.add_body(kn.Sphere(0.1), "ball", mass=M)
    dots = scene.add_particles([NOTHING, (1.0, 0.0, 0.0)], "dots", mass=0.5, skin=None)
    way = np.array([1.0, -2.0, 0.5])
    scene.add_force(push, bodies=ball, params={"f": way, "rate": W})
    scene.add_force(push, particles=dots, vertices=[1], params={"f": way, "rate": W})
    model = kn.compile(scene)
    dt, begin = 0.01, 0.2
    at = begin + dt * np.arange(100)
    found = kn.simulate(model, kn.State(time=begin), steps=100, dt=dt).end
    sums = np.sin(W * at).sum() * dt
    assert np.allclose(found.v[3:], way * sums / M, rtol=1e-13)
    assert not found.xd[0].any() and np.allclose(found.xd[1], way * sums / 0.5, rtol=1e-13)
    implicit = kn.simulate(model, kn.State(time=begin), steps=100, dt=dt, integrator="implicit").end
    assert np.allclose(implicit.xd[1], way * np.sin(W * (at + dt)).sum() * dt / 0.5, rtol=1e-9)
    exact = (math.cos(W * begin) - math.cos(W * (begin + 1.0))) / W
    assert abs(sums - exact) < W * dt


@pytest.mark.parametrize("energy", [False, True])
def test_a_law_is_the_built_in_spring_of_a_joint(energy: bool):
    """In Runge-Kutta steps both are explicit: the same to rounding."""
    found = []
    for own in (False, True):
        scene = kn.Scene(NOTHING)
        c = 0.0 if energy else C
        cart = scene.add_robot(slider(M) if own else slider(M, stiffness=K, damping=c))
        if own and energy:
            scene.add_force(energy=spring_energy, joints=cart, params={"k": K})
        elif own:
            scene.add_force(spring, joints=cart, params={"k": K, "c": c})
        model = kn.compile(scene)
        found.append(kn.simulate(model, kn.State(numbers(0.3), numbers(0.1)), steps=100, dt=0.01, integrator="rk4"))
    assert torch.allclose(found[0].q, found[1].q, rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("integrator", ["euler", "implicit"])
@pytest.mark.parametrize("energy", [False, True])
def test_a_law_between_particles_is_the_built_in_spring(integrator: str, energy: bool):
    rng = np.random.default_rng(0)
    at, ends = rng.normal(size=(40, 3)), [(i, j) for i in range(40) for j in range(i + 1, 40) if (i + j) % 5 == 0]
    stiff = rng.uniform(1.0, 3.0, len(ends))
    damping = 0.0 if energy else 0.2
    found = []
    for own in (False, True):
        scene = kn.Scene(NOTHING)
        springs = None if own else kn.Springs(np.array(ends), stiffness=stiff, damping=damping, rest=0.5)
        net = scene.add_particles(at, "net", mass=0.3, springs=springs, skin=None)
        params: dict[str, Any] = {"stiffness": stiff, "rest": 0.5}
        if own and energy:
            scene.add_force(energy=stretch, between=(net, net), vertices=ends, params=params)
        elif own:
            scene.add_force(spring_force, between=(net, net), vertices=ends, params={**params, "damping": damping})
        model = kn.compile(scene, torch.float64)
        found.append(kn.simulate(model, steps=50, dt=0.01, integrator=integrator).end)
    tolerance = 1e-12 if integrator == "euler" else 1e-8  # of steps that are found to 1e-10 of a displacement
    assert torch.allclose(found[0].x, found[1].x, rtol=0.0, atol=tolerance)
    assert (found[0].x - torch.tensor(at)).abs().max() > 0.1


@func
def stretch(d: vec3, stiffness, rest):
    longer = dot(d, d) ** 0.5 - rest
    return 0.5 * stiffness * longer * longer


@func
def field(v: vec3, b: vec3):
    return cross(v, b)


@pytest.mark.parametrize(("integrator", "order"), [("euler", 1), ("rk4", 4)])
def test_a_charge_in_a_magnetic_field_goes_round(integrator: str, order: int):
    """x = r sin wt, y = r (cos wt - 1), w = b / m: a force that depends on velocity, and has no energy."""
    scene = kn.Scene(NOTHING)
    ball = scene.add_body(kn.Sphere(0.1), "ball", mass=M)
    scene.add_force(field, bodies=ball, params={"b": (0.0, 0.0, 6.0)})
    model = kn.compile(scene)
    start = model.initial_state(v=numbers(0, 0, 0, 1.0, 0, 0))
    w, time, errors = 6.0 / M, 1.0, []
    wanted = numbers(math.sin(w * time) / w, (math.cos(w * time) - 1.0) / w, 0.0)
    for steps in (100, 200, 400):
        end = kn.simulate(model, start, steps=steps, dt=time / steps, integrator=integrator).end
        errors.append(float((end.q[:3] - wanted).norm()))
    assert all(abs(found - order) < 0.15 for found in orders(errors)), (errors, orders(errors))


@func
def air(x: vec3, v: vec3, way: vec3, k):
    """Drag that grows with the speed, in wind that is stronger further up: neither has an energy."""
    u = (1.0 + x.z) * way - v
    return k * dot(u, u) ** 0.5 * u


def test_implicit_steps_of_a_drag_without_energy():
    """They solve m (v' - v) = dt f(x', v'), whose matrix is not quite symmetric."""
    scene, k, dt, m = kn.Scene(NOTHING), 0.5, 0.1, 0.2
    way = np.array([2.0, 1.0, 0.5])
    dots = scene.add_particles(np.eye(3), "dots", mass=m, velocity=(-1.0, 0.0, 0.5), skin=None)
    scene.add_force(air, particles=dots, params={"way": way, "k": k})
    path = kn.simulate(kn.compile(scene, torch.float64), steps=20, dt=dt, integrator="implicit")
    x, v = path.x.numpy(), path.xd.numpy()
    u = (1.0 + x[1:, :, 2:]) * way - v[1:]
    force = k * np.linalg.norm(u, axis=-1, keepdims=True) * u
    assert np.allclose(m * (v[1:] - v[:-1]), dt * force, rtol=0.0, atol=1e-9)
    assert np.abs(force[0]).max() > 4.0


@func
def thrust(R: mat33, f):
    return R @ vec3(0.0, 0.0, f)


@func
def steady(time, moment: vec3, force: vec3):
    return Force(moment, force)


@func
def only_force(force: vec3):
    return force


def test_wrenches_are_those_of_controls():
    """A `Force` acts about the body's origin, a vec3 at it; at a site it is moved there."""
    bodies = (
        Body("base", None, Pose(), (Joint("turn", "revolute", (0.0, 1.0, 0.3)),), HEAVY),
        Body("tip", "base", Pose((0.3, 0.1, 0.0)), (Joint("ball", "ball"),), HEAVY),
    )
    moment, force, place = np.array([0.1, -0.2, 0.3]), np.array([1.0, 0.5, -2.0]), np.array([0.2, -0.1, 0.05])

    def scene_of() -> tuple[kn.Scene, Any]:
        scene = kn.Scene()
        arm = scene.add_robot(Robot("arm", bodies))
        scene.add_site("arm/tip", "tool", pos=tuple(place))
        return scene, arm

    def run(scene: kn.Scene, **control: Any) -> kn.Trajectory:
        model = kn.compile(scene)
        state = model.initial_state(v=0.1 * torch.ones(4, dtype=torch.float64))
        return kn.simulate(
            model, state, kn.Control(**control), steps=40, dt=2e-3, record=["joint_load", "site_position"]
        )

    plain, _ = scene_of()
    wanted = run(plain, wrenches={"arm/tip": np.concatenate([moment, force])})
    own, arm = scene_of()
    own.add_force(steady, bodies=arm["tip"], params={"moment": moment, "force": force})
    found = run(own)
    assert torch.allclose(found.q, wanted.q, rtol=0.0, atol=1e-14) and wanted.q[-1, 0].abs() > 1e-3
    assert torch.allclose(found.recorded["joint_load"], wanted.recorded["joint_load"], rtol=0.0, atol=1e-12)
    # At a site: the same as that force at the origin, with the moment of its arm.
    sited, arm = scene_of()
    sited.add_force(only_force, bodies=arm["tool"], params={"force": force})
    at = run(sited)
    model = kn.compile(plain)
    state = model.initial_state(v=0.1 * torch.ones(4, dtype=torch.float64))
    for _ in range(40):
        R = kn.forward_kinematics(model, state.q).rotation[1].numpy()
        wrench = np.concatenate([np.cross(R @ place, force), force])
        state = kn.step(model, state, kn.Control(wrenches={"arm/tip": wrench}), dt=2e-3)
    assert torch.allclose(at.end.q, state.q, rtol=0.0, atol=1e-13)


def test_a_site_that_is_moved_takes_the_force_along():
    """A place of `params` is as good as one of the scene."""
    found = []
    for own in (False, True):
        scene = kn.Scene(NOTHING)
        ball = scene.add_body(kn.Sphere(0.1), "ball", mass=1.0)
        scene.add_site(ball, "tip", pos=(0.1, 0.2, 0.0) if own else NOTHING)
        scene.add_force(only_force, bodies="ball/tip", params={"force": (0.0, 0.0, 1.0)})
        model = kn.compile(scene)
        moved = None if own else {"ball/tip/place": numbers(0.1, 0.2, 0.0)}
        found.append(kn.simulate(model, steps=5, dt=0.01, params=moved).end)
    assert found[0].v[:3].abs().max() > 1.0 and torch.equal(found[0].q, found[1].q)


def two_bodies(**between: Any) -> tuple[kn.Model, kn.State]:
    scene = kn.Scene(NOTHING)
    a = scene.add_body(kn.Box((0.1, 0.2, 0.15), collides=False), "a", mass=1.0)
    scene.add_body(kn.Box((0.1, 0.1, 0.3), collides=False), "b", mass=2.5, pos=(0.8, 0.3, 0.1))
    scene.add_site("b", "corner", pos=(0.1, 0.1, 0.3))
    scene.add_force(between=(a, "b/corner"), **between)
    model = kn.compile(scene)
    v = torch.randn(12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return model, model.initial_state(v=v)


@func
def tether(d: vec3, u: vec3, k, c):
    n = d / dot(d, d) ** 0.5
    return k * d + c * dot(n, u) * n


@func
def bushing(d: vec3, u: vec3, R1: mat33, R2: mat33, w1: vec3, w2: vec3, k, c):
    """A spring that is no longer central, and a moment towards equal axes that damps."""
    a1, a2 = R1 @ vec3(0.0, 0.0, 1.0), R2 @ vec3(0.0, 0.0, 1.0)
    return Force(k * cross(a1, a2) + c * (w2 - w1), k * d + c * u + cross(a1, d))


@func
def bushing_energy(d: vec3, R1: mat33, R2: mat33, k):
    """Of distance, of the angle between two axes, and of the place of the second in the axes of the first."""
    a1, a2 = R1 @ vec3(0.48, 0.6, 0.64), R2 @ vec3(0.6, 0.48, 0.64)
    side = dot(a1, d)
    return k * (0.5 * dot(d, d) + 0.3 * side * side - 0.4 * dot(a1, a2))


PAIRS: dict[str, dict[str, Any]] = {
    "tether": {"law": tether, "params": {"k": 5.0, "c": 0.3}},
    "bushing": {"law": bushing, "params": {"k": 5.0, "c": 0.3}},
    "energy": {"energy": bushing_energy, "params": {"k": 5.0}},
}


@pytest.mark.parametrize("name", PAIRS)
def test_newtons_third_law_between_bodies(name: str):
    """Momentum, angular momentum included, drifts by no more than the method's error."""
    drifts = []
    model, state = two_bodies(**PAIRS[name])
    for steps in (50, 100, 200):
        path = kn.simulate(model, state, steps=steps, dt=1.0 / steps, integrator="rk4")
        found = kn.momentum(model, path.q, path.v, about=numbers(0.0, 0.0, 0.0))
        assert (path.v[-1] - path.v[0]).abs().max() > 0.5
        drifts.append(float((found - found[0]).abs().max()))
    assert drifts[-1] < 3e-6 and all(order > 3.5 for order in orders(drifts)), (drifts, orders(drifts))


def test_the_energy_of_a_bushing_is_kept():
    """Kinetic energy and that of the user's function together, with the error of the method."""
    drifts = []
    model, state = two_bodies(**PAIRS["energy"])
    for steps in (50, 100, 200):
        path = kn.simulate(
            model,
            state,
            steps=steps,
            dt=1.0 / steps,
            integrator="rk4",
            record=["position", "rotation", "site_position"],
        )
        kinetic = kn.kinetic_energy(model, path.q[:-1], path.v[:-1]).numpy()
        place, turn, corner = (path.recorded[n].numpy() for n in ("position", "rotation", "site_position"))
        potential = [
            bushing_energy(vec3(*(c[0] - p[0])), mat33(*R[0].ravel()), mat33(*R[1].ravel()), 5.0)
            for p, R, c in zip(place, turn, corner, strict=True)
        ]
        total = kinetic + np.array(potential)
        assert np.ptp(kinetic) > 0.3
        drifts.append(float(np.ptp(total)))
    assert drifts[-1] < 3e-6 and all(order > 3.5 for order in orders(drifts)), (drifts, orders(drifts))


def test_particles_keep_their_momentum_and_links_feel_pinned_ones():
    """A body tied to a particle by a law: a pinned particle is the body's end."""
    scene = kn.Scene(NOTHING)
    ball = scene.add_body(kn.Sphere(0.2), "ball", mass=2.0)
    ends = scene.add_particles([(0.1, 0.0, 0.05)], "ends", mass=1.0, skin=None)
    bead = scene.add_particles([(0.9, 0.4, 0.0)], "bead", mass=0.5, skin=None, velocity=(0.0, 1.0, 0.0))
    scene.attach(ends, [0], to=ball)
    scene.add_force(tether, between=(ends, bead), params={"k": 4.0, "c": 0.1})
    model = kn.compile(scene)
    path = kn.simulate(model, steps=200, dt=2e-3)
    of_ball = kn.momentum(model, path.q, path.v, about=numbers(0.0, 0.0, 0.0))
    bead_v = 0.5 * path.xd[:, 1]
    linear = of_ball[:, 3:] + bead_v
    angular = of_ball[:, :3] + torch.linalg.cross(path.x[:, 1], bead_v)
    assert (linear - linear[0]).abs().max() < 1e-13 and (path.v[-1, :3].abs().max() > 0.1)
    assert (angular - angular[0]).abs().max() < 2e-3  # of first order in dt


@func
def lift(x: vec3, time, k, z, rate):
    return vec3(0.0, 0.0, k * (z + rate * time - x.z))


def test_a_bounce_within_the_step_sees_the_force_after_it():
    """Errors of the bounce fall with the step: what acts after the impact acts at its time and place."""
    k, z, rate, m, e = 40.0, -0.5, 1.5, 1.0, 0.7

    def end(steps: int) -> float:
        scene = kn.Scene(NOTHING, contact=kn.Contact(restitution=e))
        scene.add_ground()
        ball = scene.add_body(kn.Sphere(0.1), "ball", mass=m, pos=(0.0, 0.0, 0.4))
        scene.add_force(lift, bodies=ball, params={"k": k, "z": z, "rate": rate})
        model = kn.compile(scene)
        start = model.initial_state(v=numbers(0, 0, 0, 0, 0, 0.2))
        return float(kn.simulate(model, start, steps=steps, dt=0.45 / steps).end.q[2])

    def exact() -> float:
        """Between impacts x = z + rate t + a cos w t + b sin w t; the impact by bisection."""
        w = math.sqrt(k / m)

        def flight(t0: float, x0: float, v0: float, t: float) -> tuple[float, float]:
            s, a, b = t - t0, x0 - z - rate * t0, (v0 - rate) / w
            c, n = math.cos(w * s), math.sin(w * s)
            return z + rate * t + a * c + b * n, rate - a * w * n + b * w * c

        low, high = 0.05, 0.25
        assert flight(0.0, 0.4, 0.2, low)[0] > 0.1 > flight(0.0, 0.4, 0.2, high)[0]
        for _ in range(100):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if flight(0.0, 0.4, 0.2, middle)[0] > 0.1 else (low, middle)
        _, v = flight(0.0, 0.4, 0.2, low)
        return flight(low, 0.1, -e * v, 0.45)[0]

    wanted = exact()
    errors = [abs(end(steps) - wanted) for steps in (200, 400, 800, 1600)]
    print(errors, wanted)
    assert wanted > 0.12 and errors[-1] < 2e-3 and all(0.7 < order < 1.4 for order in orders(errors)), errors


@func
def growing(time, f):
    return vec3(f * time, 0.0, 0.0)


def test_the_time_after_an_impact():
    """One step, from time 0: nothing pushes before the impact at t, f t for the rest of the step."""
    scene = kn.Scene(NOTHING, contact=kn.Contact(restitution=0.5, friction=0.0))
    scene.add_ground()
    ball = scene.add_body(kn.Sphere(0.1), "ball", mass=2.0, pos=(0.0, 0.0, 0.103))
    scene.add_force(growing, bodies=ball, params={"f": 4e3})
    model = kn.compile(scene)
    end = kn.step(model, model.initial_state(v=numbers(0, 0, 0, 0, 0, -1.0)), dt=0.01)
    hit = 0.003
    assert abs(float(end.v[5]) - 0.5) < 1e-5  # contacts give way by cfm
    assert abs(float(end.v[3]) - 4e3 * hit * (0.01 - hit) / 2.0) < 1e-5


def test_a_law_of_gravity_between_many():
    """Two bodies on circles about their centre of mass: one revolution closes, with fourth order."""
    masses, apart, g = (3.0, 1.0), 1.0, 2.0
    rate = math.sqrt(g * sum(masses) / apart**3)
    scene = kn.Scene(NOTHING)
    radii = [apart * masses[1] / sum(masses), apart * masses[0] / sum(masses)]
    sun = scene.add_body(kn.Sphere(0.1, collides=False), "sun", mass=masses[0], pos=(-radii[0], 0.0, 0.0))
    scene.add_body(kn.Sphere(0.1, collides=False), "earth", mass=masses[1], pos=(radii[1], 0.0, 0.0))
    scene.add_body(kn.Sphere(0.1, collides=False), "dust", mass=1e-9, pos=(50.0, 0.0, 0.0))
    scene.add_force(newton, between=(sun, ["earth", "dust"]), params={"g": g, "m1": masses[0], "m2": [masses[1], 1e-9]})
    model = kn.compile(scene)
    v = torch.zeros(18, dtype=torch.float64)
    v[4], v[10] = -radii[0] * rate, radii[1] * rate
    period, errors = 2 * math.pi / rate, []
    for steps in (100, 200, 400):
        end = kn.simulate(model, model.initial_state(v=v), steps=steps, dt=period / steps, integrator="rk4").end
        errors.append(float((end.q - model.initial_state().q)[:10].abs().max()))
    assert errors[-1] < 1e-5 and all(order > 3.7 for order in orders(errors)), (errors, orders(errors))


@func
def newton(d: vec3, g, m1, m2):
    far = dot(d, d)
    return g * m1 * m2 / (far * far**0.5) * d
