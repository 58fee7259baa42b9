"""Dynamics of trees of links [Featherstone 2008]: inverse dynamics, mass matrix, its factors.

    M(q) dv/dt + bias(q, v) = tau

Bias forces by the recursive Newton-Euler algorithm (ch. 5), M by composite bodies (ch. 6), M = L^T D L along the
branches of the tree (ch. 8). A row of M, L and U = D L holds the entries of one degree of freedom d for those on the
way from the root to it, so that entry (d, e) is number row[d] + depth[e]: nothing else is ever different from zero.
"""

from __future__ import annotations

from kinema.kinematics.tree import Branches, Tree
from kinema.lang import Array, Float, Int, kernel, mat33, record, sqrt, transpose, vec3
from kinema.math import Force, Motion, RigidInertia, Sym33, rigid_inertia


@record
class Bodies:
    """Rigid bodies, each fixed to a link.

    link: The link; 0 for bodies that never move.
    offset, rotation: Of the body's frame in the link's [m, -].
    apart: 1 where the two frames differ.
    mass: [kg]
    com: Centre of mass in the body's frame [m].
    inertia: About the centre of mass along the body's axes [kg m^2].
    """

    link: Array[Int]
    offset: Array[vec3]
    rotation: Array[mat33]
    apart: Array[Int]
    mass: Array[Float]
    com: Array[vec3]
    inertia: Array[Sym33]


@kernel
def link_inertias(tree: Tree, bodies: Bodies, R: Array[mat33], p: Array[vec3], inertia: Array[RigidInertia]):
    """Inertia of every link about its tree's origin, in world axes."""
    for b in range(len(bodies.link)):
        link = bodies.link[b]
        if link > 0:
            R_WB, origin = R[link], p[link] - p[tree.root[link - 1]]
            if bodies.apart[b] > 0:
                R_WB = R[link] @ bodies.rotation[b]
                origin = origin + R[link] @ bodies.offset[b]
            centre = origin + R_WB @ bodies.com[b]
            inertia[link] += rigid_inertia(bodies.mass[b], centre, bodies.inertia[b].congruence(transpose(R_WB)))


@kernel
def bias_forces(
    tree: Tree,
    S: Array[Motion],
    V: Array[Motion],
    inertia: Array[RigidInertia],
    gravity: vec3,
    acceleration: Array[Float],
    A: Array[Motion],
    F: Array[Force],
    tau: Array[Float],
):
    """Joint forces that give `acceleration` (dv/dt): inverse dynamics; with 0, the bias."""
    A[0] = Motion(vec3(0.0, 0.0, 0.0), -gravity)
    for i in range(len(tree.parent)):
        d, up = tree.v_start[i], tree.parent[i]
        rate = A[up] + V[i + 1].crossm(V[i + 1] - V[up])
        for k in range(d, d + tree.dofs[i]):
            rate = rate + S[k] * acceleration[k]
        A[i + 1] = rate
        F[i + 1] += inertia[i + 1] @ rate + V[i + 1].crossf(inertia[i + 1] @ V[i + 1])
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        d = tree.v_start[i]
        wrench = F[i + 1]
        for k in range(d, d + tree.dofs[i]):
            tau[k] = S[k].dot(wrench)
        F[tree.parent[i]] += wrench


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
    """The rows of the mass matrix [kg m^2, kg m, kg], with the inertia of the drives on the diagonal."""
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        composite[i + 1] += inertia[i + 1]
        whole = composite[i + 1]
        composite[tree.parent[i]] += whole
        for d in range(tree.v_start[i], tree.v_start[i] + tree.dofs[i]):
            momentum = whole @ S[d]
            begin = branches.row[d]
            for t in range(branches.depth[d]):
                M[begin + t] = S[branches.above[begin + t]].dot(momentum)
            M[begin + branches.depth[d]] = S[d].dot(momentum) + armature[d]


@kernel
def factorise(branches: Branches, M: Array[Float], U: Array[Float], L: Array[Float], root: Array[Float]):
    """M = L^T D L with L = 1 on and D = U on the diagonal, U = D L [Featherstone 2008, sec. 8.5]; root = D^-1/2.

    Left-looking: each entry is computed once, from those of the degrees of freedom below.
    """
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
def solve(branches: Branches, U: Array[Float], L: Array[Float], b: Array[Float], y: Array[Float], x: Array[Float]):
    """x = M^-1 b; y = D^-1 L^-T b on the way."""
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
def dense_matrix(branches: Branches, M: Array[Float], dense: Array[Float]):
    """The rows along the branches as a full symmetric matrix, row by row."""
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
    """x + scale * y, number by number."""
    for d in range(len(x)):
        out[d] = x[d] + scale[d] * y[d]
