"""Formats measurements as a table on standard error and one JSON object on standard output."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.reporting import divide, plain

from .peer_cpp import compiler
from .startup import LIMITS

KINEMA, WARP = "Kinema", "Warp"

GRADSIM_GPU_HZ = {"forward": 3721.0, "vjp": 1429.0}
"""Steps per second at 10,000 tets on a GPU: gradSim (Murthy et al. 2021), table 4."""

RATIOS_AT = 10_000
"""Tetrahedra."""

TARGETS = {
    "fem10k_fwd_vs_warp_1t": 3.5,
    "fem10k_vjp_vs_warp_1t": 6.0,
    "fem10k_fwd_vs_warp_2t": 5.5,
    "fem10k_vjp_vs_warp_2t": 9.0,
    "fem10k_fwd_vs_gradsim_gpu": 3.0,
    "fem10k_vjp_vs_gradsim_gpu": 3.0,
}
"""Least targets of the ratios."""

_ALARMING = 1e-3  # a gradient error that rounding does not explain


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        name: The technology.
        mode: Its mode of use.
        threads: CPU threads.
        tets: Size of the scene.
        what: "forward" (one step), "vjp" (of one step from its inputs) or "rollout<steps>" (forward and adjoint).
        microseconds: Least time of the whole operation.
        gradient_error: Largest relative error (Euclidean norm) among the gradients with respect to x, v, mu and lam,
            against float64: of the operation itself; for "forward", of the vjp of the same step.
    """

    name: str
    mode: str
    threads: int
    tets: int
    what: str
    microseconds: float
    gradient_error: float | None


def ratios(rows: Sequence[Row]) -> dict[str, float | None]:
    """Kinema against Warp's best mode and gradSim on a GPU at 10,000 tets; None if a side is missing.

    `a_vs_b` is b's time divided by a's.
    """
    result: dict[str, float | None] = {}
    for short, what in (("fwd", "forward"), ("vjp", "vjp")):
        warp = _least(rows, WARP, what)
        for threads in (1, 2):
            result[f"fem10k_{short}_vs_warp_{threads}t"] = divide(warp, _least(rows, KINEMA, what, threads))
        result[f"fem10k_{short}_vs_gradsim_gpu"] = divide(1e6 / GRADSIM_GPU_HZ[what], _least(rows, KINEMA, what))
    return {key: result[key] for key in TARGETS}


def build(rows: Sequence[Row], skipped: dict[str, str], on_machine: dict[str, object]) -> dict[str, object]:
    """The whole report as one object.

    Args:
        rows: All measurements.
        skipped: The reason for each peer that did not run.
        on_machine: Result of `machine` before the first measurement.
    """
    measured = ratios(rows)
    targets = {
        key: {"at_least": least, "measured": measured[key], "met": (measured[key] or 0.0) >= least}
        for key, least in TARGETS.items()
    }
    return {
        "benchmark": "kernels",
        "machine": on_machine,
        "rows": [plain(asdict(row)) for row in rows],
        "skipped": skipped,
        "ratios": measured,
        "targets": targets,
    }


def machine() -> dict[str, object]:
    """The environment of the measurements."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    packages = ("kinema", "numpy", "torch", "numba", "warp-lang")
    return {
        "cpu": _cpu(),
        "cores": cores,
        "load_average": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in packages},
            "compiler": _compiler_version(),
        },
    }


def show(report: dict[str, object], rows: Sequence[Row]) -> None:
    """Print tables on standard error: one line per technology and size, then the targets."""
    console = Console(stderr=True)
    if not console.is_terminal:
        console.width = 140
    whats = list(dict.fromkeys(row.what for row in rows))
    table = Table(title="Least time [us] and relative error of the gradient")
    for heading in ("tets", "technology", "mode", "threads"):
        table.add_column(heading, justify="left" if heading in ("technology", "mode") else "right")
    for what in whats:
        table.add_column(what, justify="right")
        table.add_column("error", justify="right", style="dim")
    lines: dict[tuple[int, str, str, int], dict[str, Row]] = {}
    for row in rows:
        lines.setdefault((row.tets, row.name, row.mode, row.threads), {})[row.what] = row
    previous = None
    for key, by_what in sorted(lines.items(), key=lambda item: item[0][0]):
        if previous not in (None, key[0]):
            table.add_section()
        previous = key[0]
        cells = [cell for what in whats for cell in _cells(by_what.get(what))]
        table.add_row(f"{key[0]:,}", key[1], key[2], str(key[3]), *cells)
    console.print(table)

    table = Table("ratio", "at least", "measured", "met", title="Targets (a_vs_b: b's time divided by a's)")
    for name, target in report["targets"].items():
        value = "-" if target["measured"] is None else f"{target['measured']:.2f}"
        table.add_row(name, f"{target['at_least']:g}", value, "[green]yes[/]" if target["met"] else "[red]no[/]")
    console.print(table)
    table = Table(
        "kernel",
        "what",
        "lanes",
        "SIMD [us]",
        "scalar [us]",
        "factor",
        title="SIMD against scalar C++ of the same source",
    )
    for row in report["simd_factor"]:
        times = (f"{row[k]:,.1f}" for k in ("simd_us", "scalar_us"))
        table.add_row(row["kernel"], row["what"], str(row["lanes"]), *times, f"{row['factor']:.2f}")
    console.print(table)
    table = Table("what", "limit", "measured", title="Start-up and overhead")
    for name, value in report["startup"].items():
        table.add_row(name, f"{LIMITS[name]:g}", f"{value:.3g}")
    console.print(table)
    for name, reason in report["skipped"].items():
        console.print(f"[yellow]not measured[/] {name}: {reason}")


def write(report: dict[str, object]) -> None:
    """Print the report as one JSON object on standard output."""
    print(json.dumps(report, indent=2, allow_nan=False))


def _cells(row: Row | None) -> tuple[str, str]:
    if row is None:
        return "-", ""
    if row.gradient_error is None:
        return f"{row.microseconds:,.1f}", "-"
    error = f"{row.gradient_error:.0e}"
    # A NaN is as alarming as a large number.
    return f"{row.microseconds:,.1f}", error if row.gradient_error < _ALARMING else f"[red]{error}[/]"


def _least(rows: Iterable[Row], name: str, what: str, threads: int | None = None) -> float | None:
    """Least time at 10,000 tets over the modes, and over the thread counts unless one is given."""
    fits = (r for r in rows if r.name == name and r.what == what and r.tets == RATIOS_AT)
    return min((r.microseconds for r in fits if threads in (None, r.threads)), default=None)


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _compiler_version() -> str | None:
    if (path := compiler()) is None:
        return None
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
