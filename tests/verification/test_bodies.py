"""Bodies that touch each other: collisions, friction on both of them, stacks, and the cone of friction."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.momenta import momenta

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import Body, Joint, MassProperties, Mesh, Pose, Robot, Shape
from kinema.scene.mass_properties import mass_properties
from kinema.scene.shapes.height_field import height_field
from kinema.scene.shapes.quadruped import quadruped

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

G, RADIUS = 9.81, 0.1
BALL, BRICK = Shape("sphere", (RADIUS,)), Shape("box", (0.1, 0.1, 0.05))


def body_of(shape: Shape, mass: MassProperties | None = None) -> Robot:
    """A loose body of one shape."""
    return Robot("r", (Body("b", None, Pose(), (Joint("free", "free"),), mass or mass_properties(BALL), (shape,)),))


def loose(shape: Shape, mass: float = 2.0) -> Robot:
    """A loose body of one shape, its mass spread evenly."""
    return body_of(shape, mass_properties(shape, mass=mass))


def world(*bodies: tuple[Robot, tuple], gravity=(0.0, 0.0, -G), ground=True, **contact) -> kn.Model:
    scene = kn.Scene(gravity, kn.Contact(**contact))
    if ground:
        scene.add_ground()
    for robot, place in bodies:
        scene.add_robot(robot, pos=place)
    return kn.compile(scene)


def run(model: kn.Model, v=None, steps=1000, dt=1e-3, record=()) -> kn.Trajectory:
    start = torch.zeros(model.nv, dtype=torch.float64) if v is None else torch.tensor(v, dtype=torch.float64)
    return kn.simulate(model, kn.State(v=start), steps=steps, dt=dt, record=record)


@pytest.mark.parametrize("restitution", [0.0, 0.5, 1.0])
def test_two_balls_collide_head_on(restitution):
    """v1' = (m1 v1 + m2 v2 - m2 e (v1 - v2)) / (m1 + m2) [Newton], to the softness of the contact."""
    model = world(
        (loose(BALL, 1.0), (0.0, 0.0, 0.0)),
        (loose(BALL, 3.0), (0.5, 0.0, 0.0)),
        gravity=(0.0, 0.0, 0.0),
        ground=False,
        restitution=restitution,
    )
    path = run(model, [0, 0, 0, 2.0, 0, 0, 0, 0, 0, -1.0, 0, 0])
    together = (1.0 * 2.0 - 3.0 * 1.0) / 4
    assert float(path.end.v[3]) == pytest.approx(together - 3 / 4 * restitution * 3.0, abs=1e-4)
    assert float(path.end.v[9]) == pytest.approx(together + 1 / 4 * restitution * 3.0, abs=1e-4)


@pytest.mark.parametrize("cone", [False, True])
def test_a_glancing_hit_turns_both_balls(cone):
    """Friction acts on both, equal and opposite at one point: linear and angular momentum are kept."""
    model = world(
        (loose(BALL, 1.0), (0.0, 0.0, 0.0)),
        (loose(BALL, 2.0), (0.5, 0.1, 0.05)),
        gravity=(0.0, 0.0, 0.0),
        ground=False,
        friction=0.4,
        cone=cone,
    )
    path = run(model, [0, 0, 3.0, 2.0, 0, 0, 1.0, 0, 0, 0, 0, 0], steps=300)
    before, after = momenta(model, path, 0), momenta(model, path, 300)
    assert torch.allclose(after[0], before[0], atol=1e-13) and torch.allclose(after[1], before[1], atol=1e-12)
    turned = (path.end.v - path.v[0])[[0, 1, 2, 6, 7, 8]].reshape(2, 3).norm(dim=-1)
    assert (turned > 0.1).all(), "friction turned none of them"


@pytest.mark.parametrize("number", [2, 5])
def test_a_stack_of_bricks_stands(number):
    """Every contact carries the weight of what is above it."""
    bricks = [(loose(BRICK), (0.01 * (i % 2), 0.0, 0.05 + 0.1 * i)) for i in range(number)]
    model = world(*bricks, iterations=200)
    path = run(model, steps=500, dt=2e-3, record=["impulse"])
    heights = path.end.q.reshape(number, 7)[:, 2]
    assert torch.allclose(heights, 0.05 + 0.1 * torch.arange(number, dtype=torch.float64), atol=1e-4)
    weight = 2.0 * G * 2e-3
    lifted = path.recorded["impulse"][-1, :, 0]
    for i in range(number):
        below = "ground" if i == 0 else f"r_{i - 1}/b/0" if i > 1 else "r/b/0"
        name = f"r_{i}/b/0" if i else "r/b/0"
        places = [k for k, n in enumerate(model.candidates.names) if n in (f"{name} on {below}", f"{below} on {name}")]
        assert float(lifted[places].sum()) == pytest.approx((number - i) * weight, rel=2e-3)


@pytest.mark.parametrize("degrees", [0.0, 20.0, 45.0, 70.0])
def test_with_the_cone_a_brick_slips_in_any_direction_alike(degrees):
    """At tan(angle) = mu, to 0.1 degree; with the pyramid, 45 degrees off its axes it would hold up to sqrt(2) mu."""
    mu, direction, slipped = 0.4, math.radians(degrees), []
    for off in (-0.1, 0.1):
        angle = math.atan(mu) + math.radians(off)
        down = G * math.sin(angle)
        gravity = (down * math.cos(direction), down * math.sin(direction), -G * math.cos(angle))
        model = world((loose(BRICK), (0.0, 0.0, 0.05)), gravity=gravity, friction=mu, cone=True, iterations=300)
        slipped.append(float(run(model, steps=1000).end.v[3:5].norm()) > 1e-4)
    assert slipped == [False, True]


def test_a_robot_collides_with_itself_only_if_asked():
    """A chain of three balls: neighbours and excluded pairs never meet."""
    hinge = {"kind": "revolute", "axis": (0.0, 1.0, 0.0)}
    mass = mass_properties(BALL, mass=1.0)
    bodies = (
        Body("a", None, Pose(), (Joint("j", **hinge),), mass, (BALL,)),
        Body("b", "a", Pose((0.15, 0.0, 0.0)), (Joint("k", **hinge),), mass, (BALL,)),
        Body("c", "b", Pose((0.15, 0.0, 0.0)), (Joint("l", **hinge),), mass, (BALL,)),
    )
    chain = Robot("chain", bodies)
    scene = kn.Scene()
    scene.add_robot(chain, self_collision=True)
    assert kn.compile(scene).candidates.names == ["chain/a/0 on chain/c/0"]
    scene = kn.Scene()
    scene.add_robot(chain)
    scene.add_robot(
        Robot("other", bodies, excluded=frozenset({frozenset({"a", "c"})})), pos=(0, 9, 0), self_collision=True
    )
    names = kn.compile(scene).candidates.names
    assert len(names) == 9 and all("chain" in n and "other" in n for n in names)


def test_groups_decide_who_meets():
    red, blue = Shape("sphere", (0.1,), group=2, mask=1), Shape("sphere", (0.1,), group=4, mask=2 | 1)
    model = world((loose(red), (0.0, 0.0, 1.0)), (loose(blue), (1.0, 0.0, 1.0)))
    assert model.candidates.names == ["r/b/0 on ground", "r_1/b/0 on ground"]


def test_pairs_that_cannot_touch_are_named():
    flat = Robot("flat", (Body("b", None, Pose(), (Joint("free", "free"),), mass_properties(BALL), (Shape("plane"),)),))
    with pytest.raises(kn.ModelError, match=r"collision of plane 'flat/b/0' and plane 'ground'") as caught:
        world((flat, (0.0, 0.0, 1.0)))
    assert "Shape(collides=False)" in str(caught.value) and "add_ground(exclude=['plane'])" in str(caught.value)
    square = Mesh(np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]), np.array([[0, 1, 2]], np.int32))
    with pytest.raises(kn.ModelError, match="mesh 'r/b/0' has no convex hull"):
        world((body_of(Shape("mesh", mesh=square)), (0.0, 0.0, 1.0)))
    with pytest.raises(kn.ModelError, match="terrain 'r/b/0' is on a moving body"):
        world((body_of(Shape("terrain", mesh=square)), (0.0, 0.0, 1.0)))


def test_too_many_contacts_are_reported():
    model = world(*[(loose(BRICK), (0.3 * i, 0.0, 0.05)) for i in range(6)], max_contacts=10)
    with pytest.raises(kn.SimulationError, match="more than 10 contacts at once, first in step 0") as caught:
        run(model, steps=5)
    assert "Contact(max_contacts=24)" in str(caught.value)  # four corners of each


def test_robots_far_apart_do_not_disturb_each_other():
    """Three in one world move as one alone, to the rounding of where they stand."""
    alone = world((quadruped(), (0.0, 0.0, 0.0)))
    path = run(alone, steps=50, dt=2e-3)
    many = world(*[(quadruped(), (2.0 * i, 0.0, 0.0)) for i in range(3)])
    together = run(many, steps=50, dt=2e-3)
    for i in range(3):
        q = together.end.q[19 * i : 19 * (i + 1)].clone()
        q[0] -= 2.0 * i
        assert torch.allclose(q, path.end.q, rtol=0, atol=1e-13)


def test_a_cylinder_rolls_and_a_can_stands():
    """Rolling without slipping, a solid cylinder takes two thirds of the acceleration down a slope."""
    slope = math.radians(10)
    gravity = (G * math.sin(slope), 0.0, -G * math.cos(slope))
    lying = Shape("cylinder", (0.1, 0.2), Pose((0.0, 0.0, 0.0), (math.sqrt(0.5), math.sqrt(0.5), 0.0, 0.0)))
    path = run(world((loose(lying), (0.0, 0.0, 0.1)), gravity=gravity), steps=1000)
    assert float(path.end.q[0]) == pytest.approx(G * math.sin(slope) / 3, rel=5e-3)  # 2/3 g sin / 2 after a second
    standing = run(world((loose(Shape("cylinder", (0.1, 0.2))), (0.0, 0.0, 0.2)), gravity=gravity), steps=1000)
    assert float(standing.end.q[2]) == pytest.approx(0.2, abs=1e-4) and abs(float(standing.end.q[0])) < 1e-3


@pytest.mark.parametrize("shape", [BALL, BRICK, Shape("capsule", (0.06, 0.08)), Shape("cylinder", (0.1, 0.08))])
def test_flat_terrain_is_a_ground(shape):
    """Shapes that fall on it come to rest where they do on a plane."""
    rest = []
    for terrain in (False, True):
        scene = kn.Scene(contact=kn.Contact(iterations=100))
        if terrain:
            scene.add_terrain(height_field(np.zeros((9, 9)), 2.0, 2.0))
        else:
            scene.add_ground()
        scene.add_robot(loose(shape), pos=(0.03, 0.02, 0.15))
        path = run(kn.compile(scene), steps=600, dt=2e-3)
        rest.append(path.end.q[2])
        assert float(path.end.v[3:].norm()) < 2e-2
    assert float(rest[0]) == pytest.approx(float(rest[1]), abs=2e-3)


def test_a_ball_rolls_in_a_valley():
    """Two sides at 45 degrees: it rests on both, its centre sqrt(2) r above the bottom."""
    x = np.linspace(-1, 1, 21)
    scene = kn.Scene()
    scene.add_terrain(height_field(np.abs(np.tile(x, (21, 1))), 2.0, 2.0))
    scene.add_robot(loose(BALL), pos=(0.3, 0.0, 0.6))
    path = run(kn.compile(scene), steps=2000, dt=2e-3)
    assert float(path.end.q[2]) == pytest.approx(math.sqrt(2) * RADIUS, abs=1e-3)
    assert abs(float(path.end.q[0])) < 1e-3


# -- compliant contact -----------------------------------------------------------------------------------------------


def test_a_ball_sinks_into_soft_ground():
    """By m g / k_e; friction that holds it creeps at m g sin / k_f, below mu it never slides faster."""
    soft = {"law": "compliant", "k_e": 1e4, "k_d": 200.0, "k_f": 50.0}
    path = run(world((loose(BALL), (0.0, 0.0, 0.1)), **soft), steps=3000)
    assert 0.1 - float(path.end.q[2]) == pytest.approx(2.0 * G / 1e4, rel=1e-6)
    slope = math.atan(0.2)
    gravity = (G * math.sin(slope), 0.0, -G * math.cos(slope))
    path = run(world((loose(BRICK), (0.0, 0.0, 0.05)), gravity=gravity, friction=0.8, **soft), steps=3000)
    pull, bound = 2.0 * G * math.sin(slope), 0.8 * 2.0 * G * math.cos(slope)  # both of four corners together
    creep = pull / 4 / 50.0 / math.sqrt(1 - (pull / bound) ** 2)
    assert float(path.end.v[3]) == pytest.approx(creep, rel=2e-2)  # corners carry unequal shares


def test_soft_balls_keep_their_momentum():
    """Forces on both are equal and opposite, at one point."""
    model = world(
        (loose(BALL, 1.0), (0.0, 0.0, 0.0)),
        (loose(BALL, 2.0), (0.25, 0.1, 0.05)),
        gravity=(0.0, 0.0, 0.0),
        ground=False,
        law="compliant",
        friction=0.4,
    )
    path = run(model, [0, 0, 3.0, 2.0, 0, 0, 1.0, 0, 0, 0, 0, 0], steps=2000, dt=1e-4)
    before, after = momenta(model, path, 0), momenta(model, path, 2000)
    assert torch.allclose(after[0], before[0], atol=1e-12)
    assert torch.allclose(after[1], before[1], atol=1e-3)  # O(dt): forces act at the start of a step, bodies move on
    assert float((path.end.v - path.v[0])[:3].norm()) > 0.1, "friction did not turn it"


def test_a_law_that_does_not_exist_is_named():
    with pytest.raises(kn.ModelError, match="unknown contact law"):
        kn.Contact(law="glue")
