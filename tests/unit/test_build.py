"""Libraries that are missing are compiled side by side; an error or an interrupt ends what has not begun."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest

from kinema.errors import BuildError
from kinema.lang import build, cpu

TEXTS = [f"// {k}" for k in range(12)]


class Compiler:
    """Stands for `build.publish`: notes what is compiled and how many at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
        self.lock, self.begun, self.now, self.most = threading.Lock(), list[str](), 0, 0
        monkeypatch.setattr(cpu, "threads", lambda: threads)
        monkeypatch.setattr(build, "find", lambda key: None)
        monkeypatch.setattr(build, "publish", self.publish)
        monkeypatch.setattr(build, "_load", str)
        monkeypatch.setattr(build, "_LOADED", {})

    def publish(self, key: str, text: str, flags: list[str]) -> Path:
        with self.lock:
            self.begun.append(text)
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            self.work(text)
        finally:
            with self.lock:
                self.now -= 1
        return Path(text)

    def work(self, text: str) -> None:
        time.sleep(0.02)


@pytest.mark.parametrize("threads", [1, 3])
def test_as_many_at_a_time_as_there_are_processors(monkeypatch, threads):
    compiler = Compiler(monkeypatch, threads)
    found = build.libraries([*TEXTS, TEXTS[0]])  # the same one twice is compiled once
    assert found == [*TEXTS, TEXTS[0]]
    assert sorted(compiler.begun) == sorted(TEXTS) and compiler.most == threads


def test_after_an_error_nothing_more_is_begun(monkeypatch):
    compiler = Compiler(monkeypatch, 2)

    def work(text: str) -> None:
        if text == TEXTS[1]:
            raise BuildError("the C++ compiler failed")
        time.sleep(0.1)

    monkeypatch.setattr(compiler, "work", work)
    with pytest.raises(BuildError, match="compiler failed"):
        build.libraries(TEXTS)
    assert len(compiler.begun) <= 4 and not build._LOADED  # and not only after the first one is finished


def test_an_interrupt_ends_what_has_not_begun(monkeypatch):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    compiler = Compiler(monkeypatch, 2)

    def work(text: str) -> None:
        time.sleep(0.1)
        if text == TEXTS[0]:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # Ctrl-C, while the main thread waits

    monkeypatch.setattr(compiler, "work", work)
    try:
        with pytest.raises(KeyboardInterrupt):
            build.libraries(TEXTS)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(compiler.begun) <= 6 and compiler.now == 0 and not build._LOADED
