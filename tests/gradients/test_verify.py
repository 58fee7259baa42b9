"""Rows of `kinema verify` on rollouts of soft blocks and standing quadrupeds: what they see, and that they can fail."""

from __future__ import annotations

import os

import pytest
import torch

from kinema.lang.build import compiler
from kinema.verification import verify

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")


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


class Grown:
    """A process that grows by so many MB from one look at it to the next."""

    def __init__(self, megabytes: float) -> None:
        self.pages, self.more = 1000.0, megabytes * 1e6 / os.sysconf("SC_PAGE_SIZE")

    def exists(self) -> bool:
        return True

    def read_text(self) -> str:
        self.pages += self.more
        return f"9999 {self.pages:.0f} 1 1 0 1 0"


def test_memory_that_stays_is_seen(monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []
    monkeypatch.setattr(verify.random_images, "MODES", ())
    monkeypatch.setattr(verify, "KINDS", {"quadruped": verify.standing_robot})
    monkeypatch.setattr(verify._Case, "gradients", lambda case, steps: calls.append(steps))
    for megabytes, told in ((0.5, "+1.5 MB in 3000 calls (limit 2 MB)"), (1.0, "+3.0 MB in 3000 calls (limit 2 MB)")):
        monkeypatch.setattr(verify, "STATM", Grown(megabytes))
        assert verify._memory(range(4)) == (megabytes < 0.6, told)
    assert len(calls) == 8000
