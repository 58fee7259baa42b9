"""Expressions of a kernel's source, translated to values of the intermediate form."""

from __future__ import annotations

import ast
import builtins
import types as python_types
from collections.abc import Callable
from typing import Any

from kinema.errors import KernelError
from kinema.lang import functions, terms, types
from kinema.lang.functions import Intrinsic
from kinema.lang.ir import Block, Builder, Load, Value
from kinema.lang.markers import Func
from kinema.lang.terms import ArrayTerm, BoundMethod, Compound, RecordTerm, Undefined, describe, is_number

_BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "idiv", ast.Mod: "imod"}
_METHODS = {"add": "__add__", "sub": "__sub__", "mul": "__mul__", "div": "__truediv__", "matmul": "__matmul__"}
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "idiv": "//", "imod": "%", "matmul": "@"}
_COMPARE = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
_CONSTANTS = (bool, int, float)


class Expressions:
    """Translates expressions; statements and calls of functions are in `frontend.Translator`."""

    builder: Builder
    env: dict[str, Any]
    globals: dict[str, Any]
    file: str
    lines: list[str]
    first_line: int

    # -- errors -------------------------------------------------------------------------------------------------

    def fail(self, node: ast.AST, what: str, hint: str = "") -> KernelError:
        """The error for a place in the source."""
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0)
        source = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return KernelError(
            what, file=self.file, line=line + self.first_line - 1, column=column + 1, source=source, fix=hint or None
        )

    # -- entry --------------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> Any:
        """Translate one expression to a term."""
        self.builder.line = getattr(node, "lineno", 1) + self.first_line - 1
        handler = getattr(self, f"_{type(node).__name__.lower()}", None)
        if handler is None:
            name, hint = _REFUSED.get(type(node), (type(node).__name__, ""))
            raise self.fail(node, f"{name} is not part of the kernel language", hint)
        return handler(node)

    def number(self, node: ast.expr, kind: str, role: str) -> Value:
        """Translate an expression that must be a scalar of one kind."""
        return self.as_kind(self.expression(node), kind, node, role)

    def as_kind(self, term: Any, kind: str, node: ast.AST, role: str) -> Value:
        """Convert a term to a scalar, or fail with what was expected."""
        wanted = terms.KIND_NAMES[kind]
        if isinstance(term, Undefined):
            raise self.fail(node, term.reason)
        if not is_number(term):
            raise self.fail(node, f"{role} must be {wanted}, got {describe(term)}")
        if kind == "i" and (isinstance(term, float) or getattr(term, "kind", "") == "f"):
            raise self.fail(node, f"{role} must be Int, got Float", "convert with Int(...), which truncates")
        if kind == "b" and not (isinstance(term, bool) or getattr(term, "kind", "") == "b"):
            raise self.fail(node, f"{role} must be Bool, got {describe(term)}", "compare explicitly, e.g. `x != 0`")
        if kind == "f" and (isinstance(term, bool) or getattr(term, "kind", "") == "b"):
            raise self.fail(node, f"{role} must be Float, got Bool", "write `1.0 if condition else 0.0`")
        return terms.as_kind(term, kind, self.builder)

    # -- leaves -------------------------------------------------------------------------------------------------

    def _constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, _CONSTANTS):
            return node.value
        raise self.fail(
            node, f"a {type(node.value).__name__} has no meaning in a kernel", "use numbers, True and False"
        )

    def _name(self, node: ast.Name) -> Any:
        if node.id in self.env:
            found = self.env[node.id]
            if isinstance(found, Undefined):
                raise self.fail(node, f"{node.id!r} {found.reason}", f"give {node.id!r} a value before")
            return found
        if node.id in self.globals:
            return self.outside(node, self.globals[node.id], node.id)
        if hasattr(builtins, node.id):
            return self.outside(node, getattr(builtins, node.id), node.id)
        raise self.fail(node, f"{node.id!r} is not defined", "define it in the kernel or as a constant of the module")

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
        if hasattr(value, "__hash__") and value.__hash__ is not None and value in functions.SYNONYMS:
            return functions.SYNONYMS[value]
        known = (Intrinsic, Func, type, python_types.ModuleType, python_types.BuiltinFunctionType)
        if isinstance(value, (*known, python_types.FunctionType)):
            return value
        kind = f"{type(value).__module__}.{type(value).__name__}"
        raise self.fail(
            node,
            f"{name!r} is a {kind} of the surrounding Python",
            "pass it as an argument (Array[Float], Float, ...); only numbers, functions and types can be used from outside",
        )

    # -- access -------------------------------------------------------------------------------------------------

    def _attribute(self, node: ast.Attribute) -> Any:
        base = self.expression(node.value)
        if isinstance(base, python_types.ModuleType):
            if not hasattr(base, node.attr):
                raise self.fail(node, f"module {base.__name__} has no {node.attr!r}")
            return self.outside(node, getattr(base, node.attr), node.attr)
        if isinstance(base, RecordTerm):
            if node.attr not in base.members:
                raise self.fail(node, f"{base.type.__name__} has no {node.attr!r}", f"it has {', '.join(base.members)}")
            return self.member(base.members[node.attr])
        if isinstance(base, Compound):
            return self.field(base, node)
        if isinstance(base, type) and hasattr(base, node.attr):
            return self.outside(node, getattr(base, node.attr), node.attr)
        raise self.fail(node, f"{describe(base)} has no attribute {node.attr!r}", _attribute_hint(base, node.attr))

    def member(self, term: Any) -> Any:
        """A record's member: value arguments are read when they are used."""
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
        names = ", ".join(name for name, _ in base.type.fields)  # type: ignore[attr-defined]
        raise self.fail(node, f"{base.type.__name__} has no component {node.attr!r}", f"it has {names}")

    def _subscript(self, node: ast.Subscript) -> Any:
        base = self.expression(node.value)
        if isinstance(node.slice, ast.Slice):
            raise self.fail(
                node.slice, "slices are not part of the kernel language", "loop over the indices with `range`"
            )
        if isinstance(base, ArrayTerm):
            return self.load(base, self.index_of(base, node.slice), node)
        if isinstance(base, tuple):
            return base[self.static_index(node.slice, len(base))]
        if isinstance(base, Compound) and issubclass(base.type, types._Matrix):
            if not (isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2):
                raise self.fail(node, "a matrix needs two indices", "write m[i, j]; use rows_of(m) for its rows")
            n = base.type.size
            i, j = (self.static_index(part, n) for part in node.slice.elts)
            return base.scalars[i * n + j]
        if isinstance(base, Compound) and issubclass(base.type, types._Vector):
            return base.scalars[self.static_index(node.slice, base.type.size)]
        raise self.fail(node, f"{describe(base)} cannot be indexed")

    def static_index(self, node: ast.expr, size: int) -> int:
        """An index into a vector, matrix or tuple: a constant within range."""
        index = self.expression(node)
        if not isinstance(index, int) or isinstance(index, bool):
            raise self.fail(
                node,
                "components of vectors and matrices are indexed by constants",
                "unroll the loop with `for k in static(3)`, or use a local array",
            )
        if not -size <= index < size:
            raise self.fail(node, f"index {index} is out of range: there are {size} components")
        return index % size

    def index_of(self, array: ArrayTerm, node: ast.expr) -> Value:
        """The index expression of an array access."""
        if isinstance(node, ast.Tuple):
            raise self.fail(node, "arrays have one index", f"write {array.ref.name}[i * columns + j]")
        return self.number(node, "i", f"an index of {array.ref.name!r}")

    def load(self, array: ArrayTerm, index: Value, node: ast.AST) -> Any:
        """Read one element."""
        array.ref.read = True
        results = [self.builder.result(kind) for kind in array.ref.kinds]
        line = getattr(node, "lineno", 1) + self.first_line - 1
        self.builder.append(Load(array.ref, index, results, line))
        return results[0] if issubclass(array.element, types.Scalar) else Compound(array.element, results)

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(self.expression(e) for e in node.elts)

    # -- operators ----------------------------------------------------------------------------------------------

    def _binop(self, node: ast.BinOp) -> Any:
        left, right = self.expression(node.left), self.expression(node.right)
        if isinstance(node.op, ast.Pow):
            return self.power(left, right, node)
        if isinstance(node.op, ast.MatMult):
            return self.matmul(left, right, node)
        if type(node.op) not in _BINARY:
            raise self.fail(node, f"operator {type(node.op).__name__} is not part of the kernel language")
        return self.arithmetic(_BINARY[type(node.op)], left, right, node)

    def arithmetic(self, op: str, left: Any, right: Any, node: ast.AST) -> Any:
        """+ - * / // % on numbers, vectors, matrices and structs with operators."""
        if isinstance(left, _CONSTANTS) and isinstance(right, _CONSTANTS):
            return self.fold(op, left, right, node)
        if is_number(left) and is_number(right):
            return self.scalar_arithmetic(op, left, right, node)
        method = self.operator_method(op, left, right)
        if method is not None:
            return method
        linear = isinstance(left, Compound) and isinstance(right, Compound) and left.type is right.type
        if linear and op in ("add", "sub") and issubclass(left.type, types._Numbers):
            pairs = zip(left.scalars, right.scalars, strict=True)
            return Compound(left.type, [self.builder.op(op, a, b) for a, b in pairs])
        if op == "mul" and is_number(left):
            left, right = right, left
        if op in ("mul", "div") and isinstance(left, Compound) and is_number(right):
            if issubclass(left.type, types._Numbers) and not isinstance(right, bool):
                return Compound(left.type, [self.scalar_arithmetic(op, a, right, node) for a in left.scalars])
        hint = "use dot(a, b), cross(a, b) or outer(a, b)" if op == "mul" else ""
        if op == "mul" and isinstance(left, Compound) and issubclass(left.type, types._Matrix):
            hint = "matrix products are written a @ b"
        raise self.fail(node, f"{describe(left)} {_SYMBOLS[op]} {describe(right)} has no meaning", hint)

    def fold(self, op: str, left: Any, right: Any, node: ast.AST) -> Any:
        """Arithmetic of constants, done while translating."""
        if right == 0 and op in ("div", "idiv", "imod"):
            raise self.fail(node, "division by the constant 0")
        table: dict[str, Callable[[Any, Any], Any]] = {
            "add": lambda a, b: a + b,
            "sub": lambda a, b: a - b,
            "mul": lambda a, b: a * b,
            "div": lambda a, b: a / b,
            "idiv": lambda a, b: a // b,
            "imod": lambda a, b: a % b,
        }
        return table[op](left, right)

    def scalar_arithmetic(self, op: str, left: Any, right: Any, node: ast.AST) -> Value:
        """Arithmetic of two scalars: Int with Int stays Int, otherwise Float."""
        kinds = {terms.structure(left), terms.structure(right)}
        if "b" in kinds:
            raise self.fail(node, f"Bool cannot be used with {_SYMBOLS[op]}", "write `1.0 if condition else 0.0`")
        if op in ("idiv", "imod"):
            if "f" in kinds:
                raise self.fail(node, f"{_SYMBOLS[op]} is for Int", "use floor(x / y) for Float")
            return self.builder.op(op, *(terms.as_kind(t, "i", self.builder) for t in (left, right)))
        kind = "f" if "f" in kinds or op == "div" else "i"
        return self.builder.op(op, *(terms.as_kind(t, kind, self.builder) for t in (left, right)))

    def operator_method(self, op: str, left: Any, right: Any) -> Any:
        """The result of a struct's own operator, or None."""
        for owner, other, prefix in ((left, right, "__"), (right, left, "__r")):
            if isinstance(owner, Compound) and not issubclass(owner.type, types._Numbers):
                method = vars(owner.type).get(_METHODS.get(op, "").replace("__", prefix, 1))
                if method is not None:
                    return self.inline(Func(method), [owner, other])
        return None

    def inline(self, function: Func, arguments: list[Any]) -> Any:
        """Translate the body of a function in place; defined in `frontend`."""
        raise AssertionError("overridden")

    def matmul(self, left: Any, right: Any, node: ast.AST) -> Any:
        """Matrix times matrix or vector, or a struct's `@`."""
        method = self.operator_method("matmul", left, right)
        if method is not None:
            return method
        if not (isinstance(left, Compound) and issubclass(left.type, types._Matrix) and isinstance(right, Compound)):
            raise self.fail(node, f"{describe(left)} @ {describe(right)} has no meaning", "use dot(a, b) for vectors")
        n = left.type.size
        row = [left.scalars[i * n : i * n + n] for i in range(n)]
        if right.type is left.type:
            column = [right.scalars[j::n] for j in range(n)]
            return Compound(left.type, [self.sum_of_products(row[i], column[j]) for i in range(n) for j in range(n)])
        if right.type is left.type.vector:
            return Compound(right.type, [self.sum_of_products(r, right.scalars) for r in row])
        raise self.fail(node, f"{describe(left)} @ {describe(right)} has no meaning: sizes differ")

    def sum_of_products(self, a: list[Value], b: list[Value]) -> Value:
        """a0 b0 + a1 b1 + ..., left to right."""
        total = self.builder.op("mul", a[0], b[0])
        for x, y in zip(a[1:], b[1:], strict=True):
            total = self.builder.op("add", total, self.builder.op("mul", x, y))
        return total

    def power(self, left: Any, right: Any, node: ast.AST) -> Any:
        """x ** n: products for small constant n, otherwise pow."""
        if isinstance(left, _CONSTANTS) and isinstance(right, _CONSTANTS):
            return left**right
        if not is_number(left) or not is_number(right):
            raise self.fail(node, f"{describe(left)} ** {describe(right)} has no meaning")
        if isinstance(right, int) and -8 <= right <= 8:
            if right == 0:
                return 1.0
            product = left
            for _ in range(abs(right) - 1):
                product = self.scalar_arithmetic("mul", product, left, node)
            return product if right > 0 else self.scalar_arithmetic("div", 1.0, product, node)
        if right == 0.5:
            return self.builder.op("sqrt", self.as_kind(left, "f", node, "the base"))
        return self.builder.op(
            "pow", self.as_kind(left, "f", node, "the base"), self.as_kind(right, "f", node, "the exponent")
        )

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        operand = self.expression(node.operand)
        if isinstance(node.op, ast.Not):
            if isinstance(operand, bool):
                return not operand
            return self.builder.op("not", self.as_kind(operand, "b", node, "the operand of `not`"))
        if isinstance(node.op, ast.UAdd):
            return operand
        if isinstance(node.op, ast.USub):
            if isinstance(operand, _CONSTANTS):
                return -operand
            if isinstance(operand, Compound) and not issubclass(operand.type, types._Numbers):
                method = vars(operand.type).get("__neg__")
                if method is not None:
                    return self.inline(Func(method), [operand])
            elif isinstance(operand, Compound):
                return Compound(operand.type, [self.builder.op("neg", s) for s in operand.scalars])
            if is_number(operand) and operand.kind != "b":
                return self.builder.op("neg", operand)
        raise self.fail(node, f"this operator has no meaning for {describe(operand)}")

    def _compare(self, node: ast.Compare) -> Any:
        values = [self.expression(e) for e in (node.left, *node.comparators)]
        tests: list[Any] = []
        for op, left, right in zip(node.ops, values, values[1:], strict=False):
            if type(op) not in _COMPARE:
                raise self.fail(node, "only < <= > >= == != compare values", "spell out the condition")
            if not (is_number(left) and is_number(right)):
                raise self.fail(
                    node, f"{describe(left)} and {describe(right)} cannot be compared", "compare components"
                )
            if isinstance(left, _CONSTANTS) and isinstance(right, _CONSTANTS):
                tests.append(_fold_compare(_COMPARE[type(op)], left, right))
                continue
            shapes = {terms.structure(left), terms.structure(right)}
            if "b" in shapes:
                raise self.fail(node, "Bool values are not compared", "use `and`, `or`, `not`")
            kind = "f" if "f" in shapes else "i"
            pair = [terms.as_kind(t, kind, self.builder) for t in (left, right)]
            tests.append(self.builder.op(_COMPARE[type(op)], *pair, kind="b"))
        return self.all_of(tests, "and")

    def all_of(self, tests: list[Any], op: str) -> Any:
        """Join truth values that have all been computed."""
        result = tests[0]
        for test in tests[1:]:
            if isinstance(result, bool) and isinstance(test, bool):
                result = (result and test) if op == "and" else (result or test)
            else:
                pair = [terms.as_kind(t, "b", self.builder) for t in (result, test)]
                result = self.builder.op(op, *pair, kind="b")
        return result

    def _boolop(self, node: ast.BoolOp) -> Any:
        op = "and" if isinstance(node.op, ast.And) else "or"
        result = self.expression(node.values[0])
        for following in node.values[1:]:
            if isinstance(result, bool):
                if result == (op == "or"):
                    return result
                result = self.expression(following)
                continue
            self.as_kind(result, "b", node, f"an operand of `{op}`")
            result = self.short_circuit(op, result, following)
        if not isinstance(result, bool):
            self.as_kind(result, "b", node, f"an operand of `{op}`")
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
        """Append a branch; defined in `frontend`."""
        raise AssertionError("overridden")


def _fold_compare(op: str, a: Any, b: Any) -> bool:
    table = {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b, "eq": a == b, "ne": a != b}
    return table[op]


def _attribute_hint(base: Any, name: str) -> str:
    if isinstance(base, ArrayTerm):
        return (
            "index the array first; its length is len(array)" if name in ("shape", "size") else "index the array first"
        )
    return ""


_REFUSED: dict[type, tuple[str, str]] = {
    ast.List: ("a list", "use vec3(...), a tuple, or local(Float, n)"),
    ast.ListComp: ("a comprehension", "write a `for` loop"),
    ast.GeneratorExp: ("a generator", "write a `for` loop"),
    ast.SetComp: ("a comprehension", "write a `for` loop"),
    ast.DictComp: ("a comprehension", "write a `for` loop"),
    ast.Dict: ("a dictionary", "declare a @struct"),
    ast.Set: ("a set", "use a tuple"),
    ast.Lambda: ("a lambda", "define a @func"),
    ast.JoinedStr: ("a string", "debug with kernel.python(...), where print works"),
    ast.NamedExpr: (":=", "assign on a line of its own"),
    ast.Starred: ("*", "name the values one by one"),
    ast.Await: ("await", ""),
    ast.Yield: ("yield", "return the values as a tuple"),
    ast.YieldFrom: ("yield", "return the values as a tuple"),
}
