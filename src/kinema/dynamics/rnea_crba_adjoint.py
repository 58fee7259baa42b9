"""Adjoints of inverse dynamics and of the factors of the mass matrix, by hand.

Inverse dynamics is a sum over links: with the cotangents g of the joint forces and the motions X = sum of S g down from
the root,

    sum of g tau = sum over links of X.(I A + V x* I V)

so that its adjoint is inverse dynamics once more: motions X from the root on, forces B that the accelerations A pass
back to it. What the compiler makes of it adds to each of them in memory, and takes twice the time.

Accelerations a = M^-1 (net + impulses / dt) that a step ends with need no adjoint of M or of its factors: with s the
cotangent of net, that of M is -s a^T, and so s tau for the accelerations `acceleration` + a has all of it.

The inertia of a body about its tree's origin is R I R^T + m (c^2 1 - c c^T). With the symmetric cotangent G of it, that
of R is 2 G R I, that of c is 2 m (tr(G) c - G c).
"""

from __future__ import annotations

from kinema.dynamics.rnea_crba import Bodies
from kinema.kinematics.tree import Branches, Tree
from kinema.lang import Array, Float, dot, func, kernel, local, mat33, outer, transpose, vec3
from kinema.math import Force, Motion, RigidInertia, Sym33, product_cotangent


@func
def body_pose(tree, bodies, R, p, b, link):
    """Axes of a body, and its centre of mass from its tree's origin [m]."""
    R_WB, origin = R[link], p[link] - p[tree.root[link - 1]]
    if bodies.apart[b] > 0:
        R_WB = R[link] @ bodies.rotation[b]
        origin = origin + R[link] @ bodies.offset[b]
    return R_WB, origin + R_WB @ bodies.com[b]


@func
def twice(I_adj):
    """2 G, of which G is symmetric: its numbers off the diagonal stand for two entries each."""
    return Sym33(2.0 * I_adj.xx, I_adj.xy, I_adj.xz, 2.0 * I_adj.yy, I_adj.yz, 2.0 * I_adj.zz)


@func
def steiner_pull(I_adj, G2, centre):
    """2 (tr(G) c - G c)."""
    return 2.0 * (I_adj.xx + I_adj.yy + I_adj.zz) * centre - G2 @ centre


@kernel
def link_inertias_adjoint(
    tree: Tree,
    bodies: Bodies,
    R: Array[mat33],
    p: Array[vec3],
    inertia_adj: Array[RigidInertia],
    R_adj: Array[mat33],
    p_adj: Array[vec3],
):
    """Cotangents of the links' poses."""
    for b in range(len(bodies.link)):
        link = bodies.link[b]
        if link > 0:
            R_WB, centre = body_pose(tree, bodies, R, p, b, link)
            given = inertia_adj[link]
            G2 = twice(given.I)
            moved = bodies.mass[b] * (given.h + steiner_pull(given.I, G2, centre))
            turned = G2.matrix() @ (R_WB @ bodies.inertia[b].matrix()) + outer(moved, bodies.com[b])
            if bodies.apart[b] > 0:
                turned = turned @ transpose(bodies.rotation[b]) + outer(moved, bodies.offset[b])
            R_adj[link] += turned
            p_adj[link] += moved
            p_adj[tree.root[link - 1]] -= moved


@kernel
def body_inertias_adjoint(
    tree: Tree,
    bodies: Bodies,
    R: Array[mat33],
    p: Array[vec3],
    inertia_adj: Array[RigidInertia],
    mass_adj: Array[Float],
    com_adj: Array[vec3],
    own_adj: Array[Sym33],
):
    """Cotangents of the bodies' masses, centres of mass and inertias."""
    for b in range(len(bodies.link)):
        link = bodies.link[b]
        if link > 0:
            R_WB, centre = body_pose(tree, bodies, R, p, b, link)
            given = inertia_adj[link]
            G2 = twice(given.I)
            pull = steiner_pull(given.I, G2, centre)
            mass_adj[b] += given.mass + dot(centre, given.h) + 0.5 * dot(centre, pull)
            com_adj[b] += bodies.mass[b] * (transpose(R_WB) @ (given.h + pull))
            own = G2.congruence(R_WB)
            own_adj[b] += Sym33(0.5 * own.xx, own.xy, own.xz, 0.5 * own.yy, own.yz, 0.5 * own.zz)


@kernel
def bias_forces_adjoint(
    tree: Tree,
    S: Array[Motion],
    V: Array[Motion],
    inertia: Array[RigidInertia],
    acceleration: Array[Float],
    further: Array[Float],
    A: Array[Motion],
    F: Array[Force],
    tau_adj: Array[Float],
    S_adj: Array[Motion],
    V_adj: Array[Motion],
    inertia_adj: Array[RigidInertia],
    gravity_adj: Array[vec3],
    acceleration_adj: Array[Float],
):
    """With h = I V and Z = X x V, the term X.(V x* h) is Z.h; the rate of V is V_up x V.

    further: Accelerations beyond `acceleration` at which the adjoint is taken; A and F are without them.
    """
    X, B = local(Motion, len(tree.parent) + 1), local(Force, len(tree.parent) + 1)
    W, G = local(Motion, len(tree.parent) + 1), local(Force, len(tree.parent) + 1)  # what these add to A and F
    for i in range(len(tree.parent)):
        d = tree.v_start[i]
        x, rate = X[tree.parent[i]], W[tree.parent[i]]
        for k in range(d, d + tree.dofs[i]):
            x = x + S[k] * tau_adj[k]
            rate = rate + S[k] * further[k]
        X[i + 1] = x
        W[i + 1] = rate
        G[i + 1] = inertia[i + 1] @ rate
        turning = x.crossm(V[i + 1])
        B[i + 1] = inertia[i + 1] @ x
        passed = inertia[i + 1] @ turning - x.crossf(inertia[i + 1] @ V[i + 1])
        V_adj[i + 1] += Motion(passed.n, passed.f)
        inertia_adj[i + 1] += product_cotangent(x, A[i + 1] + rate) + product_cotangent(turning, V[i + 1])
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        d, up, back = tree.v_start[i], tree.parent[i], B[i + 1]
        for k in range(d, d + tree.dofs[i]):
            wrench = (F[i + 1] + G[i + 1]) * tau_adj[k] + back * (acceleration[k] + further[k])
            S_adj[k] += Motion(wrench.n, wrench.f)
            acceleration_adj[k] += S[k].dot(back)
        turned, carried = V[up].crossf(back), V[i + 1].crossf(back)
        V_adj[i + 1] -= Motion(turned.n, turned.f)
        V_adj[up] += Motion(carried.n, carried.f)
        B[up] += back
        G[up] += G[i + 1]
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


@kernel
def accelerations_pushed_back(
    branches: Branches,
    U: Array[Float],
    L: Array[Float],
    whole: Array[Float],
    a_adj: Array[Float],
    net_adj: Array[Float],
    diagonal_adj: Array[Float],
):
    """The adjoint of a = (M + diagonal)^-1 net, but for M, which `bias_forces_adjoint` sees to.

    whole: The accelerations of the step, those of its impulses included.
    """
    dofs = len(branches.row)
    y, s = local(Float, dofs), local(Float, dofs)
    for i in range(dofs):
        y[i] = a_adj[i]
    for j in range(dofs):
        i = dofs - 1 - j
        begin = branches.row[i]
        for t in range(branches.depth[i]):
            above = branches.above[begin + t]
            y[above] = y[above] - L[begin + t] * y[i]
    for i in range(dofs):
        begin = branches.row[i]
        found = y[i] / U[begin + branches.depth[i]]
        for t in range(branches.depth[i]):
            found = found - L[begin + t] * s[branches.above[begin + t]]
        s[i] = found
        net_adj[i] += found
        diagonal_adj[i] -= found * whole[i]
