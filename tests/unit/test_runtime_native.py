"""Compiles the native runtime with its stand-alone checks and runs them, plain and under sanitizers.

Stand-alone, because a sanitizer cannot be loaded into a running Python.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LANG = HERE.parents[1] / "src" / "kinema" / "lang"
NATIVE = LANG / "native"
CXX = os.environ.get("CXX", "g++")

FLAGS = ["-std=c++20", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-pthread", f"-I{NATIVE}"]
if platform.machine() == "x86_64":
    FLAGS.append("-march=x86-64-v3")

KINDS = {
    "plain": ["-O2", "-Wall", "-Wextra", "-Werror"],
    "address": ["-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-O1", "-g1", "-fsanitize=thread"],
}
# In the order of compiling, the longest first. Packing uses no threads.
CHECKS = [("runtime", "plain"), ("pool", "thread"), ("layout", "plain")]
SLOW = [("layout", "address"), ("runtime", "thread"), ("runtime", "address")]  # two minutes of compiling

pytestmark = pytest.mark.skipif(shutil.which(CXX) is None, reason=f"no C++ compiler ({CXX})")


def run(command: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Runs a command and fails the test with its output if it does."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert result.returncode == 0, f"{command[0]} gave {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory):
    """The library and all checks, compiling two at a time: a Future of the path for each."""
    folder = tmp_path_factory.mktemp("native")
    library = folder / "libruntime.so"

    def build(target: Path, flags: list[str], *sources: Path) -> Path:
        run([CXX, *FLAGS, *flags, *map(str, sources), "-o", str(target)], timeout=300)
        return target

    with ThreadPoolExecutor(max_workers=2) as pool:
        sources = NATIVE / "runtime.cpp", NATIVE / "call.cpp", NATIVE / "layout.cpp"
        futures = {"library": pool.submit(build, library, [*KINDS["plain"], "-fPIC", "-shared"], *sources)}

        def build_check(part: str, kind: str) -> Path:
            # The undefined-behaviour sanitizer doubles the time of compiling: not for the check itself.
            flags = [flag.replace(",undefined", "") for flag in KINDS[kind]]
            check = build(folder / f"{part}_{kind}.o", [*flags, "-c"], HERE / "native" / f"{part}_check.cpp")
            needed = sources[2:] if part == "layout" else sources  # the runtime packs blocks itself
            code = (futures["library"].result(),) if kind == "plain" else needed
            return build(folder / f"{part}_{kind}", [*KINDS[kind], f"-Wl,-rpath,{folder}"], check, *code)

        for part, kind in CHECKS:
            futures[part, kind] = pool.submit(build_check, part, kind)
        futures["build"] = build_check
        yield futures


@pytest.mark.parametrize(("part", "kind"), [*CHECKS, *(pytest.param(*slow, marks=pytest.mark.slow) for slow in SLOW)])
def test_stand_alone_checks(programs, part: str, kind: str) -> None:
    program = programs["build"](part, kind) if (part, kind) in SLOW else programs[part, kind].result()
    output = run([str(program)], timeout=120).stdout
    print(output)
    assert "all is well" in output


def load_mirror():
    """The ctypes mirror, without the rest of the package."""
    spec = importlib.util.spec_from_file_location("kinema_native_mirror", LANG / "runtime" / "native.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_mirror_in_python(programs) -> None:
    """Sizes agree (checked on loading) and a kernel-free program runs through ctypes: x' = x + x, three steps."""
    native = load_mirror()
    library = native.load_runtime(programs["library"].result())
    assert library.kn_cpus() >= 1

    x = (ctypes.c_double * 16)(*([1.0] * 4))  # 4 slots of 4 numbers
    buffer = native.Buffer(ctypes.addressof(x), 0, 0, 32, 4, 32)
    refs = (native.Ref * 2)(native.Ref(0, native.SLOT_STATE_NEXT), native.Ref(0, native.SLOT_STATE))
    code = (native.Instruction * 3)()
    for instruction, op in zip(code, (native.OP_COPY, native.OP_ADD, native.OP_ZERO), strict=True):
        instruction.op, instruction.n_refs, instruction.refs = op, 2, refs
    state, status = (ctypes.c_int32 * 1)(0), (ctypes.c_int64 * 1)(-1)
    program = native.Program(precision=8, lanes=1, worlds=1, blocks=1, n_buffers=1, n_states=1, ring=4, interval=1)
    program.buffers, program.state, program.checkpoint = ctypes.pointer(buffer), state, state
    program.forward, program.n_forward, program.workers, program.status = code, 2, 2, status
    assert library.kn_forward(program, 3) == native.DONE
    assert list(x) == [1.0] * 4 + [2.0] * 4 + [4.0] * 4 + [8.0] * 4
    assert status[0] == -1


def test_library_of_another_version_is_refused(programs) -> None:
    native = load_mirror()

    class Longer(native.Layout):
        _fields_ = [("more", ctypes.c_int64)]

    native._STRUCTURES = (*native._STRUCTURES[:-1], Longer)
    with pytest.raises(ImportError, match="another version of abi.h"):
        native.load_runtime(programs["library"].result())


def test_cancel_from_python(programs) -> None:
    """The poll callback enters Python and stops a run that would take for ever."""
    native = load_mirror()
    library = native.load_runtime(programs["library"].result())
    x = (ctypes.c_double * 8)()
    buffer = native.Buffer(ctypes.addressof(x), 0, 0, 32, 4, 32)
    refs = (native.Ref * 2)(native.Ref(0, native.SLOT_STATE_NEXT), native.Ref(0, native.SLOT_STATE))
    code = (native.Instruction * 1)(native.Instruction(op=native.OP_COPY, n_refs=2, refs=refs))
    state, status = (ctypes.c_int32 * 1)(0), (ctypes.c_int64 * 1)(-1)
    seen: list[int] = []

    @native.Poll
    def poll(steps_done: int) -> int:
        seen.append(steps_done)
        return int(len(seen) == 2)

    program = native.Program(precision=8, lanes=1, worlds=1, blocks=1, n_buffers=1, n_states=1, ring=2)
    program.buffers, program.state, program.checkpoint = ctypes.pointer(buffer), state, state
    program.forward, program.n_forward, program.workers, program.status = code, 1, 1, status
    program.poll = poll
    assert library.kn_forward(program, 1 << 50) == native.CANCELLED
    assert len(seen) == 2 and 0 < seen[0] < seen[1]
