"""What data determine: covariance of the unknowns, and the combinations that data leave open."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kinema.fitting.coordinates import Coordinates
from kinema.fitting.objective import GaussNewton

OPEN = 0.3  # standard deviation, in coordinates, from which a combination is not determined: a third of its range
ROUNDING = 1e-5  # smallest singular value that means anything, relative to the largest: differences over 1e-6 truncate
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
    words = [_words(coordinates, vectors[:, int(i)]) for i in hidden.nonzero()]
    return Confidence(covariance, std, determined, words)


def _words(coordinates: Coordinates, direction: Tensor) -> str:
    """A direction as the names that move together: "box/mass^1.00 x box/k_e^1.00"."""
    largest = direction[direction.abs().argmax()]
    weights, logs, names = (direction / largest).tolist(), coordinates.logarithmic.tolist(), coordinates.names
    parts = [(n, w, log) for n, w, log in zip(names, weights, logs, strict=True) if abs(w) >= SHOWN]
    parts.sort(key=lambda part: -abs(part[1]))
    if len(parts) == 1:
        return f"{parts[0][0]} alone"
    shown = ", ".join(f"{name} by {weight:+.2f}" for name, weight, _ in parts[:6])
    more = f" and {len(parts) - 6} more" if len(parts) > 6 else ""
    unit = "of the logarithmic range" if all(log for _, _, log in parts) else "of the range"
    return f"{shown}{more} {unit} of each, together"
