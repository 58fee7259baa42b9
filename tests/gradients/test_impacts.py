"""Gradients through impacts: against secants over windows that many impacts cross, and against tiny differences."""

from __future__ import annotations

import pytest
import torch
from tests import impact_scenes as scenes
from tests.contact_gradients import Case, Counts, check_gradients

import kinema as kn
from kinema.lang.build import compiler

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

WIDE, NARROW = (2e-3, 5e-4), (5e-4, 2.5e-4)
WINDOWS = {
    "ball, e = 0.3": (lambda: scenes.ball_window(0.3), WIDE),
    "ball, e = 0.8": (lambda: scenes.ball_window(0.8), WIDE),
    "ball, e = 1": (lambda: scenes.ball_window(1.0), WIDE),
    "ball with spin by friction": (scenes.sideways_window, WIDE),
    "the same, cone and Newton": (lambda: scenes.sideways_window(cone=True, solver="newton"), WIDE),
    "the same, warm start": (lambda: scenes.sideways_window(solver="pgs", warm_start=True), WIDE),
    "brick on corners": (scenes.brick_window, WIDE),
    "brick on corners, cone and Newton": (lambda: scenes.brick_window(cone=True, solver="newton"), NARROW),
    "capsule": (scenes.rod_window, NARROW),
    "two balls in flight": (scenes.flight_window, WIDE),
    "cradle with gaps": (lambda: scenes.cradle_window(1e-3), WIDE),
    "cradle that touches": (lambda: scenes.cradle_window(0.0), WIDE),
    "cradle that touches, e = 0.8": (lambda: scenes.cradle_window(0.0, e=0.8), WIDE),
    "ball on a slope": (scenes.slope_window, WIDE),
    "pendulum at its limit": (scenes.limit_window, WIDE),
    "sledge at its limit": (lambda: scenes.limit_window("prismatic"), WIDE),
    "ball joint at its limit": (lambda: scenes.limit_window("ball"), WIDE),
    "paddle": (scenes.paddle_window, WIDE),
    "quadruped, e = 0": (lambda: scenes.quadruped_window(0.0), WIDE),
    "quadruped, e = 0.3": (lambda: scenes.quadruped_window(0.3), NARROW),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_the_mean_gradient_is_the_secant(name):
    """To 2 %, and twice what half as many samples would change of the mean.

    Where bodies turn, the position of an impact is known to the second order of dt: a jump of that size per step, and
    a mean that is off in proportion to dt. Those of the capsule and of stiff legs need shorter steps for 2 %.
    """
    make, times = WINDOWS[name]
    window = make()
    for dt in times:
        found = scenes.compare(window, dt)
        assert abs(found.mean - found.secant) <= 0.02 * abs(found.secant) + 2 * found.sampling, (dt, found)


NAMES = ("mass", "com", "inertia", "gravity", "friction", "restitution", "size", "centre", "contact/erp", "contact/cfm")


@pytest.mark.parametrize(
    ("contact", "steps"),
    [
        ({}, 60),
        ({"cone": True}, 60),
        ({"solver": "newton"}, 60),
        ({"solver": "newton", "cone": True}, 60),
        ({"solver": "pgs", "warm_start": True, "tolerance": 1e-9}, 60),
        ({"threshold": 0.0}, 60),
    ],
)
def test_tiny_differences_of_bodies_that_bounce(contact, steps):
    """Bricks and balls, all with spin, that hit the ground and each other."""
    counts = Counts()
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        places = (0.0, 0.0, 0.13), (0.16, 0.05, 0.22), (-0.25, 0.0, 0.2)
        shapes = scenes.BALL, scenes.BRICK, scenes.BALL
        bodies = [(scenes.loose(shape, 1.0 + k), at) for k, (shape, at) in enumerate(zip(shapes, places, strict=True))]
        model = scenes.world(*bodies, restitution=0.6, friction=0.4, **contact)
        v = torch.randn(18, dtype=torch.float64, generator=generator)
        v[[5, 11, 17]] -= 2.0
        placed = model.initial_state()
        q = placed.q
        q[10:14] = torch.nn.functional.normalize(q[10:14] + 0.2 * torch.randn(4, generator=generator), dim=0)
        case = Case(model, q, v, NAMES, impulses=placed.impulses, fine=("q", "size", "centre", "com"))
        # The slope changes by more than this within 1e-6 m in a step with an impact.
        check_gradients(case, steps, 2e-5, 1e-6, seed, counts)
    assert counts.pressing > 10 and counts.switches <= 0.1 * counts.cases, counts
    assert {"q", "v", "restitution", "friction", "mass"} <= counts.seen, counts


@pytest.mark.parametrize("kind", ["revolute", "prismatic", "ball"])
def test_tiny_differences_at_limits(kind):
    window = scenes.limit_window(kind)
    model = window.model
    v = torch.zeros(model.nv, dtype=torch.float64)
    for at, x in (window.v or {0: -4.0}).items():
        v[at] = x
    names = ("mass", "com", "inertia", "gravity", "upper", "contact/limit_restitution", "damping", "armature")
    counts = Counts()
    case = Case(model, window.q, v, names, record=("limit_impulse",), dt=2e-3, fine=("q", "upper"))
    check_gradients(case, 200, 1e-5, 1e-6, 0, counts)
    assert 0 < counts.at_limits <= 20 and counts.switches == 0 and "contact/limit_restitution" in counts.seen, counts


def test_a_batch_has_the_bits_of_one_world():
    """Worlds that are hit at other times share registers."""
    window = scenes.brick_window()
    s = torch.linspace(-0.01, 0.01, 9, dtype=torch.float64, requires_grad=True)
    ends = window.ends(s, 1e-3)
    (together,) = torch.autograd.grad(ends.sum(), s)
    for k in (0, 4, 7):
        one = s[k : k + 1].detach().requires_grad_()
        end = window.ends(one, 1e-3)
        assert float(end) == float(ends[k])
        assert float(torch.autograd.grad(end.sum(), one)[0]) == float(together[k])


def test_many_candidates_are_picked():
    """A terrain under many balls: contacts are picked from the candidates, and bounce as if there were no others."""
    few = scenes.world((scenes.loose(), (0.0, 0.0, 0.2)), restitution=0.7, friction=0.3)
    bricks = [(scenes.loose(scenes.BRICK), (1.0 * k, 5.0, 0.3)) for k in range(6)]
    many = scenes.world((scenes.loose(), (0.0, 0.0, 0.2)), *bricks, restitution=0.7, friction=0.3, most=40)
    found = []
    for model in (few, many):
        q = model.initial_state().q.requires_grad_()
        v = torch.zeros(model.nv, dtype=torch.float64)
        v[3], v[5] = 0.5, -1.0
        end = kn.simulate(model, kn.State(q, v), steps=120, dt=2e-3).end.q
        (g,) = torch.autograd.grad(end[0] + end[2], q)
        found.append(torch.cat([end[:7], g[:7]]).detach())
    assert torch.allclose(*found, rtol=1e-9, atol=1e-12)  # solved by other sweeps: the same to their rounding


@pytest.mark.parametrize(
    ("height", "speed"),
    [
        (0.1, -1.0),  # touches at the start
        (0.1, 0.0),
        (0.1, 1e-300),
        (0.1 + 1e-3, -1.0),  # hit at the end of the first step
        (0.1 + 1e-300, -1.0),
        (0.1 - 1e-12, -1.0),
        (0.1 - 0.01, -1.0),  # deep inside
        (0.1 + 1e-3, -0.1),  # at the threshold
        (0.1 + 1e-3, -0.2),  # at twice the threshold
    ],
)
@pytest.mark.parametrize("threshold", [0.0, 0.1])
def test_finite_everywhere(height, speed, threshold):
    """Impacts without speed, at the start and at the end of a step; also without gravity, and in single precision."""
    for gravity in (0.0, scenes.G):
        for dtype in (torch.float64, torch.float32):
            scene = kn.Scene((0.0, 0.0, -gravity), kn.Contact(restitution=0.5, threshold=threshold))
            scene.add_ground()
            scene.add_robot(scenes.loose(), pos=(0.0, 0.0, height))
            model = kn.compile(scene, dtype)
            q = model.initial_state().q.requires_grad_()
            v = torch.tensor([0, 0, 0, 0, 0, speed], dtype=dtype).requires_grad_()
            params = model.parameters("restitution", "friction", "mass", requires_grad=True)
            path = kn.simulate(model, kn.State(q, v), steps=3, dt=1e-3, params=params)
            gradients = torch.autograd.grad(path.end.q.sum() + path.end.v.sum(), [q, v, *params.values()])
            assert all(bool(g.isfinite().all()) for g in gradients)
            assert max(float(g.abs().max()) for g in gradients[:2]) < 2e3  # one over dt, of what is stopped in a step


def test_restitution_that_is_given_counts():
    """Although the model has none; with a gradient also at zero, and by all ways to name it."""
    model = scenes.world((scenes.loose(), (0.0, 0.0, 0.2)))
    bouncy = scenes.world((scenes.loose(), (0.0, 0.0, 0.2)), restitution=0.5)
    wanted = kn.simulate(bouncy, steps=150, dt=2e-3).end.q
    for path in ("restitution", f"{model.candidates.names[0]}/restitution"):
        given = model.parameters(path)
        given[path] = torch.full_like(given[path], 0.5)
        assert torch.equal(kn.simulate(model, params=given, steps=150, dt=2e-3).end.q, wanted)
    none = {"restitution": torch.zeros(1, dtype=torch.float64, requires_grad=True)}
    end = kn.simulate(model, params=none, steps=150, dt=2e-3).end.q
    plain = kn.simulate(model, steps=150, dt=2e-3).end.q
    assert torch.allclose(end, plain, atol=1e-12) and end.requires_grad
