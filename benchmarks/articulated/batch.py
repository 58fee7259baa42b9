"""A batch of thousands of quadrupeds: Kinema in both precisions and MuJoCo's rollout, on all cores.

Each world has its own torques. Times are per call, for all worlds and steps. The states of a sample of the worlds, and
the gradients with respect to their torques, must equal those of a run of that world alone, bit by bit.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import kinema as kn
from benchmarks.kernels import timing

from . import peer_mujoco, scene


@dataclass(frozen=True)
class BatchRow:
    """One measurement.

    Attributes:
        engine: The engine.
        precision: float64 or float32.
        worlds: Number of worlds.
        steps: Steps of each world.
        threads: CPU threads.
        forward_per_s: World-steps per second, forward.
        gradient_per_s: World-steps per second, forward and backward together.
        sweeps: Iterations of the contact solver per step, mean over worlds and steps.
        residual: Largest residual over worlds and steps, relative to the largest impulse of the step [-]; for MuJoCo
            see the row of a single robot.
        checked: Number of worlds compared with their single runs.
        identical: Whether all compared worlds had the same bits.
    """

    engine: str
    precision: str
    worlds: int
    steps: int
    threads: int
    forward_per_s: float
    gradient_per_s: float | None
    sweeps: float | None
    residual: float | None
    checked: int
    identical: bool | None


def threads() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Batch:
    """Kinema with one model for all worlds, and its default contact."""

    def __init__(self, torques: np.ndarray, dtype: torch.dtype) -> None:
        self.model = scene.model(1, dtype=dtype)
        self.start = kn.State(*scene.start(self.model))
        self.tau = scene.joint_forces(torques, dtype).requires_grad_()

    def simulate(self, tau: torch.Tensor, workers: int, **more: Any) -> kn.Trajectory:
        """Run all worlds, or one."""
        state, options = self.start.expand(*tau.shape[:-2]), kn.RunOptions(threads=workers, progress=False)
        words = {"steps": tau.shape[-2], "dt": scene.DT, "options": options, **more}
        return kn.simulate(self.model, state, kn.Control(tau=tau), **words)

    def forward(self) -> None:
        """Run without gradient."""
        with torch.no_grad():
            self.simulate(self.tau, threads())

    def gradient(self, tau: torch.Tensor | None = None, workers: int = 0) -> tuple[kn.Trajectory, torch.Tensor]:
        """Run forward and backward."""
        tau = self.tau if tau is None else tau
        path = self.simulate(tau, workers or threads())
        (found,) = torch.autograd.grad(path.end.q[..., 2].sum(), tau)
        return path, found

    def contact(self) -> tuple[float, float]:
        """Mean iterations of the solver per step, and the largest residual."""
        with torch.no_grad():
            path = self.simulate(self.tau, threads(), record=["iterations"])
        assert path.residual is not None
        return float(path.recorded["iterations"].mean()), float(path.residual.max())

    def identical(self, worlds: range) -> bool:
        """Whether states and gradients of these worlds equal those of single runs, bit by bit."""
        path, gradient = self.gradient()
        for w in worlds:
            alone, own = self.gradient(self.tau[w].detach().clone().requires_grad_(), workers=1)
            pairs = ((path.q[w], alone.q), (path.v[w], alone.v), (gradient[w], own))
            if not all(torch.equal(a, b) for a, b in pairs):
                return False
        return True


def measure(worlds: int, steps: int, budget: float, every: int) -> list[BatchRow]:
    """Time Kinema in both precisions and MuJoCo side by side.

    Args:
        worlds: Number of worlds.
        steps: Steps of each world.
        budget: Time limit [s].
        every: Compares every `every`-th world with its single run.
    """
    drawn = np.stack([scene.torques(steps, seed=w) for w in range(worlds)])
    batches = {name: Batch(drawn, getattr(torch, name)) for name in ("float64", "float32")}
    entries = []
    for name, batch in batches.items():
        batch.gradient()
        entries += [(f"{name} forward", batch.forward), (f"{name} gradient", lambda batch=batch: batch.gradient())]
    rival = _mujoco(drawn) if peer_mujoco.Peer.available() else None
    if rival is not None:
        rival()
        entries.append(("mujoco forward", rival))
    seconds = timing.interleaved_minima(entries, budget, title=f"{worlds} worlds", min_rounds=2)
    rate = {label: worlds * steps / s for label, s in seconds.items()}
    rows = []
    for name, batch in batches.items():
        checked = range(0, worlds, every)
        speeds = rate[f"{name} forward"], rate[f"{name} gradient"]
        found = (*batch.contact(), len(checked), batch.identical(checked))
        rows.append(BatchRow("Kinema", name, worlds, steps, threads(), *speeds, *found))
    if rival is not None:
        speed = rate["mujoco forward"]
        rows.append(BatchRow("MuJoCo", "float64", worlds, steps, threads(), speed, None, None, None, 0, None))
    return rows


def _mujoco(drawn: np.ndarray):
    """A call of MuJoCo's rollout with one MjData per core and a persistent thread pool."""
    import mujoco
    from mujoco import rollout

    model = peer_mujoco.make(1)
    data = [mujoco.MjData(model) for _ in range(threads())]
    start = np.repeat(peer_mujoco.start(model, scene.model(1)), len(drawn), axis=0)
    state = np.zeros((len(drawn), drawn.shape[1], start.shape[1]))
    return lambda: rollout.rollout(model, data, start, drawn, state=state, persistent_pool=True)
