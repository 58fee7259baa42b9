"""The gradient of an experiment's own scene: `kn.check_gradient` as results of a case, a table and claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import kinema as kn
from kinema.experiments.case import Line, Table, at_most

DIFFERENCE, SECANT = 1e-4, 0.02
"""Largest relative errors: against central differences of tiny steps, and of the mean gradient against the secant."""


TRIED, APART = 5, 0.1
"""Points at which a check looks for reliable differences, and how far from each other, relative to the window."""


def check(loss: Callable[[Tensor], Any], x: Tensor, window: float, **options: Any) -> dict[str, Any]:
    """Check a gradient with `kn.check_gradient`; returns the result of a case.

    Images jump where outlines reach pixels. If a jump spoils the differences at x, as their error estimate says, the
    check moves to points nearby, and reports the one with the most reliable differences, whatever the gradient is.
    """
    draw = torch.Generator().manual_seed(0)
    tried: list[dict[str, Any]] = []
    while len(tried) < TRIED and (not tried or _rounding(tried[-1]) > DIFFERENCE):
        found = kn.check_gradient(loss, x, window=window, **options)
        lines, texts = [_as_json(line) for line in found.lines], [one.what for one in found.findings]
        tried.append({"window": window, "moved": len(tried), "ok": found.ok, "lines": lines, "findings": texts})
        way = torch.randn(x.shape, generator=draw, dtype=x.dtype)
        x = x + APART * window / way.norm() * way
    return min(tried, key=_rounding)


def _rounding(found: Mapping[str, Any]) -> float:
    """Error of the differences of a check, relative to their size."""
    return max((line["rounding"] for line in found["lines"]), default=0.0)


def _as_json(line: Any) -> dict[str, Any]:
    scale = max(abs(line.difference), line.scale)
    return {
        "along": line.name,
        "gradient": line.gradient,
        "difference": line.difference,
        "error": abs(line.gradient - line.difference) / scale if scale else 0.0,
        "rounding": line.difference_error / scale if scale else 0.0,
        "secant": line.secant,
        "mean_gradient": line.mean_gradient,
        "secant_error": line.secant_error,
        "jumps": len(line.jumps),
    }


def along_itself(loss: Callable[[Tensor], Tensor], x: Tensor, step: float, apart: float) -> float:
    """Relative error of a gradient against the central difference along itself, over a tiny step.

    For losses of images, whose secants are not those of their gradients: images jump where an outline comes near a
    pixel. A jump spoils the difference at its place, a wrong gradient everywhere: of some points, the best one counts.

    Args:
        loss: Maps points, shape (n, *x.shape), to losses, shape (n,).
        x: The first point.
        step: Length of the step to either side, in the units of x.
        apart: Distance from one point to the next, in the units of x.
    """
    draw = torch.Generator().manual_seed(0)
    error, tried = float("inf"), 0
    while tried < TRIED and not error <= DIFFERENCE:
        at = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(loss(at.unsqueeze(0)).sum(), at)
        size = slope.norm()
        with torch.no_grad():
            more, less = loss(x + step * torch.stack([slope, -slope]) / size)
        error = min(error, float(((more - less) / (2.0 * step * size) - 1.0).abs()))
        way = torch.randn(x.shape, generator=draw, dtype=x.dtype)
        x, tried = x + apart / way.norm() * way, tried + 1
    return error


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
