"""`Scene`: robots, bodies and soft matter, their poses, and contact parameters. `kinema.compile` makes it a model."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from kinema.errors import ModelError
from kinema.lang.language.markers import Func
from kinema.scene.colours import Colour, rgba
from kinema.scene.contact import CONVEX, LAWS, Contact
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
from kinema.scene.io.files import warn_of
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

INTEGRATORS = {"rk4": "euler", "implicit": "implicitfast"}
"""Replacements of MuJoCo's integrators that do not exist here with contacts."""


@dataclass(frozen=True)
class Ground:
    """A horizontal plane; solid below.

    Attributes:
        height: [m]
        group: Collision group bits: shapes whose mask has none of these bits pass through.
        exclude: Shape kinds that pass through.
    """

    height: float = 0.0
    group: int = 1
    exclude: tuple[str, ...] = ()


class Start(NamedTuple):
    """Initial pose and velocity of soft matter: the arguments `pos` [m], `rot` [-] and `velocity` [m/s], unchecked."""

    pos: Vector
    rot: Quaternion
    velocity: Any


class Scene:
    """A scene: robots, rigid bodies, soft matter, forces, and contact parameters.

    Args:
        gravity: [m/s^2]
        contact: Contact law and solver.
        wind: [m/s], for cloth with drag or lift.
        friction: Default coefficient of Coulomb friction of shapes: short for `contact=Contact(friction=...)`.

    Attributes:
        timestep: The time step of `from_mjcf` [s]; None otherwise.
        integrator: The integrator of `from_mjcf`, for `simulate`.

    Raises:
        ModelError: A value is invalid, or `friction` contradicts `contact`.
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
            fix = f"contact=kinema.Contact(law={contact!r})" if contact in tuple(LAWS) else "kinema.Contact(...)"
            raise ModelError("contact is of the wrong type", got=repr(contact), expected="a Contact", fix=fix)
        self.contact = _with_friction(contact or Contact(), friction)
        self.robots: list[PlacedRobot] = []
        self.matter: list[Matter] = []
        self.attachments: list[Attachment] = []
        self.forces: list[Law] = []
        self.ground: Ground | None = None
        self.timestep: float | None = None
        self.integrator = "euler"

    @classmethod
    def from_mjcf(cls, file: str | os.PathLike[str], name: str | None = None, **reader: Any) -> Scene:
        """The scene of an MJCF file as MuJoCo simulates it: the contact law "convex", self-collision, and its options.

        `kn.simulate(model, steps=..., dt=scene.timestep, integrator=scene.integrator)` is its motion. Of the file's
        options the scene has gravity, cone and impratio, `timestep` and `integrator`; the solver always converges.

        Args:
            file: The file, or the text of a model.
            name: Name of the robot in the scene, by default that of the file.
            reader: Options of `read_mjcf`.

        Warns:
            LeftOutWarning: Lists what was left out, such as the integrators RK4 (Euler replaces it) and implicit
                (implicitfast replaces it).

        Raises:
            ModelError: As `read_mjcf`.
        """
        robot = read_mjcf(file, **reader)
        options = robot.options
        assert options is not None
        contact = Contact(law=CONVEX, cone=options.elliptic, impratio=options.impratio)
        scene = cls(options.gravity, contact)
        scene.timestep = options.timestep
        scene.integrator = INTEGRATORS.get(options.integrator, options.integrator)
        if scene.integrator != options.integrator:
            warn_of((f"integrator {options.integrator}: {scene.integrator} replaces it",), robot.source)
        scene.add_robot(robot, name, self_collision=True)
        return scene

    def add_ground(self, height: float = 0.0, *, group: int = 1, exclude: Sequence[str] = ()) -> None:
        """Add a horizontal ground plane, called "ground" in parameter names.

        Args:
            height: [m]
            group: Collision group bits.
            exclude: Shape kinds that pass through it, as ["cylinder"].

        Raises:
            ModelError: The scene already has a ground, the height is not finite, or a shape kind is unknown.
        """
        if self.ground is not None:
            raise ModelError("the scene already has a ground")
        unknown = [exclude] if isinstance(exclude, str) else [kind for kind in exclude if kind not in SHAPE_KINDS]
        if unknown:
            expected = f"a list of {', '.join(SHAPE_KINDS)}"
            raise ModelError("unknown shape kind in exclude", got=repr(exclude), expected=expected)
        self.ground = Ground(_finite("height", (height,), 1)[0], group, tuple(exclude))

    def add_terrain(self, mesh: Mesh, name: str = "terrain", *, pos: Vector = (0.0, 0.0, 0.0)) -> RobotHandle:
        """Add terrain: a static triangle mesh, for example from `shapes.height_field`.

        Args:
            mesh: Triangles, counter-clockwise from outside [m]; z is up.
            name: Name in this scene.
            pos: Position of its frame [m].

        Returns:
            Handle of the terrain.
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
        """Add a free rigid body, or a fixed one.

        In the model it is a robot with one body, "name/body", and a free joint, "name/free".

        Args:
            shapes: One or several shapes, as `kinema.Sphere(0.05)`, in the body's frame.
            name: Name in this scene; by default the kind of its only shape, or "body", numbered if taken.
            mass: Total mass of all colliding shapes (of all shapes, if none collides) [kg].
            density: Density of these shapes [kg/m^3], in place of a mass; 1000 by default. Overlaps count twice.
            pos: Position of its frame [m].
            rot: Orientation of its frame, unit quaternion (w, x, y, z).
            colour: Default colour of its shapes: a name ("orange"), "#rrggbb", or linear RGB(A).
            friction: Default coefficient of Coulomb friction of its shapes; None takes the scene's.
            restitution: Default coefficient of restitution of its shapes; None takes the scene's.
            fixed: Fix the body to the world; it then needs no mass.

        Returns:
            Handle of the body.

        Raises:
            ModelError: The name is taken, or a value is invalid.
            InputError: The shapes have no volume to give the body mass.
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
            robot: A `Robot` (from a reader or `kinema.shapes`), or the path of a .urdf or .xml (MJCF) file.
            name: Name in this scene; the robot's own by default, numbered if taken.
            pos: Position of its root frame [m].
            rot: Orientation of its root frame, unit quaternion (w, x, y, z).
            floating: Add a free joint to every root without joints (floating base). Roots without mass and without
                children stay fixed if other bodies have mass: the floor of an MJCF file.
            self_collision: Links of the robot collide with each other, except neighbours and excluded pairs. Links
                always collide with static bodies outside their tree, such as the floor of an MJCF file.
            prescribed: Names of prescribed joints, whose motion is `Control(motion=)`; see `Joint`.
            drive: A `Servo`, `VelocityServo` or `Motor` for every revolute and prismatic joint except mimic and
                prescribed joints, in place of existing actuators; or a dictionary by joint names or patterns, where the
                first match wins: `{"*_knee": kn.Servo(60, 2), "*": kn.Servo(40, 1)}`. Each new actuator has the name of
                its joint. The effort limits of joints also apply.
            reader: Options of the file reader, see `read_urdf` (roots, package_roots, meshes, repair) and
                `read_mjcf` (roots, ignore).

        Returns:
            Handle of the robot: its name, with `.joints`, `.bodies`, `.actuators`, and `["part"]`.

        Warns:
            LeftOutWarning: The reader left out something in the file; says what.

        Raises:
            ModelError: The file is refused, the name is taken, a value is not finite, a joint does not exist, or the
                reader has no such option.
        """
        if not isinstance(robot, Robot):
            robot = _read(robot, reader)
        elif reader:
            check_options(reader, ())  # no file to read: no options
        name = self._new_name(name, robot.name)
        pose = Pose(_finite("pos", pos, 3), _unit("rot", rot))
        robot = _prescribed(set_free(robot) if floating else robot, prescribed)
        robot = robot if drive is None else driven(robot, drive)
        self.robots.append(PlacedRobot(name, robot, pose, self_collision))
        return RobotHandle(name, self.robots)

    def _new_name(self, wanted: str | None, default: str) -> str:
        """A name that is unique in the scene."""
        parts: list[Any] = [*self.robots, *self.matter, *self.forces]
        taken = dict.fromkeys(one.name for one in parts)
        if wanted is None:
            return next(n for k in range(len(taken) + 1) if (n := default + (f"_{k}" if k else "")) not in taken)
        if not isinstance(wanted, str) or not wanted or any(c in wanted for c in "/*?"):
            raise ModelError("the name is not usable", got=repr(wanted), expected="a non-empty string without / * ?")
        if wanted in taken:
            raise ModelError(
                f"the name {wanted!r} is taken", expected="a new one", fix=f"not one of {listed([*taken])}"
            )
        return str(wanted)

    def _find_body(self, name: str, why: str) -> tuple[int, str]:
        """Index of a robot and name of its body, from "robot/body", or "robot" if it has only one body."""
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
        """Add a deformable solid: a tetrahedral mesh.

        Args:
            mesh: Rest configuration, from `kinema.shapes` or `kinema.read_msh`.
            name: Name in this scene; "solid" by default, numbered if taken.
            material: Density, elasticity, damping, activation.
            skin: Contact parameters of its vertices; None: no contact.
            pos: Position of the mesh frame [m].
            rot: Orientation of the mesh frame, unit quaternion (w, x, y, z).
            velocity: Initial velocity [m/s], shape (3,) or (vertices, 3).

        Returns:
            Handle of the solid.

        Raises:
            ModelError: The name is taken, or a value is invalid.
        """
        _of_kind("the mesh of a solid", mesh, Tets)
        _of_kind("the material of a solid", material or Solid(), Solid)
        return self._add_matter(
            SOLID,
            name,
            mesh.vertices,
            mesh.corners,
            material or Solid(),
            Springs(),
            0.0,
            skin,
            Start(pos, rot, velocity),
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
            mesh: Rest configuration; its dihedral angles are the rest angles.
            name: Name in this scene; "cloth" by default, numbered if taken.
            material: Density, elasticity, damping, bending, drag and lift.
            skin: Contact parameters of its vertices; None: no contact.
            pos: Position of the mesh frame [m].
            rot: Orientation of the mesh frame, unit quaternion (w, x, y, z).
            velocity: Initial velocity [m/s], shape (3,) or (vertices, 3).

        Returns:
            Handle of the cloth.

        Raises:
            ModelError: The name is taken, or a value is invalid.
        """
        _of_kind("the mesh of a cloth", mesh, Mesh)
        _of_kind("the material of a cloth", material or Cloth(), Cloth)
        return self._add_matter(
            CLOTH, name, mesh.vertices, mesh.faces, material or Cloth(), Springs(), 0.0, skin, Start(pos, rot, velocity)
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
            name: Name in this scene; "particles" by default, numbered if taken.
            mass: Mass of each particle [kg], a number or shape (n,).
            springs: Springs between the particles.
            skin: Contact parameters of the particles; None: no contact.
            pos: Position of their frame [m].
            rot: Orientation of their frame, unit quaternion (w, x, y, z).
            velocity: Initial velocity [m/s], shape (3,) or (n, 3).

        Returns:
            Handle of the particles.

        Raises:
            ModelError: The name is taken, or a value is invalid.
        """
        _of_kind("springs", springs or Springs(), Springs)
        none = np.zeros((0, 0), np.int32)
        return self._add_matter(
            PARTICLES, name, vertices, none, None, springs or Springs(), mass, skin, Start(pos, rot, velocity)
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
        at: Start,
    ) -> MatterHandle:
        name = self._new_name(name, kind)
        rest = _array(f"vertices of {name!r}", vertices)
        if rest.ndim != 2 or rest.shape[1] != 3 or not len(rest):
            raise ModelError(f"vertices of {name!r} have the wrong shape", got=rest.shape, expected="(vertices, 3)")
        if kind == PARTICLES and not np.isfinite(rest).all():  # compile checks meshes
            first = int(np.argmin(np.isfinite(rest).all(1)))
            raise ModelError(f"vertex {first} of {name!r} is not finite", got=rest[first])
        if skin is not None:
            _of_kind("a skin", skin, Skin)
        pose = Pose(_finite("pos", at.pos, 3), _unit("rot", at.rot))
        given = {"velocity": (at.velocity, rest.shape), "mass": (mass, (len(rest),))}
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
        """Attach vertices of soft matter to a body, or to the world.

        Forces on attached vertices act on the body. Attached vertices have no mass; only the body's mass counts.

        Args:
            matter: Handle or name of soft matter in the scene.
            vertices: Vertex indices, or a boolean mask.
            to: A body, "robot/body", or a robot with one body; None: the world.

        Raises:
            ModelError: The soft matter, a vertex or the body does not exist.
        """
        one = next((m for m in self.matter if m.name == matter), None)
        if one is None:
            names = [m.name for m in self.matter]
            expected, fix = listed(names, "a scene with soft matter"), closest(str(matter), names)
            raise ModelError(f"there is no soft object {matter!r} to attach", expected=expected, fix=fix)
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
        """Add a user-defined force: a `@func` of `kinema.lang`, evaluated for every element it acts on.

        The names of its arguments select its inputs, in any order, all in world axes:

        - `particles`: position x [m] and velocity v [m/s]; it returns the force [N], a vec3.
        - `joints`, revolute or prismatic: q [rad, m] and v [rad/s, m/s]; it returns a generalised force, a
          Float [N m, N].
        - `bodies`, or sites on them: the position x [m] and the velocity v [m/s] of its origin, its rotation
          R (mat33, from its axes to the world's) and its angular velocity w [rad/s]; it returns the force [N] at that
          origin, a vec3, or a `kinema.math.Force(moment, force)` about it.
        - `between` two particles, bodies or sites: d [m], from the first to the second, and u [m/s], the velocity of
          the second relative to the first, for bodies also R1, w1, R2 and w2; it returns the force on the first, as
          above. The opposite acts on the second: a vec3 at its own origin, a `Force` about the point of the first.
        - `time` [s]: that of the state, see `State.time`.
        - All other arguments are parameters in `params`: Float, or the type of their annotation (vec3, ...). They are
          learnable as "name/argument", those of one element as "name/element/argument", see `Model.parameters`.

        The force on joints and bodies is explicit: evaluated at the start of a step (with "rk4" in each stage, at its
        time; after an impact within the step, at the impact). The force on particles is treated like any other: at the
        start of explicit steps, at the end of implicit ones, which are made for damping forces and forces with an
        energy, and raise where they do not converge. Time step bounds and their warnings ignore this force: a stiff
        or strongly damping force needs a short step (or `substeps`) where it is explicit.

        Args:
            law: The force function.
            name: Name in this scene; the function's name by default, numbered if taken.
            energy: In place of a force, a potential energy [J] of positions (x, q, R, d, R1, R2), time and parameters:
                forces and moments are its negative derivatives.
            particles: Soft matter, by handle, name or pattern, or a list of them.
            joints: Joints, or robots for all their joints, likewise.
            bodies: Moving bodies, robots for all their bodies, or sites, likewise.
            between: Two ends, each a body or a site, or a list of them (of equal lengths, or one); or both
                soft matter. To connect a body to particles, `attach` a particle to it.
            vertices: Indices or a mask for a single entry of `particles`; for `between` soft matter, pairs of indices,
                shape (n, 2).
            params: Parameters by argument name: one value for all elements, or one per element.

        Returns:
            Handle of the force.

        Gradients:
            Exact, to the state, the parameters and the time.

        Raises:
            ModelError: A target does not exist, the function has the wrong arguments or return type, or a parameter
                is missing, unknown or invalid.
            KernelError: The function uses Python outside the language; says where.
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
        """Add a site, a frame on a body: a sensor mount, a tool.

        Args:
            body: "robot/body", the robot's name in this scene and the body's; or a robot with one body.
            name: Name of the site, unique in the robot.
            pos: Position in the body's frame [m].
            rot: Orientation in the body's frame, unit quaternion (w, x, y, z).

        Returns:
            Handle of the site, "robot/name".

        Raises:
            ModelError: The body does not exist, the name is taken, or a value is invalid.
        """
        at, part = self._find_body(body, "for a site")
        owner, bodies = self.robots[at].name, self.robots[at].robot.bodies
        taken = [site.name for one in bodies for site in one.sites]
        if name in taken or not name:
            what, where = f"the site name {name!r} is empty or taken", f"robot {owner!r}"
            raise ModelError(what, where=where, expected=f"a new name; has {taken}")
        site = Site(name, Pose(_finite("pos", pos, 3), _unit("rot", rot)))
        changed = tuple(replace(b, sites=(*b.sites, site)) if b.name == part else b for b in bodies)
        self.robots[at] = replace(self.robots[at], robot=replace(self.robots[at].robot, bodies=changed))
        return Handle(f"{owner}/{name}")


def reader_of(path: str) -> Callable[..., Robot]:
    """The reader of a robot file, by its suffix.

    Raises:
        ModelError: The suffix is unknown.
    """
    if path.endswith(".urdf"):
        return read_urdf
    if path.endswith((".xml", ".mjcf")):
        return read_mjcf
    raise ModelError(f"unknown file type: {path!r}", expected="a .urdf file, or an .xml file in MJCF")


def options_of(read: Callable[..., Robot]) -> list[str]:
    """Names of the reader options that `add_robot` passes on."""
    keywords = [n for n, p in inspect.signature(read).parameters.items() if p.kind is p.KEYWORD_ONLY]
    return [name for name in keywords if name != "floating"]


def check_options(given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise ModelError for options that the reader does not have."""
    own = [n for n, p in inspect.signature(Scene.add_robot).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for name in given:
        if name not in known:
            expected = ", ".join(own) + (f"; of the reader: {', '.join(known)}" if known else "")
            what = f"robots have no option {name!r}"
            raise ModelError(what, expected=expected, fix=closest(name, [*own, *known]))


def _read(given: object, options: Mapping[str, Any]) -> Robot:
    if not isinstance(given, str | os.PathLike):
        expected = "a Robot, or the path of a .urdf or .xml file"
        raise ModelError("not a robot", got=type(given).__name__, expected=expected)
    path = os.fspath(given)
    read = reader_of(path)
    check_options(options, options_of(read))
    return read(path, **options)


def _with_friction(contact: Contact, friction: float | None) -> Contact:
    """The contact with this friction; raises if the contact sets another one."""
    if friction is None or friction == contact.friction:
        return contact
    if contact.friction != Contact.friction:
        got = f"friction {friction} and contact.friction {contact.friction}"
        raise ModelError("friction is given twice", got=got, fix="give one of them")
    return replace(contact, friction=friction)


def set_free(robot: Robot) -> Robot:
    """The robot with a free joint at roots without joints, except massless, childless ones beside bodies with mass."""
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


def _of_kind(what: str, given: object, kind: type) -> None:
    if not isinstance(given, kind):
        raise ModelError(f"{what} is of the wrong type", got=type(given).__name__, expected=kind.__name__)


def _array(what: str, given: Any) -> np.ndarray:
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise ModelError(f"{what}: not numeric", got=repr(given)[:80]) from None


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
        raise ModelError(f"{name} is not a unit quaternion (w, x, y, z)", got=f"length {length:.6g}", fix=fix)
    return tuple(x / length for x in values)
