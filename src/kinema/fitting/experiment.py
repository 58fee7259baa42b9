"""`Experiment`: a simulation that is observed, as a function of unknown values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.fitting.observations import Observation, Values
from kinema.lang.autograd.options import RunOptions
from kinema.model.model import Model, expect_model
from kinema.model.state import State
from kinema.simulation.control import AXES, Control
from kinema.simulation.simulate import simulate
from kinema.simulation.trajectory import Trajectory

STATE, CONTROL = "state/", "u"
PARTS = ("q", "v", "x", "xd")
Observe = Observation | Callable[[Trajectory], Tensor]


@dataclass(frozen=True, eq=False)
class Experiment:
    """A simulation and what is observed of it: `film(values)` predicts the data of `kn.fit`.

    Values may name parameters of the model (`Model.parameters`), parts of the initial state ("state/q", "state/v",
    "state/x", "state/xd"), the controls "u", and the names in `extra`, which cameras and options read.

    Attributes:
        model: The model.
        observe: An observation (`kn.fit.Images`, `Masks`, `States`, `Bodies`, `Records`), a function of a trajectory,
            or several by name.
        steps: Number of steps.
        dt: Time step [s].
        state: Initial state.
        u: Controls, or a `Control`, as in `simulate`.
        substeps: As in `simulate`.
        integrator: As in `simulate`.
        params: Parameters that are known, by path.
        extra: Names of values that only cameras and options read.
        threads: Number of worker threads, as in `RunOptions`.

    Gradients:
        Of predictions to all values: exact, as in `simulate` and `render`.
    """

    model: Model
    observe: Observe | Mapping[str, Observe]
    steps: int = field(kw_only=True)
    dt: float = field(kw_only=True)
    state: State | None = field(default=None, kw_only=True)
    u: Any = field(default=None, kw_only=True)
    substeps: int = field(default=1, kw_only=True)
    integrator: str = field(default="euler", kw_only=True)
    params: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    extra: tuple[str, ...] = field(default=(), kw_only=True)
    threads: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        expect_model(self.model)
        for name, one in self._observed.items():
            if not (isinstance(one, Observation) or callable(one)):
                fix = "kn.fit.Images(camera, every=20), kn.fit.States('q'), or a function of a trajectory"
                raise InputError(f"{name} is no observation", got=type(one).__name__, fix=fix)

    @property
    def _observed(self) -> dict[str, Observe]:
        return dict(self.observe) if isinstance(self.observe, Mapping) else {"observe": self.observe}

    @property
    def observations(self) -> Any:
        """The observation, or several by name."""
        return self.observe

    @cached_property
    def names(self) -> dict[str, Tensor]:
        """Values of names beside the model's parameters: parts of the initial state, and controls."""
        state = self.model.initial_state() if self.state is None else self.state
        found = {
            f"{STATE}{n}": t for n, t in (self.model.initial_state().tensors | state.tensors).items() if n in PARTS
        }
        if len(self.model.actuators):
            given = Control.of(self.u).u
            shape = (self.steps, len(self.model.actuators))
            found[CONTROL] = (
                self.model.zeros(*shape) if given is None else torch.as_tensor(given, dtype=self.model.dtype)
            )
        return found

    def simulate(self, values: Values, until: float | None = None) -> Trajectory:
        """The simulation with these values, up to a time [s]."""
        steps = self.steps if until is None else max(1, min(self.steps, round(until / self.dt)))
        params = {n: t for n, t in values.items() if n not in self.names and n not in self.extra}
        parts = {n.removeprefix(STATE): t for n, t in values.items() if n in self.names and n != CONTROL}
        state = (self.state or State()).replace(**parts) if parts else self.state
        control = Control.of(self.u)
        if CONTROL in values:
            control = replace(control, u=values[CONTROL])
        record = tuple(dict.fromkeys(r for one in self._observed.values() for r in getattr(one, "record", ())))
        return simulate(
            self.model,
            state,
            _until(control, steps, self.steps),
            steps=steps,
            dt=self.dt,
            substeps=self.substeps,
            params={**self.params, **params},
            record=record,
            integrator=self.integrator,
            options=RunOptions(threads=self.threads, on_failure="status", progress=False),
        )

    def __call__(self, values: Values, until: float | None = None) -> Any:
        """Predictions of the data, with the batch of the values: a tensor, or several by name.

        Args:
            values: Values by name, with leading batch dimensions.
            until: Time up to which to predict frames [s]; all by default.

        Returns:
            Shape (*batch, frames, ...) for each observation; NaN for worlds that became non-finite.
        """
        return self.seen(self.simulate(values, until), values)

    def seen(self, path: Trajectory, values: Values) -> Any:
        """What is observed of a trajectory, as in a call."""
        failed = path.status >= 0
        some = bool(failed.any())
        path = _mended(path, failed) if some else path
        found = {}
        for name, one in self._observed.items():
            frames = one.observe(path, values) if isinstance(one, Observation) else one(path)
            if some:
                lost = failed.reshape(*failed.shape, *[1] * (frames.ndim - failed.ndim))
                frames = torch.where(lost, torch.nan, frames)
            found[name] = frames
        return found if isinstance(self.observe, Mapping) else found["observe"]


def _mended(path: Trajectory, failed: Tensor) -> Trajectory:
    """A trajectory whose failed worlds stay at their start, so that they can be drawn."""
    assert path.states is not None

    def kept(t: Tensor) -> Tensor:
        axes = t.ndim - failed.ndim
        first = t.narrow(failed.ndim, 0, 1)
        return torch.where(failed.reshape(*failed.shape, *[1] * axes), first.expand_as(t), t)

    states = path.states.map(kept)
    last = State(**{n: t.select(failed.ndim, -1) for n, t in states.tensors.items()})
    made = replace(path, states=states, end=last)
    made.__dict__["_given"] = path._given
    return made


def _until(control: Control, steps: int, whole: int) -> Control:
    """Controls of the first steps."""
    if steps == whole:
        return control

    def cut(t: Any, axes: int) -> Any:
        if t is None:
            return None
        t = torch.as_tensor(t)
        return t.narrow(-1 - axes, 0, steps) if t.ndim > axes and t.shape[-1 - axes] == whole else t

    given = {n: cut(getattr(control, n), a) for n, a in AXES.items()}
    return Control(**given, wrenches={n: cut(w, 1) for n, w in control.wrenches.items()})
