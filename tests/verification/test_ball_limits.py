"""Limits of ball joints against closed forms, MuJoCo and differences."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import BALL, Body, Joint, MassProperties, Pose, Robot
from kinema.scene.io.mjcf import read_mjcf

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

G, MASS, LENGTH, DT, LARGEST = 9.81, 2.0, 0.5, 1e-3, 0.4
BOB = MassProperties(MASS, (0.0, 0.0, -LENGTH), (1e-3, 0.0, 0.0, 1e-3, 0.0, 1e-3))
STOUT = MassProperties(MASS, (0.0, 0.0, -LENGTH), (0.1, 0.01, 0.0, 0.1, 0.0, 0.2))  # does not spin up about its rod
WHEEL = MassProperties(MASS, (0.0, 0.0, 0.0), (0.1, 0.0, 0.0, 0.1, 0.0, 0.1))


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def model_of(mass: MassProperties, gravity=(0.0, 0.0, -G), **words: float) -> kn.Model:
    scene = kn.Scene(gravity)
    joint = Joint("ball", BALL, **{"upper": LARGEST, **words})
    scene.add_robot(Robot("r", (Body("rod", None, Pose(), (joint,), mass),)))
    return kn.compile(scene)


def turned(*vector: float) -> Tensor:
    """The quaternion of a rotation vector."""
    r = np.array(vector)
    angle = float(np.linalg.norm(r))
    return numbers(math.cos(angle / 2), *(math.sin(angle / 2) * r / angle))


def angles(q: Tensor) -> Tensor:
    return 2 * torch.atan2(q[..., 1:4].norm(dim=-1), q[..., 0].abs())


def test_a_pendulum_leans_on_its_limit():
    """Gravity is sideways, between x and y: at the end the limit takes m g l cos(0.4), and none of it goes astray."""
    model = model_of(BOB, gravity=(0.6 * G, 0.8 * G, 0.0), damping=2.0)
    path = kn.simulate(model, steps=4000, dt=DT, record=["limit_impulse"])
    assert float(angles(path.end.q)) == pytest.approx(LARGEST, abs=1e-5)
    turn = path.end.q[1:3] / path.end.q[1:3].norm()
    assert torch.allclose(turn, numbers(0.8, -0.6), atol=1e-6)  # z cross gravity, for a rod along -z
    leaning = float(path.recorded["limit_impulse"][-1, 0]) / DT
    assert leaning == pytest.approx(MASS * G * LENGTH * math.cos(LARGEST), rel=1e-5)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_only_the_way_out_is_barred(sign):
    """A ball of inertia 0.1 about its joint, at the limit about an axis: turning on stops, all else goes on; the
    quaternions q and -q are the same turn."""
    axis = numbers(2, -1, 2) / 3
    model, q = model_of(WHEEL), sign * turned(*(LARGEST * axis))
    across = torch.linalg.cross(axis, numbers(0, 0, 1))
    for along, left in ((1.5, 0.0), (-1.5, -1.5)):
        path = kn.simulate(model, kn.State(q, along * axis + 0.7 * across), steps=1, dt=DT)
        # The softness of the rows, 1e-6 1/kg, leaves as much of an impulse of 0.15 N m s.
        assert torch.allclose(path.end.v, left * axis + 0.7 * across, atol=1e-6)
    assert float(angles(path.end.q)) < LARGEST


SWING = f"""
<mujoco><compiler angle="radian"/><option timestep="{DT}"/>
  <worldbody><body name="rod">
    <joint name="ball" type="ball" range="0 {LARGEST}" limited="true" damping="0.02"/>
    <inertial pos="0.1 0.05 -0.5" mass="2" diaginertia="0.02 0.03 0.01"/>
  </body></worldbody>
</mujoco>"""


def test_the_angle_stays_below_its_limit_as_in_mujoco():
    """A swing of two seconds that hits its limit and slides along it. The limit of MuJoCo is soft, a few hundredths.

    This one holds the speed of the angle. Turning across its axis the angle grows by w^2 dt^2 cot(angle / 2) / 4 in a
    step, of which a fifth (erp) is undone in the next: five such steps are the most that it is off.
    """
    scene = kn.Scene()
    scene.add_robot(read_mjcf(SWING), "r")
    model = kn.compile(scene)
    assert model.constraints.limit_names == ["r/ball"]
    v = numbers(3.0, -2.0, 1.0)
    path = kn.simulate(model, kn.State(v=v), steps=2000, dt=DT, record=["limit_impulse"])
    assert int((path.recorded["limit_impulse"] > 0).sum()) > 20
    drift = (float(path.v.norm(dim=-1).max()) * DT) ** 2 / math.tan(LARGEST / 2) / 4
    assert LARGEST < float(angles(path.q).max()) < LARGEST + 5 * drift < LARGEST + 5e-3
    theirs = mujoco.MjModel.from_xml_string(SWING)
    data = mujoco.MjData(theirs)
    data.qvel[:] = v.numpy()
    seen = []
    for _ in range(2000):
        mujoco.mj_step(theirs, data)
        seen.append(2 * math.atan2(np.linalg.norm(data.qpos[1:]), abs(data.qpos[0])))
    assert LARGEST < max(seen) < LARGEST + 0.1
    # Both swing freely up to the first hit: the same path but for the order of the two integrators.
    first = next(i for i, angle in enumerate(seen) if angle > 0.9 * LARGEST)
    assert float(angles(path.q)[first + 1]) == pytest.approx(seen[first], abs=1e-3)


@pytest.mark.parametrize(("steps", "tolerance"), [(1, 1e-6), (32, 1e-5), (256, 1e-4)])
def test_gradients_at_the_limit(steps, tolerance):
    """To state, force, limit and numbers, while the limit is leaned on in every step."""
    model = model_of(STOUT, gravity=(6.0, 8.0, -2.0), damping=0.5)
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    names = ("upper", "mass", "com", "inertia", "damping", "offset", "gravity")
    q = turned(*((LARGEST + 1e-4) * numbers(0.8, -0.6, 0.0)))
    given = {"q": q, "v": numbers(0.3, 0.1, -0.2), "tau": 0.1 * normal(steps, 3), **model.parameters(*names)}
    weights = normal(7)

    def run(g: dict[str, Tensor]) -> tuple[Tensor, kn.Trajectory]:
        path = kn.simulate(
            model,
            kn.State(g["q"], g["v"]),
            kn.Control(tau=g["tau"]),
            steps=steps,
            dt=DT,
            params={n: g[n] for n in names},
            record=["limit_impulse"],
        )
        return (torch.cat([path.end.q, path.end.v]) * weights).sum(), path

    leaves = {n: t.clone().requires_grad_() for n, t in given.items()}
    value, path = run(leaves)
    assert bool((path.recorded["limit_impulse"] > 0).all())
    gradients = dict(zip(leaves, torch.autograd.grad(value, list(leaves.values())), strict=True))
    assert float(gradients["upper"].abs()) > 0.1
    for name, tensor in given.items():
        way = normal(*tensor.shape) * (tensor.abs() if name == "inertia" else 1)
        h = 1e-4 if name == "inertia" else 1e-6
        with torch.no_grad():
            up, down = (float(run({**given, name: tensor + sign * h * way})[0]) for sign in (1, -1))
        wanted, got = (up - down) / (2 * h), float((gradients[name] * way).sum())
        assert abs(got - wanted) <= tolerance * max(abs(wanted), 1e-2), (name, got, wanted)


def test_a_joint_at_rest_has_finite_gradients():
    """No turn has no axis: the row is far from its limit and passes nothing on."""
    model = model_of(BOB)
    q = model.initial_state().q.requires_grad_()
    path = kn.simulate(model, kn.State(q, torch.zeros(3, dtype=torch.float64)), steps=2, dt=DT)
    (gradient,) = torch.autograd.grad(path.end.v.sum() + path.end.q.sum(), q)
    assert bool(gradient.isfinite().all()) and float(gradient.abs().max()) > 0


def test_limits_beside_others(tmp_path):
    """Hinges and balls: rows and names are in one order, hinges first; kept in files."""
    scene = kn.Scene()
    hinge = Joint("hinge", "revolute", (1.0, 0.0, 0.0), lower=-0.3, upper=0.2)
    rods = (
        Body("a", None, Pose(), (Joint("first", BALL, upper=0.5),), BOB),
        Body("b", "a", Pose((0.0, 0.0, -LENGTH)), (hinge,), BOB),
        Body("c", "b", Pose((0.0, 0.0, -LENGTH)), (Joint("last", BALL, upper=0.1),), BOB),
    )
    scene.add_robot(Robot("r", rods))
    kn.save(tmp_path / "limits.safetensors", kn.compile(scene))
    model = kn.load(tmp_path / "limits.safetensors")
    assert model.constraints.limit_names == ["r/hinge", "r/first", "r/last"]
    assert model.parameters("r/last/upper")["r/last/upper"].item() == 0.1
    push = torch.zeros(1500, 7, dtype=torch.float64)
    push[:, 1], push[:, 3], push[:, 5] = 60.0, 40.0, 20.0
    path = kn.simulate(
        model, u=kn.Control(tau=push), steps=1500, dt=DT, record=["limit_impulse"], params={"damping": 5.0}
    )
    assert bool((path.recorded["limit_impulse"][-1] > 0).all())
    found = angles(path.end.q[:4]), path.end.q[4], angles(path.end.q[5:])
    assert [float(x) for x in found] == pytest.approx([0.5, 0.2, 0.1], abs=1e-3)


@pytest.mark.parametrize(
    "words", [{"lower": -0.2}, {"lower": 0.1}, {"upper": 0.0}, {"upper": 4.0}, {"upper": math.nan}]
)
def test_what_is_no_angle_is_refused(words):
    with pytest.raises(kn.ModelError, match="the limit of ball joint 'r/ball' is not an angle"):
        model_of(BOB, **words)
