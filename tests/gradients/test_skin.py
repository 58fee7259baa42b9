"""Particles against every kind of shape: forces against plain numpy, balance, gradients, precision and determinism."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from kinema.contact.compliant import box_force
from kinema.contact.particles.particle_shape import particle_kernels
from kinema.lang.build import compiler
from kinema.scene.description import BOX, CAPSULE, MESH, PLANE, SPHERE, TERRAIN
from pairs import height_field, terrain_family
from skins import KINDS, LINKS, SKIN, Scene, numbers, rotations

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

PARTICLES = 96
# On a link that moves, and in the world; shapes turned in their links.
SCENES = {kind: Scene(kind, PARTICLES, (2, 0), rotation=rotations(np.random.default_rng(5), 2)) for kind in KINDS}
ON_LINKS = {kind: Scene(kind, PARTICLES, (2, 1)) for kind in KINDS}
BOXED = {kind: replace(scene, law=box_force) for kind, scene in SCENES.items() if kind in (PLANE, CAPSULE)}
DIFFERENTIATED = ("x", "v", "R", "p", "V", "offset", "size", *SKIN, "inv_mass", "gravity")
STEPS_OF_DIFFERENCES = (1e-6, 3e-8)


def forces(scene: Scene, given: dict[str, Tensor], **options: object) -> tuple[np.ndarray, np.ndarray]:
    """Forces on particles and wrenches on links, of one step."""
    out = scene.run(given, 1, **options).outputs
    return out["f_out"][0].detach().numpy(), out["push_out"][0].detach().numpy()


# -- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_forces_agree_with_numpy(kind: str):
    """Brute-force closest points and the law; near, touching, sliding, leaving, and deep inside."""
    scene, given = SCENES[kind], numbers(SCENES[kind])
    f, push, distance = scene.forces(given)
    found, pushed = forces(scene, given)
    touching = distance < given["radius"].numpy()
    assert touching.any(1).sum(1).min() >= PARTICLES // 4  # on each shape
    assert (distance < -0.05).sum() >= 3 and (~touching.any((0, 1))).sum() >= (0 if kind == PLANE else 10)
    if kind == TERRAIN:
        assert touching[:, 1].sum() >= 3  # in a valley
    np.testing.assert_allclose(found, f, atol=1e-12 * np.abs(f).max())
    np.testing.assert_allclose(pushed, push, atol=1e-12 * np.abs(push).max())


@pytest.mark.parametrize("kind", KINDS)
def test_what_particles_feel_is_the_opposite_of_what_links_feel(kind: str):
    """Forces have no sum and no moment about the tree's origin: to rounding of sums over the particles."""
    scene, given = ON_LINKS[kind], numbers(ON_LINKS[kind])
    f, push = forces(scene, given)
    assert (push[0] == 0).all() and (np.abs(push[1:]).max(1) > 1).all()
    arm = given["x"].numpy() - given["p"][1].numpy()
    assert np.abs(f.sum(0) + push[:, 3:].sum(0)).max() <= 1e-12 * np.abs(f).sum()
    moments = np.cross(arm, f)
    assert np.abs(moments.sum(0) + push[:, :3].sum(0)).max() <= 1e-12 * np.abs(moments).sum()


def test_particles_that_do_not_touch_pass_through():
    scene, given = Scene(SPHERE, PARTICLES), numbers(Scene(SPHERE, PARTICLES))
    on, _ = forces(scene, given)
    passing = replace(scene, touching=np.arange(PARTICLES) % 2)
    off, _ = forces(passing, given)
    assert (off[::2] == 0).all() and (off[1::2] == on[1::2]).all() and np.abs(on[::2]).max() > 1


@pytest.mark.parametrize("kind", [SPHERE, CAPSULE])
def test_at_the_centre_the_normal_is_up(kind: str):
    """Nothing of the pose has a derivative there, and the rest is finite."""
    scene = Scene(kind, 1, (2,), rotation=rotations(np.random.default_rng(5), 1))
    given = numbers(scene)
    given["friction"] *= 0
    _, p = scene.poses(given)
    given["x"] = torch.tensor(p)
    given["v"] = torch.zeros(1, 3, dtype=torch.float64)
    given["V"] *= 0
    leaves = {k: t.clone().requires_grad_() for k, t in given.items()}
    f = scene.run(leaves, 1).outputs["f_out"][0]
    depth = scene.sizes[0][0] + given["radius"]
    np.testing.assert_allclose(f.detach().numpy(), [[0, 0, float(given["k_e"] * depth)]], rtol=1e-15)
    gradients = dict(zip(leaves, torch.autograd.grad(f.sum(), list(leaves.values())), strict=True))
    assert all(g.isfinite().all() for g in gradients.values())
    assert gradients["size"][0, 0] == given["k_e"] and (gradients["R"] == 0).all()


def test_box_friction_is_clamped_along_each_axis():
    """On a level plane along x and y: sliding along the diagonal, the force is sqrt(2) mu f_n."""
    scene = Scene(PLANE, 2, (0,), law=box_force)
    given = numbers(scene)
    given |= {"offset": torch.zeros(1, 3, dtype=torch.float64), "k_d": 0 * given["k_d"]}
    given["x"] = torch.tensor([[0.3, 0.1, -0.01], [0.1, 0.2, 0.01]], dtype=torch.float64)
    given["v"] = torch.tensor([[9.0, -9.0, 0.0], [1e-3, 9.0, 0.0]], dtype=torch.float64)
    f, _ = forces(scene, given)
    depth = (given["radius"] - given["x"][:, 2]).numpy()
    f_n = given["k_e"].numpy() * depth
    b = given["friction"].numpy() * f_n
    expected = [[-b[0], b[0], f_n[0]], [-1e-3 * float(given["k_f"][1]), -b[1], f_n[1]]]
    np.testing.assert_allclose(f, expected, rtol=1e-12)


def ridge() -> Scene:
    """A roof of slope 2 along y, 0.4 m high, with particles all around its top."""
    heights = np.tile(np.maximum(0.4 - 2 * np.abs(np.linspace(-1, 1, 21)), 0)[:, None], (1, 21))
    return Scene(TERRAIN, PARTICLES, (0,), ground=height_field(heights, 1.0))


def test_a_ridge_pushes_to_one_side():
    """Over and in a ridge, balls touch its nearest side only: what is behind the other side is no valley.

    For rigid balls as for particles, and from any distance: beyond their reach nothing is found.
    """
    scene = ridge()
    random = np.random.default_rng(1)
    given = numbers(scene)
    x = random.uniform([-0.2, -0.8, 0.2], [0.2, 0.8, 0.5], (PARTICLES, 3))
    given |= {"x": torch.tensor(x), "offset": torch.zeros(1, 3, dtype=torch.float64)}
    distance, _ = scene.distances(x)
    radius = given["radius"].numpy()
    assert (distance > radius).sum() > 20 and (distance < 0).sum() > 10
    np.testing.assert_allclose(forces(scene, given)[0], scene.forces(given)[0], atol=1e-10)
    family = terrain_family("ball_terrain", scene.ground, 0.3)
    zero = torch.zeros(PARTICLES, 3, dtype=torch.float64)
    names = ("turn1", "turn2", "at2", "offset1", "offset2", "size2")
    size = torch.stack([given["radius"], zero[:, 0], zero[:, 0]], 1)
    gap = family({**dict.fromkeys(names, zero), "at1": given["x"], "size1": size}, 0.0)
    assert (gap.exists[:, 0] == ((distance < radius) & (distance > -0.3))).all() and not gap.exists[:, 1].any()


# -- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps, tolerance", [(1, 1e-6), (32, 1e-5)])
@pytest.mark.parametrize("kind, scenes", [*((k, "cone") for k in KINDS), *((k, "box") for k in BOXED)])
def test_gradients_against_differences(kind: str, scenes: str, steps: int, tolerance: float):
    """Of the end and of all wrenches, along random directions, against differences of fourth order.

    A direction counts as near a switch if other particles touch at +-h or +-2h in some step than at 0, or if second
    differences are those of a jump: deep particles change the face through which they are pushed out. It is then
    tested with smaller steps, which must agree.
    """
    scene = (SCENES if scenes == "cone" else BOXED)[kind]
    given = numbers(scene, seed=1)
    generator = torch.Generator().manual_seed(2)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    weights = {"x": normal(PARTICLES, 3), "v": 0.1 * normal(PARTICLES, 3), "push": 1e-3 * normal(LINKS, 6)}

    def run(leaves: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        r = scene.run({**given, **leaves}, steps)
        # How far from the start: positions of metres would round the differences.
        moved = sum(((r.final[k] - given[k]) * weights[k]).sum() for k in ("x", "v"))
        return moved + (r.outputs["push_out"] * weights["push"]).sum(), (r.outputs["f_out"].detach() != 0).any(-1)

    leaves = {k: given[k].clone().requires_grad_() for k in DIFFERENTIATED}
    loss, active = run(leaves)
    assert active.sum() >= steps * PARTICLES // 4 and (steps == 1 or (active[0] != active[-1]).sum() >= 5)
    gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
    value, near = float(loss.detach()), 0
    for name, leaf in leaves.items():
        if kind in (PLANE, TERRAIN) and name == "size":
            continue  # they have none
        for _ in range(2):
            way = normal(*leaf.shape) * (1.0 if name in ("x", "p", "offset") else leaf.detach().abs().max())
            way = way * (leaf != 0) if name == "size" else way
            got = float((gradients[name] * way).sum())
            for h in STEPS_OF_DIFFERENCES:
                with torch.no_grad():
                    ends = [run({name: leaf + c * h * way}) for c in (-2, -1, 1, 2)]
                down2, down, up, up2 = (float(end) for end, _ in ends)
                wanted = (8 * (up - down) - (up2 - down2)) / (12 * h)
                # Positions of metres and forces of 100 N round to 1e-14: what is smaller drowns in the differences.
                scale = max(abs(wanted), 1e-2)
                right = abs(got - wanted) <= tolerance * scale
                jump = max(abs(high - 2 * value + low) for high, low in ((up, down), (up2, down2))) / h
                switched = not all(torch.equal(there, active) for _, there in ends) or jump > 1e-4 * scale
                if right or not switched:
                    break
                near += 1
            assert right, (name, got, wanted, switched)
    print(f"{kind}, {steps} steps: {near} of {2 * len(leaves)} directions near a switch")
    assert near <= (0 if steps == 1 else 6)


# -- precision and determinism --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_python_runs_the_same_source(kind: str):
    """float32 compiled against float64 in plain Python: depths of metres round to 1e-7 m, times k_e up to 1e3 N/m."""
    scene = Scene(kind, 24)
    given = numbers(scene, speed=0.1)
    f, push = scene.plain(given)
    found, pushed = forces(scene, {k: t.float() for k, t in given.items()})
    exact, whole = forces(scene, given)
    np.testing.assert_allclose(exact, f, atol=1e-11)
    np.testing.assert_allclose(whole, push, atol=1e-11)
    assert (np.abs(f).max(1) > 0.1).sum() >= 12
    np.testing.assert_allclose(found, f, atol=5e-3)
    np.testing.assert_allclose(pushed, push, atol=2e-2)


@pytest.mark.parametrize("kind", [PLANE, BOX, MESH, TERRAIN])
def test_the_same_bits_for_any_number_of_threads(kind: str):
    """5,000 particles, ten chunks; ends, wrenches and gradients."""
    scene = Scene(kind, 5000, (2, 0))
    given = {k: t.float() for k, t in numbers(scene).items()}
    results = []
    for threads in (1, 2, 4):
        leaves = {k: t.clone().requires_grad_() for k, t in given.items()}
        r = scene.run(leaves, 3, threads=threads)
        made = [r.final["x"], r.final["v"], r.outputs["push_out"]]
        gradients = torch.autograd.grad(sum(t.square().sum() for t in made), list(leaves.values()))
        results.append([*made, *gradients])
    assert results[0][2].abs().max() > 1
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_there_is_a_kernel_for_every_kind():
    assert set(particle_kernels()) == set(KINDS) == set(particle_kernels(box_force))
