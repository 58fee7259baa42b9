"""Table of joint types: coordinates, features, and names in robot files.

Checks, readers, the model's arrays, storage and `kinema check` look a type up here; its kinematics is in
`kinematics/joint_types.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kinema.scene.description import BALL, FIXED, FREE, PRISMATIC, REVOLUTE

RANGE, ANGLE = "range", "angle"
IDENTITY = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class JointType:
    """A joint type.

    A joint with one velocity can have a spring, an actuator and a mimic constraint.

    Attributes:
        word: Value of `Joint.kind`.
        neutral: Neutral coordinates, the identity transform; one per coordinate.
        motions: Motion subspace at neutral coordinates from a unit axis: one row per velocity, angular and linear part
            about the origin of its link in the link's axes, shape (velocities, 6).
        has_axis: Whether it rotates about or slides along `Joint.axis`.
        has_anchor: Whether it uses `Joint.anchor`.
        position: Whether its coordinates begin with the position of its link [m]: at roots only.
        quaternion: Index of its first quaternion component (w, x, y, z) among its coordinates; None without one. The
            rates of all other coordinates, except positions, are the velocities, one by one.
        limit: RANGE (lower and upper limit of the coordinate), ANGLE (upper limit of the rotation angle) or None.
        urdf: Names in URDF.
        mjcf: Name in MJCF.
    """

    word: str
    neutral: tuple[float, ...]
    motions: Callable[[np.ndarray], np.ndarray]
    has_axis: bool = False
    has_anchor: bool = False
    position: bool = False
    quaternion: int | None = None
    limit: str | None = None
    urdf: tuple[str, ...] = ()
    mjcf: str | None = None

    @property
    def coordinates(self) -> int:
        """Number of coordinates."""
        return len(self.neutral)

    @cached_property
    def velocities(self) -> int:
        """Number of velocities (degrees of freedom)."""
        return len(self.motions(np.zeros(3)))

    @property
    def is_single(self) -> bool:
        """Whether it has one coordinate."""
        return self.coordinates == 1


def _none(axis: np.ndarray) -> np.ndarray:
    return np.zeros((0, 6))


def _about(axis: np.ndarray) -> np.ndarray:
    return np.concatenate([axis, np.zeros(3)])[None]


def _along(axis: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(3), axis])[None]


def _turns(axis: np.ndarray) -> np.ndarray:
    return np.eye(6)[:3]


def _all(axis: np.ndarray) -> np.ndarray:
    return np.eye(6)


_ROWS = (
    JointType(FIXED, (), _none, urdf=("fixed",)),
    JointType(
        REVOLUTE,
        (0.0,),
        _about,
        has_axis=True,
        has_anchor=True,
        limit=RANGE,
        urdf=("revolute", "continuous"),
        mjcf="hinge",
    ),
    JointType(PRISMATIC, (0.0,), _along, has_axis=True, limit=RANGE, urdf=("prismatic",), mjcf="slide"),
    JointType(BALL, IDENTITY, _turns, has_anchor=True, quaternion=0, limit=ANGLE, urdf=("spherical",), mjcf="ball"),
    JointType(FREE, (0.0, 0.0, 0.0, *IDENTITY), _all, position=True, quaternion=3, urdf=("floating",), mjcf="free"),
)

TYPES = {row.word: row for row in _ROWS}
"""Joint types by `Joint.kind`."""
MOVING = tuple(row for row in _ROWS if row.velocities)
"""Moving joint types, in the order of their codes in arrays and kernels."""
NUMBERS = {one.word: number for number, one in enumerate(MOVING)}
"""Codes of moving joint types, by `Joint.kind`."""
SINGLE = tuple(one.word for one in MOVING if one.is_single)
"""Joint types with one coordinate."""
