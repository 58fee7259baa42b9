"""The same bits whatever the threads, the batch, the order of worlds, the lanes, the process and the checkpoints.

Shown on a soft block of 1,000 tetrahedra (scattered writes, sums over worlds, four chunks of elements), forward and
backward; one of 30,000 where threads share a world. Robots in contact, of which each world has others, show it to the
sign of a zero. A world that fails touches nothing but itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kinema.lang.autograd.options import RunOptions

sys.path.insert(0, str(Path(__file__).parents[1]))

import kinema as kn
import support
from kinema.errors import SimulationError
from kinema.lang.autograd import inputs
from kinema.lang.autograd.rollout import rollout
from kinema.lang.build import compiler
from kinema.lang.ir.analysis import ELEMENTS, WORLDS

CUBES = (8, 5, 5)
MANY_CUBES = (30, 20, 10)  # worth sharing even between more threads than CPUs
STEPS = 8
WORLDS_MADE = 17
PER_WORLD, SHARED = ("x", "v", "mu"), ("lam", "gravity", "dt")

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")


class Block:
    """A soft block; `run` gives final states and gradients by name."""

    def __init__(self, cubes: tuple[int, int, int] = CUBES, worlds: int = WORLDS_MADE) -> None:
        self.program, self.mesh = support.soft_block(cubes)
        self.state, self.parameters = support.soft_inputs(self.mesh, worlds)
        generator = torch.Generator().manual_seed(1)
        self.seeds = {n: torch.randn(self.state[n].shape, generator=generator, dtype=torch.float64) for n in ("x", "v")}

    def run(self, worlds: int | list[int], steps: int = STEPS, **options: Any) -> dict[str, Tensor]:
        """Run the numbered worlds, as a batch if it is a list; the gradient is that of seeds times final state."""
        given = {n: self.state[n][worlds] for n in ("x", "v")}
        given |= {n: p[worlds] if n in PER_WORLD else p for n, p in self.parameters.items()}
        given = {n: t.clone().requires_grad_(n in PER_WORLD + SHARED) for n, t in given.items()}
        state = {n: given[n] for n in ("x", "v")}
        rest = {n: t for n, t in given.items() if n not in state}
        r = rollout(self.program, steps, state, rest, options=RunOptions(**options))
        self.bytes, self.interval = r.bytes, r.interval
        loss = sum((r.final[n] * self.seeds[n][worlds]).nan_to_num().sum() for n in state)
        loss.backward()
        found = {f"final {n}": t.detach() for n, t in r.final.items()}
        found |= {f"gradient of {n}": given[n].grad for n in PER_WORLD + SHARED}
        return {**found, "status": r.status}


@pytest.fixture(scope="module")
def block() -> Block:
    return Block()


@pytest.fixture(scope="module")
def alone(block: Block) -> list[dict[str, Tensor]]:
    """Every world on its own, on one thread: the reference."""
    return [block.run(w, threads=1) for w in range(WORLDS_MADE)]


@pytest.fixture(scope="module")
def together(block: Block) -> dict[str, Tensor]:
    return block.run(list(range(16)), threads=1)


def differing(got: dict[str, Tensor], wanted: dict[str, Tensor], names: Iterator[str] | None = None) -> list[str]:
    """Names of the tensors that are not the same bit for bit."""
    return [n for n in (names or wanted) if not torch.equal(got[n], wanted[n])]


def per_world(found: dict[str, Tensor], at: int) -> dict[str, Tensor]:
    """What belongs to one world of a batch."""
    return {n: t[at] for n, t in found.items() if n.startswith("final") or n[12:] in PER_WORLD}


def test_the_reference_is_worth_comparing(block: Block, alone: list[dict[str, Tensor]]) -> None:
    assert len(block.mesh.tets) == 1000
    assert all(t.isfinite().all() and t.abs().max() > 0 for n, t in alone[0].items() if n != "status")
    assert differing(alone[0], alone[1], iter(n for n in alone[0] if n != "status")) == [
        n for n in alone[0] if n != "status"
    ]


def test_threads_share_one_world() -> None:
    large = Block(MANY_CUBES, 1)
    wanted = large.run(0, threads=1)
    for checkpoint in (1, 3):
        for threads in (2, 4, 8):
            assert differing(large.run(0, threads=threads, checkpoint=checkpoint), wanted) == [], (threads, checkpoint)


@pytest.mark.parametrize("threads", [2, 4, 8])
def test_threads_share_a_batch(block: Block, together: dict[str, Tensor], threads: int) -> None:
    # Sums over worlds too: the order of worlds is the same.
    assert differing(block.run(list(range(16)), threads=threads), together) == []


@pytest.mark.parametrize("batch", [1, 3, 16, 17])
def test_a_world_does_not_depend_on_its_batch(block: Block, alone: list[dict[str, Tensor]], batch: int) -> None:
    found = block.run(list(range(batch)), threads=2)
    for w in range(batch):
        assert differing(per_world(found, w), {n: alone[w][n] for n in per_world(found, w)}) == [], f"world {w}"
    # Lanes are worlds in the large batches, elements in the small ones.
    used = {options.lanes for options in block.program.plans}
    assert (WORLDS if batch >= 16 else ELEMENTS) in used


def test_the_order_of_worlds_does_not_matter(
    block: Block, alone: list[dict[str, Tensor]], together: dict[str, Tensor]
) -> None:
    order = torch.randperm(16, generator=torch.Generator().manual_seed(2)).tolist()
    found = block.run(order)
    for at, w in enumerate(order):
        assert differing(per_world(found, at), {n: alone[w][n] for n in per_world(found, at)}) == [], f"world {w}"
    # Sums over worlds are taken in another order: rounding only.
    for n in SHARED:
        torch.testing.assert_close(found[f"gradient of {n}"], together[f"gradient of {n}"], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("width", [1, 2, 8])
def test_widths_agree(
    block: Block, alone: list[dict[str, Tensor]], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(inputs, "width_of", lambda precision: width)
    monkeypatch.setattr(inputs, "world_width_of", lambda precision: width)
    assert differing(block.run(0, steps=STEPS), alone[0]) == []
    found = block.run([5, 6, 7] if width < 3 else list(range(4, 14)))
    at = 0 if width < 3 else 1
    assert differing(per_world(found, at), {n: alone[5][n] for n in per_world(found, at)}) == []
    assert width in {options.width for options in block.program.plans}


@pytest.mark.parametrize("checkpoint", [2, 3, 7, 8])
def test_checkpoints_agree(
    block: Block, alone: list[dict[str, Tensor]], together: dict[str, Tensor], checkpoint: int
) -> None:
    assert differing(block.run(0, checkpoint=checkpoint), alone[0]) == []
    assert differing(block.run(list(range(16)), checkpoint=checkpoint), together) == []


def test_checkpoints_agree_within_a_budget(block: Block) -> None:
    steps = 40
    state_bytes = sum(8 * 4 * len(block.mesh.vertices) for _ in ("x", "v"))
    everything = block.run(0, steps=steps)
    # Between what some of the states take and what all of them would.
    budget = int(block.bytes - 10 * state_bytes)
    assert differing(block.run(0, steps=steps, checkpoint="auto", memory_budget=budget), everything) == []
    assert block.interval > 1


def in_a_fresh_process(*runs: str, before: str = "") -> list[str]:
    """The bits of runs of a block in another process, which is given long enough for a machine that is very busy."""
    code = f"import os, sys; sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}\n"
    code += f"{before}\nfrom test_determinism import Block, bits\nblock = Block()\n"
    code += "".join(f"print(bits(block.run({run})))\n" for run in runs)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-len(runs) :]


def test_a_fresh_process_agrees(alone: list[dict[str, Tensor]]) -> None:
    assert in_a_fresh_process("3, threads=2") == [bits(alone[3])]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes cannot be bound to processors")
def test_eight_threads_on_two_busy_processors(block: Block, together: dict[str, Tensor]) -> None:
    """They must not wait for each other in vain: one world, whose steps meet at barriers, and a batch."""
    bind = f"os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[:2]})"
    busy = [subprocess.Popen([sys.executable, "-c", f"import os; {bind}\nwhile True: pass"]) for _ in range(2)]
    try:
        found = in_a_fresh_process("0, steps=100, threads=8", "list(range(16)), threads=8", before=bind)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert found == [bits(block.run(0, steps=100, threads=1)), bits(together)]


def bits(found: dict[str, Tensor]) -> str:
    return support.digest(*(t.numpy() for t in found.values()))


# -- contacts of one world beside those of others ------------------------------------------------------------------

CONTACTS = {
    "newton": {},
    "newton, bouncing": {"restitution": 0.3},
    "pgs over the matrix": {"solver": "pgs"},
    "pgs over entries": {"solver": "pgs", "cone": True},
    "pgs, warm start": {"solver": "pgs", "warm_start": True, "tolerance": 1e-6},
}
FALLING = 9  # worlds: more than a register has, so that one block is not full


def fall(model: kn.Model, worlds: Any, threads: int) -> dict[str, Tensor]:
    """Ants that fall from other heights, with other speeds; contacts of a world come and go beside those of others."""
    start, generator = model.initial_state(), torch.Generator().manual_seed(1)
    q = start.q.expand(FALLING, -1).clone()
    q[:, 2] += 0.3 * torch.rand(FALLING, generator=generator, dtype=torch.float64)
    v = 3.0 * torch.randn(FALLING, model.nv, generator=generator, dtype=torch.float64)
    state, options = kn.State(q[worlds].clone(), v[worlds].clone().requires_grad_()), kn.RunOptions(threads=threads)
    names = ["impulse", "limit_impulse", "gap"]
    path = kn.simulate(model, state, steps=100, dt=2e-3, record=names, options=options)
    found = {**path.recorded, **path.end.tensors}
    (found["gradient"],) = torch.autograd.grad(path.end.q.sum() + path.recorded["impulse"].sum(), state.v)
    return {n: t.detach() for n, t in found.items()}


@pytest.mark.filterwarnings("ignore::kinema.UnsolvedWarning")  # sweeps need not converge
@pytest.mark.parametrize("contact", CONTACTS)
def test_contacts_have_the_bits_they_have_alone(contact: str) -> None:
    scene = kn.Scene(contact=kn.Contact(**CONTACTS[contact]))
    scene.add_ground()
    scene.add_robot(kn.shapes.ant(), pos=(0.0, 0.0, 0.35))
    model = kn.compile(scene)
    wanted = fall(model, slice(None), 1)
    touching = (wanted["impulse"] != 0).flatten(2).any(-1).sum(-1)
    assert (touching > 0).sum() > FALLING // 2 and len({*touching.tolist()}) > 3
    for threads in (2, 3):
        found = fall(model, slice(None), threads)
        assert [n for n in wanted if support.digest(found[n].numpy()) != support.digest(wanted[n].numpy())] == []
    for w in (0, 3, FALLING - 1):
        found = fall(model, w, 1)
        assert [n for n in wanted if support.digest(found[n].numpy()) != support.digest(wanted[n][w].numpy())] == []


# -- a world that fails --------------------------------------------------------------------------------------------


@pytest.fixture()
def with_failure(block: Block) -> Iterator[int]:
    """World 5 is given a speed at which its forces overflow in the second step."""
    kept = block.state["v"][5, 7, 1].item()
    block.state["v"][5, 7, 1] = 1e160
    yield 5
    block.state["v"][5, 7, 1] = kept


@pytest.mark.parametrize("threads", [1, 4])
def test_a_failed_world_is_named_and_alone(
    block: Block, alone: list[dict[str, Tensor]], with_failure: int, threads: int
) -> None:
    with pytest.raises(SimulationError) as caught:
        block.run(list(range(16)), threads=threads)
    assert caught.value.worlds == (with_failure,) and caught.value.steps == (1,)
    found = block.run(list(range(16)), threads=threads, on_failure="status")
    assert found["status"].tolist() == [1 if w == with_failure else -1 for w in range(16)]
    for w in range(16):
        if w != with_failure:
            assert differing(per_world(found, w), {n: alone[w][n] for n in per_world(found, w)}) == [], f"world {w}"
        else:
            grads = {n: t for n, t in per_world(found, w).items() if n.startswith("gradient")}
            assert all((t == 0).all() for t in grads.values())


@pytest.mark.parametrize("checkpoint", [1, 3])
def test_a_failed_world_adds_nothing_to_shared_gradients(block: Block, with_failure: int, checkpoint: int) -> None:
    others = [w for w in range(16) if w != with_failure]
    wanted = block.run(others)
    found = block.run(list(range(16)), on_failure="status", checkpoint=checkpoint)
    assert differing(found, wanted, iter(f"gradient of {n}" for n in SHARED)) == []
