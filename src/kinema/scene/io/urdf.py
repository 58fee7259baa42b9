"""Robots from URDF files: reads what the simulator supports, and notes the rest unless it may change the motion.

The reader notes what it ignores, assumes and repairs; it refuses what would make another robot of the file's. With
`strict` it refuses everything that URDF does not allow. It takes colours as linear.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from kinema.errors import InputError, ModelError
from kinema.scene import description
from kinema.scene.description import Actuator, Body, Joint, MassProperties, Mesh, Mimic, Pose, Robot, Shape, Vector
from kinema.scene.io.files import Places, short, warn_of
from kinema.scene.io.inertia_check import physical_inertia
from kinema.scene.io.meshes import FORMATS, read_mesh, scaled
from kinema.scene.io.poses import composed, rpy_quaternion, turned_inertia
from kinema.scene.io.srdf import read_disabled_collisions
from kinema.scene.io.urdf_words import RULES, check_words
from kinema.scene.io.xml import Element, close_to, number_in, read_xml
from kinema.scene.joint_types import RANGE, SINGLE, TYPES
from kinema.scene.shape_kinds import SHAPE_KINDS

MOST_VERTICES = 20_000_000  # of all meshes of a robot together, so that repeated meshes cannot fill the memory
NO_INERTIA = 1e-15  # m^2, squared radius of gyration below which an inertia is a rounding error of zero
SHORTEST_AXIS = 1e-6  # length below which an axis is zero

KINDS = {word: one.word for one in TYPES.values() for word in one.urdf}
_PRIMITIVES = {one.urdf: one.word for one in SHAPE_KINDS.values() if one.urdf}

OTHER_FORMATS = {
    "mujoco": "read it with read_mjcf",
    "sdf": "SDF is not read; export the model as URDF or MJCF",
    "html": "the file is a web page: download the model itself",
    "collada": "a mesh, not a robot: name it in a <mesh> of a URDF file",
}
"""What to do with files of other formats, by their outermost element."""


def read_urdf(
    path: str | os.PathLike[str],
    *,
    roots: Iterable[str | os.PathLike[str]] = (),
    package_roots: Mapping[str, str | os.PathLike[str]] | None = None,
    meshes: str = "required",
    floating: bool = False,
    repair: bool = False,
    strict: bool = False,
    srdf: str | os.PathLike[str] | None = None,
) -> Robot:
    """Read a robot from a URDF file.

    Body frames are link frames, so a joint's anchor is the body's origin and the pose of the body is the joint origin.
    Fixed joints become bodies without joints. Each joint with one degree of freedom, except mimic joints, gets a torque
    actuator of the same name, limited to the joint's effort.

    Args:
        path: The file.
        roots: Folders, in addition to the file's own, from which the model may read files.
        package_roots: Folder of each package in `package://name/...`.
        meshes: "required" raises for a missing or unsupported mesh file of a collision; "skip" leaves its shape out.
            The shape of a visual is left out in both cases.
        floating: Whether the root link has a free joint, named "root"; otherwise it is fixed to the world.
        repair: Whether to replace a non-physical inertia by the nearest physical one, and note it. Round-off, principal
            moments below 1e-6 of the largest that violate no more than this, is always repaired.
        strict: Whether to raise for everything that URDF does not allow, where the reader otherwise adds a note:
            unknown words, missing limits, a missing name, round-off in inertias, missing meshes of visuals.
        srdf: An SRDF file, whose `<disable_collisions>` exclude pairs of links from self-collision.

    Returns:
        The robot, bodies in depth-first order, with notes on everything left out.

    Warns:
        LeftOutWarning: Lists the notes, if any.

    Raises:
        ModelError: The file is malformed, inconsistent, non-physical or refers to files outside its folders; says
            where.
        InputError: An argument is wrong.
    """
    if meshes not in ("required", "skip"):
        raise InputError("meshes has an unknown value", got=repr(meshes), expected="'required' or 'skip'")
    root = read_xml(path)
    if root.tag != "robot":
        expected = "<robot> as the outermost element"
        fix = OTHER_FORMATS.get(root.tag.lower(), "name a URDF file")
        raise root.error("not a URDF file", got=f"<{short(root.tag)[1:-1]}>", expected=expected, fix=fix)
    options = _Options(meshes == "skip", repair, strict)
    reader = _Reader(Places.of(path, roots, package_roots), os.path.dirname(os.fspath(path)), options)
    check_words(root, reader.ignore, strict)
    robot = reader.robot(root, floating)
    if srdf is not None:
        robot = replace(robot, excluded=read_disabled_collisions(srdf, (body.name for body in robot.bodies)))
    warn_of(robot.notes, robot.source)
    return robot


@dataclass(frozen=True)
class _Options:
    """Options of `read_urdf`."""

    skip_meshes: bool
    repair: bool
    strict: bool


class _Reader:
    """Reader of one file, with its allowed folders, meshes and notes."""

    def __init__(self, places: Places, shown_folder: str, options: _Options) -> None:
        self.places = places
        self.shown_folder = shown_folder
        self.skip_meshes, self.repair, self.strict = options.skip_meshes, options.repair, options.strict
        self.meshes: dict[tuple[str, tuple[float, ...]], Mesh] = {}
        self.mesh_words: set[str] = set()
        self.vertices = 0
        self.materials: dict[str, tuple[float, ...]] = {}
        self.ignored: dict[str, list[int]] = {}
        self.listed: dict[str, list[str]] = {}

    # Words and notes.

    def ignore(self, what: str, element: Element) -> None:
        self.ignored.setdefault(what, []).append(element.line)

    def note(self, what: str, name: str) -> None:
        self.listed.setdefault(what, []).append(name)

    def notes(self) -> tuple[str, ...]:
        lines = []
        for what, places in self.ignored.items():
            count = len(set(places))
            lines.append(
                f"ignored: {what}, " + (f"on {count} lines, first" if count > 1 else "on line") + f" {min(places)}"
            )
        for what, listed in self.listed.items():
            names = list(dict.fromkeys(listed))
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            lines.append(f"{what}: {', '.join(names[:8])}{more}")
        if self.mesh_words:
            lines.append(f"ignored: {', '.join(sorted(self.mesh_words))} in mesh files")
        return tuple(lines)

    # The whole.

    def robot(self, root: Element, floating: bool) -> Robot:
        robot_name = self.name(root)
        links = _by_name(root.all("link"))
        joints = _by_name(root.all("joint"))
        if not links:
            raise root.error("the robot has no links", fix='add <link name="base"/>')
        above, order = _tree(root, links, joints)
        self.read_materials(root)
        kinds = {name: self.kind(joint) for name, joint in joints.items()}
        mimics, efforts = _mimics(joints, kinds), _commanded_efforts(root)
        still: dict[str, Pose] = {}  # world poses of static links
        bodies, actuators = [], []
        for name in order:
            link, joint = links[name], above.get(name)
            mass = self.mass(link, moving=joint is not None)
            shapes = self.shapes(link)
            if joint is None:
                made = (Joint("root", description.FREE),) if floating else ()
                bodies.append(Body(name, None, Pose(), made, mass, shapes))
                if floating and "root" in joints:
                    fix = "rename it, or pass floating=False"
                    raise joints["root"].error("the free joint of the root link has the same name", fix=fix)
                if not floating:
                    still[name] = Pose()
                continue
            kind, parent = kinds[joint.string("name")], joint.required("parent").string("link")
            pose = _pose(joint.child("origin"))
            if kind == description.FIXED:
                bodies.append(Body(name, parent, pose, (), mass, shapes))
                if parent in still:
                    still[name] = composed(still[parent], pose)
            elif kind == description.FREE:
                if parent not in still:
                    what = "the parent of a floating joint must be fixed to the world"
                    raise joint.error(what, got=f"link {short(parent)}, which moves", fix=_FLOATS)
                made = (Joint(joint.string("name"), kind),)
                bodies.append(Body(name, None, composed(still[parent], pose), made, mass, shapes))
            else:
                moving = self.joint(joint, kind, mimics.get(joint.string("name")))
                bodies.append(Body(name, parent, pose, (moving,), mass, shapes))
                if kind in SINGLE and moving.mimic is None:
                    lower, upper = efforts.get(moving.name, (-math.inf, math.inf))
                    motor = Actuator(moving.name, moving.name, "torque", lower=lower, upper=upper, force=moving.effort)
                    actuators.append(motor)
        return Robot(robot_name, tuple(bodies), tuple(actuators), source=root.file, notes=self.notes())

    def name(self, root: Element) -> str:
        """Name of the robot; that of its file if missing."""
        if self.strict or root.attributes.get("name", "").strip():
            return root.string("name")
        self.ignore("the missing name of the robot", root)
        return os.path.splitext(os.path.basename(root.file))[0]

    # Joints.

    def kind(self, joint: Element) -> str:
        """Kind of a joint in the description."""
        word = joint.string("type")
        if word == "planar":
            fix = "write two prismatic joints and a continuous one, with massless links between"
            raise joint.error("planar joints are not supported", fix=fix)
        if word not in KINDS:
            expected = ", ".join(KINDS)
            raise joint.error("unknown joint type", got=short(word), expected=expected, fix=close_to(word, KINDS))
        return KINDS[word]

    def joint(self, joint: Element, kind: str, mimic: Mimic | None) -> Joint:
        """A moving joint; its axis is in the frame of the child link."""
        name, word = joint.string("name"), joint.string("type")
        made = Joint(name, kind, mimic=mimic)
        dynamics = joint.child("dynamics")
        if dynamics is not None:
            damping = dynamics.number("damping", 0.0, least=0)
            made = replace(made, damping=damping, friction=dynamics.number("friction", 0.0, least=0))
        limit = joint.child("limit")
        if TYPES[kind].limit != RANGE:
            if limit is not None and {"lower", "upper", "twist"} & limit.attributes.keys():
                raise limit.error(f"limits of a {word} joint are not supported", fix="delete lower, upper and twist")
            return made
        axis = joint.child("axis")
        direction = axis.numbers("xyz", 3) if axis is not None else (1.0, 0.0, 0.0)
        length = math.hypot(*direction)
        if axis is not None and length < SHORTEST_AXIS:
            raise axis.error("the axis is zero", got=axis.attributes["xyz"], fix='write a direction, as in xyz="0 0 1"')
        x, y, z = (value / length for value in direction)
        made = replace(made, axis=(x, y, z))
        if limit is None:
            if word == "continuous":
                return made
            if word == "revolute" and not self.strict:
                self.note("no limits, as if of type continuous, at joints", name)
                return made
            raise joint.error(
                f"a {word} joint needs <limit>",
                expected='<limit lower="..." upper="..." effort="..." velocity="..."/>',
                fix='write type="continuous" if it rotates freely' if word == "revolute" else _SLIDES,
            )
        return self.limited(made, limit, word)

    def limited(self, joint: Joint, limit: Element, word: str) -> Joint:
        """A joint with its limits: position [rad or m], effort [N m or N], velocity [rad/s or m/s]."""
        if "twist" in limit.attributes:
            raise limit.error("unknown attribute 'twist'", expected="lower, upper, effort, velocity", fix="delete it")
        if "effort" not in limit.attributes:
            if self.strict:
                fix = 'write effort="..." [N m or N], or effort="inf" for no limit'
                raise limit.error("effort is missing", fix=fix)
            self.note("no effort limit at joints", joint.name)
        effort = limit.number("effort", math.inf, infinite=True, least=0)
        velocity = limit.number("velocity", math.inf, infinite=True, least=0)
        joint = replace(joint, effort=effort, velocity=velocity)
        if effort == 0 and joint.mimic is None:
            self.note("effort limit of 0, so the actuator has no effect, at joints", joint.name)
        lower = limit.number("lower", 0.0, infinite=True)
        upper = limit.number("upper", 0.0, infinite=True)
        if word == "continuous":
            if "lower" in limit.attributes or "upper" in limit.attributes:
                self.note("position limits ignored at continuous joints", joint.name)
            return joint
        if "lower" not in limit.attributes and "upper" not in limit.attributes:
            if word == "revolute" and not self.strict:
                self.note("no limits, as if of type continuous, at joints", joint.name)
                return joint
            fix = 'write type="continuous" if it rotates freely' if word == "revolute" else _SLIDES
            raise limit.error("lower and upper are missing, which would lock the joint at 0", fix=fix)
        if lower > upper:
            fix = 'swap them; for no limits write lower="-inf" upper="inf"'
            raise limit.error("lower is above upper", got=f"lower {lower:g}, upper {upper:g}", fix=fix)
        if lower == math.inf or upper == -math.inf:
            raise limit.error("the limits allow no position", got=f"lower {lower:g}, upper {upper:g}")
        return replace(joint, lower=lower, upper=upper)

    # Masses.

    def mass(self, link: Element, *, moving: bool) -> MassProperties | None:
        """Mass properties of a link in its frame; None without mass."""
        inertial, name = link.child("inertial"), link.string("name")
        if inertial is None:
            if moving:
                self.note("no inertial, so no mass, at links", name)
            return None
        mass = inertial.required("mass").number("value", label="mass", least=0)
        tensor = inertial.required("inertia")
        xx, yy, zz = (tensor.number(word) for word in ("ixx", "iyy", "izz"))
        xy, xz, yz = (tensor.number(word, 0.0) for word in ("ixy", "ixz", "iyz"))
        inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        pose = _pose(inertial.child("origin"))
        if mass == 0:
            self.note("mass of 0, so inertial ignored, at links", name)
            return None
        if np.abs(inertia).max() <= NO_INERTIA * mass:
            self.note("mass without inertia at links", name)
            return MassProperties(mass, pose.position)
        possible = physical_inertia(inertia, tensor.where, repair=self.repair, round_off=not self.strict)
        if possible is not inertia:
            self.note("inertia repaired at links", name)
        return MassProperties(mass, pose.position, turned_inertia(possible, pose.rotation))

    # Shapes.

    def read_materials(self, root: Element) -> None:
        """Colours by name; materials defined in a visual are visible to all others."""
        visuals = [visual for link in root.all("link") for visual in link.all("visual")]
        found = root.all("material") + [material for visual in visuals for material in visual.all("material")]
        for material in found:
            colour = material.child("color")
            if colour is not None and "name" in material.attributes:
                self.materials.setdefault(material.attributes["name"], self.colour(colour))

    def colour(self, element: Element) -> tuple[float, ...]:
        rgba = element.numbers("rgba", 4)
        clipped = tuple(min(max(value, 0.0), 1.0) for value in rgba)
        if clipped != rgba:
            self.ignore("colour components outside 0 to 1", element)
        return clipped

    def shapes(self, link: Element) -> tuple[Shape, ...]:
        """Shapes of a link: visuals are rendered, collisions collide."""
        found = []
        for visual in link.all("visual"):
            shape = self.geometry(visual)
            if shape is not None:
                found.append(replace(shape, collides=False, colour=self.visual_colour(visual)))
        friction = restitution = None
        contact = link.child("contact")
        if contact is not None:
            lateral, bounce = contact.child("lateral_friction"), contact.child("restitution")
            friction = None if lateral is None else lateral.number("value", label="friction", least=0)
            restitution = None if bounce is None else bounce.number("value", label="restitution", least=0, most=1)
        for collision in link.all("collision"):
            shape = self.geometry(collision)
            if shape is not None:
                group, mask = (
                    _bits(collision, word, default)
                    for word, default in (("group", 1), ("mask", description.EVERY_GROUP))
                )
                surface = replace(shape, friction=friction, restitution=restitution)
                found.append(replace(surface, visible=False, group=group, mask=mask))
        return tuple(found)

    def visual_colour(self, visual: Element) -> tuple[float, float, float, float] | None:
        material = visual.child("material")
        if material is None:
            return None
        own, name = material.child("color"), material.attributes.get("name", "")
        if own is not None:
            red, green, blue, alpha = self.colour(own)
        elif name in self.materials:
            red, green, blue, alpha = self.materials[name]
        else:
            self.note("no colour for materials", short(name))
            return None
        return red, green, blue, alpha

    def geometry(self, owner: Element) -> Shape | None:
        """Shape of a visual or collision; None for a mesh that is skipped."""
        geometry = owner.required("geometry")
        kinds = RULES["geometry"].children
        found = [child for child in geometry.children if child.tag in kinds]
        if not found and geometry.children and owner.tag == "visual" and not self.strict:
            self.ignore("visual without a known shape", geometry)
            return None
        if len(found) != 1:
            got = ", ".join(f"<{child.tag}>" for child in found) or "none"
            expected = "one of " + ", ".join(f"<{kind}>" for kind in kinds)
            raise geometry.error("a geometry has one shape", got=got, expected=expected)
        element = found[0]
        pose, name = _pose(owner.child("origin")), owner.attributes.get("name", "")
        if element.tag == "mesh":
            mesh = self.mesh(element, needed=owner.tag == "collision" or self.strict)
            return None if mesh is None else Shape(description.MESH, (), pose, name, mesh)
        if element.tag == "box":
            size = tuple(length / 2 for length in element.numbers("size", 3))
        elif element.tag == "sphere":
            size = (element.number("radius"),)
        else:
            size = element.number("radius"), element.number("length") / 2
        if min(size) <= 0:
            if owner.tag == "visual" and min(size) == 0:  # a common way to hide a visual
                self.ignore("visual of size 0", element)
                return None
            got = ", ".join(f"{word} {short(text)}" for word, text in element.attributes.items())
            raise element.error("a size is not positive", got=got, expected="sizes above 0 [m]")
        return Shape(_PRIMITIVES[element.tag], size, pose, name)

    def mesh(self, element: Element, *, needed: bool) -> Mesh | None:
        """Triangles of a mesh file, scaled; None if it is skipped, or is not needed and cannot be read."""
        file = element.string("filename")
        x, y, z = element.numbers("scale", 3, (1.0, 1.0, 1.0))
        if x * y * z == 0:
            fix = 'leave scale out, or write three numbers other than 0, as scale="0.001 0.001 0.001" for millimetres'
            raise element.error("the scale has a zero", got=element.attributes["scale"], fix=fix)
        ending = os.path.splitext(file)[1].lower()
        try:
            if ending not in FORMATS:
                raise element.error(
                    "unsupported mesh format",
                    got=short(file),
                    expected=" or ".join(FORMATS),
                    fix="convert it to OBJ or STL",
                )
            path = str(self.places.find(file, element.where))
        except ModelError as error:
            if needed and not self.skip_meshes:
                error.fix = f'{error.fix}; or pass meshes="skip" to leave the shape out'
                raise
            self.note("shapes left out for their mesh files", short(file))
            return None
        try:
            return self.scaled_mesh(path, (x, y, z), element)
        except ModelError as error:
            if needed:
                raise
            self.note("visual shapes left out for their mesh files", f"{short(file)} ({error.what})")
            return None

    def scaled_mesh(self, path: str, scale: Vector, element: Element) -> Mesh:
        """A mesh, read and scaled once."""
        key = path, scale
        if key not in self.meshes:
            whole = path, (1.0, 1.0, 1.0)
            if whole not in self.meshes:
                mesh = read_mesh(path, name=self.shown(path), ignored=self.mesh_words)
                self.meshes[whole] = self.counted(mesh, element)
            if key != whole:
                self.meshes[key] = self.counted(scaled(self.meshes[whole], scale), element)
        return self.meshes[key]

    def counted(self, mesh: Mesh, element: Element) -> Mesh:
        self.vertices += len(mesh.vertices)
        if self.vertices > MOST_VERTICES:
            raise element.error("the meshes have too many vertices", expected=f"at most {MOST_VERTICES} together")
        return mesh

    def shown(self, path: str) -> str:
        """A path for messages, relative to the model's folder if below it."""
        inner = os.path.relpath(path, self.places.folder)
        return path if inner.startswith("..") else os.path.join(self.shown_folder, inner)


_FLOATS = "make the root link its parent and read with floating=False, or make it the root of its own file"
_SLIDES = 'write <limit lower="-inf" upper="inf" effort="..."/> if it slides freely'


def _by_name(elements: list[Element]) -> dict[str, Element]:
    found: dict[str, Element] = {}
    for element in elements:
        name = element.string("name")
        if name in found:
            first = f"the first one is on line {found[name].line}"
            raise element.error(f"a second {element.tag} of this name", got=first, fix="rename one of them")
        found[name] = element
    return found


def _tree(root: Element, links: dict[str, Element], joints: dict[str, Element]) -> tuple[dict[str, Element], list[str]]:
    """The parent joint of every link except the root, and the links depth first, parents before children."""
    above: dict[str, Element] = {}
    below: dict[str, list[str]] = {name: [] for name in links}
    parent_of: dict[str, str] = {}
    for joint in joints.values():
        ends = []
        for role in ("parent", "child"):
            end = joint.required(role)
            name = end.string("link")
            if name not in links:
                fix = close_to(name, links) or f'add <link name="{name[:40]}"/>'
                raise end.error(f"there is no link {short(name)}", fix=fix)
            ends.append(name)
        parent, child = ends
        if child in above:
            first = f"joint {short(above[child].string('name'))} on line {above[child].line}"
            fix = "URDF describes trees: give the link one parent"
            raise joint.error(f"link {short(child)} has a second parent", got=first, fix=fix)
        above[child] = joint
        parent_of[child] = parent
        below[parent].append(child)
    tops = [name for name in links if name not in above]
    order, waiting = [], tops[::-1]
    while waiting:
        name = waiting.pop()
        order.append(name)
        waiting.extend(reversed(below[name]))
    if len(order) < len(links):
        # The ancestors of an unreached link contain a cycle: go up until a link repeats.
        reached, path = set(order), dict[str, None]()
        name = next(name for name in links if name not in reached)
        while name not in path:
            path[name] = None
            name = parent_of[name]
        visited = [*path]
        cycle = [*visited[visited.index(name) :], name][::-1]
        got = " -> ".join(short(link) for link in cycle[:20]) + (" ..." if len(cycle) > 20 else "")
        raise above[name].error(
            "the joints close a cycle", got=got, fix="URDF describes trees: remove one of the joints"
        )
    if len(tops) > 1:
        names = ", ".join(short(name) for name in tops[:8])
        fix = "connect them with joints (of type fixed, for example)"
        raise links[tops[1]].error("a second root link: no joint has it as child", got=names, fix=fix)
    return above, order


def _mimics(joints: dict[str, Element], kinds: dict[str, str]) -> dict[str, Mimic]:
    """The mimic constraint of every mimic joint, with chains resolved to the joint at their end."""
    found: dict[str, Mimic] = {}
    for name, joint in joints.items():
        element = joint.child("mimic")
        if element is None or kinds[name] not in SINGLE:
            continue
        target = element.string("joint")
        if target not in joints:
            fix = close_to(target, joints) or "name another joint of this robot, or delete <mimic>"
            raise element.error(f"there is no joint {short(target)}", fix=fix)
        if kinds[target] not in SINGLE:
            got = f"{short(target)} is {joints[target].string('type')}"
            raise element.error("mimics a joint without a coordinate of its own", got=got)
        found[name] = Mimic(target, element.number("multiplier", 1.0), element.number("offset", 0.0))
    resolved: dict[str, Mimic] = {}
    for start in found:
        chain: dict[str, None] = {}
        name = start
        while name in found and name not in resolved:
            if name in chain:
                circle = [*chain][[*chain].index(name) :]
                got = " -> ".join(short(joint) for joint in [*circle, name][:20])
                fix = "delete the <mimic> of one of them"
                raise joints[name].required("mimic").error("joints mimic each other in a cycle", got=got, fix=fix)
            chain[name] = None
            name = found[name].joint
        for name in reversed(chain):
            mimic = found[name]
            further = resolved.get(mimic.joint)
            if further is not None:  # q = m (m' q' + o') + o
                offset = mimic.multiplier * further.offset + mimic.offset
                mimic = Mimic(further.joint, mimic.multiplier * further.multiplier, offset)
            if not (math.isfinite(mimic.multiplier) and math.isfinite(mimic.offset)):
                raise joints[name].required("mimic").error("the product of the multipliers overflows")
            resolved[name] = mimic
    return resolved


def _commanded_efforts(root: Element) -> dict[str, tuple[float, float]]:
    """Bounds of the effort commands of joints in <ros2_control> [N m, N]."""
    found = {}
    for joint in (joint for control in root.all("ros2_control") for joint in control.all("joint")):
        for command in joint.all("command_interface"):
            if command.attributes.get("name") != "effort":
                continue
            bounds = {"min": -math.inf, "max": math.inf}
            for given in command.all("param"):
                name = given.attributes.get("name", "")
                if name in bounds:
                    bounds[name] = number_in(given)
            if bounds["min"] > bounds["max"]:
                raise command.error("min is above max", got=f"{bounds['min']:g}, {bounds['max']:g}")
            found[joint.string("name")] = bounds["min"], bounds["max"]
    return found


def _bits(element: Element, name: str, default: int) -> int:
    value = element.number(name, default, least=0, most=2**31 - 1)
    if value != int(value):
        raise element.error(f"{name} is not an integer", got=short(element.attributes[name]))
    return int(value)


def _pose(origin: Element | None) -> Pose:
    """Pose of an <origin>: xyz [m]; rpy [rad] about the fixed axes x, y, z in this order."""
    if origin is None:
        return Pose()
    x, y, z = origin.numbers("xyz", 3, (0.0, 0.0, 0.0))
    roll, pitch, yaw = origin.numbers("rpy", 3, (0.0, 0.0, 0.0))
    return Pose((x, y, z), rpy_quaternion(roll, pitch, yaw))
