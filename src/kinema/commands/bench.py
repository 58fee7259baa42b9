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


def run_kernels(*, quick: bool = False) -> dict[str, Any]:
    """Time the shipped kernels side by side with their peers; progress goes to standard error.

    Args:
        quick: Fewer sizes and repetitions.

    Returns:
        A dictionary with `rows`, `ratios` and the machine.
    """
    return _module("benchmarks.kernels.run").main(json=False, quick=quick)


def run_articulated(*, quick: bool = False) -> tuple[dict[str, Any], list[Table]]:
    """Time quadrupeds on the ground side by side with other engines; progress goes to standard error.

    Args:
        quick: Fewer steps and repetitions.

    Returns:
        A dictionary with `rows`, `ratios` and more, and the same as printable tables.
    """
    result = _module("benchmarks.articulated.run").measure(quick=quick)
    return result, _module("benchmarks.articulated.report").tables(result)


def run_deformable(*, quick: bool = False) -> tuple[dict[str, Any], list[Table]]:
    """Time soft blocks on the ground and cloth on a ball side by side with Warp; progress goes to standard error.

    Args:
        quick: One small block and one small cloth.

    Returns:
        A dictionary with `rows`, `ratios` and more, and the same as printable tables.
    """
    result = _module("benchmarks.deformable.run").measure(quick=quick)
    return result, _module("benchmarks.deformable.report").tables(result)


def run_render(*, quick: bool = False) -> tuple[dict[str, Any], list[Table]]:
    """Time rendering of spheres and its gradients side by side with other renderers; progress goes to standard error.

    Args:
        quick: One small sphere.

    Returns:
        A dictionary with `rows`, `ratios` and more, and the same as printable tables.
    """
    result = _module("benchmarks.render.run").measure(quick=quick)
    return result, _module("benchmarks.render.report").tables(result)


def _module(name: str) -> Any:
    """A module of the project folder."""
    folder = str(project_folder())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)
