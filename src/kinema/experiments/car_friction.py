"""Friction of a road from the position of a car after 1 s [Qiao et al. 2021b, Fig. 7].

A car starts at 1 m/s, its wheels not turning, and ends at a given place. With locked wheels it slides throughout, so
that x = v T - mu g T^2 / 2: 0.8 m means mu = 0.0408. A road spins up wheels that are free until they roll, after which
friction has no effect: the distance has a kink as a function of mu, and does not fall below a limit.
"""

from __future__ import annotations

import math
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
SPEED, TIME, DT, GRAVITY = 1.0, 1.0, 2e-3, 9.81  # [m/s], [s], [s], [m/s^2]
RADIUS = 0.05  # of the wheels [m]
START, MOST = 0.002, 0.2  # friction at the start, and its upper bound
NEAR = 1e-3  # distance to the target that ends the count of iterations [m]
PAPER = {"locked": 0.8, "free": 0.87}  # targets of seed 0 [m]
LOCKED = (0.6, 0.95)  # targets of other seeds [m]
ROLLING = (0.55, 0.9)  # the same for free wheels: parts of the speed that they lose by rolling, in the mean
ALLOWED = 2 * DT / TIME  # relative error of mu: semi-implicit steps shift x by mu g T dt / 2, a share dt / T of mu
WINDOW = 0.01  # half the window of the gradient check, in mu


@dataclass(frozen=True)
class Arguments:
    """Iterations of Levenberg-Marquardt, and points of the landscape."""

    iterations: int = 8
    points: int = 201

    @classmethod
    def quick(cls) -> Arguments:
        """A coarser landscape."""
        return cls(points=41)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """For both cars: a fit for each seed, and the landscape and the gradient of the paper's target."""
    common = {"iterations": arguments.iterations, "points": arguments.points}
    found = [Case(f"{car}, seed {s}", {**common, "do": "fit", "car": car, "seed": s}) for s in seeds for car in PAPER]
    for do in ("landscape", "gradient"):
        found += [Case(f"{car}, {do}", {**common, "do": do, "car": car, "seed": 0}) for car in PAPER]
    return found


def solve(case: Case) -> dict[str, Any]:
    """Friction found; or the landscape; or the check of the gradient."""
    return {"fit": _fit, "landscape": _landscape, "gradient": _gradient}[case["do"]](case)


def report(arguments: Arguments, results: Results) -> Report:
    """Iterations and errors of all fits."""
    fits = [(case, found) for case, found in results if case["do"] == "fit"]
    maps = {case["car"]: found for case, found in results if case["do"] == "landscape"}
    checks = {case["car"]: found for case, found in results if case["do"] == "gradient"}
    metrics: dict[str, float] = {}
    rows, lines = [], []
    for case, found in fits:
        numbers = (found["target"], found["mu"], found["closed_form"], found["error"], found["iterations"])
        rows.append([case.name, *numbers, found["distance"]])
    for car in PAPER:
        mine = [found for case, found in fits if case["car"] == car]
        most = max(found["iterations"] for found in mine)
        worst = max(found["error"] for found in mine)
        lines.append(at_most(f"{car} wheels: iterations to 1 mm, worst seed", most, 5))
        lines.append(at_most(f"{car} wheels: friction against the closed form, relative", worst, _allowed(car)))
        lines.append(at_most(f"{car} wheels: local minima of the landscape", len(maps[car]["minima"]), 1))
        metrics |= {f"{car}_iterations": most, f"{car}_worst_error": worst, f"{car}_minima": len(maps[car]["minima"])}
    columns = ("car", "target [m]", "friction", "closed form", "relative error", "iterations to 1 mm", "missed by [m]")
    deviations = (
        "the paper's car, dropped from 0.6 m on spheres that roll freely, cannot stop before 0.93 m on any road; ours "
        "starts on the road, with wheels locked or free, and targets within reach",
        "Levenberg-Marquardt on one number replaces gradient descent",
    )
    tables = (Table("friction from a distance", columns, rows), gradients.table(checks))
    lines += gradients.claims(list(checks.values()))
    return Report(
        tables,
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, fits, maps),
        film=lambda file: _film(file, *[pair for pair in fits if pair[0]["car"] == "free"][0]),
    )


@cache
def _scene(car: str) -> kn.Model:
    scene = kn.Scene()
    scene.add_ground()
    if car == "free":
        scene.add_robot(kn.shapes.racecar(damping=0.0))
    else:  # one rigid body
        places = [kn.Pose((x, y, 0.0)) for x in (-0.16, 0.16) for y in (-0.1, 0.1)]
        scene.add_body([kn.Sphere(RADIUS, pose=pose) for pose in places], mass=5.9, pos=(0.0, 0.0, RADIUS))
    return kn.compile(scene)


@cache
def _drive(car: str) -> Any:
    """One second of driving; predicts the distance [m], shape (candidates, 1, 1), from the friction."""
    start = _scene(car).initial_state()
    start.v[3] = SPEED

    def distance(path: kn.Trajectory) -> Tensor:
        return path.q[..., -1:, :1]

    return kn.fit.Experiment(_scene(car), distance, steps=round(TIME / DT), dt=DT, state=start)


def _share() -> float:
    """Fraction of speed lost before free wheels roll: m / (M + m), m = inertia of the wheels over radius squared."""
    body = _scene("free").parameters("mass", "inertia", "armature")
    axle = body["inertia"][1, 3] + body["armature"][-1]  # about y, and its drive
    return float(1 / (1 + body["mass"].sum() * RADIUS**2 / (4 * axle)))


def _closed_form(car: str, target: float) -> float:
    """The friction for which the car ends at the target."""
    slid = 2 * (SPEED * TIME - target) / (GRAVITY * TIME**2)  # it slides for the whole second
    if car == "locked":
        return slid
    share = _share()
    rolling = (target - SPEED * (1 - share) * TIME) * 2 / (SPEED * share)  # time when wheels begin to roll [s]
    return slid if rolling > TIME else SPEED * share / (GRAVITY * rolling)


def _allowed(car: str) -> float:
    """Relative error from discretisation: twice a step over the time for which the car slides."""
    return ALLOWED if car == "locked" else ALLOWED / (2 * (1 - ROLLING[1]))


def _target(case: Case) -> float:
    if case["seed"] == 0:
        return PAPER[case["car"]]
    low, high = LOCKED if case["car"] == "locked" else ROLLING
    drawn = low + (high - low) * float(torch.rand((), generator=torch.Generator().manual_seed(case["seed"]), dtype=F64))
    return drawn if case["car"] == "locked" else SPEED * TIME * (1 - drawn * _share())


def _fit(case: Case) -> dict[str, Any]:
    target, drive = _target(case), _drive(case["car"])
    unknown = {"friction": kn.fit.Bounded(0.0, MOST, start=START)}
    data = torch.tensor([[target]], dtype=F64)
    options = kn.fit.Options(progress=False)
    found = kn.fit(drive, data, unknown, iterations=case["iterations"], options=options)
    misses = [math.sqrt(loss) for loss in found.history[:, 0].tolist()]
    near = [i + 1 for i, miss in enumerate(misses) if miss < NEAR]
    mu, closed = float(found.values["friction"]), _closed_form(case["car"], target)
    return {
        "target": target,
        "mu": mu,
        "closed_form": closed,
        "error": abs(mu / closed - 1.0),
        "iterations": near[0] if near else math.inf,
        "distance": misses[-1],
        "history": misses,
        "evaluations": found.evaluations,
    }


def _landscape(case: Case) -> dict[str, Any]:
    data, along = torch.tensor([[_target(case)]], dtype=F64), {"friction": (START, MOST, case["points"])}
    found = kn.landscape(_drive(case["car"]), data, along, progress=False)
    losses, slopes = found.losses.tolist(), found.gradients[:, 0].tolist()
    return {"values": found.values[0].tolist(), "losses": losses, "slopes": slopes, "minima": found.minima}


def _gradient(case: Case) -> dict[str, Any]:
    target, drive = _target(case), _drive(case["car"])

    def loss(mu: Tensor) -> Tensor:
        every = mu.unsqueeze(-1).expand(*mu.shape, len(_scene(case["car"]).parameters("friction")["friction"]))
        return (drive({"friction": every}).reshape(mu.shape) - target).square()

    return gradients.check(loss, torch.tensor(0.02, dtype=F64), WINDOW, batched=True)


def _draw(file: Path, fits: Results, maps: Mapping[str, Mapping[str, Any]]) -> None:
    """Landscapes with their tangents, and the distances of all seeds by iteration."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.2), layout="constrained", facecolor="white")
    axes = figure.subplots(1, 1 + len(maps))
    for axis, (car, found) in zip(axes, maps.items(), strict=False):
        x, y, slopes = found["values"], found["losses"], found["slopes"]
        axis.plot(x, y, color="#33679f", lw=1.2)
        half = (x[-1] - x[0]) / 60
        for i in range(0, len(x), max(1, len(x) // 24)):
            axis.plot([x[i] - half, x[i] + half], [y[i] - half * slopes[i], y[i] + half * slopes[i]], color="#d96a3f")
        axis.set(title=f"{car} wheels", xlabel="friction", ylabel="squared distance to the target [m^2]")
    for case, found in fits:
        colour = "#33679f" if case["car"] == "locked" else "#d96a3f"
        axes[-1].semilogy(range(1, len(found["history"]) + 1), found["history"], color=colour, lw=0.8)
    axes[-1].set(xlabel="iteration", ylabel="missed by [m]", ylim=(1e-9, 1))
    figure.savefig(file, dpi=110)


def _film(file: Path, case: Case, found: Mapping[str, Any]) -> None:
    """The car with free wheels, on the road with the friction found."""
    drive = _drive(case["car"])
    friction = torch.full_like(_scene(case["car"]).parameters("friction")["friction"], found["mu"])
    camera = kn.Camera.look_at((0.5, -1.9, 0.7), (0.5, 0.0, 0.05), size=(480, 240))
    look = kn.RenderOptions(supersample=2, background=(0.75, 0.86, 0.97))
    with torch.no_grad():
        path = drive.simulate({"friction": friction})
        kn.write_video(file, kn.render(path, camera, every=round(0.02 / DT), options=look), fps=25)
