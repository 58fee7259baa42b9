"""Records of the kernel language: their cotangents in adjoints written by hand, and records made within kernels."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from kinema.errors import InputError, KernelError, ProgramError
from kinema.lang import Array, Float, Index, Int, Kernel, func, kernel, local, mat33, record, vec3
from kinema.lang.autograd.rollout import rollout
from kinema.lang.build import compiler
from kinema.lang.programs.plan import Options, Plan
from kinema.lang.programs.program import Program

N = 5
RNG = np.random.default_rng(3)

needs_compiler = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")


@record
class Tables:
    """Numbers of a spring: integers, constants, parameters and a single value."""

    number: Array[Int]
    area: Array[Float]
    stiffness: Array[Float]
    rest: Array[Float]
    scale: Float


@record
class Counts:
    """Nothing that has a derivative."""

    number: Array[Int]
    most: Int


@record
class Whole:
    """Records in a record."""

    counts: Counts
    tables: Tables
    frame: Array[mat33]
    gravity: vec3


def members(kind: type) -> dict[str, str]:
    return {name: part.__name__ for name, part in kind.members}  # type: ignore[attr-defined]


def test_cotangents_are_a_record_of_what_is_float():
    assert members(Tables.adj) == dict.fromkeys(("area", "stiffness", "rest", "scale"), "Array[Float]")
    assert Tables.adj.__name__ == "Tables.adj" and Tables.adj is Tables.adj
    assert members(Whole.adj) == {"tables": "Tables.adj", "frame": "Array[mat33]", "gravity": "Array[vec3]"}
    assert dict(Whole.adj.members)["tables"] is Tables.adj


def test_cotangents_of_buffers():
    p = Program("springs")
    tables = tables_of(p)
    assert tables.adj.rest == tables.rest.adj and tables.adj.scale == tables.scale.adj
    assert not hasattr(tables.adj, "number")


# -- an adjoint written by hand ------------------------------------------------------------------------------------


@kernel
def forces(i: Index, tables: Tables, x: Array[Float], f: Array[Float]):
    """f = -scale area stiffness (x - rest), with the spring of each element."""
    k = tables.number[i]
    f[i] = -tables.scale * tables.area[k] * tables.stiffness[k] * (x[i] - tables.rest[k])


@kernel
def forces_adjoint(tables: Tables, x: Array[Float], f_adj: Array[Float], tables_adj: Tables.adj, x_adj: Array[Float]):
    """The same in reverse."""
    for i in range(len(x)):
        k = tables.number[i]
        pull, reach = -f_adj[i] * tables.area[k], x[i] - tables.rest[k]
        tables_adj.stiffness[k] += pull * tables.scale * reach
        tables_adj.rest[k] -= pull * tables.scale * tables.stiffness[k]
        tables_adj.scale[0] += pull * tables.stiffness[k] * reach
        x_adj[i] += pull * tables.scale * tables.stiffness[k]


@kernel
def advance(i: Index, x: Array[Float], f: Array[Float], x_next: Array[Float]):
    x_next[i] = x[i] + 0.1 * f[i]


NUMBER, AREA = np.array([0, 2, 1, 1, 0]), np.array([1.0, 0.5, 2.0])


def tables_of(p: Program) -> Tables:
    return Tables(
        number=p.constant("number", Int, NUMBER),
        area=p.constant("area", Float, AREA),
        stiffness=p.parameter("stiffness", Float, 3),
        rest=p.parameter("rest", Float, 3),
        scale=p.parameter("scale", Float),
    )


def springs() -> Program:
    p = Program("springs")
    x, f, tables = p.state("x", Float, N), p.scratch("f", Float, N), tables_of(p)
    with p.custom() as node:
        p.call(forces, tables, x, f, count=N)
    with p.adjoint_of(node):
        p.call(forces_adjoint, tables, x, f.adj, tables.adj, x.adj)
    p.call(advance, x, f, x.next, count=N)
    return p


def inputs_of(*batch: int) -> dict[str, Tensor]:
    sizes = {"x": (*batch, N), "stiffness": (3,), "rest": (*batch, 3), "scale": ()}
    return {n: torch.tensor(RNG.uniform(0.5, 1.5, size), requires_grad=True) for n, size in sizes.items()}


@needs_compiler
@pytest.mark.parametrize("batch", [(), (9,)])
def test_an_adjoint_takes_cotangents_as_a_record(batch: tuple[int, ...]):
    p, inputs = springs(), inputs_of(*batch)

    def final(x: Tensor, **tables: Tensor) -> Tensor:
        return rollout(p, 3, {"x": x}, tables).final["x"]

    assert torch.autograd.gradcheck(lambda *given: final(**dict(zip(inputs, given, strict=True))), (*inputs.values(),))


def test_cotangents_that_an_adjoint_leaves_alone_take_no_memory():
    plan = Plan(springs(), Options(precision=8, wrt=frozenset({"stiffness"})))
    plan.instructions("reverse")
    assert ("stiffness", "adj") in plan.table and ("area", "adj") not in plan.table


def test_an_adjoint_with_a_record_of_cotangents_in_plain_python():
    x, f_adj = RNG.normal(size=N), RNG.normal(size=N)
    stiffness, rest, zero = RNG.normal(size=3), RNG.normal(size=3), lambda n: np.zeros(n)
    tables = Tables(number=NUMBER, area=AREA, stiffness=stiffness, rest=rest, scale=0.5)
    found = Tables.adj(area=zero(3), stiffness=zero(3), rest=zero(3), scale=zero(1))
    x_adj = zero(N)
    forces_adjoint.python(tables, x, f_adj, found, x_adj)
    pull = -0.5 * AREA[NUMBER] * f_adj
    np.testing.assert_allclose(x_adj, pull * stiffness[NUMBER])
    np.testing.assert_allclose(found.stiffness, np.bincount(NUMBER, pull * (x - rest[NUMBER])))
    np.testing.assert_allclose(found.rest, -np.bincount(NUMBER, pull * stiffness[NUMBER]))
    np.testing.assert_allclose(found.scale, [(pull * stiffness[NUMBER] * (x - rest[NUMBER])).sum() / 0.5])
    assert not found.area.any()


# -- records made within kernels ------------------------------------------------------------------------------------


@record
class Stack:
    """Numbers on a stack."""

    entries: Array[Float]
    height: Array[Int]
    scale: Float


@record
class Stacks:
    """Two of them."""

    left: Stack
    right: Stack


@func
def push(stack: Stack, x: Float):
    """Put x on top."""
    stack.entries[stack.height[0]] = stack.scale * x
    stack.height[0] = stack.height[0] + 1


@func
def top_of(stack):
    """What lies on top."""
    return stack.entries[stack.height[0] - 1]


@kernel
def sort_by_sign(x: Array[Float], y: Array[Float]):
    """Positive numbers are counted on one stack, negative ones doubled on the other."""
    most = len(x)
    for turn in range(2):
        stacks = Stacks(
            Stack(local(Float, most), local(Int, 1), 1.0), Stack(local(Float, most), local(Int, 1), 2.0 + turn)
        )
        for k in range(most):
            if x[k] > 0.0:
                push(stacks.left, x[k])
            else:
                push(stacks.right, x[k])
        y[3 * turn] = 1.0 * stacks.left.height[0]
        y[3 * turn + 1] = top_of(stacks.left)
        y[3 * turn + 2] = top_of(stacks.right)


def test_records_made_within_a_kernel_in_plain_python():
    y = np.zeros(6)
    sort_by_sign.python(np.array([1.0, -2.0, 3.0, -4.0, 5.0]), y)
    assert y.tolist() == [3.0, 5.0, -8.0, 3.0, 5.0, -12.0]


@needs_compiler
def test_records_made_within_a_kernel():
    p = Program("stacks")
    p.call(sort_by_sign, p.parameter("x", Float, N), p.output("y", Float, 6))
    given = torch.tensor([1.0, -2.0, 3.0, -4.0, 5.0], dtype=torch.float64)
    found = rollout(p, 1, {}, {"x": given}, record="y").outputs["y"]
    assert found.flatten().tolist() == [3.0, 5.0, -8.0, 3.0, 5.0, -12.0]


# -- mistakes -------------------------------------------------------------------------------------------------------


def test_a_record_of_integers_has_no_cotangents():
    with pytest.raises(AttributeError, match="record Counts has no cotangents: it has no Float member"):
        Counts.adj  # noqa: B018


def test_integers_have_no_cotangent():
    p = Program("springs")
    with pytest.raises(ProgramError, match="constant number.*has no cotangent"):
        tables_of(p).number.adj  # noqa: B018


def test_a_record_of_arrays_has_no_cotangents_of_its_own():
    given = Tables(NUMBER, AREA, AREA, AREA, 0.5)
    with pytest.raises(AttributeError, match=r"Tables.area is a ndarray.*give one: Tables.adj\(area=..., stiffness"):
        given.adj  # noqa: B018


def test_no_member_is_called_adj():
    class Bad:
        adj: Array[Float]

    with pytest.raises(TypeError, match="record Bad: the name 'adj' is reserved"):
        record(Bad)


def test_a_record_takes_as_many_values_as_it_has_members():
    with pytest.raises(TypeError, match="Counts takes number, most; got 1 values"):
        Counts(NUMBER)
    with pytest.raises(TypeError, match="Counts takes number, most; got number"):
        Counts(number=NUMBER)


def test_values_in_place_of_their_cotangents_are_refused():
    p = Program("springs")
    x, f, tables = p.state("x", Float, N), p.scratch("f", Float, N), tables_of(p)
    with pytest.raises(ProgramError, match="'tables_adj' of forces_adjoint has the wrong record type") as caught:
        p.call(forces_adjoint, tables, x, f.adj, tables, x.adj)
    assert "got: Tables\n" in str(caught.value) and "expected: Tables.adj" in str(caught.value)
    assert "its cotangents: the record's .adj" in str(caught.value)
    with pytest.raises(ProgramError, match="argument 'tables' of forces has the wrong record type"):
        p.call(forces, tables.adj, x, f, count=N)
    plain = Tables(NUMBER, AREA, AREA, AREA, 0.5)
    with pytest.raises(InputError, match="argument 'tables_adj' has the wrong record type"):
        forces_adjoint.python(plain, AREA, AREA, plain, AREA)


@kernel
def asks_for_the_cotangent_of_an_integer(tables: Tables, tables_adj: Tables.adj):
    tables_adj.rest[tables_adj.number[0]] += tables.scale  # here


@kernel
def asks_for_cotangents_itself(tables: Tables, y: Array[Float]):
    y[0] = tables.adj.rest[0]  # here


@kernel
def takes_cotangents_of_integers(counts: Counts, counts_adj: Counts.adj):  # here
    counts_adj.number[0] += 1.0


@kernel
def makes_a_short_record(x: Array[Float]):
    push(Stack(x, local(Int, 1)), 1.0)  # here


@kernel
def makes_a_record_of_other_arrays(x: Array[Float]):
    push(Stack(x, x, 1.0), 1.0)  # here


@kernel
def hands_over_another_record(tables: Tables):
    push(tables, 1.0)  # here


@kernel
def assigns_to_an_argument(tables: Tables, other: Tables, x: Array[Float]):
    tables = other  # here
    x[0] = tables.scale


@pytest.mark.parametrize(
    ("wrong", "what", "fix"),
    [
        (
            asks_for_the_cotangent_of_an_integer,
            "Tables.adj has no member 'number'",
            "only Float members have cotangents",
        ),
        (asks_for_cotangents_itself, "Tables has no member 'adj'", "an argument of type Tables.adj"),
        (takes_cotangents_of_integers, "record Counts has no cotangents: it has no Float member", ""),
        (makes_a_short_record, "Stack takes 3 values, got 2", "Stack(entries, height, scale)"),
        (makes_a_record_of_other_arrays, "height of Stack must be Array[Int], got Array[Float]", "Array[Int]"),
        (hands_over_another_record, "argument 'stack' of push must be Stack, got Tables", "Stack"),
        (assigns_to_an_argument, "'tables' is an argument of type Tables", "another name"),
    ],
    ids=lambda case: getattr(case, "name", ""),
)
def test_mistakes_in_kernels_are_named(wrong: Kernel, what: str, fix: str):
    with pytest.raises(KernelError) as caught:
        wrong.ir  # noqa: B018
    assert what in caught.value.what and fix in str(caught.value.fix)
    assert caught.value.line == line_marked(wrong.python_function)


def line_marked(python: Callable[..., object]) -> int:
    lines, first = inspect.getsourcelines(python)
    return first + next(at for at, line in enumerate(lines) if line.rstrip().endswith("# here"))
