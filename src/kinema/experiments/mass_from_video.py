"""Mass of a body of known shape from its video, after a known push [Jatavallabhula et al. 2021, Table 1].

gradSim's settings: five primitive shapes, a push of 0.1 s, 1 s of video of 256 x 256 pixels with 30 images per second,
densities from 2 to 12 kg/m^3. Videos have 8 bits here, so rounding limits the accuracy: `kn.fit` estimates its standard
deviation, and tells whether what remains of the loss is rounding. Beside it, five others estimate the same masses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients, mass_baselines
from kinema.experiments.case import Case, Line, Report, Results, Table, at_least, at_most
from kinema.experiments.pushed import DENSITY, DT, STEPS, Pushed, seen, until
from kinema.experiments.thrown import in_8_bits
from kinema.fitting.noise import reaches

F64 = torch.float64
BOUNDS = (0.5 * DENSITY[0], 2 * DENSITY[1])  # of the fit [kg/m^3]
COARSE, SPARSE = 64, 16  # size of small images [pixels], and steps between them
STARTS, ITERATIONS = 3, 12
NEAR = 1e-4  # first length of differences of the last fit, relative to the range of the logarithm
CHECKED = ("box", "cone")
PAPER = {"video": 9.01e-5, "states": 5.17e-9, "reinforce": 0.3668, "cnn": 0.0094, "average": 0.1031, "random": 0.1344}
WORDS = {
    "video": "video",
    "states": "positions and orientations",
    "reinforce": "video, REINFORCE",
    "cnn": "video, network (ConvLSTM)",
    "average": "mean density of the training objects",
    "random": "random density",
}


@dataclass(frozen=True)
class Arguments:
    """Shapes, size of images [pixels], steps between them, baselines, and the largest mean error that passes."""

    shapes: tuple[str, ...] = ("box", "capsule", "cone", "cylinder", "sphere")
    size: int = 192
    every: int = 8
    reinforce: int = 125
    videos: int = 800
    epochs: int = 20
    limit: float = 1e-5

    @classmethod
    def quick(cls) -> Arguments:
        """Three shapes, fewer and smaller images: rounding leaves an error of 1e-5."""
        return cls(("box", "cone", "sphere"), size=96, every=16, reinforce=20, videos=24, epochs=3, limit=5e-5)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """The network first, which takes longest; a fit for each seed and shape; gradient checks."""
    common = asdict(arguments)
    found = [Case("network", {**common, "do": "cnn", "seeds": list(seeds)})]
    found += [
        Case(f"{shape}, seed {seed}", {**common, "do": "fit", "shape": shape, "seed": seed})
        for seed in seeds
        for shape in arguments.shapes
    ]
    return found + [
        Case(f"{shape}, gradient", {**common, "do": "gradient", "shape": shape, "seed": seeds[0]}) for shape in CHECKED
    ]


def solve(case: Case) -> dict[str, Any]:
    """Densities found by all methods, or those by the network; or the check of the gradient."""
    if case["do"] == "cnn":
        return mass_baselines.network(case["shapes"], case["seeds"], case["videos"], case["epochs"])
    return _check(case) if case["do"] == "gradient" else _fit(case)


def report(arguments: Arguments, results: Results) -> Report:
    """Relative errors of all methods."""
    fits = [(case, found) for case, found in results if case["do"] == "fit"]
    network = next(found for case, found in results if case["do"] == "cnn")
    checks = {case["shape"]: found for case, found in results if case["do"] == "gradient"}
    errors: dict[str, list[float]] = {name: [] for name in WORDS}
    absolute: dict[str, list[float]] = {name: [] for name in WORDS}
    for case, found in fits:
        others = {
            "cnn": network["found"][f"{case['shape']}, seed {case['seed']}"],
            "average": network["average"],
            "random": found["random"],
        }
        for name in WORDS:
            away = abs((others[name] if name in others else found[name]) - found["true"])
            errors[name].append(away / found["true"])
            absolute[name].append(away * found["volume"])
    means = {name: sum(e) / len(e) for name, e in errors.items()}
    rows = [
        [word, sum(absolute[name]) / len(fits), means[name], max(errors[name]), PAPER[name]]
        for name, word in WORDS.items()
    ]
    columns = ("estimated from", "mean error [kg]", "mean relative error", "worst", "gradSim, mean")
    tables = (
        Table(f"mass of {len(fits)} bodies", columns, rows),
        _per_shape(arguments, fits, errors["video"]),
        gradients.table(checks),
    )
    floor = sum(found["floor_reached"] for _, found in fits) / len(fits)
    metrics = {f"{name}_mean_error": mean for name, mean in means.items()}
    metrics |= {
        "video_worst_error": max(errors["video"]),
        "mean_std": sum(found["std"] for _, found in fits) / len(fits),
        "at_noise_floor": floor,
        "objects": float(len(fits)),
    }
    return Report(
        tables,
        _lines(arguments, metrics, checks),
        metrics,
        deviations=_deviations(arguments),
        picture=lambda file: _draw(file, errors),
        film=lambda file: _film(file, fits),
    )


def _lines(arguments: Arguments, metrics: Mapping[str, float], checks: Mapping[str, Any]) -> list[Line]:
    others = min(metrics[f"{name}_mean_error"] for name in ("reinforce", "cnn", "average", "random"))
    return [
        at_most("mean relative error of the mass, from video", metrics["video_mean_error"], arguments.limit),
        at_least("part of the fits that end at the noise floor", metrics["at_noise_floor"], 0.9),
        at_most("mean relative error, over that of the best method without gradients", *_over(metrics, others)),
        *gradients.claims(list(checks.values()), secant=0.08),
    ]


def _over(metrics: Mapping[str, float], others: float) -> tuple[float, float]:
    return metrics["video_mean_error"] / others, 0.01


def _per_shape(arguments: Arguments, fits: Results, errors: Sequence[float]) -> Table:
    """Errors beside what rounding allows."""
    rows = []
    for shape in arguments.shapes:
        mine = [(found, error) for (case, found), error in zip(fits, errors, strict=True) if case["shape"] == shape]
        mean = sum(error for _, error in mine) / len(mine)
        std = sum(found["std"] for found, _ in mine) / len(mine)
        reached = sum(found["floor_reached"] for found, _ in mine)
        simulations = sum(found["simulations"] for found, _ in mine) / len(mine)
        rows.append([shape, mean, max(error for _, error in mine), std, f"{reached} of {len(mine)}", simulations])
    columns = ("shape", "mean relative error", "worst", "standard deviation of the fit", "at the noise floor")
    return Table("from video, by shape", (*columns, "simulations per fit"), rows)


def _deviations(arguments: Arguments) -> tuple[str, ...]:
    return (
        "gravity is an acceleration; gradSim's is a force on each vertex, with which free fall shows the mass as well",
        "bodies are uniform, of a density drawn from 2 to 12 kg/m^3; gradSim's released script draws masses of "
        "vertices from 0.2 to 0.3 kg and estimates one object",
        "videos have 8 bits per channel and even light: creases between shaded faces would jump from pixel to pixel, "
        "and in trials a third of the fits then ended above the noise floor, with errors four times as large",
        f"Levenberg-Marquardt from {STARTS} starts on small images, then on those of {arguments.size}^2 pixels, "
        "replaces 30 steps of SGD; the first start is drawn from the range of the truth, as gradSim's",
        "REINFORCE has gradSim's settings (5 samples, noise 0.05, decay 0.925) in our simulator, on the logarithm of "
        "the density and small images; its rate is ours",
        "the network is a small one: it sees 8 images of 64 x 64 pixels and is told the push; gradSim's builds on "
        "EfficientNet. Average and random densities are compared with densities from 2 to 12 kg/m^3, which differ more "
        "than gradSim's masses",
    )


def _fit(case: Case) -> dict[str, Any]:
    body = Pushed(case["shape"], case["seed"])

    def small(values: Mapping[str, Tensor], time: float | None = None) -> Tensor:
        return body.film(values["density"], COARSE, SPARSE, until(time, SPARSE))

    def large(values: Mapping[str, Tensor]) -> Tensor:
        # As files hold them: there, rounding is equally large for all values.
        return kn.to_srgb(body.film(values["density"], case["size"], case["every"]))

    first = kn.fit(
        small,
        body.video(COARSE, SPARSE),
        {"density": kn.fit.Log(*BOUNDS, body.guess)},
        loss=["marginal", "marginal", "squares"],
        horizon=[0.3, STEPS * DT, STEPS * DT],
        starts=STARTS,
        seed=case["seed"],
        iterations=ITERATIONS,
        options=kn.fit.Options(progress=False, confidence=False),
    )
    truth = torch.tensor([body.density], dtype=F64)
    found = kn.fit(
        large,
        _levels(large({"density": truth}))[0],
        {"density": kn.fit.Log(*BOUNDS, first.values["density"])},
        method=kn.fit.LM(iterations=ITERATIONS, longest=NEAR),
        options=kn.fit.Options(progress=False),
    )
    images = large({"density": found.values["density"].unsqueeze(0)})
    floor = float((images - _levels(images)).square().mean())
    states = kn.fit(
        lambda values: body.fly(values["density"]).q,
        body.fly(truth[0]).q,
        {"density": kn.fit.Log(*BOUNDS, body.guess)},
        starts=STARTS,
        options=kn.fit.Options(progress=False, confidence=False),
    )
    random = torch.Generator().manual_seed(case["seed"])
    low, high = DENSITY
    return {
        "true": body.density,
        "volume": body.volume,
        "guess": body.guess,
        "video": float(found.values["density"]),
        "states": float(states.values["density"]),
        "reinforce": mass_baselines.reinforce(body, case["reinforce"], case["seed"]),
        "random": low + (high - low) * float(torch.rand((), generator=random, dtype=F64)),
        "std": found.std["density"] / body.density,
        "floor_reached": reaches(found.loss, floor, images.numel()),
        "simulations": first.evaluations + found.evaluations,
    }


def _levels(images: Tensor) -> Tensor:
    """sRGB rounded to 8 bits."""
    return (255.0 * images).round() / 255.0


def _check(case: Case) -> dict[str, Any]:
    """The gradient of the first loss of the fit, 5 % from the truth."""
    body = Pushed(case["shape"], case["seed"])
    target = body.video(COARSE, SPARSE)

    def loss(density: Tensor) -> tuple[Tensor, kn.Trajectory]:
        path = body.fly(density)
        return kn.marginal_loss(seen(path, COARSE, SPARSE), target), path

    at = torch.tensor(1.05 * body.density, dtype=F64)
    return gradients.check(loss, at, 0.01 * body.density, batched=True, samples=9)


def _draw(file: Path, errors: Mapping[str, Sequence[float]]) -> None:
    """All errors, by method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axis = figure.subplots()
    for i, name in enumerate(WORDS):
        away = [max(error, 1e-16) for error in errors[name]]
        spread = [i + 0.5 * (k / len(away) - 0.5) for k in range(len(away))]
        axis.semilogy(spread, away, ".", ms=4)
        axis.plot([i - 0.3, i + 0.3], [sum(away) / len(away)] * 2, color="0.2", lw=1)
        axis.plot([i - 0.3, i + 0.3], [PAPER[name]] * 2, color="0.6", lw=1, ls="--")
    axis.set_xticks(range(len(WORDS)), ["video", "states", "REINFORCE", "network", "average", "random"])
    axis.set(ylabel="relative error of the mass", title="bars: mean; dashed: gradSim's")
    figure.savefig(file, dpi=110)


def _film(file: Path, fits: Results) -> None:
    """The bodies of the first seed: their videos, their flights as first guessed, and as found."""
    seed = fits[0][0]["seed"]
    rows = []
    for case, found in fits:
        if case["seed"] == seed:
            body = Pushed(case["shape"], seed)
            tried = torch.tensor([found["true"], found["guess"], found["video"]], dtype=F64)
            rows.append(torch.cat(list(in_8_bits(body.film(tried, 160, 8))), -3))
    kn.write_video(file, torch.cat(rows, -2), fps=30)
