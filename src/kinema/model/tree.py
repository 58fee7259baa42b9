"""Arrays of kinematic trees, from robot descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kinema.errors import ModelError
from kinema.scene.description import Body, Joint, PlacedRobot, rotation_matrix
from kinema.scene.joint_types import MOVING, NUMBERS, TYPES, JointType
from kinema.scene.validate import check_robot

OF_SPRING = ("stiffness", "rest")
"""Spring parameters, of joints with one coordinate."""


@dataclass(eq=False)
class TreeArrays:
    """Kinematic trees. Joint i moves link i + 1; link 0 is the world. Shapes: j joints, b bodies, n velocities.

    Attributes:
        joints: Names, "robot/joint".
        bodies: Names, "robot/body".
        parent, root, kind, q_start, v_start, dofs: See `kinematics.tree.Tree`, shape (j,); kinds are indices of
            `scene.joint_types.MOVING`.
        offset, rotation, axis: See `kinematics.tree.Joints`, shapes (j, 3), (j, 3, 3), (j, 3).
        body_link, body_offset, body_rotation: See `dynamics.articulated.Bodies`, shapes (b,), (b, 3), (b, 3, 3).
        mass, com, inertia: Shapes (b,), (b, 3), (b, 6).
        gravcomp: Compensated share of each body's weight, shape (b,).
        dragged: Indices of the moving bodies with drag, shape (d,).
        drag_box, drag_rotation, wind, fluid_density, fluid_viscosity: See `dynamics.drag.Drags`, shapes (d, 3),
            (d, 3, 3), (d, 3), (d,), (d,).
        row, depth, last, above: See `kinematics.tree.Branches`, shapes (n,), (n,), (n,), (entries,).
        armature, damping, stiffness, rest: Joint parameters per velocity, shape (n,); springs (stiffness, rest) apply
            only to joints with one coordinate.
        q: Initial coordinates, shape (nq,).
        prescribed: 1 for prescribed joints, shape (j,).
    """

    joints: list[str] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    parent: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    root: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    kind: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    q_start: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    v_start: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    dofs: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    offset: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    rotation: np.ndarray = field(default_factory=lambda: np.zeros((0, 3, 3)))
    axis: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    body_link: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    body_offset: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    body_rotation: np.ndarray = field(default_factory=lambda: np.zeros((0, 3, 3)))
    mass: np.ndarray = field(default_factory=lambda: np.zeros(0))
    com: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    inertia: np.ndarray = field(default_factory=lambda: np.zeros((0, 6)))
    gravcomp: np.ndarray = field(default_factory=lambda: np.zeros(0))
    dragged: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    drag_box: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    drag_rotation: np.ndarray = field(default_factory=lambda: np.zeros((0, 3, 3)))
    wind: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    fluid_density: np.ndarray = field(default_factory=lambda: np.zeros(0))
    fluid_viscosity: np.ndarray = field(default_factory=lambda: np.zeros(0))
    row: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    depth: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    last: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    above: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    armature: np.ndarray = field(default_factory=lambda: np.zeros(0))
    damping: np.ndarray = field(default_factory=lambda: np.zeros(0))
    stiffness: np.ndarray = field(default_factory=lambda: np.zeros(0))
    rest: np.ndarray = field(default_factory=lambda: np.zeros(0))
    q: np.ndarray = field(default_factory=lambda: np.zeros(0))
    prescribed: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return len(self.q)

    @property
    def nv(self) -> int:
        """Number of velocities."""
        return len(self.row)

    @cached_property
    def types(self) -> list[JointType]:
        """The type of every joint."""
        return [MOVING[kind] for kind in self.kind]

    @property
    def coordinates(self) -> np.ndarray:
        """Number of coordinates of every joint, shape (j,)."""
        return np.array([one.coordinates for one in self.types], np.int64)

    @cached_property
    def quaternions(self) -> dict[int, int]:
        """Index in q of the first quaternion component, by joints with a quaternion."""
        found = enumerate(zip(self.types, self.q_start.tolist(), strict=True))
        return {i: start + one.quaternion for i, (one, start) in found if one.quaternion is not None}

    @cached_property
    def plain_rates(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices of coordinates whose rates are velocities, and indices of these velocities."""
        plain = [(i, k) for i, one in enumerate(self.types) if one.quaternion is None for k in range(one.velocities)]
        starts = ((int(self.q_start[i]) + k, int(self.v_start[i]) + k) for i, k in plain)
        first, second = np.array([*starts], np.int64).reshape(-1, 2).T
        return first, second

    def spring_coordinates(self) -> np.ndarray:
        """Index of the coordinate that a spring acts on, per velocity; -1 for joints with several coordinates."""
        out = np.full(self.nv, -1, np.int32)
        single = np.array([one.is_single for one in self.types], bool)
        out[self.v_start[single]] = self.q_start[single]
        return out

    def spring_numbers(self) -> np.ndarray:
        """Index of the joint's spring, per velocity; -1 for joints with several coordinates."""
        has = self.spring_coordinates() >= 0
        return np.where(has, np.cumsum(has) - 1, -1).astype(np.int32)

    def prescribed_numbers(self) -> np.ndarray:
        """Index among the prescribed velocities, per velocity; -1 for velocities that forces change. Shape (n,)."""
        given = np.repeat(self.prescribed, self.dofs) > 0
        return np.where(given, np.cumsum(given) - 1, -1).astype(np.int32)

    def initial_poses(self) -> tuple[np.ndarray, np.ndarray]:
        """Initial rotations and positions [m] of all links, shapes (j + 1, 3, 3) and (j + 1, 3)."""
        R, p = np.tile(np.eye(3), (len(self.parent) + 1, 1, 1)), np.zeros((len(self.parent) + 1, 3))
        for i, (up, one) in enumerate(zip(self.parent, self.types, strict=True)):
            q = self.q[self.q_start[i] :]
            R[i + 1], p[i + 1] = R[up] @ self.rotation[i], p[up] + R[up] @ self.offset[i]
            if one.position:
                p[i + 1] += R[i + 1] @ q[:3]
            if one.quaternion is not None:  # all other coordinates are neutral
                R[i + 1] = R[i + 1] @ rotation_matrix(q[one.quaternion :][:4])
        return R, p

    @cached_property
    def yields(self) -> np.ndarray:
        """Whether forces can move a link: not the world, nor links on prescribed joints only. Shape (j + 1,)."""
        out = np.zeros(len(self.parent) + 1, bool)
        for i, parent in enumerate(self.parent):
            out[i + 1] = out[parent] or not self.prescribed[i]
        return out


def build_tree(placed: Sequence[PlacedRobot]) -> TreeArrays:
    """The arrays of all robots.

    Raises:
        ModelError: A value or kind is invalid, a parent is missing, a name is taken, bodies form a cycle, a free joint
            is not at a root, or a moving part has no mass.
    """
    builder = _Builder()
    for one in placed:
        builder.add(one)
    return builder.finish()


@dataclass
class _Frame:
    """A frame on a link."""

    link: int
    position: np.ndarray
    rotation: np.ndarray

    def then(self, position: Sequence[float] | np.ndarray, rotation: np.ndarray | None = None) -> _Frame:
        turned = self.rotation if rotation is None else self.rotation @ rotation
        return _Frame(self.link, self.position + self.rotation @ np.asarray(position, float), turned)


class _Builder:
    def __init__(self) -> None:
        self.joint_names: list[str] = []
        self.joint_rows: list[tuple[int, int, int, np.ndarray, np.ndarray, np.ndarray]] = []
        self.joint_words: list[Joint] = []
        self.body_names: list[str] = []
        self.body_rows: list[tuple[_Frame, Body]] = []
        self.q: list[float] = []

    def add(self, placed: PlacedRobot) -> None:
        robot = placed.robot
        check_robot(placed.name, robot)
        children: dict[str | None, list[Body]] = {}
        names = [body.name for body in robot.bodies]
        for body in robot.bodies:
            if names.count(body.name) > 1:
                raise ModelError(f"robot {robot.name!r} has two bodies {body.name!r}", where=robot.source or None)
            if body.parent is not None and body.parent not in names:
                what = f"the parent {body.parent!r} of body {body.name!r} does not exist in robot {robot.name!r}"
                raise ModelError(what, where=robot.source or None)
            children.setdefault(body.parent, []).append(body)
        base = _Frame(0, np.asarray(placed.pose.position, float), rotation_matrix(placed.pose.rotation))
        waiting = [(body, base) for body in reversed(children.get(None, []))]
        done = 0
        while waiting:
            body, parent = waiting.pop()
            frame = self._body(placed.name, body, parent)
            waiting += [(child, frame) for child in reversed(children.get(body.name, []))]
            done += 1
        if done < len(robot.bodies):
            reached = {n.removeprefix(f"{placed.name}/") for n in self.body_names}
            stuck = ", ".join(sorted(set(names) - reached))
            raise ModelError(f"bodies of robot {robot.name!r} form a cycle: {stuck}")

    def _body(self, robot: str, body: Body, parent: _Frame) -> _Frame:
        """Add a body with its joints; returns its frame."""
        frame = parent.then(body.pose.position, rotation_matrix(body.pose.rotation))
        for joint in body.joints:
            if not TYPES[joint.kind].velocities:
                continue
            frame = self._joint(f"{robot}/{joint.name}", joint, frame)
        self.body_names.append(f"{robot}/{body.name}")
        self.body_rows.append((frame, body))
        return frame

    def _joint(self, name: str, joint: Joint, frame: _Frame) -> _Frame:
        """Add a joint; `frame` is the body's frame before it, the result the frame after it, on the new link."""
        if name in self.joint_names:
            raise ModelError(f"two joints are called {name!r}", fix="joint names must be unique within a robot")
        kind = TYPES[joint.kind]
        anchor = np.asarray(joint.anchor, float) if kind.has_anchor else np.zeros(3)
        if kind.position:
            if frame.link != 0:
                fix = "use a ball and three prismatic joints, or make the world its parent"
                raise ModelError(f"free joint {name!r} is not at a root", fix=fix)
            self.q += [*frame.position, *_quaternion(frame.rotation)]
            at = _Frame(0, np.zeros(3), np.eye(3))
        else:
            self.q += kind.neutral
            at = frame.then(anchor)
        link = len(self.joint_rows) + 1
        root = link if at.link == 0 else self.joint_rows[at.link - 1][1]
        self.joint_names.append(name)
        self.joint_words.append(joint)
        axis = np.asarray(joint.axis, float)
        self.joint_rows.append((at.link, root, NUMBERS[kind.word], at.position, at.rotation, axis))
        return _Frame(link, -anchor, np.eye(3))

    def finish(self) -> TreeArrays:
        rows = self.joint_rows
        moving = [(b, body.drag) for b, (frame, body) in enumerate(self.body_rows) if frame.link > 0]
        drags = [(b, drag) for b, drag in moving if drag is not None]
        kind = [r[2] for r in rows]
        dofs = [MOVING[k].velocities for k in kind]
        out = TreeArrays(
            joints=self.joint_names,
            bodies=self.body_names,
            parent=_ints(r[0] for r in rows),
            root=_ints(r[1] for r in rows),
            kind=_ints(kind),
            q_start=_ints(np.cumsum([0, *(MOVING[k].coordinates for k in kind)])[:-1]),
            v_start=_ints(np.cumsum([0, *dofs])[:-1]),
            dofs=_ints(dofs),
            offset=np.array([r[3] for r in rows]).reshape(-1, 3),
            rotation=np.array([r[4] for r in rows]).reshape(-1, 3, 3),
            axis=np.array([r[5] for r in rows]).reshape(-1, 3),
            body_link=_ints(f.link for f, _ in self.body_rows),
            body_offset=np.array([f.position for f, _ in self.body_rows]).reshape(-1, 3),
            body_rotation=np.array([f.rotation for f, _ in self.body_rows]).reshape(-1, 3, 3),
            mass=np.array([b.mass.mass if b.mass else 0.0 for _, b in self.body_rows]),
            com=np.array([b.mass.com if b.mass else (0.0,) * 3 for _, b in self.body_rows]).reshape(-1, 3),
            inertia=np.array([b.mass.inertia if b.mass else (0.0,) * 6 for _, b in self.body_rows]).reshape(-1, 6),
            gravcomp=np.array([b.gravcomp for _, b in self.body_rows], float),
            dragged=_ints(b for b, _ in drags),
            drag_box=np.array([d.box for _, d in drags], float).reshape(-1, 3),
            drag_rotation=np.array([rotation_matrix(d.rotation) for _, d in drags]).reshape(-1, 3, 3),
            wind=np.array([d.wind for _, d in drags], float).reshape(-1, 3),
            fluid_density=np.array([d.density for _, d in drags], float),
            fluid_viscosity=np.array([d.viscosity for _, d in drags], float),
            q=np.array(self.q),
            prescribed=_ints(j.prescribed for j in self.joint_words),
        )
        for name in ("armature", "damping", "stiffness", "rest"):
            values = [getattr(j, name) for j, n in zip(self.joint_words, dofs, strict=True) for _ in range(n)]
            setattr(out, name, np.array(values, float))
        add_branches(out)
        _check_masses(out)
        return out


def path_of_link(tree: TreeArrays, link: int) -> list[int]:
    """Degrees of freedom that move a link, from the root on."""
    if link == 0:
        return []
    last = int(tree.v_start[link - 1] + tree.dofs[link - 1] - 1)
    begin = int(tree.row[last])
    return tree.above[begin : begin + int(tree.depth[last]) + 1].tolist()


def _ints(values: object) -> np.ndarray:
    return np.array(list(values), np.int32)  # type: ignore[call-overload]


def _quaternion(R: np.ndarray) -> np.ndarray:
    """(w, x, y, z) of a rotation matrix, w >= 0: the eigenvector of its largest eigenvalue [Bar-Itzhack 2000]."""
    (a, b, c), (d, e, f), (g, h, i) = R
    K = np.array(
        [[a - e - i, 0, 0, 0], [d + b, e - a - i, 0, 0], [g + c, h + f, i - a - e, 0], [h - f, c - g, d - b, a + e + i]]
    )
    x, y, z, w = np.linalg.eigh(K / 3, "L")[1][:, -1]
    q = np.array([w, x, y, z])
    return q if w >= 0 else -q


def add_branches(tree: TreeArrays) -> None:
    """Compute row, depth, last and above from parent, v_start and dofs."""
    above: list[list[int]] = []
    of_link: list[list[int]] = [[]]
    for i, parent in enumerate(tree.parent):
        path = list(of_link[parent])
        for d in range(tree.v_start[i], tree.v_start[i] + tree.dofs[i]):
            path = [*path, d]
            above.append(path)
        of_link.append(path)
    last = list(range(len(above)))
    for d in reversed(range(len(above))):
        for e in above[d][:-1]:
            last[e] = max(last[e], last[d])
    tree.above = _ints(e for path in above for e in path)
    tree.depth = _ints(len(path) - 1 for path in above)
    tree.row = _ints(np.cumsum([0, *(len(path) for path in above)])[:-1])
    tree.last = _ints(last)


def _check_masses(tree: TreeArrays) -> None:
    """Raise for joints that move neither mass nor armature."""
    moved = np.zeros(len(tree.parent) + 1, bool)
    for link, mass in zip(tree.body_link, tree.mass, strict=True):
        moved[link] |= mass > 0
    for i in reversed(range(len(tree.parent))):
        moved[tree.parent[i]] |= moved[i + 1]
        d = tree.v_start[i]
        if not moved[i + 1] and not tree.prescribed[i] and not (tree.armature[d : d + tree.dofs[i]] > 0).all():
            raise ModelError(
                f"joint {tree.joints[i]!r} moves no mass",
                fix="give one of its descendant bodies a mass and inertia, or the joint an armature",
            )
