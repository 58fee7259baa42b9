"""`check_gradient`: whether the gradient of a loss is the slope that an optimiser meets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kinema.errors import InputError, SimulationError
from kinema.fitting.gradient_lines import Sampler, look_along
from kinema.fitting.gradient_report import (
    COARSE,
    EXPLOSION,
    JUMP,
    KINK,
    NOISE,
    NOT_FINITE,
    RAMP,
    SECANT,
    WRONG,
    Finding,
    GradientCheck,
    Growth,
    Line,
    Switch,
    relative,
)
from kinema.fitting.growth import growth_of

FEW, RANDOM = 4, 3  # with up to FEW coordinates, each is a direction; otherwise RANDOM random ones
TOLERANCE = 0.02  # of mean gradients
NARROW = 5.0  # a kink larger than any slope between samples by this factor is the side of a ramp
GROWN, STEEP = 1e4, 100.0  # factors above which gradients explode: backwards in time, over the curve


def check_gradient(
    f: Callable[[Tensor], Any],
    x: Tensor,
    *,
    window: float,
    batched: bool = False,
    directions: Tensor | None = None,
    samples: int = 65,
    seed: int = 0,
) -> GradientCheck:
    """Compare the gradient of a loss with central differences, and with secants over a window.

    A central difference over a tiny step sees the same side of every switch as the gradient: it detects wrong
    derivatives. Over a window, the mean of the gradients equals the secant, (f(end) - f(start)) / width, unless the
    loss jumps within it. Bisection locates jumps and, if f returns a path, the time step that causes them.

    Args:
        f: A loss: takes a tensor like x and returns a scalar with a gradient, or a pair of that and a path: the
            `Trajectory` of the simulation, or a list of tensors, the states at successive times.
        x: The point, float64 or float32.
        window: Half the width of the window, in the units of x: as far as an optimiser may go in a few iterations.
        batched: f takes n points at once, shape (n, *x.shape), and returns n losses, and a path of n worlds: then all
            samples are one native call.
        directions: Directions from x, shape (n, *x.shape); by default all coordinates if x has at most 4, otherwise 3
            random directions.
        samples: Number of samples along each direction; odd, at least 9.
        seed: Seed of random directions.

    Returns:
        A report; `print` it for a table, `plot` it for a figure.

    Gradients:
        None: the report holds plain numbers. f is differentiated once at each sample.

    Raises:
        InputError: x, window, directions or samples are not usable, or f returns something else. Samples at which f is
            not finite, or raises SimulationError, are counted instead.
    """
    if not isinstance(x, Tensor) or x.dtype not in (torch.float64, torch.float32) or not x.numel():
        got = f"{x.dtype}, shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise InputError("x is not usable", got=got, expected="a nonempty tensor of float64 or float32")
    if not bool(x.isfinite().all()):
        raise InputError("x is not finite", got=x.detach(), expected="finite numbers")
    if isinstance(window, bool) or not isinstance(window, int | float) or not 0 < window < math.inf:
        raise InputError("window is not usable", got=repr(window), expected="half the width of the window, positive")
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 9 or samples % 2 == 0:
        raise InputError("samples is not usable", got=repr(samples), expected="an odd number, at least 9")
    x = x.detach()
    least = 64 * torch.finfo(x.dtype).eps * float(x.abs().max())
    if window / samples < least:
        expected, fix = f"more than {least * samples:.1e}", "a larger window, or float64"
        raise InputError("the window is too small for the precision of x", got=window, expected=expected, fix=fix)
    sampler = Sampler(f, x, batched)
    ways, names = _directions(x, directions, seed)
    growth = _growth(sampler)
    lines = tuple(look_along(sampler, way, name, window, samples) for way, name in zip(ways, names, strict=True))
    findings = [found for line in lines for found in _judge(line, window, x.dtype)]
    if growth is not None and not growth.factor < GROWN:
        what = f"backwards in time the gradient grows by {growth.factor:.1e}, most over step {growth.steepest}, "
        what += f"and is largest in {growth.where[growth.largest]}"
        advice = "Let the contact solver converge, shorten the horizon or cut it into pieces, or add damping there"
        findings.append(Finding(EXPLOSION, what, advice))
    return GradientCheck(x, float(window), lines, growth, tuple(findings))


def _directions(x: Tensor, given: Tensor | None, seed: int) -> tuple[list[Tensor], list[str]]:
    """Unit vectors shaped like x, and their names."""
    if given is not None:
        if not isinstance(given, Tensor) or given.shape[1:] != x.shape or not len(given) or given.ndim != x.ndim + 1:
            got = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
            expected = f"({', '.join(map(str, ('n', *x.shape)))})"
            raise InputError("directions have the wrong shape", got=got, expected=expected)
        sizes = given.double().reshape(len(given), -1).norm(dim=1)
        if not bool(((sizes > 0) & sizes.isfinite()).all()):
            raise InputError("directions are not usable", got=given, expected="finite, none of them zero")
        ways = [d.double() / n for d, n in zip(given, sizes, strict=True)]
        return ways, [f"direction {i}" for i in range(len(ways))]
    if x.numel() <= FEW:
        ways = list(torch.eye(x.numel(), dtype=torch.float64).reshape(-1, *x.shape))
        places = itertools.product(*map(range, x.shape))
        return ways, [f"x[{', '.join(map(str, place))}]" if place else "x" for place in places]
    drawn = torch.randn(RANDOM, x.numel(), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    drawn = drawn / drawn.norm(dim=1, keepdim=True)
    return list(drawn.reshape(-1, *x.shape)), [f"random {i}" for i in range(RANDOM)]


def _growth(sampler: Sampler) -> Growth | None:
    """Growth of the cotangents of the states backwards in time, at x."""
    leaf = sampler.x[None].clone().requires_grad_()
    try:
        loss, path = sampler.call(leaf)
        return None if path is None or not loss.requires_grad else growth_of(loss.sum(), path)
    except SimulationError:
        return None


# -- findings ---------------------------------------------------------------------------------------------------------


def _judge(line: Line, window: float, dtype: torch.dtype) -> list[Finding]:
    """Findings along a direction."""
    found: list[Finding] = []
    if line.lost:
        what = f"along {line.name} {line.lost} of {len(line.s)} samples have a loss or gradient that is not finite"
        found.append(Finding(NOT_FINITE, what, "Use a shorter time step, or a smaller window"))
    error, size = abs(line.gradient - line.difference), max(abs(line.gradient), abs(line.difference))
    wrong = error > 4 * line.difference_error + 1e-4 * size
    if wrong:
        what = f"along {line.name} the gradient at x is {line.gradient:.5g}, a central difference {line.difference:.5g}"
        kinked = any(abs(switch.at) <= 1e-6 * window for switch in line.kinks)
        why = "Look for detached, rounded or in-place operations on the way"
        found.append(Finding(WRONG, what, "x lies on a kink: the gradient is one-sided" if kinked else why))
    if line.jumps:
        largest = max(line.jumps, key=lambda jump: abs(jump.size))
        found.append(Finding(JUMP, _of_jump(line, largest), _advise(largest)))
    steps = (line.values[1:] - line.values[:-1]).abs() / (line.s[1:] - line.s[:-1])
    steepest = float(torch.nan_to_num(steps, posinf=0.0).max())
    steep = [kink for kink in line.kinks if abs(kink.size) > NARROW * steepest]
    if steep:
        largest = max(steep, key=lambda kink: abs(kink.size))
        what = f"along {line.name} the slope reaches {abs(largest.size):.3g} in a strip at {largest.at:.6g}, between "
        what += f"samples no more than {steepest:.3g}"
        advice = "Gradients at other points miss it: let the event act from its own time on, not for whole steps"
        found.append(Finding(RAMP, what, advice))
    missed = abs(line.mean_gradient - line.secant)
    if line.secant_error > TOLERANCE and missed > line.sampling_error + 8 * line.noise / window:
        what = f"along {line.name} the mean gradient is {line.mean_gradient:.4g} and the secant {line.secant:.4g}"
        advice = "The loss jumps on the way: an optimiser that follows these gradients meets a different slope"
        if steep and not line.jumps:
            advice = "Samples miss the strips in which the loss changes: see the ramps"
        elif wrong or not (line.jumps or line.unexplained):
            advice = "Part of the computation changes the loss but has no gradient"
        found.append(Finding(SECANT, what, advice))
    largest_slope = float(torch.nan_to_num(line.slopes.abs(), posinf=0.0).max())
    if largest_slope > STEEP * steepest > 0:
        what = f"along {line.name} gradients reach {largest_slope:.1e}, and slopes between samples {steepest:.1e}"
        advice = "Let the solver converge, shorten the horizon, or add damping: single gradients are meaningless here"
        found.append(Finding(EXPLOSION, what, advice))
    moved = float(torch.nan_to_num(line.values - line.values[0]).abs().max())
    if 8 * line.noise / float(line.s[1] - line.s[0]) > 0.1 * line.scale and moved > 8 * line.noise:
        what = f"along {line.name} the loss has noise of {line.noise:.1e}, which hides differences between samples"
        advice = "Use float64" if dtype == torch.float32 else "Remove randomness from the loss, or use a larger window"
        found.append(Finding(NOISE, what, advice))
    if relative(line.sampling_error, line.scale) > 0.1:
        what = f"along {line.name} the mean gradient changes by {line.sampling_error:.2g} with half of the samples"
        found.append(Finding(COARSE, what, "Use more samples, or a smaller window"))
    mild = [kink for kink in line.kinks if kink not in steep]
    if mild:
        at = ", ".join(f"{kink.at:.4g}" for kink in mild[:4])
        what = f"along {line.name} the slope changes at {at}"
        found.append(Finding(KINK, what, "Nothing to fix: gradient descent passes kinks"))
    return found


def _of_jump(line: Line, jump: Switch) -> str:
    several = f", the largest of {len(line.jumps)} located jumps" if len(line.jumps) > 1 else ""
    what = f"along {line.name} the loss jumps by {jump.size:.3g} at {jump.at:.6g}{several}"
    if jump.step is not None:
        when = "" if jump.time is None else f" ({jump.time:.4g} s)"
        what += f", from step {jump.step}{when} on, in {jump.where}"
    return what


def _advise(jump: Switch) -> str:
    if jump.step is None:
        return "Return the path together with the loss to locate the time step"
    return (
        "An event switches in that step: let it act from its own time on, not for whole steps (contact: a law that is "
        "continuous at touch); if a body lands on another side or misses, the motion itself is discontinuous"
    )
