"""A cache of compiled code on disk, keyed by content. Safe against races, kills and damaged files.

An entry is a folder named by its key. `publish` builds it in a temporary folder beside it and renames that when
complete, so an entry is whole or absent. `manifest.json`, written last, holds the SHA-256 of every file; lookups check
it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kinema.errors import CacheError

_MANIFEST = "manifest.json"
_TEMPORARY = ".tmp-"
_STALE_SECONDS = 3600.0


def folder() -> Path:
    """The cache folder: $KINEMA_CACHE, else `kinema` in the user's cache folder. It need not exist."""
    chosen = os.environ.get("KINEMA_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kinema"


def lookup(key: str) -> Path | None:
    """Folder of the entry, or None if it is missing or damaged. Removes damaged entries.

    Another process may clear the cache right afterwards: callers that then miss a file call `publish` again.
    """
    entry = folder() / _checked(key)
    if not os.path.isdir(entry):  # unlike Path.is_dir, also False where reading is forbidden
        return None
    if _is_whole(entry):
        return entry
    _discard(entry)
    return None


def publish(key: str, build: Callable[[Path], None]) -> Path:
    """Folder of the entry; builds it if it is missing or damaged.

    Args:
        key: Name of the entry: letters, digits, `.`, `_` and `-`.
        build: Writes the files of the entry into the given folder. Its exceptions pass through, and a failed attempt
            leaves nothing behind. If two processes build the same key, one result wins and both use it.

    Raises:
        CacheError: The cache folder is not writable.
    """
    found = lookup(key)
    if found is not None:
        return found
    entry = folder() / key
    try:
        folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_stale()
        work = Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}{socket.gethostname()}-{os.getpid()}-", dir=folder()))
    except OSError as error:
        raise _unusable(error) from error
    try:
        build(work)
        try:
            _write_manifest(work)
            return _move_into_place(work, entry)
        except OSError as error:
            raise _unusable(error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def entries() -> list[Path]:
    """Folders of all entries."""
    return sorted(path for path in _children() if not path.name.startswith(".") and os.path.isdir(path))


def size() -> int:
    """Bytes that the cache takes on disk, including unfinished builds."""
    return sum(_file_size(file) for path in _children() for file in path.rglob("*"))


def clear() -> int:
    """Remove all entries and abandoned builds; returns the number of entries.

    Loaded libraries stay usable in their process. Builds in progress continue.
    """
    found = entries()
    for entry in found:
        _discard(entry)
    _remove_stale()
    left = [entry for entry in found if os.path.exists(entry)]
    if left:
        raise _unusable(f"cannot remove {left[0]}")
    return len(found)


def _checked(key: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", key):
        raise ValueError(f"not a cache key: {key!r}")
    return key


def _children() -> list[Path]:
    try:
        return list(folder().iterdir())
    except OSError:
        return []


def _file_size(file: Path) -> int:
    try:
        return file.lstat().st_size if not file.is_dir() else 0
    except OSError:
        return 0


def _files(entry: Path) -> Iterator[Path]:
    return (file for file in sorted(entry.rglob("*")) if file.is_file() and file.name != _MANIFEST)


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while part := opened.read(1 << 16):  # bounds memory for files of tens of megabytes
            digest.update(part)
    return digest.hexdigest()


def _write_manifest(entry: Path) -> None:
    digests = {}
    for file in _files(entry):
        _flush(file)
        digests[file.relative_to(entry).as_posix()] = _digest(file)
    (entry / _MANIFEST).write_text(json.dumps({"sha256": digests}, indent=1))
    _flush(entry / _MANIFEST)
    _flush(entry)


def _is_whole(entry: Path) -> bool:
    try:
        digests = json.loads((entry / _MANIFEST).read_text())["sha256"]
        return digests == {file.relative_to(entry).as_posix(): _digest(file) for file in _files(entry)}
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move_into_place(work: Path, entry: Path) -> Path:
    # Renaming onto an existing entry fails: a racing process made it, or it is damaged and the lookup removes it.
    for _ in range(10):
        try:
            work.rename(entry)
            _flush(entry.parent)
            return entry
        except OSError:
            if not os.path.exists(entry):
                raise
        other = lookup(entry.name)
        if other is not None:
            return other
    raise OSError(f"{entry} stays damaged")


def _discard(entry: Path) -> None:
    # Rename first, in one step, so that nobody sees a half-removed entry.
    name = f"{_TEMPORARY}{socket.gethostname()}-{os.getpid()}-old-{entry.name}-{time.monotonic_ns()}"
    aside = entry.parent / name
    try:
        entry.rename(aside)
    except OSError:
        return
    shutil.rmtree(aside, ignore_errors=True)


def _remove_stale() -> None:
    for path in _children():
        if path.name.startswith(_TEMPORARY) and _is_stale(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_stale(work: Path) -> bool:
    try:
        if time.time() - work.stat().st_mtime > _STALE_SECONDS:
            return True
    except OSError:
        return False
    # Process ids are valid only on their own machine.
    owner = re.match(re.escape(f"{_TEMPORARY}{socket.gethostname()}-") + r"(\d+)-", work.name)
    return owner is not None and not _is_alive(int(owner[1]))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _unusable(problem: object) -> CacheError:
    return CacheError(
        "the cache folder for compiled code is unusable",
        where=str(folder()),
        got=problem,
        expected="a folder that this user can write to",
        fix="set the environment variable KINEMA_CACHE to such a folder",
    )
