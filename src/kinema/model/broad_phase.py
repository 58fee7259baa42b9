"""Broad phase at compile time: arrays of colliding shapes, contact pairs and their contact candidates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from kinema.contact.collision.pair_table import PAIRS, Family
from kinema.errors import InputError, ModelError
from kinema.model.tree import TreeArrays
from kinema.scene.contact import Contact
from kinema.scene.convex_hull import Hull
from kinema.scene.description import (
    CYLINDER,
    MESH,
    PLANE,
    Mesh,
    PlacedRobot,
    Pose,
    Shape,
    rotation_matrix,
)
from kinema.scene.scene import Ground
from kinema.scene.shape_kinds import SHAPE_KINDS, three_sizes

WORLD = 0
GROUND = "ground"

PAIR = ("first", "second", "start")
Knob = tuple[Sequence[float], float, int]


@dataclass(eq=False)
class ShapeArrays:
    """Shapes on links, see `contact.collision.narrow_phase.Shapes`; shapes (n, ...).

    Attributes:
        names: "robot/body/shape".
        kind: Kinds of the description.
        link, offset, rotation, size, reach: Shapes (n,), (n, 3), (n, 3, 3), (n, 3), (n,).
        friction, restitution: Coefficients, shape (n,).
        hulls: Polyhedra of shapes in pairs that need them: convex hulls of meshes, prisms of cylinders, cubes of
            boxes; otherwise None. `find_candidates` fills them.
        meshes: Triangles of terrain; otherwise None.
    """

    names: list[str]
    kind: list[str]
    link: np.ndarray
    offset: np.ndarray
    rotation: np.ndarray
    size: np.ndarray
    reach: np.ndarray
    friction: np.ndarray
    restitution: np.ndarray
    hulls: list[Hull | None]
    meshes: list[Mesh | None]


@dataclass(eq=False)
class CandidateArrays:
    """Contact candidates: possible contacts of shape pairs. Shapes (n, ...).

    Attributes:
        names: "robot/body/shape on robot/body/shape"; the ground is "ground".
        first, second: Links; one of them may be the world.
        friction: Coefficient: the smaller one of the two shapes.
        restitution: Coefficient: the larger one of the two shapes.
        pairs: See `contact.collision.narrow_phase.Pairs`: arrays by name, by family.
        knobs: See `contact.collision.terrain.Knobs`: arrays by name, by family and terrain; families on terrain have
            separate pairs per terrain, as "ball_terrain 3" for the terrain with shape index 3.
    """

    names: list[str]
    first: np.ndarray
    second: np.ndarray
    friction: np.ndarray
    restitution: np.ndarray
    pairs: dict[str, dict[str, np.ndarray]]
    knobs: dict[str, dict[str, np.ndarray]]

    def __len__(self) -> int:
        return len(self.names)


@dataclass
class Found:
    """A shape, its pose, and the data of its collision filter.

    Attributes:
        root: Root body of its tree.
        exclude: Shape kinds that it does not collide with.
    """

    name: str
    shape: Shape
    body: str
    root: str
    robot: PlacedRobot | None
    link: int
    position: np.ndarray
    rotation: np.ndarray
    exclude: tuple[str, ...] = ()


def find_shapes(
    tree: TreeArrays, placed: Sequence[PlacedRobot], ground: Ground | None, contact: Contact
) -> tuple[ShapeArrays, list[Found]]:
    """All colliding shapes; the ground is a plane on the world."""
    found = list(_shapes(tree, placed))
    if ground is not None:
        plane = Shape(PLANE, pose=Pose((0.0, 0.0, ground.height)), group=ground.group)
        place = np.array([0.0, 0.0, ground.height])
        found.append(Found(GROUND, plane, GROUND, GROUND, None, WORLD, place, np.eye(3), ground.exclude))
    arrays = ShapeArrays(
        names=[f.name for f in found],
        kind=[f.shape.kind for f in found],
        link=np.array([f.link for f in found], np.int32),
        offset=np.array([f.position for f in found]).reshape(-1, 3),
        rotation=np.array([f.rotation for f in found]).reshape(-1, 3, 3),
        size=np.array([three_sizes(f.shape) for f in found]).reshape(-1, 3),
        reach=np.array([_reach(f.shape) for f in found]),
        friction=np.array([_friction(f.shape, contact) for f in found]),
        restitution=np.array([_or(f.shape.restitution, contact.restitution) for f in found]),
        hulls=[None] * len(found),
        meshes=[f.shape.mesh if SHAPE_KINDS[f.shape.kind].concave else None for f in found],
    )
    return arrays, found


def _shapes(tree: TreeArrays, placed: Sequence[PlacedRobot]) -> Iterator[Found]:
    for one in placed:
        parent = {body.name: body.parent for body in one.robot.bodies}
        for body in one.robot.bodies:
            b = tree.bodies.index(f"{one.name}/{body.name}")
            place, turn = tree.body_offset[b], tree.body_rotation[b]
            for number, shape in enumerate(body.shapes):
                if not shape.collides:
                    continue
                name = f"{one.name}/{body.name}/{shape.name or number}"
                if SHAPE_KINDS[shape.kind].concave and tree.body_link[b] != WORLD:
                    what, fix = f"{shape.kind} {name!r} is on a moving body", "a static body: no parent, no joints"
                    raise ModelError(what, fix=fix)
                position = place + turn @ np.asarray(shape.pose.position, float)
                rotation = turn @ rotation_matrix(shape.pose.rotation)
                yield Found(
                    name, shape, body.name, _root(parent, body.name), one, int(tree.body_link[b]), position, rotation
                )


def _root(parent: dict[str, str | None], body: str) -> str:
    """The root body of a body's tree."""
    while (up := parent[body]) is not None:
        body = up
    return body


def _reach(shape: Shape) -> float:
    """Bounding radius about the shape's origin [m]; 0 for unbounded shapes, whose pairs do not use it."""
    reach = SHAPE_KINDS[shape.kind].reach(shape)
    return reach if math.isfinite(reach) else 0.0


def _friction(shape: Shape, contact: Contact) -> float:
    """Coefficient of friction; without friction rows it is zero, except in the law "convex", which mixes condim."""
    if shape.surface is not None and shape.surface.condim == 1 and not contact.convex:
        return 0.0
    return _or(shape.friction, contact.friction)


def _or(own: float | None, default: float) -> float:
    return default if own is None else own


def hull_of(found: Found) -> Hull | None:
    """The convex hull of a shape at unit sizes; None if it has none.

    Raises:
        ModelError: A mesh is flat.
    """
    corners = SHAPE_KINDS[found.shape.kind].corners
    if corners is None:
        return None
    try:
        return corners(found.shape)
    except InputError as error:
        fix = "Shape(collides=False), or a shape with volume"
        raise ModelError(f"{found.shape.kind} {found.name!r} has no convex hull: {error}", fix=fix) from None


def add_hulls(shapes: ShapeArrays, found: list[Found]) -> None:
    """Add hulls of all meshes and cylinders, because particles may touch any of them.

    Raises:
        ModelError: Particles cannot touch a kind of shape.
    """
    for s, one in enumerate(found):
        if SHAPE_KINDS[one.shape.kind].smooth:
            what = f"soft matter cannot touch the {one.shape.kind} {one.name!r}"
            raise ModelError(what, fix="Shape(collides=False), or the convex hull of a mesh in its place")
        if one.shape.kind in (MESH, CYLINDER) and shapes.hulls[s] is None:
            shapes.hulls[s] = hull_of(one)


@dataclass(frozen=True)
class Meeting:
    """A pair of shapes that may collide, in the order of the pair table.

    Attributes:
        first, second: Shape indices.
        family: Narrow phase of the pair; None if these kinds cannot collide.
        cornered: Indices of the shapes that need a hull.
    """

    first: int
    second: int
    family: Family | None
    cornered: tuple[int, ...]


def find_meetings(tree: TreeArrays, found: list[Found]) -> Iterator[Meeting]:
    """Pairs of shapes that pass the collision filters."""
    for a, b in combinations(range(len(found)), 2):
        if not _meet(tree, found[a], found[b]):
            continue
        a, b = _in_order(found, a, b)
        family = PAIRS.get((found[a].shape.kind, found[b].shape.kind))
        cornered: tuple[int, ...] = ()
        if family is not None:
            cornered = (a, b) if family.hulls else (a,) if family.terrain else ()
        yield Meeting(a, b, family, cornered)


def find_candidates(tree: TreeArrays, shapes: ShapeArrays, found: list[Found]) -> CandidateArrays:
    """Contact candidates of all pairs that may collide.

    Raises:
        ModelError: A pair passes the collision filters, but has kinds that cannot collide.
    """
    names: list[str] = []
    links: list[tuple[int, int]] = []
    friction: list[float] = []
    restitution: list[float] = []
    pairs: dict[str, list[tuple[int, int, int]]] = {}
    knobs: dict[str, list[Knob]] = {}
    for meeting in find_meetings(tree, found):
        a, b, family = meeting.first, meeting.second, meeting.family
        if family is None:
            raise _cannot_touch(found[a], found[b])
        for s in meeting.cornered:
            shapes.hulls[s] = shapes.hulls[s] or hull_of(found[s])
        name, each = family.name, family.candidates
        places: list[Knob | None] = [None]
        if family.terrain:
            name = f"{name} {b}"
            places = [*_knobs(found[a].shape, shapes.hulls[a])]
        for place in places:
            pairs.setdefault(name, []).append((a, b, len(names)))
            if place is not None:
                knobs.setdefault(name, []).append(place)
            names += [f"{shapes.names[a]} on {shapes.names[b]}"] * each
            links += [(int(shapes.link[a]), int(shapes.link[b]))] * each
            friction += [float(min(shapes.friction[a], shapes.friction[b]))] * each
            restitution += [float(max(shapes.restitution[a], shapes.restitution[b]))] * each
    return CandidateArrays(
        names,
        np.array([one for one, _ in links], np.int32),
        np.array([two for _, two in links], np.int32),
        np.array(friction),
        np.array(restitution),
        {
            family: {name: np.array([row[k] for row in table], np.int32) for k, name in enumerate(PAIR)}
            for family, table in pairs.items()
        },
        {
            family: {
                "at": np.array([row[0] for row in table], float),
                "swell": np.array([row[1] for row in table]),
                "capsule": np.array([row[2] for row in table], np.int32),
            }
            for family, table in knobs.items()
        },
    )


def _knobs(shape: Shape, hull: Hull | None) -> list[Knob]:
    """Spheres of a shape: centre over size, radius over its radius, whether its size is (radius, half length)."""
    kind = SHAPE_KINDS[shape.kind]
    if kind.ends:
        return [(end, 1.0, int(kind.axial)) for end in kind.ends]
    assert hull is not None
    return [(vertex, 0.0, int(kind.axial)) for vertex in hull.vertices]


def _meet(tree: TreeArrays, a: Found, b: Found) -> bool:
    """Whether two shapes may collide, by their groups, the options of their robots, and the joints between them."""
    one, two = a.shape, b.shape
    if a.link == b.link or not (tree.yields[a.link] or tree.yields[b.link]):
        return False
    if not (one.mask & two.group and two.mask & one.group) or one.kind in b.exclude or two.kind in a.exclude:
        return False
    if a.robot is not b.robot or a.robot is None:
        return True
    if frozenset((a.body, b.body)) in a.robot.robot.excluded:
        return False
    if stands_by(a, b):
        return True
    return a.robot.self_collision and _parent(tree, a.link) != b.link and _parent(tree, b.link) != a.link


def stands_by(a: Found, b: Found) -> bool:
    """Whether one of two shapes is static and outside the other's tree: a floor, a table."""
    return WORLD in (a.link, b.link) and (a.robot is not b.robot or a.root != b.root)


def _parent(tree: TreeArrays, link: int) -> int:
    """The parent body's link of a link, across intermediate joints of the same body; -1 for the world."""
    if link == WORLD:
        return -1
    up = int(tree.parent[link - 1])
    with_body = set(tree.body_link.tolist())
    while up != WORLD and up not in with_body:
        up = int(tree.parent[up - 1])
    return up


def _in_order(found: list[Found], a: int, b: int) -> tuple[int, int]:
    """Two shapes in the order of the pair table."""
    kinds = (found[a].shape.kind, found[b].shape.kind)
    return (b, a) if kinds not in PAIRS and kinds[::-1] in PAIRS else (a, b)


def _cannot_touch(a: Found, b: Found) -> ModelError:
    fixes = ["other shapes", "Shape(collides=False)", "groups and masks that exclude the pair"]
    if GROUND in (a.name, b.name):
        kind = a.shape.kind if b.name == GROUND else b.shape.kind
        fixes.insert(1, f"add_ground(exclude=[{kind!r}])")
    elif a.robot is b.robot and not stands_by(a, b):
        fixes.insert(1, "add_robot(self_collision=False)")
    return ModelError(
        f"collision of {a.shape.kind} {a.name!r} and {b.shape.kind} {b.name!r} is not supported",
        expected=", ".join(f"{one} and {two}" for one, two in PAIRS),
        fix=", or ".join(fixes),
    )
