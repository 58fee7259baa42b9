"""The benchmark of rendering compares what it says: the same spheres, right gradients, ratios of the right numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # benchmarks/ is not installed
    sys.path.insert(0, str(ROOT))

from benchmarks.render import memory, peer_deodr, peer_kinema, report, run, scene  # noqa: E402

CASE = scene.Case(324, 64, 1)


@pytest.mark.parametrize("triangles", scene.SPHERES)
def test_spheres_have_the_sizes_that_are_stated(triangles: int):
    case = scene.Case(triangles, 64, 2)
    assert case.faces.shape == (triangles, 3) and case.vertices.shape[0] == 2
    a, b, c = (case.mesh[0][case.faces[:, k]] for k in range(3))
    assert ((np.cross(b - a, c - a) * a).sum(-1) > 0).all(), "some faces look inwards"


@pytest.mark.parametrize("mode", ["dibr", "soft"])
def test_float32_is_near_float64(mode: str):
    """Rounding of 6e-8, amplified by 1 / sigma = 7,000 of outlines, or 1 / gamma = 10,000 of occlusion."""
    peer = peer_kinema.Peer(mode)
    peer.prepare(CASE)
    assert peer.gradient_error() < 1e-3
    inside, outside = peer.native_seconds()
    assert inside > 0 and outside > 0


@pytest.mark.skipif(not peer_deodr.Peer.available(), reason="DEODR is not installed")
def test_deodr_draws_the_same_sphere_and_has_right_gradients():
    theirs = peer_deodr.Peer()
    theirs.prepare(CASE)
    assert theirs.gradient_error() < 1e-4  # central differences of kinks lose digits
    ours = peer_kinema.Peer("dibr", dtype=torch.float64)
    ours.prepare(CASE)
    covered = ours._draw().detach().numpy().sum(-1) > 0.05
    found = theirs._view.draw(CASE.vertices[0], None).sum(-1) > 0.05
    assert (covered == found).mean() > 0.97  # outlines are soft in two ways


@pytest.mark.skipif(not peer_deodr.Peer.available(), reason="DEODR is not installed")
def test_processes_have_the_gradients_of_one():
    case = scene.Case(324, 64, 3)
    one, two = peer_deodr.Peer(1), peer_deodr.Peer(2)
    try:
        for peer in (one, two):
            peer.prepare(case)
            peer.forward()
            peer.both()
        np.testing.assert_array_equal(one.gradients(), two.gradients())
    finally:
        two.close()


def test_memory_is_measured():
    peak = memory.measure("soft", 324, 64, 4)
    if peak is None:
        pytest.skip("no high-water mark of resident memory here")
    assert 0 <= peak < 50


def row(engine: str, mode: str, threads: int, pixels: int, batch: int, both: float, overhead: float | None = None):
    native = None if overhead is None else both - 1e-3 * overhead
    return report.Row(engine, mode, threads, 324, pixels, batch, 0.5 * both, both, native, overhead, 0.0)


def test_ratios_divide_the_other_by_kinema():
    rows = [row("DEODR", "Scene3D", 1, p, 1, t) for p, t in ((64, 2.0), (128, 8.0), (256, 6.0))]
    rows += [row("Kinema", "dibr", 1, p, 1, t, 100.0) for p, t in ((64, 1.0), (128, 2.0), (256, 3.0))]
    rows += [row("Kinema", "soft", 1, p, 1, t, 200.0) for p, t in ((64, 0.5), (128, 4.0), (256, 60.0))]
    rows += [
        row("DEODR", "Scene3D", 1, 64, 16, 30.0),
        row("DEODR", "Scene3D", 2, 64, 16, 24.0),
        row("Kinema", "dibr", 2, 64, 16, 4.0),
    ]
    found = report.ratios(rows, [report.Film("dibr", 60, 2_024, 256, 321.0)])
    assert (found["dibr_fwdbwd_vs_deodr_min"], found["dibr_batch16_2t_vs_deodr_min"]) == (2.0, 7.5)
    assert found["dibr_batch16_2t_vs_deodr_2p_min"] == 6.0
    assert found["dibr_fwdbwd_vs_deodr_mean"] == pytest.approx(16 ** (1 / 3))
    assert found["softras_fwdbwd_vs_deodr_min"] == 2.0  # at 64 and 128 pixels
    assert found["overhead_us_below_1ms"] == 200.0
    assert found["overhead_share_above_1ms"] == pytest.approx(0.1 / 1.9)
    assert found["film60_dibr_mb"] == 321.0 and found["film60_soft_mb"] is None
    built = report.build(rows, [], {"Mitsuba": "absent"}, {})
    assert set(report.TARGETS) <= set(built["ratios"]) and json.loads(json.dumps(built)) == built
    assert built["targets"]["dibr_fwdbwd_vs_deodr_min"]["met"] is True
    assert built["targets"]["dibr_batch16_2t_vs_deodr_mean"]["met"] is True
    assert built["targets"]["film60_dibr_mb"]["met"] is False
    assert any("Mitsuba: absent" in cell for _, _, lines in report.tables(built) for line in lines for cell in line)


@pytest.mark.slow
def test_a_quick_run_fills_the_report():
    result = run.measure(quick=True)
    assert {row["mode"] for row in result["rows"] if row["engine"] == "Kinema"} == {"dibr", "soft"}
    assert all(row["both_ms"] > row["forward_ms"] > 0 for row in result["rows"] if row["engine"] == "PyTorch")
    plain = next(row for row in result["rows"] if row["engine"] == "PyTorch")
    assert plain["gradient_error"] < 1e-10  # the same image in two float64 programs
