"""`State`: the independent coordinates of a model at one time, for one world or a batch of worlds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree

from kinema.errors import InputError

NUMBERS = frozenset((list, np.ndarray, float, int, np.float64))
"""Types converted to tensors."""
AXES = {"q": 1, "v": 1, "x": 2, "xd": 2, "impulses": 1, "time": 0, "act": 1}
"""Number of axes behind the batch dimensions."""


@dataclass(frozen=True, eq=False)
class State:
    """State of a model: its independent coordinates and velocities, without derived values.

    Tensors that a model does not have are None: q and v without joints, x and xd without soft matter, impulses without
    a warm start, time without a force that reads it, act without actuators that have an activation. A tensor that the
    model has but the state leaves None takes its initial value (see `Model.initial_state`) when a rollout starts.

    Lists, numbers and numpy arrays become tensors in double precision; `model.initial_state(x=array)` converts them to
    the model's precision.

    A state is immutable; `replace` returns a new one. It is a torch pytree (`torch.utils._pytree.tree_map(f, state)`),
    and `kinema.save` writes it.

    Attributes:
        q: Generalised coordinates [rad, m], quaternions (w, x, y, z), shape (*batch, nq).
        v: Generalised velocities [rad/s, m/s], shape (*batch, nv).
        x: Positions of particles (all vertices of soft matter) [m], shape (*batch, particles, 3).
        xd: Velocities of particles [m/s], shape (*batch, particles, 3).
        impulses: Warm start impulses of the last step, with `Contact(warm_start=True)` [N s], shape (*batch, count).
        time: Time [s], shape (*batch,), where a force of `Scene.add_force` reads it. Steps advance it.
        act: Activations of actuators that have one (filters, integrators, muscles), in their order, shape (*batch, n).

    Gradients:
        Pass through every method except `detach`.
    """

    q: Tensor = None  # type: ignore[assignment]  # absent where the model has no joints
    v: Tensor = None  # type: ignore[assignment]
    x: Tensor = None  # type: ignore[assignment]
    xd: Tensor = None  # type: ignore[assignment]
    impulses: Tensor = None  # type: ignore[assignment]
    time: Tensor = None  # type: ignore[assignment]
    act: Tensor = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if NUMBERS.isdisjoint(map(type, self.__dict__.values())):
            return
        for name in AXES:
            object.__setattr__(self, name, as_part(name, getattr(self, name), torch.float64))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors that are not None, by name."""
        return {name: tensor for name in AXES if (tensor := getattr(self, name)) is not None}

    @property
    def batch(self) -> tuple[int, ...]:
        """Batch dimensions, broadcast over all tensors; () for one world."""
        shapes = {name: tuple(t.shape[: t.ndim - AXES[name]]) for name, t in self.tensors.items()}
        try:
            return np.broadcast_shapes(*shapes.values())
        except ValueError:
            raise InputError("batch dimensions of a state do not match", got=shapes, expected="equal ones") from None

    def map(self, f: Callable[[Tensor], Tensor]) -> State:
        """Apply `f` to every tensor."""
        return State(**{name: f(tensor) for name, tensor in self.tensors.items()})

    def to(self, *args: Any, **options: Any) -> State:
        """Apply `torch.Tensor.to` to every tensor: another precision or device."""
        return self.map(lambda t: t.to(*args, **options))

    def detach(self) -> State:
        """Detach every tensor from the graph: gradients stop here."""
        return self.map(Tensor.detach)

    def clone(self) -> State:
        """Copy every tensor."""
        return self.map(Tensor.clone)

    def requires_grad_(self, requires_grad: bool = True) -> State:
        """Make every tensor require gradients, in place; returns the same state."""
        for tensor in self.tensors.values():
            tensor.requires_grad_(requires_grad)
        return self

    def replace(self, **tensors: Any) -> State:
        """A state with some tensors replaced: `state.replace(q=...)`."""
        unknown = [name for name in tensors if name not in AXES]
        if unknown:
            raise InputError(f"a state has no {unknown[0]!r}", expected=", ".join(AXES))
        return replace(self, **tensors)

    def expand(self, *batch: int) -> State:
        """Expand the state to a batch of equal worlds, without copies."""
        return State(**{n: t.expand((*batch, *t.shape[t.ndim - AXES[n] :])) for n, t in self.tensors.items()})

    def __getitem__(self, index: Any) -> State:
        """Select worlds of a batch: `state[3]`, `state[mask]`, `state[::2]`."""
        batch = self.batch
        if not batch:
            raise InputError("the state has one world and no batch to index", got=index, fix="state.expand(n)")
        whole = self.expand(*batch)
        at = index if isinstance(index, tuple) else (index,)
        if any(one is Ellipsis for one in at):
            fix = "omit it: a state is indexed over its batch only, the other axes stay whole"
            raise InputError("invalid index of a state", got="...", expected=f"at most {len(batch)} indices", fix=fix)
        try:
            torch.zeros(()).expand(batch)[at]
        except (IndexError, TypeError) as error:
            raise InputError("invalid index of a state", got=str(error), expected=f"worlds of {batch}") from None
        return whole.map(lambda t: t[at])

    def __len__(self) -> int:
        """Number of worlds along the first batch axis."""
        if not self.batch:
            raise InputError("the state has one world and no length")
        return self.batch[0]

    def __bool__(self) -> bool:
        """Always True, so that `state or other` works."""
        return True

    def __iter__(self) -> Iterator[State]:
        """Iterate over the first batch axis."""
        return (self[i] for i in range(len(self)))

    @staticmethod
    def where(mask: Tensor, a: State, b: State) -> State:
        """Select per world `a` where the mask is true, otherwise `b`: for example, to reset some worlds.

        Args:
            mask: Shape (*batch,), bool.
            a: A state.
            b: Another state of the same model.

        Gradients:
            To the selected worlds of each state.
        """
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise InputError("mask has the wrong type", got=got, expected="a tensor of torch.bool, one per world")
        first, second = a.tensors, b.tensors
        if set(first) != set(second):
            raise InputError("the states have different tensors", got=f"{sorted(first)} and {sorted(second)}")
        chosen = {}
        for name, tensor in first.items():
            chosen[name] = torch.where(mask.reshape(*mask.shape, *[1] * AXES[name]), tensor, second[name])
        return State(**chosen)

    @staticmethod
    def stack(states: Sequence[State], dim: int = 0) -> State:
        """Stack states along a new batch axis `dim`."""
        if not states or any(set(one.tensors) != set(states[0].tensors) for one in states):
            what = "stacked states must have the same tensors, and be at least one"
            raise InputError(what, got=f"{len(states)} states")
        batches = {one.batch for one in states}
        if len(batches) > 1:
            raise InputError("stacked states must have equal batches", got=", ".join(map(str, sorted(batches))))
        axes = 1 + len(states[0].batch)
        if not -axes <= dim < axes:
            raise InputError("dim is out of range", got=dim, expected=f"from {-axes} to {axes - 1}")
        wholes = [one.expand(*one.batch).tensors for one in states]
        return State(**{n: torch.stack([whole[n] for whole in wholes], dim % axes) for n in wholes[0]})

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in self.tensors.items())
        kinds = ", ".join(dict.fromkeys(str(t.dtype).removeprefix("torch.") for t in self.tensors.values()))
        return f"State({shown}; {kinds})" if shown else "State()"


def as_part(name: str, given: Any, dtype: torch.dtype) -> Tensor:
    """Convert lists, numbers and arrays to tensors of this precision; returns tensors unchanged.

    Raises:
        InputError: A value is not numeric.
    """
    if type(given) not in NUMBERS:
        return given
    try:
        return torch.tensor(np.asarray(given, np.float64), dtype=dtype)
    except (TypeError, ValueError, RuntimeError):
        got, fix = type(given).__name__, "torch.as_tensor(..., dtype=model.dtype), or torch.stack(tensors)"
        raise InputError(f"{name} is neither a tensor nor numeric", got=got, fix=fix) from None


_pytree.register_pytree_node(
    State,
    lambda state: (list(state.tensors.values()), tuple(state.tensors)),  # None is not a leaf
    lambda values, names: State(**dict(zip(names, values, strict=True))),
    serialized_type_name="kinema.State",
    to_dumpable_context=list,
    from_dumpable_context=tuple,
)
