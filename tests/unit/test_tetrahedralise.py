"""Filling surfaces with tetrahedra: what is refused, and where fTetWild is installed, what comes out."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from kinema.errors import InputError, ModelError
from kinema.scene.description import Mesh, Tets
from kinema.scene.io.tetrahedralise import tetrahedralise
from kinema.scene.shapes.ball import ball
from kinema.scene.shapes.block import block, surface
from kinema.scene.shapes.gear import gear


def skin(tets: Tets) -> Mesh:
    return Mesh(tets.vertices, surface(tets.corners))


def volume(tets: Tets) -> np.ndarray:
    corners = tets.vertices[tets.corners]
    return np.linalg.det(corners[:, 1:] - corners[:, :1]) / 6


CUBE = skin(block((2, 2, 2), 0.1, (0.3, 0.0, 0.0)))
EACH = [
    ("cube", CUBE, 0.008),
    ("ball", skin(ball(0.2, 6)), 4 / 3 * math.pi * 0.008),
    ("gear", skin(gear(0.1, 0.04, 0.04)), None),
]


@pytest.mark.parametrize("name, mesh, expected", EACH, ids=[row[0] for row in EACH])
def test_a_surface_is_filled(name: str, mesh: Mesh, expected: float | None, tmp_path, monkeypatch):
    """And nothing is left where it was done."""
    pytest.importorskip("pytetwild")
    monkeypatch.chdir(tmp_path)
    tets = tetrahedralise(mesh)
    assert Path.cwd() == tmp_path and not list(tmp_path.iterdir())
    a, b, c = (mesh.vertices[mesh.faces[:, i]] for i in range(3))
    enclosed = np.einsum("ij,ij->", a, np.cross(b, c)) / 6
    assert expected is None or enclosed == pytest.approx(expected, rel=0.02)
    assert volume(tets).min() > 0
    # The surface may move by 1e-3 of the diagonal d: the volume by at most area times that.
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2
    diagonal = np.linalg.norm(np.ptp(mesh.vertices, axis=0))
    assert abs(volume(tets).sum() - enclosed) < 1e-3 * diagonal * area
    assert np.ptp(tets.vertices, axis=0) == pytest.approx(np.ptp(mesh.vertices, axis=0), abs=2e-3 * diagonal)
    faces = np.sort(tets.corners[:, ((1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2))].reshape(-1, 3), axis=1)
    assert np.unique(faces, axis=0, return_counts=True)[1].max() == 2


def test_what_ftetwild_writes_is_gone(tmp_path, monkeypatch):
    """With one that only writes its file, and gives one tetrahedron, mirrored; or fails."""

    class Fake:
        fails = False

        def tetrahedralize(self, *_: object, **__: object) -> tuple[np.ndarray, np.ndarray]:
            Path("__tracked_surface.stl").write_text("solid")
            if self.fails:
                raise RuntimeError("no")
            return np.concatenate([np.zeros((1, 3)), np.eye(3)]), np.array([[0, 1, 3, 2]])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pytetwild", Fake())
    assert volume(tetrahedralise(CUBE)) == pytest.approx(1 / 6)
    monkeypatch.setattr(Fake, "fails", True)
    with pytest.raises(RuntimeError):
        tetrahedralise(CUBE)
    assert Path.cwd() == tmp_path and not list(tmp_path.iterdir())


def test_the_size_is_that_of_edges():
    pytest.importorskip("pytetwild")
    for size in (0.02, 0.05):
        tets = tetrahedralise(CUBE, size=size)
        corners = tets.vertices[tets.corners]
        edges = np.linalg.norm(corners[:, [0, 0, 0, 1, 1, 2]] - corners[:, [1, 2, 3, 2, 3, 3]], axis=2)
        assert 0.8 * size < edges.mean() < 1.7 * size  # the docstring's numbers, and room for chance


def test_without_ftetwild_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pytetwild", None)
    with pytest.raises(ModelError, match=r"pip install 'kinema\[mesh\]'"):
        tetrahedralise(CUBE)


def wrong(vertices: np.ndarray, faces: np.ndarray) -> Mesh:
    return Mesh(np.asarray(vertices), np.asarray(faces))


TORN = CUBE.vertices.copy()
TORN[3, 1] = np.nan
WRONG = [
    ("open", wrong(CUBE.vertices, CUBE.faces[1:]), None, "not closed(.|\n)*3 loose edges"),
    ("turned face", wrong(CUBE.vertices, np.vstack([CUBE.faces[:1, ::-1], CUBE.faces[1:]])), None, "3 loose edges"),
    ("inside out", wrong(CUBE.vertices, CUBE.faces[:, ::-1]), None, "inside out"),
    ("flat", wrong(CUBE.vertices * (1, 1, 0), CUBE.faces), None, "inside out, or encloses nothing"),
    ("no faces", wrong(CUBE.vertices, CUBE.faces[:0]), None, "not a triangle mesh"),
    ("not finite", wrong(TORN, CUBE.faces), None, "not finite"),
    ("no such vertex", wrong(CUBE.vertices[:-1], CUBE.faces), None, "does not exist"),
    ("negative index", wrong(CUBE.vertices, CUBE.faces - 1), None, "does not exist"),
    ("no size", CUBE, 0.0, "invalid edge size"),
    ("size that is no number", CUBE, math.nan, "invalid edge size"),
]  # fmt: skip


@pytest.mark.parametrize("mesh, size, message", [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_surfaces_without_an_inside_are_refused(mesh: Mesh, size: float | None, message: str):
    with pytest.raises(InputError, match=message):
        tetrahedralise(mesh, size=size)
