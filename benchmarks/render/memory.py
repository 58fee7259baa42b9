"""Peak of the memory that a film and its gradient take, in a process of its own.

    python -m benchmarks.render.memory '["dibr", 2024, 256, 60]'

One small batch is drawn before, so that code is loaded. Then the kernel's high-water mark of resident memory is reset,
and a film of 60 frames, 256 x 256, of 2,024 triangles is drawn and differentiated. What counts is the rise of the mark.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.articulated.memory import MARK, _status

from . import peer_kinema, scene

FRAMES = 60
FILM = (2_024, 256)
"""Triangles and pixels."""


def measure(mode: str, triangles: int = FILM[0], pixels: int = FILM[1], frames: int = FRAMES) -> float | None:
    """Rise of the high-water mark [MB] over a film; None where the system has no such mark."""
    if not MARK.exists():
        return None
    # Freed memory goes back to the system at once: what is seen is what is in use.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, "-m", __name__, json.dumps([mode, triangles, pixels, frames])]
    folder = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"memory of {mode}: {done.stderr[-2000:]}")
    return float(done.stdout.splitlines()[-1])


def _run(mode: str, triangles: int, pixels: int, frames: int) -> float:
    torch.set_num_threads(1)
    small = peer_kinema.Peer(mode, threads=2)
    small.prepare(scene.Case(324, 64, 2))
    small.both()
    peer = peer_kinema.Peer(mode, threads=2)
    peer.prepare(scene.Case(triangles, pixels, frames))
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    MARK.write_text("5")
    before = _status("VmRSS")
    peer.both()
    return (_status("VmHWM") - before) / 1024


if __name__ == "__main__":
    print(_run(*json.loads(sys.argv[1])))
