"""`landscape`: a loss and its gradient over one or two unknowns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.fitting.experiment import Experiment
from kinema.fitting.figures import keep_figure, new_figure
from kinema.fitting.fit import coordinates_of
from kinema.fitting.objective import Loss, Objective
from kinema.fitting.progress import Progress
from kinema.fitting.result import Fit
from kinema.fitting.unknowns import Bounded

BATCH = 64  # points of one call
Range = tuple[float, float, int]


@dataclass(frozen=True, eq=False)
class Landscape:
    """A loss over a grid.

    Attributes:
        names: Names of one or two unknowns.
        values: Their values on the grid, one tensor each.
        losses: Losses, shape (n,) or (n, m).
        gradients: Derivatives of the loss by each unknown, shape (n, 1) or (n, m, 2).
        at: The point that was given, one number for each unknown; None without one.
    """

    names: tuple[str, ...]
    values: tuple[Tensor, ...]
    losses: Tensor
    gradients: Tensor
    at: tuple[float, ...] | None

    @property
    def minima(self) -> list[tuple[float, ...]]:
        """Points of the grid that are lower than all their neighbours, the lowest first; those at its edge count."""
        padded = torch.nn.functional.pad(self.losses, [1, 1] * self.losses.ndim, value=float("inf"))
        lowest = torch.ones_like(self.losses, dtype=torch.bool)
        for shift in _neighbours(self.losses.ndim):
            window = tuple(slice(1 + s, 1 + s + n) for s, n in zip(shift, self.losses.shape, strict=True))
            lowest &= self.losses < padded[window]
        found = sorted(lowest.nonzero().tolist(), key=lambda place: float(self.losses[tuple(place)]))
        return [tuple(float(v[i]) for v, i in zip(self.values, place, strict=True)) for place in found]

    @property
    def best(self) -> tuple[float, ...]:
        """The lowest point of the grid."""
        place = torch.unravel_index(self.losses.argmin(), self.losses.shape)
        return tuple(float(v[i]) for v, i in zip(self.values, place, strict=True))

    def __str__(self) -> str:
        size = " x ".join(str(len(v)) for v in self.values)
        best = ", ".join(f"{n} = {x:.6g}" for n, x in zip(self.names, self.best, strict=True))
        return f"{size} points: lowest {float(self.losses.min()):.3e} at {best}; {len(self.minima)} local minima"

    def plot(self, file: str | os.PathLike[str]) -> Path:
        """Draw the loss with its gradients: tangents along one unknown, contours and arrows over two.

        Raises:
            InputError: matplotlib is missing.
            StorageError: The file cannot be written.
        """
        figure = new_figure(5.6, 4.0)
        self.draw(figure.add_subplot())
        return keep_figure(figure, file)

    def draw(self, axis: Any) -> None:
        """Draw the same into axes of matplotlib."""
        if len(self.names) == 1:
            self._draw_line(axis)
        else:
            self._draw_plane(axis)

    def _draw_line(self, axis: Any) -> None:
        x, y, slopes = self.values[0], self.losses, self.gradients[:, 0]
        axis.plot(x.tolist(), y.tolist(), color="#33679f", lw=1.2)
        every, half = max(1, len(x) // 24), float(x[-1] - x[0]) / 60
        for i in range(0, len(x), every):
            ends = [float(x[i]) - half, float(x[i]) + half]
            rise = half * float(slopes[i])
            axis.plot(ends, [float(y[i]) - rise, float(y[i]) + rise], color="#d96a3f", lw=1.8)
        if self.at is not None:
            axis.axvline(self.at[0], ls="--", color="0.4", lw=1)
        room = 0.05 * float(y.max() - y.min())
        axis.set(xlabel=self.names[0], ylabel="loss", ylim=(float(y.min()) - room, float(y.max()) + room))

    def _draw_plane(self, axis: Any) -> None:
        x, y = self.values
        levels = self.losses.clamp_min(1e-300).log10().T.numpy()
        drawn = axis.contourf(x.numpy(), y.numpy(), levels, 24, cmap="viridis")
        axis.figure.colorbar(drawn, ax=axis, label="log10 of the loss")
        a, b = max(1, len(x) // 12), max(1, len(y) // 12)
        scale = torch.stack([x[-1] - x[0], y[-1] - y[0]])
        down = -self.gradients[::a, ::b] * scale  # in shares of the ranges
        down = down / down.norm(dim=-1, keepdim=True).clamp_min(1e-300) * scale
        axis.quiver(
            x[::a].numpy(),
            y[::b].numpy(),
            down[..., 0].T.numpy(),
            down[..., 1].T.numpy(),
            color="white",
            angles="xy",
            width=0.004,
        )
        if self.at is not None:
            axis.plot(*self.at, "o", color="#d96a3f", mec="white")
        axis.set(xlabel=self.names[0], ylabel=self.names[1])


def landscape(
    predict: Experiment | Callable[..., Any],
    target: Tensor | Mapping[str, Tensor],
    along: Mapping[str, Range | Tensor],
    *,
    at: Mapping[str, Tensor] | Fit | None = None,
    loss: Loss = "squares",
    until: float | None = None,
    progress: bool = True,
) -> Landscape:
    """The loss of a fit, and its gradient, over one or two unknowns.

    Args:
        predict: As in `fit`.
        target: As in `fit`.
        along: One or two names, each with (lowest, highest, number of points), or with the points themselves.
        at: Values of all other names, shaped as `Fit.values`, or a result of `fit`.
        loss: As in `fit`.
        until: Time up to which data are compared [s].
        progress: Whether to show progress on standard error.

    Gradients:
        The result holds plain numbers: the gradients of the loss at every point, by reverse mode.

    Raises:
        InputError: Arguments do not fit together.
    """
    if not isinstance(along, Mapping) or not 1 <= len(along) <= 2:
        got = len(along) if isinstance(along, Mapping) else type(along).__name__
        raise InputError("a landscape has one or two axes", got=got, expected='{"dog/trunk/mass": (4, 40, 61)}')
    fixed = dict(at.values if isinstance(at, Fit) else at or {})
    grids = [_points(name, given) for name, given in along.items()]
    unknown = {n: Bounded(float(g.min()), float(g.max())) for n, g in zip(along, grids, strict=True)}
    coordinates = coordinates_of(predict, unknown)
    others = {n: t.detach().unsqueeze(0) for n, t in fixed.items() if n not in along}

    def whole(values: Mapping[str, Tensor], *until: float) -> Any:
        count = len(next(iter(values.values())))
        return predict({**{n: t.expand(count, *t.shape[1:]) for n, t in others.items()}, **values}, *until)

    objective = Objective(whole, target, coordinates, loss, {})
    objective.until = until
    spans = torch.stack([g.max() - g.min() for g in grids])
    lows = torch.stack([g.min() for g in grids])
    points = torch.cartesian_prod(*grids).reshape(-1, len(grids))
    z = torch.cat(
        [((points - lows) / spans)[:, i].unsqueeze(1).expand(-1, p.size) for i, p in enumerate(coordinates.parts)], 1
    )
    losses, slopes = [], []
    with Progress("landscape", len(z), progress) as bar:
        for part in z.to(coordinates.dtype).split(BATCH):
            found, grads = objective.gradients(part)
            losses.append(found)
            slopes.append(torch.stack([grads[:, p.first : p.first + p.size].sum(1) for p in coordinates.parts], 1))
            bar.show(sum(map(len, losses)), f"lowest {min(float(one.min()) for one in losses):.3e}")
    shape = tuple(len(g) for g in grids)
    known = [fixed[n] for n in along if n in fixed]
    marked = tuple(float(t.mean()) for t in known) if len(known) == len(along) else None
    gradients = (torch.cat(slopes) / spans).reshape(*shape, len(grids))
    return Landscape(tuple(along), tuple(grids), torch.cat(losses).reshape(shape), gradients, marked)


def _points(name: str, given: Range | Tensor) -> Tensor:
    """Points along an axis."""
    if isinstance(given, Tensor):
        points = given.detach().double()
    else:
        try:
            low, high, count = given
            points = torch.linspace(float(low), float(high), int(count), dtype=torch.float64)
        except (TypeError, ValueError):
            expected = "(lowest, highest, number of points), or a tensor"
            raise InputError(
                "an axis of a landscape is not usable", where=repr(name), got=given, expected=expected
            ) from None
    if points.ndim != 1 or len(points) < 3 or not bool((points.diff() > 0).all()):
        expected = "three or more increasing numbers"
        raise InputError("an axis of a landscape is not usable", where=repr(name), got=given, expected=expected)
    return points


def _neighbours(axes: int) -> list[tuple[int, ...]]:
    grid = torch.cartesian_prod(*[torch.tensor([-1, 0, 1])] * axes).reshape(-1, axes).tolist()
    return [tuple(shift) for shift in grid if any(shift)]
