"""Worker processes on this machine. A lost worker, for instance a killed one, is replaced and its case solved again."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import connection
from typing import Any

from kinema.experiments import worker
from kinema.experiments.case import Case
from kinema.experiments.registry import Experiment
from kinema.experiments.worker import Answer

ATTEMPTS = 3
"""How often a case is solved whose workers are lost."""


def solve(experiment: Experiment, cases: Sequence[Case], workers: int) -> Iterator[tuple[Case, Answer]]:
    """Solve cases, in processes; yields them as they finish.

    Args:
        experiment: The experiment.
        cases: Its cases.
        workers: Number of processes; 0 solves all cases in this one, for a debugger.
    """
    if workers == 0:
        for case in cases:
            yield case, worker.answer(experiment, case)
        return
    waiting, lost = list(reversed(cases)), dict.fromkeys((case.name for case in cases), 0)
    team: dict[connection.Connection, tuple[Any, Case]] = {}
    idle: list[tuple[connection.Connection, Any]] = []
    try:
        while waiting or team:
            while waiting and len(team) < workers:
                pipe, process = idle.pop() if idle else _start(experiment)
                case = waiting.pop()
                team[pipe] = process, case
                _send(pipe, case)
            for ready in connection.wait(list(team)):
                assert isinstance(ready, connection.Connection)
                process, case = team.pop(ready)
                try:
                    found = ready.recv()
                except (EOFError, ConnectionError):
                    process.join()
                    ready.close()
                    lost[case.name] += 1
                    if lost[case.name] < ATTEMPTS:
                        waiting.append(case)
                        continue
                    text = f"{ATTEMPTS} workers were lost with this case, the last with exit code {process.exitcode}"
                    found = Answer(None, 0.0, f"{text}: killed, or out of memory\n")
                else:
                    idle.append((ready, process))
                yield case, found
    finally:
        for pipe, process in [*idle, *((pipe, process) for pipe, (process, _) in team.items())]:
            process.terminate()
            process.join()
            pipe.close()


def _start(experiment: Experiment) -> tuple[connection.Connection, Any]:
    # Processes of a server start fast, because it has imported torch already; it exists on POSIX systems.
    server = "forkserver" in multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if server else "spawn")
    if server:
        context.set_forkserver_preload(["kinema.experiments.worker"])
    ours, theirs = context.Pipe()
    process = context.Process(target=worker.serve, args=(theirs, experiment), daemon=True)
    sys.stderr.flush()
    process.start()
    theirs.close()
    return ours, process


def _send(pipe: connection.Connection, case: Case) -> None:
    with suppress(BrokenPipeError, ConnectionError):  # the worker is lost, which the next read finds
        pipe.send(case)
