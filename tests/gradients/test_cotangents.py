"""The gradient by the states in between, against runs that start there."""

from __future__ import annotations

import pytest
import torch

import kinema as kn
from kinema.scene.shapes.ball import ball
from kinema.scene.shapes.quadruped import quadruped
from kinema.simulation.cotangents import state_cotangents

STEPS, DT = 12, 1e-3


def quadrupeds(**contact: object) -> kn.Model:
    scene = kn.Scene(contact=kn.Contact(**contact))
    scene.add_ground()
    scene.add_robot(quadruped())
    return kn.compile(scene)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("contact", [{}, {"warm_start": True, "solver": "pgs"}, {"law": "compliant"}])
def test_cotangents_are_gradients_of_runs_that_start_there(batch: tuple[int, ...], contact: dict[str, object]):
    """Step k of a run, given to a run of the other steps: rounding apart, its gradient is what came back to it."""
    model = quadrupeds(**contact)
    random = torch.Generator().manual_seed(0)
    q = model.initial_state().q.repeat(*batch, 1).requires_grad_()
    v = torch.randn(*batch, model.nv, generator=random, dtype=torch.float64)
    tau = torch.randn(*batch, STEPS, model.nv, generator=random, dtype=torch.float64)
    weights = torch.randn(STEPS + 1, model.nq, generator=random, dtype=torch.float64)

    def run(q, v, tau):
        control = kn.Control(tau=tau)
        return kn.simulate(model, kn.State(q, v), control, steps=tau.shape[-2], dt=DT, record=["position"])

    def loss(path, first=0):
        return (path.q * weights[first:]).sum() + path.end.v.sum() + (path.recorded["position"] ** 2).sum()

    path = run(q, v, tau)
    whole = loss(path)
    found = state_cotangents(whole, path)
    assert {name: t.shape for name, t in found.items()} == {"q": path.q.shape, "v": path.v.shape}
    (start,) = torch.autograd.grad(whole, q)
    assert torch.equal(found["q"][..., 0, :], start), "the same steps have the same bits"
    if contact.get("warm_start"):
        return  # impulses of step k are not in the path
    k = 5
    here = [t[..., k, :].detach().clone().requires_grad_() for t in (path.q, path.v)]
    wanted = torch.autograd.grad(loss(run(*here, tau[..., k:, :]), k), here)
    for name, right in zip(("q", "v"), wanted, strict=True):
        assert torch.allclose(found[name][..., k, :], right, rtol=1e-12, atol=1e-12 * float(right.abs().max()))


def test_cotangents_of_soft_things():
    scene = kn.Scene()
    scene.add_ground()
    scene.add_solid(ball(radius=0.1, layers=1), "ball", material=kn.Solid(200.0, 5e3, 5e3), pos=(0.0, 0.0, 0.099))
    model = kn.compile(scene, torch.float64)
    x = model.initial_state().x.requires_grad_()
    path = kn.simulate(model, kn.State(x=x), steps=STEPS, dt=1e-4)
    whole = path.end.x.square().sum() + path.xd.sum()
    found = state_cotangents(whole, path)
    assert torch.equal(found["x"][0], torch.autograd.grad(whole, x)[0])


def test_what_has_no_states_in_between_is_refused():
    model = quadrupeds()
    start = model.initial_state().requires_grad_()
    path = kn.simulate(model, start, steps=4, dt=DT, options=kn.RunOptions(checkpoint=2))
    with pytest.raises(kn.InputError, match="checkpoint=1"):
        state_cotangents(path.end.q.sum(), path)
