"""Scalar C++ of the same law with a hand-written adjoint (`scalar.cpp`), called through ctypes."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from . import GRADIENTS, Availability, Results
from .scene import Scene

FLAGS = ("-O3", "-march=native", "-fno-tree-slp-vectorize", "-std=c++17", "-fPIC", "-shared")
"""No fast-math, but fused multiply-adds. gcc's packing of neighbouring scalars is off: it slows this code."""

_SUFFIX = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}


def compiler() -> str | None:
    """The C++ compiler: $CXX, else g++, else clang++."""
    return next((path for name in (os.environ.get("CXX", ""), "g++", "clang++") if (path := shutil.which(name))), None)


@functools.cache
def _library() -> ctypes.CDLL:
    """Compile `scalar.cpp` for this machine, once per process and without a cache on disk."""
    source = Path(__file__).with_name("scalar.cpp")
    with tempfile.TemporaryDirectory(prefix="kinema-bench-") as folder:
        library = Path(folder) / "scalar.so"
        subprocess.run([str(compiler()), *FLAGS, str(source), "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))


def _block_type(real: np.dtype) -> type[ctypes.Structure]:
    pointers = ("tets", "rest_inverse", "volume", "mu", "lam", "alpha", "inv_mass", "gravity")
    number = ctypes.c_float if real == np.float32 else ctypes.c_double

    class Block(ctypes.Structure):
        _fields_ = (
            [("n_tets", ctypes.c_int), ("n_nodes", ctypes.c_int)]
            + [(name, ctypes.c_void_p) for name in pointers]
            + [("dt", number), ("scratch", ctypes.c_void_p)]
        )

    return Block


class Peer:
    """Scalar C++; `dtype` float64 makes it a fast reference for long rollouts."""

    name = "scalar C++"
    modes = ("serial",)
    threads = 1

    def __init__(self, mode: str = "serial", dtype: type = np.float32) -> None:
        self.mode = mode
        self._dtype = np.dtype(dtype)

    @staticmethod
    def available() -> Availability:
        if compiler() is None:
            return Availability(False, "no C++ compiler: install g++, or name one in $CXX")
        return Availability(True)

    def prepare(self, scene: Scene) -> None:
        def real(a: np.ndarray) -> np.ndarray:
            return np.ascontiguousarray(a, dtype=self._dtype)

        per_element = {n: real(getattr(scene, n)) for n in ("rest_inverse", "volume", "mu", "lam", "alpha")}
        constants = {"tets": scene.tets, "inv_mass": real(scene.inv_mass), "gravity": real(scene.gravity)}
        self._scene = scene
        self._x, self._v = real(scene.x), real(scene.v)
        self._cot_x, self._cot_v = real(scene.cot_x).copy(), real(scene.cot_v).copy()
        self._x_next, self._v_next = np.empty_like(self._x), np.empty_like(self._x)
        self._gradients = {n: np.empty(getattr(scene, n).shape, self._dtype) for n in GRADIENTS}
        self._scratch = np.empty_like(self._x)
        self._keep = per_element | constants | {"scratch": self._scratch}
        block = _block_type(self._dtype)(n_tets=scene.n_tets, n_nodes=scene.n_nodes, dt=scene.dt)
        for name, array in self._keep.items():
            setattr(block, name, array.ctypes.data)
        self._block = block
        self._states: tuple[np.ndarray, np.ndarray] | None = None
        self._results = Results()

        # Convert arguments to ctypes once, so that a call costs next to nothing.
        s = ctypes.byref(block)
        x, v = _pointers(self._x, self._v)
        self._step = self._function("step")
        self._step_args = (s, x, v, *_pointers(self._x_next, self._v_next))
        self._vjp = self._function("vjp")
        self._vjp_args = (s, x, *_pointers(self._cot_x, self._cot_v, *self._gradients.values()))
        self._rollout = self._function("rollout")

    def forward(self) -> None:
        self._step(*self._step_args)
        self._results = Results(self._x_next, self._v_next)

    def vjp(self, cot_x: np.ndarray | None = None, cot_v: np.ndarray | None = None) -> None:
        if cot_x is not None:
            self._cot_x[:] = cot_x
        if cot_v is not None:
            self._cot_v[:] = cot_v
        self._vjp(*self._vjp_args)
        self._results = Results(gradients=self._gradients)

    def rollout(self, steps: int) -> None:
        if self._states is None or len(self._states[0]) != steps + 1:
            shape = (steps + 1, *self._x.shape)
            self._states = np.zeros(shape, self._dtype), np.zeros(shape, self._dtype)
        xs, vs = self._states
        xs[0], vs[0] = self._x, self._v
        self._gradients["x"][:], self._gradients["v"][:] = self._cot_x, self._cot_v
        pointers = _pointers(xs, vs, *self._gradients.values())
        self._rollout(ctypes.byref(self._block), steps, *pointers)
        self._results = Results(xs[-1], vs[-1], self._gradients)

    def results(self) -> Results:
        return self._results.copy()

    def _function(self, name: str) -> ctypes._CFuncPtr:
        function = getattr(_library(), f"{name}_{_SUFFIX[self._dtype]}")
        function.restype = None
        return function


def _pointers(*arrays: np.ndarray) -> tuple[ctypes.c_void_p, ...]:
    return tuple(ctypes.c_void_p(a.ctypes.data) for a in arrays)
