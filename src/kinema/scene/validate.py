"""Validation of robot descriptions: finite values within their ranges, known kinds."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from kinema.errors import ModelError
from kinema.scene.activation import KINDS as ACTIVATIONS
from kinema.scene.activation import Activation, Muscle
from kinema.scene.description import Actuator, Body, Closure, Drag, Joint, MassProperties, Mesh, Pose, Robot, Shape
from kinema.scene.io.inertia_check import physical_inertia
from kinema.scene.joint_types import RANGE, SINGLE, TYPES
from kinema.scene.shape_kinds import SHAPE_KINDS
from kinema.scene.softness import ContactSurface, expect_softness
from kinema.scene.tendons import Pulley, Tendon, Wrap

CLOSURES = ("connect", "weld")
GENERAL = "general"
NOT_NEGATIVE = ("armature", "damping", "stiffness", "friction", "limit_margin")
MAY_BE_INFINITE = ("effort", "velocity")


def check_robot(name: str, robot: Robot) -> None:
    """Raise ModelError for invalid values or kinds in a robot; the message names the part and the value.

    `model.tree` checks names and topology.

    Args:
        name: Name of the robot in its scene, for messages.
        robot: From Python or a reader.
    """
    for body in robot.bodies:
        _check_body(f"{name}/{body.name}", body)
        for joint in body.joints:
            _check_joint(f"{name}/{joint.name}", joint)
    for actuator in robot.actuators:
        _check_actuator(f"{name}/{actuator.name}", actuator)
    for tendon in robot.tendons:
        _check_tendon(f"{name}/{tendon.name}", tendon)
    for closure in robot.closures:
        _check_closure(f"{name}/{closure.name}", closure)


def _check_body(name: str, body: Body) -> None:
    _check_pose(f"the pose of body {name!r}", body.pose)
    for number, shape in enumerate(body.shapes):
        check_shape(f"{name}/{shape.name or number}", shape)
    for site in body.sites:
        _check_pose(f"the pose of site {site.name!r} on body {name!r}", site.pose)
    if body.drag is not None:
        _check_drag(f"the drag of body {name!r}", body.drag)
    _check_finite(f"gravcomp of body {name!r}", (body.gravcomp,), 1)
    if body.mass is not None:
        _check_mass(name, body.mass)


def _check_mass(name: str, mass: MassProperties) -> None:
    _check_not_negative(f"the mass of body {name!r}", mass.mass)
    _check_finite(f"the centre of mass of body {name!r}", mass.com, 3)
    _check_finite(f"the inertia of body {name!r}", mass.inertia, 6)
    if any(mass.inertia):  # otherwise a point mass
        xx, xy, xz, yy, yz, zz = mass.inertia
        try:
            physical_inertia(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), f"body {name!r}", thin=True)
        except ModelError as error:
            error.fix = "correct the inertia, or compute it from shapes: kinema.mass_properties(...)"
            raise


def _check_drag(name: str, drag: Drag) -> None:
    for word in ("density", "viscosity"):
        _check_not_negative(f"the {word} in {name}", getattr(drag, word))
    _check_finite(f"the wind in {name}", drag.wind, 3)
    _check_finite(f"the rotation in {name}", drag.rotation, 4)
    _check_finite(f"the box in {name}", drag.box, 3)
    if min(drag.box) < 0 or not any(drag.rotation):
        raise ModelError(f"{name} is not usable", got=drag.box, expected="sides of zero or more, a unit quaternion")


def _check_joint(name: str, joint: Joint) -> None:
    if joint.kind not in TYPES:
        fix = "kind='revolute', without limits" if joint.kind in ("continuous", "hinge") else None
        raise ModelError(f"joint {name!r} is of unknown kind", got=joint.kind, expected=", ".join(TYPES), fix=fix)
    kind = TYPES[joint.kind]
    if kind.has_axis and (len(joint.axis) != 3 or not 0 < np.linalg.norm(joint.axis) < np.inf):
        raise ModelError(f"the axis of joint {name!r} has no direction", got=joint.axis, expected="a unit vector")
    _check_finite(f"the anchor of joint {name!r}", joint.anchor, 3)
    _check_finite(f"the rest of joint {name!r}", (joint.rest,), 1)
    for word in (*NOT_NEGATIVE, *MAY_BE_INFINITE):
        _check_not_negative(f"the {word} of joint {name!r}", getattr(joint, word), infinite=word in MAY_BE_INFINITE)
    if joint.stiffness and not kind.is_single:
        raise ModelError(
            f"{joint.kind} joint {name!r} has a spring, which only {' and '.join(SINGLE)} joints can have",
            got=f"stiffness {joint.stiffness:g}",
            expected="stiffness 0",
            fix="replace it by three revolute joints with springs, or pass torques to simulate",
        )
    if kind.limit == RANGE:
        _check_range(f"the limits of joint {name!r}", joint.lower, joint.upper)
    for word in ("limit_softness", "friction_softness"):
        if getattr(joint, word) is not None:
            expect_softness(f"the {word} of joint {name!r}", getattr(joint, word))
    if joint.mimic is not None:
        _check_finite(f"the mimic of joint {name!r}", (joint.mimic.multiplier, joint.mimic.offset), 2)
        _check_finite(f"the polynomial of the mimic of joint {name!r}", joint.mimic.higher, 3)
        if joint.mimic.softness is not None:
            expect_softness(f"the softness of the mimic of joint {name!r}", joint.mimic.softness)


def check_shape(name: str, shape: Shape) -> None:
    """Raise ModelError for an unknown shape kind or invalid values; `name` is for messages."""
    if shape.kind not in SHAPE_KINDS:
        raise ModelError(f"shape {name!r} is of unknown kind", got=shape.kind, expected=", ".join(SHAPE_KINDS))
    _check_pose(f"the pose of shape {name!r}", shape.pose)
    kind = SHAPE_KINDS[shape.kind]
    count = len(kind.sizes)
    if not kind.meshed and (len(shape.size) != count or not all(0 < length < math.inf for length in shape.size)):
        numbers = f"{count} positive {'number' if count == 1 else 'numbers'} [m]"
        expected = f"{numbers}: {', '.join(kind.sizes)}" if count else "no numbers"
        raise ModelError(f"the size of {shape.kind} {name!r} is not usable", got=shape.size, expected=expected)
    if kind.meshed:
        _check_mesh(f"{shape.kind} {name!r}", shape.mesh)
    if shape.friction is not None:
        _check_not_negative(f"the friction of shape {name!r}", shape.friction)
    if shape.surface is not None and not isinstance(shape.surface, ContactSurface):
        what = f"the surface of shape {name!r} is not a ContactSurface"
        raise ModelError(what, got=repr(shape.surface), expected="kinema.ContactSurface(...), or None for the scene's")
    if shape.restitution is not None and not 0 <= shape.restitution <= 1:
        what = f"the restitution of shape {name!r} is not usable"
        raise ModelError(what, got=shape.restitution, expected="0 to 1, or None for the scene's")


def _check_mesh(name: str, mesh: Mesh | None) -> None:
    if mesh is None:
        raise ModelError(f"{name} has no triangles", fix="Shape(..., mesh=kinema.read_obj(...))")
    vertices, faces = np.asarray(mesh.vertices), np.asarray(mesh.faces)
    if vertices.ndim != 2 or vertices.shape[1] != 3 or not len(vertices) or not np.isfinite(vertices).all():
        got = vertices.shape if np.isfinite(vertices).all() else "values that are not finite"
        raise ModelError(f"the vertices of {name} are not usable", got=got, expected="finite, shape (vertices, 3)")
    if faces.ndim != 2 or faces.shape[1] != 3 or (faces.size and not 0 <= faces.min() <= faces.max() < len(vertices)):
        got = f"shape {faces.shape}, {len(vertices)} vertices"
        raise ModelError(f"the faces of {name} are not usable", got=got, expected="vertex indices, shape (faces, 3)")


def _check_actuator(name: str, actuator: Actuator) -> None:
    _check_finite(f"the gear of actuator {name!r}", (actuator.gear,), 1)
    for word in ("kp", "kd"):
        _check_not_negative(f"{word} of actuator {name!r}", getattr(actuator, word))
    _check_not_negative(f"the force of actuator {name!r}", actuator.force, infinite=True)
    _check_range(f"the bounds of actuator {name!r}", actuator.lower, actuator.upper)
    targets = [one for one in (actuator.joint, actuator.tendon, actuator.site) if one]
    if len(targets) != 1:
        got, expected = ", ".join(map(repr, targets)) or "nothing", "one of joint, tendon and site"
        raise ModelError(f"actuator {name!r} does not drive one thing", got=got, expected=expected)
    if actuator.kind != GENERAL:
        if actuator.activation is not None or actuator.muscle is not None:
            what = f"actuator {name!r} has an activation or a muscle"
            raise ModelError(what, got=actuator.kind, expected=f"kind={GENERAL!r}")
        if not actuator.joint:
            expected = f"kind={GENERAL!r}, with gain and bias"
            raise ModelError(f"actuator {name!r} drives a tendon or a site", got=actuator.kind, expected=expected)
        return
    for word in ("gain", "bias"):
        _check_finite(f"the {word} of actuator {name!r}", getattr(actuator, word), 3)
    _check_finite(f"the offset of actuator {name!r}", (actuator.offset,), 1)
    if actuator.site:
        _check_finite(f"the wrench of actuator {name!r}", actuator.wrench, 6)
    if actuator.activation is not None:
        _check_activation(name, actuator.activation)
    if actuator.muscle is not None:
        _check_muscle(name, actuator.muscle)
    if actuator.least_force is not None:
        _check_range(f"the bounds of the force of actuator {name!r}", actuator.least_force, actuator.force)


def _check_activation(name: str, given: Activation) -> None:
    if not isinstance(given, Activation) or given.kind not in ACTIVATIONS:
        got, expected = getattr(given, "kind", repr(given)), ", ".join(ACTIVATIONS)
        raise ModelError(f"the activation of actuator {name!r} is of unknown kind", got=got, expected=expected)
    _check_finite(f"the times of the activation of actuator {name!r}", given.times, 3)
    for time in given.times:
        _check_not_negative(f"a time of the activation of actuator {name!r}", time)
    _check_range(f"the bounds of the activation of actuator {name!r}", given.lower, given.upper)


def _check_muscle(name: str, given: Muscle) -> None:
    if not isinstance(given, Muscle):
        raise ModelError(f"the muscle of actuator {name!r} is not a Muscle", got=repr(given))
    for word in ("force", "lmin", "lmax", "vmax", "fpmax", "fvmax"):
        _check_not_negative(f"{word} of muscle {name!r}", getattr(given, word))
    for word in ("lengths", "range"):
        _check_finite(f"{word} of muscle {name!r}", getattr(given, word), 2)
        if not getattr(given, word)[0] < getattr(given, word)[1]:
            expected = "the smaller number first"
            raise ModelError(f"{word} of muscle {name!r} are not usable", got=getattr(given, word), expected=expected)
    if not given.lmin < 1 < given.lmax:
        got = (given.lmin, given.lmax)
        raise ModelError(f"the lengths of muscle {name!r} are not usable", got=got, expected="lmin < 1 < lmax")


def _check_tendon(name: str, tendon: Tendon) -> None:
    if bool(tendon.joints) == bool(tendon.sites) or len(tendon.sites) == 1:
        got = f"{len(tendon.joints)} joints, {len(tendon.sites)} sites"
        raise ModelError(f"tendon {name!r} has no way", got=got, expected="joints, or at least two sites")
    _check_way(name, tendon)
    for joint, coefficient in tendon.joints:
        _check_finite(f"the coefficient of joint {joint!r} in tendon {name!r}", (coefficient,), 1)
    _check_finite(f"the offset of tendon {name!r}", (tendon.offset,), 1)
    for word in ("stiffness", "damping"):
        _check_not_negative(f"the {word} of tendon {name!r}", getattr(tendon, word))
    _check_range(f"the limits of tendon {name!r}", tendon.lower, tendon.upper)
    _check_finite(f"the rest of tendon {name!r}", tendon.rest, 2)
    _check_range(f"the rest of tendon {name!r}", *tendon.rest)


def _check_way(name: str, tendon: Tendon) -> None:
    """The order of sites, wraps and pulleys."""
    kinds = "".join({Wrap: "w", Pulley: "p"}.get(type(one), "s") for one in tendon.sites)
    if kinds and not re.fullmatch("(p?s(w?s)+)+", kinds.replace("psp", "p")):
        expected = "sites, with at most one Wrap between two of them, and a Pulley before at least two sites"
        raise ModelError(f"tendon {name!r} has no way", got=f"{len(kinds)} parts in this order", expected=expected)
    for one in tendon.sites:
        if isinstance(one, Wrap):
            _check_pose(f"the wrap of tendon {name!r}", Pose(one.position, one.rotation))
            _check_not_negative(f"the radius of the wrap of tendon {name!r}", one.radius)
        elif isinstance(one, Pulley) and not 0 < one.divisor < math.inf:
            raise ModelError(
                f"a pulley of tendon {name!r} is not usable", got=one.divisor, expected="a positive divisor"
            )


def _check_closure(name: str, closure: Closure) -> None:
    if closure.kind not in CLOSURES:
        raise ModelError(f"loop {name!r} is of unknown kind", got=closure.kind, expected=", ".join(CLOSURES))
    for pose in (closure.first_pose, closure.second_pose):
        _check_pose(f"a pose of loop {name!r}", pose)
    _check_not_negative(f"the torque_scale of loop {name!r}", closure.torque_scale)
    if closure.softness is not None:
        expect_softness(f"the softness of loop {name!r}", closure.softness)


def _check_pose(what: str, pose: Pose) -> None:
    _check_finite(f"the position in {what}", pose.position, 3)
    _check_finite(f"the rotation in {what}", pose.rotation, 4)
    if not any(pose.rotation):
        what, expected = f"the quaternion in {what} is zero", "a unit quaternion (w, x, y, z)"
        raise ModelError(what, got=pose.rotation, expected=expected, fix="the identity is (1, 0, 0, 0)")


def _check_finite(what: str, given: Sequence[float], count: int) -> None:
    if len(given) != count or not all(map(math.isfinite, given)):
        got, expected = given if count > 1 else given[0], f"{count} finite numbers" if count > 1 else "a finite number"
        raise ModelError(f"{what} is not usable", got=got, expected=expected)


def _check_not_negative(what: str, given: float, infinite: bool = False) -> None:
    if math.isnan(given) or given < 0 or (given == math.inf and not infinite):
        expected = "zero or more" if infinite else "zero or more, and finite"
        raise ModelError(f"{what} is not usable", got=given, expected=expected)


def _check_range(what: str, lower: float, upper: float) -> None:
    if not lower <= upper or lower == math.inf or upper == -math.inf:
        problem = "are reversed" if lower > upper else "are not usable"
        expected = "lower <= upper; -inf and inf for none"
        raise ModelError(f"{what} {problem}", got=f"lower {lower:g}, upper {upper:g}", expected=expected)
