"""The scoreboard: what is promised of values, gradients, bits and failures, checked on random bodies and scenes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema import random_images, random_scenes, twins
from kinema.lang.bridge import jvp, rollout
from kinema.lang.program import Program
from kinema.lang.progress import Progress
from kinema.model.tetmesh import TetArrays, tet_mesh
from kinema.scene.shapes.block import block
from kinema.simulation.soft import soft_program

Check = tuple[str, bool | None, str]
Inputs = tuple[Program, dict[str, Tensor], dict[str, Tensor]]
SEED = 20261115
DIFFERENTIATED = (
    "mu",
    "lam",
    "alpha",
    "inv_mass",
    "gravity",
    "k_e",
    "k_d",
    "k_f",
    "friction",
    "sphere_centre",
    "sphere_radius",
)


def run(*, full: bool = False, progress: bool = True) -> list[Check]:
    """Run the scoreboard.

    Args:
        full: Many more random cases (about a quarter of an hour instead of a minute).
        progress: Show how far it is, on standard error.

    Returns:
        (property, passed, what was seen) for each row; the seeds are in the text. Not passed but None if a package
        that it needs is not installed.
    """
    many = 40 if full else 1
    rows: list[tuple[str, Callable[[Iterable[int]], tuple[bool | None, str]], int, int]] = [
        ("rollout gradients in contact, 1/32/256 steps", _gradients, 3 * many, SEED),
        ("forward against reverse mode (dot product)", _dot_products, 5 * many, SEED),
        ("same bits: threads 1/2/4/8, batch, checkpoints", _bits, 2 * many, SEED),
        ("a NaN in one world of 16 stays there", _injection, 2 * many, SEED),
        ("finite steps have finite gradients: random scenes", _finite_gradients, 250 if full else 2, 0),
        ("random trees against Pinocchio and MuJoCo", compare_trees, 5000 if full else 20, 0),
        ("gradients of images: random and degenerate faces", _images, 500 if full else 50, 0),
    ]
    found: list[Check] = []
    for name, check, cases, seed in rows:
        begin = time.monotonic()
        ok, detail = check(_counted(name, cases, progress))
        ran = f"{cases} cases from seed {seed}, {time.monotonic() - begin:.0f} s: "
        found.append((name, ok, detail if ok is None else ran + detail))
    return found


def _counted(name: str, cases: int, show: bool) -> Iterator[int]:
    """Numbers of the cases, with progress."""
    progress = Progress(name, cases, show, "cases")
    try:
        for number in range(cases):
            progress.poll(number)
            if progress.error is not None:
                raise progress.error
            yield number
    finally:
        progress.close()


def _finite_gradients(seeds: Iterable[int]) -> tuple[bool, str]:
    """Scenes of all kinds of shapes, joints and constraints in singular states; a case has 20 of them.

    One case in five is in single precision.
    """
    seen = random_scenes.Outcome()
    for seed in seeds:
        random_scenes.try_scenes(seed, 20, seen, dtype=torch.float32 if seed % 5 == 4 else torch.float64)
    ok = not seen.wrong and seen.finite == seen.scenes and seen.touching >= random_scenes.TOUCHING * seen.scenes
    told = f"{seen.finite} of {seen.scenes} scenes finite, {seen.touching} in contact, {seen.limited} at limits; "
    return ok, told + (f"gradients not finite: {'; '.join(seen.wrong[:3])}" if seen.wrong else "all gradients finite")


def compare_trees(seeds: Iterable[int]) -> tuple[bool | None, str]:
    """Poses, Jacobians, dynamics and its derivatives of random trees against Pinocchio and MuJoCo."""
    if twins.MISSING:
        return None, f"not installed; pip install {' '.join(twins.MISSING)}"
    worst: dict[str, tuple[float, int]] = {}
    for seed in seeds:
        for name, seen in twins.compare(seed).items():
            worst[name] = max(worst.get(name, (0.0, 0)), (seen, seed))
    limits = {name: limit for name, (_, limit) in twins.COMPARISONS.items()}
    wrong = [f"{name} of tree {worst[name][1]}" for name in worst if not worst[name][0] <= limits[name]]
    told = []
    for kind, limit in (("values", twins.VALUES), ("derivatives", twins.DERIVATIVES)):
        largest, seed = max(seen for name, seen in worst.items() if limits[name] == limit)
        told.append(f"{kind} {largest:.1e} (tree {seed}, limit {limit:.0e})")
    return not wrong, "; ".join([f"worst relative difference of {', '.join(told)}", *(f"wrong: {w}" for w in wrong)])


def random_scene(seed: int, worlds: int = 0) -> Inputs:
    """A random soft block pressed against a sphere, a plane and a box; float64; contact is active.

    Args:
        seed: Seed of all random numbers.
        worlds: Leading batch dimension of the state; 0 for none.
    """
    rng = np.random.default_rng(seed)
    nx, ny, nz = (int(n) for n in rng.integers(1, 4, 3))
    cubes = block((nx, ny, nz), 0.1)
    mesh = tet_mesh(cubes.vertices, cubes.corners)
    state, parameters = _inputs(mesh, rng)
    if worlds:
        noise = torch.from_numpy(rng.normal(0, 1e-3, (worlds, *state["x"].shape)))
        state = {"x": state["x"] + noise, "v": state["v"].expand(worlds, -1, -1).clone()}
    return soft_program(mesh), state, parameters


def _inputs(mesh: TetArrays, rng: np.random.Generator) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    tets, x = len(mesh.tets), mesh.vertices
    low, middle = x[:, 2].min(), x.mean(axis=0)
    mu, lam = rng.uniform(1e3, 5e3, tets), rng.uniform(1e3, 5e3, tets)
    values = {
        "mu": mu,
        "lam": lam,
        "alpha": 1 + 0.75 * mu / lam,
        "inv_mass": 1 / mesh.masses(1000.0),
        "gravity": [0.0, 0.0, -9.81],
        "dt": 5e-4,
        "radius": 0.01,
        "plane_normal": [0.0, 0.0, 1.0],
        "plane_offset": low + 0.005,
        "sphere_centre": [middle[0], middle[1], low - 0.30],
        "sphere_radius": 0.305,
        "box_centre": [x[:, 0].max() + 0.10, middle[1], middle[2]],
        "box_half": [0.1, 0.3, 0.3],
        "box_rotation": np.eye(3),
        "k_e": rng.uniform(2e3, 2e4),
        "k_d": rng.uniform(0.5, 2.0),
        "k_f": rng.uniform(1.0, 10.0),
        "friction": rng.uniform(0.2, 0.8),
    }
    state = {
        "x": torch.from_numpy(x + rng.normal(0, 1e-3, x.shape)),
        "v": torch.from_numpy(rng.normal(0, 0.3, x.shape)),
    }
    return state, {n: torch.as_tensor(v, dtype=torch.float64) for n, v in values.items()}


class _Case:
    """A random scene with a scalar loss of its final state, as a function of its differentiable inputs."""

    def __init__(self, seed: int, worlds: int = 0) -> None:
        self.program, self.state, self.parameters = random_scene(seed, worlds)
        self.random = torch.Generator().manual_seed(seed)
        self.inputs = {**self.state, **{n: self.parameters[n] for n in DIFFERENTIATED}}
        self.weights = self.normal(self.state["x"].shape[-2:])

    def normal(self, shape: Sequence[int]) -> Tensor:
        """Normal random numbers."""
        return torch.randn(shape, generator=self.random, dtype=torch.float64)

    def weigh(self, final: Mapping[str, Tensor]) -> Tensor:
        """The loss of a final state."""
        return (final["x"] * self.weights).sum() + (final["v"] * self.weights).sum() * 0.1

    def loss(self, inputs: Mapping[str, Tensor], steps: int, threads: int | None = None, checkpoint: int = 1) -> Tensor:
        """The loss of a rollout."""
        state = {n: inputs[n] for n in ("x", "v")}
        parameters = {n: inputs.get(n, t) for n, t in self.parameters.items()}
        options: dict[str, Any] = {"threads": threads, "checkpoint": checkpoint, "progress": False}
        return self.weigh(rollout(self.program, steps, state, parameters, **options).final)

    def gradients(self, steps: int, inputs: Mapping[str, Tensor] | None = None, **options: int) -> dict[str, Tensor]:
        """The gradient of the loss to every input."""
        leaves = {n: t.clone().requires_grad_() for n, t in (inputs or self.inputs).items()}
        grads = torch.autograd.grad(self.loss(leaves, steps, **options), list(leaves.values()))
        return dict(zip(leaves, grads, strict=True))


def _gradients(numbers: Iterable[int]) -> tuple[bool, str]:
    """Directional derivatives along random directions of all inputs against central differences."""
    worst = {1: 0.0, 32: 0.0, 256: 0.0}
    limits = {1: 1e-6, 32: 1e-5, 256: 1e-4}
    for number in numbers:
        case = _Case(SEED + number)
        direction = {n: case.normal(t.shape) * t.abs().mean().clamp(min=1e-3) for n, t in case.inputs.items()}
        for steps in worst:
            exact = sum(float((g * direction[n]).sum()) for n, g in case.gradients(steps).items())
            # Kinks of contact within +-h spoil a difference, not a gradient: the better of two step sizes counts.
            seen = [_difference(case, direction, steps, h) for h in (1e-6, 1e-7)]
            worst[steps] = max(worst[steps], min(abs(exact - s) / max(abs(s), 1e-12) for s in seen))
    ok = all(worst[s] <= limits[s] for s in worst)
    shown = ", ".join(f"{s} steps {e:.1e} (limit {limits[s]:.0e})" for s, e in worst.items())
    return ok, f"worst relative error {shown}"


def _difference(case: _Case, direction: Mapping[str, Tensor], steps: int, h: float) -> float:
    """Central difference of the loss along a direction."""
    with torch.no_grad():
        up, down = (
            case.loss({n: t + s * h * direction[n] for n, t in case.inputs.items()}, steps) for s in (1.0, -1.0)
        )
    return float(up - down) / (2 * h)


def _dot_products(numbers: Iterable[int]) -> tuple[bool, str]:
    """w . (J t) = (J^T w) . t."""
    worst = 0.0
    for number in numbers:
        case = _Case(SEED + 1000 + number)
        tangents = {n: case.normal(t.shape) for n, t in case.inputs.items()}
        _, moved = jvp(case.program, 16, case.state, tangents, case.parameters)
        products = [float((g * tangents[n]).sum()) for n, g in case.gradients(16).items()]
        worst = max(worst, abs(float(case.weigh(moved)) - sum(products)) / max(map(abs, products)))
    return worst <= 1e-10, f"worst relative difference {worst:.1e} (limit 1e-10)"


def _bits(numbers: Iterable[int]) -> tuple[bool, str]:
    """The gradient of each world to its initial state, whatever threads, checkpoints and batch."""
    different: set[str] = set()
    for number in numbers:
        case = _Case(SEED + 2000 + number, worlds=9)
        base = _state_gradient(case, case.state)
        for name, options in (
            ("2 threads", {"threads": 2}),
            ("4 threads", {"threads": 4}),
            ("8 threads", {"threads": 8}),
            ("checkpoint=2", {"checkpoint": 2}),
            ("checkpoint=5", {"checkpoint": 5}),
        ):
            if not torch.equal(_state_gradient(case, case.state, **options), base):
                different.add(name)
        for w in (0, 4, 8):
            alone = _state_gradient(case, {n: t[w : w + 1] for n, t in case.state.items()})
            if not torch.equal(alone, base[w : w + 1]):
                different.add("a batch of one")
    return not different, "bitwise equal" if not different else "differs with " + ", ".join(sorted(different))


def _state_gradient(case: _Case, state: Mapping[str, Tensor], **options: int) -> Tensor:
    """Gradients to the initial state, one row per world."""
    return torch.cat([g.flatten(1) for g in case.gradients(24, state, **options).values()], dim=1)


def _injection(numbers: Iterable[int]) -> tuple[bool, str]:
    """An overflowing world is reported by index; the others keep their bits; shared gradients leave it out."""
    right = cases = 0
    for case in numbers:
        program, state, parameters = random_scene(SEED + 3000 + case, worlds=16)
        bad = case % 16
        healthy = [w for w in range(16) if w != bad]
        broken = {n: t.clone() for n, t in state.items()}
        broken["v"][bad, 0, 0] = 1e300
        grads, finals = [], []
        for s in ({n: t[healthy] for n, t in state.items()}, broken):
            mu = parameters["mu"].clone().requires_grad_()
            result = rollout(program, 12, s, {**parameters, "mu": mu}, on_failure="status", progress=False)
            loss = result.final["x"][[w for w in range(len(s["x"])) if len(s["x"]) == 15 or w != bad]].sum()
            grads.append(torch.autograd.grad(loss, mu)[0])
            finals.append(result)
        flagged = (finals[1].status >= 0).nonzero().flatten().tolist() == [bad]
        same = torch.equal(finals[1].final["x"][healthy], finals[0].final["x"]) and torch.equal(*grads)
        right += flagged and same
        cases += 1
    return right == cases, f"{right} of {cases} right"


def _images(seeds: Iterable[int]) -> tuple[bool, str]:
    """A scene against central differences, and 40 images of degenerate faces, every other time in single precision."""
    seen = random_images.Outcome()
    for seed in seeds:
        for mode in random_images.MODES:
            random_images.compare(seed, mode, seen)
            random_images.try_degenerate(seed, 20, mode, seen, (torch.float64, torch.float32)[seed % 2])
    left_out = (seen.flips + seen.rough) / seen.pixels
    ok = seen.worst[0] <= random_images.LIMIT and left_out <= random_images.LEFT_OUT and not seen.wrong
    error, where = seen.worst
    told = f"worst relative error {error:.1e} ({where}, limit {random_images.LIMIT:.0e}), of {seen.pixels} pixels"
    told += f" {seen.flips} flipped and {seen.rough} were not smooth; {len(seen.wrong)} of {seen.degenerate} degenerate"
    return ok, told + " images not finite" + "".join(f"; {w}" for w in seen.wrong[:3])
