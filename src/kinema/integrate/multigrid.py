"""A multigrid cycle as a preconditioner of implicit steps: its tables, and its kernels in C++.

The cycle smooths by Gauss-Seidel over blocks of 3 x 3, forwards on the way to coarser levels and backwards on the way
back; a coarser level has the matrix P^T A P of the interpolation P [Briggs et al. 2000]. See `model.coarsening` for the
levels, and `native/multigrid.cpp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kinema.lang import Float, Int, mat33, vec3
from kinema.lang.kernels.cpp_kernel import cpp_kernel
from kinema.model.coarsening import Graph, Level, wave_order

_FILE = Path(__file__).parent / "native" / "multigrid.cpp"
BLOCK, VECTOR = 12, 4  # floats

# C++, because sweeps use what they have just written, and coarse matrices are sums over lists of unknown length.
set_up_multigrid = cpp_kernel(
    "set_up_multigrid",
    _FILE,
    reads={"tables": Int, "weight": Float, "free": Int, "blocks": mat33},
    writes={"room": Float},
    detached=True,
)
multigrid_cycle = cpp_kernel(
    "multigrid_cycle",
    _FILE,
    reads={"tables": Int, "weight": Float, "room": Float, "r": vec3},
    writes={"z": vec3},
    detached=True,
)


@dataclass(frozen=True)
class Tables:
    """Constants of a cycle.

    Attributes:
        tables: All levels, see `native/multigrid.cpp`.
        weight: Weights of all interpolations, level by level.
        room: Numbers of double precision that matrices and vectors of all levels take.
    """

    tables: np.ndarray
    weight: np.ndarray
    room: int


def pack(levels: Sequence[Level], block_of: np.ndarray) -> Tables:
    """The tables of a cycle.

    Args:
        levels: From fine to coarse.
        block_of: For each entry of the finest graph twice the index of its block, plus 1 if it is transposed.
    """
    levels, block_of, outer = _in_order(levels, block_of)
    parts = [np.array([len(levels), len(outer)]), outer]
    coarsest = 3 * len(levels[-1].graph)
    floats = VECTOR + coarsest * (coarsest + 1)
    for number, level in enumerate(levels):
        graph, nodes = level.graph, len(level.graph)
        below = np.bincount(graph.row[graph.column < graph.row], minlength=nodes)
        down = np.lexsort((level.row, level.column))
        down_start = np.searchsorted(level.column[down], np.arange(level.coarse + 1))
        parts += [np.array([nodes, len(graph.column), level.coarse, len(level.weight)])]
        parts += [graph.start, graph.start[:-1] + below, graph.column, *([block_of] if number == 0 else [])]
        parts += [level.start, level.column, down_start, level.row[down], down]
        floats += 2 * (BLOCK + VECTOR) * nodes + BLOCK * len(graph.column)
    weight = np.concatenate([level.weight for level in levels] + [np.zeros(1)])  # at least one number
    return Tables(np.concatenate(parts).astype(np.int32), weight, floats // 2 + 1)


def _in_order(levels: Sequence[Level], block_of: np.ndarray) -> tuple[list[Level], np.ndarray, np.ndarray]:
    """The levels with their nodes in the order of sweeps, their blocks, and the order of the finest level."""
    orders = [wave_order(level.graph) for level in levels]
    ranks = [np.argsort(order) for order in orders]
    made = []
    for k, level in enumerate(levels):
        count = np.arange(len(level.graph) + 1)
        row, column = ranks[k][level.graph.row], ranks[k][level.graph.column]
        sort = np.lexsort((column, row))
        if k == 0:
            block_of = block_of[sort]
        graph = Graph(np.searchsorted(row[sort], count), column[sort])
        row, column = ranks[k][level.row], ranks[k + 1][level.column] if level.coarse else level.column
        sort = np.lexsort((column, row))
        made.append(Level(graph, np.searchsorted(row[sort], count), column[sort], level.weight[sort], level.coarse))
    return made, block_of, orders[0]
