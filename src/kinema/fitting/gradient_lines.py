"""A loss and its gradient along a line through a point: samples, differences, secants, jumps and kinks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kinema.errors import InputError, SimulationError
from kinema.fitting.gradient_report import JUMP, KINK, Line, Switch
from kinema.simulation.trajectory import Trajectory

Path = Trajectory | Sequence[Tensor]
LENGTHS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # of central differences, relative to the window
NEAR = 7  # samples for noise estimation
HALVINGS, MOST = 28, 8  # bisections of an interval with a switch; most switches to locate

# -- samples ----------------------------------------------------------------------------------------------------------


class Sampler:
    """Values and gradients of a loss at many points, in float64; NaN where evaluation fails."""

    def __init__(self, f: Callable[[Tensor], Any], x: Tensor, batched: bool) -> None:
        self.f, self.x, self.batched = f, x, batched
        self.rounding = 0.0  # relative rounding error of the loss
        # Smallest distance between distinguishable points near x.
        self.least = 8 * torch.finfo(x.dtype).eps * max(float(x.abs().max()), torch.finfo(x.dtype).tiny)

    def points(self, way: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Points along a direction, and their rounded positions on it."""
        shape = (-1, *[1] * self.x.ndim)
        points = (self.x.double() + s.reshape(shape) * way.double()).to(self.x.dtype)
        return points, ((points.double() - self.x.double()) * way.double()).reshape(len(points), -1).sum(1)

    def along(self, way: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Samples along a direction: positions, values, slopes."""
        points, at = self.points(way, s)
        values, gradients = self.many(points)
        return at, values, (gradients * way.double()).reshape(len(points), -1).sum(1)

    def many(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Values and gradients, shapes (n,) and (n, *x.shape)."""
        if self.batched and len(points) > 1:
            try:
                return self._batch(points)
            except SimulationError:
                pass  # one by one, to discard only samples that fail
        values, gradients = [], []
        for point in points:
            try:
                value, gradient = self._batch(point[None])
            except SimulationError:
                value, gradient = (
                    torch.full(shape, math.nan, dtype=torch.float64) for shape in ((1,), (1, *point.shape))
                )
            values.append(value)
            gradients.append(gradient)
        return torch.cat(values), torch.cat(gradients)

    def _batch(self, points: Tensor) -> tuple[Tensor, Tensor]:
        leaf = points.clone().requires_grad_()
        loss, _ = self.call(leaf)
        if not loss.requires_grad:
            return loss.detach().double(), torch.zeros_like(points, dtype=torch.float64)
        (gradient,) = torch.autograd.grad(loss.sum(), leaf, allow_unused=True)
        return loss.detach().double(), torch.zeros_like(points).double() if gradient is None else gradient.double()

    def call(self, points: Tensor) -> tuple[Tensor, Path | None]:
        """Losses at points (at a single point if f is not batched), and the path (of a batch of worlds if it is)."""
        if not self.batched and len(points) != 1:
            raise AssertionError("one by one")
        found = self.f(points if self.batched else points[0])
        path = None
        if isinstance(found, tuple):
            if len(found) != 2:
                raise InputError(
                    "f returns something else", got=f"{len(found)} values", expected="loss, or loss and path"
                )
            found, path = found
            if not isinstance(path, Trajectory | list | tuple):
                expected = "a Trajectory, or a list of states"
                raise InputError("the path of f has the wrong type", got=type(path).__name__, expected=expected)
        wanted = len(points) if self.batched else 1
        if not isinstance(found, Tensor) or found.numel() != wanted or not found.is_floating_point():
            got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            expected = f"a tensor of shape ({wanted},), one loss for each point" if self.batched else "one number"
            raise InputError("f returns something else", got=got, expected=expected, fix="check batched=")
        self.rounding = 0.5 * torch.finfo(found.dtype).eps
        return found.reshape(-1), path

    def states(self, points: Tensor) -> tuple[list[dict[str, Tensor]], Path] | None:
        """States of the path for each point: by name, shape (times, ...); None without a path."""
        found: list[dict[str, Tensor]] = []
        path: Path | None = None
        with torch.no_grad():
            for point in points:
                _, path = self.call(point[None])
                if path is None:
                    return None
                found.append(_states_of(path))
        assert path is not None
        return found, path


def _states_of(path: Path) -> dict[str, Tensor]:
    """The states of one world over time."""
    if isinstance(path, Trajectory):
        whole, batch = path.states.replace(time=None).tensors if path.states is not None else {}, path.status.ndim
        return {n: t.detach().flatten(0, batch)[: t.shape[batch]].flatten(1) for n, t in whole.items()}
    return {"state": torch.stack([t.detach().flatten() for t in path])}


def name_of(path: Path, part: str, index: int) -> str:
    """The joint or soft matter that an entry of the state belongs to."""
    model = path.model if isinstance(path, Trajectory) else None
    if model is None:
        return f"{part}[{index}]"
    if part in ("q", "v"):
        start = model.tree.q_start if part == "q" else model.tree.v_start
        return f"joint {model.tree.joints[int((start <= index).sum()) - 1]}"
    particle = index // 3
    return f"{model.matter.names[int(model.matter.owner[particle])]}, particle {particle}"


# -- one direction ----------------------------------------------------------------------------------------------------


def look_along(sampler: Sampler, way: Tensor, name: str, window: float, samples: int) -> Line:
    """All measurements along one direction, with the samples as one batch."""
    lengths = torch.tensor([max(share * window, 8 * sampler.least) for share in LENGTHS], dtype=torch.float64)
    spacing = max(1e-7 * window, 4 * sampler.least)
    near = spacing * (torch.arange(NEAR, dtype=torch.float64) - NEAR // 2)
    grid = torch.linspace(-window, window, samples, dtype=torch.float64)
    s, values, slopes = sampler.along(way, torch.cat([near, lengths, -lengths, grid]))
    noise = max(_noise(values[:NEAR]), sampler.rounding * float(torch.nan_to_num(values).abs().max()))
    ends = s[NEAR:-samples].reshape(2, -1), values[NEAR:-samples].reshape(2, -1)
    difference, error = _difference(*ends, noise)
    gradient = float(slopes[NEAR // 2])
    s, values, slopes = s[-samples:], values[-samples:], slopes[-samples:]
    secant, mean = means(s, values, slopes)
    _, coarse = means(s[::2], values[::2], slopes[::2])
    gaps, unexplained = _gaps(s, values, slopes, noise)
    switches = _locate(sampler, way, s, values, slopes, gaps, noise, window)
    lost = int((~(values.isfinite() & slopes.isfinite())).sum())
    sampling = abs(mean - coarse)
    found = gradient, difference, error, secant, mean, sampling, noise, switches, unexplained, lost
    return Line(way, name, s, values, slopes, *found)


def _noise(values: Tensor) -> float:
    """Standard deviation of random differences between neighbours, from difference tables [More and Wild 2011]."""
    found, table = [], values
    for order in range(1, 5):
        table = table[1:] - table[:-1]
        weight = math.factorial(order) ** 2 / math.factorial(2 * order)
        found.append(math.sqrt(weight * float(table.square().mean())))
    least = min(found[1:])
    return least if math.isfinite(least) else 0.0


def _difference(s: Tensor, values: Tensor, noise: float) -> tuple[float, float]:
    """The central difference with the smallest error estimate, and that estimate."""
    slopes = (values[0] - values[1]) / (s[0] - s[1])
    rounding = 2 * noise / (s[0] - s[1])
    cut = (slopes[:-1] - slopes[1:]).abs() + rounding[:-1]
    best = int(torch.nan_to_num(cut, nan=math.inf).argmin())
    return float(slopes[best]), float(cut[best])


def means(s: Tensor, values: Tensor, slopes: Tensor) -> tuple[float, float]:
    """Secant and mean gradient over all pairs of finite neighbours."""
    wide = s[1:] - s[:-1]
    rises, areas = values[1:] - values[:-1], 0.5 * wide * (slopes[1:] + slopes[:-1])
    fine = rises.isfinite() & areas.isfinite()
    width = float(wide[fine].sum())
    return (float(rises[fine].sum()) / width, float(areas[fine].sum()) / width) if width else (math.nan, math.nan)


def _gaps(s: Tensor, values: Tensor, slopes: Tensor, noise: float) -> tuple[Tensor, int]:
    """Mismatch between differences of neighbours and their gradients, and how often it exceeds what curvature allows.

    Where slopes go from a to b without a jump, f rises by h (a + b) / 2, give or take h |b - a| / 2 if they do so
    monotonically; the neighbours' changes allow for a bend between the samples.
    """
    wide = s[1:] - s[:-1]
    gaps = torch.nan_to_num(values[1:] - values[:-1] - 0.5 * wide * (slopes[1:] + slopes[:-1]), posinf=0.0, neginf=0.0)
    bend = torch.nan_to_num((slopes[1:] - slopes[:-1]).abs(), posinf=0.0)
    padded = torch.cat([bend[:1], bend, bend[-1:]])
    allowed = 0.5 * wide * (padded[:-2] + padded[1:-1] + padded[2:]) + 8 * noise
    return gaps, int((gaps.abs() > allowed + 1e-9 * gaps.abs().max()).sum())


def _locate(
    sampler: Sampler, way: Tensor, s: Tensor, values: Tensor, slopes: Tensor, gaps: Tensor, noise: float, window: float
) -> tuple[Switch, ...]:
    """Bisect the neighbours with the largest mismatch until a jump, a kink, or nothing is left."""
    bend = torch.nan_to_num((slopes[1:] - slopes[:-1]).abs(), posinf=0.0)
    rises = torch.nan_to_num((values[1:] - values[:-1]).abs(), posinf=0.0)
    wide = s[1:] - s[:-1]
    odd = (gaps.abs() > 16 * noise) & (gaps.abs() > 2e-3 * rises.median() + 1e-9 * rises.max())
    odd |= bend > 10 * bend.median() + 1e-3 * slopes[slopes.isfinite()].abs().max() if bool(bend.any()) else odd
    score = torch.where(odd, gaps.abs() + 0.25 * wide * bend, torch.zeros_like(gaps))
    order = score.argsort(descending=True)
    left = order[score[order] > 0][:MOST]
    if not len(left):
        return ()
    low, high = (torch.stack([t[left + i] for t in (s, values, slopes)]) for i in (0, 1))
    first = _score(low, high)
    smooth = torch.zeros(len(left), dtype=torch.bool)
    for number in range(1, HALVINGS + 1):
        open_ = ~smooth & (high[0] - low[0] > max(1e-9 * window, 2 * sampler.least))
        if not bool(open_.any()):
            break
        middle = torch.full_like(low, math.nan)
        middle[:, open_] = torch.stack(sampler.along(way, 0.5 * (low[0] + high[0])[open_]))
        open_ &= middle.isfinite().all(0) & (middle[0] > low[0]) & (middle[0] < high[0])
        upper = _score(middle, high) > _score(low, middle)
        low = torch.where(open_ & upper, middle, low)
        high = torch.where(open_ & ~upper, middle, high)
        # A kink's mismatch halves with each bisection, that of smooth curvature quarters.
        smooth |= (number >= 4) & (_score(low, high) < 3.0**-number * first)
    found = [_switch(low[:, i], high[:, i], noise) for i in range(len(left)) if not smooth[i]]
    kept = sorted((switch for switch in found if switch is not None), key=lambda switch: switch.at)
    return tuple(_traced(sampler, way, switch) for switch in kept)


def _score(low: Tensor, high: Tensor) -> Tensor:
    """Mismatch of the ends of intervals (position, value, slope) with a smooth curve."""
    wide = high[0] - low[0]
    gap = high[1] - low[1] - 0.5 * wide * (high[2] + low[2])
    return torch.nan_to_num(gap.abs() + 0.25 * wide * (high[2] - low[2]).abs())


def _switch(low: Tensor, high: Tensor, noise: float) -> Switch | None:
    """The jump or kink in a bisected interval; None if there is neither."""
    (a, f_a, g_a), (b, f_b, g_b) = low.tolist(), high.tolist()
    gap, steepest = f_b - f_a - 0.5 * (b - a) * (g_a + g_b), max(abs(g_a), abs(g_b))
    at, within = 0.5 * (a + b), 0.5 * (b - a)
    if abs(gap) > 16 * noise and abs(gap) > 10 * (b - a) * steepest:
        return Switch(JUMP, at, within, f_b - f_a)
    if abs(g_b - g_a) > 1e-3 * steepest:
        return Switch(KINK, at, within, g_b - g_a)
    return None


def _traced(sampler: Sampler, way: Tensor, switch: Switch) -> Switch:
    """A jump, with the time step in which the states of its two sides diverge."""
    if switch.kind != JUMP:
        return switch
    sides = torch.tensor([switch.at - switch.within, switch.at + switch.within], dtype=torch.float64)
    try:
        found = sampler.states(sampler.points(way, sides)[0])
    except SimulationError:
        return switch
    if found is None:
        return switch
    (one, other), path = found
    apart = {n: torch.nan_to_num((one[n] - other[n]).abs()) for n in one}
    gap = torch.stack([t.amax(1) for t in apart.values()]).amax(0).double()
    floor = max(float(gap.max()) * 1e-9, 1e-300)
    before = torch.cummax(gap, 0).values.clamp(min=floor)
    step = int((gap[1:] / before[:-1]).argmax())
    name = max(apart, key=lambda n: float(apart[n][step + 1].max()))
    time = (step + 1) * path.dt if isinstance(path, Trajectory) else None
    where = name_of(path, name, int(apart[name][step + 1].argmax()))
    return Switch(JUMP, switch.at, switch.within, switch.size, step, time, where)
