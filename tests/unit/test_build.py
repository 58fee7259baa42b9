"""Libraries that are missing are compiled side by side; an error or an interrupt ends what has not begun.

Machines with other CPUs may share a cache; where there is no compiler, an error says what is missing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kinema.errors import BuildError
from kinema.lang.build import compiler, cpu

SOURCE = 'extern "C" int answer() { return 42; }'
TEXTS = [f"// {k}" for k in range(12)]


class Compiler:
    """Stands for `compiler.publish`: notes what is compiled and how many at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
        self.lock, self.begun, self.now, self.most = threading.Lock(), list[str](), 0, 0
        monkeypatch.setattr(cpu, "threads", lambda: threads)
        monkeypatch.setattr(compiler, "find", lambda key: None)
        monkeypatch.setattr(compiler, "publish", self.publish)
        monkeypatch.setattr(compiler, "_load", str)
        monkeypatch.setattr(compiler, "_LOADED", {})

    def publish(self, key: str, text: str, flags: list[str]) -> Path:
        with self.lock:
            self.begun.append(text)
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            self.work(text)
        finally:
            with self.lock:
                self.now -= 1
        return Path(text)

    def work(self, text: str) -> None:
        time.sleep(0.02)


@pytest.mark.parametrize("threads", [1, 3])
def test_as_many_at_a_time_as_there_are_processors(monkeypatch, threads):
    stub = Compiler(monkeypatch, threads)
    found = compiler.libraries([*TEXTS, TEXTS[0]])  # the same one twice is compiled once
    assert found == [*TEXTS, TEXTS[0]]
    assert sorted(stub.begun) == sorted(TEXTS) and stub.most == threads


def test_after_an_error_nothing_more_is_begun(monkeypatch):
    stub = Compiler(monkeypatch, 2)

    def work(text: str) -> None:
        if text == TEXTS[1]:
            raise BuildError("the C++ compiler failed")
        time.sleep(0.1)

    monkeypatch.setattr(stub, "work", work)
    with pytest.raises(BuildError, match="compiler failed"):
        compiler.libraries(TEXTS)
    assert len(stub.begun) <= 4 and not compiler._LOADED  # and not only after the first one is finished


def test_an_interrupt_ends_what_has_not_begun(monkeypatch):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    stub = Compiler(monkeypatch, 2)

    def work(text: str) -> None:
        time.sleep(0.1)
        if text == TEXTS[0]:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # Ctrl-C, while the main thread waits

    monkeypatch.setattr(stub, "work", work)
    try:
        with pytest.raises(KeyboardInterrupt):
            compiler.libraries(TEXTS)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(stub.begun) <= 6 and stub.now == 0 and not compiler._LOADED


class Machine:
    """Pretends to be on a machine: its CPU's features, and whether it has a compiler, which is counted, not run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shared: Path) -> None:
        self.patch, self.runs = monkeypatch, 0
        monkeypatch.setenv("KINEMA_CACHE", str(shared / "cache"))
        monkeypatch.setattr(compiler, "SHIPPED", shared / "shipped")
        monkeypatch.setattr(compiler, "run_compiler", self.run)
        monkeypatch.setattr(compiler.native, "load_runtime", lambda path: path.parent)

    def become(self, *features: str, gcc: str | None = "g++") -> None:
        self.patch.setattr(cpu, "features", lambda: frozenset(features))
        self.patch.setattr(compiler, "compiler", lambda: gcc)
        self.patch.setattr(compiler, "_LOADED", {})  # a new process
        self.patch.setattr(compiler.ctypes, "CDLL", lambda path: Path(path).parent)

    def run(self, sources: list[str], output: Path, flags: list[str], march: str | None = None) -> None:
        self.runs += 1
        output.write_text("code")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def needs(folder: Path) -> list[str]:
    return json.loads((folder / "target.json").read_text())["features"]


@pytest.mark.parametrize(
    "load", [lambda: compiler.library(SOURCE), compiler.runtime.__wrapped__], ids=["kernel", "runtime"]
)
def test_machines_that_share_a_cache_have_their_own_libraries(machine, load):
    machine.become("avx2", "avx512f")
    wide = load()
    machine.become("avx2")
    narrow = load()
    assert needs(wide) == ["avx2", "avx512f"] and needs(narrow) == ["avx2"] and machine.runs == 2
    assert load() == narrow
    machine.become("avx2", "avx512f")
    assert load() == wide and machine.runs == 2  # neither put the other's away


def test_nothing_is_loaded_that_this_machine_cannot_run(machine, monkeypatch):
    machine.become("avx2")
    monkeypatch.setenv("KINEMA_MARCH", "x86-64-v4")
    for _ in range(2):  # compiled, then found
        with pytest.raises(BuildError, match=r"another CPU(.|\n)*x86-64-v4(.|\n)*avx512f(.|\n)*KINEMA_MARCH"):
            compiler.library(SOURCE)


def ship(*features: str) -> str:
    """A library of the installation that needs these features; its key."""
    key = compiler.key_of(SOURCE, compiler.KERNEL_FLAGS)
    folder = compiler.SHIPPED / key
    folder.mkdir(parents=True)
    (folder / compiler.LIBRARY).write_text("code")
    (folder / "target.json").write_text(json.dumps({"march": "native", "features": features}))
    return key


def test_shipped_libraries_for_another_cpu_are_compiled_again(machine):
    machine.become("avx2")
    key = ship("avx2", "avx512f")
    assert compiler.find(key) is None
    mine = compiler.library(SOURCE)
    assert compiler.SHIPPED not in mine.parents and needs(mine) == ["avx2"] and compiler.find(key) == mine
    machine.become("avx2", "avx512f")
    assert compiler.find(key) == compiler.SHIPPED / key


def test_shipped_libraries_for_another_cpu_are_refused_without_a_compiler(machine):
    machine.become("avx2", gcc=None)
    key = ship("avx2", "avx512f")
    with pytest.raises(BuildError, match=r"CPU features that this machine lacks: avx512f(.|\n)*install g\+\+"):
        compiler.find(key)


def test_without_a_compiler_an_error_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("KINEMA_CACHE", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiler, "compiler", lambda: None)
    with pytest.raises(BuildError, match=r"no C\+\+ compiler was found(.|\n)*install g\+\+(.|\n)*CXX"):
        compiler.library(SOURCE)
    assert not list(tmp_path.iterdir())  # nothing of the attempt stays
    monkeypatch.setenv("CXX", "/nowhere/g++")
    with pytest.raises(BuildError, match=r"CXX names no program(.|\n)*/nowhere/g\+\+(.|\n)*unset CXX"):
        compiler.library(SOURCE)


def test_an_unknown_instruction_set_is_refused(monkeypatch):
    monkeypatch.setenv("KINEMA_MARCH", "pentium")
    with pytest.raises(BuildError, match=r"KINEMA_MARCH(.|\n)*pentium(.|\n)*native or one of"):
        compiler.target()


def test_every_header_counts_in_the_keys_of_what_includes_it() -> None:
    headers = {file.name for file in compiler.SOURCES.glob("*.h*")}
    assert headers == {*compiler.KERNEL_HEADERS, *compiler.RUNTIME_HEADERS}
    for name in compiler.KERNEL_HEADERS:
        included = re.findall(r'#include "(.*)"', (compiler.SOURCES / name).read_text())
        assert set(included) <= set(compiler.KERNEL_HEADERS), name


@pytest.mark.parametrize(("march", "bytes_"), [("x86-64-v3", 32), ("x86-64-v4", 64), ("armv8-a", 16), ("x86-64", 16)])
def test_worlds_fill_the_registers_that_the_package_was_compiled_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, march: str, bytes_: int
) -> None:
    monkeypatch.setattr(compiler, "SHIPPED", tmp_path)
    folder = tmp_path / compiler.runtime_key()
    folder.mkdir()
    (folder / "target.json").write_text(json.dumps({"march": march, "features": []}))
    assert compiler.lanes_of_worlds(4) == cpu.vector_bytes(compiler.target()) // 4, "nothing came with the package"
    (folder / compiler.LIBRARY).touch()
    assert (compiler.lanes_of_worlds(4), compiler.lanes_of_worlds(8)) == (bytes_ // 4, bytes_ // 8)
    (folder / "target.json").write_text(json.dumps({"march": march, "features": ["a feature of no CPU"]}))
    assert compiler.lanes_of_worlds(8) == cpu.vector_bytes(compiler.target()) // 8, "it cannot be used here"


SPRINGS = """
import torch
from kinema.lang import Array, Float, Index, ivec2, kernel, norm, vec3
from kinema.lang.autograd.rollout import rollout
from kinema.lang.programs.program import Program

@kernel
def pull(e: Index, ends: Array[ivec2], x: Array[vec3], k: Array[Float], f: Array[vec3]):
    a, b = ends[e]
    d = x[b] - x[a]
    f[a] += k[e] * norm(d) * d
    f[b] -= k[e] * norm(d) * d

@kernel
def move(i: Index, x: Array[vec3], f: Array[vec3], to: Array[vec3]):
    to[i] = x[i] + 1e-3 * f[i]

n = 100
p = Program("springs")
x, k, f = p.state("x", vec3, n), p.parameter("k", Float, n - 1), p.scratch("f", vec3, n)
p.call(pull, p.constant("ends", ivec2, [[i, i + 1] for i in range(n - 1)]), x, k, f, count=n - 1)
p.call(move, x, f, x.next, count=n)
torch.manual_seed(0)
for dtype in (torch.float32, torch.float64):
    start = torch.randn(n, 3, dtype=torch.float64).to(dtype).requires_grad_()
    stiff = torch.rand(n - 1, dtype=torch.float64).to(dtype).requires_grad_()
    rollout(p, 3, {"x": start}, {"k": stiff}).final["x"].square().sum().backward()
    print([v.hex() for t in (start.grad, stiff.grad) for v in t.flatten().tolist()])
"""


def test_clang_makes_the_same_bits_of_kernels(tmp_path: Path) -> None:
    clang = shutil.which("clang++-14") or shutil.which("clang++")
    if clang is None or shutil.which("g++") is None:
        pytest.skip("gcc and clang are not both there")
    script = tmp_path / "springs.py"
    script.write_text(SPRINGS)
    found = []
    for name in ("g++", clang):
        environment = {**os.environ, "CXX": name, "KINEMA_CACHE": str(tmp_path / Path(name).name)}
        command = [sys.executable, str(script)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout)
    assert found[0] == found[1] and len(found[0]) > 5000
