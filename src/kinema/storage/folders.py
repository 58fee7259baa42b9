"""Files that appear whole or not at all, and folders for results."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kinema.errors import InputError


def replace_file(path: str, parts: Sequence[bytes | memoryview]) -> None:
    """Write a file; whoever reads it, also after a kill at any time, sees the old contents or the new ones.

    Args:
        path: The file, in an existing folder.
        parts: Its contents.

    Raises:
        OSError: The file cannot be written; the old one is unchanged.
    """
    folder = os.path.dirname(path)
    aside = os.path.join(folder, f".kinema-{os.getpid()}-{secrets.token_hex(8)}.tmp")
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            if os.path.exists(path):
                os.fchmod(file.fileno(), stat.S_IMODE(os.stat(path).st_mode))
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        if os.path.exists(aside):
            os.unlink(aside)
        raise
    # Flush the directory entry as well.
    descriptor = os.open(folder or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(out: Path) -> None:
    """Make a folder for results, unless it exists.

    Raises:
        InputError: It cannot be made, or not be written to.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        fix = "--out FOLDER, one that you may write to"
        raise InputError("the folder of results cannot be used", got=f"{out}: {error.strerror}", fix=fix) from None
