"""Boxes that slide and turn on each other: what presses moves with them, and never jumps.

A box is led along a path on another one, overlapping it by some tenths of a millimetre, in steps of 20 micrometres.
Of every candidate that overlaps there must be one after the step with almost the same gap, place and normal, and the
other way round. How far it moved is compared with how far the boxes did.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from tests.pairs import Family, random_turns
from torch import Tensor

from kinema.contact.collision import box_box
from kinema.lang.build import compiler

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

BOXES = Family(box_box.touch_box_box, box_box.BOX_CANDIDATES)
STEPS, DEPTH = 1001, 1e-4  # m
PRESSED, DEEP = 3e-5, 1e-3  # m, overlaps that are looked at
STEEP = 40.0  # times as far as the boxes something may move in a step; a normal, per 0.05 rad as far as per metre
FINER = 500  # times: what moves so far in steps that are shorter by this too, jumps


@dataclass
class Path:
    """The first of two boxes moves, the second is at rest: sizes (3,), and at every step at and turn (n, 3)."""

    size1: np.ndarray
    size2: np.ndarray
    at: np.ndarray
    turn: np.ndarray

    def found(self, at: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Gaps, points and normals."""

        def rows(x: np.ndarray) -> Tensor:
            return torch.tensor(np.broadcast_to(x, (len(at), 3)).copy())

        sizes = {"size1": rows(self.size1), "size2": rows(self.size2)}
        still = dict.fromkeys(("turn2", "at2", "offset1", "offset2"), rows(np.zeros(3)))
        found = BOXES({"at1": rows(at), "turn1": rows(turn), **sizes, **still})
        return found.gap.numpy(), found.point.numpy(), found.normal.numpy()


def random_path(seed: int, flat: bool) -> Path:
    """Anyhow, or almost flat on each other. The height is what keeps them in touch, as a polynomial of the way."""
    random = np.random.default_rng(seed)
    size1, size2 = random.uniform(0.05, 0.1, (2, 3))
    turn = random.normal(size=3) * (0.02, 0.02, 1.0) if flat else random_turns(random, 1)[0]
    up = np.array([0.0, 0.0, 1.0]) if flat else random.normal(size=3)
    up /= np.linalg.norm(up)
    path = Path(size1, size2, np.zeros((0, 3)), np.zeros((0, 3)))
    heights, side = np.linspace(0.02, 0.4, 4001)[:, None], random.uniform(-0.04, 0.04, 3)
    gap, _, _ = path.found(side + heights * up, turn)
    touching = float(heights[np.flatnonzero(gap.min(1) < -DEPTH)[-1], 0])
    along = random.normal(size=3)
    along -= along @ up * up
    s = np.linspace(0.0, 1.0, STEPS)
    at = side + touching * up + 0.02 * s[:, None] * along / np.linalg.norm(along)
    path.turn = turn + s[:, None] * random.normal(size=3) * 0.3
    lift = np.zeros(STEPS)
    for _ in range(6):
        gap, _, normal = path.found(at + lift[:, None] * up, path.turn)
        rise = normal[np.arange(STEPS), gap.argmin(1)] @ up
        change = (-DEPTH - gap.min(1)) / np.where(np.abs(rise) > 0.2, rise, 1.0)
        lift += np.clip(np.where(gap.min(1) < 1.0, change, -1e-3), -5e-3, 5e-3)
    fit = np.polynomial.chebyshev.Chebyshev.fit(s, lift, 6)
    path.at = at + fit(s)[:, None] * up
    return path


def moves(path: Path, at: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far pressed candidates move in every step, by how far the boxes do; and whether they are pressed."""
    gap, point, normal = path.found(at, turn)
    moved = np.abs(np.diff(at, axis=0)).sum(1) + 0.2 * np.abs(np.diff(turn, axis=0)).sum(1)
    far = np.abs(gap[:-1, :, None] - gap[1:, None, :])
    far += np.linalg.norm(point[:-1, :, None] - point[1:, None], axis=-1)
    far += 0.05 * np.linalg.norm(normal[:-1, :, None] - normal[1:, None], axis=-1)
    there = np.where(gap[:-1] < -PRESSED, far.min(2), 0.0).max(1)
    back = np.where(gap[1:] < -PRESSED, far.min(1), 0.0).max(1)
    pressed = (gap.min(1) < -PRESSED) & (gap.min(1) > -DEEP)
    return np.maximum(there, back) / moved, pressed[1:] & pressed[:-1]


def jumps(path: Path) -> tuple[int, int]:
    """How often something that is pressed jumps, and how many steps that was looked at."""
    found, pressed = moves(path, path.at, path.turn)
    count = 0
    for k in np.flatnonzero(pressed & (found > STEEP)):
        s = np.linspace(0.0, 1.0, FINER + 1)[:, None]
        finer, _ = moves(path, *(x[k] + s * (x[k + 1] - x[k]) for x in (path.at, path.turn)))
        count += finer.max() > 10 * found[k]
    return count, int(pressed.sum())


@pytest.mark.parametrize("flat", [True, False])
def test_what_presses_moves_with_the_boxes(flat: bool):
    """With one pair of features there were 15 jumps on flat paths and 5 on others; with one axis at a time, 2 and 5."""
    found = np.array([jumps(random_path(seed, flat)) for seed in range(24)])
    assert found[:, 1].sum() > 15_000
    assert found[:, 0].sum() == 0


@pytest.mark.parametrize("roll", [0.02, 1e-3, 1e-4, 0.0, -1e-4, -1e-3, -0.02])
def test_an_edge_under_a_face_has_both_ends(roll: float):
    """A box, tilted by 0.3 rad, over an edge of another: the two ends of the edge under it, however it rolls.

    Its lower face is 0.2 m wide, so that one end is higher than the other by 0.2 sin(roll), to first order.
    """
    half, tilt = np.array([0.1, 0.1, 0.05]), 0.3
    path = Path(half, np.array([0.1, 0.3, 0.05]), np.zeros((0, 3)), np.zeros((0, 3)))
    gap, point, normal = path.found(np.array([[0.13, 0.0, 0.0945]]), np.array([[roll, tilt, 0.0]]))
    near = np.sort(gap[0])[:2]
    at = point[0][np.argsort(gap[0])[:2]]
    assert (np.abs(near) < 0.01).all()
    assert np.allclose(at[:, 0], 0.1, atol=5e-3) and np.allclose(np.sort(at[:, 1]), [-0.1, 0.1], atol=5e-3)
    assert near[1] - near[0] == pytest.approx(0.2 * abs(roll), rel=0.05, abs=1e-7)
    assert np.allclose(normal[0, 0], [np.sin(tilt), 0.0, np.cos(tilt)], atol=1.1 * abs(roll) + 1e-9)
