"""Optimises the intermediate form: shares loads, fuses multiply-adds, removes dead code.

`clean` runs on a translated kernel *before* differentiation, so that forward, replay and adjoint take the same
decisions to the last bit, and again on derived kernels, where operations of the forward program are frozen and keep
their form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from kinema.lang.ir import ssa
from kinema.lang.ir.ssa import ArrayRef, Block, Builder, Call, For, Function, If, KernelIR, Load, Local, Store, Value

LARGE = 400  # nodes: larger functions stay out of line where they are called again


def clean(kernel: KernelIR, inline: bool = False, largest: float = LARGE) -> KernelIR:
    """Remove copies and dead code, share loads, fuse multiply-adds.

    Args:
        kernel: The kernel; not changed.
        inline: Inline kept calls of functions with at most `largest` nodes.
        largest: See `inline`.
    """
    written = {n.array for n in ssa.walk(kernel.body) if isinstance(n, Store)}
    body = _Copier(written, largest if inline else -1).block(kernel)
    kernel = KernelIR(kernel.name, kernel.index, kernel.arrays, body, kernel.file, kernel.source, kernel.first_line)
    drop_dead(kernel.body)
    fuse(kernel.body)
    drop_dead(kernel.body)
    gather_together(kernel.body, kernel.index, written)
    return kernel


def gather_together(block: Block, own: Value | None, written: set[ArrayRef]) -> None:
    """Move loads from other elements with the same index next to each other: they share the address computation."""
    first: dict[Value, list[Any]] = {}  # index -> all its loads, at the position of the first
    order: list[Any] = []
    for node in block.nodes:
        for inner in ssa.blocks_of(node):
            gather_together(inner, own, written)
        if (
            isinstance(node, Load)
            and node.index is not own
            and node.array not in written
            and node.array.role != "local"
        ):
            if node.index in first:
                first[node.index].append(node)
                continue
            first[node.index] = [node]
            order.append(first[node.index])
        else:
            order.append([node])
    block.nodes = [node for group in order for node in group]


def size(body: Block) -> int:
    """Number of nodes, nested ones included."""
    return sum(1 for _ in ssa.walk(body))


def clean_function(function: Function) -> Function:
    """Clean a kept function once and freeze its operations, so that it rounds equally at every call."""
    copier = _Copier(set(), LARGE)
    names = {p: p for p in function.params}
    copier.nodes(function.body.nodes, names)
    results = [copier.get(names, r) for r in function.results]
    body = copier.b.block
    drop_dead(body, results)
    fuse(body, results)
    for node in ssa.walk(body):
        if isinstance(node, Value):
            node.frozen = True
    return Function(function.name, function.params, body, results, function.adjoint)


class _Copier:
    """Copies a program through a fresh builder: folds constants, shares expressions and loads, removes 'copy'."""

    def __init__(self, written: set[ArrayRef], largest: float) -> None:
        self.b = Builder()
        self.written, self.largest = written, largest

    def block(self, kernel: KernelIR) -> Block:
        names = {} if kernel.index is None else {kernel.index: kernel.index}
        self.nodes(kernel.body.nodes, names)
        return self.b.block

    def get(self, names: dict[Value, Value], v: Value) -> Value:
        return v if v.op == "const" else names[v]

    def nodes(self, nodes: list[Any], names: dict[Value, Value]) -> None:
        b = self.b
        for node in nodes:
            b.line = getattr(node, "line", 0)
            if isinstance(node, Value):
                if node.op == "copy":
                    names[node] = self.get(names, node.args[0])
                    continue
                made = b.op(node.op, *(self.get(names, a) for a in node.args), kind=node.kind, attr=node.attr)
                made.frozen = made.frozen or node.frozen
                names[node] = made
            elif isinstance(node, Load):
                self.load(node, names)
            elif isinstance(node, Store):
                values = [self.get(names, v) for v in node.values]
                b.append(Store(node.array, self.get(names, node.index), values, node.mode, node.line))
            elif isinstance(node, Local):
                b.append(Local(node.array, self.get(names, node.size), node.line))
            elif isinstance(node, Call) and size(node.function.body) <= self.largest:
                inner = dict(zip(node.function.params, (self.get(names, a) for a in node.args), strict=True))
                self.nodes(node.function.body.nodes, inner)
                names.update({r: self.get(inner, f) for r, f in zip(node.results, node.function.results, strict=True)})
            elif isinstance(node, Call):
                fresh = [b.result(r.kind) for r in node.results]
                b.append(Call(node.function, [self.get(names, a) for a in node.args], fresh, node.line))
                names.update(zip(node.results, fresh, strict=True))
            elif isinstance(node, If):
                self.branch(node, names)
            else:
                self.loop(node, names)

    def load(self, node: Load, names: dict[Value, Value]) -> None:
        b = self.b
        index = self.get(names, node.index)
        key = ("load", id(node.array), id(index))
        shared = None
        if node.array not in self.written:
            shared = next((scope[key] for scope in reversed(b.scopes) if key in scope), None)
        if shared is None:
            fresh = [b.result(r.kind) for r in node.results]
            shared = b.append(Load(node.array, index, fresh, node.line))
            b.scopes[-1][key] = shared
        names.update(zip(node.results, shared.results, strict=True))

    def branch(self, node: If, names: dict[Value, Value]) -> None:
        b = self.b
        cond = self.get(names, node.cond)
        if cond.op == "const":
            side, which = (node.then, 1) if cond.attr else (node.orelse, 2)
            self.nodes(side.nodes, names)
            names.update({r[0]: self.get(names, r[which]) for r in node.results})
            return
        blocks, sides = [], []
        for block, which in ((node.then, 1), (node.orelse, 2)):
            blocks.append(b.push())
            inner = dict(names)
            self.nodes(block.nodes, inner)
            sides.append([self.get(inner, r[which]) for r in node.results])
            b.pop()
        results = []
        for r, a, c in zip(node.results, *sides, strict=True):
            if a is c:
                names[r[0]] = a
            else:
                names[r[0]] = b.result(r[0].kind)
                results.append((names[r[0]], a, c))
        b.append(If(cond, blocks[0], blocks[1], results, node.line))

    def loop(self, node: For, names: dict[Value, Value]) -> None:
        b = self.b
        var = b.result("i")
        inner = {**names, node.var: var}
        constant = {k for k, c in enumerate(node.carried) if c[2] is c[0] and k != node.alive}
        for k, (phi, init, _, _) in enumerate(node.carried):
            inner[phi] = self.get(names, init) if k in constant else b.result(phi.kind)
        body = b.push()
        self.nodes(node.body.nodes, inner)
        carried: list[tuple[Value, Value, Value, Value]] = []
        alive = None
        for k, (phi, init, following, out) in enumerate(node.carried):
            if k in constant:
                names[out] = inner[phi]
                continue
            if k == node.alive:
                alive = len(carried)
            made = b.result(out.kind)
            carried.append((inner[phi], self.get(names, init), self.get(inner, following), made))
            names[out] = made
        b.pop()
        b.append(
            For(
                var, self.get(names, node.start), self.get(names, node.stop), carried, body, node.down, alive, node.line
            )
        )


def fuse(body: Block, extra: list[Value] | None = None) -> None:
    """Fuse a*b + c into one multiply-add where the product is used once, in the same block."""
    count: Counter[Value] = Counter(extra or [])
    for node in ssa.walk(body):
        count.update(ssa.uses(node))

    def visit(block: Block) -> None:
        here = {n for n in block.nodes if isinstance(n, Value)}
        gone: set[Value] = set()

        def product(v: Value) -> bool:
            return v.op == "mul" and v.kind == "f" and count[v] == 1 and v in here and not v.frozen

        for node in block.nodes:
            if isinstance(node, Value) and node.kind == "f" and not node.frozen and node.op in ("add", "sub"):
                left, right = node.args
                if node.op == "add" and product(right):
                    node.op, node.args = "fma", (*right.args, left)
                    gone.add(right)
                elif product(left):
                    node.op, node.args = ("fma" if node.op == "add" else "fms"), (*left.args, right)
                    gone.add(left)
                elif node.op == "sub" and product(right):
                    node.op, node.args = "fnma", (*right.args, left)
                    gone.add(right)
            for inner in ssa.blocks_of(node):
                visit(inner)
        block.nodes = [n for n in block.nodes if not (isinstance(n, Value) and n in gone)]

    visit(body)


def drop_dead(body: Block, results: list[Value] | None = None) -> None:
    """Remove nodes with unused results, and stores into local arrays that nobody reads."""
    live = _Liveness(body)
    for value in results or []:
        live.value(value)
    live.run()
    _sweep(body, live)


class _Liveness:
    """Marks live values and nodes, backwards from the stores into arguments."""

    def __init__(self, body: Block) -> None:
        self.values: set[Value] = set()
        self.nodes: set[int] = set()
        self.defined: dict[Value, Callable[[], None]] = {}
        self.stores: dict[ArrayRef, list[Callable[[], None]]] = {}
        self.arrays: set[ArrayRef] = set()
        self.work: list[Callable[[], None]] = []
        self.register(body, lambda: None)

    def register(self, block: Block, parent: Callable[[], None]) -> None:
        for node in block.nodes:
            mark = self.marker(node, parent)
            if isinstance(node, Store):
                if node.array.role == "local":
                    self.stores.setdefault(node.array, []).append(mark)
                else:
                    self.work.append(mark)
            elif isinstance(node, Local):
                self.stores.setdefault(node.array, []).append(mark)
            elif isinstance(node, (Value, Load, Call)):
                for r in ssa.results(node):
                    self.defined[r] = mark
            elif isinstance(node, If):
                self.register(node.then, mark)
                self.register(node.orelse, mark)
                for out, *sides in node.results:
                    self.defined[out] = self.all_of(mark, tuple(sides))
            elif isinstance(node, For):
                self.register(node.body, mark)
                self.defined[node.var] = mark
                for phi, init, following, out in node.carried:
                    both = self.all_of(mark, (phi, init, following))
                    self.defined[out] = both
                    self.defined[phi] = both

    def all_of(self, mark: Callable[[], None], values: tuple[Value, ...]) -> Callable[[], None]:
        def run() -> None:
            mark()
            for v in values:
                self.value(v)

        return run

    def marker(self, node: Any, parent: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            if id(node) in self.nodes:
                return
            self.nodes.add(id(node))
            parent()
            if isinstance(node, If):
                self.value(node.cond)
            elif isinstance(node, For):
                self.value(node.start)
                self.value(node.stop)
                if node.alive is not None:
                    self.value(node.carried[node.alive][3])
            else:
                for v in ssa.uses(node):
                    self.value(v)
                if isinstance(node, Load) and node.array.role == "local" and node.array not in self.arrays:
                    self.arrays.add(node.array)
                    self.work.extend(self.stores.get(node.array, []))

        return run

    def value(self, v: Value) -> None:
        if v.op != "const" and v not in self.values:
            self.values.add(v)
            if v in self.defined:
                self.work.append(self.defined[v])

    def run(self) -> None:
        while self.work:
            self.work.pop()()


def _sweep(block: Block, live: _Liveness) -> None:
    kept = []
    for node in block.nodes:
        if id(node) not in live.nodes:
            continue
        for inner in ssa.blocks_of(node):
            _sweep(inner, live)
        if isinstance(node, If):
            node.results = [r for r in node.results if r[0] in live.values]
        elif isinstance(node, For):
            alive = node.carried[node.alive] if node.alive is not None else None
            node.carried = [c for c in node.carried if c[3] in live.values or c[0] in live.values]
            node.alive = node.carried.index(alive) if alive is not None else None
        kept.append(node)
    block.nodes = kept
