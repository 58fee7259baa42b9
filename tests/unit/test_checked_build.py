"""The checked build (KINEMA_CHECK=1): planted faults are named with kernel, element and source line; clean code passes.

Every fault is planted twice: where lanes are elements (one world) and where they are worlds (a batch, one world bad).
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.errors import KernelError
from kinema.lang import Array, Float, Index, Int, kernel, local, log, sqrt, uniform, vec3
from kinema.lang.autograd.rollout import rollout
from kinema.lang.build import compiler
from kinema.lang.ir.analysis import ELEMENTS, WORLDS
from kinema.lang.kernels.kernel import Kernel
from kinema.lang.programs.program import Program
from kinema.scene.shapes.quadruped import quadruped

N = 21  # elements: a whole packet and a tail
BAD = 17  # the element with the fault, in the tail
BAD_WORLD = 6
BATCH = 9  # the last block of worlds is not full

pytestmark = pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINEMA_CHECK", "1")


# `where` holds a place per element as Float, so that worlds can differ.


@kernel
def gathers(i: Index, where: Array[Float], a: Array[Float], y: Array[Float]):
    y[i] = a[i]
    y[i] += 2.0 * a[Int(where[i])]  # fault


@kernel
def gathers_vectors(i: Index, where: Array[Float], a: Array[vec3], y: Array[Float]):
    if where[i] > -100.0:
        y[i] = a[Int(where[i])].y  # fault


@kernel
def scatters(i: Index, where: Array[Float], a: Array[Float], y: Array[Float]):
    y[Int(where[i])] += a[i]  # fault


@kernel
def stores(i: Index, where: Array[Float], a: Array[Float], y: Array[Float]):
    y[Int(where[i])] = a[i]  # fault


@kernel
def scatters_in_loop(i: Index, where: Array[Float], a: Array[Float], y: Array[Float]):
    for k in range(Int(where[i]), Int(where[i]) + 1):
        y[k] += a[i]  # fault


@kernel
def sums(i: Index, where: Array[Float], a: Array[Float], y: Array[Float]):
    y[30] += a[i] + where[i]  # fault


@kernel
def indexes_local(i: Index, where: Array[Float], a: Array[Float], y: Array[Float]):
    few = local(Float, 21)
    few[Int(where[i])] = a[i]  # fault
    y[i] = few[3]


@kernel
def loops(where: Array[Float], a: Array[Float], y: Array[Float]):
    for k in range(len(y)):
        y[k] = a[Int(where[k])]  # fault


FAULTS: dict[str, Kernel] = {
    "gather": gathers,
    "gather of vectors under a mask": gathers_vectors,
    "scatter": scatters,
    "store": stores,
    "scatter in a loop": scatters_in_loop,
    "local array": indexes_local,
    "kernel without Index": loops,
}


def program(k: Kernel, element: type = Float) -> Program:
    p = Program(k.name)
    where, a, y = p.parameter("where", Float, N), p.parameter("a", element, N), p.output("y", Float, N)
    p.call(k, where, a, y, count=N if k.ir.index is not None else None)
    return p


def places(bad: float, lanes: str) -> Tensor:
    """Every element its own place, but one."""
    made = torch.arange(N, dtype=torch.float64)
    if lanes == WORLDS:
        made = made.repeat(BATCH, 1)
        made[BAD_WORLD, BAD] = bad
    else:
        made[BAD] = bad
    return made


def run(p: Program, **given: Tensor) -> Tensor:
    return rollout(p, 1, {}, given, record="y").outputs["y"]


def numbers(p: Program, seed: int = 0) -> Tensor:
    shape = p.buffers["a"].shape
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.5


def assert_names(error: KernelError, k: Kernel, lanes: str, element: int | None, mark: str = "# fault") -> None:
    """The message holds kernel, element (and world), file, line and the source of the marked statement."""
    text = str(error)
    lines, first = inspect.getsourcelines(k.python_function)
    (at,) = [n for n, line in enumerate(lines) if mark in line]
    assert f"kernel {k.name}" in text
    if element is not None:
        assert f"element {element}" in text
    if lanes == WORLDS:
        assert f"world {BAD_WORLD}" in text
    assert f"{Path(__file__).name}:{first + at}" in text
    assert lines[at].strip() in text


def assert_lanes(p: Program, lanes: str) -> None:
    assert {options.lanes for options in p.plans} == {lanes}


@pytest.mark.parametrize("lanes", [ELEMENTS, WORLDS])
@pytest.mark.parametrize("bad", [-1, N, 1000])
@pytest.mark.parametrize("fault", FAULTS)
def test_index_out_of_range(fault: str, bad: int, lanes: str) -> None:
    k = FAULTS[fault]
    p = program(k, vec3 if k is gathers_vectors else Float)
    a = numbers(p)
    run(p, where=places(BAD, lanes), a=a)  # nothing is wrong yet
    with pytest.raises(KernelError, match=f"index {bad} of '.*' is out of range \\(length {N}\\)") as caught:
        run(p, where=places(bad, lanes), a=a)
    assert_names(caught.value, k, lanes, BAD if k.ir.index is not None else None)
    if k is not scatters_in_loop:  # which never runs with worlds as lanes
        assert_lanes(p, lanes)


@pytest.mark.parametrize("lanes", [ELEMENTS, WORLDS])
def test_index_of_a_sum_out_of_range(lanes: str) -> None:
    p = program(sums)
    with pytest.raises(KernelError, match=f"index 30 of 'y' is out of range \\(length {N}\\)"):
        run(p, where=places(BAD, lanes), a=numbers(p))


# -- order ---------------------------------------------------------------------------------------------------------


@kernel
def writes_after_reading(i: Index, a: Array[Float], y: Array[Float], z: Array[Float]):
    y[i] = a[i]
    z[i] = y[i] * 2.0
    if a[i] > 1.4:
        y[i] += a[i]  # fault


@kernel
def writes_then_reads(i: Index, a: Array[Float], y: Array[Float], z: Array[Float]):
    y[i] = a[i]
    if a[i] > 1.4:
        y[i] += a[i]
    z[i] = y[i] * 2.0


@kernel
def sweeps(a: Array[Float], y: Array[Float], z: Array[Float]):
    """The same over elements one after the other: y[k - 1] is read before y[k] is written, never after."""
    y[0] = a[0]
    for k in range(1, len(a)):
        y[k] = a[k] + 0.5 * y[k - 1]
    z[0] = y[1]


@kernel
def sweeps_back(a: Array[Float], y: Array[Float], z: Array[Float]):
    for k in range(len(a)):
        y[k] = a[k]
    for k in range(1, len(a)):
        z[k] = y[k - 1]
        if a[k - 1] > 1.4:
            y[k - 1] += a[k]  # fault


def ordered(k: Kernel) -> Program:
    p = Program(k.name)
    p.call(
        k,
        p.parameter("a", Float, N),
        p.scratch("s", Float, N),
        p.output("y", Float, N),
        count=N if k.ir.index is not None else None,
    )
    return p


def one_large(lanes: str) -> Tensor:
    """Numbers below 1, but one."""
    made = torch.linspace(0.1, 0.9, N, dtype=torch.float64)
    if lanes == WORLDS:
        made = made.repeat(BATCH, 1)
        made[BAD_WORLD, BAD] = 1.5
    else:
        made[BAD] = 1.5
    return made


@pytest.mark.parametrize("lanes", [ELEMENTS, WORLDS])
@pytest.mark.parametrize("k", [writes_after_reading, sweeps_back], ids=lambda k: k.name)
def test_write_after_read(k: Kernel, lanes: str) -> None:
    p = ordered(k)
    run(p, a=torch.full((N,), 0.5, dtype=torch.float64).expand((BATCH, N) if lanes == WORLDS else (N,)))
    with pytest.raises(KernelError, match=f"element {BAD} of 'y' is written after it was read") as caught:
        run(p, a=one_large(lanes))
    assert_names(caught.value, k, lanes, BAD if k.ir.index is not None else None)
    assert_lanes(p, lanes)


@pytest.mark.parametrize("lanes", [ELEMENTS, WORLDS])
@pytest.mark.parametrize("k", [writes_then_reads, sweeps], ids=lambda k: k.name)
def test_write_before_read_passes(k: Kernel, lanes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(ordered(k), a=one_large(lanes))
    monkeypatch.setenv("KINEMA_CHECK", "0")
    assert torch.equal(found, run(ordered(k), a=one_large(lanes)))


# -- numbers -------------------------------------------------------------------------------------------------------


@kernel
def roots(i: Index, a: Array[Float], y: Array[Float]):
    y[i] = sqrt(a[i])  # fault


@kernel
def roots_of_some(i: Index, a: Array[Float], y: Array[Float]):
    if a[i] > 0.0:
        y[i] = sqrt(a[i])
    else:
        y[i] = 0.0


@kernel
def logs_scattered(i: Index, a: Array[Float], y: Array[Float]):
    y[20 - i] += log(a[i])  # fault


@kernel
def logs_summed(i: Index, a: Array[Float], y: Array[Float]):
    y[0] += log(a[i])  # fault


def numeric(k: Kernel) -> Program:
    p = Program(k.name)
    p.call(k, p.parameter("a", Float, N), p.output("y", Float, N), count=N)
    return p


@pytest.mark.parametrize("lanes", [ELEMENTS, WORLDS])
@pytest.mark.parametrize("k", [roots, logs_scattered, logs_summed], ids=lambda k: k.name)
def test_value_not_finite(k: Kernel, lanes: str) -> None:
    p = numeric(k)
    with pytest.raises(KernelError, match="a value stored into 'y' is not finite") as caught:
        run(p, a=1.3 - one_large(lanes))
    assert_names(caught.value, k, lanes, BAD)
    assert_lanes(p, lanes)


@pytest.mark.parametrize("lanes", [ELEMENTS, WORLDS])
def test_lanes_that_do_not_act_are_not_checked(lanes: str) -> None:
    # The square root is computed in all lanes and stored in some.
    found = run(numeric(roots_of_some), a=1.3 - one_large(lanes))
    assert found.isfinite().all() and (found == 0.0).sum() == 1


# -- promises, gradients -------------------------------------------------------------------------------------------


@kernel
def promises(i: Index, where: Array[Int], a: Array[Float], y: Array[Float]):
    y[i] = a[uniform(where[i])]  # fault


def test_promise_of_uniform_is_checked() -> None:
    p = Program("promises")
    p.call(promises, p.parameter("where", Int, N), p.parameter("a", Float, N), p.output("y", Float, N), count=N)
    a = torch.rand(N, dtype=torch.float64)
    same = torch.arange(N, dtype=torch.int32) // 16
    assert torch.equal(run(p, where=same, a=a)[0], a[same.long()])
    same[3] = 7
    with pytest.raises(KernelError, match="uniform") as caught:
        run(p, where=same, a=a)
    assert_names(caught.value, promises, ELEMENTS, None)


@pytest.mark.parametrize("lanes", [ELEMENTS, WORLDS])
def test_a_clean_kernel_passes_forward_and_backward(lanes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for check in ("1", "0"):
        monkeypatch.setenv("KINEMA_CHECK", check)
        p = program(gathers)
        a = numbers(p).requires_grad_()
        y = run(p, where=places(BAD, lanes), a=a)
        (y * torch.linspace(-1, 1, N, dtype=torch.float64)).sum().backward()
        found[check] = y.detach(), a.grad
    assert all(map(torch.equal, found["1"], found["0"]))


@pytest.mark.parametrize("lanes", [ELEMENTS, WORLDS])
def test_a_gradient_that_is_not_finite_is_named(lanes: str) -> None:
    p = numeric(roots)
    a = torch.full((BATCH, N) if lanes == WORLDS else (N,), 0.25, dtype=torch.float64)
    a[(BAD_WORLD, BAD) if lanes == WORLDS else BAD] = 1e-300
    a.requires_grad_()
    seed = torch.ones_like(run(p, a=a))
    with pytest.raises(KernelError, match="not finite") as caught:
        run(p, a=a).backward(1e200 * seed)
    assert_names(caught.value, roots, lanes, BAD)


@pytest.mark.slow
def test_a_robot_that_bounces_passes_forward_and_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newton's method, impacts and their adjoints: the longest kernels, with many rounds over their arrays."""
    scene = kn.Scene(contact=kn.Contact(restitution=0.4))
    scene.add_ground()
    scene.add_robot(quadruped())
    model, found = kn.compile(scene), {}
    for check in ("1", "0"):
        monkeypatch.setenv("KINEMA_CHECK", check)
        state = model.initial_state()
        v = state.v.clone()
        v[5] = -1.0  # its feet stand on the ground
        v.requires_grad_()
        path = kn.simulate(model, state.replace(v=v), steps=3, dt=2e-3, record=["impulse"])
        end = path.end.v.detach()
        assert path.recorded["impulse"][0].abs().max() > 1.0 and end[5] > 0.1
        found[check] = end, *torch.autograd.grad(path.end.q.sum() + path.end.v.sum(), [v])
    assert all(map(torch.equal, found["1"], found["0"]))
