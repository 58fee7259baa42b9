"""CMA-ES, the gradient-free baseline, by the package `cma` [Hansen 2016]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.fitting.methods import Advance, Memory, Method
from kinema.fitting.objective import Objective

WORST = 1e300  # in place of infinite losses, which the package does not take
_RUNNING: WeakKeyDictionary[Objective, tuple[list[Any], int]] = WeakKeyDictionary()
"""Strategies, and the generations they have seen. They follow from the memory: a resumed fit makes them again."""


@dataclass(frozen=True)
class CMA(Method):
    """Covariance matrix adaptation: each iteration simulates one population per candidate, all in one call.

    Attributes:
        sigma: First standard deviation, in coordinates: a share of the range of bounded unknowns.
        population: Points per iteration; by default 4 + 3 log(n).
    """

    sigma: float = 0.25
    population: int | None = None
    tolerance: float = 0.0

    def begin(self, z: Tensor, seed: int) -> Memory:
        _package()
        size = self.population or 4 + int(3 * math.log(max(z.shape[1], 1)))
        return {
            "first": z.clone(),
            "seed": torch.tensor(seed),
            "told": torch.zeros(0, len(z), size, dtype=torch.float64),
        }

    def advance(self, objective: Objective, z: Tensor, memory: Memory, active: Tensor, iteration: int) -> Advance:
        known, seen = _RUNNING.get(objective, ([], -1))
        strategies = known if seen == len(memory["told"]) else self._strategies(memory)
        asked = [torch.from_numpy(np.array(s.ask())).to(z) for s in strategies]
        points = torch.stack([objective.coordinates.project(one) for one in asked])
        count, size, n = points.shape
        losses = objective.losses(points.reshape(-1, n)).reshape(count, size)
        # The distance to the bounds is a penalty relative to the spread of the losses.
        finite = torch.where(losses.isfinite(), losses, WORST).double()
        out = (torch.stack(asked) - points).square().sum(-1).double()
        told = torch.where(out > 0, finite * (1 + out) + out * 1e-300, finite)
        for s, one, values in zip(strategies, asked, told, strict=True):
            s.tell(one.double().numpy(), values.tolist())
        memory["told"] = torch.cat([memory["told"], told.unsqueeze(0)])
        _RUNNING[objective] = strategies, len(memory["told"])
        best, at = losses.min(1)
        chosen = points[torch.arange(count), at]
        stopped = torch.tensor([bool(s.stop(check=False)) for s in strategies])
        return Advance(chosen, chosen, best, ~active | stopped)

    def _strategies(self, memory: Memory) -> list[Any]:
        """Strategies that have been told all losses so far; each draws from a generator of its own."""
        package, made = _package(), []
        for i, first in enumerate(memory["first"]):
            draw = np.random.default_rng((int(memory["seed"]), i))
            options = {
                "randn": lambda *shape, draw=draw: draw.standard_normal(shape),
                "seed": math.nan,  # leaves numpy's global generator alone
                "popsize": memory["told"].shape[2],
                "verbose": -9,
                "verb_log": 0,
            }
            strategy = package.CMAEvolutionStrategy(first.double().tolist(), self.sigma, options)
            for told in memory["told"][:, i]:
                strategy.tell(strategy.ask(), told.tolist())
            made.append(strategy)
        return made


def _package() -> Any:
    try:
        import cma
    except ImportError:
        fix = "pip install 'kinema[fit]'"
        raise InputError("method='cma' needs the package cma, which is not installed", fix=fix) from None
    return cma
