"""Emits a kernel as a scalar C++ template over its number type: float, double, or the scalars of other AD libraries.

The text is self-contained C++17; several kernels can share a file. Argument-dependent lookup finds the mathematical
functions, so `T` may be `CppAD::AD<double>` or `ceres::Jet<double, N>`; branches and loops follow the values. At
singular points (sqrt 0, acos 1, ...) such a type yields its own derivative, not the one Kinema defines.
"""

from __future__ import annotations

import math
from typing import Any

from kinema.lang.ir import optimise, ssa
from kinema.lang.ir.ssa import ArrayRef, Block, For, If, KernelIR, Load, Local, Store, Value

PRELUDE = """\
#ifndef KINEMA_SCALAR
#define KINEMA_SCALAR
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>
namespace kn_scalar {
using std::exp; using std::sqrt;
// The plain number behind a scalar: of C++ itself, of Ceres, of CppAD.
template <class T> std::enable_if_t<std::is_arithmetic<T>::value, T> number(const T& x) { return x; }
template <class T> auto number(const T& x) -> decltype(x.a) { return x.a; }
template <class T> auto number(const T& x) -> decltype(Value(Var2Par(x))) { return Value(Var2Par(x)); }
template <class T> T rsqrt(const T& x) { return T(1) / sqrt(x); }
template <class T> T minimum(const T& a, const T& b) { return a < b ? a : b; }
template <class T> T maximum(const T& a, const T& b) { return a > b ? a : b; }
template <class T> T absolute(const T& x) { return x < T(0) ? T(-x) : x; }
template <class T> T sign(const T& x) { return T(int(x > T(0)) - int(x < T(0))); }
template <class T> T floor(const T& x) { return T(std::floor(number(x))); }
template <class T> T sigmoid(const T& x) {
  if (x >= T(0)) return T(1) / (T(1) + exp(-x));
  const T y = exp(x);
  return y / (T(1) + y);
}
template <class T> int to_int(const T& x) {  // truncates; NaN gives 0, values beyond +-2^30 give +-2^30
  const auto v = number(x);
  return v != v ? 0 : int(v < -0x1p30 ? -0x1p30 : v > 0x1p30 ? 0x1p30 : v);
}
inline int idiv(int a, int b) {  // Python's //; a divisor of 0 acts as 1
  if (b == 0) return a;
  if (b == -1) return int(0u - unsigned(a));
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
inline int imod(int a, int b) { return b == 0 ? 0 : int(unsigned(a) - unsigned(idiv(a, b)) * unsigned(b)); }
}  // namespace kn_scalar
#endif
"""

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_INFIX.update({"eq": "==", "ne": "!=", "and": "&&", "or": "||"})
_LIBRARY = ("sqrt", "sin", "cos", "tan", "asin", "acos", "atan2", "exp", "log", "pow", "tanh")
_OWN = {op: op for op in ("rsqrt", "sigmoid", "sign", "floor", "idiv", "imod")}
_OWN.update({"min": "minimum", "max": "maximum", "abs": "absolute", "toint": "to_int"})
_FORMS = {
    "neg": "-{}",
    "not": "!{}",
    "fma": "{} * {} + {}",
    "fms": "{} * {} - {}",
    "fnma": "{2} - {0} * {1}",
    "select": "{} ? {} : {}",
    "tofloat": "T({})",
    "uniform": "{}",
    "shared": "{}",
    "everywhere": "{}",
    "detach": "{}",
}
_TYPES = {"f": "T", "i": "int", "b": "bool"}


def emit_scalar(kernel: KernelIR, name: str) -> str:
    """C++ of a kernel as `template <class T> void name(...)`.

    Parameters: `long begin, long end` if the kernel has an Index; one pointer per array argument, T for arrays with
    Floats and int for others, const if it is only read; `long` lengths of the arrays whose len() is used. Arrays are
    not padded: scalar c of element e is at e * scalars + c. Value arguments are arrays of length one.
    """
    kernel = optimise.clean(kernel, inline=True, largest=math.inf)
    return PRELUDE + "\n" + _Emitter(kernel).run(name)


def parameters(kernel: KernelIR) -> list[tuple[str, ArrayRef | None]]:
    """C++ declarations of a kernel's parameters in order, each with the array of its pointer or length."""
    written = {n.array for n in ssa.walk(kernel.body) if isinstance(n, Store)}
    measured = {n.attr for n in ssa.walk(kernel.body) if isinstance(n, Value) and n.op == "length"}
    found: list[tuple[str, ArrayRef | None]] = []
    if kernel.index is not None:
        found += [("long begin", None), ("long end", None)]
    for a in kernel.arrays:
        found.append((f"{'' if a in written else 'const '}{_number(a)}* {_identifier(a)}", a))
    return found + [(f"long {_identifier(a)}length", a) for a in kernel.arrays if a in measured]


def _number(array: ArrayRef) -> str:
    return "T" if "f" in array.kinds else "int"


def _identifier(array: ArrayRef) -> str:
    return "".join(c if c.isalnum() else "_" for c in array.name) + "_"


class _Emitter:
    """Writes the nodes of one kernel: every value has a name; results of branches and loops are variables."""

    def __init__(self, kernel: KernelIR) -> None:
        self.k = kernel
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[Value, str] = {}
        self.array_names = {a: _identifier(a) for a in kernel.arrays}
        self.counter = 0
        self.last_line = 0

    def run(self, name: str) -> str:
        if self.k.index is not None:
            self.names[self.k.index] = "e"
            self.put("for (int e = int(begin); e < int(end); ++e) {")
            self.nested(self.k.body)
            self.put("}")
        else:
            self.block(self.k.body.nodes)
        given = ", ".join(text for text, _ in parameters(self.k))
        used = {n.op for n in ssa.walk(self.k.body) if isinstance(n, Value)}
        using = "".join(f"  using std::{op};\n" for op in _LIBRARY if op in used)
        lines = "\n".join(self.lines)
        return f"// {self.k.name}\ntemplate <class T>\nvoid {name}({given}) {{\n{using}{lines}\n}}\n"

    # -- text ---------------------------------------------------------------------------------------------------

    def put(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def comment(self, line: int) -> None:
        at = line - self.k.first_line
        if line != self.last_line and 0 <= at < len(self.k.source):
            self.last_line = line
            self.put(f"// {line}: {self.k.source[at].strip()}".rstrip("\\"))

    def ref(self, v: Value) -> str:
        if v.op != "const":
            return self.names[v]
        if v.kind == "f":
            return f"T({_literal(v.attr)})"
        return str(v.attr).lower() if v.kind == "b" else f"({v.attr})" if v.attr < 0 else str(v.attr)

    def define(self, v: Value, expression: str) -> None:
        self.names[v] = self.fresh("t")
        self.put(f"const {_TYPES[v.kind]} {self.names[v]} = {expression};")

    # -- nodes --------------------------------------------------------------------------------------------------

    def block(self, nodes: list[Any]) -> None:
        for node in nodes:
            self.comment(getattr(node, "line", 0))
            getattr(self, f"_{type(node).__name__.lower()}")(node)

    def nested(self, block: Block) -> None:
        self.depth += 1
        self.block(block.nodes)
        self.depth -= 1

    def _value(self, v: Value) -> None:
        a = [self.ref(x) for x in v.args]
        if v.op == "length":
            text = f"int({self.array_names[v.attr]}length)"
        elif v.op in _INFIX:
            text = f"{a[0]} {_INFIX[v.op]} {a[1]}"
        elif v.op in _FORMS:
            text = _FORMS[v.op].format(*a)
        else:
            text = f"{v.op if v.op in _LIBRARY else f'kn_scalar::{_OWN[v.op]}'}({', '.join(a)})"
        self.define(v, text)

    def place(self, node: Load | Store, c: int) -> str:
        """Scalar c of an element in memory."""
        n = len(node.array.kinds)
        index = self.ref(node.index) if n == 1 else f"{n} * long({self.ref(node.index)}) + {c}"
        return f"{self.array_names[node.array]}[{index}]"

    def _load(self, node: Load) -> None:
        """Convert for storage: Ints and Bools inside a Float array to Float, Bools elsewhere to int."""
        number = _number(node.array)
        for c, r in enumerate(node.results):
            text = self.place(node, c)
            if r.kind == "b":
                text += f" != {number}(0)"
            elif _TYPES[r.kind] != number:
                text = f"kn_scalar::to_int({text})"
            self.define(r, text)

    def _store(self, node: Store) -> None:
        number = _number(node.array)
        sign = "+=" if node.mode == "add" else "="
        for c, v in enumerate(node.values):
            text = self.ref(v) if _TYPES[v.kind] == number else f"{number}({self.ref(v)})"
            self.put(f"{self.place(node, c)} {sign} {text};")

    def _local(self, node: Local) -> None:
        name = self.array_names[node.array] = self.fresh(_identifier(node.array))
        number, size = _number(node.array), self.ref(node.size)
        count = f"{len(node.array.kinds)} * kn_scalar::maximum({size}, 0)"
        self.put(f"std::vector<{number}> {name}({count}, {number}(0));")

    def _if(self, node: If) -> None:
        for result, _, _ in node.results:
            self.names[result] = self.fresh("r")
            self.put(f"{_TYPES[result.kind]} {self.names[result]};")
        self.put(f"if ({self.ref(node.cond)}) {{")
        self.side(node.then, [(r, a) for r, a, _ in node.results])
        if node.orelse.nodes or node.results:
            self.put("} else {")
            self.side(node.orelse, [(r, b) for r, _, b in node.results])
        self.put("}")

    def side(self, block: Block, results: list[tuple[Value, Value]]) -> None:
        self.nested(block)
        for result, value in results:
            self.put(f"  {self.names[result]} = {self.ref(value)};")

    def _for(self, node: For) -> None:
        for phi, init, _, out in node.carried:
            self.names[phi] = self.names[out] = self.fresh("c")
            self.put(f"{_TYPES[phi.kind]} {self.names[phi]} = {self.ref(init)};")
        i = self.names[node.var] = self.fresh("i")
        start, stop = self.ref(node.start), self.ref(node.stop)
        if node.down:
            self.put(f"for (int {i} = {stop} - 1; {i} >= {start}; --{i}) {{")
        else:
            self.put(f"for (int {i} = {start}; {i} < {stop}; ++{i}) {{")
        self.nested(node.body)
        self.depth += 1
        self.advance(node)
        self.depth -= 1
        self.put("}")

    def advance(self, node: For) -> None:
        """Assign the next values of all carried variables at once."""
        variables = {c[0] for c in node.carried}
        moves = [(phi, following) for phi, _, following, _ in node.carried if following is not phi]
        texts = [self.ref(following) for _, following in moves]
        for k, (phi, following) in enumerate(moves):
            if following in variables:
                texts[k] = self.fresh("n")
                self.put(f"const {_TYPES[phi.kind]} {texts[k]} = {self.ref(following)};")
        for (phi, _), text in zip(moves, texts, strict=True):
            self.put(f"{self.names[phi]} = {text};")
        if node.alive is not None:
            self.put(f"if (!{self.names[node.carried[node.alive][0]]}) break;")


def _literal(x: float) -> str:
    if math.isfinite(x):
        return repr(x)
    limit = "quiet_NaN" if math.isnan(x) else "infinity"
    return f"{'-' if x < 0 else ''}std::numeric_limits<double>::{limit}()"
