"""Rollouts of a program as one torch operation: N steps in one native call, the adjoint in one more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kinema.errors import InputError, KinemaError, SimulationError
from kinema.lang import cpu, memory
from kinema.lang.analysis import ELEMENTS, WORLDS
from kinema.lang.emit_simd import AOS
from kinema.lang.execute import CHECKPOINT, Execution, View
from kinema.lang.plan import ADJOINT, PRIMAL, SEED, TANGENT, Options, Plan, checking
from kinema.lang.program import CONSTANT, CONTROL, OUTPUT, PARAMETER, SCRATCH, STATE, Buffer, Program
from kinema.lang.progress import Progress

LANE_BYTES = 1 << 20  # worlds share registers while a block's memory stays below this


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
    job = _Job(program, steps, state, parameters or {}, controls or {}, record, checkpoint, memory_budget, threads, progress)
    _refuse_transforms()
    if torch.is_grad_enabled() and any(t.requires_grad for t in job.tensors):
        outs = _RolloutFunction.apply(job, *job.tensors)
    else:
        outs = job.forward(keep=False)
    status = job.execution.status
    failed = [int(w) for w in (status >= 0).nonzero()[0]]
    if failed and on_failure == "raise":
        raise SimulationError(
            f"{len(failed)} of {job.worlds} worlds of {program.name!r} became non-finite",
            worlds=failed,
            steps=[int(status[w]) for w in failed],
            fix='use a smaller time step or softer material; on_failure="status" returns the other worlds',
        )
    return job.results(outs)


def jvp(program: Program, steps: int, state: Mapping[str, Any], tangents: Mapping[str, Any], parameters: Mapping[str, Any] | None = None, controls: Mapping[str, Any] | None = None, *, threads: int | None = None) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Directional derivative of a rollout (forward mode).

    Args:
        program: The step program.
        steps: Number of steps.
        state: As in `rollout`.
        tangents: Directions by buffer name (states, parameters, controls), shaped like these; absent ones are zero.
        parameters: As in `rollout`.
        controls: As in `rollout`.
        threads: As in `rollout`.

    Returns:
        The final state and its tangent, by name.

    Gradients:
        None are recorded: the results are plain tensors.
    """
    job = _Job(program, steps, state, parameters or {}, controls or {}, (), 1, None, threads, False)
    unknown = [n for n in tangents if n not in job.names]
    if unknown:
        raise InputError(f"tangent of unknown input {unknown[0]!r}", expected=", ".join(job.names))
    with torch.no_grad():
        return job.tangent(tangents)


class _Job:
    """Checked inputs of one rollout, and the execution that runs it."""

    def __init__(self, program: Program, steps: int, state: Any, parameters: Any, controls: Any, record: Any, checkpoint: Any, budget: Any, threads: Any, progress: Any) -> None:
        self.program, self.steps, self.progress = program, steps, progress
        if not isinstance(steps, int) or steps < 1:
            raise InputError("steps must be a positive integer", got=steps)
        self.record = self._check_record(record)
        if not (checkpoint == "auto" or (isinstance(checkpoint, int) and checkpoint >= 1)):
            raise InputError("checkpoint must be a positive integer or 'auto'", got=repr(checkpoint))
        self.checkpoint, self.budget = (min(checkpoint, steps) if isinstance(checkpoint, int) else checkpoint), budget
        self.threads = cpu.threads() if threads is None else int(threads)
        if self.threads < 1:
            raise InputError("threads must be at least 1", got=threads)
        given = {STATE: state, PARAMETER: parameters, CONTROL: controls}
        self.dtype = _dtype_of(state)
        self.names: list[str] = []
        self.tensors: list[Tensor] = []
        self.batches: list[tuple[int, ...]] = []
        for kind, values in given.items():
            self._collect(kind, values)
        self.batch = _common_batch(self.names, self.batches)
        self.worlds = 1
        for n in self.batch:
            self.worlds *= n
        if self.worlds < 1:
            raise InputError("the batch is empty", got=self.batch)
        self.shared = {n for n, b in zip(self.names, self.batches, strict=True) if not b and program.buffers[n].kind != STATE}
        self.interval = 0
        self.bytes = 0

    def _check_record(self, record: Any) -> tuple[str, ...]:
        names = (record,) if isinstance(record, str) else tuple(record)
        possible = [b.name for b in self.program.buffers.values() if b.kind in (STATE, OUTPUT)]
        for name in names:
            if name not in possible:
                raise InputError(f"record: program {self.program.name!r} has no state or output {name!r}", expected=", ".join(possible))
        return names

    def _collect(self, kind: str, values: Mapping[str, Any]) -> None:
        """Check the tensors of one kind against the buffers and append them in the order of declaration."""
        buffers = {b.name: b for b in self.program.buffers.values() if b.kind == kind}
        for name in values:
            if name not in buffers:
                raise InputError(f"program {self.program.name!r} has no {kind} {name!r}", expected=", ".join(buffers) or "none")
        for name, buffer in buffers.items():
            if name not in values:
                raise InputError(f"{kind} {name!r} is missing", expected=", ".join(buffers))
            tensor = self._tensor(buffer, values[name])
            self.names.append(name)
            self.tensors.append(tensor)
            self.batches.append(tuple(tensor.shape[: tensor.ndim - len(self.tail(buffer))]))

    def tail(self, buffer: Buffer) -> tuple[int, ...]:
        """Shape of a buffer's tensor behind the batch dimensions."""
        return (self.steps, *buffer.shape) if buffer.kind == CONTROL else buffer.shape

    def _tensor(self, buffer: Buffer, value: Any) -> Tensor:
        where = f"{buffer.kind} {buffer.name!r}"
        integer = "i" in buffer.kinds
        wanted = torch.int32 if integer else self.dtype
        if not isinstance(value, Tensor):
            value = torch.as_tensor(value, dtype=wanted)
        if value.device.type != "cpu":
            raise InputError(f"{where} is on device {value.device}", expected="cpu", fix=".cpu()")
        if value.dtype != wanted and not (integer and value.dtype == torch.int64):
            raise InputError(f"{where} has another dtype than the initial state", got=value.dtype, expected=wanted, fix=f".to({wanted})")
        if value.layout != torch.strided:
            raise InputError(f"{where} must be a dense tensor", got=value.layout, fix=".to_dense()")
        tail = self.tail(buffer)
        if value.ndim < len(tail) or tuple(value.shape[value.ndim - len(tail) :]) != tail:
            shape = "(*batch, " + ", ".join(map(str, tail)) + ")" if tail else "(*batch)"
            raise InputError(f"{where} has the wrong shape", got=tuple(value.shape), expected=shape)
        return value

    # -- forward ------------------------------------------------------------------------------------------------

    def plan(self, wrt: frozenset[str] = frozenset(), seeds: frozenset[str] = frozenset()) -> Plan:
        """The compiled program for these inputs, remembered by the program."""
        precision = 8 if self.dtype == torch.float64 else 4
        lanes, width = self._lanes(precision)
        outputs = frozenset(n for n in self.record if self.program.buffers[n].kind == OUTPUT)
        options = Options(precision, lanes, width, wrt, outputs, seeds, checking())
        if options not in self.program.plans:
            self.program.plans[options] = Plan(self.program, options)
        return self.program.plans[options]

    def _lanes(self, precision: int) -> tuple[str, int]:
        """Worlds share registers when there are many small ones; otherwise elements do. Bits are the same."""
        width = cpu.lanes(precision)
        size = sum(b.length * len(b.kinds) * precision for b in self.program.buffers.values() if b.kind in (STATE, SCRATCH, PARAMETER))
        conditional = any(loop.condition for loop in self.program._loops)
        if self.worlds >= width > 1 and size * width <= LANE_BYTES and not conditional:
            return WORLDS, width
        return ELEMENTS, width

    def forward(self, keep: bool) -> list[Tensor]:
        """Run; returns final states, then trajectories, then outputs."""
        compiled = self.plan()
        compiled.instructions("forward")
        state_bytes = self._state_bytes(compiled)
        recorded = [n for n in self.record if self.program.buffers[n].kind == STATE]
        self.interval = 0
        asked = self.checkpoint if keep else 1
        others = self._other_bytes(compiled, keep)
        if keep or recorded:
            self.interval = memory.choose_interval(asked, state_bytes, self.steps, others, self.budget)
            self.bytes = others + memory.checkpoint_bytes(state_bytes, self.steps, self.interval)
        else:
            self.bytes = others + 2 * state_bytes
            limit = int(memory.available() * memory.SHARE) if self.budget is None else self.budget
            if self.bytes > limit:
                memory.choose_interval(1, 0, 0, self.bytes, limit)
        if recorded and self.interval > 1:
            raise InputError("trajectories of states need checkpoint=1", got=f"checkpoint={self.interval}", fix="record an output instead, or leave checkpoint at 1")
        run = Execution(compiled, self.worlds, self.steps, self.interval, self.threads, self.shared)
        self.execution = run
        self._pack_inputs(run)
        self._watch(run.forward, "simulating")
        return self._collect_outputs(run, recorded)

    def _state_bytes(self, compiled: Plan) -> int:
        blocks = -(-self.worlds // max(p.lanes for p in compiled.places.values()))
        return blocks * sum(compiled.places[b.name].bytes for b in self.program.buffers.values() if b.kind == STATE)

    def _other_bytes(self, compiled: Plan, keep: bool) -> int:
        """Bytes of everything but the states: primal buffers and, for a reverse sweep, their cotangents."""
        probe = Execution(compiled, self.worlds, self.steps, 1, self.threads, self.shared)
        total = 0
        for buffer in self.program.buffers.values():
            if buffer.kind == STATE:
                total += keep * 2 * probe.bytes_of(buffer, ADJOINT, False)
                continue
            total += probe.bytes_of(buffer, PRIMAL, False)
            if keep and buffer.kind != CONSTANT and "f" in buffer.kinds:
                total += probe.bytes_of(buffer, ADJOINT, False)
        return total

    def _pack_inputs(self, run: Execution) -> None:
        for name, tensor in zip(self.names, self.tensors, strict=True):
            buffer = self.program.buffers[name]
            view, alive = self._view(buffer, tensor.detach())
            run.pack(name, PRIMAL, view, check=buffer.kind)
            del alive
        for buffer in self.program.buffers.values():
            if buffer.kind == CONSTANT:
                assert buffer.values is not None
                values = torch.from_numpy(buffer.values)
                shape = values.reshape(-1, len(buffer.kinds))
                run.pack(buffer.name, PRIMAL, View(shape.data_ptr(), str(shape.dtype)[6:], 1, 0, 0, len(buffer.kinds), 1))

    def _view(self, buffer: Buffer, tensor: Tensor) -> tuple[View, Tensor]:
        """A tensor (*batch, [time], *buffer shape) as pointer and strides; copies only what cannot be strided."""
        tail = self.tail(buffer)
        batch = tensor.shape[: tensor.ndim - len(tail)]
        shared = buffer.name in self.shared
        if not shared:
            tensor = tensor.expand(*self.batch, *tail) if tuple(batch) != self.batch else tensor
            tensor = tensor.reshape(self.worlds, *tail)
        return _strided(buffer, tensor, not shared, self.steps if buffer.kind == CONTROL else 1)

    def _watch(self, run: Callable[..., None], what: str) -> None:
        bar = Progress(f"{what} {self.program.name}", self.steps, self.progress)
        try:
            run(poll=bar)
        except KeyboardInterrupt:
            if bar.error is not None and not isinstance(bar.error, KeyboardInterrupt):
                raise bar.error from None
            raise
        finally:
            bar.close()

    def _collect_outputs(self, run: Execution, recorded: list[str]) -> list[Tensor]:
        outs = []
        last = self.steps if self.interval == 1 else self.steps % 2
        for buffer in self.program.buffers.values():
            if buffer.kind == STATE:
                outs.append(self._read(run, buffer, PRIMAL, 1, slot=last, time=False))
        for name in recorded:
            outs.append(self._trajectory(run, self.program.buffers[name]))
        for name in self.record:
            if self.program.buffers[name].kind == OUTPUT:
                outs.append(self._read(run, self.program.buffers[name], PRIMAL, self.steps, time=True))
        return outs

    def _read(self, run: Execution, buffer: Buffer, space: str, slots: int, slot: int = 0, time: bool = False, reverse: bool = False) -> Tensor:
        """A buffer as a fresh tensor (*batch, [time], *buffer shape)."""
        dtype = torch.int32 if "i" in buffer.kinds else self.dtype
        middle = (slots,) if time else ()
        out = torch.zeros((self.worlds, *middle, *buffer.shape), dtype=dtype)
        view, _ = _strided(buffer, out, True, slots)
        run.unpack(buffer.name, space, view, slot, reverse)
        return out.reshape(*self.batch, *middle, *buffer.shape)

    def _trajectory(self, run: Execution, buffer: Buffer) -> Tensor:
        """All states; where the layout allows it a view of the checkpoints themselves, without a copy."""
        place = run.plan.places[buffer.name]
        if place.layout != AOS or place.lanes > 1:
            return self._read(run, buffer, PRIMAL, self.steps + 1, time=True)
        numbers = torch.from_numpy(run.memory[buffer.name, PRIMAL]).view(self.dtype)
        slot = place.bytes // place.item
        inner = (place.numbers,) if buffer.count is not None else ()
        tail = _contiguous_strides(buffer.shape[len(inner) :])
        strides = ((self.steps + 1) * slot, slot, *inner, *tail)
        whole = numbers.as_strided((self.worlds, self.steps + 1, *buffer.shape), strides)
        if len(self.batch) == 1:
            return whole
        return whole.reshape(*self.batch, self.steps + 1, *buffer.shape) if self.batch else whole[0]

    def results(self, outs: Sequence[Tensor]) -> Rollout:
        """Sort the flat outputs into a Rollout."""
        left = list(outs)
        final = {b.name: left.pop(0) for b in self.program.buffers.values() if b.kind == STATE}
        trajectory = {n: left.pop(0) for n in self.record if self.program.buffers[n].kind == STATE}
        outputs = {n: left.pop(0) for n in self.record if self.program.buffers[n].kind == OUTPUT}
        status = torch.from_numpy(self.execution.status.copy()).reshape(self.batch)
        return Rollout(final, trajectory, outputs, status, self.interval, self.bytes)

    # -- backward -----------------------------------------------------------------------------------------------

    def backward(self, needs: Sequence[bool], cotangents: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Cotangents of the inputs, given those of the outputs; None where nothing is needed."""
        buffers = self.program.buffers
        states = [b for b in buffers.values() if b.kind == STATE]
        given = list(cotangents)
        final = {b.name: given.pop(0) for b in states}
        along = {n: given.pop(0) for n in self.record if buffers[n].kind == STATE}
        outputs = {n: given.pop(0) for n in self.record if buffers[n].kind == OUTPUT}
        wrt = frozenset(n for n, need in zip(self.names, needs, strict=True) if need and buffers[n].kind != STATE)
        compiled = self.plan(wrt, frozenset(n for n, c in along.items() if c is not None))
        compiled.instructions("reverse")
        run = Execution(compiled, self.worlds, self.steps, self.interval, self.threads, self.shared)
        run.status = self.execution.status
        kept = CHECKPOINT if self.interval > 1 else PRIMAL
        for (name, space), array in self.execution.memory.items():
            if space == kept or buffers[name].kind != STATE:
                run.memory[name, space] = array
        for name, cotangent in final.items():
            self._pack_cotangent(run, buffers[name], ADJOINT, cotangent, slot=self.steps % 2)
        for name, cotangent in along.items():
            if cotangent is not None:
                self._pack_cotangent(run, buffers[name], SEED, cotangent.narrow(len(self.batch), 1, self.steps), slots=self.steps)
        for name, cotangent in outputs.items():
            self._pack_cotangent(run, buffers[name], ADJOINT, cotangent, slots=self.steps)
        self._watch(run.backward, "differentiating")
        return [self._gradient(run, n, t, along) if need else None for n, t, need in zip(self.names, self.tensors, needs, strict=True)]

    def _pack_cotangent(self, run: Execution, buffer: Buffer, space: str, cotangent: Tensor | None, slot: int = 0, slots: int = 1) -> None:
        run.allocate(buffer.name, space, True)
        if cotangent is None:
            return
        middle = (slots,) if slots > 1 or space == SEED or buffer.kind == OUTPUT else ()
        flat = cotangent.reshape(self.worlds, *middle, *buffer.shape)
        view, alive = _strided(buffer, flat, True, slots)
        run.pack(buffer.name, space, view, slot, True)
        del alive

    def _gradient(self, run: Execution, name: str, tensor: Tensor, along: Mapping[str, Tensor | None]) -> Tensor:
        """The cotangent of one input, in its own shape."""
        buffer = self.program.buffers[name]
        slots = self.steps if buffer.kind == CONTROL else 1
        if name in self.shared:
            out = torch.zeros(self.tail(buffer), dtype=self.dtype)
            view, _ = _strided(buffer, out, False, slots)
            run.unpack(name, ADJOINT, view, reverse=True, sum_worlds=True)
            return out
        out = self._read(run, buffer, ADJOINT, slots, time=buffer.kind == CONTROL, reverse=True)
        first = along.get(name)
        if first is not None:
            out = out + first.select(len(self.batch), 0)
        return out.sum_to_size(tensor.shape)

    def tangent(self, tangents: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Final state and its tangent."""
        moving = frozenset(n for n in tangents if self.program.buffers[n].kind != STATE)
        compiled = self.plan(moving)
        run = Execution(compiled, self.worlds, self.steps, 0, self.threads, set())
        self.shared = set()
        self._pack_inputs(run)
        for name in self.names:
            buffer = self.program.buffers[name]
            if name in tangents:
                view, alive = self._view(buffer, self._tensor(buffer, tangents[name]))
                run.pack(name, TANGENT, view)
                del alive
        run.forward(which="tangent")
        self.execution = run
        states = [b for b in self.program.buffers.values() if b.kind == STATE]
        last = self.steps % 2
        final = {b.name: self._read(run, b, PRIMAL, 1, slot=last) for b in states}
        return final, {b.name: self._read(run, b, TANGENT, 1, slot=last) for b in states}


class _RolloutFunction(torch.autograd.Function):
    """One node of torch's graph per rollout."""

    @staticmethod
    def forward(ctx: Any, job: _Job, *tensors: Tensor) -> Any:
        outs = job.forward(keep=True)
        ctx.job = job
        ctx.set_materialize_grads(False)
        # Trajectories can be views of the checkpoints: torch then notices edits in place.
        ctx.save_for_backward(*outs, *tensors)
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        _ = ctx.saved_tensors
        grads = ctx.job.backward(ctx.needs_input_grad[1:], cotangents)
        if torch.is_grad_enabled():
            grads = [None if g is None else _FirstOrderOnly.apply(g, *(c for c in cotangents if c is not None)) for g in grads]
        return (None, *grads)


class _FirstOrderOnly(torch.autograd.Function):
    """Passes a gradient on, and says clearly that it cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *others: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        raise KinemaError(
            "second derivatives of a rollout are not available",
            fix="do not differentiate gradients of a rollout; for curvature use finite differences of gradients or jvp(...)",
        )


def _refuse_transforms() -> None:
    if torch._C._are_functorch_transforms_active():
        raise KinemaError(
            "torch.func transforms (vmap, grad, jvp, ...) do not work on rollouts",
            fix="give batches as leading dimensions; use backward() for gradients and kinema.lang.bridge.jvp for directions",
        )


def _dtype_of(state: Mapping[str, Any]) -> torch.dtype:
    for name, value in state.items():
        if isinstance(value, Tensor):
            if value.dtype not in (torch.float32, torch.float64):
                raise InputError(f"state {name!r} must be float32 or float64", got=value.dtype, fix=".float() or .double()")
            return value.dtype
    return torch.float64


def _common_batch(names: Sequence[str], batches: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return tuple(torch.broadcast_shapes(*batches))
    except RuntimeError:
        shown = ", ".join(f"{n}: {b}" for n, b in zip(names, batches, strict=True) if b)
        raise InputError("batch dimensions do not match", got=shown, expected="equal or absent batch dimensions") from None


def _contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    for n in reversed(shape):
        strides.insert(0, 1 if not strides else strides[0] * last)
        last = n
    return tuple(strides)


def _strided(buffer: Buffer, tensor: Tensor, worlds: bool, slots: int) -> tuple[View, Tensor]:
    """A tensor ([worlds], [time], *buffer shape) as a View; the second value keeps its memory alive."""
    numbers = len(buffer.kinds)
    lead = tensor.ndim - len(buffer.shape)
    head = tensor.shape[:lead]
    flat = tensor.reshape(*head, buffer.length, numbers)
    strides = list(flat.stride())
    world = strides[0] if worlds else 0
    time = strides[1 if worlds else 0] if lead > (1 if worlds else 0) else 0
    return View(flat.data_ptr(), str(flat.dtype)[6:], slots, world, time, strides[-2], strides[-1]), flat
