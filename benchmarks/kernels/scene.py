"""The scene of the kernel benchmark: a soft block standing on its pinned lowest layer.

All peers use the same law. For an element with corners a, b, c, d:

    F   = [x_b - x_a, x_c - x_a, x_d - x_a] Dm_inv
    psi = mu/2 (I_C - 3) + lam/2 (J - alpha)^2 - mu/2 log(I_C + 1),   I_C = tr(F^T F),  J = det F
    P   = dpsi/dF = mu (1 - 1/(I_C + 1)) F + lam (J - alpha) cof F
    H   = -V P Dm_inv^T,   columns: forces on b, c, d; a gets minus their sum

    v'  = v + dt (f / m + g)  for a free node, 0 for a pinned one
    x'  = x + dt v'

Reference: Smith, de Goes, Kim, "Stable Neo-Hookean Flesh Simulation", 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BLOCKS = {100: (5, 2, 2), 1_000: (10, 5, 4), 10_000: (20, 10, 10), 30_000: (30, 20, 10)}
"""Number of cubes along x, y, z for each number of tetrahedra."""

CUBE = 0.1  # edge [m]
DENSITY = 100.0  # [kg/m^3]
STIFFNESS = 1000.0  # mean of mu and of lam [Pa]
GRAVITY = (0.0, 0.0, -9.81)  # [m/s^2]
# Stability would allow 1e-2 s (sound runs 5.5 m/s, the lowest element is 0.058 m high), but 1000 steps of 1e-3 s
# already see the tall blocks collapse under their weight and turn elements inside out.
DT = 1e-4  # [s]

# Corner 4k + 2j + i of a cube is at (i, j, k). Two mirrored cuts into five; alternating cuts share their diagonals.
_CUT_EVEN = ((0, 1, 2, 4), (3, 1, 2, 7), (5, 1, 4, 7), (6, 2, 4, 7), (1, 2, 4, 7))
_CUT_ODD = ((1, 0, 3, 5), (2, 0, 3, 6), (4, 0, 5, 6), (7, 3, 5, 6), (0, 3, 5, 6))


@dataclass(frozen=True)
class Scene:
    """Arrays of one scene: float32, int32, C order; bit-identical inputs of all peers.

    Attributes:
        tets: Corners a, b, c, d of each element, shape (tets, 4).
        rest_inverse: Dm_inv, inverse of [x_b - x_a, x_c - x_a, x_d - x_a] at rest [1/m], shape (tets, 3, 3).
        volume: Rest volume V [m^3], shape (tets,).
        mu: Resistance to change of shape [Pa], shape (tets,).
        lam: Resistance to change of volume [Pa], shape (tets,).
        alpha: 1 + 3/4 mu/lam, which makes the rest state free of stress; a constant of the
            element: gradients with respect to mu and lam do not pass through it. Shape (tets,).
        inv_mass: 1/m [1/kg], 0 for a pinned node, shape (nodes,).
        x: Positions [m], shape (nodes, 3).
        v: Velocities [m/s], shape (nodes, 3).
        cot_x: Cotangents of the positions after the step, shape (nodes, 3).
        cot_v: Cotangents of the velocities after the step, shape (nodes, 3).
        gravity: Acceleration g [m/s^2], shape (3,).
        dt: Time step [s], exactly a float32.
    """

    tets: np.ndarray
    rest_inverse: np.ndarray
    volume: np.ndarray
    mu: np.ndarray
    lam: np.ndarray
    alpha: np.ndarray
    inv_mass: np.ndarray
    x: np.ndarray
    v: np.ndarray
    cot_x: np.ndarray
    cot_v: np.ndarray
    gravity: np.ndarray
    dt: float

    @property
    def n_tets(self) -> int:
        return len(self.tets)

    @property
    def n_nodes(self) -> int:
        return len(self.x)


def block(nx: int, ny: int, nz: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut nx * ny * nz cubes into five tetrahedra each.

    Returns:
        Positions at rest [m], shape (nodes, 3), and corners with positive volume, shape (5 * cubes, 4).
    """
    grid = np.stack(np.meshgrid(range(nx + 1), range(ny + 1), range(nz + 1), indexing="ij"), axis=-1)
    rest = CUBE * grid.reshape(-1, 3).astype(np.float64)
    number = np.arange(len(rest)).reshape(nx + 1, ny + 1, nz + 1)
    tets = []
    for i, j, k in np.ndindex(nx, ny, nz):
        corners = number[i : i + 2, j : j + 2, k : k + 2].transpose(2, 1, 0).ravel()
        tets.append(corners[np.array(_CUT_ODD if (i + j + k) % 2 else _CUT_EVEN)])
    tets = np.concatenate(tets)
    inverted = np.linalg.det(_edges(rest, tets)) < 0
    tets[inverted] = tets[inverted][:, [0, 1, 3, 2]]
    return rest, tets


def make(n_tets: int, seed: int = 0) -> Scene:
    """Build the scene with `n_tets` elements (one of `BLOCKS`), noise drawn from `seed`."""
    rng = np.random.default_rng(seed)
    rest, tets = block(*BLOCKS[n_tets])
    edges = _edges(rest, tets)
    volume = np.linalg.det(edges) / 6.0
    mass = np.zeros(len(rest))
    np.add.at(mass, tets, (DENSITY * volume / 4.0)[:, None])
    mu = STIFFNESS * rng.uniform(0.8, 1.2, n_tets)
    lam = STIFFNESS * rng.uniform(0.8, 1.2, n_tets)
    free = rest[:, 2] > 0.5 * CUBE
    noise = rng.normal(size=(4, len(rest), 3))
    noise[:2] *= free[:, None]

    def f32(a: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(a, dtype=np.float32)

    return Scene(
        tets=np.ascontiguousarray(tets, dtype=np.int32),
        rest_inverse=f32(np.linalg.inv(edges)),
        volume=f32(volume),
        mu=f32(mu),
        lam=f32(lam),
        alpha=f32(1.0 + 0.75 * mu / lam),
        inv_mass=f32(np.where(free, 1.0 / mass, 0.0)),
        x=f32(rest + 1e-3 * noise[0]),
        v=f32(0.1 * noise[1]),
        cot_x=f32(noise[2]),
        cot_v=f32(noise[3]),
        gravity=f32(np.array(GRAVITY)),
        dt=float(np.float32(DT)),
    )


def _edges(x: np.ndarray, tets: np.ndarray) -> np.ndarray:
    """Edge vectors from corner a as columns, shape (tets, 3, 3)."""
    return np.swapaxes(x[tets[:, 1:]] - x[tets[:, :1]], 1, 2)
