"""Rows of `kinema verify` on rollouts of soft blocks and standing quadrupeds: what they see, and that they can fail."""

from __future__ import annotations

import pytest
import torch

from kinema import verify
from kinema.lang import build

pytestmark = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")


@pytest.mark.parametrize("row", [verify._gradients, verify._dot_products, verify._bits, verify._injection])
def test_rows_hold(row):
    ok, told = row(range(1))
    assert ok, told


def test_a_wrong_gradient_is_noticed(monkeypatch):
    """By a hundredth of the gradient to masses, one of many."""
    right = verify._Case.gradients

    def wrong(case, *given, **words):
        found = right(case, *given, **words)
        return {n: g * (1 + 1e-2 * (n == "mass")) for n, g in found.items()}

    monkeypatch.setattr(verify, "KINDS", {"quadruped": verify.standing_robot})
    monkeypatch.setattr(verify._Case, "gradients", wrong)
    assert not verify._gradients(range(1))[0] and not verify._dot_products(range(1))[0]


def test_a_foot_in_the_air_is_noticed(monkeypatch):
    def lifted(seed: int, worlds: int = 0) -> verify.Inputs:
        program, state, parameters, controls = verify.standing_robot(seed, worlds)
        state["q"] = state["q"] + torch.eye(len(state["q"]), dtype=torch.float64)[2]
        return program, state, parameters, controls

    monkeypatch.setattr(verify, "KINDS", {"quadruped": lifted})
    ok, told = verify._gradients(range(1))
    assert not ok and "without a foot on the ground" in told


@pytest.mark.skipif(not verify.STATM.exists(), reason="no /proc")
def test_memory_that_stays_is_seen(monkeypatch: pytest.MonkeyPatch):
    kept: list[torch.Tensor] = []
    monkeypatch.setattr(verify.random_images, "MODES", ())
    monkeypatch.setattr(verify, "KINDS", {"quadruped": verify.standing_robot})
    monkeypatch.setattr(verify._Case, "gradients", lambda case, steps: torch.ones(1000))
    assert verify._memory(range(2))[0]
    monkeypatch.setattr(verify._Case, "gradients", lambda case, steps: kept.append(torch.ones(1000)))
    ok, told = verify._memory(range(4))
    assert not ok and 8 < float(told.split(" MB")[0]) < 16, f"4 kB in each of three thousand calls, but {told}"
