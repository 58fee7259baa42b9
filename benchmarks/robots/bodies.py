"""Spheres and boxes in a pile and apart, and a long chain: how cost grows with size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

import kinema as kn
from kinema.scene.description import CAPSULE, REVOLUTE, Body, Joint, Pose, Robot, Shape
from kinema.scene.mass_properties import mass_properties
from kinema.verification.mujoco_scene import state_from_mujoco

from .scenes import DT, LAWS, Pair, of_scene

RADIUS = 0.05  # m, of spheres; boxes have half sides of this length
JITTER = 2e-3  # m
SETTLING = 0.2  # s that a pile settles for before the measurement begins
LINK = 0.1  # m
FAR = 10.0  # m between the floor and the chain


def heap(kind: str, count: int, apart: bool) -> Pair:
    """Bodies on the floor: side by side without touching each other, or in layers between four walls.

    Args:
        kind: "sphere" or "box".
        count: Number of bodies.
        apart: Whether they are apart.
    """
    random = np.random.default_rng(count)
    side = int(np.ceil(count ** (1 / 2 if apart else 1 / 3) - 1e-9))
    gap = 4.0 * RADIUS if apart else 2.02 * RADIUS
    places = []
    for i in range(count):
        x, y, z = i % side, i // side % side, 0 if apart else i // side**2
        shift = JITTER * random.uniform(-1, 1, 2) * (0.2 if kind == "box" else 1.0)
        odd = RADIUS * (z % 2) if kind == "sphere" else 0.0  # spheres lie in hollows
        height = (1.45 if kind == "sphere" else 2.001) * RADIUS
        places.append((gap * x + shift[0] + odd, gap * y + shift[1] + odd, RADIUS + height * z))

    def fill(scene: kn.Scene) -> None:
        # Room for all pairs within the margin of the hard law, as its message asks for.
        scene.contact = replace(scene.contact, max_contacts=max(30 * count, scene.contact.max_contacts))
        scene.add_ground()
        if not apart:
            _add_walls(scene, gap * side + (RADIUS if kind == "sphere" else 0.0))
        for i, place in enumerate(places):
            shape = kn.Sphere(RADIUS) if kind == "sphere" else kn.Box((RADIUS,) * 3)
            scene.add_body(shape, f"{kind}_{i}", pos=place)

    made = of_scene(fill)
    made.rival.opt.solver = 1  # CG: quick on large piles
    return made if apart else _settled(made)


def _add_walls(scene: kn.Scene, width: float) -> None:
    """Four planes that face inwards, around a square whose first body is in a corner."""
    near, far, h = -1.1 * RADIUS, width - 0.9 * RADIUS, 0.5**0.5
    walls = {
        "left": ((near, 0.0, 0.0), (h, 0.0, h, 0.0)),
        "right": ((far, 0.0, 0.0), (h, 0.0, -h, 0.0)),
        "front": ((0.0, near, 0.0), (h, -h, 0.0, 0.0)),
        "back": ((0.0, far, 0.0), (h, h, 0.0, 0.0)),
    }
    for name, (place, turn) in walls.items():
        scene.add_body(kn.Plane(), name, fixed=True, pos=place, rot=turn)


def _settled(made: Pair) -> Pair:
    """The pair after `SETTLING` in MuJoCo."""
    import mujoco

    data = mujoco.MjData(made.rival)
    data.qpos[:], data.qvel[:] = made.state
    for _ in range(round(SETTLING / DT)):
        mujoco.mj_step(made.rival, data)
    q, v = state_from_mujoco(made.models[LAWS[0]], made.rival, data.qpos, data.qvel)
    return replace(made, q=q, v=v)


def chain(links: int, limited: bool) -> Pair:
    """Hinges in a row, hanging from the world far above the floor; one may have a limit that it never reaches."""
    shape = Shape(CAPSULE, (0.01, LINK / 2), Pose((0.0, 0.0, -LINK / 2)), collides=False)
    mass = mass_properties(shape, density=1000.0)
    bodies = []
    for i in range(links):
        limits = {"lower": -3.0, "upper": 3.0} if limited and i == links // 2 else {}
        axis = (0.0, 1.0, 0.0) if i % 2 else (1.0, 0.0, 0.0)
        joint = Joint(f"hinge_{i}", REVOLUTE, axis, damping=0.01, **limits)
        place = Pose((0.0, 0.0, -LINK if i else FAR))
        bodies.append(Body(f"link_{i}", f"link_{i - 1}" if i else None, place, (joint,), mass, (shape,)))
    robot = Robot("chain", tuple(bodies))

    def fill(scene: kn.Scene) -> None:
        scene.add_robot(robot, "chain")

    def bend(model: kn.Model, q: Tensor) -> None:
        q.copy_(0.02 * torch.arange(links, dtype=torch.float64).sin())

    return of_scene(fill, start=bend)
