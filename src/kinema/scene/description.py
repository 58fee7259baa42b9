"""What a robot is, in words: bodies, joints, shapes, actuators. Readers and users make it, `compile` makes it arrays.

Frames: every body has one; its pose is given in its parent's frame for joint coordinates of zero. The joints of a body
move it relative to its parent, the first one first; each turns about (or slides along) an axis through an anchor, both
given in the body's frame. Units: m, kg, s, rad. Quaternions (w, x, y, z).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kinema.errors import ModelError

Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]

FIXED, REVOLUTE, PRISMATIC, BALL, FREE = "fixed", "revolute", "prismatic", "ball", "free"
PLANE, SPHERE, CAPSULE, CYLINDER, BOX, MESH, TERRAIN = (
    "plane",
    "sphere",
    "capsule",
    "cylinder",
    "box",
    "mesh",
    "terrain",
)


def rotation_matrix(q: Sequence[float] | np.ndarray) -> np.ndarray:
    """The matrix of a unit quaternion (w, x, y, z)."""
    w, x, y, z = np.asarray(q, float) / np.linalg.norm(q)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


@dataclass(frozen=True)
class Pose:
    """Position [m] and unit quaternion of a frame in another."""

    position: Vector = (0.0, 0.0, 0.0)
    rotation: Quaternion = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class MassProperties:
    """Mass [kg], centre of mass [m] in the body's frame, inertia about it along the body's axes [kg m^2].

    The inertia is (xx, xy, xz, yy, yz, zz), with xy the entry of the matrix (minus the product of inertia).
    """

    mass: float
    com: Vector = (0.0, 0.0, 0.0)
    inertia: tuple[float, float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles: vertices [m], shape (n, 3), float64; faces, shape (m, 3), int32, counter-clockwise from outside."""

    vertices: np.ndarray
    faces: np.ndarray


@dataclass(frozen=True, eq=False)
class Tets:
    """Tetrahedra: vertices [m], shape (n, 3), float64; corners, shape (m, 4), int32, with positive volume."""

    vertices: np.ndarray
    corners: np.ndarray


@dataclass(frozen=True)
class Shape:
    """A shape on a body.

    Attributes:
        kind: plane (through the origin, outside is +z) · sphere (radius) · capsule (radius, half length along z,
            caps not counted) · cylinder (radius, half length along z) · box (half sizes x, y, z) · mesh (its convex
            hull collides, all of it is drawn) · terrain (all triangles collide; static only).
        size: Numbers of the kind, in the order above [m].
        pose: In the body's frame.
        mesh: Triangles of a mesh or terrain, scaled.
        collides: Whether it takes part in contact.
        visible: Whether it is drawn.
        friction: Coefficient of Coulomb friction; None takes the scene's.
        restitution: Coefficient of restitution; None takes the scene's.
        group: Bits of the groups it belongs to.
        mask: Bits of the groups it collides with; two shapes meet if each one's mask has a bit of the other's group.
        colour: Linear RGBA; None takes one from a palette.
    """

    kind: str
    size: tuple[float, ...] = ()
    pose: Pose = Pose()
    name: str = ""
    mesh: Mesh | None = None
    collides: bool = True
    visible: bool = True
    friction: float | None = None
    restitution: float | None = None
    group: int = 1
    mask: int = 0xFFFF
    colour: tuple[float, float, float, float] | None = None

    def __post_init__(self) -> None:
        _expect_pose(f"{self.kind} {self.name!r}" if self.name else f"a {self.kind}", self.pose)


@dataclass(frozen=True)
class Mimic:
    """q = multiplier * q of another joint + offset."""

    joint: str
    multiplier: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class Joint:
    """A joint between a body and its parent (or the body's previous joint).

    Attributes:
        kind: fixed · revolute (also continuous: no limits) · prismatic · ball · free (with the world as parent).
        axis: Unit vector in the body's frame; for revolute and prismatic.
        anchor: Point of the axis in the body's frame [m]; for revolute and ball.
        lower: Lower limit [rad or m], -inf for none.
        upper: Upper limit; of a ball joint the largest angle of its turn [rad], about whatever axis.
        effort: Largest torque or force of the actuators [N m or N].
        velocity: Largest speed [rad/s or m/s]; noted, not enforced.
        armature: Inertia of the drive, added to the diagonal of the mass matrix [kg m^2 or kg].
        damping: [N m s/rad or N s/m]
        stiffness: Of a spring [N m/rad or N/m].
        rest: Coordinate at which the spring is relaxed.
        friction: Dry friction [N m or N].
        mimic: Follows another joint.
        prescribed: Moves as `simulate(motion=)` says, whatever pushes: forces, limits, springs, friction and actuators
            do nothing to it. What it carries or hits feels it. Functions other than `simulate` and `step` take it for
            a joint like others.
    """

    name: str
    kind: str
    axis: Vector = (0.0, 0.0, 1.0)
    anchor: Vector = (0.0, 0.0, 0.0)
    lower: float = -math.inf
    upper: float = math.inf
    effort: float = math.inf
    velocity: float = math.inf
    armature: float = 0.0
    damping: float = 0.0
    stiffness: float = 0.0
    rest: float = 0.0
    friction: float = 0.0
    mimic: Mimic | None = None
    prescribed: bool = False


@dataclass(frozen=True)
class Site:
    """A frame on a body whose motion is of interest: the place of a sensor, a tool; its pose is in the body's frame."""

    name: str
    pose: Pose = Pose()

    def __post_init__(self) -> None:
        _expect_pose(f"site {self.name!r}", self.pose)


@dataclass(frozen=True)
class Body:
    """A rigid body; `parent` is the name of another body or None for the world, without joints it is fixed to it."""

    name: str
    parent: str | None = None
    pose: Pose = Pose()
    joints: tuple[Joint, ...] = ()
    mass: MassProperties | None = None
    shapes: tuple[Shape, ...] = ()
    sites: tuple[Site, ...] = ()

    def __post_init__(self) -> None:
        owner = f"body {self.name!r}"
        _expect_pose(owner, self.pose)
        if self.mass is not None and not isinstance(self.mass, MassProperties):
            fix = "kinema.MassProperties(mass, com, inertia), or Scene.add_body(shape, mass=...)"
            raise ModelError(f"the mass of {owner} has no centre and no inertia", got=repr(self.mass), fix=fix)
        for name, kind in (("joints", Joint), ("shapes", Shape), ("sites", Site)):
            object.__setattr__(self, name, _parts(f"{name} of {owner}", getattr(self, name), kind))


@dataclass(frozen=True)
class Actuator:
    """What a control drives.

    Attributes:
        joint: The joint it acts on (revolute or prismatic).
        kind: torque (gear * u) · position (kp (u - q) - kd v) · velocity (kd (u - v)).
        gear: [-]
        kp: [N m/rad or N/m]
        kd: [N m s/rad or N s/m]
        lower: Smallest control.
        upper: Largest control.
        force: Largest torque or force [N m or N].
    """

    name: str
    joint: str
    kind: str = "torque"
    gear: float = 1.0
    kp: float = 0.0
    kd: float = 0.0
    lower: float = -math.inf
    upper: float = math.inf
    force: float = math.inf


@dataclass(frozen=True)
class Closure:
    """Closes a loop: frames on two bodies (None: the world) that coincide, in position (connect) or fully (weld)."""

    name: str
    kind: str
    first: str | None
    second: str | None
    first_pose: Pose = Pose()
    second_pose: Pose = Pose()

    def __post_init__(self) -> None:
        for pose in (self.first_pose, self.second_pose):
            _expect_pose(f"loop {self.name!r}", pose)


@dataclass(frozen=True)
class Robot:
    """A tree (or several) of bodies.

    Attributes:
        bodies: In any order; they are kept with parents before children.
        excluded: Pairs of body names that never collide, beyond neighbours.
        source: File it came from, for messages.
        notes: What the reader left out, one line each.
    """

    name: str
    bodies: tuple[Body, ...]
    actuators: tuple[Actuator, ...] = ()
    closures: tuple[Closure, ...] = ()
    excluded: frozenset[frozenset[str]] = frozenset()
    source: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        bodies = _parts(f"bodies of robot {self.name!r}", self.bodies, Body)
        object.__setattr__(self, "bodies", _parents_first(bodies))
        for name, kind in (("actuators", Actuator), ("closures", Closure)):
            object.__setattr__(self, name, _parts(f"{name} of robot {self.name!r}", getattr(self, name), kind))


@dataclass(frozen=True)
class PlacedRobot:
    """A robot in the scene: its name there, the pose of its roots [m, -], and whether its own links collide."""

    name: str
    robot: Robot
    pose: Pose = Pose()
    self_collision: bool = False


def _parents_first(bodies: tuple[Body, ...]) -> tuple[Body, ...]:
    """The bodies in their order, but children behind their parents; those that hang on each other in a circle last."""
    names = {body.name for body in bodies}
    placed: dict[str, Body] = {}
    waiting = list(bodies)
    ordered: list[Body] = []
    while waiting:
        ready, later = [], []
        for body in waiting:
            if body.parent is None or body.parent in placed or body.parent not in names:
                placed[body.name] = body
                ready.append(body)
            else:
                later.append(body)
        ordered += ready or later
        waiting = later if ready else []
    return tuple(ordered)


def _expect_pose(owner: str, given: object) -> None:
    if not isinstance(given, Pose):
        fix = f"kinema.Pose({given!r})" if isinstance(given, tuple | list) and len(given) == 3 else None
        raise ModelError(f"the pose of {owner} is no Pose", got=repr(given), expected="a kinema.Pose", fix=fix)


def _parts(what: str, given: Iterable[Any], kind: type) -> tuple[Any, ...]:
    """Parts as a tuple."""
    found = (given,) if isinstance(given, str | kind) or not isinstance(given, Iterable) else tuple(given)
    wrong = [one for one in found if not isinstance(one, kind)]
    if wrong or isinstance(given, kind):
        got, fix = repr(given)[:80], "put it in brackets: (one,)" if isinstance(given, kind) else None
        raise ModelError(f"the {what} are no tuple of {kind.__name__}", got=got, fix=fix)
    return found
