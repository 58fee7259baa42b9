"""Constraint rows of a scene (mimic joints, dry friction, limits, loops) and the degrees of freedom they involve."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kinema.errors import ModelError
from kinema.model.tree import TreeArrays
from kinema.scene.description import Closure, Joint, Mimic, PlacedRobot, Pose, rotation_matrix
from kinema.scene.joint_types import ANGLE, SINGLE, TYPES

NO_LIMIT = 1e9  # replaces infinity in learnable parameters


@dataclass(eq=False)
class SupportArrays:
    """Supports of constraints: lists of degrees of freedom, one per pair of ends; see `pgs.Supports`."""

    tree: TreeArrays
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    lists: list[tuple[list[int], int, int]] = field(default_factory=list)

    def of_links(self, first: int, second: int) -> int:
        """The support of a constraint between two links."""
        return self.of_dofs(self._last(first), self._last(second))

    def of_dofs(self, first: int, second: int = -1) -> int:
        """The support of a constraint between two degrees of freedom; -1 for none."""
        found = self.numbers.get((first, second))
        if found is None:
            one, two = self.path(first), self.path(second)
            common = sum(a == b for a, b in zip(one, two, strict=False))
            found = self.numbers[first, second] = len(self.lists)
            self.lists.append((one + two[common:], len(one), common))
        return found

    def _last(self, link: int) -> int:
        tree = self.tree
        return -1 if link == 0 else int(tree.v_start[link - 1] + tree.dofs[link - 1] - 1)

    def path(self, dof: int) -> list[int]:
        """The degrees of freedom from the root to one of them."""
        if dof < 0:
            return []
        begin = int(self.tree.row[dof])
        return self.tree.above[begin : begin + int(self.tree.depth[dof]) + 1].tolist()

    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays begin, first, count, common, dofs and widest."""
        counts = [len(one) for one, _, _ in self.lists]
        return {
            "begin": np.cumsum([0, *counts])[:-1].astype(np.int32),
            "first": np.array([first for _, first, _ in self.lists], np.int32),
            "count": np.array(counts, np.int32),
            "common": np.array([common for _, _, common in self.lists], np.int32),
            "dofs": np.array([d for one, _, _ in self.lists for d in one], np.int32),
            "widest": np.array(max(counts, default=0), np.int32),
        }


def find_groups(lists: Sequence[Sequence[int]]) -> list[list[int]]:
    """Groups (islands) of blocks, given their supports; a block is a single row, an equation or a contact.

    Blocks that share a degree of freedom, directly or through others, are in the same group. Blocks within a group are
    in ascending order, and groups are in the order of their first blocks.
    """
    above: dict[int, int] = {}  # union-find with path halving, over degrees of freedom

    def root(dof: int) -> int:
        while above.setdefault(dof, dof) != dof:
            above[dof] = above[above[dof]]
            dof = above[dof]
        return dof

    for dofs in {id(one): one for one in lists}.values():
        for d in dofs[1:]:
            above[root(d)] = root(dofs[0])
    groups: dict[int, list[int]] = {}
    for block, dofs in enumerate(lists):
        groups.setdefault(root(dofs[0]), []).append(block)
    return list(groups.values())


def group_tables(groups: Sequence[Sequence[int]], singles: int, equations: int) -> dict[str, np.ndarray]:
    """Rows of groups of blocks, see `contact.dense.Groups`."""
    rows, sizes = [], []
    for blocks in groups:
        found = [[b] if b < singles else [singles + 3 * (b - singles) + k for k in range(3)] for b in blocks]
        rows += [r for one in found for r in one]
        sizes.append(sum(map(len, found)))
    return {
        "start": np.cumsum([0, *sizes]),
        "singles": np.array([sum(b < singles for b in blocks) for blocks in groups]),
        "equations": np.array([sum(singles <= b < singles + equations for b in blocks) for blocks in groups]),
        "matrix": np.cumsum([0, *(n * n for n in sizes)])[:-1],
        "row": np.array(rows),
        "largest": np.array(max(sizes)),
    }


def shared_dofs(lists: Sequence[Sequence[int]], groups: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    """Shared degrees of freedom of every pair of supports in a group, see `contact.dense.Matches`."""
    pairs, start, first, second = [], [0], [], []
    for blocks in groups:
        pairs.append(len(start) - 1)
        for i, one in enumerate(lists[b] for b in blocks):
            for two in (lists[b] for b in blocks[: i + 1]):
                shared = [(one.index(d), two.index(d)) for d in one if d in two]
                first += [a for a, _ in shared]
                second += [b for _, b in shared]
                start.append(len(first))
    numbers = {"pairs": pairs, "start": start, "first": first or [0], "second": second or [0]}
    return {name: np.array(x) for name, x in numbers.items()}


@dataclass(eq=False)
class ConstraintArrays:
    """Constraint rows of joints and loops, named by joints and closures, "robot/name"; arrays as in `contact.rows`.

    Attributes:
        followers: Mimic joints: dof, leader, q, leader_q, multiplier, offset, higher (n, 3).
        rubbing: Dry friction of joints: dof, friction [N m, N].
        stops: Limits of tendons: transmission, lower, upper, and the last degrees of freedom of the one or two branches
            that the tendon goes over: first, second; -1 for none.
        limits: Joint limits: dof, q, lower, upper, ball: 1 for ball joints, which come last and do not use `lower`.
        loops: Loop closures: first, second, first_place, second_place, first_turn, second_turn, welded.
    """

    followers: dict[str, np.ndarray]
    rubbing: dict[str, np.ndarray]
    stops: dict[str, np.ndarray]
    limits: dict[str, np.ndarray]
    loops: dict[str, np.ndarray]
    follower_names: list[str]
    rubbing_names: list[str]
    stop_names: list[str]
    limit_names: list[str]
    loop_names: list[str]

    @property
    def singles(self) -> int:
        """Number of single rows."""
        names = (self.follower_names, self.rubbing_names, self.stop_names, self.limit_names)
        return sum(map(len, names))

    @property
    def equations(self) -> int:
        """Number of three-row blocks of loops: one for connect, two for weld."""
        return int((1 + self.loops["welded"]).sum())


def find_constraints(tree: TreeArrays, placed: Sequence[PlacedRobot]) -> ConstraintArrays:
    """Mimic joints, dry friction, limits and loops of all robots.

    Raises:
        ModelError: A joint or body is unknown, mimic joints form a cycle, a free joint has a limit, or the limit of a
            ball joint is not an angle.
    """
    followers: list[tuple[str, int, int, Mimic]] = []
    rubbing: list[tuple[str, int, float]] = []
    limits: list[tuple[str, int, float, float]] = []
    balls: list[tuple[str, int, float, float]] = []
    loops: list[tuple[str, Closure, _End, _End]] = []
    stops: list[tuple[str, int, float, float, int, int]] = []
    tendons = 0
    for one in placed:
        for tendon in one.robot.tendons:
            if (tendon.lower, tendon.upper) != (-math.inf, math.inf):
                bounds = max(tendon.lower, -NO_LIMIT), min(tendon.upper, NO_LIMIT)
                name = f"{one.name}/{tendon.name}"
                dofs = [_single(tree, f"{one.name}/{j}", f"tendon {name!r} goes over it") for j, _ in tendon.joints]
                dofs += _last_dofs(tree, one, tendon.sites)
                stops.append((name, tendons, *bounds, *_two_branches(tree, name, dofs)))
            tendons += 1
        for joint in (j for body in one.robot.bodies for j in body.joints if TYPES[j.kind].velocities):
            name = f"{one.name}/{joint.name}"
            i = tree.joints.index(name)
            if joint.mimic is not None:
                leader = _single(tree, f"{one.name}/{joint.mimic.joint}", f"{name!r} mimics it")
                follower = _single(tree, name, f"it mimics {joint.mimic.joint!r}")
                followers.append((name, follower, leader, joint.mimic))
            if joint.prescribed:
                if joint.mimic is not None:
                    what = f"joint {name!r} is prescribed and mimics {joint.mimic.joint!r}"
                    raise ModelError(what, fix="one of the two; a joint may mimic a prescribed joint")
                continue
            if joint.friction > 0:
                rubbing += [(name, int(tree.v_start[i]) + k, joint.friction) for k in range(int(tree.dofs[i]))]
            if TYPES[joint.kind].limit == ANGLE and (joint.lower, joint.upper) != (-math.inf, math.inf):
                balls.append((name, int(tree.v_start[i]), 0.0, _largest_angle(name, joint)))
            elif joint.lower > -math.inf or joint.upper < math.inf:
                bounds = max(joint.lower, -NO_LIMIT), min(joint.upper, NO_LIMIT)
                limits.append((name, _single(tree, name, "it has limits"), *bounds))
        for closure in one.robot.closures:
            ends = [
                _end(tree, one, closure, body, pose)
                for body, pose in ((closure.first, closure.first_pose), (closure.second, closure.second_pose))
            ]
            if ends[0].link == 0:
                ends.reverse()
            if not any(tree.yields[end.link] for end in ends):
                what = f"loop {closure.name!r} of robot {one.name!r} connects only static or prescribed bodies"
                raise ModelError(what)
            loops.append((f"{one.name}/{closure.name}", closure, ends[0], ends[1]))
    coordinate = tree.spring_coordinates()
    turning = dict(zip(tree.v_start.tolist(), tree.q_start.tolist(), strict=True))
    limits += balls

    def ints(values: Iterable[int]) -> np.ndarray:
        return np.array(list(values), np.int32)

    _refuse_circles(followers)
    return ConstraintArrays(
        followers={
            "dof": ints(f[1] for f in followers),
            "leader": ints(f[2] for f in followers),
            "q": ints(coordinate[f[1]] for f in followers),
            "leader_q": ints(coordinate[f[2]] for f in followers),
            "multiplier": np.array([f[3].multiplier for f in followers]),
            "offset": np.array([f[3].offset for f in followers]),
            "higher": np.array([f[3].higher for f in followers], float).reshape(-1, 3),
        },
        rubbing={"dof": ints(r[1] for r in rubbing), "friction": np.array([r[2] for r in rubbing])},
        stops={
            "transmission": ints(s[1] for s in stops),
            "lower": np.array([s[2] for s in stops]),
            "upper": np.array([s[3] for s in stops]),
            "first": ints(s[4] for s in stops),
            "second": ints(s[5] for s in stops),
        },
        limits={
            "dof": ints(x[1] for x in limits),
            "q": ints(turning[x[1]] for x in limits),
            "ball": ints([0] * (len(limits) - len(balls)) + [1] * len(balls)),
            "lower": np.array([x[2] for x in limits]),
            "upper": np.array([x[3] for x in limits]),
        },
        loops={
            "first": ints(x[2].link for x in loops),
            "second": ints(x[3].link for x in loops),
            "first_place": np.array([x[2].position for x in loops]).reshape(-1, 3),
            "second_place": np.array([x[3].position for x in loops]).reshape(-1, 3),
            "first_turn": np.array([x[2].rotation for x in loops]).reshape(-1, 3, 3),
            "second_turn": np.array([x[3].rotation for x in loops]).reshape(-1, 3, 3),
            "welded": ints(int(x[1].kind == "weld") for x in loops),
        },
        follower_names=[f[0] for f in followers],
        rubbing_names=[r[0] for r in rubbing],
        stop_names=[s[0] for s in stops],
        limit_names=[x[0] for x in limits],
        loop_names=[x[0] for x in loops],
    )


@dataclass
class _End:
    """A frame on a link."""

    link: int
    position: np.ndarray
    rotation: np.ndarray


def _refuse_circles(followers: list[tuple[str, int, int, Mimic]]) -> None:
    """Raise if mimic joints form a cycle, which would leave their coordinates undefined."""
    names, leaders = {f[1]: f[0] for f in followers}, {f[1]: f[2] for f in followers}
    free: set[int] = set()  # joints known not to be in a cycle
    for start in leaders:
        chain: list[int] = []
        at = start
        while at in leaders and at not in free:
            if at in chain:
                got = " -> ".join(names[d] for d in [*chain[chain.index(at) :], at])
                raise ModelError("joints mimic each other in a cycle", got=got, fix="remove one of the mimics")
            chain.append(at)
            at = leaders[at]
        free.update(chain)


def _last_dofs(tree: TreeArrays, one: PlacedRobot, sites: Sequence[str]) -> list[int]:
    """The last degrees of freedom that move sites."""
    links = [
        int(tree.body_link[tree.bodies.index(f"{one.name}/{body.name}")])
        for body in one.robot.bodies
        for site in body.sites
        if site.name in sites
    ]
    return [int(tree.v_start[link - 1] + tree.dofs[link - 1] - 1) for link in links if link > 0]


def _two_branches(tree: TreeArrays, name: str, dofs: Sequence[int]) -> tuple[int, int]:
    """The degrees of freedom at the ends of the branches that contain all the given ones; -1 for none."""
    paths = {d: set(SupportArrays(tree).path(d)) for d in dofs}
    ends = [d for d in paths if not any(d in paths[e] for e in paths if e != d)]
    if len(ends) > 2:
        what = f"tendon {name!r} has limits, and goes over joints of {len(ends)} branches"
        raise ModelError(what, expected="at most two branches", fix="remove its limits")
    return ends[0], ends[1] if len(ends) == 2 else -1


def _single(tree: TreeArrays, name: str, why: str) -> int:
    """The degree of freedom of a joint with one coordinate."""
    if name not in tree.joints:
        raise ModelError(f"there is no joint {name!r}", expected=", ".join(tree.joints), fix=f"{why}: name another one")
    i = tree.joints.index(name)
    if not tree.types[i].is_single:
        expected = f"a {' or '.join(SINGLE)} joint"
        raise ModelError(f"joint {name!r} does not have exactly one coordinate, but {why}", expected=expected)
    return int(tree.v_start[i])


def _largest_angle(name: str, joint: Joint) -> float:
    if joint.lower not in (-math.inf, 0.0) or not 0 < joint.upper <= math.pi:
        what, got = f"the limit of {joint.kind} joint {name!r} is not an angle", f"{joint.lower:g} to {joint.upper:g}"
        raise ModelError(what, got=got, expected="upper, the largest rotation angle, between 0 and pi, and no lower")
    return joint.upper


def _end(tree: TreeArrays, one: PlacedRobot, closure: Closure, body: str | None, pose: Pose) -> _End:
    place, turn = np.asarray(pose.position, float), rotation_matrix(pose.rotation)
    if body is None:
        base = rotation_matrix(one.pose.rotation)
        return _End(0, np.asarray(one.pose.position, float) + base @ place, base @ turn)
    name = f"{one.name}/{body}"
    if name not in tree.bodies:
        raise ModelError(f"loop {closure.name!r} of robot {one.name!r} connects {body!r}, which does not exist")
    b = tree.bodies.index(name)
    R = tree.body_rotation[b]
    return _End(int(tree.body_link[b]), tree.body_offset[b] + R @ place, R @ turn)
