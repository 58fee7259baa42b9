"""Compliant contact: forces against a plain numpy version, gradients against central differences, on every branch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.compliant_law import normal_force

from kinema.contact.compliant import Box, Penalty, Plane, Sphere, particle_contact
from kinema.integrate.semi_implicit import advance_particles
from kinema.lang import Float, mat33, vec3
from kinema.lang.autograd.rollout import rollout
from kinema.lang.programs.program import Program

RADIUS = 0.05
TILT = np.array([0.1, -0.2, 1.0]) / math.sqrt(1.05)


def rotation(axis: tuple[float, float, float], angle: float) -> np.ndarray:
    """Rotation matrix [Rodrigues]."""
    n = np.array(axis) / np.linalg.norm(axis)
    K = np.array([[0, -n[2], n[1]], [n[2], 0, -n[0]], [-n[1], n[0], 0]])
    return np.eye(3) + math.sin(angle) * K + (1 - math.cos(angle)) * K @ K


R = rotation((1.0, 2.0, 0.5), 0.7)
NUMBERS = {
    "radius": RADIUS,
    "plane_normal": TILT,
    "plane_offset": 0.1,
    "sphere_centre": np.array([0.0, 0.0, 2.0]),
    "sphere_radius": 0.3,
    "box_centre": np.array([3.0, 0.0, 3.0]),
    "box_half": np.array([0.3, 0.2, 0.15]),
    "box_rotation": R,
    "k_e": 800.0,
    "k_d": 6.0,
    "k_f": 40.0,
    "friction": 0.6,
}


def on_plane(height: float, x: float = 1.0, y: float = -1.0) -> np.ndarray:
    """A point at a signed distance from the plane."""
    p = np.array([x, y, 0.0])
    return p + TILT * (height + NUMBERS["plane_offset"] - TILT @ p)


def at_box(q: tuple[float, float, float]) -> np.ndarray:
    """A point given in the axes of the box."""
    return NUMBERS["box_centre"] + R @ np.array(q)


# What is touched -> position, velocity. Velocities are oblique unless the case says otherwise.
V = np.array([0.4, -0.3, -0.5])
TOUCHING = {
    "plane": (on_plane(-0.02), V),
    "plane, only by the radius": (on_plane(0.03), V),
    "plane, leaving": (on_plane(-0.01), 0.7 * TILT + 0.1 * V),
    "plane, sticking": (on_plane(-0.02), 1e-3 * V),
    "plane, sliding": (on_plane(-0.01), 20.0 * (V - TILT * (TILT @ V)) - 0.5 * TILT),
    "sphere": (NUMBERS["sphere_centre"] + 0.28 * np.array([0.6, 0.0, 0.8]), V),
    "sphere, only by the radius": (NUMBERS["sphere_centre"] + 0.33 * np.array([0.0, -0.8, 0.6]), V),
    "sphere, deep inside": (NUMBERS["sphere_centre"] + np.array([0.01, 0.02, -0.015]), V),
    "box, face from outside": (at_box((0.1, -0.05, 0.17)), V),
    "box, other face from outside": (at_box((-0.33, 0.1, 0.02)), V),
    "box, edge": (at_box((0.32, -0.22, 0.03)), V),
    "box, corner": (at_box((0.315, 0.22, -0.175)), V),
    "box, inside near x": (at_box((-0.27, 0.05, 0.04)), V),
    "box, inside near y": (at_box((0.05, 0.18, -0.04)), V),
    "box, inside near z": (at_box((0.05, 0.03, -0.12)), V),
}
FREE = {
    "above the plane": (on_plane(0.06), V),
    "beside the sphere": (NUMBERS["sphere_centre"] + np.array([0.0, 0.36, 0.0]), V),
    "beyond a corner, within its box": (at_box((0.34, 0.24, 0.19)), V),
}
POINTS = TOUCHING | FREE


def reference_force(x: np.ndarray, v: np.ndarray, n: dict) -> tuple[np.ndarray, list[str]]:
    """Contact force and the names of what is touched, in plain numpy."""
    found, names = np.zeros(3), []

    def push(depth: float, normal: np.ndarray) -> None:
        nonlocal found
        v_n = normal @ v
        v_t = v - normal * v_n
        f_n = n["k_e"] * depth - n["k_d"] * min(v_n, 0.0)
        b = n["friction"] * f_n
        slip = n["k_f"] * v_t
        found = found + normal * f_n - slip * b / math.sqrt(b**2 + slip @ slip + 1e-24)

    height = n["plane_normal"] @ x - n["plane_offset"] - n["radius"]
    if height < 0:
        names.append("plane")
        push(-height, n["plane_normal"])
    r = x - n["sphere_centre"]
    reach = n["sphere_radius"] + n["radius"]
    if np.linalg.norm(r) < reach:
        names.append("sphere")
        push(reach - np.linalg.norm(r), r / np.linalg.norm(r))
    q = n["box_rotation"].T @ (x - n["box_centre"])
    e = np.abs(q) - n["box_half"]
    outside = np.maximum(e, 0.0)
    if (e > 0).any():
        distance, normal = np.linalg.norm(outside), np.sign(q) * outside / np.linalg.norm(outside)
        part = ("", "face", "edge", "corner")[int((e > 0).sum())]
    else:
        k = int(np.argmax(e))
        distance, normal, part = e[k], np.sign(q) * (np.arange(3) == k), "inside"
    if distance < n["radius"]:
        names.append(f"box {part}")
        push(n["radius"] - distance, n["box_rotation"] @ normal)
    return found, names


def contact_program(count: int) -> Program:
    p = Program("contact")
    x, v, f = p.state("x", vec3, count), p.state("v", vec3, count), p.scratch("f", vec3, count)
    n = {k: p.parameter(k, {3: vec3, 9: mat33}.get(np.size(a), Float)) for k, a in NUMBERS.items()}
    plane = Plane(normal=n["plane_normal"], offset=n["plane_offset"])
    sphere = Sphere(centre=n["sphere_centre"], radius=n["sphere_radius"])
    box = Box(centre=n["box_centre"], half=n["box_half"], rotation=n["box_rotation"])
    law = Penalty(k_e=n["k_e"], k_d=n["k_d"], k_f=n["k_f"], mu=n["friction"])
    inv_mass, gravity, dt = (
        p.parameter("inv_mass", Float, count),
        p.parameter("gravity", vec3),
        p.parameter("dt", Float),
    )
    p.call(particle_contact, x, v, n["radius"], plane, sphere, box, law, dt, f, count=count)
    p.call(advance_particles, x, v, f, inv_mass, gravity, dt, x.next, v.next, count=count)
    return p


PROGRAM = contact_program(len(POINTS))


def tensors(dtype: torch.dtype = torch.float64, **changed: object) -> dict[str, torch.Tensor]:
    x, v = (np.stack([p[k] for p in POINTS.values()]) for k in (0, 1))
    every = {
        "x": x,
        "v": v,
        **NUMBERS,
        "inv_mass": np.linspace(1.0, 2.0, len(x)),
        "gravity": [0.1, 0.2, -9.81],
        "dt": 1e-3,
    }
    return {k: torch.tensor(np.asarray(a), dtype=dtype) for k, a in {**every, **changed}.items()}


def simulate(inputs: dict[str, torch.Tensor], steps: int, program: Program = PROGRAM) -> dict[str, torch.Tensor]:
    state = {k: inputs[k] for k in ("x", "v")}
    return rollout(program, steps, state, {k: t for k, t in inputs.items() if k not in state}, progress=False).final


def forces(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Contact forces of a step, of particles that weigh 1/1000 kg, without gravity."""
    light = {"inv_mass": 1e3 * torch.ones_like(inputs["inv_mass"]), "gravity": torch.zeros_like(inputs["gravity"])}
    after = simulate({**inputs, **light}, 1)
    return (after["v"] - inputs["v"]) / (1e3 * inputs["dt"])


def test_the_points_touch_what_they_say():
    touched = {name: reference_force(*at, NUMBERS)[1] for name, at in POINTS.items()}
    for name in FREE:
        assert touched[name] == []
    for name in TOUCHING:
        assert touched[name] and touched[name][0].split()[0] in name
    parts = {t for names in touched.values() for t in names}
    assert parts == {"plane", "sphere", "box face", "box edge", "box corner", "box inside"}


def test_forces_agree_with_plain_numpy():
    expected = np.stack([reference_force(*at, NUMBERS)[0] for at in POINTS.values()])
    # Forces reach some hundred newtons; rounding of a few operations on them.
    np.testing.assert_allclose(forces(tensors()).numpy(), expected, atol=1e-12 * np.abs(expected).max())


def test_forces_of_several_shapes_add_up():
    moved = {"sphere_centre": np.array([0.0, 0.0, 0.2]), "box_centre": np.array([0.15, 0.0, 0.15])}
    inputs = tensors(**moved)
    inputs["x"][0] = torch.tensor([0.1, 0.0, 0.1])
    f, names = reference_force(inputs["x"][0].numpy(), inputs["v"][0].numpy(), {**NUMBERS, **moved})
    assert names == ["plane", "sphere", "box inside"]
    np.testing.assert_allclose(forces(inputs)[0].numpy(), f, rtol=1e-12)


def test_python_runs_the_same_source():
    t = {k: a.numpy().copy() for k, a in tensors().items()}
    f = np.zeros_like(t["x"])
    plane = Plane(normal=t["plane_normal"], offset=float(t["plane_offset"]))
    sphere = Sphere(centre=t["sphere_centre"], radius=float(t["sphere_radius"]))
    box = Box(centre=t["box_centre"], half=t["box_half"], rotation=t["box_rotation"])
    law = Penalty(k_e=800.0, k_d=6.0, k_f=40.0, mu=0.6)
    particle_contact.python(t["x"], t["v"], RADIUS, plane, sphere, box, law, float(t["dt"]), f)
    np.testing.assert_allclose(f, forces(tensors()).numpy(), atol=1e-11)


def touching_plane(count: int, seed: int = 0) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Particles between a step's way above the plane and two below it, and their depths in ways."""
    generator = torch.Generator().manual_seed(seed)
    v = torch.randn(count, 3, dtype=torch.float64, generator=generator)
    ways = 3.0 * torch.rand(count, dtype=torch.float64, generator=generator) - 1.0
    normal = torch.tensor(TILT)
    depth = ways * 1e-3 * (v @ normal).abs()
    x = torch.tensor(on_plane(RADIUS)) - depth[:, None] * normal
    inputs = tensors(x=x.numpy(), v=v.numpy(), k_d=60.0)
    return {**inputs, "inv_mass": torch.ones(count, dtype=torch.float64)}, ways


def test_where_contact_begins_and_ends_forces_are_means_over_a_step():
    """Pressing over the step around now, damping and friction over the way that led here, from their definition."""
    inputs, ways = touching_plane(400)
    v, normal, program = inputs["v"].numpy(), TILT, contact_program(400)
    numbers = {n: float(inputs[n]) for n in ("k_e", "k_d", "k_f", "friction", "dt")}
    v_n = v @ normal
    depth = ways.numpy() * numbers["dt"] * np.abs(v_n)
    f_n, rubs, share = normal_force(depth, v_n, numbers["dt"], numbers["k_e"], numbers["k_d"])
    slip = numbers["k_f"] * share[:, None] * (v - v_n[:, None] * normal)
    b = numbers["friction"] * rubs
    expected = f_n[:, None] * normal - slip * (b / np.sqrt(b**2 + (slip**2).sum(1) + 1e-24))[:, None]
    still = {"gravity": torch.zeros(3, dtype=torch.float64), "inv_mass": 1e3 * inputs["inv_mass"]}
    found = simulate({**inputs, **still}, 1, program)["v"] - inputs["v"]
    # The way down to a plane 1 m away rounds by 1e-16 m, of ways of 1e-4 m: 1e-12 of forces of 100 N.
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)
    assert ((ways < -0.5) == (np.abs(expected).max(1) == 0)).all()
    assert (rubs <= f_n * (1 + 1e-12)).all()  # friction stays in its cone


def test_where_contact_begins_gradients_are_those_of_differences(gradient_errors):
    inputs, ways = touching_plane(40, seed=1)
    kinks = torch.stack([(ways - kink).abs() for kink in (-0.5, 0.0, 0.5, 1.0)]).amin()
    assert float(kinks) > 1e-3  # in ways of 0.1 mm and more: differences of 1e-8 m do not cross one
    program = contact_program(40)
    weight = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    def loss(t):
        return (simulate({**inputs, **t}, 1, program)["v"] * weight).sum()

    lengths = ("x", "v", "radius", "plane_normal", "plane_offset")
    near = gradient_errors(loss, {n: inputs[n] for n in lengths}, h=1e-9)
    far = gradient_errors(loss, {n: inputs[n] for n in ("k_e", "k_d", "k_f", "friction", "inv_mass", "dt")}, h=1e-5)
    # Rounding: 1e-16 / h of the largest derivatives by lengths, and of 1 for the rest, whose derivatives are some 1e-3.
    assert max(near.values()) <= 2e-6 and max(far.values()) <= 1e-7, (near, far)


def test_contact_never_pulls_and_friction_stays_in_its_cone():
    generator = torch.Generator().manual_seed(1)
    normal = torch.tensor(TILT)
    for scale in (1e-6, 1e-2, 1.0, 100.0):
        random = scale * torch.randn(len(POINTS), 3, dtype=torch.float64, generator=generator)
        inputs = tensors(v=random.numpy(), x=np.tile(on_plane(-0.01), (len(POINTS), 1)))
        f = forces(inputs)
        f_n = f @ normal
        f_t = (f - f_n[:, None] * normal).norm(dim=1)
        assert (f_n > 0).all()
        assert (f_t <= NUMBERS["friction"] * f_n * (1 + 1e-12)).all()


def test_one_step_has_the_gradient_of_central_differences(gradient_errors):
    inputs = tensors()
    weight = {
        k: torch.randn(inputs["x"].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) for k in "xv"
    }

    def loss(t):
        after = simulate(t, 1)
        return 100 * (after["x"] * weight["x"]).sum() + (after["v"] * weight["v"]).sum()

    errors = gradient_errors(loss, inputs, h=1e-6)
    assert max(errors.values()) <= 1e-7, str(errors)


@pytest.mark.parametrize("name", TOUCHING)
def test_each_branch_by_itself(name: str, gradient_errors):
    """Every component of x, v and of all numbers, for the one particle that touches as its name says."""
    at = list(POINTS).index(name)
    weight = torch.tensor([0.7, -1.1, 0.4], dtype=torch.float64)
    inputs = tensors()
    few = {k: inputs[k][at] for k in "xv"} | {k: inputs[k] for k in NUMBERS}

    def loss(t):
        whole = {k: torch.cat([inputs[k][:at], t[k][None], inputs[k][at + 1 :]]) for k in "xv"}
        return forces({**inputs, **t, **whole})[at] @ weight

    errors = gradient_errors(loss, few, h=1e-6)
    assert max(errors.values()) <= 1e-7, str(errors)


def test_rollouts_with_contact(gradient_errors):
    """Particles that fall, bounce, slide and roll off: plane, sphere and box are touched during the rollout."""
    rng = np.random.default_rng(0)
    count = len(POINTS)
    spread = rng.uniform(-0.25, 0.25, (count, 3)) * [1, 1, 0.2]
    above = np.array([NUMBERS["sphere_centre"] + [0, 0, 0.33], at_box((0.1, 0.0, 0.17)), on_plane(0.1)])
    x = above[np.arange(count) % 3] + spread
    x[np.arange(count) % 3 == 2] += 0.02 * TILT
    inputs = tensors(x=x, v=rng.normal(size=(count, 3)) * 0.5, k_d=0.0)
    weight = torch.tensor(rng.normal(size=(count, 3)))
    touched: set[str] = set()
    for steps, tolerance in ((1, 1e-6), (32, 1e-5), (256, 1e-4)):

        def loss(t, steps=steps):
            after = simulate(t, steps)
            return (after["x"] * weight).sum() + 0.1 * (after["v"] * weight).sum()

        errors = gradient_errors(loss, inputs, h=1e-7)
        end = simulate(inputs, steps)
        for at, v in zip(end["x"].numpy(), end["v"].numpy(), strict=True):
            touched |= {n.split()[0] for n in reference_force(at, v, NUMBERS)[1]}
        assert max(errors.values()) <= tolerance, (steps, errors)
    assert touched == {"plane", "sphere", "box"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_everywhere(dtype: torch.dtype):
    """Centre of the sphere; centre, corner, edge and face of the box; no velocity; nothing but touch; mu = 0."""
    centre = NUMBERS["sphere_centre"]
    special = [
        centre,
        centre + [0, 0, 1e-30],
        at_box((0, 0, 0)),
        at_box((0.3, 0.2, 0.15)),
        at_box((0.3, 0.2, 0)),
        at_box((0.3, 0, 0)),
    ]
    special += [on_plane(RADIUS), on_plane(RADIUS - 1e-9), on_plane(0.0)]
    x = np.tile(on_plane(1.0), (len(POINTS), 1))
    x[: len(special)] = special
    for friction in (0.6, 0.0):
        inputs = tensors(dtype, x=x, v=np.zeros_like(x), friction=friction)
        leaves = {k: t.requires_grad_() for k, t in inputs.items()}
        f = forces(leaves)
        gradients = torch.autograd.grad(f.sum(), list(leaves.values()), allow_unused=True)
        assert f.isfinite().all()
        assert all(g is None or g.isfinite().all() for g in gradients)


def test_stated_values_at_singular_points():
    x = np.tile(on_plane(1.0), (len(POINTS), 1))
    x[0], x[1] = NUMBERS["sphere_centre"], NUMBERS["box_centre"]
    inputs = {k: t.requires_grad_() for k, t in tensors(x=x, v=np.zeros_like(x), box_half=[0.2, 0.2, 0.2]).items()}
    f = forces(inputs)
    np.testing.assert_allclose(f[0].detach(), [0, 0, 800 * 0.35], rtol=1e-12)  # centre of the sphere: +z
    np.testing.assert_allclose(f[1].detach(), R @ [800 * 0.25, 0, 0], rtol=1e-9)  # middle of a cube: its +x
    (to_x,) = torch.autograd.grad(f[0].sum(), inputs["x"], retain_graph=True)
    assert (to_x[0] == 0).all()
    (to_v,) = torch.autograd.grad(f[0, 0], inputs["v"])
    np.testing.assert_allclose(to_v[0, 0], -NUMBERS["k_f"], rtol=1e-12)  # friction at v_t = 0
