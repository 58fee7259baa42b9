"""Prescribed joints: their motion is given and acts on the other joints, but no force changes it.

With the known accelerations a_k of prescribed degrees of freedom, the accelerations a_f of the free ones solve

    M_ff a_f = net_f - M_fk a_k

The right-hand side is inverse dynamics with a_k. Rows and columns of prescribed degrees of freedom in M become those of
the identity: the factors keep their sparsity along the branches, and prescribed entries decouple.
"""

from __future__ import annotations

from kinema.kinematics.joint_types import axes_rate
from kinema.kinematics.tree import Branches, Tree
from kinema.lang import Array, Float, Int, kernel


@kernel
def given_accelerations(
    tree: Tree, number: Array[Int], motion: Array[Float], v: Array[Float], dt: Float, given: Array[Float]
):
    """Accelerations that bring prescribed velocities to `motion` at the end of the step; zero for free joints.

    number: Index of each degree of freedom in `motion`, or -1.
    """
    for i in range(len(tree.parent)):
        d = tree.v_start[i]
        for k in range(d, d + tree.dofs[i]):
            rate = 0.0
            if number[k] >= 0:
                rate = (motion[number[k]] - v[k]) / dt - axes_rate(tree.kind[i], k - d, d, v)
            given[k] = rate


@kernel
def hold(
    branches: Branches,
    number: Array[Int],
    given: Array[Float],
    M: Array[Float],
    net: Array[Float],
    M_held: Array[Float],
    held: Array[Float],
):
    """Replace the equations of prescribed degrees of freedom in the mass matrix and the forces by a = given."""
    for d in range(len(branches.row)):
        begin, depth = branches.row[d], branches.depth[d]
        for t in range(depth):
            entry = M[begin + t]
            if number[d] >= 0 or number[branches.above[begin + t]] >= 0:
                entry = 0.0
            M_held[begin + t] = entry
        own, force = M[begin + depth], net[d]
        if number[d] >= 0:
            own = 1.0
            force = given[d]
        M_held[begin + depth] = own
        held[d] = force
