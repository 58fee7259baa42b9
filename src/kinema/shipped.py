"""The programs that come compiled with the package, and what can be seen of their kernels.

Runs where neither torch nor an installed Kinema is present: pip builds in isolation.
"""

from __future__ import annotations

import importlib
import pkgutil
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np

from kinema import contact, dynamics, integrate, kinematics
from kinema.errors import KernelError
from kinema.lang import analysis, build, cpu, emit_scalar, emit_simd
from kinema.lang.ir import ArrayRef, KernelIR
from kinema.lang.kernel import REGISTRY, Kernel
from kinema.lang.plan import Options, Plan
from kinema.lang.program import PARAMETER, Program
from kinema.model.tetmesh import tet_mesh
from kinema.rendering.image_program import Faces, Shape, image_program
from kinema.rendering.points import Look
from kinema.rendering.screen import rings
from kinema.scene.shapes.block import block
from kinema.simulation.soft import soft_program

STAGES: tuple[ModuleType, ...] = (kinematics, dynamics, contact, integrate)  # those of images come with `programs`


def programs() -> list[Program]:
    """Shipped programs. Sizes do not matter: compiled code is the same for all of them."""
    cube = block((1, 1, 1), 0.1)
    triangle = np.array([[0, 1, 2]], dtype=np.int32)
    faces = Faces(triangle, np.zeros(1, np.int32), rings(triangle))
    shape = Shape(Look(), (8, 8), 0.1, 100.0, 3, ((1, 1, 0, 0),), ((0, 0),), (1, 1, 1, 1, 1), ("rgb", "alpha"))
    soft = replace(shape, look=replace(shape.look, edges=False), room=(1,), soft=True)
    return [
        soft_program(tet_mesh(cube.vertices, cube.corners)),
        image_program(faces, shape),
        image_program(faces, soft),
    ]


def variants(program: Program) -> Iterator[Options]:
    """What a shipped program is compiled for: precisions, lane modes, gradients to the state alone or to all."""
    everything = frozenset(b.name for b in program.buffers.values() if b.kind == PARAMETER and "f" in b.kinds)
    for precision in (4, 8):
        for lanes in (analysis.ELEMENTS,) if program.lanes_are_elements else (analysis.ELEMENTS, analysis.WORLDS):
            for wrt in (frozenset[str](), everything):
                yield Options(precision, lanes, cpu.lanes(precision), wrt)


def sources() -> list[str]:
    """C++ source files of all shipped programs."""
    found: dict[str, None] = {}
    for program in programs():
        for options in variants(program):
            found.update(dict.fromkeys(Plan(program, options).sources(("forward", "reverse"))))
    return list(found)


def build_all(target: Path) -> None:
    """Compile the runtime and the shipped programs into a folder; unchanged libraries are kept, stale ones removed."""
    jobs = {build.runtime_key(): None, **{build.key_of(text, build.KERNEL_FLAGS): text for text in sources()}}
    for old in target.iterdir():
        if old.is_dir() and old.name not in jobs:
            shutil.rmtree(old)

    def compile_one(key: str) -> None:
        folder = target / key
        if (folder / "target.json").exists() and build.target() == build.built_for(folder):
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        text = jobs[key]
        if text is None:
            build.compile_runtime(folder)
        else:
            build.compile_into(folder, text, build.KERNEL_FLAGS)

    with ThreadPoolExecutor(max_workers=cpu.threads()) as pool:
        list(pool.map(compile_one, jobs))


def kernels() -> dict[str, Kernel]:
    """All kernels of the package by name."""
    for stage in STAGES:
        for module in pkgutil.iter_modules(stage.__path__):
            importlib.import_module(f"{stage.__name__}.{module.name}")
    programs()  # some kernels are made for what they are called with
    return {kernel.name: kernel for home, kernel in sorted(REGISTRY.items()) if home.startswith("kinema.")}


def list_kernels() -> list[tuple[str, str]]:
    """Names and one-line summaries of the package's kernels."""
    return [(name, (kernel.__doc__ or "").strip().splitlines()[0]) for name, kernel in kernels().items()]


def show(
    name: str, *, adjoint: bool = False, tangent: bool = False, width: int | None = None, scalar: bool = False
) -> str:
    """The C++ that is emitted for a kernel, float32.

    Args:
        name: Name of the kernel.
        adjoint: Show the reverse sweep with cotangents of every Float argument.
        tangent: Show the forward derivative.
        width: Lanes; this machine's by default.
        scalar: Show the `template <class T>` form.
    """
    found = kernels()
    if name not in found:
        raise KernelError(f"there is no kernel {name!r}", expected=", ".join(found))
    if width is not None and width not in (1, 2, 4, 8, 16):
        raise KernelError(f"kernels are emitted for 1, 2, 4, 8 or 16 lanes, not {width}")
    kernel = found[name]
    every = frozenset(a.name for a in kernel.arrays if "f" in a.kinds)
    form = kernel.adjoint(every) if adjoint else kernel.tangent(every) if tangent else kernel.forward()
    if scalar:
        return emit_scalar.emit_scalar(form, form.name)
    return emit_simd.emit(form, form.name, layouts=_layouts(form), width=width or cpu.lanes(4)).text


def _layouts(kernel: KernelIR) -> dict[ArrayRef, str]:
    """The layouts a program would choose if nobody else used the arrays."""
    uses = analysis.accesses(kernel, analysis.varying_values(kernel, analysis.ELEMENTS, set()))
    own = {a: {u.index for u in uses if u.array in (a, a.origin)} <= {"own"} for a in kernel.arrays}
    return {a: emit_simd.PACKET if own[a] and len(a.kinds) > 1 else emit_simd.AOS for a in kernel.arrays}
