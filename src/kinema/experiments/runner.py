"""`run`: solve the cases of an experiment, report, and keep everything in a folder."""

from __future__ import annotations

import dataclasses
import math
import os
import platform
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kinema.errors import InputError, KinemaError
from kinema.experiments import cluster, worker_processes
from kinema.experiments.case import Case, Report, as_json
from kinema.experiments.progress import Watch
from kinema.experiments.registry import find, whole
from kinema.experiments.settings import change
from kinema.experiments.store import Store, code_version, commit
from kinema.experiments.worker import Answer, one_thread
from kinema.lang.build import cpu


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run.

    Attributes:
        name: Name of the experiment.
        passed: Whether all cases were solved and all claims hold.
        report: The report; None if cases failed that it needs.
        failures: The files with tracebacks, by case; "report" if that failed.
        notes: Texts: what was left out, such as a film without its package.
        files: What was drawn.
        folder: The folder of results.
        summary: What metrics.json holds: only "times" and "run" differ between runs.
    """

    name: str
    passed: bool
    report: Report | None
    failures: dict[str, Path]
    notes: tuple[str, ...]
    files: tuple[Path, ...]
    folder: Path
    summary: dict[str, Any]


def run(
    name: str,
    *,
    quick: bool = False,
    arguments: Any = (),
    seeds: int | range | None = None,
    workers: int | None = None,
    ray: str | None = None,
    resume: bool = False,
    out: Path | str | None = None,
    draw: bool = True,
    progress: bool = True,
) -> Outcome:
    """Run an experiment.

    Args:
        name: Its name, see `registry.EXPERIMENTS`.
        quick: A short run with few cases, as a test.
        arguments: Changes of its default arguments, a list of "NAME=VALUE" (see `settings.change`); or its `Arguments`.
        seeds: Number of seeds, from 0 on (from 100 on for quick runs), or a range; by default the experiment's own.
        workers: Number of processes, as many as CPUs by default; 0 solves all cases in this process, for a debugger.
            Results do not depend on it.
        ray: Address of a Ray cluster that solves the cases, or "local".
        resume: Keep results of cases that an earlier run with the same arguments and code has solved.
        out: Folder of results; out/NAME by default.
        draw: Whether to draw the figure and the film.
        progress: Whether to show progress on standard error.

    Raises:
        InputError: An argument is not usable; raised before any case is solved.
    """
    experiment = find(name)
    chosen_seeds = seeds if isinstance(seeds, range) else experiment.range_of_seeds(seeds, quick=quick)
    chosen = whole("workers", workers, 0, cpu.threads())
    if ray is not None:
        if not ray:
            raise InputError("the address of Ray is empty", expected="--ray local, or the address of a cluster")
        if chosen == 0:
            raise InputError("Ray needs workers", got="--workers 0", fix="leave --workers out")
        cluster.load()
    module = experiment.load()
    if not isinstance(arguments, module.Arguments):
        arguments = change(module.Arguments.quick() if quick else module.Arguments(), arguments)
    begin = time.perf_counter()
    given = as_json(dataclasses.asdict(arguments), f"the arguments of {name}")
    store = Store(Path(out or f"out/{name}"), {"experiment": name, "arguments": given}, resume)
    cases = _cases(module, arguments, chosen_seeds, store.folder.resolve())
    solved: dict[str, dict[str, Any]] = {}
    for case in cases if resume else ():
        kept = store.result(case)
        if kept is not None:
            solved[case.name] = kept
    left = [case for case in cases if case.name not in solved]
    failures: dict[str, Path] = {}
    if ray is not None:
        answers = cluster.solve(experiment, left, chosen if workers else None, ray)
    else:
        answers = worker_processes.solve(experiment, left, min(chosen, len(left)) if chosen else 0)
    with Watch(name, len(cases), len(solved), progress) as watch:
        for case, found in _closing(answers):
            if found.result is None:
                failures[case.name] = store.save_failure(case, found.failure or "")
            else:
                store.save(case, found.result, found.seconds)
                solved[case.name] = {"result": found.result, "seconds": found.seconds}
            watch.finished(case.name, found.seconds, found.result is None)
    results = [(case, solved[case.name]["result"]) for case in cases if case.name in solved]
    report: Report | None = None
    files: list[Path] = []
    notes: list[str] = []
    with one_thread(), redirect_stdout(sys.stderr):
        try:
            report = module.report(arguments, results)
            if draw:
                files, notes = _draw(report, store.folder, name)
        except Exception:
            failures["report"] = store.save_failure(Case("report", {}), traceback.format_exc())
    lines = report.lines if report is not None else ()
    passed = not failures and bool(lines) and all(line.ok for line in lines)
    summary = {
        "name": name,
        "passed": passed,
        "quick": quick,
        "source": experiment.source,
        "what": experiment.what,
        "arguments": given,
        "seeds": [chosen_seeds[0], chosen_seeds[-1]],
        "cases": len(cases),
        "failed_cases": sorted(failures),
        **_described(report),
        "version": code_version(),
        "times": _times(report, {case.name: solved[case.name]["seconds"] for case in cases if case.name in solved}),
        "run": {**_machine(), "workers": chosen, "ray": ray is not None, "seconds": time.perf_counter() - begin},
    }
    store.save_metrics(summary)
    return Outcome(name, passed, report, failures, tuple(notes), tuple(files), store.folder, summary)


def _cases(module: Any, arguments: Any, seeds: Sequence[int], folder: Path) -> list[Case]:
    cases = [dataclasses.replace(case, folder=folder) for case in module.cases(arguments, seeds)]
    names = [case.name for case in cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not cases:
        got = f"{twice[0]!r} twice" if twice else "none"
        raise InputError(f"the cases of {module.__name__} are not usable", got=got, expected="cases of different names")
    return cases


def _closing(answers: Iterator[tuple[Case, Answer]]) -> Iterator[tuple[Case, Answer]]:
    """End workers also if the loop is left by an exception."""
    try:
        yield from answers
    finally:
        answers.close()  # type: ignore[attr-defined]


def _draw(report: Report, folder: Path, name: str) -> tuple[list[Path], list[str]]:
    """Draw the figure and the film; one that needs a missing package is left out, with a note."""
    files: list[Path] = []
    notes: list[str] = []
    for draw, ending in ((report.picture, ".png"), (report.film, ".mp4")):
        if draw is None:
            continue
        file = folder / f"{name}{ending}"
        try:
            draw(file)
        except (KinemaError, ImportError) as error:
            notes.append(f"{file.name} was not drawn: {error}")
        else:
            files.append(file)
    return files, notes


def _described(report: Report | None) -> dict[str, Any]:
    """All of a report that is the same for the same cases."""
    if report is None:
        return {"metrics": {}, "lines": [], "tables": [], "deviations": []}
    return {
        "metrics": {key: _finite(value) for key, value in report.metrics.items()},
        "lines": [_line(line) for line in report.lines if not line.timed],
        "tables": [_table(table) for table in report.tables if not table.timed],
        "deviations": list(report.deviations),
    }


def _times(report: Report | None, seconds: dict[str, float]) -> dict[str, Any]:
    """All that was measured with a clock."""
    found: dict[str, Any] = {"seconds_of_cases": sum(seconds.values()), "cases": seconds}
    if report is not None:
        found["metrics"] = {key: _finite(value) for key, value in report.times.items()}
        found["lines"] = [_line(line) for line in report.lines if line.timed]
        found["tables"] = [_table(table) for table in report.tables if table.timed]
    return found


def _line(line: Any) -> dict[str, Any]:
    found = {"claim": line.claim, "value": _finite(line.value), "limit": line.limit, "upper": line.upper}
    return {**found, "passed": line.ok}


def _table(table: Any) -> dict[str, Any]:
    rows = [[_finite(cell) for cell in row] for row in table.rows]
    return {"title": table.title, "columns": list(table.columns), "rows": rows}


def _finite(value: Any) -> Any:
    """A number of JSON: None in place of those it lacks."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _machine() -> dict[str, Any]:
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "commit": commit(),
        "machine": f"{cpu.threads()} x {_processor()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or os.uname().machine
