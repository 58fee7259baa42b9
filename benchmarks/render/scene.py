"""Spheres of triangles, seen from three radii away, which fill about half of the image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

SPHERES = {324: (18, 10), 2_024: (44, 24), 9_996: (102, 50)}
"""Number of triangles -> sectors and rings of a UV sphere."""
PIXELS = (64, 128, 256)
BATCH = 16
FIELD = 0.85  # field of view [rad]
DISTANCE = 3.0
AMBIENT, LIGHT, SPECULAR = 0.4, (0.3, 0.2, 0.8), 0.3  # the light shines to LIGHT, whose length is its strength
DIRECTIONS = 3  # number of directions of finite differences


@dataclass(frozen=True)
class Case:
    """A batch of images of different spheres.

    Attributes:
        triangles: Number of triangles of a sphere, see `SPHERES`.
        pixels: Width and height of an image.
        batch: Number of images.
    """

    triangles: int
    pixels: int
    batch: int

    @cached_property
    def mesh(self) -> tuple[np.ndarray, np.ndarray]:
        """A unit sphere: vertices (V, 3) and faces (F, 3), counter-clockwise seen from outside."""
        sectors, rings = SPHERES[self.triangles]
        polar, turn = np.meshgrid(
            np.linspace(0, np.pi, rings + 1)[1:-1], np.arange(sectors) * 2 * np.pi / sectors, indexing="ij"
        )
        around = np.stack([np.sin(polar) * np.cos(turn), np.sin(polar) * np.sin(turn), np.cos(polar)], -1)
        vertices = np.concatenate([[[0.0, 0.0, 1.0]], around.reshape(-1, 3), [[0.0, 0.0, -1.0]]])
        a = np.arange(sectors)
        b, last = (a + 1) % sectors, len(vertices) - 1
        faces = [np.stack([0 * a, 1 + a, 1 + b], -1)]
        for first in 1 + sectors * np.arange(rings - 2):
            here, below = (first + a, first + b), (first + sectors + a, first + sectors + b)
            faces += [np.stack([here[0], below[0], here[1]], -1), np.stack([here[1], below[0], below[1]], -1)]
        faces.append(np.stack([last - sectors + a, 0 * a + last, last - sectors + b], -1))
        return vertices, np.concatenate(faces)

    @cached_property
    def vertices(self) -> np.ndarray:
        """Vertices of every image, shape (batch, V, 3): the sphere, rotated and slightly deformed."""
        rng = np.random.default_rng(0)
        made = []
        for _ in range(self.batch):
            turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
            made.append(self.mesh[0] @ (turn * np.linalg.det(turn)) + 0.003 * rng.normal(size=self.mesh[0].shape))
        return np.stack(made)

    @property
    def faces(self) -> np.ndarray:
        """Corners of the triangles, shape (F, 3)."""
        return self.mesh[1]

    @cached_property
    def colours(self) -> np.ndarray:
        """Colours of the vertices, shape (V, 3)."""
        return np.random.default_rng(1).uniform(0.2, 1.0, self.mesh[0].shape)

    @cached_property
    def cotangents(self) -> np.ndarray:
        """Cotangents of the pixels, shape (batch, pixels, pixels, 3)."""
        return np.random.default_rng(2).normal(size=(self.batch, self.pixels, self.pixels, 3))

    @property
    def focal(self) -> float:
        """Focal length [pixels]; the camera has world axes and is DISTANCE in front of the centre of the sphere."""
        return 0.5 * self.pixels / math.tan(0.5 * FIELD)

    def directions(self) -> np.ndarray:
        """Random displacements of all vertices of one image, shape (DIRECTIONS, V, 3)."""
        return np.random.default_rng(3).normal(size=(DIRECTIONS, *self.mesh[0].shape))
