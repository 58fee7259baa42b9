"""Schedules chunks of elements: threads never write to the same memory, and bits never depend on threads."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from kinema.lang.ir import analysis
from kinema.lang.ir.ssa import ArrayRef, KernelIR
from kinema.lang.runtime.native import CHUNK, GROUP

FEW_NUMBERS = 2048  # scalars that each chunk may copy: zeroing and adding them must not cost more than the chunk


@dataclass(frozen=True)
class Schedule:
    """Chunks by colour: chunks of one colour write to different elements and may run concurrently.

    `apart` has a 1 for each group of elements whose scattered writes never collide.
    """

    colour_start: np.ndarray
    chunks: np.ndarray
    apart: np.ndarray

    @property
    def colours(self) -> int:
        """Number of colours."""
        return len(self.colour_start) - 1


def sums_by_chunk(kernel: KernelIR, numbers: dict[ArrayRef, int], count: int) -> set[ArrayRef]:
    """The arrays that each chunk sums into a private copy: sums over the elements.

    Sums at constant indices; with several chunks also small sums at indices that lanes share. The choice does not
    depend on lanes or threads, nor do the bits.

    Args:
        kernel: The kernel as emitted.
        numbers: Number of scalars of each of its arrays in one world.
        count: Number of elements.
    """
    if kernel.index is None:
        return set()
    uses = analysis.accesses(kernel, analysis.varying_values(kernel, analysis.ELEMENTS, set()))
    shared = analysis.shared_sums(uses)
    few = sum(numbers[array] for array in shared) <= FEW_NUMBERS
    return analysis.reductions(uses) | (shared if few and count > CHUNK else set())


def chunk_schedule(kernel: KernelIR, tables: dict[ArrayRef, Any], count: int, sums: Set[ArrayRef]) -> Schedule | None:
    """The schedule of a kernel over `count` elements, or None if its chunks must run one after the other.

    Args:
        kernel: The kernel as emitted.
        tables: Contents of the constant Int arrays, in native order.
        count: Number of elements.
        sums: Arrays with a copy per chunk, see `sums_by_chunk`.
    """
    if kernel.index is None:
        return None
    uses = analysis.accesses(kernel, analysis.varying_values(kernel, analysis.ELEMENTS, set()))
    for use in uses:
        if use.kind != "load" and use.index in ("const", "uniform") and use.array not in sums:
            return None
    written = analysis.scatter_indices(kernel, uses, tables, count)
    if written is None or _reads_what_others_write(uses):
        return None
    colours = _colour(written, count)
    order = np.argsort(colours, kind="stable").astype(np.int32)
    start = np.searchsorted(colours[order], np.arange(colours.max() + 2)).astype(np.int32)
    return Schedule(start, order, _apart(written, count))


def _reads_what_others_write(uses: list[analysis.Access]) -> bool:
    """Whether an element may read what another element writes in the same call."""
    written = {u.array for u in uses if u.kind != "load"}
    return any(u.kind == "load" and u.array in written and u.index != "own" for u in uses)


def _colour(written: np.ndarray, count: int) -> np.ndarray:
    """Greedy colouring: each chunk gets the lowest colour without a chunk that writes to the same element."""
    chunks = -(-count // CHUNK)
    colours = np.zeros(chunks, np.int64)
    if written.shape[1] == 0:
        return colours
    _, dense = np.unique(written, return_inverse=True)
    dense = dense.reshape(written.shape)
    taken: list[set[int]] = [set() for _ in range(int(dense.max()) + 1)]
    for c in range(chunks):
        cells = np.unique(dense[c * CHUNK : (c + 1) * CHUNK])
        used = set().union(*(taken[i] for i in cells))
        colour = next(k for k in range(len(used) + 1) if k not in used)
        colours[c] = colour
        for i in cells:
            taken[i].add(colour)
    return colours


def _apart(written: np.ndarray, count: int) -> np.ndarray:
    """For each group of elements: 1 if its writes never collide."""
    groups, writes = -(-count // GROUP), written.shape[1]
    beyond = groups * GROUP - count
    nowhere = -1 - np.arange(beyond * writes).reshape(beyond, writes)  # all different
    places = np.concatenate([written, nowhere])
    places = np.sort(places.reshape(groups, GROUP * writes), axis=1)
    return (places[:, 1:] != places[:, :-1]).all(axis=1).astype(np.uint8)


def packet_order(indices: Any) -> np.ndarray:
    """Order elements so that those of a group write to different nodes, as far as possible.

    Lanes that write to the same node must wait for each other. Elements stay in their chunk, which keeps the locality
    of the given order; each goes to the emptiest group without any of its nodes. Full chunks follow in execution order,
    colour by colour, so that kernels read the data of elements from beginning to end.

    Args:
        indices: The nodes of each element, shape (elements, nodes per element).

    Returns:
        order, with order[i] the i-th element, shape (elements,).
    """
    table = np.asarray(indices)
    order: list[int] = []
    for begin in range(0, len(table), CHUNK):
        chunk = table[begin : begin + CHUNK]
        _, dense = np.unique(chunk, return_inverse=True)
        nodes = [sum({1 << int(i) for i in row}) for row in dense.reshape(chunk.shape)]
        room = [min(GROUP, len(chunk) - first) for first in range(0, len(chunk), GROUP)]
        groups: list[list[int]] = [[] for _ in room]
        taken = [0] * len(groups)
        left = []
        for e, mine in enumerate(nodes):
            fits = [g for g in range(len(groups)) if room[g] and not taken[g] & mine]
            if not fits:
                left.append(e)
                continue
            g = max(fits, key=room.__getitem__)
            groups[g].append(e)
            room[g] -= 1
            taken[g] |= mine
        for members, free in zip(groups, room, strict=True):
            members += left[:free]
            left = left[free:]
        order += [begin + e for members in groups for e in members]
    return _by_colour(np.array(order, np.int32), table)


def _by_colour(order: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The order with its full chunks sorted by colour; the colours do not change."""
    full = len(order) // CHUNK
    if full < 2:
        return order
    colours = _colour(table[order[: full * CHUNK]], full * CHUNK)
    chunks = order[: full * CHUNK].reshape(full, CHUNK)[np.argsort(colours, kind="stable")]
    return np.concatenate([chunks.ravel(), order[full * CHUNK :]])
