"""The tangent space of joint coordinates: nv entries, with three for each quaternion in place of four.

A displacement d of q is a velocity over one second: q (+) d = advance(q, v = d, dt = 1). With q' = G(q) d, the Jacobian
of a map q -> q* in tangent space is G(q*)^+ (dq*/dq) G(q).
"""

from __future__ import annotations

import torch
from torch import Tensor

from kinema.model.model import Model


def normalised(model: Model, q: Tensor) -> Tensor:
    """The same coordinates with unit quaternions, shape (*batch, nq)."""
    q = q.clone()
    for at in model.quaternion_places:
        q[..., at : at + 4] = torch.nn.functional.normalize(q[..., at : at + 4], dim=-1)
    return q


def rates(model: Model, q: Tensor) -> Tensor:
    """The matrix G in dq/dt = G(q) v, shape (*batch, nq, nv); quaternions must have unit length."""
    return _blocks(model, q, 0.5)


def inverse_rates(model: Model, q: Tensor) -> Tensor:
    """G^+, shape (*batch, nv, nq): the tangents of displacements of q that keep quaternions at unit length."""
    return _blocks(model, q, 2.0).transpose(-1, -2)


def displaced(model: Model, q: Tensor, d: Tensor) -> Tensor:
    """q (+) d, shape (*batch, nq), of coordinates (*batch, nq) and tangents (*batch, nv); the batches broadcast.

    Gradients:
        Exact and twice differentiable, to q and d.
    """
    q, d = _matching(normalised(model, q), d)
    tree = model.tree
    moved = q.clone()
    coordinates, velocities = tree.plain_rates
    moved[..., coordinates] = q[..., coordinates] + d[..., velocities]
    for joint, turn in tree.quaternions.items():
        at, first = int(tree.q_start[joint]), int(tree.v_start[joint])
        old = q[..., turn : turn + 4]
        moved[..., turn : turn + 4] = _product(old, _exp(d[..., first : first + 3]))
        if tree.types[joint].position:
            shift = _rotation(*old.unbind(-1)) @ d[..., first + 3 : first + 6].unsqueeze(-1)
            moved[..., at : at + 3] = q[..., at : at + 3] + shift.squeeze(-1)
    return moved


def displacement(model: Model, q: Tensor, to: Tensor) -> Tensor:
    """The tangent d, shape (*batch, nv), with q (+) d = to; turns of less than half a revolution.

    Gradients:
        Exact, to both, except at equal quaternions.
    """
    q, to = _matching(normalised(model, q), normalised(model, to))
    tree = model.tree
    d = q.new_zeros(*q.shape[:-1], model.nv)
    coordinates, velocities = tree.plain_rates
    d[..., velocities] = to[..., coordinates] - q[..., coordinates]
    for joint, turn in tree.quaternions.items():
        at, first = int(tree.q_start[joint]), int(tree.v_start[joint])
        old = q[..., turn : turn + 4]
        d[..., first : first + 3] = _log(_product(_conjugate(old), to[..., turn : turn + 4]))
        if tree.types[joint].position:
            shift = _rotation(*_conjugate(old).unbind(-1)) @ (to - q)[..., at : at + 3].unsqueeze(-1)
            d[..., first + 3 : first + 6] = shift.squeeze(-1)
    return d


def _matching(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the batch dimensions of both."""
    batch = torch.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    return a.expand(*batch, a.shape[-1]), b.expand(*batch, b.shape[-1])


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Products of quaternions, shape (*batch, 4)."""
    (p, i, j, k), (w, x, y, z) = a.unbind(-1), b.unbind(-1)
    rows = [
        p * w - i * x - j * y - k * z,
        p * x + i * w + j * z - k * y,
        p * y - i * z + j * w + k * x,
        p * z + i * y - j * x + k * w,
    ]
    return torch.stack(rows, -1)


def _conjugate(a: Tensor) -> Tensor:
    return torch.cat([a[..., :1], -a[..., 1:]], -1)


def _exp(turn: Tensor) -> Tensor:
    """Quaternions of rotation vectors [rad]; power series for small angles, so that derivatives exist at zero."""
    square = turn.square().sum(-1, keepdim=True)
    small = square < 1e-4
    angle = torch.where(small, torch.ones_like(square), square).sqrt()
    # the next terms are below 1e-15 of the result
    cosine = torch.where(small, 1 - square / 8 + square**2 / 384 - square**3 / 46080, (angle / 2).cos())
    series = 0.5 - square / 48 + square**2 / 3840 - square**3 / 645120
    return torch.cat([cosine, torch.where(small, series, (angle / 2).sin() / angle) * turn], -1)


def _log(turned: Tensor) -> Tensor:
    """Rotation vectors [rad] of unit quaternions."""
    turned = torch.where(turned[..., :1] < 0, -turned, turned)
    w, axis = turned[..., :1], turned[..., 1:]
    sine = axis.norm(dim=-1, keepdim=True)
    ratio = 2 * torch.atan2(sine, w) / sine.clamp(min=1e-300)
    return torch.where(sine > 0, ratio, 2 * torch.ones_like(sine)) * axis


def _blocks(model: Model, q: Tensor, scale: float) -> Tensor:
    """A matrix with rows for coordinates and columns for velocities; a quaternion's columns have length `scale`."""
    tree = model.tree
    made = q.new_zeros(*q.shape, model.nv)
    coordinates, velocities = tree.plain_rates
    made[..., coordinates, velocities] = 1.0
    for joint, turn in tree.quaternions.items():
        at, d = int(tree.q_start[joint]), int(tree.v_start[joint])
        w, x, y, z = q[..., turn : turn + 4].unbind(-1)
        # q (0, w) / 2: the columns of quaternion multiplication by i, j, k from the right
        columns = torch.stack([-x, -y, -z, w, -z, y, z, w, -x, -y, x, w], -1).unflatten(-1, (4, 3))
        made[..., turn : turn + 4, d : d + 3] = scale * columns
        if tree.types[joint].position:
            made[..., at : at + 3, d + 3 : d + 6] = _rotation(w, x, y, z)
    return made


def _rotation(w: Tensor, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Rotation matrices of unit quaternions, shape (*batch, 3, 3)."""
    rows = [
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        1 - 2 * (x * x + y * y),
    ]
    return torch.stack(rows, -1).unflatten(-1, (3, 3))
