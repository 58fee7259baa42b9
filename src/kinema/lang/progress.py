"""Progress of long native calls: a bar on a terminal, a line now and then elsewhere; and Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

DELAY = 1.0  # seconds before anything is shown
PERIOD = 10.0  # seconds between plain lines


class Progress:
    """A poll function for the runtime. Called every 50 ms in the calling thread; an interrupt cancels the call."""

    def __init__(self, what: str, steps: int, show: bool | Callable[[int, int], None]) -> None:
        self.what, self.steps, self.show = what, steps, show
        self.begin = time.monotonic()
        self.last = self.begin
        self.bar: Any = None
        self.error: BaseException | None = None

    def __call__(self, done: int) -> int:
        """Report `done` steps; non-zero cancels."""
        try:
            if callable(self.show):
                self.show(done, self.steps)
            elif self.show and time.monotonic() - self.begin > DELAY:
                self._draw(done)
            return 0
        except BaseException as error:  # a callback of native code must not raise: it is raised after the call
            self.error = error
            return 1

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _draw(self, done: int) -> None:
        if sys.stderr.isatty():
            self._draw_bar(done)
        elif time.monotonic() - self.last > PERIOD:
            self.last = time.monotonic()
            rate = done / max(self.last - self.begin, 1e-9)
            left = (self.steps - done) / max(rate, 1e-9)
            print(f"{self.what}: {done}/{self.steps} steps, {rate:.0f}/s, {left:.0f} s left", file=sys.stderr, flush=True)

    def _draw_bar(self, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        if self.bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}/s"), TimeRemainingColumn())
            self.bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task(self.what, total=self.steps, rate="")
        rate = done / max(time.monotonic() - self.begin, 1e-9)
        self.bar.update(self.task, completed=done, rate=f"{rate:,.0f}")
