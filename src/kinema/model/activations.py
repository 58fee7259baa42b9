"""Arrays of activations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kinema.model.actuators import UNBOUNDED, ActuatorArrays
from kinema.scene.activation import KINDS
from kinema.scene.description import PlacedRobot

INTEGRATOR, FILTER, EXACT, MUSCLE = range(len(KINDS))


@dataclass(eq=False)
class ActivationArrays:
    """Activations, a row for every actuator that has one, in the order of the actuators.

    Attributes:
        row: For every actuator, its row, or -1.
        kind: Index in `KINDS`.
        times: Shape (n, 3).
        least, most: Bounds of the activation.
        early: 0 or 1.
    """

    row: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    kind: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    times: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    least: np.ndarray = field(default_factory=lambda: np.zeros(0))
    most: np.ndarray = field(default_factory=lambda: np.zeros(0))
    early: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def actuators(self) -> np.ndarray:
        """Indices of the actuators that have an activation."""
        return np.flatnonzero(self.row >= 0)


def find_activations(actuators: ActuatorArrays, placed: Sequence[PlacedRobot]) -> ActivationArrays:
    """The activations of all robots."""
    given = [actuator.activation for one in placed for actuator in one.robot.actuators]
    found = [one for one in given if one is not None]
    row = np.full(len(actuators), -1, np.int32)
    row[[i for i, one in enumerate(given) if one is not None]] = np.arange(len(found))
    return ActivationArrays(
        row,
        np.array([KINDS.index(one.kind) for one in found], np.int32),
        np.array([one.times for one in found], float).reshape(-1, 3),
        np.clip(np.array([one.lower for one in found], float), -UNBOUNDED, UNBOUNDED),
        np.clip(np.array([one.upper for one in found], float), -UNBOUNDED, UNBOUNDED),
        np.array([one.early for one in found], np.int32),
    )
