"""Progress of long native calls: a bar on a terminal, an occasional line elsewhere; and Ctrl-C."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

from kinema.lang.runtime import native

Show = bool | Callable[[int, int], None]  # whether to show progress, or a function of (steps done, steps)

DELAY = 1.0  # seconds before the first output
PERIOD = 10.0  # seconds between plain lines


class Progress:
    """Watches native calls, one at a time.

    The runtime calls `poll` every 50 ms in the calling thread. An exception there, from Ctrl-C or the user's function,
    cancels the call; `error` holds it until the call returns, to be raised then.
    """

    def __init__(self, what: str, steps: int, show: Show, unit: str = "steps") -> None:
        self.unit = unit
        self.bar: Any = None
        self.error: BaseException | None = None
        polls = self._polls()
        next(polls)
        self.poll: Callable[[int], int] = polls.send
        self._callback = native.Poll(self.poll)
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0  # of `poll` for the runtime
        self.show: Show = False
        self.start(what, steps, show)

    def start(self, what: str, steps: int, show: Show) -> None:
        """Start to watch another call."""
        self.what, self.steps, self.show = what, steps, show
        self.begin = self.last = time.monotonic()

    def _polls(self) -> Generator[int, int, None]:
        """Receive the number of steps done; yield 0 to go on or 1 to cancel.

        A generator, because Python handles signals on entry to a function, where no `try` of a plain callback would
        catch them; Python enters a generator inside its `try`.
        """
        try:
            done = yield 0
            while True:
                self._report(done)
                done = yield 0
        except GeneratorExit:
            raise
        except BaseException as error:  # native code cannot propagate it
            self.error = error
        while True:
            yield 1

    def _report(self, done: int) -> None:
        if callable(self.show):
            self.show(done, self.steps)
        elif self.show and time.monotonic() - self.begin > DELAY and sys.stderr is not None:
            try:
                self._draw(done)
            except (OSError, ValueError):  # standard error is closed: no reason to stop
                self.show = False

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
            line = f"{self.what}: {done}/{self.steps} {self.unit}, {rate:.0f}/s, {left:.0f} s left"
            print(line, file=sys.stderr, flush=True)

    def _draw_bar(self, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        if self.bar is None:
            counts = (MofNCompleteColumn(), TextColumn("{task.fields[rate]}/s"), TimeRemainingColumn())
            columns = (TextColumn("{task.description}"), BarColumn(), *counts)
            self.bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task(self.what, total=self.steps, rate="")
        rate = done / max(time.monotonic() - self.begin, 1e-9)
        self.bar.update(self.task, completed=done, rate=f"{rate:,.0f}")


_idle: list[Progress] = []  # construction takes longer than a small rollout; list.pop and append are thread-safe


def begin(what: str, steps: int, show: Show) -> Progress:
    """Watch a native call until `end`; nested calls and other threads get their own watchers."""
    try:
        found = _idle.pop()
    except IndexError:
        return Progress(what, steps, show)
    if show:
        found.start(what, steps, show)
    return found


def end(watcher: Progress) -> None:
    """Stop watching: the native call has returned."""
    if watcher.bar is not None:
        watcher.close()
    if watcher.error is None:  # otherwise it would cancel the next call too
        watcher.show = False
        _idle.append(watcher)
