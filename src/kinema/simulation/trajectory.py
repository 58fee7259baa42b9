"""`Trajectory`: states over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.lang.programs.program import Program
from kinema.model.model import Model
from kinema.model.state import AXES, State
from kinema.simulation.robot_dynamics import BodyPoses, forward_kinematics


class Given(NamedTuple):
    """Inputs of the run: its program, initial state, parameters and controls, by name."""

    program: Program
    states: dict[str, Tensor]
    parameters: dict[str, Tensor]
    controls: dict[str, Tensor]
    params: dict[str, Tensor]

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Copies of a trajectory, in memory or in files, do not hold them."""
        return type(None), ()


@dataclass(frozen=True)
class BodyMotion:
    """A rigid body over time: position [m], shape (*batch, steps + 1, 3); rotation R_WB, (*batch, steps + 1, 3, 3)."""

    position: Tensor
    rotation: Tensor


@dataclass(frozen=True)
class MatterMotion:
    """Soft matter over time: positions x [m] and velocities xd [m/s], shape (*batch, steps + 1, vertices, 3)."""

    x: Tensor
    xd: Tensor


class Recorded(dict[str, Tensor]):
    """Recorded quantities, by name."""

    def __missing__(self, name: str) -> Tensor:
        fix = f"simulate(..., record=[{name!r}])"
        raise InputError(f"{name!r} was not recorded", expected=", ".join(self) or "nothing was", fix=fix)


@dataclass(frozen=True, eq=False)
class Trajectory:
    """States over time.

    `path.q`, `path.v`, `path.x`, `path.xd` and `path.act` are the tensors of all states, with the axis of time after
    the batch; `path.state(k)` is one of them, `path["dog/trunk"]` the motion of a body or of soft matter.

    Attributes:
        end: The last state; cheaper to differentiate than all states.
        states: States at times 0, dt, ..., steps * dt, batched by (*batch, steps + 1); None unless
            `RunOptions(checkpoint=1)`, the default.
        status: Per world, -1 or the first step that ended non-finite, shape (*batch,).
        dt: Time step [s].
        residual: With constraints, the relative residual of each step's contact problem: the change of an impulse by
            one more iteration, relative to the largest impulse [-], shape (*batch, steps); without gradient.
        recorded: Recorded quantities, by name.
    """

    end: State
    states: State | None
    status: Tensor
    dt: float
    residual: Tensor | None = None
    recorded: dict[str, Tensor] = field(default_factory=Recorded)
    _model: Model | None = field(default=None, repr=False)
    _given: ClassVar[Given | None] = None  # set beside the fields, because it is not part of the result

    def __post_init__(self) -> None:
        object.__setattr__(self, "recorded", Recorded(self.recorded))  # files store a plain dictionary

    @property
    def model(self) -> Model | None:
        """The model; None if the trajectory was loaded from a file: files do not store it."""
        return self._model

    @property
    def params(self) -> dict[str, Tensor]:
        """The parameter values passed to `simulate`, with their graph; empty for a copy of a trajectory."""
        return {} if self._given is None else self._given.params

    @property
    def q(self) -> Tensor:
        """Joint coordinates over time, shape (*batch, steps + 1, nq)."""
        return self._over_time("q")

    @property
    def v(self) -> Tensor:
        """Joint velocities over time, shape (*batch, steps + 1, nv)."""
        return self._over_time("v")

    @property
    def x(self) -> Tensor:
        """Positions of particles over time [m], shape (*batch, steps + 1, particles, 3)."""
        return self._over_time("x")

    @property
    def xd(self) -> Tensor:
        """Velocities of particles over time [m/s], shape (*batch, steps + 1, particles, 3)."""
        return self._over_time("xd")

    @property
    def act(self) -> Tensor:
        """Activations of actuators over time, shape (*batch, steps + 1, n)."""
        return self._over_time("act")

    @property
    def steps(self) -> int:
        """Number of steps."""
        name, tensor = next(iter(self._whole().tensors.items()))
        return tensor.shape[-1 - AXES[name]] - 1

    @property
    def time(self) -> Tensor:
        """Times of the states since the start of the run [s], shape (steps + 1,)."""
        return self.dt * torch.arange(self.steps + 1, dtype=torch.float64)

    def state(self, k: int) -> State:
        """The state after `k` steps; -1 is the last one.

        Only the last state has warm-start impulses: a run that starts from another one starts cold.
        """
        steps = self.steps
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not -steps - 1 <= k <= steps:
            raise InputError("there is no such state", got=k, expected=f"a whole number from 0 to {steps}")
        if k in (steps, -1):
            return self.end
        return State(**{n: t.select(t.ndim - 1 - AXES[n], int(k)) for n, t in self._whole().tensors.items()})

    def __getitem__(self, name: str) -> BodyMotion | MatterMotion:
        """The motion of a body ("robot/body") or of soft matter, by name.

        Gradients:
            Exact, to the states; for bodies also to offsets and axes of joints in `params` of `simulate`.
        """
        model = self._model
        if model is None:
            raise InputError("the trajectory has no model", got="one that was loaded from a file")
        if name in model.matter.names:
            mine = torch.from_numpy(model.matter.owner == model.matter.names.index(name))
            return MatterMotion(self.x[..., mine, :], self.xd[..., mine, :])
        own = [body for body in model.bodies if body.startswith(f"{name}/")]
        if len(own) == 1:  # the name of a robot with a single body names the body
            name = own[0]
        if name not in model.bodies:
            expected = ", ".join((*model.bodies, *model.matter.names))
            raise InputError(f"nothing in the model is called {name!r}", expected=expected)
        at = model.bodies.index(name)
        return BodyMotion(self._poses.position[..., at, :], self._poses.rotation[..., at, :, :])

    @cached_property
    def _poses(self) -> BodyPoses:
        """Poses of all bodies over time."""
        assert self._model is not None
        return forward_kinematics(self._model, self.q, self._model.over_time(self.params))

    def _whole(self) -> State:
        if self.states is None:
            fix = "RunOptions(checkpoint=1), the default; or path.end, the last state"
            raise InputError("the trajectory keeps only its end", fix=fix)
        return self.states

    def _over_time(self, name: str) -> Tensor:
        tensor: Tensor | None = getattr(self._whole(), name)
        if tensor is None:
            what = "no joints" if name in ("q", "v") else "no activations" if name == "act" else "no soft matter"
            raise InputError(f"the model has {what}", got=f"path.{name}")
        return tensor

    def __repr__(self) -> str:
        kept = f"{self.steps} steps of {self.dt:g} s" if self.states is not None else f"only its end, dt {self.dt:g} s"
        worlds = f", worlds {self.end.batch}" if self.end.batch else ""
        failed = int((self.status >= 0).sum())
        more = f", {failed} failed" if failed else ""
        record = f", recorded {', '.join(self.recorded)}" if self.recorded else ""
        return f"Trajectory({kept}{worlds}{more}{record})"
