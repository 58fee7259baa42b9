"""Throw a cloth so that it ends as one image shows it [Jatavallabhula et al. 2021, Figs. 5 and 6b].

gradSim's settings: a square cloth of 8 to 31 cells of 12.5 cm is thrown from 2 to 3 m through air with drag and lift;
the goal is an image of the same cloth at rest, 5 to 8 m ahead and 5 to 6 m below. The unknown is its initial velocity.
One camera sees the distance along its view only as size; a second one, from the side, sees it as place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients
from kinema.experiments.case import Case, Report, Results, Table, at_most

F64 = torch.float64
CELL, DT, STEPS = 0.125, 1 / 960, 1440  # [m], [s]
FIRST = (1.0, 0.0, 0.0)  # first guess [m/s]
SLOWEST, FASTEST = (0.0, -4.0, -4.0), (15.0, 4.0, 8.0)  # bounds: forward, with any goal in reach [m/s]
WINDOW = 0.1  # half the window of the gradient check [m/s]
STEP = 1e-3  # of differences: 16 mm/s, a third of a pixel
PAPER, PAPER_STATES = 0.199, 1.84  # COM-MSE at iteration 49 [m^2], from an image and from positions
MATERIAL = kn.Cloth(40.0, mu=1e3, lam=1e3, viscosity=1.0, bending=0.1, bending_damping=0.01, drag=5.0, lift=10.0)


@dataclass(frozen=True)
class Arguments:
    """Iterations of Levenberg-Marquardt, starts, size of images [pixels], range of the number of cells along a side."""

    iterations: int = 20
    starts: int = 5
    size: int = 128
    cells: tuple[int, int] = (8, 31)
    checked: tuple[str, ...] = ("1 camera", "2 cameras")  # whose gradients are checked

    @classmethod
    def quick(cls) -> Arguments:
        """Small images of small cloths."""
        return cls(size=96, cells=(8, 10), checked=("1 camera",))


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """A fit with one camera, with two, and from the positions of the centre, for each seed; two gradient checks."""
    common = {
        "iterations": arguments.iterations,
        "starts": arguments.starts,
        "size": arguments.size,
        "cells": arguments.cells,
    }
    found = [
        Case(f"seed {seed}, {see}", {"do": "fit", "see": see, "seed": seed, **common})
        for seed in seeds
        for see in ("1 camera", "2 cameras", "centre")
    ]
    small = {**common, "cells": (8, 8)}
    found += [
        Case(f"gradient, {see}", {"do": "gradient", "see": see, "seed": seeds[0], **small}) for see in arguments.checked
    ]
    return found


def solve(case: Case) -> dict[str, Any]:
    """The velocity found [m/s] and the squared error of the centre [m^2]; or the check of the gradient."""
    return _check(case) if case["do"] == "gradient" else _fit(case)


def report(arguments: Arguments, results: Results) -> Report:
    """Errors of the centre of mass."""
    fits = [(case, found) for case, found in results if case["do"] == "fit"]
    checks = {case["see"]: found for case, found in results if case["do"] == "gradient"}
    rows, metrics = [], {}
    for case, found in fits:
        rows.append(
            [case.name, found["cells"], found["first_error"], found["error"], found["depth"], found["iterations"]]
        )
    means = {}
    for see, key in (("1 camera", "one_camera"), ("2 cameras", "two_cameras"), ("centre", "centre")):
        errors = [found["error"] for case, found in fits if case["see"] == see]
        means[see] = metrics[f"{key}_mean"] = sum(errors) / len(errors)
        metrics[f"{key}_worst"] = max(errors)
    metrics["first_mean"] = sum(found["first_error"] for _, found in fits) / len(fits)
    metrics["iterations_worst"] = float(max(found["iterations"] for _, found in fits))
    columns = ("cloth", "cells", "COM-MSE at the start [m^2]", "at the end", "error along the view [m]", "iterations")
    mean = Table(
        "mean COM-MSE [m^2]",
        ("supervision", "here", "gradSim"),
        [["1 image", means["1 camera"], PAPER], ["2 images", means["2 cameras"], None]]
        + [["position of the centre", means["centre"], PAPER_STATES]],
    )
    lines = [
        at_most("one image: mean COM-MSE [m^2]", means["1 camera"], 0.05),
        at_most("two images: mean COM-MSE [m^2]", means["2 cameras"], 0.005),
        *gradients.claims(list(checks.values())),
    ]
    deviations = (
        "the cloth has 40 kg/m^2 (gradSim's 128 kg/m^2) and stays flat in flight, as all of it feels the same air: the "
        "goal can be reached exactly",
        "the last image alone is compared with the goal; gradSim compares every 60th step with it",
        "Levenberg-Marquardt from five starts on marginal distances of an image with 8 bits replaces 50 steps of Adam "
        "on squares of pixels; an iteration simulates five throws per start or a few more",
        "the tilt of the cloth is drawn as well; gradSim's camera looks along its surface",
    )
    return Report(
        (Table("throws", columns, rows), mean, gradients.table(checks)),
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, fits),
        film=lambda file: _film(file, fits),
    )


class Throw:
    """A scene that is drawn from a seed."""

    def __init__(self, case: Case) -> None:
        """Draw the number of cells, height, tilt and goal."""
        drawn = torch.Generator().manual_seed(case["seed"])
        low, high = case["cells"]
        self.cells = int(torch.randint(low, high + 1, (1,), generator=drawn))
        height, along, turned, way = torch.rand(4, generator=drawn, dtype=F64).tolist()
        self.goal = torch.tensor([3.0 * along, 0.0, -3.0], dtype=F64)
        angle, axis = math.pi * (0.2 + 0.3 * turned), 2 * math.pi * way
        tilt = (
            math.cos(0.5 * angle),
            math.sin(0.5 * angle) * math.cos(axis),
            math.sin(0.5 * angle) * math.sin(axis),
            0.0,
        )
        scene = kn.Scene()
        mesh = kn.shapes.sheet(self.cells * CELL, self.cells * CELL, squares=(self.cells, self.cells))
        scene.add_cloth(mesh, "cloth", material=MATERIAL, skin=None, pos=(-5.0, 0.0, 2.0 + height), rot=tilt)
        self.model = kn.compile(scene, F64)
        self.x = self.model.initial_state().x
        size = (case["size"], case["size"])
        eyes = ((0.0, -15.0, 0.0), (15.0, 0.0, 0.0))[: 2 if case["see"] == "2 cameras" else 1]
        self.cameras = [kn.Camera.look_at(eye, (0.0, 0.0, 0.0), fov=math.pi / 3, size=size) for eye in eyes]
        self.see = case["see"]

    @cached_property
    def shares(self) -> Tensor:
        """Share of each vertex in the mass, shape (vertices, 1)."""
        mass = 1.0 / self.model.resolve()["inv_mass"]
        return (mass / mass.sum()).unsqueeze(-1)

    def centre(self, x: Tensor) -> Tensor:
        """The centre of mass [m], shape (*batch, 3)."""
        return (self.shares * x).sum(-2)

    def fly(self, velocity: Tensor) -> kn.Trajectory:
        """Simulate with initial velocities [m/s], shape (*batch, 3)."""
        moving = velocity.to(F64).unsqueeze(-2).expand(*velocity.shape[:-1], *self.x.shape)
        return kn.simulate(self.model, kn.State(x=self.x, xd=moving), steps=STEPS, dt=DT)

    def images(self, x: Tensor) -> Tensor:
        """Images of cloths, shape (*batch, cameras, height, width, 3)."""
        options = kn.RenderOptions(dtype=F64)
        seen = [kn.render(self.model, one, state=kn.State(x=x), options=options) for one in self.cameras]
        return torch.stack(seen, -4)

    def seen(self, x: Tensor) -> Tensor:
        """What is compared with the goal: images or the centre, with an axis of one frame."""
        return (self.centre(x) if self.see == "centre" else self.images(x)).unsqueeze(x.ndim - 2)

    @cached_property
    def target(self) -> Tensor:
        """What is seen of the goal: images with 8 bits, or the centre."""
        found = self.seen(self.x - self.centre(self.x) + self.goal)
        return found if self.see == "centre" else kn.to_linear((255.0 * kn.to_srgb(found)).round() / 255.0)


def _fit(case: Case) -> dict[str, Any]:
    throw = Throw(case)
    result = kn.fit(
        lambda values: throw.seen(throw.fly(values["velocity"]).end.x),
        target=throw.target,
        unknown={"velocity": kn.fit.Bounded(SLOWEST, FASTEST, start=FIRST)},
        method=kn.fit.LM(iterations=case["iterations"], shortest=STEP),
        loss="squares" if case["see"] == "centre" else "marginal",
        starts=case["starts"],
        options=kn.fit.Options(progress=False, confidence=False),
    )
    ends = throw.centre(throw.fly(torch.stack([torch.tensor(FIRST, dtype=F64), result.values["velocity"]])).end.x)
    away = ends - throw.goal
    return {
        "cells": throw.cells,
        "goal": throw.goal.tolist(),
        "velocity": result.values["velocity"].tolist(),
        "first_error": float(away[0].square().mean()),
        "error": float(away[1].square().mean()),
        "depth": float(away[1, 1]),
        "iterations": result.iterations,
        "simulations": result.evaluations,
        "losses": result.history.amin(1).tolist(),
    }


def _check(case: Case) -> dict[str, Any]:
    """The gradient of the loss to the velocity, two thirds on the way from the first guess to the solution."""
    throw = Throw(case)
    found = _fit(case)["velocity"]

    def loss(velocity: Tensor) -> tuple[Tensor, kn.Trajectory]:
        path = throw.fly(velocity)
        return kn.marginal_loss(throw.seen(path.end.x).flatten(1, 2), throw.target.flatten(0, 1)), path

    way = torch.tensor(found, dtype=F64) - torch.tensor(FIRST, dtype=F64)
    at = torch.tensor(FIRST, dtype=F64) + way * 2 / 3
    return gradients.check(loss, at, WINDOW, batched=True, samples=9, directions=way.unsqueeze(0))


def _draw(file: Path, fits: Results) -> None:
    """Losses over iterations, and errors."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for axis, see in zip(axes, ("1 camera", "2 cameras", "centre"), strict=True):
        for case, found in fits:
            if case["see"] == see:
                first = found["losses"][0]
                axis.semilogy([loss / first for loss in found["losses"]], lw=1, label=f"seed {case['seed']}")
        axis.set(title=see, xlabel="iteration")
    axes[0].set(ylabel="loss, relative to the first")
    axes[0].legend(frameon=False, fontsize=6)
    figure.savefig(file, dpi=110)


def _film(file: Path, fits: Results) -> None:
    """The throw that one image led to, of the first seed."""
    case, found = next((case, found) for case, found in fits if case["see"] == "1 camera")
    throw = Throw(case)
    path = throw.fly(torch.tensor(found["velocity"], dtype=F64))
    camera = throw.cameras[0].resized(320, 320)
    kn.write_video(file, kn.render(path, camera, fps=30), fps=30)
