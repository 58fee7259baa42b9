"""The SIMD speed-up: kernels with branches and loops, at this machine's lane width and with one lane.

One emitter produces both from the same source; both run on one thread and give the same bits. Only the width differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from . import timing

PARTICLES = 16_384
STEPS = {"x": 50, "rgb": 1}  # steps per call: a particle step is short compared with a call from Python
IMAGE = (256, 256)
WRT = ("vertices", "colours")  # differentiated inputs of images
SIGMA = GAMMA = 1e-4


def measure(budget: float) -> list[dict[str, object]]:
    """Rows with times [us] of forward and vjp in SIMD and scalar form, and their ratio."""
    from kinema.lang.build import cpu

    width = cpu.lanes(4)
    rows = []
    cases = (("contact, 16,384 particles", contact, "x"), ("pixels, 1,984 triangles, 256 x 256", pixels, "rgb"))
    for name, make, output in cases:
        calls: list[tuple[str, Callable[[], object]]] = []
        for lanes in (width, 1):
            for what, call in zip(("forward", "vjp"), at_width(lanes, make), strict=True):
                calls.append((f"{what} {lanes}", lambda call=call, lanes=lanes: at_width(lanes, call)))
        best = timing.interleaved_minima(calls, budget, title=name)
        for what in ("forward", "vjp"):
            simd, scalar = (1e6 * best[f"{what} {lanes}"] / STEPS[output] for lanes in (width, 1))
            rows.append(
                {
                    "kernel": name,
                    "what": what,
                    "lanes": width,
                    "simd_us": simd,
                    "scalar_us": scalar,
                    "factor": scalar / simd,
                }
            )
    return rows


def at_width(lanes: int, call: Callable[[], Any]) -> Any:
    """Call with plans for this many lanes."""
    from kinema.lang.autograd import inputs

    with mock.patch.object(inputs, "width_of", lambda precision: lanes):
        return call()


def contact() -> tuple[Callable[[], object], Callable[[], object]]:
    """The step of particles around a plane, a sphere and a box; about a third of them are in contact."""
    import torch

    import kinema as kn
    from kinema.simulation.step import step_program

    rng = np.random.default_rng(0)
    scene = kn.Scene()
    scene.add_ground()
    scene.add_body(kn.Sphere(0.3), fixed=True, pos=(0.3, 0.3, 0.5))
    scene.add_body(kn.Box((0.15, 0.2, 0.25)), fixed=True, pos=(0.7, 0.7, 0.3))
    x, v = rng.uniform(0, 1, (PARTICLES, 3)), rng.normal(0, 1, (PARTICLES, 3))
    skin = kn.Skin(radius=0.05, k_e=1e4, k_d=1.0, k_f=10.0, friction=0.5)
    scene.add_particles(x, mass=1.0, skin=skin, velocity=v)
    model = kn.compile(scene, torch.float32)
    p = step_program(model)
    given = model.resolve() | {"dt": torch.tensor(1e-4, dtype=torch.float32)}
    return _calls(p, model.initial_state().tensors, {n: t for n, t in given.items() if n in p.buffers}, "x")


def pixels() -> tuple[Callable[[], object], Callable[[], object]]:
    """A sphere of triangles in a soft image."""
    import torch

    from kinema.rendering.face_points import Look
    from kinema.rendering.image_program import Faces, Shape, image_program
    from kinema.rendering.rasteriser import rings

    vertices, faces = sphere(32)
    look = Look(lit="none", vertex_colours=True, directional=0, edges=False)
    shape = Shape(
        look, IMAGE, 0.1, 100.0, len(vertices), ((0, 1, 0, 0),), ((0, 0),), (1 << 19,), ("rgb", "alpha"), soft=True
    )
    p = image_program(Faces(faces.astype(np.int32), np.zeros(len(faces), np.int32), rings(faces)), shape)
    numbers = {
        "vertices": vertices,
        "colours": np.random.default_rng(0).uniform(0, 1, vertices.shape),
        "R": np.eye(3),
        "t": [0.0, 0.0, 3.0],
        "focal": [IMAGE[0], IMAGE[1]],
        "centre": [IMAGE[0] / 2, IMAGE[1] / 2],
        "sigma": SIGMA,
        "gamma": GAMMA,
        "soft_near": 1.0,
        "soft_far": 10.0,
        "background": [0.0, 0.0, 0.0],
    }
    inputs = {n: torch.as_tensor(t, dtype=torch.float32) for n, t in numbers.items()}
    return _calls(p, {}, inputs, "rgb")


def sphere(rings: int) -> tuple[np.ndarray, np.ndarray]:
    """A UV sphere of 2 rings (rings - 1) triangles: vertices and faces."""
    polar, around = np.meshgrid(np.linspace(0, np.pi, rings + 1), np.arange(rings) * 2 * np.pi / rings, indexing="ij")
    xyz = np.stack([np.sin(polar) * np.cos(around), np.cos(polar), np.sin(polar) * np.sin(around)], -1).reshape(-1, 3)
    faces = []
    for i in range(rings):
        for j in range(rings):
            a, b = i * rings + j, i * rings + (j + 1) % rings
            faces += [(a, a + rings, b)] * (i < rings - 1) + [(b, a + rings, b + rings)] * (i > 0)
    return xyz, np.array(faces)


def _calls(program: Any, state: dict, inputs: dict, output: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """Steps forward without gradients, and their backward pass from stored inputs, to the state or to `WRT`."""
    import torch

    from kinema.lang.autograd.options import RunOptions
    from kinema.lang.autograd.rollout import rollout

    leaves = {n: t.detach().requires_grad_() for n, t in (state or {n: inputs[n] for n in WRT}).items()}
    options: dict[str, Any] = {"record": () if state else (output,), "options": RunOptions(threads=1, progress=False)}
    steps = STEPS[output]

    def forward() -> object:
        with torch.no_grad():
            return rollout(program, steps, state, inputs, **options)

    if state:
        out = rollout(program, steps, leaves, inputs, **options).final[output]
    else:
        out = rollout(program, steps, {}, {**inputs, **leaves}, **options).outputs[output]
    weight = torch.ones_like(out)

    def vjp() -> object:
        return torch.autograd.grad(out, list(leaves.values()), weight, retain_graph=True)

    forward()
    vjp()
    return forward, vjp
