"""Peak of the memory that a rollout and its gradient take, beyond what the process had: each in a process of its own.

    python -m benchmarks.articulated.memory '{"peer": "kinema", "robots": 1, "steps": 5000}'

The engine first runs a short rollout, so that code and models are loaded. Then the kernel's high-water mark of resident
memory is reset, and a rollout of all steps and its gradient run. What counts is the rise of the mark: the returned
states, what is kept for the gradient, the gradient itself, and the engine's own memory; the torques were there before.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from . import scene

WARM_STEPS = 20
MARK = Path("/proc/self/clear_refs")


def measure(**job: Any) -> float | None:
    """Rise of the high-water mark [MB]; None where the system has no such mark.

    Args:
        job: peer, its `arguments`, robots, steps, `sweeps` of those that sweep, and `warm`: steps of the first run.
    """
    if not MARK.exists():
        return None
    # Freed memory goes back to the system at once: what is seen is what is in use.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, "-m", __name__, json.dumps(job)]
    folder = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"memory of {job}: {done.stderr[-2000:]}")
    return float(done.stdout.splitlines()[-1])


def _run(job: dict[str, Any]) -> float:
    torch.set_num_threads(1)
    module = importlib.import_module(f"{__package__}.peer_{job['peer']}")
    peer = module.Peer(**job.get("arguments", {}))
    peer.prepare(scene.case(job["robots"], job.get("warm", WARM_STEPS), job.get("sweeps", scene.SWEEPS)))
    peer.forward()
    peer.backward()
    peer.shake(scene.torques(job["steps"], job["robots"]))
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    MARK.write_text("5")
    before = _status("VmRSS")
    peer.backward()
    return (_status("VmHWM") - before) / 1024


def _status(name: str) -> int:
    """A number of /proc/self/status [kB]."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


if __name__ == "__main__":
    print(_run(json.loads(sys.argv[1])))
