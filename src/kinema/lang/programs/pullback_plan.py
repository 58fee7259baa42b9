"""Compiles a program with a Jacobian: the step once, then its adjoint, whose lanes are rows of the Jacobian.

All rows share one copy of the values of the step; cotangents, and values that depend on them, have one copy per lane.
In kernels of the step, lanes are elements; in kernels of the adjoint, lanes are cotangents. Adjoints compute uniform
values once for all rows, such as the elimination of a contact problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

from kinema.lang.build import cpu
from kinema.lang.emit.simd import AOS, LANES, PACKET
from kinema.lang.ir import analysis
from kinema.lang.ir.analysis import COTANGENTS, ELEMENTS
from kinema.lang.ir.ssa import ArrayRef, KernelIR
from kinema.lang.language import types
from kinema.lang.programs import program
from kinema.lang.programs.plan import ADJOINT, PRIMAL, SEED, Instruction, Options, Place, Plan, every_call
from kinema.lang.programs.program import PULLED, STATE, Buffer, Custom, KernelCall, Program, Pullback, Ref
from kinema.lang.runtime import native

NEXT = "next"  # space of the cotangents of the end state


class PullbackPlan(Plan):
    """A program with a Jacobian, compiled; its one list is 'forward'."""

    def __init__(self, prog: Program, options: Options) -> None:
        pulls = prog.pulls
        assert pulls is not None and pulls.loop is not None
        self.pulls, self.packets = pulls, pulls.loop.times
        self._slot = native.slot_iteration(pulls.loop.number)
        super().__init__(prog, replace(options, wrt=frozenset(pulls.pulled), width=pulls.width))

    # -- memory -------------------------------------------------------------------------------------------------

    def _place(self, buffer: Buffer, indices: set[str], kinds: set[str]) -> Place:
        place = super()._place(buffer, indices, kinds)
        if buffer.kind == PULLED:
            return replace(place, elements=buffer.length)
        # Kernels of the adjoint read single elements, not packets.
        packed = place.layout == PACKET
        return replace(place, layout=AOS, numbers=types.padded_size(buffer.element)) if packed else place

    def place(self, name: str, space: str) -> Place:
        """The place of a buffer or its cotangents."""
        if space == PRIMAL and name not in self._per_lane:
            return self.places[name]
        buffer = self.program.buffers[name]
        item = 4 if "i" in buffer.kinds else self.options.precision
        return Place(LANES, buffer.length, len(buffer.kinds), self.options.width, item)

    def slots(self, name: str, space: str) -> int:
        """Number of slots of cotangents."""
        return self.packets if space == SEED or (space == ADJOINT and name in self.pulls.pulled) else 1

    def at(self, ref: Ref, space: str) -> tuple[int, int]:
        """Table entry and slot of a reference."""
        if space != ADJOINT and not ref.cotangent:
            return super().at(ref, space)
        name, ended = ref.buffer.name, ref.buffer.kind == STATE and ref.moment == "next"
        slot = self._slot if name in self.pulls.pulled and not ended else native.SLOT_ZERO
        return self.entry(name, NEXT if ended else ADJOINT), slot

    @cached_property
    def _per_lane(self) -> set[str]:
        """Scratch of adjoints with a copy per row: rows store different values, or sums, into it."""
        calls = [call for node in self._before if isinstance(node, Custom) for call in every_call(node.adjoint)]
        found: set[str] = set()
        while True:
            more = set(found)
            for call in calls:
                named = dict(zip(call.kernel.forward().arrays, call.args, strict=True))
                own = {a for a, r in named.items() if r.cotangent or r.buffer.name in more}
                apart = analysis.varying_arrays(call.kernel.forward(), own)
                more |= {
                    r.buffer.name for a, r in named.items() if not r.cotangent and (a in apart or "add" in a.written)
                }
            if more == found:
                return found
            found = more

    # -- instructions -------------------------------------------------------------------------------------------

    @property
    def _before(self) -> list[Any]:
        return self.program.nodes[: self.program.nodes.index(self.pulls)]

    def instructions(self, which: str) -> list[Instruction]:
        """The list 'forward'."""
        assert which == "forward", "a program with a Jacobian is not differentiable"
        if which not in self._lists:
            self._lists[which] = self._set_instead_of_zero(super().instructions(which))
        return self._lists[which]

    def used(self, which: str) -> set[tuple[str, str]]:
        """Names and spaces of the buffers that the instructions use."""
        keys = list(self.table)
        return {keys[entry] for instruction in self.instructions(which) for entry, _ in instruction.refs}

    def _pullback(self, node: Pullback, out: list[Instruction]) -> None:
        """Append the loop over packets of rows: seeds, then the adjoints of the nodes that they depend on."""
        assert node.loop is not None
        live = list(self._live(node))
        for one in live:
            calls = every_call(one.adjoint) if isinstance(one, Custom) else []
            for call in filter(self._is_shared, calls):  # once for all rows
                out.append(self._call(call))
        self._loop(node.loop, out, [], False, lambda body: self._pull_once(node, live, body))

    def _is_shared(self, call: KernelCall) -> bool:
        """Whether a part of an adjoint is independent of cotangents."""
        return not any(r.cotangent or r.buffer.name in self._per_lane for r in call.args)

    def _pull_once(self, node: Pullback, live: list[Any], out: list[Instruction]) -> None:
        for name in node.pulled:
            out.append(Instruction(native.OP_ZERO, [(self.entry(name, ADJOINT), self._slot)]))
        self._zero_cotangents(live[::-1], out)
        for ref in node.rows:
            seed = self.entry(ref.buffer.name, SEED), self._slot
            out.append(Instruction(native.OP_COPY, [self.at(ref, ADJOINT), seed]))
        for one in live:
            if isinstance(one, KernelCall):
                made = None if self._is_idle(one) else self._adjoint_call(one)
                out += [] if made is None else [made]
                continue
            for call in every_call(one.adjoint):
                if not self._is_unwanted(call) and not self._is_shared(call):
                    out.append(self._call(call))

    def _live(self, node: Pullback) -> Iterator[Any]:
        """Nodes that rows depend on, backwards."""
        live = {(r.buffer.name, r.moment) for r in node.rows}
        for one in reversed(self._before):
            calls = list(program.calls([one]))
            pairs = [
                (a, (r.buffer.name, r.moment)) for c in calls for a, r in zip(c.kernel.arrays, c.args, strict=True)
            ]
            if live & {key for a, key in pairs if a.written}:
                live |= {key for a, key in pairs if a.read}
                yield one

    def _lanes_of(self, kernel: KernelIR, layouts: dict[ArrayRef, str]) -> tuple[str, int]:
        if LANES in layouts.values():
            return COTANGENTS, self.options.width
        return ELEMENTS, cpu.lanes(self.options.precision) if kernel.index is not None else 1
