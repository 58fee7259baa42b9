"""The scoreboard: what is promised of gradients, bits and failures, checked on random soft bodies in contact."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from kinema.lang.bridge import jvp, rollout
from kinema.lang.program import Program
from kinema.model.tetmesh import TetArrays, tet_mesh
from kinema.scene.shapes.block import block
from kinema.simulate.soft import soft_program

Check = tuple[str, bool, str]
Inputs = tuple[Program, dict[str, Tensor], dict[str, Tensor]]
SEED = 20261115
DIFFERENTIATED = ("mu", "lam", "alpha", "inv_mass", "gravity", "k_e", "k_d", "k_f", "friction", "sphere_centre", "sphere_radius")


def run(*, full: bool = False) -> list[Check]:
    """Run the scoreboard.

    Args:
        full: Many more random cases (minutes instead of seconds).

    Returns:
        (property, passed, what was seen) for each row; the seeds are in the text.
    """
    many = 40 if full else 1
    rows: list[tuple[str, Callable[[int], tuple[bool, str]], int]] = [
        ("rollout gradients in contact, 1/32/256 steps", _gradients, 3 * many),
        ("forward against reverse mode (dot product)", _dot_products, 5 * many),
        ("same bits: threads 1/2/4/8, batch, checkpoints", _bits, 2 * many),
        ("a NaN in one world of 16 stays there", _injection, 2 * many),
    ]
    found = []
    for name, check, cases in rows:
        ok, detail = check(cases)
        found.append((name, ok, f"{cases} cases from seed {SEED}: {detail}"))
    return found


def random_scene(seed: int, worlds: int = 0) -> Inputs:
    """A random soft block pressed against a sphere, a plane and a box; float64; contact is active.

    Args:
        seed: Seed of all random numbers.
        worlds: Leading batch dimension of the state; 0 for none.
    """
    rng = np.random.default_rng(seed)
    cells = tuple(int(n) for n in rng.integers(1, 4, 3))
    mesh = tet_mesh(*block(cells, 0.1))
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
    state = {"x": torch.from_numpy(x + rng.normal(0, 1e-3, x.shape)), "v": torch.from_numpy(rng.normal(0, 0.3, x.shape))}
    return state, {n: torch.as_tensor(v, dtype=torch.float64) for n, v in values.items()}


def _loss(scene: Inputs, steps: int, weights: Tensor, **options: object) -> Tensor:
    program, state, parameters = scene
    final = rollout(program, steps, state, parameters, progress=False, **options).final  # type: ignore[arg-type]
    return (final["x"] * weights).sum() + (final["v"] * weights).sum() * 0.1


def _gradients(cases: int) -> tuple[bool, str]:
    """Directional derivatives along random directions of all inputs against central differences."""
    worst = {1: 0.0, 32: 0.0, 256: 0.0}
    limits = {1: 1e-6, 32: 1e-5, 256: 1e-4}
    for case in range(cases):
        program, state, parameters = random_scene(SEED + case)
        rng = torch.Generator().manual_seed(SEED + case)
        weights = torch.randn(state["x"].shape, generator=rng, dtype=torch.float64)
        inputs = {**state, **{n: parameters[n] for n in DIFFERENTIATED}}
        scale = {n: t.abs().mean().clamp(min=1e-3) for n, t in inputs.items()}
        direction = {n: torch.randn(t.shape, generator=rng, dtype=torch.float64) * scale[n] for n, t in inputs.items()}
        for steps in worst:

            def value(h: float, steps: int = steps) -> Tensor:
                moved = {n: t + h * direction[n] for n, t in inputs.items()}
                scene = (program, {n: moved[n] for n in ("x", "v")}, {**parameters, **{n: moved[n] for n in DIFFERENTIATED}})
                return _loss(scene, steps, weights)

            leaves = {n: t.clone().requires_grad_() for n, t in inputs.items()}
            scene = (program, {n: leaves[n] for n in ("x", "v")}, {**parameters, **{n: leaves[n] for n in DIFFERENTIATED}})
            grads = torch.autograd.grad(_loss(scene, steps, weights), list(leaves.values()))
            exact = sum(float((g * direction[n]).sum()) for n, g in zip(leaves, grads, strict=True))
            # Kinks of contact within +-h spoil a difference, not a gradient: the better of two step sizes counts.
            with torch.no_grad():
                seen = [float(value(h) - value(-h)) / (2 * h) for h in (1e-6, 1e-7)]
            error = min(abs(exact - s) / max(abs(s), 1e-12) for s in seen)
            worst[steps] = max(worst[steps], error)
    ok = all(worst[s] <= limits[s] for s in worst)
    return ok, "worst relative error " + ", ".join(f"{s} steps {e:.1e} (limit {limits[s]:.0e})" for s, e in worst.items())


def _dot_products(cases: int) -> tuple[bool, str]:
    """w . (J t) = (J^T w) . t."""
    worst = 0.0
    for case in range(cases):
        program, state, parameters = random_scene(SEED + 1000 + case)
        rng = torch.Generator().manual_seed(case)
        inputs = {**state, **{n: parameters[n] for n in DIFFERENTIATED}}
        tangents = {n: torch.randn(t.shape, generator=rng, dtype=torch.float64) for n, t in inputs.items()}
        weights = torch.randn(state["x"].shape, generator=rng, dtype=torch.float64)
        _, moved = jvp(program, 16, state, tangents, parameters)
        forward = float((moved["x"] * weights).sum() + (moved["v"] * weights).sum() * 0.1)
        leaves = {n: t.clone().requires_grad_() for n, t in inputs.items()}
        scene = (program, {n: leaves[n] for n in ("x", "v")}, {**parameters, **{n: leaves[n] for n in DIFFERENTIATED}})
        grads = torch.autograd.grad(_loss(scene, 16, weights), list(leaves.values()))
        products = [float((g * tangents[n]).sum()) for n, g in zip(leaves, grads, strict=True)]
        worst = max(worst, abs(forward - sum(products)) / max(map(abs, products)))
    return worst <= 1e-10, f"worst relative difference {worst:.1e} (limit 1e-10)"


def _bits(cases: int) -> tuple[bool, str]:
    """Final state and gradient of each world, whatever threads, batch and checkpoints."""
    different = []
    for case in range(cases):
        program, state, parameters = random_scene(SEED + 2000 + case, worlds=9)
        weights = torch.ones_like(state["x"][0])

        def seen(worlds: slice, threads: int, checkpoint: int, s: dict[str, Tensor] = state) -> tuple[Tensor, Tensor]:
            leaves = {n: t[worlds].clone().requires_grad_() for n, t in s.items()}
            loss = _loss((program, leaves, parameters), 24, weights, threads=threads, checkpoint=checkpoint)
            grads = torch.autograd.grad(loss, list(leaves.values()))
            return loss, torch.cat([g.flatten(1) for g in grads], dim=1)

        base = seen(slice(None), 1, 1)[1]
        for threads in (2, 4, 8):
            different += [] if torch.equal(seen(slice(None), threads, 1)[1], base) else [f"threads {threads}"]
        for checkpoint in (2, 5):
            different += [] if torch.equal(seen(slice(None), 2, checkpoint)[1], base) else [f"checkpoint {checkpoint}"]
        for w in (0, 4, 8):
            different += [] if torch.equal(seen(slice(w, w + 1), 1, 1)[1], base[w : w + 1]) else [f"world {w} alone"]
    return not different, "bitwise equal" if not different else "differs with " + ", ".join(sorted(set(different)))


def _injection(cases: int) -> tuple[bool, str]:
    """An overflowing world is reported by index; the others keep their bits; shared gradients leave it out."""
    wrong = 0
    for case in range(cases):
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
        wrong += not (flagged and same)
    return wrong == 0, f"{cases - wrong} of {cases} right"
