"""The SIMD factor: kernels with branches and loops, at this machine's lane width and as scalar C++ of the same source.

Both come from one emitter, run on one thread and give the same bits; only the lane width differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from . import timing

PARTICLES = 16_384
STEPS = {"f": 50, "rgb": 1}  # steps per call: a step of the particles is short beside a call from Python
IMAGE = (256, 256)
SIGMA = GAMMA = 1e-4


def measure(budget: float) -> list[dict[str, object]]:
    """Rows with microseconds of forward and vjp in SIMD and scalar form, and their ratio."""
    from kinema.lang.build import cpu

    width = cpu.lanes(4)
    rows = []
    cases = (("contact, 16,384 particles", contact, "f"), ("pixels, 1,984 triangles, 256 x 256", pixels, "rgb"))
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
    """Particles around a plane, a sphere and a box; about a third of them touch something."""
    import torch

    from kinema.contact.compliant import Box, Penalty, Plane, Sphere, particle_contact
    from kinema.lang import Float, mat33, vec3
    from kinema.lang.programs.program import Program

    p = Program("contact")
    x, v = p.parameter("x", vec3, PARTICLES), p.parameter("v", vec3, PARTICLES)
    values = {
        "radius": 0.05,
        "normal": [0.0, 0.0, 1.0],
        "offset": 0.0,
        "ball": [0.3, 0.3, 0.5],
        "ball_radius": 0.3,
        "centre": [0.7, 0.7, 0.3],
        "half": [0.15, 0.2, 0.25],
        "rotation": torch.eye(3),
        "k_e": 1e4,
        "k_d": 1.0,
        "k_f": 10.0,
        "mu": 0.5,
        "dt": 1e-4,
    }
    types = {"normal": vec3, "ball": vec3, "centre": vec3, "half": vec3, "rotation": mat33}
    b = {n: p.parameter(n, types.get(n, Float)) for n in values}
    force = p.output("f", vec3, PARTICLES)
    law = Penalty(k_e=b["k_e"], k_d=b["k_d"], k_f=b["k_f"], mu=b["mu"])
    shapes = (
        Plane(normal=b["normal"], offset=b["offset"]),
        Sphere(centre=b["ball"], radius=b["ball_radius"]),
        Box(centre=b["centre"], half=b["half"], rotation=b["rotation"]),
    )
    p.call(particle_contact, x, v, b["radius"], *shapes, law, b["dt"], force, count=PARTICLES)
    rng = np.random.default_rng(0)
    inputs = {n: torch.as_tensor(t, dtype=torch.float32) for n, t in values.items()}
    inputs["x"] = torch.tensor(rng.uniform(0, 1, (PARTICLES, 3)), dtype=torch.float32)
    inputs["v"] = torch.tensor(rng.normal(0, 1, (PARTICLES, 3)), dtype=torch.float32)
    return _calls(p, {}, inputs, ("x", "v"), "f")


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
    return _calls(p, {}, inputs, ("vertices", "colours"), "rgb")


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


def _calls(
    program: Any, state: dict, inputs: dict, wrt: tuple[str, ...], output: str
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Some steps forward without gradients, and their backward pass from stored inputs."""
    import torch

    from kinema.lang.autograd.rollout import rollout

    leaves = {n: inputs[n].detach().requires_grad_() for n in wrt}
    options: dict[str, Any] = {"record": () if state else (output,), "threads": 1, "progress": False}
    steps = STEPS[output]

    def forward() -> object:
        with torch.no_grad():
            return rollout(program, steps, state, inputs, **options)

    kept = rollout(program, steps, state, {**inputs, **leaves}, **options)
    out = kept.final[output] if state else kept.outputs[output]
    weight = torch.ones_like(out)

    def vjp() -> object:
        return torch.autograd.grad(out, list(leaves.values()), weight, retain_graph=True)

    forward()
    vjp()
    return forward, vjp
