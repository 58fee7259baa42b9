"""`Keyframe`: a named state of a robot, with controls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Keyframe:
    """A named state of a robot; joints and actuators that it does not name are as in the initial state.

    Attributes:
        name: Name within the robot.
        q: Coordinates by joint, see `State.q`; of a free joint in the frame of the robot.
        v: Velocities by joint, see `State.v`.
        u: Controls by actuator.
        act: Activations by actuator.
    """

    name: str
    q: tuple[tuple[str, tuple[float, ...]], ...] = ()
    v: tuple[tuple[str, tuple[float, ...]], ...] = ()
    u: tuple[tuple[str, float], ...] = ()
    act: tuple[tuple[str, float], ...] = ()
