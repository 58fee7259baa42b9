"""Step programs: what one time step does, as a list of kernel calls over named buffers.

```python
p = Program("block")
x, v = p.state("x", vec3, n), p.state("v", vec3, n)
mu = p.parameter("mu", Float, tets)
f = p.scratch("f", vec3, n)
p.call(tet_forces, mesh, x, mu, lam, alpha, f, count=tets)
p.call(advance, x, v, f, inv_mass, gravity, dt, x.next, v.next, count=n)
```

State is double-buffered: a step reads `x` and writes `x.next`. Scratch lives for one step and is zero at its start if
the first thing done to it is `+=`. Programs know no memory and no threads; `plan` compiles them, `rollout` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from kinema.errors import ProgramError
from kinema.lang import analysis, types
from kinema.lang.kernel import Kernel

STATE, PARAMETER, CONSTANT, CONTROL, SCRATCH, OUTPUT, ITERATE = (
    "state",
    "parameter",
    "constant",
    "control",
    "scratch",
    "output",
    "iterate",
)


@dataclass(eq=False)
class Buffer:
    """A named array of a program.

    Attributes:
        name: Its name, unique in the program.
        kind: 'state', 'parameter', 'constant', 'control', 'scratch', 'output' or 'iterate'.
        element: Type of an element.
        count: Number of elements; None for a single value.
        values: Contents of a constant, shape (count, numbers).
        order: Where native element i comes from in the user's order, or None: kernels see reordered elements.
        loop: The loop of an iterate.
    """

    name: str
    kind: str
    element: type
    count: int | None
    values: np.ndarray | None = None
    order: np.ndarray | None = None
    loop: Loop | None = None

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
    """A buffer at one moment: `now` or `next` of a state, an iteration of an iterate; `.adj` is its cotangent."""

    buffer: Buffer
    moment: str = "now"
    cotangent: bool = False

    @property
    def next(self) -> Ref:
        """The state at the end of the step, or the iterate after this iteration."""
        if self.buffer.kind not in (STATE, ITERATE):
            raise ProgramError(f"{self.buffer.name!r} is a {self.buffer.kind} and has no next", fix="declare it with state(...)")
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
        """The cotangent, for the adjoint part of a custom operation."""
        return replace(self, cotangent=True)

    def _of_iterate(self, moment: str) -> Ref:
        if self.buffer.kind != ITERATE:
            raise ProgramError(f"{self.buffer.name!r} is a {self.buffer.kind}, not an iterate of a loop")
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
    """`repeat(times)` or, with a condition, `until(condition, times)`."""

    number: int
    times: int
    condition: Ref | None = None
    body: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class Custom:
    """An operation with its own adjoint: reverse mode runs `adjoint` instead of deriving it."""

    forward: list[Any] = field(default_factory=list)
    adjoint: list[Any] = field(default_factory=list)


class Program:
    """A step program: buffers and the nodes of one step, in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.buffers: dict[str, Buffer] = {}
        self.nodes: list[Any] = []
        self._open: list[list[Any]] = [self.nodes]
        self._loops: list[Loop] = []
        self.plans: dict[Any, Any] = {}

    def __reduce__(self) -> Any:
        raise ProgramError(
            f"program {self.name!r} cannot be pickled or copied: it holds compiled code",
            fix="build it where it is used: send the function that makes it, and its arguments",
        )

    # -- buffers ------------------------------------------------------------------------------------------------

    def state(self, name: str, element: type, count: int | None = None) -> Ref:
        """What a step turns into the next one: read `x`, write `x.next`."""
        return self._add(Buffer(name, STATE, element, count))

    def parameter(self, name: str, element: type, count: int | None = None, order: Any = None) -> Ref:
        """An input that holds for all steps; shared by all worlds or one per world, differentiable."""
        return self._add(Buffer(name, PARAMETER, element, count, order=_as_order(name, order, count)))

    def constant(self, name: str, element: type, values: Any, order: Any = None) -> Ref:
        """Fixed contents without derivative: topology, rest shapes, tables."""
        kinds, shape = types.flatten(element), types.shape_of(element)
        array = np.array(values, dtype=np.int32 if "i" in kinds else np.float64)
        single = array.shape == shape
        if not single and array.shape[1:] != shape:
            wanted = ", ".join(map(str, ("count", *shape)))
            raise ProgramError(f"constant {name!r} does not hold {element.__name__} elements", got=f"shape {array.shape}", expected=f"({wanted})")
        array = array.reshape(-1, len(kinds))
        if not np.isfinite(array).all():
            raise ProgramError(f"constant {name!r} is not finite at element {int(np.argwhere(~np.isfinite(array))[0][0])}")
        count = None if single else len(array)
        return self._add(Buffer(name, CONSTANT, element, count, values=array, order=_as_order(name, order, count)))

    def control(self, name: str, element: type, count: int | None = None) -> Ref:
        """An input per step, differentiable."""
        return self._add(Buffer(name, CONTROL, element, count))

    def scratch(self, name: str, element: type, count: int | None = None) -> Ref:
        """Intermediate results of one step."""
        return self._add(Buffer(name, SCRATCH, element, count))

    def output(self, name: str, element: type, count: int | None = None) -> Ref:
        """A result per step, kept when it is named in `record=`; differentiable."""
        return self._add(Buffer(name, OUTPUT, element, count))

    def iterate(self, loop: Loop, name: str, element: type, count: int | None = None) -> Ref:
        """A quantity that a loop improves: `.first` before it, `x` and `x.next` inside, `.last` after it."""
        return self._add(Buffer(name, ITERATE, element, count, loop=loop))

    def _add(self, buffer: Buffer) -> Ref:
        if buffer.name in self.buffers:
            raise ProgramError(f"program {self.name!r} has a buffer {buffer.name!r} already", fix="use another name")
        if not types.is_value_type(buffer.element):
            raise ProgramError(f"buffer {buffer.name!r}: {buffer.element!r} is no value type", fix="use Float, vec3, ...")
        if len(set(buffer.kinds)) > 1 or "b" in buffer.kinds:
            raise ProgramError(f"buffer {buffer.name!r}: elements must be all Float or all Int", got=buffer.element.__name__)
        if buffer.kind in (STATE, CONTROL) and "i" in buffer.kinds:
            raise ProgramError(f"{buffer.kind} {buffer.name!r} must be Float", got=buffer.element.__name__)
        if buffer.count is not None and buffer.count < 1:
            raise ProgramError(f"buffer {buffer.name!r} must have at least one element", got=buffer.count)
        self.buffers[buffer.name] = buffer
        return Ref(buffer)

    # -- nodes --------------------------------------------------------------------------------------------------

    def call(self, kernel: Kernel, *args: Any, count: int | None = None) -> None:
        """Append a kernel call. Records are given as an instance of the record type holding buffers.

        Args:
            kernel: The kernel.
            args: Its arguments without the Index.
            count: Number of elements; needed if the kernel has an Index.
        """
        if not isinstance(kernel, Kernel):
            raise ProgramError(f"{kernel!r} is not a kernel", fix="decorate the function with @kernel")
        refs = list(_flatten_arguments(args))
        arrays = kernel.arrays
        if len(refs) != len(arrays):
            names = ", ".join(a.name for a in arrays)
            raise ProgramError(f"kernel {kernel.name} takes {len(arrays)} arguments ({names})", got=len(refs))
        for array, ref in zip(arrays, refs, strict=True):
            if not isinstance(ref, Ref):
                raise ProgramError(
                    f"argument {array.name!r} of {kernel.name} must be a buffer of the program",
                    got=type(ref).__name__,
                    fix=f"declare it, e.g. p.constant({array.name!r}, Float, values)",
                )
            self._check_argument(kernel, array, ref)
        if (kernel.ir.index is None) != (count is None):
            fix = "give count=, the number of elements" if count is None else "leave count out: it runs once per world"
            raise ProgramError(f"kernel {kernel.name}: wrong use of count", fix=fix)
        if count is not None and count < 1:
            raise ProgramError(f"kernel {kernel.name}: count must be at least 1", got=count)
        self._check_own_lengths(kernel, refs, count)
        self._open[-1].append(KernelCall(kernel, refs, 1 if count is None else int(count)))

    def _check_argument(self, kernel: Kernel, array: Any, ref: Ref) -> None:
        buffer = ref.buffer
        if self.buffers.get(buffer.name) is not buffer:
            raise ProgramError(f"{buffer!r} belongs to another program than {self.name!r}")
        if array.kinds != buffer.kinds:
            got = f"{buffer.name!r} with {buffer.element.__name__} elements"
            raise ProgramError(f"argument {array.name!r} of {kernel.name} has other elements", got=got, expected=f"{len(array.kinds)} x {array.kinds[0]}")
        if array.is_value and buffer.count is not None and buffer.count != 1:
            raise ProgramError(f"argument {array.name!r} of {kernel.name} is a single value", got=repr(buffer))
        read_only = buffer.kind in (PARAMETER, CONSTANT, CONTROL) or (buffer.kind == STATE and ref.moment == "now")
        if array.written and read_only and not ref.cotangent:
            fix = f"pass {buffer.name}.next" if buffer.kind == STATE else "write to a scratch or output buffer"
            raise ProgramError(f"{kernel.name} writes to {array.name!r}, but {buffer.name!r} is read-only here", fix=fix)
        if buffer.kind == OUTPUT and array.read:
            raise ProgramError(f"{kernel.name} reads the output {buffer.name!r}", fix="use a scratch buffer, and write the output last")

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
                )

    @contextmanager
    def repeat(self, times: int) -> Iterator[Loop]:
        """Nodes added inside run `times` times per step."""
        with self._loop(Loop(len(self._loops), int(times))) as loop:
            yield loop

    @contextmanager
    def until(self, condition: Ref, max: int) -> Iterator[Loop]:
        """Nodes added inside run until `condition` holds a number > 0 after an iteration, at most `max` times."""
        if condition.buffer.kinds != "f" or condition.buffer.kind != SCRATCH:
            raise ProgramError("the condition of until(...) is a Float scratch buffer", got=repr(condition.buffer))
        with self._loop(Loop(len(self._loops), int(max), condition)) as loop:
            yield loop

    @contextmanager
    def _loop(self, loop: Loop) -> Iterator[Loop]:
        if loop.times < 1:
            raise ProgramError("a loop runs at least once", got=loop.times)
        self._loops.append(loop)
        self._open[-1].append(loop)
        self._open.append(loop.body)
        try:
            yield loop
        finally:
            self._open.pop()

    @contextmanager
    def custom(self) -> Iterator[Custom]:
        """An operation with its own adjoint: add its nodes inside, then those of the adjoint in `adjoint_of`."""
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
        self._open.append(node.adjoint)
        try:
            yield
        finally:
            self._open.pop()

    def check(self) -> None:
        """Raise if a state is never written, or scratch is read before it is written."""
        written = {(r.buffer.name, r.moment) for c in calls(self.nodes) for a, r in zip(c.kernel.arrays, c.args, strict=True) if a.written}
        for buffer in self.buffers.values():
            if buffer.kind == STATE and (buffer.name, "next") not in written:
                raise ProgramError(
                    f"program {self.name!r} never writes the next state of {buffer.name!r}",
                    fix=f"pass {buffer.name}.next to a kernel that stores into it",
                )
        seen: set[str] = set()
        for call in calls(self.nodes):
            for array, ref in zip(call.kernel.arrays, call.args, strict=True):
                name = ref.buffer.name
                if ref.buffer.kind == SCRATCH and array.read and not array.written and name not in seen:
                    raise ProgramError(f"{call.kernel.name} reads scratch {name!r} before anything was written to it")
                if array.written:
                    seen.add(name)


def calls(nodes: list[Any]) -> Iterator[KernelCall]:
    """All kernel calls of the forward step, in order."""
    for node in nodes:
        if isinstance(node, KernelCall):
            yield node
        else:
            yield from calls(node.body if isinstance(node, Loop) else node.forward)


def _flatten_arguments(args: Any) -> Iterator[Any]:
    for arg in args:
        if isinstance(arg, types.Record):
            yield from _flatten_arguments(getattr(arg, name) for name, _ in arg.members)
        else:
            yield arg


def _as_order(name: str, order: Any, count: int | None) -> np.ndarray | None:
    if order is None:
        return None
    array = np.asarray(order, dtype=np.int32)
    if count is None or sorted(array.tolist()) != list(range(count)):
        raise ProgramError(f"the order of {name!r} is no permutation of its {count} elements")
    return array
