"""Rollouts of a program as one torch operation: N steps in one native call, the adjoint in another."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from kinema.errors import InputError, KinemaError, SimulationError
from kinema.lang.autograd.checkpointed_sweeps import Forward, Integers, Ran, Tangent, planner_for, status_tensor
from kinema.lang.autograd.inputs import Form, Inputs, common_batch, inputs_of, named
from kinema.lang.autograd.options import DEFAULT, RunOptions, expect_options
from kinema.lang.build import cpu
from kinema.lang.programs.program import CONTROL, PARAMETER, STATE, Program
from kinema.lang.runtime.memory_budget import require
from kinema.lang.runtime.memory_layout import keep_in

RECOUNT = 1.0  # seconds between counts of the CPUs


@dataclass
class Rollout:
    """Results of a rollout.

    Attributes:
        final: State after the last step, by name, shape (*batch, *buffer shape).
        trajectory: States at steps 0 ... `steps` by recorded name, shape (*batch, steps + 1, ...).
        outputs: Recorded outputs, shape (*batch, steps, ...).
        status: Per world -1, or the first step whose end state is not finite, shape batch, int64.
        failed: Whether any world became non-finite.
        steps: Number of steps.
        interval: The checkpoint interval of the rollout.
        bytes: Predicted memory of the rollout [bytes].
    """

    final: dict[str, Tensor]
    trajectory: dict[str, Tensor]
    outputs: dict[str, Tensor]
    status: Tensor
    failed: bool
    steps: int
    interval: int
    bytes: int


def rollout(
    program: Program,
    steps: int,
    state: Mapping[str, Any],
    parameters: Mapping[str, Any] | None = None,
    controls: Mapping[str, Any] | None = None,
    *,
    record: Sequence[str] = (),
    options: RunOptions = DEFAULT,
) -> Rollout:
    """Run `steps` steps of a program.

    Args:
        program: The step program.
        steps: Number of steps.
        state: Initial state by name, shape (*batch, *buffer shape); its dtype (float32 or float64) is the precision.
        parameters: Parameters by name; shared, shape (*buffer shape), or one per world, with batch dimensions.
        controls: Controls by name, shape (*batch, steps, *buffer shape), or without batch if shared.
        record: Names of states (gives trajectories) and outputs to keep per step.
        options: How to execute the rollout: checkpoints, threads, memory, failures, progress.

    Returns:
        Final state, trajectories, outputs and status.

    Gradients:
        Exact for the discrete steps, with respect to state, parameters and controls; failed worlds contribute nothing.
        Dual numbers of `torch.autograd.forward_ad` give dual numbers: forward mode, of trajectories and outputs too.
        Second derivatives and torch.func transforms raise.

    Raises:
        InputError: A tensor has the wrong dtype, shape or device, or is not finite.
        MemoryBudgetError: The rollout does not fit; the message names a checkpoint interval that does.
        SimulationError: A world became non-finite (with on_failure="raise").
    """
    steps, workers, checkpoint = _steps_of(program, steps), *_checked(options)
    names = (record,) if isinstance(record, str) else tuple(dict.fromkeys(record)) if record else ()
    if not isinstance(checkpoint, str):
        checkpoint = min(checkpoint, steps)
    inputs, values = _inputs(program, steps, names, state, parameters, controls)
    ran = run(inputs, values, workers, checkpoint, options.memory_budget, options.progress)
    form, outs = ran.form, ran.outs
    if ran.failed and options.on_failure == "raise":
        raise failure(form, ran.status)
    states, end = len(form.states), len(form.states) + len(form.recorded)
    return Rollout(
        dict(zip(form.state_names, outs[:states], strict=True)),
        dict(zip(form.recorded, outs[states:end], strict=True)),
        dict(zip(form.output_names, outs[end:], strict=True)),
        status_tensor(ran.status, form.batch),
        ran.failed,
        steps,
        ran.interval,
        ran.bytes,
    )


class Run(NamedTuple):
    """Results of `run`: final states, trajectories and outputs in the order of the form; see `Ran` and `Rollout`."""

    form: Form
    outs: Sequence[Tensor]
    status: Integers
    failed: bool
    counts: Integers
    interval: int
    bytes: int


def run(
    inputs: Inputs,
    values: Sequence[Any],
    workers: int,
    checkpoint: int | str = 1,
    memory_budget: int | None = None,
    progress: bool | Callable[[int, int], None] = False,
    form: Form | None = None,
) -> Run:
    """`rollout` of values in the order of the names of `inputs`, without checks of options.

    Pass the `form` of the values if it is already known.

    Gradients:
        As in `rollout`.

    Raises:
        InputError, MemoryBudgetError: As in `rollout`; the caller handles failed worlds.
        KinemaError: Dual numbers of torch's forward mode require gradients.
    """
    _refuse_transforms()
    if forward_ad._current_level >= 0:
        rates = list(map(_rate, values))
        if any(rate is not None for rate in rates):
            return _run_dual(inputs, values, rates, workers, memory_budget, progress)
    form, tensors = inputs.form(values) if form is None else (form, inputs.ordered(values))
    sweep, interval, needed = planner_for(form, tensors, workers).choose(tensors, checkpoint, memory_budget)
    if not form.learned:
        outs, _, status, failed, counts = sweep.run(tensors, progress)
        return Run(form, outs, status, failed, counts, interval, needed)
    job = _Job(sweep, tensors, progress)
    made = _apply(job, *[tensors[i] for i in form.learned])
    return Run(form, made, *job.ended(), interval, needed)


def _run_dual(
    inputs: Inputs,
    values: Sequence[Any],
    rates: Sequence[Tensor | None],
    workers: int,
    budget: int | None,
    progress: bool | Callable[[int, int], None],
) -> Run:
    """`run` of dual numbers of torch's forward mode, to dual numbers."""
    values = [forward_ad.unpack_dual(v).primal if isinstance(v, Tensor) else v for v in values]
    form, tensors = inputs.form(values)
    if form.learned:
        raise KinemaError(
            "torch's forward mode and reverse mode do not work on one rollout",
            fix="use torch.no_grad(), or detach the inputs of the forward mode",
        )
    named = zip((b.name for b in inputs.given), rates, strict=True)
    directions = {name: rate.expand(form.full(name)) for name, rate in named if rate is not None}
    sweep = _tangent_of(form, tensors, directions, workers)
    require(sweep.bytes, budget)
    ran = sweep.run([*tensors, *directions.values()], progress)
    made = [
        out if rate is None else forward_ad.make_dual(out, rate) for out, rate in zip(ran.outs, ran.rates, strict=True)
    ]
    return Run(form, made, ran.status, ran.failed, ran.counts, int(bool(form.recorded)), sweep.bytes)


def _rate(value: Any) -> Tensor | None:
    """The tangent of a dual number; None for other values, and where it is known to be zero."""
    rate = forward_ad.unpack_dual(value).tangent if isinstance(value, Tensor) else None
    return None if rate is None or rate._is_zerotensor() else rate.detach()


def _tangent_of(form: Form, tensors: Sequence[Tensor], directions: dict[str, Tensor], workers: int) -> Tangent:
    """The forward sweep with tangents along directions like these; the form caches it."""
    key = (workers, *((name, t.stride(), t.is_neg()) for name, t in directions.items()))
    return keep_in(form.prepared, key, lambda: Tangent(form, tensors, directions, workers))


def jvp(
    program: Program,
    steps: int,
    state: Mapping[str, Any],
    tangents: Mapping[str, Any],
    parameters: Mapping[str, Any] | None = None,
    controls: Mapping[str, Any] | None = None,
    *,
    options: RunOptions = DEFAULT,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Directional derivative of a rollout (forward mode).

    Args:
        program: The step program.
        steps: Number of steps.
        state: As in `rollout`.
        tangents: Directions by buffer name (states, parameters, controls), shaped like these; absent ones are zero.
        parameters: As in `rollout`.
        controls: As in `rollout`.
        options: As in `rollout`; keeps no states and raises if a world becomes non-finite, whatever they say.

    Returns:
        The final state and its tangent, by name.

    Gradients:
        None: the results are detached.

    Raises:
        InputError, SimulationError: As in `rollout`.
    """
    _refuse_transforms()
    with torch.no_grad():
        steps, workers, _ = _steps_of(program, steps), *_checked(options)
        inputs, values = _inputs(program, steps, (), state, parameters, controls)
        form, tensors = inputs.form(values)
        directions = {name: _direction(form, name, value) for name, value in named("tangent", tangents).items()}
        sweep = _tangent_of(form, tensors, directions, workers)
        ran = sweep.run([*tensors, *directions.values()], options.progress)
    if ran.failed:
        raise failure(form, ran.status)
    rates = [rate for rate in ran.rates if rate is not None]
    return dict(zip(form.state_names, ran.outs, strict=True)), dict(zip(form.state_names, rates, strict=True))


def _steps_of(program: Any, steps: Any) -> int:
    """Check that `program` is a Program and `steps` a positive integer; returns the number of steps."""
    if not isinstance(program, Program):
        raise InputError("a rollout needs a Program", got=type(program).__name__)
    return positive("steps", steps)


def _checked(options: Any) -> tuple[int, int | str]:
    """Number of worker threads and interval of checkpoints of valid options.

    Raises:
        InputError: They are of another type, or a value is unusable.
    """
    expect_options(options)
    if options.on_failure not in ("raise", "status"):
        raise InputError("on_failure is unknown", got=repr(options.on_failure), expected="'raise' or 'status'")
    interval = options.checkpoint
    return workers_of(options.threads), interval if interval == "auto" else positive("checkpoint", interval)


def workers_of(threads: Any) -> int:
    """The number of worker threads, all CPUs of the process for None."""
    if type(threads) is int and threads > 0:
        return threads
    return _all_cpus() if threads is None else positive("threads", threads)


def _inputs(
    program: Program, steps: int, record: tuple[str, ...], state: Any, parameters: Any, controls: Any
) -> tuple[Inputs, list[Any]]:
    """The `Inputs` of the given names, and the values in the same order."""
    given = named(STATE, state), named(PARAMETER, parameters), named(CONTROL, controls)
    names = tuple(given[0]), tuple(given[1]), tuple(given[2])
    return inputs_of(program, steps, record, names), [value for one in given for value in one.values()]


def _direction(form: Form, name: str, value: Any) -> Tensor:
    """A tangent, expanded to all worlds."""
    inputs = form.inputs
    if name not in inputs or "i" in inputs[name].kinds:
        possible = [n for n, buffer in inputs.items() if "f" in buffer.kinds]
        raise InputError(f"unknown input {name!r} of a tangent", expected=", ".join(possible))
    tensor = form.tensor(f"tangent of {name!r}", inputs[name], value).detach()
    batch = form.batch_of(inputs[name], tensor)
    if common_batch(["the inputs", f"tangent of {name!r}"], [form.batch, batch]) != form.batch:
        raise InputError(f"tangent of {name!r} has more worlds than the inputs", got=batch, expected=form.batch)
    return tensor.expand(form.full(name))


def failure(form: Form, status: Integers) -> SimulationError:
    """The error for non-finite worlds."""
    steps = np.array(status)
    failed = np.flatnonzero(steps >= 0)
    return SimulationError(
        f"{len(failed)} of {form.worlds} worlds of {form.program.name!r} became non-finite",
        worlds=failed.tolist(),
        steps=steps[failed].tolist(),
        fix='use a smaller time step; on_failure="status" returns the other worlds',
    )


class _Job:
    """One rollout that torch may differentiate: its sweep; its inputs until it runs, then its status."""

    __slots__ = ("counts", "failed", "progress", "status", "sweep", "tensors")

    def __init__(self, sweep: Forward, tensors: Sequence[Tensor], progress: bool | Callable[[int, int], None]) -> None:
        self.sweep, self.tensors, self.progress = sweep, tensors, progress
        self.status: Integers | None = None
        self.counts: Integers = ()
        self.failed = False

    def forward(self) -> Ran:
        """Run, and release the inputs: torch keeps those that the reverse sweep needs."""
        ran = self.sweep.run(self.tensors, self.progress)
        _, _, self.status, self.failed, self.counts = ran
        self.tensors = ()
        return ran

    def ended(self) -> tuple[Integers, bool, Integers]:
        """The status, which the user now owns, whether a world failed (then the job keeps a copy), and counts."""
        status, self.status = self.status, copy(self.status) if self.failed else None
        return status, self.failed, self.counts


class _RolloutFunction(torch.autograd.Function):
    """One node of torch's graph per rollout; its inputs are those that require gradients."""

    @staticmethod
    def forward(ctx: Any, job: _Job, *learned: Tensor) -> Any:
        again = [job.tensors[i] for i in job.sweep.read_again]
        ran = job.forward()
        ctx.job = job
        ctx.set_materialize_grads(False)
        # Save learned inputs, so that torch refuses in-place edits, as for other functions. Trajectories may be views
        # of kept memory, so torch also detects in-place edits of them.
        ctx.save_for_backward(*learned, *again, *ran.kept)
        return tuple(ran.outs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        _refuse_transforms(*cotangents)
        saved, job, needs = ctx.saved_tensors, ctx.job, ctx.needs_input_grad
        sweep = job.sweep
        first = len(needs) - 1
        last = first + len(sweep.read_again)
        read, kept = saved[first:last], saved[last:]
        found = sweep.reverse(needs, read, kept, cotangents).run(read, kept, job.status, cotangents, job.progress)
        if torch.is_grad_enabled():
            sources = [*saved[:last], *(c for c in cotangents if c is not None)]
            found = [_FirstOrderOnly.apply(gradient, *sources) for gradient in found]
        left = iter(found)
        return tuple([next(left) if need else None for need in needs])


# Bypasses torch's search for transforms, which are refused anyway.
_apply = super(torch.autograd.Function, _RolloutFunction).apply


class _FirstOrderOnly(torch.autograd.Function):
    """Passes a gradient on and refuses, with a clear error, to differentiate it again."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *sources: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        raise KinemaError(
            "second derivatives of a rollout are not available",
            fix="do not differentiate gradients of a rollout; for curvature, use finite differences of gradients",
        )


_transforms_active = torch._C._are_functorch_transforms_active
_is_batched = torch._C._functorch.is_legacy_batchedtensor


def _refuse_transforms(*cotangents: Tensor | None) -> None:
    if _transforms_active() or [c for c in cotangents if c is not None and _is_batched(c)]:
        raise KinemaError(
            "torch.func transforms (vmap, grad, jvp, ...) and batched gradients do not work on rollouts",
            fix="use leading dimensions for batches, backward() for gradients, kinema.jvp for directional derivatives",
        )


_counted = (-math.inf, 1)


def _all_cpus() -> int:
    """CPUs of this process, counted at most once per RECOUNT."""
    global _counted
    if time.monotonic() - _counted[0] > RECOUNT:
        _counted = (time.monotonic(), cpu.threads())
    return _counted[1]


def positive(what: str, value: Any) -> int:
    """Check that a value is a positive integer; returns it as an int."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        auto = " or 'auto'" if what == "checkpoint" else ""
        raise InputError(f"{what} must be a positive integer{auto}", got=repr(value))
    return number
