"""The mass matrix M = L^T D L along the branches of trees, and what constraints need of it, row by row.

A constraint row has entries along the branches of its two links; so do L^-T J^T and Y = D^-1/2 L^-T J^T, with which
J M^-1 J^T = Y Y^T. Supports, given by their index `here`, list these degrees of freedom (see `pgs.Supports`).
"""

from __future__ import annotations

from kinema.kinematics.tree import Branches
from kinema.lang import Array, Float, func, record, vec3


@func
def three_of(x, at, wide):
    """Load one column of three consecutive rows."""
    return vec3(x[at], x[at + wide], x[at + 2 * wide])


@func
def put_three(x, at, wide, value: vec3):
    """Store one column of three consecutive rows."""
    x[at] = value.x
    x[at + wide] = value.y
    x[at + 2 * wide] = value.z


@record
class Factors:
    """The mass matrix M = L^T D L along the branches: entry (d, e) of L and U has the index row[d] + depth[e].

    `articulated_factors.ArticulatedFactors` has the same methods.

    U: D L.
    L: Unit lower triangular factor.
    root: D^-1/2.
    """

    branches: Branches
    U: Array[Float]
    L: Array[Float]
    root: Array[Float]

    def scale_row(self, supports, here, at, J, scaled):
        """Scale the row at offset `at` with support `here`: H = L^-T J^T by back substitution, last entry first."""
        begin, first, common = supports.begin[here], supports.first[here], supports.common[here]
        row, L, H, count = self.branches.row, self.L, scaled.H, supports.count[here]
        for s in range(count):
            t = count - 1 - s
            depth, last = t, first  # along the first branch
            if t >= first:
                depth = t - first + common  # on the branch of the second link alone
                last = count
            entry = J[at + t]
            for u in range(t + 1, last):
                entry = entry - L[row[supports.dofs[begin + u]] + depth] * H[at + u]
            if t < common:
                for u in range(first, count):
                    entry = entry - L[row[supports.dofs[begin + u]] + depth] * H[at + u]
            H[at + t] = entry
            scaled.Y[at + t] = entry * self.root[supports.dofs[begin + t]]

    def scale_three(self, supports, here, at, J, scaled):
        """`scale_row` of three rows at once."""
        begin, first, common = supports.begin[here], supports.first[here], supports.common[here]
        row, L, H, count, wide = self.branches.row, self.L, scaled.H, supports.count[here], supports.widest
        for s in range(count):
            t = count - 1 - s
            depth, last = t, first
            if t >= first:
                depth = t - first + common
                last = count
            entry = three_of(J, at + t, wide)
            for u in range(t + 1, last):
                entry = entry - L[row[supports.dofs[begin + u]] + depth] * three_of(H, at + u, wide)
            if t < common:
                for u in range(first, count):
                    entry = entry - L[row[supports.dofs[begin + u]] + depth] * three_of(H, at + u, wide)
            put_three(H, at + t, wide, entry)
            put_three(scaled.Y, at + t, wide, entry * self.root[supports.dofs[begin + t]])

    def velocity_from(self, i, z, dv):
        """Entry i of dv = L^-1 D^-1/2 z, from the entries of its ancestors."""
        branches = self.branches
        begin = branches.row[i]
        found = z[i] * self.root[i]
        for t in range(branches.depth[i]):
            found = found - self.L[begin + t] * dv[branches.above[begin + t]]
        return found

    def velocities_from(self, z, dv):
        """dv = L^-1 D^-1/2 z: the velocity change due to impulses with z = Y^T impulse."""
        for i in range(len(self.branches.row)):
            dv[i] = self.velocity_from(i, z, dv)

    def scaled_motion(self, dv, z):
        """z = D^1/2 L dv: the inverse of `velocities_from`."""
        branches = self.branches
        for i in range(len(branches.row)):
            begin, found = branches.row[i], dv[i]
            for t in range(branches.depth[i]):
                found = found + self.L[begin + t] * dv[branches.above[begin + t]]
            z[i] = found / self.root[i]

    def momentum_of(self, z, momentum):
        """Add L^T D^1/2 z = M dv to `momentum`."""
        branches = self.branches
        for i in range(len(branches.row)):
            begin, own = branches.row[i], z[i] / self.root[i]
            momentum[i] += own
            for t in range(branches.depth[i]):
                momentum[branches.above[begin + t]] += self.L[begin + t] * own
