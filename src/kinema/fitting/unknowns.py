"""Unknowns of a fit: each maps a few scaled coordinates to a tensor of values that is always physical.

Optimisers see one vector of coordinates per candidate. A bounded unknown has coordinates in [0, 1]: `Log(low, high)`
means low (high / low)^z, `Bounded(low, high)` low + (high - low) z. A free unknown means start + scale z.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.model.inertia import NUMBERS, from_log_cholesky, to_log_cholesky

Numbers = float | Sequence[float] | Tensor
LENGTHS = slice(4, 10)  # of log-Cholesky parameters: s12, s23, s13 and the centre of mass [m]


@dataclass(frozen=True, eq=False)
class Unknown:
    """Options of every unknown.

    Attributes:
        shape: Shape of the values; by default the shape of the model's parameter, or of `start`.
        shared: One value for all rows of a group of parameters. By default True for a group by name ("dog/friction"),
            False for a pattern ("dog/*_knee/damping": one value per joint).
        worlds: Number of worlds with values of their own: the values have the shape (starts, worlds, *shape), those of
            other unknowns (starts, 1, *shape).
    """

    shape: tuple[int, ...] | None = field(default=None, kw_only=True)
    shared: bool | None = field(default=None, kw_only=True)
    worlds: int | None = field(default=None, kw_only=True)

    bounded = True

    def begin(self, own: Tensor) -> Tensor:
        """Coordinates of the first candidate, shaped like the values, from the model's own values."""
        raise NotImplementedError

    def value(self, z: Tensor, own: Tensor) -> Tensor:
        """Values from coordinates of shape (*batch, *values)."""
        raise NotImplementedError

    def slope(self, z: Tensor, own: Tensor) -> Tensor:
        """Derivative of each value by its coordinate."""
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            return torch.autograd.grad(self.value(z, own).sum(), z)[0]


@dataclass(frozen=True, eq=False)
class Log(Unknown):
    """A positive number between bounds, searched by its logarithm: masses, stiffnesses, frictions, dampings.

    Attributes:
        low: Lower bound, positive.
        high: Upper bound.
        start: Value of the first candidate; by default the geometric mean of the bounds.
    """

    low: Numbers
    high: Numbers
    start: Numbers | None = None

    def begin(self, own: Tensor) -> Tensor:
        low, high = _bounds(self, own, positive=True)
        start = (low * high).sqrt() if self.start is None else _within(self, own, low, high)
        return (start / low).log() / (high / low).log()

    def value(self, z: Tensor, own: Tensor) -> Tensor:
        low, high = _bounds(self, own, positive=True)
        return low * (high / low) ** z


@dataclass(frozen=True, eq=False)
class Bounded(Unknown):
    """A number between bounds: lengths, positions, angles, colours.

    Attributes:
        low: Lower bound.
        high: Upper bound.
        start: Value of the first candidate; by default the middle.
    """

    low: Numbers
    high: Numbers
    start: Numbers | None = None

    def begin(self, own: Tensor) -> Tensor:
        low, high = _bounds(self, own, positive=False)
        start = 0.5 * (low + high) if self.start is None else _within(self, own, low, high)
        return (start - low) / (high - low)

    def value(self, z: Tensor, own: Tensor) -> Tensor:
        low, high = _bounds(self, own, positive=False)
        return low + (high - low) * z


@dataclass(frozen=True, eq=False)
class Free(Unknown):
    """Numbers without bounds: controls, networks, initial states.

    Attributes:
        start: Values of the first candidate; by default the model's own, zero for other names.
        scale: Standard deviation of the other candidates about it, and the unit of the optimiser's coordinates.
    """

    start: Numbers | None = None
    scale: Numbers = 1.0

    bounded = False

    def begin(self, own: Tensor) -> Tensor:
        return torch.zeros_like(own)

    def value(self, z: Tensor, own: Tensor) -> Tensor:
        start = own if self.start is None else _numbers("start", self.start, own)
        return start + _numbers("scale", self.scale, own) * z


@dataclass(frozen=True, eq=False)
class Inertia(Unknown):
    """Mass, centre of mass and inertia of a body by ten log-Cholesky parameters: any of their values is physical.

    The name is that of the body: `{"dog/trunk": kn.fit.Inertia()}` gives "dog/trunk/mass", ".../com", ".../inertia".
    See `kinema.inertia`.

    Attributes:
        scale: Unit of the optimiser's coordinates, relative to the body's own mass and size.
    """

    scale: float = 0.3

    bounded = False

    def begin(self, own: Tensor) -> Tensor:
        return torch.zeros_like(own)

    def value(self, z: Tensor, own: Tensor) -> Tensor:
        size = own[1:4].exp().mean()  # lengths are scaled by the body's own
        unit = torch.full((NUMBERS,), float(self.scale), dtype=own.dtype)
        unit[LENGTHS] *= size
        return own + unit * z


@dataclass(frozen=True)
class Tie:
    """A value that follows another unknown: factor times its value.

    Attributes:
        to: Name of the other unknown.
        factor: Ratio of the two.
    """

    to: str
    factor: float = 1.0


OF_BODY = ("mass", "com", "inertia")


def own_inertia(model: Any, body: str) -> Tensor:
    """Log-Cholesky parameters of a body of a model, shape (10,)."""
    return to_log_cholesky(*model.parameters(*(f"{body}/{name}" for name in OF_BODY)).values())


def inertia_values(body: str, theta: Tensor) -> dict[str, Tensor]:
    """The three parameters of a body from its log-Cholesky parameters."""
    return {f"{body}/{name}": given for name, given in zip(OF_BODY, from_log_cholesky(theta), strict=True)}


def _numbers(what: str, given: Numbers, own: Tensor) -> Tensor:
    """Numbers as a tensor that broadcasts to the shape of the values."""
    try:
        tensor = torch.as_tensor(given, dtype=own.dtype).detach()
        torch.broadcast_to(tensor, own.shape)
    except (TypeError, ValueError, RuntimeError):
        got = tuple(given.shape) if isinstance(given, Tensor) else repr(given)
        expected = f"a number, or numbers of shape {tuple(own.shape)}"
        raise InputError(f"{what} of an unknown is not usable", got=got, expected=expected) from None
    if not bool(tensor.isfinite().all()):
        raise InputError(f"{what} of an unknown is not finite", got=given)
    return tensor


def _bounds(unknown: Log | Bounded, own: Tensor, positive: bool) -> tuple[Tensor, Tensor]:
    low, high = _numbers("low", unknown.low, own), _numbers("high", unknown.high, own)
    if positive and bool((low <= 0).any()):
        fix = "kn.fit.Bounded(low, high), or a small positive low"
        raise InputError("the lower bound of a logarithm is not positive", got=unknown.low, fix=fix)
    if bool((low >= high).any()):
        raise InputError("low is not below high", got=f"low={unknown.low}, high={unknown.high}", fix="swap them")
    return low, high


def _within(unknown: Log | Bounded, own: Tensor, low: Tensor, high: Tensor) -> Tensor:
    assert unknown.start is not None
    start = _numbers("start", unknown.start, own)
    if bool((start < low).any()) or bool((start > high).any()):
        expected = f"{unknown.low} to {unknown.high}"
        raise InputError("start is outside the bounds", got=unknown.start, expected=expected, fix="widen the bounds")
    return start


def check_unknown(unknown: Mapping[str, Any]) -> None:
    """Raise InputError unless every entry is an unknown or a tie to one."""
    if not isinstance(unknown, Mapping) or not unknown:
        got = type(unknown).__name__ if not isinstance(unknown, Mapping) else "none"
        fix = 'unknown={"dog/trunk/mass": kn.fit.Log(4, 40)}'
        raise InputError("a fit needs unknowns", got=got, expected="a dictionary by name", fix=fix)
    of_inertia = {
        n for name, one in unknown.items() if isinstance(one, Inertia) for n in (f"{name}/{p}" for p in OF_BODY)
    }
    for name, one in unknown.items():
        if name in of_inertia:
            fix = "leave it out: kn.fit.Inertia has the mass, the centre of mass and the inertia"
            raise InputError("an unknown is part of an inertia that is one too", where=repr(name), fix=fix)
        if not isinstance(one, Unknown | Tie):
            fix = f"{name!r}: kn.fit.Log(low, high), or Bounded, Free, Inertia, Tie"
            raise InputError("an unknown has no bounds", where=repr(name), got=type(one).__name__, fix=fix)
        if isinstance(one, Tie) and (one.to not in unknown or isinstance(unknown[one.to], Tie)):
            known = ", ".join(n for n, other in unknown.items() if isinstance(other, Unknown))
            raise InputError("a tie leads nowhere", where=repr(name), got=repr(one.to), expected=known)
        if isinstance(one, Tie) and not (math.isfinite(one.factor) and one.factor):
            raise InputError("the factor of a tie is not usable", where=repr(name), got=one.factor)
        if isinstance(one, Unknown) and one.worlds is not None and (type(one.worlds) is not int or one.worlds < 1):
            raise InputError("worlds is not usable", where=repr(name), got=one.worlds, expected="a number of worlds")
