"""Finite gradients of random scenes of soft matter in singular states.

Like `random_scenes`, for solids, cloth, particles and springs on the ground, with or without a free rigid body.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from kinema.lang.autograd.options import RunOptions
from kinema.model.model import Model
from kinema.model.state import AXES, State
from kinema.scene.description import FREE, Body, Joint, Pose, Robot
from kinema.scene.matter import Cloth, Skin, Solid, Springs
from kinema.scene.scene import Scene
from kinema.scene.shapes.block import block
from kinema.scene.shapes.sheet import sheet
from kinema.simulation.control import Control
from kinema.simulation.simulate import simulate
from kinema.verification.random_scenes import STEPS, Outcome, batches, judge, random_mass, random_shape

DT = 2e-4
KINDS = ("random", "at rest", "touching", "coincident", "flat", "point", "inverted")
"""States of worlds: random; as placed, without motion; lowered until vertices touch the ground with zero depth; two
coinciding cloths, and springs of zero length; everything in one plane; everything in one point; upside down. Half of
the states that are not random have zero velocity."""


def try_matter(seed: int, worlds: int, outcome: Outcome, together: int = 0, dtype: torch.dtype = torch.float64) -> None:
    """Simulate the worlds of a structure for some steps, and compute their gradients to every input.

    Args:
        seed: Seed of the structure and its worlds.
        worlds: Number of worlds; at least `len(KINDS)` for all kinds of states.
        outcome: Results, which are updated.
        together: Worlds in a batch, all by default. Results are bitwise independent of it, but small batches use
            different kernels.
        dtype: Precision.
    """
    for model, leaves, kinds in batches(random_matter, KINDS, _inputs, seed, worlds, together, dtype):
        state = State(**{n: leaves[n] for n in AXES if n in leaves})
        control = Control(activation=leaves["activation"], forces=leaves["forces"])
        params = {n: t for n, t in leaves.items() if n not in (*AXES, "activation", "forces")}
        path = simulate(
            model, state, control, steps=STEPS, dt=DT, params=params, options=RunOptions(on_failure="status")
        )
        outputs = path.end.tensors
        judge(outputs, leaves, kinds, f"soft, seed {seed}", outcome)
        low = path.x.detach()[..., 2] <= leaves["skin_radius"].detach().amax(-1)[:, None, None]
        outcome.touching += int(low.flatten(1).any(1).sum())


def random_matter(random: np.random.Generator) -> Scene:
    """A solid, two cloths and a few particles with springs on the ground; sometimes a free rigid body among them."""
    scene = Scene(wind=tuple(random.choice([0.0, 1.0]) * random.normal(size=3)))
    scene.add_ground()
    if random.random() < 0.5:
        body = Body("b", None, Pose(), (Joint("free", FREE),), random_mass(random), (random_shape(random, exact=True),))
        scene.add_robot(Robot("loose", (body,)), pos=(0.0, 0.0, 0.1))
    skin = Skin(
        radius=float(random.choice([0.0, 0.02])),
        k_e=100.0,
        k_d=0.1,
        k_f=0.5,
        cone=bool(random.random() < 0.7),
        thickness=float(random.choice([0.0, 0.03])),
        neighbours=64,
    )
    solid = Solid(300.0, 3e3, 6e3, viscosity=float(random.choice([0.0, 2.0])))
    scene.add_solid(block((1, 1, 1), 0.1), "solid", material=solid, skin=skin, pos=(0.0, 0.0, 0.05 + skin.radius))
    bending = float(random.choice([0.0, 1e-3]))
    cloth = Cloth(0.5, 50.0, 50.0, bending=bending, bending_damping=0.01 * bending, drag=0.3, lift=0.3)
    for k, name in enumerate(("low", "high")):
        scene.add_cloth(
            sheet(0.2, 0.2, (2, 2)), name, material=cloth, skin=skin, pos=(0.0, 0.0, skin.radius + 0.02 * k)
        )
    springs = Springs([[0, 1], [1, 2], [2, 3]], stiffness=50.0, damping=0.1)
    places = [(0.1 * k, 0.0, 0.0) for k in range(4)]
    scene.add_particles(places, "beads", mass=0.02, springs=springs, skin=skin, pos=(0.0, 0.2, skin.radius))
    return scene


def _inputs(model: Model, kinds: Sequence[str], random: np.random.Generator) -> dict[str, Tensor]:
    """State, controls and every parameter of all worlds, each of shape (worlds, ...), float64."""
    worlds = len(kinds)
    given = {name: values.double().numpy() for name, values in model._defaults.items() if name != "activation"}
    given = {name: _varied(np.repeat(own[None], worlds, 0), random) for name, own in given.items()}
    states = [_state(model, kind, random) for kind in kinds]
    given |= {name: np.stack([s[i] for s in states]) for i, name in enumerate(("x", "xd"))}
    given["activation"] = 0.1 * random.normal(size=(worlds, STEPS, model.matter.elements))
    given["forces"] = 0.01 * random.normal(size=(worlds, STEPS, len(model.matter), 3))
    if model.nv:
        given["q"] = np.repeat(model.initial_state().q.double().numpy()[None], worlds, 0)
        given["v"] = random.normal(size=(worlds, model.nv)) * random.integers(0, 2, (worlds, 1))
    return {name: torch.tensor(a) for name, a in given.items()}


def _varied(own: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The model's values, scaled randomly for each world."""
    return own * random.uniform(0.7, 1.3, (len(own),) + (1,) * (own.ndim - 1))


def _state(model: Model, kind: str, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities of the particles of one world."""
    x = model.initial_state().x.double().numpy().copy()
    xd = random.normal(size=x.shape)
    if kind == "random":
        return x + 0.03 * random.normal(size=x.shape), xd
    if kind == "touching":
        x[:, 2] -= x[:, 2].min()
        x[:, 2] += float(model.parameters("skin_radius")["skin_radius"][0])
    elif kind == "coincident":
        x[model.matter.particles("high")] = x[model.matter.particles("low")]
        x[model.matter.particles("beads")] = (0.0, 0.0, 0.01)
    elif kind == "flat":
        x[:, 2] = 0.01
    elif kind == "point":
        x[:] = (0.0, 0.0, 0.01)
    elif kind == "inverted":
        x[:, 2] = 0.1 - x[:, 2]
    return x, xd * float(kind != "at rest" and random.random() < 0.5)
