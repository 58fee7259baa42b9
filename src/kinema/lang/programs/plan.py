"""Compiles a program: memory layouts, kernels, and the instructions of a step forward, in reverse, with tangents."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kinema.lang.build import compiler, cpu
from kinema.lang.emit import simd
from kinema.lang.emit.simd import AOS, DENSE, LANES, PACKET, Site
from kinema.lang.ir import analysis, ssa
from kinema.lang.ir.analysis import ELEMENTS, WORLDS
from kinema.lang.ir.ssa import ArrayRef, Block, KernelIR, Load, Store
from kinema.lang.kernels.cpp_kernel import CppKernel
from kinema.lang.language import types
from kinema.lang.programs import program
from kinema.lang.programs.program import (
    CONTROL,
    ITERATE,
    OUTPUT,
    PARAMETER,
    SCRATCH,
    STATE,
    Buffer,
    Custom,
    KernelCall,
    Loop,
    Program,
    Pullback,
    Ref,
)
from kinema.lang.programs.schedule import Schedule, chunk_schedule, sums_by_chunk
from kinema.lang.runtime import native

_EMITTED: WeakKeyDictionary[KernelIR, dict[Any, simd.Emitted]] = WeakKeyDictionary()
_PRUNED: WeakKeyDictionary[KernelIR, KernelIR] = WeakKeyDictionary()
_USES: WeakKeyDictionary[KernelIR, list[tuple[int, str, str]]] = WeakKeyDictionary()

PRIMAL, ADJOINT, TANGENT = "", "adj", "tan"
SEED = "seed"  # cotangents of a state's trajectory, one slot per step


@dataclass(frozen=True)
class Place:
    """Native memory of a buffer: layout, allocated elements, scalars per element, lanes, bytes per scalar."""

    layout: str
    elements: int
    numbers: int
    lanes: int
    item: int

    @property
    def bytes(self) -> int:
        """Bytes of one slot of one block."""
        return self.elements * self.numbers * self.lanes * self.item


@dataclass
class Instruction:
    """One instruction; `refs` are (table entry, slot)."""

    op: int
    refs: list[tuple[int, int]] = field(default_factory=list)
    symbol: tuple[str, str] | None = None  # source text and name of the C function
    count: int = 0
    schedule: Schedule | None = None
    partial: list[int] | None = None
    cost: float = 0.0
    origin: tuple[KernelCall, KernelIR, str] | None = None  # CALL: its call, kernel and form
    loop: int = 0
    times: int = 0
    descending: bool = False
    ahead: bool = False
    end: int = 0


@dataclass(frozen=True)
class Options:
    """Options of a plan."""

    precision: int = 4
    lanes: str = ELEMENTS
    width: int = 8
    wrt: frozenset[str] = frozenset()
    record: frozenset[str] = frozenset()
    seeds: frozenset[str] = frozenset()  # states whose trajectory has a cotangent
    check: bool = False
    replay: bool = True  # whether the reverse sweep recomputes scratch; otherwise it finds that of the forward sweep


class Plan:
    """A program compiled for certain options. It makes its lists on demand."""

    def __init__(self, prog: Program, options: Options) -> None:
        prog.check()
        self.program, self.options = prog, options
        uses = self._uses()
        self.places = {b.name: self._place(b, *uses[b.name]) for b in prog.buffers.values()}
        self.table: dict[tuple[str, str], int] = {}
        self.sites: list[Site] = []
        self._lists: dict[str, list[Instruction]] = {}
        self._functions: dict[tuple[str, str], int] = {}
        self._emitted: dict[KernelIR, dict[Any, simd.Emitted]] = {}

    # -- memory -------------------------------------------------------------------------------------------------

    def _place(self, buffer: Buffer, indices: set[str], kinds: set[str]) -> Place:
        n = len(buffer.kinds)
        integer = "i" in buffer.kinds
        item = 4 if integer else self.options.precision
        if self.options.lanes == WORLDS:
            if (integer or buffer.kind == program.CONSTANT) and kinds <= {"load"}:
                return Place(AOS, buffer.length, types.padded_size(buffer.element), 1, item)
            return Place(LANES, buffer.length, n, self.options.width, item)
        own = "own" in indices
        elements = -(-buffer.length // native.PACKET) * native.PACKET if own else buffer.length
        packet = n > 1 and indices == {"own"} and buffer.kind in (PARAMETER, program.CONSTANT, SCRATCH)
        if packet:
            return Place(PACKET, elements, n, 1, item)
        # Outputs that kernels fill and never read use the user's layout.
        filled = buffer.kind == OUTPUT and buffer.filled and kinds <= {"set"}
        if filled and not integer and n <= 4 and elements == buffer.length:
            return Place(DENSE, elements, n, 1, item)
        return Place(AOS, elements, types.padded_size(buffer.element), 1, item)

    def place(self, name: str, space: str) -> Place:
        """The place of a buffer, its cotangents or its tangents."""
        return self.places[name]

    def _uses(self) -> dict[str, tuple[set[str], set[str]]]:
        """For every buffer, the kinds of its indices and accesses, see `analysis.Access`."""
        uses: dict[str, tuple[set[str], set[str]]] = {name: (set(), set()) for name in self.program.buffers}
        for call in every_call(self.program.nodes):
            for place, index, kind in _uses_of(call.kernel.forward()):
                name = call.args[place].buffer.name
                uses[name][0].add(index)
                uses[name][1].add(kind)
        return uses

    def entry(self, name: str, space: str) -> int:
        """Index of a buffer in the table of the runtime."""
        return self.table.setdefault((name, space), len(self.table))

    def slot(self, ref: Ref, space: str) -> int:
        """The slot of a reference in its buffer."""
        buffer = ref.buffer
        if buffer.kind == STATE:
            if space in (PRIMAL, TANGENT):
                return native.SLOT_STATE_NEXT if ref.moment == "next" else native.SLOT_STATE
            return native.SLOT_ADJ_NEXT if ref.moment == "next" else native.SLOT_ADJ
        if buffer.kind in (CONTROL, OUTPUT):
            return native.SLOT_STEP
        if buffer.kind == ITERATE:
            assert buffer.loop is not None
            number = buffer.loop.number
            return {
                "now": native.slot_iteration(number),
                "next": native.slot_next_iteration(number),
                "first": native.SLOT_ZERO,
                "last": native.slot_iterations_done(number),
            }[ref.moment]
        return native.SLOT_ZERO

    def at(self, ref: Ref, space: str) -> tuple[int, int]:
        """Table entry and slot of a reference."""
        space = ADJOINT if ref.cotangent else space
        return self.entry(ref.buffer.name, space), self.slot(ref, space)

    # -- lists --------------------------------------------------------------------------------------------------

    def instructions(self, which: str) -> list[Instruction]:
        """The list 'forward', 'reverse' or 'tangent' of one step."""
        if which not in self._lists:
            made: list[Instruction] = []
            if which == "reverse":
                self._reverse(self.program.nodes, made, top=True)
                made = self._set_instead_of_zero(made)
            else:
                self._forward(self.program.nodes, made, which == "tangent", set(), None)
            self._lists[which] = made
        return self._lists[which]

    def _forward(
        self,
        nodes: list[Any],
        out: list[Instruction],
        tangent: bool,
        started: set[Any],
        needed: set[str] | None,
        ended: bool = False,
    ) -> None:
        """Append nodes, or only the nodes that write a buffer in `needed`; `ended` if the next state is known."""
        for node in nodes:
            if needed is not None and not _writes(node) & needed:
                continue
            if isinstance(node, Pullback):
                self._pullback(node, out)
            elif isinstance(node, KernelCall):
                if self._is_idle(node):
                    continue
                self._zero_sums(node, out, started, tangent)
                out.append(self._tangent_call(node) if tangent else self._call(node))
            elif isinstance(node, Custom):
                derived = tangent or needed is not None or self.program.pulls is not None
                again = node.again if ended else []
                part = again or (node.replay if derived and node.replay else node.forward)
                self._forward(part, out, tangent, started, needed)
            else:
                self._zero_first_iterates(node, out, started, tangent)
                refs = [self.at(node.condition, PRIMAL)] if node.condition else []
                self._loop(
                    node, out, refs, False, lambda body, n=node: self._forward(n.body, body, tangent, started, needed)
                )

    def _pullback(self, node: Pullback, out: list[Instruction]) -> None:
        raise AssertionError("a program with a Jacobian needs a PullbackPlan")

    def _zero_first_iterates(self, loop: Loop, out: list[Instruction], started: set[Any], tangent: bool) -> None:
        """Zero the iterates that have no initial value before their loop."""
        for buffer in self.program.buffers.values():
            if buffer.loop is loop and (buffer.name, "first") not in started:
                for space in (PRIMAL, TANGENT) if tangent else (PRIMAL,):
                    out.append(Instruction(native.OP_ZERO, [self.at(Ref(buffer, "first"), space)]))

    def _loop(
        self, node: Loop, out: list[Instruction], refs: list[tuple[int, int]], descending: bool, fill: Any
    ) -> None:
        head = Instruction(native.OP_LOOP, refs, loop=node.number, times=node.times, descending=descending)
        head.ahead = node.settled and not descending
        out.append(head)
        fill(out)
        head.end = len(out)
        out.append(Instruction(native.OP_END))

    def _is_idle(self, call: KernelCall) -> bool:
        """Whether a call only writes outputs that are not recorded."""
        written = [r.buffer for a, r in zip(call.kernel.arrays, call.args, strict=True) if a.written]
        return bool(written) and all(b.kind == OUTPUT and b.name not in self.options.record for b in written)

    def _is_unwanted(self, node: Any) -> bool:
        """Whether a part of a custom adjoint only adds to cotangents of inputs that are not learned."""
        calls = every_call([node])
        written = [r for c in calls for a, r in zip(c.kernel.arrays, c.args, strict=True) if a.written]
        return all(
            r.cotangent and r.buffer.kind in (PARAMETER, CONTROL) and r.buffer.name not in self.options.wrt
            for r in written
        )

    def _zero_sums(self, call: KernelCall, out: list[Instruction], started: set[Any], tangent: bool) -> None:
        """Zero the buffers that the call accumulates into and that no call has set."""
        for array, ref in zip(call.kernel.arrays, call.args, strict=True):
            key = (ref.buffer.name, ref.moment)
            if not array.written or key in started or ref.cotangent:
                continue
            started.add(key)
            if "set" not in array.written:
                for space in (PRIMAL, TANGENT) if tangent else (PRIMAL,):
                    out.append(Instruction(native.OP_ZERO, [self.at(ref, space)]))

    def _reverse(
        self,
        nodes: list[Any],
        out: list[Instruction],
        top: bool,
        skipped: Loop | None = None,
        later: frozenset[str] = frozenset(),
    ) -> None:
        """Append the adjoint of nodes: replay needed values, zero cotangents, then run everything backwards.

        Args:
            nodes: The nodes.
            out: The list to append to.
            top: Whether these are all nodes of a step.
            skipped: The loop around the nodes, if its last iteration needs no replay.
            later: Buffers that later nodes write.
        """
        if top:
            for name in sorted(self.options.seeds):
                refs = [(self.entry(name, ADJOINT), native.SLOT_ADJ_NEXT), (self.entry(name, SEED), native.SLOT_STEP)]
                out.append(Instruction(native.OP_ADD, refs))
            for buffer in self.program.buffers.values():
                if buffer.kind == STATE:
                    out.append(Instruction(native.OP_ZERO, [(self.entry(buffer.name, ADJOINT), native.SLOT_ADJ)]))
        if self.options.replay or not top:
            self._replay(nodes, out, top, skipped)
        self._zero_cotangents(nodes, out)  # after the replay, which would evict them from the cache
        for place, node in reversed(list(enumerate(nodes))):
            if isinstance(node, KernelCall):
                if not self._is_idle(node):
                    made = self._adjoint_call(node)
                    if made is not None:
                        out.append(made)
            elif isinstance(node, Custom):
                for call in node.adjoint:
                    if not self._is_unwanted(call):
                        started = {(r.buffer.name, r.moment) for c in every_call([call]) for r in c.args}
                        self._forward([call], out, False, started, None)
            else:
                after = later.union(*(_stores(n) for n in nodes[place + 1 :]))
                self._loop(node, out, [], True, lambda body, n=node, a=after: self._reverse_once(n, body, a))

    def _replay(self, nodes: list[Any], out: list[Instruction], top: bool, skipped: Loop | None) -> None:
        """Recompute what the adjoint of nodes reads, except in the last iteration of a loop whose scratch is intact."""
        if skipped is None:
            self._forward(nodes, out, False, set(), self._needed(), ended=top)
            return
        skip = Instruction(native.OP_SKIP, loop=skipped.number)
        out.append(skip)
        self._forward(nodes, out, False, set(), self._needed())
        skip.end = len(out)

    def _reverse_once(self, loop: Loop, out: list[Instruction], later: frozenset[str]) -> None:
        """The adjoint of one iteration, including the cotangents of its iterates.

        The loop ran forward before, so scratch still holds its last iteration, unless `later` nodes write it.
        """
        for buffer in self._iterates(loop):
            out.append(Instruction(native.OP_ZERO, [self.at(Ref(buffer), ADJOINT)]))
        own = frozenset().union(*(_stores(n) for n in loop.body))
        skipped = loop if self.options.replay and not own & later else None
        self._reverse(loop.body, out, top=False, skipped=skipped, later=later)

    def _iterates(self, loop: Loop) -> list[Buffer]:
        return [b for b in self.program.buffers.values() if b.kind == ITERATE and b.loop is loop]

    def _zero_cotangents(self, nodes: list[Any], out: list[Instruction]) -> None:
        """Zero the cotangents of scratch written at this level, and of the iterates of its loops."""
        seen: set[str] = set()
        for node in nodes:
            if isinstance(node, Loop):
                for buffer in self._iterates(node):
                    out.append(Instruction(native.OP_ZERO, [self.at(Ref(buffer, "last"), ADJOINT)]))
                continue
            inner = [node] if isinstance(node, KernelCall) else list(program.calls([node]))
            for call in inner:
                for array, ref in zip(call.kernel.arrays, call.args, strict=True):
                    fresh = ref.buffer.kind == SCRATCH and ref.buffer.name not in seen and "f" in ref.buffer.kinds
                    if array.written and fresh and not ref.cotangent:
                        seen.add(ref.buffer.name)
                        out.append(Instruction(native.OP_ZERO, [self.at(ref, ADJOINT)]))

    def _needed(self) -> set[str]:
        """Scratch and iterates whose values the reverse sweep reads, and those they are computed from."""
        kinds = (SCRATCH, ITERATE)
        needed: set[str] = set()
        for node in every_node(self.program.nodes):
            if isinstance(node, Loop):
                needed |= {b.name for b in self.program.buffers.values() if b.loop is node}
                if node.condition:
                    needed.add(node.condition.buffer.name)
            elif isinstance(node, Custom):
                needed |= {
                    r.buffer.name
                    for c in every_call(node.adjoint)
                    for r in _used(c).values()
                    if not r.cotangent and r.buffer.kind in kinds
                }
        for call in _derived_calls(self.program.nodes):
            kernel = call.kernel.adjoint(self._wanted(call))
            read = {n.array.name for n in _loads(kernel) if n.array.origin is None}
            for array, ref in zip(call.kernel.arrays, call.args, strict=True):
                if array.name in read and ref.buffer.kind in kinds:
                    needed.add(ref.buffer.name)
        while True:
            more = set(needed)
            for call in every_call(self.program.nodes):
                names = {r.buffer.name for a, r in zip(call.kernel.arrays, call.args, strict=True) if a.written}
                if names & needed:
                    more |= {
                        r.buffer.name
                        for a, r in zip(call.kernel.arrays, call.args, strict=True)
                        if a.read and r.buffer.kind in kinds
                    }
            if more == needed:
                return needed
            needed = more

    # -- kernel calls -------------------------------------------------------------------------------------------

    @cached_property
    def _varying(self) -> set[str]:
        """Buffers that depend on differentiated inputs; others have no cotangents and no tangents."""
        known = {b.name for b in self.program.buffers.values() if b.kind in (STATE, ITERATE)} | self.options.wrt
        while True:
            more = set(known)
            for call in program.calls(self.program.nodes):
                named = [(a, r.buffer.name) for a, r in zip(call.kernel.arrays, call.args, strict=True)]
                if any(a.read and name in known for a, name in named):
                    more |= {name for a, name in named if a.written}
            if more == known:
                return known
            known = more

    def _wanted(self, call: KernelCall) -> frozenset[str]:
        """Arguments of a call that need a cotangent."""
        pairs = zip(call.kernel.arrays, call.args, strict=True)
        return frozenset(
            a.name for a, r in pairs if "f" in a.kinds and r.buffer.kind != OUTPUT and r.buffer.name in self._varying
        )

    def _call(self, call: KernelCall) -> Instruction:
        kernel, refs = call.kernel.forward(), call.args
        if any(r.cotangent for r in refs):  # an adjoint gets whole records but uses only some arrays
            kernel, refs = _pruned(kernel), list(_used(call).values())
        return self._instruction(call, kernel, "forward", [self.at(r, PRIMAL) for r in refs])

    def _adjoint_call(self, call: KernelCall) -> Instruction | None:
        kernel = _pruned(call.kernel.adjoint(self._wanted(call)))
        if not any(a.origin is not None and a.written for a in kernel.arrays):
            return None
        return self._derived_call(call, kernel, "adjoint", ADJOINT)

    def _tangent_call(self, call: KernelCall) -> Instruction:
        return self._derived_call(call, call.kernel.tangent(self._wanted(call)), "tangent", TANGENT)

    def _derived_call(self, call: KernelCall, kernel: KernelIR, form: str, space: str) -> Instruction:
        by_name = {a.name: r for a, r in zip(call.kernel.arrays, call.args, strict=True)}
        refs = []
        for array in kernel.arrays:
            source = by_name[array.origin.name if array.origin else array.name]
            refs.append(self.at(source, space if array.origin else PRIMAL))
        return self._instruction(call, kernel, form, refs)

    def _instruction(self, call: KernelCall, kernel: KernelIR, form: str, refs: list[tuple[int, int]]) -> Instruction:
        by_name = {a.name: r for a, r in zip(call.kernel.arrays, call.args, strict=True)}
        buffers = [by_name[a.origin.name if a.origin else a.name].buffer for a in kernel.arrays]
        keys = list(self.table)
        places = [self.place(*keys[entry]) for entry, _ in refs]
        layouts = {a: place.layout for a, place in zip(kernel.arrays, places, strict=True)}
        emitted = self._emit(call, kernel, form, layouts)
        numbers = {a: b.length * a.padded for a, b in zip(kernel.arrays, buffers, strict=True)}
        sums = sums_by_chunk(kernel, numbers, call.count)
        partial = [place.bytes if a in sums else 0 for a, place in zip(kernel.arrays, places, strict=True)]
        tables = {
            a: _native_table(b)
            for a, b in zip(kernel.arrays, buffers, strict=True)
            if b.values is not None and "i" in b.kinds
        }
        return Instruction(
            native.OP_CALL,
            refs,
            symbol=(_source_file(emitted, self.options.check), emitted.symbol),
            count=call.count,
            schedule=chunk_schedule(kernel, tables, call.count, sums),
            partial=partial if any(partial) else None,
            cost=analysis.cost(kernel),
            origin=(call, kernel, form),
        )

    # -- first writers ------------------------------------------------------------------------------------------

    def _set_instead_of_zero(self, made: list[Instruction]) -> list[Instruction]:
        """Remove zeroing: where the first use adds once to each zeroed cotangent, it sets them instead.

        Also remove the zeroing of unused buffers.
        """
        made = list(made)
        for zero in [i for i in made if i.op == native.OP_ZERO]:
            place, entry = made.index(zero), zero.refs[0][0]
            if self._is_inner(zero) and not any(i.op != native.OP_ZERO and _uses(i, entry) for i in made):
                _drop(made, place)
                continue
            first = next((k for k in range(place + 1, len(made)) if _meets(made, k, zero.refs[0])), None)
            if first is None or made[first].origin is None:
                continue
            call, kernel, form = made[first].origin  # type: ignore[misc]
            at = [k for k, ref in enumerate(made[first].refs) if ref == zero.refs[0]]
            if len(at) == 1 and self._adds_once_everywhere(call, kernel, kernel.arrays[at[0]]):
                made[first] = self._instruction(call, _setting(kernel, kernel.arrays[at[0]]), form, made[first].refs)
                _drop(made, place)
        return made

    def _is_inner(self, zero: Instruction) -> bool:
        name, _ = list(self.table)[zero.refs[0][0]]
        return self.program.buffers[name].kind in (SCRATCH, ITERATE)

    def _adds_once_everywhere(self, call: KernelCall, kernel: KernelIR, array: ArrayRef) -> bool:
        source = array.origin.name if array.origin else array.name
        names = [a.name for a in call.kernel.arrays]
        uses = [n for n in ssa.walk(kernel.body) if isinstance(n, (Load, Store)) and n.array is array]
        return (
            len(uses) == 1
            and isinstance(uses[0], Store)
            and uses[0] in kernel.body.nodes
            and None not in uses[0].values
            and kernel.index is not None
            and uses[0].index is kernel.index
            and call.count == call.args[names.index(source)].buffer.length
        )

    def _emit(self, call: KernelCall, kernel: KernelIR, form: str, layouts: dict[ArrayRef, str]) -> simd.Emitted:
        o = self.options
        if isinstance(call.kernel, CppKernel):
            return call.kernel.emitted(o.precision)
        lanes, width = self._lanes_of(kernel, layouts)
        whole = lanes == ELEMENTS and 1 < width < native.PACKET and not o.check
        if whole and analysis.waits_for_results(kernel):
            width *= 2
        wide = whole and width * o.precision == cpu.WIDEST and analysis.shares_its_elements(kernel)
        # All programs share the text; a checked build numbers its sites per program.
        known = (self._emitted if o.check else _EMITTED).setdefault(kernel, {})
        key = (call.kernel.name, form, tuple(layouts.values()), lanes, width, o.precision, wide)
        if key not in known:
            known[key] = simd.emit(
                kernel,
                f"kn_{call.kernel.name}_{form}",
                layouts=layouts,
                lanes=lanes,
                width=width,
                precision=o.precision,
                check=o.check,
                first_site=len(self.sites),
                wide=wide,
            )
            self.sites += known[key].sites
        return known[key]

    def _lanes_of(self, kernel: KernelIR, layouts: dict[ArrayRef, str]) -> tuple[str, int]:
        """The kind and number of lanes of a kernel."""
        o = self.options
        return o.lanes, o.width if o.lanes == WORLDS or kernel.index is not None else 1

    # -- native code --------------------------------------------------------------------------------------------

    def sources(self, lists: tuple[str, ...]) -> list[str]:
        """C++ source files of the named lists."""
        found = [i.symbol[0] for name in lists for i in self.instructions(name) if i.symbol]
        return list(dict.fromkeys(found))

    def address(self, symbol: tuple[str, str]) -> int:
        """The address of a compiled kernel."""
        if symbol not in self._functions:
            function = getattr(compiler.library(symbol[0]), symbol[1])
            self._functions[symbol] = ctypes.cast(function, ctypes.c_void_p).value or 0
        return self._functions[symbol]

    def compile(self, lists: tuple[str, ...]) -> None:
        """Compile and load all kernels of the named lists, in parallel."""
        compiler.libraries(self.sources(lists))


def _uses_of(kernel: KernelIR) -> list[tuple[int, str, str]]:
    """Places of arrays among the arguments of a kernel, with the kinds of their indices and accesses."""
    if kernel not in _USES:
        found = analysis.accesses(kernel, analysis.varying_values(kernel, ELEMENTS, set()))
        _USES[kernel] = list(dict.fromkeys((kernel.arrays.index(u.array), u.index, u.kind) for u in found))
    return _USES[kernel]


def _drop(made: list[Instruction], place: int) -> None:
    """Remove an instruction."""
    del made[place]
    for loop in made:
        loop.end -= int(loop.op in (native.OP_LOOP, native.OP_SKIP) and loop.end > place)


def _uses(instruction: Instruction, entry: int) -> bool:
    """Whether an instruction uses a buffer."""
    return any(ref[0] == entry for ref in instruction.refs)


def _meets(made: list[Instruction], k: int, ref: tuple[int, int]) -> bool:
    """Whether instruction k uses a slot, or begins a loop that uses its buffer."""
    if made[k].op == native.OP_LOOP:
        return any(_uses(i, ref[0]) for i in made[k : made[k].end])
    return ref in made[k].refs


def _setting(kernel: KernelIR, array: ArrayRef) -> KernelIR:
    """The kernel with its only addition to an array replaced by an assignment."""
    nodes = [replace(n, mode="set") if isinstance(n, Store) and n.array is array else n for n in kernel.body.nodes]
    return replace(kernel, body=Block(nodes))


def _pruned(kernel: KernelIR) -> KernelIR:
    """The kernel without unused arrays, which then need no memory."""
    if kernel not in _PRUNED:
        nodes = list(ssa.walk(kernel.body))
        used = {n.array for n in nodes if isinstance(n, (Load, Store))}
        used |= {n.attr for n in nodes if isinstance(n, ssa.Value) and n.op == "length"}
        _PRUNED[kernel] = replace(kernel, arrays=[a for a in kernel.arrays if a in used])
    return _PRUNED[kernel]


def _used(call: KernelCall) -> dict[ArrayRef, Ref]:
    """Buffers of the arrays that the kernel of a call uses."""
    used = _pruned(call.kernel.forward()).arrays
    return {a: r for a, r in zip(call.kernel.forward().arrays, call.args, strict=True) if a in used}


def checking() -> bool:
    """Whether KINEMA_CHECK asks for the checked build."""
    return _getenv(b"KINEMA_CHECK") not in (None, b"", b"0")


_getenv = ctypes.PyDLL(None).getenv  # called per rollout: os.environ takes 5 us for an unset variable
_getenv.restype = ctypes.c_char_p


def _source_file(emitted: simd.Emitted, check: bool) -> str:
    return f'#define KN_CHECK {int(check)}\n#include "kernel.hpp"\n\n{emitted.text}'.replace(
        'extern "C" void', 'extern "C" __attribute__((visibility("default"))) void'
    )


def _native_table(buffer: Buffer) -> np.ndarray:
    assert buffer.values is not None
    return buffer.values if buffer.order is None else buffer.values[buffer.order]


def _loads(kernel: KernelIR) -> list[Load]:
    return [n for n in ssa.walk(kernel.body) if isinstance(n, Load)]


def every_node(nodes: list[Any]) -> list[Any]:
    """All nodes, including those inside loops and custom operations."""
    found: list[Any] = []
    for node in nodes:
        found.append(node)
        if isinstance(node, Loop):
            found += every_node(node.body)
        elif isinstance(node, Custom):
            found += every_node(node.forward) + every_node(node.replay) + every_node(node.again)
    return found


def every_call(nodes: list[Any]) -> list[KernelCall]:
    """All kernel calls, including those of custom adjoints."""
    found: list[KernelCall] = []
    for node in nodes:
        if isinstance(node, KernelCall):
            found.append(node)
        elif isinstance(node, Loop):
            found += every_call(node.body)
        else:
            parts = (node.forward, node.replay, node.again, node.adjoint)
            found += [call for part in parts for call in every_call(part)]
    return found


def _derived_calls(nodes: list[Any]) -> list[KernelCall]:
    """Calls with derived adjoints: all except those of custom operations."""
    found: list[KernelCall] = []
    for node in nodes:
        if isinstance(node, KernelCall):
            found.append(node)
        elif isinstance(node, Loop):
            found += _derived_calls(node.body)
    return found


def _stores(node: Any) -> frozenset[str]:
    """Scratch that a node or its adjoint writes."""
    pairs = (pair for call in every_call([node]) for pair in zip(call.kernel.arrays, call.args, strict=True))
    return frozenset(r.buffer.name for a, r in pairs if a.written and r.buffer.kind == SCRATCH and not r.cotangent)


def _writes(node: Any) -> set[str]:
    names = set()
    replay = node.replay if isinstance(node, Custom) else []
    for call in program.calls([node, *replay]):
        names |= {r.buffer.name for a, r in zip(call.kernel.arrays, call.args, strict=True) if a.written}
    if isinstance(node, Loop) and node.condition:
        names.add(node.condition.buffer.name)
    return names
