"""Gradients of recorded accelerations, sensors, sites and joint loads, with contacts and loops that carry load."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.lang import build
from kinema.scene.description import Body, Closure, Joint, MassProperties, Pose, Robot, Shape, Site

pytestmark = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")

RECORDS = ("acceleration", "joint_load", "imu", "site_position", "site_rotation", "site_velocity")
NAMES = ("mass", "com", "inertia", "offset", "axis", "place", "gravity", "stiffness", "rest")
NAMES += ("friction", "size", "centre")


def robot_in_contact(law: str) -> tuple[kn.Model, Tensor, Tensor]:
    """A box slides on the ground and carries an arm, whose end a loop (hard contact only) ties to a second robot."""
    box, mass = (
        Shape("box", (0.1, 0.08, 0.05)),
        MassProperties(1.0, (0.01, 0.0, 0.02), (0.03, 1e-3, 0.0, 0.04, 0.0, 0.02)),
    )
    hinge = Joint("elbow", "revolute", (0.2, 1.0, 0.0), anchor=(0.02, 0.0, 0.0), stiffness=30.0, damping=0.5)
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
    return model, model.initial_coordinates(), v


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
    given["wrench"] = torch.randn(steps, 6, dtype=torch.float64, generator=generator)
    weights: dict[str, Tensor] = {}

    def path_of(g: dict[str, Tensor], *more: str) -> kn.Trajectory:
        params, wrenches = {n: g[n] for n in names if n in g}, {"r/hand": g["wrench"]}
        words = {"steps": steps, "dt": 2e-3, "progress": False}
        return kn.simulate(
            model, g["q"], g["v"], g["tau"], wrenches=wrenches, params=params, record=(*RECORDS, *more), **words
        )

    def loss(g: dict[str, Tensor]) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for name, found in path_of(g).recorded.items():
            if name not in weights:
                weights[name] = (
                    torch.randn(found.shape, dtype=torch.float64, generator=generator) / found.detach().abs().max()
                )
            total = total + (weights[name] * found).sum()
        return total

    gaps = path_of(given, "gap").recorded["gap"]
    assert (gaps < 0).sum() >= 2 * steps  # two corners at least press in every step
    errors = gradient_errors(loss, given | model.parameters(*names), 1e-6 if law == "mlcp" else 3e-7)
    print(errors)
    assert all(error <= tolerance for error in errors.values()), errors
