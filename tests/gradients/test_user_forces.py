"""Gradients through own laws of force against central differences, with contact that presses; bits of batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from tests.soft_scenes import arm
from torch import Tensor

import kinema as kn
from kinema.lang import cos, cross, dot, func, mat33, sin, vec3
from kinema.lang.build import compiler
from kinema.math import Force
from kinema.simulation import linearise as module

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

DT = 1e-3


@func
def pd(q, v, time, kp, kd, goal, rate):
    return kp * (goal * sin(rate * time) - q) - kd * v


@func
def joint_energy(q, time, k):
    return k * (1.0 - cos(q)) * (1.0 + time)


@func
def propeller(x: vec3, v: vec3, R: mat33, w: vec3, time, thrust, drag, air: vec3):
    """Thrust along the own axis, drag in moving air, and a moment that damps."""
    push = R @ vec3(0.0, 0.0, thrust * (1.0 + 0.3 * sin(5.0 * time)))
    return Force(-0.02 * w + 0.1 * cross(x, push), push + drag * (air - v))


@func
def only_force(v: vec3, R: mat33, f: vec3):
    return R @ f - 0.2 * v


@func
def tether(d: vec3, u: vec3, time, k, rest):
    far = dot(d, d) ** 0.5
    n = d / far
    return (k * (far - rest - 0.05 * time) + 0.3 * dot(n, u)) * n


@func
def compass(x: vec3, R: mat33, k, field: vec3):
    """The energy of a magnet, and of a trap."""
    return 0.5 * dot(x, x) - k * dot(R @ vec3(1.0, 0.0, 0.0), field)


@func
def twisting(d: vec3, R1: mat33, R2: mat33, k):
    side = dot(R1 @ vec3(0.0, 1.0, 0.0), d)
    return k * (side * side + dot(R1 @ vec3(1.0, 0.0, 0.0), R2 @ vec3(0.0, 1.0, 0.0)))


@func
def gust(x: vec3, v: vec3, time, drag, way: vec3):
    return drag * (way * sin(4.0 * time + x.x) - v)


@func
def bond(d: vec3, depth, rest):
    longer = dot(d, d) ** 0.5 - rest
    return depth * longer * longer * (1.0 + longer)


BEADS = np.array([(0.1 * i, 0.1 * j, 0.009 + 0.05 * (i == 3)) for i in range(4) for j in range(4)])
BONDS = [(4 * i + j, 4 * i + j + 1) for i in range(4) for j in range(3)] + [(k, k + 4) for k in range(12)]


def laboratory(soft: bool = True, depth: float = 1e-5, **contact: Any) -> kn.Model:
    """An arm that presses on the ground, a box on it, and beads that touch it; laws of all kinds."""
    scene = kn.Scene(contact=kn.Contact(friction=0.6, **contact))
    scene.add_ground()
    robot = scene.add_robot(arm(), pos=(-0.6, 0.0, 0.02 - depth))
    box = scene.add_body(kn.Box((0.06, 0.05, 0.04)), "box", mass=0.8, pos=(0.0, 0.5, 0.04 - depth))
    tool = scene.add_site("arm/hand", "tool", pos=(0.1, 0.0, 0.05))
    scene.add_force(pd, joints=robot, params={"kp": [8.0, 5.0], "kd": 0.2, "goal": [0.5, 0.6], "rate": 7.0})
    scene.add_force(energy=joint_energy, joints="arm/elbow", params={"k": 0.7})
    scene.add_force(propeller, bodies=box, params={"thrust": 1.5, "drag": 0.3, "air": (1.0, 0.5, 0.0)})
    scene.add_force(only_force, bodies=tool, params={"f": (0.3, 0.2, -0.5)})
    scene.add_force(tether, between=([tool, robot["upper"]], box), params={"k": [3.0, 2.0], "rest": 0.2})
    scene.add_force(energy=compass, bodies=box, params={"k": 0.1, "field": (0.3, 1.0, 0.1)})
    scene.add_force(energy=twisting, between=(box, robot["hand"]), params={"k": 0.2})
    if soft:
        skin = kn.Skin(radius=0.01, k_e=300.0, k_d=0.3, k_f=1.0)
        beads = scene.add_particles(BEADS, "beads", mass=0.05, skin=skin, pos=(0.3, 0.0, 0.0))
        scene.attach(beads, [15], to=box)
        stiff = np.linspace(10.0, 20.0, len(BONDS))
        scene.add_force(gust, particles=beads, params={"drag": np.linspace(0.1, 0.3, 16), "way": (0.5, 0.2, 1.0)})
        scene.add_force(energy=bond, between=(beads, beads), vertices=BONDS, params={"depth": stiff, "rest": 0.09})
        scene.add_force(gust, "puff", particles=beads, vertices=[5, 1], params={"drag": [0.2, 0.1], "way": (1, 0, 0)})
    return kn.compile(scene, torch.float64)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def inputs(model: kn.Model) -> dict[str, Tensor]:
    """State, numbers of all laws, and the time."""
    placed = model.initial_state()
    found = {"q": placed.q.clone(), "v": 0.05 * normal(model.nv), "time": torch.tensor(0.4, dtype=torch.float64)}
    found["v"][2:] -= 0.05 * model.zeros(6)
    if placed.x is not None:
        found |= {"x": placed.x + 1e-4 * normal(*placed.x.shape), "xd": 0.1 * normal(*placed.x.shape, seed=1)}
    names = [n for law in model.forces for n in (f"{law.name}/{key}" for key in law.numbers)]
    return found | model.parameters(*names, "place", "gravity", "mass")


def run(model: kn.Model, given: Mapping[str, Tensor], steps: int, **words: Any) -> kn.Trajectory:
    given = dict(given)
    state = kn.State(**{n: given.pop(n) for n in ("q", "v", "x", "xd", "time") if n in given})
    return kn.simulate(model, state, steps=steps, params=given, **{"dt": DT, **words})


def flat(state: kn.State) -> Tensor:
    """All tensors but the time, which is known."""
    return torch.cat([t.flatten() for t in state.replace(time=None).tensors.values()])


SOFT_GROUND = {"law": "compliant", "k_e": 500.0, "k_d": 5.0, "k_f": 5.0, "depth": 3e-3, "soft": False}
CASES: dict[str, tuple[dict[str, Any], int, dict[str, Any]]] = {
    "euler": ({}, 12, {}),
    "sweeps": ({"solver": "pgs", "warm_start": True, "cfm": 1e-3}, 12, {}),
    "substeps": ({}, 4, {"substeps": 3, "dt": 3 * DT}),
    "implicit": ({}, 8, {"integrator": "implicit", "dt": 4 * DT}),
    "implicit substeps": ({}, 4, {"integrator": "implicit", "substeps": 2, "dt": 4 * DT}),
    "impacts": ({"restitution": 0.4}, 12, {}),
    "rk4": (SOFT_GROUND, 12, {"integrator": "rk4"}),
    "rk4 substeps": (SOFT_GROUND, 6, {"integrator": "rk4", "substeps": 2, "dt": 2 * DT}),
}


@pytest.mark.parametrize("name", CASES)
def test_rollouts(gradient_errors, name: str):
    contact, steps, words = CASES[name]
    model = laboratory(**contact)
    given = inputs(model)
    path = run(model, given, steps, record=["gap"], **words)
    assert (path.recorded["gap"] < 0).sum() >= 2 * steps, "two corners at least press in every step"
    if "x" in given:
        assert (path.x[:, :, 2] < 0.01).sum() > 4 * steps
    weights = normal(flat(path.end).numel(), seed=3)

    def loss(g: dict[str, Tensor]) -> Tensor:
        return (flat(run(model, g, steps, **words).end) * weights).sum()

    errors = gradient_errors(loss, given, 3e-7)
    print({n: f"{e:.1e}" for n, e in errors.items()})
    assert all(error <= 1e-5 for error in errors.values()), errors


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def worlds(model: kn.Model, count: int) -> dict[str, Tensor]:
    """Worlds that differ in state, numbers and time."""
    found = {}
    for n, t in inputs(model).items():
        noise = normal(count, *t.shape, seed=7)
        found[n] = t + 1e-3 * noise if n in ("q", "v", "x", "xd") else t * (1.0 + 0.05 * noise)
    return found


@pytest.mark.parametrize("name", ["euler", "implicit", "impacts", "rk4"])
def test_batches_threads_and_checkpoints_do_not_change_a_bit(name: str):
    contact, _, words = CASES[name]
    model = laboratory(**contact)
    given = worlds(model, 9)
    weights = normal(9, flat(model.initial_state()).numel(), seed=4)

    def ran(of: dict[str, Tensor], weight: Tensor, **options: Any) -> list[Tensor]:
        leaves = {n: t.clone().requires_grad_() for n, t in of.items()}
        end = run(model, leaves, 6, options=kn.RunOptions(**options), **words).end
        total = sum((flat(end[w]) * weight[w]).sum() for w in range(9)) if end.batch else (flat(end) * weight).sum()
        return [*end.tensors.values(), *torch.autograd.grad(total, list(leaves.values()))]

    whole = ran(given, weights, threads=1)
    assert same(whole, ran(given, weights, threads=2))
    assert same(whole, ran(given, weights, threads=1, checkpoint=4))
    for w in (0, 8):
        alone = ran({n: t[w] for n, t in given.items()}, weights[w])
        assert same([t[w] for t in whole], alone), w


def test_many_particles_on_threads():
    """Elements of one big world on several threads: sums of shared numbers and of bonds keep their order."""
    count = 3000
    at = np.random.default_rng(0).normal(size=(count, 3))
    scene = kn.Scene()
    dust = scene.add_particles(at, "dust", mass=0.05, skin=None)
    scene.add_force(gust, particles=dust, params={"drag": np.linspace(0.1, 0.3, count), "way": (0.5, 0.2, 1.0)})
    ends = [(i, (7 * i + k) % count) for i in range(count) for k in (1, 2) if (7 * i + k) % count != i]
    scene.add_force(energy=bond, between=(dust, dust), vertices=ends, params={"depth": 0.1, "rest": 0.9})
    model = kn.compile(scene, torch.float64)
    found = []
    for threads in (1, 2, 3):
        leaves = model.parameters("gust/drag", "gust/way", "bond/depth", "bond/rest", requires_grad=True)
        time = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
        options = kn.RunOptions(threads=threads)
        end = kn.simulate(model, kn.State(time=time), steps=4, dt=1e-3, params=leaves, options=options).end
        found.append([end.x, *torch.autograd.grad(end.x.sin().sum(), [*leaves.values(), time])])
    assert same(found[0], found[1]) and same(found[0], found[2])


def test_single_precision():
    """Scenes of particles alone are in float32 by default: laws are compiled for it, too."""
    scene = kn.Scene()
    beads = scene.add_particles(BEADS, "beads", mass=0.05, skin=None)
    scene.add_force(gust, particles=beads, params={"drag": 0.2, "way": (0.5, 0.2, 1.0)})
    scene.add_force(energy=bond, between=(beads, beads), vertices=BONDS, params={"depth": 15.0, "rest": 0.09})
    found = []
    for dtype in (torch.float32, torch.float64):
        model = kn.compile(scene, dtype)
        numbers = model.parameters("gust/drag", "bond/rest", requires_grad=True)
        end = kn.simulate(model, model.initial_state(time=0.3), steps=50, dt=2e-3, params=numbers).end
        found.append([end.x, *torch.autograd.grad(end.x.square().sum(), list(numbers.values()))])
    assert kn.compile(scene).dtype == torch.float32
    for one, two in zip(*found, strict=True):
        assert torch.allclose(one.double(), two, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_linearise(batch: tuple[int, ...], monkeypatch):
    """Rows that are pulled back through the step, copies of a world, and central differences: one Jacobian."""
    model = laboratory(cfm=1e-3)
    given = inputs(model) if not batch else worlds(model, *batch)
    state = kn.State(**{n: given.pop(n) for n in ("q", "v", "x", "xd", "time")})
    words = {"dt": DT, "params": given}
    pulled = kn.linearise(model, state, kn.Control(tau=model.zeros(model.nv)), **words)
    with monkeypatch.context() as patch:
        patch.setattr(module, "linear_step_of", lambda *_: None)
        copied = kn.linearise(model, state, kn.Control(tau=model.zeros(model.nv)), **words)
    for one, two in zip(pulled, copied, strict=True):
        assert torch.allclose(one, two, rtol=0.0, atol=1e-10 * float(two.abs().max()))
    if batch:
        return
    nv, h = model.nv, 1e-6
    ahead, behind = (
        kn.step(model, state.replace(v=state.v + sign * h * torch.eye(nv, dtype=torch.float64)), **words)
        for sign in (1.0, -1.0)
    )
    slopes = ((ahead.v - behind.v) / (2 * h)).T
    assert torch.allclose(pulled.A[nv : 2 * nv, nv : 2 * nv], slopes, rtol=0.0, atol=1e-6)


def test_linearise_with_times_of_worlds_in_stages():
    """Copies of worlds that have a time each."""
    model = laboratory(**SOFT_GROUND)
    time = torch.tensor([0.1, 0.5], dtype=torch.float64)
    words = {"dt": DT, "integrator": "rk4"}
    both = kn.linearise(model, model.initial_state(time=time), **words)
    for k in range(2):
        alone = kn.linearise(model, model.initial_state(time=float(time[k])), **words)
        assert torch.equal(both.A[k], alone.A) and torch.equal(both.B[k], alone.B)
    assert not torch.equal(both.A[0], both.A[1])
