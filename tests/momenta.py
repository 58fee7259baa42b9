"""Momenta of scenes of loose bodies, for tests."""

from __future__ import annotations

import torch

import kinema as kn


def momenta(model: kn.Model, path: kn.Trajectory, t: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Linear and angular momentum of loose bodies about the world's origin at time t."""
    poses, numbers = kn.forward_kinematics(model, path.q[t]), model.parameters("mass", "inertia")
    linear, angular = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for b in range(len(model.bodies)):
        w, v = path.v[t, 6 * b : 6 * b + 3], path.v[t, 6 * b + 3 : 6 * b + 6]
        i = numbers["inertia"][b]
        about = torch.stack([i[[0, 1, 2]], i[[1, 3, 4]], i[[2, 4, 5]]])
        p = numbers["mass"][b] * (poses.rotation[b] @ v)
        linear = linear + p
        angular = angular + poses.rotation[b] @ (about @ w) + torch.linalg.cross(poses.position[b], p)
    return linear, angular
