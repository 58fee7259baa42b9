"""Rollouts of a program as one torch operation: N steps in one native call, the adjoint in one more."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from kinema.errors import InputError, KinemaError, SimulationError
from kinema.lang import cpu, memory, native
from kinema.lang.analysis import ELEMENTS, WORLDS
from kinema.lang.emit_simd import AOS
from kinema.lang.execute import (
    ALIGNMENT,
    Execution,
    Key,
    Memory,
    Setting,
    aligned,
    can_be_direct,
    can_stream,
    plan_for,
    predicted_bytes,
    remembered,
    zeroed,
)
from kinema.lang.plan import ADJOINT, PRIMAL, SEED, TANGENT, Options, Plan, checking
from kinema.lang.program import CONTROL, OUTPUT, PARAMETER, SCRATCH, STATE, Buffer, Program
from kinema.lang.progress import Progress

LANE_BYTES = 1 << 20  # worlds share registers while a block's memory stays below this
_NO_BYTES = np.empty(0, np.uint8)  # of memory that a tensor owns
RECOUNT = 1.0  # seconds after which the CPUs are counted again

Given = Mapping[str, Mapping[str, Any]]  # inputs by kind and name


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


class _Form:
    """What inputs of certain types and shapes mean for a program; making it checks them.

    It is remembered, so that the same types and shapes are checked once, and holds neither numbers nor the program.
    """

    def __init__(
        self, program: Program, steps: int, record: tuple[str, ...], given: Given, precision: tuple[torch.dtype, str]
    ) -> None:
        _check_record(program, record)
        _check_names(program, given)
        self.steps = steps
        self.states = [b for b in program.buffers.values() if b.kind == STATE]
        self.recorded = tuple(n for n in record if program.buffers[n].kind == STATE)
        self.outputs = [program.buffers[n] for n in record if program.buffers[n].kind == OUTPUT]
        self.dtype, self.like = precision
        self.precision = 8 if self.dtype == torch.float64 else 4
        self.inputs: dict[str, Buffer] = {}
        self.shapes: list[torch.Size] = []
        batches: list[tuple[int, ...]] = []
        for kind, values in given.items():
            for buffer in (b for b in program.buffers.values() if b.kind == kind):
                tensor = self.tensor(f"{kind} {buffer.name!r}", buffer, values[buffer.name])
                self.inputs[buffer.name] = buffer
                self.shapes.append(tensor.shape)
                batches.append(self.batch_of(buffer, tensor))
        self.batch = _common_batch(list(self.inputs), batches)
        self.worlds = math.prod(self.batch)
        if self.worlds < 1:
            raise InputError("the batch is empty", got=self.batch, fix="leave the rollout out when there is no world")
        pairs = zip(self.inputs.values(), batches, strict=True)
        self.shared = frozenset(b.name for b, batch in pairs if not batch and b.kind != STATE)
        # Names that are given for fewer worlds than there are: they are expanded, unless they are shared.
        self.narrow = {n for n, shape in zip(self.inputs, self.shapes, strict=True) if shape != self.full(n)}
        self.input_keys = tuple((name, PRIMAL) for name in self.inputs)
        self.result_keys = tuple((b.name, PRIMAL) for b in (*self.states, *self.outputs))
        self.result_shapes = [(*self.batch, *b.shape) for b in self.states]
        self.result_shapes += [(*self.batch, steps, *b.shape) for b in self.outputs]
        self._options: dict[Any, Options] = {}

    def tensor(self, where: str, buffer: Buffer, value: Any) -> Tensor:
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

    def tail(self, buffer: Buffer) -> tuple[int, ...]:
        """Shape of a buffer's tensor behind the batch dimensions."""
        return (self.steps, *buffer.shape) if buffer.kind == CONTROL else buffer.shape

    def full(self, name: str) -> tuple[int, ...]:
        """Shape of an input's tensor for all worlds."""
        return (*self.batch, *self.tail(self.inputs[name]))

    def batch_of(self, buffer: Buffer, tensor: Tensor) -> tuple[int, ...]:
        """The batch dimensions of a buffer's tensor."""
        return tuple(tensor.shape[: tensor.ndim - len(self.tail(buffer))])

    def _lanes(self, program: Program, width: int) -> str:
        """Worlds share registers when there are many small ones; otherwise elements do. Bits are the same."""
        if not self.worlds >= width > 1:
            return ELEMENTS
        buffers = [b for b in program.buffers.values() if b.kind in (STATE, SCRATCH, PARAMETER)]
        size = sum(b.length * len(b.kinds) for b in buffers) * self.precision * width
        # Worlds that share registers share the tables of indices too.
        own_tables = any("i" in b.kinds and n not in self.shared for n, b in self.inputs.items())
        return ELEMENTS if size > LANE_BYTES or own_tables or program.lanes_are_elements else WORLDS

    def options(self, program: Program, wrt: frozenset[str], seeds: frozenset[str]) -> Options:
        """What the program is compiled for, to take derivatives with respect to `wrt`, see `Options`."""
        width, check = _width(self.precision), checking()
        found = self._options.get((width, wrt, seeds, check))
        if found is None:
            lanes, outputs = self._lanes(program, width), frozenset(b.name for b in self.outputs)
            found = Options(self.precision, lanes, width, wrt, outputs, seeds, check)
            self._options[width, wrt, seeds, check] = found
        return found

    def by_name(self, outs: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Values in the order of the outputs, by name: final states, trajectories, outputs."""
        left = iter(outs)
        final = {b.name: next(left) for b in self.states}
        trajectory = {n: next(left) for n in self.recorded}
        return final, trajectory, {b.name: next(left) for b in self.outputs}


_FORMS: WeakKeyDictionary[Program, dict[Any, _Form]] = WeakKeyDictionary()


def _form_of(program: Program, steps: int, record: tuple[str, ...], given: Given) -> tuple[_Form, list[Tensor]]:
    """The form of the inputs, and their tensors in its order."""
    tensors = given
    if not all(isinstance(value, Tensor) for values in given.values() for value in values.values()):
        tensors = _as_tensors(program, given)
    key: list[Any] = [steps, record, len(program.buffers)]  # a program may have got new buffers
    for values in tensors.values():
        key.append(tuple(values))
        key += [(t.shape, t.dtype, t.layout, t.device) for t in values.values()]

    def make() -> _Form:
        return _Form(program, steps, record, tensors, _precision(program, given))

    form = remembered(_FORMS, program, tuple(key), make)
    return form, [tensors[buffer.kind][name] for name, buffer in form.inputs.items()]


def _as_tensors(program: Program, given: Given) -> Given:
    """Inputs with numpy arrays and plain numbers made tensors."""
    dtype, _ = _precision(program, given)
    _check_names(program, given)

    def convert(kind: str, name: str, value: Any) -> Tensor:
        wanted = torch.int32 if "i" in program.buffers[name].kinds else dtype
        return value if isinstance(value, Tensor) else _from_plain(f"{kind} {name!r}", value, wanted)

    return {kind: {n: convert(kind, n, v) for n, v in values.items()} for kind, values in given.items()}


class _Job:
    """One rollout: how numbers travel to and from native memory."""

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
        names = (record,) if isinstance(record, str) else tuple(dict.fromkeys(record))
        self.checkpoint = checkpoint if checkpoint == "auto" else min(_positive("checkpoint", checkpoint), self.steps)
        given = {kind: _named(kind, v) for kind, v in ((STATE, state), (PARAMETER, parameters), (CONTROL, controls))}
        self.form, self.tensors = _form_of(program, self.steps, names, given)
        _refuse_dual(self.tensors)
        self.batch, self.worlds = self.form.batch, self.form.worlds
        self.status = np.empty(0, np.int64)
        self.interval = 0
        self.bytes = 0
        self.direct: tuple[str, ...] = ()
        self.streamed = False

    # -- forward ------------------------------------------------------------------------------------------------

    def plan(self, wrt: frozenset[str] = frozenset(), seeds: frozenset[str] = frozenset()) -> Plan:
        """The compiled program for these inputs, remembered by the program."""
        return plan_for(self.program, self.form.options(self.program, wrt, seeds))

    def setting(self) -> Setting:
        """What the memory of this rollout depends on."""
        form, apart = self.form, () if self.streamed else self.form.recorded
        return Setting(
            self.worlds, self.steps, self.threads, form.shared, self.interval, apart, self.streamed, self.direct
        )

    def forward(self, keep: bool) -> tuple[list[Tensor], list[Tensor]]:
        """Run; returns final states, trajectories and outputs, and the memory that a reverse sweep needs."""
        compiled = self.plan()
        self.streamed = can_stream(compiled, self.form.recorded)
        self.interval = self._choose_interval(compiled, keep)
        named = dict(zip(self.form.inputs, self.tensors, strict=True))
        self.direct = tuple(n for n, t in named.items() if self._is_direct(compiled, n, t))
        direct = [Memory(_NO_BYTES, named[n].data_ptr()) for n in self.direct]
        run = Execution(compiled, self.setting(), direct=direct)
        self._pack_inputs(run)
        # As tensors, so that torch owns and guards it.
        kept = [torch.from_numpy(piece) for piece in run.kept] if keep or self.form.recorded else []
        outs, trajectories = self._outputs(run, kept)
        self._watch(run, "simulating")
        self.status = run.status
        self.tensors = []  # torch keeps what it needs
        if self.streamed:
            kept = [*kept, *trajectories]
        return outs, kept if keep else []

    def _is_direct(self, compiled: Plan, name: str, tensor: Tensor) -> bool:
        """Whether a control is read where it is."""
        if not can_be_direct(compiled, self.form.inputs[name], self.worlds):
            return False
        dense = tensor.is_contiguous() and not tensor.is_neg() and tensor.dtype == self.form.dtype
        return dense and tensor.data_ptr() % ALIGNMENT == 0

    def _choose_interval(self, compiled: Plan, keep: bool) -> int:
        """The checkpoint interval, 0 to keep nothing; predicts and checks the memory."""
        state, others = predicted_bytes(compiled, self.setting(), keep)
        recorded = self.form.recorded
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

    def _pack_inputs(self, run: Execution) -> None:
        self._pack(run, self.form.input_keys, self._expanded(self.tensors, run.setting.shared), finite=True)

    def _expanded(self, tensors: Sequence[Tensor], shared: frozenset[str]) -> Sequence[Tensor]:
        """Inputs with the worlds of the batch, but for those that the worlds share."""
        form, expanded = self.form, self.form.narrow - shared
        named = zip(form.inputs, tensors, strict=True)
        return [t.detach().expand(form.full(n)) if n in expanded else t for n, t in named] if expanded else tensors

    def _pack(
        self,
        run: Execution,
        keys: tuple[Key, ...],
        tensors: Sequence[Tensor],
        slot: int | None = 0,
        finite: bool = False,
    ) -> None:
        """Copy tensors (*batch, [time], *buffer shape) to buffers, without batch those that worlds share."""
        for layout, key, tensor in zip(run.layouts(keys, slot), keys, tensors, strict=True):
            if not tensor.is_contiguous() or tensor.is_neg():
                tensor = _strided(layout, tensor.detach())
            layout.user = tensor.data_ptr()
            if tensor.dtype == torch.int64:
                layout.dtype = native.I64
            run.pack(layout, key, tensor, finite)

    def _watch(self, run: Execution, what: str) -> None:
        bar = Progress(f"{what} {self.program.name}", self.steps, self.progress)
        try:
            run.run(bar.poll)
        except KeyboardInterrupt as interrupt:
            raise (bar.error or interrupt) from None
        finally:
            bar.close()

    def _outputs(self, run: Execution, kept: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """All outputs, to be filled by the run, and the trajectories among them."""
        form = self.form
        last = self.steps if self.interval == 1 else self.steps % 2
        found = self._read(run, form.result_keys, form.result_shapes, last)
        if self.streamed:
            shapes = [(*self.batch, self.steps + 1, *self.program.buffers[n].shape) for n in form.recorded]
            trajectories = self._read(run, tuple((n, PRIMAL) for n in form.recorded), shapes, slot=None)
        else:
            pieces = kept[len(kept) - len(form.recorded) :]
            trajectories = [self._trajectory(run, *pair) for pair in zip(form.recorded, pieces, strict=True)]
        return [*found[: len(form.states)], *trajectories, *found[len(form.states) :]], trajectories

    def _read(
        self, run: Execution, keys: tuple[Key, ...], shapes: Sequence[tuple[int, ...]], slot: int | None = 0
    ) -> list[Tensor]:
        """Fresh tensors of these shapes, to be filled with buffers by the run."""
        outs = []
        for layout, key, shape in zip(run.layouts(keys, slot), keys, shapes, strict=True):
            # Zeros from the allocator: torch.zeros wakes its threads, which costs milliseconds on a busy machine.
            out = torch.from_numpy(np.zeros(shape, _NUMBERS[layout.dtype]))
            layout.user = out.data_ptr()
            run.unpack(layout, key, out)
            outs.append(out)
        return outs

    def _trajectory(self, run: Execution, name: str, kept: Tensor) -> Tensor:
        """All states; where the layout allows it a view of the checkpoints themselves, without a copy."""
        buffer, place = self.program.buffers[name], run.plan.places[name]
        if place.layout != AOS or place.lanes > 1:
            shape = (*self.batch, self.steps + 1, *buffer.shape)
            return self._read(run, ((name, PRIMAL),), [shape], slot=None)[0]
        slot = place.bytes // place.item
        inner = (place.numbers,) if buffer.count is not None else ()
        tail = _contiguous_strides(buffer.shape[len(inner) :])
        strides = ((self.steps + 1) * slot, slot, *inner, *tail)
        whole = kept.view(self.form.dtype).as_strided((self.worlds, self.steps + 1, *buffer.shape), strides)
        return whole.reshape(*self.batch, self.steps + 1, *buffer.shape)

    def raise_failures(self) -> None:
        """Raise SimulationError if a world became non-finite."""
        if np.maximum.reduce(self.status) >= 0:
            failed = np.flatnonzero(self.status >= 0).tolist()
            raise SimulationError(
                f"{len(failed)} of {self.worlds} worlds of {self.program.name!r} became non-finite",
                worlds=failed,
                steps=self.status[failed].tolist(),
                fix='use a smaller time step or softer material; on_failure="status" returns the other worlds',
            )

    def results(self, outs: Sequence[Tensor]) -> Rollout:
        """Sort the flat outputs into a Rollout."""
        final, trajectory, outputs = self.form.by_name(outs)
        status = torch.from_numpy(self.status.reshape(self.batch).copy())
        return Rollout(final, trajectory, outputs, status, self.interval, self.bytes)

    # -- backward -----------------------------------------------------------------------------------------------

    def backward(
        self,
        inputs: Sequence[Tensor],
        needs: Sequence[bool],
        kept: Sequence[Tensor],
        cotangents: Sequence[Tensor | None],
    ) -> list[Tensor | None]:
        """Cotangents of the inputs, given those of the outputs; None where nothing is needed."""
        form, needed = self.form, [b for b, need in zip(self.form.inputs.values(), needs, strict=True) if need]
        final, along, outputs = form.by_name(cotangents)
        along = {n: c for n, c in along.items() if c is not None}
        compiled = self.plan(frozenset(b.name for b in needed if b.kind != STATE), frozenset(along))
        trajectories = kept[1:] if self.streamed else []
        pieces = [aligned(t.numpy(), t.data_ptr()) for t in kept[: len(kept) - len(trajectories)]]
        shapes = {b.name: form.tail(b) if b.name in form.shared else form.full(b.name) for b in needed}
        named = dict(zip(form.inputs, inputs, strict=True))
        made = {n: zeroed(named[n].nbytes) for n in self.direct}  # their cotangents
        direct = [*(Memory(_NO_BYTES, named[n].data_ptr()) for n in self.direct), *made.values()]
        run = Execution(compiled, self.setting(), "reverse", pieces, self.status, direct)
        if self.streamed:
            own = zip(form.inputs.values(), self._expanded(inputs, form.shared), strict=True)
            controls = {b.name: t for b, t in own if b.kind == CONTROL and b.name not in form.shared}
            self._pack(run, tuple((n, PRIMAL) for n in controls), list(controls.values()))
            self._pack(run, tuple((n, PRIMAL) for n in form.recorded), trajectories, slot=None)
        ends = {n: c for n, c in (*final.items(), *outputs.items()) if c is not None}
        self._pack(run, tuple((n, ADJOINT) for n in ends), list(ends.values()), slot=self.steps % 2)
        later = [c.narrow(len(self.batch), 1, self.steps) for c in along.values()]
        self._pack(run, tuple((n, SEED) for n in along), later, slot=None)
        copied = [n for n in shapes if n not in made]
        read = self._read(run, tuple((n, ADJOINT) for n in copied), [shapes[n] for n in copied])
        self._watch(run, "differentiating")
        found = dict(zip(copied, read, strict=True))
        for name in set(shapes) & set(made):
            found[name] = torch.from_numpy(made[name].bytes).view(form.dtype).reshape(shapes[name])
        return [
            self._gradient(found[n], along.get(n), shape) if n in found else None
            for n, shape in zip(form.inputs, form.shapes, strict=True)
        ]

    def _gradient(self, found: Tensor, along: Tensor | None, shape: torch.Size) -> Tensor:
        """The cotangent of one input, in its own shape; `along` is that of its trajectory."""
        if along is not None:
            first = along.select(len(self.batch), 0)
            alive = torch.from_numpy(self.status < 0).reshape(*self.batch, *[1] * (first.ndim - len(self.batch)))
            found += torch.where(alive, first, 0.0)
        return found if found.shape == shape else found.sum_to_size(shape)

    # -- forward mode -------------------------------------------------------------------------------------------

    def tangent(self, tangents: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Final state and its tangent."""
        buffers = self.program.buffers
        directions = {name: self._direction(name, value) for name, value in _named("tangent", tangents).items()}
        shared = self.form.shared.difference(directions)
        compiled = self.plan(frozenset(n for n in directions if buffers[n].kind != STATE))
        run = Execution(compiled, self.setting()._replace(shared=shared), "tangent")
        self._pack_inputs(run)
        self._pack(run, tuple((n, TANGENT) for n in directions), list(directions.values()), finite=True)
        names, shapes, last = [b.name for b in self.form.states], self.form.result_shapes, self.steps % 2
        primal, moved = (self._read(run, tuple((n, s) for n in names), shapes, last) for s in (PRIMAL, TANGENT))
        self._watch(run, "simulating")
        self.status = run.status
        return dict(zip(names, primal, strict=True)), dict(zip(names, moved, strict=True))

    def _direction(self, name: str, value: Any) -> Tensor:
        inputs = self.form.inputs
        if name not in inputs or "i" in inputs[name].kinds:
            possible = [n for n, buffer in inputs.items() if "f" in buffer.kinds]
            raise InputError(f"there is no input {name!r} to take a tangent of", expected=", ".join(possible))
        tensor = self.form.tensor(f"tangent of {name!r}", inputs[name], value).detach()
        batch = self.form.batch_of(inputs[name], tensor)
        if _common_batch(["the inputs", f"tangent of {name!r}"], [self.batch, batch]) != self.batch:
            raise InputError(f"tangent of {name!r} has more worlds than the inputs", got=batch, expected=self.batch)
        return tensor.expand(self.form.full(name))


class _RolloutFunction(torch.autograd.Function):
    """One node of torch's graph per rollout."""

    @staticmethod
    def forward(ctx: Any, job: _Job, *tensors: Tensor) -> Any:
        outs, kept = job.forward(keep=True)
        ctx.job, ctx.inputs = job, len(tensors)
        ctx.set_materialize_grads(False)
        # Trajectories can be views of what is kept: torch then notices edits in place.
        ctx.save_for_backward(*tensors, *kept)
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        _refuse_transforms(*cotangents)
        saved = ctx.saved_tensors
        inputs, kept = saved[: ctx.inputs], saved[ctx.inputs :]
        grads = ctx.job.backward(inputs, ctx.needs_input_grad[1:], kept, cotangents)
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


_NUMBERS = {native.F32: np.float32, native.F64: np.float64, native.I32: np.int32}
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


def _check_record(program: Program, record: tuple[str, ...]) -> None:
    possible = [b.name for b in program.buffers.values() if b.kind in (STATE, OUTPUT)]
    for name in record:
        if name not in possible:
            raise InputError(
                f"record: program {program.name!r} has no state or output {name!r}",
                expected=", ".join(possible) or "nothing: it has neither",
            )


def _check_names(program: Program, given: Given) -> None:
    for kind, values in given.items():
        names = [b.name for b in program.buffers.values() if b.kind == kind]
        for name in values:
            if name not in names:
                raise InputError(
                    f"program {program.name!r} has no {kind} {name!r}", expected=", ".join(names) or "none"
                )
        for name in names:
            if name not in values:
                raise InputError(
                    f"{kind} {name!r} is missing", expected=f"{', '.join(names)} of program {program.name!r}"
                )


def _precision(program: Program, given: Given) -> tuple[torch.dtype, str]:
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


def _contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _strided(layout: native.Layout, tensor: Tensor) -> Tensor:
    """Tell a layout the strides of a tensor (worlds, slots, *buffer shape), copied only if that cannot be avoided.

    Returns what must stay alive until its numbers are read.
    """
    worlds = layout.worlds if layout.world_stride else 1
    flat = tensor.resolve_neg().reshape(worlds, layout.slots, layout.elements, layout.numbers)
    world, layout.slot_stride, layout.element_stride, layout.number_stride = flat.stride()
    layout.world_stride = world if layout.world_stride else 0
    return flat
