"""Kinema's step program as scalar C++ over any number type: its kernels from `emit_scalar`, in order.

The text defines `template <class T> struct Step` with `run(q, v, joint torques, q_next, v_next)`; a frame adds the
functions that a peer calls. Libraries are compiled once and cached by content.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import kinema as kn
from benchmarks.kernels.peer_cpp import compiler
from kinema.lang.emit.scalar import PRELUDE, emit_scalar, parameters
from kinema.lang.programs.program import Custom, KernelCall, Loop, Program, Ref
from kinema.simulation.step import step_program

from . import Availability, scene

FLAGS = ("-std=c++17", "-O2", "-march=native", "-fPIC", "-shared", "-DNDEBUG", "-w")
INCLUDES = {
    "cppad/cppad.hpp": [f"{path}/cmeel.prefix/include" for path in sys.path],
    "ceres/jet.h": ["/usr/include/eigen3"],
}

# Rollouts of the emitted step in plain double precision: states are (q, v), steps + 1 of them.
ROLL = """
constexpr int NS = NQ + NV, NX = NS + NU;
extern "C" void roll(long steps, const double* torques, double* states) {
  Step<double> step;
  for (long t = 0; t < steps; ++t) {
    const double* x = states + t * NS;
    double* y = states + (t + 1) * NS;
    step.run(x, x + NQ, torques + t * NU, y, y + NQ);
  }
}
"""


def available(header: str) -> Availability:
    """Whether a compiler is installed and finds a header."""
    if compiler() is None:
        return Availability(False, "no C++ compiler: install g++, or name one in $CXX")
    probe = [compiler(), "-std=c++17", "-fsyntax-only", "-x", "c++", "-", *_includes(header)]
    if subprocess.run(probe, input=f"#include <{header}>\n", text=True, capture_output=True).returncode:
        return Availability(False, f"<{header}> is not installed")
    return Availability(True)


def step_text(model: kn.Model, after_prelude: str = "") -> str:
    """C++ of one step.

    Args:
        model: The model; its parameters become constants.
        after_prelude: Text between the emitter's own definitions and the first kernel.

    Raises:
        NotImplementedError: The program has an unsupported node.
    """
    return _Writer(step_program(model), model).text(after_prelude)


def load(text: str, header: str | None = None) -> ctypes.CDLL:
    """Compile a library, optionally with a header, or find it in the cache."""
    command = [str(compiler()), *FLAGS, *(_includes(header) if header else ())]
    text = f"#include <{header}>\n{text}" if header else text
    key = hashlib.sha256(repr((command, text)).encode()).hexdigest()[:16]
    folder = Path(__file__).resolve().parents[2] / "out" / "articulated" / "libraries"
    library = folder / f"{key}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / f"{key}.cpp"
        source.write_text(text)
        made = folder / f"{key}.{os.getpid()}"
        subprocess.run([*command, str(source), "-o", str(made)], check=True)
        made.rename(library)
    return ctypes.CDLL(str(library))


def roll(library: ctypes.CDLL, start: np.ndarray, torques: np.ndarray) -> np.ndarray:
    """States of a rollout, shape (steps + 1, nq + nv)."""
    states = np.zeros((len(torques) + 1, len(start)))
    states[0] = start
    library.roll(ctypes.c_long(len(torques)), pointer(torques), pointer(states))
    return states


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    """The address of an array's data."""
    assert array.flags.c_contiguous and array.dtype == np.float64
    return ctypes.c_void_p(array.ctypes.data)


def _includes(header: str) -> list[str]:
    return [f"-isystem{path}" for path in INCLUDES[header] if Path(path).is_dir()]


class _Writer:
    """Writes a program as a struct whose members are the buffers."""

    def __init__(self, program: Program, model: kn.Model) -> None:
        self.program, self.model = program, model
        self.values = {name: tensor.numpy() for name, tensor in model.resolve().items()}
        self.values["dt"] = np.array(scene.DT)
        self.kernels: dict[str, str] = {}
        self.loops: dict[int, str] = {}

    def text(self, after_prelude: str) -> str:
        body = "\n".join(self.node(node, "    ") for node in self.program.nodes)
        members, fills = self.members()
        v_joints = [d for d in range(self.model.nv) if d % 18 >= 6]
        scatter = "\n".join(f"    b_tau[{d}] = torques[{i}];" for i, d in enumerate(v_joints))
        return f"""{PRELUDE}
{after_prelude}
{"".join(self.kernels.values())}
constexpr int NQ = {self.model.nq}, NV = {self.model.nv}, NU = {len(v_joints)};
template <class T> struct Step {{
{members}
  std::vector<T> b_tau = std::vector<T>(NV, T(0));
  void run(const T* b_q, const T* b_v, const T* torques, T* n_q, T* n_v) {{
{scatter}
{fills}
{body}
  }}
}};
"""

    def members(self) -> tuple[str, str]:
        """Declarations of the buffers, and the code that zeroes scratch at the start of a step."""
        lines, fills = [], []
        for buffer in self.program.buffers.values():
            name, count = _name(buffer.name), buffer.length * len(buffer.kinds)
            if buffer.kind in ("state", "control"):
                continue
            if buffer.kind in ("parameter", "constant"):
                given = buffer.values if buffer.values is not None else self.values[buffer.name]
                given = np.asarray(given).reshape(buffer.length, -1)
                given = given if buffer.order is None else given[buffer.order]
                number = "int" if "i" in buffer.kinds else "T"
                listed = ", ".join(repr(x) if number == "int" else f"T({x!r})" for x in given.ravel().tolist())
                lines.append(f"  std::vector<{number}> b_{name} = {{{listed}}};")
                continue
            number = "int" if "i" in buffer.kinds else "T"
            slots = buffer.loop.times + 1 if buffer.kind == "iterate" else 1
            lines.append(f"  std::vector<{number}> b_{name} = std::vector<{number}>({count * slots});")
            fills.append(f"    std::fill(b_{name}.begin(), b_{name}.end(), {number}(0));")
        return "\n".join(lines), "\n".join(fills)

    def node(self, node: Any, indent: str) -> str:
        if isinstance(node, KernelCall):
            return self.call(node, indent)
        if isinstance(node, Custom):
            return "\n".join(self.node(inner, indent) for inner in node.replay or node.forward)
        if isinstance(node, Loop) and node.condition is None:
            counter = f"l{node.number}"
            self.loops[id(node)] = counter
            body = "\n".join(self.node(inner, indent + "  ") for inner in node.body)
            return f"{indent}for (int {counter} = 0; {counter} < {node.times}; ++{counter}) {{\n{body}\n{indent}}}"
        raise NotImplementedError(f"the program has an unsupported {type(node).__name__}")

    def call(self, call: KernelCall, indent: str) -> str:
        ir = call.kernel.forward()
        pairs = list(zip(call.kernel.arrays, call.args, strict=True))
        if all(ref.buffer.kind == "output" for array, ref in pairs if array.written):
            return f"{indent}// {call.kernel.name}: only reports"
        symbol = f"k_{call.kernel.name}"
        if symbol not in self.kernels:
            self.kernels[symbol] = emit_scalar(ir, symbol).removeprefix(PRELUDE)
        refs = {array.name: ref for array, ref in pairs}
        given = []
        for text, array in parameters(ir):
            if array is None:
                given.append("0L" if text == "long begin" else f"{call.count}L")
            elif "*" in text:
                given.append(self.place(refs[array.name]))
            else:
                given.append(f"{refs[array.name].buffer.length}L")
        return f"{indent}{symbol}<T>({', '.join(given)});"

    def place(self, ref: Ref) -> str:
        buffer, name = ref.buffer, _name(ref.name)
        if buffer.kind == "state":
            return f"{'n' if ref.moment == 'next' else 'b'}_{name}"
        if buffer.kind != "iterate":
            return f"b_{name}.data()"
        counter = self.loops.get(id(buffer.loop), "0")
        slot = {"first": "0", "now": counter, "next": f"({counter} + 1)", "last": str(buffer.loop.times)}[ref.moment]
        return f"b_{name}.data() + {slot} * {buffer.length * len(buffer.kinds)}"


def _name(text: str) -> str:
    return re.sub(r"\W", "_", text)
