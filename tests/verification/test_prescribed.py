"""Joints whose motion is given: what they carry, hit and swing against closed forms, Pinocchio and differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import (
    BOX,
    FREE,
    SPHERE,
    Actuator,
    Body,
    Closure,
    Joint,
    MassProperties,
    Mimic,
    Pose,
    Robot,
    Shape,
)
from kinema.scene.mass_properties import mass_properties
from kinema.verification import twins

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

G, DT, HALF = 9.81, 1e-3, 0.1
TOP = 0.05  # m: of the belt
CRATE = Shape(BOX, (HALF, HALF, HALF))
BELT = Robot(
    "belt",
    (
        Body("mover", None, Pose(), (Joint("run", "prismatic", (1.0, 0.0, 0.0), prescribed=True),)),
        Body("plate", "mover", Pose(), (Joint("lift", "prismatic", (0.0, 0.0, 1.0), prescribed=True),), None,
             (Shape(BOX, (3.0, 1.0, TOP)),)),
    ),
)  # fmt: skip
LOOSE = Robot("crate", (Body("box", None, Pose(), (Joint("free", FREE),), mass_properties(CRATE, mass=2.0), (CRATE,)),))


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def carried(**contact) -> kn.Model:
    """A crate of 2 kg on a belt that slides along x and z and weighs nothing."""
    scene = kn.Scene((0.0, 0.0, -G), kn.Contact(**{"friction": 0.3, "iterations": 200, **contact}))
    scene.add_robot(BELT)
    scene.add_robot(LOOSE, pos=(0.0, 0.0, TOP + HALF))
    scene.add_ground(-0.5)
    return kn.compile(scene)


@pytest.fixture(scope="module")
def belt() -> kn.Model:
    return carried()


def run(
    model: kn.Model, motion: Tensor | None, v: Tensor | None = None, tau: Tensor | None = None, **options
) -> kn.Trajectory:
    steps = options.pop("steps", None) or len(motion)
    return kn.simulate(model, kn.State(v=v), kn.Control(tau=tau, motion=motion), steps=steps, dt=DT, **options)


def test_a_belt_drags_a_crate(belt):
    """It speeds up at mu g until it has the speed of the belt, then rests on it: the slip is v^2 / (2 mu g)."""
    speed, mu = 1.0, 0.3
    path = run(belt, numbers(speed, 0.0).expand(500, 2), record=["impulse"])
    moved, fast = path.q[:, 2], path.v[:, 5]
    until = int(speed / (mu * G) / DT)
    assert torch.allclose(path.v[1:, 0], numbers(speed).expand(500), atol=1e-12, rtol=0)  # whatever lies on it
    assert float(path.end.q[0]) == pytest.approx(speed * 500 * DT, abs=1e-12)
    # The corners settle for some steps; then the speed is that of the closed form.
    assert float(fast[until // 2]) == pytest.approx(mu * G * until // 2 * DT, rel=0.02)
    assert float(fast[-1]) == pytest.approx(speed, abs=1e-6)
    slip = float(path.end.q[0] - moved[-1])
    assert slip == pytest.approx(speed**2 / (2 * mu * G), rel=0.02)
    pressed = path.recorded["impulse"][:, :, 0].sum(-1)[-1]
    assert float(pressed) == pytest.approx(2.0 * G * DT, rel=1e-6)


def test_a_lift_carries_its_load(belt):
    """Going up with 2 m/s^2 it presses with m (g + 2), going down faster than g it leaves the crate behind."""
    up = torch.stack([numbers(0.0, 2.0 * DT * (i + 1)) for i in range(300)])
    path = run(belt, up, record=["impulse"])
    pressed = path.recorded["impulse"][:, :, 0].sum(-1)
    assert torch.allclose(pressed[50:], numbers(2.0 * (G + 2.0) * DT).expand(250), rtol=1e-3)
    assert float(path.end.v[7]) == pytest.approx(0.6, abs=1e-3)
    down = torch.stack([numbers(0.0, -15.0 * DT * (i + 1)) for i in range(200)])
    path = run(belt, down, record=["impulse"])
    assert float(path.recorded["impulse"][2:].abs().max()) == 0
    assert float(path.end.v[7]) == pytest.approx(-G * 200 * DT, rel=0.01)


def test_nothing_that_forces_do_reaches_it(belt):
    """Torques and what lies on it change no bit; without motion it stands still, from one step on."""
    tau = torch.zeros(20, belt.nv, dtype=torch.float64)
    tau[:, :2] = 1e6
    motion = numbers(0.3, 0.1).expand(20, 2)
    free, pushed = run(belt, motion), run(belt, motion, tau=tau)
    assert torch.equal(free.q, pushed.q) and torch.equal(free.v, pushed.v)
    still = run(belt, None, v=numbers(0.5, 0.2, 0, 0, 0, 0, 0, 0), steps=20)
    assert float(still.v[1:, :2].abs().max()) < 1e-15


def test_a_swinging_bat_gives_momentum_to_the_ball_alone():
    """A ball of any mass leaves with (1 + e) times the speed of the bat, which goes on as it was."""
    ball, head = Shape(SPHERE, (0.1,)), Shape(SPHERE, (0.1,), Pose((0.0, 0.0, -1.0)))
    hinge = Joint("hinge", "revolute", (0.0, 1.0, 0.0), damping=3.0)
    for mass in (0.01, 100.0):
        scene = kn.Scene((0.0, 0.0, 0.0), kn.Contact(friction=0.0, restitution=0.5))
        bat = Robot("bat", (Body("rod", None, Pose(), (hinge,), MassProperties(1.0, (0, 0, -1.0)), (head,)),))
        scene.add_robot(bat, prescribed=["hinge"])
        scene.add_body(ball, "ball", mass=mass, pos=(-0.203, 0.0, -1.0))
        model = kn.compile(scene)
        assert model.prescribed == ["bat/hinge"]
        path = run(model, numbers(2.0).expand(40, 1), v=numbers(2.0, 0, 0, 0, 0, 0, 0), record=["impulse"])
        given = path.recorded["impulse"][:, 0, 0]
        assert int((given > 0).sum()) == 1
        # The bat is at most 3 mm of its swing off the vertical when it hits: the speeds are those to 1e-4.
        speed = (path.end.v[4:7] - path.v[0, 4:7]).norm()
        assert float(speed) == pytest.approx(1.5 * 2.0, rel=1e-3)
        assert float(given.sum()) == pytest.approx(mass * float(speed), rel=1e-9)
        assert float(path.end.q[0]) == pytest.approx(2.0 * 40 * DT, rel=1e-12)


# -- dynamics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_hybrid_dynamics(seed):
    """M_ff a_f = tau_f - bias_f - M_fk a_k with Pinocchio's M and bias; every third joint is prescribed."""
    case = twins.Case(seed + 40)
    joints = [name.removeprefix("r/") for name in case.model.joints]
    scene = kn.Scene()
    scene.add_robot(case.robot, "r", prescribed=joints[::3])
    model = kn.compile(scene)
    told = model.tree.prescribed_numbers() >= 0
    motion = torch.linspace(-1, 1, int(told.sum()), dtype=torch.float64)
    flat = {n: torch.zeros_like(t) for n, t in model.parameters("damping", "stiffness").items()}
    path = kn.simulate(
        model,
        kn.State(case.q, case.v),
        u=kn.Control(tau=case.tau[None], motion=motion[None]),
        steps=1,
        dt=DT,
        params=flat,
    )
    d = int(model.tree.v_start[0])
    extra = np.zeros(model.nv)  # the axes of a free body turn along
    if case.model.tree.kind[0] == 3:
        w, u = case.v[d : d + 3].numpy(), case.v[d + 3 : d + 6].numpy()
        extra[d + 3 : d + 6] = np.cross(w, u)
    pinocchio = twins.pinocchio
    M = pinocchio.crba(case.twin, case.data, case.qp)
    M = (np.triu(M) + np.triu(M, 1).T)[np.ix_(case.order, case.order)]
    bias = pinocchio.nonLinearEffects(case.twin, case.data, case.qp, case.there(case.v))[case.order]
    a = np.zeros(model.nv)
    a[told] = (motion.numpy() - case.v.numpy()[told]) / DT - extra[told]
    right = case.tau.numpy() - bias - M @ a
    a[~told] = np.linalg.solve(M[np.ix_(~told, ~told)], right[~told])
    wanted = case.v.numpy() + DT * (a + extra)
    end = path.end.v.numpy().copy()
    if case.model.tree.kind[0] == 3:  # back into the axes at the start of the step
        turn = DT * end[d : d + 3]
        angle = np.linalg.norm(turn)
        axis = turn / angle
        u = end[d + 3 : d + 6]
        end[d + 3 : d + 6] = (
            math.cos(angle) * u + math.sin(angle) * np.cross(axis, u) + (1 - math.cos(angle)) * axis * (axis @ u)
        )
    assert twins.difference(end, wanted) < twins.VALUES


@pytest.mark.parametrize(("law", "speed"), [("mlcp", 1.0), ("mlcp", 0.0), ("compliant", 1.0)])
@pytest.mark.parametrize(("steps", "tolerance"), [(1, 1e-6), (32, 1e-5), (256, 1e-4)])
def test_gradients_with_contact(belt, law, speed, steps, tolerance):
    """To motion, state and numbers: the crate is pressed all the time, and dragged or (speed 0) held."""
    model = belt if law == "mlcp" else carried(law=law)
    generator = torch.Generator().manual_seed(3)
    # Shaken with 1 m/s^2, less than gravity and friction; 0.2 mm deep, where compliant crates rest.
    motion = numbers(speed, 0.05) + 1e-3 * torch.randn(steps, 2, generator=generator, dtype=torch.float64)
    q, v = model.initial_state().q, numbers(0, 0.05, 0.01, 0.02, 0.01, 0.02, 0.01, 0.049)
    q[1] += 2e-4
    q[5:9] = numbers(1.0, 1e-4, 1.3e-4, 0.0)  # of faces that are parallel either one may be taken, at a switch
    if speed == 0:
        v = numbers(0, 0.05, 0, 0, 0, 0, 0, 0.05)
    names = ("friction", "mass", "inertia", "gravity")
    given = {"motion": motion, "q": q, "v": v, **model.parameters(*names)}
    weights = torch.randn(model.nq + model.nv, generator=generator, dtype=torch.float64)

    def loss(g: dict[str, Tensor]) -> tuple[Tensor, kn.Trajectory]:
        path = kn.simulate(
            model,
            kn.State(g["q"], g["v"]),
            u=kn.Control(motion=g["motion"]),
            steps=steps,
            dt=DT,
            params={n: g[n] for n in names},
            record=["gap"] if law == "compliant" else ["gap", "impulse"],
        )
        return (torch.cat([path.end.q, path.end.v]) * weights).sum(), path

    leaves = {n: t.clone().requires_grad_() for n, t in given.items()}
    value, path = loss(leaves)
    assert bool((path.recorded["gap"].detach().amin(-1) < 0).all())
    if law == "mlcp":
        impulse = path.recorded["impulse"].detach().sum(1)
        assert bool((impulse[:, 0] > 0).all())
        assert (abs(float((path.end.v[0] - path.end.v[5]).detach())) < 1e-2) == (speed == 0)  # it sticks
    gradients = dict(zip(leaves, torch.autograd.grad(value, list(leaves.values())), strict=True))
    for name, tensor in given.items():
        way = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        h = {"q": 1e-7, "inertia": 1e-4}.get(name, 1e-6)  # gaps are small, inertias as their own steps
        h *= 0.02 if steps > 32 else 1.0  # fewer switches; rounding is far below the tolerance
        way = way * tensor.abs() if name == "inertia" else way
        with torch.no_grad():
            up, down = (float(loss({**given, name: tensor + sign * h * way})[0]) for sign in (1, -1))
        wanted, got = (up - down) / (2 * h), float((gradients[name] * way).sum())
        assert abs(got - wanted) <= tolerance * max(abs(wanted), 1e-2), (name, got, wanted)


def test_jacobian_by_motion():
    """A ball on a rail pushes another: it moves as told, and the other, which touches it, moves along."""
    ball = Shape(SPHERE, (0.1,))
    told = Joint("rail", "prismatic", (1.0, 0.0, 0.0), prescribed=True)
    scene = kn.Scene((0.0, 0.0, 0.0))
    for name, joint, x in (("pusher", told, 0.0), ("pushed", Joint("free", FREE), 0.1999)):
        scene.add_robot(
            Robot(name, (Body("b", None, Pose(), (joint,), mass_properties(ball, mass=2.0), (ball,)),)), pos=(x, 0, 0)
        )
    model = kn.compile(scene)
    start, driven = model.initial_state(), kn.Control(motion=0.3)
    _, B = kn.linearise(model, start, driven, dt=DT)
    assert B.shape == (14, 1)
    own, pushed = B[[0, 7], 0], B[[4, 11], 0]  # of the free joint, x is behind three directions to turn
    assert torch.allclose(own, numbers(DT, 1.0), atol=1e-15)
    assert torch.allclose(pushed, numbers(DT, 1.0), rtol=1e-5)  # the softness of the row, cfm times the mass
    after, path = kn.step(model, start, driven, dt=DT), kn.simulate(model, start, driven, steps=1, dt=DT)
    assert torch.equal(after.q, path.end.q) and torch.equal(after.v, path.end.v) and float(after.v[0]) == 0.3
    assert float(kn.step(model, start, dt=DT).v[0]) == 0.0
    assert kn.linearise(model, start, kn.Control(motion=0.0), dt=DT).B.shape == (14, 1)


# -- what is refused -----------------------------------------------------------------------------------------------


def test_pairs_that_nothing_could_move_are_left_out(tmp_path):
    """Two belts and the ground: they pass through each other, and a limit on them is no row; after loading as well."""
    scene = kn.Scene()
    scene.add_ground()
    limited = Joint("run", "prismatic", prescribed=True, lower=-0.1, upper=0.1, friction=3.0)
    plate = Body("plate", None, Pose(), (limited,), None, (Shape(BOX, (1.0, 1.0, 0.1)),))
    scene.add_robot(Robot("one", (plate,), (Actuator("motor", "run"),)))
    scene.add_robot(Robot("two", (plate,)))
    model = kn.compile(scene)
    assert len(model.candidates) == 0 and model.constraints.singles == 0
    kn.save(tmp_path / "belts.safetensors", model)
    model = kn.load(tmp_path / "belts.safetensors")
    assert model.prescribed == ["one/run", "two/run"]
    moved = kn.simulate(
        model,
        kn.State(numbers(0, 0), numbers(0, 0)),
        u=kn.Control(u=numbers(9.0).expand(9, 1), motion=numbers(1, 2).expand(9, 2)),
        steps=9,
        dt=0.1,
    )
    assert torch.allclose(moved.end.q, numbers(0.9, 1.8), atol=1e-12)


def test_what_is_refused():
    scene = kn.Scene()
    scene.add_robot(LOOSE)
    with pytest.raises(kn.InputError, match="no joint is prescribed"):
        run(kn.compile(scene), numbers(1.0)[None])
    with pytest.raises(kn.InputError, match="motion has the wrong shape"):
        run(carried(), numbers(1.0).expand(3, 1))
    for wrong in (["nothing"], "run"):
        with pytest.raises(kn.ModelError, match="has no moving joint"):
            kn.Scene().add_robot(BELT, prescribed=wrong)
    follower = Joint("b", "prismatic", prescribed=True, mimic=Mimic("a"))
    bodies = (Body("x", joints=(Joint("a", "prismatic", armature=1.0),)), Body("y", joints=(follower,)))
    scene = kn.Scene()
    scene.add_robot(Robot("r", bodies))
    with pytest.raises(kn.ModelError, match="is prescribed and mimics 'a'"):
        kn.compile(scene)
    scene = kn.Scene()
    scene.add_robot(Robot("r", BELT.bodies, closures=(Closure("c", "connect", "plate", None),)))
    with pytest.raises(kn.ModelError, match="only static or prescribed bodies"):
        kn.compile(scene)
