"""Figures of matplotlib in PNG files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kinema.errors import InputError, StorageError


def new_figure(width: float, height: float) -> Any:
    """An empty figure [inches].

    Raises:
        InputError: matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("plots need matplotlib", fix="pip install 'kinema[plot]'") from None
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def keep_figure(figure: Any, file: str | os.PathLike[str]) -> Path:
    """Write a figure; missing folders are created.

    Raises:
        StorageError: The file cannot be written.
    """
    path = Path(file)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:  # ValueError: a format that matplotlib does not know
        raise StorageError("the figure cannot be written", where=os.fspath(path), got=str(error)) from None
    return path
