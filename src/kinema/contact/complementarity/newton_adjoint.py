"""The adjoint of Newton's method for contact, by the implicit function theorem (see `newton`).

Half of it does not depend on cotangents: the active set, and the elimination of its rows. When a step is linearised,
many rows of the Jacobian share one state, so `newton_systems` does this half once, and `newton_rows_of_jacobian` the
other half for each row. Elsewhere every world has one cotangent, and `newton_impulses_adjoint` does both.
"""

from __future__ import annotations

from kinema.contact.complementarity.active_set import (
    FREE,
    LOWER,
    UPPER,
    Known,
    Marks,
    System,
    classify,
    eliminate,
    move,
    reduce_island,
    row_inverses,
    solve_transposed,
    tied,
    turned,
)
from kinema.contact.complementarity.delassus import (
    NORMAL,
    SINGLE,
    Listed,
    find_islands,
    first_row,
    form_matrices,
    home_of,
    list_rows,
    row_velocities,
)
from kinema.contact.complementarity.mass_scaling import Scaled, scale_row_adjoint, scale_three_adjoint
from kinema.contact.complementarity.newton import Impulses, Problem, add_rows, gather
from kinema.contact.complementarity.pgs import Rows, Supports
from kinema.kinematics.factors import Factors
from kinema.lang import Array, Float, Int, everywhere, func, kernel, local, record, select, shared, vec3


@record
class Multipliers:
    """The solution of the adjoint problem.

    exact: The impulses, refined by the same elimination if they were recomputed from the motion.
    u: Cotangents of w in the free rows.
    pull: Y^T u + the cotangent of z.
    """

    exact: Array[Float]
    u: Array[Float]
    pull: Array[Float]


@record
class Solved:
    """What the adjoint needs of the listed rows: impulses, active set, and the factors of each island's free rows.

    x: Refined impulses.
    mu: Coefficients of friction, at normal rows.
    state, turn: As in `Marks`.
    wanted: Number of free rows of each island.
    free, pivot, G: As in `System`, island by island.
    """

    x: Array[Float]
    mu: Array[Float]
    state: Array[Int]
    turn: Array[Float]
    wanted: Array[Int]
    free: Array[Int]
    pivot: Array[Float]
    G: Array[Float]


@record
class Lists:
    """The arrays of `Listed`, and their lengths.

    sizes: Number of islands, and of rows.
    """

    sizes: Array[Int]
    row: Array[Int]
    kind: Array[Int]
    begin: Array[Int]
    matrix: Array[Int]


@func
def find_partakers(problem, impulse, mine):
    """Set `mine` to 1 for the blocks that have an impulse or always take part, else to 0."""
    rows, bounds = problem.rows, problem.bounds
    contacts = rows.singles + rows.equations
    for i in range(rows.singles):
        mine[i] = 1.0 if bounds.lower[i] != 0.0 or impulse[i] > 0.0 else 0.0
    for k in range(rows.singles, rows.singles + shared(rows.triples[0])):
        r = rows.singles + 3 * (k - rows.singles)
        mine[k] = 1.0 if k < contacts or impulse[r] > 0.0 else 0.0


@func
def eliminate_islands(problem, singular, scaled, found, mine, listed, size, solved):
    """Find the active set and factorise the system of each island; refines the impulses with the same factors.

    size: Number of entries of all matrices.
    """
    rows, supports, bounds, cone = problem.rows, problem.supports, problem.bounds, problem.cone
    Y, z, impulse = scaled.Y, found.z, found.impulse
    count, begin, wide, mu, x = listed.count, listed.begin, supports.widest, solved.mu, solved.x
    state, turn, free = solved.state, solved.turn, solved.free
    spread = local(vec3, len(z))
    part, lower, upper = local(Float, count), local(Float, count), local(Float, count)
    goal, inverse, w, off = local(Float, count), local(Float, count), local(Float, count), local(Float, count)
    soft, column, right, A = local(Float, count), local(Float, count), local(Float, count), local(Float, size)
    known, marks = Known(part, goal, lower, upper, mu, inverse), Marks(state, soft, turn)
    gather(problem, listed, mine, known)
    form_matrices(rows, supports, listed, Y, spread, A)
    row_inverses(listed, cone, bounds.cfm, A, known)
    # Velocities of the rows, which determine the active set.
    for f in range(count):
        r = shared(listed.row[f])
        here, at = home_of(rows, r), r * wide
        to, speed = supports.begin[here], 0.0
        for t in range(supports.count[here]):
            speed = speed + Y[at + t] * z[supports.dofs[to + t]]
        x[f] = impulse[r]
        w[f] = goal[f] + bounds.cfm * x[f] + speed
    classify(listed, cone, known, x, w, marks)
    row_velocities(listed, A, bounds.cfm, goal, x, off)
    # (W E)_free dx = -off refines the impulses x.
    for e in range(listed.islands):
        first = shared(begin[e])
        system = System(free, solved.G, solved.pivot, column, first, shared(listed.matrix[e]))
        wanted = reduce_island(e, listed, cone, A, bounds.cfm, 0.0, inverse, mu, marks, system)
        for q in range(wanted):
            f = first + shared(free[first + q])
            bent = turned(listed, cone, f, turn, off) + soft[f] * turned(listed, cone, f, turn, x)
            right[q] = select(state[f] == FREE, -bent, 0.0)
        eliminate(wanted, singular, system, right, True)
        move(first, wanted, listed, cone, mu, marks, system, right, x)
        solved.wanted[e] = wanted


@func
def pull_back(problem, factors, bounded, scaled, found, found_adj, mine, listed, solved, multipliers, problem_adj):
    """The half of the adjoint that depends on cotangents."""
    rows, supports, bounds, cone, J, b = (
        problem.rows,
        problem.supports,
        problem.bounds,
        problem.cone,
        problem.J,
        problem.b,
    )
    Y, z, z_adj, impulse_adj = scaled.Y, found.z, found_adj.z, found_adj.impulse
    exact, u, pull = multipliers.exact, multipliers.u, multipliers.pull
    bounds_adj, b_adj = problem_adj.bounds, problem_adj.b
    row, kind, begin, count = listed.row, listed.kind, listed.begin, listed.count
    x, mu, state, turn, free = solved.x, solved.mu, solved.state, solved.turn, solved.free
    dofs, wide = len(z), supports.widest
    felt_z, dv, felt_dv = local(Float, dofs), local(Float, dofs), local(Float, dofs)
    given, y, other = local(Float, count), local(Float, count), local(Float, count)
    for d in range(dofs):
        felt_z[d] = z_adj[d]
    # Cotangents of the impulses, including parts through z.
    for f in range(count):
        r = shared(row[f])
        here, at = home_of(rows, r), r * wide
        to, felt = supports.begin[here], impulse_adj[r]
        for t in range(supports.count[here]):
            felt = felt + Y[at + t] * z_adj[supports.dofs[to + t]]
        given[f] = felt
    # The transpose of (W E)_free with -(E^T given)_free gives u in the free rows.
    for e in range(listed.islands):
        first, wanted = shared(begin[e]), shared(solved.wanted[e])
        system = System(free, solved.G, solved.pivot, other, first, shared(listed.matrix[e]))
        for q in range(wanted):
            f = first + shared(free[first + q])
            felt = turned(listed, cone, f, turn, given)
            if shared(kind[f]) == NORMAL:
                felt = felt + mu[f] * tied(state[f + 1]) * turned(listed, cone, f + 1, turn, given)
                felt = felt + mu[f] * tied(state[f + 2]) * turned(listed, cone, f + 2, turn, given)
            other[q] = select(state[f] == FREE, -felt, 0.0)
        solve_transposed(wanted, system, other)
        for q in range(wanted):
            y[first + shared(free[first + q])] = other[q]
    # Cone: rotate u back to the tangents, then pull = Y^T u + z_adj.
    if cone > 0:
        for f in range(count):
            if shared(kind[f]) == NORMAL:
                y1, y2 = y[f + 1], y[f + 2]
                y[f + 1] = turn[f] * y1 - turn[f + 1] * y2
                y[f + 2] = turn[f] * y2 + turn[f + 1] * y1
    add_rows(rows, supports, listed, Y, y, felt_z)
    for d in range(dofs):
        pull[d] = felt_z[d]
    for r in range(rows.singles + 3 * shared(rows.triples[0])):
        u[r] = 0.0
        exact[r] = 0.0
    # Cotangents: u of b, u . lambda of cfm; the rest of the impulses' cotangents goes to the bounds of tied rows.
    softness = 0.0
    for f in range(count):
        r = shared(row[f])
        here, at = home_of(rows, r), r * wide
        to = supports.begin[here]
        b_adj[r] += y[f]
        u[r] = y[f]
        exact[r] = x[f]
        softness = softness + y[f] * x[f]
        felt = impulse_adj[r] + bounds.cfm * y[f]
        for t in range(supports.count[here]):
            felt = felt + Y[at + t] * felt_z[supports.dofs[to + t]]
        given[f] = felt
    bounds_adj.cfm[0] += softness
    # Rows at a bound, and friction at mu times the normal impulse.
    for f in range(count):
        r, what = shared(row[f]), shared(kind[f])
        if what == SINGLE:
            if state[f] == LOWER:
                bounds_adj.lower[r] += given[f]
            elif state[f] == UPPER:
                bounds_adj.upper[r] += given[f]
        elif what == NORMAL:
            first, second = turned(listed, cone, f + 1, turn, given), turned(listed, cone, f + 2, turn, given)
            slides = tied(state[f + 1]) * first + tied(state[f + 2]) * second
            bounds_adj.mu[(r - rows.singles) // 3] += x[f] * slides
    # Single rows without an impulse are at their lower bound, or at the upper one if both are zero.
    if bounded > 0:
        factors.velocities_from(z, dv)
        factors.velocities_from(felt_z, felt_dv)
    for i in range(bounded):
        if not everywhere(mine[i] == 1.0):
            here, at = shared(rows.support[i]), i * wide
            to, speed, felt = supports.begin[here], b[i], impulse_adj[i]
            for t in range(supports.count[here]):
                d = supports.dofs[to + t]
                speed = speed + J[at + t] * dv[d]
                felt = felt + J[at + t] * felt_dv[d]
            if mine[i] == 0.0:
                if speed >= 0.0:
                    bounds_adj.lower[i] += felt
                else:
                    bounds_adj.upper[i] += felt


@func
def differentiate(problem, factors, singular, bounded, scaled, found, found_adj, multipliers, problem_adj):
    """The body of `newton_impulses_adjoint`."""
    rows, supports, dofs = problem.rows, problem.supports, len(found.z)
    blocks = rows.singles + shared(rows.triples[0])
    mine, takes = local(Float, blocks), local(Int, blocks)
    find_partakers(problem, found.impulse, mine)
    for k in range(blocks):
        takes[k] = 0 if everywhere(mine[k] == 0.0) else 1
    label, island, block, start = local(Int, dofs), local(Int, blocks), local(Int, blocks), local(Int, blocks + 1)
    islands = find_islands(rows, supports, takes, label, island, block, start)
    most = 3 * shared(start[islands])
    row, kind, begin, matrix = local(Int, most), local(Int, most), local(Int, islands + 1), local(Int, islands + 1)
    count, size = list_rows(rows, islands, block, start, row, kind, begin, matrix)
    listed = Listed(islands, count, row, kind, begin, matrix)
    x, mu, state, turn = local(Float, count), local(Float, count), local(Int, count), local(Float, count)
    wanted, free, pivot, G = local(Int, islands), local(Int, count), local(Float, count), local(Float, size)
    solved = Solved(x, mu, state, turn, wanted, free, pivot, G)
    eliminate_islands(problem, singular, scaled, found, mine, listed, size, solved)
    pull_back(problem, factors, bounded, scaled, found, found_adj, mine, listed, solved, multipliers, problem_adj)


@kernel
def newton_impulses_adjoint(
    problem: Problem,
    factors: Factors,
    singular: Float,
    bounded: Int,
    scaled: Scaled,
    found: Impulses,
    found_adj: Impulses.adj,
    multipliers: Multipliers,
    problem_adj: Problem.adj,
):
    """Adjoint of the solution by the implicit function theorem.

    `newton_rows_adjoint` or `newton_jacobian_adjoint` then computes the cotangents of the rows' Jacobians.

    bounded: The bounds of the first `bounded` single rows have a derivative.
    """
    differentiate(problem, factors, singular, bounded, scaled, found, found_adj, multipliers, problem_adj)


@kernel
def newton_systems(
    problem: Problem, singular: Float, scaled: Scaled, found: Impulses, mine: Array[Float], lists: Lists, solved: Solved
):
    """The half of the adjoint that does not depend on cotangents: active set and factors."""
    rows, supports, dofs = problem.rows, problem.supports, len(found.z)
    blocks = rows.singles + shared(rows.triples[0])
    takes = local(Int, blocks)
    find_partakers(problem, found.impulse, mine)
    for k in range(blocks):
        takes[k] = 0 if everywhere(mine[k] == 0.0) else 1
    label, island, block, start = local(Int, dofs), local(Int, blocks), local(Int, blocks), local(Int, blocks + 1)
    islands = find_islands(rows, supports, takes, label, island, block, start)
    count, size = list_rows(rows, islands, block, start, lists.row, lists.kind, lists.begin, lists.matrix)
    lists.sizes[0] = islands
    lists.sizes[1] = count
    listed = Listed(islands, count, lists.row, lists.kind, lists.begin, lists.matrix)
    eliminate_islands(problem, singular, scaled, found, mine, listed, size, solved)


@func
def pull_back_systems(
    problem, factors, bounded, scaled, found, mine, lists, solved, found_adj, multipliers, problem_adj
):
    """The body of `newton_rows_of_jacobian`."""
    islands, count = shared(lists.sizes[0]), shared(lists.sizes[1])
    listed = Listed(islands, count, lists.row, lists.kind, lists.begin, lists.matrix)
    pull_back(problem, factors, bounded, scaled, found, found_adj, mine, listed, solved, multipliers, problem_adj)


@kernel
def newton_rows_of_jacobian(
    problem: Problem,
    factors: Factors,
    bounded: Int,
    scaled: Scaled,
    found: Impulses,
    mine: Array[Float],
    lists: Lists,
    solved: Solved,
    found_adj: Impulses.adj,
    multipliers: Multipliers,
    problem_adj: Problem.adj,
):
    """The half of the adjoint that depends on cotangents, after `newton_systems`."""
    pull_back_systems(
        problem, factors, bounded, scaled, found, mine, lists, solved, found_adj, multipliers, problem_adj
    )


@kernel
def newton_rows_adjoint(
    rows: Rows,
    supports: Supports,
    factors: Factors,
    scaled: Scaled,
    found: Impulses,
    multipliers: Multipliers,
    factors_adj: Factors.adj,
    J_adj: Array[Float],
):
    """Cotangents of the rows' Jacobians and of the factors of the mass matrix, after `newton_impulses_adjoint`."""
    wide, H, exact, u = supports.widest, scaled.H, multipliers.exact, multipliers.u
    x, xs, Y_adj = local(Float, wide), local(vec3, wide), local(Float, 3 * wide)
    for k in range(rows.singles + shared(rows.triples[0])):
        here, r, count = shared(rows.support[k]), first_row(rows, k), 1
        if k >= rows.singles:
            count = 3
        if not everywhere(exact[r] == 0.0 and u[r] == 0.0):
            begin, at = supports.begin[here], r * wide
            for i in range(count):
                for t in range(supports.count[here]):
                    d = supports.dofs[begin + t]
                    Y_adj[i * wide + t] = u[r + i] * found.z[d] + exact[r + i] * multipliers.pull[d]
            if count == 1:
                scale_row_adjoint(supports, here, at, factors, H, Y_adj, 0, x, factors_adj, J_adj)
            else:
                scale_three_adjoint(supports, here, at, factors, H, Y_adj, 0, xs, factors_adj, J_adj)


@func
def differentiate_jacobians(rows, supports, factors, found, multipliers, J_adj):
    """The body of `newton_jacobian_adjoint`."""
    dofs, exact, u = len(found.z), multipliers.exact, multipliers.u
    dv, s = local(Float, dofs), local(Float, dofs)
    factors.velocities_from(found.z, dv)
    factors.velocities_from(multipliers.pull, s)
    for k in range(rows.singles + shared(rows.triples[0])):
        here, r, count = shared(rows.support[k]), first_row(rows, k), 1
        if k >= rows.singles:
            count = 3
        if not everywhere(exact[r] == 0.0 and u[r] == 0.0):
            begin = supports.begin[here]
            for i in range(r, r + count):
                for t in range(supports.count[here]):
                    d = supports.dofs[begin + t]
                    J_adj[i * supports.widest + t] += u[i] * dv[d] + exact[i] * s[d]


@kernel
def newton_jacobian_adjoint(
    rows: Rows,
    supports: Supports,
    factors: Factors,
    found: Impulses,
    multipliers: Multipliers,
    J_adj: Array[Float],
):
    """Cotangents of the rows' Jacobians alone; the adjoint of the whole motion computes those of the mass matrix.

    They follow from M dv = J^T lambda and w = b + J dv + cfm lambda, with the multipliers
    s = M^-1 (cotangent of dv + J^T u) and u.
    """
    differentiate_jacobians(rows, supports, factors, found, multipliers, J_adj)
