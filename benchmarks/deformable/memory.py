"""Peak of the memory that a rollout of the gear and its gradient take, in a process of its own.

    python -m benchmarks.deformable.memory '{"steps": 5760, "checkpoint": 1}'

A short rollout comes first, so that code and model are loaded. Then the kernel's high-water mark of resident memory is
reset, and a rollout of all steps and its gradient run. What counts is the rise of the mark: returned states, what is
kept for the gradient, the gradient itself, and the engine's own memory.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.articulated.memory import MARK, _status

from . import peer_kinema, scene

WARM_STEPS = 20
STEPS = 5760
BUDGET = 15 << 20
"""Bytes given to checkpoint="auto": what is left of 20 MB is for torch's own tensors."""


def measure(**job: Any) -> float | None:
    """Rise of the high-water mark [MB]; None where the system has no such mark.

    Args:
        job: `steps`, and `checkpoint` and `memory_budget` as in `kn.simulate`.
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


def _run(steps: int, **options: Any) -> float:
    torch.set_num_threads(1)
    peer = peer_kinema.Peer(**options)
    peer.prepare(scene.toothed(), WARM_STEPS)
    peer.backward()
    peer.lengthen(steps)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    MARK.write_text("5")
    before = _status("VmRSS")
    peer.backward()
    return (_status("VmHWM") - before) / 1024


if __name__ == "__main__":
    print(_run(**json.loads(sys.argv[1])))
