"""Expressions of a kernel's source, translated to values of the intermediate form."""

from __future__ import annotations

import ast
import builtins
import functools
import operator
import types as python_types
from collections.abc import Callable
from typing import Any, NamedTuple

from kinema.errors import KernelError
from kinema.lang.frontend import diagnostics, symbols
from kinema.lang.frontend.sources import Source
from kinema.lang.frontend.symbols import ArrayTerm, BoundMethod, Compound, RecordTerm, Undefined, describe, is_number
from kinema.lang.ir.ssa import Block, Builder, Load, Value
from kinema.lang.language import functions, types
from kinema.lang.language.functions import Intrinsic
from kinema.lang.language.markers import Func

BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "idiv", ast.Mod: "imod"}
_METHODS = {"add": "__add__", "sub": "__sub__", "mul": "__mul__", "div": "__truediv__", "matmul": "__matmul__"}
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "idiv": "//", "imod": "%", "matmul": "@", "pow": "**"}
_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "idiv": operator.floordiv,
    "imod": operator.mod,
    "pow": operator.pow,
}
_COMPARE: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Lt: ("lt", operator.lt),
    ast.LtE: ("le", operator.le),
    ast.Gt: ("gt", operator.gt),
    ast.GtE: ("ge", operator.ge),
    ast.Eq: ("eq", operator.eq),
    ast.NotEq: ("ne", operator.ne),
}
_CONSTANTS = (bool, int, float)
_INT_LIMIT = 1 << 31


class Place(NamedTuple):
    """A position within a node: that of its operator or attribute."""

    lineno: int
    col_offset: int


@functools.cache
def method_of(python: Callable[..., Any]) -> Func:
    """A method of a struct or a record as a function of the language."""
    return Func(python)


class Expressions:
    """Translates expressions; `calls.Calls` translates calls, `statements.Translator` statements."""

    source: Source
    builder: Builder
    env: dict[str, Any]

    # -- errors -------------------------------------------------------------------------------------------------

    def fail(self, node: Any, what: str, hint: str = "") -> KernelError:
        """The error for a place in the source."""
        if isinstance(node, ast.Attribute):
            node = Place(node.end_lineno or 1, (node.end_col_offset or 0) - len(node.attr.encode()))
        return KernelError(what, **self.source.place(node), fix=hint or None)

    def line_of(self, node: Any) -> int:
        """The line of a node in its file."""
        return int(getattr(node, "lineno", 1)) + self.source.first_line - 1

    def operator_of(self, node: ast.AST) -> Any:
        """The position of the operator of a binary operation, if it is on the line where the left operand ends."""
        if not isinstance(node, (ast.BinOp, ast.Compare)):
            return node
        line, begin = node.left.end_lineno or 1, node.left.end_col_offset or 0
        rest = self.source.lines[line - 1].encode()[begin:]
        at = len(rest) - len(rest.lstrip(b" )"))
        return Place(line, begin + at) if rest[at : at + 1] not in (b"", b"\\", b"#") else node

    # -- entry --------------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> Any:
        """Translate one expression to a term."""
        self.builder.line = self.line_of(node)
        handler = getattr(self, f"_{type(node).__name__.lower()}", None)
        if handler is None:
            name, hint = diagnostics.EXPRESSIONS.get(
                type(node), (type(node).__name__, "numbers and functions of numbers")
            )
            raise self.fail(node, f"{name} is not part of the kernel language", hint)
        found = handler(node)
        if found is None and isinstance(node, ast.Call):
            hint = "`return` in that function, or the call on a line of its own"
            raise self.fail(node, f"{ast.unparse(node.func)}(...) returns nothing", hint)
        return found

    def as_kind(self, term: Any, kind: str, node: Any, role: str) -> Value:
        """Convert a term to a scalar, or fail and say what was expected."""
        wanted = symbols.KIND_NAMES[kind]
        if isinstance(term, Undefined):
            raise self.fail(node, term.reason)
        if not is_number(term):
            raise self.fail(node, f"{role} must be {wanted}, got {describe(term)}", diagnostics.for_number(term))
        given = symbols.structure(term)
        if kind == "i" and given == "f":
            raise self.fail(node, f"{role} must be Int, got Float", "Int(...), which truncates; // divides Ints")
        if kind == "b" and given != "b":
            raise self.fail(node, f"{role} must be Bool, got {describe(term)}", "a comparison, e.g. `x != 0`")
        if kind != "b" and given == "b":
            values = "`1.0 if condition else 0.0`" if kind == "f" else "`1 if condition else 0`"
            raise self.fail(node, f"{role} must be {wanted}, got Bool", values)
        return self.scalar(term, kind, node)

    def scalar(self, term: Any, kind: str, node: Any) -> Value:
        """A number as a scalar of its natural kind."""
        if kind == "i" and isinstance(term, int) and not -_INT_LIMIT <= term < _INT_LIMIT:
            raise self.fail(node, f"{term} does not fit into an Int of 32 bits", f"a Float: {float(term)!r}")
        return symbols.as_kind(term, kind, self.builder)

    # -- leaves -------------------------------------------------------------------------------------------------

    def _constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, _CONSTANTS):
            return node.value
        kinds: dict[type, str] = {str: "a string", bytes: "a string", complex: "a complex number"}
        hint = "two Floats, or vec2" if isinstance(node.value, complex) else "numbers, True and False"
        raise self.fail(node, f"{kinds.get(type(node.value), repr(node.value))} is not supported in a kernel", hint)

    def _name(self, node: ast.Name) -> Any:
        if node.id in self.env:
            found = self.env[node.id]
            if isinstance(found, Undefined):
                raise self.fail(node, f"{node.id!r} {found.reason}", f"give {node.id!r} a value before that line")
            return found
        if node.id in self.source.globals:
            return self.outside(node, self.source.globals[node.id], node.id)
        if hasattr(builtins, node.id):
            return self.outside(node, getattr(builtins, node.id), node.id)
        known = (*self.env, *self.source.globals)
        raise self.fail(node, f"{node.id!r} is not defined", diagnostics.for_name(node.id, known))

    def outside(self, node: ast.AST, value: Any, name: str) -> Any:
        """A name from the surrounding Python: constants, functions, types and modules only."""
        if isinstance(value, _CONSTANTS):
            return value
        if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
            return value.item()
        if isinstance(value, types.Value):
            kinds = types.flatten(type(value))
            scalars = [self.builder.const(s, k) for s, k in zip(types.scalars_of(value), kinds, strict=True)]
            return Compound(type(value), scalars)
        if getattr(value, "__hash__", None) is not None and value in functions.SYNONYMS:
            return functions.SYNONYMS[value]
        if isinstance(value, python_types.ModuleType) or callable(value):
            return value  # calls refuse what kernels cannot call
        kind = f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")
        raise self.fail(
            node,
            f"{name!r} is a {kind} of the surrounding Python",
            f"an argument, e.g. `{name.lower()}: Array[Float]`; kernels see only outer numbers, functions and types",
        )

    # -- access -------------------------------------------------------------------------------------------------

    def _attribute(self, node: ast.Attribute) -> Any:
        base = self.expression(node.value)
        if isinstance(base, python_types.ModuleType):
            if not hasattr(base, node.attr):
                hint = diagnostics.resembling(node.attr, dir(base)) or diagnostics.for_callee(node.attr, None)
                raise self.fail(node, f"module {base.__name__} has no {node.attr!r}", hint)
            return self.outside(node, getattr(base, node.attr), node.attr)
        if isinstance(base, RecordTerm):
            method = vars(base.type).get(node.attr)
            if isinstance(method, python_types.FunctionType):
                return BoundMethod(method, base)
            if node.attr not in base.members:
                hint = diagnostics.for_member(base, node.attr)
                raise self.fail(node, f"{base.type.__name__} has no member {node.attr!r}", hint)
            return self.member(base.members[node.attr])
        if isinstance(base, Compound):
            return self.field(base, node)
        if isinstance(base, type) and hasattr(base, node.attr):
            return self.outside(node, getattr(base, node.attr), node.attr)
        hint = diagnostics.for_attribute(base, node.attr)
        raise self.fail(node, f"{describe(base)} has no attribute {node.attr!r}", hint)

    def member(self, term: Any) -> Any:
        """A record's member; reads value arguments at their use."""
        return term() if callable(term) and not isinstance(term, (Func, Intrinsic)) else term

    def field(self, base: Compound, node: ast.Attribute) -> Any:
        """A component or field of a compound value, or a method of a struct."""
        at = 0
        for name, kind in base.type.fields:  # type: ignore[attr-defined]
            n = len(types.flatten(kind))
            if name == node.attr:
                part = base.scalars[at : at + n]
                return part[0] if issubclass(kind, types.Scalar) else Compound(kind, part)
            at += n
        method = vars(base.type).get(node.attr)
        if isinstance(method, python_types.FunctionType):
            return BoundMethod(method, base)
        hint = diagnostics.for_attribute(base, node.attr)
        raise self.fail(node, f"{base.type.__name__} has no component {node.attr!r}", hint)

    def _subscript(self, node: ast.Subscript) -> Any:
        base = self.expression(node.value)
        if isinstance(base, ArrayTerm):
            return self.load(base, self.index_of(base, node.slice), node)
        if isinstance(node.slice, ast.Slice):
            hint = "the components by name, e.g. vec2(v.x, v.y)"
            raise self.fail(node.slice, "slices are not part of the kernel language", hint)
        if isinstance(base, tuple):
            return base[self.static_index(node.slice, len(base))]
        if isinstance(base, Compound) and issubclass(base.type, types._Matrix):
            if not (isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2):
                raise self.fail(node.slice, "a matrix needs two indices", "m[i, j]; rows_of(m) gives its rows")
            n = base.type.size
            i, j = (self.static_index(part, n) for part in node.slice.elts)
            return base.scalars[i * n + j]
        if isinstance(base, Compound) and issubclass(base.type, types._Vector):
            return base.scalars[self.static_index(node.slice, base.type.size)]
        hint = "an argument of type Array[Float]" if is_number(base) else diagnostics.for_number(base)
        raise self.fail(node, f"{describe(base)} cannot be indexed", hint)

    def static_index(self, node: ast.expr, size: int) -> int:
        """An index into a vector, matrix or tuple: a constant within range."""
        index = self.expression(node)
        if not isinstance(index, int) or isinstance(index, bool):
            raise self.fail(
                node,
                "components of vectors, matrices and tuples are indexed by constants",
                "an unrolled loop, `for k in static(3):`, or a local array",
            )
        if not -size <= index < size:
            raise self.fail(node, f"index {index} is out of range: there are {size}", f"0 ... {size - 1}")
        return index % size

    def index_of(self, array: ArrayTerm, node: ast.expr) -> Value:
        """The index expression of an array access."""
        name = array.ref.name
        if isinstance(node, ast.Slice):
            raise self.fail(node, "slices are not part of the kernel language", "a loop over `range`")
        if isinstance(node, ast.Tuple):
            hint = f"{name}[i * columns + j]"
            if issubclass(array.element, types._Numbers):
                hint = f"{name}[i] and then its component, {name}[i].{array.element.fields[0][0]}"
            raise self.fail(node, "arrays have one index", hint)
        index = self.expression(node)
        if isinstance(index, int) and index < 0:
            end = array.size if array.size is not None else f"len({name})"
            raise self.fail(node, "arrays are not indexed from their end", f"{name}[{end} - {-index}]")
        if isinstance(index, int) and array.size is not None and index >= array.size:
            raise self.fail(node, f"index {index} is out of range: there are {array.size}", f"0 ... {array.size - 1}")
        return self.as_kind(index, "i", node, f"an index of {name!r}")

    def load(self, array: ArrayTerm, index: Value, node: ast.AST) -> Any:
        """Read one element."""
        array.ref.read = True
        results = [self.builder.result(kind) for kind in array.ref.kinds]
        self.builder.append(Load(array.ref, index, results, self.line_of(node)))
        return results[0] if issubclass(array.element, types.Scalar) else Compound(array.element, results)

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(self.expression(e) for e in node.elts)

    # -- operators ----------------------------------------------------------------------------------------------

    def _binop(self, node: ast.BinOp) -> Any:
        left, right = self.expression(node.left), self.expression(node.right)
        return self.binary(node.op, left, right, node)

    def binary(self, op: ast.operator, left: Any, right: Any, node: ast.AST) -> Any:
        """Apply a binary operation to translated operands."""
        if isinstance(op, ast.Pow):
            return self.power(left, right, node)
        if isinstance(op, ast.MatMult):
            return self.matmul(left, right, node)
        if type(op) not in BINARY:
            symbol, hint = diagnostics.OPERATORS.get(type(op), (type(op).__name__, "+ - * / // % ** @"))
            raise self.fail(self.operator_of(node), f"{symbol} is not part of the kernel language", hint)
        return self.arithmetic(BINARY[type(op)], left, right, node)

    def arithmetic(self, op: str, left: Any, right: Any, node: ast.AST) -> Any:
        """+ - * / // % on numbers, vectors, matrices and structs with operators."""
        if isinstance(left, _CONSTANTS) and isinstance(right, _CONSTANTS):
            return self.fold(op, left, right, node)
        if is_number(left) and is_number(right):
            return self.scalar_arithmetic(op, left, right, node)
        method = self.operator_method(op, left, right, node)
        if method is not None:
            return method
        linear = isinstance(left, Compound) and isinstance(right, Compound) and left.type is right.type
        if linear and op in ("add", "sub") and issubclass(left.type, types._Numbers):
            pairs = zip(left.scalars, right.scalars, strict=True)
            return Compound(left.type, [self.builder.op(op, a, b) for a, b in pairs])
        vector, scale = (right, left) if op == "mul" and is_number(left) else (left, right)
        if op in ("mul", "div") and isinstance(vector, Compound) and is_number(scale):
            if issubclass(vector.type, types._Numbers) and symbols.structure(scale) != "b":
                return Compound(vector.type, [self.scalar_arithmetic(op, a, scale, node) for a in vector.scalars])
        what = f"{describe(left)} {_SYMBOLS[op]} {describe(right)} is not supported"
        hint = diagnostics.for_operands(op, _METHODS.get(op, "for it"), left, right)
        raise self.fail(self.operator_of(node), what, hint)

    def fold(self, op: str, left: Any, right: Any, node: ast.AST) -> Any:
        """Arithmetic of constants, evaluated during translation."""
        self.refuse_zero(op, right, node)
        try:
            found = _FOLD[op](left, right)
        except (ArithmeticError, ValueError):
            found = None
        if found is None or isinstance(found, complex):
            what = f"{left} {_SYMBOLS[op]} {right} is not a real number"
            raise self.fail(self.operator_of(node), what, "constants with a real result")
        return found

    def refuse_zero(self, op: str, right: Any, node: ast.AST) -> None:
        """Fail for a division by a constant 0."""
        if op in ("div", "idiv", "imod") and isinstance(right, _CONSTANTS) and right == 0:
            raise self.fail(self.operator_of(node), "division by the constant 0", "a divisor that is not 0")

    def scalar_arithmetic(self, op: str, left: Any, right: Any, node: ast.AST) -> Value:
        """Arithmetic of two scalars: Int with Int gives Int, otherwise Float."""
        kinds = {symbols.structure(left), symbols.structure(right)}
        if "b" in kinds:
            hint = "`1.0 if condition else 0.0`; join conditions with `and`, `or`"
            raise self.fail(self.operator_of(node), f"Bool cannot be used with {_SYMBOLS[op]}", hint)
        self.refuse_zero(op, right, node)
        if op in ("idiv", "imod") and "f" in kinds:
            hint = "floor(x / y)" if op == "idiv" else "x - y * floor(x / y)"
            raise self.fail(self.operator_of(node), f"{_SYMBOLS[op]} is for Int", hint)
        kind = "f" if "f" in kinds or op == "div" else "i"
        return self.builder.op(op, *(self.scalar(t, kind, node) for t in (left, right)))

    def operator_method(self, op: str, left: Any, right: Any, node: ast.AST) -> Any:
        """The result of a struct's own operator, or None."""
        for owner, other, prefix in ((left, right, "__"), (right, left, "__r")):
            if isinstance(owner, Compound) and not issubclass(owner.type, types._Numbers):
                method = vars(owner.type).get(_METHODS.get(op, "").replace("__", prefix, 1))
                if method is not None:
                    return self.inline(method_of(method), [owner, other], node)
        return None

    def inline(self, function: Func, arguments: list[Any], node: ast.AST | None = None) -> Any:
        """Translate a function's body in place; defined in `calls`."""
        raise AssertionError("overridden")

    def matmul(self, left: Any, right: Any, node: ast.AST) -> Any:
        """Matrix times matrix or vector, or a struct's `@`."""
        method = self.operator_method("matmul", left, right, node)
        if method is not None:
            return method
        what = f"{describe(left)} @ {describe(right)} is not supported"
        if not (isinstance(left, Compound) and issubclass(left.type, types._Matrix) and isinstance(right, Compound)):
            vectors = all(isinstance(t, Compound) and issubclass(t.type, types._Vector) for t in (left, right))
            hint = "dot(a, b)" if vectors else "a matrix on the left: m @ v; v @ m is transpose(m) @ v"
            raise self.fail(self.operator_of(node), what, hint)
        n = left.type.size
        row = [left.scalars[i * n : i * n + n] for i in range(n)]
        if right.type is left.type:
            column = [right.scalars[j::n] for j in range(n)]
            return Compound(left.type, [self.sum_of_products(row[i], column[j]) for i in range(n) for j in range(n)])
        if right.type is left.type.vector:
            return Compound(right.type, [self.sum_of_products(r, right.scalars) for r in row])
        name = left.type.__name__
        raise self.fail(self.operator_of(node), what, f"{name} @ {left.type.vector.__name__} or {name} @ {name}")

    def sum_of_products(self, a: list[Value], b: list[Value]) -> Value:
        """a0 b0 + a1 b1 + ..., left to right."""
        total = self.builder.op("mul", a[0], b[0])
        for x, y in zip(a[1:], b[1:], strict=True):
            total = self.builder.op("add", total, self.builder.op("mul", x, y))
        return total

    def power(self, left: Any, right: Any, node: ast.AST) -> Any:
        """x ** n: products for small constant n, otherwise pow."""
        if isinstance(left, _CONSTANTS) and isinstance(right, _CONSTANTS):
            return self.fold("pow", left, right, node)
        if not is_number(left) or not is_number(right):
            hint = "dot(v, v)" if isinstance(left, Compound) else "a Float to the power of a number"
            raise self.fail(self.operator_of(node), f"{describe(left)} ** {describe(right)} is not supported", hint)
        if isinstance(right, int) and -8 <= right <= 8:
            if right == 0:
                return 1.0
            product = left
            for _ in range(abs(right) - 1):
                product = self.scalar_arithmetic("mul", product, left, node)
            return product if right > 0 else self.scalar_arithmetic("div", 1.0, product, node)
        base = self.as_kind(left, "f", node, "the base")
        if right == 0.5:
            return self.builder.op("sqrt", base)
        return self.builder.op("pow", base, self.as_kind(right, "f", node, "the exponent"))

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        operand = self.expression(node.operand)
        if isinstance(node.op, ast.Not):
            if isinstance(operand, bool):
                return not operand
            return self.builder.op("not", self.as_kind(operand, "b", node.operand, "the operand of `not`"))
        if isinstance(node.op, ast.Invert):
            raise self.fail(node, "~ is not part of the kernel language", "`not condition`")
        if isinstance(node.op, ast.UAdd) and (is_number(operand) or isinstance(operand, Compound)):
            return operand
        if isinstance(operand, _CONSTANTS):
            return -operand
        if isinstance(operand, Value) and operand.kind != "b":
            return self.builder.op("neg", operand)
        if isinstance(operand, Compound) and issubclass(operand.type, types._Numbers):
            return Compound(operand.type, [self.builder.op("neg", s) for s in operand.scalars])
        method = vars(operand.type).get("__neg__") if isinstance(operand, Compound) else None
        if method is not None:
            return self.inline(method_of(method), [operand], node)
        hint = "`-1.0 if condition else 0.0`" if is_number(operand) else diagnostics.for_number(operand)
        if isinstance(operand, Compound):
            hint = f"a method __neg__ in @struct {operand.type.__name__}"
        raise self.fail(node, f"-{describe(operand)} is not supported", hint)

    def _compare(self, node: ast.Compare) -> Any:
        place = self.operator_of(node)
        for op in node.ops:
            if type(op) not in _COMPARE:
                hint = "== or !=" if isinstance(op, (ast.Is, ast.IsNot)) else "`k == 1 or k == 2`, or a loop with `if`"
                raise self.fail(place, "values are compared with < <= > >= == != only", hint)
        values = [self.expression(e) for e in (node.left, *node.comparators)]
        tests: list[Any] = []
        for op, left, right in zip(node.ops, values, values[1:], strict=False):
            if not (is_number(left) and is_number(right)):
                wrong = right if is_number(left) else left
                hint = "components, a.x < b.x, or norm(a - b) < 1e-6"
                hint = hint if isinstance(wrong, Compound) else diagnostics.for_number(wrong)
                raise self.fail(place, f"{describe(left)} and {describe(right)} cannot be compared", hint)
            if isinstance(left, _CONSTANTS) and isinstance(right, _CONSTANTS):
                tests.append(bool(_COMPARE[type(op)][1](left, right)))
                continue
            shapes = {symbols.structure(left), symbols.structure(right)}
            if "b" in shapes:
                raise self.fail(place, "Bool values are not compared", "the condition itself; `not`, `and`, `or`")
            kind = "f" if "f" in shapes else "i"
            pair = [self.scalar(t, kind, node) for t in (left, right)]
            tests.append(self.builder.op(_COMPARE[type(op)][0], *pair, kind="b"))
        return self.all_of(tests, "and")

    def all_of(self, tests: list[Any], op: str) -> Any:
        """Join truth values, all of them computed."""
        result = tests[0]
        for test in tests[1:]:
            if isinstance(result, bool) and isinstance(test, bool):
                result = (result and test) if op == "and" else (result or test)
            else:
                pair = [symbols.as_kind(t, "b", self.builder) for t in (result, test)]
                result = self.builder.op(op, *pair, kind="b")
        return result

    def _boolop(self, node: ast.BoolOp) -> Any:
        op = "and" if isinstance(node.op, ast.And) else "or"
        last = node.values[0]
        result = self.expression(last)
        for following in node.values[1:]:
            if isinstance(result, bool):
                if result == (op == "or"):
                    return result
                result, last = self.expression(following), following
                continue
            self.as_kind(result, "b", last, f"an operand of `{op}`")
            result, last = self.short_circuit(op, result, following), following
        if not isinstance(result, bool):
            self.as_kind(result, "b", last, f"an operand of `{op}`")
        return result

    def short_circuit(self, op: str, left: Value, following: ast.expr) -> Any:
        """`a and b`: b is evaluated only where a holds, so that `i < n and x[i] > 0` never reads beyond n."""
        block = self.builder.push()
        right = self.as_kind(self.expression(following), "b", following, f"an operand of `{op}`")
        self.builder.pop()
        if all(isinstance(n, Value) for n in block.nodes):
            self.builder.block.nodes.extend(block.nodes)
            return self.builder.op(op, left, right, kind="b")
        decided = self.builder.const(op == "or", "b")
        result = self.builder.result("b")
        blocks = (block, Block()) if op == "and" else (Block(), block)
        pair = (right, decided) if op == "and" else (decided, right)
        self.branch(left, *blocks, [(result, *pair)])
        return result

    def branch(self, cond: Value, then: Block, orelse: Block, results: list[tuple[Value, Value, Value]]) -> None:
        """Append a branch; defined in `statements`."""
        raise AssertionError("overridden")
