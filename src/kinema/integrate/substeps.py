"""Copies of states, and what the outputs of several short steps are for a long one.

Of every kind of element there is a kernel; they differ in nothing else. With the weights 1 and 1 an output is the sum
over the short steps, with 1/n and 1/n their mean, with 1 and 0 that of the first.
"""

from __future__ import annotations

from kinema.lang import Array, Float, Index, kernel, mat33, max, vec3
from kinema.lang.kernels.kernel import Kernel
from kinema.math import Motion


@kernel
def count_up(now: Array[Float], after: Array[Float]):
    """The number of the next short step."""
    after[0] = now[0] + 1.0


@kernel
def keep_worst(i: Index, part: Array[Float], now: Array[Float], after: Array[Float]):
    """The largest number so far."""
    after[i] = max(now[i], part[i])


@kernel
def copy_floats(i: Index, a: Array[Float], b: Array[Float]):
    """b = a."""
    b[i] = a[i]


@kernel
def copy_vec3s(i: Index, a: Array[vec3], b: Array[vec3]):
    """b = a."""
    b[i] = a[i]


@kernel
def copy_motions(i: Index, a: Array[Motion], b: Array[Motion]):
    """b = a."""
    b[i] = a[i]


@kernel
def copy_mat33s(i: Index, a: Array[mat33], b: Array[mat33]):
    """b = a."""
    b[i] = a[i]


@kernel
def gather_floats(
    i: Index,
    number: Array[Float],
    first: Float,
    later: Float,
    part: Array[Float],
    now: Array[Float],
    after: Array[Float],
):
    """The weighted sum so far."""
    after[i] = now[i] + part[i] * (first if number[0] < 0.5 else later)


@kernel
def gather_vec3s(
    i: Index, number: Array[Float], first: Float, later: Float, part: Array[vec3], now: Array[vec3], after: Array[vec3]
):
    """The weighted sum so far."""
    after[i] = now[i] + part[i] * (first if number[0] < 0.5 else later)


@kernel
def gather_motions(
    i: Index,
    number: Array[Float],
    first: Float,
    later: Float,
    part: Array[Motion],
    now: Array[Motion],
    after: Array[Motion],
):
    """The weighted sum so far."""
    after[i] = now[i] + part[i] * (first if number[0] < 0.5 else later)


@kernel
def gather_mat33s(
    i: Index,
    number: Array[Float],
    first: Float,
    later: Float,
    part: Array[mat33],
    now: Array[mat33],
    after: Array[mat33],
):
    """The weighted sum so far."""
    after[i] = now[i] + part[i] * (first if number[0] < 0.5 else later)


COPIES: dict[int, Kernel] = {1: copy_floats, 3: copy_vec3s, 6: copy_motions, 9: copy_mat33s}
"""By the size of an element."""

SUMS: dict[int, Kernel] = {1: gather_floats, 3: gather_vec3s, 6: gather_motions, 9: gather_mat33s}
"""Likewise."""
