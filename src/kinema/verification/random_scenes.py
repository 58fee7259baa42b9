"""Finite gradients of random scenes of rigid bodies in contact, including singular geometry.

Shared by the tests, which try hundreds of scenes, and `kinema verify --full`, which tries thousands. A seed is a
structure: robots, free rigid bodies, ground, terrain, joints with limits, friction, mimic joints and loops, actuators,
a contact law. Its worlds share that structure and the compiled kernels; all parameters and the state differ from world
to world, and cover every kind of state of KINDS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from kinema.kinematics.joint_types import BALL, FREE
from kinema.lang.autograd.options import RunOptions
from kinema.model.model import Model, compile
from kinema.model.state import State
from kinema.scene.contact import COMPLIANT, MLCP, Contact
from kinema.scene.description import (
    BOX,
    CAPSULE,
    CYLINDER,
    MESH,
    SPHERE,
    Actuator,
    Body,
    Closure,
    Joint,
    MassProperties,
    Mesh,
    Mimic,
    Pose,
    Robot,
    Shape,
)
from kinema.scene.description import FREE as FREE_JOINT
from kinema.scene.joint_types import ANGLE, SINGLE, TYPES
from kinema.scene.scene import Scene
from kinema.scene.shape_kinds import SHAPE_KINDS
from kinema.scene.shapes.height_field import height_field
from kinema.scene.shapes.random_tree import random_tree
from kinema.simulation.control import Control
from kinema.simulation.simulate import simulate

STEPS, DT = 3, 2e-3
TOUCHING = 0.7  # required fraction of scenes with a contact impulse: fewer would test little
KINDS = ("random", "at rest", "deep", "aligned", "touching", "coincident", "stretched")
"""States of worlds: random; as placed, without motion; bodies through the ground and each other; rotated by multiples
of 90 degrees; the same, and on each other and the ground with zero gaps; all free bodies at one position, some of zero
size; quaternions that are not of unit length."""

SOLIDS = (SPHERE, CAPSULE, BOX, CYLINDER, MESH)
_QUARTER = np.sqrt(0.5)
_TURNS = np.array(
    [(1, 0, 0, 0), (_QUARTER, _QUARTER, 0, 0), (_QUARTER, 0, _QUARTER, 0), (0.5, 0.5, 0.5, 0.5), (0, 1, 0, 0)]
)


@dataclass
class Outcome:
    """Results for some scenes.

    Attributes:
        scenes: Number of scenes.
        finite: Number of scenes with finite outputs.
        touching: Number of scenes with a contact impulse.
        limited: Number of scenes with a limit impulse.
        wrong: Scenes with finite outputs but a non-finite gradient: seed, kind of state, names of inputs.
    """

    scenes: int = 0
    finite: int = 0
    touching: int = 0
    limited: int = 0
    wrong: list[str] = field(default_factory=list)


def try_scenes(seed: int, worlds: int, outcome: Outcome, together: int = 0, dtype: torch.dtype = torch.float64) -> None:
    """Simulate the worlds of a structure for some steps, and compute their gradients to every input.

    Args:
        seed: Seed of the structure and its worlds.
        worlds: Number of worlds; at least `len(KINDS)` for all kinds of states.
        outcome: Results, which are updated.
        together: Worlds in a batch, all by default. Results are bitwise independent of it, but small batches use
            different kernels.
        dtype: Precision.
    """
    for model, leaves, kinds in batches(random_structure, KINDS, _inputs, seed, worlds, together, dtype):
        _try_batch(model, leaves, kinds, f"seed {seed}", outcome)


def batches(
    scene: Callable[[np.random.Generator], Scene],
    kinds: Sequence[str],
    inputs: Callable[[Model, Sequence[str], np.random.Generator], dict[str, Tensor]],
    seed: int,
    worlds: int,
    together: int,
    dtype: torch.dtype,
) -> Iterator[tuple[Model, dict[str, Tensor], list[str]]]:
    """Batches of worlds of one structure: the model, inputs that require gradients, and the kinds of their states.

    Args:
        scene: Builds the structure.
        kinds: Kinds of states, assigned to worlds in turn.
        inputs: Builds state, controls and parameters of all worlds.
        seed: Random seed.
        worlds: Number of worlds.
        together: Worlds in a batch; 0 for all.
        dtype: Precision.
    """
    random = np.random.default_rng(seed)
    model = compile(scene(random), dtype)
    chosen = [kinds[w % len(kinds)] for w in range(worlds)]
    given = inputs(model, chosen, random)
    for first in range(0, worlds, together or worlds):
        some = slice(first, first + (together or worlds))
        yield model, {n: t[some].to(dtype).requires_grad_() for n, t in given.items()}, chosen[some]


def _try_batch(model: Model, leaves: dict[str, Tensor], kinds: Sequence[str], name: str, outcome: Outcome) -> None:
    limited, touching = bool(model.constraints.limit_names), len(model.candidates) > 0
    hard = model.hard_candidates > 0
    pushed = next(b for b, link in zip(model.bodies, model.tree.body_link, strict=True) if link)
    path = simulate(
        model,
        State(leaves["q"], leaves["v"]),
        u=Control(u=leaves.get("u"), tau=leaves["tau"], wrenches={pushed: leaves["wrench"]}),
        steps=STEPS,
        dt=DT,
        params={n: t for n, t in leaves.items() if n not in ("q", "v", "tau", "u", "wrench")},
        record=[
            *("position", "velocity"),
            *("limit_impulse",) * limited,
            *("gap", "point", "normal") * touching,
            *("impulse",) * hard,
        ],
        options=RunOptions(on_failure="status"),
    )
    judge({"q": path.end.q, "v": path.end.v, **path.recorded}, leaves, kinds, name, outcome)
    if touching:
        pressed = path.recorded["impulse"][..., 0] > 0 if hard else path.recorded["gap"] < 0
        outcome.touching += int(pressed.flatten(1).any(1).sum())
    if limited:
        outcome.limited += int((path.recorded["limit_impulse"] > 0).flatten(1).any(1).sum())


def judge(
    outputs: dict[str, Tensor], leaves: dict[str, Tensor], kinds: Sequence[str], name: str, outcome: Outcome
) -> None:
    """Differentiate a random sum of the outputs of finite worlds, and add the results to the outcome."""
    dtype = next(iter(outputs.values())).dtype
    finite = torch.stack([_whole(t) for t in outputs.values()]).all(0)
    generator = torch.Generator().manual_seed(0)
    loss = torch.zeros((), dtype=dtype)
    for t in outputs.values():
        weights = torch.randn(t.shape[1:], dtype=torch.float64, generator=generator).to(dtype)
        loss = loss + (t[finite] * weights).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    broken: dict[int, list[str]] = {}
    for n, gradient in zip(leaves, gradients, strict=True):
        if gradient is not None:
            for w in (finite & ~_whole(gradient)).nonzero().flatten().tolist():
                broken.setdefault(w, []).append(n)
    outcome.wrong += [f"{name} ({kinds[w]}): {', '.join(names)}" for w, names in broken.items()]
    outcome.scenes += len(kinds)
    outcome.finite += int(finite.sum())


def _whole(numbers: Tensor) -> Tensor:
    """Whether all values of a world are finite, shape (worlds,)."""
    return numbers.isfinite().reshape(len(numbers), -1).all(1)


# -- structures ------------------------------------------------------------------------------------------------------


def random_structure(random: np.random.Generator) -> Scene:
    """A scene of one or two robots and up to three free rigid bodies; nine in ten have ground or terrain."""
    law = COMPLIANT if random.random() < 0.2 else MLCP
    scene = Scene(
        contact=Contact(
            law=law,
            cone=bool(random.random() < 0.3),
            restitution=float(random.choice([0.0, 0.5])),
            margin=float(random.choice([0.05, 0.3])),
            iterations=20,
        )
    )
    drawn = random.random()
    if drawn < 0.65:
        scene.add_ground()
    elif drawn < 0.9:
        heights = 0.2 * random.normal(size=(4, 4)) if random.random() < 0.5 else np.zeros((4, 4))
        scene.add_terrain(height_field(heights, 4.0, 4.0))
    for _ in range(int(random.integers(1, 3))):
        x, y = random.uniform(-0.3, 0.3, 2).tolist()
        scene.add_robot(_robot(random), pos=(x, y, 0.4), self_collision=bool(random.random() < 0.5))
    for _ in range(int(random.integers(1, 4))):
        body = Body(
            "b", None, Pose(), (Joint("free", FREE_JOINT),), random_mass(random), (random_shape(random, exact=True),)
        )
        x, y = random.uniform(-0.3, 0.3, 2).tolist()
        scene.add_robot(Robot("loose", (body,)), pos=(x, y, 0.2))
    return scene


def _robot(random: np.random.Generator) -> Robot:
    """A random tree with shapes and, each sometimes, limits, dry friction, a mimic joint, a loop and actuators."""
    count = int(random.integers(1, 5))
    tree = random_tree(int(random.integers(1 << 30)), count, floating=bool(random.random() < 0.6))
    singles: list[str] = []
    bodies = []
    for body in tree.bodies:
        joints = []
        for joint in body.joints:
            words: dict[str, object] = {}
            if random.random() < 0.4:
                words["friction"] = float(random.uniform(0.0, 1.0))
            if TYPES[joint.kind].limit == ANGLE and random.random() < 0.5:
                words["upper"] = float(random.uniform(0.0, 2.5))  # of its rotation angle
            if joint.kind in SINGLE:
                if random.random() < 0.5:
                    words["lower"] = float(random.uniform(-0.5, 0.0))
                    words["upper"] = float(random.uniform(0.0, 0.5)) if random.random() < 0.7 else np.inf
                if singles and random.random() < 0.3:
                    words["mimic"] = Mimic(singles[0], float(random.normal()), 0.1)
                singles.append(joint.name)
            joints.append(replace(joint, **words))  # type: ignore[arg-type]
        shapes = tuple(random_shape(random) for _ in range(int(random.random() < 0.7)))
        bodies.append(replace(body, joints=tuple(joints), shapes=shapes))
    actuators = tuple(
        Actuator(f"motor{i}", name, str(random.choice(["torque", "position", "velocity"])), 2.0, 20.0, 1.0, force=5.0)
        for i, name in enumerate(singles)
        if random.random() < 0.5
    )
    moving = [b for b in bodies if b.joints]
    closures: tuple[Closure, ...] = ()
    if random.random() < 0.3 and moving:
        kind = str(random.choice(["connect", "weld"]))
        closures = (Closure("loop", kind, moving[-1].name, None, Pose((0.0, 0.1, 0.0)), Pose((0.1, 0.0, 0.3))),)
    return Robot("tree", tuple(bodies), actuators, closures)


def random_shape(random: np.random.Generator, exact: bool = False) -> Shape:
    """A shape of any kind; if `exact`, or else half of the time, without a pose."""
    kind = str(random.choice(SOLIDS))
    pose = Pose()
    if not exact and random.random() < 0.5:
        turn = random.normal(size=4)
        place = 0.05 * random.normal(size=3)
        pose = Pose(tuple(place.tolist()), tuple((turn / np.linalg.norm(turn)).tolist()))
    if kind == MESH:
        corners = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
        vertices = 0.1 * (corners if random.random() < 0.5 else random.normal(size=(8, 3)))
        return Shape(MESH, pose=pose, mesh=Mesh(vertices, np.zeros((0, 3), np.int32)))
    return Shape(kind, (0.1,) * len(SHAPE_KINDS[kind].sizes), pose)


def random_mass(random: np.random.Generator) -> MassProperties:
    """The mass of a free body."""
    return MassProperties(float(random.uniform(0.5, 2.0)), (0.0, 0.0, 0.0), (0.01, 0.0, 0.0, 0.012, 0.0, 0.009))


# -- worlds ----------------------------------------------------------------------------------------------------------


def _inputs(model: Model, kinds: Sequence[str], random: np.random.Generator) -> dict[str, Tensor]:
    """State, controls and every parameter of all worlds, each of shape (worlds, ...), float64."""
    worlds = len(kinds)
    states = [_state(model, kind, random) for kind in kinds]
    given = {name: np.stack([s[i] for s in states]) for i, name in enumerate(("q", "v", "size"))}
    given["tau"] = random.normal(size=(worlds, STEPS, model.nv))
    given["wrench"] = random.normal(size=(worlds, STEPS, 6))
    for name, values in model._defaults.items():
        own = np.repeat(values.double().numpy()[None], worlds, 0)
        if name not in given:
            given[name] = _varied(name, own, kinds, random)
    if len(model.actuators):
        given["u"] = random.normal(size=(worlds, STEPS, len(model.actuators)))
    return {name: torch.tensor(a) for name, a in given.items()}


def _varied(name: str, own: np.ndarray, kinds: Sequence[str], random: np.random.Generator) -> np.ndarray:
    """A parameter for every world: the model's, scaled randomly, sometimes exactly zero where that is valid."""
    factor = random.uniform(0.7, 1.3, (len(own),) + (1,) * (own.ndim - 1))
    if name in ("axis", "lower", "upper", "centre", "offset", "rest"):
        return own
    if name in ("friction", "restitution", "dry_friction", "damping", "stiffness", "contact/erp", "contact/cfm"):
        factor = np.where(random.random(factor.shape) < 0.2, 0.0, factor)
    return np.clip(own * factor, None, 1.0) if name in ("restitution", "contact/erp") else own * factor


def _state(model: Model, kind: str, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates, velocities and sizes of shapes of one world."""
    tree, shapes = model.tree, model.shapes
    q, v = tree.q.copy(), random.normal(size=tree.nv)
    size = shapes.size * random.uniform(0.7, 1.3)
    if kind == "at rest":
        return q, np.zeros(tree.nv), shapes.size
    if kind in ("aligned", "touching", "coincident"):
        size = shapes.size * float(kind != "coincident" or random.random() < 0.7)
        v *= random.choice([0.0, 1.0])
    height = 0.0  # of the support of free bodies
    for i, joint in enumerate(tree.kind):
        at, name = int(tree.q_start[i]), tree.joints[i]
        if joint == FREE:
            of = [k for k, link in enumerate(shapes.link) if link == i + 1]
            turn = _TURNS[int(random.integers(len(_TURNS)))]
            if kind == "deep":
                q[at : at + 3] = [*(0.05 * random.normal(size=2)), random.uniform(-0.15, 0.02)]
            elif kind == "coincident":
                q[at : at + 3] = [0.0, 0.0, 0.1]
                turn = _TURNS[0]
            elif kind == "touching" and "loose" in name and of:
                half = 0.1 if shapes.kind[of[0]] != CAPSULE else 0.2
                q[at : at + 3], height, turn = [0.0, 0.0, height + half], height + 2 * half, _TURNS[0]
            elif kind != "aligned":
                q[at : at + 3] += 0.1 * random.normal(size=3)
            exact = kind in ("aligned", "touching", "coincident")
            q[at + 3 : at + 7] = turn if exact else _quaternion(random, kind)
        elif joint == BALL:
            q[at : at + 4] = (
                _TURNS[int(random.integers(len(_TURNS)))] if kind == "aligned" else _quaternion(random, kind)
            )
        elif kind not in ("aligned", "touching", "coincident"):
            q[at : at + tree.coordinates[i]] = random.normal(size=tree.coordinates[i])
    return q, v, size


def _quaternion(random: np.random.Generator, kind: str) -> np.ndarray:
    q = random.normal(size=4)
    return q / np.linalg.norm(q) * (random.uniform(0.99, 1.01) if kind == "stretched" else 1.0)
