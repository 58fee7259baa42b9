"""Runs plans: preparation fixes everything that depends on sizes; a run adds addresses and calls the runtime once.

Uses pointers and strides, not torch: `native.Layout` describes a user's array, whoever owns it.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kinema.errors import InputError, KernelError, KinemaError
from kinema.lang.build import compiler
from kinema.lang.programs.plan import ADJOINT, PRIMAL, SEED, Plan
from kinema.lang.programs.program import CONTROL, OUTPUT, Buffer
from kinema.lang.runtime import native
from kinema.lang.runtime.memory_layout import CONSTANTS, RUN, WORKERS, Key, Setting, Sizes, arrangement_for

_Where = ctypes.c_int64 * 4  # world, slot, element and scalar


class Move(NamedTuple):
    """A transfer between an array of the user and a buffer.

    Attributes:
        key: The buffer.
        slot: The slot of a state; None for all.
        strides: Strides of worlds, slots, elements and scalars of the user's array; None if it is dense.
        wide: Whether its integers have 64 bits.
    """

    key: Key
    slot: int | None = 0
    strides: tuple[int, ...] | None = None
    wide: bool = False


class Prepared:
    """All runs of a plan with equal shapes and strides of the arrays; several threads may run it at once.

    Args:
        compiled: The plan.
        setting: Sizes and settings.
        which: 'forward', 'tangent' (forward with tangents) or 'reverse'.
        ins: Arrays that the run reads.
        outs: Arrays that the run fills. It skips cotangents of failed worlds, so these must be zero before.
        given: Pieces of memory from the caller, see `memory_layout.KEPT`, and the number of bytes to zero in each; the
            other pieces start at zero and live for one run.
        finite: The first `finite` of `ins` must be finite.
    """

    def __init__(
        self,
        compiled: Plan,
        setting: Setting,
        which: str,
        ins: Sequence[Move],
        outs: Sequence[Move],
        given: Mapping[int, int] | None = None,
        finite: int = 0,
    ) -> None:
        self.plan, self.setting, self.which = compiled, setting, which
        known = self.arrangement = arrangement_for(compiled, setting, which)
        sizes = Sizes(compiled, setting, which == "reverse")
        # Streamed cotangents without an array are zero.
        empty = known.streamed.difference(move.key for move in ins)
        zeros = [Move(key, None) for key in sorted(empty) if key[1] in (ADJOINT, SEED)]
        self.moves: Any = (native.Move * (len(ins) + len(outs) + len(zeros)))()
        actions = (
            [native.PACK_BEFORE] * len(ins) + [native.UNPACK_AFTER] * len(outs) + [native.ZERO_BEFORE] * len(zeros)
        )
        self.named = [*ins, *outs, *zeros]
        for i, (out, move, action) in enumerate(zip(self.moves, self.named, actions, strict=True)):
            out.piece = known.describe_transfer(out.layout, sizes, move.key, move.slot)
            out.how, out.finite = self._way(move.key, action), int(i < finite)
            out.skip_failed = int(action == native.UNPACK_AFTER and move.key[1] == ADJOINT)
            if move.wide:
                out.layout.dtype = native.I64
            if move.strides is not None:
                world, *others = move.strides
                out.layout.slot_stride, out.layout.element_stride, out.layout.number_stride = others
                out.layout.world_stride = world if out.layout.world_stride else 0
        self._describe(given or {}, len(zeros))

    def _way(self, key: Key, action: int) -> int:
        """How an array is transferred."""
        if key in self.arrangement.streamed:
            return native.STREAM + action
        if action == native.UNPACK_AFTER:
            return native.UNPACK
        return native.READ_THERE if key[0] in self.setting.direct else native.PACK

    def _describe(self, given: Mapping[int, int], unset: int) -> None:
        known, setting = self.arrangement, self.setting
        direct = [0] * 2 * len(setting.direct)  # never allocated here
        sizes = [*known.pieces, *direct]
        sizes[CONSTANTS] = 0
        zeros = [given.get(i, size) for i, size in enumerate(sizes)]
        zeros[RUN] = self._end_of_unset()
        if setting.threads == 1:
            zeros[WORKERS] = known.zeros_of_worker
        p = self.native = native.Prepared()
        p.program, p.piece_of = known.program, known.piece_of
        pieces = [-1 if i in given else size for i, size in enumerate(sizes)]
        p.piece_bytes, p.piece_zeros = ((ctypes.c_int64 * len(sizes))(*numbers) for numbers in (pieces, zeros))
        p.n_pieces = len(sizes)
        p.moves, p.n_moves = self.moves, len(self.moves)
        p.steps, p.worker_stride, p.backward = setting.steps, known.of_worker, int(self.which == "reverse")
        self._address = ctypes.addressof(p)
        self._no_arrays = (0,) * unset
        self._packed = struct.Struct(f"{len(self.moves) + len(given)}q").pack
        self._call = compiler.runtime().kn_run

    def _end_of_unset(self) -> int:
        """Bytes that must be zero before a run; excludes outputs, and cotangents of outputs, that the run sets."""
        buffers, named = self.plan.program.buffers, zip(self.named, self.moves, strict=True)
        filled = {m.key for m, out in named if out.how == native.PACK and buffers[m.key[0]].kind == OUTPUT}
        filled |= {(b.name, PRIMAL) for b in buffers.values() if b.kind == OUTPUT and b.filled}
        regions = self.arrangement.regions.items()
        return max([r.offset + r.size for key, r in regions if r.piece == RUN and key not in filled], default=0)

    def run(self, arrays: Sequence[int], pieces: Sequence[int], status: int, poll: int = 0) -> bool:
        """Pack, run all steps, forward or in reverse, and unpack; returns whether a world failed.

        Args:
            arrays: Addresses of the arrays of `ins` and `outs`.
            pieces: Addresses of the given pieces of memory, in ascending order.
            status: Address of the status of all worlds, 64-bit integers; a forward run writes it.
            poll: Address of a function that the runtime calls every 50 ms to ask whether to go on; see `native.Poll`.

        Raises:
            KeyboardInterrupt: `poll` cancelled it.
        """
        fault = native.Fault() if self.plan.options.check else None
        addresses = self._packed(*arrays, *self._no_arrays, *pieces)
        answer = self._call(self._address, addresses, status, None if fault is None else ctypes.addressof(fault), poll)
        if answer == native.DONE:
            return False
        if answer == native.WORLDS_FAILED:
            return True
        if answer == native.CANCELLED:
            raise KeyboardInterrupt
        if answer == native.FAULT:
            assert fault is not None
            raise self._fault(fault)
        if answer == native.NO_MEMORY:
            fix = "fewer worlds or threads, or a larger checkpoint interval"
            raise KinemaError("the runtime ran out of memory", fix=fix)
        raise self._refused(answer & 255, answer >> 8, arrays)

    def _refused(self, answer: int, move: int, arrays: Sequence[int]) -> InputError:
        """The error of an invalid array."""
        buffer = self.plan.program.buffers[self.named[move].key[0]]
        if answer != native.NOT_FINITE:
            return InputError(
                f"{buffer.kind} {buffer.name!r} holds an integer that does not fit into 32 bits",
                expected="-2**31 ... 2**31 - 1",
            )
        where, layout = _Where(), native.Layout.from_buffer_copy(self.moves[move].layout)
        layout.user = arrays[move]
        compiler.runtime().kn_finite(layout, where)
        return self._not_finite(buffer, list(where))

    def _not_finite(self, buffer: Buffer, where: list[int]) -> InputError:
        world, step, element, number = where
        parts = [] if self.setting.worlds == 1 or buffer.name in self.setting.shared else [f"world {world}"]
        parts += [f"step {step}"] if buffer.kind == CONTROL else []
        parts += [f"element {element}"] if buffer.count is not None else []
        parts += [f"number {number}"] if len(buffer.kinds) > 1 else []
        return InputError(
            f"{buffer.kind} {buffer.name!r} is not finite",
            where=", ".join(parts) or None,
            expected="finite numbers",
            fix="look for a division by zero, an overflow or a missing value in the code that computed it",
        )

    def _fault(self, fault: native.Fault) -> KernelError:
        """The error of a checked build: kernel, element, source line."""
        site = self.plan.sites[fault.site]
        # Kernels add the lane to both: packets of elements and blocks of worlds start at multiples of the width.
        width = self.plan.options.width
        element, world = fault.element, fault.lane
        if self.arrangement.program.lanes > 1:
            element -= world % width
        else:
            world -= element % width
        place = f"element {element}" + (f", world {world}" if self.setting.worlds > 1 else "")
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
