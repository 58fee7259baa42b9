"""Formats measurements as tables, or as one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.kernels import report as kernels_report
from benchmarks.reporting import Tables, as_text, divide, note_rows, plain, ratio_rows, target

from .scene import CLOTH, SOLID

GRADSIM_GPU_HZ = {
    100: (9057.0, 3721.0),
    200: (9057.0, 3780.0),
    400: (8751.0, 3750.0),
    1_000: (4174.0, 1644.0),
    2_000: (3967.0, 1655.0),
    5_000: (3871.0, 1553.0),
    10_000: (3721.0, 1429.0),
}
"""Steps per second of gradSim's physics on a GPU, forward and backward [Jatavallabhula et al. 2021, table 4]."""

TARGETS: dict[str, tuple[str, float]] = {
    "fem10k_fwd_vs_warp": (">=", 5.0),
    "fem10k_bwd_vs_warp": (">=", 7.0),
    "fem10k_fwd_vs_warp_1t": (">=", 3.0),
    "fem10k_bwd_vs_warp_1t": (">=", 4.5),
    "fem10k_fwd_vs_gradsim_gpu": (">=", 3.0),
    "fem10k_bwd_vs_gradsim_gpu": (">=", 3.0),
    "fem_least_fwd_vs_gradsim_gpu": (">=", 1.0),
    "fem_least_bwd_vs_gradsim_gpu": (">=", 1.0),
    "fem_growth_fwd": ("<=", 1.3),
    "fem_growth_bwd": ("<=", 1.3),
    "fem_growth_fwd_1t": ("<=", 1.3),
    "fem_growth_bwd_1t": ("<=", 1.3),
    "gear5760_mb": ("<=", 150.0),
    "gear5760_auto_mb": ("<=", 20.0),
}
"""Targets of the ratios: two threads, or one if the name says so. `fem_growth_*` is the largest time per tetrahedron
from 1,000 to 100,000 of them over that at 1,000; `fem_least_*` the least ratio over all sizes of gradSim's table;
`gear5760_*` is in megabytes."""

NOTES = (
    "forward_us, backward_us: least time of a rollout, divided by its steps, or of a rollout of one step, including the"
    " overhead of the call (Python, checks, packing). call_ms, backward_call_ms: least time of a rollout of"
    " one step. backward: torch.autograd.grad of a stored rollout with checkpoint=1, or Warp's adjoint launches from"
    " stored states.",
    "gradient_error: largest relative error among the gradients to x, v, mu and lam after a rollout of error_steps"
    " steps, against Kinema in float64, whose rest shapes are float64 as well.",
    "touching, touching_end: fraction of the vertices in contact, at the start and at the end of Kinema's rollout.",
    "Warp: CPU graph replay, one thread (its maximum); contact is fused with the step, air with the membrane, and"
    " uniform parameters are scalars. Kinema reads them from arrays, one per element.",
    "gradSim: its own law (no viscosity in the sense used here), its own GPU.",
    "memory: rise of the resident high-water mark over a rollout and its gradients to x, v, mu and lam, in a separate"
    " process.",
)


@dataclass(frozen=True)
class Row:
    """One engine in one scene; `NOTES` explains the fields."""

    engine: str
    mode: str
    threads: int
    kind: str
    elements: int
    vertices: int
    steps: int
    forward_us: float
    backward_us: float
    call_ms: float
    backward_call_ms: float
    gradient_error: float
    error_steps: int
    touching: float
    touching_end: float


@dataclass(frozen=True)
class MemoryRow:
    """Rise of the peak memory over a rollout of the gear and its gradient [MB]."""

    tets: int
    steps: int
    checkpoint: int | str
    memory_budget_mb: float | None
    peak_mb: float | None


def ratios(rows: Sequence[Row], memory: Sequence[MemoryRow]) -> dict[str, float | None]:
    """Kinema against Warp and gradSim, growth and memory; None if not measured.

    `a_vs_b` is b's time divided by a's.
    """
    found: dict[str, float | None] = {}
    for threads, ending in ((2, ""), (1, "_1t")):
        for short, what in (("fwd", "forward_us"), ("bwd", "backward_us")):
            own = {kind: _times(rows, "Kinema", kind, threads, what) for kind in (SOLID, CLOTH)}
            warp = {kind: _times(rows, "Warp", kind, 1, what) for kind in (SOLID, CLOTH)}
            found[f"fem10k_{short}_vs_warp{ending}"] = divide(warp[SOLID].get(10_000), own[SOLID].get(10_000))
            found[f"cloth20k_{short}_vs_warp{ending}"] = divide(warp[CLOTH].get(20_000), own[CLOTH].get(20_000))
            found[f"fem_growth_{short}{ending}"] = _growth(own[SOLID])
            rates = {n: both[short == "bwd"] for n, both in GRADSIM_GPU_HZ.items() if n in own[SOLID]}
            hz = {n: 1e6 / own[SOLID][n] / rate for n, rate in rates.items()}
            found[f"fem10k_{short}_vs_gradsim_gpu{ending}"] = hz.get(10_000)
            found[f"fem_least_{short}_vs_gradsim_gpu{ending}"] = min(hz.values(), default=None)
    peaks = {m.checkpoint: m.peak_mb for m in memory if m.steps == 5760}
    return found | {"gear5760_mb": peaks.get(1), "gear5760_auto_mb": peaks.get("auto")}


def build(
    rows: Sequence[Row], memory: Sequence[MemoryRow], skipped: dict[str, str], on_machine: dict[str, Any]
) -> dict[str, Any]:
    """The whole report as one object."""
    measured = ratios(rows, memory)
    return plain(
        {
            "benchmark": "deformable",
            "machine": on_machine,
            "rows": [asdict(row) for row in rows],
            "gradsim": _beside_gradsim(rows),
            "memory": [asdict(row) for row in memory],
            "skipped": skipped,
            "ratios": measured,
            "targets": {name: target(TARGETS, name, measured[name]) for name in TARGETS},
            "notes": list(NOTES),
        }
    )


def machine() -> dict[str, Any]:
    """The environment of the measurements."""
    return kernels_report.machine()


def tables(report: dict[str, Any]) -> Tables:
    """The report as printed tables: title, columns, rows of text."""
    made = [
        ("One step of soft bodies with contact and viscosity, float32", report["rows"]),
        ("Steps per second beside gradSim's GPU, most threads", report["gradsim"]),
        ("Peak memory of a rollout of the gear and its gradient", report["memory"]),
        ("Ratios (a_vs_b: time of b / time of a)", ratio_rows(TARGETS, report["ratios"])),
        ("Notes", note_rows(report["notes"], report["skipped"])),
    ]
    return as_text(made)


def _times(rows: Sequence[Row], engine: str, kind: str, threads: int, what: str) -> dict[int, float]:
    """Times of a step by number of elements [us]."""
    fits = (row for row in rows if (row.engine, row.kind, row.threads) == (engine, kind, threads))
    return {row.elements: getattr(row, what) for row in fits}


def _growth(times: dict[int, float]) -> float | None:
    """Largest time per element over that at 1,000 elements; None unless there are larger meshes."""
    large = [time / count for count, time in times.items() if count > 1_000]
    return max(large) / (times[1_000] / 1_000) if large and 1_000 in times else None


def _beside_gradsim(rows: Sequence[Row]) -> list[dict[str, Any]]:
    found = []
    for tets, (forward, backward) in GRADSIM_GPU_HZ.items():
        own = [row for row in rows if (row.engine, row.kind, row.elements) == ("Kinema", SOLID, tets)]
        if own:
            best = max(own, key=lambda row: row.threads)
            rates = 1e6 / best.forward_us, 1e6 / best.backward_us
            found.append(
                {
                    "tets": tets,
                    "threads": best.threads,
                    "forward_hz": rates[0],
                    "gradsim_forward_hz": forward,
                    "forward_ratio": rates[0] / forward,
                    "backward_hz": rates[1],
                    "gradsim_backward_hz": backward,
                    "backward_ratio": rates[1] / backward,
                }
            )
    return found
