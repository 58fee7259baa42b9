"""Adjoints of inverse dynamics and of the factors of the mass matrix, by hand.

Inverse dynamics is a sum over links: with the cotangents g of the joint forces and the motions X = sum of S g down from
the root,

    sum of g tau = sum over links of X.(I A + V x* I V)

so that its adjoint is inverse dynamics once more: motions X from the root on, forces B that the accelerations A pass
back to it. What the compiler makes of it adds to each of them in memory, and takes twice the time.
"""

from __future__ import annotations

from kinema.kinematics.tree import Branches, Tree
from kinema.lang import Array, Float, kernel, local, vec3
from kinema.math import Force, Motion, RigidInertia, product_cotangent


@kernel
def bias_forces_adjoint(
    tree: Tree,
    S: Array[Motion],
    V: Array[Motion],
    inertia: Array[RigidInertia],
    acceleration: Array[Float],
    A: Array[Motion],
    F: Array[Force],
    tau_adj: Array[Float],
    S_adj: Array[Motion],
    V_adj: Array[Motion],
    inertia_adj: Array[RigidInertia],
    gravity_adj: Array[vec3],
    acceleration_adj: Array[Float],
):
    """With h = I V and Z = X x V, the term X.(V x* h) is Z.h; the rate of V is V_up x V."""
    X, B = local(Motion, len(tree.parent) + 1), local(Force, len(tree.parent) + 1)
    for i in range(len(tree.parent)):
        d = tree.v_start[i]
        x = X[tree.parent[i]]
        for k in range(d, d + tree.dofs[i]):
            x = x + S[k] * tau_adj[k]
        X[i + 1] = x
        turning = x.crossm(V[i + 1])
        B[i + 1] = inertia[i + 1] @ x
        passed = inertia[i + 1] @ turning - x.crossf(inertia[i + 1] @ V[i + 1])
        V_adj[i + 1] += Motion(passed.n, passed.f)
        inertia_adj[i + 1] += product_cotangent(x, A[i + 1]) + product_cotangent(turning, V[i + 1])
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        d, up, back = tree.v_start[i], tree.parent[i], B[i + 1]
        for k in range(d, d + tree.dofs[i]):
            wrench = F[i + 1] * tau_adj[k] + back * acceleration[k]
            S_adj[k] += Motion(wrench.n, wrench.f)
            acceleration_adj[k] += S[k].dot(back)
        turned, carried = V[up].crossf(back), V[i + 1].crossf(back)
        V_adj[i + 1] -= Motion(turned.n, turned.f)
        V_adj[up] += Motion(carried.n, carried.f)
        B[up] += back
    gravity_adj[0] -= B[0].f


@kernel
def factorise_adjoint(
    branches: Branches,
    U: Array[Float],
    L: Array[Float],
    root: Array[Float],
    U_adj: Array[Float],
    L_adj: Array[Float],
    root_adj: Array[Float],
    M_adj: Array[Float],
):
    """The same in reverse, from the root on, row after row of the degrees of freedom below.

    What the compiler makes of `factorise` follows its columns, and takes twice the time.
    """
    found = local(Float, len(branches.row))  # cotangents of the entries of one row
    for i in range(len(branches.row)):
        begin, depth, last = branches.row[i], branches.depth[i], branches.last[i]
        scale = root[i] * root[i]
        at_diagonal = U_adj[begin + depth] - 0.5 * scale * (root[i] * root_adj[i])
        for t in range(depth):
            by_factor = L_adj[begin + t] * scale
            found[t] = U_adj[begin + t] + by_factor
            at_diagonal = at_diagonal - by_factor * L[begin + t]
        found[depth] = at_diagonal
        for t in range(depth + 1):
            M_adj[begin + t] += found[t]
        for k in range(i + 1, last + 1):
            row, whole = branches.row[k], 0.0
            factor = U[row + depth]
            for t in range(depth + 1):
                whole = whole + found[t] * L[row + t]
                L_adj[row + t] -= found[t] * factor
            U_adj[row + depth] -= whole
