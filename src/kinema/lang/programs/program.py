"""Step programs: one time step as a list of kernel calls over named buffers.

```python
p = Program("block")
x, v = p.state("x", vec3, n), p.state("v", vec3, n)
mu = p.parameter("mu", Float, tets)
f = p.scratch("f", vec3, n)
p.call(solid_forces, mesh, x, mu, lam, alpha, f, count=tets)
p.call(advance, x, v, f, inv_mass, gravity, dt, x.next, v.next, count=n)
```

State is double-buffered: a step reads `x` and writes `x.next`. Scratch lives for one step and starts at zero if its
first access is `+=`. Programs are independent of memory and threads; `plan` compiles them, `rollout` runs them.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from kinema.errors import ProgramError
from kinema.lang.ir import analysis
from kinema.lang.kernels.cpp_kernel import CppKernel
from kinema.lang.kernels.kernel import Kernel
from kinema.lang.language import types
from kinema.lang.runtime.native import MAX_LOOPS

STATE, PARAMETER, CONSTANT, CONTROL, SCRATCH, OUTPUT, ITERATE, PULLED = (
    "state",
    "parameter",
    "constant",
    "control",
    "scratch",
    "output",
    "iterate",
    "pulled",
)


@dataclass(eq=False)
class Buffer:
    """A named array of a program.

    Attributes:
        name: Its name, unique in the program.
        kind: 'state', 'parameter', 'constant', 'control', 'scratch', 'output', 'iterate' or 'pulled' (see `pullback`).
        element: Type of an element.
        count: Number of elements; None for a single value.
        values: Contents of a constant, shape (count, scalars).
        order: Index of native element i in the user's order, or None: kernels see reordered elements.
        loop: The loop of an iterate.
        source: The buffer that a pulled buffer holds derivatives with respect to.
        filled: Whether it needs no zeroing: kernels write every element of scratch in a step before they read it, and
            write every element of an output.
    """

    name: str
    kind: str
    element: type
    count: int | None
    values: np.ndarray | None = None
    order: np.ndarray | None = None
    loop: Loop | None = None
    filled: bool = False
    source: Buffer | None = None

    @property
    def length(self) -> int:
        """Number of elements, 1 for a single value."""
        return 1 if self.count is None else self.count

    @cached_property
    def kinds(self) -> str:
        """Scalar kinds of one element."""
        return types.flatten(self.element)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the user's array for one world and one step."""
        head = () if self.count is None else (self.count,)
        return (*head, *types.shape_of(self.element))

    def __repr__(self) -> str:
        size = "" if self.count is None else f"[{self.count}]"
        return f"<{self.kind} {self.name}: {self.element.__name__}{size}>"


@dataclass(frozen=True)
class Ref:
    """A buffer at one moment: state `now` or `next`, or an iteration of an iterate; `.adj` is its cotangent."""

    buffer: Buffer
    moment: str = "now"
    cotangent: bool = False

    @property
    def next(self) -> Ref:
        """The state at the end of the step, or the iterate after this iteration."""
        if self.buffer.kind not in (STATE, ITERATE):
            what = f"{self.buffer.name!r} is {_a(self.buffer.kind)} and has no .next"
            raise ProgramError(what, fix=f"declare it with state({self.buffer.name!r}, ...)")
        return replace(self, moment="next")

    @property
    def first(self) -> Ref:
        """An iterate before its loop."""
        return self._of_iterate("first")

    @property
    def last(self) -> Ref:
        """An iterate after its loop."""
        return self._of_iterate("last")

    @property
    def adj(self) -> Ref:
        """The cotangent, for the adjoint of a custom operation; for a record of buffers it is a record."""
        if "i" in self.buffer.kinds:
            what = f"{self.buffer!r} has no cotangent"
            raise ProgramError(what, got=self.buffer.element.__name__, expected="a buffer of Float")
        return replace(self, cotangent=True)

    def _of_iterate(self, moment: str) -> Ref:
        if self.buffer.kind != ITERATE:
            what = f"{self.buffer.name!r} is {_a(self.buffer.kind)}, not an iterate of a loop"
            raise ProgramError(what, fix=f"declare it with iterate(loop, {self.buffer.name!r}, ...)")
        return replace(self, moment=moment)

    @property
    def name(self) -> str:
        """Name of the buffer."""
        return self.buffer.name


@dataclass(eq=False)
class KernelCall:
    """A kernel over `count` elements (1 if it has no Index)."""

    kernel: Kernel
    args: list[Ref]
    count: int


@dataclass(eq=False)
class Loop:
    """`repeat(times)` or, with a condition, `until(condition, times)`; nodes added in its `with` block are its body."""

    number: int
    times: int
    condition: Ref | None = None
    settled: bool = False
    body: list[Any] = field(default_factory=list)
    program: Builder | None = field(default=None, repr=False)

    def __enter__(self) -> Loop:
        assert self.program is not None
        if self.body or any(self is node for node in self.program._open[-1]):
            raise ProgramError("a loop can be entered only once", fix="make another one with repeat(...)")
        self.program._open[-1].append(self)
        self.program._open.append(self.body)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.program is not None
        self.program._open.pop()


@dataclass(eq=False)
class Custom:
    """An operation with a hand-written adjoint: reverse mode runs `adjoint` instead of deriving it.

    If `replay` is not empty, derivatives run it instead of `forward`: same results, and it stores what they need.
    If `again` is not empty, reverse mode runs it instead of both in a step whose end state is known.
    """

    forward: list[Any] = field(default_factory=list)
    adjoint: list[Any] = field(default_factory=list)
    replay: list[Any] = field(default_factory=list)
    again: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class Pullback(Custom):
    """The Jacobian of results of all earlier nodes, see `Program.pullback`.

    Attributes:
        rows: Differentiated results.
        pulled: Name of an input -> buffer of the derivatives with respect to it.
        width: Rows per packet, which share registers.
        loop: The loop over packets of rows.
    """

    rows: list[Ref] = field(default_factory=list)
    pulled: dict[str, Buffer] = field(default_factory=dict)
    width: int = 1
    loop: Loop | None = None


class Builder(ABC):
    """Receives nodes and buffers: a `Program`, or a view of one that gives buffers other names or meanings.

    Attributes:
        name: Name of the program.
        buffers: All buffers of the program by name, shared by all its views.
        nodes: The list that new nodes are appended to.
    """

    name: str
    buffers: dict[str, Buffer]
    nodes: list[Any]
    _open: list[list[Any]]
    _loops: list[Loop]

    @abstractmethod
    def state(self, name: str, element: type, count: int | None = None) -> Ref:
        """A state: a step reads `x` and writes `x.next`."""

    @abstractmethod
    def parameter(self, name: str, element: type, count: int | None = None, order: Any = None) -> Ref:
        """An input that is constant over all steps."""

    @abstractmethod
    def constant(self, name: str, element: type, values: Any, order: Any = None) -> Ref:
        """Fixed contents without derivative."""

    @abstractmethod
    def control(self, name: str, element: type, count: int | None = None, order: Any = None) -> Ref:
        """An input per step."""

    @abstractmethod
    def scratch(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """Intermediate results of one step."""

    @abstractmethod
    def output(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """A result per step."""

    def iterate(self, loop: Loop, name: str, element: type, count: int | None = None) -> Ref:
        """A quantity that a loop updates: `.first` before it, `x` and `x.next` inside, `.last` after it."""
        if not isinstance(loop, Loop) or loop not in self._loops:
            fix = "`with p.repeat(n) as loop:`, and this loop as the first argument"
            raise ProgramError(f"iterate {name!r} needs a loop of this program", got=type(loop).__name__, fix=fix)
        return self._add(Buffer(name, ITERATE, element, count, loop=loop))

    def _add(self, buffer: Buffer) -> Ref:
        name, element = buffer.name, buffer.element
        if not isinstance(name, str) or not name:
            raise ProgramError("a buffer needs a name", got=repr(name), expected="a string")
        if name in self.buffers:
            raise ProgramError(f"program {self.name!r} already has a buffer {name!r}", fix="use another name")
        if not types.is_value_type(element):
            raise _no_value_type(name, element)
        shown = element.__name__
        if len(set(buffer.kinds)) > 1 or "b" in buffer.kinds:
            fix = "split it into two buffers; for Bool use Int with 0 and 1"
            raise ProgramError(f"buffer {name!r}: elements must be all Float or all Int", got=shown, fix=fix)
        if buffer.kind in (STATE, CONTROL) and "i" in buffer.kinds:
            fix = "integers are parameters, constants, scratch or outputs"
            raise ProgramError(f"{buffer.kind} {name!r} must be Float", got=shown, fix=fix)
        if buffer.count is not None:
            buffer.count = _positive(f"buffer {name!r}: the number of elements", buffer.count)
        self.buffers[name] = buffer
        return Ref(buffer)

    def call(self, kernel: Kernel, *args: Any, count: int | None = None) -> None:
        """Append a kernel call. Pass a record as an instance of the record type that holds buffers.

        Args:
            kernel: The kernel.
            args: Its arguments without the Index.
            count: Number of elements; needed if the kernel has an Index.
        """
        if not isinstance(kernel, Kernel):
            given = getattr(kernel, "__name__", None)
            fix = f"`@kernel` above `def {given}`" if given else "pass the kernel first, then its arguments"
            raise ProgramError("the first argument of call is not a kernel", got=given or repr(kernel), fix=fix)
        refs = list(flatten_arguments(args))
        arrays = kernel.arrays
        self._check_records(kernel, args)
        if len(refs) != len(arrays):
            given = ", ".join(r.name if isinstance(r, Ref) else type(r).__name__ for r in refs)
            raise ProgramError(
                f"kernel {kernel.name} takes {len(arrays)} buffers, not {len(refs)}",
                got=given or "nothing",
                expected=", ".join(a.name for a in arrays),
                fix="do not pass the Index: count= is its range" if len(refs) > len(arrays) else None,
            )
        for array, ref in zip(arrays, refs, strict=True):
            if not isinstance(ref, Ref):
                raise ProgramError(
                    f"argument {array.name!r} of {kernel.name} must be a buffer of the program",
                    got=type(ref).__name__,
                    fix=f"p.constant({array.name!r}, {_kinds_name(array.kinds)}, values), or p.parameter(...)",
                )
            self._check_argument(kernel, array, ref)
        self._check_aliases(kernel, refs)
        if (kernel.ir.index is None) != (count is None):
            fix = (
                "count=n, the number of elements" if count is None else "no count: without Index it runs once per world"
            )
            raise ProgramError(
                f"kernel {kernel.name}: {'count is missing' if count is None else 'there is no Index'}", fix=fix
            )
        if count is not None:
            count = _positive(f"kernel {kernel.name}: count", count)
        self._check_own_lengths(kernel, refs, count)
        self._open[-1].append(KernelCall(kernel, refs, 1 if count is None else count))

    def _check_records(self, kernel: Kernel, args: tuple[Any, ...]) -> None:
        """Refuse other record types than the kernel declares, even with the same number of members."""
        for (name, kind), given in zip(kernel.parameters, args, strict=False):
            if issubclass(kind, types.Record) and isinstance(given, types.Record) and not isinstance(given, kind):
                raise ProgramError(
                    f"argument {name!r} of {kernel.name} has the wrong record type",
                    got=type(given).__name__,
                    expected=kind.__name__,
                    fix="its cotangents: the record's .adj" if kind is getattr(type(given), "adj", None) else None,
                )

    def _check_argument(self, kernel: Kernel, array: Any, ref: Ref) -> None:
        buffer = ref.buffer
        role = f"argument {array.name!r} of {kernel.name}"
        if self.buffers.get(buffer.name) is not buffer:
            fix = "declare a separate buffer in this program"
            raise ProgramError(f"{role}: {buffer!r} belongs to another program than {self.name!r}", fix=fix)
        if array.kinds != buffer.kinds:
            expected = _kinds_name(array.kinds)
            raise ProgramError(
                f"{role} and {buffer.name!r} differ in element type", got=buffer.element.__name__, expected=expected
            )
        if array.is_value and buffer.count is not None and buffer.count != 1:
            fix = f"`{array.name}: Array[{buffer.element.__name__}]` in the kernel, or a buffer without a count"
            raise ProgramError(f"{role} is a single value", got=repr(buffer), fix=fix)
        read_only = buffer.kind in (PARAMETER, CONSTANT, CONTROL) or (buffer.kind == STATE and ref.moment == "now")
        if array.written and read_only and not ref.cotangent:
            fix = f"pass {buffer.name}.next" if buffer.kind == STATE else "write to a scratch or output buffer"
            raise ProgramError(f"{kernel.name} writes to {array.name!r}, but {buffer!r} is read-only here", fix=fix)
        if buffer.kind == OUTPUT and array.read:
            fix = "a scratch buffer for values that are read again, and a last kernel that writes the output"
            raise ProgramError(f"{kernel.name} reads the output {buffer.name!r}, which is only written", fix=fix)

    def _check_aliases(self, kernel: Kernel, refs: list[Ref]) -> None:
        """Refuse aliases: kernels assume that an argument they write is no other argument."""
        seen: dict[Ref, Any] = {}
        for array, ref in zip(kernel.arrays, refs, strict=True):
            first = seen.setdefault(ref, array)
            if first is not array and (array.written or first.written):
                raise ProgramError(
                    f"{kernel.name} gets {ref.name!r} as {first.name!r} and as {array.name!r}, and writes to it",
                    fix="another buffer for the written argument",
                )

    def _check_own_lengths(self, kernel: Kernel, refs: list[Ref], count: int | None) -> None:
        if count is None:
            return
        varying = analysis.varying_values(kernel.ir, analysis.ELEMENTS, set())
        for use in analysis.accesses(kernel.ir, varying):
            ref = refs[kernel.arrays.index(use.array)]
            if use.index == "own" and ref.buffer.length < count:
                raise ProgramError(
                    f"{kernel.name} runs over {count} elements, but {use.array.name!r} is shorter",
                    got=f"{ref.buffer.name!r} has {ref.buffer.length}",
                    expected=f"at least {count}",
                    fix=f"count={ref.buffer.length}, or a longer buffer",
                )

    def repeat(self, times: int) -> Loop:
        """A loop: nodes added inside `with p.repeat(n):` run `times` times per step.

        To give an iterate its initial value, make the loop before you enter it:

        ```python
        loop = p.repeat(20)
        x = p.iterate(loop, "x", Float, n)
        p.call(guess, b, x.first, count=n)      # zero if nothing is stored
        with loop:
            p.call(sweep, b, x, x.next, count=n)
        p.call(use, x.last, ...)
        ```
        """
        return self._loop(_positive("repeat: the number of times", times), None)

    def until(self, condition: Ref, max: int, settled: bool = False) -> Loop:
        """A loop that ends after the first iteration that leaves `condition` > 0, at most after `max` iterations.

        Args:
            condition: Scratch that the loop writes.
            max: Number of iterations.
            settled: Promise that further iterations change nothing, to the bit, where the condition holds. Then worlds
                may share registers, and the condition, which must also be written before the loop, may hold before the
                first iteration.
        """
        if not isinstance(condition, Ref) or condition.buffer.kinds != "f" or condition.buffer.kind != SCRATCH:
            got = repr(condition.buffer) if isinstance(condition, Ref) else type(condition).__name__
            fix = 'ready = p.scratch("ready", Float), and a kernel in the loop that stores 1.0 into it'
            raise ProgramError("the condition of until(...) is a Float scratch buffer", got=got, fix=fix)
        return self._loop(_positive("until: max", max), condition, settled)

    def _loop(self, times: int, condition: Ref | None, settled: bool = False) -> Loop:
        if len(self._loops) == MAX_LOOPS:
            raise ProgramError(f"a program has at most {MAX_LOOPS} loops", fix="a loop inside a kernel")
        loop = Loop(len(self._loops), times, condition, settled, program=self)
        self._loops.append(loop)
        return loop

    @contextmanager
    def custom(self) -> Iterator[Custom]:
        """An operation with a hand-written adjoint: add its nodes inside, then those of the adjoint in `adjoint_of`."""
        node = Custom()
        self._open[-1].append(node)
        self._open.append(node.forward)
        try:
            yield node
        finally:
            self._open.pop()

    @contextmanager
    def adjoint_of(self, node: Custom) -> Iterator[None]:
        """The adjoint of a custom operation: kernels that read `y.adj` and accumulate into `x.adj`."""
        with self._part(node, "adjoint_of", "adjoint"):
            yield

    @contextmanager
    def replay_of(self, node: Custom) -> Iterator[None]:
        """Kernels that derivatives run instead of a custom operation: they find the same bits and store more."""
        with self._part(node, "replay_of", "replay"):
            yield

    @contextmanager
    def again_of(self, node: Custom) -> Iterator[None]:
        """Kernels that a reverse sweep runs instead of a custom operation; they may read `x.next` of states.

        They find the same results up to rounding error with less work, because the end state is known. Inside loops,
        the reverse sweep runs the operation itself.
        """
        with self._part(node, "again_of", "again"):
            yield

    @contextmanager
    def _part(self, node: Custom, method: str, part: str) -> Iterator[None]:
        if not isinstance(node, Custom):
            fix = f"`with p.custom() as node:`, then `with p.{method}(node):`"
            raise ProgramError(f"{method} takes a custom operation", got=type(node).__name__, fix=fix)
        self._open.append(getattr(node, part))
        try:
            yield
        finally:
            self._open.pop()


class Program(Builder):
    """A step program: buffers and the nodes of one step, in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.buffers = {}
        self.nodes = []
        self._open = [self.nodes]
        self._loops = []
        self.plans: dict[Any, Any] = {}  # compiled plans, by options
        self.inputs: dict[Any, Any] = {}  # prepared inputs, by their names

    def __reduce__(self) -> Any:
        raise ProgramError(
            f"program {self.name!r} cannot be pickled or copied: it holds compiled code",
            fix="build it where you use it: send the function that makes it, and its arguments",
        )

    def state(self, name: str, element: type, count: int | None = None) -> Ref:
        """A state: a step reads `x` and writes `x.next`."""
        return self._add(Buffer(name, STATE, element, count))

    def parameter(self, name: str, element: type, count: int | None = None, order: Any = None) -> Ref:
        """An input that is constant over all steps; shared by all worlds or one per world, differentiable."""
        return self._add(Buffer(name, PARAMETER, element, count, order=_as_order(name, order, count)))

    def constant(self, name: str, element: type, values: Any, order: Any = None) -> Ref:
        """Fixed contents without derivative: topology, rest shapes, tables."""
        if not types.is_value_type(element):
            raise _no_value_type(name, element)
        kinds, shape = types.flatten(element), types.shape_of(element)
        array = _numbers(name, values, np.int32 if "i" in kinds else np.float64)
        single = array.shape == shape
        if not single and (array.ndim == 0 or array.shape[1:] != shape):
            raise ProgramError(
                f"constant {name!r} does not hold {element.__name__} elements",
                got=f"shape ({', '.join(map(str, array.shape))})",
                expected=f"({', '.join(map(str, ('count', *shape)))})",
            )
        array = array.reshape(-1, len(kinds))
        if not np.isfinite(array).all():
            at = int(np.argwhere(~np.isfinite(array))[0][0])
            raise ProgramError(f"constant {name!r} is not finite", where=f"element {at}", expected="finite numbers")
        count = None if single else len(array)
        return self._add(Buffer(name, CONSTANT, element, count, values=array, order=_as_order(name, order, count)))

    def control(self, name: str, element: type, count: int | None = None, order: Any = None) -> Ref:
        """An input per step, differentiable; `order` as for parameters."""
        return self._add(Buffer(name, CONTROL, element, count, order=_as_order(name, order, count)))

    def scratch(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """Intermediate results of one step; `filled` as in `Buffer`: a promise that saves the zeroing."""
        return self._add(Buffer(name, SCRATCH, element, count, filled=filled))

    def output(self, name: str, element: type, count: int | None = None, filled: bool = False) -> Ref:
        """A result per step, kept if `record=` names it; differentiable. `filled` as in `Buffer`."""
        return self._add(Buffer(name, OUTPUT, element, count, filled=filled))

    def pullback(self, rows: list[Ref], wrt: list[Ref], width: int) -> list[Ref]:
        """Append the Jacobian of results of the nodes so far. Such a program runs for one step, without gradients.

        The program pulls cotangents back through the step, one for each scalar of `rows` in order, `width` at a time in
        the lanes of registers; all rows share the values that the step computed.

        Args:
            rows: States at the end of the step, or scratch.
            wrt: States at its start, controls and parameters.
            width: Lanes.

        Returns:
            For each of `wrt` a Float buffer that later kernels may read: the derivative of row r by scalar k of its
            buffer is at ((r // width) * scalars + k) * width + r % width.
        """
        if self.pulls is not None or self._loops or self._open[-1] is not self.nodes:
            raise ProgramError("a program has one Jacobian, of a whole step without loops", got=self.name)
        count = sum(r.buffer.length * len(r.buffer.kinds) for r in rows)
        loop = self._loop(-(-count // width), None)
        node = Pullback(rows=list(rows), width=width, loop=loop)
        made = []
        for ref in wrt:
            buffer = ref.buffer
            numbers = loop.times * buffer.length * len(buffer.kinds) * width
            made.append(self._add(Buffer(f"pulled_{ref.name}", PULLED, types.Float, numbers, source=buffer)))
            node.pulled[ref.name] = made[-1].buffer
        self.nodes.append(node)
        return made

    @property
    def loops(self) -> bool:
        """Whether the program has loops, except the loop over the rows of its Jacobian."""
        return len(self._loops) > (self.pulls is not None)

    @property
    def pulls(self) -> Pullback | None:
        """The Jacobian of the program, or None."""
        return next((node for node in self.nodes if isinstance(node, Pullback)), None)

    @cached_property
    def lanes_are_elements(self) -> bool:
        """Whether worlds must not share registers: bits would depend on the batch, or loops end at different times."""
        if any(loop.condition and not loop.settled for loop in self._loops):
            return True
        if any(isinstance(c.kernel, CppKernel) for c in calls(self.nodes)):
            return True
        return any(analysis.order_needs_packets(call.kernel.ir) for call in calls(self.nodes))

    def check(self) -> None:
        """Raise if a state or output is never written, or a buffer is read before it is written."""
        pairs = [(c, a, r) for c in calls(self.nodes) for a, r in zip(c.kernel.arrays, c.args, strict=True)]
        written = {(r.name, r.moment) for _, a, r in pairs if a.written}
        for buffer in self.buffers.values():
            if buffer.kind == STATE and (buffer.name, "next") not in written:
                raise ProgramError(
                    f"program {self.name!r} never writes the next state of {buffer.name!r}",
                    fix=f"pass {buffer.name}.next to a kernel that stores into it",
                )
            if buffer.kind == OUTPUT and (buffer.name, "now") not in written:
                raise ProgramError(
                    f"program {self.name!r} never writes the output {buffer.name!r}",
                    fix=f"pass {buffer.name} to a kernel that stores into it, or remove it",
                )
        seen: set[tuple[str, str]] = set()
        for call, array, ref in pairs:
            fresh = ref.buffer.kind == SCRATCH or (ref.buffer.kind == STATE and ref.moment == "next")
            if fresh and (ref.name, ref.moment) not in seen and _reads_first(call.kernel, array):
                what = f"{ref.name}.next" if ref.moment == "next" else f"scratch {ref.name!r}"
                raise ProgramError(
                    f"{call.kernel.name} reads {what} before anything was written to it in this step",
                    fix="an earlier kernel that stores into it" + (f", or {ref.name}" if ref.moment == "next" else ""),
                )
            if array.written:
                seen.add((ref.name, ref.moment))
        for loop in self._loops:
            inside = {
                r.name for c in calls(loop.body) for a, r in zip(c.kernel.arrays, c.args, strict=True) if a.written
            }
            if loop.condition is not None and loop.condition.name not in inside:
                raise ProgramError(
                    f"the condition {loop.condition.name!r} of until(...) is not written in its loop",
                    fix=f"a kernel in the loop that stores a number > 0 into {loop.condition.name!r} to end it",
                )


def calls(nodes: list[Any]) -> Iterator[KernelCall]:
    """All kernel calls of the forward step, in order."""
    for node in nodes:
        if isinstance(node, KernelCall):
            yield node
        else:
            yield from calls(node.body if isinstance(node, Loop) else node.forward)


def flatten_arguments(args: Any) -> Iterator[Any]:
    """Arguments of a call one by one, with the members of records in order."""
    for arg in args:
        if isinstance(arg, types.Record):
            yield from flatten_arguments(getattr(arg, name) for name, _ in arg.members)
        else:
            yield arg


def _reads_first(kernel: Kernel, array: Any) -> bool:
    """Whether a kernel reads an array before it writes to it.

    Gives loops the benefit of the doubt: their reads may see writes of earlier iterations.
    """
    uses = [use for use in analysis.accesses(kernel.ir, set()) if use.array is array]
    if not uses or uses[0].kind != "load":
        return False
    return not (uses[0].in_loop and any(use.in_loop and use.kind != "load" for use in uses))


def _as_order(name: str, order: Any, count: int | None) -> np.ndarray | None:
    if order is None:
        return None
    array = _numbers(name, order, np.int32)
    if count is None or array.ndim != 1 or sorted(array.tolist()) != list(range(count)):
        fix = "order[i] is the i-th element; schedule.packet_order makes one"
        raise ProgramError(f"the order of {name!r} is not a permutation of its {count} elements", fix=fix)
    return array


def _numbers(name: str, values: Any, dtype: type) -> np.ndarray:
    """A new array of the values; refuses to round to integers."""
    try:
        given = np.array(values)
        array: np.ndarray = given.astype(dtype)
        same = dtype is np.float64 or bool((given == array).all())
    except (TypeError, ValueError, OverflowError, RuntimeError):
        given, same = np.array(None), False
    if not same or given.dtype.kind not in "biuf":
        kind = "32-bit integers" if dtype is np.int32 else "an array of numbers"
        raise ProgramError(f"the values of {name!r} are not {kind}", got=type(values).__name__)
    return array


def _positive(what: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ProgramError(f"{what} must be a positive integer", got=repr(value))
    return number


def _no_value_type(name: str, element: Any) -> ProgramError:
    plain: dict[Any, str] = {float: "Float", int: "Int", bool: "Int"}
    fix = plain.get(element, "Float, Int, vec2, vec3, mat33, ... or a @struct")
    shown = getattr(element, "__name__", repr(element))
    return ProgramError(f"buffer {name!r}: {shown} is not a value type of the language", fix=fix)


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


_NAMES = {"f": "Float", "i": "Int", "ff": "vec2", "fff": "vec3", "ffff": "vec4", "f" * 9: "mat33"}
_NAMES |= {"ii": "ivec2", "iii": "ivec3", "iiii": "ivec4"}


def _kinds_name(kinds: str) -> str:
    """The usual type with these scalar kinds."""
    return _NAMES.get(kinds, f"{len(kinds)} scalars")
