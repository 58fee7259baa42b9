"""Projected Gauss-Seidel that ends early, or starts warm: from the impulses of the last step."""

from __future__ import annotations

import pytest
import torch
from tests.contact_gradients import Case, Counts, check_gradients
from tests.gradients.test_constraints import INERTIAL, heap, linkage, pressed_pair
from tests.gradients.test_newton import dog

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.contact import SOLVERS
from kinema.simulation import solvers

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

PUSH = torch.tensor([1.0, 0.4, 0.2, -0.3], dtype=torch.float64)  # holds the linkage at its limit


def ends(
    model: kn.Model, q: torch.Tensor, v: torch.Tensor, **words
) -> tuple[kn.Trajectory, torch.Tensor, torch.Tensor]:
    """A run, and the gradient of its end to q and v."""
    q, v = q.clone().requires_grad_(), v.clone().requires_grad_()
    path = kn.simulate(model, kn.State(q, v), **{"steps": 1, "dt": 1e-3, **words})
    return path, *torch.autograd.grad(path.end.q.sum() + path.end.v.square().sum(), (q, v))


# -- early stop ----------------------------------------------------------------------------------------------------


def test_a_stopped_run_is_that_of_as_many_sweeps():
    """Values and gradients: what comes after the stop is neither done nor differentiated."""
    model, q, v = heap(cone=True, solver="pgs", tolerance=1e-4, time_of_impact=False)
    path, *stopped = ends(model, q, v, record=["iterations"])
    count = int(path.recorded["iterations"][0, 0])
    assert 2 <= count < model.contact.iterations
    other, *fixed = ends(*heap(solver="pgs", cone=True, iterations=count, time_of_impact=False))
    assert torch.equal(path.end.v, other.end.v)
    assert all(torch.allclose(a, b, rtol=1e-13, atol=1e-15) for a, b in zip(stopped, fixed, strict=True))
    assert float(path.residual.detach()) <= 1e-3 * 0.4, "the stop came far too early"


@pytest.mark.parametrize("rows", ["contacts", "limits"])
def test_gradients_of_stopped_sweeps(rows):
    """Against differences over 16 steps, where as many sweeps are done on both sides; they are far from converged."""
    u = None
    if rows == "limits":
        (model, q, v), u = linkage(solver="pgs", tolerance=1e-2), PUSH
    else:
        model, q, v = heap(solver="pgs", tolerance=1e-2)
    way = {
        "q": torch.linspace(-1.0, 2.0, model.nq, dtype=q.dtype),
        "v": torch.linspace(1.0, -1.5, model.nv, dtype=q.dtype),
    }
    words = {"steps": 16, "u": u, "record": ["iterations"]}
    path, *gradients = ends(model, q, v, **words)
    counts = path.recorded["iterations"].detach()
    assert 2 <= float(counts.max()) < 0.5 * model.contact.iterations
    h = 1e-8
    for name, gradient in zip(way, gradients, strict=True):
        sides = []
        for sign in (1, -1):
            at = kn.State(q, v)
            at = at.replace(**{name: at.tensors[name] + sign * h * way[name]})
            side = kn.simulate(model, at, dt=1e-3, **words)
            assert torch.equal(side.recorded["iterations"], counts), "the differences cross a stop"
            sides.append(float(side.end.q.sum() + side.end.v.square().sum()))
        wanted = (sides[0] - sides[1]) / (2 * h)
        assert float((gradient * way[name]).sum()) == pytest.approx(wanted, rel=1e-5)


def test_stopped_worlds_have_the_bits_they_have_alone():
    """A world that has stopped waits for the others in its register and does not change."""
    model, start, speeds = heap(solver="pgs", tolerance=1e-5)
    many = torch.tensor([0.0, 1.0, 3.0, 10.0, 30.0], dtype=torch.float64)[:, None] * speeds
    words = {"steps": 20, "record": ["iterations"]}
    path, *together = ends(model, start.expand(5, -1), many, **words)
    assert len(set(path.recorded["iterations"].sum((-1, -2)).tolist())) >= 4
    for w in (0, 3, 4):
        one, *alone = ends(model, start, many[w], **words)
        assert torch.equal(path.recorded["iterations"][w], one.recorded["iterations"])
        assert torch.equal(path.end.q[w], one.end.q)
        assert all(torch.equal(a[w], b) for a, b in zip(together, alone, strict=True))


def test_where_nothing_touches_one_sweep_is_enough():
    model, q, v = heap(solver="pgs", tolerance=1e-6)
    q[2::7] += torch.arange(1.0, 8.0, dtype=q.dtype)  # apart from the ground and from each other
    path = kn.simulate(model, kn.State(q, v), steps=3, dt=1e-3, record=["iterations"])
    assert (path.recorded["iterations"] <= 1).all()


# -- warm start ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "steps", "tolerance", "h"),
    [(rows, *limit) for rows in ("pyramid", "cone", "limits", "few") for limit in ((1, 1e-6, 1e-6), (32, 1e-5, 1e-6))]
    + [(rows, 256, 1e-4, 1e-7) for rows in ("limits", "few")],  # heaps switch too often for differences
)
def test_gradients_through_kept_impulses(rows, steps, tolerance, h):
    """Three sweeps are far from a solution: impulses of the last step, picked anew or not, matter in this one.

    The linkage has one sweep, and starts from impulses, so that these still matter after 256 steps.
    """
    counts = Counts()
    if rows == "limits":
        model, q, v = linkage(solver="pgs", warm_start=True, iterations=1, time_of_impact=False)
        names = (*INERTIAL, "offset", "axis", "dry_friction", "lower", "upper")
        kept = kn.simulate(model, kn.State(q, v), PUSH, steps=1, dt=1e-3).end.impulses
        case = Case(model, q, v, names, u=PUSH, impulses=kept, record=("limit_impulse",))
    elif rows == "few":  # candidates, so that all have rows
        dt = 2.5e-4 if steps > 32 else 1e-3  # as in `test_constraints`: bodies that tumble switch too often
        case = pressed_pair("box", "box", "pyramid", 0.3, dt, solver="pgs", warm_start=True, iterations=3)
    else:
        model, q, v = heap(solver="pgs", warm_start=True, iterations=3, cone=rows == "cone")
        case = Case(model, q, v, (*INERTIAL, "friction", "size", "centre"))
    check_gradients(case, steps, tolerance, h, 0, counts)
    print(counts)
    assert rows != "limits" or "impulses" in counts.seen
    assert counts.switches <= 0.05 * counts.cases and counts.pressing + counts.at_limits > 0.5 * steps


@pytest.mark.parametrize("rows", ["contacts", "limits"])
def test_a_run_can_be_continued(rows):
    """The kept impulses are state: 12 + 12 steps are 24, to the bit, gradients and checkpoints included."""
    model, q, v = (
        linkage(solver="pgs", warm_start=True, iterations=3)
        if rows == "limits"
        else heap(solver="pgs", warm_start=True, iterations=3)
    )
    whole, *gradients = ends(model, q, v, steps=24)
    thrifty, *replayed = ends(model, q, v, steps=24, options=kn.RunOptions(checkpoint=5))
    start = kn.State(q, v).clone().requires_grad_()
    half = kn.simulate(model, start, steps=12, dt=1e-3).end
    rest = kn.simulate(model, half, steps=12, dt=1e-3)
    assert torch.equal(rest.end.q, whole.end.q) and torch.equal(rest.end.impulses, whole.end.impulses)
    assert torch.equal(thrifty.end.impulses, whole.end.impulses)
    chained = torch.autograd.grad(rest.end.q.sum() + rest.end.v.square().sum(), (start.q, start.v))
    assert all(torch.equal(a, b) for a, b in zip(replayed, gradients, strict=True))
    assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in zip(chained, gradients, strict=True))
    cold = kn.simulate(model, half.replace(impulses=None), steps=12, dt=1e-3)
    assert not torch.equal(cold.end.q, whole.end.q), "the start made no difference"


@pytest.mark.parametrize("rows", ["picked", "always there"])
def test_contacts_that_end_leave_no_impulse(rows):
    """All is lifted off between two runs: what held it up before is not given to it again."""
    if rows == "picked":
        model, q, _ = heap(solver="pgs", warm_start=True)
    else:
        model, q = dog(solver="pgs", warm_start=True)
    words = {"steps": 1, "dt": 1e-3, "record": ["impulse"]}
    first = kn.simulate(model, kn.State(q), **words)
    kept = first.end.impulses
    assert float(kept.max()) > 1e-3
    assert torch.equal(kept[-3 * len(model.candidates) :], first.recorded["impulse"].flatten())
    if rows == "picked":
        q[2::7] += torch.arange(1.0, 8.0, dtype=q.dtype)
    else:
        q[2] += 1.0
    second = kn.simulate(model, kn.State(q, impulses=kept), **words)
    free = kn.simulate(model, kn.State(q), **words)
    assert (second.recorded["impulse"] == 0).all() and torch.equal(second.end.v, free.end.v)


def test_a_standing_robot_needs_fewer_sweeps():
    """From the impulses of the last step, a hundredth of the error is left after five sweeps."""
    left = []
    for warm in (False, True):
        model, q, _ = heap(solver="pgs", warm_start=warm, iterations=5, cone=True)
        path = kn.simulate(model, kn.State(q), steps=300, dt=1e-3)
        left.append(float(path.residual[-50:].max()))
    assert left[1] < 0.01 * left[0], left


def test_words_that_make_no_sense_are_refused():
    model, q, v = heap(solver="pgs")
    with pytest.raises(kn.InputError, match="has no warm start"):
        kn.simulate(model, kn.State(q, v, impulses=torch.zeros(84, dtype=torch.float64)), steps=1, dt=1e-3)
    with pytest.raises(kn.InputError, match="number of iterations is fixed"):
        kn.simulate(model, kn.State(q, v), steps=1, dt=1e-3, record=["iterations"])
    for name, value in (("relaxation", (0.8, 1.4)), ("tolerance", 1e-6), ("warm_start", True)):
        assert name in SOLVERS["pgs"].options
        with pytest.raises(kn.ModelError, match=f"solver 'newton' has no {name}") as caught:
            kn.Contact(**{"solver": "newton", name: value})
        assert "solver='pgs'" in str(caught.value)
    for unknown in ("gauss", ["pgs"], None):
        with pytest.raises(kn.ModelError, match="unknown contact solver"):
            kn.Contact(solver=unknown)


def test_every_solver_in_words_can_be_added_to_programs():
    assert {*SOLVERS} == {*solvers.SOLVERS}
