"""Stir smoke into a picture [Jatavallabhula et al. 2021, appendix]: 2 n^2 numbers, from one image.

gradSim's box has 110 x 110 cells and is periodic; smoke moves for 100 steps, and the unknown is the initial velocity,
at first zero. Only the last image is compared, as it is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients
from kinema.experiments.case import Case, Report, Results, Table, at_most, stored

DT = 1.0 / 120  # [s]
NOISE = 0.01  # of the first velocity: at rest, slopes are one-sided [m/s]
CHECK_STEPS = 20
SHAPES = ("hook", "cross", "wave")  # without holes, which a flow cannot make


@dataclass(frozen=True)
class Arguments:
    """Cells along each side, steps, evaluations of L-BFGS."""

    cells: int = 110
    steps: int = 100
    iterations: int = 60

    @classmethod
    def quick(cls) -> Arguments:
        """A small box for a short time."""
        return cls(cells=48, steps=60, iterations=40)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """A picture for each seed, and a gradient check."""
    fits = [
        Case(f"{SHAPES[seed % len(SHAPES)]}, seed {seed}", {"do": "stir", "seed": seed, **asdict(arguments)})
        for seed in seeds
    ]
    return [*fits, Case("gradient", {"do": "gradient", "seed": 0, **asdict(arguments)})]


def solve(case: Case) -> dict[str, Any]:
    """Losses over the evaluations; or the check of the gradient."""
    return _check(case) if case["do"] == "gradient" else _stir(case)


def report(arguments: Arguments, results: Results) -> Report:
    """How much of the first difference is left."""
    stirred = [(case, found) for case, found in results if case["do"] == "stir"]
    checks = {case.name: found for case, found in results if case["do"] == "gradient"}
    rows = [
        [case.name, found["losses"][0], min(found["losses"]), found["left"], len(found["losses"])]
        for case, found in stirred
    ]
    columns = ("picture", "first loss", "last loss", "ratio", "evaluations")
    left = [found["left"] for _, found in stirred]
    metrics = {"worst_left": max(left), "mean_left": sum(left) / len(left)}
    lines = [
        at_most("part of the squared difference of images that is left", max(left), 0.1),
        *gradients.claims(list(checks.values())),
    ]
    deviations = (
        "pressure is solved to convergence, instead of six Jacobi sweeps",
        f"L-BFGS with {arguments.iterations} iterations replaces 50 steps of Adam; pictures are drawn by a program",
    )
    tables = (Table("smoke", columns, rows), gradients.table(checks))
    return Report(
        tables,
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, stirred),
        film=lambda file: _film(file, stirred),
    )


def _box(case: Case) -> kn.SmokeBox:
    return kn.SmokeBox((case["cells"],) * 2, 1.0, periodic=True)


def _blob(box: kn.SmokeBox, dtype: torch.dtype) -> Tensor:
    """A round blob of density 1 at the centre."""
    x, y = box.centres(dtype)
    return torch.sigmoid((0.25 - (x - 0.5).hypot(y - 0.5)) / 0.02)[None]


def _picture(box: kn.SmokeBox, seed: int, dtype: torch.dtype) -> Tensor:
    """A picture with the area and mass of the blob, because the flow keeps both; turned by a random angle."""
    x, y = (c - 0.5 for c in box.centres(dtype))
    angle = 2 * math.pi * float(torch.rand(1, generator=torch.Generator().manual_seed(seed)))
    x, y = math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y
    kind = SHAPES[seed % len(SHAPES)]
    if kind == "hook":
        inside = torch.minimum(0.07 - (x.hypot(y) - 0.25).abs(), 0.25 * torch.atan2(y, x).abs() - 0.1)
    elif kind == "cross":
        inside = 0.09 - torch.minimum(x.abs().clamp_min(y.abs() - 0.23), y.abs().clamp_min(x.abs() - 0.23))
    else:
        inside = 0.15 - (y - 0.15 * torch.sin(8.0 * x)).abs().clamp_min(x.abs() - 0.18)
    shape = torch.sigmoid(inside / 0.015)[None]
    return shape * (_blob(box, dtype).sum() / shape.sum())


def _loss(case: Case, velocity: Tensor, steps: int) -> tuple[Tensor, kn.SmokeTrajectory]:
    """Squared difference of the last image from the picture's, relative to that of an empty box."""
    box = _box(case)
    path = kn.simulate_smoke(box, _blob(box, velocity.dtype), velocity, steps=steps, dt=DT)
    target = _picture(box, case["seed"], velocity.dtype)
    # With one pixel for each cell, the image of the smoke is its density, in grey.
    return (path.end.density - target).square().sum((-3, -2, -1)) / target.square().sum(), path


def _first(case: Case, dtype: torch.dtype) -> Tensor:
    made = torch.Generator().manual_seed(case["seed"])
    return NOISE * torch.randn(2, *_box(case).cells, generator=made, dtype=dtype)


def _stir(case: Case) -> dict[str, Any]:
    velocity = _first(case, torch.float32).requires_grad_()
    optimiser = torch.optim.LBFGS(
        [velocity], max_iter=case["iterations"], history_size=20, line_search_fn="strong_wolfe"
    )
    losses: list[float] = []

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss, _ = _loss(case, velocity, case["steps"])
        loss.backward()
        losses.append(loss.item())
        return loss.detach()

    optimiser.step(closure)
    last = float(_loss(case, velocity.detach(), case["steps"])[0])
    return {
        "losses": losses,
        "left": last / losses[0],
        "files": stored(case, f"velocity-{case['seed']}.safetensors", {"velocity": velocity.detach()}),
    }


def _check(case: Case) -> dict[str, Any]:
    """The gradient of the same loss in float64, over fewer steps."""
    at = 20.0 * _first(case, torch.float64)

    def loss(velocity: Tensor) -> Tensor:
        return _loss(case, velocity, CHECK_STEPS)[0]

    # Along the gradient, as an optimiser goes, and along a random direction that shares it.
    leaf = at.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(leaf), leaf)
    ways = torch.stack([slope / slope.norm(), slope / slope.norm() + at / at.norm()])
    return gradients.check(loss, at, 0.1 * float(at.norm()), batched=True, samples=9, directions=ways)


def _found(case: Case, found: Mapping[str, Any]) -> kn.SmokeTrajectory:
    """The motion with the velocity found."""
    assert case.folder is not None
    velocity = kn.load(case.folder / next(iter(found["files"])))["velocity"]
    return _loss(case, velocity, case["steps"])[1]


def _draw(file: Path, stirred: Results) -> None:
    """Pictures, what smoke made of them, and losses."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 2.2 * len(stirred)), layout="constrained", facecolor="white")
    for row, (case, found) in zip(figure.subplots(len(stirred), 3, squeeze=False), stirred, strict=True):
        wanted = _picture(_box(case), case["seed"], torch.float32)
        images = {"picture": wanted, "smoke": _found(case, found).density[-1]}
        for axis, (name, image) in zip(row, images.items(), strict=False):
            axis.imshow(image[0].T.flip(0), cmap="gray", vmin=0.0, vmax=1.0)
            axis.set(title=f"{name}, {case.name}", xticks=[], yticks=[])
        row[2].semilogy(found["losses"], color="#33679f", lw=1)
        row[2].set(xlabel="evaluation", ylabel="loss")
    figure.savefig(file, dpi=110)


def _film(file: Path, stirred: Results) -> None:
    """The first picture."""
    path = _found(*stirred[0])
    # Two pixels for each cell; the last image stays for half a second.
    images = path.density.clamp(0.0, 1.0).expand(-1, 3, -1, -1).permute(0, 3, 2, 1).flip(1)
    images = images.repeat_interleave(2, 1).repeat_interleave(2, 2)
    kn.write_video(file, torch.cat([images, images[-1:].expand(15, -1, -1, -1)]), fps=30)
