"""What the tensors of a rollout mean for its program: names, types, shapes, batches. Checked once for all of a form."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.lang.build import compiler, cpu
from kinema.lang.ir.analysis import COTANGENTS, ELEMENTS, WORLDS
from kinema.lang.programs.plan import Options, Plan, checking
from kinema.lang.programs.program import CONTROL, OUTPUT, PARAMETER, SCRATCH, STATE, Buffer, Program
from kinema.lang.runtime.memory_layout import keep_in, plan_for

LANE_BYTES = 1 << 20  # worlds share registers while a block's memory stays below this

Names = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]  # of states, parameters and controls
KINDS = STATE, PARAMETER, CONTROL
width_of = cache(cpu.lanes)  # elements that share registers
world_width_of = cache(compiler.lanes_of_worlds)  # worlds that do


class Inputs:
    """Inputs of a program by their names, and what is recorded: all that repeated rollouts have in common but tensors.

    Args:
        program: The program.
        steps: Number of steps.
        record: Names of states and outputs that are wanted.
        names: Of states, parameters and controls, in the order in which they are given.
        shapes: Of outputs that are wanted in another one than (steps, *buffer shape), without the batch.
        counts: Name of an output of integers that is wanted as such, not as a tensor.
    """

    def __init__(
        self,
        program: Program,
        steps: int,
        record: tuple[str, ...],
        names: Names,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        counts: str | None = None,
    ) -> None:
        _check_record(program, record)
        _check_names(program, names)
        self.program, self.steps, self.shapes = program, steps, dict(shapes or {})
        self.given = [program.buffers[name] for kind in names for name in kind]
        buffers = program.buffers.values()
        self.buffers = [b for kind in KINDS for b in buffers if b.kind == kind]  # the same in the program's order
        order = [self.given.index(b) for b in self.buffers]
        self._order = [] if order == sorted(order) else order  # of what is given, if it is another
        self.states = [b for b in buffers if b.kind == STATE]
        self.recorded = tuple(n for n in record if program.buffers[n].kind == STATE)
        self.outputs = [program.buffers[n] for n in record if program.buffers[n].kind == OUTPUT]
        self.counts = None if counts is None else program.buffers[counts]
        self._forms: dict[Any, Form] = {}
        self._last: dict[Any, tuple[Callable[..., bool], Form]] = {}  # whether values look like the last, and its form

    def form(self, values: Sequence[Any]) -> tuple[Form, Sequence[Tensor]]:
        """The form of values that are given in the order of the names, and their tensors in the program's order."""
        found = self.last_form(values)
        if found is None:
            around = _around()
            try:
                key = _key_of(values, around)
            except (AttributeError, TypeError, RuntimeError):  # numbers, lists or arrays; or a tensor without strides
                values = self._as_tensors(values)
                key = _key_of(values, around)
            found = self._forms.get(key)
            if found is None:
                precision = _precision(self.given, values)
                found = keep_in(self._forms, key, lambda: Form(self, self.ordered(values), precision))
            self._last[around] = _comparison(values), found
        return found, self.ordered(values)

    def last_form(self, values: Sequence[Any]) -> Form | None:
        """The last form, if it is that of these values, too."""
        alike, found = self._last.get(_around(), (None, None))
        return found if alike is not None and alike(*values) else None

    def ordered(self, values: Sequence[Tensor]) -> Sequence[Tensor]:
        """Tensors in the program's order, given in that of the names."""
        return [values[i] for i in self._order] if self._order else values

    def _as_tensors(self, values: Sequence[Any]) -> Sequence[Tensor]:
        """Numpy arrays and plain numbers made tensors, dense ones."""
        precision = _precision(self.given, values)
        made = []
        for buffer, value in zip(self.given, values, strict=True):
            wanted = torch.int32 if "i" in buffer.kinds else precision[0]
            where = f"{buffer.kind} {buffer.name!r}"
            made.append(value if isinstance(value, Tensor) else _from_plain(where, value, wanted))
        if not all(tensor.layout is torch.strided for tensor in made):
            Form(self, self.ordered(made), precision)  # says which
        return made


def inputs_of(program: Program, steps: int, record: tuple[str, ...], names: Names) -> Inputs:
    """What rollouts with these names have in common, kept by the program."""
    key = steps, record, names, len(program.buffers)  # it may have got new ones
    found: Inputs | None = program.inputs.get(key)
    if found is None:
        found = keep_in(program.inputs, key, lambda: Inputs(program, steps, record, names))
    return found


Around = tuple[bool, int, int, bool]  # whether gradients are recorded, lanes of both kinds, whether builds are checked


def _around() -> Around:
    return torch.is_grad_enabled(), width_of(8), world_width_of(8), checking()


def _key_of(tensors: Sequence[Tensor], around: Around) -> tuple[Any, ...]:
    """All that a form, and what is prepared for it, depend on."""
    return (around, *map(_seen, tensors), *map(_strides, tensors), *map(_negated, tensors))


_seen = attrgetter("shape", "dtype", "is_cpu", "requires_grad")
_strides, _negated = Tensor.stride, Tensor.is_neg


def _comparison(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """Whether others have the same `_key_of`, where torch can tell: in a tenth of the time; holds no tensor.

    It says no, too, where a tensor is given twice or has another class: then the key decides.
    """
    if _GUARDS is None:
        return _never
    made: Any = _GUARDS.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    check: Callable[..., bool] = made.check
    return check


def _never(*_: Tensor) -> bool:
    return False


# What torch.compile compares inputs with is no public part of torch, and ends the process if it is called otherwise
# than it expects: it is used with versions that it was tried with.
_GUARDS: Any = torch._C._dynamo.guards if torch.__version__.startswith("2.13.") else None


class Form:
    """What inputs of certain types, shapes and strides, learned or not, mean for a program; making it checks them.

    It is kept with all that is prepared for such inputs, and holds no numbers.

    Args:
        inputs: Their names.
        tensors: Such inputs in the program's order.
        precision: Type of all real numbers, and which input decided it.

    Attributes:
        inputs: Buffers that are given, in the order of the tensors.
        shapes: Shapes of their tensors.
        batch: Batch dimensions of the rollout.
        worlds: Number of worlds.
        shared: Names of inputs that all worlds share.
        states: Buffers of the state.
        recorded: Names of states whose trajectories are wanted.
        outputs: Outputs that are wanted as tensors.
        counts: The one that is wanted as integers.
        dtype: float32 or float64.
        learned: Which inputs require gradients.
        prepared: What was prepared for these inputs.
    """

    def __init__(self, inputs: Inputs, tensors: Sequence[Tensor], precision: tuple[torch.dtype, str]) -> None:
        self.program, self.steps, self.output_shapes = inputs.program, inputs.steps, inputs.shapes
        self.states, self.recorded, self.outputs = inputs.states, inputs.recorded, inputs.outputs
        self.counts = inputs.counts
        self.state_names = [b.name for b in self.states]
        self.output_names = [b.name for b in self.outputs]
        self.dtype, self.like = precision
        self.precision = 8 if self.dtype == torch.float64 else 4
        self.numbers: Any = np.float64 if self.precision == 8 else np.float32
        self.width, self.check = width_of(self.precision), checking()
        self.inputs = {buffer.name: buffer for buffer in inputs.buffers}
        pairs = list(zip(inputs.buffers, tensors, strict=True))
        checked = [self.tensor(f"{b.kind} {b.name!r}", b, t) for b, t in pairs]
        self.shapes = [tensor.shape for tensor in checked]
        batches = [self.batch_of(b, t) for b, t in pairs]
        self.batch = common_batch(list(self.inputs), batches)
        self.worlds = math.prod(self.batch)
        if self.worlds < 1:
            raise InputError("the batch is empty", got=self.batch, fix="leave the rollout out when there is no world")
        shares = zip(inputs.buffers, batches, strict=True)
        self.shared = frozenset(b.name for b, batch in shares if not batch and b.kind != STATE)
        learns = torch.is_grad_enabled()
        self.learned = tuple([i for i, t in enumerate(checked) if learns and t.requires_grad])
        self.prepared: dict[Any, Any] = {}

    def tensor(self, where: str, buffer: Buffer, value: Any) -> Tensor:
        """A value given for a buffer as a dense CPU tensor of the right type and shape."""
        integer = "i" in buffer.kinds
        wanted = torch.int32 if integer else self.dtype
        tensor = value if isinstance(value, Tensor) else _from_plain(where, value, wanted)
        if tensor.device.type != "cpu":
            fix = "give it values: meta tensors have none" if tensor.is_meta else ".cpu()"
            raise InputError(f"{where} is on another device", got=tensor.device, expected="cpu", fix=fix)
        if tensor.layout != torch.strided:
            raise InputError(f"{where} must be a dense tensor", got=tensor.layout, fix=".to_dense()")
        if tensor.dtype != wanted and not (integer and tensor.dtype == torch.int64):
            expected = "torch.int32 or torch.int64" if integer else f"{wanted}, like {self.like}"
            raise InputError(f"{where} has the wrong dtype", got=tensor.dtype, expected=expected, fix=f".to({wanted})")
        tail = self.tail(buffer)
        if tensor.ndim < len(tail) or tuple(tensor.shape[tensor.ndim - len(tail) :]) != tail:
            shape = ", ".join(map(str, ("*batch", *tail)))
            steps = " (the first number is steps)" if buffer.kind == CONTROL else ""
            raise InputError(
                f"{where} has the wrong shape",
                got=f"({', '.join(map(str, tensor.shape))})",
                expected=f"({shape}){steps}",
            )
        return tensor

    def tail(self, buffer: Buffer) -> tuple[int, ...]:
        """Shape of a buffer's tensor behind the batch dimensions."""
        return (self.steps, *buffer.shape) if buffer.kind == CONTROL else buffer.shape

    def full(self, name: str) -> tuple[int, ...]:
        """Shape of an input's tensor for all worlds."""
        return (*self.batch, *self.tail(self.inputs[name]))

    def batch_of(self, buffer: Buffer, tensor: Tensor) -> tuple[int, ...]:
        """The batch dimensions of a buffer's tensor."""
        return tuple(tensor.shape[: tensor.ndim - len(self.tail(buffer))])

    def _lanes(self, program: Program, width: int) -> str:
        """Worlds share registers when there are many small ones; otherwise elements do. Bits are the same."""
        if program.pulls is not None:
            return COTANGENTS
        if not self.worlds >= width > 1:
            return ELEMENTS
        buffers = [b for b in program.buffers.values() if b.kind in (STATE, SCRATCH, PARAMETER)]
        size = sum(b.length * len(b.kinds) for b in buffers) * self.precision * width
        # Worlds that share registers share the tables of indices too.
        own_tables = any("i" in b.kinds and n not in self.shared for n, b in self.inputs.items())
        return ELEMENTS if size > LANE_BYTES or own_tables or program.lanes_are_elements else WORLDS

    def plan(self, wrt: frozenset[str] = frozenset(), seeds: frozenset[str] = frozenset(), replay: bool = True) -> Plan:
        """The program, compiled to take derivatives with respect to `wrt`, see `Options`."""
        lanes = self._lanes(self.program, self.width)
        width = world_width_of(self.precision) if lanes == WORLDS else self.width
        outputs = frozenset(b.name for b in (*self.outputs, self.counts) if b is not None)
        options = Options(self.precision, lanes, width, wrt, outputs, seeds, self.check, replay)
        return plan_for(self.program, options)


def named(kind: str, values: Any) -> Mapping[str, Any]:
    """Values that were given by name, perhaps none."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise InputError(f"{kind}: give tensors by name", got=type(values).__name__, expected="a dictionary")
    return values


def _check_record(program: Program, record: tuple[str, ...]) -> None:
    possible = [b.name for b in program.buffers.values() if b.kind in (STATE, OUTPUT)]
    for name in record:
        if name not in possible:
            raise InputError(
                f"record: program {program.name!r} has no state or output {name!r}",
                expected=", ".join(possible) or "nothing: it has neither",
            )


def _check_names(program: Program, given: Names) -> None:
    for kind, values in zip(KINDS, given, strict=True):
        names = [b.name for b in program.buffers.values() if b.kind == kind]
        for name in values:
            if name not in names:
                raise InputError(
                    f"program {program.name!r} has no {kind} {name!r}", expected=", ".join(names) or "none"
                )
        for name in names:
            if name not in values:
                raise InputError(
                    f"{kind} {name!r} is missing", expected=f"{', '.join(names)} of program {program.name!r}"
                )


def _precision(buffers: Sequence[Buffer], values: Sequence[Any]) -> tuple[torch.dtype, str]:
    """The dtype of the rollout and the input it comes from: the first array of real numbers, states first."""
    for buffer, value in zip(buffers, values, strict=True):
        if "i" in buffer.kinds or not isinstance(value, (Tensor, np.ndarray)):
            continue
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in ("float32", "float64"):
            raise InputError(
                f"{buffer.kind} {buffer.name!r} has the wrong dtype",
                got=value.dtype,
                expected="float32 or float64",
                fix=".double() or .float()",
            )
        return getattr(torch, dtype), f"{buffer.kind} {buffer.name!r}"
    return torch.float64, "the default"


def _from_plain(where: str, value: Any, wanted: torch.dtype) -> Tensor:
    """A numpy array, a number or nested lists of numbers as a tensor; plain numbers take the dtype that is wanted."""
    try:
        array = np.array(value)
        tensor = torch.from_numpy(array)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{where} is no tensor", got=type(value).__name__, expected="a tensor of numbers") from None
    plain = not isinstance(value, np.ndarray)
    return tensor.to(wanted) if plain and (wanted.is_floating_point or array.dtype.kind == "i") else tensor


def common_batch(names: Sequence[str], batches: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The batch dimensions that all of these are broadcast to."""
    different = {b for b in batches if b}
    if len(different) < 2:
        return different.pop() if different else ()
    try:
        return tuple(torch.broadcast_shapes(*different))
    except RuntimeError:
        shown = ", ".join(f"{n}: {b}" for n, b in zip(names, batches, strict=True) if b)
        raise InputError(
            "batch dimensions do not match", got=shown, expected="equal or absent batch dimensions"
        ) from None
