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

Settings that belong to the scene (time step, integrator, gravity, cones) are the robot's `options`, which
`Scene.from_mjcf` takes over; solref, solimp and whatever else describes contacts act in the contact law "convex". The
reader refuses features that affect the motion and that a `Robot` cannot express, or leaves them out with a note if the
caller lists them in `ignore`; it leaves out features without effect on the motion with a note.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from kinema.errors import InputError, ModelError
from kinema.scene import description as kd
from kinema.scene.io.files import warn_of
from kinema.scene.io.mjcf_scan import Scan
from kinema.scene.io.mjmodel.actuators import actuator_of
from kinema.scene.io.mjmodel.bodies import drag_of, joint_of, mass_of
from kinema.scene.io.mjmodel.checks import check_numbers, note_the_rest, refuse_medium_and_others
from kinema.scene.io.mjmodel.collisions import collision_groups, excluded_pairs
from kinema.scene.io.mjmodel.compiled import Compiled, pose_of
from kinema.scene.io.mjmodel.equalities import equalities
from kinema.scene.io.mjmodel.keyframes import keyframes_of
from kinema.scene.io.mjmodel.shapes import shape_of
from kinema.scene.io.mjmodel.softness import contact_pairs, options_of
from kinema.scene.io.mjmodel.tendons import tendons_of

OLDEST = 4  # oldest supported major version of MuJoCo

IGNORABLE = {
    "actuators": "actuators with delays or dynamics of users, or that drive a ball joint or a slider-crank",
    "closures": "equality constraints other than connect, weld and linear joint couplings",
    "contact": "friction of contact pairs, adhesion, moving surfaces",
    "fluid": "a medium's drag, and fluid shapes",
    "shapes": "colliding signed distance fields",
    "springs": "springs and dampers that are not linear, springs of free and ball joints",
    "tendons": "tendons with friction or inertia, and nonlinear or plastic springs of tendons",
}


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
    scan = Scan(source, roots)
    if text is not None:
        scan.text(text)
    else:
        scan.file(os.path.abspath(source))
    model, warnings = _compile(mujoco, source, text, len(scan.files) <= 1)
    robot = _robot(Compiled(mujoco, model, source, scan.places, frozenset(ignore), warnings))
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


def _robot(c: Compiled) -> kd.Robot:
    """The robot description."""
    m = c.m
    check_numbers(c)
    refuse_medium_and_others(c)
    groups, masks = collision_groups(c)
    shapes: list[list[kd.Shape]] = [[] for _ in range(m.nbody)]
    named: dict[int, str] = {}
    for g in range(m.ngeom):
        if (shape := shape_of(c, g, groups[g], masks[g])) is not None:
            b = m.geom_bodyid[g]
            if shape.collides:
                named[g] = f"{c.body_names[b] if b else 'world'}/{shape.name or len(shapes[b])}"
            shapes[b].append(shape)
    closures, mimics = equalities(c)
    sites: list[list[kd.Site]] = [[] for _ in range(m.nbody)]
    for s, site in enumerate(c.site_names):
        sites[m.site_bodyid[s]].append(kd.Site(site, pose_of(m.site_pos[s], m.site_quat[s])))
    on_world = tuple(shapes[0]), tuple(sites[0])
    bodies = [kd.Body("world", shapes=on_world[0], sites=on_world[1])] if any(on_world) else []
    for b in range(1, m.nbody):
        first, parent = int(m.body_jntadr[b]), int(m.body_parentid[b])
        joints = tuple(joint_of(c, j, mimics) for j in range(first, first + int(m.body_jntnum[b])))
        pose = pose_of(m.body_pos[b], m.body_quat[b])
        name = c.body_names[b]
        above = c.body_names[parent] if parent else None
        body = kd.Body(name, above, pose, joints, mass_of(c, b), tuple(shapes[b]), tuple(sites[b]))
        bodies.append(replace(body, gravcomp=float(m.body_gravcomp[b]), drag=drag_of(c, b)))
    tendons = tendons_of(c)
    pulled = frozenset(tendon.name for tendon in tendons)
    actuators = tuple(a for i in range(m.nactuator) if (a := actuator_of(c, i, pulled)) is not None)
    excluded = excluded_pairs(c, shapes)
    note_the_rest(c)
    options = options_of(c)
    name = m.names.split(b"\0", 1)[0].decode(errors="replace")
    return kd.Robot(
        name,
        tuple(bodies),
        actuators,
        closures,
        excluded,
        source=c.source,
        notes=tuple(c.notes),
        tendons=tendons,
        keyframes=keyframes_of(c),
        pairs=contact_pairs(c, named),
        options=options,
    )
