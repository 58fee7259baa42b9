"""The preconditioner of implicit steps in programs: blocks of stiffness, and a multigrid cycle over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from kinema.dynamics.stiffness import add_masses, add_own_blocks, begin_row, clear_blocks, keep_row
from kinema.integrate.implicit import Step
from kinema.integrate.multigrid import multigrid_cycle, pack, set_up_multigrid
from kinema.lang import Float, Int, ivec3, mat33, vec3
from kinema.lang.programs.program import Builder, Ref
from kinema.model.coarsening import coarsen, graph_of
from kinema.simulation.force_law import ForceLaw, Stiffness

PullBack = Callable[[Sequence[ForceLaw], Ref, Ref, Ref, Ref, Ref], None]


class Preconditioner:
    """An approximate inverse of the matrix of an implicit step.

    Args:
        program: Receives the constants and scratch.
        step: The step.
        laws: All force laws.
        places: Rest positions of particles [m], shape (n, 3).
        free: 1 for particles with a mass of their own, shape (n,).
        pull_back: Adds (df/dx)^T pull and (df/dv)^T pull of some laws: (laws, y, u, pull, by_x, by_v).
    """

    def __init__(
        self,
        program: Builder,
        step: Step,
        laws: Sequence[ForceLaw],
        places: np.ndarray,
        free: np.ndarray,
        pull_back: PullBack,
    ) -> None:
        self.program, self.step, self.count, self.pull_back = program, step, len(places), pull_back
        self.alone = [law for law in laws if law.alone]
        stiff = [law.stiffness for law in laws if law.stiffness is not None]
        pairs, tables = _number_pairs(self.count, stiff)
        self.elements = [(one, self._constants(one, numbers)) for one, numbers in zip(stiff, tables, strict=True)]
        graph = graph_of(self.count, pairs)
        codes = pairs[:, 0].astype(np.int64) * self.count + pairs[:, 1]
        low, high = np.minimum(graph.row, graph.column), np.maximum(graph.row, graph.column)
        block = self.count + np.searchsorted(codes, low.astype(np.int64) * self.count + high)
        packed = pack(coarsen(places, free == 0, graph), 2 * block + (graph.row > graph.column))
        self.tables = program.constant("multigrid_tables", Int, packed.tables)
        self.weight = program.constant("multigrid_weight", Float, packed.weight)
        self.extent = program.constant("extent_of_elements", Float, _extents(places, pairs))
        self.room = program.scratch("multigrid_room", Float, packed.room)
        self.blocks = program.scratch("stiffness_blocks", mat33, self.count + len(pairs))
        if self.alone:
            names = ("own_pull", "own_by_x", "own_by_v", "own_row0", "own_row1", "own_row2")
            self.own = [program.scratch(name, vec3, self.count) for name in names]
            self.axes = [program.constant(f"axis{k}", Int, k) for k in range(3)]

    def _constants(self, stiffness: Stiffness, numbers: np.ndarray) -> tuple[Ref, ...]:
        """Numbers of the blocks of an element's pairs, three to a table."""
        p, name, order = self.program, f"{stiffness.name}_pairs", stiffness.order
        if numbers.shape[1] == 1:
            return (p.constant(name, Int, numbers[:, 0], order=order),)
        parts = np.split(numbers, numbers.shape[1] // 3, axis=1)
        return tuple(p.constant(f"{name}{k}", ivec3, part, order=order) for k, part in enumerate(parts))

    def set_up(self, y: Ref, u: Ref) -> None:
        """Compute all levels at the positions y and velocities u."""
        p, step = self.program, self.step
        p.call(clear_blocks, self.blocks, count=self.blocks.buffer.length)
        p.call(add_masses, step.inv_mass, self.blocks, count=self.count)
        for stiffness, tables in self.elements:
            arguments = stiffness.arguments(tables, step.dt, y, self.blocks)
            p.call(stiffness.kernel, *arguments, count=len(stiffness.corners))
        if self.alone:
            self._add_own(y, u)
        p.call(set_up_multigrid, self.tables, self.weight, step.free, self.blocks, self.room)

    def _add_own(self, y: Ref, u: Ref) -> None:
        """Add the blocks of laws on single particles, row by row."""
        p, (pull, by_x, by_v, *rows) = self.program, self.own
        for axis, row in zip(self.axes, rows, strict=True):
            p.call(begin_row, axis, pull, by_x, by_v, count=self.count)
            self.pull_back(self.alone, y, u, pull, by_x, by_v)
            p.call(keep_row, self.step.dt, by_x, by_v, row, count=self.count)
        p.call(add_own_blocks, *rows, self.blocks, count=self.count)

    def apply(self, r: Ref, z: Ref) -> None:
        """z = about A^-1 r."""
        self.program.call(multigrid_cycle, self.tables, self.weight, self.room, r, z)


def _number_pairs(count: int, stiff: Sequence[Stiffness]) -> tuple[np.ndarray, list[np.ndarray]]:
    """All pairs of corners, ascending, and the blocks of those of each element."""
    found = []
    for one in stiff:
        both = [one.corners[:, pair] for pair in combinations(range(one.corners.shape[1]), 2)]
        codes = [np.minimum(*b.T).astype(np.int64) * count + np.maximum(*b.T) for b in both]
        found.append(np.stack(codes, 1))
    all_codes = np.unique(np.concatenate([codes.ravel() for codes in found] or [np.zeros(0, np.int64)]))
    pairs = np.stack(np.divmod(all_codes, count), 1)
    return pairs, [count + np.searchsorted(all_codes, codes) for codes in found]


def _extents(places: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The longest distance of each particle to those it shares an element with [m], shape (n,)."""
    found = np.zeros(len(places))
    far = np.linalg.norm(places[pairs[:, 0]] - places[pairs[:, 1]], axis=1)
    for column in pairs.T:
        np.maximum.at(found, column, far)
    return found
