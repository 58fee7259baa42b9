"""The same cases as tasks of Ray, on this machine or on a cluster; needs the extra `ray`."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from kinema.errors import InputError
from kinema.experiments import worker
from kinema.experiments.case import Case
from kinema.experiments.registry import Experiment
from kinema.experiments.worker import Answer
from kinema.experiments.worker_processes import ATTEMPTS

LOCAL = "local"
PATIENCE = 10.0  # for the answer of a cluster [s]


def load() -> ModuleType:
    """The package ray.

    Raises:
        InputError: It is not installed.
    """
    try:
        import ray
    except ImportError:
        fix = "pip install 'kinema[ray]', or leave --ray out"
        raise InputError("--ray needs the package ray, which is not installed", fix=fix) from None
    return ray


def solve(
    experiment: Experiment, cases: Sequence[Case], workers: int | None, address: str
) -> Iterator[tuple[Case, Answer]]:
    """Solve cases as tasks of Ray; yields them as they finish. Ray repeats tasks whose workers are lost.

    Args:
        experiment: The experiment.
        cases: Its cases.
        workers: Number of cases at a time; as many as the cluster has CPUs by default.
        address: Address of the cluster, or "local" for one in this process without a dashboard.

    Raises:
        InputError: ray is not installed, or there is no cluster at the address.
    """
    ray = load()
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
    try:
        if address == LOCAL:
            ray.init(num_cpus=workers, **quiet)
        else:
            _expect_listener(address)
            ray.init(address=address, log_to_driver=False, logging_level="error")
    except (OSError, ValueError, RuntimeError) as error:
        fix = "ray start --head on its machine, or --ray local"
        raise InputError("the Ray cluster cannot be used", where=address, got=str(error)[-300:], fix=fix) from None
    try:
        most = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        task = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(worker.answer)
        waiting = list(reversed(cases))
        running: dict[Any, Case] = {}
        while waiting or running:
            while waiting and len(running) < most:
                case = waiting.pop()
                running[task.remote(experiment, case)] = case
            (done, *_), _ = ray.wait(list(running), num_returns=1)
            case = running.pop(done)
            try:
                yield case, ray.get(done)
            except (ray.exceptions.RayError, OSError) as error:
                yield case, Answer(None, 0.0, f"{ATTEMPTS} workers were lost with this case: {error}\n")
    finally:
        ray.shutdown()


def _expect_listener(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT; Ray would try again for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
