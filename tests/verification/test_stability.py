"""The longest stable step: below it soft matter stays where it is, and soon above it each kind of element blows up."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

import kinema as kn
from kinema.lang import build
from kinema.model.stability import step_limit
from kinema.scene.shapes.ball import ball
from kinema.scene.shapes.beam import beam
from kinema.scene.shapes.block import block
from kinema.scene.shapes.sheet import sheet

pytestmark = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")

STILL = (0.0, 0.0, 0.0)
SHAKEN = 1e-7  # [m]


def solid(mesh: kn.Tets, **numbers: float) -> kn.Model:
    scene = kn.Scene(gravity=STILL)
    scene.add_solid(mesh, "s", material=kn.Solid(density=500.0, **numbers), skin=None)
    return kn.compile(scene, torch.float64)


def cloth(**numbers: float) -> kn.Model:
    scene = kn.Scene(gravity=STILL)
    scene.add_cloth(sheet(0.6, 0.6, (6, 6)), "c", material=kn.Cloth(**numbers), skin=None)
    return kn.compile(scene, torch.float64)


def chain(count: int, stiffness: float, damping: float) -> kn.Model:
    scene = kn.Scene(gravity=STILL)
    at = np.outer(np.arange(count), (0.1, 0.0, 0.0))
    springs = kn.Springs(np.array([(k, k + 1) for k in range(count - 1)]), stiffness=stiffness, damping=damping)
    scene.add_particles(at, "p", mass=0.1, springs=springs, skin=None)
    return kn.compile(scene, torch.float64)


ONE = kn.Tets(np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 0.1]]), np.array([[0, 1, 2, 3]]))
MODELS = {
    "tetrahedra of a block": (lambda: solid(block((3, 3, 3), 0.1), mu=1e4, lam=3e4), "tetrahedron"),
    "tetrahedra of a ball": (lambda: solid(ball(0.1, 2), mu=1e4, lam=3e4), "tetrahedron"),
    "tetrahedra of a beam": (lambda: solid(beam(1.0, 0.1, 0.1, (10, 1, 1)), mu=1e4, lam=1e4), "tetrahedron"),
    "one tetrahedron": (lambda: solid(ONE, mu=1e4, lam=3e4), "tetrahedron"),
    "viscosity": (lambda: solid(block((3, 3, 3), 0.1), mu=1e2, lam=3e2, viscosity=100.0), "tetrahedron"),
    "stiffness and viscosity": (lambda: solid(block((3, 3, 3), 0.1), mu=1e4, lam=3e4, viscosity=40.0), "tetrahedron"),
    "triangles": (lambda: cloth(mu=300.0, lam=400.0), "triangle"),
    "viscous triangles": (lambda: cloth(mu=3.0, lam=4.0, viscosity=1.0), "triangle"),
    "hinges": (lambda: cloth(mu=1.0, lam=1.0, bending=10.0), "edge"),
    "damped hinges": (lambda: cloth(mu=1.0, lam=1.0, bending=0.1, bending_damping=0.1), "edge"),
    "a spring": (lambda: chain(2, 100.0, 0.0), "spring"),
    "springs": (lambda: chain(9, 100.0, 0.0), "spring"),
    "damped springs": (lambda: chain(9, 1.0, 10.0), "spring"),
}


def grows(model: kn.Model, dt: float, steps: int = 3000) -> bool:
    """Whether vertices that are shaken a little move far more in the end."""
    x, xd = model.initial_particles()
    x = x + SHAKEN * torch.tensor(np.random.default_rng(0).normal(size=x.shape))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kn.StabilityWarning)
        end = kn.simulate(model, x=x, xd=xd, steps=steps, dt=dt, checkpoint=steps, on_failure="status", progress=False)
    # A step moves what is stable by at most some 2 times what it was shaken by, per mode.
    return bool((end.status >= 0).any()) or not float(end.xd_end.abs().max()) * dt < 100 * SHAKEN


@pytest.mark.parametrize("name", MODELS)
def test_the_limit_holds_and_is_not_far_from_the_truth(name: str):
    make, word = MODELS[name]
    model = make()
    limit = step_limit(model.matter, model.resolve(), True)
    assert limit is not None and limit.element.startswith(word)
    assert not grows(model, 0.99 * limit.dt)
    assert grows(model, 2.0 * limit.dt)


def test_a_vertex_in_contact():
    """m x'' = -k x: stable up to dt = 2 sqrt(m / k), exactly; resting under its weight, it starts to hop above."""
    mass, k_e = 0.01, 400.0
    scene = kn.Scene()
    scene.add_ground()
    depth = mass * 9.81 / k_e
    scene.add_particles([[0.0, 0.0, -depth]], "p", mass=mass, skin=kn.Skin(k_e=k_e, k_f=0.0))
    model = kn.compile(scene, torch.float64)
    limit = step_limit(model.matter, model.resolve(), True)
    assert limit is not None and limit.dt == pytest.approx(2 * math.sqrt(mass / k_e), rel=1e-12)
    assert limit.element == "vertex 0 of 'p'"
    assert not grows(model, 0.99 * limit.dt)
    assert grows(model, 1.01 * limit.dt)
    assert step_limit(model.matter, model.resolve(), False) is None


def test_a_long_step_is_warned_of():
    """The warning names the element and the step that would hold; below it there is none."""
    scene = kn.Scene()
    mesh = block((2, 1, 1), 0.1)
    mesh.vertices[mesh.vertices[:, 0] > 0.05, 0] -= 0.05  # the second cube is thin
    scene.add_solid(block((1, 1, 1), 0.1), "thick", skin=None)
    scene.add_solid(mesh, "thin", skin=None)
    model = kn.compile(scene, torch.float64)
    limit = step_limit(model.matter, model.resolve(), False)
    assert limit is not None
    with pytest.warns(kn.StabilityWarning) as caught:
        kn.simulate(model, steps=1, dt=1.01 * limit.dt, progress=False)
    text = str(caught[0].message)
    assert "of 'thin'" in text and f"{limit.dt:.3g} s" in text and f"{1.01 * limit.dt:.3g} s" in text
    assert caught[0].filename == __file__
    element = int(text.split("tetrahedron ")[1].split()[0])
    assert mesh.vertices[mesh.corners[element], 0].max() == pytest.approx(0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kn.simulate(model, steps=1, dt=0.99 * limit.dt, progress=False)
        # Softer for one world, stiffer for another: the stiffest counts.
    mu = model.parameters("mu")["mu"] * torch.tensor([[1.0], [100.0]], dtype=torch.float64)
    with pytest.warns(kn.StabilityWarning):
        kn.simulate(model, params={"mu": mu}, steps=1, dt=0.99 * limit.dt, progress=False)
