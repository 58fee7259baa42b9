"""Broad phase: the pairs of shapes whose boxes are within the margin, in the order of the model.

Few pairs are tested one by one, in all worlds of a register at once: a pair is near if it is near in any of them. With
many, a tree of boxes finds those that meet (`native/near_pairs.cpp`). Both find the same pairs; all others have no
candidate below the margin.
"""

from __future__ import annotations

from pathlib import Path

from kinema.contact.collision.bounds import Bounds
from kinema.contact.collision.narrow_phase import Pairs
from kinema.lang import Array, Float, Int, everywhere, func, kernel, local, min, record, shared, vec3
from kinema.lang.kernels.cpp_kernel import cpp_kernel


@record
class PairTable:
    """All pairs of a model, in the order of their candidates.

    first, second, number: As in `Pairs`.
    start: Number of the pair's first candidate in the model.
    family: Family of each pair.
    each: Candidates of a pair, by family.
    """

    first: Array[Int]
    second: Array[Int]
    number: Array[Int]
    start: Array[Int]
    family: Array[Int]
    each: Array[Int]


@func
def meet(bounds, flat, a, b, margin: Float):
    """Whether the boxes of two shapes, of which the second may be a plane, are within the margin [m].

    False if a number is not finite.
    """
    p, q, r, s = bounds.low[a], bounds.high[a], bounds.low[b], bounds.high[b]
    near = p.x <= s.x + margin and r.x <= q.x + margin and p.y <= s.y + margin and r.y <= q.y + margin
    near = near and p.z <= s.z + margin and r.z <= q.z + margin
    if flat[b] == 1:
        near = min(r.x * p.x, r.x * q.x) + min(r.y * p.y, r.y * q.y) + min(r.z * p.z, r.z * q.z) <= s.x + margin
    return near


@kernel
def list_near_pairs(
    bounds: Bounds, flat: Array[Int], margin: Float, table: PairTable, near: Array[Int], count: Array[Int]
):
    """Numbers of the near pairs, tested one by one, and how many there are, also beyond the room for them.

    flat: 1 for planes.
    """
    found = 0
    for i in range(len(table.first)):
        if not everywhere(not meet(bounds, flat, table.first[i], table.second[i], margin)):
            if found < len(near):
                near[found] = i
            found = found + 1
    count[0] = found


# C++, because it builds a tree and sorts. `partner` lists, from `begin` on, the shapes with a higher index that a shape
# may touch, in ascending order; `pair` is the number of that pair in the table.
find_near_pairs = cpp_kernel(
    "near_pairs",
    Path(__file__).parent / "native" / "near_pairs.cpp",
    reads={"low": vec3, "high": vec3, "flat": Int, "margin": Float, "begin": Int, "partner": Int, "pair": Int},
    writes={"near": Int, "count": Int},
)


@kernel
def group_by_family(
    near: Array[Int],
    count: Array[Int],
    table: PairTable,
    pairs: Pairs,
    candidate: Array[Int],
    row: Array[Int],
    candidates: Array[Int],
    lost: Array[Int],
):
    """Near pairs by family, for the kernels of the narrow phase, and their candidates in the order of the model.

    candidate, row: Number in the model of each candidate of near pairs, and of its pair in the table.
    candidates: Their number.
    lost: Number of near pairs without room.
    """
    found = shared(count[0])
    listed = found if found < len(near) else len(near)
    slot, full = 0, found - listed
    slots = local(Int, len(near))
    for g in range(listed):
        i = shared(near[g])
        each = shared(table.each[shared(table.family[i])])
        slots[g] = -1
        if slot + each <= len(candidate):
            slots[g] = slot
            for k in range(each):
                candidate[slot + k] = table.start[i] + k
                row[slot + k] = i
            slot = slot + each
        else:
            full = full + 1
    at = 0
    for f in range(len(table.each)):
        pairs.ranges[f] = at
        for g in range(listed):
            i = shared(near[g])
            if shared(table.family[i]) == f and shared(slots[g]) >= 0:
                pairs.first[at] = table.first[i]
                pairs.second[at] = table.second[i]
                pairs.number[at] = table.number[i]
                pairs.start[at] = slots[g]
                at = at + 1
    pairs.ranges[len(table.each)] = at
    candidates[0] = slot
    lost[0] = full
