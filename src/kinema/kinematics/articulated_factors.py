"""The mass matrix M = L^T D L of long trees by articulated bodies: no entry of L is ever formed.

The articulated-body algorithm factorises M: with U and D of each degree of freedom (see `dynamics.aba`) the products
L^-T f, L^-1 x, L^T x and L x are each one sweep along the tree, in time proportional to its length [Rodriguez et al.
1991]. Forces go up the tree and motions down it, each about the origin of a link.
"""

from __future__ import annotations

from kinema.kinematics.joint_types import own_motion
from kinema.kinematics.tree import Tree
from kinema.lang import Array, Float, Int, cross, func, local, record, vec3
from kinema.math import Force, Motion


@func
def motion_at(m: Motion, r: vec3):
    """A motion about a point at r."""
    return Motion(m.w, m.v + cross(m.w, r))


@func
def force_from(f: Force, r: vec3):
    """A force given about a point at r, about this origin."""
    return Force(f.n + cross(r, f.f), f.f)


@func
def no_force():
    """Zero."""
    return Force(vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0))


@record
class ArticulatedFactors:
    """M + diagonal by articulated bodies; the same methods as `factors.Factors`.

    tree: The tree.
    joint: Joint of each degree of freedom.
    above: The degree of freedom above each one; -1 at roots.
    S: Motions of the degrees of freedom, about the origin of their tree.
    p: Origins of the links [m].
    U, inverse: As in `aba.Articulated`.
    root: D^-1/2, the square root of `inverse`.
    """

    tree: Tree
    joint: Array[Int]
    above: Array[Int]
    S: Array[Motion]
    p: Array[vec3]
    U: Array[Force]
    inverse: Array[Float]
    root: Array[Float]

    def own(self, d):
        """The motion of a degree of freedom about the origin of its link."""
        i = self.joint[d]
        return own_motion(self.tree.kind[i], d - self.tree.v_start[i], self.S[d])

    def raised(self, d, below, f: Force):
        """A force on the link of degree of freedom `below`, about the origin of the link of d."""
        return force_from(f, self.p[self.joint[below] + 1] - self.p[self.joint[d] + 1])

    def lowered(self, d, W):
        """The motion W of the link above degree of freedom d, about the origin of the link of d; zero at roots."""
        before = Motion(vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0))
        up = self.above[d]
        if up >= 0:
            before = motion_at(W[up], self.p[self.joint[d] + 1] - self.p[self.joint[up] + 1])
        return before

    def scale_entry(self, to, d, entry, pull: Force, scaled):
        """One entry of H and Y, given that of J and the force of the entries below; returns the force with its own."""
        found = entry - self.own(d).dot(pull)
        scaled.H[to] = found
        scaled.Y[to] = found * self.root[d]
        return pull + self.U[d] * (found * self.inverse[d])

    def scale_row(self, supports, here, at, J, scaled):
        """Scale the row at offset `at` with support `here`: H = L^-T J^T, up its branches, the second link's first."""
        begin, first, common = supports.begin[here], supports.first[here], supports.common[here]
        count, dofs = supports.count[here], supports.dofs
        one, two = no_force(), no_force()
        for s in range(count - first):
            t = count - 1 - s
            if s > 0:
                two = self.raised(dofs[begin + t], dofs[begin + t + 1], two)
            two = self.scale_entry(at + t, dofs[begin + t], J[at + t], two, scaled)
        for s in range(first):
            t = first - 1 - s
            if s > 0:
                one = self.raised(dofs[begin + t], dofs[begin + t + 1], one)
            if t == common - 1 and count > first:
                one = one + self.raised(dofs[begin + t], dofs[begin + first], two)
            one = self.scale_entry(at + t, dofs[begin + t], J[at + t], one, scaled)

    def scale_three(self, supports, here, at, J, scaled):
        """`scale_row` of three rows, one after the other."""
        for k in range(3):
            self.scale_row(supports, here, at + k * supports.widest, J, scaled)

    def velocities_from(self, z, dv):
        """dv = L^-1 D^-1/2 z: the velocity change due to impulses with z = Y^T impulse, from the roots on."""
        W = local(Motion, len(self.root))
        for d in range(len(self.root)):
            before = self.lowered(d, W)
            found = z[d] * self.root[d] - before.dot(self.U[d]) * self.inverse[d]
            dv[d] = found
            W[d] = before + self.own(d) * found

    def scaled_motion(self, dv, z):
        """z = D^1/2 L dv: the inverse of `velocities_from`."""
        W = local(Motion, len(self.root))
        for d in range(len(self.root)):
            before = self.lowered(d, W)
            z[d] = (dv[d] + before.dot(self.U[d]) * self.inverse[d]) / self.root[d]
            W[d] = before + self.own(d) * dv[d]

    def momentum_of(self, z, momentum):
        """Add L^T D^1/2 z = M dv to `momentum`, from the leaves on."""
        n = len(self.root)
        pull = local(Force, n)
        for s in range(n):
            d = n - 1 - s
            own, up = z[d] / self.root[d], self.above[d]
            momentum[d] += own + self.own(d).dot(pull[d])
            if up >= 0:
                pull[up] += self.raised(up, d, pull[d] + self.U[d] * (own * self.inverse[d]))

    def momentum_scaled(self, momentum, z):
        """Add D^-1/2 L^-T momentum to z, from the leaves on: `scale_row` of a row with all entries."""
        n = len(self.root)
        pull = local(Force, n)
        for s in range(n):
            d = n - 1 - s
            own, up = momentum[d] - self.own(d).dot(pull[d]), self.above[d]
            z[d] += own * self.root[d]
            if up >= 0:
                pull[up] += self.raised(up, d, pull[d] + self.U[d] * (own * self.inverse[d]))
