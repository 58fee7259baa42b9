"""Twenty-two numbers of a walking quadruped, from one second of video.

The masses of the trunk, the thighs and the shanks, the frictions of the four feet, the dampings of swings and knees,
and the length of one thigh: all differ from those of the drawing of the robot. Servos with known targets make it trot
and sway, so that every foot slips now and then; images have 8 bits.
"""

from __future__ import annotations

import importlib.util
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
from kinema.experiments.case import Case, Report, Results, Table, at_least, at_most
from kinema.experiments.photographs import photograph
from kinema.experiments.thrown import F64, in_8_bits
from kinema.fitting.experiment import Experiment
from kinema.fitting.observations import Images
from kinema.fitting.unknowns import Log

DT, SECONDS = 2e-3, 1.0  # [s]
KP, KD, LEG, FOOT = 150.0, 1.0, 0.25, 0.02  # of servos [N m/rad], [N m s/rad]; of the robot [m]
HEIGHT, DROP = 0.4, 0.03  # of hips over feet, and of feet over the floor at the start: no length touches it [m]
RATE, SPEED, DUTY, LIFT, LEAN, SWAY = 2.5, 0.8, 0.55, 0.08, 0.06, 0.1  # [Hz], [m/s], [-], [m], [m], [rad]
KNEE = "dog/fl_knee/offset"
LENGTH = "length"  # of the upper front left leg [m]
SINGLE = ("dog/trunk/mass", LENGTH)  # names of one number
USUAL = {  # the numbers of the drawing
    "dog/trunk/mass": 12.0,
    "dog/*_thigh/mass": 1.0,
    "dog/*_shank/mass": 0.3,
    "dog/*_shank/foot on ground/friction": 0.5,
    "dog/*_swing/damping": 0.8,
    "dog/*_knee/damping": 0.8,
    LENGTH: LEG,
}
RANGE, STRETCH, INNER = 1.4, 1.06, 0.6  # bounds: factors up and down; part of the bounds that truths are drawn from
COLOURS = {"trunk": (0.8, 0.25, 0.02), "thigh": (0.05, 0.2, 0.6), "shank": (0.02, 0.02, 0.02)}
SIDES = 8  # of circles: legs are a few pixels wide
# Gradient checks: time [s], fewer images by a factor, half the window in logarithms. Trajectories bend wherever a foot
# lands or slips, so that the mean of few gradients is off by percents.
CHECKED, SPARSE, WINDOW, SAMPLES = 0.5, 5, 0.1, 129
SEEN = ("masks", "colours")  # in gradient checks
SOFT = 2.0  # width of outlines of the masks there [pixels]
FINE, SHARP, MASKED = 3, 0.1, 0.03  # masks of photographs: samples per side and outlines [pixels]; largest mean error
GREY, TILE, PAINT = 0.5, 0.25, (0.8, 0.3, 0.05)  # in photographs: reflectance and tiles [m] of the ground; of the robot


@dataclass(frozen=True)
class Arguments:
    """Steps between images, their width [pixels], starts, horizons [s], iterations on each, largest error, photographs.

    Photographs, of which masks are made, are every second image, with a width [pixels] and a number of paths per
    pixel; width 0: none. Errors shrink with pixels: 5 % at 80, 3 % at 160 (mean over 22 numbers of robots 100 and 101).
    """

    every: int = 10
    width: int = 80
    starts: int = 5
    horizons: tuple[float, ...] = (0.12, 0.25, 0.4, 0.65, 1.0)
    iterations: int = 10
    error: float = 1e-3
    photo: int = 200
    paths: int = 32

    @classmethod
    def quick(cls) -> Arguments:
        """Fewer and smaller images of the beginning of the walk, which determine less."""
        return cls(width=64, starts=1, horizons=(0.12, 0.25, 0.4), iterations=8, error=5e-2, photo=0)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """A robot for each seed, and the gradients of masks and colours."""
    common = {
        "every": arguments.every,
        "width": arguments.width,
        "starts": arguments.starts,
        "horizons": arguments.horizons,
        "iterations": arguments.iterations,
    }
    found = [Case(f"seed {seed}", {**common, "do": "fit", "seed": seed}) for seed in seeds]
    if arguments.photo and importlib.util.find_spec("mitsuba") is not None:
        photo = {
            **common,
            "every": 2 * arguments.every,
            "do": "photographs",
            "photo": arguments.photo,
            "paths": arguments.paths,
        }
        found += [Case(f"photographs, seed {seed}", {**photo, "seed": seed}) for seed in seeds]
    check = {**common, "do": "gradient", "seed": seeds[0]}
    return [*found, *(Case(f"gradient, {seen}", {**check, "seen": seen}) for seen in SEEN)]


def solve(case: Case) -> dict[str, Any]:
    """Numbers found and true; or the check of the gradient."""
    return {"fit": _fit, "photographs": _fit_masks, "gradient": _gradient}[case["do"]](case)


def report(arguments: Arguments, results: Results) -> Report:
    """Errors of all numbers."""
    fits = [(case, found) for case, found in results if case["do"] == "fit"]
    photos = [(case, found) for case, found in results if case["do"] == "photographs"]
    checks = {case["seen"]: found for case, found in results if case["do"] == "gradient"}
    difference, _ = gradients.claims(list(checks.values()))
    _, secant = gradients.claims([checks["masks"]])
    missed = max(line["secant_error"] for line in checks["colours"]["lines"])
    names = fits[0][1]["names"]
    errors = torch.tensor([found["errors"] for _, found in fits], dtype=F64)
    expected = torch.tensor([found["std"] for _, found in fits], dtype=F64)
    rows = [
        [name, fits[0][1]["true"][i], *errors[:, i].tolist(), float(expected[:, i].max())]
        for i, name in enumerate(names)
    ]
    columns = ("number", f"true, {fits[0][0].name}", *(f"error, {case.name}" for case, _ in fits), "largest std")
    summary = [
        [
            case.name,
            max(found["errors"]),
            max(found["begun"]),
            found["loss"] / found["floor"],
            found["arrived"],
            found["walked"],
            found["slips"],
            found["simulations"],
            "; ".join(found["undetermined"]) or "-",
        ]
        for case, found in fits
    ]
    seen = ("robot", "worst error", "at the start", "loss / floor of 8 bits", "starts that arrive", "walked [m]")
    masked = [
        [case.name, sum(found["errors"]) / len(names), max(found["errors"]), sum(found["begun"]) / len(names)]
        for case, found in photos
    ]
    means = [row[1] for row in masked]
    tables = (
        Table("robots", (*seen, "part of the time that a foot slips, least", "simulations", "open"), summary),
        Table("relative errors of the numbers", columns, rows),
        *(
            [Table("masks of photographs", ("robot", "mean error", "worst", "mean at the start"), masked)]
            if photos
            else []
        ),
        gradients.table(checks),
    )
    worst = float(errors.max())
    lines = [
        at_least("numbers", len(names), 20),
        at_most(f"worst relative error of a number, best of {arguments.starts} starts", worst, arguments.error),
        difference,
        secant,
    ]
    if photos:
        what = f"masks of photographs: mean relative error of the {len(names)} numbers"
        lines.append(at_most(what, sum(means) / len(means), MASKED))
    metrics = {
        "numbers": len(names),
        "worst_error": worst,
        "mean_error": float(errors.mean()),
        "arrived": sum(found["arrived"] for _, found in fits),
        "starts": arguments.starts * len(fits),
        "secant_error_colours": missed,
        **({"mean_error_photographs": sum(means) / len(means)} if photos else {}),
    }
    deviations = (
        "no table of a paper",
        f"numbers are drawn from the middle {INNER:.0%} of bounds at {1 / RANGE:.2f} and {RANGE} times those of the "
        f"drawing ({1 / STRETCH:.2f} and {STRETCH} for the length), starts from all of them; the fit takes the start "
        "with the least loss",
        "inertias, the other lengths and the gains of the servos are known; the leg with another length is drawn with "
        "the usual one, its knee is elsewhere",
        f"the secant is claimed for masks; that of coloured images is {missed:.1%} away from the mean gradient: "
        "pixels jump where parts of different colours penetrate each other, at knees and hips, and beside outlines "
        "where another part, or the ground, becomes the nearest one; gradients miss both",
        _about_photographs(arguments, bool(photos)),
        f"images have {arguments.width} x {_height(arguments.width)} pixels, 8 bits, {1 / (arguments.every * DT):.0f} "
        f"a second; circles have {SIDES} sides",
    )
    return Report(
        tables,
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, fits),
        film=lambda file: _film(file, *fits[0]),
    )


def _about_photographs(arguments: Arguments, taken: bool) -> str:
    """What was done with photographs, or why nothing."""
    if taken:
        size = f"{arguments.photo} x {_height(arguments.photo)} pixels, {arguments.paths} paths per pixel"
        return f"masks of photographs by Mitsuba, {size}, are fitted from one start, the drawing"
    if not arguments.photo:
        return "without photographs, which the full run takes"
    return "without photographs: Mitsuba is not installed, pip install 'kinema[photo]'"


# -- the robot ---------------------------------------------------------------------------------------------------------


@cache
def _model() -> kn.Model:
    scene = kn.Scene(friction=USUAL["dog/*_shank/foot on ground/friction"])
    scene.add_ground()
    robot = kn.shapes.quadruped(stiffness=0.0, damping=USUAL["dog/*_knee/damping"])
    scene.add_robot(robot, "dog", drive=kn.Servo(KP, KD))
    return kn.compile(scene)


def _servo_targets() -> Tensor:
    """A trot: feet on lines, by inverse kinematics of swings and knees; shape (steps, 12)."""
    t = DT * torch.arange(round(SECONDS / DT), dtype=F64)
    fade = (t / 0.2).clamp(max=1)
    stride = SPEED * DUTY / RATE
    targets = torch.zeros(len(t), 12, dtype=F64)
    for leg, phase in enumerate((0.0, 0.5, 0.5, 0.0)):
        cycle = (RATE * t + phase) % 1.0
        on = cycle < DUTY
        part = torch.where(on, cycle / DUTY, (cycle - DUTY) / (1 - DUTY))
        x = fade * 0.5 * stride * torch.where(on, 1 - 2 * part, -torch.cos(math.pi * part)) - LEAN
        z = fade * torch.where(on, 0.0, LIFT * torch.sin(math.pi * part).square()) - HEIGHT
        knee = -2 * torch.acos(torch.sqrt(x * x + z * z) / (2 * LEG))
        targets[:, 3 * leg] = fade * SWAY * torch.sin(4 * math.pi * t + 1.3 * leg)
        targets[:, 3 * leg + 1] = torch.atan2(-x, -z) - 0.5 * knee
        targets[:, 3 * leg + 2] = knee
    return targets


def _start() -> kn.State:
    swing = math.acos(HEIGHT / (2 * LEG))
    state = _model().initial_state()
    state.q[2] = HEIGHT + FOOT + DROP
    state.q[7:] = torch.tensor([0.0, swing, -2 * swing] * 4, dtype=F64)
    return state


def _unknown() -> dict[str, Log]:
    model, found = _model(), {}
    for name, usual in USUAL.items():
        factor = STRETCH if name == LENGTH else RANGE
        shape = () if name in SINGLE else tuple(model.parameters(name)[name].shape)
        found[name] = kn.fit.Log(usual / factor, usual * factor, shape=shape)
    return found


def _params(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters of the model from the numbers of the fit."""
    down = torch.tensor([0.0, 0.0, -1.0], dtype=F64)
    return {n: v for n, v in values.items() if n != LENGTH} | {KNEE: values[LENGTH].unsqueeze(-1) * down}


def _draw_numbers(seed: int) -> dict[str, Tensor]:
    """The numbers of the robot of a seed."""
    random = torch.Generator().manual_seed(seed)
    found = {}
    for name, one in _unknown().items():
        part = INNER * (2.0 * torch.rand(one.shape or (), generator=random, dtype=F64) - 1.0)
        found[name] = USUAL[name] * (STRETCH if name == LENGTH else RANGE) ** part
    return found


def _flat(values: Mapping[str, Tensor]) -> Tensor:
    """All numbers side by side, shape (*batch, 22)."""
    return torch.cat([v.unsqueeze(-1) if n in SINGLE else v for n, v in values.items()], -1)


def _by_name(numbers: Tensor) -> dict[str, Tensor]:
    """The reverse of `_flat`."""
    sizes = [math.prod(one.shape or ()) for one in _unknown().values()]
    parts = numbers.split(sizes, -1)
    return {n: part[..., 0] if n in SINGLE else part for n, part in zip(USUAL, parts, strict=True)}


def _names() -> list[str]:
    found = [row for name in USUAL if name != LENGTH for row in _model().rows(name)]
    return [*found, "dog/fl_thigh/length"]


# -- its video ---------------------------------------------------------------------------------------------------------


def _height(width: int) -> int:
    return width * 5 // 8


def _camera(width: int) -> kn.Camera:
    return kn.Camera.look_at((0.9, -1.5, 0.6), (0.18, 0.0, 0.24), size=(width, _height(width)), fov=0.42)


def _film_of(every: int, width: int) -> Experiment:
    """The simulation, seen by the camera in colours."""
    paint = {
        f"dog/{leg}{part}": kn.Material(torch.tensor(colour, dtype=F64), lit=False)
        for part, colour in COLOURS.items()
        for leg in (("",) if part == "trunk" else ("fl_", "fr_", "rl_", "rr_"))
    }
    pixel = 2.0 / _height(width)
    look = kn.RenderOptions(dtype=F64, sides=SIDES, sigma=pixel**2, materials=paint)
    return _observed(kn.fit.Images(_camera(width), every=every, options=look))


def _masks_of(every: int, width: int, soft: float = SOFT, fine: int = 1) -> Experiment:
    """The simulation, seen by the camera as masks of the robot, with outlines of a width [pixels]."""
    pixel = 2.0 / _height(width)
    look = kn.RenderOptions(dtype=F64, sides=SIDES, sigma=(soft * pixel) ** 2, ground=False, supersample=fine)
    return _observed(kn.fit.Masks(_camera(width), every=every, options=look))


def _photographs(path: kn.Trajectory, case: Case) -> Tensor:
    """Masks of photographs of a walk, with 8 bits: what is seen of the robot above the ground."""
    made = kn.surfaces_of(path, every=case["every"], dtype=F64, ground=TILE, sides=SIDES)
    (ground,) = (one for one in made if one.name == "ground")
    parts = [one for one in made if one.name != "ground"]
    firsts = torch.tensor([0, *(one.vertices.shape[-2] for one in parts[:-1])]).cumsum(0).tolist()
    faces = torch.cat([one.faces + first for one, first in zip(parts, firsts, strict=True)])
    paint = kn.Material(torch.tensor(PAINT, dtype=F64))
    robot = kn.Surface(torch.cat([one.vertices for one in parts], -2), faces, paint, smooth=False, name="robot")
    _, masks = photograph(robot, ground, GREY, _camera(case["photo"]), case["paths"], case["seed"])
    return (255.0 * masks).round() / 255.0


def _observed(seen: Images) -> Experiment:
    """The simulation, and what is seen of it."""
    u = _servo_targets()
    return kn.fit.Experiment(_model(), seen, steps=len(u), dt=DT, state=_start(), u=u, threads=1)


# -- cases -------------------------------------------------------------------------------------------------------------


def _fit(case: Case) -> dict[str, Any]:
    """Levenberg-Marquardt on growing horizons, from several starts."""
    film, true = _film_of(case["every"], case["width"]), _draw_numbers(case["seed"])
    until = case["horizons"][-1]

    def predict(values: Mapping[str, Tensor], until: float | None = None) -> Tensor:
        return film(_params(values), until)

    with torch.no_grad():
        target = in_8_bits(predict({n: v.unsqueeze(0) for n, v in true.items()}, until)[0])
    found = kn.fit(
        predict,
        target,
        _unknown(),
        method=kn.fit.LM(iterations=case["iterations"]),
        horizon=(*case["horizons"], case["horizons"][-1]),
        starts=case["starts"],
        seed=case["seed"],
        options=kn.fit.Options(noise="8bit", progress=False),
    )
    numbers, wanted = _flat(found.values), _flat(true)
    usual = _flat({n: torch.full_like(v, USUAL[n]) for n, v in true.items()})
    path = kn.simulate(_model(), _start(), film.u, steps=film.steps, dt=DT, params=_params(true), record="impulse")
    pressed, along = path.recorded["impulse"][..., 0], path.recorded["impulse"][..., 1:].norm(dim=-1)
    slips = (pressed > 0) & (along >= true["dog/*_shank/foot on ground/friction"] * pressed * (1 - 1e-6))
    assert found.accuracy is not None and found.floor is not None
    return {
        "names": _names(),
        "true": wanted.tolist(),
        "found": numbers.tolist(),
        "errors": (numbers / wanted - 1.0).abs().tolist(),
        "begun": (usual / wanted - 1.0).abs().tolist(),
        "std": (found.accuracy.std / numbers).tolist(),
        "undetermined": found.undetermined,
        "loss": found.loss,
        "floor": found.floor,
        "arrived": sum(bool(start.loss <= 1.1 * found.floor) for start in found.starts),
        "losses": found.history.tolist(),
        "stages": found.stages,
        "simulations": found.evaluations,
        "walked": float(path.q[-1, 0]),
        "slips": float(slips.double().mean(0).min()),
    }


def _fit_masks(case: Case) -> dict[str, Any]:
    """Levenberg-Marquardt on growing horizons, from the drawing, on masks of photographs."""
    true = _draw_numbers(case["seed"])
    film, until = _masks_of(case["every"], case["photo"], SHARP, FINE), case["horizons"][-1]
    with torch.no_grad():
        target = _photographs(film.simulate(_params(true), until), case)
    found = kn.fit(
        lambda values, until=None: film(_params(values), until),
        target,
        _unknown(),
        method=kn.fit.LM(iterations=case["iterations"]),
        horizon=(*case["horizons"], case["horizons"][-1]),
        seed=case["seed"],
        options=kn.fit.Options(confidence=False, progress=False),
    )
    wanted = _flat(true)
    usual = _flat({n: torch.full_like(v, USUAL[n]) for n, v in true.items()})
    return {
        "errors": (_flat(found.values) / wanted - 1.0).abs().tolist(),
        "begun": (usual / wanted - 1.0).abs().tolist(),
    }


def _gradient(case: Case) -> dict[str, Any]:
    """Of the marginal loss of the first images, at the drawing, along the way to the robot, in logarithms."""
    masks, true = case["seen"] == "masks", _draw_numbers(case["seed"])
    film = (_masks_of if masks else _film_of)(SPARSE * case["every"], case["width"])

    def seen(path: kn.Trajectory, values: Mapping[str, Tensor]) -> Tensor:
        images: Tensor = film.seen(path, values)
        return images.unsqueeze(-1) if masks else images

    numbers = _params({n: v.unsqueeze(0) for n, v in true.items()})
    target = seen(film.simulate(numbers, CHECKED), numbers)[0]
    usual = _flat({n: torch.full_like(v, USUAL[n]) for n, v in true.items()})
    way = (_flat(true) / usual).log()

    def loss(logs: Tensor) -> tuple[Tensor, kn.Trajectory]:
        values = _params(_by_name(usual * logs.exp()))
        path = film.simulate(values, CHECKED)
        return kn.marginal_loss(seen(path, values), target), path

    start, ways = torch.zeros_like(usual), way.unsqueeze(0)
    return gradients.check(loss, start, WINDOW, directions=ways, batched=True, samples=SAMPLES)


# -- pictures ----------------------------------------------------------------------------------------------------------


def _draw(file: Path, fits: Results) -> None:
    """Losses over iterations, and errors beside expected standard deviations."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.4), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    for _, found in fits:
        losses = torch.tensor(found["losses"])
        left.semilogy(torch.where(losses.isfinite(), losses, math.nan), color="#33679f", lw=0.8)
        right.loglog(found["std"], found["errors"], "o", ms=3, color="#d96a3f")
    for end in fits[0][1]["stages"][:-1]:
        left.axvline(end - 0.5, color="0.8", lw=0.8)
    left.set(xlabel="iteration", ylabel="loss of each start")
    right.plot([1e-5, 1e-2], [1e-5, 1e-2], color="0.6", lw=0.8)
    right.set(xlabel="expected standard deviation, relative", ylabel="relative error")
    figure.savefig(file, dpi=110)


def _film(file: Path, case: Case, found: Mapping[str, Any]) -> None:
    """The target, and the fit beside it."""
    film = _film_of(case["every"] // 2, 192)
    both = torch.tensor([found["true"], found["found"]], dtype=F64)
    with torch.no_grad():
        target, fitted = film(_params(_by_name(both)))
    kn.write_video(file, torch.cat([target, fitted], -2), fps=25)
