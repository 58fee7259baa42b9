"""Formats measurements as tables, or as one JSON object."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.kernels import report as kernels_report
from benchmarks.reporting import Tables, as_text, note_rows, plain, ratio_rows, target

from .scene import BATCH

TARGETS: dict[str, tuple[str, float]] = {
    "dibr_fwdbwd_vs_deodr_min": (">=", 1.2),
    "dibr_fwdbwd_vs_deodr_mean": (">=", 2.5),
    "dibr_batch16_2t_vs_deodr_min": (">=", 2.0),
    "dibr_batch16_2t_vs_deodr_mean": (">=", 5.0),
    "softras_fwdbwd_vs_deodr_min": (">=", 1.0),
    "overhead_us_below_1ms": ("<=", 150.0),
    "overhead_share_above_1ms": ("<=", 0.25),
    "film60_dibr_mb": ("<=", 500.0),
    "film60_soft_mb": ("<=", 500.0),
}
"""Targets of the ratios. Means are geometric, over all sizes; `softras_*` is the least at 64 and 128 pixels. The
overheads are the largest over all rows of Kinema's single images on one thread: over rows whose native part takes less
than 1 ms, and, as a fraction of the native part, over the others. `film60_*` is the memory of a video [MB]."""

NOTES = (
    "forward_ms, both_ms: least time (blocks of 5 ms) of all images of the batch, and of images and gradients to the"
    " vertices, including Python, camera, normals and lighting. native_ms, overhead_us: least times of both inside"
    " Kinema's native calls, and outside.",
    "Kinema: float32, lighting per pixel (ambient, diffuse, specular), vertex colours. dibr: sharp inside, outlines"
    " soft with sigma 1/7000; soft: SoftRas colours, sigma 1e-5, gamma 1e-4. gradient_error: against float64.",
    "DEODR: float64, lighting per vertex (ambient, diffuse), edges one pixel wide, its Scene3D without torch."
    " It has neither threads nor batches: threads are persistent processes that exchange vertices and gradients."
    " gradient_error: against central differences of its own image.",
    "PyTorch: the plain rasteriser of the tests, float64, the same image as Kinema's; gradient_error: against Kinema in"
    " float64.",
    "Mitsuba: Monte Carlo; gradient_error: the scatter of its estimate.",
    "memory: rise of the resident high-water mark over a video and its gradients, rendered as one batch on two threads,"
    " in a separate process.",
)


@dataclass(frozen=True)
class Row:
    """One renderer in one case; `NOTES` explains the fields."""

    engine: str
    mode: str
    threads: int
    triangles: int
    pixels: int
    batch: int
    forward_ms: float
    both_ms: float
    native_ms: float | None
    overhead_us: float | None
    gradient_error: float


@dataclass(frozen=True)
class Film:
    """Rise of the peak memory over a video and its gradient [MB]."""

    mode: str
    frames: int
    triangles: int
    pixels: int
    peak_mb: float | None


def ratios(rows: Sequence[Row], films: Sequence[Film]) -> dict[str, float | None]:
    """Kinema against DEODR, overhead and memory; None if not measured.

    `a_vs_b` is b's time divided by a's. DEODR renders image after image on one thread; `_2p`: in two processes.
    """
    found: dict[str, float | None] = {}
    single = _gains(rows, "dibr", 1, 1, 1)
    found["dibr_fwdbwd_vs_deodr_min"], found["dibr_fwdbwd_vs_deodr_mean"] = _least_and_mean(single.values())
    for processes, name in ((1, "dibr_batch16_2t_vs_deodr"), (2, "dibr_batch16_2t_vs_deodr_2p")):
        batch = _gains(rows, "dibr", 2, BATCH, processes)
        found[f"{name}_min"], found[f"{name}_mean"] = _least_and_mean(batch.values())
    soft = _gains(rows, "soft", 1, 1, 1)
    small = [gain for (_, pixels), gain in soft.items() if pixels <= 128]
    found["softras_fwdbwd_vs_deodr_min"], found["softras_fwdbwd_vs_deodr_mean"] = _least_and_mean(small)
    own = [r for r in rows if r.native_ms is not None and r.overhead_us is not None and (r.threads, r.batch) == (1, 1)]
    short = [r.overhead_us for r in own if r.native_ms < 1.0]
    shares = [1e-3 * r.overhead_us / r.native_ms for r in own if r.native_ms >= 1.0]
    found["overhead_us_below_1ms"] = max(short, default=None)
    found["overhead_share_above_1ms"] = max(shares, default=None)
    return found | {f"film60_{mode}_mb": {f.mode: f.peak_mb for f in films}.get(mode) for mode in ("dibr", "soft")}


def _gains(rows: Sequence[Row], mode: str, threads: int, batch: int, processes: int) -> dict[tuple[int, int], float]:
    """DEODR's time with this many processes over Kinema's, by triangles and pixels."""

    def times(engine: str, mode: str, threads: int) -> dict[tuple[int, int], float]:
        fits = (r for r in rows if (r.engine, r.mode, r.threads, r.batch) == (engine, mode, threads, batch))
        return {(r.triangles, r.pixels): r.both_ms for r in fits}

    theirs, ours = times("DEODR", "Scene3D", processes), times("Kinema", mode, threads)
    return {case: theirs[case] / time for case, time in ours.items() if case in theirs}


def _least_and_mean(gains: Any) -> tuple[float | None, float | None]:
    gains = list(gains)
    if not gains:
        return None, None
    return min(gains), math.exp(sum(map(math.log, gains)) / len(gains))


def build(
    rows: Sequence[Row], films: Sequence[Film], skipped: dict[str, str], on_machine: dict[str, Any]
) -> dict[str, Any]:
    """The whole report as one object."""
    measured = ratios(rows, films)
    return plain(
        {
            "benchmark": "render",
            "machine": on_machine,
            "rows": [asdict(row) for row in rows],
            "memory": [asdict(film) for film in films],
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
        ("Images of a sphere, and their gradients to its vertices", report["rows"]),
        ("Peak memory of a video and its gradient", report["memory"]),
        ("Ratios (a_vs_b: time of b / time of a)", ratio_rows(TARGETS, report["ratios"])),
        ("Notes", note_rows(report["notes"], report["skipped"])),
    ]
    return as_text(made)
