"""Soft things against each other: a fold under its weight, balls that collide, a weight at rest."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.shapes.ball import ball
from kinema.scene.shapes.sheet import sheet
from soft_pairs import fold

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

G = 9.81


def test_a_folded_cloth_under_its_weight_does_not_pass_through_itself():
    """A second at dt = 0.2 ms: the upper half falls on the lower one on the ground and stays over it.

    A vertex of the upper half weighs 0.3 kg/m^2 * (0.05 m)^2 * g = 7.4 mN, which k_e carries at a depth of 0.4 mm of
    the 10 mm. Falling 10 mm onto it with 0.44 m/s and the mass 0.75 g it goes 2.7 mm deep, if alone.
    """
    skin = kn.Skin(radius=0.005, k_e=20.0, k_d=0.02, k_f=0.1, friction=0.3, thickness=0.01)
    scene = kn.Scene(gravity=(0.0, 0.0, -G))
    scene.add_ground(-0.005)
    material = kn.Cloth(density=0.3, mu=60.0, lam=40.0, viscosity=0.05, bending=1e-4)
    scene.add_cloth(sheet(1.2, 0.5, (24, 10)), "cloth", material=material, skin=skin)
    model = kn.compile(scene, torch.float64)
    x = fold(model, 0.01)
    r = kn.simulate(model, kn.State(x=x), steps=5000, dt=2e-4)
    rest = torch.tensor(model.matter.x)
    upper, lower = rest[:, 0] > 0.1, rest[:, 0] < -0.1
    # Every tenth of a second, the height of each vertex of the upper half over the vertices of the lower one near it.
    gaps = []
    for at in r.x[::500]:
        apart = (at[upper][:, None, :2] - at[lower][None, :, :2]).norm(dim=2)
        height = at[upper][:, None, 2] - at[lower][None, :, 2]
        gaps.append(float(height[apart < 0.03].min()))
    print("least gap by tenths of a second [mm]:", [round(1e3 * gap, 2) for gap in gaps])
    assert min(gaps) > 0.005  # never deeper than half of the thickness
    assert float(r.end.xd.norm(dim=1).max()) < 0.1 and 0.008 < gaps[-1] < 0.0105


def test_balls_that_collide_exchange_momentum():
    """Two soft balls, one at rest: what one gives the other takes; momenta stay to rounding, energy is not made."""
    scene = kn.Scene(gravity=(0.0, 0.0, 0.0))
    skin = kn.Skin(k_e=300.0, k_d=0.0, k_f=0.5, friction=0.4, thickness=0.02)
    material = kn.Solid(density=200.0, mu=2e4, lam=3e4)
    scene.add_solid(ball(0.1, 2), "one", material=material, skin=skin, pos=(-0.12, 0.0, 0.0), velocity=(1.0, 0.0, 0.0))
    scene.add_solid(ball(0.1, 2), "two", material=material, skin=skin, pos=(0.12, 0.02, 0.01))
    model = kn.compile(scene, torch.float64)
    mass = 1.0 / model.resolve()["inv_mass"]
    r = kn.simulate(model, steps=2000, dt=1e-4)

    def momenta(k: int) -> tuple[torch.Tensor, torch.Tensor]:
        p = mass[:, None] * r.xd[k]
        return p.sum(0), torch.linalg.cross(r.x[k], p).sum(0)

    one, two = (model.matter.particles(name) for name in ("one", "two"))
    given = float((mass[two, None] * r.end.xd[two]).sum(0)[0])
    whole = float(mass[one].sum())  # times 1 m/s
    start, end = momenta(0), momenta(-1)
    print(f"given {given / whole:.4f} of the momentum")
    assert 0.7 * whole < given < whole  # off centre, and some energy goes into vibrations
    assert float((end[0] - start[0]).abs().max()) < 1e-12 * whole
    assert float((end[1] - start[1]).abs().max()) < 1e-12 * whole
    energy = [float((0.5 * mass[:, None] * v.square()).sum()) for v in (r.xd[0], r.end.xd)]
    assert energy[1] < energy[0]


@pytest.mark.parametrize("integrator, dt", [("euler", 2e-4), ("implicit", 2e-3)])
def test_a_sheet_rests_on_a_held_one_at_its_weight_over_the_stiffness(integrator: str, dt: float):
    """Both layers' vertices carry: the depth is (weight of all) / (k_e times the vertices of both over each other)."""
    skin = kn.Skin(k_e=5.0, k_d=0.05, k_f=0.1, friction=0.3, thickness=0.02)
    scene = kn.Scene(gravity=(0.0, 0.0, -G))
    material = kn.Cloth(density=0.2, mu=500.0, lam=500.0, viscosity=0.1, bending=1e-2)
    low = scene.add_cloth(sheet(0.8, 0.8, (16, 16)), "low", material=material, skin=skin)
    scene.add_cloth(sheet(0.4, 0.4, (8, 8)), "high", material=material, skin=skin, pos=(0.013, 0.017, 0.0195))
    scene.attach(low, np.arange(17 * 17))
    model = kn.compile(scene, torch.float64)
    r = kn.simulate(model, steps=round(0.6 / dt), dt=dt, integrator=integrator)
    high = model.matter.particles("high")
    force = float((1.0 / model.resolve()["inv_mass"][high]).sum()) * G
    x = r.end.x[high].numpy()
    own = np.clip(0.02 - x[:, 2], 0, None).sum()  # depths of the upper vertices, each over flat cloth
    under = r.end.x[: 17 * 17].numpy()
    inside = (np.abs(under[:, :2] - [0.013, 0.017]) < 0.2).all(1)
    depth = 0.02 - x[:, 2].mean()
    print(f"depth {1e3 * depth:.3f} mm, {inside.sum()} vertices below")
    # The rim of the lower vertices counts too: they are nearest to an edge, within the thickness.
    assert 5.0 * own < force and float(r.end.xd.abs().max()) < 1e-3
    assert 5.0 * (own + inside.sum() * depth) == pytest.approx(force, rel=0.05)
