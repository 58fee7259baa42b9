"""Matches the tensors of a rollout to its program: names, types, shapes, batches. Checks each form once."""

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

LANE_BYTES = 1 << 20  # worlds share registers if a block's memory is at most this

Names = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]  # of states, parameters and controls
KINDS = STATE, PARAMETER, CONTROL
width_of = cache(cpu.lanes)  # elements that share registers
world_width_of = cache(compiler.lanes_of_worlds)  # worlds that share registers


class Inputs:
    """Inputs of a program by name, and its recorded results: everything that repeated rollouts share except tensors.

    Args:
        program: The program.
        steps: Number of steps.
        record: Names of the recorded states and outputs.
        names: Names of states, parameters and controls, in the caller's order.
        shapes: Shapes of outputs that differ from (steps, *buffer shape), without the batch.
        counts: Name of an integer output to return as a ctypes array instead of a tensor.
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
        self.buffers = [b for kind in KINDS for b in buffers if b.kind == kind]  # in the program's order
        order = [self.given.index(b) for b in self.buffers]
        self._order = [] if order == sorted(order) else order  # positions in `given`; empty if in order
        self.states = [b for b in buffers if b.kind == STATE]
        self.recorded = tuple(n for n in record if program.buffers[n].kind == STATE)
        self.outputs = [program.buffers[n] for n in record if program.buffers[n].kind == OUTPUT]
        self.counts = None if counts is None else program.buffers[counts]
        self._forms: dict[Any, Form] = {}
        self._last: dict[Any, tuple[Callable[..., bool], Form]] = {}  # comparison with the last values, and their form

    def form(self, values: Sequence[Any]) -> tuple[Form, Sequence[Tensor]]:
        """The form of values in the order of the names, and their tensors in the program's order."""
        found = self.last_form(values)
        if found is None:
            around = around_now()
            try:
                key = _key_of(values, around)
            except (AttributeError, TypeError, RuntimeError):  # numbers, lists or arrays; or a tensor without strides
                values = self._as_tensors(values)
                key = _key_of(values, around)
            found = self._forms.get(key)
            if found is None:
                precision = _precision(self.given, values)
                found = keep_in(self._forms, key, lambda: Form(self, self.ordered(values), precision))
            self._last[around] = comparison(values), found
        return found, self.ordered(values)

    def last_form(self, values: Sequence[Any]) -> Form | None:
        """The last form if these values share it, otherwise None."""
        alike, found = self._last.get(around_now(), (None, None))
        return found if alike is not None and alike(*values) else None

    def ordered(self, values: Sequence[Tensor]) -> Sequence[Tensor]:
        """Reorder tensors from the order of the names to the program's order."""
        return [values[i] for i in self._order] if self._order else values

    def _as_tensors(self, values: Sequence[Any]) -> Sequence[Tensor]:
        """Convert numpy arrays and plain numbers to dense tensors."""
        precision = _precision(self.given, values)
        made = []
        for buffer, value in zip(self.given, values, strict=True):
            wanted = torch.int32 if "i" in buffer.kinds else precision[0]
            where = f"{buffer.kind} {buffer.name!r}"
            made.append(value if isinstance(value, Tensor) else _from_plain(where, value, wanted))
        if not all(tensor.layout is torch.strided for tensor in made):
            Form(self, self.ordered(made), precision)  # raises an error that names the input
        return made


def inputs_of(program: Program, steps: int, record: tuple[str, ...], names: Names) -> Inputs:
    """The `Inputs` that rollouts with these names share; the program caches them."""
    key = steps, record, names, len(program.buffers)  # a program may get new buffers
    found: Inputs | None = program.inputs.get(key)
    if found is None:
        found = keep_in(program.inputs, key, lambda: Inputs(program, steps, record, names))
    return found


Around = tuple[bool, int, int, bool]  # gradients enabled, lanes of elements and of worlds, checked build


def around_now() -> Around:
    """What forms depend on beside their values."""
    return torch.is_grad_enabled(), width_of(8), world_width_of(8), checking()


def _key_of(tensors: Sequence[Tensor], around: Around) -> tuple[Any, ...]:
    """Everything that a form and its prepared sweeps depend on."""
    return (around, *map(_seen, tensors), *map(_strides, tensors), *map(_negated, tensors))


_seen = attrgetter("shape", "dtype", "is_cpu", "requires_grad")
_strides, _negated = Tensor.stride, Tensor.is_neg


def comparison(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """A test whether other tensors have the same `_key_of`, ten times faster, using torch's guards; holds no tensor.

    It also returns False if a tensor occurs twice or has another class: then the key decides.
    """
    if _GUARDS is None:
        return _never
    made: Any = _GUARDS.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    check: Callable[..., bool] = made.check
    return check


def _never(*_: Tensor) -> bool:
    return False


# The guards of torch.compile are not public, and unexpected arguments crash the process: use them only with tested
# versions of torch.
_GUARDS: Any = torch._C._dynamo.guards if torch.__version__.startswith("2.13.") else None


class Form:
    """Describes inputs of certain types, shapes, strides and `requires_grad` for a program; construction checks them.

    The cached form also holds the sweeps prepared for such inputs, but no values.

    Args:
        inputs: Names of the inputs.
        tensors: Example inputs in the program's order.
        precision: Type of all real numbers, and the input that decided it.

    Attributes:
        inputs: Input buffers by name, in the order of the tensors.
        shapes: Shapes of their tensors.
        batch: Batch dimensions of the rollout.
        worlds: Number of worlds.
        shared: Names of inputs that all worlds share.
        states: Buffers of the state.
        recorded: Names of states whose trajectories are recorded.
        outputs: Outputs returned as tensors.
        counts: The output returned as a ctypes array of integers.
        dtype: float32 or float64.
        learned: Indices of the inputs that require gradients.
        prepared: Planners prepared for these inputs.
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
            raise InputError("the batch is empty", got=self.batch, fix="skip the rollout if the batch has no worlds")
        shares = zip(inputs.buffers, batches, strict=True)
        self.shared = frozenset(b.name for b, batch in shares if not batch and b.kind != STATE)
        learns = torch.is_grad_enabled()
        self.learned = tuple([i for i, t in enumerate(checked) if learns and t.requires_grad])
        self.prepared: dict[Any, Any] = {}

    def tensor(self, where: str, buffer: Buffer, value: Any) -> Tensor:
        """Check a value for a buffer and convert it to a dense CPU tensor of the right type and shape."""
        integer = "i" in buffer.kinds
        wanted = torch.int32 if integer else self.dtype
        tensor = value if isinstance(value, Tensor) else _from_plain(where, value, wanted)
        if tensor.device.type != "cpu":
            fix = "a tensor with values: meta tensors have none" if tensor.is_meta else ".cpu()"
            raise InputError(f"{where} is on another device", got=tensor.device, expected="cpu", fix=fix)
        if tensor.layout != torch.strided:
            raise InputError(f"{where} must be a dense tensor", got=tensor.layout, fix=".to_dense()")
        if tensor.dtype != wanted and not (integer and tensor.dtype == torch.int64):
            expected = "torch.int32 or torch.int64" if integer else f"{wanted}, like {self.like}"
            raise InputError(f"{where} has the wrong dtype", got=tensor.dtype, expected=expected, fix=f".to({wanted})")
        tail = self.tail(buffer)
        if tensor.ndim < len(tail) or tuple(tensor.shape[tensor.ndim - len(tail) :]) != tail:
            shape = ", ".join(map(str, ("*batch", *tail)))
            steps = " (the axis after the batch is steps)" if buffer.kind == CONTROL else ""
            raise InputError(
                f"{where} has the wrong shape",
                got=f"({', '.join(map(str, tensor.shape))})",
                expected=f"({shape}){steps}",
            )
        return tensor

    def tail(self, buffer: Buffer) -> tuple[int, ...]:
        """Shape of a buffer's tensor after the batch dimensions."""
        return (self.steps, *buffer.shape) if buffer.kind == CONTROL else buffer.shape

    def full(self, name: str) -> tuple[int, ...]:
        """Shape of an input's tensor for all worlds."""
        return (*self.batch, *self.tail(self.inputs[name]))

    def batch_of(self, buffer: Buffer, tensor: Tensor) -> tuple[int, ...]:
        """The batch dimensions of a buffer's tensor."""
        return tuple(tensor.shape[: tensor.ndim - len(self.tail(buffer))])

    def _lanes(self, program: Program, width: int) -> str:
        """What a lane is: worlds if they are many and small, otherwise elements. The bits are the same."""
        if program.pulls is not None:
            return COTANGENTS
        if not self.worlds >= width > 1:
            return ELEMENTS
        buffers = [b for b in program.buffers.values() if b.kind in (STATE, SCRATCH, PARAMETER)]
        size = sum(b.length * len(b.kinds) for b in buffers) * self.precision * width
        # Worlds that share registers also share integer tables.
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
    """Values by name; empty for None."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise InputError(f"{kind}: pass tensors by name", got=type(values).__name__, expected="a dictionary")
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
    """The dtype of the rollout and the input that decides it: the first array of real numbers, states first."""
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
    """Convert a numpy array, a number or nested lists of numbers to a tensor; plain numbers get the wanted dtype."""
    try:
        array = np.array(value)
        tensor = torch.from_numpy(array)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{where} is not a tensor", got=type(value).__name__, expected="a tensor of numbers") from None
    plain = not isinstance(value, np.ndarray)
    return tensor.to(wanted) if plain and (wanted.is_floating_point or array.dtype.kind == "i") else tensor


def common_batch(names: Sequence[str], batches: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The batch dimensions that all inputs broadcast to."""
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
