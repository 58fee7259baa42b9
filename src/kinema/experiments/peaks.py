"""Peak memory, each measured in a separate process."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kinema.errors import SimulationError

MARK = Path("/proc/self/clear_refs")


def measure_apart(module: str, job: Any, folder: Path | None = None) -> float | None:
    """The last line that a module prints for a job [MB]; None if the system has no high-water mark.

    Args:
        module: The module, started with `python -m` and the job as JSON.
        job: What it reads.
        folder: The folder to start it in; the current one by default.

    Raises:
        SimulationError: The process failed.
    """
    if not MARK.exists():
        return None
    # Return freed memory to the system at once, so that resident memory is memory in use.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, "-m", module, json.dumps(job)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SimulationError(f"memory could not be measured: {done.stderr[-2000:]}", where=str(job))
    return float(done.stdout.splitlines()[-1])


def rise(call: Callable[[], object]) -> float:
    """Rise of the resident high-water mark over a call [MB]."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    MARK.write_text("5")
    before = _status("VmRSS")
    call()
    return (_status("VmHWM") - before) / 1024


def _status(name: str) -> int:
    """A value of /proc/self/status [kB]."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])
