"""Coarser and coarser sets of particles, with interpolation between them, for multigrid on graphs.

The nodes of a level are a maximal independent set of the squared graph of the level above: no two have a common
neighbour [Vanek et al. 1996]. A displacement is interpolated from nearby nodes by moving least squares with their rest
positions, which is exact for linear displacements: stretches, shears and small rotations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NEAREST = 6  # nodes that interpolate one of the level above
WIDE = 1.5  # reach of interpolation, relative to the distance of the last of them
DIRECT = 32  # nodes that are solved directly
MOST_LEVELS = 8
FLAT = 0.01  # least share of a direction in the spread of nodes for which interpolation follows slopes in it


@dataclass(frozen=True)
class Graph:
    """Neighbours of nodes: those of node i are `column[start[i]:start[i + 1]]`, ascending, without i."""

    start: np.ndarray
    column: np.ndarray

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def row(self) -> np.ndarray:
        """The node that each entry of `column` is a neighbour of."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))


@dataclass(frozen=True)
class Level:
    """Nodes of a level, and their interpolation from the next one.

    Attributes:
        graph: Neighbours.
        start, column, weight: Node i moves by the sum of weight[k] times the displacement of the node column[k] of the
            next level, start[i] <= k < start[i + 1]; empty on the last level.
        coarse: Number of nodes of the next level, 0 on the last one.
    """

    graph: Graph
    start: np.ndarray
    column: np.ndarray
    weight: np.ndarray
    coarse: int

    @property
    def row(self) -> np.ndarray:
        """The node that each entry of the interpolation is for."""
        return np.repeat(np.arange(len(self.graph)), np.diff(self.start))


def graph_of(count: int, pairs: np.ndarray) -> Graph:
    """The graph of `count` nodes with these edges, shape (edges, 2), in any order and direction."""
    both = np.concatenate([pairs, pairs[:, ::-1]]).astype(np.int64)
    codes = np.unique(both[:, 0] * count + both[:, 1])
    row, column = codes // count, codes % count
    apart = row != column
    row, column = row[apart], column[apart]
    return Graph(np.searchsorted(row, np.arange(count + 1)), column)


def coarsen(places: np.ndarray, fixed: np.ndarray, graph: Graph) -> list[Level]:
    """All levels, from fine to coarse.

    Args:
        places: Rest positions [m], shape (n, 3).
        fixed: True for nodes that do not move; they interpolate as such.
        graph: Neighbours of nodes.
    """
    levels: list[Level] = []
    adjacent = graph  # neighbours at close range, which coarsening follows; those of coarse matrices reach farther
    while len(graph) > DIRECT and len(levels) < MOST_LEVELS - 1 and len(adjacent.column):
        nodes = _independent(adjacent)
        row, column, weight = _interpolation(places, adjacent, nodes)
        pairs = _coarse_pairs(graph, row, column, len(nodes))
        adjacent = _touching(adjacent, row, column, len(nodes))
        moving = ~fixed[row] & ~fixed[nodes][column]
        start = np.searchsorted(row[moving], np.arange(len(graph) + 1))
        levels.append(Level(graph, start, column[moving], weight[moving], len(nodes)))
        places, fixed, graph = places[nodes], fixed[nodes], graph_of(len(nodes), pairs)
    none = np.zeros(0, np.int64)
    levels.append(Level(graph, np.zeros(len(graph) + 1, np.int64), none, np.zeros(0), 0))
    return levels


def wave_order(graph: Graph) -> np.ndarray:
    """Nodes sorted by waves: those of a wave are no neighbours, and come after all neighbours with lower numbers.

    A sweep in this order finds what one in the order of numbers finds, without waiting for the node before.
    """
    start, column = graph.start.tolist(), graph.column.tolist()
    wave = [0] * len(graph)
    for i in range(len(graph)):
        wave[i] = max([wave[j] + 1 for j in column[start[i] : start[i + 1]] if j < i], default=0)
    return np.argsort(wave, kind="stable")


def _independent(graph: Graph) -> np.ndarray:
    """Nodes without a common neighbour, greedily; none without neighbours."""
    taken, start, column = np.diff(graph.start) == 0, graph.start, graph.column
    nodes = []
    for i in range(len(graph)):
        if not taken[i]:
            nodes.append(i)
            taken[i] = True
            for j in column[start[i] : start[i + 1]]:
                taken[j] = True
                taken[column[start[j] : start[j + 1]]] = True
    return np.array(nodes)


def _interpolation(places: np.ndarray, graph: Graph, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and weights of the interpolation from the nodes, sorted by row."""
    row, column = _within_reach(graph, nodes)
    away = places[nodes][column] - places[row]
    far = np.linalg.norm(away, axis=1)
    order = np.lexsort((column, far, row))
    row, column, far, away = row[order], column[order], far[order], away[order]
    first = np.searchsorted(row, np.arange(len(graph) + 1))
    rank = np.arange(len(row)) - first[row]
    reach = np.zeros(len(graph))
    np.maximum.at(reach, row[rank < NEAREST], WIDE * far[rank < NEAREST])
    near = rank < NEAREST
    row, column, far, away = row[near], column[near], far[near], away[near]
    reach = np.maximum(reach[row], 1e-30)
    weight = (1.0 - far / reach) ** 2
    # Moving least squares: w_j (1 - (x_j - c) . M^-1 (c - x)), M and c the second moments and the mean of the nodes.
    total = _sums(row, weight, len(graph))
    some = np.where(total > 0, total, 1.0)
    mean = _sums(row, weight[:, None] * away, len(graph)) / some[:, None]
    off = away - mean[row]
    moments = _sums(row, weight[:, None, None] * off[:, :, None] * off[:, None, :], len(graph))
    slope = np.einsum("nij,nj->ni", np.linalg.pinv(moments, rcond=FLAT, hermitian=True), mean)
    return row, column, weight * (1.0 / some[row] - (off * slope[row]).sum(1))


def _touching(graph: Graph, row: np.ndarray, column: np.ndarray, count: int) -> Graph:
    """Nodes of the next level are neighbours if they are the nearest ones of neighbours."""
    first = np.r_[True, row[1:] != row[:-1]]
    nearest = np.full(len(graph), -1)
    nearest[row[first]] = column[first]
    pairs = np.stack([nearest[graph.row], nearest[graph.column]], 1)
    return graph_of(count, pairs[(pairs >= 0).all(1)])


def _within_reach(graph: Graph, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of a node of the graph and of one of `nodes` that is at most four edges away."""
    count = len(nodes)
    codes = nodes.astype(np.int64) * count + np.arange(count)
    for _ in range(4):
        row, column = codes // count, codes % count
        codes = np.unique(np.concatenate([codes, _joined(column, row, graph.start, graph.column, count)]))
    return codes // count, codes % count


def _joined(of: np.ndarray, via: np.ndarray, start: np.ndarray, column: np.ndarray, count: int) -> np.ndarray:
    """Codes c * count + a for all pairs (a, b) and all entries c of row b of a compressed table."""
    size = np.diff(start)[via]
    entry = np.repeat(start[via] - np.cumsum(size) + size, size) + np.arange(size.sum())
    return column[entry] * np.int64(count) + np.repeat(of, size)


def _coarse_pairs(graph: Graph, row: np.ndarray, column: np.ndarray, count: int) -> np.ndarray:
    """Pairs of nodes of the next level that interpolate the same node or neighbours, shape (pairs, 2)."""
    start = np.searchsorted(row, np.arange(len(graph) + 1))
    # columns of A P by rows of A, then those of P^T (A P)
    reached = np.concatenate([_joined(graph.row, graph.column, start, column, len(graph)), column * len(graph) + row])
    reached = np.unique(reached)
    to, frm = reached // len(graph), reached % len(graph)
    return np.stack(np.divmod(np.unique(_joined(to, frm, start, column, count)), count), 1)


def _sums(row: np.ndarray, values: np.ndarray, rows: int) -> np.ndarray:
    """Sums of values over each row."""
    flat = values.reshape(len(values), -1)
    sums = np.stack([np.bincount(row, flat[:, k], rows) for k in range(flat.shape[1])], 1)
    return sums.reshape(rows, *values.shape[1:])
