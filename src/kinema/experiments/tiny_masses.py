"""Masses of 1 g to 100 g from videos, beside 1 kg: a limit of gradSim [Jatavallabhula et al. 2021, appendix K].

The same body, as light as a feather or as heavy as a brick, moves alike if known forces and known stiffnesses are in
proportion; what differs is the size of all numbers, and with it rounding, thresholds and regularisation of the solvers.
Three motions: a push in the air; a throw at compliant ground with gradSim's law of contact; a push of a box that slides
to rest on hard ground. Each mass is found from images of 8 bits, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients
from kinema.experiments.case import Case, Report, Results, Table, at_most
from kinema.experiments.pushed import EVEN, SHAPES, Pushed
from kinema.experiments.thrown import Motion, camera, in_8_bits, throw

F64 = torch.float64
MASSES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # [kg]
HEAVY = 1.0  # to compare with [kg]
KINDS = ("in the air", "compliant ground", "hard ground")
IMAGES, SECONDS = 16, 1.0  # of a video, [s]
FRAME = SECONDS / (IMAGES - 1)
RANGE, STARTS, ITERATIONS = 4.0, 3, 12  # bounds of the fit: a factor of the mass in the middle
TRUTH = 1.5  # true masses are drawn within this factor of the mass in the middle
MIDDLE = 7.0  # mass of the throw whose contact and kick are scaled [kg]
CONTACT = torch.tensor([300.0, 20.0, 60.0], dtype=F64)  # k_e [N/m], k_d, k_f [N s/m], of that throw
FRICTION, SHOVE = 0.4, 1.5  # of the slide; speed that it gives to the mass in the middle [m/s]
MOTION = Motion(gap=0.2, seconds=SECONDS)
STEPS = {"in the air": 240, "compliant ground": 3000, "hard ground": 300}
ALIKE = 2.0  # error of light bodies over that of heavy ones
AT, WINDOW = 0.05, 0.02  # of the gradient check: distance from the truth, and half the window, in logarithms


@dataclass(frozen=True)
class Arguments:
    """Masses in the middle [kg], the motions, size of images [pixels], the largest error that passes."""

    masses: tuple[float, ...] = MASSES
    kinds: tuple[str, ...] = KINDS
    size: int = 96
    limit: float = 2e-4

    @classmethod
    def quick(cls) -> Arguments:
        """The lightest, smaller images."""
        return cls(masses=(1e-3,), size=48, limit=2e-3)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """A fit for each motion, seed and mass; gradient checks of the lightest."""
    common = asdict(arguments)
    found = [
        Case(f"{kind}, {mass:g} kg, seed {seed}", {**common, "do": "fit", "kind": kind, "mass": mass, "seed": seed})
        for kind in arguments.kinds
        for seed in seeds
        for mass in (*arguments.masses, HEAVY)
    ]
    lightest = min(arguments.masses)
    return found + [
        Case(f"{kind}, gradient", {**common, "do": "gradient", "kind": kind, "mass": lightest, "seed": seeds[0]})
        for kind in arguments.kinds
    ]


def solve(case: Case) -> dict[str, Any]:
    """The mass found and true [kg]; or the check of the gradient."""
    return _check(case) if case["do"] == "gradient" else _fit(case)


def report(arguments: Arguments, results: Results) -> Report:
    """Errors of light bodies beside those of heavy ones."""
    fits = [(case, found) for case, found in results if case["do"] == "fit"]
    checks = {f"{case['kind']}, {case['mass']:g} kg": f for case, f in results if case["do"] == "gradient"}
    rows: list[list[Any]] = []
    metrics: dict[str, float] = {}
    lines = []
    for kind in arguments.kinds:
        means = {}
        for mass in (*arguments.masses, HEAVY):
            mine = [found for case, found in fits if case["kind"] == kind and case["mass"] == mass]
            errors = [found["error"] for found in mine]
            means[mass] = sum(errors) / len(errors)
            std = sum(found["std"] for found in mine) / len(mine)
            rows.append([kind, mass, means[mass], max(errors), std, sum(f["floor_reached"] for f in mine), len(mine)])
            metrics[f"{kind.replace(' ', '_')}_{1e3 * mass:g}_g_mean_error"] = means[mass]
        light = max(means[mass] for mass in arguments.masses)
        lines += [
            at_most(f"{kind}: mean relative error of a mass of at most 100 g, worst", light, arguments.limit),
            at_most(f"{kind}: the same over the error at 1 kg", light / means[HEAVY], ALIKE),
        ]
    columns = ("motion", "mass [kg]", "mean relative error", "worst", "standard deviation of the fit")
    return Report(
        (Table("masses from videos", (*columns, "at the noise floor", "bodies"), rows), gradients.table(checks)),
        [*lines, *gradients.claims(list(checks.values()), secant=0.08)],
        metrics,
        deviations=(
            "gradSim names the limit without an experiment; bodies, pushes and contacts here are ours",
            "pushes and stiffnesses of contact are known, and in proportion to the mass in the middle of the range",
            "even light, as for mass-from-video",
        ),
        picture=lambda file: _draw(file, arguments, rows),
        film=lambda file: _film(file, arguments, fits),
    )


@dataclass(frozen=True, eq=False)
class Motioned:
    """A motion as a function of the mass.

    Attributes:
        fly: Simulates masses [kg], shape (*batch), for some steps.
        camera: Makes the camera for a size of images.
        steps: Steps of the whole motion.
        true: The true mass [kg].
        guess: Where the fit begins [kg].
    """

    fly: Callable[[Tensor, int], kn.Trajectory]
    camera: Callable[[int], kn.Camera]
    steps: int
    true: float
    guess: float

    @property
    def every(self) -> int:
        """Steps between images."""
        return self.steps // (IMAGES - 1)

    def seen(self, path: kn.Trajectory, size: int) -> Tensor:
        """Images of a motion."""
        options = kn.RenderOptions(
            dtype=F64, background=(0.0, 0.0, 0.0), lights=EVEN, sigma=(2.0 / size) ** 2, ground=False
        )
        return kn.render(path, self.camera(size), every=self.every, options=options)


def _motion(case: Case) -> Motioned:
    kind = case["kind"]
    random = torch.Generator().manual_seed(case["seed"])
    true, guess = (case["mass"] * TRUTH ** (2 * torch.rand(2, generator=random, dtype=F64) - 1)).tolist()
    make = {"in the air": _pushed, "compliant ground": _bounced, "hard ground": _shoved}[kind]
    fly, look = make(case, random)
    return Motioned(fly, look, STEPS[kind], true, guess)


Made = tuple[Callable[[Tensor, int], kn.Trajectory], Callable[[int], kn.Camera]]


def _pushed(case: Case, random: torch.Generator) -> Made:
    body = Pushed(SHAPES[case["seed"] % len(SHAPES)], case["seed"], mass=case["mass"])

    def look(size: int) -> kn.Camera:
        return kn.Camera.look_at((0.0, -8.0, 1.0), (0.0, 0.0, 0.5), fov=0.7, size=(size, size))

    return lambda mass, steps: body.fly(mass / body.volume, steps), look


def _bounced(case: Case, random: torch.Generator) -> Made:
    scale = case["mass"] / MIDDLE
    (kick_x, kick_z), push = MOTION.kick, MOTION.push
    motion = replace(MOTION, kick=(scale * kick_x, scale * kick_z), push=scale * push)
    thrown = throw("box", random, motion)

    def fly(mass: Tensor, steps: int) -> kn.Trajectory:
        contact = (scale * CONTACT).expand(*mass.shape, 3)
        friction = torch.full_like(mass, 0.5)
        return thrown.simulate(mass, contact, friction, dt=SECONDS / STEPS["compliant ground"], steps=steps)

    return fly, camera


@cache
def _box() -> kn.Model:
    scene = kn.Scene(contact=kn.Contact(friction=FRICTION))
    scene.add_ground()
    scene.add_body(kn.Box((0.3, 0.2, 0.15), colour="orange"), "box", mass=1.0, pos=(-1.0, 0.0, 0.15))
    return kn.compile(scene, F64)


def _shoved(case: Case, random: torch.Generator) -> Made:
    model, steps = _box(), STEPS["hard ground"]
    dt = SECONDS / steps
    pushed = round(0.1 / dt)
    inertia = model.resolve()["inertia"]
    wrench = torch.zeros(steps, 6, dtype=F64)
    way = 0.5 * (2 * float(torch.rand((), generator=random, dtype=F64)) - 1)
    force = case["mass"] * (SHOVE / (pushed * dt) + FRICTION * 9.81)
    wrench[:pushed, 3], wrench[:pushed, 4] = force * math.cos(way), force * math.sin(way)

    def fly(mass: Tensor, count: int) -> kn.Trajectory:
        params = {"mass": mass.unsqueeze(-1), "inertia": mass[..., None, None] * inertia}
        control = kn.Control(wrenches={"box/body": wrench[:count]})
        return kn.simulate(model, None, control, steps=count, dt=dt, params=params)

    def look(size: int) -> kn.Camera:
        return kn.Camera.look_at((0.0, -5.0, 2.5), (0.0, 0.0, 0.0), fov=0.6, size=(size, size))

    return fly, look


def _fit(case: Case) -> dict[str, Any]:
    motion, size = _motion(case), case["size"]
    target = in_8_bits(motion.seen(motion.fly(torch.tensor(motion.true, dtype=F64), motion.steps), size))

    def predict(values: Mapping[str, Tensor], until: float) -> Tensor:
        steps = min(motion.steps, round(until / FRAME) * motion.every)
        return motion.seen(motion.fly(values["mass"], steps), size)

    found = kn.fit(
        predict,
        target,
        {"mass": kn.fit.Log(case["mass"] / RANGE, case["mass"] * RANGE, motion.guess)},
        loss=["marginal", "marginal", "squares"],
        horizon=[0.4 * SECONDS, SECONDS, SECONDS],
        starts=STARTS,
        iterations=ITERATIONS,
        seed=case["seed"],
        options=kn.fit.Options(noise="8bit", progress=False),
    )
    mass = float(found.values["mass"])
    return {
        "true": motion.true,
        "found": mass,
        "error": abs(mass / motion.true - 1.0),
        "std": found.std["mass"] / motion.true,
        "floor_reached": bool(found.floor_reached),
        "simulations": found.evaluations,
    }


def _check(case: Case) -> dict[str, Any]:
    """The gradient of the loss to the logarithm of the mass."""
    motion, size = _motion(case), case["size"]
    target = in_8_bits(motion.seen(motion.fly(torch.tensor(motion.true, dtype=F64), motion.steps), size))

    def loss(shift: Tensor) -> tuple[Tensor, kn.Trajectory]:
        path = motion.fly(motion.true * shift.exp(), motion.steps)
        return kn.marginal_loss(motion.seen(path, size), target), path

    return gradients.check(loss, torch.tensor(AT, dtype=F64), WINDOW, batched=True, samples=9)


def _draw(file: Path, arguments: Arguments, rows: Sequence[Sequence[Any]]) -> None:
    """Errors over the mass."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axis = figure.subplots()
    for kind in arguments.kinds:
        mine = [row for row in rows if row[0] == kind]
        axis.loglog([row[1] for row in mine], [row[2] for row in mine], "o-", ms=4, lw=1, label=kind)
    axis.set(xlabel="mass [kg]", ylabel="mean relative error")
    axis.legend(frameon=False)
    figure.savefig(file, dpi=110)


def _film(file: Path, arguments: Arguments, fits: Results) -> None:
    """The lightest body of the first seed in all motions, with the mass that was found."""
    lightest, seed = min(arguments.masses), fits[0][0]["seed"]
    seen = []
    for case, found in fits:
        if case["mass"] == lightest and case["seed"] == seed:
            motion = _motion(case)
            seen.append(motion.seen(motion.fly(torch.tensor(found["found"], dtype=F64), motion.steps), 192))
    kn.write_video(file, torch.cat(seen, -2), fps=IMAGES / SECONDS)
