"""Steps one by one, and their Jacobians in tangent space: against central differences and against gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests import soft_scenes
from torch import Tensor

import kinema as kn
from kinema.kinematics.joint_types import BALL, FREE
from kinema.lang.build import compiler
from kinema.scene.description import Actuator, Body, Joint, MassProperties, Pose, Robot, Shape
from kinema.scene.shapes.ant import ant
from kinema.scene.shapes.block import block
from kinema.scene.shapes.pendulum import pendulum
from kinema.scene.shapes.quadruped import quadruped
from kinema.simulation.tangent_space import inverse_rates, normalised, rates

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")
DT, H = 2e-3, 1e-6


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# -- the manifold ----------------------------------------------------------------------------------------------------


def product(a: Tensor, b: Tensor) -> Tensor:
    """Of quaternions."""
    w = a[..., :1] * b[..., :1] - (a[..., 1:] * b[..., 1:]).sum(-1, keepdim=True)
    turned = a[..., :1] * b[..., 1:] + b[..., :1] * a[..., 1:] + torch.linalg.cross(*broadcast(a[..., 1:], b[..., 1:]))
    return torch.cat([w, turned], -1)


def broadcast(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.broadcast_tensors(*tensors))


def conjugate(a: Tensor) -> Tensor:
    return a * torch.tensor([1.0, -1.0, -1.0, -1.0], dtype=a.dtype)


def rotated(a: Tensor, x: Tensor) -> Tensor:
    """Vectors turned by unit quaternions."""
    return product(product(a, torch.nn.functional.pad(x, (1, 0))), conjugate(a))[..., 1:]


def places(model: kn.Model) -> list[tuple[int, int, int, bool]]:
    """Of joints with quaternions: where coordinates, the quaternion and velocities begin, and whether it is free."""
    found, tree = [], model.tree
    for kind, q, v in zip(tree.kind.tolist(), tree.q_start.tolist(), tree.v_start.tolist(), strict=True):
        if kind in (BALL, FREE):
            found.append((q, q + 3 * (kind == FREE), v, kind == FREE))
    return found


def plain(model: kn.Model) -> tuple[list[int], list[int]]:
    """Coordinates and velocities of joints that turn about or slide along an axis."""
    tree = model.tree
    axes = np.flatnonzero(~np.isin(tree.kind, (BALL, FREE)))
    return tree.q_start[axes].tolist(), tree.v_start[axes].tolist()


def plus(model: kn.Model, q: Tensor, d: Tensor) -> Tensor:
    """q (+) d: coordinates after a second with velocities d, which turn with the body that they move."""
    moved = normalised(model, q)
    at, of = plain(model)
    moved[..., at] += d[..., of]
    for start, turning, v, free in places(model):
        unit, half = moved[..., turning : turning + 4].clone(), 0.5 * d[..., v : v + 3]
        if free:
            moved[..., start : start + 3] += rotated(unit, d[..., v + 3 : v + 6])
        angle = half.norm(dim=-1, keepdim=True)
        turn = torch.cat([angle.cos(), half * torch.sinc(angle / torch.pi)], -1)
        moved[..., turning : turning + 4] = product(unit, turn)
    return moved


def minus(model: kn.Model, b: Tensor, a: Tensor) -> Tensor:
    """b (-) a: the d with a (+) d = b, for unit quaternions that are near each other."""
    d = torch.zeros(*b.shape[:-1], model.nv, dtype=b.dtype)
    at, of = plain(model)
    d[..., of] = b[..., at] - a[..., at]
    for start, turning, v, free in places(model):
        unit = a[..., turning : turning + 4]
        if free:
            d[..., v + 3 : v + 6] = rotated(conjugate(unit), b[..., start : start + 3] - a[..., start : start + 3])
        turn = product(conjugate(unit), b[..., turning : turning + 4])
        sine = turn[..., 1:].norm(dim=-1, keepdim=True)
        share = torch.where(sine > 0, torch.arcsin(sine) / sine, torch.ones_like(sine))  # 0 / 0 is 1 here
        d[..., v : v + 3] = 2 * share * turn[..., 1:] * turn[..., :1].sign()
    return d


def tangents(model: kn.Model, state: kn.State, origin: kn.State) -> Tensor:
    """state (-) origin, all parts side by side, shape (*batch, n)."""
    parts = []
    for name, tensor in state.tensors.items():
        own = getattr(origin, name)
        part = minus(model, tensor, own) if name == "q" else tensor - own
        parts.append(part.flatten(-2) if name in ("x", "xd") else part)
    return torch.cat(parts, -1)


def counts_of(model: kn.Model, state: kn.State) -> list[int]:
    """Number of tangents of each part of a state."""
    return [
        model.nv if name == "q" else tensor.shape[-2:].numel() if name in ("x", "xd") else tensor.shape[-1]
        for name, tensor in state.tensors.items()
    ]


def displaced(model: kn.Model, state: kn.State, h: float) -> kn.State:
    """State (+) h e_k for all k as a batch in front of its own."""
    made = {}
    counts = counts_of(model, state)
    way = h * torch.eye(sum(counts), dtype=torch.float64)
    for (name, tensor), d in zip(state.tensors.items(), way.split(counts, -1), strict=True):
        axes = 2 if name in ("x", "xd") else 1
        d = d.reshape(len(d), *[1] * (tensor.ndim - axes), *((-1, 3) if axes == 2 else (-1,)))
        made[name] = plus(model, tensor.expand(len(d), *tensor.shape), d) if name == "q" else tensor + d
    return kn.State(**made)


def differences(
    model: kn.Model, state: kn.State, given: dict[str, Tensor], acting: tuple[str, ...], **words
) -> tuple[Tensor, Tensor]:
    """A and B of a step by central differences, all columns as one batch; `given` is what the control is made of."""

    def after(state: kn.State, control: dict[str, Tensor]) -> kn.State:
        return kn.step(model, state, kn.Control(**control), **words)

    origin = after(state, given)
    up, down = (tangents(model, after(displaced(model, state, h), given), origin) for h in (H, -H))
    by_control = [torch.zeros(0, *up.shape[1:], dtype=torch.float64)]
    for name in acting:
        way = H * torch.eye(given[name].shape[-1], dtype=torch.float64)
        way = way.reshape(len(way), *[1] * (given[name].ndim - 1), -1)
        sides = [tangents(model, after(state, given | {name: given[name] + d}), origin) for d in (way, -way)]
        by_control.append((sides[0] - sides[1]) / (2 * H))
    return ((up - down) / (2 * H)).movedim(0, -1), torch.cat(by_control).movedim(0, -1)


def check(model: kn.Model, state: kn.State, given: dict[str, Tensor], rounding: float = 0.0, **words) -> None:
    """A and B against differences: 1e-6 of the largest entry of the block of rows and columns that one part has."""
    acting = tuple(n for n in ("u", "tau", "motion") if n in given)
    found = kn.linearise(model, state, kn.Control(**given), **words)
    wanted = differences(model, state, given, acting, **words)
    rows = counts_of(model, state)
    for got, right, columns in (
        (found.A, wanted[0], rows),
        (found.B, wanted[1], [given[n].shape[-1] for n in acting]),
    ):
        assert got.shape == right.shape and not got.requires_grad
        for i, (a, b) in enumerate(zip(got.split(rows, -2), right.split(rows, -2), strict=True)):
            for k, (own, other) in enumerate(zip(a.split(columns, -1), b.split(columns, -1), strict=True)):
                error, size = float((own - other).abs().max()), float(other.abs().max())
                assert error <= 1e-6 * size + rounding, (list(state.tensors)[i], k, error, size)


def test_the_tangent_space_is_that_of_a_step():
    """Free of forces a step is q (+) dt v; rates are its derivative by v, whatever the length of quaternions."""
    ball = Shape("sphere", (0.1,))
    mass = MassProperties(1.0, inertia=(0.01, 0.0, 0.0, 0.01, 0.0, 0.01))
    scene = kn.Scene(gravity=(0.0, 0.0, 0.0))
    for kind in ("free", "ball", "revolute", "prismatic"):
        scene.add_robot(Robot(kind, (Body("b", None, Pose(), (Joint("j", kind),), mass, (ball,)),)))
    model = kn.compile(scene)
    q, v = normal(5, model.nq), normal(5, model.nv, seed=1)
    unit = normalised(model, q)
    G = rates(model, unit)
    assert torch.allclose(inverse_rates(model, unit) @ G, torch.eye(model.nv, dtype=torch.float64), atol=1e-14)
    slope = (plus(model, q, H * v) - plus(model, q, -H * v)) / (2 * H)
    assert torch.allclose(slope, (G @ v.unsqueeze(-1)).squeeze(-1), atol=1e-9)
    assert torch.allclose(minus(model, plus(model, q, 0.3 * v), unit), 0.3 * v, atol=1e-13)
    after = kn.step(model, kn.State(q, v), dt=0.1)
    assert torch.allclose(after.q, plus(model, q, 0.1 * v), atol=1e-14)


# -- robots ----------------------------------------------------------------------------------------------------------


def pressed(robot: Robot, **words) -> tuple[kn.Model, kn.State]:
    """A robot a little below the ground, three worlds in slow motion."""
    scene = kn.Scene(contact=kn.Contact(cfm=1e-3, **words))
    scene.add_ground()
    scene.add_robot(robot, "r")
    model = kn.compile(scene)
    q = model.initial_state().q
    generator = torch.Generator().manual_seed(0)
    q[7:] += 0.05 * torch.randn(model.nq - 7, dtype=torch.float64, generator=generator)
    gaps = kn.simulate(model, kn.State(q), steps=1, dt=DT, record=["gap"]).recorded["gap"]
    q[2] -= float(gaps.min()) + 1e-3
    v = 0.05 * torch.randn(3, model.nv, dtype=torch.float64, generator=generator)
    return model, kn.State(q.expand(3, -1).clone(), v)


@pytest.mark.parametrize("robot", [quadruped(), ant()], ids=["quadruped", "ant"])
def test_robots_in_contact(robot: Robot):
    """Every column; feet press in every world."""
    model, state = pressed(robot)
    pressing = kn.simulate(model, state, steps=1, dt=DT, record=["impulse"]).recorded["impulse"]
    assert (pressing[..., 0] > 0).any(-1).all()
    given = {"tau": 0.1 * normal(3, model.nv, seed=1)}
    if len(model.actuators):
        given["u"] = 0.1 * torch.ones(3, len(model.actuators), dtype=torch.float64)
    check(model, state, given, dt=DT)


def contraption(prescribed: bool = False, **contact) -> tuple[kn.Model, kn.State, dict[str, Tensor]]:
    """A box that slides on the ground and carries joints of all kinds, springs, a motor and servos.

    Two worlds with quaternions that are not of unit length. A second robot is prescribed, if asked for: a table on
    a ball joint, on which something lies.
    """
    mass = MassProperties(1.0, (0.01, 0.0, 0.02), (0.03, 1e-3, 0.0, 0.04, 0.0, 0.02))
    spring = {"stiffness": 30.0, "rest": 0.2, "damping": 0.5, "armature": 0.01}
    bodies = (
        Body("box", None, Pose((0.0, 0.0, 0.049)), (Joint("free", "free"),), mass, (Shape("box", (0.1, 0.08, 0.05)),)),
        Body("arm", "box", Pose((0.05, 0.0, 0.1)), (Joint("elbow", "revolute", (0.2, 1.0, 0.0), **spring),), mass),
        Body("slide", "arm", Pose((0.2, 0.0, 0.1)), (Joint("rail", "prismatic", (1.0, 0.0, 1.0), **spring),), mass),
        Body("tip", "slide", Pose((0.2, 0.0, 0.1)), (Joint("ball", "ball", damping=0.1),), mass),
        Body("fan", "tip", Pose(), (Joint("fan", "revolute", (0.0, 0.0, 1.0)),), mass),
    )
    motors = (
        Actuator("torque", "elbow", gear=2.0),
        Actuator("place", "rail", "position", kp=20.0, kd=1.0),
        Actuator("speed", "fan", "velocity", kd=0.5),
    )
    scene = kn.Scene(contact=kn.Contact(friction=0.3, **contact))
    scene.add_ground()
    scene.add_robot(Robot("r", bodies, motors))
    if prescribed:
        top, load = Shape("box", (0.5, 0.5, 0.05)), Shape("box", (0.1, 0.1, 0.1))
        joints = Joint("lift", "prismatic", prescribed=True), Joint("tilt", "ball", prescribed=True)
        table = Body("top", None, Pose((3.0, 0.0, 1.0)), joints, mass, (top,))
        lies = Body("load", None, Pose((3.1, 0.05, 1.149)), (Joint("free", "free"),), mass, (load,))
        scene.add_robot(Robot("table", (table, lies)))
    model = kn.compile(scene)
    q, v = model.initial_state().q.repeat(2, 1), 0.1 * normal(2, model.nv, seed=1)
    q[:, 7:13] += 0.1 * normal(2, 6, seed=2)
    q[:, 3:7] *= 1.7
    v[:, 3:6] = torch.tensor([0.5, 0.2, -0.05])
    given = {"u": normal(2, 3, seed=3), "tau": normal(2, model.nv, seed=4)}
    if prescribed:
        given["motion"] = torch.tensor([[0.1, 0.05, 0.2, -0.1], [0.2, -0.1, 0.0, 0.1]], dtype=torch.float64)
    return model, kn.State(q, v), given


CASES: dict[str, tuple[dict, dict]] = {
    "hard": ({"cfm": 1e-3}, {}),
    "cone": ({"cfm": 1e-3, "cone": True}, {}),
    "sweeps": ({"cfm": 1e-3, "solver": "pgs", "iterations": 20}, {}),
    "substeps": ({"cfm": 1e-3}, {"substeps": 3}),
    "compliant": ({"law": "compliant", "k_e": 1e3, "k_d": 20.0, "k_f": 20.0}, {}),
    "rk4": ({"law": "compliant", "k_e": 1e3, "k_d": 20.0, "k_f": 20.0}, {"integrator": "rk4"}),
}


@pytest.mark.parametrize("case", CASES)
def test_joints_motors_and_servos_of_all_kinds(case: str):
    contact, words = CASES[case]
    model, state, given = contraption(**contact)
    name = "gap" if "law" in contact else "impulse"
    seen = kn.simulate(model, state, steps=1, dt=DT, record=[name]).recorded[name]
    touching = seen < 0 if name == "gap" else seen[..., 0] > 0
    assert (touching.sum(-1) >= 2).all()
    assert len(set(model.tree.kind.tolist())) == 4
    check(model, state, given, dt=DT, **words)


def test_prescribed_joints():
    """Something lies on a table that lifts and tilts as told; B has columns of u, tau and motion, in this order."""
    model, state, given = contraption(prescribed=True, cfm=1e-3)
    assert model.prescribed == ["table/lift", "table/tilt"]
    check(model, state, given, dt=DT)
    found = kn.linearise(model, state, kn.Control(**given), dt=DT).B
    own = model.tree.v_start[[model.joints.index(name) for name in model.prescribed]]
    rows = [model.nv + int(own[0]), *(model.nv + int(own[1]) + k for k in range(3))]
    assert torch.allclose(found[..., rows, -4:], torch.eye(4, dtype=torch.float64), atol=1e-14), "they move as told"
    alone = kn.linearise(model, state, kn.Control(motion=given["motion"]), dt=DT).B
    assert alone.shape == (2, 2 * model.nv, 4)


def test_the_columns_of_B():
    """Those of what is given; without anything, of the actuators, or of the joints of a robot without actuators."""
    model, state, given = contraption(cfm=1e-3)
    n = 2 * model.nv
    both = kn.linearise(model, state, kn.Control(**given), dt=DT)
    assert both.B.shape == (2, n, 3 + model.nv)
    zero = torch.zeros(2, 3, dtype=torch.float64)
    plain, told = kn.linearise(model, state, dt=DT), kn.linearise(model, state, zero, dt=DT)
    assert plain.B.shape == (2, n, 3) and all(map(torch.equal, plain, told))
    pushed = kn.linearise(model, state, kn.Control(tau=0.0), dt=DT)
    assert pushed.B.shape == (2, n, model.nv) and torch.equal(pushed.A, plain.A)
    dog, state = pressed(quadruped())
    assert not len(dog.actuators) and kn.linearise(dog, state, dt=DT).B.shape == (3, 2 * dog.nv, dog.nv)


def test_they_are_those_of_gradients():
    model, state = pressed(quadruped())
    A, _ = kn.linearise(model, state, dt=DT)
    leaves = state.clone().requires_grad_()
    weights = normal(3, 2 * model.nv, seed=2)
    after = kn.step(model, leaves, dt=DT)
    turned = (inverse_rates(model, after.q.detach()) @ after.q.unsqueeze(-1)).squeeze(-1)
    by = torch.autograd.grad((torch.cat([turned, after.v], -1) * weights).sum(), (leaves.q, leaves.v))
    wanted = torch.cat([(by[0].unsqueeze(-2) @ rates(model, normalised(model, state.q))).squeeze(-2), by[1]], -1)
    assert torch.allclose((weights.unsqueeze(-2) @ A).squeeze(-2), wanted, rtol=1e-12, atol=1e-12)


def test_steps_of_other_integrators():
    """A step of fourth order is that of `simulate`, and its Jacobian that of its gradients."""
    scene = kn.Scene()
    scene.add_robot(pendulum(2))
    model = kn.compile(scene)
    state = kn.State(torch.tensor([0.4, -0.3], dtype=torch.float64), torch.tensor([0.5, 1.0], dtype=torch.float64))
    ends = {n: kn.step(model, state, dt=0.05, integrator=n) for n in ("euler", "rk4", "implicit")}
    wanted = kn.simulate(model, state, steps=1, dt=0.05, integrator="rk4").end
    assert torch.equal(ends["rk4"].q, wanted.q) and torch.equal(ends["rk4"].v, wanted.v)
    assert not torch.equal(ends["rk4"].q, ends["euler"].q) and torch.equal(ends["implicit"].q, ends["euler"].q)
    A = kn.linearise(model, state, dt=0.05, integrator="rk4").A
    leaves = state.clone().requires_grad_()
    out = kn.step(model, leaves, dt=0.05, integrator="rk4").q.sum()
    by = torch.autograd.grad(out, (leaves.q, leaves.v))
    assert torch.allclose(A[:2].sum(0), torch.cat(by), rtol=1e-12)


# -- batches and params ----------------------------------------------------------------------------------------------


def test_every_world_may_have_its_own_numbers():
    """As many worlds as outputs: a batch of parameters must not be taken for one of outputs."""
    model, state = pressed(quadruped())
    n = 2 * model.nv
    mass = model.parameters("r/trunk/mass")["r/trunk/mass"] * torch.linspace(0.8, 1.3, n, dtype=torch.float64)
    found = kn.linearise(model, state[0].expand(n), dt=DT, params={"r/trunk/mass": mass})
    for w in (0, n - 1):
        alone = kn.linearise(model, state[0], dt=DT, params={"r/trunk/mass": mass[w]})
        assert torch.equal(found.A[w], alone.A) and torch.equal(found.B[w], alone.B)
    assert not torch.equal(found.A[0], found.A[-1])
    shared = kn.linearise(model, state[0], dt=DT, params={"r/trunk/mass": mass, "friction": 0.4})
    told = kn.linearise(model, state[0], dt=DT, params={"r/trunk/mass": float(mass[3]), "friction": 0.4})
    assert shared.A.shape == (n, n, n) and torch.equal(shared.A[3], told.A), "numbers alone are a batch"


@pytest.mark.parametrize("batch", [(2,), (36,)])
def test_a_batch_of_controls_alone_is_a_batch(batch: tuple[int]):
    """Of forces on joints, or wrenches on bodies; also if there are as many worlds as outputs."""
    model, state = pressed(quadruped())
    tau, wrench = normal(*batch, model.nv, seed=4), normal(*batch, 6, seed=5)
    for many, one in (
        (kn.Control(tau=tau), kn.Control(tau=tau[1])),
        (kn.Control(wrenches={"r/trunk": wrench}), kn.Control(wrenches={"r/trunk": wrench[1]})),
        (kn.Control(tau=tau, wrenches={"r/trunk": wrench}), kn.Control(tau=tau[1], wrenches={"r/trunk": wrench[1]})),
    ):
        found, alone = kn.linearise(model, state[0], many, dt=DT), kn.linearise(model, state[0], one, dt=DT)
        assert found.A.shape == (*batch, 36, 36) and torch.equal(found.A[1], alone.A)
        assert torch.equal(found.B[1], alone.B)
    assert not torch.equal(found.A[0], found.A[1])


def test_batches_of_several_dimensions():
    """(2, 3) worlds: coordinates for each of three, velocities and torques for each of two."""
    model, state = pressed(quadruped())
    q = state.q + torch.tensor([0.0, 1e-4, 2e-4], dtype=torch.float64)[:, None] * torch.eye(model.nq).double()[2]
    v, tau = 0.05 * normal(2, 1, model.nv), normal(2, 1, model.nv, seed=1)
    found = kn.linearise(model, kn.State(q, v), kn.Control(tau=tau), dt=DT)
    assert found.A.shape == (2, 3, 36, 36) and found.B.shape == (2, 3, 36, model.nv)
    alone = kn.linearise(model, kn.State(q[2], v[1, 0]), kn.Control(tau=tau[1, 0]), dt=DT)
    assert torch.equal(found.A[1, 2], alone.A) and torch.equal(found.B[1, 2], alone.B)


def test_nothing_is_recorded():
    """Nor does what is given collect gradients; it works where gradients are switched off."""
    model, state = pressed(quadruped())
    leaves, mass = state.clone().requires_grad_(), model.parameters("mass", requires_grad=True)
    with torch.no_grad():
        found = kn.linearise(model, leaves, kn.Control(tau=normal(model.nv).requires_grad_()), dt=DT, params=mass)
    assert not found.A.requires_grad and not found.B.requires_grad
    assert leaves.q.grad is None and mass["mass"].grad is None


# -- impulses as state -----------------------------------------------------------------------------------------------


def started() -> tuple[kn.Model, kn.State]:
    """Three worlds in contact, of three sweeps each from impulses of another step, which are far from a solution."""
    model, state = pressed(quadruped(), solver="pgs", warm_start=True, iterations=3, time_of_impact=False)
    kept = kn.step(model, state.replace(v=0.9 * state.v), dt=DT).impulses
    assert kept.shape == (3, len(model.initial_state().impulses))
    assert (kept.unflatten(-1, (-1, 3))[..., 0] > 0).any(-1).all()
    return model, state.replace(impulses=kept)


def test_impulses_of_a_warm_start_are_state():
    """Every column and row of a state that impulses belong to.

    Impulses of candidates that do not touch are zero and stay so; the others are away from their bounds or at one that
    moves along with them.
    """
    model, state = started()
    counts = counts_of(model, state)
    found = kn.linearise(model, state, dt=DT)
    assert found.A.shape == (3, sum(counts), sum(counts)) and found.B.shape == (3, sum(counts), model.nv)
    blocks = [block for rows in found.A.split(counts, -2) for block in rows.split(counts, -1)]
    assert all(float(block.abs().max()) > 1e-3 for block in blocks), "they matter"
    check(model, state, {"tau": torch.zeros(3, model.nv, dtype=torch.float64)}, dt=DT)


def test_steps_with_impulses_are_a_run():
    """To the bit; and the Jacobian of a chain of steps is the product of theirs."""
    model, start = started()
    run = kn.simulate(model, start, steps=5, dt=DT)
    counts = counts_of(model, start)
    state, chain = start, torch.eye(sum(counts), dtype=torch.float64)
    for _ in range(5):
        chain = kn.linearise(model, state, dt=DT).A @ chain
        state = kn.step(model, state, dt=DT)
    assert all(torch.equal(t, run.end.tensors[n]) for n, t in state.tensors.items())
    leaves = start.clone().requires_grad_()
    again = kn.simulate(model, leaves, steps=5, dt=DT)
    by_q, *others = torch.autograd.grad(again.end.v.sum(), list(leaves.tensors.values()))
    by_q = (by_q.unsqueeze(-2) @ rates(model, normalised(model, start.q))).squeeze(-2)
    wanted = torch.cat([by_q, *others], -1)
    rows = slice(model.nv, 2 * model.nv)
    assert torch.allclose(chain[:, rows].sum(-2), wanted, rtol=1e-10, atol=1e-10 * float(wanted.abs().max()))


@pytest.mark.parametrize("one", [kn.step, kn.linearise])
def test_impulses_that_are_not_given_are_zero(one: Callable):
    scene = kn.Scene(contact=kn.Contact(solver="pgs", warm_start=True))
    scene.add_robot(pendulum(1))
    free = kn.compile(scene)
    still = torch.zeros(1, dtype=torch.float64)
    one(free, kn.State(impulses=still[:0]), dt=DT)  # nothing to keep
    assert free.initial_state().impulses is None
    with pytest.raises(kn.InputError, match="the model has no warm start"):
        one(free, kn.State(impulses=still), dt=DT)
    scene.add_ground()
    scene.add_robot(quadruped())
    model = kn.compile(scene)
    with pytest.raises(kn.InputError, match="impulses has the wrong shape"):
        one(model, kn.State(impulses=still), dt=DT)
    placed = model.initial_state()
    assert not placed.impulses.any()
    found, wanted = (one(model, state, dt=DT) for state in (kn.State(placed.q), placed))
    for a, b in zip(*((x.tensors.values() if one is kn.step else x) for x in (found, wanted)), strict=True):
        assert torch.equal(a, b)


# -- soft matter -----------------------------------------------------------------------------------------------------


def stiff() -> kn.Model:
    """A block on the ground that takes implicit steps."""
    scene = kn.Scene()
    scene.add_ground()
    skin = kn.Skin(radius=0.01, k_e=2e3, k_f=20.0, friction=0.4)
    material = kn.Solid(mu=4e4, lam=8e4, density=800.0, viscosity=50.0)
    scene.add_solid(block((1, 1, 1), 0.1), "s", material=material, skin=skin, pos=(0.0, 0.0, 0.055))
    return kn.compile(scene, torch.float64)


SOFT: dict[str, tuple[Callable[[], kn.Model], dict]] = {
    "beads": (soft_scenes.beads_scene, {"dt": 2e-4}),
    "gripper": (soft_scenes.gripper_scene, {"dt": 2e-4}),
    "pinned": (soft_scenes.pinned_scene, {"dt": 2e-4, "substeps": 2}),
    "coupled": (lambda: soft_scenes.coupled_scene("newton"), {"dt": 2e-4}),
    "implicit": (stiff, {"dt": 1 / 120, "integrator": "implicit"}),
}


def soft(name: str) -> tuple[kn.Model, kn.State, dict]:
    """In motion; with this seed no contact of the coupled scene is within 1e-6 m of sliding."""
    make, words = SOFT[name]
    model = make()
    return model, kn.State(*soft_scenes.set_in_motion(model, 1), *soft_scenes.moved(model, 1)), words


@pytest.mark.parametrize("name", SOFT)
def test_soft_matter(name: str):
    """Alone and with robots that it touches or is pinned to; of robots, B has columns of forces on their joints.

    Robots hardly move particles in one step: differences of numbers of size 1 round to 1e-16 / H.
    """
    model, state, words = soft(name)
    given = {"tau": normal(model.nv)} if model.nv else {}
    n = 2 * model.nv + 6 * len(model.matter)
    found = kn.linearise(model, state, kn.Control(**given), **words)
    assert found.A.shape == (n, n) and found.B.shape == (n, model.nv)
    check(model, state, given, rounding=1e-16 / H, **words)


def test_soft_matter_in_a_batch():
    """Worlds with forces on particles and activations of their own, as they are alone."""
    model = soft_scenes.gripper_scene()
    x, xd = soft_scenes.moved(model, 0)
    states = kn.State(x=torch.stack([x, x + 1e-3]), xd=xd)
    forces, activation = 0.1 * normal(2, *x.shape), 0.1 * normal(2, model.matter.elements)
    found = kn.linearise(model, states, kn.Control(forces=forces, activation=activation), dt=2e-4)
    for w in range(2):
        control = kn.Control(forces=forces[w], activation=activation[w])
        alone = kn.linearise(model, states[w], control, dt=2e-4)
        assert torch.equal(found.A[w], alone.A) and torch.equal(found.B[w], alone.B)
    plain = kn.linearise(model, states, dt=2e-4)
    assert not torch.equal(found.A, plain.A), "the activation matters"


# -- single steps ----------------------------------------------------------------------------------------------------


def equal(a: kn.State, b: kn.State) -> bool:
    return set(a.tensors) == set(b.tensors) and all(torch.equal(t, b.tensors[n]) for n, t in a.tensors.items())


@pytest.mark.parametrize("name", [*CASES, "prescribed", "warm start", *SOFT])
def test_a_step_is_a_run_of_one_step(name: str):
    """To the bit, with all that can act on it."""
    if name in SOFT:
        model, state, words = soft(name)
        given = {"forces": 0.1 * normal(len(model.matter), 3)} | ({"tau": normal(model.nv)} if model.nv else {})
        given |= {"activation": 0.1 * normal(model.matter.elements)} if model.matter.elements else {}
    elif name == "warm start":
        (model, state), words = started(), {"dt": DT}
        given = {"tau": normal(3, model.nv), "wrenches": {"r/trunk": normal(3, 6)}}
    else:
        contact, words = CASES.get(name, ({}, {}))
        model, state, given = contraption(prescribed=name == "prescribed", **contact)
        words = {"dt": DT, **words}
        given |= {"wrenches": {"r/tip": normal(2, 6)}}
    over_steps = {n: t.unsqueeze(-3 if n == "forces" else -2) for n, t in given.items() if n != "wrenches"}
    over_steps |= {"wrenches": {n: w.unsqueeze(-2) for n, w in given.get("wrenches", {}).items()}}
    run = kn.simulate(model, state, kn.Control(**over_steps), steps=1, **words)
    found = kn.step(model, state, kn.Control(**given), **words)
    assert equal(found, run.end) and not equal(found, kn.step(model, state, **words)), "what acts matters"
    assert set(found.tensors) == set(model.initial_state().tensors)


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", [kn.step, kn.linearise])
def test_what_is_refused(one: Callable):
    model, state = pressed(quadruped())
    pair = torch.zeros(2, model.nv, dtype=torch.float64)
    for told, given, control in (
        ("this is no state", state.q, None),
        ("q has the wrong shape", state.replace(q=state.v), None),
        ("q has the wrong shape", kn.State(torch.tensor(0.0, dtype=torch.float64)), None),
        ("v has the wrong type", state.replace(v=state.v.float()), None),
        ("the model has no particles", state.replace(x=torch.zeros(4, 3, dtype=torch.float64)), None),
        ("the quaternion in q is zero", state.replace(q=0 * state.q), None),
        ("the model has no actuators", state, pair),
        ("no joint is prescribed", state, kn.Control(motion=[1.0])),
        ("the model has no particles", state, kn.Control(forces=torch.zeros(1, 3, dtype=torch.float64))),
        ("the model has no tetrahedra and no triangles", state, kn.Control(activation=[0.1])),
        ("tau has the wrong shape", state, kn.Control(tau=[1.0, 2.0])),
        ("tau has the wrong type", state, kn.Control(tau=pair.float())),
        ("tau is no tensor and no numbers", state, kn.Control(tau="strong")),
        ("the wrench on 'r/trunk' has the wrong shape", state, kn.Control(wrenches={"r/trunk": [1.0, 2.0]})),
        ("there is no body 'r/tail'", state, kn.Control(wrenches={"r/tail": torch.zeros(6, dtype=torch.float64)})),
        ("batch dimensions do not match", state, kn.Control(tau=pair)),
        ("batch dimensions do not match", state, kn.Control(wrenches={"r/trunk": pair[:, :6]})),
        ("batch dimensions .*do not match", state.replace(v=pair), None),
    ):
        with pytest.raises(kn.InputError, match=told):
            one(model, given, control, dt=DT)
    for told, words in (
        ("not a model", {"model": kn.Scene()}),
        ("dt is not usable", {"dt": 0.0}),
        ("substeps is not usable", {"substeps": 0}),
        ("no such integrator", {"integrator": "leapfrog"}),
        ("no parameter 'r/tail/mass'", {"params": {"r/tail/mass": 1.0}}),
        ("batch dimensions do not match", {"params": {"gravity": pair[:, :3]}}),
    ):
        with pytest.raises(kn.InputError, match=told):
            one(**({"model": model, "state": state, "dt": DT} | words))
    with pytest.raises(kn.InputError, match=r"(?s)wrenches are given by name of a body.*got: list"):
        kn.Control(wrenches=[1.0])
