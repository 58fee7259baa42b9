"""The table of shape pairs: every kernel writes as many candidates as the table says, and all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import kinema as kn
from kinema.contact.collision.narrow_phase import Pairs, Shapes, Touch
from kinema.contact.collision.pair_table import FAMILIES, PAIRS
from kinema.scene.description import (
    BOX,
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    MESH,
    PLANE,
    SPHERE,
    TERRAIN,
    Body,
    Joint,
    MassProperties,
    Mesh,
    Robot,
    Shape,
)
from pairs import _Arrays, hills, hull_family, plain_family, terrain_family

ROOM = 3  # of candidates that belong to nobody, on both sides of those of a pair
GAPS = (-0.1, 5.0, 50.0)  # [m], overlapping, apart, and beyond the margin


def family_of(name: str):
    table = FAMILIES[name]
    if table.terrain:
        return terrain_family(name, hills())
    if table.hulls:
        kinds = [kinds for kinds, family in PAIRS.items() if family is table][0]
        return hull_family(name, *("hull" if kind in (MESH, CYLINDER, BOX) else "none" for kind in kinds))
    return plain_family(name)


@pytest.mark.parametrize("away", GAPS)
@pytest.mark.parametrize("name", FAMILIES)
def test_kernels_write_all_candidates_of_a_pair_and_no_others(name: str, away: float):
    family, count = family_of(name), FAMILIES[name].candidates
    n, eye = family.pairs, np.eye(3)
    m = n * count + 2 * ROOM
    shapes = Shapes(
        link=np.zeros(2 * n, np.int32),
        offset=np.array([[0.0, 0.0, away]] * n + [[0.0, 0.0, 0.0]] * n),
        rotation=np.array([eye] * 2 * n),
        size=np.full((2 * n, 3), 0.3),
        reach=np.full(2 * n, 0.6),
    )
    lists = {"first": np.arange(n), "second": np.arange(n, 2 * n), "start": ROOM + count * np.arange(n)}
    pairs = Pairs(**lists, number=np.arange(n), ranges=np.array([0, n]), family=0)
    touch = Touch(gap=np.full(m, np.nan), point=np.full((m, 3), np.nan), normal=np.full((m, 3), np.nan))
    given, where = (shapes, pairs, *family.tables(_Arrays())), (np.array([eye]), np.zeros((1, 3)))
    if FAMILIES[name].search is None:
        FAMILIES[name].kernel.python(*given, *where, 10.0, touch)
    else:
        features = np.zeros(n * count, np.int32)
        FAMILIES[name].search.python(*given, *where, 10.0, features)
        FAMILIES[name].kernel.python(*given, features, *where, touch)
    own = np.zeros(m, bool)
    own[ROOM : m - ROOM] = True
    for written in (touch.gap, touch.point, touch.normal):
        assert (np.isfinite(written.reshape(m, -1)).all(1) == own).all()


ROCK = Mesh(np.vstack([np.zeros(3), np.eye(3)]), np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]))
SHAPES = {
    PLANE: Shape(PLANE),
    SPHERE: Shape(SPHERE, (0.2,)),
    CAPSULE: Shape(CAPSULE, (0.1, 0.2)),
    CYLINDER: Shape(CYLINDER, (0.1, 0.2)),
    BOX: Shape(BOX, (0.1, 0.2, 0.3)),
    ELLIPSOID: Shape(ELLIPSOID, (0.1, 0.2, 0.3)),
    MESH: Shape(MESH, mesh=ROCK),
    TERRAIN: Shape(TERRAIN, mesh=hills()),
}
POINTS = {SPHERE: 1, CAPSULE: 2, BOX: 8, MESH: 4, CYLINDER: 2 * 24}  # where shapes touch terrain


def robot(name: str, kind: str) -> Robot:
    mass = MassProperties(1.0, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
    joints = () if kind in (PLANE, TERRAIN) else (Joint("free", "free"),)
    return Robot(name, (Body("body", joints=joints, mass=mass, shapes=(SHAPES[kind],)),))


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("kinds", PAIRS)
def test_the_broad_phase_reads_the_table(kinds: tuple[str, str], swapped: bool):
    """In whichever order two shapes are added."""
    scene = kn.Scene()
    for k in (1, 0) if swapped else (0, 1):
        scene.add_robot(robot(f"r{k}", kinds[k]))
    model, family = kn.compile(scene), PAIRS[kinds]
    (name,) = model.candidates.pairs
    terrain = model.shapes.kind.index(TERRAIN) if family.terrain else None
    assert name == (family.name if terrain is None else f"{family.name} {terrain}")
    assert len(model.candidates) == family.candidates * (POINTS[kinds[0]] if family.terrain else 1)
    assert {kinds[0] for kinds in PAIRS if PAIRS[kinds] is family} >= {
        model.shapes.kind[s] for s in model.candidates.pairs[name]["first"]
    }
