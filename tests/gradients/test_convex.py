"""The law "convex": gradients of steps in contact against differences, secants over impacts, and bits of batches."""

from __future__ import annotations

import pytest
import torch
from tests.convex_scenes import CONTACTS, FEATURES, model_of, state_of, tie, world
from torch import Tensor

import kinema as kn
from kinema.contact.convex.newton import SoftProblem
from kinema.errors import KinemaError
from kinema.lang import Array, Float, kernel
from kinema.lang.build import compiler

mujoco = pytest.importorskip("mujoco")
pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

ALL = world(
    "<body name='a' pos='0 0 .25'><freejoint/><geom type='box' size='.1 .12 .02' condim='4'/>"
    "<body name='b' pos='.1 0 0'>"
    "<joint name='k' axis='0 1 0' range='-60 -5' limited='true' frictionloss='.05' damping='.1'/>"
    "<geom type='capsule' fromto='0 0 0 .05 0 -.22' size='.03' condim='6' friction='.6 .02 .01'/></body>"
    "<body name='c' pos='-.1 0 0'><joint name='m' axis='0 1 0'/>"
    "<geom type='capsule' fromto='0 0 0 0 .05 -.22' size='.03'/></body>"
    "<body name='d' pos='0 .1 .1'><joint name='w' type='ball' range='0 20' limited='true'/>"
    "<geom type='capsule' fromto='0 0 0 0 .05 .2' size='.02' contype='0' conaffinity='0'/></body></body>"
    "<body name='e' pos='0 0 .5'><freejoint/><geom type='box' size='.05 .05 .05' contype='0' conaffinity='0'/></body>",
    "cone='{}' impratio='2' timestep='.002'",
    tie(
        "<joint joint1='m' joint2='k' polycoef='.05 -1 0 0 0' solref='.05 1'/>"
        "<connect body1='e' body2='d' anchor='.01 0 -.1'/>"
        "<weld body1='e' body2='a' relpose='0 0 -.24 1 .1 .05 0' torquescale='.3'/>"
    )
    + "<actuator><position joint='k' kp='20' kv='1'/></actuator>",
)
SCENES = {f"all constraints, {cone}": ALL.replace("{}", cone) for cone in ("pyramidal", "elliptic")}
SCENES |= {name: CONTACTS[name] for name in ("capsule pyramidal 6", "capsule elliptic 6", "box elliptic 3")}
SCENES |= {name: FEATURES[name] for name in ("pair, elliptic", "mixed", "direct")}
UNUSED = ("restitution", "contact/erp", "contact/cfm", "contact/k_e", "contact/k_d", "contact/k_f")
# Differences of the best of three lengths: h^2 of the curves, or rounding of 1e-16 over h, times the loss.
TOLERANCE, ROUNDING = 1e-6, 1e-8


def started(given: str, seed: int, after: int = 1) -> tuple[kn.Model, kn.State, Tensor]:
    """A scene `after` a number of steps in contact, and controls."""
    model, twin = model_of(mujoco, given)
    random = torch.Generator().manual_seed(seed)
    v = 0.5 * torch.randn(model.nv, dtype=torch.float64, generator=random)
    u = 0.3 * torch.randn(len(model.actuators), dtype=torch.float64, generator=random)
    q, _ = state_of(mujoco, model, twin, twin.qpos0, [0.0] * twin.nv)
    path = kn.simulate(model, kn.State(q, v), u if len(u) else None, steps=100, dt=2e-3, record=["impulse"])
    pressed = path.recorded["impulse"].abs().flatten(1).amax(-1) > 0
    at = int(torch.nonzero(pressed[:-1] & pressed[1:])[0]) + after
    return model, kn.State(path.states.q[at], path.states.v[at]), u


def check(given: str, steps: int, seed: int) -> set[str]:
    """Compare the gradients to everything along random directions; returns what had an influence."""
    model, start, u = started(given, seed)
    names = [n for n in model.parameter_names if n not in UNUSED and not n.endswith("limit_restitution")]
    leaves = {"q": start.q, "v": start.v, **({"u": u} if len(u) else {}), **model.parameters(*names)}
    random = torch.Generator().manual_seed(seed)
    weights = torch.randn(model.nq + model.nv, dtype=torch.float64, generator=random)

    def loss_of(given: dict[str, Tensor]) -> Tensor:
        params = {n: given[n] for n in names}
        state = kn.State(given["q"], given["v"])
        path = kn.simulate(model, state, given.get("u"), steps=steps, dt=2e-3, params=params, record=["impulse"])
        assert bool((path.recorded["impulse"] != 0).any())  # contact is active
        return torch.cat([path.end.q, path.end.v]) @ weights

    leaves = {n: t.detach().clone().requires_grad_() for n, t in leaves.items()}
    loss = loss_of(leaves)
    gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
    fixed, seen = {n: t.detach() for n, t in leaves.items()}, set()
    for name, leaf in fixed.items():
        way = torch.randn(leaf.shape, dtype=torch.float64, generator=random)
        if name not in ("q", "v", "u"):
            way = way * leaf.abs()  # parameters stay in their ranges
        for at in model.quaternion_places if name == "q" else ():
            turn = leaf[at : at + 4]
            way[at : at + 4] -= turn * (way[at : at + 4] @ turn) / (turn @ turn)
        got, errors = float((gradients[name] * way).sum()), []
        for h in (1e-4, 1e-5, 1e-6):
            up, down = (float(loss_of({**fixed, name: leaf + sign * h * way})) for sign in (1, -1))
            wanted = (up - down) / (2 * h)
            errors.append(abs(got - wanted) - TOLERANCE * abs(wanted) - ROUNDING * (1 + abs(float(loss))))
        if abs(got) > 1e-6:
            seen.add(name)
        assert min(errors) <= 0, (name, got, wanted, errors)
    return seen


@pytest.mark.parametrize("steps", [1, 8])
@pytest.mark.parametrize("name", SCENES)
def test_gradients(name, steps):
    seen = check(SCENES[name], steps, 4)
    wanted = {"q", "v", "mass", "gravity", "solref", "solimp"}
    if name.startswith("all"):
        wanted |= {"u", "kp", "kd", "damping", "dry_friction", "upper", "friction", "size", "contact/impratio"}
        wanted |= {f"{kind}_{what}" for kind in ("limit", "loop", "mimic") for what in ("solref", "solimp")}
    assert wanted <= seen, wanted - seen


@kernel
def by_the_diagonal(problem: SoftProblem, a: Array[Float], a_adj: Array[Float], left_adj: Array[Float]):
    """A wrong adjoint: the diagonal of the mass matrix in place of the Hessian."""
    for d in range(len(a)):
        left_adj[d] += a_adj[d] / problem.M[problem.branches.row[d] + problem.branches.depth[d]]


def test_the_check_sees_a_wrong_adjoint(monkeypatch):
    """With the diagonal of the mass matrix in place of the Hessian the gradients are wrong, and the check says so."""
    monkeypatch.setattr("kinema.simulation.convex.keep_accelerations_adjoint", by_the_diagonal)
    with pytest.raises(AssertionError):
        check(SCENES["capsule elliptic 6"], 1, 4)


def test_batches_keep_their_bits():
    """Worlds that stand, slide and fly side by side, and alone."""
    model, start, u = started(SCENES["all constraints, elliptic"], 1)
    random = torch.Generator().manual_seed(2)
    v = start.v + torch.randn(11, model.nv, dtype=torch.float64, generator=random)
    q = start.q.expand(11, -1).clone()
    q[::2, 2] += 0.2
    every = kn.simulate(model, kn.State(q, v), u.expand(11, 80, -1), steps=80, dt=2e-3)
    for world_ in (0, 5, 10):
        alone = kn.simulate(model, kn.State(q[world_], v[world_]), u, steps=80, dt=2e-3)
        assert torch.equal(alone.end.q, every.end.q[world_]) and torch.equal(alone.end.v, every.end.v[world_])


def mean_and_secant(solimp: tuple[float, ...], dt: float) -> tuple[float, float]:
    """Mean gradient and secant of the way of a ball that lands and rolls, by the height it falls from."""
    surface = kn.ContactSurface(softness=kn.Softness(solimp=solimp))
    scene = kn.Scene(contact=kn.Contact(law="convex", friction=0.7, surface=surface))
    scene.add_ground()
    scene.add_body(kn.Sphere(0.1), "ball", mass=1.0)
    model = kn.compile(scene)
    height = torch.linspace(0.12, 0.16, 401, dtype=torch.float64, requires_grad=True)
    rise, v = torch.zeros(model.nq, dtype=torch.float64), torch.zeros(401, model.nv, dtype=torch.float64)
    rise[2], v[:, 3], v[:, 4], v[:, 5] = 1.0, 0.4, 0.2, -1.0
    start = kn.State(model.initial_state().q + height[:, None] * rise, v)
    way = kn.simulate(model, start, steps=round(0.3 / dt), dt=dt).end.q[:, 0]
    (slope,) = torch.autograd.grad(way.sum(), height)
    return float(slope[1:-1].mean()), float((way[-1] - way[0]).detach() / 0.04)


@pytest.mark.parametrize("dt", [2e-3, 5e-4])
def test_mean_gradients_are_secants_where_the_impedance_begins_at_zero(dt):
    """The window crosses many impacts. The force then begins at zero, and gradients are slopes: to 1 %.

    With MuJoCo's default impedance of 0.9 at zero distance it jumps when the ball touches, and the mean gradient is
    40 % above the secant at any time step: a property of the law, of which the docs warn.
    """
    mean, secant = mean_and_secant((0.0, 0.95, 0.01, 0.5, 2.0), dt)
    assert abs(mean - secant) < 0.01 * secant, (mean, secant)
    mean, secant = mean_and_secant((0.9, 0.95, 0.001, 0.5, 2.0), dt)
    assert mean > 1.3 * secant, (mean, secant)


def test_rows_without_force_have_gradients():
    """A weld at rest exerts exactly no force, and resists every motion."""
    box = "<body name='f' pos='0 0 1'><freejoint/><geom type='box' size='.1 .2 .3'/></body>"
    weld = "<equality><weld body1='f'/></equality>"
    model, _ = model_of(mujoco, world(box, "gravity='0 0 0'", weld))
    v = torch.zeros(model.nv, dtype=torch.float64, requires_grad=True)
    end = kn.simulate(model, model.initial_state(v=v), steps=1, dt=2e-3).end.v
    (got,) = torch.autograd.grad(end[5], v)
    h = torch.zeros(model.nv, dtype=torch.float64)
    h[5] = 1e-6
    up, down = (kn.simulate(model, model.initial_state(v=s * h), steps=1, dt=2e-3).end.v[5] for s in (1, -1))
    assert float(up) < 0.9e-6  # the weld resists
    assert abs(float(got[5]) - float(up - down) / 2e-6) < 1e-6


def test_the_step_jacobian_is_the_derivative():
    model, start, u = started(SCENES["all constraints, pyramidal"], 3)
    found = kn.linearise(model, start, u, dt=2e-3)
    random = torch.Generator().manual_seed(1)
    way = torch.randn(model.nv, dtype=torch.float64, generator=random)
    ends = [kn.step(model, kn.State(start.q, start.v + h * way), u, dt=2e-3).v for h in (1e-6, -1e-6)]
    assert torch.allclose(found.A[model.nv :, model.nv :] @ way, (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "bad",
    [
        {"solref": (0.02, -1.0)},
        {"solref": (float("nan"), 1.0)},
        {"solimp": (0.9, 1.5, 0.001, 0.5, 2.0)},
        {"solimp": (0.9, 0.95, -1.0, 0.5, 2.0)},
        {"solimp": (0.9, 0.95, 0.001, 0.5, 0.5)},
        {"solimp": (0.9, 0.95)},
    ],
)
def test_bad_softness_is_refused(bad):
    with pytest.raises(KinemaError, match=next(iter(bad))):
        kn.Softness(**bad)
    model, _ = model_of(mujoco, CONTACTS["sphere pyramidal 3"])
    (name, values), wanted = *bad.items(), model.parameters(*bad)
    if len(values) == wanted[name].shape[-1] and values[0] == values[0]:
        given = torch.tensor(values, dtype=torch.float64).expand_as(wanted[name])
        with pytest.raises(KinemaError, match=name):
            kn.simulate(model, steps=1, dt=2e-3, params={name: given})


def test_what_the_law_lacks_is_refused():
    for words in ({"restitution": 0.5}, {"time_of_impact": True}, {"solver": "pgs"}, {"impratio": 0.0}):
        with pytest.raises(KinemaError, match=next(iter(words))):
            kn.Contact(law="convex", **words)
    with pytest.raises(KinemaError, match="condim"):
        kn.ContactSurface(condim=2)
    scene = kn.Scene(contact=kn.Contact(law="convex"))
    scene.add_ground()
    scene.add_body(kn.Sphere(0.1), "ball")
    with pytest.raises(KinemaError, match="rk4"):
        kn.simulate(kn.compile(scene), steps=1, dt=1e-3, integrator="rk4")
    robot = kn.shapes.pendulum(2)
    scene.add_robot(robot, "p", prescribed=[robot.bodies[0].joints[0].name])
    with pytest.raises(KinemaError, match="prescribed"):
        kn.compile(scene)
    with pytest.raises(KinemaError, match="implicitfast"):
        plain = kn.Scene()
        plain.add_robot(kn.shapes.pendulum(2), "p")
        kn.simulate(kn.compile(plain), steps=1, dt=1e-3, integrator="implicitfast")
