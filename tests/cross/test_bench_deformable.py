"""The benchmark of soft matter compares equals: Warp's kernels have the states and gradients of Kinema's."""

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

from benchmarks.deformable import GRADIENTS, memory, peer_kinema, peer_warp, report, run, scene  # noqa: E402

STEPS = 32
CASES = {"tets": lambda: scene.solid(100), "triangles": lambda: scene.cloth(64)}


@pytest.fixture(scope="module", params=CASES)
def case(request) -> scene.Case:
    return CASES[request.param]()


def made(peer, case: scene.Case) -> dict[str, np.ndarray]:
    peer.prepare(case, STEPS)
    peer.backward()
    return peer.results()


def test_both_have_the_states_and_gradients_of_float64(case: scene.Case):
    """Float32 rounds at 6e-8; stress is a hundredth of the terms it is the difference of, and mu and lam act through
    it alone: 1e-3 for their gradients, and for velocities. Without viscosity or contact they would be off by more."""
    exact = made(peer_kinema.Peer(dtype=torch.float64), case)
    peers = [peer_kinema.Peer(threads=2)] + ([peer_warp.Peer()] if peer_warp.Peer.available() else [])
    for peer in peers:
        got = made(peer, case)
        for name, wanted in exact.items():
            assert np.linalg.norm(got[name] - wanted) < 1e-3 * np.linalg.norm(wanted), (peer.name, name)


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("without", ["contact", "viscosity"])
def test_contact_and_viscosity_are_felt(kind: str, without: str, monkeypatch: pytest.MonkeyPatch):
    """Taken away, they change the end: the agreement above is one of them too."""
    exact = made(peer_kinema.Peer(), CASES[kind]())
    if without == "contact":
        monkeypatch.setattr(scene, "FIRM", None)
        monkeypatch.setattr(scene, "LIGHT", None)
    else:
        monkeypatch.setitem(scene.FLESH, "viscosity", 0.0)
        monkeypatch.setitem(scene.FABRIC, "viscosity", 0.0)
    other = made(peer_kinema.Peer(), CASES[kind]())
    assert np.linalg.norm(other["v"] - exact["v"]) > 1e-2 * np.linalg.norm(exact["v"])
    for name in GRADIENTS:
        changed = np.linalg.norm(other[f"grad_{name}"] - exact[f"grad_{name}"])
        assert changed > 2e-3 * np.linalg.norm(exact[f"grad_{name}"]), name


def test_a_share_of_the_vertices_touches(case: scene.Case):
    assert case.touching(case.x) == pytest.approx(1 / 3, abs=0.05)
    assert 0.1 < case.touching(made(peer_kinema.Peer(), case)["x"]) < 0.6


@pytest.mark.parametrize("tets", [n for n in scene.BLOCKS if n <= 10_000])
def test_blocks_have_the_sizes_that_are_stated(tets: int):
    assert 5 * np.prod(scene.BLOCKS[tets]) == tets == scene.solid(tets).elements


def test_the_gear_has_1152_tetrahedra():
    assert scene.toothed().elements == 1152


def test_memory_is_measured_and_the_budget_is_kept():
    steps, state = 400, 480 * 6 * 4
    whole = memory.measure(steps=steps, checkpoint=1)
    if whole is None:
        pytest.skip("no high-water mark of resident memory here")
    part = memory.measure(steps=steps, checkpoint="auto", memory_budget=2 << 20)
    # At least the states; not ten times of it.
    assert steps * state < 2**20 * whole < 10 * steps * state
    assert part < 0.75 * whole


def row(engine: str, threads: int, elements: int, forward: float, backward: float, kind: str = "tets") -> report.Row:
    return report.Row(engine, "m", threads, kind, elements, 9, 200, forward, backward, 1.0, 1.0, 0.0, 8, 0.2, 0.2)


def test_ratios_divide_the_other_by_kinema():
    rows = [row("Kinema", 2, 10_000, 100.0, 200.0), row("Kinema", 1, 10_000, 150.0, 300.0)]
    rows += [row("Warp", 1, 10_000, 600.0, 1800.0), row("Kinema", 2, 1_000, 8.0, 25.0)]
    rows += [row("Kinema", 2, 20_000, 50.0, 60.0, "triangles"), row("Warp", 1, 20_000, 200.0, 300.0, "triangles")]
    found = report.ratios(rows, [report.MemoryRow(1152, 5760, "auto", 15.0, 14.0)])
    assert (found["fem10k_fwd_vs_warp"], found["fem10k_bwd_vs_warp"]) == (6.0, 9.0)
    assert (found["fem10k_fwd_vs_warp_1t"], found["fem10k_bwd_vs_warp_1t"]) == (4.0, 6.0)
    assert (found["cloth20k_fwd_vs_warp"], found["cloth20k_bwd_vs_warp"]) == (4.0, 5.0)
    assert found["fem10k_fwd_vs_gradsim_gpu"] == pytest.approx(1e4 / 3721)
    assert found["fem_least_bwd_vs_gradsim_gpu"] == pytest.approx(min(5000 / 1429, 40_000 / 1644))
    assert found["fem_growth_fwd"] == pytest.approx(1.25) and found["fem_growth_bwd"] == pytest.approx(0.8)
    assert found["gear5760_mb"] is None and found["gear5760_auto_mb"] == 14.0
    built = report.build(rows, [], {"Warp": "absent"}, {})
    assert set(report.TARGETS) <= set(built["ratios"]) and json.loads(json.dumps(built)) == built
    assert built["targets"]["fem_growth_fwd"]["met"] is True and built["targets"]["fem_growth_fwd_1t"]["met"] is False
    assert any("Warp: absent" in cell for _, _, lines in report.tables(built) for line in lines for cell in line)


def test_a_quick_run_fills_the_report():
    result = run.measure(quick=True)
    assert {row["kind"] for row in result["rows"]} == {"tets", "triangles"}
    assert all(row["forward_us"] > 0 and row["gradient_error"] < 1e-3 for row in result["rows"])


@pytest.mark.slow
@pytest.mark.parametrize(("checkpoint", "budget", "limit"), [(1, None, 150.0), ("auto", memory.BUDGET, 20.0)])
def test_gradients_of_a_long_rollout_fit_into_little_memory(checkpoint: int | str, budget: int | None, limit: float):
    """5,760 steps of the gear of 1,152 tetrahedra [MB]; its states alone are 66 MB."""
    peak = memory.measure(steps=memory.STEPS, checkpoint=checkpoint, memory_budget=budget)
    if peak is None:
        pytest.skip("no high-water mark of memory here")
    assert peak <= limit
