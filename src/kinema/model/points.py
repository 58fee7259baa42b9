"""The round points of a scene's robots that may touch the ground."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from kinema.errors import ModelError
from kinema.model.tree import Placed, TreeArrays, rotation_matrix
from kinema.scene.description import BOX, CAPSULE, MESH, SPHERE, Shape

MOST_VERTICES = 64  # of a mesh: each is a contact of its own


@dataclass(eq=False)
class PointArrays:
    """Points on links, shapes (n, ...).

    Attributes:
        names: "robot/body/shape", one for each point.
        link: The link that carries it, shape (n,).
        last: Last degree of freedom that moves it, shape (n,).
        centre: In the link's frame [m], shape (n, 3).
        radius: [m], shape (n,).
        friction: Coefficient, shape (n,).
        common: Number of degrees of freedom that move both of two points, shape (n * n,).
    """

    names: list[str]
    link: np.ndarray
    last: np.ndarray
    centre: np.ndarray
    radius: np.ndarray
    friction: np.ndarray
    common: np.ndarray


def ground_points(
    tree: TreeArrays, placed: Sequence[Placed], friction: float, group: int = 1, without: Sequence[str] = ()
) -> PointArrays:
    """Points of all shapes that collide with the ground.

    Args:
        tree: The links.
        placed: The robots.
        friction: Of shapes that have none of their own.
        group: Groups of the ground: shapes whose mask has none of its bits are left out.
        without: Kinds of shapes to leave out.

    Raises:
        ModelError: A shape has no exact set of points against a plane, as a cylinder.
    """
    found: list[tuple[str, int, np.ndarray, float, float]] = []
    for one in placed:
        for body in one.robot.bodies:
            b = tree.bodies.index(f"{one.name}/{body.name}")
            link = int(tree.body_link[b])
            for number, shape in enumerate(body.shapes):
                if not shape.collides or link == 0 or not shape.mask & group or shape.kind in without:
                    continue
                name = f"{one.name}/{body.name}/{shape.name or number}"
                own = friction if shape.friction is None else shape.friction
                place, turn = tree.body_offset[b], tree.body_rotation[b]
                for centre, radius in _points(name, shape):
                    found.append((name, link, place + turn @ centre, radius, own))
    links = [f[1] for f in found]
    last = [int(tree.v_start[link - 1] + tree.dofs[link - 1] - 1) for link in links]
    paths = [tree.above[tree.row[d] : tree.row[d] + tree.depth[d] + 1].tolist() for d in last]
    common = [sum(x == y for x, y in zip(p, q, strict=False)) for p, q in product(paths, paths)]
    return PointArrays(
        [f[0] for f in found],
        np.array(links, np.int32),
        np.array(last, np.int32),
        np.array([f[2] for f in found]).reshape(-1, 3),
        np.array([f[3] for f in found]),
        np.array([f[4] for f in found]),
        np.array(common, np.int32),
    )


def _points(name: str, shape: Shape) -> list[tuple[np.ndarray, float]]:
    """Centres in the body's frame and radii: a plane touches the shape exactly where it touches one of them."""
    turn, place = rotation_matrix(shape.pose.rotation), np.asarray(shape.pose.position, float)
    if shape.kind == SPHERE:
        local, radius = np.zeros((1, 3)), shape.size[0]
    elif shape.kind == CAPSULE:
        local, radius = np.array([[0, 0, -shape.size[1]], [0, 0, shape.size[1]]]), shape.size[0]
    elif shape.kind == BOX:
        local, radius = np.array(list(product((-1, 1), repeat=3))) * np.array(shape.size), 0.0
    elif shape.kind == MESH and shape.mesh is not None and len(shape.mesh.vertices) <= MOST_VERTICES:
        local, radius = np.unique(shape.mesh.vertices, axis=0), 0.0
    else:
        what = f"{shape.kind} {name!r} cannot touch the ground yet"
        instead = f"a capsule, box or mesh of up to {MOST_VERTICES} vertices in its place"
        raise ModelError(what, fix=f"{instead}, or add_ground(without=[{shape.kind!r}])")
    return [(place + turn @ p, radius) for p in local]
