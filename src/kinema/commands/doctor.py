"""The environment of Kinema on this machine, as lines of (name, value)."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import kinema
from kinema.lang.build import cache, compiler, cpu


def facts() -> list[tuple[str, str]]:
    """Versions, compiler, CPU, threads, native code and cache of this machine."""
    return [
        ("kinema", kinema.__version__),
        ("python", f"{platform.python_version()} ({platform.system()} {platform.machine()})"),
        ("torch", _version("torch")),
        ("numpy", _version("numpy")),
        ("compiler", _compilers()),
        ("CPU", f"{cpu.model_name()}, level {cpu.level()}"),
        ("CPU features", _features()),
        ("lanes", f"{cpu.lanes(4)} x float32, {cpu.lanes(8)} x float64"),
        ("lanes of batches", f"{compiler.lanes_of_worlds(4)} x float32, {compiler.lanes_of_worlds(8)} x float64"),
        ("threads", _threads()),
        ("native code", _native()),
        ("cache", cache_line()),
    ]


def cache_line() -> str:
    """The cache folder, the number of its entries and its size."""
    return f"{cache.folder()} ({len(cache.entries())} entries, {cache.size() / 1e6:.1f} MB)"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return f"missing: pip install {package}"


def _compilers() -> str:
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++"]
    found = [f"{path} ({_first_line(path)})" for name in names if (path := shutil.which(name))]
    # Shipped programs need no compiler.
    needed = f"none ({' or '.join(names)} is needed for user kernels, and for steps that are not shipped)"
    return ", ".join(found) or needed


def _first_line(compiler: str) -> str:
    try:
        result = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run: {error}"
    return (result.stdout or result.stderr).partition("\n")[0]


def _features() -> str:
    wanted = sorted(f for f in cpu.features() if f in ("fma", "f16c", "bmi2", "asimd") or f.startswith(("avx", "sve")))
    return " ".join(wanted) or "none of those used"


def _threads() -> str:
    quota = cpu.quota()
    limit = "no quota" if quota is None else f"a quota of {quota:g} CPUs"
    return f"{cpu.threads()} (affinity to {cpu.affinity()} CPUs, {limit})"


def _native() -> str:
    folder = Path(__file__).parent / "_native"
    libraries = list(folder.rglob("*.so")) if folder.is_dir() else []
    if not libraries:
        return "not built: make setup, or pip install ."
    return f"{len(libraries)} libraries, {sum(lib.stat().st_size for lib in libraries) / 1e6:.1f} MB"
