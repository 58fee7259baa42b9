"""Convex hulls: corners, flat faces, Euler's formula, points inside; against coal on random points."""

from __future__ import annotations

import coal
import numpy as np
import pytest

from kinema.errors import InputError
from kinema.scene.convex_hull import Hull, convex_hull, cube, prism


def check(hull: Hull, points: np.ndarray) -> None:
    """Closed, convex, around all points, every corner on at least three faces."""
    x = hull.vertices
    sides = [(a, b) for loop in hull.faces for a, b in zip(loop, loop[1:] + loop[:1], strict=True)]
    assert len(set(sides)) == len(sides) == 2 * len(hull.edges)
    assert {(b, a) for a, b in sides} == set(sides)
    assert len(x) - len(hull.edges) + len(hull.faces) == 2
    size = np.abs(points - points.mean(0)).max()
    for loop in hull.faces:
        normal = np.cross(x[loop[1]] - x[loop[0]], x[loop[2]] - x[loop[0]])
        normal /= np.linalg.norm(normal)
        assert np.abs((x[list(loop)] - x[loop[0]]) @ normal).max() < 1e-5 * size
        assert ((points - x[loop[0]]) @ normal).max() < 1e-5 * size + hull.missed
    for a, b, left, right in hull.edges:
        loops = [hull.faces[left], hull.faces[right]]
        assert (a, b) in list(zip(loops[0], loops[0][1:] + loops[0][:1], strict=True))
        assert (b, a) in list(zip(loops[1], loops[1][1:] + loops[1][:1], strict=True))
    assert set(v for loop in hull.faces for v in loop) == set(range(len(x)))


@pytest.mark.parametrize("n", [4, 5, 10, 60, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_random_points(n, seed):
    points = np.random.default_rng(seed).normal(size=(n, 3)) * [1, 2, 0.3] + 5
    hull = convex_hull(points, most=10**6)
    check(hull, points)
    assert hull.missed < 1e-6
    theirs = coal.StdVec_Vec3s()
    for p in points:
        theirs.append(p)
    assert len(hull.vertices) == coal.Convex.convexHull(theirs, False, "").num_points


def test_a_cube_with_points_on_its_faces_and_edges_has_eight_corners_and_six_faces():
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 5)] * 3), -1).reshape(-1, 3)
    for points in (grid, grid[np.random.default_rng(0).permutation(len(grid))], np.concatenate([grid, grid])):
        hull = convex_hull(points * [0.3, 0.2, 0.1])
        check(hull, points * [0.3, 0.2, 0.1])
        assert len(hull.vertices) == 8 and sorted(map(len, hull.faces)) == [4] * 6 and len(hull.edges) == 12


def test_the_cube_and_a_prism():
    check(cube(), cube().vertices)
    hull = prism(24)
    check(hull, hull.vertices)
    assert len(hull.vertices) == 48 and sorted(map(len, hull.faces)) == [4] * 24 + [24] * 2


def test_a_hull_cut_short_misses_little():
    points = np.random.default_rng(0).normal(size=(2000, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    hull = convex_hull(points, 64)
    check(hull, points)
    # A sphere by 64 corners: caps of 4 pi / 64, so about 0.06 high, and the greedy choice is not the best one.
    assert len(hull.vertices) <= 64 and hull.missed < 0.12


@pytest.mark.parametrize(
    "points", [np.zeros((0, 3)), np.zeros((5, 3)), np.eye(3), [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]]
)
def test_flat_points_are_refused(points):
    with pytest.raises(InputError, match="plane"):
        convex_hull(points)
