"""Quadratic programs with bounds, by projected Newton steps, for a batch of small ones."""

from __future__ import annotations

import numpy as np

ITERATIONS, SHRINK, ENOUGH = 40, 0.5, 0.1  # at most, of step sizes, of the predicted decrease


def box_qp(
    H: np.ndarray, g: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Minimise g.x + x.H x / 2 with low <= x <= high [Tassa et al. 2014, sec. III].

    Args:
        H: Symmetric matrices, shape (b, m, m).
        g: Shape (b, m).
        low: Shape (m,), not positive.
        high: Shape (m,), not negative.

    Returns:
        x, shape (b, m); free, whether each variable is strictly within its bounds or fixed by none, shape (b, m), bool;
        solved, whether the matrix of the free variables is positive definite, shape (b,), bool.
    """
    x, free = np.zeros_like(g), np.ones(g.shape, bool)
    solved = np.ones(len(g), bool)
    active = solved.copy()
    for _ in range(ITERATIONS):
        slope = g + (H @ x[..., None])[..., 0]
        now = ~(((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0)) | (low == high))
        free = np.where(active[:, None], now, free)
        step, well = _newton(H, np.where(free, slope, 0.0), free)
        solved &= well | ~active
        small = np.abs(np.where(free, step, 0.0)).max(1, initial=0.0) <= 1e-12 * (1.0 + np.abs(x).max(1, initial=0.0))
        active &= solved & ~small
        if not active.any():
            break
        x = _search(H, g, x, slope, np.where(active[:, None], step, 0.0), low, high)
    return x, free, solved


def _newton(H: np.ndarray, slope: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Newton steps of the free variables; whether their matrices are positive definite."""
    masked = masked_matrix(H, free)
    step, well = np.zeros_like(slope), np.ones(len(slope), bool)
    try:
        np.linalg.cholesky(masked)
        return -np.linalg.solve(masked, slope[..., None])[..., 0], well
    except np.linalg.LinAlgError:
        for i, matrix in enumerate(masked):
            try:
                np.linalg.cholesky(matrix)
                step[i] = -np.linalg.solve(matrix, slope[i])
            except np.linalg.LinAlgError:
                well[i] = False
    return step, well


def masked_matrix(H: np.ndarray, free: np.ndarray) -> np.ndarray:
    """The matrix of the free variables, with the identity for all others."""
    both = free[..., :, None] & free[..., None, :]
    return np.where(both, H, np.eye(H.shape[-1]))


def _search(
    H: np.ndarray, g: np.ndarray, x: np.ndarray, slope: np.ndarray, step: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Projected steps, shortened until they decrease the function as their slope predicts."""
    size, undone = np.ones(len(x)), np.ones(len(x), bool)
    best = x.copy()
    for _ in range(30):
        tried = np.clip(x + size[:, None] * step, low, high)
        moved = tried - x
        change = (moved * (slope + 0.5 * (H @ moved[..., None])[..., 0])).sum(1)
        fine = change <= ENOUGH * (moved * slope).sum(1)
        best = np.where((undone & fine)[:, None], tried, best)
        undone &= ~fine
        if not undone.any():
            break
        size = np.where(undone, SHRINK * size, size)
    return best
