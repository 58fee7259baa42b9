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
    """Which piece of the law holds: 0 apart, then by depths of -w/2, 0, w/2 and w, and whether things approach."""
    way = dt * np.abs(v_n)
    passed = sum((depth > share * way).astype(int) for share in (-0.5, 0.0, 0.5, 1.0))
    return passed * (1 + 4 * (v_n < 0))
