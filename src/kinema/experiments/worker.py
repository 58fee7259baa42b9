"""A worker process: solves one case after another, with one thread, and answers through a pipe.

Nothing that a case prints reaches the standard output of the run. A worker ends with the process that started it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from typing import Any

import torch

from kinema.experiments.case import Case, as_json
from kinema.experiments.registry import Experiment

THREADS = "KINEMA_THREADS"


@dataclass(frozen=True)
class Answer:
    """The result of a case and its time [s], or the traceback of a case that failed."""

    result: Mapping[str, Any] | None
    seconds: float
    failure: str | None = None


def answer(experiment: Experiment, case: Case) -> Answer:
    """Solve a case with one thread; an exception becomes the text of its traceback."""
    with one_thread():
        begin = time.perf_counter()
        try:
            with redirect_stdout(sys.stderr):
                found = as_json(experiment.load().solve(case), f"the result of case {case.name!r}")
        except Exception:
            return Answer(None, time.perf_counter() - begin, traceback.format_exc())
        return Answer(found, time.perf_counter() - begin)


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch and for Kinema: the sums of torch depend on the number of threads."""
    before, asked = torch.get_num_threads(), os.environ.get(THREADS)
    torch.set_num_threads(1)
    os.environ[THREADS] = "1"
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if asked is None:
            os.environ.pop(THREADS, None)
        else:
            os.environ[THREADS] = asked


def serve(pipe: connection.Connection, experiment: Experiment) -> None:
    """Answer cases from a pipe until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.dup2(sys.stderr.fileno(), 1)  # native code may print, too
    while True:
        try:
            case = pipe.recv()
        except EOFError:
            return
        pipe.send(answer(experiment, case))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
