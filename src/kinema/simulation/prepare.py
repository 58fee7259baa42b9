"""Inputs of a run: the program of the step, initial states, parameters and controls."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError, StabilityWarning
from kinema.lang.programs.program import PARAMETER, Program
from kinema.lang.runtime.memory_layout import keep_in
from kinema.model.model import NUMPY, Model
from kinema.model.state import State
from kinema.simulation.control import Control
from kinema.simulation.failures import caller
from kinema.simulation.jacobian_program import jacobian_program
from kinema.simulation.options import PLAIN, StepOptions
from kinema.simulation.records import RECORDS
from kinema.simulation.rk4 import rk4_program
from kinema.simulation.stability import StepLimit, step_limit
from kinema.simulation.step import step_program

EULER, IMPLICIT, IMPLICITFAST = "euler", "implicit", "implicitfast"
INTEGRATORS: dict[str, Callable[..., Program]] = {
    EULER: step_program,
    IMPLICIT: step_program,
    IMPLICITFAST: step_program,
    "rk4": rk4_program,
}
LEAVE = "leave it out"
LACKS = {
    "q": ("joints", LEAVE),
    "v": ("joints", LEAVE),
    "x": ("particles", LEAVE),
    "xd": ("particles", LEAVE),
    "impulses": ("warm start", f"{LEAVE}, or Contact(solver='pgs', warm_start=True), and a contact, a limit or a loop"),
    "act": ("actuator with an activation", LEAVE),
    "time": ("force that reads the time", f"{LEAVE}, or an argument `time` of a law of Scene.add_force"),
}
"""By tensor of a state: what the model lacks, and the fix."""
CHECKED = ("residual", "unsolved_at", "missed", "missed_pairs", "unsolved_particles")


@dataclass(frozen=True)
class Step:
    """The step of a model, and everything that does not change between calls.

    Attributes:
        program: The step.
        parameters: Names of its parameters.
        checked: Outputs that are checked after a run.
        impulses: States of a warm start, and their lengths.
        plain: By time step, the default parameters.
    """

    program: Program
    parameters: tuple[str, ...]
    checked: tuple[str, ...]
    impulses: dict[str, int]
    plain: dict[float, dict[str, Tensor]] = field(default_factory=dict)

    def states_of(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """States of the program from the tensors of a state."""
        impulses = tensors.pop("impulses", None)
        if impulses is None:
            return tensors
        return tensors | dict(zip(self.impulses, impulses.split(list(self.impulses.values()), -1), strict=True))


Key = tuple[str, StepOptions, tuple[str, ...] | None]
_STEPS: WeakKeyDictionary[Model, dict[Key, Step | None]] = WeakKeyDictionary()


class _Limited(NamedTuple):
    """The longest stable step with given parameters: their paths, values and tensor versions."""

    params: list[tuple[str, ref[Tensor], int]]
    limit: StepLimit | None


_LIMITS: WeakKeyDictionary[Model, _Limited] = WeakKeyDictionary()


def _needless(model: Model) -> tuple[str, ...]:
    """Checked outputs that cannot fail: the buffers hold all contacts if they hold all candidates."""
    return ("missed",) if len(model.candidates) <= model.contact.max_contacts else ()


def check_names(model: Model, integrator: str, options: StepOptions) -> None:
    """Raise InputError if the integrator, a record or a body is unknown."""
    if integrator not in INTEGRATORS:
        raise InputError("unknown integrator", got=repr(integrator), expected=" or ".join(map(repr, INTEGRATORS)))
    if integrator == IMPLICITFAST and not model.contact.convex:
        fix = "integrator='euler', which is implicit in springs, dampers and servos; or Contact(law='convex')"
        raise InputError("only the contact law 'convex' has this integrator", got=repr(integrator), fix=fix)
    for name in options.record:
        if name not in RECORDS:
            raise InputError(f"record: there is no {name!r}", expected=", ".join(RECORDS))
    for name in options.loaded:
        if name not in model.bodies or model.tree.body_link[model.bodies.index(name)] == 0:
            moving = [b for b, link in zip(model.bodies, model.tree.body_link, strict=True) if link]
            raise InputError(f"there is no body {name!r} that a wrench could move", expected=", ".join(moving))


def step_of(model: Model, integrator: str, options: StepOptions) -> Step:
    """The step of a model, cached for the next call."""
    known = _STEPS.setdefault(model, {})
    key = integrator, options, None
    found = known.get(key)
    if found is None:
        check_names(model, integrator, options)
        found = known[key] = _made(model, INTEGRATORS[integrator](model, options))
    return found


def linear_step_of(model: Model, integrator: str, options: StepOptions, acting: tuple[str, ...]) -> Step | None:
    """The step with its Jacobians with respect to state and controls; None if there is no such program."""
    known = _STEPS.setdefault(model, {})
    key = integrator, options, acting
    if key not in known:
        check_names(model, integrator, options)
        program = jacobian_program(model, options, acting) if integrator == EULER else None
        known[key] = None if program is None else _made(model, program)
    return known[key]


def _made(model: Model, program: Program) -> Step:
    return Step(
        program,
        tuple(name for name, buffer in program.buffers.items() if buffer.kind == PARAMETER),
        tuple(name for name in CHECKED if name in program.buffers and name not in _needless(model)),
        model.kept_impulses,
    )


def features(
    control: Control, params: Mapping[str, Tensor], record: tuple[str, ...], integrator: str, substeps: int
) -> StepOptions:
    """Features that the step program needs."""
    acting = control.wrenches or control.activation is not None or control.forces is not None
    if integrator == EULER and substeps == 1 and not (acting or params or record):
        return PLAIN
    return StepOptions(
        loaded=tuple(control.wrenches),
        record=record,
        activated=control.activation is not None,
        pushed=control.forces is not None,
        implicit=integrator == IMPLICIT,
        bouncing=_is_bouncy(params),
        substeps=substeps,
        servos=integrator == IMPLICITFAST,
    )


def parameters_of(
    model: Model, step: Step, given: Mapping[str, Tensor], integrator: str, dt: float, substeps: int
) -> dict[str, Tensor]:
    """Parameters of the step program; warns if the step is too long."""
    short = dt / substeps
    if not given and not len(model.matter):
        return step.plain.get(short) or keep_in(step.plain, short, lambda: _arrays(model, step, model.resolve(), short))
    numbers = model.resolve(given)
    arrays = _arrays(model, step, numbers, short)
    if integrator != IMPLICIT or not len(model.matter):
        _warn_of_long_steps(model, given, numbers, dt, substeps)
        return arrays
    if model.dtype != torch.float64:
        what = "implicit steps need double precision: in single precision forces of stiff elements are mostly rounding"
        raise InputError(what, got=model.dtype, fix="kinema.compile(scene, dtype=torch.float64)")
    return arrays


def _arrays(model: Model, step: Step, numbers: Mapping[str, Tensor], short: float) -> dict[str, Tensor]:
    """Values of the program's parameters, and its time step."""
    with torch.inference_mode(False):  # it may outlive the mode
        given = {**numbers, "dt": torch.from_numpy(np.array(short, NUMPY[model.dtype]))}
    return {n: given[n] for n in step.parameters if n in given}


def _is_bouncy(params: Mapping[str, Tensor]) -> bool:
    """Whether coefficients of restitution are given that are nonzero or require a gradient."""
    return any(t.requires_grad or bool(t.any()) for path, t in params.items() if path.endswith("restitution"))


def time_of(dt: object) -> float:
    """A time step as a float."""
    if isinstance(dt, Tensor) and dt.requires_grad:
        raise InputError("dt has no gradient", got="a tensor that requires one", fix="dt=dt.item()")
    if isinstance(dt, Tensor) and dt.numel() == 1:
        dt = dt.item()
    if not isinstance(dt, int | float | np.floating) or not 0 < dt < math.inf:
        raise InputError("dt is not usable", got=repr(dt), expected="a positive time in seconds")
    return float(dt)


def times_of(model: Model, start: Tensor | None, dt: float, steps: int) -> Tensor | None:
    """Times of all states of a run [s], shape (*batch, steps + 1); None if no force reads the time."""
    if start is None:
        return None
    return start.unsqueeze(-1) + torch.from_numpy((dt * np.arange(steps + 1)).astype(NUMPY[model.dtype]))


def check_substeps(substeps: object) -> None:
    """Raise InputError unless this is a valid number of substeps."""
    if isinstance(substeps, bool) or not isinstance(substeps, int) or substeps < 1:
        raise InputError("substeps is not usable", got=substeps, expected="a positive integer")


def start_tensors(model: Model, state: State | None) -> dict[str, Tensor]:
    """All tensors of the initial state; omitted ones are those of the model's initial state.

    Raises:
        InputError: A tensor has the wrong type or shape, or the model has no such part.
    """
    if state is not None and not isinstance(state, State):
        fix = "kinema.State(q=..., v=...)" if isinstance(state, Tensor) else "model.initial_state()"
        raise InputError("the state has the wrong type", got=type(state).__name__, expected="a State", fix=fix)
    shapes = _state_shapes(model)
    states = {}
    for name, tensor in ({} if state is None else state.tensors).items():
        if name in shapes:
            model.check_tensor(name, tensor, *shapes[name])
            states[name] = tensor
        elif not isinstance(tensor, Tensor) or 0 not in tensor.shape:
            lacks, fix = LACKS[name]
            raise InputError(f"the model has no {lacks}", got=name, fix=fix)
    if not shapes:
        raise InputError("the model has no moving part", fix="add a robot with a joint, or soft matter")
    return states if len(states) == len(shapes) else model.initial_state().tensors | states


_SHAPES: WeakKeyDictionary[Model, dict[str, tuple[int, ...]]] = WeakKeyDictionary()


def _state_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """Shapes of the parts of a model's state."""
    found = _SHAPES.get(model)
    if found is None:
        particles, impulses = (len(model.matter), 3), sum(model.kept_impulses.values())
        shapes: dict[str, tuple[int, ...]] = {"q": (model.nq,), "v": (model.nv,), "x": particles, "xd": particles}
        shapes |= {"impulses": (impulses,), "act": (len(model.activations),)} | (
            {"time": ()} if model.reads_time else {}
        )
        found = _SHAPES[model] = {n: shape for n, shape in shapes.items() if 0 not in shape}
    return found


def _warn_of_long_steps(
    model: Model, params: Mapping[str, Tensor], numbers: dict[str, Tensor], dt: float, substeps: int
) -> None:
    """Warn of steps that are too long for soft matter."""
    if not len(model.matter):
        return
    limit, short = _limit(model, params, numbers), dt / substeps
    if limit is not None and short > limit.dt:
        warnings.warn(
            f"a step of {short:.3g} s is too long for {limit.element}, which is stable up to {limit.dt:.3g} s at rest: "
            f"substeps={math.ceil(dt / limit.dt)} would be stable",
            StabilityWarning,
            stacklevel=caller(),
        )


def _limit(model: Model, params: Mapping[str, Tensor], numbers: dict[str, Tensor]) -> StepLimit | None:
    """The longest stable step; computed again only if parameters are replaced or were edited."""
    known = _LIMITS.get(model)
    if known is not None and len(known.params) == len(params):
        seen = zip(known.params, params.items(), strict=True)
        if all(p == path and r() is t and version == t._version for (p, r, version), (path, t) in seen):
            return known.limit
    limit = step_limit(model, numbers)
    if not any(t.is_inference() for t in params.values()):  # these have no versions
        _LIMITS[model] = _Limited([(path, ref(t), t._version) for path, t in params.items()], limit)
    return limit
