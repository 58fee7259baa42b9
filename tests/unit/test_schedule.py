"""The order of elements and chunks: permutations, groups whose writes do not meet, sets in place of zeros."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import support
from kinema.lang import Array, Float, Index, Int, build, inputs, kernel, native, vec3
from kinema.lang.bridge import rollout
from kinema.lang.native import GROUP
from kinema.lang.plan import Options, Plan
from kinema.lang.program import Program
from kinema.lang.schedule import chunk_schedule, packet_order


@kernel
def pull(e: Index, ends: Array[Int], k: Array[Float], x: Array[Float], f: Array[Float]):
    """Springs between points, two Ints each."""
    a, b = ends[2 * e], ends[2 * e + 1]
    force = k[e] * (x[b] - x[a])
    f[a] += force
    f[b] -= force


def schedule_of(pairs: np.ndarray):
    forward = pull.forward()
    table = next(a for a in forward.arrays if a.name == "ends")
    return chunk_schedule(forward, {table: pairs.reshape(-1, 1)}, len(pairs))


@pytest.mark.parametrize("count", [1, 7, 8, 9, 255, 256, 257, 1000])
@pytest.mark.parametrize("nodes", [2, 30, 4000])
def test_groups_are_apart_exactly_if_no_node_repeats(count, nodes):
    pairs = np.random.default_rng(count * nodes).integers(0, nodes, (count, 2))
    groups = [pairs[g : g + GROUP].ravel() for g in range(0, count, GROUP)]
    assert schedule_of(pairs).apart.tolist() == [int(len(set(g)) == len(g)) for g in groups]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 250, 256, 259, 1000])
def test_packet_order_is_a_permutation_that_keeps_chunks_together(count):
    table = np.random.default_rng(count).integers(0, 90, (count, 4))
    order = packet_order(table)
    assert sorted(order) == list(range(count))
    chunks = [order[c : c + native.CHUNK] // native.CHUNK for c in range(0, count, native.CHUNK)]
    assert all(len(set(c)) == 1 for c in chunks)


def test_full_chunks_are_stored_in_the_order_in_which_they_run():
    """A chain of springs, whose neighbouring chunks share a node; the last chunk is not full, and stays the last."""
    ends = np.stack([np.arange(6 * native.CHUNK + 9), np.arange(1, 6 * native.CHUNK + 10)], axis=1)
    assert schedule_of(ends).chunks.tolist() == [0, 2, 4, 6, 1, 3, 5]
    found = schedule_of(ends[packet_order(ends)])
    assert found.colours == 2
    assert found.chunks.tolist() == [0, 1, 2, 6, 3, 4, 5]


def test_packet_order_sets_the_elements_of_a_mesh_apart():
    """In the order in which a block is made, no group of its tetrahedra is apart: neighbours share nodes."""
    tets = support.soft_block((8, 10, 10))[1].tets
    share = [len(set(tets[g].ravel())) == 4 * GROUP for g in np.arange(len(tets)).reshape(-1, GROUP)]
    ordered = tets[packet_order(tets)].reshape(-1, 4 * GROUP)
    assert not any(share)
    assert np.mean([len(set(g)) == 4 * GROUP for g in ordered]) > 0.95


@pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("nodes", [40, 3000])
def test_sums_keep_their_order_whether_apart_or_not(nodes, monkeypatch):
    """Rounding differs with the order of additions; it must be that of one lane."""
    pairs = np.random.default_rng(nodes).integers(0, nodes, (1500, 2)).astype(np.int32)
    apart = schedule_of(pairs).apart
    assert (apart.mean() < 0.1) if nodes == 40 else (apart.mean() > 0.9)
    found = {}
    for width in (1, 2, 4, 8):
        monkeypatch.setattr(inputs, "width_of", lambda precision, width=width: width)
        p = springs(pairs, nodes)
        generator = torch.Generator().manual_seed(0)
        x = torch.rand(nodes, 3, generator=generator)
        k = torch.rand(len(pairs), generator=generator)
        found[width] = rollout(p, 1, {"x": x}, {"k": k}, progress=False).final["x"]
    assert all(torch.equal(found[1], found[w]) for w in (2, 4, 8))


def springs(pairs: np.ndarray, nodes: int) -> Program:
    p = Program("springs")
    x, k = p.state("x", vec3, nodes), p.parameter("k", Float, len(pairs))
    first, second = (p.constant(n, Int, pairs[:, c]) for c, n in enumerate(("first", "second")))
    f = p.scratch("f", vec3, nodes)
    p.call(pull_points, first, second, k, x, f, count=len(pairs))
    p.call(move_points, x, f, x.next, count=nodes)
    return p


@kernel
def pull_points(e: Index, first: Array[Int], second: Array[Int], k: Array[Float], x: Array[vec3], f: Array[vec3]):
    a, b = first[e], second[e]
    force = k[e] * (x[b] - x[a])
    f[a] += force
    f[b] -= force


@kernel
def move_points(e: Index, x: Array[vec3], f: Array[vec3], x_next: Array[vec3]):
    x_next[e] = x[e] + 0.1 * f[e]


# -- what the first writer sets need not be zero ---------------------------------------------------------------------


@kernel
def halve(e: Index, x: Array[Float], y: Array[Float]):
    y[e] = 0.5 * x[e]


@kernel
def square(e: Index, x: Array[Float], y: Array[Float], x_next: Array[Float]):
    x_next[e] = x[e] * y[e]


def zeros_of(program: Program) -> list[str]:
    """Buffers that the reverse list of a step zeroes."""
    made = Plan(program, Options(precision=8, width=4))
    listed = made.instructions("reverse")
    names = {number: name for (name, _), number in made.table.items()}
    return [names[i.refs[0][0]] for i in listed if i.op == native.OP_ZERO]


def halving(count: int, points: int = 40) -> Program:
    p = Program("halving")
    x, y = p.state("x", Float, points), p.scratch("y", Float, points)
    p.call(halve, x, y, count=points)
    p.call(square, x, y, x.next, count=count)
    return p


def test_first_writers_set():
    assert zeros_of(halving(40)) == []


def test_what_is_not_wholly_written_is_zeroed():
    """Elements 30 to 39 get no cotangent from the last kernel, and must not keep that of another step."""
    assert sorted(zeros_of(halving(30))) == ["x", "y"]


@pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("count", [40, 30])
def test_gradients_over_steps_with_and_without_zeros(count):
    x = torch.linspace(0.5, 2, 40, dtype=torch.float64).requires_grad_()
    final = rollout(halving(count), 3, {"x": x}, {}, progress=False).final["x"]
    final.sum().backward()
    y = x.detach().clone().requires_grad_()
    z = y
    for _ in range(3):
        z = torch.cat([0.5 * z[:count] ** 2, torch.zeros(40 - count, dtype=torch.float64)])
    z.sum().backward()
    assert torch.allclose(final, z, rtol=1e-15) and torch.allclose(x.grad, y.grad, rtol=1e-14)
