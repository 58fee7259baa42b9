"""Emits a kernel as SIMD C++: uniform values as scalars, varying values as vectors, varying control flow as masks.

A kernel means its body run for e = 0, 1, 2, ... in order. Lanes never change a bit of the result: scattered writes of
a packet happen element by element, and sums use sixteen partial sums for every width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kinema.errors import KernelError
from kinema.lang.emit.gather_ahead import Ahead
from kinema.lang.emit.text import AOS, DENSE, LANES, PACKET, Site, identifier
from kinema.lang.ir import analysis, ssa
from kinema.lang.ir.analysis import COTANGENTS, ELEMENTS, WORLDS
from kinema.lang.ir.ssa import ArrayRef, Block, Call, For, Function, If, KernelIR, Load, Local, Store, Value


@dataclass
class Emitted:
    """C++ text of one kernel and the facts that its caller needs."""

    symbol: str
    text: str
    sites: list[Site] = field(default_factory=list)


def emit(
    kernel: KernelIR,
    symbol: str,
    *,
    layouts: dict[ArrayRef, str],
    lanes: str = ELEMENTS,
    width: int = 8,
    precision: int = 4,
    check: bool = False,
    first_site: int = 0,
    wide: bool = False,
) -> Emitted:
    """Emit one kernel.

    Args:
        kernel: The kernel, cleaned and with calls inlined.
        symbol: Name of the C function.
        layouts: Memory layout per array argument: 'aos', 'dense' (without padding, for arrays that are only set),
            'packet' or 'lanes'.
        lanes: What a lane is, see `analysis`.
        width: Number of lanes.
        precision: Bytes of a Float, 4 or 8.
        check: Emit index, order and finiteness checks.
        first_site: Index of the first check site.
        wide: Use twice the lanes where registers have 64 bytes; for kernels with `analysis.shares_its_elements`.
    """
    emitter = _Emitter(kernel, symbol, layouts, lanes, width, precision, check, first_site, wide)
    return emitter.run()


def _sines_and_cosines(nodes: list[Any]) -> dict[Value, tuple[Value, Value]]:
    """Pairs of sine and cosine of one angle, keyed by the first: together they cost little more than one."""
    found: dict[Value, dict[str, Value]] = {}
    for node in nodes:
        if isinstance(node, Value) and node.op in ("sin", "cos"):
            found.setdefault(node.args[0], {})[node.op] = node
    return {next(iter(both.values())): (both["sin"], both["cos"]) for both in found.values() if len(both) == 2}


class _Emitter(Ahead):
    """The whole kernel: function, control flow, calls."""

    def run(self) -> Emitted:
        if self.k.index is not None:
            self.refuse_crossing()
        if self.by_element:
            self.refuse_shared_writes()
            body = self.element_body()
        else:
            body = self.world_body()
        head = [
            f"namespace {self.symbol}_code {{",
            f"using namespace kn; using T = {self.t}; constexpr int W = {f'wide({self.w})' if self.wide else self.w};",
            "using F = Lanes<T, W>::F; using I = Lanes<T, W>::I; using M = Lanes<T, W>::M; using U = Lanes<T, 1>::I;",
            "",
            *(text for _, text in self.functions.values()),
            f"// {self.k.name}, lanes are {self.lanes}",
            f'extern "C" void {self.symbol}(const kn_call* call) {{',
        ]
        for at, array in enumerate(self.k.arrays):
            number = "T" if "f" in array.kinds else "int32_t"
            name = self.array_names[array]
            head.append(f"  auto* const {name} = static_cast<{number}*>(call->array[{at}]); (void){name};")
        if self.tracked:
            head.append("  ReadSet touched;")
        return Emitted(self.symbol, "\n".join([*head, *body, "}", "}", ""]), self.sites)

    def refuse_shared_writes(self) -> None:
        """Refuse kernels whose elements all set one memory cell: the result would be undefined."""
        for use in self.uses:
            if use.kind == "set" and use.index in ("const", "uniform"):
                at = use.node.line - self.k.first_line
                raise KernelError(
                    f"all elements write to the same element of {use.array.name!r}",
                    file=self.k.file,
                    line=use.node.line,
                    source=self.k.source[at] if 0 <= at < len(self.k.source) else None,
                    fix="accumulate with +=, index by the element, or use a kernel without Index",
                )

    def refuse_crossing(self) -> None:
        """Refuse reads of another element's write in the same call: they depend on the lanes and have no adjoint."""
        for use in self.uses:
            writes = [u for u in self.uses if u.array is use.array and u.kind != "load"]
            if use.kind == "load" and any((u.index, use.index) != ("own", "own") for u in writes):
                at = use.node.line - self.k.first_line
                raise KernelError(
                    f"an element reads from {use.array.name!r} what another element of the same call writes",
                    file=self.k.file,
                    line=use.node.line,
                    source=self.k.source[at] if 0 <= at < len(self.k.source) else None,
                    fix="split it into two kernels, or loop over the elements in a kernel without Index",
                )

    def element_body(self) -> list[str]:
        """Lanes are elements: emit a loop over packets; uniform values are computed once, before it."""
        written = {u.array for u in self.uses if u.kind != "load"}
        ahead: list[Any] = []
        ready: set[Value] = set()  # values defined before the loop
        for node in self.k.body.nodes:
            if self.hoistable(node, written) and all(v.op == "const" or v in ready for v in ssa.uses(node)):
                ahead.append(node)
                ready.update(ssa.results(node))
        rest = [n for n in self.k.body.nodes if not any(n is a for a in ahead)]
        if self.check:
            self.put("const int64_t e0 = call->begin; (void)e0;")
        self.block(ahead)
        before, self.lines = self.lines, []
        self.depth = 2
        assert self.k.index is not None
        self.names[self.k.index] = "e"
        if analysis.has_locals(self.k.body):
            self.put("ArenaScope scope(call->arena);")
        rest, gathers = self.gather_ahead(rest)
        self.block(rest, gathers)
        inner, self.lines = self.lines, []
        lines = [*before, *["  " + line for line in self.before_loop]]
        if self.sums_wait:
            lines.append("  Later<F> later(call->arena);")
        for (array, index), name in self.accumulators.items():
            lines.append(f"  alignas(64) T {name}[16 * {len(array.kinds)}] = {{}};  // {array.name}[{index}]")
        lines += [
            "  for (int64_t e0 = call->begin; e0 < call->end; e0 += W) {",
            "    const bool full = call->end - e0 >= W;",
            "    const M alive = full ? splat_mask<M>(true) : mask_first<M>(int(call->end - e0)); (void)alive;",
            "    const I e = splat<I>(U(e0)) + iota<I>(); (void)e;"
            if self.w > 1
            else "    const U e = U(e0); (void)e;",
            *["    " + h for h in [*self.hoisted, *self.in_loop]],
            *inner,
            *self.scatter_lines(),
            *(["    later.add();"] if self.sums_wait else []),
            *["    " + line for line in self.end_of_loop],
            "  }",
        ]
        for (array, index), name in self.accumulators.items():
            for c in range(len(array.kinds)):
                at = index * array.padded + c
                target = f"{self.in_range(array, index)}{self.array_names[array]}[{at}]"
                lines.append(f"  {target} += tree16({name} + {16 * c});")
        return lines

    def hoistable(self, node: Any, written: set[ArrayRef]) -> bool:
        if isinstance(node, Value):
            return node not in self.by_packet
        own = isinstance(node, Load) and node.array.role != "local" and node.array not in written
        return own and node.results[0] not in self.by_packet

    def world_body(self) -> list[str]:
        """Lanes are worlds or cotangents (or one world and no Index): emit a plain loop over elements, if any."""
        active = "W" if self.lanes == COTANGENTS else "call->active"
        self.put(f"const M alive = mask_first<M>({active}); (void)alive;")
        self.put(f"const bool full = {active} >= W; (void)full;")
        if self.k.index is None:
            self.put("const int64_t e0 = 0; (void)e0;")
            if analysis.has_locals(self.k.body):
                self.put("ArenaScope scope(call->arena);")
            self.block(self.k.body.nodes)
            return self.lines
        self.depth = 2
        self.names[self.k.index] = "e"
        if analysis.has_locals(self.k.body):
            self.put("ArenaScope scope(call->arena);")
        self.block(self.k.body.nodes)
        inner, lines = self.lines, []
        for (array, index), name in self.accumulators.items():
            lines.append(f"  alignas(64) T {name}[16 * {len(array.kinds)} * W] = {{}};  // {array.name}[{index}]")
        lines += [
            "  for (int64_t e0 = call->begin; e0 < call->end; ++e0) {",
            "    const U e = U(e0); (void)e;",
            *inner,
            "  }",
        ]
        for (array, index), name in self.accumulators.items():
            n = len(array.kinds)
            for c in range(n):
                area = f"{self.array_names[array]} + {(index * n + c)} * W + l"
                each = f"for (int l = 0; l < W; ++l) *({area}) += tree16({name} + {c} * 16 * W + l, W);"
                lines.append(f"  {self.in_range(array, index)}{each}")
        return lines

    def in_range(self, array: ArrayRef, index: int) -> str:
        """Guard of a sum: a checked build skips one beyond the end of its array, after reporting it."""
        return f"if ({index} < call->length[{self.k.arrays.index(array)}]) " if self.check else ""

    # -- nodes --------------------------------------------------------------------------------------------------

    def block(self, nodes: list[Any], before: dict[int, list[str]] | None = None) -> None:
        """Emit the nodes in order; `before` has lines to write before the node at a position (or at the end)."""
        before = before or {}
        pairs = _sines_and_cosines(nodes)
        for at, node in enumerate(nodes):
            for line in before.get(at, ()):
                self.put(line)
            self.comment(getattr(node, "line", 0))
            if isinstance(node, Value):
                if node in pairs:
                    self.sine_and_cosine(*pairs[node])
                elif node not in self.names:
                    self.value(node)
            elif isinstance(node, Load):
                self.load(node)
            elif isinstance(node, Store):
                self.store(node)
            elif isinstance(node, Local):
                self.local(node)
            elif isinstance(node, If):
                self.branch(node)
            elif isinstance(node, For):
                self.loop(node)
            else:
                self.call(node)
        for line in before.get(len(nodes), ()):
            self.put(line)

    # -- large functions ----------------------------------------------------------------------------------------

    def call(self, node: Call) -> None:
        """Call an out-of-line function: all lanes, mask first, results by reference."""
        wide = self.w > 1
        outs = []
        for r in node.results:
            name = self.fresh("r")
            self.names[r] = name
            outs.append(name)
            self.put(f"{self.type_of(r.kind, wide)} {name};")
        args = [self.mask or "splat_mask<M>(true)", *(self.ref(a, wide) for a in node.args), *outs]
        self.put(f"{self.function_name(node.function)}(call, {', '.join(args)});")

    def function_name(self, function: Function) -> str:
        """Name of the emitted function; emits its definition at first use."""
        if function not in self.functions:
            name = f"{self.symbol}_{identifier(function.name)}{len(self.functions)}"
            text = self.function_text(function, name)
            self.functions[function] = (name, text)  # after its callees
        return self.functions[function][0]

    def function_text(self, function: Function, name: str) -> str:
        wide = self.w > 1
        body = KernelIR(function.name, None, [], function.body, self.k.file, [], 0)
        inner = _Emitter(body, name, {}, self.lanes, self.w, 4 if self.t == "float" else 8, False, 0)
        inner.varying = analysis.varying_values(body, self.lanes, set(), varying_params=tuple(function.params))
        inner.functions, inner.mask = self.functions, "mask"
        params = []
        for p in function.params:
            inner.names[p] = inner.fresh("p")
            params.append(f"{self.type_of(p.kind, wide)} {inner.names[p]}")
        outs = [f"{self.type_of(r.kind, wide)}& result{k}" for k, r in enumerate(function.results)]
        if analysis.has_locals(function.body):
            inner.put("ArenaScope scope(call->arena);")
        inner.block(function.body.nodes)
        for k, r in enumerate(function.results):
            inner.put(f"result{k} = {inner.ref(r, wide)};")
        head = (
            f"static __attribute__((noinline)) void {name}(const kn_call* call, M mask, {', '.join(params + outs)}) {{"
        )
        return "\n".join([head, *inner.lines, "}", ""])

    # -- control flow -------------------------------------------------------------------------------------------

    def nested(self, block: Block, mask: str | None) -> None:
        outer, self.mask = self.mask, mask
        self.offsets.append({})
        self.kept.append({})
        self.depth += 1
        if analysis.has_locals(block):
            self.put(f"ArenaScope {self.fresh('scope')}(call->arena);")
        self.block(block.nodes)
        self.depth -= 1
        self.offsets.pop()
        self.kept.pop()
        self.mask = outer

    def branch(self, node: If) -> None:
        outs = []
        for result, *_ in node.results:
            name = self.fresh("r")
            self.names[result] = name
            outs.append(name)
        if not self.vector(node.cond):
            for name, (result, *_) in zip(outs, node.results, strict=True):
                self.put(f"{self.type_of(result.kind, self.vector(result))} {name};")
            self.put(f"if ({self.ref(node.cond)}) {{")
            self.nested(node.then, self.mask)
            self.assign(outs, node.results, 1)
            self.put("} else {")
            self.nested(node.orelse, self.mask)
            self.assign(outs, node.results, 2)
            self.put("}")
            return
        yes, no = self.fresh("m"), self.fresh("m")
        cond = self.ref(node.cond)
        self.put(f"const M {yes} = {cond if self.mask is None else f'mand({self.mask}, {cond})'};")
        if node.orelse.nodes:
            self.put(f"const M {no} = {f'mnot({cond})' if self.mask is None else f'mand({self.mask}, mnot({cond}))'};")
        for name, (result, _, b) in zip(outs, node.results, strict=True):
            kind = self.type_of(result.kind, True)
            start = f"splat{'_mask<M>(false)' if result.kind == 'b' else f'<{kind}>(0)'}"
            self.put(f"{kind} {name} = {self.ref(b, True) if not node.orelse.nodes else start};")
        for block, mask, which in ((node.then, yes, 1), (node.orelse, no, 2)):
            if which == 2 and not node.orelse.nodes:
                continue
            skip = block.nodes or which == 2
            self.put(f"if (any({mask})) {{" if skip else "{")
            self.nested(block, mask)
            self.depth += 1
            for name, r in zip(outs, node.results, strict=True):
                self.put(f"{name} = sel({mask}, {self.ref(r[which], True)}, {name});")
            self.depth -= 1
            self.put("}")

    def assign(self, outs: list[str], results: list[tuple[Value, Value, Value]], which: int) -> None:
        self.depth += 1
        for name, r in zip(outs, results, strict=True):
            self.put(f"{name} = {self.ref(r[which], self.vector(r[0]))};")
        self.depth -= 1

    def loop(self, node: For) -> None:
        """Emit a loop; masks finished lanes if the bounds or a break differ between lanes."""
        alive = node.carried[node.alive] if node.alive is not None else None
        wide_var = self.vector(node.var)
        wide_alive = alive is not None and self.vector(alive[0])
        names = []
        for phi, init, _, _ in node.carried:
            name = self.fresh("c")
            self.names[phi] = name
            names.append(name)
            self.put(f"{self.type_of(phi.kind, self.vector(phi))} {name} = {self.ref(init, self.vector(phi))};")
        var = self.fresh("i")
        self.names[node.var] = var
        start, stop = self.ref(node.start, wide_var), self.ref(node.stop, wide_var)
        one = "splat<I>(1)" if wide_var else "1"
        first, step = (f"{stop} - {one}", f"{var} = {var} - {one}") if node.down else (start, f"{var} = {var} + {one}")
        test = f"{var} >= {start}" if node.down else f"{var} < {stop}"
        mask = self.mask
        self.loops += 1
        if wide_var or wide_alive:
            self.put(f"for ({'I' if wide_var else 'U'} {var} = {first};{';' if wide_var else f' {test};'} {step}) {{")
            mask = self.fresh("m")
            parts = [
                p
                for p in (self.mask, test if wide_var else None, self.names[alive[0]] if wide_alive and alive else None)
                if p
            ]
            joined = parts[0]
            for p in parts[1:]:
                joined = f"mand({joined}, {p})"
            self.put(f"  const M {mask} = {joined};")
            self.put(f"  if (!any({mask})) break;")
        else:
            self.put(f"for (U {var} = {first}; {test}; {step}) {{")
        self.nested(node.body, mask)
        self.depth += 1
        nexts = []
        for (phi, _, following, _), name in zip(node.carried, names, strict=True):
            text = self.ref(following, self.vector(phi))
            if (wide_var or wide_alive) and self.vector(phi):
                text = f"sel({mask}, {text}, {name})"
            nexts.append(self.fresh("n"))
            self.put(f"const {self.type_of(phi.kind, self.vector(phi))} {nexts[-1]} = {text};")
        for name, text in zip(names, nexts, strict=True):
            self.put(f"{name} = {text};")
        if alive is not None and not wide_alive:
            self.put(f"if (!{self.names[alive[0]]}) break;")
        self.depth -= 1
        self.put("}")
        self.loops -= 1
        for (_, _, _, out), name in zip(node.carried, names, strict=True):
            self.names[out] = name


__all__ = ["AOS", "COTANGENTS", "DENSE", "ELEMENTS", "LANES", "PACKET", "WORLDS", "Emitted", "Site", "emit"]
