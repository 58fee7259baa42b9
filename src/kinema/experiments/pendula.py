"""Lengths of a pendulum and of a double pendulum, from videos alone [Jatavallabhula et al. 2021, appendix].

gradSim's settings: a damped pendulum pushed from rest is seen for 5 s, an undamped double pendulum for 5/3 s, 50 images
each; the single one begins at half of its length. Here both swing as bodies of Kinema, and images have 8 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients
from kinema.experiments.case import Case, Report, Results, Table, at_most

F64 = torch.float64
COLOURS = ("orange", "skyblue")
EVEN = kn.Lights(ambient=torch.ones(3), direction_colours=torch.zeros(1, 3))  # facets of the bobs do not show
SIGMA = 5e-4  # squared width of outlines
STARTS = 4
FILM = 240  # pixels
MARGIN, CHECKED = 0.05, 8  # half the window of the gradient check [m], and its images
SECANT = 0.08  # a soft image jumps by 1e-4 where an outline comes near a pixel: 2 to 4 % of the slope here


@dataclass(frozen=True)
class Setting:
    """A kind of pendulum: hinges, damping [N m s/rad], push [rad/s], angle [rad], step [s], steps between images."""

    links: int
    damping: float
    speed: float
    angle: float
    dt: float
    every: int
    truth: tuple[float, float]
    start: float


SETTINGS = {
    "single": Setting(1, 0.5, 3.0, 0.0, 0.01, 10, (0.8, 1.2), 0.5),
    "double": Setting(2, 0.0, 0.0, 1.0, 1 / 150, 5, (0.8, 1.2), 1.0),
}


@dataclass(frozen=True)
class Arguments:
    """Images, their size [pixels], the growing horizons as parts of the video, and iterations of the fit on each."""

    images: int = 50
    size: int = 64
    horizons: tuple[float, ...] = (0.2, 0.4, 0.7, 1.0)
    iterations: int = 15

    @classmethod
    def quick(cls) -> Arguments:
        """Smaller and fewer images."""
        return cls(images=30, size=48, horizons=(0.3, 0.6, 1.0), iterations=12)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """A fit for each kind and seed, and a gradient check for each kind."""
    common = {
        "images": arguments.images,
        "size": arguments.size,
        "horizons": arguments.horizons,
        "iterations": arguments.iterations,
    }
    fits = [
        Case(f"{kind}, seed {seed}", {"do": "fit", "kind": kind, "seed": seed, **common})
        for seed in seeds
        for kind in SETTINGS
    ]
    return fits + [
        Case(f"{kind}, gradient", {**common, "do": "gradient", "kind": kind, "seed": 1, "images": CHECKED})
        for kind in SETTINGS
    ]


def solve(case: Case) -> dict[str, Any]:
    """Lengths found and true [m]; or the check of the gradient."""
    return _check(case) if case["do"] == "gradient" else _fit(case)


def report(arguments: Arguments, results: Results) -> Report:
    """Errors of all lengths."""
    fits = [(case, found) for case, found in results if case["do"] == "fit"]
    checks = {case["kind"]: found for case, found in results if case["do"] == "gradient"}
    rows, metrics, lines = [], {}, []
    for case, found in fits:
        rows.append(
            [
                case.name,
                _text(found["true"]),
                _text(found["start"]),
                _text(found["found"]),
                found["error"],
                found["simulations"],
            ]
        )
    for kind in SETTINGS:
        errors = [found["error"] for case, found in fits if case["kind"] == kind]
        metrics[f"{kind}_worst_error"] = max(errors)
        metrics[f"{kind}_mean_error"] = sum(errors) / len(errors)
        lines.append(at_most(f"{kind} pendulum: worst relative error of a length", max(errors), 0.01))
    columns = ("pendulum", "true [m]", "start [m]", "found [m]", "relative error", "simulations")
    deviations = (
        "lengths are drawn from 0.8 to 1.2 m; gradSim shows one pendulum of 1 m",
        f"Levenberg-Marquardt on growing horizons of {arguments.images} images replaces 100 steps of Adam",
    )
    tables = (Table("lengths from videos", columns, rows), gradients.table(checks))
    lines += gradients.claims(list(checks.values()), secant=SECANT)
    return Report(
        tables,
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, fits),
        film=lambda file: _film(file, *[pair for pair in fits if pair[0]["kind"] == "double"][0]),
    )


@cache
def _scene(kind: str) -> kn.Model:
    setting = SETTINGS[kind]
    bodies = []
    for i in range(setting.links):
        # The bob collides with nothing, but as a shape that may, it has a centre that moves with the length.
        bob = kn.Sphere(0.12, pose=kn.Pose((0.0, 0.0, -1.0)), colour=COLOURS[i])
        hinge = kn.Joint(f"hinge{i}", "revolute", (0.0, 1.0, 0.0), damping=setting.damping)
        pose = kn.Pose((0.0, 0.0, -1.0)) if i else kn.Pose()
        weight = kn.MassProperties(1.0, (0.0, 0.0, -1.0))
        bodies.append(kn.Body(f"link{i}", f"link{i - 1}" if i else None, pose, (hinge,), weight, (bob,)))
    scene = kn.Scene()
    scene.add_robot(kn.Robot("pendulum", tuple(bodies)))
    return kn.compile(scene)


def _swing(kind: str, lengths: Tensor, images: int) -> kn.Trajectory:
    """Swing pendula with some lengths [m], shape (*batch, links)."""
    setting, model = SETTINGS[kind], _scene(kind)
    params: dict[str, Tensor] = {}
    for i in range(setting.links):
        end = torch.nn.functional.pad(-lengths[..., i : i + 1], (2, 0))
        params |= {f"pendulum/link{i}/com": end, f"pendulum/link{i}/centre": end}
        if i + 1 < setting.links:
            params[f"pendulum/hinge{i + 1}/offset"] = end
    one = torch.ones(setting.links, dtype=F64)
    state = model.initial_state().replace(q=setting.angle * one, v=setting.speed * one)
    steps = (images - 1) * setting.every
    return kn.simulate(model, state, steps=steps, dt=setting.dt, params=params, integrator="rk4")


def video(kind: str, lengths: Tensor, images: int, size: int) -> Tensor:
    """Images of pendula with some lengths [m], shape (*batch, images, size, size, 3)."""
    return _seen(kind, _swing(kind, lengths, images), size)


def _seen(kind: str, path: kn.Trajectory, size: int) -> Tensor:
    """Images of a trajectory."""
    low = -0.5 * SETTINGS[kind].links
    fov = 0.35 + 0.25 * SETTINGS[kind].links
    camera = kn.Camera.look_at((0.0, -6.0, low), (0.0, 0.0, low), fov=fov, size=(size, size))
    options = kn.RenderOptions(dtype=F64, background=(0.0, 0.0, 0.0), lights=EVEN, sigma=SIGMA)
    return kn.render(path, camera, every=SETTINGS[kind].every, options=options)


def _true(case: Case) -> tuple[Tensor, Tensor]:
    """True lengths, and those at the start [m]."""
    setting = SETTINGS[case["kind"]]
    low, high = setting.truth
    drawn = torch.rand(setting.links, generator=torch.Generator().manual_seed(case["seed"]), dtype=F64)
    true = low + (high - low) * drawn
    return true, setting.start * (true if setting.links == 1 else torch.ones_like(true))


def _observed(case: Case) -> Tensor:
    """The video with 8 bits per channel."""
    seen = video(case["kind"], _true(case)[0], case["images"], case["size"])
    return kn.to_linear((255.0 * kn.to_srgb(seen)).round() / 255.0)


def _fit(case: Case) -> dict[str, Any]:
    """Levenberg-Marquardt on growing horizons, from four starts: on marginal distances, in the end on pixels."""
    target, setting = _observed(case), SETTINGS[case["kind"]]
    true, start = _true(case)
    frame = setting.every * setting.dt

    def predict(values: Mapping[str, Tensor], until: float | None = None) -> Tensor:
        images = case["images"] if until is None else min(case["images"], 1 + round(until / frame))
        return video(case["kind"], values["lengths"], images, case["size"])

    duration = (case["images"] - 1) * frame
    found = kn.fit(
        predict,
        target,
        {"lengths": kn.fit.Log(0.4, 1.6, start)},
        loss=["marginal"] * len(case["horizons"]) + ["squares"],
        horizon=[part * duration for part in (*case["horizons"], 1.0)],
        starts=STARTS,
        seed=case["seed"],
        iterations=case["iterations"],
        options=kn.fit.Options(progress=False),
    )
    lengths = found.values["lengths"]
    return {
        "true": true.tolist(),
        "start": start.tolist(),
        "found": lengths.tolist(),
        "error": float((lengths / true - 1.0).abs().max()),
        "losses": found.history.amin(1).tolist(),
        "stages": found.stages,
        "simulations": found.evaluations,
    }


def _check(case: Case) -> dict[str, Any]:
    """The gradient of the loss of the first images, 10 % from the truth."""
    target, (true, _) = _observed(case), _true(case)
    at = 1.1 * true

    def loss(lengths: Tensor) -> tuple[Tensor, kn.Trajectory]:
        path = _swing(case["kind"], lengths, case["images"])
        return kn.marginal_loss(_seen(case["kind"], path, case["size"]), target), path

    return gradients.check(loss, at, MARGIN, batched=True, samples=9)


def _text(lengths: Sequence[float]) -> str:
    return ", ".join(f"{length:.5f}" for length in lengths)


def _draw(file: Path, fits: Results) -> None:
    """The loss over the iterations."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, kind in zip(axes, SETTINGS, strict=True):
        for case, found in fits:
            if case["kind"] == kind:
                axis.semilogy(found["losses"], lw=1, label=f"seed {case['seed']}")
        axis.set(title=f"{kind} pendulum", xlabel="iteration", ylabel="loss")
        axis.legend(frameon=False, fontsize=7)
    figure.savefig(file, dpi=110)


def _film(file: Path, case: Case, found: Mapping[str, Any]) -> None:
    """A double pendulum: the true one, and that with the lengths found, side by side."""
    both = torch.tensor([found["true"], found["found"]], dtype=F64)
    images = _seen("double", _swing("double", both, case["images"]), FILM)
    kn.write_video(file, torch.cat([*images], -2), fps=1 / (SETTINGS["double"].every * SETTINGS["double"].dt))
