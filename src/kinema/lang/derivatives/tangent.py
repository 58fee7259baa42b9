"""Forward mode: a kernel that computes its results and their directional derivatives side by side."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kinema.lang.derivatives.partials import PARTIALS
from kinema.lang.ir.ssa import ArrayRef, Builder, Call, For, Function, If, KernelIR, Load, Local, Store, Value


def tangent(kernel: KernelIR, wanted: Callable[[ArrayRef], bool]) -> KernelIR:
    """The kernel with tangents: its arrays, then a tangent array per Float array that is written or `wanted`."""
    tangents: dict[ArrayRef, ArrayRef] = {}
    for array in kernel.arrays:
        if "f" in array.kinds and (array.written or wanted(array)):
            tangents[array] = ArrayRef(
                f"tan_{array.name}",
                array.kinds,
                array.padded,
                is_value=array.is_value,
                origin=array,
                written=set(array.written),
                read=array.read,
            )
    builder = Builder()
    names: dict[Value, Value] = {} if kernel.index is None else {kernel.index: kernel.index}
    _Forward(builder, tangents).nodes(kernel.body.nodes, names, {})
    arrays = [*kernel.arrays, *(t for t in tangents.values() if t.role != "local")]
    return KernelIR(
        f"{kernel.name}_tangent", kernel.index, arrays, builder.block, kernel.file, kernel.source, kernel.first_line
    )


class _Forward:
    def __init__(self, builder: Builder, tangents: dict[ArrayRef, ArrayRef]) -> None:
        self.b, self.tangents = builder, tangents
        self.locals: dict[ArrayRef, ArrayRef] = {}

    def get(self, names: dict[Value, Value], v: Value) -> Value:
        return v if v.op == "const" else names[v]

    def dot(self, dots: dict[Value, Value], v: Value) -> Value:
        return dots.get(v) or self.b.const(0.0, "f")

    def nodes(self, nodes: list[Any], names: dict[Value, Value], dots: dict[Value, Value]) -> None:
        """Copy nodes with their tangents; `dots` maps forward values to tangents (absent: zero)."""
        for node in nodes:
            self.b.line = getattr(node, "line", 0)
            handler = getattr(self, f"_{type(node).__name__.lower()}")
            handler(node, names, dots)

    def _value(self, node: Value, names: dict[Value, Value], dots: dict[Value, Value]) -> None:
        b = self.b
        args = tuple(self.get(names, a) for a in node.args)
        out = b.op(node.op, *args, kind=node.kind, attr=node.attr)
        out.frozen = True
        names[node] = out
        if node.kind != "f":
            return
        rules = zip(node.args, PARTIALS.get(node.op, ()), strict=False)
        parts = [rule(b, args, out, dots[arg]) for arg, rule in rules if rule is not None and arg in dots]
        if len(parts) > 1 and parts[0] is parts[1]:  # of a square
            parts[:2] = [b.op("mul", parts[0], b.const(2.0, "f"))]
        if parts:
            parts.sort(key=lambda part: part.op == "mul")  # products last: each becomes a multiply-add
            dots[node] = functools.reduce(lambda a, c: b.op("add", a, c), parts)

    def _load(self, node: Load, names: dict[Value, Value], dots: dict[Value, Value]) -> None:
        index = self.get(names, node.index)
        fresh = [self.b.result(r.kind) for r in node.results]
        self.b.append(Load(self.locals.get(node.array, node.array), index, fresh, node.line))
        names.update(zip(node.results, fresh, strict=True))
        if node.array in self.tangents:
            rates = [self.b.result(r.kind) for r in node.results]
            self.b.append(Load(self.tangents[node.array], index, rates, node.line))
            dots.update({r: d for r, d in zip(node.results, rates, strict=True) if r.kind == "f"})

    def _store(self, node: Store, names: dict[Value, Value], dots: dict[Value, Value]) -> None:
        index = self.get(names, node.index)
        values = [self.get(names, v) for v in node.values]
        self.b.append(Store(self.locals.get(node.array, node.array), index, values, node.mode, node.line))
        if node.array in self.tangents:
            rates = [self.dot(dots, v) for v in node.values]
            self.b.append(Store(self.tangents[node.array], index, rates, node.mode, node.line))

    def _local(self, node: Local, names: dict[Value, Value], dots: dict[Value, Value]) -> None:
        a = node.array
        self.locals[a] = ArrayRef(a.name, a.kinds, a.padded, role="local", written=set(a.written), read=a.read)
        self.b.append(Local(self.locals[a], self.get(names, node.size), node.line))
        if "f" in a.kinds:
            self.tangents[a] = ArrayRef(
                f"tan_{a.name}", a.kinds, a.padded, role="local", written=set(a.written), read=a.read
            )
            self.b.append(Local(self.tangents[a], self.get(names, node.size), node.line))

    def _call(self, node: Call, names: dict[Value, Value], dots: dict[Value, Value]) -> None:
        """Derive the tangents of a kept call from its ordinary body, which forward mode always supports."""
        args = [self.get(names, a) for a in node.args]
        inner = dict(zip(node.function.params, args, strict=True))
        moving = {p: dots[a] for p, a in zip(node.function.params, node.args, strict=True) if a in dots}
        self.nodes(node.function.body.nodes, inner, moving)
        for r, f in zip(node.results, node.function.results, strict=True):
            names[r] = self.get(inner, f)
            if f in moving:
                dots[r] = moving[f]

    def _if(self, node: If, names: dict[Value, Value], dots: dict[Value, Value]) -> None:
        b = self.b
        blocks, sides = [], []
        for block, which in ((node.then, 1), (node.orelse, 2)):
            blocks.append(b.push())
            inner, moving = dict(names), dict(dots)
            self.nodes(block.nodes, inner, moving)
            sides.append([(self.get(inner, r[which]), self.dot(moving, r[which])) for r in node.results])
            b.pop()
        results = []
        for r, (a, da), (c, dc) in zip(node.results, *sides, strict=True):
            names[r[0]] = b.result(r[0].kind)
            results.append((names[r[0]], a, c))
            if r[0].kind == "f":
                dots[r[0]] = b.result("f")
                results.append((dots[r[0]], da, dc))
        b.append(If(self.get(names, node.cond), blocks[0], blocks[1], results, node.line))

    def _for(self, node: For, names: dict[Value, Value], dots: dict[Value, Value]) -> None:
        b = self.b
        var = b.result("i")
        inner, moving = {**names, node.var: var}, dict(dots)
        for phi, *_ in node.carried:
            inner[phi] = b.result(phi.kind)
            if phi.kind == "f":
                moving[phi] = b.result("f")
        body = b.push()
        self.nodes(node.body.nodes, inner, moving)
        carried: list[tuple[Value, Value, Value, Value]] = []
        rates: list[tuple[Value, Value, Value, Value]] = []
        for phi, init, following, out in node.carried:
            made = b.result(out.kind)
            carried.append((inner[phi], self.get(names, init), self.get(inner, following), made))
            names[out] = made
            if phi.kind == "f":
                rate = b.result("f")
                rates.append((moving[phi], self.dot(dots, init), self.dot(moving, following), rate))
                dots[out] = rate
        b.pop()
        b.append(
            For(
                var,
                self.get(names, node.start),
                self.get(names, node.stop),
                carried + rates,
                body,
                node.down,
                node.alive,
                node.line,
            )
        )


def directional_derivative(function: Function, moving: int) -> Function:
    """(params, tangents of the first `moving` params) -> tangents of the results; the other tangents are zero."""
    builder = Builder()
    params = [Value("param", (), p.kind) for p in function.params]
    rates = [Value("param", (), p.kind) for p in function.params[:moving]]
    names = dict(zip(function.params, params, strict=True))
    dots = {p: r for p, r in zip(function.params, rates, strict=False) if p.kind == "f"}
    forward = _Forward(builder, {})
    forward.nodes(function.body.nodes, names, dots)
    out = [forward.dot(dots, r) for r in function.results]
    return Function(f"{function.name}_tangent", params + rates, builder.block, out)
