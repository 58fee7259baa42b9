"""`Control`: the external inputs of a model in each step."""

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
"""Number of axes after batch and steps."""

LACKS = {
    "u": ("the model has no actuators", "leave u out, or give the robot actuators"),
    "tau": ("the model has no joints", "leave tau out"),
    "motion": ("no joint is prescribed", "leave it out, or Joint(prescribed=True)"),
    "forces": ("the model has no particles", "leave it out"),
    "activation": ("the model has no tetrahedra and no triangles", "leave it out"),
}
"""By control: what the model lacks, and the fix."""


@dataclass(frozen=True, eq=False)
class Control:
    """External inputs of a model in each step; omitted ones are zero.

    Accepts tensors, numpy arrays, lists and numbers. An input without an axis of steps is constant over all steps, and
    a single number holds for all actuators, joints or elements. The rows of a two-dimensional input are steps, also in
    a batch of worlds. For `step` and `linearise`, omit the axis of steps.

    Attributes:
        u: Actuator controls, shape (*batch, steps, actuators), in the order of `model.actuators.names`.
        tau: Generalised forces, shape (*batch, steps, nv) [N m, N].
        motion: Velocities of the prescribed joints at the end of each step, in the axes at its start, shape
            (*batch, steps, velocities), in the order of `model.prescribed`.
        wrenches: By body name, a moment [N m] and a force [N] at the body's origin, in world axes, shape
            (*batch, steps, 6).
        forces: External force on each particle [N], shape (*batch, steps, particles, 3).
        activation: Contraction of each tetrahedron and triangle [-], shape (*batch, steps, elements), in the order of
            the parameter "activation", which is the default.
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
            raise InputError("wrenches must be a dictionary by body name", got=got, expected="a dictionary", fix=fix)

    @staticmethod
    def of(given: Any) -> Control:
        """A control; anything else becomes the controls of the actuators."""
        return given if isinstance(given, Control) else Control(u=given)

    def as_tensors(self, model: Model) -> Control:
        """The same inputs as tensors of a single step, without an axis of steps.

        Raises:
            InputError: An input has the wrong type or shape, or the model has nothing that it acts on.
        """
        shapes = _shapes(model, self)
        given = {n: as_tensor(model, n, getattr(self, n), shape) for n, shape in shapes.items()}
        wrenches = {n: as_tensor(model, f"the wrench on {n!r}", w, (6,)) for n, w in self.wrenches.items()}
        return Control(**given, wrenches=wrenches)

    def with_axis(self) -> Control:
        """Tensors with an axis of length one after the batch: for steps, or for copies of a world."""
        given = {n: t.unsqueeze(-1 - axes) for n, axes in AXES.items() if (t := getattr(self, n)) is not None}
        return Control(**given, wrenches={n: w.unsqueeze(-2) for n, w in self.wrenches.items()})


class _Acting(NamedTuple):
    """Inputs of a model: shapes in one step of one world, and zeros for the inputs that every program reads."""

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
    """Shapes of the given inputs, in one step of one world; without wrenches.

    Raises:
        InputError: The model has nothing that an input acts on.
    """
    given = {n: shape for n, shape in _acting(model).shapes.items() if getattr(control, n) is not None}
    for name, shape in given.items():
        if 0 in shape:
            raise InputError(LACKS[name][0], got=name, fix=LACKS[name][1])
    return given


def _refuse_worlds(name: str, given: Tensor, steps: int) -> None:
    """Raise InputError if the number of rows is the number of worlds and not the number of steps."""
    worlds, *row = given.shape
    numbers = ", ".join(map(str, row))
    raise InputError(
        f"{name} has a row for each world instead of a row for each step",
        got=f"{tuple(given.shape)}: {worlds} worlds, {steps} steps",
        expected=f"({steps}, {numbers}), the same for all worlds, or ({worlds}, {steps}, {numbers})",
        fix=f"if each world's row is constant over steps: torch.stack([rows] * {steps}, 1)",
    )


def as_tensor(model: Model, name: str, given: Any, shape: tuple[int, ...]) -> Tensor:
    """A tensor with the given values of one step in its last axes; a single number is broadcast.

    Raises:
        InputError: It has the wrong precision or shape, or is not numeric.
    """
    if not isinstance(given, Tensor):
        try:
            given = torch.as_tensor(given, dtype=model.dtype)
        except (TypeError, ValueError, RuntimeError):
            got = type(given).__name__
            raise InputError(f"{name} is not numeric", got=got, expected=f"{model.dtype}") from None
    if given.ndim == 0 and given.dtype == model.dtype:
        return given.expand(shape)
    model.check_tensor(name, given, *shape)
    return given


def control_tensors(model: Model, control: Control, steps: int | None, state: State | None = None) -> dict[str, Tensor]:
    """Controls of a step program by name, with an axis of steps; without it if `steps` is None.

    Args:
        model: The model.
        control: The inputs.
        steps: Number of steps; None for a single one.
        state: Initial state: used to detect rows of worlds given in place of rows of steps.

    Raises:
        InputError: An input has the wrong type or shape, has a row for each world instead of a row for each step, or
            the model has nothing that it acts on.
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
