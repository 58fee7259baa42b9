"""Shared by tests: calling emitted kernels without the runtime, many to a library, and a small soft block."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import struct
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from kinema.dynamics.elastic import TetMesh, neo_hookean, solid_kernels
from kinema.integrate.semi_implicit import advance_particles
from kinema.lang import Float, ivec4, mat33, vec3
from kinema.lang.build import compiler, cpu
from kinema.lang.emit import simd
from kinema.lang.emit.simd import AOS, LANES, PACKET
from kinema.lang.ir import analysis
from kinema.lang.ir.analysis import ELEMENTS, WORLDS
from kinema.lang.ir.ssa import ArrayRef, KernelIR
from kinema.lang.programs.program import Program
from kinema.lang.runtime import native
from kinema.model.tetmesh import TetArrays, tet_mesh
from kinema.model.trimesh import TriArrays
from kinema.scene.shapes.block import block

ARENA_BYTES = 1 << 20
solid_forces, _ = solid_kernels(neo_hookean)  # whose third number is alpha, as in the paper

# As kernels are compiled, but quickly: these run for microseconds. What changes bits stays as it is.
QUICK_FLAGS = [flag for flag in compiler.KERNEL_FLAGS if not flag.startswith("-O")]
QUICK_FLAGS += [
    "-O1",
    *([] if compiler.is_clang(compiler.compiler() or "") else ["-fno-schedule-insns", "-fno-live-range-shrinkage"]),
]


# -- emitted kernels -----------------------------------------------------------------------------------------------


@dataclass
class Emission:
    """One emitted form of a kernel: how its arrays lie in memory, and the C function once it is compiled."""

    kernel: KernelIR
    layouts: dict[ArrayRef, str]
    lanes: str
    width: int
    precision: int
    symbol: str
    text: str
    function: ctypes._CFuncPtr | None = None

    def __call__(self, worlds: Sequence[dict[str, np.ndarray]], count: int) -> list[dict[str, np.ndarray]]:
        """Run it over `count` elements; returns the arrays afterwards, per world.

        Args:
            worlds: Contents of all arrays by name, shape (elements, numbers), for each world: one if lanes are
                elements, at most `width` if lanes are worlds.
            count: Number of elements.
        """
        packed = self.pack(worlds)
        pointers = (ctypes.c_void_p * len(packed))(*[p.ctypes.data for p in packed])
        lengths = (ctypes.c_int64 * len(packed))(*[len(worlds[0][a.name]) for a in self.kernel.arrays])
        memory = np.zeros(ARENA_BYTES + 64, np.uint8)
        arena = native.Arena(memory.ctypes.data + -memory.ctypes.data % 64, ARENA_BYTES, 0, 0, None)
        call = native.Call()
        call.array, call.length, call.begin, call.end = pointers, lengths, 0, count
        call.active, call.world = len(worlds), 0
        call.arena = ctypes.pointer(arena)
        assert self.function is not None, "compile first"
        self.function(ctypes.byref(call))
        assert arena.used == 0 and not arena.overflow
        return self.unpack(packed, worlds)

    def pack(self, worlds: Sequence[dict[str, np.ndarray]]) -> list[np.ndarray]:
        """The arrays in native memory."""
        return [self._pack(a, [w[a.name] for w in worlds]) for a in self.kernel.arrays]

    def unpack(self, packed: list[np.ndarray], worlds: Sequence[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        """The arrays from native memory, per world."""
        unpacked = [self._unpack(a, p, worlds) for a, p in zip(self.kernel.arrays, packed, strict=True)]
        return [{a.name: u[w] for a, u in zip(self.kernel.arrays, unpacked, strict=True)} for w in range(len(worlds))]

    @cached_property
    def own(self) -> set[ArrayRef]:
        """Arrays that are indexed by the element: these are padded to whole packets, as in programs."""
        uses = analysis.accesses(self.kernel, analysis.varying_values(self.kernel, ELEMENTS, set()))
        return {u.array for u in uses if u.index == "own"}

    def _pack(self, array: ArrayRef, contents: list[np.ndarray]) -> np.ndarray:
        """Native memory of an array. Padding holds NaN, so that a lane that must not act is noticed if it does."""
        n, numbers = len(contents[0]), len(array.kinds)
        real = np.float32 if self.precision == 4 else np.float64
        dtype, empty = (real, np.nan) if "f" in array.kinds else (np.int32, 0)
        layout = self.layouts[array]
        if layout == LANES:
            made = _aligned((n, numbers, self.width), dtype)
            for lane in range(self.width):
                made[..., lane] = contents[min(lane, len(contents) - 1)]
            return made
        whole = -(-n // 16) * 16 if array in self.own or layout == PACKET else n
        if layout == PACKET:
            made = _aligned((whole // 16, numbers, 16), dtype)
            made[...] = empty
            made.transpose(0, 2, 1)[np.arange(n) // 16, np.arange(n) % 16] = contents[0]
            return made
        made = _aligned((whole, array.padded), dtype)
        made[...] = empty
        made[:n, :numbers] = contents[0]
        return made

    def _unpack(self, array: ArrayRef, packed: np.ndarray, worlds: Sequence[dict[str, np.ndarray]]) -> list[np.ndarray]:
        n, numbers = len(worlds[0][array.name]), len(array.kinds)
        if self.layouts[array] == LANES:
            return [packed[..., w].copy() for w in range(len(worlds))]
        if self.layouts[array] == PACKET:
            return [packed.transpose(0, 2, 1).reshape(-1, numbers)[:n].copy()]
        return [packed[:n, :numbers].copy() for _ in worlds]


def _aligned(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


@dataclass
class Batch:
    """Emitted kernels that are compiled many to a file: one by one each would pay for the headers again."""

    flags: list[str] = field(default_factory=lambda: list(QUICK_FLAGS))
    emissions: list[Emission] = field(default_factory=list)

    def add(
        self,
        kernel: KernelIR,
        layouts: dict[str, str] | None = None,
        lanes: str = ELEMENTS,
        width: int = 4,
        precision: int = 8,
    ) -> Emission:
        """Emit a kernel; `layouts` by array name (a derivative array has that of its primal), 'aos' by default."""
        named = layouts or {}
        chosen = {a: named.get((a.origin or a).name, AOS) for a in kernel.arrays}
        if lanes == WORLDS:
            chosen = {a: LANES if "f" in a.kinds or a.written else AOS for a in kernel.arrays}
        # The symbol follows from the content, so that two runs make the same text, which the cache knows.
        symbol = f"kn_{len(self.emissions)}_{kernel.name}"
        made = simd.emit(kernel, symbol, layouts=chosen, lanes=lanes, width=width, precision=precision)
        self.emissions.append(Emission(kernel, chosen, lanes, width, precision, symbol, made.text))
        return self.emissions[-1]

    def compile(self, files: int) -> None:
        """Compile everything into `files` libraries, side by side, and load them."""
        parts = [self.emissions[k::files] for k in range(files)]
        with ThreadPoolExecutor(max_workers=cpu.threads()) as pool:
            for part, path in zip(parts, pool.map(self._library, parts), strict=True):
                library = ctypes.CDLL(str(path / compiler.LIBRARY))
                for emission in part:
                    emission.function = getattr(library, emission.symbol)
                    emission.function.restype = None

    def _library(self, part: list[Emission]) -> Path:
        text = '#define KN_CHECK 0\n#include "kernel.hpp"\n\n' + "\n".join(e.text for e in part)
        text = text.replace('extern "C" void', 'extern "C" __attribute__((visibility("default"))) void')
        return compiler.publish(compiler.key_of(text, self.flags), text, self.flags)


def digest(*arrays: np.ndarray) -> str:
    """The bits of arrays as a short text, to be compared between processes."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


# -- kernels in a program of their own -------------------------------------------------------------------------------


@dataclass
class Run:
    """One call in a stand-alone program; `apart` says which groups of elements write to different places."""

    emission: Emission
    worlds: Sequence[dict[str, np.ndarray]]
    count: int
    apart: np.ndarray | None = None


def run_stand_alone(runs: Sequence[Run], gcc: Sequence[str], emulator: Sequence[str], folder: Path) -> list:
    """Compile the kernels of all runs with a driver, run it, and return the arrays afterwards, per run and world.

    Args:
        runs: What to call.
        gcc: The compiler and its flags.
        emulator: What runs the program; empty for this machine.
        folder: For its files.
    """
    native = Path(__file__).parent / "unit" / "native"
    kernels = {r.emission.symbol: r.emission for r in runs}
    words = [*gcc, "-std=c++17", "-w", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
    words += [f"-I{compiler.SOURCES}", f"-I{native}"]

    def compile_part(part: int) -> str:
        source = folder / f"kernels{part}.cpp"
        text = "\n".join(e.text for e in list(kernels.values())[part::2])
        source.write_text(f'#define KN_CHECK 0\n#include "kernel.hpp"\n{text}')
        command([*words, "-c", str(source), "-o", str(source.with_suffix(".o"))])
        return str(source.with_suffix(".o"))

    with ThreadPoolExecutor() as pool:
        objects = list(pool.map(compile_part, range(2)))
    main = folder / "main.cpp"
    names = ", ".join(kernels)
    declarations = "".join(f'extern "C" void {n}(const kn_call*);\n' for n in kernels)
    main.write_text(f'#include "kernel_driver.hpp"\n{declarations}const kn_kernel kernels[] = {{{names}}};\n')
    command([*words, str(main), *objects, "-o", str(folder / "driver")])
    packed = [r.emission.pack(r.worlds) for r in runs]
    with (folder / "in").open("wb") as out:
        out.write(struct.pack("q", len(runs)))
        for run, arrays in zip(runs, packed, strict=True):
            number = list(kernels).index(run.emission.symbol)
            apart = b"" if run.apart is None else run.apart.tobytes()
            out.write(struct.pack("qqqq", number, run.count, len(run.worlds), len(apart)) + apart)
            out.write(struct.pack("q", len(arrays)))
            for ref, array in zip(run.emission.kernel.arrays, arrays, strict=True):
                out.write(struct.pack("qq", len(run.worlds[0][ref.name]), array.nbytes) + array.tobytes())
    printed = command([*emulator, str(folder / "driver"), str(folder / "in"), str(folder / "out")])
    assert printed.endswith("PASS\n"), printed
    data, found = (folder / "out").read_bytes(), []
    for run, arrays in zip(runs, packed, strict=True):
        after = []
        for array in arrays:
            after.append(np.frombuffer(data[: array.nbytes], array.dtype).reshape(array.shape))
            data = data[array.nbytes :]
        found.append(run.emission.unpack(after, run.worlds))
    return found


def command(words: Sequence[str]) -> str:
    """What a program prints; fails with what it says if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{words[0]} gave {done.returncode}\n{done.stdout}\n{done.stderr[:6000]}"
    return done.stdout


def aarch64() -> tuple[list[str], list[str]] | None:
    """Compiler and emulator for another architecture, if they are installed."""
    compiler, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64-static")
    return ([compiler, "-static", "-O1"], [emulator]) if compiler and emulator else None


# -- a soft block ----------------------------------------------------------------------------------------------------


def soft_block(cubes: tuple[int, int, int]) -> tuple[Program, TetArrays]:
    """The step of a block of neo-Hookean tetrahedra, five to a cube, and its mesh."""
    made = block(cubes, 0.1)
    mesh = tet_mesh(made.vertices, made.corners)
    p = Program("soft_block")
    vertices, tets, order = len(mesh.vertices), len(mesh.tets), mesh.order
    x, v = p.state("x", vec3, vertices), p.state("v", vec3, vertices)
    shape = TetMesh(
        vertices=p.constant("vertices", ivec4, mesh.tets, order=order),
        rest_inverse=p.constant("rest_inverse", mat33, mesh.rest_inverse, order=order),
        volume=p.constant("volume", Float, mesh.volume, order=order),
    )
    mu, lam, alpha = (p.parameter(n, Float, tets, order=order) for n in ("mu", "lam", "alpha"))
    f, inv_mass = p.scratch("f", vec3, vertices), p.parameter("inv_mass", Float, vertices)
    gravity, dt = p.parameter("gravity", vec3), p.parameter("dt", Float)
    p.call(solid_forces, shape, x, mu, lam, alpha, f, count=tets)
    p.call(advance_particles, x, v, f, inv_mass, gravity, dt, x.next, v.next, count=vertices)
    return p, mesh


def masses(mesh: TetArrays | TriArrays, density: float | np.ndarray) -> np.ndarray:
    """Lumped masses of vertices [kg]: equal parts of each element for its corners."""
    corners, size = (mesh.tets, mesh.volume) if isinstance(mesh, TetArrays) else (mesh.triangles, mesh.area)
    found = np.zeros(len(mesh.vertices))
    np.add.at(found, corners, (density * size / corners.shape[1])[:, None])
    return found


def soft_inputs(mesh: TetArrays, worlds: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """State and parameters of deformed, moving blocks: x, v and mu per world, shape (worlds, ...), the rest shared."""
    rng = np.random.default_rng(0)
    shape = (worlds, *mesh.vertices.shape)
    edge = 0.1
    # Forces of the order of gravity's: mu * edge * strain against mass * g.
    mu = rng.uniform(2e3, 4e3, (worlds, len(mesh.tets)))
    lam = rng.uniform(4e3, 8e3, len(mesh.tets))
    state = {"x": mesh.vertices + rng.uniform(-0.05, 0.05, shape) * edge, "v": rng.uniform(-0.1, 0.1, shape)}
    parameters = {
        "mu": mu,
        "lam": lam,
        "alpha": 1.0 + 0.75 * 3e3 / lam,
        "inv_mass": 1.0 / masses(mesh, 1000.0),
        "gravity": np.array([0.0, 0.0, -9.81]),
        "dt": np.array(1e-3),
    }
    return {n: torch.tensor(a) for n, a in state.items()}, {n: torch.tensor(a) for n, a in parameters.items()}
