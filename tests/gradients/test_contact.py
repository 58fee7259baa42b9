"""Compliant contact with a plane, a sphere and a box: forces against plain numpy, gradients against differences.

On every branch, and where contact begins and ends.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.compliant_law import normal_force
from torch import Tensor

import kinema as kn

pytestmark = pytest.mark.filterwarnings("ignore::kinema.StabilityWarning")  # of particles of a gram, for one step

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


OF_SHAPES = ("plane/centre", "sphere/centre", "sphere/size", "box/centre", "box/size")
OF_SKINS = tuple(f"beads/skin_{name}" for name in ("radius", "k_e", "k_d", "k_f", "friction"))
DT = 1e-3


def turn(rotation: np.ndarray) -> tuple[float, ...]:
    """The unit quaternion (w, x, y, z) of a rotation by less than half a turn."""
    w = 0.5 * math.sqrt(1.0 + np.trace(rotation))
    m = (rotation - rotation.T) / (4.0 * w)
    return w, m[2, 1], m[0, 2], m[1, 0]


def upright(normal: np.ndarray) -> np.ndarray:
    """A rotation that brings z to a normal."""
    axis = np.cross((0.0, 0.0, 1.0), normal)
    return rotation(tuple(axis), math.asin(np.linalg.norm(axis)))


def scene_of(count: int, dtype: torch.dtype = torch.float64, **changed: object) -> kn.Model:
    """Particles among a plane, a sphere and a box that stand still."""
    n = {**NUMBERS, **changed}
    scene = kn.Scene(gravity=(0.1, 0.2, -9.81))
    scene.add_body(kn.Plane(), "plane", fixed=True, pos=n["plane_offset"] * TILT, rot=turn(upright(TILT)))
    scene.add_body(kn.Sphere(n["sphere_radius"]), "sphere", fixed=True, pos=n["sphere_centre"])
    scene.add_body(kn.Box(n["box_half"]), "box", fixed=True, pos=n["box_centre"], rot=turn(n["box_rotation"]))
    skin = kn.Skin(**{name: n[name] for name in ("radius", "k_e", "k_d", "k_f", "friction")})
    scene.add_particles(np.zeros((count, 3)), "beads", mass=1.0 / np.linspace(1.0, 2.0, count), skin=skin)
    return kn.compile(scene, dtype)


MODEL = scene_of(len(POINTS))


def tensors(model: kn.Model = MODEL, **changed: object) -> dict[str, Tensor]:
    """Positions, velocities, and all numbers of the model that forces and motion depend on."""
    x, v = (np.stack([p[k] for p in POINTS.values()]) for k in (0, 1))
    state = {name: torch.tensor(np.asarray(a), dtype=model.dtype) for name, a in {"x": x, "v": v, **changed}.items()}
    numbers = model.parameters(*OF_SHAPES, *OF_SKINS, "beads/point_mass", "gravity")
    numbers["sphere/size"] = numbers["sphere/size"][:1]  # its radius; the others mean nothing
    return state | numbers


def simulate(inputs: dict[str, Tensor], steps: int, model: kn.Model = MODEL) -> kn.State:
    params = {name: t for name, t in inputs.items() if name not in ("x", "v")}
    params["sphere/size"] = torch.nn.functional.pad(params["sphere/size"], (0, 2))
    state, options = kn.State(x=inputs["x"], xd=inputs["v"]), kn.RunOptions(progress=False)
    return kn.simulate(model, state, steps=steps, dt=DT, params=params, options=options).end


def forces(inputs: dict[str, Tensor], model: kn.Model = MODEL) -> Tensor:
    """Contact forces of a step, of particles that weigh 1/1000 kg, without gravity."""
    light = {
        "beads/point_mass": 1e-3 * torch.ones_like(inputs["beads/point_mass"]),
        "gravity": torch.zeros_like(inputs["gravity"]),
    }
    return (simulate({**inputs, **light}, 1, model).xd - inputs["v"]) / (1e3 * DT)


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
    model = scene_of(len(POINTS), **moved)
    inputs = tensors(model)
    inputs["x"][0] = torch.tensor([0.1, 0.0, 0.1])
    f, names = reference_force(inputs["x"][0].numpy(), inputs["v"][0].numpy(), {**NUMBERS, **moved})
    assert names == ["plane", "sphere", "box inside"]
    np.testing.assert_allclose(forces(inputs, model)[0].numpy(), f, rtol=1e-12)


def touching_plane(count: int, seed: int = 0) -> tuple[kn.Model, dict[str, Tensor], Tensor]:
    """Particles between a step's way above the plane and two below it, and their depths in ways."""
    generator = torch.Generator().manual_seed(seed)
    v = torch.randn(count, 3, dtype=torch.float64, generator=generator)
    ways = 3.0 * torch.rand(count, dtype=torch.float64, generator=generator) - 1.0
    normal = torch.tensor(TILT)
    depth = ways * DT * (v @ normal).abs()
    x = torch.tensor(on_plane(RADIUS)) - depth[:, None] * normal
    model = scene_of(count, k_d=60.0)
    return model, tensors(model, x=x.numpy(), v=v.numpy()), ways


def test_where_contact_begins_and_ends_forces_are_means_over_a_step():
    """Pressing over the step around now, damping and friction over the way that led here, from their definition."""
    model, inputs, ways = touching_plane(400)
    v, normal, numbers = inputs["v"].numpy(), TILT, {**NUMBERS, "k_d": 60.0}
    v_n = v @ normal
    depth = ways.numpy() * DT * np.abs(v_n)
    f_n, rubs, share = normal_force(depth, v_n, DT, numbers["k_e"], numbers["k_d"])
    slip = numbers["k_f"] * share[:, None] * (v - v_n[:, None] * normal)
    b = numbers["friction"] * rubs
    expected = f_n[:, None] * normal - slip * (b / np.sqrt(b**2 + (slip**2).sum(1) + 1e-24))[:, None]
    # The way down to a plane 1 m away rounds by 1e-16 m, of ways of 1e-4 m: 1e-12 of forces of 100 N.
    np.testing.assert_allclose(forces(inputs, model).numpy(), expected, atol=1e-9)
    assert ((ways < -0.5) == (np.abs(expected).max(1) == 0)).all()
    assert (rubs <= f_n * (1 + 1e-12)).all()  # friction stays in its cone


def test_where_contact_begins_gradients_are_those_of_differences(gradient_errors):
    model, inputs, ways = touching_plane(40, seed=1)
    kinks = torch.stack([(ways - kink).abs() for kink in (-0.5, 0.0, 0.5, 1.0)]).amin()
    assert float(kinks) > 1e-3  # in ways of 0.1 mm and more: differences of 1e-8 m do not cross one
    weight = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    def loss(t):
        return (simulate({**inputs, **t}, 1, model).xd * weight).sum()

    near = gradient_errors(loss, {n: inputs[n] for n in "xv"}, h=1e-9)
    near |= gradient_errors(loss, {n: inputs[n] for n in ("beads/skin_radius", "plane/centre")}, h=1e-8)  # of 0.1 m
    far = gradient_errors(loss, {n: inputs[n] for n in (*OF_SKINS[1:], "beads/point_mass")}, h=1e-5)
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
        return 100 * (after.x * weight["x"]).sum() + (after.xd * weight["v"]).sum()

    errors = gradient_errors(loss, inputs, h=1e-6)
    assert max(errors.values()) <= 1e-7, str(errors)


@pytest.mark.parametrize("name", TOUCHING)
def test_each_branch_by_itself(name: str, gradient_errors):
    """Every component of x, v and of all numbers, for the one particle that touches as its name says."""
    at = list(POINTS).index(name)
    weight = torch.tensor([0.7, -1.1, 0.4], dtype=torch.float64)
    inputs = tensors()
    few = {k: inputs[k][at] for k in "xv"} | {k: inputs[k] for k in (*OF_SHAPES, *OF_SKINS)}

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
    model = scene_of(count, k_d=0.0)
    inputs = tensors(model, x=x, v=rng.normal(size=(count, 3)) * 0.5)
    weight = torch.tensor(rng.normal(size=(count, 3)))
    touched: set[str] = set()
    for steps, tolerance in ((1, 1e-6), (32, 1e-5), (256, 1e-4)):

        def loss(t, steps=steps):
            after = simulate(t, steps, model)
            return (after.x * weight).sum() + 0.1 * (after.xd * weight).sum()

        errors = gradient_errors(loss, inputs, h=1e-7)
        end = simulate(inputs, steps, model)
        for at, v in zip(end.x.numpy(), end.xd.numpy(), strict=True):
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
        model = scene_of(len(x), dtype, friction=friction)
        leaves = {k: t.requires_grad_() for k, t in tensors(model, x=x, v=np.zeros_like(x)).items()}
        f = forces(leaves, model)
        gradients = torch.autograd.grad(f.sum(), list(leaves.values()), allow_unused=True)
        assert f.isfinite().all()
        assert all(g is None or g.isfinite().all() for g in gradients)


def test_stated_values_at_singular_points():
    x = np.tile(on_plane(1.0), (len(POINTS), 1))
    x[0], x[1] = NUMBERS["sphere_centre"], NUMBERS["box_centre"]
    model = scene_of(len(x), box_half=[0.2, 0.2, 0.2])
    inputs = {k: t.requires_grad_() for k, t in tensors(model, x=x, v=np.zeros_like(x)).items()}
    f = forces(inputs, model)
    np.testing.assert_allclose(f[0].detach(), [0, 0, 800 * 0.35], rtol=1e-12)  # centre of the sphere: +z
    np.testing.assert_allclose(f[1].detach(), R @ [800 * 0.25, 0, 0], rtol=1e-9)  # middle of a cube: its +x
    (to_x,) = torch.autograd.grad(f[0].sum(), inputs["x"], retain_graph=True)
    assert (to_x[0] == 0).all()
    (to_v,) = torch.autograd.grad(f[0, 0], inputs["v"])
    np.testing.assert_allclose(to_v[0, 0], -NUMBERS["k_f"], rtol=1e-12)  # friction at v_t = 0
