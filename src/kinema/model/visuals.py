"""Arrays of rendered shapes and their colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kinema.model.broad_phase import GROUND, ShapeArrays
from kinema.model.tree import TreeArrays
from kinema.scene.description import PLANE, Mesh, PlacedRobot, Shape, rotation_matrix
from kinema.scene.scene import Ground
from kinema.scene.shape_kinds import SHAPE_KINDS, three_sizes

WORLD_BODY = -1

PALETTE = (
    (0.072, 0.188, 0.392),
    (0.913, 0.235, 0.030),
    (0.089, 0.362, 0.078),
    (0.775, 0.095, 0.095),
    (0.168, 0.474, 0.445),
    (0.855, 0.591, 0.044),
    (0.445, 0.191, 0.362),
    (0.337, 0.178, 0.109),
)
"""Default colours in turn, linear RGB: blue, orange, green, red, teal, ..."""
PALE = 0.6  # linear grey, mixed into every other body along a robot's limbs
EARTH = (0.42, 0.38, 0.31)


@dataclass(eq=False)
class VisualArrays:
    """Rendered shapes. Shapes (n, ...).

    Attributes:
        names: "robot/body/shape"; the ground is "ground".
        kind: Kinds of the description.
        body: Body indices, -1 for the world.
        offset, rotation, size: In the body's frame [m], see `Shape`; shapes (n, 3), (n, 3, 3), (n, 3).
        colour: Linear RGB, shape (n, 3).
        shape: Index among the colliding shapes, with which it shares size and position; -1 if it does not collide.
        meshes: Triangles of meshes and terrain; otherwise None.
    """

    names: list[str] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    body: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    offset: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    rotation: np.ndarray = field(default_factory=lambda: np.zeros((0, 3, 3)))
    size: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    colour: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    shape: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    meshes: list[Mesh | None] = field(default_factory=list)


def find_visuals(
    tree: TreeArrays, placed: Sequence[PlacedRobot], ground: Ground | None, shapes: ShapeArrays
) -> VisualArrays:
    """All visible shapes; for a robot without visible shapes, its colliding shapes."""
    rows: list[tuple[str, int, Shape, tuple[float, ...]]] = []
    for number, one in enumerate(placed):
        some = any(shape.visible for body in one.robot.bodies for shape in body.shapes)
        depth: dict[str | None, int] = {None: -1}
        for body in one.robot.bodies:
            depth[body.name] = depth[body.parent] + 1
            at = tree.bodies.index(f"{one.name}/{body.name}")
            for k, shape in enumerate(body.shapes):
                if shape.visible if some else shape.collides:
                    rows.append(
                        (
                            f"{one.name}/{body.name}/{shape.name or k}",
                            at,
                            shape,
                            _colour(shape, number, depth[body.name]),
                        )
                    )
    made = VisualArrays(
        names=[name for name, *_ in rows],
        kind=[shape.kind for _, _, shape, _ in rows],
        body=np.array([at for _, at, _, _ in rows], np.int32),
        offset=np.array([shape.pose.position for _, _, shape, _ in rows], float).reshape(-1, 3),
        rotation=np.array([rotation_matrix(shape.pose.rotation) for _, _, shape, _ in rows]).reshape(-1, 3, 3),
        size=np.array([three_sizes(shape) for _, _, shape, _ in rows], float).reshape(-1, 3),
        colour=np.array([colour for *_, colour in rows]).reshape(-1, 3),
        shape=np.array([_number(shapes, name, shape) for name, _, shape, _ in rows], np.int32),
        meshes=[shape.mesh for _, _, shape, _ in rows],
    )
    if ground is not None:
        _add_ground(made, ground, shapes)
    return made


def palette(number: int) -> tuple[float, float, float]:
    """The n-th default colour, linear RGB."""
    return PALETTE[number % len(PALETTE)]


def _colour(shape: Shape, robot: int, depth: int) -> tuple[float, ...]:
    if shape.colour is not None:
        return shape.colour[:3]
    if SHAPE_KINDS[shape.kind].concave:
        return EARTH
    own = palette(robot)
    return own if depth % 2 == 0 else tuple(0.35 * c + 0.65 * PALE for c in own)


def _number(shapes: ShapeArrays, name: str, shape: Shape) -> int:
    return shapes.names.index(name) if shape.collides else -1


def _add_ground(made: VisualArrays, ground: Ground, shapes: ShapeArrays) -> None:
    made.names.append(GROUND)
    made.kind.append(PLANE)
    made.body = np.append(made.body, np.int32(WORLD_BODY))
    made.offset = np.concatenate([made.offset, [[0.0, 0.0, ground.height]]])
    made.rotation = np.concatenate([made.rotation, np.eye(3)[None]])
    made.size = np.concatenate([made.size, np.zeros((1, 3))])
    made.colour = np.concatenate([made.colour, [[0.5, 0.5, 0.5]]])
    made.shape = np.append(made.shape, np.int32(shapes.names.index(GROUND)))
    made.meshes.append(None)
