"""The backward sweep of control-limited DDP: a step of the controls and feedback gains from a quadratic model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kinema.planning.box_qp import box_qp, masked_matrix
from kinema.planning.cost import Quadratic


class Expansion(NamedTuple):
    """The problem to second order about a motion, knot by knot, of displacements z = (state, controls).

    Attributes:
        F: Jacobian of a knot, shape (knots, n, n + m).
        g: Slope of the running costs of a knot, shape (knots, n + m).
        H: Their curvature, shape (knots, n + m, n + m).
        end_g: Slope of the final cost, shape (n,).
        end_H: Its curvature, shape (n, n).
    """

    F: np.ndarray
    g: np.ndarray
    H: np.ndarray
    end_g: np.ndarray
    end_H: np.ndarray


class Policy(NamedTuple):
    """Changes of the controls for each damping.

    Attributes:
        change: Shape (dampings, knots, m).
        gains: Shape (dampings, knots, m, n).
        slope: Predicted derivative of the cost along the change, shape (dampings,); not positive.
        curvature: Predicted second derivative along it.
        solved: Whether all matrices were positive definite, shape (dampings,).
    """

    change: np.ndarray
    gains: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray
    solved: np.ndarray


def expand(A: Tensor, B: Tensor, running: Quadratic, final: Quadratic, inner: int, substeps: int) -> Expansion:
    """Compose the Jacobians of the fine steps of each knot, and collect their running costs.

    Args:
        A: Shape (fine steps, n, n).
        B: Shape (fine steps, n, m).
        running: At the start of each whole step.
        final: At the end.
        inner: Number of fine steps in a knot.
        substeps: Number of fine steps in a whole step.
    """
    n, m = B.shape[-2:]
    knots, size = len(A) // inner, n + m
    step = torch.cat([A, B], -1).double().unflatten(0, (knots, inner))
    slopes = running.g.double().unflatten(0, (knots, inner // substeps))
    curves = running.H.double().unflatten(0, (knots, inner // substeps))
    T = torch.eye(size, dtype=torch.float64).repeat(knots, 1, 1)
    g, H = slopes[:, 0], curves[:, 0]
    for j in range(inner):
        if j and j % substeps == 0:
            at = j // substeps
            g = g + (T.mT @ slopes[:, at].unsqueeze(-1)).squeeze(-1)
            H = H + T.mT @ curves[:, at] @ T
        T = torch.cat([step[:, j] @ T, T[:, n:]], 1)
    parts = T[:, :n], g, H, final.g.double(), final.H.double()
    return Expansion(*(part.detach().contiguous().numpy() for part in parts))


def sweep(model: Expansion, low: np.ndarray, high: np.ndarray, dampings: np.ndarray, scale: np.ndarray) -> Policy:
    """Solve the damped problem backwards in time.

    For every knot, with the value V of its end, minimise over changes du within the bounds

        Q(ds, du) + damping |du / scale|^2 / 2,   Q = g.z + z.H z / 2 + V(F z),

    whose minimiser is du = change + gains ds; the gains of controls at their bounds are zero [Tassa et al. 2014].

    Args:
        model: The problem to second order.
        low: Lower bounds of changes, shape (knots, m).
        high: Upper bounds.
        dampings: Shape (d,).
        scale: Sizes of the controls, shape (m,).
    """
    knots, n, size = model.F.shape
    m, count = size - n, len(dampings)
    damped = dampings[:, None, None] * np.diag(scale**-2.0)
    change, gains = np.zeros((count, knots, m)), np.zeros((count, knots, m, n))
    slope, curvature, solved = np.zeros(count), np.zeros(count), np.ones(count, bool)
    g, H = np.repeat(model.end_g[None], count, 0), np.repeat(model.end_H[None], count, 0)
    for k in range(knots - 1, -1, -1):
        F = model.F[k]
        q = model.g[k] + g @ F
        Q = model.H[k] + F.T @ (H @ F)
        Quu, Qus, qu = Q[:, n:, n:], Q[:, n:, :n], q[:, n:]
        curved = Quu + damped
        curved = 0.5 * (curved + curved.transpose(0, 2, 1))
        with np.errstate(all="ignore"):
            du, free, well = box_qp(np.where(solved[:, None, None], curved, np.eye(m)), qu, low[k], high[k])
            K = -np.linalg.solve(masked_matrix(np.where(well[:, None, None], curved, np.eye(m)), free), Qus)
        solved &= well
        K = np.where(free[..., None], K, 0.0)
        change[:, k], gains[:, k] = du, K
        slope += (du * qu).sum(1)
        Qd = (Quu @ du[..., None])[..., 0]
        curvature += (du * Qd).sum(1)
        Kt = K.transpose(0, 2, 1)
        g = q[:, :n] + (Kt @ (Qd + qu)[..., None])[..., 0] + (Qus.transpose(0, 2, 1) @ du[..., None])[..., 0]
        cross = Kt @ Qus
        H = Q[:, :n, :n] + Kt @ Quu @ K + cross + cross.transpose(0, 2, 1)
        H = 0.5 * (H + H.transpose(0, 2, 1))
        solved &= np.isfinite(g).all(1) & np.isfinite(H).all((1, 2))
        keep = solved[:, None]
        g, H = np.where(keep, g, 0.0), np.where(keep[..., None], H, 0.0)
    return Policy(change, gains, slope, curvature, solved)
