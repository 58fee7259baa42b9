"""Thin shells and springs: forces against numpy and their energies, conservation, gradients of rollouts."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from tests.sheets import sheet
from tests.support import masses

import kinema as kn
from kinema.dynamics.shell import (
    Hinges,
    TriMesh,
    air_forces,
    damped_hinge_forces,
    hinge_forces,
    membrane_kernels,
    neo_hookean_membrane,
)
from kinema.dynamics.springs import spring_forces
from kinema.integrate.semi_implicit import advance_particles
from kinema.lang import Float, ivec2, ivec3, ivec4, mat22, vec2, vec3
from kinema.lang.build import compiler
from kinema.model.trimesh import hinge_angles, tri_mesh

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

RNG = np.random.default_rng(5)
SIZE = 0.1


def crumpled() -> tuple[np.ndarray, np.ndarray]:
    """A sheet whose rest shape is neither flat nor regular."""
    vertices, triangles = sheet(4, 3, SIZE)
    return vertices + 0.015 * RNG.normal(size=vertices.shape), triangles


MESH = tri_mesh(*crumpled())
TRIANGLES, VERTICES, HINGES = len(MESH.triangles), len(MESH.vertices), len(MESH.hinges)
ENDS = np.array([(0, 5), (3, 7), (5, 7), (19, 0), (2, 11)], np.int32)
DT = 1e-4  # a fiftieth of 2 / sqrt(k/m), for 1e3 N/m and 1e-3 kg

LAWS = ("membrane", "viscous", "hinge", "damped", "air", "spring")
STEP = ("inv_mass", "gravity", "dt")  # not the law's
INNER = ("membrane", "viscous", "hinge", "damped", "spring")  # forces without sum and moment
ELASTIC, VISCOUS = membrane_kernels(neo_hookean_membrane)


@cache
def program(law: str) -> kn.Program:
    """One law and the step of the particles; everything that can be a parameter is one."""
    p = kn.Program(law)
    x, v, f = p.state("x", vec3, VERTICES), p.state("v", vec3, VERTICES), p.scratch("f", vec3, VERTICES)
    by_triangle, by_hinge = MESH.order, MESH.hinge_order

    def of_triangles(*names):
        return [p.parameter(n, Float, TRIANGLES, order=by_triangle) for n in names]

    def of_hinges(*names):
        return [p.parameter(n, Float, HINGES, order=by_hinge) for n in names]

    if law in ("membrane", "viscous", "air"):
        corners = p.constant("vertices", ivec3, MESH.triangles, order=by_triangle)
    if law in ("membrane", "viscous"):
        rest = p.parameter("rest_inverse", mat22, TRIANGLES, order=by_triangle)
        mesh = TriMesh(vertices=corners, rest_inverse=rest, area=of_triangles("area")[0])
    if law in ("hinge", "damped"):
        hinges = Hinges(
            vertices=p.constant("hinges", ivec4, MESH.hinges, order=by_hinge),
            rest_angle=of_hinges("rest_angle")[0],
            weight=of_hinges("weight")[0],
            inverse_areas=p.parameter("inverse_areas", vec2, HINGES, order=by_hinge),
        )
    if law == "membrane":
        p.call(ELASTIC, mesh, x, *of_triangles("mu", "lam", "activation"), f, count=TRIANGLES)
    elif law == "viscous":
        p.call(VISCOUS, mesh, x, v, *of_triangles("mu", "lam", "activation", "viscosity"), f, count=TRIANGLES)
    elif law == "hinge":
        p.call(hinge_forces, hinges, x, *of_hinges("bending", "fold"), f, count=HINGES)
    elif law == "damped":
        p.call(damped_hinge_forces, hinges, x, v, *of_hinges("bending", "fold", "damping"), f, count=HINGES)
    elif law == "air":
        wind = p.parameter("wind", vec3)
        p.call(air_forces, corners, x, v, wind, *of_triangles("drag", "lift"), f, count=TRIANGLES)
    else:
        ends = p.constant("ends", ivec2, ENDS)
        numbers = [p.parameter(n, Float, len(ENDS)) for n in ("stiffness", "rest", "spring_damping")]
        p.call(spring_forces, ends, x, v, *numbers, f, count=len(ENDS))
    inv_mass, gravity, dt = (
        p.parameter("inv_mass", Float, VERTICES),
        p.parameter("gravity", vec3),
        p.parameter("dt", Float),
    )
    p.call(advance_particles, x, v, f, inv_mass, gravity, dt, x.next, v.next, count=VERTICES)
    return p


def turned(x: np.ndarray) -> np.ndarray:
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
    return x @ (turn * np.linalg.det(turn)).T + (0.3, -0.2, 0.1)


def rolled(angle: float) -> np.ndarray:
    """The mesh, flat, folded by `angle` in all along the line x = 0.2 m."""
    x = sheet(4, 3, SIZE)[0]
    beyond = np.maximum(x[:, 0] - 0.2, 0.0)
    return np.stack([x[:, 0] - beyond * (1 - np.cos(angle)), x[:, 1], -beyond * np.sin(angle)], axis=1)


def noise(scale: float) -> np.ndarray:
    return scale * np.random.default_rng(1).normal(size=(VERTICES, 3))


STATES = {
    "rest": lambda: MESH.vertices,
    "turned": lambda: turned(MESH.vertices),
    "deformed": lambda: turned(MESH.vertices) + noise(0.01),
    "flat": lambda: rolled(0.0),
    "folded": lambda: turned(rolled(2.5)) + noise(1e-3),
    "completely folded": lambda: rolled(np.pi),
    "stretched": lambda: turned(MESH.vertices * (1.8, 1.3, 1.5)) + noise(2e-3),
    "compressed": lambda: turned(MESH.vertices * (0.5, 0.6, 0.7)) + noise(2e-3),
}


def inputs(law: str, state: str = "deformed", speed: float = 0.5) -> dict[str, torch.Tensor]:
    """A state of the mesh, with numbers that differ between elements."""
    rng = np.random.default_rng(2)

    def around(value: float, n: int) -> np.ndarray:
        return value * rng.uniform(0.7, 1.3, n)

    found = {
        "x": STATES[state](),
        "v": speed * rng.normal(size=(VERTICES, 3)),
        "inv_mass": 1.0 / masses(MESH, around(0.2, TRIANGLES)),
        "gravity": np.array([0.3, -0.2, -9.81]),
        "dt": np.array(DT),
    }
    membrane = {
        "rest_inverse": MESH.rest_inverse,
        "area": MESH.area,
        "mu": around(300.0, TRIANGLES),
        "lam": around(500.0, TRIANGLES),
        "activation": 0.3 * rng.uniform(-1, 1, TRIANGLES),
    }
    hinge = {
        "rest_angle": MESH.hinge_angle,
        "weight": MESH.hinge_weight,
        "inverse_areas": MESH.hinge_inverse_areas,
        "bending": around(0.5, HINGES),
        "fold": 0.3 * rng.uniform(-1, 1, HINGES),
    }
    found |= {
        "membrane": membrane,
        "viscous": {**membrane, "viscosity": around(0.3, TRIANGLES)},
        "hinge": hinge,
        "damped": {**hinge, "damping": around(2e-3, HINGES)},
        "air": {"wind": np.array([3.0, -2.0, 4.0]), "drag": around(8.0, TRIANGLES), "lift": around(10.0, TRIANGLES)},
        "spring": {
            "stiffness": around(200.0, len(ENDS)),
            "rest": around(0.2, len(ENDS)),
            "spring_damping": around(0.5, len(ENDS)),
        },
    }[law]
    return {k: torch.tensor(a) for k, a in found.items()}


def simulate(law: str, t: dict[str, torch.Tensor], steps: int, **options):
    state = {k: t[k] for k in ("x", "v")}
    parameters = {k: a for k, a in t.items() if k not in state}
    return kn.rollout(program(law), steps, state, parameters, options=kn.RunOptions(**options))


def forces(law: str, t: dict[str, torch.Tensor]) -> np.ndarray:
    """Forces [N]: the change of velocity in a step of 1 s without gravity, of tiny masses."""
    kind, light = t["x"].dtype, 1e-9
    one = {"inv_mass": torch.full((VERTICES,), 1 / light, dtype=kind), "gravity": torch.zeros(3, dtype=kind)}
    after = simulate(law, {**t, **one, "dt": torch.tensor(1.0, dtype=kind)}, 1).final
    return light * (after["v"] - t["v"]).double().numpy()


def numbers(t: dict[str, torch.Tensor], *names: str) -> list[np.ndarray]:
    return [t[n].numpy() for n in names]


# -- the laws against numpy ----------------------------------------------------------------------------------------


def deformation(x: np.ndarray) -> np.ndarray:
    corners = x[MESH.triangles]
    return np.swapaxes(corners[:, 1:] - corners[:, :1], 1, 2) @ MESH.rest_inverse


def membrane_energy(x: np.ndarray, t: dict[str, torch.Tensor]) -> float:
    F = deformation(x)
    mu, lam, activation = numbers(t, "mu", "lam", "activation")
    C = F.swapaxes(1, 2) @ F
    J = np.sqrt(np.linalg.det(C))
    psi = 0.5 * mu * (np.trace(C, axis1=1, axis2=2) - 2) + 0.5 * lam * (J - 1 - mu / lam + activation) ** 2
    return float(MESH.area @ psi)


def hinge_energy(x: np.ndarray, t: dict[str, torch.Tensor]) -> float:
    phi = hinge_angles(x, MESH.hinges)
    rest, weight, bending, fold = numbers(t, "rest_angle", "weight", "bending", "fold")
    return float((2 * bending * weight * (1 - np.cos(0.5 * (phi - rest) + fold))).sum())


def spring_energy(x: np.ndarray, t: dict[str, torch.Tensor]) -> float:
    stiffness, rest = numbers(t, "stiffness", "rest")
    length = np.linalg.norm(x[ENDS[:, 1]] - x[ENDS[:, 0]], axis=1)
    return float((0.5 * stiffness * (length - rest) ** 2).sum())


def slope(function, x: np.ndarray, h: float) -> np.ndarray:
    """Central differences of fourth order."""
    found = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[at] = h
        near, far = (function(x + k * step) - function(x - k * step) for k in (1, 2))
        found[at] = (8 * near - far) / (12 * h)
    return found


ENERGIES = {"membrane": membrane_energy, "hinge": hinge_energy, "spring": spring_energy}


@pytest.mark.parametrize("state", ["deformed", "folded", "stretched", "compressed", "flat"])
@pytest.mark.parametrize("law", ENERGIES)
def test_forces_are_minus_the_gradient_of_the_energy(law: str, state: str):
    t = inputs(law, state)
    t["v"] *= 0.0  # a spring has its damping in the same kernel
    f = forces(law, t)
    expected = -slope(lambda x: ENERGIES[law](x, t), t["x"].numpy(), 1e-5)
    assert np.abs(f).max() > 1e-2
    np.testing.assert_allclose(f, expected, atol=1e-8 * np.abs(f).max())


def membrane_dissipation(v: np.ndarray, t: dict[str, torch.Tensor]) -> float:
    """Half the power of the viscosity [W]."""
    F, dF = deformation(t["x"].numpy()), deformation(v)
    D = F.swapaxes(1, 2) @ dF
    D = 0.5 * (D + D.swapaxes(1, 2))
    return float((MESH.area * t["viscosity"].numpy() * (D * D).sum(axis=(1, 2))).sum())


def hinge_dissipation(v: np.ndarray, t: dict[str, torch.Tensor]) -> float:
    x, h = t["x"].numpy(), 1e-5
    rate = (hinge_angles(x + h * v, MESH.hinges) - hinge_angles(x - h * v, MESH.hinges)) / (2 * h)
    return float((0.5 * t["damping"].numpy() * t["weight"].numpy() * rate**2).sum())


def spring_dissipation(v: np.ndarray, t: dict[str, torch.Tensor]) -> float:
    d, u = (a[ENDS[:, 1]] - a[ENDS[:, 0]] for a in (t["x"].numpy(), v))
    rate = (d * u).sum(axis=1) / np.linalg.norm(d, axis=1)
    return float((0.5 * t["spring_damping"].numpy() * rate**2).sum())


@pytest.mark.parametrize("state", ["deformed", "folded", "compressed"])
@pytest.mark.parametrize(
    ("law", "half_power"),
    [("viscous", membrane_dissipation), ("damped", hinge_dissipation), ("spring", spring_dissipation)],
)
def test_damping_is_minus_the_gradient_of_half_its_power(law: str, half_power, state: str):
    """The difference of the forces with and without velocity; exact up to the rates of angles, by differences."""
    t = inputs(law, state)
    f = forces(law, t) - forces(law, {**t, "v": 0 * t["v"]})
    expected = -slope(lambda v: half_power(v, t), t["v"].numpy(), 1e-3)
    assert np.abs(f).max() > 1e-2
    np.testing.assert_allclose(f, expected, atol=2e-7 * np.abs(f).max())


def test_air_forces_agree_with_numpy():
    t = inputs("air")
    x, v, wind, drag, lift = numbers(t, "x", "v", "wind", "drag", "lift")
    corners = x[MESH.triangles]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    area = 0.5 * np.linalg.norm(normal, axis=1)
    n = normal / (2 * area[:, None])
    u = wind - v[MESH.triangles].mean(axis=1)
    speed = np.linalg.norm(u, axis=1)
    attack = np.arcsin((n * u).sum(axis=1) / speed)
    across = n - u * ((n * u).sum(axis=1) / speed**2)[:, None]
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    seen = np.sqrt(np.sin(attack) ** 2 + 1e-4 * np.cos(attack) ** 2)
    pull = (drag * area * speed * seen)[:, None] * u
    pull += (lift * area * speed**2 * np.sin(attack) * np.cos(attack))[:, None] * across
    expected = np.zeros_like(x)
    np.add.at(expected, MESH.triangles, pull[:, None] / 3)
    f = forces("air", t)
    np.testing.assert_allclose(f, expected, atol=1e-11 * np.abs(f).max())  # |u|^2 + TINY_SPEED^2


def test_air_does_not_see_which_side_is_up_nor_a_common_velocity():
    t = inputs("air")
    f = forces("air", t)
    shift = torch.tensor([5.0, 1.0, -2.0], dtype=torch.float64)
    moved = {**t, "v": t["v"] + shift, "wind": t["wind"] + shift}
    np.testing.assert_allclose(forces("air", moved), f, atol=1e-12 * np.abs(f).max())
    g = np.zeros_like(f)
    x, v, wind, drag, lift = numbers(t, "x", "v", "wind", "drag", "lift")
    air_forces.python(MESH.triangles[:, ::-1].copy(), x, v, wind, drag, lift, g)
    np.testing.assert_allclose(g, f, atol=1e-12 * np.abs(f).max())


# -- rest, objectivity, momentum -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["rest", "turned"])
@pytest.mark.parametrize("law", ["membrane", "hinge"])
def test_at_rest_there_is_no_force_wherever_it_is(law: str, state: str):
    t = inputs(law, state)
    off = {k: torch.zeros_like(t[k]) for k in ("activation", "fold") if k in t}
    scale = np.abs(forces(law, t)).max()  # those of an activation of up to 0.3
    assert scale > 1e-1
    assert np.abs(forces(law, {**t, **off})).max() <= 1e-13 * scale


@pytest.mark.parametrize("law", ["viscous", "damped", "spring"])
def test_turning_is_not_damped(law: str):
    """The velocities of a rigid motion of a deformed shape leave the force what it is at v = 0."""
    t = inputs(law)
    w, shift = torch.tensor([3.0, -2.0, 5.0], dtype=torch.float64), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    still = forces(law, {**t, "v": 0 * t["v"]})
    rigid = forces(law, {**t, "v": torch.linalg.cross(w.expand_as(t["x"]), t["x"]) + shift})
    damped = forces(law, t) - still
    assert np.abs(rigid - still).max() <= 1e-13 * np.abs(still).max() + 1e-13 * np.abs(damped).max()
    assert np.abs(damped).max() > 1e-2


@pytest.mark.parametrize("state", ["deformed", "folded", "completely folded", "compressed"])
@pytest.mark.parametrize("law", INNER)
def test_inner_forces_have_no_sum_and_no_moment(law: str, state: str):
    t = inputs(law, state)
    f, x = forces(law, t), t["x"].numpy()
    scale = np.abs(f).sum()
    assert np.abs(f.sum(axis=0)).max() <= 1e-14 * scale
    assert np.abs(np.cross(x, f).sum(axis=0)).max() <= 1e-14 * scale


@pytest.mark.parametrize("law", INNER)
def test_a_free_sheet_keeps_its_momentum(law: str):
    """Semi-implicit Euler keeps linear and angular momentum of inner forces, up to rounding."""
    t = inputs(law)
    t["gravity"] *= 0.0
    after = simulate(law, t, 500).final
    mass = (1.0 / t["inv_mass"])[:, None]
    drift = (after["v"] - t["v"]).abs().max()
    assert drift > 0.3

    def momenta(s):
        return (mass * s["v"]).sum(0), (mass * torch.linalg.cross(s["x"], s["v"])).sum(0)

    # Every step rounds what vertices exchange, which is at most what they have in the end: they speed each other up.
    scale = max(float((mass * s["v"].norm(dim=1, keepdim=True)).sum()) for s in (t, after))
    for before, now in zip(momenta(t), momenta(after), strict=True):
        assert float((before - now).abs().max()) <= 500 * 2.2e-16 * scale


# -- gradients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["deformed", "flat", "folded", "stretched", "compressed"])
@pytest.mark.parametrize(("steps", "tolerance"), [(1, 1e-6), (32, 1e-5)])
@pytest.mark.parametrize("law", LAWS)
def test_gradients_of_rollouts(law: str, steps: int, tolerance: float, state: str, gradient_errors):
    t = inputs(law, state)
    # Forces do not depend on it, up to COLLAPSED: it is a scale that is divided out again.
    fixed = {k: t.pop(k) for k in ("inverse_areas",) if k in t}
    weight = torch.tensor(np.random.default_rng(1).normal(size=(2, VERTICES, 3)))
    start = {k: t[k].clone() for k in ("x", "v")}

    def loss(leaves):
        # What the steps have changed: nothing that the law does not touch hides its derivatives.
        after = simulate(law, {**leaves, **fixed}, steps).final
        far, fast = (after["x"] - start["x"]) / (DT * steps), (after["v"] - start["v"]) / (DT * steps)
        return (far * weight[0]).sum() + (fast * weight[1]).sum()

    errors = gradient_errors(loss, t, h=1e-6)
    assert max(errors.values()) <= tolerance, errors
    # No derivative of the law is so small that the comparison says nothing about it.
    leaves = {k: a.clone().requires_grad_() for k, a in t.items()}
    value = loss(leaves)
    for name, gradient in zip(leaves, torch.autograd.grad(value, list(leaves.values())), strict=True):
        effect = float(gradient.abs().max() * t[name].abs().max())
        assert name in STEP or effect > 1e-3 * float(value.detach().abs()), (name, effect)


# -- singular states -----------------------------------------------------------------------------------------------


def force_and_slope(law: str, t: dict[str, torch.Tensor]) -> tuple[np.ndarray, dict[str, torch.Tensor]]:
    """Forces, and the gradients of a random sum of them."""
    leaves = {k: a.clone().requires_grad_() for k, a in t.items()}
    weight = torch.tensor(np.random.default_rng(1).normal(size=(VERTICES, 3)), dtype=t["x"].dtype)
    value = (simulate(law, leaves, 1).final["v"] * weight).sum()
    return forces(law, t), dict(zip(leaves, torch.autograd.grad(value, list(leaves.values())), strict=True))


def collapsed_to_a_point() -> torch.Tensor:
    return torch.zeros(VERTICES, 3, dtype=torch.float64)


def collapsed_to_a_line() -> torch.Tensor:
    return torch.tensor(MESH.vertices * (1.0, 0.0, 0.0))


@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
@pytest.mark.parametrize("place", [collapsed_to_a_point, collapsed_to_a_line, lambda: torch.tensor(rolled(np.pi))])
@pytest.mark.parametrize("law", LAWS)
def test_force_and_gradient_are_finite_in_singular_states(law: str, place, kind: torch.dtype):
    t = {k: a.to(kind) for k, a in {**inputs(law), "x": place()}.items()}
    f, gradients = force_and_slope(law, t)
    assert np.isfinite(f).all()
    assert all(bool(g.isfinite().all()) for g in gradients.values()), gradients


def test_a_hinge_that_is_pushed_through_itself_flips_its_force():
    """On both sides of phi = pi the force opens the fold, k_b w |dphi/dx|; at pi it is that of one of them."""
    t = inputs("hinge")
    t |= {k: torch.zeros_like(t[k]) for k in ("fold", "rest_angle")}
    found = []
    for angle in (np.pi - 1e-9, np.pi, np.pi + 1e-9):
        found.append(forces("hinge", {**t, "x": torch.tensor(rolled(angle))}))
    below, at, above = found
    assert np.abs(below).max() > 1.0
    np.testing.assert_allclose(above[:, 2], -below[:, 2], atol=1e-6 * np.abs(below).max())
    assert min(np.abs(at - below).max(), np.abs(at - above).max()) <= 1e-6 * np.abs(below).max()


def test_a_spring_without_length_is_smooth_if_that_is_its_rest():
    t = inputs("spring")
    i, j = ENDS[0]
    t["x"][j] = t["x"][i]
    t["rest"][0] = 0.0
    t["spring_damping"][0] = 0.0
    leaf = t["x"].clone().requires_grad_()
    moved = simulate("spring", {**t, "x": leaf}, 1).final["v"][i]
    expected = DT * t["inv_mass"][i] * t["stiffness"][0]
    for axis in range(3):
        slope_at_j = torch.autograd.grad(moved[axis], leaf, retain_graph=True)[0][j]
        np.testing.assert_allclose(slope_at_j, expected * torch.eye(3, dtype=torch.float64)[axis], rtol=1e-12)


def test_still_air_has_no_force_and_no_derivative():
    t = inputs("air", "flat")
    t |= {k: 0.0 * t[k] for k in ("v", "wind")}
    f, gradients = force_and_slope("air", t)
    assert np.abs(f).max() == 0.0
    for name in ("x", "wind", "drag", "lift"):  # c A u / m is 50 / s at 1 m/s, and 5e-5 / s at TINY_SPEED
        assert float(gradients[name].abs().max()) <= 1e-3 * DT


def test_air_is_smooth_where_it_is_edge_on(gradient_errors):
    """Central differences agree, and the derivative of drag is continuous; with |n.u| it would jump."""
    t = inputs("air", "flat")
    t |= {"v": 0.0 * t["v"], "wind": torch.tensor([3.0, 1.0, 0.0], dtype=torch.float64)}
    weight = torch.tensor(np.random.default_rng(1).normal(size=(VERTICES, 3)))
    errors = gradient_errors(lambda t: (simulate("air", t, 1).final["v"] / DT * weight).sum(), t, h=1e-6)
    assert max(errors.values()) <= 1e-6, errors
    turns = []
    for rise in (-1e-5, 1e-5, 1.0):
        wind = (t["wind"] + torch.tensor([0.0, 0.0, rise], dtype=torch.float64)).requires_grad_()
        pushed = simulate("air", {**t, "wind": wind, "lift": 0.0 * t["lift"]}, 1).final["v"][:, 0].sum()
        turns.append(float(torch.autograd.grad(pushed, wind)[0][2]))
    assert abs(turns[1] - turns[0]) <= 1e-3 * abs(turns[2])  # 2e-5 / (s |u|) = 6e-4


# -- single precision ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS)
def test_lanes_of_float32_agree_with_plain_python_in_float64(law: str):
    t = inputs(law)
    g = {k: a.numpy() for k, a in t.items()}
    expected = np.zeros((VERTICES, 3))
    if law in ("membrane", "viscous"):
        mesh = TriMesh(vertices=MESH.triangles, rest_inverse=g["rest_inverse"], area=g["area"])
        stiffness = (g["mu"], g["lam"], g["activation"])
        if law == "membrane":
            ELASTIC.python(mesh, g["x"], *stiffness, expected)
        else:
            VISCOUS.python(mesh, g["x"], g["v"], *stiffness, g["viscosity"], expected)
    elif law in ("hinge", "damped"):
        hinges = Hinges(
            vertices=MESH.hinges,
            rest_angle=g["rest_angle"],
            weight=g["weight"],
            inverse_areas=g["inverse_areas"],
        )
        if law == "hinge":
            hinge_forces.python(hinges, g["x"], g["bending"], g["fold"], expected)
        else:
            damped_hinge_forces.python(hinges, g["x"], g["v"], g["bending"], g["fold"], g["damping"], expected)
    elif law == "air":
        air_forces.python(MESH.triangles, g["x"], g["v"], g["wind"], g["drag"], g["lift"], expected)
    else:
        spring_forces.python(ENDS, g["x"], g["v"], g["stiffness"], g["rest"], g["spring_damping"], expected)
    np.testing.assert_allclose(forces(law, t), expected, atol=1e-13 * np.abs(expected).max())
    single = forces(law, {k: a.float() for k, a in t.items()})
    # Positions of 0.5 m are rounded by 3e-8 m: edges of 0.1 m by 3e-7; forces of neighbours partly cancel.
    np.testing.assert_allclose(single, expected, atol=5e-6 * np.abs(expected).max())


@pytest.mark.parametrize("law", LAWS)
def test_meshes_of_millimetres_do_not_underflow_in_float32(law: str):
    """Forces and gradients in float32 against float64, with edges of 1 mm (areas of 1e-6 m^2, to the fourth 1e-24)."""
    small = 0.01
    t = inputs(law)
    power = {"x": 1, "v": 1, "wind": 1, "rest_inverse": -1, "area": 2, "inverse_areas": -2, "inv_mass": -2, "rest": 1}
    t |= {k: t[k] * small**n for k, n in power.items() if k in t}
    f, gradients = force_and_slope(law, t)
    single, found = force_and_slope(law, {k: a.float() for k, a in t.items()})
    # As for large meshes, but for gradients, which are differences of larger numbers.
    np.testing.assert_allclose(single, f, atol=5e-6 * np.abs(f).max())
    for name in sorted(set(t) - {"inverse_areas"}):
        error = (found[name].double() - gradients[name]).abs().max() / gradients[name].abs().max()
        assert float(error) <= 1e-3, (name, float(error))
