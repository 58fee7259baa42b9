"""Peak memory of a video and its gradient, in a separate process.

    python -m benchmarks.render.memory '["dibr", 2024, 256, 60]'

A small batch is rendered first, so that code is loaded. Then the kernel's high-water mark of resident memory is reset,
and a video of 60 frames, 256 x 256, of 2,024 triangles is rendered and differentiated. The result is the rise of the
mark.
"""

from __future__ import annotations

import json
import sys

import torch

from benchmarks import ROOT
from kinema.experiments.peaks import measure_apart, rise

from . import peer_kinema, scene

FRAMES = 60
FILM = (2_024, 256)
"""Triangles and pixels."""


def measure(mode: str, triangles: int = FILM[0], pixels: int = FILM[1], frames: int = FRAMES) -> float | None:
    """Rise of the high-water mark [MB] over a video; None if the system has no such mark."""
    return measure_apart(__name__, [mode, triangles, pixels, frames], ROOT)


def _run(mode: str, triangles: int, pixels: int, frames: int) -> float:
    torch.set_num_threads(1)
    small = peer_kinema.Peer(mode, threads=2)
    small.prepare(scene.Case(324, 64, 2))
    small.both()
    peer = peer_kinema.Peer(mode, threads=2)
    peer.prepare(scene.Case(triangles, pixels, frames))
    return rise(peer.both)


if __name__ == "__main__":
    print(_run(*json.loads(sys.argv[1])))
