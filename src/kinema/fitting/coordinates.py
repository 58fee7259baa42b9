"""All unknowns of a fit as one vector of coordinates per candidate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.fitting.unknowns import (
    Free,
    Inertia,
    Log,
    Tie,
    Unknown,
    check_unknown,
    inertia_values,
    own_inertia,
)
from kinema.model.model import OF_DOF, OF_JOINT
from kinema.scene.description import FREE
from kinema.scene.names import is_pattern

SHOWN = 12  # entries of an unknown that get names of their own


class Part(NamedTuple):
    """One unknown: its place in the vector.

    Attributes:
        name: Name.
        unknown: Its parametrisation.
        own: The model's own values, which give the shape, without worlds.
        first: Index of its first coordinate.
        size: Number of its coordinates, over all worlds.
        rows: Names of the rows of its first axis; empty without rows.
        among: Where these rows are among all rows of the path, and the model's own values of all; None if they are all.
    """

    name: str
    unknown: Unknown
    own: Tensor
    first: int
    size: int
    rows: tuple[str, ...] = ()
    among: tuple[Tensor, Tensor] | None = None


class Coordinates:
    """The unknowns of a fit.

    Attributes:
        parts: The unknowns, in order.
        size: Number of coordinates.
        worlds: Number of worlds with values of their own; None if all worlds share all values.
        dtype: Precision.
    """

    def __init__(
        self,
        unknown: Mapping[str, Unknown | Tie],
        model: Any = None,
        names: Mapping[str, Tensor] = MappingProxyType({}),
        extra: tuple[str, ...] = (),
    ) -> None:
        """Find shapes and places.

        Args:
            unknown: Unknowns by name.
            model: The model whose parameters they may be, or None.
            names: Values of further names that predictions understand, such as "state/v".
            extra: Names that are no parameters of the model: their shape is that of their bounds or start.
        """
        self.extra = extra
        check_unknown(unknown)
        self.dtype = model.dtype if model is not None else torch.float64
        self.ties = {n: one for n, one in unknown.items() if isinstance(one, Tie)}
        self.parts: list[Part] = []
        counts = {one.worlds for one in unknown.values() if isinstance(one, Unknown) and one.worlds}
        if len(counts) > 1:
            raise InputError("unknowns have different numbers of worlds", got=sorted(counts))
        self.worlds = counts.pop() if counts else None
        self.size = 0
        for name, one in unknown.items():
            if isinstance(one, Unknown):
                part = self._part(name, one, model, names)
                self.parts.append(part)
                self.size += part.size
        self.bounded = torch.cat([torch.full((p.size,), p.unknown.bounded) for p in self.parts])
        for part in self.parts:
            try:
                part.unknown.value(part.unknown.begin(part.own), part.own)  # refuses bounds that do not fit
            except InputError as error:
                error.where = repr(part.name)
                raise

    def _part(self, name: str, one: Unknown, model: Any, names: Mapping[str, Tensor]) -> Part:
        """The place of an unknown, with the model's own values, and names of its rows."""

        def part(own: Tensor, *more: Any) -> Part:
            return Part(name, one, own, self.size, own.numel() * (one.worlds or 1), *more)

        if isinstance(one, Inertia):
            if model is None:
                raise InputError("only bodies of a model have an inertia", where=repr(name), fix="kn.fit.Experiment")
            return part(own_inertia(model, name))
        start = torch.as_tensor(one.start) if isinstance(one, Free) and one.start is not None else None
        if one.shape is not None:
            return part(torch.zeros(one.shape, dtype=self.dtype))
        if name in names:
            return part(names[name].detach().to(self.dtype))
        if model is None or name in self.extra:
            shape = tuple(start.shape) if start is not None else _shape_of(one)
            return part(torch.zeros(shape, dtype=self.dtype))
        own, rows = _parameters(model, name), _numbered(model.rows(name))
        if len(rows) < 2:
            return part(own)
        free = _of_free_joints(model)
        chosen = [i for i, row in enumerate(model.rows(name)) if row not in free]
        among = (torch.tensor(chosen), own) if 0 < len(chosen) < len(rows) else None
        own, rows = (own[chosen], [rows[i] for i in chosen]) if among else (own, rows)
        if one.shared if one.shared is not None else not is_pattern(name):
            return part(own[:1], (), among)
        return part(own, tuple(rows), among)

    def values(self, z: Tensor) -> dict[str, Tensor]:
        """Values by name from coordinates of shape (starts, size).

        Returns:
            Shape (starts, *shape), with worlds (starts, worlds, *shape), or (starts, 1, *shape) of shared unknowns.
        """
        found: dict[str, Tensor] = {}
        starts = z.shape[0]
        for part in self.parts:
            mine = z[:, part.first : part.first + part.size]
            lead = (starts,) if self.worlds is None else (starts, part.unknown.worlds or 1)
            value = part.unknown.value(mine.reshape(*lead, *part.own.shape), part.own)
            value = value if part.among is None else _among(value, part.own.ndim, *part.among)
            found |= inertia_values(part.name, value) if isinstance(part.unknown, Inertia) else {part.name: value}
        return found | {n: tie.factor * found[tie.to] for n, tie in self.ties.items()}

    def starts(self, count: int, seed: int) -> Tensor:
        """Coordinates of candidates, shape (count, size): the start of each unknown, then spread draws.

        Bounded coordinates are stratified (a Latin hypercube), others normal with unit standard deviation.
        """
        first = torch.cat(
            [
                p.unknown.begin(p.own).expand(p.own.shape).reshape(-1).repeat(p.size // max(p.own.numel(), 1))
                for p in self.parts
            ]
        )
        first = first.to(self.dtype).unsqueeze(0)
        if count == 1:
            return first
        generator = torch.Generator().manual_seed(seed)
        cells = torch.stack([torch.randperm(count - 1, generator=generator) for _ in range(self.size)], 1)
        draws = torch.rand(count - 1, self.size, generator=generator, dtype=torch.float64)
        normal = torch.randn(count - 1, self.size, generator=generator, dtype=torch.float64)
        spread = torch.where(self.bounded, (cells + draws) / (count - 1), normal)
        return torch.cat([first, spread.to(self.dtype)])

    def project(self, z: Tensor) -> Tensor:
        """The nearest coordinates within the bounds."""
        return torch.where(self.bounded, z.clamp(0.0, 1.0), z)

    @property
    def names(self) -> list[str]:
        """A name for each coordinate."""
        return [name for part in self.parts for name in _names(part)]

    def slopes(self, z: Tensor) -> Tensor:
        """Derivative of each value by its coordinate, shape (size,), at one candidate; of inertias, 1."""
        found = []
        for part in self.parts:
            mine = z[part.first : part.first + part.size].reshape(-1, *part.own.shape)
            found.append(
                torch.ones(part.size, dtype=z.dtype)
                if isinstance(part.unknown, Inertia)
                else part.unknown.slope(mine, part.own).reshape(-1)
            )
        return torch.cat(found)

    def numbers(self, z: Tensor) -> Tensor:
        """The value of each coordinate, shape (size,); of inertias, the coordinate itself."""
        found = []
        for part in self.parts:
            mine = z[part.first : part.first + part.size]
            found.append(
                mine
                if isinstance(part.unknown, Inertia)
                else part.unknown.value(mine.reshape(-1, *part.own.shape), part.own).reshape(-1)
            )
        return torch.cat(found)

    @property
    def logarithmic(self) -> Tensor:
        """Which coordinates are logarithms, shape (size,)."""
        return torch.cat([torch.full((p.size,), isinstance(p.unknown, Log)) for p in self.parts])


def _shape_of(one: Unknown) -> tuple[int, ...]:
    """Shape of an unknown without a model: that of its bounds."""
    given = [getattr(one, n) for n in ("low", "high", "start") if getattr(one, n, None) is not None]
    return tuple(torch.broadcast_shapes(*(torch.as_tensor(g).shape for g in given))) if given else ()


def _of_free_joints(model: Any) -> set[str]:
    """Parameters of the joints of floating bases: a group such as "dog/*/damping" means those between bodies."""
    free = [name for name in model.joints if model.joint(name).kind == FREE]
    return {f"{joint}/{name}" for joint in free for name in (*OF_DOF, *OF_JOINT)}


def _parameters(model: Any, name: str) -> Tensor:
    """The model's own values of a path.

    Raises:
        InputError: The model has no such parameter.
    """
    try:
        return model.parameters(name)[name]
    except InputError as error:
        more = f"a name that cameras, lights or your function read: kn.fit.Experiment(..., extra=({name!r},))"
        error.fix = f"{error.fix}; {more}" if error.fix else more
        raise


def _numbered(rows: list[str]) -> list[str]:
    """Names of rows, with a number for each degree of freedom of joints that have several."""
    seen: Counter[str] = Counter()
    made = []
    for row in rows:
        made.append(f"{row}[{seen[row]}]" if rows.count(row) > 1 else row)
        seen[row] += 1
    return made


def _among(value: Tensor, axes: int, places: Tensor, own: Tensor) -> Tensor:
    """Values of some rows, shape (*batch, rows or 1, ...), among the model's own values of the others."""
    lead = value.shape[: value.ndim - axes]
    value = value.expand(*lead, len(places), *own.shape[1:])
    return own.expand(*lead, *own.shape).index_copy(len(lead), places, value)


def _names(part: Part) -> list[str]:
    worlds, inner = part.unknown.worlds, math.prod(part.own.shape[1:]) if part.rows else part.own.numel()
    rows = list(part.rows) if part.rows else [part.name]
    named = [f"{row}[{i}]" if inner > 1 else row for row in rows for i in range(inner)]
    return named if worlds is None else [f"{name}, world {w}" for w in range(worlds) for name in named]
