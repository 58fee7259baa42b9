"""Projected Gauss-Seidel: solutions, closed forms, and gradients through every clamp."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from kinema.contact.complementarity import newton, newton_adjoint
from kinema.contact.complementarity.mass_scaling import Scaled
from kinema.contact.complementarity.pgs import (
    Bounds,
    Gram,
    Rows,
    Supports,
    gauss_seidel,
    gram,
    impulse_sums,
    relax,
)
from kinema.contact.complementarity.pgs_dense import (
    Groups,
    Matches,
    dense_gauss_seidel,
    dense_gauss_seidel_adjoint,
    dense_gauss_seidel_history,
    row_matrix,
)
from kinema.contact.complementarity.residual import residual
from kinema.kinematics.factors import Factors
from kinema.kinematics.tree import Branches
from kinema.lang import Array, Float, Index, Int, kernel
from kinema.lang.autograd.rollout import rollout
from kinema.lang.build import compiler
from kinema.lang.programs.program import Program
from kinema.model.constraints import find_groups, group_tables, shared_dofs
from kinema.simulation.solvers import PRECISION

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

FREE = 1e30  # no bound
NEWTON = ("newton pyramid", "newton cone")
SWEEPS = ("pyramid", "cone", "dense", "relaxed pyramid", "relaxed cone", "relaxed dense")
RELAXATION = (0.8, 1.4)
NAMES = ("Y", "b", "lower", "upper", "mu", "cfm")


def names_of(law: str) -> tuple[str, ...]:
    """What a solver reads; only sweeps without the matrix have a start."""
    return NAMES if law.endswith("dense") or law in NEWTON else (*NAMES, "start")


@kernel
def no_ties(L: Array[Float], root: Array[Float]):
    for i in range(len(L)):
        L[i] = 0.0
    for d in range(len(root)):
        root[d] = 1.0


@kernel
def report(i: Index, found: Array[Float], out: Array[Float]):
    out[i] = found[i]


@dataclass
class Problem:
    """Single rows, then triples: equations, then contacts. `supports` lists the degrees of freedom of each."""

    singles: int
    equations: int
    contacts: int
    dofs: int
    supports: list[list[int]]
    given: dict[str, Tensor] = field(default_factory=dict)

    @property
    def triples(self) -> int:
        return self.equations + self.contacts

    @property
    def rows(self) -> int:
        return self.singles + 3 * self.triples

    @property
    def widest(self) -> int:
        return max(map(len, self.supports))

    def block(self, row: int) -> int:
        return row if row < self.singles else self.singles + (row - self.singles) // 3

    def dense(self, Y: Tensor) -> Tensor:
        """Rows over all degrees of freedom."""
        wide = Y.reshape(self.rows, self.widest)
        rows = []
        for r in range(self.rows):
            at = self.supports[self.block(r)]
            rows.append(torch.zeros(self.dofs, dtype=Y.dtype).index_put((torch.tensor(at),), wide[r, : len(at)]))
        return torch.stack(rows)


def program(x: Problem, sweeps: int, law: str, precision: float, history_too: bool = False) -> Program:
    """`law` is "pyramid" or "cone", "dense": the pyramid with the matrix formed; "newton " or "relaxed " before it."""
    cone, relaxation = law.endswith("cone"), RELAXATION if law.startswith("relaxed") else (1.0, 1.0)
    p = Program("contact")
    counts = [len(one) for one in x.supports]
    rows = Rows(
        singles=p.constant("singles", Int, x.singles),
        equations=p.constant("equations", Int, x.equations),
        triples=p.constant("triples", Int, [x.triples]),
        support=p.constant("support", Int, np.arange(len(x.supports))),
    )
    lists = {
        "begin": np.cumsum([0, *counts])[:-1],
        "first": counts,
        "count": counts,
        "common": [0] * len(counts),
        "dofs": [d for one in x.supports for d in one],
        "widest": x.widest,
    }
    supports = Supports(**{n: p.constant(n, Int, v) for n, v in lists.items()})
    Y, b = p.parameter("Y", Float, x.rows * x.widest), p.parameter("b", Float, x.rows)
    bounds = Bounds(
        lower=p.parameter("lower", Float, x.singles),
        upper=p.parameter("upper", Float, x.singles),
        mu=p.parameter("mu", Float, x.triples),
        cfm=p.parameter("cfm", Float),
    )
    inverse, cross = p.scratch("inverse", Float, x.rows), p.scratch("cross", Float, 3 * x.triples)
    circle, times = p.constant("cone", Int, int(cone)), p.constant("sweeps", Int, sweeps)
    active = p.constant("active", Float, [1.0] * x.triples)
    history = p.scratch("history", Float, (sweeps + 1) * x.rows)
    z, impulse = p.scratch("z", Float, x.dofs), p.scratch("found", Float, x.rows)
    relaxed, far = p.scratch("relaxed", Float, x.rows), p.constant("relaxation", Float, relaxation)
    if law.endswith("dense"):
        A = p.scratch("A", Float, x.rows * x.rows)
        blocks = find_groups(x.supports)
        table, matching = group_tables(blocks, x.singles, x.equations), shared_dofs(x.supports, blocks)
        groups = Groups(**{n: p.constant(f"group_{n}", Int, v) for n, v in table.items()})
        shared = Matches(**{n: p.constant(f"match_{n}", Int, v) for n, v in matching.items()})
        p.call(row_matrix, rows, groups, shared, supports.widest, bounds.cfm, active, Y, A, inverse)
        turned = [p.scratch(n, Float, x.rows**2) for n in ("single", "triple")]
        p.call(relax, rows, far, inverse, relaxed)
        rest = p.constant("rest", Float, 1 - np.array(relaxation))
        problem = (rows, groups, bounds, times, rest, A, relaxed)
        with p.custom() as node:
            p.call(dense_gauss_seidel, *problem, b, *turned, impulse)
        with p.replay_of(node):
            p.call(dense_gauss_seidel_history, *problem, b, *turned, history, impulse)
        with p.adjoint_of(node):
            to = (A, relaxed, b, bounds.lower, bounds.upper, bounds.mu)
            own = [p.scratch(f"reverse_{n}", Float, x.rows**2) for n in ("single", "triple", "product")]
            own.insert(2, p.scratch("felt", Float, (sweeps + 1) * x.rows))
            p.call(dense_gauss_seidel_adjoint, *problem, history, impulse.adj, *own, *(ref.adj for ref in to))
        if history_too:
            other = p.scratch("found_with_history", Float, x.rows)
            p.call(dense_gauss_seidel_history, *problem, b, *turned, history, other)
            p.call(report, other, p.output("with_history", Float, x.rows), count=x.rows)
        p.call(impulse_sums, rows, supports, Y, impulse, z)
    elif law.startswith("newton"):
        numbers = {"precision": precision, "accepted": precision, "singular": precision, "softer": 0.01}
        numbers["held"] = 0.1 * precision
        numbers["yielding"] = 0.0
        limits = {"largest": 400, "sweeps": 2, "steps": 8, "most": 400}
        effort = newton.Effort(
            **{n: p.constant(n, Float, v) for n, v in numbers.items()},
            **{n: p.constant(f"effort_{n}", Int, v) for n, v in limits.items()},
        )
        # Masses of 1 that no joint ties together: J is Y.
        alone = {n: p.constant(f"branch_{n}", Int, [0] * x.dofs) for n in ("row", "depth", "last", "above")}
        L, root, U = p.scratch("L", Float, x.widest + 1), p.scratch("root", Float, x.dofs), p.constant("U", Float, [0])
        p.call(no_ties, L, root)
        factors = Factors(branches=Branches(**alone), U=U, L=L, root=root)
        problem = newton.Problem(rows, supports, bounds, active, circle, Y, b)
        scaled = Scaled(*(p.scratch(n, Float, x.rows * x.widest) for n in ("H", "made_Y")))
        found, sizes = newton.Impulses(impulse=impulse, z=z), {"exact": x.rows, "u": x.rows, "pull": x.dofs}
        with p.custom() as node:
            p.call(gram, rows, supports, bounds.cfm, active, circle, Y, inverse, cross)  # for the residual
            told = newton.Report(*(p.output(n, Float, 1) for n in ("relative", "at", "eliminations")))
            p.call(newton.newton_impulses, problem, factors, effort, scaled, found, told)
        with p.adjoint_of(node):
            multipliers = newton_adjoint.Multipliers(**{n: p.scratch(n, Float, size) for n, size in sizes.items()})
            given = (problem, factors, effort.singular, rows.singles, scaled, found)
            p.call(newton_adjoint.newton_impulses_adjoint, *given, found.adj, multipliers, problem.adj)
            where = (rows, supports, factors, scaled, found, multipliers)
            p.call(newton_adjoint.newton_rows_adjoint, *where, factors.adj, Y.adj)
    else:
        p.call(gram, rows, supports, bounds.cfm, active, circle, Y, inverse, cross)
        p.call(relax, rows, far, inverse, relaxed)
        problem = (rows, supports, bounds, Gram(inverse=relaxed, cross=cross), circle, times)
        forward, reverse = gauss_seidel(stops=False)
        start, tolerance = p.parameter("start", Float, x.rows), p.constant("tolerance", Float, 0.0)
        done, iterations = p.scratch("done", Int, 1), p.scratch("iterations", Float, 1)
        with p.custom() as node:
            found = (history, z, impulse, done, iterations)
            p.call(forward, *problem, tolerance, Y, b, start, *found)
        with p.adjoint_of(node):
            to = (Y, b, start, relaxed, cross, bounds.lower, bounds.upper, bounds.mu, bounds.cfm)
            given = (*problem, Y, b, start, history, z, done, z.adj, impulse.adj)
            p.call(reverse, *given, *(ref.adj for ref in to))
    left = (p.output("residual", Float, 1), p.output("place", Float, 1))
    p.call(residual, rows, supports, bounds, inverse, circle, Y, b, z, impulse, *left)
    p.call(report, impulse, p.output("impulse", Float, x.rows), count=x.rows)
    p.call(report, z, p.output("sums", Float, x.dofs), count=x.dofs)
    return p


def solve(
    x: Problem, sweeps: int, given: dict[str, Tensor], law: str = "pyramid", precision: float = 1e-12
) -> tuple[Tensor, Tensor, Tensor]:
    """Impulses, z = Y^T impulses, and the residual."""
    names, given = ("impulse", "sums", "residual"), {n: given[n] for n in names_of(law)}
    out = rollout(program(x, sweeps, law, precision), 1, {}, given, record=names).outputs
    return out["impulse"].squeeze(-2), out["sums"].squeeze(-2), out["residual"].squeeze(-1).squeeze(-1)


def plain(x: Problem, sweeps: int, g: dict[str, Tensor], law: str) -> Tensor:
    """The same in torch, a row at a time, with the matrix A."""
    cone, (press, slide) = law.endswith("cone"), RELAXATION if law.startswith("relaxed") else (1.0, 1.0)
    Y = x.dense(g["Y"])
    A = Y @ Y.T + g["cfm"] * torch.eye(x.rows, dtype=torch.float64)
    zero = torch.zeros(x.rows, dtype=torch.float64)
    lam = list(g["start"] if "start" in names_of(law) else zero)

    def velocity(i: int) -> Tensor:
        return g["b"][i] + sum(A[i, j] * lam[j] for j in range(x.rows))

    for _ in range(sweeps):
        for i in range(x.singles):
            lam[i] = torch.clamp(lam[i] - velocity(i) / A[i, i], g["lower"][i], g["upper"][i])
        for c in range(x.triples):
            r = x.singles + 3 * c
            if c < x.equations:
                for i in range(r, r + 3):
                    lam[i] = lam[i] - velocity(i) / A[i, i]
                continue
            lam[r] = torch.clamp(lam[r] - press * velocity(r) / A[r, r], min=0.0)
            bound = g["mu"][c] * lam[r]
            if not cone:
                for i in (r + 1, r + 2):
                    lam[i] = torch.clamp(lam[i] - slide * velocity(i) / A[i, i], -bound, bound)
                continue
            step = slide / torch.linalg.eigvalsh(A[r + 1 : r + 3, r + 1 : r + 3])[-1]
            pair = torch.stack(lam[r + 1 : r + 3]) - step * torch.stack([velocity(r + 1), velocity(r + 2)])
            pair = pair * (bound / pair.norm()) if pair.norm() > bound else pair
            lam[r + 1], lam[r + 2] = pair
    return torch.stack(lam)


def problem(seed: int) -> Problem:
    """Two bounded rows, an equation in three rows and three contacts; sticking, sliding and open.

    All share the degree of freedom of the root; odd seeds have two trees, one block on one, the next on the other.
    """
    random = np.random.default_rng(seed)
    x = Problem(2, 1, 3, 24, [])
    for k, size in enumerate((4, 6, 7, 6, 7, 5)):
        root = 12 * (k % 2) * (seed % 2)
        others = root + 1 + random.choice(11, size, replace=False)
        x.supports.append([root, *sorted(others.tolist())])
    given = {
        "Y": random.normal(size=x.rows * x.widest) / 2,
        "b": random.normal(size=x.rows),
        "lower": np.array([-0.05, 0.0]),
        "upper": np.array([0.1, FREE]),
        "mu": random.uniform(0.3, 1.0, x.triples),
        "cfm": np.array(random.uniform(1e-3, 1e-2)),
        "start": random.normal(size=x.rows) / 10,
    }
    first = x.singles + 3 * x.equations
    given["b"][first:] *= np.tile([1.0, 0.3, 0.3], x.contacts)  # slow sliding, so that some stick
    x.given = {name: torch.tensor(value, dtype=torch.float64) for name, value in given.items()}
    return x


@pytest.mark.parametrize("law", SWEEPS)
@pytest.mark.parametrize("seed", range(8))
def test_values_and_gradients_are_those_of_torch(seed, law):
    x = problem(seed)
    leaves = {n: t.clone().requires_grad_() for n, t in x.given.items()}
    weights = torch.linspace(-1, 2, x.rows, dtype=torch.float64)
    inputs = [leaves[n] for n in names_of(law)]
    grads = []
    for function in (lambda g: solve(x, 25, g, law)[0], lambda g: plain(x, 25, g, law)):
        value = function(leaves)
        grads.append((value.detach(), *torch.autograd.grad((value * weights).sum(), inputs)))
    used = torch.tensor([t < len(x.supports[x.block(r)]) for r in range(x.rows) for t in range(x.widest)])
    assert (grads[0][1][~used] == 0).all()
    for ours, theirs in zip(*grads, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("sweeps", [1, 4, 25, 3_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sweeps_that_change_nothing_are_left_out_to_the_last_bit(sweeps, dtype):
    """In each world of a batch, of which some settle sooner than others; 3,000 sweeps are more than any needs."""
    x = problem(0)
    batch = {n: x.given[n].to(dtype).expand(9, *x.given[n].shape).clone() for n in NAMES}
    batch["b"] *= torch.linspace(0, 2, 9, dtype=dtype)[:, None]
    names = ("impulse", "with_history")
    made = program(x, sweeps, "dense", 1e-12, history_too=True)
    out = rollout(made, 1, {}, batch, record=names).outputs
    assert torch.equal(*(out[n] for n in names))
    for w in range(9):
        alone = rollout(made, 1, {}, {n: t[w] for n, t in batch.items()}, record=names).outputs
        assert torch.equal(alone["impulse"], out["impulse"][w])


def test_the_problems_have_contacts_of_every_kind():
    """Otherwise the test above would show little."""
    kinds = {"open": 0, "sticking": 0, "sliding": 0, "bounded": 0}
    for seed in range(8):
        x = problem(seed)
        found = solve(x, 25, x.given)[0]
        kinds["bounded"] += int(((found[:2] == x.given["lower"]) | (found[:2] == x.given["upper"])).sum())
        for c in range(x.equations, x.triples):
            r = x.singles + 3 * c
            bound = x.given["mu"][c] * found[r]
            at_bound = (found[r + 1 : r + 3].abs() >= bound * (1 - 1e-12)).any()
            kinds["open" if found[r] == 0 else "sliding" if at_bound else "sticking"] += 1
    assert min(kinds.values()) >= 3, kinds


@pytest.mark.parametrize(
    ("law", "seed"), [*product(["pyramid", "cone", "dense"], range(4)), *product(NEWTON, range(2))]
)
def test_many_sweeps_solve_the_problem(seed, law):
    """Complementarity, row by row, a residual that says so; with the cone, friction is against the sliding."""
    x = problem(seed)
    found, sums, left = solve(x, 20_000, x.given, law)
    assert left < 1e-12 * max(1.0, float(found.abs().max()))
    Y = x.dense(x.given["Y"])
    assert torch.allclose(sums, Y.T @ found, atol=1e-11)
    w = Y @ sums + x.given["b"] + x.given["cfm"] * found
    for i in range(x.singles):
        _check_row(float(found[i]), float(w[i]), float(x.given["lower"][i]), float(x.given["upper"][i]))
    for c in range(x.triples):
        r = x.singles + 3 * c
        if c < x.equations:
            assert float(w[r : r + 3].abs().max()) < 1e-9
            continue
        _check_row(float(found[r]), float(w[r]), 0.0, FREE)
        bound, sideways, speed = float(x.given["mu"][c] * found[r]), found[r + 1 : r + 3], w[r + 1 : r + 3]
        if not law.endswith("cone"):
            for i in (0, 1):
                _check_row(float(sideways[i]), float(speed[i]), -bound, bound)
        elif float(sideways.norm()) < bound * (1 - 1e-9):
            assert float(speed.norm()) < 1e-9
        elif bound > 0:
            assert torch.allclose(sideways / bound, -speed / speed.norm(), atol=1e-7)


@pytest.mark.parametrize("law", NEWTON)
@pytest.mark.parametrize("seed", range(4))
def test_the_implicit_derivative_is_that_of_very_many_sweeps(seed, law):
    """Their errors shrink by a factor in every sweep; after 20,000 of them nothing is left of the start."""
    x = problem(seed)
    leaves = {n: t.clone().requires_grad_() for n, t in x.given.items()}
    weights = torch.linspace(-1, 2, x.rows, dtype=torch.float64)
    found = []
    for which in (law, law.split()[1]):
        impulse, sums, _ = solve(x, 20_000, leaves, which)
        loss = (impulse * weights).sum() + sums.sum()
        found.append((impulse.detach(), *torch.autograd.grad(loss, [leaves[n] for n in NAMES])))
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-8, atol=1e-9)


def _check_row(impulse: float, w: float, low: float, high: float) -> None:
    assert low - 1e-12 <= impulse <= high + 1e-12
    if low < impulse < high:
        assert abs(w) < 1e-9
    elif high > low:
        assert (w > -1e-9) if impulse == low else (w < 1e-9)


@pytest.mark.parametrize(("law", "seed"), [*product(SWEEPS, range(4)), *product(NEWTON, range(2))])
def test_gradients_against_differences(seed, law, gradient_errors):
    """At random problems no row is within the step of the differences of a clamp."""
    x = problem(100 + seed)
    weights = torch.linspace(-1, 2, x.rows, dtype=torch.float64)
    fixed = {"upper": x.given["upper"]}
    free = {n: x.given[n] for n in names_of(law) if n not in fixed}
    errors = gradient_errors(lambda g: (solve(x, 30, {**g, **fixed}, law)[0] * weights).sum(), free, h=1e-6)
    assert max(errors.values()) < 1e-6, errors


def brick(b_normal: float, b_slide: float, mu: float) -> Problem:
    """A body of 2 kg on the ground, free to move along three axes, and a row that does nothing."""
    x = Problem(1, 0, 1, 3, [[0], [0, 1, 2]])
    Y = np.zeros((4, 3))
    Y[1:] = np.eye(3) / np.sqrt(2.0)
    numbers = {
        "Y": Y.ravel(),
        "b": [0.0, b_normal, b_slide, 0.0],
        "lower": [0.0],
        "upper": [0.0],
        "mu": [mu],
        "cfm": 0.0,
        "start": [0.0] * 4,
    }
    x.given = {n: torch.tensor(v, dtype=torch.float64) for n, v in numbers.items()}
    x.given["Y"][0] = 1.0
    return x


@pytest.mark.parametrize("law", ["pyramid", "cone", "dense", *NEWTON])
def test_a_sliding_block_in_closed_form(law):
    """lambda_n = -b_n / A, lambda_t = -mu lambda_n: friction depends on what presses, and on mu, not on the speed."""
    x = brick(-0.3, 5.0, 0.4)
    leaves = {n: t.requires_grad_() for n, t in x.given.items()}
    found = solve(x, 10, leaves, law)[0]
    assert torch.allclose(found[1:], torch.tensor([0.6, -0.24, 0.0], dtype=torch.float64), rtol=1e-14)
    by_b, by_mu = torch.autograd.grad(found[2], [leaves["b"], leaves["mu"]])
    assert torch.allclose(by_b[1:3], torch.tensor([0.8, 0.0], dtype=torch.float64)) and abs(by_mu[0] + 0.6) < 1e-14


def test_a_sticking_block_in_closed_form():
    x = brick(-0.3, 0.1, 0.4)
    found = solve(x, 10, x.given)[0]
    assert torch.allclose(found[1:], torch.tensor([0.6, -0.2, 0.0], dtype=torch.float64), rtol=1e-14)


def test_an_open_contact_has_no_impulse_and_no_gradient():
    x = brick(0.3, 5.0, 0.4)
    leaves = {n: t.requires_grad_() for n, t in x.given.items()}
    found, _, left = solve(x, 10, leaves)
    assert (found == 0).all() and left == 0
    assert all((g == 0).all() for g in torch.autograd.grad(found.sum(), [leaves["b"], leaves["mu"], leaves["Y"]]))


@pytest.mark.parametrize("law", ["pyramid", "cone", "dense", *NEWTON])
def test_worlds_do_not_depend_on_their_batch(law):
    """Values and gradients, bit by bit; worlds that need many eliminations stand beside others."""
    x = problem(3)
    batch = {n: torch.stack([t, *(problem(s).given[n] for s in range(16))]) for n, t in x.given.items()}

    def results(given):
        leaves = {n: given[n].clone().requires_grad_() for n in names_of(law)}
        impulse = solve(x, 25, leaves, law)[0]
        return impulse.detach(), *torch.autograd.grad(impulse.sum(), list(leaves.values()))

    for together, alone in zip(results(batch), results(x.given), strict=True):
        assert torch.equal(together[0], alone)


@pytest.mark.parametrize("law", NEWTON)
def test_newton_in_single_precision(law):
    """To 1e-5 of the largest impulse."""
    x = problem(0)
    given = {n: t.float().clamp(max=1e20) for n, t in x.given.items()}
    found, _, left = solve(x, 25, given, law, PRECISION[4])
    assert left <= 1e-5 * found.abs().max() and torch.allclose(found.double(), solve(x, 25, x.given, law)[0], atol=1e-3)
