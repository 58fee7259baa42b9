"""The bridge to torch: what it takes, what it refuses, what it keeps, and gradients against torch's own."""

from __future__ import annotations

import copy
import gc
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kinema.errors import InputError, KinemaError, MemoryBudgetError, ProgramError, SimulationError
from kinema.lang import Array, Float, Index, Int, kernel, norm, vec3
from kinema.lang.autograd.options import RunOptions
from kinema.lang.autograd.rollout import Rollout, jvp, rollout
from kinema.lang.programs.plan import ADJOINT
from kinema.lang.programs.program import Program

PARTICLES = 5
DT = 0.01


@kernel
def swing(
    i: Index,
    x: Array[vec3],
    v: Array[vec3],
    anchor: Array[vec3],
    pin: Array[Int],
    inv_mass: Array[Float],
    stiffness: Float,
    push: vec3,
    x_next: Array[vec3],
    v_next: Array[vec3],
    length: Array[Float],
):
    """A particle on a spring of rest length 1, pushed, in semi-implicit Euler."""
    d = x[i] - anchor[pin[i]]
    r = norm(d)
    force = d * (-stiffness * (r - 1.0) / r) + push
    w = v[i] + (force * inv_mass[i] + vec3(0.0, -9.81, 0.0)) * 0.01
    v_next[i] = w
    x_next[i] = x[i] + w * 0.01
    length[i] = r


def pendulum(n: int = PARTICLES) -> Program:
    p = Program("pendulum")
    x, v = p.state("x", vec3, n), p.state("v", vec3, n)
    anchor, pin = p.parameter("anchor", vec3, 2), p.parameter("pin", Int, n)
    inv_mass, stiffness = p.parameter("inv_mass", Float, n), p.parameter("stiffness", Float)
    push, length = p.control("push", vec3), p.output("length", Float, n)
    p.call(swing, x, v, anchor, pin, inv_mass, stiffness, push, x.next, v.next, length, count=n)
    return p


@pytest.fixture(scope="module")
def program() -> Program:
    return pendulum()


def inputs(steps: int = 3, batch: tuple[int, ...] = (), n: int = PARTICLES, seed: int = 0) -> dict[str, Tensor]:
    """Tensors by name; x, v and push carry the batch."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    return {
        "x": normal(*batch, n, 3) + torch.tensor([1.5, 0.0, 0.0], dtype=torch.float64),
        "v": normal(*batch, n, 3),
        "anchor": 0.1 * normal(2, 3),
        "pin": torch.arange(n, dtype=torch.int32) % 2,
        "inv_mass": 1.0 + normal(n).abs(),
        "stiffness": torch.tensor(40.0, dtype=torch.float64),
        "push": normal(*batch, steps, 3),
    }


def run(
    program: Program, given: dict[str, Tensor], steps: int = 3, record: str | Sequence[str] = (), **options: Any
) -> Rollout:
    state = {n: given[n] for n in ("x", "v") if n in given}
    parameters = {n: given[n] for n in ("anchor", "pin", "inv_mass", "stiffness") if n in given}
    rest = {n: t for n, t in given.items() if n not in state and n not in parameters}
    return rollout(program, steps, state, parameters, rest, record=record, options=RunOptions(**options))


def reference(given: dict[str, Tensor], steps: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same steps in torch: final x and v, trajectory of x, output."""
    x, v = given["x"], given["v"]
    trajectory, lengths = [x], []
    for t in range(steps):
        d = x - given["anchor"][given["pin"].long()]
        r = d.norm(dim=-1)
        force = d * (-given["stiffness"] * (r - 1.0) / r)[..., None] + given["push"][..., t, None, :]
        v = v + (force * given["inv_mass"][:, None] + torch.tensor([0.0, -9.81, 0.0], dtype=x.dtype)) * DT
        x = x + v * DT
        trajectory.append(x)
        lengths.append(r)
    return x, v, torch.stack(trajectory, -3), torch.stack(lengths, -2)


def weights(shape: torch.Size, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def loss_of(x: Tensor, v: Tensor, along: Tensor, lengths: Tensor) -> Tensor:
    parts = [(t * weights(t.shape, k)).sum() for k, t in enumerate((x, v, along, lengths))]
    return parts[0] + 0.1 * parts[1] + parts[2] + parts[3]


def our_loss(program: Program, given: dict[str, Tensor], steps: int, **options: object) -> Tensor:
    r = run(program, given, steps, record=("x", "length"), **options)
    return loss_of(r.final["x"], r.final["v"], r.trajectory["x"], r.outputs["length"])


REAL = ("x", "v", "anchor", "inv_mass", "stiffness", "push")


def gradients(loss: Tensor, given: dict[str, Tensor]) -> dict[str, Tensor]:
    return dict(zip(REAL, torch.autograd.grad(loss, [given[n] for n in REAL]), strict=True))


def requiring(given: dict[str, Tensor], names: tuple[str, ...] = REAL) -> dict[str, Tensor]:
    return {n: t.detach().requires_grad_() if n in names else t for n, t in given.items()}


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-10) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


# -- gradients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [(), (6,)], ids=["lanes are elements", "lanes are worlds"])
@pytest.mark.parametrize("steps", [1, 32, 256])
def test_values_and_gradients_are_those_of_torch(program: Program, steps: int, batch: tuple[int, ...]):
    given = requiring(inputs(steps, batch))
    theirs = loss_of(*reference(given, steps))
    ours = our_loss(program, given, steps)
    assert abs(ours.item() - theirs.item()) <= 1e-12 * abs(theirs.item()) + 1e-12
    expected = gradients(theirs, given)
    for name, gradient in gradients(ours, given).items():
        assert_close(gradient, expected[name])


@pytest.mark.parametrize("steps", [1, 32, 256])
def test_gradients_are_those_of_central_differences(program: Program, steps: int):
    given = requiring(inputs(steps))
    found = gradients(our_loss(program, given, steps), given)
    eps = 1e-6
    for name in REAL:
        direction = weights(given[name].shape, 7)

        def moved(by: float, name: str = name, direction: Tensor = direction) -> float:
            with torch.no_grad():
                return our_loss(program, {**given, name: given[name] + by * direction}, steps).item()

        expected = (moved(eps) - moved(-eps)) / (2 * eps)
        # rounding of the loss (about 1e-13 relative) over eps, and eps^2
        assert (found[name] * direction).sum().item() == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("interval", [2, 3, 5, 7, "auto"])
def test_checkpoints_change_no_bit(program: Program, interval: int | str):
    given = requiring(inputs(7))
    results = []
    for checkpoint in (1, interval):
        r = run(program, given, 7, checkpoint=checkpoint, record="length")
        assert r.interval == checkpoint or checkpoint == "auto"
        results.append((r.final["x"], *gradients(r.final["x"].sum() + r.outputs["length"].sum(), given).values()))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("worlds", [4, 11])
def test_moving_arrays_block_by_block_changes_no_bit(program: Program, worlds: int, threads: int):
    """With all states recorded, native memory holds only the blocks at work; with one of them, it holds everything."""
    given = inputs(5, (worlds,))
    given["push"] = given["push"].mT.contiguous().mT  # not dense
    given, results = requiring(given), []
    for record in (("x", "length"), ("x", "v", "length")):
        found: list[Tensor] = []
        for part in ("end", "path", "output"):
            r = run(program, given, 5, record=record, threads=threads)
            chosen = {"end": r.final["v"], "path": r.trajectory["x"][:, 2:4], "output": r.outputs["length"][:, 1]}[part]
            found += [chosen, *gradients(chosen.square().sum(), given).values()]
        results.append(found)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_edits_of_trajectories_that_were_moved_are_caught(program: Program):
    given = requiring(inputs(3, (6,)))
    r = run(program, given, record=("x", "v"))
    loss = r.final["x"].sum()
    with torch.no_grad():
        r.trajectory["v"][0, 1] = 0.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradients(loss, given)


@pytest.mark.parametrize("batch", [(), (2,), (6,)])
def test_forward_mode_is_the_transpose_of_reverse_mode(program: Program, batch: tuple[int, ...]):
    given = requiring(inputs(9, batch))
    final = reference(given, 9)[0]
    tangents = {n: weights(given[n].shape, 3 + k) for k, n in enumerate(REAL)}
    state = {n: given[n] for n in ("x", "v")}
    parameters = {n: given[n] for n in ("anchor", "pin", "inv_mass", "stiffness")}
    values, rates = jvp(program, 9, state, tangents, parameters, {"push": given["push"]})
    assert_close(values["x"], final.detach(), 1e-13)
    found = gradients((run(program, given, 9).final["x"] * weights(final.shape, 1)).sum(), given)
    expected = sum((found[n] * tangents[n]).sum() for n in REAL)
    assert (rates["x"] * weights(final.shape, 1)).sum().item() == pytest.approx(expected.item(), rel=1e-12)


# -- what is refused --------------------------------------------------------------------------------------------

SPARSE = torch.eye(PARTICLES, 3, dtype=torch.float64).to_sparse()
WRONG = {
    "wrong dtype": ("anchor", lambda t: t.float(), "torch.float64, like state 'x'", ".to(torch.float64)"),
    "integers for Float": ("v", lambda t: t.long(), "state 'v' has the wrong dtype", ".to(torch.float64)"),
    "half precision": ("x", lambda t: t.half(), "float32 or float64", ".double()"),
    "complex numbers": ("x", lambda t: t.to(torch.complex128), "complex128", ".double()"),
    "reals for Int": ("pin", lambda t: t.double(), "torch.int32 or torch.int64", ".to(torch.int32)"),
    "a list of reals for Int": ("pin", lambda t: [0.5] * PARTICLES, "torch.int32 or torch.int64", ".to(torch.int32)"),
    "a number beyond 32 bits": ("pin", lambda t: t.long() + 2**40, "does not fit into 32 bits", "2**31"),
    "wrong shape": ("x", lambda t: t[:, :2], "(5, 2)", "(*batch, 5, 3)"),
    "too few dimensions": ("x", lambda t: t[0], "(3)", "(*batch, 5, 3)"),
    "wrong number of steps": ("push", lambda t: t[:2], "(2, 3)", "(*batch, 3, 3) (the axis after the batch is steps)"),
    "another device": ("inv_mass", lambda t: t.to("meta"), "on another device", "meta tensors have none"),
    "sparse": ("v", lambda t: SPARSE, "must be a dense tensor", ".to_dense()"),
    "not a tensor": ("stiffness", lambda t: "stiff", "parameter 'stiffness' is not a tensor", "str"),
    "missing": ("inv_mass", None, "parameter 'inv_mass' is missing", "anchor, pin, inv_mass, stiffness"),
    "missing control": ("push", None, "control 'push' is missing", "push"),
    "other batches": ("v", lambda t: t.expand(4, *t.shape), "batch dimensions do not match", "x: (2,), v: (4,)"),
    "an empty batch": ("x", lambda t: t.expand(0, *t.shape), "the batch is empty", "(0,)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_inputs_are_refused(program: Program, case: str):
    name, change, *fragments = WRONG[case]
    given = inputs()
    if case == "other batches":
        given["x"] = given["x"].expand(2, -1, -1)
    if change is None:
        del given[name]
    else:
        given[name] = change(given[name])
    with pytest.raises(InputError) as caught:
        run(program, given)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_inputs_of_a_remembered_form_are_checked_again(program: Program):
    """Names, kinds, types, shapes and numbers may change from call to call; each is refused as at first."""
    given = inputs()
    parameters = {n: given[n] for n in ("anchor", "pin", "inv_mass", "stiffness")}
    state, controls = {n: given[n] for n in ("x", "v")}, {"push": given["push"]}
    for _ in range(2):
        rollout(program, 3, state, parameters, controls)
        wrong = [
            ({**state, **parameters}, {}, controls, "has no state 'anchor'"),
            (state, {**parameters, **controls}, {}, "has no parameter 'push'"),
            (state, {**parameters, "anchor": given["anchor"].float()}, controls, "wrong dtype"),
            (state, {**parameters, "anchor": given["anchor"].to_sparse()}, controls, "dense"),
            (state, {**parameters, "anchor": given["anchor"].to("meta")}, controls, "another device"),
            (state, {**parameters, "anchor": given["anchor"] / 0.0}, controls, "not finite"),
            (state, {**parameters, "anchor": given["anchor"][:1]}, controls, "wrong shape"),
            (state, parameters, {"push": given["push"][:2]}, "wrong shape"),
        ]
        for s, p, c, fragment in wrong:
            with pytest.raises(InputError, match=fragment):
                rollout(program, 3, s, p, c)
        with pytest.raises(InputError, match="wrong shape"):
            rollout(program, 2, state, parameters, controls)


def test_unknown_names_are_refused(program: Program):
    with pytest.raises(InputError, match="has no control 'pull'\n  expected: push"):
        run(program, {**inputs(), "pull": torch.zeros(3, 3)})
    with pytest.raises(InputError, match="no state or output 'speed'\n  expected: x, v, length"):
        run(program, inputs(), record=("x", "speed"))
    with pytest.raises(InputError, match="state: pass tensors by name\n  got: Tensor\n  expected: a dictionary"):
        rollout(program, 3, torch.zeros(5, 3))
    with pytest.raises(InputError, match="a rollout needs a Program"):
        rollout(swing, 3, {})


@pytest.mark.parametrize(
    "options, fragment",
    [
        ({"steps": 0}, "steps must be a positive integer\n  got: 0"),
        ({"steps": 2.0}, "steps must be a positive integer\n  got: 2.0"),
        ({"threads": 0}, "threads must be a positive integer"),
        ({"checkpoint": 0}, "checkpoint must be a positive integer or 'auto'\n  got: 0"),
        ({"checkpoint": "often"}, "got: 'often'"),
        ({"checkpoint": True}, "got: True"),
        ({"on_failure": "ignore"}, "got: 'ignore'\n  expected: 'raise' or 'status'"),
    ],
)
def test_wrong_options_are_refused(program: Program, options: dict, fragment: str):
    with pytest.raises(InputError) as caught:
        run(program, inputs(), **options)
    assert fragment in str(caught.value)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "name, at, where",
    [
        ("x", (1, 2, 4, 1), "world 5, element 4, number 1: state 'x' is not finite"),
        ("push", (0, 1, 2, 0), "world 1, step 2, number 0: control 'push' is not finite"),
        ("inv_mass", (3,), "element 3: parameter 'inv_mass' is not finite"),
        ("stiffness", (), "parameter 'stiffness' is not finite"),
    ],
)
def test_input_that_is_not_finite_is_refused_with_its_place(
    program: Program, name: str, at: tuple[int, ...], where: str, bad: float
):
    given = inputs(3, (2, 3))
    given[name][at] = bad
    with pytest.raises(InputError) as caught:
        run(program, given)
    assert str(caught.value).startswith(where)


def test_trajectories_of_states_need_every_checkpoint(program: Program):
    with pytest.raises(InputError, match="trajectories of states need checkpoint=1"):
        run(program, requiring(inputs()), record="x", checkpoint=2)
    assert run(program, requiring(inputs()), record="x", checkpoint="auto").interval == 1


def test_a_rollout_beyond_the_budget_names_the_interval_that_fits(program: Program):
    with pytest.raises(MemoryBudgetError, match="checkpoint="):
        run(program, requiring(inputs(400)), 400, memory_budget=150_000)
    assert run(program, requiring(inputs(400)), 400, memory_budget=150_000, checkpoint="auto").interval > 1
    with pytest.raises(MemoryBudgetError), torch.no_grad():
        run(program, inputs(), memory_budget=100)


# -- tensors of all kinds ---------------------------------------------------------------------------------------


def strange(t: Tensor) -> dict[str, Tensor]:
    """Tensors with the same values as t (at least two dimensions) in other places of memory."""
    spread = torch.zeros(*(2 * n for n in t.shape), dtype=t.dtype)[tuple(slice(1, None, 2) for _ in t.shape)]
    spread.copy_(t)
    return {
        "every other number": spread,
        "transposed": t.transpose(-1, -2).contiguous().transpose(-1, -2),
        "reordered": t.movedim(0, -1).contiguous().movedim(-1, 0),
        "negative bit": torch.complex(t, -t).conj().imag,
        "with an offset": torch.cat([t.flatten()[:1], t.flatten()])[1:].reshape(t.shape),
    }


@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize("how", strange(torch.zeros(2, 2, dtype=torch.float64)))
def test_tensors_may_lie_in_memory_as_they_like(program: Program, how: str, batch: tuple[int, ...]):
    given = inputs(3, batch)
    expected = run(program, given).final["x"]
    other = {n: strange(t)[how] if t.ndim > 1 else t for n, t in given.items()}
    assert all(torch.equal(other[n], given[n]) for n in given)
    found = requiring(other)
    for name, t in other.items():  # detach() makes all but the layout new
        assert found[name].stride() == t.stride()
    final = run(program, found).final["x"]
    assert torch.equal(final, expected)
    twin = requiring(given)
    one, two = gradients(final.sum(), found), gradients(run(program, twin).final["x"].sum(), twin)
    assert all(torch.equal(one[n], two[n]) for n in REAL)


def test_batches_of_any_shape_are_worlds_one_by_one(program: Program):
    given = requiring(inputs(3, (2, 3)))
    r = run(program, given, record=("v", "length"))
    assert r.final["x"].shape == (2, 3, PARTICLES, 3) and r.status.shape == (2, 3)
    assert r.trajectory["v"].shape == (2, 3, 4, PARTICLES, 3) and r.outputs["length"].shape == (2, 3, 3, PARTICLES)
    for i in range(2):
        for j in range(3):
            alone = {n: t[i, j] if n in ("x", "v", "push") else t for n, t in given.items()}
            one = run(program, alone, record=("v", "length"))
            assert torch.equal(one.final["x"], r.final["x"][i, j])
            assert torch.equal(one.trajectory["v"], r.trajectory["v"][i, j])
            assert torch.equal(one.outputs["length"], r.outputs["length"][i, j])


def test_batches_are_broadcast_and_gradients_summed(program: Program):
    given = inputs(3, (4,))
    given |= {"v": inputs()["v"], "x": inputs(3, (1,))["x"], "anchor": inputs()["anchor"].expand(4, 2, 3)}
    given["inv_mass"] = given["inv_mass"].expand(4, PARTICLES) * torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    given = requiring(given)
    r = run(program, given)
    assert r.final["x"].shape == (4, PARTICLES, 3)
    found = gradients((r.final["x"] * weights(r.final["x"].shape, 0)).sum(), given)
    assert {n: tuple(t.shape) for n, t in found.items()} == {n: tuple(given[n].shape) for n in REAL}
    worlds = [{**given, "x": given["x"][0], "push": given["push"][w], "anchor": given["anchor"][w]} for w in range(4)]
    finals = [reference({**g, "inv_mass": given["inv_mass"][w]}, 3)[0] for w, g in enumerate(worlds)]
    expected = gradients((torch.stack(finals) * weights(r.final["x"].shape, 0)).sum(), given)
    for name in REAL:
        assert_close(found[name], expected[name])


def test_cotangents_of_a_broadcast_trajectory_are_summed(program: Program):
    given = inputs(batch=(4,))
    narrow = requiring({**given, "v": given["v"][:1]})
    wide = requiring({**given, "v": given["v"][:1].repeat(4, 1, 1)})
    weight = weights(torch.Size((4, 4, PARTICLES, 3)), 7)
    found, expected = ((run(program, g, record="v").trajectory["v"] * weight).sum() for g in (narrow, wide))
    ours, theirs = gradients(found, narrow), gradients(expected, wide)
    assert torch.equal(ours["v"], theirs["v"].sum(0, keepdim=True))
    assert all(torch.equal(ours[n], theirs[n]) for n in REAL if n != "v")


def test_worlds_may_have_tables_of_their_own(program: Program):
    given = requiring(inputs(3, (6,)))
    given["pin"] = torch.randint(0, 2, (6, PARTICLES), generator=torch.Generator().manual_seed(0))
    r = run(program, given)
    loss = (r.final["x"] * weights(r.final["x"].shape, 0)).sum()
    finals = [reference({**given, **{n: given[n][w] for n in ("x", "v", "push", "pin")}}, 3)[0] for w in range(6)]
    expected = gradients((torch.stack(finals) * weights(r.final["x"].shape, 0)).sum(), given)
    for name, gradient in gradients(loss, given).items():
        assert_close(gradient, expected[name])


def test_wide_integers_lists_and_arrays_are_taken(program: Program):
    given = inputs()
    expected = run(program, given).final["x"]
    small = given["pin"].numpy()
    for pin in (given["pin"].long(), small.tolist(), small, small.astype(np.int64)):
        assert torch.equal(run(program, {**given, "pin": pin}).final["x"], expected)
    plain = {**given, "x": given["x"].numpy()[::-1].copy()[::-1], "stiffness": 40, "anchor": given["anchor"].tolist()}
    assert torch.equal(run(program, plain).final["x"], expected)


def test_single_precision_is_chosen_by_the_inputs(program: Program):
    given = inputs(32)
    single = {n: t.float() if t.is_floating_point() else t for n, t in given.items()}
    r = run(program, single, 32)
    assert r.final["x"].dtype == torch.float32
    assert (r.final["x"] - run(program, given, 32).final["x"]).abs().max() < 1e-5


# -- what is computed and kept ----------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("x",), ("stiffness",), ("anchor", "push")])
def test_only_what_requires_gradients_gets_them(names: tuple[str, ...]):
    program = pendulum()
    given = requiring(inputs(), names)
    run(program, given).final["x"].sum().backward()
    assert {n for n, t in given.items() if t.grad is not None} == set(names)
    reverse = [o for o, plan in program.plans.items() if "reverse" in plan._lists]
    assert [o.wrt for o in reverse] == [frozenset(names) - {"x"}]
    cotangents = {name for o in reverse for name, space in program.plans[o].table if space == ADJOINT}
    assert cotangents - {"length"} == {"x", "v", *names}  # an output that is not recorded stays zero


def test_runs_without_gradients_keep_nothing(program: Program):
    given = requiring(inputs(500))
    with torch.no_grad():
        r = run(program, given, 500)
    assert r.interval == 0 and r.final["x"].grad_fn is None
    assert r.bytes < run(program, given, 500).bytes / 2
    assert run(program, inputs()).interval == 0
    with torch.inference_mode():
        assert torch.equal(run(program, given, 500).final["x"], r.final["x"])


def test_a_loss_on_the_final_state_makes_no_cotangent_of_the_trajectory():
    program = pendulum()
    given = requiring(inputs())
    run(program, given, record=("x", "v")).final["x"].sum().backward()
    assert {o.seeds for o in program.plans} == {frozenset()}
    assert not any(space == "seed" for plan in program.plans.values() for _, space in plan.table)
    run(program, given, record=("x", "v")).trajectory["v"].sum().backward()
    assert {o.seeds for o in program.plans} == {frozenset(), frozenset({"v"})}


def test_a_trajectory_is_the_checkpoints_themselves(program: Program):
    given = requiring(inputs())
    edits = [
        lambda t: t.mul_(2.0),
        lambda t: t[1].zero_(),
        lambda t: t.detach().zero_(),
    ]
    for edit in edits:
        r = run(program, given, record="x")
        with pytest.raises(RuntimeError, match="inplace"):
            edit(r.trajectory["x"])
            r.final["x"].sum().backward()
    r = run(program, given, record="x")
    twice = run(program, given, record="x").final["x"].sum()
    r.final["x"].detach().zero_()  # a copy: nothing depends on it
    torch.testing.assert_close(gradients(r.final["x"].sum(), given)["x"], gradients(twice, given)["x"], rtol=0, atol=0)


def test_a_trajectory_keeps_nothing_else_alive(program: Program):
    r = run(program, requiring(inputs(50)), 50, record="x")
    kept = r.trajectory["x"].untyped_storage().nbytes()
    assert kept <= 51 * 16 * 4 * 8 + 64  # packets of sixteen vectors of four numbers, and what aligns them


def test_a_program_is_forgotten_with_all_that_was_kept_for_it():
    program = pendulum()
    run(program, requiring(inputs()), record=("x", "length")).final["x"].sum().backward()
    gone = weakref.ref(program)
    del program
    gc.collect()
    assert gone() is None


def test_inputs_edited_before_the_reverse_sweep_are_noticed(program: Program):
    given = requiring(inputs())
    final = run(program, given).final["x"].sum()
    with torch.no_grad():
        given["x"].zero_()
    with pytest.raises(RuntimeError, match="inplace"):
        final.backward()


def test_the_graph_is_freed_by_the_reverse_sweep(program: Program):
    given = requiring(inputs())
    final = run(program, given).final["x"].sum()
    final.backward(retain_graph=True)
    once = given["x"].grad.clone()
    final.backward()
    assert torch.equal(given["x"].grad, 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        final.backward()
    assert not [t for t in final.grad_fn.next_functions[0][0].__dict__.values() if isinstance(t, Tensor)]


def test_saved_tensors_may_be_moved_by_hooks(program: Program):
    given = requiring(inputs())
    expected = gradients(run(program, given).final["x"].sum(), given)
    offset = torch.zeros(3, dtype=torch.uint8)

    def move(t: Tensor) -> Tensor:  # to an odd address
        return torch.cat([offset, t])[3:] if t.dtype == torch.uint8 else t

    with torch.autograd.graph.saved_tensors_hooks(move, lambda t: t):
        found = gradients(run(program, given).final["x"].sum(), given)
    assert all(torch.equal(found[n], expected[n]) for n in REAL)


# -- what is not available --------------------------------------------------------------------------------------


def test_a_second_derivative_is_refused(program: Program):
    given = requiring(inputs())
    for loss in (run(program, given).final["x"].sum(), (run(program, given).final["x"] ** 2).sum()):
        (gradient,) = torch.autograd.grad(loss, given["x"], create_graph=True)
        with pytest.raises(KinemaError, match="second derivatives of a rollout are not available"):
            gradient.sum().backward()


def test_transforms_are_refused(program: Program):
    given = inputs()

    def final(x: Tensor) -> Tensor:
        return run(program, {**given, "x": x}).final["x"].sum()

    with pytest.raises(KinemaError, match="torch.func transforms"):
        torch.func.grad(final)(given["x"])
    with pytest.raises(KinemaError, match="torch.func transforms"):
        torch.func.vmap(final)(given["x"].expand(4, -1, -1))
    with pytest.raises(KinemaError, match="torch.func transforms"):
        torch.func.jvp(final, (given["x"],), (given["x"],))
    with pytest.raises(KinemaError, match="batched gradients"):
        torch.autograd.functional.jacobian(
            lambda x: run(program, {**given, "x": x}).final["x"], given["x"], vectorize=True
        )


def test_a_program_is_not_pickled(program: Program):
    for attempt in (pickle.dumps, copy.deepcopy):
        with pytest.raises(ProgramError, match="'pendulum' cannot be pickled") as caught:
            attempt(program)
        assert "send the function that makes it" in str(caught.value)


# -- failures ---------------------------------------------------------------------------------------------------


def failing(batch: int = 6) -> dict[str, Tensor]:
    """World 2 starts on its anchor, where 1 / r is infinite."""
    given = inputs(3, (batch,))
    given["x"][2, 1] = given["anchor"][given["pin"][1]]
    return given


def test_a_failed_world_is_named(program: Program):
    with pytest.raises(SimulationError, match="1 of 6 worlds of 'pendulum' became non-finite") as caught:
        run(program, failing())
    assert caught.value.worlds == (2,) and caught.value.steps == (0,)
    with pytest.raises(SimulationError):
        run(program, requiring(failing()))
    given = failing()
    parameters = {n: given[n] for n in ("anchor", "pin", "inv_mass", "stiffness")}
    with pytest.raises(SimulationError):
        jvp(program, 3, {n: given[n] for n in ("x", "v")}, {}, parameters, {"push": given["push"]})


@pytest.mark.parametrize("record", ["x", ("x", "v")], ids=["kept", "moved"])
@pytest.mark.parametrize("batch", [3, 6], ids=["lanes are elements", "lanes are worlds"])
def test_a_failed_world_leaves_the_others_alone(program: Program, batch: int, record: str | tuple[str, ...]):
    given, alive = requiring(failing(batch)), [w for w in range(batch) if w != 2]
    others = requiring({n: t.detach()[alive] if n in ("x", "v", "push") else t for n, t in given.items()})
    r = run(program, given, on_failure="status", record=record)
    assert r.status.tolist() == [0 if w == 2 else -1 for w in range(batch)]
    expected = run(program, others, record=record)
    assert torch.equal(r.final["x"][alive], expected.final["x"])
    found = gradients(r.final["x"][alive].sum() + r.trajectory["x"].sum(), given)
    wanted = gradients(expected.final["x"].sum() + expected.trajectory["x"].sum(), others)
    for name in ("x", "v", "push"):
        assert torch.equal(found[name][alive], wanted[name]) and not found[name][2].any()
    for name in ("anchor", "inv_mass", "stiffness"):
        assert torch.equal(found[name], wanted[name])


# -- processes, threads, interrupts -----------------------------------------------------------------------------


class Worlds(torch.utils.data.Dataset):
    """Final states and gradients, computed by the worker that loads them."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __len__(self) -> int:
        return 8

    def __getitem__(self, k: int) -> tuple[Tensor, Tensor]:
        given = requiring(inputs(3, (6,), seed=k))
        final = run(self.program, given, threads=2).final["x"]
        return final.detach(), gradients(final.sum(), given)["stiffness"]


def test_workers_of_a_data_loader_may_simulate(program: Program):
    worlds = Worlds(program)
    expected = [worlds[k] for k in range(8)]  # the pool of the parent is awake when it forks
    loader = torch.utils.data.DataLoader(worlds, batch_size=None, num_workers=2, multiprocessing_context="fork")
    for (final, gradient), (x, g) in zip(loader, expected, strict=True):
        assert torch.equal(final, x) and torch.equal(gradient, g)
    assert torch.equal(worlds[0][0], expected[0][0])


def in_threads(jobs: list) -> list:
    """The results of functions run at the same time."""
    results: list = [None] * len(jobs)

    def work(k: int) -> None:
        try:
            results[k] = jobs[k]()
        except BaseException as error:
            results[k] = error

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_threads_may_simulate_at_the_same_time():
    programs = [pendulum(), pendulum()]
    shared = programs[0]

    def job(program: Program, seed: int) -> list[Tensor]:
        found = []
        for batch in ((), (6,)):
            given = requiring(inputs(64, batch, seed=seed))
            final = run(program, given, 64, threads=2).final["x"]
            found += [final.detach(), *gradients(final.sum(), given).values()]
        return found

    together = in_threads([lambda k=k, p=p: job(p, k) for k, p in enumerate([shared, shared, programs[1], shared])])
    for k, found in enumerate(together):
        assert isinstance(found, list), found
        assert all(torch.equal(a, b) for a, b in zip(found, job(programs[0], k), strict=True))


@kernel
def decay(i: Index, x: Array[Float], rate: Float, x_next: Array[Float]):
    x_next[i] = x[i] * (1.0 - rate)


def decaying() -> Program:
    p = Program("decay")
    x, rate = p.state("x", Float, 4), p.parameter("rate", Float)
    p.call(decay, x, rate, x.next, count=4)
    return p


INTERRUPTED = """
import signal
import sys
sys.path.insert(0, {folder!r})
import torch
import test_bridge as t
from kinema.lang.autograd.options import RunOptions
from kinema.lang.autograd.rollout import rollout

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it for jobs in the background
program, rate = t.decaying(), {{"rate": 1e-9}}

def run(steps):
    x = torch.ones(4, dtype=torch.float64, requires_grad={backward})
    return rollout(program, steps, {{"x": x}}, rate, options=RunOptions(checkpoint=1000)).final["x"].sum()

run(3).backward() if {backward} else run(3)
loss = run({steps}) if {backward} else None
print("begin", flush=True)
try:
    loss.backward() if {backward} else run({steps})
    print("not interrupted", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(run(3).item(), flush=True)
"""


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_an_interrupt_ends_the_native_call(tmp_path: Path, backward: bool):
    script = tmp_path / "long.py"
    steps = 20_000_000 if backward else 2_000_000_000
    script.write_text(INTERRUPTED.format(folder=str(Path(__file__).parent), steps=steps, backward=backward))
    child = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stderr is not None
    assert child.stdout.readline() == "begin\n", child.stderr.read()
    time.sleep(0.3)
    sent = time.monotonic()
    child.send_signal(signal.SIGINT)
    answer = child.stdout.readline()
    took = time.monotonic() - sent
    rest, errors = child.stdout.read(), child.stderr.read()  # what readline has taken too
    child.wait(timeout=60)
    assert answer == "interrupted\n" and took < 1.0, errors
    assert float(rest) == pytest.approx(4.0) and not errors


@pytest.mark.parametrize("thread", ["main", "another"])
def test_progress_is_reported_and_its_errors_end_the_call(thread: str):
    program, steps = pendulum(1), 4_000_000
    given = inputs(1, n=1)
    given["push"] = given["push"].expand(steps, 3)
    seen: list[tuple[int, int]] = []

    def watch(done: int, of: int) -> None:
        seen.append((done, of))
        if len(seen) == 3:
            raise ZeroDivisionError("stop here")

    def job() -> object:
        try:
            for _ in range(100):
                run(program, given, steps, progress=watch)
        except ZeroDivisionError as error:
            return error
        return "nothing raised"

    found = job() if thread == "main" else in_threads([job])[0]
    assert str(found) == "stop here"
    assert len(seen) == 3 and all(0 <= done <= steps and of == steps for done, of in seen)
    assert run(program, inputs(2, n=1), 2).final["x"].shape == (1, 3)


def test_a_long_rollout_shows_its_progress(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kinema.lang.runtime.progress.DELAY", 0.0)
    monkeypatch.setattr("kinema.lang.runtime.progress.PERIOD", 0.0)
    program, steps = pendulum(1), 3_000_000
    given = inputs(1, n=1)
    run(program, {**given, "push": given["push"].expand(steps, 3)}, steps)
    assert "simulating pendulum" in capfd.readouterr().err
