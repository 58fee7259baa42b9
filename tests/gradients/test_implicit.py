"""Gradients of implicit steps: solids, cloth, springs, pins and contact with friction, against central differences.

A step is found to 1e-10 of its displacement at least, and mostly to rounding, as Newton's method doubles the digits.
So differences over a change h of an input have an error of up to 1e-10 / h of the derivative, beside the truncation of
order h^2: of 1e-5 / 3 and 1e-9 with h = 3e-5 of the input's size. The system of the adjoint is solved to 1e-12.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.lang import Array, Float, Index, kernel, vec3
from kinema.scene.description import FREE, SPHERE, Body, Joint, MassProperties, Robot, Shape
from kinema.scene.shapes.block import block
from kinema.scene.shapes.pendulum import pendulum
from kinema.scene.shapes.sheet import sheet

DT = 1 / 120
H = 3e-5
LIMITS = {1: 1e-6, 32: 1e-5, 256: 1e-4}  # what is asked for; the differences of many steps add up their errors
SMALLEST = 1e-3  # derivatives are compared relative to their size, or to this


def solid() -> kn.Model:
    """A clamped block that hangs, and a heavy one in contact with the ground, sliding."""
    scene = kn.Scene()
    scene.add_ground()
    cube = block((2, 1, 1), 0.1)
    stiff = kn.Solid(mu=4e5, lam=8e5, density=800.0, viscosity=50.0)
    scene.add_solid(cube, "hanging", material=stiff, skin=None, pos=(0.0, 0.0, 1.0))
    scene.attach("hanging", np.flatnonzero(cube.vertices[:, 0] < -0.09))
    skin = kn.Skin(radius=0.01, k_e=2e3, k_f=20.0, friction=0.4)
    scene.add_solid(cube, "sliding", material=stiff, skin=skin, pos=(0.0, 0.5, 0.055), velocity=(0.6, 0.2, 0.0))
    return kn.compile(scene, dtype=torch.float64)


def cloth() -> kn.Model:
    """Cloth over a free ball, springs, and a corner of the cloth pinned to a pendulum."""
    scene = kn.Scene(wind=(0.5, 0.2, 0.1))
    mass = MassProperties(2.0, (0.0, 0.0, 0.0), (0.01, 0.0, 0.0, 0.01, 0.0, 0.01))
    ball = Body("ball", joints=(Joint("free", FREE),), mass=mass, shapes=(Shape(SPHERE, (0.15,)),))
    scene.add_robot(Robot("ball", (ball,)), pos=(0.02, 0.03, -0.13))
    scene.add_robot(pendulum(1), "pole", pos=(-0.2, -0.2, 1.0))
    material = kn.Cloth(2.0, 800.0, 600.0, viscosity=0.2, bending=0.05, bending_damping=1e-3, drag=0.5, lift=0.2)
    skin = kn.Skin(radius=0.02, k_e=500.0, k_f=5.0)
    scene.add_cloth(sheet(0.4, 0.4, (4, 4)), "cloth", material=material, skin=skin, pos=(0.0, 0.0, 0.035))
    scene.attach("cloth", [0], to="pole/link0")
    ends = kn.Springs([[0, 1], [1, 2], [0, 2]], stiffness=500.0, damping=0.3)
    beads = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.1, 0.1, 0.02]])
    scene.add_particles(beads, "beads", mass=0.05, springs=ends, pos=(0.3, 0.3, 0.5))
    return kn.compile(scene, dtype=torch.float64)


def inputs(model: kn.Model, steps: int) -> dict[str, Tensor]:
    """States, moved a little at random, forces, every number of what is soft, and gravity."""
    torch.manual_seed(3)
    x, xd = model.initial_particles()
    found = {"x": x + 2e-3 * torch.randn_like(x), "xd": xd + 0.1 * torch.randn_like(xd)}
    if model.nv:
        found |= {"q": model.initial_coordinates(), "v": 0.1 * torch.randn(model.nv, dtype=torch.float64)}
    found["forces"] = 0.1 * torch.randn(steps, *x.shape, dtype=torch.float64)
    return found | model.parameters(*model.matter.numbers, "gravity")


def final(model: kn.Model, given: dict[str, Tensor], steps: int) -> Tensor:
    """A random sum of all that a rollout ends with."""
    states = {n: given[n] for n in ("x", "xd", "q", "v", "forces") if n in given}
    params = {n: t for n, t in given.items() if n not in states}
    path = kn.simulate(model, **states, steps=steps, dt=DT, params=params, integrator="implicit", progress=False)
    torch.manual_seed(4)
    ends = (path.x_end, 0.05 * path.xd_end, path.q_end, 0.05 * path.v_end)
    return sum((torch.randn_like(end) * end).sum() for end in ends)


@pytest.mark.parametrize("steps", LIMITS)
@pytest.mark.parametrize("make", [solid, cloth])
def test_gradients_against_differences(make, steps):
    model = make()
    given = inputs(model, steps)
    leaves = {n: t.clone().requires_grad_() for n, t in given.items()}
    end = final(model, leaves, steps)
    found = torch.autograd.grad(end, list(leaves.values()), allow_unused=True, materialize_grads=True)
    errors = {}
    for (name, tensor), gradient in zip(given.items(), found, strict=True):
        torch.manual_seed(5)
        size = float(tensor.abs().mean()) or 1.0
        way = torch.randn_like(tensor) * size * (0.01 if name == "x" else 1.0)
        ahead, behind = (final(model, {**given, name: tensor + s * H * way}, steps) for s in (1, -1))
        difference = float((ahead - behind) / (2 * H))
        errors[name] = abs(float((gradient * way).sum()) - difference) / max(abs(difference), SMALLEST)
    assert max(errors.values()) < LIMITS[steps], errors


def test_contact_is_active():
    """Vertices touch the ground, and the ball, in the scenes of the gradients."""
    for make in (solid, cloth):
        model = make()
        for steps in LIMITS:
            given = inputs(model, steps)
            still = {**given, "skin_k_e": 0.0 * given["skin_k_e"]}
            assert abs(float(final(model, given, steps) - final(model, still, steps))) > 1e-5


def test_worlds_have_the_bits_of_single_runs_whatever_the_threads():
    model = solid()
    x, xd = model.initial_particles()
    start = torch.stack([x, x + 1e-3, x - 2e-3]).requires_grad_()

    def run(x: Tensor, threads: int) -> tuple[Tensor, Tensor]:
        options = {"steps": 4, "dt": DT, "integrator": "implicit", "threads": threads, "progress": False}
        path = kn.simulate(model, x=x, xd=xd.expand(x.shape), **options)
        assert path.x_end is not None
        return path.x_end.detach(), torch.autograd.grad(path.x_end.square().sum(), x)[0]

    together = [run(start, threads) for threads in (1, 2, 4)]
    for other in together[1:]:
        assert all(torch.equal(a, b) for a, b in zip(together[0], other, strict=True))
    for k in range(3):
        alone = run(start[k].detach().requires_grad_(), 1)
        assert all(torch.equal(a, b[k]) for a, b in zip(alone, together[0], strict=True))


@kernel
def pulls(e: Index, x: Array[vec3], k: Array[Float], f: Array[vec3], total: Array[Float]):
    """A force on two of the particles, and a sum."""
    d = x[e + 1] - x[e]
    f[e] += d * (k[e] * k[e])
    f[e + 1] -= d * (k[e] * k[e])
    total[0] += k[e] * d.x


def test_pullbacks_are_kernels():
    """The cotangents of a pullback in a program are those of torch."""
    n = 6
    torch.manual_seed(0)
    given = {"x": torch.randn(n + 1, 3), "k": torch.rand(n), "f": torch.randn(n + 1, 3), "total": torch.randn(1)}
    given = {name: tensor.double().requires_grad_() for name, tensor in given.items()}
    p = kn.Program("pullback")
    state = p.state("count", Float, 1)
    x, f = (p.parameter(name, vec3, n + 1) for name in ("x", "f"))
    k, total = p.parameter("k", Float, n), p.parameter("total", Float, 1)
    to_x, to_k = p.scratch("to_x", vec3, n + 1), p.scratch("to_k", Float, n)
    out_x, out_k = p.output("out_x", vec3, n + 1), p.output("out_k", Float, n)
    p.call(pulls.pullback("x", "k"), x, k, f, total, to_x, to_k, f, total, count=n)
    p.call(report, to_x, to_k, out_x, out_k)
    p.call(keep, state, state.next)
    start = {"count": torch.zeros(1, dtype=torch.float64)}
    ours = kn.rollout(p, 1, start, given, record=("out_x", "out_k")).outputs
    d = given["x"][1:] - given["x"][:-1]
    force = d * given["k"].square()[:, None]
    value = (force * (given["f"][:-1] - given["f"][1:])).sum() + (given["k"] * d[:, 0]).sum() * given["total"].sum()
    for name, theirs in zip(("out_x", "out_k"), torch.autograd.grad(value, (given["x"], given["k"])), strict=True):
        torch.testing.assert_close(ours[name].squeeze(0), theirs, rtol=1e-13, atol=1e-13)


@kernel
def report(x: Array[vec3], k: Array[Float], x_out: Array[vec3], k_out: Array[Float]):
    """Both as outputs."""
    for i in range(len(x)):
        x_out[i] = x[i]
    for i in range(len(k)):
        k_out[i] = k[i]


@kernel
def keep(a: Array[Float], b: Array[Float]):
    """b = a."""
    b[0] = a[0]
