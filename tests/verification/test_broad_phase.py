"""The broad phase loses no contact, finds the same pairs one by one and by a tree, and changes no bit of a motion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.lang import Array, Float, Int, kernel, shared
from kinema.lang.autograd.rollout import rollout
from kinema.lang.programs.program import Program
from kinema.simulation import constraints, detection
from kinema.simulation.detection import detect, find_near
from kinema.simulation.links import Links, TreeTables

F64 = torch.float64
MARGIN, DT = 0.05, 2e-3
ROCK = np.array([[0, 0, 0], [0.2, 0, 0], [0, 0.15, 0], [0.05, 0.05, 0.25], [0.15, 0.1, 0.1]])
SHAPES = (
    kn.Sphere(0.1),
    kn.Capsule(0.06, 0.15),
    kn.Box((0.05, 0.1, 0.15)),
    kn.Cylinder(0.08, 0.1),
    kn.Hull(ROCK),
)


@kernel
def mark_listed(
    number: Array[Int],
    count: Array[Int],
    gap: Array[Float],
    reach: Float,
    listed: Array[Float],
    all: Array[Float],
    within: Array[Float],
):
    """1 for every candidate of a near pair, else 0; the gaps of all candidates, and the reach."""
    within[0] = reach
    for i in range(len(listed)):
        listed[i] = 0.0
        all[i] = gap[i]
    for k in range(shared(count[0])):
        listed[number[k]] = 1.0


def crowd(seed: int, bodies: int = 14, spread: float = 0.9, **contact: Any) -> kn.Model:
    """Bodies of random kinds and sizes, some of two shapes, on the ground; one of them far larger than the others."""
    random = np.random.default_rng(seed)
    scene = kn.Scene(contact=kn.Contact(margin=MARGIN, max_contacts=4000, **contact))
    scene.add_ground(random.uniform(-0.1, 0.1))
    for k in range(bodies):
        kinds = random.integers(0, len(SHAPES), 1 + k % 2)
        own = [kn.Box((0.6, 0.5, 0.05))] if k == 0 else [SHAPES[i] for i in kinds]
        scene.add_body(own, f"b{k}", mass=1.0, pos=tuple(random.uniform(0, spread, 3)), fixed=k == 0)
    return kn.compile(scene)


def states(model: kn.Model, worlds: int, seed: int, spread: float = 0.9) -> dict[str, Tensor]:
    """Random poses and velocities of free bodies."""
    random = np.random.default_rng(seed)
    bodies = model.nq // 7
    q = np.concatenate([random.uniform(0, spread, (worlds, bodies, 3)), random.normal(size=(worlds, bodies, 4))], -1)
    q[..., 3:] /= np.linalg.norm(q[..., 3:], axis=-1, keepdims=True)
    v = random.normal(size=(worlds, model.nv))
    return {"q": torch.tensor(q.reshape(worlds, -1)), "v": torch.tensor(v)}


def search(model: kn.Model, start: dict[str, Tensor], follows: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Which candidates the broad phase lists, gaps of all of them, and the reach of contact, per world."""
    p = Program("search")
    q, v = p.state("q", Float, model.nq), p.state("v", Float, model.nv)
    links = Links(p, TreeTables(p, model.tree), q, v)
    margin, dt = p.constant("margin", Float, MARGIN), p.constant("dt", Float, DT)
    reach = p.scratch("reach", Float, 1) if follows else None
    near = find_near(links, model, dt, margin, reach)
    touch = detect(links, model, margin)
    assert touch is not None
    sizes = {"listed": len(model.candidates), "all": len(model.candidates), "within": 1}
    outs = [p.output(name, Float, size) for name, size in sizes.items()]
    p.call(mark_listed, near.candidate, near.count, touch.gap, margin if reach is None else reach, *outs)
    p.call(keep, q, v, q.next, v.next)
    given = {n: model.resolve()[n] for n, b in p.buffers.items() if b.kind == "parameter"}
    out = rollout(p, 1, start, given, record=tuple(sizes)).outputs
    return out["listed"][:, 0] > 0, out["all"][:, 0], out["within"][:, 0]


@kernel
def keep(q: Array[Float], v: Array[Float], q_next: Array[Float], v_next: Array[Float]):
    """The state stays as it is."""
    for i in range(len(q)):
        q_next[i] = q[i]
    for i in range(len(v)):
        v_next[i] = v[i]


def expect_no_contact_lost(seeds: range, worlds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    near = 0
    for seed in seeds:
        model = crowd(seed)
        start = states(model, worlds, seed)
        for follows in (False, True):
            monkeypatch.setattr(detection, "MANY", 0)
            by_tree, gap, reach = search(model, start, follows)
            monkeypatch.setattr(detection, "MANY", 10**9)
            # One world at a time: a pair is listed in all worlds of a register.
            few = [{n: x[k : k + 1] for n, x in start.items()} for k in range(4)]
            one_by_one = torch.cat([search(model, one, follows)[0] for one in few])
            assert torch.equal(one_by_one, by_tree[:4])
            assert by_tree[gap < reach].all()
            assert (search(model, start, follows)[0] | ~by_tree).all()
            near += int((gap < reach).sum())
            assert 0.02 < by_tree.double().mean() < 0.7  # neither nothing nor everything is listed
    assert near > 10 * worlds


def test_no_contact_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    expect_no_contact_lost(range(3), 100, monkeypatch)


@pytest.mark.slow
def test_no_contact_is_lost_in_ten_thousand_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    expect_no_contact_lost(range(10, 30), 500, monkeypatch)


def moved(model: kn.Model, steps: int) -> tuple[Tensor, ...]:
    """Motion of a crowd, and gradients of where it ends."""
    one = states(model, 1, 7)
    leaves = [x[0].clone().requires_grad_() for x in one.values()]
    path = kn.simulate(model, kn.State(*leaves), steps=steps, dt=DT)
    weights = torch.linspace(0.5, 1.5, model.nq, dtype=F64)
    return path.q, path.v, *torch.autograd.grad((path.q[-1] * weights).sum() + path.v[-1].square().sum(), leaves)


@pytest.mark.parametrize(
    "contact", [{}, {"solver": "pgs"}, {"solver": "pgs", "restitution": 0.5}, {"law": "convex"}], ids=str
)
def test_motions_and_gradients_have_the_same_bits_without_broad_phase(
    contact: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for pays, many in ((False, 0), (True, 0), (True, 10**9)):
        monkeypatch.setattr(constraints, "has_broad_phase", lambda *_, pays=pays: pays)
        monkeypatch.setattr(detection, "MANY", many)
        found.append(moved(crowd(2, 8, **contact), 30))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_gradients_are_slopes_while_pairs_appear_and_vanish() -> None:
    """A ball slides through a lane of bricks without touching them: its pairs come and go, and nothing jumps."""
    scene = kn.Scene(contact=kn.Contact(friction=0.3, max_contacts=200))
    scene.add_ground()
    scene.add_body(kn.Sphere(0.05), "ball", mass=0.5, pos=(0, 0, 0.0499))
    for k in range(10):
        scene.add_body(kn.Box((0.02, 0.02, 0.02)), f"brick{k}", mass=0.1, pos=(0.06 * k, 0.0702 * (-1) ** k, 0.0199))
    model = kn.compile(scene)
    start, steps, ball = model.initial_state().q, 80, model.q_index("ball/free")
    speeds = torch.linspace(1.9, 2.1, 21, dtype=F64, requires_grad=True)
    forward = torch.nn.functional.one_hot(torch.tensor(model.v_index("ball/free").start + 3), model.nv)
    path = kn.simulate(
        model, kn.State(start.repeat(21, 1), forward * speeds[:, None]), steps=steps, dt=DT, record=["impulse"]
    )
    touching = path.recorded["impulse"][..., 0] > 0
    assert touching[..., [n == "ball/body/0 on ground" for n in model.candidates.names]].any(-1).all()
    assert not touching[..., ["ball" in n and "brick" in n for n in model.candidates.names]].any()
    moving = {"q": path.q[10, ::4].detach(), "v": path.v[10, ::4].detach()}
    listed = torch.stack([search(model, {n: x[k : k + 1] for n, x in moving.items()}, True)[0][0] for k in range(20)])
    assert (listed.any(0) & ~listed.all(0)).sum() >= 5  # pairs appear and vanish
    reached = path.q[:, -1, ball][:, 0]
    (slope,) = torch.autograd.grad(reached.sum(), speeds)
    mean, secant = (slope[1:] + slope[:-1]) / 2, reached.diff() / speeds.detach().diff()
    # The way is smooth in the speed: means of slopes and secants differ by the square of the distance of states.
    assert torch.allclose(mean, secant, rtol=1e-4, atol=0)
