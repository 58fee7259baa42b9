"""Compliant contact against closed forms: rest, bounce, sliding, creep.

Semi-implicit Euler has order 1: errors are bounded by dt times the fastest rate of the case, and halve with dt where
that is tested.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import kinema as kn

G = 9.81
MASS = 0.2
LAW = {"radius": 0.0, "k_e": 500.0, "k_d": 0.0, "k_f": 20.0, "friction": 0.5}
QUIET = kn.RunOptions(progress=False)
SHAPES = {"plane": kn.Plane(), "sphere": kn.Sphere(0.3), "box": kn.Box((0.3, 0.3, 0.3))}


def fly(
    x: tuple[float, ...],
    v: tuple[float, ...],
    steps: int,
    dt: float,
    gravity: tuple[float, ...] = (0.0, 0.0, -G),
    shape: str = "plane",
    **skin: Any,
) -> kn.Trajectory:
    """A particle above a shape whose top is at height 0; numbers of its skin may be tensors."""
    scene = kn.Scene(gravity=gravity)
    scene.add_body(SHAPES[shape], fixed=True, pos=(0.0, 0.0, 0.0 if shape == "plane" else -0.3))
    scene.add_particles([x], "particle", mass=MASS, skin=kn.Skin(**LAW), velocity=v)
    params = {f"particle/skin_{name}": number for name, number in skin.items()}
    model = kn.compile(scene, torch.float64)
    return kn.simulate(model, steps=steps, dt=dt, params=params, options=QUIET)


@pytest.mark.parametrize("shape", ["plane", "sphere", "box"])
def test_a_particle_rests_at_depth_mg_over_ke(shape: str):
    """Damping k_d = m/(1 ms) brings it to rest; then k_e d = m g."""
    end = fly((0.0, 0.0, 0.005), (0.0, 0.0, 0.0), 20000, 1e-3, shape=shape, k_d=200 * MASS).end
    assert float(end.xd.norm()) <= 1e-9
    assert float(end.x[0, 2]) == pytest.approx(-MASS * G / LAW["k_e"], rel=1e-7)


def test_an_undamped_bounce_returns_its_speed_after_half_a_period():
    """A spring that only pushes: the contact lasts pi sqrt(m / k_e), the particle leaves as fast as it came."""
    speed, dt = 0.8, 1e-5
    lasts = math.pi * math.sqrt(MASS / LAW["k_e"])
    path = fly((0.0, 0.0, 0.0), (0.0, 0.0, -speed), int(1.2 * lasts / dt), dt, gravity=(0.0, 0.0, 0.0))
    z = path.x[:, 0, 2]
    rate = math.sqrt(LAW["k_e"] / MASS)
    assert float((z < 0).sum()) * dt == pytest.approx(lasts, abs=3 * dt)
    assert float(path.end.xd[0, 2]) == pytest.approx(speed, rel=rate * dt)
    assert float(z.min()) == pytest.approx(-speed / rate, rel=rate * dt)


def test_damping_takes_energy_only_while_approaching():
    """Half a period of a damped, then half a period of an undamped oscillator."""
    speed, dt, k_d = 0.8, 1e-6, 4.0
    end = fly((0.0, 0.0, 0.0), (0.0, 0.0, -speed), 110000, dt, gravity=(0.0, 0.0, 0.0), k_d=k_d).end
    rate, decay = math.sqrt(LAW["k_e"] / MASS), k_d / (2 * MASS)
    omega = math.sqrt(rate**2 - decay**2)
    turn = math.atan2(omega, decay) / omega  # when the velocity is 0
    depth = speed / omega * math.exp(-decay * turn) * math.sin(omega * turn)
    assert float(end.x[0, 2]) > 0
    assert float(end.xd[0, 2]) == pytest.approx(depth * rate, rel=5 * rate * dt)


def sliding_distance(v0: float, mu: float) -> float:
    """How far a particle slides until it stands, integral of m v dv / f_t(v) for the smooth cone."""
    b, k = mu * MASS * G, LAW["k_f"]
    return MASS / (k * b) * (0.5 * v0 * math.hypot(b, k * v0) + b * b / (2 * k) * math.asinh(k * v0 / b))


def slide(dt: float, mu: object = 0.5) -> torch.Tensor:
    depth = MASS * G / LAW["k_e"]
    end = fly((0.0, 0.0, -depth), (0.6, 0.8, 0.0), int(0.8 / dt), dt, friction=mu).end
    return end.x[0, :2]


def test_sliding_distance_and_its_derivative_by_friction():
    expected = sliding_distance(1.0, 0.5)
    assert expected == pytest.approx(1.0 / (2 * 0.5 * G), rel=0.02)  # Coulomb's, plus what the smooth cone adds
    errors = []
    for dt in (1e-4, 5e-5):
        mu = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        end = slide(dt, mu)
        np.testing.assert_allclose((end / end.norm()).detach(), [0.6, 0.8], atol=1e-12)  # straight: a cone, no box
        distance = end.norm()
        distance.backward()
        slid = distance.item()
        h = 1e-6
        slope = (sliding_distance(1.0, 0.5 + h) - sliding_distance(1.0, 0.5 - h)) / (2 * h)
        # Of order dt: half a step of the initial velocity, dt v0 / 2 = 5e-5 m, and the same for the slope.
        assert slid == pytest.approx(expected, abs=1.1 * dt)
        assert float(mu.grad) == pytest.approx(slope, rel=20 * dt)
        errors.append(abs(slid - expected))
    assert errors[1] < 0.6 * errors[0]


def test_creep_on_a_slope_within_the_cone():
    """m g sin = k_f v b / sqrt(b^2 + k_f^2 v^2) gives v = (F / k_f) / sqrt(1 - (F / b)^2)."""
    slope, mu, dt = 0.3, 0.5, 1e-3
    along = MASS * G * math.sin(slope)
    b = mu * MASS * G * math.cos(slope)
    assert along < b
    gravity = (G * math.sin(slope), 0.0, -G * math.cos(slope))
    end = fly((0.0, 0.0, -MASS * gravity[2] / -LAW["k_e"]), (0.0, 0.0, 0.0), 4000, dt, gravity=gravity, friction=mu).end
    expected = along / LAW["k_f"] / math.sqrt(1 - (along / b) ** 2)
    assert float(end.xd[0, 0]) == pytest.approx(expected, rel=1e-9)  # a fixed point of the step: no error of order dt


def test_slip_on_a_steep_slope():
    """Beyond the cone the acceleration tends to g (sin - mu cos)."""
    slope, mu, dt = 0.8, 0.3, 1e-4
    gravity = (G * math.sin(slope), 0.0, -G * math.cos(slope))
    depth = -MASS * gravity[2] / LAW["k_e"]
    path = fly((0.0, 0.0, -depth), (2.0, 0.0, 0.0), 5000, dt, gravity=gravity, friction=mu).xd
    acceleration = float(path[-1, 0, 0] - path[0, 0, 0]) / (5000 * dt)
    # At 2 m/s and above the smooth cone is within (b / k_f v)^2 / 2 = 6e-5 of Coulomb's.
    assert acceleration == pytest.approx(G * (math.sin(slope) - mu * math.cos(slope)), rel=1e-4)
