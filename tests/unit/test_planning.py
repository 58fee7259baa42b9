"""Trajectory optimisation: closed forms, bounds, contact, receding horizons, and users' mistakes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.lang import func, sin
from kinema.lang.build import compiler
from kinema.planning.box_qp import box_qp
from kinema.planning.cost import moved_by, quadratic

needs_compiler = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")
F64 = torch.float64


def row(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=F64)


def sharp(tolerance: float) -> Any:
    return kn.plan.ILQR(tolerance=tolerance)


def compiled(*robots: kn.Robot, ground: bool = False) -> kn.Model:
    scene = kn.Scene()
    if ground:
        scene.add_ground()
    for robot in robots:
        scene.add_robot(robot)
    return kn.compile(scene)


def cart(pole: bool = False, force: float = math.inf) -> kn.Robot:
    """A cart on a rail with one motor; a pole hangs from it."""
    inertia = (0.01, 0.0, 0.0, 0.01, 0.0, 0.01)
    rail = kn.Joint("rail", "prismatic", (1.0, 0.0, 0.0), damping=0.3)
    bodies = [kn.Body("cart", None, kn.Pose(), (rail,), kn.MassProperties(1.5, (0.0, 0.0, 0.0), inertia))]
    if pole:
        hinge = kn.Joint("hinge", "revolute", (0.0, 1.0, 0.0), damping=0.01)
        bodies.append(kn.Body("pole", "cart", kn.Pose(), (hinge,), kn.MassProperties(0.3, (0.0, 0.0, -0.5), inertia)))
    return kn.Robot("cart", tuple(bodies), (kn.Actuator("motor", "rail", lower=-force, upper=force),))


@pytest.fixture(scope="module")
def rail() -> kn.Model:
    return compiled(cart())


def squares(s: kn.State, u: Tensor) -> Tensor:
    return (s.q[..., 0] ** 2 + 0.25 * s.v[..., 0] ** 2 + 0.05 * u[..., 0] ** 2) / 1.0


QUIET = kn.plan.Options(progress=False)
TRACK = kn.Cost(squares, lambda s: 15 * s.q[..., 0] ** 2 + 2.5 * s.v[..., 0] ** 2)


def riccati(model: kn.Model, steps: int, dt: float) -> tuple[Tensor, Tensor]:
    """Gains of the regulator, shape (steps, 1, 2), and the matrix of the cost-to-go, of x.P x / 2."""
    A, B = kn.linearise(model, model.initial_state(), dt=dt)
    P, gains = torch.diag(row(30.0, 5.0)), []
    for _ in range(steps):
        gains.append(-torch.linalg.solve(0.1 + B.T @ P @ B, B.T @ P @ A))
        P = torch.diag(row(2.0, 0.5)) + A.T @ P @ (A + B @ gains[-1])
    return torch.stack(gains[::-1]), P


# -- linear systems: closed forms --------------------------------------------------------------------------------------


@needs_compiler
def test_a_linear_system_is_the_regulator(rail: kn.Model):
    steps, dt = 60, 0.05
    x = row(1.0, -0.5)
    found = kn.plan(rail, TRACK, steps=steps, dt=dt, state=kn.State(x[:1], x[1:]), method=sharp(1e-16), options=QUIET)
    gains, P = riccati(rail, steps, dt)
    A, B = kn.linearise(rail, rail.initial_state(), dt=dt)
    assert abs(found.cost - 0.5 * float(x @ P @ x)) < 1e-10 * found.cost  # rounding
    assert found.converged and len(found.history) < 8
    assert (found.gains - gains).abs().max() < 1e-10
    u = []
    for k in range(steps):
        u.append(gains[k] @ x)
        x = A @ x + B @ u[-1]
    assert (found.u - torch.stack(u)).abs().max() < 1e-8
    # feedback about the plan is the regulator from any state
    state = kn.State(row(0.3), row(0.2))
    assert torch.allclose(found.control(7, state), gains[7] @ row(0.3, 0.2), atol=1e-8)


@needs_compiler
@pytest.mark.parametrize(("hold", "substeps"), [(1, 3), (4, 1), (4, 3)])
def test_knots_and_substeps_compose(rail: kn.Model, hold: int, substeps: int):
    """The minimum found with composed Jacobians is that of the same quadratic function, by least squares."""
    state, options = kn.State(row(1.0), row(-0.5)), replace(QUIET, hold=hold, substeps=substeps)
    found = kn.plan(rail, TRACK, steps=24, dt=0.1, state=state, method=sharp(1e-13), options=options)
    u = torch.zeros(24 // hold, 1, dtype=F64, requires_grad=True)

    def cost(u: Tensor) -> Tensor:
        held = u.repeat_interleave(hold, 0)
        path = kn.simulate(rail, state, held, steps=24, dt=0.1, substeps=substeps)
        assert path.states is not None
        return TRACK.of(path.states, held)

    (slope,) = torch.autograd.grad(cost(u), u)
    eye = torch.eye(len(u), dtype=F64).unsqueeze(-1)
    slopes = [torch.autograd.grad(cost(u + e), u)[0] for e in eye]
    H = torch.stack([(s - slope)[:, 0] for s in slopes])  # exact: the cost is quadratic
    assert (found.knots - torch.linalg.solve(H, -slope)).abs().max() < 1e-7
    assert found.u.shape == (24, 1) and found.path.steps == 24


@needs_compiler
def test_bounds_hold_and_the_rest_is_optimal(rail: kn.Model):
    """At a minimum with bounds the slope is zero for free controls, and points outwards for others."""
    state = kn.State(row(1.0), row(-0.5))
    words: dict[str, Any] = {"steps": 40, "dt": 0.05, "state": state, "bounds": (-0.6, 0.4)}
    found = kn.plan(rail, TRACK, method=sharp(1e-12), options=QUIET, **words)
    u = found.u.clone().requires_grad_()
    path = kn.simulate(rail, state, u, steps=40, dt=0.05)
    assert path.states is not None
    (slope,) = torch.autograd.grad(TRACK.of(path.states, u), u)
    low, high = found.u <= -0.6, found.u >= 0.4
    assert low.sum() > 3 and high.sum() > 3 and (~(low | high)).sum() > 3
    assert (slope[low] > 0).all() and (slope[high] < 0).all() and slope[~(low | high)].abs().max() < 1e-6
    assert (found.gains[low] == 0).all() and "at a bound" in str(found)
    for method in ("lbfgs", "adam", "cma"):
        options = replace(QUIET, hold=1 if method == "lbfgs" else 4)
        other = kn.plan(rail, TRACK, method=method, iterations=150, options=options, **words)
        assert float(other.u.min()) >= -0.6 and float(other.u.max()) <= 0.4
        close = 1e-4 if method == "lbfgs" else 0.02  # coarser knots cost about 1 %
        assert 0 <= other.cost / found.cost - 1 < close, method


def test_box_programs_against_all_active_sets():
    random = np.random.default_rng(0)
    for m in (1, 2, 3, 4):
        root = random.normal(size=(20, m, m))
        H, g = root @ root.transpose(0, 2, 1) + 0.01 * np.eye(m), 3 * random.normal(size=(20, m))
        low, high = -random.random(m), random.random(m)
        if m > 2:
            low[0] = high[0] = 0.0  # fixed
        x, free, solved = box_qp(H, g, low, high)
        assert solved.all()
        for i in range(20):
            best = math.inf
            for sides in itertools.product((-1, 0, 1), repeat=m):
                one = np.where(np.array(sides) < 0, low, high)
                inner = [k for k in range(m) if sides[k] == 0]
                rest = [k for k in range(m) if sides[k]]
                if inner:
                    load = g[i][inner] + H[i][np.ix_(inner, rest)] @ one[rest]
                    one[inner] = np.linalg.solve(H[i][np.ix_(inner, inner)], -load)
                if (one >= low - 1e-12).all() and (one <= high + 1e-12).all():
                    best = min(best, g[i] @ one + 0.5 * one @ H[i] @ one)
            assert g[i] @ x[i] + 0.5 * x[i] @ H[i] @ x[i] <= best + 1e-9
            assert ((x[i] > low) & (x[i] < high) <= free[i]).all()


def test_a_box_program_that_is_not_convex_says_so():
    H = np.stack([np.eye(2), -np.eye(2)])
    _, _, solved = box_qp(H, np.ones((2, 2)), np.full(2, -9.0), np.full(2, 9.0))
    assert solved.tolist() == [True, False]


# -- quadratic models of costs -----------------------------------------------------------------------------------------


def ball_costs(model: kn.Model) -> list[kn.Cost]:
    """A cost, and residuals, that depend on turns."""
    target = row(0.4, -0.2, 0.7)

    def residuals(s: kn.State) -> Tensor:
        poses = kn.forward_kinematics(model, s.q)
        return torch.cat([poses.position[..., -1, :] - target, poses.rotation[..., -1, 0, :], 0.3 * s.v], -1)

    def plain(s: kn.State) -> Tensor:
        return (s.q - 0.3).square().sum(-1) * (1 + s.v.square().sum(-1)) + s.q[..., 3] * s.q[..., 0].sin()

    return [kn.Cost(final=residuals), kn.Cost(final=plain)]


@needs_compiler
@pytest.mark.parametrize("kind", [0, 1])
def test_quadratic_models_against_differences(kind: int):
    model = compiled(kn.shapes.quadruped())
    random = torch.Generator().manual_seed(0)
    start = model.initial_state()
    q = start.q + 0.3 * torch.randn(3, model.nq, dtype=F64, generator=random)
    q[:, 3:7] /= q[:, 3:7].norm(dim=-1, keepdim=True)
    states = kn.State(q, torch.randn(3, model.nv, dtype=F64, generator=random))
    cost = ball_costs(model)[kind]
    assert cost.final is not None
    made = quadratic(model, cost, "final", states, None)
    way, h = torch.randn(3, 2 * model.nv, dtype=F64, generator=random), 1e-4

    def value(z: Tensor) -> Tensor:
        found = cost.final(moved_by(model, states, z))  # type: ignore[misc]
        return 0.5 * found.square().sum(-1) if found.ndim == 2 else found

    slope = (value(h * way) - value(-h * way)) / (2 * h)
    assert torch.allclose((made.g * way).sum(-1), slope, rtol=1e-6, atol=1e-6)  # O(h^2)
    assert (torch.linalg.eigvalsh(made.H) > -1e-9).all()
    if kind == 0:  # the Gauss-Newton matrix: that of residuals that are linear
        rows = cost.final(moved_by(model, states, h * way)) - cost.final(moved_by(model, states, -h * way))
        assert torch.allclose((way * (made.H @ way.unsqueeze(-1)).squeeze(-1)).sum(-1), (rows / 2 / h).square().sum(-1))


@needs_compiler
def test_hessians_against_differences(rail: kn.Model):
    cost = kn.Cost(lambda s, u: s.q[..., 0].cosh() * (1 + u[..., 0] ** 2) + s.v[..., 0] ** 4)
    states, u, h = kn.State(row(0.4, 0.1)[:, None], row(0.5, -0.3)[:, None]), row(0.2, 0.6)[:, None], 1e-4
    made = quadratic(rail, cost, "running", states, u)

    def value(z: Tensor) -> Tensor:
        return cost.running(kn.State(states.q + z[:, :1], states.v + z[:, 1:2]), u + z[:, 2:])  # type: ignore[misc]

    for a, b in itertools.product(range(3), repeat=2):
        i, j = torch.eye(3, dtype=F64)[a].expand(2, 3) * h, torch.eye(3, dtype=F64)[b].expand(2, 3) * h
        second = (value(i + j) - value(i - j) - value(j - i) + value(-i - j)) / (4 * h * h)
        assert torch.allclose(made.H[:, a, b], second, atol=1e-6)  # rounding, 1e-16 / h^2, and O(h^2)


# -- motions -----------------------------------------------------------------------------------------------------------


@needs_compiler
def test_a_cart_swings_up_its_pole():
    model = compiled(cart(pole=True, force=10.0))

    def running(s: kn.State, u: Tensor) -> Tensor:
        return torch.cat([0.02 * u, 0.02 * s.q[..., :1]], -1)

    def final(s: kn.State) -> Tensor:
        return torch.cat([4 * s.q[..., :1], 10 * (s.q[..., 1:] - math.pi), 2 * s.v], -1)

    found = kn.plan(model, kn.Cost(running, final), steps=150, dt=0.02, iterations=60, options=QUIET)
    assert abs(float(found.states.q[-1, 1]) - math.pi) < 0.03 and float(found.states.v[-1].abs().max()) < 0.15
    assert float(found.u.abs().max()) == 10.0
    # with its feedback it gets there from a start that is off by 3 degrees, where the same controls do not
    away = kn.State(row(0.0, 0.05), row(0.0, 0.0))
    state = away
    for k in range(150):
        state = kn.step(model, state, found.control(k, state), dt=0.02)
    blind = kn.simulate(model, away, found.u, steps=150, dt=0.02).end

    def off(s: kn.State) -> float:
        return float(final(s).norm())

    assert off(state) < 0.5 * off(blind)


@needs_compiler
def test_a_push_through_contact_beats_descent():
    """A finger pushes a box over the floor to a place: it has to reach it first, and friction stops it."""
    box = kn.Box((0.05, 0.05, 0.05))
    slide = kn.Joint("slide", "prismatic", (1.0, 0.0, 0.0))
    hand = kn.Body(
        "finger",
        None,
        kn.Pose((0.0, 0.0, 0.05)),
        (slide,),
        kn.MassProperties(1.0, (0.0, 0.0, 0.0), (0.01, 0.0, 0.0, 0.01, 0.0, 0.01)),
        (kn.Shape("sphere", (0.03,)),),
    )
    scene = kn.Scene(friction=0.5)
    scene.add_ground()
    scene.add_robot(kn.Robot("push", (hand,), (kn.Actuator("motor", "slide", lower=-20.0, upper=20.0),)))
    scene.add_body(box, "box", mass=0.5, pos=(0.15, 0.0, 0.05))
    model = kn.compile(scene)
    x = model.q_index("box").start  # type: ignore[union-attr]

    def running(s: kn.State, u: Tensor) -> Tensor:
        return 0.003 * u

    def final(s: kn.State) -> Tensor:
        return torch.cat([10 * (s.q[..., x : x + 1] - 0.4), 0.1 * s.v[..., :1]], -1)

    # touches, and pushes the box a little
    words: dict[str, Any] = {"steps": 300, "dt": 2e-3, "u0": row(3.0), "options": replace(QUIET, hold=10)}
    touched = kn.simulate(model, u=row(3.0), steps=300, dt=2e-3, record="impulse").recorded["impulse"]
    assert (touched[..., 0] > 0).any(0).sum() > 4  # four corners, and the finger
    ddp = kn.plan(model, kn.Cost(running, final), iterations=25, **words)
    assert abs(float(ddp.states.q[-1, x]) - 0.4) < 5e-3
    descent = kn.plan(model, kn.Cost(running, final), iterations=25, method="adam", **words)
    assert ddp.cost < descent.cost < ddp.history[0]


@needs_compiler
def test_mpc_balances_a_pole_under_disturbance():
    model = compiled(cart(pole=True, force=15.0))

    def running(s: kn.State, u: Tensor) -> Tensor:
        return torch.cat([0.01 * u, 0.3 * s.q[..., :1], (s.q[..., 1:] - math.pi), 0.1 * s.v], -1)

    cost = kn.Cost(running, lambda s: 3 * torch.cat([s.q[..., :1], s.q[..., 1:] - math.pi, 0.3 * s.v], -1))
    controller = kn.MPC(model, cost, steps=40, dt=0.02, iterations=1, first=5, options=replace(QUIET, hold=2))
    plant = model.parameters("mass")
    plant["mass"] = plant["mass"] * 1.3  # the plan does not know it
    random = torch.Generator().manual_seed(3)
    state = kn.State(row(0.0, math.pi + 0.15), row(0.0, 0.0))
    blind = state
    for k in range(75):
        shove = kn.Control(tau=torch.randn(2, dtype=F64, generator=random) * row(1.0, 0.1))
        u = controller(state)
        push = kn.Control(u=u.expand(2, 1), tau=shove.tau.expand(2, 2))
        state = kn.simulate(model, state, push, steps=2, dt=0.02, params=plant).end
        push = kn.Control(tau=shove.tau.expand(2, 2))
        blind = kn.simulate(model, blind, push, steps=2, dt=0.02, params=plant).end
        assert controller.plan is not None and (k > 60) <= (abs(float(state.q[1]) - math.pi) < 0.1)
    assert abs(float(blind.q[1]) - math.pi) > 1.0


@needs_compiler
def test_failed_worlds_are_never_chosen():
    """A cost that is not finite for large controls, and steps that explode."""
    model = compiled(kn.shapes.pendulum(1, 0.5))

    def final(s: kn.State) -> Tensor:
        return (s.q[..., 0] - 0.2).square() + (0.3 - s.q[..., 0]).log() * 0

    for method in ("ilqr", "lbfgs", "adam", "cma"):
        options = replace(QUIET, hold=10)
        found = kn.plan(model, kn.Cost(final=final), steps=50, dt=0.01, method=method, iterations=60, options=options)
        assert math.isfinite(found.cost) and all(map(math.isfinite, found.history)), method
        assert found.cost < 1e-3 and float(found.states.q[-1, 0]) < 0.3, method
        assert list(found.history) == sorted(found.history, reverse=True)


@needs_compiler
def test_costs_of_trajectories_other_inputs_and_files(rail: kn.Model, tmp_path: Path):
    def cost(path: kn.Trajectory, u: Tensor) -> Tensor:
        return (path.q[..., -1, 0] - 0.5).square() + 1e-4 * u.square().sum((-1, -2))

    wind = kn.Control(tau=row(-2.0))
    seen: list[tuple[int, float]] = []
    watched = kn.plan.Options(progress=lambda *one: seen.append(one))
    words: dict[str, Any] = {"steps": 20, "dt": 0.05, "options": watched}
    still = kn.plan(rail, cost, method="lbfgs", **words)
    windy = kn.plan(rail, cost, method="lbfgs", u0=kn.Control(u=row(0.0), tau=wind.tau), **words)
    assert windy.planned == "u" and float((windy.u - still.u).mean()) > 1.0
    assert seen[0][0] == 0 and seen[0][1] == still.history[0]
    forces = kn.plan(rail, cost, method="lbfgs", u0=kn.Control(tau=row(0.0)), **words)
    assert forces.planned == "tau" and abs(forces.cost - still.cost) < 1e-4 * still.cost
    with pytest.raises(kn.InputError, match="running and final costs"):
        _ = still.gains
    still.save(tmp_path / "plan.safetensors")
    again = kn.load(tmp_path / "plan.safetensors")
    assert torch.equal(again["u"], still.u) and again["gains"] is None and again["history"] == list(still.history)
    goal = kn.plan(rail, cost, method="lbfgs", **(words | {"options": replace(QUIET, goal=0.1)}))
    assert goal.cost <= 0.1 and goal.reason == "the goal is reached" and len(goal.history) < len(still.history)


@needs_compiler
def test_the_same_seed_gives_the_same_bits(rail: kn.Model):
    words: dict[str, Any] = {"steps": 20, "dt": 0.05, "iterations": 5, "options": QUIET}
    first, again, other = (
        kn.plan(rail, TRACK, method=kn.plan.CMA(seed=seed), state=kn.State(row(1.0), row(0.0)), **words)
        for seed in (1, 1, 2)
    )
    assert first.history == again.history != other.history


# -- mistakes of users -------------------------------------------------------------------------------------------------

Words = dict[str, Any]
MISTAKES: dict[str, tuple[Words, str]] = {
    "no cost": ({"cost": 3.0}, "the cost is not usable"),
    "a sum over steps": ({"cost": kn.Cost(lambda s, u: u.square().sum())}, "running cost has the wrong shape"),
    "a sum over worlds": ({"cost": kn.Cost(final=lambda s: s.q.square().sum())}, "sum over the last axes"),
    "a cost that is no tensor": ({"cost": kn.Cost(lambda s, u: 1.0)}, "not a tensor of real numbers"),
    "unknown method": ({"method": "ddpg"}, "unknown method"),
    "hold does not divide": ({"options": replace(QUIET, hold=7)}, "steps=14, or hold=1"),
    "guess per step": (
        {"options": replace(QUIET, hold=5), "u0": torch.zeros(20, 1, dtype=F64)},
        r"u0\[::5\]: one row for each knot",
    ),
    "guess of wrong width": ({"u0": torch.zeros(20, 2, dtype=F64)}, "u0 has the wrong shape"),
    "guess out of bounds": ({"u0": row(5.0), "bounds": (-1.0, 1.0)}, "u0 is outside bounds.*'cart/motor'"),
    "guess that is not finite": ({"u0": row(math.nan)}, "u0 is not finite"),
    "guess in single precision": ({"u0": torch.zeros(20, 1)}, "float64"),
    "bounds swapped": ({"bounds": (1.0, -1.0)}, "a lower bound is above"),
    "one bound": ({"bounds": 1.0}, r"a pair, \(low, high\)"),
    "bounds of wrong shape": ({"bounds": (torch.zeros(3), torch.ones(3))}, "low has the wrong shape"),
    "a batch of states": ({"state": kn.State(torch.zeros(4, 1, dtype=F64), torch.zeros(4, 1, dtype=F64))}, "one state"),
    "no steps": ({"steps": 0}, "steps"),
    "no time": ({"dt": -1.0}, "dt is not usable"),
    "trajectory cost by ilqr": ({"cost": lambda path, u: path.q.sum()}, "method='lbfgs'"),
    "a root at zero": ({"cost": kn.Cost(final=lambda s: s.q[..., 0].abs().sqrt())}, "not finite"),
    "options": ({"options": {"hold": 2}}, r"kinema.plan.Options\(hold=10\)"),
    "options of runs": ({"options": replace(QUIET, run={"threads": 1})}, "RunOptions"),
    "a method's class": ({"method": kn.plan.Adam}, r"kinema.plan.Adam\(rate=0.1\)"),
    "prescribed motion": ({"u0": kn.Control(motion=0.0)}, "cannot be planned"),
}


@needs_compiler
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(rail: kn.Model, mistake: str):
    words, message = MISTAKES[mistake]
    with pytest.raises(kn.InputError, match=f"(?s){message}"):
        kn.plan(rail, **({"cost": TRACK, "steps": 20, "dt": 0.05, "options": QUIET} | words))


@needs_compiler
def test_more_mistakes(rail: kn.Model):
    words: Words = {"steps": 20, "dt": 0.05, "options": QUIET}
    with pytest.raises(kn.InputError, match="tolerance is not usable"):
        kn.plan.ILQR(tolerance="small")  # type: ignore[arg-type]
    with pytest.raises(kn.InputError, match="rate is not usable"):
        kn.plan.CMA(rate=math.nan)
    with pytest.raises(kn.InputError, match="running or a final part"):
        kn.Cost()
    with pytest.raises(kn.InputError, match=r"Cost\(running=lambda state, u: ...\)"):
        kn.Cost(running=3.0)  # type: ignore[arg-type]
    heights: Callable[[kn.State], Tensor] = lambda s: kn.forward_kinematics(rail, s.q).position[..., 0, 0].square()  # noqa: E731
    with pytest.raises(kn.InputError, match="return residuals r"):
        kn.plan(rail, kn.Cost(final=heights), **words)
    assert kn.plan(rail, kn.Cost(final=heights), method="lbfgs", **words).cost < 1e-12
    found = kn.plan(rail, TRACK, iterations=2, **words)
    with pytest.raises(kn.InputError, match="there is no such step"):
        found.control(20, rail.initial_state())
    with pytest.raises(kn.SimulationError, match="not finite"):
        kn.plan(rail, kn.Cost(final=lambda s: s.q[..., 0] / 0), **words)
    empty = compiled(kn.Robot("post", (kn.Body("post", None),)))
    with pytest.raises(kn.InputError, match="nothing to control|no moving part"):
        kn.plan(empty, TRACK, **words)


@func
def gust(time):
    """A force on a joint that turns over time."""
    return 3.0 * sin(4.0 * time)


@needs_compiler
@pytest.mark.parametrize("substeps", [1, 2])
def test_forces_that_read_the_time_act_at_their_time(substeps: int):
    """Knot by knot, the same motion as in one run; the plan holds against the gust."""
    scene = kn.Scene()
    robot = scene.add_robot(cart())
    scene.add_force(gust, joints=robot["rail"])
    model = kn.compile(scene)
    cost = kn.Cost(lambda s, u: torch.cat([s.q, 0.01 * u], -1))
    state = kn.State(row(0.2), row(0.0), time=torch.tensor(0.5, dtype=F64))
    found = kn.plan(model, cost, steps=40, dt=0.05, state=state, options=replace(QUIET, hold=4, substeps=substeps))
    assert abs(float(cost.of(found.states, found.u)) / found.history[-1] - 1) < 1e-12  # `path` is one run
    assert found.converged and found.cost < 0.2 * found.history[0]
