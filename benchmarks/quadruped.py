"""Time per step of the quadruped, forward and backward, with the sweeps and the contact residual beside every time.

    python -m benchmarks.quadruped

One thread; minima over repetitions; no peers. Gradients are those to joint forces, masses and, on the ground, friction.
"""

from __future__ import annotations

import math
import time

import torch

import kinema as kn
from kinema.scene.shapes.quadruped import quadruped

DT, REPETITIONS = 2e-3, 8
CASES = [  # dtype, worlds, steps, sweeps (0: no ground)
    (torch.float64, 1, 1000, 0),
    (torch.float64, 1, 1000, 50),
    (torch.float64, 1, 1000, 20),
    (torch.float64, 1024, 20, 50),
    (torch.float32, 1024, 20, 50),
]


def standing(dtype: torch.dtype, sweeps: int) -> tuple[kn.Model, torch.Tensor]:
    """The quadruped and its coordinates with the legs bent, feet at the ground."""
    scene = kn.Scene(contact=kn.Contact(sweeps=max(sweeps, 1)))
    if sweeps:
        scene.add_ground()
    scene.add_robot(quadruped(), "dog")
    model = kn.compile(scene, dtype)
    q = model.initial_coordinates()
    q[7:] = torch.tensor(model.tree.rest[6:])
    q[2] = 2 * 0.25 * math.cos(0.6) + 0.02
    return model, q


def measure(dtype: torch.dtype, worlds: int, steps: int, sweeps: int) -> tuple[float, float, float]:
    """Microseconds per world and step forward and backward, and the largest residual [N s]."""
    model, q = standing(dtype, sweeps)
    batch = () if worlds == 1 else (worlds,)
    q, v = q.expand(*batch, -1).clone(), torch.zeros(*batch, model.nv, dtype=dtype)
    tau = torch.zeros(*batch, steps, model.nv, dtype=dtype, requires_grad=True)
    params = model.parameters("mass", *(["friction"] if sweeps else []), requires_grad=True)
    options = {"steps": steps, "dt": DT, "threads": 1, "params": params, "progress": False}
    forward = backward = math.inf
    for _ in range(REPETITIONS):
        with torch.no_grad():
            start = time.perf_counter()
            kn.simulate(model, q, v, tau, **options)
            forward = min(forward, time.perf_counter() - start)
        path = kn.simulate(model, q, v, tau, **options)
        loss = path.q_end.sum()
        start = time.perf_counter()
        loss.backward()
        backward = min(backward, time.perf_counter() - start)
    residual = math.nan if path.residual is None else float(path.residual.detach().max())
    scale = 1e6 / (steps * worlds)
    return forward * scale, backward * scale, residual


def main() -> None:
    """Print a table."""
    print("precision  worlds  sweeps  forward [us]  backward [us]  residual [N s]")
    for dtype, worlds, steps, sweeps in CASES:
        forward, backward, residual = measure(dtype, worlds, steps, sweeps)
        name = str(dtype).removeprefix("torch.")
        print(f"{name:9s}  {worlds:6d}  {sweeps:6d}  {forward:12.2f}  {backward:13.2f}  {residual:14.1e}")


if __name__ == "__main__":
    main()
