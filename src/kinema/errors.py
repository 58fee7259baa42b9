"""One tree of errors. Each message says what, where, got and expected, and the fix.

Every class can be built from its first argument alone and keeps the rest as attributes, so that errors survive
pickling between processes.
"""

from __future__ import annotations

from collections.abc import Sequence


def describe(
    what: str,
    *,
    where: str | None = None,
    got: object = None,
    expected: object = None,
    fix: str | None = None,
    fix_label: str = "fix",
) -> str:
    """Format one error message: a first line, then one indented line for each part that is given."""
    lines = [f"{where}: {what}" if where else what]
    for label, part in (("got", got), ("expected", expected), (fix_label, fix)):
        if part is not None:
            lines.append(f"  {label}: " + str(part).replace("\n", "\n" + " " * (len(label) + 4)))
    return "\n".join(lines)


class KinemaError(Exception):
    """Base of all errors that Kinema raises on purpose."""

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        got: object = None,
        expected: object = None,
        fix: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.got = got
        self.expected = expected
        self.fix = fix

    def __str__(self) -> str:
        return describe(self.what, where=self.where, got=self.got, expected=self.expected, fix=self.fix)


class KernelError(KinemaError):
    """A kernel uses an unsupported construct, or a supported one wrongly.

    Args:
        what: What is wrong.
        file: File of the kernel's source.
        line: Line, counted from 1.
        column: Column, counted from 1.
        source: The source line, shown with a caret under `column`.
        got: The offending value or type.
        expected: What is accepted.
        fix: What to write instead.
    """

    def __init__(
        self,
        what: str,
        *,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        source: str | None = None,
        got: object = None,
        expected: object = None,
        fix: str | None = None,
    ) -> None:
        where = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__(what, where=where or None, got=got, expected=expected, fix=fix)
        self.file = file
        self.line = line
        self.column = column
        self.source = source

    def __str__(self) -> str:
        message = describe(
            self.what, where=self.where, got=self.got, expected=self.expected, fix=self.fix, fix_label="write instead"
        )
        if self.source is None:
            return message
        # The caret keeps its place under the line when the indentation is cut off.
        text = self.source.rstrip().lstrip()
        indent = len(self.source) - len(self.source.lstrip())
        shown = f"    {text}"
        if self.column is not None:
            shown += "\n    " + " " * max(self.column - 1 - indent, 0) + "^"
        head, _, rest = message.partition("\n")
        return "\n".join(part for part in (head, shown, rest) if part)


class BuildError(KinemaError):
    """Native code could not be compiled or loaded: no compiler, a failed compile, a CPU that lacks a feature."""


class CacheError(KinemaError):
    """The cache folder of compiled code is unusable."""


class ProgramError(KinemaError):
    """A step program is inconsistent: unknown buffer, wrong role, missing adjoint."""


class InputError(KinemaError):
    """The caller passed an invalid value: wrong dtype, shape or device, out of range, not finite."""


class ModelError(KinemaError):
    """A scene, robot or model file is invalid: unphysical, inconsistent, malformed, unsupported."""


class StorageError(KinemaError):
    """A saved file cannot be written or read: missing, truncated, damaged, of another kind or version."""


class SimulationError(KinemaError):
    """Worlds became non-finite during a rollout.

    Args:
        what: What happened.
        worlds: Indices of the failed worlds in the flattened batch.
        steps: For each failed world, the first step whose end state is not finite.
        where: Where in the program, if known.
        fix: What to try.
    """

    def __init__(
        self,
        what: str,
        *,
        worlds: Sequence[int] = (),
        steps: Sequence[int] = (),
        where: str | None = None,
        fix: str | None = None,
    ) -> None:
        shown = ", ".join(f"world {w} at step {s}" for w, s in list(zip(worlds, steps, strict=False))[:5])
        more = len(worlds) - 5
        got = f"{shown} and {more} more" if more > 0 else shown or None
        super().__init__(what, where=where, got=got, fix=fix)
        self.worlds = tuple(worlds)
        self.steps = tuple(steps)


class MemoryBudgetError(KinemaError):
    """A rollout would need more memory than is available.

    Args:
        what: What does not fit.
        needed: Predicted peak [bytes].
        available: Memory that the rollout may use [bytes].
        fix: The checkpoint interval that fits.
    """

    def __init__(self, what: str, *, needed: int = 0, available: int = 0, fix: str | None = None) -> None:
        got = _mebibytes(needed) if needed else None
        expected = f"at most {_mebibytes(available)}" if needed else None
        super().__init__(what, got=got, expected=expected, fix=fix)
        self.needed = needed
        self.available = available


class LeftOutWarning(UserWarning):
    """The reader left out or changed parts of a file; one warning per file lists them."""


class UnsolvedWarning(UserWarning):
    """The solver of contacts, limits and loops did not converge in some step: motion and gradients are inaccurate."""


class StabilityWarning(UserWarning):
    """The time step is too long for something in the scene."""


class ContactWarning(UserWarning):
    """Contact is probably not as meant: a shape starts deep inside a plane, or can touch nothing."""


class EmptyImageWarning(UserWarning):
    """The camera sees nothing: all images of a batch show only the background, and their gradients are zero."""


def _mebibytes(count: int) -> str:
    """Format a number of bytes in MiB, with two significant digits below 1 MiB."""
    return f"{count / 2**20:,.1f} MiB" if count >= 2**20 else f"{count / 2**20:.2g} MiB"
