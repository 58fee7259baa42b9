"""`plan`: controls that minimise a cost, by iLQR, gradients or evolution; `Plan`: what was found."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.lang.autograd.options import DEFAULT, RunOptions
from kinema.lang.autograd.rollout import positive
from kinema.model.model import Model
from kinema.model.state import State
from kinema.planning.cost import Cost
from kinema.planning.ilqr import feedback
from kinema.planning.methods import CMA, ILQR, LBFGS, Adam, Method, method_of
from kinema.planning.problem import CostLike, Problem, check_tangents, make
from kinema.planning.report import Found, Meter, Show
from kinema.simulation.trajectory import Trajectory
from kinema.storage.objects import save


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


@dataclass(frozen=True)
class Options:
    """Options of `kinema.plan` that few need.

    Attributes:
        hold: Steps for which the controls of a knot are constant.
        params: Parameters of the model, as in `simulate`; gradients are not recorded.
        substeps: As in `simulate`.
        integrator: As in `simulate`.
        goal: Cost at which to stop.
        progress: Whether to show the progress, or a function of (iteration, cost).
        run: Threads and memory, as in `simulate`.
    """

    hold: int = 1
    params: Mapping[str, Any] | None = None
    substeps: int = 1
    integrator: str = "euler"
    goal: float = -math.inf
    progress: Show = True
    run: RunOptions = DEFAULT


def make_plan(
    model: Model,
    cost: CostLike,
    *,
    steps: int,
    dt: float,
    state: State | None = None,
    u0: Any = None,
    bounds: Any = None,
    method: str | Method = "ilqr",
    iterations: int = 100,
    options: Options = Options(),  # noqa: B008
) -> Plan:
    """Trajectory optimisation: the controls that minimise a cost from one initial state.

    The controls are constant over knots of `options.hold` steps and stay within their bounds.

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
        bounds: A pair (low, high) of numbers or tensors, shape (controls,) or (knots, controls); by default the control
            ranges of the actuators. Equal bounds fix a control.
        method: "ilqr" (Jacobians of all steps: converges in few iterations), "lbfgs" or "adam" (gradients of whole
            rollouts: any cost, many particles), "cma" (CMA-ES, without gradients); or one of these with options,
            `kn.plan.Adam(rate=0.1)`.
        iterations: At most so many.
        options: Knots, parameters, substeps, goal, progress.

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
    begin = time.monotonic()
    chosen, options = method_of(method), _checked(options)
    iterations = positive("iterations", iterations)
    words = {"params": _detached(options.params), "integrator": options.integrator, "options": options.run}
    problem, knots = make(
        model,
        cost,
        steps=steps,
        dt=dt,
        state=state,
        u0=u0,
        bounds=bounds,
        hold=options.hold,
        substeps=options.substeps,
        words=words,
    )
    what = f"plan ({chosen.word})"
    found, history = _iterate(chosen.solve(problem, knots), iterations, options.goal, what, options.progress)
    path = problem.simulate(found.knots, options.run)
    return Plan(
        found.knots,
        problem.held(found.knots),
        path,
        found.cost,
        tuple(history),
        problem.rollouts,
        found.converged,
        found.reason or f"after {len(history) - 1} iterations",
        chosen.word,
        time.monotonic() - begin,
        problem,
    )


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


def _checked(options: object) -> Options:
    if not isinstance(options, Options):
        fix = "kinema.plan.Options(hold=10), and so on"
        raise InputError("options are of the wrong type", got=type(options).__name__, expected="Options", fix=fix)
    if not isinstance(options.run, RunOptions):
        got = type(options.run).__name__
        raise InputError("options.run is of the wrong type", got=got, expected="kinema.RunOptions(threads=1)")
    return options


class Planning:
    """`kinema.plan`: a function, with the names of its arguments' types as attributes."""

    ILQR: ClassVar = ILQR
    LBFGS: ClassVar = LBFGS
    Adam: ClassVar = Adam
    CMA: ClassVar = CMA
    Options: ClassVar = Options

    __call__ = staticmethod(make_plan)


plan = Planning()
