"""Constraints on trees whose mass matrix is factorised by articulated bodies, beside the factors along the branches."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from tests.contact_gradients import Case, Counts, check_gradients

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import Body, Closure, Joint, MassProperties, Mimic, Pose, Robot, Shape
from kinema.simulation import tree_dynamics

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

LINK, STEPS = 0.1, 3
ALWAYS, NEVER = 0.0, 1e9  # thresholds of `articulated_pays`
PARAMETERS = ("mass", "com", "inertia", "offset", "axis", "armature", "damping", "dry_friction", "lower", "upper")


def two_arms(**contact) -> kn.Model:
    """A free trunk of eight links with two arms, whose ends a loop ties: limits, dry friction, a mimic joint, contacts.

    The trunk stands on the floor with its last link, and the arms touch each other.
    """
    rod = MassProperties(0.2, (0.0, 0.01, -0.05), (2e-3, 1e-4, 0.0, 3e-3, 0.0, 1e-3))
    axes = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.3, 0.5, 0.8))
    foot, elbow = Shape("sphere", (0.03,)), Shape("sphere", (0.0505,))

    def link(name: str, above: str | None, i: int, place=(0.0, 0.0, -LINK), shapes=(), **words) -> Body:
        kind = {"kind": "ball"} if i == 2 else {"kind": "revolute", "axis": axes[i % 3], "damping": 0.02, **words}
        joint = Joint(f"j_{name}", armature=1e-3, **kind)
        return Body(name, above, Pose(place), (joint,), rod, shapes)

    bodies = [Body("t0", None, Pose(), (Joint("root", "free"),), rod)]
    for i in range(1, 8):
        words = {"lower": -0.01, "upper": 0.01} if i in (4, 5) else {"friction": 0.01}
        bodies.append(link(f"t{i}", f"t{i - 1}", i, shapes=(foot,) if i == 7 else (), **words))
    for side, sign in (("l", 1.0), ("r", -1.0)):
        for i in range(5):
            above, place = (f"{side}{i - 1}", (0.0, 0.0, -LINK)) if i else ("t4", (0.0, sign * 0.05, -0.05))
            mimic = Mimic("j_l3", 0.5) if (side, i) == ("r", 3) else None
            words = {"lower": -0.02} if i == 4 else {}
            bodies.append(link(f"{side}{i}", above, i, place, (elbow,) if i == 1 else (), mimic=mimic, **words))
    loop = Closure("tie", "connect", "l4", "r4", Pose((0.0, -0.05, -0.05)), Pose((0.0, 0.05, -0.05)))
    scene = kn.Scene(contact=kn.Contact(friction=0.6, **contact))
    scene.add_ground()
    scene.add_robot(Robot("w", tuple(bodies), closures=(loop,)), pos=(0.0, 0.0, 7 * LINK + 0.0295), self_collision=True)
    return kn.compile(scene)


def start(model: kn.Model) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    q = model.initial_state().q
    q[7 + 4 :] += 0.02 * torch.randn(model.nq - 11, dtype=torch.float64, generator=generator)
    return q, 0.2 * torch.randn(model.nv, dtype=torch.float64, generator=generator)


def run(deep: float, worlds: int = 0, **contact) -> tuple[kn.Trajectory, dict[str, torch.Tensor]]:
    """A few steps and gradients of their end, for all inputs."""
    with mock.patch.object(tree_dynamics, "DEEP_WITH_ROWS", deep):
        model = two_arms(**contact)
        q, v = start(model)
        generator = torch.Generator().manual_seed(4)
        tau = 0.1 * torch.randn(STEPS, model.nv, dtype=torch.float64, generator=generator)
        if worlds:
            q, v, tau = (x.expand(worlds, *x.shape).clone() for x in (q, v, tau))
            v[1:] += 0.1 * torch.randn(worlds - 1, model.nv, dtype=torch.float64, generator=generator)
        given = {"q": q, "v": v, "tau": tau} | model.parameters(*PARAMETERS, "friction", "contact/cfm", "contact/erp")
        given = {n: t.detach().clone().requires_grad_() for n, t in given.items()}
        params = {n: t for n, t in given.items() if n not in ("q", "v", "tau")}
        state, control = kn.State(given["q"], given["v"]), kn.Control(tau=given["tau"])
        words = {"params": params, "record": ["impulse", "limit_impulse"]}
        path = kn.simulate(model, state, control, steps=STEPS, dt=2e-3, **words)
        weights = torch.linspace(-1.0, 1.0, model.nq + model.nv, dtype=torch.float64)
        loss = (torch.cat([path.end.q, path.end.v], -1) * weights).sum()
    return path, dict(zip(given, torch.autograd.grad(loss, list(given.values())), strict=True))


@pytest.mark.parametrize("contact", [{}, {"cone": True}], ids=["pyramid", "cone"])
def test_both_factorisations_give_the_same_step_and_gradients(contact):
    """Rounding apart: the two multiply the same numbers in another order."""
    (one, slopes), (two, others) = run(ALWAYS, **contact), run(NEVER, **contact)
    assert not torch.equal(one.q, two.q)  # two programs
    assert (one.recorded["impulse"][0, :, 0] > 0).sum() == 2 and (one.recorded["limit_impulse"][0] > 0).sum() == 2
    assert one.residual is not None and float(one.residual.detach().max()) < 1e-12
    assert torch.allclose(one.q, two.q, rtol=0, atol=1e-13) and torch.allclose(one.v, two.v, rtol=0, atol=1e-11)
    for name, slope in slopes.items():
        largest = float(others[name].abs().max())
        assert float((slope - others[name]).abs().max()) <= 1e-11 * largest + 1e-12, name


@pytest.mark.slow
def test_a_world_has_the_same_bits_in_a_batch():
    (alone, slopes), (batch, others) = run(ALWAYS), run(ALWAYS, worlds=5)
    assert torch.equal(alone.q, batch.q[0]) and torch.equal(alone.v, batch.v[0])
    assert all(torch.equal(slopes[n], others[n][0]) for n in ("q", "v", "tau"))


def test_gradients_against_differences():
    with mock.patch.object(tree_dynamics, "DEEP_WITH_ROWS", ALWAYS):
        model, counts = two_arms(), Counts()
        case = Case(model, *start(model), PARAMETERS, record=("impulse", "limit_impulse"), dt=2e-3)
        check_gradients(case, STEPS, 1e-5, 1e-7, 0, counts)
    assert counts.pressing > 0 and counts.at_limits > 0 and counts.switches <= 0.2 * counts.cases, counts


@pytest.mark.slow
def test_step_jacobians():
    """Linearised by both factorisations."""
    found = []
    for deep in (ALWAYS, NEVER):
        with mock.patch.object(tree_dynamics, "DEEP_WITH_ROWS", deep):
            model = two_arms()
            found.append(kn.linearise(model, kn.State(*start(model)), dt=2e-3))
    for one, two in zip((found[0].A, found[0].B), (found[1].A, found[1].B), strict=True):
        assert float((one - two).abs().max()) <= 1e-11 * float(two.abs().max()) + 1e-12


def test_a_long_chain_with_a_limit_takes_the_short_way():
    """200 hinges: the program factorises no mass matrix, and the limit holds."""
    rod = MassProperties(0.1, (0.0, 0.0, -0.05), (1e-4, 0.0, 0.0, 1e-4, 0.0, 1e-5))
    bodies = [
        Body(
            f"b{i}",
            f"b{i - 1}" if i else None,
            Pose((0.0, 0.0, -LINK if i else 0.0)),
            (Joint(f"j{i}", "revolute", (0.0, 1.0, 0.0), upper=0.02 if i == 150 else float("inf")),),
            rod,
        )
        for i in range(200)
    ]
    scene = kn.Scene()
    scene.add_robot(Robot("c", tuple(bodies)))
    model = kn.compile(scene)
    assert tree_dynamics.articulated_pays(model.tree, rows=True)
    q, v = torch.zeros(2, 200, dtype=torch.float64)
    q[150], v[150] = 0.019, 2.0
    path = kn.simulate(model, kn.State(q, v), steps=50, dt=2e-3, record=["limit_impulse"])
    assert float(path.q[:, 150].max()) <= 0.02 + 1e-8 and float(path.recorded["limit_impulse"].max()) > 0
