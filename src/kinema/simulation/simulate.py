"""`simulate`: steps of a model, differentiable, for one world or a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from kinema.errors import InputError, SimulationError
from kinema.lang.bridge import rollout
from kinema.lang.program import Program
from kinema.model.model import Model
from kinema.simulation.records import RECORDS
from kinema.simulation.rk4 import rk4_program
from kinema.simulation.step import step_program

INTEGRATORS = {"euler": step_program, "rk4": rk4_program}

_PROGRAMS: WeakKeyDictionary[Model, dict[tuple[str, tuple[str, ...], tuple[str, ...]], Program]] = WeakKeyDictionary()


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
        residual: Where there are constraints, how far each step's impulses are from a solution [N s], shape
            (*batch, steps); without gradient.
        recorded: What `record` asked for, by name.
    """

    q_end: Tensor
    v_end: Tensor
    q: Tensor | None
    v: Tensor | None
    status: Tensor
    dt: float
    residual: Tensor | None = None
    recorded: dict[str, Tensor] = field(default_factory=dict)


def simulate(
    model: Model,
    q: Tensor,
    v: Tensor,
    tau: Tensor | None = None,
    u: Tensor | None = None,
    *,
    motion: Tensor | None = None,
    steps: int,
    dt: float,
    wrenches: Mapping[str, Tensor] | None = None,
    params: Mapping[str, Tensor] | None = None,
    record: Sequence[str] = (),
    integrator: str = "euler",
    checkpoint: int | str = 1,
    threads: int | None = None,
    on_failure: str = "raise",
    progress: bool = True,
) -> Trajectory:
    """Run a model for a number of steps.

    Args:
        model: The model.
        q: Coordinates at the start, shape (*batch, nq).
        v: Velocities at the start, shape (*batch, nv).
        tau: Force of each degree of freedom in each step [N m, N], shape (*batch, steps, nv); none by default.
        u: Controls of the actuators in each step, shape (*batch, steps, actuators), in the order of
            `model.actuators.names`; zero by default.
        motion: Velocities of the joints that are prescribed at the end of each step, in the axes at its start, shape
            (*batch, steps, velocities), in the order of `model.prescribed`; zero by default: they stand still.
        steps: Number of steps.
        dt: Time step [s].
        wrenches: By name of a body, a moment [N m] and a force [N] at its origin, in world axes, in each step, shape
            (*batch, steps, 6).
        params: Numbers in place of the model's own, see `Model.parameters`; with batch dimensions, one per world.
        record: What to keep of each step. Of every contact candidate, in the order of `model.candidates.names`:
            "impulse" along its normal and two directions of sliding [N s], shape (*batch, steps, candidates, 3), "gap"
            [m], "point" [m] and "normal" at the start of the step. "limit_impulse" of every limited joint [N m s, N s].
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
        integrator: "euler": semi-implicit Euler, first order, implicit in springs, dampers and servos, with hard
            contact, limits and loops. "rk4": the classical Runge-Kutta method, fourth order, for scenes without these;
            all forces are explicit: dt must be shorter than about 2.7 over the highest frequency [rad/s] of springs,
            dampers, servos and compliant contacts, and a small part of a turn. Controls, tau and wrenches hold for a
            step.
        checkpoint: Keep the state every so many steps for gradients, "auto" picks what fits into memory; only with 1
            (the default) is the trajectory returned.
        threads: Worker threads; all CPUs by default. No bit of the result depends on it.
        on_failure: "raise" if a world becomes non-finite, or "status".
        progress: Show progress of long runs.

    Gradients:
        Exact for the discrete steps and the sweeps of the contact solver, from states and all that is recorded to q, v,
        tau, u, motion, wrenches and params; at a switch (a point that just touches or just slides) those of one side.
        A body with restitution bounces from where it was at the start of a step: what a later or earlier impact within
        the step would change is not seen, so that gradients through bounces miss the time of impact.

    Raises:
        InputError: A tensor has the wrong type or shape, a name is unknown, dt is not positive, or the integrator
            cannot do what the scene has.
        SimulationError: A world became non-finite.
    """
    if not dt > 0 or dt == float("inf"):
        raise InputError("dt is not usable", got=dt, expected="a positive time in seconds")
    wrenches, kept = wrenches or {}, tuple(record)
    program = _program(model, integrator, tuple(wrenches), kept)
    given = [("q", q, model.nq), ("v", v, model.nv)]
    controls = {"tau": torch.zeros(steps, model.nv, dtype=model.dtype) if tau is None else tau}
    given.append(("tau", controls["tau"], model.nv))
    actuators = len(model.actuators)
    if u is not None and not actuators:
        raise InputError("the model has no actuators", got="u", fix="leave u out, or give the robot actuators")
    if actuators:
        controls["u"] = torch.zeros(steps, actuators, dtype=model.dtype) if u is None else u
        given.append(("u", controls["u"], actuators))
    told = int(model.tree.dofs @ model.tree.prescribed)
    if motion is not None and not told:
        raise InputError("no joint is prescribed", got="motion", fix="leave it out, or Joint(prescribed=True)")
    if told:
        controls["motion"] = torch.zeros(steps, told, dtype=model.dtype) if motion is None else motion
        given.append(("motion", controls["motion"], told))
    given += [(f"the wrench on {name!r}", wrench, 6) for name, wrench in wrenches.items()]
    for name, tensor, count in given:
        model.check_tensor(name, tensor, count)
    if wrenches:
        controls["wrench"] = torch.stack(torch.broadcast_tensors(*wrenches.values()), -2)
    arrays = {n: a for n, a in model.resolve(params).items() if n in program.buffers}
    arrays["dt"] = torch.tensor(dt, dtype=model.dtype)
    solved = tuple(name for name in ("residual", "missed") if name in program.buffers)
    run = rollout(
        program,
        steps,
        {"q": q, "v": v},
        arrays,
        controls,
        record=(*(("q", "v") if checkpoint == 1 else ()), *solved, *(f"record_{n}" for n in kept)),
        checkpoint=checkpoint,
        threads=threads,
        on_failure=on_failure,
        progress=progress,
    )
    _check_room(model, run.outputs.get("missed"))
    left = run.outputs["residual"].squeeze(-1) if solved else None
    return Trajectory(
        run.final["q"],
        run.final["v"],
        run.trajectory.get("q"),
        run.trajectory.get("v"),
        run.status,
        dt,
        left,
        {n: _shaped(n, run.outputs[f"record_{n}"]) for n in kept},
    )


def _check_room(model: Model, missed: Tensor | None) -> None:
    """Raise if there were more contacts than there was room for."""
    if missed is None or not bool((missed > 0).any()):
        return
    step = int((missed.squeeze(-1) > 0).reshape(-1, missed.shape[-2]).any(0).nonzero()[0])
    raise SimulationError(
        f"more than {model.contact.most} contacts at once, first in step {step}",
        fix=f"Contact(most={model.contact.most + int(missed.max())}) or more, or a smaller margin",
    )


def _shaped(name: str, recorded: Tensor) -> Tensor:
    return recorded.unflatten(-1, (-1, 3)) if name == "impulse" else recorded


def _program(model: Model, integrator: str, loaded: tuple[str, ...], record: tuple[str, ...]) -> Program:
    """The step of a model, kept for the next call."""
    if integrator not in INTEGRATORS:
        raise InputError(
            "there is no such integrator", got=repr(integrator), expected=" or ".join(map(repr, INTEGRATORS))
        )
    for name in record:
        if name not in RECORDS:
            raise InputError(f"record: there is no {name!r}", expected=", ".join(RECORDS))
    for name in loaded:
        if name not in model.bodies or model.tree.body_link[model.bodies.index(name)] == 0:
            moving = [b for b, link in zip(model.bodies, model.tree.body_link, strict=True) if link]
            raise InputError(f"there is no body {name!r} that a wrench could move", expected=", ".join(moving))
    known = _PROGRAMS.setdefault(model, {})
    key = integrator, loaded, record
    if key not in known:
        known[key] = INTEGRATORS[integrator](model, loaded, record)
    return known[key]
