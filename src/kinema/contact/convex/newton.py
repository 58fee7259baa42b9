"""Newton's method for the accelerations of soft constraints, to rounding error, and its implicit derivative.

The accelerations minimise a convex function [Todorov 2014]:

    1/2 a.M a - net.a + s(J a - a_ref)                                                                       (1)

with the costs s of all rows, quadratic where a row acts (see `cones`). Newton's method with an exact line search
converges from anywhere; it starts from a = 0, the solution of bodies at rest, so that a step stays a function of its
state. It ends when no row begins or ceases to act, for then a full step is exact, or when the decrement is rounding
error.

Worlds run in lanes that share the profile of the Hessian; lanes that have converged wait, so that a world has the bits
of its run alone.

The derivative follows from the residual left(a) = net + J^T f(J a - a_ref) - M a = 0: as the Hessian is -d left / d a,
da = H^-1 d left, and the cotangents of everything in `left` are those of ordinary kernels.
"""

from __future__ import annotations

from kinema.contact.complementarity.newton import Report
from kinema.contact.convex.cones import SLIDES, Cones, put_curvature, put_force, zone_of
from kinema.contact.convex.hessian import (
    Profile,
    add_mass_product,
    add_row,
    factorise_profile,
    find_profile,
    put_mass,
    solve_profile,
)
from kinema.contact.convex.rows import SoftRows, Where, contact_row
from kinema.kinematics.tree import Branches
from kinema.lang import (
    Array,
    Float,
    Int,
    abs,
    everywhere,
    func,
    kernel,
    local,
    max,
    min,
    record,
    shared,
    sqrt,
)

ACCURATE = 0.01  # of a line search: the slope left, relative to the slope at its start
SEARCH = 40  # evaluations of a line search


@record
class SoftProblem:
    """The function (1) of the accelerations.

    where, rows: The rows.
    branches, M: The mass matrix along the branches.
    net: Generalised forces without constraints.
    surface: Candidate of each contact.
    elliptic, span, dim, mu: Friction cones, see `Cones`.
    """

    where: Where
    rows: SoftRows
    branches: Branches
    M: Array[Float]
    net: Array[Float]
    surface: Array[Int]
    elliptic: Int
    span: Int
    dim: Array[Int]
    mu: Array[Float]


@record
class SoftEffort:
    """Limits of `soft_accelerations`.

    precision: Relative error of the accelerations at which it stops.
    floor: Relative error at which it stops if a step does not reduce it: rounding error.
    most: Largest number of Newton steps.
    """

    precision: Float
    floor: Float
    most: Int


@func
def single_force(D: Float, lower: Float, upper: Float, u: Float):
    """Force of a single row, and its stiffness: zero at a bound."""
    f = -D * u
    stiff = D if f > lower and f < upper else 0.0
    return max(min(f, upper), lower), stiff


@func
def add_pull(supports, here, at, force: Float, J, y):
    """y += J^T force of one row, at offset `at` in J."""
    begin = supports.begin[here]
    for t in range(supports.count[here]):
        y[supports.dofs[begin + t]] += force * J[at + t]


@func
def put_products(where, rows, span, x, with_reference: Float, u):
    """u = J x - with_reference * reference, of all rows."""
    supports, blocks = where.supports, where.singles + shared(where.triples[0])
    for k in range(blocks):
        here, r, count = shared(where.support[k]), k, 1
        if k >= where.singles:
            r, count = where.singles + 3 * (k - where.singles), 3
        if k >= where.singles + where.equations:
            r, count = contact_row(where, k - where.singles - where.equations, span), span
        begin = supports.begin[here]
        for n in range(r, r + count):
            at, found = n * supports.widest, -with_reference * rows.reference[n]
            for t in range(supports.count[here]):
                found = found + rows.J[at + t] * x[supports.dofs[begin + t]]
            u[n] = found


@func
def put_hessian(problem, profile, size, u, W, H, f, seen):
    """H, the forces f at u, and which rows act (`seen`, one number for each block); returns 1 if a contact slides."""
    where, rows, span, supports = problem.where, problem.rows, problem.span, problem.where.supports
    singles, wide, curved = where.singles, supports.widest, 0.0
    cones = Cones(problem.elliptic, span, problem.dim, rows.D, problem.mu)
    put_mass(problem.branches, problem.M, profile, size, H)
    for i in range(singles):
        f[i], stiff = single_force(rows.D[i], rows.lower[i], rows.upper[i], u[i])
        tag = 0.0
        if rows.D[i] > 0.0:
            tag = 2.0 if u[i] < 0.0 else 3.0
            if stiff > 0.0:
                tag = 1.0
        seen[i] = tag
        if not everywhere(stiff == 0.0):
            add_row(supports, shared(where.support[i]), i * wide, stiff, rows.J, profile, H)
    for k in range(where.equations):
        r = singles + 3 * k
        for n in range(r, r + 3):
            f[n] = -rows.D[n] * u[n]
            add_row(supports, shared(where.support[singles + k]), n * wide, rows.D[n], rows.J, profile, H)
    for c in range(shared(where.triples[0]) - where.equations):
        r, dim = contact_row(where, c, span), shared(problem.dim[shared(problem.surface[c])])
        here = shared(where.support[singles + where.equations + c])
        put_force(cones, r, dim, u, f)
        tag = put_curvature(cones, r, dim, u, W)
        if rows.D[r] == 0.0:
            tag = 0.0
        seen[singles + where.equations + c] = tag
        if problem.elliptic > 0 and dim > 1:
            zone, _, _ = zone_of(cones, r, dim, u)
            if zone == SLIDES and rows.D[r] > 0.0:
                curved = 1.0
        if not everywhere(tag == 0.0):
            add_block(supports, here, r * wide, dim, span, W, rows.J, profile, H)
    return curved


@func
def add_block(supports, here, at, dim, span, W, J, profile, H):
    """H += J^T W J of one contact."""
    begin, wide = supports.begin[here], supports.widest
    pulled = local(Float, 6)
    for t in range(supports.count[here]):
        d = supports.dofs[begin + t]
        for k in range(dim):
            total = 0.0
            for j in range(dim):
                total = total + W[k * span + j] * J[at + j * wide + t]
            pulled[k] = total
        for s in range(t + 1):
            e, entry = supports.dofs[begin + s], 0.0
            for k in range(dim):
                entry = entry + pulled[k] * J[at + k * wide + s]
            H[shared(profile.start[max(d, e)]) + min(d, e)] += entry


@func
def put_forces(problem, u, f):
    """Forces of all rows at u; returns nothing."""
    where, rows, span = problem.where, problem.rows, problem.span
    cones = Cones(problem.elliptic, span, problem.dim, rows.D, problem.mu)
    for i in range(where.singles):
        f[i], _ = single_force(rows.D[i], rows.lower[i], rows.upper[i], u[i])
    for n in range(where.singles, where.singles + 3 * where.equations):
        f[n] = -rows.D[n] * u[n]
    for c in range(shared(where.triples[0]) - where.equations):
        put_force(cones, contact_row(where, c, span), shared(problem.dim[shared(problem.surface[c])]), u, f)


@func
def add_pulls(where, rows, span, f, y):
    """y += J^T f of all rows."""
    supports, blocks = where.supports, where.singles + shared(where.triples[0])
    for k in range(blocks):
        here, r, count = shared(where.support[k]), k, 1
        if k >= where.singles:
            r, count = where.singles + 3 * (k - where.singles), 3
        if k >= where.singles + where.equations:
            r, count = contact_row(where, k - where.singles - where.equations, span), span
        for n in range(r, r + count):
            if not everywhere(rows.D[n] == 0.0):
                add_pull(supports, here, n * supports.widest, f[n], rows.J, y)


@func
def product_of(count, x, y):
    """Scalar product of two arrays."""
    total = 0.0
    for i in range(count):
        total = total + x[i] * y[i]
    return total


@func
def find_length(problem, count, u, du, start: Float, straight: Float, bend: Float, w, f, wanted: Float):
    """Length of a step along du: the root of the slope of (1), by Newton's method within bounds.

    start: Minus the slope at length 0.
    straight, bend: The slope of its quadratic part is straight + length * bend.
    w, f: Workspace.
    wanted: 1 in lanes that search; the others return 1.
    """
    length, low, high, done = 1.0, 0.0, 0.0, 1.0 - wanted
    for _ in range(SEARCH):
        if everywhere(done == 1.0):
            break
        for n in range(count):
            w[n] = u[n] + length * du[n]
        put_forces(problem, w, f)
        slope = straight + length * bend - product_of(count, f, du)
        if not abs(slope) > ACCURATE * start:
            done = 1.0
        # The curvature, from the slope a little further: exact where no row changes in between.
        if done == 0.0:
            if slope < 0.0:
                low = length
            else:
                high = length
        ahead = 1e-6 * length
        for n in range(count):
            w[n] = u[n] + (length + ahead) * du[n]
        if not everywhere(done == 1.0):
            put_forces(problem, w, f)
            rise = (straight + (length + ahead) * bend - product_of(count, f, du) - slope) / ahead
            guess = length - slope / rise if rise > 0.0 else -1.0
            if high == 0.0:
                if not guess > low:
                    guess = 2.0 * length
                guess = min(guess, 4.0 * length)
            elif not (guess > low and guess < high):
                guess = 0.5 * (low + high)
            if done == 0.0:
                length = guess
    return length


@kernel
def soft_accelerations(problem: SoftProblem, effort: SoftEffort, a: Array[Float], report: Report):
    """Find the accelerations that minimise (1).

    report: The residual is the relative error of the accelerations in the norm of the Hessian, 0 if converged;
        iterations are Newton steps.
    """
    where, rows, span, dofs = problem.where, problem.rows, problem.span, len(problem.net)
    branches, M = problem.branches, problem.M
    blocks, contacts = where.singles + shared(where.triples[0]), shared(where.triples[0]) - where.equations
    count = contact_row(where, contacts, span)
    first, start = local(Int, dofs), local(Int, dofs)
    profile = Profile(first, start)
    size = find_profile(branches, where, profile)
    H, W, seen, known = local(Float, size), local(Float, span * span), local(Float, blocks), local(Float, blocks)
    u, du, f, w = local(Float, count), local(Float, count), local(Float, count), local(Float, count)
    x, Mx, g, step, Mstep = (
        local(Float, dofs),
        local(Float, dofs),
        local(Float, dofs),
        local(Float, dofs),
        local(Float, dofs),
    )
    done, length, before, work, left, spot = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    put_products(where, rows, span, x, 1.0, u)
    for _ in range(effort.most):
        # Minus the gradient, the Hessian, and whether any row begins or ceases to act.
        curved = put_hessian(problem, profile, size, u, W, H, f, seen)
        changed = 0.0
        for k in range(blocks):
            if seen[k] != known[k]:
                changed = 1.0
            known[k] = seen[k]
        if length == 1.0 and changed == 0.0 and curved == 0.0:
            done = 1.0
        if everywhere(done == 1.0):
            break
        for d in range(dofs):
            g[d] = problem.net[d] - Mx[d]
        add_pulls(where, rows, span, f, g)
        for d in range(dofs):
            step[d] = g[d]
        factorise_profile(profile, dofs, H)
        solve_profile(profile, dofs, H, step)
        # The decrement, relative to the terms of the function.
        decrement = product_of(dofs, g, step)
        worth = abs(product_of(dofs, x, Mx)) + abs(product_of(dofs, x, problem.net)) + decrement
        for n in range(count):
            worth = worth + abs(f[n] * u[n])
        last = 0.0
        if not decrement > effort.precision * effort.precision * worth:
            last = 1.0
        if not (decrement > effort.floor * effort.floor * worth or decrement < 0.25 * before):
            last = 1.0
        put_products(where, rows, span, step, 0.0, du)
        for d in range(dofs):
            Mstep[d] = 0.0
        add_mass_product(branches, M, step, 1.0, Mstep)
        straight, bend = -decrement_part(dofs, step, problem.net, Mx), product_of(dofs, step, Mstep)
        wanted = 1.0 if last == 0.0 and done == 0.0 else 0.0
        length = find_length(problem, count, u, du, decrement, straight, bend, w, f, wanted)
        if done == 0.0:
            work = work + 1.0
            before = decrement
            left = sqrt(max(decrement, 0.0) / worth) if worth > 0.0 else 0.0
            most = 0.0
            for d in range(dofs):
                if g[d] * step[d] > most:
                    most = g[d] * step[d]
                    spot = 1.0 * d
                x[d] = x[d] + length * step[d]
                Mx[d] = Mx[d] + length * Mstep[d]
            for n in range(count):
                u[n] = u[n] + length * du[n]
            if last == 1.0:
                done = 1.0
    for d in range(dofs):
        a[d] = x[d]
    report.residual[0] = 0.0 if done == 1.0 else left
    report.unsolved_at[0] = spot
    report.iterations[0] = work


@func
def decrement_part(dofs, step, net, Mx):
    """step.(net - M a)."""
    total = 0.0
    for d in range(dofs):
        total = total + step[d] * (net[d] - Mx[d])
    return total


@kernel
def keep_accelerations(found: Array[Float], left: Array[Float], a: Array[Float]):
    """a = found: the solution, whose derivative is that of `left` (zero) times the inverse Hessian.

    Where `left` is not a number, neither is a.
    """
    for d in range(len(a)):
        a[d] = found[d] if left[d] == left[d] else left[d]


@kernel
def keep_accelerations_adjoint(problem: SoftProblem, a: Array[Float], a_adj: Array[Float], left_adj: Array[Float]):
    """Cotangent of the residual: H^-1 times that of the accelerations."""
    where, rows, span, dofs = problem.where, problem.rows, problem.span, len(problem.net)
    blocks, contacts = where.singles + shared(where.triples[0]), shared(where.triples[0]) - where.equations
    count = contact_row(where, contacts, span)
    first, start = local(Int, dofs), local(Int, dofs)
    profile = Profile(first, start)
    size = find_profile(problem.branches, where, profile)
    H, W, seen, x = local(Float, size), local(Float, span * span), local(Float, blocks), local(Float, dofs)
    u, f = local(Float, count), local(Float, count)
    put_products(where, rows, span, a, 1.0, u)
    put_hessian(problem, profile, size, u, W, H, f, seen)
    for d in range(dofs):
        x[d] = a_adj[d]
    factorise_profile(profile, dofs, H)
    solve_profile(profile, dofs, H, x)
    for d in range(dofs):
        left_adj[d] += x[d]


# -- forces and balance, with generated adjoints -----------------------------------------------------------------------


@kernel
def row_accelerations(where: Where, rows: SoftRows, span: Int, a: Array[Float], u: Array[Float]):
    """u = J a - a_ref of all rows."""
    put_products(where, rows, span, a, 1.0, u)


@kernel
def row_forces(problem: SoftProblem, u: Array[Float], force: Array[Float]):
    """Forces of all rows [N, N m]."""
    put_forces(problem, u, force)


@kernel
def constrained_forces(
    where: Where, rows: SoftRows, span: Int, net: Array[Float], force: Array[Float], total: Array[Float]
):
    """total = net + J^T force."""
    for d in range(len(net)):
        total[d] += net[d]
    add_pulls(where, rows, span, force, total)


@kernel
def unbalanced_forces(branches: Branches, M: Array[Float], total: Array[Float], a: Array[Float], left: Array[Float]):
    """left = total - M a: zero at the solution."""
    for d in range(len(a)):
        left[d] += total[d]
    add_mass_product(branches, M, a, -1.0, left)


@kernel
def forces_in_first_axes(
    branches: Branches, M: Array[Float], rate: Array[Float], net: Array[Float], turned: Array[Float]
):
    """net + M rate: forces for accelerations whose free bodies' parts are in world axes, as MuJoCo's; see `Joints`."""
    for d in range(len(net)):
        turned[d] += net[d]
    add_mass_product(branches, M, rate, 1.0, turned)
