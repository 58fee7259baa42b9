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
