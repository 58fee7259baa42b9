"""CPU features of this machine, read without running any vector instruction.

Feature names are those of /proc/cpuinfo. A library records its `required` features when it is compiled, and is loaded
only where none of them is `missing`.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from kinema.errors import InputError

_V2 = ("cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3")
_V3 = (*_V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")

# Level -> features; the names are values of -march except "neon", which is armv8-a.
LEVELS = {
    "x86-64": ("sse2",),
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
    "neon": ("asimd",),
    "armv8-a": ("asimd",),
}

_VECTOR_BYTES = {"x86-64": 16, "x86-64-v2": 16, "x86-64-v3": 32, "x86-64-v4": 64, "neon": 16}

# Further features, beyond the levels and the avx family, that -march=native may enable and compilers may use.
_NATIVE_EXTRA = {"adx", "fma4", "sse4a", "tbm", "xop", "sve", "sve2"}

WIDEST = 32  # bytes of vectors of elements, except in kernels with `analysis.shares_its_elements`


def _cpuinfo() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


@lru_cache(maxsize=1)
def features() -> frozenset[str]:
    """Names of the CPU features, as /proc/cpuinfo spells them."""
    info = _cpuinfo()
    flags = (info.get("flags") or info.get("Features") or "").split()
    if not flags and platform.machine() in ("arm64", "aarch64"):
        flags = ["asimd"]
    return frozenset(flags)


def model_name() -> str:
    """The CPU's name, or the name of its architecture."""
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def required(march: str) -> tuple[str, ...]:
    """Features that code compiled here with `-march=<march>` may use.

    Args:
        march: A level of `LEVELS`, or "native" for the features of this machine that compilers use.
    """
    if march in LEVELS:
        return LEVELS[march]
    if march != "native":
        raise ValueError(f"unknown level {march!r}: expected native or one of {', '.join(LEVELS)}")
    known = _NATIVE_EXTRA.union(*LEVELS.values())
    return tuple(sorted(f for f in features() if f in known or f.startswith("avx")))


def missing(needed: Iterable[str]) -> list[str]:
    """The needed features that this CPU lacks."""
    return sorted(set(needed) - features())


def meets(level: str) -> bool:
    """Whether code compiled for `level` runs on this CPU."""
    return not missing(required(level))


def level() -> str:
    """The highest level that this CPU supports: "x86-64-v4" ... "x86-64", "neon" or "scalar"."""
    found = [name for name in _VECTOR_BYTES if meets(name)]
    return found[-1] if found else "scalar"


def vector_bytes(march: str) -> int:
    """Register width [bytes] of code compiled here with `-march=<march>`, 0 without vectors."""
    return _VECTOR_BYTES.get({"native": level(), "armv8-a": "neon"}.get(march, march), 0)


def lanes(precision: int) -> int:
    """Lanes of kernels whose lanes are elements: the register width, but at most 32 bytes.

    The compiled code decides about wider registers, so that its text is the same for all machines from x86-64-v3 on.

    Args:
        precision: Bytes of a Float, 4 or 8.
    """
    return max(min(_VECTOR_BYTES.get(level(), 0), WIDEST) // precision, 1)


def affinity() -> int:
    """CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quota(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """CPUs that the control groups (v1 or v2) grant this process, None if there is no limit."""
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return None
    limits = []
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers and "cpu" not in controllers.split(","):
            continue
        mounts = [root / controllers, root / "cpu"] if controllers else [root, root / "unified"]
        # Limits of all groups up to the root apply.
        parts = Path(path).parts[1:]
        for mount in mounts:
            for depth in range(len(parts) + 1):
                limits.append(_limit_of(mount.joinpath(*parts[:depth])))
    granted = [limit for limit in limits if limit is not None]
    return min(granted) if granted else None


def _limit_of(group: Path) -> float | None:
    try:
        if (group / "cpu.max").exists():
            limit, period = (group / "cpu.max").read_text().split()
        else:
            limit = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text().strip()
        return int(limit) / int(period) if limit not in ("max", "-1") else None
    except (OSError, ValueError):
        return None


def threads() -> int:
    """Number of threads worth starting: $KINEMA_THREADS, or CPUs by affinity, or by quota if that is less."""
    chosen = os.environ.get("KINEMA_THREADS")
    if chosen:
        if not chosen.isdecimal() or int(chosen) < 1:
            what = "the environment variable KINEMA_THREADS is not usable"
            raise InputError(what, got=chosen, expected="a number of threads, 1 or more", fix="unset it")
        return int(chosen)
    granted = quota()
    return affinity() if granted is None else max(1, min(affinity(), math.ceil(granted)))
