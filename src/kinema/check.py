"""`kinema check FILE`: what a robot file holds, and whether it makes sense."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from kinema.errors import ModelError
from kinema.model.tree import Placed, TreeArrays, build_tree
from kinema.scene.description import Body, Joint, Robot
from kinema.scene.io.mjcf import read_mjcf
from kinema.scene.io.urdf import read_urdf

Rows = list[list[str]]


def read(path: Path, floating: bool = False) -> tuple[Robot, TreeArrays]:
    """Read a robot file and compile it.

    Args:
        path: A .urdf or .xml (MJCF) file; meshes that are missing are left out and noted.
        floating: Whether nothing holds the root.

    Raises:
        ModelError: The file is refused, or cannot be compiled.
    """
    if path.suffix == ".urdf":
        robot = read_urdf(path, floating=floating, meshes="skip")
    elif path.suffix in (".xml", ".mjcf"):
        robot = read_mjcf(path)
    else:
        raise ModelError(f"{path} is of no known kind", expected="a .urdf file, or an .xml file in MJCF")
    return robot, build_tree([Placed(robot.name or "robot", robot)])


def bodies(robot: Robot) -> Rows:
    """Name, parent, mass, principal moments and shapes of every body."""
    return [[b.name, b.parent or "-", *_mass(b), _shapes(b)] for b in robot.bodies]


def joints(robot: Robot) -> Rows:
    """Name, kind, axis, limits and damping of every joint that moves."""
    found = [(b, j) for b in robot.bodies for j in b.joints if j.kind != "fixed"]
    return [[j.name, b.name, j.kind, _axis(j), _limits(j), f"{j.effort:g}", f"{j.damping:g}"] for b, j in found]


def summary(robot: Robot, tree: TreeArrays) -> Rows:
    """Totals, and what deserves a look."""
    mass = sum(b.mass.mass for b in robot.bodies if b.mass)
    rows = [
        ["coordinates", str(tree.nq)],
        ["velocities", str(tree.nv)],
        ["mass", f"{mass:.6g} kg"],
        ["actuators", str(len(robot.actuators))],
        ["closed loops", str(len(robot.closures))],
    ]
    rows += [["odd", text] for b in robot.bodies for text in _odd(b)]
    return rows + [["left out", note] for note in robot.notes]


def _principal(body: Body) -> np.ndarray:
    assert body.mass is not None
    xx, xy, xz, yy, yz, zz = body.mass.inertia
    return np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _mass(body: Body) -> tuple[str, str]:
    if body.mass is None:
        return "-", "-"
    return f"{body.mass.mass:.4g}", " ".join(f"{x:.3g}" for x in _principal(body))


def _odd(body: Body) -> list[str]:
    """What is possible but rarely meant."""
    if body.mass is None or body.mass.mass == 0:
        return []
    moments, mass = _principal(body), body.mass.mass
    if moments[-1] <= 0:
        return [f"{body.name} has mass but no inertia: a point"]
    size = math.sqrt(5 * moments[-1] / mass)  # radius of a ball of this mass and inertia is sqrt(5/2 I / m)
    if size > 10:
        return [
            f"{body.name}: an inertia of {moments[-1]:.3g} kg m^2 for {mass:.3g} kg is that of a body {size:.0f} m wide"
        ]
    if moments[0] + moments[1] < 0.999 * moments[2]:
        return [f"{body.name}: no mass distribution has the principal moments {moments}"]
    return []


def _axis(joint: Joint) -> str:
    return " ".join(f"{x:.3g}" for x in joint.axis) if joint.kind in ("revolute", "prismatic") else "-"


def _limits(joint: Joint) -> str:
    return f"{joint.lower:.4g} .. {joint.upper:.4g}" if math.isfinite(joint.upper - joint.lower) else "none"


def _shapes(body: Body) -> str:
    kinds = [s.kind for s in body.shapes if s.collides]
    return ", ".join(f"{kinds.count(k)} {k}" for k in dict.fromkeys(kinds)) or "-"
