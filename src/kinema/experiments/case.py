"""What an experiment consists of: cases, solved independently, and a report about their results.

A module of an experiment has

    class Arguments                      a frozen dataclass; the defaults are a full run, `quick()` a short one
    cases(arguments, seeds) -> list      independent units of work: one object, one seed, one method
    solve(case) -> dict                  the results of one case, the same bits for the same case
    report(arguments, results) -> Report tables, metrics, and the lines to pass
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinema.errors import InputError
from kinema.storage.objects import save

Results = Sequence[tuple["Case", Mapping[str, Any]]]
"""Solved cases and their results, in the order of `cases`."""


@dataclass(frozen=True)
class Case:
    """One unit of work, solved in a process with one thread.

    Attributes:
        name: Unique name within the experiment, such as "box, seed 3".
        inputs: Everything that `solve` needs, as JSON: numbers, texts, lists, dictionaries. `case["seed"]` reads one.
        folder: The folder of the run, for results too large for JSON. `solve` writes them there and returns their names
            and digests under the key "files", see `stored`. Workers on other machines need the same folder.
    """

    name: str
    inputs: Mapping[str, Any]
    folder: Path | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", as_json(dict(self.inputs), f"case {self.name!r}"))

    def __getitem__(self, key: str) -> Any:
        return self.inputs[key]


@dataclass(frozen=True)
class Table:
    """A printed table: rows of texts and numbers. A table of measured times is `timed`."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    timed: bool = False


@dataclass(frozen=True)
class Line:
    """A claim that passes or fails, made by `at_most` or `at_least`; a value that is not finite fails.

    Attributes:
        claim: The claim, with its unit.
        value: The measured value.
        limit: Its limit.
        upper: Whether the limit is an upper one.
        timed: Whether the value is a measured time, or follows from one.
    """

    claim: str
    value: float
    limit: float
    upper: bool = True
    timed: bool = False

    @property
    def ok(self) -> bool:
        """Whether the claim holds."""
        return math.isfinite(self.value) and (self.value <= self.limit if self.upper else self.value >= self.limit)

    def __str__(self) -> str:
        sign = "<=" if self.upper else ">="
        return f"{'PASS' if self.ok else 'FAIL'}  {self.claim}: {number(self.value)} ({sign} {number(self.limit)})"


def at_most(claim: str, value: float, limit: float, *, timed: bool = False) -> Line:
    """A claim that a value is at most its limit."""
    return Line(claim, float(value), float(limit), True, timed)


def at_least(claim: str, value: float, limit: float, *, timed: bool = False) -> Line:
    """A claim that a value is at least its limit."""
    return Line(claim, float(value), float(limit), False, timed)


@dataclass(frozen=True)
class Report:
    """What an experiment found.

    Attributes:
        tables: Tables to print.
        lines: The claims; the experiment passes if all hold.
        metrics: Numbers by name. The same cases give the same bits.
        times: Measured times and rates by name; these differ from run to run.
        deviations: Texts: how the protocol differs from the source.
        picture: Draws the figure to a PNG file.
        film: Writes a film, to an MP4 file.
    """

    tables: Sequence[Table]
    lines: Sequence[Line]
    metrics: Mapping[str, float]
    times: Mapping[str, float] = field(default_factory=dict)
    deviations: Sequence[str] = ()
    picture: Callable[[Path], Any] | None = None
    film: Callable[[Path], Any] | None = None


def stored(case: Case, name: str, whole: Mapping[str, Any]) -> dict[str, str]:
    """Save tensors with `kn.save` in the folder of the run; returns {name: SHA-256} for the key "files"."""
    assert case.folder is not None
    file = case.folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    save(file, whole)
    return {name: digest_of(file)}


def digest_of(file: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(file, "rb") as opened:
        while part := opened.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def as_json(thing: Any, where: str) -> Any:
    """A copy of something as JSON gives it back: lists for tuples, texts for keys.

    Raises:
        InputError: It holds something that JSON cannot, such as a tensor.
    """
    try:
        return json.loads(json.dumps(thing))
    except (TypeError, ValueError) as error:
        expected, fix = "numbers, texts, lists and dictionaries", "tensor.tolist(), float(x)"
        raise InputError("cannot be written as JSON", where=where, got=str(error), expected=expected, fix=fix) from None


def number(value: object) -> str:
    """A number with four significant digits; other things as text."""
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
