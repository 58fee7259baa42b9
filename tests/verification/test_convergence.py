"""The default contact reaches the solution on robots nobody tuned it for, and differentiates it.

Standing and sliding starts of 50 steps, see `kinema.verification.convergence`. The limits: in every step no impulse
would change by more than 1e-8 of the largest one (1e-4 in float32); gradients to forces, velocities, masses and
friction are those of the solution to 1e-5, and never more than 100 times as long; nothing raises.
"""

from __future__ import annotations

import importlib.util

import pytest
import torch

import kinema as kn
from kinema.verification import convergence, legged

SOURCES = list(legged.sources())


def test_the_limits_are_those_that_are_promised():
    assert {torch.float64: 1e-8, torch.float32: 1e-4} == convergence.RESIDUAL
    assert convergence.GRADIENT == 1e-5 and convergence.GROWTH == 100 and convergence.STEPS == 50
    assert len(legged.SPEEDS) * legged.HEADINGS == 24


LONG = ("geared hands", "flat feet 10")


@pytest.mark.parametrize(
    "source",
    [pytest.param(one, id=one.name, marks=[pytest.mark.slow] * (one.name in LONG)) for one in SOURCES],
)
def test_robots_in_double_precision(source: legged.Source):
    seen = convergence.examine(source, kn.Contact())
    assert not seen.failed, "; ".join(seen.failed)
    assert seen.pressing > 0.9  # it touches the floor in nearly every step of every start
    assert seen.residual <= 1e-8 and max(seen.gradient, seen.differences) <= 1e-5 and seen.growth <= 100


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_robots_in_single_precision(source: legged.Source):
    seen = convergence.examine(source, kn.Contact(), torch.float32)
    assert not seen.failed, "; ".join(seen.failed)
    assert seen.residual <= 1e-4


@pytest.mark.slow
def test_every_robot_that_is_installed():
    """Minutes; with gymnasium, pybullet and example-robot-data (the extra `bench`) 95 robots and poses."""
    found = convergence.check(full=True)
    assert not found["failed"], "\n".join(found["failed"])
    assert found["worst_residual"] <= 1e-8 and found["worst_gradient_error"] <= 1e-5
    expected = 14
    expected += 14 if importlib.util.find_spec("gymnasium") else 0
    expected += 18 if importlib.util.find_spec("pybullet_data") else 0
    assert found["robots"] >= expected
