"""The objective of a fit: losses, gradients and Gauss-Newton models of many candidates at once."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kinema.errors import InputError, SimulationError, StabilityWarning
from kinema.fitting.arguments import check_target, check_weights, frames_hint
from kinema.fitting.coordinates import Coordinates
from kinema.fitting.experiment import Experiment
from kinema.fitting.growth import growth_of
from kinema.fitting.jacobians import jacobian
from kinema.fitting.losses import silhouette_loss
from kinema.fitting.observations import Images
from kinema.fitting.residuals import RESIDUALS, as_images, joined

EXPLODED = 1e8  # gradients in coordinates, relative to the largest loss seen: no step along them is short enough
ROOM = 2**26  # residuals of one call, over all its worlds
SHORTEST = {torch.float64: 1e-6, torch.float32: 1e-3}  # differences, in coordinates: about the cube root of rounding
PIXELS = 1e-4  # shortest differences of images, which jump by 1e-4 where an outline reaches a pixel
Loss = str | Callable[[Any, Any], Tensor]
SILHOUETTE = "silhouette"


class GaussNewton(NamedTuple):
    """A quadratic model about one candidate: loss + 2 g d + d A d.

    Attributes:
        loss: Sum of squares of the residuals r.
        g: J^T r, shape (n,).
        A: J^T J, shape (n, n).
        seen: Number of residuals that are not zero in all columns and themselves.
    """

    loss: float
    g: Tensor
    A: Tensor
    seen: int


class Objective:
    """Compares predictions with data.

    Attributes:
        scale: The largest loss seen, or the mean square of the data.
        until: Time up to which data are compared [s]; None for all.
        evaluations: Number of simulated candidates so far.
        forward: Whether predictions have a forward mode, as far as is known.
        error: The last failure, for messages.
    """

    def __init__(
        self,
        predict: Callable[..., Any],
        target: Any,
        coordinates: Coordinates,
        loss: Loss,
        weights: Mapping[str, float],
    ) -> None:
        self.predict, self.coordinates = predict, coordinates
        self.alone = not isinstance(target, Mapping)
        self.target: dict[str, Tensor] = {"": target} if self.alone else dict(target)
        self.loss, self.weights = loss, dict(weights)
        self.until: float | None = None
        self.evaluations = 0
        self.error: Exception | None = None
        self.forward = True
        check_target(self.target, predict)
        check_weights(self.weights, self.target)
        self.scale = self.mean_square
        if isinstance(loss, str) and loss not in (*RESIDUALS, SILHOUETTE):
            raise InputError("unknown loss", got=repr(loss), expected=", ".join((*RESIDUALS, SILHOUETTE)))

    @property
    def data(self) -> int:
        """Number of data."""
        return sum(t.numel() for t in self.target.values())

    @cached_property
    def mean_square(self) -> float:
        """Mean square of the data."""
        return sum(float(t.square().mean()) for t in self.target.values())

    @cached_property
    def shortest(self) -> float:
        """Length of the shortest differences that mean something, in coordinates."""
        least = SHORTEST[self.coordinates.dtype]
        seen = self.predict.observations if isinstance(self.predict, Experiment) else None
        several = seen.values() if isinstance(seen, Mapping) else [seen]
        images = any(isinstance(one, Images) for one in several) or any(map(_pictured, self.target.values()))
        return max(least, PIXELS) if images else least

    @property
    def least_squares(self) -> bool:
        """Whether the loss is a sum of squares."""
        return isinstance(self.loss, str) and self.loss in RESIDUALS

    def predictions(self, z: Tensor) -> dict[str, Tensor]:
        """Predictions of candidates, shape (candidates, [worlds,] frames, ...), by name."""
        values = self.coordinates.values(z)
        made = self.predict(values) if self.until is None else self.predict(values, self.until)
        self.evaluations += len(z)
        found = dict(made) if isinstance(made, Mapping) else {"": made}
        if set(found) != set(self.target):
            got, expected = ", ".join(map(repr, found)), ", ".join(map(repr, self.target))
            raise InputError("predictions and target have different names", got=got, expected=expected)
        for name, tensor in found.items():
            self._check(name, tensor, len(z))
        return found

    def losses(self, z: Tensor) -> Tensor:
        """Losses of candidates, shape (candidates,); infinite where a candidate fails."""
        with torch.no_grad():
            found = self._separately(z, lambda part: self._compare(self.predictions(part)))
        none = torch.full((), math.inf, dtype=self.coordinates.dtype)
        return self._finite(torch.stack([none if one is None else one.to(none) for one in found]))

    def gradients(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Losses and their gradients, shapes (candidates,) and (candidates, n).

        Candidates whose simulation fails or whose gradient explodes have infinite losses and zero gradients; `error`
        says why.
        """

        def both(part: Tensor) -> Tensor:
            with torch.enable_grad():
                leaf = part.detach().requires_grad_()
                found = self._compare(self.predictions(leaf))
                fine = found.isfinite()
                grads = torch.zeros_like(part)
                if bool(fine.any()):
                    (grads,) = torch.autograd.grad(found[fine].sum(), leaf)
            grads = torch.where(fine.unsqueeze(-1), grads, 0.0)
            return torch.cat([self._finite(found.detach()).unsqueeze(-1), grads], -1)

        none = torch.zeros(1 + z.shape[-1], dtype=self.coordinates.dtype)
        none[0] = math.inf
        made = torch.stack([none if one is None else one for one in self._separately(z, both)])
        losses, grads = made[:, 0], made[:, 1:]
        self.scale = max([self.scale, *losses[losses.isfinite()].tolist()])
        exploded = losses.isfinite() & ~(grads.abs().amax(1) <= EXPLODED * self.scale)  # NaN too
        if bool(exploded.any()):
            self.error = self._explained(z[exploded][:1], grads[exploded][0])
            losses = torch.where(exploded, math.inf, losses)
            grads = torch.where(exploded.unsqueeze(-1), 0.0, grads)
        return losses, grads

    def models(self, z: Tensor, lengths: Tensor | None = None) -> list[GaussNewton | None]:
        """Gauss-Newton models of candidates; None where a candidate fails.

        Args:
            z: Candidates, shape (candidates, n).
            lengths: Lengths of differences, shape (candidates,). Zero, the default, means derivatives by forward mode,
                or the shortest differences if something in the prediction has no forward mode.
        """
        lengths = z.new_zeros(len(z)) if lengths is None else lengths
        found: dict[int, GaussNewton | None] = {}
        for exact in (True, False):
            chosen = [i for i in range(len(z)) if i not in found and (not exact or float(lengths[i]) == 0.0)]
            room = max(1, ROOM // self.data)
            group = max(1, room // (z.shape[1] + 1))
            for at in range(0, len(chosen), group):
                some = chosen[at : at + group]
                if exact:
                    made = self._exact(z[some]) if self.forward else None
                else:
                    made = self._secants(z[some], lengths[some].clamp_min(self.shortest), room)
                found |= dict(zip(some, made, strict=True)) if made is not None else {}
        return [found[i] for i in range(len(z))]

    def _exact(self, z: Tensor) -> list[GaussNewton | None] | None:
        """Models by forward mode; None if the prediction has none."""
        count, n = z.shape
        ways = torch.eye(n, dtype=z.dtype).expand(count, n, n).contiguous()
        before = self.evaluations
        try:
            with _unstable_is_an_error():
                rows, slopes = jacobian(lambda values: self.residuals(values["z"]), {"z": z}, {"z": ways})
        except (SimulationError, StabilityWarning):
            return None
        except (NotImplementedError, RuntimeError):
            self.forward = False
            return None
        self.evaluations = before + count * n
        return [_model(r, J) for r, J in zip(rows, slopes.unbind(1), strict=True)]

    def _secants(self, z: Tensor, lengths: Tensor, room: int) -> list[GaussNewton | None]:
        """Models by differences of predictions, away from the nearer bound."""
        n = z.shape[1]
        steps = torch.where(z > 0.5, -1.0, 1.0).to(z) * lengths.unsqueeze(-1)
        shifted = z.unsqueeze(1) + torch.diag_embed(steps)
        every = torch.cat([z.unsqueeze(1), shifted], 1).reshape(-1, n)
        with torch.no_grad():
            rows = [row for part in every.split(room) for row in self._separately(part, self.residuals)]
        found: list[GaussNewton | None] = []
        for own, step in zip(_chunks(rows, n + 1), steps, strict=True):
            r = own[0]
            if r is None:
                found.append(None)
                continue
            moved = torch.stack([r if one is None else one for one in own[1:]])
            found.append(_model(r, (moved - r) / step.unsqueeze(-1)))
        return found

    def residuals(self, z: Tensor) -> Tensor:
        """Residuals of candidates, shape (candidates, m), in the precision of z; NaN where a candidate fails."""
        return self._residuals(self.predictions(z)).to(z.dtype)

    def floor(self, z: Tensor, noisy: Callable[[str, Tensor], Tensor]) -> float:
        """The loss of exact values against data with noise: of one candidate's predictions against noisy copies."""
        with torch.no_grad():
            made = self.predictions(z.unsqueeze(0))
            return float(self._compare(made, {n: noisy(n, t[0]) for n, t in made.items()})[0])

    def _compare(self, made: dict[str, Tensor], target: dict[str, Tensor] | None = None) -> Tensor:
        """Loss of each candidate."""
        if self.least_squares:
            return self._residuals(made, target).square().sum(-1)
        total = torch.zeros(next(iter(made.values())).shape[0], dtype=self.coordinates.dtype)
        for name, prediction in made.items():
            wanted = self._cut(name, prediction) if target is None else target[name]
            if self.loss == SILHOUETTE:
                lead = prediction.ndim - wanted.ndim
                masks = as_images(prediction, max(lead, 1)).squeeze(-1)
                loss = silhouette_loss(masks, as_images(wanted, 0).squeeze(-1))
            else:
                loss = self.loss(prediction, wanted)  # type: ignore[operator]
            if not isinstance(loss, Tensor) or loss.shape[:1] != prediction.shape[:1]:
                got = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
                expected, fix = f"({prediction.shape[0]},), one per candidate", "average over the other axes only"
                raise InputError("the loss has the wrong shape", got=got, expected=expected, fix=fix)
            total = total + self.weights.get(name, 1.0) * loss.reshape(len(loss), -1).mean(-1)
        return total

    def _residuals(self, made: dict[str, Tensor], target: dict[str, Tensor] | None = None) -> Tensor:
        assert isinstance(self.loss, str)
        axes = 1 if self.coordinates.worlds is None else 2
        parts = []
        for name, prediction in made.items():
            wanted = self._cut(name, prediction) if target is None else target[name]
            found = RESIDUALS[self.loss](prediction - wanted, axes)
            if axes == 2:
                found = (found / math.sqrt(found.shape[1])).flatten(1)
            parts.append(math.sqrt(self.weights.get(name, 1.0)) * found)
        return joined(parts)

    def _cut(self, name: str, prediction: Tensor) -> Tensor:
        """The data as far as predictions go."""
        target = self.target[name].to(prediction.dtype)
        worlds = self.coordinates.worlds is not None and target.ndim == prediction.ndim - 1
        axis, frames = (1, prediction.shape[2]) if worlds else (0, prediction.shape[prediction.ndim - target.ndim])
        return target.narrow(axis, 0, frames) if self.until is not None else target

    def _check(self, name: str, prediction: Any, candidates: int) -> None:
        where = f"prediction {name!r}" if name else "the prediction"
        if not isinstance(prediction, Tensor):
            raise InputError(f"{where} is no tensor", got=type(prediction).__name__)
        target = self.target[name]
        lead = (candidates,) if self.coordinates.worlds is None else (candidates, prediction.shape[1])
        shape, wanted = tuple(prediction.shape), tuple(target.shape)
        if shape[:1] != lead[:1]:
            fix = "values have a leading axis of candidates: predictions keep it"
            raise InputError(f"{where} has no axis of candidates", got=shape, expected=(*lead, *wanted), fix=fix)
        own = shape[len(lead) :] if len(shape) - len(lead) == len(wanted) else shape[1:]
        if self.until is not None and len(own) == len(wanted) and own[0] <= wanted[0]:
            wanted = (own[0], *wanted[1:])
        if own != wanted:
            fix = frames_hint(self.predict, name)
            raise InputError(f"{where} and the target have different shapes", got=own, expected=wanted, fix=fix)

    def _finite(self, losses: Tensor) -> Tensor:
        return torch.where(losses.isfinite(), losses, math.inf).to(self.coordinates.dtype)

    def _separately(self, z: Tensor, f: Callable[[Tensor], Tensor]) -> list[Tensor | None]:
        """f of all candidates in one call, one by one if that fails; a row for each, None for those that fail."""
        try:
            with _unstable_is_an_error():
                return list(f(z).unbind(0))
        except (SimulationError, StabilityWarning) as error:
            if len(z) > 1:
                return [row for one in z.split(1) for row in self._separately(one, f)]
            self.error = error
            return [None]

    def _explained(self, z: Tensor, grads: Tensor) -> SimulationError:
        """The error for a gradient that explodes: the step and the body over which it grows most."""
        names = self.coordinates.names
        largest = int(torch.nan_to_num(grads.abs(), nan=math.inf).argmax())
        what = f"the gradient explodes: d loss / d {names[largest]} is {float(grads[largest]):.1e}"
        growth = None
        if isinstance(self.predict, Experiment):
            with torch.enable_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                path = self.predict.simulate(self.coordinates.values(z.detach().requires_grad_()), self.until)
                made = self.predict.seen(path, self.coordinates.values(z))
                loss = self._compare(dict(made) if isinstance(made, Mapping) else {"": made}).sum()
                growth = growth_of(loss, path) if loss.requires_grad else None
        where = None
        if growth is not None:
            at = growth.steepest
            where = f"step {at} ({at * growth.dt:.4g} s), {growth.where[at]}" if growth.dt else f"step {at}"
            how = f"it grows by {growth.factor:.1e}, most over" if math.isfinite(growth.factor) else "it overflows at"
            what += f"; backwards in time {how} step {at}"
        fix = "a shorter horizon, more damping, smaller steps or float64; or method='lm', which needs no reverse sweep"
        return SimulationError(what, where=where, fix=fix)


def _model(r: Tensor, J: Tensor) -> GaussNewton | None:
    """The model of residuals, shape (m,), with derivatives, shape (n, m); coordinates whose neighbour failed stay."""
    if not bool(r.isfinite().all()):
        return None
    J = torch.where(J.isfinite().all(-1, keepdim=True), J, 0.0)
    return GaussNewton(float(r @ r), J @ r, J @ J.T, int(((r != 0) | (J != 0).any(0)).sum()))


@contextmanager
def _unstable_is_an_error() -> Iterator[None]:
    """Steps beyond the stability limit are failures: losses there mean nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", StabilityWarning)
        yield


def _chunks(rows: list[Tensor | None], size: int) -> Iterator[list[Tensor | None]]:
    return (rows[first : first + size] for first in range(0, len(rows), size))


def _pictured(target: Tensor) -> bool:
    """Whether data look like colour images: (..., frames, height, width, 3)."""
    return target.ndim >= 4 and target.shape[-1] == 3 and min(target.shape[-3:-1]) > 3
