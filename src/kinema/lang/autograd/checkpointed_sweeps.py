"""Forward, reverse and tangent sweeps of a program over tensors, prepared once for all inputs of a form.

Preparation decides the transfers of arrays, with their shapes and strides. A run allocates the result tensors and
passes addresses to one native call. Sweeps keep no state of a run: several threads may run a sweep at once.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import add, methodcaller
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.lang.autograd.inputs import Form
from kinema.lang.emit.simd import AOS
from kinema.lang.programs.plan import ADJOINT, PRIMAL, SEED, TANGENT, Plan
from kinema.lang.programs.program import CONTROL, STATE, Buffer
from kinema.lang.runtime import memory_budget, progress
from kinema.lang.runtime.execute import Move, Prepared
from kinema.lang.runtime.memory_layout import (
    ALIGNMENT,
    KEPT,
    Key,
    Setting,
    aligned,
    arrangement_for,
    can_be_direct,
    can_be_whole,
    can_stream,
    direct_outputs,
    keep_in,
    predicted_bytes,
    zeroed,
)
from kinema.lang.runtime.progress import Show

# -- input tensors ----------------------------------------------------------------------------------------------


class Source(NamedTuple):
    """How a run reads a tensor.

    Attributes:
        move: The transfer of its values.
        offset: Bytes from its address to the first value.
        copy: Makes a dense copy, if strides cannot describe the values to read.
    """

    move: Move
    offset: int
    copy: Callable[[Tensor], Tensor] | None


def _source(
    key: Key, buffer: Buffer, slots: int, tensor: Tensor, view: Callable[[Tensor], Tensor], slot: int | None = 0
) -> Source:
    """How a run reads `view` of a tensor (*batch, [slots], *buffer shape)."""
    seen = view(tensor.detach())
    offset, wide = seen.data_ptr() - tensor.data_ptr(), tensor.dtype == torch.int64
    if tensor.is_neg():
        return Source(Move(key, slot, None, wide), 0, lambda t: view(t.detach()).resolve_neg().contiguous())
    if seen.is_contiguous():
        return Source(Move(key, slot, None, wide), offset, None)
    try:
        strides = seen.view(-1, slots, buffer.length, len(buffer.kinds)).stride()
    except RuntimeError:
        return Source(Move(key, slot, None, wide), 0, lambda t: view(t.detach()).contiguous())
    return Source(Move(key, slot, strides, wide), offset, None)


def _addresses(tensors: Sequence[Tensor]) -> list[int]:
    return list(map(Tensor.data_ptr, tensors))


class Reading:
    """Tensors that a run reads in place."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.moves = [source.move for source in sources]
        self._offsets = [source.offset for source in sources]
        self._shifted = any(self._offsets)
        self._copies = [(i, source.copy) for i, source in enumerate(sources) if source.copy is not None]

    def addresses(self, tensors: Sequence[Tensor]) -> tuple[list[int], Sequence[Tensor]]:
        """Addresses to read, and the tensors that must live until the run has read them."""
        if self._copies:
            tensors = list(tensors)
            for i, copy in self._copies:
                tensors[i] = copy(tensors[i])
        found = _addresses(tensors)
        return list(map(add, found, self._offsets)) if self._shifted else found, tensors


def _input(form: Form, buffer: Buffer, tensor: Tensor, shared: frozenset[str]) -> Source:
    """How a run reads an input; expands inputs that worlds do not share to all worlds."""
    full = tensor.shape if buffer.name in shared else form.full(buffer.name)
    slots = form.steps if buffer.kind == CONTROL else 1
    return _source((buffer.name, PRIMAL), buffer, slots, tensor, methodcaller("expand", full))


def _inputs(form: Form, tensors: Sequence[Tensor], shared: frozenset[str]) -> list[Source]:
    return [_input(form, buffer, t, shared) for buffer, t in zip(form.inputs.values(), tensors, strict=True)]


# -- result tensors ---------------------------------------------------------------------------------------------


class Array(NamedTuple):
    """A tensor that a run fills."""

    move: Move
    shape: tuple[int, ...]
    numbers: Any  # scalar type


class Filled:
    """Tensors that a run fills.

    numpy allocates large ones, because it requests huge pages; torch.zeros wakes its threads, which costs milliseconds
    on a busy machine.
    """

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.moves = [array.move for array in arrays]
        self._shapes, self._numbers = [array.shape for array in arrays], [array.numbers for array in arrays]
        dtypes = [torch.from_numpy(np.empty(0, numbers)).dtype for numbers in self._numbers]
        self._bytes = [math.prod(a.shape) * dtype.itemsize for a, dtype in zip(arrays, dtypes, strict=True)]
        # empty_strided takes half the time of torch.empty, which must work out the strides.
        self._small = [
            partial(torch.empty_strided, array.shape, _contiguous_strides(array.shape), dtype=dtype)
            for array, dtype in zip(arrays, dtypes, strict=True)
            if sum(self._bytes) <= SMALL
        ]

    def zeros(self) -> list[Tensor]:
        """New zero tensors, for results that the run adds to, or does not set for failed worlds."""
        if self._small:
            made = self.empty()
            for tensor, size in zip(made, self._bytes, strict=True):
                ctypes.memset(tensor.data_ptr(), 0, size)
            return made
        return list(map(torch.from_numpy, map(np.zeros, self._shapes, self._numbers)))

    def empty(self) -> list[Tensor]:
        """New uninitialised tensors, for results that the run sets everywhere."""
        if self._small:
            return [make() for make in self._small]
        return list(map(torch.from_numpy, map(np.empty, self._shapes, self._numbers)))


Integers = Any  # a ctypes array: several times faster to make than a tensor, and few become tensors


def status_tensor(status: Integers, batch: tuple[int, ...]) -> Tensor:
    """The status of all worlds as a tensor that shares its memory."""
    return torch.frombuffer(status, dtype=torch.int64).view(batch)


# Up to this many bytes the run zeroes memory itself, because the C library reuses freed memory. Larger pieces come
# zeroed from the system at first touch, in the huge pages that numpy requests.
SMALL = 1 << 22


class Piece:
    """Memory that a forward sweep leaves to the reverse sweep, or to the user: owned and guarded by torch.

    Args:
        size: Size [bytes].
        zeros: Number of bytes at the beginning that must be zero.
        dtype: Type of torch's tensor.

    Attributes:
        unset: Number of bytes that the run must zero.
    """

    def __init__(self, size: int, zeros: int, dtype: torch.dtype) -> None:
        self._size, self._dtype, self._count = size, dtype, size // dtype.itemsize
        self._set_later = zeros <= SMALL
        self.unset = zeros if self._set_later else 0

    def make(self) -> Tensor:
        """A new aligned piece."""
        if self._set_later:
            made = torch.empty_strided((self._count,), (1,), dtype=self._dtype)
            if made.data_ptr() % ALIGNMENT == 0:  # true on all known systems
                return made
        return torch.from_numpy(zeroed(self._size).bytes).view(self._dtype)


def _aligned(tensor: Tensor) -> Tensor:
    """The same bytes at an aligned address: hooks for saved tensors may have moved them."""
    if tensor.data_ptr() % ALIGNMENT == 0 and tensor.is_contiguous():
        return tensor
    return torch.from_numpy(aligned(tensor.contiguous().view(torch.uint8).numpy(), 1).bytes)


def _contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _watched(
    prepared: Prepared, what: str, show: Show, arrays: Sequence[int], pieces: Sequence[int], status: Integers
) -> bool:
    """Run and show progress; returns whether a world failed."""
    if not show and prepared.setting.worlds * prepared.setting.steps == 1:  # too short to poll
        return prepared.run(arrays, pieces, ctypes.addressof(status))
    watcher = progress.begin(what, prepared.setting.steps, show)
    try:
        return prepared.run(arrays, pieces, ctypes.addressof(status), watcher.address)
    except KeyboardInterrupt as interrupt:
        raise (watcher.error or interrupt) from None
    finally:
        progress.end(watcher)


# -- forward ----------------------------------------------------------------------------------------------------


class View(NamedTuple):
    """A trajectory that is a view of the checkpoints: index of its separate piece of memory, shape and strides."""

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Ran(NamedTuple):
    """Results of a forward sweep.

    Attributes:
        outs: Final states, trajectories and outputs.
        kept: Memory that a reverse sweep needs; torch owns and guards it.
        status: Per world, -1 or the step in which it failed.
        failed: Whether any world failed.
        counts: Integers of `Form.counts`, world after world.
    """

    outs: list[Tensor]
    kept: list[Tensor]
    status: Integers
    failed: bool
    counts: Integers = ()


class Forward:
    """Forward sweeps of a form with the same settings.

    Args:
        form: The form.
        tensors: Inputs of this form.
        threads: Upper bound of worker threads.
        interval: Checkpoint interval; 0 keeps nothing.
        direct: Names of controls that kernels read in place.

    Attributes:
        read_again: Indices of inputs that reverse sweeps also read in place: streamed ones, then direct ones.
        there: Names of outputs that kernels write directly into the user's tensor.
    """

    def __init__(
        self, form: Form, tensors: Sequence[Tensor], threads: int, interval: int, direct: tuple[str, ...]
    ) -> None:
        compiled, keep = form.plan(), bool(form.learned)
        self.form, self.keep, self.streamed = form, keep, can_stream(compiled, form.recorded, form.worlds)
        apart = () if self.streamed else form.recorded
        whole = keep and can_be_whole(form.program, form.steps)
        sizes = form.worlds, form.steps, threads, form.shared
        self.there = direct_outputs(compiled, form.output_names, form.steps)
        self.setting = Setting(*sizes, interval, apart, self.streamed, (*direct, *self.there), whole)
        self.what = f"simulating {form.program.name}"
        self.reading = Reading(_inputs(form, tensors, form.shared))
        self._direct = [i for i, name in enumerate(form.inputs) if name in direct]
        self.controls = [
            i
            for i, b in enumerate(form.inputs.values())
            if self.streamed and b.kind == CONTROL and b.name not in form.shared
        ]
        self.read_again = self.controls + self._direct
        self._outs = self._describe_outputs(compiled)
        made = [out for out in self._outs if isinstance(out, Array)]
        self._made = Filled(made)
        self._views = len(made) < len(self._outs)
        names = [out.move.key[0] for out in made]
        self._moved = [i for i, name in enumerate(names) if name not in self.there]
        self._there = [names.index(name) for name in self.there]
        known = arrangement_for(compiled, self.setting, "forward")
        pieces = known.pieces
        kept = [Piece(*sizes, form.dtype) for sizes in zip(pieces[KEPT:], known.unset, strict=True)]
        self._kept = kept if keep else kept[1:]
        given = {len(pieces) - len(self._kept) + i: piece.unset for i, piece in enumerate(self._kept)}
        given |= dict.fromkeys(range(len(pieces), len(pieces) + len(self.setting.direct)), 0)
        moves, filled, counts = self.reading.moves, [made[i].move for i in self._moved], form.counts
        if counts is not None:
            filled.append(Move((counts.name, PRIMAL)))
        self._counts = None if counts is None else ctypes.c_int32 * (form.worlds * form.steps * counts.length)
        self.prepared = Prepared(compiled, self.setting, "forward", moves, filled, given, finite=len(moves))
        self._status = ctypes.c_int64 * form.worlds
        self.fine = self._status(*[-1] * form.worlds)  # the status if no world failed
        self._reverses: dict[Any, Reverse] = {}

    def _describe_outputs(self, compiled: Plan) -> list[Array | View]:
        """Final states, trajectories and outputs; only outputs for programs with a Jacobian."""
        form, batch, steps = self.form, self.form.batch, self.form.steps
        last = steps if self.setting.interval == 1 else steps % 2
        states = form.states if form.program.pulls is None else []
        outs: list[Array | View] = [
            Array(Move((b.name, PRIMAL), last), (*batch, *b.shape), form.numbers) for b in states
        ]
        for i, name in enumerate(form.recorded):
            outs.append(self._describe_trajectory(compiled, i, form.program.buffers[name]))
        for b in form.outputs:
            numbers = np.int32 if "i" in b.kinds else form.numbers
            shape = form.output_shapes.get(b.name, (steps, *b.shape))
            outs.append(Array(Move((b.name, PRIMAL)), (*batch, *shape), numbers))
        return outs

    def _describe_trajectory(self, compiled: Plan, number: int, buffer: Buffer) -> Array | View:
        """All states; if the layout allows it, a view of the checkpoints without a copy."""
        form, place = self.form, compiled.places[buffer.name]
        shape = (*form.batch, form.steps + 1, *buffer.shape)
        if self.streamed or place.layout != AOS or place.lanes > 1:
            return Array(Move((buffer.name, PRIMAL), None), shape, form.numbers)
        slot = place.bytes // place.item
        worlds = (stride * (form.steps + 1) * slot for stride in _contiguous_strides(form.batch))
        inner = (place.numbers,) if buffer.count is not None else ()
        tail = _contiguous_strides(buffer.shape[len(inner) :])
        return View(number, shape, (*worlds, slot, *inner, *tail))

    def run(self, tensors: Sequence[Tensor], show: Show) -> Ran:
        """Run all steps."""
        arrays, alive = self.reading.addresses(tensors)
        kept = [piece.make() for piece in self._kept]
        pieces = _addresses(kept)
        if self._direct:
            pieces += [arrays[i] for i in self._direct]
        made, status = self._made.empty(), self._status()
        counts: Integers = ()
        filled = _addresses(made)
        if self._there:
            pieces += [filled[i] for i in self._there]
            filled = [filled[i] for i in self._moved]
        arrays += filled
        if self._counts is not None:
            counts = self._counts()
            arrays.append(ctypes.addressof(counts))
        failed = _watched(self.prepared, self.what, show, arrays, pieces, status)
        del alive  # keeps copies of inputs alive until the call returns
        outs = self._with_views(made, kept) if self._views else made
        if self.keep and self.streamed:
            kept += outs[len(self.form.states) : len(self.form.states) + len(self.form.recorded)]
        return Ran(outs, kept if self.keep else [], status, failed, counts)

    def _with_views(self, made: Sequence[Tensor], kept: Sequence[Tensor]) -> list[Tensor]:
        """All outputs, given those that are not views."""
        left, apart = iter(made), kept[1:] if self.keep else kept
        return [
            next(left) if isinstance(out, Array) else apart[out.number].as_strided(out.shape, out.strides)
            for out in self._outs
        ]

    def reverse(
        self, needs: Sequence[bool], read: Sequence[Tensor], kept: Sequence[Tensor], cotangents: Sequence[Any]
    ) -> Reverse:
        """The reverse sweep for such cotangents; `needs[1:]` marks the learned inputs that need a cotangent."""
        seen = [*kept[1:], *read, *cotangents] if self.streamed else cotangents
        key = (needs, *[None if t is None else (t.stride(), t.is_neg()) for t in seen])
        found = self._reverses.get(key)
        if found is None:
            needed = [i for i, need in zip(self.form.learned, needs[1:], strict=True) if need]
            found = keep_in(self._reverses, key, lambda: Reverse(self, needed, read, kept, cotangents))
        return found


class Choice(NamedTuple):
    """A forward sweep, its checkpoint interval and its predicted memory."""

    sweep: Forward
    interval: int
    bytes: int


class Planner:
    """Picks the forward sweep for inputs of a form; computes everything independent of the available memory once.

    Args:
        form: The form.
        tensors: Inputs of this form.
        threads: Upper bound of worker threads.
    """

    def __init__(self, form: Form, tensors: Sequence[Tensor], threads: int) -> None:
        compiled, self.form, self.threads, self.keep = form.plan(), form, threads, bool(form.learned)
        streamed = can_stream(compiled, form.recorded, form.worlds)
        apart = () if streamed else form.recorded
        whole = self.keep and can_be_whole(form.program, form.steps)
        setting = Setting(form.worlds, form.steps, threads, form.shared, 0, apart, streamed, whole=whole)
        self.state, self.others = predicted_bytes(compiled, setting, self.keep)
        self._direct = [
            (i, b.name)
            for i, (b, t) in enumerate(zip(form.inputs.values(), tensors, strict=True))
            if can_be_direct(compiled, b, form.worlds)
            and t.is_contiguous()
            and not t.is_neg()
            and t.dtype == form.dtype
        ]
        self._intervals: dict[Any, tuple[int, int]] = {}  # interval and bytes, if independent of the available memory
        self._sweeps: dict[Any, Choice] = {}

    def choose(self, tensors: Sequence[Tensor], checkpoint: int | str, budget: int | None) -> Choice:
        """The sweep for these inputs.

        Raises:
            MemoryBudgetError: Too little memory is available.
        """
        known = self._intervals.get((checkpoint, budget))
        interval, needed = self._interval(checkpoint, budget) if known is None else known
        if known is None and (budget is not None or needed <= memory_budget.TRIFLE):
            keep_in(self._intervals, (checkpoint, budget), lambda: (interval, needed))
        direct: tuple[str, ...] = ()
        if self._direct:
            direct = tuple([name for i, name in self._direct if tensors[i].data_ptr() % ALIGNMENT == 0])
        key = interval, direct
        choice = self._sweeps.get(key)
        if choice is None:
            made = (self.form, tensors, self.threads, interval, direct)
            choice = keep_in(self._sweeps, key, lambda: Choice(Forward(*made), interval, needed))
        return choice

    def _interval(self, checkpoint: int | str, budget: int | None) -> tuple[int, int]:
        """The checkpoint interval, 0 to keep nothing, and the needed bytes."""
        recorded, steps = self.form.recorded, self.form.steps
        if not self.keep and not recorded:
            needed = self.others + 2 * self.state
            memory_budget.require(needed, budget)
            return 0, needed
        asked = checkpoint if self.keep else 1
        if recorded and asked != 1:
            if asked != "auto":
                raise InputError(
                    "trajectories of states need checkpoint=1",
                    got=f"checkpoint={asked}",
                    fix="record an output instead, or leave checkpoint at 1",
                )
            asked = 1
        interval = memory_budget.choose_interval(asked, self.state, steps, self.others, budget)
        return interval, self.others + memory_budget.checkpoint_bytes(self.state, steps, interval)


def planner_for(form: Form, tensors: Sequence[Tensor], threads: int) -> Planner:
    """The planner of a form; the form caches it."""
    found: Planner | None = form.prepared.get(threads)
    if found is None:
        found = keep_in(form.prepared, threads, lambda: Planner(form, tensors, threads))
    return found


# -- reverse ----------------------------------------------------------------------------------------------------


class Reverse:
    """Reverse sweeps after a forward one, for cotangents of the same outputs with the same strides.

    Args:
        forward: The forward sweep.
        needed: Indices of the inputs that get cotangents, in ascending order.
        read: Inputs of `Forward.read_again`.
        kept: Memory that the forward sweep kept.
        cotangents: Cotangents of its outputs, or None.
    """

    def __init__(
        self,
        forward: Forward,
        needed: Sequence[int],
        read: Sequence[Tensor],
        kept: Sequence[Tensor],
        cotangents: Sequence[Tensor | None],
    ) -> None:
        form = self.form = forward.form
        self.what, self._fine = f"differentiating {form.program.name}", forward.fine
        self._trajectories = len(form.recorded) if forward.streamed else 0
        setting, buffers = forward.setting, list(form.inputs.values())
        learned = [buffers[i] for i in needed]
        states = len(form.states)
        along = {n: states + i for i, n in enumerate(form.recorded) if cotangents[states + i] is not None}
        wrt = frozenset(b.name for b in learned if b.kind != STATE)
        compiled = form.plan(wrt, frozenset(along), replay=not setting.whole)
        self._streamed = len(forward.controls)
        first = states + len(form.recorded)  # index of the first output
        self._there = [first + form.output_names.index(name) for name in forward.there]
        self._dense = [c is not None and c.is_contiguous() and not c.is_neg() for c in cotangents]
        self._given = [i for i, c in enumerate(cotangents) if c is not None and i not in self._there]
        pairs = zip(forward.controls, read, strict=False)
        sources = [_input(form, buffers[i], tensor, form.shared) for i, tensor in pairs]
        if forward.streamed:
            sources += self._describe_trajectories(kept[1:])
        sources += [self._describe_cotangent(i, cotangents[i]) for i in self._given]
        self.reading = Reading(sources)
        made = [b for b in learned if b.name not in setting.direct]
        arrays = [(b, form.tail(b) if b.name in form.shared else form.full(b.name)) for b in made]
        self._made = Filled([Array(Move((b.name, ADJOINT)), shape, form.numbers) for b, shape in arrays])
        # Kernels write cotangents of direct controls into the user's tensor, needed or not.
        direct = [(n, shape) for n, shape in zip(form.inputs, form.shapes, strict=True) if n in setting.direct]
        self._direct = [shape for _, shape in direct]
        pieces = KEPT + 1 + len(setting.apart) + 2 * len(setting.direct)
        given = dict.fromkeys(range(KEPT, pieces), 0)
        self.prepared = Prepared(compiled, setting, "reverse", self.reading.moves, self._made.moves, given)
        # For each input: indices of its result and of the cotangent of its trajectory, and its shape.
        names = [b.name for b in made] + [n for n, _ in direct]
        self._gradients = [
            (names.index(b.name), along.get(b.name), form.shapes[i]) for b, i in zip(learned, needed, strict=True)
        ]
        shapes = [shape for _, shape in (*arrays, *direct)]
        self._as_made = self._gradients == [(i, None, torch.Size(shape)) for i, shape in enumerate(shapes)]

    def _describe_trajectories(self, tensors: Sequence[Tensor]) -> list[Source]:
        """How to read streamed states: the forward sweep kept the user's trajectories instead of checkpoints."""
        form, slots = self.form, self.form.steps + 1
        named = zip(form.recorded, tensors, strict=True)
        return [_source((n, PRIMAL), form.program.buffers[n], slots, t, lambda t: t, None) for n, t in named]

    def _describe_cotangent(self, i: int, tensor: Any) -> Source:
        """How to read the cotangent of result i: a final state, a trajectory or an output."""
        form, steps, batch = self.form, self.form.steps, len(self.form.batch)
        states, recorded = form.states, form.recorded
        if i < len(states):
            return _source((states[i].name, ADJOINT), states[i], 1, tensor, lambda t: t, steps % 2)
        i -= len(states)
        if i < len(recorded):  # skip the first state, which is an input
            buffer = form.program.buffers[recorded[i]]
            return _source((recorded[i], SEED), buffer, steps, tensor, lambda t: t.narrow(batch, 1, steps), None)
        buffer = form.outputs[i - len(recorded)]
        return _source((buffer.name, ADJOINT), buffer, steps, tensor, lambda t: t)

    def run(
        self,
        read: Sequence[Tensor],
        kept: Sequence[Tensor],
        status: Integers | None,
        cotangents: Sequence[Any],
        show: Show,
    ) -> list[Tensor]:
        """Cotangents of the needed inputs, given those of the outputs; `status` is None if no world failed."""
        split, streamed = len(kept) - self._trajectories, self._streamed
        arrays, alive = self.reading.addresses([*read[:streamed], *kept[split:], *[cotangents[i] for i in self._given]])
        memories = list(map(_aligned, (*kept[:split], *read[streamed:])))
        made = self._made.zeros()
        arrays += _addresses(made)
        pieces = _addresses(memories)
        for shape in self._direct:
            found = zeroed(math.prod(shape) * self.form.precision)
            pieces.append(found.address)
            made.append(torch.from_numpy(found.bytes.view(self.form.numbers).reshape(shape)))
        if self._there:
            read_there = [self._cotangent_of_output(i, cotangents[i]) for i in self._there]
            primal = len(pieces) - len(self._direct)  # reverse sweeps do not read the values of outputs
            pieces[primal:primal] = [0] * len(read_there)
            pieces += _addresses(read_there)
            memories += read_there
        _watched(self.prepared, self.what, show, arrays, pieces, self._fine if status is None else status)
        del alive, memories  # alive until the call returns
        if self._as_made:
            return made
        right = None if status is None else status_tensor(status, self.form.batch) < 0
        return [self._gradient(made, right, cotangents, *g) for g in self._gradients]

    def _cotangent_of_output(self, i: int, given: Tensor | None) -> Tensor:
        """The cotangent of an output that kernels read in place: made dense if necessary; zeros for None."""
        if given is None:
            form = self.form
            buffer = form.outputs[i - len(form.states) - len(form.recorded)]
            return torch.from_numpy(np.zeros(form.worlds * math.prod(buffer.shape), form.numbers))
        return given if self._dense[i] else given.resolve_neg().contiguous()

    def _gradient(
        self,
        made: Sequence[Tensor],
        right: Tensor | None,
        cotangents: Sequence[Any],
        place: int,
        along: int | None,
        shape: torch.Size,
    ) -> Tensor:
        """The cotangent of one input, in its shape; `along` is the index of the cotangent of its trajectory.

        `right` marks the worlds that did not fail; None if none failed.
        """
        found = made[place]
        if along is not None:
            first = cotangents[along].select(len(self.form.batch), 0)
            if right is not None:
                first = torch.where(right.reshape(*right.shape, *[1] * (first.ndim - right.ndim)), first, 0.0)
            found += first
        return found if found.shape == shape else found.sum_to_size(shape)


# -- forward mode -----------------------------------------------------------------------------------------------


class Moved(NamedTuple):
    """Results of a forward sweep with tangents.

    Attributes:
        outs: Final states, trajectories and outputs.
        rates: Their tangents; None for integers.
        status: Per world, -1 or the step in which it failed.
        failed: Whether any world failed.
        counts: As in `Ran`.
    """

    outs: list[Tensor]
    rates: list[Tensor | None]
    status: Integers
    failed: bool
    counts: Integers


class Tangent:
    """Forward sweeps with tangents.

    Args:
        form: The form.
        tensors: Inputs of this form.
        directions: Tangents by name, with all worlds.
        threads: Upper bound of worker threads.

    Attributes:
        bytes: Predicted memory of a run [bytes].
    """

    def __init__(self, form: Form, tensors: Sequence[Tensor], directions: dict[str, Tensor], threads: int) -> None:
        self.form, self.what = form, f"simulating {form.program.name}"
        shared = form.shared.difference(directions)
        compiled = form.plan(frozenset(n for n in directions if form.inputs[n].kind != STATE))
        streamed = can_stream(compiled, form.recorded, form.worlds)
        interval = int(bool(form.recorded))  # trajectories need all states
        setting = Setting(form.worlds, form.steps, threads, shared, interval, streamed=streamed)
        state, others = predicted_bytes(compiled, setting, False)
        self.bytes = 2 * (others + (form.steps + 1 if interval else 2) * state)
        sources = _inputs(form, tensors, shared)
        for name, tensor in directions.items():
            buffer = form.inputs[name]
            slots = form.steps if buffer.kind == CONTROL else 1
            sources.append(_source((name, TANGENT), buffer, slots, tensor, lambda t: t))
        self.reading = Reading(sources)
        primal = self._describe(PRIMAL)
        moves = [array.numbers is not np.int32 for array in primal]
        made = [*primal, *itertools.compress(self._describe(TANGENT), moves)]
        filled = [array.move for array in made]
        counts = form.counts
        if counts is not None:
            filled.append(Move((counts.name, PRIMAL)))
        self._counts = None if counts is None else ctypes.c_int32 * (form.worlds * form.steps * counts.length)
        self._made, self._primal, self._moves = Filled(made), len(primal), moves
        self._status = ctypes.c_int64 * form.worlds
        given = self.reading.moves
        self.prepared = Prepared(compiled, setting, "tangent", given, filled, finite=len(given))

    def _describe(self, space: str) -> list[Array]:
        """Final states, trajectories and outputs, or their tangents; integers have none."""
        form, batch, steps = self.form, self.form.batch, self.form.steps
        last = steps if form.recorded else steps % 2
        made = []
        for b in form.states:
            made.append(Array(Move((b.name, space), last), (*batch, *b.shape), form.numbers))
        for b in map(form.program.buffers.__getitem__, form.recorded):
            made.append(Array(Move((b.name, space), None), (*batch, steps + 1, *b.shape), form.numbers))
        for b in form.outputs:
            shape = (*batch, *form.output_shapes.get(b.name, (steps, *b.shape)))
            made.append(Array(Move((b.name, space)), shape, np.int32 if "i" in b.kinds else form.numbers))
        return made

    def run(self, tensors: Sequence[Tensor], show: Show) -> Moved:
        """Run all steps, given the inputs and then the tangents."""
        arrays, alive = self.reading.addresses(tensors)
        outs, status = self._made.empty(), self._status()
        arrays += _addresses(outs)
        counts: Integers = ()
        if self._counts is not None:
            counts = self._counts()
            arrays.append(ctypes.addressof(counts))
        failed = _watched(self.prepared, self.what, show, arrays, (), status)
        del alive  # not before
        left = iter(outs[self._primal :])
        rates = [next(left) if moves else None for moves in self._moves]
        return Moved(outs[: self._primal], rates, status, failed, counts)
