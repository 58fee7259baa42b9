"""Kernels whose lanes share their elements: wider registers change no bit; and scattered writes of some lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kinema.lang import Array, Float, Index, Int, kernel, uniform, vec3
from kinema.lang.autograd import inputs
from kinema.lang.autograd.rollout import rollout
from kinema.lang.build import compiler
from kinema.lang.ir import analysis
from kinema.lang.kernels.kernel import Kernel
from kinema.lang.programs.program import Program

PACKET, PACKETS, NODES = 16, 12, 5
compiled = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")


@kernel
def pull(
    p: Index,
    start: Array[Int],
    listed: Array[Int],
    at: Array[Float],
    x: Array[vec3],
    sums: Array[vec3],
    own: Array[vec3],
):
    """Every lane pulls at the nodes of its packet, some lanes at none."""
    slot = uniform(p // PACKET)
    own[slot] += vec3(at[p], 2.0 * at[p], 1.0)
    for k in range(start[slot], start[slot + 1]):
        n = listed[k]
        d = at[p] - x[n].x
        if d > 0.1:
            sums[n] += vec3(d * x[n].y, d * d * x[n].z, d / x[n].y)


@kernel
def gather(p: Index, first: Array[Int], second: Array[Int], x: Array[vec3], own: Array[vec3]):
    """Lanes share where they add to, and have all else of their own."""
    own[uniform(p // PACKET)] += x[first[p]] + x[second[p]]


@kernel
def deal(p: Index, way: Int, to: Array[Int], at: Array[Float], left: Array[vec3], right: Array[vec3]):
    """Scattered writes in blocks that are run for all lanes, for some, or for none."""
    if way > 0:
        left[to[p]] += vec3(at[p], 1.0, 0.0)
        if at[p] > 0.5:
            right[to[p]] += vec3(0.1, at[p], at[p])
            left[to[p]] += vec3(0.1, 0.0, at[p])
    else:
        right[to[p]] += vec3(at[p], 0.0, 1.0)
        if at[p] > 0.9:
            left[to[p]] += vec3(0.7, at[p], 0.3)


@kernel
def move(n: Index, x: Array[vec3], a: Array[vec3], b: Array[vec3], following: Array[vec3]):
    following[n] = x[n] + 0.1 * a[n] - 0.01 * b[n]


def pulled(most: int, precision: torch.dtype) -> dict[str, torch.Tensor]:
    """Nodes after the pull of packets with up to so many entries, and the gradients to all that pulls."""
    rng = np.random.default_rng(most)
    counts = rng.integers(0, most + 1, PACKETS)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    p = Program("pull")
    x = p.state("x", vec3, NODES)
    at = p.parameter("at", Float, PACKET * PACKETS)
    sums, own = p.scratch("sums", vec3, NODES), p.scratch("own", vec3, PACKETS)
    tables = (
        p.constant("start", Int, start),
        p.constant("listed", Int, rng.integers(0, NODES, start[-1]).astype(np.int32)),
    )
    p.call(pull, *tables, at, x, sums, own, count=PACKET * PACKETS)
    p.call(move, x, sums, own, x.next, count=NODES)
    return ran(p, x=torch.tensor(0.1 + rng.random((NODES, 3)), dtype=precision), at=random(rng, precision))


def random(rng: np.random.Generator, precision: torch.dtype) -> torch.Tensor:
    return torch.tensor(rng.random(PACKET * PACKETS), dtype=precision)


def ran(p: Program, x: torch.Tensor, at: torch.Tensor) -> dict[str, torch.Tensor]:
    x, at = x.requires_grad_(), at.requires_grad_()
    end = rollout(p, 1, {"x": x}, {"at": at}).final["x"]
    gradients = torch.autograd.grad((end * torch.linspace(0.3, 1.7, end.numel()).reshape(end.shape)).sum(), (x, at))
    return {"end": end, "x": gradients[0], "at": gradients[1]}


@pytest.mark.parametrize("used, expected", [(pull, True), (gather, False), (deal, False), (move, False)])
def test_which_kernels_share_their_elements(used: Kernel, expected: bool) -> None:
    assert analysis.shares_its_elements(used.forward()) == expected


@compiled
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("most", [1, 7, 400])  # 400: more than wait at first
def test_wide_lanes_change_no_bit(most: int, precision: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = pulled(most, precision)
    monkeypatch.setattr(analysis, "shares_its_elements", lambda kernel: False)
    narrow = pulled(most, precision)
    for name, value in narrow.items():
        assert torch.equal(value, wide[name]), name
        assert value.abs().max() > 0


@compiled
@pytest.mark.parametrize("way", [0, 1])
def test_scattered_writes_of_blocks_that_were_run(way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for width in (1, 2, 8):
        monkeypatch.setattr(inputs, "width_of", lambda precision, width=width: width)
        rng = np.random.default_rng(0)
        p = Program("deal")
        x, at = p.state("x", vec3, NODES), p.parameter("at", Float, PACKET * PACKETS)
        left, right = p.scratch("left", vec3, NODES), p.scratch("right", vec3, NODES)
        to: Any = p.constant("to", Int, rng.integers(0, NODES, PACKET * PACKETS).astype(np.int32))
        p.call(deal, p.constant("way", Int, way), to, at, left, right, count=PACKET * PACKETS - 3)
        p.call(move, x, left, right, x.next, count=NODES)
        found.append(ran(p, torch.zeros(NODES, 3), random(rng, torch.float32)))
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0].values(), other.values(), strict=True))
    assert found[0]["at"].abs().max() > 0
