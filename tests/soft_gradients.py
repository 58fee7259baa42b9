"""Gradients of scenes with soft matter against central differences, with switches of contacts told apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from tests.compliant_law import piece_of
from torch import Tensor

import kinema as kn
from kinema.scene.description import BOX, CAPSULE, PLANE, SPHERE

MOTION = ("rotation", "position", "velocity")  # of bodies, recorded
LENGTHS = ("x", "q", "size", "centre", "skin_radius", "spring_rest")  # what depths of contacts, of mm, follow from
# Steps of central differences, relative to the size of what is changed, by the length of the run: long runs come near
# more switches, and bend more.
LENGTH_STEP = {1: 1e-6, 32: 3e-7, 256: 1e-7}
STEP = {1: 3e-5, 32: 2e-5, 256: 1e-6}


@dataclass
class SoftCase:
    """A model in motion.

    Attributes:
        model: The model, float64.
        x, xd: Positions [m] and velocities [m/s] of particles at the start.
        names: Parameters that are differentiated, beside x and xd, and q, v and tau where there are joints.
        params: Where they are differentiated; the model's own by default.
        q, v: Coordinates and velocities at the start.
        activated: Differentiate the activation of every element in every step.
        pushed: Differentiate a force on every particle in every step.
        integrator: Of the steps.
        dt: [s]
        smallest: Derivatives are compared relative to their size, or to this.
    """

    model: kn.Model
    x: Tensor
    xd: Tensor
    names: Sequence[str]
    params: dict[str, Tensor] = field(default_factory=dict)
    q: Tensor | None = None
    v: Tensor | None = None
    activated: bool = False
    pushed: bool = False
    integrator: str = "euler"
    dt: float = 2e-4
    smallest: float = 1e-2


@dataclass
class SoftCounts:
    """What was seen over several cases.

    Attributes:
        cases: Derivatives.
        switches: Of these, those that could not be compared: a vertex or link touches on one side only.
        touching: Vertices in contact, summed over steps.
        pressing: Hard contacts that press, summed over steps.
        seen: Derivatives above the smallest, by name.
        worst: Largest error, by name.
    """

    cases: int = 0
    switches: int = 0
    touching: int = 0
    pressing: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    worst: dict[str, float] = field(default_factory=dict)


def check_soft_gradients(case: SoftCase, steps: int, tolerance: float, seed: int, counts: SoftCounts) -> None:
    """One random direction for each input, of the size of its numbers.

    The loss mixes where everything is at the end with its mean acceleration: numbers that act on accelerations alone
    would not be seen in the places that a few steps lead to.
    """
    generator = torch.Generator().manual_seed(seed)
    model = case.model

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    leaves = {"x": case.x, "xd": case.xd}
    if model.nv:
        assert case.q is not None and case.v is not None
        leaves |= {"q": case.q, "v": case.v, "tau": normal(steps, model.nv)}
    if case.activated:
        leaves["activation control"] = 0.1 * normal(steps, model.matter.elements)
    if case.pushed:
        leaves["forces"] = 0.1 * normal(steps, *case.x.shape)
    leaves |= {n: case.params[n] if n in case.params else model.parameters(n)[n] for n in case.names}
    weights = [normal(*case.x.shape), normal(*case.x.shape)] + [normal(n) for n in (model.nq, model.nv) if n]

    def path_of(given: dict[str, Tensor]) -> kn.Trajectory:
        return kn.simulate(
            model,
            kn.State(given.get("q"), given.get("v"), given["x"], given["xd"]),
            kn.Control(tau=given.get("tau"), forces=given.get("forces"), activation=given.get("activation control")),
            integrator=case.integrator,
            steps=steps,
            dt=case.dt,
            params={**case.params, **{n: given[n] for n in case.names}},
            record=(*MOTION, *(("impulse", "gap") if len(model.candidates) else ())) if model.nv else (),
            options=kn.RunOptions(threads=1),
        )

    def ends(path: kn.Trajectory, given: dict[str, Tensor]) -> list[Tensor]:
        share = 0.1 / (steps * case.dt)
        end = path.end
        robots = [end.q, share * (end.v - given["v"])] if model.nv else []
        return [end.x, share * (end.xd - given["xd"]), *robots]

    def mixed(parts: Iterable[Tensor]) -> Tensor:
        return torch.stack([(part * weight).sum() for part, weight in zip(parts, weights, strict=True)]).sum()

    leaves = {n: t.detach().clone().requires_grad_() for n, t in leaves.items()}
    path = path_of(leaves)
    gradients = dict(zip(leaves, torch.autograd.grad(mixed(ends(path, leaves)), list(leaves.values())), strict=True))
    fixed = {n: t.detach() for n, t in leaves.items()}
    here = _pattern(case, path, fixed)
    counts.touching += int(here["touch"].sum())
    counts.pressing += int((here["hard"] > 0).sum()) if "hard" in here else 0
    for name, leaf in fixed.items():
        way = normal(*leaf.shape) * _sizes(name, leaf)
        counts.cases += 1
        got = float((gradients[name] * way).sum())
        wanted, error = 0.0, math.inf
        # Shorter ones where a switch is near, longer ones where rounding is all that is seen.
        for length in (1.0, 0.1, 3.0):
            step = length * (LENGTH_STEP if name in LENGTHS else STEP)[steps]
            with torch.no_grad():
                given = [{**fixed, name: leaf + sign * step * way} for sign in (1, -1)]
                up, down = (path_of(g) for g in given)
            if any(_differs(_pattern(case, p, g), here) for p, g in zip((up, down), given, strict=True)):
                continue
            # Differences before sums: what does not change has no rounding.
            pairs = zip(ends(up, given[0]), ends(down, given[1]), strict=True)
            slope = float(mixed(one - two for one, two in pairs)) / (2 * step)
            off = abs(got - slope) / max(abs(slope), case.smallest)
            if off < error:
                wanted, error = slope, off
            if error <= tolerance:
                break
        if error == math.inf:
            counts.switches += 1
            continue
        counts.seen[name] = counts.seen.get(name, 0) + (abs(wanted) > case.smallest)
        counts.worst[name] = max(counts.worst.get(name, 0.0), error)
        assert math.isfinite(got) and error <= tolerance, (seed, steps, name, got, wanted, error)


def _sizes(name: str, leaf: Tensor) -> Tensor:
    """How large steps of each number are: of its own size, of that of all for coordinates, 1 m/s for velocities."""
    mean = leaf.abs().mean() if leaf.any() else torch.ones((), dtype=leaf.dtype)
    if name in ("size", "inertia"):
        return leaf.abs()  # what a kind of shape does not have stays zero
    if name in ("xd", "v"):
        return torch.ones_like(leaf)
    if name in ("x", "q", "tau", "com", "axis", "centre", "offset", "wind", "gravity"):
        return mean.expand_as(leaf)
    return torch.where(leaf != 0, leaf.abs(), mean)


def touching(
    model: kn.Model, path: kn.Trajectory, dt: float, given: Mapping[str, Tensor] | None = None, implicit: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Of every particle and shape, in every step: whether they touch, and which piece of the law of contact holds.

    Args:
        model: With planes, spheres, capsules and boxes alone, on links whose frames are those of their bodies.
        path: Recorded with MOTION if shapes move.
        dt: Time step [s].
        given: Parameters in place of the model's own.
        implicit: Forces are those of particles at the end of a step, not at its start; shapes are where they start.

    Returns:
        Shapes (steps, particles, shapes); pieces as `compliant_law.piece_of` counts them.
    """
    told = model.resolve({n: t.detach() for n, t in (given or {}).items() if n in model._defaults})
    centre, sizes, radius = (told[n].detach().numpy() for n in ("centre", "size", "particle_radius"))
    recorded = {n: path.recorded[n].detach().numpy() for n in MOTION if n in path.recorded}
    when = slice(1, None) if implicit else slice(None, -1)
    x, xd = path.x[when].detach().numpy(), path.xd[when].detach().numpy()
    found = []
    for s, kind in enumerate(model.shapes.kind):
        R, p, v, size = np.asarray(model.shapes.rotation[s]), centre[s], xd, sizes[s]
        if link := int(model.shapes.link[s]):
            body = model.tree.body_link.tolist().index(link)
            assert not np.any(model.tree.body_offset[body])
            turn, place, twist = (recorded[n][:, body] for n in MOTION)
            p, R = (place + turn @ p)[:, None], turn @ R
            v = xd - twist[:, None, 3:] - np.cross(twist[:, None, :3], x - place[:, None])
        d, v = (x - p) @ R, v @ R  # in the shape's axes
        if kind == PLANE:
            distance, out = d[..., 2], np.array([0.0, 0.0, 1.0])
        elif kind in (SPHERE, CAPSULE):
            out = d - np.clip(d[..., 2:], -size[1], size[1]) * (0.0, 0.0, 1.0)
            distance = np.linalg.norm(out, axis=-1) - size[0]
        else:
            assert kind == BOX
            beyond = np.abs(d) - size
            distance = np.linalg.norm(np.maximum(beyond, 0), axis=-1) + np.minimum(beyond.max(-1), 0)
            nearest = np.eye(3)[beyond.argmax(-1)]
            out = np.where(distance[..., None] > 0, np.maximum(beyond, 0), nearest) * np.sign(d)
        v_n = (out * v).sum(-1) / np.maximum(np.linalg.norm(out * np.ones(3), axis=-1), 1e-300)
        touches = model.matter.touching > 0
        found.append((touches * (distance < radius), touches * piece_of(radius - distance, v_n, dt)))
    touch, piece = (np.stack(parts, -1) for parts in zip(*found, strict=True))
    return touch, piece


def _pattern(case: SoftCase, path: kn.Trajectory, given: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Which vertices touch what in which step, and which hard contacts press, slide, and overlap."""
    model = case.model
    touch, piece = touching(model, path, case.dt, {**case.params, **given}, case.integrator == "implicit")
    found = {"touch": touch, "skin": piece}
    if "impulse" in path.recorded:
        impulse = path.recorded["impulse"].detach()
        mu = given["friction"] if "friction" in given else model.parameters("friction")["friction"]
        bound = mu.detach()[:, None] * impulse[..., :1] * (1 - 1e-12)
        found["hard"] = ((impulse[..., :1] > 0).int() * (1 + (impulse[..., 1:].abs() >= bound).int())).numpy()
        found["depth"] = path.recorded["gap"].detach().numpy() < 0
    return found


def _differs(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return any(not np.array_equal(one[n], other[n]) for n in one)
