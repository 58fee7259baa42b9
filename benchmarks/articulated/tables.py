"""Parameters of the quadruped for PyTorch and JAX, read from Kinema's model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import kinema as kn

from . import scene


@dataclass(frozen=True)
class Tables:
    """One robot: link 0 is the trunk, joint i > 0 rotates link i; coordinate 6 + i, velocity 5 + i.

    Attributes:
        parent: Parent of each link.
        offset: Position of the joint in the parent's frame [m], per link.
        axis: Unit vector in the frames of both links, per link.
        mass, com, inertia: [kg], [m] in the link's frame, [kg m^2] about the centre of mass, per link.
        stiffness, damping, rest, armature: Parameters of the joints, shape (12,).
        foot_link, foot_centre: Links with a foot, centres of the feet in their frames [m].
        radius, mu, height, erp, cfm, margin, restitution, threshold: Parameters of feet and ground, see
            `Scene.add_ground`.
        gravity: Gravity [m/s^2].
        dt: Time step [s].
        sweeps: Number of PGS iterations.
        relaxation: Over-relaxation factors of normal and of friction rows.
        nv: Number of velocities.
    """

    parent: list[int]
    offset: Any
    axis: Any
    mass: list[float]
    com: Any
    inertia: Any
    stiffness: Any
    damping: Any
    rest: Any
    armature: Any
    foot_link: list[int]
    foot_centre: Any
    radius: float
    mu: float
    height: float
    erp: float
    cfm: float
    margin: float
    restitution: float
    threshold: float
    gravity: Any
    dt: float
    sweeps: int
    relaxation: tuple[float, float]
    nv: int


def tables(model: kn.Model, array: Callable[[np.ndarray], Any]) -> Tables:
    """Read a model of one robot.

    Args:
        model: The model.
        array: Converts a numpy array to an array of the library.
    """
    tree, feet, contact = model.tree, model.candidates.pairs["sphere_plane"]["first"], model.contact
    assert len(feet) == len(model.candidates) == 4 and model.nv == 18
    assert np.allclose(tree.rotation, np.eye(3)), "the frames of neighbours are parallel"
    assert np.allclose(tree.body_rotation, np.eye(3)) and not tree.body_offset.any(), "a link is its body"
    assert (tree.body_link == np.arange(1, 14)).all()
    xx, xy, xz, yy, yz, zz = np.asarray(tree.inertia).T
    inertia = np.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz], -1).reshape(-1, 3, 3)
    joints = {name: array(getattr(tree, name)[6:]) for name in ("stiffness", "damping", "rest", "armature")}
    world = {n: float(getattr(contact, n)) for n in ("erp", "cfm", "margin", "restitution", "threshold")}
    return Tables(
        parent=[int(p) - 1 for p in tree.parent],
        offset=array(np.asarray(tree.offset)),
        axis=array(np.asarray(tree.axis)),
        mass=[float(m) for m in tree.mass],
        com=array(np.asarray(tree.com)),
        inertia=array(inertia),
        foot_link=[int(link) - 1 for link in model.candidates.first],
        foot_centre=array(model.shapes.offset[feet]),
        radius=float(model.shapes.size[feet[0], 0]),
        mu=float(model.candidates.friction[0]),
        height=0.0,
        gravity=array(np.asarray(model.gravity)),
        dt=scene.DT,
        sweeps=int(contact.iterations),
        relaxation=contact.relaxation,
        nv=model.nv,
        **joints,
        **world,
    )
