"""Peak memory of a rollout of the gear and its gradient, in a separate process.

    python -m benchmarks.deformable.memory '{"steps": 5760, "checkpoint": 1}'

A short rollout comes first, so that code and model are loaded. Then the kernel's high-water mark of resident memory is
reset, and a rollout of all steps and its gradient run. The result is the rise of the mark: returned states, data kept
for the gradient, the gradient itself, and the engine's own memory.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from benchmarks import ROOT
from kinema.experiments.peaks import measure_apart, rise

from . import peer_kinema, scene

WARM_STEPS = 20
STEPS = 5760
BUDGET = 15 << 20
"""Memory budget [bytes] for checkpoint="auto": the rest of 20 MB is for torch's own tensors."""


def measure(**job: Any) -> float | None:
    """Rise of the high-water mark [MB]; None if the system has no such mark.

    Args:
        job: `steps`, and `checkpoint` and `memory_budget` as in `kn.simulate`.
    """
    return measure_apart(__name__, job, ROOT)


def _run(steps: int, **options: Any) -> float:
    torch.set_num_threads(1)
    peer = peer_kinema.Peer(**options)
    peer.prepare(scene.toothed(), WARM_STEPS)
    peer.backward()
    peer.lengthen(steps)
    return rise(peer.backward)


if __name__ == "__main__":
    print(_run(**json.loads(sys.argv[1])))
