"""Colliding shapes of a scene in arrays, and the places where they may touch: candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from kinema.errors import ModelError
from kinema.model.tree import Placed, TreeArrays, rotation_matrix
from kinema.scene.description import BOX, CAPSULE, MESH, PLANE, SPHERE, Pose, Shape
from kinema.scene.scene import Contact, Ground

MOST_VERTICES = 64  # of a mesh: each is a candidate of its own
WORLD = 0
GROUND = "ground"

FAMILIES = {
    (SPHERE, SPHERE): ("sphere_round", 1),
    (SPHERE, CAPSULE): ("sphere_round", 1),
    (CAPSULE, CAPSULE): ("capsule_capsule", 2),
    (SPHERE, BOX): ("sphere_box", 1),
    (CAPSULE, BOX): ("capsule_box", 2),
    (BOX, BOX): ("box_box", 8),
}
"""Pairs of kinds that can touch, in this order: name of the family and places per pair. Planes are besides them."""
PAIR = ("first", "second", "start")


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
    """Places where shapes may touch; those on planes come first. Shapes (n, ...).

    Attributes:
        names: "robot/body/shape on robot/body/shape"; the ground is "ground".
        first, second: Links; one of them may be the world.
        friction: Coefficient: the smaller one of the two shapes'.
        corners: See `contact.corners.Corners`: arrays by name.
        pairs: See `contact.shapes.Pairs`: arrays by name, by family.
    """

    names: list[str]
    first: np.ndarray
    second: np.ndarray
    friction: np.ndarray
    corners: dict[str, np.ndarray]
    pairs: dict[str, dict[str, np.ndarray]]

    def __len__(self) -> int:
        return len(self.names)


@dataclass
class Found:
    """A shape, where it is, and what says which others it meets."""

    name: str
    shape: Shape
    body: str
    robot: Placed | None
    link: int
    position: np.ndarray
    rotation: np.ndarray
    without: tuple[str, ...] = ()


def find_shapes(
    tree: TreeArrays, placed: Sequence[Placed], ground: Ground | None, contact: Contact
) -> tuple[ShapeArrays, list[Found]]:
    """All shapes that collide; the ground is a plane on the world."""
    found = list(_shapes(tree, placed))
    if ground is not None:
        plane = Shape(PLANE, pose=Pose((0.0, 0.0, ground.height)), group=ground.group)
        place = np.array([0.0, 0.0, ground.height])
        found.append(Found(GROUND, plane, GROUND, None, WORLD, place, np.eye(3), ground.without))
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


def _shapes(tree: TreeArrays, placed: Sequence[Placed]) -> Iterator[Found]:
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
                yield Found(name, shape, body.name, one, int(tree.body_link[b]), position, rotation)


def _reach(shape: Shape) -> float:
    """Radius of a ball about the shape's frame that holds it [m]."""
    if shape.kind == SPHERE:
        return shape.size[0]
    if shape.kind == BOX:
        return float(np.linalg.norm(shape.size))
    if shape.kind == MESH and shape.mesh is not None:
        return float(np.linalg.norm(shape.mesh.vertices, axis=1).max())
    return float(sum(shape.size))


def find_candidates(tree: TreeArrays, shapes: ShapeArrays, found: list[Found]) -> CandidateArrays:
    """Everything that may touch.

    Raises:
        ModelError: Two shapes that may meet are of kinds that cannot touch each other.
    """
    names: list[str] = []
    links: list[tuple[int, int]] = []
    friction: list[float] = []
    rows: list[tuple[int, int, np.ndarray, float, np.ndarray, float]] = []
    pairs: dict[str, list[tuple[int, int, int]]] = {}

    def add(a: int, b: int, count: int) -> None:
        names.extend([f"{shapes.names[a]} on {shapes.names[b]}"] * count)
        links.extend([(int(shapes.link[a]), int(shapes.link[b]))] * count)
        friction.extend([float(min(shapes.friction[a], shapes.friction[b]))] * count)

    meeting = [(a, b) for a, b in combinations(range(len(found)), 2) if _meet(tree, found[a], found[b])]
    ordered = [_in_order(found, a, b) for a, b in meeting]
    for a, b in (pair for pair in ordered if found[pair[1]].shape.kind == PLANE):
        corners = _corners(found[a], found[b])
        rows += [(a, b, *corner) for corner in corners]
        add(a, b, len(corners))
    for a, b in (pair for pair in ordered if found[pair[1]].shape.kind != PLANE):
        family, count = FAMILIES.get((found[a].shape.kind, found[b].shape.kind), ("", 0))
        if not family:
            raise _cannot_touch(found[a], found[b])
        pairs.setdefault(family, []).append((a, b, len(names)))
        add(a, b, count)
    first, second = (np.array([link[k] for link in links], np.int32) for k in (0, 1))
    return CandidateArrays(
        names,
        first,
        second,
        np.array(friction),
        {
            "shape": np.array([r[0] for r in rows], np.int32),
            "plane": np.array([r[1] for r in rows], np.int32),
            "of_size": np.array([r[2] for r in rows]).reshape(-1, 3),
            "end": np.array([r[3] for r in rows]),
            "vertex": np.array([r[4] for r in rows]).reshape(-1, 3),
            "round": np.array([r[5] for r in rows]),
        },
        {
            family: {name: np.array([row[k] for row in table], np.int32) for k, name in enumerate(PAIR)}
            for family, table in pairs.items()
        },
    )


def _meet(tree: TreeArrays, a: Found, b: Found) -> bool:
    """Whether two shapes may touch: their groups, the words of their robots, and joints between them decide."""
    one, two = a.shape, b.shape
    if a.link == b.link or (one.kind == PLANE and two.kind == PLANE):
        return False
    if not (one.mask & two.group and two.mask & one.group) or one.kind in b.without or two.kind in a.without:
        return False
    if a.robot is not b.robot or a.robot is None:
        return True
    if not a.robot.self_collision or frozenset((a.body, b.body)) in a.robot.robot.excluded:
        return False
    return _parent(tree, a.link) != b.link and _parent(tree, b.link) != a.link


def _parent(tree: TreeArrays, link: int) -> int:
    """The link that a link hangs on, beyond joints of the same body; -1 above the world."""
    if link == WORLD:
        return -1
    up = int(tree.parent[link - 1])
    with_body = set(tree.body_link.tolist())
    while up != WORLD and up not in with_body:
        up = int(tree.parent[up - 1])
    return up


def _in_order(found: list[Found], a: int, b: int) -> tuple[int, int]:
    """Two shapes in the order of the families, planes last."""
    kinds = (found[a].shape.kind, found[b].shape.kind)
    swapped = kinds[0] == PLANE or (kinds not in FAMILIES and kinds[::-1] in FAMILIES)
    return (b, a) if swapped else (a, b)


def _corners(one: Found, plane: Found) -> list[tuple[np.ndarray, float, np.ndarray, float]]:
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
    raise _cannot_touch(one, plane)


def _cannot_touch(a: Found, b: Found) -> ModelError:
    fixes = ["other shapes in their place", "Shape(collides=False)", "groups and masks that keep them apart"]
    if GROUND in (a.name, b.name):
        kind = a.shape.kind if b.name == GROUND else b.shape.kind
        fixes.insert(1, f"add_ground(without=[{kind!r}])")
    elif a.robot is b.robot:
        fixes.insert(1, "add_robot(self_collision=False)")
    return ModelError(
        f"{a.shape.kind} {a.name!r} and {b.shape.kind} {b.name!r} may meet but cannot touch each other yet",
        expected=f"pairs that can: {', '.join(f'{x} and {y}' for x, y in FAMILIES)}; all of these, and meshes of up to "
        f"{MOST_VERTICES} vertices, and planes",
        fix=", or ".join(fixes),
    )
