"""`simulate` and `step`: a model over time, differentiable, for one world or a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.lang.autograd.rollout import Rollout, positive, rollout
from kinema.model.model import Model, expect_model
from kinema.model.state import AXES, State
from kinema.simulation.control import Control, control_tensors
from kinema.simulation.failures import bounded, check_finite, check_outputs, trusted
from kinema.simulation.options import RunOptions
from kinema.simulation.prepare import (
    Step,
    check_substeps,
    features,
    parameters_of,
    start_tensors,
    step_of,
    time_of,
    times_of,
)
from kinema.simulation.trajectory import Given, Recorded, Trajectory

DEFAULT = RunOptions()
COORDINATES = ("q", "v", "x", "xd")


def simulate(
    model: Model,
    state: State | None = None,
    u: Any = None,
    *,
    steps: int,
    dt: float,
    substeps: int = 1,
    params: Mapping[str, Any] | None = None,
    time: float | Tensor = 0.0,
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
        time: At the start [s], a number or a tensor of shape (*batch,); only forces of `Scene.add_force` read it.
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
        from states and all that is recorded to the state, controls, params and time; at a switch (a point that just
        touches or just slides) those of one side. What bounces does so at its time of impact within the step, so that
        gradients through bounces are the slopes of the motion, to the first order of dt; coefficients of restitution
        that are exactly zero have the gradient zero.
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
    kept = (record,) if isinstance(record, str) else tuple(record)
    whole = tuple(AXES) if getattr(options, "checkpoint", 1) == 1 else ()
    step, run, given = _run(
        model, state, Control.of(u), steps, dt, substeps, params, time, kept, whole, integrator, options
    )
    path = Trajectory(
        _end(step, run),
        State(*map(run.trajectory.get, COORDINATES)) if whole else None,  # type: ignore[arg-type]
        run.status,
        time_of(dt),
        run.outputs["residual"].squeeze(-1) if "residual" in step.checked else None,
        Recorded({n: _shaped(n, run.outputs[f"record_{n}"]) for n in kept}),
        model,
    )
    path.__dict__["_given"] = given
    return path


def step(
    model: Model,
    state: State,
    u: Any = None,
    *,
    dt: float,
    substeps: int = 1,
    params: Mapping[str, Any] | None = None,
    time: float | Tensor = 0.0,
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
        time: Before the step [s], as in `simulate`.
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
    step, run, _ = _run(model, state, Control.of(u), None, dt, substeps, params, time, (), (), integrator, options)
    return _end(step, run)


class _Ran(NamedTuple):
    """A run that went well: its step, its results and what it was given."""

    step: Step
    run: Rollout
    given: Given


def _run(
    model: Model,
    state: State | None,
    control: Control,
    steps: int | None,
    dt: float,
    substeps: int,
    params: Mapping[str, Any] | None,
    time: float | Tensor,
    record: tuple[str, ...],
    whole: tuple[str, ...],
    integrator: str,
    options: RunOptions,
) -> _Ran:
    """Run steps, with the trajectories of states that are named in `whole`; one for None, without an axis of steps."""
    dt, count = time_of(dt), 1 if steps is None else positive("steps", steps)
    if not isinstance(options, RunOptions):
        fix = "kinema.RunOptions(threads=1), and so on"
        raise InputError("options are of the wrong type", got=type(options).__name__, expected="RunOptions", fix=fix)
    given = model.as_tensors(params)
    check_substeps(substeps)
    step = step_of(model, integrator, features(control, given, record, integrator, substeps))
    states = step.states_of(start_tensors(model, state))
    controls = control_tensors(model, control, None if steps is None else count, state)
    controls |= times_of(model, time, dt, count)
    arrays = parameters_of(model, step, given, integrator, dt, substeps)
    guarded, why = _guarded(step, options, states, arrays, controls)
    run = rollout(
        step.program,
        count,
        *guarded,
        record=(*(n for n in whole if n in states), *step.checked, *(f"record_{n}" for n in record)),
        checkpoint=options.checkpoint,
        memory_budget=options.memory_budget,
        threads=options.threads,
        on_failure="status" if options.on_failure == "raise" else options.on_failure,
        progress=options.progress,
    )
    if "q" in states:
        model.check_quaternions(states["q"])  # now that the rollout has accepted the tensor
    _check(model, run, options, why, states)
    return _Ran(step, run, Given(step.program, *guarded, given))


def _end(step: Step, run: Rollout) -> State:
    """The last state."""
    impulses = torch.cat([run.final[n] for n in step.impulses], -1) if step.impulses else None
    return State(*map(run.final.get, COORDINATES), impulses)  # type: ignore[arg-type]


Groups = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]


def _guarded(step: Step, options: RunOptions, *groups: dict[str, Tensor]) -> tuple[Groups, list[str | None]]:
    """Inputs whose gradients raise where they would have no meaning, and room for why that is."""
    why: list[str | None] = [None]
    if options.on_failure == "raise":
        if "unsolved_particles" in step.checked:
            groups = tuple(trusted(group) for group in groups)
        if "residual" in step.checked:
            groups = tuple(bounded(group, why) for group in groups)
    return (groups[0], groups[1], groups[2]), why


def _check(
    model: Model, run: Rollout, options: RunOptions, why: list[str | None], states: Mapping[str, Tensor]
) -> None:
    """Raise or warn if the run went wrong."""
    if options.on_failure == "raise" and run.failed:
        check_finite(model, run.status, _over_time(run, states))
    why[0] = check_outputs(model, run.outputs, options.on_failure)


def _over_time(run: Rollout, states: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """States over time, those at the two ends of a single step too."""
    if run.trajectory or run.steps > 1:
        return run.trajectory
    ends = {n: torch.broadcast_tensors(states[n], run.final[n]) for n in COORDINATES if n in states}
    return {n: torch.stack(both, run.status.ndim) for n, both in ends.items()}


def _shaped(name: str, recorded: Tensor) -> Tensor:
    return recorded.unflatten(-1, (-1, 3)) if name == "impulse" else recorded
