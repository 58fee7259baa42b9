"""Mass and contact parameters of thrown objects, from one video each [Jatavallabhula et al. 2021, Table 2].

Objects of fourteen forms are thrown at compliant ground. Known forces act on each, a kick at the start and a push from
0.7 s on. Five numbers are found from images of 8 bits: the mass, k_e, k_d and k_f of the contact law, and the
coefficient of friction. Further cases leave parts of the motion out, and say what the rest determines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients
from kinema.experiments.case import Case, Report, Results, Table, at_least, at_most
from kinema.experiments.thrown import F64, Motion, Thrown, camera, in_8_bits, throw

DT = 2e-4  # [s]
NAMES = ("mass", "k_e", "k_d", "k_f", "friction")
LOW = torch.tensor([2.0, 1.0, 1.0, 1.0, 0.2], dtype=F64)  # [kg], [N/m], [N s/m], [N s/m], [-]
HIGH = torch.tensor([12.0, 500.0, 500.0, 500.0, 1.0], dtype=F64)
LIMITS = (1e-4, 1e-2, 5e-3, 1e-2, 1e-2)
PAPER = (2.9e-4, 2.6e-3, 0.4, 1.7e-3, 7.3e-3)  # means of gradSim
HORIZONS = (0.4, 0.7, 1.1, 1.5)  # [s]
AROUND = 0.1  # of the mass: the part of the landscape whose minima are counted
FALL = Motion(speed=(0.0, 0.0), spin=0.0, kick=(0.0, 0.0), push=0.0)
MOTIONS = {
    "kicked, in the air": Motion(seconds=0.4, push=0.0),
    "falls": FALL,
    "falls, kicked upwards": replace(FALL, kick=(0.0, 20.0)),
    "thrown, not kicked": Motion(kick=(0.0, 0.0), push=0.0),
    "thrown and kicked": Motion(push=0.0),
    "thrown, kicked and pushed": Motion(),
}
SHIFT, WINDOW, CHECKED = 0.05, 0.05, 8  # of the gradient check: in logarithms of the numbers; images
WAYS = torch.eye(5, dtype=F64)[[0, 4]]  # of the gradient check: mass, friction


@dataclass(frozen=True)
class Arguments:
    """Images, their size [pixels], starts, iterations on each horizon, points of the landscape."""

    images: int = 31
    size: int = 64
    starts: int = 4
    iterations: int = 30
    points: int = 101

    @classmethod
    def quick(cls) -> Arguments:
        """Fewer images."""
        return cls(images=16, starts=2, points=41)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """An object for each seed; for the first one, also what each motion determines, and a gradient check."""
    common = asdict(arguments)
    fits = [Case(f"object {seed}", {**common, "do": "fit", "seed": seed}) for seed in seeds]
    motions = [
        Case(f"motion: {name}", {**common, "do": "motion", "motion": name, "seed": seeds[0]}) for name in MOTIONS
    ]
    return [*fits, *motions, Case("gradient", {**common, "do": "gradient", "seed": seeds[0], "images": CHECKED})]


def solve(case: Case) -> dict[str, Any]:
    """Numbers found and true; what a motion determines; or the check of the gradient."""
    return {"fit": _fit, "motion": _motion, "gradient": _check}[case["do"]](case)


def report(arguments: Arguments, results: Results) -> Report:
    """Errors of all objects, and what motions determine."""
    fits = [(case, found) for case, found in results if case["do"] == "fit"]
    motions = [(case, found) for case, found in results if case["do"] == "motion"]
    checks = {case.name: found for case, found in results if case["do"] == "gradient"}
    metrics: dict[str, float] = {}
    lines, summary = [], []
    for i, (name, limit) in enumerate(zip(NAMES, LIMITS, strict=True)):
        errors = [found["errors"][i] for _, found in fits]
        metrics[f"median_error_{name}"], metrics[f"mean_error_{name}"] = median(errors), sum(errors) / len(errors)
        metrics[f"worst_error_{name}"] = max(errors)
        lines.append(at_most(f"{name}: median relative error", median(errors), limit))
        expected = median([found["deviations"][i] for _, found in fits])
        summary.append([name, median(errors), sum(errors) / len(errors), max(errors), expected, PAPER[i]])
    metrics["at_the_noise_floor"] = sum(found["floor_reached"] for _, found in fits) / len(fits)
    metrics["most_minima"] = max(len(found["minima"]) for _, found in fits)
    lines += [
        at_least("objects at the noise floor", metrics["at_the_noise_floor"], 0.9),
        at_most("minima of the loss within 10 % of the mass, worst object", metrics["most_minima"], 3),
        *gradients.claims(list(checks.values())),
    ]
    rows = [
        [
            f"{case.name}, {found['kind']}",
            *(f"{x:.4g}" for x in found["true"]),
            *(f"{x:.1e}" for x in found["errors"]),
            found["loss"] / found["floor"],
            len(found["minima"]),
            found["simulations"],
        ]
        for case, found in fits
    ]
    known = [
        [case["motion"], *(_cell(*pair) for pair in zip(found["deviations"], found["determined"], strict=True))]
        + ["; ".join(found["undetermined"]) or "-"]
        for case, found in motions
    ]
    tables = (
        Table(
            "relative errors",
            ("number", "median", "mean", "worst", "median of expected std", "mean, gradSim"),
            summary,
        ),
        Table(
            "objects",
            ("object", *NAMES, *(f"error {name}" for name in NAMES), "loss / floor", "minima", "simulations"),
            rows,
        ),
        Table(f"what each motion of {_first(fits)} determines: std, relative", ("motion", *NAMES, "open"), known),
        gradients.table(checks),
    )
    deviations = (
        "known forces act on the objects: without one, only ratios of mass, stiffness and damping have an effect",
        "at most 12 points of each surface touch the ground, where gradSim tests all vertices; the hull of each "
        "object has a volume of 1 m^3, so that the densities of the paper, 2 to 12 kg/m^3, are masses",
        "friction is a smooth cone and damping acts on approach; forces are averaged over a step, see the contact law",
        "objects have smooth colours by place, and no shading: gradients of images miss moving creases",
        f"{arguments.images} images of {arguments.size} x {arguments.size} pixels, 8 bits; steps of {DT * 1e3:g} ms",
        f"Levenberg-Marquardt on growing horizons from {arguments.starts} starts over the whole ranges replaces "
        "gradient descent",
    )
    return Report(
        tables,
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, fits),
        film=lambda file: _film(file, *fits[0]),
    )


def _thrown(seed: int, motion: Motion) -> tuple[Thrown, Tensor]:
    """The object of a seed, and its numbers."""
    random = torch.Generator().manual_seed(seed)
    share = torch.rand(5, generator=random, dtype=F64)
    return throw(kn.shapes.TOYS[seed % len(kn.shapes.TOYS)], random, motion), LOW + share * (HIGH - LOW)


def _move(thrown: Thrown, numbers: Tensor, case: Case, until: float | None = None) -> kn.Trajectory:
    """Simulate with numbers, shape (*batch, 5), up to the last image before a time [s]."""
    images = case["images"] if until is None else 1 + round(until / thrown.motion.seconds * (case["images"] - 1))
    steps = (images - 1) * _every(thrown, case)
    return thrown.simulate(numbers[..., 0], numbers[..., 1:4], numbers[..., 4], dt=DT, steps=steps)


def _every(thrown: Thrown, case: Case) -> int:
    return round(thrown.motion.seconds / DT / (case["images"] - 1))


def _seen(thrown: Thrown, path: kn.Trajectory, case: Case) -> Tensor:
    sigma = (2.0 / case["size"]) ** 2  # outlines of one pixel
    options = kn.RenderOptions(dtype=F64, sigma=sigma, ground=False, materials=thrown.looks)
    return kn.render(path, camera(case["size"]), every=_every(thrown, case), options=options)


def _find(thrown: Thrown, target: Tensor, case: Case, horizons: Sequence[float], start: Tensor | None = None) -> kn.Fit:
    """Fit five numbers to a video; from a start only to learn how well it determines them."""

    def predict(values: Mapping[str, Tensor], until: float | None = None) -> Tensor:
        numbers = torch.stack([values[name] for name in NAMES], -1)
        return _seen(thrown, _move(thrown, numbers, case, until), case)

    given = [None] * len(NAMES) if start is None else start.tolist()
    return kn.fit(
        predict,
        target,
        {
            name: kn.fit.Log(float(low), float(high), one)
            for name, low, high, one in zip(NAMES, LOW, HIGH, given, strict=True)
        },
        horizon=horizons,
        starts=case["starts"] if start is None else 1,
        iterations=case["iterations"] if start is None else 1,
        seed=case["seed"],
        options=kn.fit.Options(noise="8bit", progress=False),
    )


def _fit(case: Case) -> dict[str, Any]:
    thrown, true = _thrown(case["seed"], Motion())
    with torch.no_grad():
        target = in_8_bits(_seen(thrown, _move(thrown, true, case), case))
    found = _find(thrown, target, case, HORIZONS)
    numbers = torch.stack([found.values[name] for name in NAMES])
    factors = torch.linspace(1.0 - AROUND, 1.0 + AROUND, case["points"], dtype=F64)
    losses = _landscape(thrown, target, true, factors, case)
    return {
        "kind": thrown.kind,
        "true": true.tolist(),
        "found": numbers.tolist(),
        "errors": (numbers / true - 1.0).abs().tolist(),
        "deviations": [found.std[name] / float(one) for name, one in zip(NAMES, true, strict=True)],
        "undetermined": found.undetermined,
        "loss": found.loss,
        "floor": found.floor,
        "floor_reached": found.floor_reached,
        "simulations": found.evaluations,
        "factors": factors.tolist(),
        "losses": losses,
        "minima": _minima(losses),
    }


def _landscape(thrown: Thrown, target: Tensor, true: Tensor, factors: Tensor, case: Case) -> list[float]:
    """Losses over factors of the true mass."""
    numbers = true.repeat(len(factors), 1)
    numbers[:, 0] *= factors
    with torch.no_grad():
        return [
            float(loss)
            for some in numbers.split(32)
            for loss in kn.pixel_loss(_seen(thrown, _move(thrown, some, case), case), target)
        ]


def _minima(losses: Sequence[float]) -> list[int]:
    """Places that are lower than their neighbours."""
    padded = [math.inf, *losses, math.inf]
    return [i for i in range(len(losses)) if padded[i] > losses[i] < padded[i + 2]]


def _motion(case: Case) -> dict[str, Any]:
    """How well a motion determines the numbers, at the truth."""
    thrown, true = _thrown(case["seed"], MOTIONS[case["motion"]])
    with torch.no_grad():
        target = in_8_bits(_seen(thrown, _move(thrown, true, case), case))
    found = _find(thrown, target, case, (thrown.motion.seconds,), true)
    assert found.accuracy is not None
    return {
        "deviations": [found.std[name] / float(one) for name, one in zip(NAMES, true, strict=True)],
        "determined": found.accuracy.determined.tolist(),
        "undetermined": found.undetermined,
    }


def _check(case: Case) -> dict[str, Any]:
    """The gradient of the loss over 0.8 s by logarithms of the numbers, 5 % from the truth."""
    thrown, true = _thrown(case["seed"], Motion(seconds=0.8))
    with torch.no_grad():
        target = in_8_bits(_seen(thrown, _move(thrown, true, case), case))

    def loss(logs: Tensor) -> tuple[Tensor, kn.Trajectory]:
        path = _move(thrown, true * logs.exp(), case)
        return kn.marginal_loss(_seen(thrown, path, case), target), path

    at = torch.full((5,), SHIFT, dtype=F64)
    return gradients.check(loss, at, WINDOW, batched=True, samples=9, directions=WAYS)


def _cell(deviation: float, determined: bool) -> str:
    return f"{deviation:.1e}" if determined else "open"


def _first(fits: Results) -> str:
    case, found = fits[0]
    return f"{case.name}, {found['kind']},"


def _draw(file: Path, fits: Results) -> None:
    """Errors of all objects, and landscapes of the mass."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.6), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    for i in range(len(NAMES)):
        errors = [found["errors"][i] for _, found in fits]
        left.semilogy([i] * len(errors), errors, "o", color="#33679f", ms=4, alpha=0.6)
        left.plot([i - 0.3, i + 0.3], [median(errors)] * 2, color="#33679f", lw=2)
        left.plot([i - 0.3, i + 0.3], [LIMITS[i]] * 2, color="0.4", ls="--", lw=1)
        left.plot(i, PAPER[i], "x", color="#d96a3f")
    left.set(xticks=range(len(NAMES)), xticklabels=NAMES, ylabel="relative error", title="x gradSim, -- limit")
    for _, found in fits:
        right.semilogy(found["factors"], found["losses"], lw=0.8)
    right.set(xlabel="mass / true mass", ylabel="mean square of pixels")
    figure.savefig(file, dpi=110)


def _film(file: Path, case: Case, found: Mapping[str, Any]) -> None:
    """The first object with the numbers found."""
    thrown, _ = _thrown(case["seed"], Motion())
    numbers = torch.tensor(found["found"], dtype=F64)
    path = thrown.simulate(numbers[0], numbers[1:4], numbers[4], dt=DT)
    sky = (0.75, 0.86, 0.97)
    look = kn.RenderOptions(shadows=True, supersample=2, background=sky, materials=thrown.looks)
    kn.write_video(file, kn.render(path, camera(320), every=round(0.02 / DT), options=look), fps=25)
