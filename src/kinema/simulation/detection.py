"""Collision detection in step programs: gaps, points and normals of all contact candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kinema.contact.collision.bounds import Bounds, Extents, bound_shapes, reach_of_step
from kinema.contact.collision.hulls import Hulls, hull_tables
from kinema.contact.collision.narrow_phase import Pairs, Shapes, Touch
from kinema.contact.collision.near_pairs import PairTable, find_near_pairs, group_by_family, list_near_pairs
from kinema.contact.collision.pair_table import FAMILIES, Family
from kinema.contact.collision.terrain import Knobs, Terrain, terrain_tables
from kinema.dynamics.report import report_numbers, report_vectors
from kinema.errors import InputError
from kinema.lang import Float, Int, mat33, vec3
from kinema.lang.programs.program import Builder, Ref
from kinema.model.arrays import SceneArrays
from kinema.model.broad_phase import ShapeArrays
from kinema.scene.description import PLANE
from kinema.scene.shape_kinds import SHAPE_KINDS
from kinema.simulation.links import Links

DEEP = 0.05  # [m], penetration up to which terrain contacts are detected
FEW = 24  # contact candidates; with more, there is a broad phase
MANY = 4096  # pairs; from so many on, the broad phase builds a tree of boxes
ROOM = 8  # near pairs, and candidates of near pairs, per contact


def touch_buffers(p: Builder, name: str, count: int) -> Touch:
    """Buffers for `count` contact candidates."""
    return Touch(
        gap=p.scratch(f"{name}_gap", Float, count),
        point=p.scratch(f"{name}_point", vec3, count),
        normal=p.scratch(f"{name}_normal", vec3, count),
    )


@dataclass(frozen=True)
class PairList:
    """Pairs for the narrow phase, by family, and their contact candidates.

    Attributes:
        pairs: Members of `Pairs` that all families share.
        candidate: Number in the model of each candidate.
        row: Its row in tables of what belongs to pairs, see `ends`.
        ends: Links of the first and second shapes.
        count: Number of candidates.
        lost: Number of pairs without room.
        room: Most pairs, and most candidates.
    """

    pairs: dict[str, Ref]
    candidate: Ref
    row: Ref
    ends: tuple[Ref, Ref]
    count: Ref
    lost: Ref
    room: tuple[int, int]


class Scenery:
    """Tables of the shapes of a model in a program, each built on first use.

    Args:
        program: Receives the tables.
        model: The model.
    """

    def __init__(self, program: Builder, model: SceneArrays) -> None:
        self.program, self.model = program, model
        self._terrains: dict[int, Terrain] = {}
        self._knobs: dict[str, Knobs] = {}

    @cached_property
    def shapes(self) -> Shapes:
        """All shapes."""
        p, shapes = self.program, self.model.shapes
        count = len(shapes.names)
        return Shapes(
            link=p.constant("shape_link", Int, shapes.link),
            offset=p.parameter("centre", vec3, count),
            rotation=p.constant("shape_rotation", mat33, shapes.rotation),
            size=p.parameter("size", vec3, count),
            reach=p.constant("shape_reach", Float, shapes.reach),
        )

    @cached_property
    def hulls(self) -> Hulls:
        """Convex hulls."""
        p, shapes = self.program, self.model.shapes
        arrays = hull_tables(shapes.hulls, [SHAPE_KINDS[kind].axial for kind in shapes.kind])
        return Hulls(**{n: p.constant(f"hull_{n}", vec3 if n == "vertex" else Int, x) for n, x in arrays.items()})

    @cached_property
    def extents(self) -> Extents:
        """Boxes around shapes."""
        p, arrays = self.program, shape_extents(self.model.shapes, self.depth)
        kinds = {"middle": vec3, "half": vec3, "swell": Float}
        return Extents(**{n: p.constant(f"extent_{n}", kinds.get(n, Int), x) for n, x in arrays.items()})

    @property
    def depth(self) -> float:
        """Distance within which terrain finds triangles, and depth of contacts below them [m]."""
        model, shapes = self.model, self.model.shapes
        radii = [size[0] for size, kind in zip(shapes.size, shapes.kind, strict=True) if SHAPE_KINDS[kind].ends]
        radii += model.matter.numbers.get("skin_radius", np.zeros(0)).tolist()
        return max(radii, default=0.0) + model.contact.margin + DEEP

    @cached_property
    def all_pairs(self) -> PairList:
        """All pairs of the model, and all candidates."""
        p, tables, count = self.program, self.model.candidates.pairs, len(self.model.candidates)
        columns = {n: np.concatenate([table[n] for table in tables.values()]) for n in ("first", "second", "start")}
        columns["number"] = np.concatenate([np.arange(len(table["first"])) for table in tables.values()])
        columns["ranges"] = np.cumsum([0, *(len(table["first"]) for table in tables.values())])
        return PairList(
            {n: p.constant(f"pair_{n}", Int, x) for n, x in columns.items()},
            number := p.constant("candidate_number", Int, np.arange(count)),
            number,
            (
                p.constant("candidate_first", Int, self.model.candidates.first),
                p.constant("candidate_second", Int, self.model.candidates.second),
            ),
            p.constant("candidate_count", Int, [count]),
            p.constant("no_pair_lost", Int, [0]),
            (len(columns["first"]), count),
        )

    @cached_property
    def families(self) -> list[Ref]:
        """Numbers of the families."""
        return [self.program.constant(f"{n}_family", Int, k) for k, n in enumerate(self.model.candidates.pairs)]

    def knobs(self, name: str) -> Knobs:
        """Round points of the pairs of a family and terrain."""
        if name not in self._knobs:
            made, elements = self.model.candidates.knobs[name], {"at": vec3, "swell": Float, "capsule": Int}
            self._knobs[name] = Knobs(
                **{n: self.program.constant(f"{name}_{n}", e, made[n]) for n, e in elements.items()}
            )
        return self._knobs[name]

    def terrain(self, shape: int) -> Terrain:
        """Triangles of a terrain; the grid searches within the largest radius plus the margin."""
        if shape not in self._terrains:
            p, mesh = self.program, self.model.shapes.meshes[shape]
            assert mesh is not None
            arrays = terrain_tables(mesh, self.depth)
            vectors, numbers = ("vertex", "edge_normal", "vertex_normal"), ("left", "below", "cell", "depth")
            kinds = dict.fromkeys(vectors, vec3) | dict.fromkeys(numbers, Float)
            table = {n: p.constant(f"terrain{shape}_{n}", kinds.get(n, Int), x) for n, x in arrays.items()}
            self._terrains[shape] = Terrain(**table)
        return self._terrains[shape]


def shape_extents(shapes: ShapeArrays, depth: float) -> dict[str, np.ndarray]:
    """Arrays of `Extents` by name.

    Args:
        shapes: All shapes.
        depth: Depth below a terrain in which contact is found [m].
    """
    rows: list[tuple[np.ndarray, np.ndarray, float, bool, bool]] = []
    for word, hull, mesh, reach in zip(shapes.kind, shapes.hulls, shapes.meshes, shapes.reach, strict=True):
        kind, zero = SHAPE_KINDS[word], np.zeros(3)
        if word == PLANE:
            rows.append((zero, zero, 0.0, False, True))
        elif kind.ends:
            rows.append((zero, np.abs(kind.ends).max(0), 1.0, kind.axial, False))
        elif kind.meshed:
            points = (
                mesh.vertices
                if mesh is not None
                else hull.vertices
                if hull is not None
                else [[-reach] * 3, [reach] * 3]
            )
            low, high = np.min(points, 0) - [0.0, 0.0, depth * kind.concave], np.max(points, 0)
            rows.append(((low + high) / 2, (high - low) / 2, 0.0, False, False))
        else:
            rows.append((zero, np.ones(3), 0.0, kind.axial, False))
    names = ("middle", "half", "swell", "axial", "flat")
    return {n: np.array([row[k] for row in rows]) for k, n in enumerate(names)}


_SCENERIES: WeakKeyDictionary[Builder, Scenery] = WeakKeyDictionary()


def scenery(program: Builder, model: SceneArrays) -> Scenery:
    """The tables of shapes of a program, built once and shared."""
    return _SCENERIES.setdefault(program, Scenery(program, model))


def has_broad_phase(model: SceneArrays) -> bool:
    """Whether a broad phase pays."""
    return len(model.candidates) > FEW


def has_many_pairs(model: SceneArrays) -> bool:
    """Whether the broad phase builds a tree, and supports of contacts are found at run time."""
    return has_broad_phase(model) and sum(len(table["first"]) for table in model.candidates.pairs.values()) >= MANY


def find_near(links: Links, model: SceneArrays, dt: Ref, margin: Ref, reach: Ref | None) -> PairList:
    """The broad phase: pairs of shapes within the margin.

    Args:
        links: Poses of the links.
        model: The model.
        dt: Time step.
        margin: Largest gap of a contact [m].
        reach: Receives the gap up to which shapes may meet within the step, in place of the margin; None: keep it.
    """
    p, around, shapes, table = links.program, scenery(links.program, model), len(model.shapes.names), pair_table(model)
    bounds: Any = Bounds(
        **{n: p.scratch(f"bound_{n}", e, shapes) for n, e in (("low", vec3), ("high", vec3), ("speed", Float))}
    )
    pairs, total, most = len(table["first"]), len(model.candidates), ROOM * model.contact.max_contacts
    room, slots = min(pairs, most), min(total, most)
    near, count = p.scratch("near_pair", Int, room), p.scratch("near_pairs", Int, 1)
    made = PairList(
        {n: p.scratch(f"near_{n}", Int, room) for n in ("first", "second", "start", "number")}
        | {"ranges": p.scratch("near_ranges", Int, len(table["each"]) + 1)},
        p.scratch("near_candidate", Int, slots),
        p.scratch("near_row", Int, slots),
        (
            p.constant("pair_first_link", Int, model.shapes.link[table["first"]]),
            p.constant("pair_second_link", Int, model.shapes.link[table["second"]]),
        ),
        p.scratch("near_candidates", Int, 1),
        p.scratch("lost_pairs", Int, 1),
        (room, slots),
    )
    poses = (links.R, links.p, links.V, around.shapes, around.extents)  # made here: the node below has no adjoint
    constants = PairTable(**{n: p.constant(f"table_{n}", Int, x) for n, x in table.items()})
    with p.custom() as node:
        p.call(bound_shapes, links.tree.root, *poses, bounds, count=shapes)
        if reach is not None:
            p.call(reach_of_step, bounds, dt, margin, reach)
        within = margin if reach is None else reach
        if not has_many_pairs(model):
            p.call(list_near_pairs, bounds, around.extents.flat, within, constants, near, count)
        else:
            partners = [p.constant(f"shape_{n}", Int, x) for n, x in partner_lists(table, shapes).items()]
            boxes = (bounds.low, bounds.high, around.extents.flat)
            p.call(find_near_pairs, *boxes, within, *partners, near, count)
        lists = Pairs(**made.pairs, family=p.constant("no_family", Int, 0))
        p.call(group_by_family, near, count, constants, lists, made.candidate, made.row, made.count, made.lost)
    with p.adjoint_of(node):
        pass  # which pairs are near has no derivative
    return made


def detect(links: Links, model: SceneArrays, margin: Ref, listed: PairList | None = None) -> Touch | None:
    """The narrow phase: gap, point and normal of contact candidates.

    Args:
        links: Poses of the links.
        model: The model.
        margin: Gap above which the narrow phase skips candidates [m].
        listed: The pairs of shapes; None: all of the model, in the order of `model.candidates`.

    Returns:
        Contact candidates; None if the model has none.
    """
    p, candidates = links.program, model.candidates
    if not len(candidates):
        return None
    around, prefix = scenery(p, model), "candidate" if listed is None else "near"
    listed = listed or around.all_pairs
    touch = touch_buffers(p, prefix, listed.room[1])
    for number, (name, arrays) in enumerate(candidates.pairs.items()):
        kind, _, terrain = name.partition(" ")
        family = FAMILIES[kind]
        pairs = Pairs(**listed.pairs, family=around.families[number])
        given = (around.shapes, pairs, *_tables(around, family, name, terrain))
        if family.search is None:
            p.call(family.kernel, *given, links.R, links.p, margin, touch)
        else:
            most = min(len(arrays["first"]), listed.room[0])
            features = p.scratch(f"{prefix}_{name}_features", Int, family.candidates * most)
            p.call(family.search, *given, links.R, links.p, margin, features)
            p.call(family.kernel, *given, features, links.R, links.p, touch)
    return touch


def _tables(around: Scenery, family: Family, name: str, terrain: str) -> tuple[Any, ...]:
    """Further arguments of a family's kernels, after shapes and pairs."""
    if family.hulls:
        return (around.hulls,)
    if not family.terrain:
        return ()
    return around.knobs(name), around.terrain(int(terrain))


def pair_table(model: SceneArrays) -> dict[str, np.ndarray]:
    """Arrays of `PairTable` by name: pairs in the order of their candidates, not by family."""
    tables = model.candidates.pairs
    columns = {n: np.concatenate([table[n] for table in tables.values()]) for n in ("first", "second", "start")}
    columns["number"] = np.concatenate([np.arange(len(table["first"])) for table in tables.values()])
    columns["family"] = np.repeat(np.arange(len(tables)), [len(table["first"]) for table in tables.values()])
    order = np.argsort(columns["start"])
    each = np.array([FAMILIES[name.partition(" ")[0]].candidates for name in tables])
    return {n: x[order].astype(np.int32) for n, x in columns.items()} | {"each": each}


def partner_lists(table: dict[str, np.ndarray], shapes: int) -> dict[str, np.ndarray]:
    """Partners of each shape, see `near_pairs.find_near_pairs`: begin, partner and pair."""
    low, high = (f(table["first"], table["second"]) for f in (np.minimum, np.maximum))
    order = np.lexsort((high, low))
    begin = np.searchsorted(low[order], np.arange(shapes + 1))
    return {"begin": begin, "partner": high[order], "pair": order}


def record_touch(p: Builder, touch: Touch | None, count: int, names: Sequence[str]) -> None:
    """Add the requested outputs of contact candidates: gap, point and normal."""
    for name in (n for n in ("gap", "point", "normal") if n in names):
        if touch is None:
            raise InputError(f"record: there is no {name!r}", expected="a model with a contact")
        if name == "gap":
            p.call(report_numbers, touch.gap, p.constant("gap_start", Int, 0), p.output("record_gap", Float, count))
        else:
            p.call(report_vectors, getattr(touch, name), p.output(f"record_{name}", vec3, count))
