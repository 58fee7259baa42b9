"""Everyday forms: closed, oriented, small, and the volumes that formulas give."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kinema as kn
from kinema.errors import InputError


def volume_of(mesh: kn.Mesh) -> float:
    a, b, c = mesh.vertices[mesh.faces].transpose(1, 0, 2)
    return float(np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6.0)


@pytest.mark.parametrize("kind", kn.shapes.TOYS)
def test_closed_and_oriented(kind: str):
    mesh = kn.shapes.toy(kind, 0.3)
    edges = np.concatenate([mesh.faces[:, (i, (i + 1) % 3)] for i in range(3)])
    directed = {tuple(edge) for edge in edges.tolist()}
    assert len(directed) == len(edges), "no two faces run along an edge in the same direction"
    assert all((b, a) in directed for a, b in directed), "every edge has a face on both sides"
    assert len(mesh.vertices) <= 250 and len(np.unique(mesh.faces)) == len(mesh.vertices)
    assert np.ptp(mesh.vertices, axis=0).max() == pytest.approx(0.3)
    a, b, c = mesh.vertices[mesh.faces].transpose(1, 0, 2)
    areas = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    assert areas.min() > 1e-4 * areas.max() and volume_of(mesh) > 0
    centre = np.einsum("i,ij->j", np.einsum("ij,ij->i", a, np.cross(b, c)), a + b + c)
    assert np.abs(centre / 24.0 / volume_of(mesh)).max() < 1e-12, "the centre of volume is the origin"


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        # volume of the true form over that of a cube of its extent; regular n-gons have sin(2 pi/n) n/2 of its area
        ("box", 0.7 * 0.5),
        ("cylinder", math.pi / 4 * (1.2 / 1.6) ** 2),
        ("cone", math.pi / 12 * (1.4 / 1.6) ** 2),
        ("sphere", math.pi / 6),
        ("ellipsoid", math.pi / 6 * 0.35),
        ("torus", 2 * math.pi**2 * 0.35**2 / 2.7**3),
        ("l_block", (1.5 * 0.5 + 0.5 * 0.7) * 0.5 / 1.5**3),
    ],
)
def test_volumes(kind: str, share: float):
    found = volume_of(kn.shapes.toy(kind, 2.0)) / 8.0
    # 10 to 24 corners around an axis lose up to 1 - 10/(2 pi) sin(2 pi/10) = 6.5 % of a circle, twice for a torus
    assert 0.9 * share < found < 1.0001 * share


def test_forms_are_solid_bodies():
    scene = kn.Scene()
    scene.add_ground()
    for number, kind in enumerate(kn.shapes.TOYS):
        shape = kn.Hull(kn.shapes.toy(kind))
        scene.add_body(shape, kind, mass=0.2, pos=(0.4 * number, 0.0, 0.3))
    path = kn.simulate(kn.compile(scene), steps=100, dt=5e-3)
    heights = path.q.reshape(101, -1, 7)[-1, :, 2]
    assert (heights > 0.02).all() and (heights < 0.25).all(), "all lie on the ground"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("bananna",), "write 'banana'"), (("box", 0.0), "toy"), (("box", float("nan")), "toy")],
)
def test_mistakes(arguments: tuple, message: str):
    with pytest.raises(InputError, match=message):
        kn.shapes.toy(*arguments)
