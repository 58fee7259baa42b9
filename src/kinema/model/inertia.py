"""Log-Cholesky parameters of mass and inertia: ten unconstrained numbers per body, always physical.

A rigid body is a mass distribution. Its pseudo-inertia, the second moments of the homogeneous positions (x, y, z, 1)
weighted by density, is a positive definite 4 x 4 matrix, and every such matrix belongs to some body. It factorises as
U U^T with

    U = exp(alpha) [exp(d1)  s12      s13      t1]
                   [0        exp(d2)  s23      t2]
                   [0        0        exp(d3)  t3]
                   [0        0        0        1 ]

[Rucker and Wensing 2022]. So exp(2 alpha) is the mass and t the centre of mass, and the upper left block S of
U U^T, taken about the centre of mass, gives the inertia I = tr(S) 1 - S: for any ten numbers, its principal moments
are positive and each is less than the sum of the others.

`from_log_cholesky(theta)` computes mass, centre of mass and inertia, `to_log_cholesky(mass, com, inertia)` the ten
numbers, and `check_physical(mass, com, inertia)` raises for the first non-physical body.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kinema.errors import InputError

NUMBERS = 10  # alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3


class Inertia(NamedTuple):
    """Mass properties of bodies, as in `Model.parameters`.

    Attributes:
        mass: [kg], shape (*batch,).
        com: Centre of mass in the body's frame [m], shape (*batch, 3).
        inertia: About the centre of mass, in the body's axes, (xx, xy, xz, yy, yz, zz) [kg m^2], shape (*batch, 6).
    """

    mass: Tensor
    com: Tensor
    inertia: Tensor


def from_log_cholesky(theta: Tensor) -> Inertia:
    """Physical mass properties of bodies from ten unconstrained numbers each.

    ```python
    theta = kn.inertia.to_log_cholesky(*model.parameters("mass", "com", "inertia").values()).requires_grad_()
    path = kn.simulate(model, q, v, steps=100, dt=2e-3, params=kn.inertia.from_log_cholesky(theta)._asdict())
    ```

    Args:
        theta: (alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3), shape (*batch, 10): half the logarithm of the mass in kg,
            logarithms of lengths in m, and lengths [m].

    Gradients:
        Exact, everywhere.

    Raises:
        InputError: The last axis does not have ten entries, or the dtype is not floating-point.
    """
    if not isinstance(theta, Tensor) or not theta.is_floating_point() or theta.shape[-1:] != (NUMBERS,):
        got = f"{theta.dtype}, {tuple(theta.shape)}" if isinstance(theta, Tensor) else type(theta).__name__
        raise InputError("theta does not describe bodies", got=got, expected=f"floating-point, (*batch, {NUMBERS})")
    alpha, d1, d2, d3, s12, s23, s13 = theta[..., :7].unbind(-1)
    mass = (2 * alpha).exp()
    e1, e2, e3 = d1.exp(), d2.exp(), d3.exp()
    # Variances: S / mass = U3 U3^T.
    xx, yy, zz = e1 * e1 + s12 * s12 + s13 * s13, e2 * e2 + s23 * s23, e3 * e3
    xy, xz, yz = s12 * e2 + s13 * s23, s13 * e3, s23 * e3
    inertia = torch.stack([yy + zz, -xy, -xz, xx + zz, -yz, xx + yy], -1)
    return Inertia(mass, theta[..., 7:], mass.unsqueeze(-1) * inertia)


def to_log_cholesky(mass: Tensor, com: Tensor, inertia: Tensor) -> Tensor:
    """Log-Cholesky parameters of physical bodies, shape (*batch, 10): the inverse of `from_log_cholesky`.

    Args:
        mass: [kg], shape (*batch,).
        com: Centre of mass in the body's frame [m], shape (*batch, 3).
        inertia: About the centre of mass, (xx, xy, xz, yy, yz, zz) [kg m^2], shape (*batch, 6).

    Gradients:
        Exact.

    Raises:
        InputError: A body is not physical, or has no extent in some direction (a point, a plate without thickness);
            names the body and its principal moments.
    """
    _check_shapes(mass, com, inertia)
    batch = torch.broadcast_shapes(mass.shape, com.shape[:-1], inertia.shape[:-1])
    mass, com, inertia = mass.expand(batch), com.expand(*batch, 3), inertia.expand(*batch, 6)
    check_physical(mass, com, inertia)
    xx, xy, xz, yy, yz, zz = inertia.unbind(-1)
    # S / mass = U3 U3^T, from the last column to the first.
    wx, wy, wz = ((yy + zz - xx) / (2 * mass), (xx + zz - yy) / (2 * mass), (xx + yy - zz) / (2 * mass))
    e3 = wz.sqrt()
    s13, s23 = -xz / (mass * e3), -yz / (mass * e3)
    e2 = (wy - s23 * s23).sqrt()
    s12 = (-xy / mass - s13 * s23) / e2
    e1 = (wx - s12 * s12 - s13 * s13).sqrt()
    return torch.cat([torch.stack([0.5 * mass.log(), e1.log(), e2.log(), e3.log(), s12, s23, s13], -1), com], -1)


def check_physical(mass: Tensor, com: Tensor, inertia: Tensor) -> None:
    """Raise InputError unless bodies are physical and extend in all directions.

    The mass must be positive, all values finite, and each principal moment less than the sum of the other two.

    Args:
        mass: [kg], shape (*batch,).
        com: Centre of mass [m], shape (*batch, 3).
        inertia: About the centre of mass, (xx, xy, xz, yy, yz, zz) [kg m^2], shape (*batch, 6).
    """
    _check_shapes(mass, com, inertia)
    with torch.no_grad():
        finite = mass.isfinite() & com.isfinite().all(-1) & inertia.isfinite().all(-1)
        safe = torch.where(finite.unsqueeze(-1), inertia, torch.zeros_like(inertia))
        matrix = safe[..., [0, 1, 2, 1, 3, 4, 2, 4, 5]].unflatten(-1, (3, 3))
        moments = torch.linalg.eigvalsh(matrix)
        least = moments[..., 0] + moments[..., 1] - moments[..., 2]  # twice the smallest second moment
        rounding = 8 * torch.finfo(inertia.dtype).eps * moments[..., 2].abs()
        fine = finite & (mass > 0) & (least > rounding)
        if bool(fine.all()):
            return
        at = tuple(int(i) for i in (~fine).nonzero()[0])
        weight = float(mass.expand(fine.shape)[at])
        shown = ", ".join(f"{x:.6g}" for x in moments.expand(*fine.shape, 3)[at].tolist())
        flat = finite & (mass > 0) & (least >= -rounding)
    what, got, fix = (
        "mass and inertia are not physical",
        f"mass {weight:.6g} kg, principal moments {shown} kg m^2",
        None,
    )
    if not finite.expand(fine.shape)[at]:
        got = "values that are not finite"
    elif flat.expand(fine.shape)[at]:
        what, fix = "a body has no extent in some direction", "make it thicker: increase the smaller moments slightly"
    expected = "a positive mass, and each principal moment less than the sum of the other two"
    raise InputError(
        what, where=f"body {at[0] if len(at) == 1 else at}" if at else None, got=got, expected=expected, fix=fix
    )


def _check_shapes(mass: Tensor, com: Tensor, inertia: Tensor) -> None:
    for name, tensor, last in (("mass", mass, None), ("com", com, 3), ("inertia", inertia, 6)):
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise InputError(f"{name} has the wrong type", got=got, expected="a floating-point tensor")
        if last is not None and tensor.shape[-1:] != (last,):
            raise InputError(f"{name} has the wrong shape", got=tuple(tensor.shape), expected=f"(*batch, {last})")
