"""Trees in motion against closed forms and conservation laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import Body, Joint, MassProperties, Pose, Robot, rotation_matrix
from kinema.scene.shapes.random_tree import random_tree

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

G = 9.81


def model_of(*bodies: Body, gravity=(0.0, 0.0, -G)) -> kn.Model:
    scene = kn.Scene(gravity)
    scene.add_robot(Robot("r", bodies))
    return kn.compile(scene)


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def pendulum(length: float) -> kn.Model:
    bob = MassProperties(2.0, (0.0, 0.0, -length), (0.0,) * 6)
    return model_of(Body("bob", joints=(Joint("pivot", "revolute", (0.0, 1.0, 0.0)),), mass=bob))


def exact_period(length: float, amplitude: float) -> float:
    """4 sqrt(l / g) K(sin(a / 2)), by the arithmetic-geometric mean."""
    a, b = 1.0, math.cos(amplitude / 2)
    while abs(a - b) > 1e-15:
        a, b = (a + b) / 2, math.sqrt(a * b)
    return 2 * math.pi * math.sqrt(length / G) / a


@pytest.mark.parametrize("amplitude", [0.1, 1.0, 2.5])
def test_period_of_a_pendulum(amplitude):
    """Semi-implicit Euler is symplectic of first order: the period of the swing is off by O(dt^2)."""
    length, errors = 0.7, []
    wanted = exact_period(length, amplitude)
    for dt in (2e-3, 1e-3):
        steps = int(1.2 * wanted / dt)
        path = kn.simulate(pendulum(length), kn.State(numbers(amplitude), numbers(0)), steps=steps, dt=dt)
        x = path.q[:, 0].numpy()
        down, up = (_crossing(x, dt, rising) for rising in (False, True))
        errors.append(abs(2 * (up - down) - wanted))
    assert errors[1] < 1e-5 and 3 < errors[0] / errors[1] < 5


def _crossing(x: np.ndarray, dt: float, rising: bool) -> float:
    """Time of the first zero in a direction, interpolated by a parabola's worth of cubic in three points."""
    sign = 1 if rising else -1
    i = int(np.flatnonzero((sign * x[:-1] < 0) & (sign * x[1:] >= 0))[0])
    # Inverse interpolation through four points: t as a cubic of x.
    at = np.arange(i - 1, i + 3)
    return float(np.polyfit(x[at], at * dt, 3)[-1])


def test_energy_of_a_swinging_chain():
    """Semi-implicit Euler in joint coordinates errs by O(dt), some per cent of the energy that swings."""
    rod = MassProperties(1.0, (0.0, 0.0, -0.15), (0.0075, 0.0, 0.0, 0.0075, 0.0, 1e-4))
    links = []
    for i in range(5):
        pose, joint = Pose((0.0, 0.0, -0.3 if i else 0.0)), Joint(f"j{i}", "revolute", (0.0, 1.0, 0.0))
        links.append(Body(f"l{i}", f"l{i - 1}" if i else None, pose, (joint,), rod))
    model = model_of(*links)
    errors = []
    for dt in (2e-3, 1e-3):
        start = numbers(0.5, 0.2, -0.3, 0.4, 0.1)
        path = kn.simulate(model, kn.State(start, numbers(0, 0, 0, 0, 0)), steps=int(3 / dt), dt=dt)
        kinetic, potential = kn.kinetic_energy(model, path.q, path.v), kn.potential_energy(model, path.q)
        energy = kinetic + potential
        errors.append(float((energy - energy[0]).abs().max() / kinetic.max()))
    assert errors[0] < 0.06 and 1.6 < errors[0] / errors[1] < 2.4, errors


def test_momentum_of_a_tree_in_space():
    """Without gravity the centre of mass of a floating tree moves in a straight line: its speed is off by O(dt)."""
    scene = kn.Scene((0.0, 0.0, 0.0))
    scene.add_robot(random_tree(11, 5, floating=True, fixed=0))
    model = kn.compile(scene)
    v = 0.5 * torch.randn(model.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    free = {n: torch.zeros_like(t) for n, t in model.parameters("stiffness", "damping", "armature").items()}
    drift = []
    for dt in (1e-3, 5e-4):
        steps = int(1 / dt)
        path = kn.simulate(model, kn.State(v=v), steps=steps, dt=dt, params=free)
        com = kn.centre_of_mass(model, path.q)
        speed = (com[1:] - com[:-1]) / dt
        drift.append(float((speed - speed[0]).norm(dim=-1).max()))
    assert drift[0] < 1e-2 and 1.7 < drift[0] / drift[1] < 2.3


def test_a_body_spins_freely():
    """Angular momentum and energy of an asymmetric body in space: kept to O(dt), axes flipping as they do."""
    brick = MassProperties(1.0, (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 2.0, 0.0, 3.0))
    model = model_of(Body("brick", joints=(Joint("free", "free"),), mass=brick), gravity=(0.0, 0.0, 0.0))
    v = numbers(0.01, 2.0, 0.01, 0, 0, 0)  # about the middle axis: unstable
    I, errors, flipped = np.diag([1.0, 2.0, 3.0]), [], False
    for dt in (1e-3, 5e-4):
        path = kn.simulate(model, kn.State(v=v), steps=int(10 / dt), dt=dt)
        L = [rotation_matrix(q[3:]) @ I @ w[:3] for q, w in zip(path.q.numpy(), path.v.numpy(), strict=True)]
        errors.append(np.linalg.norm(np.array(L) - L[0], axis=1).max())
        flipped = bool((path.v[:, 1] < -1.5).any())
    assert flipped and errors[0] < 0.1 and 1.6 < errors[0] / errors[1] < 2.4


def test_stiff_springs_and_dampers_are_stable():
    """A spring of 1e8 N m/rad with a period far below the step comes to rest at its rest angle."""
    base = pendulum(1.0)
    stiff = {"stiffness": numbers(1e8), "damping": numbers(1e4), "rest": numbers(0.3)}
    path = kn.simulate(base, kn.State(numbers(0.0), numbers(0.0)), steps=200, dt=1e-2, params=stiff)
    # Gravity pulls by m g l sin(0.3) = 5.8 N m, a deflection of 6e-8 rad.
    assert abs(float(path.end.q) - 0.3) < 1e-7 and abs(float(path.end.v)) < 1e-9


def floating_shoulder() -> kn.Model:
    """A body that floats, an arm on a ball joint, and a forearm on a hinge."""
    rod = MassProperties(1.0, (0.0, 0.0, -0.1), (0.01, 0.0, 0.0, 0.02, 0.0, 0.03))
    joints = (Joint("base", "free"), Joint("shoulder", "ball"), Joint("elbow", "revolute", stiffness=3.0, rest=0.2))
    place, names = Pose((0.0, 0.0, -0.2)), ("trunk", "arm", "forearm")
    return model_of(*(Body(names[i], names[i - 1] if i else None, place, (joints[i],), rod) for i in range(3)))


def test_springs_are_numbers_of_hinges_and_slides_alone():
    """A stiffness that nothing would use is refused: no number is ignored, and those that there are have gradients."""
    model = floating_shoulder()
    assert model.nv == 10 and model.parameters("stiffness")["stiffness"].tolist() == [3.0]
    assert model.parameters("r/elbow/rest")["r/elbow/rest"].tolist() == 0.2
    for name in ("shoulder", "base"):
        for word in ("stiffness", "rest"):
            message = f"(?s)no parameter 'r/{name}/{word}'.*r/elbow/{word}.*three revolute"
            with pytest.raises(kn.InputError, match=message):
                kn.simulate(model, steps=1, dt=1e-3, params={f"r/{name}/{word}": numbers(1.0, 1.0, 1.0)})
    with pytest.raises(kn.InputError, match=r"(?s)'stiffness' has the wrong shape.*\(10,\).*three revolute"):
        kn.simulate(model, steps=1, dt=1e-3, params={"stiffness": torch.ones(10, dtype=torch.float64)})

    def loss(given):
        path = kn.simulate(model, steps=8, dt=2e-3, params=given)
        return path.end.v @ torch.linspace(-1, 2, model.nv, dtype=torch.float64)

    leaves = model.parameters("stiffness", "rest", requires_grad=True)
    gradients = dict(zip(leaves, torch.autograd.grad(loss(leaves), list(leaves.values())), strict=True))
    for name, slope in gradients.items():
        # The end is nearly linear in both: differences are good to eps / h.
        ends = [loss({n: t.detach() + side * 1e-4 * (n == name) for n, t in leaves.items()}) for side in (1, -1)]
        assert abs(float(slope)) > 1e-4
        assert float(ends[0] - ends[1]) / 2e-4 == pytest.approx(float(slope), rel=1e-7), name


def test_models_without_hinges_and_slides_have_no_springs():
    scene = kn.Scene()
    scene.add_robot(random_tree(3, 3, kinds=("ball",), floating=True, fixed=0))
    model = kn.compile(scene)
    assert "stiffness" not in model.parameter_names and "rest" not in model.parameter_names
    assert torch.isfinite(kn.simulate(model, steps=3, dt=1e-3).end.q).all()
    with pytest.raises(kn.InputError, match="no parameter 'stiffness'"):
        kn.simulate(model, steps=1, dt=1e-3, params={"stiffness": torch.ones(model.nv, dtype=torch.float64)})


@pytest.mark.parametrize(("steps", "tolerance"), [(1, 1e-6), (32, 1e-5), (256, 1e-4)])
def test_gradients_through_steps(steps, tolerance):
    """Of a loss on the end of a floating tree with springs, to everything, against central differences."""
    scene = kn.Scene()
    scene.add_robot(random_tree(21, 5, floating=True, fixed=0.2))
    model = kn.compile(scene)
    generator = torch.Generator().manual_seed(0)
    names = ("mass", "com", "inertia", "offset", "axis", "armature", "damping", "stiffness", "rest", "gravity")
    leaves = {
        "q": model.initial_state().q,
        "v": 0.3 * torch.randn(model.nv, dtype=torch.float64, generator=generator),
        "tau": torch.randn(steps, model.nv, dtype=torch.float64, generator=generator),
        **model.parameters(*names),
    }
    weights = torch.randn(model.nq + model.nv, dtype=torch.float64, generator=generator)

    def loss(given):
        params = {n: given[n] for n in names}
        path = kn.simulate(
            model, kn.State(given["q"], given["v"]), u=kn.Control(tau=given["tau"]), steps=steps, dt=2e-3, params=params
        )
        return (torch.cat([path.end.q, path.end.v]) * weights).sum()

    leaves = {n: t.requires_grad_() for n, t in leaves.items()}
    gradients = dict(zip(leaves, torch.autograd.grad(loss(leaves), list(leaves.values())), strict=True))
    fixed = {n: t.detach() for n, t in leaves.items()}
    for name, leaf in fixed.items():
        way = torch.randn(leaf.shape, dtype=torch.float64, generator=generator)
        h = 1e-5
        with torch.no_grad():
            up, down = (loss({**fixed, name: leaf + sign * h * way}) for sign in (1, -1))
        wanted, got = float(up - down) / (2 * h), float((gradients[name] * way).sum())
        assert abs(got - wanted) <= tolerance * max(abs(wanted), 1e-2), (name, got, wanted)


def test_a_trajectory_can_go_on_from_its_end():
    """Two halves are the whole, bit for bit, and gradients pass through the seam."""
    model = pendulum(1.0)
    start = numbers(1.0).requires_grad_()
    whole = kn.simulate(model, kn.State(start, numbers(0.0)), steps=40, dt=0.01)
    half = kn.simulate(model, kn.State(start, numbers(0.0)), steps=20, dt=0.01)
    rest = kn.simulate(model, half.end, steps=20, dt=0.01)
    assert torch.equal(rest.end.q, whole.end.q)
    (a,), (b,) = (torch.autograd.grad(t.end.q.sum(), start) for t in (whole, rest))
    assert torch.allclose(a, b, rtol=1e-13)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dt": 0.0}, "dt is not usable"),
        ({"dt": float("nan")}, "dt is not usable"),
        ({"q": "down"}, "q has the wrong type"),
        ({"v": torch.zeros(2, dtype=torch.float64)}, "v has the wrong shape"),
    ],
)
def test_wrong_input_is_named(changes, message):
    given = {"q": numbers(0.0), "v": numbers(0.0), "steps": 3, "dt": 0.01, **changes}
    with pytest.raises(kn.InputError, match=message):
        kn.simulate(pendulum(1.0), kn.State(given.pop("q"), given.pop("v")), **given)
