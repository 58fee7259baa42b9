"""`linearise`: Jacobians of a step in tangent space, for iLQR, MPC and controllers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from kinema.errors import InputError, SimulationError
from kinema.lang.autograd.inputs import Form, Inputs, Names
from kinema.lang.autograd.options import DEFAULT, RunOptions
from kinema.lang.autograd.rollout import run, workers_of
from kinema.lang.programs.plan import checking
from kinema.lang.runtime.memory_layout import keep_in
from kinema.model.model import Model, expect_model
from kinema.model.state import AXES, State
from kinema.scene.forces import TIME
from kinema.simulation.control import AXES as CONTROLS
from kinema.simulation.control import Control, control_tensors
from kinema.simulation.failures import check_outputs, refuse_exploded
from kinema.simulation.prepare import (
    Step,
    check_substeps,
    features,
    linear_step_of,
    parameters_of,
    start_tensors,
    time_of,
)
from kinema.simulation.repeats import Repeat, Request, repeat_of, tensors_of
from kinema.simulation.simulate import step
from kinema.simulation.tangent_space import inverse_rates, normalised, rates

COLUMNS = ("u", "tau", "motion")


class Linearised(NamedTuple):
    """Jacobians of a step: ds' = A ds + B du.

    ds stacks the tangents of a state, n entries in all: of q (nv entries, as velocities over one second) and v; with
    soft matter, x and xd (3 per particle); with a warm start, the impulses. The time has no column.

    Attributes:
        A: Shape (*batch, n, n).
        B: Shape (*batch, n, m).
    """

    A: Tensor
    B: Tensor


def linearise(
    model: Model,
    state: State,
    u: Any = None,
    *,
    dt: float,
    substeps: int = 1,
    params: Mapping[str, Any] | None = None,
    integrator: str = "euler",
    options: RunOptions = DEFAULT,
) -> Linearised:
    """Jacobians of a step with respect to state and controls, in tangent space: `A, B = kn.linearise(...)`.

    Each world is simulated once; a reverse pass then pulls back the rows of its Jacobian side by side in SIMD lanes,
    which share the intermediate values of the step. With implicit or Runge-Kutta steps, substeps or impacts at their
    time, each world is instead simulated and differentiated once for each of its n outputs.

    Args:
        model: The model.
        state: Before the step, of one world or a batch.
        u: Actuator controls, shape (*batch, actuators), or a `Control`, as in `step`. The columns of B belong to u. For
            a `Control`, they belong to whichever of its u, tau and motion are given, side by side in this order; if the
            model has no actuators and u is omitted, to tau.
        dt: Time step [s].
        substeps: As in `simulate`.
        params: As in `simulate`.
        integrator: As in `simulate`.
        options: As in `simulate`.

    Gradients:
        None are recorded.

    Raises:
        InputError: As in `step`; or batch dimensions do not match.
    """
    expect_model(model)
    request, tensors = Request(dt, substeps, integrator, options), tensors_of(state, u) if params is None else None
    last = _LAST.get(model)
    if last is not None and tensors is not None and last.fits(request, tensors):
        found = _pulled(model, last.inputs, last.values_of(tensors), last.form, options)
        if found is not None:
            model.check_quaternions(tensors[0])
            return found
    check_substeps(substeps)
    control = Control.of(u)
    acting = tuple([n for n in COLUMNS if getattr(control, n) is not None]) or _columns(model)
    controls, numbers = control_tensors(model, control, None), model.as_tensors(params)
    wanted = features(control, numbers, (), integrator, substeps)
    linear = None if checking() else linear_step_of(model, integrator, wanted, acting)
    words: dict[str, Any] = {"dt": dt, "substeps": substeps, "integrator": integrator, "options": options}
    if linear is None:
        return _by_copies(model, state, control.as_tensors(model), acting, numbers, words)
    length = time_of(dt)
    start = start_tensors(model, state)
    if "time" in start:
        controls[TIME] = start.pop("time").unsqueeze(-1)
    states = linear.states_of(start)
    arrays = parameters_of(model, linear, numbers, integrator, length, substeps)
    inputs, values = _inputs(linear, states, arrays, controls)
    form, _ = inputs.form(values)
    found = _pulled(model, inputs, values, form, options)
    if tensors is not None and (repeat := repeat_of(request, tensors, inputs, form, values)) is not None:
        _LAST[model] = repeat
    if model.nv:
        model.check_quaternions(states["q"])  # now that the run has accepted the tensor
    if found is None:  # a world is not finite: a plain step reports where
        step(model, state, control, params=params, **words)
        raise SimulationError("the Jacobian of a step is not finite", fix="a shorter dt")
    return found


_LAST: WeakKeyDictionary[Model, Repeat] = WeakKeyDictionary()


def _pulled(
    model: Model, inputs: Inputs, values: Sequence[Tensor], form: Form, options: RunOptions
) -> Linearised | None:
    """Both Jacobians by the program that pulls back their rows; None if it failed."""
    alone = form.worlds == 1 and not len(model.matter)  # over before anybody would look
    workers, progress = (1, False) if alone else (workers_of(options.threads), options.progress)
    ran = run(inputs, values, workers, 1, options.memory_budget, progress, form)
    if ran.failed and options.on_failure == "raise":
        return None
    outputs = dict(zip(form.output_names, ran.outs, strict=True))
    why = check_outputs(model, outputs, options.on_failure)
    A, B = outputs["jacobian_A"], outputs.get("jacobian_B")
    if options.on_failure == "raise":
        refuse_exploded(why, A)
    return Linearised(A, A.new_zeros(*A.shape[:-1], 0) if B is None else B)


def _inputs(step: Step, *groups: dict[str, Tensor]) -> tuple[Inputs, list[Tensor]]:
    """Inputs of the program with its Jacobians as outputs, and their values without graphs."""
    names = tuple(groups[0]), tuple(groups[1]), tuple(groups[2])
    inputs = step.program.inputs.get(names)
    if inputs is None:
        inputs = keep_in(step.program.inputs, names, lambda: _inputs_of(step, names))
    values = [t for group in groups for t in group.values()]
    if [t for t in values if t.requires_grad]:
        values = list(map(Tensor.detach, values))
    return inputs, values


def _inputs_of(step: Step, names: Names) -> Inputs:
    sizes = {n: step.program.buffers[n].length for n in ("jacobian_A", "jacobian_B") if n in step.program.buffers}
    rows = math.isqrt(sizes["jacobian_A"])
    return Inputs(step.program, 1, (*sizes, *step.checked), names, {n: (rows, x // rows) for n, x in sizes.items()})


def _by_copies(
    model: Model,
    state: State,
    control: Control,
    columns: tuple[str, ...],
    numbers: Mapping[str, Tensor],
    words: Mapping[str, Any],
) -> Linearised:
    """Both Jacobians from copies of each world, one per row: each copy yields the derivatives of one output.

    words: Further arguments of `step`.
    """
    given = {n: t.detach() for n, t in start_tensors(model, state).items()}
    if model.nv:
        model.check_quaternions(given["q"])
        given["q"] = normalised(model, given["q"])
    zeros = {"u": len(model.actuators), "tau": model.nv}
    control = replace(control, **{n: model.zeros(zeros[n]) for n in columns if getattr(control, n) is None})  # type: ignore[arg-type]
    acting = {n: getattr(control, n).detach() for n in columns}
    numbers = {n: t.detach() for n, t in numbers.items()}
    batch = _common_batch(model, State(**given), control, numbers)
    time = given.pop("time", None)
    times = {} if time is None else {"time": time.unsqueeze(-1) if time.ndim else time}
    counts = {n: model.nv if n == "q" else t.shape[t.ndim - AXES[n] :].numel() for n, t in given.items()}
    size = sum(counts.values())

    def copies(tensor: Tensor, axes: int) -> Tensor:
        own = tensor.shape[tensor.ndim - axes :]
        lead = tensor.expand(*batch, *own).unsqueeze(len(batch))
        return lead.expand(*batch, size, *own).clone().requires_grad_()

    leaves = {n: copies(t, AXES[n]) for n, t in given.items()}
    pushes = {n: copies(t, 1) for n, t in acting.items()}
    with torch.enable_grad():
        after = step(
            model,
            State(**leaves, **times),
            replace(control.with_axis(), **pushes),  # type: ignore[arg-type]
            params={n: _per_output(model, n, t) for n, t in numbers.items()},
            **words,
        )
        outputs = _tangents(model, after, counts)
        sources = [*leaves.values(), *pushes.values()]
        found = torch.autograd.grad(outputs.diagonal(dim1=-2, dim2=-1).sum(), sources)
    by = dict(zip((*leaves, *pushes), found, strict=True))
    parts = {n: by[n].flatten(len(batch) + 1) for n in given}
    if model.nv:
        parts["q"] = by["q"] @ rates(model, given["q"].expand(*batch, model.nq))
    none = given[next(iter(given))].new_zeros(*batch, size, 0)
    return Linearised(torch.cat(list(parts.values()), -1), torch.cat([by[n] for n in acting] or [none], -1))


def _columns(model: Model) -> tuple[str, ...]:
    """The default controls that B has columns of."""
    return ("u",) if len(model.actuators) else ("tau",) if model.nv else ()


def _common_batch(model: Model, state: State, control: Control, numbers: Mapping[str, Tensor]) -> tuple[int, ...]:
    """Batch dimensions of all inputs."""
    batches = {"state": state.batch}
    batches |= {n: tuple(t.shape[:-axes]) for n, axes in CONTROLS.items() if (t := getattr(control, n)) is not None}
    batches |= {f"wrench on {n!r}": tuple(t.shape[:-1]) for n, t in control.wrenches.items()}
    batches |= {n: tuple(t.shape[: _axes_of_batch(model, n, t)]) for n, t in numbers.items()}
    try:
        return tuple(torch.broadcast_shapes(*batches.values()))
    except RuntimeError:
        raise InputError("batch dimensions do not match", got=batches, expected="equal dimensions, or none") from None


def _axes_of_batch(model: Model, name: str, tensor: Tensor) -> int:
    """Number of batch dimensions of a parameter."""
    return tensor.ndim - model.parameters(name)[name].ndim


def _per_output(model: Model, name: str, tensor: Tensor) -> Tensor:
    """A parameter with an axis for outputs, if it has one for worlds: its values are the same for all outputs."""
    worlds = _axes_of_batch(model, name, tensor)
    return tensor.unsqueeze(worlds) if worlds else tensor


def _tangents(model: Model, after: State, counts: Mapping[str, int]) -> Tensor:
    """The state after a step, linear in its tangents, shape (*batch, n, n): a row for each copy of a world."""
    flat = []
    for name in counts:
        tensor = after.tensors[name]
        if name == "q":
            projection = inverse_rates(model, tensor.detach()[..., :1, :])  # the same for all copies
            flat.append((projection @ tensor.unsqueeze(-1)).squeeze(-1))
        else:
            flat.append(tensor.flatten(-2) if name in ("x", "xd") else tensor)
    return torch.cat(flat, -1)
