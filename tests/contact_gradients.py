"""Gradients of simulations in contact against central differences, with switches of contacts told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from tests.compliant_law import piece_of
from torch import Tensor

import kinema as kn

SMALLEST = 1e-2  # derivatives are compared relative to their size, or to this


@dataclass
class Case:
    """A model in motion: what is differentiated are q, v, tau, u, impulses, wrenches and the named parameters."""

    model: kn.Model
    q: Tensor
    v: Tensor
    names: Sequence[str]
    wrench_on: str = ""
    u: Tensor | None = None
    record: Sequence[str] = ("impulse",)
    dt: float = 1e-3
    impulses: Tensor | None = None
    act: Tensor | None = None
    fine: Sequence[str] = ()  # moved by a tenth of h: curves bend within that


@dataclass
class Counts:
    """What was seen over several cases."""

    cases: int = 0
    switches: int = 0
    pressing: int = 0
    sliding: int = 0
    sticking: int = 0
    at_limits: int = 0
    seen: set[str] = field(default_factory=set)  # what had a derivative above the smallest


def check_gradients(case: Case, steps: int, tolerance: float, h: float, seed: int, counts: Counts) -> None:
    """One random direction for each input. A case counts as near a switch only if the set of active rows changes."""
    generator = torch.Generator().manual_seed(100 + seed)
    model = case.model

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    leaves = {"q": case.q, "v": case.v, "tau": 0.5 * normal(steps, model.nv)} | model.parameters(*case.names)
    if case.u is not None:
        leaves["u"] = case.u.expand(steps, -1) + 0.1 * normal(steps, len(case.u))
    if case.impulses is not None:
        leaves["impulses"] = case.impulses
    if case.act is not None:
        leaves["act"] = case.act
    if case.wrench_on:
        leaves["wrench"] = 0.1 * normal(steps, 6)
    weights = normal(model.nq + model.nv + (0 if case.act is None else len(case.act)))

    def path_of(given: dict[str, Tensor]) -> kn.Trajectory:
        state = kn.State(given["q"], given["v"], impulses=given.get("impulses"), act=given.get("act"))
        wrenches = {case.wrench_on: given["wrench"]} if case.wrench_on else {}
        control = kn.Control(u=given.get("u"), tau=given["tau"], wrenches=wrenches)
        params = {n: given[n] for n in case.names}
        return kn.simulate(model, state, control, steps=steps, dt=case.dt, params=params, record=case.record)

    def loss_of(path: kn.Trajectory) -> Tensor:
        ends = [path.end.q, path.end.v] if case.act is None else [path.end.q, path.end.v, path.end.act]
        return (torch.cat(ends) * weights).sum()

    leaves = {n: t.detach().requires_grad_() for n, t in leaves.items()}
    path = path_of(leaves)
    gradients = dict(zip(leaves, torch.autograd.grad(loss_of(path), list(leaves.values())), strict=True))
    fixed, here = {n: t.detach() for n, t in leaves.items()}, _pattern(path, case, leaves)
    _count(here, counts)
    for name, leaf in fixed.items():
        way = normal(*leaf.shape)
        if name in ("inertia", "size", "stiffness", "contact/k_e"):
            way = way * leaf.abs()  # steps of their size; what a kind of shape does not have stays zero
        little = 0.1 * h if name in case.fine else h

        def slope(length: float, name: str = name, leaf: Tensor = leaf, way: Tensor = way) -> float | None:
            """A central difference; None if contacts switch."""
            with torch.no_grad():
                given = [{**fixed, name: leaf + sign * length * way} for sign in (1, -1)]
                up, down = (path_of(g) for g in given)
            if any(_differs(_pattern(p, case, g), here) for p, g in zip((up, down), given, strict=True)):
                return None
            return float(loss_of(up) - loss_of(down)) / (2 * length)

        counts.cases += 1
        wanted, got = slope(little), float((gradients[name] * way).sum())
        if wanted is None:
            counts.switches += 1
            continue
        if abs(got - wanted) > tolerance * max(abs(wanted), SMALLEST):
            half = slope(little / 2)  # what is left is of the fourth order in the length
            wanted = wanted if half is None else (4 * half - wanted) / 3
        if abs(wanted) > SMALLEST:
            counts.seen.add(name)
        assert abs(got - wanted) <= tolerance * max(abs(wanted), SMALLEST), (seed, name, got, wanted)


def _pattern(path: kn.Trajectory, case: Case, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Which rows of which step are open (0), free (1) or at a bound of friction (3); pieces of compliant laws."""
    found, model = {}, case.model
    if "impulse" in path.recorded:
        impulse = path.recorded["impulse"].detach()
        mu = given["friction"] if "friction" in given else model.parameters("friction")["friction"]
        pressed, bound = impulse[..., :1] > 0, mu.detach()[:, None] * impulse[..., :1]
        sideways = impulse[..., 1:]
        if model.contact.cone:
            sideways = sideways.norm(dim=-1, keepdim=True)
        found["impulse"] = pressed.int() * (1 + 2 * (sideways.abs() >= bound * (1 - 1e-12)).int())
    if "gap" in path.recorded:
        found["gap"] = (path.recorded["gap"].detach() < 0).int()
        if "velocity" in path.recorded:
            depth, v_n = -path.recorded["gap"].detach().numpy(), _closing(path, model).numpy()
            found["piece"] = torch.tensor(piece_of(depth, v_n, case.dt))
    if "limit_impulse" in path.recorded:
        found["limit_impulse"] = (path.recorded["limit_impulse"].detach() > 0).int()
    return found


def _closing(path: kn.Trajectory, model: kn.Model) -> Tensor:
    """How fast the gaps of candidates grow [m/s]. Every link has one body."""
    point, normal, position, velocity = (path.recorded[n].detach() for n in ("point", "normal", "position", "velocity"))
    speed = torch.zeros_like(point)
    for body, link in enumerate(model.tree.body_link):
        spin, slide = velocity[:, body, None, :3], velocity[:, body, None, 3:]
        side = (model.candidates.first == link).astype(float) - (model.candidates.second == link)
        moved = slide + torch.linalg.cross(spin.expand_as(point), point - position[:, body, None])
        speed = speed + torch.tensor(side)[:, None] * moved
    return (speed * normal).sum(-1)


def _differs(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return any(not torch.equal(one[n], other[n]) for n in one)


def _count(pattern: dict[str, Tensor], counts: Counts) -> None:
    if "impulse" in pattern:
        counts.pressing += int((pattern["impulse"] > 0).sum())
        counts.sliding += int((pattern["impulse"] == 3).sum())
        counts.sticking += int((pattern["impulse"] == 1).sum())
    if "gap" in pattern:
        counts.pressing += int(pattern["gap"].sum())
    if "limit_impulse" in pattern:
        counts.at_limits += int(pattern["limit_impulse"].sum())
