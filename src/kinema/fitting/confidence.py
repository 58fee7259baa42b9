"""What data determine: covariance of the unknowns, and the combinations that data leave open."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kinema.fitting.coordinates import Coordinates
from kinema.fitting.objective import GaussNewton

OPEN = 0.3  # standard deviation, in coordinates, from which a combination is not determined: a third of its range
ROUNDING = 1e-5  # smallest singular value that means anything, relative to the largest: differences over 1e-6 truncate
LISTED = 6  # names of a combination
SHOWN = 0.2  # smallest weight of an unknown that a combination names


class Confidence(NamedTuple):
    """Accuracy of the unknowns of a fit.

    Attributes:
        covariance: Of the coordinates, s^2 (J^T J)^-1 with s^2 the variance of residuals, shape (n, n); along
            combinations that are not determined it is that of a uniform draw from their range.
        std: Standard deviation of each number, in its own units, shape (n,).
        determined: Whether data determine each number, shape (n,).
        combinations: Combinations that are not determined, in words.
    """

    covariance: Tensor
    std: Tensor
    determined: Tensor
    combinations: list[str]


def confidence(coordinates: Coordinates, z: Tensor, model: GaussNewton, floor: float | None) -> Confidence:
    """Accuracy from the Gauss-Newton model at a solution.

    Args:
        coordinates: The unknowns.
        z: The solution.
        model: Its model.
        floor: Sum of squares that noise leaves, if it is known: the variance of residuals is that of the larger of
            both, because fewer residuals than noise leaves means that the fit is closer than the data warrant.
    """
    freedom = max(1, model.seen - len(z))
    variance = max(model.loss, floor or 0.0) / freedom
    values, vectors = torch.linalg.eigh(0.5 * (model.A + model.A.T))
    values = values.clamp_min(0.0)
    deviation = torch.sqrt(variance / values.clamp_min(1e-300))
    hidden = (deviation > OPEN) | (values <= ROUNDING**2 * values[-1])
    inner = torch.where(hidden, 1.0 / 12.0, deviation.square())
    covariance = vectors @ torch.diag(inner) @ vectors.T
    determined = (
        (vectors[:, hidden].square().sum(1) < SHOWN**2) if bool(hidden.any()) else torch.ones(len(z), dtype=torch.bool)
    )
    std = covariance.diagonal().sqrt() * coordinates.slopes(z).abs()
    return Confidence(covariance, std, determined, _combinations(coordinates, vectors[:, hidden].T))


def _combinations(coordinates: Coordinates, directions: Tensor) -> list[str]:
    """Directions in words: the names that move together, and first those that move alone."""
    alone, found, names = [], [], coordinates.names
    for direction in directions:
        weights = direction / direction[direction.abs().argmax()]
        order = [int(i) for i in weights.abs().argsort(descending=True) if abs(weights[i]) >= SHOWN]
        if len(order) == 1:
            alone.append(names[order[0]])
            continue
        parts = ", ".join(f"{names[i]} by {float(weights[i]):+.2f}" for i in order[:LISTED])
        more = f" and {len(order) - LISTED} more" if len(order) > LISTED else ""
        logs = bool(coordinates.logarithmic[order].all())
        found.append(f"{parts}{more} of {'the logarithmic range' if logs else 'the range'} of each, together")
    return [", ".join(dict.fromkeys(alone))] * bool(alone) + found
