"""Procedural meshes: volumes and areas in closed form, conformity, closed surfaces, counts, and what is refused."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from kinema.errors import InputError
from kinema.scene.description import Mesh, Tets
from kinema.scene.shapes.ball import ball
from kinema.scene.shapes.beam import beam
from kinema.scene.shapes.block import block, surface
from kinema.scene.shapes.gear import TIP, gear
from kinema.scene.shapes.sheet import rolled_sheet, sheet
from kinema.scene.shapes.walker import walker

# Name, mesh, tetrahedra, Euler characteristic of the surface: 2 for a sphere, 0 for a torus.
SOLIDS = [
    ("block", block((3, 2, 4), 0.5), 120, 2),
    ("brick", block((2, 2, 1), (0.5, 0.2, 1.0), (1.0, 2.0, 3.0)), 20, 2),
    ("beam", beam(1.0, 0.1, 0.2, (7, 2, 3)), 210, 2),
    ("ball", ball(0.3, 4, (1.0, 0.0, -1.0)), 1280, 2),
    ("coarsest ball", ball(1.0, 1), 20, 2),
    ("gear", gear(0.1, 0.04, 0.03), 1152, 0),
    ("odd gear", gear(0.1, 0.04, 0.03, teeth=7, axial=3, depth=0.02), 36 * 7 * 3, 0),
]
SOLID = pytest.mark.parametrize("name, mesh, tets, euler", SOLIDS, ids=[row[0] for row in SOLIDS])


def volumes(mesh: Tets) -> np.ndarray:
    corners = mesh.vertices[mesh.corners]
    return np.linalg.det(corners[:, 1:] - corners[:, :1]) / 6


def shape_quality(mesh: Tets) -> np.ndarray:
    """6 sqrt(2) volume over the cube of the root mean square edge: 1 for a regular tetrahedron, 0 for a flat one."""
    corners = mesh.vertices[mesh.corners]
    edges = corners[:, [0, 0, 0, 1, 1, 2]] - corners[:, [1, 2, 3, 2, 3, 3]]
    return 6 * math.sqrt(2) * volumes(mesh) / (edges**2).sum(axis=2).mean(axis=1) ** 1.5


def edges_of(faces: np.ndarray) -> Counter[tuple[int, int]]:
    return Counter((int(a), int(b)) for face in faces for a, b in zip(face, np.roll(face, -1), strict=True))


def euler_characteristic(faces: np.ndarray) -> int:
    undirected = {tuple(sorted(edge)) for edge in edges_of(faces)}
    return len(np.unique(faces)) - len(undirected) + len(faces)


@SOLID
def test_a_solid_is_made_of_as_many_tetrahedra_as_it_says(name: str, mesh: Tets, tets: int, euler: int):
    assert mesh.corners.shape == (tets, 4) and mesh.corners.dtype == np.int32
    assert mesh.vertices.dtype == np.float64
    np.testing.assert_array_equal(np.unique(mesh.corners), np.arange(len(mesh.vertices)))  # every vertex has a use
    assert len(np.unique(mesh.vertices.round(9), axis=0)) == len(mesh.vertices)  # none is there twice


@SOLID
def test_all_volumes_are_positive(name: str, mesh: Tets, tets: int, euler: int):
    assert shape_quality(mesh).min() > 0.15  # a brick of 1 : 2 : 5 and long teeth are the worst here


@SOLID
def test_neighbours_share_whole_faces(name: str, mesh: Tets, tets: int, euler: int):
    faces = np.sort(mesh.corners[:, ((1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2))].reshape(-1, 3), axis=1)
    _, count = np.unique(faces, axis=0, return_counts=True)
    assert count.max() <= 2
    # That faces of one tetrahedron are outside and not torn apart: they enclose the volume of all tetrahedra ...
    outside = surface(mesh.corners)
    assert len(outside) == (count == 1).sum()
    a, b, c = (mesh.vertices[outside[:, i]] for i in range(3))
    enclosed = np.einsum("ij,ij->", a, np.cross(b, c)) / 6
    assert enclosed == pytest.approx(volumes(mesh).sum(), rel=1e-12)  # sums of a few thousand roundings
    # ... and are a closed surface: each edge is walked once in each direction.
    edges = edges_of(outside)
    assert set(edges.values()) == {1} and all((j, i) in edges for i, j in edges)
    assert euler_characteristic(outside) == euler


def test_blocks_and_beams_have_their_volume():
    # A few hundred roundings of 1e-16 each.
    assert volumes(block((3, 2, 4), 0.5)).sum() == pytest.approx(3.0, rel=1e-13)
    assert volumes(beam(1.1, 0.1, 0.2, (7, 2, 3))).sum() == pytest.approx(0.022, rel=1e-13)


def test_a_beam_lies_along_x_from_zero():
    mesh = beam(1.1, 0.1, 0.2, (7, 2, 3))
    np.testing.assert_allclose(mesh.vertices.min(axis=0), (0.0, -0.05, -0.1), atol=1e-15)
    np.testing.assert_allclose(mesh.vertices.max(axis=0), (1.1, 0.05, 0.1), rtol=1e-15)
    np.testing.assert_array_equal(np.flatnonzero(mesh.vertices[:, 0] == 0), np.arange(12))  # the first end


def test_the_surface_of_a_ball_is_on_the_sphere():
    centre = np.array((1.0, 0.0, -1.0))
    mesh = ball(0.3, 5, centre)
    outside = np.unique(surface(mesh.corners))
    assert len(outside) == 10 * 5**2 + 2 and len(surface(mesh.corners)) == 20 * 5**2
    distance = np.linalg.norm(mesh.vertices - centre, axis=1)
    np.testing.assert_allclose(distance[outside], 0.3, rtol=1e-15)  # two roundings of numbers up to 1.3
    np.testing.assert_allclose(np.unique(distance.round(12)), 0.3 * np.arange(6) / 5, atol=1e-12)


def test_the_volume_of_a_ball_converges_with_the_square_of_its_edges():
    missing = [4 / 3 * math.pi - volumes(ball(1.0, n)).sum() for n in (4, 8, 16)]
    assert missing[2] / (4 / 3 * math.pi) == pytest.approx(0.55 / 16**2, rel=0.02)  # as its docstring says
    # Chords of a circle lie below it by a share of h^2, with a next term of h^4: the order is 2 + O(h^2).
    orders = np.log2(np.divide(missing[:-1], missing[1:]))
    np.testing.assert_allclose(orders, 2.0, atol=0.05)
    assert abs(orders[1] - 2) < 0.4 * abs(orders[0] - 2)


def test_tetrahedra_are_well_shaped():
    assert shape_quality(block((2, 2, 2), 0.1)).min() == pytest.approx((4 / 3) ** 1.5 / 2)  # a corner of a cube
    for layers in (4, 12):  # finer ones are as good
        assert shape_quality(ball(1.0, layers)).min() > 0.53
    assert shape_quality(gear(0.1, 0.05, 0.03)).min() > 0.5


def test_a_gear_has_the_volume_of_its_outline():
    radius, hole, width, teeth, depth = 0.1, 0.04, 0.03, 16, 0.02
    mesh = gear(radius, hole, width, teeth=teeth, depth=depth)
    foot, half = radius - depth, math.pi / (2 * teeth)
    ring = teeth * math.sin(2 * half) * (foot**2 - hole**2)  # of two polygons with 2 teeth corners
    # A tooth is two trapezia: half chord and height of each, at foot, middle and tip.
    rows = [
        (r, half * (1 - (1 - TIP) * t)) for t, r in zip((0, 0.5, 1), (foot, (foot + radius) / 2, radius), strict=True)
    ]
    ends = [(r * math.sin(lean), r * math.cos(lean)) for r, lean in rows]
    tooth = sum((w + v) * (h - g) for (v, g), (w, h) in zip(ends, ends[1:], strict=False))
    assert volumes(mesh).sum() == pytest.approx(width * (ring + teeth * tooth), rel=1e-12)


def test_a_gear_has_teeth():
    mesh = gear(0.1, 0.04, 0.03)
    r, angle = np.hypot(*mesh.vertices[:, :2].T), np.arctan2(mesh.vertices[:, 1], mesh.vertices[:, 0])
    assert r.min() == pytest.approx(0.04) and r.max() == pytest.approx(0.1)
    tips = np.sort(angle[(r > 0.0999) & (mesh.vertices[:, 2] > 0.0149)] % (2 * math.pi))
    gaps = np.diff(np.append(tips, tips[0] + 2 * math.pi))
    assert len(tips) == 32  # two corners of each of 16
    wide, narrow = 2 * math.pi / 16 * (1 - TIP / 2), 2 * math.pi / 16 * TIP / 2
    np.testing.assert_allclose(np.sort(gaps), [narrow] * 16 + [wide] * 16, rtol=1e-12)


def area_vectors(mesh: Mesh) -> np.ndarray:
    a, b, c = (mesh.vertices[mesh.faces[:, i]] for i in range(3))
    return np.cross(b - a, c - a) / 2


def boundary(mesh: Mesh) -> int:
    edges = edges_of(mesh.faces)
    assert set(edges.values()) == {1}  # neighbours look to the same side
    return sum((j, i) not in edges for i, j in edges)


def test_a_sheet_faces_up_and_its_diagonals_alternate():
    mesh = sheet(2.0, 3.0, (4, 6), (0.0, 0.0, 1.0))
    assert mesh.faces.shape == (48, 3) and mesh.faces.dtype == np.int32 and len(mesh.vertices) == 35
    normals = area_vectors(mesh)
    np.testing.assert_allclose(normals, np.tile((0.0, 0.0, 0.125), (48, 1)), atol=1e-15)
    assert boundary(mesh) == 20 and euler_characteristic(mesh.faces) == 1
    np.testing.assert_allclose(mesh.vertices.mean(axis=0), (0.0, 0.0, 1.0), atol=1e-15)
    # Inside, diagonals that alternate meet in fours: vertices have 8 or 4 neighbours, never 6.
    met = Counter(i for edge in edges_of(mesh.faces) for i in edge)
    inside = [i for i, (x, y, _) in enumerate(mesh.vertices) if abs(x) < 0.99 and abs(y) < 1.49]
    assert {met[i] // 2 for i in inside} == {4, 8}


def test_a_rolled_sheet_is_closed_around():
    mesh = rolled_sheet(0.5, 2.0, (40, 8))
    assert len(mesh.faces) == 640 and len(mesh.vertices) == 40 * 9
    np.testing.assert_allclose(np.hypot(mesh.vertices[:, 0], mesh.vertices[:, 2]), 0.5, rtol=1e-15)
    assert boundary(mesh) == 80 and euler_characteristic(mesh.faces) == 0
    middles = mesh.vertices[mesh.faces].mean(axis=1) * (1, 0, 1)
    assert (area_vectors(mesh) * middles).sum(axis=1).min() > 0  # outwards
    area = np.linalg.norm(area_vectors(mesh), axis=1).sum()
    assert area == pytest.approx(40 * 2 * 0.5 * math.sin(math.pi / 40) * 2.0, rel=1e-13)


def test_a_part_of_a_rolled_sheet_is_open():
    mesh = rolled_sheet(0.5, 2.0, (10, 4), angle=math.pi / 2)
    assert len(mesh.faces) == 80 and len(mesh.vertices) == 55
    assert boundary(mesh) == 28 and euler_characteristic(mesh.faces) == 1
    assert mesh.vertices[:, 2].max() == pytest.approx(0.5) and mesh.vertices[:, 0].sum() == pytest.approx(0, abs=1e-14)
    # The plain weave of a flat one, bent.
    np.testing.assert_array_equal(mesh.faces, sheet(1.0, 1.0, (10, 4)).faces)


def test_a_walker_stands_on_its_legs():
    mesh = walker(0.1, (10, 3), (2, 4), legs=3)
    assert len(mesh.faces) == 2 * (30 + 3 * 8) and euler_characteristic(mesh.faces) == 1
    boundary(mesh)
    np.testing.assert_array_equal(np.unique(mesh.faces), np.arange(len(mesh.vertices)))
    np.testing.assert_allclose(area_vectors(mesh), np.tile((0.0, -0.005, 0.0), (108, 1)), atol=1e-15)
    feet = mesh.vertices[mesh.vertices[:, 2] == 0]
    np.testing.assert_allclose(np.sort(feet[:, 0]), [-0.5, -0.4, -0.3, -0.1, 0.0, 0.1, 0.3, 0.4, 0.5], atol=1e-15)
    assert mesh.vertices[:, 2].max() == pytest.approx(0.7)


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: block((0, 1, 1), 0.1), "a block has an invalid resolution"),
    (lambda: block((1, 1), 0.1), "a block has an invalid resolution"),  # type: ignore[arg-type]
    (lambda: block((1.5, 1, 1), 0.1), "a block has an invalid resolution"),  # type: ignore[arg-type]
    (lambda: block((2000, 2000, 2000), 0.1), "too many vertices"),
    (lambda: block((1, 1, 1), -0.1), "a block has an invalid length"),
    (lambda: block((1, 1, 1), 0.1, (0.0, math.nan, 0.0)), "a block has an invalid position"),
    (lambda: beam(1.0, 0.0, 1.0, (1, 1, 1)), "a beam has an invalid length"),
    (lambda: beam(1.0, 1.0, 1.0, (1, 1)), "a beam has an invalid resolution"),
    (lambda: ball(math.inf, 2), "a ball has an invalid length"),
    (lambda: ball(1.0, 0), "a ball has an invalid resolution"),
    (lambda: gear(0.1, 0.1, 0.1), "a gear has an invalid length|do not fit"),
    (lambda: gear(0.1, 0.05, 0.1, depth=0.06), "do not fit"),
    (lambda: gear(0.1, 0.05, 0.1, teeth=2), "a gear has an invalid resolution"),
    (lambda: sheet(1.0, math.nan, (1, 1)), "a sheet has an invalid length"),
    (lambda: rolled_sheet(1.0, 1.0, (2, 1)), "a rolled sheet has an invalid resolution"),
    (lambda: rolled_sheet(1.0, 1.0, (4, 1), angle=7.0), "invalid angle"),
    (lambda: walker(0.1, (5, 2), (3, 2)), "no gap"),
    (lambda: walker(0.1, legs=1), "a walker has an invalid resolution"),
]


@pytest.mark.parametrize("make, message", WRONG, ids=[message for _, message in WRONG])
def test_numbers_that_no_mesh_has_are_refused(make: Callable[[], object], message: str):
    with pytest.raises(InputError, match=message):
        make()
