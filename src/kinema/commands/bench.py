"""Benchmarks against peers. They are part of the repository, not of the installed package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from kinema.errors import KinemaError

Table = tuple[str, list[str], list[list[str]]]
"""Title, columns and rows."""


def project_folder() -> Path:
    """The project folder with `benchmarks/`: the working directory, or the location of this source tree."""
    for folder in (Path.cwd(), Path(__file__).resolve().parents[3]):
        if (folder / "benchmarks" / "kernels" / "run.py").exists():
            return folder
    raise KinemaError(
        "benchmarks not found",
        expected="a folder `benchmarks` in the working directory",
        fix="run this in a clone of the project, after `make setup-bench`",
    )


def run(name: str, *, quick: bool = False) -> tuple[dict[str, Any], list[Table]]:
    """Measure side by side with other engines; progress goes to standard error.

    Args:
        name: A folder of `benchmarks/`.
        quick: Fewer sizes and repetitions, as a smoke test.

    Returns:
        A dictionary with `rows`, `ratios` and more, and the same as printable tables.
    """
    result = _module(f"benchmarks.{name}.run").measure(quick=quick)
    return result, _module(f"benchmarks.{name}.report").tables(result)


def _module(name: str) -> Any:
    """A module of the project folder."""
    folder = str(project_folder())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)
