"""Kernels as plain Python on numpy scalars: slow, but `print` and debuggers work, and tests use it as an oracle.

`run` calls the Python function of a kernel for one element after the other. Floats are numpy scalars of the arrays'
precision, Ints are Python integers. Only `grad(f)` uses the compiler: it interprets the derivative program of f.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kinema.errors import InputError
from kinema.lang.derivatives import reverse
from kinema.lang.frontend import statements, symbols
from kinema.lang.frontend.symbols import ArrayTerm, Compound, RecordTerm, describe
from kinema.lang.ir.ssa import ArrayRef, Block, Builder, Call, For, Function, If, Load, Local, Store, Value
from kinema.lang.language import functions, types
from kinema.lang.language.markers import Func

# -- kernels -----------------------------------------------------------------------------------------------------


def run(kernel: Any, args: Sequence[Any], count: int | None) -> None:
    """Run a kernel's Python function for e = 0 ... count - 1, or once if it has no Index."""
    source = statements.source_of(kernel.python_function)
    declared = [(a.arg, source.annotation(a.annotation)) for a in source.tree.args.args]
    index = declared.pop(0)[0] if declared and declared[0][1] is types.Index else None
    if len(declared) != len(args):
        wanted = ", ".join(name for name, _ in declared)
        raise InputError(f"kernel {kernel.name!r}: wrong number of arguments", got=len(args), expected=wanted)
    arrays = [found for (name, kind), given in zip(declared, args, strict=True) for found in _arrays(name, kind, given)]
    token = types.precision.set(_precision(arrays))
    try:
        values = [_wrap(name, kind, given) for (name, kind), given in zip(declared, args, strict=True)]
        with np.errstate(all="ignore"):
            if index is None:
                kernel.python_function(*values)
            else:
                for e in range(_domain(source.tree, index, arrays) if count is None else count):
                    kernel.python_function(e, *values)
    finally:
        types.precision.reset(token)


def _arrays(name: str, kind: Any, given: Any) -> Iterator[tuple[str, Any]]:
    """The arrays of an argument; arrays of records have dotted names."""
    if issubclass(kind, types.Record):
        for member, part in kind.members:
            yield from _arrays(f"{name}.{member}", part, getattr(given, member))
    elif issubclass(kind, types.Array):
        yield name, given


def _precision(arrays: list[tuple[str, Any]]) -> type[np.floating[Any]]:
    """The one floating-point type of the arrays; float64 if there is none."""
    found = {a.dtype.type: name for name, a in arrays if isinstance(a, np.ndarray) and a.dtype.kind == "f"}
    if len(found) > 1:
        got = ", ".join(f"{name}: {kind.__name__}" for kind, name in found.items())
        raise InputError("arrays differ in precision", got=got, fix="convert them to one dtype")
    return next(iter(found), np.float64)


def _wrap(name: str, kind: Any, given: Any) -> Any:
    """An argument as the kernel sees it."""
    if issubclass(kind, types.Record):
        if isinstance(given, types.Record) and not isinstance(given, kind):
            got, expected = type(given).__name__, kind.__name__
            raise InputError(f"argument {name!r} has the wrong record type", got=got, expected=expected)
        return kind(**{m: _wrap(f"{name}.{m}", part, getattr(given, m)) for m, part in kind.members})
    if issubclass(kind, types.Array):
        return PlainArray(given, kind.element, name)
    numbers = types.scalars_of(given) if isinstance(given, types.Value) else np.ravel(given).tolist()
    kinds = types.flatten(kind)
    if len(numbers) != len(kinds):
        raise InputError(f"argument {name!r} is a {kind.__name__}", got=f"{len(numbers)} numbers", expected=len(kinds))
    convert: dict[str, Callable[[Any], Any]] = {"f": types.precision.get(), "i": operator.index, "b": bool}
    return types.from_scalars(kind, iter([convert[k](x) for k, x in zip(kinds, numbers, strict=True)]))


def _domain(tree: ast.FunctionDef, index: str, arrays: list[tuple[str, Any]]) -> int:
    """The length of the first array that the kernel indexes by the element itself."""
    places = [n for n in ast.walk(tree) if isinstance(n, ast.Subscript)]
    indexed = {ast.unparse(n.value) for n in places if isinstance(n.slice, ast.Name) and n.slice.id == index}
    for name, array in arrays:
        if name in indexed:
            return len(array)
    raise InputError(f"kernel {tree.name!r}: no array is indexed by {index!r} itself", fix="pass count=...")


class PlainArray:
    """A numpy array as an array of the language: reads and stores elements as values of their type."""

    def __init__(self, array: np.ndarray, element: type, name: str) -> None:
        self.array, self.element, self.name = array, element, name
        self.kinds = types.flatten(element)
        if not isinstance(array, np.ndarray):
            raise InputError(f"argument {name!r} must be an array", got=type(array).__name__, expected="a numpy array")
        if array.ndim == 0 or math.prod(array.shape[1:]) != len(self.kinds):
            shape = ", ".join(map(str, ("n", *types.shape_of(element))))
            raise InputError(f"array {name!r} of {element.__name__}", got=f"shape {array.shape}", expected=f"({shape})")
        if array.dtype.kind not in ("f" if "f" in self.kinds else "iub"):
            wanted = "float32 or float64" if "f" in self.kinds else "integers"
            raise InputError(f"array {name!r} of {element.__name__}", got=array.dtype, expected=wanted)

    @classmethod
    def zeros(cls, element: type, size: int) -> PlainArray:
        """A local array."""
        dtype = types.precision.get() if "f" in types.flatten(element) else np.int64
        return cls(np.zeros((max(size, 0), *types.shape_of(element)), dtype), element, "local array")

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, i: int) -> Any:
        row = np.ravel(self.array[self._checked(i)])
        return types.from_scalars(self.element, (_READ[k](x) for k, x in zip(self.kinds, row, strict=True)))

    def __setitem__(self, i: int, value: Any) -> None:
        if isinstance(value, types.Value) != issubclass(self.element, types.Value) or (
            isinstance(value, types.Value) and not isinstance(value, self.element)
        ):
            raise TypeError(f"elements of {self.name!r} must be {self.element.__name__}, got {type(value).__name__}")
        numbers = [_STORED[k](x) for k, x in zip(self.kinds, types.scalars_of(value), strict=True)]
        self.array[self._checked(i)] = np.reshape(numbers, self.array.shape[1:])

    def _checked(self, i: int) -> int:
        if not 0 <= operator.index(i) < len(self):
            why = "negative indices are not allowed in kernels" if i < 0 else "out of range"
            raise IndexError(f"index {i} of {self.name!r}: {why}; its length is {len(self)}")
        return i


def _same(x: Any) -> Any:
    return x


_READ: dict[str, Callable[[Any], Any]] = {"f": _same, "i": int, "b": bool}
_STORED: dict[str, Callable[[Any], Any]] = {"f": _same, "i": operator.index, "b": bool}


# -- grad(f) -----------------------------------------------------------------------------------------------------


def plain_gradient(f: Any, argument: int = 0) -> Callable[..., Any]:
    """`grad(f, argument)` in plain Python: a function of the arguments of `f`."""
    if not isinstance(f, Func):
        raise TypeError(f"grad takes a @func, got {f!r}")

    def derivative(*arguments: Any) -> Any:
        if not 0 <= argument < len(arguments):
            raise TypeError(f"grad: no argument {argument}; {f.__name__} got {len(arguments)}")
        given = list(arguments)
        if isinstance(given[argument], (int, float)):
            given[argument] = types.Float(given[argument])
        program, refs = _derivative(f, argument, tuple(map(_shape, given)))
        leaves = list(_leaves(tuple(given)))
        numbers = [leaf for leaf in leaves if not isinstance(leaf, PlainArray)]
        arrays = dict(zip(refs, (leaf for leaf in leaves if isinstance(leaf, PlainArray)), strict=True))
        with np.errstate(all="ignore"):
            results = interpret(program, numbers, arrays)
        kind = _shape(given[argument])
        return types.from_scalars(kind, iter(results))

    return derivative


def _leaves(given: Any) -> Iterator[Any]:
    """The inputs of the derivative program from an argument: Floats, the scalars of compounds, and arrays."""
    if isinstance(given, (tuple, types.Record)):
        parts = given if isinstance(given, tuple) else [getattr(given, name) for name, _ in given.members]
        for part in parts:
            yield from _leaves(part)
    elif isinstance(given, types.Value):
        yield from types.scalars_of(given)
    elif not isinstance(given, _CONSTANT):
        yield given


_CONSTANT = (bool, np.bool_, int, np.integer)  # part of the program itself, as in the compiler


def _shape(given: Any) -> Any:
    """A hashable description of an argument, from which `grad` makes its term."""
    if isinstance(given, PlainArray):
        return PlainArray, given.element
    if isinstance(given, types.Record):
        return type(given), tuple((name, _shape(getattr(given, name))) for name, _ in given.members)
    if isinstance(given, tuple):
        return tuple, tuple(_shape(part) for part in given)
    if isinstance(given, types.Value):
        return type(given)
    if isinstance(given, _CONSTANT):
        kind = bool if isinstance(given, (bool, np.bool_)) else int
        return kind, kind(given)
    return types.Float


def _term(shape: Any, params: list[Value], arrays: list[ArrayRef]) -> Any:
    """The compiler's term for an argument of this shape; appends its parameters and arrays."""
    if isinstance(shape, type):
        made = [Value("param", (), kind) for kind in types.flatten(shape)]
        params.extend(made)
        return made[0] if shape is types.Float else Compound(shape, made)
    kind, content = shape
    if kind is PlainArray:
        arrays.append(ArrayRef(f"array{len(arrays)}", types.flatten(content), types.padded_size(content)))
        return ArrayTerm(arrays[-1], content)
    if kind is tuple:
        return tuple(_term(part, params, arrays) for part in content)
    if issubclass(kind, types.Record):
        return RecordTerm(kind, {name: _term(part, params, arrays) for name, part in content})
    return content


@functools.lru_cache(maxsize=1024)
def _derivative(f: Func, argument: int, shapes: tuple[Any, ...]) -> tuple[Function, list[ArrayRef]]:
    """The program that computes the derivative from the scalars of all arguments, and the arrays it reads."""
    builder = Builder()
    params: list[Value] = []
    arrays: list[ArrayRef] = []
    arguments = [_term(shape, params, arrays) for shape in shapes]
    target = arguments[argument]
    if not isinstance(target, (Value, Compound)):
        raise TypeError(f"grad: {describe(target)} has no derivative")
    source = statements.source_of(f.python)
    translator = statements.Translator(source, builder, {}, 0, in_kernel=False)
    energy = translator.inline(f, arguments)
    if not symbols.is_number(energy):
        raise TypeError(f"grad needs a function that returns one scalar; {f.__name__} returns {describe(energy)}")
    adj = {symbols.as_kind(energy, "f", builder): builder.const(1.0, "f")}
    try:
        reverse.sweep(builder, builder.block.nodes[:], adj)
    except reverse.NoAdjoint as error:
        message = f"the derivative of {f.__name__} cannot be formed: {error}"
        raise translator.fail(source.tree, message) from None
    zero = builder.const(0.0, "f")
    wanted = [target] if isinstance(target, Value) else target.scalars
    return Function(f"grad_{f.__name__}", params, builder.block, [adj.get(v, zero) for v in wanted]), arrays


# -- the interpreter ---------------------------------------------------------------------------------------------


def interpret(
    function: Function, scalars: Sequence[Any], arrays: dict[ArrayRef, PlainArray] | None = None
) -> list[Any]:
    """Evaluate a function of the intermediate form on numpy scalars; `arrays` are the outer arrays that it reads."""
    real = next((type(s) for s in scalars if isinstance(s, np.floating)), types.precision.get())
    return _Interpreter(real, dict(arrays or {})).call(function, scalars)


class _Interpreter:
    """Values of one evaluation; `real` is the type of all its Floats."""

    def __init__(self, real: type[np.floating[Any]], arrays: dict[ArrayRef, PlainArray]) -> None:
        self.arrays = arrays
        self.values: dict[Value, Any] = {}
        self.kinds = {"f": real, "i": int, "b": bool}

    def get(self, v: Value) -> Any:
        return self.kinds[v.kind](v.attr) if v.op == "const" else self.values[v]

    def bind(self, names: Sequence[Value], values: Sequence[Any]) -> None:
        self.values.update({n: self.kinds[n.kind](x) for n, x in zip(names, values, strict=True)})

    def call(self, function: Function, scalars: Sequence[Any]) -> list[Any]:
        self.bind(function.params, scalars)
        self.block(function.body)
        return [self.get(r) for r in function.results]

    def block(self, block: Block) -> None:
        for node in block.nodes:
            getattr(self, f"_{type(node).__name__.lower()}")(node)

    def _value(self, node: Value) -> None:
        if node.op == "length":
            result = len(self.arrays[node.attr])
        else:
            result = _OPERATIONS[node.op](*[self.get(a) for a in node.args])
        self.bind([node], [result])

    def _load(self, node: Load) -> None:
        self.bind(node.results, types.scalars_of(self.arrays[node.array][self.get(node.index)]))

    def _store(self, node: Store) -> None:
        array, index = self.arrays[node.array], self.get(node.index)
        values = [self.get(v) for v in node.values]
        if node.mode == "add":
            values = list(map(operator.add, types.scalars_of(array[index]), values))
        array[index] = types.from_scalars(array.element, iter(values))

    def _local(self, node: Local) -> None:
        element = _element(node.array.kinds)
        dtype = self.kinds["f"] if "f" in node.array.kinds else np.int64
        shape = (max(self.get(node.size), 0), *types.shape_of(element))
        self.arrays[node.array] = PlainArray(np.zeros(shape, dtype), element, node.array.name)

    def _call(self, node: Call) -> None:
        self.bind(node.results, self.call(node.function, [self.get(a) for a in node.args]))

    def _if(self, node: If) -> None:
        taken = 1 if self.get(node.cond) else 2
        self.block(node.then if taken == 1 else node.orelse)
        self.bind([r[0] for r in node.results], [self.get(r[taken]) for r in node.results])

    def _for(self, node: For) -> None:
        phis, now = [c[0] for c in node.carried], [self.get(c[1]) for c in node.carried]
        turns = range(self.get(node.start), self.get(node.stop))
        for turn in reversed(turns) if node.down else turns:
            self.bind([node.var, *phis], [turn, *now])
            self.block(node.body)
            now = [self.get(c[2]) for c in node.carried]
            if node.alive is not None and not now[node.alive]:
                break
        self.bind([c[3] for c in node.carried], now)


@functools.cache
def _element(kinds: str) -> type:
    """An element type with these scalars, for local arrays of the intermediate form."""
    scalars = [{"f": types.Float, "i": types.Int, "b": types.Bool}[kind] for kind in kinds]
    if len(scalars) == 1:
        return scalars[0]
    return type("element", (types.Value,), {"fields": tuple((f"s{i}", kind) for i, kind in enumerate(scalars))})


_OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: f.python for name, f in vars(functions).items() if isinstance(f, functions.Intrinsic)},
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "neg", "lt", "le", "gt", "ge", "eq", "ne")},
    "div": operator.truediv,
    "idiv": lambda a, b: a // b if b else a,  # a divisor of 0 acts as 1, as in native code
    "imod": lambda a, b: a % b if b else 0,
    "fma": lambda a, b, c: a * b + c,
    "fms": lambda a, b, c: a * b - c,
    "fnma": lambda a, b, c: c - a * b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": operator.not_,
    "copy": _same,
    "tofloat": _same,
    "toint": int,
}

functions.PLAIN.update(local=PlainArray.zeros, grad=plain_gradient)
