"""Batches of standing robots: the same bits however they run; one that fails is named and leaves the others alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.lang.build import compiler
from kinema.scene.shapes.quadruped import quadruped

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

WORLDS, STEPS = 17, 12  # more worlds than a register has lanes


@pytest.fixture(scope="module")
def standing() -> tuple[kn.Model, dict[str, Tensor]]:
    """Quadrupeds on the ground, each pushed in another way; feet press in all of them."""
    scene = kn.Scene()
    scene.add_ground()
    scene.add_robot(quadruped(), "dog")
    model = kn.compile(scene)
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    q = kn.simulate(model, steps=1000, dt=2e-3).end.q.repeat(WORLDS, 1)  # where it comes to rest
    gravity = model.parameters("gravity")["gravity"].repeat(WORLDS, 1)
    given = {"q": q, "v": 0.01 * normal(WORLDS, model.nv), "tau": normal(WORLDS, STEPS, model.nv), "gravity": gravity}
    return model, given


def run(model: kn.Model, given: dict[str, Tensor], options: kn.RunOptions | None = None) -> dict[str, Tensor]:
    """End, records and gradients of every world."""
    leaves = {n: t.clone().requires_grad_() for n, t in given.items()}
    path = kn.simulate(
        model,
        kn.State(leaves["q"], leaves["v"]),
        kn.Control(tau=leaves["tau"]),
        steps=STEPS,
        dt=2e-3,
        params={"gravity": leaves["gravity"]},
        record=["impulse"],
        options=options or kn.RunOptions(),
    )
    ends = {"q_end": path.end.q, "v_end": path.end.v, "impulse": path.recorded["impulse"]}
    healthy = path.status < 0
    loss = path.end.q[healthy].sum() + path.end.v[healthy].square().sum()
    gradients = zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True)
    found = {n: t.detach() for n, t in ends.items()} | {f"by {n}": g for n, g in gradients}
    return found | {"status": path.status}


@pytest.fixture(scope="module")
def together(standing: tuple[kn.Model, dict[str, Tensor]]) -> dict[str, Tensor]:
    found = run(*standing, kn.RunOptions(threads=1))
    assert (found["impulse"][..., 0] > 0).any(-1).all(), "a robot is in the air"
    return found


@pytest.mark.parametrize(("threads", "checkpoint"), [(2, 1), (4, 1), (8, 1), (2, 5)])
def test_threads_and_checkpoints_change_no_bit(standing, together, threads, checkpoint):
    found = run(*standing, kn.RunOptions(threads=threads, checkpoint=checkpoint))
    assert all(torch.equal(found[n], together[n]) for n in together)


def test_batch_and_order_change_no_bit(standing, together):
    model, given = standing
    order = torch.randperm(WORLDS, generator=torch.Generator().manual_seed(1))
    found = run(model, {n: t[order] for n, t in given.items()})
    assert all(torch.equal(found[n], together[n][order]) for n in together)
    for w in (0, 8, WORLDS - 1):
        found = run(model, {n: t[w] for n, t in given.items()})
        assert all(torch.equal(found[n], together[n][w]) for n in together)


KNEE, FAILING = "dog/fl_knee", [3, 11, 16]  # one in every register, so that each thread meets one


@pytest.mark.parametrize("spoiled", ["v", "tau", "gravity"])
def test_robots_that_fail_are_named_and_alone(standing, together, spoiled):
    """What is given is finite; what becomes of it is not. With and without states, which lie elsewhere in memory."""
    model, given = standing
    given = {n: t.clone() for n, t in given.items()}
    knee, step = int(model.tree.v_start[model.joints.index(KNEE)]), 3 if spoiled == "tau" else 0
    if spoiled == "v":
        given["v"][FAILING, knee] = 1e300
    elif spoiled == "tau":
        given["tau"][FAILING, step, 5] = -1.7e308
    else:
        given["gravity"][FAILING, 2] = -1.7e308
    with pytest.raises(kn.SimulationError, match="3 of 17 worlds became non-finite") as caught:
        run(model, given, kn.RunOptions(threads=3))
    assert caught.value.worlds == tuple(FAILING) and caught.value.steps == (step,) * 3
    assert f"world 3, step {step}, joint 'dog/" in str(caught.value) and "softer" not in str(caught.value)
    assert spoiled != "v" or f"joint {KNEE!r}, whose speed was 1e+300" in str(caught.value)
    others = [w for w in range(WORLDS) if w not in FAILING]
    for checkpoint in (1, 5):
        found = run(model, given, kn.RunOptions(checkpoint, threads=3, on_failure="status"))
        assert found.pop("status").tolist() == [step if w in FAILING else -1 for w in range(WORLDS)]
        assert all(torch.equal(numbers[others], together[n][others]) for n, numbers in found.items())
        assert all((numbers[FAILING] == 0).all() for n, numbers in found.items() if n.startswith("by "))


def test_without_states_the_error_says_how_to_get_a_name(standing):
    model, given = standing
    v = given["v"].clone()
    v[0, 0] = 1e300
    with pytest.raises(kn.SimulationError, match="checkpoint=1, to learn which joint"):
        run(model, given | {"v": v}, kn.RunOptions(checkpoint=4))
