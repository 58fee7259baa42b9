"""Smoke: gradients of rollouts against central differences and against a plain twin under autograd."""

from __future__ import annotations

import pytest
import torch
from tests.smoke_twin import near_borders, smoke
from torch import Tensor

import kinema as kn

DT = {False: 0.05, True: 0.01}  # [s], by `conserve`, which needs cells to keep some of what they have
BOXES = {
    "closed": kn.SmokeBox((16, 12), 1.6),
    "periodic": kn.SmokeBox((16, 12), 1.6, periodic=True),
    "channel": kn.SmokeBox((16, 12), 1.6, periodic=(True, False)),
}


def inputs(box: kn.SmokeBox, steps: int) -> dict[str, Tensor]:
    """Smoke that is stirred all the time, by up to some cells per step."""
    made = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=made)

    x, y = box.centres()
    waves = [torch.sin(5.0 * k * x + 4.0 * y + k) for k in (1.0, 2.0)]
    return {
        "density": 1.0 + 0.3 * noise(1, *box.cells),
        "velocity": 2.0 * torch.stack(waves) + 0.5 * noise(2, *box.cells),
        "force": 3.0 * noise(steps, 2, *box.cells) + 2.0 * torch.stack(waves),
        "buoyancy": torch.tensor([1.5], dtype=torch.float64),
    }


def loss_of(box: kn.SmokeBox, steps: int, conserve: bool = False):
    """A random linear function of where smoke ends."""
    made = torch.Generator().manual_seed(1)
    weights = torch.randn(3, *box.cells, dtype=torch.float64, generator=made)

    def loss(t: dict[str, Tensor]) -> Tensor:
        path = kn.simulate_smoke(box, steps=steps, dt=DT[conserve], conserve=conserve, **t)
        return (path.end.density[0] * weights[0]).sum() + 0.3 * (path.end.velocity * weights[1:]).sum()

    return loss, weights


@pytest.mark.parametrize("conserve", [False, True], ids=["carry", "exchange"])
@pytest.mark.parametrize("kind", BOXES)
@pytest.mark.parametrize(("steps", "tolerance"), [(1, 1e-6), (32, 1e-5), (256, 1e-4)])
def test_gradients_of_rollouts(kind: str, steps: int, tolerance: float, conserve: bool, gradient_errors):
    """Where a point comes from a border of interpolation, slopes jump: such points are counted.

    If one is nearer to a border than the differences move it (about h times its way; random directions have entries of
    up to four), the differences are taken closer: a switch can be 1e-4 of a derivative here. One or two
    may remain among the 300,000 coordinates of 256 steps. The differences of one step are small beside the loss and
    need a larger h.
    """
    box, rate = BOXES[kind], DT[conserve] / BOXES[kind].cell
    start = inputs(box, steps)
    loss, _ = loss_of(box, steps, conserve)
    run = kn.simulate_smoke(box, steps=steps, dt=DT[conserve], conserve=conserve, **start)
    speed = float(run.velocity.abs().max()) * rate
    assert 0.3 < speed < 10.0
    for h in (1e-6,) if steps == 1 else (1e-7, 3e-8):
        near, total = near_borders(box, run.velocity, rate, within=4 * h * speed)
        if not near:
            break
    assert near <= 2, (near, total)
    errors = gradient_errors(loss, start, h=h)
    assert max(errors.values()) <= tolerance, errors


@pytest.mark.parametrize("conserve", [False, True], ids=["carry", "exchange"])
@pytest.mark.parametrize("kind", BOXES)
def test_values_and_gradients_are_those_of_a_plain_twin(kind: str, conserve: bool):
    """32 steps: rounding errors of 1e-16 grow with the flow, to about 1e-12."""
    box, steps = BOXES[kind], 32
    loss, weights = loss_of(box, steps, conserve)
    t = {n: a.requires_grad_() for n, a in inputs(box, steps).items()}
    found = loss(t)
    density, velocity = smoke(box, **t, dt=DT[conserve], conserve=conserve)
    expected = (density[0] * weights[0]).sum() + 0.3 * (velocity * weights[1:]).sum()
    assert float((found - expected).detach().abs()) <= 1e-10 * float(expected.detach().abs())
    pairs = (torch.autograd.grad(f, list(t.values())) for f in (found, expected))
    for name, one, two in zip(t, *pairs, strict=True):
        assert float((one - two).abs().max()) <= 1e-10 * float(two.abs().max()), name


def test_several_channels_and_worlds():
    """Two densities with their own buoyancy, in two worlds of their own."""
    box, steps = BOXES["closed"], 8
    start = inputs(box, steps)
    density = torch.stack([start["density"][0], start["density"][0].flip(0)])
    t = {"density": torch.stack([density, 0.5 * density]), "buoyancy": torch.tensor([[1.0, -2.0], [0.5, 0.3]]).double()}
    t = {n: a.requires_grad_() for n, a in t.items()}
    path = kn.simulate_smoke(box, velocity=start["velocity"], steps=steps, dt=DT[False], **t)
    assert path.end.density.shape == (2, 2, 16, 12) and path.end.velocity.shape == (2, 2, 16, 12)
    gradients = torch.autograd.grad(path.end.density.square().sum(), list(t.values()))
    for w in range(2):
        alone = {n: a[w].detach().requires_grad_() for n, a in t.items()}
        one = kn.simulate_smoke(box, velocity=start["velocity"], steps=steps, dt=DT[False], **alone)
        assert torch.equal(one.end.density, path.end.density[w])
        of_one = torch.autograd.grad(one.end.density.square().sum(), list(alone.values()))
        for whole, single in zip(gradients, of_one, strict=True):
            assert torch.equal(whole[w], single)


def test_threads_and_checkpoints_do_not_change_a_bit():
    """Also in float32, on a box with more than one chunk of cells."""
    box = kn.SmokeBox((40, 30), 4.0)
    results = []
    for threads, checkpoint in ((1, 1), (2, 1), (2, 7)):
        t = {n: a.float().requires_grad_() for n, a in inputs(box, 20).items()}
        path = kn.simulate_smoke(
            box, steps=20, dt=DT[False], **t, options=kn.RunOptions(threads=threads, checkpoint=checkpoint)
        )
        results.append([path.end.density, *torch.autograd.grad(path.end.density.square().sum(), list(t.values()))])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
