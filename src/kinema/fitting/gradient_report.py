"""The result of `check_gradient`: data, a table, a figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from kinema.fitting.figures import keep_figure, new_figure

JUMP, KINK = "jump", "kink"
NOT_FINITE, WRONG, SECANT, RAMP, EXPLOSION, NOISE, COARSE = (
    "not finite",
    "wrong gradient",
    "secant",
    "ramp",
    "explosion",
    "noise",
    "too few samples",
)
HARMLESS = (KINK, COARSE)


@dataclass(frozen=True)
class Switch:
    """A point at which the loss jumps, or its slope does.

    Attributes:
        kind: "jump" or "kink".
        at: Position along the direction from x.
        within: Uncertainty of that position.
        size: For a jump, the rise of the loss; for a kink, the rise of the slope.
        step: For a jump, the time step in which the states of its two sides diverge; None without a path.
        time: For a jump, the end of that step [s]; None if the path has no times.
        where: For a jump, the joint or soft matter whose state diverges most.
    """

    kind: str
    at: float
    within: float
    size: float
    step: int | None = None
    time: float | None = None
    where: str | None = None


@dataclass(frozen=True)
class Line:
    """Measurements along one direction.

    Attributes:
        direction: Unit vector, shaped like x.
        name: Name of the direction.
        s: Positions of samples along the direction from x, shape (samples,).
        values: Loss at the samples.
        slopes: Directional derivatives at the samples.
        gradient: Directional derivative at x.
        difference: Central difference at x.
        difference_error: Its error estimate, from noise and from differences over other lengths.
        secant: (f(end) - f(start)) / width.
        mean_gradient: Mean of the slopes over the window (trapezoidal rule).
        sampling_error: Error estimate of that mean: its difference to the mean of every second sample.
        noise: Standard deviation of the loss that no change of x explains.
        switches: The largest jumps and kinks, in order of position.
        unexplained: Number of neighbours whose difference does not fit the gradients at both.
        lost: Number of samples at which the loss or its gradient is not finite.
    """

    direction: Tensor
    name: str
    s: Tensor
    values: Tensor
    slopes: Tensor
    gradient: float
    difference: float
    difference_error: float
    secant: float
    mean_gradient: float
    sampling_error: float
    noise: float
    switches: tuple[Switch, ...]
    unexplained: int
    lost: int

    @property
    def jumps(self) -> tuple[Switch, ...]:
        """The jumps among the switches."""
        return tuple(s for s in self.switches if s.kind == JUMP)

    @property
    def kinks(self) -> tuple[Switch, ...]:
        """The kinks among the switches."""
        return tuple(s for s in self.switches if s.kind == KINK)

    @property
    def scale(self) -> float:
        """Reference for errors of means: the secant, or a tenth of the mean size of slopes, or noise."""
        sizes = self.slopes[self.slopes.isfinite()].abs()
        noise = 8 * self.noise / float(self.s[-1] - self.s[0])
        return max(abs(self.secant), 0.1 * float(sizes.mean()) if len(sizes) else 0.0, noise)

    @property
    def secant_error(self) -> float:
        """|mean gradient - secant|, relative."""
        return relative(abs(self.mean_gradient - self.secant), self.scale)


@dataclass(frozen=True)
class Growth:
    """Size of the gradient at x backwards in time.

    Attributes:
        norms: Norms of the derivative with respect to the whole state at times 0 ... steps, shape (steps + 1,).
        where: For each of these, the joint or soft matter with the largest part.
        largest: Step at whose start the norm is largest.
        steepest: Step over which the norm grows most, backwards.
        factor: The largest norm over the norm at the end.
        dt: Time step [s]; None if the path has no times.
    """

    norms: Tensor
    where: tuple[str, ...]
    largest: int
    steepest: int
    factor: float
    dt: float | None


@dataclass(frozen=True)
class Finding:
    """A finding: its kind, a description, and advice."""

    kind: str
    what: str
    advice: str


@dataclass(frozen=True)
class GradientCheck:
    """The result of `check_gradient`. Print it for a table.

    Attributes:
        x: The point.
        window: Half the width of the window.
        lines: Measurements along each direction.
        growth: Size of the gradient backwards in time; None without a path.
        findings: Problems, and remarks.
    """

    x: Tensor
    window: float
    lines: tuple[Line, ...]
    growth: Growth | None
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there are no findings except kinks and too few samples."""
        return all(found.kind in HARMLESS for found in self.findings)

    def __str__(self) -> str:
        columns = ("along", "gradient", "difference", "mean gradient", "secant", "error", "sampling", "jumps", "kinks")
        rows = [_row(line) for line in self.lines]
        title = f"gradient over +-{self.window:.4g}: {'ok' if self.ok else 'see the findings'}"
        notes = [f"{found.kind}: {found.what}. {found.advice}" for found in self.findings]
        if self.growth is not None:
            notes.insert(0, _grown(self.growth))
        console = Console()
        if not console.is_terminal:
            widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
            lines = ["  " + "  ".join(map(str.ljust, line, widths)).rstrip() for line in (columns, *rows)]
            return "\n".join([title, *lines, *(f"  {note}" for note in notes)])
        table = Table(*columns, title=title, title_justify="left")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        with console.capture() as shown:
            console.print(table, *(Text(note) for note in notes), sep="\n")
        return shown.get().rstrip("\n")

    def plot(self, file: str | Path) -> Path:
        """Draw the loss over the window, with gradients as tangents and jumps marked.

        Args:
            file: File name; its suffix is the format.

        Returns:
            The file.

        Raises:
            InputError: matplotlib is missing.
            StorageError: The file cannot be written.
        """
        panels = len(self.lines) + (self.growth is not None)
        columns = min(panels, 3)
        height = math.ceil(panels / columns)
        figure = new_figure(4.6 * columns, 3.4 * height)
        axes = [figure.add_subplot(height, columns, i + 1) for i in range(panels)]
        for line, axis in zip(self.lines, axes, strict=False):
            draw_line(axis, line)
        if self.growth is not None:
            axes[-1].semilogy(self.growth.norms.clamp(min=1e-300), color="#33679f")
            axes[-1].set(title="norm of the gradient by state", xlabel="step")
            axes[-1].grid(alpha=0.25)
        return keep_figure(figure, file)


def relative(error: float, scale: float) -> float:
    """An error relative to a scale; 0 if both are zero."""
    return error / scale if scale > 0 else 0.0 if error == 0 else math.inf


def _row(line: Line) -> tuple[str, ...]:
    count = f"{len(line.jumps)}" + (f" ({line.unexplained} gaps)" if line.unexplained else "")
    return (
        line.name,
        *(f"{number:.5g}" for number in (line.gradient, line.difference, line.mean_gradient, line.secant)),
        f"{line.secant_error:.1%}",
        f"{relative(line.sampling_error, line.scale):.1%}",
        count,
        str(len(line.kinks)),
    )


def _grown(growth: Growth) -> str:
    when = "" if growth.dt is None else f" ({growth.dt * growth.largest:.4g} s)"
    return (
        f"backwards in time the gradient grows by a factor of {growth.factor:.3g}; it is largest at step "
        f"{growth.largest}{when} in {growth.where[growth.largest]}, and grows most over step {growth.steepest}"
    )


def draw_line(axis: object, line: Line) -> None:
    """Plot the loss along a direction into axes of matplotlib, with tangents at about every second sample."""
    s, values, slopes = line.s, line.values, line.slopes
    half = 0.4 * float(s[-1] - s[0]) / min(len(s) - 1, 32)
    draw: Sequence[int] = range(0, len(s), max(1, (len(s) - 1) // 32))
    for label, i in zip(["gradients", *[None] * len(draw)], draw, strict=False):
        ends = [float(s[i]) - half, float(s[i]) + half]
        rise = half * float(slopes[i])
        heights = [float(values[i]) - rise, float(values[i]) + rise]
        axis.plot(ends, heights, color="#d96a3f", lw=1.6, label=label)  # type: ignore[attr-defined]
    axis.plot(s, values, ".", ms=3.5, color="#33679f", label="loss", zorder=3)  # type: ignore[attr-defined]
    for label, jump in zip(["jumps", *[None] * len(line.switches)], line.jumps, strict=False):
        axis.axvline(jump.at, ls="--", lw=0.9, color="0.35", label=label)  # type: ignore[attr-defined]
    low, high = float(values[values.isfinite()].min()), float(values[values.isfinite()].max())
    room = 0.15 * (high - low) or 1.0
    title = f"mean gradient {line.mean_gradient:.3g}, secant {line.secant:.3g}"
    axis.set(title=title, xlabel=f"along {line.name}", ylim=(low - room, high + room))  # type: ignore[attr-defined]
    axis.grid(alpha=0.25)  # type: ignore[attr-defined]
    axis.locator_params(axis="x", nbins=5)  # type: ignore[attr-defined]
    axis.legend(frameon=False, fontsize=8)  # type: ignore[attr-defined]
