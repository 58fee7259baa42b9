"""`check_gradient` on functions whose jumps, kinks, noise and faults are known, and on simulations."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.fitting.gradient_report import Console
from kinema.lang.build import compiler
from kinema.scene.description import FREE, SPHERE, Body, Joint, Pose, Robot, Shape
from kinema.scene.mass_properties import mass_properties

X = torch.tensor(0.3, dtype=torch.float64)
PLACE = 0.01234567  # of the switch, from X
WINDOW = 0.1
native = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")


def check(f: Callable[[Tensor], Any], x: Tensor = X, **options: Any) -> kn.GradientCheck:
    return kn.check_gradient(f, x, **{"window": WINDOW, **options})


def kinds(report: kn.GradientCheck) -> set[str]:
    return {found.kind for found in report.findings}


@pytest.mark.parametrize("batched", [False, True])
def test_a_smooth_function_is_fine(batched: bool):
    """Trapezoids of 64 intervals: h^2 f''' / 12 of the mean is below 1e-4 of it."""
    report = check(lambda x: (3 * x).sin(), batched=batched)
    (line,) = report.lines
    secant = (math.sin(1.2) - math.sin(0.6)) / 0.2
    assert report.ok and not report.findings and not line.switches and line.lost == line.unexplained == 0
    assert line.gradient == pytest.approx(3 * math.cos(0.9), rel=1e-12) == line.slopes[32]
    assert line.difference == pytest.approx(line.gradient, rel=1e-7)
    assert line.secant == pytest.approx(secant, rel=1e-12) and line.mean_gradient == pytest.approx(secant, rel=1e-4)
    assert len(line.s) == 65 and float(line.s[0]) == pytest.approx(-WINDOW) and report.growth is None


@pytest.mark.parametrize("batched", [False, True])
def test_a_jump_is_located_to_a_millionth_of_the_window(batched: bool):
    report = check(lambda x: (3 * x).sin() + 0.05 * (x > X + PLACE), batched=batched)
    (line,) = report.lines
    (jump,) = line.jumps
    assert abs(jump.at - PLACE) <= 1e-6 * WINDOW and jump.size == pytest.approx(0.05, rel=1e-6)
    assert {"jump", "secant"} == kinds(report) and not report.ok and line.unexplained == 1
    # The mean gradient lacks the jump, spread over the window.
    assert line.secant - line.mean_gradient == pytest.approx(0.05 / (2 * WINDOW), rel=1e-3)
    assert line.difference == pytest.approx(line.gradient, rel=1e-7), "which tiny differences do not see"


def test_several_jumps_are_located_where_each_is():
    places = [-0.07, -0.031, 0.002, 0.06]
    report = check(lambda x: x**2 - 0.01 * sum((x > X + p).double() for p in places))
    assert [jump.at for jump in report.lines[0].jumps] == pytest.approx(places, abs=1e-7)


def test_a_kink_is_no_jump():
    report = check(lambda x: (x - X - PLACE).abs() + x**2)
    (kink,) = report.lines[0].kinks
    assert abs(kink.at - PLACE) <= 1e-6 * WINDOW and kink.size == pytest.approx(2.0, rel=1e-6)
    assert kinds(report) == {"kink"} and report.ok and not report.lines[0].jumps


def test_a_steep_but_continuous_rise_is_no_jump():
    """A ramp as wide as a tenth of the distance of samples: its ends are kinks."""
    wide = 0.1 * 2 * WINDOW / 64
    report = check(lambda x: x + 0.05 * ((x - X - PLACE) / wide).clamp(0.0, 1.0))
    assert not report.lines[0].jumps and report.lines[0].kinks and "ramp" in kinds(report) and not report.ok


def test_x_on_a_kink_is_told():
    report = check(lambda x: (x - X).relu() + x)
    (found,) = [found for found in report.findings if found.kind == "wrong gradient"]
    assert "kink" in found.advice


def test_noise_is_measured():
    random = torch.Generator().manual_seed(0)
    report = check(lambda x: (3 * x).sin() + 1e-4 * torch.randn((), generator=random, dtype=torch.float64))
    assert "noise" in kinds(report) and not report.lines[0].jumps
    assert 3e-5 < report.lines[0].noise < 3e-4, "from 7 values"


def test_an_explosion_backwards_in_time_is_found():
    """A product of 40 factors 3: the gradient by the state grows threefold with every step back."""

    def grow(x: Tensor) -> tuple[Tensor, list[Tensor]]:
        states = [x]
        for _ in range(40):
            states.append(3 * states[-1])
        return states[-1].sin() * 1e-18, states

    report = check(grow, window=1e-6)
    assert report.growth is not None and report.growth.largest == 0
    assert report.growth.factor == pytest.approx(3.0**40, rel=1e-9)
    assert "explosion" in kinds(report) and report.growth.norms[0] / report.growth.norms[1] == pytest.approx(3.0)


def test_single_gradients_that_the_curve_does_not_show_are_an_explosion():
    report = check(lambda x: x + 1e-6 * (1e9 * x).sin())
    assert "explosion" in kinds(report)


def test_a_detached_term_is_a_wrong_gradient():
    report = check(lambda x: x**2 + x.detach() * x)
    assert {"wrong gradient", "secant"} <= kinds(report)
    assert report.lines[0].difference == pytest.approx(1.2, rel=1e-6) and report.lines[0].gradient == pytest.approx(0.9)


def test_a_loss_without_gradient_is_wrong_too():
    assert "wrong gradient" in kinds(check(lambda x: (x**2).detach()))


def test_samples_that_are_not_finite_are_counted():
    report = check(lambda x: (x - X).sqrt())
    assert report.lines[0].lost == 33 and "not finite" in kinds(report) and math.isfinite(report.lines[0].secant)


def test_failed_worlds_are_lost_and_others_kept():
    def f(x: Tensor) -> Tensor:
        if bool((x > X + 0.09).any()):
            raise kn.SimulationError("worlds became non-finite")
        return x**2

    for batched in (False, True):
        report = check(f, batched=batched)
        assert report.lines[0].lost == 4 and report.lines[0].secant == pytest.approx(2 * (0.3 - 0.00625), rel=1e-9)


def test_directions_of_tensors():
    x = torch.linspace(0, 1, 4, dtype=torch.float64).reshape(2, 2)
    by_coordinate = check(lambda x: x.sin().sum(), x)
    assert [line.name for line in by_coordinate.lines] == ["x[0, 0]", "x[0, 1]", "x[1, 0]", "x[1, 1]"]
    assert [line.gradient for line in by_coordinate.lines] == pytest.approx(x.cos().flatten().tolist())
    many = torch.linspace(0, 1, 6, dtype=torch.float64).reshape(2, 3)
    drawn = check(lambda x: x.sin().sum((-2, -1)), many, batched=True)
    assert drawn.ok and len(drawn.lines) == 3
    for line in drawn.lines:
        assert float(line.direction.norm()) == pytest.approx(1.0)
        assert line.gradient == pytest.approx(float((many.cos() * line.direction).sum()))
    other = check(lambda x: x.sin().sum((-2, -1)), many, batched=True, seed=1)
    assert other.lines[0].gradient != drawn.lines[0].gradient
    along = torch.zeros(1, 2, 3, dtype=torch.float64)
    along[0, 1, 2] = 5.0
    (line,) = check(lambda x: x.sin().sum(), many, directions=along).lines
    assert line.gradient == pytest.approx(math.cos(1.0))


def test_single_precision():
    """Rounding of the loss is noise of eps |f|: no jumps come from it, and the difference agrees within it."""
    x = torch.tensor(0.3)
    assert check(lambda x: (3 * x).sin(), x).ok and check(lambda x: (3 * x).sin() + 100, x).ok
    report = check(lambda x: (3 * x).sin() + 1e5, x)
    (found,) = [found for found in report.findings if found.kind == "noise"]
    assert found.advice == "Use float64"
    (jump,) = check(lambda x: (3 * x).sin() + 0.05 * (x > 0.3123457), x).lines[0].jumps
    assert jump.at == pytest.approx(PLACE, abs=1e-6), "eps of x is 3e-8"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"x": 0.3}, "x is not usable"),
        ({"x": torch.tensor(1)}, "x is not usable"),
        ({"x": torch.zeros(0)}, "x is not usable"),
        ({"x": torch.tensor(math.nan)}, "x is not finite"),
        ({"window": 0.0}, "window is not usable"),
        ({"window": math.inf}, "window is not usable"),
        ({"window": True}, "window is not usable"),
        ({"window": 1e-15}, "window is too small"),
        ({"samples": 64}, "samples is not usable"),
        ({"samples": 5}, "samples is not usable"),
        ({"directions": torch.zeros(2, 3)}, "directions have the wrong shape"),
        ({"directions": torch.zeros(1, dtype=torch.float64)}, "directions are not usable"),
        ({"f": lambda x: 1.0}, "f returns something else"),
        ({"f": lambda x: torch.stack([x, x])}, "f returns something else"),
        ({"f": lambda x: x.sum(), "batched": True}, "f returns something else"),
        ({"f": lambda x: (x, x, x)}, "f returns something else"),
        ({"f": lambda x: (x, 3)}, "path of f has the wrong type"),
    ],
)
def test_bad_input_is_refused(words: dict[str, Any], message: str):
    given = {"f": lambda x: x**2, "x": X, "window": WINDOW, **words}
    with pytest.raises(kn.InputError, match=message):
        kn.check_gradient(given.pop("f"), given.pop("x"), **given)


def test_it_prints_plain_lines_or_a_table(monkeypatch: pytest.MonkeyPatch):
    report = check(lambda x: (3 * x).sin() + 0.05 * (x > X + PLACE))
    plain = str(report)
    assert plain.splitlines()[0] == "gradient over +-0.1: see the findings" and "jump: along x" in plain
    assert "mean gradient" in plain.splitlines()[1] and plain.splitlines()[2].split()[0] == "x"
    monkeypatch.setattr("kinema.fitting.gradient_report.Console", lambda: Console(force_terminal=True, width=140))
    assert "┃" in str(report) and "jump: along x" in str(report)


def test_it_draws(tmp_path: Path):
    pytest.importorskip("matplotlib")
    file = check(lambda x: (3 * x).sin() + 0.05 * (x > X + PLACE)).plot(tmp_path / "deep" / "landscape.png")
    assert file.stat().st_size > 5000


def test_it_says_how_to_get_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(kn.InputError, match="kinema\\[plot\\]"):
        check(lambda x: x**2).plot(tmp_path / "landscape.png")


# -- simulations ------------------------------------------------------------------------------------------------------

R, STEPS, DT, PUSHED = 0.1, 60, 2e-3, 20


def ball_model(dtype: torch.dtype = torch.float64, **contact: Any) -> kn.Model:
    shape = Shape(SPHERE, (R,))
    body = Body("body", None, Pose(), (Joint("free", FREE),), mass_properties(shape, mass=1.0), (shape,))
    scene = kn.Scene(contact=kn.Contact(**contact))
    scene.add_ground()
    scene.add_robot(Robot("ball", (body,)))
    return kn.compile(scene, dtype)


def pushed(model: kn.Model) -> Callable[[Tensor], tuple[Tensor, kn.Trajectory]]:
    """A ball that falls on the ground at speed 1 and from height x; if x is large it is pushed sideways in one step."""

    def f(x: Tensor) -> tuple[Tensor, kn.Trajectory]:
        q = torch.zeros(*x.shape, 7, dtype=x.dtype)
        q[..., 3] = 1.0
        q = torch.cat([q[..., :2], x[..., None], q[..., 3:]], -1)
        v = torch.zeros(*x.shape, 6, dtype=x.dtype)
        v[..., 5] = -1.0
        tau = torch.zeros(*x.shape, STEPS, 6, dtype=x.dtype)
        tau[..., PUSHED, 3] = 50.0 * (x.detach() > 0.13 + PLACE / 10)
        path = kn.simulate(model, kn.State(q, v), u=kn.Control(tau=tau), steps=STEPS, dt=DT)
        return path.end.q[..., 0] + path.end.q[..., 2] + x**2, path

    return f


@native
@pytest.mark.parametrize("batched", [False, True])
def test_the_step_and_the_joint_that_a_jump_comes_from(batched: bool):
    """A push of 0.1 m/s in step 20 and nothing that brakes: the loss jumps by 0.1 m/s times 40 steps."""
    report = kn.check_gradient(
        pushed(ball_model(friction=0.0)), torch.tensor(0.13, dtype=torch.float64), window=0.01, batched=batched
    )
    (jump,) = report.lines[0].jumps
    assert jump.at == pytest.approx(PLACE / 10, abs=1e-8) and jump.size == pytest.approx(0.1 * 40 * DT, rel=1e-4)
    assert (jump.step, jump.where) == (PUSHED, "joint ball/free") and jump.time == pytest.approx((PUSHED + 1) * DT)
    assert report.growth is not None and len(report.growth.norms) == STEPS + 1 and report.growth.dt == DT
    assert report.growth.where[0] == "joint ball/free" and report.growth.factor < 10


@native
def test_a_ball_in_single_precision_that_does_not_bounce():
    """Where it lands does not depend on the height: loss = x^2, with noise of float32."""
    f = pushed(ball_model(torch.float32))
    report = kn.check_gradient(f, torch.tensor(0.12), window=0.005, batched=True)
    assert report.ok and report.lines[0].mean_gradient == pytest.approx(0.24, rel=1e-2)
