"""Mean gradients over a window against secants, for scenes whose impacts move through the time steps.

The curve of a scene is what a simulation ends with, by one initial value. Trapezoids over 128 or 256 intervals have a
sampling error that is measured with half of them: 2 % is asked for, or that error.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kinema.commands import cli
from kinema.lang.build import compiler
from kinema.verification import convergence, impacts, secants
from kinema.verification.secants import Case, measure, summarise

native = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

RIGHT = [case for case in secants.CASES if not case.jumps]


def scene(case: Case) -> object:
    return pytest.param(case, id=case.name, marks=[pytest.mark.slow] * (not case.quick))


@native
@pytest.mark.parametrize("case", [scene(case) for case in RIGHT])
def test_mean_gradients_are_secants(case: Case):
    """And 95 % of single gradients are within a factor of 2 of the slope at a shorter time step, known limits apart."""
    for found in secants.measure_all([case], both=not case.quick):
        assert found.within, found
        assert found.single >= secants.SHARE or case.limit, found


def test_there_are_enough_scenes_and_names_are_theirs():
    names = [case.name for case in secants.CASES]
    assert len(names) == len(set(names)) and len(RIGHT) >= 30
    assert len([case for case in RIGHT if case.limit]) <= 1
    page = (Path(__file__).parents[2] / "docs/theory/switches.md").read_text()
    assert all(name in page for name in names)


def smooth(s: Tensor, dt: float) -> Tensor:
    return (3 * s).sin() + dt


def stepped(s: Tensor, dt: float) -> Tensor:
    """What moves by whole steps: right on average, with the gradient of something else."""
    return (s / dt).floor() * dt - s


def test_measuring_finds_what_is_right_and_what_is_not():
    found = measure(Case("smooth", lambda: smooth, window=0.5), 1e-2)
    assert found.within and found.single == 1.0 and found.error < 1e-3
    assert found.secant == pytest.approx(math.sin(1.5) / 0.5, rel=1e-12)
    wrong = measure(Case("stepped", lambda: lambda s, dt: stepped(s, dt) + 3 * s, window=0.5, samples=257), 1e-2)
    assert not wrong.within and wrong.mean == pytest.approx(2.0) and wrong.secant == pytest.approx(3.0, rel=1e-2)
    summary = summarise([found, wrong])
    assert (summary["scenes"], summary["within_2_percent"], summary["failed"]) == (2, 1, ["stepped"])
    assert summary["worst_relative_error"] == wrong.error and len(summary["rows"]) == 2


def test_a_large_sampling_error_excuses_nothing():
    rough = secants.Secant("rough", 1e-3, 1.0, 1.5, sampling=0.6, error=0.5, single=1.0, jumps="")
    stated = secants.Secant("stated", 1e-3, 1.0, 1.05, sampling=0.06, error=0.05, single=1.0, jumps="")
    assert not rough.within and stated.within


# -- closed forms -----------------------------------------------------------------------------------------------------


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def test_the_closed_form_of_one_bounce():
    """h = r - e (v T + z0 - r) without gravity: the paper's -1 and -T, and -dt (T - dt / 2) for the force."""
    z, v, u = number(1.0), number(-2.0), number(0.0)
    dt, time = 1 / 480, 1.0
    height = impacts.bounced(1.0, 0.0)(z, v, u, dt, time)
    assert height.item() == pytest.approx(0.1 + 2.0 - 0.9)
    slopes = torch.autograd.grad(height, [z, v, u])
    assert [float(slope) for slope in slopes] == pytest.approx([-1.0, -1.0, -dt * (time - dt / 2)])


@pytest.mark.parametrize(("closed", "gravity", "law"), [
    (impacts.bounced(0.8, 9.81), 9.81, None),
    (impacts.sprung(2e3, 0.0), 0.0, (2e3, 0.0)),
    (impacts.sprung(2e3, 30.0), 0.0, (2e3, 30.0)),
])  # fmt: skip
def test_closed_forms_are_the_motion(closed: impacts.Closed, gravity: float, law: tuple[float, float] | None):
    """Steps of 1e-5 s of the plain equations: their error, of order dt, is below 1e-3."""
    z, v, dt = 1.0, -2.0, 1e-5
    for _ in range(60_000):
        depth = 0.1 - z
        force = 0.0 if law is None or depth < 0 else law[0] * depth + law[1] * max(-v, 0.0)
        v += dt * (force - gravity)
        z += dt * v
        if law is None and z < 0.1 and v < 0:
            v *= -0.8
    assert float(closed(number(1.0), number(-2.0), number(0.0), 1e-3, 0.6)) == pytest.approx(z, abs=1e-3)


# -- the command ------------------------------------------------------------------------------------------------------

TASK = {"hard, e = 1": {"worst_error": 1e-3}}
CURVES: dict[str, object] = {
    "scenes": 40,
    "within_2_percent": 40,
    "worst_relative_error": 0.01,
    "worst_scene": "golf",
    "failed": [],
    "known_limits": {},
}
ROBOTS = {"robots": 2, "worst_residual": 1e-12, "worst_gradient_error": 1e-9, "failed": []}


@pytest.mark.parametrize(("failed", "code"), [([], 0), (["golf"], 1)])
def test_verify_prints_one_object(capsys: pytest.CaptureFixture[str], monkeypatch, failed: list[str], code: int):
    found = {"task1": TASK, "secants": {**CURVES, "failed": failed}, "convergence": ROBOTS}
    monkeypatch.setattr(impacts, "check", lambda full: found)
    assert cli.main(["verify", "--only", "impacts", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == found


def test_verify_of_one_row(capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setattr("kinema.verification.verify.impacts.check", lambda full, numbers: {
        "task1": TASK, "secants": CURVES, "convergence": {**ROBOTS, "failed": ["humanoid"]},
    })  # fmt: skip
    assert cli.main(["verify", "--only", "impacts"]) == 1
    told = capsys.readouterr().out
    assert "FAILED  gradients through impacts" in told and "40 of 40 scenes" in told and told.count("\n") == 2
    assert cli.main(["verify", "--only", "nothing"]) == 2
    assert "impacts" in capsys.readouterr().err


@native
def test_verify_prints_rows_as_json(capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setattr("kinema.verification.verify.compare_trees", lambda numbers: (None, "not installed"))
    assert cli.main(["verify", "--only", "trees", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row == {"name": "random trees against Pinocchio and MuJoCo", "passed": None, "detail": "not installed"}


@native
@pytest.mark.slow
def test_convergence_is_measured():
    found = convergence.check()
    assert set(found) == {"robots", "worst_residual", "worst_gradient_error", "failed"} and found["robots"] >= 2
