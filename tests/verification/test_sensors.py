"""What is recorded of accelerations, sites, sensors and joint loads, against closed forms and laws of balance."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import Body, Closure, Joint, MassProperties, Pose, Robot, Shape, Site
from kinema.scene.mass_properties import mass_properties
from kinema.scene.shapes.pendulum import pendulum
from kinema.scene.shapes.quadruped import quadruped
from kinema.simulation.tree_dynamics import articulated_pays

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

G = 9.81
EVERYTHING = ("acceleration", "joint_load", "site_position", "site_rotation", "site_velocity", "imu")
TURNED = (np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5))  # a quarter about z
BRICK = Shape("box", (0.1, 0.08, 0.05))


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def near(got: torch.Tensor, *wanted: float, within: float = 1e-12) -> bool:
    return bool((got - numbers(*wanted)).abs().max() <= within)


def test_a_spinning_bar():
    """m w^2 r towards the axis, in the bar, in its joint and in a sensor; weight and +g upwards."""
    rate, radius, mass = 3.0, 0.8, 2.0
    bar = MassProperties(mass, (0.5, 0.0, 0.0), (1e-3, 0.0, 0.0, 0.1, 0.0, 0.1))
    sensor = Site("tip", Pose((radius, 0.0, 0.1), TURNED))
    scene = kn.Scene()
    scene.add_robot(Robot("r", (Body("bar", None, Pose(), (Joint("axle", "revolute"),), bar, (), (sensor,)),)))
    model = kn.compile(scene)
    path = kn.simulate(model, kn.State(numbers(np.pi / 2), numbers(rate)), steps=1, dt=1e-3, record=EVERYTHING)
    found = {name: tensor[0, 0] for name, tensor in path.recorded.items()}
    # The bar points along +y; the sensor is turned by another quarter: its axes are -x and -y.
    assert near(found["site_position"], 0.0, radius, 0.1) and near(found["site_rotation"][:, 0], -1.0, 0.0, 0.0)
    assert near(found["site_velocity"], 0.0, 0.0, rate, -rate * radius, 0.0, 0.0)
    assert near(found["imu"], 0.0, 0.0, rate, 0.0, rate**2 * radius, G)
    assert near(found["acceleration"], 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # the body's origin is on the axis
    assert near(found["joint_load"], mass * G * 0.5, 0.0, 0.0, 0.0, -mass * rate**2 * 0.5, mass * G, within=1e-11)


@pytest.mark.parametrize("integrator", ["euler", "rk4"])
def test_a_long_chain_carries_its_weight(integrator):
    """Deep trees find their accelerations without the inertias that loads need: each joint holds the links below it."""
    links = 20
    scene = kn.Scene()
    scene.add_robot(pendulum(links, 0.1, 0.5))
    model = kn.compile(scene)
    assert articulated_pays(model.tree)
    rest = torch.zeros(links, dtype=torch.float64)
    path = kn.simulate(model, kn.State(rest, rest), steps=2, dt=1e-3, record=["joint_load"], integrator=integrator)
    weights = 0.5 * G * torch.arange(links, 0, -1, dtype=torch.float64)
    assert (path.recorded["joint_load"][:, :, 5] - weights).abs().max() < 1e-11
    assert path.recorded["joint_load"][:, :, :5].abs().max() < 1e-11


def test_a_falling_body_feels_nothing():
    scene = kn.Scene()
    scene.add_robot(Robot("r", (Body("b", None, Pose(), (Joint("free", "free"),), mass_properties(BRICK)),)))
    assert scene.add_site("r/b", "imu") == "r/imu"
    model = kn.compile(scene)
    v = numbers(0.0, 0.0, 2.0, 1.0, 0.5, 0.0)  # turns about a principal axis through the sensor
    found = kn.simulate(model, kn.State(v=v), steps=5, dt=1e-2, record=EVERYTHING).recorded
    assert found["imu"][:, 0, 3:].abs().max() < 1e-13 and (found["imu"][:, 0, 2] - 2.0).abs().max() < 1e-13
    assert (found["acceleration"][:, 0] - numbers(0.0, 0.0, 0.0, 0.0, 0.0, -G)).abs().max() < 1e-12
    assert found["joint_load"].abs().max() < 1e-12


def test_a_standing_robot():
    """Hips carry the trunk, ankles the rest too, and the sensor on the tilted trunk reads g upwards."""
    scene = kn.Scene()
    scene.add_ground()
    scene.add_robot(quadruped(stiffness=400.0, damping=40.0), "dog")
    scene.add_site("dog/trunk", "imu", pos=(0.2, 0.0, 0.07), rot=(0.8, 0.6, 0.0, 0.0))
    model = kn.compile(scene)
    q = model.initial_state().q
    q[7:] = torch.tensor(model.tree.rest[6:])
    q[2] = 0.433
    names = [*EVERYTHING, "impulse"]
    found = kn.simulate(
        model, kn.State(q, torch.zeros(model.nv, dtype=torch.float64)), steps=3000, dt=2e-3, record=names
    ).recorded
    still = 1e-5  # what is left of its rocking, exp(-t k / d) of g
    hit = found["acceleration"][:, 0, 5].argmax()
    found_free, weight = found["joint_load"][:, 0].abs().amax(-1), 20.0 * G
    assert found_free[hit + 1 :].max() < 1e-10  # nothing holds a free joint
    assert found_free.max() < 1e-3 * weight  # while it lands: forces act at the poses of impacts, loads at the start
    assert (found["impulse"][-1, :, 0] > 0.05).all() and found["acceleration"][-1].abs().max() < still
    hips = [model.joints.index(f"dog/{leg}_abduction") for leg in ("fl", "fr", "rl", "rr")]
    trunk = found["joint_load"][-1, hips, 3:].sum(0)
    assert near(trunk, 0.0, 0.0, -12.0 * G, within=1e-3)
    feet = found["impulse"][-1, :, 0].sum() / 2e-3
    assert abs(float(feet) - 20.0 * G) < 1e-3
    up = found["site_rotation"][-1, 0] @ found["imu"][-1, 0, 3:]
    assert near(up, 0.0, 0.0, G, within=1e-4) and found["imu"][-1, 0, :3].abs().max() < still


def test_an_impact_is_an_acceleration_over_its_step():
    """The accelerations of all steps add up to the change of velocity, bounce included."""
    ball = Shape("sphere", (0.1,))
    scene = kn.Scene(contact=kn.Contact(restitution=0.5))
    scene.add_ground()
    joint = (Joint("free", "free"),)
    scene.add_robot(Robot("ball", (Body("b", None, Pose((0.0, 0.0, 0.15)), joint, mass_properties(ball), (ball,)),)))
    model = kn.compile(scene)
    v, dt = numbers(0.0, 0.0, 0.0, 0.0, 0.0, -1.0), 1e-3
    path = kn.simulate(model, kn.State(v=v), steps=80, dt=dt, record=("acceleration", "velocity"))
    assert path.end.v[-1] > 0.1  # it is on its way up
    a = path.recorded["acceleration"][:, 0]
    assert a[:, 5].max() > 500 and torch.allclose(v[3:] + dt * a[:, 3:].sum(0), path.end.v[3:], atol=1e-12)
    change = path.recorded["velocity"][1:, 0] - path.recorded["velocity"][:-1, 0]
    assert torch.allclose(change, dt * a[:-1], atol=1e-12)


def loose(name: str, *heights: float, closures: tuple[Closure, ...] = ()) -> Robot:
    """Loose bricks, one above the other, of one robot."""
    free = [(Joint(f"free{i}", "free"),) for i in range(len(heights))]
    mass = mass_properties(BRICK, mass=2.0)
    bodies = (Body(f"b{i}", None, Pose((0.0, 0.0, z)), free[i], mass, (BRICK,)) for i, z in enumerate(heights))
    return Robot(name, tuple(bodies), (), closures)


def tied(kind: str) -> tuple[Closure, ...]:
    """Two bricks, the second 0.3 m above the first: the first hangs on the world, the second on the first."""
    at, above = (0.05, 0.1, 0.05), (0.05, 0.1, 0.05 - 0.3)
    return Closure("up", "connect", "b0", None, Pose(at), Pose(at)), Closure(
        "two", kind, "b0", "b1", Pose(at), Pose(above)
    )


def pushed_bodies(how: str, time_of_impact: bool) -> kn.Model:
    """Loose bodies that something holds."""
    words = {"law": "compliant"} if how == "compliant" else {"cone": how == "cone"}
    scene = kn.Scene(contact=kn.Contact(friction=0.4, time_of_impact=time_of_impact, **words))
    if how in ("connect", "weld"):
        scene.add_robot(loose("r", 0.0, 0.3, closures=tied(how)))
    elif how == "wrench":
        scene.add_robot(loose("r", 0.0))
    else:
        scene.add_ground()
        for i in range({"cone": 1, "picked": 4}.get(how, 2)):
            scene.add_robot(loose(f"r{i}", 0.05 + 0.1 * i))
    return kn.compile(scene)


PUSHED = ["pyramid", "cone", "picked", "compliant", "connect", "weld", "wrench"]


@pytest.mark.parametrize(("how", "timed"), [*((how, False) for how in PUSHED), ("pyramid", True), ("cone", True)])
def test_nothing_holds_a_free_joint(how, timed):
    """What pushes loose bodies is known to the last newton: their joints carry nothing, while they slide and turn.

    Where the step is cut at impacts, impulses act at poses within it, and loads are those at its start: right to the
    way of a step, some millimetres in ten centimetres.
    """
    model = pushed_bodies(how, timed)
    generator = torch.Generator().manual_seed(3)
    v = 0.5 * torch.randn(model.nv, dtype=torch.float64, generator=generator)
    wrenches = {model.bodies[-1]: 10 * torch.randn(40, 6, dtype=torch.float64, generator=generator)}
    names = ["joint_load", "acceleration"]
    found = kn.simulate(model, kn.State(v=v), u=kn.Control(wrenches=wrenches), steps=40, dt=1e-3, record=names).recorded
    pushed = found["acceleration"][..., 3:] - numbers(0.0, 0.0, -G)
    assert (pushed.norm(dim=-1).max(0).values > 1.0).all()
    largest = 2.0 * float(pushed.norm(dim=-1).max())  # N, of bricks of 2 kg
    assert found["joint_load"].abs().max() < (0.02 * largest if timed else 1e-10)
