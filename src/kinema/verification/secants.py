"""Secants through impacts: over a window of one initial value, is the mean gradient the slope of the curve?

Shared by tests and `kinema verify`. All samples of a scene are one batch of worlds, in float64. A gradient that is
exact for every discrete step can still miss events that move from one step into the next: see docs/theory/switches.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kinema.fitting.gradient_lines import means
from kinema.scene.matter import Skin
from kinema.verification import secant_matter as matter
from kinema.verification import secant_scenes as rigid
from kinema.verification.secant_scenes import SPIN, TURN, VX, Curve, X, Z

LIMIT = 0.02  # of the mean gradient, relative
SHARE = 0.95  # required fraction of single gradients within a factor of 2 of the slope
COARSE = 0.1  # a sampling error above this fraction of the secant is no excuse


@dataclass(frozen=True)
class Case:
    """A scene with a window.

    Attributes:
        name: Name of the scene.
        make: Builds the curve.
        window: Half the width of the window.
        dt: The longer of two time steps [s]; the other is half of it, and a quarter is used for slopes.
        samples: Number of worlds.
        quick: Whether it is part of the quick check.
        jumps: Why the curve itself is discontinuous, or so steep that no window is fine enough; such scenes are
            measured, not judged.
        limit: Why its single gradients are not slopes, where that is known; the mean gradient is judged, and the scene
            is counted and named.
    """

    name: str
    make: Callable[[], Curve]
    window: float = 0.02
    dt: float = 2e-3
    samples: int = 129
    quick: bool = False
    jumps: str = ""
    limit: str = ""


@dataclass(frozen=True)
class Secant:
    """Measurements of a scene.

    Attributes:
        name: Name of the scene.
        dt: Time step [s].
        secant: (f(end) - f(start)) / width.
        mean: Mean of the gradients.
        sampling: Error estimate of that mean: its difference to the mean of every second sample.
        error: |mean - secant|, relative to the secant, or to a tenth of the mean size of gradients if that is more.
        single: Fraction of gradients within a factor of 2 of the slope of the curve at a shorter time step.
        jumps, limit: As in the case.
    """

    name: str
    dt: float
    secant: float
    mean: float
    sampling: float
    error: float
    single: float
    jumps: str
    limit: str = ""

    @property
    def within(self) -> bool:
        """Whether the mean gradient is correct, to 2 % or to its own sampling error."""
        return self.error <= max(LIMIT, self.sampling if self.sampling <= COARSE else 0.0)

    @property
    def right(self) -> bool:
        """Whether single gradients are slopes as well: a correct mean helps little if most are meaningless."""
        return self.within and (self.single >= SHARE or bool(self.limit))


DROP: dict[str, Any] = {"height": 0.5, "time": 0.4, "of": Z}
SLIDE: dict[str, Any] = {"height": 0.4, "time": 0.5, "of": X, "v": {VX: 1.0}}
TIMED: dict[str, Any] = {"time_of_impact": True}
RAMPS = "impacts take whole steps: right on average, but most single gradients are meaningless"
STIFF: dict[str, Any] = {"law": "compliant", "k_e": 5e3, "k_d": 50.0}
SOFT: dict[str, Any] = {"dt": 4e-4}
TILT: dict[str, Any] = {"height": 0.4, "of": TURN, "q": rigid.TILTED}
LYING: dict[str, Any] = {"height": 0.4, "time": 0.35, "of": TURN, "q": rigid.turned((0.0, 0.8, 0.1))}
ELASTIC, DAMPED = Skin(k_e=400.0, k_f=2.0, friction=0.3), Skin(k_e=400.0, k_d=2.0, k_f=2.0, friction=0.3)


def _fall(model: Callable[..., Any], words: dict[str, Any], **contact: Any) -> Callable[[], Curve]:
    return lambda: rigid.fallen(model(**contact), **words)


CASES = (
    Case("ball, e = 0, lands and slides", _fall(rigid.ball, SLIDE, friction=0.2, **TIMED), quick=True),
    Case(
        "ball, e = 0 as by default, lands and slides",
        _fall(rigid.ball, SLIDE, friction=0.2),
        samples=513,
        jumps=RAMPS,
    ),
    Case("ball, e = 0.3", _fall(rigid.ball, DROP, restitution=0.3), quick=True),
    Case("ball, e = 0.8", _fall(rigid.ball, DROP | {"time": 0.5}, restitution=0.8), quick=True),
    Case("ball, e = 1", _fall(rigid.ball, DROP | {"time": 0.5}, restitution=1.0), quick=True),
    Case("ball, e = 0.8, sideways with friction", _fall(rigid.ball, SLIDE, restitution=0.8, friction=0.2), quick=True),
    Case("ball, e = 0.5, spinning", _fall(rigid.ball, SLIDE | {"v": {SPIN: 30.0}}, restitution=0.5, friction=0.1)),
    Case("ball, compliant", _fall(rigid.ball, DROP | {"time": 0.5}, **STIFF), samples=257, quick=True),
    Case("ball, compliant, sideways", _fall(rigid.ball, SLIDE, friction=0.2, **STIFF), samples=257),
    Case("box on a corner, e = 0", _fall(rigid.box, TILT | {"time": 0.25}, friction=0.1, **TIMED)),
    Case("box on a corner, e = 0.5", _fall(rigid.box, TILT | {"time": 0.25}, restitution=0.5, friction=0.1)),
    Case(
        "box on several corners, e = 0",
        _fall(rigid.box, TILT | {"time": 0.26}, friction=0.1, **TIMED),
        limit="rows ignore dJ/dt v: a corner that spin lifts right after its impact is held until the step ends",
    ),
    Case("box on several corners, e = 0.5", _fall(rigid.box, TILT | {"time": 0.29}, restitution=0.5, friction=0.1)),
    Case("box flat, e = 0, slides", _fall(rigid.box, SLIDE | {"height": 0.3, "time": 0.4}, friction=0.2), quick=True),
    Case("box flat, e = 0.5", _fall(rigid.box, DROP | {"height": 0.4}, restitution=0.5), quick=True),
    Case("box, compliant", _fall(rigid.box, TILT | {"time": 0.26}, friction=0.1, **STIFF), samples=257),
    Case("capsule, e = 0", _fall(rigid.capsule, LYING | {"time": 0.27}, friction=0.1, **TIMED)),
    Case("capsule, e = 0.5", _fall(rigid.capsule, LYING, restitution=0.5, friction=0.1)),
    Case("two balls in flight, e = 0.8", rigid.two_balls, quick=True),
    Case("two robots in flight, e = 0", lambda: rigid.two_robots(0.0)),
    Case("two robots in flight, e = 0.5", lambda: rigid.two_robots(0.5), quick=True),
    Case("Newton's cradle of 3", rigid.cradle, quick=True),
    Case("ball on terrain, e = 0.5", rigid.terrain),
    Case("ball rolls down a bowl", rigid.bowl),
    Case("ball rolls through a valley of 8 degrees", lambda: rigid.valley(8.0, 1.6)),
    Case("ball rolls through a valley of 23 degrees", lambda: rigid.valley(23.0, 0.9)),
    Case("quadruped lands, e = 0", lambda: rigid.landing(X, **TIMED), quick=True),
    Case("quadruped lands, e = 0 as by default", lambda: rigid.landing(X), samples=513, jumps=RAMPS),
    Case("quadruped lands, e = 0.3", lambda: rigid.landing(X, restitution=0.3)),
    Case("quadruped lands, compliant", lambda: rigid.landing(X, law="compliant"), dt=1e-3, samples=257),
    Case("golf", rigid.golf, dt=1e-3),
    Case("throw at ground and wall, e = 0.92", rigid.throw, window=0.2),
    Case("joint hits its limit", rigid.limit, window=0.1, quick=True),
    Case("ball joint hits its limit", rigid.ball_limit, window=0.1),
    Case("dry friction of a joint", rigid.dry_friction, window=0.1, quick=True),
    Case("actuator at its force limit", rigid.force_limit, window=0.1),
    Case("arm of two links at its force limits", rigid.arm_at_force_limit, window=0.1),
    Case("block slides and sticks", rigid.sliding_block, window=0.1, quick=True),
    Case("box on a moving platform, e = 0", lambda: rigid.platform(0.0, X)),
    Case("box on a moving platform, e = 0.5", lambda: rigid.platform(0.5, Z)),
    Case("box on an edge of a box, e = 0", lambda: rigid.box_on_box(**TIMED)),
    Case("box on an edge of a box, e = 0.5", lambda: rigid.box_on_box(restitution=0.5)),
    Case("box on an edge of a box, compliant", lambda: rigid.box_on_box(**STIFF), dt=4e-4, samples=513),
    Case("soft ball, elastic skin", lambda: matter.soft_ball(Z, ELASTIC), **SOFT),
    Case("soft ball, damped skin", lambda: matter.soft_ball(Z, DAMPED), **SOFT, quick=True),
    Case("soft ball, damped skin, sideways", lambda: matter.soft_ball(X, DAMPED), **SOFT),
    Case("soft ball, implicit steps", lambda: matter.soft_ball(Z, ELASTIC, "implicit"), dt=2e-3),
    Case("soft cube on an edge", matter.cube_on_edge, **SOFT),
    Case("cloth on a sphere", matter.cloth_on_sphere, window=0.01, **SOFT),
    Case("particles on the ground", matter.particles, **SOFT, samples=257),
    Case("cloth on a soft ball", matter.self_contact, window=0.01, **SOFT),
    Case("soft gripper", matter.gripper, window=0.004, **SOFT),
    Case("smoke at a wall", matter.smoke, window=0.2, dt=2e-2),
    Case(
        "box balanced on an edge",
        rigid.toppling,
        window=0.05,
        jumps="on either side of the balance it lands on another face",
    ),
)


def measure(case: Case, dt: float, make: Curve | None = None) -> Secant:
    """Mean gradient and secant of a case at one time step.

    Args:
        case: The case.
        dt: The time step [s].
        make: Its curve, if already built.
    """
    curve = case.make() if make is None else make
    s = torch.linspace(-case.window, case.window, case.samples, dtype=torch.float64).requires_grad_()
    values = curve(s, dt)
    (slopes,) = torch.autograd.grad(values.sum(), s)
    at, values = s.detach(), values.detach()
    secant, mean = means(at, values, slopes)
    _, coarse = means(at[::2], values[::2], slopes[::2])
    scale = max(abs(secant), 0.1 * float(slopes.abs().mean()))
    with torch.no_grad():
        finer = curve(at, case.dt / 4)
    single = _alike(slopes, _local_slopes(at, finer))
    return Secant(
        case.name,
        dt,
        secant,
        mean,
        abs(mean - coarse) / scale,
        abs(mean - secant) / scale,
        single,
        case.jumps,
        case.limit,
    )


def _local_slopes(s: Tensor, values: Tensor) -> Tensor:
    """Slopes of a curve over a sixteenth of the window around each sample."""
    reach = max(1, (len(s) - 1) // 32)
    i = torch.arange(len(s))
    low, high = (i - reach).clamp(min=0), (i + reach).clamp(max=len(s) - 1)
    return (values[high] - values[low]) / (s[high] - s[low])


def _alike(slopes: Tensor, right: Tensor) -> float:
    """Fraction within a factor of 2, or within a tenth of the mean slope where the curve is level."""
    ratio = slopes / torch.where(right == 0, torch.full_like(right, 1e-300), right)
    near = (slopes - right).abs() <= 0.1 * right.abs().mean()
    return float((((ratio >= 0.5) & (ratio <= 2.0)) | near).double().mean())


def measure_all(cases: Iterable[Case] = CASES, both: bool = True) -> list[Secant]:
    """Every case at its time step; with `both`, at half of it as well."""
    found = []
    for case in cases:
        curve = case.make()
        found += [measure(case, case.dt / part, curve) for part in ((1, 2) if both else (1,))]
    return found


def summarise(found: Iterable[Secant]) -> dict[str, Any]:
    """Counts and worst measurements by scene: a scene is as good as the worse of its time steps."""
    rows = list(found)
    judged: dict[str, list[Secant]] = {}
    for row in rows:
        if not row.jumps:
            judged.setdefault(row.name, []).append(row)
    worst = max((row for some in judged.values() for row in some), key=lambda row: row.error)
    return {
        "scenes": len(judged),
        "worst_relative_error": worst.error,
        "worst_scene": worst.name,
        "within_2_percent": sum(all(row.within for row in some) for some in judged.values()),
        "single_within_factor_2": sum(all(row.single >= SHARE for row in some) for some in judged.values()),
        "failed": [name for name, some in judged.items() if not all(row.right for row in some)],
        "known_limits": {row.name: row.limit for row in rows if row.limit and row.single < SHARE},
        "discontinuous": {row.name: row.jumps for row in rows if row.jumps},
        "rows": [
            {n: getattr(row, n) for n in ("name", "dt", "secant", "mean", "sampling", "error", "single")}
            for row in rows
        ],
    }
