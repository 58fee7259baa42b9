"""`simulate` and `step`: a model over time, differentiable, for one world or a batch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError, StabilityWarning
from kinema.lang.autograd.rollout import Rollout, positive, rollout
from kinema.lang.programs.program import PARAMETER, Program
from kinema.model.derived import solver_scale
from kinema.model.model import NUMPY, Model, expect_model
from kinema.model.state import AXES, State
from kinema.simulation.control import Control, as_tensor, control_tensors
from kinema.simulation.failures import (
    bounded,
    check_finite,
    check_pairs,
    check_particles,
    check_room,
    check_solved,
    trusted,
)
from kinema.simulation.options import RunOptions, StepOptions
from kinema.simulation.records import RECORDS
from kinema.simulation.rk4 import rk4_program
from kinema.simulation.stability import StepLimit, step_limit
from kinema.simulation.step import step_program
from kinema.simulation.trajectory import Given, Recorded, Trajectory

IMPLICIT = "implicit"
INTEGRATORS: dict[str, Callable[..., Program]] = {
    "euler": step_program,
    IMPLICIT: step_program,
    "rk4": rk4_program,
}

DEFAULT = RunOptions()
COORDINATES = ("q", "v", "x", "xd")
CHECKED = ("residual", "unsolved_at", "missed", "missed_pairs", "unsolved_particles")


@dataclass(frozen=True)
class _Step:
    """The step of a model, and what does not change between calls of it.

    Attributes:
        program: The step.
        parameters: Names of its parameters.
        checked: Outputs that are looked at after a run.
        impulses: States of a warm start, and how many numbers they have.
    """

    program: Program
    parameters: tuple[str, ...]
    checked: tuple[str, ...]
    impulses: dict[str, int]


_STEPS: WeakKeyDictionary[Model, dict[tuple[str, StepOptions], _Step]] = WeakKeyDictionary()


class _Limited(NamedTuple):
    """The longest stable step with these parameters: their paths, what they were and which version of it."""

    params: list[tuple[str, ref[Tensor], int]]
    limit: StepLimit | None


_LIMITS: WeakKeyDictionary[Model, _Limited] = WeakKeyDictionary()


def simulate(
    model: Model,
    state: State | None = None,
    u: Any = None,
    *,
    steps: int,
    dt: float,
    substeps: int = 1,
    params: Mapping[str, Any] | None = None,
    record: str | Sequence[str] = (),
    integrator: str = "euler",
    options: RunOptions = DEFAULT,
) -> Trajectory:
    """Simulate a model for a number of steps.

    Args:
        model: The model.
        state: At the start, for one world or a batch; `model.initial_state()` by default, also for what it lacks.
        u: Controls of the actuators in each step, shape (*batch, steps, actuators), in the order of
            `model.actuators.names`, without steps if they are constant; or a `Control`: forces on joints, bodies and
            particles, motion of prescribed joints. Zero by default.
        steps: Number of steps.
        dt: Time step [s].
        substeps: Substeps per step, of dt / substeps each. Inputs are constant within a step, and only whole steps are
            stored. Of what is recorded, impulses and iterations are summed over substeps; accelerations, IMU readings
            and joint loads are means; the rest is that of the first substep.
        params: Numbers in place of the model's own, by path, see `Model.parameters`; with batch dimensions, one per
            world.
        record: What to keep of each step. Of every contact candidate, in the order of `model.candidates.names`:
            "impulse" along its normal and two directions of sliding [N s], shape (*batch, steps, candidates, 3), "gap"
            [m], "point" [m] and "normal" at the start of the step. "limit_impulse" of every limited joint [N m s, N s].
            "iterations" of the contact solver, shape (*batch, steps, 1).
            Of all bodies, at the start of the step: "position" [m] and "rotation", shapes (*batch, steps, bodies, 3
            and 3, 3), and "velocity", angular and linear, of their origins in world axes [rad/s, m/s], shape
            (*batch, steps, bodies, 6); of all sites, in the order of `model.sites.names`, likewise "site_position",
            "site_rotation" and "site_velocity". With the accelerations dv/dt = (v' - v) / dt of the step, impulses of
            contacts, limits and loops included, at the pose and the velocity of its start: "acceleration" of all
            bodies, angular and that of their origins (the rate of "velocity", centripetal part included) in world axes
            [rad/s^2, m/s^2]; "imu" of all sites, angular rate and specific force (acceleration less gravity, so +g
            upwards at rest) in the site's axes [rad/s, m/s^2], shape (*batch, steps, sites, 6); "joint_load" of
            all joints, the moment about the origin of the joint's link (for revolute and ball joints a point of the
            axis) and the force with which the parent moves the link through the joint, motors, springs and limits
            included, in world axes [N m, N], shape (*batch, steps, joints, 6). Fixed joints have none.
        integrator: "euler": semi-implicit Euler, first order, implicit in springs, dampers and servos of joints, with
            hard contact, limits and loops. "implicit": the same, but particles take implicit steps, found by Newton's
            method to 1e-10 of their displacement, or up to 1e-8 where rounding stops it, in float64 only: stable for
            stiff matter at long steps, and damped by them; there may be no such step where a force jumps, as with
            Skin(averaged=False, k_d=...). "rk4": the classical Runge-Kutta method, fourth order but where contacts
            begin and end, for scenes without constraints and soft matter; all forces are explicit: dt must be shorter
            than about 2.7 over the highest frequency [rad/s] of springs, dampers, servos and compliant contacts, and a
            small part of a turn. Controls are constant within a step.
        options: How the run is executed: checkpoints, threads, memory, failures.

    Gradients:
        Exact for the discrete steps and the solution of the contact problem (with solver="pgs", for its iterations),
        from states and all that is recorded to the state, controls and params; at a switch (a point that just touches
        or just slides) those of one side. What bounces does so at its time of impact within the step, so that gradients
        through bounces are the slopes of the motion, to the first order of dt; coefficients of restitution that are
        exactly zero have the gradient zero.
        Where the adjoint of an implicit step cannot be solved, backward() raises; with on_failure="status" the gradient
        is not a number.

    Warns:
        StabilityWarning: dt is too long for something soft; names the element and the step that would hold.
        UnsolvedWarning: The impulses of some step do not solve the contact problem; names the step and the joint.

    Raises:
        InputError: A tensor has the wrong type or shape, a quaternion is zero, a name is unknown, dt is not positive,
            or the integrator cannot do what the scene has.
        SimulationError: A world became non-finite, there was no room for all contacts, an implicit step did not
            converge, or, from backward(), its adjoint, or gradients explode in steps whose contact problem was not
            solved; with on_failure="status" only the second raises.
    """
    expect_model(model)
    dt, steps = _time(dt), positive("steps", steps)
    control, given = Control.of(u), model.as_tensors(params)
    if isinstance(substeps, bool) or not isinstance(substeps, int) or substeps < 1:
        raise InputError("substeps is not usable", got=substeps, expected="a positive integer")
    kept = (record,) if isinstance(record, str) else tuple(record)
    step = _step(model, integrator, _features(control, given, kept, integrator, substeps))
    states = start_tensors(model, state, sum(step.impulses.values()))
    if (impulses := states.pop("impulses", None)) is not None:
        states |= dict(zip(step.impulses, impulses.split(list(step.impulses.values()), -1), strict=True))
    controls = control_tensors(model, control, steps)
    arrays = _parameters(model, step, given, integrator, dt, substeps)
    guarded, why = _guarded(step, options, states, arrays, controls)
    whole = () if options.checkpoint != 1 else tuple(n for n in AXES if n in states)
    run = rollout(
        step.program,
        steps,
        *guarded,
        record=(*whole, *step.checked, *(f"record_{n}" for n in kept)),
        checkpoint=options.checkpoint,
        memory_budget=options.memory_budget,
        threads=options.threads,
        on_failure="status" if options.on_failure == "raise" else options.on_failure,
        progress=options.progress,
    )
    if "q" in states:
        model.check_quaternions(states["q"])  # now that the rollout has accepted the tensor
    _check(model, step, run, options, why)
    impulses = torch.cat([run.final[n] for n in step.impulses], -1) if step.impulses else None
    path = Trajectory(
        State(*map(run.final.get, COORDINATES), impulses),  # type: ignore[arg-type]
        State(*map(run.trajectory.get, COORDINATES)) if whole else None,  # type: ignore[arg-type]
        run.status,
        dt,
        run.outputs["residual"].squeeze(-1) if "residual" in step.checked else None,
        Recorded({n: _shaped(n, run.outputs[f"record_{n}"]) for n in kept}),
        model,
    )
    path.__dict__["_given"] = Given(step.program, *guarded, given)
    return path


def step(
    model: Model,
    state: State,
    u: Any = None,
    *,
    dt: float,
    substeps: int = 1,
    params: Mapping[str, Any] | None = None,
    integrator: str = "euler",
    options: RunOptions = DEFAULT,
) -> State:
    """One step. Many steps in one call of `simulate` are far quicker than many calls of this.

    Args:
        model: The model.
        state: Before the step.
        u: Controls of the actuators, shape (*batch, actuators), or a `Control`, both without an axis of steps.
        dt: Time step [s].
        substeps: As in `simulate`.
        params: As in `simulate`.
        integrator: As in `simulate`.
        options: As in `simulate`.

    Returns:
        The state after the step.

    Gradients:
        As in `simulate`.

    Raises:
        InputError, SimulationError: As `simulate`.
    """
    expect_model(model)
    given = Control.of(u).as_tensors(model).with_axis()
    return simulate(
        model,
        state,
        given,
        steps=1,
        dt=dt,
        substeps=substeps,
        params=params,
        integrator=integrator,
        options=options,
    ).end


def _features(
    control: Control, params: Mapping[str, Tensor], record: tuple[str, ...], integrator: str, substeps: int
) -> StepOptions:
    """What the step program must have."""
    return StepOptions(
        loaded=tuple(control.wrenches),
        record=record,
        activated=control.activation is not None,
        pushed=control.forces is not None,
        implicit=integrator == IMPLICIT,
        bouncing=_is_bouncy(params),
        substeps=substeps,
    )


def _parameters(
    model: Model, step: _Step, given: Mapping[str, Tensor], integrator: str, dt: float, substeps: int
) -> dict[str, Tensor]:
    """Parameters of the step program; warns of steps that are too long."""
    numbers, short = model.resolve(given), dt / substeps
    arrays = {n: numbers[n] for n in step.parameters if n in numbers}
    arrays["dt"] = torch.from_numpy(np.array(short, NUMPY[model.dtype]))
    if integrator != IMPLICIT or not len(model.matter):
        _warn_of_long_steps(model, given, numbers, dt, substeps)
        return arrays
    if model.dtype != torch.float64:
        what = "implicit steps need double precision: in single precision forces of stiff elements are mostly rounding"
        raise InputError(what, got=model.dtype, fix="kinema.compile(scene, dtype=torch.float64)")
    return arrays | {"solver_scale": solver_scale(model.matter, numbers, short)}


Groups = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]


def _guarded(step: _Step, options: RunOptions, *groups: dict[str, Tensor]) -> tuple[Groups, list[str | None]]:
    """Inputs whose gradients raise where they would have no meaning, and room for why that is."""
    why: list[str | None] = [None]
    if options.on_failure == "raise":
        if "unsolved_particles" in step.checked:
            groups = tuple(trusted(group) for group in groups)
        if "residual" in step.checked:
            groups = tuple(bounded(group, why) for group in groups)
    return (groups[0], groups[1], groups[2]), why


def _check(model: Model, step: _Step, run: Rollout, options: RunOptions, why: list[str | None]) -> None:
    """Raise or warn if the run went wrong."""
    if options.on_failure == "raise":
        check_finite(model, run.status, run.trajectory)
    check_room(model, run.outputs.get("missed"))
    check_pairs(model, run.outputs.get("missed_pairs"))
    if options.on_failure == "raise":
        check_particles(run.outputs.get("unsolved_particles"))
    if "residual" in step.checked:
        why[0] = check_solved(model, run.outputs["residual"], run.outputs["unsolved_at"])


def _is_bouncy(params: Mapping[str, Tensor]) -> bool:
    """Whether coefficients of restitution are given that are not zero, or shall have a gradient."""
    return any(t.requires_grad or bool(t.any()) for path, t in params.items() if path.endswith("restitution"))


def _time(dt: object) -> float:
    """A time step as a plain number."""
    if isinstance(dt, Tensor) and dt.requires_grad:
        raise InputError("dt has no gradient", got="a tensor that requires one", fix="dt=dt.item()")
    if isinstance(dt, Tensor) and dt.numel() == 1:
        dt = dt.item()
    if not isinstance(dt, int | float | np.floating) or not 0 < dt < math.inf:
        raise InputError("dt is not usable", got=repr(dt), expected="a positive time in seconds")
    return float(dt)


def start_tensors(model: Model, state: State | None, impulses: int) -> dict[str, Tensor]:
    """All tensors of a state at the start, as placed where they are not given; a warm start has so many impulses.

    Raises:
        InputError: Something is of the wrong type or shape, or the model has no such part.
    """
    if state is not None and not isinstance(state, State):
        fix = "kinema.State(q=..., v=...)" if isinstance(state, Tensor) else "model.initial_state()"
        raise InputError("this is no state", got=type(state).__name__, expected="a State", fix=fix)
    given = {} if state is None else state.tensors
    particles = (len(model.matter), 3)
    shapes = {"q": (model.nq,), "v": (model.nv,), "x": particles, "xd": particles}
    shapes["impulses"] = (impulses,)
    states = {}
    for name, tensor in given.items():
        if 0 not in shapes[name]:
            states[name] = as_tensor(model, name, tensor, shapes[name], one_for_all=False)
        elif 0 not in np.shape(tensor):
            lacks = {"x": "particles", "xd": "particles", "impulses": "warm start"}.get(name, "joints")
            warm = "Contact(solver='pgs', warm_start=True), and something that touches, a limit or a loop"
            fix = f"leave it out, or {warm}" if name == "impulses" else "leave it out"
            raise InputError(f"the model has no {lacks}", got=name, fix=fix)
    wanted = [n for n, shape in shapes.items() if 0 not in shape]
    if not wanted:
        raise InputError("the model has nothing that moves", fix="add a robot with a joint, or something soft")
    if len(states) < len(wanted):
        states = model.initial_state().tensors | states
    return states


def _warn_of_long_steps(
    model: Model, params: Mapping[str, Tensor], numbers: dict[str, Tensor], dt: float, substeps: int
) -> None:
    """Warn of steps that are too long for what is soft."""
    if not len(model.matter):
        return
    limit, short = _limit(model, params, numbers), dt / substeps
    if limit is not None and short > limit.dt:
        warnings.warn(
            f"a step of {short:.3g} s is too long for {limit.element}, which is stable up to {limit.dt:.3g} s at rest: "
            f"substeps={math.ceil(dt / limit.dt)} would hold",
            StabilityWarning,
            stacklevel=4,
        )


def _limit(model: Model, params: Mapping[str, Tensor], numbers: dict[str, Tensor]) -> StepLimit | None:
    """The longest stable step; found again only if other parameters are given, or they were edited."""
    known = _LIMITS.get(model)
    if known is not None and len(known.params) == len(params):
        seen = zip(known.params, params.items(), strict=True)
        if all(p == path and r() is t and version == t._version for (p, r, version), (path, t) in seen):
            return known.limit
    limit = step_limit(model, numbers)
    if not any(t.is_inference() for t in params.values()):  # these have no versions
        _LIMITS[model] = _Limited([(path, ref(t), t._version) for path, t in params.items()], limit)
    return limit


def _shaped(name: str, recorded: Tensor) -> Tensor:
    return recorded.unflatten(-1, (-1, 3)) if name == "impulse" else recorded


def _needless(model: Model) -> tuple[str, ...]:
    """Of what is checked, what cannot go wrong: there is room for all contacts if all candidates touch."""
    return ("missed",) if len(model.candidates) <= model.contact.most else ()


def _step(model: Model, integrator: str, options: StepOptions) -> _Step:
    """The step of a model, kept for the next call."""
    if integrator not in INTEGRATORS:
        raise InputError(
            "there is no such integrator", got=repr(integrator), expected=" or ".join(map(repr, INTEGRATORS))
        )
    for name in options.record:
        if name not in RECORDS:
            raise InputError(f"record: there is no {name!r}", expected=", ".join(RECORDS))
    for name in options.loaded:
        if name not in model.bodies or model.tree.body_link[model.bodies.index(name)] == 0:
            moving = [b for b, link in zip(model.bodies, model.tree.body_link, strict=True) if link]
            raise InputError(f"there is no body {name!r} that a wrench could move", expected=", ".join(moving))
    known = _STEPS.setdefault(model, {})
    key = integrator, options
    if key not in known:
        program = INTEGRATORS[integrator](model, options)
        known[key] = _Step(
            program,
            tuple(name for name, buffer in program.buffers.items() if buffer.kind == PARAMETER),
            tuple(name for name in CHECKED if name in program.buffers and name not in _needless(model)),
            model.kept_impulses,
        )
    return known[key]
