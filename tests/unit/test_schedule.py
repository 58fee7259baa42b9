"""The order of elements and chunks: permutations, groups whose writes do not meet, sets in place of zeros."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from kinema.lang.autograd.options import RunOptions

sys.path.insert(0, str(Path(__file__).parents[1]))

import support
from kinema.lang import Array, Float, Index, Int, exp, kernel, vec3
from kinema.lang.autograd import inputs
from kinema.lang.autograd.rollout import rollout
from kinema.lang.build import compiler
from kinema.lang.programs.plan import Options, Plan
from kinema.lang.programs.program import Program
from kinema.lang.programs.schedule import chunk_schedule, packet_order
from kinema.lang.runtime import native
from kinema.lang.runtime.native import GROUP


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
    return chunk_schedule(forward, {table: pairs.reshape(-1, 1)}, len(pairs), set())


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


@pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")
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
        found[width] = rollout(p, 1, {"x": x}, {"k": k}).final["x"]
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


# -- sums at indices that lanes share ----------------------------------------------------------------------------------


@kernel
def weigh(e: Index, w: Array[Float], x: Array[Float], total: Array[Float]):
    for j in range(len(w)):
        total[j] += w[j] * x[e]


@kernel
def add_up(j: Index, y: Array[Float], total: Array[Float], y_next: Array[Float]):
    y_next[j] = y[j] + total[j]


def weighing(points: int, weights: int) -> Program:
    p = Program("weighing")
    y, total = p.state("y", Float, weights), p.scratch("total", Float, weights)
    w, x = p.parameter("w", Float, weights), p.parameter("x", Float, points)
    p.call(weigh, w, x, total, count=points)
    p.call(add_up, y, total, y.next, count=weights)
    return p


def is_shared(program: Program, which: str, name: str) -> bool:
    """Whether chunks of this kernel may run at the same time."""
    made = Plan(program, Options(precision=8, width=4, wrt=frozenset({"w", "x"}))).instructions(which)
    (found,) = [i for i in made if i.symbol is not None and name in i.symbol[1]]
    return found.schedule is not None


@pytest.mark.parametrize(("points", "weights", "shared"), [(1000, 5, True), (1000, 2049, False), (200, 5, False)])
def test_chunks_have_their_own_sums_if_these_are_few(points, weights, shared):
    program = weighing(points, weights)
    assert is_shared(program, "forward", "weigh_forward") == shared
    assert is_shared(program, "reverse", "weigh_adjoint") == shared  # the cotangent of w is such a sum


@pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("worlds", [None, 3])
@pytest.mark.parametrize(("points", "weights"), [(40_000, 5), (1_000, 2049)])
def test_sums_of_chunks(points, weights, worlds):
    """Two steps of y += w sum(x): values and gradients are right, bits do not depend on threads or on the batch."""
    generator = torch.Generator().manual_seed(0)
    w, x = (torch.rand(n, generator=generator, dtype=torch.float64).requires_grad_() for n in (weights, points))
    y, cotangent = (torch.rand(weights, generator=generator, dtype=torch.float64) for _ in range(2))
    start = y if worlds is None else y.expand(worlds, -1)
    found = []
    for threads in (1, 2, 4):
        run = rollout(weighing(points, weights), 2, {"y": start}, {"w": w, "x": x}, options=RunOptions(threads=threads))
        final = run.final["y"] if worlds is None else run.final["y"][1]
        found.append((final.detach(), *torch.autograd.grad(final, (w, x), cotangent)))
    for one, other in zip(found[0], found[1], strict=True):
        assert torch.equal(one, other)
    for one, other in zip(found[0], found[2], strict=True):
        assert torch.equal(one, other)
    total, pull = x.sum().detach(), (cotangent @ w).detach()
    expected = y + 2 * w.detach() * total, 2 * cotangent * total, 2 * pull.expand(points)
    for one, right in zip(found[0], expected, strict=True):
        assert torch.allclose(one, right, rtol=1e-13)  # rounding of many additions


# -- kernels that wait for results have twice the lanes ---------------------------------------------------------------


@kernel
def nearness(e: Index, x: Array[Float], w: Array[Float], y: Array[Float]):
    total = 0.0
    for j in range(len(w)):
        total = 0.5 * total + exp(-((x[e] - w[j]) ** 2))
    y[e] = total


@kernel
def follow(e: Index, x: Array[Float], y: Array[Float], x_next: Array[Float]):
    x_next[e] = x[e] + y[e]


def following(points: int, weights: int) -> Program:
    p = Program("following")
    x, y = p.state("x", Float, points), p.scratch("y", Float, points)
    p.call(nearness, x, p.parameter("w", Float, weights), y, count=points)
    p.call(follow, x, y, x.next, count=points)
    return p


def test_a_loop_over_what_lanes_share_has_twice_the_lanes():
    made = Plan(following(40, 3), Options(precision=4, width=8)).instructions("forward")
    texts = {i.symbol[1]: i.symbol[0] for i in made if i.symbol}
    assert "constexpr int W = 16;" in texts["kn_nearness_forward"]
    assert "constexpr int W = 8;" in texts["kn_follow_forward"]


@pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")
def test_twice_the_lanes_have_the_same_bits(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x, w = torch.rand(331, generator=generator), torch.rand(7, generator=generator)
    found = []
    for width in (1, 2, 8):
        monkeypatch.setattr(inputs, "width_of", lambda precision, width=width: width)
        found.append(rollout(following(331, 7), 3, {"x": x}, {"w": w}).final["x"])
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


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


@pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("count", [40, 30])
def test_gradients_over_steps_with_and_without_zeros(count):
    x = torch.linspace(0.5, 2, 40, dtype=torch.float64).requires_grad_()
    final = rollout(halving(count), 3, {"x": x}, {}).final["x"]
    final.sum().backward()
    y = x.detach().clone().requires_grad_()
    z = y
    for _ in range(3):
        z = torch.cat([0.5 * z[:count] ** 2, torch.zeros(40 - count, dtype=torch.float64)])
    z.sum().backward()
    assert torch.allclose(final, z, rtol=1e-15) and torch.allclose(x.grad, y.grad, rtol=1e-14)
