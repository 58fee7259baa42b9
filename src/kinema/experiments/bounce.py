"""Speed of a bouncing ball and gravity, from its video alone [Jatavallabhula et al. 2021, appendix].

gradSim's ball has a radius of 0.75 m and falls at 9 m/s^2; its initial velocity and gravity are unknown. Here the
ground is hard, with restitution, and the ball is a body of Kinema: velocities jump at an impact, whose time depends on
the unknowns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients
from kinema.experiments.case import Case, Report, Results, Table, at_least, at_most

F64 = torch.float64
RADIUS, HEIGHT, RESTITUTION = 0.75, 3.0, 0.8  # [m], [m], [-]
DT, EVERY = 1 / 120, 4  # [s], and in steps between images: 30 per second
LOW, HIGH = torch.tensor([0.5, -3.0, 5.0], dtype=F64), torch.tensor([2.5, 2.0, 15.0], dtype=F64)
"""Bounds of the speeds to the right and upwards [m/s], and of gravity [m/s^2]."""
NAMES = ("to the right [m/s]", "upwards [m/s]", "gravity [m/s^2]")
SIGMA = 5e-4  # squared width of outlines
WAYS = torch.eye(3, dtype=F64)[1:]  # of the gradient check: upwards, and gravity
STARTS, CHECKED = 4, 25  # of the fit; images of the gradient check, with the first bounce


@dataclass(frozen=True)
class Arguments:
    """Images, their size [pixels], growing horizons as parts of the video, iterations on each."""

    images: int = 100
    size: int = 64
    horizons: tuple[float, ...] = (0.15, 0.3, 0.6, 1.0)
    iterations: int = 15

    @classmethod
    def quick(cls) -> Arguments:
        """Two bounces, small images."""
        return cls(images=45, size=32, horizons=(0.3, 1.0), iterations=10)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """A fit for each seed, and a gradient check."""
    fits = [Case(f"seed {seed}", {"do": "fit", "seed": seed, **asdict(arguments)}) for seed in seeds]
    return [*fits, Case("gradient", {"do": "gradient", "seed": 1, **asdict(arguments)})]


def solve(case: Case) -> dict[str, Any]:
    """Speeds and gravity, found and true; or the check of the gradient."""
    return _check(case) if case["do"] == "gradient" else _fit(case)


def report(arguments: Arguments, results: Results) -> Report:
    """Errors relative to gravity, and to the speed."""
    fits = [(case, found) for case, found in results if case["do"] == "fit"]
    checks = {case.name: found for case, found in results if case["do"] == "gradient"}
    rows = [
        [case.name, *_cells(found["true"]), *_cells(found["found"]), found["error"], found["bounces"]]
        for case, found in fits
    ]
    columns = ("ball", *(f"true {name}" for name in NAMES), *("found" for _ in NAMES), "relative error", "bounces")
    worst = max(found["error"] for _, found in fits)
    metrics = {"worst_error": worst, "mean_error": sum(found["error"] for _, found in fits) / len(fits)}
    lines = [
        at_most("worst relative error of speed or gravity", worst, 0.01),
        at_least("bounces in every video", min(found["bounces"] for _, found in fits), 1),
        *gradients.claims(list(checks.values()), secant=0.08),
    ]
    deviations = (
        "contact is hard, with a restitution of 0.8; gradSim's ball turns around at the ground",
        "Levenberg-Marquardt on growing horizons replaces 25 steps of Adam",
    )
    tables = (Table("speed and gravity from videos", columns, rows), gradients.table(checks))
    return Report(
        tables,
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, fits, arguments),
        film=lambda file: _film(file, fits, arguments),
    )


@cache
def _scene() -> kn.Model:
    scene = kn.Scene(contact=kn.Contact(friction=0.0, restitution=RESTITUTION))
    scene.add_ground()
    scene.add_body(kn.Sphere(RADIUS, colour="orange"), "ball", mass=1.0, pos=(-3.0, 0.0, HEIGHT))
    return kn.compile(scene)


def _bounce(unknown: Tensor, images: int) -> kn.Trajectory:
    """Bounce with speeds to the right and upwards, and gravity, shape (*batch, 3)."""
    model = _scene()
    right, up, gravity = unknown.unbind(-1)
    zero = torch.zeros_like(right)
    start = model.initial_state()
    linear = torch.stack([right, zero, up], -1)
    # Velocities of a free body: angular, then linear.
    state = start.replace(v=torch.cat([torch.zeros_like(linear), linear], -1))
    params = {"gravity": torch.stack([zero, zero, -gravity], -1)}
    return kn.simulate(model, state, steps=(images - 1) * EVERY, dt=DT, params=params)


def _seen(path: kn.Trajectory, size: int) -> Tensor:
    camera = kn.Camera.look_at((0.5, -14.0, 1.8), (0.5, 0.0, 1.8), fov=0.6, size=(size, size))
    even = kn.Lights(ambient=torch.ones(3), direction_colours=torch.zeros(1, 3))
    options = kn.RenderOptions(dtype=F64, background=(0.0, 0.0, 0.0), lights=even, sigma=SIGMA, ground=False)
    return kn.render(path, camera, every=EVERY, options=options)


def _true(seed: int) -> Tensor:
    drawn = torch.rand(3, generator=torch.Generator().manual_seed(seed), dtype=F64)
    return LOW + (0.2 + 0.6 * drawn) * (HIGH - LOW)


def _observed(case: Case, images: int) -> tuple[Tensor, kn.Trajectory]:
    """The video with 8 bits per channel, and the motion."""
    path = _bounce(_true(case["seed"]), images)
    return kn.to_linear((255.0 * kn.to_srgb(_seen(path, case["size"]))).round() / 255.0), path


def _fit(case: Case) -> dict[str, Any]:
    target, path = _observed(case, case["images"])
    duration = (case["images"] - 1) * EVERY * DT

    def predict(values: Mapping[str, Tensor], until: float | None = None) -> Tensor:
        images = case["images"] if until is None else min(case["images"], 1 + round(until / (EVERY * DT)))
        return _seen(_bounce(values["unknown"], images), case["size"])

    found = kn.fit(
        predict,
        target,
        {"unknown": kn.fit.Bounded(LOW, HIGH)},
        loss=["marginal"] * len(case["horizons"]) + ["squares"],
        horizon=[part * duration for part in (*case["horizons"], 1.0)],
        starts=STARTS,
        seed=case["seed"],
        iterations=case["iterations"],
        options=kn.fit.Options(progress=False),
    )
    true, estimate = _true(case["seed"]), found.values["unknown"]
    speed = float(true[:2].norm())
    errors = (estimate - true).abs() / torch.tensor([speed, speed, float(true[2])], dtype=F64)
    upwards = path.v[:, 5]
    return {
        "true": true.tolist(),
        "found": estimate.tolist(),
        "error": float(errors.max()),
        "bounces": int(((upwards[1:] > 0.5) & (upwards[:-1] < -0.5)).sum()),
        "simulations": found.evaluations,
    }


def _check(case: Case) -> dict[str, Any]:
    """The gradient of the loss over the first bounce, 5 % from the truth."""
    images = CHECKED
    target, _ = _observed(case, images)

    def loss(unknown: Tensor) -> tuple[Tensor, kn.Trajectory]:
        path = _bounce(unknown, images)
        return kn.marginal_loss(_seen(path, case["size"]), target), path

    return gradients.check(loss, 1.05 * _true(case["seed"]), 0.05, batched=True, samples=9, directions=WAYS)


def _cells(values: Sequence[float]) -> list[str]:
    return [f"{value:.4f}" for value in values]


def _draw(file: Path, fits: Results, arguments: Arguments) -> None:
    """Heights over time: the true ones, and those with the values found."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.2), layout="constrained", facecolor="white")
    axis = figure.add_subplot()
    for i, (case, found) in enumerate(fits):
        true, mine = (
            _bounce(torch.tensor(found[key], dtype=F64), arguments.images).q[:, 2] for key in ("true", "found")
        )
        time = [DT * k for k in range(len(true))]
        axis.plot(time, true.tolist(), lw=1.2, color=f"C{i}", label=case.name)
        axis.plot(time, mine.tolist(), lw=1.2, color="0.2", ls=":")
    axis.set(xlabel="time [s]", ylabel="height [m]", title="dotted: with the values found")
    axis.legend(frameon=False, fontsize=7)
    figure.savefig(file, dpi=110)


def _film(file: Path, fits: Results, arguments: Arguments) -> None:
    """The first ball, with the values found."""
    case, found = fits[0]
    path = _bounce(torch.tensor(found["found"], dtype=F64), arguments.images)
    kn.write_video(file, _seen(path, 4 * case["size"]), fps=30)
