"""The reference: the step, its exact adjoint and the rollout in float64 numpy, as plainly as possible."""

from __future__ import annotations

import numpy as np

from . import GRADIENTS
from .scene import Scene


def _cofactor(F: np.ndarray) -> np.ndarray:
    """cof F, columns f1 x f2, f2 x f0, f0 x f1."""
    f0, f1, f2 = (F[:, :, i] for i in range(3))
    return np.stack([np.cross(f1, f2), np.cross(f2, f0), np.cross(f0, f1)], axis=-1)


def _cofactor_adjoint(F: np.ndarray, C_bar: np.ndarray) -> np.ndarray:
    """Gradient of <C_bar, cof F> with respect to F."""
    f0, f1, f2 = (F[:, :, i] for i in range(3))
    p0, p1, p2 = (C_bar[:, :, i] for i in range(3))
    columns = [
        np.cross(p1, f2) + np.cross(f1, p2),
        np.cross(f2, p0) + np.cross(p2, f0),
        np.cross(p0, f1) + np.cross(f0, p1),
    ]
    return np.stack(columns, axis=-1)


def _deformation(scene: Scene, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """F, I_C, J and cof F of every element."""
    corners = x[scene.tets]
    Ds = np.swapaxes(corners[:, 1:] - corners[:, :1], 1, 2)
    F = Ds @ scene.rest_inverse.astype(np.float64)
    C = _cofactor(F)
    return F, (F * F).sum((1, 2)), (F[:, :, 0] * C[:, :, 0]).sum(1), C


def _scatter(scene: Scene, columns: np.ndarray, out: np.ndarray) -> None:
    """Add the columns of (tets, 3, 3) to corners b, c, d and minus their sum to corner a."""
    on_bcd = np.swapaxes(columns, 1, 2)
    np.add.at(out, scene.tets[:, 1:], on_bcd)
    np.add.at(out, scene.tets[:, 0], -on_bcd.sum(1))


def energy(scene: Scene, x: np.ndarray) -> float:
    """Elastic energy of the block [J]; the forces are minus its gradient."""
    mu, lam, alpha, volume = (a.astype(np.float64) for a in (scene.mu, scene.lam, scene.alpha, scene.volume))
    _, I_C, J, _ = _deformation(scene, x)
    psi = 0.5 * mu * (I_C - 3) + 0.5 * lam * (J - alpha) ** 2 - 0.5 * mu * np.log(I_C + 1)
    return float(psi @ volume)


def forces(scene: Scene, x: np.ndarray, mu: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """Elastic forces on the nodes [N], shape (nodes, 3)."""
    F, I_C, J, C = _deformation(scene, x)
    a = mu * (1 - 1 / (I_C + 1))
    b = lam * (J - scene.alpha.astype(np.float64))
    P = a[:, None, None] * F + b[:, None, None] * C
    H = -scene.volume.astype(np.float64)[:, None, None] * P @ np.swapaxes(scene.rest_inverse.astype(np.float64), 1, 2)
    f = np.zeros_like(x)
    _scatter(scene, H, f)
    return f


def step(
    scene: Scene,
    x: np.ndarray | None = None,
    v: np.ndarray | None = None,
    mu: np.ndarray | None = None,
    lam: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """One semi-implicit Euler step; omitted arguments are the scene's.

    Returns:
        x' [m] and v' [m/s], float64, shape (nodes, 3).
    """
    x, v, mu, lam = _inputs(scene, x, v, mu, lam)
    inv_mass = scene.inv_mass.astype(np.float64)[:, None]
    acceleration = forces(scene, x, mu, lam) * inv_mass + scene.gravity.astype(np.float64)
    v_next = np.where(inv_mass > 0, v + scene.dt * acceleration, 0.0)
    return x + scene.dt * v_next, v_next


def vjp(
    scene: Scene,
    cot_x: np.ndarray,
    cot_v: np.ndarray,
    x: np.ndarray | None = None,
    v: np.ndarray | None = None,
    mu: np.ndarray | None = None,
    lam: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Gradients of <cot_x, x'> + <cot_v, v'> with respect to x, v, mu and lam; omitted arguments are the scene's.

    Gradients:
        Exact, by hand; alpha is a constant.
    """
    x, v, mu, lam = _inputs(scene, x, v, mu, lam)
    cot_x, cot_v = np.asarray(cot_x, dtype=np.float64), np.asarray(cot_v, dtype=np.float64)
    inv_mass = scene.inv_mass.astype(np.float64)[:, None]
    v_bar = np.where(inv_mass > 0, cot_v + scene.dt * cot_x, 0.0)
    f_bar = scene.dt * inv_mass * v_bar

    Dm_inv = scene.rest_inverse.astype(np.float64)
    F, I_C, J, C = _deformation(scene, x)
    H_bar = np.swapaxes(f_bar[scene.tets[:, 1:]] - f_bar[scene.tets[:, :1]], 1, 2)
    P_bar = -scene.volume.astype(np.float64)[:, None, None] * H_bar @ Dm_inv
    FP, CP = (F * P_bar).sum((1, 2)), (C * P_bar).sum((1, 2))
    s = 1 / (I_C + 1)
    dJ = J - scene.alpha.astype(np.float64)
    F_bar = (
        (mu * (1 - s))[:, None, None] * P_bar
        + (2 * mu * s * s * FP)[:, None, None] * F
        + (lam * CP)[:, None, None] * C
        + (lam * dJ)[:, None, None] * _cofactor_adjoint(F, P_bar)
    )
    x_bar = cot_x.copy()
    _scatter(scene, F_bar @ np.swapaxes(Dm_inv, 1, 2), x_bar)
    return {"x": x_bar, "v": v_bar, "mu": (1 - s) * FP, "lam": dJ * CP}


def rollout(
    scene: Scene, steps: int, cot_x: np.ndarray, cot_v: np.ndarray
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """`steps` steps, then the gradients of the final state: x, v and the gradients by name."""
    x, v, mu, lam = _inputs(scene, None, None, None, None)
    states = [(x, v)]
    for _ in range(steps):
        states.append(step(scene, *states[-1]))
    total = {"x": cot_x, "v": cot_v, "mu": np.zeros_like(mu), "lam": np.zeros_like(lam)}
    for x, v in reversed(states[:-1]):
        local = vjp(scene, total["x"], total["v"], x, v)
        total = {"x": local["x"], "v": local["v"], "mu": total["mu"] + local["mu"], "lam": total["lam"] + local["lam"]}
    return *states[-1], total


def relative_error(value: np.ndarray, exact: np.ndarray) -> float:
    """|value - exact| / |exact| in the Euclidean norm."""
    return float(np.linalg.norm(np.asarray(value, dtype=np.float64) - exact) / np.linalg.norm(exact))


def gradient_error(gradients: dict[str, np.ndarray], exact: dict[str, np.ndarray]) -> float:
    """The largest relative error among the gradients with respect to x, v, mu and lam."""
    return max(relative_error(gradients[name], exact[name]) for name in GRADIENTS)


def _inputs(scene: Scene, *given: np.ndarray | None) -> tuple[np.ndarray, ...]:
    own = (scene.x, scene.v, scene.mu, scene.lam)
    return tuple(np.asarray(o if g is None else g, dtype=np.float64) for o, g in zip(own, given, strict=True))
