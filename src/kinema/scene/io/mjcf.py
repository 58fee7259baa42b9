"""MJCF, the model format of MuJoCo: MuJoCo compiles the file, and this reader turns the mjModel into a `Robot`.

Coordinates. MuJoCo's `qpos` of a hinge or slide joint equals its attribute `ref` in the pose of the file; here
q = qpos - ref, zero in the pose of the file, so limits and spring rests are reduced by `ref`. Quaternions of ball
joints are the same. A free joint's q is the pose in the world in both; the body's pose is the initial one.

Controls. A motor's control is MuJoCo's. The control of a position or velocity actuator is the target coordinate or
velocity of its joint: for MuJoCo's control u it is u / gear - ref or u / gear; the reader converts limits and gains,
and adds a note.

Collisions. In MuJoCo two shapes collide if the contype of one shares a bit with the conaffinity of the other; here both
masks must agree. The reader therefore assigns new groups: shapes that collide with the same shapes share a group, and
group 1 stands for MuJoCo's defaults (contype = conaffinity = 1), so that a floor from elsewhere collides like a floor
of the file. Shapes of the world and of static bodies collide with everything that moves, as in MuJoCo, except links of
a tree whose root is such a body; these, and links among each other, collide with `add_robot(self_collision=True)`. A
file with a floor needs no `add_ground`.

The reader ignores settings that belong to the scene: time step, integrator, gravity, softness of constraints (solref,
solimp). It refuses features that affect the motion and that a `Robot` cannot express, or leaves them out with a note if
the caller lists them in `ignore`; it leaves out features without effect on the motion with a note.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from kinema.errors import InputError, ModelError
from kinema.scene import description as kd
from kinema.scene.io.files import Places, is_below, read_bytes, short, warn_of
from kinema.scene.io.poses_and_inertias import turned_inertia
from kinema.scene.io.xml import LARGEST_FILE, LARGEST_NUMBER, Element, parse_xml
from kinema.scene.joint_types import TYPES
from kinema.scene.shape_kinds import SHAPE_KINDS

OLDEST = 4  # oldest supported major version of MuJoCo
MOST_FILES = 256  # XML files of one model
MOST_COPIES = 1000  # <replicate>; MuJoCo's time grows with the square
GROUPS = 16  # bits of a shape's group

IGNORABLE = {
    "actuators": "actuators other than motor, position and velocity on a hinge or slide joint",
    "closures": "equality constraints other than connect, weld and linear joint couplings",
    "contact": "friction of contact pairs, adhesion, moving surfaces",
    "fluid": "the medium's density and viscosity",
    "gravcomp": "gravity compensation",
    "shapes": "colliding ellipsoids and signed distance fields",
    "springs": "springs and dampers that are not linear, springs of free and ball joints",
    "tendons": "tendons with limits, springs, damping, friction or inertia",
}

JOINTS = {one.mjcf: one for one in TYPES.values() if one.mjcf}
SHAPES = {one.mjcf: one for one in SHAPE_KINDS.values() if one.mjcf}

# Attributes (up to an underscore) that make MuJoCo allocate or compute, with upper bounds.
LARGEST = {
    **{"nrow": 2048, "ncol": 2048, "width": 8192, "height": 65536, "params": 512},  # terrains, images, built-in meshes
    **{"dim": 10_000, "nsample": 10_000, "nkey": 10_000, "nuser": 1000, "nuserdata": 1_000_000},
    **{"njmax": 1_000_000, "nconmax": 1_000_000, "nstack": 100_000_000},
}
UNSUPPORTED = {
    "flexcomp": "deformable bodies",
    "flex": "deformable bodies",
    "composite": "composite bodies",
    "plugin": "plugins",
    "extension": "plugins",
}
# Arrays of mjModel that the reader uses.
NUMBERS = [
    *("body_pos", "body_quat", "body_ipos", "body_iquat", "body_mass", "body_inertia", "jnt_pos", "jnt_axis"),
    *("jnt_range", "jnt_stiffness", "jnt_actfrcrange", "dof_armature", "dof_damping", "dof_frictionloss"),
    *("geom_pos", "geom_quat", "geom_size", "geom_friction", "geom_rgba", "mat_rgba", "mesh_vert", "hfield_data"),
    *("actuator_gainprm", "actuator_biasprm", "actuator_gear", "actuator_ctrlrange", "actuator_forcerange"),
    *("actuator_armature", "actuator_damping"),
    *("site_pos", "site_quat", "eq_data", "qpos0", "qpos_spring"),
]
NOT_NEGATIVE = {
    *("body_mass", "body_inertia", "jnt_stiffness", "dof_armature", "dof_damping", "dof_frictionloss"),
    *("actuator_armature", "actuator_damping", "geom_size", "geom_friction"),
}
FOLDERS = ("assetdir", "meshdir", "texturedir")
SECTIONS = ("actuator", "equality", "tendon", "contact")  # whose elements share one namespace
NAMES = ("name", "class", "childclass", "model", "file")  # text attributes, where "nan" is a name


def read_mjcf(
    path_or_text: str | os.PathLike[str],
    *,
    roots: Iterable[str | os.PathLike[str]] = (),
    ignore: Collection[str] = (),
) -> kd.Robot:
    """Read an MJCF model.

    Args:
        path_or_text: A file, or the text of a model (begins with "<") that refers to no other files.
        roots: Folders, in addition to the model's own, for included files, meshes and images.
        ignore: Features to leave out with a note instead of raising: names of `IGNORABLE`, such as "fluid".

    Returns:
        The robot [m, kg, s, rad]: a tree for each child of the world, and a body "world" with the world's shapes
        and sites, if any. Unnamed elements get a name. `notes` lists everything left out.

    Warns:
        LeftOutWarning: Lists the notes, if any.

    Raises:
        ModelError: The file cannot be read, is malformed, refers to files outside its folders, does not compile in
            MuJoCo, or uses features that a robot cannot express; or MuJoCo is not installed, or too old.
        InputError: `ignore` has an unknown name.
    """
    ignore = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    for name in ignore:
        if name not in IGNORABLE:
            raise InputError("ignore has an unknown name", got=repr(name), expected=", ".join(IGNORABLE))
    text = path_or_text if isinstance(path_or_text, str) and path_or_text.lstrip("\ufeff \t\r\n")[:1] == "<" else None
    source = "<text>" if text is not None else os.fspath(path_or_text)
    mujoco = _import_mujoco(source)
    scan = _Scan(source, roots)
    if text is not None:
        scan.text(text)
    else:
        scan.file(os.path.abspath(source))
    model, warnings = _compile(mujoco, source, text, len(scan.files) <= 1)
    robot = _Reader(mujoco, model, source, scan.places, frozenset(ignore), warnings).robot()
    warn_of(robot.notes, source)
    return robot


def _import_mujoco(source: str) -> Any:
    try:
        import mujoco
    except ImportError as error:
        fix = "pip install 'kinema[mjcf]', with Python 3.11 or newer"
        raise ModelError("MuJoCo, which reads MJCF, is not installed", where=source, fix=fix) from error
    if int(mujoco.__version__.partition(".")[0]) < OLDEST:
        expected, fix = f"{OLDEST} or newer", "pip install -U 'kinema[mjcf]'"
        raise ModelError("MuJoCo is too old", where=source, got=mujoco.__version__, expected=expected, fix=fix)
    return mujoco


def _compile(mujoco: Any, source: str, text: str | None, one_file: bool) -> tuple[Any, list[str]]:
    """MuJoCo's model and its warnings, which MuJoCo would otherwise write to a file in the working directory."""
    warnings: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(warnings.append)
    try:
        if text is not None:
            return mujoco.MjModel.from_xml_string(text), warnings
        return mujoco.MjModel.from_xml_path(os.path.abspath(source)), warnings
    except (ValueError, TypeError, MemoryError, mujoco.FatalError, mujoco.UnexpectedError) as error:
        said = " ".join(str(error).split())
        line = re.search(r"line (?:number=)?(\d+)", said, re.IGNORECASE)
        where = f"{source}:{line[1]}" if line and one_file else source
        raise ModelError("MuJoCo cannot compile the model", where=where, got=said) from None
    finally:
        mujoco.set_mju_user_warning(before)


class _Scan:
    """Scans the XML of a model before MuJoCo does, to check the files it would open and the memory it would allocate.

    Attributes:
        files: The XML files of the model, resolved.
        places: Locations of named elements for messages, by kind and name.
    """

    def __init__(self, source: str, roots: Iterable[str | os.PathLike[str]]) -> None:
        self.source = source
        self.allowed = Places.of(source, roots).allowed
        self.files: set[str] = set()
        self.places: dict[tuple[str, str], str] = {}
        # MuJoCo's search folder depends on how a file was included, so consider all of them.
        self._folders: set[str] = set()
        self._inner = {""}  # meshdir and similar
        self._references: list[tuple[Element, str]] = []  # with the file they refer to

    def text(self, data: str) -> None:
        """Check a model given as text, which has no folder."""
        self._check(parse_xml(data.encode(errors="surrogatepass"), self.source), main=True)
        for element, name in self._references:
            what = f"<{element.tag}> refers to a file, but a text has no folder"
            raise element.error(what, got=short(name), fix="pass the model as a file")

    def file(self, main: str) -> None:
        """Check a model file and all files that it includes."""
        self._read(main, None)
        done = -1
        while done < len(self.files):  # each may add search folders for the others
            done = len(self.files)
            for element, name in list(self._references):
                for file in self._find(element, name):
                    if element.tag in ("include", "model") and os.path.realpath(file) not in self.files:
                        self._read(file, element)

    def _read(self, file: str, named_by: Element | None) -> None:
        self.files.add(os.path.realpath(file))
        self._folders.add(os.path.dirname(file))
        if named_by is not None and len(self.files) > MOST_FILES:
            raise named_by.error("the model includes too many files", expected=f"at most {MOST_FILES}")
        shown = self.source if named_by is None else os.path.relpath(file, os.path.dirname(self.source) or ".")
        root = parse_xml(read_bytes(file, LARGEST_FILE, shown), shown)
        self._check(root, main=named_by is None or named_by.tag == "model")

    def _check(self, root: Element, main: bool) -> None:
        """Check the elements of one file, and record the files they refer to."""
        if main and root.tag == "robot":
            raise root.error("this is a URDF model", fix="read it with read_urdf")
        if main and root.tag != "mujoco":
            raise root.error("not an MJCF model", got=f"<{root.tag}>", expected="<mujoco>")
        stack = [(root, 1)]  # with the number of copies from <replicate>
        while stack:
            element, copies = stack.pop()
            tag, attributes, parent = element.tag, element.attributes, element.parent
            if tag in UNSUPPORTED:
                raise element.error(f"{UNSUPPORTED[tag]} are not supported")
            if tag == "replicate":
                copies *= max(1, int(element.number("count", 1, most=MOST_COPIES)))
                if copies > MOST_COPIES:
                    raise element.error("too many copies, including nested ones", expected=f"at most {MOST_COPIES}")
            for name, value in attributes.items():
                _check_numbers(element, name, value)
                if name.startswith("file"):
                    self._references.append((element, value))
                if name in FOLDERS:
                    self._inner.add(value.replace("\\", "/"))
            if "name" in attributes:
                section = parent.tag if parent is not None and parent.tag in SECTIONS else tag
                self.places.setdefault((section.replace("freejoint", "joint"), attributes["name"]), element.where)
            stack += [(child, copies) for child in reversed(element.children)]

    def _find(self, element: Element, name: str) -> list[str]:
        """The files that MuJoCo might open for a name in the model; all must be inside the allowed folders."""
        if "://" in name:
            raise element.error("URLs are not supported", got=short(name), expected="a file")
        plain = name.replace("\\", "/")
        names = {plain, plain.rpartition("/")[2]}  # the second with strippath
        tried = {os.path.join(folder, inner, n) for folder in self._folders for inner in self._inner for n in names}
        tried |= {os.path.normpath(file) for file in tried}  # the same unless the path contains symbolic links
        inside = {file for file in tried if any(is_below(os.path.realpath(file), top) for top in self.allowed)}
        if not inside or any(os.path.lexists(file) for file in tried - inside):
            raise element.error(
                "the file lies outside the folders that the model may read",
                got=short(name),
                expected="a file below " + ", ".join(self.allowed),
                fix="read_mjcf(..., roots=[folder]) with a folder that contains it, if you trust the model",
            )
        found = sorted(file for file in inside if os.path.isfile(file))
        if not found:
            raise element.error("the file does not exist", got=short(name))
        if max(os.path.getsize(file) for file in found) > LARGEST_FILE:
            raise element.error("the file is too large", got=short(name), expected=f"at most {LARGEST_FILE >> 20} MB")
        return found


def _check_numbers(element: Element, name: str, value: str) -> None:
    """Refuse numbers that are not finite, or so large that MuJoCo would run out of memory or time."""
    if name in NAMES:
        return
    bound = LARGEST.get(name.partition("_")[0], LARGEST_NUMBER)
    for word in value.split():
        try:
            number = float(word)
        except ValueError:  # MuJoCo checks words
            continue
        if not math.isfinite(number):
            raise element.error(f"{name} is not finite", got=short(value), expected="finite numbers")
        if abs(number) > bound:
            raise element.error(f"{name} is too large", got=short(value), expected=f"at most {bound:g}")


class _Reader:
    """Turns a compiled model into a robot description; `m` is MuJoCo's mjModel, with MuJoCo's array names.

    Args:
        mujoco: The module.
        model: The compiled model.
        source: File, for messages.
        places: "file:line" of named elements.
        ignore: Features to leave out instead of raising.
        warnings: MuJoCo's warnings from the compilation.
    """

    def __init__(
        self,
        mujoco: Any,
        model: Any,
        source: str,
        places: dict[tuple[str, str], str],
        ignore: frozenset[str],
        warnings: Iterable[str],
    ) -> None:
        self.mj, self.m, self.source, self.places, self.ignore = mujoco, model, source, places, ignore
        self.notes = [f"MuJoCo warns: {' '.join(warning.split())}" for warning in warnings]
        self.body_names = self._names("body", model.nbody, lambda i: f"body{i}")
        self.joint_names = self._names("joint", model.njnt, lambda i: f"{self._body_of_joint(i)}/joint{i}")
        self.geom_names = self._names("geom", model.ngeom, lambda i: "")
        self.actuator_names = self._names("actuator", model.nactuator, lambda i: f"actuator{i}")
        self.equality_names = self._names("equality", model.neq, lambda i: f"equality{i}")
        self.site_names = self._names("site", model.nsite, lambda i: f"site{i}")
        self.meshes: dict[tuple[str, int], kd.Mesh] = {}

    def robot(self) -> kd.Robot:
        """The robot description."""
        m = self.m
        self._check_numbers()
        self._refuse_medium_and_others()
        self._refuse_tendons()
        groups, masks = self._groups()
        shapes: list[list[kd.Shape]] = [[] for _ in range(m.nbody)]
        for g in range(m.ngeom):
            if (shape := self._shape(g, int(groups[g]), int(masks[g]))) is not None:
                shapes[m.geom_bodyid[g]].append(shape)
        closures, mimics = self._equalities()
        sites: list[list[kd.Site]] = [[] for _ in range(m.nbody)]
        for s, site in enumerate(self.site_names):
            sites[m.site_bodyid[s]].append(kd.Site(site, _pose(m.site_pos[s], m.site_quat[s])))
        on_world = tuple(shapes[0]), tuple(sites[0])
        bodies = [kd.Body("world", shapes=on_world[0], sites=on_world[1])] if any(on_world) else []
        for b in range(1, m.nbody):
            first, parent = int(m.body_jntadr[b]), int(m.body_parentid[b])
            joints = tuple(self._joint(j, mimics) for j in range(first, first + int(m.body_jntnum[b])))
            pose = _pose(m.body_pos[b], m.body_quat[b])
            name = self.body_names[b]
            above = self.body_names[parent] if parent else None
            bodies.append(kd.Body(name, above, pose, joints, self._mass(b), tuple(shapes[b]), tuple(sites[b])))
        actuators = tuple(a for i in range(m.nactuator) if (a := self._actuator(i)) is not None)
        excluded = self._excluded(shapes)
        self._note_the_rest()
        name = m.names.split(b"\0", 1)[0].decode(errors="replace")
        return kd.Robot(name, tuple(bodies), actuators, closures, excluded, self.source, tuple(self.notes))

    # -- names and messages --------------------------------------------------------------------------------------

    def _names(self, kind: str, count: int, fallback: Any) -> list[str]:
        """Names of all elements of a kind; unnamed elements get a unique name."""
        object_type = getattr(self.mj.mjtObj, f"mjOBJ_{kind.upper()}")
        given = [self.mj.mj_id2name(self.m, object_type, i) for i in range(count)]
        taken = {name for name in given if name}
        names = []
        for i, name in enumerate(given):
            name = name or fallback(i)
            while not given[i] and name in taken:
                name += "_"
            if name:
                taken.add(name)
            names.append(name)
        return names

    def _body_of_joint(self, j: int) -> str:
        return self.body_names[self.m.jnt_bodyid[j]]

    def _element(self, kind: str, i: int) -> str:
        names = {"body": self.body_names, "joint": self.joint_names, "geom": self.geom_names}
        names |= {"actuator": self.actuator_names, "equality": self.equality_names}
        return f"{kind} {names[kind][i]!r}" if names[kind][i] else f"{kind} {i} (no name)"

    def _refuse(self, feature: str, what: str, element: str = "", **parts: Any) -> None:
        """Raise, or add a note if the caller ignores the feature."""
        if feature in self.ignore:
            self.notes.append(f"left out: {what}")
            return
        fix = f"read_mjcf(..., ignore=[{feature!r}]) leaves it out"
        parts["fix"] = f"{parts['fix']}; {fix}" if "fix" in parts else fix
        raise self._error(what, element, **parts)

    def _error(self, what: str, element: str, **parts: Any) -> ModelError:
        kind, _, name = element.partition(" ")
        return ModelError(what, where=self.places.get((kind, name.strip("'\"")), self.source), **parts)

    def _word(self, enum: str, value: Any) -> str:
        """MuJoCo's name of a value: ("Geom", 2) is "sphere"."""
        return str(getattr(self.mj, f"mjt{enum}")(int(value)).name).partition("_")[2].lower()

    def _disabled(self, *flags: str) -> bool:
        return any(self.m.opt.disableflags & int(getattr(self.mj.mjtDisableBit, f"mjDSBL_{f.upper()}")) for f in flags)

    # -- unsupported features -------------------------------------------------------------------------------------

    def _check_numbers(self) -> None:
        """Check mjModel: values also come from meshes and images or overflow, and MuJoCo does not check signs."""
        m = self.m
        for array in NUMBERS:
            values = np.asarray(getattr(m, array))
            values = values.reshape(len(values), int(np.prod(values.shape[1:])))
            for bad, problem in ((~np.isfinite(values), "not finite"), (values < 0, "negative")):
                if (problem != "negative" or array in NOT_NEGATIVE) and bad.any():
                    i = int(np.argmax(bad.any(axis=1)))
                    kind, _, what = array.partition("_")
                    i = int(m.dof_jntid[i]) if kind == "dof" else i
                    kind = {"jnt": "joint", "dof": "joint"}.get(kind, kind)
                    element = self._element(kind, i) if kind in ("body", "joint", "geom", "actuator") else f"{kind} {i}"
                    raise self._error(f"{what} of {element} is {problem}", element)

    def _refuse_medium_and_others(self) -> None:
        m, opt = self.m, self.m.opt
        if opt.density > 0 or opt.viscosity > 0:
            got = f"density {opt.density:g} kg/m^3, viscosity {opt.viscosity:g} Pa s"
            self._refuse("fluid", f"the model has a fluid medium ({got})", got=got, expected="none")
        for b in np.flatnonzero(m.body_gravcomp):
            element = self._element("body", int(b))
            self._refuse("gravcomp", f"{element} has gravity compensation", element, got=m.body_gravcomp[b])
        if m.nflex or m.nplugin:  # the scan finds them first, unless MuJoCo generates them from other elements
            raise ModelError("deformable bodies and plugins are not supported", where=self.source)
        if opt.enableflags & int(self.mj.mjtEnableBit.mjENBL_OVERRIDE):
            self._refuse("contact", "contact parameters are overridden for all shapes", got='<flag override="enable"/>')
        for g in range(m.ngeom):
            if m.geom_adhesion[g] or np.any(m.geom_surfacevel[g]):
                element = self._element("geom", g)
                self._refuse("contact", f"{element} is adhesive or has a moving surface", element)

    def _refuse_tendons(self) -> None:
        m = self.m
        for t in range(m.ntendon):
            name = self.mj.mj_id2name(m, self.mj.mjtObj.mjOBJ_TENDON, t) or str(t)
            acts = [word for word in ("limited", "actfrclimited") if getattr(m, f"tendon_{word}")[t]]
            for word in ("stiffness", "stiffnesspoly", "damping", "dampingpoly", "frictionloss", "armature"):
                if np.any(getattr(m, f"tendon_{word}")[t]):
                    acts.append(word)
            if acts:
                what, where = f"tendon {name!r} exerts forces", f"tendon {name!r}"
                self._refuse("tendons", what, where, got=", ".join(acts), expected="a tendon that is only measured")
            else:
                self.notes.append(f"left out: tendon {name!r}, which exerts no force")

    def _note_the_rest(self) -> None:
        m, opt = self.m, self.m.opt
        gravity = (0.0, 0.0, 0.0) if self._disabled("gravity") else tuple(float(g) for g in opt.gravity)
        if gravity != (0.0, 0.0, -9.81):
            self.notes.append(f"left out: gravity {gravity} m/s^2; the scene's is used")
        counts = {"camera": m.ncam, "light": m.nlight, "sensor": m.nsensor, "keyframe": m.nkey}
        counts |= {"skin": m.nskin, "texture": m.ntex, "custom field": m.nnumeric + m.ntext + m.ntuple}
        for word, count in counts.items():
            if count:
                self.notes.append(f"left out: {count} {word}{'s' if count > 1 else ''}")
        for b in np.flatnonzero(np.asarray(m.body_mocapid) >= 0):
            self.notes.append(f"body {self.body_names[b]!r} is a mocap body in MuJoCo; here it is static")
        margins = int(np.count_nonzero(m.geom_margin) + np.count_nonzero(m.geom_gap) + np.count_nonzero(m.jnt_margin))
        if margins:
            self.notes.append(f"left out: {margins} margins and gaps of contacts and limits")
        if np.any(m.geom_priority):
            self.notes.append("left out: contact priorities of shapes")
        if np.any(np.asarray(m.geom_condim) > 3):
            self.notes.append("left out: torsional and rolling friction")

    # -- bodies and joints ---------------------------------------------------------------------------------------

    def _mass(self, b: int) -> kd.MassProperties | None:
        m = self.m
        if m.body_mass[b] == 0 and not np.any(m.body_inertia[b]):
            return None
        pose = _pose(m.body_ipos[b], m.body_iquat[b])
        inertia = turned_inertia(np.diag(m.body_inertia[b]), pose.rotation)
        return kd.MassProperties(float(m.body_mass[b]), pose.position, inertia)

    def _joint(self, j: int, mimics: dict[int, kd.Mimic]) -> kd.Joint:
        m, element = self.m, self._element("joint", j)
        kind = JOINTS[self._word("Joint", m.jnt_type[j])]
        d = int(m.jnt_dofadr[j])
        reference = self._reference(j)
        no_limits = self._disabled("limit", "constraint") or not m.jnt_limited[j] or kind.limit is None
        lower, upper = (-math.inf, math.inf) if no_limits else (float(r) - reference for r in m.jnt_range[j])
        armature, damping = float(m.dof_armature[d]), float(m.dof_damping[d])
        polynomial = np.any(m.dof_dampingpoly[d])
        for i in self._actuators_of(j):  # actuators may add their own
            gear = float(m.actuator_gear[m.actuator_outadr[i], 0])
            armature += gear**2 * float(m.actuator_armature[i])
            damping += gear**2 * float(m.actuator_damping[i])
            polynomial |= np.any(m.actuator_dampingpoly[i])
        stiffness = 0.0 if self._disabled("spring") else float(m.jnt_stiffness[j])
        if polynomial or np.any(m.jnt_stiffnesspoly[j]) or m.jnt_springyield[j]:
            what = f"{element} has a nonlinear spring or damper"
            self._refuse("springs", what, element, fix="keep the first coefficient, and no springyield")
        if stiffness and not kind.is_single:
            what, expected = f"{element} has a spring and is {kind.word}", "springs of hinge and slide joints"
            self._refuse("springs", what, element, got=stiffness, expected=expected)
            stiffness = 0.0
        effort = math.inf
        if m.jnt_actfrclimited[j] and kind.is_single:
            low, effort = (float(f) for f in m.jnt_actfrcrange[j])
            if low != -effort:
                expected = "a range symmetric about 0"
                what = f"{element} has an asymmetric actuator force range"
                self._refuse("actuators", what, element, got=f"{low:g} {effort:g}", expected=expected)
                effort = math.inf
        return kd.Joint(
            self.joint_names[j],
            kind.word,
            axis=_unit(m.jnt_axis[j]) if kind.has_axis else (0.0, 0.0, 1.0),
            anchor=_vector(m.jnt_pos[j]) if not kind.position else (0.0, 0.0, 0.0),
            lower=lower,
            upper=upper,
            effort=effort,
            armature=armature,
            damping=0.0 if self._disabled("damper") else damping,
            stiffness=stiffness,
            rest=float(m.qpos_spring[m.jnt_qposadr[j]]) - reference if kind.is_single else 0.0,
            friction=0.0 if self._disabled("frictionloss", "constraint") else float(m.dof_frictionloss[d]),
            mimic=mimics.get(j),
        )

    def _reference(self, j: int) -> float:
        """MuJoCo's coordinate of a hinge or slide joint in the pose of the file."""
        is_single = JOINTS[self._word("Joint", self.m.jnt_type[j])].is_single
        return float(self.m.qpos0[self.m.jnt_qposadr[j]]) if is_single else 0.0

    # -- shapes --------------------------------------------------------------------------------------------------

    def _shape(self, g: int, group: int, mask: int) -> kd.Shape | None:
        m, element, collides = self.m, self._element("geom", g), mask != 0
        kind = self._word("Geom", m.geom_type[g])
        if kind not in SHAPES:
            what = f"{element} is of type {kind}"
            if collides:
                self._refuse("shapes", what + " and collides", element, got=kind, expected=", ".join(SHAPES))
            else:
                self.notes.append(f"left out: {what}, which does not collide")
            return None
        made = SHAPES[kind]
        mesh = self._mesh(m.geom_dataid[g]) if kind == "mesh" else None
        mesh = self._terrain(m.geom_dataid[g]) if kind == "hfield" else mesh
        # A material sets the colour of geoms that have MuJoCo's default colour.
        rgba, plain = np.asarray(m.geom_rgba[g]), tuple(m.geom_rgba[g]) == (0.5, 0.5, 0.5, 1.0)
        if m.geom_matid[g] >= 0 and plain:
            rgba, plain = m.mat_rgba[m.geom_matid[g]], False
        red, green, blue, alpha = (round(float(c), 6) for c in rgba)
        return kd.Shape(
            made.word,
            tuple(float(s) for s in m.geom_size[g, : len(made.sizes)]),
            _pose(m.geom_pos[g], m.geom_quat[g]),
            name=self.geom_names[g],
            mesh=mesh,
            collides=collides,
            visible=bool(alpha > 0 and m.geom_group[g] <= 2),  # what MuJoCo's viewer shows
            friction=0.0 if m.geom_condim[g] == 1 else float(m.geom_friction[g, 0]),
            group=group,
            mask=mask,
            colour=None if plain else (red, green, blue, alpha),
        )

    def _mesh(self, i: int) -> kd.Mesh:
        if ("mesh", i) not in self.meshes:
            m = self.m
            first, count = int(m.mesh_vertadr[i]), int(m.mesh_vertnum[i])
            vertices = np.array(m.mesh_vert[first : first + count], dtype=np.float64)
            first, count = int(m.mesh_faceadr[i]), int(m.mesh_facenum[i])
            self.meshes["mesh", i] = kd.Mesh(vertices, np.array(m.mesh_face[first : first + count], dtype=np.int32))
        return self.meshes["mesh", i]

    def _terrain(self, i: int) -> kd.Mesh:
        """A height field as two triangles per cell, split along MuJoCo's diagonal, without the base."""
        if ("hfield", i) not in self.meshes:
            m = self.m
            rows, columns, first = int(m.hfield_nrow[i]), int(m.hfield_ncol[i]), int(m.hfield_adr[i])
            x_half, y_half, height, _ = (float(s) for s in m.hfield_size[i])
            heights = np.array(m.hfield_data[first : first + rows * columns], dtype=np.float64) * height
            y, x = np.meshgrid(np.linspace(-y_half, y_half, rows), np.linspace(-x_half, x_half, columns), indexing="ij")
            a = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()  # corner of least x and y
            b, c, d = a + 1, a + columns + 1, a + columns
            faces = np.stack([np.stack([a, b, c], 1), np.stack([a, c, d], 1)], 1).reshape(-1, 3)
            self.meshes["hfield", i] = kd.Mesh(np.stack([x.ravel(), y.ravel(), heights], 1), faces.astype(np.int32))
        return self.meshes["hfield", i]

    # -- contact -------------------------------------------------------------------------------------------------

    def _groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Group and mask bits of every geom, shape (ngeom,) each, such that the same geoms collide as in MuJoCo."""
        m = self.m
        group, mask = np.ones(m.ngeom, dtype=np.int64), np.zeros(m.ngeom, dtype=np.int64)
        if self._disabled("contact", "constraint"):
            return group, mask
        in_pair = {int(g) for g in (*m.pair_geom1, *m.pair_geom2)}
        # Row 0 stands for shapes from elsewhere, with MuJoCo's defaults.
        keys = [(1, 1, -1)]
        keys += [
            (int(m.geom_contype[g]), int(m.geom_conaffinity[g]), g if g in in_pair else -1) for g in range(m.ngeom)
        ]
        index = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        contype = np.array([key[0] for key in index], dtype=np.int64)
        affinity = np.array([key[1] for key in index], dtype=np.int64)
        meet = (contype[:, None] & affinity) != 0
        meet |= meet.T
        for p in range(m.npair):
            i, j = (index[keys[1 + int(g)]] for g in (m.pair_geom1[p], m.pair_geom2[p]))
            meet[i, j] = meet[j, i] = True
            self._check_pair(p)
        # Geoms that collide with the same geoms share a group; geoms that never collide need none.
        rows = {row: None for row in map(bytes, meet)}
        used = [row for row in rows if any(row)]
        if len(used) > GROUPS:
            raise ModelError(
                "too many collision groups (contype, conaffinity, pairs)",
                where=self.source,
                got=f"{len(used)} groups of shapes with different collision partners",
                expected=f"at most {GROUPS}",
            )
        bit = {row: 1 << i for i, row in enumerate(used)}
        bits = [bit.get(bytes(row), 0) for row in meet]
        for g in range(m.ngeom):
            i = index[keys[1 + g]]
            group[g] = bits[i] or 1
            for other in np.flatnonzero(meet[i]):
                mask[g] |= bits[other]
        return group, mask

    def _check_pair(self, p: int) -> None:
        m = self.m
        first, second = int(m.pair_geom1[p]), int(m.pair_geom2[p])
        one, two = int(m.geom_bodyid[first]), int(m.geom_bodyid[second])
        what = f"the contact pair of {self._element('geom', first)} and {self._element('geom', second)}"
        excluded = {(one << 16) + two, (two << 16) + one} & {int(s) for s in m.exclude_signature}
        if excluded or self._filtered(one, two) or self._neighbours(one, two):
            self._refuse("contact", f"{what} joins bodies that never collide here")
        own = max(float(m.geom_friction[g, 0]) if m.geom_condim[g] > 1 else 0.0 for g in (first, second))
        pair = float(m.pair_friction[p, 0]) if m.pair_dim[p] > 1 else 0.0
        if not math.isclose(own, pair, rel_tol=1e-9):
            parts: dict[str, Any] = {
                "got": pair,
                "expected": f"{own:g}, the larger of both",
                "fix": "set the friction on the geoms",
            }
            self._refuse("contact", f"{what} has its own friction", **parts)

    def _filtered(self, first: int, second: int) -> bool:
        """Whether MuJoCo's parent and weld filters exclude a pair of bodies."""
        m = self.m
        one, two = int(m.body_weldid[first]), int(m.body_weldid[second])
        if one == two:
            return True
        above = [int(m.body_weldid[m.body_parentid[body]]) for body in (one, two)]
        return not self._disabled("filterparent") and 0 not in (one, two) and (one == above[1] or two == above[0])

    def _neighbours(self, first: int, second: int) -> bool:
        """Whether one of two bodies is the other's parent; the world does not count."""
        parent = self.m.body_parentid
        return 0 not in (first, second) and bool(parent[first] == second or parent[second] == first)

    def _excluded(self, shapes: list[list[kd.Shape]]) -> frozenset[frozenset[str]]:
        """Pairs that never collide: those of the file, and MuJoCo's own except neighbours and static bodies."""
        m, names = self.m, self.body_names
        signatures = (int(s) for s in m.exclude_signature)
        pairs = {frozenset((names[s >> 16], names[s & 0xFFFF])) for s in signatures if s >> 16 != s & 0xFFFF}
        by_weld: dict[int, list[int]] = {}  # colliding bodies welded together; 0 is static
        for b in range(m.nbody):
            if any(shape.collides for shape in shapes[b]):
                by_weld.setdefault(int(m.body_weldid[b]), []).append(b)
        for weld, members in by_weld.items():
            others = [*members, *by_weld.get(int(m.body_weldid[m.body_parentid[weld]]), [])] if weld else []
            for first, second in itertools.product(members, others):
                filtered, neighbours = self._filtered(first, second), self._neighbours(first, second)
                if filtered and not neighbours and first != second:
                    pairs.add(frozenset((names[first], names[second])))
                elif neighbours and not filtered:
                    note = f"bodies {names[second]!r} and {names[first]!r} are neighbours"
                    self.notes.append(f"{note}: their shapes collide in MuJoCo, but not here")
        return frozenset(pairs)

    # -- actuators -----------------------------------------------------------------------------------------------

    def _actuators_of(self, j: int) -> Iterator[int]:
        for i in range(self.m.nactuator):
            if self.m.actuator_trnid[i, 0] == j and self._word("Trn", self.m.actuator_trntype[i]).startswith("joint"):
                yield i

    def _actuator(self, i: int) -> kd.Actuator | None:
        """[MuJoCo, Actuation model] force = gain u + b0 + b1 gear q + b2 gear v; torque = gear * force."""
        m, element = self.m, self._element("actuator", i)
        in_group = m.actuator_group[i] >= 0 and m.opt.disableactuator >> m.actuator_group[i] & 1
        if in_group or self._disabled("actuation"):
            self.notes.append(f"left out: {element}, which the file disables")
            return None
        problem = self._problem_of_actuator(i)
        j, gear = int(m.actuator_trnid[i, 0]), float(m.actuator_gear[m.actuator_outadr[i], 0])
        gain, bias = float(m.actuator_gainprm[i, 0]), [float(b) for b in m.actuator_biasprm[i, :3]]
        if self._word("Bias", m.actuator_biastype[i]) == "none":
            bias = [0.0, 0.0, 0.0]
        low, high = (float(f) for f in m.actuator_forcerange[i])
        force = abs(gear) * high if m.actuator_forcelimited[i] else math.inf
        if not problem and m.actuator_forcelimited[i] and low != -high:
            problem = f"its force range {low:g} {high:g} is not symmetric about 0"
        actuator = kd.Actuator(self.actuator_names[i], "" if problem else self.joint_names[j], force=force)
        if bias == [0.0, 0.0, 0.0]:
            actuator, scale, shift = replace(actuator, kind="torque", gear=gear * gain), 1.0, 0.0
        elif abs(gear) < 1e-12:
            problem = problem or "its gear is 0"
        elif gain > 0 and bias[0] == 0 and math.isclose(gain, -bias[1], rel_tol=1e-12) and bias[2] <= 0:
            kp, kd_ = gain * gear**2, -bias[2] * gear**2
            actuator, scale, shift = replace(actuator, kind="position", kp=kp, kd=kd_), 1 / gear, self._reference(j)
        elif gain > 0 and bias[:2] == [0.0, 0.0] and math.isclose(gain, -bias[2], rel_tol=1e-12):
            actuator, scale, shift = replace(actuator, kind="velocity", kd=gain * gear**2), 1 / gear, 0.0
        else:
            problem = problem or f"gain {gain:g} with bias {bias[0]:g} {bias[1]:g} {bias[2]:g}"
        if problem:
            expected = "motor, position or velocity, without dynamics, on a hinge or slide joint"
            self._refuse("actuators", f"{element} is not supported: {problem}", element, expected=expected)
            return None
        if (scale, shift) != (1.0, 0.0):
            self.notes.append(f"{element}: the control is MuJoCo's times {scale:g} minus {shift:g}")
        if m.actuator_ctrllimited[m.actuator_ctrladr[i]] and not self._disabled("clampctrl"):
            lower, upper = sorted(float(u) * scale - shift for u in m.actuator_ctrlrange[m.actuator_ctrladr[i]])
            actuator = replace(actuator, lower=lower, upper=upper)
        return actuator

    def _problem_of_actuator(self, i: int) -> str:
        """The reason why an actuator type is unsupported; empty if it is supported."""
        m = self.m
        if (target := self._word("Trn", m.actuator_trntype[i])) not in ("joint", "jointinparent"):
            return f"it drives a {target}"
        if not JOINTS[joint := self._word("Joint", m.jnt_type[m.actuator_trnid[i, 0]])].is_single:
            return f"it drives a {joint} joint"
        if (dynamics := self._word("Dyn", m.actuator_dyntype[i])) != "none":
            return f"it has dynamics ({dynamics})"
        if (gain := self._word("Gain", m.actuator_gaintype[i])) != "fixed":
            return f"its gain is of type {gain}"
        if (bias := self._word("Bias", m.actuator_biastype[i])) not in ("none", "affine"):
            return f"its bias is of type {bias}"
        if m.actuator_delay[i] > 0 or m.actuator_ctrlnum[i] != 1:
            return "it has a delay or several controls"
        return ""

    # -- closed loops and couplings ------------------------------------------------------------------------------

    def _equalities(self) -> tuple[tuple[kd.Closure, ...], dict[int, kd.Mimic]]:
        m = self.m
        closures: list[kd.Closure] = []
        mimics: dict[int, kd.Mimic] = {}
        leaders: dict[int, int] = {}
        for e in range(m.neq):
            kind, element = self._word("Eq", m.eq_type[e]), self._element("equality", e)
            if not m.eq_active0[e] or self._disabled("equality", "constraint"):
                self.notes.append(f"left out: {element}, which is not active")
            elif kind in ("connect", "weld"):
                closures.append(self._closure(e, kind == "weld"))
            elif kind == "joint" and (problem := self._problem_of_coupling(e, leaders)):
                self._refuse("closures", f"{element} is not supported: {problem}", element)
            elif kind == "joint":
                j, leader = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
                leaders[j] = leader
                offset, multiplier = (float(a) for a in m.eq_data[e, :2])
                mimics[j] = kd.Mimic(self.joint_names[leader], multiplier, offset)
            else:
                expected = "connect, weld or joint"
                self._refuse("closures", f"{element} is of type {kind}", element, got=kind, expected=expected)
        return tuple(closures), mimics

    def _problem_of_coupling(self, e: int, leaders: dict[int, int]) -> str:
        """The reason why a joint coupling is unsupported; empty if it is supported."""
        m = self.m
        j, leader = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
        if leader < 0:
            return "it locks a joint at a constant; remove the joint instead"
        if np.any(m.eq_data[e, 2:5]):
            return "its polynomial is not linear"
        if j in leaders:
            return f"{self._element('joint', j)} already mimics another joint"
        while leader in leaders:
            leader = leaders[leader]
        return "joints mimic each other in a cycle" if leader == j else ""

    def _closure(self, e: int, weld: bool) -> kd.Closure:
        m = self.m
        first, second = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
        data = m.eq_data[e]
        if self._word("Obj", m.eq_objtype[e]) == "site":
            poses = [_pose(m.site_pos[s], m.site_quat[s]) for s in (first, second)]
            first, second = int(m.site_bodyid[first]), int(m.site_bodyid[second])
        elif weld:  # anchor on the second body, then its pose on the first
            poses = [_pose(data[3:6], data[6:10]), kd.Pose(_vector(data[:3]))]
        else:
            poses = [kd.Pose(_vector(data[:3])), kd.Pose(_vector(data[3:6]))]
        if weld and data[10] == 0:  # torquescale 0: no torque, so only positions are constrained
            weld = False
        one, two = (self.body_names[b] if b else None for b in (first, second))
        return kd.Closure(self.equality_names[e], "weld" if weld else "connect", one, two, *poses)


def _vector(values: Any) -> kd.Vector:
    x, y, z = (float(v) for v in values)
    return x, y, z


def _unit(values: Any) -> kd.Vector:
    return _vector(np.asarray(values) / np.linalg.norm(values))


def _pose(position: Any, quaternion: Any) -> kd.Pose:
    w, x, y, z = (float(q) for q in np.asarray(quaternion) / np.linalg.norm(quaternion))
    return kd.Pose(_vector(position), (w, x, y, z))
