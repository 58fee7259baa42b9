"""Dynamics of trees of links [Featherstone 2008]: inverse dynamics (RNEA), mass matrix (CRBA), and its factors.

    M(q) dv/dt + bias(q, v) = tau

Bias forces come from the recursive Newton-Euler algorithm (RNEA, ch. 5), M from the composite-rigid-body algorithm
(CRBA, ch. 6), and M = L^T D L is factorised along the branches of the tree (ch. 8). A row of M, L and U = D L holds the
entries of one degree of freedom d for the degrees of freedom from the root to d, so that entry (d, e) has the index
row[d] + depth[e]; all other entries are always zero.

Adjoints are written by hand. Inverse dynamics is a sum over links: with the cotangents g of the joint forces and the
motions X = sum of S g from the root on,

    sum of g tau = sum over links of X.(I A + V x* I V)

so that its adjoint is inverse dynamics again: motions X from the root on, and forces B back to it, the cotangents of
the accelerations A. The generated adjoint accumulates each of them in memory, and takes twice the time.

The final accelerations of a step, a = M^-1 (net + impulses / dt), need no adjoint of M or of its factors: with the
cotangent s of net, the cotangent of M is -s a^T, so the adjoint of s tau at the accelerations `acceleration` + a
includes all of it.

The inertia of a body about its tree's origin is R I R^T + m (c^2 1 - c c^T). With its symmetric cotangent G, the
cotangent of R is 2 G R I, and the cotangent of c is 2 m (tr(G) c - G c).
"""

from __future__ import annotations

from kinema.kinematics.factors import Factors
from kinema.kinematics.tree import Branches, Tree
from kinema.lang import Array, Float, Int, dot, func, kernel, local, mat33, outer, record, sqrt, transpose, vec3
from kinema.math import Force, Motion, RigidInertia, Sym33, product_cotangent, rigid_inertia


@record
class Bodies:
    """Rigid bodies, each fixed to a link.

    link: Link of each body; 0 for fixed bodies.
    offset, rotation: Pose of the body's frame in the link's frame [m, -].
    apart: 1 if the two frames differ.
    mass: Mass [kg].
    com: Centre of mass in the body's frame [m].
    inertia: Inertia about the centre of mass along the body's axes [kg m^2].
    """

    link: Array[Int]
    offset: Array[vec3]
    rotation: Array[mat33]
    apart: Array[Int]
    mass: Array[Float]
    com: Array[vec3]
    inertia: Array[Sym33]


@record
class MovingLinks:
    """Moving links, all about the origin of their tree.

    S: Motions of the degrees of freedom.
    V: Velocities of the links.
    inertia: Inertias of the links.
    gravity: Gravity [m/s^2].
    """

    S: Array[Motion]
    V: Array[Motion]
    inertia: Array[RigidInertia]
    gravity: vec3


@func
def body_pose(tree, bodies, R, p, b, link):
    """Axes of a body, and its centre of mass relative to its tree's origin [m]."""
    R_WB, origin = R[link], p[link] - p[tree.root[link - 1]]
    if bodies.apart[b] > 0:
        R_WB = R[link] @ bodies.rotation[b]
        origin = origin + R[link] @ bodies.offset[b]
    return R_WB, origin + R_WB @ bodies.com[b]


@func
def twice(I_adj):
    """2 G as a symmetric matrix: each off-diagonal component of the cotangent stands for two entries."""
    return Sym33(2.0 * I_adj.xx, I_adj.xy, I_adj.xz, 2.0 * I_adj.yy, I_adj.yz, 2.0 * I_adj.zz)


@func
def steiner_pull(I_adj, G2, centre):
    """2 (tr(G) c - G c)."""
    return 2.0 * (I_adj.xx + I_adj.yy + I_adj.zz) * centre - G2 @ centre


@kernel
def link_inertias(tree: Tree, bodies: Bodies, R: Array[mat33], p: Array[vec3], inertia: Array[RigidInertia]):
    """Compute the inertia of every link about its tree's origin, in world axes."""
    for b in range(len(bodies.link)):
        link = bodies.link[b]
        if link > 0:
            R_WB, centre = body_pose(tree, bodies, R, p, b, link)
            inertia[link] += rigid_inertia(bodies.mass[b], centre, bodies.inertia[b].congruence(transpose(R_WB)))


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
    bodies_adj: Bodies.adj,
):
    """Cotangents of the bodies' masses, centres of mass and inertias."""
    for b in range(len(bodies.link)):
        link = bodies.link[b]
        if link > 0:
            R_WB, centre = body_pose(tree, bodies, R, p, b, link)
            given = inertia_adj[link]
            G2 = twice(given.I)
            pull = steiner_pull(given.I, G2, centre)
            bodies_adj.mass[b] += given.mass + dot(centre, given.h) + 0.5 * dot(centre, pull)
            bodies_adj.com[b] += bodies.mass[b] * (transpose(R_WB) @ (given.h + pull))
            own = G2.congruence(R_WB)
            bodies_adj.inertia[b] += Sym33(0.5 * own.xx, own.xy, own.xz, 0.5 * own.yy, own.yz, 0.5 * own.zz)


@kernel
def bias_forces(
    tree: Tree,
    links: MovingLinks,
    acceleration: Array[Float],
    A: Array[Motion],
    F: Array[Force],
    tau: Array[Float],
):
    """Inverse dynamics: the joint forces for `acceleration` (dv/dt); for 0, the bias."""
    S, V, inertia = links.S, links.V, links.inertia
    # From the root on: accelerations, and the forces that cause them on each link [Featherstone 2008, sec. 5.3].
    A[0] = Motion(vec3(0.0, 0.0, 0.0), -links.gravity)
    for i in range(len(tree.parent)):
        d, up = tree.v_start[i], tree.parent[i]
        rate = A[up] + V[i + 1].crossm(V[i + 1] - V[up])
        for k in range(d, d + tree.dofs[i]):
            rate = rate + S[k] * acceleration[k]
        A[i + 1] = rate
        F[i + 1] += inertia[i + 1] @ rate + V[i + 1].crossf(inertia[i + 1] @ V[i + 1])
    # Back to the root: the component of each joint, and the wrench on its parent link.
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        d = tree.v_start[i]
        wrench = F[i + 1]
        for k in range(d, d + tree.dofs[i]):
            tau[k] = S[k].dot(wrench)
        F[tree.parent[i]] += wrench


@kernel
def bias_forces_adjoint(
    tree: Tree,
    links: MovingLinks,
    acceleration: Array[Float],
    further: Array[Float],
    A: Array[Motion],
    F: Array[Force],
    tau_adj: Array[Float],
    links_adj: MovingLinks.adj,
    acceleration_adj: Array[Float],
):
    """Adjoint of `bias_forces`. With h = I V and Z = X x V, the term X.(V x* h) is Z.h; the rate of V is V_up x V.

    further: The adjoint is evaluated at `acceleration` + `further`; A and F do not include `further`.
    """
    S, V, inertia = links.S, links.V, links.inertia
    X, B = local(Motion, len(tree.parent) + 1), local(Force, len(tree.parent) + 1)
    W, G = local(Motion, len(tree.parent) + 1), local(Force, len(tree.parent) + 1)  # parts of A and F due to `further`
    # From the root on: X = sum of S g, and the wrenches of X, V and the accelerations on each link.
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
        links_adj.V[i + 1] += Motion(passed.n, passed.f)
        links_adj.inertia[i + 1] += product_cotangent(x, A[i + 1] + rate) + product_cotangent(turning, V[i + 1])
    # Back to the root: cotangents of each joint's motions and accelerations, and the wrenches on its parent link.
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        d, up, back = tree.v_start[i], tree.parent[i], B[i + 1]
        for k in range(d, d + tree.dofs[i]):
            wrench = (F[i + 1] + G[i + 1]) * tau_adj[k] + back * (acceleration[k] + further[k])
            links_adj.S[k] += Motion(wrench.n, wrench.f)
            acceleration_adj[k] += S[k].dot(back)
        turned, carried = V[up].crossf(back), V[i + 1].crossf(back)
        links_adj.V[i + 1] -= Motion(turned.n, turned.f)
        links_adj.V[up] += Motion(carried.n, carried.f)
        B[up] += back
        G[up] += G[i + 1]
    links_adj.gravity[0] -= B[0].f


@kernel
def mass_matrix(
    tree: Tree,
    branches: Branches,
    S: Array[Motion],
    inertia: Array[RigidInertia],
    armature: Array[Float],
    composite: Array[RigidInertia],
    M: Array[Float],
):
    """Compute the rows of the mass matrix [kg m^2, kg m, kg], with the armature on the diagonal."""
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        # Composite inertia of the subtree of joint i [Featherstone 2008, sec. 6.2].
        composite[i + 1] += inertia[i + 1]
        whole = composite[i + 1]
        composite[tree.parent[i]] += whole
        # M_ed = S_e . (I S_d) for the degrees of freedom e from the root to d.
        for d in range(tree.v_start[i], tree.v_start[i] + tree.dofs[i]):
            momentum = whole @ S[d]
            begin = branches.row[d]
            for t in range(branches.depth[d]):
                M[begin + t] = S[branches.above[begin + t]].dot(momentum)
            M[begin + branches.depth[d]] = S[d].dot(momentum) + armature[d]


@kernel
def factorise(M: Array[Float], factors: Factors):
    """Factorise M = L^T D L with L = 1 on and D = U on the diagonal, U = D L [Featherstone 2008, sec. 8.5].

    root = D^-1/2. Left-looking: each entry is computed once, from the rows of the degrees of freedom below.
    """
    branches, U, L, root = factors.branches, factors.U, factors.L, factors.root
    for j in range(len(branches.row)):
        i = len(branches.row) - 1 - j
        begin, depth, last = branches.row[i], branches.depth[i], branches.last[i]
        for t in range(depth + 1):
            entry = M[begin + t]
            for k in range(i + 1, last + 1):
                entry = entry - U[branches.row[k] + depth] * L[branches.row[k] + t]
            U[begin + t] = entry
        inverse = 1.0 / U[begin + depth]
        root[i] = sqrt(inverse)
        for t in range(depth):
            L[begin + t] = U[begin + t] * inverse
        L[begin + depth] = 1.0


@kernel
def factorise_adjoint(factors: Factors, factors_adj: Factors.adj, M_adj: Array[Float]):
    """Adjoint of `factorise`, from the root on, row by row of the degrees of freedom below.

    The generated adjoint follows the columns, and takes twice the time.
    """
    branches, U, L, root = factors.branches, factors.U, factors.L, factors.root
    U_adj, L_adj = factors_adj.U, factors_adj.L
    found = local(Float, len(branches.row))  # cotangents of the entries of one row
    for i in range(len(branches.row)):
        begin, depth, last = branches.row[i], branches.depth[i], branches.last[i]
        # The row itself: L = U / D off the diagonal, root = D^-1/2 on it.
        scale = root[i] * root[i]
        at_diagonal = U_adj[begin + depth] - 0.5 * scale * (root[i] * factors_adj.root[i])
        for t in range(depth):
            by_factor = L_adj[begin + t] * scale
            found[t] = U_adj[begin + t] + by_factor
            at_diagonal = at_diagonal - by_factor * L[begin + t]
        found[depth] = at_diagonal
        for t in range(depth + 1):
            M_adj[begin + t] += found[t]
        # Products U L of the rows below.
        for k in range(i + 1, last + 1):
            row, whole = branches.row[k], 0.0
            factor = U[row + depth]
            for t in range(depth + 1):
                whole = whole + found[t] * L[row + t]
                L_adj[row + t] -= found[t] * factor
            U_adj[row + depth] -= whole


@kernel
def solve(factors: Factors, b: Array[Float], y: Array[Float], x: Array[Float]):
    """x = M^-1 b, with the intermediate result y = D^-1 L^-T b."""
    branches, U, L = factors.branches, factors.U, factors.L
    for j in range(len(branches.row)):
        i = len(branches.row) - 1 - j
        depth = branches.depth[i]
        rest = b[i]
        for k in range(i + 1, branches.last[i] + 1):
            rest = rest - U[branches.row[k] + depth] * y[k]
        y[i] = rest / U[branches.row[i] + depth]
    for i in range(len(branches.row)):
        begin = branches.row[i]
        found = y[i]
        for t in range(branches.depth[i]):
            found = found - L[begin + t] * x[branches.above[begin + t]]
        x[i] = found


@kernel
def solve_adjoint(
    factors: Factors,
    whole: Array[Float],
    a_adj: Array[Float],
    net_adj: Array[Float],
    diagonal_adj: Array[Float],
):
    """Adjoint of a = (M + diagonal)^-1 net, except for M, which `bias_forces_adjoint` includes.

    whole: The accelerations of the step, including its impulses.
    """
    branches, U, L = factors.branches, factors.U, factors.L
    dofs = len(branches.row)
    # s = M^-1 a_adj.
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


@kernel
def dense_matrix(branches: Branches, M: Array[Float], dense: Array[Float]):
    """Expand the rows along the branches to a full symmetric matrix."""
    n = len(branches.row)
    for d in range(n):
        begin, depth = branches.row[d], branches.depth[d]
        for t in range(depth):
            e = branches.above[begin + t]
            dense[d * n + e] += M[begin + t]
            dense[e * n + d] += M[begin + t]
        dense[d * n + d] += M[begin + depth]


@kernel
def add_scaled(x: Array[Float], scale: Array[Float], y: Array[Float], out: Array[Float]):
    """x + scale * y, element by element."""
    for d in range(len(x)):
        out[d] = x[d] + scale[d] * y[d]
