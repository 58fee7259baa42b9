"""Collision of ellipsoids: gradients of gap, point and normal against central differences, and a rolling egg."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import kinema as kn
from kinema.lang.build import compiler
from pairs import compare_gradients, hull_family, plain_family, random_pairs

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

PAIRS = 120
FAMILIES = {
    "plane": plain_family("ellipsoid_plane"),
    "sphere": plain_family("ellipsoid_round"),
    "capsule": plain_family("ellipsoid_round"),
    "ellipsoid": plain_family("ellipsoid_ellipsoid"),
    "box": hull_family("ellipsoid_hull", "none", "cube"),
    "hull": hull_family("ellipsoid_hull", "none", "hull"),
}


def sizes(kind: str, random: np.random.Generator) -> np.ndarray:
    size = random.uniform(0.05, 0.4, (PAIRS, 3))
    return size * {"plane": [0, 0, 0], "sphere": [1, 0, 0], "capsule": [1, 1, 0]}.get(kind, [1, 1, 1])


@pytest.mark.parametrize("kind", FAMILIES)
def test_gradients_against_differences(kind: str):
    """Also of ellipsoids of revolution, whose shadows may be circles. Deep overlaps switch between directions."""
    random = np.random.default_rng(3)
    given = random_pairs(random, PAIRS, 0.9)
    half = random.uniform(0.1, 0.3, (PAIRS, 3))
    half[::3, 1] = half[::3, 0]
    given |= {"size1": torch.tensor(half), "size2": torch.tensor(sizes(kind, random))}
    found = FAMILIES[kind](given)
    keep = (found.gap[:, 0] > -0.08).nonzero()[:, 0]
    keep = keep[: len(keep) // 4 * 4]
    if kind in ("box", "hull"):  # pair i of a world has hull i
        keep = torch.arange(PAIRS)
    compared = compare_gradients(FAMILIES[kind], {k: t[keep] for k, t in given.items()}, 1e-5)
    assert len(keep) > 20 and (found.gap[keep] < 0).any() and (found.gap[keep] > 0).any()
    assert compared.changes <= 0.05 * compared.pairs
    assert compared.worst <= 2e-6  # differences of fourth order, curvatures up to 1 / 0.05 m over (1e-5 m)^4


def test_gradients_of_a_rolling_egg():
    """An egg rolls on the ground and against a box; central differences with h = 1e-6 of the start."""
    scene = kn.Scene(contact=kn.Contact(friction=0.6, margin=0.02))
    scene.add_ground()
    egg = kn.Body("egg", joints=(kn.Joint("free", "free"),), shapes=(kn.Ellipsoid((0.1, 0.15, 0.2)),))
    egg = kn.Body("egg", None, kn.Pose((0.0, 0.0, 0.098)), egg.joints, kn.mass_properties(egg.shapes[0]), egg.shapes)
    wall = kn.Body("wall", None, kn.Pose((0.32, 0.0, 0.1)), shapes=(kn.Box((0.1, 0.5, 0.1)),))
    scene.add_robot(kn.Robot("egg", (egg,)))
    scene.add_robot(kn.Robot("wall", (wall,)))
    model = kn.compile(scene)
    start, steps = model.initial_state(), 40
    v = torch.tensor([0.1, 6.0, 0.2, 1.2, 0.1, 0.0], dtype=torch.float64)
    weights = torch.randn(model.nq, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def loss(v: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
        path = kn.simulate(
            model, start.replace(v=v), steps=steps, dt=4e-3, params={"egg/egg/0/size": size}, record="impulse"
        )
        touched.append((path.recorded["impulse"].detach()[..., 0] > 0).any(0).sum())
        return (path.end.q * weights).sum()

    touched: list[torch.Tensor] = []
    size = model.parameters("egg/egg/0/size")["egg/egg/0/size"]
    leaves = [v.clone().requires_grad_(), size.clone().requires_grad_()]
    gradients = torch.autograd.grad(loss(*leaves), leaves)
    assert int(touched[0]) == 2, "on the ground and at the wall"
    for k, gradient in enumerate(gradients):
        for i in range(len(gradient)):
            ends = []
            for sign in (1, -1):
                moved = [v.clone(), size.clone()]
                moved[k][i] += sign * 1e-6
                with torch.no_grad():
                    ends.append(float(loss(*moved)))
            slope = (ends[0] - ends[1]) / 2e-6
            assert abs(slope - float(gradient[i])) < 1e-5 * max(1.0, abs(slope)), (k, i, slope, gradient)
