"""Kinema's robots as MJCF, for MuJoCo: the same bodies, joints, springs and feet, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from kinema.scene.description import FREE, PRISMATIC, REVOLUTE, SPHERE, Body, Robot

_JOINTS = {REVOLUTE: "hinge", PRISMATIC: "slide"}


def write(
    robots: Sequence[tuple[str, Robot, tuple[float, float, float]]],
    dt: float,
    friction: float = 0.0,
    solver: str = "Newton",
    ground: bool = True,
) -> str:
    """The text of a MuJoCo model.

    Options are MuJoCo's defaults (at most 100 iterations, tolerance 1e-8, pyramidal cones, Euler), except given ones.

    Args:
        robots: Names, robots and positions [m].
        dt: Time step [s].
        friction: Coefficient of sliding friction.
        solver: Newton, CG or PGS.
        ground: Whether to add a plane; only spheres collide with it, and not with each other.
    """
    root = ElementTree.Element("mujoco")
    ElementTree.SubElement(root, "compiler", angle="radian", autolimits="false")
    ElementTree.SubElement(root, "option", timestep=repr(dt), solver=solver)
    world, actuators = ElementTree.SubElement(root, "worldbody"), ElementTree.SubElement(root, "actuator")
    if ground:
        grip = _numbers((friction, 0, 0))
        plane = {"type": "plane", "size": "0 0 1", "friction": grip, "contype": "1", "conaffinity": "0"}
        ElementTree.SubElement(world, "geom", plane, condim="3")
    for name, robot, place in robots:
        inside: dict[str | None, ElementTree.Element] = {None: world}
        for body in robot.bodies:
            position = body.pose.position
            if body.parent is None:
                position = tuple(a + b for a, b in zip(position, place, strict=True))
            of = {"name": f"{name}/{body.name}", "pos": _numbers(position), "quat": _numbers(body.pose.rotation)}
            inside[body.name] = element = ElementTree.SubElement(inside[body.parent], "body", of)
            _fill(element, body, f"{name}/", friction)
            for joint in body.joints:
                if joint.kind != FREE:
                    ElementTree.SubElement(actuators, "motor", joint=f"{name}/{joint.name}")
    return ElementTree.tostring(root, encoding="unicode")


def _fill(element: ElementTree.Element, body: Body, prefix: str, friction: float) -> None:
    for joint in body.joints:
        if joint.kind == FREE:
            ElementTree.SubElement(element, "freejoint", name=prefix + joint.name)
            continue
        words = {n: repr(getattr(joint, n)) for n in ("stiffness", "damping", "armature")}
        words |= {"springref": repr(joint.rest), "axis": _numbers(joint.axis), "pos": _numbers(joint.anchor)}
        ElementTree.SubElement(element, "joint", words, name=prefix + joint.name, type=_JOINTS[joint.kind])
    if body.mass is not None:
        xx, xy, xz, yy, yz, zz = body.mass.inertia
        words = {"mass": repr(body.mass.mass), "pos": _numbers(body.mass.com)}
        ElementTree.SubElement(element, "inertial", words, fullinertia=_numbers((xx, yy, zz, xy, xz, yz)))
    for shape in body.shapes:
        if shape.collides and shape.kind == SPHERE:
            words = {"type": "sphere", "size": _numbers(shape.size), "pos": _numbers(shape.pose.position)}
            words |= {"contype": "0", "conaffinity": "1", "friction": _numbers((friction, 0, 0)), "mass": "0"}
            ElementTree.SubElement(element, "geom", words)


def _numbers(values: Iterable[float]) -> str:
    return " ".join(repr(float(x)) for x in values)
