"""Mass from videos with models that are wrong [Jatavallabhula et al. 2021, Table 4, left].

Rigid and deformable objects are thrown at compliant ground and pushed by known forces. Their masses are found by
gradient with the right model, and with models without friction, without damping in contact, or of the other kind: a
deformable object as a rigid one and vice versa. Photographs by Mitsuba replace the images, with masks, or in colour
with an unknown sun, sky and ground.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients
from kinema.experiments.case import Case, Report, Results, Table, at_most
from kinema.experiments.photographs import photograph
from kinema.experiments.rigid_or_soft import DT, MOTION, Object, Rigid, Soft
from kinema.experiments.thrown import F64, camera, in_8_bits

SEARCHED = (1.0, 24.0)  # [kg]
ASSUMED = 2000.0  # mu and lam of the deformable model of a rigid object [Pa]
EXPLAINED = 2.0  # loss, in noise floors, up to which a model explains a video
OBJECT, GREY = (0.8, 0.3, 0.05), 0.5  # reflectances
LIGHT = ([0.1, 0.1, -1.0, -1.0, 0.1], [1.0, 1.0, 1.0, 1.0, 0.9])  # bounds, see `_colours`
LIGHTS = 8  # starts of the light
SHIFT, WINDOW = 0.1, 0.05  # of the gradient checks, in the logarithm of the mass
CHECKED, SECONDS = 16, 0.6  # of the gradient checks: images of the whole video, and the part that is compared


@dataclass(frozen=True)
class Variant:
    """A kind of object, and the model that is fitted to its video.

    Attributes:
        truth: "rigid" or "soft".
        model: Likewise.
        change: Factors of contact parameters of the model.
        photo: "masks" or "colours" of photographs, in place of images.
        paper: Mean relative error of gradSim.
    """

    truth: str
    model: str
    paper: float
    change: Mapping[str, float] = field(default_factory=dict)
    photo: str = ""


VARIANTS = {
    "perfect model": Variant("rigid", "rigid", 0.1071),
    "perfect model, deformable": Variant("soft", "soft", 0.1071),
    "unmodelled friction": Variant("rigid", "rigid", 0.1866, {"friction": 0.0}),
    "unmodelled elasticity": Variant("rigid", "rigid", 0.2281, {"k_d": 0.0}),
    "rigid as deformable": Variant("rigid", "soft", 0.3462),
    "deformable as rigid": Variant("soft", "rigid", 0.4974),
    "photographs, masks": Variant("rigid", "rigid", 0.1793, photo="masks"),
    "photographs, colours": Variant("rigid", "rigid", 0.1793, photo="colours"),
}
LIMITS = {"perfect model": 1e-3, "perfect model, deformable": 1e-3, "photographs, masks": 0.02}
LIMITS |= {"photographs, colours": 0.05}
KINDS = {"rigid": "perfect model", "soft": "perfect model, deformable"}


@dataclass(frozen=True)
class Arguments:
    """Images, their size [pixels], paths per pixel of photographs, starts, horizons [s], iterations on each."""

    images: int = 16
    size: int = 64
    samples: int = 64
    starts: int = 3
    horizons: tuple[float, ...] = (0.2, 0.3, 0.4, 0.6, 0.9, 1.2, 1.5)
    iterations: int = 20

    @classmethod
    def quick(cls) -> Arguments:
        """Fewer images, horizons and starts."""
        return cls(images=12, starts=1, horizons=(0.3, 0.6, 1.5), iterations=8)


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """All variants for each seed, and a gradient check of rigid and deformable objects."""
    common = asdict(arguments)
    photos = importlib.util.find_spec("mitsuba") is not None
    fits = [
        Case(f"{name}, seed {seed}", {**common, "do": name, "seed": seed})
        for seed in seeds
        for name, variant in VARIANTS.items()
        if photos or not variant.photo
    ]
    checks = {**common, "do": "gradient", "seed": seeds[0], "images": CHECKED}
    return [*fits, *(Case(f"gradient, {kind}", {**checks, "kind": kind}) for kind in KINDS)]


def solve(case: Case) -> dict[str, Any]:
    """The mass found and the true one; or the check of a gradient."""
    return _check(case) if case["do"] == "gradient" else _fit(case)


def report(arguments: Arguments, results: Results) -> Report:
    """Errors of the mass for each variant."""
    fits = [(case, found) for case, found in results if case["do"] != "gradient"]
    checks = {case["kind"]: found for case, found in results if case["do"] == "gradient"}
    rows: list[list[Any]] = []
    metrics: dict[str, float] = {}
    lines = []
    means: dict[str, float] = {}
    for name, variant in VARIANTS.items():
        some = [found for case, found in fits if case["do"] == name]
        if not some:
            continue
        key = name.replace(", ", "_").replace(" ", "_")
        errors = [found["error"] for found in some]
        means[name] = metrics[f"mean_error_{key}"] = sum(errors) / len(errors)
        early = None if variant.photo else sum(found["early"] for found in some) / len(some)
        until = None if variant.photo else sum(found["explained"] for found in some) / len(some)
        rows.append([name, means[name], max(errors), early, until, variant.paper])
        if early is not None:
            metrics[f"mean_error_explained_{key}"] = early
        if name in LIMITS:
            lines.append(at_most(f"{name}: mean relative error of the mass", means[name], LIMITS[name]))
        else:
            assert early is not None
            lines.append(at_most(f"{name}, as far as the model explains the video: mean error", early, variant.paper))
    lines += gradients.claims(list(checks.values()))
    deviations = [
        "blocks, beams and balls of tetrahedra, each as a rigid and as a deformable object; no cloth",
        "known forces act on the objects, without which the mass has no effect that wrong contact would not hide",
        "a second estimate uses the longest horizon on which the model leaves no more than twice the loss of noise",
        "perfectly elastic contact is contact without damping",
        "Levenberg-Marquardt on growing horizons replaces gradient descent; the other parameters are known",
        "a rigid object is modelled as a deformable one with the mean stiffness of the deformable objects",
    ]
    if "photographs, masks" not in means:
        deviations.append("without photographs: Mitsuba is not installed, pip install 'kinema[photo]'")
    objects = [
        [case.name, found["kind"], found["true"], found["found"], found["error"], found["simulations"]]
        for case, found in fits
    ]
    columns = ("model", "mean", "worst", "mean, explained part", "explained part [s]", "mean, gradSim")
    tables = (
        Table("mass from videos: relative errors", columns, rows),
        Table("objects", ("case", "form", "true [kg]", "found [kg]", "relative error", "simulations"), objects),
        gradients.table(checks),
    )
    return Report(
        tables,
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, fits, means),
        film=lambda file: _film(file, fits),
    )


def _true(made: Object, variant: Variant) -> Rigid | Soft:
    return made.rigid({}) if variant.truth == "rigid" else made.soft(made.stiffness)


def _model(made: Object, variant: Variant) -> Rigid | Soft:
    if variant.model == "rigid":
        return made.rigid(variant.change)
    return made.soft(made.stiffness if variant.truth == "soft" else ASSUMED)


# -- images ------------------------------------------------------------------------------------------------------------


def _every(case: Case) -> int:
    return round(MOTION.seconds / DT / (case["images"] - 1))


def _steps(case: Case, until: float | None = None) -> int:
    images = case["images"] if until is None else 1 + round(until / MOTION.seconds * (case["images"] - 1))
    return (images - 1) * _every(case)


def _seen(path: kn.Trajectory, looks: Mapping[str, kn.Material], case: Case) -> Tensor:
    """Images without light."""
    options = kn.RenderOptions(dtype=F64, sigma=(2.0 / case["size"]) ** 2, ground=False, materials=looks)
    return kn.render(path, camera(case["size"]), every=_every(case), options=options)


def _paint(colour: Sequence[float]) -> dict[str, kn.Material]:
    return {"thrown": kn.Material(torch.tensor(colour, dtype=F64))}


def _from_above(size: int) -> kn.Camera:
    """A camera whose images show nothing but the object and the ground."""
    return kn.Camera.look_at((0.4, -5.8, 4.2), (0.4, 0.0, 0.3), fov=0.75, size=(size, size))


def _surfaces(path: kn.Trajectory, case: Case) -> tuple[kn.Surface, kn.Surface]:
    """The object, and a ground that fills the images."""
    made = kn.surfaces_of(path, every=_every(case), dtype=F64, materials=_paint(OBJECT), ground=1.0)
    (ground,) = (one for one in made if one.name == "ground")
    (thing,) = (one for one in made if one.name != "ground")
    # Corners without normals of their own, as in photographs, where each face is flat.
    return replace(thing, smooth=False), ground


def _masks(path: kn.Trajectory, case: Case) -> Tensor:
    """What is seen of the object: the ground hides what has sunk into it."""
    thing, ground = _surfaces(path, case)
    white = replace(thing, material=kn.Material(torch.ones(3, dtype=F64), lit=False))
    black = replace(ground, material=kn.Material(torch.zeros(3, dtype=F64), lit=False), uv=None)
    options = kn.RenderOptions(dtype=F64, sigma=(0.5 / case["size"]) ** 2, supersample=2, background=(0.0, 0.0, 0.0))
    return kn.render([white, black], _from_above(case["size"]), options=options)[..., 0]


def _colours(path: kn.Trajectory, light: Tensor, case: Case) -> Tensor:
    """Images with numbers of shape (*batch, 5): sky, sun, its direction (x, y), and the grey of the ground."""
    thing, ground = _surfaces(path, case)
    sky, sun, x, y, grey = light.unsqueeze(-2).unbind(-1)
    grey_ground = replace(ground, material=kn.Material(grey.unsqueeze(-1).expand(*grey.shape, 3)), uv=None)
    lights = kn.Lights(
        ambient=sky.unsqueeze(-1).expand(*sky.shape, 3),
        directions=torch.stack([x, y, -torch.ones_like(x)], -1).unsqueeze(-2),
        direction_colours=sun[..., None, None].expand(*sun.shape, 1, 3),
    )
    options = kn.RenderOptions(dtype=F64, sigma=(0.5 / case["size"]) ** 2, supersample=2, lights=lights, shadows=True)
    return kn.render([thing, grey_ground], _from_above(case["size"]), options=options)


# -- cases -------------------------------------------------------------------------------------------------------------


def _fit(case: Case) -> dict[str, Any]:
    variant, made = VARIANTS[case["do"]], Object(case["seed"])
    with torch.no_grad():
        truth = _true(made, variant).simulate(made.mass, _steps(case))
    solved = _from_photographs if variant.photo else _from_images
    mass = float(made.mass)
    return {"kind": made.kind, "true": mass, **solved(case, variant, made, truth)}


def _from_images(case: Case, variant: Variant, made: Object, truth: kn.Trajectory) -> dict[str, Any]:
    """The mass found on each horizon, and on the longest that the model explains."""
    model, true = _model(made, variant), float(made.mass)
    target = in_8_bits(_seen(truth, _true(made, variant).looks, case))

    def predict(values: Mapping[str, Tensor], until: float | None = None) -> Tensor:
        return _seen(model.simulate(values["mass"], _steps(case, until)), model.looks, case)

    masses: list[float] = []
    losses: list[float] = []
    simulations = 0
    for horizon in case["horizons"]:
        found = kn.fit(
            predict,
            target,
            {"mass": kn.fit.Log(*SEARCHED, masses[-1] if masses else None)},
            horizon=horizon,
            starts=case["starts"],
            iterations=case["iterations"],
            seed=case["seed"],
            options=kn.fit.Options(noise="8bit", confidence=False, progress=False),
        )
        assert found.floor is not None
        masses.append(float(found.values["mass"]))
        losses.append(found.loss / found.floor)
        simulations += found.evaluations
    explained = next((i for i, loss in enumerate(losses) if loss > EXPLAINED), len(losses))
    errors = [abs(mass / true - 1.0) for mass in masses]
    return {
        "found": masses[-1],
        "error": errors[-1],
        "early": errors[max(explained - 1, 0)],
        "explained": case["horizons"][explained - 1] if explained else 0.0,
        "errors": errors,
        "losses": losses,
        "simulations": simulations,
    }


def _from_photographs(case: Case, variant: Variant, made: Object, truth: kn.Trajectory) -> dict[str, Any]:
    """The mass found, and with colours also the light and the grey of the ground."""
    model, colours = made.rigid({}), variant.photo == "colours"
    target = _photographs(truth, case, variant.photo)
    unknown: dict[str, Any] = {"mass": kn.fit.Log(*SEARCHED)}
    if colours:
        unknown["light"] = kn.fit.Bounded(*LIGHT, _light(case, model, target[:1]))

    def predict(values: Mapping[str, Tensor], until: float | None = None) -> Tensor:
        path = model.simulate(values["mass"], _steps(case, until))
        return _colours(path, values["light"], case) if colours else _masks(path, case)

    found = kn.fit(
        predict,
        target,
        unknown,
        horizon=case["horizons"],
        starts=1 if colours else case["starts"],
        iterations=case["iterations"],
        seed=case["seed"],
        options=kn.fit.Options(progress=False),
    )
    mass = float(found.values["mass"])
    return {
        "found": mass,
        "error": abs(mass / float(made.mass) - 1.0),
        "light": found.values["light"].tolist() if colours else [],
        "simulations": found.evaluations,
    }


def _light(case: Case, model: Rigid, image: Tensor) -> list[float]:
    """The light of the first image, in which the mass has no effect, shape (1, height, width, 3)."""
    path = model.simulate(torch.ones((), dtype=F64), 1)

    def predict(values: Mapping[str, Tensor]) -> Tensor:
        return _colours(path, values["light"], case)

    found = kn.fit(
        predict,
        image,
        {"light": kn.fit.Bounded(*LIGHT)},
        # Blurred images first: shadows in the wrong place do not overlap the right ones.
        loss=("pyramid", "squares"),
        starts=LIGHTS,
        iterations=case["iterations"],
        seed=case["seed"],
        options=kn.fit.Options(confidence=False, progress=False),
    )
    return found.values["light"].tolist()


def _photographs(path: kn.Trajectory, case: Case, photo: str) -> Tensor:
    """Photographs of a motion, with 8 bits per channel."""
    thing, ground = _surfaces(path, case)
    images, masks = photograph(thing, ground, GREY, _from_above(case["size"]), case["samples"], case["seed"])
    return in_8_bits(images) if photo == "colours" else (255.0 * masks).round() / 255.0


def _check(case: Case) -> dict[str, Any]:
    """The gradient of the loss until after the impact by the logarithm of the mass, 10 % from the truth."""
    made, variant = Object(case["seed"]), VARIANTS[KINDS[case["kind"]]]
    model, steps = _model(made, variant), _steps(case, SECONDS)
    with torch.no_grad():
        target = in_8_bits(_seen(model.simulate(made.mass, steps), model.looks, case))

    def loss(log: Tensor) -> tuple[Tensor, kn.Trajectory]:
        path = model.simulate(made.mass * log.exp(), steps)
        return kn.marginal_loss(_seen(path, model.looks, case), target), path

    return gradients.check(loss, torch.tensor(SHIFT, dtype=F64), WINDOW, batched=True, samples=9)


# -- pictures ----------------------------------------------------------------------------------------------------------


def _draw(file: Path, fits: Results, means: Mapping[str, float]) -> None:
    """Errors of all objects by variant, with those of the paper."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 3.6), layout="constrained", facecolor="white")
    axis = figure.add_subplot()
    for i, name in enumerate(means):
        errors = [found["error"] for case, found in fits if case["do"] == name]
        axis.semilogx(errors, [i] * len(errors), "o", color="#33679f", ms=4, alpha=0.6)
        axis.semilogx(means[name], i, "|", color="#33679f", ms=16, mew=2)
        axis.semilogx(VARIANTS[name].paper, i, "x", color="#d96a3f")
    axis.set(yticks=range(len(means)), yticklabels=means, xlabel="relative error of the mass; x gradSim, mean")
    axis.invert_yaxis()
    figure.savefig(file, dpi=110)


def _film(file: Path, fits: Results) -> None:
    """A deformable object, and the rigid model that was fitted to it."""
    case, found = next((c, f) for c, f in fits if c["do"] == "deformable as rigid")
    variant, made = VARIANTS[case["do"]], Object(case["seed"])
    steps, every = round(MOTION.seconds / DT), round(0.05 / DT)
    look = kn.RenderOptions(shadows=True, supersample=2, background=(0.75, 0.86, 0.97), materials=_paint(OBJECT))
    paths = (
        _true(made, variant).simulate(made.mass, steps),
        _model(made, variant).simulate(torch.tensor(found["found"], dtype=F64), steps),
    )
    with torch.no_grad():
        sides = [kn.render(path, camera(240), every=every, options=look) for path in paths]
    kn.write_video(file, torch.cat(sides, -2), fps=20)
