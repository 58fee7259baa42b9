"""Gathers of the next packet, between the operations of this one.

A packet first gathers rows and transposes them (shuffles), then computes (multiplications), then scatters. A CPU looks some
two hundred instructions ahead, less than one of these stretches, so units that shuffle and units that multiply would
take turns in waiting. Rows whose numbers stand in a table, and which the kernel does not write, are known one packet
ahead: they are gathered between the operations, and wait in a small array. No value changes by that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kinema.lang import ir
from kinema.lang.emit_memory import Memory
from kinema.lang.emit_text import AOS, PACKET
from kinema.lang.ir import Load, Value

WORK = 16  # operations for each gather of up to four numbers, below which nothing is gained


@dataclass(frozen=True)
class _Rows:
    """A gather of up to four numbers of a row: base address, name of its offsets, place in the waiting array, names."""

    base: str
    offsets: int
    first: int
    results: list[Value]

    def gather(self, offsets: str) -> str:
        """C++ that gathers into the waiting array."""
        n = len(self.results)
        names = [f"v{c}" for c in range(max(n, 2))]
        kept = " ".join(f"store<F>(waiting + {self.first + c} * W, v{c});" for c in range(n))
        size = max(n, 2)
        call = f"rows{size}({self.base}, {offsets} + {self.offsets} * W, {', '.join(names)});"
        return f"in_this_order(); {{ F {', '.join(names)}; {call} {kept} }} in_this_order();"


class Ahead(Memory):
    """Adds gathers that run one packet ahead. `before_loop`, `in_loop` and `end_of_loop` frame the loop over packets."""

    before_loop: list[str]
    in_loop: list[str]
    end_of_loop: list[str]

    def ahead(self, nodes: list[Any]) -> tuple[list[Any], dict[int, list[str]]]:
        """Take early gathers out of the nodes of a packet; returns the others, and what to write before which."""
        self.before_loop, self.in_loop, self.end_of_loop = [], [], []
        early = self.early_loads(nodes)
        if not early:
            return nodes, {}
        tables = self.table_loads(nodes)
        indices = {(n.index, n.array.padded): k for k, n in enumerate(dict.fromkeys(early))}
        indices = {key: k for k, key in enumerate(indices)}
        used_tables = {id(tables[index][0]) for index, _ in indices}
        self.block([n for n in nodes if id(n) in used_tables])
        rows = []
        waiting = 0
        for node in early:
            for q in range(0, len(node.results), 4):
                part = node.results[q : q + 4]
                base = f"{self.array_names[node.array]} + {q}"
                rows.append(_Rows(base, indices[node.index, node.array.padded], waiting, part))
                waiting += len(part)
        self.frame(indices, tables, rows, waiting)
        gone = {id(n) for n in early} | used_tables
        rest = [n for n in nodes if id(n) not in gone]
        return rest, self.places(rest, rows)

    def early_loads(self, nodes: list[Any]) -> list[Load]:
        """Gathers of rows by a table, if there is enough to compute beside them."""
        if self.check or self.w == 1:
            return []
        written = {u.array for u in self.uses if u.kind != "load"}
        tables = self.table_loads(nodes)

        def early(node: Any) -> bool:
            if not isinstance(node, Load) or node.array.role == "local" or node.array in written:
                return False
            rows = "f" in node.array.kinds and len(node.array.kinds) > 1 and self.layouts[node.array] == AOS
            return rows and node.index in tables

        found = [n for n in nodes if early(n)]
        work = sum(isinstance(n, Value) and n.kind == "f" for n in nodes)
        return found if work >= WORK * sum(-(-len(n.results) // 4) for n in found) else []

    def table_loads(self, nodes: list[Any]) -> dict[Value, tuple[Load, int]]:
        """Entries of tables of the own element: the load and the number of the component."""
        own = [n for n in nodes if isinstance(n, Load) and n.index is self.k.index]
        simple = [n for n in own if self.layouts[n.array] == PACKET or len(n.results) == 1]
        return {r: (n, c) for n in simple for c, r in enumerate(n.results) if r in self.tables}

    def frame(
        self, indices: dict[tuple[Value, int], int], tables: dict[Value, tuple[Load, int]], rows: list[_Rows], size: int
    ) -> None:
        """Declarations and the first gather before the loop; offsets and what has been waiting at the start of a packet."""
        count = len(indices)

        def offsets(of: str) -> list[str]:
            lines = []
            for (index, padded), k in indices.items():
                node, c = tables[index]
                entry = f"load_int<I>({self.array_names[node.array]} + {self.own_place(node.array, c, 'coming')})"
                lines.append(f"keep_offsets<I>({of} + {k} * W, {entry} * splat<I>(U({padded})));")
            return lines

        self.before_loop = [
            f"alignas(64) T waiting[{size} * W]; alignas(64) U offsets[2 * {count} * W];",
            f"U *offsets_now = offsets, *offsets_next = offsets + {count} * W;",
            "if (call->begin < call->end) {",
            "  const int64_t coming = call->begin;",
            *("  " + line for line in [*offsets("offsets_now"), *(r.gather("offsets_now") for r in rows)]),
            "}",
        ]
        self.in_loop = ["const int64_t coming = call->end - e0 > W ? e0 + W : e0;", *offsets("offsets_next")]
        self.end_of_loop = ["std::swap(offsets_now, offsets_next);"]
        for (index, padded), k in indices.items():
            name = self.fresh("off")
            self.offsets[-1][self.ref(index), padded] = name
            self.put(f"const U* const {name} = offsets_now + {k} * W;")
        for row in rows:
            for c, r in enumerate(row.results):
                self.define(r, f"load<F>(waiting + {row.first + c} * W)")

    def places(self, nodes: list[Any], rows: list[_Rows]) -> dict[int, list[str]]:
        """Gathers by the position of the node that they precede: evenly, after the last use of what they overwrite."""
        last: dict[Value, int] = {}
        for at, node in enumerate(nodes):
            for inner in (node, *(n for block in ir.blocks_of(node) for n in ir.walk(block))):
                last.update(dict.fromkeys(ir.uses(inner), at))
        begin = len(nodes) // 4
        found: dict[int, list[str]] = {}
        for k, row in enumerate(rows):
            evenly = begin + k * (len(nodes) - begin) // len(rows)
            free = max((last.get(r, -1) for r in row.results), default=-1) + 1
            found.setdefault(max(evenly, free), []).append(row.gather("offsets_next"))
        return found
