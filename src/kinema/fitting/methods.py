"""Methods of a fit, each advancing all candidates by one iteration.

A method is a value with options and two functions: `begin` makes its memory, a dictionary of tensors that a file can
hold, and `advance` makes the next candidates from it. Candidates do not depend on each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.fitting.coordinates import Coordinates
from kinema.fitting.objective import Objective

Memory = dict[str, Tensor]


class Advance(NamedTuple):
    """Candidates after an iteration.

    Attributes:
        z: Coordinates for the next iteration, shape (candidates, n).
        seen: The best coordinates that this iteration evaluated, shape (candidates, n).
        losses: Their losses, shape (candidates,); infinite for those that were not evaluated.
        ended: Which candidates cannot be improved further, shape (candidates,).
    """

    z: Tensor
    seen: Tensor
    losses: Tensor
    ended: Tensor


@dataclass(frozen=True)
class Method:
    """Options of every method.

    Attributes:
        iterations: Number of iterations, for each horizon.
        tolerance: A candidate ends when an iteration improves its loss by less than this share.
    """

    iterations: int = field(default=50, kw_only=True)
    tolerance: float = field(default=1e-6, kw_only=True)

    def __post_init__(self) -> None:
        if type(self.iterations) is not int or self.iterations < 1:
            raise InputError("iterations is not usable", got=self.iterations, expected="a whole number, 1 or more")
        rate = getattr(self, "rate", 1.0)
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
            raise InputError("rate is not usable", got=rate, expected="a positive number, in coordinates")

    def begin(self, z: Tensor, seed: int) -> Memory:
        """Memory before the first iteration."""
        raise NotImplementedError

    def advance(self, objective: Objective, z: Tensor, memory: Memory, active: Tensor, iteration: int) -> Advance:
        """One iteration of the active candidates; changes the memory in place."""
        raise NotImplementedError


@dataclass(frozen=True)
class SGD(Method):
    """Gradient descent, with momentum.

    Attributes:
        rate: Step per unit of the gradient, in coordinates.
        momentum: Share of the last step that is kept.
        warmup: Iterations over which the rate grows linearly.
        final: Rate at the last iteration, relative to `rate`; it falls there by half a cosine.
    """

    rate: float = 0.1
    momentum: float = 0.0
    warmup: int = 0
    final: float = 1.0

    def begin(self, z: Tensor, seed: int) -> Memory:
        return {"step": torch.zeros_like(z)}

    def advance(self, objective: Objective, z: Tensor, memory: Memory, active: Tensor, iteration: int) -> Advance:
        losses, grads = of_active(objective, z, active)
        memory["step"] = self.momentum * memory["step"] - rate_at(self, iteration) * grads
        moved = objective.coordinates.project(z + memory["step"])
        return Advance(torch.where(active.unsqueeze(-1), moved, z), z, losses, ~active)


@dataclass(frozen=True)
class Adam(Method):
    """Adam [Kingma and Ba 2015]: steps of about `rate` in every coordinate, whatever the size of the gradient.

    Attributes:
        rate: Largest step, in coordinates: a share of the range of bounded unknowns, or of the scale of free ones.
        betas: Decay of the means of gradients and of their squares.
        warmup: As in `SGD`.
        final: As in `SGD`.
    """

    rate: float = 0.05
    betas: tuple[float, float] = (0.9, 0.999)
    warmup: int = 0
    final: float = 1.0

    def begin(self, z: Tensor, seed: int) -> Memory:
        return {"mean": torch.zeros_like(z), "square": torch.zeros_like(z)}

    def advance(self, objective: Objective, z: Tensor, memory: Memory, active: Tensor, iteration: int) -> Advance:
        losses, grads = of_active(objective, z, active)
        first, second = self.betas
        memory["mean"] = first * memory["mean"] + (1 - first) * grads
        memory["square"] = second * memory["square"] + (1 - second) * grads * grads
        mean = memory["mean"] / (1 - first ** (iteration + 1))
        square = memory["square"] / (1 - second ** (iteration + 1))
        least = torch.finfo(z.dtype).tiny ** 0.5
        moved = objective.coordinates.project(z - rate_at(self, iteration) * mean / (square.sqrt() + least))
        return Advance(torch.where(active.unsqueeze(-1), moved, z), z, losses, ~active)


def of_active(objective: Objective, z: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
    """Losses and gradients of the active candidates; of the others infinity and zero."""
    losses, grads = torch.full(z.shape[:1], math.inf, dtype=z.dtype), torch.zeros_like(z)
    if bool(active.any()):
        losses[active], grads[active] = objective.gradients(z[active])
    return losses, grads


def rate_at(method: SGD | Adam, iteration: int) -> float:
    """The rate of an iteration: a linear warm-up, then half a cosine to the final rate."""
    grown = min(1.0, (iteration + 1) / (method.warmup + 1))
    done = iteration / max(1, method.iterations - 1)
    return method.rate * grown * (method.final + (1 - method.final) * 0.5 * (1 + math.cos(math.pi * done)))


def free(coordinates: Coordinates, z: Tensor, grads: Tensor) -> Tensor:
    """Coordinates that may move: not those at a bound that the negative gradient points out of."""
    held = coordinates.bounded & (((z <= 0) & (grads > 0)) | ((z >= 1) & (grads < 0)))
    return ~held
