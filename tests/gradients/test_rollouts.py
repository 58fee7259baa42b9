"""Rollouts that follow each other: started from any state of another, and with some worlds set back in between.

Quadrupeds slide on the ground; gradients through both rollouts against central differences.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.scene.shapes.quadruped import quadruped

WORLDS, DT = 3, 2e-3
# Of a loss of order 1 along directions of order 1: rounding of 1e-16 / h; over 1e-6, contacts switch.
H, TOLERANCE = 1e-7, 1e-6


@pytest.fixture(scope="module")
def dog() -> kn.Model:
    scene = kn.Scene(contact=kn.Contact(friction=0.5))
    scene.add_ground()
    scene.add_robot(quadruped(), "dog")
    return kn.compile(scene)


@pytest.fixture(scope="module")
def start(dog: kn.Model) -> dict[str, Tensor]:
    """States with feet on the ground that slide at different speeds, and friction per world."""
    q = dog.initial_state().q
    unlike = torch.linspace(-0.01, 0.02, len(q) - 7)  # feet that land at the very same time are at a kink
    q[7:], q[2] = torch.tensor(dog.tree.rest[6:]) + unlike, 0.433
    v = torch.zeros(WORLDS, dog.nv, dtype=dog.dtype)
    v[:, 3] = torch.tensor([0.5, 1.0, 1.5])
    friction = dog.parameters("friction")["friction"]
    return {"q": q.repeat(WORLDS, 1), "v": v, "friction": friction.repeat(WORLDS, 1)}


def run(dog: kn.Model, state: kn.State, friction: Tensor, steps: int) -> kn.Trajectory:
    path = kn.simulate(dog, state, steps=steps, dt=DT, params={"friction": friction}, record=["impulse"])
    assert (path.recorded["impulse"][..., 0] > 0).flatten(1).any(1).all(), "every world touches the ground"
    return path


def check_gradient(loss: Callable[[dict[str, Tensor]], Tensor], at: dict[str, Tensor]) -> dict[str, Tensor]:
    """The gradient of a loss against central differences along random directions."""
    leaves = {n: t.clone().requires_grad_() for n, t in at.items()}
    grads = dict(zip(leaves, torch.autograd.grad(loss(leaves), list(leaves.values())), strict=True))
    random = torch.Generator().manual_seed(0)
    for name in at:
        along = torch.randn(at[name].shape, generator=random, dtype=torch.float64)
        with torch.no_grad():
            up, down = (float(loss({**at, name: at[name] + s * H * along})) for s in (1.0, -1.0))
        seen, exact = (up - down) / (2 * H), float((grads[name] * along).sum())
        assert exact != 0
        assert abs(exact - seen) <= TOLERANCE * max(abs(seen), 1.0), f"{name}: {exact} {seen}"
    return grads


@pytest.mark.parametrize("at", [0, 7, 20])
def test_a_rollout_starts_at_any_state_of_another(dog: kn.Model, start: dict[str, Tensor], at: int):
    def loss(x: dict[str, Tensor]) -> Tensor:
        first = run(dog, kn.State(x["q"], x["v"]), x["friction"], 20)
        second = run(dog, first.state(at), x["friction"], 25)
        return second.end.q.square().sum() + 0.1 * second.end.v.sum() + first.q[:, 10].sum()

    check_gradient(loss, start)
    whole = run(dog, kn.State(start["q"], start["v"]), start["friction"], at + 25)
    second = run(dog, whole.state(at), start["friction"], 25)
    assert torch.equal(second.q, whole.q[:, at:]) and torch.equal(second.v, whole.v[:, at:])


def test_some_worlds_are_reset_between_rollouts(dog: kn.Model, start: dict[str, Tensor]):
    over = torch.tensor([False, True, False])

    def chain(x: dict[str, Tensor], fresh: Tensor) -> tuple[kn.Trajectory, kn.Trajectory]:
        first = run(dog, kn.State(x["q"], x["v"]), x["friction"], 20)
        again = kn.State.where(over, kn.State(start["q"], fresh), first.end)
        return first, run(dog, again, x["friction"], 25)

    def loss(x: dict[str, Tensor]) -> Tensor:
        second = chain(x, x["fresh"])[1]
        return second.end.q.square().sum() + 0.1 * second.end.v.sum()

    fresh = start["v"].flip(0) + 0.1
    grads = check_gradient(loss, {**start, "fresh": fresh})
    # What came before a reset does not matter after it, and what it was reset to does not matter elsewhere.
    assert (grads["v"][over] == 0).all() and (grads["v"][~over] != 0).any()
    assert (grads["fresh"][~over] == 0).all() and (grads["fresh"][over] != 0).any()
    # Bits: the others go on as if nothing had happened, the reset one as if it were alone.
    _, second = chain(start, fresh)
    whole = run(dog, kn.State(start["q"], start["v"]), start["friction"], 45)
    alone = run(dog, kn.State(start["q"], fresh)[over], start["friction"][over], 25)
    assert torch.equal(second.q[~over], whole.q[~over, 20:]) and torch.equal(second.q[over], alone.q)
