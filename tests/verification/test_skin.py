"""Particles on shapes against closed forms: depth at rest, sliding, creeping, an incline, a belt that carries them."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from kinema.contact.compliant import box_force, penalty_force
from kinema.lang.build import compiler
from kinema.scene.description import BOX, CAPSULE, CYLINDER, MESH, PLANE, SPHERE, TERRAIN
from pairs import height_field
from skins import KINDS, LINKS, SIZES, Scene

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

G, MASS, K_E, RADIUS, DT = 9.81, 0.3, 800.0, 0.02, 1e-3
DEPTH = MASS * G / K_E  # [m], at rest
FLAT = height_field(np.zeros((5, 5)), 1.0)


def face_up(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """Of a mesh: the rotation that brings its largest face up, and a place inside that face, turned [m]."""
    assert scene.hull is not None
    loops = [scene.corners[list(f[:3])] for f in scene.hull.faces]
    a, b, c = max(loops, key=lambda loop: float(np.linalg.norm(np.cross(loop[1] - loop[0], loop[2] - loop[0]))))
    z = np.cross(b - a, c - a)
    z /= np.linalg.norm(z)
    x = np.cross(z, [0.0, 1.0, 0.0])
    x /= np.linalg.norm(x)
    R = np.stack([x, np.cross(z, x), z])
    return R, R @ ((a + b + c) / 3)


def scene_of(kind: str, link: int = 0, law=penalty_force) -> tuple[Scene, np.ndarray]:
    """A shape in the world or on a link, and the place on top of it [m]."""
    size = SIZES[kind]
    scene = Scene(kind, 1, (link,), law=law, ground=FLAT)
    top = {SPHERE: size[0], CAPSULE: size[0] + size[1], CYLINDER: size[1], BOX: size[2]}.get(kind, 0.0)
    at = np.array([0.0, 0.0, top])
    if kind == TERRAIN:
        at = np.array([0.1, 0.05, 0.0])
    if kind == MESH:
        R, at = face_up(scene)
        scene = Scene(kind, 1, (link,), law=law, rotation=R[None])
    return scene, at


def numbers(
    at: np.ndarray, depth: float, v=(0.0, 0.0, 0.0), gravity=(0.0, 0.0, -G), **skin: float
) -> dict[str, Tensor]:
    """A particle at a depth under a place, and a shape at the origin."""
    one = {"radius": RADIUS, "k_e": K_E, "k_d": 20.0, "k_f": 100.0, "friction": 0.5, "inv_mass": 1 / MASS, **skin}
    made = {k: np.array([x]) for k, x in one.items()}
    made |= {"x": at[None] + [[0, 0, RADIUS - depth]], "v": np.array([v]), "gravity": np.array(gravity)}
    made |= {"R": np.tile(np.eye(3), (LINKS, 1, 1)), "p": np.zeros((LINKS, 3)), "V": np.zeros((LINKS, 6))}
    made["dt"] = np.array(DT)
    return {k: torch.tensor(a, dtype=torch.float64) for k, a in made.items()}


def run(scene: Scene, given: dict[str, Tensor], steps: int):
    rest = {"size": torch.tensor(scene.sizes), "offset": torch.zeros(1, 3, dtype=torch.float64)}
    return scene.run({**rest, **given}, steps)


@pytest.mark.parametrize("kind", KINDS)
def test_a_particle_rests_at_its_weight_over_the_stiffness(kind: str):
    """Depth m g / k_e, reached from half of it; the link carries the weight."""
    scene, at = scene_of(kind, link=2)
    r = run(scene, numbers(at, 0.5 * DEPTH), 3000)
    depth = at[2] + RADIUS - float(r.final["x"][0, 2])
    assert depth == pytest.approx(DEPTH, rel=1e-9)
    np.testing.assert_allclose(r.outputs["push_out"][-1, 2, 3:], [0, 0, -MASS * G], atol=1e-9)
    assert float(r.final["v"].norm()) < 1e-9


@pytest.mark.parametrize("law", [penalty_force, box_force])
@pytest.mark.parametrize("kind", [PLANE, BOX])
def test_sliding_is_slowed_by_friction(kind: str, law):
    """Deceleration mu g. The cone's friction is less than mu f_n by a share of (b / (k_f v))^2 / 2, at most."""
    scene, at = scene_of(kind, law=law)
    start, steps, mu = 2.0, 100, 0.5
    r = run(scene, numbers(at - [0.2, 0, 0], DEPTH, v=(start, 0, 0), friction=mu), steps)
    end = float(r.final["v"][0, 0])
    wanted = mu * G * steps * DT
    lacks = 0.5 * (mu * MASS * G / (100.0 * end)) ** 2 if law is penalty_force else 0.0
    assert end > 1.5 and -lacks - 1e-11 <= (start - end) / wanted - 1 <= 1e-11


@pytest.mark.parametrize("law", [penalty_force, box_force])
def test_on_an_incline_a_particle_creeps_or_slides(law):
    """Below the angle of friction at the speed at which friction carries the weight's share s along the incline.

    Smooth cone: k_f v b / sqrt(b^2 + (k_f v)^2) = s, so v = s b / (k_f sqrt(b^2 - s^2)); box: v = s / k_f. Beyond the
    angle, the acceleration is g (sin a - mu cos a), but for what the smooth cone lacks of b, a share of
    (b / (k_f v))^2 / 2 at most.
    """
    mu, k_f = 0.5, 100.0
    for angle in (math.atan(mu) - 0.1, math.atan(mu) + 0.1):
        gravity = (G * math.sin(angle), 0.0, -G * math.cos(angle))
        scene, at = scene_of(PLANE, law=law)
        r = run(scene, numbers(at, DEPTH * math.cos(angle), gravity=gravity, friction=mu, k_f=k_f), 3000)
        s, b = MASS * G * math.sin(angle), mu * MASS * G * math.cos(angle)
        found = float(r.final["v"][0, 0])
        if s < b:
            creep = s * b / (k_f * math.sqrt(b * b - s * s)) if law is penalty_force else s / k_f
            assert found == pytest.approx(creep, rel=1e-6)
        else:
            again = run(
                scene, numbers(at, DEPTH * math.cos(angle), v=(found, 0, 0), gravity=gravity, friction=mu), 1000
            )
            gained = float(again.final["v"][0, 0]) - found
            lacks = 0.5 * (b / (k_f * found)) ** 2 if law is penalty_force else 0.0
            wanted = G * (math.sin(angle) - mu * math.cos(angle))  # in a second
            assert lacks < 1e-3 and -1e-9 <= gained - wanted <= mu * G * math.cos(angle) * lacks + 1e-9


def test_a_moving_link_carries_a_particle_along():
    """A belt: first it pulls with mu m g, then the particle moves with it."""
    scene, at = scene_of(PLANE, link=2)
    given = numbers(at, DEPTH, friction=0.5)
    given["V"][2, 3] = 1.0
    pulled = run(scene, given, 50)
    assert float(pulled.final["v"][0, 0]) == pytest.approx(0.5 * G * 50 * DT, rel=1e-3)
    carried = run(scene, given, 1000)
    assert float(carried.final["v"][0, 0]) == pytest.approx(1.0, rel=1e-6)
    np.testing.assert_allclose(carried.outputs["push_out"][-1, 2, 3:], [0, 0, -MASS * G], atol=1e-5)


def test_inside_a_box_the_nearest_face_is_the_way_out():
    """Without gravity, from deep inside: it leaves by that face, straight."""
    scene, _ = scene_of(BOX)
    half = np.array(SIZES[BOX])
    for axis in range(3):
        for side in (-1.0, 1.0):
            inside = np.zeros(3)
            inside[axis] = side * (half[axis] - 0.05)
            given = numbers(inside, RADIUS, gravity=(0.0, 0.0, 0.0))
            end = run(scene, given, 200).final["x"][0].numpy()
            assert side * end[axis] > half[axis] + RADIUS
            assert np.abs(np.delete(end, axis)).max() == 0.0
