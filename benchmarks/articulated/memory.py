"""Peak memory of a rollout and its gradient, above the memory of the process before: each in a separate process.

    python -m benchmarks.articulated.memory '{"peer": "kinema", "robots": 1, "steps": 5000}'

The engine first runs a short rollout, so that code and models are loaded. Then the kernel's high-water mark of resident
memory is reset, and a rollout of all steps and its gradient run. The result is the rise of the mark: the returned
states, data kept for the gradient, the gradient itself, and the engine's own memory, but not the torques.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import torch

from benchmarks import ROOT
from kinema.experiments.peaks import measure_apart, rise

from . import scene

WARM_STEPS = 20


def measure(**job: Any) -> float | None:
    """Rise of the high-water mark [MB]; None if the system has no such mark.

    Args:
        job: peer, its `arguments`, robots, steps, `sweeps` of PGS peers, and `warm`: steps of the first run.
    """
    return measure_apart(__name__, job, ROOT)


def _run(job: dict[str, Any]) -> float:
    torch.set_num_threads(1)
    module = importlib.import_module(f"{__package__}.peer_{job['peer']}")
    peer = module.Peer(**job.get("arguments", {}))
    peer.prepare(scene.case(job["robots"], job.get("warm", WARM_STEPS), job.get("sweeps", scene.SWEEPS)))
    peer.forward()
    peer.backward()
    peer.shake(scene.torques(job["steps"], job["robots"]))
    return rise(peer.backward)


if __name__ == "__main__":
    print(_run(json.loads(sys.argv[1])))
