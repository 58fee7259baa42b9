"""The table of kinds of shapes: its numbers fit each other and the triangles that are drawn."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kinema as kn
from kinema.contact.collision.pair_table import PAIRS
from kinema.rendering.triangles import TRIANGLES, triangles_of
from kinema.scene.shape_kinds import SHAPE_KINDS, ShapeKind, three_sizes, weigh
from kinema.scene.shapes.height_field import height_field

ROWS = [*SHAPE_KINDS.values()]
TETRAHEDRON = kn.Mesh(np.vstack([np.zeros(3), np.eye(3)]), np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]))

each_kind = pytest.mark.parametrize("row", ROWS, ids=[row.word for row in ROWS])


def example(row: ShapeKind) -> kn.Shape:
    hill = height_field([[0.0, 0.1], [0.2, 0.0]], 2.0, 1.0)
    mesh = None if not row.meshed else hill if row.concave else TETRAHEDRON
    return kn.Shape(row.word, (0.3, 0.5, 0.2)[: len(row.sizes)], mesh=mesh)


@each_kind
def test_every_kind_is_drawn_and_touches(row: ShapeKind):
    assert row.meshed or (row.word in TRIANGLES) == math.isfinite(row.reach(example(row)))
    in_pairs = {kind for pair in PAIRS for kind in pair}
    assert row.concave or row.word in in_pairs
    assert (
        bool(row.ends)
        + (row.corners is not None)
        + row.concave
        + row.smooth
        + (not math.isfinite(row.reach(example(row))))
        == 1
    )


@each_kind
def test_it_reaches_as_far_as_its_triangles(row: ShapeKind):
    shape = example(row)
    if not row.meshed and row.word not in TRIANGLES:
        return
    drawn = triangles_of(shape.kind, shape.mesh)
    corners = drawn.basis @ three_sizes(shape)
    reach = row.reach(shape)
    slack = row.axial and row.corners is not None  # of a cylinder, radius and half length add up
    farthest = np.linalg.norm(corners, axis=1).max()
    assert farthest == pytest.approx(math.hypot(0.3, 0.5) if slack else reach, rel=1e-12) and farthest <= reach * 1.0001


@each_kind
def test_mass_is_that_of_the_volume_inside_its_triangles(row: ShapeKind):
    """By tetrahedra from the origin; round shapes are drawn with 32 sides, inside of the true ones."""
    shape = example(row)
    if row.solid is None:
        with pytest.raises(kn.InputError, match="(?s)has no mass of its own.*a sphere, capsule, .* or mesh"):
            weigh(shape)
        return
    volume, centre, inertia = weigh(shape)
    drawn = triangles_of(shape.kind, shape.mesh)
    a, b, c = ((drawn.basis @ three_sizes(shape))[drawn.faces[:, k]] for k in range(3))
    parts = np.einsum("ni,ni->n", a, np.cross(b, c)) / 6
    first = np.einsum("n,ni->i", parts, a + b + c) / 4
    total = a + b + c
    squares = sum(np.einsum("n,ni,nj->ij", parts, x, x) for x in (a, b, c, total)) / 20
    found = np.trace(squares) * np.eye(3) - squares
    shift = volume * (centre @ centre * np.eye(3) - np.outer(centre, centre))
    near = 1e-12 if row.meshed or row.corners is not None and not row.axial else 0.03
    assert parts.sum() == pytest.approx(volume, rel=near)
    assert np.allclose(first, volume * centre, rtol=near, atol=1e-12)
    assert np.allclose(found, inertia + shift, rtol=2 * near, atol=1e-12)


@each_kind
def test_sizes_are_checked_by_their_number(row: ShapeKind):
    body = kn.Body("b", shapes=(kn.Shape(row.word, (0.1,) * 4),))
    scene = kn.Scene()
    scene.add_robot(kn.Robot("r", (body,)))
    wanted = "no triangles" if row.meshed else ", ".join(row.sizes) or "no numbers"
    with pytest.raises(kn.ModelError, match=wanted):
        kn.compile(scene)


def test_names_in_files_are_unique():
    for names in ([row.mjcf for row in ROWS if row.mjcf], [row.urdf for row in ROWS if row.urdf]):
        assert len(set(names)) == len(names) > 3
