"""Numbers of soft and of rigid things that move each other, and a control, from images.

No paper has it. A blanket is fixed to the trunk of a quadruped that sways on four feet; its sides fall, hang down, and
swing against the legs. Servos follow sines whose amplitude is unknown, as are density, stiffness and drag of the
blanket, and the mass of the trunk: the cloth is seen, and its weight by how the robot moves. The video has 8 bits.
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
from kinema.experiments.case import Case, Report, Results, Table, at_most
from kinema.experiments.thrown import F64, in_8_bits

DT, SUBSTEPS, EVERY = 2e-3, 8, 20  # [s], steps of cloth in each, steps between images
LEG, HEIGHT = 0.25, 0.43  # of the robot: upper and lower legs, and of hips over feet at the start [m]
TOP, HELD = 0.53, 0.11  # height of the blanket, and half the width of its part that is fixed to the trunk [m]
KP, KD = 60.0, 1.0  # of servos [N m/rad], [N m s/rad]
COLOURS = {"dog": (0.05, 0.2, 0.6), "dog/trunk": (0.8, 0.25, 0.02)}
RATES = (1.5, 2.0)  # of the sway to the side, and forwards [Hz]
RANGES = {  # that numbers are drawn from
    "density": (2.5, 5.0),  # [kg/m^2]
    "stiffness": (150.0, 400.0),  # [N/m]
    "drag": (1.0, 4.0),  # [kg/m^3]
    "trunk": (6.0, 10.0),  # mass [kg]
    "amplitude": (0.12, 0.25),  # [rad]
}
BEYOND = 1.5  # bounds of the fit: factor beyond the ranges
HORIZONS = (0.3, 0.6, 1.0)  # of the fit, as parts of the video
WINDOW, TINY, IMAGES = 0.05, 1e-6, 1e-4  # gradient check, in logarithms: half the window, step; largest error of images


@dataclass(frozen=True)
class Arguments:
    """Duration [s], size of images [pixels], starts, iterations on each horizon, largest error."""

    seconds: float = 1.0
    size: int = 128
    starts: int = 3
    iterations: int = 15
    error: float = 1e-3
    each: bool = True  # whether the gradient is checked along each number, or along all together

    @classmethod
    def quick(cls) -> Arguments:
        """A shorter video of fewer pixels, which determines less."""
        return cls(seconds=0.6, size=96, starts=1, error=1e-2, each=False)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """A robot with a blanket for each seed, and a gradient check."""
    common = {name: getattr(arguments, name) for name in ("seconds", "size", "starts", "iterations", "each")}
    found = [Case(f"seed {seed}", {**common, "do": "fit", "seed": seed}) for seed in seeds]
    return [*found, Case("gradient", {**common, "do": "gradient", "seed": seeds[0]})]


def solve(case: Case) -> dict[str, Any]:
    """Numbers found and true; or the check of the gradient."""
    return _check(case) if case["do"] == "gradient" else _fit(case)


def report(arguments: Arguments, results: Results) -> Report:
    """Errors of all numbers."""
    fits = [(case, found) for case, found in results if case["do"] == "fit"]
    checks = {case.name: found for case, found in results if case["do"] == "gradient"}
    rows = [
        [case.name, *found["errors"], max(found["std"]), max(found["begun"]), found["simulations"]]
        for case, found in fits
    ]
    columns = ("robot", *(f"error of {name}" for name in RANGES), "largest std", "error at the start", "simulations")
    metrics, lines = {}, []
    for i, name in enumerate(RANGES):
        metrics[f"{name}_worst"] = worst = max(found["errors"][i] for _, found in fits)
        lines.append(at_most(f"{name}: worst relative error", worst, arguments.error))
    lines += gradients.claims(list(checks.values()))
    worst = max(found["images"] for found in checks.values())
    lines.append(at_most("gradient of the loss of images against central differences, relative error", worst, IMAGES))
    deviations = (
        "no paper has this experiment",
        "the blanket is fixed along the trunk; its sides touch legs and trunk, with friction",
        "the blanket has a pattern of colours without light: the sides of lit cloth are drawn at the same depth with "
        "different shades, and pixels jump between them by up to 0.36 with changes of 1e-9",
        "secants are those of squared distances of cloth and robot, because images jump by small amounts",
    )
    return Report(
        (Table("relative errors of numbers from a video", columns, rows), gradients.table(checks)),
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, fits, arguments.error),
        film=lambda file: _film(file, *fits[0]),
    )


# -- the scene ---------------------------------------------------------------------------------------------------------


@cache
def _model() -> kn.Model:
    """A robot with a blanket on its back."""
    scene = kn.Scene()
    scene.add_ground(exclude=["box", "capsule"])  # trunk and legs never reach it
    scene.add_robot(kn.shapes.quadruped(stiffness=0.0, collides=True), "dog", drive=kn.Servo(KP, KD))
    sheet = _sheet()
    cloth = kn.Cloth(3.0, mu=250.0, lam=100.0, viscosity=0.3, bending=3e-3, bending_damping=5e-5, drag=2.0)
    skin = kn.Skin(radius=0.025, k_e=300.0, k_f=2.0, friction=0.6)
    scene.add_cloth(sheet, "blanket", material=cloth, skin=skin, pos=(0.0, 0.0, TOP))
    scene.attach("blanket", abs(sheet.vertices[:, 1]) < HELD, to="dog/trunk")
    return kn.compile(scene)


def _sheet() -> kn.Mesh:
    return kn.shapes.sheet(0.3, 0.7, squares=(6, 14))


def _pattern() -> Tensor:
    """Colours of the vertices of the blanket, which show where its cloth is; the two sides look the same."""
    x, y, _ = torch.as_tensor(_sheet().vertices, dtype=F64).unbind(-1)
    light = 0.5 + 0.4 * torch.sin(40.0 * x) * torch.sin(30.0 * y)
    return torch.stack([light, 0.8 * light, 1.0 - light], -1)


def _pose() -> Tensor:
    """Servo targets of standing [rad], shape (12,)."""
    swing = math.acos(HEIGHT / (2 * LEG))
    return torch.tensor([0.0, swing, -2 * swing] * 4, dtype=F64)


class Ride:
    """A robot with a blanket, whose numbers are drawn from a seed."""

    def __init__(self, case: Case) -> None:
        """Draw the numbers."""
        drawn = torch.rand(len(RANGES), generator=torch.Generator().manual_seed(case["seed"]), dtype=F64)
        low, high = torch.tensor(list(RANGES.values()), dtype=F64).T
        self.true = low * (high / low) ** drawn
        self.start = _model().initial_state()
        self.start.q[7:] = _pose()
        self.steps = round(case["seconds"] / DT)
        t = DT * torch.arange(self.steps, dtype=F64)
        self.sway = torch.zeros(self.steps, 12, dtype=F64)
        self.sway[:, 0::3] = torch.sin(2 * math.pi * RATES[0] * t).unsqueeze(-1)
        self.sway[:, 1::3] = torch.sin(2 * math.pi * RATES[1] * t).unsqueeze(-1)
        size = case["size"]
        paint = {name: kn.Material(torch.tensor(rgb, dtype=F64), lit=False) for name, rgb in COLOURS.items()}
        paint["blanket"] = kn.Material(_pattern(), lit=False)
        self.options = kn.RenderOptions(dtype=F64, sigma=(2.0 / size) ** 2, materials=paint)
        self.camera = kn.Camera.look_at((0.9, -1.3, 0.8), (0.0, 0.0, 0.3), size=(size, size), fov=0.6)

    def simulate(self, numbers: Tensor, until: float | None = None) -> kn.Trajectory:
        """Simulate with numbers in the order of `RANGES`, shape (*batch, 5)."""
        density, stiffness, drag, trunk, amplitude = numbers.unsqueeze(-1).unbind(-2)  # of (*batch, 1)
        steps = self.steps if until is None else round(until / DT)
        params = {
            "blanket/density": density,
            "blanket/mu": stiffness,
            "blanket/drag": drag,
            "dog/trunk/mass": trunk[..., 0],
        }
        u = _pose() + amplitude.unsqueeze(-1) * self.sway[:steps]
        return kn.simulate(_model(), self.start, u=u, steps=steps, dt=DT, substeps=SUBSTEPS, params=params)

    def images(self, path: kn.Trajectory) -> Tensor:
        """The video, shape (*batch, frames, height, width, 3)."""
        return kn.render(path, self.camera, every=EVERY, options=self.options)

    @cached_property
    def target(self) -> Tensor:
        """The video with 8 bits."""
        return in_8_bits(self.images(self.simulate(self.true)))


# -- cases -------------------------------------------------------------------------------------------------------------


def _fit(case: Case) -> dict[str, Any]:
    """Levenberg-Marquardt on growing horizons."""
    ride = Ride(case)
    low, high = torch.tensor(list(RANGES.values()), dtype=F64).T

    def predict(values: Mapping[str, Tensor], until: float | None = None) -> Tensor:
        return ride.images(ride.simulate(values["numbers"], until))

    found = kn.fit(
        predict,
        ride.target,
        {"numbers": kn.fit.Log(low / BEYOND, high * BEYOND)},
        horizon=[part * case["seconds"] for part in HORIZONS],
        starts=case["starts"],
        seed=case["seed"],
        iterations=case["iterations"],
        options=kn.fit.Options(noise="8bit", progress=False),
    )
    numbers = found.values["numbers"]
    assert found.accuracy is not None
    return {
        "true": ride.true.tolist(),
        "found": numbers.tolist(),
        "errors": (numbers / ride.true - 1.0).abs().tolist(),
        "begun": ((low * high).sqrt() / ride.true - 1.0).abs().tolist(),
        "std": (found.accuracy.std / numbers).tolist(),
        "loss": found.loss,
        "floor": found.floor,
        "losses": found.history.amin(1).tolist(),
        "stages": found.stages,
        "simulations": found.evaluations,
    }


def _check(case: Case) -> dict[str, Any]:
    """By the logarithms of the numbers, 10 % from the truth: the slopes of places, and of the loss of images."""
    ride, until = Ride(case), 0.5 * case["seconds"]
    at = ride.true.log() + 0.1
    end = ride.simulate(ride.true, until).end
    target = ride.target[: 1 + round(until / DT) // EVERY]

    def places(logs: Tensor) -> tuple[Tensor, kn.Trajectory]:
        path = ride.simulate(logs.exp(), until)
        cloth = (path.end.x - end.x).square().sum(-1).mean(-1)
        return cloth + (path.end.q - end.q)[..., :3].square().sum(-1), path

    def images(logs: Tensor) -> Tensor:
        return kn.marginal_loss(ride.images(ride.simulate(logs.exp(), until)), target)

    n = len(RANGES)
    ways = torch.eye(n, dtype=F64) if case["each"] else torch.full((1, n), n**-0.5, dtype=F64)
    found = gradients.check(places, at, WINDOW, batched=True, samples=9, directions=ways)
    return found | {"images": gradients.along_itself(images, at, TINY, 0.01)}


# -- pictures ----------------------------------------------------------------------------------------------------------


def _draw(file: Path, fits: Results, limit: float) -> None:
    """The loss over the iterations, and errors beside expected standard deviations."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.4), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    for case, found in fits:
        left.semilogy(found["losses"], lw=1, label=case.name)
    for end in fits[0][1]["stages"][:-1]:
        left.axvline(end - 0.5, color="0.8", lw=0.8)
    left.set(xlabel="iteration", ylabel="loss")
    left.legend(frameon=False, fontsize=7)
    for i, name in enumerate(RANGES):
        right.loglog([f["std"][i] for _, f in fits], [f["errors"][i] for _, f in fits], "o", ms=4, label=name)
    right.axhline(limit, color="0.6", lw=0.8)
    right.set(xlabel="expected standard deviation, relative", ylabel="relative error")
    right.legend(frameon=False, fontsize=7)
    figure.savefig(file, dpi=110)


def _film(file: Path, case: Case, found: Mapping[str, Any]) -> None:
    """The target, and the fit beside it."""
    ride = Ride(case)
    path = ride.simulate(torch.tensor([found["true"], found["found"]], dtype=F64))
    target, fitted = kn.render(path, ride.camera.resized(320, 320), every=20)
    kn.write_video(file, torch.cat([target, fitted], -2), fps=25)
