"""The kernel benchmark compares equals: every installed peer has the values and gradients of the reference."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # benchmarks/ is not installed
    sys.path.insert(0, str(ROOT))

from benchmarks.kernels import GRADIENTS, reference, report, scene, timing  # noqa: E402

STEPS = 20

# float32 rounds at 6e-8. One step sums a few dozen terms: 1e-5 leaves two digits. Positions near rest give forces by
# cancellation (stress 1e-2 of the terms it is the difference of), and a rollout repeats it: 1e-4 for gradients.
FORWARD_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4

CASES = [
    ("kinema", {"threads": 1}),
    ("kinema", {"threads": 2}),
    ("cpp", {}),
    ("cpp", {"dtype": np.float64}),
    ("numba", {}),
    ("warp", {"mode": "graph"}),
    ("warp", {"mode": "tape"}),
    ("torch", {}),
]


@pytest.fixture(scope="module")
def block():
    return scene.make(100)


@pytest.fixture(params=CASES, ids=lambda case: "-".join([case[0], *map(_name, case[1].values())]))
def peer(request, block):
    name, arguments = request.param
    if importlib.util.find_spec(f"benchmarks.kernels.peer_{name}") is None:
        pytest.skip(f"no peer_{name}.py")
    module = importlib.import_module(f"benchmarks.kernels.peer_{name}")
    available = module.Peer.available()
    if not available:
        pytest.skip(available.reason)
    peer = module.Peer(**arguments)
    peer.prepare(block)
    return peer


def test_peer_agrees_with_float64(peer, block):
    peer.forward()
    x, v = reference.step(block)
    got = peer.results()
    assert reference.relative_error(got.x, x) < FORWARD_TOLERANCE
    assert reference.relative_error(got.v, v) < FORWARD_TOLERANCE

    # Given cotangents are taken, and used again by a call without any; the state has not moved.
    exact = reference.vjp(block, block.cot_v, block.cot_x)
    peer.vjp(block.cot_v, block.cot_x)
    assert _errors(peer, exact) == pytest.approx(dict.fromkeys(GRADIENTS, 0.0), abs=GRADIENT_TOLERANCE)
    peer.vjp()
    assert _errors(peer, exact) == pytest.approx(dict.fromkeys(GRADIENTS, 0.0), abs=GRADIENT_TOLERANCE)

    # A rollout gives the same when repeated.
    peer.vjp(block.cot_x, block.cot_v)
    x, v, exact = reference.rollout(block, STEPS, block.cot_x, block.cot_v)
    for _ in range(2):
        peer.rollout(STEPS)
        got = peer.results()
        assert reference.relative_error(got.x, x) < FORWARD_TOLERANCE
        assert reference.relative_error(got.v, v) < GRADIENT_TOLERANCE  # v comes from forces
        assert _errors(peer, exact) == pytest.approx(dict.fromkeys(GRADIENTS, 0.0), abs=GRADIENT_TOLERANCE)


def test_reference_forces_are_minus_the_gradient_of_the_energy(block):
    x, mu, lam = (a.astype(np.float64) for a in (block.x, block.mu, block.lam))
    direction = np.random.default_rng(1).normal(size=x.shape)
    h = 1e-6
    difference = (reference.energy(block, x + h * direction) - reference.energy(block, x - h * direction)) / (2 * h)
    slope = -np.sum(reference.forces(block, x, mu, lam) * direction)
    assert slope == pytest.approx(difference, rel=1e-7)


@pytest.mark.parametrize(("name", "h"), [("x", 1e-6), ("v", 1e-3), ("mu", 1e-1), ("lam", 1e-1)])
def test_reference_vjp_against_central_differences(block, name, h):
    """Along random directions; h balances truncation and rounding, so 1e-7 is what differences can tell."""
    inputs = {n: getattr(block, n).astype(np.float64) for n in GRADIENTS}
    gradient = reference.vjp(block, block.cot_x, block.cot_v)[name]
    rng = np.random.default_rng(2)

    def loss(**changed):
        x, v = reference.step(block, **(inputs | changed))
        return np.sum(block.cot_x * x) + np.sum(block.cot_v * v)

    for _ in range(5):
        direction = rng.normal(size=gradient.shape)
        difference = loss(**{name: inputs[name] + h * direction}) - loss(**{name: inputs[name] - h * direction})
        scale = np.linalg.norm(gradient) * np.linalg.norm(direction)
        assert abs(np.sum(gradient * direction) - difference / (2 * h)) < 1e-7 * scale


@pytest.mark.parametrize("n_tets", [100, 1_000])
def test_block_fills_its_volume_and_hangs_together(n_tets):
    rest, tets = scene.block(*scene.BLOCKS[n_tets])
    block = scene.make(n_tets)
    assert block.n_tets == n_tets
    assert block.volume.min() > 0
    assert block.volume.sum() == pytest.approx(np.prod(scene.BLOCKS[n_tets]) * scene.CUBE**3, rel=1e-6)
    # Every triangle belongs to two elements or lies on the surface of the block.
    triangles = np.sort(np.concatenate([np.delete(tets, corner, axis=1) for corner in range(4)]), axis=1)
    unique, count = np.unique(triangles, axis=0, return_counts=True)
    assert count.max() == 2
    corners = rest[unique[count == 1]]
    on_side = [np.all(np.isclose(corners, side), axis=1) for side in (rest.min(0), rest.max(0))]
    assert np.all(np.any(on_side, axis=(0, 2)))


def test_timing_keeps_minima():
    calls = []
    entries = [("a", lambda: calls.append("a")), ("b", lambda: calls.append("b"))]
    best = timing.interleaved_minima(entries, budget=0.0, min_rounds=2)
    assert set(best) == {"a", "b"}
    assert all(0 < seconds < 1e-3 for seconds in best.values())


def test_ratios_divide_the_other_by_kinema():
    def row(name, threads, what, microseconds, mode="m"):
        return report.Row(name, mode, threads, 10_000, what, microseconds, 1e-7)

    rows = [
        row("Warp", 1, "forward", 400.0, "graph"),
        row("Warp", 1, "forward", 500.0, "tape"),
        row("Kinema", 1, "forward", 100.0),
        row("Kinema", 2, "forward", 50.0),
    ]
    ratios = report.ratios(rows)
    assert list(ratios) == list(report.TARGETS)
    assert ratios["fem10k_fwd_vs_warp_1t"] == pytest.approx(4.0)
    assert ratios["fem10k_fwd_vs_warp_2t"] == pytest.approx(8.0)
    assert ratios["fem10k_fwd_vs_gradsim_gpu"] == pytest.approx(1e6 / 3721 / 50)
    assert ratios["fem10k_vjp_vs_warp_1t"] is None
    targets = report.build(rows, {}, {})["targets"]
    assert targets["fem10k_fwd_vs_warp_1t"]["met"] is True
    assert targets["fem10k_vjp_vs_warp_1t"]["met"] is False


def _errors(peer, exact):
    gradients = peer.results().gradients
    return {name: reference.relative_error(gradients[name], exact[name]) for name in GRADIENTS}


def _name(value):
    return getattr(value, "__name__", str(value))
