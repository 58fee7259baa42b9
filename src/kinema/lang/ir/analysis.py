"""Analysis for the emitter and the scheduler: which values differ between lanes, how kernels use arrays.

Lanes are elements of the kernel's domain, worlds, or cotangents of one world (rows of a Jacobian). A value is *uniform*
if it is the same in all lanes, otherwise *varying*; inferred to a fixed point, since control flow carries it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kinema.lang.ir import ssa
from kinema.lang.ir.ssa import ArrayRef, Block, Call, For, If, KernelIR, Load, Local, Store, Value

ELEMENTS, WORLDS, COTANGENTS = "elements", "worlds", "cotangents"


def varying_values(
    kernel: KernelIR,
    lanes: str,
    per_lane: set[ArrayRef],
    promises: bool = True,
    varying_params: tuple[Value, ...] = (),
) -> set[Value]:
    """The values that differ between lanes.

    Args:
        kernel: The kernel.
        lanes: What a lane is: ELEMENTS, WORLDS or COTANGENTS.
        per_lane: Arrays with a copy per lane (lanes are worlds or cotangents).
        promises: Trust `uniform(...)`; if False, the result holds every value that depends on the element at all.
        varying_params: Varying parameters of an out-of-line function.
    """
    return _Varying(kernel, lanes, per_lane, promises, varying_params).values


def varying_arrays(kernel: KernelIR, per_lane: set[ArrayRef]) -> set[ArrayRef]:
    """Where lanes are cotangents: arrays, including local ones, that need a copy per lane, given known `per_lane`."""
    return _Varying(kernel, COTANGENTS, per_lane, True, ()).arrays


class _Varying:
    """Varying values and arrays, found by passes over a kernel until nothing changes.

    Attributes:
        values: Varying values.
        arrays: Varying arrays; local arrays only where lanes are cotangents, otherwise they always vary.
    """

    def __init__(
        self, kernel: KernelIR, lanes: str, per_lane: set[ArrayRef], promises: bool, params: tuple[Value, ...]
    ) -> None:
        self.lanes, self.promises = lanes, promises
        self.values: set[Value] = set(params)
        self.arrays = set(per_lane)
        if lanes == ELEMENTS and kernel.index is not None:
            self.values.add(kernel.index)
        self.changed = True
        while self.changed:
            self.changed = False
            self.visit(kernel.body, False)

    def mark(self, *values: Value) -> None:
        for v in values:
            if v not in self.values and v.op != "const":
                self.values.add(v)
                self.changed = True

    def visit(self, block: Block, diverged: bool) -> None:
        """One pass; `diverged` if some lanes may not come here."""
        varying = self.values
        for node in block.nodes:
            if isinstance(node, Value):
                promised = self.promises and (node.op == "shared" or (node.op == "uniform" and self.lanes == ELEMENTS))
                if any(a in varying for a in node.args) and not promised and node.op != "everywhere":
                    self.mark(node)
            elif isinstance(node, Call):
                self.mark(*node.results)  # kept functions are emitted for lanes
            elif isinstance(node, Load):
                always = node.array.role == "local" and self.lanes != COTANGENTS
                if always or node.index in varying or node.array in self.arrays:
                    self.mark(*node.results)
            elif isinstance(node, (Store, Local)) and self.lanes == COTANGENTS:
                given = [node.size] if isinstance(node, Local) else [node.index, *node.values]
                apart = isinstance(node, Store) and diverged
                if node.array not in self.arrays and (apart or any(v in varying for v in given)):
                    self.arrays.add(node.array)
                    self.changed = True
            elif isinstance(node, If):
                apart = diverged or node.cond in varying
                self.visit(node.then, apart)
                self.visit(node.orelse, apart)
                for out, a, b in node.results:
                    if node.cond in varying or a in varying or b in varying:
                        self.mark(out)
            elif isinstance(node, For):
                self.visit_loop(node, diverged)

    def visit_loop(self, node: For, diverged: bool) -> None:
        varying = self.values
        if node.start in varying or node.stop in varying:
            self.mark(node.var)
        alive = node.carried[node.alive] if node.alive is not None else None
        diverges = node.var in varying or (alive is not None and alive[2] in varying)
        for phi, init, following, out in node.carried:
            if diverges or init in varying or following in varying:
                self.mark(phi, out)
        self.visit(node.body, diverged or diverges)


@dataclass(frozen=True)
class Access:
    """One use of an array argument: kind 'load', 'set' or 'add'; index 'own', 'const', 'uniform' or 'varying'."""

    array: ArrayRef
    kind: str
    index: str
    node: Any
    in_loop: bool


def accesses(kernel: KernelIR, varying: set[Value]) -> list[Access]:
    """All accesses to array arguments, in order."""
    found: list[Access] = []

    def index_class(v: Value) -> str:
        if v is kernel.index:
            return "own"
        if v.op == "const":
            return "const"
        return "varying" if v in varying else "uniform"

    def visit(block: Block, in_loop: bool) -> None:
        for node in block.nodes:
            if isinstance(node, Load) and node.array.role != "local":
                found.append(Access(node.array, "load", index_class(node.index), node, in_loop))
            elif isinstance(node, Store) and node.array.role != "local":
                found.append(Access(node.array, node.mode, index_class(node.index), node, in_loop))
            for inner in ssa.blocks_of(node):
                visit(inner, in_loop or isinstance(node, For))

    visit(kernel.body, False)
    return found


def reductions(uses: list[Access]) -> set[ArrayRef]:
    """Arrays that the kernel only accumulates into, at constant indices: sums over the elements."""
    by_array: dict[ArrayRef, list[Access]] = {}
    for use in uses:
        by_array.setdefault(use.array, []).append(use)
    return {a for a, u in by_array.items() if all(x.kind == "add" and x.index == "const" for x in u)}


def shared_sums(uses: list[Access]) -> set[ArrayRef]:
    """Arrays that the kernel only accumulates into, at indices that all lanes of a packet share."""
    others = {u.array for u in uses if u.kind != "add" or u.index not in ("const", "uniform")}
    return {u.array for u in uses if "f" in u.array.kinds} - others


def scatter_indices(kernel: KernelIR, uses: list[Access], tables: dict[ArrayRef, Any], count: int) -> np.ndarray | None:
    """Indices that each element e writes at varying indices: (count, writes), disjoint across arrays; None if unknown.

    Indices are known if they depend on e and integer tables alone, outside of loops. -1 means no write.
    """
    columns: list[np.ndarray] = []
    offset = 0
    offsets: dict[ArrayRef, int] = {}
    for use in uses:
        if use.kind == "load" or use.index != "varying":
            continue
        if use.in_loop:
            return None
        values = _evaluate(kernel, use.node.index, tables, count)
        if values is None:
            return None
        if use.array not in offsets:
            offsets[use.array] = offset
            offset += 1 << 40
        columns.append(values.astype(np.int64) + offsets[use.array])
    return np.stack(columns, axis=1) if columns else np.zeros((count, 0), np.int64)


def _evaluate(kernel: KernelIR, index: Value, tables: dict[ArrayRef, Any], count: int) -> np.ndarray | None:
    """Evaluate an Int expression for all elements with numpy; None if it depends on anything but e and tables."""
    defined = {r: n for n in ssa.walk(kernel.body) for r in ssa.results(n)}

    def value(v: Value) -> np.ndarray | None:
        if v.op == "const":
            return np.full(count, v.attr, np.int64)
        if v is kernel.index:
            return np.arange(count, dtype=np.int64)
        node = defined.get(v)
        if isinstance(node, Load) and node.array in tables:
            at = value(node.index)
            if at is None:
                return None
            table = np.asarray(tables[node.array]).reshape(-1, len(node.array.kinds))
            return table[np.clip(at, 0, len(table) - 1), node.results.index(v)].astype(np.int64)
        if isinstance(node, Value) and v.op in _INTEGER:
            args = [value(a) for a in v.args]
            return None if any(a is None for a in args) else _INTEGER[v.op](*args)
        return None

    return value(index)


_INTEGER: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "min": np.minimum,
    "max": np.maximum,
    "idiv": lambda a, b: a // np.where(b == 0, 1, b),
    "imod": lambda a, b: a % np.where(b == 0, 1, b),
}


def order_needs_packets(kernel: KernelIR) -> bool:
    """Whether elements access shared memory in a loop or by `uniform(...)`: packets then decide the order of additions.

    True if a kernel with Index, inside a loop or by an index that a packet shares, writes or reads a Float element that
    other elements may use (the adjoint of such a read is a write).
    """
    if kernel.index is None:
        return False
    uses = accesses(kernel, varying_values(kernel, ELEMENTS, set()))
    return any("f" in u.array.kinds and (u.in_loop and u.index != "own" or u.index == "uniform") for u in uses)


MUCH = 64  # operations of a long dependency chain


def waits_for_results(kernel: KernelIR) -> bool:
    """Whether latency limits a kernel: one long dependency chain, or a loop with uniform bounds, without gathers.

    Twice the lanes then run two chains side by side, at hardly more than the cost of one.
    """
    if kernel.index is None:
        return False
    varying = varying_values(kernel, ELEMENTS, set())
    nodes = list(ssa.walk(kernel.body))
    loops = [n for n in nodes if isinstance(n, For)]
    if any(n.var in varying for n in loops) or any(isinstance(n, Local) for n in nodes):
        return False
    uses = accesses(kernel, varying)
    gathers = any(u.kind == "load" and u.index == "varying" or u.kind == "add" and u.index != "own" for u in uses)
    return not gathers and (bool(loops) or sum(isinstance(n, Value) and n.kind == "f" for n in nodes) >= MUCH)


def shares_its_elements(kernel: KernelIR) -> bool:
    """Whether lanes share what a kernel reads and adds to, except for at most one gather: any register width suits it.

    Inside loops, such kernels add only to elements padded to four scalars, which `Later` of the native code delays.
    """
    if kernel.index is None:
        return False
    varying = varying_values(kernel, ELEMENTS, set())
    nodes = list(ssa.walk(kernel.body))
    if any(isinstance(n, (Local, Call)) or isinstance(n, For) and n.var in varying for n in nodes):
        return False
    uses = accesses(kernel, varying)
    floats = [u for u in uses if "f" in u.array.kinds]
    added = [u for u in uses if u.kind == "add" and u.index == "uniform"]
    return (
        any(u.index == "uniform" for u in floats)
        and sum(u.index == "varying" for u in floats) <= 1
        and all(u.array in shared_sums(uses) and (u.array.padded >= 4 or not u.in_loop) for u in added)
        and not any(u.in_loop and u.kind != "load" and u.index in ("varying", "own", "const") for u in uses)
    )


def has_locals(block: Block) -> bool:
    """Whether a block, without its nested blocks, declares local arrays."""
    return any(isinstance(n, Local) for n in block.nodes)


def cost(kernel: KernelIR) -> float:
    """A rough estimate of nanoseconds per element with 8 lanes, to decide whether threads should share a call."""
    return 0.1 * sum(1 for n in ssa.walk(kernel.body)) + 0.5
