"""Nodes of step programs: loops with iterates, conditions, custom adjoints, controls, outputs; values and gradients.

The oracle is the same computation in torch, float64. Both round in slightly different order, so values and gradients
agree to a few hundred roundings: 1e-12 of the largest entry.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import kinema as kn
from kinema.lang import Array, Float, Index, abs, detach, everywhere, kernel, max, select, sin, struct, vec3

N = 19  # not a multiple of any lane width
STEPS = 5
TOLERANCE = 1e-12


@kernel
def relax(i: Index, x: Array[Float], b: Array[Float], w: Float, x_next: Array[Float]):
    """One sweep of a small non-linear system on a ring."""
    left = x[(i + len(x) - 1) % len(x)]
    right = x[(i + 1) % len(x)]
    x_next[i] = x[i] + w * (b[i] - 2.0 * x[i] + 0.5 * sin(left + right))


@kernel
def copy(i: Index, a: Array[Float], out: Array[Float]):
    """out = a."""
    out[i] = a[i]


@kernel
def square(i: Index, a: Array[Float], out: Array[Float]):
    """out = a^2."""
    out[i] = a[i] * a[i]


@kernel
def blend(i: Index, s: Array[Float], x: Array[Float], s_next: Array[Float]):
    """The solution moves the state."""
    s_next[i] = s[i] * 0.9 + 0.1 * x[i] * x[i]


@kernel
def distance(x: Array[Float], y: Array[Float], tolerance: Float, ready: Array[Float]):
    """Whether two iterates are closer than a tolerance; once per world."""
    largest = 0.0
    for i in range(len(x)):
        largest = max(largest, (x[i] - y[i]) * (x[i] - y[i]))
    ready[0] = 1.0 if largest < tolerance * tolerance else 0.0


def relax_torch(x: Tensor, b: Tensor, w: Tensor) -> Tensor:
    return x + w * (b - 2 * x + 0.5 * torch.sin(torch.roll(x, 1, -1) + torch.roll(x, -1, -1)))


def leaves(batch: tuple[int, ...] = ()) -> dict[str, Tensor]:
    torch.manual_seed(0)
    s, w = torch.randn(*batch, N, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)
    return {"s": s.requires_grad_(), "w": w.requires_grad_()}


def gradients(value: Tensor, inputs: dict[str, Tensor]) -> list[Tensor]:
    torch.manual_seed(1)
    return list(torch.autograd.grad((value * torch.randn_like(value)).sum(), list(inputs.values())))


def agree(ours: Tensor, theirs: Tensor, inputs: dict[str, Tensor], tolerance: float = TOLERANCE) -> None:
    """Values and gradients agree relative to their largest entry."""
    pairs = [(ours, theirs), *zip(gradients(ours, inputs), gradients(theirs, inputs), strict=True)]
    for a, b in pairs:
        assert float((a - b).detach().abs().max()) <= tolerance * float(b.detach().abs().max())


def sweeps(times: int, start: bool) -> kn.Program:
    """x relaxed towards s in a loop, then s' = 0.9 s + 0.1 x^2; x starts from s or from zero."""
    p = kn.Program("sweeps")
    s, w = p.state("s", Float, N), p.parameter("w", Float)
    loop = p.repeat(times)
    x = p.iterate(loop, "x", Float, N)
    if start:
        p.call(copy, s, x.first, count=N)
    with loop:
        p.call(relax, x, s, w, x.next, count=N)
    p.call(blend, s, x.last, s.next, count=N)
    return p


def sweeps_torch(s: Tensor, w: Tensor, times: int, start: bool) -> Tensor:
    for _ in range(STEPS):
        x = s if start else torch.zeros_like(s)
        for _ in range(times):
            x = relax_torch(x, s, w)
        s = s * 0.9 + 0.1 * x * x
    return s


@pytest.mark.parametrize("start", [True, False], ids=["from s", "from zero"])
@pytest.mark.parametrize("checkpoint", [1, 2, 3])
def test_repeat(checkpoint: int, start: bool):
    """Every iterate is kept for the reverse sweep of its step."""
    inputs = leaves()
    final = kn.rollout(
        sweeps(6, start), STEPS, {"s": inputs["s"]}, {"w": inputs["w"]}, options=kn.RunOptions(checkpoint=checkpoint)
    ).final["s"]
    agree(final, sweeps_torch(inputs["s"], inputs["w"], 6, start), inputs)


def test_repeat_in_a_batch():
    """Worlds as lanes, too."""
    inputs = leaves((5,))
    final = kn.rollout(sweeps(6, True), STEPS, {"s": inputs["s"]}, {"w": inputs["w"]}).final["s"]
    agree(final, sweeps_torch(inputs["s"], inputs["w"], 6, True), inputs)


def test_scratch_inside_a_loop():
    """Scratch that is written anew in every iteration is recomputed for each in the reverse sweep."""
    p = kn.Program("scratch")
    s, w = p.state("s", Float, N), p.parameter("w", Float)
    b = p.scratch("b", Float, N)
    loop = p.repeat(4)
    x = p.iterate(loop, "x", Float, N)
    p.call(copy, s, x.first, count=N)
    with loop:
        p.call(square, x, b, count=N)
        p.call(relax, x, b, w, x.next, count=N)
    p.call(blend, s, x.last, s.next, count=N)
    inputs = leaves()
    final = kn.rollout(p, STEPS, {"s": inputs["s"]}, {"w": inputs["w"]}).final["s"]
    state = inputs["s"]
    for _ in range(STEPS):
        found = state
        for _ in range(4):
            found = relax_torch(found, found * found, inputs["w"])
        state = state * 0.9 + 0.1 * found * found
    agree(final, state, inputs)


def test_nested_loops():
    """An inner solve in every iteration of an outer one."""
    p = kn.Program("nested")
    s, w = p.state("s", Float, N), p.parameter("w", Float)
    outer, inner = p.repeat(3), p.repeat(2)
    y, x = p.iterate(outer, "y", Float, N), p.iterate(inner, "x", Float, N)
    p.call(copy, s, y.first, count=N)
    with outer:
        p.call(square, y, x.first, count=N)
        with inner:
            p.call(relax, x, y, w, x.next, count=N)
        p.call(blend, y, x.last, y.next, count=N)
    p.call(blend, s, y.last, s.next, count=N)
    inputs = leaves()
    final = kn.rollout(p, STEPS, {"s": inputs["s"]}, {"w": inputs["w"]}, options=kn.RunOptions(checkpoint=2)).final["s"]
    state = inputs["s"]
    for _ in range(STEPS):
        b = state
        for _ in range(3):
            a = b * b
            for _ in range(2):
                a = relax_torch(a, b, inputs["w"])
            b = b * 0.9 + 0.1 * a * a
        state = state * 0.9 + 0.1 * b * b
    agree(final, state, inputs)


def until_program(tolerance: float, most: int) -> kn.Program:
    """Sweeps until two iterates agree."""
    p = kn.Program("until")
    s, w = p.state("s", Float, N), p.parameter("w", Float)
    limit, ready = p.constant("limit", Float, tolerance), p.scratch("ready", Float)
    loop = p.until(ready, most)
    x = p.iterate(loop, "x", Float, N)
    p.call(copy, s, x.first, count=N)
    with loop:
        p.call(relax, x, s, w, x.next, count=N)
        p.call(distance, x, x.next, limit, ready)
    p.call(blend, s, x.last, s.next, count=N)
    return p


def until_torch(s: Tensor, w: Tensor, tolerance: float, most: int) -> tuple[Tensor, list[int]]:
    counts = []
    for _ in range(STEPS):
        x, count, done = s, 0, False
        while not done and count < most:
            moved = relax_torch(x, s, w)
            done = float((moved - x).detach().abs().max()) < tolerance
            x, count = moved, count + 1
        counts.append(count)
        s = s * 0.9 + 0.1 * x * x
    return s, counts


@pytest.mark.parametrize("most", [40, 3], ids=["converges", "stops at max"])
def test_until(most: int):
    """The loop ends where torch's does; the reverse sweep runs as many iterations."""
    inputs = leaves()
    final = kn.rollout(until_program(1e-3, most), STEPS, {"s": inputs["s"]}, {"w": inputs["w"]}).final["s"]
    theirs, counts = until_torch(inputs["s"], inputs["w"], 1e-3, most)
    assert set(counts) == {9 if most == 40 else 3}  # it ends by its condition, or by max
    agree(final, theirs, inputs)


def test_until_in_a_batch():
    """Worlds end at different times and have the bits they have alone."""
    inputs = leaves((6,))
    program = until_program(1e-3, 40)
    final = kn.rollout(program, STEPS, {"s": inputs["s"]}, {"w": inputs["w"]}).final["s"]
    for w in range(6):
        alone = kn.rollout(program, STEPS, {"s": inputs["s"][w].detach()}, {"w": inputs["w"].detach()}).final["s"]
        assert torch.equal(alone, final[w])


@kernel
def is_small(x: Array[Float], ready: Array[Float]):
    """Whether a number is at most 1."""
    ready[0] = 1.0 if x[0] <= 1.0 else 0.0


@kernel
def halve_large(x: Array[Float], x_next: Array[Float]):
    """Half of a number above 1; others stay as they are."""
    x_next[0] = 0.5 * x[0] if x[0] > 1.0 else x[0]


def test_a_settled_loop_may_end_before_its_first_iteration():
    """Of worlds in lanes too: each is halved as often as it needs, some never, with values and slopes of its own."""
    p = kn.Program("settled")
    s, ready = p.state("s", Float, 1), p.scratch("ready", Float, 1)
    loop = p.until(ready, 10, settled=True)
    x = p.iterate(loop, "x", Float, 1)
    p.call(copy, s, x.first, count=1)
    p.call(is_small, s, ready)
    with loop:
        p.call(halve_large, x, x.next)
        p.call(is_small, x.next, ready)
    p.call(copy, x.last, s.next, count=1)
    assert not p.lanes_are_elements
    start = torch.tensor([[0.7], [5.0], [1.0], [1.5], [300.0]], dtype=torch.float64, requires_grad=True)
    halved = 0.5 ** torch.tensor([[0.0], [3.0], [0.0], [1.0], [9.0]], dtype=torch.float64)
    for rows in (slice(None), slice(0, 1), slice(2, 3), slice(1, 2)):  # together, and alone: without an iteration, with
        final = kn.rollout(p, 1, {"s": start[rows]}, {}).final["s"]
        (slopes,) = torch.autograd.grad(final.sum(), start)
        assert torch.equal(final.detach(), (halved * start.detach())[rows])
        assert torch.equal(slopes[rows], halved[rows])


@kernel
def jacobi(i: Index, x: Array[Float], b: Array[Float], d: Array[Float], x_next: Array[Float]):
    """A sweep for the symmetric system d_i x_i - (x_left + x_right)/4 = b_i."""
    neighbours = x[(i + len(x) - 1) % len(x)] + x[(i + 1) % len(x)]
    x_next[i] = (b[i] + 0.25 * neighbours) / d[i]


@kernel
def solve_adjoint(i: Index, z: Array[Float], x: Array[Float], b_adj: Array[Float], d_adj: Array[Float]):
    """With A z = x_adj: b_adj = z, d_adj = -z x."""
    b_adj[i] += z[i]
    d_adj[i] += -z[i] * x[i]


def test_custom_adjoint():
    """A linear solve by many sweeps, differentiated by one more solve instead of by its sweeps."""
    p = kn.Program("solve")
    s, d = p.state("s", Float, N), p.parameter("d", Float, N)
    answer = p.scratch("answer", Float, N)
    with p.custom() as operation:
        with p.repeat(60) as loop:
            x = p.iterate(loop, "x", Float, N)
            p.call(jacobi, x, s, d, x.next, count=N)
        p.call(copy, x.last, answer, count=N)
    with p.adjoint_of(operation):
        with p.repeat(60) as back:
            z = p.iterate(back, "z", Float, N)
            p.call(jacobi, z, answer.adj, d, z.next, count=N)
        p.call(solve_adjoint, z.last, answer, s.adj, d.adj, count=N)
    p.call(blend, s, answer, s.next, count=N)

    torch.manual_seed(0)
    inputs = {
        "s": torch.randn(N, dtype=torch.float64, requires_grad=True),
        "d": torch.full((N,), 2.0, dtype=torch.float64, requires_grad=True),
    }
    final = kn.rollout(p, STEPS, {"s": inputs["s"]}, {"d": inputs["d"]}).final["s"]
    state = inputs["s"]
    off = 0.25 * (
        torch.roll(torch.eye(N, dtype=torch.float64), 1, 0) + torch.roll(torch.eye(N, dtype=torch.float64), -1, 0)
    )
    for _ in range(STEPS):
        found = torch.linalg.solve(torch.diag(inputs["d"]) - off, state)
        state = state * 0.9 + 0.1 * found * found
    # The sweeps contract by 1/4: 4^-60 is far below rounding.
    agree(final, state, inputs)


@kernel
def shrink(i: Index, s: Array[Float], small: Array[Float]):
    """|s| halved until it is below 1, in all lanes that run together."""
    x = s[i]
    for _ in range(20):
        x = select(abs(x) < 1.0, x, 0.5 * x)
        if everywhere(abs(x) < 1.0):
            break
    small[i] = x


@kernel
def shrink_and_count(i: Index, s: Array[Float], small: Array[Float], share: Array[Float]):
    """The same, and by how much."""
    x, scale = s[i], 1.0
    for _ in range(20):
        scale = select(abs(x) < 1.0, scale, 0.5 * scale)
        x = select(abs(x) < 1.0, x, 0.5 * x)
    small[i] = x
    share[i] = scale


@kernel
def shrink_adjoint(i: Index, share: Array[Float], small_adj: Array[Float], s_adj: Array[Float]):
    s_adj[i] += share[i] * small_adj[i]


@kernel
def held_square(i: Index, s: Array[Float], s_next: Array[Float]):
    s_next[i] = detach(s[i]) * s[i]


def test_nothing_flows_through_detach():
    """d (held(s) s) / ds = s, where d s^2 / ds would be 2 s."""
    p = kn.Program("held")
    s = p.state("s", Float, N)
    p.call(held_square, s, s.next, count=N)
    start = torch.linspace(1.0, 2.0, N, dtype=torch.float64, requires_grad=True)
    final = kn.rollout(p, 1, {"s": start}).final["s"]
    assert torch.equal(final, start * start)
    assert torch.equal(torch.autograd.grad(final.sum(), start)[0], start)


@pytest.mark.parametrize("batch", [(), (9,)])
def test_derivatives_run_the_replay_of_a_custom_operation(batch):
    """The forward step has no share; the adjoint reads what the replay wrote. Lanes that are ready earlier wait."""
    p = kn.Program("shrink")
    s, small, share = p.state("s", Float, N), p.scratch("small", Float, N), p.scratch("share", Float, N)
    with p.custom() as operation:
        p.call(shrink, s, small, count=N)
    with p.replay_of(operation):
        p.call(shrink_and_count, s, small, share, count=N)
    with p.adjoint_of(operation):
        p.call(shrink_adjoint, share, small.adj, s.adj, count=N)
    p.call(copy, small, s.next, count=N)

    torch.manual_seed(0)
    start = (100.0 * torch.randn(*batch, N, dtype=torch.float64)).requires_grad_()
    final = kn.rollout(p, 1, {"s": start}).final["s"]
    factor = 0.5 ** torch.ceil(torch.log2(start.detach().abs())).clamp(min=0)
    assert torch.equal(final, start * factor)
    (gradient,) = torch.autograd.grad(final.sum(), start)
    assert torch.equal(gradient, factor)
    with torch.no_grad():
        assert torch.equal(kn.rollout(p, 1, {"s": start}).final["s"], final)


@kernel
def push(i: Index, s: Array[Float], u: Array[Float], gain: Float, s_next: Array[Float], seen: Array[Float]):
    """A controlled step with an output per element and a sum."""
    s_next[i] = s[i] * 0.95 + gain * sin(u[i])
    seen[i] = s[i] * u[i]


@kernel
def energy(i: Index, s: Array[Float], total: Array[Float]):
    """Half the sum of squares."""
    total[0] += 0.5 * s[i] * s[i]


def controlled() -> kn.Program:
    p = kn.Program("controlled")
    s, u, gain = p.state("s", Float, N), p.control("u", Float, N), p.parameter("gain", Float)
    seen, total = p.output("seen", Float, N), p.output("total", Float, 1)
    p.call(push, s, u, gain, s.next, seen, count=N)
    p.call(energy, s, total, count=N)
    return p


@pytest.mark.parametrize("batch", [(), (3,), (9,)], ids=str)
@pytest.mark.parametrize("wanted", [("seen", "total"), ("total",), ("s", "seen"), ()], ids=str)
def test_controls_outputs_and_trajectory(batch: tuple[int, ...], wanted: tuple[str, ...]):
    """Gradients through every kind of result at once, with respect to every kind of input."""
    torch.manual_seed(0)
    inputs = {
        "s": torch.randn(*batch, N, dtype=torch.float64, requires_grad=True),
        "u": torch.randn(*batch, STEPS, N, dtype=torch.float64, requires_grad=True),
        "gain": torch.tensor(0.7, dtype=torch.float64, requires_grad=True),
    }
    result = kn.rollout(
        controlled(), STEPS, {"s": inputs["s"]}, {"gain": inputs["gain"]}, {"u": inputs["u"]}, record=wanted
    )
    states, seen, total = [inputs["s"]], [], []
    for t in range(STEPS):
        u = inputs["u"][..., t, :]
        seen.append(states[-1] * u)
        total.append(0.5 * states[-1].square().sum(-1, keepdim=True))
        states.append(states[-1] * 0.95 + inputs["gain"] * torch.sin(u))
    theirs = {"seen": torch.stack(seen, -2), "total": torch.stack(total, -2), "s": torch.stack(states, -2)}
    found = {**result.outputs, **result.trajectory}
    assert set(found) == set(wanted)
    ours = torch.cat([result.final["s"].flatten(), *[found[n].flatten() for n in wanted]])
    agree(ours, torch.cat([states[-1].flatten(), *[theirs[n].flatten() for n in wanted]]), inputs)


@pytest.mark.parametrize("make", [lambda: sweeps(4, True), lambda: until_program(1e-3, 40)], ids=["repeat", "until"])
def test_forward_mode_agrees_with_reverse_mode(make: Callable[[], kn.Program]):
    """w . (J t) = (J^T w) . t to rounding."""
    program, inputs = make(), leaves()
    torch.manual_seed(2)
    tangents = {n: torch.randn_like(t) for n, t in inputs.items()}
    weights = torch.randn(N, dtype=torch.float64)
    state, numbers = {"s": inputs["s"].detach()}, {"w": inputs["w"].detach()}
    _, moved = kn.jvp(program, STEPS, state, tangents, numbers)
    final = kn.rollout(program, STEPS, {"s": inputs["s"]}, {"w": inputs["w"]}).final["s"]
    grads = torch.autograd.grad((final * weights).sum(), list(inputs.values()))
    products = [float((g * t).sum()) for g, t in zip(grads, tangents.values(), strict=True)]
    assert abs(float((moved["s"] * weights).sum()) - sum(products)) <= 1e-12 * builtins_max(products)


def builtins_max(values: list[float]) -> float:
    """The largest magnitude (`max` is the kernel function here)."""
    return sorted(abs(v) for v in values)[-1]


def test_a_loop_is_entered_once():
    """Entering it again would run its nodes twice under one number."""
    p = kn.Program("twice")
    s = p.state("s", Float, N)
    loop = p.repeat(2)
    with loop:
        p.call(square, s, s.next, count=N)
    with pytest.raises(kn.ProgramError, match="entered only once"), loop:
        pass


@kernel
def drive(s: Array[Float], u: Array[Float], s_next: Array[Float]):
    """A step of a whole world, so that its control lies in memory as in the user's tensor."""
    for i in range(len(s)):
        s_next[i] = s[i] * 0.95 + sin(u[i]) * s[i]


def driven() -> kn.Program:
    p = kn.Program("driven")
    s, u = p.state("s", Float, N), p.control("u", Float, N)
    p.call(drive, s, u, s.next)
    return p


def test_controls_are_read_where_they_are():
    """Bits are those of controls that must be copied: not dense, or not at the start of a cache line."""
    torch.manual_seed(1)
    start, u = torch.randn(N, dtype=torch.float64), torch.randn(STEPS, N, dtype=torch.float64)
    beside = torch.zeros(STEPS * N + 1, dtype=torch.float64)
    beside[1:] = u.flatten()
    found = []
    for given in (u.clone(), beside[1:].reshape(STEPS, N), u.T.contiguous().T):
        before, given = given.clone(), given.detach().requires_grad_()
        final = kn.rollout(driven(), STEPS, {"s": start}, controls={"u": given}).final["s"]
        (gradient,) = torch.autograd.grad(final.square().sum(), given)
        assert torch.equal(given, before)
        found.append((final.detach(), gradient))
    for final, gradient in found[1:]:
        assert torch.equal(final, found[0][0]) and torch.equal(gradient, found[0][1])
    gradient = found[0][1]
    gradient += 1.0  # it is the user's own
    assert torch.equal(found[1][1] + 1.0, gradient)


def test_a_control_that_was_changed_is_noticed():
    u = torch.zeros(STEPS, N, dtype=torch.float64, requires_grad=True)
    final = kn.rollout(driven(), STEPS, {"s": torch.ones(N, dtype=torch.float64)}, controls={"u": u}).final["s"]
    with torch.no_grad():
        u += 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        final.sum().backward()


def test_a_failed_world_gives_its_control_no_gradient():
    u = torch.full((STEPS, N), 0.5, dtype=torch.float64, requires_grad=True)
    start = torch.full((N,), 1.7e308, dtype=torch.float64)
    final = kn.rollout(
        driven(), STEPS, {"s": start}, controls={"u": u}, options=kn.RunOptions(on_failure="status")
    ).final["s"]
    (gradient,) = torch.autograd.grad(final.sum(), u)
    assert (gradient == 0).all()
    with pytest.raises(kn.InputError, match="control 'u' is not finite"):
        kn.rollout(
            driven(), STEPS, {"s": start}, controls={"u": torch.full((STEPS, N), torch.nan, dtype=torch.float64)}
        )


@struct
class Wrench:
    """A struct without operators."""

    torque: vec3
    force: vec3


@kernel
def exchanged(i: Index, s: Array[Wrench], w: Float, given: Array[Wrench], taken: Array[Wrench]):
    """Structs that are added and taken away, number by number."""
    given[(i + 1) % len(s)] += s[i]
    taken[i] -= s[i]
    taken[i] -= Wrench(w * s[i].force, s[i].torque)


@kernel
def added(i: Index, given: Array[Wrench], taken: Array[Wrench], s_next: Array[Wrench]):
    """Their sum."""
    a, b = given[i], taken[i]
    s_next[i] = Wrench(a.torque + b.torque, a.force + b.force)


def test_structs_are_added_and_taken_away():
    """`-=` of a struct without operators takes away its numbers."""
    torch.manual_seed(0)
    s, w = torch.randn(N, 6, dtype=torch.float64, requires_grad=True), torch.tensor(0.3, dtype=torch.float64)
    p = kn.Program("exchange")
    state, factor = p.state("s", Wrench, N), p.parameter("w", Float)
    given, taken = p.scratch("given", Wrench, N), p.scratch("taken", Wrench, N)
    p.call(exchanged, state, factor, given, taken, count=N)
    p.call(added, given, taken, state.next, count=N)
    inputs = {"s": s, "w": w.requires_grad_()}
    ours = kn.rollout(p, 1, {"s": s}, {"w": w}).final["s"]
    agree(ours, torch.roll(s, 1, 0) - s - torch.cat([w * s[:, 3:], s[:, :3]], 1), inputs)


@kernel
def halve(i: Index, s: Array[Float], half: Array[Float]):
    """What a custom operation does."""
    half[i] = 0.5 * s[i]


@kernel
def take_next(i: Index, s_next: Array[Float], half: Array[Float]):
    """Its result as the end of the step tells it, three times: so it is seen who asked."""
    half[i] = 3.0 * s_next[i]


@kernel
def halve_adjoint(i: Index, half: Array[Float], half_adj: Array[Float], s_adj: Array[Float]):
    """Not a derivative: it passes on what it was told."""
    s_adj[i] += half[i] * half_adj[i]


@pytest.mark.parametrize("checkpoint", [1, 2])
def test_a_reverse_sweep_takes_from_the_end_of_the_step_what_that_tells(checkpoint):
    """Of three steps s -> s / 2 the adjoint multiplies by what `again_of` found; forward sweeps know nothing of it."""
    p = kn.Program("told")
    s, half = p.state("s", Float, N), p.scratch("half", Float, N)
    with p.custom() as operation:
        p.call(halve, s, half, count=N)
    with p.again_of(operation):
        p.call(take_next, s.next, half, count=N)
    with p.adjoint_of(operation):
        p.call(halve_adjoint, half, half.adj, s.adj, count=N)
    p.call(copy, half, s.next, count=N)
    start = torch.linspace(1.0, 2.0, N, dtype=torch.float64, requires_grad=True)
    final = kn.rollout(p, 3, {"s": start}, options=kn.RunOptions(checkpoint=checkpoint)).final["s"]
    assert torch.equal(final, start / 8.0)
    (gradient,) = torch.autograd.grad(final.sum(), start)
    told = [3.0 * start.detach() / 2.0 ** (t + 1) for t in range(3)]
    assert torch.equal(gradient, told[2] * told[1] * told[0])


def test_a_loop_does_not_know_its_end():
    """In a loop the operation itself is run."""
    p = kn.Program("looped")
    s, half = p.state("s", Float, N), p.scratch("half", Float, N)
    loop = p.repeat(2)
    x = p.iterate(loop, "x", Float, N)
    p.call(copy, s, x.first, count=N)
    with loop:
        with p.custom() as operation:
            p.call(halve, x, half, count=N)
        with p.again_of(operation):
            p.call(take_next, s.next, half, count=N)
        with p.adjoint_of(operation):
            p.call(halve_adjoint, half, half.adj, x.adj, count=N)
        p.call(copy, half, x.next, count=N)
    p.call(copy, x.last, s.next, count=N)
    start = torch.linspace(1.0, 2.0, N, dtype=torch.float64, requires_grad=True)
    final = kn.rollout(p, 1, {"s": start}).final["s"]
    (gradient,) = torch.autograd.grad(final.sum(), start)
    assert torch.equal(gradient, (start.detach() / 2.0) * (start.detach() / 4.0))
