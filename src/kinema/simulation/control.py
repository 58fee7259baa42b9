"""`Control`: all that acts on a model from outside, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.model.model import Model


@dataclass(frozen=True, eq=False)
class Control:
    """What acts on a model in each step; what is left out is zero.

    Numbers, lists and numpy arrays are taken, too. What has no axis of steps holds for all of them, and one number
    holds for all actuators, joints or elements. For `step` and `linearise`, there is no axis of steps.

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
    wrenches: Mapping[str, Any] | None = None
    forces: Any = None
    activation: Any = None

    def __post_init__(self) -> None:
        if self.wrenches is not None and not isinstance(self.wrenches, Mapping):
            got, fix = type(self.wrenches).__name__, '{"robot/body": tensor of shape (*batch, steps, 6)}'
            raise InputError("wrenches are given by name of a body", got=got, expected="a dictionary", fix=fix)

    @property
    def loaded(self) -> tuple[str, ...]:
        """Names of the bodies that wrenches act on."""
        return tuple(self.wrenches or ())

    @staticmethod
    def of(given: Any) -> Control:
        """A control, or the controls of the actuators as one."""
        return given if isinstance(given, Control) else Control(u=given)

    def in_one_step(self, model: Model) -> Control:
        """Controls without an axis of steps as those of a single step."""

        def one(name: str, given: Any, *shape: int) -> Tensor | None:
            return None if given is None else as_tensor(model, name, given, shape).unsqueeze(-1 - len(shape))

        wrenches = {n: one(f"the wrench on {n!r}", w, 6) for n, w in (self.wrenches or {}).items()}
        return Control(
            one("u", self.u, len(model.actuators)),
            one("tau", self.tau, model.nv),
            one("motion", self.motion, model.prescribed_velocities),
            wrenches,
            one("forces", self.forces, len(model.matter), 3),
            one("activation", self.activation, model.matter.elements),
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


def control_tensors(model: Model, control: Control, steps: int) -> dict[str, Tensor]:
    """Controls of a step program by name, with an axis of steps.

    Raises:
        InputError: Something is of the wrong type or shape, or the model has nothing that it could act on.
    """

    def over_steps(name: str, given: Any, *shape: int) -> Tensor:
        tensor = as_tensor(model, name, given, shape)
        return tensor.expand(steps, *shape) if tensor.ndim == len(shape) else tensor

    found = {}
    counts = {"tau": model.nv, "u": len(model.actuators), "motion": model.prescribed_velocities}
    lacks = {
        "tau": ("the model has no joints", "leave tau out"),
        "u": ("the model has no actuators", "leave u out, or give the robot actuators"),
        "motion": ("no joint is prescribed", "leave it out, or Joint(prescribed=True)"),
    }
    for name, count in counts.items():
        given = getattr(control, name)
        if count:
            found[name] = model.zeros(steps, count) if given is None else over_steps(name, given, count)
        elif given is not None:
            raise InputError(lacks[name][0], got=name, fix=lacks[name][1])
    elements, particles = model.matter.elements, len(model.matter)
    if control.activation is not None:
        if not elements:
            raise InputError("the model has no tetrahedra and no triangles", got="activation", fix="leave it out")
        found |= model.matter.of_elements("activation", over_steps("activation", control.activation, elements))
    if control.forces is not None:
        if not particles:
            raise InputError("the model has no particles", got="forces", fix="leave it out")
        found["particle_push"] = over_steps("forces", control.forces, particles, 3)
    wrenches = [over_steps(f"the wrench on {n!r}", wrench, 6) for n, wrench in (control.wrenches or {}).items()]
    if wrenches:
        found["wrench"] = torch.stack(torch.broadcast_tensors(*wrenches), -2)
    return found
