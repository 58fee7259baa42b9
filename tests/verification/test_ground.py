"""Robots on the ground against closed forms: rest, incline, sliding, bouncing; and gradients while they touch it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.contact_gradients import Case, Counts, check_gradients

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import Body, Joint, MassProperties, Mesh, Pose, Robot, Shape
from kinema.scene.shapes.quadruped import quadruped
from kinema.scene.shapes.random_tree import random_tree

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

G, MASS = 9.81, 2.0
LUMP = MassProperties(MASS, (0.0, 0.0, 0.0), (0.02, 0.0, 0.0, 0.02, 0.0, 0.02))
BALL, BRICK = Shape("sphere", (0.1,)), Shape("box", (0.1, 0.1, 0.05))


def body_on_ground(shape: Shape, height: float, gravity=(0.0, 0.0, -G), exclude=(), **contact) -> kn.Model:
    scene = kn.Scene(gravity, kn.Contact(**contact))
    scene.add_ground(exclude=exclude)
    scene.add_robot(
        Robot("r", (Body("b", None, Pose(), (Joint("free", "free"),), LUMP, (shape,)),)), pos=(0, 0, height)
    )
    return kn.compile(scene)


def run(model: kn.Model, v=(0.0,) * 6, steps=1000, dt=1e-3, **options) -> kn.Trajectory:
    start = torch.tensor(v, dtype=torch.float64)
    options |= {"steps": steps, "dt": dt, "record": ["impulse"]}
    return kn.simulate(model, kn.State(v=start), **options)


@pytest.mark.parametrize("dt", [1e-3, 5e-3])
def test_a_ball_rests_on_the_ground(dt):
    """The ground carries its weight, m g dt in each step; a softness c lets it sink by m g dt^2 c / erp."""
    softness = 1e-4
    path = run(body_on_ground(BALL, 0.1, cfm=softness), steps=2000, dt=dt)
    assert float(path.recorded["impulse"][-1, 0, 0]) == pytest.approx(MASS * G * dt, rel=1e-9)
    depth = 0.1 - float(path.end.q[2])
    assert depth == pytest.approx(MASS * G * dt**2 * softness / 0.2, rel=1e-6)
    assert float(path.residual.max()) < 1e-12


@pytest.mark.parametrize(("mu", "direction"), [(0.3, (1.0, 0.0)), (0.3, (0.0, 1.0)), (0.8, (1.0, 0.0))])
def test_a_brick_slips_beyond_the_angle_of_friction(mu, direction):
    """Along an axis of the friction pyramid, to 0.1 degree: tan(angle) = mu."""
    slipped = []
    for off in (-0.1, 0.1):
        angle = math.atan(mu) + math.radians(off)
        down = G * math.sin(angle)
        gravity = (down * direction[0], down * direction[1], -G * math.cos(angle))
        path = run(body_on_ground(BRICK, 0.05, gravity, friction=mu, iterations=200), steps=1000)
        slipped.append(float(path.end.v[3:5].norm()) > 1e-4)
    assert slipped == [False, True]


def test_a_brick_slides_until_friction_has_its_energy():
    """v^2 / (2 mu g), reached to O(dt)."""
    mu, speed, errors = 0.3, 1.0, []
    for dt in (2e-3, 1e-3):
        path = run(body_on_ground(BRICK, 0.05, friction=mu), (0, 0, 0, speed, 0, 0), int(0.6 / dt), dt)
        errors.append(abs(float(path.end.q[0]) - speed**2 / (2 * mu * G)))
        assert float(path.end.v.abs().max()) < 1e-6
    assert errors[1] < 1e-3 and 1.7 < errors[0] / errors[1] < 2.3


@pytest.mark.parametrize("restitution", [0.0, 0.5, 0.9])
def test_a_ball_bounces(restitution):
    """From 1 m to e^2 m, to O(dt)."""
    own = run(body_on_ground(Shape("sphere", (0.1,), restitution=restitution), 1.1), steps=4000, dt=2.5e-4)
    path = run(body_on_ground(BALL, 1.1, restitution=restitution), steps=4000, dt=2.5e-4)
    assert torch.equal(own.q, path.q)  # the ball's own, or that of all
    height = path.q[:, 2].numpy() - 0.1
    landed = int(np.flatnonzero(height < 1e-3)[0])
    assert height[landed + 5 :].max() == pytest.approx(restitution**2, abs=2e-3)


@pytest.mark.parametrize("height", [0.5, 0.08], ids=["beyond the margin", "within it"])
@pytest.mark.parametrize(
    "contact",
    [
        {},
        {"cone": True},
        *(
            {"cone": True, "solver": "pgs"} | more
            for more in ({}, {"warm_start": True}, {"tolerance": 1e-6}, {"relaxation": (0.8, 1.4)})
        ),
        {"law": "compliant"},
    ],
    ids=str,
)
def test_a_brick_that_falls_from_rest_is_not_held(contact, height):
    """No impulse of friction and none of the normal: the circle of friction is a point, and nothing passes through it.

    While it falls, x = vx t and so on: the derivative of each coordinate by its own velocity is the time, up to the
    rounding of some ten sums.
    """
    model, steps, dt = body_on_ground(BRICK, height, **contact), 10, 1e-3
    v = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    path = kn.simulate(model, kn.State(v=v), steps=steps, dt=dt, record=["gap"])
    assert float(path.recorded["gap"].min()) > 0
    rows = [torch.autograd.grad(path.end.q[i], v, retain_graph=True)[0] for i in range(3)]
    expected = steps * dt * torch.eye(6, dtype=torch.float64)[3:]  # v: angular part first
    assert torch.allclose(torch.stack(rows), expected, rtol=1e-13, atol=1e-15)


def test_a_rolling_ball_keeps_five_sevenths_of_its_speed():
    """A solid ball that slides first loses 2/7 to spin, whatever the friction."""
    solid = MassProperties(MASS, (0.0, 0.0, 0.0), (0.008, 0.0, 0.0, 0.008, 0.0, 0.008))  # 2/5 m r^2
    scene = kn.Scene(contact=kn.Contact(friction=0.5))
    scene.add_ground()
    scene.add_robot(Robot("r", (Body("b", None, Pose(), (Joint("free", "free"),), solid, (BALL,)),)), pos=(0, 0, 0.1))
    model = kn.compile(scene)
    path = run(model, (0, 0, 0, 1.4, 0, 0), 1000, 1e-3)
    R = kn.forward_kinematics(model, path.end.q).rotation[0]
    v, w = R @ path.end.v[3:], R @ path.end.v[:3]
    assert float(v[0]) == pytest.approx(1.0, rel=1e-3) and float(w[1]) == pytest.approx(10.0, rel=1e-3)


@pytest.mark.parametrize("shape", ["capsule", "box", "mesh"])
def test_shapes_lie_flat(shape):
    """Each comes to rest at the height of its lowest points."""
    cube = np.array([[x, y, z] for x in (-0.1, 0.1) for y in (-0.1, 0.1) for z in (-0.05, 0.05)])
    shapes = {
        "capsule": Shape("capsule", (0.05, 0.2), Pose((0.0, 0.0, 0.0), (math.sqrt(0.5), 0.0, math.sqrt(0.5), 0.0))),
        "box": BRICK,
        "mesh": Shape("mesh", (), mesh=Mesh(cube, np.zeros((1, 3), np.int32))),
    }
    path = run(body_on_ground(shapes[shape], 0.08), steps=1000, dt=2e-3)
    assert float(path.end.q[2]) == pytest.approx(0.05, abs=1e-4) and float(path.end.v.abs().max()) < 1e-4


def test_what_makes_no_sense_is_named():
    assert len(body_on_ground(Shape("cylinder", (0.1, 0.1)), 1.0, exclude=["cylinder"]).candidates) == 0
    with pytest.raises(kn.ModelError, match="Contact parameters are out of range"):
        kn.Contact(friction=-1.0)
    with pytest.raises(kn.ModelError, match="already has a ground"):
        scene = kn.Scene()
        scene.add_ground()
        scene.add_ground()


# -- gradients -------------------------------------------------------------------------------------------------------


def walker(seed: int) -> tuple[kn.Model, dict[str, torch.Tensor]]:
    """A floating tree with feet, pressed on the ground and moving along it."""
    tree = random_tree(seed, 4, floating=True, fixed=0, double=0)
    feet = (Shape("sphere", (0.05,), Pose((0.1, 0.0, 0.0))), Shape("sphere", (0.03,), Pose((0.0, -0.1, 0.05))))
    bodies = tuple(Body(b.name, b.parent, b.pose, b.joints, b.mass, feet) for b in tree.bodies)
    scene = kn.Scene(contact=kn.Contact(friction=0.4, cfm=1e-3, restitution=0.3, margin=10.0))
    scene.add_ground()
    scene.add_robot(Robot("r", bodies))
    model = kn.compile(scene)
    q = model.initial_state().q
    poses = kn.forward_kinematics(model, q)
    places = [torch.tensor(f.pose.position, dtype=torch.float64) for f in feet]
    centres = torch.stack([poses.position + (poses.rotation @ place) for place in places])
    q[2] -= (centres[..., 2] - torch.tensor([f.size[0] for f in feet])[:, None]).min() + 1e-3  # a millimetre deep
    v = 0.05 * torch.randn(model.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    slide = torch.tensor([0.5 * (seed % 2), 0.0, -0.1], dtype=torch.float64)  # half of them along the ground, all down
    v[3:6] = poses.rotation[0].T @ slide
    return model, {"q": q, "v": v}


NAMES = ("mass", "com", "inertia", "offset", "axis", "damping", "gravity", "friction", "size", "centre")
NAMES += ("contact/erp", "contact/cfm", "restitution")


@pytest.mark.parametrize(("steps", "tolerance", "h"), [(1, 1e-6, 1e-6), (32, 1e-5, 1e-6), (256, 1e-4, 1e-7)])
def test_gradients_in_contact(steps, tolerance, h):
    """To every number, against central differences; a case counts as near a switch only if the contacts switch.

    Over all runs some points must slide and some must stick; at most 5 % of the cases may be near a switch. Over many
    steps a difference of 1e-6 would be; and where feet bounce the slope by places changes by 1e-4 within 1e-6 m.
    """
    counts = Counts()
    for seed in range(6):
        model, start = walker(seed)
        case = Case(model, start["q"], start["v"], NAMES, fine=("q", "offset", "size", "centre"))
        check_gradients(case, steps, tolerance, h, seed, counts)
    print(counts)
    assert counts.switches <= 0.05 * counts.cases and min(counts.sliding, counts.sticking) > 0, counts


# -- a whole robot ---------------------------------------------------------------------------------------------------


def standing_quadruped() -> tuple[kn.Model, torch.Tensor]:
    scene = kn.Scene()
    scene.add_ground()
    scene.add_robot(quadruped(), "dog")
    model = kn.compile(scene)
    q = model.initial_state().q
    q[7:] = torch.tensor(model.tree.rest[6:])
    q[2] = 2 * 0.25 * math.cos(0.6) + 0.02
    return model, q


def test_a_quadruped_stands():
    """Its springs hold it up; once its rocking has died down (12 s) the four feet carry its weight together."""
    model, q = standing_quadruped()
    start = torch.zeros(model.nv, dtype=torch.float64)
    path = kn.simulate(model, kn.State(q, start), steps=6000, dt=2e-3, record=["impulse"])
    weight = float(model.parameters("mass")["mass"].sum()) * G * 2e-3
    assert (path.recorded["impulse"][-1, :, 0] > 0).all()
    assert float(path.recorded["impulse"][-1, :, 0].sum()) == pytest.approx(weight, rel=1e-5)
    assert float(path.end.v.abs().max()) < 1e-4 and 0.38 < float(path.end.q[2]) < 0.44
    assert float(path.residual.max()) < 1e-9


def test_a_batch_of_quadrupeds_has_the_bits_of_one():
    """Forward and backward, for whatever number of threads."""
    model, q = standing_quadruped()
    generator = torch.Generator().manual_seed(0)
    v = 0.1 * torch.randn(17, model.nv, dtype=torch.float64, generator=generator)

    def ends(v, threads):
        v = v.clone().requires_grad_()
        path = kn.simulate(
            model, kn.State(q.expand(*v.shape[:-1], -1), v), steps=30, dt=2e-3, options=kn.RunOptions(threads=threads)
        )
        path.end.q.sum().backward()
        return path.end.q.detach(), v.grad

    together = ends(v, 2)
    assert all(torch.equal(a, b) for a, b in zip(together, ends(v, 1), strict=True))
    for w in (0, 16):
        assert all(torch.equal(a[w], b) for a, b in zip(together, ends(v[w], 1), strict=True))


def test_a_standing_quadruped_tells_its_friction_and_mass_by_gradient():
    """A push slides it; friction and the trunk's mass are recovered together from where it is afterwards."""
    model, q = standing_quadruped()
    push = torch.zeros(model.nv, dtype=torch.float64)
    push[3] = 1.5
    names = ("friction", "dog/trunk/mass")

    def slide(mu, mass):
        params = {"friction": mu.clamp(min=0.0).expand(4), "dog/trunk/mass": mass}
        return kn.simulate(model, kn.State(q, push), steps=150, dt=2e-3, params=params)

    truth = torch.tensor([0.45, 14.0], dtype=torch.float64)
    seen = slide(*truth).end.q
    guess = torch.tensor([0.5, 12.0], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([guess], max_iter=40, tolerance_change=1e-14, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        error = (slide(*guess).end.q - seen).square().sum() * 1e4
        error.backward()
        return error

    optimiser.step(loss)
    assert torch.allclose(guess.detach(), truth, rtol=1e-3), dict(zip(names, guess.tolist(), strict=True))


@pytest.mark.parametrize("bad", [3, (1.0,), (0.0, 1.0), (1.0, 2.0), ("a", 1.0), (math.nan, 1.0)])
def test_a_relaxation_that_makes_no_sense_is_refused(bad):
    with pytest.raises(kn.ModelError, match="two factors between 0 and 2"):
        kn.Contact(relaxation=bad)
    with pytest.raises(kn.ModelError, match="solver 'newton' has no relaxation"):
        kn.Contact(solver="newton", relaxation=(0.8, 1.4))
