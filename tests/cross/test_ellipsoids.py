"""Ellipsoids against coal: distances of random pairs, exact where shapes are apart or overlap by less than 2 cm.

Deeper overlaps have several directions in which shapes part; there the gap is that of one of them: the shadows of both
shapes along the normal overlap by it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import coal
import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.convex_scenes import thrown, world
from tests.cross.test_convex import difference
from tests.cross.test_pairs import coal_distance, poses, sizes, solid

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.shape_kinds import weigh
from pairs import HULLS, Family, hull_family, plain_family, random_pairs

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")
PAIRS = 300
SHALLOW = 0.02  # [m]
GJK = 1e-7  # [m], what coal's iterations leave
FAMILIES = {
    "plane": plain_family("ellipsoid_plane"),
    "sphere": plain_family("ellipsoid_round"),
    "capsule": plain_family("ellipsoid_round"),
    "ellipsoid": plain_family("ellipsoid_ellipsoid"),
    "box": hull_family("ellipsoid_hull", "none", "cube"),
    "hull": hull_family("ellipsoid_hull", "none", "hull"),
}


def reach(kind: str, size: np.ndarray, way: np.ndarray, i: int) -> float:
    """How far a shape reaches along a direction of its frame."""
    if kind == "hull":
        return float((HULLS["hull"][i % 4].vertices * size @ way).max())
    if kind == "box":
        return float(np.abs(way) @ size)
    if kind == "ellipsoid":
        return float(np.linalg.norm(way * size))
    return float(size[0] + size[1] * abs(way[2]))


def shadows_overlap(given: dict[str, Tensor], kinds: tuple[str, str], normal: np.ndarray, i: int) -> float:
    """Signed distance of the shadows of pair i along a normal, from the second to the first."""
    far = 0.0
    for k, kind, way in ((1, kinds[0], -normal), (2, kinds[1], normal)):
        R = (given[f"frame{k}"] @ given[f"inner{k}"])[i].numpy()
        at = (given[f"at{k}"][i] + given[f"frame{k}"][i] @ given[f"offset{k}"][i]).numpy()
        far += way @ at + reach(kind, given[f"size{k}"][i].numpy(), R.T @ way, i)
    return -far


@pytest.mark.parametrize("kind", FAMILIES)
def test_distances_are_those_of_coal(kind: str):
    family: Family = FAMILIES[kind]
    random = np.random.default_rng(1)
    given = random_pairs(random, PAIRS, 0.8)
    half, other = random.uniform(0.05, 0.4, (PAIRS, 3)), kind
    size = random.uniform(0.05, 0.4, (PAIRS, 3)) if kind == "ellipsoid" else sizes(other, random, PAIRS)
    given |= {"size1": torch.tensor(half), "size2": torch.tensor(size)}
    found = family(given)
    X, Y = poses(given, 1), poses(given, 2)
    apart = shallow = 0
    for i in range(PAIRS):
        second = coal.Ellipsoid(*size[i]) if kind == "ellipsoid" else solid(other, size[i], i)
        theirs, normal = coal_distance(coal.Ellipsoid(*half[i]), X[i], second, Y[i])
        ours, n = float(found.gap[i, 0]), found.normal[i, 0].numpy()
        if kind != "plane":
            assert abs(shadows_overlap(given, ("ellipsoid", kind), n, i) - ours) < 1e-12
        if theirs > -SHALLOW:
            assert abs(ours - theirs) < GJK, (i, ours, theirs)
            assert np.abs(n - normal).max() < 1e-3 or abs(theirs) < 1e-3
        apart, shallow = apart + (theirs > 0), shallow + (-SHALLOW < theirs <= 0)
    assert apart > 50 and shallow > 2


MUJOCO = {
    "plane": (world(thrown("<geom type='ellipsoid' size='.1 .15 .07' euler='20 30 0' condim='3'/>", 0.12)), 1e-10),
    "ball": (
        world(
            thrown("<geom type='ellipsoid' size='.1 .15 .07'/>", 0.08)
            + "<body pos='.02 .03 .25'><freejoint/><geom size='.08'/></body>",
            "ccd_tolerance='1e-12' ccd_iterations='200'",
        ),
        1e-7,
    ),
}


@pytest.mark.parametrize("name", MUJOCO)
def test_states_are_those_of_mujoco(name: str):
    """In the law "convex", over 100 steps; MuJoCo's search for the contact of a ball is iterative."""
    text, close = MUJOCO[name]
    worst, most = difference(text, 2, speed=0.3)
    assert worst < close and most > 3, (worst, most)


def test_mass_is_that_of_mujoco():
    """And soft matter refuses to touch it."""
    model = kn.compile(robot_of("<geom type='ellipsoid' size='.1 .15 .07' density='700'/>"))
    twin = mujoco.MjModel.from_xml_string(world(thrown("<geom type='ellipsoid' size='.1 .15 .07' density='700'/>", 1)))
    assert model.tree.mass[-1] == pytest.approx(twin.body_mass[1], rel=1e-14)
    volume, _, inertia = weigh(kn.Ellipsoid((0.1, 0.15, 0.07)))
    assert np.sort(700 * np.diag(inertia)) == pytest.approx(np.sort(twin.body_inertia[1]), rel=1e-12)
    scene = robot_of("<geom type='ellipsoid' size='.1 .15 .07'/>")
    scene.add_solid(kn.shapes.block((1, 1, 1), 0.1), "solid")
    with pytest.raises(kn.ModelError, match="soft matter cannot touch the ellipsoid"):
        kn.compile(scene)


def robot_of(geom: str) -> kn.Scene:
    scene = kn.Scene()
    scene.add_robot(kn.read_mjcf(world(thrown(geom, 1))), "robot")
    return scene
