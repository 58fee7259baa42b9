"""Runs a plan: allocates its buffers, packs inputs, calls the runtime once per direction, unpacks results.

Knows pointers and strides, not torch: `View` describes a user's array, whoever owns it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from kinema.errors import InputError, KernelError, KinemaError
from kinema.lang import build, native, plan
from kinema.lang.emit_simd import PACKET
from kinema.lang.native import CANCELLED, DONE, FAULT
from kinema.lang.plan import ADJOINT, ALL_SLOTS, PRIMAL, SEED, Options, Plan
from kinema.lang.program import CONSTANT, CONTROL, ITERATE, OUTPUT, SCRATCH, STATE, Buffer, Program

CHECKPOINT = "checkpoint"  # space of the kept states when the interval is above 1
ALIGNMENT = 64  # bytes: a cache line
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


class Memory(NamedTuple):
    """Bytes of a buffer and where they begin."""

    bytes: np.ndarray
    address: int


def zeroed(size: int) -> Memory:
    """Aligned memory, all zero."""
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    address = _address(raw)
    start = -address % ALIGNMENT
    return Memory(raw[start : start + size], address + start)


def aligned(array: np.ndarray) -> Memory:
    """The bytes of an array; copied if they are not aligned."""
    if _address(array) % ALIGNMENT == 0:
        return _memory_at(array)
    made = zeroed(array.nbytes)
    made.bytes[:] = array
    return made


def _memory_at(array: np.ndarray) -> Memory:
    return Memory(array, _address(array))


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


# -- what is made once per program ------------------------------------------------------------------------------

_TABLES: WeakKeyDictionary[Plan, dict[str, Any]] = WeakKeyDictionary()  # instruction lists in native form
_CONSTANTS: WeakKeyDictionary[Program, dict[Any, Memory]] = WeakKeyDictionary()  # packed, and orders
_lock = threading.RLock()  # translating and compiling is for one thread at a time; running is not


def _forget_lock() -> None:
    global _lock
    _lock = threading.RLock()  # in a child of fork: another thread of the parent may have held it


os.register_at_fork(after_in_child=_forget_lock)


def plan_for(program: Program, options: Options) -> Plan:
    """The plan of a program for these options, remembered by the program."""
    found = program.plans.get(options)
    if found is None:
        with _lock:
            found = program.plans.get(options)
            if found is None:
                found = program.plans[options] = Plan(program, options)
    return found


def _table(compiled: Plan, which: str) -> Any:
    """An instruction list in native form, its kernels compiled and loaded."""
    tables = _TABLES.get(compiled)
    if tables is None or which not in tables:
        with _lock:
            tables = _TABLES.setdefault(compiled, {})
            if which not in tables:
                compiled.instructions(which)
                compiled.compile((which,))
                tables[which] = _native_list(compiled, compiled.instructions(which))
    return tables[which]


def _native_list(compiled: Plan, instructions: list[plan.Instruction]) -> Any:
    out = (native.Instruction * len(instructions))()
    for made, source in zip(out, instructions, strict=True):
        # ctypes keeps alive what a pointer field was given.
        made.op, made.n_refs = source.op, len(source.refs)
        made.refs = (native.Ref * len(source.refs))(*[native.Ref(b, s) for b, s in source.refs])
        made.count, made.cost = source.count, source.cost
        made.loop, made.times, made.descending, made.end = source.loop, source.times, int(source.descending), source.end
        if source.symbol:
            made.kernel = compiled.address(source.symbol)
        if source.partial:
            made.partial = (ctypes.c_int32 * len(source.partial))(*source.partial)
        if source.schedule is not None:
            made.schedule = ctypes.pointer(_native_schedule(source.schedule))
    return out


def _native_schedule(source: Any) -> native.Schedule:
    made = native.Schedule()
    made.colours = source.colours
    made.colour_start = (ctypes.c_int32 * len(source.colour_start))(*source.colour_start.tolist())
    made.chunks = (ctypes.c_int32 * len(source.chunks))(*source.chunks.tolist())
    made.apart = (ctypes.c_uint8 * len(source.apart))(*source.apart.tolist())
    return made


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
        self.plan, self.worlds, self.steps, self.interval = compiled, worlds, steps, interval
        self.threads, self.shared = threads, shared
        self.lanes = compiled.options.width if compiled.options.lanes == plan.WORLDS else 1
        self.blocks = -(-worlds // self.lanes)
        self.memory: dict[tuple[str, str], Memory] = {}
        self.status = np.full(worlds, -1, np.int64)

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
        kind = buffer.kind
        return kind in (SCRATCH, ITERATE) or (kind == OUTPUT and buffer.name not in self.plan.options.record)

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

    def allocate(self, name: str, space: str, reverse: bool = False) -> Memory:
        """The memory of a buffer, zeroed and aligned; made at first use."""
        found = self.memory.get((name, space))
        if found is None:
            buffer = self.plan.program.buffers[name]
            constant = buffer.kind == CONSTANT and space == PRIMAL
            found = self._constant(buffer) if constant else zeroed(self.bytes_of(buffer, space, reverse))
            self.memory[name, space] = found
        return found

    def _constant(self, buffer: Buffer) -> Memory:
        """The packed contents of a constant: the same for all runs, so packed once."""
        place = self.plan.places[buffer.name]
        with _lock:
            packed = _CONSTANTS.setdefault(self.plan.program, {})
            if (buffer.name, place) not in packed:
                values = buffer.values
                assert values is not None
                memory = self.memory[buffer.name, PRIMAL] = zeroed(self.bytes_of(buffer, PRIMAL, False))
                self.pack(buffer.name, PRIMAL, View(_address(values), values.dtype.name, 1, 0, 0, values.shape[1], 1))
                packed[buffer.name, place] = memory
            return packed[buffer.name, place]

    def _order(self, buffer: Buffer) -> Memory:
        """Which of the user's elements each native one is, -1 for padding; made once."""
        place = self.plan.places[buffer.name]
        with _lock:
            packed = _CONSTANTS.setdefault(self.plan.program, {})
            if (buffer.name, place, "order") not in packed:
                assert buffer.order is not None
                order = np.full(place.elements, -1, np.int32)
                order[: buffer.length] = buffer.order
                packed[buffer.name, place, "order"] = _memory_at(order)
            return packed[buffer.name, place, "order"]

    # -- packing ------------------------------------------------------------------------------------------------

    def layout(self, name: str, space: str, view: View, slot: int = 0, reverse: bool = False) -> native.Layout:
        """Description of a transfer between a user's array and a buffer, from `slot` on."""
        buffer, place = self.plan.program.buffers[name], self.plan.places[name]
        memory = self.allocate(name, space, reverse)
        shared = buffer.kind == CONSTANT or (space == PRIMAL and buffer.name in self.shared)
        made = native.Layout()
        made.user, made.dtype = view.pointer, _CODES[view.dtype]
        made.worlds = min(self.worlds, place.lanes) if shared else self.worlds
        made.slots, made.elements, made.numbers = view.slots, buffer.length, len(buffer.kinds)
        made.world_stride, made.slot_stride = view.world_stride, view.slot_stride
        made.element_stride, made.number_stride = view.element_stride, view.number_stride
        made.native = memory.address + slot * place.bytes
        made.native_block_stride = self.slots(buffer, space, reverse) * place.bytes
        made.native_slot_stride = place.bytes
        made.elements_padded = place.elements
        made.native_dtype = native.I32 if "i" in buffer.kinds else native.F64 if place.item == 8 else native.F32
        made.lanes = place.lanes
        made.padded, made.packet = place.numbers, int(place.layout == PACKET)
        if buffer.order is not None:
            made.order = ctypes.cast(self._order(buffer).address, ctypes.POINTER(ctypes.c_int32))
        return made

    def pack(
        self, name: str, space: str, view: View, slot: int = 0, reverse: bool = False, finite: bool = False
    ) -> None:
        """Copy a user's array into a buffer; with `finite`, refuse numbers that are not."""
        made = self.layout(name, space, view, slot, reverse)
        runtime = build.runtime()
        if finite:
            where = (ctypes.c_int64 * 4)()
            if runtime.kn_finite(ctypes.byref(made), where) >= 0:
                raise self._not_finite(self.plan.program.buffers[name], list(where))
        if runtime.kn_pack(ctypes.byref(made)) != DONE:
            kind = self.plan.program.buffers[name].kind
            raise InputError(
                f"{kind} {name!r} holds a number that does not fit into 32 bits", expected="-2**31 ... 2**31 - 1"
            )

    def _not_finite(self, buffer: Buffer, where: list[int]) -> InputError:
        world, step, element, number = where
        parts = [] if self.worlds == 1 or buffer.name in self.shared else [f"world {world}"]
        parts += [f"step {step}"] if buffer.kind == CONTROL else []
        parts += [f"element {element}"] if buffer.count is not None else []
        parts += [f"number {number}"] if len(buffer.kinds) > 1 else []
        return InputError(
            f"{buffer.kind} {buffer.name!r} is not finite",
            where=", ".join(parts) or None,
            expected="finite numbers",
            fix="look for a division by zero, an overflow or a missing value in what computed it",
        )

    def unpack(
        self, name: str, space: str, view: View, slot: int = 0, reverse: bool = False, sum_worlds: bool = False
    ) -> None:
        """Copy a buffer to a user's array; `sum_worlds` adds the worlds up in ascending order, without failed ones."""
        made = self.layout(name, space, view, slot, reverse)
        if sum_worlds:
            made.add, made.world_stride = 1, 0
        if sum_worlds or space == ADJOINT:
            made.status = self.status.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))
        build.runtime().kn_unpack(ctypes.byref(made))

    # -- running ------------------------------------------------------------------------------------------------

    def forward(self, poll: Callable[[int], int] | None = None, which: str = "forward") -> None:
        """Run all steps forward; `which` = 'tangent' propagates tangents too."""
        self._run(_table(self.plan, which), None, poll)

    def backward(self, poll: Callable[[int], int] | None = None) -> None:
        """Run the reverse sweep of all steps."""
        self._run(_table(self.plan, "forward"), _table(self.plan, "reverse"), poll)

    def _run(self, forward: Any, reverse: Any, poll: Callable[[int], int] | None) -> None:
        """Call the runtime; raises KeyboardInterrupt if `poll` cancelled it."""
        made, fault = self._program(forward, reverse, poll)
        runtime = build.runtime()
        answer = (runtime.kn_forward if reverse is None else runtime.kn_backward)(ctypes.byref(made), self.steps)
        if answer == CANCELLED:
            raise KeyboardInterrupt
        if answer == FAULT:
            raise self._fault(fault)
        if answer != DONE:
            fix = "fewer worlds or threads, or a larger checkpoint interval"
            raise KinemaError("the runtime ran out of memory", fix=fix)

    def _program(self, forward: Any, reverse: Any, poll: Callable[[int], int] | None) -> tuple[Any, Any]:
        compiled = self.plan
        kept = CHECKPOINT if self.interval > 1 else PRIMAL
        names = [b.name for b in compiled.program.buffers.values() if b.kind == STATE]
        with _lock:
            states = [compiled.entry(n, PRIMAL) for n in names]
            checkpoints = [compiled.entry(n, kept) for n in names]
            table = list(compiled.table)
        buffers = (native.Buffer * len(table))()
        for at, (name, space) in enumerate(table):
            self._fill(buffers[at], name, space, reverse is not None)
        p = native.Program()
        p.precision, p.lanes = compiled.options.precision, self.lanes
        p.worlds, p.blocks, p.workers = self.worlds, self.blocks, self.threads
        p.n_buffers, p.buffers, p.n_states = len(table), buffers, len(names)
        p.state = (ctypes.c_int32 * len(names))(*states)
        p.checkpoint = (ctypes.c_int32 * len(names))(*checkpoints)
        p.ring, p.interval = self.ring(reverse is not None), self.interval
        p.n_forward, p.forward = len(forward), forward
        if reverse is not None:
            p.n_reverse, p.reverse = len(reverse), reverse
        p.status = self.status.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))
        fault = native.Fault()
        if compiled.options.check:
            p.fault = ctypes.pointer(fault)
        if poll is not None:
            p.poll = native.Poll(poll)
        return p, fault

    def _fill(self, out: native.Buffer, name: str, space: str, reverse: bool) -> None:
        """Address and strides of one entry of the table."""
        buffer, place = self.plan.program.buffers[name], self.plan.places[name]
        if space == ALL_SLOTS:
            slots = self.slots(buffer, ADJOINT, reverse)
            self._fill(out, name, ADJOINT, reverse)
            out.bytes, out.slot_stride = slots * place.bytes, 0
            return
        slots = self.slots(buffer, space, reverse)
        size = place.bytes
        out.base, out.length, out.bytes = self.allocate(name, space, reverse).address, buffer.length, size
        out.slot_stride = size if slots > 1 or buffer.kind != OUTPUT else 0
        if self.per_worker(buffer):
            out.worker_stride = slots * size
        elif self.blocks_of(buffer, space) > 1:
            out.block_stride = slots * size

    def _fault(self, fault: native.Fault) -> KernelError:
        """The error of a checked build: kernel, element, source line."""
        site = self.plan.sites[fault.site]
        # Kernels add the lane to both: packets of elements start at multiples of the width, so do blocks of worlds.
        width = self.plan.options.width
        element, world = fault.element, fault.lane
        if self.lanes > 1:
            element -= world % width
        else:
            world -= element % width
        place = f"element {element}" + (f", world {world}" if self.worlds > 1 else "")
        what = {
            1: f"index {fault.index} of {site.array!r} is out of range (length {fault.length})",
            2: f"element {fault.index} of {site.array!r} is written after it was read in the same kernel",
            3: f"a value stored into {site.array!r} is not finite",
            4: f"uniform(...) is {fault.index} here and {fault.length} in another element of its packet of sixteen",
        }[fault.code]
        return KernelError(
            f"kernel {site.kernel}, {place}: {what}",
            file=site.file,
            line=site.line,
            source=site.source,
            fix="write to another array (state is double-buffered)" if fault.code == 2 else None,
        )
