"""Broad phase at compile time: arrays of colliding shapes, contact pairs and their contact candidates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kinema.contact.collision.pair_table import FAMILIES, PAIRS, Family
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
    for a, b in colliding_pairs(tree, found).tolist():
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
    first, second, family = _ordered_pairs(found, colliding_pairs(tree, found))
    known = list(FAMILIES.values())
    terrain, each = (np.array([getattr(one, n) for one in known]) for n in ("terrain", "candidates"))
    hulls = np.array([one.hulls for one in known])
    for s in np.unique([*first[hulls[family] | terrain[family]], *second[hulls[family]]]).astype(int).tolist():
        shapes.hulls[s] = shapes.hulls[s] or hull_of(found[s])
    # On terrain, every round point of the first shape is a pair of its own.
    points: dict[int, list[Knob]] = {
        s: _knobs(found[s].shape, shapes.hulls[s]) for s in np.unique(first[terrain[family]]).tolist()
    }
    rows = np.ones(len(first), int)
    rows[terrain[family]] = [len(points[s]) for s in first[terrain[family]].tolist()]
    first, second, family = (np.repeat(x, rows) for x in (first, second, family))
    count = each[family]
    start = np.cumsum(count) - count
    pairs: dict[str, dict[str, np.ndarray]] = {}
    knobs: dict[str, dict[str, np.ndarray]] = {}
    # Families in the order of their first pairs; those on terrain are separate per terrain.
    group = np.where(terrain[family], len(known) + second, family)
    group = group + (len(known) + len(found)) * np.where(terrain[family], family, 0)
    groups, begin = np.unique(group, return_index=True)
    for g, i in sorted(zip(groups.tolist(), begin.tolist(), strict=True), key=lambda one: one[1]):
        name, own = known[family[i]].name, np.flatnonzero(group == g)
        if terrain[family[i]]:
            name = f"{name} {second[i]}"
            knobs[name] = _knob_arrays([knob for s in dict.fromkeys(first[own].tolist()) for knob in points[s]])
        pairs[name] = {n: x[own].astype(np.int32) for n, x in zip(PAIR, (first, second, start), strict=True)}
    words = [f"{shapes.names[a]} on {shapes.names[b]}" for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    return CandidateArrays(
        [word for word, n in zip(words, count.tolist(), strict=True) for _ in range(n)],
        np.repeat(shapes.link[first], count),
        np.repeat(shapes.link[second], count),
        np.repeat(np.minimum(shapes.friction[first], shapes.friction[second]), count),
        np.repeat(np.maximum(shapes.restitution[first], shapes.restitution[second]), count),
        pairs,
        knobs,
    )


def _ordered_pairs(found: list[Found], pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First and second shapes in the order of the pair table, and the numbers of their families.

    Raises:
        ModelError: Two kinds cannot collide.
    """
    words = sorted({one.shape.kind for one in found})
    numbers = {name: k for k, name in enumerate(FAMILIES)}
    table = np.full((len(words), len(words)), -1)
    for (one, two), family in PAIRS.items():
        if one in words and two in words:
            table[words.index(one), words.index(two)] = numbers[family.name]
    kind = np.array([words.index(one.shape.kind) for one in found], int)
    a, b = pairs.T
    swap = (table[kind[a], kind[b]] < 0) & (table[kind[b], kind[a]] >= 0)
    first, second = np.where(swap, b, a), np.where(swap, a, b)
    family = table[kind[first], kind[second]]
    if (family < 0).any():
        wrong = int((family < 0).argmax())
        raise _cannot_touch(found[first[wrong]], found[second[wrong]])
    return first, second, family


def _knob_arrays(knobs: Sequence[Knob]) -> dict[str, np.ndarray]:
    return {
        "at": np.array([knob[0] for knob in knobs], float),
        "swell": np.array([knob[1] for knob in knobs]),
        "capsule": np.array([knob[2] for knob in knobs], np.int32),
    }


def _knobs(shape: Shape, hull: Hull | None) -> list[Knob]:
    """Spheres of a shape: centre over size, radius over its radius, whether its size is (radius, half length)."""
    kind = SHAPE_KINDS[shape.kind]
    if kind.ends:
        return [(end, 1.0, int(kind.axial)) for end in kind.ends]
    assert hull is not None
    return [(vertex, 0.0, int(kind.axial)) for vertex in hull.vertices]


def colliding_pairs(tree: TreeArrays, found: list[Found]) -> np.ndarray:
    """Pairs of shapes that may collide, by their groups, the options of their robots, and the joints between them.

    Returns:
        Shape indices, shape (pairs, 2), in ascending order.
    """
    count, link = len(found), np.array([one.link for one in found], int)
    moves = np.asarray(tree.yields, bool)[link]
    kinds, fits = _filters(found)
    parent = np.array([_parent(tree, k) for k in range(len(tree.parent) + 1)])[link] if count else link
    bodies, roots, excluded = _bodies(found)
    out: list[np.ndarray] = []
    for a, end in enumerate(_ends(found)):
        meets = (link[a + 1 :] != link[a]) & (moves[a + 1 :] | moves[a]) & fits[kinds[a], kinds[a + 1 :]]
        robot = found[a].robot
        if robot is not None and end > a + 1:
            own = slice(a + 1, end)  # the shapes of one robot are consecutive
            static = ((link[own] == WORLD) | (link[a] == WORLD)) & (roots[own] != roots[a])
            joined = (parent[own] == link[a]) | (link[own] == parent[a])
            allowed = static | (~joined if robot.self_collision else False)
            meets[: end - a - 1] &= allowed & ~np.isin(bodies[own], excluded.get(int(bodies[a]), []))
        out.append(np.flatnonzero(meets) + a + 1)
    first = np.repeat(np.arange(count), [len(partners) for partners in out])
    return np.stack([first, np.concatenate(out) if out else first], 1)


def _ends(found: list[Found]) -> list[int]:
    """For every shape, the end of the shapes of its robot."""
    ends = list(range(1, len(found) + 1))
    for k in range(len(found) - 2, -1, -1):
        if found[k].robot is found[k + 1].robot:
            ends[k] = ends[k + 1]
    return ends


def _filters(found: list[Found]) -> tuple[np.ndarray, np.ndarray]:
    """The class of each shape, by group, mask, kind and excluded kinds, and which classes may collide."""
    words = [(one.shape.group, one.shape.mask, one.shape.kind, tuple(one.exclude)) for one in found]
    number = {word: k for k, word in enumerate(dict.fromkeys(words))}
    fits = np.zeros((len(number), len(number)), bool)
    for (group, mask, kind, exclude), a in number.items():
        for (other, by, its, without), b in number.items():
            fits[a, b] = bool(mask & other and by & group) and kind not in without and its not in exclude
    return np.array([number[word] for word in words], int), fits


def _bodies(found: list[Found]) -> tuple[np.ndarray, np.ndarray, dict[int, list[int]]]:
    """Numbers of the bodies of all shapes and of their roots, and the bodies that each is excluded from."""
    number: dict[tuple[int, str], int] = {}

    def of(one: Found, body: str) -> int:
        return number.setdefault((id(one.robot), body), len(number))

    bodies, roots = (np.array([of(one, getattr(one, n)) for one in found], int) for n in ("body", "root"))
    excluded: dict[int, list[int]] = {}
    for robot in {id(one.robot): one.robot for one in found if one.robot is not None}.values():
        for names in robot.robot.excluded:
            ends = [number.get((id(robot), name), -1) for name in names]
            for k, end in enumerate(ends):
                excluded.setdefault(end, []).extend(ends[:k] + ends[k + 1 :] or ends)
    return bodies, roots, excluded


def stands_by(a: Found, b: Found) -> bool:
    """Whether one of two shapes is static and outside the other's tree: a floor, a table."""
    return WORLD in (a.link, b.link) and (a.robot is not b.robot or a.root != b.root)


def _parent(tree: TreeArrays, link: int) -> int:
    """The parent body's link of a link, across intermediate joints of the same body; -1 for the world."""
    if link == WORLD:
        return -1
    up = int(tree.parent[link - 1])
    while up != WORLD and not (tree.body_link == up).any():
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
