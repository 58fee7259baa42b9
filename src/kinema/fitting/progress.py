"""Progress of iterations: a bar on a terminal after a second, an occasional line elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

DELAY = 1.0  # seconds before the first output
PERIOD = 10.0  # seconds between plain lines


class Progress:
    """Shows iterations with their rate, an estimate and a note, on standard error."""

    def __init__(self, what: str, total: int, shown: bool) -> None:
        self.what, self.total, self.shown = what, total, shown
        self.begin = self.last = time.monotonic()
        self.bar: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def show(self, done: int, note: str) -> None:
        """Report iterations done so far."""
        now = time.monotonic()
        if not self.shown or sys.stderr is None or now - self.begin < DELAY:
            return
        rate = done / (now - self.begin)
        if sys.stderr.isatty():
            self._draw(done, f"{rate:.1f}/s  {note}")
        elif now - self.last > PERIOD:
            self.last = now
            left = (self.total - done) / max(rate, 1e-9)
            line = f"{self.what}: {done}/{self.total} iterations, {note}, {rate:.2f}/s, at most {left:.0f} s left"
            print(line, file=sys.stderr, flush=True)

    def _draw(self, done: int, note: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        if self.bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self.bar = Bar(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task(self.what, total=self.total, note="")
        self.bar.update(self.task, completed=done, note=note)
