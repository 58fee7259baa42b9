"""Gradients of implicit steps: solids, cloth, springs, pins and contact with friction, against central differences.

A step is found to 1e-10 of its displacement at least, and mostly to rounding, as Newton's method doubles the digits:
of 1 mm, 1e-13 m. Differences over changes of 1e-6 of the inputs then have errors of 1e-7, a share of 1e-4 of
the smallest derivatives that are compared. The system of the adjoint is solved to 1e-12.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests import soft_scenes
from tests.soft_gradients import SoftCase, SoftCounts, check_soft_gradients
from torch import Tensor

import kinema as kn
from kinema.lang import Array, Float, Index, kernel, vec3
from kinema.scene.shapes.block import block
from kinema.scene.shapes.pendulum import pendulum
from kinema.scene.shapes.sheet import sheet

DT = 1 / 120
LIMITS = [(1, 1e-6), (32, 1e-5), (256, 1e-4)]  # steps, and what is asked for
SWITCHES = 0.05  # share of derivatives that may be too near a switch to be compared


def solid() -> kn.Model:
    """A clamped block that swings, a heavy one that slides on the ground, and large beads that sink into it slowly.

    Damped contact may have no implicit step at first touch, where its force jumps. The beads touch all the time: they
    are overdamped, so that they still approach after 256 steps.
    """
    scene = kn.Scene()
    scene.add_ground()
    cube = block((2, 1, 1), 0.1)
    stiff = kn.Solid(mu=3e4, lam=6e4, density=800.0, viscosity=200.0)
    scene.add_solid(cube, "swinging", material=stiff, skin=None, pos=(0.0, 0.0, 1.0), velocity=(0.0, 1.0, 0.5))
    scene.attach("swinging", np.flatnonzero(cube.vertices[:, 0] < -0.09))
    skin = kn.Skin(radius=0.01, k_e=2e3, k_f=20.0, friction=0.4)
    scene.add_solid(cube, "sliding", material=stiff, skin=skin, pos=(0.0, 0.5, 0.055), velocity=(0.6, 0.2, 0.0))
    ends = kn.Springs([[0, 1], [1, 2], [0, 2]], stiffness=500.0, damping=5.0, rest=0.14)
    beads = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.1, 0.1, 0.0]])
    sinking = kn.Skin(radius=0.2, k_e=50.0, k_d=100.0, k_f=10.0, friction=0.3)
    words = {"springs": ends, "skin": sinking, "pos": (0.0, -1.0, 0.19), "velocity": (1.0, 0.3, -0.05)}
    scene.add_particles(beads, "beads", mass=0.5, **words)
    return kn.compile(scene, dtype=torch.float64)


def cloth() -> kn.Model:
    """Cloth over a ball that rolls on the ground, with a corner pinned to a pendulum, in the wind."""
    scene = kn.Scene(wind=(6.0, 3.0, 2.0), contact=kn.Contact(solver="newton", friction=0.02))
    scene.add_ground(-0.28)
    scene.add_robot(soft_scenes.loose_ball(2.0, 0.15), pos=(0.02, 0.03, -0.13 - 1e-4))
    scene.add_robot(pendulum(1, damping=0.1), "pole", pos=(-0.2, -0.2, 1.0))
    material = kn.Cloth(1.0, 800.0, 600.0, viscosity=2.0, bending=0.05, bending_damping=0.01, drag=0.5, lift=0.2)
    skin = kn.Skin(radius=0.02, k_e=200.0, k_f=1.0)
    scene.add_cloth(sheet(0.4, 0.4, (4, 4)), "cloth", material=material, skin=skin, pos=(0.0, 0.0, 0.033))
    scene.attach("cloth", [0], to="pole/link0")
    return kn.compile(scene, dtype=torch.float64)


OF_BOTH = ("point_mass", "density", "mu", "lam", "viscosity", "skin_radius", "skin_k_e", "skin_k_f", "skin_friction")
OF_SPRINGS = ("spring_stiffness", "spring_damping", "spring_rest")
OF_CLOTH = ("bending", "bending_damping", "fold", "drag", "lift", "wind", "size", "centre")
OF_LINKS = ("mass", "com", "inertia", "damping", "friction")
SCENES = {
    "solid": (solid, (*OF_BOTH, *OF_SPRINGS, "activation", "beads/skin_k_d", "centre", "gravity")),
    "cloth": (cloth, (*OF_BOTH, *OF_CLOTH, *OF_LINKS, "gravity")),
}


def case(name: str, seed: int, dt: float) -> SoftCase:
    """In motion, with numbers that differ from element to element; forces on particles, and cloth contracts."""
    make, names = SCENES[name]
    model = make()
    params = soft_scenes.varied(model, OF_BOTH, seed)
    params["point_mass"] = params["point_mass"] + 0.01
    x, xd = soft_scenes.moved(model, seed, speed=0.02)
    q, v = soft_scenes.set_in_motion(model, seed)
    if v is not None:
        v[3:6] = torch.tensor([0.3, 0.1, 0.0])  # the ball slides before it rolls
    return SoftCase(model, x, xd, names, params, q, v, name == "cloth", True, "implicit", dt, 1e-3)


@pytest.mark.parametrize(("steps", "tolerance"), LIMITS)
@pytest.mark.parametrize("name", SCENES)
def test_every_parameter(name: str, steps: int, tolerance: float):
    """In contact; each parameter has a derivative above the floor for one seed at least, so that it is tested.

    Long runs have steps of a half: after two seconds everything would be at rest, and viscosity forgotten.
    """
    counts, seeds = SoftCounts(), 1 if name == "cloth" and steps == 256 else 2
    for seed in range(seeds):
        check_soft_gradients(case(name, seed, DT if steps < 256 else DT / 2), steps, tolerance, seed, counts)
    assert counts.touching >= steps * seeds
    assert counts.switches <= SWITCHES * counts.cases
    assert all(counts.seen.values()), counts.seen
    if name == "cloth":
        assert counts.pressing >= steps * seeds  # the ball on the ground


def test_worlds_have_the_bits_of_single_runs_whatever_the_threads():
    model = solid()
    x = model.initial_state().x
    start = torch.stack([x, x + 1e-3, x - 2e-3]).requires_grad_()

    def run(x: Tensor, threads: int) -> tuple[Tensor, Tensor]:
        options = kn.RunOptions(threads=threads)
        end = kn.simulate(model, kn.State(x=x), steps=4, dt=DT, integrator="implicit", options=options).end.x
        return end.detach(), torch.autograd.grad(end.square().sum(), x)[0]

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
