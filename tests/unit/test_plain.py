"""Kernels as plain Python against numpy, and `grad` in plain Python against torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.support import solid_forces

from kinema.dynamics.elastic import TetMesh, neo_hookean
from kinema.errors import InputError, KernelError
from kinema.lang import (
    Array,
    Bool,
    Float,
    Index,
    Int,
    acos,
    adjoint_of,
    asin,
    atan2,
    clamp,
    cos,
    cross,
    det,
    dot,
    exp,
    floor,
    func,
    grad,
    inverse,
    ivec2,
    kernel,
    local,
    log,
    mat22,
    mat33,
    max,
    min,
    norm,
    normalize,
    outer,
    pow,
    record,
    rsqrt,
    select,
    sigmoid,
    sign,
    sin,
    sqrt,
    static,
    struct,
    tan,
    tanh,
    transpose,
    vec2,
    vec3,
)
from kinema.lang.derivatives import reverse
from kinema.lang.frontend import statements
from kinema.lang.kernels import plain

RNG = np.random.default_rng(7)


# -- kernels against numpy -----------------------------------------------------------------------------------------


@kernel
def springs(e: Index, ends: Array[ivec2], x: Array[vec3], stiffness: Float, rest: Array[Float], f: Array[vec3]):
    """Every force is added at both ends."""
    a, b = ends[e]
    d = x[b] - x[a]
    pull = stiffness * (norm(d) - rest[e]) * normalize(d)
    f[a] += pull
    f[b] -= pull


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gather_and_accumulate(dtype):
    ends = np.array([[0, 1], [1, 2], [3, 1]])
    x, rest, f = RNG.normal(size=(4, 3)).astype(dtype), RNG.uniform(1, 2, 3).astype(dtype), np.ones((4, 3), dtype)
    springs.python(ends, x, 3.0, rest, f)
    expected = np.ones((4, 3))
    for (a, b), r in zip(ends, rest, strict=True):
        d = x[b] - x[a]
        expected[[a, b]] += 3.0 * (np.linalg.norm(d) - r) * d / np.linalg.norm(d) * np.array([[1], [-1]])
    assert f.dtype == dtype
    np.testing.assert_allclose(f, expected, rtol=30 * np.finfo(dtype).eps)


@kernel
def primes(e: Index, limit: Int, smallest: Array[Int], sums: Array[Float], is_prime: Array[Bool]):
    """The smallest factor of e, by a loop with break over a local array of what was tried."""
    tried = local(Float, limit)
    found = e
    for k in range(2, limit):
        tried[k] = 1.0 / k
        if k * k > e:
            break
        if e % k == 0:
            found = k
            break
    total = 0.0
    for k in range(limit - 1, -1, -1):
        total += tried[k]
    smallest[e] = found
    sums[e] = total
    is_prime[e] = found == e and e > 1


def test_loops_branches_and_local_arrays():
    n = 30
    smallest, sums, is_prime = np.zeros(n, np.int32), np.zeros(n), np.zeros(n, bool)
    primes.python(8, smallest, sums, is_prime)
    factor = [next((k for k in range(2, n) if k * k <= e and e % k == 0), e) for e in range(n)]
    last = [min(7, next(k for k in range(2, n) if k * k > e or e % k == 0)) for e in range(n)]
    assert smallest.tolist() == factor
    assert is_prime.tolist() == [e > 1 and f == e for e, f in enumerate(factor)]
    np.testing.assert_allclose(sums, [sum(1 / k for k in range(2, i + 1)) for i in last])


@struct
class Line:
    """start + t direction, with operators."""

    start: vec3
    direction: vec3

    def at(self, t):
        return self.start + self.direction * t

    def __add__(self, other):
        return Line(self.start + other.start, self.direction + other.direction)

    def __rmul__(self, scale):
        return Line(scale * self.start, scale * self.direction)


@record
class Lines:
    """Lines and how they are moved."""

    line: Array[Line]
    turn: Array[mat33]
    shift: vec3
    scale: Float


@kernel
def move(e: Index, lines: Lines, corner: mat22, out: Array[vec3], flat: Array[vec2]):
    """Structs, matrices and records."""
    line = lines.line[e]
    lines.line[e] += lines.scale * line
    turned = inverse(lines.turn[e]) @ line.at(lines.scale) + lines.shift
    out[e] = turned + transpose(outer(turned, line.start)) @ turned * det(lines.turn[e])
    flat[e] = corner @ vec2(turned.x, turned[-1])


def test_structs_matrices_and_records():
    wide = RNG.normal(size=(5, 12))
    line, turn, corner = wide[:, ::2], RNG.normal(size=(5, 3, 3)) + 2 * np.eye(3), RNG.normal(size=(2, 2))
    before, out, flat = line.copy(), np.zeros((5, 3)), np.zeros((5, 2))
    move.python(Lines(line=line, turn=turn, shift=[1, 2, 3], scale=0.5), corner, out, flat)
    np.testing.assert_allclose(line, 1.5 * before)
    for e in range(5):
        start, direction = before[e, :3], before[e, 3:]
        turned = np.linalg.inv(turn[e]) @ (start + 0.5 * direction) + [1, 2, 3]
        expected = turned + np.outer(turned, start).T @ turned * np.linalg.det(turn[e])
        np.testing.assert_allclose(out[e], expected)
        np.testing.assert_allclose(flat[e], corner @ turned[[0, 2]])


@struct
class Wrench:
    """Without operators."""

    torque: vec3
    force: vec3


@kernel
def pushed(e: Index, at: Array[Int], push: Array[Wrench], total: Array[Wrench]):
    """Accumulates numbers of structs."""
    total[at[e]] += push[e]
    total[0] -= push[e]


def test_structs_without_operators_accumulate():
    push, total = RNG.normal(size=(3, 6)), np.zeros((3, 6))
    pushed.python(np.array([1, 2, 1]), push, total)
    np.testing.assert_allclose(total, [-push.sum(0), push[0] + push[2], push[1]], rtol=1e-14)


@kernel
def every_function(e: Index, x: Array[Float], y: Array[Float]):
    """Each scalar function once, of x in (0, 1)."""
    u = x[e]
    y[e] = sqrt(u) + rsqrt(u) + sin(u) + cos(u) + tan(u) + asin(u) + acos(u) + atan2(u, -u) + exp(u) + log(u)
    y[e] = y[e] + pow(u, 1.5) + tanh(u) + sigmoid(u) + sigmoid(-u) + sign(-u) + floor(u * 5.0) + abs(u - 0.5)
    y[e] = y[e] + min(u, 0.5, 0.3) * max(u, 0.25) + clamp(u, 0.2, 0.4) + select(u > 0.5, u, 1.0) + u**3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scalar_functions(dtype):
    x, y = RNG.uniform(0.01, 0.99, 20).astype(dtype), np.zeros(20, dtype)
    every_function.python(x, y)
    u = x.astype(np.float64)
    expected = np.sqrt(u) + u**-0.5 + np.sin(u) + np.cos(u) + np.tan(u) + np.arcsin(u) + np.arccos(u)
    expected += np.arctan2(u, -u) + np.exp(u) + np.log(u) + u**1.5 + np.tanh(u) + 1 - 1 + np.floor(u * 5)
    expected += np.abs(u - 0.5) + np.minimum(u, 0.3) * np.maximum(u, 0.25) + np.clip(u, 0.2, 0.4)
    np.testing.assert_allclose(y, expected + np.where(u > 0.5, u, 1.0) + u**3, rtol=50 * np.finfo(dtype).eps)


# -- as a debugging aid --------------------------------------------------------------------------------------------


@kernel
def chatty(e: Index, i: Array[Int], x: Array[Float], v: Array[vec3]):
    """Not in the language, but plain Python can run it."""
    kinds = [type(a).__name__ for a in (e, i[e], x[e], x[e] * i[e] * 2.0, Float(e), local(Float, 1)[0], sqrt(2.0))]
    print(e, *kinds, type(v[e]).__name__, type(v[e].x).__name__)


def test_print_works_and_numbers_follow_the_arrays(capsys):
    chatty.python(np.zeros(2, np.int32), np.zeros(2, np.float32), np.zeros((2, 3), np.float32))
    line = "int int float32 float32 float32 float32 float32 vec3 float32"
    assert capsys.readouterr().out == f"0 {line}\n1 {line}\n"
    with pytest.raises(KernelError, match="not part of the kernel language"):
        _ = chatty.ir


@kernel
def shifted(e: Index, by: Int, x: Array[Float], y: Array[Float]):
    """An index that can leave its array."""
    y[e] = x[e + by] * len(x)


@pytest.mark.parametrize(("by", "why"), [(2, "index 3 of 'x': out of range"), (-1, "index -1 of 'x': negative ind")])
def test_an_index_out_of_range_names_the_array(by, why):
    with pytest.raises(IndexError, match=f"{why}.*length is 3"):
        shifted.python(by, np.zeros(3), np.zeros(2))


@kernel
def once(x: Array[Float], total: Array[Float]):
    """Without Index."""
    for i in range(len(x)):
        total[0] += x[i]


@func
def square_of(e, x):
    """Indexes inside a function."""
    return x[e] ** 2


@kernel
def hidden(e: Index, x: Array[Float], total: Array[Float]):
    """No array is indexed by e here."""
    total[0] += square_of(e, x)


def test_how_often_a_kernel_runs():
    x, total = np.arange(4.0), np.zeros(1)
    once.python(x, total)
    hidden.python(x, total, count=3)
    assert total[0] == 6 + 5
    shifted.python(0, x, y := np.zeros(2))
    assert y.tolist() == [0, 4]
    with pytest.raises(InputError, match="pass count="):
        hidden.python(x, total)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((np.zeros(3),), "wrong number of arguments"),
        (([1.0], np.zeros(3)), "expected: a numpy array"),
        ((np.zeros((3, 2)), np.zeros(1)), r"expected: \(n\)"),
        ((np.zeros(3, int), np.zeros(1)), "float32 or float64"),
        ((np.zeros(3), np.zeros(1, np.float32)), "differ in precision"),
    ],
)
def test_wrong_arguments_are_refused(args, message):
    with pytest.raises(InputError, match=message):
        once.python(*args)


def test_wrong_elements_are_refused():
    array = plain.PlainArray.zeros(vec3, 2)
    with pytest.raises(TypeError, match="must be vec3, got vec2"):
        array[0] = vec2(1.0, 2.0)
    with pytest.raises(TypeError, match="must be vec3, got float"):
        array[0] = 1.0
    with pytest.raises(TypeError):
        plain.PlainArray.zeros(Int, 2)[0] = 1.5


# -- grad ----------------------------------------------------------------------------------------------------------


def parts(value) -> list[float]:
    return [float(p) for p in (value if hasattr(value, "parts") else [value])]


def torch_neo_hookean(F, mu, lam, alpha):
    I_C = (F * F).sum()
    return 0.5 * mu * (I_C - 3) + 0.5 * lam * (torch.det(F.reshape(3, 3)) - alpha) ** 2 - 0.5 * mu * torch.log(I_C + 1)


@func
def wave(x: vec3, n, table: Array[Float], k: Float):
    """Branches, an unrolled loop over a constant, an array."""
    total = 0.0
    for i in static(n):
        total += sin(k * x[i]) * table[i + 1]
    if norm(x) > 1.0:
        return total / norm(x)
    return total * exp(-dot(x, x)) + atan2(x.x, x.y)


def torch_wave(x, n, table, k):
    total = sum(torch.sin(k * x[i]) * table[i + 1] for i in range(n))
    r = torch.linalg.norm(x)
    return total / r if r > 1 else total * torch.exp(-x @ x) + torch.atan2(x[0], x[1])


@func
def slope(x: vec3, y: vec3):
    """Itself a derivative."""
    return dot(grad(bump)(x), y) + grad(bump)(y).x ** 2


@func
def bump(x: vec3):
    """exp(-x^2) sin x0."""
    return exp(-dot(x, x)) * sin(x.x)


def torch_slope(x, y):
    def gradient(z):
        e, s, c = torch.exp(-z @ z), torch.sin(z[0]), torch.cos(z[0])
        return -2 * e * s * z + e * torch.stack([c, 0 * c, 0 * c])

    return gradient(x) @ y + gradient(y)[0] ** 2


@pytest.mark.parametrize("scale", [0.3, 2.0])
@pytest.mark.parametrize(
    ("f", "reference", "fixed"),
    [(neo_hookean, torch_neo_hookean, ()), (wave, torch_wave, (1, 2)), (slope, torch_slope, ())],
    ids=lambda a: getattr(a, "__name__", ""),
)
def test_gradients_agree_with_torch(f, reference, fixed, scale):
    vectors = {neo_hookean: [9, 1, 1, 1], wave: [3, 1, 4, 1], slope: [3, 3]}[f]
    numbers = [scale * RNG.normal(size=n) for n in vectors]
    if f is wave:
        numbers[1] = np.array([2])
    makers = {9: mat33, 3: vec3, 1: np.float64, 4: lambda *t: plain.PlainArray(np.array(t), Float, "table")}
    given = [makers[len(n)](*n) if at != 1 or f is not wave else 2 for at, n in enumerate(numbers)]
    leaves = [torch.tensor(n if len(n) > 1 else n[0], requires_grad=n.dtype == float) for n in numbers]
    reference(*leaves).backward()
    for at, leaf in enumerate(leaves):
        if at not in fixed:
            got = grad(f, at)(*given)
            assert isinstance(got, type(given[at]))
            np.testing.assert_allclose(parts(got), np.ravel(leaf.grad.numpy()), rtol=1e-12, atol=1e-14)


@func
def root(a: Float):
    """sqrt(a) by Newton's method; only its hand-written adjoint knows the derivative."""
    x = a
    for _ in range(40):
        x = 0.5 * (x + a / x)
    return x


@adjoint_of(root)
def root_adjoint(a, x_adj):
    """Adjoint of x^2 = a."""
    return x_adj / (2.0 * root(a))


@func
def through_root(a: Float):
    """Calls a function with its own adjoint."""
    return 3.0 * root(a) + a


def test_gradients_use_hand_written_adjoints():
    assert grad(root)(4.0) == pytest.approx(0.25, rel=1e-14)
    assert grad(through_root)(np.float64(4.0)) == pytest.approx(1.75, rel=1e-14)


@func
def looping(x: Float):
    """A loop that `grad` refuses, as it does in kernels."""
    for _ in range(3):
        x = x * x
    return x


def test_gradients_that_are_refused():
    with pytest.raises(KernelError, match="cannot be formed"):
        grad(looping)(2.0)
    with pytest.raises(TypeError, match="@func"):
        grad(math.sin)
    with pytest.raises(TypeError, match="no argument 1"):
        grad(bump, 1)(vec3(1.0, 2.0, 3.0))
    with pytest.raises(TypeError, match="returns vec3"):
        grad(normalize)(vec3(1.0, 2.0, 3.0))


def test_gradients_follow_the_precision():
    F = mat33(*np.eye(3, dtype=np.float32).ravel())
    assert {type(p) for p in grad(neo_hookean)(F, 1.0, 2, 3.0)} == {np.float32}
    assert {type(p) for p in grad(bump)(vec3(1.0, 2, 3.0))} == {np.float64}


def test_an_energy_inside_a_kernel():
    n, points = 6, RNG.normal(size=(8, 3))
    mesh = TetMesh(
        vertices=np.array([RNG.permutation(8)[:4] for _ in range(n)]),
        rest_inverse=RNG.normal(size=(n, 3, 3)),
        volume=RNG.uniform(0.5, 1, n),
    )
    mu, lam, alpha, f = *RNG.uniform(0.5, 1, (3, n)), np.zeros((8, 3))
    solid_forces.python(mesh, points, mu, lam, alpha, f)
    x = torch.tensor(points, requires_grad=True)
    energy = torch.zeros((), dtype=torch.float64)
    for e, (a, b, c, d) in enumerate(mesh.vertices):
        F = torch.stack([x[b] - x[a], x[c] - x[a], x[d] - x[a]], 1) @ torch.tensor(mesh.rest_inverse[e])
        energy = energy + mesh.volume[e] * torch_neo_hookean(F, mu[e], lam[e], alpha[e])
    energy.backward()
    np.testing.assert_allclose(f, -x.grad.numpy(), rtol=1e-11, atol=1e-12)


# -- the interpreter -----------------------------------------------------------------------------------------------


@func
def polynomial(x: Float, v: vec3, n: Int):
    """Loops up and down with break, a local array, a branch, several results."""
    powers = local(vec2, n)
    p = 1.0
    for k in range(n):
        powers[k] = vec2(p, -p)
        p = p * x
        if p > 50.0:
            break
    total = 0.0
    for k in range(n - 1, -1, -1):
        total = total * 0.5 + powers[k].x * (k // 2) - powers[k].y * (-k % 3)
    if total > norm(v):
        total = total / (1.0 + total * total)
    return total, cross(v, vec3(total, x, Float(n)))


CASES = [(0.7, 5), (3.0, 6), (-1.3, 4), (2.0, 0)]


@pytest.mark.parametrize(("x", "n"), CASES)
def test_interpreted_functions_agree_with_python(x, n):
    v = vec3(*RNG.normal(size=3))
    function, _ = statements.build_function(polynomial, ["f", vec3, "i"])
    total, direction = polynomial(np.float64(x), v, n)
    np.testing.assert_allclose(plain.interpret(function, [x, *v, n]), [total, *direction], rtol=1e-14)


@pytest.mark.parametrize(("x", "n"), CASES)
def test_interpreted_adjoints_agree_with_differences(x, n):
    numbers, weights = np.array([x, *RNG.normal(size=3)]), RNG.normal(size=4)
    function, _ = statements.build_function(polynomial, ["f", vec3, "i"])
    *gradient, none = plain.interpret(reverse.adjoint_function(function), [*numbers, n, *weights])
    for i, h in enumerate(np.eye(4) * 1e-6):
        ahead, behind = (plain.interpret(function, [*(numbers + s), n]) for s in (h, -h))
        assert gradient[i] == pytest.approx(weights @ np.subtract(ahead, behind) / 2e-6, rel=1e-7, abs=1e-7)
    assert none == 0
