"""`Fit`: the result of a fit, as a table, a figure and a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from kinema.errors import InputError
from kinema.fitting.confidence import Confidence
from kinema.fitting.figures import keep_figure, new_figure
from kinema.storage.objects import save

SHOWN = 40  # rows of the table
WRONG = 10.0  # loss relative to the noise floor from which predictions differ from the data by more than noise


class Start(NamedTuple):
    """A start of a fit: the best values it led to, and their loss."""

    values: dict[str, Tensor]
    loss: float


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of `kn.fit`. Print it for a table.

    Attributes:
        values: Best values by name, as `simulate` takes them in `params`.
        loss: Their loss.
        names: A name for each number.
        numbers: All numbers side by side, shape (n,).
        at_bounds: Which numbers ended at a bound, shape (n,).
        accuracy: Standard deviations, and combinations that data do not determine; None without least squares.
        floor: Loss that noise alone leaves at these values; None if the noise is unknown.
        floor_reached: Whether the loss is that of noise; None if the noise is unknown.
        starts: The best of each start.
        failed: Which starts ended because their simulation failed or their gradient exploded, shape (starts,).
        history: Loss of each start in each iteration, shape (iterations, starts).
        stages: Number of iterations until the end of each stage.
        evaluations: Number of simulated candidates, those of Jacobians included.
        seconds: Time of the fit [s].
    """

    values: dict[str, Tensor]
    loss: float
    names: list[str]
    numbers: Tensor
    at_bounds: Tensor
    accuracy: Confidence | None
    floor: float | None
    floor_reached: bool | None
    starts: list[Start]
    failed: Tensor
    history: Tensor
    stages: list[int]
    evaluations: int
    seconds: float

    @property
    def std(self) -> dict[str, float]:
        """Standard deviation of each number, by its name.

        Raises:
            InputError: The fit has none: its loss is no sum of squares, or it has too many unknowns.
        """
        if self.accuracy is None:
            fix = 'loss="squares", and kn.fit.Options(confidence=True)'
            raise InputError("the fit has no standard deviations", fix=fix)
        return dict(zip(self.names, self.accuracy.std.tolist(), strict=True))

    @property
    def undetermined(self) -> list[str]:
        """Combinations of unknowns that the data do not determine, in words."""
        return [] if self.accuracy is None else self.accuracy.combinations

    @property
    def iterations(self) -> int:
        """Number of iterations."""
        return len(self.history)

    @property
    def summary(self) -> str:
        """The result in one line."""
        found = sum(start.loss <= 1.01 * self.loss for start in self.starts)
        floor = ""
        if self.floor is not None:
            floor = f", noise floor {self.floor:.3e} {'reached' if self.floor_reached else 'not reached'}"
        return (
            f"loss {self.loss:.3e}{floor}; {found} of {len(self.starts)} starts; {self.iterations} iterations, "
            f"{self.evaluations} simulations, {self.seconds:.1f} s"
        )

    def __str__(self) -> str:
        columns = ("unknown", "found", "std", "")
        rows = [self._row(i) for i in range(min(len(self.names), SHOWN))]
        notes = [self.summary]
        if len(self.names) > SHOWN:
            notes.insert(0, f"... {len(self.names) - SHOWN} more")
        if bool(self.failed.any()):
            notes.append(
                f"{int(self.failed.sum())} of {len(self.failed)} starts failed: not finite, or gradients exploded"
            )
        if self.floor and self.loss > WRONG * self.floor:
            notes.append(
                f"predictions differ from the data by {self.loss / self.floor:.0f} times their noise: values carry the "
                "error of the model (outlines, light, compression, what is not modelled), std does not"
            )
        notes += [f"not determined by the data: {words}" for words in self.undetermined]
        console = Console()
        if not console.is_terminal:
            widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
            lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in (columns, *rows)]
            return "\n".join([*lines, *notes])
        table = Table(*columns, title="fit", title_justify="left")
        for row in rows:
            table.add_row(*map(Text, row))
        with console.capture() as shown:
            console.print(table, *map(Text, notes), sep="\n")
        return shown.get().rstrip("\n")

    def _row(self, i: int) -> tuple[str, str, str, str]:
        words = "at its bound" if bool(self.at_bounds[i]) else ""
        std = ""
        if self.accuracy is not None:
            std = f"{float(self.accuracy.std[i]):.2g}"
            if not bool(self.accuracy.determined[i]):
                words = ", ".join(filter(None, (words, "not determined")))
        return self.names[i], f"{float(self.numbers[i]):.6g}", std, words

    def save(self, file: str | os.PathLike[str]) -> None:
        """Save values, history and accuracy; `kn.load` returns them as a dictionary."""
        accuracy = {} if self.accuracy is None else {"std": self.accuracy.std, "covariance": self.accuracy.covariance}
        save(
            file,
            {
                "values": self.values,
                "loss": self.loss,
                "names": self.names,
                "numbers": self.numbers,
                "floor": self.floor,
                "history": self.history,
                "undetermined": self.undetermined,
                **accuracy,
            },
        )

    def plot(self, file: str | os.PathLike[str]) -> Path:
        """Draw the loss of each start over iterations, with the noise floor.

        Raises:
            InputError: matplotlib is missing.
            StorageError: The file cannot be written.
        """
        figure = new_figure(6.4, 3.6)
        axis = figure.add_subplot()
        best = min(range(len(self.starts)), key=lambda i: self.starts[i].loss)
        for i in range(self.history.shape[1]):
            shown = self.history[:, i].isfinite() & (self.history[:, i] > 0)
            losses = torch.where(shown, self.history[:, i], torch.nan)
            colour, width = ("#d96a3f", 2.0) if i == best else ("#33679f", 0.8)
            axis.plot(range(1, len(losses) + 1), losses.tolist(), color=colour, lw=width)
        if self.floor:
            axis.axhline(self.floor, ls="--", color="0.4", lw=1, label="noise floor")
            axis.legend(frameon=False)
        for end in self.stages[:-1]:
            axis.axvline(end + 0.5, color="0.8", lw=0.8)
        axis.set(xlabel="iteration", ylabel="loss", yscale="log" if bool((self.history > 0).any()) else "linear")
        axis.grid(alpha=0.25)
        return keep_figure(figure, file)
