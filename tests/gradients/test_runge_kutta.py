"""Gradients through the Runge-Kutta method against central differences, with compliant contact that presses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import Actuator, Body, Joint, MassProperties, Pose, Robot, Shape, Site

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

NAMES = (
    *("mass", "com", "inertia", "offset", "axis", "place", "gravity", "armature", "damping", "stiffness", "rest"),
    *("gear", "kp", "kd", "friction", "size", "centre", "contact/k_e", "contact/k_d", "contact/k_f"),
)


def robot_on_springs() -> tuple[kn.Model, Tensor, Tensor]:
    """A box slides on soft ground and carries an arm with joints and actuators of all kinds."""
    mass = MassProperties(1.0, (0.01, 0.0, 0.02), (0.03, 1e-3, 0.0, 0.04, 0.0, 0.02))
    spring = {"stiffness": 30.0, "rest": 0.2, "damping": 0.5, "armature": 0.01}
    bodies = (
        Body("box", None, Pose((0.0, 0.0, 0.04)), (Joint("free", "free"),), mass, (Shape("box", (0.1, 0.08, 0.05)),)),
        Body("arm", "box", Pose((0.05, 0.0, 0.1)), (Joint("elbow", "revolute", (0.2, 1.0, 0.0), **spring),), mass),
        Body("slide", "arm", Pose((0.2, 0.0, 0.1)), (Joint("rail", "prismatic", (1.0, 0.0, 1.0), **spring),), mass),
        Body("tip", "slide", Pose((0.2, 0.0, 0.1)), (Joint("ball", "ball", damping=0.1),), mass, (), (Site("imu"),)),
        Body("fan", "tip", Pose(), (Joint("fan", "revolute", (0.0, 0.0, 1.0)),), mass),
    )
    motors = (
        Actuator("torque", "elbow", gear=2.0),
        Actuator("place", "rail", "position", kp=20.0, kd=1.0),
        Actuator("speed", "fan", "velocity", kd=0.5),
    )
    contact = kn.Contact(law="compliant", friction=0.3, k_e=1e3, k_d=20.0, k_f=20.0)
    scene = kn.Scene(contact=contact)
    scene.add_ground()
    scene.add_robot(Robot("r", bodies, motors))
    model = kn.compile(scene)
    v = 0.1 * torch.randn(model.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    v[3:6] = torch.tensor([0.5, 0.2, -0.3])
    return model, model.initial_state().q, v


@pytest.mark.parametrize(("steps", "tolerance"), [(1, 1e-6), (32, 1e-5)])
def test_rollouts(gradient_errors, steps, tolerance):
    model, q, v = robot_on_springs()
    generator = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    given = {"q": q, "v": v, "tau": normal(steps, model.nv), "u": normal(steps, 3), "wrench": normal(steps, 6)}
    of_state, of_sensor = normal(model.nq + model.nv), normal(steps, 1, 6)

    def path_of(g: dict[str, Tensor]) -> kn.Trajectory:
        params = {n: g[n] for n in NAMES if n in g}
        control = kn.Control(u=g["u"], tau=g["tau"], wrenches={"r/tip": g["wrench"]})
        words = {"steps": steps, "dt": 2e-3, "integrator": "rk4", "record": ("imu", "gap")}
        return kn.simulate(model, kn.State(g["q"], g["v"]), control, params=params, **words)

    def loss(g: dict[str, Tensor]) -> Tensor:
        path = path_of(g)
        return (torch.cat([path.end.q, path.end.v]) * of_state).sum() + 0.1 * (path.recorded["imu"] * of_sensor).sum()

    assert (path_of(given).recorded["gap"] < 0).sum() >= 2 * steps  # two corners at least press in every step
    errors = gradient_errors(loss, given | model.parameters(*NAMES), 3e-7)
    print(errors)
    assert all(error <= tolerance for error in errors.values()), errors
