"""`simulate`: steps of a model, differentiable, for one world or a batch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError, StabilityWarning
from kinema.lang.autograd.rollout import positive, rollout
from kinema.lang.programs.program import PARAMETER, Program
from kinema.model.derived import solver_scale
from kinema.model.model import Model, expect_model
from kinema.simulation.failures import (
    bounded,
    check_finite,
    check_pairs,
    check_particles,
    check_room,
    check_solved,
    trusted,
)
from kinema.simulation.options import StepOptions
from kinema.simulation.records import RECORDS
from kinema.simulation.rk4 import rk4_program
from kinema.simulation.stability import StepLimit, step_limit
from kinema.simulation.step import step_program

_NUMPY = {torch.float64: np.float64, torch.float32: np.float32}
INTEGRATORS: dict[str, Callable[..., Program]] = {
    "euler": step_program,
    "implicit": step_program,
    "rk4": rk4_program,
}

CHECKED = ("residual", "unsolved_at", "missed", "missed_pairs", "unsolved_particles")


@dataclass(frozen=True)
class _Step:
    """The step of a model, and what does not change between calls of it.

    Attributes:
        program: The step.
        parameters: Names of its parameters.
        checked: Outputs that are looked at after a run.
        impulses: States of a warm start, and how many numbers they have.
        told: Number of velocities that are prescribed.
    """

    program: Program
    parameters: tuple[str, ...]
    checked: tuple[str, ...]
    impulses: dict[str, int]
    told: int


_STEPS: WeakKeyDictionary[Model, dict[tuple[str, StepOptions], _Step]] = WeakKeyDictionary()


class _Limited(NamedTuple):
    """The longest stable step with these parameters: their paths, what they were and which version of it."""

    params: list[tuple[str, ref[Tensor], int]]
    limit: StepLimit | None


_LIMITS: WeakKeyDictionary[Model, _Limited] = WeakKeyDictionary()


class Given(NamedTuple):
    """What a trajectory was made from: the step, its state at the start, parameters and controls, by name."""

    program: Program
    states: dict[str, Tensor]
    parameters: dict[str, Tensor]
    controls: dict[str, Tensor]

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Copies of a trajectory, in memory or in files, are without it."""
        return type(None), ()


@dataclass(frozen=True)
class Trajectory:
    """States over time.

    Attributes:
        q_end: Coordinates at the end, shape (*batch, nq); its gradient costs less than that of the whole trajectory.
        v_end: Velocities at the end, shape (*batch, nv).
        q: Coordinates at times 0, dt, ..., steps * dt, shape (*batch, steps + 1, nq); None unless checkpoint is 1.
        v: Velocities likewise, shape (*batch, steps + 1, nv).
        status: Per world, -1 or the first step whose end was not finite, shape (*batch,).
        dt: Time step [s].
        residual: Where there are constraints, how far each step's impulses are from a solution: by how much one would
            change if it were visited once more, as a share of the largest [-], shape (*batch, steps); without gradient.
        recorded: What `record` asked for, by name.
        impulses_end: With a warm start, impulses of the last step [N s], shape (*batch, count): the rest of the state.
        x_end: Positions of particles at the end [m], shape (*batch, particles, 3); None without soft matter.
        xd_end: Their velocities at the end [m/s].
        x: Their positions over time, shape (*batch, steps + 1, particles, 3); None unless checkpoint is 1.
        xd: Their velocities likewise.
        model: What moved; None if the trajectory was loaded from a file, which does not hold it.
    """

    q_end: Tensor
    v_end: Tensor
    q: Tensor | None
    v: Tensor | None
    status: Tensor
    dt: float
    residual: Tensor | None = None
    recorded: dict[str, Tensor] = field(default_factory=dict)
    impulses_end: Tensor | None = None
    x_end: Tensor | None = None
    xd_end: Tensor | None = None
    x: Tensor | None = None
    xd: Tensor | None = None
    _model: Model | None = field(default=None, repr=False, compare=False)
    _given: ClassVar[Given | None] = None  # set beside the fields: it is no part of the result

    @property
    def model(self) -> Model | None:
        """The model."""
        return self._model


def simulate(
    model: Model,
    q: Tensor | None = None,
    v: Tensor | None = None,
    tau: Tensor | None = None,
    u: Tensor | None = None,
    *,
    x: Tensor | None = None,
    xd: Tensor | None = None,
    activation: Tensor | None = None,
    forces: Tensor | None = None,
    motion: Tensor | None = None,
    steps: int,
    dt: float,
    substeps: int = 1,
    impulses: Tensor | None = None,
    wrenches: Mapping[str, Tensor] | None = None,
    params: Mapping[str, Tensor] | None = None,
    record: str | Sequence[str] = (),
    integrator: str = "euler",
    checkpoint: int | str = 1,
    memory_budget: int | None = None,
    threads: int | None = None,
    on_failure: str = "raise",
    progress: bool = True,
) -> Trajectory:
    """Run a model for a number of steps.

    Args:
        model: The model.
        q: Coordinates at the start, shape (*batch, nq); as placed by default.
        v: Velocities at the start, shape (*batch, nv); zero by default.
        tau: Force of each degree of freedom in each step [N m, N], shape (*batch, steps, nv); none by default.
        u: Controls of the actuators in each step, shape (*batch, steps, actuators), in the order of
            `model.actuators.names`; zero by default.
        x: Positions of particles (all that is soft) at the start [m], shape (*batch, particles, 3); as placed by
            default, see `Model.initial_particles`.
        xd: Their velocities at the start [m/s]; as placed by default.
        activation: Contraction of every tetrahedron and triangle in each step [-], shape (*batch, steps, elements), in
            the order of the parameter "activation", which holds by default.
        forces: On every particle in each step, from outside [N], shape (*batch, steps, particles, 3); none by default.
        motion: Velocities of the joints that are prescribed at the end of each step, in the axes at its start, shape
            (*batch, steps, velocities), in the order of `model.prescribed`; zero by default: they stand still.
        steps: Number of steps.
        dt: Time step [s].
        substeps: Every step is made of so many short ones of dt / substeps, during which all that is given per step
            holds: the same as so many more steps, but that trajectories and memory are of whole steps. Of what is
            recorded, impulses and iterations are summed over them, accelerations, what an IMU reads and loads of joints
            are means, and the rest is that of the first.
        impulses: Where the model has `Contact(warm_start=True)`, `impulses_end` of the run that this one continues;
            zero by default.
        wrenches: By name of a body, a moment [N m] and a force [N] at its origin, in world axes, in each step, shape
            (*batch, steps, 6).
        params: Numbers in place of the model's own, see `Model.parameters`; with batch dimensions, one per world.
        record: What to keep of each step. Of every contact candidate, in the order of `model.candidates.names`:
            "impulse" along its normal and two directions of sliding [N s], shape (*batch, steps, candidates, 3), "gap"
            [m], "point" [m] and "normal" at the start of the step. "limit_impulse" of every limited joint [N m s, N s].
            "iterations": sweeps that were done, or eliminations of the exact solver, shape (*batch, steps, 1).
            Of all bodies, at the start of the step: "position" [m] and "rotation", shapes (*batch, steps, bodies, 3
            and 3, 3), and "velocity", angular and linear, of their origins in world axes [rad/s, m/s], shape
            (*batch, steps, bodies, 6); of all sites, in the order of `model.sites.names`, likewise "site_position",
            "site_rotation" and "site_velocity". With the accelerations dv/dt = (v' - v) / dt of the step, impulses of
            contacts, limits and loops included, at the pose and the velocity of its start: "acceleration" of all
            bodies, angular and that of their origins (the rate of "velocity", centripetal part included) in world axes
            [rad/s^2, m/s^2]; "imu" of all sites, rate of turn and specific force (acceleration less gravity, so +g
            upwards at rest) in the site's axes [rad/s, m/s^2], shape (*batch, steps, sites, 6); "joint_load" of
            all joints, the moment about the origin of the joint's link (for revolute and ball joints a point of the
            axis) and the force with which the parent moves the link through the joint, motors, springs and limits
            included, in world axes [N m, N], shape (*batch, steps, joints, 6). Joints that are fixed have none.
        integrator: "euler": semi-implicit Euler, first order, implicit in springs, dampers and servos of joints, with
            hard contact, limits and loops. "implicit": the same, but particles take implicit steps, found by Newton's
            method to 1e-10 of their displacement, or up to 1e-8 where rounding stops it, in float64 only: stable for
            stiff matter at long steps, and damped by them; there may be no such step where a force jumps, as with
            Skin(averaged=False, k_d=...). "rk4": the classical Runge-Kutta method, fourth order but where contacts
            begin and end, for scenes without constraints and soft matter; all forces are explicit: dt must be shorter
            than about 2.7 over the highest frequency [rad/s] of springs, dampers, servos and compliant contacts, and a
            small part of a turn. Controls, tau and wrenches hold for a step.
        checkpoint: Keep the state every so many steps for gradients, "auto" picks what fits into memory; only with 1
            (the default) is the trajectory returned.
        memory_budget: Bytes that the run may take; 80 % of the available memory by default.
        threads: Worker threads; all CPUs by default. No bit of the result depends on it.
        on_failure: "raise" if a world becomes non-finite, or "status".
        progress: Show progress of long runs.

    Gradients:
        Exact for the discrete steps and the solution of the contact problem (with solver="pgs", for its sweeps), from
        states and all that is recorded to q, v, x, xd, tau, u, activation, forces, motion, impulses, wrenches and
        params; at a switch (a point that just touches or just slides) those of one side. What bounces does so at its
        time of impact within the step, so that gradients through bounces are the slopes of the motion, to the first
        order of dt; coefficients of restitution that are exactly zero have the gradient zero.
        Where the adjoint of an implicit step cannot be solved, backward() raises; with on_failure="status" the gradient
        is not a number.

    Warns:
        StabilityWarning: dt is too long for something soft; names the element and the step that would hold.
        UnsolvedWarning: The impulses of some step are not those of the contact problem; names the step and the joint.

    Raises:
        InputError: A tensor has the wrong type or shape, a quaternion is zero, a name is unknown, dt is not positive,
            or the integrator cannot do what the scene has.
        SimulationError: A world became non-finite, there was no room for all contacts, an implicit step was not found,
            or, from backward(), its adjoint, or gradients explode in steps whose contact problem was not solved; with
            on_failure="status" only the second raises.
    """
    expect_model(model)
    dt, steps = _time(dt), positive("steps", steps)
    if isinstance(substeps, bool) or not isinstance(substeps, int) or substeps < 1:
        raise InputError("substeps is not usable", got=substeps, expected="a positive integer")
    short = dt / substeps
    wrenches, kept = wrenches or {}, (record,) if isinstance(record, str) else tuple(record)
    options = StepOptions(
        loaded=tuple(wrenches),
        record=kept,
        activated=activation is not None,
        pushed=forces is not None,
        implicit=integrator == "implicit",
        bouncing=_is_bouncy(params),
        substeps=substeps,
    )
    step = _step(model, integrator, options)
    states = _states(model, q, v, x, xd)
    given = [(n, states[n], count) for n, count in (("q", model.nq), ("v", model.nv)) if n in states]
    controls = {}
    if tau is not None and not model.nv:
        raise InputError("the model has no joints", got="tau", fix="leave tau out")
    if model.nv:
        controls["tau"] = _zeros(model, steps, model.nv) if tau is None else tau
        given.append(("tau", controls["tau"], model.nv))
    actuators = len(model.actuators)
    if u is not None and not actuators:
        raise InputError("the model has no actuators", got="u", fix="leave u out, or give the robot actuators")
    if actuators:
        controls["u"] = _zeros(model, steps, actuators) if u is None else u
        given.append(("u", controls["u"], actuators))
    if motion is not None and not step.told:
        raise InputError("no joint is prescribed", got="motion", fix="leave it out, or Joint(prescribed=True)")
    if step.told:
        controls["motion"] = _zeros(model, steps, step.told) if motion is None else motion
        given.append(("motion", controls["motion"], step.told))
    if activation is not None:
        if not model.matter.elements:
            raise InputError("the model has no tetrahedra and no triangles", got="activation", fix="leave it out")
        model.check_tensor("activation", activation, model.matter.elements)
        controls |= model.matter.of_elements("activation", activation)
    if forces is not None:
        _check_particles("forces", forces, model, ("steps",))
        controls["particle_push"] = forces
    given += [(f"the wrench on {name!r}", wrench, 6) for name, wrench in wrenches.items()]
    for name, tensor, count in given:
        model.check_tensor(name, tensor, count)
    if wrenches:
        controls["wrench"] = torch.stack(torch.broadcast_tensors(*wrenches.values()), -2)
    numbers = model.resolve(params)
    arrays = {n: numbers[n] for n in step.parameters if n in numbers}
    arrays["dt"] = torch.from_numpy(np.array(short, _NUMPY[model.dtype]))
    implicit = integrator == "implicit" and len(model.matter) > 0
    if implicit and model.dtype != torch.float64:
        what = "implicit steps need double precision: in single precision forces of stiff elements are mostly rounding"
        raise InputError(what, got=model.dtype, fix="kinema.compile(scene, dtype=torch.float64)")
    if implicit:
        arrays["solver_scale"] = solver_scale(model.matter, numbers, short)
    else:
        _warn_of_long_steps(model, params or {}, numbers, dt, substeps)
    given_states = states | _started(model, step.impulses, states.get("q"), impulses)
    if implicit and on_failure == "raise":
        given_states, arrays, controls = trusted(given_states), trusted(arrays), trusted(controls)
    why: list[str | None] = [None]
    if "residual" in step.checked and on_failure == "raise":
        given_states, arrays, controls = (bounded(group, why) for group in (given_states, arrays, controls))
    run = rollout(
        step.program,
        steps,
        given_states,
        arrays,
        controls,
        record=(*(states if checkpoint == 1 else ()), *step.checked, *(f"record_{n}" for n in kept)),
        checkpoint=checkpoint,
        memory_budget=memory_budget,
        threads=threads,
        on_failure="status" if on_failure == "raise" else on_failure,
        progress=progress,
    )
    if "q" in states:
        model.check_quaternions(states["q"])  # now that the rollout has accepted the tensor
    if on_failure == "raise":
        check_finite(model, run.status, run.trajectory)
    check_room(model, run.outputs.get("missed"))
    check_pairs(model, run.outputs.get("missed_pairs"))
    if on_failure == "raise":
        check_particles(run.outputs.get("unsolved_particles"))
    left = None
    if "residual" in step.checked:
        why[0] = check_solved(model, run.outputs["residual"], run.outputs["unsolved_at"])
        left = run.outputs["residual"].squeeze(-1)
    nothing = None if model.nv else torch.zeros(*run.status.shape, 0, dtype=model.dtype)
    path = Trajectory(
        run.final["q"] if nothing is None else nothing,
        run.final["v"] if nothing is None else nothing,
        run.trajectory.get("q"),
        run.trajectory.get("v"),
        run.status,
        dt,
        left,
        {n: _shaped(n, run.outputs[f"record_{n}"]) for n in kept},
        torch.cat([run.final[n] for n in step.impulses], -1) if step.impulses else None,
        run.final.get("x"),
        run.final.get("xd"),
        run.trajectory.get("x"),
        run.trajectory.get("xd"),
        model,
    )
    path.__dict__["_given"] = Given(step.program, given_states, arrays, controls)
    return path


def _is_bouncy(params: Mapping[str, Tensor] | None) -> bool:
    """Whether coefficients of restitution are given that are not zero, or shall have a gradient."""
    given = [t for path, t in params.items() if path.endswith("restitution")] if isinstance(params, Mapping) else []
    return any(isinstance(t, Tensor) and (t.requires_grad or bool(t.any())) for t in given)


def _time(dt: object) -> float:
    """A time step as a plain number."""
    if isinstance(dt, Tensor) and dt.requires_grad:
        raise InputError("dt has no gradient", got="a tensor that requires one", fix="dt=dt.item()")
    if isinstance(dt, Tensor) and dt.numel() == 1:
        dt = dt.item()
    if not isinstance(dt, int | float | np.floating) or not 0 < dt < math.inf:
        raise InputError("dt is not usable", got=repr(dt), expected="a positive time in seconds")
    return float(dt)


def _states(model: Model, q: Tensor | None, v: Tensor | None, x: Tensor | None, xd: Tensor | None) -> dict[str, Tensor]:
    """The state at the start, as placed where it is not given."""
    states: dict[str, Tensor] = {}
    if model.nv:
        q = model.initial_coordinates() if q is None else q
        states["q"], states["v"] = q, _zeros(model, model.nv) if v is None else v
    elif any(s is not None and tuple(getattr(s, "shape", (1,)))[-1:] != (0,) for s in (q, v)):
        raise InputError("the model has no joints", got="q or v", fix="leave them out")
    count = len(model.matter)
    if count:
        start = model.initial_particles() if x is None or xd is None else (x, xd)
        for name, given, placed in zip(("x", "xd"), (x, xd), start, strict=True):
            states[name] = placed if given is None else given
            _check_particles(name, states[name], model)
    elif x is not None or xd is not None:
        raise InputError("the model has no particles", got="x or xd", fix="leave them out")
    if not states:
        raise InputError("the model has nothing that moves", fix="add a robot with a joint, or something soft")
    return states


def _check_particles(name: str, given: Tensor, model: Model, axes: tuple[str, ...] = ()) -> None:
    """Raise unless there are three numbers for every particle, behind these axes and a batch."""
    count = len(model.matter)
    if not count:
        raise InputError("the model has no particles", got=name, fix="leave it out")
    model.check_tensor(name, given, 3)
    if given.shape[-2:] != (count, 3) or given.ndim < 2 + len(axes):
        expected = f"({', '.join(('*batch', *axes, str(count)))}, 3)"
        raise InputError(f"{name} has the wrong shape", got=tuple(given.shape), expected=expected)


def _zeros(model: Model, *shape: int) -> Tensor:
    """Zeros from the allocator: torch.zeros wakes its threads where there are many."""
    return torch.from_numpy(np.zeros(shape, _NUMPY[model.dtype]))


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
            stacklevel=3,
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


def _started(model: Model, counts: dict[str, int], q: Tensor | None, impulses: Tensor | None) -> dict[str, Tensor]:
    """The impulses of a warm start, as states."""
    if not counts:
        if impulses is not None:
            fix = "Contact(solver='pgs', warm_start=True), and something that touches, a limit or a loop"
            raise InputError("the model starts from no impulses", got="impulses", fix=fix)
        return {}
    total = sum(counts.values())
    assert q is not None  # there are constraints
    if impulses is None:
        impulses = torch.zeros(*q.shape[:-1], total, dtype=model.dtype)
    model.check_tensor("impulses", impulses, total)
    return dict(zip(counts, impulses.split(list(counts.values()), -1), strict=True))


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
            int(model.tree.dofs @ model.tree.prescribed),
        )
    return known[key]
