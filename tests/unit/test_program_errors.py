"""Programs that do not fit together are refused with what is wrong and how to mend it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from kinema.errors import ProgramError
from kinema.lang import Array, Bool, Float, Index, Int, func, ivec2, kernel, mat33, record, struct, vec3
from kinema.lang.autograd.rollout import rollout
from kinema.lang.programs.program import Program


@kernel
def move(i: Index, x: Array[vec3], v: Array[vec3], dt: Float, x_next: Array[vec3]):
    x_next[i] = x[i] + v[i] * dt


@kernel
def copy(i: Index, a: Array[Float], b: Array[Float]):
    b[i] = a[i]


@kernel
def increase(i: Index, a: Array[Float], b: Array[Float]):
    b[i] += a[i]


@kernel
def halve(i: Index, a: Array[Float]):
    a[i] = 0.5 * a[i]


@kernel
def fill(i: Index, a: Array[Float]):
    a[i] = 2.0
    a[i] = a[i] * 2.0


@kernel
def first(a: Array[Float], b: Array[Float]):
    b[0] = a[0]


@kernel
def count_of(i: Index, n: Array[Int], b: Array[Float]):
    b[i] = Float(n[i])


@func
def half(x: Float):
    return 0.5 * x


@struct
class Mixed:
    a: Float
    n: Int


@record
class Pair:
    a: Array[Float]
    b: Array[Float]


Build = Callable[[Program], object]


def loops(p: Program) -> None:
    for _ in range(17):
        with p.repeat(2):
            pass


def with_loop_of(p: Program, times: float) -> None:
    with p.repeat(times):  # type: ignore[arg-type]
        pass


WRONG: dict[str, tuple[Build, tuple[str, ...]]] = {
    # buffers
    "a name twice": (
        lambda p: (p.state("x", vec3, 4), p.scratch("x", Float)),
        ("program 'p' already has a buffer 'x'", "use another name"),
    ),
    "no name": (lambda p: p.scratch("", Float, 4), ("a buffer needs a name", "got: ''")),
    "a type for a name": (lambda p: p.scratch(Float, "x"), ("a buffer needs a name", "Float")),
    "a Python type": (lambda p: p.parameter("k", float), ("float is not a value type of the language", "fix: Float")),
    "a tensor type": (lambda p: p.state("x", torch.Tensor, 4), ("Tensor is not a value type", "vec3")),
    "an array type": (lambda p: p.state("x", Array[Float], 4), ("Array[Float] is not a value type", "vec3")),
    "a kernel type": (lambda p: p.constant("x", float, [1.0]), ("float is not a value type", "fix: Float")),
    "Bool elements": (lambda p: p.parameter("on", Bool, 4), ("all Float or all Int", "got: Bool", "0 and 1")),
    "mixed elements": (lambda p: p.scratch("m", Mixed, 4), ("all Float or all Int", "got: Mixed", "two buffers")),
    "an Int state": (lambda p: p.state("n", Int, 4), ("state 'n' must be Float", "got: Int", "parameters")),
    "an Int control": (lambda p: p.control("n", ivec2), ("control 'n' must be Float", "got: ivec2")),
    "no elements": (lambda p: p.state("x", vec3, 0), ("'x': the number of elements must be a positive integer", "0")),
    "half an element": (lambda p: p.state("x", vec3, 2.5), ("must be a positive integer", "got: 2.5")),
    # constants
    "a constant of another shape": (
        lambda p: p.constant("m", mat33, np.zeros((5, 9))),
        ("constant 'm' does not hold mat33 elements", "got: shape (5, 9)", "expected: (count, 3, 3)"),
    ),
    "a single number for vectors": (
        lambda p: p.constant("v", vec3, 1.0),
        ("does not hold vec3 elements", "got: shape ()", "expected: (count, 3)"),
    ),
    "a constant that is not finite": (
        lambda p: p.constant("c", Float, [0.0, np.nan]),
        ("element 1: constant 'c' is not finite", "finite numbers"),
    ),
    "a ragged constant": (
        lambda p: p.constant("c", Float, [[1.0], [1.0, 2.0]]),
        ("the values of 'c' are not an array of numbers",),
    ),
    "a constant of words": (lambda p: p.constant("c", Float, ["a"]), ("the values of 'c' are no", "list")),
    "a table of reals": (lambda p: p.constant("n", Int, [0.5, 1.0]), ("'n' are not 32-bit integers",)),
    "a table beyond 32 bits": (lambda p: p.constant("n", Int, [2**40]), ("'n' are not 32-bit integers",)),
    "an order that leaves one out": (
        lambda p: p.constant("c", Float, [1.0, 2.0, 3.0], order=[0, 1, 1]),
        ("the order of 'c' is not a permutation of its 3 elements", "packet_order"),
    ),
    "an order of a single value": (
        lambda p: p.parameter("c", Float, order=[0]),
        ("the order of 'c' is not a permutation",),
    ),
    # moments
    "the next of a parameter": (
        lambda p: p.parameter("k", Float).next,
        ("'k' is a parameter and has no .next", "state('k', ...)"),
    ),
    "the last of a state": (
        lambda p: p.state("x", vec3, 4).last,
        ("'x' is a state, not an iterate of a loop", "iterate(loop, 'x', ...)"),
    ),
    # calls
    "a @func for a kernel": (
        lambda p: p.call(half, p.parameter("k", Float)),
        ("the first argument of call is not a kernel", "got: half", "`@kernel` above `def half`"),
    ),
    "a buffer for a kernel": (lambda p: p.call(p.parameter("k", Float)), ("is not a kernel", "pass the kernel first")),
    "a missing argument": (
        lambda p: p.call(copy, p.parameter("a", Float, 4), count=4),
        ("kernel copy takes 2 buffers, not 1", "got: a", "expected: a, b"),
    ),
    "an argument for the Index": (
        lambda p: p.call(copy, 4, p.parameter("a", Float, 4), p.scratch("b", Float, 4), count=4),
        ("kernel copy takes 2 buffers, not 3", "got: int, a, b", "count= is its range"),
    ),
    "a tensor for a buffer": (
        lambda p: p.call(copy, torch.zeros(4), p.scratch("b", Float, 4), count=4),
        ("argument 'a' of copy must be a buffer of the program", "got: Tensor", "p.constant('a', Float, values)"),
    ),
    "a record of tensors": (
        lambda p: p.call(copy, Pair(a=np.zeros(4), b=p.scratch("b", Float, 4)), count=4),
        ("argument 'a' of copy must be a buffer", "got: ndarray"),
    ),
    "a buffer of another program": (
        lambda p: p.call(copy, Program("q").parameter("a", Float, 4), p.scratch("b", Float, 4), count=4),
        ("argument 'a' of copy: <parameter a: Float[4]> belongs to another program than 'p'", "a separate buffer"),
    ),
    "other elements": (
        lambda p: p.call(copy, p.parameter("a", vec3, 4), p.scratch("b", Float, 4), count=4),
        ("argument 'a' of copy and 'a' differ in element type", "got: vec3", "expected: Float"),
    ),
    "an Int table for Floats": (
        lambda p: p.call(copy, p.constant("n", Int, [1, 2]), p.scratch("b", Float, 2), count=2),
        ("argument 'a' of copy and 'n' differ in element type", "got: Int", "expected: Float"),
    ),
    "an array for a value": (
        lambda p: p.call(
            move,
            x := p.state("x", vec3, 4),
            p.parameter("v", vec3, 4),
            p.parameter("dt", Float, 4),
            x.next,
            count=4,
        ),
        ("argument 'dt' of move is a single value", "<parameter dt: Float[4]>", "`dt: Array[Float]` in the kernel"),
    ),
    "a write to a parameter": (
        lambda p: p.call(copy, p.parameter("a", Float, 4), p.parameter("b", Float, 4), count=4),
        ("copy writes to 'b', but <parameter b: Float[4]> is read-only here", "a scratch or output buffer"),
    ),
    "a write to the present state": (
        lambda p: p.call(copy, p.parameter("a", Float, 4), p.state("x", Float, 4), count=4),
        ("copy writes to 'b', but <state x: Float[4]> is read-only here", "pass x.next"),
    ),
    "an output that is read": (
        lambda p: p.call(copy, p.output("a", Float, 4), p.scratch("b", Float, 4), count=4),
        ("copy reads the output 'a'", "a scratch buffer for values that are read again"),
    ),
    "one buffer twice": (
        lambda p: p.call(copy, a := p.scratch("a", Float, 4), a, count=4),
        ("copy gets 'a' as 'a' and as 'b', and writes to it", "another buffer"),
    ),
    "no count": (
        lambda p: p.call(copy, p.parameter("a", Float, 4), p.scratch("b", Float, 4)),
        ("kernel copy: count is missing", "count=n, the number of elements"),
    ),
    "a count without an Index": (
        lambda p: p.call(first, p.parameter("a", Float, 4), p.scratch("b", Float, 4), count=4),
        ("kernel first: there is no Index", "once per world"),
    ),
    "a count of zero": (
        lambda p: p.call(copy, p.parameter("a", Float, 4), p.scratch("b", Float, 4), count=0),
        ("kernel copy: count must be a positive integer", "got: 0"),
    ),
    "a count that is too long": (
        lambda p: p.call(copy, p.parameter("a", Float, 8), p.scratch("b", Float, 4), count=8),
        ("copy runs over 8 elements, but 'b' is shorter", "got: 'b' has 4", "expected: at least 8", "count=4"),
    ),
    # loops and custom operations
    "a loop of no iteration": (lambda p: with_loop_of(p, 0), ("repeat: the number of times must be a positive",)),
    "a loop of half an iteration": (lambda p: with_loop_of(p, 1.5), ("must be a positive integer", "got: 1.5")),
    "too many loops": (loops, ("a program has at most 16 loops", "a loop inside a kernel")),
    "an iterate without a loop": (
        lambda p: p.iterate(3, "z", Float),
        ("iterate 'z' needs a loop of this program", "got: int", "with p.repeat(n) as loop"),
    ),
    "a number for a condition": (
        lambda p: p.until(True, 5).__enter__(),
        ("the condition of until(...) is a Float scratch buffer", "got: bool", "p.scratch"),
    ),
    "a parameter for a condition": (
        lambda p: p.until(p.parameter("k", Float), 5).__enter__(),
        ("the condition of until(...) is a Float scratch buffer", "<parameter k: Float>"),
    ),
    "an adjoint of a kernel": (
        lambda p: p.adjoint_of(copy).__enter__(),
        ("adjoint_of takes a custom operation", "got: Kernel", "with p.custom() as node"),
    ),
    "a replay of a kernel": (
        lambda p: p.replay_of(copy).__enter__(),
        ("replay_of takes a custom operation", "got: Kernel", "with p.replay_of(node)"),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused_where_it_is_added(case: str):
    build, fragments = WRONG[case]
    with pytest.raises(ProgramError) as caught:
        build(Program("p"))
    for fragment in fragments:
        assert fragment in str(caught.value)


def unwritten_state(p: Program) -> None:
    p.state("x", Float, 4)
    p.call(copy, p.parameter("a", Float, 4), p.scratch("b", Float, 4), count=4)


def unwritten_output(p: Program) -> None:
    p.output("y", Float, 4)


def scratch_read_first(p: Program) -> None:
    a, b, x = p.scratch("a", Float, 4), p.scratch("b", Float, 4), p.state("x", Float, 4)
    p.call(copy, a, b, count=4)
    p.call(copy, x, a, count=4)
    p.call(copy, a, x.next, count=4)


def scratch_read_by_its_writer(p: Program) -> None:
    p.call(halve, p.scratch("a", Float, 4), count=4)


def next_read_first(p: Program) -> None:
    x, y = p.state("x", Float, 4), p.output("y", Float, 4)
    p.call(copy, x.next, y, count=4)
    p.call(copy, x, x.next, count=4)


def condition_never_written(p: Program) -> None:
    a, b, ready = p.parameter("a", Float, 4), p.scratch("b", Float, 4), p.scratch("ready", Float, 4)
    with p.until(ready, 5):
        p.call(copy, a, b, count=4)


INCOMPLETE: dict[str, tuple[Build, tuple[str, ...]]] = {
    "a state without a next": (unwritten_state, ("never writes the next state of 'x'", "pass x.next to a kernel")),
    "an output without contents": (unwritten_output, ("never writes the output 'y'", "or remove it")),
    "scratch that is read first": (
        scratch_read_first,
        ("copy reads scratch 'a' before anything was written", "earlier kernel"),
    ),
    "scratch that its writer reads first": (scratch_read_by_its_writer, ("halve reads scratch 'a' before",)),
    "a next state that is read first": (next_read_first, ("copy reads x.next before anything was written", "or x")),
    "a condition that never changes": (condition_never_written, ("'ready' of until(...) is not written in its loop",)),
}


@pytest.mark.parametrize("case", INCOMPLETE)
def test_what_is_missing_is_named_before_anything_runs(case: str):
    build, fragments = INCOMPLETE[case]
    program = Program("p")
    build(program)
    state = {n: torch.zeros(b.shape) for n, b in program.buffers.items() if b.kind == "state"}
    parameters = {n: torch.zeros(b.shape) for n, b in program.buffers.items() if b.kind == "parameter"}
    with pytest.raises(ProgramError) as caught:
        rollout(program, 1, state, parameters)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_what_fits_is_taken():
    p = Program("p")
    x, total = p.state("x", Float, 4), p.scratch("total", Float, 4)
    n, own = p.constant("n", Int, np.array([1.0, 2.0, 3.0, 4.0])), p.scratch("own", Float, np.int64(4))
    p.call(increase, x, total, count=4)  # += starts from zero
    p.call(fill, own, count=4)  # written, then read by the same kernel
    p.call(increase, own, total, count=4)
    p.call(count_of, n, counted := p.scratch("counted", Float, 4), count=4)
    p.call(increase, counted, total, count=np.int32(4))
    p.call(copy, total, x.next, count=4)
    p.check()
    assert rollout(p, 2, {"x": torch.zeros(4)}).final["x"].tolist() == [10.0, 12.0, 14.0, 16.0]
