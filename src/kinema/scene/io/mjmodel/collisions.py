"""Which geoms collide: contype, conaffinity, contact pairs, excluded pairs, and MuJoCo's filters of neighbours."""

from __future__ import annotations

import itertools

import numpy as np

from kinema.scene import description as kd
from kinema.scene.io.mjmodel.compiled import Compiled


def collision_groups(c: Compiled) -> tuple[list[int], list[int]]:
    """Group and mask bits of every geom such that the same geoms collide as in MuJoCo; any number of bits."""
    m = c.m
    group, mask = [1] * m.ngeom, [0] * m.ngeom
    if c.disabled("contact", "constraint"):
        return group, mask
    in_pair = {int(g) for g in (*m.pair_geom1, *m.pair_geom2)}
    # Row 0 stands for shapes from elsewhere, with MuJoCo's defaults.
    keys = [(1, 1, -1)]
    keys += [(int(m.geom_contype[g]), int(m.geom_conaffinity[g]), g if g in in_pair else -1) for g in range(m.ngeom)]
    index = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    contype = np.array([key[0] for key in index], dtype=np.int64)
    affinity = np.array([key[1] for key in index], dtype=np.int64)
    meet = (contype[:, None] & affinity) != 0
    meet |= meet.T
    for p in range(m.npair):
        i, j = (index[keys[1 + int(g)]] for g in (m.pair_geom1[p], m.pair_geom2[p]))
        meet[i, j] = meet[j, i] = True
        _check_pair(c, p)
    # Geoms that collide with the same geoms share a group; geoms that never collide need none.
    rows = {row: None for row in map(bytes, meet)}
    used = [row for row in rows if any(row)]
    bit = {row: 1 << i for i, row in enumerate(used)}
    bits = [bit.get(bytes(row), 0) for row in meet]
    for g in range(m.ngeom):
        i = index[keys[1 + g]]
        group[g] = bits[i] or 1
        for other in np.flatnonzero(meet[i]):
            mask[g] |= bits[other]
    return group, mask


def _check_pair(c: Compiled, p: int) -> None:
    m = c.m
    first, second = int(m.pair_geom1[p]), int(m.pair_geom2[p])
    one, two = int(m.geom_bodyid[first]), int(m.geom_bodyid[second])
    what = f"the contact pair of {c.element('geom', first)} and {c.element('geom', second)}"
    excluded = {(one << 16) + two, (two << 16) + one} & {int(s) for s in m.exclude_signature}
    if excluded or _filtered(c, one, two) or _neighbours(c, one, two):
        c.refuse("contact", f"{what} joins bodies that never collide here")


def _filtered(c: Compiled, first: int, second: int) -> bool:
    """Whether MuJoCo's parent and weld filters exclude a pair of bodies."""
    m = c.m
    one, two = int(m.body_weldid[first]), int(m.body_weldid[second])
    if one == two:
        return True
    above = [int(m.body_weldid[m.body_parentid[body]]) for body in (one, two)]
    return not c.disabled("filterparent") and 0 not in (one, two) and (one == above[1] or two == above[0])


def _neighbours(c: Compiled, first: int, second: int) -> bool:
    """Whether one of two bodies is the other's parent; the world does not count."""
    parent = c.m.body_parentid
    return 0 not in (first, second) and bool(parent[first] == second or parent[second] == first)


def excluded_pairs(c: Compiled, shapes: list[list[kd.Shape]]) -> frozenset[frozenset[str]]:
    """Pairs that never collide: those of the file, and MuJoCo's own except neighbours and static bodies."""
    m, names = c.m, c.body_names
    signatures = (int(s) for s in m.exclude_signature)
    pairs = {frozenset((names[s >> 16], names[s & 0xFFFF])) for s in signatures if s >> 16 != s & 0xFFFF}
    by_weld: dict[int, list[int]] = {}  # colliding bodies welded together; 0 is static
    for b in range(m.nbody):
        if any(shape.collides for shape in shapes[b]):
            by_weld.setdefault(int(m.body_weldid[b]), []).append(b)
    for weld, members in by_weld.items():
        others = [*members, *by_weld.get(int(m.body_weldid[m.body_parentid[weld]]), [])] if weld else []
        for first, second in itertools.product(members, others):
            filtered, neighbours = _filtered(c, first, second), _neighbours(c, first, second)
            if filtered and not neighbours and first != second:
                pairs.add(frozenset((names[first], names[second])))
            elif neighbours and not filtered:
                note = f"bodies {names[second]!r} and {names[first]!r} are neighbours"
                c.notes.append(f"{note}: their shapes collide in MuJoCo, but not here")
    return frozenset(pairs)
