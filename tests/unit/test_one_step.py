"""Rollouts of one step: scratch is kept for the reverse sweep; cotangents are found only where they lead somewhere."""

from __future__ import annotations

import pytest
import torch

from kinema.lang import Array, Float, Index, kernel, sin
from kinema.lang.autograd import inputs
from kinema.lang.autograd.rollout import rollout
from kinema.lang.build import compiler
from kinema.lang.programs.plan import Options, Plan
from kinema.lang.programs.program import Program
from kinema.lang.runtime.execute import Move, Prepared
from kinema.lang.runtime.memory_layout import KEPT, RUN, Setting, arrangement_for, can_be_whole

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

N = 21  # a full packet and a rest


@kernel
def sine(i: Index, x: Array[Float], s: Array[Float]):
    """s = sin x."""
    s[i] = sin(x[i])


@kernel
def square(i: Index, w: Array[Float], t: Array[Float]):
    """t = w^2."""
    t[i] = w[i] * w[i]


@kernel
def product(i: Index, s: Array[Float], t: Array[Float], y: Array[Float]):
    """y = s t."""
    y[i] = s[i] * t[i]


def program(filled: bool = False) -> Program:
    p = Program("one step")
    x, w = p.parameter("x", Float, N), p.parameter("w", Float, N)
    s, t = (p.scratch(name, Float, N, filled=filled) for name in "st")
    y = p.output("y", Float, N, filled=filled)
    p.call(sine, x, s, count=N)
    p.call(square, w, t, count=N)
    p.call(product, s, t, y, count=N)
    return p


def reverse(wrt: set[str], replay: bool) -> dict[str, list[str]]:
    """Names of the kernels of the reverse sweep, and of the arrays that each of them takes."""
    options = Options(precision=8, wrt=frozenset(wrt), record=frozenset({"y"}), replay=replay)
    made = Plan(program(), options).instructions("reverse")
    return {i.symbol[1]: [a.name for a in i.origin[1].arrays] for i in made if i.symbol and i.origin}


def test_what_was_kept_is_not_computed_again():
    assert can_be_whole(program(), 1) and not can_be_whole(program(), 2)
    assert [name for name in reverse({"x", "w"}, replay=True) if name.endswith("forward")]
    assert not [name for name in reverse({"x", "w"}, replay=False) if name.endswith("forward")]


def test_cotangents_that_lead_nowhere_are_not_computed():
    every, some = reverse({"x", "w"}, replay=False), reverse({"x"}, replay=False)
    assert "adj_t" in every["kn_product_adjoint"] and "kn_square_adjoint" in every
    assert some["kn_product_adjoint"] == ["t", "adj_s", "adj_y"] and "kn_square_adjoint" not in some


def test_loops_and_scratch_that_adjoints_overwrite_are_replayed():
    looped = program()
    with looped.repeat(2):
        looped.call(square, looped.parameter("q", Float, N), looped.scratch("u", Float, N), count=N)
    assert not can_be_whole(looped, 1)
    overwriting = program()
    with overwriting.custom() as node:
        u = overwriting.scratch("u", Float, N)
        overwriting.call(square, overwriting.parameter("q", Float, N), u, count=N)
    with overwriting.adjoint_of(node):
        overwriting.call(sine, u.adj, u, count=N)
    assert not can_be_whole(overwriting, 1)


@pytest.mark.parametrize("batch", [(), (3,), (9,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_may_be_asked_for_again(batch: tuple[int, ...], dtype: torch.dtype):
    """Worlds alone, and sharing registers; a second reverse sweep finds what the first one did."""
    generator = torch.Generator().manual_seed(0)
    x, w, seed = (torch.rand(*batch, N, generator=generator, dtype=dtype) for _ in range(3))
    x.requires_grad_(), w.requires_grad_()
    y = rollout(program(), 1, {}, {"x": x, "w": w}, record=("y",)).outputs["y"][..., 0, :]
    once = torch.autograd.grad(y, (x, w), seed, retain_graph=True)
    again = torch.autograd.grad(y, (x, w), seed)
    wanted = torch.autograd.grad(torch.sin(x) * w * w, (x, w), seed)
    for a, b, c in zip(once, again, wanted, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, c, rtol=8 * torch.finfo(dtype).eps, atol=0.0)  # roundings


@pytest.mark.parametrize("filled", [False, True])
def test_what_kernels_fill_is_not_zeroed(filled: bool):
    compiled = Plan(program(filled), Options(precision=8, record=frozenset({"y"})))
    setting = Setting(1, 1, 1, frozenset({"x", "w"}), interval=1, whole=True)
    kept = arrangement_for(compiled, setting, "forward").unset[0]
    ins, outs = [Move(("x", "")), Move(("w", ""))], [Move(("y", ""))]
    run = Prepared(compiled, setting, "forward", ins, outs, {KEPT: kept})
    assert (kept == 0) == filled and (run.native.piece_zeros[RUN] == 0) == filled


@pytest.mark.parametrize("batch", [(), (3,)])
def test_what_kernels_fill_does_not_see_what_was_there(batch: tuple[int, ...]):
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.rand(*batch, N, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2))
    expected = torch.sin(x) * w**2
    wanted = torch.autograd.grad(expected.sum(), (x, w))
    for _ in range(3):
        rollout(program(), 1, {}, {"x": 1e30 * torch.ones_like(x), "w": w}, record=["y"])  # leaves traces
        y = rollout(program(filled=True), 1, {}, {"x": x, "w": w}, record=["y"]).outputs["y"]
        found = torch.autograd.grad(y.sum(), (x, w))
        torch.testing.assert_close(y.squeeze(len(batch)), expected, rtol=1e-14, atol=0)
        torch.testing.assert_close(found, wanted, rtol=1e-14, atol=1e-16)


def test_inputs_are_compared_without_the_help_of_torch(monkeypatch: pytest.MonkeyPatch):
    """Other versions of torch than those that were tried compare by keys alone."""
    monkeypatch.setattr(inputs, "_GUARDS", None)
    made = program()
    for size in (1.0, 2.0):
        for dtype in (torch.float32, torch.float64):
            x, w = size * torch.ones(N, dtype=dtype), torch.ones(N, dtype=dtype)
            y = rollout(made, 1, {}, {"x": x, "w": w}, record=["y"]).outputs["y"]
            assert y.dtype == dtype
            torch.testing.assert_close(y[0], torch.sin(x), rtol=4 * torch.finfo(dtype).eps, atol=0.0)  # roundings
