"""The report: ratios, targets, and printable tables."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.reporting import Tables, as_text, divide, note_rows, plain, ratio_rows, target

from .peer_cpp import compiler
from .startup import LIMITS

KINEMA, WARP = "Kinema", "Warp"

GRADSIM_GPU_HZ = {"forward": 3721.0, "vjp": 1429.0}
"""Steps per second at 10,000 tets on a GPU: gradSim (Murthy et al. 2021), table 4."""

RATIOS_AT = 10_000
"""Tetrahedra."""

TARGETS = {
    "fem10k_fwd_vs_warp_1t": (">=", 3.5),
    "fem10k_vjp_vs_warp_1t": (">=", 6.0),
    "fem10k_fwd_vs_warp_2t": (">=", 5.5),
    "fem10k_vjp_vs_warp_2t": (">=", 9.0),
    "fem10k_fwd_vs_gradsim_gpu": (">=", 3.0),
    "fem10k_vjp_vs_gradsim_gpu": (">=", 3.0),
}
"""Least targets of the ratios."""


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
    return {
        "benchmark": "kernels",
        "machine": on_machine,
        "rows": [plain(asdict(row)) for row in rows],
        "skipped": skipped,
        "ratios": measured,
        "targets": {name: target(TARGETS, name, measured[name]) for name in TARGETS},
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


def tables(report: dict[str, Any]) -> Tables:
    """The report as printed tables: title, columns, rows of text."""
    whats = list(dict.fromkeys(row["what"] for row in report["rows"]))
    lines: dict[tuple[int, str, str, int], dict[str, Any]] = {}
    for row in sorted(report["rows"], key=lambda row: row["tets"]):
        key = (row["tets"], row["name"], row["mode"], row["threads"])
        line = lines.setdefault(key, dict(zip(("tets", "technology", "mode", "threads"), key, strict=True)))
        line |= {f"{row['what']} [us]": row["microseconds"], f"{row['what']}: error": row["gradient_error"]}
    columns = dict.fromkeys(("tets", "technology", "mode", "threads"))
    columns |= {name: None for what in whats for name in (f"{what} [us]", f"{what}: error")}
    limits = [{"what": name, "limit": LIMITS[name], "measured": value} for name, value in report["startup"].items()]
    made = [
        ("Least time, and relative error of the gradient", [columns | line for line in lines.values()]),
        ("Ratios (a_vs_b: time of b / time of a)", ratio_rows(TARGETS, report["ratios"])),
        ("SIMD against scalar C++ of the same source", report["simd_factor"]),
        ("Start-up and overhead", limits),
        ("Notes", note_rows((), report["skipped"])),
    ]
    return as_text(made)


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
