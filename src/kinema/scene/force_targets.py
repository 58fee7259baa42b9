"""Targets of a force law: particles, joints, bodies and sites, or pairs of them, by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kinema.errors import ModelError
from kinema.scene.description import FIXED, PRISMATIC, REVOLUTE, PlacedRobot, Robot
from kinema.scene.matter import Matter, chosen_vertices
from kinema.scene.names import closest, is_pattern, listed, matcher

PARTICLES, JOINTS, BODIES = "particles", "joints", "bodies"
PARTICLE_PAIRS, BODY_PAIRS = "pairs of particles", "pairs of bodies"


@dataclass(frozen=True, eq=False)
class Targets:
    """The elements that a force law acts on.

    Attributes:
        kind: particles, joints, bodies, or pairs of particles or bodies.
        first: Name of every element: a joint, a body or site, or soft matter.
        second: The other ends of pairs; otherwise empty.
        vertices: Vertex indices of soft matter, shape (elements, 1 or 2); otherwise shape (elements, 0).
    """

    kind: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    vertices: np.ndarray

    def __len__(self) -> int:
        return len(self.first)


def find_targets(
    robots: Sequence[PlacedRobot],
    matter: Sequence[Matter],
    *,
    particles: Any,
    joints: Any,
    bodies: Any,
    between: Any,
    vertices: Any,
) -> Targets:
    """The selected elements, in the order of their names; exactly one of the first four arguments is given.

    Raises:
        ModelError: A target or vertex does not exist, or cannot move.
    """
    given = {PARTICLES: particles, JOINTS: joints, BODIES: bodies, "between": between}
    chosen = [name for name, one in given.items() if one is not None]
    if len(chosen) != 1:
        what = "a force acts on one kind of target"
        raise ModelError(what, got=" and ".join(chosen) or "nothing", expected="one of " + ", ".join(given))
    if vertices is not None and chosen[0] in (JOINTS, BODIES):
        raise ModelError("only soft matter has vertices", got=f"{chosen[0]}=..., vertices=...", fix="omit vertices")
    if particles is not None:
        return _particles(matter, particles, vertices)
    if joints is not None:
        return _plain(JOINTS, _joints(robots, joints))
    if bodies is not None:
        return _plain(BODIES, _bodies(robots, bodies, moving=True))
    return _pairs(robots, matter, between, vertices)


def _plain(kind: str, names: list[str]) -> Targets:
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise ModelError(f"{twice!r} is named twice", fix=f"name each of the {kind} once")
    return Targets(kind, tuple(names), (), np.zeros((len(names), 0), np.int32))


def _particles(matter: Sequence[Matter], given: Any, vertices: Any) -> Targets:
    found = _things(matter, given)
    if vertices is not None and len(found) > 1:
        got, fix = listed(one.name for one in found), "add one force for each of them"
        raise ModelError("vertices need a single target", got=got, fix=fix)
    numbers = [np.arange(len(one.vertices)) if vertices is None else chosen_vertices(one, vertices) for one in found]
    whole = np.concatenate(numbers)
    names = [one.name for one, own in zip(found, numbers, strict=True) for _ in own]
    if len({*zip(names, whole.tolist(), strict=True)}) < len(names) or not names:
        raise ModelError(f"vertices of {listed(names)} are given twice" if names else "no vertices are selected")
    return Targets(PARTICLES, tuple(names), (), whole[:, None].astype(np.int32))


def _pairs(robots: Sequence[PlacedRobot], matter: Sequence[Matter], given: Any, vertices: Any) -> Targets:
    """The elements of `between`."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        expected = "two ends, each a name or a list of names"
        raise ModelError("between has two ends", got=repr(given)[:80], expected=expected, fix='between=("a", "b")')
    ends = [list(end) if isinstance(end, tuple | list) else [end] for end in given]
    soft = {one.name for one in matter}
    if all(name in soft for end in ends for name in end):
        return _particle_pairs(matter, ends, vertices)
    if any(name in soft for end in ends for name in end):
        fix = "attach a particle to the body (scene.attach), and add the force between particles"
        raise ModelError("between mixes a body and soft matter", got=repr(given)[:80], fix=fix)
    if vertices is not None:
        raise ModelError("only soft matter has vertices", got="between bodies, vertices=...", fix="omit vertices")
    first, second = (_bodies(robots, end, moving=False) for end in ends)
    count = max(len(first), len(second))
    if {len(first), len(second)} - {1, count}:
        got, expected = f"{len(first)} and {len(second)}", "equal numbers at both ends, or one"
        raise ModelError("the ends of between do not match", got=got, expected=expected)
    first, second = (end * count if len(end) == 1 else end for end in (first, second))
    same = next((a for a, b in zip(first, second, strict=True) if a == b), None)
    if same is not None:
        raise ModelError(f"a force between {same!r} and itself", expected="two different bodies or sites")
    return Targets(BODY_PAIRS, tuple(first), tuple(second), np.zeros((count, 0), np.int32))


def _particle_pairs(matter: Sequence[Matter], ends: list[list[str]], vertices: Any) -> Targets:
    if any(len(end) != 1 for end in ends):
        raise ModelError("between has several soft objects at one end", got=ends, fix="add one force for each pair")
    pair = [_things(matter, end)[0] for end in ends]
    names = " and ".join(repr(one.name) for one in pair)
    table = np.asarray([[0, 0]] if vertices is None and all(len(o.vertices) == 1 for o in pair) else vertices)
    if table.ndim != 2 or table.shape[1] != 2 or not len(table) or not np.issubdtype(table.dtype, np.integer):
        got = "none" if vertices is None else f"{table.dtype} {table.shape}"
        expected = "a pair of vertex indices per element, shape (n, 2)"
        raise ModelError(f"vertices between {names}", got=got, expected=expected, fix="vertices=[(0, 1), (1, 2)]")
    chosen = np.stack([chosen_vertices(one, table[:, k]) for k, one in enumerate(pair)], 1)
    if pair[0] is pair[1] and (chosen[:, 0] == chosen[:, 1]).any():
        raise ModelError(f"a force between a vertex of {names} and itself", expected="two different vertices")
    first, second = ((one.name,) * len(chosen) for one in pair)
    return Targets(PARTICLE_PAIRS, first, second, chosen)


def _things(matter: Sequence[Matter], given: Any) -> list[Matter]:
    by_name = {one.name: one for one in matter}
    return [by_name[name] for name in _named("soft object", given, list(by_name), ())]


def _joints(robots: Sequence[PlacedRobot], given: Any) -> list[str]:
    """Revolute and prismatic joints."""
    kinds = {f"{one.name}/{j.name}": j.kind for one in robots for b in one.robot.bodies for j in b.joints}
    single = [name for name, kind in kinds.items() if kind in (REVOLUTE, PRISMATIC)]
    return _named("revolute or prismatic joint", given, single, ())


def _bodies(robots: Sequence[PlacedRobot], given: Any, moving: bool) -> list[str]:
    """Bodies and sites; a group selects bodies, if any match; `moving` keeps only bodies that a force can move."""
    bodies, sites = [], []
    for one in robots:
        moves = set(_moving(one.robot))
        for body in one.robot.bodies:
            if not moving or body.name in moves:
                bodies.append(f"{one.name}/{body.name}")
                sites += [f"{one.name}/{site.name}" for site in body.sites]
    return _named("moving body" if moving else "body", given, bodies, sites)


def _moving(robot: Robot) -> Iterator[str]:
    """Names of the bodies that a joint moves."""
    by_name = {body.name: body for body in robot.bodies}
    for name in by_name:
        at: str | None = name
        for _ in robot.bodies:  # compile refuses cycles
            if at not in by_name:
                break
            if any(joint.kind != FIXED for joint in by_name[at].joints):
                yield name
                break
            at = by_name[at].parent


def _named(what: str, given: Any, known: Sequence[str], more: Sequence[str]) -> list[str]:
    """Full names from names, groups ("robot") and patterns, first among `known`, then among `more`."""
    found: list[str] = []
    for name in given if isinstance(given, tuple | list) else [given]:
        if not isinstance(name, str):
            raise ModelError(f"not the name of a {what}", got=repr(name)[:80], expected="a name, a handle or a list")
        for names in (known, more):
            if own := _matching(name, names):
                found += own
                break
        else:
            every = [*known, *more]
            expected = listed(every, f"a scene with a {what}")
            raise ModelError(f"there is no {what} {name!r}", expected=expected, fix=closest(name, every))
    if not found:
        raise ModelError("the list of names is empty", expected=f"the name of a {what}")
    return found


def _matching(name: str, known: Sequence[str]) -> list[str]:
    """The known name, all names that match a pattern, or all below a name."""
    exact = [n for n in known if n == name]
    if exact or not is_pattern(name):
        return exact or [n for n in known if n.startswith(f"{name}/")]
    match = matcher(name)
    return [n for n in known if match(n)]
