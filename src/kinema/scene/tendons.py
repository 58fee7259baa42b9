"""`Tendon`: a length that depends on several joints, with a spring, a damper, actuators; `Wrap`, `Pulley`."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Wrap:
    """A sphere or an endless cylinder around which a tendon bends on its way from one site to the next.

    Attributes:
        body: Name of its body.
        position: Its centre, in the frame of the body [m].
        rotation: Quaternion (w, x, y, z) of its axes; a cylinder is along z.
        radius: [m]
        cylinder: Whether it is a cylinder.
        side: Name of a site on the side where the tendon passes; inside of the geom, the tendon stays inside.
    """

    body: str
    position: tuple[float, float, float]
    rotation: tuple[float, float, float, float]
    radius: float
    cylinder: bool = False
    side: str = ""


@dataclass(frozen=True)
class Pulley:
    """An end of a part of a tendon, after which lengths count less.

    Attributes:
        divisor: The following lengths count divided by it.
    """

    divisor: float


@dataclass(frozen=True)
class Tendon:
    """A tendon. Its length is offset + sum of coefficient * q over joints, or that of the way between sites.

    Attributes:
        name: Name within the robot.
        joints: Names of revolute or prismatic joints, with coefficients [m/rad or 1]; none for a tendon over sites.
        offset: Length at zero coordinates, of a tendon over joints [m].
        stiffness: Stiffness of its spring [N/m].
        damping: [N s/m]
        rest: Interval of lengths in which the spring exerts no force [m].
        lower: Lower limit of the length [m], -inf for none.
        upper: Upper limit of the length [m], inf for none.
        sites: Names of the sites that it connects, in order, in straight lines or around a `Wrap` between two of them;
            a `Pulley` begins a new part.
    """

    name: str
    joints: tuple[tuple[str, float], ...] = ()
    offset: float = 0.0
    stiffness: float = 0.0
    damping: float = 0.0
    rest: tuple[float, float] = (0.0, 0.0)
    lower: float = -math.inf
    upper: float = math.inf
    sites: tuple[str | Wrap | Pulley, ...] = ()

    @property
    def straight(self) -> bool:
        """Whether it has neither bends nor pulleys."""
        return all(isinstance(site, str) for site in self.sites)
