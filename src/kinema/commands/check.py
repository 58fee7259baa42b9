"""`kinema check FILE`: the contents of a robot file, and whether they are plausible."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kinema.errors import LeftOutWarning, ModelError
from kinema.model.actuators import find_actuators
from kinema.model.broad_phase import GROUND, Found, Meeting, find_meetings, find_shapes, hull_of, stands_by
from kinema.model.constraints import find_constraints
from kinema.model.sites import find_sites
from kinema.model.tree import TreeArrays, build_tree
from kinema.scene.contact import Contact
from kinema.scene.description import (
    EVERY_GROUP,
    FIXED,
    Actuator,
    Body,
    Joint,
    PlacedRobot,
    Robot,
    Shape,
)
from kinema.scene.io.urdf import read_urdf
from kinema.scene.joint_types import TYPES
from kinema.scene.scene import Ground, check_options, options_of, reader_of, set_free
from kinema.scene.shape_kinds import SHAPE_KINDS
from kinema.scene.validate import GENERAL

Rows = list[list[str]]
Maker = Callable[[TreeArrays, Sequence[PlacedRobot]], object]
WIDE = 10.0  # [m], an upper bound on the size of bodies
NARROWEST = 1e-4  # smallest plausible ratio of principal moments


@dataclass(frozen=True)
class Report:
    """Findings about a robot.

    Attributes:
        tables: Title, columns and rows.
        refused: Why `kinema.compile` would refuse it on the ground; empty if it would not.
        odd: Possible but implausible properties, and errors that only concern self-collision.
    """

    tables: list[tuple[str, tuple[str, ...], Rows]]
    refused: list[str]
    odd: list[str]


def read(path: Path, floating: bool = False, **options: Any) -> Robot:
    """Read a robot file as `Scene.add_robot` does.

    Args:
        path: A .urdf or .xml (MJCF) file.
        floating: Whether the root moves freely.
        options: Of `read_urdf` (roots, package_roots, meshes, repair, strict, srdf) or `read_mjcf` (roots, ignore). By
            default, missing meshes of a .urdf file are omitted and listed; `meshes` changes this.

    Raises:
        ModelError: The file is refused, or its reader has no such option.
    """
    reader = reader_of(str(path))
    check_options(options, options_of(reader))
    if reader is read_urdf:
        options = {"meshes": "skip"} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftOutWarning)  # the report lists them
        robot = reader(path, **options)
    return set_free(robot) if floating else robot


def report(robot: Robot) -> Report:
    """Tables of everything about a robot, without empty ones; without contact pairs if its bodies form no tree."""
    tree, meetings, refused = TreeArrays(), None, []
    try:
        tree = build_tree([_placed(robot)])
        meetings = found = _Meetings(robot, tree)
        refused = _refusals(robot, tree) + found.refused_always
    except ModelError as error:
        refused = [error.what]
    odd = [text for body in robot.bodies for text in _odd(body)]
    odd += [f"with self_collision: {text}" for text in (meetings.refused_with_itself if meetings else ())]
    tables = [
        ("bodies", ("body", "parent", "mass [kg]", "principal moments [kg m^2]", "equivalent box [m]"), bodies(robot)),
        (
            "joints",
            ("joint", "body", "kind", "axis", "limits [rad, m]", "effort", "damping", "dry friction", "mimics"),
            joints(robot),
        ),
        ("actuators", ("actuator", "drives", "kind", "gains", "control", "force"), actuators(robot)),
        ("tendons", ("tendon", "length", "stiffness", "damping", "limits [m]"), tendons(robot)),
        ("closed loops", ("loop", "kind", "first", "second"), loops(robot)),
        ("colliding shapes", ("shape", "kind", "size [m]", "friction", "bounce", "group", "mask"), shapes(robot)),
        ("contact pairs", ("", "kinds", "pairs", "max contacts", "refused"), meetings.rows() if meetings else []),
        ("summary", ("", ""), summary(robot, tree)),
        ("warnings", ("", ""), _warnings(robot, refused, odd)),
    ]
    return Report([(title, columns, rows) for title, columns, rows in tables if rows], refused, odd)


def bodies(robot: Robot) -> Rows:
    """Name, parent, mass and principal moments of every body, and its equivalent box."""
    return [[b.name, b.parent or "-", *_mass(b)] for b in robot.bodies]


def joints(robot: Robot) -> Rows:
    """Name, kind, axis, limits, damping, dry friction and mimicked joint of every moving joint."""
    found = [(b, j) for b in robot.bodies for j in b.joints if j.kind != FIXED]
    return [
        [
            j.name,
            b.name,
            j.kind,
            _axis(j),
            _limits(j),
            *(f"{x:g}" for x in (j.effort, j.damping, j.friction)),
            _leader(j),
        ]
        for b, j in found
    ]


def actuators(robot: Robot) -> Rows:
    """Name, joint, kind, gains and bounds of every actuator."""
    return [
        [a.name, a.joint or a.tendon or a.site, a.kind, _gains(a), _range(a.lower, a.upper), f"{a.force:g}"]
        for a in robot.actuators
    ]


def tendons(robot: Robot) -> Rows:
    """Name, joints, spring, damper and limits of every tendon."""
    return [
        [
            t.name,
            " - ".join(t.sites) or " ".join(f"{coefficient:+g} {joint}" for joint, coefficient in t.joints),
            f"{t.stiffness:g}",
            f"{t.damping:g}",
            _range(t.lower, t.upper),
        ]
        for t in robot.tendons
    ]


def loops(robot: Robot) -> Rows:
    """Name, kind and the two bodies of every loop closure."""
    return [[c.name, c.kind, c.first or "world", c.second or "world"] for c in robot.closures]


def shapes(robot: Robot) -> Rows:
    """Kind, size, friction, restitution and groups of every colliding shape."""
    found = [(f"{b.name}/{s.name or i}", s) for b in robot.bodies for i, s in enumerate(b.shapes) if s.collides]
    return [[name, s.kind, _size(s), *_surface(s), _bits(s.group), _bits(s.mask)] for name, s in found]


def summary(robot: Robot, tree: TreeArrays) -> Rows:
    """Totals."""
    mass = sum(b.mass.mass for b in robot.bodies if b.mass)
    kinds = Counter(j.kind for b in robot.bodies for j in b.joints)
    kinds[FIXED] += sum(not b.joints and b.parent is not None for b in robot.bodies)
    limited = sum(math.isfinite(j.lower) or math.isfinite(j.upper) for b in robot.bodies for j in b.joints)
    return [
        ["bodies", str(len(robot.bodies))],
        ["joints", ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n) or "none"],
        ["limited joints", str(limited)],
        ["coordinates", str(tree.nq)],
        ["velocities", str(tree.nv)],
        ["mass", f"{mass:.6g} kg"],
        ["actuators", str(len(robot.actuators))],
        ["closed loops", str(len(robot.closures))],
        ["keyframes", ", ".join(k.name for k in robot.keyframes) or "none"],
        ["sites", str(sum(len(b.sites) for b in robot.bodies))],
        ["shapes", f"{sum(s.collides for b in robot.bodies for s in b.shapes)} colliding"],
    ]


# -- contact ---------------------------------------------------------------------------------------------------------


class _Meetings:
    """Contact pairs: with the ground, with static bodies, and among the robot's own links under self-collision."""

    def __init__(self, robot: Robot, tree: TreeArrays) -> None:
        _, self.found = find_shapes(tree, [_placed(robot, True)], Ground(), Contact())
        self.flat: dict[int, str] = {}
        self.corners: dict[int, int] = {}
        self.counts: Counter[tuple[str, str]] = Counter()
        self.places: Counter[tuple[str, str]] = Counter()
        self.refused: dict[tuple[str, str], list[str]] = {}
        for meeting in find_meetings(tree, self.found):
            self._add(meeting)

    def _add(self, meeting: Meeting) -> None:
        a, b = self.found[meeting.first], self.found[meeting.second]
        where = "with static bodies" if stands_by(a, b) else "with itself"
        where = "with the ground" if GROUND in (a.name, b.name) else where
        key = where, f"{a.shape.kind} and {b.shape.kind}"
        self.counts[key] += 1
        reason, family = "", meeting.family
        if family is None:
            reason = f"{self._name(a)} and {self._name(b)}: {a.shape.kind} and {b.shape.kind} cannot touch each other"
        for shape in meeting.cornered:
            reason = reason or self._flat(shape)
        if reason:
            self.refused.setdefault(key, []).append(reason)
        elif family is not None:
            knobs = 1
            if family.terrain:
                knobs = len(SHAPE_KINDS[a.shape.kind].ends) or self.corners[meeting.first]
            self.places[key] += family.candidates * knobs

    def _flat(self, shape: int) -> str:
        """Why a shape has no convex hull; cached."""
        if shape not in self.flat:
            try:
                hull = hull_of(self.found[shape])
                self.corners[shape] = len(hull.vertices) if hull else 1
                self.flat[shape] = ""
            except ModelError as error:
                self.flat[shape] = error.what
        return self.flat[shape]

    @staticmethod
    def _name(found: Found) -> str:
        return found.name.partition("/")[2] or found.name

    def rows(self) -> Rows:
        """Numbers of pairs by kinds, the ground first."""
        keys = sorted(self.counts, key=lambda key: (key[0] != "with the ground", key[0] == "with itself", key[1]))
        return [[*k, str(self.counts[k]), str(self.places[k]), str(len(self.refused.get(k, [])) or "-")] for k in keys]

    @property
    def refused_always(self) -> list[str]:
        return self._reasons("with the ground") + self._reasons("with static bodies")

    @property
    def refused_with_itself(self) -> list[str]:
        return self._reasons("with itself")

    def _reasons(self, where: str) -> list[str]:
        return list(dict.fromkeys(r for key, reasons in self.refused.items() for r in reasons if key[0] == where))


def _placed(robot: Robot, self_collision: bool = False) -> PlacedRobot:
    return PlacedRobot(robot.name or "robot", robot, self_collision=self_collision)


def _refusals(robot: Robot, tree: TreeArrays) -> list[str]:
    """Errors of `compile` about limits, mimic joints, loops, actuators and sites."""
    found = []
    makers: Sequence[Maker] = (find_constraints, find_actuators, find_sites)
    for make in makers:
        try:
            make(tree, [_placed(robot)])
        except ModelError as error:
            found.append(error.what)
    return found


def _warnings(robot: Robot, refused: list[str], odd: list[str]) -> Rows:
    told = [("refused", refused), ("implausible", odd), ("omitted", list(robot.notes))]
    return [[kind, text] for kind, texts in told for text in texts]


# -- inertia ---------------------------------------------------------------------------------------------------------


def _principal(body: Body) -> np.ndarray:
    assert body.mass is not None
    xx, xy, xz, yy, yz, zz = body.mass.inertia
    return np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _box(body: Body) -> np.ndarray:
    """Sides of the uniform box with this mass and these moments, m (a^2 + b^2) / 12 [m]."""
    assert body.mass is not None
    moments = _principal(body)
    return np.sqrt(np.maximum(6 / body.mass.mass * (moments.sum() - 2 * moments), 0.0))


def _mass(body: Body) -> tuple[str, str, str]:
    if body.mass is None:
        return "-", "-", "-"
    moments = " ".join(f"{x:.3g}" for x in _principal(body))
    box = " x ".join(f"{x:.2g}" for x in _box(body)) if body.mass.mass > 0 else "-"
    return f"{body.mass.mass:.4g}", moments, box


def _odd(body: Body) -> list[str]:
    """Implausible but possible mass properties."""
    if body.mass is None or body.mass.mass == 0:
        return []
    moments, mass, found = _principal(body), body.mass.mass, []
    if moments[-1] <= 0:
        return [f"{body.name} has mass but no inertia: a point mass"]
    size = math.sqrt(5 * moments[-1] / mass)  # radius of a ball of this mass and inertia is sqrt(5/2 I / m)
    told = f"an inertia of {moments[-1]:.3g} kg m^2 for {mass:.3g} kg"
    extent = max((_extent(s) for s in body.shapes), default=math.inf)
    if size > WIDE:
        found.append(f"{body.name}: {told} belongs to a body {size:.0f} m wide")
    # No point of a body is farther from its centre of mass than the body is wide, so neither is sqrt(I / m).
    elif math.sqrt(moments[-1] / mass) > 2 * extent:
        found.append(f"{body.name}: {told} belongs to a larger body than its shapes, which reach {extent:.2g} m")
    if moments[0] + moments[1] < 0.999 * moments[2]:
        shown = ", ".join(f"{x:.3g}" for x in moments)
        found.append(f"{body.name}: no mass distribution has the principal moments {shown}")
    elif moments[0] < NARROWEST * moments[2]:
        found.append(f"{body.name}: its moments differ by a factor of {moments[2] / max(moments[0], 1e-300):.0g}")
    return found


def _extent(shape: Shape) -> float:
    """Largest distance of a shape's points from the origin of its body [m]."""
    return math.hypot(*shape.pose.position) + SHAPE_KINDS[shape.kind].reach(shape)


# -- texts -----------------------------------------------------------------------------------------------------------


def _axis(joint: Joint) -> str:
    return " ".join(f"{x:.3g}" for x in joint.axis) if TYPES[joint.kind].has_axis else "-"


def _limits(joint: Joint) -> str:
    return _range(joint.lower, joint.upper)


def _strengths(joint: Joint) -> list[str]:
    return [f"{x:g}" for x in (joint.effort, joint.damping, joint.friction)]


def _range(lower: float, upper: float) -> str:
    return "none" if math.isinf(lower) and math.isinf(upper) else f"{lower:.4g} .. {upper:.4g}"


def _leader(joint: Joint) -> str:
    if joint.mimic is None:
        return "-"
    shift = f" {joint.mimic.offset:+g}" if joint.mimic.offset else ""
    powers = (f" {x:+g} {joint.mimic.joint}^{k}" for k, x in enumerate(joint.mimic.higher, 2) if x)
    return f"{joint.mimic.multiplier:g} {joint.mimic.joint}{shift}{''.join(powers)}"


def _gains(actuator: Actuator) -> str:
    state = "" if actuator.activation is None else f", {actuator.activation.kind}"
    if actuator.muscle is not None:
        return f"gear {actuator.gear:g}, muscle of {actuator.muscle.force:g} N{state}"
    if actuator.kind == GENERAL:
        shown = (" ".join(f"{x:g}" for x in numbers) for numbers in (actuator.gain, actuator.bias))
        return f"gear {actuator.gear:g}, gain {next(shown)}, bias {next(shown)}{state}"
    names = {"torque": ("gear",), "position": ("kp", "kd"), "velocity": ("kd",)}.get(actuator.kind, ())
    return ", ".join(f"{name} {getattr(actuator, name):g}" for name in names)


def _surface(shape: Shape) -> list[str]:
    return ["scene's" if x is None else f"{x:g}" for x in (shape.friction, shape.restitution)]


def _bits(group: int) -> str:
    return "all" if group == EVERY_GROUP else f"{group:#x}"


def _size(shape: Shape) -> str:
    if shape.mesh is not None:
        return f"{len(shape.mesh.vertices)} corners, {len(shape.mesh.faces)} triangles"
    return " ".join(f"{x:.3g}" for x in shape.size) or "-"
