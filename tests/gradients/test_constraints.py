"""Gradients through joints with limits, friction, followers, loops, actuators, and through contact between bodies."""

from __future__ import annotations

import math
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from tests.contact_gradients import Case, Counts, check_gradients

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import Actuator, Body, Closure, Joint, MassProperties, Mesh, Mimic, Pose, Robot, Shape
from kinema.scene.shapes.height_field import height_field

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

LENGTHS = [(1, 1e-6, 1e-6), (32, 1e-5, 1e-6), (256, 1e-4, 1e-7)]
INERTIAL = ("mass", "com", "inertia", "gravity", "contact/erp", "contact/cfm")
TURNED = (math.cos(0.2), math.sin(0.2), 0.0, 0.0)


def linkage(loop: str = "connect", **words) -> tuple[kn.Model, torch.Tensor, torch.Tensor]:
    """A chain that leans on a limit, rubs, drives a follower, closes a loop, and has all kinds of actuators."""
    rod = MassProperties(1.0, (0.01, 0.0, -0.1), (0.03, 0.001, 0.0, 0.04, 0.0, 0.02))
    hinge, rail = {"kind": "revolute", "axis": (0.0, 1.0, 0.0)}, {"kind": "prismatic", "axis": (1.0, 0.0, 0.0)}
    bodies = (
        Body("a", None, Pose(), (Joint("a", **hinge, lower=-0.2, upper=0.1, friction=0.05),), rod),
        Body("b", "a", Pose((0.0, 0.0, -0.3), TURNED), (Joint("b", **hinge, damping=0.1),), rod),
        Body("c", "b", Pose((0.0, 0.0, -0.3)), (Joint("c", "ball"),), rod),
        Body("d", None, Pose((0.5, 0.0, 0.0)), (Joint("d", **rail, mimic=Mimic("b", 0.3, 0.02), armature=0.1),), rod),
        Body("e", "d", Pose((0.0, 0.0, -0.2)), (Joint("e", **hinge, upper=0.3),), rod),
        Body("f", "e", Pose((0.0, 0.0, -0.2)), (Joint("f", "ball"),), rod),
    )
    motors = (
        Actuator("strong", "a", gear=20.0, force=12.0),  # beyond its bound: it holds the joint at its limit
        Actuator("weak", "d", gear=0.5),
        Actuator("place", "b", "position", kp=20.0, kd=1.0),
        Actuator("speed", "e", "velocity", kd=0.5),
    )

    def compiled(*closures: Closure) -> kn.Model:
        scene = kn.Scene(contact=kn.Contact(cfm=1e-4, erp=0.01, **words))
        scene.add_robot(Robot("l", bodies, motors, closures))
        return kn.compile(scene)

    model = compiled()
    q = model.initial_state().q
    q[0] = 0.1 + 1e-3  # beyond its limit, by far more than a difference over all steps
    q[model.tree.q_start[model.joints.index("l/d")]] = 0.02  # where the follower belongs
    poses = kn.forward_kinematics(model, q)
    c, f = model.bodies.index("l/c"), model.bodies.index("l/f")
    end = poses.position[c] + poses.rotation[c] @ torch.tensor([0.0, 0.0, -0.15], dtype=torch.float64)
    held = tuple((poses.rotation[f].T @ (end - poses.position[f])).tolist())
    # Turned as b is on a: a weld starts 0.1 rad beside its place.
    model = compiled(Closure("loop", loop, "c", "f", Pose((0.0, 0.0, -0.15)), Pose(held, TURNED)))
    return model, q, 0.1 * torch.randn(model.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("loop", ["connect", "weld"])
@pytest.mark.parametrize(("steps", "tolerance", "h"), LENGTHS)
def test_a_linkage_with_everything(steps, tolerance, h, loop):
    """Rows of all kinds at once; the limit carries load in every run."""
    model, q, v = linkage(loop)
    names = (
        *INERTIAL,
        "offset",
        "axis",
        "armature",
        "damping",
        "dry_friction",
        "lower",
        "upper",
        "gear",
        "kp",
        "kd",
        "force",
    )
    u = torch.tensor([1.0, 0.4, 0.2, -0.3], dtype=torch.float64)
    counts = Counts()
    for seed in range(3):
        case = Case(model, q, v, names, "l/c", u, ("limit_impulse",))
        check_gradients(case, steps, tolerance, h, seed, counts)
    print(counts)
    assert counts.at_limits >= 3 * steps and counts.switches <= 0.05 * counts.cases, counts


@pytest.mark.parametrize("loop", ["connect", "weld"])
@pytest.mark.parametrize(("steps", "tolerance", "h"), LENGTHS[:2])
def test_errors_that_close_at_the_largest_speed(steps, tolerance, h, loop):
    """The loop starts 0.02 m and 0.1 rad off, and the follower 0.05 m: each closes along its error, at 0.02 m/s."""
    model, q, v = linkage(loop, max_correction_speed=0.02)
    q[model.tree.q_start[model.joints.index("l/d")]] += 0.05
    q[model.tree.q_start[model.joints.index("l/e")]] += 0.05
    counts = Counts()
    case = Case(
        model, q, v, (*INERTIAL, "offset", "axis"), "l/c", torch.zeros(4, dtype=torch.float64), ("limit_impulse",)
    )
    check_gradients(case, steps, tolerance, h, 0, counts)
    assert counts.switches <= 0.05 * counts.cases, counts


def test_servos_beyond_their_bounds():
    """Where a servo turns from implicit to constant, by all its numbers, against central differences."""
    hinge = {"kind": "revolute", "axis": (0.0, 1.0, 0.0), "damping": 0.05}
    rod = MassProperties(1.0, (0.0, 0.0, -0.2), (0.03, 0.0, 0.0, 0.03, 0.0, 0.01))
    links = (
        Body("a", None, Pose(), (Joint("a", **hinge),), rod),
        Body("b", "a", Pose((0.0, 0.0, -0.4)), (Joint("b", **hinge),), rod),
    )
    motors = Actuator("m", "a", "position", kp=60.0, kd=6.0, force=9.0), Actuator("n", "b", "velocity", kd=2.0, force=2)
    scene = kn.Scene()
    scene.add_robot(Robot("arm", links, motors))
    model = kn.compile(scene)
    names = [f"arm/{n}" for n in ("m/kp", "m/kd", "m/force", "n/kd", "n/force")]
    start = [torch.tensor(x, dtype=torch.float64) for x in ([0.1, 0.2], [0.4, -0.3], [0.34, 0.96])]
    point = [*start, *model.parameters(*names).values()]

    def end(q, v, u, *values):
        given = dict(zip(names, values, strict=True))
        end = kn.simulate(model, kn.State(q, v), u, steps=3, dt=2e-3, params=given).end
        return torch.cat([end.q, end.v])

    (q, v, u), shares = start, []
    for force, bound in ((60.0 * (u[0] - q[0] - 2e-3 * v[0]) - 6.0 * v[0], 9.0), (2.0 * (u[1] - v[1]), 2.0)):
        shares.append(float(force) / bound)
    assert all(1.05 < share < 1.45 for share in shares), shares
    assert torch.autograd.gradcheck(end, [x.clone().requires_grad_() for x in point], eps=1e-6, atol=1e-8, rtol=1e-6)


SHAPES = {
    "sphere": Shape("sphere", (0.1,)),
    "capsule": Shape("capsule", (0.06, 0.1), Pose((0.01, 0.0, 0.0), (0.7, 0.1, 0.7, 0.1))),
    "box": Shape("box", (0.1, 0.08, 0.06), Pose((0.0, 0.01, 0.0))),
    "cylinder": Shape("cylinder", (0.08, 0.09), Pose((0.0, 0.01, 0.0))),
    "mesh": Shape("mesh", mesh=Mesh(0.1 * np.random.default_rng(5).normal(size=(14, 3)), np.zeros((0, 3), np.int32))),
}
PAIRS = [(a, b) for i, a in enumerate(SHAPES) for b in list(SHAPES)[i:]]
LAWS = [("pyramid", 0.3), ("cone", 3.0), ("compliant", 0.3)]
GROUNDS = [(shape, ground) for ground in ("plane", "terrain") for shape in SHAPES]
SEEN = ("gap", "point", "normal", "position", "velocity")  # tells which compliant contacts push and are damped
HILLS = 0.1 * np.sin(np.arange(81)).reshape(9, 9)  # m, every 0.25 m: slopes of up to 40 degrees


@cache  # for all lengths
def pressed_pair(first: str, second: str, law: str, friction: float, dt: float = 1e-3, **more) -> Case:
    """A loose body, moving down and along, on one that springs hold, on the plane or on terrain.

    A depth is undone in some 50 ms.
    """

    def body(name: str, place: Pose, joints: tuple[Joint, ...]) -> Body:
        shape = SHAPES[name]
        mass = MassProperties(1.0, (0.0, 0.0, 0.0), (0.01, 0.0, 0.0, 0.012, 0.0, 0.009))
        return Body(name, None, place, joints, mass, (shape,))

    spring = tuple(
        Joint(n, "prismatic", axis, stiffness=200.0, damping=5.0)
        for n, axis in (("x", (1.0, 0.0, 0.0)), ("y", (0.0, 1.0, 0.0)), ("z", (0.0, 0.0, 1.0)))
    )
    words = {"law": "compliant", "k_e": 2e3} if law == "compliant" else {"cone": law == "cone"}
    words |= {"friction": friction, "cfm": 1e-3, "erp": 20 * dt, "margin": 0.2, "iterations": 60, **more}
    scene = kn.Scene(contact=kn.Contact(**words))
    if second == "plane":
        scene.add_ground()
    elif second == "terrain":
        scene.add_terrain(height_field(HILLS, 2.0, 2.0))
    else:
        scene.add_robot(Robot("low", (body(second, Pose(), (*spring, Joint("turn", "ball", damping=0.05))),)))
    scene.add_robot(Robot("up", (body(first, Pose(rotation=(0.98, 0.05, 0.15, 0.1)), (Joint("free", "free"),)),)))
    model = kn.compile(scene)
    q = model.initial_state().q
    at = model.nq - 7
    for _ in range(20):  # lower it until it is a millimetre deep
        path = kn.simulate(model, kn.State(q), steps=1, dt=1e-3, record=["gap"])
        q[at + 2] -= float(path.recorded["gap"][0].min()) + 1e-3
    v = 0.02 * torch.randn(model.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    v[-3:] = torch.tensor([0.3, 0.1, -0.1])
    names = ["mass", "com", "inertia", "gravity", "friction", "size", "centre"]
    names += ["stiffness"] if "stiffness" in model.parameter_names else []
    if law == "compliant":
        return Case(model, q, v, (*names, "contact/k_e", "contact/k_d", "contact/k_f"), record=SEEN, dt=dt)
    return Case(model, q, v, (*names, "contact/erp", "contact/cfm"), record=("impulse",), dt=dt)


@pytest.mark.parametrize("law", ["pyramid", "cone", "compliant"])
@pytest.mark.parametrize(
    ("steps", "tolerance", "h", "dt"), [(1, 1e-6, 1e-6, 1e-3), (32, 1e-5, 3e-7, 1e-3), (256, 1e-4, 1e-7, 2.5e-4)]
)
def test_pairs_in_contact(steps, tolerance, h, dt, law):
    """All pairs of shapes, slippery and not; each must press, in long runs for a quarter of the steps.

    Long runs have shorter steps: within 256 ms bodies tumble over edges so often that differences see little else.
    """
    counts = Counts()
    for number, ((first, second), friction) in enumerate(product(PAIRS, (0.3, 3.0))):
        if steps > 32 and law != "pyramid" and number // 2 % 2 == number % 2:
            continue  # long runs of the other laws: slippery and not by turns
        before = counts.pressing
        check_gradients(pressed_pair(first, second, law, friction, dt), steps, tolerance, h, number, counts)
        assert counts.pressing - before >= (steps / 4 if steps > 32 else 1), f"{first} and {second} do not touch"
    print(counts)
    assert counts.switches <= 0.05 * counts.cases
    assert law == "compliant" or min(counts.sliding, counts.sticking) > 0, counts


@pytest.mark.parametrize(
    ("steps", "tolerance", "h", "dt"), [(1, 1e-6, 1e-6, 1e-3), (32, 1e-5, 1e-6, 1e-3), (256, 1e-4, 3e-7, 2.5e-4)]
)
def test_shapes_on_plane_and_terrain(steps, tolerance, h, dt):
    """Each shape by two laws, in long runs by the third; each must press, in long runs for a quarter of the steps.

    The smallest derivatives after 32 steps are 0.02 of a loss that is rounded to 1e-13: they need an h of 1e-6.
    """
    counts = Counts()
    for number, ((shape, ground), (law, friction)) in enumerate(product(GROUNDS, LAWS)):
        if (number % 3 == number // 3 % 3) != (steps > 32):
            continue
        before = counts.pressing
        check_gradients(pressed_pair(shape, ground, law, friction, dt), steps, tolerance, h, number, counts)
        assert counts.pressing - before >= (steps / 4 if steps > 32 else 1), f"the {shape} does not touch the {ground}"
    print(counts)
    assert counts.switches <= 0.05 * counts.cases and min(counts.sliding, counts.sticking) > 0, counts


def heap(**words) -> tuple[kn.Model, torch.Tensor, torch.Tensor]:
    """Seven balls in a bent row, each a millimetre into its neighbours and the ground, moving: 28 candidates.

    So many are not all looked at: contacts are picked anew in every step, and the matrix of their rows is not formed.
    """
    ball = Shape("sphere", (0.1,))
    mass = MassProperties(1.0, (0.0, 0.0, 0.0), (0.01, 0.0, 0.0, 0.012, 0.0, 0.009))
    robot = Robot("r", (Body("b", None, Pose(), (Joint("free", "free"),), mass, (ball,)),))
    scene = kn.Scene(contact=kn.Contact(**{"friction": 0.4, "cfm": 1e-3, "erp": 0.02, "iterations": 60, **words}))
    scene.add_ground()
    x, y = 0.0, 0.0
    for i in range(7):
        scene.add_robot(robot, pos=(x, y, 0.099))
        x, y = x + 0.199 * math.cos(0.4 * i), y + 0.199 * math.sin(0.4 * i)
    model = kn.compile(scene)
    assert len(model.candidates) == 28
    v = 0.05 * torch.randn(model.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    v[3::12] = 0.4  # every other one is pushed along
    return model, model.initial_state().q, v


@pytest.mark.parametrize(("steps", "tolerance", "h"), LENGTHS[:2])
def test_contacts_that_are_picked(steps, tolerance, h):
    model, q, v = heap()
    counts = Counts()
    for seed in range(3):
        case = Case(model, q, v, (*INERTIAL, "friction", "size", "centre"))
        check_gradients(case, steps, tolerance, h, seed, counts)
    print(counts)
    assert counts.switches <= 0.05 * counts.cases and min(counts.sliding, counts.sticking) > 10 * steps, counts


def test_picked_contacts_have_the_same_bits_in_a_batch():
    """Worlds in the lanes of a register have different contacts; each is as if it were alone."""
    model, q, v = heap()
    many = q.repeat(9, 1)
    many[1::3, 2] += 0.2  # a ball in the air, with fewer contacts
    many[2::3, 9::7] += 0.06  # all but the first beyond the margin

    def ends(q):
        q = q.clone().requires_grad_()
        path = kn.simulate(model, kn.State(q, v), steps=20, dt=1e-3, record=["gap"])
        near = (path.recorded["gap"][..., 0, :] < model.contact.margin).sum(-1)
        return path.end.q.detach(), torch.autograd.grad(path.end.q.sum(), q)[0], near

    together = ends(many)
    assert len(set(together[2].tolist())) == 3, "all worlds have as many contacts"
    for w in (0, 4, 8):
        assert all(torch.equal(a[w], b) for a, b in zip(together, ends(many[w]), strict=True))
