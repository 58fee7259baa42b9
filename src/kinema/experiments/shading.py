"""How fast the mass of a thrown object is found with colour, shading and texture [Jatavallabhula et al. 2021, Fig. 7].

Three appearances of the same motion: one colour without light, one colour in Phong shading, and a texture in the same
light. Each mass is found by Adam from the mean square of pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients
from kinema.experiments.case import Case, Report, Results, Table, at_most
from kinema.experiments.thrown import F64, Motion, Thrown, camera, in_8_bits, throw

DT = 4e-4  # [s]
LOOKS = ("colour", "shading", "texture")
ROUND = ("sphere", "pear", "apple", "ellipsoid", "capsule")  # without creases, of which images have no gradient
MASS, CONTACT, FRICTION = (2.0, 12.0), (300.0, 20.0, 20.0), 0.5  # [kg]; k_e [N/m], k_d, k_f [N s/m]
FAR = 0.4  # of the first guess, in the logarithm of the mass, on either side
RATE, DECAY, BETAS = 0.1, 0.93, (0.7, 0.9)  # of Adam, for the logarithm of the mass
CLOSE = 1e-3
FILM = 160  # pixels
MOTION = Motion(seconds=0.9)
SHIFT, WINDOW = 0.1, 0.05  # of the gradient check, in the logarithm of the mass


@dataclass(frozen=True)
class Arguments:
    """Images, their size [pixels], iterations."""

    images: int = 10
    size: int = 64
    iterations: int = 80

    @classmethod
    def quick(cls) -> Arguments:
        """Smaller images."""
        return cls(size=48, iterations=60)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """All appearances for each seed, and a gradient check."""
    common = asdict(arguments)
    found = [Case(f"{look}, seed {seed}", {**common, "do": look, "seed": seed}) for seed in seeds for look in LOOKS]
    return [*found, Case("gradient", {**common, "do": "gradient", "seed": seeds[0]})]


def solve(case: Case) -> dict[str, Any]:
    """Relative errors of the mass over iterations; or the check of the gradient."""
    return _check(case) if case["do"] == "gradient" else _descend(case)


def report(arguments: Arguments, results: Results) -> Report:
    """Iterations until the mass is known."""
    runs = [(case, found) for case, found in results if case["do"] != "gradient"]
    checks = {case.name: found for case, found in results if case["do"] == "gradient"}
    rows: list[list[Any]] = []
    metrics: dict[str, float] = {}
    for look in LOOKS:
        some = [found for case, found in runs if case["do"] == look]
        first = sum(found["first"] for found in some) / len(some)
        worst = max(found["errors"][-1] for found in some)
        rows.append([look, first, sum(found["errors"][-1] for found in some) / len(some), worst])
        metrics |= {f"{look}_iterations": first, f"{look}_worst_error": worst}
    lines = [at_most(f"{row[0]}: worst relative error of the mass at the end", row[3], CLOSE) for row in rows]
    lines += gradients.claims(list(checks.values()))
    columns = ("appearance", f"iterations to {CLOSE:g}, mean", "mean error at the end", "worst")
    deviations = (
        "toys without creases on compliant ground, after a known kick; the paper's objects are meshes of ShapeNet",
        f"Adam on the logarithm of the mass, rate {RATE:g}, times {DECAY:g} in each iteration",
    )
    return Report(
        (Table("mass from videos", columns, rows), gradients.table(checks)),
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, runs),
        film=lambda file: _film(file, runs[0][0]),
    )


def _scene(seed: int) -> tuple[Thrown, Tensor, float]:
    """The object of a seed, its mass [kg], and the logarithm of the first guess over it."""
    random = torch.Generator().manual_seed(seed)
    share = torch.rand(2, generator=random, dtype=F64)
    mass = MASS[0] + (MASS[1] - MASS[0]) * share[0]
    return throw(ROUND[seed % len(ROUND)], random, MOTION), mass, FAR if share[1] < 0.5 else -FAR


def _images(thrown: Thrown, look: str, mass: Tensor, case: Case) -> tuple[Tensor, kn.Trajectory]:
    """The video of masses [kg], shape (*batch), and the motion."""
    every = round(MOTION.seconds / DT / (case["images"] - 1))
    contact = torch.tensor(CONTACT, dtype=F64).expand(*mass.shape, 3)
    steps = (case["images"] - 1) * every
    path = thrown.simulate(mass, contact, torch.full_like(mass, FRICTION), dt=DT, steps=steps)
    even = thrown.looks["thrown"].colour
    colour = even if look == "texture" else even.mean(0)
    material = kn.Material(colour, specular=0.0 if look == "colour" else 0.3, lit=look != "colour")
    sigma = (2.0 / case["size"]) ** 2  # outlines of one pixel
    options = kn.RenderOptions(dtype=F64, sigma=sigma, ground=False, materials={"thrown": material})
    return kn.render(path, camera(case["size"]), every=every, options=options), path


def _descend(case: Case) -> dict[str, Any]:
    thrown, true, far = _scene(case["seed"])
    with torch.no_grad():
        target = in_8_bits(_images(thrown, case["do"], true, case)[0])
    log = torch.tensor(far, dtype=F64, requires_grad=True)
    adam = torch.optim.Adam([log], lr=RATE, betas=BETAS)
    schedule = torch.optim.lr_scheduler.ExponentialLR(adam, DECAY)
    errors = [abs(float(log.detach().exp()) - 1.0)]
    for _ in range(case["iterations"]):
        adam.zero_grad()
        kn.pixel_loss(_images(thrown, case["do"], true * log.exp(), case)[0], target).backward()
        adam.step()
        schedule.step()
        errors.append(abs(float(log.detach().exp()) - 1.0))
    late = [i for i, error in enumerate(errors) if error > CLOSE]
    return {"kind": thrown.kind, "mass": float(true), "errors": errors, "first": late[-1] + 1 if late else 0}


def _check(case: Case) -> dict[str, Any]:
    """The gradient of the loss with texture by the logarithm of the mass, 10 % from the truth."""
    thrown, true, _ = _scene(case["seed"])
    with torch.no_grad():
        target = in_8_bits(_images(thrown, "texture", true, case)[0])

    def loss(log: Tensor) -> tuple[Tensor, kn.Trajectory]:
        images, path = _images(thrown, "texture", true * log.exp(), case)
        return kn.marginal_loss(images, target), path

    return gradients.check(loss, torch.tensor(SHIFT, dtype=F64), WINDOW, batched=True, samples=9)


def _draw(file: Path, runs: Results) -> None:
    """Errors over iterations."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.6), layout="constrained", facecolor="white")
    axis = figure.add_subplot()
    for look, colour in zip(LOOKS, ("#33679f", "#d96a3f", "#4a9b6e"), strict=True):
        some = [found["errors"] for case, found in runs if case["do"] == look]
        for i, errors in enumerate(some):
            axis.semilogy(errors, color=colour, lw=1, label=None if i else look)
    axis.axhline(CLOSE, color="0.4", ls="--", lw=1)
    axis.set(xlabel="iteration", ylabel="relative error of the mass")
    axis.legend(frameon=False)
    figure.savefig(file, dpi=110)


def _film(file: Path, case: Case) -> None:
    """The first object in its three appearances."""
    thrown, true, _ = _scene(case["seed"])
    larger = replace(case, inputs={**case.inputs, "size": FILM})
    with torch.no_grad():
        looks = [_images(thrown, look, true, larger)[0] for look in LOOKS]
    kn.write_video(file, torch.cat(looks, -2), fps=(case["images"] - 1) / MOTION.seconds)
