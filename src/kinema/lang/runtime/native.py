"""The C interface of emitted kernels and runtime, seen from Python.

A ctypes mirror, field by field, of ``native/abi.h`` and ``native/call.cpp``, which explain the fields;
:func:`load_runtime` refuses a library whose structures have other sizes. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_double, c_int, c_int32, c_int64, c_uint8, c_void_p

GROUP = 8
"""Elements of a group: if their scattered writes do not collide, the writes may run in any order."""
PACKET = 16
"""Elements whose scalars are contiguous in packet layout: the virtual width of all kernels."""
CHUNK = 256
"""Elements that a worker runs at a time; each chunk forms its own sums over elements."""

# Slots of a buffer (kn_ref.slot).
SLOT_ZERO, SLOT_STEP, SLOT_STATE, SLOT_STATE_NEXT, SLOT_ADJ, SLOT_ADJ_NEXT, SLOT_LOOP = range(7)
MAX_LOOPS = 16

# Instructions (kn_instruction.op).
OP_CALL, OP_ZERO, OP_COPY, OP_ADD, OP_LOOP, OP_END, OP_SKIP = range(7)

# Return codes of the runtime.
DONE, CANCELLED, FAULT, NO_MEMORY, BAD_LAYOUT, OUT_OF_RANGE, NOT_FINITE, WORLDS_FAILED = range(8)

# When an array is transferred block by block (kn_stream.action).
PACK_BEFORE, ZERO_BEFORE, UNPACK_AFTER = range(3)

# How an array of the user is transferred (kn_move.how); streams follow, in the order of their actions.
PACK, UNPACK, READ_THERE, STREAM = range(4)

# Scalar types (kn_layout.dtype).
F32, F64, I32, I64 = range(4)


def slot_iteration(loop: int) -> int:
    """Slot of the current iteration of a loop."""
    return SLOT_LOOP + 3 * loop


def slot_next_iteration(loop: int) -> int:
    """Slot of the iteration after the current one."""
    return SLOT_LOOP + 3 * loop + 1


def slot_iterations_done(loop: int) -> int:
    """Slot of the number of iterations that the loop has done."""
    return SLOT_LOOP + 3 * loop + 2


class Fault(ctypes.Structure):
    """First fault of a checked build (``kn_fault``)."""

    _fields_ = [
        ("code", c_int32),
        ("site", c_int32),
        ("element", c_int64),
        ("lane", c_int64),
        ("index", c_int64),
        ("length", c_int64),
    ]


class Arena(ctypes.Structure):
    """Memory of one worker for local arrays (``kn_arena``)."""

    _fields_ = [
        ("base", c_void_p),
        ("size", c_int64),
        ("used", c_int64),
        ("wanted", c_int64),
        ("overflow", c_void_p),
    ]


class Call(ctypes.Structure):
    """The argument of a kernel (``kn_call``)."""

    _fields_ = [
        ("array", POINTER(c_void_p)),
        ("length", POINTER(c_int64)),
        ("begin", c_int64),
        ("end", c_int64),
        ("active", c_int32),
        ("world", c_int32),
        ("arena", POINTER(Arena)),
        ("fault", POINTER(Fault)),
        ("apart", POINTER(c_uint8)),
    ]


class Buffer(ctypes.Structure):
    """A buffer with the strides of its blocks, workers and slots (``kn_buffer``)."""

    _fields_ = [
        ("base", c_void_p),
        ("block_stride", c_int64),
        ("worker_stride", c_int64),
        ("slot_stride", c_int64),
        ("length", c_int64),
        ("bytes", c_int64),
    ]


class Ref(ctypes.Structure):
    """A slot of a buffer, argument of an instruction (``kn_ref``)."""

    _fields_ = [("buffer", c_int32), ("slot", c_int32)]


class Schedule(ctypes.Structure):
    """Order of the chunks of a call, by colours (``kn_schedule``)."""

    _fields_ = [
        ("colours", c_int32),
        ("colour_start", POINTER(c_int32)),
        ("chunks", POINTER(c_int32)),
        ("apart", POINTER(c_uint8)),
    ]


class Instruction(ctypes.Structure):
    """One instruction of a step program (``kn_instruction``); ``kernel`` is the address of a ``kn_kernel``."""

    _fields_ = [
        ("op", c_int32),
        ("n_refs", c_int32),
        ("refs", POINTER(Ref)),
        ("kernel", c_void_p),
        ("count", c_int64),
        ("schedule", POINTER(Schedule)),
        ("partial", POINTER(c_int32)),
        ("cost", c_double),
        ("loop", c_int32),
        ("times", c_int32),
        ("descending", c_int32),
        ("ahead", c_int32),
        ("end", c_int32),
    ]


class Layout(ctypes.Structure):
    """A user's strided array and its place in native memory (``kn_layout``)."""

    _fields_ = [
        ("user", c_void_p),
        ("worlds", c_int64),
        ("slots", c_int64),
        ("elements", c_int64),
        ("numbers", c_int64),
        ("world_stride", c_int64),
        ("slot_stride", c_int64),
        ("element_stride", c_int64),
        ("number_stride", c_int64),
        ("native", c_void_p),
        ("native_block_stride", c_int64),
        ("native_slot_stride", c_int64),
        ("elements_padded", c_int64),
        ("order", POINTER(c_int32)),
        ("status", POINTER(c_int64)),
        ("dtype", c_int32),
        ("native_dtype", c_int32),
        ("lanes", c_int32),
        ("padded", c_int32),
        ("packet", c_int32),
        ("add", c_int32),
    ]


class Stream(ctypes.Structure):
    """An array that is transferred block by block (``kn_stream``)."""

    _fields_ = [("layout", Layout), ("worker_stride", c_int64), ("action", c_int32)]


Poll = ctypes.CFUNCTYPE(c_int32, c_int64)
"""Type of ``kn_program.poll``: steps done -> 0 to go on. Keep a reference to it while the program runs."""


class Program(ctypes.Structure):
    """A step program with its memory (``kn_program``)."""

    _fields_ = [
        ("precision", c_int32),
        ("lanes", c_int32),
        ("worlds", c_int32),
        ("blocks", c_int32),
        ("n_buffers", c_int32),
        ("buffers", POINTER(Buffer)),
        ("n_states", c_int32),
        ("state", POINTER(c_int32)),
        ("checkpoint", POINTER(c_int32)),
        ("ring", c_int32),
        ("interval", c_int32),
        ("n_forward", c_int32),
        ("n_reverse", c_int32),
        ("forward", POINTER(Instruction)),
        ("reverse", POINTER(Instruction)),
        ("n_streams", c_int32),
        ("streams", POINTER(Stream)),
        ("workers", c_int32),
        ("status", POINTER(c_int64)),
        ("arenas", POINTER(Arena)),
        ("fault", POINTER(Fault)),
        ("poll", Poll),
    ]


class Move(ctypes.Structure):
    """An array of the user and its kind of transfer (``kn_move``)."""

    _fields_ = [
        ("layout", Layout),
        ("piece", c_int32),
        ("how", c_int32),
        ("finite", c_int32),
        ("skip_failed", c_int32),
    ]


class Prepared(ctypes.Structure):
    """A run without its addresses (``kn_prepared``)."""

    _fields_ = [
        ("program", Program),
        ("piece_of", POINTER(c_int32)),
        ("piece_bytes", POINTER(c_int64)),
        ("piece_zeros", POINTER(c_int64)),
        ("moves", POINTER(Move)),
        ("steps", c_int64),
        ("worker_stride", c_int64),
        ("n_pieces", c_int32),
        ("n_moves", c_int32),
        ("backward", c_int32),
    ]


_STRUCTURES = (Fault, Arena, Call, Buffer, Ref, Schedule, Instruction, Program, Layout, Stream)
_OF_CALLS = (Move, Prepared)


def _check_sizes(library: ctypes.CDLL, path: str) -> None:
    for structures, ask in ((_STRUCTURES, library.kn_sizes), (_OF_CALLS, library.kn_call_sizes)):
        sizes = (c_int64 * len(structures))()
        ask(sizes)
        for structure, size in zip(structures, sizes, strict=True):
            if ctypes.sizeof(structure) != size:
                raise ImportError(
                    f"{path}: built for another version of abi.h: {structure.__name__} has {size} bytes there and "
                    f"{ctypes.sizeof(structure)} in kinema.lang.runtime.native; build the library again"
                )


def load_runtime(path: str | os.PathLike[str]) -> ctypes.CDLL:
    """Load the runtime library; calls of its functions release the interpreter lock.

    Args:
        path: The shared library built from the ``.cpp`` files in ``native``.

    Returns:
        The library, with argument and result types set: ``kn_run(prepared, addresses, status, fault, poll)``,
        ``kn_forward(program, steps)``, ``kn_backward(program, steps)``, ``kn_cpus()``, ``kn_pack(layout)``,
        ``kn_unpack(layout)``, ``kn_finite(layout, where)``, ``kn_sizes(sizes)``, ``kn_call_sizes(sizes)``.

    Raises:
        ImportError: The library was built from another version of ``abi.h``.
        OSError: The library cannot be loaded.
    """
    library = ctypes.CDLL(os.fspath(path))
    prototypes = {
        # Arguments are addresses: every call passes them.
        "kn_run": (c_int64, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
        "kn_forward": (c_int, [POINTER(Program), c_int64]),
        "kn_backward": (c_int, [POINTER(Program), c_int64]),
        "kn_cpus": (c_int, []),
        "kn_pack": (c_int, [POINTER(Layout)]),
        "kn_unpack": (c_int, [POINTER(Layout)]),
        "kn_finite": (c_int64, [POINTER(Layout), POINTER(c_int64)]),
        "kn_sizes": (None, [POINTER(c_int64)]),
        "kn_call_sizes": (None, [POINTER(c_int64)]),
    }
    for name, (result, arguments) in prototypes.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    _check_sizes(library, os.fspath(path))
    return library
