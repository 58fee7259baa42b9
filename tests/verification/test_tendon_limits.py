"""Limits of tendons: as those of joints over one joint, and with the impulses of one multiplier over several."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.contact_gradients import Case, Counts, check_gradients

import kinema as kn

Y = (0.0, 1.0, 0.0)


def finger(tendons: tuple[kn.Tendon, ...], limits: dict[str, tuple[float, float]] | None = None, base: bool = False):
    """Three links in a row and one beside them, on a base that may be free."""
    mass = kn.MassProperties(0.5, (0.1, 0.0, 0.02), (1e-3, 0.0, 0.0, 2e-3, 0.0, 2e-3))
    bodies = [kn.Body("base", joints=(kn.Joint("free", "free"),) if base else (), mass=mass)]
    if base:
        heavy = kn.MassProperties(50.0, (0.01, 0.0, 0.0), (0.5, 0.0, 0.0, 0.5, 0.0, 0.5))
        bodies[0] = replace(bodies[0], shapes=(kn.Sphere(0.05),), mass=heavy)
    for name, parent in (("a", "base"), ("b", "a"), ("c", "b"), ("d", "base")):
        lower, upper = (limits or {}).get(name, (-float("inf"), float("inf")))
        joint = kn.Joint(name, "revolute", Y, lower=lower, upper=upper, damping=0.05)
        bodies.append(kn.Body(name, parent, kn.Pose((0.2, 0.0, 0.0)), (joint,), mass))
    return kn.Robot("finger", tuple(bodies), tendons=tendons)


def compiled(robot: kn.Robot, contact: kn.Contact | None = None) -> kn.Model:
    scene = kn.Scene(contact=contact)
    scene.add_robot(robot)
    return kn.compile(scene)


@pytest.mark.parametrize("solver", ["newton", "pgs"])
@pytest.mark.parametrize("coefficient", [1.0, -2.5])
def test_over_one_joint_it_is_a_limit_of_the_joint(coefficient: float, solver: str):
    """To rounding, for rows scaled by the coefficient."""
    bounds = sorted((0.15 * coefficient, -0.4 * coefficient))
    tendon = kn.Tendon("t", (("b", coefficient),), lower=bounds[0], upper=bounds[1])
    contact = kn.Contact(solver=solver, cfm=0.0, max_correction_speed=1e3, iterations=200)
    ends = []
    for robot in (finger((tendon,)), finger((), {"b": (-0.4, 0.15)})):
        model = compiled(robot, contact)
        v = torch.tensor([0.5, 6.0, 0.0, 1.0], dtype=torch.float64)
        path = kn.simulate(model, model.initial_state(v=v), steps=400, dt=1e-3)
        ends.append(path.q)
    assert float(ends[0][:, 1].max()) > 0.149, "it is reached"
    torch.testing.assert_close(ends[0], ends[1], atol=1e-9, rtol=0)


@pytest.mark.parametrize("solver", ["newton", "pgs"])
@pytest.mark.parametrize("over", [("a", "c"), ("c", "d"), ("a", "b", "d")])
def test_over_several_joints(over: tuple[str, ...], solver: str):
    """The length stops at its limit, and the impulse is along its derivative: M dv = J^T impulse, of one sign."""
    names = ["a", "b", "c", "d"]
    J = torch.zeros(4, dtype=torch.float64)
    for k, name in enumerate(over):
        J[names.index(name)] = (0.8, -0.5, 1.2)[k]
    joints = tuple((name, float(J[names.index(name)])) for name in over)
    contact = kn.Contact(solver=solver, cfm=0.0)
    free = compiled(finger((kn.Tendon("t", joints, stiffness=1e-9),)), contact)
    stopped = compiled(finger((kn.Tendon("t", joints, offset=0.1, upper=0.12),)), contact)
    dt, touched = 1e-3, 0
    state = stopped.initial_state(v=8.0 * J)
    for _ in range(60):
        after, without = (kn.step(model, state, dt=dt) for model in (stopped, free))
        impulse = kn.mass_matrix(stopped, state.q) @ (after.v - without.v)
        if impulse.abs().max() > 1e-9:
            touched += 1
            # The damping is implicit: dt * 0.05 on the diagonal of M.
            impulse = impulse + dt * 0.05 * (after.v - without.v)
            multiplier = (impulse @ J) / (J @ J)
            assert multiplier < 0
            torch.testing.assert_close(impulse, multiplier * J, atol=1e-10, rtol=1e-7)
        state = after
        assert float(0.1 + J @ state.q) < 0.12 + 1e-9
    assert touched > 10


def test_gradients_with_a_contact_and_the_limit_pressing():
    """Central differences of a finger whose free base lies on the ground."""
    tendon = kn.Tendon("t", (("a", 0.8), ("c", 1.2)), upper=0.05, lower=-1.0)
    scene = kn.Scene(contact=kn.Contact(margin=0.02))
    scene.add_ground()
    scene.add_robot(finger((tendon,), base=True), "finger", pos=(0.0, 0.0, 0.05 - 1e-5))
    model = kn.compile(scene)
    q, v = model.initial_state().q, torch.zeros(model.nv, dtype=torch.float64)
    q[7:], v[6:] = torch.tensor([0.05, 0.1, 0.008, -0.2]), torch.tensor([5.0, 2.0, 8.0, 1.0])
    counts = Counts()
    names = ["mass", "com", "offset", "axis", "damping", "gravity", "friction", "contact/erp"]
    check_gradients(Case(model, q, v, names), 15, 2e-6, 1e-6, 0, counts)
    assert counts.pressing >= 10 and counts.switches < counts.cases / 3
    path = kn.simulate(model, kn.State(q, v), steps=15, dt=1e-3)
    assert abs(float(path.end.q[7:] @ torch.tensor([0.8, 0.0, 1.2, 0.0]).double()) - 0.05) < 1e-3, "at its limit"


def test_what_it_cannot_do_is_refused():
    over = kn.Tendon("t", (("c", 1.0), ("d", 1.0)), upper=0.1)
    with pytest.raises(kn.ModelError, match="which impacts cannot take into account"):
        kn.simulate(compiled(finger((over,), {"a": (-1.0, 1.0)}), kn.Contact(limit_restitution=0.5)), steps=1, dt=1e-3)
    robot = finger((replace(over, joints=(("c", 1.0), ("d", 1.0), ("e", 1.0))),))
    more = replace(robot.bodies[-1], name="e", joints=(kn.Joint("e", "revolute", Y),))
    with pytest.raises(kn.ModelError, match="joints of 3 branches"):
        compiled(replace(robot, bodies=(*robot.bodies, more)))
    with pytest.raises(kn.ModelError, match="the limits of tendon 'finger/t' are reversed"):
        compiled(finger((replace(over, lower=0.2),)))
