"""Neo-Hookean tetrahedra: forces against numpy and the energy, conservation, gradients of rollouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.support import masses, soft_block

import kinema as kn
from kinema.lang.autograd.rollout import rollout

PROGRAM, MESH = soft_block((3, 2, 2))
TETS, VERTICES = len(MESH.tets), len(MESH.vertices)
DT = 1e-3  # a fifth of what sound (8 m/s) needs to cross an element


def inputs(stretch: float = 0.02, speed: float = 0.3, pinned: bool = True) -> dict[str, torch.Tensor]:
    """A block that is deformed and moves at random, with stiffness and mass that differ between elements."""
    rng = np.random.default_rng(0)
    mu, lam = 2000.0 * rng.uniform(0.8, 1.2, (2, TETS))
    inv_mass = 1.0 / masses(MESH, 100.0 * rng.uniform(0.8, 1.2, TETS))
    if pinned:
        inv_mass[:2] = 0.0
    found = {
        "x": MESH.vertices + stretch * rng.normal(size=(VERTICES, 3)),
        "v": speed * rng.normal(size=(VERTICES, 3)),
        "mu": mu,
        "lam": lam,
        "alpha": 1.0 + 0.75 * mu / lam,
        "inv_mass": inv_mass,
        "gravity": np.array([0.3, -0.2, -9.81]),
        "dt": np.array(DT),
    }
    return {k: torch.tensor(a) for k, a in found.items()}


def simulate(t: dict[str, torch.Tensor], steps: int, **options: Any):
    state = {k: t[k] for k in ("x", "v")}
    return rollout(
        PROGRAM, steps, state, {k: a for k, a in t.items() if k not in state}, options=kn.RunOptions(**options)
    )


def forces(t: dict[str, torch.Tensor]) -> np.ndarray:
    """Elastic forces: a step of 1 s of unit masses without gravity."""
    one = {"inv_mass": torch.ones(VERTICES, dtype=torch.float64), "gravity": torch.zeros(3, dtype=torch.float64)}
    after = simulate({**t, **one, "dt": torch.tensor(1.0, dtype=torch.float64)}, 1).final
    return (after["v"] - t["v"]).numpy()


def deformation(x: np.ndarray) -> np.ndarray:
    edges = np.swapaxes(x[MESH.tets[:, 1:]] - x[MESH.tets[:, :1]], 1, 2)
    return edges @ MESH.rest_inverse


def energy(x: np.ndarray, t: dict[str, torch.Tensor]) -> float:
    """Elastic energy [J] [Smith et al. 2018, eq. 13]."""
    F = deformation(x)
    I_C, J = np.einsum("eij,eij->e", F, F), np.linalg.det(F)
    mu, lam, alpha = (t[k].numpy() for k in ("mu", "lam", "alpha"))
    psi = 0.5 * mu * (I_C - 3) + 0.5 * lam * (J - alpha) ** 2 - 0.5 * mu * np.log(I_C + 1)
    return float(MESH.volume @ psi)


def reference_forces(x: np.ndarray, t: dict[str, torch.Tensor]) -> np.ndarray:
    """P = mu (1 - 1/(I_C + 1)) F + lam (J - alpha) cof F, and H = -V P D_m^-T."""
    F = deformation(x)
    I_C, J = np.einsum("eij,eij->e", F, F), np.linalg.det(F)
    mu, lam, alpha = (t[k].numpy() for k in ("mu", "lam", "alpha"))
    cofactor = J[:, None, None] * np.linalg.inv(F).swapaxes(1, 2)
    P = (mu * (1 - 1 / (I_C + 1)))[:, None, None] * F + (lam * (J - alpha))[:, None, None] * cofactor
    H = -MESH.volume[:, None, None] * P @ MESH.rest_inverse.swapaxes(1, 2)
    f = np.zeros_like(x)
    for corner in range(3):
        np.add.at(f, MESH.tets[:, corner + 1], H[:, :, corner])
        np.add.at(f, MESH.tets[:, 0], -H[:, :, corner])
    return f


def test_forces_agree_with_numpy():
    t = inputs()
    expected = reference_forces(t["x"].numpy(), t)
    np.testing.assert_allclose(forces(t), expected, atol=1e-12 * np.abs(expected).max())


def test_forces_are_the_gradient_of_the_energy():
    t = inputs()
    x, f, h = t["x"].numpy(), forces(t), 1e-6
    for i, k in np.ndindex(5, 3):
        step = np.zeros_like(x)
        step[i, k] = h
        slope = (energy(x + step, t) - energy(x - step, t)) / (2 * h)
        assert abs(f[i, k] + slope) <= 1e-7 * np.abs(f).max()


def test_at_rest_there_is_no_force():
    t = inputs(stretch=0.0)
    # Stresses of 1e3 Pa on faces of 1e-2 m^2 cancel to rounding.
    assert np.abs(forces(t)).max() <= 1e-13 * 1e3


def test_a_rotated_block_at_rest_has_no_force():
    t = inputs(stretch=0.0)
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
    turn *= np.sign(np.linalg.det(turn))
    t["x"] = torch.tensor(MESH.vertices @ turn.T)
    assert np.abs(forces(t)).max() <= 1e-12 * 1e3


def test_a_free_block_keeps_its_momentum():
    """Semi-implicit Euler keeps linear and angular momentum of internal forces, up to rounding."""
    t = inputs(pinned=False)
    t["gravity"] = torch.zeros(3, dtype=torch.float64)
    after = simulate(t, 500).final
    mass = (1.0 / t["inv_mass"])[:, None]
    moved = (after["x"] - t["x"]).abs().max()
    assert moved > 0.01

    def momenta(s):
        return (mass * s["v"]).sum(0), (mass * torch.linalg.cross(s["x"], s["v"])).sum(0)

    scale = float((mass * t["v"].norm(dim=1, keepdim=True)).sum())
    for before, now in zip(momenta(t), momenta(after), strict=True):
        assert float((before - now).abs().max()) <= 1e-12 * scale


@pytest.mark.parametrize(("steps", "tolerance"), [(1, 1e-7), (32, 1e-6), (256, 1e-5)])
def test_gradients_of_rollouts(steps: int, tolerance: float, gradient_errors):
    t = inputs()
    weight = torch.tensor(np.random.default_rng(1).normal(size=(2, VERTICES, 3)))

    def loss(leaves):
        after = simulate(leaves, steps).final
        return (after["x"] * weight[0]).sum() + 0.1 * (after["v"] * weight[1]).sum()

    # Mass by itself: the pinned vertices have inv_mass 0, where the step may not go negative.
    free = t["inv_mass"] > 0
    differentiated = {**t, "inv_mass": t["inv_mass"][free]}

    def of_free(leaves):
        whole = torch.zeros(VERTICES, dtype=torch.float64).masked_scatter(free, leaves["inv_mass"])
        return loss({**leaves, "inv_mass": whole})

    errors = gradient_errors(of_free, differentiated, h=1e-6)
    assert max(errors.values()) <= tolerance, errors


def test_checkpoints_do_not_change_a_bit():
    results = []
    for checkpoint in (1, 7):
        t = {k: a.requires_grad_() for k, a in inputs().items()}
        end = simulate(t, 50, checkpoint=checkpoint).final
        results.append([end["x"], *torch.autograd.grad(end["x"].square().sum(), list(t.values()))])
    for one, seven in zip(*results, strict=True):
        assert torch.equal(one, seven)
