"""The Hessian M + J^T W J of the cost in joint space, its Cholesky factors, and products with M.

The lower triangle is stored row by row from the first degree of freedom that a row is coupled to; factors fill no more
[George and Liu 1981, ch. 4]. Which one that is, is known to all lanes of a register.
"""

from __future__ import annotations

from kinema.kinematics.tree import Branches
from kinema.lang import Array, Float, Int, func, max, min, record, shared, sqrt


@record
class Profile:
    """Where the entries of a lower triangle are.

    first: The first degree of freedom that each one is coupled to.
    start: Index of entry (d, 0) of each row d, whether it is stored or not.
    """

    first: Array[Int]
    start: Array[Int]


@func
def find_profile(branches, where, profile):
    """Couple the degrees of freedom of each tree, and those of each block of rows; returns the number of entries."""
    supports = where.supports
    for d in range(len(branches.row)):
        profile.first[d] = branches.above[branches.row[d]]
    for k in range(where.singles + shared(where.triples[0])):
        here = shared(where.support[k])
        begin, least = supports.begin[here], len(branches.row)
        for t in range(supports.count[here]):
            least = min(least, supports.dofs[begin + t])
        for t in range(supports.count[here]):
            d = supports.dofs[begin + t]
            profile.first[d] = min(shared(profile.first[d]), least)
    size = 0
    for d in range(len(branches.row)):
        profile.start[d] = size - shared(profile.first[d])
        size = size + d + 1 - shared(profile.first[d])
    return size


@func
def put_mass(branches, M, profile, size, H):
    """H = M."""
    for e in range(size):
        H[e] = 0.0
    for d in range(len(branches.row)):
        begin, at = branches.row[d], shared(profile.start[d])
        for t in range(branches.depth[d] + 1):
            H[at + branches.above[begin + t]] = M[begin + t]


@func
def add_row(supports, here, at, weight: Float, J, profile, H):
    """H += weight J^T J of one row, at offset `at` in J."""
    begin = supports.begin[here]
    for t in range(supports.count[here]):
        d, scaled = supports.dofs[begin + t], weight * J[at + t]
        for s in range(t + 1):
            e = supports.dofs[begin + s]
            H[shared(profile.start[max(d, e)]) + min(d, e)] += scaled * J[at + s]


@func
def factorise_profile(profile, dofs, H):
    """H = L L^T in place, with the inverses of L's diagonal on the diagonal."""
    for i in range(dofs):
        first, row = shared(profile.first[i]), shared(profile.start[i])
        for j in range(first, i):
            other, column = max(first, shared(profile.first[j])), shared(profile.start[j])
            entry = H[row + j]
            for k in range(other, j):
                entry = entry - H[row + k] * H[column + k]
            H[row + j] = entry * H[column + j]
        pivot = H[row + i]
        for k in range(first, i):
            pivot = pivot - H[row + k] * H[row + k]
        H[row + i] = 1.0 / sqrt(pivot)


@func
def solve_profile(profile, dofs, H, x):
    """x = H^-1 x, from the factors."""
    for i in range(dofs):
        row, entry = shared(profile.start[i]), x[i]
        for k in range(shared(profile.first[i]), i):
            entry = entry - H[row + k] * x[k]
        x[i] = entry * H[row + i]
    for j in range(dofs):
        i = dofs - 1 - j
        row = shared(profile.start[i])
        found = x[i] * H[row + i]
        x[i] = found
        for k in range(shared(profile.first[i]), i):
            x[k] = x[k] - H[row + k] * found


@func
def add_mass_product(branches: Branches, M, x, scale: Float, y):
    """y += scale M x."""
    for d in range(len(branches.row)):
        begin, own = branches.row[d], scale * x[d]
        total = scale * M[begin + branches.depth[d]] * x[d]
        for t in range(branches.depth[d]):
            e, entry = branches.above[begin + t], M[begin + t]
            total = total + scale * entry * x[e]
            y[e] += entry * own
        y[d] += total
