"""Calls in a kernel's source: functions inlined with the types of their arguments, intrinsics, constructors, grad."""

from __future__ import annotations

import ast
import types as python_types
from typing import Any

from kinema.errors import KernelError
from kinema.lang import functions, optimise, reverse, terms, types
from kinema.lang.expressions import Expressions
from kinema.lang.functions import Intrinsic
from kinema.lang.ir import ArrayRef, Block, Builder, Call, Function, Local, Value
from kinema.lang.markers import Func
from kinema.lang.sources import Source, source_of
from kinema.lang.terms import ArrayTerm, BoundMethod, Compound, Mismatch, describe, is_number

MAX_DEPTH = 32  # nesting of functions; recursion cannot be inlined
_SIZES: dict[tuple[Func, tuple[Any, ...]], int] = {}  # nodes of a function when it was last inlined


class Calls(Expressions):
    """Translates calls; statements are in `frontend.Translator`."""

    source: Source
    depth: int

    def __init__(self, source: Source, builder: Builder, env: dict[str, Any], depth: int, in_kernel: bool) -> None:
        self.source, self.builder, self.env, self.depth, self.in_kernel = source, builder, env, depth, in_kernel
        self.globals, self.file, self.lines, self.first_line = (
            source.globals,
            source.file,
            source.lines,
            source.first_line,
        )

    def body(self) -> Any:
        """Translate the whole body; defined in `frontend`."""
        raise AssertionError("overridden")

    # -- calls --------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Any:
        if node.keywords:
            raise self.fail(node, "keyword arguments are not part of the kernel language", "pass arguments in order")
        if isinstance(node.func, ast.Call):
            inner = self.expression(node.func.func)
            if inner is functions.grad:
                return self.gradient(node)
        callee = self.expression(node.func)
        arguments = [self.expression(a) for a in node.args]
        return self.call(callee, arguments, node)

    def call(self, callee: Any, arguments: list[Any], node: ast.Call) -> Any:
        """Call a function, constructor or intrinsic with translated arguments."""
        if isinstance(callee, Intrinsic):
            return self.intrinsic(callee, arguments, node)
        if isinstance(callee, BoundMethod):
            return self.inline(Func(callee.function), [callee.owner, *arguments], node)
        if isinstance(callee, Func):
            return self.inline(callee, arguments, node)
        if callee is len:
            return self.length(arguments, node)
        if callee in (float, types.Float, int, types.Int, bool, types.Bool):
            return self.convert(callee, arguments, node)
        if callee is functions.local:
            return self.local_array(arguments, node)
        if isinstance(callee, type) and issubclass(callee, types.Value):
            return self.construct(callee, arguments, node)
        if callee in (range, functions.static):
            raise self.fail(node, "range(...) is used in `for` loops only")
        if callee is functions.grad:
            raise self.fail(node, "grad(f) must be called at once", "write grad(f)(x, ...)")
        if callee is print:
            raise self.fail(
                node, "print is not part of the kernel language", "debug with kernel.python(...), where it works"
            )
        if isinstance(callee, python_types.FunctionType):
            raise self.fail(
                node,
                f"{callee.__name__!r} is plain Python",
                f"decorate it with @func: `@func` above `def {callee.__name__}`",
            )
        raise self.fail(node, f"{describe(callee)} cannot be called in a kernel", _callee_hint(callee))

    def intrinsic(self, callee: Intrinsic, arguments: list[Any], node: ast.Call) -> Any:
        """A scalar function; min and max take two or more."""
        name = callee.__name__
        if name in ("min", "max") and len(arguments) > 2:
            first = self.intrinsic(callee, arguments[:2], node)
            return self.intrinsic(callee, [first, *arguments[2:]], node)
        if len(arguments) != callee.arity:
            raise self.fail(
                node, f"{name} takes {callee.arity} argument{'s' * (callee.arity > 1)}, got {len(arguments)}"
            )
        if name == "select":
            return self.select(arguments, node)
        if all(isinstance(a, (int, float)) and not isinstance(a, bool) for a in arguments):
            return callee(*arguments) if name in ("min", "max", "abs") else float(callee(*map(float, arguments)))
        wrong = next((a for a in arguments if not is_number(a)), None)
        if wrong is not None:
            hint = "use norm(v)" if name == "abs" else "apply it to the components"
            raise self.fail(node, f"{name} takes numbers, got {describe(wrong)}", hint)
        whole = name == "uniform" or (
            all(terms.structure(a) in ("i", "weak") for a in arguments) and name in ("min", "max", "abs")
        )
        values = [self.as_kind(a, "i" if whole else "f", node, f"an argument of {name}") for a in arguments]
        return self.builder.op(name, *values)

    def select(self, arguments: list[Any], node: ast.Call) -> Any:
        """select(condition, a, b) on values of any type."""
        if isinstance(arguments[0], bool):
            return arguments[1] if arguments[0] else arguments[2]
        condition = self.as_kind(arguments[0], "b", node, "the first argument of select")
        try:
            shape = terms.settle(terms.unify(*(terms.structure(a) for a in arguments[1:])))
        except Mismatch as error:
            raise self.fail(node, f"select: {error}") from None
        if shape is None:
            raise self.fail(node, "select takes values, not arrays")
        sides = [terms.scalars(a, shape, self.builder) for a in arguments[1:]]
        picked = [self.builder.op("select", condition, a, b, kind=a.kind) for a, b in zip(*sides, strict=True)]
        return terms.rebuild(shape, picked)

    def length(self, arguments: list[Any], node: ast.Call) -> Any:
        """len of an array (known when it runs), a vector, a matrix or a tuple (known now)."""
        if len(arguments) == 1 and isinstance(arguments[0], ArrayTerm) and arguments[0].ref.role != "local":
            return self.builder.op("length", kind="i", attr=arguments[0].ref)
        if len(arguments) == 1 and isinstance(arguments[0], Compound) and issubclass(arguments[0].type, types._Numbers):
            return arguments[0].type.size
        if len(arguments) == 1 and isinstance(arguments[0], tuple):
            return len(arguments[0])
        raise self.fail(node, f"len takes an array, vector or tuple, got {', '.join(map(describe, arguments))}")

    def convert(self, callee: Any, arguments: list[Any], node: ast.Call) -> Any:
        """Float(x), Int(x)."""
        if len(arguments) != 1 or not is_number(arguments[0]):
            raise self.fail(node, f"{callee.__name__} converts one number, got {', '.join(map(describe, arguments))}")
        x = arguments[0]
        if not isinstance(x, Value):
            return {"f": float, "i": int, "b": bool}[
                types.flatten(callee) if issubclass(callee, types.Scalar) else callee.__name__[0]
            ](x)
        if callee in (bool, types.Bool) or x.kind == "b":
            raise self.fail(
                node,
                f"{describe(x)} is not converted to {callee.__name__}",
                "compare: `x != 0`, or `1.0 if c else 0.0`",
            )
        if callee in (float, types.Float):
            return terms.as_kind(x, "f", self.builder)
        return x if x.kind == "i" else self.builder.op("toint", x, kind="i")

    def construct(self, made: type, arguments: list[Any], node: ast.Call) -> Compound:
        """vec3(x, y, z), mat33(...), or a struct."""
        fields = made.fields  # type: ignore[attr-defined]
        if len(arguments) != len(fields):
            raise self.fail(
                node, f"{made.__name__} takes {len(fields)} values, got {len(arguments)}", "name all components"
            )
        values: list[Value] = []
        for (name, kind), argument in zip(fields, arguments, strict=True):
            role = f"{name} of {made.__name__}"
            if issubclass(kind, types.Scalar):
                values.append(self.as_kind(argument, kind.kind, node, role))
            elif isinstance(argument, Compound) and argument.type is kind:
                values.extend(argument.scalars)
            else:
                raise self.fail(node, f"{role} must be {kind.__name__}, got {describe(argument)}")
        return Compound(made, values)

    def local_array(self, arguments: list[Any], node: ast.Call) -> ArrayTerm:
        """local(Float, n)."""
        if len(arguments) != 2 or not types.is_value_type(arguments[0]):
            raise self.fail(node, "local takes a type and a size", "write local(Float, 8)")
        size = self.as_kind(arguments[1], "i", node, "the size of a local array")
        kinds = types.flatten(arguments[0])
        ref = ArrayRef(f"local{self.line_of(node)}", kinds, len(kinds), role="local")
        self.builder.append(Local(ref, size, self.line_of(node)))
        return ArrayTerm(ref, arguments[0])

    def inline(self, function: Func, arguments: list[Any], node: ast.AST | None = None) -> Any:
        """Translate a function's body in place, with the types of its arguments."""
        place = node or self.source.tree
        source = source_of(function.python)
        names = [a.arg for a in source.tree.args.args]
        if len(names) != len(arguments):
            raise self.fail(place, f"{function.__name__} takes {len(names)} arguments, got {len(arguments)}")
        if self.depth >= MAX_DEPTH:
            raise self.fail(place, f"{function.__name__} calls itself", "recursion cannot be compiled: write a loop")
        env = dict(zip(names, arguments, strict=True))
        self.check_annotations(function, source, env, place)
        if function.adjoint is not None and not self.builder_is_adjoint(function):
            return self.keep_call(function, arguments, place)
        shapes = tuple(terms.structure(a) for a in arguments)
        if _SIZES.get((function, shapes), 0) > optimise.LARGE and None not in shapes:
            return self.keep_call(function, arguments, place)
        line, begin = self.builder.line, len(self.builder.block.nodes)
        result = type(self)(source, self.builder, env, self.depth + 1, in_kernel=False).body()
        self.builder.line = line
        _SIZES[function, shapes] = optimise.size(Block(self.builder.block.nodes[begin:]))
        return result

    def check_annotations(self, function: Func, source: Source, env: dict[str, Any], place: ast.AST) -> None:
        """Compare arguments with a function's annotations and convert numbers."""
        for argument in source.tree.args.args:
            wanted = source.annotation(argument.annotation)
            given = env[argument.arg]
            role = f"argument {argument.arg!r} of {function.__name__}"
            if isinstance(wanted, type) and issubclass(wanted, types.Scalar):
                if is_number(given) and not (
                    isinstance(given, (int, float)) and not isinstance(given, bool) and wanted is types.Float
                ):
                    env[argument.arg] = self.as_kind(given, wanted.kind, place, role)
                elif not is_number(given):
                    raise self.fail(place, f"{role} must be {wanted.__name__}, got {describe(given)}")
            elif isinstance(wanted, type) and issubclass(wanted, types.Value):
                if not (isinstance(given, Compound) and given.type is wanted):
                    raise self.fail(place, f"{role} must be {wanted.__name__}, got {describe(given)}")

    def builder_is_adjoint(self, function: Func) -> bool:
        """Whether the function with this hand-written adjoint is being inlined into that adjoint itself."""
        return function in getattr(self.builder, "opened", ())

    def keep_call(self, function: Func, arguments: list[Any], place: ast.AST) -> Any:
        """A call of a function with its own adjoint: kept as a node, so that reverse mode finds it."""
        shapes = [terms.structure(a) for a in arguments]
        if None in shapes:
            raise self.fail(place, f"{function.__name__} has its own adjoint and takes values only, no arrays")
        settled = [terms.settle("f" if s == "weak" else s) for s in shapes]
        values = [v for a, s in zip(arguments, settled, strict=True) for v in terms.scalars(a, s, self.builder)]
        primal, shape = build_function(type(self), function, settled)
        if function.adjoint is not None:
            kinds = [k for s in settled for k in terms.kinds(s)]
            primal.adjoint = build_adjoint(type(self), function, settled, shape, kinds)
        results = [self.builder.result(r.kind) for r in primal.results]
        self.builder.append(Call(primal, values, results, self.builder.line))
        return terms.rebuild(shape, list(results))

    def gradient(self, node: ast.Call) -> Any:
        """grad(f, argument)(...): the reverse sweep of f, appended in place."""
        inner = node.func
        assert isinstance(inner, ast.Call)
        options = [self.expression(a) for a in inner.args]
        if not options or not isinstance(options[0], Func):
            raise self.fail(inner, "grad takes a function decorated with @func")
        function, which = options[0], options[1] if len(options) > 1 else 0
        arguments = [self.expression(a) for a in node.args]
        if not isinstance(which, int) or not 0 <= which < len(arguments):
            raise self.fail(
                inner, f"grad: there is no argument {which!r}", "count arguments from 0: grad(f, 1) is the second"
            )
        target = arguments[which]
        if not isinstance(target, (Compound, Value, float, int)) or isinstance(target, bool):
            raise self.fail(node, f"grad: {describe(target)} has no derivative")
        b = self.builder
        shape = "f" if is_number(target) else target.type
        # Copies separate this use of the argument from all others.
        copies = [b.op("copy", v, attr=object()) for v in terms.scalars(target, shape, b)]
        arguments[which] = terms.rebuild(shape, list(copies))
        begin = len(b.block.nodes)
        energy = self.inline(function, arguments, node)
        if not is_number(energy):
            raise self.fail(
                node, f"grad needs a function that returns one number; {function.__name__} returns {describe(energy)}"
            )
        adj: dict[Value, Value] = {}
        if isinstance(energy, Value) and energy.kind == "f":
            adj[energy] = b.const(1.0, "f")
            try:
                reverse.sweep(b, b.block.nodes[begin:], adj)
            except reverse.NoAdjoint as error:
                raise self.fail(node, f"the derivative of {function.__name__} cannot be formed: {error}") from None
        zero = b.const(0.0, "f")
        return terms.rebuild(shape, [adj.get(c, zero) for c in copies])


def build_function(make: type[Calls], function: Func, shapes: list[Any]) -> tuple[Function, Any]:
    """Translate a function for given argument shapes on its own; returns it and the shape of its result."""
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
    wanted = [tuple(terms.kinds(s)) for s in shapes]
    got = [tuple(terms.kinds(s)) for s in given]
    for name, w, g in zip(function.parameters, wanted, [*got, *[()] * len(wanted)], strict=False):
        if len(w) != len(g) and "f" in w and g != ("f",):
            source = source_of(function.adjoint.python)
            raise KernelError(
                f"the adjoint of {function.__name__} returns {len(g)} numbers for argument {name!r}, which has {len(w)}",
                file=source.file,
                line=source.first_line,
                fix="return one cotangent per argument, each of the argument's type (0.0 for none)",
            )
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
    names = [a.arg for a in source.tree.args.args]
    if len(names) != len(shapes):
        raise KernelError(
            f"{function.__name__} takes {len(names)} arguments, but {len(shapes)} are needed",
            file=source.file,
            line=source.first_line,
            fix="an adjoint takes the arguments of its function, then one cotangent per result",
        )
    params: list[Value] = []
    env: dict[str, Any] = {}
    for name, shape in zip(names, shapes, strict=True):
        values = [Value("param", (), kind) for kind in terms.kinds(shape)]
        params.extend(values)
        env[name] = terms.rebuild(shape, list(values))
    translator = make(source, builder, env, 1, in_kernel=False)
    term = translator.body()
    shape = terms.structure(term)
    if shape is None:
        raise translator.fail(source.tree, f"{function.__name__} must return a value", "return one value or a tuple")
    shape = _weak_to_float(shape) if weak_float else terms.settle(shape)
    results = terms.scalars(term, shape, builder)
    return Function(function.__name__, params, builder.block, results), shape


def _weak_to_float(shape: Any) -> Any:
    if isinstance(shape, tuple):
        return tuple(_weak_to_float(s) for s in shape)
    return "f" if shape == "weak" else shape


def _callee_hint(callee: Any) -> str:
    module = getattr(callee, "__module__", "") or ""
    if module.startswith(("numpy", "torch")):
        return "use the functions of kinema.lang (sin, dot, norm, ...)"
    return "use functions of kinema.lang or your own @func"
