"""Faces of all surfaces together, cached with the programs that draw them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from kinema.errors import InputError
from kinema.lang.programs.program import Program
from kinema.lang.runtime.memory_layout import keep_in
from kinema.rendering.image_program import Faces, Shape, image_program
from kinema.rendering.rasteriser import joined_faces, rings
from kinema.rendering.surface import Surface


class Topology:
    """Faces of all surfaces together, and the preparation for drawing them.

    Args:
        corners: Corners of all faces, shape (faces, 3).
        owners: The surface of each face, shape (faces,).
        points: Like `corners`, with the points of the vertices: faces that share points are neighbours.

    Attributes:
        room: Capacities of lists, by the size of the image: as large as they turned out to be needed.
        drawings: Prepared programs, by the properties they are built for.
    """

    def __init__(self, corners: np.ndarray, owners: np.ndarray, points: np.ndarray) -> None:
        self.faces = Faces(corners, owners, rings(points))
        self.room: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.drawings: dict[Any, Any] = {}
        self._programs: dict[Shape, Program] = {}

    def program(self, shape: Shape) -> Program:
        """The program that draws them with these properties."""
        return keep_in(self._programs, shape, lambda: image_program(self.faces, shape))

    def forget(self, shape: Shape) -> None:
        """Forget a program whose lists are too short."""
        self._programs.pop(shape, None)


_SEEN: dict[Any, tuple[Topology, list[Any]]] = {}  # by identity; keeps the tensors alive, so that ids stay valid
_TOPOLOGIES: dict[Any, Topology] = {}  # by values


def topology_of(surfaces: Sequence[Surface]) -> Topology:
    """The topology of surfaces, found by the identity of their tensors of faces, else by their values."""
    try:
        key = tuple(map(_identity, surfaces))
    except RuntimeError:  # inference tensors do not track edits
        return _same_numbers(surfaces)
    found = _SEEN.get(key)
    if found is None:
        found = keep_in(_SEEN, key, lambda: (_same_numbers(surfaces), [(s.faces, s.points) for s in surfaces]))
    return found[0]


def _identity(surface: Surface) -> tuple[int, ...]:
    faces, points = surface.faces, surface.points
    return id(faces), faces._version, id(points), points is not None and points._version, surface.vertices.shape[-2]


def _same_numbers(surfaces: Sequence[Surface]) -> Topology:
    """The topology with the same values as these surfaces; checks them."""
    parts = [s.faces.detach().cpu().numpy() for s in surfaces]
    counts = [s.vertices.shape[-2] for s in surfaces]
    for surface, faces, count in zip(surfaces, parts, counts, strict=True):
        if faces.ndim != 2 or faces.shape[1] != 3 or len(faces) == 0 or faces.dtype.kind not in "iu":
            got = f"{faces.dtype} of shape {tuple(faces.shape)}"
            raise InputError(f"faces of {surface.name!r} are not triangles", got=got, expected="integers (faces, 3)")
        if faces.min() < 0 or faces.max() >= count:
            got = f"{int(faces.min())} ... {int(faces.max())}"
            raise InputError(f"faces of {surface.name!r} name missing vertices", got=got, expected=f"0 ... {count - 1}")
    pairs = zip(surfaces, parts, strict=True)
    merged = [faces if s.points is None else s.points.detach().cpu().numpy()[faces] for s, faces in pairs]
    owners = np.repeat(np.arange(len(parts)), [len(faces) for faces in parts]).astype(np.int32)
    arrays = joined_faces(parts, counts), owners, joined_faces(merged, counts)
    key = tuple([blake2b(array.tobytes(), digest_size=16).digest() for array in arrays])
    return keep_in(_TOPOLOGIES, key, lambda: Topology(*arrays))
