"""PyTorch eager: `index_select`, arithmetic, `index_add`, autograd. One thread.

Vectors are stored as (3, n), so that every operation runs over long contiguous rows; the obvious layout, 3x3 matrices
as (n, 3, 3) with batched products, takes several times as long.

A rollout stores the state of each step and runs autograd step by step in the backward pass (like
`torch.utils.checkpoint`, without its overhead): the graph of 1000 steps would need tens of gigabytes.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import numpy as np

from . import GRADIENTS, Availability, Results
from .scene import Scene

if TYPE_CHECKING:
    import torch


class Peer:
    """PyTorch eager."""

    name = "PyTorch"
    modes = ("eager",)
    threads = 1

    def __init__(self, mode: str = "eager") -> None:
        self.mode = mode

    @staticmethod
    def available() -> Availability:
        if importlib.util.find_spec("torch") is None:
            return Availability(False, "package torch is not installed")
        return Availability(True)

    def prepare(self, scene: Scene) -> None:
        import torch

        self._torch = torch
        self._inputs = tuple(self._tensor(getattr(scene, n)).requires_grad_() for n in GRADIENTS)
        self._corners = self._tensor(scene.tets).long().reshape(-1)
        D = scene.rest_inverse
        self._rest_inverse = tuple(tuple(self._tensor(D[:, i, j]) for j in range(3)) for i in range(3))
        self._minus_volume = self._tensor(-scene.volume)
        self._alpha = self._tensor(scene.alpha)
        self._inv_mass = self._tensor(scene.inv_mass)
        self._free = (self._inv_mass > 0).float()
        self._gravity = self._tensor(scene.gravity)[:, None]
        self._dt = scene.dt
        self._cotangents = (self._tensor(scene.cot_x), self._tensor(scene.cot_v))
        self._state: tuple[torch.Tensor, ...] | None = None
        self._gradients: tuple[torch.Tensor, ...] | None = None

    def forward(self) -> None:
        with self._single_thread(), self._torch.no_grad():
            self._state, self._gradients = self._step(*self._inputs), None

    def vjp(self, cot_x: np.ndarray | None = None, cot_v: np.ndarray | None = None) -> None:
        given = zip((cot_x, cot_v), self._cotangents, strict=True)
        self._cotangents = tuple(old if new is None else self._tensor(new) for new, old in given)
        with self._single_thread():
            self._state, self._gradients = None, self._gradient(self._inputs, self._cotangents)

    def rollout(self, steps: int) -> None:
        torch = self._torch
        x, v, mu, lam = self._inputs
        with self._single_thread():
            states = [(x.detach(), v.detach())]
            with torch.no_grad():
                for _ in range(steps):
                    states.append(self._step(*states[-1], mu, lam))
            cotangents = self._cotangents
            mu_bar, lam_bar = torch.zeros_like(mu), torch.zeros_like(lam)
            for x, v in reversed(states[:-1]):
                inputs = (x.requires_grad_(), v.requires_grad_(), mu, lam)
                *cotangents, dmu, dlam = self._gradient(inputs, tuple(cotangents))
                mu_bar += dmu
                lam_bar += dlam
        self._state, self._gradients = states[-1], (*cotangents, mu_bar, lam_bar)

    def results(self) -> Results:
        x, v = (None, None) if self._state is None else (a.detach().numpy().T for a in self._state)
        gradients = {} if self._gradients is None else dict(zip(GRADIENTS, self._gradients, strict=True))
        return Results(x, v, {name: g.numpy().T for name, g in gradients.items()}).copy()

    def _step(
        self, x: torch.Tensor, v: torch.Tensor, mu: torch.Tensor, lam: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        torch, D = self._torch, self._rest_inverse
        x_a, x_b, x_c, x_d = x.index_select(1, self._corners).view(3, 4, -1).unbind(1)
        f0, f1, f2 = _combine(D, (x_b - x_a, x_c - x_a, x_d - x_a))
        cross = torch.linalg.cross
        c0, c1, c2 = cross(f1, f2, dim=0), cross(f2, f0, dim=0), cross(f0, f1, dim=0)
        I_C = (f0 * f0 + f1 * f1 + f2 * f2).sum(0)
        J = (f0 * c0).sum(0)
        a = self._minus_volume * mu * (1 - 1 / (I_C + 1))
        b = self._minus_volume * lam * (J - self._alpha)
        f_b, f_c, f_d = _combine(tuple(zip(*D, strict=True)), (a * f0 + b * c0, a * f1 + b * c1, a * f2 + b * c2))
        on_corners = torch.cat([-(f_b + f_c + f_d), f_b, f_c, f_d], dim=1)
        f = torch.zeros_like(x).index_add(1, self._corners, on_corners)
        v_next = self._free * (v + self._dt * (f * self._inv_mass + self._gravity))
        return x + self._dt * v_next, v_next

    def _gradient(
        self, inputs: tuple[torch.Tensor, ...], cotangents: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, ...]:
        return self._torch.autograd.grad(self._step(*inputs), inputs, cotangents)

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        """A new tensor, (n, 3) transposed to (3, n)."""
        return self._torch.tensor(np.ascontiguousarray(array.T))

    def _single_thread(self) -> _Threads:
        return _Threads(self._torch, self.threads)


def _combine(D: tuple[tuple[torch.Tensor, ...], ...], columns: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The columns of [columns] D."""
    u, v, w = columns
    return tuple(D[0][j] * u + D[1][j] * v + D[2][j] * w for j in range(3))


class _Threads:
    """Set torch's number of threads, which is global to the process, and restore it afterwards."""

    def __init__(self, torch: object, threads: int) -> None:
        self._torch, self._threads = torch, threads

    def __enter__(self) -> None:
        self._before = self._torch.get_num_threads()
        self._torch.set_num_threads(self._threads)

    def __exit__(self, *_: object) -> None:
        self._torch.set_num_threads(self._before)
