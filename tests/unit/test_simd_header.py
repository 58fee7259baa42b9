"""The lanes of emitted kernels (simd.hpp): one driver, built by each compiler at hand; all agree on every bit."""

import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "tests" / "unit" / "native" / "simd_check.cpp"
FLAGS = ["-std=c++17", "-O1", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra"]
FLAGS += ["-Werror", "-I", str(ROOT / "src" / "kinema" / "lang" / "native")]
NATIVE = ["-march=x86-64-v3"] if platform.machine() in ("x86_64", "AMD64") else []
# Under emulation the references (quadruple precision in software) are slow: fewer samples.
FOREIGN = ["-static", "-DSAMPLES=2000"]


def run(compiler, flags, emulator, binary):
    """Builds the driver and runs it; returns the failed or the last of the two processes."""
    build = subprocess.run([compiler, *flags, *FLAGS, str(DRIVER), "-o", str(binary)], capture_output=True, text=True)
    if build.returncode:
        return build
    return subprocess.run([*emulator, str(binary)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each compiler's driver did; the builds take ten seconds each and run side by side."""
    folder = tmp_path_factory.mktemp("simd")
    clang = shutil.which("clang++-14") or shutil.which("clang++")
    gcc, cross, emulator = (shutil.which(name) for name in ("g++", "aarch64-linux-gnu-g++", "qemu-aarch64-static"))
    with ThreadPoolExecutor() as pool:
        jobs = {}
        if gcc:
            jobs["gcc"] = pool.submit(run, gcc, NATIVE, [], folder / "gcc")
        if clang:
            jobs["clang"] = pool.submit(run, clang, NATIVE, [], folder / "clang")
        if cross and emulator:
            jobs["aarch64"] = pool.submit(run, cross, FOREIGN, [emulator], folder / "aarch64")
        return {name: job.result() for name, job in jobs.items()}


def bits(process):
    """The line with the hash of all results."""
    return next(line for line in process.stdout.splitlines() if line.startswith("bits "))


@pytest.mark.parametrize("name", ["gcc", "clang", "aarch64"])
def test_driver_passes_with_the_same_bits(results, name):
    if name not in results:
        pytest.skip(f"no compiler (or emulator) for {name}")
    process = results[name]
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
    assert process.stdout.endswith("PASS\n")
    reference = results.get("gcc", process)
    assert bits(process) == bits(reference)
