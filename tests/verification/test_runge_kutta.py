"""The Runge-Kutta method: fourth order against closed forms and conservation laws, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import (
    Actuator,
    Body,
    Closure,
    Joint,
    MassProperties,
    Mimic,
    Pose,
    Robot,
    Shape,
    rotation_matrix,
)
from kinema.scene.mass_properties import mass_properties
from kinema.scene.shapes.pendulum import pendulum

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

G = 9.81


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def model_of(*bodies: Body, actuators=(), gravity=(0.0, 0.0, -G)) -> kn.Model:
    scene = kn.Scene(gravity)
    scene.add_robot(Robot("r", bodies, actuators))
    return kn.compile(scene)


def loose(joint: str, com=(0.0, 0.0, 0.0), inertia=(0.03, 0.0, 0.0, 0.05, 0.0, 0.07)) -> Body:
    return Body("b", None, Pose(), (Joint("j", joint),), MassProperties(1.5, com, inertia))


def run(model: kn.Model, q: Tensor, v: Tensor, time: float, steps: int, **words) -> kn.Trajectory:
    return kn.simulate(model, kn.State(q, v), steps=steps, dt=time / steps, integrator="rk4", **words)


def orders(errors: list[float]) -> list[float]:
    """From errors at steps that are halved."""
    return [math.log2(a / b) for a, b in zip(errors, errors[1:], strict=False)]


def double_pendulum() -> kn.Model:
    scene = kn.Scene()
    scene.add_robot(pendulum(2))
    return kn.compile(scene)


MOVING = {
    "double pendulum": (double_pendulum(), numbers(1.0, 0.5), numbers(0.0, 1.0)),
    "ball joint": (model_of(loose("ball", (0.1, 0.05, -0.2))), numbers(0.9, 0.1, -0.3, 0.3), numbers(1.0, 3.0, 0.3)),
    "free top": (
        model_of(loose("free", (0.05, 0.0, 0.02))),
        numbers(0.1, 0.2, 0.3, 2.0, 0.2, -0.6, 0.6),  # a quaternion of any length is as good
        numbers(1.0, 5.0, 0.3, 0.2, 0.5, -1.0),
    ),
}


@pytest.mark.parametrize("name", MOVING)
def test_fourth_order(name):
    """Halving the step leaves a sixteenth of the error, in coordinates and velocities."""
    model, q, v = MOVING[name]

    def end(steps: int) -> Tensor:
        path = run(model, q, v, 1.0, steps)
        return torch.cat([path.end.q, path.end.v])

    exact = end(3200)
    errors = [float((end(steps) - exact).norm()) for steps in (100, 200, 400)]
    assert errors[0] > 1e-7 and all(3.75 < order < 4.3 for order in orders(errors)), (errors, orders(errors))


def test_a_free_top():
    """Nothing pushes it: momentum in the world and energy drift by O(dt^4) at most; the asymmetric top tumbles."""
    model = model_of(loose("free"), gravity=(0.0, 0.0, 0.0))
    q, v = model.initial_state().q, numbers(0.1, 4.0, 0.05, 1.0, 0.0, 0.5)  # near the unstable axis
    drifts = []
    for steps in (300, 600, 1200):
        path = run(model, q, v, 6.0, steps)
        assert path.v[:, 1].min() < -3.9  # it turned over
        assert (path.q[:, 3:].norm(dim=-1) - 1).abs().max() < 1e-14
        momenta, energy = kn.momentum(model, path.q, path.v), kn.kinetic_energy(model, path.q, path.v)
        drifts.append([float((momenta - momenta[0]).norm(dim=-1).max()), float((energy - energy[0]).abs().max())])
        # What is in the body's axes is turned into the world's at every instant: the centre moves on a straight line.
        assert torch.allclose(
            path.q[:, :3], numbers(1.0, 0.0, 0.5) * torch.linspace(0, 6, steps + 1)[:, None].double(), atol=1e-4
        )
    for drift in zip(*drifts, strict=True):
        assert drift[0] < 1e-3 and all(order > 3.8 for order in orders(list(drift))), drifts


def test_a_symmetric_top_precesses():
    """In the body's axes w turns at (I3 - I1) / I1 w3 [Landau and Lifshitz, Mechanics, sec. 36]."""
    model = model_of(loose("ball", inertia=(0.05, 0.0, 0.0, 0.05, 0.0, 0.08)), gravity=(0.0, 0.0, 0.0))
    rate, time = 0.03 / 0.05 * 4.0, 2.0
    wanted = numbers(math.cos(rate * time), math.sin(rate * time), 4.0)
    errors = [
        float((run(model, numbers(1, 0, 0, 0), numbers(1, 0, 4), time, n).end.v - wanted).norm()) for n in (20, 40, 80)
    ]
    assert errors[-1] < 1e-5 and all(3.9 < order < 4.1 for order in orders(errors)), errors
    # The momentum in the world is constant: the attitude is right, too.
    end = run(model, numbers(1, 0, 0, 0), numbers(1, 0, 4), time, 80).end
    R = torch.tensor(rotation_matrix(end.q.tolist()))
    turned = R @ (numbers(0.05, 0.05, 0.08) * end.v)
    assert torch.allclose(turned, numbers(0.05, 0.0, 0.32), atol=1e-6)


@pytest.mark.parametrize("driven", ["spring", "servo", "wrench"])
def test_a_damped_oscillator(driven):
    """Springs, dampers, servos and wrenches act at the stages: x = exp(-a t) (...) with an error of O(dt^4)."""
    mass, k, d, drive = 2.0, 50.0, 3.0, 0.0 if driven == "servo" else 0.5
    stiff = {} if driven == "servo" else {"stiffness": k, "damping": d}
    body = Body(
        "b",
        None,
        Pose(),
        (Joint("j", "prismatic", (1.0, 0.0, 0.0), armature=drive, **stiff),),
        MassProperties(mass - drive),
    )
    servo = (Actuator("a", "j", "position", kp=k, kd=d),) if driven == "servo" else ()
    model, wanted_at = model_of(body, actuators=servo), 0.3
    control = {
        "spring": lambda n: kn.Control(tau=torch.full((n, 1), k * wanted_at, dtype=torch.float64)),
        "servo": lambda n: torch.full((n, 1), wanted_at, dtype=torch.float64),
        "wrench": lambda n: kn.Control(wrenches={"r/b": numbers(0, 0, 0, k * wanted_at, 0, 0).expand(n, 6)}),
    }[driven]
    a, time = d / (2 * mass), 1.0
    w = math.sqrt(k / mass - a * a)
    c, s, e = math.cos(w * time), math.sin(w * time), math.exp(-a * time)
    x = wanted_at * (1 - e * (c + a / w * s))
    v = wanted_at * e * s * (w + a * a / w)
    found = [run(model, numbers(0), numbers(0), time, n, u=control(n)) for n in (20, 40, 80)]
    errors = [math.hypot(path.end.q.item() - x, path.end.v.item() - v) for path in found]
    assert errors[-1] < 1e-5 and all(3.8 < order < 4.2 for order in orders(errors)), errors


def test_energy_of_a_swinging_chain():
    """The drift over some swings falls with dt^4, and is far below what semi-implicit Euler leaves."""
    model, q, v = MOVING["double pendulum"]

    def drift(steps: int, **words) -> float:
        path = kn.simulate(model, kn.State(q, v), steps=steps, dt=5.0 / steps, **words)
        energy = kn.kinetic_energy(model, path.q, path.v) + kn.potential_energy(model, path.q)
        return float((energy - energy[0]).abs().max() / energy[0].abs())

    drifts = [drift(steps, integrator="rk4") for steps in (500, 1000, 2000)]
    print(drifts, drift(2000))
    assert all(3.7 < order < 5.3 for order in orders(drifts)) and drifts[-1] < 1e-6 * drift(2000), drifts


def test_compliant_contact_and_what_is_recorded():
    """A ball comes to rest at the depth m g / k_e; while it bounces and is pushed, nothing but that moves it."""
    ball = Shape("sphere", (0.1,))
    scene = kn.Scene(contact=kn.Contact(law="compliant", k_e=1e3, k_d=60.0, k_f=20.0))
    scene.add_ground()
    scene.add_robot(
        Robot(
            "r",
            (Body("b", None, Pose((0, 0, 0.15)), (Joint("free", "free"),), mass_properties(ball, mass=1.0), (ball,)),),
        )
    )
    scene.add_site("r/b", "imu")
    model = kn.compile(scene)
    push = torch.zeros(1500, 6, dtype=torch.float64)
    push[:200] = numbers(0.002, 0.01, -0.005, 1.0, -0.5, 1.0)
    record = ["gap", "joint_load", "imu", "acceleration"]
    start = model.initial_state().q, torch.zeros(6, dtype=torch.float64)
    path = run(model, *start, 3.0, 1500, u=kn.Control(wrenches={"r/b": push}), record=record)
    found = path.recorded
    assert found["gap"].min() < -0.012 and found["joint_load"].abs().max() < 1e-11
    assert abs(float(found["gap"][-1]) + G / 1e3) < 1e-6
    assert abs(float(found["imu"][-1, 0, 3:].norm()) - G) < 1e-4
    batch = run(model, *(t.expand(3, -1) for t in start), 0.2, 100, u=kn.Control(wrenches={"r/b": push[:100]}))
    assert torch.equal(batch.end.q[1], path.q[100])  # one world of many is the same to the bit


HINGE = {"kind": "revolute", "axis": (0.0, 1.0, 0.0)}


@pytest.mark.parametrize(
    ("joint", "closures", "ground", "told"),
    [
        ({"upper": 1.0}, (), False, "1 limited joints"),
        ({"friction": 1.0}, (), False, "1 degrees of freedom with dry friction"),
        ({"mimic": Mimic("other")}, (), False, "1 mimic joints"),
        ({}, (Closure("c", "connect", "b", None),), False, "1 closed loops"),
        ({"prescribed": True}, (), False, "1 prescribed joints"),
        ({}, (), True, "1 candidates of hard contacts"),
    ],
)
def test_constraints_are_refused(joint, closures, ground, told):
    shape, mass = Shape("sphere", (0.1,)), MassProperties(1.0, (0.0, 0.0, -0.1), (0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
    bodies = (
        Body("a", None, Pose(), (Joint("other", **HINGE),), mass),
        Body("b", None, Pose(), (Joint("one", **HINGE, **joint),), mass, (shape,)),
    )
    scene = kn.Scene()
    if ground:
        scene.add_ground()
    scene.add_robot(Robot("r", bodies, (), closures))
    model = kn.compile(scene)
    with pytest.raises(kn.InputError, match=f"(?s)smooth scenes.*{told}.*integrator='euler'"):
        run(model, numbers(0, 0), numbers(0, 0), 1.0, 1)


def test_unknown_names_are_refused():
    model, q, v = MOVING["double pendulum"]
    with pytest.raises(kn.InputError, match="(?s)unknown integrator.*'euler' or 'implicit' or 'implicitfast' or 'rk4'"):
        kn.simulate(model, kn.State(q, v), steps=1, dt=1e-3, integrator="leapfrog")
    for integrator in ("euler", "rk4"):
        for name in ("impulse", "limit_impulse", "gap", "imu"):
            with pytest.raises(kn.InputError, match=f"no '{name}'"):
                kn.simulate(model, kn.State(q, v), steps=1, dt=1e-3, integrator=integrator, record=[name])
