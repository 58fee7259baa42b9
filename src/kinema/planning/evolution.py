"""`cma`: the evolution strategy CMA-ES, a baseline without gradients; each generation is one batch of worlds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError, SimulationError
from kinema.planning.problem import Problem
from kinema.planning.report import Found

DIAGONAL = 500  # variables above which only variances are adapted: a full covariance costs their square
WORST = 1e30  # stands for infinite costs, which the package does not take


def cma(problem: Problem, knots: Tensor, rate: float, population: int | None, seed: int) -> Iterator[Found]:
    """Yield the best plan after each generation [Hansen 2016], the initial one first.

    Args:
        problem: The problem.
        knots: Initial mean.
        rate: Initial standard deviation, relative to the ranges of the controls.
        population: Plans per generation; by default 4 + 3 log(variables).
        seed: Of the random numbers.
    """
    try:
        import cma as package
    except ImportError:
        what = "method='cma' needs the package cma"
        raise InputError(what, got="it is not installed", fix="pip install 'kinema[fit]'") from None
    moves = (problem.low < problem.high).flatten()
    scale = problem.scale.repeat(problem.knots)[moves].double().numpy()
    start = knots.flatten()[moves].double().numpy() / scale
    low, high = (one.flatten()[moves].double().numpy() / scale for one in (problem.low, problem.high))
    draw = np.random.default_rng(seed)
    options: dict[str, Any] = {"verbose": -9, "verb_log": 0, "maxiter": math.inf}
    options |= {"randn": lambda *shape: draw.standard_normal(shape)}
    options |= {"seed": math.nan}  # leaves numpy's global generator alone
    options |= {"bounds": [low, high]} if np.isfinite(low).any() or np.isfinite(high).any() else {}
    options |= {"popsize": population} if population else {}
    options |= {"CMA_diagonal": True} if len(start) > DIAGONAL else {}
    least = float(problem.costs(knots.unsqueeze(0)))
    best = knots
    if not np.isfinite(least):
        raise SimulationError("the cost of the initial controls is not finite", fix="other u0, or a finite cost")
    yield Found(best, least)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package comments on its options
        strategy = package.CMAEvolutionStrategy(start, rate, options)
    while not strategy.stop():
        asked = strategy.ask()
        plans = knots.flatten().repeat(len(asked), 1)
        plans[:, moves] = torch.from_numpy(np.stack(asked) * scale).to(knots.dtype)
        plans = problem.clamp(plans.unflatten(-1, knots.shape))
        costs = problem.costs(plans).double().numpy()
        strategy.tell(asked, np.where(np.isfinite(costs), costs, WORST).tolist())
        at = int(costs.argmin())
        if costs[at] < least:
            best, least = plans[at], float(costs[at])
        yield Found(best, least)
    yield Found(best, least, f"CMA-ES stopped: {', '.join(strategy.stop())}", True)
