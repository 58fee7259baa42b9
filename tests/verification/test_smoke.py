"""Smoke: divergence after the projection, transport and its order, mass, a vortex that stands, and misuse."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from tests.smoke_twin import projector
from torch import Tensor

import kinema as kn

BOXES = {
    "closed": kn.SmokeBox((16, 12)),
    "periodic": kn.SmokeBox((16, 12), periodic=True),
    "channel": kn.SmokeBox((13, 10), periodic=(True, False)),
}
# The most divergence a step leaves, in units of the largest velocity per width of a cell: rounding of the pressure,
# which is up to n/pi times the velocity in boxes of n cells, so some n roundings of 1e-16 or 6e-8 at most.
LEFT = {torch.float64: 1e-14, torch.float32: 1e-5}


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def projected(box: kn.SmokeBox, velocity: Tensor) -> Tensor:
    """What the kernels make of a velocity: smoke at rest, pushed for a step."""
    density = torch.zeros(1, *box.cells, dtype=velocity.dtype)
    return kn.simulate_smoke(box, density, force=velocity[None], steps=1, dt=1.0).end.velocity


def left(box: kn.SmokeBox, velocity: Tensor) -> float:
    """Divergence in units of the largest velocity per width of a cell."""
    return float(box.divergence(velocity).abs().max() * box.cell / velocity.abs().max())


def stream(box: kn.SmokeBox, psi) -> Tensor:
    """The velocity of a stream function of x and y [m^2/s], given at corners: without divergence to rounding."""
    x, y = (torch.arange(n + 1, dtype=torch.float64) * box.cell for n in box.cells)
    at = psi(x[:, None], y)
    return torch.stack((at[:-1, 1:] - at[:-1, :-1], at[:-1, :-1] - at[1:, :-1])) / box.cell


def vortices(x: Tensor, y: Tensor) -> Tensor:
    """Four vortices of Taylor and Green [m^2/s]: a stationary flow of a periodic and of a closed box of 1 m."""
    return torch.sin(2 * math.pi * x) * torch.sin(2 * math.pi * y) / (2 * math.pi)


# -- projection ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BOXES)
def test_the_projection_is_the_orthogonal_one(kind: str):
    """Against a dense one from the pseudo-inverse of the divergence; done twice it changes nothing; symmetric."""
    box = BOXES[kind]
    one, two = noise(2, *box.cells, seed=1), noise(2, *box.cells, seed=2)
    found = projected(box, one)
    dense = (projector(box) @ one.reshape(-1)).reshape(one.shape)
    assert float((found - dense).abs().max()) <= 1e-12
    assert float((box.project(one) - dense).abs().max()) <= 1e-12
    assert float((projected(box, found) - found).abs().max()) <= 1e-14
    assert abs(float((projected(box, two) * one).sum() - (two * found).sum())) <= 1e-12
    assert float((one - found).abs().max()) > 0.1
    if kind == "closed":
        assert not found[0, 0].any() and not found[1, :, 0].any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("periodic", [False, True], ids=["closed", "periodic"])
def test_divergence_after_each_step(periodic: bool, dtype: torch.dtype):
    """A large box, stirred at random: the worst case, since smooth flows leave less."""
    box = kn.SmokeBox((110, 97), 1.1, periodic)
    start, force = noise(2, 110, 97).to(dtype), noise(10, 2, 110, 97).to(dtype)
    density = torch.zeros(1, 110, 97, dtype=dtype)
    run = kn.simulate_smoke(box, density, start, force=force, steps=10, dt=0.01)
    assert left(box, start) > 0.1
    assert max(left(box, v) for v in run.velocity) <= LEFT[dtype]


def test_smoke_of_one_density_stays_at_rest():
    """Buoyancy that is the same everywhere is held by the pressure."""
    box = BOXES["closed"]
    density = torch.ones(1, *box.cells, dtype=torch.float64)
    run = kn.simulate_smoke(box, density, buoyancy=torch.tensor([9.81]).double(), steps=50, dt=0.02)
    # 50 steps of 0.2 m/s, each held to rounding.
    assert float(run.end.velocity.abs().max()) <= 1e-13 and torch.equal(run.end.density, density)


def test_light_smoke_rises():
    box = kn.SmokeBox((32, 32))
    x, y = box.centres()
    blob = torch.exp(-((x - 0.5) ** 2 + (y - 0.3) ** 2) / 0.01)
    run = kn.simulate_smoke(box, blob[None], buoyancy=torch.tensor([5.0]).double(), steps=40, dt=0.02)
    heights = (run.density[:, 0] * y).sum((1, 2)) / run.density[:, 0].sum((1, 2))
    assert float(heights[-1] - heights[0]) > 0.1
    mirrored = run.end.density[0].flip(0)
    assert float((mirrored - run.end.density[0]).abs().max()) <= 1e-10  # the flow is symmetric, to rounding


def test_a_trajectory_holds_states():
    box = kn.SmokeBox((5, 4))
    density = torch.rand(3, 2, *box.cells, dtype=torch.float64)
    path = kn.simulate_smoke(box, density, buoyancy=5.0, steps=6, dt=0.02)
    assert path.whole and path.steps == 6 and path.time.tolist() == pytest.approx([0.02 * k for k in range(7)])
    assert path.density.shape == (3, 7, 2, 5, 4) and path.velocity.shape == (3, 7, 2, 5, 4)
    assert torch.equal(path.state(0).density, density) and path.state(6) is path.end is path.state(-1)
    for k in (2, -2):
        assert torch.equal(path.state(k).density, path.density[:, k])
        assert torch.equal(path.state(k).velocity, path.velocity[:, k])
    assert torch.equal(path.density[:, -1], path.end.density) and torch.equal(path.velocity[:, -1], path.end.velocity)
    for wrong in (7, -8, True, 1.0):
        with pytest.raises(kn.InputError, match="no such state"):
            path.state(wrong)


def test_a_trajectory_that_keeps_only_its_end_says_so():
    box = kn.SmokeBox((5, 4))
    path = kn.simulate_smoke(box, torch.rand(1, 5, 4), steps=4, dt=0.02, options=kn.RunOptions(checkpoint=2))
    assert not path.whole and path.end.density.shape == (1, 5, 4)
    for get in (lambda: path.density, lambda: path.velocity, lambda: path.steps, lambda: path.state(2)):
        with pytest.raises(kn.InputError, match="keeps only its end"):
            get()
    (picture,) = kn.surfaces_of(path)
    assert picture.material.texture.shape[:-3] == (1,)


# -- transport -----------------------------------------------------------------------------------------------------


def test_whole_cells_are_crossed_exactly():
    """Two cells to the right and one down per step: numbers move unchanged, to the rounding of the weights."""
    box = kn.SmokeBox((16, 12), 1.6, periodic=True)
    density = noise(1, 16, 12)
    velocity = torch.tensor([2.0, -1.0]).double()[:, None, None].expand(2, 16, 12)
    run = kn.simulate_smoke(box, density, velocity, steps=5, dt=box.cell)
    assert float((run.end.density - density.roll((10, -5), (1, 2))).abs().max()) <= 1e-13


@pytest.mark.parametrize("conserve", [False, True], ids=["carry", "exchange"])
def test_a_blob_is_carried_with_an_error_of_first_order(conserve: bool):
    """Half a cell per step, once around the box: the blob returns, blurred as by diffusion of the order of a cell.

    Per step of a = 1/2 cell the variance grows by a (1 - a) width^2, which is a viscosity of |u| width (1 - a) / 2. The
    error of linear interpolation is of order width^2 per step, with 2 / width steps: first order. On coarse boxes
    the blob is blurred to the width of the box, so that the order is reached from below.
    """
    errors = []
    for n in (128, 256, 512):
        box = kn.SmokeBox((n, 4), 1.0, periodic=True)
        x, _ = box.centres()
        blob = torch.exp(-((x - 0.5) ** 2) / 0.015)[None]
        velocity = torch.zeros(2, *box.cells, dtype=torch.float64)
        velocity[0] = 1.0
        run = kn.simulate_smoke(
            box, blob, velocity, steps=2 * n, dt=0.5 / n, conserve=conserve, options=kn.RunOptions(checkpoint=2 * n)
        )
        errors.append(float((run.end.density - blob).abs().mean()))
        variances = [float((d[0] * (x - 0.5) ** 2).sum() / d[0].sum()) for d in (blob, run.end.density)]
        # The blob's tails at the ends of the box, 5 standard deviations away, are 1e-6 of it.
        assert abs(variances[1] - variances[0] - 2 * box.cell / 4) <= 1e-3 * variances[0]
    orders = [math.log2(a / b) for a, b in zip(errors, errors[1:], strict=False)]
    assert 0.8 < orders[0] < orders[1] < 1.1, (errors, orders)


def test_taylor_green_vortices_stand():
    """They lose energy to interpolation only, the less the smaller the cells: first order at half a cell per step."""
    losses = []
    for n in (32, 64, 128):
        box = kn.SmokeBox((n, n), 1.0, periodic=True)
        start = stream(box, vortices)
        assert left(box, start) <= 1e-13
        density = torch.zeros(1, n, n, dtype=torch.float64)
        run = kn.simulate_smoke(box, density, start, steps=n, dt=0.5 / n, options=kn.RunOptions(checkpoint=n))
        end = run.end.velocity
        losses.append(1.0 - float(end.square().sum() / start.square().sum()))
        # What is left has the shape of the start: the part of it that has not is a few per cent at most.
        share = (end * start).sum() / start.square().sum()
        assert float((end - share * start).norm() / end.norm()) < 0.05
    orders = [math.log2(a / b) for a, b in zip(losses, losses[1:], strict=False)]
    assert 0.0 < losses[-1] < 0.15 and 0.7 < orders[0] < orders[1] < 1.1, (losses, orders)


# -- mass ----------------------------------------------------------------------------------------------------------


def stirred(conserve: bool, kind: str = "closed", n: int = 64, constant: bool = False) -> tuple[Tensor, Tensor]:
    """A blob, or smoke of one density, in four vortices of 1 m/s for 0.8 s, 100 steps of half a cell of 1 / 64 m."""
    box = kn.SmokeBox((n, n), 1.0, kind == "periodic")
    x, y = box.centres()
    density = torch.exp(-((x - 0.4) ** 2 + (y - 0.35) ** 2) / 0.01)
    density = torch.ones_like(x) if constant else density
    steps = 100 * n // 64
    run = kn.simulate_smoke(box, density[None], stream(box, vortices), steps=steps, dt=0.5 / n, conserve=conserve)
    return density, run.end.density[0]


@pytest.mark.parametrize("kind", ["closed", "periodic"])
def test_mass_over_100_steps(kind: str):
    """Carried back, the mass of a blob drifts by 6 %, by 4 % with half the step; exchanged, by rounding."""
    drifts = []
    for n in (64, 128):
        start, end = stirred(conserve=False, kind=kind, n=n)
        drifts.append(float(end.sum() / start.sum()) - 1.0)
    assert 0.03 < abs(drifts[0]) < 0.1 and 1.5 < drifts[0] / drifts[1] < 2.2, drifts  # towards first order
    start, end = stirred(conserve=True, kind=kind)
    assert abs(float(end.sum() / start.sum()) - 1.0) <= 1e-13  # roundings of 1e-16 in 100 steps


@pytest.mark.parametrize("conserve", [False, True], ids=["carry", "exchange"])
def test_what_is_constant_stays_so(conserve: bool):
    """Weights add up to 1; what is exchanged cancels where there is no divergence, of which rounding is left."""
    _, end = stirred(conserve, constant=True)
    assert float((end - 1.0).abs().max()) <= 1e-12


@pytest.mark.parametrize("conserve", [False, True], ids=["carry", "exchange"])
def test_densities_stay_between_the_least_and_the_largest(conserve: bool):
    start, end = stirred(conserve)
    assert float(start.min()) <= float(end.min()) and float(end.max()) <= float(start.max())


# -- misuse --------------------------------------------------------------------------------------------------------


def test_boxes_and_tensors_that_do_not_fit_are_refused():
    for bad in ({"cells": (16,)}, {"cells": (1, 8)}, {"cells": (8, 8), "width": 0.0}, {"cells": (8, 8), "periodic": 2}):
        with pytest.raises(kn.InputError):
            kn.SmokeBox(**bad)
    box, density = kn.SmokeBox((8, 6)), torch.zeros(1, 8, 6)
    run = {"steps": 2, "dt": 0.1}
    for wrong in (
        {"density": density[0]},
        {"density": density.int()},
        {"density": density, "velocity": torch.zeros(1, 8, 6)},
        {"density": density, "velocity": torch.zeros(2, 8, 6).double()},
        {"density": density, "force": torch.zeros(3, 2, 8, 6)},
        {"density": density, "buoyancy": torch.zeros(2)},
        {"density": density, "dt": 0.0},
    ):
        with pytest.raises(kn.InputError):
            kn.simulate_smoke(box, **{**run, **wrong})


def test_cells_that_lose_more_than_they_have_are_reported():
    """With the step that is named there is no warning."""
    box = kn.SmokeBox((32, 32))
    start, density = stream(box, vortices), torch.ones(1, 32, 32, dtype=torch.float64)
    for checkpoint in (1, 4):
        options = kn.RunOptions(checkpoint=checkpoint)
        with pytest.warns(kn.StabilityWarning, match="would be stable") as seen:
            kn.simulate_smoke(box, density, start, steps=4, dt=0.1, conserve=True, options=options)
        named = float(str(seen[0].message).split(", ")[1].split(" s would")[0])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kn.simulate_smoke(box, density, start, steps=4, dt=0.99 * named, conserve=True, options=options)
            kn.simulate_smoke(box, density, start, steps=4, dt=0.1, options=options)


def test_smoke_that_is_not_finite_is_reported():
    """Speeds that overflow: the world's status says when; other worlds go on."""
    box, density = kn.SmokeBox((8, 6)), torch.ones(2, 1, 8, 6)
    force = noise(2, 1, 2, 8, 6).float().expand(2, 3, 2, 8, 6).clone()
    force[1] *= 1e38
    run = kn.simulate_smoke(box, density, force=force, steps=3, dt=100.0, options=kn.RunOptions(on_failure="status"))
    assert run.status.tolist()[0] == -1 and run.status.tolist()[1] >= 0
    with pytest.raises(kn.SimulationError):
        kn.simulate_smoke(box, density, force=force, steps=3, dt=100.0)
