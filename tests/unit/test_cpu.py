"""CPU levels and the number of threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinema.errors import InputError
from kinema.lang.build import cpu

V3 = "sse2 cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"
V4 = V3 + " avx512bw avx512cd avx512dq avx512f avx512vl"


@pytest.mark.parametrize(
    ("flags", "level", "f32", "f64"),
    [
        ("sse2", "x86-64", 4, 2),
        (V3.replace("fma", ""), "x86-64-v2", 4, 2),
        (V3, "x86-64-v3", 8, 4),
        (V4, "x86-64-v4", 8, 4),
        ("fp asimd", "neon", 4, 2),
        ("", "scalar", 1, 1),
    ],
)
def test_level_and_lanes(monkeypatch: pytest.MonkeyPatch, flags: str, level: str, f32: int, f64: int):
    monkeypatch.setattr(cpu, "features", lambda: frozenset(flags.split()))
    assert (cpu.level(), cpu.lanes(4), cpu.lanes(8)) == (level, f32, f64)
    assert level == "scalar" or cpu.meets(level)


def test_a_library_for_a_better_cpu_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cpu, "features", lambda: frozenset(V4.split()))
    needed = cpu.required("native")
    monkeypatch.setattr(cpu, "features", lambda: frozenset(V3.split()))
    assert cpu.missing(needed) == ["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"]
    assert not cpu.meets("x86-64-v4")
    with pytest.raises(ValueError, match="pentium"):
        cpu.required("pentium")


def test_this_machine(monkeypatch: pytest.MonkeyPatch):
    assert cpu.meets("native")
    monkeypatch.delenv("KINEMA_THREADS", raising=False)
    assert 1 <= cpu.threads() <= cpu.affinity()


def test_the_environment_sets_the_number_of_threads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KINEMA_THREADS", "3")
    assert cpu.threads() == 3
    monkeypatch.setenv("KINEMA_THREADS", "many")
    with pytest.raises(InputError, match="KINEMA_THREADS is not usable"):
        cpu.threads()


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/a/b\n", {"a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000"}, 1.5),
        ("0::/a\n", {"a/cpu.max": "max 100000"}, None),
        ("0::/gone\n", {"cpu.max": "50000 100000"}, 0.5),
        ("4:cpu,cpuacct:/a\n0::/\n", {"cpu/a/cpu.cfs_quota_us": "300000", "cpu/a/cpu.cfs_period_us": "100000"}, 3.0),
        ("4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("3:cpuset:/a\n", {"cpu.max": "50000 100000"}, None),
    ],
)
def test_quota(tmp_path: Path, membership: str, files: dict[str, str], expected: float | None):
    (tmp_path / "self").write_text(membership)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert cpu.quota(tmp_path, tmp_path / "self") == expected
    assert cpu.quota(tmp_path, tmp_path / "none") is None
