"""Projected Gauss-Seidel from given impulses, which ends when a sweep hardly changes them.

The problem, the visits and their reverse are those of `mlcp`. The reverse goes back over the sweeps that were done, so
it is the derivative of what was computed: of the impulses at the start, too.
"""

from __future__ import annotations

from kinema.contact.solving.pgs import Bounds, Gram, Rows, Supports, largest_impulse, sweep, sweep_back
from kinema.lang import Array, Float, Int, kernel, local


@kernel
def recall_impulses(
    rows: Rows,
    surface: Array[Int],
    active: Array[Float],
    fixed: Array[Float],
    contacts: Array[Float],
    start: Array[Float],
):
    """The impulses of the last step, for the rows of this one; zero for contacts that are left alone.

    fixed: Of the rows before the contacts.
    contacts: Of all candidates, three each.
    """
    first = rows.singles + 3 * rows.equations
    for r in range(first):
        start[r] = fixed[r]
    for c in range(rows.triples[0] - rows.equations):
        for k in range(3):
            kept = 0.0
            if active[rows.equations + c] > 0.0:
                kept = contacts[3 * surface[c] + k]
            start[first + 3 * c + k] = kept


@kernel
def started_gauss_seidel(
    rows: Rows,
    supports: Supports,
    bounds: Bounds,
    gram: Gram,
    cone: Int,
    sweeps: Int,
    tolerance: Float,
    Y: Array[Float],
    b: Array[Float],
    start: Array[Float],
    history: Array[Float],
    z: Array[Float],
    impulse: Array[Float],
    done: Array[Int],
    iterations: Array[Float],
):
    """Impulses after a number of sweeps, or after the first that changes none by `tolerance` of the largest one.

    start: The impulses before.
    history: As in `gauss_seidel`.
    done, iterations: The number of sweeps.
    """
    n, every = len(b), rows.singles + 3 * rows.triples[0]
    sums = local(Float, len(z))
    for d in range(len(z)):
        sums[d] = 0.0
    for r in range(every):
        block = r
        if r >= rows.singles:
            block = rows.singles + (r - rows.singles) // 3
        here = rows.support[block]
        history[r] = start[r]
        for t in range(supports.count[here]):
            sums[supports.dofs[supports.begin[here] + t]] += Y[r * supports.widest + t] * start[r]
    count = 0
    for s in range(sweeps):
        change = sweep(rows, supports, bounds, gram, cone, Y, b, s * n, (s + 1) * n, history, sums)
        count = s + 1
        if tolerance > 0.0 and change <= tolerance * largest_impulse((s + 1) * n, every, history):
            break
    for d in range(len(z)):
        z[d] = sums[d]
    for r in range(every):
        impulse[r] = history[count * n + r]
    done[0] = count
    iterations[0] = count


@kernel
def started_gauss_seidel_adjoint(
    rows: Rows,
    supports: Supports,
    bounds: Bounds,
    gram: Gram,
    cone: Int,
    Y: Array[Float],
    b: Array[Float],
    start: Array[Float],
    history: Array[Float],
    z: Array[Float],
    done: Array[Int],
    z_adj: Array[Float],
    impulse_adj: Array[Float],
    Y_adj: Array[Float],
    b_adj: Array[Float],
    start_adj: Array[Float],
    inverse_adj: Array[Float],
    cross_adj: Array[Float],
    lower_adj: Array[Float],
    upper_adj: Array[Float],
    mu_adj: Array[Float],
    cfm_adj: Array[Float],
):
    """The sweeps that were done, in reverse, and then z = Y^T start."""
    n, every = len(b), rows.singles + 3 * rows.triples[0]
    sums, pull, left = local(Float, len(z)), local(Float, len(z)), local(Float, n)
    softness = 0.0
    for d in range(len(z)):
        sums[d] = z[d]
        pull[d] = z_adj[d]
    for r in range(every):
        left[r] = impulse_adj[r]
    for back in range(done[0]):
        old, new = (done[0] - 1 - back) * n, (done[0] - back) * n
        softness = softness + sweep_back(
            rows,
            supports,
            bounds,
            gram,
            cone,
            Y,
            b,
            old,
            new,
            history,
            sums,
            pull,
            left,
            Y_adj,
            b_adj,
            inverse_adj,
            cross_adj,
            lower_adj,
            upper_adj,
            mu_adj,
        )
    cfm_adj[0] += softness
    for r in range(every):
        block = r
        if r >= rows.singles:
            block = rows.singles + (r - rows.singles) // 3
        here, given = rows.support[block], left[r]
        for t in range(supports.count[here]):
            along = pull[supports.dofs[supports.begin[here] + t]]
            given = given + Y[r * supports.widest + t] * along
            Y_adj[r * supports.widest + t] += start[r] * along
        start_adj[r] += given
