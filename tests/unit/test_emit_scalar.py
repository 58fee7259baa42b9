"""The scalar emitter: compiled for double and run against plain Python, and over the scalars of CppAD and Ceres."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support import solid_forces

from kinema.dynamics.elastic import TetMesh
from kinema.lang import (
    Array,
    Bool,
    Float,
    Index,
    Int,
    acos,
    asin,
    atan2,
    clamp,
    cos,
    dot,
    exp,
    floor,
    kernel,
    local,
    log,
    max,
    min,
    norm,
    pow,
    rsqrt,
    select,
    sigmoid,
    sign,
    sin,
    sqrt,
    struct,
    tan,
    tanh,
    vec3,
)
from kinema.lang.emit.scalar import emit_scalar, parameters
from kinema.lang.ir.ssa import KernelIR

CXX = os.environ.get("CXX", "g++")
FLAGS = ["-std=c++17", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-Wno-unused-parameter"]
pytestmark = pytest.mark.skipif(shutil.which(CXX) is None, reason=f"no C++ compiler ({CXX})")


@kernel
def winding(
    e: Index, first: Array[Int], table: Array[Float], x: Array[vec3], k: Float, y: Array[vec3], total: Array[Float]
):
    """A varying range with break, a local array, nested loops and branches."""
    kept = local(Float, 6)
    p, count = 1.0, 0
    for i in range(first[e], first[e + 1]):
        if p > 6.0:
            break
        p = p * (1.0 + table[i] * table[i]) + 0.1 * x[e].x
        kept[count] = p
        count = count + 1
    s = 0.0
    for j in range(count - 1, -1, -1):
        for i in range(j % 3):
            s = s * 0.9 + sin(kept[j] + k * i)
        if s > 0.5:
            s = s / (1.0 + s * s)
        elif j // 2 == 1:
            continue
        s += kept[j] * 0.01
    v = x[e]
    if norm(v) > 1.2:
        y[e] = v * s / norm(v)
    else:
        y[e] = v * (s * s)
    total[0] += s * p


@struct
class Sample:
    """A number with a weight that counts and a flag."""

    value: Float
    weight: Int
    positive: Bool


@kernel
def functions(
    e: Index, x: Array[Float], samples: Array[Sample], out: Array[Float], whole: Array[Int], after: Array[Sample]
):
    """Every scalar function, of x in (-1, 1)."""
    u, n = x[e], len(x)
    w = 0.55 + 0.4 * u
    s = sqrt(w) + rsqrt(w) + sin(u) + cos(u) + tan(u) + asin(u) + acos(u) + atan2(u, w) + atan2(w, -w * w)
    s = s + exp(u) + log(w) + pow(w, u) + pow(w, 3.5) + tanh(u) + sigmoid(3.0 * u) + sign(u) * w + floor(5.0 * u) * u
    s = s + abs(u) + min(u, w * w) + max(u, 0.3 - u) + clamp(u, -0.4, 0.5) + select(u > w, u, w * u) + u**-3
    i = Int(7.0 * u)
    old = samples[e]
    out[e] = s + old.value * old.weight if old.positive else -s
    whole[e] = i // 3 + 10 * (i % 3) + 100 * (i // -3) + 1000 * abs(i % -3) + min(i, 2) + n
    after[e] = Sample(s * u, old.weight + i, u > 0.0 and w > 0.4)


@kernel
def mean(x: Array[vec3], out: Array[vec3]):
    """Once per world, without Index."""
    sums = local(vec3, len(x) + 1)
    for i in range(len(x)):
        sums[i + 1] = sums[i] + x[i] * dot(x[i], x[i])
    out[0] = sums[len(x)] / len(x)


RNG = np.random.default_rng(3)
N = 7


def winding_arrays() -> dict[str, np.ndarray]:
    return {
        "first": np.array([0, 2, 2, 5, 9, 10, 14, 20], np.int32),
        "table": RNG.normal(size=20),
        "x": RNG.normal(size=(N, 3)),
        "k": np.array([0.7]),
        "y": np.zeros((N, 3)),
        "total": np.ones(1),
    }


def function_arrays() -> dict[str, np.ndarray]:
    samples = np.stack([RNG.normal(size=N), RNG.integers(-5, 5, N), RNG.integers(0, 2, N)], 1)
    x = np.array([-0.95, -0.61, -0.3, 0.13, 0.42, 0.66, 0.9])
    whole, after = np.zeros(N, np.int32), np.zeros((N, 3))
    return {"x": x, "samples": samples, "out": np.zeros(N), "whole": whole, "after": after}


def tet_arrays() -> dict[str, np.ndarray]:
    return {
        "mesh_vertices": np.array([RNG.permutation(8)[:4] for _ in range(N)], np.int32),
        "mesh_rest_inverse": RNG.normal(size=(N, 3, 3)),
        "mesh_volume": RNG.uniform(0.5, 1, N),
        "x": RNG.normal(size=(8, 3)),
        "mu": RNG.uniform(0.5, 1, N),
        "lam": RNG.uniform(0.5, 1, N),
        "activation": RNG.uniform(0.5, 1, N),
        "f": np.zeros((8, 3)),
    }


# kernel, its arrays, those that get a gradient
CASES = {
    "winding": (winding, winding_arrays(), ("table", "x", "k")),
    "functions": (functions, function_arrays(), ("x",)),
    "solid_forces": (solid_forces, tet_arrays(), ("x", "mu", "lam", "activation", "mesh_rest_inverse")),
    "mean": (mean, {"x": RNG.normal(size=(N, 3)), "out": np.zeros((1, 3))}, ("x",)),
}


def form(name: str, which: str) -> KernelIR:
    made, _, wanted = CASES[name]
    return made.forward() if which == "forward" else getattr(made, which)(frozenset(wanted))


FORMS = [(name, which) for name in CASES for which in ("forward", "adjoint", "tangent")]


def declared(ir: KernelIR, number: str) -> str:
    return ", ".join(text.replace("T*", f"{number}*") for text, _ in parameters(ir))


def passed(ir: KernelIR) -> list[str]:
    return [text.split()[-1] for text, _ in parameters(ir)]


def wrapper(name: str, which: str, number: str) -> str:
    ir = form(name, which)
    call = f"{name}_{which}<{number}>({', '.join(passed(ir))});"
    return f'extern "C" void {name}_{which}_{number}({declared(ir, number)}) {{ {call} }}'


def compile_library(folder: Path, text: str, *flags: str) -> ctypes.CDLL:
    (folder / "kernels.cpp").write_text(text)
    command = [CXX, *FLAGS, str(folder / "kernels.cpp"), "-o", str(folder / "kernels.so"), *flags]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return ctypes.CDLL(str(folder / "kernels.so"))


def call(function, ir: KernelIR, arrays: dict[str, np.ndarray], *more) -> None:
    """Call an emitted kernel with arrays by name, in place."""
    arguments = []
    for text, array in parameters(ir):
        if array is None:
            arguments.append(ctypes.c_long(0 if text == "long begin" else N))
        elif "*" in text:
            assert arrays[array.name].flags.c_contiguous
            arguments.append(arrays[array.name].ctypes)
        else:
            arguments.append(ctypes.c_long(len(arrays[array.name])))
    function(*arguments, *more)


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> ctypes.CDLL:
    """Every form of every kernel, for double and float."""
    emitted = [emit_scalar(form(name, which), f"{name}_{which}") for name, which in FORMS]
    wrappers = [wrapper(name, which, number) for name, which in FORMS for number in ("double", "float")]
    return compile_library(tmp_path_factory.mktemp("scalar"), "\n".join(emitted + wrappers))


def copies(name: str) -> dict[str, np.ndarray]:
    return {key: array.copy() for key, array in CASES[name][1].items()}


def written(name: str) -> list[str]:
    return [a.name for a in CASES[name][0].arrays if a.written and "f" in a.kinds]


def forward(library: ctypes.CDLL, name: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    arrays = {key: array.copy() for key, array in arrays.items()}
    call(library[f"{name}_forward_double"], form(name, "forward"), arrays)
    return arrays


def adjoints(library: ctypes.CDLL, name: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Random cotangents of what a kernel writes, and the gradients that its adjoint makes of them."""
    arrays = forward(library, name, CASES[name][1])
    weights = {key: RNG.normal(size=arrays[key].shape) for key in written(name)}
    wanted = {key: np.zeros_like(arrays[key]) for key in CASES[name][2]}
    arrays |= {f"adj_{key}": array.copy() for key, array in (wanted | weights).items()}
    call(library[f"{name}_adjoint_double"], form(name, "adjoint"), arrays)
    return weights, {key: arrays[f"adj_{key}"] for key in wanted}


# -- double and float ----------------------------------------------------------------------------------------------


def plain_arguments(name: str, arrays: dict[str, np.ndarray]) -> list:
    if name != "solid_forces":
        return list(arrays.values())
    mesh = TetMesh(**{key: arrays[f"mesh_{key}"] for key in ("vertices", "rest_inverse", "volume")})
    return [mesh, *list(arrays.values())[3:]]


def cast(arrays: dict[str, np.ndarray], dtype: type) -> dict[str, np.ndarray]:
    return {key: array.astype(dtype) if array.dtype.kind == "f" else array.copy() for key, array in arrays.items()}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CASES)
def test_values_agree_with_python(library, name, dtype):
    made, start, _ = CASES[name]
    expected, got = cast(start, dtype), cast(start, dtype)
    made.python(*plain_arguments(name, expected), count=N)
    number = "double" if dtype is np.float64 else "float"
    call(library[f"{name}_forward_{number}"], form(name, "forward"), got)
    for key in expected:
        tolerance = 200 * np.finfo(dtype).eps
        np.testing.assert_allclose(got[key], expected[key], rtol=tolerance, atol=tolerance, err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_adjoints_agree_with_differences(library, name):
    weights, gradients = adjoints(library, name)
    for key, gradient in gradients.items():
        for at in np.ndindex(gradient.shape):
            ends = []
            for h in (1e-6, -1e-6):
                moved = copies(name)
                moved[key][at] += h
                after = forward(library, name, moved)
                ends.append(sum(np.vdot(w, after[out]) for out, w in weights.items()))
            assert gradient[at] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-7), (key, at)


@pytest.mark.parametrize("name", CASES)
def test_tangents_are_the_transpose_of_adjoints(library, name):
    weights, gradients = adjoints(library, name)
    directions = {key: RNG.normal(size=g.shape) for key, g in gradients.items()}
    arrays = copies(name)
    rates = {key: np.zeros_like(arrays[key]) for key in written(name)}
    arrays |= {f"tan_{key}": array for key, array in (directions | rates).items()}
    call(library[f"{name}_tangent_double"], form(name, "tangent"), arrays)
    ahead = sum(np.vdot(w, rates[key]) for key, w in weights.items())
    assert ahead == pytest.approx(sum(np.vdot(gradients[key], d) for key, d in directions.items()), rel=1e-12)


def test_the_text_shows_the_source():
    text = emit_scalar(winding.forward(), "winding")
    assert "template <class T>\nvoid winding(long begin, long end, const int* first_, const T* table_," in text
    assert "kept[count] = p\n" in text
    assert "using std::sin;" in text and "using std::tan;" not in text


# -- CppAD and Ceres -----------------------------------------------------------------------------------------------

# Both wrap a forward kernel as `name_ad(..., sizes, seeds, rates)` on doubles, pointers by array argument.
CPPAD = """
extern "C" void {name}_ad({declared}, const long* sizes, double* const* cotangents) {{
  using T = CppAD::AD<double>;
  std::vector<T> x, y;
{read}
  CppAD::Independent(x);
  long at = 0;
{split}
  {name}_forward<T>({passed});
{join}
  CppAD::ADFun<double> f(x, y);
  std::vector<double> w;
{seed}
  const std::vector<double> g = f.Reverse(1, w);
  at = 0;
{write}
}}
"""
CPPAD_PARTS = {
    "read": "  x.insert(x.end(), {a}, {a} + sizes[{k}]);",
    "split": "  std::vector<T> v{k}(x.begin() + at, x.begin() + at + sizes[{k}]); at += sizes[{k}];",
    "join": "  y.insert(y.end(), v{k}.begin(), v{k}.end());",
    "seed": "  w.insert(w.end(), cotangents[{k}], cotangents[{k}] + sizes[{k}]);",
    "write": "  for (long i = 0; i < sizes[{k}]; ++i) cotangents[{k}][i] = g[at++];",
}
JET = """
extern "C" void {name}_ad({declared}, const long* sizes, double* const* tangents) {{
  using T = ceres::Jet<double, 2>;
{read}
  {name}_forward<T>({passed});
{write}
}}
"""
JET_PARTS = {
    "read": "  std::vector<T> v{k}(sizes[{k}]);\n"
    "  for (long i = 0; i < sizes[{k}]; ++i) {{ v{k}[i] = T({a}[i], 0); v{k}[i].v[1] = tangents[{k}][i]; }}",
    "write": "  for (long i = 0; i < sizes[{k}]; ++i) tangents[{k}][i] = v{k}[i].v[1];",
}
HEADERS = {
    "cppad/cppad.hpp": [f"{path}/cmeel.prefix/include" for path in sys.path],
    "ceres/jet.h": ["/usr/include/eigen3"],
}


def foreign_library(folder: Path, header: str, frame: str, lines: dict[str, str]) -> ctypes.CDLL:
    """Forward kernels over another library's scalars; skips where its headers are not installed."""
    includes = [f"-isystem{path}" for path in HEADERS[header] if Path(path).is_dir()]
    probe = [CXX, "-std=c++17", "-fsyntax-only", "-x", "c++", "-", *includes]
    found = subprocess.run(probe, input=f"#include <{header}>\n", text=True, capture_output=True)
    if found.returncode:
        pytest.skip(f"<{header}> is not installed")
    text = [f"#include <{header}>"]
    for name in CASES:
        ir = form(name, "forward")
        floats = {f"{a.name}_": k for k, a in enumerate(ir.arrays) if "f" in a.kinds}
        parts = {key: "\n".join(line.format(k=k, a=a) for a, k in floats.items()) for key, line in lines.items()}
        names = [f"v{floats[a]}.data()" if a in floats else a for a in passed(ir)]
        text.append(emit_scalar(ir, f"{name}_forward"))
        text.append(frame.format(name=name, declared=declared(ir, "double"), passed=", ".join(names), **parts))
    return compile_library(folder, "\n".join(text), "-O0", *includes)


def derivatives(library: ctypes.CDLL, name: str, seeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a foreign wrapper: cotangents to gradients, or directions to rates; zero where no seed is given."""
    ir, arrays = form(name, "forward"), copies(name)
    found = {key: np.array(seeds.get(key, np.zeros(array.shape)), float) for key, array in arrays.items()}
    sizes = (ctypes.c_long * len(ir.arrays))(*[arrays[a.name].size for a in ir.arrays])
    pointers = (ctypes.c_void_p * len(ir.arrays))(*[found[a.name].ctypes.data for a in ir.arrays])
    call(library[f"{name}_ad"], ir, arrays, sizes, pointers)
    return found


def test_cppad_agrees_with_our_adjoint(library, tmp_path):
    foreign = foreign_library(tmp_path, "cppad/cppad.hpp", CPPAD, CPPAD_PARTS)
    for name in CASES:
        weights, gradients = adjoints(library, name)
        found = derivatives(foreign, name, weights)
        for key, gradient in gradients.items():
            np.testing.assert_allclose(found[key], gradient, rtol=1e-9, atol=1e-12, err_msg=f"{name} {key}")


def test_ceres_agrees_with_our_adjoint(library, tmp_path):
    foreign = foreign_library(tmp_path, "ceres/jet.h", JET, JET_PARTS)
    for name in CASES:
        weights, gradients = adjoints(library, name)
        for key, gradient in gradients.items():
            direction = RNG.normal(size=gradient.shape)
            rates = derivatives(foreign, name, {key: direction})
            ahead = sum(np.vdot(w, rates[out]) for out, w in weights.items())
            assert ahead == pytest.approx(np.vdot(gradient, direction), rel=1e-9, abs=1e-12), (name, key)
