"""Energy and momentum of random trees without damping, over ten seconds.

In joint coordinates neither is a linear function of the state, so that an integrator keeps them to its order: the
default drifts by O(dt), as MuJoCo's does (tests/cross), the Runge-Kutta method by O(dt^4).
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.shapes.random_tree import random_tree

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

SECONDS, DT = 10.0, 2e-3


@cache  # with its programs
def tree(seed: int, floating: bool) -> tuple[kn.Model, dict[str, Tensor]]:
    """A tree in space, or hanging, then without sliding joints, which would fall for ever; nothing holds its joints."""
    kinds = ("revolute", "prismatic", "ball") if floating else ("revolute", "ball")
    scene = kn.Scene((0.0, 0.0, 0.0 if floating else -9.81))
    scene.add_robot(random_tree(seed, 4, kinds=kinds, floating=floating, fixed=0))
    model = kn.compile(scene)
    held = [n for n in ("stiffness", "damping", "armature") if n in model.parameter_names]
    return model, {n: torch.zeros_like(t) for n, t in model.parameters(*held).items()}


@pytest.mark.parametrize("seed", range(5))
def test_energy_of_a_swinging_tree(seed):
    """Released as it is placed, it swings with up to 15 turns a second; energy relative to the largest kinetic one."""
    model, free = tree(seed, floating=False)
    words = {"steps": round(SECONDS / DT), "dt": DT, "params": free, "integrator": "rk4"}
    path = kn.simulate(model, **words)
    kinetic = kn.kinetic_energy(model, path.q, path.v, free)
    energy = kinetic + kn.potential_energy(model, path.q, free)
    error = float((energy - energy[0]).abs().max() / kinetic.max())
    print(f"{error:.1e} of {float(kinetic.max()):.0f} J")
    assert error <= 2.5e-5


def drifts(seed: int, integrator: str, dt: float) -> tuple[float, float]:
    """Of linear and angular momentum in space, relative to the largest that the kinetic energy allows.

    That is sqrt(2 T m) and sqrt(2 T I) with the largest moment of inertia of the whole at the start.
    """
    model, free = tree(seed, floating=True)
    v = 0.5 * torch.randn(model.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    q = model.initial_state().q
    words = {"steps": round(SECONDS / dt), "dt": dt, "params": free, "integrator": integrator}
    path = kn.simulate(model, kn.State(q, v), **words)
    # About the centre of mass; with the root's spin alone, all turns as one body.
    inertia = kn.momentum(model, q.expand(3, -1), torch.eye(model.nv, dtype=q.dtype)[:3], params=free)[:, :3]
    energy, mass = kn.kinetic_energy(model, q, v, free), model.parameters("mass")["mass"].sum()
    change = kn.momentum(model, path.q, path.v, params=free)
    change = change - change[0]
    linear = change[:, 3:].norm(dim=-1).max() / (2 * energy * mass).sqrt()
    return float(linear), float(change[:, :3].norm(dim=-1).max() / (2 * energy * inertia.norm(2)).sqrt())


@pytest.mark.parametrize("seed", range(5))
def test_momentum_of_a_tree_in_space(seed):
    """The Runge-Kutta method: 2e-11 linear and 1e-8 angular; sixteen times as much with twice the step."""
    fine, coarse = drifts(seed, "rk4", DT), drifts(seed, "rk4", 2 * DT)
    print(f"linear {fine[0]:.1e}, angular {fine[1]:.1e}")
    assert fine[0] <= 2e-11 and fine[1] <= 1e-8
    assert all(12 < c / f < 20 for c, f in zip(coarse, fine, strict=True)), (coarse, fine)


@pytest.mark.parametrize("seed", range(5))
def test_momentum_of_a_tree_in_space_by_default(seed):
    """Semi-implicit Euler: first order."""
    fine, coarse = drifts(seed, "euler", DT / 2), drifts(seed, "euler", DT)
    print(f"linear {coarse[0]:.1e}, angular {coarse[1]:.1e}")
    assert coarse[0] <= 0.02 and coarse[1] <= 0.12
    assert all(1.8 < c / f < 2.2 for c, f in zip(coarse, fine, strict=True)), (coarse, fine)
