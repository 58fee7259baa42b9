"""What a mesh of tetrahedra must be, whoever made it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kinema.errors import ModelError
from kinema.scene.description import Tets

FLATTEST = 1e-6  # volume over (mean edge)^3 up to which an element counts as degenerate; 0.118 is a regular one


@dataclass(frozen=True)
class Repairs:
    """How many elements were changed."""

    turned: int = 0
    flat: int = 0
    doubled: int = 0

    def __str__(self) -> str:
        done = ((self.turned, "inverted turned"), (self.flat, "degenerate dropped"), (self.doubled, "doubled dropped"))
        return ", ".join(f"{count} {what}" for count, what in done if count)


def usable_tets(
    points: np.ndarray, corners: np.ndarray, place: Callable[[int], str], *, repair: bool = False
) -> tuple[Tets, Repairs]:
    """A mesh that can be simulated: no element degenerate, inverted or there twice, no vertex without an element.

    Args:
        points: [m], shape (points, 3), finite.
        corners: Indices of points, all of them there, shape (tets, 4).
        place: Where an element came from, for messages.
        repair: Whether inverted elements are turned, and degenerate and doubled ones dropped.

    Returns:
        The mesh, without the points that no element uses, and what was repaired.

    Raises:
        ModelError: There is no element, or one is not usable; names the first.
    """
    volume, flat = _volumes(points, corners)
    inverted = (volume < 0) & ~flat
    _, first = np.unique(np.sort(corners, axis=1), axis=0, return_index=True)
    doubled = np.ones(len(corners), bool)
    doubled[first] = False
    doubled &= ~flat
    if not repair:
        drop = "pass repair=True to drop such elements"
        _refuse(flat, "degenerate: its corners lie in a plane", volume, place, f"mend the mesh, or {drop}")
        _refuse(inverted, "inverted", volume, place, "exchange two of its corners, or pass repair=True")
        # Gmsh writes a volume of two groups twice, in version 2.2.
        _refuse(doubled, "there twice: an earlier one has the same corners", volume, place, drop)
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
    """Volumes [m^3] and which are degenerate, shape (tets,) each."""
    a, b, c, d = (points[corners[:, i]] for i in range(4))
    volume = np.einsum("ij,ij->i", b - a, np.cross(c - a, d - a)) / 6
    edges = sum(np.linalg.norm(q - p, axis=1) for p, q in ((a, b), (a, c), (a, d), (b, c), (b, d), (c, d)))
    repeated = (np.diff(np.sort(corners, axis=1), axis=1) == 0).any(axis=1)
    return volume, repeated | ~(np.abs(volume) > FLATTEST * (edges / 6) ** 3)


def _refuse(bad: np.ndarray, what: str, volume: np.ndarray, place: Callable[[int], str], fix: str) -> None:
    """Raise for the first element that is marked."""
    if bad.any():
        first = int(np.argmax(bad))
        more = f" ({int(bad.sum())} of {len(bad)} are)" if bad.sum() > 1 else ""
        raise ModelError(
            f"the tetrahedron is {what}{more}", where=place(first), got=f"volume {volume[first]:.3g} m^3", fix=fix
        )
