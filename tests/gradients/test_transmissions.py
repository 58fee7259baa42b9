"""Gradients through tendons, general actuators, drag and gravity compensation, with a contact that presses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.contact_gradients import Case, Counts, check_gradients
from tests.mjcf_features import FEATURES, with_features

import kinema as kn
from kinema.simulation import linearise

pytest.importorskip("mujoco")
pytestmark = pytest.mark.filterwarnings("ignore::kinema.LeftOutWarning")

TOUCHING = ('name="hull"', 'name="hull" friction="0.4"'), (' pos="0.05 0 0" contype="0" conaffinity="0"', "")
PARAMETERS = ["mass", "com", "armature", "damping", "gravity", "friction", "offset", "axis"]


def case_of(names: list[str], seed: int) -> tuple[Case, list[str]]:
    """The robot with its drone on the ground."""
    text = with_features(names)
    for old, new in TOUCHING:
        assert old in text
        text = text.replace(old, new)
    scene = kn.Scene(contact=kn.Contact(margin=0.02, friction=0.4))
    scene.add_ground()
    scene.add_robot(kn.read_mjcf(text), "robot")
    model = kn.compile(scene)
    random = torch.Generator().manual_seed(seed)
    q, v = model.initial_state().q, 0.3 * torch.randn(model.nv, generator=random, dtype=torch.float64)
    q[:3] = 0.4 * torch.randn(3, generator=random, dtype=torch.float64)
    q[3:] = torch.tensor([1.0, 1.0, 0.3 - 1e-4, 1.0, 0.0, 0.0, 0.0])
    v[3:] *= 0.1
    arrays = model.transmissions
    used = {
        "place": len(arrays.site) + len(arrays.path_site),
        "tendon_stiffness": arrays.elastic,
        "tendon_damping": arrays.elastic,
    }
    used |= dict.fromkeys(("actuator_gain", "actuator_bias", "gear", "force", "least_force"), len(arrays.actuator))
    used |= {"muscle": len(arrays.muscle), "activation_times": len(model.activations)}
    more = [n for n in model.parameter_names if n.startswith(("gravcomp", "fluid_")) or used.get(n)]
    u = 0.3 * torch.randn(len(model.actuators), generator=random, dtype=torch.float64)
    act = 0.2 + 0.2 * torch.rand(len(model.activations), generator=random, dtype=torch.float64)
    case = Case(model, q, v, [*PARAMETERS, *more], u=u if len(u) else None, dt=4e-3, act=act if len(act) else None)
    return case, more


@pytest.mark.parametrize("name", [*FEATURES, "polynomial", "all"])
def test_gradients(name: str):
    """Central differences with h = 1e-6: rounding adds 1e-16 * 1e2 / 1e-6, curvature 1e-12 * 1e3."""
    counts = Counts()
    for seed in range(2):
        case, more = case_of([*FEATURES] if name == "all" else [name], seed)
        check_gradients(case, 20, 2e-6, 1e-6, seed, counts)
    assert counts.pressing > 100 and counts.switches < counts.cases / 3
    if name == "medium":
        assert {"fluid_density", "fluid_viscosity"} <= {*more}
    if name == "all":
        assert {"u", "gravcomp", "tendon_stiffness", "tendon_damping", "gear", "actuator_gain"} <= counts.seen
        assert {"actuator_bias", "place", "fluid_viscosity", "act"} <= counts.seen, counts.seen


def test_worlds_have_the_bits_of_one():
    """Batches of worlds run other code, with lanes of worlds."""
    case, _ = case_of([*FEATURES], 3)
    model, random = case.model, torch.Generator().manual_seed(1)
    worlds = 9
    q = case.q + 1e-3 * torch.randn(worlds, model.nq, generator=random, dtype=torch.float64)
    u = case.u + torch.randn(worlds, 10, len(case.u), generator=random, dtype=torch.float64)
    together = kn.simulate(model, model.initial_state(q=q, v=case.v.expand(worlds, -1)), u=u, steps=10, dt=1e-3)
    for world in range(0, worlds, 4):
        alone = kn.simulate(model, model.initial_state(q=q[world], v=case.v), u=u[world], steps=10, dt=1e-3)
        assert torch.equal(alone.end.q, together.end.q[world]) and torch.equal(alone.end.v, together.end.v[world])


def test_a_compensated_body_floats():
    """With the whole weight compensated a free body stays where it is, and half of it falls half as fast."""
    for share in (1.0, 0.5):
        body = kn.Body(
            "body",
            joints=(kn.Joint("free", "free"),),
            mass=kn.MassProperties(2.0, (0.1, 0.2, 0.3), (1.0, 0.1, 0, 2.0, 0, 2.5)),
            gravcomp=share,
        )
        scene = kn.Scene()
        scene.add_robot(kn.Robot("balloon", (body,)))
        model = kn.compile(scene)
        fall = kn.simulate(model, steps=100, dt=1e-2).end.v[5]
        torch.testing.assert_close(fall, torch.tensor(-9.81 * (1 - share), dtype=torch.float64), atol=1e-12, rtol=1e-12)


def test_files_keep_them(tmp_path):
    case, _ = case_of([*FEATURES], 4)
    kn.save(tmp_path / "model", case.model)
    again = kn.load(tmp_path / "model")
    ends = [
        kn.simulate(m, m.initial_state(q=case.q, v=case.v), u=case.u, steps=5, dt=1e-3).end.v
        for m in (case.model, again)
    ]
    assert torch.equal(*ends)


@pytest.mark.parametrize("law", ["mlcp", "convex"])
def test_jacobians_of_a_step_have_activations(law: str, monkeypatch):
    """A and B by rows of one reverse sweep, beside those of copies of a world; the rows of `act` are not trivial."""
    scene = kn.Scene(contact=kn.Contact(law=law))
    scene.add_robot(kn.read_mjcf(with_features(["filter", "muscle", "integrated velocity"])), "robot")
    model = kn.compile(scene)
    state = model.initial_state(act=[0.2, 0.3, 0.1], v=[0.3] * model.nv)
    u = torch.tensor([0.4, 0.7, -0.5], dtype=torch.float64)
    found = kn.linearise(model, state, u, dt=2e-3)
    monkeypatch.setattr(linearise, "linear_step_of", lambda *args: None)
    expected = kn.linearise(model, state, u, dt=2e-3)
    assert found.A.shape == (2 * model.nv + 3, 2 * model.nv + 3)
    torch.testing.assert_close(found.A, expected.A, atol=1e-13, rtol=1e-11)
    torch.testing.assert_close(found.B, expected.B, atol=1e-13, rtol=1e-11)
    assert (found.B[-3:].abs().amax(1) > 1e-4).all() and (found.A[: 2 * model.nv, -3:].abs().amax(0) > 1e-6).all()


def test_a_stiff_muscle_is_stable():
    """A muscle of 1 kN against a spring on a finger of 20 g at steps of 5 ms, where explicit steps would explode."""
    mass = kn.MassProperties(0.02, (0.03, 0.0, 0.0), (1e-5, 0.0, 0.0, 1e-5, 0.0, 1e-5))
    knuckle = kn.Joint("knuckle", "revolute", axis=(0.0, 1.0, 0.0), stiffness=20.0)
    body = kn.Body("finger", joints=(knuckle,), mass=mass)
    curve, state = kn.Muscle(1000.0, (-0.02, 0.02)), kn.Activation("muscle", (0.01, 0.04, 0.0))
    pull = kn.Actuator("flexor", "knuckle", "general", gear=0.01, activation=state, muscle=curve)
    scene = kn.Scene()
    scene.add_robot(kn.Robot("hand", (body,), (pull,)))
    model = kn.compile(scene)
    path = kn.simulate(model, u=[0.8], steps=400, dt=5e-3)
    assert float(path.v.abs().max()) < 500 and float(path.v[-50:].abs().max()) < 1e-2
    torch.testing.assert_close(path.end.act, torch.tensor([0.8], dtype=torch.float64), atol=1e-6, rtol=0)


def test_activations_are_named_and_checked():
    with pytest.raises(kn.InputError, match="actuator with an activation"):
        model = kn.compile(_arm(kn.Actuator("motor", "hinge")))
        kn.simulate(model, kn.State(act=[0.0]), steps=1, dt=1e-3)
    slow = kn.Actuator("slow", "hinge", "general", activation=kn.Activation("filter", (0.1, 0.0, 0.0)))
    with pytest.raises(kn.InputError, match="1 actuators with an activation"):
        kn.simulate(kn.compile(_arm(slow)), steps=1, dt=1e-3, integrator="rk4")
    for bad in (
        kn.Activation("fast"),
        kn.Activation("filter", (-1.0, 0.0, 0.0)),
        kn.Activation("filter", (float("nan"), 0.0, 0.0)),
        kn.Activation("integrator", lower=1.0, upper=0.0),
    ):
        with pytest.raises(kn.ModelError, match="activation of actuator"):
            kn.compile(_arm(kn.Actuator("slow", "hinge", "general", activation=bad)))
    for worse in (
        kn.Muscle(-1.0, (0.0, 1.0)),
        kn.Muscle(1.0, (1.0, 1.0)),
        kn.Muscle(1.0, (0.0, 1.0), lmin=1.2),
        kn.Muscle(1.0, (0.0, 1.0), range=(1.0, 0.5)),
    ):
        with pytest.raises(kn.ModelError, match="of muscle"):
            kn.compile(_arm(kn.Actuator("slow", "hinge", "general", muscle=worse)))
    with pytest.raises(kn.ModelError, match="kind='general'"):
        kn.compile(_arm(kn.Actuator("slow", "hinge", "position", activation=kn.Activation("filter"))))


def _arm(actuator: kn.Actuator) -> kn.Scene:
    mass = kn.MassProperties(1.0, (0.1, 0.0, 0.0), (1e-2, 0.0, 0.0, 1e-2, 0.0, 1e-2))
    body = kn.Body("arm", joints=(kn.Joint("hinge", "revolute"),), mass=mass)
    scene = kn.Scene()
    scene.add_robot(kn.Robot("robot", (body,), (actuator,)))
    return scene


def test_ways_of_tendons_are_checked():
    """Sites, wraps and pulleys in an order that makes a way."""
    sites = tuple(kn.Site(name, kn.Pose((0.1 * i, 0.0, 0.1))) for i, name in enumerate("abc"))
    mass = kn.MassProperties(1.0, (0.1, 0.0, 0.0), (1e-2, 0.0, 0.0, 1e-2, 0.0, 1e-2))
    arm = kn.Body("arm", joints=(kn.Joint("hinge", "revolute"),), mass=mass, sites=sites)
    base = kn.Body("base", sites=(kn.Site("fixed", kn.Pose((0.0, 0.3, 0.4))),))
    wrap, pulley = kn.Wrap("arm", (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), 0.05), kn.Pulley(2.0)

    def compiled(*way: str | kn.Wrap | kn.Pulley) -> kn.Model:
        scene = kn.Scene()
        scene.add_robot(kn.Robot("robot", (base, arm), tendons=(kn.Tendon("cord", sites=way, stiffness=1.0),)))
        return kn.compile(scene)

    assert len(compiled("fixed", wrap, "a", pulley, "b", "fixed").transmissions.bends) == 1
    for bad in (("a", wrap), (wrap, "a", "b"), ("a", wrap, wrap, "b"), ("a", pulley, "b"), ("a", "b", pulley)):
        with pytest.raises(kn.ModelError, match="tendon 'robot/cord' has no way"):
            compiled(*bad)
    with pytest.raises(kn.ModelError, match="a pulley of tendon 'robot/cord'"):
        compiled("a", "fixed", kn.Pulley(0.0), "b", "fixed")
    with pytest.raises(kn.ModelError, match="the radius of the wrap"):
        compiled("a", replace(wrap, radius=-1.0), "fixed")
    with pytest.raises(kn.ModelError, match="a geom of body 'robot/leg'"):
        compiled("a", replace(wrap, body="leg"), "fixed")
    with pytest.raises(kn.ModelError, match="site 'robot/d'"):
        compiled("a", replace(wrap, side="d"), "fixed")
