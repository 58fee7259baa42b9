"""`Tendon`: a length that depends on several joints, with a spring, a damper, and actuators that pull along it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Tendon:
    """A tendon. Its length is offset + sum of coefficient * q over joints, or that of the straight lines between sites.

    Attributes:
        name: Name within the robot.
        joints: Names of revolute or prismatic joints, with coefficients [m/rad or 1]; none for a tendon over sites.
        offset: Length at zero coordinates, of a tendon over joints [m].
        stiffness: Stiffness of its spring [N/m].
        damping: [N s/m]
        rest: Interval of lengths in which the spring exerts no force [m].
        lower: Lower limit of the length [m], -inf for none.
        upper: Upper limit of the length [m], inf for none.
        sites: Names of the sites that it connects in straight lines, in order.
    """

    name: str
    joints: tuple[tuple[str, float], ...] = ()
    offset: float = 0.0
    stiffness: float = 0.0
    damping: float = 0.0
    rest: tuple[float, float] = (0.0, 0.0)
    lower: float = -math.inf
    upper: float = math.inf
    sites: tuple[str, ...] = ()
