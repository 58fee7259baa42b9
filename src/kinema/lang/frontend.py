"""From the Python source of a kernel to the intermediate form: statements, control flow and calls.

Functions are inlined with the types of their arguments. Early returns and `break` split the path: what follows an
`if` that leaves is translated once for each branch, so the result is structured control flow with nothing left over.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from kinema.lang import calls, functions, terms, types
from kinema.lang.calls import Calls
from kinema.lang.ir import TAME, ArrayRef, Block, Builder, For, Function, If, KernelIR, Store, Value
from kinema.lang.markers import Func
from kinema.lang.sources import source_of
from kinema.lang.terms import ArrayTerm, Compound, Mismatch, RecordTerm, Undefined, describe, is_number

__all__ = ["Translator", "build_function", "source_of", "translate"]

SPECULATE = 12  # an `if` of at most this many harmless operations is computed on both sides and selected


class _Left:
    """Outcome of statements that left their function or loop iteration; `value` is what was returned."""

    def __init__(self, value: Any = None) -> None:
        self.value = value


class Translator(Calls):
    """Translates one function body; a nested one is made for each inlined call."""

    loops = 0  # that are open

    # -- statements ---------------------------------------------------------------------------------------------

    def body(self) -> Any:
        """Translate the whole body; returns the returned term."""
        outcome = self.statements(self.source.tree.body)
        return outcome.value if outcome else None

    def statements(self, nodes: list[ast.stmt]) -> _Left | None:
        """Translate statements in order; returns an outcome if they leave."""
        for at, node in enumerate(nodes):
            self.builder.line = node.lineno + self.first_line - 1
            if isinstance(node, ast.If):
                outcome, finished = self.conditional(node, nodes[at + 1 :])
                if outcome or finished:
                    return outcome
                continue
            handler = getattr(self, f"_{type(node).__name__.lower()}_statement", None)
            if handler is None:
                name, hint = _REFUSED.get(type(node), (type(node).__name__, ""))
                raise self.fail(node, f"{name} is not part of the kernel language", hint)
            outcome = handler(node)
            if outcome:
                return outcome
        return None

    def _pass_statement(self, node: ast.Pass) -> None:
        return None

    def _expr_statement(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return
        if isinstance(node.value, ast.Call):
            self.expression(node.value)
            return
        raise self.fail(node, "this expression has no effect", "assign it to a name, or remove the line")

    def _return_statement(self, node: ast.Return) -> _Left:
        if self.loops:
            raise self.fail(node, "`return` inside a loop", "leave the loop with `break` and return after it")
        value = self.expression(node.value) if node.value else None
        if self.in_kernel and value is not None:
            raise self.fail(node, "a kernel returns nothing", "store results in an array argument")
        return _Left(value)

    def _break_statement(self, node: ast.Break) -> _Left:
        self.env["%alive"] = False
        return _Left()

    def _continue_statement(self, node: ast.Continue) -> _Left:
        return _Left()

    def _assign_statement(self, node: ast.Assign) -> None:
        if len(node.targets) > 1:
            raise self.fail(node, "several targets in one assignment", "assign one by one")
        self.assign(node.targets[0], self.expression(node.value))

    def _annassign_statement(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            raise self.fail(node, "a declaration without a value", "give it a value; types are inferred")
        self.assign(node.target, self.expression(node.value))

    def assign(self, target: ast.expr, value: Any) -> None:
        """Bind a name, unpack a tuple or vector, or store into an array."""
        if isinstance(target, ast.Name):
            if value is None:
                raise self.fail(target, "the function on the right returns nothing")
            self.env[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value.scalars if isinstance(value, Compound) and issubclass(value.type, types._Vector) else value
            if not isinstance(parts, (tuple, list)):
                raise self.fail(target, f"{describe(value)} cannot be unpacked")
            if len(parts) != len(target.elts):
                raise self.fail(target, f"{len(target.elts)} names for {len(parts)} values")
            for element, part in zip(target.elts, parts, strict=True):
                self.assign(element, part)
        elif isinstance(target, ast.Subscript):
            self.store(target, value, "set")
        elif isinstance(target, ast.Attribute):
            raise self.fail(
                target, "components and fields are not assigned", "build a new value, e.g. v = vec3(1.0, v.y, v.z)"
            )
        else:
            raise self.fail(target, "this cannot be assigned to")

    def store(self, target: ast.Subscript, value: Any, mode: str) -> None:
        """Write or add to one array element."""
        array = self.expression(target.value)
        if isinstance(array, Compound):
            raise self.fail(target, "components are not assigned", "build a new value, e.g. v = vec3(1.0, v.y, v.z)")
        if not isinstance(array, ArrayTerm):
            raise self.fail(target, f"{describe(array)} cannot be stored into")
        if array.ref.is_value:
            raise self.fail(target, f"{array.ref.name!r} is a value, not an array")
        index = self.index_of(array, target.slice)
        if issubclass(array.element, types.Scalar):
            values = [self.as_kind(value, array.element.kind, target, f"an element of {array.ref.name!r}")]
        else:
            if not (isinstance(value, Compound) and value.type is array.element):
                wanted = array.element.__name__
                raise self.fail(target, f"elements of {array.ref.name!r} are {wanted}, got {describe(value)}")
            values = list(value.scalars)
        if mode == "add" and set(array.ref.kinds) != {"f"}:
            raise self.fail(target, "`+=` on arrays is for Float elements")
        array.ref.written.add(mode)
        self.builder.append(Store(array.ref, index, values, mode, self.builder.line))

    def _augassign_statement(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Subscript) and isinstance(self.peek(node.target.value), ArrayTerm):
            value = self.expression(node.value)
            if isinstance(node.op, ast.Sub):
                zero: Any = _minus_zero(value)
                value = self.arithmetic("mul", value, -1.0, node) if zero is None else zero
            elif not isinstance(node.op, ast.Add):
                raise self.fail(
                    node,
                    "array elements are accumulated with += or -= only",
                    "read the element, compute, store to another array",
                )
            self.store(node.target, value, "add")
            return
        left = self.expression(_loaded(node.target))
        right = self.expression(node.value)
        binop = ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
        if isinstance(node.op, ast.Pow):
            self.assign(node.target, self.power(left, right, node))
        elif isinstance(node.op, ast.MatMult):
            self.assign(node.target, self.matmul(left, right, node))
        else:
            ops = {
                ast.Add: "add",
                ast.Sub: "sub",
                ast.Mult: "mul",
                ast.Div: "div",
                ast.FloorDiv: "idiv",
                ast.Mod: "imod",
            }
            if type(node.op) not in ops:
                raise self.fail(binop, f"operator {type(node.op).__name__} is not part of the kernel language")
            self.assign(node.target, self.arithmetic(ops[type(node.op)], left, right, node))

    def peek(self, node: ast.expr) -> Any:
        """The term of a name or record member without emitting anything; None if it is something else."""
        if isinstance(node, ast.Name):
            return self.env.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.peek(node.value)
            return base.members.get(node.attr) if isinstance(base, RecordTerm) else None
        return None

    # -- branches -----------------------------------------------------------------------------------------------

    def conditional(self, node: ast.If, rest: list[ast.stmt]) -> tuple[_Left | None, bool]:
        """An `if`. Returns (outcome, whether `rest` has been translated too)."""
        cond = self.expression(node.test)
        if isinstance(cond, bool):
            outcome = self.statements(node.body if cond else node.orelse)
            return outcome, False
        condition = self.as_kind(cond, "b", node.test, "a condition")
        leaves = _leaves(node.body) or _leaves(node.orelse)
        then_nodes, else_nodes = (node.body + rest, node.orelse + rest) if leaves else (node.body, node.orelse)
        before = dict(self.env)
        then, left_then, env_then = self.path(then_nodes, before)
        orelse, left_else, env_else = self.path(else_nodes, before)
        results: list[tuple[Value, Value, Value]] = []
        merged = self.merge_environments(node, then, orelse, env_then, env_else, results)
        outcome = None
        if leaves:
            values = [left.value if left else None for left in (left_then, left_else)]
            outcome = _Left(self.merge(node, "the returned value", then, orelse, *values, results))
        self.env = merged
        self.branch(condition, then, orelse, results)
        return outcome, leaves

    def path(self, nodes: list[ast.stmt], env: dict[str, Any]) -> tuple[Block, _Left | None, dict[str, Any]]:
        """Translate one branch in a block of its own, from a copy of the environment."""
        self.env = dict(env)
        block = self.builder.push()
        left = self.statements(nodes)
        self.builder.pop()
        return block, left, self.env

    def merge_environments(
        self,
        node: ast.If,
        then: Block,
        orelse: Block,
        env_then: dict[str, Any],
        env_else: dict[str, Any],
        results: list[tuple[Value, Value, Value]],
    ) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for name in {**env_then, **env_else}:
            a, b = env_then.get(name), env_else.get(name)
            if name not in env_then or name not in env_else:
                merged[name] = Undefined(f"is given a value only on one path of the `if` in line {self.line_of(node)}")
            elif a is b or (type(a) is type(b) and is_number(a) and a == b):
                merged[name] = a
            elif isinstance(a, Undefined) or isinstance(b, Undefined):
                merged[name] = a if isinstance(a, Undefined) else b
            else:
                merged[name] = self.merge(node, repr(name), then, orelse, a, b, results)
        return merged

    def line_of(self, node: ast.AST) -> int:
        """The line of a node in its file."""
        return node.lineno + self.first_line - 1  # type: ignore[attr-defined]

    def merge(
        self,
        node: ast.AST,
        what: str,
        then: Block,
        orelse: Block,
        a: Any,
        b: Any,
        results: list[tuple[Value, Value, Value]],
    ) -> Any:
        """One term from the two of a branch; conversions are placed into the branches."""
        if a is b:
            return a
        try:
            shape = terms.settle(terms.unify(terms.structure(a), terms.structure(b)))
            if shape is None:
                raise Mismatch(f"{describe(a)} on one path and {describe(b)} on the other")
        except Mismatch as error:
            raise self.fail(node, f"{what} is {error}", "give it the same type on both paths") from None
        sides = []
        for block, term in ((then, a), (orelse, b)):
            self.builder.push(block)
            sides.append(terms.scalars(term, shape, self.builder))
            self.builder.pop()
        made = [self.builder.result(kind) for kind in terms.kinds(shape)]
        results.extend(zip(made, *sides, strict=True))
        return terms.rebuild(shape, list(made))

    def branch(self, cond: Value, then: Block, orelse: Block, results: list[tuple[Value, Value, Value]]) -> None:
        """Append an `If`; a short and harmless one is computed on both sides and selected."""
        nodes = then.nodes + orelse.nodes
        if len(nodes) <= SPECULATE and all(isinstance(n, Value) and n.op in TAME for n in nodes):
            self.builder.block.nodes.extend(nodes)
            for result, a, b in results:
                result.op, result.args = "select", (cond, a, b)
                self.builder.block.nodes.append(result)
            return
        self.builder.append(If(cond, then, orelse, results, self.builder.line))

    def _ifexp(self, node: ast.IfExp) -> Any:
        cond = self.expression(node.test)
        if isinstance(cond, bool):
            return self.expression(node.body if cond else node.orelse)
        condition = self.as_kind(cond, "b", node.test, "a condition")
        then = self.builder.push()
        a = self.expression(node.body)
        self.builder.pop()
        orelse = self.builder.push()
        b = self.expression(node.orelse)
        self.builder.pop()
        results: list[tuple[Value, Value, Value]] = []
        merged = self.merge(node, "the value", then, orelse, a, b, results)
        self.branch(condition, then, orelse, results)
        return merged

    # -- loops --------------------------------------------------------------------------------------------------

    def _for_statement(self, node: ast.For) -> _Left | None:
        if node.orelse:
            raise self.fail(node, "`else` after a loop", "use a Bool that the loop sets")
        if not isinstance(node.target, ast.Name):
            raise self.fail(node.target, "a loop has one variable")
        call = node.iter
        callee = self.expression(call.func) if isinstance(call, ast.Call) else None
        if callee not in (range, functions.static):
            raise self.fail(
                node.iter, "loops go over range(...) or static(...)", "write `for i in range(n):` and index with i"
            )
        assert isinstance(call, ast.Call)
        bounds = [self.expression(a) for a in call.args]
        if not 1 <= len(bounds) <= 3 or call.keywords:
            raise self.fail(call, f"range takes 1 to 3 arguments, got {len(bounds)}")
        if callee is functions.static:
            self.unroll(node, bounds)
        else:
            self.loop(node, bounds)
        return None

    def unroll(self, node: ast.For, bounds: list[Any]) -> None:
        """`for k in static(...)`: the body once per value."""
        if not all(isinstance(b, int) for b in bounds):
            raise self.fail(node.iter, "the bounds of static(...) must be constants", "use range(...) for other loops")
        if _leaves(node.body):
            raise self.fail(node, "`break` and `continue` cannot leave an unrolled loop", "use range(...)")
        assert isinstance(node.target, ast.Name)
        for k in range(*bounds):
            self.env[node.target.id] = k
            self.statements(node.body)
        self.env[node.target.id] = Undefined("is the variable of an unrolled loop that has ended")

    def loop(self, node: ast.For, bounds: list[Any]) -> None:
        """`for i in range(...)`: a loop of the intermediate form; rebuilt if a carried value turns out to be Float."""
        step = bounds[2] if len(bounds) == 3 else 1
        if not isinstance(step, int) or step == 0:
            raise self.fail(node.iter, "the step of a range must be a constant other than 0")
        first, last = (bounds[0], bounds[1]) if len(bounds) > 1 else (0, bounds[0])
        start, stop = (self.as_kind(t, "i", node.iter, "a bound of range") for t in (first, last))
        assert isinstance(node.target, ast.Name)
        before = dict(self.env)
        outer = before.pop("%alive", None)
        if _breaks(node.body):
            before["%alive"] = True
        names = [n for n in [*_assigned(node.body), "%alive"] if n in before and terms.structure(before[n]) is not None]
        shapes = [terms.structure(before[n]) for n in names]
        for _ in range(4):
            settled = [terms.settle(s) for s in shapes]
            found = self.loop_once(node, start, stop, step, before, names, settled)
            try:
                wanted = [terms.unify(s, f) for s, f in zip(shapes, found, strict=True)]
            except Mismatch:
                changed = [n for n, s, f in zip(names, settled, found, strict=True) if s != terms.settle(f)]
                raise self.fail(
                    node,
                    f"{changed[0]!r} changes its type in the loop",
                    "start it with a value of the final type, e.g. 0.0",
                ) from None
            if [terms.settle(w) for w in wanted] == settled:
                if outer is not None:
                    self.env["%alive"] = outer
                return
            shapes = wanted
            self.builder.block.nodes.pop()
        raise self.fail(node, "the types of this loop do not settle", "start carried values with their final type")

    def loop_once(
        self,
        node: ast.For,
        start: Value,
        stop: Value,
        step: int,
        before: dict[str, Any],
        names: list[str],
        shapes: list[Any],
    ) -> list[Any]:
        """Append the loop, given the shapes of the carried values; returns the shapes they have after the body."""
        b = self.builder
        var = b.result("i")
        self.env = dict(before)
        inits = [
            terms.scalars(before[n], s, b) if _fits(before[n], s) else None for n, s in zip(names, shapes, strict=True)
        ]
        phis: list[list[Value]] = []
        for name, shape in zip(names, shapes, strict=True):
            phis.append([b.result(kind) for kind in terms.kinds(shape)])
            self.env[name] = terms.rebuild(shape, list(phis[-1]))
        low, high, down = (start, stop, False) if step == 1 else self.count_of(start, stop, step)
        body = b.push()
        assert isinstance(node.target, ast.Name)
        self.env[node.target.id] = var if step in (1, -1) else b.op("add", start, b.op("mul", var, b.const(step, "i")))
        if "%alive" in names:
            self.env["%alive"] = True
        self.loops += 1
        self.statements(node.body)
        self.loops -= 1
        found = [terms.structure(self.env[n]) for n in names]
        carried: list[tuple[Value, Value, Value, Value]] = []
        after: dict[str, Any] = {}
        for name, shape, phi, init, now in zip(names, shapes, phis, inits, found, strict=True):
            try:
                if init is None or terms.settle(terms.unify(shape, now)) != shape:
                    raise Mismatch("")
                nexts = terms.scalars(self.env[name], shape, b)
            except Mismatch:
                nexts, init = phi, phi  # wrong shape: the caller tries again
            outs = [b.result(p.kind) for p in phi]
            carried.extend(zip(phi, init, nexts, outs, strict=True))
            after[name] = terms.rebuild(shape, list(outs))
        b.pop()
        alive = sum(len(p) for p in phis[: names.index("%alive")]) if "%alive" in names else None
        b.append(For(var, low, high, carried, body, down, alive, self.line_of(node)))
        self.env = dict(before)
        self.env.update(after)
        self.env.pop("%alive", None)
        gone = Undefined(f"is given a value only inside the loop in line {self.line_of(node)}")
        for name in {*_assigned(node.body), node.target.id} - set(names):
            if name != "%alive":
                self.env[name] = gone
        return found

    def count_of(self, start: Value, stop: Value, step: int) -> tuple[Value, Value, bool]:
        """Bounds and direction for steps other than 1."""
        b = self.builder
        if step == -1:
            one = b.const(1, "i")
            return b.op("add", stop, one), b.op("add", start, one), True
        span = b.op("sub", stop, start) if step > 0 else b.op("sub", start, stop)
        size = b.const(abs(step), "i")
        count = b.op("idiv", b.op("add", span, b.const(abs(step) - 1, "i")), size)
        return b.const(0, "i"), count, False


def build_function(function: Func, shapes: list[Any]) -> tuple[Function, Any]:
    """Translate a function for given argument shapes on its own; returns it and the shape of its result."""
    return calls.build_function(Translator, function, shapes)


def translate(python: Callable[..., Any]) -> KernelIR:
    """Translate a kernel's source."""
    source = source_of(python)
    builder = Builder()
    arrays: list[ArrayRef] = []
    env: dict[str, Any] = {}
    index: Value | None = None
    translator = Translator(source, builder, env, 0, in_kernel=True)
    if source.tree.args.vararg or source.tree.args.kwonlyargs or source.tree.args.kwarg or source.tree.args.defaults:
        raise translator.fail(source.tree, "a kernel takes plain positional arguments", "remove defaults, * and **")
    for at, argument in enumerate(source.tree.args.args):
        kind = source.annotation(argument.annotation)
        if kind is None:
            raise translator.fail(
                argument, f"argument {argument.arg!r} has no type", f"write `{argument.arg}: Array[Float]` or the like"
            )
        if kind is types.Index:
            if at:
                raise translator.fail(argument, "Index is the first argument of a kernel")
            index = Value("index", (), "i", argument.arg)
            env[argument.arg] = index
        else:
            env[argument.arg] = declare(translator, argument, argument.arg, kind, arrays)
    for name, term in list(env.items()):
        if isinstance(term, _ValueArgument):
            env[name] = term()
    translator.body()
    return KernelIR(python.__name__, index, arrays, builder.block, source.file, source.lines, source.first_line)


class _ValueArgument:
    """A Float, vec3, ... argument: read from an array of length one when it is used."""

    def __init__(self, translator: Translator, array: ArrayTerm) -> None:
        self.translator, self.array = translator, array

    def __call__(self) -> Any:
        zero = self.translator.builder.const(0, "i")
        return self.translator.load(self.array, zero, self.translator.source.tree)


def declare(translator: Translator, node: ast.arg, name: str, kind: Any, arrays: list[ArrayRef]) -> Any:
    """The term of one kernel argument; appends its arrays."""
    if isinstance(kind, type) and issubclass(kind, types.Array) and kind is not types.Array:
        if not types.is_value_type(kind.element):
            raise translator.fail(
                node,
                f"{name!r}: Array[{kind.element!r}] has no elements of a value type",
                "use Array[Float], Array[vec3], ...",
            )
        ref = ArrayRef(name, types.flatten(kind.element), types.padded_size(kind.element))
        arrays.append(ref)
        return ArrayTerm(ref, kind.element)
    if types.is_value_type(kind):
        ref = ArrayRef(name, types.flatten(kind), types.padded_size(kind), is_value=True)
        arrays.append(ref)
        return _ValueArgument(translator, ArrayTerm(ref, kind))
    if isinstance(kind, type) and issubclass(kind, types.Record):
        members = {part: declare(translator, node, f"{name}_{part}", t, arrays) for part, t in kind.members}
        return RecordTerm(kind, members)
    shown = getattr(kind, "__name__", repr(kind))
    raise translator.fail(
        node,
        f"argument {name!r} has type {shown}, which kernels do not take",
        "use Float, Int, vec3, Array[...], a @struct or a @record",
    )


def _fits(term: Any, shape: Any) -> bool:
    try:
        return bool(terms.settle(terms.unify(terms.structure(term), shape)) == shape)
    except Mismatch:
        return False


def _minus_zero(value: Any) -> Any:
    return -value if isinstance(value, (int, float)) else None


def _loaded(node: ast.expr) -> ast.expr:
    copy = ast.parse(ast.unparse(node), mode="eval").body
    for part in ast.walk(copy):
        ast.copy_location(part, node)
    return copy


def _leaves(nodes: list[ast.stmt]) -> bool:
    """Whether statements contain a return, or a break or continue of the loop they are in."""
    for node in nodes:
        if isinstance(node, (ast.Return, ast.Break, ast.Continue)):
            return True
        if isinstance(node, ast.If) and (_leaves(node.body) or _leaves(node.orelse)):
            return True
        if isinstance(node, ast.For) and any(isinstance(n, ast.Return) for n in ast.walk(node)):
            return True
    return False


def _breaks(nodes: list[ast.stmt]) -> bool:
    return any(
        isinstance(node, ast.Break) or (isinstance(node, ast.If) and (_breaks(node.body) or _breaks(node.orelse)))
        for node in nodes
    )


def _assigned(nodes: list[ast.stmt]) -> list[str]:
    """Names that statements bind, in order of appearance."""
    names: dict[str, None] = {}
    for statement in nodes:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] = None
    return list(names)


_REFUSED: dict[type, tuple[str, str]] = {
    ast.While: ("`while`", "write `for i in range(max_iterations):` with `break`"),
    ast.With: ("`with`", ""),
    ast.Try: ("`try`", "test for the condition with `if`"),
    ast.Raise: ("`raise`", "store a status in an array"),
    ast.Assert: ("`assert`", "KINEMA_CHECK=1 checks indices and finite values"),
    ast.Import: ("`import`", "import at the top of the file"),
    ast.ImportFrom: ("`import`", "import at the top of the file"),
    ast.Global: ("`global`", "pass values as arguments"),
    ast.Nonlocal: ("`nonlocal`", "pass values as arguments"),
    ast.Delete: ("`del`", ""),
    ast.FunctionDef: ("a nested function", "define a @func at the top of the file"),
    ast.ClassDef: ("a nested class", "define a @struct at the top of the file"),
}
