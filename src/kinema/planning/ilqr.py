"""`ilqr`: control-limited iLQR, with a grid of dampings and step sizes simulated as one batch of worlds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from kinema.errors import SimulationError
from kinema.planning.cost import Cost, quadratic
from kinema.planning.problem import Problem, Ran
from kinema.planning.report import Found
from kinema.planning.riccati import Expansion, Policy, expand, sweep

SPREAD = (1 / 64, 1 / 8, 1.0, 8.0)  # dampings of one iteration, over that of the last
SIZES = (1.0, 0.5, 0.2, 0.05)  # of steps
FIRST, LEAST, MOST = 1e-3, 1e-14, 1e6  # dampings over the initial cost: the first one, that which is zero, the last one


def ilqr(problem: Problem, knots: Tensor, tolerance: float) -> Iterator[Found]:
    """Yield the best plan after each iteration, the initial one first.

    The damping is that of Levenberg and Marquardt, of controls relative to their ranges. Each iteration solves the
    backward sweep for several dampings, simulates each solution with feedback at several step sizes, keeps the best.

    Raises:
        SimulationError: The initial motion, or a Jacobian on the way, is not finite.
    """
    best = problem.run(knots.unsqueeze(0))
    cost = float(best.costs[0])
    if not np.isfinite(cost):
        problem.simulate(knots, problem.options("raise"))  # says where
        raise SimulationError("the cost of the initial controls is not finite", fix="other u0, or a finite cost")
    unit = max(abs(cost), 1e-12)
    damping = FIRST * unit
    model = expansion(problem, best)
    yield Found(best.knots[0], cost)
    while damping <= MOST * unit:
        dampings = np.array([d if d > LEAST * unit else 0.0 for d in (s * damping for s in SPREAD)])
        policy = sweep_of(problem, model, best.knots[0], dampings)
        chosen = np.flatnonzero(policy.solved)
        after = np.inf
        if len(chosen):
            expected = -float((policy.slope + 0.5 * policy.curvature)[chosen].min())
            if expected <= 0.01 * tolerance * abs(cost):
                yield Found(best.knots[0], cost, "no smaller cost is in sight", True)
                return
            sizes = torch.tensor(SIZES, dtype=torch.float64).repeat(len(chosen))
            change = torch.from_numpy(policy.change[chosen]).repeat_interleave(len(SIZES), 0) * sizes[:, None, None]
            gains = torch.from_numpy(policy.gains[chosen]).repeat_interleave(len(SIZES), 0)
            tried = problem.follow(best, change, gains)
            at = int(tried.costs.argmin())
            after = float(tried.costs[at])
        if not after < cost:
            damping *= 512  # beyond the largest that was tried
            yield Found(best.knots[0], cost)
            continue
        best = Ran(tried.states[at : at + 1], tried.knots[at : at + 1], tried.costs[at : at + 1])
        damping = max(float(dampings[chosen[at // len(SIZES)]]), LEAST * unit)
        before, cost = cost, after
        if before - cost <= tolerance * abs(before):
            yield Found(best.knots[0], cost, "the cost no longer decreases", True)
            return
        yield Found(best.knots[0], cost)
        model = expansion(problem, best)
    yield Found(best.knots[0], cost, "no step decreases the cost")


def feedback(problem: Problem, knots: Tensor) -> Tensor:
    """Gains of the linear-quadratic regulator about a plan, shape (knots, m, n), with as little damping as possible."""
    ran = problem.run(knots.unsqueeze(0))
    unit = max(abs(float(ran.costs[0])), 1e-12)
    policy = sweep_of(problem, expansion(problem, ran), knots, unit * np.array([0.0, LEAST, 1e-10, 1e-6, 1e-3, 1.0]))
    if not policy.solved.any():
        raise SimulationError("no feedback gains exist: the problem is not convex about the plan")
    return torch.from_numpy(policy.gains[int(np.flatnonzero(policy.solved)[0])].copy())


def expansion(problem: Problem, ran: Ran) -> Expansion:
    """The problem to second order about the motion of one world."""
    assert isinstance(problem.cost, Cost)
    A, B = problem.jacobians(ran)
    states, substeps, u = ran.states[0], problem.substeps, problem.held(ran.knots[0])
    running = quadratic(problem.model, problem.cost, "running", states[:-1][::substeps], u)
    final = quadratic(problem.model, problem.cost, "final", states[-1], None)
    return expand(A, B, running, final, problem.hold * substeps, substeps)


def sweep_of(problem: Problem, model: Expansion, knots: Tensor, dampings: np.ndarray) -> Policy:
    """The backward sweep within the bounds of the controls."""
    low, high = (problem.low - knots).clamp(max=0), (problem.high - knots).clamp(min=0)
    return sweep(model, low.double().numpy(), high.double().numpy(), dampings, problem.scale.double().numpy())
