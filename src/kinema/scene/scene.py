"""What the user says: robots, where they stand, gravity. `kinema.compile` turns it into a model."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from kinema.errors import ModelError
from kinema.scene.description import (
    FIXED,
    FREE,
    TERRAIN,
    Body,
    Joint,
    Mesh,
    Pose,
    Quaternion,
    Robot,
    Shape,
    Site,
    Vector,
)
from kinema.scene.io.mjcf import read_mjcf
from kinema.scene.io.urdf import read_urdf


@dataclass(frozen=True)
class PlacedRobot:
    """A robot in the scene: its name there, the pose of its roots [m, -], and whether its own links collide."""

    name: str
    robot: Robot
    pose: Pose
    self_collision: bool


@dataclass(frozen=True)
class Ground:
    """A horizontal plane that holds what touches it.

    Attributes:
        height: [m]
        group: Bits of the groups it belongs to: shapes whose mask has none of them pass through.
        without: Kinds of shapes that pass through.
    """

    height: float = 0.0
    group: int = 1
    without: tuple[str, ...] = ()


MLCP, COMPLIANT = "mlcp", "compliant"


@dataclass(frozen=True)
class Contact:
    """How things touch, and how the impulses of contacts, limits and loops are found.

    Attributes:
        law: "mlcp": contacts are hard, their impulses solve a complementarity problem together with limits and loops.
            "compliant": contacts are springs and dampers with smooth friction [Jatavallabhula et al. 2021], soft,
            smooth, and stable only if dt is short for their stiffness; `cone`, `restitution`, `threshold` and `most`
            have no effect.
        friction: Coefficient of Coulomb friction of shapes that have none of their own; of two, the smaller counts.
        cone: Friction within a circle; otherwise within a square, along two directions: faster, and exact along them.
        restitution: Share of the speed with which contacts bounce, above `threshold` [m/s], of shapes that have none
            of their own; of two, the larger counts.
        threshold: [m/s]
        erp: Share of a depth, or of the error of a limit or loop, that is undone in a step.
        recovery: Speed at which depths and limits are undone at most [m/s, rad/s].
        cfm: Softness [1/kg], added to the diagonal of the problem.
        margin: Gap from which on contacts are not looked at [m].
        sweeps: Of projected Gauss-Seidel in each step.
        most: Number of contacts at a time for which there is room, where more are possible.
        k_e: Stiffness of compliant contacts [N/m].
        k_d: Their damping while they approach [N s/m].
        k_f: Their friction per speed while they slide slowly [N s/m].
    """

    law: str = MLCP
    friction: float = 0.8
    cone: bool = False
    restitution: float = 0.0
    threshold: float = 0.1
    erp: float = 0.2
    recovery: float = 1.0
    cfm: float = 1e-6
    margin: float = 0.05
    sweeps: int = 50
    most: int = 256
    k_e: float = 2e4
    k_d: float = 1e2
    k_f: float = 1e2

    def __post_init__(self) -> None:
        if self.law not in (MLCP, COMPLIANT):
            raise ModelError("there is no such law of contact", got=self.law, expected=f"{MLCP!r} or {COMPLIANT!r}")
        numbers = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "law"}
        wrong = [n for n, x in numbers.items() if not math.isfinite(x) or x < 0]
        if wrong or min(self.sweeps, self.most) < 1 or self.erp > 1 or self.restitution > 1:
            got = ", ".join(f"{n} = {x}" for n, x in numbers.items())
            raise ModelError(
                "the contact makes no sense", got=got, expected="finite, positive, erp and restitution <= 1"
            )


class Scene:
    """A scene in words.

    Args:
        gravity: [m/s^2]
        contact: How things touch.
    """

    def __init__(self, gravity: Vector = (0.0, 0.0, -9.81), contact: Contact | None = None) -> None:
        self.gravity = _finite("gravity", gravity, 3)
        self.contact = contact or Contact()
        self.robots: list[PlacedRobot] = []
        self.ground: Ground | None = None

    def add_ground(self, height: float = 0.0, *, group: int = 1, without: Sequence[str] = ()) -> None:
        """Add a horizontal plane.

        Args:
            height: [m]
            group: Bits of the groups it belongs to.
            without: Kinds of shapes that pass through it, as "cylinder".

        Raises:
            ModelError: There is one already, or the height is not finite.
        """
        if self.ground is not None:
            raise ModelError("the scene has a ground already")
        self.ground = Ground(_finite("height", (height,), 1)[0], group, tuple(without))

    def add_terrain(self, mesh: Mesh, name: str = "terrain", *, pos: Vector = (0.0, 0.0, 0.0)) -> str:
        """Add ground that is not flat: triangles that do not move; `shapes.height_field` makes some from heights.

        Args:
            mesh: Triangles, counter-clockwise from outside [m]; z is up.
            name: In this scene.
            pos: Of its frame [m].

        Returns:
            Its name.
        """
        body = Body("ground", shapes=(Shape(TERRAIN, mesh=mesh),))
        return self.add_robot(Robot(name, (body,)), name, pos=pos)

    def add_robot(
        self,
        robot: Robot | str | os.PathLike[str],
        name: str | None = None,
        *,
        pos: Vector = (0.0, 0.0, 0.0),
        rot: Quaternion = (1.0, 0.0, 0.0, 0.0),
        floating: bool = False,
        self_collision: bool = False,
        prescribed: Sequence[str] = (),
    ) -> str:
        """Add a robot.

        Args:
            robot: From a reader or `kinema.shapes`, or the path of a .urdf or .xml (MJCF) file to read as it is.
            name: In this scene; the robot's own by default, numbered if taken.
            pos: Position of its root frame [m].
            rot: Orientation of its root frame, unit quaternion (w, x, y, z).
            floating: Give roots without joints a free joint, so that nothing holds the robot.
            self_collision: Links of the robot collide with each other, neighbours and excluded pairs apart.
            prescribed: Names of joints that move as `simulate(motion=)` says, whatever pushes; see `Joint`.

        Returns:
            Its name.

        Raises:
            ModelError: The file is refused, the name is taken, a number is not finite, or there is no such joint.
        """
        if not isinstance(robot, Robot):
            robot = _read(os.fspath(robot))
        taken = [one.name for one in self.robots]
        if name is None:
            name = next(n for k in range(len(taken) + 1) if (n := robot.name + (f"_{k}" if k else "")) not in taken)
        if name in taken or "/" in name or not name:
            raise ModelError(f"the scene cannot call a robot {name!r}", expected=f"a new name without /; has {taken}")
        pose = Pose(_finite("pos", pos, 3), _unit("rot", rot))
        robot = _prescribed(_floating(robot) if floating else robot, prescribed)
        self.robots.append(PlacedRobot(name, robot, pose, self_collision))
        return name

    def add_site(
        self,
        body: str,
        name: str,
        *,
        pos: Vector = (0.0, 0.0, 0.0),
        rot: Quaternion = (1.0, 0.0, 0.0, 0.0),
    ) -> str:
        """Add a frame to a body of a robot that is in the scene: the place of a sensor, a tool.

        Args:
            body: "robot/body", the robot's name in this scene and the body's.
            name: Of the site, new to the robot.
            pos: Position in the body's frame [m].
            rot: Orientation in the body's frame, unit quaternion (w, x, y, z).

        Returns:
            Its name in the model, "robot/name".

        Raises:
            ModelError: There is no such body, the name is taken, or a number is not usable.
        """
        owner, _, part = body.partition("/")
        at = next((i for i, one in enumerate(self.robots) if one.name == owner), None)
        bodies = self.robots[at].robot.bodies if at is not None else ()
        if at is None or part not in [one.name for one in bodies]:
            known = ", ".join(f"{one.name}/{b.name}" for one in self.robots for b in one.robot.bodies)
            raise ModelError(f"there is no body {body!r} for a site", expected=known or "a scene with a robot")
        taken = [site.name for one in bodies for site in one.sites]
        if name in taken or not name:
            raise ModelError(f"robot {owner!r} cannot call a site {name!r}", expected=f"a new name; has {taken}")
        site = Site(name, Pose(_finite("pos", pos, 3), _unit("rot", rot)))
        changed = tuple(replace(b, sites=(*b.sites, site)) if b.name == part else b for b in bodies)
        self.robots[at] = replace(self.robots[at], robot=replace(self.robots[at].robot, bodies=changed))
        return f"{owner}/{name}"


def _read(path: str) -> Robot:
    if path.endswith(".urdf"):
        return read_urdf(path)
    if path.endswith((".xml", ".mjcf")):
        return read_mjcf(path)
    raise ModelError(f"{path!r} is of no known kind", expected="a .urdf file, or an .xml file in MJCF")


def _floating(robot: Robot) -> Robot:
    roots = [body for body in robot.bodies if body.parent is None]
    free = {b.name: replace(b, joints=(Joint(f"{b.name}_free", FREE),)) for b in roots if not b.joints}
    return replace(robot, bodies=tuple(free.get(b.name, b) for b in robot.bodies))


def _prescribed(robot: Robot, names: Sequence[str]) -> Robot:
    """The robot with these joints prescribed."""
    moving = [joint.name for body in robot.bodies for joint in body.joints if joint.kind != FIXED]
    unknown = [name for name in names if name not in moving]
    if unknown or isinstance(names, str):
        what = f"robot {robot.name!r} has no joint that could be prescribed: "
        raise ModelError(what + repr(names if isinstance(names, str) else unknown[0]), expected=", ".join(moving))
    if not names:
        return robot
    bodies = [
        replace(b, joints=tuple(replace(j, prescribed=j.prescribed or j.name in names) for j in b.joints))
        for b in robot.bodies
    ]
    return replace(robot, bodies=tuple(bodies))


def _finite(name: str, given: tuple[float, ...], count: int) -> tuple:
    values = tuple(float(x) for x in given)
    if len(values) != count or not all(map(math.isfinite, values)):
        raise ModelError(f"{name} is not usable", got=given, expected=f"{count} finite numbers")
    return values


def _unit(name: str, given: tuple[float, ...]) -> tuple:
    values = _finite(name, given, 4)
    length = math.sqrt(sum(x * x for x in values))
    if abs(length - 1) > 1e-6:
        fix = "divide it by its length" if length else "(1, 0, 0, 0) is no rotation"
        raise ModelError(f"{name} is no unit quaternion (w, x, y, z)", got=f"length {length:.6g}", fix=fix)
    return tuple(x / length for x in values)
