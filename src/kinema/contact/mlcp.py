"""Contact impulses as a mixed linear complementarity problem, by projected Gauss-Seidel.

For rows of constraints with impulses lambda, A = J M^-1 J^T and b the velocity of the rows without impulses:

    w = A lambda + b + cfm lambda
    a bounded row:    lower <= lambda <= upper, w >= 0 where lambda = lower, w <= 0 where lambda = upper, else w = 0
    a friction row:   the same with the bounds -+ mu lambda_n, lambda_n being the impulse of its normal row

A sweep visits the rows in order and sets each to what makes its w vanish, clamped; the bounds of a friction row follow
the normal impulse of the same sweep. All sweeps are kept, so that the reverse sweep passes through every clamp as it
was: what a clamped friction row would get goes to its normal impulse and to mu [Qiao et al. 2021, sec. 4.3; their
algorithm 1 leaves the clamps out].
"""

from __future__ import annotations

from kinema.lang import Array, Float, Int, abs, kernel, local, max, min, record

NONE = -1


@record
class Rows:
    """What bounds the rows.

    normal: For a friction row the number of its normal row, which comes before it; NONE for the others.
    lower, upper: Bounds of the other rows [N s], +-1e30 for none: a contact has 0 and 1e30.
    mu: Coefficient of friction of friction rows [-].
    cfm: Softness, added to the diagonal of A [1/kg].
    """

    normal: Array[Int]
    lower: Array[Float]
    upper: Array[Float]
    mu: Array[Float]
    cfm: Array[Float]


@kernel
def gauss_seidel(
    rows: Rows, sweeps: Int, A: Array[Float], b: Array[Float], history: Array[Float], impulse: Array[Float]
):
    """Impulses after a number of sweeps from zero.

    A has n * n numbers, row by row; history has (sweeps + 1) * n: the impulses before, between and after the sweeps.
    Each row first takes what the last sweep left, then what this one has found, in that order: all but the last
    product is done while the row before is still being clamped.
    """
    n = len(b)
    inverse = local(Float, n)
    for i in range(n):
        history[i] = 0.0
        inverse[i] = 1.0 / (A[i * n + i] + rows.cfm[i])
    for s in range(sweeps):
        before, after = s * n, (s + 1) * n
        for i in range(n):
            rest = b[i]
            for j in range(i + 1, n):
                rest = rest + A[i * n + j] * history[before + j]
            for j in range(i):
                rest = rest + A[i * n + j] * history[after + j]
            free = -rest * inverse[i]
            if rows.normal[i] >= 0:
                bound = rows.mu[i] * history[after + rows.normal[i]]
                history[after + i] = max(min(free, bound), -bound)
            else:
                history[after + i] = max(min(free, rows.upper[i]), rows.lower[i])
    for i in range(n):
        impulse[i] = history[sweeps * n + i]


@kernel
def residual(rows: Rows, A: Array[Float], b: Array[Float], impulse: Array[Float], largest: Array[Float]):
    """How far the impulses are from a solution: the largest change of one [N s] if it were visited once more."""
    n = len(b)
    worst = 0.0
    for i in range(n):
        w = b[i] + rows.cfm[i] * impulse[i]
        for j in range(n):
            w = w + A[i * n + j] * impulse[j]
        free = impulse[i] - w / (A[i * n + i] + rows.cfm[i])
        low, high = rows.lower[i], rows.upper[i]
        if rows.normal[i] >= 0:
            high = rows.mu[i] * impulse[rows.normal[i]]
            low = -high
        worst = max(worst, abs(max(min(free, high), low) - impulse[i]))
    largest[0] = worst
