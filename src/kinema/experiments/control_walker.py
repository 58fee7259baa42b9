"""Teach a soft walker to reach the place that one image shows [Jatavallabhula et al. 2021, Fig. 5].

gradSim's settings: 104 triangles, whose contractions are at most 0.2; a linear layer without bias and tanh turn four
sinusoids of 20 rad/s into contractions; the goal is an image of the walker at rest, 1 to 2 m ahead. The muscles relax
in the last half second, so that the last image can equal the goal. The unknowns are the 416 weights.

Over 3.5 s of steps, slips and falls, the distance jumps as the weights change: some starts fall, and stay. Eight of
them, from small random weights, are simulated as one batch, and the images choose among them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients
from kinema.experiments.case import Case, Report, Results, Table, at_least

EDGE, DT, STEPS = 0.1, 5e-4, 8000  # [m], [s]
RATE, STRENGTH, INPUTS = 20.0, 0.2, 4  # of the sinusoids [rad/s], of the muscles [-], number of sinusoids
RELAX, FADE = 3.5, 0.1  # when the muscles begin to relax, and for how long [s]
WITHIN = 0.05  # of the goal [m]
SMALL = 0.1  # standard deviation of the first weights
WINDOW, CHECKED = 0.02, 2000  # of the gradient check: half the window of the vector of weights, and steps: one second


@dataclass(frozen=True)
class Arguments:
    """Starts, iterations of Adam and their rate, height of the image [pixels]."""

    starts: int = 8
    iterations: int = 20
    rate: float = 0.02
    size: int = 96

    @classmethod
    def quick(cls) -> Arguments:
        """Fewer starts and iterations."""
        return cls(starts=4, iterations=10)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """One goal and its networks for each seed; a gradient check."""
    common = {name: getattr(arguments, name) for name in ("starts", "iterations", "rate", "size")}
    walks = [Case(f"seed {seed}", {"do": "walk", "seed": seed, **common}) for seed in seeds]
    return [*walks, Case("gradient", {"do": "gradient", "seed": seeds[0], **common})]


def solve(case: Case) -> dict[str, Any]:
    """Distance to the goal [m]; or the check of the gradient."""
    return _check(case) if case["do"] == "gradient" else _walk(case)


def report(arguments: Arguments, results: Results) -> Report:
    """Distances to the goals."""
    walks = [(case, found) for case, found in results if case["do"] == "walk"]
    checks = {case.name: found for case, found in results if case["do"] == "gradient"}
    rows = [
        [case.name, found["goal"], found["first"], found["away"], found["iteration"], found["alone"], found["finer"]]
        for case, found in walks
    ]
    away = [abs(found["away"]) for _, found in walks]
    share = sum(one <= WITHIN for one in away) / len(away)
    metrics = {
        "share_within_5_cm": share,
        "mean_distance": sum(away) / len(away),
        "worst_distance": max(away),
        "share_of_single_starts": sum(found["alone"] for _, found in walks) / len(walks),
        "worst_distance_at_half_step": max(abs(found["finer"]) for _, found in walks),
    }
    columns = (
        "walker",
        "goal [m]",
        "distance at the start [m]",
        "at the end",
        "iteration",
        "share of starts within 5 cm",
        "distance at half the time step [m]",
    )
    lines = [
        at_least("share of seeds that end within 5 cm", share, 0.8),
        *gradients.claims(list(checks.values())),
    ]
    deviations = (
        "the muscles relax in the last 0.5 s of 4 s; gradSim's move for all of 5 s",
        f"{arguments.starts} starts of {arguments.iterations} iterations each, of which the image chooses one",
        "the loss is the marginal distance of the last image, of 8 bits; gradSim's is the square of pixels",
        "the walker is Kinema's own, of the same number of triangles",
        "the image takes no derivative by the coordinate across the plane of motion, which contractions cannot change: "
        "in single precision the adjoint of that unstable direction overflows, in a product whose value is zero",
        "the gradient is checked over the first second of the same walk: later, the distance jumps with single touches",
    )
    return Report(
        (Table("walks", columns, rows), gradients.table(checks)),
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, walks),
        film=lambda file: _film(file, walks),
    )


@cache
def _model(dtype: torch.dtype) -> kn.Model:
    scene = kn.Scene()
    scene.add_ground()
    scene.add_cloth(
        kn.shapes.walker(EDGE, body=(10, 4), leg=(2, 3)),
        "walker",
        material=kn.Cloth(density=10.0, mu=2e3, lam=2e3, viscosity=10.0),
        skin=kn.Skin(k_e=2e3, k_d=10.0, k_f=50.0, friction=0.8),
    )
    return kn.compile(scene, dtype)


class Walk:
    """A goal that is drawn from a seed, and first weights."""

    def __init__(self, case: Case, dtype: torch.dtype = torch.float32) -> None:
        """Draw them."""
        drawn = torch.Generator().manual_seed(case["seed"])
        self.goal = 1.0 + float(torch.rand(1, generator=drawn))
        self.model, self.dtype = _model(dtype), dtype
        self.shape = (INPUTS, self.model.matter.elements)
        self.first = SMALL * torch.randn(self.shape, generator=drawn, dtype=torch.float64)
        self.camera = kn.Camera.look_at((0.75, -4.0, 0.5), (0.75, 0.0, 0.3), size=(2 * case["size"], case["size"]))

    def walk(self, weights: Tensor, steps: int = STEPS, finer: int = 1) -> kn.Trajectory:
        """Simulate with weights of shape (*batch, inputs, elements)."""
        t = DT * torch.arange(steps, dtype=torch.float64).repeat_interleave(finer).unsqueeze(-1)
        waves = torch.sin(RATE * t + 0.5 * math.pi * torch.arange(INPUTS))
        fade = ((RELAX - t) / FADE).clamp(0.0, 1.0)
        contraction = (STRENGTH * fade * torch.tanh(waves @ weights.double())).to(self.dtype)
        return kn.simulate(self.model, u=kn.Control(activation=contraction), steps=finer * steps, dt=DT / finer)

    def image(self, x: Tensor) -> Tensor:
        """Images of vertices in the plane of motion, shape (*batch, height, width, 3)."""
        flat = x * torch.tensor([1.0, 0.0, 1.0], dtype=x.dtype)
        options = kn.RenderOptions(ground=False, dtype=self.dtype)
        return kn.render(self.model, self.camera, state=kn.State(x=flat), options=options)

    @cached_property
    def target(self) -> Tensor:
        """The image of the goal with 8 bits, shape (1, height, width, 3)."""
        ahead = torch.tensor([self.goal, 0.0, 0.0], dtype=self.dtype)
        seen = self.image(self.model.initial_state().x + ahead)
        return kn.to_linear((255.0 * kn.to_srgb(seen)).round() / 255.0).unsqueeze(0)

    def away(self, x: Tensor) -> Tensor:
        """Distance of the centre of mass from the goal, along x [m], shape (*batch,)."""
        mass = 1.0 / self.model.resolve()["inv_mass"]
        return ((x[..., 0] - self.model.initial_state().x[:, 0]) * mass / mass.sum()).sum(-1) - self.goal


def _walk(case: Case) -> dict[str, Any]:
    walk = Walk(case)
    result = kn.fit(
        lambda values: walk.image(walk.walk(values["weights"]).end.x).unsqueeze(1),
        target=walk.target,
        unknown={"weights": kn.fit.Free(walk.first, scale=SMALL)},
        method=kn.fit.Adam(rate=case["rate"] / SMALL, betas=(0.7, 0.9), iterations=case["iterations"]),
        loss="marginal",
        starts=case["starts"],
        seed=case["seed"],
        options=kn.fit.Options(progress=False),
    )
    best = result.values["weights"]
    with torch.no_grad():
        alone = torch.cat([walk.away(walk.walk(start.values["weights"]).end.x)[None] for start in result.starts])
        first = walk.away(walk.walk(walk.first).end.x)
        finer = walk.away(walk.walk(best, finer=2).end.x)
        away = walk.away(walk.walk(best).end.x)
    return {
        "goal": walk.goal,
        "first": float(first),
        "away": float(away),
        "finer": float(finer),
        "alone": float((alone.abs() <= WITHIN).double().mean()),
        "iteration": int(result.history.argmin() // result.history.shape[1]),
        "losses": result.history.amin(1).tolist(),
        "weights": best.tolist(),
    }


def _check(case: Case) -> dict[str, Any]:
    """The gradient of the loss after the first second, by the first weights."""
    walk = Walk(case, torch.float64)

    def loss(weights: Tensor) -> tuple[Tensor, kn.Trajectory]:
        path = walk.walk(weights, CHECKED)
        return kn.marginal_loss(walk.image(path.end.x).unsqueeze(-4), walk.target), path

    ways = torch.randn(1, *walk.shape, generator=torch.Generator().manual_seed(case["seed"]), dtype=torch.float64)
    return gradients.check(loss, walk.first, WINDOW, batched=True, samples=9, directions=ways)


def _draw(file: Path, walks: Results) -> None:
    """Losses over iterations."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axis = figure.subplots()
    for case, found in walks:
        axis.semilogy(found["losses"], lw=1, label=f"seed {case['seed']}: {100 * found['away']:+.1f} cm")
    axis.set(title="loss of the best start", xlabel="iteration")
    axis.legend(frameon=False, fontsize=7)
    figure.savefig(file, dpi=110)


def _film(file: Path, walks: Results) -> None:
    """The walk of the first seed."""
    case, found = walks[0]
    walk = Walk(case)
    path = walk.walk(torch.tensor(found["weights"], dtype=torch.float64))
    look = kn.RenderOptions(ground=0.5)
    kn.write_video(file, kn.render(path, walk.camera.resized(512, 256), fps=30, options=look), fps=30)
