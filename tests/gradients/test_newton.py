"""Newton's method: solutions to round-off on stacks, robots, limits and loops, and their implicit derivatives."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.contact_gradients import Case, Counts, check_gradients
from tests.gradients.test_constraints import INERTIAL, heap, linkage, pressed_pair

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import Body, Joint, Pose, Robot, Shape
from kinema.scene.mass_properties import mass_properties
from kinema.scene.shapes.quadruped import quadruped
from kinema.simulation import failures, solvers

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

BRICK = Shape("box", (0.1, 0.1, 0.05))
STEPS = [(1, 1e-6, 1e-6), (32, 1e-5, 1e-6), (256, 1e-4, 1e-7)]  # number, tolerance, difference; see test_constraints


def bricks(number: int, ratio: float = 1.0, **contact) -> kn.Model:
    """Bricks on each other, each `ratio` times as heavy as the one below it."""
    scene = kn.Scene(contact=kn.Contact(**contact))
    scene.add_ground()
    for i in range(number):
        body = Body("b", None, Pose(), (Joint("free", "free"),), mass_properties(BRICK, mass=2.0 * ratio**i), (BRICK,))
        scene.add_robot(Robot("r", (body,)), pos=(0.01 * (i % 2), 0.003 * i, 0.05 + 0.0999 * i))
    return kn.compile(scene)


def dog(**contact) -> tuple[kn.Model, torch.Tensor]:
    """A quadruped in its stand pose, its feet a little in the ground."""
    scene = kn.Scene(contact=kn.Contact(**contact))
    scene.add_ground()
    scene.add_robot(quadruped())
    model = kn.compile(scene)
    q = model.initial_state().q
    q[7:] = torch.tensor(model.tree.rest[6:])
    gap = kn.simulate(model, kn.State(q), steps=1, dt=1e-3, record=["gap"]).recorded["gap"]
    q[2] -= float(gap.min()) + 1e-4
    return model, q


def run(model: kn.Model, q: torch.Tensor | None = None, v: torch.Tensor | None = None, **words) -> kn.Trajectory:
    return kn.simulate(model, kn.State(q, v), **{"steps": 60, "dt": 2e-3, **words})


def sheared(model: kn.Model) -> torch.Tensor:
    """Velocities that pull a stack of bricks apart: they slide on each other, turn and lift off."""
    return 0.5 * torch.randn(model.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("cone", [False, True])
@pytest.mark.parametrize("what", ["face", "stack", "sheared stack", "heavy on light", "dog", "heap", "linkage"])
def test_no_visit_would_change_an_impulse(what, cone):
    """The residual, a share of the largest impulse, is below 1e-12 in every step."""
    v, u, words = None, None, {"solver": "newton", "cone": cone}
    if what == "linkage":
        model, q, v = linkage(**words)
        u = [1.0, 0.4, 0.2, -0.3]  # it is held at its limit
    elif what == "heap":
        model, q, v = heap(**words)
    elif what == "dog":
        model, q = dog(**words)
    else:
        numbers = {"face": (1, 1.0), "stack": (5, 1.0), "sheared stack": (4, 1.0), "heavy on light": (4, 10.0)}
        model = bricks(*numbers[what], cone=cone, cfm=0.0 if what == "face" else 1e-6, friction=0.4)
        q = model.initial_state().q
        v = sheared(model) if what == "sheared stack" else None
    name = "limit_impulse" if what == "linkage" else "impulse"
    path = run(model, q, v, u=u, record=[name, "iterations"])
    largest = path.recorded[name].abs().flatten(1).amax(-1)
    assert (path.residual <= 1e-12).all() and float(largest.max()) > 1e-3
    assert (path.recorded["iterations"] >= 1).all()


@pytest.mark.parametrize("cone", [False, True])
def test_a_robot_moves_as_with_very_many_sweeps(cone):
    """Values and gradients over 20 steps; 3,000 sweeps are at round-off here."""
    ends = []
    for words in ({"solver": "newton"}, {"solver": "pgs", "iterations": 3000}):
        model, q = dog(cone=cone, friction=0.3, **words)
        leaves = {"q": q, "v": torch.linspace(-0.2, 0.3, model.nv, dtype=q.dtype)} | model.parameters(
            "mass", "friction"
        )
        leaves = {n: t.detach().clone().requires_grad_() for n, t in leaves.items()}
        params = {n: leaves[n] for n in ("mass", "friction")}
        path = run(model, leaves["q"], leaves["v"], params=params, steps=20)
        loss = path.end.q.sum() + path.end.v.square().sum()
        ends.append((path.end.q.detach(), path.end.v.detach(), *torch.autograd.grad(loss, list(leaves.values()))))
    for ours, theirs in zip(*ends, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(("steps", "tolerance", "h"), STEPS)
def test_gradients_with_limits_loops_and_dry_friction(steps, tolerance, h):
    model, q, v = linkage(solver="newton")
    names = (*INERTIAL, "offset", "axis", "armature", "dry_friction", "lower", "upper", "gear", "kp", "force")
    counts, u = Counts(), torch.tensor([1.0, 0.4, 0.2, -0.3], dtype=torch.float64)
    check_gradients(Case(model, q, v, names, "l/c", u, ("limit_impulse",)), steps, tolerance, h, 0, counts)
    assert counts.at_limits >= steps and counts.switches <= 0.05 * counts.cases, counts


@pytest.mark.parametrize("law", ["pyramid", "cone"])
@pytest.mark.parametrize(("steps", "tolerance", "h"), STEPS)
def test_gradients_of_what_sticks_slides_and_separates(steps, tolerance, h, law):
    """Two bodies on each other, slippery and not, and seven balls whose contacts are picked.

    Long runs have shorter steps: within 256 ms bodies come to switch too often for differences.
    """
    counts, dt = Counts(), 1e-3
    if steps > 32:  # h: rounding is 1e-16 over it, times what a box that sticks with all corners makes of it
        dt, h = 2.5e-4, 3e-7
    for number, (first, second) in enumerate([("box", "box"), ("capsule", "sphere")]):
        for friction in (0.3, 3.0):
            case = replace(pressed_pair(first, second, law, friction, solver="newton"), dt=dt)
            check_gradients(case, steps, tolerance, h, number, counts)
    model, q, v = heap(solver="newton", cone=law == "cone")
    q[2] += 0.003  # the first ball comes off: its rows are there, and open
    case = Case(model, q, v, (*INERTIAL, "friction", "size", "centre"), dt=dt)
    check_gradients(case, steps, tolerance, h, 9, counts)
    print(counts)
    assert min(counts.sliding, counts.sticking) >= steps and counts.switches <= 0.05 * counts.cases, counts


@pytest.mark.parametrize("law", ["pyramid", "cone"])
def test_gradients_where_contacts_are_redundant(law):
    """A brick on its face, nothing soft: of its twelve rows only six are independent, its motion is still unique."""
    for pushed, friction in ((0.1, 3.0), (0.6, 0.2)):  # it sticks; it slides
        model = bricks(1, cfm=0.0, cone=law == "cone", friction=friction)
        q, v = model.initial_state().q, torch.zeros(model.nv, dtype=torch.float64)
        q[2] -= 1e-4
        v[3:5] = torch.tensor([pushed, 0.4 * pushed])
        _check_motion(model, q, v)


def _check_motion(model: kn.Model, q: torch.Tensor, v: torch.Tensor) -> None:
    """Differences that keep the brick flat: along the ground, up, about the vertical, and of its numbers."""
    flat = {"q": torch.tensor([1.0, -0.5, 0.7, 0.0, 0.0, 0.0, 0.3]), "v": torch.tensor([0.0, 0.0, 0.4, 1.0, 0.5, -0.3])}
    leaves = {"q": q, "v": v} | model.parameters("mass", "gravity", "contact/erp", "friction")
    weights = torch.linspace(0.5, 2.0, model.nq + model.nv, dtype=torch.float64)

    def loss_of(given: dict[str, torch.Tensor]) -> torch.Tensor:
        params = {n: t for n, t in given.items() if n not in ("q", "v")}
        path = run(model, given["q"], given["v"], params=params, steps=8)
        return (torch.cat([path.end.q, path.end.v]) * weights).sum()

    leaves = {n: t.detach().clone().requires_grad_() for n, t in leaves.items()}
    gradients = torch.autograd.grad(loss_of(leaves), list(leaves.values()))
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        way = flat.get(name, torch.ones_like(leaf)).to(torch.float64)
        h = 1e-6
        with torch.no_grad():
            up, down = (loss_of({**leaves, name: leaf + sign * h * way}) for sign in (1, -1))
        wanted, got = float(up - down) / (2 * h), float((gradient * way).sum())
        assert got == pytest.approx(wanted, rel=1e-5, abs=1e-6), name


def test_a_step_that_is_not_solved_is_no_secret(monkeypatch):
    """With one elimination and no sweep before it, nobody knows which contacts of a moving stack are open."""
    monkeypatch.setattr(solvers, "EFFORT", {"largest": 0, "sweeps": 0, "steps": 1, "most": 1})
    model = bricks(4, friction=0.3)
    with pytest.warns(kn.UnsolvedWarning, match=r"not solved in 1 steps, first in step 0.*at 'r\d*/free'.*cfm"):
        path = run(model, v=sheared(model), steps=1)
    assert float(path.residual[0]) > 1e-6 and math.isfinite(float(path.end.q.sum()))


def test_gradients_that_explode_in_steps_that_are_not_solved_raise(monkeypatch):
    """They are those of sweeps that do not settle; on_failure="status" gives them as they are."""
    monkeypatch.setattr(failures, "EXPLODED", 1e-6)  # that of this short run is not as large
    for how in ("raise", "status"):
        model = bricks(4, friction=0.3, solver="pgs", iterations=1)
        v = sheared(model).requires_grad_()
        with pytest.warns(kn.UnsolvedWarning, match="solver='newton'"):
            path = run(model, v=v, steps=3, options=kn.RunOptions(on_failure=how))
        if how == "raise":
            with pytest.raises(kn.SimulationError, match="has no meaning: the contact problem was not solved"):
                path.end.q.sum().backward()
        else:
            path.end.q.sum().backward()
            assert v.grad is not None and v.grad.abs().max() > 1e-6


def test_a_world_that_is_not_finite_is_reported_at_once():
    """Nothing can be solved there, and no time is spent on it."""
    model = bricks(2)
    v = torch.zeros(model.nv, dtype=torch.float64)
    v[0] = 1e200
    path = run(model, v=v, steps=3, record=["iterations"], options=kn.RunOptions(on_failure="status"))
    assert int(path.status) == 0 and float(path.recorded["iterations"][0]) == 0


def test_an_unknown_solver_is_refused():
    with pytest.raises(kn.ModelError, match="unknown contact solver"):
        kn.Contact(solver="simplex")


def gradients(model: kn.Model, q: torch.Tensor, u: torch.Tensor, cfm: torch.Tensor | None = None) -> list[torch.Tensor]:
    """Of a shaken quadruped's way: to its start, its torques and the softness of contacts."""
    inputs = [x.clone().requires_grad_() for x in (q, u)]
    softness = (torch.tensor(1e-6, dtype=q.dtype) if cfm is None else cfm).clone().requires_grad_()
    state, control = kn.State(inputs[0]), kn.Control(tau=inputs[1])
    end = kn.simulate(model, state, control, params={"contact/cfm": softness}, steps=u.shape[-2], dt=2e-3).end
    weights = torch.linspace(-1.0, 1.0, model.nq, dtype=q.dtype)
    return list(torch.autograd.grad((end.q * weights).sum(), [*inputs, softness]))


def shaken(model: kn.Model, *batch: int) -> torch.Tensor:
    """Torques that make feet stick, slide and lift off."""
    u = 12.0 * torch.randn(*batch, 40, model.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    u[..., :6] = 0.0
    return u


@pytest.mark.parametrize("cone", [False, True])
def test_the_motion_tells_the_impulses(cone, monkeypatch):
    """Reverse sweeps that read impulses off the motion find the gradients of those that solve for them again."""
    words = {"solver": "newton", "cone": cone}
    model, q = dog(**words)
    found = gradients(model, q, shaken(model))
    monkeypatch.setattr(solvers, "TRUSTED", {})
    model, _ = dog(**words)
    for one, other in zip(found, gradients(model, q, shaken(model)), strict=True):
        assert float((one - other).abs().max()) <= 1e-9 * float(other.abs().max())


def test_where_the_motion_does_not_tell_them_they_are_solved_for(monkeypatch):
    """Impulses that are never believed give the bits of a sweep that does not look at the motion."""
    never = {8: {"share": -1.0, "noise": 0.0}}
    found = []
    for trusted in (never, {}):
        monkeypatch.setattr(solvers, "TRUSTED", trusted)
        model, q = dog(solver="newton")
        found.append(gradients(model, q, shaken(model)))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_world_that_tells_nothing_leaves_the_others_their_bits():
    """Without softness velocities tell no impulses: of a batch, such worlds alone are solved again."""
    model, q = dog(solver="newton")
    u = shaken(model, 5)
    cfm = torch.tensor([1e-6, 0.0, 1e-6, 1e-5, 0.0], dtype=q.dtype)
    together = gradients(model, q.expand(5, -1), u, cfm)
    for i in range(5):
        alone = gradients(model, q, u[i], cfm[i])
        assert all(torch.equal(one[i], other) for one, other in zip(together, alone, strict=True))
