"""Materials, masses and velocities of deformable things, from videos [Jatavallabhula et al. 2021, Table 3].

Beams: both stiffnesses of a beam of 400 tetrahedra that hangs between its ends. Cloths: the initial velocity of a cloth
of 400 triangles that hangs from two corners. Fields: the mass of each of 147 vertices of a ball that bounces, and the
velocity of each of 231 vertices of a cloth, 693 numbers; two cameras, and the prior that fields are smooth.

Images determine fields only in part: the singular values of the Jacobian of all pixels by all numbers say which
combinations show more than rounding to 8 bits hides, what share of a deviation they hold, and which error would be left
if numbers were independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments import gradients
from kinema.experiments.case import Case, Report, Results, Table, at_most
from kinema.fitting.jacobians import jacobian

F32, F64 = torch.float32, torch.float64
DT, EVERY = 1 / 60, 3  # [s], steps between images
STIFF, GUESS = (600.0, 2000.0), 1000.0  # range of mu and lambda, and first guess [Pa]
FAST, SPREAD = 1.5, 0.2  # speed of cloths, standard deviation of the velocity over a cloth [m/s]
WEIGHT, UNEVEN = 0.02, 0.15  # mean mass of a vertex [kg], relative standard deviation
SMOOTH = 0.5  # length over which fields are correlated [m]
MODES = {"masses": 24, "velocities": 60}  # combinations that are fitted: the most probable ones of the prior
SIZES, CHECK = {"beam": 256, "cloth": 160, "masses": 64, "velocities": 64}, 64  # of images [pixels]; of the check
STAGES = {  # parts of the video, and how many of them are compared by marginals
    "beam": ((0.5, 1.0), 1),
    "cloth": ((0.2, 0.4, 0.4, 0.7, 1.0), 2),
    "masses": ((0.4, 0.7, 0.7, 1.0), 2),
    "velocities": ((0.4, 0.4, 0.7, 1.0), 1),
}
NOISE = 1.0 / (255.0 * math.sqrt(12.0))  # standard deviation of rounding to 8 bits
PAPER = {"beam": 5.6e-3, "cloth": 0.026, "masses": 0.048, "velocities": 0.026}
LIMITS = {"beam": 1e-4, "cloth": 5e-4, "masses": 0.048, "velocities": 0.026}
CHUNK = 1 << 14  # pixels of a product
CHECKED, TINY = 0.3, 1e-7  # of the gradient checks: time [s], tiny step relative to the numbers


class Kind(NamedTuple):
    """A kind of scene: where cameras are and look, duration [s], substeps of DT, numbers of the check's window."""

    eyes: tuple[tuple[float, float, float], ...]
    at: tuple[float, float, float]
    seconds: float
    substeps: int
    window: float


KINDS = {
    "beam": Kind(((0.0, -3.2, 0.6),), (0.0, 0.0, -0.25), 1.0, 32, 100.0),
    "cloth": Kind(((-1.0, -3.6, 1.2),), (-0.4, 0.0, -0.5), 1.0, 16, 0.2),
    "masses": Kind(((0.6, -2.4, 0.9), (3.0, 0.0, 0.9)), (0.6, 0.0, 0.45), 1.0, 32, 0.1),
    "velocities": Kind(((-1.0, -3.6, 1.2), (2.8, 0.6, 1.2)), (-0.4, 0.0, -0.5), 0.3, 16, 0.5),
}


@dataclass(frozen=True)
class Arguments:
    """Numbers of cloths and of fields, iterations, and fields whose null space is looked at."""

    cloths: int = 10
    fields: int = 2
    iterations: int = 12
    spaces: tuple[str, ...] = ("masses", "velocities")

    @classmethod
    def quick(cls) -> Arguments:
        """A beam and a cloth."""
        return cls(cloths=1, fields=0, spaces=())


def cases(arguments: Arguments, seeds: Sequence[int]) -> list[Case]:
    """A beam for each seed, cloths and fields for the first ones; the null spaces of fields; two gradient checks."""
    common = {"iterations": arguments.iterations}
    counts = {"beam": len(seeds), "cloth": arguments.cloths, "masses": arguments.fields, "velocities": arguments.fields}
    found = [
        Case(f"{kind}, seed {seed}", {**common, "do": "fit", "kind": kind, "seed": seed})
        for kind, count in counts.items()
        for seed in seeds[:count]
    ]
    found += [
        Case(f"{kind}, null space", {**common, "do": "space", "kind": kind, "seed": seeds[0]})
        for kind in arguments.spaces
    ]
    return found + [
        Case(f"{kind}, gradient", {**common, "do": "gradient", "kind": kind, "seed": seeds[0]})
        for kind in ("beam", "cloth")
    ]


def solve(case: Case) -> dict[str, Any]:
    """Relative errors of the numbers found; what images determine; or the check of the gradient."""
    return {"fit": _fit, "space": _space, "gradient": _check}[case["do"]](case)


def report(arguments: Arguments, results: Results) -> Report:
    """Mean errors of all kinds."""
    checks = {case["kind"]: found for case, found in results if case["do"] == "gradient"}
    spaces = {case["kind"]: found for case, found in results if case["do"] == "space"}
    rows: list[Sequence[Any]] = []
    metrics: dict[str, float] = {}
    lines = []
    names = {"beam": ("mu", "lambda"), "cloth": ("velocity",), "masses": ("mass",), "velocities": ("velocity",)}
    for kind, what in names.items():
        runs = [found for case, found in results if case["do"] == "fit" and case["kind"] == kind]
        for i, name in enumerate(what if runs else ()):
            errors = [found["errors"][i] for found in runs]
            mean = sum(errors) / len(errors)
            first = sum(found["first"][i] for found in runs) / len(runs)
            rows.append([f"{kind}: {name}", len(runs), runs[0]["numbers"], first, mean, max(errors), PAPER[kind]])
            metrics |= {f"{kind}_{name}_mean": mean, f"{kind}_{name}_worst": max(errors)}
            lines.append(at_most(f"{kind}, {name}: mean relative error", mean, LIMITS[kind]))
    lines += gradients.claims(list(checks.values()))
    worst = max(found["images"] for found in checks.values() if "images" in found)
    lines.append(
        at_most("gradient of the loss of images of a beam against central differences, relative error", worst, 1e-4)
    )
    of_spaces = [
        [kind, found["numbers"], found["data"], found["determined"], found["smooth"], found["rough"], found["left"]]
        for kind, found in spaces.items()
    ]
    for kind, found in spaces.items():
        metrics |= {f"{kind}_determined": found["determined"], f"{kind}_error_without_prior": found["left"]}
        metrics |= {f"{kind}_share_of_smooth": found["smooth"], f"{kind}_share_of_rough": found["rough"]}
    columns = ("numbers", "things", "unknowns of each", "error of the guess", "mean error", "worst", "gradSim")
    space = ("field", "numbers", "pixels", "determined", "share of a smooth deviation", "of independent ones")
    tables = [Table("relative errors, from videos of 8 bits", columns, rows), gradients.table(checks)]
    if spaces:
        tables.insert(1, Table("what images determine", (*space, "error left of independent ones"), of_spaces))
    deviations = (
        "gradSim draws no priors for its fields and does not say how it draws them; here deviations are smooth "
        f"(correlated over {SMOOTH} m), known to be so, and seen by two cameras; of independent numbers, images leave "
        "the error in the table of what they determine, whatever the method",
        "beams and cloths are seen for 1 s (gradSim: 2 and 1.5 s), in 21 images; velocities of vertices for 0.3 s",
        "Levenberg-Marquardt replaces gradient descent; fields have the combinations that are most probable as "
        f"unknowns: {MODES['masses']} for masses, {MODES['velocities']} for velocities",
        "all fits are in single precision",
        "the loss of images of a cloth scatters by 1e-8 (0.5 %) under changes of its velocity by 1e-9 m/s, where its "
        "folds cross: differences over tiny steps mean nothing there, and its gradient is checked on places alone",
        "secants are those of the places of vertices, because images jump by 1e-4 where an outline comes near a pixel",
    )
    return Report(
        tables,
        lines,
        metrics,
        deviations=deviations,
        picture=lambda file: _draw(file, spaces, results),
        film=lambda file: _film(file, next(case for case, _ in results if case["kind"] == "cloth")),
    )


@cache
def _model(kind: str, dtype: torch.dtype) -> kn.Model:
    scene = kn.Scene()
    if kind == "beam":
        mesh = kn.shapes.beam(2.0, 0.2, 0.2, bricks=(20, 2, 2))
        rubber = kn.Solid(density=10.0, mu=GUESS, lam=GUESS, viscosity=2.0)
        scene.add_solid(mesh, "beam", material=rubber, skin=None, pos=(-1.0, 0.0, 0.0))
        ends = abs(mesh.vertices[:, 0] - 1.0) > 1.0 - 1e-9
        scene.attach("beam", ends)
    elif kind == "masses":
        scene.add_ground()
        rubber = kn.Solid(density=1e-3, mu=1e3, lam=1e3, viscosity=1.0)
        skin = kn.Skin(k_e=1e3, k_d=1.0, k_f=5.0, friction=0.5)
        scene.add_solid(kn.shapes.ball(0.5, 3), "ball", material=rubber, skin=skin, pos=(0.0, 0.0, 0.7))
    else:
        sheet = kn.shapes.sheet(2.0, 1.0, squares=(20, 10))
        linen = kn.Cloth(1.0, mu=200.0, lam=200.0, viscosity=0.3, bending=0.01, bending_damping=5e-4, drag=0.5)
        scene.add_cloth(sheet, "cloth", material=linen, skin=None)
        scene.attach("cloth", [0, 10])
    return kn.compile(scene, dtype)


class Thing:
    """A scene whose numbers are drawn from a seed.

    Attributes:
        true: The true numbers: two stiffnesses, a velocity, masses, or velocities.
    """

    def __init__(self, case: Case, dtype: torch.dtype = F32) -> None:
        """Draw the numbers."""
        self.kind, self.setting, self.dtype = case["kind"], KINDS[case["kind"]], dtype
        self.model = _model(self.kind, dtype)
        self.steps = round(self.setting.seconds / DT)
        drawn = torch.Generator().manual_seed(case["seed"])
        self.x = self.model.initial_state().x
        if self.kind == "beam":
            low, high = STIFF
            self.true = low * (high / low) ** torch.rand(2, generator=drawn, dtype=F64)
        else:
            way = torch.randn(3, generator=drawn, dtype=F64)
            self.mean = FAST * way / way.norm()
            self.true = self.mean
        if self.kind in MODES:
            self.true = self.field(torch.randn(self.modes.shape[1] * self.width, generator=drawn, dtype=F64))
        size = CHECK if case["do"] == "gradient" else SIZES[self.kind]
        pixel = 2.0 / size
        self.options = kn.RenderOptions(ground=False, dtype=dtype, sigma=pixel**2)
        at, square = self.setting.at, (size, size)
        self.cameras = [kn.Camera.look_at(eye, at, fov=math.pi / 4, size=square) for eye in self.setting.eyes]

    @property
    def width(self) -> int:
        """Numbers of a vertex."""
        return 3 if self.kind == "velocities" else 1

    @cached_property
    def modes(self) -> Tensor:
        """Combinations of vertices, from the most probable one on, scaled by their standard deviation."""
        rest = self.x.double()
        apart = torch.cdist(rest, rest)
        values, vectors = torch.linalg.eigh(torch.exp(-0.5 * (apart / SMOOTH).square()))
        return (vectors * values.clamp_min(0.0).sqrt()).flip(1)

    def field(self, z: Tensor) -> Tensor:
        """Numbers of all vertices from weights of modes, shape (*batch, modes * width)."""
        weights = z.unflatten(-1, (-1, self.width))
        moved = self.modes[:, : weights.shape[-2]] @ weights
        if self.kind == "masses":
            return WEIGHT * torch.exp(UNEVEN * moved.squeeze(-1))
        return self.mean + SPREAD * moved

    def run(self, numbers: Tensor, until: float | None = None) -> kn.Trajectory:
        """Simulate with numbers of shape (*batch, ...)."""
        steps = self.steps if until is None else round(until / DT)
        given = numbers.to(self.dtype)
        params, state = {}, None
        if self.kind == "beam":
            params = {"beam/mu": given[..., 0:1], "beam/lam": given[..., 1:2]}
        elif self.kind == "masses":
            speed = torch.tensor([1.0, 0.0, -1.0], dtype=self.dtype).expand_as(self.x)
            params, state = {"ball/point_mass": given}, kn.State(x=self.x, xd=speed)
        else:
            moving = given.unsqueeze(-2) if self.kind == "cloth" else given
            state = kn.State(x=self.x, xd=moving.expand(*moving.shape[:-2], *self.x.shape))
        return kn.simulate(self.model, state, steps=steps, dt=DT, substeps=self.setting.substeps, params=params)

    def seen(self, path: kn.Trajectory) -> Tensor:
        """Images, shape (*batch, frames, cameras, height, width, 3)."""
        made = [kn.render(path, one, every=EVERY, options=self.options) for one in self.cameras]
        return torch.stack(made, -4)

    @cached_property
    def target(self) -> Tensor:
        """The video of the true numbers, with 8 bits."""
        with torch.no_grad():
            return kn.to_linear((255.0 * kn.to_srgb(self.seen(self.run(self.true)))).round() / 255.0)

    def errors(self, found: Tensor) -> list[float]:
        """Relative errors: of each stiffness, of the velocity, the mean of masses, the mean of velocities."""
        if self.kind == "cloth":
            return [float((found - self.true).norm() / self.true.norm())]
        if self.kind == "velocities":
            return [float((found - self.true).norm(dim=-1).mean() / self.true.norm(dim=-1).mean())]
        each = (found / self.true - 1.0).abs()
        return each.tolist() if self.kind == "beam" else [float(each.mean())]


def _fit(case: Case) -> dict[str, Any]:
    thing, seconds = Thing(case), KINDS[case["kind"]].seconds
    parts, far = STAGES[thing.kind]
    if thing.kind in MODES:
        guess = torch.zeros(MODES[thing.kind], dtype=F64)
        unknown: Any = kn.fit.Bounded(-4.0, 4.0, guess)
    elif thing.kind == "beam":
        guess = torch.full((2,), GUESS, dtype=F64)
        unknown = kn.fit.Log(300.0, 4000.0, guess)
    else:
        guess = torch.zeros(3, dtype=F64)
        unknown = kn.fit.Bounded(-3.0, 3.0, guess)
    numbers = thing.field if thing.kind in MODES else torch.Tensor.clone
    result = kn.fit(
        lambda values, until=None: thing.seen(thing.run(numbers(values["numbers"]), until)),
        target=thing.target,
        unknown={"numbers": unknown},
        loss=["marginal"] * far + ["squares"] * (len(parts) - far),
        horizon=[part * seconds for part in parts],
        method=kn.fit.LM(iterations=case["iterations"]),
        options=kn.fit.Options(progress=False, confidence=False),
    )
    first, found = numbers(guess), numbers(result.values["numbers"])
    return {
        "numbers": thing.true.numel(),
        "first": thing.errors(first.expand(thing.true.shape)),
        "errors": thing.errors(found),
        "found": found.tolist() if found.numel() < 4 else None,
        "true": thing.true.tolist() if found.numel() < 4 else None,
        "losses": result.history[:, 0].tolist(),
        "simulations": result.evaluations,
    }


def _space(case: Case) -> dict[str, Any]:
    """Singular values of the Jacobian of all pixels by all numbers, in units of their spread; at the true numbers.

    With noise of standard deviation s and independent unknowns of unit spread, the posterior covariance of a linear
    model is (J^T J / s^2 + 1)^-1: combinations with a singular value above s are determined.
    """
    thing = Thing(case)
    spread = UNEVEN * thing.true if thing.kind == "masses" else torch.full_like(thing.true, SPREAD)
    count = thing.true.numel()
    ways = (torch.eye(count, dtype=F64).reshape(count, *thing.true.shape) * spread).unsqueeze(0)

    def predict(values: dict[str, Tensor]) -> Tensor:
        return thing.seen(thing.run(values["numbers"])).flatten(1)

    seen, rows = jacobian(predict, {"numbers": thing.true.unsqueeze(0)}, {"numbers": ways}, at_once=12)
    rows = rows.squeeze(1)
    products = sum(part.double() @ part.double().T for part in rows.split(CHUNK, 1))
    values, vectors = torch.linalg.eigh(products)
    singular = values.clamp_min(0.0).sqrt().flip(0)
    clear = singular > NOISE
    basis = vectors.flip(1)[:, clear]

    def share(deviation: Tensor) -> float:
        return float((basis.T @ deviation).square().sum() / deviation.square().sum())

    mean = WEIGHT if thing.kind == "masses" else thing.mean
    smooth = ((thing.true - mean) / spread).flatten()
    drawn = torch.randn(count, generator=torch.Generator().manual_seed(case["seed"]), dtype=F64)
    left = torch.rsqrt((singular / NOISE).square() + 1.0)  # standard deviations of combinations
    each = (vectors.flip(1) * left).square().sum(1).sqrt()
    if thing.kind == "masses":
        error = float(math.sqrt(2.0 / math.pi) * UNEVEN * each.mean())
    else:
        sizes = each.reshape(-1, 3).square().sum(1).sqrt()
        error = float(SPREAD * sizes.mean() * math.sqrt(8.0 / (3.0 * math.pi)) / thing.true.norm(dim=-1).mean())
    return {
        "numbers": count,
        "data": seen.numel(),
        "singular": singular.tolist(),
        "determined": int(clear.sum()),
        "smooth": share(smooth),
        "rough": share(drawn),
        "left": error,
    }


def _check(case: Case) -> dict[str, Any]:
    """Gradients away from the truth: of the loss of the first images, and of the places of vertices after them."""
    thing = Thing(case, F64)
    at = 1.2 * thing.true
    target = thing.target[: 1 + round(CHECKED / DT / EVERY)].flatten(0, 1)

    ends = thing.run(thing.true, CHECKED).end.x

    def images(numbers: Tensor) -> Tensor:
        return kn.marginal_loss(thing.seen(thing.run(numbers, CHECKED)).flatten(-5, -4), target)

    def places(numbers: Tensor) -> tuple[Tensor, kn.Trajectory]:
        path = thing.run(numbers, CHECKED)
        return (path.end.x - ends).square().sum((-2, -1)), path

    size = float(at.norm())
    found = gradients.check(places, at, thing.setting.window, batched=True, samples=9)
    if thing.kind == "cloth":
        return found  # its images scatter
    return found | {"images": gradients.along_itself(images, at, TINY * size, 0.01 * size)}


def _draw(file: Path, spaces: Mapping[str, Mapping[str, Any]], results: Results) -> None:
    """Losses of beams and cloths over iterations, and singular values of fields."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 3.2), layout="constrained", facecolor="white")
    axes = figure.subplots(1, 3)
    for axis, kind in zip(axes, ("beam", "cloth"), strict=False):
        for case, found in results:
            if case["kind"] == kind and case["do"] == "fit":
                axis.semilogy(found["losses"], lw=0.8)
        axis.set(title=kind, xlabel="iteration", ylabel="loss")
    for kind, found in spaces.items():
        axes[2].semilogy([value / NOISE for value in found["singular"]], label=kind)
    axes[2].axhline(1.0, color="0.5", ls="--", lw=1)
    axes[2].set(title="singular values over noise", xlabel="combination", ylim=(1e-3, None))
    if spaces:
        axes[2].legend(frameon=False)
    figure.savefig(file, dpi=110)


def _film(file: Path, case: Case) -> None:
    """The cloth of the first seed."""
    thing = Thing(case)
    path = thing.run(thing.true)
    kn.write_video(file, kn.render(path, thing.cameras[0].resized(320, 320), every=2), fps=30)
