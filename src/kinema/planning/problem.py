"""What a plan is made of: checked inputs, batches of rollouts with their costs, and Jacobians of knots."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError, SimulationError, UnsolvedWarning
from kinema.lang.autograd.options import RunOptions
from kinema.lang.autograd.rollout import positive
from kinema.model.actuators import UNBOUNDED
from kinema.model.model import Model, expect_model
from kinema.model.state import AXES, State
from kinema.planning.cost import Cost, tangents, value
from kinema.simulation.control import AXES as CONTROLS
from kinema.simulation.control import Control, as_tensor
from kinema.simulation.linearise import COLUMNS, linearise
from kinema.simulation.prepare import check_substeps, start_tensors, time_of
from kinema.simulation.simulate import simulate
from kinema.simulation.tangent_space import displacement
from kinema.simulation.trajectory import Trajectory

CostLike = Cost | Callable[[Trajectory, Tensor], Tensor]


class Ran(NamedTuple):
    """Motions of a batch of worlds.

    Attributes:
        states: At all times, batch (worlds, steps + 1); with substeps, at their ends too.
        knots: Controls of each knot, shape (worlds, knots, m).
        costs: Shape (worlds,); infinite where the motion or its cost is not finite.
    """

    states: State
    knots: Tensor
    costs: Tensor


@dataclass
class Problem:
    """A planning problem.

    Attributes:
        model: The model.
        cost: A `Cost`, or a function of trajectory and controls.
        start: Initial state of one world.
        name: The input that is planned: "u" or "tau".
        given: All other inputs, with an axis of steps.
        steps: Number of steps.
        dt: Time step [s].
        hold: Steps for which a knot's controls are held.
        substeps: Substeps per step.
        low: Lower bounds, shape (knots, m).
        high: Upper bounds.
        words: Further arguments of `simulate`.
        rollouts: Number of motions simulated so far.
    """

    model: Model
    cost: CostLike
    start: State
    name: str
    given: Control
    steps: int
    dt: float
    hold: int
    substeps: int
    low: Tensor
    high: Tensor
    words: dict[str, Any]
    rollouts: int = field(default=0)

    @property
    def knots(self) -> int:
        """Number of knots."""
        return self.steps // self.hold

    @property
    def m(self) -> int:
        """Number of controls."""
        return self.low.shape[-1]

    @property
    def scale(self) -> Tensor:
        """A natural size of each control, shape (m,): half its range, or 1 without bounds."""
        half = torch.where(self.high > self.low, (self.high - self.low) / 2, torch.full_like(self.low, math.nan))
        half = half.nanmean(0)
        return torch.where(half.isfinite(), half, torch.ones_like(half))

    def clamp(self, knots: Tensor) -> Tensor:
        """Controls within their bounds."""
        return torch.minimum(torch.maximum(knots, self.low), self.high)

    def held(self, knots: Tensor) -> Tensor:
        """Controls in every step, shape (*worlds, steps, m)."""
        return knots.repeat_interleave(self.hold, -2) if self.hold > 1 else knots

    def control(self, u: Tensor, first: int = 0) -> Control:
        """All inputs over some steps, beginning with step `first`."""
        return replace(_between(self.given, first, first + u.shape[-2]), **{self.name: u})  # type: ignore[arg-type]

    def simulate(self, knots: Tensor, options: RunOptions) -> Trajectory:
        """Simulate plans as a user would, with whole steps only."""
        words = self.words | {"options": options, "substeps": self.substeps}
        self.rollouts += math.prod(knots.shape[:-2])
        return simulate(self.model, self.start, self.control(self.held(knots)), steps=self.steps, dt=self.dt, **words)

    def losses(self, knots: Tensor) -> tuple[Tensor, Trajectory]:
        """Costs of plans with their graph, shape (*worlds,); infinite, with zero gradients, for failed worlds."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnsolvedWarning)  # of candidates: `plan` simulates the best one once more
            path = self.simulate(knots, self.options("status"))
        u = self.held(knots)
        worlds = knots.shape[:-2]
        alive = (path.status < 0).expand(worlds)
        if isinstance(self.cost, Cost):
            assert path.states is not None
            found = self.cost.of(path.states, u)
        else:
            found = value("trajectory's", self.cost(path, u), worlds)
        good = alive & found.detach().isfinite()
        return torch.where(good, found, torch.full_like(found, math.inf)), path

    def costs(self, knots: Tensor) -> Tensor:
        """Costs of plans, shape (*worlds,), without a graph."""
        with torch.no_grad():
            return self.losses(knots)[0]

    def options(self, on_failure: str) -> RunOptions:
        """Options of runs."""
        return replace(self.words["options"], on_failure=on_failure, progress=False, checkpoint=1)

    # -- knot by knot, for methods with Jacobians of steps -------------------------------------------------------------

    def follow(self, nominal: Ran, change: Tensor, gains: Tensor) -> Ran:
        """Simulate plans with feedback: the controls of each knot are u + change + gains (state - nominal state).

        Args:
            nominal: One world.
            change: Shape (worlds, knots, m).
            gains: Shape (worlds, knots, m, n).
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnsolvedWarning)  # of candidates: `plan` simulates the best one once more
            return self._follow(nominal, change, gains)

    def _follow(self, nominal: Ran, change: Tensor, gains: Tensor) -> Ran:
        worlds, inner = len(change), self.hold * self.substeps
        state = self.start.expand(worlds)
        alive = torch.ones(worlds, dtype=torch.bool)
        parts: list[State] = [state.map(lambda t: t.unsqueeze(1))]
        knots = []
        for k in range(self.knots):
            before = nominal.states[0, k * inner]
            offset = self.difference(before, state)
            u = nominal.knots[0, k] + change[:, k] + (gains[:, k] @ offset.unsqueeze(-1).to(gains.dtype)).squeeze(-1)
            u = torch.minimum(torch.maximum(u, self.low[k]), self.high[k]).to(self.model.dtype)
            path = self._fine(state, u.unsqueeze(1).expand(-1, self.hold, -1), k * self.hold)
            assert path.states is not None
            good = path.status < 0
            if bool(good.all()):
                state = path.end
                parts.append(path.states.map(lambda t: t[:, 1:]))
            else:  # failed worlds go on as the nominal one
                alive &= good
                spare = nominal.states[0, k * inner + 1 : (k + 1) * inner + 1].expand(worlds, inner)
                kept = State.where(good.unsqueeze(1).expand(-1, inner), path.states.map(lambda t: t[:, 1:]), spare)
                parts.append(kept)
                state = kept[:, -1]
            knots.append(u)
        self.rollouts += worlds
        states = State(**{n: torch.cat([one.tensors[n] for one in parts], 1) for n in parts[0].tensors})
        return self._ran(states, torch.stack(knots, 1), alive)

    def run(self, knots: Tensor) -> Ran:
        """Simulate plans, shape (worlds, knots, m), without feedback."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnsolvedWarning)
            path = self._fine(self.start.expand(len(knots)), self.held(knots), 0)
        assert path.states is not None
        self.rollouts += len(knots)
        return self._ran(path.states, knots, path.status < 0)

    def _fine(self, state: State, u: Tensor, first: int) -> Trajectory:
        """Simulate substeps as steps."""
        fine = self.substeps
        control = self.control(u, first)
        if fine > 1:
            control = _repeated(control, fine)
        words = self.words | {"options": self.options("status")}
        with torch.no_grad():
            return simulate(self.model, state, control, steps=u.shape[1] * fine, dt=self.dt / fine, **words)

    def _ran(self, states: State, knots: Tensor, alive: Tensor) -> Ran:
        assert isinstance(self.cost, Cost)
        with torch.no_grad():
            costs = self.cost.of(states[:, :: self.substeps], self.held(knots))
        return Ran(states, knots, torch.where(alive & costs.isfinite(), costs, torch.full_like(costs, math.inf)))

    def difference(self, before: State, after: State) -> Tensor:
        """Tangents from one state to others, shape (*batch, n)."""
        parts = []
        for name, old in before.tensors.items():
            new = after.tensors[name]
            if name == "time":
                continue
            if name == "q":
                parts.append(displacement(self.model, old, new))
            else:
                parts.append((new - old).flatten(-2) if name in ("x", "xd") else new - old)
        return torch.cat(parts, -1)

    def jacobians(self, ran: Ran) -> tuple[Tensor, Tensor]:
        """Of every fine step: A, shape (fine steps, n, n), and B of the planned input, (fine steps, n, m).

        Raises:
            SimulationError: A Jacobian is not finite.
        """
        fine, states = self.substeps, ran.states[0, :-1]
        control = self.control(self.held(ran.knots[0]))
        if fine > 1:
            control = _repeated(control, fine)
        words = self.words | {"options": self.options("status")}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnsolvedWarning)
            A, B = linearise(self.model, states, control, dt=self.dt / fine, **words)
        sizes = {"u": len(self.model.actuators), "tau": self.model.nv, "motion": self.model.prescribed_velocities}
        acting = [n for n in COLUMNS if getattr(control, n) is not None]
        B = dict(zip(acting, B.split([sizes[n] for n in acting], -1), strict=True))[self.name]
        finite = A.flatten(1).isfinite().all(1) & B.flatten(1).isfinite().all(1)
        if not bool(finite.all()):
            step = int((~finite).nonzero()[0]) // fine
            raise SimulationError(f"the Jacobian of step {step} is not finite", fix="a shorter dt, or method='cma'")
        return A, B


def make(
    model: Model,
    cost: CostLike,
    *,
    steps: int,
    dt: float,
    state: State | None,
    u0: Any,
    bounds: Any,
    hold: int,
    substeps: int,
    words: dict[str, Any],
) -> tuple[Problem, Tensor]:
    """The problem, and the initial controls of its knots, shape (knots, m).

    Raises:
        InputError: An argument is not usable.
    """
    expect_model(model)
    if not isinstance(cost, Cost) and not callable(cost):
        fix = "kinema.Cost(running=..., final=...), or a function of (path, u)"
        raise InputError("the cost is not usable", got=type(cost).__name__, expected="a Cost", fix=fix)
    steps, hold = positive("steps", steps), positive("hold", hold)
    if steps % hold:
        near = max(hold, steps - steps % hold)
        what = "steps is not a multiple of hold, the steps for which controls are constant"
        raise InputError(what, got=f"steps={steps}, hold={hold}", fix=f"steps={near}, or hold=1")
    check_substeps(substeps)
    given = Control.of(u0)
    if not isinstance(u0, Control) and not len(model.actuators):
        given = Control(tau=u0)
    name = _planned(model, given)
    shape = (steps // hold, _width(model, name))
    knots = _knots(model, name, getattr(given, name), shape, hold)
    others = _over_steps(model, replace(given, **{name: None}), steps)  # type: ignore[arg-type]
    low, high = _bounds(model, name, bounds, shape)
    start = _start(model, state)
    problem = Problem(model, cost, start, name, others, steps, time_of(dt), hold, substeps, low, high, words)
    _check_inside(problem, knots, bounds is None)
    return problem, knots


def _start(model: Model, state: State | None) -> State:
    start = State(**start_tensors(model, state)).detach()
    if start.batch:
        raise InputError("a plan starts from one state", got=f"a batch of {start.batch}", fix="one plan for each world")
    if not all(bool(t.isfinite().all()) for t in start.tensors.values()):
        raise InputError("the initial state is not finite")
    return start


def _planned(model: Model, given: Control) -> str:
    """The input that is planned."""
    if given.motion is not None:
        raise InputError("prescribed motion cannot be planned", got="u0=Control(motion=...)", fix="forces, or servos")
    name = "tau" if given.u is None and (given.tau is not None or not len(model.actuators)) else "u"
    if name == "tau" and not model.nv:
        raise InputError("the model has nothing to control", got="no joints", fix="a robot with a joint, or kinema.fit")
    return name


def _width(model: Model, name: str) -> int:
    return len(model.actuators) if name == "u" else model.nv


def _knots(model: Model, name: str, given: Any, shape: tuple[int, int], hold: int) -> Tensor:
    """Initial controls of all knots."""
    if given is None:
        return model.zeros(*shape)
    if name == "u" and not len(model.actuators):
        raise InputError("the model has no actuators", got="u0", fix="u0=kinema.Control(tau=...), or add actuators")
    tensor = as_tensor(model, "u0", given, shape[1:]).detach()
    if tensor.shape not in (shape, shape[1:]):
        per_step = hold > 1 and len(tensor) == shape[0] * hold
        fix = f"u0[::{hold}]: one row for each knot of {hold} steps" if per_step else None
        expected = f"{shape}, a row for each knot, or {shape[1:]}"
        raise InputError("u0 has the wrong shape", got=tuple(tensor.shape), expected=expected, fix=fix)
    if not bool(tensor.isfinite().all()):
        raise InputError("u0 is not finite", expected="finite controls")
    return tensor.expand(shape).clone()


def _bounds(model: Model, name: str, given: Any, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds of all knots, shape (knots, m)."""
    if given is None:
        both = np.full((2, shape[1]), np.inf) * [[-1.0], [1.0]]
        if name == "u":
            both = np.stack([model.actuators.lower, model.actuators.upper])
            both = np.where(np.abs(both) >= UNBOUNDED, np.copysign(np.inf, both), both)
        low, high = torch.from_numpy(both).to(model.dtype)
    else:
        if not isinstance(given, tuple | list) or len(given) != 2:
            expected, fix = "a pair, (low, high)", "bounds=(-1.0, 1.0), or a pair of tensors"
            raise InputError("bounds are not usable", got=type(given).__name__, expected=expected, fix=fix)
        low, high = (torch.as_tensor(one, dtype=model.dtype) for one in given)
    for side, one in (("low", low), ("high", high)):
        if one.shape not in ((), shape[1:], shape):
            expected = f"a number, {shape[1:]}, or {shape}, a row for each knot"
            raise InputError(f"the bound {side} has the wrong shape", got=tuple(one.shape), expected=expected)
        if bool(one.isnan().any()):
            raise InputError(f"the bound {side} is not a number", fix="float('inf') where there is none")
    low, high = low.expand(shape), high.expand(shape)
    if bool((low > high).any()):
        knot, i = (low > high).nonzero()[0].tolist()
        got = f"{float(low[knot, i])} and {float(high[knot, i])} of control {i}, knot {knot}"
        raise InputError("a lower bound is above the upper one", got=got, fix="bounds=(low, high)")
    return low.contiguous(), high.contiguous()


def _check_inside(problem: Problem, knots: Tensor, default: bool) -> None:
    outside = (knots < problem.low - 1e-12) | (knots > problem.high + 1e-12)
    if not bool(outside.any()):
        return
    knot, i = outside.nonzero()[0].tolist()
    named = problem.model.actuators.names[i] if problem.name == "u" else f"tau[{i}]"
    where = "its control range" if default else "bounds"
    raise InputError(
        f"u0 is outside {where}, first in knot {knot}, for {named!r}",
        got=float(knots[knot, i]),
        expected=f"from {float(problem.low[knot, i]):g} to {float(problem.high[knot, i]):g}",
        fix="u0.clamp(low, high), or other bounds",
    )


# -- inputs that are not planned ---------------------------------------------------------------------------------------


def _over_steps(model: Model, given: Control, steps: int) -> Control:
    """Inputs with an axis of steps."""
    shapes: dict[str, tuple[int, ...]] = {
        "u": (len(model.actuators),),
        "tau": (model.nv,),
        "forces": (len(model.matter), 3),
        "activation": (model.matter.elements,),
    }

    def whole(name: str, value: Any, shape: tuple[int, ...]) -> Tensor:
        tensor = as_tensor(model, name, value, shape).detach()
        if tensor.shape not in (shape, (steps, *shape)):
            expected = f"{shape} or {(steps, *shape)}"
            raise InputError(f"{name} has the wrong shape", got=tuple(tensor.shape), expected=expected)
        return tensor.expand(steps, *shape)

    found = {n: whole(n, getattr(given, n), s) for n, s in shapes.items() if getattr(given, n) is not None}
    wrenches = {n: whole(f"the wrench on {n!r}", w, (6,)) for n, w in given.wrenches.items()}
    return Control(**found, wrenches=wrenches)


def _between(given: Control, first: int, last: int) -> Control:
    """Some steps of inputs."""
    found = {n: t[first:last] for n in CONTROLS if (t := getattr(given, n)) is not None}
    return Control(**found, wrenches={n: w[first:last] for n, w in given.wrenches.items()})


def _repeated(given: Control, count: int) -> Control:
    """Inputs with each step repeated."""
    found = {
        n: t.repeat_interleave(count, -1 - axes) for n, axes in CONTROLS.items() if (t := getattr(given, n)) is not None
    }
    return Control(**found, wrenches={n: w.repeat_interleave(count, -2) for n, w in given.wrenches.items()})


def check_tangents(problem: Problem) -> int:
    """Number of tangents of a state.

    Raises:
        InputError: The method needs Jacobians of steps, and states of all times, which the model does not have.
    """
    if not isinstance(problem.cost, Cost):
        what = "this method needs running and final costs: it differentiates step by step"
        fix = "kinema.Cost(running=..., final=...), or method='lbfgs'"
        raise InputError(what, got="a function of the trajectory", fix=fix)
    if set(problem.start.tensors) - set(AXES) or "impulses" in problem.start.tensors:
        raise InputError("this method does not support warm starts", fix="Contact(solver='newton'), or method='lbfgs'")
    return tangents(problem.start)
