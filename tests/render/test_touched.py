"""Lists of the pixels that faces touch, against distances in plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kinema.lang import Float, Int, ivec2, ivec3, vec2, vec3
from kinema.lang.autograd.rollout import rollout
from kinema.lang.programs.program import Program
from kinema.rendering.rasteriser import CUT, row_length
from kinema.rendering.softras import LONGEST, NOWHERE, touched_pixels

FACES = 60
SIGMA = 3e-4
BEHIND, BACKMOST = 0.4, 6.0  # [m]
DTYPES = (torch.float32, torch.float64)
SIZES = ((27, 20), (48, 33), (130, 70))  # ends of rows with and without pixels to spare, many blocks in a row


def screen_of(seed: int) -> np.ndarray:
    """Corners on the screen, shape (FACES, 3, 3): tiny and wide faces, slivers, faces that end outside; 1/z [1/m]."""
    rng = np.random.default_rng(seed)
    size = np.repeat([0.03, 0.3, 1.5], FACES // 3)[:, None, None]
    flat = rng.uniform(-1.3, 1.3, (FACES, 1, 2)) + size * rng.uniform(-1.0, 1.0, (FACES, 3, 2))
    flat[::7, 2] = 0.6 * flat[::7, 0] + 0.4 * flat[::7, 1] + 1e-3
    return np.concatenate([flat, 1.0 / rng.uniform(1.0, 8.0, (FACES, 3, 1))], -1)


def listed(
    screen: np.ndarray, size: tuple[int, int], hidden: tuple[float, float], dtype: torch.dtype, room: int = 200_000
) -> tuple[dict[int, list[tuple[int, int]]], np.ndarray, np.ndarray, int]:
    """Pixels by face; the front face of every pixel; lengths of pieces; what room was needed."""
    p = Program("lists")
    pieces = FACES + room // LONGEST + 16
    reads = (
        p.parameter("screen", vec3, 3 * FACES),
        p.constant("corners", ivec3, np.arange(3 * FACES).reshape(-1, 3).tolist()),
        p.constant("size", ivec2, [size]),
        p.constant("sigma", Float, [SIGMA]),
        p.constant("hidden", vec2, [hidden]),
    )
    lengths = {"pixels": room, "pieces": pieces, "batches": 1, "first": row_length(size[0]) * size[1], "needed": 1}
    kinds = {"pixels": ivec2, "pieces": ivec3}
    writes = [p.output(name, kinds.get(name, Int), length) for name, length in lengths.items()]
    p.call(touched_pixels, *reads, *writes)
    given = {"screen": torch.tensor(screen.reshape(-1, 3), dtype=dtype)}
    found = {k: v[0].numpy() for k, v in rollout(p, 1, {}, given, record=tuple(lengths)).outputs.items()}
    by_face: dict[int, list[tuple[int, int]]] = {f: [] for f in range(FACES)}
    used = found["pieces"][: 16 * int(found["batches"].item())]
    for f, begin, end in used:
        by_face[int(f)] += [(int(x), int(y)) for x, y in found["pixels"][begin:end]]
    first = found["first"].reshape(size[1], -1)
    return by_face, first, used[:, 2] - used[:, 1], int(found["needed"].item())


def plain(screen: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whether pixels are inside; squared distances to the outline; depths [m]; shape (FACES, height, width)."""
    x, y = ((2 * np.arange(n) + 1 - n) / min(size) for n in size)
    at = np.stack(np.meshgrid(x, y), -1)
    inside, distance, depth = [], [], []
    for face in screen:
        p = face[:, None, None, :2] - at
        cross = [p[k, ..., 0] * p[k - 2, ..., 1] - p[k, ..., 1] * p[k - 2, ..., 0] for k in range(3)]  # k, next corner
        w = np.stack([cross[1], cross[2], cross[0]])
        w = w / w.sum(0)
        edges = [face[k - 2, :2] - face[k, :2] for k in range(3)]
        along = [np.clip(-(p[k] @ e) / (e @ e), 0.0, 1.0) for k, e in enumerate(edges)]
        nearest = [((p[k] + along[k][..., None] * e) ** 2).sum(-1) for k, e in enumerate(edges)]
        inside.append((w >= 0.0).all(0)), distance.append(np.min(nearest, 0))
        clipped = np.maximum(w, 0.0)
        depth.append(clipped.sum(0) / np.tensordot(face[:, 2], clipped, 1))
    return np.stack(inside), np.stack(distance), np.stack(depth)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_pixels_are_those_inside_or_within_reach(size: tuple[int, int], dtype: torch.dtype):
    screen = screen_of(size[0])
    by_face, first, lengths, _ = listed(screen, size, (NOWHERE, NOWHERE), dtype)
    inside, distance, depth = plain(screen, size)
    slack = 1e-3 if dtype == torch.float32 else 1e-9  # of the cut-off: rounding of distances, relative to reach
    surely, perhaps = inside | (distance < CUT * SIGMA * (1 - slack)), inside | (distance < CUT * SIGMA * (1 + slack))
    for f, pixels in by_face.items():
        got = np.zeros(surely[f].shape, int)
        for column, row in pixels:
            got[row, column] += 1
        assert got.max(initial=0) <= 1
        assert (got[surely[f]] == 1).all() and (got[~perhaps[f]] == 0).all()
    assert surely.any(axis=(1, 2)).sum() > FACES // 2
    assert lengths.max() == LONGEST and (np.diff(lengths) <= 0).all()
    front, at = np.where(surely, depth, np.inf).min(0), first[:, : size[0]]
    clear = (surely == perhaps).all(0) & np.isfinite(front)
    chosen = np.take_along_axis(depth, np.maximum(at, 0)[None], 0)[0]
    # Coordinates of slivers magnify rounding.
    assert (at[clear] >= 0).all() and (np.abs(chosen - front)[clear] < (2e-2 if dtype == torch.float32 else 1e-9)).all()
    assert (at[~perhaps.any(0)] == -1).all() and (first[:, size[0] :] == -1).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_what_is_hidden_is_not_listed(size: tuple[int, int], dtype: torch.dtype):
    """After lists without hiding, of the same thread: they were longer."""
    screen = screen_of(size[0])
    everything, first, _, _ = listed(screen, size, (NOWHERE, NOWHERE), dtype)
    by_face, first_of_kept, _, _ = listed(screen, size, (BEHIND, BACKMOST), dtype)
    assert (first == first_of_kept)[first_of_kept >= 0].all()
    _, _, depth = plain(screen, size)
    left_out = 0
    for f, pixels in everything.items():
        kept = set(by_face[f])
        assert kept <= set(pixels)
        for column, row in pixels:
            limit = min(depth[first[row, column], row, column], BACKMOST) + BEHIND
            if abs(depth[f, row, column] - limit) > (2e-2 if dtype == torch.float32 else 1e-9):  # rounding, as above
                assert ((column, row) in kept) == (depth[f, row, column] < limit)
                left_out += (column, row) not in kept
    assert left_out > 100


def test_too_little_room_is_told():
    screen, size = screen_of(1), SIZES[0]
    by_face, _, lengths, needed = listed(screen, size, (NOWHERE, NOWHERE), torch.float64)
    assert needed >= sum(map(len, by_face.values())) == lengths.sum()
    exactly, _, _, again = listed(screen, size, (NOWHERE, NOWHERE), torch.float64, room=needed)
    assert exactly == by_face and again == needed
    none, _, _, told = listed(screen, size, (NOWHERE, NOWHERE), torch.float64, room=needed - 1)
    assert told == needed and not any(none.values())
