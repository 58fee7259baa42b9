"""Substeps: copies of states, and the outputs of a step as weighted sums over its substeps.

Each element type has its own kernel; the kernels differ in nothing else. The weights (first, later) = (1, 1) give the
sum of an output over the substeps, (1/n, 1/n) its mean, and (1, 0) its value in the first substep.
"""

from __future__ import annotations

from kinema.lang import Array, Float, Index, kernel, mat33, max, vec3
from kinema.lang.kernels.kernel import Kernel
from kinema.math import Motion


@kernel
def count_up(now: Array[Float], after: Array[Float]):
    """Index of the next substep."""
    after[0] = now[0] + 1.0


@kernel
def keep_worst(i: Index, part: Array[Float], now: Array[Float], after: Array[Float]):
    """Maximum so far."""
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
"""Copy kernels by the size of an element."""

SUMS: dict[int, Kernel] = {1: gather_floats, 3: gather_vec3s, 6: gather_motions, 9: gather_mat33s}
"""Kernels of weighted sums by the size of an element."""
