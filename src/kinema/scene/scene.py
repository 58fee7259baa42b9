"""`Scene`: robots, bodies and soft matter, where they stand, and how they touch. `kinema.compile` makes it a model."""

from __future__ import annotations

import inspect
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any

import numpy as np

from kinema.errors import ModelError
from kinema.lang.language.markers import Func
from kinema.scene.colours import Colour, rgba
from kinema.scene.description import (
    FIXED,
    FREE,
    TERRAIN,
    Body,
    Joint,
    Mesh,
    PlacedRobot,
    Pose,
    Quaternion,
    Robot,
    Shape,
    Site,
    Tets,
    Vector,
    rotation_matrix,
)
from kinema.scene.drives import Drive, driven
from kinema.scene.force_targets import find_targets
from kinema.scene.forces import Law, chosen_function, law_of_force
from kinema.scene.handles import Handle, MatterHandle, RobotHandle
from kinema.scene.io.mjcf import read_mjcf
from kinema.scene.io.urdf import read_urdf
from kinema.scene.mass_properties import mass_properties
from kinema.scene.matter import (
    CLOTH,
    PARTICLES,
    SKIN,
    SOLID,
    Attachment,
    Cloth,
    Matter,
    Skin,
    Solid,
    Springs,
    chosen_vertices,
)
from kinema.scene.names import closest, listed
from kinema.scene.shape_kinds import SHAPE_KINDS


@dataclass(frozen=True)
class Ground:
    """A horizontal plane that holds what touches it.

    Attributes:
        height: [m]
        group: Bits of the groups it belongs to: shapes whose mask has none of them pass through.
        exclude: Kinds of shapes that pass through.
    """

    height: float = 0.0
    group: int = 1
    exclude: tuple[str, ...] = ()


MLCP, COMPLIANT = "mlcp", "compliant"
LAWS = {MLCP: True, COMPLIANT: False}  # contact laws, and whether contacts are hard: rows with impulses
PGS, NEWTON = "pgs", "newton"


@dataclass(frozen=True)
class Solver:
    """A solver of hard contact, as far as words go; `simulation.solvers.SOLVERS` adds it to programs.

    Attributes:
        exact: Whether its impulses solve the contact problem to round-off; otherwise they are those of `iterations`.
        options: What it has of the options of `Contact` that only some solvers have.
    """

    exact: bool
    options: tuple[str, ...] = ()


SOLVERS = {NEWTON: Solver(exact=True), PGS: Solver(exact=False, options=("relaxation", "tolerance", "warm_start"))}


@dataclass(frozen=True)
class Contact:
    """How things touch, and how the impulses of contacts, limits and loops are found.

    Attributes:
        law: "mlcp": contacts are hard, their impulses solve a complementarity problem together with limits and loops.
            "compliant": contacts are springs and dampers with smooth friction [Jatavallabhula et al. 2021], soft,
            smooth, and stable only if dt is short for their stiffness; `cone`, `restitution`, `threshold` and
            `max_contacts` have no effect.
        friction: Coefficient of Coulomb friction of shapes that have none of their own; of two, the smaller counts.
        cone: Friction within a circle; otherwise within a square, along two directions: faster, and exact along them.
            The problem of the square is always solved, that of the circle nearly always: see `Trajectory.residual`.
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
        max_correction_speed: Largest speed at which depths and violated limits are undone [m/s, rad/s].
        cfm: Softness [1/kg], added to the diagonal of the problem: the only regularisation there is. It says how
            redundant contacts share what they hold: a foot on two points, a box on four.
        margin: Gap from which on contacts are not looked at [m].
        solver: "newton": the contact problem of every step is solved: no impulse would change by more than 1e-12 of the
            largest one (1e-5 in float32) if it were visited once more, and gradients are those of the solution. Where
            that cannot be done `simulate` warns. "pgs": projected Gauss-Seidel of the paper, `iterations` of them,
            converged or not; gradients are those of the iterations.
        iterations: Of "pgs" in each step: each visits every constraint row once.
        relaxation: Of "pgs": each visit of a contact goes so many times as far as would solve its row, the one that
            presses and those of friction; between 0 and 2. (1, 1) is Gauss-Seidel. Where feet slide, (0.8, 1.4) may
            need half the iterations; above 1, contacts that press and slide may never settle, and often do below 1.
        tolerance: Of "pgs": iterations end early, after the first that changes no impulse by more than this share of
            the largest one; 0: never. Gradients are those of the iterations that were done.
        warm_start: Of "pgs": the first iteration of a step starts from the impulses of the last step, not from zero:
            they are then part of the state, see `State.impulses`.
        max_contacts: Number of contacts at a time for which there is room, where more are possible.
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
    max_correction_speed: float = 1.0
    cfm: float = 1e-6
    margin: float = 0.05
    iterations: int = 50
    relaxation: tuple[float, float] = (1.0, 1.0)
    solver: str = NEWTON
    tolerance: float = 0.0
    warm_start: bool = False
    max_contacts: int = 256
    k_e: float = 2e4
    k_d: float = 1e2
    k_f: float = 1e2
    averaged: bool = True

    def __post_init__(self) -> None:
        for what, got, known in (("law", self.law, LAWS), ("solver", self.solver, SOLVERS)):
            if got not in tuple(known):
                raise ModelError(f"unknown contact {what}", got=got, expected=" or ".join(map(repr, known)))
        far = tuple(self.relaxation) if isinstance(self.relaxation, (tuple, list)) else ()
        if len(far) != 2 or not all(isinstance(x, (int, float)) and 0 < x < 2 for x in far):
            expected = "two numbers between 0 and 2: of normal and of friction rows"
            raise ModelError("Contact(relaxation=...) is not usable", got=self.relaxation, expected=expected)
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
        counts = [n for n in ("iterations", "max_contacts") if n not in wrong]
        wrong += [n for n in counts if numbers[n] < 1 or numbers[n] != int(numbers[n])]
        if wrong:
            got = ", ".join(f"{n} = {numbers[n]!r}" for n in wrong)
            expected = (
                "finite, not below 0; erp and restitutions at most 1; iterations and max_contacts whole, at least 1"
            )
            raise ModelError("numbers of Contact are out of range", got=got, expected=expected)
        for field in fields(self):
            having = [name for name, solver in SOLVERS.items() if field.name in solver.options]
            got = getattr(self, field.name)
            if having and self.solver not in having and got != field.default:
                what, fix = f"solver {self.solver!r} has no {field.name}", f"solver={' or '.join(map(repr, having))}"
                raise ModelError(what, got=f"{field.name} = {got!r}", expected=repr(field.default), fix=fix)

    @property
    def hard(self) -> bool:
        """Whether contacts are constraint rows with impulses; otherwise they are forces."""
        return LAWS[self.law]

    @property
    def exact(self) -> bool:
        """Whether impulses solve the contact problem to round-off; otherwise they are those of `iterations`."""
        return SOLVERS[self.solver].exact


class Scene:
    """A scene: what is in it, and how things touch.

    Args:
        gravity: [m/s^2]
        contact: How things touch.
        wind: [m/s], for cloth with drag or lift.
        friction: Coefficient of Coulomb friction of shapes that have none of their own: short for
            `contact=Contact(friction=...)`.

    Raises:
        ModelError: A number is not usable, or `friction` and `contact` say different things.
    """

    def __init__(
        self,
        gravity: Vector = (0.0, 0.0, -9.81),
        contact: Contact | None = None,
        wind: Vector = (0.0, 0.0, 0.0),
        *,
        friction: float | None = None,
    ) -> None:
        self.gravity = _finite("gravity", gravity, 3)
        self.wind = _finite("wind", wind, 3)
        if contact is not None and not isinstance(contact, Contact):
            fix = f"contact=kinema.Contact(law={contact!r})" if contact in (MLCP, COMPLIANT) else "kinema.Contact(...)"
            raise ModelError("contact is of the wrong type", got=repr(contact), expected="a Contact", fix=fix)
        self.contact = _with_friction(contact or Contact(), friction)
        self.robots: list[PlacedRobot] = []
        self.matter: list[Matter] = []
        self.attachments: list[Attachment] = []
        self.forces: list[Law] = []
        self.ground: Ground | None = None

    def add_ground(self, height: float = 0.0, *, group: int = 1, exclude: Sequence[str] = ()) -> None:
        """Add a horizontal plane, called "ground" in names of parameters.

        Args:
            height: [m]
            group: Bits of the groups it belongs to.
            exclude: Kinds of shapes that pass through it, as ["cylinder"].

        Raises:
            ModelError: There is one already, the height is not finite, or a kind of shapes is unknown.
        """
        if self.ground is not None:
            raise ModelError("the scene has a ground already")
        unknown = [exclude] if isinstance(exclude, str) else [kind for kind in exclude if kind not in SHAPE_KINDS]
        if unknown:
            expected = f"a list of {', '.join(SHAPE_KINDS)}"
            raise ModelError("unknown kind of shapes in exclude", got=repr(exclude), expected=expected)
        self.ground = Ground(_finite("height", (height,), 1)[0], group, tuple(exclude))

    def add_terrain(self, mesh: Mesh, name: str = "terrain", *, pos: Vector = (0.0, 0.0, 0.0)) -> RobotHandle:
        """Add ground that is not flat: triangles that do not move; `shapes.height_field` makes some from heights.

        Args:
            mesh: Triangles, counter-clockwise from outside [m]; z is up.
            name: In this scene.
            pos: Of its frame [m].

        Returns:
            Its handle.
        """
        body = Body("ground", shapes=(Shape(TERRAIN, mesh=mesh),))
        return self.add_robot(Robot(name, (body,)), name, pos=pos)

    def add_body(
        self,
        shapes: Shape | Sequence[Shape],
        name: str | None = None,
        *,
        mass: float | None = None,
        density: float | None = None,
        pos: Vector = (0.0, 0.0, 0.0),
        rot: Quaternion = (1.0, 0.0, 0.0, 0.0),
        colour: Colour | None = None,
        friction: float | None = None,
        restitution: float | None = None,
        fixed: bool = False,
    ) -> RobotHandle:
        """Add a rigid body that nothing holds, or that stays where it is.

        In the model it is a robot with one body, "name/body", and a free joint, "name/free".

        Args:
            shapes: One or several, as `kinema.Sphere(0.05)`, in the body's frame.
            name: In this scene; the kind of its only shape or "body" by default, numbered if taken.
            mass: Of all shapes that collide (of all, if none does) together [kg].
            density: Of these shapes [kg/m^3], in place of a mass; 1000 by default. Where they overlap it counts twice.
            pos: Position of its frame [m].
            rot: Orientation of its frame, unit quaternion (w, x, y, z).
            colour: Of shapes that have none of their own: a name ("orange"), "#rrggbb", or linear RGB(A).
            friction: Coefficient of Coulomb friction of shapes that have none of their own; None takes the scene's.
            restitution: Coefficient of restitution of shapes that have none of their own; None takes the scene's.
            fixed: It does not move, and needs no mass.

        Returns:
            Its handle.

        Raises:
            ModelError: The name is taken, or a number is not usable.
            InputError: There is no volume to have mass.
        """
        given = (shapes,) if isinstance(shapes, Shape) else tuple(shapes)
        wrong = [one for one in given if not isinstance(one, Shape)]
        if wrong or not given:
            got = repr(wrong[0]) if wrong else "none"
            raise ModelError("a body is made of shapes", got=got, expected="kinema.Sphere(0.1) or several shapes")
        if mass is not None and density is not None:
            got = f"mass {mass}, density {density}"
            raise ModelError("a body has a mass or a density, not both", got=got, fix="give one of them")
        own: dict[str, Any] = {
            "colour": None if colour is None else rgba(colour),
            "friction": friction,
            "restitution": restitution,
        }
        parts = tuple(replace(s, **{n: x for n, x in own.items() if getattr(s, n) is None}) for s in given)
        weighed = None
        if not fixed or mass is not None or density is not None:
            heavy = [s for s in parts if s.collides] or parts
            weighed = mass_properties(*heavy, density=1000.0 if density is None else density, mass=mass)
        joints = () if fixed else (Joint("free", FREE),)
        default = given[0].kind if len(given) == 1 else "body"
        robot = Robot(default, (Body("body", None, Pose(), joints, weighed, parts),))
        return self.add_robot(robot, name, pos=pos, rot=rot)

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
        drive: Drive | Mapping[str, Drive | None] | None = None,
        **reader: Any,
    ) -> RobotHandle:
        """Add a robot.

        Args:
            robot: From a reader or `kinema.shapes`, or the path of a .urdf or .xml (MJCF) file.
            name: In this scene; the robot's own by default, numbered if taken.
            pos: Position of its root frame [m].
            rot: Orientation of its root frame, unit quaternion (w, x, y, z).
            floating: Give roots without joints a free joint, so that nothing holds the robot. Those that have no mass
                and carry nothing stand by: the floor of an MJCF file.
            self_collision: Links of the robot collide with each other, neighbours and excluded pairs apart. With what
                stands in the world and belongs to no tree of theirs, such as the floor of an MJCF file, they always do.
            prescribed: Names of joints that move as `Control(motion=)` says, whatever pushes; see `Joint`.
            drive: A `Servo`, `VelocityServo` or `Motor` for every revolute and prismatic joint, mimic and prescribed
                ones apart, in place of actuators that they have; or several by names or patterns of joints, of which
                the first that matches counts: `{"*_knee": kn.Servo(60, 2), "*": kn.Servo(40, 1)}`. They have the names
                of their joints. Efforts of joints limit them, too.
            reader: Options of the reader of the file, see `read_urdf` (roots, package_roots, meshes, repair) and
                `read_mjcf` (roots, ignore).

        Returns:
            Its handle: its name, with `.joints`, `.bodies`, `.actuators`, and `["part"]`.

        Warns:
            LeftOutWarning: Something in the file was left out; says what.

        Raises:
            ModelError: The file is refused, the name is taken, a number is not finite, there is no such joint, or the
                reader has no such option.
        """
        if not isinstance(robot, Robot):
            robot = _read(robot, reader)
        elif reader:
            check_options(reader, ())  # a robot has been read already
        name = self._new_name(name, robot.name)
        pose = Pose(_finite("pos", pos, 3), _unit("rot", rot))
        robot = _prescribed(set_free(robot) if floating else robot, prescribed)
        robot = robot if drive is None else driven(robot, drive)
        self.robots.append(PlacedRobot(name, robot, pose, self_collision))
        return RobotHandle(name, self.robots)

    def _new_name(self, wanted: str | None, default: str) -> str:
        """A name that nothing in the scene has."""
        parts: list[Any] = [*self.robots, *self.matter, *self.forces]
        taken = [one.name for one in parts]
        if wanted is None:
            return next(n for k in range(len(taken) + 1) if (n := default + (f"_{k}" if k else "")) not in taken)
        if not isinstance(wanted, str) or not wanted or any(c in wanted for c in "/*?"):
            raise ModelError("the name is not usable", got=repr(wanted), expected="a text without / * ?")
        if wanted in taken:
            raise ModelError(f"the name {wanted!r} is taken", expected="a new one", fix=f"not one of {listed(taken)}")
        return str(wanted)

    def _find_body(self, name: str, why: str) -> tuple[int, str]:
        """Number of a robot and name of its body, from "robot/body", or "robot" if it has only one."""
        owner, slash, part = str(name).partition("/")
        at = next((i for i, one in enumerate(self.robots) if one.name == owner), None)
        bodies = [b.name for b in self.robots[at].robot.bodies] if at is not None else []
        if at is not None and not slash and len(bodies) == 1:
            return at, bodies[0]
        if at is None or part not in bodies:
            known = [f"{one.name}/{b.name}" for one in self.robots for b in one.robot.bodies]
            expected, fix = listed(known, "a scene with a robot"), closest(str(name), known)
            raise ModelError(f"there is no body {name!r} {why}", expected=expected, fix=fix)
        return at, part

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
    ) -> MatterHandle:
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
            Its handle.

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
    ) -> MatterHandle:
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
            Its handle.

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
    ) -> MatterHandle:
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
            Their handle.

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
    ) -> MatterHandle:
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
        return MatterHandle(name)

    def attach(self, matter: str, vertices: Any, to: str | None = None) -> None:
        """Let vertices move with a body, or stay where they are.

        What pulls at them pulls at the body. They have no mass of their own then: it is the body's that counts.

        Args:
            matter: Handle or name of something soft in the scene.
            vertices: Their numbers, or a mask with True for each.
            to: A body, "robot/body", or a robot with one body; None: the world.

        Raises:
            ModelError: There is no such thing, vertex or body.
        """
        one = next((m for m in self.matter if m.name == matter), None)
        if one is None:
            names = [m.name for m in self.matter]
            expected, fix = listed(names, "something soft in the scene"), closest(str(matter), names)
            raise ModelError(f"there is no {matter!r} to attach", expected=expected, fix=fix)
        chosen = chosen_vertices(one, vertices)
        body = None
        if to is not None:
            at, part = self._find_body(to, f"to attach {matter!r} to")
            body = f"{self.robots[at].name}/{part}"
        self.attachments.append(Attachment(one.name, chosen, body))

    def add_force(
        self,
        law: Func | None = None,
        name: str | None = None,
        *,
        energy: Func | None = None,
        particles: Any = None,
        joints: Any = None,
        bodies: Any = None,
        between: Any = None,
        vertices: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> Handle:
        """Add a force of your own: a `@func` of `kinema.lang`, which is called for every element that it acts on.

        The names of its arguments say what it reads, in any order, all in world axes:

        - of each of `particles`: x [m] and v [m/s]; it returns the force [N], a vec3.
        - of each of `joints`, revolute or prismatic: q [rad, m] and v [rad/s, m/s]; it returns a Float [N m, N].
        - of each of `bodies`, or sites on them: the position x [m] and the velocity v [m/s] of its origin, its rotation
          R (mat33, from its axes to the world's) and its angular velocity w [rad/s]; it returns the force [N] at that
          origin, a vec3, or a `kinema.math.Force(moment, force)` about it.
        - `between` two particles, bodies or sites: d [m], from the first to the second, and u [m/s], the velocity of
          the second less that of the first, of bodies also R1, w1, R2 and w2; it returns what acts on the first, as
          above. The opposite acts on the second: a vec3 at its own origin, a `Force` about the point of the first.
        - `time` [s]: that of `simulate(time=...)` and the steps since then.
        - All others are numbers in `params`: Float, or what their annotation says (vec3, ...). They are learned as
          "name/argument", those of one element as "name/element/argument", see `Model.parameters`.

        Joints and bodies feel it explicitly: evaluated at the start of a step (with "rk4" in each stage, at its time;
        after an impact within the step, there). Particles feel it like any other force: at the start of explicit steps,
        at the end of implicit ones, which are made for forces that damp or have an energy, and raise where they find no
        step. Bounds of time steps, and their warnings, do not know it: a stiff or strongly damping force needs a short
        step (or `substeps`) where it is explicit.

        Args:
            law: The force.
            name: In this scene; that of the function by default, numbered if taken.
            energy: In place of a force, an energy [J] that depends on positions (x, q, R, d, R1, R2), time and numbers:
                forces, and moments, are minus its derivatives.
            particles: Soft things, by handle, name or pattern, or a list of them.
            joints: Joints, or robots for all of theirs, likewise.
            bodies: Bodies that move, robots for all of theirs, or sites, likewise.
            between: Two ends, each a body or a site, or a list of as many as at the other end (or one); or each
                something soft. To tie a body to particles, `attach` a particle to it.
            vertices: Of one of `particles`, numbers or a mask; `between` soft things, a pair of numbers for each
                force, shape (n, 2).
            params: By argument a number for all elements, or one for each.

        Returns:
            Its handle.

        Gradients:
            Exact, to the state, the numbers and the time.

        Raises:
            ModelError: There is no such thing, the function has other arguments or returns something else, or a number
                is missing, unknown or not usable.
            KernelError: The function uses what is not part of the language; says where.
        """
        function = chosen_function(law, energy)
        name = self._new_name(name, function.__name__)
        chosen: dict[str, Any] = {"particles": particles, "joints": joints, "bodies": bodies, "between": between}
        targets = find_targets(self.robots, self.matter, **chosen, vertices=vertices)
        self.forces.append(law_of_force(name, function, energy is not None, targets, params))
        return Handle(name)

    def add_site(
        self,
        body: str,
        name: str,
        *,
        pos: Vector = (0.0, 0.0, 0.0),
        rot: Quaternion = (1.0, 0.0, 0.0, 0.0),
    ) -> Handle:
        """Add a frame to a body of a robot that is in the scene: the place of a sensor, a tool.

        Args:
            body: "robot/body", the robot's name in this scene and the body's; or a robot with one body.
            name: Of the site, new to the robot.
            pos: Position in the body's frame [m].
            rot: Orientation in the body's frame, unit quaternion (w, x, y, z).

        Returns:
            Its handle, "robot/name".

        Raises:
            ModelError: There is no such body, the name is taken, or a number is not usable.
        """
        at, part = self._find_body(body, "for a site")
        owner, bodies = self.robots[at].name, self.robots[at].robot.bodies
        taken = [site.name for one in bodies for site in one.sites]
        if name in taken or not name:
            raise ModelError(
                f"the name {name!r} of a site of robot {owner!r} is not usable", expected=f"a new one; has {taken}"
            )
        site = Site(name, Pose(_finite("pos", pos, 3), _unit("rot", rot)))
        changed = tuple(replace(b, sites=(*b.sites, site)) if b.name == part else b for b in bodies)
        self.robots[at] = replace(self.robots[at], robot=replace(self.robots[at].robot, bodies=changed))
        return Handle(f"{owner}/{name}")


def reader_of(path: str) -> Callable[..., Robot]:
    """The reader of a robot file, by the end of its name.

    Raises:
        ModelError: There is none.
    """
    if path.endswith(".urdf"):
        return read_urdf
    if path.endswith((".xml", ".mjcf")):
        return read_mjcf
    raise ModelError(f"{path!r} is of no known kind", expected="a .urdf file, or an .xml file in MJCF")


def options_of(read: Callable[..., Robot]) -> list[str]:
    """Names of the options of a reader that `add_robot` passes on."""
    keywords = [n for n, p in inspect.signature(read).parameters.items() if p.kind is p.KEYWORD_ONLY]
    return [name for name in keywords if name != "floating"]


def check_options(given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise ModelError if an option is none of the reader's."""
    own = [n for n, p in inspect.signature(Scene.add_robot).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for name in given:
        if name not in known:
            expected = ", ".join(own) + (f"; of the reader: {', '.join(known)}" if known else "")
            what = f"a robot that is added has no option {name!r}"
            raise ModelError(what, expected=expected, fix=closest(name, [*own, *known]))


def _read(given: object, options: Mapping[str, Any]) -> Robot:
    if not isinstance(given, str | os.PathLike):
        expected = "a Robot, or the path of a .urdf or .xml file"
        raise ModelError("this is no robot", got=type(given).__name__, expected=expected)
    path = os.fspath(given)
    read = reader_of(path)
    check_options(options, options_of(read))
    return read(path, **options)


def _with_friction(contact: Contact, friction: float | None) -> Contact:
    """The contact with this friction, unless it has another one already."""
    if friction is None or friction == contact.friction:
        return contact
    if contact.friction != Contact.friction:
        got = f"friction {friction} and contact.friction {contact.friction}"
        raise ModelError("the scene has two frictions", got=got, fix="give one of them")
    return replace(contact, friction=friction)


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
        name = names if isinstance(names, str) else unknown[0]
        what = f"prescribed: robot {robot.name!r} has no moving joint {name!r}"
        fix = f"prescribed=[{names!r}]" if names in moving else closest(name, moving)
        raise ModelError(what, expected=listed(moving, "a robot with joints"), fix=fix)
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
        raise ModelError(f"{what} is of the wrong type", got=type(given).__name__, expected=kind.__name__)


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
        fix = "divide it by its length" if length else "the identity is (1, 0, 0, 0)"
        raise ModelError(f"{name} is no unit quaternion (w, x, y, z)", got=f"length {length:.6g}", fix=fix)
    return tuple(x / length for x in values)
