"""Repeated calls of `linearise` with one world: the same bits as first calls, and the same errors."""

from __future__ import annotations

import pytest
import torch

import kinema as kn
from kinema.simulation import linearise as module

DT = 2e-3


def standing() -> tuple[kn.Model, kn.State, torch.Tensor]:
    """A quadruped on the ground."""
    scene = kn.Scene(friction=0.8)
    scene.add_ground()
    scene.add_robot(kn.shapes.quadruped(), "dog", drive=kn.Servo(kp=40.0, kd=1.0))
    model = kn.compile(scene, dtype=torch.float64)
    return model, model.initial_state(), torch.zeros(len(model.actuators), dtype=torch.float64)


def moved(state: kn.State, seed: int) -> kn.State:
    random = torch.Generator().manual_seed(seed)
    return state.replace(v=0.3 * torch.randn(state.v.shape, generator=random, dtype=state.v.dtype))


def first(model: kn.Model, *given, **words) -> kn.Linearised:
    """The same call, not as a repeated one."""
    module._LAST.pop(model, None)
    return kn.linearise(model, *given, **words)


def same(a: kn.Linearised, b: kn.Linearised) -> bool:
    return torch.equal(a.A, b.A) and torch.equal(a.B, b.B)


def test_repeated_calls_have_the_bits_of_first_ones():
    model, state, u = standing()
    kn.linearise(model, state, u, dt=DT)
    known = module._LAST[model]
    for seed in range(5):
        now, push = moved(state, seed), u + 3.0 * seed
        found = kn.linearise(model, now, push, dt=DT)
        assert module._LAST[model] is known, "it was not a repeated call"
        assert same(found, first(model, now, push, dt=DT))
        module._LAST[model] = known


def test_results_do_not_share_memory():
    model, state, u = standing()
    one = kn.linearise(model, moved(state, 1), u, dt=DT)
    kept = one.A.clone(), one.B.clone()
    kn.linearise(model, moved(state, 2), u + 1.0, dt=DT)
    assert torch.equal(one.A, kept[0]) and torch.equal(one.B, kept[1])


@pytest.mark.parametrize(
    "change",
    ["dt", "params", "batch", "gradients", "strides", "control", "threads"],
)
def test_other_calls_are_not_repeated(change: str):
    model, state, u = standing()
    words: dict = {"dt": DT}
    kn.linearise(model, state, u, **words)
    now = moved(state, 3)
    if change == "dt":
        words["dt"] = 1e-3
    if change == "params":
        words["params"] = {"dog/trunk/mass": 20.0}
    if change == "batch":
        now = kn.State.stack([now, state])
    if change == "gradients":
        now = now.replace(v=now.v.clone().requires_grad_())
    if change == "strides":
        now = now.replace(v=torch.stack([now.v, now.v], -1)[:, 0])
    if change == "control":
        u = kn.Control(tau=torch.ones(model.nv, dtype=torch.float64))
    if change == "threads":
        words["options"] = kn.RunOptions(threads=1)
    assert same(kn.linearise(model, now, u, **words), first(model, now, u, **words))


def test_errors_of_repeated_calls_are_those_of_first_ones():
    model, state, u = standing()
    kn.linearise(model, state, u, dt=DT)
    turned = state.q.clone()
    turned[3:7] = 0.0
    for wrong in (state.replace(q=turned), state.replace(v=state.v * float("nan")), state.replace(v=state.v[:-1])):
        with pytest.raises(kn.KinemaError) as repeated:
            kn.linearise(model, wrong, u, dt=DT)
        with pytest.raises(kn.KinemaError) as alone:
            first(model, wrong, u, dt=DT)
        assert str(repeated.value) == str(alone.value)
        kn.linearise(model, state, u, dt=DT)
