"""Progress of a run on standard error: a bar with rate and estimate on a terminal, otherwise plain lines."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Watch:
    """Shows how many cases are done; a context.

    Args:
        name: Name of the experiment.
        total: Number of cases.
        kept: Number of those that were solved before.
        shown: Whether to show anything.
    """

    def __init__(self, name: str, total: int, kept: int, shown: bool = True) -> None:
        self.name, self.total, self.kept, self.done, self.shown = name, total, kept, kept, shown
        self.begin = time.perf_counter()
        console = Console(stderr=True)
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
        what = TextColumn("{task.description}")
        self.bar = Progress(what, *columns, console=console, transient=True) if shown and console.is_terminal else None

    def __enter__(self) -> Watch:
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task(self.name, total=self.total, completed=self.kept, rate="")
        elif self.kept:
            self._say(f"{self.kept} of {self.total} cases were solved before")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()

    def finished(self, case: str, seconds: float, failed: bool) -> None:
        """Count a case."""
        self.done += 1
        passed = time.perf_counter() - self.begin
        rate = (self.done - self.kept) / passed
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, rate=f"{60 * rate:.3g}/min")
            return
        left = (self.total - self.done) / rate
        how = "failed after" if failed else "took"
        rest = f"; {60 * rate:.3g} cases/min, about {left:.0f} s left" if self.done < self.total else ""
        self._say(f"{self.done}/{self.total} {case} {how} {seconds:.1f} s{rest}")

    def _say(self, text: str) -> None:
        if self.shown:
            print(f"{self.name}: [{time.perf_counter() - self.begin:.0f} s] {text}", file=sys.stderr, flush=True)
