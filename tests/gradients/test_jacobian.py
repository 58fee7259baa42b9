"""Jacobians of a step against differences and against gradients, in contact."""

from __future__ import annotations

import pytest
import torch

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.shapes.ant import ant
from kinema.scene.shapes.pendulum import pendulum
from kinema.scene.shapes.quadruped import quadruped

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")
DT, H = 2e-3, 1e-6


def pressed(robot, **words) -> tuple[kn.Model, torch.Tensor, torch.Tensor]:
    """A robot a little below the ground, three worlds in slow motion."""
    scene = kn.Scene(contact=kn.Contact(cfm=1e-3, **words))
    scene.add_ground()
    scene.add_robot(robot, "r")
    model = kn.compile(scene)
    q = model.initial_state().q
    generator = torch.Generator().manual_seed(0)
    q[7:] += 0.05 * torch.randn(model.nq - 7, dtype=torch.float64, generator=generator)
    still = torch.zeros(model.nv, dtype=torch.float64)
    gaps = kn.simulate(model, kn.State(q, still), steps=1, dt=DT, record=["gap"]).recorded["gap"]
    q[2] -= float(gaps.min()) + 1e-3
    return model, q.expand(3, -1).clone(), 0.05 * torch.randn(3, model.nv, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("robot", [quadruped(), ant()], ids=["quadruped", "ant"])
def test_jacobians_are_those_of_differences(robot):
    """Every column, <= 1e-6 relative to the largest entry; feet press in every world."""
    model, q, v = pressed(robot)
    tau = 0.1 * torch.randn(3, model.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    u = 0.1 * torch.ones(3, len(model.actuators), dtype=torch.float64) if len(model.actuators) else None
    pressing = kn.simulate(model, kn.State(q, v), steps=1, dt=DT, record=["impulse"]).recorded["impulse"]
    assert (pressing[..., 0] > 0).any(-1).all()
    found = kn.step_with_jacobian(model, q, v, tau, u, dt=DT)
    after = kn.step(model, q, v, tau, u, dt=DT)
    assert torch.equal(found.q, after[0]) and torch.equal(found.v, after[1])

    def state(q, v, tau, u):
        return torch.cat(kn.step(model, q, v, tau, u, dt=DT), -1)

    given = {"q": q, "v": v, "tau": tau} | ({"u": u} if u is not None else {})
    by = {"q": found.by_state[..., : model.nq], "v": found.by_state[..., model.nq :], "tau": found.by_tau}
    by |= {"u": found.by_u} if u is not None else {}
    for name, values in given.items():
        for k in range(values.shape[-1]):
            shift = torch.zeros_like(values)
            shift[..., k] = H
            up, down = (state(**({"u": u} | given | {name: values + sign * shift})) for sign in (1, -1))
            wanted = (up - down) / (2 * H)
            assert float((by[name][..., k] - wanted).abs().max()) <= 1e-6 * float(found.by_state.abs().max()), (name, k)


def test_jacobians_are_those_of_gradients():
    model, q, v = pressed(quadruped())
    found = kn.step_with_jacobian(model, q[0], v[0], dt=DT)
    leaves = [q[0].clone().requires_grad_(), v[0].clone().requires_grad_()]
    weights = torch.randn(model.nq + model.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    out = torch.cat(kn.step(model, *leaves, dt=DT))
    wanted = torch.cat(torch.autograd.grad((out * weights).sum(), leaves))
    assert torch.allclose(weights @ found.by_state, wanted, rtol=1e-12, atol=1e-12)
    assert found.by_u is None and found.by_tau.shape == (model.nq + model.nv, model.nv)


def test_every_world_may_have_its_own_numbers():
    """As many worlds as outputs: a batch of parameters must not be taken for one of outputs."""
    model, q, v = pressed(quadruped())
    n = model.nq + model.nv
    mass = model.parameters("r/trunk/mass")["r/trunk/mass"] * torch.linspace(0.8, 1.3, n, dtype=torch.float64)
    found = kn.step_with_jacobian(model, q[0].expand(n, -1), v[0].expand(n, -1), dt=DT, params={"r/trunk/mass": mass})
    for w in (0, n - 1):
        alone = kn.step_with_jacobian(model, q[0], v[0], dt=DT, params={"r/trunk/mass": mass[w]})
        assert torch.equal(found.by_state[w], alone.by_state) and torch.equal(found.v[w], alone.v)
    assert not torch.equal(found.by_state[0], found.by_state[-1])


def test_a_batch_of_forces_alone_is_a_batch():
    model, q, v = pressed(quadruped())
    tau = torch.randn(2, model.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    found = kn.step_with_jacobian(model, q[0], v[0], tau, dt=DT)
    assert torch.equal(found.by_state[1], kn.step_with_jacobian(model, q[0], v[0], tau[1], dt=DT).by_state)
    with pytest.raises(kn.InputError, match="no actuators"):
        kn.step_with_jacobian(model, q, v, u=tau[0], dt=DT)
    with pytest.raises(kn.InputError, match="batch dimensions do not match"):
        kn.step_with_jacobian(model, q, v, tau, dt=DT)


def test_steps_of_other_integrators():
    """A step of fourth order is that of `simulate`, and its Jacobian that of its gradients."""
    scene = kn.Scene()
    scene.add_robot(pendulum(2))
    model = kn.compile(scene)
    q, v = torch.tensor([0.4, -0.3], dtype=torch.float64), torch.tensor([0.5, 1.0], dtype=torch.float64)
    found = {n: kn.step_with_jacobian(model, q, v, dt=0.05, integrator=n) for n in ("euler", "rk4", "implicit")}
    wanted = kn.simulate(model, kn.State(q, v), steps=1, dt=0.05, integrator="rk4")
    assert torch.equal(found["rk4"].q, wanted.end.q) and torch.equal(found["rk4"].v, wanted.end.v)
    assert not torch.equal(found["rk4"].q, found["euler"].q) and torch.equal(found["implicit"].q, found["euler"].q)
    leaves = [q.clone().requires_grad_(), v.clone().requires_grad_()]
    out = kn.step(model, *leaves, dt=0.05, integrator="rk4")[0].sum()
    assert torch.allclose(found["rk4"].by_state[:2].sum(0), torch.cat(torch.autograd.grad(out, leaves)), rtol=1e-12)


# -- impulses as state -----------------------------------------------------------------------------------------------


def started() -> tuple[kn.Model, dict[str, torch.Tensor]]:
    """Three worlds in contact, of three sweeps each from impulses of another step, which are far from a solution."""
    model, q, v = pressed(quadruped(), solver="pgs", warm_start=True, sweeps=3, time_of_impact=False)
    kept = kn.simulate(model, kn.State(q, 0.9 * v), steps=1, dt=DT).end.impulses
    assert (
        kept.shape == (3, len(model.initial_state().impulses))
        and (kept.unflatten(-1, (-1, 3))[..., 0] > 0).any(-1).all()
    )
    return model, {"q": q, "v": v, "impulses": kept}


def test_jacobians_of_kept_impulses_are_those_of_differences():
    """Every column and row of a state that impulses belong to, <= 1e-6 relative to the largest entry of its block.

    Impulses of candidates that do not touch are zero and stay so; the others are away from their bounds or at one that
    moves along with them.
    """
    model, given = started()
    found = kn.step_with_jacobian(model, **given, dt=DT)
    after = kn.step(model, **given, dt=DT)
    assert all(torch.equal(a, b) for a, b in zip((found.q, found.v, found.impulses), after, strict=True))
    counts = [x.shape[-1] for x in given.values()]
    assert found.by_state.shape == (3, sum(counts), sum(counts)) and found.by_tau.shape == (3, sum(counts), model.nv)
    for name, by in zip(given, found.by_state.split(counts, -1), strict=True):
        columns = []
        for k in range(given[name].shape[-1]):
            shift = torch.zeros_like(given[name])
            shift[..., k] = H
            sides = [kn.step(model, **given | {name: given[name] + sign * shift}, dt=DT) for sign in (1, -1)]
            columns.append((torch.cat(sides[0], -1) - torch.cat(sides[1], -1)) / (2 * H))
        wanted = torch.stack(columns, -1)
        for got, rows in zip(by.split(counts, -2), wanted.split(counts, -2), strict=True):
            assert float(rows.abs().max()) > 1e-3, "it matters"
            assert float((got - rows).abs().max()) <= 1e-6 * float(rows.abs().max()), name


def test_steps_with_impulses_are_a_run():
    """To the bit; and the Jacobian of a chain of steps is the product of theirs."""
    model, given = started()
    run = kn.simulate(model, steps=5, dt=DT, **given)
    state, product = tuple(given.values()), torch.eye(sum(x.shape[-1] for x in given.values()), dtype=torch.float64)
    for _ in range(5):
        q, v, impulses = state
        product = kn.step_with_jacobian(model, q, v, dt=DT, impulses=impulses).by_state @ product
        state = kn.step(model, q, v, dt=DT, impulses=impulses)
    assert all(torch.equal(a, b) for a, b in zip(state, (run.end.q, run.end.v, run.end.impulses), strict=True))
    leaves = [x.clone().requires_grad_() for x in given.values()]
    again = kn.simulate(model, *leaves[:2], impulses=leaves[2], steps=5, dt=DT, progress=False)
    wanted = torch.cat(torch.autograd.grad(again.end.v.sum(), leaves), -1)
    rows = slice(model.nq, model.nq + model.nv)
    assert torch.allclose(product[:, rows].sum(-2), wanted, rtol=1e-10, atol=1e-10 * float(wanted.abs().max()))


@pytest.mark.parametrize("one", [kn.step, kn.step_with_jacobian])
def test_kept_impulses_are_asked_for(one):
    scene = kn.Scene(contact=kn.Contact(solver="pgs", warm_start=True))
    scene.add_robot(pendulum(1))
    free = kn.compile(scene)
    still = torch.zeros(1, dtype=torch.float64)
    one(free, free.initial_state().q, still, dt=DT)  # nothing to keep
    assert free.initial_state().impulses.shape == (0,)
    with pytest.raises(kn.InputError, match="starts from no impulses"):
        one(free, free.initial_state().q, still, dt=DT, impulses=still)
    scene.add_ground()
    scene.add_robot(quadruped())
    model = kn.compile(scene)
    state = model.initial_state().q, torch.zeros(model.nv, dtype=torch.float64)
    with pytest.raises(kn.InputError, match=r"(?s)warm_start=True\) impulses are part of the state.*initial_impulses"):
        one(model, *state, dt=DT)
    with pytest.raises(kn.InputError, match="impulses has the wrong shape"):
        one(model, *state, dt=DT, impulses=still)
    one(model, *state, dt=DT, impulses=model.initial_state().impulses)
