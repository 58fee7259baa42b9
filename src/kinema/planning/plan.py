"""`plan`: controls that minimise a cost, by iLQR, gradients or evolution; `Plan`: what was found."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.lang.autograd.options import DEFAULT, RunOptions
from kinema.lang.autograd.rollout import positive
from kinema.model.model import Model
from kinema.model.state import State
from kinema.planning.cost import Cost
from kinema.planning.descent import adam, lbfgs
from kinema.planning.evolution import cma
from kinema.planning.ilqr import feedback, ilqr
from kinema.planning.problem import CostLike, Problem, check_tangents, make
from kinema.planning.report import Found, Meter, Show
from kinema.simulation.trajectory import Trajectory
from kinema.storage.objects import save

METHODS = ("ilqr", "adam", "lbfgs", "cma")
RATES = {"adam": 0.05, "cma": 0.3}


@dataclass(frozen=True, eq=False)
class Plan:
    """Controls that minimise a cost, and how they were found; `print` shows a table.

    Attributes:
        knots: Controls of each knot, shape (knots, m).
        u: Controls in each step, shape (steps, m).
        path: The trajectory.
        cost: Its cost.
        history: Cost of the best plan at the start and after each iteration.
        rollouts: Number of motions simulated.
        converged: Whether it stopped because nothing better was near, rather than after all iterations.
        reason: Why it stopped.
        method: "ilqr", "adam", "lbfgs" or "cma".
        seconds: Time that it took [s].
    """

    knots: Tensor
    u: Tensor
    path: Trajectory
    cost: float
    history: tuple[float, ...]
    rollouts: int
    converged: bool
    reason: str
    method: str
    seconds: float
    _problem: Problem = field(repr=False)

    @property
    def states(self) -> State:
        """Planned states at times 0, dt, ..., batch (steps + 1,)."""
        assert self.path.states is not None
        return self.path.states

    @cached_property
    def gains(self) -> Tensor:
        """Feedback gains K of each knot, shape (knots, m, n), in u = knots + K ds.

        ds is the tangent from the planned state at the start of the knot to the actual one, as in `kinema.linearise`.
        They are those of the linear-quadratic regulator about the plan, computed at first use, and zero for controls at
        their bounds.

        Raises:
            InputError: The cost is a function of the trajectory, or the model has a warm start.
        """
        check_tangents(self._problem)
        return feedback(self._problem, self.knots)

    @property
    def planned(self) -> str:
        """The input that was planned: "u" or "tau"."""
        return self._problem.name

    def control(self, k: int, state: State) -> Tensor:
        """Controls in step k at an actual state, with feedback about the plan, shape (*batch, m).

        Args:
            k: Step, from 0 on.
            state: At the start of the step, or of the knot that it belongs to.

        Raises:
            InputError: There is no such step, or there are no gains.
        """
        problem = self._problem
        if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k < problem.steps:
            raise InputError("there is no such step", got=k, expected=f"from 0 to {problem.steps - 1}")
        at = k // problem.hold
        offset = problem.difference(self.states[at * problem.hold], state).double()
        u = self.knots[at] + (self.gains[at] @ offset.unsqueeze(-1)).squeeze(-1).to(self.knots.dtype)
        return torch.minimum(torch.maximum(u, problem.low[at]), problem.high[at])

    def shifted(self, knots: int = 1) -> Tensor:
        """The initial guess for the plan that starts some knots later: the last knot is repeated."""
        last = self.knots[-1:].expand(min(knots, len(self.knots)), -1)
        return torch.cat([self.knots[knots:], last])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save controls, states, gains and history; `kinema.load` returns them as a dictionary."""
        save(
            path,
            {
                "knots": self.knots,
                "u": self.u,
                "states": self.states,
                "gains": self.gains if isinstance(self._problem.cost, Cost) else None,
                "cost": self.cost,
                "history": list(self.history),
                "rollouts": self.rollouts,
                "converged": self.converged,
                "reason": self.reason,
                "method": self.method,
                "seconds": self.seconds,
            },
        )

    def __str__(self) -> str:
        rows = [*range(min(6, len(self.history))), *_later(len(self.history))]
        table = "\n".join(f"{i:9d}   {self.history[i]:12.6g}" for i in rows)
        problem = self._problem
        at_bounds = (self.knots <= problem.low) | (self.knots >= problem.high)
        share = f", {float(at_bounds.double().mean()):.0%} of the controls at a bound" if bool(at_bounds.any()) else ""
        size = f"{problem.steps} steps of {problem.dt:g} s, {self.knots.shape[0]} x {self.knots.shape[1]} controls"
        end = f"{self.rollouts} motions simulated in {self.seconds:.2f} s{share}"
        sign = "converged" if self.converged else "stopped"
        return f"Plan by {self.method}: {size}\niteration           cost\n{table}\n{sign}: {self.reason}\n{end}"

    def __repr__(self) -> str:
        return f"Plan({self.method}, cost {self.cost:.6g}, {len(self.history) - 1} iterations)"


def plan(
    model: Model,
    cost: CostLike,
    *,
    steps: int,
    dt: float,
    state: State | None = None,
    u0: Any = None,
    method: str = "ilqr",
    bounds: Any = None,
    hold: int = 1,
    iterations: int = 100,
    substeps: int = 1,
    params: Mapping[str, Any] | None = None,
    integrator: str = "euler",
    tolerance: float = 1e-6,
    goal: float = -math.inf,
    rate: float | None = None,
    population: int | None = None,
    seed: int = 0,
    progress: Show = True,
    options: RunOptions = DEFAULT,
) -> Plan:
    """Trajectory optimisation: the controls that minimise a cost from one initial state.

    The controls are constant over knots of `hold` steps and stay within their bounds.

    Args:
        model: The model.
        cost: A `Cost`. Methods other than "ilqr" also take any function of the trajectory and the controls in each
            step, `cost(path, u)`, that returns a cost for each world, shape (*worlds,).
        steps: Number of steps.
        dt: Time step [s].
        state: Initial state of one world; by default `model.initial_state()`.
        u0: Initial controls, one row per knot, shape (knots, controls), or one row for all; zero by default. They are
            those of the actuators or, without actuators, generalised forces. A `Control` names them, and holds all
            other inputs, which stay as they are: if it has both u and tau, or neither, u is planned; with tau alone,
            tau.
        method: "ilqr" is control-limited iLQR, DDP with the Gauss-Newton approximation of the dynamics: Jacobians of
            all steps, a backward sweep that solves a small problem with bounds for each knot, and a batch of worlds for
            several dampings and step sizes. "adam" and "lbfgs" follow the gradient of the whole rollout within the
            bounds. "cma" is the evolution strategy CMA-ES of the package cma, without gradients.
        bounds: A pair (low, high) of numbers or tensors, shape (controls,) or (knots, controls); by default the control
            ranges of the actuators. Equal bounds fix a control.
        hold: Steps for which the controls of a knot are constant.
        iterations: At most so many.
        substeps: As in `simulate`.
        params: As in `simulate`; gradients are not recorded.
        integrator: As in `simulate`.
        tolerance: Relative decrease of the cost in one iteration below which it has converged.
        goal: Cost at which to stop.
        rate: Relative to half the range of each control (1 if it has none): step size of "adam" (0.05 by default),
            standard deviation of "cma" (0.3).
        population: Plans per generation of "cma".
        seed: Of the random numbers of "cma".
        progress: Whether to show the progress, or a function of (iteration, cost).
        options: How to simulate, as in `simulate`.

    Returns:
        A `Plan`. Worlds that fail, or whose cost is not finite, count as infinitely costly and are never chosen.

    Gradients:
        None: the plan holds plain numbers.

    Raises:
        InputError: An argument is not usable.
        SimulationError: The initial motion is not finite, or Jacobians or gradients on the way are not.

    References:
        [Tassa et al. 2012; Tassa et al. 2014]
    """
    if method not in METHODS:
        raise InputError("unknown method", got=repr(method), expected=", ".join(map(repr, METHODS)))
    words = {"params": _detached(params), "integrator": integrator, "options": _checked(options)}
    problem, knots = make(
        model,
        cost,
        steps=steps,
        dt=dt,
        state=state,
        u0=u0,
        bounds=bounds,
        hold=hold,
        substeps=substeps,
        words=words,
    )
    for name, number in (("tolerance", tolerance), ("rate", rate)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0):
            raise InputError(f"{name} is not usable", got=repr(number), expected="a number, not negative")
    iterations = positive("iterations", iterations)
    begin = time.monotonic()
    solver = _solver(problem, knots, method, tolerance, rate, population, seed)
    found, history = _iterate(solver, iterations, goal, f"plan ({method})", progress)
    path = problem.simulate(found.knots, options)
    return Plan(
        found.knots,
        problem.held(found.knots),
        path,
        found.cost,
        tuple(history),
        problem.rollouts,
        found.converged,
        found.reason or f"after {len(history) - 1} iterations",
        method,
        time.monotonic() - begin,
        problem,
    )


def _solver(
    problem: Problem,
    knots: Tensor,
    method: str,
    tolerance: float,
    rate: float | None,
    population: int | None,
    seed: int,
) -> Iterator[Found]:
    """The iterations of a method."""
    if method == "ilqr":
        check_tangents(problem)
        return ilqr(problem, knots, tolerance)
    if method == "lbfgs":
        return lbfgs(problem, knots, tolerance)
    size = RATES[method] if rate is None else float(rate)
    if method == "adam":
        return adam(problem, knots, tolerance, size)
    return cma(problem, knots, size, population, seed)


def _iterate(
    solver: Iterator[Found], iterations: int, goal: float, what: str, progress: Show
) -> tuple[Found, list[float]]:
    """Iterate to the end, the goal or the last iteration; the best plan, and its cost after each iteration."""
    meter = Meter(what, iterations, progress)
    history: list[float] = []
    try:
        for found in solver:
            history.append(found.cost)
            meter.update(len(history) - 1, found.cost)
            if found.reason is not None:
                break
            if found.cost <= goal:
                found = found._replace(reason="the goal is reached", converged=True)
                break
            if len(history) > iterations:
                break
    finally:
        meter.close()
    return found, history


def _later(count: int) -> list[int]:
    """Some rows of a long table, the last one among them."""
    if count <= 6:
        return []
    every = max(1, (count - 6) // 8)
    return sorted({*range(6 + every - 1, count, every), count - 1})


def _detached(params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if params is None else {n: p.detach() if isinstance(p, Tensor) else p for n, p in params.items()}


def _checked(options: object) -> RunOptions:
    if not isinstance(options, RunOptions):
        fix = "kinema.RunOptions(threads=1), and so on"
        raise InputError("options are of the wrong type", got=type(options).__name__, expected="RunOptions", fix=fix)
    return options
