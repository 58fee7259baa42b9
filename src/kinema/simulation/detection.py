"""Collision detection in step programs: gaps, points and normals of all contact candidates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kinema.contact.collision.hulls import Hulls, hull_tables
from kinema.contact.collision.narrow_phase import Pairs, Shapes, Touch
from kinema.contact.collision.pair_table import FAMILIES, Family
from kinema.contact.collision.terrain import Knobs, Terrain, terrain_tables
from kinema.dynamics.report import report_numbers, report_vectors
from kinema.errors import InputError
from kinema.lang import Float, Int, mat33, vec3
from kinema.lang.programs.program import Builder, Ref
from kinema.model.arrays import SceneArrays
from kinema.scene.shape_kinds import SHAPE_KINDS
from kinema.simulation.links import Links

DEEP = 0.05  # [m], penetration up to which terrain contacts are detected


def touch_buffers(p: Builder, name: str, count: int) -> Touch:
    """Buffers for `count` contact candidates."""
    return Touch(
        gap=p.scratch(f"{name}_gap", Float, count),
        point=p.scratch(f"{name}_point", vec3, count),
        normal=p.scratch(f"{name}_normal", vec3, count),
    )


class Scenery:
    """Tables of the shapes of a model in a program, each built on first use.

    Args:
        program: Receives the tables.
        model: The model.
    """

    def __init__(self, program: Builder, model: SceneArrays) -> None:
        self.program, self.model = program, model
        self._terrains: dict[int, Terrain] = {}

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

    def terrain(self, shape: int) -> Terrain:
        """Triangles of a terrain; the broad phase searches within the largest radius plus the margin."""
        if shape not in self._terrains:
            p, model, shapes, mesh = self.program, self.model, self.model.shapes, self.model.shapes.meshes[shape]
            assert mesh is not None
            radii = [size[0] for size, kind in zip(shapes.size, shapes.kind, strict=True) if SHAPE_KINDS[kind].ends]
            radii += model.matter.numbers.get("skin_radius", np.zeros(0)).tolist()
            arrays = terrain_tables(mesh, max(radii, default=0.0) + model.contact.margin + DEEP)
            vectors, numbers = ("vertex", "edge_normal", "vertex_normal"), ("left", "below", "cell", "depth")
            kinds = dict.fromkeys(vectors, vec3) | dict.fromkeys(numbers, Float)
            table = {n: p.constant(f"terrain{shape}_{n}", kinds.get(n, Int), x) for n, x in arrays.items()}
            self._terrains[shape] = Terrain(**table)
        return self._terrains[shape]


_SCENERIES: WeakKeyDictionary[Builder, Scenery] = WeakKeyDictionary()


def scenery(program: Builder, model: SceneArrays) -> Scenery:
    """The tables of shapes of a program, built once and shared."""
    return _SCENERIES.setdefault(program, Scenery(program, model))


def detect(links: Links, model: SceneArrays, margin: Ref) -> Touch | None:
    """The narrow phase: gap, point and normal of all contact candidates, by family, in the order of `model.candidates`.

    Args:
        links: Poses of the links.
        model: The model.
        margin: Gap above which the narrow phase skips candidates [m].

    Returns:
        Contact candidates; None if the model has none.
    """
    p, candidates = links.program, model.candidates
    if not len(candidates):
        return None
    around = scenery(p, model)
    touch = touch_buffers(p, "candidate", len(candidates))
    for name, arrays in candidates.pairs.items():
        kind, _, terrain = name.partition(" ")
        family = FAMILIES[kind]
        pairs = Pairs(**{n: p.constant(f"{name}_{n}", Int, x) for n, x in arrays.items()})
        given = (around.shapes, pairs, *_tables(around, family, name, terrain))
        if family.search is None:
            p.call(family.kernel, *given, links.R, links.p, margin, touch)
        else:
            features = p.scratch(f"{name}_features", Int, family.candidates * len(arrays["first"]))
            p.call(family.search, *given, links.R, links.p, margin, features)
            p.call(family.kernel, *given, features, links.R, links.p, touch)
    return touch


def _tables(around: Scenery, family: Family, name: str, terrain: str) -> tuple[Any, ...]:
    """Further arguments of a family's kernels, after shapes and pairs."""
    if family.hulls:
        return (around.hulls,)
    if not family.terrain:
        return ()
    made, elements = around.model.candidates.knobs[name], {"at": vec3, "swell": Float, "capsule": Int}
    knobs = Knobs(**{n: around.program.constant(f"{name}_{n}", e, made[n]) for n, e in elements.items()})
    return knobs, around.terrain(int(terrain))


def record_touch(p: Builder, touch: Touch | None, count: int, names: Sequence[str]) -> None:
    """Add the requested outputs of contact candidates: gap, point and normal."""
    for name in (n for n in ("gap", "point", "normal") if n in names):
        if touch is None:
            raise InputError(f"record: there is no {name!r}", expected="a model with a contact")
        if name == "gap":
            p.call(report_numbers, touch.gap, p.constant("gap_start", Int, 0), p.output("record_gap", Float, count))
        else:
            p.call(report_vectors, getattr(touch, name), p.output(f"record_{name}", vec3, count))
