"""Checks and repairs of tetrahedral meshes from any source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kinema.errors import ModelError
from kinema.scene.description import Tets

FLATTEST = 1e-6  # volume over (mean edge)^3, up to which an element is degenerate; 0.118 for a regular one


@dataclass(frozen=True)
class Repairs:
    """Numbers of repaired elements: inverted, degenerate, duplicate."""

    turned: int = 0
    flat: int = 0
    doubled: int = 0

    def __str__(self) -> str:
        done = (
            (self.turned, "inverted flipped"),
            (self.flat, "degenerate dropped"),
            (self.doubled, "duplicates dropped"),
        )
        return ", ".join(f"{count} {what}" for count, what in done if count)


def usable_tets(
    points: np.ndarray, corners: np.ndarray, place: Callable[[int], str], *, repair: bool = False
) -> tuple[Tets, Repairs]:
    """A mesh without degenerate, inverted or duplicate elements, and without unused vertices.

    Args:
        points: [m], shape (points, 3), finite.
        corners: Valid indices of points, shape (tets, 4).
        place: Origin of an element, for messages.
        repair: Whether to flip inverted elements and drop degenerate and duplicate ones.

    Returns:
        The mesh, without unused points, and the repairs.

    Raises:
        ModelError: The mesh has no element, or an element is not usable; names the first.
    """
    volume, flat = _volumes(points, corners)
    inverted = (volume < 0) & ~flat
    _, first = np.unique(np.sort(corners, axis=1), axis=0, return_index=True)
    doubled = np.ones(len(corners), bool)
    doubled[first] = False
    doubled &= ~flat
    if not repair:
        drop = "pass repair=True to drop such elements"
        _refuse(flat, "degenerate: its corners lie in a plane", volume, place, f"fix the mesh, or {drop}")
        _refuse(inverted, "inverted", volume, place, "swap two of its corners, or pass repair=True")
        # In version 2.2, Gmsh writes a volume in two groups twice.
        _refuse(doubled, "a duplicate: an earlier one has the same corners", volume, place, drop)
    made = corners.copy()
    made[inverted] = made[inverted][:, [0, 1, 3, 2]]
    kept = made[~(flat | doubled)]
    if len(kept) == 0:
        got = f"{len(corners)} elements" + (", all degenerate" if len(corners) else "")
        raise ModelError("the mesh has no tetrahedra", where=place(0), got=got, fix="export the mesh of the volume")
    used = np.zeros(len(points), bool)
    used[kept] = True
    renumbered = np.cumsum(used, dtype=np.int32) - 1
    tets = Tets(np.ascontiguousarray(points[used]), np.ascontiguousarray(renumbered[kept], dtype=np.int32))
    return tets, Repairs(int((inverted & ~doubled).sum()), int(flat.sum()), int(doubled.sum()))


def _volumes(points: np.ndarray, corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Volumes [m^3], and a mask of degenerate elements, shape (tets,) each."""
    a, b, c, d = (points[corners[:, i]] for i in range(4))
    volume = np.einsum("ij,ij->i", b - a, np.cross(c - a, d - a)) / 6
    edges = sum(np.linalg.norm(q - p, axis=1) for p, q in ((a, b), (a, c), (a, d), (b, c), (b, d), (c, d)))
    repeated = (np.diff(np.sort(corners, axis=1), axis=1) == 0).any(axis=1)
    return volume, repeated | ~(np.abs(volume) > FLATTEST * (edges / 6) ** 3)


def _refuse(bad: np.ndarray, what: str, volume: np.ndarray, place: Callable[[int], str], fix: str) -> None:
    """Raise for the first bad element."""
    if bad.any():
        first = int(np.argmax(bad))
        more = f" ({int(bad.sum())} of {len(bad)} are)" if bad.sum() > 1 else ""
        raise ModelError(
            f"the tetrahedron is {what}{more}", where=place(first), got=f"volume {volume[first]:.3g} m^3", fix=fix
        )
