"""The ablation of the checkpoint interval [Qiao et al. 2021, appendix B, figure 8].

With a checkpoint at every k-th of n steps, the paper predicts, per step of the backward pass and in total,

    time   = (k + 1)/2 t_forward + t_backward        (17), each step resumed from the last checkpoint
    memory = n/k m_checkpoint + m_simulation         (18)

Kinema replays an interval once and keeps its states, so its time should follow (1 - 1/k) t_forward + t_backward
instead; this module fits both by least squares.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kernels import timing

from . import memory, peer_kinema, scene


@dataclass(frozen=True)
class Plan:
    """Variations: numbers of robots in one world, intervals; steps of each rollout; least number of timing rounds."""

    robots: tuple[int, ...]
    intervals: tuple[int, ...]
    steps: int
    repetitions: int


def measure(plan: Plan, plot: Path | None = None) -> dict[str, Any]:
    """Time and memory of the backward pass over intervals and robots, their fits, and a plot.

    Returns:
        `rows`, `fits` and `plot`, the file (None without matplotlib).
    """
    rows = []
    for robots in plan.robots:
        peers = {k: peer_kinema.Peer(checkpoint=k) for k in plan.intervals}
        for peer in peers.values():
            peer.prepare(scene.case(robots, plan.steps))
            peer.backward()
        title = f"checkpoints, {robots} robot(s)"
        calls = [(str(k), peer.backward) for k, peer in peers.items()]
        seconds = timing.interleaved_minima(calls, 0.0, title, min_rounds=plan.repetitions)
        print(f"{title}: memory", file=sys.stderr)
        for k in plan.intervals:
            peak = memory.measure(peer="kinema", arguments={"checkpoint": k}, robots=robots, steps=plan.steps)
            rows.append(
                {
                    "robots": robots,
                    "k": k,
                    "steps": plan.steps,
                    "backward_us": 1e6 * seconds[str(k)] / plan.steps,
                    "peak_mb": peak,
                }
            )
    fits = [_fit(robots, [r for r in rows if r["robots"] == robots], plan.steps) for robots in plan.robots]
    return {"rows": rows, "fits": fits, "plot": _plot(rows, plot) if plot else None}


def _fit(robots: int, rows: list[dict[str, Any]], steps: int) -> dict[str, Any]:
    k = np.array([r["k"] for r in rows], float)
    time = np.array([r["backward_us"] for r in rows])
    resumed, once = _line((k + 1) / 2, time), _line(1 - 1 / k, time)
    found = {
        "robots": robots,
        "eq17_t_forward_us": resumed[0],
        "eq17_t_backward_us": resumed[1],
        "eq17_r2": resumed[2],
        "once_t_forward_us": once[0],
        "once_t_backward_us": once[1],
        "once_r2": once[2],
    }
    if all(r["peak_mb"] is not None for r in rows):
        slope, rest, quality = _line(steps / k, np.array([r["peak_mb"] for r in rows]))
        found |= {"eq18_checkpoint_kb": 1024 * slope, "eq18_simulation_mb": rest, "eq18_r2": quality}
    return found


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Slope, value at 0 and coefficient of determination of a straight line."""
    slope, rest = np.polyfit(x, y, 1)
    spread = float(np.sum((y - y.mean()) ** 2))
    left = float(np.sum((y - slope * x - rest) ** 2))
    return float(slope), float(rest), 1 - left / spread if spread else math.nan


def _plot(rows: list[dict[str, Any]], file: Path) -> str | None:
    try:
        import matplotlib
    except ModuleNotFoundError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for axis, what, label, scale in zip(
        axes, ("peak_mb", "backward_us"), ("memory [MB]", "backward [ms/step]"), (1, 1e-3), strict=True
    ):
        for k in sorted({r["k"] for r in rows}):
            chosen = [r for r in rows if r["k"] == k and r[what] is not None]
            axis.plot([r["robots"] for r in chosen], [scale * r[what] for r in chosen], "o-", label=f"every {k} steps")
        axis.set(xlabel="robots in one world", ylabel=label)
    axes[0].legend()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    pyplot.close(figure)
    return str(file)
