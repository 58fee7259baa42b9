"""Implicit steps of 1/60 s: `python -m benchmarks.deformable.implicit [--json]` in the project folder.

Blocks clamped at one end, blocks that stand on the ground, and cloth that hangs from two corners; from rest, one
thread, float64. Milliseconds of processor time per step are the least of some runs, and growth is the exponent from the
smallest to the largest size. A run that does not converge raises.
"""

from __future__ import annotations

import argparse
import json as json_format
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch

import kinema as kn
from kinema.scene.shapes.block import block
from kinema.scene.shapes.sheet import sheet

DT, STEPS, RUNS = 1 / 60, 4, 3
CUBES = {1_000: (10, 5, 4), 10_000: (20, 10, 10)}
SQUARES = {968: 22, 10_082: 71}
EDGE = 0.05  # [m]


@dataclass(frozen=True)
class Row:
    """One scene: stiffness mu [Pa, N/m], milliseconds per step forward, and with the gradient."""

    scene: str
    elements: int
    mu: float
    forward: float
    with_gradient: float


def clamped(elements: int, mu: float) -> kn.Model:
    """A block of 1,000 kg/m^3, clamped at one end."""
    mesh, scene = block(CUBES[elements], EDGE), kn.Scene()
    scene.add_solid(mesh, "block", material=kn.Solid(mu=mu, lam=2 * mu), skin=None)
    scene.attach("block", np.flatnonzero(mesh.vertices[:, 0] < mesh.vertices[:, 0].min() + 1e-9))
    return kn.compile(scene, torch.float64)


def on_ground(elements: int, mu: float) -> kn.Model:
    """A block on the ground."""
    mesh, scene = block(CUBES[elements], EDGE), kn.Scene()
    scene.add_ground()
    height = -float(mesh.vertices[:, 2].min())
    scene.add_solid(mesh, "block", material=kn.Solid(mu=mu, lam=2 * mu), pos=(0.0, 0.0, height))
    return kn.compile(scene, torch.float64)


def cloth(elements: int, mu: float) -> kn.Model:
    """A square metre of 0.2 kg, level at first, that hangs from two corners."""
    squares, scene = SQUARES[elements], kn.Scene()
    material = kn.Cloth(density=0.2, mu=mu, lam=mu, bending=1e-3)
    scene.add_cloth(sheet(1.0, 1.0, (squares, squares)), "cloth", material=material, skin=None)
    scene.attach("cloth", [0, squares])
    return kn.compile(scene, torch.float64)


SCENES: tuple[tuple[str, Callable[[int, float], kn.Model], tuple[int, ...], tuple[float, ...]], ...] = (
    ("clamped tets", clamped, tuple(CUBES), (2e5, 6e6, 2e7)),
    ("tets on the ground", on_ground, tuple(CUBES), (2e4, 2e5)),
    ("cloth", cloth, tuple(SQUARES), (1e2, 1e3, 1e4)),
)


def measure(quick: bool = False) -> dict[str, object]:
    """Time all scenes, or with `quick` the smallest of each with one stiffness."""
    rows, growth = [], {}
    for name, make, sizes, stiffness in SCENES:
        for mu in stiffness[:1] if quick else stiffness:
            own = []
            for elements in sizes[:1] if quick else sizes:
                own.append(_time(name, make(elements, mu), elements, mu))
                print(own[-1], file=sys.stderr, flush=True)
            rows += own
            first, last = own[0], own[-1]
            if last.elements > first.elements:
                exponent = math.log(last.forward / first.forward) / math.log(last.elements / first.elements)
                growth[f"{name}, mu {mu:g}"] = round(exponent, 2)
    return {"rows": [asdict(row) for row in rows], "growth": growth}


def _time(name: str, model: kn.Model, elements: int, mu: float) -> Row:
    options = kn.RunOptions(threads=1, progress=False)

    def run(gradient: bool) -> float:
        x = model.initial_state().x.clone().requires_grad_(gradient)
        begin = time.process_time()
        path = kn.simulate(model, kn.State(x=x), steps=STEPS, dt=DT, integrator="implicit", options=options)
        if gradient:
            path.end.x.sum().backward()
        return 1e3 * (time.process_time() - begin) / STEPS

    best = [min([run(gradient) for _ in range(RUNS + 1)][1:]) for gradient in (False, True)]
    return Row(name, elements, mu, *(round(ms, 2) for ms in best))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Implicit steps of soft matter.")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.add_argument("--quick", action="store_true", help="a short run, as a smoke test")
    arguments = parser.parse_args()
    result = measure(arguments.quick)
    if arguments.json:
        print(json_format.dumps(result, indent=2))
