"""Suggestions of what to write instead, for the messages of the translator."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
from typing import Any

from kinema.lang.frontend.symbols import ArrayTerm, Compound, RecordTerm, is_number
from kinema.lang.language import functions, types
from kinema.lang.language.functions import Intrinsic
from kinema.lang.language.markers import Func

# Names that kernels can import.
LANGUAGE = sorted({n for n, f in vars(functions).items() if isinstance(f, (Intrinsic, Func))} | set(types.__all__))

EXPRESSIONS: dict[type, tuple[str, str]] = {
    ast.List: ("a list", "vec3(...), a tuple, or local(Float, n)"),
    ast.ListComp: ("a comprehension", "a `for` loop that fills local(Float, n)"),
    ast.GeneratorExp: ("a generator", "a `for` loop with +="),
    ast.SetComp: ("a comprehension", "a `for` loop"),
    ast.DictComp: ("a comprehension", "a `for` loop"),
    ast.Dict: ("a dictionary", "a @struct, or a @record of arrays"),
    ast.Set: ("a set", "a tuple"),
    ast.Lambda: ("a lambda", "a @func at the top of the file"),
    ast.JoinedStr: ("a string", "debug with kernel.python(...), where print works"),
    ast.NamedExpr: (":=", "an assignment on a line of its own"),
    ast.Starred: ("*", "the values one by one"),
    ast.Yield: ("`yield`", "store results in an array argument"),
    ast.YieldFrom: ("`yield`", "store results in an array argument"),
}
STATEMENTS: dict[str, tuple[str, str]] = {
    "While": ("`while`", "`for k in range(most):` with `if ready: break`"),
    "With": ("`with`", "nothing: kernels have no resources to close"),
    "Try": ("`try`", "`if` with the condition that would fail"),
    "TryStar": ("`try`", "`if` with the condition that would fail"),
    "Raise": ("`raise`", "store a status in an array"),
    "Assert": ("`assert`", "nothing: KINEMA_CHECK=1 checks indices and finite values"),
    "Import": ("`import`", "the import at the top of the file"),
    "ImportFrom": ("`import`", "the import at the top of the file"),
    "Global": ("`global`", "an argument"),
    "Nonlocal": ("`nonlocal`", "an argument"),
    "Delete": ("`del`", "nothing: names end with the kernel"),
    "FunctionDef": ("a nested function", "a @func at the top of the file"),
    "ClassDef": ("a nested class", "a @struct at the top of the file"),
    "Match": ("`match`", "`if` and `elif`"),
}
OPERATORS: dict[type, tuple[str, str]] = {
    ast.BitAnd: ("&", "`and` between conditions"),
    ast.BitOr: ("|", "`or` between conditions"),
    ast.BitXor: ("^", "x ** y for powers, `a != b` for Ints"),
    ast.LShift: ("<<", "* with a power of two"),
    ast.RShift: (">>", "// with a power of two"),
}
_BUILTINS = {
    "print": "debug with kernel.python(...), where it works",
    "sum": "a `for` loop with +=",
    "round": "floor(x + 0.5)",
    "enumerate": "`for k in range(len(x)):` and x[k]",
    "zip": "`for k in range(len(x)):` and x[k]",
    "isinstance": "nothing: types are fixed when the kernel is compiled",
    "range": "`for k in range(n):`",
    "static": "`for k in static(n):`",
    "any": "a `for` loop with `or`",
    "all": "a `for` loop with `and`",
    "divmod": "// and %",
}


def resembling(name: str, known: Iterable[str]) -> str:
    """The known name that a misspelt one resembles, or nothing."""
    close = difflib.get_close_matches(name, list(known), 1, 0.75)
    return close[0] if close else ""


def for_name(name: str, known: Iterable[str]) -> str:
    """For an undefined name."""
    if name in LANGUAGE:
        return f"{name}, after `from kinema.lang import {name}`"
    visible = [n for n in (*known, *LANGUAGE) if not n.startswith(("_", "%"))]
    return resembling(name, visible) or "a name that the kernel or its module defines earlier"


def for_number(term: Any) -> str:
    """For a term where a number was expected."""
    if isinstance(term, ArrayTerm):
        return "an element, by its index" if term.ref.role == "local" else f"an element: {term.ref.name}[i]"
    if isinstance(term, RecordTerm):
        return f"one of its members: {', '.join(term.members)}"
    if isinstance(term, Compound):
        if issubclass(term.type, types._Matrix):
            return "one of its entries: m[0, 0]"
        name = "v" if issubclass(term.type, types._Vector) else "s"
        part = f"one of its components: {name}.{term.type.fields[0][0]}"  # type: ignore[attr-defined]
        return f"{part}, or norm(v)" if name == "v" else part
    if isinstance(term, tuple):
        return "one of its values, unpacked with `a, b = ...`"
    return "a call: name(...)" if callable(term) else "a number"


def for_member(base: RecordTerm, name: str) -> str:
    """For a member that a record does not have."""
    kind = base.type.__name__
    if name == "adj":
        return f"an argument of type {kind}.adj, given as the record's .adj in the program"
    if kind.endswith(".adj"):
        return f"one of {', '.join(base.members)}: only Float members have cotangents"
    return f"one of {', '.join(base.members)}"


def for_attribute(base: Any, name: str) -> str:
    """For an attribute that a term does not have."""
    if isinstance(base, ArrayTerm):
        if name in ("shape", "size", "length"):
            return f"len({base.ref.name})"
        return f"an element: {base.ref.name}[i]; arrays have no attributes"
    if name in LANGUAGE:
        return f"{name}(...), a function of kinema.lang"
    if isinstance(base, Compound):
        return "one of " + ", ".join(part for part, _ in base.type.fields)  # type: ignore[attr-defined]
    return "the number itself: it has no attributes" if is_number(base) else "a function of kinema.lang or a @func"


def for_operands(op: str, method: str, left: Any, right: Any) -> str:
    """For an operation that its operands do not support."""
    for term in (left, right):
        if not is_number(term) and not isinstance(term, Compound):
            return for_number(term)
        if isinstance(term, Compound) and not issubclass(term.type, types._Numbers):
            return f"a method {method} in @struct {term.type.__name__}"
    matrix = any(isinstance(t, Compound) and issubclass(t.type, types._Matrix) for t in (left, right))
    if op == "mul":
        return "a @ b for products of matrices" if matrix else "dot(a, b), cross(a, b) or outer(a, b)"
    if op == "div":
        return "inverse(m) @ v" if matrix else "components one by one: vec3(a.x / b.x, a.y / b.y, a.z / b.z)"
    return "two operands of the same type, e.g. v + vec3(1.0, 1.0, 1.0)"


def for_callee(name: str, callee: Any) -> str:
    """For something that kernels cannot call."""
    short = name.rpartition(".")[2]
    if "." not in name and short in _BUILTINS:
        return _BUILTINS[short]
    if short in LANGUAGE:
        return f"{short}(...) of kinema.lang"
    return "* to multiply" if is_number(callee) else "functions of kinema.lang or your own @func"


def for_annotation(kind: Any) -> str:
    """For an argument type that kernels do not take."""
    plain = {int: "Int", float: "Float", bool: "Bool", types.Array: "Array[Float], Array[vec3], ..."}
    if isinstance(kind, type) and kind in plain:
        return plain[kind]
    module = getattr(kind, "__module__", "")
    if module.startswith(("numpy", "torch")) or getattr(kind, "__origin__", kind) in (list, tuple):
        return "Array[Float], Array[vec3], ... for arrays; Float, vec3, ... for single values"
    return "Float, Int, vec3, Array[...], a @struct or a @record"


def for_element(kind: Any) -> str:
    """For an element type that arrays do not have."""
    return f"Array[{ {int: 'Int', float: 'Float', bool: 'Bool'}.get(kind, 'Float') }]"
