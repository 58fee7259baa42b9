"""Triangle meshes at rest: areas, masses, rest shapes, hinges, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sheets import sheet

from kinema.errors import InputError
from kinema.model.trimesh import TriArrays, hinge_angles, tri_mesh


def octahedron() -> TriArrays:
    vertices = np.concatenate([np.eye(3), -np.eye(3)])
    half = [(0, 1, 2), (1, 3, 2), (3, 4, 2), (4, 0, 2)]
    return tri_mesh(vertices, np.array([*half, *[(b, a, 5) for a, b, _ in half]]))


def test_areas_and_rest_shapes():
    vertices, triangles = sheet(4, 3, height=lambda x, y: 0.05 * np.sin(30 * x + 20 * y))
    mesh = tri_mesh(vertices, triangles)
    a, b, c = (vertices[triangles[:, k]] for k in range(3))
    np.testing.assert_allclose(mesh.area, 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1), rtol=1e-14)
    # F has orthonormal columns at rest, and the first one points from a to b.
    F = np.stack([b - a, c - a], axis=2) @ mesh.rest_inverse
    np.testing.assert_allclose(F.swapaxes(1, 2) @ F, np.broadcast_to(np.eye(2), (len(triangles), 2, 2)), atol=1e-12)
    np.testing.assert_allclose(F[:, :, 0], (b - a) / np.linalg.norm(b - a, axis=1, keepdims=True), atol=1e-12)
    assert sorted(mesh.order) == list(range(len(triangles)))
    assert sorted(mesh.hinge_order) == list(range(len(mesh.hinges)))


def test_hinges_of_a_sheet_are_its_inner_edges():
    nx, ny = 4, 3
    vertices, triangles = sheet(nx, ny)
    mesh = tri_mesh(vertices, triangles)
    assert len(mesh.hinges) == nx * ny + (nx - 1) * ny + nx * (ny - 1)
    corners = {tuple(np.roll(t, k)) for t in triangles.tolist() for k in range(3)}
    for a, b, c, d in mesh.hinges.tolist():
        assert (a, b, c) in corners and (b, a, d) in corners
    assert len({frozenset(h[:2]) for h in mesh.hinges.tolist()}) == len(mesh.hinges)
    np.testing.assert_allclose(mesh.hinge_angle, 0.0, atol=1e-14)
    # |edge|^2 / (2 * 0.01 m^2): sides of 0.1 m and diagonals.
    assert sorted(set(np.round(mesh.hinge_weight, 12))) == [0.5, 1.0]
    np.testing.assert_allclose(mesh.hinge_inverse_areas, 100.0)


def test_angles_of_a_closed_body_are_those_between_its_normals():
    mesh = octahedron()
    assert len(mesh.hinges) == 12
    np.testing.assert_allclose(mesh.hinge_angle, np.arccos(1 / 3), rtol=1e-14)
    inside_out = tri_mesh(mesh.vertices, mesh.triangles[:, ::-1])
    np.testing.assert_allclose(inside_out.hinge_angle, -np.arccos(1 / 3), rtol=1e-14)


@pytest.mark.parametrize("angle", [-3.0, -1.0, 0.0, 1e-9, 2.0, 3.1])
def test_a_fold_has_the_angle_it_was_given(angle: float):
    x = np.array([[0.0, 0, 0], [1, 0, 0], [0.2, 1, 0], [0.7, -np.cos(angle), -np.sin(angle)]])
    assert hinge_angles(x, np.array([[0, 1, 2, 3]]))[0] == pytest.approx(angle, abs=1e-15, rel=1e-14)


def test_a_ring_and_loose_vertices_are_fine():
    """A band with a border on both sides; and a vertex in no triangle, if that is allowed."""
    n = 8
    turn = 2 * np.pi * np.arange(n) / n
    ring = np.stack([np.cos(turn), np.sin(turn), 0 * turn], axis=1)
    i, j = np.arange(n), (np.arange(n) + 1) % n
    triangles = np.concatenate([np.stack([i, j, i + n], axis=1), np.stack([j, j + n, i + n], axis=1)])
    vertices = np.concatenate([ring, ring + (0, 0, 1.0), [(9.0, 9.0, 9.0)]])
    mesh = tri_mesh(vertices, triangles, whole=False)
    assert len(mesh.hinges) == 2 * n
    assert mesh.hinge_angle.min() > -1e-12 and mesh.hinge_angle.sum() == pytest.approx(2 * np.pi)
    with pytest.raises(InputError, match="vertex 16 belongs to no triangle"):
        tri_mesh(vertices, triangles)


def test_one_triangle_has_no_hinges():
    mesh = tri_mesh(np.eye(3), [[0, 1, 2]])
    assert mesh.hinges.shape == (0, 4) and mesh.hinge_angle.shape == (0,) and mesh.hinge_inverse_areas.shape == (0, 2)


def test_bad_meshes_are_refused_with_the_place():
    vertices, triangles = sheet(2, 2)
    line = vertices.copy()
    line[triangles[5, 2]] = 0.5 * (line[triangles[5, 0]] + line[triangles[5, 1]])
    with pytest.raises(InputError, match="triangle 5 is degenerate"):
        tri_mesh(line, triangles)
    with pytest.raises(InputError, match="triangle 1 is degenerate"):
        tri_mesh(vertices, [[0, 3, 1], [3, 4, 4]], whole=False)
    with pytest.raises(InputError, match="triangle 1 has a vertex that does not exist"):
        tri_mesh(vertices, [[0, 3, 1], [3, 4, -1]], whole=False)
    with pytest.raises(InputError, match=r"triangle 0 has a vertex that does not exist \(2 of 2 are\)"):
        tri_mesh(vertices, [[0, 3, 9], [3, 4, 10]], whole=False)
    broken = vertices.copy()
    broken[2, 1] = np.inf
    with pytest.raises(InputError, match="vertex 2 is not finite"):
        tri_mesh(broken, triangles)
    with pytest.raises(InputError, match=r"expected: \(triangles, 3\)"):
        tri_mesh(vertices, triangles.astype(float))
    with pytest.raises(InputError, match=r"expected: \(vertices, 3\)"):
        tri_mesh(vertices[:, :2], triangles)


def test_bad_neighbours_are_refused_with_the_place():
    vertices = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1]])
    with pytest.raises(InputError, match=r"more than two triangles share an edge.*\n?.*\(0, 1\).*\[0, 1, 2\]"):
        tri_mesh(vertices, [[0, 1, 2], [1, 0, 3], [0, 1, 4]])
    with pytest.raises(InputError, match=r"inconsistent orientation.*\n?.*\(0, 1\).*\[0, 1\]"):
        tri_mesh(vertices[:4], [[0, 1, 2], [0, 1, 3]])
    with pytest.raises(InputError, match=r"same corners.*\n?.*\[0, 1\]"):
        tri_mesh(vertices[:3], [[0, 1, 2], [0, 2, 1]])
    vertices[3] = (0.5, 2.0, 0.0)
    with pytest.raises(InputError, match=r"hinge 0 is completely folded.*\n?.*\[0, 1\]"):
        tri_mesh(vertices[:4], [[0, 1, 2], [1, 0, 3]])
