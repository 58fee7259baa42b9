"""Memory of rollouts: predicted, measured, bounded by checkpoints, refused when it does not fit."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import kinema as kn
from kinema.errors import MemoryBudgetError
from kinema.lang import Array, Float, Index, kernel, sin, vec3
from kinema.lang.runtime import memory_budget

STATE = 4 * 8  # bytes of a padded vec3, float64


@kernel
def swing(i: Index, x: Array[vec3], k: Float, x_next: Array[vec3]):
    """A step that is not linear, so that its adjoint needs the state."""
    x_next[i] = x[i] - vec3(sin(x[i].x), sin(x[i].y), sin(x[i].z)) * k


def program(particles: int) -> kn.Program:
    """A state of vec3 and one number."""
    p = kn.Program("swing")
    x, k = p.state("x", vec3, particles), p.parameter("k", Float)
    p.call(swing, x, k, x.next, count=particles)
    return p


def differentiate(particles: int, steps: int, **options: Any) -> tuple[kn.Rollout, torch.Tensor]:
    """A rollout and the gradient of its final state to k."""
    x = torch.linspace(0.1, 1.0, particles * 3, dtype=torch.float64).reshape(particles, 3)
    k = torch.tensor(1e-3, dtype=torch.float64, requires_grad=True)
    result = kn.rollout(program(particles), steps, {"x": x}, {"k": k}, options=kn.RunOptions(**options))
    return result, torch.autograd.grad(result.final["x"].sum(), k)[0]


MEASURE = """
import sys
sys.path.insert(0, {folder!r})
import torch
import test_memory

def peak():  # of this process alone; ru_maxrss starts from the parent's
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

particles, steps, checkpoint = {particles}, {steps}, {checkpoint!r}
test_memory.differentiate(particles, 2)  # everything that is loaded once
before = peak()
result, _ = test_memory.differentiate(particles, steps, checkpoint=checkpoint, threads=1)
after = peak()
print(result.bytes, (after - before) * 1024)
"""


def measured(particles: int, steps: int, checkpoint: int | str = 1) -> tuple[int, int]:
    """Predicted and measured bytes of a rollout with gradient, in a process of its own."""
    text = MEASURE.format(folder=str(Path(__file__).parent), particles=particles, steps=steps, checkpoint=checkpoint)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    predicted, seen = map(int, done.stdout.split())
    return predicted, seen


def test_peak_is_checkpoints_and_one_step():
    """5,000 steps with gradients: the kept states and little else; the prediction holds within 30 %."""
    particles, steps = 256, 5000
    predicted, seen = measured(particles, steps)
    states = (steps + 1) * particles * STATE
    assert states <= predicted <= 1.05 * states
    assert abs(seen - predicted) <= 0.3 * predicted


def test_peak_grows_with_the_state_alone():
    """Twice the particles, twice the memory; one tenth of the checkpoints, about one tenth of it."""
    once, twice = measured(256, 5000)[1], measured(512, 5000)[1]
    assert 1.7 < twice / once < 2.3
    tenth = measured(256, 5000, checkpoint=10)[1]
    # kept: 500 states, a segment of 11, cotangents; the process itself moves by about 1 MB
    assert tenth < 0.1 * once + 2e6


def test_too_much_is_refused_before_it_runs_and_names_what_fits():
    """The interval in the message really fits, and the one below does not."""
    particles, steps = 64, 1000
    budget = 300 * particles * STATE
    with pytest.raises(MemoryBudgetError, match="checkpoint=") as error:
        differentiate(particles, steps, memory_budget=budget)
    named = int(str(error.value).split("checkpoint=")[2].split(",")[0])
    assert differentiate(particles, steps, memory_budget=budget, checkpoint=named)[0].bytes <= budget
    with pytest.raises(MemoryBudgetError):
        differentiate(particles, steps, memory_budget=budget, checkpoint=named - 1)


def test_auto_takes_the_smallest_interval_that_fits():
    """With plenty of memory it is 1; with little it is larger, and the gradient has the same bits."""
    result, exact = differentiate(64, 400, checkpoint="auto")
    assert result.interval == 1
    small, same = differentiate(64, 400, checkpoint="auto", memory_budget=100 * 64 * STATE)
    assert small.interval > 1
    assert small.bytes <= 100 * 64 * STATE
    assert torch.equal(same, exact)


def test_nothing_fits():
    """Below the least possible memory there is no interval to name."""
    with pytest.raises(MemoryBudgetError, match="any checkpoint interval"):
        differentiate(64, 400, checkpoint="auto", memory_budget=1000)


def test_the_system_is_asked_now_and_then(monkeypatch: pytest.MonkeyPatch):
    """Not for each of many rollouts that take little of what is left; but for each that takes much of it."""
    asked: list[int] = []
    monkeypatch.setattr(memory_budget, "available", lambda: asked.append(1) or 1 << 34)
    monkeypatch.setattr(memory_budget, "_last", (-math.inf, 0))
    for _ in range(5):
        memory_budget.require(memory_budget.TRIFLE + 1, None)
        assert memory_budget.choose_interval("auto", memory_budget.TRIFLE, 10, 0, None) == 1
    assert len(asked) == 1
    for _ in range(5):
        memory_budget.require(1 << 33, None)
    assert len(asked) == 6
    with pytest.raises(MemoryBudgetError):
        memory_budget.require(1 << 34, None)


def test_without_gradient_nothing_is_kept():
    """Two states, whatever the number of steps."""
    x = torch.zeros(64, 3)
    with torch.no_grad():
        results = [
            kn.rollout(program(64), n, {"x": x}, {"k": torch.tensor(1e-3)}, options=kn.RunOptions(threads=1))
            for n in (10, 1000)
        ]
    assert [r.interval for r in results] == [0, 0]
    assert results[0].bytes == results[1].bytes


@pytest.mark.parametrize("steps", [1, 2, 10, 1000, 12345])
def test_best_interval_is_minimal(steps: int):
    """The interval is the first that fits, and the square root of the steps fits best of all."""
    root = max(math.isqrt(steps), 1)
    least = memory_budget.checkpoint_bytes(1, steps, root)
    assert memory_budget.best_interval(1, steps, steps + 1) == 1
    found = memory_budget.best_interval(1, steps, least)
    assert found is not None
    assert memory_budget.checkpoint_bytes(1, steps, found) <= least
    assert memory_budget.best_interval(1, steps, 0) is None
