"""Emits a kernel as SIMD C++: uniform values as scalars, varying values as vectors, varying control flow as masks.

The meaning of a kernel is its body run for e = 0, 1, 2, ... in order. Lanes never change a bit of that: scattered
writes of a packet happen element by element, sums use sixteen partial sums whatever the width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kinema.errors import KernelError
from kinema.lang import analysis, ir
from kinema.lang.analysis import ELEMENTS, WORLDS
from kinema.lang.ir import ArrayRef, Block, Call, For, Function, If, KernelIR, Load, Local, Store, Value

AOS, PACKET, LANES = "aos", "packet", "lanes"

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_CALLS = {op: f"{op}_" for op in ("sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan2", "exp", "log", "pow", "tanh", "sigmoid", "sign", "floor", "abs", "min", "max")}
_CALLS.update(idiv="idiv", imod="imod")


@dataclass
class Site:
    """A place in the source that a checked build can name."""

    kernel: str
    file: str
    line: int
    source: str
    array: str


@dataclass
class Emitted:
    """C++ text of one kernel and what a caller must know about it."""

    symbol: str
    text: str
    sums: set[ArrayRef] = field(default_factory=set)
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
) -> Emitted:
    """Emit one kernel.

    Args:
        kernel: The kernel, cleaned and with calls inlined.
        symbol: Name of the C function.
        layouts: Memory layout per array argument: 'aos', 'packet' or 'lanes'.
        lanes: Whether lanes are elements or worlds.
        width: Number of lanes.
        precision: Bytes of a Float, 4 or 8.
        check: Emit index, order and finiteness checks.
        first_site: Number of the first check site.
    """
    emitter = _Emitter(kernel, symbol, layouts, lanes, width, precision, check, first_site)
    return emitter.run()


class _Emitter:
    def __init__(
        self, kernel: KernelIR, symbol: str, layouts: dict[ArrayRef, str], lanes: str, width: int, precision: int, check: bool, first_site: int
    ) -> None:
        self.k, self.symbol, self.layouts, self.lanes, self.w = kernel, symbol, layouts, lanes, width
        self.t = "float" if precision == 4 else "double"
        self.check, self.first_site = check, first_site
        per_lane = {a for a in kernel.arrays if layouts[a] == LANES}
        self.varying = analysis.varying_values(kernel, lanes, per_lane)
        self.by_packet = analysis.varying_values(kernel, lanes, per_lane, promises=False)
        self.uses = analysis.accesses(kernel, self.varying)
        self.by_element = lanes == ELEMENTS and kernel.index is not None
        self.sums = analysis.reductions(self.uses) if kernel.index is not None else set()
        written = {n.array for n in ir.walk(kernel.body) if isinstance(n, Store)}
        read = {n.array for n in ir.walk(kernel.body) if isinstance(n, Load)}
        self.tracked = (written & read) if check and not any(a.origin for a in kernel.arrays) else set()
        own = [n for n in ir.walk(kernel.body) if isinstance(n, Load) and n.index is kernel.index and n.array.role != "local"]
        self.tables = {r for n in own if "i" in n.array.kinds and n.array not in written for r in n.results}
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[Value, str] = {}
        self.array_names = {a: f"{_identifier(a.name)}" for a in kernel.arrays}
        self.counter = 0
        self.loops = 0
        self.mask: str | None = None
        self.deferred: list[str] = []
        self.deferred_setup: list[str] = []
        self.hoisted: list[str] = []
        self.accumulators: dict[tuple[ArrayRef, int], str] = {}
        self.sites: list[Site] = []
        self.last_line = 0
        self.offsets: list[dict[tuple[str, int], str]] = [{}]
        self.functions: dict[Function, tuple[str, str]] = {}

    # -- text ---------------------------------------------------------------------------------------------------

    def put(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def fresh(self, prefix: str = "t") -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def comment(self, line: int) -> None:
        at = line - self.k.first_line
        if line != self.last_line and 0 <= at < len(self.k.source):
            self.last_line = line
            self.put(f"// {line}: {self.k.source[at].strip().rstrip(chr(92))}")

    def vector(self, v: Value) -> bool:
        return self.w > 1 and v in self.varying

    def type_of(self, kind: str, vector: bool) -> str:
        return {"f": "FT", "i": "IU", "b": "Mb"}[kind][0 if vector else 1].replace("b", "bool")

    def literal(self, v: Value) -> str:
        if v.kind == "b":
            return "true" if v.attr else "false"
        if v.kind == "i":
            return f"U({v.attr})"
        if v.attr != v.attr or v.attr in (float("inf"), float("-inf")):
            return "T(__builtin_nan(\"\"))" if v.attr != v.attr else f"T({'-' if v.attr < 0 else ''}__builtin_inf())"
        return f"T({v.attr!r})"

    def ref(self, v: Value, vector: bool | None = None) -> str:
        """The C++ expression of a value, broadcast if a vector is wanted and it is uniform."""
        text = self.literal(v) if v.op == "const" else self.names[v]
        if vector and not self.vector(v):
            if v.kind == "b":
                return f"splat_mask<M>({text})"
            return f"splat<{'F' if v.kind == 'f' else 'I'}>({text})"
        return text

    # -- the function -------------------------------------------------------------------------------------------

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
            f"using namespace kn; using T = {self.t}; constexpr int W = {self.w};",
            "using F = Lanes<T, W>::F; using I = Lanes<T, W>::I; using M = Lanes<T, W>::M; using U = Lanes<T, 1>::I;",
            "",
            *(text for _, text in self.functions.values()),
            f"// {self.k.name}, lanes are {self.lanes}",
            f'extern "C" void {self.symbol}(const kn_call* call) {{',
        ]
        for at, array in enumerate(self.k.arrays):
            number = "T" if "f" in array.kinds else "int32_t"
            head.append(f"  auto* const {self.array_names[array]} = static_cast<{number}*>(call->array[{at}]); (void){self.array_names[array]};")
        if self.tracked:
            head.append("  ReadSet touched;")
        return Emitted(self.symbol, "\n".join([*head, *body, "}", "}", ""]), self.sums, self.sites)

    def refuse_shared_writes(self) -> None:
        """Many elements setting one memory cell has no defined result."""
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
        """What one element reads from another one of the same call would depend on the lanes, and has no adjoint."""
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
        """Lanes are elements: a loop over packets; uniform values are computed once, before it."""
        written = {u.array for u in self.uses if u.kind != "load"}
        ahead: list[Any] = []
        ready: set[Value] = set()  # what the nodes before the loop define
        for node in self.k.body.nodes:
            if self.hoistable(node, written) and all(v.op == "const" or v in ready for v in ir.uses(node)):
                ahead.append(node)
                ready.update(ir.results(node))
        rest = [n for n in self.k.body.nodes if not any(n is a for a in ahead)]
        self.block(ahead)
        before, self.lines = self.lines, []
        self.depth = 2
        assert self.k.index is not None
        self.names[self.k.index] = "e"
        if analysis.has_locals(self.k.body):
            self.put("ArenaScope scope(call->arena);")
        self.block(rest)
        inner, self.lines = self.lines, []
        lines = list(before)
        for (array, index), name in self.accumulators.items():
            lines.append(f"  alignas(64) T {name}[16 * {len(array.kinds)}] = {{}};  // {array.name}[{index}]")
        lines += [
            "  for (int64_t e0 = call->begin; e0 < call->end; e0 += W) {",
            "    const bool full = call->end - e0 >= W;",
            "    const M alive = full ? splat_mask<M>(true) : mask_first<M>(int(call->end - e0)); (void)alive;",
            "    const I e = splat<I>(U(e0)) + iota<I>(); (void)e;" if self.w > 1 else "    const U e = U(e0); (void)e;",
            *["    " + h for h in self.hoisted],
            *inner,
            *self.scatter_lines(),
            "  }",
        ]
        for (array, index), name in self.accumulators.items():
            for c in range(len(array.kinds)):
                at = index * array.padded + c
                lines.append(f"  {self.array_names[array]}[{at}] += tree16({name} + {16 * c});")
        return lines

    def hoistable(self, node: Any, written: set[ArrayRef]) -> bool:
        if isinstance(node, Value):
            return node not in self.by_packet
        own = isinstance(node, Load) and node.array.role != "local" and node.array not in written
        return own and node.results[0] not in self.by_packet

    def world_body(self) -> list[str]:
        """Lanes are worlds (or there is one world and no element): a plain loop over elements, if any."""
        self.put("const M alive = mask_first<M>(call->active); (void)alive;")
        self.put("const bool full = call->active >= W; (void)full;")
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
        lines += ["  for (int64_t e0 = call->begin; e0 < call->end; ++e0) {", "    const U e = U(e0); (void)e;", *inner, "  }"]
        for (array, index), name in self.accumulators.items():
            n = len(array.kinds)
            for c in range(n):
                area = f"{self.array_names[array]} + {(index * n + c)} * W + l"
                lines.append(f"  for (int l = 0; l < W; ++l) *({area}) += tree16({name} + {c} * 16 * W + l, W);")
        return lines

    # -- nodes --------------------------------------------------------------------------------------------------

    def block(self, nodes: list[Any]) -> None:
        for node in nodes:
            self.comment(getattr(node, "line", 0))
            if isinstance(node, Value):
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

    def define(self, v: Value, expression: str) -> None:
        name = self.fresh()
        self.names[v] = name
        self.put(f"const {self.type_of(v.kind, self.vector(v))} {name} = {expression};")

    def value(self, v: Value) -> None:
        self.define(v, self.expression(v))

    def expression(self, v: Value) -> str:
        wide = self.vector(v)
        a = [self.ref(x, wide) for x in v.args]
        op = v.op
        if op in _INFIX:
            return f"{a[0]} {_INFIX[op]} {a[1]}"
        if op in ("fma", "fms", "fnma"):
            x, z = (f"-{a[0]}" if op == "fnma" else a[0]), (f"-{a[2]}" if op == "fms" else a[2])
            return f"fma({x}, {a[1]}, {z})"
        if op == "neg":
            return f"-{a[0]}"
        if op in ("min", "max") and v.kind == "i":
            return f"i{op}({a[0]}, {a[1]})"
        if op == "abs" and v.kind == "i":
            return f"imax({a[0]}, -{a[0]})"
        if op in _CALLS:
            return f"{_CALLS[op]}({', '.join(a)})"
        if op == "select":
            return f"sel({', '.join(a)})" if wide else f"{a[0]} ? {a[1]} : {a[2]}"
        if op in ("and", "or"):
            return f"m{op}({a[0]}, {a[1]})" if wide else f"{a[0]} {'&&' if op == 'and' else '||'} {a[1]}"
        if op == "not":
            return f"mnot({a[0]})" if wide else f"!{a[0]}"
        if op == "tofloat":
            return f"to_float({a[0]})" if wide else f"T({a[0]})"
        if op == "toint":
            return f"to_int({a[0]})"
        if op == "uniform":
            return self.promised(v) if self.vector(v.args[0]) and not wide else a[0]
        if op == "length":
            return f"U(call->length[{self.k.arrays.index(v.attr)}])"
        raise AssertionError(f"no emission for {op}")

    def promised(self, v: Value) -> str:
        """`uniform(x)`: the first lane; a checked build compares the others."""
        x = self.ref(v.args[0])
        if not self.check:
            return f"lane({x}, 0)"
        array = self.k.arrays[0]
        return f"checked_uniform(call, {x}, {self.active()}, e0, {self.site(array, v.line)})"

    # -- memory -------------------------------------------------------------------------------------------------

    def active(self) -> str:
        """Mask of the lanes that act here."""
        return "alive" if self.mask is None else f"mand({self.mask}, alive)"

    def site(self, array: ArrayRef, line: int) -> int:
        at = line - self.k.first_line
        source = self.k.source[at].strip() if 0 <= at < len(self.k.source) else ""
        self.sites.append(Site(self.k.name, self.k.file, line, source, array.name))
        return self.first_site + len(self.sites) - 1

    def index(self, array: ArrayRef, index: Value, line: int) -> str:
        """The index expression, made safe in inactive lanes and checked in a checked build."""
        text = self.ref(index)
        # Lanes beyond the last element hold zeros in tables, but what is computed there may point anywhere.
        mask = self.active() if self.by_element and index not in self.tables else self.mask
        if self.vector(index) and mask is not None and (index is not self.k.index or array.role == "local"):
            text = f"sel({mask}, {text}, splat<I>(0))"
        if self.check and array.role != "local":
            mask = self.active() if self.vector(index) else "true"
            length = f"call->length[{self.k.arrays.index(array)}]"
            name = self.fresh("i")
            self.put(f"const auto {name} = checked_index(call, {text}, {length}, {mask}, e0, {self.site(array, line)});")
            return name
        return text

    def track(self, array: ArrayRef, text: str, index: Value, line: int, write: bool) -> None:
        if array not in self.tracked:
            return
        mask = self.active() if self.vector(index) else "true"
        base, padded = self.array_names[array], array.padded
        if write:
            self.put(f"touched.write(call, {base}, {text}, {padded}, {mask}, e0, {self.site(array, line)});")
        else:
            self.put(f"touched.read({base}, {text}, {padded}, {mask});")

    def declare_results(self, node: Load) -> list[str]:
        names = []
        for r in node.results:
            name = self.fresh()
            self.names[r] = name
            names.append(name)
        return names

    def load(self, node: Load) -> None:
        array, n = node.array, len(node.array.kinds)
        own = self.by_element and node.index is self.k.index
        text = self.index(array, node.index, node.line)
        self.track(array, text, node.index, node.line, write=False)
        if array.role == "local":
            self.load_local(node, text)
            return
        base, layout = self.array_names[array], self.layouts[array]
        names = self.declare_results(node)
        integer = "i" in array.kinds
        wide = self.vector(node.results[0])
        kind = self.type_of(array.kinds[0], wide)
        if layout == LANES:
            for c, name in enumerate(names):
                self.put(f"const {kind} {name} = {self.lane_load(base, text, n, c, integer, self.vector(node.index))};")
        elif own and layout == PACKET:
            at = f"(e0 & ~int64_t(15)) * {n} + (e0 & 15)"
            for c, name in enumerate(names):
                call = f"load_int<{kind}>" if integer else f"load<{kind}>"
                self.put(f"const {kind} {name} = {call}({base} + {at} + {16 * c});")
        elif own and (n == 1 or integer or self.w == 1):
            for c, name in enumerate(names):
                if n == 1:
                    call = f"load_int<{kind}>" if integer else f"load<{kind}>"
                    self.put(f"const {kind} {name} = {call}({base} + e0);")
                elif integer and wide:
                    self.put(f"const {kind} {name} = gather_int<I>({base} + {c}, e * splat<I>(U({array.padded})));")
                else:
                    self.put(f"const {kind} {name} = {base}[e0 * {array.padded} + {c}];")
        elif own:
            self.quads(names, lambda q: f"{base} + e0 * {array.padded} + {4 * q}", "load", array.padded, "")
        elif self.vector(node.index):
            if integer or n == 1:
                call = "gather_int<I>" if integer else "gather<F>"
                scale = f"{text} * splat<I>(U({array.padded}))" if array.padded > 1 else text
                for c, name in enumerate(names):
                    self.put(f"const {kind} {name} = {call}({base} + {c}, {scale});")
            else:
                self.quads(names, lambda q: f"{base} + {4 * q}", "rows", None, self.offset(text, array.padded))
        else:
            for c, name in enumerate(names):
                self.put(f"const {kind} {name} = {base}[int64_t({text}) * {array.padded} + {c}];")

    def offset(self, index: str, padded: int) -> str:
        """Name of the array of lane offsets of an index into padded elements; shared by all uses in scope."""
        key = (index, padded)
        found = next((scope[key] for scope in self.offsets if key in scope), None)
        if found is None:
            found = self.offsets[-1][key] = self.fresh("off")
            scaled = f"{index} * splat<I>(U({padded}))" if padded > 1 else index
            self.put(f"alignas(64) U {found}[W]; keep_offsets<I>({found}, {scaled});")
        return found

    def quads(self, names: list[str], base: Any, call: str, stride: int | None, index: str) -> None:
        """Loads of padded elements, four (or three, two) numbers at a time, transposed in registers."""
        where = index if stride is None else f"{stride}{index}"
        for q in range(0, len(names), 4):
            part = names[q : q + 4]
            if len(names) == 2:
                self.put(f"F {', '.join(part)}; {call}2({base(0)}, {where}, {', '.join(part)});")
                continue
            size = 3 if len(part) == 3 else 4
            spare = [self.fresh("pad") for _ in range(size - len(part))]
            every = ", ".join(part + spare)
            unused = "".join(f" (void){s};" for s in spare)
            self.put(f"F {every}; {call}{size}({base(q // 4)}, {where}, {every});{unused}")

    def lane_load(self, base: str, text: str, n: int, c: int, integer: bool, varying_index: bool) -> str:
        if varying_index:
            at = f"{text} * splat<I>(U({n} * W)) + iota<I>()"
            return f"gather_int<I>({base} + {c} * W, {at})" if integer else f"gather<F>({base} + {c} * W, {at})"
        at = f"{base} + (int64_t({text}) * {n} + {c}) * W"
        return f"load_int<I>({at})" if integer else f"load<F>({at})"

    def load_local(self, node: Load, text: str) -> None:
        base, n = self.array_names[node.array], len(node.array.kinds)
        for c, r in enumerate(node.results):
            at = f"{base} + (int64_t({text}) * {n} + {c}) * W"
            if self.vector(node.index):
                lane = f"{text} * splat<I>(U({n} * W)) + iota<I>()"
                got = f"gather_local<{'F' if r.kind == 'f' else 'I'}>({base} + {c} * W, {lane})"
                got = f"({got} != splat<I>(0))" if r.kind == "b" else got
            elif r.kind == "b":
                got = f"peek_mask<M>({at})"
            else:
                got = f"peek<{'F' if r.kind == 'f' else 'I'}>({at})"
            self.define(r, got)

    def store_local(self, node: Store, text: str) -> None:
        base, n = self.array_names[node.array], len(node.array.kinds)
        for c, v in enumerate(node.values):
            value = self.ref(v, self.w > 1)
            at = f"{base} + (int64_t({text}) * {n} + {c}) * W"
            mask = self.mask or "splat_mask<M>(true)"
            if self.vector(node.index):
                lane = f"{text} * splat<I>(U({n} * W)) + iota<I>()"
                stored = f"sel({value}, splat<I>(1), splat<I>(0))" if v.kind == "b" else value
                self.put(f"scatter_{node.mode}({base} + {c} * W, {lane}, {stored}, {mask});")
                continue
            if v.kind == "b":
                kept = value if self.mask is None else f"sel({self.mask}, {value}, peek_mask<M>({at}))"
                self.put(f"poke_mask<M>({at}, {kept});")
                continue
            lane_type = "F" if v.kind == "f" else "I"
            old = f"peek<{lane_type}>({at})"
            new = f"{old} + {value}" if node.mode == "add" else value
            kept = new if self.mask is None else f"sel({self.mask}, {new}, {old})"
            self.put(f"store<{lane_type}>({at}, {kept});")

    def local(self, node: Local) -> None:
        name = self.fresh(_identifier(node.array.name) + "_")
        self.array_names[node.array] = name
        n = len(node.array.kinds)
        number = "T" if "f" in node.array.kinds else "U"
        size = self.ref(node.size)
        if self.vector(node.size):
            size = f"hmax({size})"
        self.put(f"const int64_t {name}_size = int64_t({size}) * {n} * W;")
        self.put(f"{number}* const {name} = arena_take<{number}>(call->arena, {name}_size > 0 ? {name}_size : 1);")
        self.put(f"__builtin_memset({name}, 0, sizeof({number}) * ({name}_size > 0 ? {name}_size : 0));")

    def store(self, node: Store) -> None:
        array = node.array
        if array in self.sums:
            self.accumulate(node)
            return
        own = self.by_element and node.index is self.k.index
        text = self.index(array, node.index, node.line)
        self.track(array, text, node.index, node.line, write=True)
        if self.check and array.role != "local" and "f" in array.kinds:
            for v in node.values:
                mask = self.active() if self.vector(v) else "true"
                self.put(f"checked_finite(call, {self.ref(v)}, {mask}, e0, {self.site(array, node.line)});")
        if array.role == "local":
            self.store_local(node, text)
        elif self.layouts[array] == LANES:
            self.store_lanes(node, text)
        elif own and self.w > 1:
            self.store_own(node)
        elif self.vector(node.index):
            self.scatter(node, text)
        elif self.by_element and self.w > 1:
            for c, v in enumerate(node.values):
                place = f"{self.array_names[array]} + int64_t({text}) * {array.padded} + {c}"
                self.put(f"accumulate({place}, {self.ref(v, True)}, {self.active()});")
        else:
            base, sign = self.array_names[array], "+=" if node.mode == "add" else "="
            at = f"(e0 & ~int64_t(15)) * {len(array.kinds)} + (e0 & 15)"
            for c, v in enumerate(node.values):
                place = f"{at} + {16 * c}" if self.layouts[array] == PACKET else f"int64_t({text}) * {array.padded} + {c}"
                self.put(f"{base}[{place}] {sign} {self.ref(v)};")

    def store_lanes(self, node: Store, text: str) -> None:
        base, n = self.array_names[node.array], len(node.array.kinds)
        integer = "i" in node.array.kinds
        for c, v in enumerate(node.values):
            value = self.ref(v, self.w > 1)
            if self.vector(node.index):
                lane = f"{text} * splat<I>(U({n} * W)) + iota<I>()"
                self.put(f"scatter_{node.mode}({base} + {c} * W, {lane}, {value}, {self.active()});")
                continue
            at = f"{base} + (int64_t({text}) * {n} + {c}) * W"
            if integer:
                self.put(f"store_int({at}, {value}, {self.active()});")
                continue
            old = f"load<F>({at})"
            new = f"{old} + {value}" if node.mode == "add" else value
            self.put(f"store<F>({at}, {new if self.mask is None else f'sel({self.mask}, {new}, {old})'});")

    def store_own(self, node: Store) -> None:
        array, n = node.array, len(node.array.kinds)
        base, layout = self.array_names[array], self.layouts[array]
        values = [self.ref(v, True) for v in node.values]
        full, mask = ("full", "alive") if self.mask is None else ("false", self.active())
        add = node.mode == "add"
        if "i" in array.kinds:
            for c, v in enumerate(values):
                place = f"(e0 & ~int64_t(15)) * {n} + (e0 & 15) + {16 * c}" if layout == PACKET else "e0"
                if layout != PACKET and n > 1:
                    self.put(f"scatter_set({base} + {c}, e * splat<I>(U({array.padded})), {v}, {mask});")
                else:
                    self.put(f"put_int({base} + {place}, {v}, {full}, {mask});")
        elif layout == PACKET or n == 1:
            at = f"(e0 & ~int64_t(15)) * {n} + (e0 & 15)" if layout == PACKET else "e0"
            for c, v in enumerate(values):
                place = f"{base} + {at} + {16 * c}"
                self.put(f"put({place}, {f'load<F>({place}) + ' if add else ''}{v}, {full}, {mask});")
        else:
            self.store_own_quads(node, values, full, mask, add)

    def store_own_quads(self, node: Store, values: list[str], full: str, mask: str, add: bool) -> None:
        array = node.array
        base = self.array_names[array]
        zero = "splat<F>(T(0))"
        for q in range(0, len(values), 4):
            part = values[q : q + 4]
            size = 2 if len(values) == 2 else 4
            place = f"{base} + e0 * {array.padded} + {q}"
            if add:
                old = [self.fresh("old") for _ in range(size)]
                self.put(f"F {', '.join(old)}; load{size}({place}, {array.padded}, {', '.join(old)});")
                part = [f"{o} + {p}" for o, p in zip(old, part, strict=False)]
            part += [zero] * (size - len(part))
            self.put(f"put{size}({place}, {array.padded}, {', '.join(part)}, {full}, {mask});")

    def accumulate(self, node: Store) -> None:
        """A sum over elements: added to one of sixteen partial sums, by the element's number."""
        index = node.index.attr
        key = (node.array, index)
        if key not in self.accumulators:
            self.accumulators[key] = f"sum_{_identifier(node.array.name)}_{index}"
        name = self.accumulators[key]
        for c, v in enumerate(node.values):
            value = self.ref(v, self.w > 1)
            if self.by_element:
                if self.w == 1:
                    self.put(f"{name}[{16 * c} + (e0 & 15)] += {value};")
                    continue
                if self.mask is None:
                    value = f"(full ? {value} : sel(alive, {value}, splat<F>(T(0))))"
                else:
                    value = f"sel({self.active()}, {value}, splat<F>(T(0)))"
                place = f"{name} + {16 * c} + (e0 & 15)"
            else:
                if self.mask is not None:
                    value = f"sel({self.mask}, {value}, splat<F>(T(0)))"
                place = f"{name} + ({16 * c} + (e0 & 15)) * W"
            self.put(f"store<F>({place}, load<F>({place}) + {value});")

    # -- scattered writes ---------------------------------------------------------------------------------------

    def scatter(self, node: Store, text: str) -> None:
        """Writes by varying index: at the end of the packet, element by element; inside loops at once."""
        if self.loops:
            self.scatter_now(node, text)
            return
        at = len(self.deferred)
        names = [f"out{at}_{c}" for c in range(len(node.values))]
        index, mask = f"at{at}", None
        if self.mask is None and len(self.offsets) == 1:
            index = self.offset(text, node.array.padded)
            for name, v in zip(names, node.values, strict=True):
                self.put(f"const {self.type_of(v.kind, True)} {name} = {self.ref(v, True)};")
        else:
            mask = f"on{at}"
            kinds = [self.type_of(v.kind, True) for v in node.values]
            self.hoisted.append(f"alignas(64) U {index}[W]; M {mask} = splat_mask<M>(false);")
            self.hoisted += [f"{k} {name} = splat<{k}>(0);" for k, name in zip(kinds, names, strict=True)]
            scaled = f"{text} * splat<I>(U({node.array.padded}))" if node.array.padded > 1 else text
            self.put(f"keep_offsets<I>({index}, {scaled}); {mask} = {self.mask or 'splat_mask<M>(true)'};")
            for name, v in zip(names, node.values, strict=True):
                self.put(f"{name} = {self.ref(v, True)};")
        self.schedule_scatter(node, names, index, mask, at)

    def schedule_scatter(self, node: Store, names: list[str], index: str, mask: str | None, at: int) -> None:
        array, n = node.array, len(node.values)
        base = self.array_names[array]
        setup: list[str] = []
        writes: list[str] = []
        if "i" in array.kinds or n == 1:
            for c, name in enumerate(names):
                kind = "T" if "f" in array.kinds else "U"
                lane = "F" if "f" in array.kinds else "I"
                setup.append(f"alignas(64) {kind} s{at}_{c}[W]; store<{lane}>(s{at}_{c}, {name});")
                writes.append(f"{base}[{index}[l] + {c}] {'+=' if node.mode == 'add' else '='} s{at}_{c}[l];")
        else:
            size = 2 if n == 2 else 4
            zero = "splat<F>(T(0))"
            for q in range(0, n, 4):
                part = names[q : q + 4] + [zero] * (size - len(names[q : q + 4]))
                setup.append(f"alignas(64) T s{at}_{q}[W * {size}]; transpose_store{size}<F>(s{at}_{q}, {', '.join(part)});")
                place, source = f"{base} + {index}[l] + {q}", f"s{at}_{q} + {size} * l"
                if node.mode == "add":
                    writes.append(f"add{size}({place}, {source});")
                else:
                    writes.append(f"__builtin_memcpy({place}, {source}, {size} * sizeof(T));")
        guard = f"if (active({mask}, l)) " if mask else ""
        self.deferred_setup += setup
        self.deferred.append(guard + "{ " + " ".join(writes) + " }")

    def scatter_lines(self) -> list[str]:
        if not self.deferred:
            return []
        lines = ["    " + s for s in self.deferred_setup]
        body = " ".join(self.deferred)
        lines.append("    if (__builtin_expect(full, 1)) {")
        lines.append("      _Pragma(\"GCC unroll 16\") for (int l = 0; l < W; ++l) { " + body + " }")
        lines.append("    } else {")
        lines.append("      for (int l = 0; l < int(call->end - e0); ++l) { " + body + " }")
        lines.append("    }")
        return lines

    def scatter_now(self, node: Store, text: str) -> None:
        base, p = self.array_names[node.array], node.array.padded
        row = self.fresh("row")
        self.put(f"const I {row} = {text} * splat<I>(U({p}));")
        for c, v in enumerate(node.values):
            self.put(f"scatter_{node.mode}({base} + {c}, {row}, {self.ref(v, True)}, {self.active()});")

    # -- large functions ----------------------------------------------------------------------------------------

    def call(self, node: Call) -> None:
        """A call of a function that is kept out of line: all lanes, mask first, results by reference."""
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
        """Name of the emitted function; its definition is emitted at first use."""
        if function not in self.functions:
            name = f"{self.symbol}_{_identifier(function.name)}{len(self.functions)}"
            self.functions[function] = (name, "")
            self.functions[function] = (name, self.function_text(function, name))
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
        head = f"static __attribute__((noinline)) void {name}(const kn_call* call, M mask, {', '.join(params + outs)}) {{"
        return "\n".join([head, *inner.lines, "}", ""])

    # -- control flow -------------------------------------------------------------------------------------------

    def nested(self, block: Block, mask: str | None) -> None:
        outer, self.mask = self.mask, mask
        self.offsets.append({})
        self.depth += 1
        if analysis.has_locals(block):
            self.put(f"ArenaScope {self.fresh('scope')}(call->arena);")
        self.block(block.nodes)
        self.depth -= 1
        self.offsets.pop()
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
        """A loop; lanes that are done are masked when the bounds or a break differ between lanes."""
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
            parts = [p for p in (self.mask, test if wide_var else None, self.names[alive[0]] if wide_alive and alive else None) if p]
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


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name) + "_"


__all__ = ["AOS", "ELEMENTS", "LANES", "PACKET", "WORLDS", "Emitted", "Site", "emit"]
