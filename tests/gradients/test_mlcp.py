"""Projected Gauss-Seidel: solutions, closed forms, and gradients through every clamp."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from kinema.contact.mlcp import NONE, Rows, gauss_seidel, residual
from kinema.lang import Array, Float, Index, Int, build, kernel
from kinema.lang.bridge import rollout
from kinema.lang.program import Program

pytestmark = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")

FREE = 1e30  # no bound
NAMES = ("A", "b", "lower", "upper", "mu", "cfm")


@kernel
def report(i: Index, found: Array[Float], out: Array[Float]):
    out[i] = found[i]


def program(normal: list[int], sweeps: int) -> Program:
    p, n = Program("contact"), len(normal)
    A, b = p.parameter("A", Float, n * n), p.parameter("b", Float, n)
    bounds = {name: p.parameter(name, Float, n) for name in ("lower", "upper", "mu", "cfm")}
    rows = Rows(normal=p.constant("normal", Int, normal), **bounds)
    found, history = p.scratch("found", Float, n), p.scratch("history", Float, (sweeps + 1) * n)
    p.call(gauss_seidel, rows, p.constant("sweeps", Int, sweeps), A, b, history, found)
    p.call(residual, rows, A, b, found, p.output("residual", Float, 1))
    p.call(report, found, p.output("impulse", Float, n), count=n)
    return p


def solve(normal: list[int], sweeps: int, given: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Impulses and residual."""
    flat = {**given, "A": given["A"].flatten(-2)}
    out = rollout(program(normal, sweeps), 1, {}, flat, record=("impulse", "residual"), progress=False).outputs
    return out["impulse"].squeeze(-2), out["residual"].squeeze(-1).squeeze(-1)


def plain(normal: list[int], sweeps: int, g: dict[str, Tensor]) -> Tensor:
    """The same in torch, a row at a time."""
    n = len(normal)
    x = [torch.zeros((), dtype=torch.float64) for _ in range(n)]
    for _ in range(sweeps):
        for i in range(n):
            rest = g["b"][i] + sum(g["A"][i, j] * x[j] for j in range(n) if j != i)
            free = -rest / (g["A"][i, i] + g["cfm"][i])
            low, high = g["lower"][i], g["upper"][i]
            if normal[i] >= 0:
                high = g["mu"][i] * x[normal[i]]
                low = -high
            x[i] = torch.maximum(torch.minimum(free, high), low)
    return torch.stack(x)


def problem(seed: int, contacts: int = 3, others: int = 2) -> tuple[list[int], dict[str, Tensor]]:
    """Contacts with two friction rows each, then joint limits and equations; sticking, sliding and open."""
    random = np.random.default_rng(seed)
    normal, n = [], 3 * contacts + others
    for c in range(contacts):
        normal += [NONE, 3 * c, 3 * c]
    normal += [NONE] * others
    J = random.normal(size=(n, n + 3))
    lower = np.where(np.array(normal) == NONE, 0.0, -FREE)
    lower[3 * contacts :: 2] = -FREE  # equations
    given = {
        "A": J @ np.diag(random.uniform(0.2, 2, n + 3)) @ J.T / n,
        "b": random.normal(size=n),
        "lower": lower,
        "upper": np.full(n, FREE),
        "mu": random.uniform(0.2, 0.8, n),
        "cfm": random.uniform(1e-5, 1e-2, n),
    }
    return normal, {name: torch.tensor(value, dtype=torch.float64) for name, value in given.items()}


@pytest.mark.parametrize("seed", range(12))
def test_values_and_gradients_are_those_of_torch(seed):
    normal, given = problem(seed)
    leaves = {n: t.clone().requires_grad_() for n, t in given.items()}
    weights = torch.linspace(-1, 2, len(normal), dtype=torch.float64)
    grads = []
    for function in (lambda g: solve(normal, 25, g)[0], lambda g: plain(normal, 25, g)):
        value = function(leaves)
        inputs = [leaves[n] for n in ("A", "b", "mu", "cfm")]
        grads.append((value.detach(), *torch.autograd.grad((value * weights).sum(), inputs)))
    for ours, theirs in zip(*grads, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-11, atol=1e-11)


def test_the_problems_have_contacts_of_every_kind():
    """Otherwise the test above would show little."""
    kinds = {"open": 0, "sticking": 0, "sliding": 0}
    for seed in range(12):
        normal, given = problem(seed)
        x = solve(normal, 25, given)[0]
        for c in range(3):
            bound = given["mu"][3 * c + 1 : 3 * c + 3] * x[3 * c]
            at_bound = (x[3 * c + 1 : 3 * c + 3].abs() >= bound * (1 - 1e-12)).any()
            kinds["open" if x[3 * c] == 0 else "sliding" if at_bound else "sticking"] += 1
    assert min(kinds.values()) >= 3, kinds


@pytest.mark.parametrize("seed", range(6))
def test_many_sweeps_solve_the_problem(seed):
    """Complementarity, row by row, and a residual that says so."""
    normal, given = problem(seed)
    x, left = solve(normal, 4000, given)
    assert left < 1e-12
    w = given["A"] @ x + given["b"] + given["cfm"] * x
    for i, at in enumerate(normal):
        high = float(given["mu"][i] * x[at]) if at >= 0 else float(given["upper"][i])
        low = -high if at >= 0 else float(given["lower"][i])
        assert low - 1e-12 <= x[i] <= high + 1e-12
        if low < x[i] < high:
            assert abs(w[i]) < 1e-9
        elif high > low:
            assert (w[i] > -1e-9) if x[i] == low else (w[i] < 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_gradients_against_differences(seed, gradient_errors):
    """At random problems no row is within the step of the differences of a clamp."""
    normal, given = problem(100 + seed)
    fixed = {n: given[n] for n in ("lower", "upper")}
    weights = torch.linspace(-1, 2, len(normal), dtype=torch.float64)
    free = {n: given[n] for n in ("A", "b", "mu", "cfm")}
    errors = gradient_errors(lambda g: (solve(normal, 30, {**g, **fixed})[0] * weights).sum(), free, h=1e-6)
    assert max(errors.values()) < 1e-6, errors


def block(b_normal: float, b_slide: float, mu: float) -> dict[str, Tensor]:
    """A block of 2 kg on the ground: its normal and one direction of sliding."""
    numbers = {"A": [[0.5, 0.0], [0.0, 0.5]], "b": [b_normal, b_slide], "lower": [0.0, -FREE], "upper": [FREE, FREE]}
    numbers |= {"mu": [0.0, mu], "cfm": [0.0, 0.0]}
    return {n: torch.tensor(v, dtype=torch.float64) for n, v in numbers.items()}


def test_a_sliding_block_in_closed_form():
    """lambda_n = -b_n / A, lambda_t = -mu lambda_n: friction depends on what presses, and on mu, not on the speed."""
    leaves = {n: t.requires_grad_() for n, t in block(-0.3, 5.0, 0.4).items()}
    x, _ = solve([NONE, 0], 10, leaves)
    assert torch.allclose(x, torch.tensor([0.6, -0.24], dtype=torch.float64), rtol=1e-14)
    by_b, by_mu = torch.autograd.grad(x[1], [leaves["b"], leaves["mu"]])
    assert torch.allclose(by_b, torch.tensor([0.8, 0.0], dtype=torch.float64)) and abs(by_mu[1] + 0.6) < 1e-14


def test_a_sticking_block_in_closed_form():
    x, _ = solve([NONE, 0], 10, block(-0.3, 0.1, 0.4))
    assert torch.allclose(x, torch.tensor([0.6, -0.2], dtype=torch.float64), rtol=1e-14)


def test_an_open_contact_has_no_impulse_and_no_gradient():
    leaves = {n: t.requires_grad_() for n, t in block(0.3, 5.0, 0.4).items()}
    x, left = solve([NONE, 0], 10, leaves)
    assert (x == 0).all() and left == 0
    assert all((g == 0).all() for g in torch.autograd.grad(x.sum(), [leaves["b"], leaves["mu"], leaves["A"]]))


def test_worlds_do_not_depend_on_their_batch():
    normal, given = problem(3)
    batch = {n: torch.stack([t, *(problem(s)[1][n] for s in range(16))]) for n, t in given.items()}
    together = solve(normal, 25, batch)[0]
    assert torch.equal(together[0], solve(normal, 25, given)[0])
