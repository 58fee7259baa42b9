"""Blocks and tetrahedral meshes: volumes, masses, surfaces, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from kinema.errors import InputError
from kinema.model.tetmesh import tet_mesh
from kinema.scene.shapes.block import block, surface


@pytest.mark.parametrize("cubes", [(1, 1, 1), (3, 2, 4)])
def test_a_block_is_filled_and_its_diagonals_meet(cubes: tuple[int, int, int]):
    made = block(cubes, 0.5, (1.0, 2.0, 3.0))
    vertices, tets = made.vertices, made.corners
    mesh = tet_mesh(vertices, tets)
    a, b, c = cubes
    assert len(tets) == 5 * a * b * c
    assert mesh.volume.min() > 0 and mesh.volume.sum() == pytest.approx(0.125 * a * b * c)
    np.testing.assert_allclose(vertices.mean(axis=0), (1.0, 2.0, 3.0))
    triangles = surface(tets)
    assert len(triangles) == 4 * (a * b + b * c + c * a)  # two per square: nothing is left open inside
    corners = vertices[triangles]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert ((corners.mean(axis=1) - (1.0, 2.0, 3.0)) * normals).sum(axis=1).min() > 0  # outwards


def test_volumes_add_up_and_the_order_is_a_permutation():
    made = block((4, 3, 2), 0.1)
    mesh = tet_mesh(made.vertices, made.corners)
    assert mesh.volume.sum() == pytest.approx(24e-3)
    assert sorted(mesh.order) == list(range(len(mesh.tets)))
    edges = np.swapaxes(mesh.vertices[mesh.tets[:, 1:]] - mesh.vertices[mesh.tets[:, :1]], 1, 2)
    np.testing.assert_allclose(edges @ mesh.rest_inverse, np.broadcast_to(np.eye(3), edges.shape), atol=1e-12)


def test_bad_meshes_are_refused_with_the_element():
    made = block((2, 1, 1), 0.1)
    vertices, tets = made.vertices, made.corners
    inverted = tets.copy()
    inverted[3] = inverted[3, [0, 1, 3, 2]]
    with pytest.raises(InputError, match="element 3 is inverted"):
        tet_mesh(vertices, inverted)
    flat = vertices.copy()
    flat[tets[4, 3]] = flat[tets[4, :3]].mean(axis=0)
    with pytest.raises(InputError, match="element 4 is degenerate"):
        tet_mesh(flat, tets)
    with pytest.raises(InputError, match="element 1 has a vertex"):
        tet_mesh(vertices, np.array([[0, 1, 2, 4], [0, 1, 2, 99]]))
    with pytest.raises(InputError, match="vertex 8 belongs to no element"):
        tet_mesh(vertices, tets[~(tets == 8).any(axis=1)])
    with pytest.raises(InputError, match=r"expected: \(tets, 4\)"):
        tet_mesh(vertices, tets.astype(float))
    with pytest.raises(InputError, match="vertex 2 is not finite"):
        broken = vertices.copy()
        broken[2, 1] = np.nan
        tet_mesh(broken, tets)
