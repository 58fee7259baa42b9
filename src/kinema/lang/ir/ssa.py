"""The intermediate form: a kernel as the scalar program of one element.

Values are in static single assignment form; control flow is structured (`For`, `If` own blocks). Differentiation
works on this scalar program; the emitter adds lanes and masks later. A `Builder` appends to the current block, folds
constants and shares equal expressions, so the form is always clean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

FLOAT, INT, BOOL = "f", "i", "b"


class Value:
    """One scalar. A pure operation is its own node; results of other nodes have op 'result'."""

    __slots__ = ("args", "attr", "frozen", "kind", "line", "op")

    def __init__(self, op: str, args: tuple[Value, ...], kind: str, attr: Any = None, line: int = 0) -> None:
        self.op, self.args, self.kind, self.attr, self.line = op, args, kind, attr, line
        self.frozen = False  # part of the forward program: never fused differently afterwards

    def __repr__(self) -> str:
        return f"<{self.op}:{self.kind} {self.attr if self.op == 'const' else ''}>"


@dataclass(eq=False)
class ArrayRef:
    """An array argument (or a local array) of a kernel.

    `role` is 'in', 'out' or 'local'; `adjoint_of`/`tangent_of` point from a derivative array to its primal.
    """

    name: str
    kinds: str  # scalar kinds of one element
    padded: int
    role: str = "in"
    is_value: bool = False  # an argument of value type: an array of length one, read at index 0
    written: set[str] = field(default_factory=set)  # modes of the stores: 'set', 'add'
    read: bool = False
    origin: ArrayRef | None = None  # the primal array of a cotangent or tangent array
    constant: bool = False  # has no derivative


@dataclass(eq=False)
class Load:
    """Read one element: all its scalars."""

    array: ArrayRef
    index: Value
    results: list[Value]
    line: int = 0


@dataclass(eq=False)
class Store:
    """Write one element; mode 'set' or 'add'. A value of None leaves its scalar untouched (add only)."""

    array: ArrayRef
    index: Value
    values: list[Value]
    mode: str
    line: int = 0


@dataclass(eq=False)
class Local:
    """A zeroed local array of `size` elements, alive to the end of its block."""

    array: ArrayRef
    size: Value
    line: int = 0


@dataclass(eq=False)
class For:
    """`for var in range(start, stop)`, or downwards from stop-1 to start.

    carried[k] = (phi, init, next, result). If `alive` is not None, it is the position of a carried Bool: the loop ends
    when that is false (a `break`).
    """

    var: Value
    start: Value
    stop: Value
    carried: list[tuple[Value, Value, Value, Value]]
    body: Block
    down: bool = False
    alive: int | None = None
    line: int = 0


@dataclass(eq=False)
class If:
    """Two blocks; results[k] = (result, value in then, value in orelse)."""

    cond: Value
    then: Block
    orelse: Block
    results: list[tuple[Value, Value, Value]]
    line: int = 0


@dataclass(eq=False)
class Function:
    """A function of the language, scalars to scalars; emitted out of line, or called with its own adjoint."""

    name: str
    params: list[Value]
    body: Block
    results: list[Value]
    adjoint: Function | None = None  # (params..., cotangents of results...) -> cotangents of params
    custom: Callable[..., Any] | None = None


@dataclass(eq=False)
class Call:
    """A call that is not inlined: its function has a hand-written adjoint, or is large."""

    function: Function
    args: list[Value]
    results: list[Value]
    line: int = 0


@dataclass(eq=False)
class Block:
    """A sequence of nodes."""

    nodes: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class KernelIR:
    """A whole kernel: `index` is the element index (None: once per world), arrays in the order of arguments."""

    name: str
    index: Value | None
    arrays: list[ArrayRef]
    body: Block
    file: str = ""
    source: list[str] = field(default_factory=list)
    first_line: int = 1


COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}
# Operations whose partial derivatives are finite for finite operands: safe to compute speculatively.
TAME = {"add", "sub", "mul", "fma", "neg", "min", "max", "abs", "sign", "select", "const", "and", "or", "not"}
TAME |= COMPARISONS | {"tofloat", "sin", "cos", "tanh", "sigmoid", "floor", "detach"}
COMMUTATIVE = {"add", "mul", "and", "or", "eq", "ne"}  # not min and max: on a tie they return the second argument

_FOLD: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": lambda a: not a,
    "idiv": lambda a, b: a // b,
    "imod": lambda a, b: a % b,
    "tofloat": float,
}


_CONSTANTS: dict[tuple[str, str], Value] = {}


class Builder:
    """Appends nodes to the current block; folds constants and shares equal pure expressions within scope."""

    def __init__(self, block: Block | None = None) -> None:
        self.blocks: list[Block] = [block or Block()]
        self.scopes: list[dict[Any, Value]] = [{}]
        self.line = 0

    @property
    def block(self) -> Block:
        return self.blocks[-1]

    def push(self, block: Block | None = None) -> Block:
        """Open a nested block; expressions of outer blocks stay visible inside."""
        self.blocks.append(block or Block())
        self.scopes.append({})
        return self.blocks[-1]

    def pop(self) -> Block:
        """Close the nested block and forget its expressions."""
        self.scopes.pop()
        return self.blocks.pop()

    def append(self, node: Any) -> Any:
        """Append an impure node."""
        self.block.nodes.append(node)
        return node

    def const(self, value: Any, kind: str) -> Value:
        """A constant; kept out of the blocks."""
        value = {"f": float, "i": int, "b": bool}[kind](value)
        key = (kind, repr(value))
        if key not in _CONSTANTS:
            _CONSTANTS[key] = Value("const", (), kind, value)
        return _CONSTANTS[key]

    def op(self, op: str, *args: Value, kind: str | None = None, attr: Any = None) -> Value:
        """A pure operation on scalars."""
        simple = self._simplify(op, args)
        if simple is not None:
            return simple
        if op in COMMUTATIVE and args[0].op == "const":
            args = (args[1], args[0])
        key = (op, tuple(id(a) for a in args), attr)
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        made = Value(op, args, kind or (BOOL if op in COMPARISONS else args[0].kind), attr, self.line)
        self.block.nodes.append(made)
        self.scopes[-1][key] = made
        return made

    def _simplify(self, op: str, args: tuple[Value, ...]) -> Value | None:
        if all(a.op == "const" for a in args) and op in _FOLD:
            if op in ("idiv", "imod") and args[1].attr == 0:
                return None
            result = _FOLD[op](*[a.attr for a in args])
            if isinstance(result, float) and not math.isfinite(result):
                return None
            kind = (
                FLOAT if op == "tofloat" else BOOL if op in COMPARISONS or op in ("and", "or", "not") else args[0].kind
            )
            return self.const(result, kind)
        if op == "select":
            if args[0].op == "const":
                return args[1] if args[0].attr else args[2]
            if args[1] is args[2]:
                return args[1]
        if op == "neg" and args[0].op == "neg":
            return args[0].args[0]
        if op in ("and", "or") and any(a.op == "const" for a in args):
            known, other = (args[0], args[1]) if args[0].op == "const" else (args[1], args[0])
            return other if known.attr == (op == "and") else known
        if len(args) == 2 and op in ("add", "sub", "mul", "div"):
            a, b = args
            if _is(b, 0) and op in ("add", "sub"):
                return a
            if _is(a, 0) and op == "add":
                return b
            if _is(b, 1) and op in ("mul", "div"):
                return a
            if _is(a, 1) and op == "mul":
                return b
            if a.kind == INT and op == "mul" and (_is(a, 0) or _is(b, 0)):
                return self.const(0, INT)
            if _is(b, -1) and op == "mul":
                return self.op("neg", a)
            if _is(a, -1) and op == "mul":
                return self.op("neg", b)
            if op == "add" and _is_doubled(a) and _is_doubled(b):
                return self.op("mul", self.op("add", a.args[0], b.args[0]), a.args[1])
            return self._move_sign(op, a, b)
        return None

    def _move_sign(self, op: str, a: Value, b: Value) -> Value | None:
        """Move negations outwards until a sum absorbs them; exact, because rounding does not depend on the sign."""
        if op in ("mul", "div"):
            if a.op == "neg" and b.op == "neg":
                return self.op(op, a.args[0], b.args[0])
            if a.op == "neg":
                return self.op("neg", self.op(op, a.args[0], b))
            if b.op == "neg":
                return self.op("neg", self.op(op, a, b.args[0]))
        elif b.op == "neg":
            return self.op("sub" if op == "add" else "add", a, b.args[0])
        elif a.op == "neg" and op == "add":
            return self.op("sub", b, a.args[0])
        elif a.op == "neg":
            return self.op("neg", self.op("add", a.args[0], b))
        return None

    def result(self, kind: str) -> Value:
        """A fresh value defined by a node."""
        return Value("result", (), kind, None, self.line)


def _is(v: Value, number: float) -> bool:
    return v.op == "const" and v.attr == number


def _is_doubled(v: Value) -> bool:
    """x of a value 2 x, as in tangents of squares: a sum of such values is exactly 2 (x + ...)."""
    return v.op == "mul" and v.kind == FLOAT and _is(v.args[1], 2.0)


def blocks_of(node: Any) -> tuple[Block, ...]:
    """The nested blocks of a node."""
    if isinstance(node, For):
        return (node.body,)
    if isinstance(node, If):
        return (node.then, node.orelse)
    return ()


def uses(node: Any) -> list[Value]:
    """The values that a node reads, including the values that its nested blocks yield but not those they read."""
    if isinstance(node, Value):
        return list(node.args)
    if isinstance(node, Load):
        return [node.index]
    if isinstance(node, Store):
        return [node.index, *node.values]
    if isinstance(node, Local):
        return [node.size]
    if isinstance(node, For):
        return [node.start, node.stop, *[v for c in node.carried for v in (c[1], c[2])]]
    if isinstance(node, If):
        return [node.cond, *[v for r in node.results for v in r[1:]]]
    return list(node.args)


def results(node: Any) -> list[Value]:
    """The values that a node defines for later nodes."""
    if isinstance(node, Value):
        return [node]
    if isinstance(node, (Load, Call)):
        return list(node.results)
    if isinstance(node, For):
        return [c[3] for c in node.carried]
    if isinstance(node, If):
        return [r[0] for r in node.results]
    return []


def walk(block: Block) -> Iterator[Any]:
    """All nodes, outer before inner, in order."""
    for node in block.nodes:
        yield node
        for inner in blocks_of(node):
            yield from walk(inner)
