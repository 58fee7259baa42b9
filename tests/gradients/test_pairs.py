"""Collision of pairs of shapes: cases by hand, gradients against central differences, and where shapes degenerate."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from kinema.contact import round
from kinema.contact.shapes import FAR
from kinema.lang import build
from pairs import NAMES, Family, compare_gradients, random_pairs

pytestmark = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")

PAIRS = 400
FAMILIES = {
    "sphere_round": Family(round.touch_sphere_round, round.SPHERE_CANDIDATES),
    "capsule_capsule": Family(round.touch_capsule_capsule, round.CAPSULE_CANDIDATES),
}


def sphere(random: np.random.Generator, n: int) -> np.ndarray:
    return np.c_[random.uniform(0.05, 0.3, n), np.zeros((n, 2))]


def capsule(random: np.random.Generator, n: int) -> np.ndarray:
    return np.c_[random.uniform(0.05, 0.2, n), random.uniform(0.05, 0.4, n), np.zeros(n)]


def box(random: np.random.Generator, n: int) -> np.ndarray:
    return random.uniform(0.05, 0.4, (n, 3))


Sizes = Callable[[np.random.Generator, int], np.ndarray]
CASES: dict[str, tuple[str, Sizes, Sizes, float]] = {  # family, sizes of both, distance of links
    "sphere and sphere": ("sphere_round", sphere, sphere, 0.6),
    "sphere and capsule": ("sphere_round", sphere, capsule, 0.7),
    "capsule and sphere": ("sphere_round", capsule, sphere, 0.7),
    "capsule and capsule": ("capsule_capsule", capsule, capsule, 0.8),
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
        assert np.allclose(other.least, found.least, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_out_of_reach_there_is_nothing(name):
    family, given = case(name, 2, 20)
    far = {**given, "at1": given["at1"] + torch.tensor([1e3, 0, 0])}
    leaves = {k: far[k].clone().requires_grad_() for k in NAMES}
    found = family({**far, **leaves})
    assert (found.gap == FAR).all() and (found.point == 0).all()
    total = found.gap.sum() + found.point.sum() + found.normal.sum()
    assert all((g == 0).all() for g in torch.autograd.grad(total, list(leaves.values())))


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


def check(found, k: int, gap: float, point: tuple[float, ...], normal: tuple[float, ...]) -> None:
    """One candidate of the first pair."""
    assert abs(found.gap[0, k].item() - gap) < 1e-12
    assert np.allclose(found.point[0, k].detach(), point, atol=1e-12)
    assert np.allclose(found.normal[0, k].detach(), normal, atol=1e-12)


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


@pytest.mark.parametrize("size1", [(0.1, 0.5, 0), (0.1, 0, 0), (0, 0.5, 0), (0, 0, 0)])
@pytest.mark.parametrize("at", [(0, 0, 0), (0, 0, 0.2), (0, 0, 0.7), (0.2, 0, 0), (0, 0, 0.5)])
@pytest.mark.parametrize("turn", [FLAT, ALONG_X, (1e-9, 0, 0), (0, 1e-3, 0), (np.pi, 0, 0)])
def test_degenerate_capsules_are_finite(size1, at, turn):
    finite(FAMILIES["capsule_capsule"], one(size1, at, turn, (0.1, 0.5, 0)))
    finite(FAMILIES["sphere_round"], one(size1, at, turn, (0.1, 0.5, 0)))
