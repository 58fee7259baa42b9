"""Losses of videos over a mass, elastic moduli and a length [Jatavallabhula et al. 2021, Figs. 4, 11, 12].

Each loss is drawn over the ratio of the unknown to its true value: of the pixels of all images of a video, of every
fifth, of its two ends, and of the marginal distances of all. gradSim reports one minimum for all. Here the number of
local minima of the grid is counted, and in which part of the range a step along the gradient leads towards the truth.
Beside it is the estimate of the gradient by REINFORCE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients, pendula
from kinema.experiments.case import Case, Report, Results, Table, at_least, at_most
from kinema.experiments.pushed import DENSITY, EVEN, STEPS, Pushed
from kinema.experiments.thrown import in_8_bits

F64 = torch.float64
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "all": kn.pixel_loss,
    "every fifth": lambda images, video: kn.pixel_loss(images, video, frames=5),
    "ends": lambda images, video: kn.pixel_loss(images, video, frames="ends"),
    "all, marginal": kn.marginal_loss,
}
SMOOTH = ("mass", "mu", "lam")  # objects overlap with themselves in the video over most of the range
RANGES = {"mass": (0.25, 4.0), "mu": (0.25, 2.0), "lam": (0.25, 2.0), "length": (0.4, 1.6)}  # [-]
PLANE = (0.5, 1.5)  # of both moduli
SWING = 16  # images of the pendulum: 1.5 s
MODULI, BEAM_DT, BEAM_STEPS, BEAM_EVERY = 1000.0, 1e-3, 1000, 40  # [Pa], [s]
SAMPLES, NOISE, PLACES = 5, 0.05, 11  # of REINFORCE [Jatavallabhula et al. 2021, Table 5], and points it is tried at
CHECKED = ("mass", "mu", "length")
AT, WINDOW = 1.1, 0.02  # of the gradient check


@dataclass(frozen=True)
class Arguments:
    """Points of a landscape, in a plane along each axis, size of images [pixels], REINFORCE's repeats, scenes."""

    points: int = 81
    plane: int = 13
    size: int = 64
    repeats: int = 4
    unknowns: tuple[str, ...] = ("mass", "mu", "lam", "length")

    @classmethod
    def quick(cls) -> Arguments:
        """Mass and length only, fewer points."""
        return cls(points=31, plane=0, size=48, repeats=2, unknowns=("mass", "length"))


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """A landscape for each unknown, choice of images, and seed; one over both moduli; REINFORCE; gradient checks."""
    common = asdict(arguments)
    found = [
        Case(
            f"{unknown}, {name}, seed {seed}",
            {**common, "do": "line", "unknown": unknown, "loss": name, "seed": seed},
        )
        for seed in seeds
        for unknown in arguments.unknowns
        for name in LOSSES
    ]
    for do in ("reinforce", "gradient"):
        found += [
            Case(f"{unknown}, {do}", {**common, "do": do, "unknown": unknown, "seed": seeds[0]})
            for unknown in arguments.unknowns
            if do == "reinforce" or unknown in CHECKED
        ]
    if arguments.plane:
        found.append(Case("mu and lam", {**common, "do": "plane", "unknown": "mu", "seed": seeds[0]}))
    return found


def solve(case: Case) -> dict[str, Any]:
    """A landscape; or what REINFORCE estimates; or the check of the gradient."""
    return {"line": _line, "plane": _plane, "reinforce": _reinforce, "gradient": _check}[case["do"]](case)


def report(arguments: Arguments, results: Results) -> Report:
    """Minima of all landscapes."""
    lines = [(case, found) for case, found in results if case["do"] == "line"]
    plane = next((found for case, found in results if case["do"] == "plane"), None)
    checks = {case["unknown"]: found for case, found in results if case["do"] == "gradient"}
    rows: list[list[Any]] = []
    metrics: dict[str, float] = {}
    for unknown in arguments.unknowns:
        for name in LOSSES:
            mine = [f for case, f in lines if case["unknown"] == unknown and case["loss"] == name]
            minima, away = [len(f["minima"]) for f in mine], max(abs(f["best"] - 1.0) for f in mine)
            downhill = sum(f["downhill"] for f in mine) / len(mine)
            basin = sum(f["basin"][1] - f["basin"][0] for f in mine) / len(mine)
            rows.append([unknown, name, len(mine), away, max(minima), sum(minima) / len(mine), downhill, basin])
            key = f"{unknown}_{name.replace(',', '').replace(' ', '_')}"
            metrics |= {
                f"{key}_minima_worst": float(max(minima)),
                f"{key}_best_away": away,
                f"{key}_downhill": downhill,
            }
    columns = ("unknown", "images", "seeds", "lowest point minus truth", "local minima, most", "mean")
    tables = [
        Table(
            f"landscapes of {arguments.points} points over the ratio to the truth",
            (*columns, "part where the gradient leads to the truth", "width of the basin"),
            rows,
        ),
        _reinforced(results),
        gradients.table(checks),
    ]
    away = max(row[3] for row in rows)
    claims = [
        at_most("lowest point of a landscape minus truth, ratio, worst of all", away, 1e-9),
        at_most("local minima over mass and moduli, pixels of all images, most", _most(rows, 4, "all", SMOOTH), 1),
        at_least(
            "part of their ranges where the gradient leads to the truth, least",
            -_most([[*row[:6], -row[6]] for row in rows], 6, "all", SMOOTH),
            0.98,
        ),
        at_most(
            "local minima over the length, marginal distances, most", _most(rows, 4, "all, marginal", ("length",)), 1
        ),
    ]
    if plane is not None:
        metrics["plane_minima"] = float(len(plane["minima"]))
        best = plane["minima"][0]
        claims.append(at_most("lowest point over both moduli minus truth", max(abs(x - 1.0) for x in best), 1e-9))
    deviations = (
        "ranges are ratios to the truth: from 0.25 to 4 for the mass, whose truth is that of 7 kg/m^3 (gradSim: 0.1 to "
        "5 kg, truth 1 kg; lighter bodies leave the view here, and with it the loss falls), from 0.25 to 2 for Lame's "
        "moduli, drawn from 700 to 1300 Pa (gradSim: 1000 Pa), from 0.4 to 1.6 for the length",
        "the bob of a pendulum with another length soon leaves the place of the one in the video, from where pixels "
        "show no direction; marginal distances of images do, and the claim for the length is about these",
        "over both moduli, a narrow valley runs diagonally across the grid, whose points may have minima where the "
        "loss has none: they are counted in the metrics, without a claim",
        "videos have 8 bits: losses are those of a fit, not zero at the truth; marginal distances add up what rounding "
        "cuts off, which may move their lowest point by a point of the grid where a modulus hardly shows",
        "REINFORCE runs in our simulator; gradSim's in PyBullet",
    )
    return Report(
        tables,
        [*claims, *gradients.claims(list(checks.values()), secant=0.08)],
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, arguments, results),
    )


def _most(rows: Sequence[Sequence[Any]], column: int, loss: str, unknowns: Sequence[str]) -> float:
    """The largest number of a column, over some unknowns."""
    return max(row[column] for row in rows if row[1] == loss and row[0] in unknowns)


def _reinforced(results: Results) -> Table:
    """How well REINFORCE knows the direction."""
    rows = [
        [case["unknown"], found["right"], found["gradient_right"], found["spread"]]
        for case, found in results
        if case["do"] == "reinforce"
    ]
    columns = ("unknown", "REINFORCE leads to the truth", "the gradient does", "standard deviation over mean, median")
    return Table(f"direction from {SAMPLES} samples, in parts of all trials", columns, rows)


def _scene(case: Case) -> tuple[Callable[[Mapping[str, Tensor]], Tensor], Tensor]:
    """Images as a function of ratios by the name of the unknown, and the video."""
    make = {"mass": _pushed, "length": _swinging}.get(case["unknown"], _beam)
    predict = make(case)
    names = ("mu", "lam") if make is _beam else (case["unknown"],)
    return predict, in_8_bits(predict(dict.fromkeys(names, torch.ones(1, dtype=F64))))[0]


def _pushed(case: Case) -> Callable[[Mapping[str, Tensor]], Tensor]:
    body = Pushed("box", case["seed"])
    true = 0.5 * sum(DENSITY)  # lighter ones leave the view
    return lambda ratios: body.film(ratios["mass"] * true, case["size"], STEPS // 30)


def _swinging(case: Case) -> Callable[[Mapping[str, Tensor]], Tensor]:
    random = torch.Generator().manual_seed(case["seed"])
    true = 0.8 + 0.4 * torch.rand(1, generator=random, dtype=F64)
    return lambda ratios: pendula.video("single", ratios["length"].unsqueeze(-1) * true, SWING, case["size"])


def _beam(case: Case) -> Callable[[Mapping[str, Tensor]], Tensor]:
    random = torch.Generator().manual_seed(case["seed"])
    mu, lam = (MODULI * (0.7 + 0.6 * torch.rand(2, generator=random, dtype=F64))).tolist()
    model = _hanging()

    def predict(ratios: Mapping[str, Tensor]) -> Tensor:
        one = torch.ones_like(next(iter(ratios.values())))
        params = {
            "beam/mu": (mu * ratios.get("mu", one)).unsqueeze(-1),
            "beam/lam": (lam * ratios.get("lam", one)).unsqueeze(-1),
        }
        path = kn.simulate(model, params=params, steps=BEAM_STEPS, dt=BEAM_DT)
        size = (case["size"], case["size"])
        camera = kn.Camera.look_at((1.0, -4.5, -0.3), (1.0, 0.0, -0.3), fov=0.6, size=size)
        options = kn.RenderOptions(dtype=F64, background=(0.0, 0.0, 0.0), lights=EVEN, sigma=(2.0 / case["size"]) ** 2)
        return kn.render(path, camera, every=BEAM_EVERY, options=options)

    return predict


@cache
def _hanging() -> kn.Model:
    """A beam of 2 m, held at both ends."""
    mesh = kn.shapes.beam(2.0, 0.2, 0.2, bricks=(12, 2, 2))
    scene = kn.Scene()
    scene.add_solid(mesh, "beam", material=kn.Solid(density=10.0, mu=MODULI, lam=MODULI, viscosity=1.0), skin=None)
    ends = (mesh.vertices[:, 0] == mesh.vertices[:, 0].min()) | (mesh.vertices[:, 0] == mesh.vertices[:, 0].max())
    scene.attach("beam", ends)
    return kn.compile(scene, F64)


def _grid(low: float, high: float, points: int) -> Tensor:
    """Points with the truth, 1, among them."""
    below = max(1, round((points - 1) * (1.0 - low) / (high - low)))
    one = torch.ones((), dtype=F64)
    return torch.cat(
        [torch.linspace(low, one, below + 1, dtype=F64), torch.linspace(one, high, points - below, dtype=F64)[1:]]
    )


def _line(case: Case) -> dict[str, Any]:
    predict, target = _scene(case)
    grid = _grid(*RANGES[case["unknown"]], case["points"])
    found = kn.landscape(predict, target, {case["unknown"]: grid}, loss=LOSSES[case["loss"]], progress=False)
    slopes, inside = found.gradients[:, 0], (grid != 1.0)
    right = (slopes * (grid - 1.0) > 0)[inside]
    wrong = grid[inside][~right]
    basin = [float(wrong[wrong < 1.0].max()) if bool((wrong < 1.0).any()) else float(grid[0])]
    basin.append(float(wrong[wrong > 1.0].min()) if bool((wrong > 1.0).any()) else float(grid[-1]))
    return {
        "grid": grid.tolist(),
        "losses": found.losses.tolist(),
        "slopes": slopes.tolist(),
        "best": found.best[0],
        "minima": [place[0] for place in found.minima],
        "downhill": float(right.double().mean()),
        "basin": basin,
    }


def _plane(case: Case) -> dict[str, Any]:
    """Over both moduli, with all images."""
    predict, target = _scene(case)
    grid = _grid(*PLANE, case["plane"])
    found = kn.landscape(predict, target, {"mu": grid, "lam": grid}, progress=False)
    return {
        "grid": grid.tolist(),
        "losses": found.losses.tolist(),
        "slopes": found.gradients.tolist(),
        "minima": found.minima,
    }


def _reinforce(case: Case) -> dict[str, Any]:
    """Estimates of the gradient from samples: mean of normalised rewards times deviations."""
    predict, target = _scene(case)
    low, high = RANGES[case["unknown"]]
    random = torch.Generator().manual_seed(case["seed"])
    right, gradient_right, spreads = [], [], []
    for place in torch.linspace(low + 3 * NOISE, high, PLACES, dtype=F64).tolist():
        if abs(place - 1.0) < NOISE:
            continue
        at = torch.tensor([place], dtype=F64, requires_grad=True)
        (slope,) = torch.autograd.grad(kn.pixel_loss(predict({case["unknown"]: at}), target).sum(), at)
        gradient_right.append(float(slope) * (place - 1.0) > 0)
        estimates = []
        for _ in range(case["repeats"]):
            drawn = torch.randn(SAMPLES, generator=random, dtype=F64)
            with torch.no_grad():
                reward = -kn.pixel_loss(predict({case["unknown"]: place + NOISE * drawn}), target)
            reward = (reward - reward.mean()) / reward.std().clamp_min(1e-300)
            estimates.append(float((reward * drawn).mean()) / NOISE)
        right += [one * (1.0 - place) > 0 for one in estimates]
        whole = torch.tensor(estimates)
        spreads.append(float(whole.std() / whole.mean().abs().clamp_min(1e-300)))
    return {
        "right": sum(right) / len(right),
        "gradient_right": sum(gradient_right) / len(gradient_right),
        "spread": float(torch.tensor(spreads).median()),
    }


def _check(case: Case) -> dict[str, Any]:
    """The gradient of the loss, 10 % from the truth."""
    predict, target = _scene(case)

    def loss(ratio: Tensor) -> Tensor:
        return kn.marginal_loss(predict({case["unknown"]: ratio}), target)

    return gradients.check(loss, torch.tensor(AT, dtype=F64), WINDOW, batched=True, samples=9)


def _draw(file: Path, arguments: Arguments, results: Results) -> None:
    """The landscapes of the first seed, with their gradients."""
    from matplotlib.figure import Figure

    by = {case.name: (case, found) for case, found in results}
    seed = next(case["seed"] for case, _ in results if case["do"] == "line")
    count = len(arguments.unknowns) + bool(arguments.plane)
    figure = Figure(figsize=(9, 2.6 * count), layout="constrained", facecolor="white")
    axes = figure.subplots(count, len(LOSSES), squeeze=False)
    for row, unknown in zip(axes, arguments.unknowns, strict=False):
        for axis, name in zip(row, LOSSES, strict=True):
            found = by[f"{unknown}, {name}, seed {seed}"][1]
            _as_landscape((unknown,), found).draw(axis)
            axis.set(title=f"{unknown}: {name}", xlabel="ratio to the truth")
    if arguments.plane:
        _as_landscape(("mu", "lam"), by["mu and lam"][1]).draw(axes[-1][0])
        for axis in axes[-1][1:]:
            axis.set_axis_off()
    figure.savefig(file, dpi=110)


def _as_landscape(names: tuple[str, ...], found: Mapping[str, Any]) -> kn.Landscape:
    grid, slopes = torch.tensor(found["grid"], dtype=F64), torch.tensor(found["slopes"], dtype=F64)
    losses = torch.tensor(found["losses"], dtype=F64)
    shaped = slopes.reshape(*losses.shape, len(names))
    return kn.Landscape(names, (grid,) * len(names), losses, shaped, (1.0,) * len(names))
