"""Spatial inertias and the 6 x 6 dyads of articulated bodies [Featherstone 2008, ch. 2; Qiao et al. 2021, appendix G].

`RigidInertia` holds the ten inertial parameters of a rigid body and is linear in them; `SymmetricDyad` is a symmetric
6 x 6 matrix, such as an articulated inertia; `Dyad` is any 6 x 6 matrix in 3 x 3 blocks, as in the paper. All map
motions to forces with `@`, forces to motions with `solve`, and change coordinates with `shift`.
"""

from __future__ import annotations

from kinema.lang import (
    Float,
    columns_of,
    cross,
    dot,
    func,
    identity33,
    inverse,
    mat33,
    outer,
    skew,
    struct,
    transpose,
    vec3,
)
from kinema.math.spatial import Force, Motion, Transform


@func
def congruence(a: mat33, b: mat33):
    """a^T b a [Qiao et al. 2021, eq. 23]."""
    return transpose(a) @ (b @ a)


@struct
class Sym33:
    """A symmetric 3 x 3 matrix by its upper triangle, row by row: xx, xy, xz, yy, yz, zz."""

    xx: Float
    xy: Float
    xz: Float
    yy: Float
    yz: Float
    zz: Float

    def __add__(self, o):
        return Sym33(self.xx + o.xx, self.xy + o.xy, self.xz + o.xz, self.yy + o.yy, self.yz + o.yz, self.zz + o.zz)

    def __sub__(self, o):
        return Sym33(self.xx - o.xx, self.xy - o.xy, self.xz - o.xz, self.yy - o.yy, self.yz - o.yz, self.zz - o.zz)

    def __mul__(self, s):
        return Sym33(self.xx * s, self.xy * s, self.xz * s, self.yy * s, self.yz * s, self.zz * s)

    def __rmul__(self, s):
        return Sym33(self.xx * s, self.xy * s, self.xz * s, self.yy * s, self.yz * s, self.zz * s)

    def __matmul__(self, u):
        """The product with a vector."""
        a, b, c = vec3(self.xx, self.xy, self.xz), vec3(self.xy, self.yy, self.yz), vec3(self.xz, self.yz, self.zz)
        return vec3(dot(a, u), dot(b, u), dot(c, u))

    def matrix(self):
        """All nine entries."""
        return mat33(self.xx, self.xy, self.xz, self.xy, self.yy, self.yz, self.xz, self.yz, self.zz)

    def congruence(self, E: mat33):
        """E^T S E."""
        a, b, c = columns_of(E)
        Sa, Sb, Sc = self @ a, self @ b, self @ c
        return Sym33(dot(a, Sa), dot(a, Sb), dot(a, Sc), dot(b, Sb), dot(b, Sc), dot(c, Sc))


@func
def sym_parallel_axis(a: vec3, b: vec3):
    """(a.b) 1 - (a b^T + b a^T) / 2; with a = b = c times mass it is the inertia of a point mass at c."""
    xx, yy, zz = a.x * b.x, a.y * b.y, a.z * b.z
    xy = -0.5 * (a.x * b.y + a.y * b.x)
    xz = -0.5 * (a.x * b.z + a.z * b.x)
    yz = -0.5 * (a.y * b.z + a.z * b.y)
    return Sym33(yy + zz, xy, xz, xx + zz, yz, xx + yy)


@struct
class RigidInertia:
    """The inertia of a rigid body: mass [kg], h = mass times centre of mass [kg m], I about the origin [kg m^2].

    As a 6 x 6 matrix: [I, skew(h); -skew(h), mass 1] [Featherstone 2008, eq. 2.63].
    """

    mass: Float
    h: vec3
    I: Sym33

    def __add__(self, other):
        """The inertia of two bodies that are joined rigidly."""
        return RigidInertia(self.mass + other.mass, self.h + other.h, self.I + other.I)

    def __mul__(self, s):
        return RigidInertia(self.mass * s, self.h * s, self.I * s)

    def __rmul__(self, s):
        return RigidInertia(self.mass * s, self.h * s, self.I * s)

    def __matmul__(self, m):
        """The momentum of a motion, or the force of an acceleration: [I w + h x v; mass v - h x w]."""
        return Force(self.I @ m.w + cross(self.h, m.v), self.mass * m.v - cross(self.h, m.w))

    def solve(self, f):
        """The motion m with self @ m = f, solved at the centre of mass; infinite if mass or inertia vanish there."""
        c = self.h / self.mass
        central = (self.I - sym_parallel_axis(self.h, c)).matrix()
        w = inverse(central) @ (f.n - cross(c, f.f))
        return Motion(w, f.f / self.mass + cross(c, w))

    def shift(self, X: Transform):
        """X^T I X: an inertia in B to one in A, for X = X_BA; shift(X.inverse()) maps A to B.

        With g = E^T h: (mass, g + mass r, E^T I E - skew(r) skew(g) - skew(g + mass r) skew(r))
        [Featherstone 2008, eq. 2.66].
        """
        g = transpose(X.E) @ self.h
        h = g + self.mass * X.r
        return RigidInertia(self.mass, h, self.I.congruence(X.E) + sym_parallel_axis(g + h, X.r))

    def dyad(self):
        """This inertia as a symmetric dyad, to which articulated inertias can be added."""
        return SymmetricDyad(self.I.matrix(), skew(self.h), identity33(self.mass))


@func
def rigid_inertia(mass: Float, com: vec3, I_com: Sym33):
    """The inertia of a body from its mass [kg], centre of mass [m] and inertia about it [kg m^2] (Steiner)."""
    h = mass * com
    return RigidInertia(mass, h, I_com + sym_parallel_axis(h, com))


@func
def product_cotangent(a: Motion, b: Motion):
    """Derivatives of a.(I @ b) with respect to the ten parameters of a rigid inertia I."""
    x, y = a.w, b.w
    return RigidInertia(
        dot(a.v, b.v),
        cross(b.v, x) + cross(a.v, y),
        Sym33(x.x * y.x, x.x * y.y + x.y * y.x, x.x * y.z + x.z * y.x, x.y * y.y, x.y * y.z + x.z * y.y, x.z * y.z),
    )


@struct
class SymmetricDyad:
    """A symmetric 6 x 6 matrix [I, H; H^T, M] from motions to forces; I and M are symmetric 3 x 3 matrices."""

    I: mat33
    H: mat33
    M: mat33

    def __add__(self, other):
        return SymmetricDyad(self.I + other.I, self.H + other.H, self.M + other.M)

    def __sub__(self, other):
        return SymmetricDyad(self.I - other.I, self.H - other.H, self.M - other.M)

    def __mul__(self, s):
        return SymmetricDyad(self.I * s, self.H * s, self.M * s)

    def __rmul__(self, s):
        return SymmetricDyad(self.I * s, self.H * s, self.M * s)

    def __truediv__(self, s):
        return SymmetricDyad(self.I / s, self.H / s, self.M / s)

    def __matmul__(self, m):
        """The product with a motion: [I w + H v; H^T w + M v]."""
        return Force(self.I @ m.w + self.H @ m.v, transpose(self.H) @ m.w + self.M @ m.v)

    def solve(self, f):
        """The motion m with self @ m = f; M must be invertible."""
        w, v = _solve_blocks(self.I, self.H, transpose(self.H), self.M, f.n, f.f)
        return Motion(w, v)

    def shift(self, X: Transform):
        """X^T D X, as `Dyad.shift` [Qiao et al. 2021, eq. 52]."""
        I, H, M = congruence(X.E, self.I), congruence(X.E, self.H), congruence(X.E, self.M)
        R = skew(X.r)
        H_shifted = H + R @ M
        # R H^T is the transpose of -H R.
        return SymmetricDyad(I - H_shifted @ R + R @ transpose(H), H_shifted, M)

    def dyad(self):
        """All four blocks."""
        return Dyad(self.I, self.H, transpose(self.H), self.M)


@func
def symmetric_outer(f: Force):
    """f f^T [Qiao et al. 2021, eq. 46 with two equal vectors]."""
    return SymmetricDyad(outer(f.n, f.n), outer(f.n, f.f), outer(f.f, f.f))


@struct
class Dyad:
    """Any 6 x 6 matrix [m11, m12; m21, m22], by default from motions to forces."""

    m11: mat33
    m12: mat33
    m21: mat33
    m22: mat33

    def __add__(self, o):
        return Dyad(self.m11 + o.m11, self.m12 + o.m12, self.m21 + o.m21, self.m22 + o.m22)

    def __sub__(self, o):
        return Dyad(self.m11 - o.m11, self.m12 - o.m12, self.m21 - o.m21, self.m22 - o.m22)

    def __mul__(self, s):
        return Dyad(self.m11 * s, self.m12 * s, self.m21 * s, self.m22 * s)

    def __rmul__(self, s):
        return Dyad(self.m11 * s, self.m12 * s, self.m21 * s, self.m22 * s)

    def __truediv__(self, s):
        return Dyad(self.m11 / s, self.m12 / s, self.m21 / s, self.m22 / s)

    def __matmul__(self, m):
        """mul-ori: [m11 w + m12 v; m21 w + m22 v] [Qiao et al. 2021, eq. 42]."""
        return Force(self.m11 @ m.w + self.m12 @ m.v, self.m21 @ m.w + self.m22 @ m.v)

    def mul_inv(self, m):
        """mul-inv as printed: [m11^T w + m12^T v; m21^T w + m22^T v] [Qiao et al. 2021, eq. 44].

        Neither the inverse nor the transpose of eq. 42; those are `solve` and `transpose`.
        """
        w, v = transpose(self.m11) @ m.w, transpose(self.m21) @ m.w
        return Force(w + transpose(self.m12) @ m.v, v + transpose(self.m22) @ m.v)

    def solve(self, f):
        """The motion m with self @ m = f, by elimination of the linear part; m22 must be invertible."""
        w, v = _solve_blocks(self.m11, self.m12, self.m21, self.m22, f.n, f.f)
        return Motion(w, v)

    def transpose(self):
        """The transposed matrix."""
        return Dyad(transpose(self.m11), transpose(self.m21), transpose(self.m12), transpose(self.m22))

    def multiply(self, o):
        """The product of two 6 x 6 matrices."""
        m11 = self.m11 @ o.m11 + self.m12 @ o.m21
        m12 = self.m11 @ o.m12 + self.m12 @ o.m22
        m21 = self.m21 @ o.m11 + self.m22 @ o.m21
        return Dyad(m11, m12, m21, self.m21 @ o.m12 + self.m22 @ o.m22)

    def congruence(self, a):
        """a^T D a [Qiao et al. 2021, eq. 23]."""
        return a.transpose().multiply(self.multiply(a))

    def shift(self, X: Transform):
        """X^T D X: an inertia in B to one in A, for X = X_BA [Qiao et al. 2021, eq. 52].

        Equal to self.congruence(dyad_of_transform(X)), block by block: rotates all four blocks, then shifts them by r.
        """
        m11, m12 = congruence(X.E, self.m11), congruence(X.E, self.m12)
        m21, m22 = congruence(X.E, self.m21), congruence(X.E, self.m22)
        R = skew(X.r)
        left = m21 - m22 @ R
        return Dyad(m11 - m12 @ R + R @ left, m12 + R @ m22, left, m22)


@func
def dyad_outer(a: Force, b: Force):
    """v v^T: a b^T = [n1 n2^T, n1 f2^T; f1 n2^T, f1 f2^T] [Qiao et al. 2021, eq. 46]."""
    return Dyad(outer(a.n, b.n), outer(a.n, b.f), outer(a.f, b.n), outer(a.f, b.f))


@func
def dyad_of_transform(X: Transform):
    """st2sd: the matrix [E, 0; -E skew(r), E] of a transform [Qiao et al. 2021, eq. 50]."""
    return Dyad(X.E, identity33(0.0), -(X.E @ skew(X.r)), X.E)


@func
def _solve_blocks(m11: mat33, m12: mat33, m21: mat33, m22: mat33, a: vec3, b: vec3):
    """x, y with m11 x + m12 y = a and m21 x + m22 y = b, by the Schur complement of m22."""
    last = inverse(m22)
    over = m12 @ last
    x = inverse(m11 - over @ m21) @ (a - over @ b)
    return x, last @ (b - m21 @ x)
