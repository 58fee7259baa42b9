"""The averaged law of compliant contact along the normal, in plain numpy, from its definition as means over ways."""

from __future__ import annotations

import numpy as np


def mean_over(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of depths [m] from `low` to `high`: the share that is positive, and the mean of what is."""
    way = np.maximum(high - low, 1e-300)
    inside, above = np.maximum(high, 0.0), np.maximum(low, 0.0)
    still = (high > 0).astype(float), inside
    share, mean = (inside - above) / way, (inside - above) * (inside + above) / (2 * way)
    return np.where(high > low, share, still[0]), np.where(high > low, mean, still[1])


def normal_force(
    depth: np.ndarray, v_n: np.ndarray, dt: float, k_e: np.ndarray, k_d: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Force along the normal [N], what of it rubs [N], and for which share of the step [-].

    Depths are those of the step around now; damping and friction of what approaches are those of the way that led here,
    whose mean depth is carried on by half a step.
    """
    half = 0.5 * dt * np.abs(v_n)
    share, mean = mean_over(depth - half, depth + half)
    press = k_e * mean
    behind, before = mean_over(depth - 2 * half, depth)
    damped = k_d * np.abs(v_n) * behind
    rubs = k_e * (before + behind * half) + damped
    closing = v_n < 0
    return press + np.where(closing, damped, 0.0), np.where(closing, rubs, press), np.where(closing, behind, share)


def piece_of(depth: np.ndarray, v_n: np.ndarray, dt: float) -> np.ndarray:
    """Between which kinks of the law a depth [m] is; 0 where nothing touches.

    Damping and friction of what approaches have kinks at depths of 0 and w, friction of what parts at -w/2 and w/2.
    What presses is smooth there.
    """
    way = dt * np.abs(v_n)
    closing = (depth > 0).astype(int) + (depth > way)
    parting = (depth > -0.5 * way).astype(int) + (depth > 0.5 * way)
    return np.where(v_n < 0, 3 * closing, parting)
