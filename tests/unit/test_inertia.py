"""Mass and inertia that stay physical: any ten numbers are a body, and every body is ten numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import Body, Joint, MassProperties, Pose, Robot

BODIES = 200


def random_theta(count: int = BODIES, spread: float = 1.0) -> Tensor:
    return spread * torch.randn(count, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def matrices(inertia: Tensor) -> Tensor:
    return inertia[..., [0, 1, 2, 1, 3, 4, 2, 4, 5]].unflatten(-1, (3, 3))


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_any_ten_numbers_are_a_body(spread):
    found = kn.inertia.from_log_cholesky(random_theta(spread=spread))
    moments = torch.linalg.eigvalsh(matrices(found.inertia))
    assert (found.mass > 0).all() and (moments > 0).all()
    # The smallest width squared is positive; eigenvalues are good to a few roundings of the largest.
    assert (moments[:, 0] + moments[:, 1] - moments[:, 2] > -1e-15 * moments[:, 2]).all()
    if spread <= 1:
        kn.inertia.check_physical(*found)


def test_there_and_back():
    """To rounding, times the ratio of a body's widths squared, some hundreds here."""
    theta = random_theta(spread=0.5)
    found = kn.inertia.from_log_cholesky(theta)
    again = kn.inertia.to_log_cholesky(*found)
    assert (again - theta).abs().max() <= 1e-12
    for one, two in zip(found, kn.inertia.from_log_cholesky(again), strict=True):
        assert (one - two).abs().max() <= 1e-12


def test_it_is_the_pseudo_inertia():
    """Second moments of points that make a body: U U^T of the ten numbers of its mass, centre and inertia."""
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(12, 3, dtype=torch.float64, generator=generator)
    weights = torch.rand(12, dtype=torch.float64, generator=generator)
    mass, com = weights.sum(), (weights[:, None] * points).sum(0) / weights.sum()
    arms = points - com
    outer = (weights[:, None, None] * arms[:, :, None] * arms[:, None, :]).sum(0)
    inertia = torch.eye(3, dtype=torch.float64) * outer.trace() - outer
    theta = kn.inertia.to_log_cholesky(mass, com, inertia[tuple(torch.triu_indices(3, 3))])
    alpha, d1, d2, d3, s12, s23, s13, *t = theta.tolist()
    U = torch.tensor([[0, s12, s13, t[0]], [0, 0, s23, t[1]], [0, 0, 0, t[2]], [0, 0, 0, 1]], dtype=torch.float64)
    U = (U + torch.diag(torch.tensor([*torch.tensor([d1, d2, d3]).double().exp().tolist(), 0.0]))) * theta[0].exp()
    homogeneous = torch.cat([points, torch.ones(12, 1, dtype=torch.float64)], 1)
    assert torch.allclose(U @ U.T, homogeneous.T @ (weights[:, None] * homogeneous), rtol=0, atol=1e-6) and alpha < 2


def test_gradients():
    theta = random_theta(3, 0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: tuple(kn.inertia.from_log_cholesky(x)), theta, atol=1e-8, rtol=1e-7)
    body = tuple(t.detach().requires_grad_() for t in kn.inertia.from_log_cholesky(theta))
    assert torch.autograd.gradcheck(kn.inertia.to_log_cholesky, body, atol=1e-6, rtol=1e-6)


def as_tensors(mass: float, *inertia: float) -> tuple[Tensor, Tensor, Tensor]:
    return torch.tensor(mass), torch.zeros(3), torch.tensor(inertia)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (as_tensors(1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 2.5), "not physical.*principal moments 1, 1, 2.5"),
        (as_tensors(1.0, 1.0, 0.0, 0.9, 1.0, 0.0, 1.0), "not physical"),
        (as_tensors(-1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0), "not physical.*mass -1 kg"),
        (as_tensors(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), "no extent in some direction.*thicker"),
        (as_tensors(1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 2.0), "no extent in some direction"),
        (as_tensors(1.0, float("nan"), 0.0, 0.0, 1.0, 0.0, 1.0), "not finite"),
        ((torch.ones(2), torch.zeros(3), torch.tensor([[1.0, 0, 0, 1, 0, 1], [1.0, 0, 0, 1, 0, 9]])), "body 1"),
        ((1.0, torch.zeros(3), torch.zeros(6)), "mass has the wrong type"),
        ((torch.ones(()), torch.zeros(3), torch.zeros(3, 3)), "inertia has the wrong shape"),
    ],
)  # fmt: skip
def test_what_is_no_body(body, told):
    with pytest.raises(kn.InputError, match=f"(?s){told}"):
        kn.inertia.to_log_cholesky(*body)


def test_what_is_no_theta():
    with pytest.raises(kn.InputError, match="theta does not describe bodies"):
        kn.inertia.from_log_cholesky(torch.zeros(9))


@pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")
def test_a_fit_stays_physical():
    """A tumbling body's inertia from its motion: large steps leave what bodies can be, unless they are in theta."""
    true = MassProperties(2.0, (0.0, 0.0, 0.0), (0.03, 0.004, 0.0, 0.05, 0.0, 0.075))  # a thin plate
    scene = kn.Scene((0.0, 0.0, 0.0))
    scene.add_robot(Robot("r", (Body("b", None, Pose(), (Joint("free", "free"),), true),)))
    model = kn.compile(scene)
    generator = torch.Generator().manual_seed(2)
    spins, pushes = (torch.randn(6, *n, 6, dtype=torch.float64, generator=generator) for n in ((), (20,)))
    q, numbers = model.initial_state().q.expand(6, -1), model.parameters("mass", "com", "inertia")

    def end(params: dict[str, Tensor]) -> Tensor:
        return kn.simulate(
            model, kn.State(q, spins), u=kn.Control(wrenches={"r/b": pushes}), params=params, steps=20, dt=1e-2
        ).end.v

    def fit(leaf: Tensor, make: Callable[[Tensor], dict[str, Tensor]], rate: float, rounds: int) -> tuple[float, bool]:
        """The share of the first error that is left, and whether the body could exist all the way."""
        optimiser, physical, errors = torch.optim.Adam([leaf], lr=rate), True, []
        for _ in range(rounds):
            params = make(leaf)
            moments = torch.linalg.eigvalsh(matrices(params["inertia"].detach()))
            physical &= bool((moments[..., 0] + moments[..., 1] > moments[..., 2]).all())
            loss = (end(params) - wanted).square().mean()
            errors.append(loss.item())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return errors[-1] / errors[0], physical

    wanted = end(numbers)
    start = torch.tensor([[0.06, 0.0, 0.0, 0.04, 0.0, 0.05]], dtype=torch.float64)
    theta = kn.inertia.to_log_cholesky(numbers["mass"], numbers["com"], start).requires_grad_()
    left, physical = fit(theta, lambda x: kn.inertia.from_log_cholesky(x)._asdict(), 0.05, 80)
    assert physical and left < 0.03, left  # Adam still swings about the end
    left, physical = fit(start.clone().requires_grad_(), lambda x: {"inertia": x}, 0.005, 20)
    assert not physical, left
