"""Gradients of robot dynamics against central differences: all arguments, all parameters, all joint kinds."""

from __future__ import annotations

import pytest
import torch

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.description import BALL, PRISMATIC, REVOLUTE
from kinema.scene.shapes.random_tree import random_tree

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

# Central differences in float64 with h = 1e-5: h^2 of curvature and eps / h of rounding, both near 1e-10.
STEP, TOLERANCE = 1e-5, 1e-7
TREES = {
    "revolute": random_tree(1, 4, kinds=(REVOLUTE,), fixed=0, double=0.3),
    "prismatic": random_tree(2, 3, kinds=(PRISMATIC,), fixed=0),
    "ball": random_tree(3, 3, kinds=(BALL,), fixed=0),
    "floating, mixed, with fixed bodies": random_tree(4, 7, floating=True, fixed=0.3),
}
EVERYTHING = ("mass", "com", "inertia", "offset", "axis", "armature", "gravity")


@pytest.fixture(scope="module", params=TREES, ids=lambda name: name.replace(" ", "-"))
def world(request):
    """A model, its numbers, and a state."""
    scene = kn.Scene()
    scene.add_robot(TREES[request.param], "r")
    model = kn.compile(scene)
    generator = torch.Generator().manual_seed(0)
    q = model.initial_state().q + 0.3 * torch.randn(model.nq, generator=generator, dtype=torch.float64)
    v, a, tau = (torch.randn(model.nv, generator=generator, dtype=torch.float64) for _ in range(3))
    point = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    return model, {"q": q, "v": v, "a": a, "tau": tau, "point": point, **model.parameters(*EVERYTHING)}


def weighted(value: torch.Tensor) -> torch.Tensor:
    """A sum in which no two numbers count the same."""
    return (value * torch.linspace(-1, 2, value.numel(), dtype=torch.float64).reshape(value.shape)).sum()


def params_of(given, *names):
    return {n: given[n] for n in names or EVERYTHING}


FUNCTIONS = {
    "forward_dynamics": (
        ("q", "v", "tau", *EVERYTHING),
        lambda m, g: weighted(kn.forward_dynamics(m, g["q"], g["v"], g["tau"], params_of(g))),
    ),
    "inverse_dynamics": (
        ("q", "v", "a", *EVERYTHING),
        lambda m, g: weighted(kn.inverse_dynamics(m, g["q"], g["v"], g["a"], params_of(g))),
    ),
    "mass_matrix": (
        ("q", "mass", "com", "inertia", "offset", "axis", "armature"),
        lambda m, g: weighted(
            kn.mass_matrix(m, g["q"], params_of(g, "mass", "com", "inertia", "offset", "axis", "armature"))
        ),
    ),
    "forward_kinematics": (
        ("q", "offset", "axis"),
        lambda m, g: sum(
            weighted(t) for t in vars(kn.forward_kinematics(m, g["q"], params_of(g, "offset", "axis"))).values()
        ),
    ),
    "body_jacobian": (
        ("q", "offset", "axis"),
        lambda m, g: weighted(kn.body_jacobian(m, g["q"], m.bodies[-1], params_of(g, "offset", "axis"))),
    ),
    "centre_of_mass": (
        ("q", "mass", "com", "offset", "axis"),
        lambda m, g: weighted(kn.centre_of_mass(m, g["q"], params_of(g, "mass", "com", "offset", "axis"))),
    ),
    "momentum": (
        ("q", "v", "mass", "com", "inertia", "offset", "axis"),
        lambda m, g: weighted(
            kn.momentum(m, g["q"], g["v"], None, params_of(g, "mass", "com", "inertia", "offset", "axis"))
        ),
    ),
    "momentum about a point": (
        ("q", "v", "point", "mass"),
        lambda m, g: weighted(kn.momentum(m, g["q"], g["v"], g["point"], params_of(g, "mass"))),
    ),
    "energies": (
        ("q", "v", *EVERYTHING),
        lambda m, g: kn.kinetic_energy(m, g["q"], g["v"], params_of(g)) + kn.potential_energy(m, g["q"], params_of(g)),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(world, name, gradient_errors):
    model, given = world
    inputs, function = FUNCTIONS[name]
    errors = gradient_errors(lambda g: function(model, g), {n: given[n] for n in inputs}, h=STEP)
    assert max(errors.values()) < TOLERANCE, errors


def test_momentum_about_two_points_with_given_numbers(world):
    """It differs by (centre - point) x p, with the centre of the masses that were given."""
    model, given = world
    params = {"mass": given["mass"] * torch.linspace(0.5, 2.0, len(given["mass"]), dtype=torch.float64)}
    q, v, point = given["q"], given["v"], given["point"]
    own, other = kn.momentum(model, q, v, None, params), kn.momentum(model, q, v, point, params)
    centre = kn.centre_of_mass(model, q, params)
    moved = torch.linalg.cross(centre - point, own[3:])
    assert torch.allclose(own + torch.cat([moved, torch.zeros(3, dtype=torch.float64)]), other, rtol=0, atol=1e-12)


def test_a_batch_of_worlds_with_masses_of_their_own(world):
    """Values and gradients of each world are those it has alone, bit for bit."""
    model, given = world
    name = f"{model.bodies[-1]}/mass"
    factors = torch.linspace(0.5, 2, 17, dtype=torch.float64)
    q, mass = given["q"].expand(17, -1).clone(), factors * model.parameters(name)[name]

    def run(q, mass):
        leaves = [t.clone().requires_grad_() for t in (q, mass)]
        found = kn.forward_dynamics(
            model, leaves[0], given["v"].expand(*q.shape[:-1], -1), tau_of(q), {name: leaves[1]}
        )
        weighted(found[..., :]).backward() if q.ndim == 1 else sum(weighted(f) for f in found).backward()
        return found.detach(), *(t.grad for t in leaves)

    def tau_of(q):
        return given["tau"].expand(*q.shape[:-1], -1)

    together = run(q, mass)
    for w in (0, 5, 16):
        alone = run(q[w], mass[w])
        assert all(torch.equal(a, b[w]) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, q: kn.mass_matrix(m, q[:-1]), "q has the wrong shape"),
        (lambda m, q: kn.mass_matrix(m, q.float()), "q has the wrong type"),
        (lambda m, q: kn.mass_matrix(m, [0.0]), "q has the wrong type"),
        (lambda m, q: kn.mass_matrix(m, q, {"r/body0/weight": q}), "no parameter 'r/body0/weight'"),
        (lambda m, q: kn.mass_matrix(m, q, {"r/nobody/mass": q}), "no parameter 'r/nobody/mass'"),
        (lambda m, q: kn.mass_matrix(m, q, {"gravity": q[:2]}), "'gravity' has the wrong shape"),
        (lambda m, q: kn.body_jacobian(m, q, "nobody"), "no body 'nobody'"),
        (lambda m, q: kn.momentum(m, q, q.new_zeros(m.nv), q[:2]), "about has the wrong shape"),
    ],
)
def test_wrong_input_is_named(world, call, message):
    model, given = world
    with pytest.raises(kn.InputError, match=message):
        call(model, given["q"])
