"""The pushed body that experiments share moves as its closed form says."""

from __future__ import annotations

import pytest
import torch

import kinema as kn
from kinema.experiments.pushed import DT, PUSHED, RAISED, SHAPES, STEPS, Pushed, until

F64 = torch.float64


@pytest.mark.parametrize("shape", SHAPES)
def test_the_centre_moves_by_the_push_over_the_mass(shape: str):
    body = Pushed(shape, 7)
    densities = torch.tensor([2.0, 12.0], dtype=F64)
    path = body.fly(densities)
    centre = kn.centre_of_mass(body.model, path.q[:, [0, -1]])
    moved = centre[:, 1] - centre[:, 0]
    time, pushed = STEPS * DT, PUSHED * DT
    # Symplectic Euler: sums of steps, exact for constant accelerations.
    speed = body.push[3:] / densities.unsqueeze(-1)
    fallen = RAISED * time - 9.81 * DT**2 * STEPS * (STEPS + 1) / 2
    expected = speed * (time - pushed + 0.5 * (pushed + DT)) + torch.tensor([0.0, 0.0, fallen], dtype=F64)
    # Rounding of 240 steps of some metres; about an origin beside the centre, steps are of first order in DT.
    aside = float(body.model.resolve()["com"].norm())
    assert aside < 3e-3
    torch.testing.assert_close(moved, expected, rtol=0, atol=1e-10 + 0.3 * aside)


def test_only_the_push_shows_the_mass():
    body = Pushed("box", 7)
    body.wrench.zero_()
    path = body.fly(torch.tensor([2.0, 12.0], dtype=F64))
    torch.testing.assert_close(path.q[0], path.q[1], rtol=0, atol=1e-12)


def test_the_same_seed_draws_the_same_body():
    one, same, other = Pushed("cone", 3), Pushed("cone", 3), Pushed("cone", 4)
    assert one.density == same.density != other.density
    assert torch.equal(one.video(16, 60), same.video(16, 60))


def test_a_time_is_a_whole_number_of_images():
    assert until(None, 16) == STEPS
    assert until(0.3, 16) == 80 and until(STEPS * DT, 16) == STEPS
