"""`Control`: all that acts on a model from outside, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.model.model import Model
from kinema.model.state import State

AXES = {"u": 1, "tau": 1, "motion": 1, "forces": 2, "activation": 1}
"""Number of axes behind batch and steps."""

LACKS = {
    "u": ("the model has no actuators", "leave u out, or give the robot actuators"),
    "tau": ("the model has no joints", "leave tau out"),
    "motion": ("no joint is prescribed", "leave it out, or Joint(prescribed=True)"),
    "forces": ("the model has no particles", "leave it out"),
    "activation": ("the model has no tetrahedra and no triangles", "leave it out"),
}
"""Where there is nothing to act on: what, and what to do."""


@dataclass(frozen=True, eq=False)
class Control:
    """What acts on a model in each step; what is left out is zero.

    Numbers, lists and numpy arrays are taken, too. What has no axis of steps holds for all of them, and one number
    holds for all actuators, joints or elements. Rows of two axes are those of steps, also in a batch of worlds. For
    `step` and `linearise`, there is no axis of steps.

    Attributes:
        u: Controls of the actuators, shape (*batch, steps, actuators), in the order of `model.actuators.names`.
        tau: Generalised force of each degree of freedom [N m, N], shape (*batch, steps, nv).
        motion: Velocities of the prescribed joints at the end of each step, in the axes at its start, shape
            (*batch, steps, velocities), in the order of `model.prescribed`.
        wrenches: By name of a body, a moment [N m] and a force [N] at its origin, in world axes, shape
            (*batch, steps, 6).
        forces: External force on every particle [N], shape (*batch, steps, particles, 3).
        activation: Contraction of every tetrahedron and triangle [-], shape (*batch, steps, elements), in the order of
            the parameter "activation", which holds by default.
    """

    u: Any = None
    tau: Any = None
    motion: Any = None
    wrenches: Mapping[str, Any] = field(default_factory=dict)
    forces: Any = None
    activation: Any = None

    def __post_init__(self) -> None:
        if self.wrenches is None:
            object.__setattr__(self, "wrenches", {})
        if not isinstance(self.wrenches, Mapping):
            got, fix = type(self.wrenches).__name__, '{"robot/body": tensor of shape (*batch, steps, 6)}'
            raise InputError("wrenches are given by name of a body", got=got, expected="a dictionary", fix=fix)

    @staticmethod
    def of(given: Any) -> Control:
        """A control, or the controls of the actuators as one."""
        return given if isinstance(given, Control) else Control(u=given)

    def as_tensors(self, model: Model) -> Control:
        """All that is given as tensors, without an axis of steps: those of a single step.

        Raises:
            InputError: Something is of the wrong type or shape, or the model has nothing that it could act on.
        """
        shapes = _shapes(model, self)
        given = {n: as_tensor(model, n, getattr(self, n), shape) for n, shape in shapes.items()}
        wrenches = {n: as_tensor(model, f"the wrench on {n!r}", w, (6,)) for n, w in self.wrenches.items()}
        return Control(**given, wrenches=wrenches)

    def with_axis(self) -> Control:
        """Tensors with one more axis behind the batch, of length one: that of steps, or of copies of a world."""
        given = {n: t.unsqueeze(-1 - axes) for n, axes in AXES.items() if (t := getattr(self, n)) is not None}
        return Control(**given, wrenches={n: w.unsqueeze(-2) for n, w in self.wrenches.items()})


class _Acting(NamedTuple):
    """What acts on a model: shapes in one step of one world, and zeros of one step for what programs always have."""

    shapes: dict[str, tuple[int, ...]]
    zeros: dict[str, Tensor]


_ACTING: WeakKeyDictionary[Model, _Acting] = WeakKeyDictionary()


def _acting(model: Model) -> _Acting:
    found = _ACTING.get(model)
    if found is None:
        shapes: dict[str, tuple[int, ...]] = {
            "tau": (model.nv,),
            "u": (len(model.actuators),),
            "motion": (model.prescribed_velocities,),
            "forces": (len(model.matter), 3),
            "activation": (model.matter.elements,),
        }
        with torch.inference_mode(False):  # they outlive the mode
            zeros = {n: model.zeros(1, *shapes[n]) for n in ("tau", "u", "motion") if 0 not in shapes[n]}
        found = _ACTING[model] = _Acting(shapes, zeros)
    return found


def _shapes(model: Model, control: Control) -> dict[str, tuple[int, ...]]:
    """Shapes of what is given, in one step of one world; wrenches apart.

    Raises:
        InputError: The model has nothing that it could act on.
    """
    given = {n: shape for n, shape in _acting(model).shapes.items() if getattr(control, n) is not None}
    for name, shape in given.items():
        if 0 in shape:
            raise InputError(LACKS[name][0], got=name, fix=LACKS[name][1])
    return given


def _refuse_worlds(name: str, given: Tensor, steps: int) -> None:
    """Raise InputError: rows are as many as worlds, and not as many as steps."""
    worlds, *row = given.shape
    numbers = ", ".join(map(str, row))
    raise InputError(
        f"{name} has a row for each world, where one for each step is expected",
        got=f"{tuple(given.shape)}: {worlds} worlds, {steps} steps",
        expected=f"({steps}, {numbers}), the same for all worlds, or ({worlds}, {steps}, {numbers})",
        fix=f"for rows of worlds that hold in all steps: torch.stack([rows] * {steps}, 1)",
    )


def as_tensor(model: Model, name: str, given: Any, shape: tuple[int, ...]) -> Tensor:
    """A tensor with the numbers of one step in its last axes; one number is taken for all of them.

    Raises:
        InputError: It has another precision or shape, or is no number.
    """
    if not isinstance(given, Tensor):
        try:
            given = torch.as_tensor(given, dtype=model.dtype)
        except (TypeError, ValueError, RuntimeError):
            got = type(given).__name__
            raise InputError(f"{name} is no tensor and no numbers", got=got, expected=f"{model.dtype}") from None
    if given.ndim == 0 and given.dtype == model.dtype:
        return given.expand(shape)
    model.check_tensor(name, given, *shape)
    return given


def control_tensors(model: Model, control: Control, steps: int | None, state: State | None = None) -> dict[str, Tensor]:
    """Controls of a step program by name, with an axis of steps; for None, they are those of one step, without it.

    Args:
        model: The model.
        control: What acts on it.
        steps: How many steps there are.
        state: At the start: its worlds may be taken for steps.

    Raises:
        InputError: Something is of the wrong type or shape, one row for each world stands where rows of steps belong,
            or the model has nothing that it could act on.
    """

    def over_steps(name: str, given: Any, shape: tuple[int, ...]) -> Tensor:
        tensor = as_tensor(model, name, given, shape)
        if steps is None:
            return tensor.unsqueeze(-1 - len(shape))
        mistaken = tensor.ndim == 1 + len(shape) and len(tensor) != steps
        if mistaken and state is not None and state.batch == tensor.shape[:1]:
            _refuse_worlds(name, tensor, steps)
        return tensor.expand(steps, *shape) if tensor.ndim == len(shape) else tensor

    found = {n: t for n, t in _acting(model).zeros.items() if getattr(control, n) is None}
    if steps is not None:
        found = {n: t.expand(steps, -1) for n, t in found.items()}
    for name, shape in _shapes(model, control).items():
        found[name] = over_steps(name, getattr(control, name), shape)
    if "activation" in found:
        found |= model.matter.of_elements("activation", found.pop("activation"))
    if "forces" in found:
        found["particle_push"] = found.pop("forces")
    wrenches = [over_steps(f"the wrench on {n!r}", wrench, (6,)) for n, wrench in control.wrenches.items()]
    if wrenches:
        found["wrench"] = torch.stack(torch.broadcast_tensors(*wrenches), -2)
    return found
