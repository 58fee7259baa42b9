"""L-BFGS within bounds, for many candidates in lockstep."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kinema.fitting.methods import Advance, Memory, Method, free, of_active
from kinema.fitting.objective import Objective

TRIALS = 12  # points of a line search
DECREASE = 1e-4  # sufficient decrease, relative to the slope [Nocedal and Wright 2006, eq. 3.4]
FIRST = 0.05  # largest move of the first step, in coordinates
CURVED = 1e-10  # least curvature of a pair, relative to the norms of both


@dataclass(frozen=True)
class LBFGS(Method):
    """Limited-memory BFGS with a backtracking line search along the path projected on the bounds.

    Attributes:
        history: Number of pairs of steps and changes of the gradient that are kept.
    """

    history: int = 10

    def begin(self, z: Tensor, seed: int) -> Memory:
        count, n = z.shape
        zeros = torch.zeros(count, self.history, n, dtype=z.dtype)
        lost = torch.full((count,), math.inf, dtype=z.dtype)
        return {"s": zeros, "y": zeros.clone(), "loss": lost, "grad": torch.zeros_like(z)}

    def advance(self, objective: Objective, z: Tensor, memory: Memory, active: Tensor, iteration: int) -> Advance:
        coordinates = objective.coordinates
        fresh = active & memory["loss"].isinf()
        if bool(fresh.any()):
            losses, grads = of_active(objective, z, fresh)
            memory["loss"] = torch.where(fresh, losses, memory["loss"])
            memory["grad"] = torch.where(fresh.unsqueeze(-1), grads, memory["grad"])
        f, g = memory["loss"], memory["grad"]
        moving = free(coordinates, z, g)
        d = torch.stack([_direction(*rows) for rows in zip(g * moving, memory["s"], memory["y"], strict=True)]) * moving
        first = (memory["s"] == 0).flatten(1).all(1)
        size = torch.where(first, FIRST / d.abs().amax(1).clamp_min(1e-300), torch.ones_like(f)).clamp_max(1e6)
        z_new, f_new, g_new = z.clone(), f.clone(), g.clone()
        left = active & f.isfinite() & (d != 0).any(1)
        done = torch.zeros_like(active)
        for _ in range(TRIALS):
            if not bool(left.any()):
                break
            tried = coordinates.project(z + size.unsqueeze(-1) * d)
            losses, grads = of_active(objective, tried, left)
            fine = left & (losses <= f + DECREASE * (g * (tried - z)).sum(-1))
            z_new = torch.where(fine.unsqueeze(-1), tried, z_new)
            f_new, g_new = torch.where(fine, losses, f_new), torch.where(fine.unsqueeze(-1), grads, g_new)
            done, left = done | fine, left & ~fine
            size = torch.where(left, 0.5 * size, size)
        again = left & ~first  # a bad memory is dropped, and steepest descent tried next
        for i in range(len(z)):
            if bool(done[i]):
                _remember(memory, i, z_new[i] - z[i], g_new[i] - g[i])
            elif bool(again[i]):
                memory["s"][i], memory["y"][i] = 0.0, 0.0
        little = f - f_new <= self.tolerance * f.abs()
        memory["loss"], memory["grad"] = f_new, g_new
        ended = ~active | (~again & (little | ~f.isfinite()))
        return Advance(z_new, z_new, torch.where(active, f_new, math.inf), ended)


def _direction(g: Tensor, s: Tensor, y: Tensor) -> Tensor:
    """The two-loop recursion [Nocedal and Wright 2006, alg. 7.4]; pairs of zeros are empty, the last is the newest."""
    q, pairs = g.clone(), [i for i in range(len(s)) if bool((s[i] != 0).any())]
    alphas = {}
    for i in reversed(pairs):
        alphas[i] = (s[i] @ q) / (s[i] @ y[i])
        q = q - alphas[i] * y[i]
    if pairs:
        q = q * (s[pairs[-1]] @ y[pairs[-1]]) / (y[pairs[-1]] @ y[pairs[-1]])
    for i in pairs:
        q = q + (alphas[i] - (y[i] @ q) / (s[i] @ y[i])) * s[i]
    return -q


def _remember(memory: Memory, i: int, s: Tensor, y: Tensor) -> None:
    """Keep a pair if the curvature along it is positive."""
    if s @ y > CURVED * s.norm() * y.norm():
        memory["s"][i] = torch.cat([memory["s"][i, 1:], s.unsqueeze(0)])
        memory["y"][i] = torch.cat([memory["y"][i, 1:], y.unsqueeze(0)])
