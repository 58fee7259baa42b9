"""The same step in plain JAX, compiled: dense matrices, links of one depth at once, `scan` over iterations, steps."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import Availability, Contact, peer_kinema, scene
from .tables import Tables, tables

if importlib.util.find_spec("jax") is not None:
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_compilation_cache_dir", str(Path(__file__).resolve().parents[2] / "out/articulated/jax"))
    import jax.numpy as jnp
    from jax import lax

NO_BOUND = 1e30
Array = Any


class Kinematics(NamedTuple):
    """Kinematics of all links, in world axes: see `kinematics`."""

    R: Array
    p: Array
    turn: Array
    move: Array
    w: Array
    alpha: Array
    a: Array


def rotation(quaternion: Array) -> Array:
    """The rotation matrix of a quaternion, which is normalised first."""
    w, x, y, z = quaternion / jnp.linalg.norm(quaternion)
    return jnp.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def skew(a: Array) -> Array:
    """The matrix of the cross product with a."""
    return jnp.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])


def about(axis: Array, angle: Array) -> Array:
    """The rotation by an angle about a unit vector [Rodrigues]."""
    K = skew(axis)
    return jnp.eye(3) + jnp.sin(angle) * K + (1 - jnp.cos(angle)) * (K @ K)


def exponential(r: Array) -> Array:
    """The unit quaternion of a rotation vector: a short Taylor series, because |r| is far below 1 in a step."""
    s = 0.25 * (r @ r)
    cosine = 1 - s / 2 * (1 - s / 12 * (1 - s / 30 * (1 - s / 56)))
    sinc = 1 - s / 6 * (1 - s / 20 * (1 - s / 42 * (1 - s / 72)))
    return jnp.concatenate([cosine[None], 0.5 * sinc * r])


def times(a: Array, b: Array) -> Array:
    """The product of two quaternions."""
    v = a[0] * b[1:] + b[0] * a[1:] + jnp.cross(a[1:], b[1:])
    return jnp.concatenate([(a[0] * b[0] - a[1:] @ b[1:])[None], v])


def kinematics(t: Tables, q: Array, v: Array) -> Kinematics:
    """Kinematics of all links, one depth at a time; link 0 is the trunk.

    Rotations, origins, angular and linear Jacobians (3 x nv), angular velocities, and the accelerations for dv/dt = 0,
    where the trunk's velocity is constant in its own axes.
    """
    R, p = rotation(q[3:7]), q[0:3]
    turn, move = jnp.zeros((3, t.nv)).at[:, 0:3].set(R), jnp.zeros((3, t.nv)).at[:, 3:6].set(R)
    w = turn @ v
    level = tuple(x[None] for x in (R, p, turn, move, w, jnp.zeros(3), jnp.cross(w, move @ v)))
    found = [level]
    for links, up in _levels(t.parent)[1:]:
        R, p, turn, move, w, alpha, a = (x[up] for x in level)
        axis = jnp.einsum("nij,nj->ni", R, t.axis[links])
        arm = jnp.einsum("nij,nj->ni", R, t.offset[links])
        own = axis * v[5 + links, None]
        level = (
            R @ jax.vmap(about)(t.axis[links], q[6 + links]),
            p + arm,
            turn.at[jnp.arange(len(links)), :, 5 + links].add(axis),
            move - jax.vmap(skew)(arm) @ turn,
            w + own,
            alpha + jnp.cross(w, own),
            a + jnp.cross(alpha, arm) + jnp.cross(w, jnp.cross(w, arm)),
        )
        found.append(level)
    order = np.argsort(np.concatenate([links for links, _ in _levels(t.parent)]))
    return Kinematics(*(jnp.concatenate(parts)[order] for parts in zip(*found, strict=True)))


def _levels(parent: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Links of one depth, and the indices of their parents among the links of the previous depth."""
    levels = [(np.array([0]), np.array([0]))]
    while True:
        above = levels[-1][0].tolist()
        links = [i for i in range(1, len(parent)) if parent[i] in above]
        if not links:
            return levels
        levels.append((np.array(links), np.array([above.index(parent[i]) for i in links])))


def mass_and_bias(t: Tables, k: Kinematics) -> tuple[Array, Array]:
    """The mass matrix without armature, and the bias forces of gravity and velocities."""
    mass = jnp.array(t.mass)
    arm = jnp.einsum("nij,nj->ni", k.R, t.com)
    J = k.move - jax.vmap(skew)(arm) @ k.turn
    inertia = k.R @ t.inertia @ k.R.transpose(0, 2, 1)
    M = jnp.einsum("n,nia,nib->ab", mass, J, J) + jnp.einsum("nia,nij,njb->ab", k.turn, inertia, k.turn)
    at_com = k.a + jnp.cross(k.alpha, arm) + jnp.cross(k.w, jnp.cross(k.w, arm))
    force = mass[:, None] * (at_com - t.gravity)
    spin = jnp.einsum("nij,nj->ni", inertia, k.w)
    torque = jnp.einsum("nij,nj->ni", inertia, k.alpha) + jnp.cross(k.w, spin)
    return M, jnp.einsum("nia,ni->a", J, force) + jnp.einsum("nia,ni->a", k.turn, torque)


def contact_rows(t: Tables, k: Kinematics, v: Array, v_free: Array) -> tuple[Array, Array, Array]:
    """Jacobian and free velocities of the rows, and the upper bounds of the normal impulses."""
    links = np.array(t.foot_link)
    arm = jnp.einsum("nij,nj->ni", k.R[links], t.foot_centre)
    gap = k.p[links, 2] + arm[:, 2] - t.radius - t.height
    down = jnp.outer(t.radius + gap / 2, jnp.array([0.0, 0.0, 1.0]))
    J = (k.move[links] - jax.vmap(skew)(arm - down) @ k.turn[links])[:, np.array([2, 0, 1])]
    before = J[:, 0] @ v
    target = jnp.where(gap >= 0, gap / t.dt, t.erp * gap / t.dt)
    hits = (before < -t.threshold) & (gap + t.dt * before < 0)
    target = jnp.where(hits, t.restitution * before, target)
    b = (J @ v_free).at[:, 0].add(target)
    return J.reshape(-1, t.nv), b.reshape(-1), jnp.where(gap < t.margin, NO_BOUND, 0.0)


def gauss_seidel(t: Tables, A: Array, b: Array, upper: Array) -> Array:
    """PGS iterations from zero impulses."""
    n = len(t.foot_link) * 3

    def sweep(impulse: Array, _: None) -> tuple[Array, None]:
        for i in range(n):
            speed = b[i] + A[i] @ impulse + t.cfm * impulse[i]
            free = impulse[i] - t.relaxation[min(i % 3, 1)] * speed / (A[i, i] + t.cfm)
            if i % 3 == 0:
                low, high = 0.0, upper[i // 3]
            else:
                high = t.mu * impulse[i - i % 3]
                low = -high
            impulse = impulse.at[i].set(jnp.maximum(jnp.minimum(free, high), low))
        return impulse, None

    return lax.scan(sweep, jnp.zeros(n), None, length=t.sweeps)[0]


def step(t: Tables, q: Array, v: Array, torques: Array) -> tuple[Array, Array]:
    """One step; returns the coordinates and velocities at its end."""
    k, dt = kinematics(t, q, v), t.dt
    M, bias = mass_and_bias(t, k)
    pull = t.stiffness * (q[7:] - t.rest + dt * v[6:]) + t.damping * v[6:]
    net = jnp.concatenate([jnp.zeros(6), torques - pull]) - bias
    diagonal = jnp.concatenate([jnp.zeros(6), t.armature + dt * t.damping + dt * dt * t.stiffness])
    factor = jax.scipy.linalg.cho_factor(M + jnp.diag(diagonal))
    a = jax.scipy.linalg.cho_solve(factor, net)
    v_free = v + dt * a.at[3:6].add(jnp.cross(v[:3], v[3:6]))

    J, b, upper = contact_rows(t, k, v, v_free)
    spread = jax.scipy.linalg.cho_solve(factor, J.T)
    v_end = v_free + spread @ gauss_seidel(t, J @ spread, b, upper)

    turn = exponential(dt * v_end[:3])
    unit = q[3:7] / jnp.linalg.norm(q[3:7])
    q_next = jnp.concatenate([q[:3] + dt * k.R[0] @ v_end[3:6], times(unit, turn), q[7:] + dt * v_end[6:]])
    return q_next, v_end.at[3:6].set(rotation(turn).T @ v_end[3:6])


class Peer:
    """JAX on the CPU, compiled once for a number of steps.

    Two compiled functions exchange the residuals of `jax.vjp`, so that the backward pass can be timed alone.
    """

    name, mode, module = "JAX", "jit", "jax"
    slow, compiles_steps = False, True

    @staticmethod
    def available() -> Availability:
        if importlib.util.find_spec("jax") is None:
            return Availability(False, "jax is not installed: pip install 'jax[cpu]'")
        return Availability(True)

    def most_steps(self, robots: int) -> tuple[int, int]:
        return (500, 500) if robots == 1 else (0, 0)

    def prepare(self, case: scene.Case) -> None:
        self.case = case
        self.roll, self.record, self.pull = _compiled(case.sweeps)
        self.shake(case.torques)

    def shake(self, torques: np.ndarray) -> None:
        self.torques, self.kept, self.found = jnp.array(torques), None, None

    def forward(self) -> None:
        jax.block_until_ready(self.roll(self.torques))

    def backward(self) -> None:
        if self.kept is None:
            _, self.kept = self.record(self.torques)
        self.found = jax.block_until_ready(self.pull(self.kept))

    def states(self) -> tuple[np.ndarray, np.ndarray]:
        q, v = self.roll(self.torques)
        return np.array(q), np.array(v)

    def gradient(self) -> np.ndarray:
        return np.array(self.found)

    def loss(self, torques: np.ndarray) -> float:
        return float(self.roll(jnp.array(torques))[0][2])

    def contact(self) -> Contact:
        """Kinema's: the same iterations of the same problem."""
        return peer_kinema.contact(self.case)


@functools.cache
def _compiled(sweeps: int) -> tuple[Any, Any, Any]:
    """Three functions, compiled per number of steps: a rollout; its end and residuals of `jax.vjp`; the gradient."""
    model = scene.model(1, sweeps)
    t = tables(model, jnp.array)
    q, v = (jnp.array(x.numpy()) for x in scene.start(model))

    def roll(torques: Array) -> tuple[Array, Array]:
        return lax.scan(lambda state, row: (step(t, *state, row), None), (q, v), torques)[0]

    record = jax.jit(lambda torques: jax.vjp(lambda x: roll(x)[0][2], torques))
    return jax.jit(roll), record, jax.jit(lambda back: back(1.0)[0])
