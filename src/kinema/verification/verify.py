"""The scoreboard: checks values, gradients, bitwise equality and failures on random bodies and scenes."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinema.errors import InputError
from kinema.lang.autograd.options import QUIET, RunOptions
from kinema.lang.autograd.rollout import Rollout, jvp, rollout
from kinema.lang.programs.program import Program
from kinema.lang.runtime.progress import Progress
from kinema.model.model import Model, compile
from kinema.scene.contact import Contact
from kinema.scene.matter import Skin, Solid
from kinema.scene.primitives import Box, Sphere
from kinema.scene.scene import Scene
from kinema.scene.shapes.block import block
from kinema.scene.shapes.quadruped import quadruped
from kinema.simulation.options import StepOptions
from kinema.simulation.simulate import simulate
from kinema.simulation.step import step_program
from kinema.verification import census, impacts, random_images, random_matter, random_scenes, twins

Check = tuple[str, bool | None, str]
Numbers = dict[str, Tensor]
Inputs = tuple[Program, Numbers, Numbers, Numbers]
SEED = 20261115
LONGEST = 256  # steps
STATM = Path("/proc/self/statm")  # pages of this process; the second number is those in memory
OF_SOLIDS = tuple(f"solid0_{name}" for name in ("mu", "lam", "activation"))
OF_PARTICLES = ("inv_mass", *(f"particle_{name}" for name in ("radius", "k_e", "k_d", "k_f", "friction")))
OF_ROBOTS = ("mass", "com", "inertia", "offset", "armature", "stiffness", "damping", "rest", "size", "centre")
DIFFERENTIATED = {"gravity", "friction", "contact/erp", "contact/cfm", *OF_SOLIDS, *OF_PARTICLES, *OF_ROBOTS}

IMPACTS = "impacts"
FILES, SAMPLE = "files", 5
NAMES = ("gradients", "modes", "bits", "overflow", "finite", IMPACTS, "trees", FILES, "images", "memory")


def run(*, full: bool = False, only: str | None = None, progress: bool = True) -> list[Check]:
    """Run the scoreboard.

    Args:
        full: Many more random cases (about a quarter of an hour instead of a minute).
        only: One row, of NAMES.
        progress: Show progress on standard error.

    Returns:
        (property, passed, measurements) for each row; the text includes the seeds. passed is None if a package that the
        row needs is not installed.

    Raises:
        InputError: The row is unknown.
    """
    check_name(only)
    many, scenes = 40 if full else 1, len(impacts.scenes(full))
    robot_files = list(census.files())
    few = min(SAMPLE, len(robot_files))
    rows: list[tuple[str, Callable[[Iterable[int]], tuple[bool | None, str]], int, int]] = [
        ("rollout gradients in contact, 1/32/256 steps", _gradients, 3 * many, SEED),
        ("forward against reverse mode (dot product)", _dot_products, 5 * many, SEED),
        ("bitwise equal: threads 1/2/4/8, batch, checkpoints", _bits, 2 * many, SEED),
        ("an overflow in one world of 16 stays there", _injection, 2 * many, SEED),
        ("finite steps have finite gradients: random scenes", _finite_gradients, 250 if full else 2, 0),
        ("gradients through impacts: secants and closed forms", partial(_impacts, full=full), scenes, 0),
        ("random trees against Pinocchio and MuJoCo", compare_trees, 5000 if full else 20, 0),
        ("robot files against Pinocchio and MuJoCo", compare_files, len(robot_files) if full else few, 0),
        ("gradients of images: random and degenerate faces", _images, 500 if full else 50, 0),
        ("memory after many calls and their gradients", _memory, 12 if full else 2, SEED),
    ]
    found: list[Check] = []
    for short, (name, check, cases, seed) in zip(NAMES, rows, strict=True):
        if only not in (None, short):
            continue
        begin = time.monotonic()
        ok, detail = check(_counted(name, cases, progress))
        ran = f"{cases} cases from seed {seed}, {time.monotonic() - begin:.0f} s: "
        found.append((name, ok, detail if ok is None else ran + detail))
    return found


def check_name(only: str | None) -> None:
    """Raise InputError unless this is the name of a row, or None."""
    if only is not None and only not in NAMES:
        raise InputError("unknown row", got=repr(only), expected=", ".join(NAMES))


def _impacts(numbers: Iterable[int], full: bool) -> tuple[bool, str]:
    """Closed forms of a ball, secants of scenes at two time steps (one if not full), and convergence on robots."""
    return impacts.judge(impacts.check(full, numbers))


def _counted(name: str, cases: int, show: bool) -> Iterator[int]:
    """Numbers of the cases, with a progress display."""
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
    """Scenes of all kinds of shapes, joints, constraints and soft matter in singular states; a case has 20 of them.

    One case in five is in single precision, and one in six has soft matter.
    """
    seen = random_scenes.Outcome()
    for seed in seeds:
        try_one = random_matter.try_matter if seed % 6 == 5 else random_scenes.try_scenes
        try_one(seed, 20, seen, dtype=torch.float32 if seed % 5 == 4 else torch.float64)
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


def compare_files(numbers: Iterable[int]) -> tuple[bool | None, str]:
    """Masses, bias, motion and gradients of robot files of other packages, see `census`."""
    if census.missing():
        return None, f"not installed; pip install {' '.join(census.missing())}"
    files = list(census.files())
    rows = [census.examine(files[number]) for number in numbers]
    wrong = [f"{name} of {row.file}" for row in rows for name in row.wrong()]
    return not wrong, "; ".join([census.summary(rows), *(f"wrong: {one}" for one in wrong)])


def soft_block(seed: int, worlds: int = 0) -> Inputs:
    """A random soft block pressed against a sphere, a plane and a box; float64; with active contacts.

    Args:
        seed: Seed of all random numbers.
        worlds: Leading batch dimension of the state; 0 for none.

    Returns:
        The step, state, parameters and controls.
    """
    rng = np.random.default_rng(seed)
    nx, ny, nz = (int(n) for n in rng.integers(1, 4, 3))
    made = block((nx, ny, nz), 0.1)
    x, tets = made.vertices, len(made.corners)
    low, middle = x[:, 2].min(), x.mean(axis=0)
    mu, lam = rng.uniform(1e3, 5e3, tets), rng.uniform(1e3, 5e3, tets)
    scene = Scene()
    scene.add_ground(low + 0.005)
    scene.add_body(Sphere(0.305), fixed=True, pos=(middle[0], middle[1], low - 0.30))
    scene.add_body(Box((0.1, 0.3, 0.3)), fixed=True, pos=(x[:, 0].max() + 0.10, middle[1], middle[2]))
    skin = Skin(0.01, rng.uniform(2e3, 2e4), rng.uniform(0.5, 2.0), rng.uniform(1.0, 10.0), rng.uniform(0.2, 0.8))
    scene.add_solid(made, "block", material=Solid(1000.0, mu, lam), skin=skin)
    model = compile(scene, torch.float64)
    program = step_program(model)
    state = {
        "x": torch.from_numpy(x + rng.normal(0, 1e-3, x.shape)),
        "xd": torch.from_numpy(rng.normal(0, 0.3, x.shape)),
    }
    if worlds:
        noise = torch.from_numpy(rng.normal(0, 1e-3, (worlds, *x.shape)))
        state = {"x": state["x"] + noise, "xd": state["xd"].expand(worlds, -1, -1).clone()}
    return program, state, _numbers(model, program, 5e-4), {}


def _numbers(model: Model, program: Program, dt: float) -> Numbers:
    """Parameters of a step."""
    given = model.resolve() | {"dt": torch.tensor(dt, dtype=torch.float64)}
    return {n: t for n, t in given.items() if n in program.buffers}


@cache
def _stance() -> tuple[Model, Program, Tensor]:
    """A quadruped on the ground, its step, and its equilibrium coordinates."""
    scene = Scene(contact=Contact(cfm=1e-3))
    scene.add_ground()
    scene.add_robot(quadruped())
    model = compile(scene)
    return model, step_program(model, StepOptions(record=("impulse",))), simulate(model, steps=1000, dt=2e-3).end.q


def standing_robot(seed: int, worlds: int = 0) -> Inputs:
    """A quadruped on its feet, of random mass and friction, slightly displaced and pushed; as `soft_block`."""
    rng = np.random.default_rng(seed)
    model, program, q = _stance()
    batch = (worlds,) if worlds else ()
    state = {"q": q.expand(*batch, -1).clone(), "v": torch.from_numpy(rng.normal(0, 0.01, (*batch, model.nv)))}
    numbers = _numbers(model, program, 1e-3)
    numbers["mass"] = numbers["mass"] * torch.from_numpy(rng.uniform(0.95, 1.05, len(numbers["mass"])))
    numbers["friction"] = numbers["friction"] * rng.uniform(0.8, 1.2)
    return program, state, numbers, {"tau": torch.from_numpy(rng.normal(0, 1, (*batch, LONGEST, model.nv)))}


KINDS: dict[str, Callable[..., Inputs]] = {"soft block": soft_block, "quadruped": standing_robot}
"""Builders of the rollout rows; each case runs every kind."""
OVERFLOWING = {"soft block": ("solid0_lam", "solid0_mu", "xd"), "quadruped": ("mass", "gravity", "v")}
"""For every kind: a parameter that all worlds share, one that they do not, and velocities."""


class _Case:
    """A random scene with a scalar loss of its final state, as a function of its differentiable inputs."""

    def __init__(self, kind: str, seed: int, worlds: int = 0) -> None:
        self.kind = kind
        self.program, self.state, self.parameters, self.controls = KINDS[kind](seed, worlds)
        self.random = torch.Generator().manual_seed(seed)
        parameters = {n: t for n, t in self.parameters.items() if n in DIFFERENTIATED}
        self.inputs = {**self.state, **self.controls, **parameters}
        self.weights = {n: self.normal(t.shape[1:] if worlds else t.shape) for n, t in self.state.items()}

    def normal(self, shape: Sequence[int]) -> Tensor:
        """Normal random numbers."""
        return torch.randn(shape, generator=self.random, dtype=torch.float64)

    def weigh(self, final: Mapping[str, Tensor]) -> Tensor:
        """The loss of a final state."""
        return torch.stack([(final[n] * weights).sum() for n, weights in self.weights.items()]).sum()

    def given(self, inputs: Mapping[str, Tensor], steps: int) -> tuple[Numbers, Numbers, Numbers]:
        """State, parameters and controls, with these inputs in place of the case's own."""
        state, parameters, controls = (
            {n: inputs.get(n, t) for n, t in own.items()} for own in (self.state, self.parameters, self.controls)
        )
        return state, parameters, {n: t[..., :steps, :] for n, t in controls.items()}

    def run(self, inputs: Mapping[str, Tensor], steps: int, record: Sequence[str] = (), **options: Any) -> Rollout:
        """A rollout."""
        chosen = RunOptions(progress=False, **options)
        return rollout(self.program, steps, *self.given(inputs, steps), record=record, options=chosen)

    def gradients(self, steps: int, inputs: Mapping[str, Tensor] | None = None, **options: Any) -> Numbers:
        """The gradient of the loss to every input."""
        leaves = {n: t.clone().requires_grad_() for n, t in (inputs or self.inputs).items()}
        grads = torch.autograd.grad(self.weigh(self.run(leaves, steps, **options).final), list(leaves.values()))
        return dict(zip(leaves, grads, strict=True))


def _cases(numbers: Iterable[int], seed: int, worlds: int = 0) -> Iterator[tuple[int, _Case]]:
    for number in numbers:
        for kind in KINDS:
            yield number, _Case(kind, seed + number, worlds)


def _gradients(numbers: Iterable[int]) -> tuple[bool, str]:
    """Directional derivatives along random directions of all inputs against central differences."""
    limits = {1: 1e-6, 32: 1e-5, LONGEST: 1e-4}
    worst = dict.fromkeys(((kind, steps) for kind in KINDS for steps in limits), 0.0)
    in_the_air = 0
    for _, case in _cases(numbers, SEED):
        if case.kind == "quadruped":
            impulse = case.run({}, LONGEST, record=["record_impulse"]).outputs["record_impulse"]
            in_the_air += int((impulse.unflatten(-1, (-1, 3))[..., 0] <= 0).all(-1).sum())
        direction = {n: case.normal(t.shape) * t.abs().mean().clamp(min=1e-3) for n, t in case.inputs.items()}
        for steps in limits:
            exact = sum(float((g * direction[n]).sum()) for n, g in case.gradients(steps).items())
            # Kinks of contact within +-h spoil a difference, not a gradient: the better of two step sizes counts.
            seen = [_difference(case, direction, steps, h) for h in (1e-6, 1e-7)]
            error = min(abs(exact - s) / max(abs(s), 1e-12) for s in seen)
            worst[case.kind, steps] = max(worst[case.kind, steps], error)
    ok = in_the_air == 0 and all(error <= limits[steps] for (_, steps), error in worst.items())
    shown = [f"{kind} " + ", ".join(f"{steps} steps {worst[kind, steps]:.1e}" for steps in limits) for kind in KINDS]
    told = f"worst relative error: {'; '.join(shown)} (limits {', '.join(f'{x:.0e}' for x in limits.values())})"
    return ok, told + f"; {in_the_air} steps without a foot on the ground" * bool(in_the_air)


def _difference(case: _Case, direction: Mapping[str, Tensor], steps: int, h: float) -> float:
    """Central difference of the loss along a direction."""
    with torch.no_grad():
        up, down = (
            case.weigh(case.run({n: t + s * h * direction[n] for n, t in case.inputs.items()}, steps).final)
            for s in (1.0, -1.0)
        )
    return float(up - down) / (2 * h)


def _dot_products(numbers: Iterable[int]) -> tuple[bool, str]:
    """w . (J t) = (J^T w) . t."""
    worst = dict.fromkeys(KINDS, 0.0)
    for _, case in _cases(numbers, SEED + 1000):
        tangents = {n: case.normal(t.shape) for n, t in case.inputs.items()}
        state, parameters, controls = case.given({}, 16)
        ways = {n: t[:16] if n in controls else t for n, t in tangents.items()}
        _, moved = jvp(case.program, 16, state, ways, parameters, controls, options=QUIET)
        products = [float((g * tangents[n]).sum()) for n, g in case.gradients(16).items()]
        error = abs(float(case.weigh(moved)) - sum(products)) / max(map(abs, products))
        worst[case.kind] = max(worst[case.kind], error)
    shown = ", ".join(f"{kind} {error:.1e}" for kind, error in worst.items())
    return max(worst.values()) <= 1e-10, f"worst relative difference: {shown} (limit 1e-10)"


def _bits(numbers: Iterable[int]) -> tuple[bool, str]:
    """Bitwise equality of each world's gradient for all numbers of threads, checkpoints, batches and orders."""
    different: set[str] = set()
    for _, case in _cases(numbers, SEED + 2000, worlds=9):
        every = {**case.state, **case.controls}
        base = _own_gradient(case, every)
        for name, options in (
            ("2 threads", {"threads": 2}),
            ("4 threads", {"threads": 4}),
            ("8 threads", {"threads": 8}),
            ("checkpoint=2", {"checkpoint": 2}),
            ("checkpoint=5", {"checkpoint": 5}),
        ):
            if not torch.equal(_own_gradient(case, every, **options), base):
                different.add(f"{name} ({case.kind})")
        for w in (0, 4, 8):
            alone = _own_gradient(case, {n: t[w : w + 1] for n, t in every.items()})
            if not torch.equal(alone, base[w : w + 1]):
                different.add(f"a batch of one ({case.kind})")
        order = torch.randperm(9, generator=case.random)
        if not torch.equal(_own_gradient(case, {n: t[order] for n, t in every.items()}), base[order]):
            different.add(f"another order of worlds ({case.kind})")
    return not different, "bitwise equal" if not different else "differs with " + ", ".join(sorted(different))


def _own_gradient(case: _Case, inputs: Mapping[str, Tensor], **options: int) -> Tensor:
    """Gradients to the inputs that worlds do not share, one row per world."""
    return torch.cat([g.flatten(1) for g in case.gradients(24, inputs, **options).values()], dim=1)


def _injection(numbers: Iterable[int]) -> tuple[bool, str]:
    """An overflowing world is reported by index; the others stay bitwise equal; shared gradients exclude it.

    A velocity, a parameter or, where there is one, a control overflows.
    """
    right = cases = 0
    for number, case in _cases(numbers, SEED + 3000, worlds=16):
        bad = number % 16
        healthy = [w for w in range(16) if w != bad]
        shared, varied, velocity = OVERFLOWING[case.kind]
        own = {**case.state, **case.controls, varied: case.parameters[varied].expand(16, -1).clone()}
        whole = _ends(case, {n: t[healthy] for n, t in own.items()}, shared, list(range(15)))
        for name in (velocity, varied, *case.controls):
            spoiled = own[name].clone()
            spoiled[bad].view(-1)[0] = 1e300 if name == velocity else 1.7e308
            status, *found = _ends(case, own | {name: spoiled}, shared, healthy)
            flagged = (status >= 0).nonzero().flatten().tolist() == [bad]
            right += flagged and all(torch.equal(a, b) for a, b in zip(found, whole[1:], strict=True))
            cases += 1
    return right == cases, f"{right} of {cases} right"


def _ends(case: _Case, own: Mapping[str, Tensor], shared: str, worlds: list[int]) -> list[Tensor]:
    """Status, final states of some worlds, and the gradient of their loss to a shared parameter."""
    leaf = case.parameters[shared].clone().requires_grad_()
    run = case.run({**own, shared: leaf}, 12, on_failure="status", threads=4, record=list(case.state))
    final = {n: t[worlds] for n, t in run.final.items()}
    return [run.status, *(t.detach() for t in final.values()), torch.autograd.grad(case.weigh(final), leaf)[0]]


def _images(seeds: Iterable[int]) -> tuple[bool, str]:
    """A scene against central differences, and 40 images of degenerate faces, alternating with single precision."""
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


def _memory(numbers: Iterable[int]) -> tuple[bool | None, str]:
    """Memory that remains after rollouts of every kind and images, each with its gradient; a case has 1,000 of each.

    The first case fills caches, and is not counted.
    """
    if not STATM.exists():
        return None, f"not measured: this system has no {STATM}"
    rollouts = [_Case(kind, SEED + 4000) for kind in KINDS]
    images = {mode: random_images.numbers(0, mode) for mode in random_images.MODES}
    seen, calls = [], 0
    for _ in numbers:
        for _ in range(1000):
            for case in rollouts:
                case.gradients(2)
            for mode, given in images.items():
                leaves = {n: t.clone().requires_grad_() for n, t in given.items()}
                random_images.draw(leaves, mode)[0].sum().backward()
            calls += len(rollouts) + len(images)
        gc.collect()
        seen.append(int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6)
    grown = seen[-1] - seen[0]
    return grown < 2.0, f"{grown:+.1f} MB in {calls * (len(seen) - 1) // len(seen)} calls (limit 2 MB)"
