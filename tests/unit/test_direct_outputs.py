"""Outputs that kernels fill: written where users get them, and their cotangents read where they are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kinema.lang import Array, Float, Index, Int, kernel, vec3
from kinema.lang.autograd import inputs
from kinema.lang.autograd.rollout import rollout
from kinema.lang.build import compiler
from kinema.lang.emit.simd import AOS, DENSE
from kinema.lang.programs.plan import Options, Plan
from kinema.lang.programs.program import Program
from kinema.lang.runtime.memory_layout import direct_outputs

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

N = 48  # packets of sixteen


@kernel
def own(i: Index, x: Array[Float], y: Array[vec3], z: Array[Float]):
    """Each element its own, some of them by masks."""
    z[i] = 3.0 * x[i]
    if x[i] > 0.0:
        y[i] = vec3(x[i], x[i] * x[i], 2.0)
    else:
        y[i] = vec3(-x[i], 1.0, x[i])


@kernel
def scattered(i: Index, place: Array[Int], x: Array[Float], y: Array[vec3], z: Array[Float]):
    """Elements in another order, a third of them by a mask."""
    z[place[i]] = 3.0 * x[i]
    if place[i] % 3 == 0:
        y[place[i]] = vec3(x[i], x[i] * x[i], 2.0)
    else:
        y[place[i]] = vec3(x[i], -x[i], x[i] * x[i] * x[i])


@kernel
def adding(i: Index, x: Array[Float], y: Array[vec3]):
    """A sum, which is read while it is made."""
    y[i] += vec3(x[i], 0.0, 1.0)


PLACE = torch.randperm(N, generator=torch.Generator().manual_seed(1))


def program(kind: str = "own") -> Program:
    p = Program("direct")
    x = p.parameter("x", Float, N)
    y, z = p.output("y", vec3, N, filled=True), p.output("z", Float, N, filled=True)
    if kind == "scattered":
        p.call(scattered, p.constant("place", Int, PLACE.numpy()), x, y, z, count=N)
    else:
        p.call(own, x, y, z, count=N)
    if kind == "added":
        p.call(adding, x, y, count=N)
    return p


def expected(kind: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """The same by torch."""
    one = torch.ones_like(x)
    if kind != "scattered":
        positive = torch.stack([x, x * x, 2.0 * one], -1)
        return torch.where((x > 0.0)[..., None], positive, torch.stack([-x, one, x], -1)), 3.0 * x
    third = (PLACE % 3 == 0)[:, None]
    y = torch.where(third, torch.stack([x, x * x, 2.0 * one], -1), torch.stack([x, -x, x * x * x], -1))
    back = torch.argsort(PLACE)
    return y[..., back, :], 3.0 * x[..., back]


def run(kind: str, x: Tensor) -> tuple[Tensor, Tensor]:
    outputs = rollout(program(kind), 1, {}, {"x": x}, record=("y", "z")).outputs
    return outputs["y"].squeeze(-3), outputs["z"].squeeze(-2)


def numbers(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_only_what_is_set_is_direct():
    options = Options(precision=8, record=frozenset({"y", "z"}))
    free, added = Plan(program(), options), Plan(program("added"), options)
    assert free.places["y"].layout == free.places["z"].layout == DENSE
    assert free.places["y"].bytes == 3 * N * 8
    assert direct_outputs(free, ("y", "z"), 1) == ("y", "z")
    assert direct_outputs(free, ("y", "z"), 2) == ()
    assert added.places["y"].layout == AOS
    assert direct_outputs(added, ("y", "z"), 1) == ("z",)


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["own", "scattered"])
def test_values_and_gradients(kind: str, dtype: torch.dtype, width: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inputs, "width_of", lambda precision: width)
    x = numbers(N, dtype=dtype).requires_grad_()
    got, right = run(kind, x), expected(kind, x)
    seeds = numbers(N, 3, dtype=dtype, seed=2), numbers(N, dtype=dtype, seed=3)
    before = [seed.clone() for seed in seeds]
    for a, b in zip(got, right, strict=True):
        torch.testing.assert_close(a, b, rtol=0.0, atol=1e-6 if dtype == torch.float32 else 1e-14)
    found, true = (torch.autograd.grad(of, x, seeds)[0] for of in (got, right))
    # A few roundings of numbers up to ten.
    torch.testing.assert_close(found, true, rtol=0.0, atol=1e-4 if dtype == torch.float32 else 1e-13)
    assert all(map(torch.equal, seeds, before)), "cotangents are the user's"


@pytest.mark.parametrize("kind", ["own", "scattered"])
def test_batches_and_cotangents_of_any_kind(kind: str):
    """Strided, negated and missing cotangents."""
    x = numbers(3, N).requires_grad_()
    (y, z), (right_y, right_z) = run(kind, x), expected(kind, x)
    torch.testing.assert_close(y, right_y, rtol=0.0, atol=1e-14)
    strided = numbers(N, 3, 3, seed=4).permute(2, 0, 1)
    for seed in (
        numbers(3, N, 3, seed=5),
        strided,
        torch._neg_view(numbers(3, N, 3, seed=6)),
        torch.ones(()).expand(3, N, 3),
    ):
        found, true = (torch.autograd.grad(of, x, seed.to(x.dtype), retain_graph=True)[0] for of in (y, right_y))
        torch.testing.assert_close(found, true, rtol=0.0, atol=1e-13)
    found, true = (torch.autograd.grad(of.sum(), x, retain_graph=True)[0] for of in (z, right_z))
    torch.testing.assert_close(found, true, rtol=0.0, atol=1e-13)


def test_worlds_of_a_batch_have_the_bits_of_single_runs():
    x = numbers(5, N)
    together = run("scattered", x)
    for world in range(5):
        alone = run("scattered", x[world])
        assert all(torch.equal(a[world], b) for a, b in zip(together, alone, strict=True))
