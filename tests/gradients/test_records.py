"""Gradients of all that is recorded, with contacts, a limit and loops that carry load."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import Body, Closure, Joint, MassProperties, Pose, Robot, Shape, Site

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

BODIES, SITES = ("position", "rotation", "velocity"), ("site_position", "site_rotation", "site_velocity")
PLACES = (*BODIES, *SITES, "gap", "point", "normal")
LOADS = ("acceleration", "joint_load", "imu", "limit_impulse")
NAMES = ("mass", "com", "inertia", "offset", "axis", "place", "gravity", "stiffness", "rest")
NAMES += ("friction", "size", "centre")


def robot_in_contact(law: str) -> tuple[kn.Model, Tensor, Tensor]:
    """A box slides on the ground and carries an arm, bent beyond its limit, whose end is tied to a second robot.

    That loop is there with hard contact only.
    """
    box, mass = (
        Shape("box", (0.1, 0.08, 0.05)),
        MassProperties(1.0, (0.01, 0.0, 0.02), (0.03, 1e-3, 0.0, 0.04, 0.0, 0.02)),
    )
    hinge = Joint(
        "elbow", "revolute", (0.2, 1.0, 0.0), anchor=(0.02, 0.0, 0.0), stiffness=30.0, damping=0.5, lower=2e-3
    )
    hand = Body(
        "hand", "arm", Pose((0.2, 0.0, 0.1)), (), MassProperties(0.2, (0.0, 0.0, 0.05), (1e-3, 0, 0, 1e-3, 0, 1e-3))
    )
    imu = Site("imu", Pose((0.1, 0.02, 0.0), (0.8, 0.6, 0.0, 0.0)))
    bodies = (
        Body("box", None, Pose((0.0, 0.0, 0.049)), (Joint("free", "free"),), mass, (box,)),
        Body("arm", "box", Pose((0.05, 0.0, 0.1)), (hinge,), mass, (), (imu,)),
        Body("tip", "arm", Pose((0.2, 0.0, 0.1)), (Joint("ball", "ball", damping=0.1),), mass, (), (Site("tool"),)),
        hand,
        Body("rail", None, Pose((0.5, 0.0, 0.2)), (Joint("rail", "prismatic", (1.0, 0.0, 0.5), armature=0.1),), mass),
    )  # fmt: skip
    end = Pose((0.05, 0.0, 0.0))
    there = Pose((0.05 + 0.2 + 0.05 - 0.5, 0.0, 0.049 + 0.1 + 0.1 - 0.2))
    loops = (Closure("rod", "connect", "tip", "rail", end, there),) if law == "mlcp" else ()
    scene = kn.Scene(contact=kn.Contact(law=law, friction=0.3, cfm=1e-3, erp=0.02, k_e=2e3))
    scene.add_ground()
    scene.add_robot(Robot("r", bodies, (), loops))
    model = kn.compile(scene)
    v = 0.1 * torch.randn(model.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    v[3:6] = torch.tensor([0.5, 0.2, -0.05])
    return model, model.initial_state().q, v


@pytest.mark.parametrize(
    ("law", "steps", "tolerance"),
    [(law, *limit) for law in ("mlcp", "compliant") for limit in ((1, 1e-6), (32, 1e-5))]
    + [("compliant", 256, 1e-4)],  # within half a second hard contacts begin and end
)
def test_records(gradient_errors, law, steps, tolerance):
    model, q, v = robot_in_contact(law)
    generator = torch.Generator().manual_seed(5)
    names = (*NAMES, *(("contact/erp", "contact/cfm") if law == "mlcp" else ("contact/k_e", "contact/k_d")))
    given = {"q": q, "v": v, "tau": torch.randn(steps, model.nv, dtype=torch.float64, generator=generator)}
    given["tau"][:, 6] -= 5.0  # holds the elbow at its limit
    given["wrench"] = torch.randn(steps, 6, dtype=torch.float64, generator=generator)
    weights: dict[str, Tensor] = {}
    h = 1e-6 if law == "mlcp" else 3e-7

    loads = (*LOADS, *(("impulse",) if law == "mlcp" else ()))

    def path_of(g: dict[str, Tensor]) -> kn.Trajectory:
        params = {n: g[n] for n in names if n in g}
        state, control = kn.State(g["q"], g["v"]), kn.Control(tau=g["tau"], wrenches={"r/hand": g["wrench"]})
        return kn.simulate(model, state, control, steps=steps, dt=2e-3, params=params, record=(*PLACES, *loads))

    def loss(g: dict[str, Tensor], group: tuple[str, ...]) -> Tensor:
        found = path_of(g).recorded
        return torch.stack([(weights[name] * found[name]).sum() for name in group]).sum()

    found = path_of(given).recorded
    assert (found["gap"] < 0).sum() >= 2 * steps, "two corners at least press in every step"
    assert (found["limit_impulse"] > 0).all(), "the limit is not reached"
    for name, numbers in found.items():
        weights[name] = torch.randn(numbers.shape, dtype=torch.float64, generator=generator) / numbers.abs().max()
    # Derivatives of loads are far larger: those of places would drown in them.
    for group in (PLACES, loads):
        errors = gradient_errors(partial(loss, group=group), given | model.parameters(*names), h)
        print(errors)
        assert all(error <= tolerance for error in errors.values()), errors
