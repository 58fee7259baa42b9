"""Gathers that run one packet ahead: which they are, and that they change no bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kinema.lang import Array, Float, Index, Int, kernel, mat33, vec2, vec3
from kinema.lang.autograd import inputs
from kinema.lang.autograd.rollout import rollout
from kinema.lang.build import compiler
from kinema.lang.emit import simd
from kinema.lang.ir import analysis
from kinema.lang.kernels.kernel import Kernel
from kinema.lang.programs.program import Program
from kinema.lang.runtime import native

WIDTHS = (1, 2, 4, 8)


@kernel
def twist(
    e: Index,
    first: Array[Int],
    second: Array[Int],
    k: Array[Float],
    x: Array[vec3],
    uv: Array[vec2],
    R: Array[mat33],
    f: Array[vec3],
):
    """Rows of two, three and nine numbers; those of `second` are used to the end."""
    a, b = first[e], second[e]
    d = x[b] - x[a]
    s = uv[a].x * uv[b].y - uv[a].y * uv[b].x
    g = (R[a] @ (R[b] @ (R[a] @ (R[b] @ (R[a] @ (R[b] @ (R[a] @ d))))))) * (k[e] + s * s)
    h = g * (1.0 + s) + (R[b] @ g) * k[e] + x[b] * (uv[b].x * s)
    if k[e] > 0.5:
        h = h + (R[b] @ h) * uv[b].y
    f[a] += h
    f[b] -= h


@kernel
def step(e: Index, x: Array[vec3], f: Array[vec3], x_next: Array[vec3]):
    x_next[e] = x[e] + 0.01 * f[e]


@kernel
def copy_rows(e: Index, first: Array[Int], x: Array[vec3], y: Array[vec3]):
    y[e] = x[first[e]]


@kernel
def computed(e: Index, first: Array[Int], x: Array[vec3], y: Array[vec3]):
    """The number of the row is computed."""
    v = x[first[e] + 1]
    y[e] = v * v.x + v * v.y + v * v.z + v * v.x * v.y + v * v.y * v.z


def text_of(used: Kernel, **options: bool) -> str:
    form = used.forward()
    return simd.emit(form, "k", layouts=dict.fromkeys(form.arrays, simd.AOS), width=8, **options).text


def test_rows_that_a_table_names_are_gathered_ahead():
    text = text_of(twist)
    loop = text.index("for (int64_t e0")
    # By each of two tables: rows of three numbers, of two, and of nine (4 + 4 + 1).
    gathers = ["rows3(x_ + 0", "rows2(uv_ + 0", "rows4(R_ + 0", "rows4(R_ + 4", "rows2(R_ + 8"]
    for part, offsets in ((text[:loop], "offsets_now"), (text[loop:], "offsets_next")):
        assert [part.count(f"{g}, {offsets} + ") for g in gathers] == [2] * len(gathers)


@pytest.mark.parametrize(
    "used, options", [(copy_rows, {}), (computed, {}), (twist, {"check": True}), (twist, {"lanes": analysis.WORLDS})]
)
def test_other_rows_are_gathered_where_they_are_used(used: Kernel, options: dict):
    assert "waiting" not in text_of(used, **options)


@pytest.mark.skipif(compiler.compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 17, 2 * native.CHUNK + 3])
def test_gathers_ahead_change_no_bit(count: int, monkeypatch: pytest.MonkeyPatch):
    """One lane gathers nothing ahead. Nodes are few, so that packets meet, and are rows of the packets beside them."""
    nodes = 40
    pairs = np.random.default_rng(count).integers(0, nodes, (count, 2)).astype(np.int32)
    generator = torch.Generator().manual_seed(count)
    given = {"x": (nodes, 3), "k": (count,), "uv": (nodes, 2), "R": (nodes, 3, 3)}
    numbers = {n: torch.rand(*shape, generator=generator).requires_grad_() for n, shape in given.items()}
    state, rest = {"x": numbers["x"]}, {n: t for n, t in numbers.items() if n != "x"}
    found = {}
    for width in WIDTHS:
        monkeypatch.setattr(inputs, "width_of", lambda precision, width=width: width)
        end = rollout(twisted(pairs, nodes), 2, state, rest).final["x"]
        found[width] = [end, *torch.autograd.grad((end * end).sum(), list(numbers.values()))]
    for width in WIDTHS[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[1], found[width], strict=True))


def twisted(pairs: np.ndarray, nodes: int) -> Program:
    p = Program("twisted")
    x, k = p.state("x", vec3, nodes), p.parameter("k", Float, len(pairs))
    uv, R = p.parameter("uv", vec2, nodes), p.parameter("R", mat33, nodes)
    first, second = (p.constant(n, Int, pairs[:, c]) for c, n in enumerate(("first", "second")))
    f = p.scratch("f", vec3, nodes)
    p.call(twist, first, second, k, x, uv, R, f, count=len(pairs))
    p.call(step, x, f, x.next, count=nodes)
    return p
