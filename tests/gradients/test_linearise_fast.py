"""Jacobians whose rows are pulled back through one step, beside those of copies of a world: the same to rounding."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tests import soft_scenes
from tests.gradients.test_linearise import contraption, normal
from torch import Tensor

import kinema as kn
from kinema.errors import ProgramError
from kinema.integrate.jacobians import cubic_rest, right_jacobian
from kinema.lang import Array, Float, Index, Int, abs, kernel, local, sin, static, vec3
from kinema.lang.autograd.inputs import inputs_of
from kinema.lang.autograd.rollout import rollout, run
from kinema.lang.build import compiler
from kinema.lang.build.compiler import lanes_of_worlds
from kinema.lang.programs.program import Program
from kinema.scene.description import Body, Closure, Joint, MassProperties, Mimic, Pose, Robot
from kinema.scene.shapes.quadruped import quadruped
from kinema.simulation import linearise as module
from kinema.verification.random_scenes import random_structure

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")
DT = 2e-3


@pytest.fixture
def copies(monkeypatch):
    """Both Jacobians from copies of a world."""

    def run(*args, **words) -> kn.Linearised:
        with monkeypatch.context() as patch:
            patch.setattr(module, "linear_step_of", lambda *args: None)
            return kn.linearise(*args, **words)

    return run


def is_pulled(model: kn.Model, monkeypatch, *args, **words) -> bool:
    """Whether rows are pulled back."""
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(module, "_by_copies", lambda *args: seen.append(1))
        kn.linearise(model, *args, **words)
    return not seen


def agree(found: kn.Linearised, expected: kn.Linearised, tolerance: float) -> None:
    """Every world's matrices are the same, relative to their largest entry."""
    for name, one, two in zip("AB", found, expected, strict=True):
        assert one.shape == two.shape and one.dtype == two.dtype
        if two.numel():
            scale = two.abs().amax((-2, -1), keepdim=True)
            error = float(((one - two).abs() / scale.clamp_min(1e-300)).max())
            assert error <= tolerance, (name, error)


CONTACTS = {
    "hard": {"cfm": 1e-3},
    "cone": {"cfm": 1e-3, "cone": True},
    "dense sweeps": {"cfm": 1e-3, "solver": "pgs", "iterations": 20},
    "sweeps of cones": {"cfm": 1e-3, "solver": "pgs", "iterations": 20, "cone": True},
    "sweeps that settle": {"cfm": 1e-3, "solver": "pgs", "iterations": 60, "tolerance": 1e-6},
    "warm start": {"cfm": 1e-3, "solver": "pgs", "iterations": 30, "warm_start": True},
    "compliant": {"law": "compliant", "k_e": 1e3, "k_d": 20.0, "k_f": 20.0},
}


@pytest.mark.parametrize("name", CONTACTS)
def test_joints_of_all_kinds_in_contact(name: str, copies, monkeypatch):
    model, state, given = contraption(**CONTACTS[name])
    if name == "warm start":
        count = sum(model.kept_impulses.values())
        state = state.replace(impulses=0.01 * normal(2, count, seed=6).abs())
    control = kn.Control(**given, wrenches={"r/arm": normal(2, 6, seed=7)})
    assert is_pulled(model, monkeypatch, state, control, dt=DT)
    agree(kn.linearise(model, state, control, dt=DT), copies(model, state, control, dt=DT), 1e-10)


def test_prescribed_joints(copies, monkeypatch):
    model, state, given = contraption(prescribed=True, cfm=1e-3)
    control = kn.Control(**given)
    assert is_pulled(model, monkeypatch, state, control, dt=DT)
    agree(kn.linearise(model, state, control, dt=DT), copies(model, state, control, dt=DT), 1e-10)


@pytest.mark.parametrize("solver", ["newton", "pgs"])
def test_limits_dry_friction_followers_and_loops(solver: str, copies, monkeypatch):
    """A four-bar linkage with a limit, a joint that rubs and one that follows."""
    mass, y = MassProperties(0.5, (0.0, 0.0, -0.1), (2e-3, 0.0, 0.0, 2e-3, 0.0, 1e-3)), (0.0, 1.0, 0.0)
    down = Pose((0.0, 0.0, -0.2))
    bodies = (
        Body("crank", None, Pose((0.0, 0.0, 1.0)), (Joint("crank", "revolute", y, friction=0.05),), mass),
        Body("rod", "crank", down, (Joint("rod", "revolute", y, lower=-0.1, upper=0.05),), mass),
        Body("ball", "rod", down, (Joint("ball", "ball", upper=0.2, damping=0.01),), mass),
        Body("rocker", None, Pose((0.3, 0.0, 1.0)), (Joint("rocker", "revolute", y, damping=0.1),), mass),
        Body("wheel", "rocker", down, (Joint("wheel", "revolute", y, mimic=Mimic("rocker", -2.0, 0.1)),), mass),
    )
    scene = kn.Scene(contact=kn.Contact(solver=solver, cfm=1e-3))
    loops = (
        Closure("pin", "connect", "rod", "wheel", Pose((0.0, 0.0, -0.1)), Pose((-0.3, 0.0, 0.1))),
        Closure("weld", "weld", "ball", None, Pose(), Pose((0.0, 0.0, 0.5))),
    )
    scene.add_robot(Robot("r", bodies, (), loops))
    model = kn.compile(scene)
    state = model.initial_state(q=model.initial_state().q + 0.1 * normal(5, model.nq), v=normal(5, model.nv, seed=1))
    assert is_pulled(model, monkeypatch, state, dt=DT)
    agree(kn.linearise(model, state, dt=DT), copies(model, state, dt=DT), 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_random_scenes(seed: int, copies, monkeypatch):
    random = np.random.default_rng(seed)
    scene = random_structure(random)
    scene.contact = replace(scene.contact, restitution=0.0)  # what bounces is done by copies
    model = kn.compile(scene, torch.float64)
    start = model.initial_state()
    state = start.replace(q=start.q + 0.05 * normal(3, model.nq, seed=seed), v=0.3 * normal(3, model.nv, seed=seed + 1))
    words = {"dt": 1e-3, "options": kn.RunOptions(on_failure="status")}
    assert is_pulled(model, monkeypatch, state, **words)
    agree(kn.linearise(model, state, **words), copies(model, state, **words), 1e-7)


@pytest.mark.parametrize("name", ["solid_scene", "cloth_scene", "beads_scene", "gripper_scene", "pinned_scene"])
def test_soft_matter(name: str, copies, monkeypatch):
    model = getattr(soft_scenes, name)()
    x, xd = soft_scenes.moved(model, 0)
    state = model.initial_state(x=x, xd=xd)
    words = {"dt": 1e-4}
    assert is_pulled(model, monkeypatch, state, **words)
    agree(kn.linearise(model, state, **words), copies(model, state, **words), 1e-9)


def test_fast_turns(copies):
    """A quarter of a turn to a whole one in a step, and quaternions that are not of unit length."""
    scene = kn.Scene(gravity=(0.0, 0.0, -9.81))
    scene.add_ground()
    scene.add_robot(quadruped(), pos=(0.0, 0.0, 2.0))
    model = kn.compile(scene)
    start = model.initial_state()
    for speed in (0.0, 1e-8, 1e-3, 0.4, 0.6, 1.5, 6.0):
        v = normal(4, model.nv, seed=2)
        v[:, :3] *= speed / DT / v[:, :3].norm(dim=-1, keepdim=True)
        q = start.q.repeat(4, 1)
        q[:, 3:7] = (torch.arange(4, dtype=torch.float64) + 0.5)[:, None] * normal(4, 4, seed=3)
        state = kn.State(q, v)
        agree(kn.linearise(model, state, dt=DT), copies(model, state, dt=DT), 1e-11)


def test_single_precision(copies):
    scene = kn.Scene(contact=kn.Contact(cfm=1e-2))
    scene.add_ground()
    scene.add_robot(quadruped())
    model = kn.compile(scene, torch.float32)
    state = model.initial_state()
    agree(kn.linearise(model, state, dt=DT), copies(model, state, dt=DT), 1e-3)


def test_threads_and_batches_change_no_bit():
    model, state, given = contraption(cfm=1e-3)
    many = kn.State(*(t.repeat(20, 1) for t in (state.q, state.v)))
    u = normal(40, 3, seed=8)
    whole = kn.linearise(model, many, u, dt=DT, options=kn.RunOptions(threads=1))
    for threads in (2, 3):
        other = kn.linearise(model, many, u, dt=DT, options=kn.RunOptions(threads=threads))
        assert all(map(torch.equal, whole, other))
    for world in (0, 7, 39):
        alone = kn.linearise(model, many[world], u[world], dt=DT)
        assert torch.equal(alone.A, whole.A[world]) and torch.equal(alone.B, whole.B[world])


def test_what_has_loops_or_impacts_is_done_by_copies(monkeypatch):
    model, state, _ = contraption(cfm=1e-3)
    assert not is_pulled(model, monkeypatch, state, dt=DT, substeps=2)
    assert not is_pulled(model, monkeypatch, state, dt=DT, params={"restitution": 0.5})
    smooth, state, _ = contraption(**CONTACTS["compliant"])
    assert not is_pulled(smooth, monkeypatch, state, dt=DT, integrator="rk4")
    monkeypatch.setenv("KINEMA_CHECK", "1")
    assert not is_pulled(smooth, monkeypatch, state, dt=DT)


def test_failures_are_told():
    model, state, _ = contraption(cfm=1e-3)
    with pytest.raises(kn.SimulationError, match="non-finite") as error:
        kn.linearise(model, state.replace(v=state.v + 1e300), dt=DT)
    assert "joint" in str(error.value)


# -- the exponential -------------------------------------------------------------------------------------------------


@kernel
def of_turns(i: Index, r: Array[vec3], rest: Array[Float], jacobian: Array[vec3]):
    rest[i] = cubic_rest(r[i].x * r[i].x + r[i].y * r[i].y + r[i].z * r[i].z)
    J = right_jacobian(r[i])
    jacobian[i] = J @ vec3(0.3, -0.7, 0.2)


def test_right_jacobian():
    """Against the power series of the exponential, at all angles; (x - sin x) / x^3 to rounding on both branches."""
    angles = torch.tensor([0.0, 1e-9, 1e-4, 0.1, 0.499, 0.5, 0.501, 1.0, 3.0, 6.0], dtype=torch.float64)
    axis = torch.tensor([0.6, -0.48, 0.64], dtype=torch.float64)
    r = angles[:, None] * axis
    p = Program("turns")
    given = p.parameter("r", vec3, len(angles))
    outs = p.output("rest", Float, len(angles)), p.output("jacobian", vec3, len(angles))
    p.call(of_turns, given, *outs, count=len(angles))
    found = rollout(p, 1, {}, {"r": r}, record=["rest", "jacobian"]).outputs
    for k, angle in enumerate(angles.tolist()):
        K = torch.zeros(3, 3, dtype=torch.float64)
        K[[2, 0, 1], [1, 2, 0]], K[[1, 2, 0], [2, 0, 1]] = r[k], -r[k]
        series, term = torch.zeros_like(K), torch.eye(3, dtype=torch.float64)
        for n in range(1, 60):
            series, term = series + term / n, -term @ K / n
        expected = series @ torch.tensor([0.3, -0.7, 0.2], dtype=torch.float64)
        assert torch.allclose(found["jacobian"][0, k], expected, rtol=0, atol=1e-13), angle
        value, part = 0.0, 1.0 / 6.0
        for n in range(2, 60):
            value, part = value + part, -part * angle**2 / ((2 * n) * (2 * n + 1))
        assert abs_error(float(found["rest"][0, k]), value) < 1e-13


def abs_error(a: float, b: float) -> float:
    return float(np.abs(a - b))


# -- programs --------------------------------------------------------------------------------------------------------


@kernel
def mix(table: Array[Int], x: Array[Float], u: Array[Float], y: Array[Float]):
    """Local arrays that are shared by rows, and ones that are not; branches on the state; a loop that ends early."""
    n = len(x)
    order, kept = local(Int, n), local(Float, n)
    for k in range(n):
        order[k] = table[n - 1 - k]
        kept[k] = sin(x[table[k]])
    for k in range(n):
        sum = 0.0
        for j in range(n):
            if j > k:
                break
            if x[j] > 0.0:
                sum = sum + kept[order[j]] * x[j] * u[j % len(u)]
            else:
                sum = sum - abs(x[j])
        y[k] = sum


@kernel
def spread(i: Index, table: Array[Int], y: Array[Float], w: Float, x_next: Array[vec3]):
    """Gathers, with a parameter that all elements share."""
    x_next[i] = w * y[table[i]] * vec3(y[i], 1.0, y[(i + 1) % len(y)])


@kernel
def flat(x: Array[vec3], out: Array[Float]):
    for k in range(len(x)):
        for c in static(3):
            out[3 * k + c] = x[k][c]


@kernel
def copy_all(a: Array[Float], out: Array[Float]):
    for k in range(len(a)):
        out[k] = a[k]


def mixed(pulled: bool, precision: int) -> tuple[Program, list[int]]:
    """A small program of these kernels; with a Jacobian, its numbers as outputs."""
    n, p = 11, Program("mixed")
    table = p.constant("table", Int, np.random.default_rng(0).permutation(n))
    s, u = p.state("s", vec3, n), p.control("u", Float, 3)
    w = p.parameter("w", Float)
    x, y = p.scratch("x", Float, 3 * n), p.scratch("y", Float, n)
    first = p.scratch("first", Float, n)
    p.call(flat, s, x)
    p.call(head, x, first)
    p.call(mix, table, first, u, y)
    p.call(spread, table, y, w, s.next, count=n)
    if pulled:
        width = lanes_of_worlds(precision)
        for name, ref in zip("suw", p.pullback([s.next], [s, u, w], width), strict=True):
            p.call(copy_all, ref, p.output(f"by_{name}", Float, ref.buffer.length))
    return p, [3 * n, 3, 1]


@kernel
def head(x: Array[Float], out: Array[Float]):
    for k in range(len(out)):
        out[k] = x[2 * k] + x[k] * x[k + 1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_pullbacks_of_a_program(dtype: torch.dtype):
    """Rows against reverse sweeps of the plain program, one for each; for one world and for several."""
    draw = partial(torch.randn, dtype=dtype, generator=torch.Generator().manual_seed(3))
    plain, _ = mixed(False, dtype.itemsize)
    program, counts = mixed(True, dtype.itemsize)
    for batch in ((), (5,)):
        s, u, w = draw((*batch, 11, 3)), draw((*batch, 1, 3)), draw(batch)
        names = [f"by_{n}" for n in "suw"]
        found = rollout_outputs(program, s, u, w, names)
        leaves = [t.clone().requires_grad_() for t in (s, u, w)]
        after = rollout(plain, 1, {"s": leaves[0]}, {"w": leaves[2]}, {"u": leaves[1]}).final["s"].flatten(-2)
        width = lanes_of_worlds(dtype.itemsize)
        for row in range(after.shape[-1]):
            expected = torch.autograd.grad(after[..., row].sum(), leaves, retain_graph=True)
            for name, count, wanted in zip(names, counts, expected, strict=True):
                packets = found[name].reshape(*batch, -1, count, width)
                own = packets[..., row // width, :, row % width]
                scale = float(wanted.abs().max()) or 1.0
                error = float((own - wanted.reshape(*batch, count)).abs().max()) / scale
                assert error < 200 * torch.finfo(dtype).eps, (name, row, error)


def rollout_outputs(program: Program, s: Tensor, u: Tensor, w: Tensor, names: list[str]) -> dict[str, Tensor]:
    inputs = inputs_of(program, 1, tuple(names), (("s",), ("w",), ("u",)))
    ran = run(inputs, [s, w, u], 2)
    return dict(zip(names, ran.outs, strict=True))


def test_programs_with_loops_have_no_pullback():
    p = Program("loops")
    x = p.state("x", Float, 3)
    with p.repeat(2):
        p.call(copy_all, x, x.next)
    with pytest.raises(ProgramError, match="without loops"):
        p.pullback([x.next], [x], 4)
