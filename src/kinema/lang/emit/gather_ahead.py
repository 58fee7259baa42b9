"""Software pipelining: gathers for the next packet, between the operations of this one.

A packet first gathers rows and transposes them, then computes, then scatters. The three times add up: each phase is
about as long as the CPU's reorder window, so shuffles and multiplications hardly overlap. Rows that a table names, of
arrays that the kernel does not write, are known one packet ahead. The emitted code gathers them between the operations
and keeps them in a small array. No value changes. Measurements: decision 004.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kinema.lang.emit.memory_access import Memory
from kinema.lang.emit.text import AOS, PACKET
from kinema.lang.ir import ssa
from kinema.lang.ir.ssa import Load, Value

WORK = 8  # least number of operations per gather of up to four scalars; with fewer, gathers do not overlap

Key = tuple[Value, int]  # an entry of a table, and the row stride


@dataclass(frozen=True)
class _Gather:
    """A gather of up to four scalars per row.

    Attributes:
        base: Address of the first scalar of row 0.
        offsets: Position of the row offsets, in packets of lanes.
        first: Position of the first waiting scalar, in packets of lanes.
        results: The scalars.
    """

    base: str
    offsets: int
    first: int
    results: list[Value]

    def text(self, offsets: str) -> str:
        """C++ that gathers into the array of waiting scalars."""
        names = [f"v{c}" for c in range(max(len(self.results), 2))]
        call = f"rows{len(names)}({self.base}, {offsets} + {self.offsets} * W, {', '.join(names)});"
        kept = " ".join(f"store<F>(waiting + {self.first + c} * W, v{c});" for c in range(len(self.results)))
        return f"in_this_order(); {{ F {', '.join(names)}; {call} {kept} }} in_this_order();"


class Ahead(Memory):
    """Adds gathers that run one packet ahead; three lists of lines frame the loop over packets."""

    before_loop: list[str]
    in_loop: list[str]
    end_of_loop: list[str]

    def gather_ahead(self, nodes: list[Any]) -> tuple[list[Any], dict[int, list[str]]]:
        """Take early gathers out of the nodes of a packet.

        Returns:
            The tables that name the rows, the other nodes, and the gathers to write before the node at each position.
        """
        self.before_loop, self.in_loop, self.end_of_loop = [], [], []
        entries = self.table_entries(nodes)
        early = self.early_loads(nodes, entries)
        if not early:
            return nodes, {}
        keys = dict.fromkeys((n.index, n.array.padded) for n in early)
        numbers = {key: k for k, key in enumerate(keys)}
        gathers: list[_Gather] = []
        waiting = 0
        for node in early:
            for q in range(0, len(node.results), 4):
                base, part = f"{self.array_names[node.array]} + {q}", node.results[q : q + 4]
                gathers.append(_Gather(base, numbers[node.index, node.array.padded], waiting, part))
                waiting += len(part)
        tables = list({id(entries[index][0]): entries[index][0] for index, _ in keys}.values())
        for table in tables:
            self.load(table)
        self.frame(numbers, entries, gathers, waiting)
        rest = [n for n in nodes if not any(n is taken for taken in [*early, *tables])]
        return rest, self.places(rest, gathers)

    def early_loads(self, nodes: list[Any], entries: dict[Value, tuple[Load, int]]) -> list[Load]:
        """Gathers of rows that a table names, if there are enough operations to overlap with."""
        if self.check or self.w == 1:
            return []
        written = {u.array for u in self.uses if u.kind != "load"}
        found = [
            n
            for n in nodes
            if isinstance(n, Load)
            and n.index in entries
            and n.array.role != "local"
            and n.array not in written
            and "f" in n.array.kinds
            and len(n.array.kinds) > 1
            and self.layouts[n.array] == AOS
        ]
        work = sum(isinstance(n, Value) and n.kind == "f" for n in nodes)
        return found if work >= WORK * sum(-(-len(n.results) // 4) for n in found) else []

    def table_entries(self, nodes: list[Any]) -> dict[Value, tuple[Load, int]]:
        """Table entries of the own element: the load, and the index of the scalar in it."""
        own = [n for n in nodes if isinstance(n, Load) and n.index is self.k.index]
        side_by_side = [n for n in own if self.layouts[n.array] == PACKET or len(n.results) == 1]
        return {r: (n, c) for n in side_by_side for c, r in enumerate(n.results) if r in self.tables}

    def frame(
        self, numbers: dict[Key, int], entries: dict[Value, tuple[Load, int]], gathers: list[_Gather], size: int
    ) -> None:
        """Set the lines around the loop; at the start of a packet, name its offsets and the waiting scalars."""
        count = len(numbers)

        def offsets(of: str) -> list[str]:
            lines = []
            for (index, padded), k in numbers.items():
                table, c = entries[index]
                entry = f"load_int<I>({self.array_names[table.array]} + {self.own_place(table.array, c, 'coming')})"
                lines.append(f"keep_offsets<I>({of} + {k} * W, {entry} * splat<I>(U({padded})));")
            return lines

        self.before_loop = [
            f"alignas(64) T waiting[{size} * W]; alignas(64) U offsets[{2 * count} * W];",
            f"U *offsets_now = offsets, *offsets_next = offsets + {count} * W;",
            "if (call->begin < call->end) {",
            "  const int64_t coming = call->begin;",
            *("  " + line for line in [*offsets("offsets_now"), *(g.text("offsets_now") for g in gathers)]),
            "}",
        ]
        # The last packet has no successor: it gathers its own rows again, unused.
        self.in_loop = ["const int64_t coming = call->end - e0 > W ? e0 + W : e0;", *offsets("offsets_next")]
        self.end_of_loop = ["std::swap(offsets_now, offsets_next);"]
        for (index, padded), k in numbers.items():
            name = self.fresh("off")
            self.offsets[-1][self.ref(index), padded] = name
            self.put(f"const U* const {name} = offsets_now + {k} * W;")
        for gather in gathers:
            for c, r in enumerate(gather.results):
                self.define(r, f"load<F>(waiting + {gather.first + c} * W)")

    def places(self, nodes: list[Any], gathers: list[_Gather]) -> dict[int, list[str]]:
        """Positions of the gathers: spread evenly, but after the last use of the scalars that they overwrite."""
        last: dict[Value, int] = {}
        for at, node in enumerate(nodes):
            for inner in (node, *(n for block in ssa.blocks_of(node) for n in ssa.walk(block))):
                last.update(dict.fromkeys(ssa.uses(inner), at))
        begin = len(nodes) // 4
        found: dict[int, list[str]] = {}
        for k, gather in enumerate(gathers):
            evenly = begin + k * (len(nodes) - begin) // len(gathers)
            free = 1 + max(last.get(r, -1) for r in gather.results)
            found.setdefault(max(evenly, free), []).append(gather.text("offsets_next"))
        return found
