"""Spatial vectors and transforms, angular part first [Featherstone 2008, ch. 2; Qiao et al. 2021, appendix G].

Motions (velocities, accelerations, joint axes) and forces (wrenches, momenta) are different types: a motion times a
force is a power, and the two change coordinates differently. The compiler derives the adjoints; tests compare them
with the adjoints that the paper prints for its equations 28 to 41.
"""

from __future__ import annotations

from kinema.lang import cross, dot, mat33, struct, transpose, vec3


@struct
class Motion:
    """A motion vector: angular part w [rad/s], linear part v [m/s] of the point at the origin."""

    w: vec3
    v: vec3

    def __add__(self, other):
        return Motion(self.w + other.w, self.v + other.v)

    def __sub__(self, other):
        return Motion(self.w - other.w, self.v - other.v)

    def __neg__(self):
        return Motion(-self.w, -self.v)

    def __mul__(self, s):
        return Motion(self.w * s, self.v * s)

    def __rmul__(self, s):
        return Motion(self.w * s, self.v * s)

    def __truediv__(self, s):
        return Motion(self.w / s, self.v / s)

    def dot(self, force):
        """w.n + v.f: the power [W] of a force along this motion."""
        return dot(self.w, force.n) + dot(self.v, force.f)

    def crossm(self, other):
        """Rate of change of a motion vector fixed in a frame that moves with this motion [Qiao et al. 2021, eq. 38].

        [w1 x w2; w1 x v2 + v1 x w2]
        """
        return Motion(cross(self.w, other.w), cross(self.w, other.v) + cross(self.v, other.w))

    def crossf(self, force):
        """Rate of change of a force vector fixed in a frame that moves with this motion [Qiao et al. 2021, eq. 40].

        [w x n + v x f; w x f]
        """
        return Force(cross(self.w, force.n) + cross(self.v, force.f), cross(self.w, force.f))


@struct
class Force:
    """A force vector: moment n [N m] about the origin, force f [N]."""

    n: vec3
    f: vec3

    def __add__(self, other):
        return Force(self.n + other.n, self.f + other.f)

    def __sub__(self, other):
        return Force(self.n - other.n, self.f - other.f)

    def __neg__(self):
        return Force(-self.n, -self.f)

    def __mul__(self, s):
        return Force(self.n * s, self.f * s)

    def __rmul__(self, s):
        return Force(self.n * s, self.f * s)

    def __truediv__(self, s):
        return Force(self.n / s, self.f / s)

    def dot(self, motion):
        """n.w + f.v: the power [W] of this force along a motion."""
        return dot(self.n, motion.w) + dot(self.f, motion.v)


@struct
class Transform:
    """A change of coordinates from frame A to frame B, the 6 x 6 matrix X_BA = [E, 0; -E skew(r), E].

    E rotates coordinates of A to coordinates of B; r is the position of B's origin in A [m]. Adjacent letters match:
    X_CB @ X_BA = X_CA, m_B = X_BA.apply(m_A).
    """

    E: mat33
    r: vec3

    def __matmul__(self, other):
        """The product of two transforms, `other` first: (E1 E2, r2 + E2^T r1) [Qiao et al. 2021, eq. 36]."""
        return Transform(self.E @ other.E, other.r + transpose(other.E) @ self.r)

    def inverse(self):
        """The inverse transform: (E^T, -E r)."""
        return Transform(transpose(self.E), -(self.E @ self.r))

    def apply(self, m):
        """A motion from A to B, X m = [E w; E (v - r x w)] [Qiao et al. 2021, eq. 28]."""
        return Motion(self.E @ m.w, self.E @ (m.v - cross(self.r, m.w)))

    def apply_inverse(self, m):
        """A motion from B to A, X^-1 m = [E^T w; E^T v + r x E^T w] [Qiao et al. 2021, eq. 30]."""
        back = transpose(self.E)
        w = back @ m.w
        return Motion(w, back @ m.v + cross(self.r, w))

    def apply_transpose(self, f):
        """A force from B to A, X^T f = [E^T n + r x E^T f; E^T f] [Qiao et al. 2021, eq. 32]."""
        back = transpose(self.E)
        force = back @ f.f
        return Force(back @ f.n + cross(self.r, force), force)

    def apply_inverse_transpose(self, f):
        """A force from A to B, X^-T f = [E (n - r x f); E f] [Qiao et al. 2021, eq. 34].

        The paper prints E^T for E here, which is not the inverse of its eq. 32.
        """
        return Force(self.E @ (f.n - cross(self.r, f.f)), self.E @ f.f)
