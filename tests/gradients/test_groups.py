"""Gradients of parameters that stand for many numbers: groups and patterns, against central differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import kinema as kn

H = 1e-5
LUMP = kn.MassProperties(1.0, (0.0, 0.0, -0.5), (0.1, 0.0, 0.0, 0.1, 0.0, 0.1))


def scene() -> kn.Scene:
    """Two bricks and a pair of balls that slide on the ground, and a chain that swings above them."""
    made = kn.Scene(friction=0.4)
    made.add_ground()
    made.add_body(kn.Box((0.2, 0.15, 0.05)), "brick", mass=1.0, pos=(0.0, 0.0, 0.05))
    made.add_body(kn.Box((0.2, 0.15, 0.05)), "stone", mass=2.0, pos=(0.0, 2.0, 0.05))
    pair = [kn.Sphere(0.1, pose=kn.Pose((0.0, y, 0.0)), name=name) for y, name in ((-0.3, "left"), (0.3, "right"))]
    made.add_body(pair, "pair", mass=1.5, pos=(0.0, 4.0, 0.0995))  # pressed, so that radii are at no switch
    names = ("upper", "lower")
    joints = {name: kn.Joint(f"{name}_hinge", "revolute", (0.0, 1.0, 0.0), damping=0.2) for name in names}
    upper = kn.Body("upper", None, kn.Pose((0.0, 0.0, 5.0)), (joints["upper"],), LUMP)
    lower = kn.Body("lower", "upper", kn.Pose((0.0, 0.0, -1.0)), (joints["lower"],), LUMP)
    made.add_robot(kn.Robot("chain", (upper, lower)))
    return made


def loss(model: kn.Model, params: dict[str, Tensor]) -> Tensor:
    """How far things come, weighted so that nothing cancels."""
    state = model.initial_state()
    v = state.v.clone()
    v[model.v_index("*/free")] = torch.tensor([0.1, 0.0, 0.3, 1.5, 0.4, 0.0] * 3, dtype=v.dtype)
    v[model.v_index("chain")] = torch.tensor([2.0, -1.0], dtype=v.dtype)
    end = kn.simulate(model, state.replace(v=v), steps=32, dt=5e-3, params=params).end
    weights = torch.linspace(0.5, 1.5, model.nq, dtype=v.dtype)
    return (weights * end.q).sum(-1) + (weights[: model.nv] * end.v).sum(-1)


PATHS = {
    "ground/friction": 0.4,
    "brick/friction": 0.3,
    "pair/body/left/friction": 0.3,
    "*/friction": 0.35,
    "?????/mass": 1.2,
    "chain/damping": 0.3,
    "chain/*_hinge/damping": [0.3, 0.5],
    "pair/body/size": None,
}


@pytest.mark.parametrize("path", PATHS)
def test_groups_against_differences(path: str):
    model = kn.compile(scene())
    given = model.parameters(path)[path] if PATHS[path] is None else torch.tensor(PATHS[path], dtype=torch.float64)
    leaf = given.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(model, {path: leaf}), leaf)
    wanted = torch.zeros_like(given)
    for i in range(given.numel()):
        step = torch.zeros(given.numel(), dtype=torch.float64)
        step[i] = H
        if path.endswith("size") and i % 3:
            continue  # of a sphere, only the first number means something
        sides = [loss(model, {path: given + sign * step.reshape(given.shape)}) for sign in (1, -1)]
        wanted.view(-1)[i] = (sides[0] - sides[1]).detach() / (2 * H)
    assert float(wanted.abs().max()) > 1e-3  # it matters
    assert torch.allclose(found, wanted, rtol=1e-6, atol=1e-7), (found, wanted)


def test_one_number_for_a_group_collects_the_gradients_of_its_rows():
    model = kn.compile(scene())
    rows = model.parameters("ground/friction", requires_grad=True)
    one = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    (each,) = torch.autograd.grad(loss(model, rows), list(rows.values()))
    (total,) = torch.autograd.grad(loss(model, {"ground/friction": one}), one)
    assert len(each) == len(model.candidates) - sum("ground" not in n for n in model.candidates.names)
    assert torch.allclose(each.sum(), total, rtol=1e-12)


def test_worlds_of_a_group():
    """A row axis of length 1 is one number for every world: gradients are those of the worlds alone."""
    model = kn.compile(scene())
    worlds = torch.tensor([[0.2], [0.4]], dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(loss(model, {"brick/friction": worlds}).sum(), worlds)
    for k in range(2):
        one = worlds.detach()[k, 0].requires_grad_()
        (alone,) = torch.autograd.grad(loss(model, {"brick/friction": one}), one)
        assert torch.allclose(found[k, 0], alone, rtol=1e-12)
