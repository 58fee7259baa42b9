"""Three quick checks that an installation works: a gradient, determinism over threads, a compile."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from kinema.errors import KinemaError
from kinema.lang import Array, Float, Index, kernel, sin
from kinema.lang.autograd.options import RunOptions
from kinema.lang.autograd.rollout import rollout
from kinema.lang.build import compiler
from kinema.lang.programs.plan import Options, Plan
from kinema.lang.programs.program import Program
from kinema.model.model import Model, compile
from kinema.scene.matter import Skin, Solid
from kinema.scene.primitives import Sphere
from kinema.scene.scene import Scene
from kinema.scene.shapes.block import block
from kinema.simulation.simulate import simulate

Check = tuple[str, bool, str]
STEPS = 20
MU = 2000.0  # [Pa]


def run() -> list[Check]:
    """Run the checks.

    Returns:
        (name, passed, detail) for each.
    """
    checks: list[tuple[str, Callable[[], tuple[bool, str]]]] = [
        ("gradient", _gradient),
        ("bitwise equal on 1, 2 and 4 threads", _threads),
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


def soft_model() -> Model:
    """A soft block that falls at 1 m/s and has just touched a ball; in double precision."""
    scene = Scene()
    scene.add_body(Sphere(0.3), fixed=True)
    skin = Skin(radius=0.01, k_e=1e4, k_d=1.0, k_f=10.0, friction=0.5)
    material = Solid(density=1000.0, mu=MU, lam=3000.0)
    scene.add_solid(
        block((3, 3, 3), 0.1), "block", material=material, skin=skin, pos=(0.0, 0.0, 0.455), velocity=(0.0, 0.0, -1.0)
    )
    return compile(scene, torch.float64)


def _rollout(threads: int, scale: torch.Tensor) -> torch.Tensor:
    """Mean final height and motion of a soft block on a ball, as a function of its stiffness."""
    options = RunOptions(threads=threads, progress=False)
    end = simulate(soft_model(), steps=STEPS, dt=1e-3, params={"block/mu": MU * scale}, options=options).end
    return end.x[:, 2].mean() + end.xd.square().sum()


def _gradient() -> tuple[bool, str]:
    """The gradient of a rollout against central differences."""
    scale = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    (exact,) = torch.autograd.grad(_rollout(1, scale), scale)
    h = 1e-5  # central differences: error h^2, rounding error 1e-16/h
    with torch.no_grad():
        difference = (_rollout(1, scale + h) - _rollout(1, scale - h)) / (2 * h)
    error = abs(float(exact - difference)) / abs(float(difference))
    return error < 1e-7, f"relative error against central differences {error:.1e}"


def _threads() -> tuple[bool, str]:
    """Bitwise equality of value and gradient for several numbers of threads."""
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
    """Compile a small kernel, bypassing the cache, and check its value."""
    if compiler.compiler() is None:
        named = f"CXX={os.environ['CXX']} names no program" if os.environ.get("CXX") else "no C++ compiler"
        return False, f"{named}: shipped programs work, others and user kernels need g++ or clang++"
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
