"""Calls in a kernel's source: inlines functions for the types of their arguments; intrinsics, constructors, grad."""

from __future__ import annotations

import ast
import math
import types as python_types
from typing import Any

from kinema.errors import KernelError
from kinema.lang.derivatives import gradient, reverse
from kinema.lang.frontend import diagnostics, symbols
from kinema.lang.frontend.expressions import Expressions, method_of
from kinema.lang.frontend.sources import Source, source_of
from kinema.lang.frontend.symbols import ArrayTerm, BoundMethod, Compound, Mismatch, RecordTerm, describe, is_number
from kinema.lang.ir import optimise
from kinema.lang.ir.ssa import ArrayRef, Block, Builder, Call, Function, Local, Store, Value
from kinema.lang.language import functions, types
from kinema.lang.language.functions import Intrinsic
from kinema.lang.language.markers import Func

MAX_DEPTH = 32  # nesting of inlined functions; recursion is refused
_LIBRARY = ("kinema.lang.", "kinema.math.")
_SAME_TYPES = (functions.dot, functions.ddot, functions.outer)  # their arguments have the same type
_CONVERSIONS = (float, types.Float, int, types.Int, bool, types.Bool)


class Calls(Expressions):
    """Translates calls; `statements.Translator` translates statements."""

    def __init__(self, source: Source, builder: Builder, env: dict[str, Any], depth: int, in_kernel: bool) -> None:
        self.source, self.builder, self.env, self.depth, self.in_kernel = source, builder, env, depth, in_kernel
        self.stores: dict[Store, KernelError] = {}  # errors of stores, raised if all elements execute them
        # Node counts of the functions inlined so far; per kernel, so that kernels do not depend on each other.
        self.sizes: dict[tuple[Func, tuple[Any, ...]], int] = {}

    def body(self) -> Any:
        """Translate the whole body; defined in `statements`."""
        raise AssertionError("overridden")

    # -- calls --------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Call) and self.expression(node.func.func) is functions.grad:
            return self.gradient(node)
        callee = self.expression(node.func)
        self.check_callee(callee, node)
        self.check_plain(node)
        return self.call(callee, [self.expression(a) for a in node.args], node)

    def check_plain(self, node: ast.Call) -> None:
        """Refuse keyword arguments."""
        if node.keywords:
            raise self.fail(
                node.keywords[0],
                "keyword arguments are not part of the kernel language",
                f"the values in their order: {ast.unparse(node.func)}(a, b, ...)",
            )

    def check_callee(self, callee: Any, node: ast.Call) -> None:
        """Refuse what cannot be called in a kernel."""
        name = ast.unparse(node.func)
        if callee is functions.grad:
            raise self.fail(node, "grad(f) must be called at once", "grad(f)(x, ...)")
        if callee in (range, functions.static):
            hint = f"`for k in {name}(n):`"
            raise self.fail(node, f"{name}(...) is for loops only", hint)
        known = isinstance(callee, (Intrinsic, BoundMethod, Func)) or callee in (len, functions.local, *_CONVERSIONS)
        if known or (isinstance(callee, type) and issubclass(callee, (types.Value, types.Record))):
            return
        if hasattr(callee, "python_function"):
            hint = "a @func that both kernels call, or both kernels in the Program, one after the other"
            raise self.fail(node, f"{name!r} is a kernel, and kernels do not call kernels", hint)
        module = getattr(callee, "__module__", None) or ""
        if isinstance(callee, python_types.FunctionType) and not module.startswith(("numpy", "torch")):
            raise self.fail(node, f"{name!r} is plain Python", f"`@func` above `def {callee.__name__}`")
        raise self.fail(node, f"{name!r} cannot be called in a kernel", diagnostics.for_callee(name, callee))

    def call(self, callee: Any, arguments: list[Any], node: ast.Call) -> Any:
        """Call a function, constructor or intrinsic with translated arguments."""
        if isinstance(callee, Intrinsic):
            return self.intrinsic(callee, arguments, node)
        if isinstance(callee, BoundMethod):
            return self.inline(method_of(callee.function), [callee.owner, *arguments], node)
        if isinstance(callee, Func):
            return self.inline(callee, arguments, node)
        if callee is len:
            return self.length(arguments, node)
        if callee in _CONVERSIONS:
            return self.convert(callee, arguments, node)
        if callee is functions.local:
            return self.local_array(arguments, node)
        if issubclass(callee, types.Record):
            return self.bundle(callee, arguments, node)
        return self.construct(callee, arguments, node)

    def intrinsic(self, callee: Intrinsic, arguments: list[Any], node: ast.Call) -> Any:
        """A scalar function; min and max take two or more."""
        name = callee.__name__
        if name in ("min", "max") and len(arguments) > 2:
            first = self.intrinsic(callee, arguments[:2], node)
            return self.intrinsic(callee, [first, *arguments[2:]], node)
        if len(arguments) != callee.arity:
            hint = f"{name}({', '.join('xyz'[: callee.arity])})"
            hint = {"select": "select(condition, a, b)", "atan2": "atan2(y, x)"}.get(name, hint)
            raise self.fail(node, f"{name} takes {_count(callee.arity, 'argument')}, got {len(arguments)}", hint)
        if name == "select":
            return self.select(arguments, node)
        if name == "everywhere":
            return self.builder.op(name, self.as_kind(arguments[0], "b", node.args[0], "the argument of everywhere"))
        if all(isinstance(a, (int, float)) and not isinstance(a, bool) for a in arguments):
            return self.constant(callee, arguments, node)
        for argument, place in zip(arguments, node.args, strict=False):
            if not is_number(argument):
                hint = diagnostics.for_number(argument)
                hint = "norm(v)" if name == "abs" and isinstance(argument, Compound) else hint
                raise self.fail(place, f"{name} takes numbers, got {describe(argument)}", hint)
        ints = all(symbols.structure(a) in ("i", "weak") for a in arguments)
        whole = name in ("uniform", "shared") or (ints and name in ("min", "max", "abs"))
        values = [self.as_kind(a, "i" if whole else "f", node, f"an argument of {name}") for a in arguments]
        return self.builder.op(name, *values)

    def constant(self, callee: Intrinsic, arguments: list[Any], node: ast.Call) -> Any:
        """A scalar function of constants, evaluated during translation."""
        if callee.__name__ in ("min", "max", "abs", "uniform", "shared") and all(isinstance(a, int) for a in arguments):
            return int(callee(*arguments))
        found = float(callee(*map(float, arguments)))
        if not math.isfinite(found) and all(map(math.isfinite, arguments)):
            what = f"{callee.__name__}({', '.join(map(str, arguments))}) is not a real number"
            raise self.fail(node, what, "constants with a real result")
        return found

    def select(self, arguments: list[Any], node: ast.Call) -> Any:
        """select(condition, a, b) on values of any type."""
        if isinstance(arguments[0], bool):
            return arguments[1] if arguments[0] else arguments[2]
        condition = self.as_kind(arguments[0], "b", node.args[0], "the first argument of select")
        try:
            shape = symbols.settle(symbols.unify(*(symbols.structure(a) for a in arguments[1:])))
        except Mismatch as error:
            raise self.fail(node, f"select has {error}", "two values of the same type") from None
        if shape is None:
            raise self.fail(node, "select takes values, not arrays", "elements: select(c, x[i], y[i])")
        sides = [symbols.scalars(a, shape, self.builder) for a in arguments[1:]]
        picked = [self.builder.op("select", condition, a, b, kind=a.kind) for a, b in zip(*sides, strict=True)]
        return symbols.rebuild(shape, picked)

    def length(self, arguments: list[Any], node: ast.Call) -> Any:
        """len of an array (known at run time), or of a vector, matrix or tuple (known now)."""
        if len(arguments) == 1 and isinstance(arguments[0], ArrayTerm):
            if arguments[0].ref.role != "local":
                return self.builder.op("length", kind="i", attr=arguments[0].ref)
            if arguments[0].size is not None:
                return arguments[0].size
            raise self.fail(node, "len does not work for this local array", "the size that local(...) got")
        if len(arguments) == 1 and isinstance(arguments[0], Compound) and issubclass(arguments[0].type, types._Numbers):
            return arguments[0].type.size
        if len(arguments) == 1 and isinstance(arguments[0], tuple):
            return len(arguments[0])
        given = ", ".join(map(describe, arguments)) or "nothing"
        raise self.fail(node, f"len takes an array, vector or tuple, got {given}", "len(x) of an Array argument x")

    def convert(self, callee: Any, arguments: list[Any], node: ast.Call) -> Any:
        """Float(x), Int(x)."""
        name = callee.__name__
        if len(arguments) != 1 or not is_number(arguments[0]):
            given = ", ".join(map(describe, arguments)) or "nothing"
            hint = diagnostics.for_number(arguments[0]) if len(arguments) == 1 else f"{name}(x)"
            raise self.fail(node, f"{name} converts one number, got {given}", hint)
        x = arguments[0]
        if not isinstance(x, Value):
            return {"f": float, "i": int, "b": bool}[name[0].lower()](x)
        if callee in (bool, types.Bool):
            return x if x.kind == "b" else self.as_kind(x, "b", node.args[0], f"the argument of {name}")
        if callee in (float, types.Float):
            return self.as_kind(x, "f", node.args[0], f"the argument of {name}")
        return self.builder.op("toint", x, kind="i") if x.kind == "f" else self.as_kind(x, "i", node, "the argument")

    def construct(self, made: type, arguments: list[Any], node: ast.Call) -> Compound:
        """vec3(x, y, z), mat33(...), or a struct."""
        fields = made.fields  # type: ignore[attr-defined]
        if len(arguments) != len(fields):
            names = ", ".join(name for name, _ in fields)
            what = f"{made.__name__} takes {_count(len(fields), 'value')}, got {len(arguments)}"
            raise self.fail(node, what, f"{made.__name__}({names})")
        values: list[Value] = []
        for (name, kind), argument, place in zip(fields, arguments, node.args, strict=True):
            role = f"{name} of {made.__name__}"
            if issubclass(kind, types.Scalar):
                values.append(self.as_kind(argument, kind.kind, place, role))
            else:
                values.extend(self.coerced(argument, kind, place, role).scalars)
        return Compound(made, values)

    def bundle(self, made: type[types.Record], arguments: list[Any], node: ast.Call) -> RecordTerm:
        """Lists(row, kind): arrays, scalars and records as one record, to pass them to functions together."""
        names = ", ".join(name for name, _ in made.members)
        if len(arguments) != len(made.members):
            what = f"{made.__name__} takes {_count(len(made.members), 'value')}, got {len(arguments)}"
            raise self.fail(node, what, f"{made.__name__}({names})")
        members = {}
        for (name, kind), argument, place in zip(made.members, arguments, node.args, strict=True):
            role = f"{name} of {made.__name__}"
            members[name] = self.as_member(argument, kind, place, role)
        return RecordTerm(made, members, made=True)

    def as_member(self, given: Any, wanted: type, place: Any, role: str) -> Any:
        """Check and convert a member of a record: an array, a record or a value of the wanted type."""
        if issubclass(wanted, types.Record):
            fits = isinstance(given, RecordTerm) and given.type is wanted
        elif issubclass(wanted, types.Array):
            fits = isinstance(given, ArrayTerm) and given.element is wanted.element
        else:
            return self.coerced(given, wanted, place, role)
        if not fits:
            raise self.fail(place, f"{role} must be {wanted.__name__}, got {describe(given)}", wanted.__name__)
        return given

    def local_array(self, arguments: list[Any], node: ast.Call) -> ArrayTerm:
        """local(Float, n)."""
        if len(arguments) != 2 or not types.is_value_type(arguments[0]):
            raise self.fail(node, "local takes a type of the language and a size", "local(Float, 8)")
        known = arguments[1] if isinstance(arguments[1], int) else None
        if known is not None and known < 1:
            raise self.fail(node.args[1], "a local array has at least one element", "a positive size")
        size = self.as_kind(arguments[1], "i", node.args[1], "the size of a local array")
        kinds = types.flatten(arguments[0])
        ref = ArrayRef(f"local{self.line_of(node)}", kinds, len(kinds), role="local")
        self.builder.append(Local(ref, size, self.line_of(node)))
        return ArrayTerm(ref, arguments[0], known)

    # -- functions ----------------------------------------------------------------------------------------------

    def inline(self, function: Func, arguments: list[Any], node: ast.AST | None = None) -> Any:
        """Translate a function's body in place, with the types of its arguments."""
        place = node or self.source.tree
        name = function.__name__
        source = source_of(function.python)
        check_parameters(source, name)
        names = [a.arg for a in source.arguments]
        if len(names) != len(arguments):
            what = f"{name} takes {_count(len(names), 'argument')}, got {len(arguments)}"
            raise self.fail(place, what, f"{name}({', '.join(names)})")
        if self.depth >= MAX_DEPTH:
            raise self.fail(place, f"{name} calls itself", "a loop: recursion cannot be compiled")
        if function in _SAME_TYPES and len({symbols.structure(a) for a in arguments}) > 1:
            given = " and ".join(map(describe, arguments))
            raise self.fail(place, f"{name} takes two values of the same type, got {given}", "values of equal size")
        env = dict(zip(names, arguments, strict=True))
        self.check_annotations(function, source, env, place)
        if function.adjoint is not None and not self.builder_is_adjoint(function):
            return self.keep_call(function, arguments, place)
        shapes = tuple(symbols.structure(a) for a in arguments)
        if self.sizes.get((function, shapes), 0) > optimise.LARGE and None not in shapes:
            return self.keep_call(function, arguments, place)
        line, begin = self.builder.line, len(self.builder.block.nodes)
        result = self.body_of(function, source, env, place)
        self.builder.line = line
        self.sizes[function, shapes] = optimise.size(Block(self.builder.block.nodes[begin:]))
        return result

    def body_of(self, function: Func, source: Source, env: dict[str, Any], place: ast.AST) -> Any:
        """The translated body; errors inside a function of the language are reported at its call."""
        nested = type(self)(source, self.builder, dict(env), self.depth + 1, in_kernel=False)
        nested.stores, nested.sizes = self.stores, self.sizes
        try:
            return nested.body()
        except KernelError as error:
            inside = str(self.source.globals.get("__name__", "")).startswith(_LIBRARY)
            if inside or not function.__module__.startswith(_LIBRARY):
                raise
            given = ", ".join(map(describe, env.values()))
            what = f"{function.__name__} is not defined for {given}: {error.what}"
            hint = (function.__doc__ or "").partition("\n")[0]
            raise self.fail(place, what, f"{function.__name__}({', '.join(env)}): {hint}") from None

    def check_annotations(self, function: Func, source: Source, env: dict[str, Any], place: Any) -> None:
        """Compare arguments with a function's annotations and convert numbers."""
        for at, argument in enumerate(source.arguments):
            wanted = source.annotation(argument.annotation)
            if isinstance(place, ast.Call) and len(place.args) == len(env):
                where: Any = place.args[at]
            else:
                where = place
            if isinstance(wanted, type) and issubclass(wanted, (types.Scalar, types.Value)):
                role = f"argument {argument.arg!r} of {function.__name__}"
                env[argument.arg] = self.coerced(env[argument.arg], wanted, where, role)
            elif isinstance(wanted, type) and issubclass(wanted, types.Record):
                self.as_member(env[argument.arg], wanted, where, f"argument {argument.arg!r} of {function.__name__}")

    def coerced(self, given: Any, wanted: type, place: Any, role: str) -> Any:
        """A value as one of the wanted type; constants stay constants."""
        if issubclass(wanted, types.Scalar):
            if isinstance(given, (int, float)) and not isinstance(given, bool) and wanted is types.Float:
                return given
            return self.as_kind(given, wanted.kind, place, role)
        if not (isinstance(given, Compound) and given.type is wanted):
            hint = f"{wanted.__name__}(...)"
            if isinstance(given, ArrayTerm) and given.element is wanted:
                hint = diagnostics.for_number(given)
            raise self.fail(place, f"{role} must be {wanted.__name__}, got {describe(given)}", hint)
        return given

    def builder_is_adjoint(self, function: Func) -> bool:
        """Whether the function with this hand-written adjoint is being inlined into that adjoint itself."""
        return function in getattr(self.builder, "opened", ())

    def keep_call(self, function: Func, arguments: list[Any], place: ast.AST) -> Any:
        """A call of a function with a hand-written adjoint: kept as a node, so that reverse mode finds it."""
        shapes = [symbols.structure(a) for a in arguments]
        if None in shapes:
            what = f"{function.__name__} has its own adjoint and takes values only, no arrays"
            raise self.fail(place, what, "elements of arrays as arguments")
        settled = [symbols.settle("f" if s == "weak" else s) for s in shapes]
        values = [v for a, s in zip(arguments, settled, strict=True) for v in symbols.scalars(a, s, self.builder)]
        primal, shape = build_function(type(self), function, settled)
        if function.adjoint is not None:
            kinds = [k for s in settled for k in symbols.kinds(s)]
            primal.adjoint = build_adjoint(type(self), function, settled, shape, kinds)
        results = [self.builder.result(r.kind) for r in primal.results]
        self.builder.append(Call(primal, values, results, self.builder.line))
        return symbols.rebuild(shape, list(results))

    # -- derivatives --------------------------------------------------------------------------------------------

    def gradient(self, node: ast.Call) -> Any:
        """grad(f, argument)(...): the reverse sweep of f, appended in place."""
        inner = node.func
        assert isinstance(inner, ast.Call)
        self.check_plain(inner)
        self.check_plain(node)
        options = [self.expression(a) for a in inner.args]
        if not options or not isinstance(options[0], Func):
            given = describe(options[0]) if options else "nothing"
            name = getattr(options[0], "__name__", "f") if options else "f"
            hint = f"`@func` above `def {name}`, which returns one Float"
            raise self.fail(inner.args[0] if inner.args else inner, f"grad takes a @func, got {given}", hint)
        function, which = options[0], options[1] if len(options) > 1 else 0
        arguments = [self.expression(a) for a in node.args]
        if not isinstance(which, int) or not 0 <= which < len(arguments):
            hint = "arguments counted from 0: grad(f, 1) differentiates by the second"
            raise self.fail(inner.args[-1], f"grad: {function.__name__} got no argument {which!r}", hint)
        target = arguments[which]
        shape: Any = "f" if is_number(target) else target.type if isinstance(target, Compound) else None
        if shape is None or symbols.structure(target) in ("i", "b") or "f" not in symbols.kinds(shape):
            hint = "Float(k)" if symbols.structure(target) == "i" else "an argument of Floats: Float, vec3, mat33, ..."
            raise self.fail(node.args[which], f"grad: {describe(target)} has no derivative", hint)
        b = self.builder
        # Copies separate this use of the argument from its other uses.
        copies = [b.op("copy", v, attr=object()) for v in symbols.scalars(target, shape, b)]
        arguments[which] = symbols.rebuild(shape, list(copies))
        block = b.push()
        energy = self.inline(function, arguments, node)
        if not is_number(energy):
            what = f"grad needs a function that returns one scalar; {function.__name__} returns {describe(energy)}"
            raise self.fail(node, what, "a @func of which every path returns one Float")
        adj: dict[Value, Value] = {}
        if isinstance(energy, Value) and energy.kind == "f":
            adj[energy] = b.const(1.0, "f")
            try:
                reverse.sweep(b, block.nodes[:], adj)
            except reverse.NoAdjoint as error:
                what = f"the derivative of {function.__name__} cannot be formed: {error}"
                raise self.fail(node, what, "a derivative written by hand, with @adjoint_of") from None
        b.pop()
        return symbols.rebuild(shape, gradient.append(b, function.__name__, block, copies, adj))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def check_parameters(source: Source, name: str) -> None:
    """Refuse * and ** arguments, keyword-only ones and defaults."""
    a = source.tree.args
    defaults = [d for d in (*a.defaults, *a.kw_defaults) if d is not None]
    wrong = [part for part in (a.vararg, *a.kwonlyargs, a.kwarg, *defaults) if part is not None]
    if wrong:
        what = "default values are" if wrong[0] in defaults else "*, ** and keyword arguments are"
        raise KernelError(
            f"{what} not part of the kernel language",
            **source.place(wrong[0]),
            fix=f"positional arguments without defaults: def {name}(a, b, ...)",
        )


def build_function(make: type[Calls], function: Func, shapes: list[Any]) -> tuple[Function, Any]:
    """Translate a function for given argument shapes, out of line; returns it and the shape of its result."""
    builder = Builder()
    builder.opened = (function,)  # type: ignore[attr-defined]
    made, shape = _finish_function(make, function, shapes, builder)
    return optimise.clean_function(made), shape


def build_adjoint(
    make: type[Calls], function: Func, shapes: list[Any], result_shape: Any, kinds: list[str]
) -> Function:
    """Translate a hand-written adjoint: (arguments, cotangents of results) -> a cotangent for each Float scalar."""
    assert function.adjoint is not None
    parts = list(result_shape) if isinstance(result_shape, tuple) else [result_shape]
    builder = Builder()
    builder.opened = (function,)  # type: ignore[attr-defined]
    made, shape = _finish_function(make, function.adjoint, [*shapes, *parts], builder, weak_float=True)
    given = shape if isinstance(shape, tuple) and len(shapes) > 1 else (shape,)
    wanted = [tuple(symbols.kinds(s)) for s in shapes]
    got = [tuple(symbols.kinds(s)) for s in given]
    for name, w, g in zip(function.parameters, wanted, [*got, *[()] * len(wanted)], strict=False):
        if len(w) != len(g) and "f" in w and g != ("f",):
            source = source_of(function.adjoint.python)
            what = f"the adjoint of {function.__name__} returns {len(g)} scalars for {name!r}, which has {len(w)}"
            fix = "return one cotangent per argument, each of the argument's type (0.0 for none)"
            raise KernelError(what, **source.place(source.tree), fix=fix)
    results: list[Value] = []
    at = 0
    for w, g in zip(wanted, got, strict=True):
        part = made.results[at : at + len(g)]
        at += len(g)
        results.extend(part if len(g) == len(w) else part * len(w))
    made.results = [r if k == "f" else builder.const(0.0, "f") for r, k in zip(results, kinds, strict=True)]
    return optimise.clean_function(made)


def _finish_function(
    make: type[Calls], function: Func, shapes: list[Any], builder: Builder, weak_float: bool = False
) -> tuple[Function, Any]:
    source = source_of(function.python)
    check_parameters(source, function.__name__)
    names = [a.arg for a in source.arguments]
    if len(names) != len(shapes):
        what = f"{function.__name__} takes {_count(len(names), 'argument')}, but {len(shapes)} are needed"
        fix = "an adjoint takes the arguments of its function, then one cotangent per result"
        raise KernelError(what, **source.place(source.tree), fix=fix)
    params: list[Value] = []
    env: dict[str, Any] = {}
    for name, shape in zip(names, shapes, strict=True):
        values = [Value("param", (), kind) for kind in symbols.kinds(shape)]
        params.extend(values)
        env[name] = symbols.rebuild(shape, list(values))
    translator = make(source, builder, env, 1, in_kernel=False)
    term = translator.body()
    shape = symbols.structure(term)
    if shape is None:
        raise translator.fail(source.tree, f"{function.__name__} must return a value", "return one value or a tuple")
    shape = _weak_to_float(shape) if weak_float else symbols.settle(shape)
    results = symbols.scalars(term, shape, builder)
    return Function(function.__name__, params, builder.block, results), shape


def _weak_to_float(shape: Any) -> Any:
    if isinstance(shape, tuple):
        return tuple(_weak_to_float(s) for s in shape)
    return "f" if shape == "weak" else shape
