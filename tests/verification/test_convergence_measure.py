"""`kinema.verification.convergence`: residuals are those of the conditions, wrong impulses and gradients are seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.lemke import impulses

import kinema as kn
from kinema.verification import convergence, legged
from kinema.verification.convergence import Problem

EXACT = kn.Contact(solver="newton")
SOURCES = {source.name: source for source in legged.sources()}


def one(problem: Problem, world: int, found: np.ndarray) -> Problem:
    """The problem of one world, with other impulses."""
    parts = {n: getattr(problem, n)[world : world + 1] for n in ("Y", "b", "lower", "upper", "mu")}
    return replace(problem, **parts, impulse=found[None])


def contact(b: tuple[float, float, float], impulse: tuple[float, float, float], cone: bool = False) -> float:
    """The error of a point of 2 kg on the ground with friction 0.5, by hand: A is the unit matrix over 2 kg."""
    Y, nothing = np.eye(3)[None] / np.sqrt(2.0), np.zeros((1, 0))
    given = (np.array([b]), np.array([impulse]), nothing, nothing, np.array([[0.5]]))
    return float(Problem(Y, *given, 0.0, cone).errors()[0])


def test_a_point_on_the_ground():
    """It presses with m |v_n| and sticks, or slides with mu of that; what is missing is seen in N s."""
    assert contact((-1.0, 0.2, 0.0), (2.0, -0.4, 0.0)) == pytest.approx(0.0, abs=1e-15)  # sticks: w = 0
    assert contact((-1.0, 3.0, 0.0), (2.0, -1.0, 0.0)) == pytest.approx(0.0, abs=1e-15)  # slides: at the bound
    assert contact((1.0, 3.0, 0.0), (0.0, 0.0, 0.0)) == 0.0  # leaves
    assert contact((-1.0, 3.0, 0.0), (1.9, -0.95, 0.0)) == pytest.approx(0.1)  # presses too little
    assert contact((-1.0, 3.0, 0.0), (2.0, -0.7, 0.0)) == pytest.approx(0.3)  # rubs too little
    assert contact((-1.0, 3.0, 4.0), (2.0, -0.6, -0.8), cone=True) == pytest.approx(0.0, abs=1e-15)  # against sliding
    assert contact((-1.0, 3.0, 4.0), (2.0, -0.8, -0.6), cone=True) > 0.03  # aside
    assert contact((-1.0, 0.0, 0.0), (0.0, 0.0, 0.0)) == pytest.approx(2.0)


@pytest.mark.parametrize(("name", "unique"), [("quadruped", True), ("light shanks 1", True), ("ant", False)])
def test_lemke_and_newton_solve_the_same_problem(name: str, unique: bool):
    """Two methods with nothing in common find impulses that the measure calls solved, and the same velocities.

    A robot that slides fast may have several solutions, as pressing and friction depend on each other: in some steps of
    the ant the two find different ones, and both are right. Lemke's pivots lose digits with the condition of the rows:
    1e-10 leaves six for them.
    """
    made = SOURCES[name].stand(EXACT)
    forces = convergence._forces(made)
    steps, starts = (0, 3, 10), (0, 3, 12, 20)
    path = kn.simulate(
        made.model, kn.State(made.q.expand(25, -1), made.v), u=kn.Control(tau=forces[:, :12]), steps=12, dt=2e-3
    )
    q, v = (torch.stack([x[s, t] for s in starts for t in steps]) for x in (path.q, path.v))
    tau = torch.stack([forces[s, t] for s in starts for t in steps]).unsqueeze(1)
    problem = convergence.pose(made.model, q, v, tau, 2e-3)
    pressed = 0
    for world, found in enumerate(problem.impulse):
        oracle = impulses(problem, world)
        assert oracle is not None
        z, wanted = problem.Y[world].T @ found, problem.Y[world].T @ oracle
        largest = np.abs(oracle).max()
        if largest < convergence.NOTHING:
            continue  # rounding of feet in the air
        assert not unique or np.abs(z - wanted).max() <= 1e-10 * np.abs(wanted).max()
        for solution in (found, oracle):
            assert one(problem, world, solution).errors()[0] <= 1e-10 * largest
        off = oracle.copy()
        off[np.abs(off).argmax()] += 1e-3 * largest
        pressed += 1
        assert one(problem, world, off).errors()[0] > 1e-4 * largest
    assert pressed >= 10


@pytest.mark.parametrize("name", ["quadruped", "light shanks 0"])
def test_newton_solves_and_differentiates(name: str):
    seen = convergence.examine(SOURCES[name], EXACT)
    assert not seen.failed and seen.pressing > 0.9
    assert seen.residual < 1e-11 and seen.differences < 1e-6


def test_few_sweeps_are_seen():
    """Impulses, gradients and the length of gradients; all are fine for a robot that does not slide."""
    seen = convergence.examine(SOURCES["light shanks 1"], kn.Contact(solver="pgs", iterations=5))
    text = " ".join(seen.failed)
    assert "residual" in text and all(f"gradient to {n}" in text for n in ("tau", "v", "mass", "friction"))
    assert seen.residual > 1e-2 and seen.gradient > 1e-2


def test_a_wrong_gradient_is_seen(monkeypatch: pytest.MonkeyPatch):
    """That to friction, scaled by 1 + 1e-4, no longer agrees with differences of the rollout; the others do."""
    right = convergence._gradients

    def wrong(*given):
        found = right(*given)
        return found | {"friction": (1 + 1e-4) * found["friction"]}

    monkeypatch.setattr(convergence, "_gradients", wrong)
    seen = convergence.examine(SOURCES["quadruped"], EXACT)
    (what,) = seen.failed
    assert "slope along friction off central differences" in what


def test_an_error_is_a_failure_not_an_end():
    def unreadable():
        raise kn.KinemaError("no such robot")

    seen = convergence.examine(legged.Source("nothing", unreadable), EXACT)
    assert seen.failed == ["raised KinemaError: no such robot"] and np.isnan(seen.residual)


def test_the_worst_of_what_raised_is_not_a_number(monkeypatch: pytest.MonkeyPatch):
    def unreadable():
        raise kn.KinemaError("no such robot")

    chosen = [SOURCES["light shanks 1"], legged.Source("nothing", unreadable)]
    monkeypatch.setattr(legged, "sources", lambda full: chosen)
    found = convergence.check(contact=EXACT)
    assert found == {
        "robots": 2,
        "worst_residual": None,
        "worst_gradient_error": None,
        "failed": ["nothing: raised KinemaError: no such robot"],
    }
    chosen.pop()
    found = convergence.check(contact=EXACT)
    assert found["robots"] == 1 and found["failed"] == []
    assert found["worst_residual"] < 1e-11 and 0 < found["worst_gradient_error"] < 1e-5


def test_robots_start_at_the_floor_at_rest_and_in_all_headings():
    made = SOURCES["quadruped"].stand(EXACT)
    path = kn.simulate(made.model, kn.State(made.q), steps=1, dt=1e-3, record=["gap"])
    assert abs(float(path.recorded["gap"].min())) < 1e-12
    assert made.v.shape == (25, 18) and not made.v[0].any()
    speeds = made.v[1:].norm(dim=-1).reshape(3, 8)
    assert torch.allclose(speeds, torch.tensor(legged.SPEEDS, dtype=torch.float64).unsqueeze(-1).expand(3, 8))
    assert torch.allclose(made.v[1:9].sum(0), torch.zeros(18, dtype=torch.float64), atol=1e-12)


def test_fitted_slopes_tell_kinks_and_scatter():
    """Beside a kink, the slope of one side is that of the gradient; fits average what scatters."""
    s = 1e-3 * torch.linspace(-1.0, 1.0, convergence.FITTED, dtype=torch.float64)
    kinked = 1.0 + 2.0 * s + 3.0 * s**2 + 5.0 * s**3 + 40.0 * (-s).clamp_min(0.0)
    both, above, below = convergence._fitted_slopes(s, kinked)[-3:]  # cubics
    assert above == pytest.approx(2.0, abs=1e-9) and below == pytest.approx(-38.0, abs=1e-9) and abs(both + 18) < 1
    scatter = torch.tensor(np.random.default_rng(0).uniform(-4e-11, 4e-11, len(s)))
    found = convergence._fitted_slopes(s, 1e-3 * s + scatter)[0]
    deviation = 4e-11 / np.sqrt(3) / 1e-3  # of one difference over half of the window
    assert abs(found - 1e-3) < deviation / 2


def test_a_wrong_gradient_beside_a_kink_is_seen(monkeypatch: pytest.MonkeyPatch):
    """A loss with a kink at the start: the slopes of its two sides are right, the mean of them and others are not."""
    made = SOURCES["quadruped"].stand(EXACT)
    forces, weights = convergence._forces(made), torch.ones(made.model.nq, dtype=torch.float64)
    v0 = made.v[:, 0].sum()

    def losses(made, inputs, weights):
        return 3.0 * (inputs["v"][:, 0] - v0).clamp_min(0.0) + inputs["v"][:, 0]

    monkeypatch.setattr(convergence, "_losses", losses)
    for slope, right in ((4.0, True), (1.0, True), (2.0, False), (4.001, False)):
        gradient = torch.zeros_like(made.v)
        gradient[:, 0] = slope
        off = convergence._differences(made, forces, weights, "v", gradient)
        assert (off.max() <= 1e-9) if right else (off.min() > 1e-5), slope
