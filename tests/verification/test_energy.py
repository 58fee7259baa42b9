"""Energy of passive scenes in contact: it never grows by more than what undoing depths gives.

Of loose bodies whose inertia is the same about all axes, in uniform gravity, a step changes v to v' and the energy by

    E' - E = sum of impulses . velocities at the contacts after the step - (v' - v)^T M (v' - v) / 2

exactly (semi-implicit Euler; kinetic energy of v' - v is lost). Friction takes energy, a contact that is still open
closes, and one of depth d leaves with w = min(erp d / dt, recovery) at most, so that E' - E <= sum of normal impulse
times w. Nothing else enters: neither the size of dt nor how bodies lie on each other. A step that impacts cut into
phases is such a step for each of them, so that E' - E is at most as much; what is lost is then not that of v' - v.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import Body, Joint, Pose, Robot, Shape
from kinema.scene.mass_properties import mass_properties

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

G, MASS = 9.81, 2.0
BALL, CUBE = Shape("sphere", (0.1,)), Shape("box", (0.1, 0.1, 0.1))


def world(places: list[tuple[Shape, tuple[float, float, float]]], **contact) -> kn.Model:
    scene = kn.Scene(contact=kn.Contact(**contact))
    scene.add_ground()
    for shape, place in places:
        body = Body("b", None, Pose(), (Joint("free", "free"),), mass_properties(shape, mass=MASS), (shape,))
        scene.add_robot(Robot("r", (body,)), pos=place)
    return kn.compile(scene)


def energies(model: kn.Model, path: kn.Trajectory) -> torch.Tensor:
    """Of every state [J], shape (steps + 1,)."""
    return kn.kinetic_energy(model, path.q, path.v) + kn.potential_energy(model, path.q)


def granted(model: kn.Model, path: kn.Trajectory) -> torch.Tensor:
    """What undoing depths may add in each step [J], shape (steps,)."""
    depth = (-path.recorded["gap"]).clamp(min=0.0)
    speed = (model.contact.erp * depth / path.dt).clamp(max=model.contact.max_correction_speed)
    return (path.recorded["impulse"][..., 0] * speed).sum(-1)


def pile(erp: float, dt: float, cone: bool, timed: bool) -> tuple[kn.Model, kn.Trajectory]:
    """Cubes and balls that overlap by up to some centimetres, spin, fall onto each other and come to rest."""
    random = np.random.default_rng(0)
    places = [(BALL if i % 2 else CUBE, (*random.uniform(-0.1, 0.1, 2), 0.08 + 0.17 * i)) for i in range(5)]
    model = world(places, erp=erp, cone=cone, friction=0.5, time_of_impact=timed)
    v = torch.tensor(random.normal(size=model.nv))
    steps = round(1.0 / dt)
    q = model.initial_state().q
    return model, kn.simulate(model, kn.State(q, v), steps=steps, dt=dt, record=["impulse", "gap", "velocity"])


@pytest.mark.parametrize("timed", [False, True], ids=["whole steps", "phases"])
@pytest.mark.parametrize(("erp", "dt", "cone"), [(0.2, 2e-3, False), (0.8, 5e-3, False), (0.2, 2e-3, True)])
def test_a_pile_gains_no_more_than_its_depths_give(erp, dt, cone, timed):
    """In every step, kinetic energy of v' - v included; so at any time E <= E(0) + all that was granted until then."""
    model, path = pile(erp, dt, cone, timed)
    energy, bound = energies(model, path), granted(model, path)
    change = path.recorded["velocity"].diff(dim=0)  # in world axes
    moments = model.parameters("inertia")["inertia"][:, 0]
    lost = 0.5 * (change[..., :3].square().sum(-1) @ moments + MASS * change[..., 3:].square().sum((-1, -2)))
    excess = float((energy.diff()[:-1] + (0.0 if timed else lost) - bound[:-1]).max())
    print(f"excess {excess:.1e} J; granted {float(bound.sum()):.1f} J; energy {energy[0]:.1f} J -> {energy[-1]:.1f} J")
    assert excess <= 1e-13 * float(energy[0]), "a step gained energy from nothing"  # rounding
    assert bool((energy.diff() > 0).any()), "no depth was undone"
    assert float(energy[-1]) < 0.5 * float(energy[0]), "it did not come down"


@pytest.mark.parametrize(("depth", "dt"), [(1e-4, 1e-3), (2e-3, 1e-3), (2e-3, 5e-3), (0.05, 1e-3)])
def test_a_ball_below_the_ground_gains_what_takes_it_out(depth, dt):
    """In one step w^2 / 2 and g dt w, times its mass: w = erp depth / dt, or the speed of recovery."""
    model = world([(BALL, (0.0, 0.0, 0.1 - depth))], cfm=0.0)
    rest = torch.zeros(model.nv, dtype=torch.float64)
    start = model.initial_state().q
    path = kn.simulate(model, kn.State(start, rest), steps=1, dt=dt, record=["impulse", "gap"])
    energy = energies(model, path)
    w = min(model.contact.erp * depth / dt, model.contact.max_correction_speed)
    gained = float(energy[1] - energy[0])
    assert gained == pytest.approx(MASS * (0.5 * w * w + G * dt * w), rel=1e-9)
    assert gained <= float(granted(model, path)[0])
