"""Emitted kernels in a program of their own: under AddressSanitizer and UndefinedBehaviorSanitizer, and on aarch64.

Arrays have the sizes that programs give them, each in an allocation of its own, local arrays too: a lane that reads or
writes where it must not is seen. Results have the bits of the same kernels without sanitizers.
"""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import support
from kinema.lang import Array, Float, Index, Int, func, kernel, local, sin, sqrt, vec3
from kinema.lang.build import compiler
from kinema.lang.emit.simd import PACKET
from kinema.lang.ir.analysis import WORLDS
from kinema.lang.ir.ssa import KernelIR
from kinema.lang.kernels.kernel import Kernel
from kinema.lang.programs.schedule import chunk_schedule, sums_by_chunk
from support import Run

SANITIZED = ["-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
if platform.machine() == "x86_64":
    SANITIZED.append("-march=x86-64-v3")

pytestmark = pytest.mark.skipif(shutil.which(compiler.compiler() or "") is None, reason="no C++ compiler")


@func
def smoothed(x: Float, n: Int):
    """Newton's steps for a square root, a number that depends on the element."""
    r = 1.0 + 0.5 * x
    for _ in range(n):
        r = 0.5 * (r + x / r)
    return r


@kernel
def branchy(
    i: Index,
    n: Int,
    count: Array[Int],
    table: Array[Int],
    a: Array[Float],
    p: Array[vec3],
    x: Array[Float],
    y: Array[Float],
    z: Array[vec3],
    s: Array[Float],
    f: Array[vec3],
):
    """Local arrays by loop variable and by table, masked loops with break, branches, indices beyond the end."""
    few = local(Float, 3)
    many = local(vec3, count[i] + 1)
    for k in range(3):
        few[k] = a[i] * x[i + k]  # x is longer by 2 only: the last packet's idle lanes would read beyond
    for k in range(count[i] + 1):
        many[k] = p[i] * few[(k + table[i]) % 3]
    total = 0.0
    for k in range(count[i], -1, -1):
        v = many[k]
        if v.x > 0.3:
            total += v.y * total
        elif v.y > 0.2:
            total -= v.z
            break
        else:
            for j in range(n):
                total = sin(total + few[j % 3])
    if total > 0.1:
        y[i] = sqrt(total)
        f[table[i]] += p[i] * total
        return
    y[i] = smoothed(1.0 + total * total, count[i])
    s[1] += y[i] * few[table[i] % 3]
    z[i] = many[count[i]] + p[i]
    f[table[table[i]]] += z[i] * a[i]


def branchy_world(n: int, seed: int) -> dict[str, np.ndarray]:
    rng, tables = np.random.default_rng(seed), np.random.default_rng(0)  # worlds share tables
    return {
        "n": np.array([[2]]),
        "count": tables.integers(0, 5, (n, 1)),
        "table": tables.integers(0, n, (n, 1)),
        "a": rng.uniform(-1, 1, (n, 1)),
        "p": rng.uniform(-1, 1, (n, 3)),
        "x": rng.uniform(-1, 1, (n + 2, 1)),
        "y": np.zeros((n, 1)),
        "z": np.zeros((n, 3)),
        "s": np.zeros((2, 1)),
        "f": np.zeros((n, 3)),
    }


def tet_world(seed: int) -> dict[str, np.ndarray]:
    """Tetrahedra in packet order: most groups of eight write to different nodes, some do not."""
    _, mesh = support.soft_block((6, 5, 5))
    rng = np.random.default_rng(seed)
    n, nodes, order = len(mesh.tets), len(mesh.vertices), mesh.order
    return {
        "mesh_vertices": mesh.tets[order],
        "mesh_rest_inverse": mesh.rest_inverse[order].reshape(n, 9),
        "mesh_volume": mesh.volume[order, None],
        "x": mesh.vertices + rng.uniform(-0.01, 0.01, (nodes, 3)),
        **{name: rng.uniform(1, 2, (n, 1)) for name in ("mu", "lam", "activation")},
        "f": np.zeros((nodes, 3)),
    }


def apart_of(k: KernelIR, world: dict[str, np.ndarray], count: int) -> np.ndarray | None:
    """The groups whose writes do not meet, as a program works them out."""
    tables = {a: world[a.name] for a in k.arrays if "i" in a.kinds and a.name in world}
    sums = sums_by_chunk(k, {a: world[a.name].size if a.name in world else 0 for a in k.arrays}, count)
    schedule = chunk_schedule(k, tables, count, sums)
    return None if schedule is None else schedule.apart


def derived(world: dict[str, np.ndarray], k: Kernel, prefix: str) -> dict[str, np.ndarray]:
    """The arrays of an adjoint or tangent kernel."""
    rng = np.random.default_rng(9)
    return {
        **world,
        **{f"{prefix}{a.name}": rng.uniform(-1, 1, world[a.name].shape) for a in k.arrays if "f" in a.kinds},
    }


def test_one_emitted_kernel_is_clean(tmp_path: Path) -> None:
    """The one with all kinds of control flow, in both kinds of lanes; all forms and widths are among the slow tests."""
    batch, worlds, count = support.Batch(), [branchy_world(21, w) for w in range(3)], 21
    forward = branchy.forward()
    made = [
        Run(batch.add(forward, {"p": PACKET, "z": PACKET}), worlds[:1], count, apart_of(forward, worlds[0], count)),
        Run(batch.add(forward, lanes=WORLDS), worlds, count),
    ]
    batch.compile(1)
    compare(made, support.run_stand_alone(made, [compiler.compiler() or "", *SANITIZED], [], tmp_path))


def runs() -> tuple[support.Batch, list[Run]]:
    """Both kernels, forward, adjoint and tangent, at several widths and in both kinds of lanes."""
    batch, made = support.Batch(), []
    packets = {n: PACKET for n in ("mesh_rest_inverse", "mesh_vertices")}
    for k, worlds, layouts in (
        (branchy, [branchy_world(21, w) for w in range(3)], {"p": PACKET, "z": PACKET}),
        (support.solid_forces, [tet_world(w) for w in range(3)], packets),
    ):
        count = len(worlds[0]["y" if k is branchy else "mu"])
        floats = frozenset(a.name for a in k.arrays if "f" in a.kinds)
        forms = [("", k.forward()), ("adj_", k.adjoint(floats)), ("tan_", k.tangent(floats))]
        for prefix, ir in forms:
            given = [derived(w, k, prefix) if prefix else w for w in worlds]
            apart = apart_of(ir, given[0], count)
            assert k is branchy or 0.3 < apart.mean() < 1
            made.append(Run(batch.add(ir, layouts, width=4, precision=8), given[:1], count, apart))
            if prefix != "tan_":
                made.append(Run(batch.add(ir, None, width=8, precision=4), given[:1], count, apart))
                made.append(Run(batch.add(ir, lanes=WORLDS, width=4, precision=8), given, count))
    return batch, made


@pytest.mark.slow
def test_emitted_kernels_are_clean(tmp_path: Path) -> None:
    batch, made = runs()
    batch.compile(2)
    compare(made, support.run_stand_alone(made, [compiler.compiler() or "", *SANITIZED], [], tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(support.aarch64() is None, reason="no cross compiler and emulator for aarch64")
def test_another_architecture_has_the_same_bits(tmp_path: Path) -> None:
    batch, made = runs()
    batch.compile(2)
    compiler, emulator = support.aarch64() or ([], [])
    compare(made, support.run_stand_alone(made, compiler, emulator, tmp_path))


def compare(made: list[Run], found: list) -> None:
    """With this machine's code, lane by lane: groups that are apart must not make a difference."""
    for run, got in zip(made, found, strict=True):
        wanted = run.emission(run.worlds, run.count)
        for one, other in zip(got, wanted, strict=True):
            assert all(np.array_equal(one[n], other[n]) for n in other), run.emission.symbol
            assert any(np.abs(other[n] - run.worlds[0][n]).max() > 0 for n in other), "nothing was computed"
