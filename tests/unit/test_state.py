"""States, controls, options of runs, trajectories and numbers in place of the model's own, as users handle them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree

import kinema as kn
from kinema.errors import InputError
from kinema.lang import Float, func, sin, vec3
from kinema.lang.build import compiler
from kinema.scene.description import Actuator, Body, Joint, MassProperties, Pose, Robot, Shape
from kinema.scene.shapes.sheet import sheet

needs_compiler = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")

F64 = torch.float64
STEPS, DT = 6, 1e-3
HAND = "arm/hand"


@func
def tide(strength: Float, time: Float):
    """A force that changes with time."""
    return vec3(0.0, 0.0, strength * sin(time))


def arm() -> Robot:
    """Two links with motors; the first has a limit."""
    told = MassProperties(0.6, (0.1, 0.0, 0.0), (1e-3, 0.0, 0.0, 4e-3, 0.0, 4e-3))
    hinge: dict[str, Any] = {"kind": "revolute", "axis": (0.0, 1.0, 0.0)}
    bodies = (
        Body("upper", joints=(Joint("shoulder", **hinge, lower=-1.0, upper=0.1),), mass=told),
        Body("hand", "upper", Pose((0.2, 0.0, 0.0)), (Joint("elbow", **hinge),), told, (Shape("sphere", (0.03,)),)),
    )
    return Robot("arm", bodies, (Actuator("one", "shoulder"), Actuator("two", "elbow")))


@pytest.fixture(scope="module")
def model() -> kn.Model:
    """All that a state can have: joints, particles, impulses of a warm start."""
    scene = kn.Scene(contact=kn.Contact(solver="pgs", warm_start=True))
    scene.add_robot(arm())
    scene.add_cloth(sheet(0.2, 0.2, (1, 1)), "cloth", skin=None, pos=(0.0, 0.0, 1.0))
    scene.add_particles([[0.0, 0.0, 2.0]], "bead", mass=1.0, skin=None)
    return kn.compile(scene, F64)


@pytest.fixture(scope="module")
def robot() -> kn.Model:
    scene = kn.Scene()
    scene.add_robot(arm())
    return kn.compile(scene)


def drawn(model: kn.Model, *batch: int) -> kn.State:
    """A state as placed, and some more or less of everything."""
    generator = torch.Generator().manual_seed(0)
    placed = model.initial_state().expand(*batch)
    return placed.map(lambda t: t + 0.01 * torch.randn(t.shape, dtype=t.dtype, generator=generator))


def equal(one: kn.State, two: kn.State) -> bool:
    mine, other = one.tensors, two.tensors
    return list(mine) == list(other) and all(t.dtype == other[n].dtype and t.equal(other[n]) for n, t in mine.items())


# -- states ----------------------------------------------------------------------------------------------------------


def test_a_state_has_what_its_model_has(model, robot):
    assert {n: tuple(t.shape) for n, t in model.initial_state().tensors.items()} == {
        "q": (2,),
        "v": (2,),
        "x": (5, 3),
        "xd": (5, 3),
        "impulses": (1,),
    }
    placed = robot.initial_state()
    assert list(placed.tensors) == ["q", "v"] and placed.x is placed.xd is placed.impulses is None
    assert kn.State().tensors == {} and kn.State().batch == ()
    ones = torch.ones(2, dtype=F64)
    told = model.initial_state(v=ones)
    assert told.v is ones and torch.equal(told.x, model.initial_state().x)


def test_a_state_is_a_value(robot):
    state = robot.initial_state()
    with pytest.raises(FrozenInstanceError):
        state.q = torch.ones(2, dtype=F64)
    other = state.replace(q=torch.ones(2, dtype=F64))
    assert not state.q.any() and other.q.all() and other.v is state.v
    assert state.replace(v=None).v is None and (state or None) is state
    for make in (state.replace, robot.initial_state):
        with pytest.raises(InputError, match=r"(?s)a state has no 'tau'.*expected: q, v, x, xd, impulses, time"):
            make(tau=0.0)


def test_the_time_of_a_state():
    """It advances with steps, is indexed with the worlds, and joins states over time."""
    scene = kn.Scene(gravity=(0.0, 0.0, 0.0))
    ball = scene.add_body(kn.Sphere(0.1), "ball", mass=1.0)
    scene.add_force(tide, bodies=ball, params={"strength": 1.0})
    model = kn.compile(scene)
    assert float(model.initial_state().time) == 0.0 and "time (); " in repr(model.initial_state())
    start = model.initial_state(time=[0.5, 2.0]).expand(2)
    assert start[1].time.tolist() == 2.0 and kn.State.stack([start[0], start[1]]).time.tolist() == [0.5, 2.0]
    path = kn.simulate(model, start, steps=4, dt=0.25)
    assert path.end.time.tolist() == [1.5, 3.0] and path.state(2).time.tolist() == [1.0, 2.5]
    assert path.states[1].time.tolist() == [2.0, 2.25, 2.5, 2.75, 3.0] and path.time.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert torch.equal(path.v[0, -1], kn.simulate(model, kn.State(time=0.5), steps=4, dt=0.25).end.v)
    after = kn.simulate(model, path.state(2), steps=2, dt=0.25).end
    assert equal(after, path.end)  # quarters of a second have no rounding


def test_batches_of_states(model):
    for batch in ((), (3,), (2, 3)):
        assert drawn(model, *batch).batch == batch
    some = kn.State(q=torch.zeros(3, 2), v=torch.zeros(2), x=torch.zeros(4, 1, 5, 3))
    assert some.batch == (4, 3)
    with pytest.raises(InputError, match=r"(?s)batch dimensions.*'q': \(3,\), 'v': \(4,\)"):
        _ = kn.State(torch.zeros(3, 2), torch.zeros(4, 2)).batch


@pytest.mark.parametrize(
    "index",
    [
        1,
        -1,
        slice(None, None, 2),
        slice(0, 0),
        [2, 0],
        np.array([0, 3]),
        torch.tensor([3, 3, 0]),
        torch.tensor([True, False, False, True]),
        np.array([True, False, False, True]),
        torch.tensor(2),
        None,
    ],
    ids=str,
)
def test_worlds_are_picked_from_a_batch(model, index):
    state = drawn(model, 4)
    found = state[index]
    assert list(found.tensors) == list(state.tensors)
    assert all(torch.equal(t, state.tensors[n][(index,)]) for n, t in found.tensors.items())


def test_worlds_are_picked_from_batches_of_more_axes(model):
    state = drawn(model, 2, 3)
    assert state[1].batch == (3,) and state[1, 2].batch == () and state[:, 1:].batch == (2, 2)
    assert torch.equal(state[:, 1:].x, state.x[:, 1:]) and torch.equal(state[1, 2].q, state.q[1, 2])
    mask = torch.tensor([[True, False, True], [False, False, True]])
    assert state[mask].batch == (3,) and torch.equal(state[mask].xd, state.xd[mask])
    assert len(state) == 2 and [one.batch for one in state] == [(3,), (3,)]
    shared = kn.State(torch.arange(3.0)[:, None], torch.zeros(1))  # v is that of all worlds
    assert shared[1].v.shape == (1,) and float(shared[1].q) == 1.0


@pytest.mark.parametrize(
    ("index", "told"),
    [
        (3, "out of bounds"),
        ((0, 0), "too many indices"),
        (torch.ones(2, dtype=torch.bool), "shape of the mask"),
        ("q", "invalid data type"),
    ],
)
def test_worlds_that_are_not_there(model, index, told):
    with pytest.raises(InputError, match=rf"(?s)invalid index of a state.*{told}.*expected: worlds of \(3,\)"):
        drawn(model, 3)[index]


def test_one_world_is_not_indexed(model):
    state = model.initial_state()
    with pytest.raises(InputError, match=r"(?s)has one world.*fix: state.expand\(n\)"):
        state[0]
    with pytest.raises(InputError, match="no length"):
        len(state)
    with pytest.raises(InputError, match=r"(?s)invalid index.*omit it.*indexed over its batch"):
        state.expand(2)[..., 0]


def test_states_of_some_worlds_are_replaced(model):
    a, b, mask = drawn(model, 3), model.initial_state(), torch.tensor([True, False, True])
    found = kn.State.where(mask, a, b)
    assert found.batch == (3,) and equal(found[0], a[0]) and equal(found[1], b) and equal(found[2], a[2])
    a.requires_grad_()
    kn.State.where(mask, a, b).x.sum().backward()
    assert a.x.grad is not None and a.x.grad[0].all() and not a.x.grad[1].any()


def test_states_of_some_worlds_that_make_no_sense(model, robot):
    a = model.initial_state().expand(3)
    for mask, got in ((torch.ones(3), "float32"), ([True] * 3, "list"), (np.ones(3, bool), "ndarray")):
        with pytest.raises(InputError, match=f"(?s)mask has the wrong type.*got: .*{got}"):
            kn.State.where(mask, a, a)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"(?s)different tensors.*'x'"):
        kn.State.where(torch.ones(3, dtype=torch.bool), a, robot.initial_state().expand(3))


def test_states_side_by_side(model, robot):
    states = [drawn(model, 2), drawn(model, 2).map(torch.neg), drawn(model, 2).map(torch.abs)]
    front, back = kn.State.stack(states), kn.State.stack(states, -1)
    assert front.batch == (3, 2) and back.batch == (2, 3) and equal(kn.State.stack(states, 1), back)
    assert equal(front[1], states[1]) and equal(back[:, 2], states[2])
    shared = kn.State(torch.zeros(2, 1), torch.ones(1))  # v is that of both worlds
    assert kn.State.stack([shared] * 3).batch == (3, 2)
    for wrong, told in (
        ([], "the same tensors"),
        ([states[0], robot.initial_state().expand(2)], "the same tensors"),
        ([states[0], states[0][0]], r"equal batches.*\(\), \(2,\)"),
    ):
        with pytest.raises(InputError, match=f"(?s){told}"):
            kn.State.stack(wrong)
    with pytest.raises(InputError, match=r"(?s)dim is out of range.*from -2 to 1"):
        kn.State.stack(states, 2)


def test_expanded_states_share_memory(model):
    state = drawn(model)
    many = state.expand(4, 3)
    assert many.batch == (4, 3) and all(t.data_ptr() == state.tensors[n].data_ptr() for n, t in many.tensors.items())
    assert all(equal(one, state) for row in many for one in row)
    own = many.clone()
    assert equal(own, many) and own.q.data_ptr() != state.q.data_ptr()


def test_precision_and_graphs_of_states(model):
    state = drawn(model)
    single = state.to(torch.float32)
    assert all(t.dtype == torch.float32 for t in single.tensors.values())
    assert equal(single, state.to(dtype=torch.float32))
    assert state.requires_grad_() is state and all(t.requires_grad for t in state.tensors.values())
    assert not any(t.requires_grad for t in state.detach().tensors.values())
    assert all(t.requires_grad for t in state.expand(2)[1].to(torch.float32).clone().tensors.values())
    assert not any(t.requires_grad for t in state.detach().requires_grad_(False).tensors.values())


def test_states_are_pytrees(model, robot):
    for state in (drawn(model, 2), robot.initial_state()):
        leaves, spec = _pytree.tree_flatten(state)
        assert len(leaves) == len(state.tensors) and equal(_pytree.tree_unflatten(leaves, spec), state)
        twice = _pytree.tree_map(lambda t: 2 * t, state)
        assert isinstance(twice, kn.State) and equal(twice, state.map(lambda t: 2 * t))
        both = _pytree.tree_map(torch.add, state, twice)
        assert equal(both, state.map(lambda t: t + 2 * t))
        assert _pytree.tree_map(lambda t: tuple(t.shape), {"at": state})["at"].q == tuple(state.q.shape)
        assert _pytree.treespec_loads(_pytree.treespec_dumps(spec)) == spec


def test_states_keep_every_bit_in_files(model, robot, tmp_path: Path):
    state = drawn(model, 3)
    kn.save(tmp_path / "state", state.requires_grad_())
    again = kn.load(tmp_path / "state")
    assert isinstance(again, kn.State) and equal(again, state.detach()) and not again.q.requires_grad
    kn.save(tmp_path / "more", {"states": [robot.initial_state(), state.to(torch.float32)], "none": kn.State()})
    more = kn.load(tmp_path / "more")
    assert equal(more["states"][0], robot.initial_state()) and more["states"][0].x is None
    assert equal(more["states"][1], state.to(torch.float32).detach()) and more["none"].tensors == {}
    with pytest.raises(InputError, match=r"State.q.*wrong type"):
        kn.save(tmp_path / "wrong", kn.State("up"))  # type: ignore[arg-type]


def test_states_are_shown_in_one_line(model, robot):
    shown = "State(q (4, 2), v (4, 2), x (4, 5, 3), xd (4, 5, 3), impulses (4, 1); float64)"
    assert repr(drawn(model, 4)) == shown and repr(kn.State()) == "State()"
    assert repr(robot.initial_state().to(torch.float32)) == "State(q (2,), v (2,); float32)"


@needs_compiler
def test_what_a_state_lacks_is_as_placed(model):
    end = kn.simulate(model, steps=STEPS, dt=DT).end
    placed = model.initial_state()
    for state in (None, kn.State(), placed, kn.State(x=placed.x), kn.State(v=placed.v, impulses=placed.impulses)):
        assert equal(kn.simulate(model, state, steps=STEPS, dt=DT).end, end)
    some = kn.simulate(model, kn.State(v=torch.zeros(4, 2, dtype=F64)), steps=STEPS, dt=DT).end
    assert some.batch == (4,) and equal(some[3], end)


@needs_compiler
def test_runs_go_on_from_the_state_at_the_end(model):
    """To the bit, impulses of the warm start included: the first joint is pressed against its limit."""
    start, push = drawn(model, 2).replace(impulses=None), [40.0, 0.0]
    start = start.replace(q=start.q + torch.tensor([0.1, 0.0], dtype=F64))
    whole = kn.simulate(model, start, push, steps=2 * STEPS, dt=DT)
    half = kn.simulate(model, start, push, steps=STEPS, dt=DT)
    assert half.end.impulses.any()
    assert equal(kn.simulate(model, half.end, push, steps=STEPS, dt=DT).end, whole.end)
    by_steps = half.end
    for _ in range(STEPS):
        by_steps = kn.step(model, by_steps, push, dt=DT)
    assert equal(by_steps, whole.end)


@needs_compiler
def test_states_are_numbers_of_any_kind(robot):
    """Lists and arrays are taken as tensors of double precision, and are no longer the caller's."""
    wanted = kn.simulate(robot, kn.State(torch.tensor([0.3, -0.2], dtype=F64)), steps=STEPS, dt=DT).end
    given = np.array([0.3, -0.2])
    for q in (given, given.tolist(), [np.float64(0.3), -0.2]):
        state = kn.State(q)  # type: ignore[arg-type]
        for made in (state, kn.State().replace(q=q), robot.initial_state(q=q)):
            assert equal(kn.simulate(robot, made, steps=STEPS, dt=DT).end, wanted)
        assert state.batch == () and kn.State([q, q]).batch == (2,)  # type: ignore[arg-type]
    state = kn.State(given)  # type: ignore[arg-type]
    given[:] = 0.0
    assert state.q.tolist() == [0.3, -0.2]
    scene = kn.Scene()
    scene.add_robot(arm())
    single = kn.compile(scene, dtype=torch.float32)
    assert single.initial_state(q=given).q.dtype == torch.float32
    with pytest.raises(InputError, match=r"(?s)q has the wrong type.*fix: q.to\(torch.float32\)"):
        kn.step(single, state, dt=DT)


@pytest.mark.parametrize("given", [["up", "down"], [[0.0], [0.0, 1.0]], [torch.zeros(1, requires_grad=True)]])
def test_what_is_no_state(given):
    with pytest.raises(
        InputError, match=r"(?s)q is neither a tensor nor numeric.*got: list.*torch.as_tensor\(..., dtype"
    ):
        kn.State(given)


WRONG_STATES: dict[str, tuple[Any, str]] = {
    "a tensor": (
        torch.zeros(2, dtype=F64),
        r"the state has the wrong type.*got: Tensor.*fix: kinema.State\(q=..., v=...\)",
    ),
    "a pair": ((0.0, 0.0), r"the state has the wrong type.*got: tuple.*fix: model.initial_state\(\)"),
    "a word": (kn.State("up"), r"q has the wrong type.*got: str.*fix: torch.as_tensor\(..., dtype=torch.float64\)"),  # type: ignore[arg-type]
    "too many numbers": (kn.State([0.0, 0.0, 0.0]), r"q has the wrong shape.*got: \(3,\)"),  # type: ignore[arg-type]
    "one number": (kn.State(torch.tensor(0.0, dtype=F64)), r"q has the wrong shape.*got: \(\).*\(\*batch, 2\)"),
    "single precision": (kn.State(torch.zeros(2)), r"q has the wrong type.*float32.*fix: q.to\(torch.float64\)"),
    "a joint too many": (kn.State(v=torch.zeros(3, dtype=F64)), r"v has the wrong shape.*\(3,\).*\(\*batch, 2\)"),
    "particles": (kn.State(x=torch.zeros(5, 3, dtype=F64)), "no particles.*got: x.*leave it out"),
    "impulses": (kn.State(impulses=torch.zeros(1, dtype=F64)), "no warm start.*got: impulses.*warm_start=True"),
    "two batches": (kn.State(torch.zeros(2, 2, dtype=F64), torch.zeros(3, 2, dtype=F64)), "batch dimensions"),
}


@needs_compiler
@pytest.mark.parametrize("name", WRONG_STATES)
def test_states_that_make_no_sense(robot, name):
    state, told = WRONG_STATES[name]
    for run in (
        lambda: kn.simulate(robot, state, steps=STEPS, dt=DT),
        lambda: kn.step(robot, state, dt=DT),
        lambda: kn.linearise(robot, state, dt=DT),
    ):
        with pytest.raises(InputError, match=f"(?s){told}"):
            run()


# -- controls --------------------------------------------------------------------------------------------------------


def by_every_means(row: list[float], steps: int) -> list[Any]:
    """The same numbers for every step, as tensors, arrays and lists, with steps and without."""
    one = torch.tensor(row, dtype=F64)
    many = one.expand(steps, -1)
    return [one, many, one.numpy(), many.numpy(), one.numpy().astype(np.float32), row, many.tolist()]


@needs_compiler
def test_controls_are_numbers_of_any_kind(model):
    row = [0.5, -0.25]
    ways = by_every_means(row, STEPS)
    wanted = kn.simulate(model, u=ways[1], steps=STEPS, dt=DT).end
    assert float((wanted.v - kn.simulate(model, steps=STEPS, dt=DT).end.v).abs().min()) > 1e-3
    for given in ways:
        assert equal(kn.simulate(model, u=given, steps=STEPS, dt=DT).end, wanted)
        assert equal(kn.simulate(model, None, kn.Control(given), steps=STEPS, dt=DT).end, wanted)
        assert equal(kn.simulate(model, u=kn.Control(tau=given), steps=STEPS, dt=DT).end, wanted)  # motors of gear one


@needs_compiler
def test_one_number_is_for_all(model):
    wanted = kn.simulate(model, u=kn.Control(u=[0.5, 0.5], tau=[0.1, 0.1]), steps=STEPS, dt=DT).end
    for half, tenth in ((0.5, 0.1), (np.float64(0.5), np.array(0.1)), (torch.tensor(0.5, dtype=F64), 0.1)):
        found = kn.simulate(model, u=kn.Control(u=half, tau=tenth), steps=STEPS, dt=DT).end
        assert equal(found, wanted)
    whole, both = (kn.simulate(model, u=u, steps=STEPS, dt=DT).end for u in (1, [1, 1.0]))
    assert equal(whole, both)


@needs_compiler
def test_controls_of_a_batch(model):
    u = torch.linspace(-1.0, 1.0, 3 * STEPS * 2, dtype=F64).reshape(3, STEPS, 2)
    path = kn.simulate(model, u=u.numpy(), steps=STEPS, dt=DT)
    assert path.end.batch == (3,)
    assert all(equal(path.end[w], kn.simulate(model, u=u[w], steps=STEPS, dt=DT).end) for w in range(3))
    after = kn.step(model, model.initial_state(), u[:, 0], dt=DT)
    assert equal(after, kn.simulate(model, u=u[:, :1], steps=1, dt=DT).end)


@needs_compiler
def test_rows_of_worlds_are_no_rows_of_steps(model):
    """Two axes of a control are steps and numbers. As many rows as worlds may be meant for them: nobody guesses."""
    worlds, rows = model.initial_state().expand(3), torch.zeros(3, 2, dtype=F64)
    for control in (rows, kn.Control(tau=rows.numpy()), kn.Control(wrenches={HAND: torch.zeros(3, 6, dtype=F64)})):
        with pytest.raises(
            InputError, match=r"(?s)a row for each world.*3 worlds, 4 steps.*\(4, [26]\).*\(3, 4, [26]\)"
        ):
            kn.simulate(model, worlds, control, steps=4, dt=DT)
    assert kn.simulate(model, worlds, rows, steps=3, dt=DT).end.batch == (3,)
    assert kn.simulate(model, worlds, torch.stack([rows] * 4, 1), steps=4, dt=DT).end.batch == (3,)
    with pytest.raises(InputError, match="shape"):
        kn.simulate(model, worlds.expand(2, 3), rows, steps=4, dt=DT)


@needs_compiler
def test_controls_pass_gradients_on(robot):
    one, row = torch.tensor(0.3, dtype=F64, requires_grad=True), torch.tensor([0.3, 0.3], dtype=F64, requires_grad=True)
    for leaf in (one, row):
        kn.simulate(robot, u=leaf, steps=STEPS, dt=DT).end.q[1].backward()
    assert one.grad is not None and row.grad is not None
    assert float(one.grad) == pytest.approx(float(row.grad.sum()), rel=1e-12)


@needs_compiler
def test_what_acts_on_bodies_and_particles(model):
    pull = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 3.0], dtype=F64)
    wanted = kn.simulate(model, u=kn.Control(wrenches={HAND: pull.expand(STEPS, 6)}), steps=STEPS, dt=DT).end
    for given in (pull, pull.numpy(), pull.tolist()):
        assert equal(kn.simulate(model, u=kn.Control(wrenches={HAND: given}), steps=STEPS, dt=DT).end, wanted)
    none = kn.simulate(model, steps=STEPS, dt=DT).end
    for nothing in (None, {}):
        assert equal(kn.simulate(model, u=kn.Control(wrenches=nothing), steps=STEPS, dt=DT).end, none)  # type: ignore[arg-type]
    blown = kn.simulate(model, u=kn.Control(forces=1e-3, activation=0.0), steps=STEPS, dt=DT).end
    pushed = kn.simulate(model, u=kn.Control(forces=np.full((5, 3), 1e-3), activation=[0.0, 0.0]), steps=STEPS, dt=DT)
    assert equal(blown, pushed.end)
    after = kn.step(model, model.initial_state(), kn.Control(wrenches={HAND: pull}, forces=1e-3), dt=DT)
    both = kn.simulate(model, u=kn.Control(wrenches={HAND: pull}, forces=1e-3), steps=1, dt=DT).end
    assert equal(after, both) and not equal(after, kn.step(model, model.initial_state(), dt=DT))


WRONG_CONTROLS: dict[str, tuple[Callable[[], Any], str]] = {
    "too few": (lambda: [1.0], r"u has the wrong shape.*got: \(1,\).*\(\*batch, 2\)"),
    "too many": (lambda: torch.zeros(STEPS, 3, dtype=F64), r"u has the wrong shape.*got: \(6, 3\)"),
    "too many steps": (lambda: torch.zeros(STEPS + 1, 2, dtype=F64), r"'u' has the wrong shape.*\(7, 2\).*6, 2"),
    "single precision": (lambda: torch.zeros(2), r"u has the wrong type.*float32.*fix: u.to\(torch.float64\)"),
    "whole numbers": (lambda: torch.zeros(2, dtype=torch.int64), "u has the wrong type.*int64"),
    "a single one": (lambda: torch.tensor(1.0), "u has the wrong type.*float32"),
    "a word": (lambda: "full", "u is not numeric.*got: str"),
    "words": (lambda: kn.Control(tau=["a", "b"]), "tau is not numeric.*got: list"),
    "ragged": (lambda: kn.Control(tau=[[1.0], [1.0, 2.0]]), "tau is not numeric.*got: list"),
    "a dictionary": (lambda: {"one": 1.0}, "u is not numeric.*got: dict"),
    "wrenches as a tensor": (
        lambda: kn.Control(wrenches=torch.zeros(STEPS, 6, dtype=F64)),  # type: ignore[arg-type]
        "by body name.*got: Tensor.*a dictionary.*robot/body",
    ),
    "wrenches as a list": (lambda: kn.Control(wrenches=[HAND]), "by body name.*got: list"),  # type: ignore[arg-type]
    "half a wrench": (lambda: kn.Control(wrenches={HAND: [0.0, 0.0, 1.0]}), f"wrench on '{HAND}' has the wrong shape"),
    "a wrench of words": (lambda: kn.Control(wrenches={HAND: "up"}), f"wrench on '{HAND}' is not numeric"),
    "a wrench on nothing": (lambda: kn.Control(wrenches={"arm/foot": 1.0}), f"no body 'arm/foot'.*{HAND}"),
    "motion": (lambda: kn.Control(motion=1.0), "no joint is prescribed.*leave it out"),
    "forces": (lambda: kn.Control(forces=1.0), "no particles.*leave it out"),
    "activation": (lambda: kn.Control(activation=1.0), "no tetrahedra.*leave it out"),
}


@needs_compiler
@pytest.mark.parametrize("name", WRONG_CONTROLS)
def test_controls_that_make_no_sense(robot, name):
    make, told = WRONG_CONTROLS[name]
    with pytest.raises(InputError, match=f"(?s){told}"):
        kn.simulate(robot, u=make(), steps=STEPS, dt=DT)
    if name not in ("too many steps", "too many"):
        with pytest.raises(InputError, match=f"(?s){told}"):
            kn.step(robot, robot.initial_state(), make(), dt=DT)


def test_a_control_is_a_value():
    with pytest.raises(FrozenInstanceError):
        kn.Control(1.0).u = 2.0  # type: ignore[misc]


# -- options ---------------------------------------------------------------------------------------------------------


def test_options_have_defaults_and_are_values():
    options = kn.RunOptions()
    assert (options.checkpoint, options.threads, options.memory_budget) == (1, None, None)
    assert (options.on_failure, options.progress) == ("raise", True)
    assert options == kn.RunOptions(checkpoint=1) != kn.RunOptions(threads=1)
    with pytest.raises(FrozenInstanceError):
        options.threads = 2  # type: ignore[misc]


@needs_compiler
@pytest.mark.parametrize(
    "options",
    [
        kn.RunOptions(threads=1),
        kn.RunOptions(checkpoint=5),
        kn.RunOptions(checkpoint="auto"),
        kn.RunOptions(memory_budget=10**8, progress=False),
        kn.RunOptions(on_failure="status", progress=lambda done, steps: None),
    ],
    ids=["one thread", "checkpoints", "auto", "budget", "status"],
)
def test_no_number_depends_on_options(model, options):
    start, ends = drawn(model, 2), []
    for one in (kn.RunOptions(), options):
        leaves = start.clone().requires_grad_()
        end = kn.simulate(model, leaves, 0.5, steps=STEPS, dt=DT, options=one).end
        loss = torch.stack([t.square().sum() for t in end.tensors.values()]).sum()
        ends.append((end, torch.autograd.grad(loss, list(leaves.tensors.values()))))
    assert equal(ends[0][0], ends[1][0]) and all(map(torch.equal, ends[0][1], ends[1][1]))


@needs_compiler
def test_worlds_that_fail_are_told_if_asked(robot):
    v = torch.tensor([[0.0, 0.0], [1e300, 1e300]], dtype=F64)
    with pytest.raises(kn.SimulationError, match="non-finite"):
        kn.simulate(robot, kn.State(v=v), steps=STEPS, dt=DT)
    path = kn.simulate(robot, kn.State(v=v), steps=STEPS, dt=DT, options=kn.RunOptions(on_failure="status"))
    assert int(path.status[0]) == -1 and int(path.status[1]) >= 0 and "1 failed" in repr(path)


@needs_compiler
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"threads": 1}, "options are of the wrong type.*got: dict.*expected: RunOptions"),
        (None, "options are of the wrong type.*got: NoneType"),
        (kn.RunOptions(threads=0), "threads must be a positive integer"),
        (kn.RunOptions(checkpoint=0), "checkpoint must be a positive integer or 'auto'"),
        (kn.RunOptions(checkpoint="often"), "checkpoint must be a positive integer or 'auto'"),
        (kn.RunOptions(on_failure="ignore"), "on_failure is unknown.*'raise' or 'status'"),
    ],
)
def test_options_that_make_no_sense(robot, options, told):
    with pytest.raises(InputError, match=f"(?s){told}"):
        kn.simulate(robot, steps=STEPS, dt=DT, options=options)


# -- trajectories ----------------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_states_over_time(model, batch):
    start = drawn(model, *batch)
    path = kn.simulate(model, start, steps=STEPS, dt=DT)
    assert path.steps == STEPS and path.dt == DT and path.model is model and path.status.shape == batch
    assert torch.equal(path.time, DT * torch.arange(STEPS + 1, dtype=F64))
    assert path.states is not None and path.states.batch == (*batch, STEPS + 1) and path.end.batch == batch
    assert path.q.shape == (*batch, STEPS + 1, 2) and path.xd.shape == (*batch, STEPS + 1, 5, 3)
    assert list(path.end.tensors) == list(start.tensors)
    assert equal(path.state(0), start.replace(impulses=None)) and path.state(-1) is path.end is path.state(STEPS)
    for k in range(STEPS):
        state = path.state(k)
        assert state.impulses is None and state.batch == batch
        assert torch.equal(state.q, path.q[..., k, :]) and torch.equal(state.x, path.x[..., k, :, :])
        assert equal(path.state(k - STEPS - 1), state) and equal(path.state(np.int64(k)), state)
    assert torch.equal(path.end.v, path.v[..., -1, :])


@needs_compiler
@pytest.mark.parametrize("k", [STEPS + 1, -STEPS - 2, 1.0, True, "end", None])
def test_states_that_are_not_there(robot, k):
    path = kn.simulate(robot, steps=STEPS, dt=DT)
    with pytest.raises(InputError, match=f"(?s)no such state.*from 0 to {STEPS}"):
        path.state(k)


@needs_compiler
def test_motion_of_things_by_name(model):
    start = drawn(model, 2)
    path = kn.simulate(model, start, steps=STEPS, dt=DT)
    hand = path[HAND]
    poses = kn.forward_kinematics(model, path.q)
    at = model.bodies.index(HAND)
    assert torch.equal(hand.position, poses.position[..., at, :]) and hand.position.shape == (2, STEPS + 1, 3)
    assert torch.equal(hand.rotation, poses.rotation[..., at, :, :])
    cloth, bead = path["cloth"], path["bead"]
    assert torch.equal(cloth.x, path.x[..., :4, :]) and torch.equal(cloth.xd, path.xd[..., :4, :])
    assert torch.equal(bead.x, path.x[..., 4:, :])
    for name in ("arm/foot", "arm", 3):
        with pytest.raises(InputError, match=f"(?s)nothing in the model is called .*expected: .*{HAND}.*cloth, bead"):
            path[name]


@needs_compiler
def test_motion_of_bodies_knows_numbers_that_were_given(robot):
    """An offset per world, and its gradient."""
    offset = robot.parameters("arm/elbow/offset")["arm/elbow/offset"]
    given = (offset + torch.tensor([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0]], dtype=F64)).requires_grad_()
    path = kn.simulate(robot, params={"arm/elbow/offset": given}, steps=STEPS, dt=DT)
    first = path[HAND].position[:, 0]
    assert torch.allclose(first[1] - first[0], torch.tensor([0.1, 0.0, 0.0], dtype=F64), atol=1e-15)
    (gradient,) = torch.autograd.grad(first[:, 0].sum(), given)
    assert torch.allclose(gradient, torch.tensor([1.0, 0.0, 0.0], dtype=F64).expand(2, 3))


@needs_compiler
def test_trajectories_that_keep_only_their_end(robot):
    whole = kn.simulate(robot, steps=STEPS, dt=DT)
    path = kn.simulate(robot, steps=STEPS, dt=DT, options=kn.RunOptions(checkpoint=5))
    assert path.states is None and equal(path.end, whole.end)
    for look in (
        lambda: path.q,
        lambda: path.v,
        lambda: path.x,
        lambda: path.state(0),
        lambda: path.steps,
        lambda: path.time,
        lambda: path[HAND],
    ):
        with pytest.raises(InputError, match=r"(?s)keeps only its end.*RunOptions\(checkpoint=1\).*path.end"):
            look()


@needs_compiler
def test_what_a_model_lacks_has_no_motion(robot):
    path = kn.simulate(robot, steps=STEPS, dt=DT)
    with pytest.raises(InputError, match="(?s)the model has no soft matter.*got: path.x"):
        _ = path.x
    scene = kn.Scene()
    scene.add_particles([[0.0, 0.0, 1.0]], "bead", mass=1.0, skin=None)
    fall = kn.simulate(kn.compile(scene), steps=STEPS, dt=DT)
    with pytest.raises(InputError, match="(?s)the model has no joints.*got: path.v"):
        _ = fall.v
    assert fall.steps == STEPS and fall["bead"].x.shape == (STEPS + 1, 1, 3)


@needs_compiler
def test_what_was_not_recorded_is_named(robot, tmp_path: Path):
    path = kn.simulate(robot, steps=STEPS, dt=DT, record=["position", "velocity"])
    assert list(path.recorded) == ["position", "velocity"] and path.recorded["position"].shape == (STEPS, 2, 3)
    kn.save(tmp_path / "path", path)
    for one in (path, kn.load(tmp_path / "path")):
        with pytest.raises(InputError, match=r"(?s)'gap' was not recorded.*position, velocity.*record=\['gap'\]"):
            one.recorded["gap"]
    with pytest.raises(InputError, match="(?s)'gap' was not recorded.*nothing was"):
        kn.simulate(robot, steps=STEPS, dt=DT).recorded["gap"]


@needs_compiler
def test_trajectories_from_files(model, tmp_path: Path):
    path = kn.simulate(model, drawn(model, 2), steps=STEPS, dt=DT)
    kn.save(tmp_path / "path", path)
    again = kn.load(tmp_path / "path")
    assert equal(again.end, path.end) and equal(again.state(3), path.state(3)) and again.steps == STEPS
    with pytest.raises(InputError, match="has no model"):
        again[HAND]
    assert equal(kn.simulate(model, again.end, steps=1, dt=DT).end, kn.simulate(model, path.end, steps=1, dt=DT).end)
    short = kn.simulate(model, steps=STEPS, dt=DT, options=kn.RunOptions(checkpoint=STEPS))
    kn.save(tmp_path / "short", short)
    assert kn.load(tmp_path / "short").states is None


@needs_compiler
def test_trajectories_are_shown_in_one_line(model, robot):
    assert repr(kn.simulate(robot, steps=STEPS, dt=DT)) == "Trajectory(6 steps of 0.001 s)"
    path = kn.simulate(model, drawn(model, 2, 3), steps=STEPS, dt=DT, record=["position"])
    assert repr(path) == "Trajectory(6 steps of 0.001 s, worlds (2, 3), recorded position)"
    short = kn.simulate(model, drawn(model, 4), steps=STEPS, dt=DT, options=kn.RunOptions(checkpoint=3))
    assert repr(short) == "Trajectory(only its end, dt 0.001 s, worlds (4,))"


# -- parameters ------------------------------------------------------------------------------------------------------


@needs_compiler
def test_parameters_are_numbers_of_any_kind(robot):
    def end(**params: Any) -> kn.State:
        return kn.simulate(robot, params=params, steps=STEPS, dt=DT).end

    wanted = end(mass=torch.tensor([2.0, 2.0], dtype=F64))
    assert not equal(wanted, end())
    for two in (2, 2.0, np.float32(2.0), np.array(2.0), torch.tensor(2.0, dtype=F64), [2.0, 2], np.array([2.0, 2.0])):
        assert equal(end(mass=two), wanted)
        assert equal(end(**{"arm/upper/mass": 2.0, f"{HAND}/mass": 2}), wanted)
    still = end(gravity=0.0)
    assert not still.q.any() and equal(still, end(gravity=[0, 0, 0]))
    worlds = end(mass=np.array([[1.0, 2.0], [2.0, 2.0]]))
    assert worlds.batch == (2,) and equal(worlds[1], wanted) and equal(worlds[0], end(mass=[1.0, 2.0]))
    assert torch.equal(
        kn.mass_matrix(robot, torch.zeros(2, dtype=F64), {"mass": 2.0}),
        kn.mass_matrix(robot, torch.zeros(2, dtype=F64), {"mass": torch.full((2,), 2.0, dtype=F64)}),
    )


@needs_compiler
def test_one_number_for_all_has_the_gradient_of_their_sum(robot):
    one, row = torch.tensor(2.0, dtype=F64, requires_grad=True), torch.full((2,), 2.0, dtype=F64, requires_grad=True)
    for leaf in (one, row):
        kn.simulate(robot, params={"mass": leaf}, u=0.1, steps=STEPS, dt=DT).end.v[0].backward()
    assert one.grad is not None and row.grad is not None
    assert float(one.grad) == pytest.approx(float(row.grad.sum()), rel=1e-12) and float(one.grad) != 0.0


WRONG_PARAMETERS: dict[str, tuple[Any, str]] = {
    "a list": (["mass"], "params is of the wrong type.*got: list.*by path"),
    "a word": ({"mass": "heavy"}, "'mass' is not numeric.*got: str"),
    "nothing": ({"mass": None}, "'mass' is not numeric.*got: NoneType"),
    "single precision": ({"mass": torch.ones(2)}, "'mass' has the wrong type.*float32.*torch.float64"),
    "whole numbers": ({"mass": torch.ones(2, dtype=torch.int64)}, "'mass' has the wrong type.*int64"),
    "too many": ({"mass": [1.0, 2.0, 3.0]}, r"'mass' has the wrong shape.*\(3,\).*\(\*batch, 2\)"),
    "a vector too short": ({"gravity": [0.0, 0.0]}, r"'gravity' has the wrong shape.*\(2,\).*\(\*batch, 3\)"),
    "negative": ({"mass": -1.0}, "'mass' is negative"),
    "unknown": ({"arm/hand/weight": 1.0}, "no parameter 'arm/hand/weight'"),
    "misspelt": ({"arm/hand/mas": 1.0}, "no parameter 'arm/hand/mas'.*write 'arm/hand/mass'"),
}


@needs_compiler
@pytest.mark.parametrize("name", WRONG_PARAMETERS)
def test_parameters_that_make_no_sense(robot, name):
    params, told = WRONG_PARAMETERS[name]
    with pytest.raises(InputError, match=f"(?s){told}"):
        kn.simulate(robot, params=params, steps=STEPS, dt=DT)


@needs_compiler
def test_gradients_pass_through_states(model):
    """Picked, stacked and replaced by a mask, a run and its end pass gradients to the start of the chosen worlds."""
    start = drawn(model, 3).requires_grad_()
    end = kn.simulate(model, start, steps=STEPS, dt=DT).end
    mask = torch.tensor([True, False, True])
    mixed = kn.State.where(mask, end, model.initial_state())
    last = kn.State.stack([mixed[0], mixed[2], end[0]])
    loss = torch.stack([t.square().sum() for t in last.tensors.values()]).sum()
    gradients = torch.autograd.grad(loss, [start.v, start.xd])
    assert all(g[0].any() and not g[1].any() and g[2].any() for g in gradients)
