"""`Tendon`: a length that depends on several joints, with a spring, a damper, and actuators that pull along it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Tendon:
    """A tendon of fixed coefficients: its length is offset + sum of coefficient * q over its joints.

    Attributes:
        name: Name within the robot.
        joints: Names of revolute or prismatic joints, with coefficients [m/rad or 1].
        offset: Length at zero coordinates [m].
        stiffness: Stiffness of its spring [N/m].
        damping: [N s/m]
        rest: Interval of lengths in which the spring exerts no force [m].
        lower: Lower limit of the length [m], -inf for none.
        upper: Upper limit of the length [m], inf for none.
        friction: Dry friction [N].
    """

    name: str
    joints: tuple[tuple[str, float], ...]
    offset: float = 0.0
    stiffness: float = 0.0
    damping: float = 0.0
    rest: tuple[float, float] = (0.0, 0.0)
    lower: float = -math.inf
    upper: float = math.inf
    friction: float = 0.0
