"""Writes C++ for lanes: names, types, literals, and the expressions of pure operations."""

from __future__ import annotations

from dataclasses import dataclass

from kinema.lang.ir import analysis, ssa
from kinema.lang.ir.analysis import COTANGENTS, ELEMENTS
from kinema.lang.ir.ssa import ArrayRef, Function, KernelIR, Load, Store, Value

AOS, DENSE, PACKET, LANES = "aos", "dense", "packet", "lanes"

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}
_CALLS = {
    op: f"{op}_"
    for op in (
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan2",
        "exp",
        "log",
        "pow",
        "tanh",
        "sigmoid",
        "sign",
        "floor",
        "abs",
        "min",
        "max",
    )
}
_CALLS.update(idiv="idiv", imod="imod")
_OF_INTS = {"add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "idiv": "idiv({}, {})", "imod": "imod({}, {})"}


@dataclass
class Site:
    """A source position that a checked build can report."""

    kernel: str
    file: str
    line: int
    source: str
    array: str


class Writer:
    """State of the emission of one kernel, and the text of values."""

    def __init__(
        self,
        kernel: KernelIR,
        symbol: str,
        layouts: dict[ArrayRef, str],
        lanes: str,
        width: int,
        precision: int,
        check: bool,
        first_site: int,
        wide: bool = False,
    ) -> None:
        self.wide = wide
        self.k, self.symbol, self.layouts, self.lanes, self.w = kernel, symbol, layouts, lanes, width
        self.t = "float" if precision == 4 else "double"
        self.check, self.first_site = check, first_site
        per_lane = {a for a in kernel.arrays if layouts[a] == LANES}
        self.varying = analysis.varying_values(kernel, lanes, per_lane)
        self.by_packet = analysis.varying_values(kernel, lanes, per_lane, promises=False)
        self.apart = analysis.varying_arrays(kernel, per_lane) if lanes == COTANGENTS else None
        self.uses = analysis.accesses(kernel, self.varying)
        self.by_element = lanes == ELEMENTS and kernel.index is not None
        self.sums = analysis.reductions(self.uses) if kernel.index is not None else set()
        written = {n.array for n in ssa.walk(kernel.body) if isinstance(n, Store)}
        read = {n.array for n in ssa.walk(kernel.body) if isinstance(n, Load)}
        derived = any(a.origin for a in kernel.arrays)
        self.tracked = {a for a in written & read if check and not derived and a.role != "local"}
        own = [
            n
            for n in ssa.walk(kernel.body)
            if isinstance(n, Load) and n.index is kernel.index and n.array.role != "local"
        ]
        self.tables = {r for n in own if "i" in n.array.kinds and n.array not in written for r in n.results}
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[Value, str] = {}
        self.array_names = {a: f"{identifier(a.name)}" for a in kernel.arrays}
        self.counter = 0
        self.loops = 0
        self.mask: str | None = None
        self.deferred: list[tuple[str | None, str]] = []  # lane bit mask (None: all), writes of one lane
        self.deferred_setup: list[str] = []
        self.deferred_rows: list[str] = []
        self.only_lane_by_lane = False
        self.hoisted: list[str] = []
        self.kept: list[dict[str, str]] = [{}]  # per block: names that the end of the packet needs
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

    def lanes_of(self, array: ArrayRef) -> str:
        """Copies of each scalar in a local array: one per lane, or one for all lanes."""
        return "W" if self.apart is None or array in self.apart else "1"

    def type_of(self, kind: str, vector: bool) -> str:
        return {"f": "FT", "i": "IU", "b": "Mb"}[kind][0 if vector else 1].replace("b", "bool")

    def literal(self, v: Value) -> str:
        if v.kind == "b":
            return "true" if v.attr else "false"
        if v.kind == "i":
            return f"U({v.attr})"
        if v.attr != v.attr or v.attr in (float("inf"), float("-inf")):
            return 'T(__builtin_nan(""))' if v.attr != v.attr else f"T({'-' if v.attr < 0 else ''}__builtin_inf())"
        return f"T({v.attr!r})"

    def ref(self, v: Value, vector: bool | None = None) -> str:
        """The C++ expression of a value, broadcast if a vector is wanted and it is uniform."""
        text = self.literal(v) if v.op == "const" else self.names[v]
        if vector and not self.vector(v):
            if v.kind == "b":
                return f"splat_mask<M>({text})"
            return f"splat<{'F' if v.kind == 'f' else 'I'}>({text})"
        return text

    # -- pure operations ----------------------------------------------------------------------------------------

    def define(self, v: Value, expression: str) -> None:
        name = self.fresh()
        self.names[v] = name
        self.put(f"const {self.type_of(v.kind, self.vector(v))} {name} = {expression};")

    def value(self, v: Value) -> None:
        self.define(v, self.expression(v))

    def sine_and_cosine(self, sine: Value, cosine: Value) -> None:
        """Emit sine and cosine of one angle."""
        wide = self.vector(sine)
        for v in (sine, cosine):
            self.names[v] = self.fresh()
            self.put(f"{self.type_of('f', wide)} {self.names[v]};")
        self.put(f"sincos_({self.ref(sine.args[0], wide)}, {self.names[sine]}, {self.names[cosine]});")

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
            # gcc would turn a scalar fused multiply-add into a negated one, whose zeros have the opposite sign.
            fused = v.args[0].op in ("fma", "fms", "fnma") and not wide and v.kind == "f"
            return f"flip_sign({a[0]})" if fused else f"-{a[0]}"
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
        if op in ("uniform", "shared"):
            return self.promised(v) if self.vector(v.args[0]) and not wide else a[0]
        if op == "everywhere":
            return self.of_all_lanes(v.args[0]) if self.vector(v.args[0]) else a[0]
        if op == "detach":
            return a[0]
        if op == "length":
            return f"U(call->length[{self.k.arrays.index(v.attr)}])"
        raise AssertionError(f"no emission for {op}")

    def promised(self, v: Value) -> str:
        """`uniform(x)` and `shared(x)`: the first lane; for `uniform`, a checked build compares the other lanes."""
        x = self.ref(v.args[0])
        if not self.check or v.op == "shared":
            return self.of_first_lane(v.args[0]) or f"lane({x}, 0)"
        array = self.k.arrays[0]
        return f"checked_uniform(call, {x}, {self.active()}, e0, {self.site(array, v.line)})"

    def of_all_lanes(self, condition: Value) -> str:
        """`everywhere(condition)`: whether it holds in all active lanes."""
        c = self.ref(condition)
        return f"all({c})" if self.mask is None else f"!any(mand({self.mask}, mnot({c})))"

    def of_first_lane(self, v: Value) -> str | None:
        """An Int as a scalar, if it depends on the element index alone: dividing lanes is slow."""
        if v is self.k.index:
            return "U(e0)"
        if v.op == "const" or not self.vector(v):
            return self.ref(v)
        args = [self.of_first_lane(a) for a in v.args] if v.op in _OF_INTS else [None]
        return None if None in args else _OF_INTS[v.op].format(*args)

    def active(self) -> str:
        """Mask of the active lanes."""
        return "alive" if self.mask is None else f"mand({self.mask}, alive)"

    def site(self, array: ArrayRef, line: int) -> int:
        at = line - self.k.first_line
        source = self.k.source[at].strip() if 0 <= at < len(self.k.source) else ""
        self.sites.append(Site(self.k.name, self.k.file, line, source, array.name))
        return self.first_site + len(self.sites) - 1


def identifier(name: str) -> str:
    """A C++ name for a Python one."""
    return "".join(c if c.isalnum() else "_" for c in name) + "_"
