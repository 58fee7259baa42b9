"""Collision of pairs of shapes: cases by hand, gradients against central differences, and where shapes degenerate."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

import kinema as kn
from kinema.contact.collision import (
    box_box,
    hulls,
)
from kinema.contact.collision.narrow_phase import FAR
from kinema.lang.build import compiler
from kinema.scene.description import Body, Joint, MassProperties, Mesh, Robot, Shape
from pairs import (
    NAMES,
    Family,
    compare_gradients,
    height_field,
    hills,
    hull_family,
    plain_family,
    random_pairs,
    rotation,
    terrain_family,
)

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

PAIRS = 400
FAMILIES = {
    "sphere_round": plain_family("sphere_round"),
    "capsule_capsule": plain_family("capsule_capsule"),
    "sphere_box": plain_family("sphere_box"),
    "box_box": plain_family("box_box"),
    "capsule_box": plain_family("capsule_box"),
    "sphere_plane": plain_family("sphere_plane"),
    "capsule_plane": plain_family("capsule_plane"),
    "box_plane": plain_family("box_plane"),
    "cylinder_plane": plain_family("cylinder_plane"),
    "hull_plane": hull_family("hull_plane", "hull", "none"),
    "sphere_hull": hull_family("sphere_hull", "none", "hull"),
    "capsule_hull": hull_family("capsule_hull", "none", "hull"),
    "capsule_cube": hull_family("capsule_hull", "none", "cube"),
    "hull_hull": hull_family("hull_hull", "hull", "hull"),
    "cube_cube": hull_family("hull_hull", "cube", "cube"),
    "cylinder_cylinder": hull_family("hull_hull", "cylinder", "cylinder"),
    "ball_terrain": terrain_family("ball_terrain", hills()),
    "corner_terrain": terrain_family("corner_terrain", hills()),
}


def sphere(random: np.random.Generator, n: int) -> np.ndarray:
    return np.c_[random.uniform(0.05, 0.3, n), np.zeros((n, 2))]


def capsule(random: np.random.Generator, n: int) -> np.ndarray:
    return np.c_[random.uniform(0.05, 0.2, n), random.uniform(0.05, 0.4, n), np.zeros(n)]


def box(random: np.random.Generator, n: int) -> np.ndarray:
    return random.uniform(0.05, 0.4, (n, 3))


def hull(random: np.random.Generator, n: int) -> np.ndarray:
    """Scales; every third of four hulls is a cube of half size 1 before."""
    scale = random.uniform(0.7, 1.3, (n, 3))
    scale[2::4] *= 0.2
    return scale


def plane(random: np.random.Generator, n: int) -> np.ndarray:
    return np.zeros((n, 3))


Sizes = Callable[[np.random.Generator, int], np.ndarray]
CASES: dict[str, tuple[str, Sizes, Sizes, float]] = {  # family, sizes of both, distance of links
    "sphere and sphere": ("sphere_round", sphere, sphere, 0.6),
    "sphere and capsule": ("sphere_round", sphere, capsule, 0.7),
    "capsule and sphere": ("sphere_round", capsule, sphere, 0.7),
    "capsule and capsule": ("capsule_capsule", capsule, capsule, 0.8),
    "sphere and box": ("sphere_box", sphere, box, 0.7),
    "capsule and box": ("capsule_box", capsule, box, 0.9),
    "box and box": ("box_box", box, box, 0.8),
    "sphere and plane": ("sphere_plane", sphere, plane, 1.0),
    "capsule and plane": ("capsule_plane", capsule, plane, 1.0),
    "box and plane": ("box_plane", box, plane, 1.0),
    "cylinder and plane": ("cylinder_plane", capsule, plane, 1.0),
    "hull and plane": ("hull_plane", hull, plane, 1.0),
    "sphere and hull": ("sphere_hull", sphere, hull, 0.6),
    "capsule and hull": ("capsule_hull", capsule, hull, 0.7),
    "hull and hull": ("hull_hull", hull, hull, 0.6),
    "ball and terrain": ("ball_terrain", capsule, plane, 0.6),
    "corner and terrain": ("corner_terrain", box, plane, 0.3),
    "cylinder and cylinder": ("cylinder_cylinder", capsule, capsule, 0.6),
}


def case(name: str, seed: int, n: int = PAIRS) -> tuple[Family, dict[str, Tensor]]:
    """Random pairs of a kind, some of which overlap."""
    random = np.random.default_rng(seed)
    family, first, second, spread = CASES[name]
    given = random_pairs(random, n, spread)
    return FAMILIES[family], given | {"size1": torch.tensor(first(random, n)), "size2": torch.tensor(second(random, n))}


@pytest.mark.parametrize("name", CASES)
def test_gradients_against_differences(name):
    family, given = case(name, 0)
    found = family(given)
    overlapping = (found.least < 0).mean()
    compared = compare_gradients(family, given)
    print(
        f"{name}: {compared.changes} of {compared.pairs} pairs change their features within the differences; "
        f"{overlapping:.0%} overlap; {found.exists.mean():.0%} of the candidates exist; worst {compared.worst:.1e}"
    )
    assert 0.1 < overlapping < 0.9
    assert compared.changes <= 0.05 * compared.pairs
    assert compared.worst <= 1e-6


@pytest.mark.parametrize("name", CASES)
def test_normals_are_unit_and_swapped_shapes_are_mirrored(name):
    family, given = case(name, 1)
    found = family(given)
    assert torch.allclose(found.normal.norm(dim=-1), torch.ones_like(found.gap), atol=1e-12)
    first, second = CASES[name][1:3]
    if first is second:
        other = family({**given, **{k[:-1] + "12"[k[-1] == "1"]: v for k, v in given.items()}})
        # Swapped, another axis may be the first within the bias.
        near = 1e-6 if family.kernel is box_box.touch_box_box else 1e-12  # one of two boxes is grown by this share
        assert np.isclose(other.least, found.least, atol=near).mean() > (0.9 if family.pairs == 4 else 0.99)


@pytest.mark.parametrize("name", CASES)
def test_out_of_reach_there_is_nothing(name):
    family, given = case(name, 2, 20)
    away = (given["frame2"] @ given["inner2"])[:, :, 2]  # out of a plane
    far = {**given, "at1": given["at1"] + 1e3 * away}
    leaves = {k: far[k].clone().requires_grad_() for k in NAMES}
    found = family({**far, **leaves})
    assert (found.gap == FAR).all() and (found.point == 0).all()
    total = found.gap.sum() + found.point.sum() + found.normal.sum()
    assert all((g == 0).all() for g in torch.autograd.grad(total, list(leaves.values())))


@pytest.mark.parametrize("name", CASES)
def test_python_runs_the_same_source(name):
    family, given = case(name, 3, 4)
    ours, plain = family(given), family.plain(given)
    for k in ("gap", "point", "normal"):
        assert torch.allclose(getattr(ours, k), getattr(plain, k), atol=1e-12)


# -- by hand -----------------------------------------------------------------------------------------------------------

FLAT = (0.0, 0.0, 0.0)
ALONG_X = (0.0, np.pi / 2, 0.0)  # z of the shape points along x
ALONG_Y = (-np.pi / 2, 0.0, 0.0)


def one(
    size1: tuple[float, ...],
    at1: tuple[float, ...],
    turn1: tuple[float, ...],
    size2: tuple[float, ...],
    at2: tuple[float, ...] = FLAT,
    turn2: tuple[float, ...] = FLAT,
) -> dict[str, Tensor]:
    """One pair."""
    given = {"size1": size1, "at1": at1, "turn1": turn1, "size2": size2, "at2": at2, "turn2": turn2}
    return {k: torch.tensor([v], dtype=torch.float64) for k, v in (given | {"offset1": FLAT, "offset2": FLAT}).items()}


def check(found, k: int, gap: float, point: tuple[float, ...], normal: tuple[float, ...], atol: float = 1e-12) -> None:
    """One candidate of the first pair."""
    assert abs(found.gap[0, k].item() - gap) < atol
    assert np.allclose(found.point[0, k].detach(), point, atol=atol)
    assert np.allclose(found.normal[0, k].detach(), normal, atol=atol)


def test_two_spheres():
    found = FAMILIES["sphere_round"](one((0.2, 0, 0), (0, 0, 1), FLAT, (0.3, 0, 0)))
    check(found, 0, 0.5, (0, 0, 0.55), (0, 0, 1))


def test_crossed_capsules():
    found = FAMILIES["capsule_capsule"](one((0.1, 0.5, 0), (0.2, 0.3, 0.25), ALONG_X, (0.1, 0.5, 0), FLAT, ALONG_Y))
    check(found, 0, 0.05, (0, 0.3, 0.125), (0, 0, 1))
    assert found.gap[0, 1] == FAR


@pytest.mark.parametrize("tilt", [0.0, 1e-9, -1e-9, 1e-4, -1e-4])
@pytest.mark.parametrize("turned", [1, -1])
def test_a_capsule_rests_along_another_on_both_ends_of_what_they_share(tilt, turned):
    given = one((0.1, 0.5, 0), (0.3, 0, 0.2), (0, np.pi / 2 + tilt, 0), (0.1, 0.4, 0), FLAT, (0, turned * np.pi / 2, 0))
    found = FAMILIES["capsule_capsule"](given)
    ends = sorted(found.point[0, :, 0].tolist())
    assert np.allclose(ends, [-0.2, 0.4], atol=1e-4) and (found.gap.abs() < 1e-4).all()


def finite(family: Family, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Everything finite, in both precisions; returns the gradients of the sum of gaps in double precision."""
    for dtype in (torch.float32, torch.float64):
        leaves = {k: given[k].to(dtype).requires_grad_() for k in NAMES}
        found = family({**{k: v.to(dtype) for k, v in given.items()}, **leaves})
        assert all(t.isfinite().all() for t in (found.gap, found.point, found.normal))
        size = found.normal.norm(dim=-1)
        assert torch.allclose(size, torch.ones_like(size), atol=1e-5)
        for total in (found.point.sum() + found.normal.sum(), found.gap.sum()):
            gradients = torch.autograd.grad(total, list(leaves.values()), retain_graph=True)
            assert all(g.isfinite().all() for g in gradients)
    return dict(zip(NAMES, gradients, strict=True))


@pytest.mark.parametrize("distance", [0.0, 1e-30, 1e-12, 1e-8])
def test_coincident_spheres(distance):
    given = one((0.2, 0, 0), (distance, 0, 0), FLAT, (0.3, 0, 0))
    gradients = finite(FAMILIES["sphere_round"], given)
    if distance < 1e-9:
        check(FAMILIES["sphere_round"](given), 0, distance - 0.5, (0, 0, 0.05), (0, 0, 1))
    if distance == 0:
        assert (gradients["at1"] == 0).all()
    assert gradients["size1"][0, 0] == -1


def every(*choices: list[tuple[float, ...]]) -> dict[str, Tensor]:
    """All combinations of size1, at1, turn1, size2."""
    made = [one(*numbers) for numbers in itertools.product(*choices)]
    return {k: torch.cat([pair[k] for pair in made]) for k in made[0]}


ROUND = [(0.1, 0.5, 0.0), (0.1, 0.0, 0.0), (0.0, 0.5, 0.0), (0.0, 0.0, 0.0)]
PLACES = [(0, 0, 0), (0, 0, 0.2), (0, 0, 0.5), (0, 0, 1), (0.2, 0, 0), (0.5, 0.5, 0), (0.5, 0.5, 0.5), (0.6, 0.5, 0.5)]
TURNS = [FLAT, ALONG_X, (1e-9, 0, 0), (0, 1e-3, 0), (0, 0.7, 0), (np.pi, 0, 0), (0, np.pi / 4, 0)]
HALVES = [(0.5, 0.5, 0.5), (0.5, 0.5, 0.0), (0.0, 0.0, 0.0)]


@pytest.mark.parametrize("name", ["sphere_round", "capsule_capsule"])
def test_degenerate_capsules_are_finite(name):
    finite(FAMILIES[name], every(ROUND, PLACES, TURNS, ROUND))


@pytest.mark.parametrize("name", ["sphere_box", "capsule_box"])
def test_degenerate_capsules_and_boxes_are_finite(name):
    finite(FAMILIES[name], every(ROUND, PLACES, TURNS, HALVES))


def test_sphere_over_face_edge_and_corner_of_a_box_and_inside():
    family, half = FAMILIES["sphere_box"], (0.5, 0.4, 0.3)
    check(family(one((0.1, 0, 0), (0.2, 0.1, 0.5), FLAT, half)), 0, 0.1, (0.2, 0.1, 0.35), (0, 0, 1))
    check(family(one((0.1, 0, 0), (0.8, 0.8, 0.1), FLAT, half)), 0, 0.4, (0.62, 0.56, 0.1), (0.6, 0.8, 0))
    n = np.array([-2, 2, -1]) / 3
    found = family(one((0.1, 0, 0), (-0.7, 0.6, -0.4), FLAT, half))
    check(found, 0, 0.2, tuple(np.array([-0.5, 0.4, -0.3]) + 0.1 * n), tuple(n))
    check(family(one((0.1, 0, 0), (0.1, -0.3, 0.0), FLAT, half)), 0, -0.2, (0.1, -0.3, 0), (0, -1, 0))


@pytest.mark.parametrize("tilt", [0.0, 1e-12, -1e-12, 1e-5, -1e-5])
@pytest.mark.parametrize("half", [0.3, 2.0])
@pytest.mark.parametrize("name", ["capsule_box", "capsule_cube"])
def test_a_capsule_rests_on_a_box_on_two_places(tilt, half, name):
    """Longer than the box: over its edges; shorter: at its own ends."""
    given = one((0.1, 0.5, 0), (0, 0, 0.4), (0, np.pi / 2 + tilt, 0), (half, 0.2, 0.3))
    found = FAMILIES[name](four(given))
    ends = sorted(found.point[0, :, 0].tolist())
    assert np.allclose(ends, [-min(half, 0.5), min(half, 0.5)], atol=1e-5)
    assert np.allclose(found.gap, 0, atol=1e-5) and np.allclose(found.normal, [0, 0, 1], atol=1e-4)


def test_a_capsule_across_an_edge_of_a_box():
    """The centre line is nearest to the edge x = 0.5, z = 0.3 with its inside, at 45 degrees above it."""
    found = FAMILIES["capsule_box"](one((0.1, 0.5, 0), (0.6, 0.0, 0.4), (0, 0.75 * np.pi, 0), (0.5, 0.4, 0.3)))
    n, distance = np.sqrt([0.5, 0, 0.5]), np.sqrt(0.02)
    check(found, 0, distance - 0.1, tuple(np.array([0.6, 0, 0.4]) - 0.5 * (distance + 0.1) * n), tuple(n))


def test_a_capsule_through_a_box_leaves_by_the_nearest_face_or_edge():
    family = FAMILIES["capsule_box"]
    found = family(one((0.1, 1.0, 0), (0.0, 0.1, 0.2), (0, np.pi / 2, 0), (0.5, 0.4, 0.3)))
    assert np.allclose(found.gap, -0.2) and np.allclose(found.normal, [0, 0, 1])
    assert np.allclose(sorted(found.point[0, :, 0].tolist()), [-0.5, 0.5])
    found = family(one((0.1, 1.0, 0), (0.45, 0.0, 0.25), (0, 0.75 * np.pi, 0), (0.5, 0.4, 0.3)))
    w = np.sqrt(0.5)
    assert found.gap[0, 1] == FAR and abs(found.gap[0, 0].item() + 0.1 * w + 0.1) < 1e-12
    assert np.allclose(found.normal[0, 0], [w, 0, w])


def places(found) -> np.ndarray:
    """Points of the candidates of the first pair that exist, sorted."""
    points = found.point[0].detach().numpy()[found.exists[0]]
    return points[np.lexsort(points.round(6).T)]


@pytest.mark.parametrize("noise", [0.0, 1e-15, 1e-12])
def test_equal_boxes_on_each_other_touch_at_four_corners(noise):
    """In spite of rounding; the normal is that of the first box's face."""
    random = np.random.default_rng(0)
    for _ in range(20):
        shift, turn = noise * random.normal(size=3), noise * random.normal(size=3)
        found = FAMILIES["box_box"](one((0.3, 0.2, 0.1), tuple(shift + [0, 0, 0.19]), tuple(turn), (0.3, 0.2, 0.1)))
        at = places(found)
        assert np.allclose(np.unique(at.round(6), axis=0)[:, :2], [[-0.3, -0.2], [-0.3, 0.2], [0.3, -0.2], [0.3, 0.2]])
        assert np.allclose(at[:, 2], 0.095) and np.allclose(found.gap[0][found.exists[0]], -0.01)
        assert np.allclose(found.normal, [0, 0, 1])


def test_boxes_that_overhang_share_a_rectangle():
    found = FAMILIES["box_box"](one((0.3, 0.2, 0.1), (0.4, -0.1, 0.25), FLAT, (0.3, 0.2, 0.1)))
    assert np.allclose(places(found), [[0.1, -0.2, 0.125], [0.3, -0.2, 0.125], [0.1, 0.1, 0.125], [0.3, 0.1, 0.125]])
    assert np.allclose(found.gap[0, :4], 0.05) and (found.gap[0, 4:] == FAR).all()


def test_turned_boxes_share_an_octagon():
    found = FAMILIES["box_box"](one((0.1, 0.1, 0.1), (0, 0, 0.2), (0, 0, np.pi / 4), (0.1, 0.1, 0.1)))
    corner = 0.1 * (np.sqrt(2) - 1)
    assert found.exists.all()
    assert np.allclose(np.sort(found.point[0, :, :2].abs().numpy()), [corner, 0.1]) and np.allclose(found.gap, 0)


def test_crossed_edges_of_boxes():
    """Two cubes of half size 0.1, each on an edge, the edges along x and y and 0.01 apart."""
    high = 0.1 * np.sqrt(2)
    given = one((0.1,) * 3, (0.03, 0.02, 2 * high + 0.01), (np.pi / 4, 0, 0), (0.1,) * 3, FLAT, (0, np.pi / 4, 0))
    for depth, gap in ((0.0, 0.01), (0.02, -0.01)):
        lower = {**given, "at1": given["at1"] - torch.tensor([0, 0, depth], dtype=torch.float64)}
        found = FAMILIES["box_box"](lower)
        nearest = int(found.gap[0].argmin())
        check(found, nearest, gap, (0, 0.02, high + 0.5 * gap), (0, 0, 1), atol=1e-6)  # one box is grown by that share
        others = found.gap[0][torch.arange(box_box.BOX_CANDIDATES) != nearest]
        assert (others > gap + 0.05).all()  # other corners of the faces beside the edges


def test_degenerate_boxes_are_finite():
    finite(FAMILIES["box_box"], every(HALVES, PLACES, TURNS, HALVES))


def test_a_cylinder_stands_and_lies_on_a_plane():
    family, size = FAMILIES["cylinder_plane"], (0.2, 0.5, 0.0)
    found = family(one(size, (0, 0, 0.49), FLAT, FLAT))
    assert np.allclose(found.gap[0], [-0.01, 0.99, -0.01, -0.01]) and np.allclose(
        found.point[0, :, 2][[0, 2, 3]], -0.005
    )
    assert np.allclose(found.point[0, [0, 2, 3]].mean(0)[:2], 0) and np.allclose(found.point[0, 0, :2], [0.2, 0])
    found = family(one(size, (0, 0, 0.2), ALONG_X, FLAT))
    assert np.allclose(found.gap[0, :2], 0) and np.allclose(sorted(found.point[0, :2, 0].tolist()), [-0.5, 0.5])
    tilt = 0.3
    found = family(one(size, (0, 0, 1.0), (0, tilt, 0), FLAT))
    assert np.isclose(found.least[0], 1 - 0.5 * np.cos(tilt) - 0.2 * np.sin(tilt))


def test_a_box_on_an_edge_over_a_plane_has_both_ends():
    for turn in ((np.pi / 4, 0, 0), (np.pi / 4 + 1e-9, 0, 0), (np.pi / 4 - 1e-9, 0, 0)):
        found = FAMILIES["box_plane"](one((0.1, 0.1, 0.1), (0, 0, 0.1 * np.sqrt(2)), turn, FLAT))
        assert np.allclose(found.gap[0].sort().values[:2], 0, atol=1e-9)


@pytest.mark.parametrize("name", ["sphere_plane", "capsule_plane", "cylinder_plane", "box_plane"])
def test_degenerate_shapes_over_a_plane_are_finite(name):
    finite(FAMILIES[name], every(HALVES if name == "box_plane" else ROUND, PLACES, TURNS, [FLAT]))


def four(given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Four times the same pair: a world of a family of hulls."""
    return {k: torch.cat([v] * 4) for k, v in given.items()}


def test_cubes_touch_as_boxes_do():
    """The same places, in any order, wherever both take one axis; their faces are grown by different lengths."""
    _, given = case("box and box", 5, 400)
    one_way, other = FAMILIES["box_box"](given), FAMILIES["cube_cube"](given)
    same = (one_way.normal[:, 0] - other.normal[:, 0]).abs().amax(-1).numpy() < 1e-9
    assert same.mean() > 0.9
    for i in np.flatnonzero(same):
        a, b = (f.point[i].numpy()[f.exists[i]] for f in (one_way, other))
        assert len(a) == len(b) and np.allclose(a[np.lexsort(a.round(7).T)], b[np.lexsort(b.round(7).T)], atol=1e-4)


def test_a_prism_stands_on_a_prism_on_eight_places_around():
    found = FAMILIES["cylinder_cylinder"](four(one((0.2, 0.1, 0), (0, 0, 0.19), FLAT, (0.3, 0.1, 0))))
    points = found.point[0].numpy()[found.exists[0]]
    assert 5 <= len(points) <= 8 and np.allclose(found.gap[0][found.exists[0]], -0.01)
    assert np.allclose(np.linalg.norm(points[:, :2], axis=1), 0.2, rtol=0.01)
    around = np.sort(np.arctan2(points[:, 1], points[:, 0]))
    assert np.diff(np.r_[around, around[0] + 2 * np.pi]).max() < np.pi / 2


@pytest.mark.parametrize("tilt", [0.0, 1e-9, 0.005])
@pytest.mark.parametrize("spin", [0.0, 0.3, np.pi / 4])
def test_a_cube_over_a_plane_has_its_four_lower_corners(tilt, spin):
    family = hull_family("hull_plane", "cube", "none")
    turn = torch.tensor([[tilt, 0, 0], [0, 0, spin]], dtype=torch.float64)
    R = rotation(turn[0]) @ rotation(turn[1])
    given = four(one((0.1, 0.2, 0.3), (0, 0, 0.3), FLAT, FLAT))
    given |= {"frame1": R.expand(4, 3, 3), "frame2": torch.eye(3, dtype=torch.float64).expand(4, 3, 3)}
    found = family(given)
    corners = torch.tensor([[x, y, -0.3] for x in (-0.1, 0.1) for y in (-0.2, 0.2)], dtype=torch.float64) @ R.T
    expected = (corners[:, 2] + 0.3).sort().values
    assert np.allclose(found.gap[0].sort().values, expected, atol=1e-12)


@pytest.mark.parametrize("name", ["sphere_hull", "capsule_cube", "hull_plane", "cube_cube", "cylinder_cylinder"])
def test_degenerate_hulls_are_finite(name):
    """Flat at rest, aligned, touching, at the centre, scaled to a plate, a line and a point."""
    scales = [(0.5, 0.5, 0.5), (0.5, 0.5, 1e-6), (0.5, 0.5, 0.0), (0.5, 0.0, 0.0), (0.0, 0.0, 0.0)]
    firsts = ROUND if name in ("sphere_hull", "capsule_cube") else scales
    finite(FAMILIES[name], every(firsts, PLACES, TURNS, scales))


FLOOR = height_field(np.zeros((9, 9)), 2.0)


@pytest.mark.parametrize("z", [0.3, 0.1, -0.2])
def test_a_flat_terrain_is_a_plane(z):
    """Also over edges and corners of triangles; one candidate."""
    family = terrain_family("ball_terrain", FLOOR)
    places = [one((0.2, 0, 0), (x, y, z), FLAT, FLAT) for x in (0.0, 0.25, 0.3, 0.5) for y in (0.0, 0.1, 0.25, -0.75)]
    found = family({k: torch.cat([pair[k] for pair in places]) for k in places[0]})
    assert np.allclose(found.gap[:, 0], z - 0.2) and np.allclose(found.normal[:, 0], [0, 0, 1])
    assert (found.gap[:, 1] == FAR).all()


def test_a_ball_in_a_valley_touches_both_sides():
    x = np.linspace(-2, 2, 9)
    family = terrain_family("ball_terrain", height_field(np.repeat(np.abs(x)[:, None], 9, 1), 2.0))
    w = np.sqrt(0.5)
    found = family(four(one((0.2, 0, 0), (0.01, 0.1, 0.3), FLAT, FLAT)))
    for c, side in enumerate((-1, 1)):
        distance, n = (0.3 + side * 0.01) * w, np.array([side * w, 0, w])
        check(found, c, distance - 0.2, tuple(np.array([0.01, 0.1, 0.3]) - 0.5 * (distance + 0.2) * n), tuple(n))


@pytest.mark.parametrize("angle", [0.02, 0.14, 0.4])  # rad
def test_a_shallow_valley_is_rounded_off(angle):
    """A ball across it: the normal turns evenly while the centre is over both faces, and nothing jumps.

    At the bottom the distance is less than that to the faces, by a quarter of d (1 / cos(angle) - 1).
    """
    slope = np.tan(angle / 2)
    x = np.linspace(-2, 2, 9)
    family = terrain_family("ball_terrain", height_field(np.repeat(slope * np.abs(x)[:, None], 9, 1), 2))
    d = 0.2  # over the faces
    across = np.linspace(-0.1, 0.1, 4001) if angle > 0.1 else np.linspace(-0.01, 0.01, 4001)
    at = np.stack([across, np.full_like(across, 0.1), slope * np.abs(across) + d / np.cos(angle / 2)], 1)
    at = np.concatenate([at, at[:3]])
    given = {k: v.expand(len(at), -1) for k, v in one((d, 0, 0), FLAT, FLAT, FLAT).items()}
    found = family({**given, "at1": torch.tensor(at)})
    gap, n = found.gap[:4001, 0].numpy(), found.normal[:4001, 0].numpy()
    assert (found.gap[:, 1] == FAR).all()
    turn, s = np.arctan2(n[:, 0], n[:, 2]), across / np.cos(angle / 2)  # along a face, from the middle
    border = d * (np.tan(angle) - np.tan(angle / 2))
    assert np.allclose(np.abs(turn[np.abs(s) > 1.01 * border]), angle / 2, atol=1e-9)
    assert np.allclose(gap[np.abs(s) > 1.01 * border], 0.0, atol=1e-9)
    assert np.abs(np.diff(turn)).max() < 0.6 * angle * np.diff(s).max() / border
    assert gap[2000] == pytest.approx(-0.25 * d * (1 / np.cos(angle) - 1), rel=1e-6) and abs(turn[2000]) < 1e-9


def test_over_a_ridge_under_a_valley_and_beyond_the_border():
    x = np.linspace(-2, 2, 9)
    ridge = terrain_family("corner_terrain", height_field(np.repeat(-np.abs(x)[:, None], 9, 1), 2.0))
    none = (0.0, 0.0, 0.0)
    distance = np.hypot(0.03, 0.3)
    found = ridge(four(one(none, (0.03, 0.1, 0.3), FLAT, FLAT)))
    check(found, 0, distance, (0.015, 0.1, 0.15), (0.03 / distance, 0, 0.3 / distance))
    valley = terrain_family("corner_terrain", height_field(np.repeat(np.abs(x)[:, None], 9, 1), 2.0))
    check(valley(four(one(none, (0, 0.1, -0.3), FLAT, FLAT))), 0, -0.3, (0, 0.1, -0.15), (0, 0, 1))
    floor = terrain_family("corner_terrain", FLOOR)
    check(floor(four(one(none, (2.3, 0.1, -0.4), FLAT, FLAT))), 0, 0.5, (2.15, 0.1, -0.2), (0.6, 0, -0.8))
    assert (floor(four(one(none, (5, 0.1, 0), FLAT, FLAT))).gap == FAR).all()
    assert (floor(four(one(none, (0, 0.1, -0.9), FLAT, FLAT))).gap == FAR).all()  # deeper than 0.8 m


@pytest.mark.parametrize("name", ["ball_terrain", "corner_terrain"])
def test_degenerate_points_on_terrain_are_finite(name):
    vertices = torch.tensor(hills().vertices[200:204])
    finite(FAMILIES[name], four(one((0.0, 0.0, 0.0), FLAT, FLAT, FLAT)) | {"at1": vertices})
    finite(FAMILIES[name], four(one((0.1, 0.1, 0.1), FLAT, FLAT, FLAT)) | {"at1": vertices})


def test_capsules_touch_cubes_as_boxes():
    """The same places wherever the kernels agree on the axis; parallel lines are none among random ones."""
    _, given = case("capsule and box", 5, 400)
    one_way, other = FAMILIES["capsule_box"](given), FAMILIES["capsule_cube"](given)
    same = np.isclose(one_way.gap, other.gap, atol=1e-9).all(1)
    assert same.mean() > 0.95
    assert np.allclose(one_way.point[same], other.point[same], atol=1e-9)
    assert np.allclose(one_way.normal[same], other.normal[same], atol=1e-9)


@pytest.mark.slow
def test_candidates_of_hulls_may_lie_apart(monkeypatch):
    """A hull, many spheres, a hull: its corners are written within their array."""
    monkeypatch.setenv("KINEMA_CHECK", "1")
    corners, faces = np.vstack([np.zeros(3), np.eye(3)]), np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    rock = Shape("mesh", mesh=Mesh(corners, faces))
    mass = MassProperties(1.0, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
    shapes = (rock, *[Shape("sphere", (0.1,))] * 12, rock)
    body = Body("body", joints=(Joint("free", "free"),), mass=mass, shapes=shapes)
    scene = kn.Scene()
    scene.add_ground()
    scene.add_robot(Robot("r", (body,)), pos=(0.0, 0.0, 3.0))
    model = kn.compile(scene)
    path = kn.simulate(model, steps=1, dt=1e-3, record=["gap"])
    assert path.recorded["gap"].shape[-1] == 2 * hulls.PLANE_CANDIDATES + 12
