"""`adam` and `lbfgs`: descent along gradients of whole rollouts, within the bounds of the controls."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from kinema.errors import SimulationError
from kinema.planning.problem import Problem
from kinema.planning.report import Found

MEMORY = 20  # pairs of steps and changes of slope
SIZES = tuple(4.0 / 4**i for i in range(10))  # step sizes tried at once
DECREASE = 1e-4  # least part of the predicted decrease


def slope_at(problem: Problem, knots: Tensor) -> tuple[float, Tensor]:
    """Cost and gradient of a plan, shape (knots, m), in double precision.

    Raises:
        SimulationError: The motion or the gradient is not finite.
    """
    leaf = knots.clone().requires_grad_()
    with torch.enable_grad():
        cost, path = problem.losses(leaf.unsqueeze(0))
        if not bool(cost.isfinite().all()):
            problem.simulate(knots, problem.options("raise"))  # says where
            raise SimulationError("the cost of these controls is not finite", fix="other u0, or a finite cost")
        if not cost.requires_grad:
            return float(cost), torch.zeros_like(knots)
        (slope,) = torch.autograd.grad(cost.sum(), leaf, allow_unused=True)
    slope = torch.zeros_like(knots) if slope is None else slope
    if not bool(slope.isfinite().all()):
        knot = int((~slope.isfinite()).any(-1).nonzero()[-1])
        what = f"the gradient of the cost is not finite, from knot {knot} backwards in time"
        raise SimulationError(what, fix="a shorter dt or horizon, more damping; or method='cma'")
    return float(cost.detach()), slope.double()


def free_slope(problem: Problem, knots: Tensor, slope: Tensor) -> Tensor:
    """The gradient by controls relative to their ranges, without what would push against a bound."""
    stuck = ((knots <= problem.low) & (slope > 0)) | ((knots >= problem.high) & (slope < 0))
    return torch.where(stuck | (problem.low == problem.high), torch.zeros_like(slope), slope * problem.scale)


def adam(problem: Problem, knots: Tensor, tolerance: float, rate: float) -> Iterator[Found]:
    """Yield the best plan after each iteration of Adam [Kingma and Ba 2015], the initial one first.

    Args:
        problem: The problem.
        knots: Initial controls.
        tolerance: Largest relative change of the controls at which it stops.
        rate: Step size, relative to the ranges of the controls.
    """
    first, second = torch.zeros_like(knots).double(), torch.zeros_like(knots).double()
    cost, slope = slope_at(problem, knots)
    best, least = knots, cost
    yield Found(best, least)
    count = 0
    while True:
        count += 1
        scaled = free_slope(problem, knots, slope)
        first = 0.9 * first + 0.1 * scaled
        second = 0.999 * second + 0.001 * scaled.square()
        ahead = first / (1 - 0.9**count)
        step = rate * ahead / ((second / (1 - 0.999**count)).sqrt() + 1e-12)
        if float(step.abs().max()) <= tolerance * rate:
            yield Found(best, least, "the gradient is zero", True)
            return
        tried = problem.clamp(knots - (problem.scale * step).to(knots.dtype))
        try:
            cost, slope = slope_at(problem, tried)
        except SimulationError:  # a failed world has infinite cost: back to the best one, with shorter steps
            rate *= 0.5
            knots, first = best, torch.zeros_like(first)
            cost, slope = slope_at(problem, knots)
        else:
            knots = tried
        if cost < least:
            best, least = knots, cost
        yield Found(best, least)


def lbfgs(problem: Problem, knots: Tensor, tolerance: float) -> Iterator[Found]:
    """Yield the best plan after each iteration of projected L-BFGS, the initial one first.

    Step sizes along the projected direction are simulated as one batch of worlds; the best one counts.
    """
    cost, slope = slope_at(problem, knots)
    yield Found(knots, cost)
    pairs: list[tuple[Tensor, Tensor]] = []
    size = 0.1  # of the first step, relative to the ranges of the controls
    while True:
        scaled = free_slope(problem, knots, slope)
        if not bool(scaled.any()):
            yield Found(knots, cost, "the gradient is zero", True)
            return
        way = _direction(pairs, scaled)
        if not pairs:
            way = way * (size / float(scaled.abs().max()))
        if float((way * scaled).sum()) >= 0:
            pairs, way = [], -scaled * (size / float(scaled.abs().max()))
        sizes = torch.tensor(SIZES, dtype=torch.float64)[:, None, None]
        tried = problem.clamp(knots + (sizes * (problem.scale * way)).to(knots.dtype))
        costs = problem.costs(tried)
        moved = ((tried - knots).double() * slope).sum((-1, -2))
        fine = (costs.double() <= cost + DECREASE * moved) & (costs < cost)
        if not bool(fine.any()):
            if pairs:
                pairs = []
                continue
            size *= SIZES[-1]
            if size < tolerance * 1e-3:
                yield Found(knots, cost, "no step along the gradient decreases the cost")
                return
            continue
        at = int(torch.where(fine, costs, torch.full_like(costs, math.inf)).argmin())
        try:
            after, new = slope_at(problem, tried[at])
        except SimulationError as error:
            yield Found(tried[at], float(costs[at]), f"stopped: {error.what}")
            return
        s, y = (tried[at] - knots).double() / problem.scale, (new - slope) * problem.scale
        if float((s * y).sum()) > 1e-10 * float(s.norm() * y.norm()):
            pairs = [*pairs, (s, y)][-MEMORY:]
        before, knots, cost, slope = cost, tried[at], after, new
        if before - cost <= tolerance * abs(before):
            yield Found(knots, cost, "the cost no longer decreases", True)
            return
        yield Found(knots, cost)


def _direction(pairs: list[tuple[Tensor, Tensor]], slope: Tensor) -> Tensor:
    """-H^-1 slope by the two loops of L-BFGS [Nocedal and Wright 2006, alg. 7.4], among the variables that may move."""
    free = slope != 0
    way, kept = slope.clone(), []
    for s, y in reversed(pairs):
        s, y = s * free, y * free
        product = float((s * y).sum())
        if product <= 1e-10 * float(s.norm() * y.norm()):
            continue
        a = float((s * way).sum()) / product
        way = way - a * y
        kept.append((s, y, product, a))
    if kept:
        s, y, product, _ = kept[0]
        way = way * (product / float(y.square().sum()))
    for s, y, product, a in reversed(kept):
        way = way + s * (a - float((y * way).sum()) / product)
    return -way * free
