"""`Activation` and `Muscle`: actuators whose force depends on a state of their own."""

from __future__ import annotations

import math
from dataclasses import dataclass

INTEGRATOR, FILTER, EXACT, MUSCLE = KINDS = ("integrator", "filter", "filterexact", "muscle")


@dataclass(frozen=True)
class Activation:
    """The activation a of an actuator: a state that follows the control u and scales the gain in place of it.

    Attributes:
        kind: integrator (a' = u) · filter and filterexact (a' = (u - a) / tau, by Euler's method or exactly) · muscle
            (a' = (u - a) / tau with a tau that depends on u and a, [Millard et al. 2013]).
        times: For filters (tau, 0, 0) [s]. For muscles the time constants of activation and deactivation [s], and the
            range of u - a over which tau passes from one to the other, 0 for a switch [-].
        lower: Lower bound of a.
        upper: Upper bound of a.
        early: Whether the force takes the activation at the end of the step instead of that at its start.
    """

    kind: str
    times: tuple[float, float, float] = (0.0, 0.0, 0.0)
    lower: float = -math.inf
    upper: float = math.inf
    early: bool = False


@dataclass(frozen=True)
class Muscle:
    """The force of a muscle, MuJoCo's model: -force (FL(L) FV(V) a + FP(L)), with L and V in resting lengths.

    L = range[0] + (l - lengths[0]) / L0 with the resting length L0 = (lengths[1] - lengths[0]) / (range[1] - range[0]),
    and V = l' / (L0 vmax).

    Attributes:
        force: Peak active force at rest [N].
        lengths: The shortest and the longest length l [m].
        range: The same in resting lengths.
        lmin: Where the active force vanishes, in resting lengths.
        lmax: Likewise, beyond the resting length.
        vmax: Shortening velocity at which the force vanishes [resting lengths per second].
        fpmax: Passive force at lmax, relative to the peak force.
        fvmax: Active force at saturated lengthening velocity, relative to the peak force.
    """

    force: float
    lengths: tuple[float, float]
    range: tuple[float, float] = (0.75, 1.05)
    lmin: float = 0.5
    lmax: float = 1.6
    vmax: float = 1.5
    fpmax: float = 1.3
    fvmax: float = 1.2
