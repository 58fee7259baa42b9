"""Levenberg-Marquardt and Gauss-Newton within bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kinema.fitting.methods import Advance, Memory, Method, free
from kinema.fitting.objective import GaussNewton, Objective

TRIALS = 6  # dampings per iteration
UP, DOWN = 4.0, 0.2  # factors of the damping after a failure and after a success
LEAST, MOST = 1e-12, 1e8  # damping
HIDDEN = 1e-10  # eigenvalue, relative to the largest, of directions that do not move: rounding of differences
SHARE, FAILED = 0.1, 0.1  # length of differences: relative to the last step, and to the one before after a failure
EXACT = 1e-4  # length of differences below which derivatives are exact
SMALLEST = 1e-10  # step, in coordinates, below which a candidate has converged


@dataclass(frozen=True)
class LM(Method):
    """Levenberg-Marquardt: (A + damping diag(A)) d = -g, with A = J^T J and g = J^T r [Marquardt 1963].

    Far from the solution, the Jacobian consists of differences as long as a tenth of the last step: secants, which pass
    over the small bumps that pixels and contacts put on a loss. Below 1e-4 it is exact, by forward mode (decision 018).
    The damping of each candidate falls after a step that lowers the loss, and grows until one does. Coordinates at a
    bound that the step would leave are held there.

    Attributes:
        damping: At the first iteration; 0 is Gauss-Newton, which only damps steps that fail.
        longest: Length of differences at the first iteration, in coordinates; 0 for forward mode throughout.
        shortest: Differences are never shorter, in coordinates, and forward mode is not used: for predictions that jump
            or have none.
    """

    damping: float = 1e-2
    longest: float = 1e-3
    shortest: float | None = None

    def begin(self, z: Tensor, seed: int) -> Memory:
        ones = torch.ones(z.shape[:1], dtype=z.dtype)
        return {"damping": self.damping * ones, "length": self._limited(self.longest * ones)}

    def advance(self, objective: Objective, z: Tensor, memory: Memory, active: Tensor, iteration: int) -> Advance:
        before_all, z = z, z.clone()
        damping, lengths = memory["damping"], memory["length"]
        losses = torch.full(z.shape[:1], math.inf, dtype=z.dtype)
        ended = ~active
        models: dict[int, GaussNewton] = {}
        places = [int(i) for i in active.nonzero()]
        for i, model in zip(places, objective.models(z[active], lengths[active]) if places else [], strict=True):
            if model is None:
                ended[i] = True
            else:
                models[i], losses[i] = model, model.loss
        left = list(models)
        for _ in range(TRIALS):
            if not left:
                break
            tried = torch.stack([self._moved(objective, z[i], models[i], float(damping[i])) for i in left])
            found = objective.losses(tried)
            again = []
            for i, candidate, loss in zip(left, tried, found, strict=True):
                before, moved = float(losses[i]), float((candidate - z[i]).abs().max())
                if float(loss) < before:
                    z[i], losses[i] = candidate, loss
                    damping[i] = max(LEAST, float(damping[i]) * DOWN) if self.damping else 0.0
                    short = float(lengths[i]) <= (self.shortest or 0.0)
                    ended[i] = short and before - float(loss) < self.tolerance * before
                elif moved < SMALLEST:
                    ended[i] = True
                else:
                    damping[i] = min(MOST, max(float(damping[i]) * UP, 1e-3))
                    again.append(i)
            left = again
        for i in left:  # no damping lowers the loss: differences are too long, or it is rounding
            ended[i] = float(lengths[i]) <= (self.shortest or 0.0)
        step = (z - before_all).abs().amax(1)
        lengths.copy_(self._limited(torch.where(step > 0, SHARE * step, FAILED * lengths)))
        return Advance(z, z, losses, ended)

    def _limited(self, lengths: Tensor) -> Tensor:
        """Lengths of differences within their limits; zero for forward mode."""
        lengths = lengths.clamp_max(self.longest)
        if self.shortest is not None:
            return lengths.clamp_min(self.shortest)
        return torch.where(lengths < EXACT, 0.0, lengths)

    def _moved(self, objective: Objective, z: Tensor, model: GaussNewton, damping: float) -> Tensor:
        """The candidate after a damped step, with coordinates that would leave the bounds held at them."""
        coordinates = objective.coordinates
        moving = free(coordinates, z, model.g)
        scale = model.A.diagonal().clamp_min(1e-12 * float(model.A.diagonal().max().clamp_min(1e-300)))
        for _ in range(3):
            at = moving.nonzero().squeeze(-1)
            if not len(at):
                return z
            matrix = model.A[at][:, at] + torch.diag(damping * scale[at])
            step = torch.zeros_like(z)
            solved = torch.linalg.lstsq(matrix, model.g[at].unsqueeze(-1), rcond=HIDDEN, driver="gelsd").solution
            step[at] = -solved.squeeze(-1)
            target = z + step
            out = coordinates.bounded & moving & ((target < 0) | (target > 1))
            if not bool(out.any()):
                break
            # The step to the bound of these is taken, and the others are solved again without them.
            bound = coordinates.project(target)
            model = _held(model, (bound - z) * out)
            z = torch.where(out, bound, z)
            moving = moving & ~out
        return coordinates.project(z + step * moving)


def _held(model: GaussNewton, step: Tensor) -> GaussNewton:
    """The model about the point that some coordinates have moved to."""
    return model._replace(g=model.g + model.A @ step)
