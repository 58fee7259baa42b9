"""Numba: serial `njit` loops of the same law with a hand-written adjoint.

No prange, no fastmath (hence no fused multiply-add), no on-disk cache; numpy's error model, which does not check
divisions. Vectors are tuples, which become scalars; small arrays inside the loop would be allocated.
"""

from __future__ import annotations

import functools
import importlib.util
from types import SimpleNamespace

import numpy as np

from . import GRADIENTS, Availability, Results
from .scene import Scene


@functools.cache
def _functions() -> SimpleNamespace:
    """Define the compiled functions; only this function imports Numba."""
    import numba

    jit = functools.partial(numba.njit, cache=False, fastmath=False, error_model="numpy")
    inline = functools.partial(numba.njit, cache=False, fastmath=False, error_model="numpy", inline="always")

    @inline
    def cross(a, b):
        return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]

    @inline
    def add(a, b):
        return a[0] + b[0], a[1] + b[1], a[2] + b[2]

    @inline
    def dot(a, b):
        return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]

    @inline
    def mix(r, a, s, b, t, c):
        """r a + s b + t c."""
        return r * a[0] + s * b[0] + t * c[0], r * a[1] + s * b[1] + t * c[1], r * a[2] + s * b[2] + t * c[2]

    @inline
    def difference(x, i, j):
        return x[i, 0] - x[j, 0], x[i, 1] - x[j, 1], x[i, 2] - x[j, 2]

    @inline
    def times(x, a, b, c, d, D, e):
        """[x_b - x_a, x_c - x_a, x_d - x_a] D[e] by columns."""
        u, v, w = difference(x, b, a), difference(x, c, a), difference(x, d, a)
        return (
            mix(D[e, 0, 0], u, D[e, 1, 0], v, D[e, 2, 0], w),
            mix(D[e, 0, 1], u, D[e, 1, 1], v, D[e, 2, 1], w),
            mix(D[e, 0, 2], u, D[e, 1, 2], v, D[e, 2, 2], w),
        )

    @inline
    def scatter_transposed(out, a, b, c, d, u, v, w, D, e):
        """Add the columns of [u, v, w] D[e]^T to corners b, c, d and subtract their sum from a."""
        p = mix(D[e, 0, 0], u, D[e, 0, 1], v, D[e, 0, 2], w)
        q = mix(D[e, 1, 0], u, D[e, 1, 1], v, D[e, 1, 2], w)
        r = mix(D[e, 2, 0], u, D[e, 2, 1], v, D[e, 2, 2], w)
        for k in range(3):
            out[b, k] += p[k]
            out[c, k] += q[k]
            out[d, k] += r[k]
            out[a, k] -= p[k] + q[k] + r[k]

    @jit
    def step(tets, D, volume, mu, lam, alpha, inv_mass, gravity, dt, x, v, f, x_next, v_next):
        one = np.float32(1)
        f[:] = np.float32(0)
        for e in range(tets.shape[0]):
            a, b, c, d = tets[e, 0], tets[e, 1], tets[e, 2], tets[e, 3]
            f0, f1, f2 = times(x, a, b, c, d, D, e)
            c0, c1, c2 = cross(f1, f2), cross(f2, f0), cross(f0, f1)
            I_C = dot(f0, f0) + dot(f1, f1) + dot(f2, f2)
            s = -volume[e] * mu[e] * (one - one / (I_C + one))
            t = -volume[e] * lam[e] * (dot(f0, c0) - alpha[e])
            h0 = s * f0[0] + t * c0[0], s * f0[1] + t * c0[1], s * f0[2] + t * c0[2]
            h1 = s * f1[0] + t * c1[0], s * f1[1] + t * c1[1], s * f1[2] + t * c1[2]
            h2 = s * f2[0] + t * c2[0], s * f2[1] + t * c2[1], s * f2[2] + t * c2[2]
            scatter_transposed(f, a, b, c, d, h0, h1, h2, D, e)
        for i in range(x.shape[0]):
            w = inv_mass[i]
            for k in range(3):
                u = v[i, k] + dt * (f[i, k] * w + gravity[k]) if w > 0 else np.float32(0)
                v_next[i, k] = u
                x_next[i, k] = x[i, k] + dt * u

    @jit
    def adjoint(tets, D, volume, mu, lam, alpha, inv_mass, dt, x, cot_x, cot_v, f_bar, x_bar, v_bar, mu_bar, lam_bar):
        """Write x_bar and v_bar (which may alias the cotangents), add to mu_bar and lam_bar."""
        one, two = np.float32(1), np.float32(2)
        for i in range(x.shape[0]):
            w = inv_mass[i]
            for k in range(3):
                u = cot_v[i, k] + dt * cot_x[i, k] if w > 0 else np.float32(0)
                x_bar[i, k] = cot_x[i, k]
                v_bar[i, k] = u
                f_bar[i, k] = dt * w * u
        for e in range(tets.shape[0]):
            a, b, c, d = tets[e, 0], tets[e, 1], tets[e, 2], tets[e, 3]
            f0, f1, f2 = times(x, a, b, c, d, D, e)
            c0, c1, c2 = cross(f1, f2), cross(f2, f0), cross(f0, f1)
            # q is -P_bar / V: the scalars below include the factor.
            q0, q1, q2 = times(f_bar, a, b, c, d, D, e)
            V = -volume[e]
            r = one / (dot(f0, f0) + dot(f1, f1) + dot(f2, f2) + one)
            dJ = dot(f0, c0) - alpha[e]
            FP = V * (dot(f0, q0) + dot(f1, q1) + dot(f2, q2))
            CP = V * (dot(c0, q0) + dot(c1, q1) + dot(c2, q2))
            mu_bar[e] += (one - r) * FP
            lam_bar[e] += dJ * CP
            k_P = V * mu[e] * (one - r)
            k_F = two * mu[e] * r * r * FP
            k_C = lam[e] * CP
            k_X = V * lam[e] * dJ
            g0 = mix(k_P, q0, k_F, f0, k_C, c0)
            g1 = mix(k_P, q1, k_F, f1, k_C, c1)
            g2 = mix(k_P, q2, k_F, f2, k_C, c2)
            n0 = add(cross(q1, f2), cross(f1, q2))
            n1 = add(cross(f2, q0), cross(q2, f0))
            n2 = add(cross(q0, f1), cross(f0, q1))
            g0 = g0[0] + k_X * n0[0], g0[1] + k_X * n0[1], g0[2] + k_X * n0[2]
            g1 = g1[0] + k_X * n1[0], g1[1] + k_X * n1[1], g1[2] + k_X * n1[2]
            g2 = g2[0] + k_X * n2[0], g2[1] + k_X * n2[1], g2[2] + k_X * n2[2]
            scatter_transposed(x_bar, a, b, c, d, g0, g1, g2, D, e)

    @jit
    def vjp(tets, D, volume, mu, lam, alpha, inv_mass, dt, x, cot_x, cot_v, f_bar, x_bar, v_bar, mu_bar, lam_bar):
        mu_bar[:] = np.float32(0)
        lam_bar[:] = np.float32(0)
        adjoint(tets, D, volume, mu, lam, alpha, inv_mass, dt, x, cot_x, cot_v, f_bar, x_bar, v_bar, mu_bar, lam_bar)

    @jit
    def rollout(tets, D, volume, mu, lam, alpha, inv_mass, gravity, dt, xs, vs, f, x_bar, v_bar, mu_bar, lam_bar):
        steps = xs.shape[0] - 1
        for i in range(steps):
            step(tets, D, volume, mu, lam, alpha, inv_mass, gravity, dt, xs[i], vs[i], f, xs[i + 1], vs[i + 1])
        mu_bar[:] = np.float32(0)
        lam_bar[:] = np.float32(0)
        for n in range(steps):
            x = xs[steps - 1 - n]
            adjoint(tets, D, volume, mu, lam, alpha, inv_mass, dt, x, x_bar, v_bar, f, x_bar, v_bar, mu_bar, lam_bar)

    return SimpleNamespace(step=step, vjp=vjp, rollout=rollout)


class Peer:
    """Numba, one thread."""

    name = "Numba"
    modes = ("serial",)
    threads = 1

    def __init__(self, mode: str = "serial") -> None:
        self.mode = mode

    @staticmethod
    def available() -> Availability:
        if importlib.util.find_spec("numba") is None:
            return Availability(False, "package numba is not installed")
        return Availability(True)

    def prepare(self, scene: Scene) -> None:
        self._functions = _functions()
        s = scene
        self._constants = (s.tets, s.rest_inverse, s.volume, s.mu, s.lam, s.alpha, s.inv_mass)
        self._dt = np.float32(s.dt)
        self._x, self._v, self._gravity = s.x, s.v, s.gravity
        self._cot_x, self._cot_v = s.cot_x.copy(), s.cot_v.copy()
        self._f, self._x_next, self._v_next = (np.zeros_like(s.x) for _ in range(3))
        self._gradients = {name: np.zeros_like(getattr(s, name)) for name in GRADIENTS}
        self._states = np.zeros((2, *s.x.shape), np.float32), np.zeros((2, *s.x.shape), np.float32)
        # Compile now.
        self.forward()
        self.vjp()
        self.rollout(1)
        self._results = Results()

    def forward(self) -> None:
        out = (self._x_next, self._v_next)
        self._functions.step(*self._constants, self._gravity, self._dt, self._x, self._v, self._f, *out)
        self._results = Results(*out)

    def vjp(self, cot_x: np.ndarray | None = None, cot_v: np.ndarray | None = None) -> None:
        if cot_x is not None:
            self._cot_x[:] = cot_x
        if cot_v is not None:
            self._cot_v[:] = cot_v
        inputs = (self._dt, self._x, self._cot_x, self._cot_v, self._f)
        self._functions.vjp(*self._constants, *inputs, *self._gradients.values())
        self._results = Results(gradients=self._gradients)

    def rollout(self, steps: int) -> None:
        if len(self._states[0]) != steps + 1:
            shape = (steps + 1, *self._x.shape)
            self._states = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        xs, vs = self._states
        xs[0], vs[0] = self._x, self._v
        self._gradients["x"][:], self._gradients["v"][:] = self._cot_x, self._cot_v
        inputs = (self._gravity, self._dt, xs, vs, self._f)
        self._functions.rollout(*self._constants, *inputs, *self._gradients.values())
        self._results = Results(xs[-1], vs[-1], self._gradients)

    def results(self) -> Results:
        return self._results.copy()
