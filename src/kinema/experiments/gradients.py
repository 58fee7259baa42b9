"""The gradient of an experiment's own scene: `kn.check_gradient` as results of a case, a table and claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

import kinema as kn
from kinema.experiments.case import Line, Table, at_most

DIFFERENCE, SECANT = 1e-4, 0.02
"""Largest relative errors: against central differences of tiny steps, and of the mean gradient against the secant."""


def check(loss: Callable[[Tensor], Any], x: Tensor, window: float, **options: Any) -> dict[str, Any]:
    """Check a gradient with `kn.check_gradient`; returns the result of a case."""
    found = kn.check_gradient(loss, x, window=window, **options)
    lines = []
    for line in found.lines:
        scale = max(abs(line.difference), line.scale)
        rounding = line.difference_error / scale if scale else 0.0
        lines.append(
            {
                "along": line.name,
                "gradient": line.gradient,
                "difference": line.difference,
                "error": abs(line.gradient - line.difference) / scale if scale else 0.0,
                "rounding": rounding,
                "secant": line.secant,
                "mean_gradient": line.mean_gradient,
                "secant_error": line.secant_error,
                "jumps": len(line.jumps),
            }
        )
    return {"window": window, "ok": found.ok, "lines": lines, "findings": [f.what for f in found.findings]}


def table(checks: Mapping[str, Mapping[str, Any]]) -> Table:
    """One row for each direction; checks are results of `check` by name of the scene."""
    columns = ("scene", "along", "gradient", "difference", "error", "mean gradient", "secant", "error", "jumps")
    keys = ("along", "gradient", "difference", "error", "mean_gradient", "secant", "secant_error", "jumps")
    rows = [[name, *(line[key] for key in keys)] for name, found in checks.items() for line in found["lines"]]
    return Table("gradient of the loss: at a point, and over a window", columns, rows)


def claims(checks: Sequence[Mapping[str, Any]], difference: float = DIFFERENCE, secant: float = SECANT) -> list[Line]:
    """That gradients are the slopes: of tiny differences (beyond their own rounding errors), and of secants."""
    lines = [line for found in checks for line in found["lines"]]
    worst = max((line["error"] - line["rounding"] for line in lines), default=float("nan"))
    return [
        at_most("gradient of the scene against central differences, relative error", worst, difference),
        at_most(
            "mean gradient against the secant over the window, relative error",
            max((line["secant_error"] for line in lines), default=float("nan")),
            secant,
        ),
    ]
