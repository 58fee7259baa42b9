"""Random kernels as source text, with data to run them on. The same seed makes the same kernel.

Programs are drawn from the whole language: expressions over Float, Int, Bool, vec3 and mat33, nested loops, branches,
early returns, local arrays, gathers, scatters, sums, functions with several results and `grad`. Every expression
carries a rough bound of its size and is squashed where it grows, so that rounding errors stay near machine precision
and branches are not decided by them.

Written so that bits cannot depend on the lane width: gathers and scatters inside of loops go to cells that no two
elements share (elsewhere they collide as they like).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

HEADER = "from kinema.lang import *\nfrom kinema.lang import abs, max, min, pow\n\n\n"
NUMBERS = {"Float": (), "Int": (), "vec3": (3,), "mat33": (3, 3)}


@dataclass
class Argument:
    """An argument of a kernel: `kind` is 'own' (indexed by the element only), 'any' or 'value'."""

    name: str
    element: str
    length: int
    kind: str = "any"
    output: bool = False
    top: int = 0  # of Int inputs: values are 0 ... top - 1; 0: a permutation; -1: element i has a value below i

    @property
    def is_float(self) -> bool:
        return self.element != "Int"

    @property
    def numbers(self) -> int:
        return int(np.prod(NUMBERS[self.element]))


@dataclass
class Case:
    """A random kernel: its source, what it is called with, and over how many elements."""

    seed: int
    name: str
    body: str
    count: int
    arguments: dict[str, Argument] = field(default_factory=dict)
    tree: bool = False  # no Index: a loop over elements that read what earlier ones wrote

    @property
    def source(self) -> str:
        return HEADER + self.body

    def world(self, number: int) -> dict[str, np.ndarray]:
        """Random contents of all arguments, shape (elements, numbers)."""
        rng = np.random.default_rng([self.seed, number])
        made = {}
        for a in self.arguments.values():
            if a.is_float:
                made[a.name] = rng.uniform(-1.5, 1.5, (a.length, a.numbers))
            elif a.output:
                made[a.name] = np.zeros((a.length, 1), np.int64)
            else:
                # Tables and bounds of loops are the same in all worlds, as in programs.
                made[a.name] = self._integers(a, np.random.default_rng([self.seed, len(made)]))[:, None]
        return made

    def _integers(self, a: Argument, rng: np.random.Generator) -> np.ndarray:
        if a.top > 0:
            return rng.integers(0, a.top, a.length)
        if a.top == 0:
            return rng.permutation(a.length)
        return np.array([0, *(rng.integers(0, i) for i in range(1, a.length))])


@dataclass
class Expression:
    """Source text and a rough bound of its absolute value."""

    text: str
    bound: float = 1.5

    def __str__(self) -> str:
        return self.text


class Scope:
    """Names that can be used at a place, by type: F, I, B, V, M; (name, bound)."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.names: dict[str, list[tuple[str, float]]] = {k: list(outer.names[k]) if outer else [] for k in "FIBVM"}
        self.leaves: dict[str, list[tuple[str, float]]] = {k: list(outer.leaves[k]) if outer else [] for k in "FIBVM"}

    def add(self, kind: str, name: str, bound: float) -> None:
        self.names[kind] = [n for n in self.names[kind] if n[0] != name] + [(name, bound)]


class Writer:
    """Writes statements and expressions of one function into `lines`."""

    def __init__(self, rng: random.Random, maker: Maker, kernel: bool) -> None:
        self.rng, self.maker, self.kernel = rng, maker, kernel
        self.lines: list[str] = []
        self.depth = 1
        self.loops: list[str] = []  # variables of the loops around
        self.locals = 0
        self.deepest = rng.choice([1, 2, 2, 3])
        self.returns = 1 if kernel else 2
        self.may_call = True
        self.branches = 0  # around this place
        self.left = False  # a branch may have left: what follows is translated once for each path

    def put(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def one_in(self, n: int) -> bool:
        return self.rng.randrange(n) == 0

    def constant(self, low: float = -1.5, high: float = 1.5) -> Expression:
        value = round(self.rng.uniform(low, high), 3)
        return Expression(f"({value})" if value < 0 else str(value), abs(value))

    # -- Float --------------------------------------------------------------------------------------------------

    def F(self, s: Scope, depth: int) -> Expression:
        """A Float expression."""
        r = self.rng
        if depth <= 0:
            return self.float_leaf(s)
        pick = r.randrange(26)
        if pick < 8:
            return self.arithmetic(s, depth)
        if pick < 15:
            return self.function(s, depth)
        if pick < 17:
            return self.extremum(s, depth)
        if pick == 17:
            a, b = self.F(s, depth - 1), self.F(s, depth - 1)
            form = "({a} if {c} else {b})" if self.one_in(2) else "select({c}, {a}, {b})"
            return Expression(form.format(a=a, b=b, c=self.B(s, depth - 1)), max(a.bound, b.bound))
        if pick == 18:
            a, n = self.squash(self.F(s, depth - 1), 2.0), r.choice([2, 3])
            return Expression(f"({a}) ** {n}", a.bound**n)
        if pick == 19:
            return Expression(f"Float({self.I(s, depth - 1)} % 4)", 3.0)
        if pick < 23:
            return self.from_vector(s, depth)
        if pick == 23:
            return self.from_matrix(s, depth)
        return self.float_leaf(s)

    def float_leaf(self, s: Scope) -> Expression:
        found = s.names["F"] + s.leaves["F"]
        if not found or self.one_in(6):
            return self.constant()
        return Expression(*self.rng.choice(found[-6:] if self.one_in(2) else found))

    def arithmetic(self, s: Scope, depth: int) -> Expression:
        a, b = self.F(s, depth - 1), self.F(s, self.rng.randrange(depth))
        pick = self.rng.randrange(7)
        if pick < 2:
            return Expression(f"({a} + {b})", a.bound + b.bound)
        if pick == 2:
            return Expression(f"({a} - {b})", a.bound + b.bound)
        if pick < 5:
            return Expression(f"{a} * {b}", a.bound * b.bound)
        if pick == 5:
            return Expression(f"-{a}" if a.text[0] != "-" else a.text, a.bound)
        return Expression(f"({a} / (1.3 + {b} * {b}))", a.bound)

    def function(self, s: Scope, depth: int) -> Expression:
        a = self.F(s, depth - 1)
        forms = [
            ("sin({a})", 1.0),
            ("cos({a})", 1.0),
            ("tanh({a})", 1.0),
            ("sigmoid({a})", 1.0),
            ("exp(0.7 * tanh({a}))", 2.0),
            ("log(1.2 + ({a}) ** 2)", 1.5),
            ("sqrt(0.7 + ({a}) ** 2)", 1.0 + a.bound),
            ("rsqrt(1.1 + ({a}) ** 2)", 1.0),
            ("atan2({a}, 1.4 + ({b}) ** 2)", 1.6),
            ("atan2({b}, {a} + 9.0)", 1.6),
            ("asin(0.9 * sin({a}))", 1.2),
            ("acos(0.8 * tanh({a}))", 2.5),
            ("tan(0.9 * sin({a}))", 1.3),
            ("pow(1.2 + ({a}) ** 2, 0.5 * tanh({b}))", 2.0 + a.bound),
            ("(1.5 + ({a}) ** 2) ** 0.5", 1.5 + a.bound),
            ("(1.2 + ({a}) ** 2) ** -2", 1.0),
            ("(floor({a}) + 0.25 * {a})", 1.0 + 1.25 * a.bound),
            ("sign({a} - 0.0371) * {b}", 1.5),
        ]
        form, bound = self.rng.choice(forms)
        if "{b}" in form:
            b = self.squash(self.F(s, depth - 1), 1.5)
            return Expression(form.format(a=a, b=b), bound)
        return Expression(form.format(a=a), bound)

    def extremum(self, s: Scope, depth: int) -> Expression:
        a, b = self.F(s, depth - 1), self.F(s, depth - 1)
        name = self.rng.choice(["min", "max", "abs", "clamp", "three"])
        if name == "abs":
            return Expression(f"abs({a})", a.bound)
        if name == "clamp":
            return Expression(f"clamp({a}, -0.61, 0.83)", 0.83)
        if name == "three":
            return Expression(f"max({a}, {b}, -0.4)", max(a.bound, b.bound))
        return Expression(f"{name}({a}, {b})", max(a.bound, b.bound))

    def from_vector(self, s: Scope, depth: int) -> Expression:
        v = self.V(s, depth - 1)
        pick = self.rng.randrange(5)
        if pick == 0 and v.text.isidentifier():
            return Expression(f"{v}.{self.rng.choice('xyz')}", v.bound)
        if pick == 1 and v.text.isidentifier():
            return Expression(f"{v}[{self.rng.randrange(3)}]", v.bound)
        if pick == 2:
            return Expression(f"norm({v} + vec3(9.0, 0.0, 0.0))", v.bound + 9.0)
        w = self.V(s, depth - 1)
        return Expression(f"dot({v}, {w})", 3.0 * v.bound * w.bound)

    def from_matrix(self, s: Scope, depth: int) -> Expression:
        m = self.M(s, depth - 1)
        pick = self.rng.randrange(4)
        if pick == 0 and m.text.isidentifier():
            return Expression(f"{m}[{self.rng.randrange(3)}, {self.rng.randrange(3)}]", m.bound)
        if pick == 1:
            return Expression(f"det({m} * 0.4)", 6.0 * (0.4 * m.bound) ** 3)
        if pick == 2:
            return Expression(f"ddot({m}, {self.M(s, 0)})", 18.0 * m.bound)
        return Expression(f"trace({m})", 3.0 * m.bound)

    def squash(self, a: Expression, limit: float = 6.0) -> Expression:
        """The expression, made smaller if it may exceed the limit."""
        if a.bound <= limit:
            return a
        form, bound = self.rng.choice([("sin({a})", 1.0), ("tanh({a})", 1.0), ("clamp({a}, -1.17, 1.31)", 1.31)])
        return Expression(form.format(a=a), bound)

    # -- Int and Bool -------------------------------------------------------------------------------------------

    def I(self, s: Scope, depth: int) -> Expression:  # noqa: E743
        """An Int expression of moderate size."""
        found = s.names["I"] + s.leaves["I"]
        if depth <= 0 or self.one_in(3):
            if not found or self.one_in(5):
                return Expression(str(self.rng.randint(0, 5)), 5)
            return Expression(*self.rng.choice(found))
        a, b = self.I(s, depth - 1), self.I(s, depth - 1)
        forms = [
            ("({a} + {b})", a.bound + b.bound),
            ("({a} - {b})", a.bound + b.bound),
            ("({a} % 5) * ({b} % 3)", 8),
            ("({a} // 3)", a.bound),
            ("({a} % 7)", 6),
            ("(({a} - 4) // (abs({b}) + 1))", a.bound + 4),
            ("min({a}, {b})", max(a.bound, b.bound)),
            ("max({a}, {b}, 1)", max(a.bound, b.bound, 1)),
            ("abs({a} - 3)", a.bound + 3),
            ("-{a}", a.bound),
            ("select({c}, {a}, {b})", max(a.bound, b.bound)),
            ("({a} if {c} else {b})", max(a.bound, b.bound)),
            ("Int(2.7 * tanh({f}))", 3),
        ]
        form, bound = self.rng.choice(forms)
        return Expression(form.format(a=a, b=b, c=self.B(s, 0), f=self.F(s, 0)), bound)

    def B(self, s: Scope, depth: int) -> Expression:
        """A condition; constants are odd numbers, so that rounding does not decide."""
        pick = self.rng.randrange(10)
        if depth > 0 and pick < 2:
            return Expression(f"({self.B(s, depth - 1)} {self.rng.choice(['and', 'or'])} {self.B(s, depth - 1)})")
        if depth > 0 and pick == 2:
            return Expression(f"not {self.B(s, 0)}")
        if pick < 5:
            op = self.rng.choice(["<", ">", "==", "!=", ">=", "<="])
            return Expression(f"{self.I(s, 1)} % 3 {op} {self.rng.randrange(3)}")
        if s.names["B"] and pick == 5:
            return Expression(self.rng.choice(s.names["B"])[0])
        if pick == 6:
            return Expression(f"-0.3137 < {self.F(s, max(depth - 1, 0))} <= 0.7193")
        op, limit = self.rng.choice(["<", ">", "<=", ">="]), round(self.rng.uniform(-0.6, 0.6), 2) + 0.0017
        return Expression(f"{self.F(s, max(depth - 1, 0))} {op} {limit:.4f}")

    # -- vec3 and mat33 -----------------------------------------------------------------------------------------

    def V(self, s: Scope, depth: int) -> Expression:
        """A vec3 expression."""
        found = s.names["V"] + s.leaves["V"]
        if found and (depth <= 0 or self.one_in(4)):
            return Expression(*self.rng.choice(found))
        if depth <= 0:
            return Expression("vec3({}, {}, {})".format(*[self.float_leaf(s) for _ in range(3)]), 3.0)
        v, pick = self.V(s, depth - 1), self.rng.randrange(9)
        if pick == 0:
            w = self.V(s, depth - 1)
            return Expression(f"({v} {self.rng.choice('+-')} {w})", v.bound + w.bound)
        if pick == 1:
            f = self.F(s, depth - 1)
            return Expression(f"{v} * {f}" if self.one_in(2) else f"({f}) * {v}", v.bound * f.bound)
        if pick == 2:
            return Expression(f"cross({v}, {self.V(s, 0)})", 2.0 * v.bound * 3.0)
        if pick == 3:
            m = self.M(s, depth - 1)
            return Expression(f"({m} @ {v})", 3.0 * m.bound * v.bound)
        if pick == 4:
            return Expression(f"({v} / (2.3 + ({self.F(s, 0)}) ** 2))", v.bound)
        if pick == 5:
            return Expression(f"normalize({v} + vec3(0.0, 9.0, 0.0))", 1.0)
        if pick == 6:
            w = self.V(s, depth - 1)
            return Expression(f"({v} if {self.B(s, 0)} else {w})", max(v.bound, w.bound))
        parts = [self.F(s, depth - 1) for _ in range(3)]
        return Expression("vec3({}, {}, {})".format(*parts), max(p.bound for p in parts))

    def M(self, s: Scope, depth: int) -> Expression:
        """A mat33 expression."""
        found = s.names["M"] + s.leaves["M"]
        if found and (depth <= 0 or self.one_in(4)):
            return Expression(*self.rng.choice(found))
        v, w = self.V(s, max(depth - 1, 0)), self.V(s, 0)
        if depth <= 0:
            return Expression(f"outer({v}, {w})", v.bound * w.bound)
        m = self.M(s, depth - 1)
        forms = [
            ("transpose({m})", m.bound),
            ("({m} + outer({v}, {w}))", m.bound + v.bound * w.bound),
            ("({m} - identity33({f}))", m.bound + 6.0),
            ("{m} * {f}", m.bound * 6.0),
            ("({m} @ {n})", 3.0 * m.bound * 6.0),
            ("skew({v})", v.bound),
            ("inverse(identity33(2.0) + skew({v}))", 1.0),
            ("columns({v}, {w}, vec3(0.3, {f}, 1.0))", max(v.bound, w.bound, 6.0)),
            ("rows({v}, {w}, {v})", max(v.bound, w.bound)),
        ]
        form, bound = self.rng.choice(forms)
        return Expression(form.format(m=m, v=v, w=w, n=self.M(s, 0), f=self.squash(self.F(s, 0))), bound)

    def squashed_vector(self, s: Scope, depth: int) -> Expression:
        v = self.V(s, depth)
        return v if v.bound <= 8.0 else Expression(f"normalize({v} + vec3(0.0, 0.0, 9.0))", 1.0)

    def squashed_matrix(self, s: Scope, depth: int) -> Expression:
        m = self.M(s, depth)
        return m if m.bound <= 10.0 else Expression(f"outer(normalize({self.V(s, 0)}), {self.V(s, 0)}) * 0.5", 3.0)

    # -- statements ---------------------------------------------------------------------------------------------

    def statements(self, s: Scope, budget: int, nesting: int) -> None:
        """Write about `budget` statements."""
        for _ in range(budget):
            self.statement(s, nesting)

    def statement(self, s: Scope, nesting: int) -> None:
        pick = self.rng.randrange(24)
        if pick < 6:
            self.assign(s)
        elif pick < 9 and s.names["F"]:
            self.update(s)
        elif pick < 12 and nesting < self.deepest:
            self.branch(s, nesting)
        elif pick < 15 and len(self.loops) < 2 and nesting < self.deepest:
            self.loop(s, nesting)
        elif pick == 15 and self.locals < 2 and not self.left:
            self.local(s)
        elif pick == 16 and self.may_call:
            self.call(s)
        elif pick == 17 and self.may_call:
            self.gradient(s)
        elif pick == 18 and not self.loops and self.returns > 0 and nesting < 2:
            self.early_return(s)
        elif pick in (19, 21) and self.loops:
            self.leave_loop(s)
        elif pick == 20 and nesting < 2:
            self.static_loop(s)
        elif self.kernel:
            self.write(s)
        else:
            self.assign(s)

    def fresh(self, kind: str) -> str:
        return self.maker.fresh(kind.lower())

    def assign(self, s: Scope) -> None:
        kind = self.rng.choice("FFFFFFVVIIMB")
        name = self.fresh(kind)
        if kind == "F":
            value = self.squash(self.F(s, 2))
        elif kind == "V":
            value = self.squashed_vector(s, 1)
        elif kind == "I":
            value = self.I(s, 2)
        elif kind == "M":
            value = self.squashed_matrix(s, 1)
        else:
            value = self.B(s, 2)
        self.put(f"{name} = {value}")
        s.add(kind, name, value.bound)

    def update(self, s: Scope) -> None:
        """Give a name a new value: in loops, what they carry. Linear sums and maps that are not linear."""
        if s.names["V"] and self.one_in(4):
            name, bound = self.rng.choice(s.names["V"])
            v = self.squashed_vector(s, 1)
            forms = [
                f"{name} * 0.4 + {v}",
                f"cross({name}, {v}) * 0.3",
                f"normalize({name} + {v} + vec3(9.0, 0.0, 0.0))",
            ]
            self.put(f"{name} = {self.rng.choice(forms)}" if self.one_in(2) else f"{name} += {v}")
            s.add("V", name, bound + 9.0)
            return
        if s.names["I"] and self.one_in(6):
            name, _ = self.rng.choice(s.names["I"])
            if name not in self.loops:
                self.put(f"{name} = ({name} + {self.I(s, 1)}) % 11")
                s.add("I", name, 11)
                return
        name, bound = self.rng.choice(s.names["F"])
        e = self.squash(self.F(s, self.rng.randint(1, 2)), 3.0)
        forms = [
            (f"{name} += {e}", bound + 6.0 * e.bound),
            (f"{name} -= 0.3 * {e}", bound + 2.0 * e.bound),
            (f"{name} = 0.6 * {name} + {e}", bound + 2.5 * e.bound),
            (f"{name} = sin(1.3 * {name} + {e})", 1.0),
            (f"{name} = tanh({name} - {e} * {name})", 1.0),
            (f"{name} = max({name}, {e})", max(bound, e.bound)),
            (f"{name} = {name} * cos({e})", bound),
            (f"{name} *= 0.5 * tanh({e})", bound),
            (f"{name} = ({e} if {self.B(s, 1)} else {name})", max(bound, e.bound)),
        ]
        text, size = self.rng.choice(forms)
        self.put(text)
        if size > 12.0:
            self.put(f"{name} = sin({name})")
            size = 1.0
        s.add("F", name, size)

    def block(self, s: Scope, budget: int, nesting: int) -> None:
        """An indented block with a scope of its own; names it updates keep their larger bounds outside."""
        inner = Scope(s)
        self.depth += 1
        before = len(self.lines)
        self.statements(inner, budget, nesting + 1)
        if len(self.lines) == before:
            self.put("pass")
        self.depth -= 1
        for kind in "FV":
            for name, bound in list(s.names[kind]):
                now = dict(inner.names[kind]).get(name, bound)
                s.names[kind] = [(n, max(b, now) if n == name else b) for n, b in s.names[kind]]

    def branch(self, s: Scope, nesting: int) -> None:
        self.branches += 1
        self.put(f"if {self.B(s, self.rng.randint(1, 2))}:")
        self.block(s, self.rng.randint(1, 2), nesting)
        if self.one_in(3):
            self.put(f"elif {self.B(s, 1)}:")
            self.block(s, 1, nesting)
        if not self.one_in(3):
            self.put("else:")
            self.block(s, self.rng.randint(1, 2), nesting)
        self.branches -= 1

    def loop(self, s: Scope, nesting: int) -> None:
        if not s.names["F"] or self.one_in(3):
            name = self.fresh("F")
            self.put(f"{name} = {self.constant()}")
            s.add("F", name, 1.5)
        counter = self.counter(s)
        var = self.fresh("k")
        uniform = ["3", "1, 4", "3, 0, -1", "0, 5, 2", "4, -1, -2", "-1, 2"]
        if self.kernel:
            uniform += ["n_loop", "n_loop", "1, n_loop", "n_loop, 0, -1"]
        varying = []
        if self.kernel:
            varying = ["cnt[i]", "cnt[i]", "1, cnt[i] + 1", "cnt[i], -1, -1", "0, cnt[i] + 3, 2"]
        elif s.names["I"]:
            count = self.rng.choice(s.names["I"])[0]
            varying = [f"{count} % 4"]
        choice = self.rng.choice(varying if varying and self.one_in(2) else uniform)
        self.put(f"for {var} in range({choice}):")
        inner = Scope(s)
        inner.leaves["I"].append((var, 6))
        self.loops.append(var)
        if self.kernel:
            self.loop_leaves(inner, var, choice)
        self.depth += 1
        # Loops exist to carry something.
        self.update(inner)
        if counter:
            self.put(counter)
        self.depth -= 1
        self.block(inner, self.rng.randint(1, 2), nesting)
        self.loops.pop()
        for kind in "FV":
            for name, bound in inner.names[kind]:
                if name in dict(s.names[kind]):
                    s.add(kind, name, max(bound, dict(s.names[kind])[name]))

    def counter(self, s: Scope) -> str:
        """Sometimes a number that counts iterations: the same in all lanes, until one of them leaves the loop."""
        if not self.one_in(3):
            return ""
        kind = self.rng.choice("FI")
        name = self.fresh(kind)
        self.put(f"{name} = {'0.0' if kind == 'F' else '0'}")
        s.add(kind, name, 3.0)
        return f"{name} = {name} + {'0.375' if kind == 'F' else '1'}"

    def loop_leaves(self, inner: Scope, var: str, choice: str) -> None:
        """What can be read in a loop without two elements sharing a cell in the adjoint."""
        inner.leaves["F"] = [leaf for leaf in inner.leaves["F"] if "idx" not in leaf[0] and "near" not in leaf[0]]
        inner.leaves["V"] = [leaf for leaf in inner.leaves["V"] if "idx" not in leaf[0]]
        if len(self.loops) == 1 and "cnt" not in choice and self.one_in(2):
            # One cell per iteration, read once: then all widths visit the elements in the same order.
            table, name = self.maker.argument("tab", "Float", 8), self.fresh("F")
            self.put(f"    {name} = {table}[{var} + 2]")
            inner.leaves["F"].append((name, 1.5))
        if self.one_in(2):
            name = self.maker.argument("big", "Float", 8 * self.maker.count)
            inner.leaves["F"].append((f"{name}[8 * i + {var} + 1]", 1.5))
        if self.one_in(2):
            name = self.maker.argument("far", "vec3", self.maker.count)
            inner.leaves["V"].append((f"{name}[perm[i]]", 1.5))

    def static_loop(self, s: Scope) -> None:
        name = self.fresh("F")
        self.put(f"{name} = {self.constant()}")
        s.add("F", name, 8.0)
        v = self.squashed_vector(s, 1)
        held = self.fresh("V")
        self.put(f"{held} = {v}")
        self.put("for axis in static(3):")
        self.put(f"    {name} = {name} * 0.5 + {held}[axis] * {self.float_leaf(s)}")

    def leave_loop(self, s: Scope) -> None:
        self.left = self.left or self.branches > 0
        self.put(f"if {self.B(s, 1)}:")
        self.depth += 1
        if self.one_in(2) and s.names["F"]:
            self.update(s)
        self.put("break" if self.one_in(2) else "continue")
        self.depth -= 1

    def local(self, s: Scope) -> None:
        """A local array: filled, then read; every element is written before it is read."""
        self.locals += 1
        name, element = self.fresh("L"), self.rng.choice(["Float", "Float", "vec3", "Int"])
        size = self.rng.choice(["3", "4", "n_loop + 1", "cnt[i] + 1"] if self.kernel else ["3", "4"])
        self.put(f"{name} = local({element}, {size})")
        var = self.fresh("k")
        inner = Scope(s)
        inner.leaves["I"].append((var, 6))
        inner.leaves["F"] = [leaf for leaf in inner.leaves["F"] if "idx" not in leaf[0] and "near" not in leaf[0]]
        inner.leaves["V"] = [leaf for leaf in inner.leaves["V"] if "idx" not in leaf[0]]
        self.loops.append(var)
        if element == "Int":
            self.put(f"for {var} in range({size}):")
            self.put(f"    {name}[{var}] = {self.I(inner, 2)}")
            kind, bound = "I", 20.0
        else:
            kind = "F" if element == "Float" else "V"
            value = self.squash(self.F(inner, 2), 3.0) if kind == "F" else self.squashed_vector(inner, 1)
            bound = 3.0 * value.bound
            if self.one_in(3):
                self.put(f"for {var} in range(4):")
                self.put(f"    {name}[({self.I(inner, 1)}) % ({size})] += {value}")
            else:
                self.put(f"for {var} in range({size}):")
                self.put(f"    {name}[{var}] = {value}")
                if self.one_in(2):
                    self.put(f"    if {self.B(inner, 0)}:")
                    self.put(f"        {name}[{var}] {self.rng.choice(['+=', '-='])} {value} * 0.5")
            if self.one_in(2):
                extra = self.squash(self.F(s, 1), 3.0) if kind == "F" else self.squashed_vector(s, 1)
                self.put(f"{name}[({self.I(s, 1)}) % ({size})] += {extra}")
        self.loops.pop()
        s.leaves[kind].append((f"{name}[({self.I(s, 1)}) % ({size})]", bound))
        if kind == "F":
            total = self.fresh("F")
            self.put(f"{total} = 0.0")
            self.put(f"for {var} in range({size}):")
            self.put(f"    {total} = {total} * 0.7 + {name}[{var}] * {self.constant()}")
            s.add("F", total, bound)

    def call(self, s: Scope) -> None:
        """A call of a function with two results."""
        function = self.maker.function()
        a, b = self.squash(self.F(s, 1), 2.0), self.squash(self.F(s, 1), 2.0)
        v, n = self.squashed_vector(s, 1), self.I(s, 1)
        first, second = self.fresh("F"), self.fresh("V")
        if self.one_in(3):
            both = self.fresh("t")
            self.put(f"{both} = {function}({a}, {b}, {v}, {n})")
            self.put(f"{first} = {both}[0]")
            self.put(f"{second} = {both}[1]")
        else:
            self.put(f"{first}, {second} = {function}({a}, {b}, {v}, {n})")
        s.add("F", first, 6.0)
        s.add("V", second, 8.0)

    def gradient(self, s: Scope) -> None:
        """The derivative of a random energy."""
        function = self.maker.energy()
        which = self.rng.randrange(3)
        name = self.fresh("FVM"[which])
        given = f"{self.squash(self.F(s, 1), 2.0)}, {self.squashed_vector(s, 1)}, {self.squashed_matrix(s, 1)}"
        self.put(f"{name} = grad({function}{f', {which}' if which or self.one_in(2) else ''})({given})")
        s.add("FVM"[which], name, 6.0)

    def early_return(self, s: Scope) -> None:
        self.returns -= 1
        self.left = self.left or self.branches > 0
        self.put(f"if {self.B(s, 1)}:")
        inner = Scope(s)
        self.depth += 1
        if self.kernel:
            self.write(inner)
            self.put("return")
        else:
            self.statements(inner, 1, 2)
            self.put(f"return {self.squash(self.F(inner, 1))}, {self.squashed_vector(inner, 1)}")
        self.depth -= 1

    # -- memory -------------------------------------------------------------------------------------------------

    def write(self, s: Scope) -> None:
        """A store into an output."""
        new, in_loop = self.maker.output, bool(self.loops)
        f = self.squash(self.F(s, self.rng.randint(1, 2)))
        pick = self.rng.randrange(9)
        if pick == 0:
            self.put(f"{new('y', 'Float', 'own')}[i] {self.rng.choice(['=', '+=', '-='])} {f}")
        elif pick == 1:
            self.put(f"{new('z', 'vec3', 'own')}[i] {self.rng.choice(['=', '+='])} {self.squashed_vector(s, 1)}")
        elif pick == 2:
            self.put(f"{new('s', 'Float', 'any', 2)}[{self.rng.randrange(2)}] += {f}")
        elif pick == 3:
            self.put(f"{new('sv', 'vec3', 'any', 1)}[0] += {self.squashed_vector(s, 1)}")
        elif pick == 4:
            self.put(f"{new('j', 'Int', 'own')}[i] = {self.I(s, 2)}")
        elif pick == 5:
            self.put(f"{new('w', 'mat33', 'own')}[i] = {self.squashed_matrix(s, 1)}")
        elif in_loop:
            cell, length = self.rng.choice([("perm[i]", 1), (f"8 * i + {self.loops[-1]} + 1", 8)])
            if self.loops == ["i"]:
                cell, length = "perm[i]", 1
            self.put(f"{new('rl', 'Float', 'any', length * self.maker.count)}[{cell}] += {f}")
        elif pick == 6:
            self.put(f"{new('rv', 'vec3')}[idx[i]] += {self.squashed_vector(s, 1)}")
        elif pick == 7:
            self.put(f"{new('r', 'Float')}[({self.I(s, 1)}) % {self.maker.count}] += {f}")
        else:
            self.put(f"{new(self.fresh('rs'), 'Float')}[perm[i]] = {f}")

    def results(self, s: Scope) -> None:
        """The last statements of a kernel: something of everything that was computed."""
        self.put(f"{self.maker.output('y', 'Float', 'own')}[i] = {self.squash(self.F(s, 1))}")
        kept = self.maker.output("h", "Float", "own")
        self.put(f"{kept}[i] = {self.squash(self.F(s, 1))}")
        sums = " + ".join(f"{self.constant()} * {name}" for name, _ in s.names["F"][-5:]) or "0.5"
        self.put(f"{self.maker.output('s', 'Float', 'any', 2)}[1] += ({sums}) * sin({kept}[i])")
        for v, _ in s.names["V"][-2:]:
            self.put(f"{self.maker.output('rv', 'vec3')}[idx[i]] += {v} * {kept}[i]")


class Maker:
    """One kernel with its functions and arguments."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = self.rng.choice([1, 3, 5, 7, 9, 12, 17, 19])
        self.arguments: dict[str, Argument] = {}
        self.functions: list[str] = []
        self.energies: list[str] = []
        self.texts: list[str] = []
        self.counters: dict[str, int] = {}

    def fresh(self, prefix: str) -> str:
        self.counters[prefix] = self.counters.get(prefix, 0) + 1
        return f"{prefix}{self.counters[prefix]}"

    def argument(self, prefix: str, element: str, length: int, kind: str = "any", top: int = 0) -> str:
        name = self.fresh(prefix)
        self.arguments[name] = Argument(name, element, length, kind, top=top)
        return name

    def output(self, prefix: str, element: str, kind: str = "any", length: int | None = None) -> str:
        """An output that stays one and the same for its prefix, index pattern and length."""
        name = f"out_{prefix}{'' if length is None else length}"
        if name not in self.arguments:
            self.arguments[name] = Argument(name, element, self.count if length is None else length, kind, True)
        return name

    def function(self) -> str:
        """A function (Float, Float, vec3, Int) -> (Float, vec3); a new one, or one that is there."""
        if self.functions and self.rng.randrange(2):
            return self.rng.choice(self.functions)
        name = self.fresh("f")
        w = Writer(self.rng, self, kernel=False)
        w.may_call = False
        s = Scope()
        s.names = {"F": [("a", 2.0), ("b", 2.0)], "V": [("v", 8.0)], "I": [("n", 9)], "B": [], "M": []}
        w.statements(s, self.rng.randint(1, 3), 1)
        w.put(f"return {w.squash(w.F(s, 2))}, {w.squashed_vector(s, 1)}")
        typed = "a: Float, b: Float, v: vec3, n: Int" if self.rng.randrange(2) else "a, b, v, n"
        self.texts.append(f"@func\ndef {name}({typed}):\n" + "\n".join(w.lines) + "\n")
        self.functions.append(name)
        return name

    def energy(self) -> str:
        """A function (Float, vec3, mat33) -> Float without loops, for `grad`."""
        if self.energies and self.rng.randrange(2):
            return self.rng.choice(self.energies)
        name = self.fresh("energy")
        w = Writer(self.rng, self, kernel=False)
        s = Scope()
        s.names = {"F": [("a", 2.0)], "V": [("v", 8.0)], "I": [], "B": [], "M": [("m", 10.0)]}
        w.put(f"t = {w.squash(w.F(s, 2), 2.0)}")
        s.add("F", "t", 2.0)
        if self.rng.randrange(2):
            w.put(f"if {w.B(s, 1)}:")
            w.put(f"    return {w.squash(w.F(s, 2), 2.0)}")
        w.put(f"return sin(a) * t + 0.3 * sin(dot(v, m @ v)) + {w.squash(w.F(s, 1), 2.0)}")
        self.texts.append(f"@func\ndef {name}(a: Float, v: vec3, m: mat33):\n" + "\n".join(w.lines) + "\n")
        self.energies.append(name)
        return name

    def case(self, seed: int, name: str) -> Case:
        n = self.count
        scope = Scope()
        given = [("a", "Float", "own"), ("b", "Float", "own"), ("p", "vec3", "own"), ("q", "mat33", "own")]
        for array, element, kind in given:
            if self.rng.randrange(4):
                self.arguments[array] = Argument(array, element, n, kind)
                scope.leaves[{"Float": "F", "vec3": "V", "mat33": "M"}[element]].append((f"{array}[i]", 1.5))
        for array, element, leaf in (("x", "Float", "x[idx[i]]"), ("u", "vec3", "u[idx[i]]"), ("c", "Float", "c[0]")):
            self.arguments[array] = Argument(array, element, n if array != "c" else 1)
            scope.leaves["FV"[element == "vec3"]].append((leaf, 1.5))
        scope.leaves["F"].append((f"near[(i + 1) % {n}]", 1.5))
        self.arguments["near"] = Argument("near", "Float", n)
        for value, element in (("g", "Float"), ("d", "vec3")):
            self.arguments[value] = Argument(value, element, 1, "value")
            scope.names["FV"[element == "vec3"]].append((value, 1.5))
        self.arguments["n_loop"] = Argument("n_loop", "Int", 1, "value", top=4)
        for table, top in (("idx", n), ("perm", 0), ("cnt", 4)):
            self.arguments[table] = Argument(table, "Int", n, "own", top=top)
        scope.leaves["I"] += [("n_loop", 3), ("idx[i]", n), ("cnt[i]", 3), ("i", n)]
        w = Writer(self.rng, self, kernel=True)
        tree = seed % 8 == 7
        if tree:
            self.begin_tree(w, scope)
        # Arguments are not assigned to: work on copies.
        first = w.fresh("F")
        w.put(f"{first} = g + {self.rng.choice(scope.leaves['F'])[0]}")
        scope.names["F"] = [(first, 3.0)]
        scope.leaves["F"].append(("g", 1.5))
        scope.leaves["V"].append(("d", 1.5))
        scope.names["V"] = []
        w.statements(scope, self.rng.randint(2, 4), 0)
        w.results(scope)
        if tree:
            self.end_tree(w, scope)
        types = {a.name: a.element if a.kind == "value" else f"Array[{a.element}]" for a in self.arguments.values()}
        head = ",\n    ".join([*([] if tree else ["i: Index"]), *[f"{n}: {t}" for n, t in types.items()]])
        text = f"@kernel\ndef {name}(\n    {head},\n):\n" + "\n".join(w.lines) + "\n"
        return Case(seed, name, "\n\n".join([*self.texts, text]), n, self.arguments, tree)

    def begin_tree(self, w: Writer, scope: Scope) -> None:
        """Open the loop over elements; each one knows what its parent has stored."""
        self.arguments["parent"] = Argument("parent", "Int", self.count, top=-1)
        up = self.output("up", "Float")
        w.put(f"for i in range({self.count}):")
        w.depth, w.loops = 2, ["i"]
        w.put("above = 0.3")
        w.put("if i > 0:")
        w.put(f"    above = {up}[parent[i]]")
        scope.leaves["F"].append(("above", 1.5))

    def end_tree(self, w: Writer, scope: Scope) -> None:
        """Close the loop, and sum up from the leaves to the root."""
        up, down = self.output("up", "Float"), self.output("down", "Float")
        w.put(f"{up}[i] = tanh(above * {w.squash(w.F(scope, 1))} + {w.float_leaf(scope)})")
        w.put(f"{down}[i] += {w.squash(w.F(scope, 1))}")
        w.depth, w.loops = 1, []
        w.put(f"for i in range({self.count} - 1, 0, -1):")
        w.put(f"    {down}[parent[i]] += {down}[i] * sin({up}[i] + 0.4)")


def generate(seed: int) -> Case:
    """The random kernel of a seed."""
    return Maker(seed).case(seed, f"random_{seed}")


if __name__ == "__main__":
    import sys

    print(generate(int(sys.argv[1])).source)
