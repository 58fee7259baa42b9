"""Implicit steps of soft matter: their equation, their order, rest, momentum, and what happens when they fail."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.scene.shapes.beam import beam
from kinema.scene.shapes.block import block
from kinema.scene.shapes.pendulum import pendulum
from kinema.scene.shapes.sheet import sheet


def run(model: kn.Model, steps: int, dt: float, integrator: str = "implicit", **options) -> kn.Trajectory:
    return kn.simulate(model, steps=steps, dt=dt, integrator=integrator, **options)


def hanging(viscosity: float = 20.0) -> kn.Model:
    scene = kn.Scene()
    mesh = beam(0.6, 0.1, 0.1, (6, 1, 1))
    scene.add_solid(mesh, "beam", material=kn.Solid(mu=1e5, lam=2e5, viscosity=viscosity), skin=None)
    scene.attach("beam", np.flatnonzero(mesh.vertices[:, 0] < 1e-9))
    return kn.compile(scene, dtype=torch.float64)


def test_a_mass_on_a_spring_follows_the_formula():
    """x' = (x + dt v) / (1 + dt^2 k/m), v' = (x' - x) / dt for a spring of rest length 0, exactly."""
    scene = kn.Scene(gravity=(0.0, 0.0, 0.0))
    k, m, dt = 40.0, 0.5, 0.1
    springs = kn.Springs([[0, 1]], stiffness=k, rest=0.0)
    scene.add_particles([[0.0, 0.0, 0.0], [0.3, -0.2, 0.1]], "pair", mass=m, springs=springs, skin=None)
    scene.attach("pair", [0])
    model = kn.compile(scene, dtype=torch.float64)
    path = run(model, 20, dt)
    x, v = model.initial_state().x[1], torch.zeros(3, dtype=torch.float64)
    for step in range(1, 21):
        after = (x + dt * v) / (1 + dt * dt * k / m)
        x, v = after, (after - x) / dt
        torch.testing.assert_close(path.x[step, 1], x, rtol=1e-9, atol=1e-11)  # 1e-10 of the displacement, 20 times


def test_order_of_convergence():
    """The error halves with the step; the reference is semi-implicit Euler with steps 32 times shorter."""
    model, end = hanging(), 0.1
    exact = run(model, 3200, end / 3200, "euler").end.x
    errors = [float((run(model, n, end / n).end.x - exact).norm()) for n in (25, 50, 100)]
    ratios = [a / b for a, b in zip(errors, errors[1:], strict=False)]
    assert all(1.8 < ratio < 2.2 for ratio in ratios), (errors, ratios)


def test_long_steps_come_to_rest_where_short_ones_do():
    """At 1/60 s, far beyond the limit of explicit steps, a beam ends in the equilibrium of forces."""
    model = hanging(viscosity=1e4)
    path = run(model, 600, 1 / 60)
    assert float(path.end.xd.abs().max()) < 1e-6
    with pytest.warns(kn.StabilityWarning):
        run(model, 1, 1 / 60, "euler", options=kn.RunOptions(on_failure="status"))
    still = run(model, 1, 1e-5, "euler", state=kn.State(x=path.end.x))  # an explicit step from there: no acceleration
    assert float(still.end.xd.abs().max()) / 1e-5 < 1e-3 * 9.81


def test_cloth_runs_at_a_sixtieth():
    scene = kn.Scene()
    mesh = sheet(0.5, 0.5, (5, 5))
    scene.add_cloth(mesh, "flag", material=kn.Cloth(0.2, 5e3, 5e3, bending=1e-3, drag=0.3), skin=None)
    scene.attach("flag", [0, 5])
    model = kn.compile(scene, dtype=torch.float64)
    path = run(model, 60, 1 / 60)
    a, b = torch.tensor(mesh.faces[:, :2].T.astype(np.int64))
    longer = (path.end.x[a] - path.end.x[b]).norm(dim=-1) / (path.x[0, a] - path.x[0, b]).norm(dim=-1)
    assert float(longer.max()) < 1.05  # stiff cloth: no edge is 5 % longer than at rest
    assert float(path.end.x[:, 2].min()) < -0.3


def test_momentum_of_a_free_body():
    """Linear momentum is kept to the precision of steps."""
    scene = kn.Scene(gravity=(0.0, 0.0, 0.0))
    rng = np.random.default_rng(0)
    mesh = block((2, 1, 1), 0.1)
    velocity = 0.2 * rng.normal(size=mesh.vertices.shape)
    scene.add_solid(mesh, "free", material=kn.Solid(mu=1e5, lam=2e5), skin=None, velocity=velocity)
    model = kn.compile(scene, dtype=torch.float64)
    mass = 1.0 / model.resolve()["inv_mass"]

    def momentum(v: Tensor) -> Tensor:
        return (mass[:, None] * v).sum(0)

    path = run(model, 50, 1 / 100)
    change = momentum(path.xd[-1]) - momentum(path.xd[0])
    assert float(change.norm()) < 1e-9 * float((mass[:, None] * path.xd[0]).norm())


def test_angular_momentum_is_lost_at_first_order():
    """Of a block that turns by a radian: half the step, half the loss."""
    scene = kn.Scene(gravity=(0.0, 0.0, 0.0))
    mesh = block((2, 1, 1), 0.1)
    spin = np.cross((0.3, -0.5, 2.0), mesh.vertices)
    scene.add_solid(mesh, "free", material=kn.Solid(mu=1e5, lam=2e5), skin=None, velocity=spin)
    model = kn.compile(scene, dtype=torch.float64)
    mass = 1.0 / model.resolve()["inv_mass"]

    def turning(x: Tensor, v: Tensor) -> Tensor:
        return (mass[:, None] * torch.linalg.cross(x, v)).sum(0)

    losses = []
    for steps in (50, 100, 200):
        path = run(model, steps, 0.5 / steps)
        start = turning(path.x[0], path.xd[0])
        losses.append(float((start - turning(path.end.x, path.end.xd)).norm() / start.norm()))
    ratios = [a / b for a, b in zip(losses, losses[1:], strict=False)]
    assert losses[-1] > 1e-3 and all(1.9 < ratio < 2.1 for ratio in ratios), (losses, ratios)


def test_free_fall_is_that_of_implicit_euler():
    """x_n = x_0 - g dt^2 n (n + 1) / 2."""
    scene = kn.Scene()
    scene.add_particles([[0.0, 0.0, 5.0]], mass=1e-3, skin=None)
    path = run(kn.compile(scene, dtype=torch.float64), 10, 0.02)
    assert float(path.end.x[0, 2]) == pytest.approx(5.0 - 9.81 * 0.02**2 * 55, rel=1e-10)


def test_squashed_flat_and_stretched_bodies_recover():
    scene = kn.Scene(gravity=(0.0, 0.0, 0.0))
    scene.add_solid(block((2, 2, 2), 0.1), material=kn.Solid(mu=1e5, lam=4e5, viscosity=20.0), skin=None)
    model = kn.compile(scene, dtype=torch.float64)
    x = model.initial_state().x
    for scale in ((1.0, 1.0, 0.0), (3.0, 1.0, 1.0), (1.0, 1.0, 0.2)):
        path = run(model, 120, 1 / 60, state=kn.State(x=x * torch.tensor(scale)))
        left = (torch.cdist(path.end.x, path.end.x) - torch.cdist(x, x)).abs().max()
        assert float(left) < 1e-4, scale  # [m], of 0.2


def test_single_precision_is_refused():
    scene = kn.Scene()
    scene.add_solid(block((1, 1, 1), 0.1), skin=None)
    with pytest.raises(kn.InputError, match="double precision"):
        run(kn.compile(scene), 1, 0.01)


def test_a_step_that_is_not_found_raises():
    """Contact so stiff that its on and off cannot be resolved by 60 Newton steps, at a step of a second."""
    scene = kn.Scene()
    scene.add_ground()
    skin = kn.Skin(k_e=1e12, k_d=1e9, k_f=1e9, friction=3.0)
    scene.add_solid(block((2, 2, 2), 0.1), material=kn.Solid(mu=1e3, lam=1e6), skin=skin, pos=(0.0, 0.0, 0.1))
    model = kn.compile(scene, dtype=torch.float64)
    velocity = torch.tensor([30.0, 0.0, -50.0], dtype=torch.float64).expand(27, 3)
    with pytest.raises(kn.SimulationError, match="did not converge"):
        run(model, 3, 1.0, state=kn.State(xd=velocity))


def test_an_adjoint_that_is_not_found_raises(monkeypatch):
    """One round of BiCGSTAB is too few for the adjoint; one of conjugate gradients only makes Newton's method slow."""
    leaves = [torch.tensor(1e4 + s, dtype=torch.float64, requires_grad=True) for s in (0.0, 1.0)]

    def softened(on_failure: str, leaf: Tensor) -> Tensor:
        model = hanging()  # a new one: programs are kept, with what they were made of
        mu = leaf.expand(model.parameters("mu")["mu"].shape)
        path = run(model, 2, 1 / 60, params={"mu": mu, "lam": 2.0 * mu}, options=kn.RunOptions(on_failure=on_failure))
        return path.end.x[:, 2].sum()

    softened("raise", leaves[0]).backward()
    assert leaves[0].grad is not None and bool(leaves[0].grad.isfinite())
    monkeypatch.setattr("kinema.simulation.implicit.ITERATIONS", 1)
    end = softened("raise", leaves[1])
    with pytest.raises(kn.SimulationError, match="gradient of implicit steps is not finite") as caught:
        end.backward()
    assert caught.value.fix and leaves[1].grad is None
    softened("status", leaves[1]).backward()
    assert not bool(leaves[1].grad.isfinite())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_particles_steps_are_those_of_euler(dtype: torch.dtype):
    scene = kn.Scene()
    scene.add_robot(pendulum(2))
    model = kn.compile(scene, dtype=dtype)
    q = torch.tensor([0.3, -0.2], dtype=dtype)
    ends = []
    for integrator in ("euler", "implicit"):
        start = q.clone().requires_grad_()
        end = run(model, 10, 0.01, integrator, state=kn.State(start)).end.q
        ends.append((end.detach(), *torch.autograd.grad(end.sum(), start)))
    assert all(map(torch.equal, *ends))
