"""Compares a gradient with finite differences of its function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

SIZES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
"""Step sizes per entry [N m], or per control: contact switches spoil long ones, rounding errors short ones.

Robots that start just touching the floor switch within 1e-5: the least error over these step sizes shows whether a
gradient is the derivative of the rollout, not how far the linearisation holds."""


def error(loss: Callable[[np.ndarray], float], torques: np.ndarray, gradient: np.ndarray, seed: int = 3) -> float:
    """Relative error of the slope along one direction, against central differences; the least over step sizes.

    The direction is half the gradient's and half random, so that the slope is of the order of the gradient.
    """
    if not np.isfinite(gradient).all() or not gradient.any():
        return float("nan")
    noise = np.random.default_rng(seed).normal(size=gradient.shape)
    direction = gradient / np.linalg.norm(gradient) + noise / np.linalg.norm(noise)
    direction *= np.sqrt(gradient.size) / np.linalg.norm(direction)
    slope = float(np.vdot(gradient, direction))
    found = [(loss(torques + h * direction) - loss(torques - h * direction)) / (2 * h) for h in SIZES]
    return min(abs(x - slope) / abs(slope) for x in found)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """|a - b| / |b|."""
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))
