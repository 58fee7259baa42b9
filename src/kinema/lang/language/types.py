"""The types of the kernel language, which are also its values in plain Python.

A type is a class. `vec3`, `mat33` or a user's `@struct` describe to the compiler the scalars of a value, and in
`kernel.python(...)` their instances *are* the values, so the same source runs compiled and in plain Python.

Every value type flattens to a tuple of scalars: Float `f`, Int `i` or Bool `b`. The compiler works on these.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from types import FunctionType
from typing import Any, ClassVar

import numpy as np

__all__ = [
    "Array",
    "Bool",
    "Float",
    "Index",
    "Int",
    "ivec2",
    "ivec3",
    "ivec4",
    "mat22",
    "mat33",
    "record",
    "struct",
    "vec2",
    "vec3",
    "vec4",
]


# Type of Float(...) in plain Python; a run of a kernel sets it from the dtype of its arrays.
precision: ContextVar[type[np.floating[Any]]] = ContextVar("precision", default=np.float64)


class Scalar:
    """Base of the scalar types; `kind` is the letter the compiler uses for them."""

    kind: ClassVar[str]


class Float(Scalar):
    """A real number: 32 or 64 bits, chosen when a program is compiled."""

    kind = "f"

    def __new__(cls, value: Any) -> Any:
        """Convert a number to Float."""
        return value if isinstance(value, np.floating) else precision.get()(value)


class Int(Scalar):
    """An integer: indices, counts, table entries. Has no derivative."""

    kind = "i"

    def __new__(cls, value: Any) -> Any:
        """Convert a number to Int (truncates towards zero)."""
        return int(value)


class Bool(Scalar):
    """A truth value, the result of a comparison."""

    kind = "b"

    def __new__(cls, value: Any) -> Any:
        """Convert to Bool."""
        return bool(value)


class Index:
    """The first argument of a kernel that runs once per element of a domain; an Int inside the kernel."""


class Value:
    """Base of the compound value types. `fields` names the parts and their types."""

    fields: ClassVar[tuple[tuple[str, type], ...]] = ()
    __array_ufunc__ = None  # numpy scalars leave `scalar * value` to the value

    def __init__(self, *parts: Any) -> None:
        if len(parts) != len(self.fields):
            raise TypeError(f"{type(self).__name__} takes {len(self.fields)} values, got {len(parts)}")
        self.parts = list(parts)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.parts))})"

    def __iter__(self) -> Iterator[Any]:
        return iter(self.parts)

    def __iadd__(self, other: Any) -> Any:
        """Make `array[i] += value` work for structs without `+`: scalar by scalar."""
        return self + other if hasattr(self, "__add__") else _elementwise(operator.iadd)(self, other)

    def __isub__(self, other: Any) -> Any:
        return self - other if hasattr(self, "__sub__") else _elementwise(operator.isub)(self, other)


def _elementwise(op: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(self: Any, other: Any) -> Any:
        if isinstance(other, type(self)):
            return type(self)(*map(op, self.parts, other.parts))
        return NotImplemented

    return apply


class _Numbers(Value):
    """A value of equal scalars with linear arithmetic: vectors and matrices."""

    size: ClassVar[int]

    __add__ = _elementwise(operator.add)
    __sub__ = _elementwise(operator.sub)

    def __neg__(self) -> Any:
        return type(self)(*[-a for a in self.parts])

    def __pos__(self) -> Any:
        return self

    def __mul__(self, scale: Any) -> Any:
        if isinstance(scale, Value):
            return NotImplemented
        return type(self)(*[a * scale for a in self.parts])

    def __rmul__(self, scale: Any) -> Any:
        return type(self)(*[scale * a for a in self.parts])

    def __truediv__(self, scale: Any) -> Any:
        return type(self)(*[a / scale for a in self.parts])


class _Vector(_Numbers):
    def __getitem__(self, i: int) -> Any:
        return self.parts[i]

    def __setitem__(self, i: int, value: Any) -> None:
        self.parts[i] = value

    def __len__(self) -> int:
        return len(self.parts)

    def __getattr__(self, name: str) -> Any:
        for i, (field, _) in enumerate(self.fields):
            if field == name:
                return self.parts[i]
        raise AttributeError(f"{type(self).__name__} has no component {name!r}")


def _axes(size: int, scalar: type) -> tuple[tuple[str, type], ...]:
    return tuple((axis, scalar) for axis in "xyzw"[:size])


class vec2(_Vector):
    """Two real numbers: components x, y."""

    fields = _axes(2, Float)
    size = 2


class vec3(_Vector):
    """Three real numbers: components x, y, z."""

    fields = _axes(3, Float)
    size = 3


class vec4(_Vector):
    """Four real numbers: components x, y, z, w."""

    fields = _axes(4, Float)
    size = 4


class ivec2(_Vector):
    """Two integers: components x, y."""

    fields = _axes(2, Int)
    size = 2


class ivec3(_Vector):
    """Three integers: components x, y, z."""

    fields = _axes(3, Int)
    size = 3


class ivec4(_Vector):
    """Four integers: components x, y, z, w."""

    fields = _axes(4, Int)
    size = 4


class _Matrix(_Numbers):
    vector: ClassVar[type]

    def __getitem__(self, at: tuple[int, int]) -> Any:
        return self.parts[at[0] * self.size + at[1]]

    def __len__(self) -> int:
        return self.size

    def __matmul__(self, other: Any) -> Any:
        n = self.size
        if isinstance(other, _Matrix):
            sums = [_dot([self[i, k] for k in range(n)], [other[k, j] for k in range(n)]) for i, j in _pairs(n)]
            return type(self)(*sums)
        return self.vector(*[_dot([self[i, k] for k in range(n)], other.parts) for i in range(n)])


def _pairs(n: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(n) for j in range(n)]


def _dot(a: Iterable[Any], b: Iterable[Any]) -> Any:
    products = [x * y for x, y in zip(a, b, strict=True)]
    total = products[0]
    for p in products[1:]:
        total = total + p
    return total


def _entries(size: int) -> tuple[tuple[str, type], ...]:
    return tuple((f"m{i}{j}", Float) for i, j in _pairs(size))


class mat22(_Matrix):
    """A 2 x 2 matrix, given row by row; element m[i, j]; `@` multiplies."""

    fields = _entries(2)
    size = 2
    vector = vec2


class mat33(_Matrix):
    """A 3 x 3 matrix, given row by row; element m[i, j]; `@` multiplies."""

    fields = _entries(3)
    size = 3
    vector = vec3


class Array:
    """`Array[T]`: elements of type T in memory, read and written by index."""

    element: ClassVar[type]

    def __class_getitem__(cls, element: type) -> type:
        """The array type of `element`."""
        return type(f"Array[{element.__name__}]", (Array,), {"element": element})


def struct(cls: type) -> type:
    """Declare a value type from annotated fields; its methods, including operators, are functions of the language.

    ```python
    @struct
    class Quat:
        w: Float
        v: vec3

        def __mul__(self, other):
            return Quat(self.w * other.w - dot(self.v, other.v), ...)
    ```
    """
    fields = tuple(_annotations(cls).items())
    if not fields:
        raise TypeError(f"struct {cls.__name__} has no fields; write e.g. `x: Float` in its body")
    for name, kind in fields:
        if not is_value_type(kind):
            raise TypeError(f"struct {cls.__name__}: field {name!r} has type {kind!r}; use Float, Int, Bool, vec3, ...")
    methods = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
    made = type(cls.__name__, (Value,), {**methods, "fields": fields, "__qualname__": cls.__qualname__})
    for i, (name, _) in enumerate(fields):
        setattr(made, name, _part(i))
    return made


def _part(i: int) -> property:
    def get(self: Value) -> Any:
        return self.parts[i]

    return property(get)


class _Adjoint:
    """For a record class `Bounds`, `Bounds.adj` is the type of its cotangents; `bounds.adj` holds those of `bounds`."""

    def __get__(self, given: Record | None, kind: Any) -> Any:
        made = _cotangent_type(kind)
        if given is None:
            return made
        members = {name: getattr(given, name) for name, _ in made.members}
        for name, value in members.items():
            if not hasattr(value, "adj"):
                names = ", ".join(f"{n}=..." for n in members)
                what = f"{kind.__name__}.{name} is a {type(value).__name__}, which has no cotangent of its own"
                raise AttributeError(f"{what}; give one: {made.__name__}({names})")
        return made(**{name: value.adj for name, value in members.items()})


class Record:
    """Base of records: named arrays and scalars that form one argument.

    Attributes:
        adj: The record of the cotangents of all Float members; on the class, the type of that record, for adjoints
            written by hand. The cotangent of a scalar is an array of one element; integers have none.
    """

    members: ClassVar[tuple[tuple[str, type], ...]] = ()
    adj: ClassVar[Any] = _Adjoint()

    def __init__(self, *parts: Any, **members: Any) -> None:
        names = [name for name, _ in self.members]
        if len(parts) == len(names) and not members:
            members = dict(zip(names, parts, strict=True))
        elif parts or sorted(names) != sorted(members):
            got = f"{len(parts)} values" if parts else ", ".join(members)
            raise TypeError(f"{type(self).__name__} takes {', '.join(names)}; got {got}")
        for name in names:
            setattr(self, name, members[name])


def record(cls: type) -> type:
    """Declare a record: a bundle of arrays and scalars passed as one kernel argument.

    ```python
    @record
    class TetMesh:
        vertices: Array[ivec4]
        volume: Array[Float]
    ```

    An adjoint written by hand also takes the cotangents as one argument:

    ```python
    def forces_adjoint(mesh: TetMesh, f_adj: Array[vec3], mesh_adj: TetMesh.adj): ...

    p.call(forces_adjoint, mesh, f.adj, mesh.adj)
    ```

    Its methods are functions of the language, as those of a struct: records of two types with the same methods can take
    each other's place in a function.
    """
    members = tuple(_annotations(cls).items())
    if "adj" in dict(members):
        raise TypeError(f"record {cls.__name__}: the name 'adj' is reserved for cotangents; use another one")
    methods = {name: f for name, f in vars(cls).items() if isinstance(f, FunctionType)}
    return _record_type(cls.__name__, members, {**methods, "__doc__": cls.__doc__, "__module__": cls.__module__})


def _record_type(name: str, members: tuple[tuple[str, type], ...], more: dict[str, Any]) -> type:
    return type(name, (Record,), {"members": members, **more})


@functools.cache
def _cotangent_type(kind: Any) -> Any:
    """The record type of the cotangents: the same array for a Float array, an array of one element for a Float."""
    members = [(name, _cotangents(part)) for name, part in kind.members]
    if not any(part for _, part in members):
        raise AttributeError(f"record {kind.__name__} has no cotangents: it has no Float member")
    found = tuple((name, part) for name, part in members if part is not None)
    doc = f"Cotangents of `{kind.__name__}`."
    return _record_type(f"{kind.__name__}.adj", found, {"__doc__": doc, "__module__": kind.__module__})


def _cotangents(part: Any) -> type | None:
    """The cotangent type of a record's member; None if it is not Float."""
    if issubclass(part, Record):
        return _cotangent_type(part) if any(_cotangents(inner) for _, inner in part.members) else None
    element = part.element if issubclass(part, Array) else part
    return Array.__class_getitem__(element) if "f" in flatten(element) else None


def _annotations(cls: type) -> dict[str, type]:
    found = dict(vars(cls).get("__annotations__", {}))
    space = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    return {name: eval(t, dict(space)) if isinstance(t, str) else t for name, t in found.items()}  # noqa: S307


def is_value_type(t: Any) -> bool:
    """Whether `t` is a scalar, vector, matrix or struct type."""
    return isinstance(t, type) and (t in (Float, Int, Bool) or (issubclass(t, Value) and t is not Value))


def flatten(t: type) -> str:
    """The scalar kinds of a value type, e.g. 'fff' for vec3."""
    if issubclass(t, Scalar):
        return t.kind
    return "".join(flatten(part) for _, part in t.fields)  # type: ignore[attr-defined]


def shape_of(t: type) -> tuple[int, ...]:
    """Shape of one element in a user's array: () for scalars, (3, 3) for mat33, (scalars,) for others."""
    if issubclass(t, Scalar):
        return ()
    if issubclass(t, _Matrix):
        return (t.size, t.size)
    return (len(flatten(t)),)


def scalars_of(value: Any) -> list[Any]:
    """The scalars of a Python-side value, in the order of `flatten`."""
    if isinstance(value, Value):
        return [s for part in value.parts for s in scalars_of(part)]
    return [value]


def from_scalars(t: type, scalars: Iterator[Any]) -> Any:
    """Build a Python-side value of type `t` from an iterator of scalars."""
    if issubclass(t, Scalar):
        return next(scalars)
    return t(*[from_scalars(part, scalars) for _, part in t.fields])  # type: ignore[attr-defined]


def padded_size(t: type) -> int:
    """Scalars that one element takes in memory: 1, 2, or a multiple of four, so that lanes load whole quads."""
    n = len(flatten(t))
    return n if n <= 2 else (n + 3) // 4 * 4
