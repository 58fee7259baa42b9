"""The longest stable step: below it soft matter stays where it is, and soon above it each kind of element blows up."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import FREE, PRISMATIC, REVOLUTE, Body, Joint, MassProperties, Pose, Robot
from kinema.scene.shapes.ball import ball
from kinema.scene.shapes.beam import beam
from kinema.scene.shapes.block import block
from kinema.scene.shapes.sheet import sheet
from kinema.simulation.stability import step_limit

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

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
    x, xd = model.initial_state().x, model.initial_state().xd
    x = x + SHAKEN * torch.tensor(np.random.default_rng(0).normal(size=x.shape))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kn.StabilityWarning)
        path = kn.simulate(
            model,
            kn.State(x=x, xd=xd),
            steps=steps,
            dt=dt,
            options=kn.RunOptions(checkpoint=steps, on_failure="status"),
        )
    # A step moves what is stable by at most some 2 times what it was shaken by, per mode.
    return bool((path.status >= 0).any()) or not float(path.end.xd.abs().max()) * dt < 100 * SHAKEN


@pytest.mark.parametrize("name", MODELS)
def test_the_limit_holds_and_is_not_far_from_the_truth(name: str):
    make, word = MODELS[name]
    model = make()
    limit = step_limit(model, model.resolve())
    assert limit is not None and limit.element.startswith(word)
    assert not grows(model, 0.99 * limit.dt)
    assert grows(model, 2.0 * limit.dt)


@pytest.mark.parametrize("averaged", [True, False])
def test_a_vertex_in_contact(averaged: bool):
    """m x'' = -k x: at rest under its weight it is stable up to dt = 2 sqrt(m / k), and starts to hop above.

    A bounce gains speed or loses it, with where it begins. Up to sqrt(2 m / k), the limit, its logarithm falls by 0 to
    0.036 on average, and by a tenth more soon above; where forces are those at an instant, it gains up to 0.016, and
    soon above that much more.
    """
    mass, k_e = 0.01, 400.0
    scene = kn.Scene()
    scene.add_ground()
    depth = mass * 9.81 / k_e
    scene.add_particles([[0.0, 0.0, -depth]], "p", mass=mass, skin=kn.Skin(k_e=k_e, k_f=0.0, averaged=averaged))
    model = kn.compile(scene, torch.float64)
    limit = step_limit(model, model.resolve())
    assert limit is not None and limit.dt == pytest.approx(math.sqrt(2 * mass / k_e), rel=1e-12)
    assert limit.element == "vertex 0 of 'p'"
    assert not grows(model, 0.99 * math.sqrt(2) * limit.dt)
    assert grows(model, 1.01 * math.sqrt(2) * limit.dt)
    x = torch.zeros(200, 1, 3, dtype=torch.float64)
    xd = torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64).expand_as(x)
    weightless = {"gravity": torch.zeros(3, dtype=torch.float64)}
    gains = ((0.3, -0.016, 0.016), (0.9, -0.016, 0.016), (0.99, -0.016, 0.016), (1.22, 0.1, 0.2))
    if averaged:
        gains = ((0.3, -1e-3, 0.0), (0.9, -0.036, 0.0), (0.99, -0.036, 0.0), (1.22, -0.01, 0.01))
    for share, low, high in gains:
        dt = share * limit.dt
        x[:, 0, 2] = dt * torch.linspace(0.001, 0.999, 200, dtype=torch.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kn.StabilityWarning)
            end = kn.simulate(model, kn.State(x=x, xd=xd), params=weightless, steps=20, dt=dt).end
        assert (end.x[..., 2] > 0).all() and low < float(end.xd[..., 2].log().mean()) < high
    scene = kn.Scene()
    scene.add_particles([[0.0, 0.0, 0.0]], "p", mass=mass, skin=kn.Skin(k_e=k_e))
    nothing = kn.compile(scene, torch.float64)
    assert step_limit(nothing, nothing.resolve()) is None


def shaken(model: kn.Model, dt: float, steps: int) -> kn.Trajectory:
    """A run from a little beside where things are placed."""
    x, xd = model.initial_state().x, model.initial_state().xd
    x = x + SHAKEN * torch.tensor(np.random.default_rng(0).normal(size=x.shape))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kn.StabilityWarning)
        return kn.simulate(model, kn.State(x=x, xd=xd), steps=steps, dt=dt, options=kn.RunOptions(on_failure="status"))


@pytest.mark.parametrize("mass", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("kind", ["ball", "arm", "slider", "cloth"])
def test_pins_on_light_links(kind: str, mass: float):
    """A cube of 8 kg by some of its vertices, or a cloth and springs by theirs, on links that are light, or heavy.

    Below the limit nothing grows; at 8 times it everything does, so that it is not far from the truth.
    """
    scene = kn.Scene(gravity=STILL)
    told = MassProperties(mass, (0.0, 0.0, 0.0), (4e-3 * mass, 0.0, 0.0, 4e-3 * mass, 0.0, 4e-3 * mass))
    joints = {"arm": Joint("j", REVOLUTE, (0.0, 1.0, 0.0)), "slider": Joint("j", PRISMATIC, (0.0, 0.6, 0.8))}
    base = Body("base", joints=(joints.get(kind, Joint("j", FREE)),), mass=told)
    tip = Body("tip", "base", Pose((0.1, 0.0, 0.0)), (Joint("elbow", REVOLUTE, (0.0, 0.0, 1.0)),), told)
    scene.add_robot(Robot("r", (base, tip) if kind == "arm" else (base,)))
    body = "r/tip" if kind == "arm" else "r/base"
    if kind == "cloth":
        mesh = sheet(0.6, 0.6, (4, 4))
        scene.add_cloth(mesh, "c", material=kn.Cloth(8.0, mu=300.0, lam=400.0, bending=2.0), skin=None)
        scene.attach("c", mesh.vertices[:, 0] < -0.2, body)
        springs = kn.Springs([[0, 1], [1, 2]], stiffness=3e3, damping=0.5)
        scene.add_particles([[0.0, 0.0, 0.1 * k] for k in range(3)], "p", mass=0.5, springs=springs, skin=None)
        scene.attach("p", [0], body)
    else:
        cube = block((2, 2, 2), 0.1)
        material = kn.Solid(density=1000.0, mu=1e5, lam=3e5, viscosity=20.0)
        scene.add_solid(cube, "s", material=material, skin=None, pos=(0.1, 0.0, 0.1))
        scene.attach("s", cube.vertices[:, 2] < -0.05, body)
    model = kn.compile(scene, torch.float64)
    limit = step_limit(model, model.resolve())
    assert limit is not None
    end = shaken(model, 0.9 * limit.dt, 2000)
    assert int(end.status) < 0 and float(end.xd[1000:].abs().max()) * limit.dt < 100 * SHAKEN
    assert not float(shaken(model, 8.0 * limit.dt, 2000).end.xd.abs().max()) * limit.dt < 1e3 * SHAKEN


def test_the_mass_of_a_link_is_that_of_its_worlds():
    """The lightest counts. Spring and link: w^2 = k / m of the free end and k / M of the link, at its centre."""
    scene = kn.Scene(gravity=STILL)
    told = MassProperties(1.0, (0.0, 0.0, 0.0), (0.01, 0.0, 0.0, 0.01, 0.0, 0.01))
    scene.add_robot(Robot("r", (Body("b", joints=(Joint("j", FREE),), mass=told),)))
    scene.add_particles([[0.0, 0.0, 0.0], [0.0, 0.0, 0.1]], "p", mass=2.0, springs=kn.Springs([[0, 1]]), skin=None)
    scene.attach("p", [0], "r/b")
    model = kn.compile(scene, torch.float64)

    def limit(*masses: float) -> float:
        found = step_limit(model, model.resolve({"mass": torch.tensor([[m] for m in masses], dtype=torch.float64)}))
        assert found is not None
        return found.dt

    # The bound gives a spring its ends as if both were free, and a link turns: k (1/2 + 1/2 + 1/M + 0.1^2 / 0.01).
    assert limit(0.5) == pytest.approx(2.0 / math.sqrt(1e3 * (1 / 2 + 1 / 2 + 1 / 0.5 + 1.0)), rel=1e-9)
    assert limit(9.0, 0.5, 1.0) == limit(0.5) < limit(1.0) < limit(50.0)


@pytest.mark.parametrize("cone", [True, False])
def test_slow_friction(cone: bool):
    """m v' = -k_f v: what slides slowly stops below dt = 2 m / k_f, and shakes for ever above it.

    Where that is far below the step at which contact is stable with 1 + mu times its stiffness, the latter counts.
    """
    mass, k_f = 0.01, 1.54
    scene = kn.Scene()
    scene.add_ground()
    depth = mass * 9.81 / 100.0
    skin = kn.Skin(k_e=100.0, k_f=k_f, cone=cone)
    scene.add_particles([[0.0, 0.0, -depth]], "p", mass=mass, skin=skin, velocity=(1e-4, 2e-4, 0.0))
    model = kn.compile(scene, torch.float64)
    limit = step_limit(model, model.resolve())
    assert limit is not None and limit.dt == pytest.approx(2 * mass / k_f, rel=1e-12)
    assert limit.element == "slow friction of vertex 0 of 'p'"
    for share, stops in ((0.9, True), (1.1, False)):
        end = shaken(model, share * limit.dt, 300).end.xd
        assert (float(end[0, :2].norm()) < 1e-9) == stops
    much = step_limit(model, model.resolve({"skin_k_f": torch.tensor([1e3], dtype=torch.float64)}))
    assert much is not None and much.dt == pytest.approx(math.sqrt(2 * mass / (100.0 * 1.5)), rel=1e-12)


@pytest.mark.parametrize("mu", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("k_f", [1.0, 100.0, 1e6])
@pytest.mark.parametrize("k_e, k_d", [(500.0, 0.0), (2e4, 0.0), (2e4, 5.0)])
def test_no_friction_blows_up(k_e: float, k_d: float, k_f: float, mu: float):
    """A block that falls and slides, hardly damped. Many of these are not finite at the limit without friction."""
    scene = kn.Scene()
    scene.add_ground()
    skin = kn.Skin(k_e=k_e, k_d=k_d, k_f=k_f, friction=mu)
    where = {"pos": (0.0, 0.0, 0.074), "velocity": (0.5, 0.2, -0.1)}
    scene.add_solid(block((3, 3, 3), 0.05), "s", material=kn.Solid(500.0, mu=1e4, lam=2e4), skin=skin, **where)
    model = kn.compile(scene, torch.float64)
    limit = step_limit(model, model.resolve())
    assert limit is not None
    end = kn.simulate(model, steps=6000, dt=0.9 * limit.dt, options=kn.RunOptions(checkpoint=6000)).end
    assert float(end.xd.abs().max()) < 1.5  # it came with 0.55 m/s, and rings


def test_the_bound_counts_the_worst_of_all_pairs():
    """A stiff and a viscous solid, in contact: neither alone is the worst at the step that both together allow."""
    scene = kn.Scene(gravity=STILL)
    scene.add_ground(-1.0)
    skin = kn.Skin(k_e=5e3, k_f=0.0, k_d=20.0)
    scene.add_solid(block((2, 2, 2), 0.1), "stiff", material=kn.Solid(500.0, mu=1e4, lam=3e4), skin=skin)
    thick = kn.Solid(500.0, mu=1e2, lam=3e2, viscosity=60.0)
    scene.add_solid(block((2, 2, 2), 0.1), "thick", material=thick, skin=skin)
    model = kn.compile(scene, torch.float64)
    limit = step_limit(model, model.resolve())
    assert limit is not None
    numbers, dt = model.resolve(), limit.dt
    steep = 4 * np.concatenate([one.mesh.steepness for one in model.matter.solids]) / numbers["density"].numpy()
    stiff = (numbers["lam"] + 2 * numbers["mu"]).numpy() * steep
    rate = 2 * numbers["viscosity"].numpy() * steep
    light = numbers["inv_mass"].max().item()
    total = (dt**2 * stiff + 2 * dt * rate).max() + dt**2 * 2 * 5e3 * light + 2 * dt * 20.0 * light
    assert total == pytest.approx(4.0, rel=1e-9)


def test_a_long_step_is_warned_of():
    """The warning names the element and the step that would be stable; below it there is none."""
    scene = kn.Scene()
    mesh = block((2, 1, 1), 0.1)
    mesh.vertices[mesh.vertices[:, 0] > 0.05, 0] -= 0.05  # the second cube is thin
    scene.add_solid(block((1, 1, 1), 0.1), "thick", skin=None)
    scene.add_solid(mesh, "thin", skin=None)
    model = kn.compile(scene, torch.float64)
    limit = step_limit(model, model.resolve())
    assert limit is not None
    with pytest.warns(kn.StabilityWarning) as caught:
        kn.simulate(model, steps=1, dt=1.01 * limit.dt)
    text = str(caught[0].message)
    assert "of 'thin'" in text and f"{limit.dt:.3g} s" in text and f"{1.01 * limit.dt:.3g} s" in text
    assert caught[0].filename == __file__
    element = int(text.split("tetrahedron ")[1].split()[0])
    assert mesh.vertices[mesh.corners[element], 0].max() == pytest.approx(0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kn.simulate(model, steps=1, dt=0.99 * limit.dt)
        # Softer for one world, stiffer for another: the stiffest counts.
    mu = model.parameters("mu")["mu"] * torch.tensor([[1.0], [100.0]], dtype=torch.float64)
    with pytest.warns(kn.StabilityWarning):
        kn.simulate(model, params={"mu": mu}, steps=1, dt=0.99 * limit.dt)


def test_masses_of_points_count_for_elements():
    """A sheet whose mass sits at its vertices is as stable as one whose material weighs as much."""

    model = cloth(density=1.0, mu=50.0, lam=50.0)
    mass = 1.0 / model.resolve()["inv_mass"]

    def limit(density: float, points: float | torch.Tensor) -> float:
        found = step_limit(model, model.resolve({"c/density": density, "c/point_mass": points}))
        assert found is not None
        return found.dt

    whole = limit(1.0, 0.0)
    assert limit(0.01, 0.99 * mass) == pytest.approx(whole, rel=1e-9)
    assert limit(0.01, 3.99 * mass) == pytest.approx(2.0 * whole, rel=1e-9)
    alone = 0.99 * mass
    alone[0] = 0.0  # a corner without a mass of its own: its triangle is as fast as before
    assert limit(0.01, alone) == pytest.approx(limit(0.01, 0.0), rel=0.2)
