"""Loads compiled C++: from the shipped libraries, else from the user's cache, else by running the compiler."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import lru_cache
from pathlib import Path

from kinema.errors import BuildError, CacheError
from kinema.lang.build import cache, cpu
from kinema.lang.runtime import native

HERE = Path(__file__).parents[1]
SOURCES = HERE / "native"
SHIPPED = HERE.parent / "_native"

COMMON = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared", "-w"]
# The emitter vectorises kernels: the compiler's own vectorisers only break up its packets.
KERNEL_FLAGS = ["-std=c++17", "-O3", *COMMON, "-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-fvisibility=hidden"]
RUNTIME_FLAGS = ["-std=c++20", "-O2", *COMMON, "-pthread"]
# Long straight-line code: pressure-aware scheduling before register allocation gains 5 % (gcc 12, Zen 3).
GCC_ONLY = ["-fno-semantic-interposition", "-fschedule-insns", "-fsched-pressure", "-flive-range-shrinkage"]
RUNTIME_FILES = ("runtime.cpp", "call.cpp", "layout.cpp")
KERNEL_HEADERS = ("abi.h", "kernel.hpp", "simd.hpp", "simd_math.hpp", "simd_memory.hpp")
RUNTIME_HEADERS = ("bulk.hpp", "layout.hpp", "plan.hpp", "thread_pool.hpp", "runner.hpp")
LIBRARY = "kernels.so"
HEADER = "kernel.hpp"
NATIVE = "native"

_LOADED: dict[str, ctypes.CDLL] = {}
_HEADER_LOCK = threading.Lock()


@lru_cache(maxsize=1)
def compiler() -> str | None:
    """Path of the C++ compiler: $CXX, g++ or clang++; None if there is none."""
    named = os.environ.get("CXX")
    for name in [named] if named else ["g++", "clang++", "clang++-14", "c++"]:
        found = shutil.which(name)
        if found:
            return found
    return None


def is_clang(program: str) -> bool:
    """Whether a compiler is clang, whose flags differ from gcc's."""
    return os.path.basename(program).startswith("clang")


def target() -> str:
    """Target instruction set: $KINEMA_MARCH or 'native'."""
    named = os.environ.get("KINEMA_MARCH", NATIVE)
    if named != NATIVE and named not in cpu.LEVELS:
        raise BuildError(
            "the environment variable KINEMA_MARCH names an unknown instruction set",
            got=named,
            expected=f"{NATIVE} or one of {', '.join(cpu.LEVELS)}",
            fix="unset it",
        )
    return named


@lru_cache(maxsize=1)
def _headers_digest() -> str:
    digest = hashlib.sha256()
    for file in KERNEL_HEADERS:
        digest.update(file.encode() + (SOURCES / file).read_bytes())
    return digest.hexdigest()


def key_of(text: str, flags: list[str]) -> str:
    """Content key of a library: its source, the headers and the flags."""
    digest = hashlib.sha256()
    for part in (text, _headers_digest(), " ".join(flags)):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]


def cached(key: str, march: str | None = None) -> str:
    """Name of an entry in the user's cache. Machines may share the cache; different CPU features give other names."""
    march = march or target()
    needed = hashlib.sha256(" ".join((march, *cpu.required(march))).encode())
    return f"{key}-{needed.hexdigest()[:8]}"


def library(text: str) -> ctypes.CDLL:
    """The loaded library of one emitted source file."""
    return libraries([text])[0]


def libraries(texts: list[str]) -> list[ctypes.CDLL]:
    """The loaded libraries of several source files; compiles missing ones in parallel."""
    keys = [key_of(text, KERNEL_FLAGS) for text in texts]
    paths = {key: find(key) for key in keys if key not in _LOADED}
    missing = [
        (key, text) for key, text in dict(zip(keys, texts, strict=True)).items() if key in paths and paths[key] is None
    ]
    if missing:
        paths.update(_publish_all(missing))
    for key, path in paths.items():
        assert path is not None
        _LOADED[key] = _load(path)
    return [_LOADED[key] for key in keys]


def _publish_all(missing: list[tuple[str, str]]) -> dict[str, Path]:
    """Compile (key, text) into the cache in parallel. After an error or Ctrl-C, start no further job."""
    pool = ThreadPoolExecutor(max_workers=max(cpu.threads(), 1))
    try:
        jobs = {key: pool.submit(publish, key, text, KERNEL_FLAGS) for key, text in missing}
        done, _ = wait(jobs.values(), return_when=FIRST_EXCEPTION)
        for job in done:
            job.result()  # raises the job's error
        return {key: job.result() for key, job in jobs.items()}
    finally:
        pool.shutdown(cancel_futures=True)


def find(key: str) -> Path | None:
    """Folder of a library that is already built, shipped or in the cache; None if neither is usable."""
    shipped = SHIPPED / key
    if (shipped / LIBRARY).exists() and not _missing_features(shipped):
        return shipped
    compiled = cache.lookup(cached(key))
    if compiled is not None:
        return compiled
    if (shipped / LIBRARY).exists() and compiler() is None:
        lacking = ", ".join(_missing_features(shipped))
        raise BuildError(
            f"the libraries of this installation need CPU features that this machine lacks: {lacking}",
            fix="install g++ (Debian: apt-get install g++), so that they can be compiled for this machine",
        )
    return None


def _missing_features(folder: Path) -> list[str]:
    try:
        needed = json.loads((folder / "target.json").read_text())["features"]
    except (OSError, ValueError, KeyError):
        return ["(unknown: target.json cannot be read)"]
    return cpu.missing(needed)


def publish(key: str, text: str, flags: list[str]) -> Path:
    """Compile into the cache."""
    return cache.publish(cached(key), lambda folder: compile_into(folder, text, flags))


def compile_into(folder: Path, text: str, flags: list[str], march: str | None = None) -> None:
    """Compile a source text to `kernels.so` in a folder, and record the required CPU features."""
    source = folder / "kernels.cpp"
    source.write_text(text)
    before, include, _ = text.partition(f'#include "{HEADER}"')
    with _HEADER_LOCK:  # one thread compiles it, the others wait
        header = _use_header(before, tuple(flags), march or target()) if include else []
    run_compiler([str(source)], folder / LIBRARY, [*flags, *header], march)
    write_target(folder, march)


@lru_cache(maxsize=8)
def _use_header(before: str, flags: tuple[str, ...], march: str) -> list[str]:
    """Flags that use a precompiled `kernel.hpp` from the cache (g++ only): parsing it dominates compile time.

    Precompiles the header at first use, together with the preceding lines of the source, because they configure it.
    If that fails, kernels compile without it.
    """
    program = compiler()
    if program is None or is_clang(program):
        return []
    version = subprocess.run([program, "-v"], capture_output=True, text=True, check=False).stderr
    key = key_of(f"{program} {version} {SOURCES} {before}", list(flags))

    def build(folder: Path) -> None:
        header = folder / HEADER
        header.write_text(f'{before}#include "{SOURCES / HEADER}"\n')
        run_compiler(["-x", "c++-header", str(header)], folder / f"{HEADER}.gch", list(flags), march)

    try:
        return ["-include", str(cache.publish(cached(f"header-{key}", march), build) / HEADER)]
    except (BuildError, CacheError):
        return []


def write_target(folder: Path, march: str | None = None) -> None:
    """Record the CPU features that code compiled here may use."""
    march = march or target()
    note = {"march": march, "features": list(cpu.required(march))}
    (folder / "target.json").write_text(json.dumps(note))


def built_for(folder: Path) -> str | None:
    """The instruction set that the library in a folder was compiled for."""
    try:
        return str(json.loads((folder / "target.json").read_text())["march"])
    except (OSError, ValueError, KeyError):
        return None


def lanes_of_worlds(precision: int, march: str | None = None) -> int:
    """Number of worlds that share registers: the full register width, because such kernels gather nothing.

    Args:
        precision: Bytes of a Float, 4 or 8.
        march: Instruction set. By default that of the shipped libraries, so that they are found, else the current
            target.
    """
    shipped = SHIPPED / runtime_key()
    if march is None and (shipped / LIBRARY).exists() and not _missing_features(shipped):
        march = built_for(shipped)
    return max(cpu.vector_bytes(march or target()) // precision, 1)


def run_compiler(sources: list[str], output: Path, flags: list[str], march: str | None = None) -> None:
    """Run the C++ compiler; an error includes its messages."""
    program = compiler()
    named = os.environ.get("CXX")
    if program is None and named:
        raise BuildError(
            "the environment variable CXX names no program, and this kernel is not compiled yet",
            got=named,
            fix="name an installed compiler, or unset CXX to use g++ or clang++",
        )
    if program is None:
        raise BuildError(
            "no C++ compiler was found, and this kernel is not compiled yet",
            fix="install g++ or clang++ (Debian: apt-get install g++), or name one in the environment variable CXX",
        )
    command = [program, *flags, f"-march={march or target()}", f"-I{SOURCES}", *sources, "-o", str(output)]
    if not is_clang(program):
        command[1:1] = GCC_ONLY
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        first = "\n".join(done.stderr.splitlines()[:20])
        raise BuildError(
            "the C++ compiler failed",
            where=" ".join(command[:1]),
            got=first,
            fix="see `kinema doctor`; set CXX to another compiler",
        )


def _refuse_other_cpus(folder: Path) -> None:
    lacking = _missing_features(folder)
    if lacking:
        raise BuildError(
            "a library was compiled for another CPU",
            where=str(folder),
            got=f"built for {built_for(folder)}; this machine lacks {', '.join(lacking)}",
            fix="set KINEMA_MARCH to a level that this machine supports, or unset it",
        )


def _load(folder: Path) -> ctypes.CDLL:
    _refuse_other_cpus(folder)
    try:
        return ctypes.CDLL(str(folder / LIBRARY))
    except OSError as error:
        raise BuildError(
            f"the compiled library cannot be loaded: {error}", where=str(folder), fix="run `kinema cache clear`"
        ) from None


@lru_cache(maxsize=1)
def runtime() -> ctypes.CDLL:
    """The runtime: pool, rollouts, packing."""
    key = runtime_key()
    folder = find(key) or cache.publish(cached(key), compile_runtime)
    _refuse_other_cpus(folder)
    return native.load_runtime(folder / LIBRARY)


def runtime_key() -> str:
    """Content key of the runtime library."""
    return key_of("".join((SOURCES / name).read_text() for name in RUNTIME_HEADERS + RUNTIME_FILES), RUNTIME_FLAGS)


def compile_runtime(folder: Path) -> None:
    """Compile the runtime into a folder."""
    run_compiler([str(SOURCES / name) for name in RUNTIME_FILES], folder / LIBRARY, RUNTIME_FLAGS)
    write_target(folder)
