"""Progress of planning: what an iteration found, and how it is shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

Show = bool | Callable[[int, float], None]

DELAY, PERIOD = 1.0, 10.0  # seconds before the first output, and between plain lines


class Found(NamedTuple):
    """The best plan after an iteration.

    Attributes:
        knots: Controls of each knot, shape (knots, m).
        cost: Its cost.
        reason: Why this iteration is the last one; None if it is not.
        converged: Whether that is because nothing better is near.
    """

    knots: Tensor
    cost: float
    reason: str | None = None
    converged: bool = False


class Meter:
    """Shows iterations and cost: a bar on a terminal, sometimes a line elsewhere, or a call of the user's function."""

    def __init__(self, what: str, iterations: int, show: Show) -> None:
        self.what, self.iterations, self.show = what, iterations, show
        self.begin = self.last = time.monotonic()
        self.bar: Any = None

    def update(self, iteration: int, cost: float) -> None:
        """Report an iteration."""
        if callable(self.show):
            self.show(iteration, cost)
        elif self.show and sys.stderr is not None and time.monotonic() - self.begin > DELAY:
            try:
                self._draw(iteration, cost)
            except (OSError, ValueError):  # standard error is closed: no reason to stop
                self.show = False

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _draw(self, iteration: int, cost: float) -> None:
        if not sys.stderr.isatty():
            if time.monotonic() - self.last > PERIOD:
                self.last = time.monotonic()
                print(f"{self.what}: {iteration}/{self.iterations} iterations, cost {cost:.5g}", file=sys.stderr)
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        if self.bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            shown = (TextColumn("cost {task.fields[cost]}"), TimeRemainingColumn())
            self.bar = Bar(*columns, *shown, console=Console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task(self.what, total=self.iterations, cost="")
        self.bar.update(self.task, completed=iteration, cost=f"{cost:.5g}")
