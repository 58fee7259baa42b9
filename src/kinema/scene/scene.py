"""What the user says: robots, where they stand, gravity. `kinema.compile` turns it into a model."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any

import numpy as np

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
    Tets,
    Vector,
    rotation_matrix,
)
from kinema.scene.io.mjcf import read_mjcf
from kinema.scene.io.urdf import read_urdf
from kinema.scene.matter import CLOTH, PARTICLES, SKIN, SOLID, Attachment, Cloth, Matter, Skin, Solid, Springs
from kinema.scene.validate import SIZES


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
PGS, NEWTON = "pgs", "newton"


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
        restitution: Share of the speed of an impact with which contacts bounce, of shapes that have none of their own;
            of two, the larger counts. Impulses act from the time of the impact on, see
            `kinema.contact.solving.impacts`.
        limit_restitution: The same of limits of joints.
        threshold: Speed from which on they bounce [m/s, rad/s]: not at all at this speed, with their restitution from
            twice it on, and with a share that grows evenly in between.
        time_of_impact: Contacts and limits without restitution are hit at their time of impact, too: the step is cut
            there, and its rest begins anew. A step in which something is hit takes as long as two or three, others
            some percent longer: a quarter in all for robots that run. Without it they are stopped where they touch,
            and what pushes them away begins at the next step: right on average, but gradients are then steep for few
            states and flat for the others wherever something is hit off its centre, or a joint comes back from its
            limit. Restitution above zero has it always.
        erp: Share of a depth, or of the error of a limit or loop, that is undone in a step.
        recovery: Speed at which depths and limits are undone at most [m/s, rad/s].
        cfm: Softness [1/kg], added to the diagonal of the problem: the only regularisation there is. It says how
            redundant contacts share what they hold: a foot on two points, a box on four.
        margin: Gap from which on contacts are not looked at [m].
        solver: "newton": the contact problem of every step is solved: no impulse would change by more than 1e-12 of the
            largest one (1e-5 in float32) if it were visited once more, and gradients are those of the solution. Where
            that cannot be done `simulate` warns. "pgs": projected Gauss-Seidel of the paper, as many sweeps as `sweeps`
            says, converged or not; gradients are those of the sweeps.
        sweeps: Of "pgs" in each step.
        relaxation: Of "pgs": each visit of a contact goes so many times as far as would solve its row, the one that
            presses and those of friction; between 0 and 2. (1, 1) is Gauss-Seidel. Where feet slide, (0.8, 1.4) may
            need half the sweeps; above 1, contacts that press and slide may never settle, and often do below 1.
        tolerance: Of "pgs": sweeps end early, after the first that changes no impulse by more than this share of the
            largest one; 0: never. Gradients are those of the sweeps that were done.
        warm_start: Of "pgs": the first sweep of a step starts from the impulses of the last step, not from zero: they
            are then part of the state, see `simulate`.
        most: Number of contacts at a time for which there is room, where more are possible.
        k_e: Stiffness of compliant contacts [N/m].
        k_d: Their damping while they approach [N s/m].
        k_f: Their friction per speed while they slide slowly [N s/m].
        averaged: Forces of compliant contacts are what acts during a step, from when contact begins on, so that
            gradients see when it does. Without it they are those of gradSim, which jump by k_d times the speed when
            something touches: for comparison with the paper only, as gradients are then wrong by factors, however
            short the step.
    """

    law: str = MLCP
    friction: float = 0.8
    cone: bool = False
    restitution: float = 0.0
    limit_restitution: float = 0.0
    threshold: float = 0.1
    time_of_impact: bool = False
    erp: float = 0.2
    recovery: float = 1.0
    cfm: float = 1e-6
    margin: float = 0.05
    sweeps: int = 50
    relaxation: tuple[float, float] = (1.0, 1.0)
    solver: str = NEWTON
    tolerance: float = 0.0
    warm_start: bool = False
    most: int = 256
    k_e: float = 2e4
    k_d: float = 1e2
    k_f: float = 1e2
    averaged: bool = True

    def __post_init__(self) -> None:
        if self.law not in (MLCP, COMPLIANT):
            raise ModelError("there is no such law of contact", got=self.law, expected=f"{MLCP!r} or {COMPLIANT!r}")
        if self.solver not in (PGS, NEWTON):
            raise ModelError("there is no such solver", got=self.solver, expected=f"{PGS!r} or {NEWTON!r}")
        far = tuple(self.relaxation) if isinstance(self.relaxation, (tuple, list)) else ()
        if len(far) != 2 or not all(isinstance(x, (int, float)) and 0 < x < 2 for x in far):
            expected = "two numbers between 0 and 2, of pressing and of friction"
            raise ModelError("the relaxation of contacts makes no sense", got=self.relaxation, expected=expected)
        if self.solver == NEWTON and far != (1.0, 1.0):
            what = "Newton's method has no relaxation"
            raise ModelError(what, got=self.relaxation, expected="(1, 1)", fix=f"solver={PGS!r}, whose it is")
        object.__setattr__(self, "relaxation", (float(far[0]), float(far[1])))
        for name in ("averaged", "time_of_impact"):
            if not isinstance(getattr(self, name), bool):
                raise ModelError(
                    f"Contact({name}=...) is not usable", got=getattr(self, name), expected="True or False"
                )
        words = ("law", "solver", "relaxation", "averaged", "time_of_impact")
        numbers = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in words}
        most = {"erp": 1, "restitution": 1, "limit_restitution": 1}
        wrong = [n for n, x in numbers.items() if not _is_number(x) or not 0 <= x <= most.get(n, sys.float_info.max)]
        wrong += [n for n in ("sweeps", "most") if n not in wrong and (numbers[n] < 1 or numbers[n] != int(numbers[n]))]
        if wrong:
            got = ", ".join(f"{n} = {numbers[n]!r}" for n in wrong)
            expected = "finite, not below 0; erp and restitutions at most 1, sweeps and most whole and at least 1"
            raise ModelError("the contact makes no sense", got=got, expected=expected)
        if self.solver == NEWTON and (self.tolerance or self.warm_start):
            got = f"tolerance = {self.tolerance}, warm_start = {self.warm_start}"
            what = "Newton's method needs no tolerance and no start"
            raise ModelError(what, got=got, expected="0 and False", fix=f"solver={PGS!r}, whose they are")


class Scene:
    """A scene in words.

    Args:
        gravity: [m/s^2]
        contact: How things touch.
        wind: [m/s], for cloth with drag or lift.
    """

    def __init__(
        self,
        gravity: Vector = (0.0, 0.0, -9.81),
        contact: Contact | None = None,
        wind: Vector = (0.0, 0.0, 0.0),
    ) -> None:
        self.gravity = _finite("gravity", gravity, 3)
        self.wind = _finite("wind", wind, 3)
        if contact is not None and not isinstance(contact, Contact):
            fix = f"contact=kinema.Contact(law={contact!r})" if contact in (MLCP, COMPLIANT) else "kinema.Contact(...)"
            raise ModelError("contact is of the wrong kind", got=repr(contact), expected="a Contact", fix=fix)
        self.contact = contact or Contact()
        self.robots: list[PlacedRobot] = []
        self.matter: list[Matter] = []
        self.attachments: list[Attachment] = []
        self.ground: Ground | None = None

    def add_ground(self, height: float = 0.0, *, group: int = 1, without: Sequence[str] = ()) -> None:
        """Add a horizontal plane.

        Args:
            height: [m]
            group: Bits of the groups it belongs to.
            without: Kinds of shapes that pass through it, as "cylinder".

        Raises:
            ModelError: There is one already, the height is not finite, or there are no such shapes.
        """
        if self.ground is not None:
            raise ModelError("the scene has a ground already")
        unknown = [without] if isinstance(without, str) else [kind for kind in without if kind not in SIZES]
        if unknown:
            expected = f"a list of {', '.join(SIZES)}"
            raise ModelError("the ground is without shapes that there are not", got=repr(without), expected=expected)
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
            floating: Give roots without joints a free joint, so that nothing holds the robot. Those that have no mass
                and carry nothing stand by: the floor of an MJCF file.
            self_collision: Links of the robot collide with each other, neighbours and excluded pairs apart. With what
                stands in the world and belongs to no tree of theirs, such as the floor of an MJCF file, they always do.
            prescribed: Names of joints that move as `simulate(motion=)` says, whatever pushes; see `Joint`.

        Returns:
            Its name.

        Warns:
            LeftOutWarning: Something in the file was left out; says what.

        Raises:
            ModelError: The file is refused, the name is taken, a number is not finite, or there is no such joint.
        """
        if not isinstance(robot, Robot):
            robot = _read(robot)
        name = self._new_name(name, robot.name)
        pose = Pose(_finite("pos", pos, 3), _unit("rot", rot))
        robot = _prescribed(set_free(robot) if floating else robot, prescribed)
        self.robots.append(PlacedRobot(name, robot, pose, self_collision))
        return name

    def _new_name(self, wanted: str | None, default: str) -> str:
        """A name that nothing in the scene has."""
        taken = [one.name for one in self.robots] + [one.name for one in self.matter]
        if wanted is None:
            return next(n for k in range(len(taken) + 1) if (n := default + (f"_{k}" if k else "")) not in taken)
        if not isinstance(wanted, str) or wanted in taken or "/" in wanted or not wanted:
            raise ModelError(f"the scene cannot use the name {wanted!r}", expected=f"a new one without /; has {taken}")
        return wanted

    def add_solid(
        self,
        mesh: Tets,
        name: str | None = None,
        *,
        material: Solid | None = None,
        skin: Skin | None = SKIN,
        pos: Vector = (0.0, 0.0, 0.0),
        rot: Quaternion = (1.0, 0.0, 0.0, 0.0),
        velocity: Any = (0.0, 0.0, 0.0),
    ) -> str:
        """Add a deformable solid.

        Args:
            mesh: At rest, from `kinema.shapes` or `kinema.read_msh`.
            name: In this scene; "solid" by default, numbered if taken.
            material: What it is made of.
            skin: How its vertices touch the shapes of the scene; None: they pass through.
            pos: Where the origin of the mesh is put [m].
            rot: How the mesh is turned about it, unit quaternion (w, x, y, z).
            velocity: At the start [m/s], three numbers or three for every vertex.

        Returns:
            Its name.

        Raises:
            ModelError: The name is taken, or a number is not usable.
        """
        _of_kind("the mesh of a solid", mesh, Tets)
        _of_kind("the material of a solid", material or Solid(), Solid)
        return self._add_matter(
            SOLID, name, mesh.vertices, mesh.corners, material or Solid(), Springs(), 0.0, skin, pos, rot, velocity
        )

    def add_cloth(
        self,
        mesh: Mesh,
        name: str | None = None,
        *,
        material: Cloth | None = None,
        skin: Skin | None = SKIN,
        pos: Vector = (0.0, 0.0, 0.0),
        rot: Quaternion = (1.0, 0.0, 0.0, 0.0),
        velocity: Any = (0.0, 0.0, 0.0),
    ) -> str:
        """Add cloth: triangles that resist stretching, and edges that resist bending.

        Args:
            mesh: Triangles at rest; the angles between them are those at rest.
            name: In this scene; "cloth" by default, numbered if taken.
            material: What it is made of.
            skin: How its vertices touch the shapes of the scene; None: they pass through.
            pos: Where the origin of the mesh is put [m].
            rot: How the mesh is turned about it, unit quaternion (w, x, y, z).
            velocity: At the start [m/s], three numbers or three for every vertex.

        Returns:
            Its name.

        Raises:
            ModelError: The name is taken, or a number is not usable.
        """
        _of_kind("the mesh of a cloth", mesh, Mesh)
        _of_kind("the material of a cloth", material or Cloth(), Cloth)
        return self._add_matter(
            CLOTH, name, mesh.vertices, mesh.faces, material or Cloth(), Springs(), 0.0, skin, pos, rot, velocity
        )

    def add_particles(
        self,
        vertices: Any,
        name: str | None = None,
        *,
        mass: Any,
        springs: Springs | None = None,
        skin: Skin | None = SKIN,
        pos: Vector = (0.0, 0.0, 0.0),
        rot: Quaternion = (1.0, 0.0, 0.0, 0.0),
        velocity: Any = (0.0, 0.0, 0.0),
    ) -> str:
        """Add particles, and springs between them.

        Args:
            vertices: Positions [m], shape (n, 3).
            name: In this scene; "particles" by default, numbered if taken.
            mass: Of each [kg], a number or shape (n,).
            springs: Between them.
            skin: How they touch the shapes of the scene; None: they pass through.
            pos: Where their origin is put [m].
            rot: How they are turned about it, unit quaternion (w, x, y, z).
            velocity: At the start [m/s], three numbers or three for every particle.

        Returns:
            Their name.

        Raises:
            ModelError: The name is taken, or a number is not usable.
        """
        _of_kind("springs", springs or Springs(), Springs)
        none = np.zeros((0, 0), np.int32)
        return self._add_matter(
            PARTICLES, name, vertices, none, None, springs or Springs(), mass, skin, pos, rot, velocity
        )

    def _add_matter(
        self,
        kind: str,
        name: str | None,
        vertices: Any,
        elements: Any,
        material: Solid | Cloth | None,
        springs: Springs,
        mass: Any,
        skin: Skin | None,
        pos: Vector,
        rot: Quaternion,
        velocity: Any,
    ) -> str:
        name = self._new_name(name, kind)
        rest = _array(f"vertices of {name!r}", vertices)
        if rest.ndim != 2 or rest.shape[1] != 3 or not len(rest):
            raise ModelError(f"vertices of {name!r} have the wrong shape", got=rest.shape, expected="(vertices, 3)")
        if kind == PARTICLES and not np.isfinite(rest).all():  # meshes are looked at when they are compiled
            first = int(np.argmin(np.isfinite(rest).all(1)))
            raise ModelError(f"vertex {first} of {name!r} is not finite", got=rest[first])
        if skin is not None:
            _of_kind("a skin", skin, Skin)
        pose = Pose(_finite("pos", pos, 3), _unit("rot", rot))
        given = {"velocity": (velocity, rest.shape), "mass": (mass, (len(rest),))}
        made = {}
        for what, (value, shape) in given.items():
            array = _array(f"{what} of {name!r}", value)
            fits = array.shape in (shape, shape[1:])
            if not fits or not np.isfinite(array).all():
                got, expected = array if fits else array.shape, f"finite numbers, shape {shape[1:]} or {shape}"
                raise ModelError(f"{what} of {name!r} is not usable", got=got, expected=expected)
            made[what] = np.broadcast_to(array, shape).copy()
        if (made["mass"] < 0).any() or (kind == PARTICLES and not (made["mass"] > 0).all()):
            raise ModelError(f"mass of {name!r} is not positive", got=float(made["mass"].min()))
        start = rest @ rotation_matrix(pose.rotation).T + np.asarray(pose.position)
        elements = np.asarray(elements)
        self.matter.append(
            Matter(name, kind, start, rest, made["velocity"], elements, material, springs, made["mass"], skin)
        )
        return name

    def attach(self, matter: str, vertices: Any, to: str | None = None) -> None:
        """Let vertices move with a body, or stay where they are.

        What pulls at them pulls at the body. They have no mass of their own then: it is the body's that counts.

        Args:
            matter: Name of something soft in the scene.
            vertices: Their numbers, or a mask with True for each.
            to: "robot/body"; None: the world.

        Raises:
            ModelError: There is no such thing, vertex or body.
        """
        one = next((m for m in self.matter if m.name == matter), None)
        if one is None:
            expected = ", ".join(m.name for m in self.matter) or "something soft in the scene"
            raise ModelError(f"there is no {matter!r} to attach", expected=expected)
        chosen, count = np.asarray(vertices), len(one.vertices)
        if chosen.dtype == bool and chosen.shape == (count,):
            chosen = np.flatnonzero(chosen)
        fits = chosen.ndim == 1 and np.issubdtype(chosen.dtype, np.integer)
        if not fits or (chosen < 0).any() or (chosen >= count).any():
            expected = f"numbers from 0 to {count - 1}, or a mask of shape ({count},)"
            raise ModelError(
                f"{matter!r} has no such vertices", got=f"{chosen.dtype} {chosen.shape}", expected=expected
            )
        owner, _, part = str(to or "").partition("/")
        bodies = [b.name for r in self.robots if r.name == owner for b in r.robot.bodies]
        if to is not None and part not in bodies:
            known = ", ".join(f"{r.name}/{b.name}" for r in self.robots for b in r.robot.bodies)
            raise ModelError(f"there is no body {to!r} to attach {matter!r} to", expected=known or "a robot")
        self.attachments.append(Attachment(matter, chosen.astype(np.int32), to))

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


def _read(given: object) -> Robot:
    if not isinstance(given, str | os.PathLike):
        expected = "a Robot, or the path of a .urdf or .xml file"
        raise ModelError("this is no robot", got=type(given).__name__, expected=expected)
    path = os.fspath(given)
    if path.endswith(".urdf"):
        return read_urdf(path)
    if path.endswith((".xml", ".mjcf")):
        return read_mjcf(path)
    raise ModelError(f"{path!r} is of no known kind", expected="a .urdf file, or an .xml file in MJCF")


def set_free(robot: Robot) -> Robot:
    """The robot with a free joint at every root that has none; beside bodies that have mass, a floor stays a floor."""
    carrying = {body.parent for body in robot.bodies}
    heavy = any(body.mass is not None for body in robot.bodies)
    roots = [body for body in robot.bodies if body.parent is None and not body.joints]
    moved = [b for b in roots if b.mass is not None or b.name in carrying or not heavy]
    free = {b.name: replace(b, joints=(Joint(f"{b.name}_free", FREE),)) for b in moved}
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


def _is_number(given: object) -> bool:
    return isinstance(given, Real) and math.isfinite(given)


def _of_kind(what: str, given: object, kind: type) -> None:
    if not isinstance(given, kind):
        raise ModelError(f"{what} is of the wrong kind", got=type(given).__name__, expected=kind.__name__)


def _array(what: str, given: Any) -> np.ndarray:
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise ModelError(f"{what}: these are no numbers", got=repr(given)[:80]) from None


def _finite(name: str, given: tuple[float, ...], count: int) -> tuple:
    try:
        values = tuple(float(x) for x in given)
    except (TypeError, ValueError):
        values = ()
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
