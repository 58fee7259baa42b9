"""Start-up cost and overhead: import, first step, compilation, cache, time of a tiny step.

Each value is the minimum over a few fresh processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

LIMITS = {
    "import_s": 0.3,
    "first_step_s": 1.0,
    "compile_s": 5.0,
    "cached_load_s": 0.05,
    "tiny_step_us": 1.0,
}
"""Upper limits of the measurements."""

_IMPORT = """
import time, torch
begin = time.perf_counter()
import kinema, kinema.model.model, kinema.simulation.simulate
print(time.perf_counter() - begin)
"""

# The step of a small soft block, which ships compiled: forward and backward, after only the imports and the model.
_FIRST = """
import time, torch, kinema, kinema.model.model, kinema.simulation.simulate
scene = kinema.Scene()
scene.add_body(kinema.Sphere(0.3), fixed=True, pos=(0.0, 0.0, -0.3))
scene.add_solid(kinema.shapes.block((3, 3, 3), 0.1), skin=kinema.Skin(radius=0.01, k_d=1.0), pos=(0.0, 0.0, 0.155))
model = kinema.compile(scene)
state = kinema.State(x=model.initial_state().x.requires_grad_())
begin = time.perf_counter()
kinema.simulate(model, state, steps=1, dt=1e-4).end.x.sum().backward()
print(time.perf_counter() - begin)
"""

_KERNEL = """
import time, torch, kinema
from kinema.lang import Array, Float, Index, dot, kernel, vec3
from kinema.lang.build import compiler
from kinema.lang.programs import plan

@kernel
def drift(i: Index, x: Array[vec3], v: Array[vec3], k: Float, dt: Float, x_next: Array[vec3], v_next: Array[vec3]):
    velocity = v[i] - x[i] * (k * dt / (1.0 + dot(x[i], x[i])))
    v_next[i] = velocity
    x_next[i] = x[i] + velocity * dt

p = kinema.Program("tiny")
x, v = p.state("x", vec3, 16), p.state("v", vec3, 16)
k, dt = p.parameter("k", Float), p.parameter("dt", Float)
p.call(drift, x, v, k, dt, x.next, v.next, count=16)
"""

# Emission, compilation and loading of a new kernel, forward and adjoint; the runtime is already loaded.
_COMPILE = (
    _KERNEL
    + """
compiler.runtime()
begin = time.perf_counter()
made = plan.Plan(p, plan.Options())
made.compile(("forward", "reverse"))
print(time.perf_counter() - begin)
"""
)

_TINY = (
    _KERNEL
    + """
state = {"x": torch.randn(16, 3), "v": torch.zeros(16, 3)}
numbers = {"k": torch.tensor(1.0), "dt": torch.tensor(1e-3)}
best = 1e9
for _ in range(60):
    begin = time.perf_counter()
    kinema.rollout(p, 20_000, state, numbers, options=kinema.RunOptions(progress=False))
    best = min(best, time.perf_counter() - begin)
print(best / 20_000 * 1e6)
"""
)


def measure(repetitions: int = 3) -> dict[str, float]:
    """The five measurements, see `LIMITS`."""
    with tempfile.TemporaryDirectory() as cache:
        fresh = [_run(_COMPILE, {"KINEMA_CACHE": os.path.join(cache, str(k))}) for k in range(repetitions)]
        cached = [_run(_COMPILE, {"KINEMA_CACHE": os.path.join(cache, "0")}) for _ in range(repetitions)]
    return {
        "import_s": min(_run(_IMPORT) for _ in range(repetitions)),
        "first_step_s": min(_run(_FIRST) for _ in range(repetitions)),
        "compile_s": min(fresh),
        "cached_load_s": min(cached),
        "tiny_step_us": _run(_TINY),
    }


def _run(program: str, environment: dict[str, str] | None = None) -> float:
    """The number that a program prints in a separate process; kernels need a source file, so it is written to one."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(program)
        file.flush()
        command = [sys.executable, file.name]
        # With compiled bytecode, like installed packages: the first process writes it.
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        done = subprocess.run(
            command, env={**inherited, **(environment or {})}, capture_output=True, text=True, check=True
        )
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
