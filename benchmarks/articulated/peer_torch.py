"""The same step in plain PyTorch, as a user would write it: dense matrices, loops over joints, contacts, iterations.

M(q) a = tau - bias - springs                 body Jacobians about the centres of mass, dense Cholesky
v_free = v + dt a                             springs and dampers at the end of the step, as in Kinema
A lambda + b, projected Gauss-Seidel          rows normal, x, y of every foot; bounds -+ mu lambda_n
v' = v_free + M^-1 J^T lambda, q' = q (+) dt v'
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from . import Availability, Contact, peer_kinema, scene
from .tables import Tables, tables

NO_BOUND = 1e30


@dataclass
class Kinematics:
    """Kinematics in world axes: rotations and origins of links, their angular and linear Jacobians (3 x nv)."""

    R: list[Tensor]
    p: list[Tensor]
    turn: list[Tensor]
    move: list[Tensor]


def rotation(quaternion: Tensor) -> Tensor:
    """The rotation matrix of a quaternion, which is normalised first."""
    w, x, y, z = quaternion / quaternion.norm()
    return torch.stack(
        [
            torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]),
            torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]),
            torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]),
        ]
    )


def about(axis: Tensor, angle: Tensor) -> Tensor:
    """The rotation by an angle about a unit vector [Rodrigues]."""
    K = skew(axis)
    return torch.eye(3, dtype=axis.dtype) + torch.sin(angle) * K + (1 - torch.cos(angle)) * (K @ K)


def skew(a: Tensor) -> Tensor:
    """The matrix of the cross product with a."""
    zero = torch.zeros_like(a[0])
    return torch.stack([zero, -a[2], a[1], a[2], zero, -a[0], -a[1], a[0], zero]).reshape(3, 3)


def exponential(r: Tensor) -> Tensor:
    """The unit quaternion of a rotation vector: a short Taylor series, because |r| is far below 1 in a step."""
    s = 0.25 * (r @ r)
    cosine = 1 - s / 2 * (1 - s / 12 * (1 - s / 30 * (1 - s / 56)))
    sinc = 1 - s / 6 * (1 - s / 20 * (1 - s / 42 * (1 - s / 72)))
    return torch.cat([cosine.reshape(1), 0.5 * sinc * r])


def times(a: Tensor, b: Tensor) -> Tensor:
    """The product of two quaternions."""
    v = a[0] * b[1:] + b[0] * a[1:] + torch.linalg.cross(a[1:], b[1:])
    return torch.cat([(a[0] * b[0] - a[1:] @ b[1:]).reshape(1), v])


def kinematics(t: Tables, q: Tensor) -> Kinematics:
    """Poses and Jacobians; link 0 is the trunk."""
    R, p = [rotation(q[3:7])], [q[0:3]]
    blank = torch.zeros(3, t.nv, dtype=q.dtype)
    turn = [torch.cat([R[0], blank[:, 3:]], 1)]
    move = [torch.cat([blank[:, :3], R[0], blank[:, 6:]], 1)]
    for i in range(1, len(t.parent)):
        up = t.parent[i]
        axis = R[up] @ t.axis[i]
        R.append(R[up] @ about(t.axis[i], q[6 + i]))
        p.append(p[up] + R[up] @ t.offset[i])
        column = torch.zeros(t.nv, dtype=q.dtype)
        column[5 + i] = 1.0
        turn.append(turn[up] + torch.outer(axis, column))
        move.append(move[up] - skew(p[i] - p[up]) @ turn[up])
    return Kinematics(R, p, turn, move)


def mass_and_bias(t: Tables, k: Kinematics, v: Tensor) -> tuple[Tensor, Tensor]:
    """The mass matrix without armature, and the bias forces of gravity and velocities."""
    M, bias = torch.zeros(t.nv, t.nv, dtype=v.dtype), torch.zeros(t.nv, dtype=v.dtype)
    # Accelerations for dv/dt = 0: the trunk's velocity is constant in its own axes.
    w, alpha = [k.turn[0] @ v], [torch.zeros(3, dtype=v.dtype)]
    a = [torch.linalg.cross(w[0], k.move[0] @ v)]
    for i in range(len(t.parent)):
        if i:
            up, arm = t.parent[i], k.p[i] - k.p[t.parent[i]]
            own = (k.R[up] @ t.axis[i]) * v[5 + i]
            w.append(w[up] + own)
            alpha.append(alpha[up] + torch.linalg.cross(w[up], own))
            a.append(a[up] + torch.linalg.cross(alpha[up], arm) + _centripetal(w[up], arm))
        arm = k.R[i] @ t.com[i]
        J = k.move[i] - skew(arm) @ k.turn[i]
        inertia = k.R[i] @ t.inertia[i] @ k.R[i].T
        M = M + t.mass[i] * (J.T @ J) + k.turn[i].T @ inertia @ k.turn[i]
        force = t.mass[i] * (a[i] + torch.linalg.cross(alpha[i], arm) + _centripetal(w[i], arm) - t.gravity)
        torque = inertia @ alpha[i] + torch.linalg.cross(w[i], inertia @ w[i])
        bias = bias + J.T @ force + k.turn[i].T @ torque
    return M, bias


def _centripetal(w: Tensor, arm: Tensor) -> Tensor:
    return torch.linalg.cross(w, torch.linalg.cross(w, arm))


def contact_rows(t: Tables, k: Kinematics, v: Tensor, v_free: Tensor) -> tuple[Tensor, Tensor, list[float]]:
    """Jacobian and free velocities of the rows, and the upper bounds of the normal impulses."""
    J, b, upper = [], [], []
    for link, centre in zip(t.foot_link, t.foot_centre, strict=True):
        arm = k.R[link] @ centre
        gap = k.p[link][2] + arm[2] - t.radius - t.height
        down = torch.stack([torch.zeros_like(gap), torch.zeros_like(gap), t.radius + gap / 2])
        rows = (k.move[link] - skew(arm - down) @ k.turn[link])[[2, 0, 1]]
        before = rows[0] @ v
        target = gap / t.dt if gap >= 0 else t.erp * gap / t.dt
        if before < -t.threshold and gap + t.dt * before < 0:
            target = t.restitution * before
        J.append(rows)
        b.append(rows @ v_free + torch.cat([target.reshape(1), torch.zeros(2, dtype=v.dtype)]))
        upper.append(NO_BOUND if gap < t.margin else 0.0)
    return torch.cat(J), torch.cat(b), upper


def gauss_seidel(t: Tables, A: Tensor, b: Tensor, upper: list[float]) -> Tensor:
    """PGS iterations from zero impulses."""
    impulse = [torch.zeros((), dtype=b.dtype) for _ in b]
    for _ in range(t.sweeps):
        for i in range(len(b)):
            speed = b[i] + A[i] @ torch.stack(impulse) + t.cfm * impulse[i]
            free = impulse[i] - t.relaxation[min(i % 3, 1)] * speed / (A[i, i] + t.cfm)
            if i % 3 == 0:
                impulse[i] = free.clamp(0.0, upper[i // 3])
            else:
                bound = t.mu * impulse[i - i % 3]
                impulse[i] = torch.maximum(torch.minimum(free, bound), -bound)
    return torch.stack(impulse)


def step(t: Tables, q: Tensor, v: Tensor, torques: Tensor) -> tuple[Tensor, Tensor]:
    """One step; returns the coordinates and velocities at its end."""
    k, dt = kinematics(t, q), t.dt
    M, bias = mass_and_bias(t, k, v)
    none = torch.zeros(6, dtype=q.dtype)
    pull = t.stiffness * (q[7:] - t.rest + dt * v[6:]) + t.damping * v[6:]
    net = torch.cat([none, torques - pull]) - bias
    diagonal = torch.cat([none, t.armature + dt * t.damping + dt * dt * t.stiffness])
    L = torch.linalg.cholesky(M + torch.diag(diagonal))
    a = torch.cholesky_solve(net[:, None], L)[:, 0]
    turning = torch.cat([none[:3], torch.linalg.cross(v[:3], v[3:6]), torch.zeros_like(torques)])
    v_free = v + dt * (a + turning)

    J, b, upper = contact_rows(t, k, v, v_free)
    spread = torch.cholesky_solve(J.T, L)
    v_end = v_free + spread @ gauss_seidel(t, J @ spread, b, upper)

    turn = exponential(dt * v_end[:3])
    unit = q[3:7] / q[3:7].norm()
    q_next = torch.cat([q[:3] + dt * k.R[0] @ v_end[3:6], times(unit, turn), q[7:] + dt * v_end[6:]])
    return q_next, torch.cat([v_end[:3], rotation(turn).T @ v_end[3:6], v_end[6:]])


class Peer:
    """PyTorch on one thread, its autograd over all steps."""

    name, mode, module = "PyTorch", "autograd", "torch"
    slow, compiles_steps = True, False

    @staticmethod
    def available() -> Availability:
        return Availability(True)

    def most_steps(self, robots: int) -> tuple[int, int]:
        return (100, 100) if robots == 1 else (0, 0)

    def prepare(self, case: scene.Case) -> None:
        model = scene.model(1, case.sweeps)
        self.case, self.tables = case, tables(model, torch.tensor)
        self.q, self.v = scene.start(model)
        self.shake(case.torques)

    def shake(self, torques: np.ndarray) -> None:
        self.torques, self.end, self.found = torch.tensor(torques), None, None

    def roll(self, torques: Tensor) -> tuple[Tensor, Tensor]:
        """Run all steps."""
        q, v = self.q, self.v
        for row in torques:
            q, v = step(self.tables, q, v, row)
        return q, v

    def forward(self) -> None:
        with torch.no_grad():
            self.last = self.roll(self.torques)

    def backward(self) -> None:
        if self.end is None:
            self.leaf = self.torques.clone().requires_grad_()
            self.end = self.roll(self.leaf)
        (self.found,) = torch.autograd.grad(self.end[0][2], self.leaf, retain_graph=True)

    def states(self) -> tuple[np.ndarray, np.ndarray]:
        q, v = self.end if self.end is not None else self.last
        return q.detach().numpy(), v.detach().numpy()

    def gradient(self) -> np.ndarray:
        assert self.found is not None
        return self.found.numpy()

    def loss(self, torques: np.ndarray) -> float:
        with torch.no_grad():
            return float(self.roll(torch.tensor(torques))[0][2])

    def contact(self) -> Contact:
        """Kinema's: the same iterations of the same problem."""
        return peer_kinema.contact(self.case)
