"""Articulated-body algorithm (ABA): accelerations of trees of links in linear time.

    (M(q) + diagonal) a = force - bias(q, v)        [Featherstone 2008, ch. 7]

All spatial vectors of a link are about its own origin, in world axes: from link to link only the origin moves, by
r = p - p_parent, so that long chains stay accurate (about one common origin, a thousand links would cost one or two
more digits). For the same reason the algorithm does not project the bias to the joints first: `link_wrenches` computes
the wrench F that moves each link if its joints do not accelerate, and the solution propagates F along the tree. Each
degree of freedom counts as a joint of its own, with massless links between those of a ball joint or a free body, so
that all divisions are by scalars.

The adjoint needs no derivative of the factors. With b = (M + diagonal)^-1 a_adj, solved with the same factors, and the
motions of the links due to b and a, B = sum of S b and W = sum of S a from the root on, all derivatives are those of

    - sum over links of B.(I W + F)  +  sum over degrees of freedom of b (force - diagonal a)

for constant a and b: sums of wrenches up the tree, as in inverse dynamics.
"""

from __future__ import annotations

from kinema.dynamics.rnea_crba import Bodies
from kinema.kinematics.articulated_factors import force_from, motion_at
from kinema.kinematics.joint_types import own_motion, own_motion_adjoint
from kinema.kinematics.tree import Tree
from kinema.lang import (
    Array,
    Float,
    columns,
    columns_of,
    cross,
    func,
    kernel,
    local,
    mat33,
    record,
    rows_of,
    sqrt,
    struct,
    transpose,
    vec3,
)
from kinema.math import Force, Motion, RigidInertia, Sym33, product_cotangent, rigid_inertia


@record
class OwnLinks:
    """Links about their own origins, in world axes.

    S: Motions of the degrees of freedom, about the origin of their tree.
    p: Origins [m].
    inertia: Inertias.
    F: Wrenches that move the links against gravity if no joint accelerates.
    """

    S: Array[Motion]
    p: Array[vec3]
    inertia: Array[RigidInertia]
    F: Array[Force]


@record
class Articulated:
    """The factors and the solution, per degree of freedom.

    U, inverse: The factors: the articulated inertia of its link times its motion, U = A S, and
        1 / D = 1 / (S.U + diagonal).
    W: Acceleration of its link due to this degree of freedom and all above it.
    """

    U: Array[Force]
    inverse: Array[Float]
    W: Array[Motion]


@struct
class Hung:
    """Articulated-body inertia of a link and its subtree: the symmetric matrix [I, H; H^T, M], motions to forces."""

    I: Sym33
    H: mat33
    M: Sym33

    def __add__(self, other):
        return Hung(self.I + other.I, self.H + other.H, self.M + other.M)

    def __matmul__(self, m):
        """[I w + H v; H^T w + M v]."""
        return Force(self.I @ m.w + self.H @ m.v, transpose(self.H) @ m.w + self.M @ m.v)

    def released(self, U: Force, inverse: Float):
        """The inertia across a joint that is free to move, A - U U^T / D [Featherstone 2008, eq. 7.43]."""
        n, f, a, b = U.n, U.f, U.n * inverse, U.f * inverse
        x, y, z = columns_of(self.H)
        return Hung(
            self.I - Sym33(n.x * a.x, n.x * a.y, n.x * a.z, n.y * a.y, n.y * a.z, n.z * a.z),
            columns(x - n * b.x, y - n * b.y, z - n * b.z),
            self.M - Sym33(f.x * b.x, f.x * b.y, f.x * b.z, f.y * b.y, f.y * b.z, f.z * b.z),
        )

    def about(self, r: vec3):
        """The inertia about the point from which this origin is at r: X^T A X with X m = [w; v - r x w].

        With s = skew(r) and K = H + s M it is [I - K s + s H^T, K; K^T, M].
        """
        hx, hy, hz = columns_of(self.H)
        mx, my, mz = columns_of(self.M.matrix())
        kx, ky, kz = hx + cross(r, mx), hy + cross(r, my), hz + cross(r, mz)
        rx, ry, rz = rows_of(self.H)
        x = cross(r, rx) - r.z * ky + r.y * kz
        y = cross(r, ry) - r.x * kz + r.z * kx
        z = cross(r, rz) - r.y * kx + r.x * ky
        I = self.I + Sym33(x.x, y.x, z.x, y.y, z.y, z.z)
        return Hung(I, columns(kx, ky, kz), self.M)


@func
def rigid(body: RigidInertia):
    """Articulated-body inertia of a single rigid body."""
    m, h = body.mass, body.h
    return Hung(body.I, mat33(0.0, -h.z, h.y, h.z, 0.0, -h.x, -h.y, h.x, 0.0), Sym33(m, 0.0, 0.0, m, 0.0, m))


@kernel
def own_inertias(bodies: Bodies, R: Array[mat33], inertia: Array[RigidInertia]):
    """Compute the inertia of every link about its own origin, in world axes."""
    for b in range(len(bodies.link)):
        link = bodies.link[b]
        if link > 0:
            R_WB = R[link]
            if bodies.apart[b] > 0:
                R_WB = R[link] @ bodies.rotation[b]
            centre = R[link] @ bodies.offset[b] + R_WB @ bodies.com[b]
            inertia[link] += rigid_inertia(bodies.mass[b], centre, bodies.inertia[b].congruence(transpose(R_WB)))


@kernel
def link_wrenches(tree: Tree, links: OwnLinks, gravity: vec3, v: Array[Float], V: Array[Motion], A: Array[Motion]):
    """Compute the velocities and accelerations of the links if no joint accelerates, and from them the wrenches F."""
    S, p, inertia = links.S, links.p, links.inertia
    V[0] = Motion(vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0))
    A[0] = Motion(vec3(0.0, 0.0, 0.0), -gravity)
    for i in range(len(tree.parent)):
        d, up = tree.v_start[i], tree.parent[i]
        r = p[i + 1] - p[up]
        joint = Motion(vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0))
        for k in range(d, d + tree.dofs[i]):
            joint = joint + own_motion(tree.kind[i], k - d, S[k]) * v[k]
        moving = motion_at(V[up], r) + joint
        rate = motion_at(A[up], r) + moving.crossm(joint)
        V[i + 1] = moving
        A[i + 1] = rate
        links.F[i + 1] = inertia[i + 1] @ rate + moving.crossf(inertia[i + 1] @ moving)


@func
def sweep_down(tree, links, solved, left, a, W):
    """From the roots on: a = (left - U.before) / D and W = before + S a, with the parent's acceleration `before`."""
    S, p, U, inverse = links.S, links.p, solved.U, solved.inverse
    for i in range(len(tree.parent)):
        d, up = tree.v_start[i], tree.parent[i]
        for k in range(d, d + tree.dofs[i]):
            before = Motion(vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0))
            if k > d:
                before = W[k - 1]
            elif up > 0:
                before = motion_at(W[tree.v_start[up - 1] + tree.dofs[up - 1] - 1], p[i + 1] - p[up])
            found = (left[k] - before.dot(U[k])) * inverse[k]
            a[k] = found
            W[k] = before + own_motion(tree.kind[i], k - d, S[k]) * found


@kernel
def accelerations(
    tree: Tree,
    links: OwnLinks,
    diagonal: Array[Float],
    force: Array[Float],
    solved: Articulated,
    a: Array[Float],
):
    """a = (M + diagonal)^-1 (force - the projection of the links' wrenches F to the joints)."""
    S, p, inertia, F = links.S, links.p, links.inertia, links.F
    U, inverse = solved.U, solved.inverse
    n = len(a)
    # From the leaves on: U = A S, 1 / D = 1 / (S.U + diagonal), left = force - S.pull.
    hung, pull, left = local(Hung, n), local(Force, n), local(Float, n)
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        d, up, count = tree.v_start[i], tree.parent[i], tree.dofs[i]
        hung[d + count - 1] += rigid(inertia[i + 1])
        pull[d + count - 1] += F[i + 1]
        for s in range(count):
            k = d + count - 1 - s
            motion = own_motion(tree.kind[i], k - d, S[k])
            resists = hung[k] @ motion
            one_over = 1.0 / (motion.dot(resists) + diagonal[k])
            rest = force[k] - motion.dot(pull[k])
            U[k] = resists
            inverse[k] = one_over
            left[k] = rest
            if k > d:
                hung[k - 1] += hung[k].released(resists, one_over)
                pull[k - 1] += pull[k] + resists * (rest * one_over)
            elif up > 0:
                r, above = p[i + 1] - p[up], tree.v_start[up - 1] + tree.dofs[up - 1] - 1
                hung[above] += hung[k].released(resists, one_over).about(r)
                pull[above] += force_from(pull[k] + resists * (rest * one_over), r)
    sweep_down(tree, links, solved, left, a, solved.W)


@func
def pull_back_accelerations(tree, links, solved, a, W, a_adj, links_adj, diagonal_adj, force_adj):
    """Solve for a_adj with the same factors, then sum wrenches up the tree (see the top of this file).

    b is the solution, and B are the motions of the links due to b, as W are those due to a.
    """
    S, p, inertia, F = links.S, links.p, links.inertia, links.F
    U, inverse = solved.U, solved.inverse
    n = len(a)
    # b = (M + diagonal)^-1 a_adj, as in `accelerations`.
    pull, left, b, B = local(Force, n), local(Float, n), local(Float, n), local(Motion, n)
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        d, up, count = tree.v_start[i], tree.parent[i], tree.dofs[i]
        for s in range(count):
            k = d + count - 1 - s
            rest = a_adj[k] - own_motion(tree.kind[i], k - d, S[k]).dot(pull[k])
            left[k] = rest
            if k > d:
                pull[k - 1] += pull[k] + U[k] * (rest * inverse[k])
            elif up > 0:
                above = tree.v_start[up - 1] + tree.dofs[up - 1] - 1
                pull[above] += force_from(pull[k] + U[k] * (rest * inverse[k]), p[i + 1] - p[up])
    sweep_down(tree, links, solved, left, b, B)
    for k in range(n):
        force_adj[k] += b[k]
        diagonal_adj[k] -= b[k] * a[k]
    # Wrenches that accelerate the links by a and by b, summed up the tree: of_a with F, of_b without.
    of_a, of_b = local(Force, len(tree.parent) + 1), local(Force, len(tree.parent) + 1)
    for j in range(len(tree.parent)):
        i = len(tree.parent) - 1 - j
        d, up, last = tree.v_start[i], tree.parent[i], tree.v_start[i] + tree.dofs[i] - 1
        u, w = B[last], W[last]
        of_a[i + 1] += inertia[i + 1] @ w + F[i + 1]
        of_b[i + 1] += inertia[i + 1] @ u
        links_adj.inertia[i + 1] += product_cotangent(-u, w)
        links_adj.F[i + 1] += Force(-u.w, -u.v)
        one, two = of_a[i + 1], of_b[i + 1]
        for k in range(d, last + 1):
            back = Motion(-(one.n * b[k] + two.n * a[k]), -(one.f * b[k] + two.f * a[k]))
            links_adj.S[k] += own_motion_adjoint(tree.kind[i], k - d, back)
        if up > 0:
            above, r = tree.v_start[up - 1] + tree.dofs[up - 1] - 1, p[i + 1] - p[up]
            moved = cross(B[above].w, one.f) + cross(W[above].w, two.f)
            links_adj.p[i + 1] += moved
            links_adj.p[up] -= moved
            of_a[up] += force_from(one, r)
            of_b[up] += force_from(two, r)


@kernel
def accelerations_adjoint(
    tree: Tree,
    links: OwnLinks,
    solved: Articulated,
    a: Array[Float],
    a_adj: Array[Float],
    links_adj: OwnLinks.adj,
    diagonal_adj: Array[Float],
    force_adj: Array[Float],
):
    """Adjoint of `accelerations`."""
    pull_back_accelerations(tree, links, solved, a, solved.W, a_adj, links_adj, diagonal_adj, force_adj)


@kernel
def whole_accelerations_adjoint(
    tree: Tree,
    links: OwnLinks,
    solved: Articulated,
    whole: Array[Float],
    a_adj: Array[Float],
    links_adj: OwnLinks.adj,
    diagonal_adj: Array[Float],
    force_adj: Array[Float],
):
    """Adjoint of `accelerations` at the accelerations of a whole step, which include impulses.

    It contains the cotangents of the mass matrix in the impulses, too, if a_adj contains all that follows from them.
    """
    W = local(Motion, len(whole))
    for i in range(len(tree.parent)):
        up = tree.parent[i]
        for k in range(tree.v_start[i], tree.v_start[i] + tree.dofs[i]):
            before = Motion(vec3(0.0, 0.0, 0.0), vec3(0.0, 0.0, 0.0))
            if k > tree.v_start[i]:
                before = W[k - 1]
            elif up > 0:
                above = tree.v_start[up - 1] + tree.dofs[up - 1] - 1
                before = motion_at(W[above], links.p[i + 1] - links.p[up])
            W[k] = before + own_motion(tree.kind[i], k - tree.v_start[i], links.S[k]) * whole[k]
    pull_back_accelerations(tree, links, solved, whole, W, a_adj, links_adj, diagonal_adj, force_adj)


@kernel
def inverse_roots(inverse: Array[Float], root: Array[Float]):
    """D^-1/2 of every degree of freedom."""
    for d in range(len(root)):
        root[d] = sqrt(inverse[d])
