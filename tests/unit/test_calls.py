"""What is prepared for a call and used again: other calls in between, other strides, edits in place, nesting."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.errors import InputError
from kinema.lang import Array, Float, Index, kernel, vec3
from kinema.lang.autograd.options import RunOptions
from kinema.lang.autograd.rollout import rollout
from kinema.lang.programs.program import Program
from kinema.scene.shapes.block import block

N, STEPS = 6, 4


@kernel
def drift(i: Index, x: Array[vec3], rate: Array[Float], push: vec3, x_next: Array[vec3]):
    x_next[i] = x[i] * rate[i] + push


def program() -> Program:
    p = Program("drift")
    x, rate, push = p.state("x", vec3, N), p.parameter("rate", Float, N), p.control("push", vec3)
    p.call(drift, x, rate, push, x.next, count=N)
    return p


def given(seed: int, batch: tuple[int, ...] = ()) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    shapes = {"x": (*batch, N, 3), "rate": (N,), "push": (*batch, STEPS, 3)}
    return {n: torch.randn(s, generator=g, dtype=torch.float64).requires_grad_() for n, s in shapes.items()}


def ours(p: Program, i: dict[str, Tensor], record: Any = (), **options: Any) -> Tensor:
    return rollout(
        p, STEPS, {"x": i["x"]}, {"rate": i["rate"]}, {"push": i["push"]}, record=record, options=RunOptions(**options)
    ).final["x"]


def theirs(i: dict[str, Tensor]) -> Tensor:
    x = i["x"]
    for t in range(STEPS):
        x = x * i["rate"][:, None] + i["push"][..., t, None, :]
    return x


def assert_same(found: Tensor, wanted: Tensor, inputs: dict[str, Tensor]) -> None:
    leaves = list(inputs.values())
    # A few roundings of numbers of order one, in float64.
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    for a, b in zip(
        torch.autograd.grad(found.square().sum(), leaves),
        torch.autograd.grad(wanted.square().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("record", [(), ("x",)])
@pytest.mark.parametrize("batch", [(), (5,)])
def test_reverse_sweeps_in_any_order(batch: tuple[int, ...], record: tuple[str, ...]):
    """Sweeps of the same form share what was prepared, not their memory."""
    p, inputs = program(), [given(seed, batch) for seed in range(3)]
    found = [ours(p, i, record=record) for i in inputs]
    for k in (1, 0, 2):
        assert_same(found[k], theirs(inputs[k]), inputs[k])


def test_strides_may_change_from_call_to_call():
    p, i = program(), given(0)
    with torch.no_grad():
        plain = ours(p, i)
        for _ in range(2):
            for x in (i["x"], i["x"].T.contiguous().T, i["x"].expand(2, N, 3)[1], torch.cat([i["x"]] * 2)[N:]):
                assert torch.equal(ours(p, {**i, "x": x}), plain)
            turned = -torch.complex(torch.zeros_like(i["x"]), i["x"]).conj().imag  # lazily negated twice
            assert torch.equal(ours(p, {**i, "x": turned}), plain)
            assert torch.equal(ours(p, {**i, "x": torch.complex(i["x"], -i["x"]).conj().imag}), plain)


def test_cotangents_may_have_any_strides():
    p, i = program(), given(1)
    leaves = list(i.values())
    weight = torch.randn(N, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    for cotangent in (weight, weight.T.contiguous().T, weight[:1].expand(N, 3), weight[:, :1].expand(N, 3), weight):
        found = torch.autograd.grad(ours(p, i), leaves, cotangent)
        wanted = torch.autograd.grad(theirs(i), leaves, cotangent)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_tensor_that_changes_in_place_is_looked_at_again():
    p, i = program(), {n: t.detach() for n, t in given(2).items()}
    ours(p, i)
    i["x"].resize_(N - 1, 3)
    with pytest.raises(InputError, match="wrong shape"):
        ours(p, i)
    i["x"].resize_(N, 3)
    i["rate"].data = i["rate"].float()
    with pytest.raises(InputError, match="wrong dtype"):
        ours(p, i)
    i["rate"].data = torch.full((N,), math.nan, dtype=torch.float64)
    with pytest.raises(InputError, match="not finite"):
        ours(p, i)


def test_inputs_of_other_kinds_in_turn():
    """Learned or not, parameters of torch, numbers, one tensor twice."""
    p, i = program(), given(6)
    plain = {n: t.detach() for n, t in i.items()}
    several = (
        i,
        plain,
        {**plain, "rate": i["rate"]},
        {**plain, "x": torch.nn.Parameter(plain["x"])},
        {**plain, "rate": plain["x"][:, 0]},
        {**i, "push": i["x"][:STEPS]},
    )
    for _ in range(2):
        for one in several:
            found, wanted = ours(p, one), theirs(one)
            torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
            assert found.requires_grad == wanted.requires_grad
            with torch.no_grad():
                assert not ours(p, one).requires_grad
    assert_same(ours(p, i), theirs(i), i)


def test_the_same_tensor_may_be_given_twice():
    p = Program("twice")
    x, a, push = p.state("x", vec3, N), p.parameter("a", Float, N), p.control("push", vec3)
    p.parameter("b", Float, N)
    p.call(drift, x, a, push, x.next, count=N)
    i = given(7)
    for _ in range(2):
        rate = {"a": i["rate"], "b": i["rate"]}
        found = rollout(p, STEPS, {"x": i["x"]}, rate, {"push": i["push"]}).final["x"]
        assert_same(found, theirs(i), i)


def test_inputs_that_are_not_learned_may_be_edited_before_the_reverse_sweep():
    """Their numbers were taken over by the forward sweep."""
    p, i = program(), given(8)
    i = {"x": i["x"], "rate": i["rate"].detach(), "push": i["push"].detach()}
    wanted = torch.autograd.grad(theirs(i).square().sum(), i["x"])[0]
    final = ours(p, i).square().sum()
    i["rate"].zero_()
    torch.testing.assert_close(torch.autograd.grad(final, i["x"])[0], wanted, rtol=1e-12, atol=1e-12)


def test_a_call_inside_of_a_progress_function():
    """Watchers are used again, but not while they watch."""
    inner, outer, seen = program(), program(), []
    small, wanted = given(3), theirs(given(3)).detach()
    steps = 4_000_000

    def show(done: int, of: int) -> None:
        if len(seen) < 3:
            seen.append((of, ours(inner, small).detach()))

    x, rate = torch.ones(N, 3, dtype=torch.float64), torch.full((N,), 0.5, dtype=torch.float64)
    push = torch.zeros(3, dtype=torch.float64).expand(steps, 3)
    for _ in range(100):
        rollout(outer, steps, {"x": x}, {"rate": rate}, {"push": push}, options=RunOptions(progress=show))
        if len(seen) >= 3:
            break
    assert len(seen) == 3
    for of, found in seen:
        assert of == steps
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_an_edit_of_the_status_changes_no_gradient():
    p, i = program(), given(4, (3,))
    wanted = torch.autograd.grad(ours(p, i).sum(), i["x"])[0]
    run = rollout(p, STEPS, {"x": i["x"]}, {"rate": i["rate"]}, {"push": i["push"]})
    run.status.fill_(0)
    assert torch.equal(torch.autograd.grad(run.final["x"].sum(), i["x"])[0], wanted)


# -- models -----------------------------------------------------------------------------------------------------


def soft() -> kn.Model:
    scene = kn.Scene()
    scene.add_solid(block((1, 1, 1), 0.1), "a", skin=None)
    scene.add_solid(block((1, 1, 2), 0.1), "b", skin=None, pos=(0.0, 0.0, 1.0))
    scene.add_particles([[1.0, 0.0, 0.0]], "p", mass=1.0, skin=None)
    return kn.compile(scene, torch.float64)


def test_numbers_that_are_given_reach_what_is_derived_from_them():
    model = soft()
    own = {n: t.clone() for n, t in model.resolve().items()}
    heavy = model.parameters("b/density")["b/density"] * 4
    found = model.resolve({"b/density": heavy})
    b = model.matter.particles("b")
    torch.testing.assert_close(found["inv_mass"][b], own["inv_mass"][b] / 4)
    torch.testing.assert_close(found["inv_mass"][: b.start], own["inv_mass"][: b.start])
    stiff = model.resolve({"a/mu": model.parameters("a/mu")["a/mu"] * 2})
    assert torch.equal(stiff["inv_mass"], own["inv_mass"])
    assert torch.equal(stiff["solid0_mu"], stiff["mu"]) and not torch.equal(stiff["mu"], own["mu"])
    assert all(torch.equal(own[n], t) for n, t in model.resolve().items())  # nothing of it is kept


def test_what_is_derived_in_inference_mode_may_be_differentiated_later():
    model = soft()
    with torch.inference_mode():
        model.resolve()
    start = model.initial_state()
    start.xd.requires_grad_()
    kn.simulate(model, start, steps=2, dt=1e-5).end.x.sum().backward()
    assert start.xd.grad is not None and float(start.xd.grad[0, 0]) > 0.0


def test_parameters_that_are_edited_are_warned_of_again():
    model = soft()
    mu = model.parameters("mu")
    options = {"steps": 1, "dt": 1e-4}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            kn.simulate(model, **options)
            kn.simulate(model, params=mu, **options)
    with torch.no_grad():
        mu["mu"] *= 1e4
    for _ in range(2):
        with pytest.warns(kn.StabilityWarning):
            kn.simulate(model, params=mu, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kn.simulate(model, **options)


def test_the_whole_of_an_array_and_its_parts_have_the_same_meaning():
    scene = kn.Scene()
    scene.add_solid(block((1, 1, 1), 0.1), "only", skin=None)
    model = kn.compile(scene, torch.float64)
    mu = np.linspace(1e3, 2e3, model.matter.elements)
    given = torch.tensor(np.stack([mu, 2 * mu]))  # two worlds
    part, whole = (model.resolve({path: given})["mu"] for path in ("only/mu", "mu"))
    assert torch.equal(part, whole) and torch.equal(part, given)
    with pytest.raises(InputError, match="wrong shape"):
        model.resolve({"only/mu": given[:, 1:]})
