"""Translates the Python source of a kernel to the intermediate form: statements, control flow and calls.

Functions are inlined for the types of their arguments. Early returns and `break` split the path: statements after an
`if` that leaves are translated once per branch, so the result is structured control flow.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from kinema.errors import KernelError
from kinema.lang.frontend import calls, diagnostics, symbols
from kinema.lang.frontend.calls import Calls
from kinema.lang.frontend.sources import source_of
from kinema.lang.frontend.symbols import ArrayTerm, Compound, Mismatch, RecordTerm, Undefined, describe, is_number
from kinema.lang.ir import analysis
from kinema.lang.ir.ssa import (
    TAME,
    ArrayRef,
    Block,
    Builder,
    For,
    Function,
    If,
    KernelIR,
    Store,
    Value,
    blocks_of,
    walk,
)
from kinema.lang.language import functions, types
from kinema.lang.language.markers import Func

__all__ = ["Translator", "build_function", "source_of", "translate"]

SPECULATE = 12  # up to this many safe operations, both sides of an `if` are computed and one is selected


class _Left:
    """Outcome of statements that left their function or loop iteration; `value` is the returned value."""

    def __init__(self, value: Any = None) -> None:
        self.value = value


class Translator(Calls):
    """Translates one function body; each inlined call has a nested translator."""

    loops = 0  # open loops

    # -- statements ---------------------------------------------------------------------------------------------

    def body(self) -> Any:
        """Translate the whole body; returns the returned term."""
        outcome = self.statements(self.source.tree.body)
        return outcome.value if outcome else None

    def statements(self, nodes: list[ast.stmt]) -> _Left | None:
        """Translate statements in order; returns an outcome if they leave."""
        for at, node in enumerate(nodes):
            self.builder.line = self.line_of(node)
            if isinstance(node, ast.If):
                outcome, finished = self.conditional(node, nodes[at + 1 :])
                if outcome or finished:
                    return outcome
                continue
            handler = getattr(self, f"_{type(node).__name__.lower()}_statement", None)
            if handler is None:
                kind = type(node).__name__
                name, hint = diagnostics.STATEMENTS.get(
                    kind, (f"`{kind.lower()}`", "assignments, `if`, `for` and calls")
                )
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
        if type(node.value) in diagnostics.EXPRESSIONS:
            self.expression(node.value)
        begin = len(self.builder.block.nodes)
        if isinstance(node.value, ast.Call):
            result = self._call(node.value)
            made = Block(self.builder.block.nodes[begin:])
            if result is None or any(isinstance(n, Store) for n in walk(made)):
                return
            called = ast.unparse(node.value)
            raise self.fail(node, f"the result of {ast.unparse(node.value.func)}(...) is not used", f"x = {called}")
        raise self.fail(node, "this expression has no effect", "an assignment; or remove the line")

    def _return_statement(self, node: ast.Return) -> _Left:
        if self.loops:
            self._return_statement_in_loop(node)
        empty = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        value = None if empty else self.expression(node.value)  # type: ignore[arg-type]
        if self.in_kernel and value is not None:
            raise self.fail(node, "a kernel returns nothing", "store results in an array argument")
        return _Left(value)

    def _return_statement_in_loop(self, node: ast.Return) -> None:
        raise self.fail(node, "`return` inside a loop", "`break`, and `return` after the loop")

    def _break_statement(self, node: ast.Break) -> _Left:
        self.env["%alive"] = False
        return _Left()

    def _continue_statement(self, node: ast.Continue) -> _Left:
        return _Left()

    def _assign_statement(self, node: ast.Assign) -> None:
        if len(node.targets) > 1:
            names = [ast.unparse(t) for t in node.targets]
            hint = f"`{names[-1]} = {ast.unparse(node.value)}`, then `{names[0]} = {names[-1]}`"
            raise self.fail(node.targets[1], "several targets in one assignment", hint)
        self.assign(node.targets[0], self.expression(node.value), node.value)

    def _annassign_statement(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            raise self.fail(node, "a declaration without a value", "an assignment: types are inferred")
        value = self.expression(node.value)
        wanted = self.source.annotation(node.annotation)
        if not types.is_value_type(wanted):
            raise self.fail(
                node.annotation, f"{ast.unparse(node.annotation)!r} is not a value type", "Float, Int, vec3, ..."
            )
        self.assign(node.target, self.coerced(value, wanted, node.value, ast.unparse(node.target)), node.value)

    def assign(self, target: ast.expr, value: Any, given: ast.expr) -> None:
        """Bind a name, unpack a tuple or vector, or store into an array; `given` is the node of the value."""
        if isinstance(target, ast.Name):
            self.refuse_rebinding(target)
            self.env[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value.scalars if isinstance(value, Compound) and issubclass(value.type, types._Vector) else value
            if not isinstance(parts, (tuple, list)):
                hint = "one name" if is_number(value) else "a vector or several returned values"
                raise self.fail(given, f"{describe(value)} cannot be unpacked", hint)
            starred = next((e for e in target.elts if isinstance(e, ast.Starred)), None)
            if starred is not None:
                raise self.fail(starred, "* is not part of the kernel language", "one name for each value")
            if len(parts) != len(target.elts):
                hint = "one name for each value; _ for values you do not need"
                raise self.fail(target, f"{len(target.elts)} names for {len(parts)} values", hint)
            for element, part in zip(target.elts, parts, strict=True):
                self.assign(element, part, given)
        elif isinstance(target, ast.Subscript):
            self.store(target, value, "set", given)
        elif isinstance(target, ast.Attribute):
            raise self.fail(target, *self.not_assigned(target))
        else:
            raise self.fail(target, f"{ast.unparse(target)} cannot be assigned to", "a name or an array element")

    def refuse_rebinding(self, target: ast.Name) -> None:
        """Fail for an assignment to the name of an array argument: it would change no element."""
        before = self.env.get(target.id)
        record = isinstance(before, RecordTerm) and not before.made
        if record or (isinstance(before, ArrayTerm) and before.ref.role != "local"):
            hint = f"{target.id}[i] = ..., or another name" if isinstance(before, ArrayTerm) else "another name"
            what = f"{target.id!r} is an argument of type {describe(before)}: assigning to its name changes no element"
            raise self.fail(target, what, hint)

    def not_assigned(self, target: ast.Attribute | ast.Subscript) -> tuple[str, str]:
        """Why a part of a value cannot be assigned, and what to write instead."""
        base = self.expression(target.value)
        name = ast.unparse(target.value)
        if isinstance(base, RecordTerm) and isinstance(target, ast.Attribute):
            member = base.members.get(target.attr)
            hint = f"{name}.{target.attr}[i] = ..." if isinstance(member, ArrayTerm) else "a local name"
            return "members of a record cannot be assigned", hint
        if not isinstance(base, Compound):
            hint = "an argument of type Array[...]" if is_number(base) else diagnostics.for_number(base)
            return f"{describe(base)} has no assignable parts", hint
        at = ast.unparse(target.slice) if isinstance(target, ast.Subscript) else target.attr
        if issubclass(base.type, types._Matrix):
            return "entries of a matrix cannot be assigned", f"a new matrix: {name} = {base.type.__name__}(...)"
        fields = [field for field, _ in base.type.fields]  # type: ignore[attr-defined]
        parts = [f"{name}.{f}" if at not in (f, str(k)) else "value" for k, f in enumerate(fields)]
        return "components cannot be assigned", f"a new value: {name} = {base.type.__name__}({', '.join(parts)})"

    def store(self, target: ast.Subscript, value: Any, mode: str, given: ast.expr) -> None:
        """Write or add to one array element."""
        array = self.expression(target.value)
        if not isinstance(array, ArrayTerm):
            raise self.fail(target, *self.not_assigned(target))
        index = self.index_of(array, target.slice)
        role = f"an element of {array.ref.name!r}"
        if mode == "add" and set(array.ref.kinds) != {"f"}:
            hint = f"a Float array, or another Int array: counted[i] = {array.ref.name}[i] + 1"
            raise self.fail(target, f"+= on arrays needs Float elements; {array.ref.name!r} has Int elements", hint)
        if issubclass(array.element, types.Scalar):
            values = [self.as_kind(value, array.element.kind, given, role)]
        else:
            values = list(self.coerced(value, array.element, given, role).scalars)
        array.ref.written.add(mode)
        made = Store(array.ref, index, values, mode, self.line_of(target))
        if mode == "set" and array.ref.role != "local":
            shown = ast.unparse(target)
            hint = f"{shown} += ... for the sum over all, or a kernel without Index, which runs once per world"
            self.stores[made] = self.fail(target, f"all elements write to the same {shown}: the last one wins", hint)
        self.builder.append(made)

    def _augassign_statement(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Subscript) and isinstance(self.peek(node.target.value), ArrayTerm):
            value = self.expression(node.value)
            if not isinstance(node.op, (ast.Add, ast.Sub)):
                name = ast.unparse(node.target)
                hint = f"another array: result[i] = {name} {ast.unparse(node)[len(name) :].strip().replace('=', '', 1)}"
                raise self.fail(node, "array elements are accumulated with += or -= only", hint)
            if isinstance(node.op, ast.Sub):
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    value = -value
                elif isinstance(value, Value) and value.kind != "b":
                    value = self.arithmetic("mul", value, -1.0, node)
                elif isinstance(value, Compound) and {v.kind for v in value.scalars} == {"f"}:
                    value = Compound(value.type, [self.arithmetic("mul", v, -1.0, node) for v in value.scalars])
            self.store(node.target, value, "add", node.value)
            return
        if isinstance(node.target, (ast.Attribute, ast.Subscript)):
            raise self.fail(node.target, *self.not_assigned(node.target))
        left, right = self.expression(_loaded(node.target)), self.expression(node.value)
        self.assign(node.target, self.binary(node.op, left, right, node), node.value)

    def peek(self, node: ast.expr) -> Any:
        """The term of a name or record member without emitting anything; None for other nodes."""
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
            taken = node.body if cond else node.orelse
            leaves = _leaving(taken) is not None  # perhaps only on some paths: then `rest` belongs to the others
            return self.statements(taken + rest if leaves else taken), leaves
        condition = self.as_kind(cond, "b", node.test, "a condition")
        leaves = _leaving(node.body) is not None or _leaving(node.orelse) is not None
        then_nodes, else_nodes = (node.body + rest, node.orelse + rest) if leaves else (node.body, node.orelse)
        before = dict(self.env)
        then, left_then, env_then = self.path(then_nodes, before)
        orelse, left_else, env_else = self.path(else_nodes, before)
        results: list[tuple[Value, Value, Value]] = []
        merged = self.merge_environments(node, then, orelse, env_then, env_else, results)
        outcome = None
        if leaves:
            one, other = (left.value if left else None for left in (left_then, left_else))
            outcome = _Left(self.merge(node, "the returned value", then, orelse, one, other, results))
        self.env = merged
        self.branch(condition, then, orelse, results)
        return outcome, leaves

    def path(self, nodes: list[ast.stmt], env: dict[str, Any]) -> tuple[Block, _Left | None, dict[str, Any]]:
        """Translate one branch into its own block, from a copy of the environment."""
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
        """Merge the two terms of a branch into one; conversions go into the branches."""
        if a is b:
            return a
        try:
            shape = symbols.settle(symbols.unify(symbols.structure(a), symbols.structure(b)))
        except Mismatch as error:
            raise self.fail(node, f"{what} is {error}", "values of the same type on both paths") from None
        if shape is None:
            hint = "elements: `x[i] if condition else y[i]`"
            raise self.fail(node, f"{what} is {describe(a)} on one path and differs on the other", hint)
        sides = []
        for block, term in ((then, a), (orelse, b)):
            self.builder.push(block)
            sides.append(symbols.scalars(term, shape, self.builder))
            self.builder.pop()
        made = [self.builder.result(kind) for kind in symbols.kinds(shape)]
        results.extend(zip(made, *sides, strict=True))
        return symbols.rebuild(shape, list(made))

    def branch(self, cond: Value, then: Block, orelse: Block, results: list[tuple[Value, Value, Value]]) -> None:
        """Append an `If`; if it is short and safe, compute both sides and select."""
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
            raise self.fail(node.orelse[0], "`else` after a loop", "a Bool that the loop sets, and `if` after it")
        call = node.iter
        callee = self.expression(call.func) if isinstance(call, ast.Call) else None
        if not isinstance(call, ast.Call) or callee not in (range, functions.static):
            raise self.fail(node.iter, "loops go over range(...) or static(...)", self.loop_hint(call))
        if not isinstance(node.target, ast.Name):
            raise self.fail(node.target, "a loop has one variable", "`for k in range(n):`")
        self.check_plain(call)
        bounds = [self.expression(a) for a in call.args]
        name = ast.unparse(call.func)
        if not 1 <= len(bounds) <= 3:
            hint = f"{name}(stop), {name}(start, stop) or {name}(start, stop, step)"
            raise self.fail(call, f"{name} takes 1 to 3 arguments, got {len(bounds)}", hint)
        if len(bounds) == 3 and (not isinstance(bounds[2], int) or bounds[2] == 0):
            hint = "a constant step; or `for k in range(n): j = start + k * step`"
            raise self.fail(call.args[2], f"the step of {name} must be a constant Int other than 0", hint)
        if callee is functions.static:
            self.unroll(node, bounds)
        else:
            self.loop(node, bounds)
        return None

    def loop_hint(self, over: ast.expr) -> str:
        """What to write instead of a loop over something other than a range."""
        if isinstance(over, ast.Call) and ast.unparse(over.func) in ("enumerate", "zip", "reversed") and over.args:
            over = over.args[0]
        name = ast.unparse(over)
        if isinstance(over, ast.Call):
            return f"`for k in range({name}):`"
        if isinstance(over, ast.Name) and isinstance(self.env.get(over.id), ArrayTerm):
            return f"`for k in range(len({name})):` and {name}[k]"
        return "`for k in static(n):` and an index k"

    def unroll(self, node: ast.For, bounds: list[Any]) -> None:
        """Translate `for k in static(...)`: the body once per value."""
        if not all(isinstance(b, int) for b in bounds):
            raise self.fail(node.iter, "the bounds of static(...) must be constant Ints", "range(...) for other loops")
        leaving = _leaving(node.body)
        if isinstance(leaving, ast.Return):
            self._return_statement_in_loop(leaving)
        if leaving is not None:
            raise self.fail(leaving, "`break` and `continue` cannot leave an unrolled loop", "a loop over range(...)")
        assert isinstance(node.target, ast.Name)
        for k in range(*bounds):
            self.env[node.target.id] = k
            self.statements(node.body)
        self.env[node.target.id] = Undefined("is the variable of an unrolled loop that has ended")

    def loop(self, node: ast.For, bounds: list[Any]) -> None:
        """Translate `for i in range(...)` to a loop; rebuild it if a carried value turns out to be Float."""
        step = bounds[2] if len(bounds) == 3 else 1
        first, last = (bounds[0], bounds[1]) if len(bounds) > 1 else (0, bounds[0])
        assert isinstance(node.iter, ast.Call)
        places = node.iter.args if len(bounds) > 1 else [node.iter, node.iter.args[0]]
        start, stop = (self.as_kind(t, "i", p, "a bound of range") for t, p in zip((first, last), places, strict=False))
        assert isinstance(node.target, ast.Name)
        before = dict(self.env)
        outer = before.pop("%alive", None)
        if _breaks(node.body):
            before["%alive"] = True
        names = [
            n for n in [*_assigned(node.body), "%alive"] if n in before and symbols.structure(before[n]) is not None
        ]
        shapes = [symbols.structure(before[n]) for n in names]
        for _ in range(4):
            settled = [symbols.settle(s) for s in shapes]
            found = self.loop_once(node, start, stop, step, before, names, settled)
            try:
                wanted = [symbols.unify(s, f) for s, f in zip(shapes, found, strict=True)]
            except Mismatch:
                changed = [n for n, s, f in zip(names, settled, found, strict=True) if s != symbols.settle(f)]
                hint = f"the same type before the loop and in it, e.g. {changed[0]} = 0.0"
                raise self.fail(node, f"{changed[0]!r} changes its type in the loop", hint) from None
            if [symbols.settle(w) for w in wanted] == settled:
                if outer is not None:
                    self.env["%alive"] = outer
                return
            shapes = wanted
            self.builder.block.nodes.pop()
        raise self.fail(node, "the types of this loop keep changing", "values of their final type before the loop")

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
        """Append the loop for given shapes of the carried values; returns their shapes after the body."""
        b = self.builder
        var = b.result("i")
        self.env = dict(before)
        inits = [
            symbols.scalars(before[n], s, b) if _fits(before[n], s) else None
            for n, s in zip(names, shapes, strict=True)
        ]
        phis: list[list[Value]] = []
        for name, shape in zip(names, shapes, strict=True):
            phis.append([b.result(kind) for kind in symbols.kinds(shape)])
            self.env[name] = symbols.rebuild(shape, list(phis[-1]))
        low, high, down = (start, stop, False) if step == 1 else self.count_of(start, stop, step)
        body = b.push()
        assert isinstance(node.target, ast.Name)
        self.env[node.target.id] = var if step in (1, -1) else b.op("add", start, b.op("mul", var, b.const(step, "i")))
        if "%alive" in names:
            self.env["%alive"] = True
        self.loops += 1
        self.statements(node.body)
        self.loops -= 1
        found = [symbols.structure(self.env[n]) for n in names]
        carried: list[tuple[Value, Value, Value, Value]] = []
        after: dict[str, Any] = {}
        for name, shape, phi, init, now in zip(names, shapes, phis, inits, found, strict=True):
            try:
                if init is None or symbols.settle(symbols.unify(shape, now)) != shape:
                    raise Mismatch("")
                nexts = symbols.scalars(self.env[name], shape, b)
            except Mismatch:
                nexts, init = phi, phi  # wrong shape: the caller tries again
            outs = [b.result(p.kind) for p in phi]
            carried.extend(zip(phi, init, nexts, outs, strict=True))
            after[name] = symbols.rebuild(shape, list(outs))
        b.pop()
        alive = sum(len(p) for p in phis[: names.index("%alive")]) if "%alive" in names else None
        b.append(For(var, low, high, carried, body, down, alive, self.line_of(node)))
        self.env = dict(before)
        self.env.update(after)
        self.env.pop("%alive", None)
        gone = Undefined(f"is given a value only inside the loop in line {self.line_of(node)}")
        # In order of appearance: it decides the order of emitted lines, and libraries are found by their text.
        for name in (*_assigned(node.body), node.target.id):
            if name not in names:
                self.env[name] = gone
        return found

    def count_of(self, start: Value, stop: Value, step: int) -> tuple[Value, Value, bool]:
        """Bounds and direction of a loop with a step other than 1."""
        b = self.builder
        if step == -1:
            one = b.const(1, "i")
            return b.op("add", stop, one), b.op("add", start, one), True
        span = b.op("sub", stop, start) if step > 0 else b.op("sub", start, stop)
        size = b.const(abs(step), "i")
        count = b.op("idiv", b.op("add", span, b.const(abs(step) - 1, "i")), size)
        return b.const(0, "i"), count, False


def build_function(function: Func, shapes: list[Any]) -> tuple[Function, Any]:
    """Translate a function for given argument shapes, out of line; returns it and the shape of its result."""
    return calls.build_function(Translator, function, shapes)


def translate(python: Callable[..., Any]) -> KernelIR:
    """Translate a kernel's source."""
    source = source_of(python)
    builder = Builder()
    arrays: list[ArrayRef] = []
    env: dict[str, Any] = {}
    index: Value | None = None
    translator = Translator(source, builder, env, 0, in_kernel=True)
    calls.check_parameters(source, python.__name__)
    for at, argument in enumerate(source.arguments):
        kind = source.annotation(argument.annotation)
        if kind is None:
            hint = f"`{argument.arg}: Array[Float]`, `{argument.arg}: Float` or the like"
            raise translator.fail(argument, f"argument {argument.arg!r} has no type", hint)
        if kind is types.Index:
            if at:
                hint = f"`{argument.arg}: Index` before the other arguments"
                raise translator.fail(argument, "Index is the first argument of a kernel", hint)
            index = Value("index", (), "i", argument.arg)
            env[argument.arg] = index
        else:
            env[argument.arg] = declare(translator, argument, argument.arg, kind, arrays)
    for name, term in list(env.items()):
        if isinstance(term, _ValueArgument):
            env[name] = term()
    translator.body()
    made = KernelIR(python.__name__, index, arrays, builder.block, source.file, source.lines, source.first_line)
    _refuse_shared_writes(made, translator.stores)
    return made


def _refuse_shared_writes(kernel: KernelIR, stores: dict[Store, KernelError]) -> None:
    """Fail if all elements set the same array element; an `if` that differs between elements may guard the store."""
    if kernel.index is None:
        return
    varying = analysis.varying_values(kernel, analysis.ELEMENTS, set())

    def visit(block: Block) -> None:
        for node in block.nodes:
            if isinstance(node, Store) and node.mode == "set" and node.index not in varying and node in stores:
                raise stores[node]
            if not (isinstance(node, If) and node.cond in varying):
                for inner in blocks_of(node):
                    visit(inner)

    visit(kernel.body)


class _ValueArgument:
    """A Float, vec3, ... argument: read from an array of length one at its use."""

    def __init__(self, translator: Translator, array: ArrayTerm) -> None:
        self.translator, self.array = translator, array

    def __call__(self) -> Any:
        zero = self.translator.builder.const(0, "i")
        return self.translator.load(self.array, zero, self.translator.source.tree)


def declare(translator: Translator, node: ast.arg, name: str, kind: Any, arrays: list[ArrayRef]) -> Any:
    """The term of one kernel argument; appends its arrays."""
    if isinstance(kind, type) and issubclass(kind, types.Array) and kind is not types.Array:
        if not types.is_value_type(kind.element):
            shown = getattr(kind.element, "__name__", repr(kind.element))
            raise translator.fail(
                node.annotation,
                f"Array[{shown}] has no elements of a value type",
                diagnostics.for_element(kind.element),
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
    what = f"argument {name!r} has type {shown}, which kernels do not take"
    raise translator.fail(node.annotation, what, diagnostics.for_annotation(kind))


def _fits(term: Any, shape: Any) -> bool:
    try:
        return bool(symbols.settle(symbols.unify(symbols.structure(term), shape)) == shape)
    except Mismatch:
        return False


def _loaded(node: ast.expr) -> ast.expr:
    copy = ast.parse(ast.unparse(node), mode="eval").body
    for part in ast.walk(copy):
        ast.copy_location(part, node)
    return copy


def _leaving(nodes: list[ast.stmt]) -> ast.stmt | None:
    """The first return among statements, or the first break or continue of the enclosing loop."""
    for node in nodes:
        found: ast.AST | None = None
        if isinstance(node, (ast.Return, ast.Break, ast.Continue)):
            found = node
        elif isinstance(node, ast.If):
            found = _leaving(node.body) or _leaving(node.orelse)
        elif isinstance(node, ast.For):
            found = next((n for n in ast.walk(node) if isinstance(n, ast.Return)), None)
        if isinstance(found, ast.stmt):
            return found
    return None


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
