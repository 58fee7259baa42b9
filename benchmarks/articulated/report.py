"""Formats measurements as tables, or as one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from benchmarks.kernels import report as kernels_report
from benchmarks.reporting import Tables, as_text, divide, note_rows, plain, ratio_rows, target

from . import jacobians
from . import robots as others
from .batch import BatchRow

TARGETS: dict[str, tuple[str, float]] = {
    "forward_vs_mujoco": (">=", 2.0),
    "backward_vs_mujoco_fd": (">=", 30.0),
    "backward_vs_cppad": (">=", 10.0),
    "backward_vs_torch": (">=", 500.0),
    "backward_over_forward": ("<=", 4.0),
    "memory_mb_5000": ("<=", 2.5),
    "step_time_spread": ("<=", 1.2),
    "batch4096_forward_vs_mujoco": (">=", 8.0),
    "batch4096_f32_forward_vs_mujoco": (">=", 15.0),
    "robots_forward_vs_mujoco_min": (">=", 1.2),
    "robots_forward_vs_mujoco_median": (">=", 2.0),
    "robots_backward_vs_mujoco_fd_median": (">=", 40.0),
    "jacobian_vs_mujoco_fd_1": (">=", 5.0),
    "jacobian_vs_mujoco_fd_256": (">=", 15.0),
}
"""Targets of the ratios. `step_time_spread` is the largest time of a further step over the least, forward, from 50 to
500 and from 500 to 5,000 steps; `call_us` is the cost of a call besides its steps. Batches compare on all cores; a
quick run has no batch of 4,096. Ratios `robots_*` are over third-party robots, with Kinema's default contact; ratios
`jacobian_*` over three robots, with one state per call and with 256, see `jacobians.py`."""

NOTES = (
    "forward_us, backward_us: least time per step, one thread; a backward pass recomputes what it needs from states.",
    "gradient_error: 'own differences': relative error of the slope along one direction, against central differences of"
    " the engine's own rollout, least over six lengths; 'Kinema, pgs': distance of the whole gradient, relative.",
    "residual: change of an impulse by one more update of its row, relative to the largest contact impulse of that"
    " step; the largest over steps. Of each engine's own contact problem: hard, friction boxes, in Kinema and the peers"
    " that share its step; soft, friction pyramids, in MuJoCo. The problems differ, the measure is the same.",
    "depth_mm: largest depth of a foot below the ground. MuJoCo's follows from its soft model, not from an error.",
    "Kinema: default contacts, solved by Newton's method to 1e-12 (float32: 1e-5). Kinema, pgs: projected Gauss-Seidel"
    " with relaxation, from zero; CppAD, Ceres, JAX and PyTorch run the same iterations and must agree with its states"
    " and gradients. Ratios, batches, memory and checkpoints are those of Kinema's default.",
    "sweeps: PGS iterations; for Newton's method the mean number of eliminations per step, for MuJoCo its solver's mean"
    " iterations (with warm start and its tolerance 1e-8).",
    "CppAD replays one tape per pattern of branches; forward of CppAD and Ceres is the emitted C++ in plain doubles.",
    "memory: rise of the resident high-water mark over a rollout and its gradient, including returned states and"
    " gradient, in a separate process.",
    "Third-party robots: 400 steps on the floor under small random controls, Kinema's default contact beside MuJoCo's"
    " Newton; the file's time step, no self-collision unless noted (MuJoCo has it by default), friction 0.8 for all,"
    " springs about a standing pose if a file has none. MuJoCo's gradient is mjd_transitionFD by forward differences,"
    " minus the cost of the loop around it.",
    "Jacobians: A and B of a step, kinema.linearise beside mjd_transitionFD (forward differences, minus the loop around"
    " it), one thread each, at states of each engine's rollout; alone: one state per call from Python.",
)


@dataclass(frozen=True)
class Row:
    """One engine with a number of robots and steps; `NOTES` explains the fields."""

    engine: str
    mode: str
    robots: int
    steps: int
    forward_us: float
    backward_us: float | None
    sweeps: float
    residual: float
    residual_median: float
    depth_mm: float
    gradient_error: float | None
    gradient_against: str | None


@dataclass(frozen=True)
class MemoryRow:
    """Rise of an engine's peak memory [MB]."""

    engine: str
    robots: int
    steps: int
    peak_mb: float | None


def ratios(
    rows: Sequence[Row],
    memory: Sequence[MemoryRow],
    batches: Sequence[BatchRow],
    robots: Sequence[others.Row] = (),
    linear: Sequence[jacobians.Row] = (),
) -> dict[str, float | None]:
    """Kinema against the others, one robot, least times per step; None if a side is missing.

    `a_vs_b` is b's time divided by a's, or a's steps per second divided by b's.
    """
    found: dict[str, float | None] = {
        "forward_vs_mujoco": _compare(rows, "MuJoCo", "Newton", "forward_us"),
        "forward_vs_mujoco_pgs": _compare(rows, "MuJoCo", "PGS", "forward_us"),
        "backward_vs_mujoco_fd": _compare(rows, "MuJoCo", "Newton", "backward_us"),
    }
    for key, name in (("cppad", "CppAD"), ("ceres", "Ceres"), ("jax", "JAX"), ("torch", "PyTorch")):
        found[f"backward_vs_{key}"] = _compare(rows, name, None, "backward_us")
    own = {row.steps: row for row in rows if row.engine == "Kinema" and row.robots == 1}
    last = own[max(own)]
    found["backward_over_forward"] = divide(last.backward_us, last.forward_us)
    found["memory_mb_5000"] = next(
        (m.peak_mb for m in memory if (m.engine, m.robots, m.steps) == ("Kinema", 1, 5000)), None
    )
    totals = [(steps, steps * row.forward_us) for steps, row in sorted(own.items())]
    further = [(later - sooner) / (m - n) for (n, sooner), (m, later) in pairwise(totals)]
    found["step_time_spread"] = max(further) / min(further) if {50, 5_000} <= set(own) else None
    found["call_us"] = totals[0][1] - totals[0][0] * further[0] if further else None
    speed = {(b.engine, b.precision, b.worlds): b.forward_per_s for b in batches}
    rival = speed.get(("MuJoCo", "float64", 4096))
    found["batch4096_forward_vs_mujoco"] = divide(speed.get(("Kinema", "float64", 4096)), rival)
    found["batch4096_f32_forward_vs_mujoco"] = divide(speed.get(("Kinema", "float32", 4096)), rival)
    for row in rows:
        if (row.engine, row.mode, row.robots) == ("MuJoCo", "Newton", 10):
            ours = next(r for r in rows if (r.engine, r.robots, r.steps) == ("Kinema", 10, row.steps))
            found["ten_robots_forward_vs_mujoco"] = row.forward_us / ours.forward_us
    return found | others.ratios(robots) | jacobians.ratios(linear)


def build(
    rows: Sequence[Row],
    memory: Sequence[MemoryRow],
    batches: Sequence[BatchRow],
    checkpoints: dict[str, Any],
    chains: Sequence[dict[str, Any]],
    robots: Sequence[others.Row],
    sweeps: dict[str, Any],
    agreement: dict[str, dict[str, float]],
    skipped: dict[str, str],
    on_machine: dict[str, Any],
    linear: Sequence[jacobians.Row] = (),
) -> dict[str, Any]:
    """The whole report as one object."""
    measured = ratios(rows, memory, batches, robots, linear)
    return plain(
        {
            "benchmark": "articulated",
            "machine": on_machine,
            "sweeps": sweeps,
            "agreement": agreement,
            "rows": [asdict(row) for row in rows],
            "memory": [asdict(row) for row in memory],
            "batches": [asdict(row) for row in batches],
            "checkpoints": checkpoints,
            "chains": list(chains),
            "robots": [asdict(row) for row in robots],
            "jacobians": [asdict(row) for row in linear],
            "skipped": skipped,
            "ratios": measured,
            "targets": {name: target(TARGETS, name, measured[name]) for name in TARGETS},
            "notes": list(NOTES),
        }
    )


def machine() -> dict[str, Any]:
    """The environment of the measurements."""
    found: dict[str, Any] = kernels_report.machine()
    packages = ("kinema", "numpy", "torch", "mujoco-core", "jax", "cmeel-cppad")
    versions = {name: kernels_report._version(name) for name in packages}
    kept = {name: found["versions"][name] for name in ("python", "compiler")}
    return found | {"versions": kept | versions}


def tables(report: dict[str, Any]) -> Tables:
    """The report as printed tables: title, columns, rows of text."""
    chosen, found = report["sweeps"], report["checkpoints"]
    agreed = [{"engine": name} | numbers for name, numbers in report["agreement"].items()]
    notes = (f"PGS iterations: {chosen['chosen']}, {chosen['why']}.", *report["notes"])
    made = [
        ("One step (2 ms) of quadrupeds on the ground, float64, one thread", report["rows"]),
        ("Relative difference from states and gradients of Kinema, pgs", agreed),
        ("Peak memory of a rollout and its gradient", report["memory"]),
        ("Batches, all cores: world-steps per second", report["batches"]),
        (f"A checkpoint every k steps (plot: {found['plot']})", found["rows"]),
        ("Fits of the time (eq. 17; replayed once) and the memory (eq. 18)", found["fits"]),
        ("Chains of links, no contact", report["chains"]),
        ("Third-party robots on the floor, float64, one thread", report["robots"]),
        ("Jacobians of a step, float64, one thread", report["jacobians"]),
        ("Ratios (a_vs_b: time of b / time of a)", ratio_rows(TARGETS, report["ratios"])),
        ("Notes", note_rows(notes, report["skipped"])),
    ]
    return as_text(made)


def _compare(rows: Sequence[Row], engine: str, mode: str | None, what: str) -> float | None:
    """The peer's time over Kinema's, one robot: for both, the least time per step over all numbers of steps.

    A peer's cost per step does not depend on their number, but its long runs get few rounds: on a busy machine, the
    ratio at the largest number of steps would attribute the noise to the peer.
    """
    alone = [r for r in rows if r.robots == 1 and getattr(r, what) is not None]
    own = [getattr(r, what) for r in alone if r.engine == "Kinema"]
    other = [getattr(r, what) for r in alone if r.engine == engine and mode in (None, r.mode)]
    return min(other) / min(own) if own and other else None
