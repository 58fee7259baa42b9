"""Three quick checks that an installation works: a gradient, determinism over threads, a compile."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from kinema.errors import KinemaError
from kinema.lang import Array, Float, Index, kernel, sin
from kinema.lang.autograd.rollout import rollout
from kinema.lang.build import compiler
from kinema.lang.programs.plan import Options, Plan
from kinema.lang.programs.program import Program
from kinema.model.tetmesh import TetArrays, tet_mesh
from kinema.scene.shapes.block import block
from kinema.simulation.soft import soft_program

Check = tuple[str, bool, str]
STEPS = 20


def run() -> list[Check]:
    """Run the checks.

    Returns:
        (name, passed, detail) for each.
    """
    checks: list[tuple[str, Callable[[], tuple[bool, str]]]] = [
        ("gradient", _gradient),
        ("same bits on 1, 2 and 4 threads", _threads),
        ("compile", _compile),
    ]
    found = []
    for name, check in checks:
        try:
            ok, detail = check()
        except KinemaError as error:
            ok, detail = False, str(error)
        found.append((name, ok, detail))
    return found


def _inputs(mesh: TetArrays) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """State and parameters of a soft block that has just touched a sphere; float64."""
    tets = len(mesh.tets)
    below = mesh.vertices.mean(axis=0)
    below[2] = mesh.vertices[:, 2].min() - 0.305
    values = {
        "mu": [2000.0] * tets,
        "lam": [3000.0] * tets,
        "alpha": [1.0 + 0.75 * 2 / 3] * tets,
        "inv_mass": 1 / mesh.masses(1000.0),
        "gravity": [0.0, 0.0, -9.81],
        "dt": 1e-3,
        "radius": 0.01,
        "plane_normal": [0.0, 0.0, 1.0],
        "plane_offset": -1.0,
        "sphere_centre": below,
        "sphere_radius": 0.3,
        "box_centre": [5.0, 0.0, 0.0],
        "box_half": [0.1, 0.1, 0.1],
        "box_rotation": torch.eye(3),
        "k_e": 1e4,
        "k_d": 1.0,
        "k_f": 10.0,
        "friction": 0.5,
    }
    x = torch.tensor(mesh.vertices)
    v = torch.zeros_like(x)
    v[:, 2] = -1.0
    return {"x": x, "v": v}, {n: torch.as_tensor(t, dtype=torch.float64) for n, t in values.items()}


def _rollout(threads: int, mu_scale: torch.Tensor) -> torch.Tensor:
    """Mean final height of a soft block falling on a sphere, as a function of its stiffness."""
    cubes = block((3, 3, 3), 0.1)
    mesh = tet_mesh(cubes.vertices, cubes.corners)
    state, parameters = _inputs(mesh)
    parameters["mu"] = parameters["mu"] * mu_scale
    final = rollout(soft_program(mesh), STEPS, state, parameters, threads=threads, progress=False).final
    return final["x"][:, 2].mean() + final["v"].square().sum()


def _gradient() -> tuple[bool, str]:
    """The gradient of a rollout against central differences."""
    scale = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    (exact,) = torch.autograd.grad(_rollout(1, scale), scale)
    h = 1e-5  # central differences: error h^2, round-off 1e-16/h
    with torch.no_grad():
        difference = (_rollout(1, scale + h) - _rollout(1, scale - h)) / (2 * h)
    error = abs(float(exact - difference)) / abs(float(difference))
    return error < 1e-7, f"relative error against central differences {error:.1e}"


def _threads() -> tuple[bool, str]:
    """Value and gradient on several threads, bit by bit."""
    results = []
    for threads in (1, 2, 4):
        scale = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
        value = _rollout(threads, scale)
        (gradient,) = torch.autograd.grad(value, scale)
        results.append((float(value.detach()), float(gradient)))
    return len(set(results)) == 1, f"value {results[0][0]!r}, gradient {results[0][1]!r}"


@kernel
def _probe(i: Index, x: Array[Float], y: Array[Float]):
    """y = sin(x) x."""
    y[i] = sin(x[i]) * x[i]


def _compile() -> tuple[bool, str]:
    """A small kernel through the compiler, past the cache, and its value."""
    if compiler.compiler() is None:
        return False, "no C++ compiler: shipped programs work, others and own kernels need g++ or clang++"
    program = Program("selfcheck")
    x, y = program.parameter("x", Float, 16), program.output("y", Float, 16)
    program.call(_probe, x, y, count=16)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        (source,) = Plan(program, Options(record=frozenset({"y"}))).sources(("forward",))
        compiler.compile_into(Path(folder), source, compiler.KERNEL_FLAGS)
    seconds = time.perf_counter() - begin
    values = torch.linspace(-1, 1, 16, dtype=torch.float64)
    out = rollout(program, 1, {}, {"x": values}, record=("y",)).outputs["y"][0]
    ok = bool((out - values.sin() * values).abs().max() < 1e-15)  # sin to 2 ulp, |x| <= 1
    return ok, f"{seconds:.2f} s with {compiler.compiler()}"
