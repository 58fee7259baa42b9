"""Collision of pairs of shapes against coal: distances and depths of random configurations.

coal's distance is the Euclidean one if shapes are apart, and minus the least translation that parts them if not. Its
GJK and EPA stop at tolerances of 1e-6 by default; closed forms (spheres, capsules) are exact.
"""

from __future__ import annotations

import sys
from pathlib import Path

import coal
import numpy as np
import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from kinema.contact.collision import (
    box_box,
    capsule_hull,
    hull_hull,
    terrain,
)
from kinema.lang.build import compiler
from pairs import HULLS, Family, Found, hills, hull_family, plain_family, random_pairs, terrain_family

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

PAIRS = 1000
GJK = 2e-6  # [m], what coal's iterations leave


def sizes(kind: str, random: np.random.Generator, n: int) -> np.ndarray:
    """Of spheres, capsules, cylinders or boxes, as in `Shapes`."""
    if kind == "box":
        return random.uniform(0.05, 0.4, (n, 3))
    if kind == "plane":
        return np.zeros((n, 3))
    if kind == "hull":
        scale = random.uniform(0.7, 1.3, (n, 3))
        scale[2::4] *= 0.2  # the cube is large
        return scale
    half = np.zeros(n) if kind == "sphere" else random.uniform(0.05, 0.4, n)
    return np.c_[random.uniform(0.05, 0.25, n), half, np.zeros(n)]


def solid(kind: str, size: np.ndarray, i: int) -> coal.CollisionGeometry:
    """The same in coal, which counts whole lengths; of the i-th pair."""
    if kind == "hull":
        points = coal.StdVec_Vec3s()
        for corner in HULLS["hull"][i % 4].vertices * size:
            points.append(corner)
        return coal.Convex.convexHull(points, False, "")
    if kind == "box":
        return coal.Box(*(2 * size))
    if kind == "plane":
        return coal.Halfspace(np.array([0.0, 0.0, 1.0]), 0.0)
    if kind == "sphere":
        return coal.Sphere(size[0])
    return {"capsule": coal.Capsule, "cylinder": coal.Cylinder}[kind](size[0], 2 * size[1])


def poses(given: dict[str, Tensor], k: int) -> list[coal.Transform3s]:
    """Of the shapes of one side in the world."""
    R = given[f"frame{k}"] @ given[f"inner{k}"]
    at = given[f"at{k}"] + (given[f"frame{k}"] @ given[f"offset{k}"][..., None])[..., 0]
    return [coal.Transform3s(a, b) for a, b in zip(R.numpy(), at.numpy(), strict=True)]


def coal_distance(one: coal.CollisionGeometry, X: coal.Transform3s, two: coal.CollisionGeometry, Y: coal.Transform3s):
    """Signed distance and unit normal from the second to the first."""
    request, result = coal.DistanceRequest(), coal.DistanceResult()
    request.enable_signed_distance = True
    request.gjk_tolerance = request.epa_tolerance = 1e-9
    request.gjk_max_iterations = request.epa_max_iterations = 1000
    d = coal.distance(one, X, two, Y, request, result)
    return d, -np.asarray(result.normal).ravel()


def compare(
    family: Family, first: str, second: str, spread: float, seed: int = 0
) -> tuple[Found, np.ndarray, np.ndarray, dict[str, Tensor]]:
    """Candidates of random pairs, coal's distances and normals, and the pairs."""
    random = np.random.default_rng(seed)
    given = random_pairs(random, PAIRS, spread)
    size = [sizes(kind, random, PAIRS) for kind in (first, second)]
    given |= {"size1": torch.tensor(size[0]), "size2": torch.tensor(size[1])}
    X, Y = poses(given, 1), poses(given, 2)
    theirs = [
        coal_distance(solid(first, size[0][i], i), X[i], solid(second, size[1][i], i), Y[i]) for i in range(PAIRS)
    ]
    return family(given), np.array([d for d, _ in theirs]), np.array([n for _, n in theirs]), given


def separation(normal: np.ndarray, given: dict[str, Tensor]) -> np.ndarray:
    """Distance of two boxes along a direction from the second to the first, negative if their shadows overlap."""
    along, size = 0.0, 0.0
    for k, sign in ((1, 1), (2, -1)):
        R = (given[f"frame{k}"] @ given[f"inner{k}"]).numpy()
        at = (given[f"at{k}"] + (given[f"frame{k}"] @ given[f"offset{k}"][..., None])[..., 0]).numpy()
        along = along + sign * (normal * at).sum(1)
        size = size + (np.abs(np.einsum("ni,nij->nj", normal, R)) * given[f"size{k}"].numpy()).sum(1)
    return along - size


def nearest_normals(found: Found) -> np.ndarray:
    """Of the candidate with the least gap."""
    return found.normal.numpy()[np.arange(len(found.gap)), found.gap.numpy().argmin(1)]


ROUND = plain_family("sphere_round")
CAPSULES = plain_family("capsule_capsule")


@pytest.mark.parametrize(
    "family, first, second",
    [(ROUND, "sphere", "sphere"), (ROUND, "sphere", "capsule"), (ROUND, "capsule", "sphere"),
     (ROUND, "capsule", "capsule"), (CAPSULES, "capsule", "capsule")],
)  # fmt: skip
def test_round_shapes(family, first, second):
    """Gap and normal of the first candidate are coal's; the second candidate of capsules is never nearer.

    If the centre lines all but meet, coal's normal is another one.
    """
    found, distance, normal, _ = compare(family, first, second, 0.8)
    assert 0.1 < (distance < 0).mean() < 0.9
    assert np.allclose(found.gap[:, 0], distance, atol=1e-9)
    assert (found.gap.numpy() >= distance[:, None] - 1e-9).all()
    assert np.allclose(found.normal[:, 0], normal, atol=1e-6)


SPHERE_BOX = plain_family("sphere_box")
CAPSULE_BOX = plain_family("capsule_box")


def test_sphere_and_box():
    found, distance, _, _ = compare(SPHERE_BOX, "sphere", "box", 0.8)
    assert 0.1 < (distance < 0).mean() < 0.9
    assert np.allclose(found.gap[:, 0], distance, atol=GJK)


def test_capsule_and_box():
    """Also with the centre line through the box: the deepest place over the face or edge by which it leaves."""
    found, distance, _, _ = compare(CAPSULE_BOX, "capsule", "box", 0.9)
    assert (distance < -0.25).mean() > 0.1 and (distance > 0).mean() > 0.1  # 0.25 m is the largest radius
    assert np.allclose(found.least, distance, atol=GJK)


BOX_BOX = plain_family("box_box")


def test_box_and_box():
    """Definitions differ: our gaps are between places on both surfaces along a mean of the best of fifteen axes.

    Overlapping: the axis is coal's, or a mean of almost equal ones, and some place overlaps, none deeper than coal's
    depth along that mean (which the deepest corner may have beside the reference face). Apart: no gap is less than the
    distance, and most are equal to it; where the nearest places are a corner and an edge or corner, they are not.
    """
    found, distance, _, given = compare(BOX_BOX, "box", "box", 0.9)
    overlap, some = distance < 0, found.exists.any(1)
    fade = box_box.FADE / sum((1 / given[k].numpy()).sum(1) for k in ("size1", "size2")) + GJK
    along = separation(nearest_normals(found), given)
    same = np.abs(found.least - distance) < 1e-5
    print(f"overlap {overlap.mean():.0%}; same gap {same[overlap].mean():.1%}, apart {same[~overlap].mean():.0%}; "
          f"apart without candidates {(~some[~overlap]).mean():.0%}")  # fmt: skip
    assert 0.2 < overlap.mean() < 0.8
    assert some[overlap].all() and (found.least[overlap] < 0).all()
    assert (along < distance + GJK)[overlap].all() and (along > np.sqrt(3) * distance - fade)[overlap].all()
    assert (along > distance - fade)[overlap].mean() > 0.97
    assert (found.least > along - GJK)[overlap].all() and (found.least > distance - GJK)[~overlap].all()
    assert same[overlap].mean() > 0.9 and same[~overlap].mean() > 0.6


PLANE = {
    "sphere": plain_family("sphere_plane"),
    "capsule": plain_family("capsule_plane"),
    "box": plain_family("box_plane"),
    "cylinder": plain_family("cylinder_plane"),
}


@pytest.mark.parametrize("kind", PLANE)
def test_planes(kind):
    found, distance, normal, _ = compare(PLANE[kind], kind, "plane", 1.0)
    assert 0.1 < (distance < 0).mean() < 0.9
    assert np.allclose(found.least, distance, atol=1e-9) and np.allclose(nearest_normals(found), normal, atol=1e-9)


HULL_PLANE = hull_family("hull_plane", "hull", "none")
SPHERE_HULL = hull_family("sphere_hull", "none", "hull")
CAPSULE_HULL = hull_family("capsule_hull", "none", "hull")
HULL_HULL = hull_family("hull_hull", "hull", "hull")
CYLINDERS = hull_family("hull_hull", "cylinder", "cylinder")


def test_hull_over_a_plane():
    found, distance, _, _ = compare(HULL_PLANE, "hull", "plane", 1.0)
    assert 0.1 < (distance < 0).mean() < 0.9
    assert np.allclose(found.least, distance, atol=1e-9)


def test_sphere_and_hull():
    found, distance, _, _ = compare(SPHERE_HULL, "sphere", "hull", 0.8)
    assert 0.1 < (distance < 0).mean() < 0.9
    assert np.allclose(found.least, distance, atol=GJK)


def test_capsule_and_hull():
    """Through the hull, the deepest place over the face by which the capsule leaves may be less deep than coal's."""
    found, distance, _, _ = compare(CAPSULE_HULL, "capsule", "hull", 0.7)
    through = distance < -0.25  # the largest radius
    off = found.least - distance
    print(f"through {through.mean():.0%}: same {(np.abs(off) < 1e-5)[through].mean():.1%}")
    assert through.mean() > 0.03 and (distance > 0).mean() > 0.1
    assert np.abs(off)[distance > -0.05].max() < GJK  # the least radius: certainly outside
    assert off.min() > -capsule_hull.BIAS * CAPSULE_HULL.reach - GJK
    assert (np.abs(off) < 1e-5).mean() > 0.97


def test_hull_and_hull():
    """Definitions differ as for boxes."""
    found, distance, _, _ = compare(HULL_HULL, "hull", "hull", 0.7)
    overlap, same = distance < 0, np.abs(found.least - distance) < 1e-5
    some, bias = found.exists.any(1), hull_hull.BIAS * HULL_HULL.reach + GJK
    print(f"overlap {overlap.mean():.0%}; same gap {same[overlap].mean():.1%}, apart {same[~overlap].mean():.0%}; "
          f"apart without candidates {(~some[~overlap]).mean():.0%}")  # fmt: skip
    assert 0.2 < overlap.mean() < 0.8
    assert some[overlap].all() and (found.least[overlap] < 0).all()
    assert (found.least > distance - bias)[overlap].all() and (found.least > distance - GJK)[~overlap].all()
    assert same[overlap].mean() > 0.9 and same[~overlap].mean() > 0.5


def test_cylinders_as_prisms():
    """Overlapping: along our normal true cylinders overlap by our depth, and no more than along coal's.

    Both to the sagitta of a side, 1 % of the radius, and the bias. (coal's EPA does not always find the least depth of
    cylinders, so that ours is often less.)
    """
    found, distance, _, given = compare(CYLINDERS, "cylinder", "cylinder", 0.7)
    overlap = distance < -0.01
    n, along = nearest_normals(found), 0.0
    for k, sign in ((1, 1), (2, -1)):
        R = (given[f"frame{k}"] @ given[f"inner{k}"]).numpy()
        at = (given[f"at{k}"] + (given[f"frame{k}"] @ given[f"offset{k}"][..., None])[..., 0]).numpy()
        r, half, _ = given[f"size{k}"].numpy().T
        u = (R[:, :, 2] * n).sum(1)
        along = along + sign * (n * at).sum(1) - half * np.abs(u) - r * np.sqrt(np.maximum(1 - u * u, 0))
    near = 0.01 * (given["size1"][:, 0] + given["size2"][:, 0]).numpy() + hull_hull.BIAS * CYLINDERS.reach
    assert 0.2 < overlap.mean() < 0.8 and found.exists.any(1)[overlap].all()
    assert (along > distance - near)[overlap].all()
    assert (np.abs(found.least - along) < near)[overlap].mean() > 0.9


def test_balls_on_terrain():
    """Centres above the ground: coal's distance to the triangles, or less where a shallow valley is rounded off."""
    random = np.random.default_rng(0)
    family, mesh = terrain_family("ball_terrain", hills()), hills()
    n = 400
    given = random_pairs(random, n, 1.0)
    given |= {k: torch.zeros(n, 3, dtype=torch.float64) for k in ("offset1", "size1", "size2")}
    given["size1"][:, 0] = torch.tensor(random.uniform(0.01, 0.4, n))  # half length 0: all points are centres
    soup = coal.BVHModelOBBRSS()
    soup.beginModel(len(mesh.faces), len(mesh.vertices))
    for face in mesh.faces:
        soup.addTriangle(*mesh.vertices[face])
    soup.endModel()
    X, Y = poses(given, 1), poses(given, 2)
    tiny = 1e-6
    distance = np.array([coal_distance(coal.Sphere(tiny), a, soup, b)[0] + tiny for a, b in zip(X, Y, strict=True)])
    found = family(given, 0.3)
    gap, r = found.gap[:, 0].numpy(), given["size1"][:, 0].numpy()
    near = distance < r + 0.3
    away = found.exists[:, 0] & (gap + r > 1e-3)
    off = (distance - gap - r)[away]
    most = 0.25 * (1 / terrain.VALLEY - 1) * distance[away]
    assert 0.3 < away.mean() < 1 and (off > -1e-5).all() and (off < most + 1e-5).all()
    assert 0.6 < (off < 1e-5).mean() < 0.99
    assert (near | ~found.exists[:, 0])[gap + r > 0].all()
    below = found.exists[:, 0] & (gap + r < -1e-3)
    assert below.mean() > 0.05
    assert np.allclose(-(gap + r)[below], distance[below], atol=1e-5)
