"""The cache of compiled code under races, kills, damage and a folder that cannot be written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from kinema.errors import CacheError
from kinema.lang.build import cache


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KINEMA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def build(text: str = "code"):
    def write(work: Path) -> None:
        (work / "kernel.so").write_text(text)

    return write


def never(work: Path) -> None:
    raise AssertionError("built although it was there")


def start(code: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def unfinished(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


def test_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, folder: Path):
    assert cache.folder() == folder
    monkeypatch.delenv("KINEMA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache.folder() == Path("/x/kinema")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == Path.home() / ".cache" / "kinema"


def test_an_entry_is_built_once(folder: Path):
    assert cache.lookup("k1") is None
    entry = cache.publish("k1", build())
    assert cache.publish("k1", never) == entry == cache.lookup("k1") == folder / "k1"
    assert (entry / "kernel.so").read_text() == "code"
    assert cache.entries() == [entry]
    assert cache.size() >= 4
    assert not unfinished(folder)


def test_clear_removes_all_entries(folder: Path):
    cache.publish("k1", build())
    cache.publish("k2", build())
    assert cache.clear() == 2
    assert list(folder.iterdir()) == [] and cache.size() == 0
    assert cache.clear() == 0


@pytest.mark.parametrize("key", ["", "..", ".hidden", "a/b", "a b", "/etc"])
def test_keys_cannot_leave_the_folder(key: str):
    with pytest.raises(ValueError, match="not a cache key"):
        cache.publish(key, never)


def test_a_failed_build_leaves_nothing(folder: Path):
    def broken(work: Path) -> None:
        (work / "kernel.so").write_text("half")
        raise RuntimeError("compiler says no")

    with pytest.raises(RuntimeError, match="compiler says no"):
        cache.publish("k1", broken)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "add", "manifest", "no manifest"])
def test_damage_is_found_and_rebuilt(folder: Path, damage: str):
    library = cache.publish("k1", build()) / "kernel.so"
    manifest = library.with_name("manifest.json")
    match damage:
        case "flip":
            library.write_text("cods")
        case "truncate":
            library.write_text("cod")
        case "remove":
            library.unlink()
        case "add":
            library.with_name("other.so").write_text("?")
        case "manifest":
            manifest.write_text("[]")
        case "no manifest":
            manifest.unlink()
    assert cache.lookup("k1") is None
    assert (cache.publish("k1", build("new")) / "kernel.so").read_text() == "new"
    assert not unfinished(folder)


def test_two_processes_that_build_the_same_entry_both_succeed(folder: Path):
    code = """
from kinema.lang.build import cache
def build(work):
    (work / "kernel.so").write_text(tag)
    print("building", flush=True)
    input()
tag = {tag!r}
print((cache.publish("k1", build) / "kernel.so").read_text(), flush=True)
"""
    first, second = (start(code.format(tag=tag)) for tag in "ab")
    # Both are inside their build before either may finish.
    assert first.stdout.readline() == second.stdout.readline() == "building\n"
    assert cache.lookup("k1") is None
    results = [process.communicate("\n", timeout=30)[0].strip() for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert results == ["a", "a"]
    assert (cache.publish("k1", never) / "kernel.so").read_text() == "a"
    assert not unfinished(folder)


def test_a_winner_that_is_damaged_does_not_win(folder: Path):
    def build_while_another_leaves_rubbish(work: Path) -> None:
        (folder / "k1").mkdir()
        (folder / "k1" / "kernel.so").write_text("rubbish")
        build("good")(work)

    assert (cache.publish("k1", build_while_another_leaves_rubbish) / "kernel.so").read_text() == "good"


def test_many_processes_at_once(folder: Path):
    code = """
from kinema.lang.build import cache
for key in ("k1", "k2", "k3") * 5:
    entry = cache.publish(key, lambda work: (work / "kernel.so").write_text(key * 1000) and None)
    assert (entry / "kernel.so").read_text() == key * 1000
"""
    processes = [start(code) for _ in range(6)]
    assert [process.wait(60) for process in processes] == [0] * 6
    assert [entry.name for entry in cache.entries()] == ["k1", "k2", "k3"]
    assert not unfinished(folder)


def test_a_kill_in_the_middle_leaves_nothing_to_be_loaded(folder: Path):
    process = start("""
import time
from kinema.lang.build import cache
def build(work):
    (work / "kernel.so").write_text("half")
    print("half-way", flush=True)
    time.sleep(60)
cache.publish("k1", build)
""")
    assert process.stdout.readline() == "half-way\n"
    assert len(unfinished(folder)) == 1
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    assert cache.lookup("k1") is None and cache.entries() == []
    assert (cache.publish("k1", build()) / "kernel.so").read_text() == "code"
    assert not unfinished(folder)


def test_only_stale_builds_are_removed(folder: Path):
    folder.mkdir()
    living = folder / f".tmp-{os.uname().nodename}-{os.getppid()}-a"
    elsewhere = folder / ".tmp-another-machine-1-b"
    old = folder / f".tmp-{os.uname().nodename}-{os.getppid()}-c"
    for path in (living, elsewhere, old):
        path.mkdir()
    os.utime(old, (time.time() - 7200,) * 2)
    cache.publish("k1", build())
    assert sorted(unfinished(folder)) == sorted([living, elsewhere])


def test_a_file_in_place_of_the_folder(folder: Path):
    folder.write_text("")
    with pytest.raises(CacheError, match="KINEMA_CACHE") as caught:
        cache.publish("k1", never)
    assert str(folder) in str(caught.value)
    assert cache.lookup("k1") is None and cache.size() == 0


@contextmanager
def ordinary_user():
    """Permissions do not hold root back, so become somebody else for a while."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize(("mode", "readable"), [(0o555, True), (0o000, False)])
def test_a_folder_without_permission(monkeypatch: pytest.MonkeyPatch, mode: int, readable: bool):
    with tempfile.TemporaryDirectory() as base:
        monkeypatch.setenv("KINEMA_CACHE", base + "/cache")
        entry = cache.publish("k1", build())
        for path in (entry, Path(base)):
            path.chmod(0o755)
        entry.parent.chmod(mode)
        try:
            with ordinary_user():
                assert cache.lookup("k1") == (entry if readable else None)
                with pytest.raises(CacheError, match="KINEMA_CACHE"):
                    cache.publish("k2", never)
        finally:
            entry.parent.chmod(0o700)


def test_a_full_disk_is_a_clear_error(folder: Path):
    code = """
import resource, signal
from kinema.lang.build import cache
from kinema.errors import CacheError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    cache.publish("k1", lambda work: None)
except CacheError as error:
    assert "KINEMA_CACHE" in str(error)
    print("refused")
"""
    assert start(code).communicate(timeout=30)[0] == "refused\n"
    assert cache.lookup("k1") is None and not unfinished(folder)
