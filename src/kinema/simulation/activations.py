"""Activations of actuators in step programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from kinema.dynamics.activations import Activations, activate
from kinema.lang import Float, Int, vec3
from kinema.lang.programs.program import Ref
from kinema.model.actuators import UNBOUNDED
from kinema.model.arrays import SceneArrays
from kinema.simulation.links import Links


def signals(links: Links, model: SceneArrays, control: Ref) -> Ref:
    """What scales the gain of every actuator: its control, or its activation, which a step advances once.

    Args:
        links: Links at a state.
        model: The model.
        control: Controls of all actuators.
    """
    arrays = model.activations
    if not len(arrays):
        return control
    if links.tables.signals is None:
        p, count = links.program, len(arrays)
        act, which = p.state("act", Float, count), arrays.actuators
        table: Any = Activations(
            **{n: p.constant(f"activation_{n}", Int, getattr(arrays, n)) for n in ("row", "kind", "early")},
            times=p.parameter("activation_times", vec3, count),
            **{n: p.constant(f"activation_{n}", Float, getattr(arrays, n)) for n in ("least", "most")},
            **{n: p.constant(f"activated_{n}", Float, getattr(model.actuators, n)[which]) for n in ("lower", "upper")},
        )
        signal = p.scratch("signal", Float, len(model.actuators))
        p.call(activate, table, control, act, Ref(p.buffers["dt"]), act.next, signal)
        links.tables.signals = signal
    return links.tables.signals


def bounds(model: SceneArrays, name: str, chosen: np.ndarray) -> np.ndarray:
    """Bounds of the signals of some actuators: those of controls, none for activations.

    Args:
        model: The model.
        name: "lower" or "upper".
        chosen: Indices of the actuators.
    """
    whole = getattr(model.actuators, name).copy()
    which = model.activations.actuators
    whole[which] = np.copysign(UNBOUNDED, -1.0 if name == "lower" else 1.0)
    return whole[chosen]
