"""The preconditioner of implicit steps: its levels, its interpolation, and its cycle."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.integrate.multigrid import multigrid_cycle, pack, set_up_multigrid
from kinema.lang import Array, Float, Int, kernel, mat33, vec3
from kinema.model.coarsening import Graph, coarsen, graph_of, wave_order
from kinema.scene.shapes.block import block


def lattice(cubes: tuple[int, int, int]) -> tuple[np.ndarray, Graph, np.ndarray]:
    """Places, neighbours and edges of a block of tetrahedra, in a random order."""
    mesh, rng = block(cubes, 0.1), np.random.default_rng(0)
    rank = rng.permutation(len(mesh.vertices))
    places = np.empty_like(mesh.vertices)
    places[rank] = mesh.vertices
    edges = np.concatenate([rank[mesh.corners[:, pair]] for pair in combinations(range(4), 2)])
    edges = np.unique(np.sort(edges, 1), axis=0)
    return places, graph_of(len(places), edges), edges


def test_interpolation_is_exact_for_linear_displacements():
    places, graph, _ = lattice((10, 8, 6))
    levels = coarsen(places, np.zeros(len(places), bool), graph)
    assert len(levels) >= 3 and len(levels[-1].graph) <= 32
    for level in levels[:-1]:
        assert level.coarse < 0.2 * len(level.graph)
        interpolate = np.zeros((len(level.graph), level.coarse))
        interpolate[level.row, level.column] = level.weight
        np.testing.assert_allclose(interpolate.sum(1), 1.0, atol=1e-9)
        if level is levels[0]:  # two nodes on the next one cannot follow slopes in space
            nodes = np.linalg.lstsq(interpolate, places, rcond=None)[0]  # where the nodes of the next level are
            np.testing.assert_allclose(interpolate @ nodes, places, atol=1e-9)


def test_particles_that_do_not_move_stay_out_of_it():
    places, graph, _ = lattice((8, 6, 4))
    fixed = places[:, 0] < places[:, 0].min() + 0.05
    level = coarsen(places, fixed, graph)[0]
    assert not fixed[level.row].any() and fixed.any()


def test_waves_do_not_change_a_sweep():
    _, graph, _ = lattice((4, 4, 4))
    rank = np.argsort(wave_order(graph))
    assert ((rank[graph.row] < rank[graph.column]) == (graph.row < graph.column)).all()


@kernel
def copy_input(r: Array[vec3], out: Array[vec3]):
    """out = r."""
    for i in range(len(r)):
        out[i] = r[i]


def cycle_of(places: np.ndarray, graph: Graph, edges: np.ndarray, blocks: np.ndarray) -> Callable[[Tensor], Tensor]:
    """The cycle as a function of right-hand sides, one per row."""
    count = len(places)
    codes = edges[:, 0] * count + edges[:, 1]
    low, high = np.minimum(graph.row, graph.column), np.maximum(graph.row, graph.column)
    block_of = 2 * (count + np.searchsorted(codes, low * count + high)) + (graph.row > graph.column)
    packed = pack(coarsen(places, np.zeros(count, bool), graph), block_of)
    p = kn.Program("cycle")
    state = p.state("z", vec3, count)
    r = p.parameter("r", vec3, count)
    tables, weight = p.constant("tables", Int, packed.tables), p.constant("weight", Float, packed.weight)
    free, matrix = p.constant("free", Int, np.ones(count, int)), p.constant("blocks", mat33, blocks)
    room, z = p.scratch("room", Float, packed.room), p.scratch("found", vec3, count)
    p.call(set_up_multigrid, tables, weight, free, matrix, room)
    p.call(multigrid_cycle, tables, weight, room, r, z)
    p.call(copy_input, z, state.next)

    def run(right: Tensor) -> Tensor:
        start = {"z": torch.zeros(len(right), count, 3, dtype=torch.float64)}
        return kn.rollout(p, 1, start, {"r": right}).final["z"]

    return run


def stiff(places: np.ndarray, edges: np.ndarray, stiffness: float) -> tuple[np.ndarray, np.ndarray]:
    """Springs between neighbours and unit masses: blocks of particles and pairs, and the whole matrix."""
    count = len(places)
    n = places[edges[:, 1]] - places[edges[:, 0]]
    n /= np.linalg.norm(n, axis=1, keepdims=True)
    K = stiffness * n[:, :, None] * n[:, None, :]
    blocks = np.concatenate([np.tile(np.eye(3), (count, 1, 1)), -K])
    for column in edges.T:
        np.add.at(blocks, column, K)
    whole = np.zeros((count, 3, count, 3))
    whole[np.arange(count), :, np.arange(count)] = blocks[:count]
    whole[edges[:, 0], :, edges[:, 1]] = -K
    whole[edges[:, 1], :, edges[:, 0]] = -K.transpose(0, 2, 1)
    return blocks, whole.reshape(3 * count, 3 * count)


@pytest.mark.parametrize("stiffness", [1.0, 1e3, 1e5])
def test_the_cycle_is_close_to_the_inverse(stiffness: float):
    """Symmetric, positive definite; eigenvalues of the cycle times the matrix are at most 1, and far from 0.

    Single precision loses 1e-7 times the stiffness, relative to the masses: 1 per cent of the smallest eigenvalue.
    """
    places, graph, edges = lattice((4, 4, 4))
    blocks, A = stiff(places, edges, stiffness)
    size = 3 * len(places)
    run = cycle_of(places, graph, edges, blocks)
    M = run(torch.eye(size, dtype=torch.float64).reshape(size, -1, 3)).reshape(size, size).numpy()
    np.testing.assert_allclose(M, M.T, atol=1e-5 * np.abs(M).max())
    root = np.linalg.cholesky(A)
    values = np.linalg.eigvalsh(root.T @ (0.5 * (M + M.T)) @ root)
    assert values[0] > 0.1 and values[-1] < 1.02, values[[0, -1]]
