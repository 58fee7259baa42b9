"""Objects thrown at the ground: the scene of several experiments."""

from __future__ import annotations

import numpy as np
import torch

import kinema as kn
from kinema.experiments.thrown import BODY, F64, POINTS, Motion, rotation_of, spread, throw

ONE = torch.ones((), dtype=F64)


def _thrown(seed: int = 3, motion: Motion = Motion()):  # noqa: B008
    return throw("pear", torch.Generator().manual_seed(seed), motion)


def test_the_lowest_point_is_at_its_gap():
    thrown = _thrown()
    (surface,) = kn.surfaces_of(thrown.model, thrown.start, ground=False, dtype=F64)
    # Exact but for rounding of a few additions of numbers about one.
    assert abs(float(surface.vertices[:, 2].min()) - thrown.motion.gap) < 1e-12


def test_a_flight_with_a_kick():
    thrown = _thrown(motion=Motion(seconds=0.2))
    mass, dt, steps = 4.0, 1e-3, 200
    path = thrown.simulate(mass * ONE, 100.0 * torch.ones(3, dtype=F64), 0.5 * ONE, dt=dt, steps=steps)
    place = path[BODY].position
    vx, vz = thrown.motion.speed
    fx, fz = thrown.motion.kick
    # Semi-implicit Euler: a force of the first n steps moves by (f / m) dt^2 (n (n + 1) / 2 + n (steps - n)).
    kicked = dt**2 * (100 * 101 / 2 + 100 * 100)
    fell = 9.81 * dt**2 * steps * (steps + 1) / 2
    expected = torch.tensor([vx * 0.2 + fx / mass * kicked, 0.0, vz * 0.2 + fz / mass * kicked - fell], dtype=F64)
    assert torch.allclose(place[-1] - place[0], expected, rtol=0, atol=1e-9)


def test_only_ratios_matter_without_a_known_force():
    thrown = _thrown(motion=Motion(kick=(0.0, 0.0), push=0.0))
    contact, friction = torch.tensor([200.0, 50.0, 80.0], dtype=F64), 0.5 * ONE
    ends = [thrown.simulate(s * 5.0 * ONE, s * contact, friction, dt=2e-4).end.q for s in (1.0, 1.7)]
    assert float(ends[0][2]) < 1.0  # it lies on the ground
    # eps of the friction law, 1e-12 N, is the only force that does not scale.
    assert torch.allclose(*ends, rtol=0, atol=1e-8)


def test_rotation_of_a_quaternion():
    q = torch.tensor([0.5, -0.1, 0.7, 0.2], dtype=F64)
    q = q / q.norm()
    state = torch.cat([torch.zeros(3, dtype=F64), q])
    found = kn.forward_kinematics(_thrown().model, state).rotation[-1]
    assert torch.allclose(rotation_of(q), found, rtol=0, atol=1e-14)


def test_spread_points_are_far_apart():
    points = np.random.default_rng(0).normal(size=(200, 3))
    chosen = spread(points, POINTS)
    gaps = np.linalg.norm(chosen[:, None] - chosen, axis=-1) + 10.0 * np.eye(POINTS)
    first = np.linalg.norm(points[:POINTS, None] - points[:POINTS], axis=-1) + 10.0 * np.eye(POINTS)
    assert gaps.min() > 2.0 * first.min() and len(spread(points[:5], POINTS)) == 5
