"""Reverse mode: the adjoint of a kernel as another kernel of the intermediate form.

The adjoint recomputes the values it needs (`replay`), then walks the nodes backwards (`sweep`). Arrays keep their
final values, because every element is written before it is read. The tape therefore holds only the history of
loop-carried values that the reverse body uses: one local array per value, removed if nobody reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kinema.lang.derivatives.partials import PARTIALS
from kinema.lang.ir import optimise
from kinema.lang.ir.ssa import (
    ArrayRef,
    Block,
    Builder,
    Call,
    For,
    Function,
    If,
    KernelIR,
    Load,
    Local,
    Store,
    Value,
    results,
    walk,
)

Adjoints = dict[Value, Value]


class NoAdjoint(Exception):
    """The adjoint cannot be formed; the message gives the reason, `line` the position."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.line = line


def adjoint(kernel: KernelIR, wanted: Callable[[ArrayRef], bool]) -> KernelIR:
    """The adjoint kernel.

    It takes the arrays of the kernel, then a cotangent array for each Float array that is written or for which `wanted`
    holds. It reads cotangents of written arrays and accumulates cotangents of read arrays.
    """
    cotangents: dict[ArrayRef, ArrayRef] = {}
    for array in kernel.arrays:
        if "f" in array.kinds and (array.written or wanted(array)):
            cotangents[array] = ArrayRef(
                f"adj_{array.name}", array.kinds, array.padded, is_value=array.is_value, origin=array
            )
    builder = Builder()
    transform = _Reverse(builder, cotangents, active_values(kernel, set(cotangents)))
    transform.overwriting = overwriting(kernel.body)
    index = kernel.index
    names: dict[Value, Value] = {} if index is None else {index: index}
    transform.replay(kernel.body.nodes, names)
    transform.sweep(kernel.body.nodes, names, {})
    arrays = [*kernel.arrays, *(c for c in cotangents.values() if c.role != "local")]
    return KernelIR(
        f"{kernel.name}_adjoint", index, arrays, builder.block, kernel.file, kernel.source, kernel.first_line
    )


def sweep(builder: Builder, nodes: list[Any], adj: Adjoints) -> None:
    """Reverse sweep over nodes that are already in the current block (for `grad` inside a kernel)."""
    for node in nodes:
        if not isinstance(node, (Value, If, Call, Load)):
            raise NoAdjoint("it contains a loop or a store; unroll the loop with static(...)", getattr(node, "line", 0))
    _Reverse(builder, {}, None).sweep(nodes, _Identity(), adj)


def adjoint_function(function: Function) -> Function:
    """The adjoint of an out-of-line function: (params, cotangents of results) -> cotangents of params."""
    if function.adjoint is None:
        builder = Builder()
        transform = _Reverse(builder, {}, None)
        params = [Value("param", (), p.kind) for p in function.params]
        names = dict(zip(function.params, params, strict=True))
        seeds = [Value("param", (), r.kind) for r in function.results]
        transform.replay(function.body.nodes, names)
        adj: Adjoints = {}
        for result, seed in zip(function.results, seeds, strict=True):
            transform.add(adj, result, seed)
        transform.sweep(function.body.nodes, names, adj)
        zero = builder.const(0.0, "f")
        out = [adj.get(p, zero) for p in function.params]
        derived = Function(f"{function.name}_adjoint", [*params, *seeds], builder.block, out)
        function.adjoint = optimise.clean_function(derived)
    return function.adjoint


def active_values(kernel: KernelIR, arrays: set[ArrayRef]) -> set[Value]:
    """Float values that depend on an array with a cotangent; others need no adjoint."""
    active: set[Value] = set()
    held = set(arrays)
    changed = True

    def mark(values: Iterable[Value]) -> None:
        nonlocal changed
        for v in values:
            if v.kind == "f" and v not in active:
                active.add(v)
                changed = True

    def visit(block: Block) -> None:
        nonlocal changed
        for node in block.nodes:
            if isinstance(node, Value):
                if any(a in active for a in node.args):
                    mark([node])
            elif isinstance(node, Load):
                if node.array in held:
                    mark(node.results)
            elif isinstance(node, Store):
                if node.array not in held and any(v in active for v in node.values):
                    held.add(node.array)
                    changed = True
            elif isinstance(node, Call):
                if any(a in active for a in node.args):
                    mark(node.results)
            elif isinstance(node, For):
                visit(node.body)
                for phi, init, following, out in node.carried:
                    if init in active or following in active:
                        mark([phi, out])
            elif isinstance(node, If):
                visit(node.then)
                visit(node.orelse)
                for out, a, b in node.results:
                    if a in active or b in active:
                        mark([out])

    while changed:
        changed = False
        visit(kernel.body)
    return active


def overwriting(body: Block) -> set[Store]:
    """Stores that overwrite an earlier store to the same element: the earlier one then has no cotangent."""
    found: set[Store] = set()

    def visit(block: Block, before: list[Store]) -> list[Store]:
        for node in block.nodes:
            if isinstance(node, Store) and node.array.role != "local":
                if node.mode == "set" and any(s.array is node.array and s.index is node.index for s in before):
                    found.add(node)
                before = [*before, node]
            elif isinstance(node, If):
                before = list(dict.fromkeys([*visit(node.then, before), *visit(node.orelse, before)]))
            elif isinstance(node, For):
                before = visit(node.body, before)
                inside = {node.var, *(c[0] for c in node.carried), *(r for n in walk(node.body) for r in results(n))}
                again = [
                    n for n in walk(node.body) if isinstance(n, Store) and n.mode == "set" and n.index not in inside
                ]
                found.update(n for n in again if n.array.role != "local")
        return before

    visit(body, [])
    return found


class _Identity(dict[Value, Value]):
    """Name map of a sweep over nodes that need no replay: the identity."""

    def __missing__(self, key: Value) -> Value:
        return key


class _Reverse:
    """State of one transformation: the builder it writes to, and the arrays with cotangents."""

    def __init__(self, builder: Builder, cotangents: dict[ArrayRef, ArrayRef], active: set[Value] | None) -> None:
        self.b, self.cotangents, self.active = builder, cotangents, active
        self.histories: dict[tuple[int, int], ArrayRef] = {}
        self.counts: dict[int, Value] = {}
        self.local_names: dict[ArrayRef, ArrayRef] = {}
        self.overwriting: set[Store] = set()

    # -- replay -------------------------------------------------------------------------------------------------

    def get(self, names: dict[Value, Value], v: Value) -> Value:
        return v if v.op == "const" else names[v]

    def replay(self, nodes: list[Any], names: dict[Value, Value]) -> None:
        """Copy forward nodes into the current block, with stores only into local arrays declared among them."""
        own = {n.array for n in nodes if isinstance(n, Local)}
        self._replay(nodes, names, own)

    def _replay(self, nodes: list[Any], names: dict[Value, Value], own: set[ArrayRef]) -> None:
        b = self.b
        for node in nodes:
            b.line = getattr(node, "line", 0)
            if isinstance(node, Value):
                made = b.op(node.op, *(self.get(names, a) for a in node.args), kind=node.kind, attr=node.attr)
                made.frozen = True
                names[node] = made
            elif isinstance(node, Load):
                fresh = [b.result(r.kind) for r in node.results]
                b.append(Load(self.local(node.array), self.get(names, node.index), fresh, node.line))
                names.update(zip(node.results, fresh, strict=True))
            elif isinstance(node, Store):
                if node.array in own:
                    values = [self.get(names, v) for v in node.values]
                    b.append(Store(self.local(node.array), self.get(names, node.index), values, node.mode, node.line))
            elif isinstance(node, Local):
                self.declare(node, names)
            elif isinstance(node, Call):
                fresh = [b.result(r.kind) for r in node.results]
                b.append(Call(node.function, [self.get(names, a) for a in node.args], fresh, node.line))
                names.update(zip(node.results, fresh, strict=True))
            elif isinstance(node, If):
                self.replay_if(node, names, own)
            else:
                self.replay_for(node, names, own)

    def local(self, array: ArrayRef) -> ArrayRef:
        """The copy of a local array in the current replay; any other array itself."""
        return self.local_names.get(array, array)

    def declare(self, node: Local, names: dict[Value, Value]) -> None:
        copy = ArrayRef(
            node.array.name,
            node.array.kinds,
            node.array.padded,
            role="local",
            written=set(node.array.written),
            read=True,
        )
        self.local_names[node.array] = copy
        self.b.append(Local(copy, self.get(names, node.size), node.line))
        if "f" in copy.kinds:
            cotangent = ArrayRef(
                f"adj_{copy.name}", copy.kinds, copy.padded, role="local", origin=copy, written={"add"}, read=True
            )
            self.cotangents[node.array] = cotangent
            self.b.append(Local(cotangent, self.get(names, node.size), node.line))

    def replay_if(self, node: If, names: dict[Value, Value], own: set[ArrayRef]) -> None:
        b = self.b
        sides = []
        blocks = []
        for block, which in ((node.then, 1), (node.orelse, 2)):
            blocks.append(b.push())
            inner = dict(names)
            self._replay(block.nodes, inner, own | {n.array for n in block.nodes if isinstance(n, Local)})
            sides.append([self.get(inner, r[which]) for r in node.results])
            b.pop()
        fresh = [b.result(r[0].kind) for r in node.results]
        b.append(If(self.get(names, node.cond), blocks[0], blocks[1], list(zip(fresh, *sides, strict=True)), node.line))
        names.update({r[0]: f for r, f in zip(node.results, fresh, strict=True)})

    def replay_for(self, node: For, names: dict[Value, Value], own: set[ArrayRef]) -> None:
        """Copy a loop, store the history of its carried values, and count iterations if it can break."""
        b = self.b
        start, stop = self.get(names, node.start), self.get(names, node.stop)
        trips = b.op("max", b.op("sub", stop, start), b.const(0, "i"))
        for k, (phi, *_) in enumerate(node.carried):
            if k != node.alive:
                kept = ArrayRef(f"history{k}", phi.kind, 1, role="local", written={"set"}, read=True)
                self.histories[id(node), k] = kept
                b.append(Local(kept, trips, node.line))
        var = b.result("i")
        phis = [b.result(c[0].kind) for c in node.carried]
        inits = [self.get(names, c[1]) for c in node.carried]
        inner = {**names, node.var: var, **{c[0]: p for c, p in zip(node.carried, phis, strict=True)}}
        body = b.push()
        turn = b.op("sub", b.op("sub", stop, b.const(1, "i")), var) if node.down else b.op("sub", var, start)
        for k, phi in enumerate(phis):
            if k != node.alive:
                b.append(Store(self.histories[id(node), k], turn, [phi], "set", node.line))
        self._replay(node.body.nodes, inner, own | {n.array for n in node.body.nodes if isinstance(n, Local)})
        nexts = [self.get(inner, c[2]) for c in node.carried]
        outs = [b.result(p.kind) for p in phis]
        carried = list(zip(phis, inits, nexts, outs, strict=True))
        if node.alive is not None:
            count, counted = b.result("i"), b.result("i")
            carried.append((count, b.const(0, "i"), b.op("add", count, b.const(1, "i")), counted))
            self.counts[id(node)] = counted
        else:
            self.counts[id(node)] = trips
        b.pop()
        b.append(For(var, start, stop, carried, body, node.down, node.alive, node.line))
        names.update({c[3]: o for c, o in zip(node.carried, outs, strict=True)})

    # -- sweep --------------------------------------------------------------------------------------------------

    def add(self, adj: Adjoints, v: Value, contribution: Value) -> None:
        """Accumulate onto the cotangent of a forward value."""
        if v.kind != "f" or v.op == "const" or (self.active is not None and v not in self.active):
            return
        if contribution.op == "const" and contribution.attr == 0.0:  # of a hand-written adjoint
            return
        adj[v] = self.b.op("add", adj[v], contribution) if v in adj else contribution

    def sweep(self, nodes: list[Any], names: dict[Value, Value], adj: Adjoints) -> None:
        """Walk nodes backwards; afterwards `adj` holds the cotangents of values defined outside them."""
        for node in reversed(nodes):
            self.b.line = getattr(node, "line", 0)
            if isinstance(node, Value):
                self.sweep_value(node, names, adj)
            elif isinstance(node, Load):
                self.sweep_load(node, names, adj)
            elif isinstance(node, Store):
                self.sweep_store(node, names, adj)
            elif isinstance(node, If):
                self.sweep_if(node, names, adj)
            elif isinstance(node, For):
                self.sweep_for(node, names, adj)
            elif isinstance(node, Call):
                self.sweep_call(node, names, adj)

    def sweep_value(self, node: Value, names: dict[Value, Value], adj: Adjoints) -> None:
        g = adj.pop(node, None)
        if g is None:
            return
        args = tuple(self.get(names, a) for a in node.args)
        if node.op in ("mul", "fma", "fms") and node.args[0] is node.args[1]:
            self.sweep_square(node, args, g, adj)
            return
        for arg, rule in zip(node.args, PARTIALS[node.op], strict=True):
            wanted = arg.kind == "f" and arg.op != "const" and (self.active is None or arg in self.active)
            if rule is not None and wanted:
                self.add(adj, arg, rule(self.b, args, names[node], g))

    def sweep_square(self, node: Value, args: tuple[Value, ...], g: Value, adj: Adjoints) -> None:
        """x*x (+ c): twice the cotangent once, instead of two equal products."""
        self.add(adj, node.args[0], self.b.op("mul", self.b.op("add", g, g), args[0]))
        if node.op != "mul":
            self.add(adj, node.args[2], g if node.op == "fma" else self.b.op("neg", g))

    def sweep_load(self, node: Load, names: dict[Value, Value], adj: Adjoints) -> None:
        given = [adj.pop(r, None) for r in node.results]
        cotangent = self.cotangents.get(node.array)
        if cotangent is None or all(g is None for g in given):
            return
        zero = self.b.const(0.0, "f")
        cotangent.written.add("add")
        self.b.append(Store(cotangent, self.get(names, node.index), [g or zero for g in given], "add", node.line))

    def sweep_store(self, node: Store, names: dict[Value, Value], adj: Adjoints) -> None:
        cotangent = self.cotangents.get(node.array)
        if cotangent is None:
            return
        index = self.get(names, node.index)
        cotangent.read = True
        loaded = [self.b.result(k) for k in cotangent.kinds]
        self.b.append(Load(cotangent, index, loaded, node.line))
        if node.mode == "set" and (cotangent.role == "local" or node in self.overwriting):
            zeros = [self.b.const(0.0, "f")] * len(loaded)
            self.b.append(Store(cotangent, index, zeros, "set", node.line))
        for v, g in zip(node.values, loaded, strict=True):
            self.add(adj, v, g)

    def sweep_call(self, node: Call, names: dict[Value, Value], adj: Adjoints) -> None:
        given = [adj.pop(r, None) for r in node.results]
        if all(g is None for g in given):
            return
        zero = self.b.const(0.0, "f")
        function = adjoint_function(node.function)
        out = [self.b.result("f") for _ in node.args]
        seeds = [g or zero for g in given]
        self.b.append(Call(function, [*(self.get(names, a) for a in node.args), *seeds], out, node.line))
        for arg, g in zip(node.args, out, strict=True):
            self.add(adj, arg, g)

    def sweep_if(self, node: If, names: dict[Value, Value], adj: Adjoints) -> None:
        b = self.b
        seeds = [adj.pop(r[0], None) for r in node.results]
        sides: list[tuple[Block, Adjoints]] = []
        for block, which in ((node.then, 1), (node.orelse, 2)):
            made = b.push()
            inner = type(names)(names)
            self.replay(block.nodes, inner)
            local: Adjoints = {}
            for r, g in zip(node.results, seeds, strict=True):
                if g is not None:
                    self.add(local, r[which], g)
            self.sweep(block.nodes, inner, local)
            sides.append((made, local))
            b.pop()
        (then, adj_then), (orelse, adj_else) = sides
        zero = b.const(0.0, "f")
        touched = list(dict.fromkeys([*adj_then, *adj_else]))
        results = [(b.result("f"), adj_then.get(v, zero), adj_else.get(v, zero)) for v in touched]
        b.append(If(self.get(names, node.cond), then, orelse, results, node.line))
        for v, (result, _, _) in zip(touched, results, strict=True):
            self.add(adj, v, result)

    def sweep_for(self, node: For, names: dict[Value, Value], adj: Adjoints) -> None:
        """The loop backwards: history restores its carried values; cotangents of outer values are carried sums."""
        b = self.b
        start, stop, count = self.get(names, node.start), self.get(names, node.stop), self.counts[id(node)]
        active = [
            k for k, c in enumerate(node.carried) if c[0].kind == "f" and (self.active is None or c[3] in self.active)
        ]
        # Carry back only values that a cotangent reaches: not the minimum of a search that uses only its index.
        kept = [k for k in active if node.carried[k][3] in adj]
        zero = b.const(0.0, "f")
        while True:
            turn = b.result("i")
            body = b.push()
            one = b.const(1, "i")
            var = b.op("sub", b.op("sub", stop, one), turn) if node.down else b.op("add", start, turn)
            inner = {**names, node.var: var}
            for k, (phi, *_) in enumerate(node.carried):
                if k == node.alive:
                    inner[phi] = b.const(True, "b")
                    continue
                inner[phi] = b.result(phi.kind)
                b.append(Load(self.histories[id(node), k], turn, [inner[phi]], node.line))
            self.replay(node.body.nodes, inner)
            phis = {k: b.result("f") for k in kept}
            local: Adjoints = {}
            for k in kept:
                self.add(local, node.carried[k][2], phis[k])
            self.sweep(node.body.nodes, inner, local)
            more = [k for k in active if k not in kept and node.carried[k][0] in local]
            if not more:
                break
            b.pop()
            kept = sorted(kept + more)
        seeds = {k: adj.pop(node.carried[k][3], zero) for k in kept}
        carried = []
        results: list[tuple[Value, Value]] = []  # cotangents of values from outside the loop
        for k in kept:
            out = b.result("f")
            carried.append((phis[k], seeds[k], local.pop(node.carried[k][0], zero), out))
            results.append((node.carried[k][1], out))
        for v, g in local.items():
            total, out = b.result("f"), b.result("f")
            carried.append((total, zero, b.op("add", total, g), out))
            results.append((v, out))
        b.pop()
        b.append(For(turn, b.const(0, "i"), count, carried, body, down=True, line=node.line))
        for v, g in results:
            self.add(adj, v, g)
