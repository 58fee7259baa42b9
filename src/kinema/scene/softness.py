"""Softness of constraints in the contact law "convex": MuJoCo's solref and solimp, and the surfaces of shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kinema.errors import ModelError

CONDIMS = (1, 3, 4, 6)
LEAST, MOST = 1e-4, 0.9999  # bounds of impedances, as in MuJoCo


def _numbers(what: str, given: Sequence[Any], count: int) -> tuple[Any, ...]:
    """Finite numbers as a tuple."""
    found = tuple(given) if isinstance(given, (tuple, list)) else ()
    if len(found) != count or not all(isinstance(x, (int, float)) and math.isfinite(x) for x in found):
        raise ModelError(f"{what} is not usable", got=given, expected=f"{count} finite numbers")
    return tuple(map(float, found))


def _check_condim(given: object) -> None:
    if isinstance(given, bool) or given not in CONDIMS:
        raise ModelError("condim is not usable", got=given, expected=", ".join(map(str, CONDIMS)))


def _check_not_negative(what: str, given: object) -> None:
    if not isinstance(given, (int, float)) or not 0 <= given < math.inf:
        raise ModelError(f"{what} is not usable", got=given, expected="finite, zero or more")


@dataclass(frozen=True)
class Softness:
    """Softness of a constraint in the law "convex" [MuJoCo, Solver parameters].

    Attributes:
        solref: Time constant [s] and damping ratio [-] of the return to the constraint, both positive; a time constant
            below two time steps acts as two. Or stiffness and damping, both zero or negative: (-k, -b) [1/s^2, 1/s].
        solimp: Impedance at zero distance, impedance at the distance `width`, width [m, rad], midpoint [-], power [-].
            Impedances between 0 and 1: the share of the force of a hard constraint.
    """

    solref: tuple[float, float] = (0.02, 1.0)
    solimp: tuple[float, float, float, float, float] = (0.9, 0.95, 0.001, 0.5, 2.0)

    def __post_init__(self) -> None:
        solref, solimp = _numbers("solref", self.solref, 2), list(_numbers("solimp", self.solimp, 5))
        if not (min(solref) > 0 or max(solref) <= 0):
            expected = "(time constant, damping ratio), both positive, or (-stiffness, -damping), none positive"
            raise ModelError("solref mixes two formats", got=solref, expected=expected)
        for at, name in ((0, "the impedances"), (1, "the impedances"), (3, "the midpoint")):
            if not 0 <= solimp[at] <= 1:
                raise ModelError(f"solimp: {name} are not usable", got=tuple(solimp), expected="between 0 and 1")
        if solimp[2] < 0 or solimp[4] < 1:
            raise ModelError("solimp is not usable", got=tuple(solimp), expected="width 0 or more, power 1 or more")
        object.__setattr__(self, "solref", solref)
        object.__setattr__(self, "solimp", tuple(solimp))


def expect_softness(what: str, given: object) -> None:
    """Raise ModelError unless this is a Softness."""
    if not isinstance(given, Softness):
        raise ModelError(f"{what} is not a Softness", got=repr(given), expected="kinema.Softness(solref, solimp)")


@dataclass(frozen=True)
class ContactSurface:
    """How a shape touches others in the law "convex"; two shapes mix theirs as in MuJoCo [MuJoCo, Contact parameters].

    The shape with the higher priority decides. At equal priority, a contact has the larger condim, the larger
    coefficients of friction, the sum of the margins, and the softness of both, weighted by `solmix` (of two direct
    `solref` the smaller numbers).

    Attributes:
        softness: solref and solimp.
        condim: 1: no friction; 3: sliding friction; 4: also torsional friction; 6: also rolling friction.
        torsional: Coefficient of torsional friction [m].
        rolling: Coefficient of rolling friction [m].
        solmix: Weight of its softness.
        priority: An integer.
        margin: The contact begins at this distance [m].
    """

    softness: Softness = Softness()
    condim: int = 3
    torsional: float = 0.005
    rolling: float = 1e-4
    solmix: float = 1.0
    priority: int = 0
    margin: float = 0.0

    def __post_init__(self) -> None:
        expect_softness("the softness of a surface", self.softness)
        _check_condim(self.condim)
        for name in ("torsional", "rolling", "solmix", "margin"):
            _check_not_negative(name, getattr(self, name))
        if isinstance(self.priority, bool) or not isinstance(self.priority, int):
            raise ModelError("the priority of a surface is not usable", got=self.priority, expected="an integer")


@dataclass(frozen=True)
class ContactPair:
    """Contact parameters of two shapes of a robot that replace those of their surfaces, in the law "convex".

    Attributes:
        first: The first shape, "body/shape".
        second: The second shape.
        friction: Coefficients of sliding friction along two tangents [-], torsional [m], and rolling friction [m] about
            two tangents.
        softness: solref and solimp.
        friction_solref: solref of the rows of friction, elliptic cones only; (0, 0): that of `softness`.
        condim: See `ContactSurface`.
        margin: The contact begins at this distance [m].
    """

    first: str
    second: str
    friction: tuple[float, float, float, float, float] = (1.0, 1.0, 0.005, 1e-4, 1e-4)
    softness: Softness = Softness()
    friction_solref: tuple[float, float] = (0.0, 0.0)
    condim: int = 3
    margin: float = 0.0

    def __post_init__(self) -> None:
        expect_softness(f"the softness of the pair of {self.first!r} and {self.second!r}", self.softness)
        _check_condim(self.condim)
        _check_not_negative("margin", self.margin)
        for coefficient in _numbers("friction", self.friction, 5):
            _check_not_negative("friction", coefficient)
        Softness(_numbers("friction_solref", self.friction_solref, 2))


@dataclass(frozen=True)
class FileOptions:
    """Options of the simulation in an MJCF file, which `Scene.from_mjcf` takes over.

    Attributes:
        timestep: [s]
        integrator: euler, rk4, implicit or implicitfast.
        gravity: [m/s^2]
        elliptic: Whether friction cones are elliptic.
        impratio: Ratio of frictional to normal impedance of contacts [-].
    """

    timestep: float
    integrator: str
    gravity: tuple[float, float, float]
    elliptic: bool
    impratio: float
