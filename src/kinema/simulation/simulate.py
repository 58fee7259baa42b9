"""`simulate` and `step`: differentiable time stepping of a model, for one world or a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kinema.lang.autograd.options import DEFAULT, RunOptions, expect_options
from kinema.lang.autograd.rollout import Rollout, positive, rollout
from kinema.model.model import Model, expect_model
from kinema.model.state import AXES, State
from kinema.scene.forces import TIME
from kinema.simulation.control import Control, control_tensors
from kinema.simulation.failures import bounded, check_finite, check_outputs, trusted
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
from kinema.simulation.start_check import warn_of_deep_start
from kinema.simulation.trajectory import Given, Recorded, Trajectory

COORDINATES = ("q", "v", "x", "xd", "act")


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
        state: Initial state, for one world or a batch. Omitted parts, or the whole state, default to
            `model.initial_state()`.
        u: Actuator controls in each step, shape (*batch, steps, actuators), in the order of `model.actuators.names`;
            without steps if they are constant. Pass a `Control` to also apply forces to joints, bodies and particles,
            or to move prescribed joints. Zero by default.
        steps: Number of steps.
        dt: Time step [s].
        substeps: Substeps per step, of dt / substeps each. Inputs are constant within a step, and only whole steps are
            stored. `record` sums impulses and iterations over substeps, averages accelerations, IMU readings and joint
            loads, and stores everything else from the first substep.
        params: Parameter values that replace the model's own, by path, see `Model.parameters`; with batch dimensions,
            one value per world.
        record: Names of quantities to store in each step.

            Of each contact candidate, in the order of `model.candidates.names`: "impulse" along the normal and the two
            tangents [N s], shape (*batch, steps, candidates, 3); "gap" [m], "point" [m] and "normal" at the start of
            the step. "limit_impulse" of each limited joint [N m s, N s]. "iterations" of the contact solver, shape
            (*batch, steps, 1).

            Of each body, at the start of the step: "position" [m] and "rotation", shapes (*batch, steps, bodies, 3)
            and (*batch, steps, bodies, 3, 3); "velocity", the angular velocity and the velocity of the origin in world
            axes [rad/s, m/s], shape (*batch, steps, bodies, 6). Likewise of each site, in the order of
            `model.sites.names`: "site_position", "site_rotation" and "site_velocity".

            From the accelerations dv/dt = (v' - v) / dt of the step, including impulses of contacts, limits and loops,
            at the pose and velocity at its start: "acceleration" of each body, angular and linear (the rate of
            "velocity", centripetal part included), in world axes [rad/s^2, m/s^2]; "imu" of each site, the angular
            velocity and the specific force (acceleration minus gravity, so +g upwards at rest) in the site's axes
            [rad/s, m/s^2], shape (*batch, steps, sites, 6); "joint_load" of each joint, the moment about the origin of
            the joint's link (a point on the axis of revolute joints, the centre of ball joints) and the force that the
            parent applies to the link through the joint, including motors, springs and limits, in world axes [N m, N],
            shape (*batch, steps, joints, 6). Fixed joints have no load.
        integrator: "euler" is semi-implicit Euler: first order, implicit in springs, dampers and servos of joints, with
            hard contact, limits and loops.

            "implicit" also takes implicit steps of particles, in float64 only. Newton's method solves them to 1e-10 of
            the displacement, or to 1e-8 where rounding error prevents more. They are stable for stiff soft matter at
            long steps, but damp it. A step may have no solution where a force is discontinuous, as with
            Skin(averaged=False, k_d=...).

            In the contact law "convex", "euler" is MuJoCo's: only the damping of joints is implicit, and not in the
            forces of contacts. "implicitfast" is implicit in velocity gains of servos as well.

            "rk4" is the classical Runge-Kutta method, for scenes without constraints and soft matter: fourth order
            except where contacts begin or end. It treats all forces explicitly: dt must be shorter than about 2.7 over
            the highest frequency [rad/s] of springs, dampers, servos and compliant contacts, and a small part of a
            turn. Controls are constant within a step.
        options: How to execute the run: checkpoints, threads, memory, failures.

    Gradients:
        Exact for the discrete steps and the solution of the contact problem (with solver="pgs", for its iterations),
        from states and all recorded quantities to the initial state, controls and params; one-sided at a switch
        (a point that just touches or just slides). Contacts and limits with restitution are resolved at their time of
        impact within the step, so that gradients through bounces are derivatives of the motion, to first order in dt.
        Coefficients of restitution that are exactly zero get zero gradients.
        Where the adjoint of an implicit step cannot be solved, backward() raises; with on_failure="status" the gradient
        is NaN.

    Warns:
        ContactWarning: In the first run of this model, a shape starts deep inside a plane.
        StabilityWarning: dt is too long for some soft matter; names the element and the step that would be stable.
        UnsolvedWarning: The solver did not converge to the impulses of some step; names the step and the joint.

    Raises:
        InputError: A tensor has the wrong type or shape, a quaternion is zero, a name is unknown, dt is not positive,
            or the integrator does not support a feature of the scene.
        SimulationError: A world became non-finite, the buffers could not hold all contacts, or an implicit step did not
            converge; from backward(): the adjoint of an implicit step did not converge, or gradients explode through
            steps whose contact problem was not solved. With on_failure="status", only full buffers raise.
    """
    expect_model(model)
    warn_of_deep_start(model, state)
    kept = (record,) if isinstance(record, str) else tuple(record)
    whole = tuple(AXES) if getattr(options, "checkpoint", 1) == 1 else ()
    request = _Request(steps, dt, substeps, params, kept, whole, integrator, options)
    step, run, times, given = _run(model, state, Control.of(u), request)
    path = Trajectory(
        _end(step, run, times),
        _state(run.trajectory, time=times) if whole else None,
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
    request = _Request(None, dt, substeps, params, (), (), integrator, options)
    step, run, times, _ = _run(model, state, Control.of(u), request)
    return _end(step, run, times)


class _Request(NamedTuple):
    """The arguments of `simulate` and `step` beside model, state and controls.

    Attributes:
        steps: Number of steps; None for one step, whose inputs have no time axis.
        whole: Names of the states whose trajectories are stored.
    """

    steps: int | None
    dt: float
    substeps: int
    params: Mapping[str, Any] | None
    record: tuple[str, ...]
    whole: tuple[str, ...]
    integrator: str
    options: RunOptions


class _Ran(NamedTuple):
    """A run that went well: its step, its results, the times of its states and its inputs."""

    step: Step
    run: Rollout
    times: Tensor | None
    given: Given


def _run(model: Model, state: State | None, control: Control, request: _Request) -> _Ran:
    """Check the request, prepare its program and inputs, and run it."""
    steps, options, integrator = request.steps, request.options, request.integrator
    dt, count = time_of(request.dt), 1 if steps is None else positive("steps", steps)
    expect_options(options)
    given = model.as_tensors(request.params)
    check_substeps(request.substeps)
    step = step_of(model, integrator, features(control, given, request.record, integrator, request.substeps))
    start = start_tensors(model, state)
    times = times_of(model, start.pop("time", None), dt, count)
    states = step.states_of(start)
    controls = control_tensors(model, control, None if steps is None else count, state)
    if times is not None:
        controls[TIME] = times[..., :-1]
    arrays = parameters_of(model, step, given, integrator, dt, request.substeps)
    guarded, why = _guarded(step, options, states, arrays, controls)
    run = rollout(
        step.program,
        count,
        *guarded,
        record=(*(n for n in request.whole if n in states), *step.checked, *(f"record_{n}" for n in request.record)),
        options=options.reporting,
    )
    if "q" in states:
        model.check_quaternions(states["q"])  # now that the rollout has accepted the tensor
    _check(model, run, options, why, states)
    return _Ran(step, run, times, Given(step.program, *guarded, given))


def _end(step: Step, run: Rollout, times: Tensor | None) -> State:
    """The last state."""
    now = None if times is None else times[..., -1]
    impulses = torch.cat([run.final[n] for n in step.impulses], -1) if step.impulses else None
    return _state(run.final, impulses=impulses, time=now)


def _state(found: Mapping[str, Tensor], **others: Tensor | None) -> State:
    """A state of the coordinates among these tensors, and others."""
    return State(**{n: found.get(n) for n in COORDINATES}, **others)  # type: ignore[arg-type]


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
