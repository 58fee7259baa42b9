"""Substeps: the same as so many more steps with the controls repeated, in bits, gradients and records."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests import soft_scenes
from torch import Tensor

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.shapes.block import block
from kinema.scene.shapes.pendulum import pendulum
from kinema.scene.shapes.quadruped import quadruped

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

TIMES, STEPS = 3, 4
STATE, CONTROL = ("q", "v", "x", "xd"), ("tau", "u", "activation", "forces")


def walking(**options: Any) -> kn.Model:
    scene = kn.Scene(contact=kn.Contact(**options))
    scene.add_ground()
    scene.add_robot(quadruped(), pos=(0.0, 0.0, 0.3))
    return kn.compile(scene)


def swinging() -> kn.Model:
    scene = kn.Scene()
    scene.add_robot(pendulum(2))
    scene.add_site("pendulum/link1", "tip")
    return kn.compile(scene)


def stiff() -> kn.Model:
    """A block in contact that takes implicit steps."""
    scene = kn.Scene()
    scene.add_ground()
    skin = kn.Skin(radius=0.01, k_e=2e3, k_f=20.0, friction=0.4)
    material = kn.Solid(mu=4e5, lam=8e5, density=800.0, viscosity=50.0)
    where = {"pos": (0.0, 0.0, 0.055), "velocity": (0.6, 0.2, 0.0)}
    scene.add_solid(block((2, 1, 1), 0.1), "s", material=material, skin=skin, **where)
    return kn.compile(scene, torch.float64)


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "coupled": (lambda: soft_scenes.coupled_scene("newton"), {"dt": 6e-4}),
    "quadruped": (walking, {"dt": 6e-3}),
    "warm start": (lambda: walking(solver="pgs", warm_start=True, tolerance=1e-6), {"dt": 6e-3}),
    "implicit": (stiff, {"dt": 1 / 60, "integrator": "implicit"}),
    "rk4": (swinging, {"dt": 0.03, "integrator": "rk4"}),
}


def inputs(model: kn.Model) -> dict[str, Tensor]:
    """States, controls and a parameter, at random."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    made, placed = {}, model.initial_state()
    if model.nv:
        made |= {"q": placed.q, "v": 0.1 * normal(model.nv), "tau": 0.1 * normal(STEPS, model.nv)}
    if len(model.actuators):
        made["u"] = 0.1 * normal(STEPS, len(model.actuators))
    if len(model.matter):
        x = placed.x
        made |= {"x": x + 1e-3 * normal(*x.shape), "xd": placed.xd + 0.1 * normal(*x.shape)}
        made["forces"] = 0.1 * normal(STEPS, *x.shape)
        made["activation"] = 0.05 * normal(STEPS, model.matter.elements)
    return made | {"gravity": torch.tensor([0.1, 0.2, -9.81], dtype=torch.float64)}


def run(model: kn.Model, given: dict[str, Tensor], times: int, dt: float, **options: Any) -> kn.Trajectory:
    """With `times` substeps; with 1, in as many more steps."""
    more = TIMES // times
    state = kn.State(**{n: t for n, t in given.items() if n in STATE})
    acting = {n: t.repeat_interleave(more, -2 - (n == "forces")) for n, t in given.items() if n in CONTROL}
    words = {"steps": STEPS * more, "dt": dt / more, "substeps": times, "params": {"gravity": given["gravity"]}}
    return kn.simulate(model, state, kn.Control(**acting), **words, **options)


def gradients(path: kn.Trajectory, leaves: dict[str, Tensor], every: int) -> list[Tensor]:
    """Of a random sum over the states at the ends of whole steps."""
    torch.manual_seed(1)
    kept = [t[::every] for t in path.states.tensors.values()]
    total = sum((torch.randn_like(t) * t).sum() for t in (*kept, *path.end.tensors.values()))
    return list(torch.autograd.grad(total, list(leaves.values())))


@pytest.mark.parametrize("name", CASES)
def test_they_are_as_many_more_steps(name: str):
    make, options = CASES[name]
    model = make()
    found = []
    for times in (TIMES, 1):
        leaves = {n: t.clone().requires_grad_() for n, t in inputs(model).items()}
        path = run(model, leaves, times, **options)
        found.append((path.end.tensors, gradients(path, leaves, TIMES // times)))
    (ends, grads), (more_ends, more_grads) = found
    assert all(torch.equal(ends[n], more_ends[n]) for n in ends)
    for n, one, other in zip(inputs(model), grads, more_grads, strict=True):
        # The same products, summed in another order: controls over substeps by one, steps by the other.
        assert float((one - other).norm()) <= 1e-12 * float(other.norm()), n


@pytest.mark.parametrize("name", ["coupled", "implicit"])
def test_checkpoints_threads_and_batches_do_not_change_a_bit(name: str):
    make, options = CASES[name]
    model = make()
    found = []
    for more in ({"threads": 1}, {"threads": 2}, {"checkpoint": 3}, {"checkpoint": "auto"}):
        leaves = {n: t.clone().requires_grad_() for n, t in inputs(model).items()}
        ends = run(model, leaves, TIMES, **options, options=kn.RunOptions(**more)).end.tensors
        total = sum(t.square().sum() for t in ends.values())
        found.append([*ends.values(), *torch.autograd.grad(total, list(leaves.values()))])
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))
    batch = {n: torch.stack([t, t]) if n not in ("gravity",) else t for n, t in inputs(model).items()}
    ends = run(model, batch, TIMES, **options).end.tensors
    assert all(torch.equal(t[1], one) for t, one in zip(ends.values(), found[0], strict=False))


SUMS = ("impulse", "iterations")
MEANS = ("acceleration", "joint_load", "imu")
FIRSTS = ("position", "rotation", "velocity", "gap", "point", "normal", "site_rotation", "site_velocity")


@pytest.mark.parametrize("name", ["warm start", "rk4", "coupled"])
def test_records_are_sums_means_or_those_of_the_first(name: str):
    """And the residual of the contact solver is the largest of all substeps."""
    make, options = CASES[name]
    model = make()
    names = [n for n in (*SUMS, *MEANS, *FIRSTS) if len(model.sites) or not ("site" in n or n == "imu")]
    if name == "rk4":
        names = [n for n in names if n not in ("gap", "point", "normal", *SUMS)]
    found, worst = [], []
    for times in (TIMES, 1):
        leaves = {n: t.clone().requires_grad_() for n, t in inputs(model).items()}
        path = run(model, leaves, times, record=names, **options)
        if path.residual is not None:
            worst.append(path.residual.unflatten(0, (STEPS, TIMES // times)).amax(1))
        whole = {}
        for n, t in path.recorded.items():
            parts = t.unflatten(0, (STEPS, TIMES // times))
            whole[n] = parts.sum(1) if n in SUMS else parts.mean(1) if n in MEANS else parts[:, 0]
        torch.manual_seed(2)
        total = sum((torch.randn_like(t) * t).sum() for t in whole.values())
        grads = torch.autograd.grad(total, list(leaves.values()), allow_unused=True, materialize_grads=True)
        found.append((whole, grads))
    assert name == "rk4" or torch.equal(*worst)
    for n in names:
        # Sums in the same order; means are sums of shares, with a rounding each.
        one, other = (whole[n].detach() for whole, _ in found)
        assert float((one - other).abs().max()) <= (0.0 if n in FIRSTS else 1e-13 * float(other.abs().max())), n
    for one, other in zip(*(grads for _, grads in found), strict=True):
        assert float((one - other).norm()) <= 1e-12 * float(other.norm())


def test_gradients_against_differences():
    """Of a step of three substeps, to a force that holds for all of them, and to the first state."""
    make, options = CASES["coupled"]
    model = make()
    given = inputs(model)
    leaves = {n: given[n].clone().requires_grad_() for n in ("forces", "x", "tau")}

    def loss(changed: dict[str, Tensor]) -> Tensor:
        end = run(model, {**given, **changed}, TIMES, **options).end
        return end.x.square().sum() + end.xd.square().sum() + end.q.square().sum()

    grads = torch.autograd.grad(loss(leaves), list(leaves.values()))
    for (n, leaf), grad in zip(leaves.items(), grads, strict=True):
        torch.manual_seed(3)
        way, h = torch.randn_like(leaf), 1e-7 if n == "x" else 1e-4
        with torch.no_grad():
            wanted = float(loss({n: leaf + h * way}) - loss({n: leaf - h * way})) / (2 * h)
        assert float((grad * way).sum()) == pytest.approx(wanted, rel=1e-5), n


@pytest.mark.parametrize("wrong", [0, -2, 1.5, True, "two"])
def test_what_is_no_number_of_substeps(wrong: Any):
    with pytest.raises(kn.InputError, match="substeps is not usable"):
        kn.simulate(swinging(), steps=1, dt=0.01, substeps=wrong)
