"""Shared by all benchmarks: targets, printed tables, JSON values, available peers."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

Maker = TypeVar("Maker", bound=Callable[[], Any])
Targets = Mapping[str, tuple[str, float]]
"""Name of a ratio -> ">=" or "<=", and a limit."""
Tables = list[tuple[str, list[str], list[list[str]]]]
"""Title, columns, rows of text."""


def target(targets: Targets, name: str, value: float | None) -> dict[str, Any]:
    """A target, the measurement, and whether it meets the target."""
    sign, limit = targets[name]
    met = value is not None and (value >= limit if sign == ">=" else value <= limit)
    return {"at_least" if sign == ">=" else "at_most": limit, "measured": value, "met": met}


def ratio_rows(targets: Targets, ratios: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """Ratios as rows of a table, with their targets if they have any."""
    rows = []
    for name, value in ratios.items():
        row: dict[str, Any] = {"ratio": name, "measured": value}
        if name in targets:
            sign, limit = targets[name]
            met = None if value is None else target(targets, name, value)["met"]
            row |= {"target": f"{sign} {limit:g}", "met": met}
        rows.append(row)
    return rows


def note_rows(notes: Iterable[str], skipped: Mapping[str, str]) -> list[dict[str, Any]]:
    """Notes and skipped measurements as rows of a table."""
    return [{"": note} for note in (*notes, *(f"Not measured: {name}: {why}" for name, why in skipped.items()))]


def as_text(tables: Iterable[tuple[str, Sequence[Mapping[str, Any]]]]) -> Tables:
    """Tables of rows as text; the columns are all keys of the rows."""
    result = []
    for title, rows in tables:
        columns = list(dict.fromkeys(name for row in rows for name in row))
        result.append((title, columns, [[_cell(row.get(name)) for name in columns] for row in rows]))
    return result


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def plain(value: Any) -> Any:
    """Prepare values for JSON, which cannot express NaN or infinity: they become null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def divide(a: float | None, b: float | None) -> float | None:
    """a / b; None if either was not measured."""
    return None if a is None or b is None else a / b


def available(peers: Iterable[Maker]) -> tuple[list[Maker], dict[str, str]]:
    """Constructors of the available peers, and the reasons why the others cannot run."""
    makers, skipped = [], {}
    for make in peers:
        peer = make()
        if found := peer.available():
            makers.append(make)
        else:
            skipped[peer.name] = found.reason
    return makers, skipped


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Keep standard output clean for the JSON object, whatever peers (and their native code) print."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
