"""A plain twin of a step of smoke, in torch: whole-array indexing, autograd, a dense pressure solve."""

from __future__ import annotations

import torch
from torch import Tensor

import kinema as kn


def around(box: kn.SmokeBox, axis: int, x: Tensor, top: int) -> tuple[Tensor, Tensor, Tensor]:
    """The two samples around x, and the share of the second."""
    n = box.cells[axis]
    if box.wraps[axis]:
        x, top = x - n * torch.floor(x.detach() / n), n
    x = x.clamp(0, top)
    first = x.detach().floor().clamp(0, top - 1)
    i = first.long()
    return i, (i + 1) % n, x - first


def sampled(box: kn.SmokeBox, field: Tensor, x: Tensor, y: Tensor, top_x: int, top_y: int) -> Tensor:
    """A field between its samples."""
    i, i2, a = around(box, 0, x, top_x)
    j, j2, b = around(box, 1, y, top_y)
    low, high = ((1 - a) * field[i, k] + a * field[i2, k] for k in (j, j2))
    return (1 - b) * low + b * high


def paths(box: kn.SmokeBox, u: Tensor, v: Tensor, rate: float) -> dict[str, tuple[Tensor, Tensor]]:
    """Where left faces, lower faces and middles of cells come from, in samples."""
    nx, ny = box.cells
    x, y = torch.meshgrid(torch.arange(nx), torch.arange(ny), indexing="ij")
    across = (v + v.roll(1, 0) + v.roll(-1, 1) + v.roll((1, -1), (0, 1))) / 4
    along = (u + u.roll(-1, 0) + u.roll(1, 1) + u.roll((-1, 1), (0, 1))) / 4
    return {
        "u": (x - rate * u, y - rate * across),
        "v": (x - rate * along, y - rate * v),
        "cell": (x - rate * (u + u.roll(-1, 0)) / 2, y - rate * (v + v.roll(-1, 1)) / 2),
    }


def divergence_matrix(box: kn.SmokeBox) -> Tensor:
    """Divergence (times the width of a cell) as a matrix, without the columns of walls being anything but 0."""
    n = 2 * box.cells[0] * box.cells[1]
    unit = torch.eye(n, dtype=torch.float64).reshape(n, 2, *box.cells)
    return (box.divergence(unit) * box.cell).reshape(n, -1).T


def projector(box: kn.SmokeBox) -> Tensor:
    """The orthogonal projection to velocities without divergence and flow through walls, as a matrix."""
    D = divergence_matrix(box)
    free = (D.abs().sum(0) > 0).double()
    return torch.diag(free) - torch.linalg.pinv(D, rtol=1e-12) @ D


def smoke(
    box: kn.SmokeBox,
    density: Tensor,
    velocity: Tensor,
    force: Tensor,
    buoyancy: Tensor,
    dt: float,
    conserve: bool = False,
) -> tuple[Tensor, Tensor]:
    """Density (1, nx, ny) and velocity after as many steps as there are forces."""
    nx, ny = box.cells
    P, rate, d = projector(box), dt / box.cell, density[0]
    velocity = (P @ velocity.reshape(-1)).reshape(2, nx, ny)
    for f in force:
        u, v = velocity
        way = paths(box, u, v, rate)
        carried = torch.stack((sampled(box, u, *way["u"], nx, ny - 1), sampled(box, v, *way["v"], nx - 1, ny)))
        up = torch.stack((torch.zeros_like(d), buoyancy[0] * (d + d.roll(1, 1)) / 2))
        velocity = (P @ (carried + dt * (f + up)).reshape(-1)).reshape(2, nx, ny)
        if not conserve:
            d = sampled(box, d, *paths(box, *velocity, rate)["cell"], nx - 1, ny - 1)
            continue
        u, v = velocity
        flux_x = torch.where(u > 0, u * d.roll(1, 0), u * d)
        flux_y = torch.where(v > 0, v * d.roll(1, 1), v * d)
        d = d - rate * (flux_x.roll(-1, 0) - flux_x + flux_y.roll(-1, 1) - flux_y)
    return d[None], velocity


def near_borders(box: kn.SmokeBox, velocities: Tensor, rate: float, within: float) -> tuple[int, int]:
    """How many coordinates of all steps are within so many cells of a border of interpolation, and how many there are.

    Faces of walls are always on one, and do not move.
    """
    near = total = 0
    for u, v in velocities:
        for x, y in paths(box, u, v, rate).values():
            off = torch.stack([(z - z.round()).abs() for z in (x, y)])
            near += int(((off < within) & (off > 0)).sum())
            total += off.numel()
    return near, total
