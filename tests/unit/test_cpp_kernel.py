"""Kernels in C++ inside programs, `detach`, and sums of elements that share an index."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kinema.errors import KernelError
from kinema.lang import Array, Float, Index, Int, detach, kernel, uniform, vec3
from kinema.lang.autograd.rollout import rollout
from kinema.lang.kernels.cpp_kernel import cpp_kernel
from kinema.lang.programs.program import Program

SORT = """
#include <algorithm>
template <class T>
void ranks(const kn_call* call) {  // order[k] is the number of the k-th smallest x
  const T* x = static_cast<const T*>(call->array[0]);
  int32_t* order = static_cast<int32_t*>(call->array[1]);
  for (int64_t i = 0; i < call->length[0]; ++i) order[i] = int32_t(i);
  std::sort(order, order + call->length[0], [x](int32_t a, int32_t b) { return x[a] < x[b]; });
}
"""


@kernel
def pick(k: Index, x: Array[Float], order: Array[Int], y: Array[Float]):
    """The k-th smallest number, times k + 1."""
    y[k] = x[order[k]] * Float(k + 1)


@kernel
def shared(e: Index, x: Array[Float], a: Array[vec3], y: Array[Float]):
    """Sixteen elements share an element of a."""
    row = a[uniform(e // 16)]
    y[e] = x[e] * x[e] * row.x + detach(x[e]) * row.y * row.z


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_kernel_in_cpp_decides_and_gradients_pass_it(tmp_path: Path, dtype: torch.dtype) -> None:
    file = tmp_path / "ranks.cpp"
    file.write_text(SORT)
    p = Program("sorted")
    x, order, y = p.parameter("x", Float, 5), p.scratch("order", Int, 5), p.output("y", Float, 5)
    p.call(cpp_kernel("ranks", file, reads={"x": Float}, writes={"order": Int}), x, order)
    p.call(pick, x, order, y, count=5)
    numbers = torch.tensor([[3.0, 1.0, 2.0, 5.0, 4.0], [1.0, 2.0, 3.0, 4.0, 0.0]], dtype=dtype, requires_grad=True)
    found = rollout(p, 1, {}, {"x": numbers}, record=("y",)).outputs["y"][:, 0]
    ranks = torch.arange(1, 6, dtype=dtype)
    assert torch.equal(found, numbers.sort(dim=1).values * ranks)
    (gradient,) = torch.autograd.grad(found.sum(), numbers)
    assert torch.equal(gradient, ranks[numbers.argsort(dim=1).argsort(dim=1)])


def test_a_kernel_in_cpp_writes_integers_only(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="not Int"):
        cpp_kernel("f", tmp_path / "f.cpp", reads={}, writes={"x": Float})


@pytest.mark.parametrize("count", [16, 37, 256])
def test_sums_of_elements_that_share_an_index(count: int) -> None:
    p, rows = Program("shared"), -(-count // 16)
    y = p.output("y", Float, count)
    p.call(shared, p.parameter("x", Float, count), p.parameter("a", vec3, rows), y, count=count)
    x = torch.randn(count, dtype=torch.float64, requires_grad=True)
    a = torch.randn(rows, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(count, dtype=torch.float64)
    found = rollout(p, 1, {}, {"x": x, "a": a}, record=("y",)).outputs["y"][0]
    row = a.repeat_interleave(16, dim=0)[:count]
    expected = x * x * row[:, 0] + x.detach() * row[:, 1] * row[:, 2]
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)  # roundings
    for one, other in zip(
        torch.autograd.grad((found * weights).sum(), (x, a)),
        torch.autograd.grad((expected * weights).sum(), (x, a)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)  # sums of sixteen
