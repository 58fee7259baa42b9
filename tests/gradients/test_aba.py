"""The articulated-body algorithm and its adjoint: against factors of the mass matrix, the derived adjoint, a plain twin
made of the operators of appendix G, Pinocchio, extended precision and central differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests import appendix_g as g
from tests.aba_twin import Record, forward_dynamics
from torch import Tensor

import kinema as kn
from kinema.dynamics.aba import Articulated, accelerations
from kinema.dynamics.rnea_crba import add_scaled
from kinema.lang import Float
from kinema.lang.autograd.rollout import rollout
from kinema.lang.build import compiler
from kinema.lang.programs.program import Program
from kinema.math import Force, Motion
from kinema.scene.description import BALL, FREE, PRISMATIC, REVOLUTE, Body, Joint, MassProperties, Pose, Robot
from kinema.scene.shapes.random_tree import random_tree
from kinema.simulation.links import Links, TreeTables
from kinema.simulation.step import step_program
from kinema.simulation.tree_dynamics import DEEP, accelerate, articulated_pays, bias
from kinema.verification import twins

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")
assert not twins.MISSING, f"these tests must run: install {', '.join(twins.MISSING)}"

ARTICULATED, DERIVED, FACTORS = "articulated", "derived adjoint", "factors"
NUMBERS = ("mass", "com", "inertia", "offset", "axis", "armature", "gravity")
LINK, MASS = 0.05, 0.1  # m, kg


def model_of(*robots: Robot) -> kn.Model:
    scene = kn.Scene()
    for robot in robots:
        scene.add_robot(robot)
    return kn.compile(scene)


def program_of(model: kn.Model, how: str) -> Program:
    """Forward dynamics in one of three ways."""
    p = Program(f"dynamics, {how}")
    n = model.nv
    v, tau, out = p.parameter("v", Float, n), p.parameter("tau", Float, n), p.output("out", Float, n)
    net, a = p.scratch("net", Float, n), p.scratch("a", Float, n)
    zero, minus = p.constant("zero", Float, [0.0] * n), p.constant("minus", Float, [-1.0] * n)
    links = Links(p, TreeTables(p, model.tree), p.parameter("q", Float, model.nq), v)
    found = bias(links, zero, articulated=how != FACTORS)
    p.call(add_scaled, tau, minus, found.force, net)
    if how == DERIVED:
        kinds = {"U": Force, "inverse": Float, "W": Motion}
        solved = Articulated(**{name: p.scratch(name, kind, n) for name, kind in kinds.items()})
        p.call(accelerations, links.tree, found.articulated, links.armature, net, solved, a)
    else:
        accelerate(links, net, links.armature, a, of=found)
    p.call(add_scaled, a, zero, zero, out)
    return p


def solved(model: kn.Model, given: dict[str, Tensor], how: str) -> tuple[Tensor, dict[str, Tensor]]:
    """Accelerations, and gradients of a sum in which no two count the same."""
    leaves = {n: t.detach().clone().requires_grad_() for n, t in given.items()}
    program = program_of(model, how)
    used = {n: t for n, t in leaves.items() if n in program.buffers}
    a = rollout(program, 1, {}, used, record=["out"]).outputs["out"][0]
    loss = (a * torch.linspace(-1, 2, len(a), dtype=torch.float64)).sum()
    return a.detach(), dict(zip(used, torch.autograd.grad(loss, list(used.values())), strict=True))


def state_of(model: kn.Model, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q = model.initial_state().q + 0.4 * torch.randn(model.nq, generator=generator, dtype=torch.float64)
    v, tau = (torch.randn(model.nv, generator=generator, dtype=torch.float64) for _ in range(2))
    return {"q": q, "v": v, "tau": tau}


def relative(got: Tensor, wanted: Tensor) -> float:
    return float((got - wanted).norm() / wanted.norm().clamp_min(1e-9))


FORESTS = {
    "hinges, two to a body": [random_tree(1, 9, kinds=(REVOLUTE,), double=0.4)],
    "slides": [random_tree(2, 4, kinds=(PRISMATIC,))],
    "balls": [random_tree(3, 5, kinds=(BALL,))],
    "floating, mixed, with fixed bodies": [random_tree(4, 12, floating=True, fixed=0.3, double=0.3)],
    "a forest": [random_tree(seed, 5, floating=seed % 2 == 0) for seed in (5, 6, 7)],
}


@pytest.mark.parametrize("name", FORESTS)
def test_all_ways_agree(name):
    """Values and every gradient: to rounding, which grows with the condition of the mass matrix."""
    model = model_of(*FORESTS[name])
    given = state_of(model, 0) | model.parameters(*NUMBERS)
    a, gradients = solved(model, given, ARTICULATED)
    for way in (FACTORS, DERIVED):
        also_a, also_gradients = solved(model, given, way)
        errors = {"a": relative(a, also_a)} | {n: relative(gradients[n], g) for n, g in also_gradients.items()}
        assert max(errors.values()) < 1e-10 and set(gradients) == set(also_gradients), (way, errors)


@pytest.mark.parametrize("seed", range(20))
def test_random_trees_against_pinocchio_and_the_plain_twin(seed):
    case = twins.Case(seed)
    given = {"q": case.q, "v": case.v, "tau": case.tau} | case.model.parameters(*NUMBERS)
    a, gradients = solved(case.model, given, ARTICULATED)
    wanted = twins.pinocchio.aba(case.twin, case.data, case.qp, case.there(case.v), case.there(case.tau))
    assert twins.difference(a, wanted[case.order]) < twins.VALUES
    weights = np.zeros(case.model.nv)
    weights[case.order] = np.linspace(-1, 2, case.model.nv)
    inverse = twins.pinocchio.computeMinverse(case.twin, case.data, case.qp)
    inverse = np.triu(inverse) + np.triu(inverse, 1).T
    assert twins.difference(gradients["tau"], (inverse @ weights)[case.order]) < twins.VALUES
    plain_a, wanted = plain(case.model, given)
    assert twins.difference(a, plain_a.numpy()) < twins.VALUES
    assert all(twins.difference(gradients[n], x.numpy()) < twins.DERIVATIVES for n, x in wanted.items())


# -- the plain twin --------------------------------------------------------------------------------------------------

MISPRINTED = {
    "apply": g.printed_apply,
    "apply_transpose": g.printed_apply_transpose,
    "v_vT": g.printed_v_vT,
    "shift": lambda adj, D, X: g.adj_shift(adj, D, X, g.printed_st2sd),
}
"""Operators of the twin whose adjoint is misprinted in the paper, with what it prints."""


def plain(model: kn.Model, given: dict[str, Tensor], operators: dict[str, g.Operator] = g.OPERATORS):
    """Accelerations and gradients of the sum of `solved`, by the operators of appendix G."""
    record = Record({n: t.numpy() for n, t in given.items()}, operators)
    a = forward_dynamics(model.tree, record)
    for node, weight in zip(a, np.linspace(-1, 2, len(a)), strict=True):
        node.adj[:] = weight
    record.sweep()
    return torch.tensor([node.value for node in a]), {n: torch.tensor(x) for n, x in record.gradient.items()}


@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize("seed", [10, 11])
def test_values_and_gradients_are_those_of_the_plain_twin(name, seed):
    """Rounding, which grows with the condition of the mass matrix: 1e-10 of the values, 1e-9 of the gradients."""
    model = model_of(*FORESTS[name])
    given = state_of(model, seed) | model.parameters(*NUMBERS)
    wanted_a, wanted = plain(model, given)
    leaves = {n: t.clone().requires_grad_() for n, t in given.items()}
    a = kn.forward_dynamics(model, *(leaves[n] for n in ("q", "v", "tau")), {n: leaves[n] for n in NUMBERS})
    loss = (a * torch.linspace(-1, 2, len(a), dtype=torch.float64)).sum()
    public = a.detach(), dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
    for got_a, got in (public, solved(model, given, ARTICULATED), solved(model, given, FACTORS)):
        assert relative(got_a, wanted_a) < 1e-10
        errors = {n: relative(got[n], x) for n, x in wanted.items()}
        assert len(errors) == 10 and max(errors.values()) < 1e-9, errors


@pytest.mark.parametrize("name", FORESTS)
def test_the_twins_sweep_is_the_derivative_of_its_values(name):
    """One direction through each input, of its size; h^2 of curvature and eps / h of rounding are both near 1e-10."""
    model, random, h = model_of(*FORESTS[name]), np.random.default_rng(12), 1e-5
    given = state_of(model, 12) | model.parameters(*NUMBERS)
    _, gradients = plain(model, given)
    weights = torch.linspace(-1, 2, model.nv, dtype=torch.float64)
    for n, x in given.items():
        way = torch.tensor(random.normal(size=x.shape)) * x.abs().mean()
        ends = [plain(model, given | {n: x + side * h * way})[0] @ weights for side in (1, -1)]
        slope = float((gradients[n] * way).sum())
        wanted = float(ends[0] - ends[1]) / (2 * h)
        assert abs(wanted - slope) < 1e-9 + 1e-7 * float(gradients[n].norm() * way.norm()), (n, wanted, slope)


def errors_with(name: str, adjoint) -> float:
    """The largest error of the twin's gradients with another adjoint of one operator."""
    model = model_of(FORESTS["floating, mixed, with fixed bodies"][0])
    given = state_of(model, 13) | model.parameters(*NUMBERS)
    _, wanted = solved(model, given, FACTORS)
    _, got = plain(model, given, g.OPERATORS | {name: replace(g.OPERATORS[name], adjoint=adjoint)})
    return max(relative(got[n], x) for n, x in wanted.items())


@pytest.mark.parametrize("name", g.OPERATORS)
def test_a_wrong_adjoint_of_any_operator_is_seen(name):
    """All operators of the twin are used, and a ten-thousandth of an adjoint is more than the tolerance lets pass."""
    right = g.OPERATORS[name].adjoint

    def slightly_wrong(adj, *arguments):
        return [(1 + 1e-4) * g.together(x) for x in right(adj, *arguments)]

    assert errors_with(name, right) < 1e-9
    assert errors_with(name, slightly_wrong) > 1e-9


@pytest.mark.parametrize("name", MISPRINTED)
def test_with_a_misprint_the_sweep_is_wrong(name):
    assert errors_with(name, MISPRINTED[name]) > 1e-3


# -- chains --------------------------------------------------------------------------------------------------------


def chain(links: int, kinds: tuple[str, ...] = (REVOLUTE,), **words: float) -> Robot:
    """Rods that hang from one another by joints, about x and y in turn."""
    across = MASS * LINK**2 / 12
    rod = MassProperties(MASS, (0.0, 0.0, -LINK / 2), (across, 0.0, 0.0, across, 0.0, 1e-5))
    bodies = []
    for i in range(links):
        kind = kinds[i % len(kinds)]
        own = {name: x for name, x in words.items() if name != "stiffness" or kind != BALL}  # those have no springs
        joint = Joint(f"j{i}", kind, (1.0, 0.0, 0.0) if i % 2 else (0.0, 1.0, 0.0), **own)
        place = Pose((0.0, 0.0, -LINK if i else 0.0))
        bodies.append(Body(f"b{i}", f"b{i - 1}" if i else None, place, (joint,), rod))
    return Robot("chain", tuple(bodies))


def extended(q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """Accelerations of `chain`, by the algorithm as the book has it, in the links' frames and 64 bits of mantissa."""
    real = np.longdouble
    across, length, mass = real(MASS) * real(LINK) ** 2 / 12, real(LINK), real(MASS)

    def skew(r: np.ndarray) -> np.ndarray:
        return np.array([[0, -r[2], r[1]], [r[2], 0, -r[0]], [-r[1], r[0], 0]], real)

    def cross(m: np.ndarray) -> np.ndarray:
        return np.block([[skew(m[:3]), np.zeros((3, 3), real)], [skew(m[3:]), skew(m[:3])]])

    h = skew(mass * np.array([0, 0, -length / 2], real))
    steiner = mass * length**2 / 4 * np.diag(np.array([1, 1, 0], real))
    about = np.diag(np.array([across, across, real(1e-5)])) + steiner
    inertia = np.block([[about, h], [-h, mass * np.eye(3, dtype=real)]])
    n = len(q)
    S, X, V, A = [], [], [np.zeros(6, real)], np.array([0, 0, 0, 0, 0, real("9.81")], real)
    hung, pull, rates = [inertia.copy() for _ in range(n)], [], []
    for i in range(n):
        c, s = np.cos(real(q[i])), np.sin(real(q[i]))
        E = np.array([[1, 0, 0], [0, c, s], [0, -s, c]] if i % 2 else [[c, 0, -s], [0, 1, 0], [s, 0, c]], real)
        r = np.array([0, 0, -length if i else 0], real)
        X.append(np.block([[E, np.zeros((3, 3), real)], [-E @ skew(r), E]]))
        S.append(np.eye(6, dtype=real)[0 if i % 2 else 1])
        V.append(X[i] @ V[-1] + S[i] * real(v[i]))
        rates.append(cross(V[-1]) @ S[i] * real(v[i]))
        pull.append(-cross(V[-1]).T @ inertia @ V[-1])
    U, D, u = [None] * n, [None] * n, [None] * n
    for i in reversed(range(n)):
        U[i] = hung[i] @ S[i]
        D[i], u[i] = S[i] @ U[i], real(tau[i]) - S[i] @ pull[i]
        if i:
            left = hung[i] - np.outer(U[i], U[i]) / D[i]
            hung[i - 1] = hung[i - 1] + X[i].T @ left @ X[i]
            pull[i - 1] = pull[i - 1] + X[i].T @ (pull[i] + left @ rates[i] + U[i] * u[i] / D[i])
    out = np.zeros(n)
    for i in range(n):
        A = X[i] @ A + rates[i]
        a = (u[i] - U[i] @ A) / D[i]
        out[i], A = float(a), A + S[i] * a
    return out


@pytest.mark.parametrize("straight", [True, False])
@pytest.mark.parametrize("links", [10, 100, 1000])
def test_long_chains_keep_their_digits(links, straight):
    """Against extended precision, and for short ones Pinocchio (its data for 1,000 joints do not fit into memory)."""
    model, random = model_of(chain(links)), np.random.default_rng(links)
    q, v, tau = (
        np.full(links, 0.02) if straight else 0.3 * random.normal(size=links),
        0.3 * random.normal(size=links),
        0.01 * random.normal(size=links),
    )
    state = {n: torch.tensor(x) for n, x in (("q", q), ("v", v), ("tau", tau))}
    got, _ = solved(model, state | model.parameters(*NUMBERS), ARTICULATED)
    wanted = torch.tensor(extended(q, v, tau))
    assert relative(got, wanted) < 1e-11
    assert relative(kn.forward_dynamics(model, state["q"], state["v"], state["tau"]), wanted) < 1e-10
    if links <= 100:
        twin, _ = twins.pinocchio_twin(chain(links), model_of(replace(chain(links), name="r")))
        assert relative(got, torch.tensor(twins.pinocchio.aba(twin, twin.createData(), q, v, tau))) < 1e-10


def test_the_choice_is_made_by_depth():
    """Chains of more than 13 hinges, without anything that needs the factors."""
    short, long = model_of(chain(13)), model_of(chain(14))
    assert (13 + 1) * (2 * 13 + 1) / 6 < DEEP < (14 + 1) * (2 * 14 + 1) / 6  # mean squares of 1 ... n
    assert not articulated_pays(short.tree) and articulated_pays(long.tree)
    limited = model_of(chain(14, lower=-1.0, upper=1.0))
    paths = [("above" in step_program(m).buffers, "M" in step_program(m).buffers) for m in (short, long, limited)]
    assert paths == [(True, True), (False, False), (True, True)]
    assert not articulated_pays(kn.compile(kn.Scene()).tree)


@pytest.fixture(scope="module")
def deep() -> kn.Model:
    """A deep chain of all joints in which springs and dampers act, and two rods that float beside it."""
    springy = chain(16, (REVOLUTE, BALL, PRISMATIC), stiffness=2.0, rest=0.1, damping=0.02, armature=1e-3)
    return model_of(springy, chain(2, (FREE, BALL)))


def test_steps_of_deep_models(deep, gradient_errors):
    """State, forces, wrench and every number of a step against differences, through 1 and 32 steps; the error of
    differences grows with the curvature over the steps."""
    names = (*NUMBERS, "damping", "stiffness", "rest")
    assert articulated_pays(deep.tree)
    for steps, tolerance in ((1, 1e-7), (32, 1e-5)):
        given = state_of(deep, 1)
        given["tau"] = 0.1 * given["tau"].expand(steps, -1)
        given["wrench"] = torch.linspace(-0.1, 0.1, 6, dtype=torch.float64).expand(steps, -1)

        def loss(g, steps=steps):
            control = kn.Control(tau=g["tau"], wrenches={"chain/b9": g["wrench"]})
            params = {n: g[n] for n in names}
            end = kn.simulate(deep, kn.State(g["q"], g["v"]), control, steps=steps, dt=1e-3, params=params).end
            ends = torch.cat([end.q, end.v])
            return (ends * torch.linspace(-1, 2, len(ends), dtype=torch.float64)).sum()

        errors = gradient_errors(loss, given | deep.parameters(*names), h=1e-6)
        assert max(errors.values()) < tolerance, errors


def test_batches_and_records_of_deep_models(deep):
    """Every world has the bits it has alone; velocities of bodies are there as they are for shallow models."""
    state = state_of(deep, 2)
    q = torch.stack([state["q"] + 0.01 * i for i in range(9)])
    start = kn.State(q, state["v"].expand(9, -1).contiguous())
    together, alone = (kn.simulate(deep, s, steps=3, dt=1e-3, record=["velocity"]) for s in (start, start[7]))
    assert torch.equal(together.end.q[7], alone.end.q) and torch.equal(together.end.v[7], alone.end.v)
    J = kn.body_jacobian(deep, q[7], "chain/b15")
    assert relative(alone.recorded["velocity"][0, deep.bodies.index("chain/b15")], J @ start.v[7]) < 1e-12
