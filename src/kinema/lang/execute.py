"""Runs a plan: allocates its buffers, packs inputs, calls the runtime once per direction, unpacks results.

Knows pointers and strides, not torch: `View` describes a user's array, whoever owns it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kinema.errors import InputError, KernelError, KinemaError
from kinema.lang import build, native, plan
from kinema.lang.emit_simd import PACKET
from kinema.lang.native import CANCELLED, DONE, FAULT
from kinema.lang.plan import ADJOINT, ALL_SLOTS, PRIMAL, SEED, TANGENT, Plan
from kinema.lang.program import CONSTANT, CONTROL, ITERATE, OUTPUT, PARAMETER, SCRATCH, STATE, Buffer

CHECKPOINT = "checkpoint"  # space of the kept states when the interval is above 1
_CODES = {"float32": native.F32, "float64": native.F64, "int32": native.I32, "int64": native.I64}


@dataclass
class View:
    """A user's array as pointer and strides (in numbers): worlds x slots x elements x numbers."""

    pointer: int
    dtype: str
    slots: int
    world_stride: int
    slot_stride: int
    element_stride: int
    number_stride: int


class Execution:
    """One rollout of a plan: its memory and the calls of the runtime.

    Args:
        compiled: The plan.
        worlds: Number of worlds.
        steps: Number of steps.
        interval: Checkpoint interval; 0 keeps nothing (no reverse).
        threads: Upper bound of worker threads.
        shared: Names of parameters and controls that all worlds share.
    """

    def __init__(self, compiled: Plan, worlds: int, steps: int, interval: int, threads: int, shared: set[str]) -> None:
        self.plan, self.worlds, self.steps, self.interval, self.threads, self.shared = compiled, worlds, steps, interval, threads, shared
        self.lanes = compiled.options.width if compiled.options.lanes == plan.WORLDS else 1
        self.blocks = -(-worlds // self.lanes)
        self.memory: dict[tuple[str, str], np.ndarray] = {}
        self.status = np.full(worlds, -1, np.int64)
        self._keep: list[Any] = []

    # -- memory -------------------------------------------------------------------------------------------------

    def slots(self, buffer: Buffer, space: str, reverse: bool) -> int:
        """Number of slots of a buffer in a space."""
        if buffer.kind == STATE:
            if space == PRIMAL:
                return self.ring(reverse)
            if space == CHECKPOINT:
                return max(-(-self.steps // max(self.interval, 1)), 1)
            return self.steps if space == SEED else 2
        if buffer.kind == CONTROL:
            return self.steps
        if buffer.kind == OUTPUT:
            return self.steps if buffer.name in self.plan.options.record else 1
        if buffer.kind == ITERATE and space != ALL_SLOTS:
            assert buffer.loop is not None
            return buffer.loop.times + 1
        return 1

    def ring(self, reverse: bool) -> int:
        """Slots of the state buffers."""
        if self.interval == 1:
            return self.steps + 1
        return self.interval + 1 if reverse else 2

    def per_worker(self, buffer: Buffer) -> bool:
        """Whether a buffer is scratch: one per worker instead of one per block."""
        return buffer.kind in (SCRATCH, ITERATE) or (buffer.kind == OUTPUT and buffer.name not in self.plan.options.record)

    def blocks_of(self, buffer: Buffer, space: str) -> int:
        """Copies of a buffer: one if all worlds share it, one per worker if it is scratch, else one per block."""
        if self.per_worker(buffer):
            return self.threads
        if buffer.kind == CONSTANT or (space == PRIMAL and buffer.name in self.shared):
            return 1
        return self.blocks

    def bytes_of(self, buffer: Buffer, space: str, reverse: bool) -> int:
        """Bytes of a buffer in a space."""
        return self.blocks_of(buffer, space) * self.slots(buffer, space, reverse) * self.plan.places[buffer.name].bytes

    def allocate(self, name: str, space: str, reverse: bool = False) -> np.ndarray:
        """The memory of a buffer, zeroed and aligned; made at first use."""
        key = (name, space)
        size = self.bytes_of(self.plan.program.buffers[name], space, reverse)
        if key not in self.memory or self.memory[key].nbytes != size:
            raw = np.zeros(size + 64, np.uint8)
            start = -raw.ctypes.data % 64
            self.memory[key] = raw[start : start + size]
        return self.memory[key]

    # -- packing ------------------------------------------------------------------------------------------------

    def layout(self, name: str, space: str, view: View, slot: int = 0, reverse: bool = False) -> native.Layout:
        """Description of a transfer between a user's array and a buffer, from `slot` on."""
        buffer, place = self.plan.program.buffers[name], self.plan.places[name]
        memory = self.allocate(name, space, reverse)
        shared = self.blocks_of(buffer, space) == 1 and self.blocks > 1
        slots = self.slots(buffer, space, reverse)
        made = native.Layout()
        made.user, made.dtype = view.pointer, _CODES[view.dtype]
        made.worlds = min(self.worlds, self.lanes) if shared else self.worlds
        made.slots, made.elements, made.numbers = view.slots, buffer.length, len(buffer.kinds)
        made.world_stride, made.slot_stride = view.world_stride, view.slot_stride
        made.element_stride, made.number_stride = view.element_stride, view.number_stride
        made.native = memory.ctypes.data + slot * place.bytes
        made.native_block_stride, made.native_slot_stride = slots * place.bytes, place.bytes
        made.elements_padded = place.elements
        made.native_dtype = native.I32 if "i" in buffer.kinds else native.F64 if place.item == 8 else native.F32
        made.lanes = place.lanes
        made.padded, made.packet = place.numbers, int(place.layout == PACKET)
        if buffer.order is not None:
            order = np.full(place.elements, -1, np.int32)
            order[: buffer.length] = buffer.order
            self._keep.append(order)
            made.order = order.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        return made

    def pack(self, name: str, space: str, view: View, slot: int = 0, reverse: bool = False, check: str = "") -> None:
        """Copy a user's array into a buffer; `check` names it in the error if it is not finite."""
        made = self.layout(name, space, view, slot, reverse)
        if check:
            self._require_finite(made, name, check)
        if build.runtime().kn_pack(ctypes.byref(made)) != DONE:
            raise InputError(f"{name!r} cannot be packed: an integer is out of range, or strides do not fit")

    def _require_finite(self, made: native.Layout, name: str, what: str) -> None:
        where = (ctypes.c_int64 * 4)()
        if build.runtime().kn_finite(ctypes.byref(made), where) >= 0:
            world, slot, element, number = where
            place = f"world {world}, step {slot}, element {element}, number {number}"
            raise InputError(f"{what} {name!r} is not finite", where=place, expected="finite numbers", fix="check what was computed before")

    def unpack(self, name: str, space: str, view: View, slot: int = 0, reverse: bool = False, sum_worlds: bool = False) -> None:
        """Copy a buffer to a user's array; `sum_worlds` adds the worlds up in ascending order, without failed ones."""
        made = self.layout(name, space, view, slot, reverse)
        if sum_worlds:
            made.add, made.world_stride = 1, 0
            made.status = self.status.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))
        elif space == ADJOINT:
            made.status = self.status.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))
        build.runtime().kn_unpack(ctypes.byref(made))

    # -- running ------------------------------------------------------------------------------------------------

    def forward(self, poll: Callable[[int], int] | None = None, which: str = "forward") -> None:
        """Run all steps forward; `which` = 'tangent' propagates tangents too."""
        self._run(which, reverse=False, poll=poll)

    def backward(self, poll: Callable[[int], int] | None = None) -> None:
        """Run the reverse sweep of all steps."""
        self._run("forward", reverse=True, poll=poll)

    def _run(self, forward: str, reverse: bool, poll: Callable[[int], int] | None) -> None:
        lists = (forward, "reverse") if reverse else (forward,)
        self.plan.compile(lists)
        forward_list = self._instructions(self.plan.instructions(forward))
        reverse_list = self._instructions(self.plan.instructions("reverse")) if reverse else None
        made, fault, alive = self._program(forward_list, reverse_list, reverse, poll)
        runtime = build.runtime()
        answer = (runtime.kn_backward if reverse else runtime.kn_forward)(ctypes.byref(made), self.steps)
        del alive
        if answer == CANCELLED:
            raise KeyboardInterrupt
        if answer == FAULT:
            raise self._fault(fault)
        if answer != DONE:
            raise KinemaError("the runtime ran out of memory", fix="fewer worlds or threads, or a larger checkpoint interval")

    def _program(self, forward: Any, reverse_list: Any, reverse: bool, poll: Callable[[int], int] | None) -> tuple[Any, Any, Any]:
        p = native.Program()
        p.precision, p.lanes = self.plan.options.precision, self.lanes
        p.worlds, p.blocks, p.workers = self.worlds, self.blocks, self.threads
        states = [b.name for b in self.plan.program.buffers.values() if b.kind == STATE]
        for name in states:
            self.plan.entry(name, PRIMAL)
            if self.interval > 1:
                self.plan.entry(name, CHECKPOINT)
        buffers = (native.Buffer * len(self.plan.table))()
        for (name, space), at in self.plan.table.items():
            self._fill(buffers[at], name, space, reverse)
        kept = CHECKPOINT if self.interval > 1 else PRIMAL
        state = (ctypes.c_int32 * len(states))(*[self.plan.entry(n, PRIMAL) for n in states])
        checkpoint = (ctypes.c_int32 * len(states))(*[self.plan.entry(n, kept) for n in states])
        p.n_buffers, p.buffers, p.n_states, p.state, p.checkpoint = len(buffers), buffers, len(states), state, checkpoint
        p.ring, p.interval = self.ring(reverse), self.interval
        p.n_forward, p.forward = len(forward), forward
        if reverse_list is not None:
            p.n_reverse, p.reverse = len(reverse_list), reverse_list
        p.status = self.status.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))
        fault = native.Fault()
        if self.plan.options.check:
            p.fault = ctypes.pointer(fault)
        callback = native.Poll(poll) if poll else native.Poll()
        p.poll = callback
        return p, fault, (buffers, state, checkpoint, callback)

    def _fill(self, out: native.Buffer, name: str, space: str, reverse: bool) -> None:
        """Address and strides of one entry of the table."""
        buffer, place = self.plan.program.buffers[name], self.plan.places[name]
        if space == ALL_SLOTS:
            slots = self.slots(buffer, ADJOINT, reverse)
            self._fill(out, name, ADJOINT, reverse)
            out.bytes, out.slot_stride = slots * place.bytes, 0
            return
        memory = self.allocate(name, space, reverse)
        slots = self.slots(buffer, space, reverse)
        out.base, out.length, out.bytes = memory.ctypes.data, buffer.length, place.bytes
        out.slot_stride = place.bytes if slots > 1 or buffer.kind not in (OUTPUT,) else 0
        whole = slots * place.bytes
        if self.per_worker(buffer):
            out.worker_stride = whole
        elif self.blocks_of(buffer, space) > 1:
            out.block_stride = whole

    def _instructions(self, instructions: list[plan.Instruction]) -> Any:
        out = (native.Instruction * len(instructions))()
        for made, source in zip(out, instructions, strict=True):
            refs = (native.Ref * len(source.refs))(*[native.Ref(b, s) for b, s in source.refs])
            made.op, made.n_refs, made.refs = source.op, len(source.refs), refs
            made.count, made.cost = source.count, source.cost
            made.loop, made.times, made.descending, made.end = source.loop, source.times, int(source.descending), source.end
            self._keep.append(refs)
            if source.symbol:
                made.kernel = self.plan.address(source.symbol)
            if source.partial:
                partial = (ctypes.c_int32 * len(source.partial))(*source.partial)
                made.partial = partial
                self._keep.append(partial)
            if source.schedule is not None:
                made.schedule = ctypes.pointer(self._schedule(source.schedule))
        return out

    def _schedule(self, source: Any) -> native.Schedule:
        made = native.Schedule()
        made.colours = source.colours
        made.colour_start = source.colour_start.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        made.chunks = source.chunks.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        self._keep.append((made, source))
        return made

    def _fault(self, fault: native.Fault) -> KernelError:
        """The error of a checked build: kernel, element, source line."""
        site = self.plan.sites[fault.site]
        place = f"element {fault.element}" + (f", world {fault.lane}" if self.worlds > 1 else "")
        what = {
            1: f"index {fault.index} of {site.array!r} is out of range (length {fault.length})",
            2: f"element {fault.index} of {site.array!r} is written after it was read in the same kernel",
            3: f"a value stored into {site.array!r} is not finite",
        }[fault.code]
        return KernelError(
            f"kernel {site.kernel}, {place}: {what}",
            file=site.file,
            line=site.line,
            source=site.source,
            fix="write to another array (state is double-buffered)" if fault.code == 2 else None,
        )


__all__ = ["CHECKPOINT", "Execution", "View", "ADJOINT", "PARAMETER", "PRIMAL", "SEED", "TANGENT"]
