"""Ratios and targets of measurements, and their tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.kernels import report as kernels_report
from benchmarks.reporting import Tables, as_text, note_rows, plain, ratio_rows, target

from .catalogue import BATCH, FREE, LIMITED

TARGETS: dict[str, tuple[str, float]] = {
    "forward_vs_mujoco_min": (">=", 1.0),
    "forward_vs_mujoco_median": (">=", 2.0),
    "backward_vs_mujoco_fd_min": (">=", 30.0),
    "jacobian_vs_mujoco_fd_min": (">=", 30.0),
    "pile1000_vs_mujoco": (">=", 1.0),
    "pile_growth_exponent": ("<=", 1.15),
    f"humanoid_batch{BATCH}_vs_mujoco": (">=", 5.0),
    "chain1000_limit_vs_free": ("<=", 4.0),
}
"""Targets of the ratios; those of the law "convex" have the same targets and the prefix `convex_`."""

PREFIX = {"mlcp": "", "convex": "convex_"}
NOTES = (
    "Times are microseconds of CPU time per step, least of interleaved repetitions, one thread, float64;"
    " self-collision in both engines.",
    "forward: kinema.simulate of all steps, and mujoco.rollout, a loop in C++; `mujoco_solver` is the quickest of"
    " Newton, CG and PGS on piles, apart and chains, Newton elsewhere, with MuJoCo's default iterations and tolerance.",
    "backward: gradient of the end to the controls of all steps (to the initial velocity without controls), beside"
    " mjd_transitionFD (forward differences, minus the loop around it) at eight states of the rollout.",
    "jacobian: kinema.linearise at 64 states of the rollout in a call (fewer with thousands of candidates), beside the"
    " same differences.",
    "contacts: mean number of loaded contacts. residual: largest relative residual of a step's contact problem (convex:"
    " 0 if converged to rounding). mujoco_residual: largest norm of its solver's last gradient.",
    "A scene that an engine refuses or cannot finish counts as a ratio of zero, with the reason in `failed`.",
    "pile_growth_exponent: of the time of a step, from 100 to 1,000 bodies, the larger one of spheres and boxes."
    " pile1000_vs_mujoco: the smaller ratio of the two.",
)


@dataclass(frozen=True)
class Row:
    """One scene with one contact law; `NOTES` explains the fields."""

    scene: str
    group: str
    law: str
    nv: int
    candidates: int
    contacts: float | None
    mujoco_contacts: float
    forward_us: float | None
    mujoco_us: float
    backward_us: float | None
    jacobian_us: float | None
    mujoco_fd_us: float | None
    residual: float | None
    mujoco_residual: float
    mujoco_solver: str
    failed: str = ""

    @property
    def forward(self) -> float:
        """MuJoCo's time over Kinema's; 0 if Kinema failed."""
        return self.mujoco_us / self.forward_us if self.forward_us else 0.0

    def line(self) -> str:
        """The measurements in a line."""
        if self.failed:
            return f"{self.law}: {self.failed}"
        slopes = [("gradient", self.backward_us), ("Jacobian", self.jacobian_us)]
        parts = [f"step {self.forward_us:.1f} us, {self.forward:.2f}x of {self.mujoco_us:.1f}"]
        parts += [f"{name} {own:.1f} us, {self.slope(own):.1f}x" for name, own in slopes if own]
        told = f"contacts {self.contacts:.1f}, {self.mujoco_contacts:.1f}, residual {self.residual:.0e}"
        return f"{self.law}: {'; '.join(parts)}; {told}"

    def slope(self, own: float | None) -> float | None:
        """MuJoCo's time of differences over this one; 0 if Kinema failed; None if not measured."""
        if self.mujoco_fd_us is None:
            return None
        return self.mujoco_fd_us / own if own else 0.0


@dataclass(frozen=True)
class BatchRow:
    """Worlds in one call; microseconds per step of a world."""

    scene: str
    law: str
    worlds: int
    forward_us: float
    mujoco_us: float


def ratios(rows: Sequence[Row], batches: Sequence[BatchRow]) -> dict[str, float | None]:
    """Least and median ratios over the scenes, and how cost grows; keys without a prefix are of the default law."""
    found: dict[str, float | None] = {}
    for law, prefix in PREFIX.items():
        own = [row for row in rows if row.law == law and row.group != "chain"]
        forward = [row.forward for row in own]
        backward = [x for row in own if (x := row.slope(row.backward_us)) is not None]
        jacobian = [x for row in own if (x := row.slope(row.jacobian_us)) is not None]
        found[f"{prefix}forward_vs_mujoco_min"] = min(forward, default=None)
        found[f"{prefix}forward_vs_mujoco_median"] = statistics.median(forward) if forward else None
        for name, values in (("backward", backward), ("jacobian", jacobian)):
            found[f"{prefix}{name}_vs_mujoco_fd_min"] = min(values, default=None)
            found[f"{prefix}{name}_vs_mujoco_fd_median"] = statistics.median(values) if values else None
        times = {row.scene: row for row in rows if row.law == law}
        piles = [times[f"1000 {kind} piled"] for kind in ("spheres", "boxes") if f"1000 {kind} piled" in times]
        found[f"{prefix}pile1000_vs_mujoco"] = min((row.forward for row in piles), default=None)
        found[f"{prefix}pile_growth_exponent"] = _growth(times)
        batch = [row.mujoco_us / row.forward_us for row in batches if row.law == law]
        found[f"{prefix}humanoid_batch{BATCH}_vs_mujoco"] = min(batch, default=None)
        limited, free = times.get(LIMITED), times.get(FREE)
        both = limited and free and limited.forward_us and free.forward_us
        found[f"{prefix}chain1000_limit_vs_free"] = limited.forward_us / free.forward_us if both else None
    return found


def _growth(times: dict[str, Row]) -> float | None:
    found = []
    for kind in ("spheres", "boxes"):
        small, large = times.get(f"100 {kind} piled"), times.get(f"1000 {kind} piled")
        if small is None or large is None:
            return None
        if not small.forward_us or not large.forward_us:
            return math.inf
        found.append(math.log10(large.forward_us / small.forward_us))
    return max(found)


def targets(found: dict[str, float | None]) -> dict[str, tuple[str, float]]:
    """The targets of all ratios that have one."""
    return {f"{prefix}{name}": limit for name, limit in TARGETS.items() for prefix in PREFIX.values() if name in found}


def build(
    rows: Sequence[Row], batches: Sequence[BatchRow], skipped: dict[str, str], machine: dict[str, Any]
) -> dict[str, Any]:
    """The result of a run as one dictionary."""
    found = ratios(rows, batches)
    return plain(
        {
            "benchmark": "robots",
            "rows": [_flat(row) for row in rows],
            "batches": [asdict(row) | {"forward_ratio": row.mujoco_us / row.forward_us} for row in batches],
            "ratios": found,
            "targets": {name: target(targets(found), name, found[name]) for name in targets(found)},
            "skipped": skipped,
            "machine": machine,
            "notes": list(NOTES),
        }
    )


def _flat(row: Row) -> dict[str, Any]:
    more = {"forward_ratio": row.forward, "backward_ratio": row.slope(row.backward_us)}
    return asdict(row) | more | {"jacobian_ratio": row.slope(row.jacobian_us)}


COLUMNS = {
    "scene": "scene",
    "law": "law",
    "nv": "nv",
    "contacts": "contacts",
    "mujoco_contacts": "there",
    "forward_us": "step",
    "mujoco_us": "MuJoCo",
    "forward_ratio": "x",
    "backward_us": "gradient",
    "mujoco_fd_us": "FD",
    "backward_ratio": "x ",
    "jacobian_us": "Jacobian",
    "jacobian_ratio": "x  ",
    "residual": "residual",
    "mujoco_residual": "there ",
    "mujoco_solver": "solver",
    "failed": "failed",
}


def tables(result: dict[str, Any]) -> Tables:
    """All results as tables of text."""
    rows = [{title: row[name] for name, title in COLUMNS.items()} for row in result["rows"]]
    return as_text(
        [
            ("us per step; x: MuJoCo's time over Kinema's", rows),
            ("worlds in a call, us per step of a world", result["batches"]),
            ("ratios", ratio_rows(targets(result["ratios"]), result["ratios"])),
            ("notes", note_rows(result["notes"], result["skipped"])),
        ]
    )


def machine() -> dict[str, Any]:
    """The machine, as in the benchmark of kernels."""
    return kernels_report.machine()
