"""Roll a gear of tetrahedra to the place that one image shows [Jatavallabhula et al. 2021, Figs. 5 and 6a].

gradSim's settings: a soft gear of 1,152 tetrahedra starts at 1.5 m/s, 4 m behind the origin; a linear layer without
bias and tanh turn eight sinusoids of 2.5 rad/s into contractions of at most 0.3; 5,760 steps make 3 s; the goal is an
image of the gear at rest, 0 to 5 m beyond the origin. The unknowns are the 9,216 weights. Where the centre of mass ends
is compared with its place in the goal: mean squared error of its three coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients
from kinema.experiments.case import Case, Report, Results, Table, at_least, at_most

F32, F64 = torch.float32, torch.float64
RADIUS, START, SPEED = 2.0, -4.0, 1.5  # [m], [m], [m/s]
DT, SUBSTEPS = 1 / 60, 32  # [s]
RATE, STRENGTH, INPUTS = 2.5, 0.3, 8  # of the sinusoids [rad/s], of the muscles [-], number of sinusoids
FADE = 0.4  # over which the muscles relax at the end [s]
FIRST = 1 / math.sqrt(INPUTS)  # bound of the first weights, as torch draws those of a linear layer
FAR, NEAR = 1.0, 0.01  # weights in the loss of marginals, which lead from afar, and of pixels, which place exactly
DRAWS = 8  # of random weights
PAPER = {"image": 0.107, "positions": 0.082, "random": 3.50}  # mean COM-MSE at the last iteration [m^2]
WINDOW, TINY = 4.0, 1e-6  # of the gradient check, for the vector of weights: half the window, and a tiny step


@dataclass(frozen=True)
class Arguments:
    """Iterations of Adam and their rate, time [s], range of goals [m], size of images [pixels], of the check [s]."""

    iterations: int = 40
    rate: float = 0.1
    seconds: float = 3.0
    goals: tuple[float, float] = (0.0, 5.0)
    size: int = 128
    checked: float = 1.0

    @classmethod
    def quick(cls) -> Arguments:
        """A shorter way, in a shorter time."""
        return cls(iterations=20, seconds=1.0, goals=(-2.2, -1.7), size=96, checked=0.15)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """A fit to an image, one to the place of the centre, and random weights, for each seed; a gradient check."""
    names = ("iterations", "rate", "seconds", "goals", "size", "checked")
    common = {name: getattr(arguments, name) for name in names}
    found = [
        Case(f"seed {seed}, {do}", {**common, "do": do, "seed": seed})
        for seed in seeds
        for do in ("image", "positions", "random")
    ]
    return [*found, Case("gradient", {**common, "do": "gradient", "seed": seeds[0]})]


def solve(case: Case) -> dict[str, Any]:
    """The squared error of the centre at the start and at the end [m^2]; or the check of the gradient."""
    how = {"gradient": _check, "random": _draws}
    return how.get(case["do"], _fit)(case)


def report(arguments: Arguments, results: Results) -> Report:
    """Errors of all seeds, with each supervision."""
    by = {do: [(case, found) for case, found in results if case["do"] == do] for do in PAPER}
    checks = {case.name: found for case, found in results if case["do"] == "gradient"}
    rows, metrics = [], {}
    for (case, image), (_, positions), (_, random) in zip(*by.values(), strict=True):
        others = (image["finer"], positions["error"], random["error"])
        rows.append([case.name, image["goal"], image["first"], image["error"], image["centre"][1], *others])
    means = {}
    for do, mine in by.items():
        errors = [found["error"] for _, found in mine]
        means[do] = metrics[f"{do}_mean"] = sum(errors) / len(errors)
        metrics[f"{do}_worst"] = max(errors)
    image = [found for _, found in by["image"]]
    nearer = sum(found["error"] < found["first"] for found in image) / len(image)
    metrics["first_mean"] = sum(found["first"] for found in image) / len(image)
    metrics["half_step_mean"] = sum(found["finer"] for found in image) / len(image)
    metrics["share_nearer"] = nearer
    metrics["float32_gradient_error"] = max(found["single"] for found in checks.values())
    image_error = max(found["image"] for found in checks.values())
    columns = (
        "gear",
        "goal [m]",
        "COM-MSE at the start [m^2]",
        "at the end",
        "error along the view [m]",
        "at half the time step",
        "from positions",
        "random weights",
    )
    mean = Table(
        f"mean COM-MSE at iteration {arguments.iterations} [m^2]",
        ("supervision", "here", "gradSim"),
        [
            ["1 image", means["image"], PAPER["image"]],
            ["place of the centre", means["positions"], PAPER["positions"]],
            ["none: random weights", means["random"], PAPER["random"]],
        ],
    )
    lines = [
        at_most("one image: mean COM-MSE [m^2]", means["image"], 0.05),
        at_least("share of seeds that end nearer than they began, and finite", nearer, 1.0),
        at_most("gradient of the image's loss against central differences, relative error", image_error, 1e-4),
        *gradients.claims(list(checks.values())),
    ]
    deviations = (
        "the gear is Kinema's own, of the same number of tetrahedra, and 4 m wide; contact has 3 kN/m at each vertex, "
        "where gradSim's 10 kN/m would need shorter steps for the lightest vertices of this mesh",
        f"the muscles relax in the last {FADE} s, so that the last image can equal the goal; they hold for 1/60 s",
        "Adam has a rate of 0.1 in units of the first weights, and decays of 0.7 and 0.9; the rate grows for 10 "
        "iterations and falls to 0.3 of it (gradSim: 10). Of all iterations, the image chooses the best",
        f"the loss is the marginal distance of the last image, of 8 bits, and {NEAR} times that of an image pyramid; "
        "gradSim's is the square of pixels",
        "fits are in single precision: at the first weights the gradient differs from that in double precision by "
        f"{metrics['float32_gradient_error']:.1e} of it",
        f"gradients are checked over the first {arguments.checked:g} s of the same motion; secants are those of the "
        "error of the centre, because images jump by 1e-4 where an outline comes near a pixel",
    )
    return Report(
        (Table("gears", columns, rows), mean, gradients.table(checks)),
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, by),
        film=lambda file: _film(file, *by["image"][0]),
    )


@cache
def _model(dtype: torch.dtype) -> kn.Model:
    scene = kn.Scene()
    scene.add_ground()
    scene.add_solid(
        kn.shapes.gear(RADIUS, 0.8, 1.0),
        "gear",
        material=kn.Solid(density=1.0, mu=1e3, lam=1e3, viscosity=1.0),
        skin=kn.Skin(k_e=3e3, k_d=1.0, k_f=10.0, friction=0.5),
        pos=(START, 0.0, RADIUS),
        rot=(math.sqrt(0.5), math.sqrt(0.5), 0.0, 0.0),
    )
    return kn.compile(scene, dtype)


class Gear:
    """A gear, and a goal that is drawn from a seed."""

    def __init__(self, case: Case, dtype: torch.dtype = F32) -> None:
        """Draw the goal and the first weights."""
        drawn = torch.Generator().manual_seed(case["seed"])
        low, high = case["goals"]
        self.goal = torch.tensor([low + (high - low) * float(torch.rand(1, generator=drawn)), 0.0, RADIUS], dtype=dtype)
        self.model, self.dtype = _model(dtype), dtype
        self.x = self.model.initial_state().x
        self.shape = (INPUTS, self.model.matter.elements)
        self.steps = round(case["seconds"] / DT)
        self.random = drawn
        self.first = self.weights()
        eye = (0.0, -13.0 * math.cos(math.pi / 6), 13.0 * math.sin(math.pi / 6))
        self.camera = kn.Camera.look_at(eye, (0.0, 0.0, 0.0), fov=math.pi / 3, size=(case["size"], case["size"]))

    def weights(self) -> Tensor:
        """Random weights, shape (inputs, elements)."""
        return FIRST * (2.0 * torch.rand(self.shape, generator=self.random, dtype=F64) - 1.0)

    @cached_property
    def shares(self) -> Tensor:
        """Share of each vertex in the mass, shape (vertices, 1)."""
        mass = 1.0 / self.model.resolve()["inv_mass"]
        return (mass / mass.sum()).unsqueeze(-1)

    def centre(self, x: Tensor) -> Tensor:
        """The centre of mass [m], shape (*batch, 3)."""
        return (self.shares * x).sum(-2)

    def error(self, x: Tensor) -> Tensor:
        """COM-MSE [m^2], shape (*batch,)."""
        return (self.centre(x) - self.goal).square().mean(-1)

    def roll(self, weights: Tensor, steps: int | None = None, finer: int = 1) -> kn.Trajectory:
        """Simulate with weights of shape (*batch, inputs, elements)."""
        t = DT * torch.arange(self.steps, dtype=F64).unsqueeze(-1)
        waves = torch.sin(RATE * (t + math.pi / 4 * torch.arange(INPUTS)))
        fade = ((DT * self.steps - t) / FADE).clamp(0.0, 1.0)
        activation = (STRENGTH * fade * torch.tanh(waves @ weights.to(F64))).to(self.dtype)
        steps = self.steps if steps is None else steps
        speed = torch.tensor([SPEED, 0.0, 0.0], dtype=self.dtype).expand_as(self.x)
        u = kn.Control(activation=activation[..., :steps, :])
        start = kn.State(x=self.x, xd=speed)
        return kn.simulate(self.model, start, u, steps=steps, dt=DT, substeps=finer * SUBSTEPS)

    def image(self, x: Tensor) -> Tensor:
        """Images, shape (*batch, height, width, 3)."""
        pixel = 2.0 / self.camera.width  # narrower outlines jump from pixel to pixel
        options = kn.RenderOptions(ground=False, dtype=self.dtype, sigma=pixel**2)
        return kn.render(self.model, self.camera, state=kn.State(x=x), options=options)

    @cached_property
    def target(self) -> Tensor:
        """The image of the goal with 8 bits, shape (1, height, width, 3)."""
        found = self.image(self.x - self.centre(self.x) + self.goal)
        return kn.to_linear((255.0 * kn.to_srgb(found)).round() / 255.0).unsqueeze(0)


def _far_and_near(images: Tensor, target: Tensor) -> Tensor:
    """A loss that leads from afar, and places exactly."""
    return FAR * kn.marginal_loss(images, target) + NEAR * kn.pyramid_loss(images, target, levels=6)


def _fit(case: Case) -> dict[str, Any]:
    gear, course = Gear(case), []
    sees = case["do"] == "image"

    def predict(values: Mapping[str, Tensor]) -> Tensor:
        x = gear.roll(values["weights"]).end.x
        course.append(float(gear.error(x.detach())[0]))
        return (gear.image(x) if sees else gear.centre(x)).unsqueeze(1)

    result = kn.fit(
        predict,
        target=gear.target if sees else gear.goal.unsqueeze(0),
        unknown={"weights": kn.fit.Free(gear.first, scale=FIRST)},
        method=kn.fit.Adam(rate=case["rate"], betas=(0.7, 0.9), warmup=10, final=0.3, iterations=case["iterations"]),
        loss=_far_and_near if sees else "squares",
        options=kn.fit.Options(progress=False, confidence=False),
    )
    best = result.values["weights"]
    with torch.no_grad():
        end = gear.roll(best).end.x
        finer = gear.roll(best, finer=2).end.x
    return {
        "goal": float(gear.goal[0]),
        "first": course[0],
        "error": float(gear.error(end)),
        "finer": float(gear.error(finer)),
        "centre": (gear.centre(end) - gear.goal).tolist(),
        "course": course,
        "losses": result.history[:, 0].tolist(),
    } | ({"weights": [[round(w, 4) for w in row] for row in best.tolist()]} if sees else {})


def _draws(case: Case) -> dict[str, Any]:
    """The mean error of random weights."""
    gear = Gear(case)
    with torch.no_grad():
        errors = gear.error(gear.roll(torch.stack([gear.weights() for _ in range(DRAWS)])).end.x)
    return {"goal": float(gear.goal[0]), "error": float(errors.mean()), "errors": errors.tolist()}


def _check(case: Case) -> dict[str, Any]:
    """Gradients by the first weights: of the error of the centre, along a random direction; of the image's loss."""
    gear = Gear(case, F64)
    steps = round(case["checked"] / DT)

    def error(weights: Tensor) -> tuple[Tensor, kn.Trajectory]:
        path = gear.roll(weights, steps)
        return gear.error(path.end.x), path

    def loss(weights: Tensor) -> Tensor:
        return _far_and_near(gear.image(gear.roll(weights, steps).end.x).unsqueeze(-4), gear.target)

    ways = torch.randn(1, *gear.shape, generator=gear.random, dtype=F64)
    found = gradients.check(error, gear.first, WINDOW, batched=True, samples=9, directions=ways)
    found["image"] = gradients.along_itself(loss, gear.first, TINY, 0.1)
    single, double = (_slope(case, dtype) for dtype in (F32, F64))
    return found | {"single": float((single - double).norm() / double.norm())}


def _slope(case: Case, dtype: torch.dtype) -> Tensor:
    """The gradient of the loss by the first weights, in one precision."""
    gear = Gear(case, dtype)
    first = gear.first.clone().requires_grad_()
    _far_and_near(gear.image(gear.roll(first).end.x).unsqueeze(-4), gear.target).sum().backward()
    assert first.grad is not None
    return first.grad


def _draw(file: Path, by: Mapping[str, Results]) -> None:
    """Errors over iterations, of all seeds and in the mean."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.4), layout="constrained", facecolor="white")
    axis = figure.add_subplot()
    for do, colour, name in (("image", "#d96a3f", "1 image"), ("positions", "#33679f", "place of the centre")):
        courses = [found["course"] for _, found in by[do]]
        for course in courses:
            axis.semilogy(course, color=colour, lw=0.4, alpha=0.5)
        axis.semilogy([sum(row) / len(row) for row in zip(*courses, strict=False)], color=colour, lw=2, label=name)
    random = [found["error"] for _, found in by["random"]]
    axis.axhline(sum(random) / len(random), color="0.5", ls="--", lw=1, label="random weights")
    axis.set(xlabel="iteration", ylabel="COM-MSE [m$^2$]")
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(file, dpi=110)


def _film(file: Path, case: Case, found: Mapping[str, Any]) -> None:
    """The gear that one image taught, of the first seed."""
    gear = Gear(case)
    path = gear.roll(torch.tensor(found["weights"], dtype=F64))
    kn.write_video(file, kn.render(path, gear.camera.resized(384, 384), fps=30), fps=30)
