"""Tetrahedral meshing of closed surfaces with fTetWild."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import numpy as np

from kinema.errors import InputError, ModelError
from kinema.scene.description import Mesh, Tets
from kinema.scene.io.tets import usable_tets
from kinema.scene.io.xml import LARGEST_NUMBER

COARSEST = 20  # edges along the diagonal of the bounding box, by default
FURTHEST = 1e-3  # distance of the new surface from the given one, as a fraction of that diagonal


def tetrahedralise(mesh: Mesh, *, size: float | None = None) -> Tets:
    """Fill a closed surface with tetrahedra, by fTetWild [Hu, Schneider, Wang, Zorin, Panozzo 2020].

    The surface is remeshed: its vertices change, and it moves by up to 1e-3 of its bounding box diagonal. The method is
    not deterministic: save the mesh if you need it again. It takes seconds, during which the working directory of the
    process is a temporary folder, because fTetWild writes a file there.

    Args:
        mesh: The surface: closed, with faces anticlockwise from outside; parts of it may touch or intersect.
        size: Target edge length [m]; a twentieth of the bounding box diagonal by default. The mean edge becomes 1.1
            to 1.5 times as long.

    Returns:
        Tetrahedra that fill the surface.

    Raises:
        InputError: The surface is open, inside out or not finite, or the size is not positive.
        ModelError: fTetWild found no volume to fill, or is not installed.
    """
    points, faces = np.asarray(mesh.vertices, np.float64), np.asarray(mesh.faces)
    if points.ndim != 2 or points.shape[1] != 3 or faces.ndim != 2 or faces.shape[1] != 3 or len(faces) == 0:
        got = f"vertices {points.shape}, faces {faces.shape}"
        raise InputError("not a triangle mesh", got=got, expected="(n, 3) and (m, 3), m at least 1")
    if not (np.abs(points) <= LARGEST_NUMBER).all():
        raise InputError("a vertex is not finite or too large", expected=f"up to {LARGEST_NUMBER:g} m")
    if not np.issubdtype(faces.dtype, np.integer) or faces.min() < 0 or faces.max() >= len(points):
        raise InputError("a face refers to a vertex that does not exist", expected=f"integers, 0 to {len(points) - 1}")
    _refuse_open(faces)
    a, b, c = (points[faces[:, i]] for i in range(3))
    volume = float(np.einsum("ij,ij->", a - points[0], np.cross(b - points[0], c - points[0])) / 6)
    if volume <= 0:
        fix = "flip all faces: Mesh(mesh.vertices, mesh.faces[:, ::-1])"
        raise InputError("the surface is inside out, or encloses nothing", got=f"volume {volume:.3g} m^3", fix=fix)
    used = points[np.unique(faces)]
    diagonal = float(np.linalg.norm(used.max(axis=0) - used.min(axis=0)))
    edge = diagonal / COARSEST if size is None else float(size)
    if not 0 < edge < math.inf:
        raise InputError("invalid edge size", got=size, expected="positive and finite [m]")
    try:
        import pytetwild
    except ImportError as error:
        fix = "pip install 'kinema[mesh]'"
        raise ModelError("fTetWild, which fills surfaces with tetrahedra, is not installed", fix=fix) from error
    with _elsewhere():
        vertices, corners = pytetwild.tetrahedralize(
            np.ascontiguousarray(points),
            np.ascontiguousarray(faces, np.int32),
            edge_length_abs=min(edge, diagonal),
            epsilon=FURTHEST,
            coarsen=True,  # otherwise edges stay as short as in the first subdivision
            num_threads=1,
        )
    if len(corners) == 0:
        raise ModelError(
            "fTetWild found nothing to fill", got=f"a volume of {volume:.3g} m^3", fix="give a smaller size"
        )
    # fTetWild orients tetrahedra the other way.
    mirrored = np.asarray(corners, np.int64)[:, [0, 1, 3, 2]]
    return usable_tets(np.asarray(vertices, np.float64), mirrored, "element {} of fTetWild".format)[0]


@contextmanager
def _elsewhere() -> Iterator[None]:
    """Work in a temporary folder, where fTetWild writes its files."""
    here = os.getcwd()
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def _refuse_open(faces: np.ndarray) -> None:
    """Raise unless every edge occurs equally often in both directions."""
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]).astype(np.int64)
    low, high = edges.min(axis=1), edges.max(axis=1)
    _, index = np.unique(np.stack([low, high], axis=1), axis=0, return_inverse=True)
    balance = np.bincount(index.ravel(), weights=np.where(edges[:, 0] == low, 1.0, -1.0))
    loose = balance[index.ravel()] != 0
    if loose.any():
        first = int(np.argmax(loose))
        raise InputError(
            "the surface is not closed",
            got=f"{int((balance != 0).sum())} loose edges, the first between vertices {low[first]} and {high[first]}",
            expected="each edge belongs to two faces, in opposite directions",
            fix="close the holes, merge vertices at the same position, and flip faces that face inwards",
        )
