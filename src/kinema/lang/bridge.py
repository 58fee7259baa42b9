"""Rollouts of a program as one torch operation: N steps in one native call, the adjoint in one more."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from kinema.errors import InputError, KinemaError, SimulationError
from kinema.lang import cpu, memory
from kinema.lang.analysis import ELEMENTS, WORLDS
from kinema.lang.emit_simd import AOS
from kinema.lang.execute import CHECKPOINT, Execution, View, aligned, plan_for
from kinema.lang.plan import ADJOINT, PRIMAL, SEED, TANGENT, Options, Plan, checking
from kinema.lang.program import CONSTANT, CONTROL, OUTPUT, PARAMETER, SCRATCH, STATE, Buffer, Program
from kinema.lang.progress import Progress

LANE_BYTES = 1 << 20  # worlds share registers while a block's memory stays below this
RECOUNT = 1.0  # seconds after which the CPUs are counted again

Key = tuple[str, str]  # name and space of a buffer


@dataclass
class Rollout:
    """Results of a rollout.

    Attributes:
        final: State after the last step, by name, shape (*batch, *buffer shape).
        trajectory: States at times 0 ... steps for the names asked for, shape (*batch, steps + 1, ...).
        outputs: Recorded outputs, shape (*batch, steps, ...).
        status: Per world -1, or the first step whose end state is not finite, shape batch, int64.
        interval: The checkpoint interval that was used.
        bytes: Memory of the rollout that was predicted before it ran [bytes].
    """

    final: dict[str, Tensor]
    trajectory: dict[str, Tensor]
    outputs: dict[str, Tensor]
    status: Tensor
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
    checkpoint: int | str = 1,
    memory_budget: int | None = None,
    threads: int | None = None,
    on_failure: str = "raise",
    progress: bool | Callable[[int, int], None] = True,
) -> Rollout:
    """Run `steps` steps of a program.

    Args:
        program: The step program.
        steps: Number of steps.
        state: Initial state by name, shape (*batch, *buffer shape); its dtype (float32 or float64) is the precision.
        parameters: Parameters by name; shared, shape (*buffer shape), or one per world, with batch dimensions.
        controls: Controls by name, shape (*batch, steps, *buffer shape), or without batch if shared.
        record: Names of states (gives trajectories) and outputs to keep per step.
        checkpoint: Keep the state every so many steps for the reverse sweep; "auto" picks the smallest that fits.
        memory_budget: Bytes the rollout may take; 80 % of the available memory by default.
        threads: Worker threads; all CPUs of the process by default. No effect on any bit of the result.
        on_failure: "raise" if a world becomes non-finite, or "status" to return with its status set.
        progress: Show progress of long rollouts, or a function of (steps done, steps).

    Returns:
        Final state, trajectories, outputs and status.

    Gradients:
        Exact for the discrete steps, with respect to state, parameters and controls; a failed world contributes
        nothing. Second derivatives and torch.func transforms are not available and raise.

    Raises:
        InputError: A tensor has the wrong dtype, shape or device, or is not finite.
        MemoryBudgetError: The rollout would not fit; names the checkpoint interval that does.
        SimulationError: A world became non-finite (with on_failure="raise").
    """
    _refuse_transforms()
    if on_failure not in ("raise", "status"):
        raise InputError("on_failure is unknown", got=repr(on_failure), expected="'raise' or 'status'")
    job = _Job(program, steps, state, parameters, controls, record, checkpoint, memory_budget, threads, progress)
    if torch.is_grad_enabled() and any(t.requires_grad for t in job.tensors):
        outs = _RolloutFunction.apply(job, *job.tensors)
    else:
        outs, _ = job.forward(keep=False)
    if on_failure == "raise":
        job.raise_failures()
    return job.results(outs)


def jvp(
    program: Program,
    steps: int,
    state: Mapping[str, Any],
    tangents: Mapping[str, Any],
    parameters: Mapping[str, Any] | None = None,
    controls: Mapping[str, Any] | None = None,
    *,
    threads: int | None = None,
    progress: bool | Callable[[int, int], None] = True,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Directional derivative of a rollout (forward mode).

    Args:
        program: The step program.
        steps: Number of steps.
        state: As in `rollout`.
        tangents: Directions by buffer name (states, parameters, controls), shaped like these; absent ones are zero.
        parameters: As in `rollout`.
        controls: As in `rollout`.
        threads: As in `rollout`.
        progress: As in `rollout`.

    Returns:
        The final state and its tangent, by name.

    Gradients:
        None are recorded: the results are plain tensors.

    Raises:
        InputError, SimulationError: As in `rollout`.
    """
    _refuse_transforms()
    with torch.no_grad():
        job = _Job(program, steps, state, parameters, controls, (), 1, None, threads, progress)
        found = job.tangent(tangents)
    job.raise_failures()
    return found


class _Job:
    """Checked inputs of one rollout, and how their numbers travel to and from native memory."""

    def __init__(
        self,
        program: Program,
        steps: int,
        state: Any,
        parameters: Any,
        controls: Any,
        record: Any,
        checkpoint: Any,
        budget: int | None,
        threads: int | None,
        progress: bool | Callable[[int, int], None],
    ) -> None:
        if not isinstance(program, Program):
            raise InputError("a rollout needs a Program", got=type(program).__name__)
        self.program, self.progress, self.budget = program, progress, budget
        self.steps = _positive("steps", steps)
        self.threads = _all_cpus() if threads is None else _positive("threads", threads)
        self.record = self._check_record(record)
        self.checkpoint = checkpoint if checkpoint == "auto" else min(_positive("checkpoint", checkpoint), self.steps)
        given = {kind: _named(kind, v) for kind, v in ((STATE, state), (PARAMETER, parameters), (CONTROL, controls))}
        self.dtype, self.like = _precision(program, given)
        self.names: list[str] = []
        self.tensors: list[Tensor] = []
        self.batches: list[tuple[int, ...]] = []
        for kind, values in given.items():
            self._collect(kind, values)
        _refuse_dual(self.tensors)
        self.shapes = [t.shape for t in self.tensors]
        self.batch = _common_batch(self.names, self.batches)
        self.worlds = math.prod(self.batch)
        if self.worlds < 1:
            raise InputError("the batch is empty", got=self.batch, fix="leave the rollout out when there is no world")
        pairs = zip(self.names, self.batches, strict=True)
        self.shared = {name for name, batch in pairs if not batch and program.buffers[name].kind != STATE}
        self.status = np.empty(0, np.int64)
        self.interval = 0
        self.bytes = 0

    def _check_record(self, record: Any) -> tuple[str, ...]:
        names = (record,) if isinstance(record, str) else tuple(dict.fromkeys(record))
        possible = [b.name for b in self.program.buffers.values() if b.kind in (STATE, OUTPUT)]
        for name in names:
            if name not in possible:
                raise InputError(
                    f"record: program {self.program.name!r} has no state or output {name!r}",
                    expected=", ".join(possible) or "nothing: it has neither",
                )
        return names

    def _collect(self, kind: str, values: Mapping[str, Any]) -> None:
        """Check the tensors of one kind against the buffers and append them in the order of declaration."""
        buffers = {b.name: b for b in self.program.buffers.values() if b.kind == kind}
        for name in values:
            if name not in buffers:
                raise InputError(
                    f"program {self.program.name!r} has no {kind} {name!r}", expected=", ".join(buffers) or "none"
                )
        for name, buffer in buffers.items():
            if name not in values:
                raise InputError(
                    f"{kind} {name!r} is missing", expected=f"{', '.join(buffers)} of program {self.program.name!r}"
                )
            tensor = self._tensor(f"{kind} {name!r}", buffer, values[name])
            self.names.append(name)
            self.tensors.append(tensor)
            self.batches.append(tuple(tensor.shape[: tensor.ndim - len(self.tail(buffer))]))

    def tail(self, buffer: Buffer) -> tuple[int, ...]:
        """Shape of a buffer's tensor behind the batch dimensions."""
        return (self.steps, *buffer.shape) if buffer.kind == CONTROL else buffer.shape

    def _tensor(self, where: str, buffer: Buffer, value: Any) -> Tensor:
        """A value given for a buffer as a dense CPU tensor of the right type and shape."""
        integer = "i" in buffer.kinds
        wanted = torch.int32 if integer else self.dtype
        tensor = value if isinstance(value, Tensor) else _from_plain(where, value, wanted)
        if tensor.device.type != "cpu":
            fix = "give it values: meta tensors have none" if tensor.is_meta else ".cpu()"
            raise InputError(f"{where} is on another device", got=tensor.device, expected="cpu", fix=fix)
        if tensor.layout != torch.strided:
            raise InputError(f"{where} must be a dense tensor", got=tensor.layout, fix=".to_dense()")
        if tensor.dtype != wanted and not (integer and tensor.dtype == torch.int64):
            expected = "torch.int32 or torch.int64" if integer else f"{wanted}, like {self.like}"
            raise InputError(f"{where} has the wrong dtype", got=tensor.dtype, expected=expected, fix=f".to({wanted})")
        tail = self.tail(buffer)
        if tensor.ndim < len(tail) or tuple(tensor.shape[tensor.ndim - len(tail) :]) != tail:
            shape = ", ".join(map(str, ("*batch", *tail)))
            steps = " (the first number is steps)" if buffer.kind == CONTROL else ""
            raise InputError(
                f"{where} has the wrong shape",
                got=f"({', '.join(map(str, tensor.shape))})",
                expected=f"({shape}){steps}",
            )
        return tensor

    # -- forward ------------------------------------------------------------------------------------------------

    def plan(self, wrt: frozenset[str] = frozenset(), seeds: frozenset[str] = frozenset()) -> Plan:
        """The compiled program for these inputs, remembered by the program."""
        precision = 8 if self.dtype == torch.float64 else 4
        lanes, width = self._lanes(precision)
        outputs = frozenset(n for n in self.record if self.program.buffers[n].kind == OUTPUT)
        return plan_for(self.program, Options(precision, lanes, width, wrt, outputs, seeds, checking()))

    def _lanes(self, precision: int) -> tuple[str, int]:
        """Worlds share registers when there are many small ones; otherwise elements do. Bits are the same."""
        width = _width(precision)
        if not self.worlds >= width > 1:
            return ELEMENTS, width
        buffers = [b for b in self.program.buffers.values() if b.kind in (STATE, SCRATCH, PARAMETER)]
        size = sum(b.length * len(b.kinds) for b in buffers) * precision * width
        # Worlds that share registers share the tables of indices too.
        own_tables = any("i" in self.program.buffers[n].kinds and n not in self.shared for n in self.names)
        return (ELEMENTS if size > LANE_BYTES or own_tables or self.program.lanes_are_elements else WORLDS), width

    def execution(self, compiled: Plan) -> Execution:
        """A run of a plan with the settings of this rollout."""
        return Execution(compiled, self.worlds, self.steps, self.interval, self.threads, self.shared)

    def forward(self, keep: bool) -> tuple[list[Tensor], dict[Key, Tensor]]:
        """Run; returns final states, trajectories and outputs, and the memory that a reverse sweep needs."""
        recorded = [n for n in self.record if self.program.buffers[n].kind == STATE]
        run = self.execution(self.plan())
        self.interval = run.interval = self._choose_interval(run, keep, recorded)
        self._pack_inputs(run)
        self._watch(run.forward, "simulating")
        self.status = run.status
        kept = self._kept(run) if keep or recorded else {}
        outs = self._collect_outputs(run, recorded, kept)
        self.tensors = []  # torch keeps what it needs
        return outs, kept if keep else {}

    def _choose_interval(self, run: Execution, keep: bool, recorded: list[str]) -> int:
        """The checkpoint interval, 0 to keep nothing; predicts and checks the memory."""
        buffers = self.program.buffers.values()
        state = run.blocks * sum(run.plan.places[b.name].bytes for b in buffers if b.kind == STATE)
        others = self._other_bytes(run, keep)
        if not keep and not recorded:
            self.bytes = others + 2 * state
            memory.require(self.bytes, self.budget)
            return 0
        asked = self.checkpoint if keep else 1
        if recorded and asked != 1:
            if asked != "auto":
                raise InputError(
                    "trajectories of states need checkpoint=1",
                    got=f"checkpoint={asked}",
                    fix="record an output instead, or leave checkpoint at 1",
                )
            asked = 1
        interval = memory.choose_interval(asked, state, self.steps, others, self.budget)
        self.bytes = others + memory.checkpoint_bytes(state, self.steps, interval)
        return interval

    def _other_bytes(self, run: Execution, keep: bool) -> int:
        """Bytes of everything but the states: primal buffers and, for a reverse sweep, their cotangents."""
        total = 0
        for buffer in self.program.buffers.values():
            if buffer.kind == STATE:
                total += keep * 2 * run.bytes_of(buffer, ADJOINT, False)
                continue
            total += run.bytes_of(buffer, PRIMAL, False)
            if keep and buffer.kind != CONSTANT and "f" in buffer.kinds:
                total += run.bytes_of(buffer, ADJOINT, False)
        return total

    def _pack_inputs(self, run: Execution) -> None:
        for name, tensor in zip(self.names, self.tensors, strict=True):
            view, alive = self._view(self.program.buffers[name], tensor.detach())
            run.pack(name, PRIMAL, view, finite=True)
            del alive

    def _view(self, buffer: Buffer, tensor: Tensor) -> tuple[View, Tensor]:
        """A tensor (*batch, [time], *buffer shape) as pointer and strides; copies only what cannot be strided."""
        slots = self.steps if buffer.kind == CONTROL else 0
        if buffer.name in self.shared:
            return _strided(buffer, tensor, 0, slots)
        shape = (*self.batch, *self.tail(buffer))
        return _strided(buffer, tensor if tensor.shape == shape else tensor.expand(shape), self.worlds, slots)

    def _watch(self, run: Callable[..., None], what: str, **options: Any) -> None:
        bar = Progress(f"{what} {self.program.name}", self.steps, self.progress)
        try:
            run(poll=bar.poll, **options)
        except KeyboardInterrupt as interrupt:
            raise (bar.error or interrupt) from None
        finally:
            bar.close()

    def _kept(self, run: Execution) -> dict[Key, Tensor]:
        """What the reverse sweep reads: kept states and inputs, as tensors, so that torch owns and guards them."""
        space = CHECKPOINT if self.interval > 1 else PRIMAL
        kinds = {STATE: space, PARAMETER: PRIMAL, CONTROL: PRIMAL}
        keys = [(b.name, kinds[b.kind]) for b in self.program.buffers.values() if b.kind in kinds]
        return {key: torch.from_numpy(run.memory[key].bytes) for key in keys if key in run.memory}

    def _collect_outputs(self, run: Execution, recorded: list[str], kept: dict[Key, Tensor]) -> list[Tensor]:
        outs = []
        last = self.steps if self.interval == 1 else self.steps % 2
        for buffer in self.program.buffers.values():
            if buffer.kind == STATE:
                outs.append(self._read(run, buffer, PRIMAL, slot=last))
        for name in recorded:
            outs.append(self._trajectory(run, self.program.buffers[name], kept[name, PRIMAL]))
        for name in self.record:
            if self.program.buffers[name].kind == OUTPUT:
                outs.append(self._read(run, self.program.buffers[name], PRIMAL, slots=self.steps))
        return outs

    def _read(
        self, run: Execution, buffer: Buffer, space: str, slots: int = 0, slot: int = 0, reverse: bool = False
    ) -> Tensor:
        """A buffer as a fresh tensor (*batch, [slots], *buffer shape); without `slots`, one slot and no time."""
        dtype = torch.int32 if "i" in buffer.kinds else self.dtype
        middle = (slots,) if slots else ()
        out = _zeros((*self.batch, *middle, *buffer.shape), dtype)
        view, _ = _strided(buffer, out, self.worlds, slots)
        run.unpack(buffer.name, space, view, slot, reverse)
        return out

    def _trajectory(self, run: Execution, buffer: Buffer, kept: Tensor) -> Tensor:
        """All states; where the layout allows it a view of the checkpoints themselves, without a copy."""
        place = run.plan.places[buffer.name]
        if place.layout != AOS or place.lanes > 1:
            return self._read(run, buffer, PRIMAL, slots=self.steps + 1)
        slot = place.bytes // place.item
        inner = (place.numbers,) if buffer.count is not None else ()
        tail = _contiguous_strides(buffer.shape[len(inner) :])
        strides = ((self.steps + 1) * slot, slot, *inner, *tail)
        whole = kept.view(self.dtype).as_strided((self.worlds, self.steps + 1, *buffer.shape), strides)
        return whole.reshape(*self.batch, self.steps + 1, *buffer.shape)

    def raise_failures(self) -> None:
        """Raise SimulationError if a world became non-finite."""
        if self.status.max() >= 0:
            failed = np.flatnonzero(self.status >= 0).tolist()
            raise SimulationError(
                f"{len(failed)} of {self.worlds} worlds of {self.program.name!r} became non-finite",
                worlds=failed,
                steps=self.status[failed].tolist(),
                fix='use a smaller time step or softer material; on_failure="status" returns the other worlds',
            )

    def results(self, outs: Sequence[Tensor]) -> Rollout:
        """Sort the flat outputs into a Rollout."""
        final, trajectory, outputs = self._sorted(outs)
        status = torch.from_numpy(self.status.copy()).reshape(self.batch)
        return Rollout(final, trajectory, outputs, status, self.interval, self.bytes)

    def _sorted(self, outs: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Values in the order of the outputs, by name: final states, trajectories, outputs."""
        left = iter(outs)
        buffers = self.program.buffers
        final = {b.name: next(left) for b in buffers.values() if b.kind == STATE}
        trajectory = {n: next(left) for n in self.record if buffers[n].kind == STATE}
        return final, trajectory, {n: next(left) for n in self.record if buffers[n].kind == OUTPUT}

    # -- backward -----------------------------------------------------------------------------------------------

    def backward(
        self, needs: Sequence[bool], kept: Mapping[Key, Tensor], cotangents: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """Cotangents of the inputs, given those of the outputs; None where nothing is needed."""
        buffers = self.program.buffers
        final, along, outputs = self._sorted(cotangents)
        wrt = frozenset(n for n, need in zip(self.names, needs, strict=True) if need and buffers[n].kind != STATE)
        run = self.execution(self.plan(wrt, frozenset(n for n, c in along.items() if c is not None)))
        run.status = self.status
        run.memory = {key: aligned(tensor.numpy()) for key, tensor in kept.items()}
        for name, cotangent in final.items():
            self._pack_cotangent(run, buffers[name], ADJOINT, cotangent, slot=self.steps % 2)
        for name, cotangent in along.items():
            if cotangent is not None:
                later = cotangent.narrow(len(self.batch), 1, self.steps)
                self._pack_cotangent(run, buffers[name], SEED, later, slots=self.steps)
        for name, cotangent in outputs.items():
            self._pack_cotangent(run, buffers[name], ADJOINT, cotangent, slots=self.steps)
        self._watch(run.backward, "differentiating")
        inputs = zip(self.names, self.shapes, needs, strict=True)
        return [self._gradient(run, n, shape, along.get(n)) if need else None for n, shape, need in inputs]

    def _pack_cotangent(
        self, run: Execution, buffer: Buffer, space: str, cotangent: Tensor | None, slots: int = 0, slot: int = 0
    ) -> None:
        run.allocate(buffer.name, space, True)
        if cotangent is None:
            return
        view, alive = _strided(buffer, cotangent.detach(), self.worlds, slots)
        run.pack(buffer.name, space, view, slot, True)
        del alive

    def _gradient(self, run: Execution, name: str, shape: torch.Size, along: Tensor | None) -> Tensor:
        """The cotangent of one input, in its own shape; `along` is that of its trajectory."""
        buffer = self.program.buffers[name]
        slots = self.steps if buffer.kind == CONTROL else 0
        if name in self.shared:
            out = _zeros(self.tail(buffer), self.dtype)
            view, _ = _strided(buffer, out, 0, slots)
            run.unpack(name, ADJOINT, view, reverse=True, sum_worlds=True)
            return out
        out = self._read(run, buffer, ADJOINT, slots, reverse=True)
        if along is not None:
            first = along.select(len(self.batch), 0)
            alive = torch.from_numpy(self.status < 0).reshape(*self.batch, *[1] * len(buffer.shape))
            out += torch.where(alive, first, 0.0)
        return out.sum_to_size(shape)

    # -- forward mode -------------------------------------------------------------------------------------------

    def tangent(self, tangents: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Final state and its tangent."""
        buffers = self.program.buffers
        directions = {name: self._direction(name, value) for name, value in _named("tangent", tangents).items()}
        self.shared -= set(directions)
        run = self.execution(self.plan(frozenset(n for n in directions if buffers[n].kind != STATE)))
        self._pack_inputs(run)
        for name, direction in directions.items():
            view, alive = self._view(buffers[name], direction)
            run.pack(name, TANGENT, view, finite=True)
            del alive
        self._watch(run.forward, "simulating", which="tangent")
        self.status = run.status
        states = [b for b in buffers.values() if b.kind == STATE]
        last = self.steps % 2
        final = {b.name: self._read(run, b, PRIMAL, slot=last) for b in states}
        return final, {b.name: self._read(run, b, TANGENT, slot=last) for b in states}

    def _direction(self, name: str, value: Any) -> Tensor:
        if name not in self.names or "i" in self.program.buffers[name].kinds:
            possible = [n for n in self.names if "f" in self.program.buffers[n].kinds]
            raise InputError(f"there is no input {name!r} to take a tangent of", expected=", ".join(possible))
        buffer = self.program.buffers[name]
        tensor = self._tensor(f"tangent of {name!r}", buffer, value).detach()
        batch = tuple(tensor.shape[: tensor.ndim - len(self.tail(buffer))])
        if _common_batch(["the inputs", f"tangent of {name!r}"], [self.batch, batch]) != self.batch:
            raise InputError(f"tangent of {name!r} has more worlds than the inputs", got=batch, expected=self.batch)
        return tensor


class _RolloutFunction(torch.autograd.Function):
    """One node of torch's graph per rollout."""

    @staticmethod
    def forward(ctx: Any, job: _Job, *tensors: Tensor) -> Any:
        outs, kept = job.forward(keep=True)
        ctx.job, ctx.keys, ctx.inputs = job, list(kept), len(tensors)
        ctx.set_materialize_grads(False)
        # Trajectories can be views of what is kept: torch then notices edits in place.
        ctx.save_for_backward(*tensors, *kept.values())
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        _refuse_transforms(*cotangents)
        inputs, kept = ctx.saved_tensors[: ctx.inputs], ctx.saved_tensors[ctx.inputs :]
        grads = ctx.job.backward(ctx.needs_input_grad[1:], dict(zip(ctx.keys, kept, strict=True)), cotangents)
        if torch.is_grad_enabled():
            sources = [*inputs, *(c for c in cotangents if c is not None)]
            grads = [None if g is None else _FirstOrderOnly.apply(g, *sources) for g in grads]
        return (None, *grads)


class _FirstOrderOnly(torch.autograd.Function):
    """Passes a gradient on, and says clearly that it cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *sources: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        raise KinemaError(
            "second derivatives of a rollout are not available",
            fix="do not differentiate gradients of a rollout; for curvature take finite differences of gradients",
        )


def _refuse_transforms(*cotangents: Tensor | None) -> None:
    batched = any(c is not None and torch._C._functorch.is_legacy_batchedtensor(c) for c in cotangents)
    if batched or torch._C._are_functorch_transforms_active():
        raise KinemaError(
            "torch.func transforms (vmap, grad, jvp, ...) and batched gradients do not work on rollouts",
            fix="batches are leading dimensions; gradients come from backward(), directions from kinema.jvp",
        )


def _refuse_dual(tensors: Sequence[Tensor]) -> None:
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(t).tangent is not None for t in tensors):
        raise KinemaError("torch's forward mode does not work on rollouts", fix="use kinema.lang.bridge.jvp")


_DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.int32: "int32", torch.int64: "int64"}
_width = cache(cpu.lanes)
_counted = (-math.inf, 1)


def _all_cpus() -> int:
    """CPUs of this process, counted again now and then."""
    global _counted
    if time.monotonic() - _counted[0] > RECOUNT:
        _counted = (time.monotonic(), cpu.threads())
    return _counted[1]


def _positive(what: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        auto = " or 'auto'" if what == "checkpoint" else ""
        raise InputError(f"{what} must be a positive integer{auto}", got=repr(value))
    return number


def _named(kind: str, values: Any) -> Mapping[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise InputError(f"{kind}: give tensors by name", got=type(values).__name__, expected="a dictionary")
    return values


def _precision(program: Program, given: Mapping[str, Mapping[str, Any]]) -> tuple[torch.dtype, str]:
    """The dtype of the rollout and the input it comes from: the first array of real numbers, states first."""
    for kind, values in given.items():
        for name, value in values.items():
            if name not in program.buffers or "i" in program.buffers[name].kinds:
                continue
            if not isinstance(value, (Tensor, np.ndarray)):
                continue
            dtype = str(value.dtype).removeprefix("torch.")
            if dtype not in ("float32", "float64"):
                raise InputError(
                    f"{kind} {name!r} has the wrong dtype",
                    got=value.dtype,
                    expected="float32 or float64",
                    fix=".double() or .float()",
                )
            return getattr(torch, dtype), f"{kind} {name!r}"
    return torch.float64, "the default"


def _from_plain(where: str, value: Any, wanted: torch.dtype) -> Tensor:
    """A numpy array, a number or nested lists of numbers as a tensor; plain numbers take the dtype that is wanted."""
    try:
        array = np.array(value)
        tensor = torch.from_numpy(array)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{where} is no tensor", got=type(value).__name__, expected="a tensor of numbers") from None
    plain = not isinstance(value, np.ndarray)
    return tensor.to(wanted) if plain and (wanted.is_floating_point or array.dtype.kind == "i") else tensor


def _common_batch(names: Sequence[str], batches: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    different = {b for b in batches if b}
    if len(different) < 2:
        return different.pop() if different else ()
    try:
        return tuple(torch.broadcast_shapes(*different))
    except RuntimeError:
        shown = ", ".join(f"{n}: {b}" for n, b in zip(names, batches, strict=True) if b)
        raise InputError(
            "batch dimensions do not match", got=shown, expected="equal or absent batch dimensions"
        ) from None


def _zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros from the allocator: torch.zeros wakes its threads, which costs milliseconds on a busy machine."""
    return torch.from_numpy(np.zeros(shape, str(dtype).removeprefix("torch.")))


def _contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _strided(buffer: Buffer, tensor: Tensor, worlds: int, slots: int) -> tuple[View, Tensor]:
    """A tensor (worlds, slots, *buffer shape) as a View, without a copy where its strides allow it.

    `worlds` = 0: it is shared by all; `slots` = 0: it has no time. The second value keeps the memory alive.
    """
    tensor = tensor.resolve_neg() if tensor.is_neg() else tensor
    flat = tensor.reshape(*(n for n in (worlds, slots) if n), buffer.length, len(buffer.kinds))
    *lead, element, number = flat.stride()
    time = lead.pop() if slots else 0
    world = lead.pop() if worlds else 0
    return View(flat.data_ptr(), _DTYPES[flat.dtype], slots or 1, world, time, element, number), flat
