"""What the tensors of a rollout mean for its program: names, types, shapes, batches. Checked once for all of a form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.lang import cpu
from kinema.lang.analysis import ELEMENTS, WORLDS
from kinema.lang.arrange import keep_in, plan_for
from kinema.lang.plan import Options, Plan, checking
from kinema.lang.program import CONTROL, OUTPUT, PARAMETER, SCRATCH, STATE, Buffer, Program

LANE_BYTES = 1 << 20  # worlds share registers while a block's memory stays below this

Given = Mapping[str, Mapping[str, Any]]  # inputs by kind and name
width_of = cache(cpu.lanes)  # numbers in a register


class Form:
    """What inputs of certain types, shapes and strides mean for a program; making it checks them.

    It is kept by the program, with all that is prepared for such inputs, and holds no numbers.

    Attributes:
        inputs: Buffers that are given, in the order of the tensors.
        shapes: Shapes of their tensors.
        batch: Batch dimensions of the rollout.
        worlds: Number of worlds.
        shared: Names of inputs that all worlds share.
        states: Buffers of the state.
        recorded: Names of states whose trajectories are wanted.
        outputs: Outputs that are wanted.
        dtype: float32 or float64.
        order: Places of the inputs in what is given; nothing if that is their order.
        prepared: What was prepared for these inputs.
    """

    def __init__(
        self, program: Program, steps: int, record: tuple[str, ...], given: Given, precision: tuple[torch.dtype, str]
    ) -> None:
        _check_record(program, record)
        _check_names(program, given)
        self.program, self.steps = program, steps
        self.states = [b for b in program.buffers.values() if b.kind == STATE]
        self.recorded = tuple(n for n in record if program.buffers[n].kind == STATE)
        self.outputs = [program.buffers[n] for n in record if program.buffers[n].kind == OUTPUT]
        self.state_names = [b.name for b in self.states]
        self.output_names = [b.name for b in self.outputs]
        self.dtype, self.like = precision
        self.precision = 8 if self.dtype == torch.float64 else 4
        self.numbers: Any = np.float64 if self.precision == 8 else np.float32
        self.width, self.check = width_of(self.precision), checking()
        self.inputs: dict[str, Buffer] = {}
        self.shapes: list[torch.Size] = []
        batches: list[tuple[int, ...]] = []
        for kind, values in given.items():
            for buffer in (b for b in program.buffers.values() if b.kind == kind):
                tensor = self.tensor(f"{kind} {buffer.name!r}", buffer, values[buffer.name])
                self.inputs[buffer.name] = buffer
                self.shapes.append(tensor.shape)
                batches.append(self.batch_of(buffer, tensor))
        places = [(kind, name) for kind, values in given.items() for name in values]
        order = [places.index((b.kind, n)) for n, b in self.inputs.items()]
        self.order = [] if order == sorted(order) else order  # of what is given, if it is another
        self.batch = common_batch(list(self.inputs), batches)
        self.worlds = math.prod(self.batch)
        if self.worlds < 1:
            raise InputError("the batch is empty", got=self.batch, fix="leave the rollout out when there is no world")
        pairs = zip(self.inputs.values(), batches, strict=True)
        self.shared = frozenset(b.name for b, batch in pairs if not batch and b.kind != STATE)
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
        if not self.worlds >= width > 1:
            return ELEMENTS
        buffers = [b for b in program.buffers.values() if b.kind in (STATE, SCRATCH, PARAMETER)]
        size = sum(b.length * len(b.kinds) for b in buffers) * self.precision * width
        # Worlds that share registers share the tables of indices too.
        own_tables = any("i" in b.kinds and n not in self.shared for n, b in self.inputs.items())
        return ELEMENTS if size > LANE_BYTES or own_tables or program.lanes_are_elements else WORLDS

    def plan(self, wrt: frozenset[str] = frozenset(), seeds: frozenset[str] = frozenset(), replay: bool = True) -> Plan:
        """The program, compiled to take derivatives with respect to `wrt`, see `Options`."""
        lanes, outputs = self._lanes(self.program, self.width), frozenset(b.name for b in self.outputs)
        options = Options(self.precision, lanes, self.width, wrt, outputs, seeds, self.check, replay)
        return plan_for(self.program, options)


def form_of(program: Program, steps: int, record: tuple[str, ...], given: Given) -> tuple[Form, list[Tensor]]:
    """The form of the inputs, and their tensors in its order."""
    named = given
    tensors = [tensor for values in named.values() for tensor in values.values()]
    try:
        key = _key_of(program, steps, record, named, tensors)
    except (AttributeError, RuntimeError):  # numbers, lists or arrays; or a tensor without strides
        named = _as_tensors(program, given)
        tensors = [tensor for values in named.values() for tensor in values.values()]
        if not all(tensor.layout is torch.strided for tensor in tensors):
            Form(program, steps, record, named, _precision(program, given))  # says which
        key = _key_of(program, steps, record, named, tensors)
    form = program.forms.get(key)
    if form is None:
        form = keep_in(program.forms, key, lambda: Form(program, steps, record, named, _precision(program, given)))
    return form, [tensors[i] for i in form.order] if form.order else tensors


def _key_of(
    program: Program, steps: int, record: tuple[str, ...], named: Given, tensors: Sequence[Tensor]
) -> tuple[Any, ...]:
    """All that a form, and what is prepared for it, depend on."""
    return (
        steps,
        record,
        len(program.buffers),  # a program may have got new ones
        width_of(8),
        checking(),
        *map(tuple, named.values()),
        *[t.shape for t in tensors],
        *[t.stride() for t in tensors],
        *[t.dtype for t in tensors],
        *[t.is_cpu for t in tensors],
        *[t.is_neg() for t in tensors],
    )


def _as_tensors(program: Program, given: Given) -> Given:
    """Inputs with numpy arrays and plain numbers made tensors."""
    dtype, _ = _precision(program, given)
    _check_names(program, given)

    def convert(kind: str, name: str, value: Any) -> Tensor:
        wanted = torch.int32 if "i" in program.buffers[name].kinds else dtype
        return value if isinstance(value, Tensor) else _from_plain(f"{kind} {name!r}", value, wanted)

    return {kind: {n: convert(kind, n, v) for n, v in values.items()} for kind, values in given.items()}


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


def _check_names(program: Program, given: Given) -> None:
    for kind, values in given.items():
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


def _precision(program: Program, given: Given) -> tuple[torch.dtype, str]:
    """The dtype of the rollout and the input it comes from: the first array of real numbers, states first."""
    for kind, values in given.items():
        for name, value in values.items():
            if name not in program.buffers or "i" in program.buffers[name].kinds:
                continue
            if not isinstance(value, (Tensor, np.ndarray)):
                continue
            dtype = str(value.dtype).removeprefix("torch.")
            if dtype not in ("float32", "float64"):
                raise InputError(
                    f"{kind} {name!r} has the wrong dtype",
                    got=value.dtype,
                    expected="float32 or float64",
                    fix=".double() or .float()",
                )
            return getattr(torch, dtype), f"{kind} {name!r}"
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
