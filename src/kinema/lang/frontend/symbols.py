"""Terms: the meanings of names during translation, and how two of them merge where paths join."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kinema.lang.ir.ssa import ArrayRef, Builder, Value
from kinema.lang.language import types


@dataclass
class Compound:
    """A vector, matrix or struct: its type and its scalars."""

    type: type
    scalars: list[Value]


@dataclass
class ArrayTerm:
    """An array argument or local array; `size` is the length of a local array if it is constant."""

    ref: ArrayRef
    element: type
    size: int | None = None


@dataclass
class RecordTerm:
    """A record: member name -> term; `made` in the kernel, otherwise an argument."""

    type: type
    members: dict[str, Any]
    made: bool = False


@dataclass
class BoundMethod:
    """A method of a struct or a record, with the value it was read from."""

    function: Any
    owner: Any


@dataclass
class Undefined:
    """A name without a value here, and the reason."""

    reason: str


class Mismatch(Exception):
    """Two terms cannot be merged; the message says why."""


KIND_NAMES = {"f": "Float", "i": "Int", "b": "Bool"}


def describe(term: Any) -> str:
    """The type of a term in the user's vocabulary."""
    if isinstance(term, Value):
        return KIND_NAMES[term.kind]
    if isinstance(term, bool):
        return "Bool"
    if isinstance(term, int):
        return "Int"
    if isinstance(term, float):
        return "Float"
    if isinstance(term, Compound):
        return term.type.__name__
    if isinstance(term, ArrayTerm):
        return f"Array[{term.element.__name__}]"
    if isinstance(term, RecordTerm):
        return term.type.__name__
    if isinstance(term, tuple):
        return f"a tuple of {len(term)}"
    if term is None:
        return "None"
    name = getattr(term, "__name__", type(term).__name__)
    if isinstance(term, type):
        return f"the type {name}"
    if isinstance(term, ModuleType):
        return f"the module {name}"
    if isinstance(term, BoundMethod):
        return f"the method {term.function.__name__}"
    return f"the function {name}" if callable(term) else name


def is_number(term: Any) -> bool:
    """Whether the term is one scalar: a value of the kernel or a Python constant."""
    return isinstance(term, (Value, bool, int, float))


def structure(term: Any) -> Any:
    """A hashable description of a mergeable term's shape, or None. Python ints are 'weak': they may become Float."""
    if isinstance(term, Value):
        return term.kind
    if isinstance(term, bool):
        return "b"
    if isinstance(term, int):
        return "weak"
    if isinstance(term, float):
        return "f"
    if isinstance(term, Compound):
        return term.type
    if isinstance(term, tuple):
        parts = tuple(structure(t) for t in term)
        return None if None in parts else parts
    return None


def unify(a: Any, b: Any) -> Any:
    """The common shape of two shapes; raises Mismatch."""
    if a == b:
        return a
    if {a, b} <= {"weak", "f"}:
        return "f"
    if {a, b} <= {"weak", "i"}:
        return "i"
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(unify(x, y) for x, y in zip(a, b, strict=True))
    raise Mismatch(f"{_shape_name(a)} on one path and {_shape_name(b)} on the other")


def settle(shape: Any) -> Any:
    """Turn the weak integers of a shape into Int."""
    if isinstance(shape, tuple):
        return tuple(settle(s) for s in shape)
    return "i" if shape == "weak" else shape


def _shape_name(shape: Any) -> str:
    if isinstance(shape, tuple):
        return f"a tuple of {len(shape)}"
    if isinstance(shape, type):
        return shape.__name__
    return {"weak": "Int", None: "no value"}.get(shape) or KIND_NAMES[shape]


def kinds(shape: Any) -> str:
    """Scalar kinds of a shape without weak integers."""
    if isinstance(shape, tuple):
        return "".join(kinds(s) for s in shape)
    return types.flatten(shape) if isinstance(shape, type) else shape


def scalars(term: Any, shape: Any, builder: Builder) -> list[Value]:
    """The scalars of a term, converted to `shape`."""
    if isinstance(shape, tuple):
        return [v for t, s in zip(term, shape, strict=True) for v in scalars(t, s, builder)]
    if isinstance(shape, type):
        return list(term.scalars)
    return [as_kind(term, shape, builder)]


def rebuild(shape: Any, values: list[Value]) -> Any:
    """The inverse of `scalars`; consumes from the front of `values`."""
    if isinstance(shape, tuple):
        return tuple(rebuild(s, values) for s in shape)
    if isinstance(shape, type):
        n = len(types.flatten(shape))
        taken = [values.pop(0) for _ in range(n)]
        return Compound(shape, taken)
    return values.pop(0)


def as_kind(term: Any, kind: str, builder: Builder) -> Value:
    """A number as a scalar of the given kind (Int becomes Float where Float is wanted)."""
    if not isinstance(term, Value):
        return builder.const(term, kind)
    if term.kind == "i" and kind == "f":
        return builder.op("tofloat", term, kind="f")
    if term.kind != kind:
        raise Mismatch(f"expected {KIND_NAMES[kind]}, got {KIND_NAMES[term.kind]}")
    return term
