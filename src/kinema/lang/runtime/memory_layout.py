"""The memory layout of a run and its description for the runtime: everything that depends on sizes only."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from kinema.lang.build import compiler
from kinema.lang.emit.simd import AOS, DENSE, PACKET
from kinema.lang.programs import plan
from kinema.lang.programs.plan import ADJOINT, PRIMAL, SEED, TANGENT, Options, Plan, every_call, every_node
from kinema.lang.programs.program import (
    CONSTANT,
    CONTROL,
    ITERATE,
    OUTPUT,
    PARAMETER,
    PULLED,
    SCRATCH,
    STATE,
    Buffer,
    Custom,
    Loop,
    Program,
)
from kinema.lang.programs.pullback_plan import PullbackPlan
from kinema.lang.runtime import native

CHECKPOINT = "checkpoint"  # space of the checkpoints if the interval is above 1
ALIGNMENT = 64  # bytes: a cache line
REMEMBERED = 64  # cache size per owner: arrangements of a plan, and the like
_CODES = {"float32": native.F32, "float64": native.F64, "int32": native.I32, "int64": native.I64}

Key = tuple[str, str]  # name and space of a buffer
Made = TypeVar("Made")


class Memory(NamedTuple):
    """The bytes of a piece of memory and their address."""

    bytes: np.ndarray
    address: int


def zeroed(size: int) -> Memory:
    """Aligned memory, all zero."""
    raw: Any = np.zeros(size + ALIGNMENT, np.uint8)
    address = ctypes.addressof(ctypes.c_uint8.from_buffer(raw))  # several times faster than numpy's `ctypes.data`
    start = -address % ALIGNMENT
    return Memory(raw[start : start + size], address + start)


def aligned(array: np.ndarray, address: int) -> Memory:
    """The bytes of an array; copied if they are not aligned."""
    if address % ALIGNMENT == 0:
        return Memory(array, address)
    made = zeroed(array.nbytes)
    made.bytes[:] = array
    return made


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


# -- made once per program --------------------------------------------------------------------------------------

_TABLES: WeakKeyDictionary[Plan, dict[str, Any]] = WeakKeyDictionary()  # instruction lists in native form
_CONSTANTS: WeakKeyDictionary[Program, dict[Any, Memory]] = WeakKeyDictionary()  # packed constants, and orders
_ARRANGEMENTS: WeakKeyDictionary[Plan, dict[Any, Any]] = WeakKeyDictionary()  # by setting; and predicted bytes
_lock = threading.RLock()  # one thread at a time translates and compiles; runs need no lock


def _forget_lock() -> None:
    global _lock
    _lock = threading.RLock()  # in a child of fork: another thread of the parent may have held it


os.register_at_fork(after_in_child=_forget_lock)


def keep_in(known: dict[Any, Any], key: Hashable, make: Callable[[], Made]) -> Made:
    """The result of `make`, cached by key for all threads; evicts the oldest entry."""
    with _lock:
        found: Made | None = known.get(key)
        if found is None:
            found = make()
            while len(known) >= REMEMBERED:
                del known[next(iter(known))]
            known[key] = found
    return found


def _remembered(
    cache: WeakKeyDictionary[Any, dict[Any, Any]], owner: Any, key: Hashable, make: Callable[[], Made]
) -> Made:
    """Like `keep_in`, in a cache per owner. The cached value must not reference its owner."""
    with _lock:
        return keep_in(cache.setdefault(owner, {}), key, make)


def plan_for(program: Program, options: Options) -> Plan:
    """The plan of a program for these options; the program caches it."""
    found = program.plans.get(options)
    if found is None:
        with _lock:
            found = program.plans.get(options)
            if found is None:
                kind = Plan if program.pulls is None else PullbackPlan
                found = program.plans[options] = kind(program, options)
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
        # ctypes keeps the target of a pointer field alive.
        made.op, made.n_refs = source.op, len(source.refs)
        made.refs = (native.Ref * len(source.refs))(*[native.Ref(b, s) for b, s in source.refs])
        made.count, made.cost = source.count, source.cost
        made.loop, made.times, made.end = source.loop, source.times, source.end
        made.descending, made.ahead = int(source.descending), int(source.ahead)
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


def _constant(compiled: Plan, buffer: Buffer) -> Memory:
    """The packed contents of a constant, cached: all runs share them."""
    place = compiled.places[buffer.name]
    packed = _CONSTANTS.setdefault(compiled.program, {})
    if (buffer.name, place) not in packed:
        values = buffer.values
        assert values is not None
        memory = zeroed(place.bytes)
        made = native.Layout()
        _describe(made, compiled, buffer)
        made.worlds, made.slots, made.world_stride = place.lanes, 1, 0
        made.user, made.dtype, made.native = _address(values), _CODES[values.dtype.name], memory.address
        compiler.runtime().kn_pack(made)
        packed[buffer.name, place] = memory
    return packed[buffer.name, place]


def _seeds(compiled: PullbackPlan, buffer: Buffer) -> Memory:
    """Seed cotangents of the Jacobian's rows for one of its row buffers: parts of the identity; made once."""
    place = compiled.place(buffer.name, SEED)
    packed = _CONSTANTS.setdefault(compiled.program, {})
    if (buffer.name, place, SEED) not in packed:
        first, width = 0, place.lanes
        for ref in compiled.pulls.rows:
            numbers = ref.buffer.length * len(ref.buffer.kinds)
            if ref.buffer is buffer:
                break
            first += numbers
        memory = zeroed(compiled.packets * place.bytes)
        made = memory.bytes.view(np.float64 if place.item == 8 else np.float32).reshape(
            compiled.packets, numbers, width
        )
        for k in range(numbers):
            made[(first + k) // width, k, (first + k) % width] = 1.0
        packed[buffer.name, place, SEED] = memory
    return packed[buffer.name, place, SEED]


def _order(compiled: Plan, buffer: Buffer) -> Memory:
    """Index of the user's element for each native element, -1 for padding; made once."""
    place = compiled.places[buffer.name]
    packed = _CONSTANTS.setdefault(compiled.program, {})
    if (buffer.name, place, "order") not in packed:
        assert buffer.order is not None
        order = np.full(place.elements, -1, np.int32)
        order[: buffer.length] = buffer.order
        packed[buffer.name, place, "order"] = Memory(order, _address(order))
    return packed[buffer.name, place, "order"]


def _describe(out: native.Layout, compiled: Plan, buffer: Buffer) -> None:
    """The layout of a transfer between a user's dense array and one slot of a buffer, without sizes and addresses."""
    place = compiled.places[buffer.name]
    out.elements, out.numbers = buffer.length, len(buffer.kinds)
    out.element_stride, out.number_stride = len(buffer.kinds), 1
    out.native_slot_stride, out.elements_padded = place.bytes, place.elements
    out.native_dtype = native.I32 if "i" in buffer.kinds else native.F64 if place.item == 8 else native.F32
    out.lanes, out.padded, out.packet = place.lanes, place.numbers, int(place.layout == PACKET)
    out.dtype = out.native_dtype
    if buffer.order is not None:
        out.order = ctypes.cast(_order(compiled, buffer).address, ctypes.POINTER(ctypes.c_int32))


# -- made once per plan and setting -----------------------------------------------------------------------------


class Setting(NamedTuple):
    """Settings that determine the memory of a run, besides its plan.

    Attributes:
        worlds: Number of worlds.
        steps: Number of steps.
        threads: Upper bound of worker threads.
        shared: Names of parameters and controls that all worlds share.
        interval: Checkpoint interval; 0 keeps nothing (no reverse).
        apart: Names of states in separate memory that outlives the run: their trajectories are views of it.
        streamed: Whether arrays with values for every step and world are transferred block by block during the run, see
            `can_stream`; memory then holds one block per worker.
        direct: Names of controls that kernels read in the user's array, and whose cotangents they write into the
            user's array, see `can_be_direct`; then of outputs, with reads and writes exchanged, see `direct_outputs`.
        whole: Whether the run keeps everything that its only step computes for the reverse sweep, see `can_be_whole`.
    """

    worlds: int
    steps: int
    threads: int
    shared: frozenset[str]
    interval: int = 0
    apart: tuple[str, ...] = ()
    streamed: bool = False
    direct: tuple[str, ...] = ()
    whole: bool = False


def can_be_whole(program: Program, steps: int) -> bool:
    """Whether the reverse sweep can use the scratch of the forward run: one step, no loops, never overwritten."""
    nodes = every_node(program.nodes)
    custom = [node for node in nodes if isinstance(node, Custom)]
    if steps > 1 or any(isinstance(node, Loop) for node in nodes) or any(node.replay for node in custom):
        return False
    calls = [call for node in custom for call in every_call(node.adjoint)]
    pairs = [pair for call in calls for pair in zip(call.kernel.arrays, call.args, strict=True)]
    return all(ref.cotangent for array, ref in pairs if array.written)


def can_be_direct(compiled: Plan, buffer: Buffer, worlds: int) -> bool:
    """Whether a dense array of a control has the layout of its buffer."""
    place = compiled.places[buffer.name]
    dense = place.layout == AOS and place.numbers == len(buffer.kinds) and place.elements == buffer.length
    dense = dense and buffer.order is None  # kernels read elements in the order of the buffer
    return buffer.kind == CONTROL and worlds == 1 and place.lanes == 1 and dense and "f" in buffer.kinds


def direct_outputs(compiled: Plan, outputs: Sequence[str], steps: int) -> tuple[str, ...]:
    """Outputs with the layout of the user's array, of one step whose reverse sweep does not recompute them."""
    if compiled.program.pulls is None and not can_be_whole(compiled.program, steps):
        return ()
    return tuple([name for name in outputs if compiled.places[name].layout == DENSE])


def can_stream(compiled: Plan, recorded: Sequence[str], worlds: int) -> bool:
    """Whether arrays may be transferred block by block: several worlds, and the user gets the states of all steps.

    If worlds do not share blocks, the program must have no states, because recorded states lie in separate memory that
    outlives the run; image programs have none.
    """
    states = {b.name for b in compiled.program.buffers.values() if b.kind == STATE}
    return states == set(recorded) and (compiled.options.lanes == plan.WORLDS or (worlds > 1 and not states))


class Sizes:
    """Numbers of slots and copies of the buffers of a run."""

    def __init__(self, compiled: Plan, setting: Setting, reverse: bool = False) -> None:
        self.plan, self.setting = compiled, setting
        self.lanes = compiled.options.width if compiled.options.lanes == plan.WORLDS else 1
        self.blocks = -(-setting.worlds // self.lanes)
        steps, interval = setting.steps, setting.interval
        self.ring = steps + 1 if interval == 1 else interval + 1 if reverse else 2  # slots of the state

    def slots(self, buffer: Buffer, space: str) -> int:
        """Number of slots of a buffer in a space."""
        steps = self.setting.steps
        if space != PRIMAL and isinstance(self.plan, PullbackPlan):
            return self.plan.slots(buffer.name, space)
        if buffer.kind == STATE:
            if space in (PRIMAL, TANGENT):
                return self.ring
            if space == CHECKPOINT:
                return max(-(-steps // max(self.setting.interval, 1)), 1)
            return steps if space == SEED else 2
        if buffer.kind == CONTROL:
            return steps
        if buffer.kind == OUTPUT:
            return steps if buffer.name in self.plan.options.record else 1
        if buffer.kind == ITERATE:
            assert buffer.loop is not None
            return buffer.loop.times + 1
        return 1

    def per_worker(self, buffer: Buffer, space: str) -> bool:
        """Whether the buffer has one copy per worker instead of one per block."""
        if self._unused(buffer) or self.is_streamed(buffer):
            return True
        if isinstance(self.plan, PullbackPlan) and (space != PRIMAL or buffer.kind == PULLED):
            return space != SEED  # seeds are constant
        return buffer.kind in (SCRATCH, ITERATE) and not (self.setting.whole and space == PRIMAL)

    def is_streamed(self, buffer: Buffer) -> bool:
        """Whether a buffer is transferred block by block."""
        setting = self.setting
        if not setting.streamed or buffer.name in (*setting.shared, *setting.direct) or self._unused(buffer):
            return False
        return buffer.kind in (STATE, CONTROL, OUTPUT)

    def _unused(self, buffer: Buffer) -> bool:
        return buffer.kind == OUTPUT and buffer.name not in self.plan.options.record

    def is_shared(self, buffer: Buffer, space: str) -> bool:
        """Whether all worlds share the values of a buffer."""
        seeded = space == SEED and isinstance(self.plan, PullbackPlan)
        return buffer.kind == CONSTANT or seeded or (space == PRIMAL and buffer.name in self.setting.shared)

    def blocks_of(self, buffer: Buffer, space: str) -> int:
        """Copies of a buffer: one if all worlds share it, one per worker for scratch, else one per block."""
        if self.per_worker(buffer, space):
            return self.setting.threads
        return 1 if self.is_shared(buffer, space) else self.blocks

    def bytes_of(self, buffer: Buffer, space: str) -> int:
        """Bytes of a buffer in a space."""
        return self.blocks_of(buffer, space) * self.slots(buffer, space) * self.plan.place(buffer.name, space).bytes

    def predicted(self, buffer: Buffer, space: str) -> int:
        """Like `bytes`, but with the size of the user's array for a streamed buffer."""
        streamed = self.is_streamed(buffer) * self.slots(buffer, space) * self.plan.place(buffer.name, space).bytes
        return self.bytes_of(buffer, space) + self.blocks * streamed


def predicted_bytes(compiled: Plan, setting: Setting, keep: bool) -> tuple[int, int]:
    """Bytes of one state of all worlds, and of all other buffers; with `keep`, including their cotangents."""

    def add() -> tuple[int, int]:
        sizes, state, others = Sizes(compiled, setting), 0, 0
        for buffer in compiled.program.buffers.values():
            if buffer.kind == STATE:
                state += sizes.blocks * compiled.places[buffer.name].bytes
                others += keep * 2 * sizes.predicted(buffer, ADJOINT)
                continue
            others += sizes.bytes_of(buffer, PRIMAL) if buffer.kind == CONTROL else sizes.predicted(buffer, PRIMAL)
            if keep and buffer.kind != CONSTANT and "f" in buffer.kinds:
                others += sizes.predicted(buffer, ADJOINT)
        return state, others

    return _remembered(_ARRANGEMENTS, compiled, (setting, keep), add)


# Pieces of memory: constants, which keep their own addresses; memory of a run, shared and per worker; memory kept for a
# reverse sweep, followed by one piece for each state that is `apart`, for each array that is `direct`, and for its
# cotangent.
CONSTANTS, RUN, WORKERS, KEPT = range(4)


class Region(NamedTuple):
    """The place of a buffer: its piece of memory, its offset [bytes] and its size [bytes]."""

    piece: int
    offset: int
    size: int = 0


class Arrangement:
    """The memory layout of a run and its description for the runtime, except addresses.

    Args:
        compiled: The plan.
        setting: The setting.
        which: 'forward', 'tangent' (forward too) or 'reverse'.
    """

    def __init__(self, compiled: Plan, setting: Setting, which: str) -> None:
        replays = which == "reverse" and setting.interval > 1
        first = "tangent" if which == "tangent" else "forward"
        forward = _table(compiled, first) if which != "reverse" or replays else ()
        reverse = _table(compiled, "reverse") if which == "reverse" else None
        sizes = Sizes(compiled, setting, reverse is not None)
        buffers = compiled.program.buffers
        states = [b.name for b in buffers.values() if b.kind == STATE]
        kept = CHECKPOINT if setting.interval > 1 else PRIMAL
        numbers = [[compiled.entry(n, space) for n in states] for space in (PRIMAL, kept)]
        self.regions: dict[Key, Region] = {}
        self.pieces = [0] * (KEPT + 1 + len(setting.apart))  # bytes of each, direct ones left out
        for i, name in enumerate(setting.direct):
            self.regions[name, PRIMAL] = Region(len(self.pieces) + i, 0)
            if not isinstance(compiled, PullbackPlan):
                self.regions[name, ADJOINT] = Region(len(self.pieces) + len(setting.direct) + i, 0)
        # Kept buffers come first and in program order, so that forward and reverse sweep agree on their places.
        for buffer in buffers.values():
            if buffer.kind == STATE and not sizes.is_streamed(buffer):
                own = KEPT + 1 + setting.apart.index(buffer.name) if buffer.name in setting.apart else KEPT
                self._arrange(sizes, buffer, kept, own)
            if buffer.kind == SCRATCH and setting.whole and not buffer.filled:
                self._arrange(sizes, buffer, PRIMAL, KEPT)
        self.unset = self.pieces[KEPT:]  # kept bytes that must be zero: all except inputs
        for buffer in buffers.values():
            given = buffer.kind in (PARAMETER, CONTROL) and not sizes.is_streamed(buffer)
            if given or (buffer.kind == SCRATCH and setting.whole and buffer.filled):
                self._arrange(sizes, buffer, PRIMAL, KEPT)

        def is_last(key: Key) -> bool:
            """Outputs that kernels fill, and cotangents of outputs: they need no zeroing if the caller gives them."""
            buffer = buffers[key[0]]
            return buffer.kind == OUTPUT and (key[1] != PRIMAL or buffer.filled)

        named = (*_zeroed(compiled, which), *compiled.table, *_transferred(compiled, which))
        self.zeros_of_worker = 0  # bytes per worker that must be zero
        if isinstance(compiled, PullbackPlan):  # all cotangents are zeroed packet by packet
            for name, space in named:
                if space == PRIMAL and buffers[name].source is None:
                    self._arrange(sizes, buffers[name], space, RUN)
            self.zeros_of_worker = self.pieces[WORKERS]
            unused = set(compiled.table).difference(compiled.used("forward"))
            self.regions |= {key: Region(WORKERS, 0) for key in unused if key not in self.regions}
        for name, space in sorted(named, key=is_last):
            self._arrange(sizes, buffers[name], space, RUN)
        self.zeros_of_worker = self.zeros_of_worker or self.pieces[WORKERS]
        self.of_worker = self.pieces[WORKERS]  # bytes
        self.pieces[WORKERS] *= setting.threads
        self.streamed = {key for key in self.regions if sizes.is_streamed(buffers[key[0]])}
        self._describe(sizes, forward, reverse, numbers)

    def _arrange(self, sizes: Sizes, buffer: Buffer, space: str, piece: int) -> None:
        """Append a buffer to a piece of memory."""
        key = buffer.name, space
        if key in self.regions:
            return
        if buffer.kind == CONSTANT and space == PRIMAL:
            self.regions[key] = Region(CONSTANTS, _constant(sizes.plan, buffer).address)
            return
        if space == SEED and isinstance(sizes.plan, PullbackPlan):
            self.regions[key] = Region(CONSTANTS, _seeds(sizes.plan, buffer).address)
            return
        if buffer.source is not None:  # pulled: shares memory with the cotangents
            self._arrange(sizes, buffer.source, ADJOINT, piece)
            self.regions[key] = self.regions[buffer.source.name, ADJOINT]
            return
        own = sizes.per_worker(buffer, space)
        piece = WORKERS if own else piece
        size = sizes.bytes_of(buffer, space) // (sizes.setting.threads if own else 1)
        self.regions[key] = Region(piece, self.pieces[piece], size)
        self.pieces[piece] += -(-size // ALIGNMENT) * ALIGNMENT

    def _describe(self, sizes: Sizes, forward: Any, reverse: Any, numbers: list[list[int]]) -> None:
        """The native program and its table of buffers, with offsets instead of addresses."""
        compiled, setting = sizes.plan, sizes.setting
        table: Any = (native.Buffer * len(compiled.table))()
        for out, key in zip(table, compiled.table, strict=True):
            self._fill(out, sizes, *key)
        self.piece_of = (ctypes.c_int32 * len(table))(*[self.regions[key].piece for key in compiled.table])
        p = self.program = native.Program()
        p.precision, p.lanes = compiled.options.precision, sizes.lanes
        p.worlds, p.blocks, p.workers = setting.worlds, sizes.blocks, setting.threads
        p.n_buffers, p.buffers, p.n_states = len(table), table, len(numbers[0])
        p.state, p.checkpoint = ((ctypes.c_int32 * len(n))(*n) for n in numbers)
        p.ring, p.interval = sizes.ring, setting.interval
        if forward:
            p.n_forward, p.forward = len(forward), forward
        if reverse is not None:
            p.n_reverse, p.reverse = len(reverse), reverse

    def _fill(self, out: native.Buffer, sizes: Sizes, name: str, space: str) -> None:
        """Offset and strides of one entry of the table."""
        buffer, size = sizes.plan.program.buffers[name], sizes.plan.place(name, space).bytes
        slots = sizes.slots(buffer, space)
        out.base, out.length, out.bytes = self.regions[name, space].offset, buffer.length, size
        out.slot_stride = size if slots > 1 or buffer.kind != OUTPUT else 0
        if sizes.per_worker(buffer, space):
            out.worker_stride = self.of_worker
        elif sizes.blocks_of(buffer, space) > 1:
            out.block_stride = slots * size

    def describe_transfer(self, out: native.Layout, sizes: Sizes, key: Key, slot: int | None) -> int:
        """Describe the transfer between a dense array of the user and a buffer; returns the piece of its memory.

        Transfers all slots, or only `slot` of a state unless it is None. Arrays of shared inputs have no worlds; their
        cotangents are summed over the worlds in ascending order.
        """
        (name, space), setting = key, sizes.setting
        buffer, place = sizes.plan.program.buffers[name], sizes.plan.places[name]
        with _lock:
            _describe(out, sizes.plan, buffer)
        one = buffer.kind == STATE and slot is not None
        out.slots = 1 if one else sizes.slots(buffer, space)
        numbers = buffer.length * len(buffer.kinds)
        out.slot_stride = numbers if out.slots > 1 else 0
        shared = name in setting.shared
        out.world_stride = 0 if shared else numbers * out.slots
        out.worlds = min(setting.worlds, place.lanes) if shared and space == PRIMAL else setting.worlds
        out.add = int(shared and space == ADJOINT)
        out.native_block_stride = sizes.slots(buffer, space) * place.bytes
        piece, offset, _ = self.regions[key]
        out.native = offset + (slot or 0) * place.bytes * one
        return piece


def arrangement_for(compiled: Plan, setting: Setting, which: str) -> Arrangement:
    """The arrangement of a plan and a setting; the plan caches it."""
    return _remembered(_ARRANGEMENTS, compiled, (setting, which), lambda: Arrangement(compiled, setting, which))


def _zeroed(compiled: Plan, which: str) -> Iterator[Key]:
    """Buffers zeroed in each step, in this order: contiguous ones are zeroed at once."""
    keys = list(compiled.table)
    for instruction in compiled.instructions(which):
        if instruction.op == native.OP_ZERO:
            yield keys[instruction.refs[0][0]]


def _transferred(compiled: Plan, which: str) -> list[Key]:
    """Buffers that are packed or unpacked besides inputs, even if no instruction uses them."""
    o, buffers = compiled.options, compiled.program.buffers.values()
    states = [b.name for b in buffers if b.kind == STATE]
    made = o.record if which != "reverse" else ()
    keys = [(b.name, PRIMAL) for b in buffers if b.kind in (STATE, CONTROL) or b.name in made]
    outputs = [name for name in sorted(o.record) if "f" in compiled.program.buffers[name].kinds]
    if which == "tangent":
        keys += [(name, TANGENT) for name in (*states, *sorted(o.wrt), *outputs)]
    elif which == "reverse":
        keys += [(name, ADJOINT) for name in (*states, *sorted(o.wrt), *outputs)]
        keys += [(name, SEED) for name in sorted(o.seeds)]
    return keys
