"""Methods of `kinema.plan`, each a value with options that yields the best plan after every iteration."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from kinema.errors import InputError
from kinema.planning.descent import adam, lbfgs
from kinema.planning.evolution import cma
from kinema.planning.ilqr import ilqr
from kinema.planning.problem import Problem, check_tangents
from kinema.planning.report import Found


@dataclass(frozen=True)
class Method:
    """A method of planning."""

    word: ClassVar[str]

    def __post_init__(self) -> None:
        for name in ("tolerance", "rate"):
            number = getattr(self, name, 0.0)
            usable = not isinstance(number, bool) and isinstance(number, int | float) and 0 <= number < math.inf
            if not usable:
                raise InputError(f"{name} is not usable", got=repr(number), expected="a number, not negative")

    def solve(self, problem: Problem, knots: Tensor) -> Iterator[Found]:
        """Yield the best plan after each iteration, the initial one first."""
        raise NotImplementedError


@dataclass(frozen=True)
class ILQR(Method):
    """Control-limited iLQR: DDP with the Gauss-Newton approximation of the dynamics.

    It takes Jacobians of all steps, a backward sweep that solves a small problem with bounds for each knot, and a batch
    of worlds for several dampings and step sizes.

    Attributes:
        tolerance: Relative decrease of the cost in one iteration below which it has converged.

    References:
        [Tassa et al. 2012; Tassa et al. 2014]
    """

    word = "ilqr"
    tolerance: float = 1e-6

    def solve(self, problem: Problem, knots: Tensor) -> Iterator[Found]:
        check_tangents(problem)
        return ilqr(problem, knots, self.tolerance)


@dataclass(frozen=True)
class LBFGS(Method):
    """Projected L-BFGS along the gradient of the whole rollout, within the bounds.

    Attributes:
        tolerance: Relative decrease of the cost in one iteration below which it has converged.
    """

    word = "lbfgs"
    tolerance: float = 1e-6

    def solve(self, problem: Problem, knots: Tensor) -> Iterator[Found]:
        return lbfgs(problem, knots, self.tolerance)


@dataclass(frozen=True)
class Adam(Method):
    """Adam [Kingma and Ba 2015] along the gradient of the whole rollout, within the bounds.

    Attributes:
        rate: Step size, relative to half the range of each control (1 if it has none).
        tolerance: Step, relative to the rate, below which it has converged.
    """

    word = "adam"
    rate: float = 0.05
    tolerance: float = 1e-6

    def solve(self, problem: Problem, knots: Tensor) -> Iterator[Found]:
        return adam(problem, knots, self.tolerance, self.rate)


@dataclass(frozen=True)
class CMA(Method):
    """The evolution strategy CMA-ES [Hansen 2016] of the package cma, without gradients.

    Attributes:
        rate: Initial standard deviation, relative to half the range of each control (1 if it has none).
        population: Plans per generation; by default 4 + 3 log(controls).
        seed: Seed of its random numbers.
    """

    word = "cma"
    rate: float = 0.3
    population: int | None = None
    seed: int = 0

    def solve(self, problem: Problem, knots: Tensor) -> Iterator[Found]:
        return cma(problem, knots, self.rate, self.population, self.seed)


METHODS: dict[str, Method] = {method.word: method for method in (ILQR(), LBFGS(), Adam(), CMA())}


def method_of(given: object) -> Method:
    """A method, or the method of a name with its default options.

    Raises:
        InputError: There is no such method.
    """
    if isinstance(given, str) and given in METHODS:
        return METHODS[given]
    if not isinstance(given, Method):
        fix = "method='adam', or with options kinema.plan.Adam(rate=0.1)"
        raise InputError("unknown method", got=repr(given), expected=", ".join(map(repr, METHODS)), fix=fix)
    return given
