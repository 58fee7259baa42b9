"""Repeated calls with one world: what does not depend on the values of their tensors is prepared by the first call."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from kinema.lang.autograd.inputs import Around, Form, Inputs, around_now, comparison
from kinema.lang.autograd.options import RunOptions
from kinema.model.state import State


class Request(NamedTuple):
    """The arguments of a call that are not tensors."""

    dt: float
    substeps: int
    integrator: str
    options: RunOptions


Given = tuple[Tensor, Tensor, Tensor]
"""q, v and u of one world."""


class Repeat(NamedTuple):
    """A call that can be repeated with other values of q, v and u.

    Attributes:
        request: The other arguments.
        around: Modes of torch and of the build.
        alike: Whether tensors have the types, shapes and strides of the first call.
        inputs: Inputs of the program.
        form: Their form.
        values: Tensors in the order of the inputs.
        places: Where q, v and u stand in `values`.
    """

    request: Request
    around: Around
    alike: Callable[..., bool]
    inputs: Inputs
    form: Form
    values: list[Tensor]
    places: tuple[int, int, int]

    def values_of(self, given: Given) -> list[Tensor]:
        """The inputs with other values of q, v and u."""
        values = self.values.copy()
        for place, tensor in zip(self.places, given, strict=True):
            values[place] = tensor
        return values

    def fits(self, request: Request, given: Given) -> bool:
        """Whether a call differs from the first one in the values of its tensors only."""
        return request == self.request and around_now() == self.around and self.alike(*given)


def tensors_of(state: object, u: object) -> Given | None:
    """q, v and u of a call that may be repeated: dense tensors, and nothing else in the state."""
    if type(state) is not State or state.x is not None or state.impulses is not None or state.time is not None:
        return None
    if type(state.q) is Tensor and type(state.v) is Tensor and type(u) is Tensor:
        return state.q, state.v, u
    return None


def repeat_of(request: Request, given: Given, inputs: Inputs, form: Form, values: list[Tensor]) -> Repeat | None:
    """The call as one that can be repeated; None if it cannot: several worlds, gradients, or tensors that are copied.

    Args:
        request: The arguments that are not tensors.
        given: q, v and u, contiguous, one world.
        inputs: Inputs of the program.
        form: Their form.
        values: Their tensors. Those of q, v and u share memory with `given`.
    """
    if form.worlds != 1 or form.learned or not all(t.numel() and t.is_contiguous() and not t.is_neg() for t in given):
        return None
    at = {t.data_ptr(): i for i, t in enumerate(values)}
    places = [at.get(t.data_ptr()) for t in given]
    if None in places or len(set(places)) < len(given):
        return None
    return Repeat(request, around_now(), comparison(given), inputs, form, values, tuple(places))  # type: ignore[arg-type]
