"""Robot description: bodies, joints, shapes, actuators. Readers and users build it, `compile` turns it into arrays.

Frames: every body has one; its pose is given in its parent's frame at zero joint coordinates. The joints of a body
move it relative to its parent, in order; each rotates about (or slides along) an axis through an anchor, both given in
the body's frame. Units: m, kg, s, rad. Quaternions (w, x, y, z).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kinema.errors import ModelError
from kinema.scene.activation import Activation, Muscle
from kinema.scene.keyframes import Keyframe
from kinema.scene.softness import ContactPair, ContactSurface, FileOptions, Softness
from kinema.scene.tendons import Tendon

Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]

FIXED, REVOLUTE, PRISMATIC, BALL, FREE = "fixed", "revolute", "prismatic", "ball", "free"
PLANE, SPHERE, CAPSULE, CYLINDER, BOX, ELLIPSOID, MESH, TERRAIN = (
    "plane",
    "sphere",
    "capsule",
    "cylinder",
    "box",
    "ellipsoid",
    "mesh",
    "terrain",
)


EVERY_GROUP = -1  # a mask with all bits


def rotation_matrix(q: Sequence[float] | np.ndarray) -> np.ndarray:
    """The rotation matrix of a quaternion (w, x, y, z) of any length."""
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
    """Position [m] and orientation, a unit quaternion (w, x, y, z), of a frame in another."""

    position: Vector = (0.0, 0.0, 0.0)
    rotation: Quaternion = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class MassProperties:
    """Mass [kg], centre of mass [m] in the body's frame, inertia about it in the body's axes [kg m^2].

    The inertia is (xx, xy, xz, yy, yz, zz); xy is the matrix entry (minus the product of inertia).
    """

    mass: float
    com: Vector = (0.0, 0.0, 0.0)
    inertia: tuple[float, float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Mesh:
    """A triangle mesh.

    Attributes:
        vertices: [m], shape (n, 3), float64.
        faces: Vertex indices, counter-clockwise from outside, shape (m, 3), int32.
    """

    vertices: np.ndarray
    faces: np.ndarray


@dataclass(frozen=True, eq=False)
class Tets:
    """A tetrahedral mesh.

    Attributes:
        vertices: [m], shape (n, 3), float64.
        corners: Vertex indices of tetrahedra with positive volume, shape (m, 4), int32.
    """

    vertices: np.ndarray
    corners: np.ndarray


@dataclass(frozen=True)
class Shape:
    """A shape on a body.

    Attributes:
        kind: plane (through the origin, outside is +z) · sphere (radius) · capsule (radius, half length along z
            without the caps) · cylinder (radius, half length along z) · box (half sizes x, y, z) · ellipsoid (half axes
            x, y, z) · mesh (its convex hull collides, all of it is drawn) · terrain (all triangles collide; static
            only).
        size: Dimensions of the kind, in the order above [m].
        pose: Pose in the body's frame.
        name: Name within the body; its index by default.
        mesh: Triangles of a mesh or terrain, scaled.
        collides: Whether it collides.
        visible: Whether it is rendered.
        friction: Coefficient of Coulomb friction; None takes the scene's.
        restitution: Coefficient of restitution; None takes the scene's.
        group: Bits of its collision groups.
        mask: Bits of the groups it collides with, -1 for all; two shapes collide if each mask shares a bit with the
            other's group.
        colour: Linear RGBA; None takes one from a palette.
        surface: Further contact parameters in the law "convex"; None takes the scene's.
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
    mask: int = EVERY_GROUP
    colour: tuple[float, float, float, float] | None = None
    surface: ContactSurface | None = None

    def __post_init__(self) -> None:
        _expect_pose(f"{self.kind} {self.name!r}" if self.name else f"a {self.kind}", self.pose)


@dataclass(frozen=True)
class Mimic:
    """A mimic constraint: q = multiplier * x + offset, with the coordinate x of another joint; or a polynomial of x.

    Attributes:
        joint: Name of the other joint.
        multiplier: [-], or the ratio of the units.
        offset: [rad or m]
        softness: In the law "convex"; None takes the scene's.
        higher: Coefficients of x^2, x^3 and x^4, added to the linear part.
    """

    joint: str
    multiplier: float = 1.0
    offset: float = 0.0
    softness: Softness | None = None
    higher: Vector = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Joint:
    """A joint between a body and its parent (or the body's previous joint).

    Attributes:
        name: Name within the robot.
        kind: fixed · revolute (continuous without limits) · prismatic · ball · free (with the world as parent).
        axis: Unit vector in the body's frame; revolute and prismatic joints only.
        anchor: Point on the axis, or centre of a ball joint, in the body's frame [m].
        lower: Lower limit [rad or m], -inf for none.
        upper: Upper limit [rad or m]; for a ball joint the largest rotation angle, about any axis.
        effort: Torque or force limit of the actuators [N m or N].
        velocity: Speed limit [rad/s or m/s]; stored, not enforced.
        armature: Rotor inertia, added to the diagonal of the mass matrix [kg m^2 or kg].
        damping: [N m s/rad or N s/m]
        stiffness: Stiffness of the joint spring [N m/rad or N/m].
        rest: Rest coordinate of the spring [rad or m].
        friction: Dry friction [N m or N].
        mimic: Mimic constraint to another joint.
        prescribed: Prescribed joint: its motion is `simulate(motion=)`. Forces, limits, springs, friction and actuators
            have no effect on it; it acts on the bodies that it carries or hits. Functions other than `simulate` and
            `step` treat it as an ordinary joint.
        limit_softness: Of its limits, in the law "convex"; None takes the scene's.
        limit_margin: Its limits act from this distance on, in the law "convex" [rad or m].
        friction_softness: Of its dry friction, in the law "convex"; None takes the scene's.
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
    limit_softness: Softness | None = None
    limit_margin: float = 0.0
    friction_softness: Softness | None = None


@dataclass(frozen=True)
class Site:
    """A frame on a body, with its pose in the body's frame: a sensor mount, a tool."""

    name: str
    pose: Pose = Pose()

    def __post_init__(self) -> None:
        _expect_pose(f"site {self.name!r}", self.pose)


@dataclass(frozen=True)
class Drag:
    """Drag of a body in a fluid: that of a box around its centre of mass, see `kinema.dynamics.drag`.

    Attributes:
        box: Sides of the box [m].
        rotation: Axes of the box in those of the body, a unit quaternion (w, x, y, z).
        density: Of the fluid [kg/m^3].
        viscosity: Of the fluid [Pa s].
        wind: Velocity of the fluid [m/s].
    """

    box: Vector
    rotation: Quaternion = (1.0, 0.0, 0.0, 0.0)
    density: float = 0.0
    viscosity: float = 0.0
    wind: Vector = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Body:
    """A rigid body.

    Attributes:
        name: Name within the robot.
        parent: Name of the parent body; None for the world.
        pose: Pose in the parent's frame at zero joint coordinates.
        joints: Joints to the parent, in order; a body without joints is fixed to its parent.
        mass: Mass, centre of mass and inertia; None for none.
        shapes: Shapes for collision and rendering.
        sites: Frames on the body.
        gravcomp: Share of its weight that a force at its centre of mass compensates: 0 for none, 1 for all.
        drag: Drag in a fluid; None for none.
    """

    name: str
    parent: str | None = None
    pose: Pose = Pose()
    joints: tuple[Joint, ...] = ()
    mass: MassProperties | None = None
    shapes: tuple[Shape, ...] = ()
    sites: tuple[Site, ...] = ()
    gravcomp: float = 0.0
    drag: Drag | None = None

    def __post_init__(self) -> None:
        owner = f"body {self.name!r}"
        _expect_pose(owner, self.pose)
        if self.mass is not None and not isinstance(self.mass, MassProperties):
            fix = "kinema.MassProperties(mass, com, inertia), or Scene.add_body(shape, mass=...)"
            raise ModelError(f"the mass of {owner} is not a MassProperties", got=repr(self.mass), fix=fix)
        for name, kind in (("joints", Joint), ("shapes", Shape), ("sites", Site)):
            object.__setattr__(self, name, _parts(f"{name} of {owner}", getattr(self, name), kind))


@dataclass(frozen=True)
class Actuator:
    """An actuator: turns a control u into a force along a joint or a tendon, or into a wrench at a site.

    Attributes:
        name: Name within the robot.
        joint: Name of the joint it drives (revolute or prismatic); empty if it drives a tendon or a site.
        kind: torque (gear * u) · position (kp (u - q) - kd v) · velocity (kd (u - v)) · general: with the length
            l = gear * (q + `offset`) of a joint or gear * (length of a tendon), and its rate l', the force
            (gain[0] + gain[1] l + gain[2] l') u + bias[0] + bias[1] l + bias[2] l' along l. At a site, l = 0, and the
            force scales `wrench`.
        gear: [-]
        kp: [N m/rad or N/m]
        kd: [N m s/rad or N s/m]
        lower: Lower bound of the control.
        upper: Upper bound of the control.
        force: Torque or force limit [N m or N]; of the kind "general" the upper bound of the force along l.
        least_force: Of the kind "general": lower bound of the force along l; None for -force.
        gain: Of the kind "general".
        bias: Of the kind "general".
        offset: Added to the coordinate of a joint, of the kind "general" [rad or m].
        tendon: Name of the tendon it pulls, of the kind "general".
        site: Name of the site it acts at, of the kind "general".
        wrench: Moment [N m] and force [N] at the site for a unit of force along l, in the axes of the site.
        activation: Of the kind "general": a state that follows the control and takes its place in the force.
        muscle: Of the kind "general": the force is that of a muscle, without gain and bias.
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
    least_force: float | None = None
    gain: Vector = (1.0, 0.0, 0.0)
    bias: Vector = (0.0, 0.0, 0.0)
    offset: float = 0.0
    tendon: str = ""
    site: str = ""
    wrench: tuple[float, ...] = ()
    activation: Activation | None = None
    muscle: Muscle | None = None


@dataclass(frozen=True)
class Closure:
    """A loop closure: frames on two bodies that coincide in position (connect) or in position and orientation (weld).

    Attributes:
        name: Name within the robot.
        kind: connect · weld.
        first: Name of a body; None for the world.
        second: Name of the other body; None for the world.
        first_pose: Frame on the first body.
        second_pose: Frame on the second body.
        softness: In the law "convex"; None takes the scene's.
        torque_scale: Weight of the orientation of a weld against its position, in the law "convex" [m].
    """

    name: str
    kind: str
    first: str | None
    second: str | None
    first_pose: Pose = Pose()
    second_pose: Pose = Pose()
    softness: Softness | None = None
    torque_scale: float = 1.0

    def __post_init__(self) -> None:
        for pose in (self.first_pose, self.second_pose):
            _expect_pose(f"loop {self.name!r}", pose)


@dataclass(frozen=True)
class Robot:
    """A robot: one or several kinematic trees, with actuators and loop closures.

    Attributes:
        name: Default name in a scene.
        bodies: In any order; stored with parents before children.
        actuators: Actuators, in the order of the controls.
        closures: Loop closures.
        excluded: Pairs of body names that never collide, besides neighbours.
        source: Source file, for messages.
        notes: Features of the file that the reader left out, one line each.
        tendons: Tendons.
        keyframes: Named states.
        pairs: Contact parameters of pairs of shapes, in the law "convex".
        options: Options of the simulation in its file; None if it has none.
    """

    name: str
    bodies: tuple[Body, ...]
    actuators: tuple[Actuator, ...] = ()
    closures: tuple[Closure, ...] = ()
    excluded: frozenset[frozenset[str]] = frozenset()
    source: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)
    tendons: tuple[Tendon, ...] = ()
    keyframes: tuple[Keyframe, ...] = ()
    pairs: tuple[ContactPair, ...] = ()
    options: FileOptions | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        bodies = _parts(f"bodies of robot {self.name!r}", self.bodies, Body)
        object.__setattr__(self, "bodies", _parents_first(bodies))
        for name, kind in (
            ("actuators", Actuator),
            ("closures", Closure),
            ("tendons", Tendon),
            ("keyframes", Keyframe),
            ("pairs", ContactPair),
        ):
            object.__setattr__(self, name, _parts(f"{name} of robot {self.name!r}", getattr(self, name), kind))


@dataclass(frozen=True)
class PlacedRobot:
    """A robot in the scene: its name there, the pose of its root frame [m, -], and whether its own links collide."""

    name: str
    robot: Robot
    pose: Pose = Pose()
    self_collision: bool = False


def _parents_first(bodies: tuple[Body, ...]) -> tuple[Body, ...]:
    """The bodies in topological order, otherwise as given; bodies in a cycle last."""
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
        raise ModelError(f"the pose of {owner} is not a Pose", got=repr(given), expected="a kinema.Pose", fix=fix)


def _parts(what: str, given: Iterable[Any], kind: type) -> tuple[Any, ...]:
    """The parts as a tuple."""
    found = (given,) if isinstance(given, str | kind) or not isinstance(given, Iterable) else tuple(given)
    wrong = [one for one in found if not isinstance(one, kind)]
    if wrong or isinstance(given, kind):
        got, fix = repr(given)[:80], "put it in brackets: (one,)" if isinstance(given, kind) else None
        raise ModelError(f"the {what} are not a tuple of {kind.__name__}", got=got, fix=fix)
    return found
