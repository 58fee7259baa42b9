"""Colliding shapes of a scene in arrays, and the places where they may touch: candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

import numpy as np

from kinema.errors import ModelError
from kinema.model.tree import Placed, TreeArrays, rotation_matrix
from kinema.scene.description import BOX, CAPSULE, MESH, SPHERE, Shape
from kinema.scene.scene import Contact, Ground

MOST_VERTICES = 64  # of a mesh: each is a candidate of its own
WORLD = 0


@dataclass(eq=False)
class ShapeArrays:
    """Shapes on links, see `contact.shapes.Shapes`; shapes (n, ...).

    Attributes:
        names: "robot/body/shape".
        kind: Words of the description.
        link, offset, rotation, size, reach: Shapes (n,), (n, 3), (n, 3, 3), (n, 3), (n,).
        friction: Coefficient, shape (n,).
    """

    names: list[str]
    kind: list[str]
    link: np.ndarray
    offset: np.ndarray
    rotation: np.ndarray
    size: np.ndarray
    reach: np.ndarray
    friction: np.ndarray


@dataclass(eq=False)
class CandidateArrays:
    """Places where shapes may touch; those of the ground come first. Shapes (n, ...).

    Attributes:
        names: "robot/body/shape", or two of them.
        first, second: Links; the first one moves, the second may be the world.
        friction: Coefficient.
        corners: See `contact.ground.Corners`: arrays by name, for the ground.
        pairs: See `contact.shapes.Pairs`: arrays by name, by family.
    """

    names: list[str]
    first: np.ndarray
    second: np.ndarray
    friction: np.ndarray
    corners: dict[str, np.ndarray]
    pairs: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)


@dataclass
class _Found:
    name: str
    shape: Shape
    body: str
    robot: Placed
    link: int
    position: np.ndarray
    rotation: np.ndarray


def find_shapes(tree: TreeArrays, placed: Sequence[Placed], contact: Contact) -> tuple[ShapeArrays, list[_Found]]:
    """All shapes that collide."""
    found = list(_shapes(tree, placed))
    arrays = ShapeArrays(
        names=[f.name for f in found],
        kind=[f.shape.kind for f in found],
        link=np.array([f.link for f in found], np.int32),
        offset=np.array([f.position for f in found]).reshape(-1, 3),
        rotation=np.array([f.rotation for f in found]).reshape(-1, 3, 3),
        size=np.array([(*f.shape.size, 0.0, 0.0, 0.0)[:3] for f in found]).reshape(-1, 3),
        reach=np.array([_reach(f.shape) for f in found]),
        friction=np.array([contact.friction if f.shape.friction is None else f.shape.friction for f in found]),
    )
    return arrays, found


def _shapes(tree: TreeArrays, placed: Sequence[Placed]) -> Iterator[_Found]:
    for one in placed:
        for body in one.robot.bodies:
            b = tree.bodies.index(f"{one.name}/{body.name}")
            place, turn = tree.body_offset[b], tree.body_rotation[b]
            for number, shape in enumerate(body.shapes):
                if not shape.collides:
                    continue
                name = f"{one.name}/{body.name}/{shape.name or number}"
                position = place + turn @ np.asarray(shape.pose.position, float)
                rotation = turn @ rotation_matrix(shape.pose.rotation)
                yield _Found(name, shape, body.name, one, int(tree.body_link[b]), position, rotation)


def _reach(shape: Shape) -> float:
    if shape.kind == SPHERE:
        return shape.size[0]
    if shape.kind == BOX:
        return float(np.linalg.norm(shape.size))
    if shape.kind == MESH and shape.mesh is not None:
        return float(np.linalg.norm(shape.mesh.vertices, axis=1).max())
    return float(sum(shape.size)) if shape.size else np.inf


def find_candidates(shapes: ShapeArrays, found: list[_Found], ground: Ground | None) -> CandidateArrays:
    """Everything that may touch.

    Raises:
        ModelError: A shape cannot touch what it may meet.
    """
    names: list[str] = []
    first: list[int] = []
    friction: list[float] = []
    rows: list[tuple[int, np.ndarray, float, np.ndarray, float]] = []
    for s, one in enumerate(found):
        apart = ground is None or one.link == WORLD or not one.shape.mask & ground.group
        if apart or one.shape.kind in (ground.without if ground else ()):
            continue
        for of_size, end, vertex, is_round in _corners(one):
            rows.append((s, of_size, end, vertex, is_round))
            names.append(one.name)
            first.append(one.link)
            friction.append(float(shapes.friction[s]))
    corners = {
        "shape": np.array([r[0] for r in rows], np.int32),
        "of_size": np.array([r[1] for r in rows]).reshape(-1, 3),
        "end": np.array([r[2] for r in rows]),
        "vertex": np.array([r[3] for r in rows]).reshape(-1, 3),
        "round": np.array([r[4] for r in rows]),
    }
    second = np.zeros(len(names), np.int32)
    return CandidateArrays(names, np.array(first, np.int32), second, np.array(friction), corners)


def _corners(one: _Found) -> list[tuple[np.ndarray, float, np.ndarray, float]]:
    """What of the size, the half length and which vertex: a plane touches the shape exactly at one of these points."""
    shape, nothing = one.shape, np.zeros(3)
    if shape.kind == SPHERE:
        return [(nothing, 0.0, nothing, 1.0)]
    if shape.kind == CAPSULE:
        return [(nothing, end, nothing, 1.0) for end in (-1.0, 1.0)]
    if shape.kind == BOX:
        return [(np.array(k, float), 0.0, nothing, 0.0) for k in product((-1, 1), repeat=3)]
    if shape.kind == MESH and shape.mesh is not None and len(shape.mesh.vertices) <= MOST_VERTICES:
        return [(nothing, 0.0, v, 0.0) for v in np.unique(shape.mesh.vertices, axis=0)]
    instead = f"a capsule, box or mesh of up to {MOST_VERTICES} vertices in its place"
    raise ModelError(
        f"{shape.kind} {one.name!r} cannot touch the ground yet",
        fix=f"{instead}, or add_ground(without=[{shape.kind!r}])",
    )
