"""Robots on soft ground: a quadruped walks over a mat, a ball rolls over a trampoline; with substeps and gradients."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from tests.soft_scenes import loose_ball
from torch import Tensor

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.shapes.block import block
from kinema.scene.shapes.quadruped import quadruped
from kinema.scene.shapes.sheet import sheet

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

WALK = {"dt": 1e-2, "substeps": 34}


def walker_on_mat() -> tuple[kn.Model, Tensor]:
    """A quadruped on a mat of 1.2 m x 0.6 m, 5 cm thick, on the ground; and where it stands, with bent legs."""
    scene = kn.Scene()
    scene.add_ground()
    scene.add_robot(quadruped(stiffness=150.0, damping=3.0), "dog", pos=(0.15, 0.0, 0.0))
    foam = kn.Solid(density=800.0, mu=6e4, lam=1.5e5, viscosity=60.0)
    skin = kn.Skin(radius=0.045, k_e=6e3, k_f=40.0, friction=0.9)  # so large that no foot fits between vertices
    scene.add_solid(block((24, 12, 1), 0.05), "mat", material=foam, skin=skin, pos=(0.0, 0.0, 0.07))
    model = kn.compile(scene)
    q = model.initial_state().q
    q[2], q[7:] = 0.565, torch.tensor([0.0, 0.6, -1.2] * 4)
    return model, q


def gait(model: kn.Model, strength: Tensor, steps: int) -> Tensor:
    """Torques of a trot at 2 Hz: legs across swing together, and knees bend while they swing; shape (steps, nv)."""
    time = WALK["dt"] * torch.arange(steps, dtype=torch.float64)
    start, rows = (time / 0.3).clamp(max=1.0), [torch.zeros(steps, dtype=torch.float64)] * model.nv
    for name, at in zip(model.joints, model.tree.v_start.tolist(), strict=True):
        phase = 4 * math.pi * time + (0.0 if name.split("/")[1][:2] in ("fl", "rr") else math.pi)
        if name.endswith("swing"):
            rows[at] = 15.0 * strength * start * phase.sin()
        elif name.endswith("knee"):
            rows[at] = -20.0 * strength * start * phase.sin().clamp(min=0.0)
    return torch.stack(rows, -1)


def test_a_robot_walks_over_a_soft_mat():
    """It goes backwards, the mat alone carries it, and every foot presses it at several places."""
    model, q = walker_on_mat()
    steps = 120
    with warnings.catch_warnings():
        warnings.simplefilter("error", kn.StabilityWarning)
        tau = gait(model, torch.ones((), dtype=torch.float64), steps)
        path = kn.simulate(
            model, kn.State(q), u=kn.Control(tau=tau), steps=steps, record=["impulse", "position"], **WALK
        )
    assert path.x.shape[0] == steps + 1  # of whole steps
    assert float(path.q[-1, 0] - path.q[0, 0]) < -0.1 and float(path.q[:, 2].min()) > 0.5
    assert not bool(path.recorded["impulse"].any())  # of feet on the hard ground
    below = path.x[0, :, 2].amin()
    pressed = (path.x[:, :, 2] - path.x[0, :, 2] < -2e-3) & (path.x[0, :, 2] > below + 0.04)
    places = path.x[0, pressed.any(0), 0]
    assert int(pressed.any(0).sum()) > 16 and float(places.max() - places.min()) > 0.45


def test_gradients_cross_the_mat():
    """How far it goes, by the strength of the gait, over 12 steps of 34 substeps; without k_d no force jumps."""
    model, q = walker_on_mat()

    def reached(strength: Tensor) -> Tensor:
        end = kn.simulate(model, kn.State(q), u=kn.Control(tau=gait(model, strength, 12)), steps=12, **WALK).end
        return end.q[0] + end.x[:, 2].std()

    one = torch.ones((), dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(reached(one), one)
    with torch.no_grad():
        wanted = float(reached(one + 1e-5) - reached(one - 1e-5)) / 2e-5
    assert abs(wanted) > 1e-4 and float(found) == pytest.approx(wanted, rel=1e-4)  # 408 substeps, as elsewhere


def test_a_ball_rolls_over_a_trampoline():
    """It sinks in, is turned by friction until it rolls, and hops to the other side."""
    scene = kn.Scene()
    radius, speed = 0.12, 1.5
    scene.add_robot(loose_ball(0.5, radius), pos=(-0.45, 0.01, radius + 0.02))
    cloth = sheet(1.2, 0.8, (18, 12))
    material = kn.Cloth(density=0.6, mu=400.0, lam=400.0, viscosity=0.5, bending=0.01, activation=0.15)
    skin = kn.Skin(radius=0.02, k_e=300.0, k_f=3.0, friction=0.8)
    scene.add_cloth(cloth, "cloth", material=material, skin=skin)
    edge = (np.abs(cloth.vertices[:, 0]) > 0.59) | (np.abs(cloth.vertices[:, 1]) > 0.39)
    scene.attach("cloth", edge)
    model = kn.compile(scene)
    v = torch.tensor([0.0, 0.0, 0.0, speed, 0.0, 0.0], dtype=torch.float64)

    def roll(v: Tensor, steps: int, **options: object) -> kn.Trajectory:
        return kn.simulate(model, kn.State(v=v), steps=steps, dt=4e-3, substeps=10, **options)

    with warnings.catch_warnings():
        warnings.simplefilter("error", kn.StabilityWarning)
        path = roll(v, 200, record=["velocity"])
    x, z = path.q[:, 0], path.q[:, 2]
    assert float(x[-1]) > 0.4 and float(path.x[:, :, 2].min()) < -0.02  # across, over a dent
    assert float(z.min()) > 0.0
    twist = path.recorded["velocity"][100:, 0]
    rolling = radius * twist[:, 1] / twist[:, 3]
    assert bool(((rolling > 0.85) & (rolling < 1.02)).all())  # the dent is nearer to its centre than its radius
    start = v.clone().requires_grad_()
    (found,) = torch.autograd.grad(roll(start, 25).end.q[0], start)
    way = torch.tensor([0.0, 1.0, 0.0, 0.1, 0.0, 0.1], dtype=torch.float64)
    wanted = float(roll(v + 1e-6 * way, 25).end.q[0] - roll(v - 1e-6 * way, 25).end.q[0]) / 2e-6
    assert float(found @ way) == pytest.approx(wanted, rel=1e-4)  # 250 substeps, as elsewhere
