"""`State`: the independent coordinates of a model at one time, for one world or a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree

from kinema.errors import InputError

NUMBERS = frozenset((list, np.ndarray))
"""Types that become tensors."""
AXES = {"q": 1, "v": 1, "x": 2, "xd": 2, "impulses": 1}
"""Number of axes behind the batch."""


@dataclass(frozen=True, eq=False)
class State:
    """Independent coordinates of a model: all that a step needs, and nothing that follows from it.

    What a model lacks is None: q and v without joints, x and xd without soft matter, impulses without a warm start.
    What is None although the model has it is as placed when a run begins: joints at zero, free bodies where they stand,
    all velocities of joints zero, no impulses.

    Lists and numpy arrays are taken, too, in double precision; `model.initial_state(x=array)` takes them in that of the
    model.

    A state is a value: it never changes, `replace` gives another one. It is a pytree of torch
    (`torch.utils._pytree.tree_map(f, state)`), and `kinema.save` writes it.

    Attributes:
        q: Joint coordinates [rad, m], quaternions (w, x, y, z), shape (*batch, nq).
        v: Joint velocities [rad/s, m/s], shape (*batch, nv).
        x: Positions of particles (all vertices of soft matter) [m], shape (*batch, particles, 3).
        xd: Velocities of particles [m/s], shape (*batch, particles, 3).
        impulses: Of the last step, where the model has `Contact(warm_start=True)` [N s], shape (*batch, count).

    Gradients:
        Every method but `detach` and `save` passes them on.
    """

    q: Tensor = None  # type: ignore[assignment]  # absent where the model has no joints
    v: Tensor = None  # type: ignore[assignment]
    x: Tensor = None  # type: ignore[assignment]
    xd: Tensor = None  # type: ignore[assignment]
    impulses: Tensor = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if NUMBERS.isdisjoint(map(type, self.__dict__.values())):
            return
        for name in AXES:
            object.__setattr__(self, name, as_part(name, getattr(self, name), torch.float64))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors that there are, by name."""
        return {name: tensor for name in AXES if (tensor := getattr(self, name)) is not None}

    @property
    def batch(self) -> tuple[int, ...]:
        """Batch dimensions: those of all tensors together, () for one world."""
        shapes = {name: tuple(t.shape[: t.ndim - AXES[name]]) for name, t in self.tensors.items()}
        try:
            return np.broadcast_shapes(*shapes.values())
        except ValueError:
            raise InputError("batch dimensions of a state do not match", got=shapes, expected="equal ones") from None

    def map(self, f: Callable[[Tensor], Tensor]) -> State:
        """The state whose tensors are `f` of these."""
        return State(**{name: f(tensor) for name, tensor in self.tensors.items()})

    def to(self, *args: Any, **options: Any) -> State:
        """As `torch.Tensor.to`, of every tensor: another precision or device."""
        return self.map(lambda t: t.to(*args, **options))

    def detach(self) -> State:
        """Without graph: gradients end here."""
        return self.map(Tensor.detach)

    def clone(self) -> State:
        """With memory of its own."""
        return self.map(Tensor.clone)

    def requires_grad_(self, requires_grad: bool = True) -> State:
        """The same state, whose tensors collect gradients from now on."""
        for tensor in self.tensors.values():
            tensor.requires_grad_(requires_grad)
        return self

    def replace(self, **tensors: Any) -> State:
        """The state with these tensors in place of its own: `state.replace(q=...)`."""
        unknown = [name for name in tensors if name not in AXES]
        if unknown:
            raise InputError(f"a state has no {unknown[0]!r}", expected=", ".join(AXES))
        return replace(self, **tensors)

    def expand(self, *batch: int) -> State:
        """The state as a batch of equal worlds, without copies."""
        return State(**{n: t.expand(*batch, *t.shape[t.ndim - AXES[n] :]) for n, t in self.tensors.items()})

    def __getitem__(self, index: Any) -> State:
        """Some worlds of a batch: `state[3]`, `state[mask]`, `state[::2]`."""
        batch = self.batch
        if not batch:
            raise InputError("the state is of one world, and has no batch to index", got=index, fix="state.expand(n)")
        whole = self.expand(*batch)
        at = index if isinstance(index, tuple) else (index,)
        if any(one is Ellipsis for one in at):
            fix = "leave it out: the axes behind the batch are kept whole"
            raise InputError("a state is indexed over its batch", got="...", expected=f"at most {len(batch)}", fix=fix)
        try:
            torch.zeros(()).expand(batch)[at]
        except (IndexError, TypeError) as error:
            raise InputError("there are no such worlds", got=str(error), expected=f"some of {batch}") from None
        return whole.map(lambda t: t[at])

    def __len__(self) -> int:
        """Worlds along the first axis of the batch."""
        if not self.batch:
            raise InputError("the state is of one world, and has no length")
        return self.batch[0]

    def __bool__(self) -> bool:
        """True, also of one world: `state or other`."""
        return True

    def __iter__(self) -> Iterator[State]:
        """The worlds along the first axis of the batch."""
        return (self[i] for i in range(len(self)))

    @staticmethod
    def where(mask: Tensor, a: State, b: State) -> State:
        """World by world, `a` where the mask is true, otherwise `b`: resets of some worlds of a batch.

        Args:
            mask: shape (*batch,), bool.
            a: A state.
            b: Another one of the same model.

        Gradients:
            To the chosen ones.
        """
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise InputError("mask has the wrong type", got=got, expected="a tensor of torch.bool, one per world")
        first, second = a.tensors, b.tensors
        if set(first) != set(second):
            raise InputError("these are no states of one model", got=f"{sorted(first)} and {sorted(second)}")
        chosen = {}
        for name, tensor in first.items():
            chosen[name] = torch.where(mask.reshape(*mask.shape, *[1] * AXES[name]), tensor, second[name])
        return State(**chosen)

    @staticmethod
    def stack(states: Sequence[State], dim: int = 0) -> State:
        """States side by side as a batch; `dim` is one of its axes."""
        if not states or any(set(one.tensors) != set(states[0].tensors) for one in states):
            raise InputError("states that are stacked must be some of one model", got=f"{len(states)} states")
        batches = {one.batch for one in states}
        if len(batches) > 1:
            raise InputError("states that are stacked must have one batch", got=", ".join(map(str, sorted(batches))))
        axes = 1 + len(states[0].batch)
        if not -axes <= dim < axes:
            raise InputError("a state has no such axis", got=dim, expected=f"from {-axes} to {axes - 1}")
        wholes = [one.expand(*one.batch).tensors for one in states]
        return State(**{n: torch.stack([whole[n] for whole in wholes], dim % axes) for n in wholes[0]})

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in self.tensors.items())
        kinds = ", ".join(dict.fromkeys(str(t.dtype).removeprefix("torch.") for t in self.tensors.values()))
        return f"State({shown}; {kinds})" if shown else "State()"


def as_part(name: str, given: Any, dtype: torch.dtype) -> Tensor:
    """A part of a state as a tensor: lists and arrays in this precision, tensors as they are.

    Raises:
        InputError: Something is no number.
    """
    if type(given) not in NUMBERS:
        return given
    try:
        return torch.tensor(np.asarray(given, np.float64), dtype=dtype)
    except (TypeError, ValueError, RuntimeError):
        got, fix = type(given).__name__, "torch.as_tensor(..., dtype=model.dtype), or torch.stack(tensors)"
        raise InputError(f"{name} is no tensor and no numbers", got=got, fix=fix) from None


_pytree.register_pytree_node(
    State,
    lambda state: (list(state.tensors.values()), tuple(state.tensors)),  # what is None is no leaf
    lambda values, names: State(**dict(zip(names, values, strict=True))),
    serialized_type_name="kinema.State",
    to_dumpable_context=list,
    from_dumpable_context=tuple,
)
